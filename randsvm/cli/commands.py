"""Commands with LIBSVM's spellings of options, corrections of mistyped ones, and grouped help."""

from __future__ import annotations

import glob
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from randsvm.files import file_exists
from randsvm.parameters.option import BALANCED, Option

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# Fits a terminal of 80 columns.
SETTINGS = {"max_content_width": 80}
# Key of click's Context.meta: the words of the command line.
WORDS_KEY = "randsvm.words"

# Groups of options in the help. Options of parameter classes are in the first group and other ones
# in the last, unless GROUPS names another one.
MODEL, STOP, SEARCH, RESOURCES, OUTPUT = (
    "Model",
    "Algorithm and stopping",
    "Search and cross-validation",
    "Resources",
    "Output and other options",
)
GROUPS = {
    **dict.fromkeys(("gap", "tolerance", "max_iterations", "time_limit", "require_gap"), STOP),
    **dict.fromkeys(("support_bound", "distortion", "delta", "separable", "sample_size"), STOP),
    **dict.fromkeys(("working_set", "swap", "shrinking", "warm_start", "seed"), STOP),
    **dict.fromkeys(("epochs", "average", "early_stopping"), STOP),
    **dict.fromkeys(("update", "update_rate", "checkpoint"), STOP),
    **dict.fromkeys(("folds", "subset"), SEARCH),
    "overwrite": OUTPUT,
    **dict.fromkeys(("jobs", "memory", "libsvm_cache", "tmpdir", "cache", "cluster"), RESOURCES),
}

EXIT_CODES = {
    0: "done, also at --time-limit",
    2: "usage: a mistaken option or value",
    65: "bad data or model (file:line:column)",
    66: "an input cannot be opened",
    69: "the cluster cannot be reached or stops working; the best model so far is written",
    70: "a bug, with its traceback, or an export that predicts differently from its model",
    71: "out of memory",
    73: "an output cannot be created",
    74: "reading or writing failed, as on a full disk or a closed pipe; a trained model is still "
    "written if MODEL_FILE can be",
    75: "the gap is above --require-gap, or --time-limit left no model or a worse one than the old "
    "model: the old model stays",
    128: "+ signal: interrupted; the best model so far is written",
}
ENVIRONMENT = {
    "TMPDIR": "folder of the spill file, if --tmpdir names none",
    "NO_COLOR": "no colours on a terminal",
    "TERM": "dumb: no progress bars",
}


class BoundedOption(click.Option):
    """An option with bounds, whose errors repeat its name and value as the user typed them."""

    def __init__(self, *arguments: Any, spec: Option, **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self.spec = spec

    def process_value(self, ctx: click.Context, value: Any) -> Any:
        """Raise ParameterError for a value out of its bounds."""
        found = super().process_value(ctx, value)
        if found is None or ctx.resilient_parsing:
            return found
        flag = self._spelled(ctx.meta.get(WORDS_KEY, []))
        if self.spec.value_type == "weights":
            for label, weight in found:
                self.spec.check(f"the weight in {flag} {label}", weight)
            return found
        several = isinstance(found, tuple)
        for one in found if several else [found]:
            # Bounds are for numbers; a word such as auto has none.
            if not isinstance(one, str):
                typed = None if several else value
                if several and one < 0 == self.spec.above:
                    # The ranges of grid.py have exponents of 2.
                    typed = f"{one:g} (a power of 2 is written as 2^-1)"
                self.spec.check(flag, one, typed)
        return found

    def _spelled(self, words: list[str]) -> str:
        """Return the spelling of this option that is last on the command line."""
        for word in reversed(words):
            for flag in self.opts:
                if word.startswith(flag) and (
                    not flag.startswith("--") or word[len(flag) :][:1] in ("", "=")
                ):
                    return flag
        return self.opts[0]


class Command(click.Command):
    """A command that also takes -wLABEL WEIGHT, as LIBSVM's programs do, and -w balanced.

    examples: command line -> what it does.
    """

    # Titles of the groups of options in the help, in their order.
    TITLES: tuple[str, ...] = (MODEL, STOP, SEARCH, RESOURCES, OUTPUT)

    def __init__(
        self,
        *arguments: Any,
        examples: dict[str, str] | None = None,
        **attributes: Any,
    ) -> None:
        super().__init__(*arguments, **attributes)
        self.examples = examples or {}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args == ["-h"]:  # with other words it is LIBSVM's -h, shrinking
            args = ["--help"]
        words: list[str] = []
        own = [one for one in self.params if isinstance(one, click.Option) and not one.is_flag]
        lengths = {flag: one.nargs for one in own for flag in one.opts}
        # The number of words that belong to the option before them. All words after -- are files.
        values = 0
        for word in args:
            attached = not values and re.fullmatch(r"-w[^=].*", word)
            words += ["-w", word[2:]] if attached else [word]
            is_label = attached or (values == 2 and words[-2] in ("-w", "--weight"))
            if values:
                values -= 1
            elif word == "--":
                values = len(args)
            else:
                values = 1 if attached else lengths.get(word, 0)
            if is_label and words[-1] == BALANCED:
                words.append("1")  # click expects a weight after each label
                values = 0
        ctx.meta[WORDS_KEY] = list(words)
        try:
            rest = super().parse_args(ctx, words)
            if not ctx.resilient_parsing:
                self._check_first_file(ctx)
            return rest
        except click.NoSuchOption as error:
            word = error.option_name
            owners = _commands_with(ctx, word)
            if owners:
                name = ctx.find_root().info_name
                message = (
                    f"{word} is an option of {name} {', '.join(owners)}, not of {ctx.info_name}"
                )
                raise click.NoSuchOption(word, message, ctx=ctx) from None
            near = word.swapcase()
            # click suggests long names; -C suggests -c.
            if error.possibilities or not any(near in one.opts for one in self.params):
                raise
            message = f"No such option {word!r}. Did you mean {near!r}?"
            raise click.NoSuchOption(word, message, ctx=ctx) from None

    def _check_first_file(self, ctx: click.Context) -> None:
        """Raise an error if the first file is missing and has the name of a command."""
        group = None if ctx.parent is None else ctx.parent.command
        first = next(one.name for one in self.params if isinstance(one, click.Argument))
        name = ctx.params[first or ""]
        if isinstance(group, Commands) and name in group.commands and not file_exists(name):
            comes_first = f"{group.metavar} comes first, as in {ctx.find_root().info_name} {name}"
            raise click.UsageError(f"no file {name!r}: {comes_first}", ctx)

    def title_of(self, option: click.Option) -> str:
        """Return the title of the group of an option in the help."""
        return GROUPS.get(option.name or "", MODEL if isinstance(option, BoundedOption) else OUTPUT)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        records: dict[str, list[tuple[str, str]]] = {title: [] for title in self.TITLES}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and isinstance(parameter, click.Option):
                records[self.title_of(parameter)].append(record)
        for title, own in records.items():
            if own:
                with formatter.section(title):
                    formatter.write_dl(own)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_examples(formatter, self.examples)
        if ctx.parent is not None:
            name = ctx.find_root().info_name
            formatter.write(f"\nExit codes, environment, completion: {name} --help\n")
        else:
            write_surroundings(formatter, ctx.info_name or "")


class Commands(click.Group):
    """A group of commands; without the name of one, the command `plain` takes the words.

    metavar: what a command is called in the help. usage: the words of a command line. note: about a
    command line without the name of a command.
    """

    def __init__(
        self,
        *arguments: Any,
        plain: str,
        metavar: str,
        usage: str,
        note: str,
        examples: dict[str, str],
        **attributes: Any,
    ) -> None:
        super().__init__(*arguments, **attributes)
        self.plain = plain
        self.metavar, self.usage, self.note = metavar, usage, note
        self.examples = examples

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            click.echo(self.get_help(ctx), err=True)
            ctx.exit(2)
        if args == ["-h"]:
            args = ["--help"]
        elif args and args[0] not in (*self.commands, "--help", "--version"):
            args = [self.plain, *args]
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands, and the options and files of the plain one.

        If the answer asks bash to complete files, bash ignores the commands in it. Where commands
        and files match, the answer therefore has the names of the files.
        """
        from click.shell_completion import CompletionItem

        found = super().shell_complete(ctx, incomplete)
        if incomplete.startswith("-"):
            plain = self.commands[self.plain]
            with plain.make_context(self.plain, [], ctx, resilient_parsing=True) as own:
                more = plain.shell_complete(own, incomplete)
        elif found:
            names = [path.name for path in Path().glob(f"{glob.escape(incomplete)}*")]
            more = [CompletionItem(name) for name in sorted(names) if name[0] != "."]
        else:
            more = [CompletionItem(incomplete, type="file")]
        return list({item.value: item for item in [*found, *more]}.values())

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_usage(ctx.command_path, self.usage)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section(f"{self.metavar.capitalize()}s"):
            formatter.write_dl(
                [(name, one.short_help or "") for name, one in self.commands.items()]
            )
        formatter.write_paragraph()
        line = f"{ctx.command_path} {self.metavar} --help"
        formatter.write_text(f"{self.note} All options: {line}")

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_examples(formatter, self.examples)
        write_surroundings(formatter, ctx.info_name or "")


def _commands_with(ctx: click.Context, flag: str) -> list[str]:
    """Return the names of the commands of the group that have an option."""
    group = None if ctx.parent is None else ctx.parent.command
    commands = group.commands if isinstance(group, click.Group) else {}
    return [
        name
        for name, command in commands.items()
        if any(flag in parameter.opts for parameter in command.params)
    ]


def write_examples(formatter: click.HelpFormatter, examples: dict[str, str]) -> None:
    with formatter.section("Examples"):
        for words, meaning in examples.items():
            formatter.write(f"  {words}\n      {meaning}\n")


def write_surroundings(formatter: click.HelpFormatter, name: str) -> None:
    """Write exit codes, environment variables and shell completion."""
    with formatter.section("Exit codes"):
        formatter.write_dl([(str(code), meaning) for code, meaning in EXIT_CODES.items()])
    with formatter.section("Environment"):
        formatter.write_dl(list(ENVIRONMENT.items()))
    variable = f"_{name}_COMPLETE".replace("-", "_").upper()
    with formatter.section("Completion in bash (zsh and fish alike), for ~/.bashrc"):
        formatter.write(f'  eval "$({variable}=bash_source {name})"\n')
