"""How a command reads its words and shows its help: LIBSVM's spellings, slips, groups, examples.

Knows no option by its meaning, only where in the help it stands.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from randsvm.files import is_there
from randsvm.parameters.option import BALANCED, Option

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# Fits a terminal of 80 columns.
SETTINGS = {"max_content_width": 80}
# Of click's Context.meta: the words of the command line.
WORDS = "randsvm.words"

# Groups of options in the help, and the names of the options in them. Others that parameters have
# are of the first group, others of the last.
WHAT, FAR, SEARCH, RESOURCES, OUTPUT = (
    "What to train",
    "How far to go",
    "Search and cross-validation",
    "Resources",
    "Output and the rest",
)
GROUPS = {
    **dict.fromkeys(("gap", "tolerance", "max_iterations", "time_limit", "require_gap"), FAR),
    **dict.fromkeys(("support_bound", "distortion", "delta", "separable", "sample_size"), FAR),
    **dict.fromkeys(("working_set", "swap", "shrinking", "warm_start", "seed"), FAR),
    **dict.fromkeys(("epochs", "average", "early_stopping"), FAR),
    **dict.fromkeys(("update", "update_rate", "checkpoint"), FAR),
    **dict.fromkeys(("folds", "subset"), SEARCH),
    "overwrite": OUTPUT,
    **dict.fromkeys(("jobs", "memory", "libsvm_cache", "tmpdir", "cache", "cluster"), RESOURCES),
}

EXIT_CODES = {
    0: "done, also at --time-limit",
    2: "usage: a mistaken option or value",
    65: "bad data or model (file:line:column)",
    66: "an input cannot be opened",
    69: "the cluster cannot be reached or does not go on; the best model so far is written",
    70: "a bug, with its traceback",
    71: "out of memory",
    73: "an output cannot be created",
    74: "reading or writing failed, as on a full disk",
    75: "--require-gap was not met, or a better model than that of --time-limit is there: the old "
    "model stays",
    128: "+ signal: interrupted; the best model so far is written",
}
ENVIRONMENT = {
    "TMPDIR": "folder of the spill file, if --tmpdir names none",
    "NO_COLOR": "no colours on a terminal",
    "TERM": "dumb: no progress bars",
}


class Typed(click.Option):
    """An option whose errors name it and its value as they were typed."""

    def __init__(self, *arguments: Any, spec: Option, **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self.spec = spec

    def process_value(self, ctx: click.Context, value: Any) -> Any:
        """Raises ParameterError for a value beyond the bounds."""
        found = super().process_value(ctx, value)
        if found is None or ctx.resilient_parsing:
            return found
        flag = self._spelled(ctx.meta.get(WORDS, []))
        if self.spec.kind == "weights":
            for label, weight in found:
                self.spec.check(f"the weight in {flag} {label}", weight)
            return found
        several = isinstance(found, tuple)
        for one in found if several else [found]:
            # A word stands for a value that is within the bounds.
            if not isinstance(one, str):
                self.spec.check(flag, one, None if several else value)
        return found

    def _spelled(self, words: list[str]) -> str:
        """As it stands on the command line, the last time."""
        for word in reversed(words):
            for flag in self.opts:
                if word.startswith(flag) and (
                    not flag.startswith("--") or word[len(flag) :][:1] in ("", "=")
                ):
                    return flag
        return self.opts[0]


class Command(click.Command):
    """A command in LIBSVM's style: it also takes -wLABEL WEIGHT for -w LABEL WEIGHT, and
    -w balanced. examples: command lines with what they do."""

    def __init__(
        self, *arguments: Any, examples: dict[str, str] | None = None, **attributes: Any
    ) -> None:
        super().__init__(*arguments, **attributes)
        self.examples = examples or {}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words: list[str] = []
        for word, following in zip(args, [*args, ""][1:], strict=True):
            words += ["-w", word[2:]] if re.fullmatch(r"-w[^=].*", word) else [word]
            if words[-2:-1] in (["-w"], ["--weight"]):
                words += self._weight_of_all(ctx, words[-1], following)
        ctx.meta[WORDS] = list(words)
        try:
            return super().parse_args(ctx, words)
        except click.NoSuchOption as error:
            word = error.option_name
            near = word.swapcase()
            # click knows what is near a long name; -C is near -c.
            if error.possibilities or not any(near in one.opts for one in self.params):
                raise
            message = f"No such option {word!r}. Did you mean {near!r}?"
            raise click.NoSuchOption(word, message, ctx=ctx) from None

    def _weight_of_all(self, ctx: click.Context, label: str, following: str) -> list[str]:
        """The weight that `balanced` has as if it were a label. A word near it that no weight
        follows is a slip."""
        if label == BALANCED:
            return ["1"]
        if _near(label, [BALANCED]) and not _is_number(following):
            raise click.UsageError(f"-w {label}: did you mean -w {BALANCED}?", ctx)
        return []

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        records: dict[str, list[tuple[str, str]]] = {
            title: [] for title in dict.fromkeys(_titles())
        }
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and isinstance(parameter, click.Option):
                title = WHAT if isinstance(parameter, Typed) else OUTPUT
                records[GROUPS.get(parameter.name or "", title)].append(record)
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
    """Several commands; words that begin with none of them are for the command `plain`."""

    def __init__(
        self,
        *arguments: Any,
        plain: str,
        examples: dict[str, str],
        **attributes: Any,
    ) -> None:
        super().__init__(*arguments, **attributes)
        self.plain = plain
        self.examples = examples

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            click.echo(self.get_help(ctx), err=True)
            ctx.exit(2)
        if args == ["-h"]:
            args = ["--help"]
        elif args and not self._is_command(ctx, args[0]):
            args = [self.plain, *args]
        return super().parse_args(ctx, args)

    def _is_command(self, ctx: click.Context, word: str) -> bool:
        """Raises UsageError for a word that is neither a command nor a file, but near a command."""
        if word in self.commands or word in ("--help", "--version"):
            return True
        if re.search("^-|[./]", word) or ctx.resilient_parsing or is_there(word):
            return False
        near = _near(word, self.commands)
        if near:
            listed = " or ".join(near)
            raise click.UsageError(f"no command or file {word!r}: did you mean {listed}?", ctx)
        return False

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands, and the options and files of the plain one.

        Shells complete files themselves, but bash then ignores commands: where both match, the
        names of files are listed here.
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
        formatter.write_usage(ctx.command_path, "[ALGORITHM] [OPTIONS] TRAIN_FILE [MODEL_FILE]")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("What to choose"):
            formatter.write_dl(
                [(name, one.get_short_help_str(60)) for name, one in self.commands.items()]
            )
        formatter.write(
            f"\nWithout ALGORITHM it is {self.plain}. Options of each: "
            f"{ctx.command_path} ALGORITHM --help\n"
        )

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_examples(formatter, self.examples)
        write_surroundings(formatter, ctx.info_name or "")


def _near(word: str, words: Iterable[str]) -> list[str]:
    from difflib import get_close_matches

    return get_close_matches(word, list(words))


def _titles() -> list[str]:
    return [WHAT, FAR, SEARCH, RESOURCES, OUTPUT]


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def write_examples(formatter: click.HelpFormatter, examples: dict[str, str]) -> None:
    with formatter.section("Examples"):
        for words, meaning in examples.items():
            formatter.write(f"  {words}\n      {meaning}\n")


def write_surroundings(formatter: click.HelpFormatter, name: str) -> None:
    """Exit codes, environment and shell completion."""
    with formatter.section("Exit codes"):
        formatter.write_dl([(str(code), meaning) for code, meaning in EXIT_CODES.items()])
    with formatter.section("Environment"):
        formatter.write_dl(list(ENVIRONMENT.items()))
    variable = f"_{name}_COMPLETE".replace("-", "_").upper()
    with formatter.section("Completion in bash (zsh and fish alike), for ~/.bashrc"):
        formatter.write(f'  eval "$({variable}=bash_source {name})"\n')
