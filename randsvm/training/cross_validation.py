"""Cross-validation: folds, concurrent fits, and decision values of held-out rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from math import inf
from threading import Event
from typing import NamedTuple, TypeVar

import numpy as np

from randsvm.arrays import distinct, join_weights
from randsvm.data.dataset import Dataset
from randsvm.data.sampling import Draw
from randsvm.data.shard_executor import Shard, ThreadExecutor
from randsvm.errors import ParameterError
from randsvm.events import Progress, Queued, emit, listening
from randsvm.parallel import Cancelled, completed_results
from randsvm.training.clock import TimeLimitError
from randsvm.training.job import AnyParams, Decision, Fit, Job

Result = TypeVar("Result")
# Maps f, (m, columns) float64, and y, (m,), of some rows to the values to keep, row by row.
Keep = Callable[[np.ndarray, np.ndarray], np.ndarray]

# The numbers of the draws of folds and of a subset; no other draw of a run reaches them.
FOLDS_DRAW = 2**63 + 1
SUBSET_DRAW = 2**63 + 2
# The repetitions after the first have the numbers after this one.
REPEATS_DRAW = 2**63 + 1000

# A view with at most this number of nonzeros (16 MB) is copied, and sent to each worker.
COPIED_NONZEROS = 1 << 21

# On up to this many rows, each fit computes in one thread: handing shards to other threads takes
# longer. Searches on two cores, with several threads a fit and with one: covtype of 10,000 rows
# 10.1 and 8.6 s, a9a (32,561) 12.5 and 10.4 s, covtype of 60,000 rows 29.9 and 30.8 s.
SINGLE_THREADED_ROWS = 50_000


class KeptValues(NamedTuple):
    """Values kept from the decision values of all rows of a view, in order.

    y : (n,); kept : (n, ...), see Keep; weights : (n,), or None if all are 1
    """

    y: np.ndarray
    kept: np.ndarray
    weights: np.ndarray | None


@dataclass(frozen=True)
class CrossValidation:
    """Folds of D, whose y are class indices or targets.

    assigned : one (n,) int16 for each repetition, the number of the fold that holds out each row; a
    negative number: no fold does
    forward : whether a fold trains on rows of smaller numbers only, not on all rows but its own
    at_once : the number of concurrent fits; the executor of D runs each of them
    """

    D: Dataset
    assigned: Sequence[np.ndarray]
    at_once: int
    forward: bool = False

    @staticmethod
    def of(D: Dataset, folds: int, job: Job) -> CrossValidation:
        """Return folds of equal size, over which each class, if any, is spread evenly."""
        _check_rows(D, folds, folds)
        fold = assign_folds(D, folds, Draw(job.run.seed, FOLDS_DRAW))
        return CrossValidation(D, [fold], at_once(D, job))

    @staticmethod
    def of_search(D: Dataset, job: Job) -> CrossValidation:
        """Return the folds that the options of a search ask for."""
        search, seed = job.search, job.run.seed
        _check_rows(D, search.fold_count, search.fold_count + (search.groups == "time"))
        if search.groups == "time":
            fold = forward_folds(D.n, search.fold_count)
            return CrossValidation(D, [fold], at_once(D, job), True)
        if search.groups == "qid":
            _check_groups(D, search.fold_count)
        draws = [
            Draw(seed, FOLDS_DRAW if not r else REPEATS_DRAW + r) for r in range(search.repeats)
        ]
        assigned = [assign_folds(D, search.fold_count, draw) for draw in draws]
        return CrossValidation(D, assigned, at_once(D, job))

    @property
    def folds(self) -> range:
        """The numbers of all folds, repetition by repetition."""
        return range(self._in_repetition * len(self.assigned))

    @property
    def _in_repetition(self) -> int:
        return int(self.assigned[0].max()) + 1

    def held_out(self, number: int) -> np.ndarray:
        """Return the rows that a fold holds out, (n,) bool."""
        repetition, fold = divmod(number, self._in_repetition)
        return np.asarray(self.assigned[repetition] == fold)

    def training(self, number: int) -> np.ndarray:
        """Return the rows that a fold trains on, (n,) bool."""
        repetition, fold = divmod(number, self._in_repetition)
        assigned = self.assigned[repetition]
        return np.asarray(assigned < fold if self.forward else assigned != fold)

    def decisions(
        self, fit: Fit[AnyParams], params: AnyParams, until: float, keep: Keep
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """Return which rows were held out, (n,) bool, and what is kept of their f, (m, K) float64.

        Those rows are of the folds that ended in time; None: no fold did. Each fold trains without
        the rows that it holds out.
        """

        def numbered_values(fold: int) -> tuple[int, np.ndarray | None]:
            held, rest = self.D.subset(self.held_out(fold)), self.D.subset(self.training(fold))
            work = partial(held_out_values, fit, params, rest, held, keep)
            try:
                return fold, self.D.executor.call(work).kept
            except TimeLimitError:
                return fold, None

        tasks = [partial(numbered_values, fold) for fold in self.folds]
        done = run_concurrently(tasks, self.at_once, until, "probabilities")
        found = {fold: f for fold, f in done if f is not None}
        if not found:
            return None
        f = np.empty((self.D.n, next(iter(found.values())).shape[1]))
        held = np.isin(self.assigned[0], list(found))
        for fold in list(found):
            f[self.held_out(fold)] = found.pop(fold)
        return held, f if held.all() else f[held]


def held_out_values(
    fit: Fit[AnyParams], params: AnyParams, rest: Dataset, held_out: Dataset, keep: Keep
) -> KeptValues:
    """Train on some rows; return what is kept of f of others. An executor may call it."""
    return kept_values(held_out, fit(rest, params), keep)


def at_once(D: Dataset, job: Job) -> int:
    """Return the number of concurrent fits on parts of D."""
    return D.executor.concurrent_calls or job.resources.concurrent_fits(D.n)


def _check_rows(D: Dataset, folds: int, least: int) -> None:
    """Raise ParameterError if D has fewer than `least` rows."""
    if least > D.n:
        raise ParameterError(f"-v {folds}: there are only {D.n} rows to cross-validate on")


def forward_folds(n: int, folds: int) -> np.ndarray:
    """Return the folds of rows in the order of time, (n,) int16, as scikit-learn's TimeSeriesSplit.

    Each fold holds out n // (folds + 1) rows, the last one the last rows. The first rows, which no
    fold holds out, have the number -1.
    """
    size = n // (folds + 1)
    fold = np.full(n, -1, np.int16)
    fold[n - folds * size :] = np.arange(folds * size) // size
    return fold


def _check_groups(D: Dataset, folds: int) -> None:
    """Raise ParameterError if D has fewer groups than folds."""
    count = group_count(D)
    if count < folds:
        some = "is only one group" if count == 1 else f"are only {count} groups"
        raise ParameterError(f"-v {folds} --groups qid: there {some} of rows")


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
    # The vector of a group has an entry for each of its classes, and a last one for all its rows.
    width = len(labels) + 1
    places = np.concatenate([group * width + code, group * width + len(labels)])
    places, counts = np.unique(places, return_counts=True)
    of, entries = np.divmod(places, width)
    own_shares = counts / np.bincount(entries, counts)[entries]
    starts = np.searchsorted(of, np.arange(len(sizes) + 1))
    shares = np.zeros((width, folds))
    fold_of_group: np.ndarray = np.empty(len(sizes), np.int16)
    for g in np.lexsort([draw.keys(0, len(sizes)), -sizes]).tolist():
        at = slice(*starts[g : g + 2])
        columns, own = entries[at], own_shares[at]
        fold = int(np.argmin(own @ shares[columns]))
        shares[columns, fold] += own
        fold_of_group[g] = fold
    return fold_of_group[group]


def assign_folds(D: Dataset, folds: int, draw: Draw) -> np.ndarray:
    """Return the number of the fold of each row, (n,) int16.

    Folds keep the groups of rows, unless there are fewer groups than folds.
    """
    fold: np.ndarray = np.empty(D.n, np.int16)
    y = np.zeros(D.n) if D.targets is None else D.labels()
    if D.groups is not None and group_count(D) >= folds:
        return assign_groups(D.groups, y, folds, draw)
    keys = draw.keys(0, D.n)
    # The first fold of a class follows the last fold of the class before.
    first = 0
    for label in distinct(y):
        rows = np.flatnonzero(y == label)
        mixed = rows[np.argsort(keys[rows], kind="stable")]
        fold[mixed] = (np.arange(len(rows)) + first) % folds
        first += len(rows)
    return fold


def kept_values(D: Dataset, decision: Decision, keep: Keep) -> KeptValues:
    """Return what is kept of f of all rows of D.

    Scores are computed from this result, not from parts of it: ranks, shares of classes and
    sigmoids of one shard are not those of a fold.
    """

    def of(shard: Shard) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        parts = [(chunk.y, keep(decision(chunk.X), chunk.y)) for chunk in D.chunks(shard)]
        y, kept = (np.concatenate([part[i] for part in parts]) for i in range(2))
        return y, kept, D.weights_of(shard)

    found = []
    for report in D.map(of):
        emit(Progress("scoring", 0, None, "beat"))
        found.append(report)
    y, kept, weights = zip(*found, strict=True)
    sizes = [len(one) for one in y]
    return KeptValues(
        np.concatenate(y),
        np.concatenate(kept),
        join_weights(list(zip(sizes, weights, strict=True))),
    )


def subset_of(D: Dataset, rows: int | None, seed: int) -> Dataset:
    """Return a random view of this number of rows; None: D."""
    if rows is None or rows >= D.n:
        return D
    some = D.subset(D.mask(D.sample(Draw(seed, SUBSET_DRAW), rows)))
    # Whether rows are copied depends on the data alone: --memory changes no result.
    return some.materialized() if _is_small(some) else some


def rows_of_groups(D: Dataset, groups: int, seed: int) -> int:
    """Return the fewest rows of `subset_of` that have this number of groups."""
    if D.groups is None:
        return groups
    keys = Draw(seed, SUBSET_DRAW).keys(0, D.n)
    order = np.argsort(keys, kind="stable")
    first = np.sort(np.unique(D.groups[order], return_index=True)[1])
    return int(first[min(groups, len(first)) - 1]) + 1


@contextmanager
def replicated(D: Dataset, some: Dataset) -> Iterator[Dataset]:
    """Yield the view `some` of D for concurrent fits on parts of it.

    If the view is small, its executor makes these fits. Otherwise this process makes them, and the
    executor of D scans the rows. In this process, each fit on few rows computes in one thread.
    """
    with D.executor.replicated(some) if _is_small(some) else nullcontext(some) as view:
        executor, few = view.executor, view.n <= SINGLE_THREADED_ROWS
        is_local = isinstance(executor, ThreadExecutor) and executor.concurrent_calls is None
        yield view.single_threaded() if is_local and few else view


def _is_small(D: Dataset) -> bool:
    return max(D.n, D.nnz) <= COPIED_NONZEROS


def run_concurrently(
    tasks: Sequence[Callable[[], Result]],
    at_once: int,
    until: float,
    stage: str,
    patience: Callable[[int, Sequence[float]], float] = lambda left, taken: inf,
) -> Iterator[Result]:
    """Yield the results of the tasks as they complete; no task begins after the moment `until`.

    patience: the seconds that a task may take, from the number of tasks that have not ended and the
    seconds that each of the others took. A task that takes longer ends by the exception Cancelled
    and has no result. The time that a task waits for a free worker does not count.
    """
    ended: list[None] = []
    taken: list[float] = []

    def run(task: Callable[[], Result], cancelled: Event) -> Result:
        begun = latest = 0.0

        def begin() -> None:
            nonlocal begun, latest
            begun = time.perf_counter()
            latest = begun + patience(len(tasks) - len(ended), taken)

        def watch(event: object) -> None:
            if isinstance(event, Queued):
                begin()
            if cancelled.is_set() or time.perf_counter() >= latest:
                raise Cancelled

        begin()
        try:
            if begun >= until:
                raise Cancelled
            # The events of a fit are dropped; the listener only cancels it.
            with listening(watch):
                result = task()
        finally:
            ended.append(None)
        taken.append(time.perf_counter() - begun)
        return result

    calls = [partial(run, task) for task in tasks]
    yield from completed_results(calls, at_once, stage, "fit", until)
