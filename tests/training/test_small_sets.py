"""Small sets, which LIBSVM solves at once: runs end, and their answers are at least LIBSVM's."""

import warnings

import exact_judge
import numpy as np
import oracle
import pytest
from learning import learn
from sklearn import svm
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler

from randsvm import SVC

# Seconds after which a run counts as one that does not end, on a loaded machine as well.
NEVER = 120

THREE_ROWS = {
    "svc": (
        "+1 1:1 2:2\n+1 1:2 2:1\n-1 1:-1 2:-2\n",
        ["-t", "poly", "-g", 400, "-r", 1, "-d", 3, "-c", 5000],
        {"C": 5000},
    ),
    "svr": (
        "-1 1:-1000 2:1700000 3:-900000\n-1 1:1100 2:980000 3:1700000\n"
        "1 1:-1100 2:-220000 3:1050000\n",
        ["-s", "svr", "-t", "linear", "-c", 2.75],
        {"C": "2.75", "epsilon": "0.1"},
    ),
}  # fmt: skip


@pytest.mark.timeout(NEVER)
@pytest.mark.parametrize("task", THREE_ROWS)
def test_three_rows_with_large_kernel_values_are_solved(tmp_path, task):
    """Coefficients are 1e-10 or less of C."""
    text, words, numbers = THREE_ROWS[task]
    data = tmp_path / "data"
    data.write_text(text)
    learnt = learn("randsvm", data, tmp_path / "m", *words)
    assert learnt.metadata["gap"] <= 1e-3
    verdict = exact_judge.judge(data, learnt.model, learnt.metadata, task, **numbers)
    assert verdict is not None
    assert not verdict.wrong


@pytest.mark.timeout(NEVER)
def test_novelty_detection_ends_where_the_origin_lies_among_the_rows(tmp_path):
    """The optimum is 0, and no gap relative to it can be reached."""
    X = oracle.as_float32(np.random.default_rng(1).normal(size=(600, 2)).round(2))
    data = oracle.write_svmlight(tmp_path / "data", np.ones(600), X)
    words = ["-s", "one-class", "-t", "linear", "-n", 0.3]
    metadata = learn("randsvm", data, tmp_path / "m", *words).metadata
    nothing = 0.01 * 0.3**2 * np.square(X).sum() / 2
    primal, dual = float(metadata["primal"]), float(metadata["dual"])
    assert metadata["stopped"] == "gap <= 0.001"
    assert 0 <= primal - dual <= 1e-3 * nothing
    # The gap contains the bounds of the rounding of P and D.
    rounding = float(metadata["primal_error"]) + float(metadata["dual_error"])
    assert (primal - dual) / nothing <= float(metadata["gap"])
    assert float(metadata["gap"]) <= (primal - dual + 2 * rounding) / nothing * (1 + 1e-6)


@pytest.fixture(scope="module")
def iris():
    X, y = load_iris(return_X_y=True)
    return StandardScaler().fit_transform(X), y


@pytest.mark.filterwarnings("ignore:nearly every row:UserWarning")
@pytest.mark.filterwarnings("ignore:all rows have nearly:UserWarning")
@pytest.mark.timeout(NEVER)
@pytest.mark.parametrize("gamma", [1e-9, 1e-3, 1.0, 1e3])
@pytest.mark.parametrize("C", [1e-2, 1e4, 1e7, 1e10])
def test_the_grid_of_scikit_learns_example_ends_with_its_accuracy(iris, C, gamma):
    """plot_rbf_parameters, with its extremes."""
    X, y = iris
    theirs = svm.SVC(C=C, gamma=gamma).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # two of them at C = 1e10
        ours = SVC(C=C, gamma=gamma).fit(X, y)
    assert ours.score(X, y) >= theirs.score(X, y) - 0.02
    # The gap contains the rounding of decision values times C: up to a tenth of P at 1e10.
    assert ours.gap_ <= (0.01 if C < 1e10 else 0.1)
