"""--warm-start: yesterday's model, today's rows, the same optimum in far fewer rounds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import oracle
import pytest
from learning import Data, answer_of, board, gaussians, kernel, learn
from libsvm import svmutil

from randsvm.errors import InputError, ModelError

OLD, NEW = 3000, 3060
WORDS = "-t 2 -g 1"
KINDS = {
    "randsvm --gap": ("randsvm", "--gap", 1e-3, "--sample-size", 300),
    "randsvm": ("randsvm", "-k", 999, "--sample-size", 1000),
    "osuna": ("osuna", "--working-set", 300),
}


@pytest.fixture(scope="module")
def today() -> Data:
    return gaussians(NEW)


@pytest.fixture(scope="module")
def yesterday(today) -> Data:
    """Today's rows but the last 2%."""
    return Data(today.y[:OLD], today.X[:OLD])


@pytest.fixture(scope="module")
def optimal(today) -> float:
    y, X = today
    whole = oracle.libsvm_train(y, X, f"{WORDS} -e 1e-5")
    Z = X[whole.rows]
    return float(y[whole.rows] @ whole.beta - whole.beta @ kernel(WORDS, Z, Z) @ whole.beta / 2)


def assert_much_faster(warm, cold, data: Data, optimal: float) -> None:
    found = answer_of(warm.model, data, WORDS)
    assert abs(found.dual - optimal) <= 1e-3 * optimal
    assert abs(found.primal - optimal) <= 1e-3 * optimal
    assert len(warm.rounds) <= len(cold.rounds) / 2


@pytest.mark.parametrize("kind", KINDS)
def test_two_percent_of_new_rows_take_half_the_rounds_at_most(
    tmp_path, yesterday, today, optimal, kind
):
    algorithm, *words = (*KINDS[kind], *WORDS.split())
    old = learn(algorithm, yesterday.save(tmp_path / "old"), tmp_path / "old.model", *words)
    path = today.save(tmp_path / "new")
    cold = learn(algorithm, path, tmp_path / "cold.model", *words)
    warm = learn(algorithm, path, tmp_path / "warm.model", *words, "--warm-start", old.model)
    assert_much_faster(warm, cold, today, optimal)


@pytest.mark.parametrize("algorithm", ["randsvm", "osuna"])
def test_the_same_rows_are_done_in_a_round_or_two(tmp_path, today, algorithm):
    words = (*KINDS["osuna" if algorithm == "osuna" else "randsvm --gap"][1:], *WORDS.split())
    path = today.save(tmp_path / "data")
    old = learn(algorithm, path, tmp_path / "old.model", *words)
    again = learn(algorithm, path, tmp_path / "again.model", *words, "--warm-start", old.model)
    assert len(again.rounds) <= 2 < len(old.rounds)


def libsvm_model(data: Data, path: Path) -> Path:
    model = oracle.libsvm_train(*data, f"{WORDS} -e 0.001").model
    svmutil.svm_save_model(str(path), model)
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_of_libsvms_own_is_a_start(tmp_path, yesterday, today, optimal, kind):
    algorithm, *words = (*KINDS[kind], *WORDS.split())
    old = libsvm_model(yesterday, tmp_path / "libsvm.model")
    path = today.save(tmp_path / "new")
    cold = learn(algorithm, path, tmp_path / "cold.model", *words)
    warm = learn(algorithm, path, tmp_path / "warm.model", *words, "--warm-start", old)
    assert_much_faster(warm, cold, today, optimal)


def write(path: Path, data: Data, names: dict[float, str]) -> Path:
    path.write_text(oracle.svmlight_text([names[label] for label in data.y], data.X))
    return path


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("names", [{1.0: "7", -1.0: "3"}, {1.0: "spam", -1.0: "ham"}], ids=str)
def test_labels_may_appear_in_another_order(tmp_path, yesterday, today, names, kind):
    """The first label of a file is the positive class; a start with f upside down is no help."""
    algorithm, *words = (*KINDS[kind], *WORDS.split())
    order = [np.argsort(sign * today.y, kind="stable")[:1] for sign in (1, -1)]
    one, other = (np.concatenate([first, np.arange(NEW)]) for first in order)
    old_path, new_path = (
        write(tmp_path / name, Data(today.y[rows], today.X[rows]), names)
        for name, rows in (("old", one[: OLD + 1]), ("new", other))
    )
    old = learn(algorithm, old_path, tmp_path / "old.model", *words)
    cold = learn(algorithm, new_path, tmp_path / "cold.model", *words)
    warm = learn(algorithm, new_path, tmp_path / "warm.model", *words, "--warm-start", old.model)
    labels = {model.facts["labels"] for model in (old, warm)}
    assert labels == {" ".join(names.values()), " ".join(reversed(names.values()))}
    assert len(warm.rounds) <= len(cold.rounds) / 2
    assert float(warm.facts["primal"]) == pytest.approx(float(cold.facts["dual"]), rel=1e-3)


@pytest.mark.parametrize("algorithm", ["randsvm", "osuna"])
def test_a_start_from_another_problem_still_ends_at_the_optimum(tmp_path, algorithm):
    """f of a checkerboard is wrong about two gaussians; the start is bad, the answer is not."""
    data = gaussians(1000)
    words = KINDS["osuna" if algorithm == "osuna" else "randsvm --gap"][1:]
    other = libsvm_model(board(500), tmp_path / "other.model")
    path = data.save(tmp_path / "data")
    learnt = learn(algorithm, path, tmp_path / "m", *words, *WORDS.split(), "--warm-start", other)
    whole = oracle.libsvm_train(*data, f"{WORDS} -e 1e-5").dense(1000)
    best = data.y @ whole - whole @ kernel(WORDS, data.X, data.X) @ whole / 2
    assert abs(answer_of(learnt.model, data, WORDS).dual - best) <= 1e-3 * best


@pytest.mark.parametrize("algorithm", ["randsvm", "osuna", "osuna-closest"])
def test_other_labels_are_refused(command, tmp_path, algorithm):
    data = gaussians(60)
    write(tmp_path / "old", data, {1.0: "1", -1.0: "2"})
    data.save(tmp_path / "new")
    assert command("train", "randsvm", "-q", "old", "old.model").returncode == 0
    (tmp_path / "m").write_text("the old model\n")
    ended = command("train", algorithm, "-q", "--warm-start", "old.model", "new", "m")
    assert (ended.returncode, ended.stdout) == (65, "")
    (line,) = ended.stderr.splitlines()
    assert "the model to start from has the labels" in line
    assert all(label in line for label in ("1", "2", "-1"))
    assert (tmp_path / "m").read_text() == "the old model\n"


def test_a_start_that_is_no_model_is_refused(tmp_path):
    path = gaussians(60).save(tmp_path / "data")
    with pytest.raises(ModelError):
        learn("osuna", path, tmp_path / "m", "--warm-start", path)
    with pytest.raises(InputError):
        learn("osuna", path, tmp_path / "m", "--warm-start", tmp_path / "missing")
