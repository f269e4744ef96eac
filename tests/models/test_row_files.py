"""Test exports and Shapley values of models of tables."""

import ctypes
import json
import subprocess

import numpy as np
import oracle
import pandas as pd
import pytest
from commands import run_predict, run_train
from model_files import find_compiler

import randsvm
from randsvm.errors import OutputError, ParameterError
from randsvm.parameters.run import PredictParams

COLUMNS = ["age", "work", "hours", "country"]
VALUES = [f"shapley_{name}" for name in COLUMNS]


def table_of(n, seed, classes=2):
    """Return rows whose label depends on age and work, and little on hours."""
    random = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "id": np.arange(n),
            "age": random.integers(17, 90, n),
            "work": random.choice(["Private", "State, local", "?", 'Self "own"'], n),
            "hours": random.normal(40, 10, n).round(1),
            "country": random.choice(["US", "MX"], n, p=[0.9, 0.1]),
        }
    )
    t = frame.age / 40 + 2 * (frame.work == "Private") + frame.hours / 100
    t += 0.2 * random.standard_normal(n)
    frame["label"] = np.array(["low", "mid", "high"])[np.digitize(t, [2.0, 3.0][: classes - 1])]
    return frame


def trained(folder, *words, classes=2, scale="minmax"):
    """Train with a table; return a test file, the model and the rows of the test file."""
    table_of(300, 1, classes).to_csv(folder / "train.csv", index=False)
    test = table_of(200, 2, classes)
    test.to_csv(folder / "test.csv", index=False)
    options = ["--format", "csv", "--label-column", "label", "--ignore-columns", "id"]
    run_train(*words, *options, "--scale", scale, "-q", folder / "train.csv", folder / "m")
    return folder / "test.csv", folder / "m", test


def one_hot(frame, model):
    """Return the features of rows, by the columns of a model."""
    columns = randsvm.load(str(model)).model.columns
    parts = [
        [frame[one.name]]
        if one.categories is None
        else [frame[one.name] == text for text in one.categories]
        for one in columns.columns
    ]
    return np.column_stack([np.asarray(one, float) for part in parts for one in part])


def test_the_value_of_a_column_is_that_of_all_its_features(tmp_path):
    data, path, test = trained(tmp_path, "-g", "0.3", scale="unit")
    randsvm.explain(data, path, tmp_path / "phi", params=PredictParams(keep="work,id"))
    found = pd.read_csv(tmp_path / "phi")
    assert list(found.columns) == ["work", "id", "f", *VALUES]
    assert list(found.id) == list(test.id) and list(found.work) == list(test.work)
    model = randsvm.load(str(path)).model
    Z, beta = model.Z.toarray().astype(float), model.beta[:, 0]
    X = one_hot(test, path)
    groups = [[0], [1, 2, 3, 4], [5], [6, 7]]
    for row in (0, 7, 199):
        x = (X[row] / np.linalg.norm(X[row])).astype(np.float32).astype(float)
        factors = np.exp(-0.3 * (x - Z) ** 2)
        K = np.column_stack([factors[:, group].prod(axis=1) for group in groups])
        expected = oracle.shapley_by_definition(K, beta)
        np.testing.assert_allclose(found.loc[row, VALUES].astype(float), expected, atol=1e-6)


@pytest.mark.parametrize("form", ["csv", "tsv", "parquet"])
def test_values_of_columns_add_up_to_the_scores(tmp_path, form, capsys):
    data, model, test = trained(tmp_path, "-g", "1", classes=3)
    if form == "parquet":
        test.to_parquet(data := tmp_path / "test.parquet")
    elif form == "tsv":
        test.to_csv(data := tmp_path / "test.tsv", sep="\t", index=False)
    words = ["--format", form, "--keep", "id"]
    run_predict("--scores", *words, "-q", data, model, tmp_path / "f")
    capsys.readouterr()
    run_predict("explain", *words, "--report", "json", data, model, tmp_path / "phi")
    record = json.loads(capsys.readouterr().out)
    between = "\t" if form == "tsv" else ","
    scores = pd.read_csv(tmp_path / "f", sep=between).to_numpy()
    found = pd.read_csv(tmp_path / "phi", sep=between)
    assert list(found.columns) == ["id", "f", *VALUES]
    # A line for each of three pairs of classes.
    assert list(found.id) == list(np.repeat(test.id, 3))
    np.testing.assert_allclose(found.f.to_numpy().reshape(-1, 3), scores[:, 1:], atol=1e-9)
    base = np.tile(record["base_values"], len(test))
    np.testing.assert_allclose(found[VALUES].sum(axis=1) + base, found.f, atol=1e-9)
    # The same columns replace the file, others do not.
    run_predict("explain", *words, "-q", data, model, tmp_path / "phi")
    with pytest.raises(OutputError, match="not a file of Shapley values of the same columns"):
        run_predict("explain", "--format", form, "-q", data, model, tmp_path / "phi")


def test_the_code_in_c_has_the_names_of_features(tmp_path):
    compiler = find_compiler()
    if compiler is None:
        pytest.skip("there is no C compiler")
    data, model, test = trained(tmp_path, "-g", "1")
    found = randsvm.export(model, tmp_path / "m.c", data)
    assert found.rows == len(test) and found.labels_differ == 0
    library = tmp_path / "m.so"
    subprocess.run([*compiler, "-shared", "-fPIC", "-o", library, tmp_path / "m.c", "-lm"],
                   check=True)  # fmt: skip
    code = ctypes.CDLL(str(library))
    code.randsvm_feature.restype = ctypes.c_char_p
    names = ["age", "work=?", "work=Private", 'work=Self "own"', "work=State, local", "hours",
             "country=MX", "country=US"]  # fmt: skip
    assert [code.randsvm_feature(i).decode() for i in range(8)] == names
    code.randsvm_decision.restype = ctypes.c_double
    expected = randsvm.load(str(model)).decision_function(one_hot(test, model))
    for row, f in zip(one_hot(test, model)[:20], expected[:20], strict=True):
        x = (ctypes.c_double * 8)(*row)
        assert code.randsvm_decision(x) == pytest.approx(f, abs=1e-9)


def test_formats_without_columns_are_refused(tmp_path):
    data, model, _ = trained(tmp_path, "-g", "1")
    (tmp_path / "t.svm").write_text("1 1:1\n-1 1:2\n")
    run_train("-q", tmp_path / "t.svm", tmp_path / "plain")
    for words in (["explain", data], ["export", "c", "--data", data]):
        with pytest.raises(ParameterError, match="was trained without a table"):
            run_predict(*words, "--format", "csv", tmp_path / "plain", tmp_path / "out")
    with pytest.raises(ParameterError, match="format: expected one of svmlight"):
        randsvm.explain(data, model, tmp_path / "phi", params=PredictParams(format="xls"))
    with pytest.raises(ParameterError, match="--keep is for tables"):
        run_predict("explain", "--keep", "id", tmp_path / "t.svm", tmp_path / "plain", "-")
