"""Test that the gap of a trailer holds for the numbers of the file, rounding included."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import oracle
import pytest
import random_problems
from commands import run_train
from sizes import MANY_ROWS, MANY_SHARDS

ROWS = 60


def noisy(path, column=""):
    """Write rows of three decimals; return their labels and features in extended precision."""
    rng = np.random.default_rng(1)
    y = np.where(rng.random(ROWS) < 0.5, 1, -1)
    X = (rng.normal(size=(ROWS, 4)) + 0.4 * y[:, None]).round(3) + 0.0
    lines = [
        f"{label} " + " ".join(f"{k}:{value}" for k, value in enumerate(row, 1)) + column
        for label, row in zip(y, X.tolist(), strict=True)
    ]
    path.write_text("\n".join(lines) + "\n")
    tenths = [[np.longdouble(round(1000 * value)) / 1000 for value in row] for row in X.tolist()]
    return y, np.array(tenths)


def test_the_bound_of_a_large_c_is_that_of_the_terms_of_each_row(tmp_path):
    """Each of m rows at the margin may lose C times the error of its sum of m kernel values."""
    train, model, C = tmp_path / "train", tmp_path / "model", 1e10
    noisy(train)
    run_train("randsvm", "-q", "-g", 1, "-c", C, "--gap", 0.01, train, model)
    rows = [line.split() for line in model.read_text().partition("\nSV\n")[2].splitlines()]
    rows = [row for row in rows if row[0] != "#"]
    beta = np.array([abs(float(row[0])) for row in rows])
    Z = np.array([[float(word.split(":")[1]) for word in row[1:]] for row in rows])
    terms = np.exp(-np.square(Z[:, None] - Z).sum(axis=2)) @ beta
    roundings = (len(rows) + 32) * terms + 32 * beta.sum()
    assert float(oracle.trailer(model)["primal_error"]) <= C * 2.0**-53 * roundings.sum()


def test_bounds_of_few_rows_count_the_additions_of_all(tmp_path, set_sizes):
    """With a matrix of kernel values all rows are added up at once, however they are stored."""
    rng, errors = np.random.default_rng(1), []
    X = rng.normal(size=(400, 3)).round(3)
    train = oracle.write_rows(tmp_path / "train", np.where(X[:, 0] > 0, 1, -1), X)
    for rows in (1000, 20):
        set_sizes(chunk_rows=rows)
        run_train("randsvm", "-q", "-t", "linear", train, tmp_path / "model")
        trailer = oracle.trailer(tmp_path / "model")
        errors.append([float(trailer[name]) for name in ("primal_error", "dual_error")])
    assert errors[1] == errors[0]


def test_nothing_is_certified_where_rounding_exceeds_the_objectives(tmp_path, capfd):
    train, model = tmp_path / "train", tmp_path / "model"
    noisy(train, " 5:100000")
    words = ["-t", "poly", "-d", 2, "-g", 1, "-r", 1, "-c", 1, "--gap", 0.01]
    run_train("randsvm", *words, train, model)
    said = capfd.readouterr().err
    assert "is larger than the objectives: scale the features" in said
    assert "GAP NOT REACHED: nothing is certified (rounding exceeds P and D), --gap 0.01" in said
    assert oracle.trailer(model)["gap"] is None


def judged(folder, X, y, *words):
    """Train svc with the words, and return how the exact judge finds that it ended."""
    options = ["-q", "-s", "svc", *words, "-p", 0.1, "-n", 0.5]
    named = dict(pairwise(options))
    case = replace(
        random_problems.wide_case(1, 0), y=y, X=X, algorithm="randsvm", task="svc",
        kernel=str(named["-t"]), gamma=float(str(named["-g"])), coef0=float(str(named["-r"])),
        degree=int(str(named["-d"])), bounds=(float(str(named["-c"])),) * 2, epsilon=0.0,
        gap=float(str(named["--gap"])), weights=None, words=tuple(map(str, options)),
    )  # fmt: skip
    return random_problems.certified(case, folder)


def test_the_gap_of_a_large_c_is_that_of_the_rows_of_the_file(tmp_path):
    X = np.random.default_rng(31).uniform(0, 4, (300, 2)).round(6)
    y = np.where(np.floor(X).sum(axis=1) % 2, -1.0, 1.0)
    y[np.random.default_rng(1).random(300) < 0.05] *= -1
    words = ["-t", "rbf", "-g", 5.0, "-r", 0.0, "-d", 3, "-c", 100000.0, "--gap", 0.01]
    assert judged(tmp_path, X, y, *words) == "gap reached"


def test_the_dual_of_a_small_gap_is_below_every_machine(tmp_path):
    rng = np.random.default_rng(1)
    y = np.where(rng.random(ROWS) < 0.5, 1.0, -1.0)
    X = (rng.normal(size=(ROWS, 4)) + 0.4 * y[:, None]).round(3) + 0.0
    words = ["-t", "poly", "-g", 1.0, "-r", 1.0, "-d", 2, "-c", 10000.0, "--gap", 1e-5]
    assert judged(tmp_path, X, y, *words) == "gap reached"


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_a_tiny_c_has_a_dual_above_zero(tmp_path, kernel):
    train, model = tmp_path / "train", tmp_path / "model"
    noisy(train)
    run_train("randsvm", "-q", "-t", kernel, "-c", 1e-8, "--gap", 0.01, train, model)
    stated = oracle.trailer(model)
    assert float(stated["dual"]) - float(stated["dual_error"]) > 0
    assert float(stated["gap"]) <= 0.01


def test_the_bound_of_d_counts_all_terms_of_its_linear_sum(tmp_path, set_sizes):
    """D sums y beta over m rows at once, though u is summed in shards of few rows."""
    set_sizes(**MANY_SHARDS, **MANY_ROWS)
    y, X = oracle.two_gaussians(4000)
    data, model = oracle.write_svmlight(tmp_path / "data", y, X), tmp_path / "model"
    run_train("randsvm", "-q", "-t", "linear", "-c", 1e-12, "--gap", 0.01, data, model)
    beta = np.abs(oracle.read_model(model, 2).beta)
    least = len(beta) * 2.0**-53 * beta.sum()
    assert float(oracle.trailer(model)["dual_error"]) >= least
