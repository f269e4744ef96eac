"""The scores that a search selects by, the choice by one standard error, and its result.

A score is of all rows that a fold holds out. Each row also has a loss, by which a race compares
combinations row by row: the gain of the score, to first order, if the row were predicted (for AUC:
ranked) correctly, times the number of rows. A loss 0 / 1 is that of accuracy; for balanced accuracy
the rows of a rare class have larger ones. A constant makes the mean of the losses the loss of the
whole fold, 1 minus the score.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan, nan, sqrt
from typing import Any, Generic, NamedTuple

import numpy as np

from randsvm.errors import ParameterError
from randsvm.events import Searched, Tried
from randsvm.models.decisions import predicted_classes
from randsvm.models.metrics import RegressionErrors, correctly_ranked
from randsvm.parameters.run import METRICS_OF_TASK, Search
from randsvm.parameters.sgd import SgdParams
from randsvm.parameters.svm import Params
from randsvm.training.cross_validation import Keep, KeptValues
from randsvm.training.job import AnyParams
from randsvm.training.probabilities import fit_sigmoid

# Metrics that are defined for two classes only.
FOR_TWO_CLASSES = ("auc", "log-loss")


class FoldScore(NamedTuple):
    """The score of all rows that a fold holds out: total / weight.

    The score of several folds is the ratio of the sums. For accuracy, errors and log loss, these
    are sums over rows; for others the weight is 1, so that the ratio is the mean of the scores.

    rows : the number of rows
    losses : (rows,), see above
    errors : of a regression, for the other numbers that are reported; None: there are classes
    """

    rows: int
    total: float
    weight: float
    losses: np.ndarray
    errors: RegressionErrors | None = None

    @property
    def score(self) -> float:
        return self.total / self.weight

    def without_losses(self) -> FoldScore:
        return self._replace(losses=np.empty(0))


class Criterion(NamedTuple):
    """A score by which a search selects.

    name : in reports and logs
    sign : 1 if a larger score is better, else -1
    keep : returns what the score needs of the decision values of a row
    of_fold : returns the score of a fold, from what is kept of all rows that it holds out
    """

    name: str
    sign: int
    keep: Keep
    of_fold: Callable[[KeptValues], FoldScore]

    def of_folds(self, folds: Sequence[FoldScore]) -> dict[str, Any]:
        """Return the fields of `events.Tried` that hold the score of several folds."""
        details = {}
        errors = [one.errors for one in folds if one.errors is not None]
        if errors:
            whole = sum(errors[1:], errors[0])
            if self.name != whole.score_name:
                details[whole.score_name.replace(" ", "_")] = whole.score
            details["squared_correlation"] = whole.squared_correlation
        return {
            "scores": [one.score for one in folds],
            "score": sum(one.total for one in folds) / sum(one.weight for one in folds),
            "score_name": self.name,
            "rows": sum(one.rows for one in folds),
            "details": details,
        }


def check_select_by(search: Search, params: Params | SgdParams) -> None:
    """Raise ParameterError for a metric that is for another task."""
    allowed = METRICS_OF_TASK[params.prediction_type]
    if search.select_by is not None and search.select_by not in allowed:
        listed = " or ".join(allowed)
        raise ParameterError(
            f"--select-by {search.select_by} is not for -s {params.task}: {listed}"
        )


def criterion_of(search: Search, params: Params | SgdParams, labels: Sequence[str]) -> Criterion:
    """Return the criterion of a search.

    labels: of the classes. Raises ParameterError for a metric of two classes if there are more.
    """
    name = search.select_by or METRICS_OF_TASK[params.prediction_type][0]
    classes = len(labels)
    if name in FOR_TWO_CLASSES and classes != 2:
        raise ParameterError(f"--select-by {name} is for two classes, found {classes}")
    criteria = {
        "accuracy": Criterion("accuracy", 1, predicted, accuracy),
        "balanced-accuracy": Criterion("balanced accuracy", 1, predicted, balanced_accuracy),
        "auc": Criterion("AUC", 1, decision_value, area_under_curve),
        "f1": Criterion("mean F1", 1, predicted, mean_f1),
        "log-loss": Criterion("log loss", -1, decision_value, log_loss),
        "squared-error": Criterion("mean squared error", -1, decision_value, squared_error),
        "absolute-error": Criterion("mean absolute error", -1, decision_value, absolute_error),
    }
    return criteria[name]


def predicted(f: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the class index that f, (m, columns), predicts for each row, (m,)."""
    return predicted_classes(f[:, 0] if f.shape[1] == 1 else f)


def decision_value(f: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the target or the value of the first of two classes that f, (m, 1 or 2), predicts."""
    return f[:, 0] if f.shape[1] == 1 else f[:, 0] - f[:, 1]


def accuracy(values: KeptValues) -> FoldScore:
    """Return the accuracy in percent."""
    wrong, weights = values.y != values.kept, _weights(values)
    total, weight = 100 * float(weights[~wrong].sum()), float(weights.sum())
    return FoldScore(len(wrong), total, weight, wrong * _relative(weights))


def balanced_accuracy(values: KeptValues) -> FoldScore:
    """Return the mean recall of the classes that occur, in percent."""
    y, predicted, _ = values
    weights, wrong = _weights(values), y != predicted
    classes, place = np.unique(y, return_inverse=True)
    totals = np.bincount(place, weights)
    recalls = np.bincount(place, weights * ~wrong) / totals
    losses = wrong * weights * (len(y) / len(classes) / totals)[place]
    return FoldScore(len(y), 100 * float(recalls.mean()), 1, losses)


def mean_f1(values: KeptValues) -> FoldScore:
    """Return the mean over classes of F1, as scikit-learn's f1_macro.

    F1 of a class with the weight T of true and P of predicted rows, hits among both, is
    2 hits / (T + P). To first order, a right prediction of a row with the weight w adds
    (2 - F1) w / (T + P) to that of its true class, and F1 w / (T + P) to that of the wrong class.
    """
    true, predicted, weights = values.y.astype(np.int64), values.kept, _weights(values)
    size, wrong = int(max(true.max(), predicted.max())) + 1, true != predicted
    rows = np.bincount(true, weights, size) + np.bincount(predicted, weights, size)
    hits = np.bincount(true, weights * ~wrong, size)
    occurs = rows > 0
    f1 = np.divide(2 * hits, rows, out=np.zeros(size), where=occurs)
    slope = np.divide(1.0, rows, out=np.zeros(size), where=occurs)
    gains = ((2 - f1) * slope)[true] + (f1 * slope)[predicted]
    score = float(f1[occurs].mean())
    losses = wrong * weights * gains * (len(true) / np.count_nonzero(occurs))
    return FoldScore(len(true), score, 1, _with_mean(1 - score, losses))


def area_under_curve(values: KeptValues) -> FoldScore:
    """Return the area under the ROC curve of two classes; nan if one of them has no rows.

    The variance of the losses leads to that of the area by DeLong, DeLong, Clarke-Pearson,
    "Comparing the Areas under Two or More Correlated Receiver Operating Characteristic Curves",
    1988: a row counts by the share of its pairs that are ranked correctly.
    """
    first, weights = values.y == 0, _weights(values)
    ranked = correctly_ranked(values.kept, first, weights)
    of_first, rest = float(weights[first].sum()), float(weights[~first].sum())
    score = float(weights[first] @ ranked[first]) / of_first if of_first else nan
    losses = len(first) * weights * (1 - ranked) / np.where(first, of_first, rest)
    return FoldScore(len(first), score, 1, _with_mean(1 - score, losses))


def log_loss(values: KeptValues) -> FoldScore:
    """Return the mean of -log p of the true one of two classes.

    p is that of Platt's sigmoid. Either half of the rows has the sigmoid that is fitted to the
    other half, so that no row is scored with its own label. The rows of a class join the halves in
    turn, so that both have as many of them.
    """
    y, f, _ = values
    positive, weights, losses = y == 0, _weights(values), np.empty(len(y))
    half = np.empty(len(y), bool)
    half[np.argsort(y, kind="stable")] = np.arange(len(y)) % 2 == 0
    for rows in half, ~half:
        A, B = fit_sigmoid(f[~rows], positive[~rows], weights[~rows])
        z = A * f[rows] + B
        losses[rows] = np.logaddexp(0.0, np.where(positive[rows], z, -z))
    total, weight = float(weights @ losses), float(weights.sum())
    return FoldScore(len(y), total, weight, losses * _relative(weights))


def squared_error(values: KeptValues) -> FoldScore:
    """Return the mean squared error of a regression."""
    return _mean_error(values, (values.kept - values.y) ** 2)


def absolute_error(values: KeptValues) -> FoldScore:
    """Return the mean absolute error of a regression."""
    return _mean_error(values, np.abs(values.kept - values.y))


def _mean_error(values: KeptValues, losses: np.ndarray) -> FoldScore:
    weights, errors = _weights(values), RegressionErrors()
    errors.add(values.y, values.kept, weights=values.weights)
    total, weight = float(weights @ losses), float(weights.sum())
    return FoldScore(len(losses), total, weight, losses * _relative(weights), errors)


def _weights(values: KeptValues) -> np.ndarray:
    """Return the weights of the rows, (n,) float64."""
    return np.ones(len(values.y)) if values.weights is None else values.weights


def _relative(weights: np.ndarray) -> np.ndarray:
    """Return the weights divided by their mean."""
    return weights / weights.mean()


def _with_mean(mean: float, losses: np.ndarray) -> np.ndarray:
    """Return the losses, and a constant that makes this their mean."""
    return losses + (mean - losses.mean())


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


# A combination is dropped if its losses exceed those of the best one by this many standard errors
# of the mean paired difference over the rows of the folds so far: one-sided level 1%, by the normal
# distribution.
RACING_DEVIATIONS = 2.326


def mean_excess(losses: np.ndarray, best: np.ndarray, rows: int) -> tuple[float, float]:
    """Return the mean difference of the losses of the same rows, and its standard error.

    The standard error is the one under the hypothesis that the expected difference is 0, so that
    for losses of 0 and 1 the test is that of McNemar, 1947: a few rows are never enough, also if
    their differences are all equal.

    losses, best : (m,); rows: the number of all rows; more losses than rows come from repetitions,
    which score the same rows again
    """
    difference = losses - best
    error = sqrt(float(np.square(difference).mean()) / min(len(difference), rows))
    return float(difference.mean()), error


def significantly_worse(losses: Mapping[int, np.ndarray], rows: int) -> list[int]:
    """Return the candidates whose losses are significantly above those of the best, in order.

    The test is paired, over rows: see RACING_DEVIATIONS.

    losses : (m,) of each candidate, of the same rows; rows: see `mean_excess`
    """
    means = {index: float(loss.mean()) for index, loss in losses.items()}
    if len(means) < 2:
        return []
    numbers = [index for index in sorted(means) if not isnan(means[index])]
    if not numbers:
        return []
    best = min(numbers, key=means.__getitem__)
    worse = []
    for index in sorted(means):
        if isnan(means[index]):
            worse.append(index)
            continue
        excess, error = mean_excess(losses[index], losses[best], rows)
        if excess > RACING_DEVIATIONS * error:
            worse.append(index)
    return worse


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


def search_metadata(found: Searched | None) -> dict[str, Any]:
    """Return the entries of a model's trailer for a search: best score, its rows, combinations."""
    if found is None:
        return {}
    best = found.tried[0]
    return {
        "cross_validation": f"{best.score_name} {best.score!r}",
        "cross_validation_rows": best.rows,
        **({"searched": len(found.tried)} if found.of > 1 else {}),
    }
