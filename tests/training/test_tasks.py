"""Every task against LIBSVM: decision values, models that both read, certificates, warm starts."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import exact_judge
import numpy as np
import oracle
import pytest
from learning import Data, board, gaussians, learn
from libsvm import svmutil
from scipy import sparse
from task_sets import novelties, regression

ROWS, OLD_ROWS = 300, 250
GAP = 1e-5


def clouds(rows: int, seed: int = 0) -> Data:
    return Data(*oracle.clouds(rows, seed))


class Kind(NamedTuple):
    """A task. words: options that LIBSVM has too; numbers: the problem for the exact judge."""

    make: Callable[[int], Data]
    words: str
    task: str
    numbers: Mapping[str, Any] | None


KINDS = {
    "svc": Kind(board, "-g 5 -c 2", "svc", {"C": 2}),
    "linear": Kind(gaussians, "-t 0 -c 0.5", "svc", {"C": "0.5"}),
    "poly": Kind(gaussians, "-t 1 -g 0.3 -r 1 -d 2", "svc", {"C": 1}),
    "weights": Kind(
        gaussians, "-g 1 -w1 5 -w-1 0.5", "svc", {"C": 1, "class_weights": {"1": 5, "-1": "0.5"}}
    ),
    "nu-svc": Kind(gaussians, "-s 1 -n 0.4 -g 1", "nu-svc", {"nu": "0.4"}),
    "one-class": Kind(novelties, "-s 2 -n 0.2 -g 0.3", "one-class", {"nu": "0.2"}),
    "svr": Kind(regression, "-s 3 -g 0.5 -c 3 -p 0.1", "svr", {"C": 3, "epsilon": "0.1"}),
    "svr linear": Kind(regression, "-s 3 -t 0 -p 0.2", "svr", {"C": 1, "epsilon": "0.2"}),
    "svr poly": Kind(
        regression, "-s 3 -t 1 -g 0.3 -r 1 -d 2 -p 0.2", "svr", {"C": 1, "epsilon": "0.2"}
    ),
    "nu-svr": Kind(regression, "-s 4 -n 0.3 -c 2 -g 1", "nu-svr", {"C": 2, "nu": "0.3"}),
    "pairs": Kind(clouds, "-c 2 -g 0.1", "svc", None),
    "weighted pairs": Kind(clouds, "-c 2 -g 0.1 -w2 5 -w3 0.2", "svc", None),
    "three pairs": Kind(lambda rows: Data(*oracle.clouds(rows, 3, 3)), "-g 1", "svc", None),
}
ALGORITHMS = {
    "at once": ("randsvm",),
    "in rounds": ("randsvm", "--sample-size", 60),
    "osuna": ("osuna", "--working-set", 60),
    "osuna-closest": ("osuna-closest", "--working-set", 60),
}


def train_libsvm(data, words):
    return svmutil.svm_train(data.y, sparse.csr_matrix(data.X), f"-q {words} -e 1e-6")


def values_of(model, X):
    """Return LIBSVM's labels or targets and its decision values, a column for each pair."""
    rows = [{int(j) + 1: float(x[j]) for j in np.flatnonzero(x)} for x in X]
    return oracle.libsvm_predictions(model, rows)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("name", KINDS)
def test_a_model_has_libsvms_values_and_a_true_certificate(tmp_path, predict, name, algorithm):
    kind = KINDS[name]
    data = kind.make(ROWS)
    path = oracle.write_rows(tmp_path / "data", *data)
    first, *own = ALGORITHMS[algorithm]
    learnt = learn(first, path, tmp_path / "m", *kind.words.split(), "--gap", GAP, *own)
    assert learnt.outcome["gap"] <= GAP
    labels, f = values_of(svmutil.svm_load_model(str(learnt.model)), data.X)
    _, best = values_of(train_libsvm(data, kind.words), data.X)
    assert f == pytest.approx(best, abs=0.01 * np.abs(best).max())
    assert predict(path, learnt.model).scores == pytest.approx(labels, rel=1e-5, abs=1e-5)
    if kind.numbers is not None:
        verdict = exact_judge.judge(path, learnt.model, learnt.metadata, kind.task, **kind.numbers)
        assert verdict.wrong == []


@pytest.mark.parametrize("name", KINDS)
def test_a_model_of_libsvm_is_read(tmp_path, predict, name):
    kind = KINDS[name]
    data = kind.make(ROWS)
    model = train_libsvm(data, kind.words)
    svmutil.svm_save_model(str(tmp_path / "theirs"), model)
    labels, f = values_of(model, data.X)
    path = oracle.write_rows(tmp_path / "data", *data)
    read = partial(predict, path, tmp_path / "theirs")
    # The sign of a row on the margin of one-class is one of rounding.
    clear = np.abs(f).min(axis=1) > 1e-5 * np.abs(f).max()
    assert read().scores[clear] == pytest.approx(labels[clear], rel=1e-5, abs=1e-5)
    scores = np.array([line.split() for line in read("--scores").lines], float)
    assert scores == pytest.approx(f, abs=1e-5 * np.abs(f).max())


@pytest.mark.parametrize("algorithm, theirs", [("in rounds", False), ("osuna", True)])
@pytest.mark.parametrize("name", KINDS)
def test_a_warm_start_takes_fewer_steps_to_the_same_optimum(tmp_path, name, algorithm, theirs):
    """The data has a fifth more rows than that of the old model."""
    kind = KINDS[name]
    data = kind.make(ROWS)
    old = Data(data.y[:OLD_ROWS], data.X[:OLD_ROWS])
    first, *own = ALGORITHMS[algorithm]
    words = (*kind.words.split(), "--gap", 1e-3, *own)
    before = tmp_path / "old"
    if theirs:
        svmutil.svm_save_model(str(before), train_libsvm(old, kind.words))
    else:
        learn(first, oracle.write_rows(tmp_path / "rows", *old), before, *words)
    path = oracle.write_rows(tmp_path / "data", *data)
    cold = learn(first, path, tmp_path / "cold", *words)
    warm = learn(first, path, tmp_path / "warm", *words, "--warm-start", before)
    changed = [sum(event["changed"] for event in run.rounds) for run in (warm, cold)]
    # LIBSVM writes 8 digits of a feature, so that its support vectors equal no row.
    assert theirs or changed[0] < changed[1]
    P, D = cold.outcome["primal"], cold.outcome["dual"]
    room = 1e-6 * max(abs(P), abs(D))
    assert warm.outcome["gap"] <= 1e-3
    assert warm.outcome["dual"] <= P + room
    assert warm.outcome["primal"] + room >= D
