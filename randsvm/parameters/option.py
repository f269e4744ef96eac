"""Options: how a field of a parameter class is named, read and repeated on a command line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import Field, dataclass, field, fields
from typing import Any, TypeAlias

from randsvm.errors import ParameterError

# Label of a weight that stands for all classes.
BALANCED = "balanced"


@dataclass(frozen=True)
class Option:
    """How a field is named on the command line: its flags, its help, what it is measured in.

    kind: int, float, floats (one, or a list for a grid search), flag, switch (0 or 1), path, size
    (bytes with K, M, G), duration (seconds with s, m, h), weights (pairs of label and number); a
    tuple of words is a choice.
    """

    flags: tuple[str, ...]
    help: str
    kind: str | tuple[str, ...]


def option(default: Any, kind: str | tuple[str, ...], *flags: str, help: str) -> Any:
    """A dataclass field with its option."""
    return shared(default, Option(flags, help, kind))


def shared(default: Any, spec: Option) -> Any:
    """A dataclass field with an option that other classes have as well."""
    return field(default=default, metadata={"option": spec})


# Fields with several values, which a grid search tries.
Grid: TypeAlias = "tuple[tuple[str, tuple[float, ...]], ...]"


def options(parameters: Any) -> Iterator[tuple[Field, Option]]:
    """The fields of a parameter class (or object) that have an option."""
    return ((f, f.metadata["option"]) for f in fields(parameters) if "option" in f.metadata)


def command_line(*parameters: Any, grid: Grid = ()) -> list[str]:
    """Options and values that make these parameters again; what is None or False is left out.

    grid: the values of fields that have several.
    """
    words: list[str] = []
    several = dict(grid)
    for group in parameters:
        for f, spec in options(group):
            value = getattr(group, f.name)
            if f.name in several:
                words += [spec.flags[0], ",".join(map(word, several[f.name]))]
            elif spec.kind == "flag":
                name, _, negation = spec.flags[0].partition("/")
                words += [name] if value else [negation] if negation else []
            elif spec.kind == "weights":
                for label, weight in value:
                    words += [spec.flags[0], label]
                    words += [] if label == BALANCED else [word(weight)]
            elif value is not None:
                timed = spec.kind == "checkpoint" and isinstance(value, float)
                unit = "s" if spec.kind == "duration" or timed else ""
                words += [spec.flags[0], word(value) + unit]
    return words


def word(value: Any) -> str:
    """The shortest word that reads back as the same value."""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    return str(value)


def require(condition: bool, sentence: str) -> None:
    """Conditions are written so that nan fails them too."""
    if not condition:
        raise ParameterError(sentence)
