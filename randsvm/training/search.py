"""Search: choose the combinations of parameters to cross-validate, and compare their scores.

Combinations of given values are tried on all rows; one that proves worse on the first folds is
dropped. Under a time limit, or if a range is searched, stages on few rows show which deserve more
rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, count, takewhile
from math import ceil, inf, isnan, nan, nextafter, sqrt
from typing import Any, Generic, TypeAlias

import numpy as np

from randsvm.data.dataset import Dataset
from randsvm.errors import ClusterError, ContentError, InfeasibleError, Interrupted
from randsvm.events import Notice, Searched, Tried, emit, emit_once
from randsvm.parallel import Cancelled
from randsvm.parameters.option import Grid, option_fields
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
    began = time.perf_counter()
    scores = Scores(D, params, ways_to_fit, job, configuration, until)
    first = job.search.candidates(params)
    try:
        for candidates, rows in stages(scores, params, first):
            if not scores.stage(candidates, rows):
                break
    except (Interrupted, ClusterError) as error:
        error.args = (*error.args, scores.best_so_far())
        raise
    tried = scores.ranked
    if not tried:
        taken = "" if len(first) == 1 else ": the first combination is taken"
        emit(Notice(f"no time for cross-validation{taken}"))
        return None, first[0]
    if isnan(tried[0].score):
        raise ContentError(
            f"{scores.criterion.name} chooses nothing: more than half of the folds have none"
        )
    simplest = simplest_within_error(tried, scores.criterion.sign)
    found = Searched(tried, time.perf_counter() - began, len(scores.results), simplest)
    emit(found)
    if len(tried) > 1 and len({one.score for one in tried}) == 1:
        emit(Notice(f"all {len(tried):,} scores are equal: they do not show which one is best"))
    elif edges := edges_of(tried, params, job.search.grid):
        where = f"the best combination is at the edge of the lists ({', '.join(edges)})"
        emit(Notice(f"{where}: values beyond may be better"))
    return found, replace(params, **tried[0].values)  # type: ignore[arg-type]


def edges_of(tried: Sequence[Tried], params: AnyParams, grid: Grid) -> list[str]:
    """Return words about each parameter whose best value is the smallest or largest of its list.

    tried: best first. Two values have no inside, and nothing is beyond a bound such as nu = 1.
    """
    best = [one.values for one in tried if (one.rows, one.score) == (tried[0].rows, tried[0].score)]
    kinds = {f.name: spec.kind for f, spec in option_fields(params)}
    words = []
    for name, values in grid:
        if isinstance(values, str) or len(values) < 3:
            continue
        for edge, beyond, word in (min(values), -inf, "smallest"), (max(values), inf, "largest"):
            has_more = not kinds[name].problem(nextafter(edge, beyond))
            if has_more and all(one[name] == edge for one in best):
                words.append(f"{name.rstrip('_')} {edge:g} is the {word}")
    return words


# --- stages ----------------------------------------------------------------------------------


def stages(
    scores: Scores[AnyParams], params: AnyParams, candidates: Sequence[AnyParams]
) -> Iterator[tuple[Sequence[AnyParams], int]]:
    """Yield the stages of a search, each some candidates and a number of rows.

    The next stage follows from the scores of those before. A list of values has one, on all rows.
    Under a time limit, a list is tried on few rows, and then on all rows if that takes a small part
    of the time left; otherwise the best KEPT_PART is tried on ROW_GROWTH times the rows, and so on:
    Jamieson, Talwalkar, "Non-stochastic Best Arm Identification and Hyperparameter Optimization",
    AISTATS 2016. A range is tried on few rows, its best part on more, then grids around the best.
    """
    most, is_range = scores.most, bool(scores.job.search.refined_fields)
    if not is_range and scores.until == inf:
        yield candidates, most
        return
    classes, folds = len(scores.D.summary.labels), scores.job.search.fold_count
    groups = rows_of_groups(scores.D, folds, scores.job.data_params.seed)
    least = max(MIN_FOLD_ROWS * folds, MIN_CLASS_ROWS * classes, groups)
    rows = min(max(COARSE_ROWS if is_range else FIRST_ROWS, least), most)
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
        if seconds <= AMPLE_TIME * (scores.until - time.perf_counter()):
            rows = most
        else:
            candidates, rows = scores.best_part(candidates), min(ROW_GROWTH * rows, most)
        yield candidates, rows


class Scores(Generic[AnyParams]):
    """The results of all combinations so far, and those in the log of earlier searches.

    configuration: returns the words that make parameters and a job
    until: the moment when the search ends with the results so far
    most: the rows of the last stage
    results: in the order of the grid; None: the combination has no score
    logged: see `logged_results`
    seconds: those of a candidate in the last timed stage, divided by a power of its rows; 0 if none
        was timed
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
        self.until, self.most = until, min(job.search.subset or D.n, D.n)
        self.criterion = criterion_of(job.search, params, D.summary.labels)
        self.results: dict[AnyParams, Tried | None] = {}
        self.logged = logged_results(job.search.earlier())
        self.seconds = 0.0

    def expected_seconds(self, count: int, rows: int) -> float:
        """Return the seconds that a stage of `count` candidates on `rows` rows takes."""
        return self.seconds * count * rows**COST_POWER

    @property
    def ranked(self) -> list[Tried]:
        """The result of each combination, best first; those with scores of fewer rows come later,
        those without a score last.

        Equals are in the order of the grid.
        """
        return sorted(filter(None, self.results.values()), key=self._rank)

    def _rank(self, found: Tried) -> tuple[bool, int, float]:
        return isnan(found.score), -found.rows, -self.criterion.sign * found.score

    def best_part(self, candidates: Sequence[AnyParams]) -> Sequence[AnyParams]:
        """Return the best KEPT_PART of the candidates of the last stage.

        Ties with the last of them are kept, too, up to half of all.
        """
        results = {one: result for one in candidates if (result := self.results[one])}
        ranked = sorted(results, key=lambda one: self._rank(results[one]))
        # All that have scores of as many rows as the best one.
        of_stage = [one for one in ranked if results[one].rows == results[ranked[0]].rows]
        scores = [results[one].score for one in of_stage]
        best_count = max(MIN_KEPT, ceil(KEPT_PART * len(scores)))
        lowest = scores[min(best_count, len(scores)) - 1]
        return of_stage[: best_count + scores[best_count : len(scores) // 2].count(lowest)]

    def best_so_far(self) -> str:
        """Return the words that name the best combination of an interrupted search."""
        if not self.ranked:
            return "no combination has a score"
        best, options = self.ranked[0], self.job.search
        words = best.named_score
        if best.interrupted_after is not None:
            words += (
                f" after {best.interrupted_after} of {options.fold_count * options.repeats} folds"
            )
        if not best.values:
            return f"its cross-validation has the {words}"
        return f"the best combination so far is {', '.join(best.named_values)}: {words}"

    # --- one stage ---------------------------------------------------------------------------

    def stage(self, params: Sequence[AnyParams], rows: int) -> bool:
        """Cross-validate on a random subset of this number of rows; return whether to go on.

        If not more than half of the candidates were scored in time, the scores are discarded,
        except in the first stage.
        """
        is_first, began = not self.ranked, time.perf_counter()
        if not is_first and self.expected_seconds(len(params), rows) > self.until - began:
            emit(Notice(f"no time to cross-validate on {rows:,} of {self.most:,} rows"))
            return False
        # Candidates have places in the order of the grid, new ones None until they have a result.
        self.results = {**dict.fromkeys(params), **self.results}
        before = dict(self.results)
        candidates = [Candidate(one, self._configuration(one, rows)) for one in params]
        unscored = [
            one
            for one in candidates
            if not ((found := before[one.params]) and found.configuration == one.configuration)
        ]
        done = self._cross_validate(unscored, rows) if unscored else 0
        if left := len(unscored) - done:
            where = "" if rows == self.D.n else f" on {rows:,} rows"
            emit(Notice(f"no time for {left} of {len(params)} combinations{where}"))
        if done and self.until < inf:
            self.seconds = (time.perf_counter() - began) / done / rows**COST_POWER
        if not is_first and 2 * left >= len(params):
            self.results = before
            return False
        return bool(self.ranked)

    def _cross_validate(self, candidates: Sequence[Candidate[AnyParams]], rows: int) -> int:
        """Score candidates, those of the log first; return how many were scored in time."""
        logged, done = self._usable_results(candidates), list[Candidate[AnyParams]]()
        params = [one.params for one in candidates]

        def keep(one: Candidate[AnyParams], result: Mapping[str, Any], resumed: bool) -> None:
            done.append(one)
            self._emit_problems(one)
            place = {"number": len(done), "of": len(candidates), "resumed": resumed}
            self._emit_tried(one, **place, **result)

        with (
            replicated(self.D, subset_of(self.D, rows, self.job.data_params.seed)) as subset,
            self.ways_to_fit(subset, params) as (ways, concurrent_fits),
        ):
            folds, drops = (
                CrossValidation.of(subset, self.job),
                self._drops(len(candidates), subset),
            )
            race = Race(folds, ways, concurrent_fits, self.criterion, drops, self.until)
            # A family is taken from the log only as a whole, since its fits start from each other.
            # The other families race alone, so the number of folds before a combination is dropped
            # may depend on the log. Several ways mean that fits start from each other.
            families = families_of(candidates, chained=len(ways) > 1)
            unknown = [family for family in families if not logged.keys() >= set(family)]
            racing = set(chain.from_iterable(unknown))
            for one in candidates:
                if one not in racing:
                    keep(one, logged[one], resumed=True)
            try:
                for one in race.scored(unknown):
                    keep(one, race.result(one, "dropped_after"), resumed=False)
            except (Interrupted, ClusterError):
                for one in candidates:
                    if one.scores and one not in done:
                        keep(one, race.result(one, "interrupted_after"), resumed=False)
                raise
        return len(done)

    def _drops(self, count: int, subset: Dataset) -> bool:
        """Return whether candidates that prove worse on the first folds are dropped.

        There is no race under a time limit or in a range: stages on few rows drop candidates there.
        """
        options = self.job.search
        if options.no_racing or options.refined_fields or self.until < inf:
            return False
        # A race keeps the first fit of each candidate. Without a race, few candidates are kept at a
        # time.
        values = count * subset.n * max(len(subset.summary.labels) - 1, 1)
        return count > 1 and values <= MAX_RACING_VALUES

    def _emit_problems(self, one: Candidate[AnyParams]) -> None:
        """Say which folds have no score, and why."""
        problems = {fold + 1: score.problem for fold, score in one.folds.items() if score.problem}
        if problems:
            count, some = self.job.search.fold_count * self.job.search.repeats, sorted(problems)
            folds = f"fold{'s' * (len(some) > 1)} {', '.join(map(str, some))} of {count}"
            text = f"no {self.criterion.name} of {folds}: {problems[some[0]]}"
            emit_once(text, Notice(text))

    def _emit_tried(self, one: Candidate[AnyParams], **result: Any) -> None:
        """Keep and emit the result of a candidate."""
        mean, error = mean_and_error(result["scores"], self.job.search.fold_count)
        tried = Tried(
            values={name: getattr(one.params, name) for name, _ in self.job.search.grid},
            configuration=one.configuration,
            digest=self.D.summary.digest,
            mean=mean,
            standard_error=error,
            **result,
        )
        self.results[one.params] = tried
        try:
            emit(tried)
        except Interrupted:
            emit(tried)  # a signal is raised once, before the listener has the event
            raise

    def _configuration(self, params: AnyParams, rows: int) -> str:
        """Return the command line that tries this combination alone on `rows` rows."""
        # One combination has no race: its result serves searches with and without races.
        options = replace(self.job.search, no_racing=False)
        if rows < self.D.n:
            options = replace(options, subset=rows)
        return " ".join(self.configuration(params, replace(self.job, search=options)))

    def _usable_results(
        self, candidates: Sequence[Candidate[AnyParams]]
    ) -> dict[Candidate[AnyParams], Mapping[str, Any]]:
        """Return the results of candidates that the log has.

        They were scored on all folds, or were dropped and another candidate is better on the same
        folds. An interrupted candidate only serves this comparison.
        """
        sign, digest = self.criterion.sign, self.D.summary.digest
        keys = {one: (one.configuration, digest) for one in candidates}
        logged = {one: self.logged[key] for one, key in keys.items() if key in self.logged}
        scored = [one["scores"] for one in logged.values() if one["dropped_after"] is None]

        def is_usable(result: Mapping[str, Any]) -> bool:
            if result["dropped_after"] is None:
                return result["interrupted_after"] is None
            first, mean = len(result["scores"]), sign * float(np.mean(result["scores"]))
            return not self.job.search.no_racing and any(
                len(one) >= first and mean < sign * float(np.mean(one[:first])) for one in scored
            )

        return {one: result for one, result in logged.items() if is_usable(result)}


# --- the race of a stage -----------------------------------------------------------------------


@dataclass(eq=False)
class Candidate(Generic[AnyParams]):
    """A combination in one stage.

    configuration: the command line that tries it alone
    folds: the scores of folds by their numbers, until it is done
    first_fit: the fit for the first fold from which others start
    """

    params: AnyParams
    configuration: str
    folds: dict[int, FoldScore] = field(default_factory=dict)
    first_fit: Any = None

    @property
    def scores(self) -> list[FoldScore]:
        """The scores of the first folds, up to one that it lacks."""
        return [self.folds[fold] for fold in takewhile(self.folds.__contains__, count())]


def families_of(
    candidates: Sequence[Candidate[AnyParams]], chained: bool
) -> list[list[Candidate[AnyParams]]]:
    """Return the candidates that differ in C alone, ascending in C; each alone if not `chained`."""
    families: dict[Any, list[Candidate[AnyParams]]] = {}
    for one in sorted(candidates, key=lambda one: one.params.C or 0.0):
        family = replace(one.params, C=1.0) if chained else one
        families.setdefault(family, []).append(one)
    return sorted(families.values(), key=lambda family: family[0].params.gamma or 0.0)


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
    """

    validation: CrossValidation
    ways: Sequence[FoldFit[AnyParams]]
    concurrent_fits: int
    criterion: Criterion
    drops: bool
    until: float

    def scored(
        self, families: Sequence[Sequence[Candidate[AnyParams]]]
    ) -> Iterator[Candidate[AnyParams]]:
        """Yield the candidates of some families as they are done.

        A race goes fold by fold, and drops candidates after each pass. Otherwise few families are
        scored at a time, so that some are done if the time is over or a signal comes.
        """
        folds, last = self.validation.folds, self.ways[-1]
        passes = [(last, folds[:1]), (last, folds[1:])]
        if self.drops:
            passes = [(way, folds[:1]) for way in self.ways]
            passes += [(last, range(fold, fold + 1)) for fold in folds[1:]]
        most = max(1, len(families)) if self.drops else self.concurrent_fits
        for begin in range(0, len(families), most):
            together = families[begin : begin + most]
            for way, folds_of_pass in passes:
                self._fit_folds(together, way, folds_of_pass)
                ended = self._ended(list(chain.from_iterable(together)))
                for one in ended:
                    yield one
                    one.folds, one.first_fit = {}, None
                together = [[one for one in family if one not in ended] for family in together]

    def _ended(self, candidates: Sequence[Candidate[AnyParams]]) -> list[Candidate[AnyParams]]:
        """Return the candidates that have all folds, or are significantly worse than the best."""
        whole = [one for one in candidates if len(one.folds) == len(self.validation.folds)]
        if whole or not self.drops:
            return whole
        losses = [np.concatenate([fold.losses for fold in one.scores]) for one in candidates]
        worse = significantly_worse(losses, self.validation.D.n)
        return [candidates[place] for place in worse]

    def result(self, one: Candidate[AnyParams], partly: str) -> dict[str, Any]:
        """Return the fields of `Tried` that hold the scores of a candidate.

        partly: the field with their number, if there are not all folds
        """
        number = len(one.scores) if len(one.scores) < len(self.validation.folds) else None
        return {**self.criterion.of_folds(one.scores), partly: number}

    def _fit_folds(
        self,
        families: Sequence[Sequence[Candidate[AnyParams]]],
        fit: FoldFit[AnyParams],
        folds: Sequence[int],
    ) -> None:
        """Make the chains of some folds side by side, and keep their scores."""
        # The last families have the slowest chains. They begin first, so that no thread waits for
        # one at the end.
        calls = [
            partial(self._chain, family, fold, fit)
            for family in reversed(families)
            for fold in folds
            if family
        ]
        last = f" to {folds[-1] + 1}" if len(folds) > 1 else ""
        stage = f"fits, fold {folds[0] + 1}{last}"
        scored = run_concurrently(calls, self.concurrent_fits, self.until, stage)
        for one, fold, score in chain.from_iterable(scored):
            one.folds[fold] = score

    def _chain(
        self, family: Sequence[Candidate[AnyParams]], fold: int, fit: FoldFit[AnyParams]
    ) -> list[tuple[Candidate[AnyParams], int, FoldScore]]:
        """Make the fits of a chain, while there is time; return the scores of its candidates."""
        scored, validation, is_first = [], self.validation, fold == 0
        # Rows in the order of time make the first fold too small to start from.
        previous = None if validation.forward else family[0].first_fit
        training, held_out = validation.rows(fold)
        y, weights = validation.D.labels()[held_out], validation.D.weights()
        weights = np.ones(len(y)) if weights is None else weights[held_out]
        problem = validation.problem_of(fold, family[0].params)
        if problem is not None:
            missing = FoldScore.missing(len(y), problem)
            return [(one, fold, missing) for one in family]
        with suppress(Cancelled):
            for one in family:
                # A race repeats the first fold, to smaller gaps.
                start = one.first_fit if is_first and one.first_fit is not None else previous
                try:
                    kept, previous = fit(one.params, start, training, held_out, self.criterion.keep)
                    score = self.criterion.of_fold(y, kept, weights)
                except InfeasibleError as error:
                    score = FoldScore.missing(len(y), str(error))
                # Only a race compares the losses of rows.
                score = score if self.drops else score._replace(losses=np.empty(0))
                scored.append((one, fold, score))
                # Only the first of a chain starts chains of other folds.
                if is_first and (self.drops or one is family[0]):
                    one.first_fit = previous
        return scored


# --- the log ---------------------------------------------------------------------------------

# The fields of a line of a log that hold the result of a combination. The last two may be missing.
RESULT_FIELDS = (
    "scores",
    "score",
    "score_name",
    "rows",
    "details",
    "dropped_after",
    "interrupted_after",
)
# Larger numbers in a log are no scores: their squares overflow.
MAX_LOGGED = 1e150


def logged_results(
    lines: Sequence[Mapping[str, Any]],
) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the fields of `Tried` that hold results, by configuration and digest of the data."""
    found = {}
    for line in lines:
        if _is_complete(line):
            # JSON has null for nan.
            details = {name: nan if one is None else one for name, one in line["details"].items()}
            result = {name: line.get(name) for name in RESULT_FIELDS}
            found[line["configuration"], line["digest"]] = {**result, "details": details}
    return found


def _is_complete(line: Mapping[str, Any]) -> bool:
    """Return whether a line of a log holds a valid result; other programs may have changed it."""
    scores, details = line.get("scores"), line.get("details")
    if not (isinstance(scores, list) and scores and isinstance(details, dict)):
        return False
    numbers = [*scores, line.get("score"), line.get("rows")]
    numbers += [value for value in details.values() if value is not None]
    words = [line.get(name) for name in ("configuration", "digest", "score_name")]
    # JSON readers accept Infinity and integers of any size.
    return all(type(one) in (int, float) and abs(one) <= MAX_LOGGED for one in numbers) and all(
        isinstance(word, str) for word in words
    )
