"""Define options: their names, help and kinds of values, and write them as a command line.

A kind reads values, checks them and writes them as words. Its `value` takes a word of the command
line or a value of a Python caller: 2**30 and "1G" are the same size. Its ValueErrors become errors
of the caller.
"""

import math
import numbers
import operator
import os
import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import Field, field, fields
from functools import cache
from typing import Any, ClassVar, NamedTuple, TypeAlias, TypeVar

from randsvm.errors import ParameterError
from randsvm.records import record

# ---- kinds of values ---------------------------------------------------------------------------

MEGABYTE = 1 << 20
# The word in place of a label in -w: weights for all classes, by their numbers of rows.
BALANCED = "balanced"
# The value that searches the whole range of an option, first coarsely and then finely.
AUTO = "auto"


def format_size(count: float) -> str:
    """Return a size in bytes as a word in megabytes, of three digits or whole."""
    return f"{count / MEGABYTE:{'.3g' if count < 1000 * MEGABYTE else '.0f'}}M"


def format_number(x: float) -> str:
    """Return the shortest word that is parsed as the same number."""
    return f"{x:g}" if float(f"{x:g}") == x else repr(x)


class Kind:
    """A kind of values: any text.

    metavar : name of a value in the help
    expected : name of a value in messages
    words : words that are values
    bounds : bounds of a value in the help
    """

    metavar = "TEXT"
    expected = "a text"
    words: tuple[str, ...] = ()
    bounds = ""

    def value(self, given: Any) -> Any:
        """Return the value of a word or of a Python caller, as the option stores it.

        Raise ValueError, with a sentence, for another kind of value or one that is not allowed.
        """
        try:
            value = self.read(given)
        except (ValueError, TypeError, ArithmeticError):
            raise ValueError(f"expected {self.expected}, found {given!r}") from None
        # A search replaces AUTO by numbers: it is no value of a training.
        problem = "" if value == AUTO else self.problem(value)
        if problem:
            raise ValueError(f"{problem}, got {given}")
        return value

    def read(self, given: Any) -> Any:
        """Return the value. Raise ValueError, TypeError or ArithmeticError for another kind."""
        return os.fspath(given)

    def problem(self, value: Any) -> str:
        """Return what the value must be if it is not allowed, else ""."""
        return ""

    def format(self, value: Any) -> str:
        """Return the shortest word that is parsed as the same value."""
        return format_number(value) if isinstance(value, float) else str(value)

    def as_words(self, flag: str, value: Any) -> list[str]:
        """Return the words of a command line that give the option this value."""
        return [flag, self.format(value)]


class Path(Kind):
    """The name of a file."""

    metavar = "PATH"
    expected = "the name of a file"


class Delimiter(Kind):
    """The character between the fields of a text table, or AUTO."""

    metavar = "CHAR"
    expected = "one of , ; | : ~ ^ # ! / tab auto"
    CHARACTERS = ",;|:~^#!/\t"

    def read(self, given: Any) -> str:
        text = super().read(given)
        if text in ("tab", "\\t"):
            return "\t"
        # `index` raises ValueError for any other text.
        return text if text == AUTO else self.CHARACTERS[[*self.CHARACTERS].index(text)]

    def format(self, value: Any) -> str:
        return "tab" if value == "\t" else str(value)


class Switch(Kind):
    """0 or 1, as LIBSVM's -h; in Python also False and True."""

    metavar = "0|1"
    expected = "0 or 1"

    def read(self, given: Any) -> bool:
        # Values that stand for True have odd places. `index` raises ValueError for any other.
        return bool(("0", "1", False, True).index(given) % 2)

    def format(self, value: Any) -> str:
        return str(int(value))


class Flag(Switch):
    """An option without a value: given or not."""

    expected = "True or False"

    def as_words(self, flag: str, value: Any) -> list[str]:
        return [flag] if value else []


class Choice(Kind):
    """A word of a list, or the number of its position: `-t rbf` or `-t 2`.

    An empty word keeps the numbers of the words behind it.
    """

    def __init__(self, *words: str, metavar: str = "") -> None:
        self.named = {str(number): word for number, word in enumerate(words) if word}
        self.words = tuple(self.named.values())
        self.metavar = metavar or "|".join(self.words)
        listed = ", ".join(f"{word} ({number})" for number, word in self.named.items())
        self.expected = f"one of {listed}" if len(self.words) > 1 else self.words[0]

    def read(self, given: Any) -> str:
        text = super().read(given)
        # `index` raises ValueError for a word that is not in the list.
        return self.words[self.words.index(self.named.get(text, text.lower()))]

    def problem(self, value: Any) -> str:
        return "" if value in self.words else f"must be one of {', '.join(self.words)}"


# Signs of bounds.
COMPARISONS = {">=": operator.ge, ">": operator.gt, "<=": operator.le, "<": operator.lt}


class Number(Kind):
    """A number within bounds, or one of `words`.

    bounds : conditions as "> 0 and <= 1" or ">= 2 rows"; "finite" refuses infinities
    """

    metavar = "FLOAT"
    expected = "a number"

    def __init__(self, bounds: str = "", *words: str) -> None:
        self.bounds, self.words = bounds, words
        self.limits = [
            (COMPARISONS[sign], _power(limit) if "^" in limit else self.number(limit))
            for sign, limit in re.findall(r"([<>]=?) (\S+)", bounds)
        ]
        self.metavar = "|".join([self.metavar, *words])
        example = " such as 0.01" if bounds.endswith("< 1") else ""
        self.expected = " or ".join([self.expected + example, *words])

    def read(self, given: Any) -> Any:
        word = given.lower() if isinstance(given, str) else given
        return word if word in self.words else self.number(given)

    def number(self, given: Any) -> Any:
        """Return the number that is given, or that a word stands for."""
        return float(given)

    def problem(self, value: Any) -> str:
        if isinstance(value, str):
            return "" if value in self.words else f"must be {self.expected}"
        # nan fails every comparison.
        within = all(compare(value, limit) for compare, limit in self.limits)
        is_finite = "finite" not in self.bounds or math.isfinite(value)
        return "" if within and is_finite else f"must be {self.bounds}"


class Whole(Number):
    """A whole number."""

    metavar = "INTEGER"
    expected = "a whole number"

    def number(self, given: Any) -> Any:
        if float(given) % 1 != 0:  # nan and infinities too
            raise ValueError
        return int(given)


class Size(Whole):
    """Bytes, with K, M, G or T for powers of 1,024."""

    metavar = "SIZE"
    expected = "a size, e.g. 512M or 4G"

    def number(self, given: Any) -> int:
        size = r"(\d{1,20}(?:\.\d*)?)([KMGT]?)(?:i?B)?"
        found = isinstance(given, str) and re.fullmatch(size, given, re.IGNORECASE)
        if not found:
            return super().number(given)
        return int(float(found[1]) * 1024 ** " KMGT".index(found[2].upper() or " "))


class Duration(Number):
    """Seconds, or with s, m, h: 90s, 10m, 2h."""

    metavar = "DURATION"
    expected = "a time such as 90s, 10m or 2h"
    UNITS: ClassVar = {"s": 1, "m": 60, "h": 3600}

    def number(self, given: Any) -> Any:
        found = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)([smh])", str(given))
        return float(found[1]) * self.UNITS[found[2]] if found else super().number(given)

    def format(self, value: Any) -> str:
        return super().format(value) + "s"


class RowsOrTime(Duration):
    """A number of rows (int), or a time with its unit (float)."""

    metavar = "ROWS|TIME"
    expected = "a number of rows or a time such as 60s or 10m"

    def number(self, given: Any) -> Any:
        return int(given) if re.fullmatch(r"[1-9]\d{0,17}", str(given)) else super().number(given)

    def format(self, value: Any) -> str:
        return str(value) if isinstance(value, int) else super().format(value)


class Folds(Kind):
    """A number of folds and of repetitions, 5 or "5x3"; stored as a pair."""

    metavar = "N[xREPEATS]"
    expected = "folds such as 5 or 5x3"
    number = Whole()
    bounds = "from 2 to 1000 folds, up to 100 repetitions"

    def read(self, given: Any) -> tuple[int, int]:
        pair = given if isinstance(given, tuple) else (given, 1)
        if isinstance(given, str) and "x" in given:
            pair = tuple(given.split("x"))
        folds, repeats = map(self.number.number, pair)
        return folds, repeats

    def problem(self, value: Any) -> str:
        folds, repeats = value
        within = 2 <= folds <= 1000 and 1 <= repeats <= 100
        return "" if within else f"must be {self.bounds}"

    def format(self, value: Any) -> str:
        folds, repeats = value
        return str(folds) if repeats == 1 else f"{folds}x{repeats}"


class NumberOrGrid(Number):
    """A number or a power such as 2^-5; several of these, separated by commas, which a search
    varies; a range first:last:step, where each value is the one before times step; or a word.

    auto : the values that AUTO stands for; empty: AUTO is refused
    """

    metavar = "FLOAT[,FLOAT...]"
    expected = "a number, a list (1,2,8) or a range (from:to:factor, such as 2^-5:2^15:2^2)"
    MOST = 1000

    def __init__(self, bounds: str = "", *words: str, auto: tuple[float, ...] = ()) -> None:
        super().__init__(bounds, *words, *[AUTO] * bool(auto))
        self.metavar = type(self).metavar
        self.auto = auto

    def number(self, given: Any) -> Any:
        if isinstance(given, numbers.Real):
            return super().number(given)
        if not isinstance(given, str):
            found = tuple(map(super().number, given))
            if not found:
                raise ValueError
            return found
        found = tuple(dict.fromkeys(one for part in given.split(",") for one in self._range(part)))
        return found if len(found) > 1 else found[0]

    def _range(self, text: str) -> list[float]:
        """Return the numbers of a range. Raise ValueError if the step does not reach the last."""
        first, *rest = map(_power, text.split(":"))
        if not rest:
            return [first]
        last, step = rest
        # The last value is in the range if only rounding puts it beyond the end.
        count = math.log(last / first) / math.log(step) + 1e-9
        if not 0 <= count < self.MOST:
            raise ValueError
        return [first * step**power for power in range(int(count) + 1)]

    def problem(self, value: Any) -> str:
        if value == AUTO:
            return f"must be {self.expected}"
        values = value if isinstance(value, tuple) else [value]
        return next(filter(None, map(super().problem, values)), "")

    def format(self, value: Any) -> str:
        values = value if isinstance(value, tuple) else [value]
        return ",".join(map(super().format, values))


class Weights(Kind):
    """Pairs of a label, or BALANCED, and a number."""

    metavar = "LABEL WEIGHT"
    expected = f"a dictionary of labels and numbers, or '{BALANCED}'"
    number = Number("> 0 and finite")
    bounds = number.bounds

    def read(self, given: Any) -> Any:
        if given == BALANCED:
            return ((BALANCED, 1.0),)
        pairs = given.items() if isinstance(given, Mapping) else given
        return tuple((str(label), float(weight)) for label, weight in pairs)

    def problem(self, value: Any) -> str:
        return next(filter(None, (self.number.problem(weight) for _, weight in value)), "")

    def as_words(self, flag: str, value: Any) -> list[str]:
        words: list[str] = []
        for label, weight in value:
            words += [flag, label] if label == BALANCED else [flag, label, self.format(weight)]
        return words


def _power(text: str) -> float:
    """Return a number, or a power as 2^-5."""
    base, *exponent = map(float, text.split("^"))
    power = base ** exponent.pop() if exponent else base
    if exponent or isinstance(power, complex):
        raise ValueError
    return power


# ---- options -----------------------------------------------------------------------------------

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


@record
class Options:
    """The base of groups of options, which reads and checks values when a group is made."""

    def __post_init__(self) -> None:
        for f, spec in option_fields(self):
            # A default needs no check: a fit of few rows makes some twenty groups of options.
            if getattr(self, f.name) is f.default:
                continue
            value = read_value(f.name, spec.kind, getattr(self, f.name))
            # Only a search takes AUTO, which `read_value` returns.
            problem = "" if value is None else spec.kind.problem(value)
            require(not problem, f"{f.name}: {problem}, got {value}")
            object.__setattr__(self, f.name, value)

    def uses(self, name: str) -> bool:
        """Return whether the field `name` has an effect with the other values."""
        return True


def read_value(name: str, kind: Kind, given: Any) -> Any:
    """Return the value of an option as the parameter classes store it; None stays None.

    given : as a Python caller has it. Raise ParameterError for a value that is not allowed.
    """
    if hasattr(given, "tolist"):  # an array or a number of NumPy
        given = given.tolist()
    try:
        return None if given is None else kind.value(given)
    except ValueError as error:
        raise ParameterError(f"{name}: {error}") from None


Parameters = TypeVar("Parameters", bound=Options)


# Fields that a grid search varies, with their values or AUTO.
Grid: TypeAlias = "tuple[tuple[str, tuple[float, ...] | str], ...]"


def grid_values(spec: Option, several: tuple[float, ...] | str) -> tuple[float, ...]:
    """Return the values of an option in a grid."""
    assert isinstance(spec.kind, NumberOrGrid)
    return spec.kind.auto if isinstance(several, str) else several


def option_fields(
    parameters: Options | type[Options],
) -> tuple[tuple[Field[Any], Option], ...]:
    """Return the fields of a parameter class or object that have an option."""
    group: Any = parameters if isinstance(parameters, type) else type(parameters)
    return _option_fields(group)


@cache
def _option_fields(group: type[Options]) -> tuple[tuple[Field[Any], Option], ...]:
    return tuple((f, f.metadata["option"]) for f in fields(group) if "option" in f.metadata)


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
    groups are skipped. Raise ValueError for a value that is not allowed.
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
            label = next(rest, "")
            weight = 1.0 if label == BALANCED else next(rest, "")
            found.setdefault(name, {}).update(spec.kind.value(((label, weight),)))
        else:
            found[name] = spec.kind.value(next(rest, ""))
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
        if isinstance(spec.kind, NumberOrGrid)
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
