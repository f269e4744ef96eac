"""Cross-validation: folds, fits side by side, decision values of held-out rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from math import inf
from threading import Event
from typing import Generic, TypeVar

import numpy as np

from randsvm.data.dataset import Dataset, Shard
from randsvm.data.sampling import Draw
from randsvm.errors import ParameterError
from randsvm.events import Progress, Queued, emit, listening
from randsvm.parallel import Cancelled, completed_results
from randsvm.training.clock import TimeLimitError
from randsvm.training.job import Decision, Fit, Job, P

Result = TypeVar("Result")
# What is kept of f, (m, columns), of rows with y, (m,).
Keep = Callable[[np.ndarray, np.ndarray], np.ndarray]

# Draw numbers of folds and of the subset: numbers that no other draw of a run ever reaches.
FOLDS_DRAW = 2**63 + 1
SUBSET_DRAW = 2**63 + 2


# Rows of so many nonzeros at the most (16 MB) are copied out of others, and sent to each worker.
COPIED_NONZEROS = 1 << 21


@dataclass(frozen=True)
class CrossValidation(Generic[P]):
    """Folds of D, whose y are class indices, or targets.

    fold : (n,) number of the part that each row is held out with. at_once: fits side by side, each
    done where the home of D does what it is called for.
    """

    D: Dataset
    fold: np.ndarray
    fit: Fit[P]
    at_once: int

    @staticmethod
    def of(D: Dataset, folds: int, job: Job, fit: Fit[P]) -> CrossValidation[P]:
        """Folds of equal size, each class (if y are classes) spread evenly over them."""
        if folds > D.n:
            raise ParameterError(f"-v {folds}: there are only {D.n} rows to cross-validate on")
        fold = folds_of(D, folds, Draw(job.run.seed, FOLDS_DRAW))
        return CrossValidation(D, fold, fit, at_once(D, job))

    @property
    def folds(self) -> range:
        return range(int(self.fold.max()) + 1)

    def done(self, work: Callable[[Held[P]], Result], params: P, fold: int) -> Result:
        """work(what is held out)."""
        held, rest = self.D.subset(self.fold == fold), self.D.subset(self.fold != fold)
        return self.D.executor.call(partial(work, Held(held, rest, self.fit, params)))

    def decisions(
        self, params: P, until: float, keep: Keep, folds: Sequence[int] | None = None
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """Return which rows were held out, (n,) bool, and what is kept of their f as learnt without
        them, (m, K) float64: those of the folds that were done in time; None: none was. folds:
        None: all."""

        def of(fold: int) -> tuple[int, np.ndarray | None]:
            return fold, self.done(partial(in_time, keep), params, fold)

        tasks = [partial(of, fold) for fold in folds or self.folds]
        done = side_by_side(tasks, self.at_once, until, "probabilities")
        found = {fold: f for fold, f in done if f is not None}
        if not found:
            return None
        f = np.empty((self.D.n, next(iter(found.values())).shape[1]))
        held = np.isin(self.fold, list(found))
        for fold in list(found):
            f[self.fold == fold] = found.pop(fold)
        return held, f if held.all() else f[held]


@dataclass(frozen=True)
class Held(Generic[P]):
    """A fold. held: the rows that it holds out; rest: all others."""

    held: Dataset
    rest: Dataset
    fit: Fit[P]
    params: P

    def values(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """y and f of the rows held out, shard by shard, as learnt from the others."""
        return decision_values(self.held, self.fit(self.rest, self.params))


def in_time(keep: Keep, fold: Held[P]) -> np.ndarray | None:
    """Return what is kept of f of the rows held out; None: there was no time to learn it."""
    try:
        return np.concatenate([keep(f, y) for y, f in fold.values()])
    except TimeLimitError:
        return None


def at_once(D: Dataset, job: Job) -> int:
    """How many fits on parts of D go side by side."""
    return D.executor.concurrent_calls or job.resources.at_once(D.n)


def folds_of(D: Dataset, folds: int, draw: Draw) -> np.ndarray:
    """The fold of each row, (n,) int16."""
    fold = np.empty(D.n, np.int16)
    keys = draw.keys(0, D.n)
    y = np.zeros(D.n) if D.targets is None else D.labels()
    chunk_groups = 0
    for label in np.unique(y):
        rows = np.flatnonzero(y == label)
        mixed = rows[np.argsort(keys[rows], kind="stable")]
        fold[mixed] = (np.arange(len(rows)) + chunk_groups) % folds
        chunk_groups += len(rows)
    return fold


def decision_values(D: Dataset, decision: Decision) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """y and f of the rows of D, shard by shard, in order."""

    def of(shard: Shard) -> tuple[np.ndarray, np.ndarray]:
        parts = [(chunk.y, decision(chunk.X)) for chunk in D.chunks(shard)]
        y, f = (np.concatenate([part[i] for part in parts]) for i in range(2))
        return y, f

    for report in D.map(of):
        emit(Progress("scoring", 0, None, "beat"))
        yield report


def subset_of(D: Dataset, rows: int | None, seed: int) -> Dataset:
    """A view of so many rows, drawn at random; None: D."""
    if rows is None or rows >= D.n:
        return D
    some = D.subset(D.mask(D.sample(Draw(seed, SUBSET_DRAW), rows)))
    # What is copied follows from the data alone: a memory bound changes no result.
    return some.materialized() if _is_small(some) else some


def replicated(D: Dataset, some: Dataset) -> AbstractContextManager[Dataset]:
    """some: a view of D. Within the block, if it is small, its home does the fits on parts of it;
    parts of a larger one are learnt here, with D's home for their scans."""
    return D.executor.replicated(some) if _is_small(some) else nullcontext(some)


def _is_small(D: Dataset) -> bool:
    return max(D.n, D.nnz) <= COPIED_NONZEROS


def side_by_side(
    tasks: Sequence[Callable[[], Result]],
    at_once: int,
    until: float,
    stage: str,
    patience: Callable[[int, Sequence[float]], float] = lambda left, taken: inf,
) -> Iterator[Result]:
    """Yield the results of the tasks as they complete; no task goes on after the time `until`.

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
            # A fit reports nothing; the listener only cancels it.
            with listening(watch):
                result = task()
        finally:
            ended.append(None)
        taken.append(time.perf_counter() - begun)
        return result

    calls = [partial(run, task) for task in tasks]
    yield from completed_results(calls, at_once, stage, "fit", until)
