"""Test --scale: the fitted scaling is scikit-learn's, and the model applies it to raw rows."""

import re

import exact_judge
import numpy as np
import oracle
import pytest
from csr_rows import csr
from learning import Data, learn
from liblinear import liblinearutil
from libsvm import svmutil
from oracle import write_rows
from rows import Scaling, fitted_scaling, matrix_of, open_rows, scaled
from scipy import sparse
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, Normalizer, StandardScaler

import randsvm
from randsvm.parameters.run import CertifyParams

DENSE = {
    "minmax": lambda: MinMaxScaler((-1, 1)),
    "standard": StandardScaler,
    "unit": Normalizer,
}
SPARSE = {
    "minmax": MaxAbsScaler,
    "standard": lambda: StandardScaler(with_mean=False),
    "unit": Normalizer,
}

# ---- fitting a scaling --------------------------------------------------------------------------


def some_rows(density, seed=0):
    """Return 100 rows of 6 features of very different scales, some of them 0."""
    rng = np.random.default_rng([seed, 40])
    X = rng.normal(size=(100, 6)) * [1, 1e-3, 1e3, 1, 5, 1] + [0, 0, 0, 3, -7, 0]
    return oracle.as_float32(X * (rng.random((100, 6)) < density))


def huge_means():
    """Return a million plus noise; the squares have no digits left for the noise."""
    X = some_rows(1.0)
    X[:, 0] = 1e6 + np.random.default_rng(41).normal(size=100)
    return oracle.as_float32(X)


def fitted(name, X, centred, pieces):
    """Fit a scaling to several parts of the rows."""
    parts = [csr(part) for part in np.array_split(X, pieces)]
    return fitted_scaling(name, parts, np.full(6, centred))


@pytest.mark.parametrize("pieces", [1, 7])
@pytest.mark.parametrize("name", ["minmax", "standard"])
@pytest.mark.parametrize("X", [some_rows(1.0), some_rows(0.6), huge_means()])
def test_dense_rows_are_scaled_as_scikit_learn_does(name, X, pieces):
    rows = X.astype(np.float32)
    scaled = fitted(name, rows, True, pieces).apply(csr(rows))
    assert scaled.dtype == np.float32
    assert scaled.toarray() == pytest.approx(DENSE[name]().fit_transform(X), rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("size", [1.0, 1e-30, 1e30])
def test_unit_rows_have_length_1(size):
    """This includes rows whose squares exceed float32; a row of zeros, or without features, stays
    as it is.
    """
    X = oracle.as_float32(some_rows(0.5) * size)
    X[3] = X[4] = 0
    X[3, 2] = 1
    rows = csr(X.astype(np.float32))
    X[3, 2] = rows.data[rows.indptr[3]] = 0
    scaled = Scaling("unit").apply(rows).toarray()
    # scikit-learn's Normalizer does not change rows shorter than 2e-15.
    length = np.linalg.norm(X, axis=1, keepdims=True)
    assert scaled == pytest.approx(X / np.where(length > 0, length, 1), rel=1e-6)
    assert (scaled[3:5] == 0).all()


@pytest.mark.parametrize("power", [-1000, -560, -520, -480, 100])
def test_a_power_of_two_times_a_row_has_the_same_unit_row(power):
    """Squares of rows shorter than 1e-154 underflow."""
    X = oracle.as_float32(some_rows(0.5))
    X[3] = 0
    found = [Scaling("unit").apply(csr(rows)).toarray() for rows in (X, X * 2.0**power)]
    assert (found[1] == found[0]).all()


def test_scaled_values_beyond_float32_are_clipped():
    largest = np.finfo(np.float32).max
    X = csr(np.array([[3e38, 1.0], [-3e38, 0.5]], np.float32))
    for shift in (np.zeros(2), None):
        scaled = Scaling("minmax", shift, np.array([1e30, 2.0])).apply(X)
        assert scaled.toarray().tolist() == [[largest, 2.0], [-largest, 1.0]]


@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("name", ["minmax", "standard"])
def test_features_of_tiny_spreads_are_scaled_or_count_as_constant(name, centred):
    """Squares below 1e-308 underflow."""
    spreads = np.array([1e-30, 1e-140, 1e-155, 1e-170, 1e-290, 1e-320])
    X = some_rows(1.0) * spreads
    with np.errstate(all="raise", under="ignore"):
        scaled = fitted(name, X, centred, 2).apply(csr(X)).toarray()
    assert np.isfinite(scaled).all()
    expected = DENSE[name] if centred else SPARSE[name]
    large = X[:, :2] / spreads[:2]
    assert scaled[:, :2] == pytest.approx(expected().fit_transform(large), rel=1e-5, abs=1e-6)
    assert (scaled[:, 2:] == 0).all()


# ---- models -------------------------------------------------------------------------------------


def raw(rows, seed=0):
    """Return classes 1 to 3 in features with very different scales and offsets."""
    y, X = oracle.clouds(rows, seed, 3, 4)
    return Data(y, oracle.as_float32(X * [1, 100, 1e-3, 20] + [0, 500, 0, -3]))


def two(data):
    return Data(np.where(data.y == 1, 1.0, -1.0), data.X)


def targets(data):
    return Data(data.y + data.X[:, 0], data.X)


# The options and rows that LIBSVM is given; randsvm fits the scaling.
KINDS = {
    "svc": (two, ("-g", 0.3, "-c", 2), "-g 0.3 -c 2"),
    "one-class": (two, ("-s", 2, "-n", 0.3, "-g", 0.3), "-s 2 -n 0.3 -g 0.3"),
    "svr": (targets, ("-s", 3, "-p", 0.2, "-g", 0.3), "-s 3 -p 0.2 -g 0.3"),
}


@pytest.mark.parametrize("name", DENSE)
@pytest.mark.parametrize("kind", KINDS)
def test_predictions_of_raw_rows_equal_libsvms_of_scaled_rows(tmp_path, predict, kind, name):
    of, words, theirs = KINDS[kind]
    data, test = of(raw(300)), of(raw(200, 1))
    path, test_path = (
        write_rows(tmp_path / "d", *data),
        write_rows(tmp_path / "t", *test),
    )
    learnt = learn(
        "randsvm", path, tmp_path / "m", "--scale", name, "-e", 1e-4, "--gap", 1e-6, *words
    )
    scaler = DENSE[name]().fit(data.X)
    X, test_X = (oracle.as_float32(scaler.transform(rows)) for rows in (data.X, test.X))
    model = svmutil.svm_train(data.y, sparse.csr_matrix(X), f"-q -e 1e-4 {theirs}")
    f = oracle.libsvm_decisions(model, test_X)
    if kind == "svc" and model.get_labels() != [int(word) for word in learnt.metadata["labels"]]:
        f = -f
    assert predict(test_path, learnt.model, "--scores").scores == pytest.approx(f, abs=5e-3)
    assert svmutil.svm_load_model(str(learnt.model)) is None


@pytest.mark.parametrize("name", DENSE)
@pytest.mark.parametrize(
    "words",
    [
        "randsvm -g 0.3",
        "osuna --working-set 100 -g 0.3",
        "randsvm -g 0.3 --components 50",
        "sgd",
        "sgd -t rbf -g 0.3 --components 50",
        "sgd --loss log -b 1",
    ],
)
def test_a_scaled_model_equals_the_model_of_scaled_rows(tmp_path, predict, words, name):
    """scikit-learn scales the rows of three classes for the comparison."""
    algorithm, *own = words.split()
    data, test = raw(300), raw(200, 1)
    scaler = DENSE[name]().fit(data.X)
    scaled, scaled_test = (Data(y, oracle.as_float32(scaler.transform(X))) for y, X in (data, test))
    mine = learn(algorithm, data.save(tmp_path / "d"), tmp_path / "m", "--scale", name, *own)
    theirs = learn(algorithm, scaled.save(tmp_path / "s"), tmp_path / "sm", *own)
    f, expected = (
        np.array([line.split() for line in predict(path, model, "--scores").lines], float)
        for path, model in (
            (test.save(tmp_path / "t"), mine.model),
            (scaled_test.save(tmp_path / "st"), theirs.model),
        )
    )
    assert f == pytest.approx(expected, abs=2e-2)
    assert svmutil.svm_load_model(str(mine.model)) is None
    assert liblinearutil.load_model(str(mine.model)) is None


@pytest.mark.parametrize("name", ["minmax", "standard"])
def test_a_full_feature_of_sparse_rows_is_centred(tmp_path, name):
    y, X = oracle.sparse_rows(300, 0, 60)
    data = Data(y, oracle.as_float32(X * np.geomspace(0.01, 100, 60)))
    data.X[:, 7] = oracle.as_float32(np.random.default_rng(44).uniform(1990, 2020, 300))
    expected = SPARSE[name]().fit_transform(sparse.csr_matrix(data.X)).toarray()
    expected[:, 7] = DENSE[name]().fit_transform(data.X[:, 7:8]).ravel()
    path = str(data.save(tmp_path / "d"))
    with open_rows(path) as D:
        view = scaled(D, name)
        found = matrix_of(view)
    assert found == pytest.approx(expected[:, D.summary.features - 1], rel=1e-5, abs=1e-6)
    assert D.nnz <= np.count_nonzero(found) <= view.nnz <= D.nnz + D.n


@pytest.mark.parametrize("name", ["minmax", "standard"])
@pytest.mark.parametrize("columns", [1, 60])
def test_written_zeros_of_sparse_rows_count_as_omitted_ones(tmp_path, name, columns):
    y, X = oracle.sparse_rows(300, 0, 60)
    X[:, 0] = np.where(np.arange(300) % 3, 0, 2.5)
    X = X[:, X.any(axis=0)]
    path, written = write_rows(tmp_path / "d", y, X), tmp_path / "written"
    rows = [
        "".join(f" {j}:{value!r}" for j, value in enumerate(row, 1) if value or j <= columns)
        for row in X.tolist()
    ]
    written.write_text("".join(f"{label}{row}\n" for label, row in zip(y, rows, strict=True)))
    with open_rows(str(path)) as D, open_rows(str(written)) as E:
        assert E.nnz == D.nnz + np.count_nonzero(X[:, :columns] == 0)
        np.testing.assert_array_equal(matrix_of(scaled(E, name)), matrix_of(scaled(D, name)))


@pytest.mark.parametrize("name", DENSE)
def test_written_zeros_and_new_features_do_not_change_predictions(tmp_path, predict, name):
    """A zero may be written or omitted; features that training lacks are ignored."""
    data = two(raw(200))
    X = data.X.copy()
    X[::3, 1] = 0
    path = write_rows(tmp_path / "d", data.y, X)
    learnt = learn("randsvm", path, tmp_path / "m", "--scale", name, "-g", 0.3)
    written = re.sub(r"( 1:\S+) 3:", r"\1 2:0 3:", path.read_text())
    assert written.count(" 2:0 ") == np.count_nonzero(X[:, 1] == 0)
    (tmp_path / "written").write_text(written)
    other = learn("randsvm", tmp_path / "written", tmp_path / "other", "--scale", name, "-g", 0.3)
    (tmp_path / "new").write_text(re.sub(r"\n", " 9:1e9 11:-4\n", written))
    files = [path, tmp_path / "written", tmp_path / "new"]
    scores = [
        predict(file, model, "--scores").lines
        for file in files
        for model in (learnt.model, other.model)
    ]
    assert all(one == scores[0] for one in scores)
    said = predict(tmp_path / "new", learnt.model).err
    assert "ignored 400 values of 2 features that training never saw" in said


# ---- the certificate ----------------------------------------------------------------------------

CERTIFIED = {
    "rbf": ("svc", "-g 10 -c 100", {"C": 100}),
    "linear": ("svc", "-t linear -c 10", {"C": 10}),
    "poly": ("svr", "-s svr -t poly -d 2 -g 1 -r 1 -c 10 -p 0.1", {"C": 10, "epsilon": "0.1"}),
    "novelties": ("one-class", "-s one-class -g 1 -n 0.2", {"nu": "0.2"}),
}


def moments(path, rows):
    """Write rows whose first feature is a time in seconds, and whose second is a year."""
    rng = np.random.default_rng(0)
    x, years = rng.normal(size=rows), rng.integers(1990, 2026, rows)
    y = np.where(np.sin(3 * x) + rng.normal(size=rows) / 10 > 0, 1, -1)
    lines = zip(y, x, years, strict=True)
    path.write_text("".join(f"{label:+d} 1:{1.7e9 + v:.3f} 2:{t}\n" for label, v, t in lines))
    return path


@pytest.mark.parametrize("scaling", ["minmax", "standard", "unit"])
@pytest.mark.parametrize("kind", CERTIFIED)
def test_the_certificate_holds_for_the_decimals_of_the_file(tmp_path, kind, scaling):
    task, words, numbers = CERTIFIED[kind]
    path = moments(tmp_path / "data", 400)
    learnt = learn("randsvm", path, tmp_path / "m", "--scale", scaling, *words.split())
    assert learnt.metadata["certificate"] == "proven"
    verdict = exact_judge.judge(path, learnt.model, learnt.metadata, task, **numbers)
    assert not verdict.wrong
    assert verdict.doubt < 0.01


def test_the_certificate_of_a_scaled_model_holds_as_certify_finds_it(tmp_path):
    path = moments(tmp_path / "data", 400)
    learnt = learn("randsvm", path, tmp_path / "m", "--scale", "standard", "-g", 10, "-c", 100)
    found = randsvm.certify(path, learnt.model, params=CertifyParams(C=100.0))
    assert not exact_judge.judge(path, learnt.model, found._asdict(), "svc", C=100).wrong
