"""Models of every kind that LIBSVM trains: read, predicted with and written as LIBSVM does."""

import itertools

import numpy as np
import oracle
import pytest
from commands import run_train
from csr_rows import csr
from libsvm import svmutil
from model_files import (
    class_pairs,
    coupled_probabilities,
    kernel_model,
    load_model,
    predicts_by_cells,
    rows_of,
    save_model,
    voted_classes,
)

import randsvm
from randsvm.errors import ContentError, ModelError, ParameterError
from randsvm.events import Progress
from randsvm.parameters.run import PredictParams

NU_SVC, ONE_CLASS, REGRESSIONS = 1, 2, (3, 4)
SIGMOID, PRECOMPUTED = 3, 4


def blobs(rows, classes):
    return oracle.clouds(rows, 1, classes, 4)


def few_features_each(rows, classes):
    """Sparse, classes by the features that rows have."""
    rng = np.random.default_rng([rows, classes])
    y = rng.integers(1, classes + 1, rows)
    X = np.where(rng.random((rows, 40)) < 0.1, rng.normal(size=(rows, 40)), 0.0)
    X[np.arange(rows), y - 1] += 1.5
    return y.astype(float), X


def stripes(rows, classes):
    """Classes side by side along one of two features."""
    X = np.random.default_rng([classes, 2]).uniform(0, 4, (rows, 2))
    return np.floor(X[:, 0] / 4 * classes) + 1, X


def rings(rows, classes):
    """Classes around each other."""
    rng = np.random.default_rng([classes, 3])
    y = rng.integers(1, classes + 1, rows)
    X = rng.normal(size=(rows, 3))
    X *= ((y + 0.3 * rng.random(rows)) / classes / np.sqrt(oracle.squares(X)))[:, None]
    return y.astype(float), X


def far_from_the_origin(rows, classes):
    y, X = blobs(rows, classes)
    return y, X / 4 + 2


SETS = (blobs, few_features_each, stripes, rings, far_from_the_origin)
KINDS = [
    (svm_type, kernel, b, classes)
    for svm_type, kernel, b in itertools.product(range(5), range(5), (0, 1))
    for classes in ((2, 3, 12) if svm_type <= NU_SVC else (2,))
]


def by_libsvm(kind, y, X, words):
    rows = kind.dictionaries(X)
    problem = svmutil.svm_problem(y, rows, isKernel=kind.base == 0)
    found = svmutil.svm_train(problem, svmutil.svm_parameter(words))
    svmutil.svm_save_model(str(kind.model), found)


def by_us(kind, y, X, words):
    data = oracle.write_rows(kind.model.with_name("d"), y, X, kind.base)
    run_train(*words.split(), data, kind.model)


class Kind:
    """A model that LIBSVM or we have trained, saved as `model`, and the file `test` of rows that it
    predicts."""

    def __init__(
        self,
        folder,
        svm_type,
        kernel,
        b,
        classes,
        data,
        weights="",
        train=by_libsvm,
    ):
        self.model, self.test = folder / "m", folder / "t"
        y, X = data(12 * classes + 30, classes)
        # With 8 digits, as LIBSVM writes support vectors, and in float32 nothing is lost of these.
        X = np.round(64 * X) / 64
        y, X, target, rows = y[:-30], X[:-30], y[-30:], X[-30:]
        if svm_type in REGRESSIONS:
            y, target = (X[:, 0] + X[:, 1] ** 2 + 1, rows[:, 0] + rows[:, 1] ** 2 + 1)
        if kernel == PRECOMPUTED:
            numbers, between = np.arange(1, len(X) + 1), X @ X.T
            rows = np.column_stack([np.ones(len(rows)), rows @ X.T])
            X = np.column_stack([numbers, between])
        self.base = 0 if kernel == PRECOMPUTED else 1
        # nu up to 2 min(n_i, n_j) / (n_i + n_j) is feasible.
        nu = 0.3 if svm_type == NU_SVC else 0.4
        words = f"-q -s {svm_type} -t {kernel} -b {b} -n {nu} -g 0.3 -r 0.5 -e 0.01 {weights}"
        train(self, y, X, words)
        self.rows = self.dictionaries(rows)
        oracle.write_rows(self.test, target, rows, self.base)

    def dictionaries(self, X):
        return [dict(enumerate(x, self.base)) for x in X.tolist()]


def predicted_by_us(kind, folder, model=None, **params):
    """The lines, as numbers where they are; and a first line of words."""
    output = folder / "o"
    randsvm.predict(
        str(kind.test), str(model or kind.model), str(output), params=PredictParams(**params)
    )
    lines = [line.split() for line in output.read_text().splitlines()]
    words = lines.pop(0) if lines[0][0].startswith("label") else None
    return np.array(lines, float), words


def libsvm_agrees(kind, folder):
    """Whether LIBSVM predicts with the model what we predict: labels, values, probabilities."""
    theirs = svmutil.svm_load_model(str(kind.model))
    labels, values = oracle.libsvm_predictions(theirs, kind.rows)
    size = np.abs(values).max()
    found, _ = predicted_by_us(kind, folder)
    assert found[:, 0] == pytest.approx(labels, rel=1e-5, abs=1e-6 * size)
    found, _ = predicted_by_us(kind, folder, scores=True)
    assert found == pytest.approx(values, rel=1e-5, abs=1e-6 * size)
    svm_type = theirs.param.svm_type
    fitted = bool(theirs.is_probability_model())
    assert load_model(kind.model).has_probabilities == fitted
    if fitted:
        labels, values = oracle.libsvm_predictions(theirs, kind.rows, probabilities=True)
        found, words = predicted_by_us(kind, folder, probabilities=True)
        if svm_type in REGRESSIONS:
            assert words is None and found[:, 0] == pytest.approx(labels, rel=1e-5, abs=1e-5)
            assert load_model(kind.model).noise_scale == theirs.get_svr_probability()
            return
        names = ["normal", "outlier"] if svm_type == ONE_CLASS else theirs.get_labels()
        assert words[1:] == list(map(str, names))
        assert (found[:, 0] == labels).all()
        assert found[:, 1:] == pytest.approx(values, abs=1e-4)


def weights_of(svm_type, kernel, b):
    return "-w1 3 -w2 0.5" if svm_type == 0 and (kernel + b) % 2 else ""


@pytest.mark.parametrize(
    ("svm_type", "kernel", "b", "classes"), KINDS, ids=lambda number: str(number)
)
def test_predictions_of_libsvms_models_are_libsvms(tmp_path, svm_type, kernel, b, classes):
    data = SETS[(svm_type + kernel + b + classes) % len(SETS)]
    kind = Kind(tmp_path, svm_type, kernel, b, classes, data, weights_of(svm_type, kernel, b))
    libsvm_agrees(kind, tmp_path)
    # LIBSVM finds no density marks where few training rows are novelties.
    assert load_model(kind.model).has_probabilities or not b or svm_type == ONE_CLASS


# Of twelve classes, whose probabilities take 330 trainings, some.
OURS = [
    (svm_type, kernel, b, classes)
    for svm_type, kernel, b, classes in KINDS
    if kernel != PRECOMPUTED and (classes < 12 or kernel == 2 or svm_type + b == 0)
    if (svm_type, b, classes) != (NU_SVC, 1, 12)
]


@pytest.mark.parametrize(("svm_type", "kernel", "b", "classes"), OURS, ids=str)
def test_libsvm_predicts_the_same_with_models_that_we_trained(
    tmp_path, svm_type, kernel, b, classes
):
    data = SETS[(svm_type + 2 * kernel + b + classes) % len(SETS)]
    if svm_type == NU_SVC and kernel in (0, 3):
        # Where classes overlap by more than nu there is no margin, which we refuse.
        data = few_features_each
    weights = weights_of(svm_type, kernel, b)
    kind = Kind(tmp_path, svm_type, kernel, b, classes, data, weights, by_us)
    libsvm_agrees(kind, tmp_path)
    if kernel != SIGMOID:  # of which LIBSVM itself finds one optimum or another
        (tmp_path / "libsvm").mkdir()
        trained = Kind(tmp_path / "libsvm", svm_type, kernel, 0, classes, data, weights)
        models = (svmutil.svm_load_model(str(one.model)) for one in (kind, trained))
        (_, ours), (_, theirs) = (oracle.libsvm_predictions(one, kind.rows) for one in models)
        assert np.abs(ours - theirs).mean() < 0.05 * np.abs(theirs).mean()
    assert load_model(kind.model).has_probabilities or not b or svm_type == ONE_CLASS
    assert svmutil.svm_load_model(str(kind.model)).get_nr_class() == classes


@pytest.mark.parametrize("b", [0, 1])
@pytest.mark.parametrize("svm_type", [0, NU_SVC])
def test_a_model_of_one_class_predicts_that_class(tmp_path, svm_type, b):
    """What svm-train makes, with a warning, of a file with one label."""
    rows = [{1: 0.5}, {2: -3.0}, {1: 2.0, 7: 1.0}]
    words = svmutil.svm_parameter(f"-q -s {svm_type} -b {b}")
    model = svmutil.svm_train(svmutil.svm_problem([4, 4, 4], rows), words)
    svmutil.svm_save_model(str(tmp_path / "m"), model)
    save_model(load_model(tmp_path / "m"), tmp_path / "ours")
    (tmp_path / "t").write_text("4 1:0.5\n4 2:-3\n3 1:2 7:1\n")
    for name in ("m", "ours"):
        theirs = svmutil.svm_load_model(str(tmp_path / name))
        labels, values = oracle.libsvm_predictions(theirs, rows, probabilities=bool(b))
        randsvm.predict(
            str(tmp_path / "t"), str(tmp_path / name), str(tmp_path / "o"),
            params=PredictParams(probabilities=bool(b)),
        )  # fmt: skip
        lines = (tmp_path / "o").read_text().splitlines()
        assert lines[:b] == ["labels 4"] * b
        found = np.array([line.split() for line in lines[b:]], float)
        assert found[:, 0].tolist() == labels.tolist() == [4, 4, 4]
        assert not b or (found[:, 1:] == values).all()


def test_a_model_of_one_class_has_no_support_vectors(tmp_path):
    text = "svm_type c_svc\nkernel_type linear\nnr_class 1\ntotal_sv 1\nrho\nlabel 4\nnr_sv 1\nSV\n"
    (tmp_path / "m").write_text(text + "0.5 1:1 \n")
    with pytest.raises(ModelError, match="expected nr_class 1 with total_sv 0 and nr_sv 0"):
        load_model(tmp_path / "m")


def test_the_first_of_the_classes_with_most_votes_wins():
    cycle = np.array([[1.0, -1.0, 1.0]])  # 0 beats 1, 2 beats 0, 1 beats 2
    assert voted_classes(np.vstack([cycle, -cycle, 0 * cycle]), 3).tolist() == [0, 0, 2]


@pytest.mark.parametrize("classes", [3, 4])
def test_a_class_that_is_sure_wins_whatever_pairs_in_doubt_vote(classes):
    rng = np.random.default_rng(classes)
    pairs = classes * (classes - 1) // 2
    model = kernel_model(
        ("rbf",),
        features=np.empty(0, np.int32),
        labels=tuple(map(str, range(classes))),
        prediction_type="svc",
        Z=csr((0, 0), dtype=np.float32),
        beta=np.empty((0, classes - 1)),
        b=np.zeros(pairs),
        class_of=np.empty(0, np.int64),
    )
    f = rng.normal(size=(200, pairs))
    sure = model._is_certain(f, np.full((len(f), 1), 0.5))
    kept = np.ones(len(f), bool)
    for signs in itertools.product((-1.0, 1.0), repeat=pairs):
        flipped = np.where(np.abs(f) <= 0.5, np.array(signs), f)
        kept &= model.predicted(flipped) == model.predicted(f)
    assert not (sure & ~kept).any()
    assert (sure == kept).mean() > 0.9 and 0 < sure.mean() < 1


@pytest.mark.parametrize("classes", [3, 7])
def test_coupled_probabilities_minimise_wu_lin_and_wengs_sum(classes):
    rng = np.random.default_rng(classes)
    i, j = class_pairs(classes)
    r = np.zeros((classes, classes))
    r[i, j] = rng.uniform(0.1, 0.9, len(i))
    r[j, i] = 1 - r[i, j]
    Q = np.diag((r**2).sum(axis=0)) - r * r.T
    optimality = np.block([[Q, np.ones((classes, 1))], [np.ones((1, classes)), np.zeros((1, 1))]])
    p = np.linalg.solve(optimality, np.append(np.zeros(classes), 1.0))[:-1]
    sigmoid = np.array([-np.ones(len(i)), np.zeros(len(i))])
    f = np.log(r[i, j] / r[j, i])
    found = coupled_probabilities(f[None], sigmoid, classes)[0]
    assert found.sum() == pytest.approx(1) and found == pytest.approx(p, abs=0.02)


# ---- the command --------------------------------------------------------------------------------


def test_a_regressions_noise_is_printed_as_svm_predict_prints_it(tmp_path, predict):
    kind = Kind(tmp_path, 3, 2, 1, 2, blobs)
    sigma = svmutil.svm_load_model(str(kind.model)).get_svr_probability()
    predicted = predict(kind.test, kind.model, "-b", 1)
    assert predicted.out.startswith(
        "Prob. model for test data: target value = predicted value + z,\n"
        f"z: Laplace distribution e^(-|z|/sigma)/(2sigma),sigma={sigma:g}\n"
        "Mean squared error = "
    )
    assert "sigma" not in predict(kind.test, kind.model).out


def test_labels_are_spelled_as_libsvm_does_where_asked(tmp_path, train, predict):
    y, X = oracle.two_gaussians(60)
    path = oracle.write_svmlight(tmp_path / "data", y, X)
    model = train(path, "-b", 1).model
    assert set(predict(path, model).lines) == {"+1", "-1"}
    by_libsvm = svmutil.svm_load_model(str(model))
    labels, _ = oracle.libsvm_predictions(by_libsvm, [dict(enumerate(x, 1)) for x in X.tolist()])
    assert predict(path, model, "--labels", "libsvm").lines == [f"{label:g}" for label in labels]
    lines = predict(path, model, "--labels", "libsvm", "-b", 1).lines
    assert lines[0] == "labels 1 -1" and lines[1].split()[0] in ("1", "-1")
    with pytest.raises(ParameterError, match="--scores and --labels"):
        predict(path, model, "--labels", "libsvm", "--scores")


def test_rows_without_their_number_are_refused_by_a_precomputed_kernel(tmp_path, predict):
    kind = Kind(tmp_path, 0, PRECOMPUTED, 0, 2, blobs)
    for row in ("1 1:0.5 2:0.5\n", "1\n"):
        kind.test.write_text("1 0:1 1:0.5\n" + row)
        with pytest.raises(ContentError, match="expected rows '0:number"):
            predict(kind.test, kind.model)


def test_a_number_of_a_row_that_is_none_is_refused(tmp_path):
    kind = Kind(tmp_path, 0, PRECOMPUTED, 0, 2, blobs)
    text = kind.model.read_bytes()
    for bad in (b" 0:0.5 \n", b" 1:1 \n", b" 0:0 \n", b" 0:1 1:1 \n"):
        head, _, rest = text.partition(b"SV\n")
        row, _, rest = rest.partition(b"\n")
        kind.model.write_bytes(head + b"SV\n" + row.split()[0] + bad + rest)
        with pytest.raises(ModelError, match="expected '0:number' of a training row"):
            load_model(kind.model)


def test_progress_goes_with_the_rows_that_are_predicted(tmp_path):
    kind = Kind(tmp_path, 0, 2, 0, 2, blobs)
    kind.test.write_text(kind.test.read_text() * 150)
    emitted = []
    randsvm.predict(str(kind.test), str(kind.model), str(tmp_path / "o"), watch=emitted.append)
    emitted = [event for event in emitted if isinstance(event, Progress)]
    size = kind.test.stat().st_size
    assert {(event.stage, event.total, event.unit) for event in emitted} == {
        ("predicting", size, "B")
    }
    done = [event.done for event in emitted]
    assert len(done) > 3 and done == sorted(set(done)) and done[0] < size / 2 and done[-1] == size


def test_labels_of_rows_in_cells_are_those_in_float64():
    """Support vectors far apart: most values of rbf are left out of the sums."""
    rng = np.random.default_rng(0)
    own = np.repeat([0, 2], [700, 1300])
    m, K = len(own), 3
    model = kernel_model(
        ("rbf", 400.0),
        features=np.array([1, 2], np.int32),
        labels=("1", "2", "3"),
        prediction_type="svc",
        Z=csr(rng.uniform(0, 4, (m, 2)).astype(np.float32)),
        beta=rng.normal(size=(m, K - 1)),
        b=np.array([0.01, -0.02, 0.0]),
        class_of=own,
    )
    X = csr(rng.uniform(-1, 5, (1000, 2)).astype(np.float32))
    rows = rows_of(model, X.indptr, X.indices + 1, X.data)
    fast, exact = model.decision(rows, labels_only=True), model.decision(rows)
    assert predicts_by_cells(model) and model.rows_at_once == 4096
    assert np.abs(fast - exact).max() < 1e-3 and (fast != exact).any()
    assert (model.predicted(fast) == model.predicted(exact)).all()
