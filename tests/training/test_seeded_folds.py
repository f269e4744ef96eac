"""Test folds that start from a first fit against folds that are trained from nothing."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import oracle
import pytest
from learning import gaussians, learn
from scipy import stats
from scipy.spatial import distance
from task_sets import GAMMA, SETS, open_dataset

from randsvm.parameters.rounds import RandsvmParams, StopParams
from randsvm.parameters.run import Resources, Search
from randsvm.parameters.svm import Params
from randsvm.svm.scan import Scan
from randsvm.training import fold_fits, kernel_machine
from randsvm.training.cross_validation import CrossValidation
from randsvm.training.job import Job
from randsvm.training.labelled_data import LabelledData
from randsvm.training.selection import criterion_of
from randsvm.training.warm_start import SeededStart

TIGHT = 1e-7
TASKS = {
    "svc": ("svc", {}),
    "several": ("several", {}),
    "one against the rest": ("several", {"multiclass": "ovr"}),
    "class weights": ("svc", {"weights": (("-1", 3.0),)}),
    "svr": ("svr", {"task": "svr"}),
    "one-class": ("one-class", {"task": "one-class", "nu": 0.2}),
    "random features": ("svc", {"components": 30}),
}


class FoldsOfSearch(NamedTuple):
    """A cross-validation of three folds, and the fits of a search that start from each other."""

    validation: CrossValidation[Params]
    seeded: kernel_machine.SeededKernelFit
    params: Params

    def values(self, left_out):
        """Return f of the rows of each fold.

        left_out : (n,) bool, the rows of the first fold; None: the first fits are on all rows
        """
        validation, seeded, params = self
        training = None if left_out is None else ~left_out
        half = replace(params, C=params.C / 2)
        start = seeded.fit(validation.D, half, None, training, left_out)
        first_fit = seeded.fit(validation.D, params, start, training, left_out)
        found = [] if first_fit.f is None else [first_fit.f]
        for fold in validation.folds[len(found) :]:
            held = validation.held_out(fold)
            f = seeded.fit(validation.D, params, first_fit, ~held, held).f
            assert f is not None
            found.append(f)
        return found

    def values_from_another_c(self, fold, factor):
        """Return f of the rows of a fold, from the same fold with `factor` times C."""
        validation, seeded, params = self
        held = validation.held_out(fold)
        other = replace(params, C=params.C * factor)
        start = seeded.fit(validation.D, other, None, ~held, held)
        f = seeded.fit(validation.D, params, start, ~held, held).f
        assert f is not None
        return f


@contextmanager
def folds_of_search(tmp_path, name, few_rows):
    kind, given = TASKS[name]
    path = oracle.write_svmlight(tmp_path / "d", *SETS[kind])
    params = Params(**{"gamma": GAMMA, **given})
    job = Job(
        StopParams(gap=TIGHT),
        resources=Resources(jobs=1),
        search=Search(folds=3, search_gap=TIGHT),
    )
    make, params, job = kernel_machine.prepare(
        "randsvm", RandsvmParams(sample_size=None if few_rows else 40), params, job
    )
    with open_dataset(path, kind) as D:
        names = tuple(D.summary.names) if params.prediction_type == "svc" else ()
        trainer = make(LabelledData(D, names, tuple(D.summary.values)), job)
        fit = trainer.for_parts().fit_for_scores
        seeded = trainer.search_fits()[-1]
        assert isinstance(seeded, kernel_machine.SeededKernelFit)
        yield FoldsOfSearch(CrossValidation.of(D, 3, job, fit), seeded, trainer.resolved(params))


@pytest.mark.parametrize("few_rows", [True, False])
@pytest.mark.parametrize("name", TASKS)
def test_decision_values_equal_those_of_folds_from_nothing(tmp_path, monkeypatch, name, few_rows):
    if not few_rows:
        monkeypatch.setattr("randsvm.svm.running_values.FEW_ROWS", 0)
    with folds_of_search(tmp_path, name, few_rows) as folds:
        validation = folds.validation
        all_cold = [
            validation.run_fold(lambda one: one.values(lambda f, y: f).kept, folds.params, fold)
            for fold in validation.folds
        ]
        for left_out in None, validation.held_out(0):
            for found, cold in zip(folds.values(left_out), all_cold, strict=True):
                assert found == pytest.approx(cold, abs=0.01 * float(np.abs(cold).max()))


def test_decision_values_equal_those_of_libsvm_without_the_fold(tmp_path):
    with folds_of_search(tmp_path, "svc", few_rows=False) as folds:
        validation = folds.validation
        y, X = SETS["svc"]
        found = folds.values(validation.held_out(0))
        for fold in validation.folds:
            held = validation.held_out(fold)
            words = f"-c {folds.params.C} -g {GAMMA} -e 1e-6"
            machine = oracle.libsvm_train(y[~held], X[~held], words).model
            f = oracle.libsvm_decisions(machine, X[held])
            close = pytest.approx(f, abs=0.01 * float(np.abs(f).max()))
            assert found[fold][:, 0] == close
            assert folds.values_from_another_c(fold, 1 / 8)[:, 0] == close


# ---- the final model ----------------------------------------------------------------------------

FINAL_SETS = {
    "two classes": (gaussians(800), ("-g", "0.05,0.5")),
    "three classes": (SETS["several"], ("-g", "0.05,0.5")),
    "tight gap": (gaussians(800), ("-g", "0.05,0.5", "--gap", 1e-6)),
    "regression": (SETS["svr"], ("-s", "svr", "-g", "0.05,0.5")),
}


@pytest.mark.parametrize("few_rows", [True, False])
@pytest.mark.parametrize("name", FINAL_SETS)
def test_the_final_training_starts_from_the_fit_of_the_search(
    tmp_path, monkeypatch, name, few_rows
):
    if not few_rows:
        monkeypatch.setattr("randsvm.svm.running_values.FEW_ROWS", 0)
    (y, X), words = FINAL_SETS[name]
    path = oracle.write_svmlight(tmp_path / "d", y, X)
    # With a gap for the search, few rows start from each other's fits as many rows do.
    own = "--sample-size", 60, "--search-gap", 0.01, *words
    found = learn("randsvm", path, tmp_path / "m", "-v", 3, "-c", "1,10,100", *own)
    best = found.of("searched")[0]["tried"][0]["values"]
    task = ("-s", "svr") if "-s" in words else ()
    gap = words[words.index("--gap") :] if "--gap" in words else ()
    chosen = "-c", best["C"], "-g", best["gamma"], "--sample-size", 60, *task, *gap
    cold = learn("randsvm", path, tmp_path / "cold", *chosen)
    (warm_end,), (cold_end,) = found.of("trained"), cold.of("trained")
    # The first round of a cold start has a working set alone, so that most coefficients change.
    assert warm_end["iterations"] < cold_end["iterations"]
    assert warm_end["gap"] <= warm_end["gap_asked"]
    wanted = max(warm_end["gap_asked"], 1e-5) * abs(cold_end["primal"])
    assert warm_end["primal"] == pytest.approx(cold_end["primal"], abs=wanted)
    assert warm_end["dual"] <= cold_end["primal"] * (1 + 1e-6)
    assert cold_end["dual"] <= warm_end["primal"] * (1 + 1e-6)


def test_a_search_from_a_log_ends_with_the_same_model(tmp_path):
    path = gaussians(800).save(tmp_path / "d")
    words = "-v", 3, "-c", "1,10,100", "-g", "0.05,0.5", "--sample-size", 60, "--search-gap", 0.01
    whole = learn("randsvm", path, tmp_path / "m", *words)
    body, log = whole.body, tmp_path / "m.jsonl"
    first_lines = log.read_text().splitlines(keepends=True)
    again = learn("randsvm", path, tmp_path / "m", *words)
    assert all(one["resumed"] for one in again.of("searched")[0]["tried"])
    assert again.body == body
    first = [line for line in first_lines if json.loads(line)["event"] == "tried"][:3]
    log.write_text("".join(first))
    part = learn("randsvm", path, tmp_path / "m", *words)
    tried = part.of("searched")[0]["tried"]
    assert 0 < sum(one["resumed"] for one in tried) < len(tried)
    assert part.body == body
    assert {values_of(one): one["scores"] for one in tried} == {
        values_of(one): one["scores"] for one in whole.of("searched")[0]["tried"]
    }


# ---- racing -------------------------------------------------------------------------------------

SEARCH = ("-v", 4, "-c", "0.01,1,100", "-g", "0.001,0.5,20")


def search(tmp_path, name, *words):
    """Return the `tried` records of a search for SEARCH on rows of two classes, best first.

    Searches of the same name have the same log.
    """
    path = tmp_path / "d"
    if not path.exists():
        gaussians(600).save(path)
    found = learn("randsvm", path, tmp_path / name, *SEARCH, *words)
    (searched,) = found.of("searched")
    return searched["tried"], found


def values_of(record):
    return tuple(record["values"].values())


def test_a_race_drops_significantly_worse_combinations_and_keeps_the_best(tmp_path):
    every, whole = search(tmp_path, "whole", "--no-racing")
    raced, found = search(tmp_path, "raced")
    assert all(one["dropped_after"] is None for one in every)
    kept = [one for one in raced if one["dropped_after"] is None]
    dropped = raced[len(kept) :]
    assert kept
    assert dropped
    scores = {values_of(one): one for one in every}
    for one in raced:
        folds = one["dropped_after"] or 4
        assert len(one["scores"]) == folds
        assert one["scores"] == scores[values_of(one)]["scores"][:folds]
    # A dropped combination is worse on all folds together, too.
    best = max(one["score"] for one in every)
    for one in dropped:
        assert scores[values_of(one)]["score"] < best
    assert kept[0]["score"] == best
    assert found.body == whole.body


class CountedFits(NamedTuple):
    """The fits of a search, by gamma and C: first ones on all rows, and all of them."""

    on_all_rows: Counter[tuple[float, ...]]
    every: Counter[tuple[float, ...]]


@pytest.fixture
def counted_fits(monkeypatch):
    counted = CountedFits(Counter(), Counter())
    solved = kernel_machine.SeededKernelFit._solved

    def counting(self, subtasks, *rest):
        values = float(subtasks.params.gamma or 0), subtasks.params.C
        counted.every[values] += 1
        counted.on_all_rows[values] += subtasks.D.weights() is None
        return solved(self, subtasks, *rest)

    monkeypatch.setattr(kernel_machine.SeededKernelFit, "_solved", counting)
    return counted


# With a gap for the search, few rows start from each other's fits as many rows do.
STARTS_NEAR = ("--sample-size", 60, "--search-gap", 0.01)


def test_a_combination_that_is_dropped_after_one_fold_has_one_fit(tmp_path, counted_fits):
    raced, _ = search(tmp_path, "raced", *STARTS_NEAR)
    dropped = [one["dropped_after"] for one in raced]
    assert 1 in dropped
    assert None in dropped
    assert counted_fits.every == {values_of(one): one["dropped_after"] or 4 for one in raced}
    assert not counted_fits.on_all_rows.total()


def test_each_fold_of_each_combination_is_one_fit(tmp_path, counted_fits):
    tried, _ = search(tmp_path, "m", *STARTS_NEAR, "--no-racing")
    assert counted_fits.every == {values_of(one): 4 for one in tried}
    assert not counted_fits.on_all_rows.total()


def test_forward_folds_start_from_fits_on_all_rows(tmp_path, counted_fits):
    """The first fold trains on a part of the rows only."""
    words = *STARTS_NEAR, "--groups", "time", "--no-racing"
    tried, _ = search(tmp_path, "m", *words)
    in_folds = counted_fits.every - counted_fits.on_all_rows
    assert in_folds == {values_of(one): 4 for one in tried}
    # Besides those of the smallest C, those that lead to the start of the final training.
    (gamma, C), smallest = values_of(tried[0]), min(C for _, C in map(values_of, tried))
    for own_gamma, own in map(values_of, tried):
        expected = (own == smallest) + (own_gamma == gamma and own <= C)
        assert counted_fits.on_all_rows[own_gamma, own] == expected


@pytest.mark.parametrize("racing", [True, False])
def test_a_fold_starts_from_the_same_fold_of_the_next_smaller_c(tmp_path, monkeypatch, racing):
    """Those that are dropped before this fold do not count."""
    fits = {}
    starts = {}
    kept = []
    real = kernel_machine.SeededKernelFit.fit
    folds = {}

    def recording(self, D, params, *given, **others):
        found = real(self, D, params, *given, **others)
        near, _, held_out = given[:3]
        fold = folds.setdefault(held_out.tobytes(), len(folds))
        own = fits[id(found)] = float(params.gamma or 0), params.C, fold
        assert own not in starts
        if near is not None:
            starts[own] = fits[id(near)]
        kept.append(found)
        return found

    monkeypatch.setattr(kernel_machine.SeededKernelFit, "fit", recording)
    words = *STARTS_NEAR, "--jobs", 1, "-c", "0.01,0.1,1,10,100"
    tried, _ = search(tmp_path, "m", *words, *(() if racing else ("--no-racing",)))
    done = {values_of(one): one["dropped_after"] or 4 for one in tried}
    assert len(fits) == sum(done.values())
    for (gamma, C), count in done.items():
        for fold in range(count):
            smaller = [c for (g, c), n in done.items() if g == gamma and c < C and n > fold]
            if smaller:
                assert starts[gamma, C, fold] == (gamma, max(smaller), fold)
            elif fold:
                assert starts[gamma, C, fold] == (gamma, C, 0)
            else:
                assert (gamma, C, 0) not in starts


def test_the_first_fit_of_one_combination_is_on_all_rows(tmp_path, counted_fits):
    search(tmp_path, "m", *STARTS_NEAR, "-c", 1, "-g", 0.5)
    assert counted_fits.on_all_rows == {(0.5, 1.0): 1}
    assert counted_fits.every == {(0.5, 1.0): 5}


def test_the_number_of_jobs_does_not_change_a_race(tmp_path):
    one, _ = search(tmp_path, "one", "--jobs", 1)
    three, _ = search(tmp_path, "three", "--jobs", 3)
    assert [(values_of(a), a["scores"]) for a in one] == [
        (values_of(a), a["scores"]) for a in three
    ]


def test_a_race_continues_where_its_log_ends(tmp_path):
    """Combinations that were dropped stay so, unless all are to be scored or none is better."""
    first, _ = search(tmp_path, "m")
    again, _ = search(tmp_path, "m")
    assert all(one["resumed"] for one in again)
    assert [(values_of(one), one["dropped_after"]) for one in again] == [
        (values_of(one), one["dropped_after"]) for one in first
    ]
    every, _ = search(tmp_path, "m", "--no-racing")
    assert all(one["dropped_after"] is None for one in every)
    assert sum(one["resumed"] for one in every) == sum(
        one["dropped_after"] is None for one in first
    )
    worst = first[-1]["values"]
    alone = learn(
        "randsvm", tmp_path / "d", tmp_path / "m", "-v", 4,
        "-c", worst["C"], "-g", worst["gamma"],
    )  # fmt: skip
    (record,) = alone.of("searched")[-1]["tried"]
    assert record["dropped_after"] is None


def test_candidates_are_dropped_by_the_paired_test_of_scipy():
    rng = np.random.default_rng(3)
    m = 4000
    best = (rng.random(m) < 0.1).astype(np.float32)
    losses = {0: best}
    for index, share in enumerate([0.001, 0.005, 0.01, 0.02, 0.1], 1):
        losses[index] = np.where(rng.random(m) < share, 1, best).astype(np.float32)
    expected = [
        index
        for index, loss in losses.items()
        if index and stats.ttest_rel(loss, best, alternative="greater").pvalue < 0.01
    ]
    assert 0 < len(expected) < len(losses) - 1
    assert fold_fits.significantly_worse(losses, m) == expected
    # Repetitions do not make differences significant.
    twice = {index: np.tile(loss, 2) for index, loss in losses.items()}
    assert fold_fits.significantly_worse(twice, m) == expected


# ---- starts -------------------------------------------------------------------------------------


def dual_objective(name, y, beta):
    """Return D of the coefficients of all rows of a set, by its formula; y: as in the task."""
    _, X = SETS[name]
    K = np.exp(-GAMMA * distance.cdist(X, X, "sqeuclidean"))
    tube = Params().epsilon * np.abs(beta).sum() if name == "svr" else 0.0
    return float(y @ beta - tube - beta @ K @ beta / 2)


@contextmanager
def scan_of(folds, C):
    """Yield a scan of all rows with this C."""
    params = replace(folds.params, C=C)
    task = folds.seeded.trainer._subtasks(folds.validation.D, params)[0]
    scan = Scan(task.D, task.problem, 0)
    yield scan
    scan.forget()


@pytest.mark.parametrize("C", [0.02, 1.0])
@pytest.mark.parametrize("name", ["svc", "svr"])
def test_a_larger_c_starts_from_the_best_multiple_of_a_solution(tmp_path, name, C):
    with folds_of_search(tmp_path, name, few_rows=True) as folds:
        D = folds.validation.D
        (seed,) = folds.seeded.fit(D, replace(folds.params, C=C)).seeds
        assert seed is not None
        saved = np.zeros(D.n)
        saved[seed.state.coefficients.rows] = seed.state.coefficients.beta
        with scan_of(folds, 4 * C) as scan:
            scan.resume(seed)
            y, found, u = scan.D.labels(), scan.beta, scan.u
    best = max(dual_objective(name, y, s * saved) for s in np.linspace(0, 4, 401))
    assert dual_objective(name, y, found) >= best - 1e-6 * abs(best)
    assert np.abs(found).max() <= 4 * C * (1 + 1e-12)
    _, X = SETS[name]
    K = np.exp(-GAMMA * distance.cdist(X, X, "sqeuclidean"))
    assert u == pytest.approx(K @ found, abs=1e-4 * float(np.abs(u).max()))


@pytest.mark.parametrize("name", ["svc", "svr"])
def test_of_rows_that_join_the_share_at_bounds_is_that_of_others(tmp_path, name):
    with folds_of_search(tmp_path, name, few_rows=True) as folds:
        D, C = folds.validation.D, 0.05
        left_out = folds.validation.held_out(0)
        params = replace(folds.params, C=C)
        (seed,) = folds.seeded.fit(D, params, None, ~left_out, left_out).seeds
        assert seed is not None
        with scan_of(folds, C) as scan:
            scan.resume(seed)
            y, before, u = scan.D.labels(), scan.beta, scan.u
            step, _ = SeededStart(seed)(scan, len(y))
    after = before.copy()
    after[step.points.rows] = step.beta
    assert not before[left_out].any()
    assert after.sum() == pytest.approx(0, abs=1e-9)
    assert np.abs(after).max() <= C * (1 + 1e-12)
    assert dual_objective(name, y, after) > dual_objective(name, y, before)
    for group in (y > 0, y <= 0) if name == "svc" else (np.ones(len(y), bool),):
        for bound in -C, C:
            own, others = group & left_out, group & ~left_out
            # One row of each group may repair the sum.
            share = np.mean(before[others] == bound)
            assert abs(np.count_nonzero(after[own] == bound) - share * own.sum()) < 3
        if name == "svr":
            at = after[own] == C
            assert (y - u)[own][at].min() >= (y - u)[own][~at].max()


# ---- fits that end early ------------------------------------------------------------------------


def ended_at(accuracies, best):
    """Return the gap at which a fit ends early; None: it does not.

    accuracies: of the fit, by its gap
    """
    comparison = fold_fits.LossComparison(best, lambda f: f[:, 0].astype(np.float32))
    losses = np.arange(len(best)) / len(best)
    for gap, accuracy in accuracies.items():
        values = (losses >= accuracy).astype(float)[:, None]
        if comparison(gap, lambda values=values: values):  # type: ignore[misc]
            assert comparison.ended
            return gap
    return None


def test_a_fit_ends_early_by_the_standard_error_of_scipy():
    m = 1000
    best = (np.arange(m) / m >= 0.9).astype(np.float32)

    def is_worse(accuracy):
        # The test of McNemar, whose statistic is (b - c) / sqrt(b + c).
        worse = np.count_nonzero((np.arange(m) / m >= accuracy) & (best == 0))
        return bool(np.sqrt(worse) > stats.norm.ppf(0.99))

    accuracies = [0.9 - each / m for each in range(1, 30)]
    expected = [is_worse(accuracy) for accuracy in accuracies]
    assert 0 < sum(expected) < len(expected)
    found = [ended_at(dict.fromkeys((0.4, 0.3, 0.2), accuracy), best) for accuracy in accuracies]
    assert [gap == 0.2 for gap in found] == expected


def test_a_fit_goes_on_while_its_losses_fall_or_its_end_is_near():
    best = (np.arange(1000) / 1000 >= 0.9).astype(np.float32)
    # Two rounds say little of the losses that are to come.
    assert ended_at({0.9: 0.7, 0.3: 0.7, 0.15: 0.7}, best) is None
    assert ended_at({0.9: 0.7, 0.3: 0.7, 0.15: 0.7, 0.14: 0.7}, best) == 0.14
    # Losses changed while the gap fell to a third of 0.42.
    assert ended_at({0.42: 0.7, 0.3: 0.8, 0.2: 0.8, 0.14: 0.8}, best) is None
    assert ended_at({0.43: 0.7, 0.3: 0.8, 0.2: 0.8, 0.14: 0.8}, best) == 0.14
    assert ended_at({0.3: 0.8, 0.2: 0.7, 0.1: 0.8, 0.11: 0.8, 0.06: 0.8}, best) == 0.06
    # Above 20% they may still fall, and below 3% the fit is nearly done.
    assert ended_at({0.6: 0.7, 0.4: 0.7, 0.3: 0.7, 0.21: 0.7}, best) is None
    assert ended_at(dict.fromkeys((0.03, 0.02, 0.015, 0.01), 0.7), best) is None
    assert ended_at(dict.fromkeys((0.3, 0.2, 0.15, 0.07, 0.05), 0.895), best) is None
    assert ended_at(dict.fromkeys((0.3, 0.2, 0.15, 0.07, 0.05), 0.95), best) is None


# Large C and gamma take many rounds, and this set is too noisy for them.
SLOW = (*STARTS_NEAR, "-g", "0.1,10", "-c", "0.1,1,10,100", "-v", 3)


def slow_search(tmp_path, name, *words):
    """Return the `tried` records of a search with slow fits, by values."""
    path = tmp_path / "d"
    if not path.exists():
        gaussians(1500).save(path)
    found = learn("randsvm", path, tmp_path / name, *SLOW, *words)
    (searched,) = found.of("searched")[-1:]
    return {values_of(one): one for one in searched["tried"]}, found


def test_first_fits_end_early_whose_combinations_are_much_worse(tmp_path):
    every, _ = slow_search(tmp_path, "whole", "--no-racing")
    raced, found = slow_search(tmp_path, "raced")
    early = [values for values, one in raced.items() if one["dropped_after"] == 0]
    assert early
    best = max(one["score"] for one in every.values())
    for values in early:
        # The score is of one fold, and of a fit that has not reached the gap.
        assert len(raced[values]["scores"]) == 1
        assert every[values]["score"] < best - 1
        assert raced[values]["scores"][0] == pytest.approx(every[values]["scores"][0], abs=2)
    assert found.of("searched")[0]["tried"][0]["score"] == pytest.approx(best, abs=0.5)
    assert all(one["dropped_after"] is None for one in every.values())


def test_which_fits_end_early_depends_neither_on_jobs_nor_on_a_log(tmp_path):
    one, found = slow_search(tmp_path, "one", "--jobs", 1)
    three, other = slow_search(tmp_path, "three", "--jobs", 3)
    assert other.body == found.body
    again, known = slow_search(tmp_path, "one")
    assert known.body == found.body
    for records in three, again:
        for values, record in records.items():
            assert record["scores"] == one[values]["scores"]
            assert record["dropped_after"] == one[values]["dropped_after"]


@contextmanager
def fits_of_race(tmp_path, gammas):
    """Yield the fits of C = 1, 10 for each of some values of gamma; candidates 2k and 2k + 1."""
    with folds_of_search(tmp_path, "svc", few_rows=False) as (validation, seeded, params):
        values = itertools.product(range(1, gammas + 1), (1.0, 10.0))
        candidates = [replace(params, gamma=float(gamma), C=C) for gamma, C in values]
        criterion = criterion_of(Search(folds=3), params, ["1", "2"])
        fits = fold_fits.FoldFits(validation, candidates, [seeded], criterion, races=True)
        fits.score(range(len(candidates)))
        yield fits


def test_first_fits_that_are_expected_to_take_longest_begin_first(tmp_path):
    """A fit is expected to take as long as the one it starts from, in the wave before.

    In the first wave, larger values of gamma come first.
    """
    with fits_of_race(tmp_path, 3) as fits:
        waves = fits.waves(range(6), [0])
        assert next(waves) == [[(4, 0)], [(2, 0)], [(0, 0)]]
        fits.seconds = {0: 1.0, 2: 3.0, 4: 2.0}
        assert next(waves) == [[(3, 0)], [(5, 0)], [(1, 0)]]
        assert next(waves, None) is None


@pytest.mark.parametrize(("gammas", "expected"), [(5, [1, 2]), (6, [1])])
def test_a_race_fits_two_folds_at_a_time_if_one_has_few_chains(tmp_path, gammas, expected):
    with fits_of_race(tmp_path, gammas) as fits:
        every = range(2 * gammas)
        assert fits.next_folds(every, 0) == [0]
        assert fits.next_folds(every, 1) == expected
        assert fits.next_folds(every, 2) == [2]
        (wave,) = fits.waves(every, expected)
        assert sorted(wave) == sorted(
            [(2 * k, fold), (2 * k + 1, fold)] for k in range(gammas) for fold in expected
        )


def test_first_fits_are_compared_with_the_best_of_smaller_c(tmp_path, monkeypatch):
    """So the order in which workers end does not matter."""
    compared = {}
    comparison = fold_fits.FoldFits._loss_comparison

    def recording(self, index):
        params = self.candidates[index]
        if self.best_losses is not None:
            own = float(params.gamma or 0), params.C
            compared[own] = 100 * (1 - float(self.best_losses.mean()))
        return comparison(self, index)

    monkeypatch.setattr(fold_fits.FoldFits, "_loss_comparison", recording)
    tried, _ = slow_search(tmp_path, "m", "--jobs", 1)
    first_scores = {values: one["scores"][0] for values, one in tried.items()}
    smallest = min(C for _, C in tried)
    assert compared.keys() == {values for values in tried if values[1] > smallest}
    for (_, C), best in compared.items():
        smaller = [score for values, score in first_scores.items() if values[1] < C]
        assert best == pytest.approx(max(smaller), abs=1e-3)


def test_the_final_training_does_not_start_from_a_fit_after_one_that_ended_early(
    tmp_path, monkeypatch
):
    """Such a fit cannot be made again from a log."""
    comparison = fold_fits.FoldFits._loss_comparison

    def ending(self, index):
        found = comparison(self, index)
        if found is not None and self.candidates[index].C == 0.2:
            found.ended = True
        return found

    monkeypatch.setattr(fold_fits.FoldFits, "_loss_comparison", ending)
    path = gaussians(800).save(tmp_path / "d")
    words = "-v", 3, "-g", 0.001, "-c", "0.02,0.2,50", *STARTS_NEAR
    found = learn("randsvm", path, tmp_path / "m", *words)
    (searched,) = found.of("searched")
    assert searched["tried"][0]["values"]["C"] == 50
    assert [one["dropped_after"] for one in searched["tried"]].count(0) == 1
    again = learn("randsvm", path, tmp_path / "m", *words)
    assert again.body == found.body
    cold = learn("randsvm", path, tmp_path / "cold", "-g", 0.001, "-c", 50, *STARTS_NEAR[:2])
    assert found.of("trained")[0]["iterations"] == cold.of("trained")[0]["iterations"]
