"""Define options: their names, help and kinds of values, and write them as a command line."""

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from typing import Any, NamedTuple, TypeAlias, TypeVar

from randsvm.errors import ParameterError
from randsvm.parameters.values import AUTO, BALANCED, Flag, Kind, Numbers, Weights

# Groups of options in the help, in their order.
MODEL = "Model"
STOP = "Algorithm and stopping"
SEARCH = "Search and cross-validation"
TABLE = "Tables"
RESOURCES = "Resources"
OUTPUT = "Output and other options"
GROUPS = (MODEL, STOP, SEARCH, TABLE, RESOURCES, OUTPUT)


class Option(NamedTuple):
    """The option of a field.

    flags : names on the command line
    help : sentences; the default is added unless they end with it
    kind : kind of its values
    group : one of GROUPS
    brief : line of the short help; empty: only the whole help has the option
    """

    flags: tuple[str, ...]
    help: str
    kind: Kind
    group: str = MODEL
    brief: str = ""


def option(
    default: Any, kind: Kind, *flags: str, help: str, group: str = MODEL, brief: str = ""
) -> Any:
    """Return a dataclass field with a new Option."""
    return shared_option(default, Option(flags, help, kind, group, brief))


def shared_option(default: Any, spec: Option) -> Any:
    """Return a dataclass field with an Option that several classes use."""
    return field(default=default, metadata={"option": spec})


@dataclass(frozen=True)
class Options:
    """The base of groups of options, which checks values when a group is made."""

    def __post_init__(self) -> None:
        for f, spec in option_fields(self):
            value = getattr(self, f.name)
            problem = "" if value is None else spec.kind.problem(value)
            name = f.name.rstrip("_").replace("_", " ")
            require(not problem, f"{name} {problem}, got {value}")

    def uses(self, name: str) -> bool:
        """Return whether the field `name` has an effect with the other values."""
        return True


Parameters = TypeVar("Parameters", bound=Options)


# Fields that a grid search varies, with their values or AUTO.
Grid: TypeAlias = "tuple[tuple[str, tuple[float, ...] | str], ...]"


def grid_values(spec: Option, several: tuple[float, ...] | str) -> tuple[float, ...]:
    """Return the values of an option in a grid."""
    assert isinstance(spec.kind, Numbers)
    return spec.kind.auto if isinstance(several, str) else several


def option_fields(
    parameters: Options | type[Options],
) -> Iterator[tuple[Field[Any], Option]]:
    """Return the fields of a parameter class or object that have an option."""
    return ((f, f.metadata["option"]) for f in fields(parameters) if "option" in f.metadata)


def command_line(
    *parameters: Options, grid: Grid = (), names: Container[str] | None = None
) -> list[str]:
    """Return the words of a command line that gives these parameters.

    Options with the value None and flags with the value False are left out.

    grid : fields with several values
    names : names of the fields to include; None: all
    """
    words: list[str] = []
    several = dict(grid)
    for group in parameters:
        for f, spec in option_fields(group):
            value = several.get(f.name, getattr(group, f.name))
            if value is not None and (names is None or f.name in names):
                words += spec.kind.as_words(spec.flags[0], value)
    return words


def options_on_command_line(words: Sequence[str], groups: Sequence[type]) -> dict[str, Any]:
    """Return the values of a command line that `command_line` made, by field.

    Class weights are a dictionary by label; that of BALANCED is 1. Words that are no option of the
    groups are skipped.
    """
    fields = {spec.flags[0]: (f.name, spec) for group in groups for f, spec in option_fields(group)}
    found: dict[str, Any] = {}
    rest = iter(words)
    for word in rest:
        name, spec = fields.get(word, ("", None))
        if spec is None:
            continue
        if isinstance(spec.kind, Flag):
            found[name] = True
        elif isinstance(spec.kind, Weights):
            label = next(rest)
            found.setdefault(name, {})[label] = 1.0 if label == BALANCED else float(next(rest))
        else:
            found[name] = spec.kind.value(next(rest))
    return found


def changed_flags(parameters: Options, group: str | None = None) -> list[str]:
    """Return the options whose values differ from the defaults. group : one of GROUPS; None: all"""
    return [
        spec.flags[0]
        for f, spec in option_fields(parameters)
        if getattr(parameters, f.name) != f.default and group in (None, spec.group)
    ]


def ineffective_flags(parameters: Options) -> list[str]:
    """Return the options that differ from the defaults and have no effect with the others."""
    unused = [spec.flags[0] for f, spec in option_fields(parameters) if not parameters.uses(f.name)]
    return [flag for flag in changed_flags(parameters) if flag in unused]


def make_parameters(group: type[Parameters], given: Mapping[str, Any], **others: Any) -> Parameters:
    """Return the parameters with the values in `given`; a grid contributes its first value.

    others: fields that are not options. Raise ParameterError for values that do not go together.
    """
    specs = {f.name: spec for f, spec in option_fields(group)}
    first = {name: grid_values(specs[name], several)[0] for name, several in grid([group], given)}
    return group(**{name: given[name] for name in specs if name in given} | first | others)


def grid(groups: Sequence[type], given: Mapping[str, Any]) -> Grid:
    """Return the fields with several values, which a grid search varies."""
    fields = [
        f.name
        for group in groups
        for f, spec in option_fields(group)
        if isinstance(spec.kind, Numbers)
    ]
    return tuple(
        (name, given[name])
        for name in fields
        if isinstance(given.get(name), tuple) or given.get(name) == AUTO
    )


def require(condition: bool, sentence: str) -> None:
    """Raise ParameterError unless the condition holds. Conditions must be false for nan."""
    if not condition:
        raise ParameterError(sentence)
