"""Cross-validation: folds, concurrent fits, values of held-out rows, and scores to select by.

The score of a fold is computed from all of its held-out rows. Each row also has a loss, by which
racing compares combinations row by row. For log loss and the errors of a regression it is the term
of the row. For the others it is what the score gains, to first order, if this row alone is
predicted (for AUC: ranked) correctly, times the number n of rows. For accuracy the loss of a row is
0 or 1. For balanced accuracy with k classes, a wrong row of a class of m rows has the loss
n / (k m). For AUC and F1 a constant is added so that the mean loss is 1 - score. Weights of rows
multiply all of these losses.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from math import inf, isnan, nan, sqrt
from typing import Any, NamedTuple, TypeVar

import numpy as np

from randsvm.data.dataset import Dataset
from randsvm.data.sampling import FOLDS_DRAW, REPEATS_DRAW, SUBSET_DRAW, Draw
from randsvm.data.shard_executor import Executor, Shard
from randsvm.errors import InfeasibleError
from randsvm.events import Notice, Progress, Tried, Watch, emit, listening
from randsvm.models.decisions import predicted_classes, votes
from randsvm.models.metrics import RegressionErrors, correctly_ranked
from randsvm.parallel import Cancelled, completed_results
from randsvm.parameters.option import require
from randsvm.parameters.run import METRICS_OF_TASK, Search
from randsvm.parameters.sgd import SgdParams
from randsvm.parameters.svm import KernelParams
from randsvm.records import record
from randsvm.training.job import AnyParams, Decision, Fit, Job, Keep, TimeLimitError
from randsvm.training.probabilities import Calibration, fit_sigmoid

Result = TypeVar("Result")

# A view with at most this number of nonzeros (16 MB) is copied, and sent to each worker.
REPLICATED_NONZEROS = 1 << 21

# On up to this many rows, each fit computes in one thread: handing shards to other threads takes
# longer. Searches on two cores, with several threads a fit and with one: covtype of 10,000 rows
# 10.1 and 8.6 s, a9a (32,561) 12.5 and 10.4 s, covtype of 60,000 rows 29.9 and 30.8 s.
SINGLE_THREADED_ROWS = 50_000


@record
class CrossValidation:
    """Folds of D, whose y are class indices or targets.

    assigned : one (n,) int16 for each repetition, the number of the fold that holds out each row; a
    negative number: no fold does
    fold_count : the number of folds of one repetition
    forward : whether a fold trains on rows of smaller numbers only, not on all rows but its own
    """

    D: Dataset
    assigned: Sequence[np.ndarray]
    fold_count: int
    forward: bool = False

    @staticmethod
    def of(D: Dataset, job: Job) -> CrossValidation:
        """Return the folds that the options of a search ask for, all with nearly the same size.

        Each class, if any, is spread evenly over them. If rows have groups, each group is in one
        fold, and the sizes of folds may differ. Raises ParameterError for too few rows or groups.
        """
        search, seed, folds = job.search, job.data_params.seed, job.search.fold_count
        forward = search.groups == "time"
        enough = folds + forward <= D.n
        require(enough, f"-v {folds}: there are only {D.n} rows to cross-validate on")
        if forward:
            return CrossValidation(D, [forward_folds(D.n, folds)], folds, forward=True)
        count = group_count(D)
        some = "is only one group" if count == 1 else f"are only {count} groups"
        require(count >= folds, f"-v {folds} --groups qid: there {some} of rows")
        draws = [
            Draw(seed, FOLDS_DRAW if not r else REPEATS_DRAW + r) for r in range(search.repeats)
        ]
        return CrossValidation(D, [assign_folds(D, folds, draw) for draw in draws], folds)

    @property
    def folds(self) -> range:
        """The numbers of all folds, repetition by repetition."""
        return range(self.fold_count * len(self.assigned))

    def problem_of(self, number: int, params: KernelParams | SgdParams) -> str | None:
        """Return why no model can be trained for a fold; None: one can."""
        if params.prediction_type != "svc":
            return None
        y = self.D.labels()[self.rows(number)[0]]
        has_classes = len(y) > 0 and bool((y != y[0]).any())
        return None if has_classes else "its training rows have one class only"

    def rows(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows that a fold trains on, and those that it holds out, both (n,) bool."""
        repetition, fold = divmod(number, self.fold_count)
        assigned = self.assigned[repetition]
        return assigned < fold if self.forward else assigned != fold, assigned == fold


def fit_anew(
    D: Dataset,
    fit: Fit[AnyParams],
    params: AnyParams,
    previous: Any,
    training: np.ndarray,
    held_out: np.ndarray,
    keep: Keep,
) -> tuple[np.ndarray, None]:
    """Train on some rows of D, from nothing; see FoldFit. fit: trains on the rows of a view."""
    work = partial(held_out_values, fit, params, D.subset(training), D.subset(held_out), keep)
    return D.executor.call(work), None


def held_out_values(
    fit: Fit[AnyParams], params: AnyParams, rest: Dataset, held_out: Dataset, keep: Keep
) -> np.ndarray:
    """Train on `rest`; return `kept_values` of the held-out rows. An executor may call it."""
    return kept_values(held_out, fit(rest, params), keep)


def concurrent_fits(D: Dataset, job: Job) -> int:
    """Return the number of concurrent fits on parts of D that its executor calls."""
    return D.executor.concurrent_calls or job.resources.concurrent_fits(D.n)


def forward_folds(n: int, folds: int) -> np.ndarray:
    """Return the folds of rows in the order of time, (n,) int16, as scikit-learn's TimeSeriesSplit.

    Each fold holds out n // (folds + 1) rows, the last one the last rows. The first rows, which no
    fold holds out, have the number -1.
    """
    size = n // (folds + 1)
    fold = np.full(n, -1, np.int16)
    fold[n - folds * size :] = np.arange(folds * size) // size
    return fold


def group_count(D: Dataset) -> int:
    """Return the number of groups of rows; each row is one if D has no groups."""
    return D.n if D.groups is None else len(np.unique(D.groups))


def assign_groups(groups: np.ndarray, y: np.ndarray, folds: int, draw: Draw) -> np.ndarray:
    """Return the number of the fold of each row, (n,) int16; a group is in one fold.

    Large groups come first, and those of equal size in random order. Each joins the fold that has
    the least of its classes and the fewest rows so far. A group and a fold each have a vector: the
    share of the rows of each class that they hold, and that of all rows. The fold is the one with
    the smallest inner product of both vectors. So each of the first groups joins an empty fold, and
    the sum of the squared shares of all folds rises the least.

    groups : (n,) int64; y : (n,), the classes
    """
    _, group, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    labels, code = np.unique(y, return_inverse=True)
    # The vector of a group has a column for each class, and a last one for all rows. Only entries
    # other than 0 are kept, ascending by group.
    width = len(labels) + 1
    places = np.concatenate([group * width + code, group * width + len(labels)])
    places, counts = np.unique(places, return_counts=True)
    group_of_entry, columns = np.divmod(places, width)
    entries = counts / np.bincount(columns, counts)[columns]
    starts = np.searchsorted(group_of_entry, np.arange(len(sizes) + 1))
    shares = np.zeros((width, folds))
    fold_of_group: np.ndarray = np.empty(len(sizes), np.int16)
    for g in np.lexsort([draw.keys(0, len(sizes)), -sizes]).tolist():
        of_group = slice(*starts[g : g + 2])
        own_columns, own_shares = columns[of_group], entries[of_group]
        fold = int(np.argmin(own_shares @ shares[own_columns]))
        shares[own_columns, fold] += own_shares
        fold_of_group[g] = fold
    return fold_of_group[group]


def assign_folds(D: Dataset, folds: int, draw: Draw) -> np.ndarray:
    """Return the number of the fold of each row, (n,) int16.

    Folds keep the groups of rows, of which there are at least as many.
    """
    y = np.zeros(D.n) if D.targets is None else D.labels()
    if D.groups is not None:
        return assign_groups(D.groups, y, folds, draw)
    fold: np.ndarray = np.empty(D.n, np.int16)
    # Class by class in random order, so that the first fold of a class follows the last one of the
    # class before.
    fold[np.lexsort([draw.keys(0, D.n), y])] = np.arange(D.n) % folds
    return fold


def kept_values(D: Dataset, decision: Decision, keep: Keep) -> np.ndarray:
    """Return the values that `keep` makes of f and y, for all rows of D in order.

    Scores are computed from this result, not from parts of it: ranks, shares of classes and
    sigmoids of one shard are not those of a fold.
    """

    def kept_of(shard: Shard) -> list[np.ndarray]:
        return [keep(decision(chunk.X), chunk.y) for chunk in D.chunks(shard)]

    found = []
    for kept in D.map(kept_of):
        emit(Progress("scoring", 0, None, "beat"))
        found += kept
    return np.concatenate(found)


def subset_of(D: Dataset, rows: int, seed: int) -> Dataset:
    """Return a random view of this number of rows; D if it has no more."""
    if rows >= D.n:
        return D
    some = D.subset(D.mask(D.sample(Draw(seed, SUBSET_DRAW), rows)))
    # Whether rows are copied depends on the data alone: --memory changes no result.
    return some.copied_to_memory() if _is_small(some) else some


def rows_of_groups(D: Dataset, groups: int, seed: int) -> int:
    """Return the fewest rows of `subset_of` that have this number of groups."""
    if D.groups is None:
        return groups
    order = np.argsort(Draw(seed, SUBSET_DRAW).keys(0, D.n), kind="stable")
    first = np.sort(np.unique(D.groups[order], return_index=True)[1])
    return int(first[min(groups, len(first)) - 1]) + 1


@contextmanager
def replicated(D: Dataset, some: Dataset) -> Iterator[Dataset]:
    """Yield the view `some` of D for concurrent fits on parts of it.

    On a cluster, workers make whole fits if the view is small. If it is large, this process makes
    the fits, and workers scan the rows. Without a cluster, each fit on few rows computes in one
    thread.
    """
    with D.executor.replicated(some) if _is_small(some) else nullcontext(some) as view:
        executor, few = view.executor, view.n <= SINGLE_THREADED_ROWS
        is_local = type(executor) is Executor and executor.concurrent_calls is None
        yield view.single_threaded() if is_local and few else view


def _is_small(D: Dataset) -> bool:
    return max(D.n, D.nnz) <= REPLICATED_NONZEROS


def run_concurrently(
    tasks: Sequence[Callable[[], Result]],
    threads: int,
    until: float,
    stage: str,
) -> Iterator[Result]:
    """Yield the results of the tasks as they complete; no task begins after the moment `until`.

    A task that raises TimeLimitError has no result.
    """

    def run(task: Callable[[], Result], watch: Watch) -> Result:
        try:
            with listening(watch):
                return task()
        except TimeLimitError:
            raise Cancelled from None

    calls = [partial(run, task) for task in tasks]
    yield from completed_results(calls, threads, stage, "fit", until)


# Metrics that are defined for two classes only.
FOR_TWO_CLASSES = ("auc", "log-loss")


class FoldScore(NamedTuple):
    """The score of all rows that a fold holds out: total / weight.

    The score of several folds is the ratio of the sums. For accuracy, errors and log loss, these
    are sums over rows; for others the weight is 1, so that the ratio is the mean of the scores.

    rows : the number of rows
    losses : (rows,) float64, see the top of this module
    errors : of a regression, for the other numbers that are reported; None: there are classes
    problem : why the fold has no score; total and losses are then nan
    """

    rows: int
    total: float
    weight: float
    losses: np.ndarray
    errors: RegressionErrors | None = None
    problem: str | None = None

    @staticmethod
    def missing(rows: int, problem: str) -> FoldScore:
        """Return the record of a fold that has no score."""
        return FoldScore(rows, nan, 1.0, np.full(rows, nan), problem=problem)

    @property
    def score(self) -> float:
        return self.total / self.weight


class Criterion(NamedTuple):
    """A score by which a search selects.

    name : in reports and logs
    sign : 1 if a larger score is better, else -1
    keep : returns what the score needs of the decision values of a row
    of_fold : returns the score of a fold, given y, (n,), what is kept, (n, ...), and the weights,
    (n,), of all rows that it holds out
    """

    name: str
    sign: int
    keep: Keep
    of_fold: Callable[[np.ndarray, np.ndarray, np.ndarray], FoldScore]

    def of_folds(self, folds: Sequence[FoldScore]) -> dict[str, Any]:
        """Return the fields of `events.Tried` that hold the score of several folds.

        The score is nan if more than half of the folds have none.
        """
        details, scored = {}, [one for one in folds if one.problem is None]
        errors = [one.errors for one in folds if one.errors is not None]
        if errors:
            whole = sum(errors[1:], errors[0])
            if self.name != "mean squared error":
                details["mean_squared_error"] = whole.squared_error
            details["squared_correlation"] = whole.squared_correlation
        return {
            "scores": [one.score for one in folds],
            "score": sum(one.total for one in scored) / sum(one.weight for one in scored)
            if scored and 2 * len(scored) >= len(folds)
            else nan,
            "score_name": self.name,
            "rows": sum(one.rows for one in folds),
            "details": details,
        }


def check_select_by(search: Search, params: KernelParams | SgdParams) -> None:
    """Raise ParameterError for a metric that is for another task."""
    allowed = METRICS_OF_TASK[params.prediction_type]
    require(
        search.select_by in (None, *allowed),
        f"--select-by {search.select_by} is not for -s {params.task}: {' or '.join(allowed)}",
    )


def criterion_of(
    search: Search, params: KernelParams | SgdParams, labels: Sequence[str]
) -> Criterion:
    """Return the criterion of a search.

    labels: of the classes. Raises ParameterError for a metric of two classes if there are more.
    """
    name = search.select_by or METRICS_OF_TASK[params.prediction_type][0]
    classes = len(labels)
    suits = name not in FOR_TWO_CLASSES or classes == 2
    require(suits, f"--select-by {name} is for two classes, found {classes}")
    criteria = {
        "accuracy": Criterion("accuracy", 1, predicted, accuracy),
        "balanced-accuracy": Criterion("balanced accuracy", 1, predicted, balanced_accuracy),
        "auc": Criterion("AUC", 1, decision_value, area_under_curve),
        "f1": Criterion("mean F1", 1, predicted, mean_f1),
        "log-loss": Criterion("log loss", -1, decision_value, log_loss),
        "squared-error": Criterion(
            "mean squared error", -1, decision_value, partial(mean_error, np.square)
        ),
        "absolute-error": Criterion(
            "mean absolute error", -1, decision_value, partial(mean_error, np.abs)
        ),
    }
    found = criteria[name]
    if params.multiclass != "ovo" or classes == 2:
        return found

    def of_pairs(f: np.ndarray, y: np.ndarray) -> np.ndarray:
        return found.keep(votes(f > 0, ~(f > 0), classes), y)

    return found._replace(keep=of_pairs)


def predicted(f: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the class index that f, (m, columns), predicts for each row, (m,)."""
    return predicted_classes(f)


def decision_value(f: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the target or the value of the first of two classes that f, (m, 1 or 2), predicts."""
    return f[:, 0] if f.shape[1] == 1 else f[:, 0] - f[:, 1]


def accuracy(y: np.ndarray, predicted: np.ndarray, weights: np.ndarray) -> FoldScore:
    """Return the accuracy in percent."""
    wrong = y != predicted
    total, weight = 100 * float(weights[~wrong].sum()), float(weights.sum())
    return FoldScore(len(wrong), total, weight, wrong * (weights / weights.mean()))


def balanced_accuracy(y: np.ndarray, predicted: np.ndarray, weights: np.ndarray) -> FoldScore:
    """Return the mean recall of the classes that occur, in percent."""
    wrong = y != predicted
    classes, place = np.unique(y, return_inverse=True)
    totals = np.bincount(place, weights)
    recalls = np.bincount(place, weights * ~wrong) / totals
    losses = wrong * weights * (len(y) / len(classes) / totals)[place]
    return FoldScore(len(y), 100 * float(recalls.mean()), 1, losses)


def mean_f1(y: np.ndarray, predicted: np.ndarray, weights: np.ndarray) -> FoldScore:
    """Return the mean over classes of F1, as scikit-learn's f1_macro.

    F1 of a class with the weight T of true and P of predicted rows, hits among both, is
    2 hits / (T + P). To first order, a right prediction of a row with the weight w adds
    (2 - F1) w / (T + P) to that of its true class, and F1 w / (T + P) to that of the wrong class.
    """
    true = y.astype(np.int64)
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


def area_under_curve(y: np.ndarray, f: np.ndarray, weights: np.ndarray) -> FoldScore:
    """Return the area under the ROC curve of two classes, none if one of them has no rows.

    The variance of the losses leads to that of the area by DeLong, DeLong, Clarke-Pearson,
    "Comparing the Areas under Two or More Correlated Receiver Operating Characteristic Curves",
    1988: a row counts by the share of its pairs that are ranked correctly.
    """
    first = y == 0
    of_first, rest = float(weights[first].sum()), float(weights[~first].sum())
    if not of_first or not rest:
        return FoldScore.missing(len(y), "its held-out rows lack one of the classes")
    ranked = correctly_ranked(f, first, weights)
    score = float(weights[first] @ ranked[first]) / of_first
    losses = len(first) * weights * (1 - ranked) / np.where(first, of_first, rest)
    return FoldScore(len(first), score, 1, _with_mean(1 - score, losses))


def log_loss(y: np.ndarray, f: np.ndarray, weights: np.ndarray) -> FoldScore:
    """Return the mean of -log p of the true one of two classes.

    p is that of Platt's sigmoid. Either half of the rows has the sigmoid that is fitted to the
    other half, so that no row is scored with its own label. The rows of a class join the halves in
    turn, so that both have as many of them.
    """
    positive, losses = y == 0, np.empty(len(y))
    half = np.empty(len(y), bool)
    half[np.argsort(y, kind="stable")] = np.arange(len(y)) % 2 == 0
    for rows in half, ~half:
        A, B = fit_sigmoid(f[~rows], positive[~rows], weights[~rows])
        z = A * f[rows] + B
        losses[rows] = np.logaddexp(0.0, np.where(positive[rows], z, -z))
    return _mean_loss(losses, weights)


def mean_error(
    size: Callable[[np.ndarray], np.ndarray], y: np.ndarray, f: np.ndarray, weights: np.ndarray
) -> FoldScore:
    """Return the mean size of the errors f - y of a regression."""
    errors = RegressionErrors()
    errors.add(y, f, f, weights)
    return _mean_loss(size(f - y), weights, errors)


def _mean_loss(
    losses: np.ndarray, weights: np.ndarray, errors: RegressionErrors | None = None
) -> FoldScore:
    """Return the mean of losses as a score."""
    total, weight = float(weights @ losses), float(weights.sum())
    return FoldScore(len(losses), total, weight, losses * (weights / weights.mean()), errors)


def _with_mean(mean: float, losses: np.ndarray) -> np.ndarray:
    """Return the losses, and a constant that makes this their mean."""
    return losses + (mean - losses.mean())


# --- mean and standard error ---------------------------------------------------------------


def mean_and_error(scores: Sequence[float], folds: int) -> tuple[float, float]:
    """Return the mean of the scores of folds, and its standard error; nan for one fold.

    Folds without a score (nan) are left out.

    Repetitions do not make the error smaller: they score the same rows.

    folds: of one repetition
    """
    each = np.array(scores, float)
    parts = [each[at : at + folds] for at in range(0, len(each), folds)]
    parts = [part[~np.isnan(part)] for part in parts]
    each = np.concatenate([np.empty(0), *parts])
    if not len(each):
        return nan, nan
    variances = [float(part.var(ddof=1)) for part in parts if len(part) > 1]
    error = sqrt(float(np.mean(variances)) / min(folds, len(each))) if variances else nan
    return float(each.mean()), error


# A combination is dropped if its losses exceed those of the best one by this many standard errors
# of the mean paired difference over the rows of the folds so far: one-sided level 1%, by the normal
# distribution.
RACING_DEVIATIONS = 2.326


def has_number(values: np.ndarray) -> bool:
    """Return whether some value is not nan."""
    return not bool(np.isnan(values).all())


def significantly_worse(losses: Sequence[np.ndarray], rows: int) -> list[int]:
    """Return the places of candidates whose losses are significantly above those of the best.

    The test is paired, over rows: see RACING_DEVIATIONS. The standard error is the one under the
    hypothesis that the expected difference is 0, so that for losses of 0 and 1 the test is that of
    McNemar, 1947: a few rows are never enough, also if their differences are all equal.

    losses : (m,) of each candidate, of the same rows; rows: the number of all rows; more losses
    than rows come from repetitions, which score the same rows again
    """
    means = [float(loss[~np.isnan(loss)].mean()) if has_number(loss) else inf for loss in losses]
    best = losses[int(np.argmin(means))]

    def is_worse(loss: np.ndarray) -> bool:
        # Folds without a score compare nothing.
        difference = (loss - best)[~np.isnan(loss - best)]
        if not len(difference):
            return False
        error = sqrt(float(np.square(difference).mean()) / min(len(difference), rows))
        return float(difference.mean()) > RACING_DEVIATIONS * error

    return [place for place, loss in enumerate(losses) if is_worse(loss)]


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


# --- held-out rows -------------------------------------------------------------------------

# The share of a fold's time that its training may take; the rest is for the decision values.
TRAINING_TIME = 0.75


def fit_by_cross_validation(
    D: Dataset,
    params: AnyParams,
    fit: Callable[..., Decision],
    calibration: Calibration,
    job: Job,
    until: float,
) -> dict[str, Any]:
    """Return the fields of Model for probabilities, fitted by cross-validation on D.

    A sigmoid fitted to training rows would be far too confident.

    D : y are class indices or targets. fit : trains on a fold, with some parameters, within about
    `seconds`, or raises TimeLimitError. until : perf_counter() in seconds; only folds that are
    done by then count, and without any the result is empty.
    """
    folds = min(Search.DEFAULT_FOLDS, group_count(D))
    if folds < 2:
        emit(Notice(f"one row is too few for {calibration.options}"))
        return {}
    with replicated(D, D) as whole:
        validation = CrossValidation.of(whole, replace(job, search=Search((folds, 1))))
        threads = concurrent_fits(whole, job)
        seconds = TRAINING_TIME * (until - time.perf_counter()) / math.ceil(folds / threads)
        timed = partial(fit, seconds=seconds)

        def values_of(fold: int) -> tuple[int, np.ndarray | str]:
            rows = validation.rows(fold)
            if (problem := validation.problem_of(fold, params)) is not None:
                return fold, problem
            try:
                return fold, fit_anew(whole, timed, params, None, *rows, calibration.keep)[0]
            except InfeasibleError as error:
                return fold, str(error)

        tasks = [partial(values_of, fold) for fold in validation.folds]
        ended = dict(run_concurrently(tasks, threads, until, "probabilities"))
    found = {fold: values for fold, values in ended.items() if not isinstance(values, str)}
    problems = [text for text in ended.values() if isinstance(text, str)]
    if problems:
        emit(
            Notice(f"{calibration.options}: not fitted, as a fold cannot be trained: {problems[0]}")
        )
        return {}
    late = f"no time for all folds of {calibration.options}"
    if not found:
        emit(Notice(f"{late}, and too few rows are held out to fit it"))
        return {}
    held = np.isin(validation.assigned[0], list(found))
    if not held.all():
        emit(Notice(f"{late}: {np.count_nonzero(held):,} held-out rows are used"))
    f = np.empty((D.n, next(iter(found.values())).shape[1]))
    for fold in list(found):
        f[validation.rows(fold)[1]] = found.pop(fold)
    weights = D.weights()
    own = None if weights is None else weights[held]
    return calibration.fit(f if held.all() else f[held], D.labels()[held], own)
