"""Test weights of rows from a file of their own: --row-weights."""

import gzip
import json
import re

import numpy as np
import oracle
import pytest
from commands import run_predict, run_train
from hypothesis import given, settings
from hypothesis import strategies as st
from rows import open_rows, summary_of
from sklearn import metrics as reference

import randsvm
from randsvm import Arrays, api
from randsvm.errors import DataError, InputError, ParameterError

ROWS = ["a 1:1\n", "# a comment\n", "b 2:1\n", "\n", "a 1:2 # x\n", "b 1:3\n"]


def read(*paths, weights=None, cache=None):
    """Return the summary of files, and the weights of their rows."""
    own = None if weights is None else str(weights)
    with open_rows(tuple(map(str, paths)), row_weights=own, cache=cache, chunk_rows=3) as D:
        found = D.weights()
        return summary_of(D), None if found is None else found.tolist()


@given(st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0, 1e-9]), min_size=2, max_size=20))
@settings(max_examples=40, deadline=None)
def test_a_file_of_weights_gives_the_data_of_cost_in_the_rows(tmp_path_factory, drawn):
    folder, numbers = tmp_path_factory.mktemp("weights"), [1.0, 2.0, *drawn]
    rows = [(f"{'ab'[i % 2]}", f"{i % 3 + 1}:{i + 1}\n") for i in range(len(numbers))]
    split = len(rows) // 2
    parts = [folder / "one", folder / "two"]
    for path, some in zip(parts, (rows[:split], rows[split:]), strict=True):
        path.write_text("".join(f"{label} {features}" for label, features in some))
    (folder / "costs").write_text(
        "".join(
            f"{label} cost:{weight!r} {features}"
            for (label, features), weight in zip(rows, numbers, strict=True)
        )
    )
    (folder / "w").write_text("# weights\n" + "".join(f" {weight!r}\r\n\n" for weight in numbers))
    expected = read(folder / "costs")
    for cache in (None, folder / "cache", folder / "cache"):
        assert read(*parts, weights=folder / "w", cache=cache) == expected


def test_a_cache_is_rebuilt_for_other_weights(tmp_path):
    data, weights, cache = tmp_path / "d", tmp_path / "w", tmp_path / "cache"
    data.write_text("".join(ROWS))
    for numbers in ([1, 2, 3, 4], [4, 3, 2, 5]):
        weights.write_text("".join(f"{number}\n" for number in numbers))
        for _ in range(2):
            assert read(data, weights=weights, cache=cache)[1] == numbers
    assert read(data, cache=cache)[1] is None


NOT_A_WEIGHT = "expected a weight from 0 to 3.4e38, found"
# The file is read in pieces of 1 MiB.
COMMENT = "#" + 700_000 * "x" + "\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1\n2\n3\n", "w:4:1: expected one weight for each row of d, found 3 weights"),
        ("", "w:1:1: expected one weight for each row of d, found 0 weights"),
        ("1\n2\n3\n4\n\n5\n", "w:6:1: expected one weight for each row of d, found 5 weights for 4 "
         "rows"),
        ("1\n2\n3\n4\n5\n6\n\n7\n", "w:5:1: expected one weight for each row of d, found 7 "
         "weights for 4 rows"),
        (f"1\n2\n{COMMENT}3\n{COMMENT}4\n5\n", "w:7:1: expected one weight for each row of d, "
         "found 5 weights for 4 rows"),
        (f"1\n2\n3\n{2 * COMMENT}", "w:4:1: expected one weight for each row of d, found 3 "
         "weights"),
        (f"{2 * COMMENT}1\n{COMMENT} x\n", f"w:5:2: {NOT_A_WEIGHT} 'x'"),
        (f"1\n#{COMMENT[:-1]}{COMMENT}", "w:2:1: expected a line of at most 1048576 bytes, found "
         "a longer one"),
        ("1\n# x\n  -1\n", f"w:3:3: {NOT_A_WEIGHT} '-1'"),
        ("1\nnan\n", f"w:2:1: {NOT_A_WEIGHT} 'nan'"),
        ("inf\n", f"w:1:1: {NOT_A_WEIGHT} 'inf'"),
        ("1e999\n", f"w:1:1: {NOT_A_WEIGHT} '1e999'"),
        ("1\n2\ntwo\n", f"w:3:1: {NOT_A_WEIGHT} 'two'"),
        ("1 1:2\n", f"w:1:1: {NOT_A_WEIGHT} '1 1:2'"),
        ("1 cost:2\n", f"w:1:1: {NOT_A_WEIGHT} '1 cost:2'"),
        ("1 2\n", f"w:1:1: {NOT_A_WEIGHT} '1 2'"),
        ("1\n0\n1\n0\n", "d:3:1: expected a weight above 0 in a row of label b, found only 0"),
        ("0\n" * 4, "d:1:1: expected a row with a weight above 0, found the weight 0 in all 4"),
    ],
)  # fmt: skip
def test_bad_weights_are_refused_with_their_place(tmp_path, monkeypatch, text, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "d").write_text("".join(ROWS))
    (tmp_path / "w").write_text(text)
    with pytest.raises(DataError) as caught:
        read("d", weights="w")
    assert str(caught.value) == message
    assert caught.value.exit_code == 65


def test_weights_come_from_one_place(tmp_path):
    data, weights = tmp_path / "d", tmp_path / "w"
    data.write_text("a cost:2 1:1\nb 1:2\n")
    weights.write_text("1\n2\n")
    with pytest.raises(
        ParameterError, match=r"give one of --row-weights and cost: in .*, not both"
    ):
        read(data, weights=weights)
    for source, name in ((Arrays([[1.0], [2.0]], [1, 2]), str(weights)), (str(data), "-")):
        with pytest.raises(ParameterError, match="--row-weights"):
            api.train(source, algorithm="sgd", row_weights=name)


@pytest.mark.parametrize("text, kind", [(None, InputError), ("x\n", DataError)])
def test_weights_are_read_before_the_first_pass_of_a_table(tmp_path, text, kind):
    data, weights = tmp_path / "d.csv", tmp_path / "w"
    data.write_text("a,y\n1,p\nz,q\n")  # what the first pass refuses
    if text is not None:
        weights.write_text(text)
    with pytest.raises(kind, match=re.escape(str(weights))):
        api.train(data, label_column="y", row_weights=str(weights))


def test_scores_of_a_prediction_count_weights(tmp_path):
    rows = ["+1 1:1\n", "-1 1:-1\n", "+1 1:-2\n", "-1 1:-3\n"]
    (tmp_path / "d").write_text("".join(rows))
    api.train(tmp_path / "d", tmp_path / "m", kernel="linear", C=0.1)
    (tmp_path / "t").write_text("".join(rows[:2]) + "+1 cost:4 1:-2\n-1 cost:0 1:3\n")
    found = randsvm.predict(tmp_path / "t", tmp_path / "m", tmp_path / "out")
    assert found.accuracy == pytest.approx(100 * 2 / 6)
    assert (found.rows, found.labelled, found.correct) == (4, 4, 2)
    assert len((tmp_path / "out").read_text().split()) == 4


def test_the_command_scores_as_scikit_learn_does_with_sample_weight(tmp_path, capsys):
    rng = np.random.default_rng(7)
    y, X = oracle.clouds(400, 0, 3, 2)
    weights = np.round(rng.exponential(size=400), 3) * (rng.random(400) < 0.9)
    # Several files, of which a pattern is the name, have one file of weights.
    for name, some in (("train", slice(200)), ("t1", slice(200, 290)), ("t2", slice(290, 400))):
        oracle.write_rows(tmp_path / name, y[some], X[some])
    lines = "".join(f"{weight!r}\n" for weight in weights[200:].tolist())
    (tmp_path / "w").write_bytes(gzip.compress(lines.encode()))
    model, out = tmp_path / "model", tmp_path / "out"
    run_train("-q", "-b", 1, tmp_path / "train", model)
    words = ["--row-weights", tmp_path / "w", "--metrics", "--report", "json", "-b", 1]
    run_predict("-q", *words, tmp_path / "t?", model, out)
    found = json.loads(capsys.readouterr().out)
    labels, *lines = [line.split()[1:] for line in out.read_text().splitlines()]
    p, own = np.array(lines, float)[:, np.argsort(labels)], {"sample_weight": weights[200:]}
    loss = reference.log_loss(y[200:], p / p.sum(axis=1, keepdims=True), **own)
    assert found["metrics"]["probabilities"]["log_loss"] == pytest.approx(loss, rel=1e-4)
    accuracy = 100 * reference.accuracy_score(y[200:], 1 + p.argmax(axis=1), **own)
    assert found["accuracy"] == pytest.approx(accuracy, abs=0.5)


# A file of rows, the file of weights (None: it is "-"), and the error.
BAD_WEIGHTS = [
    ("d", "1\n", DataError, r"w:2:1: expected one weight for each row of .*d, found 1 weights"),
    ("d", "1\n2\n3\n", DataError, r"w:3:1: .* for each row of .*d, found 3 weights for 2"),
    ("d", "1\nx\n", DataError, r"w:2:1: expected a weight from 0 to 3.4e38, found 'x'"),
    ("costs", "1\n2\n", ParameterError, "give one of --row-weights and cost:"),
    ("d", None, ParameterError, "--row-weights needs the name of a file"),
]


@pytest.mark.parametrize("command", ["predict", "certify"])
def test_predictions_need_a_weight_for_each_row(tmp_path, command):
    (tmp_path / "d").write_text("+1 1:1\n-1 1:-1\n")
    (tmp_path / "costs").write_text("+1 cost:2 1:1\n-1 1:-1\n")
    model, out = tmp_path / "m", tmp_path / "out"
    run_train("-q", tmp_path / "d", model)
    words, outputs = ([], [out]) if command == "predict" else ([command], [])
    for data, text, error, message in BAD_WEIGHTS:
        (tmp_path / "w").write_text(text or "")
        weights = "-" if text is None else tmp_path / "w"
        with pytest.raises(error, match=message):
            run_predict(*words, "-q", "--row-weights", weights, tmp_path / data, model, *outputs)
        assert not out.exists()
