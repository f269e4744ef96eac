"""Commands with LIBSVM's spellings of options, corrections of mistyped ones, and two helps."""

from __future__ import annotations

import glob
import inspect
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from randsvm.errors import suggestion
from randsvm.files import file_exists
from randsvm.parameters.option import GROUPS, OUTPUT, Option
from randsvm.parameters.values import BALANCED

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# Fits a terminal of 80 columns.
SETTINGS = {"max_content_width": 80}
# Key of click's Context.meta: whether the help shows all options.
HELP_ALL = "randsvm.help_all"

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


class OptionOfField(click.Option):
    """An option of click with the Option that it is made from."""

    def __init__(self, *arguments: Any, spec: Option, **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self.spec = spec


def help_all() -> click.Option:
    """Return the option that prints the whole help."""

    def show(ctx: click.Context, param: click.Parameter, value: bool) -> None:
        if value and not ctx.resilient_parsing:
            ctx.meta[HELP_ALL] = True
            click.echo(ctx.get_help())
            ctx.exit()

    text = "Show all options and exit."
    return click.Option(
        ["--help-all"], is_flag=True, is_eager=True, expose_value=False, callback=show, help=text
    )


def with_weight_of_balanced(args: list[str]) -> list[str]:
    """Return the words with a weight after `-w balanced`: click expects one after each label."""
    words: list[str] = []
    for word in args:
        words.append(word)
        follows_option = word == BALANCED and words[-2:-1] in (["-w"], ["--weight"])
        if follows_option or word in (f"-w{BALANCED}", f"--weight={BALANCED}"):
            words.append("1")
    return words


class Command(click.Command):
    """A command with corrections of mistyped options, and two helps.

    examples: command line -> what it does.
    """

    def __init__(
        self,
        *arguments: Any,
        examples: dict[str, str] | None = None,
        **attributes: Any,
    ) -> None:
        super().__init__(*arguments, **attributes)
        self.params.append(help_all())
        self.examples = examples or {}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args == ["-h"]:  # with other words it is LIBSVM's -h, shrinking
            args = ["--help"]
        try:
            rest = super().parse_args(ctx, with_weight_of_balanced(args))
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
            root = ctx.find_root().info_name
            raise click.UsageError(
                f"no file {name!r}: {group.metavar} comes first, as in {root} {name}", ctx
            )

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.indentation():
            text = inspect.cleandoc(self.help or "")
            formatter.write_paragraph()
            formatter.write_text(text if ctx.meta.get(HELP_ALL) else text.partition("\n\n")[0])

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if not ctx.meta.get(HELP_ALL):
            write_short_options(formatter, self, "Options")
            return
        records: dict[str, list[tuple[str, str]]] = {title: [] for title in GROUPS}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and isinstance(parameter, click.Option):
                group = parameter.spec.group if isinstance(parameter, OptionOfField) else OUTPUT
                records[group].append(record)
        for title, own in records.items():
            if own:
                with formatter.section(title):
                    formatter.write_dl(own)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_examples(formatter, self.examples)
        if not ctx.meta.get(HELP_ALL):
            formatter.write(f"\nAll options: {ctx.command_path} --help-all")
        name = ctx.find_root().info_name
        formatter.write(f"\nExit codes, environment, completion: {name} --help-all\n")


class Commands(click.Group):
    """A group of commands; without the name of one, the command `plain` takes the words.

    metavar: what a command is called in the help. usage: the words of a command line. note: about a
    command line without the name of a command. exit_codes: those with another meaning than in
    EXIT_CODES.
    """

    def __init__(
        self,
        *arguments: Any,
        plain: str,
        metavar: str,
        usage: str,
        note: str,
        examples: dict[str, str],
        exit_codes: dict[int, str] | None = None,
        **attributes: Any,
    ) -> None:
        super().__init__(*arguments, **attributes)
        self.params.append(help_all())
        self.exit_codes = EXIT_CODES | (exit_codes or {})
        self.plain = plain
        self.metavar, self.usage, self.note = metavar, usage, note
        self.examples = examples

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            click.echo(self.get_help(ctx), err=True)
            ctx.exit(2)
        if args == ["-h"]:
            args = ["--help"]
        elif args and args[0] not in (*self.commands, "--help", "--help-all", "--version"):
            near = suggestion(args[0], self.commands)
            if near and not re.search(r"^-|\.", args[0]) and not file_exists(args[0]):
                raise click.UsageError(f"neither a file nor {self.metavar} {args[0]!r}{near}", ctx)
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
        if not ctx.meta.get(HELP_ALL):
            plain = self.commands[self.plain]
            write_short_options(formatter, plain, f"Options of {self.plain}")
        formatter.write_paragraph()
        formatter.write_text(self.note)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_examples(formatter, self.examples)
        name = ctx.info_name or ""
        if ctx.meta.get(HELP_ALL):
            with formatter.section("Exit codes"):
                formatter.write_dl([(str(code), text) for code, text in self.exit_codes.items()])
            with formatter.section("Environment"):
                formatter.write_dl(list(ENVIRONMENT.items()))
            variable = f"_{name}_COMPLETE".replace("-", "_").upper()
            with formatter.section("Completion in bash (zsh and fish alike), for ~/.bashrc"):
                formatter.write(f'  eval "$({variable}=bash_source {name})"\n')
        else:
            formatter.write(f"\nAll options: {name} {self.metavar} --help-all\n")
            formatter.write(f"Exit codes, environment, completion: {name} --help-all\n")


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


def write_short_options(formatter: click.HelpFormatter, command: click.Command, title: str) -> None:
    """Write a line for each option of the short help."""
    specs = [one.spec for one in command.params if isinstance(one, OptionOfField)]
    records = [(", ".join(spec.flags), spec.brief) for spec in specs if spec.brief]
    if records:
        with formatter.section(title):
            formatter.write_dl(records)
