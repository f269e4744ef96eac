"""Options of the commands, made from the parameter classes."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from randsvm.cli.commands import OptionOfField
from randsvm.errors import ParameterError
from randsvm.files import STANDARD, inputs
from randsvm.parameters import values
from randsvm.parameters.option import OUTPUT, Option, option_fields
from randsvm.parameters.rounds import RoundsParams
from randsvm.parameters.run import ALGORITHMS, COMMON

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

# Inputs are checked when they are opened, with exit code 66; click would use 2.
PATH = click.Path(readable=False)


class KindType(click.ParamType):
    """The values of a kind, whose bounds fail through click."""

    def __init__(self, kind: values.Kind) -> None:
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

        if isinstance(self.kind, values.Path):
            return [CompletionItem(incomplete, type="file")]
        words = self.kind.words
        return [CompletionItem(word) for word in words if word.startswith(incomplete)]


def _help(spec: Option, default: object) -> str:
    """Return the help text with bounds and default; a bound that says only "finite" is left out."""
    bounds = spec.kind.bounds.removesuffix(" and finite").removeprefix("finite")
    text, _, own = spec.help.partition("  [default: ")
    text = f"{text}  [{bounds}]" if bounds else text
    # Options of these kinds say in their own help what the default is.
    says_itself = values.Flag, values.Size, values.Switch, values.Weights
    if default is None or not isinstance(spec.kind, says_itself):
        own = own or f"{'none' if default is None else default}]"
    return f"{text}  [default: {own}" if own else text


def click_option(
    name: str, default: object, spec: Option, hidden: bool = False
) -> Callable[[Any], Any]:
    """Return a decorator that adds an option to a command."""
    kind: dict[str, Any] = {"type": KindType(spec.kind)}
    if isinstance(spec.kind, values.Flag):
        kind = {"is_flag": True}
    elif isinstance(spec.kind, values.Weights):
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
        "Write a page about the training with pictures to this file (needs the extra plot).",
        values.Path(),
        OUTPUT,
    ),
)
log = click_option(
    "log",
    None,
    Option(
        ("--log",),
        "Add a line of JSON per event to this file.",
        values.Path(),
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
        values.Choice("text", "json"),
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
        values.Flag(),
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
    *data, last = names
    if data:
        return data[0] if len(data) == 1 else tuple(data), last
    if last == STANDARD:
        raise ParameterError("training from standard input needs a MODEL_FILE")
    first, *others = inputs(last)
    if others:
        raise ParameterError(f"{last} matches several files: give a MODEL_FILE too")
    return last, Path(first).name + ".model"
