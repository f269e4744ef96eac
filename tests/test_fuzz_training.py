"""Random small trainings beside an exact optimum: a share of `make fuzz`; see optima.py."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import optima
import oracle
import pytest

# Without those that the time limit ends; every fourth is of a nu task, and some more of these.
CASES = [number for number in [*range(26), *range(31, 60, 4)] if number not in (16, 18)]


@pytest.mark.parametrize("number", CASES)
def test_a_random_training_tells_the_truth_and_reaches_its_gap_or_says_so(tmp_path, number):
    optima.check(optima.case_of(1, number), tmp_path)


@pytest.mark.parametrize("C", [0.01, 1.0, 100.0])
def test_the_oracle_encloses_the_optimum_narrowly(C):
    """LIBSVM's D is below its upper end, and at its lower one but for LIBSVM's tolerance."""
    y, X = oracle.two_gaussians(80)
    case = replace(
        optima.case_of(0, 0), y=y, X=X, task="svc", kernel="rbf", gamma=0.5, bounds=(C, C),
        epsilon=0.0, share=0.5,
    )  # fmt: skip
    best = optima.optimum(case, case.kernel_values(X, X))
    found = oracle.libsvm_train(y, X, f"-g 0.5 -c {C} -e 1e-9").dense(80)
    D = oracle.objectives(y, oracle.kernel_matrix("rbf", X, X, 0.5) @ found, found, 0.0, C).dual
    assert best.most - best.least <= 1e-8 * best.most
    assert best.least * (1 - 1e-6) <= D <= best.most


WRONG = {
    "primal": (1 - 1e-5, "P .* reported, of the model"),
    "dual": (10, "D .* above the optimum"),
    "violators": (0, "violators reported"),
    "rho": (1.01, "P .* reported, of the model"),
}


@pytest.mark.parametrize("key", WRONG)
def test_a_wrong_number_is_found(tmp_path, monkeypatch, key):
    y, X = oracle.two_gaussians(80)
    words = ("-q", "-g", "0.5", "--gap", "0.01", "--max-iterations", "1", "--sample-size", "20")
    case = replace(
        optima.case_of(0, 0), y=y, X=X, algorithm="randsvm", task="svc", kernel="rbf", gamma=0.5,
        bounds=(1.0, 1.0), epsilon=0.0, gap=0.01, tolerance=1e-3, words=words,
    )  # fmt: skip
    assert optima.check(case, tmp_path)
    factor, complaint = WRONG[key]
    plain = optima.read

    def read(path, case):
        written = plain(path, case)
        if key == "rho":
            return written._replace(b=written.b * factor)
        changed = {key: repr(type(factor)(float(written.facts[key]) * factor))}
        return written._replace(facts={**written.facts, **changed})

    monkeypatch.setattr(optima, "read", read)
    with pytest.raises(optima.WrongError, match=complaint):
        optima.check(case, tmp_path)


def test_a_silent_miss_of_the_gap_is_found():
    case = replace(optima.case_of(0, 0), gap=0.01)
    assert not list(optima.silence(case, 0.009, {"stopped": "gap <= 0.01"}, []))
    for stopped in ("gap <= 0.01", "no violators"):
        assert list(optima.silence(case, 0.011, {"stopped": stopped}, []))
    assert not list(optima.silence(case, 0.011, {"stopped": "time limit"}, []))


@pytest.mark.parametrize("task", ["svc", "svr", "one-class", "nu-svr"])
def test_a_coefficient_out_of_its_box_and_a_sum_that_is_off_are_found(task):
    case = next(c for c in (optima.case_of(2, n) for n in range(99)) if c.task == task)
    lower, upper = case.box
    middle = (lower + upper) / 2
    right = np.full(len(lower), case.total / len(lower)) if case.total else middle - middle.mean()
    assert task == "svc" or not list(optima.infeasible(case, right))
    assert any("bound" in wrong for wrong in optima.infeasible(case, upper * (1 + 1e-9)))
    assert any("sum" in wrong for wrong in optima.infeasible(case, right + 1e-3 * upper))
    halves = np.where(np.arange(len(upper)) % 2, upper, -upper)
    if task == "nu-svr":
        assert any("sum |beta|" in wrong for wrong in optima.infeasible(case, halves))
