"""Cross-validation and grid search over views of D: no rows are copied.

What is fitted, and how, is a function given. Knows no algorithm.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf, isnan, nan
from typing import Any, Generic, TypeVar

import numpy as np

from randsvm.arrays import Matrix
from randsvm.data.dataset import Dataset, Shard
from randsvm.data.sampling import Draw
from randsvm.errors import ParameterError
from randsvm.events import Notice, Progress, listening, tell
from randsvm.models.metrics import Classified, Counts, Regressed
from randsvm.parameters.run import Search
from randsvm.training.run import Job

P = TypeVar("P")
Result = TypeVar("Result")

# f of rows, (m, K) float64.
Decision = Callable[[Matrix], np.ndarray]
# What is learnt from the rows of a view with these parameters.
Fit = Callable[[Dataset, P], Decision]

# Draw numbers of folds and of the subset: numbers that no other draw of a run ever reaches.
FOLDS_DRAW = 2**63 + 1
SUBSET_DRAW = 2**63 + 2

# How often who waits looks up, in seconds.
HEARTBEAT = 0.1


@dataclass(frozen=True)
class Tried:
    """What one combination of parameters was worth.

    values: of the parameters that the grid varies. configuration: the command line of this
    combination alone, digest: of the data; together they tell a log's line from another's. scores:
    of each fold; score: of all its rows together, of the kind score_name. resumed: known from
    --log. number, of: how many combinations are done.
    """

    values: dict[str, float]
    configuration: str
    digest: str
    scores: list[float]
    score: float
    score_name: str
    rows: int
    number: int
    of: int
    resumed: bool = False
    details: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Searched:
    """All that was tried, best first: the first is trained on all rows."""

    tried: list[Tried]
    seconds: float

    @property
    def facts(self) -> dict[str, str]:
        """What a model's trailer says of it: the score of its parameters, and what was searched."""
        best = self.tried[0]
        return {
            "cross_validation": f"{best.score_name} {best.score!r}",
            **({"searched": str(best.of)} if best.of > 1 else {}),
        }


@dataclass(frozen=True)
class Candidate(Generic[P]):
    values: dict[str, float]
    params: P
    configuration: str


class _Cancelled(Exception):  # noqa: N818 - nobody's error
    """Raised out of a fit that nobody waits for any more."""


@dataclass(frozen=True)
class Crossing(Generic[P]):
    """Cross-validation of machines over D, whose y are places of labels, or targets.

    fold : (n,) number of the part that each row is held out with. fit: see above. at_once: fits
    side by side.
    """

    D: Dataset
    fold: np.ndarray
    fit: Fit[P]
    at_once: int

    @staticmethod
    def of(D: Dataset, folds: int, job: Job, fit: Fit[P]) -> Crossing[P]:
        """Folds of equal size, each class (if y are classes) spread evenly over them."""
        if folds > D.n:
            raise ParameterError(f"-v {folds}: there are only {D.n} rows to cross-validate on")
        fold = folds_of(D, folds, Draw(job.run.seed, FOLDS_DRAW))
        return Crossing(D, fold, fit, job.resources.at_once(D.n))

    @property
    def folds(self) -> range:
        return range(int(self.fold.max()) + 1)

    def fitted(self, params: P, fold: int) -> tuple[Dataset, Decision]:
        """The rows held out, and what was learnt from all others."""
        held = self.D.only(self.fold == fold)
        return held, self.fit(self.D.only(self.fold != fold), params)

    def decisions(self, params: P, until: float) -> np.ndarray | None:
        """f of every row by the machine that has not seen it, (n, K) float64; None: not all were
        done in time."""

        def of(fold: int) -> tuple[int, np.ndarray]:
            held, decision = self.fitted(params, fold)
            return fold, np.concatenate([f for _, f in decided(held, decision)])

        tasks = [lambda fold=fold: of(fold) for fold in self.folds]
        found = dict(_side_by_side(tasks, self.at_once, until, "probabilities"))
        if len(found) < len(self.folds):
            return None
        f = np.empty((self.D.n, found[0].shape[1]))
        for fold, part in found.items():
            f[self.fold == fold] = part
        return f


def folds_of(D: Dataset, folds: int, draw: Draw) -> np.ndarray:
    """The fold of each row, (n,) int16."""
    fold = np.empty(D.n, np.int16)
    keys = draw.keys(0, D.n)
    y = np.zeros(D.n) if D.targets is None else D.labels()
    dealt = 0
    for label in np.unique(y):
        rows = np.flatnonzero(y == label)
        mixed = rows[np.argsort(keys[rows], kind="stable")]
        fold[mixed] = (np.arange(len(rows)) + dealt) % folds
        dealt += len(rows)
    return fold


def decided(D: Dataset, decision: Decision) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """y and f of the rows of D, shard by shard, in order."""

    def of(shard: Shard) -> tuple[np.ndarray, np.ndarray]:
        parts = [(chunk.y, decision(chunk.X)) for chunk in D.chunks(shard)]
        y, f = (np.concatenate([part[i] for part in parts]) for i in range(2))
        return y, f

    for report in D.map(of):
        tell(Progress("scoring", 0, None, "beat"))
        yield report


def searched(
    D: Dataset,
    params: P,
    fit: Fit[P],
    job: Job,
    configuration: Callable[[P], list[str]],
    until: float,
) -> Searched:
    """Cross-validation of every combination in the grid, or of params as they are; what to learn
    from D follows from the first that was tried.

    configuration: the words that make parameters again. until: see `compared`.
    """
    search = job.search
    assert search.folds is not None, "search.resolved() comes first"
    some = subset_of(D, search.subset, job.run.seed)
    crossing = Crossing.of(some, search.folds, job, fit)
    candidates = [
        Candidate(values, own, " ".join(configuration(own)))
        for values, own in search.candidates(params)
    ]
    count = Regressed if params.task == "svr" else Classified  # type: ignore[attr-defined]
    return compared(crossing, candidates, count, search, until)


def compared(
    crossing: Crossing[P],
    candidates: Sequence[Candidate[P]],
    count: Callable[[], Counts],
    known: Search,
    until: float = inf,
) -> Searched:
    """Cross-validate every candidate, those that `known` has excepted; told one by one, and at
    the end best first (of equals the one that comes first in the grid).

    until: the perf_counter() from when on it makes do with what is done, if anything is.
    """
    began = time.perf_counter()
    digest = crossing.D.header.digest
    logged = {
        (line["configuration"], line["digest"]): {name: _with_nan(line[name]) for name in RESULT}
        for line in known.tried
        if _whole(line)
    }
    tried: dict[int, Tried] = {}
    parts: dict[int, dict[int, Counts]] = {}

    def note(place: int, **found: Any) -> None:
        candidate, done = candidates[place], len(tried) + 1
        tried[place] = Tried(
            candidate.values,
            candidate.configuration,
            digest,
            number=done,
            of=len(candidates),
            **found,
        )
        tell(tried[place])

    def scored(place: int, fold: int) -> tuple[int, int, Counts]:
        held, decision = crossing.fitted(candidates[place].params, fold)
        counts = count()
        for y, f in decided(held, decision):
            counts.add(y, f[:, 0] if f.shape[1] == 1 else f)
        return place, fold, counts

    open_: list[int] = []
    for place, candidate in enumerate(candidates):
        result = logged.get((candidate.configuration, digest))
        if result is None:
            open_.append(place)
        else:
            note(place, resumed=True, **result)
    tasks = [
        lambda place=place, fold=fold: scored(place, fold)
        for place in open_
        for fold in crossing.folds
    ]
    # The folds of several candidates are under way at once: one of them has to be whole.
    done = _side_by_side(
        tasks, crossing.at_once, until, "cross-validation", enough=lambda: bool(tried)
    )
    for place, fold, counts in done:
        mine = parts.setdefault(place, {})
        mine[fold] = counts
        if len(mine) == len(crossing.folds):
            folds = [mine[fold] for fold in crossing.folds]
            whole = sum(folds[1:], folds[0])
            note(
                place,
                scores=[part.score for part in folds],
                score=whole.score,
                score_name=whole.score_name,
                rows=whole.labelled,
                details=whole.details,
            )
    if len(tried) < len(candidates):
        tell(
            Notice(f"no time for {len(candidates) - len(tried)} of {len(candidates)} combinations")
        )
    sign = count().sign
    order = sorted(
        tried, key=lambda place: (isnan(tried[place].score), -sign * tried[place].score, place)
    )
    found = Searched([tried[place] for place in order], time.perf_counter() - began)
    tell(found)
    return found


# What a log's line says of a combination besides which it is.
RESULT = ("scores", "score", "score_name", "rows", "details")


def _whole(line: Mapping[str, Any]) -> bool:
    """Whether a line of a log holds a result: anyone may have written to it."""
    if not {"configuration", "digest", *RESULT} <= line.keys():
        return False
    scores, details = line["scores"], line["details"]
    if not (isinstance(scores, list) and scores and isinstance(details, dict)):
        return False
    numbers = [*scores, line["score"], line["rows"]]
    numbers += [value for value in details.values() if value is not None]
    words = line["configuration"], line["digest"], line["score_name"]
    return all(type(one) in (int, float) for one in numbers) and all(
        isinstance(word, str) for word in words
    )


def _with_nan(value: Any) -> Any:
    """What JSON has null for."""
    if isinstance(value, dict):
        return {name: _with_nan(one) for name, one in value.items()}
    return nan if value is None else value


def subset_of(D: Dataset, rows: int | None, seed: int) -> Dataset:
    """A view of so many rows, drawn at random; None: D."""
    if rows is None or rows >= D.n:
        return D
    return D.only(D.rows(D.sample(Draw(seed, SUBSET_DRAW), rows)))


def _side_by_side(
    tasks: Sequence[Callable[[], Result]],
    at_once: int,
    until: float,
    stage: str,
    enough: Callable[[], bool] = lambda: True,
) -> Iterator[Result]:
    """Results of the tasks as they come, several at a time; those not done by `until` are left,
    once what has come is `enough`."""
    cancelled = False

    def watch(event: object) -> None:
        if cancelled:
            raise _Cancelled

    @contextmanager
    def pool() -> Iterator[ThreadPoolExecutor]:
        nonlocal cancelled
        made = ThreadPoolExecutor(at_once, thread_name_prefix="fold")
        try:
            yield made
        finally:
            cancelled = True
            made.shutdown(wait=False, cancel_futures=True)

    def run(task: Callable[[], Result]) -> Result:
        # What a fit has to say is nobody's business but that it is to end.
        with listening(watch):
            return task()

    with pool() as workers:
        waiting: set[Future[Result]] = {workers.submit(run, task) for task in tasks}
        done = 0
        while waiting:
            ended, waiting = wait(waiting, HEARTBEAT, FIRST_COMPLETED)
            for future in ended:
                yield future.result()
            done += len(ended)
            tell(Progress(stage, done, len(tasks), "fit"))
            if time.perf_counter() >= until and enough():
                return
