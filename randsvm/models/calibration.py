"""Calibrators, which compute probabilities from decision values, and their lines in the trailer.

Platt's sigmoids are in LIBSVM's format. The other calibrators are in the trailer alone: svm-predict
finds no probabilities in such a model and predicts labels only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from randsvm.decimals import join_numbers, parse_numbers, shortest
from randsvm.models import decisions
from randsvm.models.trailer import Trailer
from randsvm.records import dataclass


class Calibrator(ABC):
    """Probabilities from decision values."""

    name: str

    @abstractmethod
    def columns(self, f: np.ndarray) -> np.ndarray:
        """Return the probability of the class that f > 0 predicts, (m, columns).

        f : (m, columns).
        """

    def classes(self, f: np.ndarray) -> np.ndarray:
        """Return the probability of each class, (m, classes). f : (m, 1) or (m, classes)."""
        return decisions.class_probabilities(self.columns(f))

    def lines(self) -> dict[str, str]:
        """Return the lines of the trailer."""
        return {}


@dataclass(frozen=True)
class Sigmoid(Calibrator):
    """Platt's 1 / (1 + exp(A f + B)) for each column. coefficients : A and B, (2, columns)."""

    name = "sigmoid"
    coefficients: np.ndarray

    def columns(self, f: np.ndarray) -> np.ndarray:
        A, B = self.coefficients
        # This form does not overflow.
        return decisions.clipped(0.5 - 0.5 * np.tanh(0.5 * (A * f + B)))


@dataclass(frozen=True)
class Isotonic(Calibrator):
    """A rising function for each column, linear between its knots and constant beyond them.

    knots : for each column f, ascending, and the probability there, (2, count)
    """

    name = "isotonic"
    knots: tuple[np.ndarray, ...]

    def columns(self, f: np.ndarray) -> np.ndarray:
        curves = zip(f.T, self.knots, strict=True)
        return decisions.clipped(np.column_stack([np.interp(v, *knots) for v, knots in curves]))

    def lines(self) -> dict[str, str]:
        f, p = np.concatenate(self.knots, axis=1)
        return {
            "calibration": self.name,
            "isotonic_knots": " ".join(str(knots.shape[1]) for knots in self.knots),
            "isotonic_f": join_numbers(f),
            "isotonic_p": join_numbers(p),
        }

    @staticmethod
    def parse(trailer: Trailer) -> Isotonic:
        """Return the calibrator of a trailer. Raise ModelError."""
        names = ("isotonic_knots", "isotonic_f", "isotonic_p")
        counts, f, p = (trailer.take(name, parse_numbers) for name in names)
        if counts is None or f is None or p is None:
            raise trailer.error(f"expected {', '.join(names)} of isotonic probabilities")
        whole = counts.astype(np.int64)
        if not ((whole == counts) & (whole > 0)).all() or not whole.sum() == len(f) == len(p):
            raise trailer.error("expected as many isotonic_f and isotonic_p as isotonic_knots says")
        knots = tuple(np.split(np.array([f, p]), np.cumsum(whole)[:-1], axis=1))
        if not all(
            (np.diff(f) > 0).all() and (np.diff(p) >= 0).all() and p[0] >= 0 and p[-1] <= 1
            for f, p in knots
        ):
            raise trailer.error("expected ascending isotonic_f and isotonic_p from 0 to 1")
        return Isotonic(knots)


@dataclass(frozen=True)
class Temperature(Calibrator):
    """Decision values divided by one temperature: 1 / (1 + exp(-f / T)), or softmax(f / T).

    The softmax is used where f has a column for each class.
    """

    name = "temperature"
    temperature: float

    def columns(self, f: np.ndarray) -> np.ndarray:
        return decisions.clipped(0.5 + 0.5 * np.tanh(f / (2 * self.temperature)))

    def classes(self, f: np.ndarray) -> np.ndarray:
        if f.shape[1] == 1:
            return super().classes(f)
        return softmax(f / self.temperature)

    def lines(self) -> dict[str, str]:
        return {"calibration": self.name, "temperature": shortest(self.temperature)}

    @staticmethod
    def parse(trailer: Trailer) -> Temperature:
        """Return the calibrator of a trailer. Raise ModelError."""
        found = trailer.take("temperature", parse_numbers)
        if found is None or len(found) != 1 or not found[0] > 0:
            raise trailer.error("expected one temperature above 0")
        return Temperature(float(found[0]))


def softmax(z: np.ndarray) -> np.ndarray:
    """Return e^z / sum e^z of each row. z : (m, columns)."""
    p = np.exp(z - z.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True)


def parse_calibrator(trailer: Trailer, columns: int) -> Calibrator | None:
    """Return the calibrator of a trailer, or None. columns : of f. Raise ModelError."""
    name = trailer.unparsed.pop("calibration", None)
    if name is None:
        return None
    parsers = {"isotonic": Isotonic.parse, "temperature": Temperature.parse}
    if name not in parsers:
        raise trailer.error(f"expected calibration {' or '.join(parsers)}, found {name!r}")
    found = parsers[name](trailer)
    if isinstance(found, Isotonic) and len(found.knots) != columns:
        raise trailer.error(f"expected isotonic knots of {columns} columns")
    return found
