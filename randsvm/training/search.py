"""Search: choose the combinations of parameters to cross-validate, and compare their scores.

Combinations of given values are tried on all rows; one that proves worse on the first folds is
dropped. Under a time limit, or if a range is searched, stages on few rows show which deserve more
rows.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from math import ceil, inf, isnan, nan, sqrt
from threading import Lock
from typing import Any, Generic, TypeAlias

import numpy as np

from randsvm.data.dataset import Dataset
from randsvm.errors import ClusterError, Interrupted
from randsvm.events import PERCENT_SCORES, Notice, Searched, Tried, emit
from randsvm.models import decisions
from randsvm.models.decisions import class_pairs
from randsvm.parallel import Cancelled
from randsvm.parameters.svm import KernelParams, class_weights, side_weights
from randsvm.svm.libsvm import TrainedSvm
from randsvm.svm.shared_kernel import SharedKernel, shares_kernel
from randsvm.training.cross_validation import (
    CrossValidation,
    FoldScore,
    KeptValues,
    criterion_of,
    held_out_values,
    mean_and_error,
    replicated,
    rows_of_groups,
    run_concurrently,
    significantly_worse,
    simplest_within_error,
    subset_of,
)
from randsvm.training.job import AnyParams, Fit, Job, Keep, SearchFit
from randsvm.training.subtasks import Subtasks


class ColdFit(Generic[AnyParams]):
    """Fits that start from nothing. train: trains on the rows of a view; returns f."""

    starts_from_fits = False

    def __init__(self, train: Fit[AnyParams]) -> None:
        self.train = train

    def suits(self, D: Dataset, candidates: Sequence[AnyParams]) -> bool:
        """Return True."""
        return True

    def fit(
        self,
        D: Dataset,
        params: AnyParams,
        start: Any,
        training: np.ndarray,
        held_out: np.ndarray,
        keep: Keep,
    ) -> tuple[np.ndarray, None]:
        """Train on some rows of D from nothing; see SearchFit.fit."""
        held, rest = D.subset(held_out), D.subset(training)
        work = partial(held_out_values, self.train, params, rest, held, keep)
        return D.executor.call(work).kept, None

    def close(self) -> None:
        """Do nothing."""


class SharedKernelFit:
    """Fits on few rows, which share the kernel values of all pairs of rows.

    The values are computed once for all folds and all values of C. LIBSVM solves each fold at once.

    subtasks_of: returns the subtasks of rows with some parameters
    max_bytes: of the kernel values in memory; the values of one kernel always are
    """

    starts_from_fits = False

    def __init__(
        self, subtasks_of: Callable[[Dataset, KernelParams], Subtasks], max_bytes: int
    ) -> None:
        self.subtasks_of, self.max_bytes = subtasks_of, max_bytes
        # The kernels that were used last come last.
        self._kernels: OrderedDict[KernelParams, SharedKernel] = OrderedDict()
        self._lock = Lock()

    def close(self) -> None:
        """Free the kernel values."""
        self._kernels.clear()

    def suits(self, D: Dataset, candidates: Sequence[KernelParams]) -> bool:
        """Return whether LIBSVM solves parts of D at once with shared kernel values."""
        first = candidates[0]
        if first.task not in ("svc", "svr") or first.components or D.summary.weighted:
            return False
        return all(shares_kernel(D, self.subtasks_of(D, one).problem) for one in candidates)

    def fit(
        self,
        D: Dataset,
        params: KernelParams,
        start: Any,
        training: np.ndarray,
        held_out: np.ndarray,
        keep: Keep,
    ) -> tuple[np.ndarray, None]:
        """Train on some rows of D; see SearchFit.fit."""
        rows = np.flatnonzero(training), np.flatnonzero(held_out)
        f = self._values(D, self.subtasks_of(D, params), *rows)
        return keep(f, D.labels()[rows[1]]), None

    def _values(
        self, D: Dataset, subtasks: Subtasks, training: np.ndarray, held_out: np.ndarray
    ) -> np.ndarray:
        """Return f of rows that are held out, (m, columns) float64.

        training, held_out : numbers of rows of D, int64
        """
        kernel, y, params = self._kernel(D, subtasks), D.labels(), subtasks.params
        if params.prediction_type == "svr":
            machine = kernel.regress(
                training, y[training], params.C, params.epsilon, params.tolerance
            )
            return np.asarray(kernel.sums(machine, held_out)[0] - machine.rho)
        labels, sums = subtasks.labels, subtasks.weight_sums
        classes = y[training].astype(np.int64)
        if len(labels) > 2 and not subtasks.pairs:
            columns = []
            for k in range(len(labels)):
                sides = np.where(classes == k, 0, 1)
                bounds = side_weights(params.weights, labels, sums, k, None)
                columns.append(_shared_pairs(kernel, params, training, sides, bounds, held_out))
            return np.hstack(columns)
        weights = class_weights(params.weights, labels, sums)
        return _shared_pairs(kernel, params, training, classes, weights, held_out)

    def _kernel(self, D: Dataset, subtasks: Subtasks) -> SharedKernel:
        """Return the kernel values of all rows; the first caller computes them."""
        key = replace(subtasks.params, C=1.0, epsilon=0.0, weights=())
        with self._lock:
            if key not in self._kernels:
                self._kernels[key] = SharedKernel.of(D, subtasks.problem)
            self._kernels.move_to_end(key)
            while len(self._kernels) > 1 and self._size > self.max_bytes:
                self._kernels.popitem(last=False)
            return self._kernels[key]

    @property
    def _size(self) -> int:
        return sum(one.nbytes for one in self._kernels.values())


def _shared_pairs(
    kernel: SharedKernel,
    params: KernelParams,
    training: np.ndarray,
    classes: np.ndarray,
    weights: Sequence[float],
    held_out: np.ndarray,
) -> np.ndarray:
    """Return f of each pair of classes, (m, pairs) float64; classes : (n,) int64."""
    count = len(weights)
    present = np.bincount(classes, minlength=count) > 0
    # A pair without a machine predicts its first class if that has rows, else its second.
    constant = np.where(present[class_pairs(count)[0]], 1.0, -1.0)
    f = np.tile(constant, (len(held_out), 1))
    if np.count_nonzero(present) < 2:
        return f
    machine = kernel.classify(training, classes, params.C, weights, params.tolerance)
    _fill_in(f, machine, kernel.sums(machine, held_out), count)
    return f


def _fill_in(f: np.ndarray, machine: TrainedSvm, sums: np.ndarray, count: int) -> None:
    """Set the columns of f of the pairs that the machine knows."""
    labels = machine.labels
    first, second = class_pairs(len(labels))
    for pair, (i, j) in enumerate(zip(first.tolist(), second.tolist(), strict=True)):
        values = sums[i][:, j - 1] + sums[j][:, i] - machine.rho[pair]
        own, other = labels[i], labels[j]
        sign = 1 if own < other else -1
        column = decisions.pair_index(min(own, other), max(own, other), count)
        f[:, column] = sign * values


# The fewest rows of the first stage: for each fold, for each class; in all under a time limit
# (MIN_ROWS), and if a range is searched (COARSE_ROWS).
MIN_FOLD_ROWS, MIN_CLASS_ROWS = 10, 20
MIN_ROWS, COARSE_ROWS = 200, 500
# Each stage has this many times the rows of the one before, and this part of its combinations.
ROW_GROWTH, KEPT_PART, MIN_KEPT = 4, 1 / 4, 2
# No combination is dropped if the next stage with all of them takes at most this part of the time.
AMPLE_TIME = 1 / 4
# Factors of the grids around the best of a range. The first grid is tried on ROW_GROWTH times the
# rows of the first stage, each other on ROW_GROWTH times the rows of the one before.
FINER_FACTORS = (2.0, sqrt(2.0))

# Under a time limit, the fits of a chain are given up after this part of the time that is left.
MAX_TIME_PART = 1 / 8
# The seconds of a fit grow at most as this power of the rows.
COST_POWER = 1.5

# The most decision values of all candidates of a race in memory, 8 bytes each, and 8 for each loss
# of a row. This does not depend on --memory, which changes no result.
MAX_RACING_VALUES = 1 << 24
# A race fits two folds at a time if one fold has fewer chains than this. Combinations that a test
# between the two would drop are then fitted for one more fold.
MIN_CHAINS = 6

Key = tuple[tuple[str, float], ...]
# The fits of one fold: indices of candidates that differ in C alone, ascending, and the fold. Each
# fit after the first starts from the one before.
Chain = tuple[Sequence[int], int]


@dataclass(frozen=True)
class Candidate(Generic[AnyParams]):
    """A combination of parameters; values: of those that the grid varies."""

    values: dict[str, float]
    params: AnyParams

    @property
    def key(self) -> Key:
        return tuple(self.values.items())


# The combinations to compare, and the number of rows.
Stage: TypeAlias = "tuple[Sequence[Candidate[AnyParams]], int]"


def search(
    D: Dataset,
    params: AnyParams,
    fit: Fit[AnyParams],
    job: Job,
    configuration: Callable[[AnyParams, Job], list[str]],
    until: float,
    search_fits: Sequence[SearchFit[AnyParams]] = (),
) -> tuple[Searched | None, AnyParams]:
    """Cross-validate every combination of the grid; return the results and the best parameters.

    Without a grid, the parameters alone are cross-validated. The first result is of the best
    combination. No results (None): there was no time for any; the first combination is returned.

    configuration: returns the words that make parameters and a job
    until: the moment when the search ends with the results so far
    search_fits: fits that share work; the first that suits the rows and parameters is used, or
    `fit`, which trains each from nothing
    """
    began, options = time.perf_counter(), job.search
    scores = CandidateScores(D, params, job, configuration, [*search_fits, ColdFit(fit)], until)
    candidates = _candidates(options.candidates(params))
    try:
        run_stages(scores, params, candidates, min(options.subset or D.n, D.n))
    except (Interrupted, ClusterError) as error:
        scores.emit_unfinished()
        error.args = (f"{error}: no model was written; {scores.best_so_far()}",)
        raise
    if not scores.results:
        first = "" if len(candidates) == 1 else ": the first combination is taken"
        emit(Notice(f"no time for cross-validation{first}"))
        return None, candidates[0].params
    ranked = scores.ranked
    simplest = simplest_within_error(ranked, scores.criterion.sign)
    found = Searched(ranked, time.perf_counter() - began, len(scores.candidates), simplest)
    emit(found)
    if len(ranked) > 1 and len({one.score for one in ranked}) == 1:
        emit(Notice(f"all {len(ranked):,} scores are equal: they do not show which one is best"))
    return found, replace(params, **ranked[0].values)  # type: ignore[arg-type]


# --- stages ----------------------------------------------------------------------------------


def run_stages(
    scores: CandidateScores[AnyParams],
    params: AnyParams,
    candidates: Sequence[Candidate[AnyParams]],
    most: int,
) -> None:
    """Score candidates in stages of more and more rows, as far as there is time for them."""
    for some, rows in stages(scores, params, candidates, most):
        if scores.results and scores.expected_seconds(len(some), rows) > scores.seconds_left:
            emit(Notice(f"no time to cross-validate on {rows:,} of {most:,} rows"))
            return
        if not scores.stage(some, rows):
            return


def stages(
    scores: CandidateScores[AnyParams],
    params: AnyParams,
    candidates: Sequence[Candidate[AnyParams]],
    most: int,
) -> Iterator[Stage[AnyParams]]:
    """Yield the stages of a search; the next one follows from the scores of those before.

    A list of values has one, on `most` rows. Under a time limit, a list is tried on few rows, and
    then on all rows if that takes a small part of the time left; otherwise the best KEPT_PART is
    tried on ROW_GROWTH times the rows, and so on: Jamieson, Talwalkar, "Non-stochastic Best Arm
    Identification and Hyperparameter Optimization", AISTATS 2016. A range is tried on few rows, its
    best part on more, then grids around the best.
    """
    is_range = bool(scores.job.search.refined_fields)
    if not is_range and scores.until == inf:
        yield candidates, most
        return
    rows = first_rows(scores, COARSE_ROWS if is_range else MIN_ROWS, most)
    yield candidates, rows
    if is_range:
        yield scores.best_part(candidates), min(ROW_GROWTH * rows, most)
        for power, factor in enumerate(FINER_FACTORS, 1):
            around = scores.ranked[0].values
            near = scores.job.search.refined_candidates(params, around, factor)
            yield _candidates(near), min(ROW_GROWTH**power * rows, most)
        return
    while rows < most:
        # If the results of the stage come from a log, the time that fits take is unknown.
        seconds = scores.expected_seconds(len(candidates), most) or inf
        if seconds <= AMPLE_TIME * scores.seconds_left:
            rows = most
        else:
            candidates, rows = scores.best_part(candidates), min(ROW_GROWTH * rows, most)
        yield candidates, rows


def first_rows(scores: CandidateScores[AnyParams], least: int, most: int) -> int:
    """Return the rows of the first stage: enough for each fold and each class."""
    D, job = scores.D, scores.job
    classes, folds = len(D.summary.labels), job.search.fold_count
    groups = rows_of_groups(D, folds, job.data_params.seed)
    return min(max(least, MIN_FOLD_ROWS * folds, MIN_CLASS_ROWS * classes, groups), most)


def _candidates(
    combinations: Sequence[tuple[dict[str, float], AnyParams]],
) -> list[Candidate[AnyParams]]:
    return [Candidate(values, params) for values, params in combinations]


# --- scores ----------------------------------------------------------------------------------


class CandidateScores(Generic[AnyParams]):
    """The scores of combinations, each on the largest number of rows that it was tried on.

    configuration: returns the words that make parameters and a job
    search_fits: ways to fit, the preferred one first; the last suits all rows and parameters
    until: the moment when the search ends with the results so far
    logged: results of earlier searches, by configuration and digest of the data
    candidates: all combinations so far, in the order of the grid
    results: rows and result of each combination that was tried
    candidate_seconds: the seconds per candidate in the last timed stage; 0 if none was timed
    timed_rows: the rows of that stage
    """

    def __init__(
        self,
        D: Dataset,
        params: AnyParams,
        job: Job,
        configuration: Callable[[AnyParams, Job], list[str]],
        search_fits: Sequence[SearchFit[AnyParams]],
        until: float = inf,
    ) -> None:
        self.D, self.job, self.configuration = D, job, configuration
        self.search_fits, self.until = search_fits, until
        self.criterion = criterion_of(job.search, params, D.summary.labels)
        # The number of folds of all repetitions.
        self.folds = job.search.fold_count * job.search.repeats
        self.logged = {
            (line["configuration"], line["digest"]): line
            for line in job.search.earlier()
            if _is_complete(line)
        }
        self.candidates: dict[Key, Candidate[AnyParams]] = {}
        self.results: dict[Key, tuple[int, Tried]] = {}
        self.candidate_seconds, self.timed_rows = 0.0, 1
        # The candidates of the stage that is under way, its rows, and the scores of those that are
        # not finished, by index and fold.
        self.underway: Stage[AnyParams] = (), 0
        self.parts: dict[int, dict[int, FoldScore]] = {}

    @property
    def seconds_left(self) -> float:
        return self.until - time.perf_counter()

    def stage(self, candidates: Sequence[Candidate[AnyParams]], rows: int) -> bool:
        """Cross-validate on a random subset of this number of rows.

        Returns whether enough were scored in time: more than half of them, except in the first
        stage. Otherwise the scores are discarded.
        """
        self.candidates |= {one.key: one for one in candidates}
        before, began = dict(self.results), time.perf_counter()
        missing = [one for one in candidates if before.get(one.key, (0,))[0] != rows]
        done = 0
        for done, (one, resumed, result) in enumerate(self._results(missing, rows), 1):
            place = {"number": done, "of": len(missing), "resumed": resumed}
            self._emit_tried(one, rows, {**place, **result})
        if done < len(missing):
            where = "" if rows == self.D.n else f" on {rows:,} rows"
            of = f"{len(missing) - done} of {len(candidates)} combinations"
            emit(Notice(f"no time for {of}{where}"))
        if done and self.until < inf:
            self.candidate_seconds = (time.perf_counter() - began) / done
            self.timed_rows = rows
        is_enough = not before or 2 * (len(candidates) - len(missing) + done) > len(candidates)
        if not is_enough:
            self.results = before
        return is_enough and bool(self.results)

    def _of_stage(
        self, candidates: Sequence[Candidate[AnyParams]], rows: int
    ) -> list[Candidate[AnyParams]]:
        """Return those of the candidates that were scored on this number of rows, best first."""
        own = {one.key for one in candidates}
        best = (key for key in self._best_first if self.results[key][0] == rows and key in own)
        return [self.candidates[key] for key in best]

    def best_part(
        self, candidates: Sequence[Candidate[AnyParams]]
    ) -> Sequence[Candidate[AnyParams]]:
        """Return the best KEPT_PART of the candidates of the last stage.

        Ties with the last of them are kept, too, up to half of all.
        """
        rows = max(self.results[one.key][0] for one in candidates if one.key in self.results)
        best_first = self._of_stage(candidates, rows)
        count = max(MIN_KEPT, ceil(KEPT_PART * len(best_first)))
        scores = [self.results[one.key][1].score for one in best_first]
        ties = scores[count : len(scores) // 2]
        equals = ties.count(scores[count - 1]) if count < len(scores) else 0
        return best_first[: count + equals]

    def expected_seconds(self, count: int, rows: int) -> float:
        """Return the seconds that a stage of `count` candidates on `rows` rows takes."""
        return self.candidate_seconds * count * (rows / self.timed_rows) ** COST_POWER

    @property
    def ranked(self) -> list[Tried]:
        """The result of each combination, best first; those tried on fewer rows come last."""
        return [self.results[key][1] for key in self._best_first]

    @property
    def _best_first(self) -> list[Key]:
        """The combinations that were tried, best first; equals in the order of the grid."""

        def rank(key: Key) -> tuple[int, bool, bool, float]:
            rows, one = self.results[key]
            score = -self.criterion.sign * one.score
            return -rows, one.dropped_after is not None, isnan(score), score

        return sorted((key for key in self.candidates if key in self.results), key=rank)

    # --- results -----------------------------------------------------------------------------

    def _results(
        self, candidates: Sequence[Candidate[AnyParams]], rows: int
    ) -> Iterator[tuple[Candidate[AnyParams], bool, dict[str, Any]]]:
        """Yield candidates as they are scored, those of the log first.

        With each: whether the log has the result, and the values of RESULT_FIELDS and DROPPED.
        """
        if not candidates:
            return
        with self._folds(candidates, rows) as folds:
            lines = self._known_lines(candidates, rows)
            # A family is taken from the log only as a whole, since its fits start from each other.
            # So scores do not depend on what the log has.
            known = [family for family in folds.families if all(lines[i] for i in family)]
            for index in sorted(index for family in known for index in family):
                line = lines[index] or {}
                result = {name: _with_nan(line[name]) for name in RESULT_FIELDS}
                yield candidates[index], True, {**result, DROPPED: line.get(DROPPED)}
            unknown = [family for family in folds.families if family not in known]
            self.underway, self.parts = (candidates, rows), {}
            for index, scores in folds.scored(unknown, self.parts):
                result = self.criterion.of_folds(scores)
                result[DROPPED] = len(scores) if len(scores) < self.folds else None
                yield candidates[index], False, result
        self.parts = {}

    def _emit_tried(self, one: Candidate[AnyParams], rows: int, result: Mapping[str, Any]) -> Tried:
        """Emit and return the result of a candidate on this number of rows."""
        mean, error = mean_and_error(result["scores"], self.job.search.fold_count)
        tried = Tried(
            values=one.values,
            configuration=self._configuration(one, rows),
            digest=self.D.summary.digest,
            mean=mean,
            standard_error=error,
            **result,
        )
        self.results[one.key] = rows, tried
        try:
            emit(tried)
        except Interrupted:
            emit(tried)  # a signal is raised once, before the listener has the event
            raise
        return tried

    def emit_unfinished(self) -> None:
        """Emit the results of candidates that an interruption leaves with some of their folds."""
        candidates, rows = self.underway
        number = sum(own == rows for own, _ in self.results.values())
        for index in sorted(self.parts):
            part = self.parts[index]
            done = list(takewhile(part.__contains__, range(self.folds)))
            if not done:
                continue
            number += 1
            result = self.criterion.of_folds([part[fold] for fold in done])
            result[INTERRUPTED] = len(done) if len(done) < self.folds else None
            place = {"number": number, "of": len(candidates), "resumed": False}
            self._emit_tried(candidates[index], rows, {**place, **result})

    def best_so_far(self) -> str:
        """Return the words that name the best combination of an interrupted search."""
        sign = self.criterion.sign

        def rank(found: tuple[int, Tried]) -> tuple[int, bool, bool, float]:
            rows, one = found
            score = -inf if isnan(one.score) else sign * one.score
            return rows, one.dropped_after is None, one.interrupted_after is None, score

        if not self.results:
            return "no combination has a score"
        best = max(self.results.values(), key=rank)[1]
        unit = "%" if best.score_name in PERCENT_SCORES else ""
        words = f"{best.score_name} {best.score:.6g}{unit}"
        if best.interrupted_after is not None:
            words += f" after {best.interrupted_after} of {self.folds} folds"
        if not best.values:
            return f"its cross-validation has the {words}"
        values = ", ".join(f"{name.rstrip('_')} {value:g}" for name, value in best.values.items())
        return f"the best combination so far is {values}: {words}"

    def _known_lines(
        self, candidates: Sequence[Candidate[AnyParams]], rows: int
    ) -> list[Mapping[str, Any] | None]:
        """Return the line of the log for each candidate, or None.

        The line of a dropped candidate is used only if another candidate is better on the same
        folds. The line of an interrupted candidate only serves this comparison.
        """
        digest, sign = self.D.summary.digest, self.criterion.sign
        lines = [self.logged.get((self._configuration(one, rows), digest)) for one in candidates]
        scored = [line["scores"] for line in lines if line and line.get(DROPPED) is None]
        races = not self.job.search.no_racing

        def is_usable(line: Mapping[str, Any]) -> bool:
            if line.get(DROPPED) is None:
                return line.get(INTERRUPTED) is None
            count, own = len(line["scores"]), sign * float(np.mean(line["scores"]))
            return races and any(
                len(one) >= count and own < sign * float(np.mean(one[:count])) for one in scored
            )

        return [line if line and is_usable(line) else None for line in lines]

    def _configuration(self, one: Candidate[AnyParams], rows: int) -> str:
        """Return the command line that tries this combination alone on `rows` rows."""
        job = replace(self.job, search=replace(self.job.search, no_racing=False))
        if rows < self.D.n:
            job = replace(job, search=replace(job.search, subset=rows))
        return " ".join(self.configuration(one.params, job))

    # --- fits --------------------------------------------------------------------------------

    @contextmanager
    def _folds(
        self, candidates: Sequence[Candidate[AnyParams]], rows: int
    ) -> Iterator[SearchFolds[AnyParams]]:
        """Return the fits of candidates on this number of rows."""
        with replicated(self.D, subset_of(self.D, rows, self.job.data_params.seed)) as some:
            params = [one.params for one in candidates]
            fits = next(one for one in self.search_fits if one.suits(some, params))
            try:
                yield SearchFolds(self, params, CrossValidation.of_search(some, self.job), fits)
            finally:
                fits.close()


# --- folds -----------------------------------------------------------------------------------


class SearchFolds(Generic[AnyParams]):
    """The fits of all folds of the candidates of a stage, in chains.

    A family is all candidates that differ in C alone; without starts from other fits, each
    candidate is one. A chain is a family on one fold: the smallest C starts from its fit for the
    first fold, and each other C from the next smaller one. Rows in the order of time make the first
    fold too small to start from.

    first_fits: the fits for the first fold from which others start
    late: the candidates that took too long
    """

    def __init__(
        self,
        scores: CandidateScores[AnyParams],
        candidates: Sequence[AnyParams],
        validation: CrossValidation,
        fits: SearchFit[AnyParams],
    ) -> None:
        self.scores, self.candidates = scores, candidates
        self.validation, self.fits = validation, fits
        self.families = families_of(candidates, fits.starts_from_fits)
        self.first_fits: dict[int, Any] = {}
        self.late: set[int] = set()

    @property
    def races(self) -> bool:
        """Whether candidates that prove worse on the first folds are dropped.

        There is no race under a time limit or in a range: stages on few rows drop candidates there.
        """
        options, D = self.scores.job.search, self.validation.D
        if options.no_racing or options.refined_fields or self.scores.until < inf:
            return False
        # A race keeps the first fit of each candidate; without one, few are kept at a time.
        values = len(self.candidates) * D.n * max(len(D.summary.labels) - 1, 1)
        return len(self.candidates) > 1 and values <= MAX_RACING_VALUES

    def scored(
        self, families: Sequence[Sequence[int]], parts: dict[int, dict[int, FoldScore]]
    ) -> Iterator[tuple[int, list[FoldScore]]]:
        """Yield the candidates of some families as they are done, and their scores.

        A race goes fold by fold; after each, or each two, it drops the candidates that are
        significantly worse than the best one. Otherwise few families are scored at a time, so that
        some are done if the time is over or a signal comes.

        parts: receives the scores of those that are not done, by fold
        """
        every = len(self.validation.folds)
        some = len(families) if self.races else self.validation.concurrent_fits
        for at in range(0, len(families), some):
            together = families[at : at + some]
            parts |= {index: {} for index in sorted(index for one in together for index in one)}
            left = list(self.validation.folds)
            while left and parts:
                folds, left = self._next_folds(together, parts, left)
                chains = [
                    (chain, fold)
                    for fold in folds
                    for family in together
                    if (chain := [index for index in family if index in parts])
                ]
                for index, fold, score in self._run(chains):
                    parts[index][fold] = score
                for index in self._worse(parts) if self.races and left else ():
                    yield self._done(index, parts)
            for index in list(parts):
                found = self._done(index, parts)
                if len(found[1]) == every:
                    yield found

    def _next_folds(
        self, families: Sequence[Sequence[int]], parts: Mapping[int, Any], left: Sequence[int]
    ) -> tuple[Sequence[int], list[int]]:
        """Return the folds to fit now, and those that remain."""
        count = 1
        if left[0] != self.validation.folds[0]:
            alive = sum(any(index in parts for index in family) for family in families)
            count = len(left) if not self.races else 2 if alive < MIN_CHAINS else 1
        return left[:count], list(left[count:])

    def _worse(self, parts: Mapping[int, Mapping[int, FoldScore]]) -> list[int]:
        losses = {
            index: np.concatenate([own[fold].losses for fold in sorted(own)])
            for index, own in parts.items()
        }
        return significantly_worse(losses, self.validation.D.n)

    def _done(
        self, index: int, parts: dict[int, dict[int, FoldScore]]
    ) -> tuple[int, list[FoldScore]]:
        """Return a candidate that needs no more folds, and its scores."""
        folds = parts.pop(index)
        self.first_fits.pop(index, None)
        return index, [folds[fold] for fold in sorted(folds)]

    def _run(self, chains: Sequence[Chain]) -> Iterator[tuple[int, int, FoldScore]]:
        """Run chains side by side, and yield their scores as they complete."""
        validation = self.validation
        calls = [partial(self._scores, *chain) for chain in chains]
        folds = [fold + 1 for _, fold in chains]
        last = f" to {max(folds)}" if len(set(folds)) > 1 else ""
        stage, until = f"chains of C, fold {min(folds, default=1)}{last}", self.scores.until
        most = MAX_TIME_PART * self.scores.seconds_left
        for found in run_concurrently(calls, validation.concurrent_fits, until, stage, most):
            yield from found

    def _scores(self, family: Sequence[int], fold: int) -> list[tuple[int, int, FoldScore]]:
        """Make the fits of a chain; return the scores of its candidates.

        If one takes too long, larger values of C and other folds are not fitted.
        """
        found, validation = [], self.validation
        criterion, training = self.scores.criterion, validation.training(fold)
        held_out = validation.held_out(fold)
        D, previous = validation.D, self.first_fits.get(family[0])
        y, weights = D.labels()[held_out], D.weights()
        own = None if weights is None else weights[held_out]
        try:
            for index in family:
                if index in self.late:
                    raise Cancelled
                params = self.candidates[index]
                kept, previous = self.fits.fit(
                    D, params, previous, training, held_out, criterion.keep
                )
                score = criterion.of_fold(KeptValues(y, kept, own))
                # Only a race compares the losses of rows.
                score = score if self.races else score._replace(losses=np.empty(0))
                found.append((index, fold, score))
                starts = self.races or index == family[0]
                if fold == validation.folds[0] and starts and self._starts_folds:
                    self.first_fits[index] = previous
        except Cancelled:
            self.late.add(index)
        return found

    @property
    def _starts_folds(self) -> bool:
        return self.fits.starts_from_fits and not self.validation.forward


def families_of(candidates: Sequence[AnyParams], together: bool) -> list[list[int]]:
    """Return the indices of candidates that differ in C alone, ascending in C.

    together: False: each candidate is a family of its own
    """
    families: dict[Any, list[int]] = {}
    for index, params in enumerate(candidates):
        is_kernel_machine = together and isinstance(params, KernelParams)
        families.setdefault(replace(params, C=1.0) if is_kernel_machine else index, []).append(
            index
        )

    def cost(index: int) -> float:
        params = candidates[index]
        return params.C if isinstance(params, KernelParams) else nan

    return [sorted(family, key=cost) for family in families.values()]


# --- logs ------------------------------------------------------------------------------------
# The fields of a line of a log that hold the result of a combination.
RESULT_FIELDS = ("scores", "score", "score_name", "rows", "details")
# The field with the number of folds after which a combination was dropped; null: it was not.
DROPPED = "dropped_after"
# The field with the number of folds that an interrupted combination has; null: it was finished.
INTERRUPTED = "interrupted_after"


# Larger numbers in a log are no scores: their squares overflow.
MAX_LOGGED = 1e150


def _is_complete(line: Mapping[str, Any]) -> bool:
    """Return whether a line of a log holds a valid result; other programs may have changed it."""
    if not {"configuration", "digest", *RESULT_FIELDS} <= line.keys():
        return False
    scores, details = line["scores"], line["details"]
    if not (isinstance(scores, list) and scores and isinstance(details, dict)):
        return False
    numbers = [*scores, line["score"], line["rows"]]
    numbers += [value for value in details.values() if value is not None]
    words = line["configuration"], line["digest"], line["score_name"]
    # JSON readers accept Infinity and integers of any size.
    return all(type(one) in (int, float) and abs(one) <= MAX_LOGGED for one in numbers) and all(
        isinstance(word, str) for word in words
    )


def _with_nan(value: Any) -> Any:
    """Return the value with nan for the null of JSON."""
    if isinstance(value, dict):
        return {name: _with_nan(one) for name, one in value.items()}
    return nan if value is None else value
