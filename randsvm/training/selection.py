"""The metrics that a search selects by, the choice by one standard error, and its result.

Each metric gives a loss for each row, whose mean is 1 minus the score or rises as the score gets
worse: racing compares combinations by these losses, row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import isnan, nan, sqrt
from typing import Any, Generic

import numpy as np

from randsvm.errors import ParameterError
from randsvm.events import Searched, Tried
from randsvm.models.metrics import Accuracy, ConfusionMatrix, Metric, RegressionErrors
from randsvm.parameters.run import METRICS_OF_TASK, Search
from randsvm.parameters.sgd import SgdParams
from randsvm.parameters.svm import Params
from randsvm.records import dataclass
from randsvm.training.job import AnyParams
from randsvm.training.probabilities import fit_sigmoid

# Metrics that are defined for two classes only.
FOR_TWO_CLASSES = ("auc", "log-loss")


def check_select_by(search: Search, params: Params | SgdParams) -> None:
    """Raise ParameterError for a metric that is for another task."""
    allowed = METRICS_OF_TASK[params.prediction_type]
    if search.select_by is not None and search.select_by not in allowed:
        listed = " or ".join(allowed)
        raise ParameterError(
            f"--select-by {search.select_by} is not for -s {params.task}: {listed}"
        )


def metric_maker(
    search: Search, params: Params | SgdParams, labels: Sequence[str]
) -> Callable[[], Metric]:
    """Return the function that makes the metric of a search.

    labels: of the classes. Raises ParameterError for a metric of two classes if there are more.
    """
    name = search.select_by or METRICS_OF_TASK[params.prediction_type][0]
    classes = len(labels)
    if name in FOR_TWO_CLASSES and classes != 2:
        raise ParameterError(f"--select-by {name} is for two classes, found {classes}")
    makers: dict[str, Callable[[], Metric]] = {
        "accuracy": Accuracy,
        "balanced-accuracy": partial(BalancedAccuracy, classes),
        "auc": partial(AreaUnderCurve, 2),
        "f1": partial(MeanF1, classes),
        "log-loss": LogLoss,
        "squared-error": RegressionErrors,
        "absolute-error": AbsoluteErrors,
    }
    return makers[name]


class BalancedAccuracy(ConfusionMatrix):
    """The mean recall of the classes that occur, in percent."""

    score_name = "balanced accuracy"
    averaged = True

    @property
    def score(self) -> float:
        true = self.weighted_confusion.sum(axis=1)
        hits = np.zeros(len(true))
        hits[: self.classes] = np.diagonal(self.weighted_confusion)
        occurs = true > 0
        return 100 * float(np.mean(hits[occurs] / true[occurs])) if occurs.any() else nan

    def losses(self, y: np.ndarray, f: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
        """Return the losses of n rows, with the mean 1 - mean recall.

        Each is the mean plus n times the first-order effect of the row's weight on it.
        """
        labels, place = np.unique(y, return_inverse=True)
        weights = np.ones(len(y)) if weights is None else weights
        totals, wrong = np.bincount(place, weights), y != self._predicted(f)
        errors = np.bincount(place, weights * wrong) / totals
        change = weights / totals[place] * (wrong - errors[place]) / len(labels)
        return np.asarray(errors.mean() + len(y) * change, np.float32)


class MeanF1(ConfusionMatrix):
    """The mean over classes of F1, as scikit-learn's f1_macro."""

    score_name = "mean F1"
    averaged = True

    def _parts(self) -> tuple[np.ndarray, np.ndarray]:
        """Return twice the true positives, and the true and predicted rows, of each class."""
        size = len(self.weighted_confusion)
        hits, predicted = np.zeros(size), np.zeros(size)
        hits[: self.classes] = np.diagonal(self.weighted_confusion)
        predicted[: self.classes] = self.weighted_confusion.sum(axis=0)
        return 2 * hits, self.weighted_confusion.sum(axis=1) + predicted

    @property
    def score(self) -> float:
        twice, rows = self._parts()
        occurs = rows > 0
        return float(np.mean(twice[occurs] / rows[occurs])) if occurs.any() else nan

    def losses(self, y: np.ndarray, f: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
        """Return the losses of n rows, with the mean 1 - F1.

        Each is the mean plus n times the first-order effect of the row's weight on it.
        """
        own = MeanF1(self.classes)
        predicted = self._predicted(f)
        own.add(y, f, predicted, weights)
        twice, rows = own._parts()
        occurs = rows > 0
        f1 = np.divide(twice, rows, out=np.zeros(len(rows)), where=occurs)
        slope = np.divide(1.0, rows, out=np.zeros(len(rows)), where=occurs)
        true = y.astype(np.int64)
        gain = 2 * (true == predicted) * slope[true]
        change = gain - f1[true] * slope[true] - f1[predicted] * slope[predicted]
        weights = np.ones(len(y)) if weights is None else weights
        found = 1 - own.score - len(y) * weights * change / np.count_nonzero(occurs)
        return np.asarray(found, np.float32)


class AreaUnderCurve(ConfusionMatrix):
    """The area under the ROC curve of two classes."""

    score_name = "AUC"
    averaged = True

    @property
    def score(self) -> float:
        area = self.auc
        return nan if area is None else area

    def losses(self, y: np.ndarray, f: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
        """Return 1 - AUC in first order.

        The mean over rows is 1 - AUC and the variance that of DeLong, DeLong, Clarke-Pearson,
        "Comparing the Areas under Two or More Correlated Receiver Operating Characteristic
        Curves", 1988: a row counts by the share of its pairs that it ranks correctly, less the mean
        of that share over its class.
        """
        f = f if f.ndim == 1 else f[:, 0] - f[:, 1]
        first = y == 0
        weights = np.ones(len(y)) if weights is None else weights
        ranked = np.empty(len(y))
        for rows, others, sign in ((first, ~first, 1), (~first, first, -1)):
            if not weights[others].sum():
                return np.full(len(y), nan, np.float32)
            values = sign * f[others]
            order = np.argsort(values)
            before = np.concatenate([[0.0], np.cumsum(weights[others][order])])
            own, values = sign * f[rows], values[order]
            below = before[np.searchsorted(values, own, "left")]
            ranked[rows] = (below + before[np.searchsorted(values, own, "right")]) / 2 / before[-1]
        area = float(weights[first] @ ranked[first] / weights[first].sum())
        total = np.where(first, weights[first].sum(), weights[~first].sum())
        found = 1 - area - len(y) * weights / total * (ranked - area)
        return np.asarray(found, np.float32)


class LogLoss(Metric):
    """The mean of -log p of the true one of two classes.

    p is that of Platt's sigmoid. Each half of the rows that a fold holds out has the sigmoid that
    is fitted to the other half, so that no row is scored with its own label.
    """

    score_name = "log loss"
    sign = -1
    summed_attributes = ("sum",)
    sum = 0.0

    def add(
        self,
        y: np.ndarray,
        f: np.ndarray,
        predicted: np.ndarray | None = None,
        weights: np.ndarray | None = None,
    ) -> None:
        self.rows += len(f)
        self.labelled += len(f)
        self.labelled_weight += len(f) if weights is None else float(weights.sum())
        self.sum += float(self.losses(y, f, weights).sum(dtype=float))

    def losses(self, y: np.ndarray, f: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
        f = f if f.ndim == 1 else f[:, 0] - f[:, 1]
        positive, found = y == 0, np.empty(len(y))
        weights = np.ones(len(y)) if weights is None else weights
        even = np.arange(len(y)) % 2 == 0
        for rows in (even, ~even):
            A, B = fit_sigmoid(f[~rows], positive[~rows], weights[~rows])
            z = A * f[rows] + B
            found[rows] = np.logaddexp(0.0, np.where(positive[rows], z, -z))
        return (weights * found).astype(np.float32)

    @property
    def score(self) -> float:
        return self.sum / self.labelled_weight if self.labelled_weight else nan


class AbsoluteErrors(RegressionErrors):
    """Errors of a regression, scored by the mean of their absolute values."""

    score_name = "mean absolute error"

    @property
    def score(self) -> float:
        return self.mean_absolute_error

    @property
    def details(self) -> dict[str, float]:
        return {"mean_squared_error": super().score, **super().details}

    def _losses(self, y: np.ndarray, f: np.ndarray) -> np.ndarray:
        return np.abs(f - y)


# --- mean and standard error ---------------------------------------------------------------


def mean_and_error(scores: Sequence[float], folds: int) -> tuple[float, float]:
    """Return the mean of the scores of folds, and its standard error; nan for one fold.

    Repetitions do not make the error smaller: they score the same rows.

    folds: of one repetition
    """
    each = np.array(scores, float)
    parts = [each[at : at + folds] for at in range(0, len(each), folds)]
    variances = [float(part.var(ddof=1)) for part in parts if len(part) > 1]
    error = sqrt(float(np.mean(variances)) / min(folds, len(each))) if variances else nan
    return float(each.mean()), error


# The parameters that make a machine simpler, the most important first: 1 if a smaller value does,
# -1 if a larger one does.
SIMPLER = {"C": 1, "lambda_": -1, "gamma": 1, "nu": -1, "epsilon": -1}


def simplest_within_error(tried: Sequence[Tried], sign: int) -> dict[str, float] | None:
    """Return the values of the simplest combination whose score is near the best.

    It is within one standard error of the best (Breiman, Friedman, Olshen, Stone, "Classification
    and Regression Trees", 1984). Smaller C comes first, then smaller gamma.

    tried: best first; sign: 1 if a larger score is better, else -1
    """
    best = tried[0]
    if isnan(best.score) or isnan(best.standard_error):
        return None
    least = sign * best.score - best.standard_error
    near = [
        one
        for one in tried
        if one.rows == best.rows and one.dropped_after is None and sign * one.score >= least
    ]

    def simplicity(values: Mapping[str, float]) -> list[float]:
        return [way * values[name] for name, way in SIMPLER.items() if name in values]

    return min((one.values for one in near), key=simplicity)


@dataclass(frozen=True)
class Winner(Generic[AnyParams]):
    """The result of a search.

    searched: the scores; None: there was no time for any
    params: the best parameters
    first_fit: the one of the search with these parameters, on all rows or on those that the first
        fold does not hold out; None: there is none
    """

    searched: Searched | None
    params: AnyParams
    first_fit: Any = None


def search_metadata(found: Searched | None) -> dict[str, str]:
    """Return the entries of a model's trailer for a search: best score, its rows, combinations."""
    if found is None:
        return {}
    best = found.tried[0]
    return {
        "cross_validation": f"{best.score_name} {best.score!r}",
        "cross_validation_rows": str(best.rows),
        **({"searched": str(len(found.tried))} if found.of > 1 else {}),
    }
