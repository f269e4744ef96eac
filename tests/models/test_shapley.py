"""Shapley values of rows, against sums over all subsets of features."""

import json

import numpy as np
import oracle
import pytest
from commands import run_predict, run_train
from model_files import shapley_values

import randsvm
from randsvm.errors import ModelError, OutputError

FEATURES = 8
KINDS = {
    "two classes": "-g 0.4",
    "one against one": "-g 0.3",
    "one against the rest": "-g 0.3 --multiclass ovr",
    "regression": "-s svr -g 0.2 --scale standard",
    "one-class": "-s one-class -g 0.2 --scale unit",
    "minmax": "-g 0.4 --scale minmax",
}


@pytest.mark.parametrize("d", [1, 2, 7, FEATURES])
def test_the_values_are_those_of_all_subsets(d):
    random = np.random.default_rng(d)
    # Factors near 0, near 1, and a feature whose factors are all 1.
    K = np.exp(-10 * random.random((30, d)) ** 4)
    K[:, d // 2] = 1 if d > 2 else K[:, d // 2]
    beta = random.standard_normal((30, 2))
    phi = shapley_values(K, beta)
    for column in range(2):
        np.testing.assert_allclose(
            phi[column], oracle.shapley_by_definition(K, beta[:, column]), atol=1e-13
        )


def test_many_features_add_up():
    """Elementary symmetric polynomials of 400 factors would exceed 1e100."""
    random = np.random.default_rng(0)
    K, beta = np.exp(-0.02 * random.random((50, 400))), random.standard_normal((50, 1))
    assert shapley_values(K, beta).sum() == pytest.approx(
        float(beta[:, 0] @ (K.prod(axis=1) - 1)), rel=1e-12
    )


def written(path, kind):
    random = np.random.default_rng(3)
    X = random.standard_normal((60, FEATURES)).round(2) * (random.random((60, FEATURES)) < 0.7)
    y = (X[:, 0] > 0) + 2 * (X[:, 1] > 0.3) if "against" in kind else X[:, 0] * X[:, 1] > 0
    return oracle.write_rows(path, y + 0.0, X)


@pytest.mark.parametrize("kind", KINDS)
def test_values_and_base_value_add_up_to_f(tmp_path, kind, capsys):
    data = written(tmp_path / "train", kind)
    run_train(*KINDS[kind].split(), "-q", data, tmp_path / "m")
    # A feature that training never saw.
    data.write_text(data.read_text().replace("\n", " 40:0.5\n", 1))
    run_predict("--scores", "-q", data, tmp_path / "m", tmp_path / "f")
    f = np.loadtxt(tmp_path / "f", ndmin=2)
    capsys.readouterr()
    run_predict("explain", "--report", "json", data, tmp_path / "m", tmp_path / "phi")
    record = json.loads(capsys.readouterr().out)
    assert record["event"] == "explained"
    assert record["rows"] == len(f)
    lines = [line.split() for line in (tmp_path / "phi").read_text().splitlines()[1:]]
    assert len(lines) == f.size
    first = np.array([float(words[0]) for words in lines]).reshape(f.shape)
    np.testing.assert_allclose(first, f, rtol=1e-10, atol=1e-10)
    for number, words in enumerate(lines):
        total = sum(float(word.split(":")[1]) for word in words[1:])
        base = record["base_values"][number % f.shape[1]]
        assert base + total == pytest.approx(float(words[0]), abs=1e-12)
    # 0 where a feature can have no effect: scaling removes what training never saw.
    unseen = [word for word in lines[0] if word.startswith("40:")]
    assert bool(unseen) == ("--scale" not in KINDS[kind])


def test_other_kernels_and_other_files_are_refused(tmp_path):
    data = written(tmp_path / "train", "two classes")
    run_train("-q", "-t", "linear", data, tmp_path / "m")
    with pytest.raises(ModelError, match="expected a model with the RBF kernel"):
        randsvm.explain(data, tmp_path / "m", tmp_path / "phi")
    run_train("-q", data, tmp_path / "m2")
    (tmp_path / "labels").write_text("1\n-1\n")
    with pytest.raises(OutputError, match="not a file of Shapley values"):
        randsvm.explain(data, tmp_path / "m2", tmp_path / "labels")
