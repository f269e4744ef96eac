"""Test weights of rows from a file of their own: --row-weights."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from randsvm import api
from randsvm.data import dataset
from randsvm.data.dataset import Dataset
from randsvm.data.in_memory import Arrays
from randsvm.data.reading import ParseOptions
from randsvm.errors import DataError, ParameterError
from randsvm.parameters.run import Resources

ROWS = ["a 1:1\n", "# a comment\n", "b 2:1\n", "\n", "a 1:2 # x\n", "b 1:3\n"]


def load(paths: Sequence[str | Path], weights: str | Path, cache: Path | None = None) -> Dataset:
    options = ParseOptions(row_weights=str(weights), chunk_rows=3)
    return dataset.load(
        tuple(map(str, paths)),
        options,
        Resources(jobs=2, cache=None if cache is None else str(cache)),
    )


def weights_of(D: Dataset) -> list[float] | None:
    weights = D.weights()
    return None if weights is None else weights.tolist()


@given(st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0, 1e-9]), min_size=2, max_size=20))
@settings(max_examples=40, deadline=None)
def test_a_file_of_weights_gives_the_data_of_cost_in_the_rows(
    tmp_path_factory: pytest.TempPathFactory, drawn: list[float]
) -> None:
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
    with closing(dataset.load(str(folder / "costs"), ParseOptions(chunk_rows=3), Resources())) as D:
        expected, weights = vars(D.summary), weights_of(D)
    for cache in (None, folder / "cache", folder / "cache"):
        with closing(load(parts, folder / "w", cache)) as D:
            assert {**vars(D.summary), "features": 0} == {**expected, "features": 0}
            assert weights_of(D) == weights


def test_a_cache_is_rebuilt_for_other_weights(tmp_path: Path) -> None:
    data, weights, cache = tmp_path / "d", tmp_path / "w", tmp_path / "cache"
    data.write_text("".join(ROWS))
    for numbers in ([1, 2, 3, 4], [4, 3, 2, 5]):
        weights.write_text("".join(f"{number}\n" for number in numbers))
        for _ in range(2):
            with closing(load([data], weights, cache)) as D:
                assert weights_of(D) == numbers
    with closing(dataset.load(str(data), ParseOptions(), Resources(cache=str(cache)))) as D:
        assert D.weights() is None


NOT_A_WEIGHT = "expected a finite weight of at least 0, found"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1\n2\n3\n", "w:4:1: expected one weight for each row of d, found 3 weights"),
        ("", "w:1:1: expected one weight for each row of d, found 0 weights"),
        ("1\n2\n3\n4\n\n5\n", "w:6:1: expected one weight for each row of d, found 5 weights for 4 "
         "rows"),
        ("1\n# x\n  -1\n", f"w:3:3: {NOT_A_WEIGHT} '-1'"),
        ("1\nnan\n", f"w:2:1: {NOT_A_WEIGHT} 'nan'"),
        ("inf\n", f"w:1:1: {NOT_A_WEIGHT} 'inf'"),
        ("1e999\n", f"w:1:1: {NOT_A_WEIGHT} '1e999'"),
        ("1\n2\ntwo\n", f"w:3:1: {NOT_A_WEIGHT} 'two'"),
        ("1 1:2\n", "w:1:3: expected one number a line, found '1:2' after it"),
        ("1 cost:2\n", "w:1:3: expected one number a line, found 'cost:2' after it"),
        ("1 2\n", "w:1:3: expected one number a line, found '2' after it"),
        ("1\n0\n1\n0\n", "d:3:1: expected a weight above 0 in a row of label b, found only 0"),
        ("0\n" * 4, "d:1:1: expected a row with a weight above 0, found the weight 0 in all 4"),
    ],
)  # fmt: skip
def test_bad_weights_are_refused_with_their_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "d").write_text("".join(ROWS))
    (tmp_path / "w").write_text(text)
    with pytest.raises(DataError) as caught:
        load(["d"], "w")
    assert str(caught.value) == message
    assert caught.value.exit_code == 65


def test_weights_come_from_one_place(tmp_path: Path) -> None:
    data, weights = tmp_path / "d", tmp_path / "w"
    data.write_text("a cost:2 1:1\nb 1:2\n")
    weights.write_text("1\n2\n")
    with pytest.raises(
        ParameterError, match=r"give one of --row-weights and cost: in .*, not both"
    ):
        load([data], weights)
    for source, name in ((Arrays([[1.0], [2.0]], [1, 2]), str(weights)), (str(data), "-")):
        with pytest.raises(ParameterError, match="--row-weights"):
            api.train_sgd(source, row_weights=name)


def test_scores_of_a_prediction_count_weights(tmp_path: Path) -> None:
    rows = ["+1 1:1\n", "-1 1:-1\n", "+1 1:-2\n", "-1 1:-3\n"]
    (tmp_path / "d").write_text("".join(rows))
    api.train_randsvm(tmp_path / "d", tmp_path / "m", kernel="linear", C=0.1)
    (tmp_path / "t").write_text("".join(rows[:2]) + "+1 cost:4 1:-2\n-1 cost:0 1:3\n")
    found = api.predict(tmp_path / "t", tmp_path / "m", tmp_path / "out")
    assert found.accuracy == pytest.approx(100 * 2 / 6)
    assert (found.rows, found.labelled, found.correct) == (4, 4, 2)
    assert len((tmp_path / "out").read_text().split()) == 4


def test_what_does_not_use_weights_yet_refuses_them(tmp_path: Path) -> None:
    (tmp_path / "d").write_text("+1 1:1\n-1 1:-1\n")
    api.train_randsvm(tmp_path / "d", tmp_path / "m")
    (tmp_path / "w").write_text("+1 cost:2 1:1\n-1 1:-1\n")
    with pytest.raises(ParameterError, match="rows have weights"):
        api.certify(tmp_path / "w", tmp_path / "m")
