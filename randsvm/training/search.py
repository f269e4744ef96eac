"""Search: choose the combinations of parameters to cross-validate, and compare their scores.

Combinations of given values are tried on all rows; one that proves worse on the first folds is
dropped. Under a time limit, or if a range is searched, stages on few rows show which deserve more
rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, takewhile
from math import ceil, inf, isnan, nan, sqrt
from typing import Any, Generic, NamedTuple, TypeAlias

import numpy as np

from randsvm.data.dataset import Dataset
from randsvm.errors import ClusterError, Interrupted
from randsvm.events import PERCENT_SCORES, Notice, Searched, Tried, emit
from randsvm.parallel import Cancelled
from randsvm.training.cross_validation import (
    Criterion,
    CrossValidation,
    FoldScore,
    criterion_of,
    mean_and_error,
    replicated,
    rows_of_groups,
    run_concurrently,
    significantly_worse,
    simplest_within_error,
    subset_of,
)
from randsvm.training.job import AnyParams, FoldFit, Job

# The fewest rows of the first stage: for each fold, for each class; in all under a time limit
# (FIRST_ROWS), and if a range is searched (COARSE_ROWS).
MIN_FOLD_ROWS, MIN_CLASS_ROWS = 10, 20
FIRST_ROWS, COARSE_ROWS = 200, 500
# Each stage has this many times the rows of the one before, and this part of its combinations.
ROW_GROWTH, KEPT_PART, MIN_KEPT = 4, 1 / 4, 2
# No combination is dropped if the next stage with all of them takes at most this part of the time.
AMPLE_TIME = 1 / 4
# Factors of the grids around the best of a range. The first grid is tried on ROW_GROWTH times the
# rows of the first stage, each other on ROW_GROWTH times the rows of the one before.
FINER_FACTORS = (2.0, sqrt(2.0))

# The seconds of a fit grow at most as this power of the rows.
COST_POWER = 1.5

# The most decision values of all candidates of a race in memory, 8 bytes each, and 8 for each loss
# of a row. This does not depend on --memory, which changes no result.
MAX_RACING_VALUES = 1 << 24
# Yields the ways to fit rows of D with some parameters, and the number of concurrent fits.
# ways[k] fits to a smaller gap than ways[k - 1] and starts from its fit. A single way starts from
# nothing.
WaysToFit: TypeAlias = (
    "Callable[[Dataset, Sequence[AnyParams]],"
    " AbstractContextManager[tuple[Sequence[FoldFit[AnyParams]], int]]]"
)


def search(
    D: Dataset,
    params: AnyParams,
    ways_to_fit: WaysToFit[AnyParams],
    job: Job,
    configuration: Callable[[AnyParams, Job], list[str]],
    until: float = inf,
) -> tuple[Searched | None, AnyParams]:
    """Cross-validate every combination of the grid; return the results and the best parameters.

    Without a grid, the parameters alone are cross-validated. The first result is of the best
    combination. No results (None): there was no time for any; the first combination is returned.

    configuration: returns the words that make parameters and a job
    until: the moment when the search ends with the results so far
    """
    began, options = time.perf_counter(), job.search
    scores = CandidateScores(D, params, ways_to_fit, job, configuration, until)
    first = options.candidates(params)
    most = min(options.subset or D.n, D.n)
    try:
        for chosen, rows in stages(scores, params, first, most):
            if scores.ranked and scores.expected_seconds(len(chosen), rows) > scores.seconds_left:
                emit(Notice(f"no time to cross-validate on {rows:,} of {most:,} rows"))
                break
            if not scores.stage(chosen, rows):
                break
    except (Interrupted, ClusterError) as error:
        error.args = (f"{error}: no model was written; {scores.best_so_far()}",)
        raise
    ranked = scores.ranked
    if not ranked:
        taken = "" if len(first) == 1 else ": the first combination is taken"
        emit(Notice(f"no time for cross-validation{taken}"))
        return None, first[0]
    simplest = simplest_within_error(ranked, scores.criterion.sign)
    found = Searched(ranked, time.perf_counter() - began, len(scores.results), simplest)
    emit(found)
    if len(ranked) > 1 and len({one.score for one in ranked}) == 1:
        emit(Notice(f"all {len(ranked):,} scores are equal: they do not show which one is best"))
    return found, replace(params, **ranked[0].values)  # type: ignore[arg-type]


# --- stages ----------------------------------------------------------------------------------


def stages(
    scores: CandidateScores[AnyParams],
    params: AnyParams,
    candidates: Sequence[AnyParams],
    most: int,
) -> Iterator[tuple[Sequence[AnyParams], int]]:
    """Yield the stages of a search, each some candidates and a number of rows.

    The next stage follows from the scores of those before. A list of values has one, on `most`
    rows. Under a time limit, a list is tried on few rows, and then on all rows if that takes a
    small part of the time left; otherwise the best KEPT_PART is tried on ROW_GROWTH times the rows,
    and so on: Jamieson, Talwalkar, "Non-stochastic Best Arm Identification and Hyperparameter
    Optimization", AISTATS 2016. A range is tried on few rows, its best part on more, then grids
    around the best.
    """
    is_range = bool(scores.job.search.refined_fields)
    if not is_range and scores.until == inf:
        yield candidates, most
        return
    rows = first_rows(scores.D, scores.job, COARSE_ROWS if is_range else FIRST_ROWS, most)
    yield candidates, rows
    if is_range:
        yield scores.best_part(candidates), min(ROW_GROWTH * rows, most)
        for power, factor in enumerate(FINER_FACTORS, 1):
            around = scores.ranked[0].values
            near = scores.job.search.refined_candidates(params, around, factor)
            yield near, min(ROW_GROWTH**power * rows, most)
        return
    while rows < most:
        # If the results of the stage come from a log, the time that fits take is unknown.
        seconds = scores.expected_seconds(len(candidates), most) or inf
        if seconds <= AMPLE_TIME * scores.seconds_left:
            rows = most
        else:
            candidates, rows = scores.best_part(candidates), min(ROW_GROWTH * rows, most)
        yield candidates, rows


def first_rows(D: Dataset, job: Job, least: int, most: int) -> int:
    """Return the rows of the first stage: enough for each fold and each class."""
    classes, folds = len(D.summary.labels), job.search.fold_count
    groups = rows_of_groups(D, folds, job.data_params.seed)
    return min(max(least, MIN_FOLD_ROWS * folds, MIN_CLASS_ROWS * classes, groups), most)


# --- scores ----------------------------------------------------------------------------------


class Scored(NamedTuple):
    """The result of a combination on a number of rows."""

    rows: int
    tried: Tried


class CandidateScores(Generic[AnyParams]):
    """The results of all combinations so far, and the log of earlier searches.

    configuration: returns the words that make parameters and a job
    until: the moment when the search ends with the results so far
    logged: results of earlier searches, by configuration and digest of the data
    results: of each combination on the largest number of rows so far, in the order of the grid;
        None: it has no score
    candidate_seconds: the seconds per candidate in the last timed stage; 0 if none was timed
    timed_rows: the rows of that stage
    """

    def __init__(
        self,
        D: Dataset,
        params: AnyParams,
        ways_to_fit: WaysToFit[AnyParams],
        job: Job,
        configuration: Callable[[AnyParams, Job], list[str]],
        until: float,
    ) -> None:
        self.D, self.ways_to_fit, self.job, self.configuration = D, ways_to_fit, job, configuration
        self.until = until
        self.criterion = criterion_of(job.search, params, D.summary.labels)
        # The number of folds of all repetitions.
        self.folds = job.search.fold_count * job.search.repeats
        self.logged = {
            (line["configuration"], line["digest"]): line
            for line in job.search.earlier()
            if _is_complete(line)
        }
        self.results: dict[AnyParams, Scored | None] = {}
        self.candidate_seconds, self.timed_rows = 0.0, 1

    @property
    def seconds_left(self) -> float:
        return self.until - time.perf_counter()

    def expected_seconds(self, count: int, rows: int) -> float:
        """Return the seconds that a stage of `count` candidates on `rows` rows takes."""
        return self.candidate_seconds * count * (rows / self.timed_rows) ** COST_POWER

    @property
    def ranked(self) -> list[Tried]:
        """The result of each combination, best first; those tried on fewer rows come last.

        Equals are in the order of the grid.
        """
        return [tried for _, tried in sorted(filter(None, self.results.values()), key=self._rank)]

    def _rank(self, result: Scored) -> tuple[int, bool, bool, bool, float]:
        rows, found = result
        is_partial = found.dropped_after is not None, found.interrupted_after is not None
        return -rows, *is_partial, isnan(found.score), -self.criterion.sign * found.score

    def best_part(self, candidates: Sequence[AnyParams]) -> Sequence[AnyParams]:
        """Return the best KEPT_PART of the candidates of the last stage.

        Ties with the last of them are kept, too, up to half of all.
        """
        scored = [(found, one) for one in candidates if (found := self.results[one])]
        scored.sort(key=lambda pair: self._rank(pair[0]))
        best_first = [(found, one) for found, one in scored if found.rows == scored[0][0].rows]
        count = max(MIN_KEPT, ceil(KEPT_PART * len(best_first)))
        scores = [found.tried.score for found, _ in best_first]
        equals = scores[count : len(scores) // 2].count(scores[min(count, len(scores)) - 1])
        return [one for _, one in best_first[: count + equals]]

    def best_so_far(self) -> str:
        """Return the words that name the best combination of an interrupted search."""
        if not self.ranked:
            return "no combination has a score"
        best = self.ranked[0]
        unit = "%" if best.score_name in PERCENT_SCORES else ""
        words = f"{best.score_name} {best.score:.6g}{unit}"
        if best.interrupted_after is not None:
            words += f" after {best.interrupted_after} of {self.folds} folds"
        if not best.values:
            return f"its cross-validation has the {words}"
        values = ", ".join(f"{name.rstrip('_')} {value:g}" for name, value in best.values.items())
        return f"the best combination so far is {values}: {words}"

    # --- one stage ---------------------------------------------------------------------------

    def stage(self, candidates: Sequence[AnyParams], rows: int) -> bool:
        """Cross-validate on a random subset of this number of rows.

        Returns whether enough were scored in time: more than half of them, except in the first
        stage. Otherwise the scores are discarded.
        """
        is_first, began = not self.ranked, time.perf_counter()
        self.results = {**dict.fromkeys(candidates), **self.results}
        before = dict(self.results)
        missing = [one for one in candidates if not ((found := before[one]) and found.rows == rows)]
        done = self._cross_validated(missing, rows) if missing else 0
        if done < len(missing):
            where = "" if rows == self.D.n else f" on {rows:,} rows"
            of = f"{len(missing) - done} of {len(candidates)} combinations"
            emit(Notice(f"no time for {of}{where}"))
        if done and self.until < inf:
            self.candidate_seconds = (time.perf_counter() - began) / done
            self.timed_rows = rows
        if is_first or 2 * (len(candidates) - len(missing) + done) > len(candidates):
            return bool(self.ranked)
        self.results = before
        return False

    def _cross_validated(self, candidates: Sequence[AnyParams], rows: int) -> int:
        """Score candidates, those of the log first; return how many were scored in time."""
        lines, done = self._known_lines(candidates, rows), 0

        def keep(index: int, result: Mapping[str, Any], resumed: bool = False) -> None:
            nonlocal done
            done += 1
            place = {"number": done, "of": len(candidates), "resumed": resumed}
            self._emit_tried(candidates[index], rows, {**place, **result})

        with self._race(candidates, rows) as race:
            # A family is taken from the log only as a whole, since its fits start from each other.
            # The other families race alone, so the number of folds before a combination is dropped
            # may depend on the log.
            unknown = [one for one in race.families if not all(lines[i] for i in one)]
            for index in range(len(candidates)):
                if not any(index in family for family in unknown):
                    keep(index, _result_of(lines[index] or {}), resumed=True)
            try:
                for index, scores in race.scored(unknown):
                    keep(index, self._result(scores, DROPPED))
            except (Interrupted, ClusterError):
                for index, scores in race.unfinished():
                    keep(index, self._result(scores, INTERRUPTED))
                raise
        return done

    @contextmanager
    def _race(self, params: Sequence[AnyParams], rows: int) -> Iterator[Race[AnyParams]]:
        """Yield the fits of a stage on a random subset of this number of rows."""
        with (
            replicated(self.D, subset_of(self.D, rows, self.job.data_params.seed)) as part,
            self.ways_to_fit(part, params) as way,
        ):
            folds, drops = CrossValidation.of(part, self.job), self._drops(len(params), part)
            yield Race(params, folds, *way, self.criterion, drops, self.until)

    def _drops(self, count: int, part: Dataset) -> bool:
        """Return whether candidates that prove worse on the first folds are dropped.

        There is no race under a time limit or in a range: stages on few rows drop candidates there.
        """
        options = self.job.search
        if options.no_racing or options.refined_fields or self.until < inf:
            return False
        # A race keeps the first fit of each candidate. Without a race, few candidates are kept at a
        # time.
        values = count * part.n * max(len(part.summary.labels) - 1, 1)
        return count > 1 and values <= MAX_RACING_VALUES

    def _result(self, scores: Sequence[FoldScore], partly: str) -> dict[str, Any]:
        """Return the fields of `Tried` that hold these scores.

        partly: the field with their number, if there are not all folds
        """
        count = len(scores) if len(scores) < self.folds else None
        return {**self.criterion.of_folds(scores), partly: count}

    def _emit_tried(self, one: AnyParams, rows: int, result: Mapping[str, Any]) -> None:
        """Keep and emit the result of a candidate on this number of rows."""
        mean, error = mean_and_error(result["scores"], self.job.search.fold_count)
        tried = Tried(
            values={name: getattr(one, name) for name, _ in self.job.search.grid},
            configuration=self._configuration(one, rows),
            digest=self.D.summary.digest,
            mean=mean,
            standard_error=error,
            **result,
        )
        self.results[one] = Scored(rows, tried)
        try:
            emit(tried)
        except Interrupted:
            emit(tried)  # a signal is raised once, before the listener has the event
            raise

    def _known_lines(
        self, candidates: Sequence[AnyParams], rows: int
    ) -> list[Mapping[str, Any] | None]:
        """Return the line of the log for each candidate, or None.

        It has the line if it was scored on all folds, or was dropped and another candidate is
        better on the same folds. An interrupted candidate only serves this comparison.
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

    def _configuration(self, one: AnyParams, rows: int) -> str:
        """Return the command line that tries this combination alone on `rows` rows."""
        job = replace(self.job, search=replace(self.job.search, no_racing=False))
        if rows < self.D.n:
            job = replace(job, search=replace(job.search, subset=rows))
        return " ".join(self.configuration(one, job))


# --- folds -----------------------------------------------------------------------------------


@dataclass
class Race(Generic[AnyParams]):
    """The fits of the candidates of a stage, in chains.

    A family is all candidates that differ in C alone; if fits do not start from others, each
    candidate is a family of its own. A chain is a family on one fold. An arrow leads from a fit to
    the one that starts from it:

        fold 1    C = 1  ->  C = 8  ->  C = 64
                    |
                    v
        fold 2    C = 1  ->  C = 8  ->  C = 64

    If rows are in the order of time, the first fold is too small to start from. A race makes the
    fits of the first fold to smaller and smaller gaps, each from its own fit before: most
    candidates that are worse show it long before they are solved. Chains of one kernel are
    adjacent, since they may share its values. Those of the largest gamma, mostly the slowest, are
    the last families and are begun first.

    ways, concurrent_fits: see WaysToFit
    drops: whether candidates that are significantly worse than the best one are dropped
    until: the moment after which no fit begins
    first_fits: the fits for the first fold from which others start
    parts: the scores of the candidates that are not done, by fold
    """

    candidates: Sequence[AnyParams]
    validation: CrossValidation
    ways: Sequence[FoldFit[AnyParams]]
    concurrent_fits: int
    criterion: Criterion
    drops: bool
    until: float

    def __post_init__(self) -> None:
        self.families = [[index] for index in range(len(self.candidates))]
        if len(self.ways) > 1:
            self.families = families_of(self.candidates)
        self.families.sort(key=lambda family: self.candidates[family[0]].gamma or 0.0)
        self.first_fits: dict[int, Any] = {}
        self.parts: dict[int, dict[int, FoldScore]] = {}

    def scored(self, families: Sequence[Sequence[int]]) -> Iterator[tuple[int, list[FoldScore]]]:
        """Yield the candidates of some families as they are done, and their scores.

        A race goes fold by fold, and drops candidates after each pass. Otherwise few families are
        scored at a time, so that some are done if the time is over or a signal comes.
        """
        folds, last = self.validation.folds, self.ways[-1]
        passes = [(last, folds[:1]), (last, folds[1:])]
        if self.drops:
            passes = [(way, folds[:1]) for way in self.ways]
            passes += [(last, range(fold, fold + 1)) for fold in folds[1:]]
        count = max(1, len(families)) if self.drops else self.concurrent_fits
        for at in range(0, len(families), count):
            together = families[at : at + count]
            self.parts = {index: {} for index in sorted(chain.from_iterable(together))}
            self.first_fits.clear()
            for number, one in enumerate(passes):
                for index in self._worse() if self.drops and number else ():
                    yield self._done(index)
                self._fit_folds(together, *one)
            for index in [one for one, own in self.parts.items() if len(own) == len(folds)]:
                yield self._done(index)

    def unfinished(self) -> Iterator[tuple[int, list[FoldScore]]]:
        """Yield the candidates that have the first folds, but are not done, and their scores."""
        for index, own in self.parts.items():
            if first := list(takewhile(own.__contains__, self.validation.folds)):
                yield index, [own[fold] for fold in first]

    def _done(self, index: int) -> tuple[int, list[FoldScore]]:
        """Return a candidate that needs no more folds, and its scores."""
        own = self.parts.pop(index)
        self.first_fits.pop(index, None)
        return index, [own[fold] for fold in sorted(own)]

    def _worse(self) -> list[int]:
        """Return the candidates that are significantly worse than the best one."""
        losses = {
            index: np.concatenate([own[fold].losses for fold in sorted(own)])
            for index, own in self.parts.items()
        }
        return significantly_worse(losses, self.validation.D.n)

    def _fit_folds(
        self, families: Sequence[Sequence[int]], fit: FoldFit[AnyParams], folds: Sequence[int]
    ) -> None:
        """Make the chains of some folds side by side, and keep their scores."""
        # The last families have the slowest chains. They begin first, so that no thread waits for
        # one at the end.
        calls = [
            partial(self._chain, chain_of, fold, fit)
            for family in reversed(families)
            for fold in folds
            if (chain_of := [index for index in family if index in self.parts])
        ]
        last = f" to {folds[-1] + 1}" if len(folds) > 1 else ""
        stage = f"fits, fold {folds[0] + 1}{last}"
        for index, fold, score in chain.from_iterable(
            run_concurrently(calls, self.concurrent_fits, self.until, stage)
        ):
            self.parts[index][fold] = score

    def _chain(
        self, family: Sequence[int], fold: int, fit: FoldFit[AnyParams]
    ) -> list[tuple[int, int, FoldScore]]:
        """Make the fits of a chain, while there is time; return the scores of its candidates."""
        found, validation, is_first = [], self.validation, fold == self.validation.folds[0]
        # Rows in the order of time make the first fold too small to start from.
        previous = None if validation.forward else self.first_fits.get(family[0])
        held_out, training = validation.held_out(fold), validation.training(fold)
        y, weights = validation.D.labels()[held_out], validation.D.weights()
        weights = np.ones(len(y)) if weights is None else weights[held_out]
        with suppress(Cancelled):
            for index in family:
                start = self.first_fits.get(index, previous) if is_first else previous
                kept, previous = fit(
                    self.candidates[index], start, training, held_out, self.criterion.keep
                )
                score = self.criterion.of_fold(y, kept, weights)
                # Only a race compares the losses of rows.
                score = score if self.drops else score._replace(losses=np.empty(0))
                found.append((index, fold, score))
                if is_first and (self.drops or index == family[0]):
                    self.first_fits[index] = previous
        return found


def families_of(candidates: Sequence[Any]) -> list[list[int]]:
    """Return the indices of candidates that differ in C alone, ascending in C."""
    families: dict[Any, list[int]] = {}
    for index in sorted(range(len(candidates)), key=lambda index: candidates[index].C):
        families.setdefault(replace(candidates[index], C=1.0), []).append(index)
    return list(families.values())


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


def _result_of(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of `Tried` that a line of a log holds."""
    # JSON has null for nan.
    details = {name: nan if one is None else one for name, one in line["details"].items()}
    own = {name: line[name] for name in RESULT_FIELDS}
    return {**own, "details": details, DROPPED: line.get(DROPPED)}
