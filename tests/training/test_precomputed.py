"""Test training with a precomputed kernel: LIBSVM's -t 4, exact optima, the same kernel from
features, and refusals.
"""

from typing import NamedTuple

import exact_judge
import numpy as np
import oracle
import pytest
import random_problems
from learning import learn
from libsvm import svmutil
from model_files import load_model

import randsvm
from randsvm import Arrays, api
from randsvm.errors import ContentError, DataError

GAMMA = 0.5


class KernelRows(NamedTuple):
    """Rows of kernel values, in any order and possibly repeated; numbers: their own, from 1."""

    y: np.ndarray
    X: np.ndarray
    K: np.ndarray
    numbers: np.ndarray

    @property
    def written(self):
        return np.column_stack([self.numbers, self.K])

    @property
    def square(self):
        """Return K of these rows alone."""
        return self.K[:, self.numbers - 1]

    def save(self, path):
        return oracle.write_rows(path, self.y, self.written, 0)

    def nodes(self):
        return [dict(enumerate(row)) for row in self.written.tolist()]

    def libsvm(self, words):
        problem = svmutil.svm_problem(self.y.tolist(), self.nodes(), isKernel=True)
        return svmutil.svm_train(problem, svmutil.svm_parameter(f"-q -t 4 -e 1e-6 {words}"))


def some_rows(targets="classes", seed=0, rows=90, of=120):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(of, 2))
    noisy = X[:, 0] + X[:, 1] ** 2 - 1 + rng.normal(size=of) / 2
    y = {
        "classes": np.where(noisy > 0, 1.0, -1.0),
        "three": np.digitize(noisy, [-0.7, 0.7]) + 1.0,
        "numbers": oracle.as_float32(noisy),
    }[targets]
    K = oracle.as_float32(oracle.kernel_matrix("rbf", X, X, GAMMA))
    order = rng.permutation(of)[:rows]
    return KernelRows(y[order], X[order], K[order], order + 1)


@pytest.fixture(autouse=True)
def many_chunks(set_sizes):
    """Make these small sets have several shards."""
    set_sizes(chunk_rows=20)


# ---- LIBSVM -----------------------------------------------------------------------------------

KINDS = {
    "two classes": ("classes", "-s 0 -c 2", ""),
    "weighted": ("classes", "-s 0 -w1 5 -w-1 0.5", ""),
    "a small working set": ("classes", "-s 0 -c 100", "--working-set 12"),
    "nu-svc": ("classes", "-s 1 -n 0.4", ""),
    "one-class": ("classes", "-s 2 -n 0.3", "--working-set 30"),
    "regression": ("numbers", "-s 3 -c 3 -p 0.2", ""),
    "nu-svr": ("numbers", "-s 4 -c 3 -n 0.4", "--working-set 30"),
    "three classes": ("three", "-s 0 -c 2 -w3 4", ""),
    "three of nu-svc": ("three", "-s 1 -n 0.2", ""),
}


@pytest.mark.parametrize("few", [True, False])
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_the_model_agrees_with_libsvms(tmp_path, set_sizes, kind, few):
    """Both LIBSVM and randsvm read the model."""
    if not few:
        set_sizes(float64_rows=0)
    targets, words, own = kind
    D = some_rows(targets)
    path = D.save(tmp_path / "d")
    learnt = learn(
        "osuna", path, tmp_path / "m", "-t", 4, "--gap", 1e-6, *words.split(), *own.split()
    )
    # Values of float32 are not quite positive semidefinite, which counts.
    assert learnt.outcome["gap"] <= 2e-5
    _, expected = oracle.libsvm_predictions(D.libsvm(words), D.nodes())
    ours = svmutil.svm_load_model(str(learnt.model))
    _, f = oracle.libsvm_predictions(ours, D.nodes())
    assert f == pytest.approx(expected, abs=5e-3 * np.abs(expected).max())
    assert {int(nodes[0]) for nodes in ours.get_SV()} <= set(D.numbers.tolist())
    found = randsvm.load(str(learnt.model)).decision_function(D.K)
    assert found.reshape(f.shape) == pytest.approx(f, rel=1e-6, abs=1e-6)


# ---- the same kernel from features ------------------------------------------------------------


@pytest.mark.parametrize("targets", ["classes", "three", "numbers"])
def test_cross_validation_and_probabilities_equal_those_of_the_same_kernel_from_features(
    tmp_path, targets
):
    """Folds are drawn by the position of a row, which is the same in the file of features."""
    D = some_rows(targets)
    words = ["-v", 4, "-e", 1e-6, "--gap", 1e-7]
    words += ["-s", "svr"] if targets == "numbers" else ["-b", 1]
    features = oracle.write_rows(tmp_path / "features", D.y, D.X)
    one = learn("randsvm", features, tmp_path / "one", "-g", GAMMA, *words)
    two = learn("randsvm", D.save(tmp_path / "d"), tmp_path / "two", "-t", 4, *words)
    scores = [each.outcome["cross_validation"]["score"] for each in (one, two)]
    assert scores[1] == pytest.approx(scores[0], rel=1e-3)
    assert two.outcome["primal"] == pytest.approx(one.outcome["primal"], rel=1e-5)
    if targets != "numbers":
        found, expected = (load_model(each.model).sigmoid for each in (two, one))
        assert found == pytest.approx(expected, rel=1e-2, abs=1e-2)


# ---- rows -------------------------------------------------------------------------------------


def all_rows(seed=2):
    D = some_rows(seed=seed, rows=60, of=60)
    order = np.argsort(D.numbers)
    return KernelRows(D.y[order], D.X[order], D.K[order], D.numbers[order])


def body(path):
    return path.read_text().partition("# randsvm")[0].splitlines()


def test_arrays_give_the_model_of_a_file(tmp_path):
    D = all_rows()
    learn("randsvm", D.save(tmp_path / "d"), tmp_path / "m", "-t", 4)
    for X in (D.K, D.K.astype(np.float32), oracle.sparse.csr_matrix(D.K)):
        api.train(Arrays(X, D.y.astype(int)), tmp_path / "n", kernel="precomputed")
        assert body(tmp_path / "n") == body(tmp_path / "m")


def test_a_cache_of_kernel_values_is_not_used_for_features(tmp_path):
    D = some_rows()
    path, cache = D.save(tmp_path / "d"), tmp_path / "c"
    plain = learn("randsvm", path, tmp_path / "m", "-t", 4)
    learn("randsvm", path, tmp_path / "l", "--zero-based", "--cache", cache)
    for _ in range(2):
        cached = learn("randsvm", path, tmp_path / "n", "-t", 4, "--cache", cache)
        assert cached.model.read_bytes() == plain.model.read_bytes()


# ---- invalid kernels --------------------------------------------------------------------------


def rounded_to_seven_digits(K):
    return oracle.as_float32(np.char.mod("%.7g", K).astype(float))


@pytest.mark.parametrize("rounded", [oracle.as_float32, rounded_to_seven_digits])
def test_a_singular_kernel_is_certified(tmp_path, rounded):
    """The kernel has rank 2 except for rounding; the optimum is that of the exact kernel."""
    D = all_rows()
    linear = D._replace(K=rounded(D.X @ D.X.T))
    assert np.linalg.eigvalsh(linear.K)[0] < 0
    learnt = learn("randsvm", linear.save(tmp_path / "d"), tmp_path / "m", "-t", 4, "-c", 10)
    assert learnt.outcome["gap"] <= 1e-3
    case = random_problems.Case(
        D.y, D.X, "randsvm", "svc", "precomputed", GAMMA, 0.0, 3, (10.0, 10.0), 0.0, 0.5, 0, 0, ()
    )
    exact = D._replace(K=D.X @ D.X.T).square
    best = random_problems.optimum(case, exact.astype(random_problems.exact))
    assert learnt.outcome["dual"] <= best.most * (1 + 1e-5)
    assert learnt.outcome["primal"] >= best.least * (1 - 1e-5)


CERTIFIED = {
    "svc": ("-s svc -c 100", {"C": 100}),
    "svr": ("-s svr -c 10 -p 0.1", {"C": 10, "epsilon": "0.1"}),
    "one-class": ("-s one-class -n 0.3", {"nu": "0.3"}),
    "nu-svr": ("-s nu-svr -c 10 -n 0.3", {"C": 10, "nu": "0.3"}),
}


@pytest.mark.parametrize("digits, noise", [(17, 0), (6, 0), (9, 2e-7)])
@pytest.mark.parametrize("task", CERTIFIED)
def test_a_certificate_holds_for_the_nearest_positive_semidefinite_matrix(
    tmp_path, task, digits, noise
):
    """Six digits make eigenvalues negative, noise also makes K(x, z) differ from K(z, x)."""
    words, numbers = CERTIFIED[task]
    D = some_rows("numbers" if "svr" in task else "classes")
    K = oracle.kernel_matrix("rbf", *2 * [np.random.default_rng(0).normal(size=(120, 2))], GAMMA)
    K *= 1 + noise * np.random.default_rng(1).uniform(-1, 1, K.shape)
    rounded = np.char.mod(f"%.{digits}g", K).astype(float)[D.numbers - 1]
    path = D._replace(K=rounded).save(tmp_path / "d")
    words = ["-t", "precomputed", *words.split(), "--gap", 1e-6, "--sample-size", 30]
    learnt = learn("randsvm", path, tmp_path / "m", *words)
    assert learnt.metadata["certificate"] == "proven"
    assert learnt.outcome["gap"] <= (1e-2 if noise else 1e-3)
    verdict = exact_judge.judge(path, learnt.model, learnt.metadata, task, **numbers)
    assert not verdict.wrong


def test_an_indefinite_kernel_has_no_certificate(tmp_path):
    D = all_rows()
    K = oracle.as_float32(oracle.kernel_matrix("sigmoid", D.X, D.X, 0.5, -1.0))
    assert np.linalg.eigvalsh(K)[0] < -0.1
    path = D._replace(K=K).save(tmp_path / "d")
    learnt = learn("randsvm", path, tmp_path / "m", "-t", 4)
    assert learnt.outcome["gap"] is None and learnt.metadata["gap"] is None
    assert any("is not positive semidefinite" in text for text in learnt.notices)
    assert "--gap" not in learnt.metadata["configuration"]
    for asked in ("--gap", "--require-gap"):
        with pytest.raises(ContentError, match=r"no gap can be certified, and 0\.01 was asked for"):
            learn("randsvm", path, tmp_path / "n", "-t", 4, asked, 0.01)
    assert not (tmp_path / "n").exists()


@pytest.mark.parametrize("first, second, rows", [(3, 8, 90), (500, 590, 600)])
def test_asymmetric_values_are_refused(tmp_path, first, second, rows):
    D = some_rows(rows=rows, of=rows)
    i, j = D.numbers[[first, second]]
    D.K[first, j - 1] = 0.75
    path = D.save(tmp_path / "d")
    expected = (
        rf"symmetric, found row number ({i} with {j}:0\.75|.* and row number {i} with {j}:0\.75)"
    )
    with pytest.raises(ContentError, match=expected):
        learn("randsvm", path, tmp_path / "m", "-t", 4)


# ---- refusals ---------------------------------------------------------------------------------

GOOD = b"1 0:1 1:1 2:0.5\n-1 0:2 1:0.5 2:1\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"1 1:1 2:0.5\n", r"d:1:3: expected 0:number .*found '1:1'"),
        (GOOD + b"\n# 1\n1 qid:3 0:1.5 1:1\n", r"d:5:9: .*found '0:1.5'"),
        (GOOD + b"1 0:0 1:1\n", r"d:3:3: .*found '0:0'"),
        (GOOD + b"1 0:-1 1:1\n", r"d:3:3: .*found '0:-1'"),
        (GOOD + b"1 0:16777218 1:1\n", r"d:3:3: .*found '0:16777218'"),
        (GOOD + b"1 # nothing\r\n", r"d:3:3: .*found the end of the row"),
        (GOOD + b"x:y 1:1\n", r"d:3:1: expected a label"),
        (b"1 1:1\n" + b"x:y 1:1\n", r"d:1:3: expected 0:number"),
        (b"1 1:1\n" + b"spam 0:1\n", r"d:1:3: expected 0:number"),
        (GOOD + b"1 0:9 1:1\n1 0:7 2:3\n", r"d:3:3: .*a row up to 2, the last .*, found 9"),
    ],
)
@pytest.mark.parametrize("block_size", [1 << 20, 20])
def test_rows_without_a_number_are_refused_with_their_place(
    tmp_path, set_sizes, block_size, text, message
):
    set_sizes(block_bytes=block_size)
    path = tmp_path / "d"
    path.write_bytes(text)
    with pytest.raises(DataError, match=message):
        learn("randsvm", path, tmp_path / "m", "-t", 4)


@pytest.mark.parametrize("place", [0, 1])
def test_a_number_beyond_the_last_column_is_refused_with_its_file(tmp_path, place):
    paths = [tmp_path / "first", tmp_path / "second"]
    for k, path in enumerate(paths):
        path.write_bytes(GOOD + b"1 0:9 1:1\n" * (k == place))
    with pytest.raises(DataError, match=rf"{paths[place].name}:3:3: .*a row up to 2, .*found 9"):
        api.train(list(map(str, paths)), kernel="precomputed")
