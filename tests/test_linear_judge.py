"""Certificates of random linear trainings, judged by exact arithmetic; the judge by hand."""

from fractions import Fraction
from math import exp, log

import exact_judge
import linear_judge
import numpy as np
import oracle
import pytest
from linear_judge import WrongError

from randsvm import Arrays, api, check


@pytest.mark.parametrize("l1", [False, True])
@pytest.mark.parametrize("number", (*range(5, 21), 1))
def test_an_exact_judge_confirms_the_certificate_of_a_linear_machine(tmp_path, number, l1):
    linear_judge.certified(linear_judge.case_of(1, number, l1), tmp_path)


@pytest.mark.parametrize("loss", (*linear_judge.LOSSES, *linear_judge.LOSSES_OF_SVR))
def test_a_small_c_has_a_true_certificate(tmp_path, loss):
    """Coefficients are at most about C, whose square is below the smallest float64 number."""
    rng, C = np.random.default_rng(1), "1e-170"
    X = rng.normal(size=(40, 3)).round(3)
    y = np.where(X[:, 0] + rng.normal(size=40) > 0.5, 1.0, 2.0)
    task = ["-s", "svr", "-p", "0.1"] if "epsilon" in loss else []
    words = "-q", "-c", C, "--gap", "0.001", "--loss", loss, *task
    case = linear_judge.Case(y, X, None, loss, True, C, "0.1", {}, 0.001, words)
    assert linear_judge.certified(case, tmp_path)
    data, model, proof = (str(tmp_path / name) for name in ("data", "model", "proof"))
    assert check.check([data], model, certificate=proof)[0] == check.VERIFIED


@pytest.mark.parametrize("far", [[1999], range(500, 3000, 7)])
def test_coefficients_whose_part_of_c_underflows_add_nothing_to_d(far):
    """A row of the others is so far on its side that exp(-f) is the least number above 0."""
    X = np.concatenate([np.ones(101), far])[:, None]
    y = np.concatenate([np.ones(60), -np.ones(41), np.ones(len(far))])
    options = {"penalty": "l1", "loss": "log", "C": 10.0, "gap": 1e-3, "no_bias": True}
    found = api.train(Arrays(X, y), algorithm="sgd", **options).outcome
    assert found.certificate == "proven"
    assert found.primal * 0.999 <= found.dual <= found.primal * (1 + 1e-9)


@pytest.mark.fuzz
@pytest.mark.parametrize("l1", [False, True])
@pytest.mark.parametrize("number", range(1000))
def test_an_exact_judge_confirms_many_certificates_of_linear_machines(
    tmp_path, fuzz_seed, results, number, l1
):
    """A case is repeated by its seed, number and penalty."""
    ended = "false"
    try:
        ended = linear_judge.certified(linear_judge.case_of(fuzz_seed, number, l1), tmp_path)
    finally:
        with (results / "certificates.txt").open("a") as lines:
            lines.write(f"linear-{fuzz_seed}-{number}{'-l1' * l1}\t{ended}\n")


def logistic(z):
    return log(1 + exp(-z))


def entropy(p):
    return -p * log(p) - (1 - p) * log(1 - p)


# x = 1, -1, 3 with y = 1, -1, -1 and C_i = 2, 4, 1; w = 1/2 and b = 1/4: y f = 3/4, 1/4, -7/4.
# D of the coefficients 1/4, -1/4, 0, whose w is 1/2 as well.
BY_HAND = {
    "hinge": (Fraction(1, 8) + Fraction(25, 4), Fraction(1, 2) - Fraction(1, 8)),
    "squared-hinge": (
        Fraction(1, 8) + Fraction(2 * 1 + 4 * 9 + 121, 16),
        Fraction(1, 2) - Fraction(1, 8) - Fraction(1, 16) * (Fraction(1, 8) + Fraction(1, 16)),
    ),
    "log": (
        1 / 8 + 2 * logistic(3 / 4) + 4 * logistic(1 / 4) + logistic(-7 / 4),
        2 * entropy(1 / 8) + 4 * entropy(1 / 16) - 1 / 8,
    ),
    # |y - f| = 1/4, 3/4, 11/4, less 1/4
    "epsilon-insensitive": (
        Fraction(1, 8) + 4 * Fraction(1, 2) + Fraction(5, 2),
        Fraction(1, 2) - Fraction(1, 8) - Fraction(1, 8),
    ),
}


@pytest.mark.parametrize("l1", [False, True])
@pytest.mark.parametrize("loss", BY_HAND)
def test_p_and_d_of_linear_machines_are_those_computed_by_hand(tmp_path, loss, l1):
    data = tmp_path / "data"
    data.write_text("+1 1:1\n-1 cost:2 1:-1\n-1 cost:0.5 1:3\n")
    case = linear_judge.case_of(1, 0)._replace(
        loss=loss, bias=True, C="2", epsilon="0.25", class_weights={}, l1=l1
    )
    w, beta = (
        np.array([Fraction(v) for v in values]) for values in (["1/2"], ["1/4", "-1/4", "0"])
    )
    label = None if "epsilon" in loss else "1"
    machine = linear_judge.Machine(w, Fraction(1, 4), label)
    rows = exact_judge.read_rows(data)
    # |w|_1 = 1/2 takes the place of 1/2 w^2 = 1/8 in P, and 0 in D.
    P, D = BY_HAND[loss]
    known_ones = (P + Fraction(3, 8), D + Fraction(1, 8)) if l1 else (P, D)
    for found, known in zip(
        linear_judge.objectives(case, rows, machine, beta), known_ones, strict=True
    ):
        assert abs(float(found.least) - float(known)) < 1e-12
        assert abs(float(found.most) - float(known)) < 1e-12
    with pytest.raises(WrongError, match="sum"):
        linear_judge.objectives(case, rows, machine, beta * [2, 1, 1])
    if l1:
        # The feature has the product 1/2 with the coefficients.
        ends = [linear_judge.objectives(case, rows, machine, beta * m)[1] for m in (2, 3)]
        assert ends[0] == ends[1]


LIES = {
    "P ": ("primal", lambda P: P * (1 - 1e-9)),
    "P at least": ("primal", lambda P: P * (1 + 1e-9)),
    "D ": ("dual", lambda D: D + 1e-8 * abs(D)),
    "gap ": ("gap", lambda gap: gap * 0.9),
}


@pytest.mark.parametrize("complaint", LIES)
def test_a_lie_about_a_linear_machine_is_found(tmp_path, complaint):
    case = linear_judge.case_of(1, 5)
    assert linear_judge.certified(case, tmp_path)
    model, (key, change) = tmp_path / "model", LIES[complaint]
    stated = float(oracle.trailer(model)[key])
    lines = [f"# randsvm {key} {number!r}\n" for number in (stated, change(stated))]
    assert lines[0] in model.read_text()
    model.write_text(model.read_text().replace(*lines))
    found = linear_judge.contradictions(case, tmp_path / "data", model, tmp_path / "proof", [])
    assert any(one.startswith(complaint) for one in found)
