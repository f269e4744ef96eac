"""Pairs of classes of a few rows: the certificate of each one is judged by exact arithmetic."""

import ctypes
import itertools
import signal
import threading
from contextlib import nullcontext
from fractions import Fraction

import exact_judge
import numpy as np
import oracle
import pytest
from libsvm import svm, svmutil
from trainings import certificates_of_small_pairs

from randsvm import api
from randsvm.errors import Interrupted
from randsvm.events import Iteration, Progress

# Options of each case, C of each class in exact numbers, and the spread of the rows.
CASES = {
    "apart": ({"C": 10, "gamma": 1.0}, {}, 0.2),
    "overlapping": ({"C": 10, "gamma": 1.0}, {}, 2.0),
    "class weights": (
        {"C": 2, "gamma": 0.5, "weights": {"1": 5, "3": 0.25}},
        {1: "5", 3: "0.25"},
        1.0,
    ),
    "narrow": ({"C": 1000, "gamma": 100.0}, {}, 1.0),
    "wide": ({"C": 0.01, "gamma": 0.001}, {}, 1.0),
    "tiny gap": ({"C": 10, "gamma": 1.0, "gap": 1e-8}, {}, 1.0),
    "large numbers": ({"C": 10, "gamma": 1e-8}, {}, 1e4),
}


def classes_of_few_rows(spread):
    """Rows of 12 classes, of 1 to 6 rows each; two classes have equal rows."""
    rng = np.random.default_rng(3)
    y = np.repeat(np.arange(1, 13), [1, 1, 2, 3, 6, 2, 4, 5, 1, 2, 2, 3])
    X = (rng.normal(size=(13, 3))[y] + spread * rng.normal(size=(len(y), 3))).round(3)
    X[y == 11] = X[y == 10]
    order = rng.permutation(len(y))
    return y[order], X[order]


def pair_of(text, i, j):
    """Return the lines of the model of one pair from those of all pairs."""
    head, _, rest = text.partition("\nSV\n")
    named = dict(line.split(" ", 1) for line in head.splitlines())
    labels, counts = named["label"].split(), list(map(int, named["nr_sv"].split()))
    classes = np.repeat(np.arange(len(labels)), counts)
    number = list(itertools.combinations(range(len(labels)), 2)).index((i, j))
    lines = ["svm_type c_svc", "kernel_type rbf", f"gamma {named['gamma']}", "nr_class 2"]
    lines += [f"rho {named['rho'].split()[number]}", f"label {labels[i]} {labels[j]}", "SV"]
    for which, line in zip(classes, rest.splitlines(), strict=False):
        words = line.split()
        if which in (i, j) and float(words[j - 1 if which == i else i]):
            lines.append(" ".join([words[j - 1 if which == i else i], *words[len(labels) - 1 :]]))
    return "\n".join([*lines, ""])


@pytest.mark.parametrize("case", CASES)
def test_each_pair_has_a_true_certificate(case, tmp_path, monkeypatch):
    options, weights, spread = CASES[case]
    y, X = classes_of_few_rows(spread)
    data, model, events = oracle.write_svmlight(tmp_path / "data", y, X), tmp_path / "m", []
    at_once = certificates_of_small_pairs(monkeypatch)
    fitted = api.train(data, model, watch=events.append, **options)
    trailer = oracle.trailer(model)
    gap = options.get("gap", 0.001)
    assert trailer["certificate"] == "proven" and trailer["largest_gap"] <= gap
    last = at_once | {one.machine: one for one in events if isinstance(one, Iteration)}
    labels = list(map(int, fitted.model.labels))
    totals = np.zeros(2)
    for i, j in itertools.combinations(range(len(labels)), 2):
        a, b = labels[i], labels[j]
        own = (y == a) | (y == b)
        oracle.write_svmlight(tmp_path / "pair", y[own], X[own])
        (tmp_path / "one").write_text(pair_of(model.read_text(), i, j))
        found = last[f"+{a} / +{b}"]
        totals += found.primal, found.dual
        rows = exact_judge.read_rows(tmp_path / "pair")
        kernel, machine = exact_judge.read_model(tmp_path / "one", 3)
        numbers = {
            "C": str(options["C"]),
            "class_weights": {str(k): weights.get(k, "1") for k in (a, b)},
        }
        problem = exact_judge.problem_of(rows, "svc", machine.labels, **numbers)
        size = max(abs(Fraction(found.primal)), abs(Fraction(found.dual)))
        P = exact_judge.enclosed(problem, kernel, rows, machine, size / 10**12)
        D = exact_judge.dual_objective(problem, kernel, rows, machine, "exact")
        best, rounding = min(P.most, exact_judge.zero_machine(problem).most), size / 10**15
        # The errors of all pairs are at least that of one.
        assert P.least <= Fraction(found.primal) + Fraction(trailer["primal_error"]) + rounding
        assert Fraction(found.dual) - Fraction(trailer["dual_error"]) - rounding <= best
        assert P.least - D.most <= (Fraction(found.gap) + Fraction(1, 10**12)) * size
    assert totals == pytest.approx([trailer["primal"], trailer["dual"]], rel=1e-9)


def test_violators_of_all_pairs_are_counted(tmp_path):
    """With a tolerance below that of the solver."""
    y, X = classes_of_few_rows(1.0)
    data, events, C, tolerance = oracle.write_svmlight(tmp_path / "data", y, X), [], 10, 1e-7
    given = {"C": C, "gamma": 1.0, "tolerance": tolerance, "watch": events.append}
    model = api.train(data, **given).model
    rounds = [one for one in events if isinstance(one, Iteration)]
    K, labels, kinds = oracle.kernel_matrix("rbf", X, X, 1.0), list(map(int, model.labels)), set()
    violators = bounded = rows = 0
    for k, (i, j) in enumerate(itertools.combinations(range(len(labels)), 2)):
        beta = np.zeros(len(y))
        for own, column in ((i, j - 1), (j, i)):
            of_class = model.class_of == own
            beta[model.support[of_class]] = model.beta[of_class, column]
        sign = np.where(y == labels[i], 1, np.where(y == labels[j], -1, 0))
        z, alpha = 1 - sign * (K @ beta + model.b[k]), np.abs(beta)
        rises = (sign != 0) & (alpha < C) & (z > tolerance)
        falls = (alpha > 0) & (-z > tolerance)
        violators += np.count_nonzero(rises | falls)
        bounded += np.count_nonzero(alpha == C)
        rows += np.count_nonzero(sign)
        kinds |= {("rises", rises.any()), ("falls", falls.any()), ("bounded", (alpha == C).any())}
    assert {("rises", True), ("falls", True), ("bounded", True)} <= kinds
    assert sum(one.violators for one in rounds) == violators
    assert sum(one.bounded for one in rounds) == bounded
    assert sum(one.working_set for one in rounds) == rows
    assert len(rounds) < k  # many pairs are one round


def test_rows_at_the_bounds_of_their_own_classes_are_counted(tmp_path):
    """Each pair has two bounds, C times the weights of its classes."""
    options, weights, spread = CASES["class weights"]
    y, X = classes_of_few_rows(spread)
    data = oracle.write_svmlight(tmp_path / "data", y, X)
    fitted = api.train(data, tmp_path / "m", **options)
    head, _, rest = (tmp_path / "m").read_text().partition("\nSV\n")
    named = dict(line.split(" ", 1) for line in head.splitlines())
    labels = np.repeat(named["label"].split(), list(map(int, named["nr_sv"].split())))
    at_bound = 0
    for label, line in zip(labels, rest.splitlines(), strict=False):
        bound = options["C"] * float(weights.get(int(label), 1))
        coefficients = map(float, line.split()[: len(set(labels)) - 1])
        at_bound += any(abs(one) == bound for one in coefficients)
    assert 0 < fitted.outcome.bounded == at_bound < len(y)


@pytest.mark.parametrize("spread", [0.2, 1.0])
def test_decision_values_are_those_of_libsvm(spread, tmp_path):
    y, X = classes_of_few_rows(spread)
    data = oracle.write_svmlight(tmp_path / "data", y, X)
    fitted = api.train(data, C=10, gamma=1.0, gap=1e-6)
    peer = svmutil.svm_train(y.tolist(), X.tolist(), "-q -c 10 -g 1 -e 1e-8")
    _, _, values = svmutil.svm_predict([0] * len(y), X.tolist(), peer, "-q")
    f, columns = fitted.decision_function(X), np.array(values)
    order = {label: k for k, label in enumerate(peer.get_labels())}
    pairs = {pair: k for k, pair in enumerate(itertools.combinations(range(len(order)), 2))}
    for k, (a, b) in enumerate(itertools.combinations(map(int, fitted.model.labels), 2)):
        i, j = order[a], order[b]
        own = np.isin(y, (a, b))
        expected = columns[:, pairs[min(i, j), max(i, j)]] * (1 if i < j else -1)
        assert np.allclose(f[own, k], expected[own], atol=1e-3)


@pytest.mark.parametrize("ends", ["time", "signal"])
def test_pairs_before_one_that_libsvm_holds_are_in_the_model(ends, tmp_path, monkeypatch):
    """LIBSVM does not return from the second pair before the model is written."""
    y, X = classes_of_few_rows(1.0)
    data, is_over, calls = oracle.write_svmlight(tmp_path / "data", y, X), threading.Event(), []
    function = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
    actual = function(("svm_train", svm.libsvm))

    @function
    def svm_train(problem, parameter):
        calls.append(problem)
        if len(calls) == 2:
            is_over.wait(60)
        return actual(problem, parameter)

    def watch(event):
        if isinstance(event, Progress) and len(calls) == 2 and ends == "signal":
            raise Interrupted(signal.SIGTERM)

    monkeypatch.setattr(svm.libsvm, "svm_train", svm_train)
    others = set(threading.enumerate())
    given = {"C": 10, "gamma": 1.0, "time_limit": 3 if ends == "time" else None}
    stops = pytest.raises(Interrupted) if ends == "signal" else nullcontext()
    try:
        with stops:
            api.train(data, tmp_path / "m", watch=watch, **given)
    finally:
        made = len(calls)
        is_over.set()
        # The thread goes on to further pairs by this function, which ends with this test.
        for thread in set(threading.enumerate()) - others:
            thread.join(60)
    assert made == 2
    assert oracle.trailer(tmp_path / "m")["largest_gap"] > 0.5
    # One pair has support vectors.
    assert "\ntotal_sv 2\n" in (tmp_path / "m").read_text()
