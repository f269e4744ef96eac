"""Define options: their names, help, types, bounds and checks, and write them as a command line."""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import Field, field, fields
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from randsvm.decimals import is_number
from randsvm.errors import ParameterError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Parameters = TypeVar("Parameters", bound="DataclassInstance")

# The word in place of a label in -w: weights for all classes, by their numbers of rows.
BALANCED = "balanced"
MEGABYTE = 1 << 20
# The value that searches the whole range of an option, first coarsely and then finely.
AUTO = "auto"


class Option(NamedTuple):
    """The option of a field: its names on the command line, help, type and bounds.

    flags : names on the command line
    value_type : int, float, floats (one number, or a list for a grid search), flag, switch (0 or
    1), path, text, size (bytes with K, M, G), duration (seconds with s, m, h), weights (pairs of
    label and number), folds, epochs, gap and checkpoint (a number or the words of that option); a
    tuple of words is a choice
    least, most, above, below : least <= value <= most and above < value < below; None: no bound;
    below = inf: the value must be finite
    unit : unit of the bounds, for messages
    accepted_words : words that are accepted instead of a number
    auto : the values that AUTO stands for, if value_type is floats; empty: AUTO is refused
    """

    flags: tuple[str, ...]
    help: str
    value_type: str | tuple[str, ...]
    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None
    unit: str = ""
    accepted_words: tuple[str, ...] = ()
    auto: tuple[float, ...] = ()

    @property
    def bounds(self) -> str:
        """The bounds in words, as "> 0 and finite" or "from 2 to 1000"; "" without bounds."""
        if self.least is not None and self.most is not None:
            return f"from {self.least} to {self.most}"
        signs = {">=": self.least, ">": self.above, "<=": self.most, "<": self.below}
        numbers = {sign: x for sign, x in signs.items() if x is not None}
        words = [f"{sign} {self._bound(x)}" for sign, x in numbers.items() if math.isfinite(x)]
        words += ["finite"] if math.inf in numbers.values() else []
        return " and ".join(words) + (f" {self.unit}" if self.unit else "")

    def _bound(self, x: float) -> str:
        if self.value_type == "size":
            return format_size(x)
        return f"2^{math.log2(x):.0f}" if x >= 2**31 else format_value(x)

    def check(self, name: str, value: Any, typed: object = None) -> None:
        """Raise ParameterError if the value is out of its bounds, or none of the words of a choice.

        typed: the text that the user wrote.
        """
        if isinstance(self.value_type, tuple):
            listed = ", ".join(filter(None, self.value_type))
            allowed = value != "" and value in self.value_type
            require(allowed, f"{name} must be one of {listed}, got {value}")
        elif self.value_type == "floats" and isinstance(value, str):
            listed = " or ".join(["a number", *self.accepted_words])
            require(value in self.accepted_words, f"{name} must be {listed}, got {value}")
        elif self.bounds and not isinstance(value, str):
            found = value if typed is None else typed
            require(self._within(value), f"{name} must be {self.bounds}, got {found}")

    def _within(self, value: float) -> bool:
        # nan fails every comparison.
        return (
            (self.least is None or value >= self.least)
            and (self.most is None or value <= self.most)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )


def option(
    default: Any, value_type: str | tuple[str, ...], *flags: str, help: str, **bounds: Any
) -> Any:
    """Return a dataclass field with a new Option. bounds : other fields of the Option."""
    return shared_option(default, Option(flags, help, value_type, **bounds))


def shared_option(default: Any, spec: Option) -> Any:
    """Return a dataclass field with an Option that several classes use."""
    return field(default=default, metadata={"option": spec})


def check_bounds(parameters: DataclassInstance) -> None:
    """Raise ParameterError for the first field that is out of the bounds of its option."""
    for f, spec in options(parameters):
        value = getattr(parameters, f.name)
        if spec.value_type == "weights":
            for label, weight in value:
                spec.check(f"weight of {label}", weight)
        elif value is not None:
            spec.check(f.name.rstrip("_").replace("_", " "), value)


# Fields that a grid search varies, with their values or AUTO.
Grid: TypeAlias = "tuple[tuple[str, tuple[float, ...] | str], ...]"


def grid_values(spec: Option, several: tuple[float, ...] | str) -> tuple[float, ...]:
    """Return the values of an option in a grid."""
    return spec.auto if isinstance(several, str) else several


def options(
    parameters: DataclassInstance | type[DataclassInstance],
) -> Iterator[tuple[Field[Any], Option]]:
    """Return the fields of a parameter class or object that have an option."""
    return ((f, f.metadata["option"]) for f in fields(parameters) if "option" in f.metadata)


def command_line(
    *parameters: DataclassInstance, grid: Grid = (), names: Container[str] | None = None
) -> list[str]:
    """Return the words of a command line that gives these parameters.

    Options with the value None are left out, and flags with the value False that have no negation.

    grid : fields with several values
    names : names of the fields to include; None: all
    """
    words: list[str] = []
    several = dict(grid)
    for group in parameters:
        for f, spec in options(group):
            value = getattr(group, f.name)
            if names is not None and f.name not in names:
                continue
            if f.name in several:
                own = several[f.name]
                listed = own if isinstance(own, str) else ",".join(map(format_value, own))
                words += [spec.flags[0], listed]
            elif spec.value_type == "flag":
                name, _, negation = spec.flags[0].partition("/")
                words += [name] if value else [negation] if negation else []
            elif spec.value_type == "weights":
                for label, weight in value:
                    words += [spec.flags[0], label]
                    words += [] if label == BALANCED else [format_value(weight)]
            elif value is not None:
                timed = spec.value_type == "checkpoint" and isinstance(value, float)
                unit = "s" if spec.value_type == "duration" or timed else ""
                words += [spec.flags[0], format_value(value) + unit]
    return words


def options_on_command_line(words: Sequence[str], groups: Sequence[type]) -> dict[str, Any]:
    """Return the values of a command line that `command_line` made, by field.

    Numbers are floats, class weights a dictionary by label (of BALANCED 1.0), and other values
    texts. Words that are no option of the groups are skipped, and so are flags without a value.
    """
    fields = {spec.flags[0]: (f.name, spec) for group in groups for f, spec in options(group)}
    found: dict[str, Any] = {}
    rest = iter(words)
    for word in rest:
        name, spec = fields.get(word, ("", None))
        if spec is None or spec.value_type == "flag":
            continue
        text = next(rest, "")
        if spec.value_type == "weights":
            weight = "1" if text == BALANCED else next(rest, "")
            found.setdefault(name, {})[text] = _value(weight)
        else:
            found[name] = _value(text)
    return found


def _value(word: str) -> float | str:
    return float(word) if is_number(word.encode("utf-8", "surrogateescape")) else word


def changed_flags(parameters: DataclassInstance) -> list[str]:
    """Return the options whose values differ from the defaults."""
    own = options(parameters)
    return [spec.flags[0] for f, spec in own if getattr(parameters, f.name) != f.default]


def ineffective_flags(parameters: Any) -> list[str]:
    """Return the options that differ from the defaults and have no effect with the others."""
    unused = [spec.flags[0] for f, spec in options(parameters) if not parameters.uses(f.name)]
    return [flag for flag in changed_flags(parameters) if flag in unused]


def make_parameters(group: type[Parameters], given: Mapping[str, Any]) -> Parameters:
    """Return the parameters with the values in `given`; a grid contributes its first value.

    Raise ParameterError for any invalid value, also for the other values of a grid.
    """
    found, specs = dict(grid([group], given)), {f.name: spec for f, spec in options(group)}
    several = {name: grid_values(specs[name], values) for name, values in found.items()}
    own = {f.name: given[f.name] for f, _ in options(group) if f.name in given}
    own |= {name: values[0] for name, values in several.items()}
    # This checks every value of a grid.
    for name, values in several.items():
        for value in values:
            group(**{**own, name: value})
    return group(**own)


def grid(groups: Sequence[type], given: Mapping[str, Any]) -> Grid:
    """Return the fields with several values, which a grid search varies."""
    fields = [
        f.name for group in groups for f, spec in options(group) if spec.value_type == "floats"
    ]
    return tuple(
        (name, given[name])
        for name in fields
        if isinstance(given.get(name), tuple) or given.get(name) == AUTO
    )


def format_size(count: float) -> str:
    """Return a size in bytes as a word in megabytes, rounded if above one megabyte."""
    return f"{count / MEGABYTE:.0f}M" if count >= MEGABYTE else f"{count / MEGABYTE:g}M"


def format_value(value: object) -> str:
    """Return the shortest word that is parsed as the same value."""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    return str(value)


def require(condition: bool, sentence: str) -> None:
    """Raise ParameterError unless the condition holds. Conditions must be false for nan."""
    if not condition:
        raise ParameterError(sentence)
