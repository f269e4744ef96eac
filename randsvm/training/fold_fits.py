"""The fits of the folds of a search, and the tests by which a race drops combinations."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import isnan, sqrt
from threading import Lock
from typing import Any, Generic, NamedTuple, TypeAlias, cast

import numpy as np

from randsvm.events import HEARTBEAT, Waiting, emit
from randsvm.parameters.sgd import SgdParams
from randsvm.parameters.svm import Params
from randsvm.training.cross_validation import CrossValidation, Fold, Keep, KeptValues
from randsvm.training.job import AnyParams, ScoredFit, SearchFit
from randsvm.training.selection import Criterion, FoldScore

# A combination is dropped if its losses exceed those of the best one by this many standard errors
# of the mean paired difference over the rows of the folds so far: one-sided level 1%, by the normal
# distribution.
RACING_DEVIATIONS = 2.326
# A race fits two folds at a time if one fold has fewer chains than this. Combinations that a test
# between the two would drop are then fitted for one more fold.
MIN_CHAINS = 6


class ScoredFolds(NamedTuple):
    """A candidate whose folds are done.

    number: of the candidate
    folds: the score of each fold
    first_fit: the fit from which its folds started; None: there is none
    """

    number: int
    folds: list[FoldScore]
    first_fit: Any


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


# Candidates of one family, in ascending order of C, with the fold that each is fitted for. Each fit
# after the first starts from the one before.
Chain: TypeAlias = "list[tuple[int, int]]"


class FoldFits(Generic[AnyParams]):
    """The fits of all folds of some candidates, each from another fit.

    A family is all candidates that differ in C alone. Each candidate has a first fit, which starts
    from that of the next smaller C. It leaves out the rows of the first fold, and so scores this
    fold: in a race, most candidates need no other fit. In every other fold, the smallest C of a
    family starts from its first fit, and each other C from the same fold of the next smaller C.
    Measured on a9a: from that start, a fold changes half as many coefficients as from the first fit
    with the same C.

    First fits train on all rows in three cases. With only one candidate, the final training starts
    from its first fit. With rows in the order of time, the first fold has few training rows. Under
    a time limit, all folds start from first fits, since every fold must be fast on its own.

    criterion: the score of the search
    races: whether candidates are dropped after some folds
    chained: whether folds start from those of smaller C; False under a time limit
    fitted_folds: the number of folds that each candidate is fitted for, also of those in the log
    """

    def __init__(
        self,
        validation: CrossValidation[AnyParams],
        candidates: Sequence[AnyParams],
        search_fits: Sequence[SearchFit[AnyParams]],
        criterion: Criterion,
        races: bool = False,
        chained: bool = True,
        logged_folds: Mapping[int, int] | None = None,
    ) -> None:
        self.criterion, self.races = criterion, races
        self.validation, self.candidates = validation, candidates
        self.fitted_folds = dict(logged_folds or {})
        # The candidates to score; others are only fitted as starts of these.
        self.scored: set[int] = set()
        suitable = (one for one in search_fits if one.suits(validation.D, candidates))
        self.shared = next(suitable, None)
        starts_from_fits = self.shared is not None and self.shared.starts_from_fits
        # The candidate from whose first fit each candidate starts.
        self.start_of: dict[int, int] = smaller_costs(candidates) if starts_from_fits else {}
        self.chained = starts_from_fits and chained
        # The rows that first fits leave out; None: they are on all rows.
        self.left_out: np.ndarray | None = None
        if self.chained and len(candidates) > 1 and not validation.forward:
            self.left_out = validation.held_out(validation.folds[0])
        self.locks = [Lock() for _ in candidates]
        self.first_fits: dict[int, Any] = {}
        # The number of uses of each first fit that are to come: its folds, and the next larger C.
        self.users: Counter[int] = Counter(self.start_of.values())
        # The seconds of the latest fit of each candidate.
        self.seconds: dict[int, float] = {}

    # --- order -----------------------------------------------------------------------------

    def score(self, indices: Iterable[int]) -> None:
        """Score these candidates in all folds."""
        self.scored = set(indices)
        self.fitted_folds |= dict.fromkeys(self.scored, len(self.validation.folds))
        self.users = Counter([*self.fitted_folds, *self.start_of.values()])

    def chains(self, indices: Sequence[int], folds: Sequence[int]) -> list[Chain]:
        """Return the fits of these candidates for these folds, in the order to make them.

        There are as many families side by side as there are workers.
        """
        families = self._families(indices)
        step = self.validation.at_once if self.shared is not None else 1
        groups = [families[at : at + step] for at in range(0, len(families), step)]
        return [self._chain(one, fold) for group in groups for fold in folds for one in group]

    def next_folds(self, indices: Sequence[int], done: int) -> list[int]:
        """Return the next fold of a race, or the next two, given the number of those done.

        There are two if one has too few chains to keep all workers busy until its end.
        """
        left = self.validation.folds[done:]
        few = len(self._families(indices)) < MIN_CHAINS
        return list(left[: 2 if done and few else 1])

    def waves(self, indices: Sequence[int], folds: Sequence[int]) -> Iterator[list[Chain]]:
        """Yield the fits of these candidates for folds of a race, in waves.

        All fits of a wave run before the next wave is asked for: its order depends on their times.

        A first fit comes in a later wave than the one it starts from. Which ones end early depends
        on the waves before, and so not on the number of workers. In a wave, the fits that are
        expected to take longest come first, so that no worker waits for long at its end.
        """
        if not self._is_of_first_fits(folds[0]):
            chains = self.chains(indices, folds)
            chains.sort(key=lambda chain: self._seconds_of(i for i, _ in chain), reverse=True)
            yield chains
            return
        waves: dict[int, list[int]] = {}
        for index in indices:
            depth, at = 0, index
            while at in self.start_of:
                depth, at = depth + 1, self.start_of[at]
            waves.setdefault(depth, []).append(index)

        def expected_cost(index: int) -> tuple[float, float]:
            # In the first wave, gamma decides: larger values usually have more support vectors.
            start = [self.start_of[index]] if index in self.start_of else []
            gamma = self.candidates[index].gamma
            return self._seconds_of(start), gamma if isinstance(gamma, float) else 0.0

        for depth in sorted(waves):
            wave = sorted(waves[depth], key=expected_cost, reverse=True)
            yield [[(index, folds[0])] for index in wave]

    def _seconds_of(self, indices: Iterable[int]) -> float:
        return sum(self.seconds.get(index, 0.0) for index in indices)

    def _families(self, indices: Sequence[int]) -> list[list[int]]:
        """Return the candidates by family if folds start from each other, else each on its own."""
        if not self.start_of:
            return [[index] for index in indices]
        ascending = sorted(indices, key=lambda index: _cost(self.candidates[index]))
        families: dict[int, list[int]] = {}
        for index in ascending:
            first = index
            while self.chained and first in self.start_of:
                first = self.start_of[first]
            families.setdefault(first, []).append(index)
        return list(families.values())

    def _chain(self, family: Sequence[int], fold: int) -> Chain:
        """Return the fits of a fold that the scores of these candidates need.

        Candidates in the log are fitted again as starts, so that scores do not depend on the log.
        """
        chain, at = [], family[-1]
        if not self.chained:
            return [(at, fold)]
        while True:
            if self.fitted_folds.get(at, 0) > fold:
                chain.append((at, fold))
            if at not in self.start_of:
                return chain[::-1]
            at = self.start_of[at]

    # --- fits ------------------------------------------------------------------------------

    def scores(self, chain: Chain) -> list[tuple[int, int, FoldScore]]:
        """Make the fits of a chain; return the scores of its candidates."""
        found: list[tuple[int, int, FoldScore]] = []
        fit = None
        for index, fold in chain:
            began = time.perf_counter()
            if self.shared is None:
                work = partial(_values, self.criterion.keep)
                values = self.validation.run_fold(work, self.candidates[index], fold)
            else:
                fit = self._fold_fit(index, fold, fit)
                assert fit.f is not None
                values = self._kept_values(self.validation.held_out(fold))(fit.f)
            self.seconds[index] = time.perf_counter() - began
            if index in self.scored:
                score = self.criterion.of_fold(values)
                found.append((index, fold, score if self.races else score.without_losses()))
        return found

    def _kept_values(self, held_out: np.ndarray) -> Callable[[np.ndarray], KeptValues]:
        """Return the function that maps f of the rows held out, (m, K), to what is kept of them.

        held_out : (n,) bool
        """
        D, keep = self.validation.D, self.criterion.keep
        y, weights = D.labels()[held_out], D.weights()
        own = None if weights is None else weights[held_out]
        return lambda f: KeptValues(y, keep(f, y), own)

    def _fold_fit(self, index: int, fold: int, previous: Any) -> ScoredFit:
        """Return the fit of a candidate for a fold. previous: the fit of a smaller C, or None."""
        assert self.shared is not None
        if self._is_of_first_fits(fold):
            return cast(ScoredFit, self.first_fit(index))
        D, validation = self.validation.D, self.validation
        start = self.first_fit(index) if previous is None else previous
        training, held_out = validation.training(fold), validation.held_out(fold)
        return self.shared.fit(D, self.candidates[index], start, training, held_out)

    def _is_of_first_fits(self, fold: int) -> bool:
        """Return whether first fits score this fold."""
        return self.left_out is not None and fold == self.validation.folds[0]

    def first_fit(self, index: int) -> Any:
        """Return the first fit of a candidate; None: there is none.

        The first caller makes it.
        """
        if self.shared is None or not self.shared.starts_from_fits:
            return None
        while not self.locks[index].acquire(timeout=HEARTBEAT):
            emit(Waiting())
        try:
            if index not in self.first_fits:
                start = self.first_fit(self.start_of[index]) if index in self.start_of else None
                D, params, held_out = self.validation.D, self.candidates[index], self.left_out
                training = None if held_out is None else ~held_out
                self.first_fits[index] = self.shared.fit(D, params, start, training, held_out)
                if index in self.start_of:
                    self._release(self.start_of[index])
            return self.first_fits[index]
        finally:
            self.locks[index].release()

    def finish(self, index: int, folds: Mapping[int, FoldScore]) -> ScoredFolds:
        """Return the result of a candidate that needs no more folds, and free its first fit."""
        self.fitted_folds[index] = len(folds)
        first_fit = self.first_fits.get(index)
        self._release(index)
        scores = [folds[fold] for fold in sorted(folds)]
        return ScoredFolds(index, scores, first_fit)

    def _release(self, index: int) -> None:
        self.users[index] -= 1
        if not self.users[index]:
            self.first_fits.pop(index, None)


def smaller_costs(candidates: Sequence[AnyParams]) -> dict[int, int]:
    """Return, for each candidate, the one with the next smaller C that differs in nothing else."""
    groups: dict[Any, list[int]] = {}
    for index, params in enumerate(candidates):
        if isinstance(params, Params):
            groups.setdefault(replace(params, C=1.0), []).append(index)
    found = {}
    for indices in groups.values():
        indices.sort(key=lambda index: _cost(candidates[index]))
        found.update(dict(zip(indices[1:], indices, strict=False)))
    return found


def _cost(params: Params | SgdParams) -> float:
    """Return C of a kernel machine."""
    assert isinstance(params, Params)
    return params.C


def _values(keep: Keep, fold: Fold[AnyParams]) -> KeptValues:
    return fold.values(keep)
