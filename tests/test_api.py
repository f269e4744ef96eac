"""What Python users call: a file or arrays alike, options by name, models that predict arrays."""

import ast
import math
import pickle
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import oracle
import pandas
import pytest
from learning import board, learn
from scipy import sparse

import randsvm
from randsvm.errors import ContentError, ModelError, OutputError, ParameterError


def small(rows=300):
    """Rows that float32 holds exactly, and their labels."""
    y, X = board(rows)
    return y.astype(int), np.round(X * 256) / 256


@pytest.mark.parametrize(
    ("algorithm", "words", "options"),
    [
        ("randsvm", ["-g", 5, "--gap", 0.001], {"gamma": 5, "C": 2, "gap": 0.001}),
        (
            "osuna",
            ["--working-set", "100", "-g", 5],
            {"gamma": 5, "C": 2, "working_set": 100},
        ),
        ("osuna-closest", ["--seed", 3], {"seed": 3, "C": 2}),
        ("sgd", ["--epochs", "2"], {"epochs": 2, "C": 2}),
    ],
)
@pytest.mark.parametrize("layout", [np.array, sparse.csr_matrix])
@pytest.mark.parametrize("offset", [0, 1e7], ids=["float32", "float64"])
def test_arrays_give_the_bytes_that_the_command_writes(
    tmp_path, algorithm, words, options, layout, offset
):
    y, X = small()
    X += offset
    data = tmp_path / "data"
    data.write_text(
        "".join(f"{a} 1:{b!r} 2:{c!r}\n" for a, (b, c) in zip(y, X.tolist(), strict=True))
    )
    written = learn(algorithm, data, tmp_path / "file", *words, "-c", 2)
    arrays = randsvm.Arrays(layout(X), y)
    fitted = randsvm.train(arrays, tmp_path / "arrays", algorithm, **options)
    assert (tmp_path / "arrays").read_bytes() == written.model.read_bytes()
    randsvm.train(data, tmp_path / "path", algorithm, **options)
    assert (tmp_path / "path").read_bytes() == written.model.read_bytes()
    fitted.save(str(tmp_path / "saved"))
    assert (tmp_path / "saved").read_bytes() == written.model.read_bytes()


@pytest.mark.parametrize("algorithm", ["randsvm", "sgd"])
@pytest.mark.parametrize(
    "labels",
    [
        np.array([False, True]),
        np.array([True, False], object),
        np.array([0, 3], np.uint8),
        np.array([1.0, 2.0]),
        np.array(["no", "yes"]),
        np.array([True, False, "perhaps"], object).astype(str),
    ],
    ids=lambda labels: f"{len(labels)} {labels.dtype}",
)
def test_predictions_have_the_type_of_the_labels(tmp_path, algorithm, labels):
    _, X = small()
    y = labels[(X[:, 0] * len(labels) / X[:, 0].max() * 0.999).astype(int)]
    fitted = randsvm.train(randsvm.Arrays(X, y), algorithm=algorithm)
    predicted = fitted.predict(X)
    assert predicted.dtype == y.dtype
    assert (predicted == y).mean() > 0.6
    # The file has the spellings.
    fitted.save(str(tmp_path / "m"))
    loaded = randsvm.load(tmp_path / "m").predict(X)
    assert loaded.astype(str).tolist() == [
        str(label) if isinstance(label, str) else f"{label:g}" for label in predicted.tolist()
    ]


def test_class_numbers_are_predicted_as_their_labels():
    X = np.random.default_rng(0).normal(size=(60, 2))
    codes, classes = (X[:, 0] > 0).astype(int), np.array([2.5, -1.0])
    fitted = randsvm.train(randsvm.Arrays(X, codes, classes))
    assert fitted.model.labels == ("2.5", "-1")
    np.testing.assert_array_equal(fitted.classes, classes)
    assert (fitted.predict(X) == classes[codes]).mean() > 0.9


def test_a_model_in_memory_predicts_as_the_file_that_libsvm_reads(tmp_path):
    y, X = small()
    fitted = randsvm.train(randsvm.Arrays(X, y), gamma=5, gap=0.001)
    fitted.save(str(tmp_path / "m"))
    found = oracle.read_model(tmp_path / "m", 2)
    f = oracle.kernel_matrix("rbf", X, oracle.as_float32(found.Z), 5) @ found.beta + found.b
    assert np.allclose(fitted.decision_function(X), f, atol=1e-6)
    again = randsvm.load(str(tmp_path / "m"))
    for one in (fitted, again, pickle.loads(pickle.dumps(fitted))):
        assert (one.predict(X) == np.where(f > 0, 1, -1)).all()
        assert (one.predict(sparse.csr_matrix(X)) == one.predict(X)).all()
        assert one.gap == fitted.outcome.gap <= 0.001


def test_a_data_frame_has_no_cache():
    frame = pandas.DataFrame({"a": np.arange(20.0), "y": np.arange(20) % 2})
    with pytest.raises(ParameterError, match="--cache keeps what was parsed from a file"):
        randsvm.train(frame, label_column="y", cache="x")


@pytest.mark.parametrize("weights", [{"1": 2, "-1": 0.5}, {1: 2, -1: 0.5}])
def test_weights_are_a_dictionary(weights):
    y, X = small()
    fitted = randsvm.train(randsvm.Arrays(X, y), gamma=5, gap=0.001, weights=weights)
    assert math.isclose(fitted.model.beta.max(), 2)
    assert math.isclose(fitted.model.beta.min(), -0.5)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"algorithm": "smo"}, ParameterError, "expected algorithm .*, found 'smo'"),
        ({"gama": 5}, TypeError, "there is no option 'gama': did you mean 'gamma'"),
        ({"working_set": 5}, TypeError, "there is no option 'working_set'"),
        ({"C": -1}, ParameterError, "must be > 0"),
        ({"gamma": ["scale", 0.1]}, ParameterError, r"scale or auto, found \['scale', 0.1\]"),
        ({"C": [1, None]}, ParameterError, r"C: expected a number, .*, found \[1, None\]"),
        ({"C": []}, ParameterError, "C: expected a number, .* or auto, found"),
        ({"cache": "x"}, ParameterError, "--cache keeps what was parsed from a file"),
        ({"time_limit": "5d"}, ParameterError, "time_limit: expected a time such as 90s, 10m "),
        (
            {"memory": "much"},
            ParameterError,
            "memory: expected a size, e.g. 512M or 4G, found 'much'",
        ),
        ({"memory": "1M"}, ParameterError, "memory: must be >= 16M, got 1M"),
        ({"jobs": 1.5}, ParameterError, "jobs: expected a whole number, found 1.5"),
        ({"jobs": math.inf}, ParameterError, "jobs: expected a whole number, found inf"),
        ({"C": None}, ParameterError, "C must have a value, got None"),
        ({"C": {}}, ParameterError, "C: expected a number, a list .* or auto, found {}"),
        ({"gap": [1]}, ParameterError, "gap: expected a number such as 0.01 or none, found "),
        ({"folds": [2]}, ParameterError, "folds: expected folds such as 5 or 5x3, found "),
        ({"cache": 5}, ParameterError, "cache: expected the name of a file, found 5"),
        ({"overwrite": "no"}, ParameterError, "overwrite: expected True or False, found 'no'"),
        ({"weights": 3}, ParameterError, "weights: expected a dictionary of labels and numbers, "),
        ({"weights": {"1": "x"}}, ParameterError, "weights: expected a dictionary of labels and"),
        ({"folds": 2.5}, ParameterError, "folds"),
        ({"reduce": 2.5}, ParameterError, "reduce"),
        ({"params": object(), "gamma": 1}, TypeError, "there is no option 'params'"),
    ],
)
def test_unknown_options_are_refused(options, error, message):
    y, X = small()
    with pytest.raises(error, match=message):
        randsvm.train(randsvm.Arrays(X, y), **options)
    assert issubclass(ParameterError, ValueError)


def test_words_of_the_command_line_are_values(tmp_path):
    y, X = small()
    words = {
        "C": "2^1",
        "gamma": "5",
        "memory": "1G",
        "time_limit": "10m",
        "jobs": "1",
        "task": "0",
    }
    values = {"C": 2, "gamma": 5, "memory": 2**30, "time_limit": 600, "task": "svc"}
    for name, options in (("words", words), ("values", values)):
        randsvm.train(randsvm.Arrays(X, y), tmp_path / name, **options)
    assert (tmp_path / "words").read_bytes() == (tmp_path / "values").read_bytes()


def test_messages_name_no_options_of_the_commands(tmp_path):
    y, X = small(100)
    with pytest.raises(ValueError, match=r"class \(or task='svr' for regression\), found '-?0.5'"):
        randsvm.train(randsvm.Arrays(X, y / 2))
    path = tmp_path / "a.txt"
    path.write_text("a text\n")
    with pytest.raises(OutputError, match=r"give the output another name$"):
        randsvm.train(randsvm.Arrays(X, y), path)
    with pytest.warns(UserWarning, match="decision value") as found:
        randsvm.SVC(gamma=0).fit(X, y)
    with pytest.raises(ValueError, match="nu-svc finds no margin") as raised:
        # The corners of a square, opposite ones of one class: no line separates the classes.
        randsvm.NuSVC(nu=0.5, kernel="linear").fit([[0, 0], [1, 1], [0, 1], [1, 0]], [0, 0, 1, 1])
    for text in (str(found[0].message), str(raised.value)):
        assert not re.search(r"(^|\s)--?[a-z]", text), text


def test_a_model_without_probabilities_says_so():
    y, X = small()
    arrays = randsvm.Arrays(X, y)
    with pytest.raises(ModelError, match="train with probability=True"):
        randsvm.train(arrays, gamma=5, gap=0.01).predict_proba(X)
    p = randsvm.train(arrays, gamma=5, gap=0.01, probability=True).predict_proba(X)
    assert np.allclose(p.sum(axis=1), 1)
    assert (np.where(p[:, 0] > 0.5, 1, -1) == y).mean() > 0.8


def test_importing_the_package_loads_nothing():
    """What it offers comes when somebody asks."""
    code = "import sys, randsvm; assert 'SVC' in dir(randsvm); print('numpy' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == "False\n"
    with pytest.raises(AttributeError):
        _ = randsvm.LinearSVM
    assert {name for name in randsvm.__all__ if not hasattr(randsvm, name)} == set()
    # What editors and mypy believe.
    stub = ast.parse(Path(randsvm.__file__).with_suffix(".pyi").read_text())
    imported = [
        name for line in stub.body if isinstance(line, ast.ImportFrom) for name in line.names
    ]
    assert {name.asname for name in imported} == set(randsvm.__all__)


def test_arrays_have_the_columns_of_the_training(tmp_path):
    y, X = small(100)
    fitted = randsvm.train(randsvm.Arrays(X, y), tmp_path / "m", gamma=5)
    wide, zeros = np.hstack([X, X]), np.hstack([X, 0 * X])
    expected = fitted.predict(X)
    for machine in (fitted, randsvm.load(str(tmp_path / "m"))):
        for bad in (wide, X[:, :1], pandas.DataFrame(wide), wide.tolist()):
            for predict in (machine.predict, machine.decision_function):
                with pytest.raises(ContentError, match=r"^X has [14] features, but the model exp"):
                    predict(bad)
        # A file of rows may have features that training never saw, or lack some.
        for good in (zeros, sparse.csr_matrix(zeros), pandas.DataFrame(X)):
            np.testing.assert_array_equal(machine.predict(good), expected)
        assert len(machine.predict(sparse.csr_matrix(wide))) == len(X)
        assert len(machine.predict(sparse.csr_matrix(X[:, :1]))) == len(X)


def test_functions_of_model_files_take_names_of_files(tmp_path):
    y, X = small(100)
    arrays = randsvm.Arrays(X, y)
    path = tmp_path / "m"
    randsvm.train(arrays, path, gamma=5)
    for call in (
        lambda: randsvm.certify(arrays, path),
        lambda: randsvm.predict(arrays, path, tmp_path / "out"),
        lambda: randsvm.explain(arrays, path, tmp_path / "out"),
    ):
        with pytest.raises(ParameterError, match="expected names of files, found Arrays"):
            call()
    assert not (tmp_path / "out").exists()


def test_an_estimator_of_a_model_of_a_table_takes_features(tmp_path):
    words, numbers = ["a", "b", "c"] * 20, np.arange(60) % 7
    frame = pandas.DataFrame({"word": words, "number": numbers, "y": np.arange(60) % 2})
    frame.to_csv(tmp_path / "t.csv", index=False)
    path = tmp_path / "m"
    randsvm.train(tmp_path / "t.csv", path, format="csv", label_column="y")
    fitted, machine = randsvm.load(str(path)), randsvm.SVC.from_model(path)
    for bad in (frame, frame[["word", "number"]], frame[["number"]]):
        with pytest.raises(ValueError, match="feature names should match"):
            machine.predict(bad)
    names = fitted.model.columns.feature_names
    features = pandas.get_dummies(frame[["word", "number"]], prefix_sep="=", dtype=float)[names]
    randsvm.predict(tmp_path / "t.csv", path, tmp_path / "out")
    expected = np.loadtxt(tmp_path / "out")
    for found in (fitted.predict(frame), fitted.predict(features), machine.predict(features)):
        np.testing.assert_array_equal(found, expected)


def test_a_model_trained_in_memory_is_shown_as_info_shows_its_file(tmp_path):
    y, X = oracle.two_gaussians(60)
    fitted = randsvm.train(oracle.write_svmlight(tmp_path / "data", y, X), tmp_path / "model", C=1)
    shown = dict(line.split(maxsplit=1) for line in repr(fitted).splitlines())
    saved = dict(
        line.split(maxsplit=1) for line in repr(randsvm.load(tmp_path / "model")).splitlines()
    )
    assert {"gap", "primal", "stopped", "task"} <= set(shown)
    assert shown == {name: saved[name] for name in shown}
