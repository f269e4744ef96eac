"""Models exported to C: compiled, and compared with the model on 10,000 rows."""

import ctypes
import io
import json
import re
import shutil
import subprocess
import sys

import numpy as np
import oracle
import pytest
from commands import run_predict, run_train
from model_files import (
    DRAWN_ROWS,
    allow_bytes,
    exchange_predictions,
)

import randsvm
from randsvm.errors import ExportError, ModelError, OutputError, ParameterError

ROWS = 10_000
STRICT = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-Wshadow", "-Wundef"]
SANITIZERS = ["-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")

# Name -> labels, options of randsvm-train.
KINDS = {
    "rbf": ("two", "randsvm -g 0.4"),
    "linear kernel, names": ("names", "randsvm -t linear"),
    "polynomial kernel, minmax": ("two", "randsvm -t poly -d 3 -r 1 --scale minmax -b 1"),
    "sigmoid kernel": ("two", "randsvm -t sigmoid -g 0.02 -r -0.5"),
    "one against one": ("four", "randsvm -g 0.3 -b 1"),
    "one against the rest, standard": (
        "four",
        "randsvm -g 0.3 --multiclass ovr -b 1 --scale standard",
    ),
    "regression": ("targets", "randsvm -s svr -g 0.3 -b 1"),
    "nu regression, unit": ("targets", "randsvm -s nu-svr -g 0.3 --scale unit"),
    "one-class": ("two", "randsvm -s one-class -n 0.3 -g 0.3 -b 1"),
    "sgd": ("two", "sgd --loss log -b 1"),
    "sgd, several classes": ("four", "sgd -b 1 --scale standard"),
    "sgd, logistic, several classes": ("four", "sgd --loss log"),
    "sgd regression": ("targets", "sgd -s svr"),
    "fourier features": ("two", "sgd -t rbf -g 0.3 --components 50"),
    "maclaurin features": ("four", "sgd -t poly -g 0.2 -r 1 -d 3 --components 50"),
    "maclaurin features of degree 2": ("two", "sgd -t poly -d 2 -g 0.2 -r 1 --components 50"),
    "sparse rows": ("sparse", "randsvm -g 0.4"),
    "sparse linear kernel": ("sparse", "randsvm -t linear --scale unit"),
    "float64": ("large", "randsvm -g 0.4 --scale standard"),
    "short rows, unit": ("short", "randsvm -g 0.4 --scale unit"),
    "shortest rows, unit": ("shortest", "randsvm -g 0.4 --scale unit"),
    "zero-based": ("zero-based", "randsvm -g 0.4 --zero-based"),
    "linear kernel, pairs": ("four", "randsvm -t linear -b 1"),
    "polynomial kernel, ovr": ("four", "randsvm -t poly -d 2 -r 1 --multiclass ovr"),
    "sparse sigmoid kernel": ("sparse", "randsvm -t sigmoid -g 0.02 -r -0.5"),
    "crammer and singer": ("four", "sgd --multiclass crammer-singer"),
    "sgd one-class": ("two", "sgd -s one-class -n 0.3"),
    "sgd, minmax, zero-based": ("zero-based", "sgd --scale minmax --zero-based"),
}
# Kinds that differ in the functions of the program.
PROGRAMS = (
    "rbf", "linear kernel, names", "polynomial kernel, minmax", "one against one", "regression",
    "one against the rest, standard", "one-class", "sgd, several classes", "fourier features",
    "sgd, logistic, several classes", "maclaurin features", "sparse rows", "sparse linear kernel",
    "float64", "short rows, unit", "zero-based",
)  # fmt: skip
WITHOUT_DATA = ("one against one", "fourier features", "polynomial kernel, minmax", "sparse rows")


def rows(count, seed, kind):
    """Return rows of five features, of which two are often 0, or of 40 with few that are not."""
    random = np.random.default_rng(seed)
    X = random.standard_normal((count, 40 if kind == "sparse" else 5)).round(3)
    if kind == "sparse":
        X[random.random(X.shape) < 0.9] = 0
        # The first feature and a few others are in no row.
        X[:, [0, 7, 20]] = 0
    X[:, 3:5] *= random.random((count, 2)) < 0.5
    if kind == "short":
        X *= 2.0 ** random.integers(-100, -60, (count, 1))
    if kind == "shortest":
        X *= 2.0 ** random.integers(-560, -500, (count, 1))
    if kind == "large":
        X[:, 0] = 1.6e9 + 100 * X[:, 0]
    return X


def labels(X, kind):
    x = X[:, 1:3] if kind == "sparse" else np.column_stack([X[:, 1], X[:, 2]])
    code = 2 * (x[:, 0] > 0.1) + (x[:, 1] > 0) + 0
    if kind == "targets":
        return [f"{t:.3f}" for t in np.sin(x[:, 0]) + x[:, 1]]
    if kind == "four":
        return [f"{one}" for one in code * 3 - 2]
    if kind == "names":
        return [("ham", "spa\\m?", "tür")[one % 3] for one in code]
    return ["+1" if one % 3 else "-1" for one in code]


@pytest.fixture(scope="module", params=KINDS)
def trained(request, tmp_path_factory):
    """Return a name, the training file, the model and 10,000 rows."""
    kind, options = KINDS[request.param]
    folder = tmp_path_factory.mktemp("kind")
    X = rows(250, 1, kind)
    data = oracle.write_rows(folder / "train", labels(X, kind), X, 0 if kind == "zero-based" else 1)
    run_train(*options.split(), "--quiet", data, folder / "m")
    return request.param, data, folder / "m", rows(ROWS, 2, kind)


class Library:
    """The functions of an export that was compiled to a shared library."""

    def __init__(self, source, real=ctypes.c_double):
        self.text = source.read_text()
        self.real = real
        program = source.with_suffix(".so")
        options = ["-DRANDSVM_FLOAT"] if real is ctypes.c_float else []
        command = ["cc", *STRICT, *options, "-O2", "-shared", "-fPIC"]
        subprocess.run([*command, "-o", program, source, "-lm"], check=True)
        self.functions = ctypes.CDLL(str(program))

    def number(self, name):
        found = re.search(rf"RANDSVM_{name} (\d+)", self.text)
        return int(found[1]) if found else 0

    def row(self, x):
        entries = np.zeros(self.number("FEATURES"))
        entries[: len(x)] = x[: len(entries)]
        return (self.real * len(entries))(*entries)

    def decisions(self, X):
        return self.filled("randsvm_decisions", "DECISIONS", X)

    def probabilities(self, X):
        return self.filled("randsvm_predict_probability", "CLASSES", X)

    def filled(self, function, columns, X):
        """Return what a function writes for each row into an array of so many columns."""
        into, found = (self.real * self.number(columns))(), []
        for x in X:
            self.functions[function](self.row(x), into)
            found.append(list(into))
        return np.array(found)

    def predictions(self, X, returned):
        predict = self.functions.randsvm_predict
        predict.restype = returned
        return [predict(self.row(x)) for x in X]


@needs_compiler
def test_the_export_predicts_as_the_model(trained, tmp_path, capsys):
    name, data, path, X = trained
    run_predict("export", "c", "--data", data, path, tmp_path / "m.c")
    reported = capsys.readouterr().out
    assert re.fullmatch(
        r"largest difference of decision values \S+ over 250 rows, 0 labels differ \(cc\)\n",
        reported,
    )
    found, fitted = Library(tmp_path / "m.c"), randsvm.load(str(path))
    f = found.decisions(X)
    expected = fitted.decision_function(X)
    is_mapped = "features" in name
    size = np.abs(expected).max()
    np.testing.assert_allclose(
        f, expected.reshape(len(X), -1), atol=(1e-5 if is_mapped else 1e-9) * size
    )
    if fitted.model.is_regression:
        assert found.predictions(X[:100], ctypes.c_double) == f[:100, 0].tolist()
    elif "names" in name:
        texts = [value.decode() for value in found.predictions(X, ctypes.c_char_p)]
        assert texts == fitted.predict(X).tolist()
    else:
        differ = np.flatnonzero(np.array(found.predictions(X, ctypes.c_int)) != fitted.predict(X))
        # The rounding of random features may move a decision value across 0.
        assert len(differ) <= (2 if is_mapped else 0)
    if fitted.model.has_probabilities and not fitted.model.is_regression:
        p = found.probabilities(X[:2000])
        np.testing.assert_allclose(p, fitted.predict_proba(X[:2000]), atol=1e-9)


def test_the_graph_predicts_as_the_model(trained, tmp_path, capsys):
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    name, data, path, X = trained
    for _ in range(2):  # the second export replaces the first one
        run_predict("export", "onnx", "--data", data, path, tmp_path / "m.onnx")
    assert "over 250 rows, 0 labels differ (onnxruntime)" in capsys.readouterr().out
    session = runtime.InferenceSession(str(tmp_path / "m.onnx"))
    (rows_input,) = session.get_inputs()
    width = rows_input.shape[1]
    entries = np.zeros((len(X), width))
    entries[:, : min(width, X.shape[1])] = X[:, :width]
    names = [one.name for one in session.get_outputs()]
    found = dict(zip(names, session.run(None, {"X": entries}), strict=True))
    fitted = randsvm.load(str(path))
    expected = fitted.decision_function(X).reshape(len(X), -1)
    is_mapped = "features" in name
    rounding = (1e-5 if is_mapped else 1e-9) * np.abs(expected).max()
    np.testing.assert_allclose(found["f"], expected, atol=rounding)
    if fitted.model.is_regression:
        np.testing.assert_allclose(found["prediction"], expected[:, 0], atol=rounding)
        return
    differ = np.flatnonzero(found["label"] != fitted.predict(X))
    assert len(differ) <= (2 if is_mapped else 0)
    assert ("probabilities" in found) == fitted.model.has_probabilities
    if "probabilities" in found:
        np.testing.assert_allclose(found["probabilities"], fitted.predict_proba(X), atol=1e-9)


def compiled(source, *options):
    program = source.with_suffix("")
    command = ["cc", *STRICT, *options, "-DTEST", "-o", program, source, "-lm"]
    return program, subprocess.run(command, capture_output=True, text=True, check=False)


@needs_compiler
@pytest.mark.parametrize("trained", PROGRAMS, indirect=True)
def test_the_program_reads_rows_of_svmlight(trained, tmp_path):
    """The rows have labels, and sanitizers watch the program."""
    name, data, path, _ = trained
    randsvm.export(path, tmp_path / "m.c", data)
    program, ran = compiled(tmp_path / "m.c", *SANITIZERS)
    assert ran.returncode == 0, ran.stderr
    printed = subprocess.run(
        [program], input=data.read_bytes(), capture_output=True, check=True
    ).stdout
    fitted = randsvm.load(str(path))
    found = np.array([line.split() for line in printed.splitlines()], np.float64)
    expected = fitted.decision_function(rows(250, 1, KINDS[name][0])).reshape(250, -1)
    columns = expected.shape[1]
    rounding = (1e-5 if "features" in name else 1e-9) * np.abs(expected).max()
    np.testing.assert_allclose(found[:, :columns], expected, atol=rounding)
    assert found.shape[1] == columns + (not fitted.model.is_regression) + (
        len(fitted.model.labels) if fitted.model.has_probabilities else 0
    )


@needs_compiler
@pytest.mark.parametrize("trained", PROGRAMS, indirect=True)
def test_the_program_computes_in_float(trained, tmp_path):
    name, data, path, X = trained
    randsvm.export(path, tmp_path / "m.c", data)
    _, ran = compiled(tmp_path / "m.c", "-DRANDSVM_FLOAT")
    if "float64" in name:
        assert "the features of this model need double" in ran.stderr
        return
    assert ran.returncode == 0, ran.stderr
    f = Library(tmp_path / "m.c", ctypes.c_float).decisions(X[:500])
    expected = randsvm.load(str(path)).decision_function(X[:500]).reshape(500, -1)
    np.testing.assert_allclose(f, expected, atol=2e-3 * np.abs(expected).max())


@pytest.mark.parametrize("name", WITHOUT_DATA)
@needs_compiler
def test_without_data_the_models_own_rows_are_compared(tmp_path, name, capsys):
    kind, options = KINDS[name]
    X = rows(250, 1, kind)
    train = oracle.write_rows(tmp_path / "train", labels(X, kind), X)
    run_train(*options.split(), "-q", train, tmp_path / "m")
    run_predict("export", "c", tmp_path / "m", tmp_path / "m.c", "--report", "json")
    record = json.loads(capsys.readouterr().out)
    model = randsvm.load(str(tmp_path / "m")).info()
    assert record["rows"] == model.get("support_vectors", DRAWN_ROWS)
    assert record["event"] == "exported"
    assert record["labels_differ"] == 0


@pytest.fixture
def small(tmp_path):
    y, X = oracle.two_gaussians(80)
    data = oracle.write_svmlight(tmp_path / "train", y, X)
    run_train("-q", data, tmp_path / "m")
    return tmp_path / "m"


@needs_compiler
def test_an_export_that_predicts_other_labels_is_a_bug(small, monkeypatch):
    out = small.with_name("m.c")
    randsvm.export(small, out)
    before = out.read_bytes()
    exchange_predictions(monkeypatch)
    with pytest.raises(ExportError) as caught:
        randsvm.export(small, out)
    assert caught.value.exit_code == 70
    assert "is not written" in str(caught.value)
    assert out.read_bytes() == before


def test_without_a_compiler_the_export_is_written_and_says_so(small, monkeypatch, capsys):
    monkeypatch.setenv("CC", "no-such-compiler")
    run_predict("export", "c", small, small.with_name("m.c"))
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "there is no C compiler: the exported code was not compiled and compared" in shown.err
    assert small.with_name("m.c").read_bytes().startswith(b"/* randsvm model in C")


@needs_compiler
def test_rows_that_can_be_read_only_once_are_compared(small, monkeypatch):
    rows = small.with_name("train").read_bytes()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(rows)))
    assert randsvm.export(small, small.with_name("out.c"), data="-").rows == rows.count(b"\n")


def test_an_export_replaces_no_other_file(small):
    data = small.with_name("train")
    before = data.read_bytes()
    with pytest.raises(OutputError) as caught:
        randsvm.export(small, data)
    assert caught.value.exit_code == 73
    assert data.read_bytes() == before
    with pytest.raises(ParameterError, match="is both"):
        randsvm.export(small, small)


def test_models_without_code_are_refused(tmp_path):
    K = "\n".join(f"{1 if i % 2 else -1} 0:{i + 1} {i + 1}:1" for i in range(6))
    (tmp_path / "train").write_text(K + "\n")
    run_train("-q", "-t", "precomputed", tmp_path / "train", tmp_path / "m")
    with pytest.raises(ModelError, match="expected a kernel of features"):
        randsvm.export(tmp_path / "m", tmp_path / "m.c")
    (tmp_path / "train").write_text("1 1:1 300000:2\n-1 1:2 5:1\n")
    run_train("-q", tmp_path / "train", tmp_path / "m")
    with pytest.raises(ModelError, match="indices up to 250,000"):
        randsvm.export(tmp_path / "m", tmp_path / "m.c")
    assert not (tmp_path / "m.c").exists()


# Trainings of models with large tables in each kind of graph.
LARGE = {
    "linear": ("sgd", "two"),
    "rbf": ("randsvm -g 0.1", "two"),
    "poly": ("randsvm -t poly -g 0.1 -r 1", "two"),
    "fourier features": ("sgd -t rbf -g 0.1 --components 90", "two"),
    "maclaurin features": ("sgd -t poly -g 0.1 -r 1 --components 90", "two"),
    "pairs": ("randsvm -g 0.1 -b 1", "twelve"),
}


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    """Sets of rows with 20,000 columns, nearly all of them zeros."""
    folder = tmp_path_factory.mktemp("wide")
    y, X = oracle.two_gaussians(60, d=3)
    for name, labels in (("two", y), ("twelve", np.arange(60) % 12)):
        text = oracle.svmlight_text(labels, X + labels[:, None]).splitlines()
        (folder / name).write_text("".join(f"{line} 20000:1\n" for line in text))
    return folder


@pytest.mark.parametrize("kind", LARGE)
def test_a_graph_beyond_the_limit_of_protobuf_is_refused_before_it_is_built(
    wide, monkeypatch, kind
):
    onnx = pytest.importorskip("onnx")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    words, data = LARGE[kind]
    model, graph = wide / "m", wide / "m.onnx"
    run_train(*words.split(), "-q", wide / data, model)
    size = randsvm.export(model, graph, format="onnx").bytes
    # Nodes are not counted, and some tables have only some graphs: up to three numbers of a column.
    allow_bytes(monkeypatch, size + 8 * 3 * 20_000)
    randsvm.export(model, graph, format="onnx")
    allow_bytes(monkeypatch, size - 8 * 3 * 20_000)
    monkeypatch.setattr(onnx.helper, "make_model", None)
    with pytest.raises(ModelError, match="expected a model whose ONNX graph has less than 2 GB"):
        randsvm.export(model, graph, format="onnx")


@needs_compiler
def test_polynomial_features_of_large_values_are_exported(tmp_path):
    """Their factors <w, x> are differences of large terms, computed in float32."""
    X = 5 * rows(250, 1, "four")
    train = oracle.write_rows(tmp_path / "train", labels(X, "four"), X, 1)
    for seed in range(3):
        words = ("-t", "poly", "-g", 0.2, "--components", 50, "--seed", seed, "--epochs", 1)
        run_train("sgd", "-q", *words, train, tmp_path / "m")
        run_predict("export", "c", "--data", train, tmp_path / "m", tmp_path / "m.c")


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", ["SVC", "SVR", "LinearSVC", "LinearSVR", "OneClassSVM"])
def test_the_graph_of_an_estimator_predicts_as_the_estimator(name, dtype):
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("sklearn")
    y, X = oracle.two_gaussians(80)
    machine = getattr(randsvm, name)().fit(X, y)
    session = runtime.InferenceSession(machine.to_onnx(dtype).SerializeToString())
    assert [one.name for one in session.get_outputs()][1:] == ["f"]
    rows = X.astype(dtype)
    found = session.run(None, {"X": rows})[0]
    np.testing.assert_allclose(found, machine.predict(rows), rtol=1e-9)


@pytest.mark.parametrize("classes", [3, 5])
@pytest.mark.parametrize("break_ties", [True, False])
def test_the_graph_of_an_estimator_breaks_ties_as_the_estimator(break_ties, classes):
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    y, X = np.arange(400) % classes, np.random.default_rng(0).normal(size=(400, 2))
    rows = np.random.default_rng(1).normal(size=(3000, 2))
    machine = randsvm.SVC(gamma=4, break_ties=break_ties).fit(X, y)
    session = runtime.InferenceSession(machine.to_onnx().SerializeToString())
    assert session.run(None, {"X": rows})[0].tolist() == machine.predict(rows).tolist()
    other = machine.set_params(break_ties=not break_ties).predict(rows)
    assert session.run(None, {"X": rows})[0].tolist() != other.tolist()


@pytest.mark.parametrize("name", ["SVC", "SVR", "LinearSVC", "OneClassSVM"])
def test_skl2onnx_writes_a_pipeline_that_ends_with_an_estimator(name):
    runtime, skl2onnx = pytest.importorskip("onnxruntime"), pytest.importorskip("skl2onnx")
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    y, X = oracle.two_gaussians(80)
    X = 100 * np.asarray(X, np.float64) + 7
    labels = y if name == "SVR" else np.where(y > 0, "yes", "no")
    pipeline = make_pipeline(StandardScaler(), getattr(randsvm, name)()).fit(X, labels)
    graph = skl2onnx.to_onnx(pipeline, X[:1])
    found, f, *_ = runtime.InferenceSession(graph.SerializeToString()).run(None, {"X": X})
    predicted = pipeline.predict(X)
    if name == "SVR":
        np.testing.assert_allclose(found, predicted, rtol=1e-9)
    else:
        assert found.tolist() == predicted.tolist()
        np.testing.assert_allclose(abs(f[:, 0]), abs(pipeline.decision_function(X)), rtol=1e-9)


def test_without_onnx_the_message_names_the_package(small, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ParameterError, match=re.escape("pip install onnx")):
        randsvm.export(small, small.with_name("m.onnx"), format="onnx")


def test_without_onnxruntime_the_graph_is_written_and_says_so(small, monkeypatch, capsys):
    pytest.importorskip("onnx")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    run_predict("export", "onnx", small, small.with_name("m.onnx"))
    assert "the exported graph was not run" in capsys.readouterr().err
    assert small.with_name("m.onnx").stat().st_size
