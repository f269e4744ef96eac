"""Options made from the parameter classes, and commands that take them.

Commands have LIBSVM's spellings of options, corrections of mistyped ones, and two helps.
"""

from __future__ import annotations

import glob
import inspect
import pathlib
import re
from collections import Counter
from collections.abc import Callable, Container, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from randsvm.errors import ParameterError, suggestion
from randsvm.files import STANDARD, file_exists, inputs
from randsvm.parameters.option import (
    BALANCED,
    GROUPS,
    OUTPUT,
    Choice,
    Flag,
    Kind,
    Option,
    Path,
    Size,
    Switch,
    Weights,
    option_fields,
)
from randsvm.parameters.rounds import RoundsParams
from randsvm.parameters.run import ALGORITHMS, COMMON

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
            owners = [
                name
                for name, command in _commands_of_group(ctx).items()
                if any(word in parameter.opts for parameter in command.params)
            ]
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
        first = next(one.name for one in self.params if isinstance(one, click.Argument))
        name = ctx.params[first or ""]
        if name in _commands_of_group(ctx) and not file_exists(name):
            root: Any = ctx.find_root()
            message = f"{root.command.metavar} comes first, as in {root.info_name} {name}"
            raise click.UsageError(f"no file {name!r}: {message}", ctx)

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
        if ctx.meta.get(HELP_ALL):
            formatter.write_paragraph()
        else:
            write_place_of_others(formatter, self, ctx.command_path)
        name = ctx.find_root().info_name
        formatter.write(f"Exit codes, environment, completion: {name} --help-all\n")


class Commands(click.Group):
    """A group of commands; without the name of one, the command `plain` takes the words.

    metavar: what a command is called in the help. exit_codes: those with another meaning than in
    EXIT_CODES. elsewhere: the program of each command that belongs to another one. epilog: about a
    command line without the name of a command.
    """

    def __init__(
        self,
        *arguments: Any,
        plain: str,
        metavar: str,
        examples: dict[str, str],
        exit_codes: dict[int, str] | None = None,
        elsewhere: Mapping[str, str] | None = None,
        **attributes: Any,
    ) -> None:
        super().__init__(*arguments, options_metavar=None, **attributes)
        self.params.append(help_all())
        self.exit_codes = EXIT_CODES | (exit_codes or {})
        self.plain, self.metavar = plain, metavar
        self.examples = examples
        self.elsewhere = elsewhere or {}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            click.echo(self.get_help(ctx), err=True)
            ctx.exit(2)
        if args == ["-h"]:
            args = ["--help"]
        elif args and args[0] not in (*self.commands, "--help", "--help-all", "--version"):
            if args[0] in self.elsewhere and not file_exists(args[0]):
                program = self.elsewhere[args[0]]
                raise click.UsageError(f"{args[0]} is a command of {program}", ctx)
            is_word = not re.search(r"^-|\.", args[0]) and not file_exists(args[0])
            if is_word and (near := suggestion(args[0], self.commands)):
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
            names = [path.name for path in pathlib.Path().glob(f"{glob.escape(incomplete)}*")]
            more = [CompletionItem(name) for name in sorted(names) if name[0] != "."]
        else:
            more = [CompletionItem(incomplete, type="file")]
        return list({item.value: item for item in [*found, *more]}.values())

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section(f"{self.metavar.capitalize()}s"):
            formatter.write_dl(
                [(name, one.short_help or "") for name, one in self.commands.items()]
            )
        if not ctx.meta.get(HELP_ALL):
            plain = self.commands[self.plain]
            write_short_options(formatter, plain, f"Options of {self.plain}")
        formatter.write_paragraph()
        formatter.write_text(self.epilog or "")

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
            plain = self.commands[self.plain]
            write_place_of_others(formatter, plain, f"{name} {self.metavar}")
            formatter.write(f"Exit codes, environment, completion: {name} --help-all\n")


def _commands_of_group(ctx: click.Context) -> Mapping[str, click.Command]:
    """Return the commands of the group that a command belongs to, by name."""
    group = None if ctx.parent is None else ctx.parent.command
    return group.commands if isinstance(group, click.Group) else {}


def write_examples(formatter: click.HelpFormatter, examples: dict[str, str]) -> None:
    with formatter.section("Examples"):
        for words, meaning in examples.items():
            formatter.write(f"  {words}\n      {meaning}\n")


def write_short_options(formatter: click.HelpFormatter, command: click.Command, title: str) -> None:
    """Write a line for each option of the short help."""
    records = [(", ".join(one.flags), one.brief) for one in _specs(command) if one.brief]
    if records:
        with formatter.section(title):
            formatter.write_dl(records)


def write_place_of_others(
    formatter: click.HelpFormatter, command: click.Command, words: str
) -> None:
    """Write how many options of each group the short help lacks, and the words that list them."""
    counts = Counter(one.group for one in _specs(command) if not one.brief)
    listed = ", ".join(f"{group} ({counts[group]})" for group in GROUPS if counts[group])
    formatter.write_paragraph()
    if listed:
        formatter.write_text(f"Options not listed: {listed}.")
    formatter.write(f"All options: {words} --help-all\n")


def _specs(command: click.Command) -> list[Option]:
    """Return the options of a command that its help has."""
    options = [one for one in command.params if isinstance(one, OptionOfField)]
    return [one.spec for one in options if not one.hidden]


# ---- options of the parameter classes ----------------------------------------------------------

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

# Inputs are checked when they are opened, with exit code 66; click would use 2.
PATH = click.Path(readable=False)


class KindType(click.ParamType):
    """The values of a kind, whose bounds fail through click."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.name = kind.metavar.lower()

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return self.kind.metavar

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return self.kind.value(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        if isinstance(self.kind, Path):
            return [CompletionItem(incomplete, type="file")]
        words = self.kind.words
        return [CompletionItem(word) for word in words if word.startswith(incomplete)]


def _help(spec: Option, default: object) -> str:
    """Return the help text with bounds and default; a bound that says only "finite" is left out."""
    bounds = spec.kind.bounds.removesuffix(" and finite").removeprefix("finite")
    # If the help text ends with a default of its own, the bounds go before it.
    text, _, told = spec.help.partition("  [default: ")
    text = f"{text}  [{bounds}]" if bounds else text
    # Options of these kinds say in their own help what the default is.
    says_itself = Flag, Size, Switch, Weights
    if default is None or not isinstance(spec.kind, says_itself):
        told = told or f"{'none' if default is None else default}]"
    return f"{text}  [default: {told}" if told else text


def click_option(
    name: str, default: object, spec: Option, hidden: bool = False
) -> Callable[[Any], Any]:
    """Return a decorator that adds an option to a command."""
    kind: dict[str, Any] = {"type": KindType(spec.kind)}
    if isinstance(spec.kind, Flag):
        kind = {"is_flag": True}
    elif isinstance(spec.kind, Weights):
        pair = (str, KindType(spec.kind.number))
        kind = {"type": pair, "multiple": True, "metavar": spec.kind.metavar}
    return click.option(
        *spec.flags,
        name,
        default=default,
        help=_help(spec, default),
        cls=OptionOfField,
        spec=spec,
        hidden=hidden,
        **kind,
    )


def parameters(
    *groups: type, only: Container[str] | None = None, hidden: Container[str] = ()
) -> Callable[[Decorated], Decorated]:
    """Decorate a command with an option for each field of the parameter classes, in order.

    only: names of fields to include; None: all. hidden: names that help and completion omit.
    """

    def decorate(command: Decorated) -> Decorated:
        for group in reversed(groups):
            for f, spec in reversed(list(option_fields(group))):
                if only is None or f.name in only:
                    command = click_option(f.name, f.default, spec, f.name in hidden)(command)
        return command

    return decorate


html = click_option(
    "html",
    None,
    Option(
        ("--html",),
        "Write a page about the training run with pictures to this file (needs matplotlib and "
        "scikit-learn).",
        Path(),
        OUTPUT,
    ),
)
log = click_option(
    "log",
    None,
    Option(
        ("--log",),
        "Add a line of JSON per event to this file.",
        Path(),
        OUTPUT,
        "Add a line of JSON per event to this file.",
    ),
)
report = click_option(
    "report",
    "text",
    Option(
        ("--report",),
        "The final summary, also of a run that fails: text, or one JSON object.",
        Choice("text", "json"),
        OUTPUT,
        "text or json: the final summary.",
    ),
)
quiet = click_option(
    "quiet",
    False,
    Option(
        ("-q", "--quiet"),
        "Print errors and results only.",
        Flag(),
        OUTPUT,
        "Print errors and results only.",
    ),
)


def of_algorithm(algorithm: str) -> Callable[[Decorated], Decorated]:
    """Decorate a command with the arguments and options of an algorithm of randsvm-train."""
    groups = ALGORITHMS[algorithm]
    more = click.argument("more_files", type=PATH, nargs=-1, metavar="[TRAIN_FILE...] [MODEL_FILE]")
    # sgd writes its model whatever the gap, and does not use LIBSVM. It takes --require-gap and
    # the cache of LIBSVM too, so that errors give the reason, but its help omits them.
    hidden = () if RoundsParams in groups else ("require_gap", "libsvm_cache")

    def decorate(command: Decorated) -> Decorated:
        command = parameters(*COMMON, hidden=hidden)(report(quiet(log(html(command)))))
        return click.argument("train_file", type=PATH)(more(parameters(*groups)(command)))

    return decorate


# Arguments and options of the commands, not of the library.
NOT_OF_THE_LIBRARY = ("train_file", "more_files", "log", "html", "report", "quiet")


def explicit(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that the command line names, as the library takes them."""
    source, default = click.get_current_context().get_parameter_source, ParameterSource.DEFAULT
    return {
        name: value
        for name, value in given.items()
        if name not in NOT_OF_THE_LIBRARY and source(name) is not default
    }


def files_of(given: dict[str, Any]) -> tuple[str | tuple[str, ...], str]:
    """Return TRAIN_FILE, or several, and MODEL_FILE: the last of several names, or its default."""
    names: list[str] = [given["train_file"], *given["more_files"]]
    if given["sql"] is not None:
        from randsvm.data.database import Query

        names[0] = Query(names[0], given["sql"])
    *data, last = names
    if data:
        return data[0] if len(data) == 1 else tuple(data), last
    if last == STANDARD:
        raise ParameterError("training from standard input needs a MODEL_FILE")
    first, *others = inputs(last)
    if others:
        raise ParameterError(f"{last} matches several files: give a MODEL_FILE too")
    return last, pathlib.Path(first).name + ".model"
