"""Options of the commands, generated from the parameter classes, and their types of values."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import click
from click.core import ParameterSource

from randsvm.cli.commands import BoundedOption
from randsvm.errors import ParameterError
from randsvm.files import STANDARD, inputs
from randsvm.parameters.option import AUTO, Option, options
from randsvm.parameters.rounds import StopParams
from randsvm.parameters.run import ALGORITHMS, COMMON

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

# Inputs are checked when they are opened, with exit code 66; click would use 2.
PATH = click.Path(readable=False)


class Word(click.ParamType):
    """A word of a list, or the number of its position: `-t rbf` or `-t 2`."""

    name = "word"

    def __init__(self, words: tuple[str, ...]) -> None:
        self.words = words

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return "|".join(filter(None, self.words))

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        named = {str(number): word for number, word in enumerate(self.words) if word}
        found = str(value).lower()
        if found in named.values() or found in named:
            return named.get(found, found)
        listed = ", ".join(f"{word} ({number})" for number, word in named.items())
        expected = f"one of {listed}" if len(named) > 1 else listed.partition(" ")[0]
        return self.fail(f"expected {expected}, found {value!r}", param, ctx)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        return [CompletionItem(word) for word in self.words if word and word.startswith(incomplete)]


class Size(click.ParamType):
    """Bytes, with K, M, G or T for powers of 1,024."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        found = re.fullmatch(r"(\d+(?:\.\d*)?)([KMGT]?)(?:i?B)?", value, re.IGNORECASE)
        if not found:
            self.fail(f"expected a size as 512M or 4G, found {value!r}", param, ctx)
        if len(found[1]) > 20:
            self.fail(f"expected a size below 1e20, found {found[1][:20]}...", param, ctx)
        return int(float(found[1]) * 1024 ** " KMGT".index(found[2].upper() or " "))


class Switch(click.ParamType):
    """0 or 1, as LIBSVM's -h."""

    name = "0|1"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> bool:
        if value in (True, False):
            return bool(value)
        if value not in ("0", "1"):
            self.fail(f"expected 0 or 1, found {value!r}", param, ctx)
        return value == "1"


class Duration(click.ParamType):
    """Seconds, or with s, m, h: 90s, 10m, 2h."""

    name = "duration"
    UNITS: ClassVar = {"": 1, "s": 1, "m": 60, "h": 3600}

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        if isinstance(value, float):
            return value
        found = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)([smh]?)", str(value))
        if not found:
            return self.fail(f"expected a time as 90s, 10m or 2h, found {value!r}", param, ctx)
        return float(found[1]) * self.UNITS[found[2]]


class Numbers(click.ParamType):
    """A number or a power such as 2^-5; several of these, separated by commas; a range
    first:last:step, where each value is the one before times step; or a word such as scale."""

    name = "float[,float...]"
    MOST = 1000

    def __init__(self, spec: Option) -> None:
        self.words = (*spec.accepted_words, *([AUTO] if spec.auto else []))

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        if value.lower() in self.words:
            return value.lower()
        try:
            numbers = [one for part in value.split(",") for one in self._range(part)]
        except (ValueError, OverflowError, ZeroDivisionError):
            span = "a range as 2^-5:2^15:2^2 (its step multiplies)"
            listed = ", ".join(["a number", "several as 1,2,8", span, *self.words])
            self.fail(f"expected {listed}, found {value!r}", param, ctx)
        distinct = tuple(dict.fromkeys(numbers))
        return distinct if len(distinct) > 1 else distinct[0]

    def _range(self, text: str) -> list[float]:
        """Return the numbers of a range. Raises ValueError if the step does not reach the last."""
        first, *rest = map(_number, text.split(":"))
        if not rest:
            return [first]
        last, step = rest
        # The last value is in the range if only rounding puts it beyond the end.
        count = math.log(last / first) / math.log(step) + 1e-9
        if not 0 <= count < self.MOST:
            raise ValueError
        return [first * step**power for power in range(int(count) + 1)]


def _number(text: str) -> float:
    """Return a number, or a power as 2^-5."""
    base, *exponent = map(float, text.split("^"))
    power = base ** exponent.pop() if exponent else base
    if exponent or isinstance(power, complex):
        raise ValueError
    return power


class Gap(click.ParamType):
    """A number, or the word none."""

    name = "float"

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return "FLOAT|none"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float | str:
        try:
            return value if value == StopParams.NO_GAP else float(value)
        except ValueError:
            hint = ""
            with contextlib.suppress(ValueError):
                hint = f": write {float(str(value).removesuffix('%')) / 100:g}"
            return self.fail(f"expected a number or none, found {value!r}{hint}", param, ctx)


class Folds(click.ParamType):
    """A number of folds, or folds and repetitions as 5x3."""

    name = "N[xREPEATS]"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | str:
        if isinstance(value, int) or re.fullmatch(r"\d{1,9}x\d{1,9}", value):
            return value
        if not re.fullmatch(r"-?\d{1,9}", value):
            self.fail(f"expected folds as 5 or 5x3, found {value!r}", param, ctx)
        return int(value)


class CountOrAuto(click.ParamType):
    """A number, or the word auto."""

    name = "N|auto"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | str:
        if value == "auto" or isinstance(value, int):
            return value
        if not re.fullmatch(r"\d{1,9}", value):
            self.fail(f"expected a number or auto, found {value!r}", param, ctx)
        return int(value)


class Checkpoint(Duration):
    """A number of rows, or a time with its unit."""

    name = "rows|time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, str) and re.fullmatch(r"[1-9]\d{0,17}", value):
            return int(value)
        return super().convert(value, param, ctx)


# Type of an option's values -> arguments of `option`.
VALUE_TYPES: dict[str, dict[str, Any]] = {
    "int": {"type": int},
    "float": {"type": float},
    "flag": {"is_flag": True},
    "path": {"type": PATH},
    "text": {"type": str},
    "size": {"type": Size()},
    "switch": {"type": Switch()},
    "duration": {"type": Duration()},
    "count_or_auto": {"type": CountOrAuto()},
    "folds": {"type": Folds()},
    "gap": {"type": Gap()},
    "checkpoint": {"type": Checkpoint()},
    "weights": {"type": (str, float), "multiple": True, "metavar": "LABEL WEIGHT"},
}


def _help(spec: Option, default: object) -> str:
    """Return the help text with bounds and default; a bound that says only "finite" is left out."""
    bounds = spec.bounds.removesuffix(" and finite").removeprefix("finite")
    text, _, own = spec.help.partition("  [default: ")
    text = f"{text}  [{bounds}]" if bounds else text
    # The help of the other types says what their default means.
    if default is None or spec.value_type not in ("flag", "size", "switch", "weights"):
        own = own or f"{'none' if default is None else default}]"
    return f"{text}  [default: {own}" if own else text


def _value_type(spec: Option) -> dict[str, Any]:
    """Return the arguments of `option` for the type of values."""
    if isinstance(spec.value_type, tuple):
        return {"type": Word(spec.value_type)}
    return {"type": Numbers(spec)} if spec.value_type == "floats" else VALUE_TYPES[spec.value_type]


def parameters(
    *groups: type, only: Container[str] | None = None, hidden: Container[str] = ()
) -> Callable[[Decorated], Decorated]:
    """Decorate a command with an option for each field of the parameter classes, in order.

    only: names of fields to include; None: all. hidden: names that help and completion omit.
    """

    def decorate(command: Decorated) -> Decorated:
        for group in reversed(groups):
            for f, spec in reversed(list(options(group))):
                if only is not None and f.name not in only:
                    continue
                command = click.option(
                    *spec.flags,
                    f.name,
                    default=f.default,
                    help=_help(spec, f.default),
                    cls=BoundedOption,
                    spec=spec,
                    hidden=f.name in hidden,
                    **_value_type(spec),
                )(command)
        return command

    return decorate


def of_algorithm(algorithm: str) -> Callable[[Decorated], Decorated]:
    """Decorate a command with the arguments and options of an algorithm of randsvm-train."""
    groups = ALGORITHMS[algorithm]
    more = click.argument("more_files", type=PATH, nargs=-1, metavar="[TRAIN_FILE...] [MODEL_FILE]")
    # sgd has no gap and does not use LIBSVM. It takes --require-gap and the cache of LIBSVM too, so
    # that scripts work and errors give the reason, but its help omits them.
    rounds = StopParams in groups
    hidden = () if rounds else ("require_gap", "libsvm_cache")

    def decorate(command: Decorated) -> Decorated:
        command = parameters(*COMMON, hidden=hidden)(report(quiet(log(html(command)))))
        command = parameters(*groups)(warm_start(command) if rounds else command)
        return click.argument("train_file", type=PATH)(more(command))

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


warm_start = click.option(
    "--warm-start",
    metavar="MODEL",
    type=PATH,
    help="Start from this model, e.g. yesterday's on fewer rows; it gives task, kernel and C "
    "if the command line does not.  [default: none]",
)
html = click.option(
    "--html",
    metavar="FILE",
    type=PATH,
    help="Write a page about the training with pictures to this file (needs the extra plot).  "
    "[default: none]",
)
log = click.option(
    "--log",
    metavar="FILE.jsonl",
    type=PATH,
    help="Add a line of JSON per event to this file.  [default: none]",
)


report = click.option(
    "--report",
    type=click.Choice(["text", "json"]),
    default="text",
    help="The final summary, also of a run that fails: text, or one JSON object.  [default: text]",
)
quiet = click.option("-q", "--quiet", is_flag=True, help="Print errors and results only.")
