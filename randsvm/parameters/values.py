"""Kinds of option values: each parses words, checks values and writes them as words.

The command line calls `parse` and `problem`, the Python interface `convert` and `problem`, and the
configuration of a model is written by `format`. ValueErrors become errors of the caller.
"""

from __future__ import annotations

import math
import numbers
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

MEGABYTE = 1 << 20
# The word in place of a label in -w: weights for all classes, by their numbers of rows.
BALANCED = "balanced"
# The value that searches the whole range of an option, first coarsely and then finely.
AUTO = "auto"


class Kind:
    """A kind of values: any text.

    metavar : name of a value in the help
    expected : name of a value in messages of the Python interface
    types : types of a value in Python
    words : words that are values
    """

    metavar = "TEXT"
    expected = "a text"
    types: tuple[type, ...] = (str,)
    words: tuple[str, ...] = ()
    bounds = ""

    @property
    def completions(self) -> tuple[str, ...]:
        """The words that a shell completes."""
        return self.words

    def parse(self, text: str) -> Any:
        """Return the value of a word on the command line. Raise ValueError."""
        return text

    def convert(self, value: Any) -> Any:
        """Return a value of a Python caller as the option stores it. Raise ValueError."""
        if not isinstance(value, self.types):
            raise ValueError(f"must be {self.expected}, got {value!r}")
        return value

    def problem(self, value: Any) -> str:
        """Return what the value must be if it is not allowed, else ""."""
        return ""

    def problem_as_given(self, value: Any) -> str:
        """Return `problem` of what `parse` returns, which may stand for several values."""
        return self.problem(value)

    def format(self, value: Any) -> str:
        """Return the shortest word that is parsed as the same value."""
        return format_number(value) if isinstance(value, float) else str(value)


class Path(Kind):
    """The name of a file."""

    metavar = "PATH"
    expected = "the name of a file"
    types = (str, os.PathLike)

    def convert(self, value: Any) -> str:
        return os.fspath(super().convert(value))


class Flag(Kind):
    """An option without a value: given or not."""

    expected = "True or False"
    types = (bool, int)


class Switch(Kind):
    """0 or 1, as LIBSVM's -h."""

    metavar = "0|1"
    expected = "True or False"
    types = (bool, int)

    def parse(self, text: str) -> bool:
        if text not in ("0", "1"):
            raise ValueError(f"expected 0 or 1, found {text!r}")
        return text == "1"

    def format(self, value: Any) -> str:
        return str(int(value))


class Choice(Kind):
    """A word of a list, or the number of its position: `-t rbf` or `-t 2`.

    An empty word keeps the numbers of the words behind it.
    """

    def __init__(self, *words: str, metavar: str = "") -> None:
        self.words = words
        self.metavar = metavar or "|".join(filter(None, words))

    def parse(self, text: str) -> str:
        named = {str(number): word for number, word in enumerate(self.words) if word}
        found = named.get(text, text.lower())
        if found in named.values():
            return found
        listed = ", ".join(f"{word} ({number})" for number, word in named.items())
        expected = f"one of {listed}" if len(named) > 1 else listed.partition(" ")[0]
        raise ValueError(f"expected {expected}, found {text!r}")

    def convert(self, value: Any) -> Any:
        return value

    def problem(self, value: Any) -> str:
        listed = ", ".join(filter(None, self.words))
        return "" if value and value in self.words else f"must be one of {listed}"


class Number(Kind):
    """A number within bounds, or one of `words`.

    least, most, above, below : least <= value <= most and above < value < below; None: no bound;
    below = inf: the value must be finite
    unit : unit of the bounds, for messages
    """

    metavar = "FLOAT"
    noun = "a number"

    def __init__(
        self,
        *words: str,
        least: float | None = None,
        most: float | None = None,
        above: float | None = None,
        below: float | None = None,
        unit: str = "",
    ) -> None:
        self.words = words
        self.least, self.most, self.above, self.below = least, most, above, below
        self.metavar = "|".join([self.metavar, *words])
        self.expected = " or ".join([self.noun, *map(repr, words)])
        self.bounds = self._bounds(unit)

    def _bounds(self, unit: str) -> str:
        """Return the bounds in words, as "> 0 and finite" or "from 2 to 1000"; "" without any."""
        if self.least is not None and self.most is not None:
            return f"from {self.least} to {self.most}"
        signs = {">=": self.least, ">": self.above, "<=": self.most, "<": self.below}
        given = {sign: x for sign, x in signs.items() if x is not None}
        words = [f"{sign} {self.format_bound(x)}" for sign, x in given.items() if math.isfinite(x)]
        words += ["finite"] if math.inf in given.values() else []
        return " and ".join(words) + (f" {unit}" if unit else "")

    def format_bound(self, x: float) -> str:
        return f"2^{math.log2(x):.0f}" if x >= 2**31 else self.format(x)

    def parse(self, text: str) -> Any:
        if text.lower() in self.words:
            return text.lower()
        try:
            return self.parse_number(text)
        except ValueError:
            percent = re.fullmatch(r"(\d+\.?\d*|\.\d+)%", text)
            hint = f": write {float(percent[1]) / 100:g}" if percent and self.below == 1 else ""
            listed = " or ".join([self.noun, *self.words])
            raise ValueError(f"expected {listed}, found {text!r}{hint}") from None

    def parse_number(self, text: str) -> float:
        return float(text)

    def convert(self, value: Any) -> Any:
        if isinstance(value, str) and value in self.words:
            return value
        if not isinstance(value, numbers.Real):
            raise ValueError(f"must be {self.expected}, got {value!r}")
        return float(value)

    def problem(self, value: Any) -> str:
        if isinstance(value, str):
            fits = value in self.words
            return "" if fits else f"must be {' or '.join([self.noun, *self.words])}"
        # nan fails every comparison.
        within = (
            (self.least is None or value >= self.least)
            and (self.most is None or value <= self.most)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )
        return "" if within else f"must be {self.bounds}"


class Whole(Number):
    """A whole number."""

    metavar = "INTEGER"
    noun = "a whole number"

    def parse_number(self, text: str) -> int:
        return int(text)

    def convert(self, value: Any) -> Any:
        if isinstance(value, numbers.Real) and value % 1 != 0:  # nan and infinities too
            raise ValueError(f"must be {self.expected}, got {value!r}")
        found = super().convert(value)
        return found if isinstance(found, str) else int(value)


class Size(Whole):
    """Bytes, with K, M, G or T for powers of 1,024."""

    metavar = "SIZE"
    noun = "a number of bytes"

    def parse(self, text: str) -> int:
        found = re.fullmatch(r"(\d{1,20}(?:\.\d*)?)([KMGT]?)(?:i?B)?", text, re.IGNORECASE)
        if not found:
            raise ValueError(f"expected a size as 512M or 4G, found {text[:40]!r}")
        return int(float(found[1]) * 1024 ** " KMGT".index(found[2].upper() or " "))

    def format_bound(self, x: float) -> str:
        return format_size(x)


class Duration(Number):
    """Seconds, or with s, m, h: 90s, 10m, 2h."""

    metavar = "DURATION"
    noun = "a number of seconds"
    UNITS: ClassVar = {"": 1, "s": 1, "m": 60, "h": 3600}

    def parse(self, text: str) -> float:
        found = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)([smh]?)", text)
        if not found:
            raise ValueError(f"expected a time as 90s, 10m or 2h, found {text!r}")
        return float(found[1]) * self.UNITS[found[2]]

    def format(self, value: Any) -> str:
        return super().format(value) + "s"

    def format_bound(self, x: float) -> str:
        return format_number(x)


class RowsOrTime(Duration):
    """A number of rows (int), or a time with its unit (float)."""

    metavar = "ROWS|TIME"
    noun = "a number of rows or seconds"

    def parse(self, text: str) -> int | float:
        return int(text) if re.fullmatch(r"[1-9]\d{0,17}", text) else super().parse(text)

    def convert(self, value: Any) -> Any:
        return value if isinstance(value, int) else super().convert(value)

    def format(self, value: Any) -> str:
        return str(value) if isinstance(value, int) else super().format(value)


class Folds(Whole):
    """A number of folds, or folds and repetitions as "5x3", each within bounds.

    most_repeats : the most repetitions
    """

    metavar = "N[xREPEATS]"
    noun = "a number of folds or a text as '5x3'"

    def __init__(self, *, most_repeats: int, **bounds: Any) -> None:
        super().__init__(**bounds)
        self.most_repeats = most_repeats

    def parse(self, text: str) -> int | str:
        if re.fullmatch(r"\d{1,9}x\d{1,9}", text):
            return text
        if not re.fullmatch(r"-?\d{1,9}", text):
            raise ValueError(f"expected folds as 5 or 5x3, found {text!r}")
        return int(text)

    def convert(self, value: Any) -> Any:
        return value if isinstance(value, str) else super().convert(value)

    def problem(self, value: Any) -> str:
        if not isinstance(value, str):
            return super().problem(value)
        parts = [int(part) for part in value.split("x") if part.isdecimal()]
        fits = len(parts) == 2 == value.count("x") + 1 and not super().problem(parts[0])
        if fits and 1 <= parts[1] <= self.most_repeats:
            return ""
        return f"must be {self.bounds}, and with repetitions as 5x3 (up to {self.most_repeats})"


class Numbers(Number):
    """A number or a power such as 2^-5; several of these, separated by commas, which a search
    varies; a range first:last:step, where each value is the one before times step; or a word.

    auto : the values that AUTO stands for; empty: AUTO is refused
    """

    metavar = "FLOAT[,FLOAT...]"
    MOST = 1000

    def __init__(self, *words: str, auto: tuple[float, ...] = (), **bounds: Any) -> None:
        super().__init__(*words, **bounds)
        self.metavar = type(self).metavar
        self.auto = auto
        self.all_words = (*words, AUTO) if auto else words
        self.expected = " or ".join([self.noun, "a list of numbers", *map(repr, self.all_words)])

    @property
    def completions(self) -> tuple[str, ...]:
        return self.all_words

    def parse(self, text: str) -> Any:
        if text.lower() in self.all_words:
            return text.lower()
        try:
            found = [one for part in text.split(",") for one in self._range(part)]
        except (ValueError, OverflowError, ZeroDivisionError):
            span = "a range as 2^-5:2^15:2^2 (its step multiplies)"
            listed = ", ".join([self.noun, "several as 1,2,8", span, *self.all_words])
            raise ValueError(f"expected {listed}, found {text!r}") from None
        distinct = tuple(dict.fromkeys(found))
        return distinct if len(distinct) > 1 else distinct[0]

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

    def convert(self, value: Any) -> Any:
        if isinstance(value, str) or not isinstance(value, Sequence):
            return value if value == AUTO and self.auto else super().convert(value)
        for one in value:
            if not isinstance(one, numbers.Real):
                raise ValueError(f"must be numbers in a list, got {one!r}")
        return tuple(map(float, value))

    def problem_as_given(self, value: Any) -> str:
        if value == AUTO and self.auto:
            return ""
        if not isinstance(value, tuple):
            return self.problem(value)
        found = next(filter(None, map(self.problem, value)), "")
        # The ranges of LIBSVM's grid.py have exponents of 2.
        hint = " (a power of 2 is written as 2^-1)" * (min(value) < 0 == self.above)
        return found and found + hint

    def format(self, value: Any) -> str:
        values = value if isinstance(value, tuple) else [value]
        return ",".join(map(super().format, values))


class Weights(Kind):
    """Pairs of a label, or BALANCED, and a number."""

    metavar = "LABEL WEIGHT"
    expected = "a dictionary of labels and numbers"
    types = (str, Mapping, Iterable)
    number = Number(above=0, below=math.inf)
    bounds = number.bounds

    def convert(self, value: Any) -> Any:
        pairs = {BALANCED: 1.0} if value == BALANCED else super().convert(value)
        pairs = pairs.items() if isinstance(pairs, Mapping) else pairs
        try:
            return tuple((str(label), float(weight)) for label, weight in pairs)
        except (TypeError, ValueError):
            raise ValueError(f"must be {self.expected}, got {value!r}") from None

    def problem(self, value: Any) -> str:
        return next(filter(None, (self.number.problem(weight) for _, weight in value)), "")


def _power(text: str) -> float:
    """Return a number, or a power as 2^-5."""
    base, *exponent = map(float, text.split("^"))
    power = base ** exponent.pop() if exponent else base
    if exponent or isinstance(power, complex):
        raise ValueError
    return power


def format_size(count: float) -> str:
    """Return a size in bytes as a word in megabytes, rounded if above one megabyte."""
    return f"{count / MEGABYTE:.0f}M" if count >= MEGABYTE else f"{count / MEGABYTE:g}M"


def format_number(x: float) -> str:
    """Return the shortest word that is parsed as the same number."""
    return f"{x:g}" if float(f"{x:g}") == x else repr(x)
