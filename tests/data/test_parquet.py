"""Test Parquet: the columns, rows and models of the same table as CSV, and errors."""

import csv
import re
from contextlib import suppress
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rows import columns_of
from test_table import assert_refused, census, open_table

import randsvm
from randsvm.errors import ContentError, DataError, RandsvmError
from randsvm.parameters.run import PredictParams

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

SVM = {"C": 1.0, "gamma": 0.1, "label_column": "income", "ignore_columns": "id"}


def typed_census(n, seed=0):
    """Return a table with a column of each type and with missing values."""
    frame = census(n, seed)
    frame.loc[::7, "hours"] = np.nan
    frame.loc[::5, "country"] = None
    frame["education"] = frame["education"].astype("category")
    frame["married"] = frame.age % 3 == 0
    frame["code"] = frame.age.astype("category")
    frame["digits"] = frame.gain.astype(str).where(frame.gain % 2 == 0, "?")
    frame["small"] = frame.age.astype(np.int8)
    frame["half"] = (frame.age / 2).astype(np.float32)
    frame["padded"] = " " + frame.workclass + "\t"
    return frame


def write(frame, path, **options):
    """Write a frame as Parquet, or as CSV with pyarrow's spelling of booleans."""
    if path.suffix == ".parquet":
        frame.to_parquet(path, index=False, **options)
    else:
        spelled = {True: "true", False: "false"}
        flags = {name: frame[name].map(spelled) for name in frame.select_dtypes("bool")}
        frame.assign(**flags).to_csv(path, index=False)
    return str(path)


def lines_of_model(path):
    """Return the lines of a model that do not name the format of its table."""
    text = path.read_text()
    for pattern in ("--format (csv|parquet)", '"format": "(csv|parquet)"', "sha256 .*"):
        text, found = re.subn(pattern, "", text)
        assert found == 1, pattern
    return text.splitlines()


@pytest.mark.parametrize("missing", ["mean", None])
def test_the_model_and_the_predictions_are_those_of_the_csv(tmp_path, missing):
    frame, test = typed_census(700), typed_census(300, seed=1)
    if missing is None:
        frame, test = (one.dropna().query("digits != '?'") for one in (frame, test))
    test.loc[test.index[0], "workclass"] = "Never-seen"
    written = []
    for name in ("csv", "parquet"):
        data = write(frame, tmp_path / f"t.{name}")
        rows = write(test.iloc[:, ::-1], tmp_path / f"test.{name}")
        model = tmp_path / f"{name}.model"
        randsvm.train(data, model, format=name, missing=missing, scale="minmax", **SVM)
        params = PredictParams(scores=True, keep="id,country,married")
        found = randsvm.predict(rows, model, tmp_path / f"{name}.out", params=params)
        assert found.rows == len(test)
        written.append((lines_of_model(model), (tmp_path / f"{name}.out").read_text()))
    assert written[0] == written[1]
    # A model predicts the other format, too.
    for name, other in (("csv", "parquet"), ("parquet", "csv")):
        params = PredictParams(scores=True, format=other, keep="id,country,married")
        model = tmp_path / f"{name}.model"
        randsvm.predict(tmp_path / f"test.{other}", model, tmp_path / "out", params=params)
        assert (tmp_path / "out").read_text() == written[0][1]


TEXTS = st.text(st.sampled_from("xyé1.,\"'\n "), max_size=4).map(str.strip)
CELLS = {
    "text": st.none() | TEXTS,
    "category": st.none() | st.sampled_from(["u", "v", "", "01"]),
    "digits": st.sampled_from(["1", "2.5", "-3e2", "na", "?"]),
    "float": st.none() | st.floats(-1e6, 1e6) | st.just(float("nan")),
    "whole": st.none() | st.integers(-(2**53), 2**53),
    "decimal": st.none() | st.integers(-(10**7), 10**7).map(lambda one: Decimal(one).scaleb(-2)),
    "flag": st.none() | st.booleans(),
}
TYPES = {
    "text": "string",
    "category": "dictionary",
    "digits": "large_string",
    "float": "float64",
    "whole": "int64",
    "decimal": "decimal",
    "flag": "bool",
}


def arrow_type(name):
    if name == "decimal":
        return pa.decimal128(12, 2)
    if name == "dictionary":
        return pa.dictionary(pa.int8(), pa.string())
    return getattr(pa, name + "_" if name == "bool" else name)()


def as_csv(value):
    if value is None or value != value:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_columns_and_rows_are_those_of_the_csv(tmp_path_factory, data):
    n = data.draw(st.integers(1, 30))
    cells = {
        name: data.draw(st.lists(kind, min_size=n, max_size=n)) for name, kind in CELLS.items()
    }
    cells = {name: values for name, values in cells.items() if any(map(as_csv, values))}
    cells["y"] = data.draw(st.lists(st.sampled_from(["p", "q"]), min_size=n, max_size=n))
    folder = tmp_path_factory.mktemp("parquet")
    arrays = {
        name: pa.array(values, arrow_type(TYPES.get(name, "string")))
        for name, values in cells.items()
    }
    pq.write_table(pa.table(arrays), folder / "t.parquet", row_group_size=7)
    with (folder / "t.csv").open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(cells)
        writer.writerows([map(as_csv, row) for row in zip(*cells.values(), strict=True)])

    def found(name):
        try:
            with open_table(folder / f"t.{name}", fill=True) as D:
                return D.summary.digest, columns_of(D), D.summary.labels
        except RandsvmError as error:
            return (str(error).split(": ", 1)[1],)

    assert found("parquet") == found("csv")


@pytest.mark.parametrize(
    "columns, problem",
    [
        ({"a": [1.0, None], "y": ["p", "q"]}, "2:1: expected a value in column 'a', found none"),
        ({"a": [1.0, float("nan")], "y": "pq"}, "2:1: expected a value in column 'a', found nan"),
        (
            {"a": [1.0, float("-inf")], "y": "pq"},
            "2:1: expected a finite number within float32 .* column 'a'",
        ),
        (
            {"a": [1.0, 1e99], "y": "pq"},
            "2:1: expected a finite number within float32 .* column 'a'",
        ),
        (
            {"a": ["1", "1e99"], "y": "pq"},
            "2:1: expected a finite number within float32 .* column 'a'",
        ),
        ({"a": ["1", "na"], "y": "pq"}, "2:1: expected a value in column 'a', found 'na'"),
        ({"a": ["u", ""], "y": "pq"}, "2:1: expected a value in column 'a', found none"),
        ({"a": ["u", None], "y": "pq"}, "2:1: expected a value in column 'a', found none"),
        ({"a": [1, 2], "y": ["p", None]}, "2:2: expected a label in column 'y', found none"),
        ({"a": [1, None], "b": [None, 1], "y": "pq"}, "1:2: expected a value in column 'b'"),
        ({"a": [None, None], "y": "pq"}, "1:1: expected values in column 'a', found none"),
        ({"a": [[1], [2]], "y": "pq"}, "1:1: expected numbers or texts in column 'a', found the"),
        ({"t": [pd.Timestamp(0)] * 2, "y": "pq"}, "1:1: expected numbers or texts in column 't'"),
        ({"a": ["u", "v\0"], "y": "pq"}, "2:1: expected text in column 'a', found a NUL byte"),
        ({"a": ["1", "-"], "y": "pq"}, "2:1: expected a number in column 'a', which has 1 number"),
        ({"a": [1, 2]}, "1:1: expected a column 'y', found 'a'"),
        ({}, "1:1: expected a column 'y', found "),
        ({"y": "pq"}, "1:1: expected a column of features"),
        ({"a": [1, 2], "y": ["p", "3"]}, "2:2: expected a name like the first label"),
    ],
)
def test_an_error_has_its_row_and_column(tmp_path, columns, problem):
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({name: list(one) for name, one in columns.items()}), path)
    assert_refused(rf"t\.parquet:{problem}", path)


def test_an_error_counts_the_rows_of_all_batches(tmp_path):
    values = [1.5] * 150_000
    values[140_000] = None
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"y": ["p", "q"] * 75_000, "a": values}), path)
    assert_refused(r"t\.parquet:140001:2: expected a value in column 'a'", path)
    texts = [f"{i}.x" for i in range(150_000)]
    pq.write_table(pa.table({"y": ["p", "q"] * 75_000, "a": texts}), path)
    assert_refused(r"t\.parquet:1:2: expected numbers or at most 10,000", path)


def test_a_file_that_is_not_parquet_is_refused(tmp_path):
    path = tmp_path / "t.parquet"
    write(census(50), path)
    content = path.read_bytes()
    for damaged in (b"", b"a,y\n1,p\n", content[:-100], content[:200] + content[300:]):
        path.write_bytes(damaged)
        message = r"t\.parquet: expected a Parquet file"
        with pytest.raises(ContentError, match=message), open_table(path, "income", ignored="id"):
            pass


def test_kept_texts_with_line_ends_are_read_again(tmp_path):
    texts = ["u", "v\nw", "x\ry", "a,\r\nb"] * 10
    table_ = pa.table({"y": ["a", "b"] * 20, "x": np.arange(40.0), "s": texts})
    path, model, out = tmp_path / "t.parquet", tmp_path / "m", tmp_path / "out.csv"
    pq.write_table(table_, path)
    randsvm.train(path, model, format="parquet", label_column="y", ignore_columns="s")
    randsvm.predict(path, model, out, params=PredictParams(keep="s,x"))
    with out.open(newline="") as stream:
        rows = list(csv.reader(stream))
    assert [row[0] for row in rows[1:]] == texts and {len(row) for row in rows} == {3}


@pytest.mark.parametrize(
    "value, kind", [([1], "list<"), ({"a": 1}, "struct<"), (b"\xff", "binary"), (b"u", "binary")]
)
def test_a_kept_column_without_texts_is_refused_with_its_place(tmp_path, value, kind):
    table_ = pa.table({"x": np.arange(40.0), "n": [value] * 40, "y": ["a", "b"] * 20})
    path, model = tmp_path / "t.parquet", tmp_path / "m"
    pq.write_table(table_, path)
    randsvm.train(path, model, format="parquet", label_column="y", ignore_columns="n")
    message = rf"t\.parquet:1:2: expected .* in column 'n', found the type {kind}"
    with pytest.raises(DataError, match=message):
        randsvm.predict(path, model, tmp_path / "out", params=PredictParams(keep="n"))


def test_a_kept_time_in_an_unknown_zone_is_an_error_of_the_file(tmp_path):
    times = pa.array(range(40), pa.timestamp("s", tz="Nowhere/Nothing"))
    path, model = tmp_path / "t.parquet", tmp_path / "m"
    pq.write_table(pa.table({"x": np.arange(40.0), "t": times, "y": ["a", "b"] * 20}), path)
    randsvm.train(path, model, format="parquet", label_column="y", ignore_columns="t")
    with pytest.raises(ContentError, match=r"t\.parquet: .* timezone"):
        randsvm.predict(path, model, tmp_path / "out", params=PredictParams(keep="t"))


def test_a_changed_byte_is_read_or_refused(tmp_path):
    """A position beyond a dictionary is an error of the file, whatever decodes it."""
    path, rng = tmp_path / "t.parquet", np.random.default_rng(0)
    write(census(200), path)
    content = path.read_bytes()
    for at in rng.integers(4, len(content), 60).tolist():
        path.write_bytes(content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :])
        with suppress(ContentError, DataError), open_table(path, "income", ignored="id"):
            pass
