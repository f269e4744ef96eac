"""The trailer of a model: what its lines may hold, and those that describe the training.

Each line is read once, when the model is. All other modules have typed fields.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import field, fields
from functools import cached_property
from math import nan
from typing import Any, NamedTuple

import numpy as np

from randsvm.errors import ModelError, ParameterError, quoted
from randsvm.parameters.option import grid, options_on_command_line
from randsvm.parameters.run import ALGORITHMS, COMMON
from randsvm.records import record

LARGEST = sys.float_info.max
# Rounding may leave the gap of an optimum slightly below 0.
LEAST_GAP = -1e-6


class LineKind(NamedTuple):
    """The kind of value that a line of the trailer has.

    expected : its name in messages
    read : returns the value of the field from that of JSON. Any error but those of the system says
    that the line does not hold it.
    """

    expected: str
    read: Callable[[Any], Any]


def or_nan(known: float | None) -> float:
    """Return nan in place of None: the line of a number that is not known is null."""
    return nan if known is None else known


def _require(condition: bool) -> None:
    if not condition:
        raise ValueError


def _number(expected: str, least: float = -LARGEST, above: bool = False) -> LineKind:
    """Return the kind of numbers from `least`, or above it; null is nan."""

    def read(found: Any) -> float:
        if found is None:
            return nan
        _require(type(found) in (int, float) and least <= found <= LARGEST)  # a bool is an int
        _require(found > least or not above)
        return float(found)

    return LineKind(f"{expected} or null", read)


def _text(found: Any) -> str:
    _require(isinstance(found, str))
    return str(found)


def _texts(found: Any) -> tuple[str, ...]:
    _require(isinstance(found, list))
    return tuple(map(_text, found))


def _count(found: Any) -> int:
    _require(type(found) is int and 0 <= found < 2**64)
    return int(found)


def _digest(found: Any) -> str:
    _require(re.fullmatch("[0-9a-f]{64}", found) is not None)
    return str(found)


def _mapping(found: Any) -> Mapping[str, Any]:
    _require(isinstance(found, dict))
    return dict(found)


def _array(found: Any) -> np.ndarray:
    _require(isinstance(found, list))
    array = np.array(found)
    # Numbers beyond int64 are objects, texts and bools have other kinds; an empty list is float64.
    _require(array.dtype.kind in "if" and bool(np.isfinite(array).all()))
    return array.astype(np.float64)


def any_of(*values: int | str) -> LineKind:
    """Return the kind of these values."""

    def read(found: Any) -> int | str:
        # True is 1: `index` would find it.
        _require(type(found) in (int, str))
        return values[values.index(found)]

    return LineKind(" or ".join(map(json.dumps, values)), read)


def _configuration(found: Any) -> str:
    _options(_text(found))
    return str(found)


def _options(configuration: str) -> dict[str, Any]:
    """Return the options of a training by name. Raise ValueError or KeyError for other words."""
    algorithm, *words = shlex.split(configuration)
    groups = *ALGORITHMS[algorithm], *COMMON
    found = options_on_command_line(words, groups)
    _require(not grid(groups, found))
    return found


TEXT = LineKind("a text", _text)
TEXTS = LineKind("a list of texts", _texts)
COUNT = LineKind("a whole number of 0 or more", _count)
NUMBER = _number("a number")
NOT_NEGATIVE = _number("a number of 0 or more", 0.0)
POSITIVE = _number("a number above 0", 0.0, above=True)
GAP = _number("a gap", LEAST_GAP)
ARRAY = LineKind("a list of finite numbers", _array)


class Trailer:
    """The lines of a trailer that were not read yet.

    items : values of JSON by key; name : of the file in messages
    """

    def __init__(self, items: Mapping[str, Any], name: str) -> None:
        self._items, self._name = dict(items), name

    def take(self, key: str, kind: LineKind) -> Any:
        """Return the value of a line, None without one. Raise ModelError for another value."""
        if key not in self._items:
            return None
        found = self._items.pop(key)
        try:
            return kind.read(found)
        except (
            ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError,
            ParameterError,
        ) as error:  # fmt: skip
            raise ModelError(
                f"{self._name}: expected {kind.expected} in the line '# randsvm {key}', found "
                f"{quoted(json.dumps(found))}"
            ) from error

    def require(self, key: str, found: Any) -> Any:
        """Return what a line was found to hold. Raise ModelError if there is none."""
        if found is None:
            raise ModelError(f"{self._name}: expected a line '# randsvm {key}', found none")
        return found

    def end(self) -> None:
        """Raise ModelError if a line is left, which no model has."""
        for key in self._items:
            raise ModelError(
                f"{self._name}: expected no line '# randsvm {quoted(key)[1:]}, found one"
            )


def _line(kind: LineKind) -> Any:
    """Return a field of Metadata."""
    return field(default=None, metadata={"kind": kind})


@record
class Metadata:
    """The lines of a trailer as typed fields; see docs/file-formats.md. None: there is no line.

    Numbers that are nan are written as null: they are unknown or not finite.

    configuration : the command line of the training without its files
    database : the URL of the database of --sql, without a password
    problem : as docs/certificate-format.md defines it
    support_vectors_before to labels_changed : see `events.Reduced`
    epsilon to t : of sgd, what an update continues from. `origin`, or with -n `nu`, mark novelty
    detection: the weight of the origin, and the share of rows outside
    running, running_* : the state of an update: s, sigma and m; v, b, A and b_sum of its learner
    """

    version: str | None = _line(TEXT)
    configuration: str | None = _line(LineKind("the options of a training", _configuration))
    database: str | None = _line(TEXT)
    seed: int | None = _line(COUNT)
    n: int | None = _line(COUNT)
    d: int | None = _line(COUNT)
    nnz: int | None = _line(COUNT)
    digest: str | None = _line(LineKind("64 hexadecimal digits", _digest))
    C: float | None = _line(POSITIVE)
    problem: Mapping[str, Any] | None = _line(LineKind("an object", _mapping))
    lambda_: float | None = _line(POSITIVE)
    primal: float | None = _line(NUMBER)
    dual: float | None = _line(NUMBER)
    primal_error: float | None = _line(NOT_NEGATIVE)
    dual_error: float | None = _line(NOT_NEGATIVE)
    gap: float | None = _line(GAP)
    largest_gap: float | None = _line(GAP)
    certificate: str | None = _line(any_of("proven", "sampled", "reduced", "none"))
    dual_of: str | None = _line(any_of("other coefficients"))
    violators: float | None = _line(
        LineKind(f"{COUNT.expected} or null", lambda found: nan if found is None else _count(found))
    )
    support_vectors_before: int | None = _line(COUNT)
    full_gap: float | None = _line(GAP)
    largest_change: float | None = _line(NOT_NEGATIVE)
    mean_change: float | None = _line(NOT_NEGATIVE)
    labels_changed: int | None = _line(COUNT)
    averaged: int | None = _line(COUNT)
    stopped: str | None = _line(TEXT)
    epsilon: float | None = _line(NOT_NEGATIVE)
    origin: float | None = _line(POSITIVE)
    nu: float | None = _line(POSITIVE)
    eta0: float | None = _line(POSITIVE)
    bias_rate: float | None = _line(NOT_NEGATIVE)
    bias_lambda: float | None = _line(NOT_NEGATIVE)
    weights: np.ndarray | None = _line(ARRAY)
    t: float | None = _line(NOT_NEGATIVE)
    cross_validation: str | None = _line(TEXT)
    cross_validation_rows: int | None = _line(COUNT)
    searched: int | None = _line(COUNT)
    running: np.ndarray | None = _line(ARRAY)
    running_v: np.ndarray | None = _line(ARRAY)
    running_b: np.ndarray | None = _line(ARRAY)
    running_A: np.ndarray | None = _line(ARRAY)  # noqa: N815 - as in _sgd.pyx
    running_b_sum: np.ndarray | None = _line(ARRAY)

    @staticmethod
    def read(trailer: Trailer) -> Metadata:
        """Return the metadata of a trailer. Raise ModelError, also for lines without others that
        every training writes with them."""
        found = {
            f.name: trailer.take(f.name.rstrip("_"), f.metadata["kind"]) for f in fields(Metadata)
        }
        for some, needed in TOGETHER:
            if any(found[name] is not None for name in some):
                for name in needed:
                    trailer.require(name.rstrip("_"), found[name])
        return Metadata(**found)

    def lines(self) -> dict[str, Any]:
        """Return the values of the lines."""
        values = {f.name.rstrip("_"): getattr(self, f.name) for f in fields(self)}
        return {key: value for key, value in values.items() if value is not None}

    @cached_property
    def options(self) -> dict[str, Any]:
        """The options of the training by name, as the package stores them."""
        return {} if self.configuration is None else _options(self.configuration)


_TRAINING = ("version", "configuration", "n", "d", "stopped")
_DATA = ("seed", "nnz", "digest", "C")
_ROUNDING = ("certificate", "primal_error", "dual_error")
_GAP = ("problem", "primal", "dual", "gap")
_REDUCED = ("support_vectors_before", "full_gap", "largest_change", "mean_change", "labels_changed")
_STEPS = ("eta0", "bias_rate", "bias_lambda", "weights", "t")
_RUNNING = ("running", "running_v", "running_b")
_MEAN = ("running_A", "running_b_sum")
_FOLDS = ("cross_validation", "cross_validation_rows")
# A model that has one of the first lines has all of the second ones.
TOGETHER = (
    (_TRAINING, _TRAINING),
    (_DATA, (*_TRAINING, *_DATA)),
    (_ROUNDING, (*_DATA, *_ROUNDING, *_GAP, "lambda_")),
    (("dual", "gap"), _GAP),
    (_REDUCED, (*_ROUNDING, *_REDUCED)),
    (_STEPS, (*_TRAINING, *_STEPS, "lambda_")),
    (_RUNNING, (*_STEPS, *_RUNNING)),
    (_MEAN, (*_RUNNING, *_MEAN)),
    (_FOLDS, _FOLDS),
)
