"""The judge of certificates: hand-computed cases, LIBSVM's optima, and planted lies."""

from dataclasses import asdict, dataclass
from decimal import Decimal
from fractions import Fraction

import exact_judge
import numpy as np
import pytest
from exact_judge import Interval, Kernel, Machine, Rows


def rows_of(lines):
    """Return rows of a label, a weight and values."""
    X = np.array([[Decimal(v) for v in values] for *_, values in lines], dtype=object)
    return Rows([label for label, *_ in lines], np.array([Fraction(w) for _, w, _ in lines]), X)


def machine_of(beta, Z, b):
    return Machine(Z, np.array([Fraction(v) for v in beta]), Fraction(b), ["1", "-1"])


# x = 1, -1, 3 with y = 1, -1, -1, weights 1, 2, 1/2; w = 1/2 at b = 1/4: f = 3/4, -1/4, 7/4.
LINE = rows_of([("+1", "1", ["1"]), ("-1", "2", ["-1"]), ("-1", "0.5", ["3"])])
HALVES = machine_of(["0.25", "-0.25"], LINE.X[:2], "0.25")
# task, numbers, P, D of coefficients 1/4, -1/4, 0
BY_HAND = {
    # losses 1/4, 3/4, 11/4 times 2 C_i = 2, 4, 1
    "svc": ({"C": 2}, Fraction(1, 8) + Fraction(25, 4), Fraction(1, 2) - Fraction(1, 8)),
    # class -1 costs three times as much
    "weighted": (
        {"C": 2, "class_weights": {"-1": 3}},
        Fraction(1, 8) + Fraction(1, 2) + 3 * Fraction(23, 4),
        Fraction(3, 8),
    ),
    # |y - f| = 1/4, 3/4, 11/4, less 1/4: 0, 1/2, 5/2; sum y beta - eps sum |beta| = 3/8
    "svr": (
        {"C": 2, "epsilon": "0.25"},
        Fraction(1, 8) + Fraction(2) + Fraction(5, 2),
        Fraction(3, 8) - Fraction(1, 8),
    ),
    # size 2 x 1/2 x 3.5 = 3.5: the bounds are 2, 4, 1, so the tube is 3/4, outside is 11/4
    "nu-svr": (
        {"C": 2, "nu": "0.5"},
        Fraction(1, 8) + Fraction(7, 2) * Fraction(3, 4) + 2,
        Fraction(1, 2) - Fraction(1, 8),
    ),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_p_and_d_are_those_computed_by_hand(name):
    numbers, P, D = BY_HAND[name]
    problem = exact_judge.problem_of(
        LINE, "svc" if name == "weighted" else name, ["1", "-1"], **numbers
    )
    judged = exact_judge.objective(problem, Kernel("linear"), LINE, HALVES)
    assert judged == Interval(P, P)
    judged = exact_judge.dual_objective(problem, Kernel("linear"), LINE, HALVES)
    assert judged == Interval(D, D)


def test_p_and_d_of_novelty_detection_are_those_computed_by_hand():
    """total 7/4; rho = 1/4: u = 1/2, -1/2, 3/2, so only the row of weight 2 loses 3/4."""
    problem = exact_judge.problem_of(LINE, "one-class", nu="0.5")
    machine = machine_of(["0.25", "-0.25"], LINE.X[:2], "-0.25")
    P = Fraction(1, 8) - Fraction(7, 16) + Fraction(3, 2)
    assert exact_judge.objective(problem, Kernel("linear"), LINE, machine) == Interval(P, P)
    feasible = machine_of(["0.75", "1"], LINE.X[:2], "0")
    D = -Fraction(1, 32)
    assert exact_judge.dual_objective(problem, Kernel("linear"), LINE, feasible) == Interval(D, D)


def test_values_that_are_no_kernel_may_have_a_form_below_0():
    """The values of one pair are 1.02 and 1.01, those of the rows with themselves 1."""
    rows = rows_of([("+1", "1", ["1", "1.02"]), ("-1", "1", ["1.01", "1"])])
    machine = machine_of(["1", "-1"], np.array([[Decimal(1)], [Decimal(2)]], dtype=object), "0")
    problem, kernel = exact_judge.problem_of(rows, "svc", ["1", "-1"], C=1), Kernel("precomputed")
    # u = -0.02, 0.01, so losses of 1.02 and 1.01; |w|^2 = -0.03.
    P = Fraction("-0.015") + Fraction("2.03")
    assert exact_judge.objective(problem, kernel, rows, machine) == Interval(P, P)
    D = 2 - Fraction("-0.015")
    assert exact_judge.dual_objective(problem, kernel, rows, machine) == Interval(D, D)


SHIFTS = [Decimal("1.5"), Decimal("3")]
SCALINGS = {
    "standard": (
        {"features": "1-2", "scale_shift": SHIFTS, "scale_factor": [Decimal("0.1"), Decimal(2)]},
        [[Fraction(3, 20), Fraction(2)], [Fraction(-3, 20), Fraction(-6)]],
    ),
    "minmax": (
        {"features": "2", "scale_factor": [Decimal("0.25")]},
        [[Fraction(0), Fraction(1)], [Fraction(0), Fraction(0)]],
    ),
    "unit": ({}, [[Fraction(3, 5), Fraction(4, 5)], [Fraction(0), Fraction(0)]]),
}


@pytest.mark.parametrize("name", SCALINGS)
def test_scaled_rows_are_those_computed_by_hand(name):
    lines, expected = SCALINGS[name]
    rows = rows_of([("1", "1", ["3", "4"]), ("-1", "1", ["0", "0"])])
    found = exact_judge.scaled(rows, {"scale": name, **lines})
    assert found.X.tolist() == expected
    assert found.scaled == pytest.approx(np.array(expected, float))


def test_coefficients_of_equal_rows_go_where_d_rises_most():
    """Targets 3 and 1, weights 1 and 2, and a third row; the sum 1.5 fills the higher target."""
    rows = rows_of([("3", "1", ["1"]), ("1", "2", ["1"]), ("0", "2", ["0"])])
    problem = exact_judge.problem_of(rows, "svr", epsilon="0.5")
    machine = machine_of(["1", "0.5", "-1.5"], rows.X[[0, 1, 2]], "0")
    beta, unknown = exact_judge.coefficients(problem, rows, machine)
    assert (beta.tolist(), unknown) == ([1, Fraction(1, 2), Fraction(-3, 2)], 0)
    assert exact_judge.feasible(problem, beta).tolist() == beta.tolist()
    assert sum(exact_judge.feasible(problem, 3 * beta)) == 0


@pytest.mark.parametrize("kernel", ["rbf", "poly"])
def test_each_arithmetic_encloses_the_exact_sums(kernel):
    rng = np.random.default_rng(3)
    X = np.array([[Decimal(f"{v:.7g}") for v in x] for x in rng.normal(100, 30, (40, 3))])
    beta = np.array([Fraction(f"{v:.17g}") for v in rng.normal(0, 1e6, 40)])
    chosen = Kernel(kernel, Fraction("0.0007"), Fraction(1), 3)
    exact = exact_judge.sums(chosen, X, X, beta, "exact")
    for arithmetic, share in (("double", 1e-9), ("double-double", 1e-24)):
        found = exact_judge.sums(chosen, X, X, beta, arithmetic)
        for one, other, r, s in zip(
            found.centres, exact.centres, found.radii, exact.radii, strict=True
        ):
            assert abs(one - other) <= Fraction(r) + Fraction(s)
            assert r <= share * 1e6 * 40 * (1e9 if kernel == "poly" else 1)


@dataclass
class Stated:
    primal: float
    dual: float
    gap: float
    primal_error: float = 0.0
    dual_error: float = 0.0


def gap_of(primal, dual):
    return (primal - dual) / max(abs(primal), abs(dual))


# P of the machine is 6.375, P of w = 0 is 4 at b = -1, D of its coefficients is 0.375.
LIES = {
    "": Stated(6.375, 0.375, gap_of(6.375, 0.375)),
    "P 6.374 said, 6.375 of the model": Stated(6.374, 0.375, gap_of(6.374, 0.375)),
    "D 6.1 said, a machine has P 4": Stated(6.375, 6.1, gap_of(6.375, 6.1)),
    "gap 0.9 said, 0.941176 by P and D": Stated(6.375, 0.375, 0.9),
    "gap 0.91 said, 0.941176 by P and D": Stated(6.375, 0.375, 0.91, 0.1, 0.1),
}


@pytest.mark.parametrize("complaint", LIES)
def test_a_lie_is_found_and_the_truth_is_not_called_one(tmp_path, complaint):
    data, model = tmp_path / "data", tmp_path / "model"
    data.write_text("+1 1:1\n-1 cost:2 1:-1\n-1 cost:0.5 1:3\n")
    model.write_text(
        "svm_type c_svc\nkernel_type linear\nnr_class 2\ntotal_sv 2\nrho -0.25\nlabel 1 -1\n"
        "nr_sv 1 1\nSV\n0.25 1:1\n-0.25 1:-1\n# randsvm format 2\n"
    )
    verdict = exact_judge.judge(data, model, asdict(LIES[complaint]), "svc", C=2)
    assert verdict.wrong == ([complaint] if complaint else [])
    assert verdict.doubt == 0
    covered = {**asdict(LIES[complaint]), "primal_error": 10.0, "dual_error": 10.0, "gap": 99.0}
    verdict = exact_judge.judge(data, model, covered, "svc", C=2)
    assert not verdict.wrong
    assert exact_judge.judge(data, model, {**covered, "certificate": "none"}, "svc", C=2) is None
