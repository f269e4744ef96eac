"""Grid search: choose the combinations of parameters to cross-validate, and compare their scores.

Combinations of given values are tried on all rows; one that proves worse on the first folds is
dropped. Under a time limit, or if a range is searched, stages on few rows show which deserve more
rows. The caller gives the function that fits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from math import ceil, inf, isnan, nan, sqrt
from typing import Any, Generic, TypeAlias

import numpy as np

from randsvm.data.dataset import Dataset
from randsvm.errors import ClusterError, Interrupted
from randsvm.events import PERCENT_SCORES, Notice, Searched, Tried, emit
from randsvm.parallel import Cancelled
from randsvm.training.cross_validation import (
    CrossValidation,
    replicated,
    rows_of_groups,
    run_concurrently,
    subset_of,
)
from randsvm.training.fold_fits import (
    Chain,
    FoldFits,
    ScoredFolds,
    significantly_worse,
)
from randsvm.training.job import AnyParams, Fit, Job, SearchFit
from randsvm.training.selection import (
    Criterion,
    FoldScore,
    Winner,
    criterion_of,
    mean_and_error,
    simplest_within_error,
)

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
) -> Winner[AnyParams]:
    """Cross-validate every combination of the grid; return the results and the best parameters.

    Without a grid, the parameters alone are cross-validated. The first result is of the best
    combination. No results (None): there was no time for any; the first combination is returned.

    configuration: returns the words that make parameters and a job
    until: the moment when the search ends with the results so far
    search_fits: fits that share work; the first that suits the rows and parameters is used, or
    `fit`, which trains each from nothing
    """
    began, search = time.perf_counter(), job.search
    criterion = criterion_of(search, params, D.summary.names)
    candidate_scores = CandidateScores(
        SearchSetup(D, fit, job, configuration, criterion, until, search_fits)
    )
    candidates = _candidates(search.candidates(params))
    rows = min(search.subset or D.n, D.n)
    if search.refined_fields and until < inf:
        candidates = from_the_middle(candidates)
    try:
        if search.refined_fields:
            refine_range(candidate_scores, candidates, params, rows)
        elif until < inf:
            halve_successively(candidate_scores, candidates, rows)
        else:
            candidate_scores.stage(candidates, rows)
    except (Interrupted, ClusterError) as error:
        candidate_scores.emit_unfinished()
        error.args = (f"{error}: no model was written; {candidate_scores.best_so_far()}",)
        raise
    if not candidate_scores.results:
        first = "" if len(candidates) == 1 else ": the first combination is taken"
        emit(Notice(f"no time for cross-validation{first}"))
        return Winner(None, candidates[0].params)
    first_fit = candidate_scores.first_fit_of_best()
    ranked = candidate_scores.ranked
    found = Searched(
        ranked,
        time.perf_counter() - began,
        len(candidate_scores.candidates),
        simplest_within_error(ranked, criterion.sign),
    )
    emit(found)
    if len(ranked) > 1 and len({one.score for one in ranked}) == 1:
        emit(Notice(f"all {len(ranked):,} scores are equal: they do not show which one is best"))
    best = replace(params, **found.tried[0].values)  # type: ignore[arg-type]
    return Winner(found, best, first_fit)


def halve_successively(
    candidate_scores: CandidateScores[AnyParams],
    candidates: Sequence[Candidate[AnyParams]],
    most: int,
) -> None:
    """Score all candidates on few rows, then the best KEPT_PART of them on more rows, up to `most`.

    Jamieson, Talwalkar, "Non-stochastic Best Arm Identification and Hyperparameter Optimization",
    AISTATS 2016. No candidate is dropped if there is ample time.
    """
    stage: Stage[AnyParams] | None = candidates, first_rows(candidate_scores, MIN_ROWS, most)
    while stage is not None:
        rows = stage[1]
        best_first = candidate_scores.stage(*stage)
        if rows == most or not best_first:
            return
        stage = next_stage(candidate_scores, best_first, rows, most)
    emit(Notice(f"no time to cross-validate on more than {rows:,} of {most:,} rows"))


def first_rows(candidate_scores: CandidateScores[AnyParams], least: int, most: int) -> int:
    """Return the rows of the first stage: enough for each fold and each class."""
    setup = candidate_scores.setup
    classes, folds = len(setup.D.summary.names), setup.job.search.fold_count
    groups = rows_of_groups(setup.D, folds, setup.job.run.seed)
    return min(max(least, MIN_FOLD_ROWS * folds, MIN_CLASS_ROWS * classes, groups), most)


def next_stage(
    candidate_scores: CandidateScores[AnyParams],
    best_first: Sequence[Candidate[AnyParams]],
    rows: int,
    most: int,
) -> Stage[AnyParams] | None:
    """Return the largest stage that there is time for after one on `rows` rows; None: none."""
    left = candidate_scores.setup.until - time.perf_counter()
    best = best_part(candidate_scores, best_first)
    # If the results of the stage come from a log, the time that fits take is unknown.
    ample = AMPLE_TIME * left if candidate_scores.candidate_seconds else -1.0
    stages = [
        (best_first, most, ample),
        (best_first, min(ROW_GROWTH * rows, most), ample),
        (best, min(ROW_GROWTH * rows, most), left),
        (best, min(2 * rows, most), left),
    ]
    affordable = (
        (some, stage_rows)
        for some, stage_rows, seconds in stages
        if candidate_scores.expected_seconds(len(some), stage_rows) <= seconds
    )
    return next(affordable, None)


def refine_range(
    candidate_scores: CandidateScores[AnyParams],
    candidates: Sequence[Candidate[AnyParams]],
    params: AnyParams,
    most: int,
) -> None:
    """Search a range: all of it on few rows, its best part on more, then grids around the best."""

    def stage(some: Sequence[Candidate[AnyParams]], rows: int) -> bool:
        """Run this stage if there is time for it; return whether there was."""
        left = candidate_scores.setup.until - time.perf_counter()
        enough = candidate_scores.expected_seconds(len(some), rows) <= left
        if candidate_scores.results and enough:
            candidate_scores.stage(some, rows)
            return True
        emit(Notice(f"no time for a finer grid on {rows:,} rows"))
        return False

    coarse = first_rows(candidate_scores, COARSE_ROWS, most)
    best = candidate_scores.stage(candidates, coarse)
    has_time = stage(best_part(candidate_scores, best), min(ROW_GROWTH * coarse, most))
    for power, factor in enumerate(FINER_FACTORS, 1):
        if has_time:
            around = candidate_scores.ranked[0].values
            near = _candidates(
                candidate_scores.setup.job.search.refined_candidates(params, around, factor)
            )
            has_time = stage(near, min(ROW_GROWTH**power * coarse, most))


def best_part(
    candidate_scores: CandidateScores[AnyParams], best_first: Sequence[Candidate[AnyParams]]
) -> Sequence[Candidate[AnyParams]]:
    """Return the best KEPT_PART of the candidates, and ties with its last, up to half of all."""
    count = max(MIN_KEPT, ceil(KEPT_PART * len(best_first)))
    scores = [candidate_scores.results[one.key][1].score for one in best_first]
    equals = scores[count : len(scores) // 2].count(scores[count - 1]) if count < len(scores) else 0
    return best_first[: count + equals]


def from_the_middle(candidates: Sequence[Candidate[AnyParams]]) -> list[Candidate[AnyParams]]:
    """Return the candidates of a grid, those in its middle first and its corners last.

    A search that runs out of time has then scored moderate values of the parameters.
    """
    columns = {
        name: sorted({one.values[name] for one in candidates}) for name in candidates[0].values
    }
    places = {name: {x: i for i, x in enumerate(column)} for name, column in columns.items()}

    def distance(one: Candidate[AnyParams]) -> float:
        parts = [
            (places[name][x] + 0.5) / len(columns[name]) - 0.5 for name, x in one.values.items()
        ]
        return sum(part**2 for part in parts)

    return sorted(candidates, key=distance)


def _candidates(
    combinations: Sequence[tuple[dict[str, float], AnyParams]],
) -> list[Candidate[AnyParams]]:
    return [Candidate(values, params) for values, params in combinations]


# Under a time limit, a fit is cancelled after
# max(PATIENCE_FACTOR usual, min(PATIENCE_FACTOR share, MAX_TIME_PART left)) seconds, with the usual
# seconds of a fit, the equal share of a fit in the time left, and the time left. Before the usual
# seconds are known, it is cancelled after MAX_TIME_PART left.
PATIENCE_FACTOR, MAX_TIME_PART = 4.0, 1 / 8
# The seconds of a fit grow at most as this power of the rows.
COST_POWER = 1.5

# The most decision values of all candidates of a race in memory, 8 bytes each, and 8 for each loss
# of a row. This does not depend on --memory, which changes no result.
MAX_RACING_VALUES = 1 << 24

Key = tuple[tuple[str, float], ...]
Rank = tuple[bool, float, int]


@dataclass(frozen=True)
class Candidate(Generic[AnyParams]):
    """A combination of parameters; values: of those that the grid varies."""

    values: dict[str, float]
    params: AnyParams

    @property
    def key(self) -> Key:
        return tuple(self.values.items())


@dataclass(frozen=True)
class Underway(Generic[AnyParams]):
    """The stage of a search that is under way.

    candidates, rows: of the stage
    parts: the scores of the folds of each candidate that is not finished, by its index
    """

    fits: FoldFits[AnyParams]
    candidates: Sequence[Candidate[AnyParams]]
    rows: int
    parts: dict[int, dict[int, FoldScore]]


@dataclass(frozen=True)
class SearchSetup(Generic[AnyParams]):
    """The data, the function that fits, and the options of a search.

    configuration: returns the words that make parameters and a job
    criterion: the score of the search
    until: the moment when the search ends with the results so far
    """

    D: Dataset
    fit: Fit[AnyParams]
    job: Job
    configuration: Callable[[AnyParams, Job], list[str]]
    criterion: Criterion
    until: float = inf
    search_fits: Sequence[SearchFit[AnyParams]] = ()

    @property
    def folds(self) -> int:
        """The number of folds of all repetitions."""
        return self.job.search.fold_count * self.job.search.repeats


class CandidateScores(Generic[AnyParams]):
    """The scores of combinations, each on the largest number of rows that it was tried on.

    logged: results of earlier searches, by configuration and digest of the data
    candidates: all combinations so far, in the order of the grid
    results: rows and result of each combination that was tried
    candidate_seconds: the seconds per candidate in the last timed stage; 0 if none was timed
    timed_rows: the rows of that stage
    """

    def __init__(self, setup: SearchSetup[AnyParams]) -> None:
        self.setup = setup
        self.logged = {
            (line["configuration"], line["digest"]): line
            for line in setup.job.search.earlier()
            if _is_complete(line)
        }
        self.candidates: dict[Key, Candidate[AnyParams]] = {}
        self.results: dict[Key, tuple[int, Tried]] = {}
        self.candidate_seconds, self.timed_rows = 0.0, 1
        # The candidates that each one was tried with, and its place among them.
        self.stages: dict[Key, tuple[Sequence[Candidate[AnyParams]], int]] = {}
        # The best candidate so far that was scored on all rows, and its first fit.
        self.best_fit: tuple[Rank, Key, Any] | None = None
        # All results so far, with the rows of their stages, and what the current stage is doing.
        self.emitted: list[tuple[int, Tried]] = []
        self.underway: Underway[AnyParams] | None = None

    def stage(
        self, candidates: Sequence[Candidate[AnyParams]], rows: int
    ) -> list[Candidate[AnyParams]]:
        """Cross-validate on a random subset of this number of rows.

        Returns the candidates that were scored in time, the best first. If these are at most half,
        and this is not the first stage, their scores are discarded and the list is empty.
        """
        self.candidates |= {one.key: one for one in candidates}
        known = {one.key for one in candidates if self.results.get(one.key, (0,))[0] == rows}
        missing = [one for one in candidates if one.key not in known]
        began = time.perf_counter()
        done = {one.key: (rows, tried) for one, tried in self._tried(missing, rows)}
        if len(done) < len(missing):
            where = "" if rows == self.setup.D.n else f" on {rows:,} rows"
            of = f"{len(missing) - len(done)} of {len(candidates)} combinations"
            emit(Notice(f"no time for {of}{where}"))
        if done and self.setup.until < inf:
            self.candidate_seconds = (time.perf_counter() - began) / len(done)
            self.timed_rows = rows
        if self.results and 2 * (len(known) + len(done)) <= len(candidates):
            return []
        self.results |= done
        own = {one.key for one in candidates}
        return [
            self.candidates[key]
            for key in self._best_first
            if self.results[key][0] == rows and key in own
        ]

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

        def rank(key: Key) -> tuple[int, bool, Rank]:
            rows, tried = self.results[key]
            return -rows, tried.dropped_after is not None, self._rank_of_score(key, tried.score)

        return sorted(self.results, key=rank)

    def _rank_of_score(self, key: Key, score: float) -> Rank:
        """Return the rank of a score among those on the same rows; smaller is better."""
        return isnan(score), -self.setup.criterion.sign * score, list(self.candidates).index(key)

    def _tried(
        self, candidates: Sequence[Candidate[AnyParams]], rows: int
    ) -> Iterator[tuple[Candidate[AnyParams], Tried]]:
        """Yield results as they complete, and emit each; results of the log come first."""
        for number, (one, result, resumed) in enumerate(self._results(candidates, rows), 1):
            place = {"number": number, "of": len(candidates), "resumed": resumed}
            yield one, self._emit_tried(one, rows, {**place, **result})

    def _emit_tried(self, one: Candidate[AnyParams], rows: int, result: Mapping[str, Any]) -> Tried:
        """Emit and return the result of a candidate on this number of rows."""
        mean, error = mean_and_error(result["scores"], self.setup.job.search.fold_count)
        tried = Tried(
            values=one.values,
            configuration=self._configuration(one, rows),
            digest=self.setup.D.summary.digest,
            mean=mean,
            standard_error=error,
            **result,
        )
        self.emitted.append((rows, tried))
        try:
            emit(tried)
        except Interrupted:
            emit(tried)  # a signal is raised once, before the listener has the event
            raise
        return tried

    def emit_unfinished(self) -> None:
        """Emit the results of candidates that an interruption leaves with some of their folds."""
        if self.underway is None:
            return
        fits, candidates = self.underway.fits, self.underway.candidates
        rows, parts = self.underway.rows, self.underway.parts
        number = sum(own == rows for own, _ in self.emitted)
        for index in sorted(parts):
            done = list(takewhile(parts[index].__contains__, fits.validation.folds))
            if not done:
                continue
            number += 1
            result = self.setup.criterion.of_folds([parts[index][fold] for fold in done])
            result[INTERRUPTED] = len(done) if len(done) < self.setup.folds else None
            place = {"number": number, "of": len(candidates), "resumed": False}
            self._emit_tried(candidates[index], rows, {**place, **result})

    def best_so_far(self) -> str:
        """Return the words that name the best combination of an interrupted search."""
        sign = self.setup.criterion.sign

        def rank(found: tuple[int, Tried]) -> tuple[int, bool, bool, float]:
            rows, one = found
            score = -inf if isnan(one.score) else sign * one.score
            return rows, one.dropped_after is None, one.interrupted_after is None, score

        if not self.emitted:
            return "no combination has a score"
        best = max(self.emitted, key=rank)[1]
        unit = "%" if best.score_name in PERCENT_SCORES else ""
        words = f"{best.score_name} {best.score:.6g}{unit}"
        if best.interrupted_after is not None:
            words += f" after {best.interrupted_after} of {self.setup.folds} folds"
        if not best.values:
            return f"its cross-validation has the {words}"
        values = ", ".join(f"{name.rstrip('_')} {value:g}" for name, value in best.values.items())
        return f"the best combination so far is {values}: {words}"

    def _results(
        self, candidates: Sequence[Candidate[AnyParams]], rows: int
    ) -> Iterator[tuple[Candidate[AnyParams], dict[str, Any], bool]]:
        """Yield a candidate, the values of RESULT_FIELDS, and whether the log had them."""
        missing, logged_folds = [], {}
        self.stages |= {one.key: (candidates, index) for index, one in enumerate(candidates)}
        for index, line in enumerate(self._known_lines(candidates, rows)):
            if line is None:
                missing.append(index)
            else:
                one, logged_folds[index] = candidates[index], len(line["scores"])
                result = {name: _with_nan(line[name]) for name in RESULT_FIELDS}
                yield one, {**result, DROPPED: line.get(DROPPED)}, True
        for found in self._computed(candidates, missing, logged_folds, rows):
            one, folds = candidates[found.number], found.folds
            dropped = len(folds) if len(folds) < self.setup.folds else None
            result = self.setup.criterion.of_folds(folds)
            if dropped is None and rows == self.setup.D.n and found.first_fit is not None:
                rank = self._rank_of_score(one.key, result["score"])
                if self.best_fit is None or rank < self.best_fit[0]:
                    self.best_fit = rank, one.key, found.first_fit
            yield one, {**result, DROPPED: dropped}, False
        self.underway = None

    def _known_lines(
        self, candidates: Sequence[Candidate[AnyParams]], rows: int
    ) -> list[Mapping[str, Any] | None]:
        """Return the line of the log for each candidate, or None.

        The line of a dropped candidate is used only if another candidate is better on the same
        folds. The line of an interrupted candidate only serves this comparison.
        """
        digest, sign = self.setup.D.summary.digest, self.setup.criterion.sign
        lines = [self.logged.get((self._configuration(one, rows), digest)) for one in candidates]
        scored = [line["scores"] for line in lines if line and line.get(DROPPED) is None]
        races = not self.setup.job.search.no_racing

        def stays_dropped(line: Mapping[str, Any]) -> bool:
            count = len(line["scores"])
            own = sign * float(np.mean(line["scores"]))
            return races and any(
                len(one) >= count and own < sign * float(np.mean(one[:count])) for one in scored
            )

        def is_usable(line: Mapping[str, Any]) -> bool:
            if line.get(DROPPED) is not None:
                return stays_dropped(line)
            return line.get(INTERRUPTED) is None

        return [line if line and is_usable(line) else None for line in lines]

    def _computed(
        self,
        candidates: Sequence[Candidate[AnyParams]],
        missing: Sequence[int],
        logged_folds: Mapping[int, int],
        rows: int,
    ) -> Iterator[ScoredFolds]:
        """Yield candidates once all of their folds are done.

        missing: the indices of the candidates to score; their fits may start from those of others
        logged_folds: the number of folds of each other candidate, by its index
        """
        if missing:
            with self._fits(candidates, rows, logged_folds) as fits:
                fits.score(missing)
                run = self._race if fits.races else self._run_folds
                yield from run(fits, candidates, missing, rows)

    @contextmanager
    def _fits(
        self,
        candidates: Sequence[Candidate[AnyParams]],
        rows: int,
        logged_folds: Mapping[int, int] | None = None,
    ) -> Iterator[FoldFits[AnyParams]]:
        """Return the fits of candidates on this number of rows."""
        setup = self.setup
        with replicated(setup.D, subset_of(setup.D, rows, setup.job.run.seed)) as some:
            validation = CrossValidation.of_search(some, setup.job, setup.fit)
            try:
                races = self._races(candidates, some)
                params = [one.params for one in candidates]
                yield FoldFits(
                    validation,
                    params,
                    setup.search_fits,
                    setup.criterion,
                    races,
                    setup.until == inf,
                    logged_folds,
                )
            finally:
                for shared in setup.search_fits:
                    shared.close()

    def _races(self, candidates: Sequence[Candidate[AnyParams]], D: Dataset) -> bool:
        """Return whether candidates that prove worse on the first folds are dropped.

        Under a time limit and in a range, few rows show which combinations are dropped.
        """
        options = self.setup.job.search
        if options.no_racing or options.refined_fields or self.setup.until < inf:
            return False
        if len(candidates) < 2:
            return False
        # A race keeps the first fit of each candidate; without one, few are kept at a time.
        values = len(candidates) * D.n * max(len(D.summary.names) - 1, 1)
        return values <= MAX_RACING_VALUES

    def first_fit_of_best(self) -> Any:
        """Return the first fit of the best candidate.

        None: its folds started from nothing, or were of fewer rows than all.

        The result is the same whether scores come from a log or not, except under a time limit.
        """
        best = self._best_first[0]
        candidates, number = self.stages[best]
        if self.best_fit is not None and self.best_fit[1] == best:
            return self.best_fit[2]
        if self.results[best][0] < self.setup.D.n or self.setup.until < inf:
            return None
        with self._fits(candidates, self.setup.D.n) as fits:
            return fits.first_fit(number)

    def _patience(self, at_once: int, rows: int, left: int, taken: Sequence[float]) -> float:
        """Return the seconds that a fold may take before it is given up.

        at_once: folds that run at a time. rows: of the cross-validation. left: folds that are not
        done. taken: seconds of those that are.
        """
        setup = self.setup
        if setup.until == inf:
            return inf
        time_left = setup.until - time.perf_counter()
        most, fair = MAX_TIME_PART * time_left, time_left * at_once / left
        usual = self.expected_seconds(1, rows) * at_once / setup.folds
        if taken:
            usual = max(usual, sorted(taken)[len(taken) // 2])
        factor = PATIENCE_FACTOR
        return max(factor * usual, min(factor * fair, most)) if usual else most

    def _run_folds(
        self,
        fits: FoldFits[AnyParams],
        candidates: Sequence[Candidate[AnyParams]],
        missing: Sequence[int],
        rows: int,
    ) -> Iterator[ScoredFolds]:
        """Score all folds of the candidates `missing`, and yield each once its folds are done."""
        parts: dict[int, dict[int, FoldScore]] = {}
        self.underway = Underway(fits, candidates, rows, parts)
        every = fits.validation.folds
        for index, fold, score in self._scores(fits, fits.chains(missing, every), rows):
            folds = parts.setdefault(index, {})
            folds[fold] = score
            if len(folds) == len(every):
                yield fits.finish(index, parts.pop(index))

    def _race(
        self,
        fits: FoldFits[AnyParams],
        candidates: Sequence[Candidate[AnyParams]],
        missing: Sequence[int],
        rows: int,
    ) -> Iterator[ScoredFolds]:
        """Score the candidates `missing` fold by fold; yield those that are dropped, then others.

        After one or two folds, see FoldFits.next_folds, candidates are dropped if they are
        significantly worse than the best one so far.
        """
        parts: dict[int, dict[int, FoldScore]] = {index: {} for index in missing}
        self.underway = Underway(fits, candidates, rows, parts)
        done, every = 0, fits.validation.folds
        while done < len(every):
            folds = fits.next_folds(sorted(parts), done)
            for chains in fits.waves(sorted(parts), folds):
                for index, fold, score in self._scores(fits, chains, rows):
                    parts[index][fold] = score
            done += len(folds)
            if done < len(every):
                losses = {
                    index: np.concatenate([own[one].losses for one in sorted(own)])
                    for index, own in parts.items()
                }
                for index in significantly_worse(losses, fits.validation.D.n):
                    yield fits.finish(index, parts.pop(index))
        for index in sorted(parts):
            yield fits.finish(index, parts.pop(index))

    def _scores(
        self, fits: FoldFits[AnyParams], chains: Sequence[Chain], rows: int
    ) -> Iterator[tuple[int, int, FoldScore]]:
        """Run chains side by side, and yield their scores as they complete.

        If a fold takes too long, the other folds of its candidates are cancelled as well.
        """
        setup, at_once = self.setup, fits.validation.at_once
        cancelled: set[int] = set()

        def run(chain: Chain) -> list[tuple[int, int, FoldScore]]:
            indices = {index for index, _ in chain}
            if indices & cancelled:
                raise Cancelled
            try:
                return fits.scores(chain)
            except Cancelled:
                cancelled.update(indices)
                raise

        calls = [partial(run, chain) for chain in chains]
        patience = partial(self._patience, at_once, rows)
        for found in run_concurrently(calls, at_once, setup.until, "cross-validation", patience):
            yield from found

    def _configuration(self, one: Candidate[AnyParams], rows: int) -> str:
        """Return the command line that tries this combination alone on `rows` rows."""
        job = self.setup.job
        job = replace(job, search=replace(job.search, no_racing=False))
        if rows < self.setup.D.n:
            job = replace(job, search=replace(job.search, subset=rows))
        return " ".join(self.setup.configuration(one.params, job))


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
