"""Test tables: rows of CSV and TSV against pandas and the csv module, and their errors."""

import bz2
import csv
import gzip
import io
import json
import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rows import (
    Column,
    Columns,
    columns_of,
    exact_sums,
    matrix_of,
    open_rows,
    record_end,
    scaled,
    table_blocks,
)
from sklearn.datasets import dump_svmlight_file

import randsvm
from randsvm.errors import ContentError, DataError, ParameterError
from randsvm.events import Notice
from randsvm.parameters.run import PredictParams

SVM = {"C": 1.0, "gamma": 0.1, "gap": 1e-3}


def census(n, seed=0):
    """Return a table like the Census-Income data: numbers, texts, missing values, two classes."""
    rng = np.random.default_rng(seed)
    education = ["HS-grad", "Some-college", "Bachelors", "Masters", "Doctorate, PhD", "10th"]
    work = ["Private", "Self-emp-not-inc", "Local-gov", "?", "Without-pay"]
    country = ["United-States", "Mexico", "Philippines", 'Côte d"Ivoire', "Outlying-US(Guam-USVI)"]
    frame = pd.DataFrame(
        {
            "id": np.arange(n),
            "age": rng.integers(17, 90, n),
            "workclass": rng.choice(work, n),
            "education": rng.choice(education, n),
            "gain": np.where(rng.random(n) < 0.9, 0, rng.integers(1, 99999, n)),
            "hours": np.round(rng.normal(40, 12, n), 2),
            "country": rng.choice(country, n, p=[0.8, 0.1, 0.05, 0.04, 0.01]),
        }
    )
    score = frame.age / 40 + frame.education.isin(education[2:5]) + rng.normal(0, 0.3, n)
    frame["income"] = np.where(score > 1.8, " 50000+.", "- 50000.")
    return frame


def one_hot(frame):
    """Return the features of a frame: numbers as they are, a column for each sorted text."""
    parts = []
    for name in frame.columns:
        if pd.api.types.is_numeric_dtype(frame[name]):
            parts.append(frame[[name]].to_numpy(float))
        else:
            dummies = pd.get_dummies(frame[name])
            parts.append(dummies[sorted(dummies.columns, key=str.encode)].to_numpy(float))
    return np.hstack(parts)


def open_table(path, label="y", labels="class", **options):
    """Open a table, whose format is the suffix of its name, as D."""
    return open_rows(path, {"format": path.suffix[1:], "label": label, **options}, labels=labels)


def assert_refused(message, path, **options):
    with pytest.raises(DataError, match=message), open_table(path, **options):
        pass


def matrix(D, columns):
    """Return all rows of D, with a column for each feature, also for those that are always 0."""
    X = np.zeros((D.n, columns))
    at = D.summary.features - 1
    X[:, at] = matrix_of(D)
    return X


def test_a_model_of_a_table_decides_as_that_of_the_features_in_svmlight(tmp_path):
    frame, test = census(600), census(200, seed=1).sample(frac=1, axis=1, random_state=0)
    frame.to_csv(tmp_path / "t.tsv", index=False, sep="\t")
    test.drop(columns="income").to_csv(tmp_path / "test.tsv", index=False, sep="\t")
    y = (frame.income == " 50000+.").astype(int)
    X = one_hot(frame.drop(columns=["id", "income"]))
    dump_svmlight_file(X, y, str(tmp_path / "t.svm"), zero_based=False)
    whole = pd.concat([test[frame.columns], frame]).drop(columns=["id", "income"])
    test_X = one_hot(whole)[: len(test)]
    options = {**SVM, "format": "tsv", "label_column": "income", "ignore_columns": "id"}
    model = str(tmp_path / "t.model")
    randsvm.train(tmp_path / "t.tsv", model, **options)
    reference = randsvm.train(tmp_path / "t.svm", **SVM)
    params = PredictParams(scores=True, keep="id,country")
    randsvm.predict(tmp_path / "test.tsv", model, tmp_path / "out.tsv", params=params)
    out = pd.read_csv(tmp_path / "out.tsv", sep="\t")
    assert list(out.columns) == ["id", "country", "score"]
    assert np.array_equal(out.id, test.id) and list(out.country) == list(test.country)
    expected = reference.decision_function(test_X)
    # The two models may have the classes in another order.
    sign = 1 if randsvm.load(model).model.labels[0] == "50000+." else -1
    sign *= 1 if reference.model.labels[0] == "1" else -1
    assert np.allclose(out.score, sign * expected, rtol=1e-9, atol=1e-9)


class ArrowStream:
    """Rows of which only Arrow's interface is known, and which are read only once."""

    def __init__(self, frame):
        self.reader = pa.Table.from_pandas(frame).to_reader(100)

    def __arrow_c_stream__(self, requested_schema=None):
        reader, self.reader = self.reader, None
        return reader.__arrow_c_stream__(requested_schema)


def reader(frame):
    """Return a reader of pyarrow, whose rows are gone once they were read."""
    return pa.Table.from_pandas(frame).to_reader(100)


def relation(frame):
    """Return a query of DuckDB, which runs when its rows are read."""
    connection = pytest.importorskip("duckdb").connect()
    connection.register("people", frame)
    return connection.sql("SELECT * FROM people")


def polars_frame(frame):
    return pytest.importorskip("polars").from_arrow(pa.Table.from_pandas(frame))


def lazy_frame(frame):
    return polars_frame(frame).lazy()


def unstreamed(frame):
    """Return a lazy frame of a polars that has no batches."""
    plan = lazy_frame(frame)

    class Plan:
        collect_schema, collect, head = plan.collect_schema, plan.collect, plan.head

    return Plan()


def arrow_types(frame):
    return frame.convert_dtypes(dtype_backend="pyarrow")


def text_views(frame):
    """Return a table in which texts are as in a frame of polars with categories."""

    def column(values):
        if pd.api.types.is_numeric_dtype(values):
            return pa.array(values)
        codes, texts = pd.factorize(values)
        texts = pa.array(texts, pa.string_view())
        return pa.DictionaryArray.from_arrays(pa.array(codes, pa.uint32()), texts)

    return pa.table({name: column(frame[name]) for name in frame})


ARROW = [
    pa.Table.from_pandas,
    text_views,
    ArrowStream,
    reader,
    relation,
    polars_frame,
    lazy_frame,
    unstreamed,
]


@pytest.mark.parametrize("made", [pd.DataFrame, arrow_types, *ARROW])
def test_frames_train_and_predict_as_the_file_of_their_rows(tmp_path, made):
    frame, test = census(500), census(200, seed=1).sample(frac=1, axis=1, random_state=0)
    frame.loc[::7, "hours"] = np.nan
    test = test.drop(columns="income")
    options = {**SVM, "label_column": "income", "ignore_columns": "id", "missing": "mean"}
    frame.to_csv(tmp_path / "t.csv", index=False)
    test.to_csv(tmp_path / "test.csv", index=False)
    randsvm.train(tmp_path / "t.csv", tmp_path / "m", format="csv", **options)
    randsvm.predict(tmp_path / "test.csv", tmp_path / "m", tmp_path / "labels")
    expected = (tmp_path / "labels").read_text().splitlines()
    trained = randsvm.train(made(frame), tmp_path / "f", **options)
    texts = [(tmp_path / name).read_text().partition("# randsvm")[0] for name in "mf"]
    assert texts[0] == texts[1]
    for model in (trained, randsvm.load(str(tmp_path / "m"))):
        found = model.predict(made(test))
        assert [text.strip() for text in found] == expected
        features = pd.DataFrame(
            np.zeros((2, len(model.model.columns.feature_names))),
            columns=model.model.columns.feature_names,
        )
        assert len(model.predict(features)) == 2
        with pytest.raises(DataError, match=r"<data frame>:1:1: expected a column 'age'"):
            model.predict(made(test.drop(columns="age")))


@pytest.fixture(scope="module")
def flagged(tmp_path_factory):
    """Return files and frames of one table with booleans, by their names, and its labels."""
    folder, rng = tmp_path_factory.mktemp("booleans"), np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=60), "flag": rng.random(60) < 0.5})
    frame["y"] = frame.a + 3 * frame.flag > 1.5
    made = {"frame": frame, "nullable": frame.astype({"flag": "boolean", "y": "boolean"})}
    made["objects"] = frame.astype({"flag": object})
    made["categories"] = frame.astype({"flag": "category"})
    for form, separator in (("csv", ","), ("tsv", "\t")):
        for false, true in (("False", "True"), ("false", "true"), ("FALSE", "TRUE")):
            spelled = {name: frame[name].map({False: false, True: true}) for name in ("flag", "y")}
            made[f"{true}.{form}"] = folder / f"{true}.{form}"
            frame.assign(**spelled).to_csv(made[f"{true}.{form}"], sep=separator, index=False)
    made["t.parquet"] = folder / "t.parquet"
    frame.to_parquet(made["t.parquet"], index=False)
    return made, frame.y.map({False: "false", True: "true"}).tolist()


FRAMES = ["frame", "nullable", "objects", "categories"]


@pytest.mark.parametrize("name", [*FRAMES, "True.csv", "TRUE.csv", "true.tsv", "t.parquet"])
def test_booleans_are_the_same_texts_in_every_format_and_spelling(tmp_path, flagged, name):
    made, labels = flagged
    path, columns = str(tmp_path / "m"), [("a", None, None), ("flag", ("false", "true"), None)]
    trained = randsvm.train(made[name], path, label_column="y", C=100, gamma=1)
    found = [(one.name, one.categories, one.mean) for one in trained.model.columns.columns]
    assert found == columns
    for rows in made.values():
        if isinstance(rows, pd.DataFrame):
            numbers = rows.assign(flag=rows.flag.astype(float))
            for one in (rows, numbers):
                assert [text.lower() for text in trained.predict(one)] == labels
            continue
        params = PredictParams(format=rows.suffix[1:])
        result = randsvm.predict(rows, path, tmp_path / "out", params=params)
        assert result.correct == result.labelled == 60
        assert (tmp_path / "out").read_text().lower().split() == labels


# ---- columns that are no features, and notes --------------------------------------------------


def notices_of(data, **options):
    """Train on a table; return the notices, and the names of its columns of features."""
    found = []
    trained = randsvm.train(
        data,
        **{"label_column": "y", "kernel": "linear", **options},
        watch=lambda event: found.append(event.text) if isinstance(event, Notice) else None,
    )
    return found, [column.name for column in trained.model.columns.columns]


def indexed(form, frame, path):
    """Write a frame with its index, or return it as it is when read from such a file."""
    if form == "parquet":
        frame.to_parquet(path)
    elif form == "arrow":
        return pa.Table.from_pandas(frame)
    elif form == "frame":
        return pd.read_csv(io.StringIO(frame.to_csv()))
    else:
        frame.to_csv(path, sep="\t" if form == "tsv" else ",")
    return path


@pytest.mark.parametrize("form", ["csv", "tsv", "parquet", "arrow", "frame"])
@pytest.mark.parametrize("levels", [1, 2])
def test_the_index_of_a_frame_is_no_feature_and_noted(tmp_path, form, levels):
    frame = pd.DataFrame({"a": np.arange(40.0), "y": ["p", "q"] * 20})
    frame.index = [np.arange(40) * 7 + level for level in range(levels)]
    data = indexed(form, frame, tmp_path / f"t.{form}")
    notices, names = notices_of(data, model=tmp_path / "m")
    assert names == ["a"]
    assert len([text for text in notices if "index" in text and "--keep-index" in text]) == 1
    trained = randsvm.load(str(tmp_path / "m"))
    # Rows with the index, and rows without it, which is a range.
    others = indexed(form, frame.reset_index(drop=True), tmp_path / f"other.{form}")
    if isinstance(data, Path):
        for rows in (data, others):
            randsvm.predict(rows, str(tmp_path / "m"), tmp_path / rows.stem)
        outputs = [(tmp_path / rows.stem).read_text() for rows in (data, others)]
        assert outputs[0] == outputs[1]
    else:
        assert list(trained.predict(data)) == list(trained.predict(others))
    if levels == 1 or form in ("parquet", "arrow", "frame"):
        notices, names = notices_of(data, keep_index=True)
        assert len(names) == 1 + levels and not any("index" in text for text in notices)


def test_a_named_index_of_parquet_is_no_feature_unless_it_is_named(tmp_path):
    frame = pd.DataFrame({"a": np.arange(40.0), "y": ["p", "q"] * 20, "code": [1, 2, 2, 1] * 10})
    path = tmp_path / "t.parquet"
    frame.set_index("code").to_parquet(path)
    notices, names = notices_of(path)
    assert names == ["a"] and any("column 'code'" in text for text in notices)
    assert notices_of(path, categorical_columns="code")[1] == ["a", "code"]
    frame.set_index("y").to_parquet(path)
    assert notices_of(path)[1] == ["a", "code"]


def test_a_model_of_a_table_with_ignored_columns_without_names_is_read_again(tmp_path):
    path, model = tmp_path / "t.csv", str(tmp_path / "m")
    path.write_text("a,,,y\n" + "1,2,3,p\n2,3,5,q\n" * 20)
    for options in ({"ignore_columns": "2,3"}, {}):
        randsvm.train(path, model, label_column="y", kernel="linear", **options)
        assert randsvm.predict(path, model, tmp_path / "out").rows == 40


@pytest.mark.parametrize(
    "lines, options, problem",
    [
        ("5.1,3.5,setosa\n4.9,3,setosa\n6,3,virginica\n", {"label_column": "3"}, "'5.1' is a num"),
        ("a,b,y\n5.1,3.5,setosa\n4.9,3,setosa\n6,3,virginica\n", {}, ""),
        (["x,y", *(f"${i},{'pq'[i % 2]}" for i in range(40))], {}, "40 texts in 40 rows"),
        (["x,y", *(f"{i % 20}%,{'pq'[i % 2]}" for i in range(40))], {}, ""),
        (["x,y", *(f"{i % 30}%,{'pq'[i % 2]}" for i in range(99))], {}, ""),
        (["x,y", *(f"{i % 9},${i}" for i in range(40))], {}, "40 classes in 40 rows, such as '$0'"),
        (["x,y", *(f"{i % 9},{i}" for i in range(40))], {}, "40 different numbers as classes"),
        (["x,y", *(f"{i},{'pq'[i % 2]}" for i in range(40))], {}, "column 'x' looks like an id"),
    ],
)
def test_a_note_says_what_is_likely_a_mistake(tmp_path, lines, options, problem):
    path = tmp_path / "t.csv"
    path.write_text(lines if isinstance(lines, str) else "\n".join(lines))
    notices, _ = notices_of(path, **options)
    expected = [text for text in notices if problem in text] if problem else []
    own = [text for text in notices if re.search("texts in|classes|is a number| id", text)]
    assert own == expected and len(own) == bool(problem)


COUNT = 3000
ORDER = np.random.default_rng(0).permutation(COUNT)
DRAWN = np.random.default_rng(1)
# Name and values of a column -> whether it holds ids.
COLUMNS = [
    ("kunde", np.arange(COUNT) + 10**6, True),
    ("shuffled", 3 * ORDER, True),
    ("nearly all different", np.where(np.arange(COUNT) % 100 == 7, 5, ORDER), True),
    ("gaps", np.where(np.arange(COUNT) % 9 == 7, np.nan, ORDER), True),
    ("store_id", DRAWN.integers(0, 10, COUNT), True),
    ("ID", DRAWN.integers(0, 10**6, COUNT), True),
    ("share_id", DRAWN.random(COUNT).round(3), False),
    ("valid", DRAWN.integers(0, 2, COUNT), False),
    ("age", DRAWN.integers(17, 90, COUNT), False),
    ("cents", DRAWN.integers(0, 10**5, COUNT), False),
    ("population", DRAWN.lognormal(12, 2, COUNT).round(), False),
    ("half", ORDER / 2, False),
    ("halves", np.r_[np.arange(COUNT - 1), 0.5], False),
    ("few", np.r_[np.arange(18), np.full(COUNT - 18, 17)], False),
]


@pytest.mark.parametrize("name, values, is_id", COLUMNS, ids=[one[0] for one in COLUMNS])
def test_a_column_of_ids_is_noted_and_one_of_measurements_is_not(tmp_path, name, values, is_id):
    frame = pd.DataFrame({name: values, "x": DRAWN.normal(size=COUNT), "y": ["p", "q"] * 1500})
    frame.to_csv(tmp_path / "t.csv", index=False)
    options = {"gap": 0.9, "missing": "mean", "max_iterations": 1}
    for data in (tmp_path / "t.csv", frame):
        notices, _ = notices_of(data, **options)
        found = [text for text in notices if "--ignore-columns" in text]
        assert len(found) == is_id
        assert not is_id or f"column '{name}' looks like an id" in found[0]
    codes = {"categorical_columns": name} if len(set(values)) < 100 else {"ignore_columns": name}
    notices, _ = notices_of(frame, **options, **codes)
    assert not [text for text in notices if "like an id" in text]


def test_several_columns_of_ids_are_one_note_over_all_batches_and_files(tmp_path):
    found = []
    for part in range(2):
        numbers = np.arange(COUNT) + part * COUNT
        table = {"a": numbers, "b, c": numbers[::-1], "rank": numbers % COUNT // 2, "y": "pq"[part]}
        pd.DataFrame(table).to_csv(tmp_path / f"{part}.csv", index=False)
    randsvm.train(
        [tmp_path / "0.csv", tmp_path / "1.csv"],
        label_column="y",
        kernel="linear",
        watch=lambda event: found.append(event.text) if isinstance(event, Notice) else None,
    )
    (note,) = [text for text in found if "like ids" in text]
    assert note.startswith("columns 'a', 'b, c' look like ids")
    assert note.endswith("""--ignore-columns 'a,"b, c"'?""")


def test_a_frame_with_objects_of_several_types_is_refused():
    frame = pd.DataFrame({"a": [True, "maybe"] * 10, "y": ["p", "q"] * 10})
    with pytest.raises(ContentError, match=r"<data frame>: expected .*column a"):
        randsvm.train(frame, label_column="y")


# The csv module of older versions of Python does not quote a carriage return alone.
TEXTS = st.text(st.sampled_from("xyzé,;\"'\n\t~ "), max_size=12).map(
    lambda text: text.strip().replace("~", "\r\n")
)
NUMBERS = st.floats(-1e6, 1e6, width=32).map(lambda x: x + 0.0)


@given(st.data(), st.sampled_from("cq"), st.sampled_from(["\n", "\r\n"]), st.booleans())
@settings(max_examples=150, deadline=None)
def test_what_the_csv_module_writes_is_read(
    tmp_path_factory,
    data,
    quoting,
    end,
    header,
):
    n = data.draw(st.integers(1, 12))
    tables = [
        (name, data.draw(st.lists(kind, min_size=n, max_size=n)))
        for name, kind in [('a "b"', TEXTS), ("n,\n", NUMBERS), ("c", TEXTS), ("m", NUMBERS)]
    ]
    named = [(name, values) for name, values in tables if any(map(str, values))]
    labels = data.draw(st.lists(st.sampled_from(["yes", "no"]), min_size=n, max_size=n))
    path = tmp_path_factory.mktemp("csv") / "t.csv"
    style = {"c": csv.QUOTE_MINIMAL, "q": csv.QUOTE_ALL}[quoting]
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, quoting=style, lineterminator=end)
        if header:
            writer.writerow([*(name for name, _ in named), "label"])
        writer.writerows(zip(*(values for _, values in named), labels, strict=True))
    columns, X = [], []
    for number, (name, values) in enumerate(named, 1):
        name = name if header else str(number)
        if isinstance(values[0], float):
            columns.append((name, None, float(np.sum(values) / n)))
            X.append(np.array(values)[:, None])
            continue
        texts = sorted({text for text in values if text}, key=str.encode)
        columns.append((name, tuple(texts), None))
        X.append(np.array([[text == one for one in texts] for text in values], float))
    label = "label" if header else str(len(named) + 1)
    with open_table(path, label, header=header, fill=True) as D:
        for found, other in zip(columns_of(D), columns, strict=True):
            assert found[:2] == other[:2]
            assert found[2] == (None if other[2] is None else pytest.approx(other[2], 1e-9, 1e-9))
        expected = np.hstack(X)
        assert np.array_equal(matrix(D, expected.shape[1]), expected.astype(np.float32))
        assert [D.summary.labels[int(code)] for code in D.labels()] == labels
        # The same rows in small blocks, which cut quoted fields and line ends anywhere.
        blocks = table_blocks(path, D, block_size=2400)
    assert sum(map(len, blocks)) == n
    values = np.concatenate([block.values for block in blocks])
    assert np.array_equal(values, expected[expected != 0])


@pytest.mark.parametrize("tail", ["", '"', '"u\n', "\r", '"u"'])
@given(st.text(st.sampled_from('",\n\r;x'), max_size=40))
@settings(max_examples=150, deadline=None)
def test_a_block_ends_with_the_last_record_of_pyarrow(tail, text):
    """What follows that end is one record, and what precedes it is whole records."""
    content = (text + tail).encode()
    end = record_end(content)
    options = {
        "read_options": pa.csv.ReadOptions(column_names=["a"], use_threads=False),
        "parse_options": pa.csv.ParseOptions(
            delimiter=";", newlines_in_values=True, ignore_empty_lines=False
        ),
        "convert_options": pa.csv.ConvertOptions(column_types={"a": pa.string()}),
    }

    def rows(part):
        return pa.csv.read_csv(pa.BufferReader(part), **options)["a"].to_pylist() if part else []

    try:
        whole = rows(content + b"\n")
    except pa.ArrowInvalid:
        return
    before = rows(content[:end])
    assert before == whole[: len(before)] and len(whole) - len(before) <= 1


def test_a_quote_within_a_field_is_a_character(tmp_path):
    """It opens no quoted text, also if a field of the last row has a line end."""
    (tmp_path / "t.csv").write_text('a,y\nu,"p"""\n"l\nm",p"\n')
    with open_table(tmp_path / "t.csv") as D:
        assert [one[1] for one in columns_of(D)] == [("l\nm", "u")]
        assert D.summary.labels == ('p"',)


def test_a_column_of_missing_numbers_alone_is_refused(tmp_path):
    (tmp_path / "t.csv").write_text("a,b,y\n5,1,p\n5,2,q\n")
    assert_refused(
        "1:1: expected values in column 'a', found none", tmp_path / "t.csv", missing="5"
    )


def test_an_open_quote_does_not_read_a_long_file_into_memory(tmp_path):
    (tmp_path / "t.csv").write_text('a,y\n1,p\n"2,q\n' + "3,p\n" * 5_000_000)
    message = "a row of more than 16,777,216 bytes, or a quote that does not end"
    with pytest.raises(ContentError, match=message), open_table(tmp_path / "t.csv"):
        pass


def test_missing_values_become_the_mean_of_pandas(tmp_path):
    frame = census(500)
    frame.loc[::7, "hours"] = np.nan
    frame.loc[::5, "country"] = np.nan
    frame.to_csv(tmp_path / "t.csv", index=False)
    filled = frame.drop(columns=["id", "income"])
    filled["hours"] = filled.hours.fillna(filled.hours.mean())
    expected = one_hot(filled)
    with open_table(tmp_path / "t.csv", "income", ignored="1", fill=True) as D:
        assert np.allclose(matrix(D, expected.shape[1]), expected, rtol=1e-6)
    message = r"t\.csv:2:\d+: expected a value in column"
    assert_refused(message, tmp_path / "t.csv", label="income", ignored="id")


FINITE = st.floats(allow_nan=False, allow_infinity=False)


@given(st.lists(FINITE, max_size=60), st.integers(1, 7))
@settings(max_examples=300, deadline=None)
def test_a_sum_is_exact_for_any_magnitudes_and_pieces(values, size):
    parts = [values[at : at + size] for at in range(0, len(values), size)]
    sums = [exact_sums(np.array([part, [-x for x in part]], np.float64)) for part in parts]
    total, negative = (sum(one) for one in zip(*sums, strict=True)) if sums else (0, 0)
    assert total == sum(map(Fraction, values))
    assert negative == -total


@pytest.mark.parametrize(
    "text, place",
    [
        ("a,y\n1,p\n2\n", "3:1: expected 2 fields, found 1"),
        ("a,y\n1,p\n2,q,\n", "3:1: expected 2 fields, found 3"),
        ('a,y\n1,p\n2,"q\n', "3:2: expected a quote at the end of a field in column 'y'"),
        ("a,y\n1,p\n,q\n", "3:1: expected a value in column 'a', found none"),
        ("a,y\n1,p\n NA ,q\n", "3:1: expected a value in column 'a', found ' NA '"),
        ("a,y\n1,p\n1e99,q\n", "3:1: expected a finite number within float32 .* column 'a'"),
        (
            "a,y\n1,p\n-inf,q\n",
            r"3:1: .*, which has 1 number, found '-inf' \(--missing-values '-inf' reads",
        ),
        ("a,y\n1,p\n2,\n", "3:2: expected a label in column 'y', found none$"),
        # The first of several faults, by row and then by column.
        ("a,b,y\n1,2,p\n3,,p\n,4,q\n", "3:2: expected a value in column 'b', found none"),
        ("a,b,y\n1,2,p\n,,\n", "3:1: expected a value in column 'a', found none"),
        ("a,b,y\n1,,p\n2,,q\n", "1:1: expected values in column 'b', found none"),
        ("a,y\n1,\0p\n", "2:2: expected text in column 'y', found a NUL byte"),
        ("a,b,y\n1,u\r4,p\n", "2:1: expected 3 fields, found 2"),
        ("a,y\n1.94\r4,p\n", "2:1: expected 2 fields, found 1"),
        (
            "a,y\n1,p\n-,q\n2,p\n",
            r"3:1: expected a number in column 'a', which has 2 numbers, "
            r"found '-' \(--missing-values '-' reads it as missing; --categorical",
        ),
        (
            'a,y\n1,p\n"1,5",q\nx,q\n',
            r"3:1: .*, which has 1 number, found '1,5' \(--missing-values '\"1,5\"' reads",
        ),
        (
            "a,y\n1,p\nit's,q\n",
            r"""3:1: .*--missing-values 'it'\\''s' reads""",
        ),
        (
            'a,y\n1,p\n"3\n4",q\n',
            r"3:1: .*, which has 1 number, found '3\\n4' \(--categorical-columns 'a' makes",
        ),
        ("a,b\n1,p\n2,q\n", r"1:1: expected a column 'y', found 'a', 'b' \(--label-column; --no-h"),
        (
            "a;y\n1;p\n",
            r"1:1: expected a column 'y', found 'a;y' \(--label-column; --delimiter ';'",
        ),
        ("a\ty\n1\tp\n", r"1:1: expected a column 'y', found .* --delimiter tab if"),
        ("a,a,y\n1,2,p\n", r"1:1: expected different names of .* 2 times \(--no-header if"),
        ("y\np\n", "1:1: expected a column of features"),
        ("", "1:1: expected a row, found an empty file"),
        ("a,y\n", r"1:1: expected rows after the names of the columns, found none \(--no-header"),
    ],
)
def test_an_error_has_its_place(tmp_path, text, place):
    path = tmp_path / "t.csv"
    path.write_text(text, newline="")
    assert_refused(rf"t\.csv:{place}", path)
    assert DataError.exit_code == 65


def test_several_columns_without_a_name_are_no_features(tmp_path):
    (tmp_path / "t.csv").write_text("a,,,y\n1,2,3,p\n")
    message = r"1:1: expected different names of columns, found '' 2 times"
    assert_refused(message, tmp_path / "t.csv", keep_index=True)


def test_a_number_column_with_too_many_texts_names_the_first_one(tmp_path):
    rows = [f"{i}.5,{'pq'[i % 2]}" for i in range(12_000)]
    rows[5000] = "5000.x,p"
    (tmp_path / "t.csv").write_text("a,y\n" + "\n".join(rows) + "\n")
    place = r"t\.csv:5002:1: expected "
    assert_refused(f"{place}a number in column 'a', which", tmp_path / "t.csv")
    assert_refused(f"{place}numbers or at most 10,000", tmp_path / "t.csv", categorical="a")


def test_empty_fields_are_none_of_the_categories_that_a_column_may_have(tmp_path):
    rows = [f"c{i},{'pq'[i % 2]}" for i in range(10_000)]
    (tmp_path / "t.csv").write_text("a,y\n" + "\n".join(rows) + "\n,p\n ,q\n")
    with open_table(tmp_path / "t.csv", fill=True) as D:
        assert [len(categories) for _, categories, _ in columns_of(D)] == [10_000]


@pytest.mark.parametrize("values", [("inf", "1", "3"), ("1", "inf", "3"), ("1", "3", "inf")])
def test_inf_may_stand_for_a_missing_number_wherever_it_is(tmp_path, values):
    (tmp_path / "t.csv").write_text("a,y\n" + "".join(f"{one},p\n" for one in values) + "5,q\n")
    with open_table(tmp_path / "t.csv", fill=True, missing="inf") as D:
        assert columns_of(D) == [("a", None, 3.0)]


def test_a_label_that_is_no_number_is_refused_as_such(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,y\n1,2\n2,u\n3,\n")
    with (
        pytest.raises(DataError, match=r"t\.csv:3:2: expected a number in column 'y', found 'u'"),
        open_rows(path, {"format": "csv", "label": "y"}, labels="number"),
    ):
        pass


def test_numbers_are_categories_of_a_column_with_other_texts(tmp_path):
    (tmp_path / "t.csv").write_text("a,b,y\n01,1,p\n2,2,q\nZ,?,p\n01,4,p\n")
    with open_table(tmp_path / "t.csv", fill=True, categorical="a") as D:
        (_, categories, _), (_, _, mean) = columns_of(D)
        assert categories == ("01", "2", "Z") and mean == pytest.approx(7 / 3)
        expected = [[1, 0, 0, 1], [0, 1, 0, 2], [0, 0, 1, 7 / 3], [1, 0, 0, 4]]
        assert np.allclose(matrix(D, 4), expected)


def test_whole_numbers_as_categories_may_become_floats_and_floats_whole_numbers():
    whole = pd.DataFrame({"code": [-1, 20, 3] * 20, "y": ["p", "q", "r"] * 20})
    frames = whole, whole.astype({"code": float})
    options = {**SVM, "label_column": "y", "categorical_columns": "code"}
    for trained in frames:
        model = randsvm.train(trained, **options)
        assert all(list(model.predict(frame)) == list(whole.y) for frame in frames)


@pytest.mark.parametrize("name", ["rows.csv", "rows.tsv.gz", "rows.parquet"])
def test_the_suffix_of_a_name_says_the_format(tmp_path, name):
    frame, path = census(300), tmp_path / name
    if name.endswith("parquet"):
        frame.to_parquet(path)
    else:
        frame.to_csv(path, sep="\t" if ".tsv" in name else ",", index=False)
    own = {"label_column": "income", **SVM}
    of_format = name.split(".")[1]
    found = randsvm.train([path], algorithm="randsvm", **own)
    asked = randsvm.train([path], algorithm="randsvm", format=of_format, **own)
    assert str(found.model.columns) == str(asked.model.columns)
    # A name that says nothing, and a format that contradicts the name.
    other = path.rename(tmp_path / "rows")
    with pytest.raises(DataError):
        randsvm.train([other], algorithm="randsvm", **SVM)
    path = other.rename(tmp_path / "rows.csv")
    with pytest.raises(DataError):
        randsvm.train([path], algorithm="randsvm", format="svmlight", **SVM)


def test_forms_of_a_file_do_not_change_the_model(tmp_path):
    frame = census(400)
    text = frame.to_csv(index=False)
    half = len(frame) // 2
    forms = {
        "plain.csv": text.encode(),
        "mark.csv": b"\xef\xbb\xbf" + text.encode(),
        "crlf.csv": text.replace("\n", "\r\n").encode(),
        "a.csv.gz": gzip.compress(text.encode()),
        "a.csv.bz2": bz2.compress(text.encode()),
        "open.csv": text.encode().rstrip(b"\n"),
        "blank.csv": b"\n" + text.replace("\n", "\n\n").encode(),
        "old-mac.csv": text.replace("\n", "\r").encode(),
        "quoted.csv": frame.to_csv(index=False, quoting=csv.QUOTE_ALL).encode(),
    }
    for name, content in forms.items():
        (tmp_path / name).write_bytes(content)
    frame[:half].to_csv(tmp_path / "part-1.csv", index=False)
    frame[half:].sample(frac=1, axis=1, random_state=1).to_csv(tmp_path / "part-2.csv", index=False)
    options = {**SVM, "format": "csv", "label_column": "income", "ignore_columns": "id"}

    def model(data, **more):
        path = tmp_path / "model"
        randsvm.train(data, path, **options, **more)
        return path.read_bytes()

    expected = model(tmp_path / "plain.csv")
    for name in forms:
        assert model(tmp_path / name) == expected, name
    assert model(str(tmp_path / "part-*.csv")) == expected
    assert model(tmp_path / "plain.csv", jobs=1, memory=16 << 20) == expected
    for _ in range(2):
        assert model(tmp_path / "plain.csv", jobs=3, cache=str(tmp_path / "cache")) == expected


@pytest.mark.parametrize("columns", ["a,b,y,c", "a,y,b2", "y,a"])
def test_a_file_with_other_columns_than_the_first_is_refused(tmp_path, columns):
    (tmp_path / "1.csv").write_text("a,b,y\n1,2,p\n3,4,q\n")
    (tmp_path / "2.csv").write_text(f"{columns}\n1,2,3,4\n")
    with pytest.raises(DataError, match=r"2\.csv:1:1: expected .* in one file only"):
        randsvm.train(str(tmp_path / "?.csv"), format="csv", label_column="y")


def test_a_number_of_a_column_is_refused_in_files_where_it_has_other_names(tmp_path):
    """The groups of the second file would be its values of b."""
    (tmp_path / "1.csv").write_text("a,b,y,g\n1,2,p,u\n3,4,q,v\n")
    options = {"format": "csv", "label_column": "y", "groups": "qid", "group_column": "4"}
    for columns, problem in (("g,a,y,b", "found 'b' in one file only"), ("a,b,y", "group-column")):
        (tmp_path / "2.csv").write_text(f"{columns}\n" + ",".join("1234"[: len(columns) // 2 + 1]))
        with pytest.raises(DataError, match=rf"2\.csv:1:1: expected .*{problem}"):
            randsvm.train(str(tmp_path / "?.csv"), **options, folds=2)


def test_a_frame_that_begins_within_its_columns_has_the_rows_that_it_shows():
    """A slice shares the numbers and codes of the whole table."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 2)), rng.choice(["p", "q"], 60)
    codes = pa.array(rng.choice(["u", "v"], 60)).dictionary_encode()
    whole = pa.table({"a": X[:, 0], "b": X[:, 1], "c": codes, "y": y})
    fitted = randsvm.train(whole, gamma=1.0, C=10.0, label_column="y")
    f = fitted.decision_function(whole.drop_columns("y"))
    assert np.array_equal(fitted.decision_function(whole.slice(17, 20)), f[17:37])


def test_1_and_true_are_two_categories_of_a_column_with_both(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,y\n" + "1,p\ntrue,q\n0,q\nfalse,p\nx,p\n" * 4)
    options = {"label_column": "y", "categorical_columns": "a", "kernel": "linear", "C": 100.0}
    randsvm.train(path, tmp_path / "m", **options)
    randsvm.predict(path, tmp_path / "m", tmp_path / "out")
    assert (tmp_path / "out").read_text().split() == ["p", "q", "q", "p", "p"] * 4


@pytest.mark.parametrize("form", ["csv", "parquet", "frame"])
def test_missing_values_are_counted_in_the_training_and_in_predictions(tmp_path, form):
    frame, notices = census(300), []
    frame.loc[::7, ["hours", "gain"]] = np.nan
    frame.loc[::5, "country"] = None
    path = tmp_path / f"t.{form}"
    if form == "csv":
        frame.to_csv(path, index=False)
    elif form == "parquet":
        frame.to_parquet(path, index=False)
    options = {"label_column": "income", "ignore_columns": "id", "missing": "mean", **SVM}
    data = frame if form == "frame" else path
    notices, _ = notices_of(data, model=tmp_path / "m", **options)
    if form != "frame":
        randsvm.predict(
            path,
            tmp_path / "m",
            tmp_path / "out",
            watch=lambda event: notices.append(event.text) if isinstance(event, Notice) else None,
        )
    missing = frame.isna().sum()
    means = f"means of their columns: gain ({missing.gain}), hours ({missing.hours})"
    for words in (means, f"match no category: country ({missing.country})"):
        assert len([text for text in notices if text.endswith(words)]) == 2 - (form == "frame")


def test_empty_fields_are_no_unknown_texts(tmp_path):
    (tmp_path / "t.csv").write_text("a,b,y\n1,u,p\n2,v,q\n3,u,p\n4,,q\n")
    (tmp_path / "test.csv").write_text("a,b\n1,\n2,w\n3,\n")
    options, notices = {"format": "csv", "label_column": "y", "missing": "mean"}, []
    randsvm.train(tmp_path / "t.csv", tmp_path / "m", kernel="linear", **options)
    randsvm.predict(
        tmp_path / "test.csv",
        tmp_path / "m",
        tmp_path / "out",
        watch=lambda event: notices.append(event.text) if isinstance(event, Notice) else None,
    )
    assert any("b (1)" in text for text in notices), notices


def test_unknown_texts_are_counted_and_are_no_category(tmp_path):
    (tmp_path / "t.csv").write_text("a,b,y\n1,u,p\n2,v,q\n3,u,p\n4,v,q\n")
    (tmp_path / "test.csv").write_text("y,b,a\np,u,1\n,w,2\n?,x,2\n,w,4\n")
    model = str(tmp_path / "model")
    notices = []
    randsvm.train(tmp_path / "t.csv", model, kernel="linear", format="csv", label_column="y")
    found = randsvm.predict(
        tmp_path / "test.csv",
        model,
        tmp_path / "out",
        params=PredictParams(scores=True),
        watch=lambda event: notices.append(event.text) if isinstance(event, Notice) else None,
    )
    assert found.labelled == 1 and found.rows == 4
    assert any(text.startswith("texts ") and "b (3)" in text for text in notices)
    rows = np.array([[1, 1, 0], [2, 0, 0], [2, 0, 0], [4, 0, 0]], float)
    expected = randsvm.load(model).decision_function(rows)
    assert np.allclose(np.loadtxt(tmp_path / "out"), expected)
    (tmp_path / "test.csv").write_text("y,b\np,u\n")
    with pytest.raises(DataError, match=r"test\.csv:1:1: expected a column 'a', found 'y', 'b'"):
        randsvm.predict(tmp_path / "test.csv", model, tmp_path / "out")


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists), st.integers())
def test_a_damaged_line_of_columns_is_refused(value, number):
    for key in ("columns", "format", "label", "header", "fill", "others", "index", "delimiter"):
        columns = Column("a"), Column("b", ("u", "v"))
        others = (1, "y"), (3, "id")
        good = json.loads(json.dumps(Columns("csv", True, "y", False, columns, others).to_json()))
        assert json.loads(json.dumps(Columns.from_json(good).to_json())) == good
        try:
            found = Columns.from_json({**good, key: value}).to_json()
        except ValueError as error:
            assert "expected the columns of a table" in str(error)
        else:
            assert json.loads(json.dumps(found)).get(key, type(value)()) == value


# ---- delimiters and decimals ------------------------------------------------------------------


def numbers_and_texts():
    """Return a frame whose texts have every delimiter."""
    rng = np.random.default_rng(3)
    frame = pd.DataFrame({"a": rng.normal(size=80).round(3), "b": rng.integers(0, 9, 80)})
    frame["kind"] = rng.choice(["u, v", "w; x", "y|z", "s: t"], 80)
    frame["y"] = np.where(frame.a + frame.kind.isin(["u, v", "y|z"]) > 0.5, "p", "q")
    return frame


@pytest.mark.parametrize("given", ["own", "auto"])
@pytest.mark.parametrize(
    "delimiter, decimal", [(";", "."), (";", ","), ("tab", "."), ("|", "."), (",", ".")]
)
def test_a_delimiter_does_not_change_rows_or_predictions(tmp_path, given, delimiter, decimal):
    frame = numbers_and_texts()
    style = {"sep": delimiter.replace("tab", "\t"), "index": False}
    frame.to_csv(tmp_path / "t.csv", decimal=decimal, **style)
    frame.to_csv(tmp_path / "plain.csv", index=False)
    own, paths = {"label_column": "y", **SVM}, {}
    for name, more in (("plain", {}), ("t", {"delimiter": delimiter if given == "own" else given})):
        paths[name] = str(tmp_path / f"{name}.m")
        randsvm.train(tmp_path / f"{name}.csv", paths[name], **own, **more)
    texts = [Path(path).read_text().partition("# randsvm")[0] for path in paths.values()]
    assert texts[0] == texts[1]
    # The model reads its own files, and with the option the others.
    outputs = []
    for name in paths:
        for model, path in paths.items():
            params = PredictParams(keep="b,a", delimiter=None if name == model else "auto")
            out = tmp_path / f"{name}-{model}.out"
            randsvm.predict(tmp_path / f"{name}.csv", path, out, params=params)
            separator = style["sep"] if model == "t" else ","
            number = decimal if name == "t" else "."
            outputs.append(pd.read_csv(out, sep=separator, decimal=number))
    assert list(outputs[0].columns) == ["b", "a", "label"]
    assert np.array_equal(outputs[0].a, frame.a)
    assert all(one.equals(outputs[0]) for one in outputs)


def test_files_of_several_delimiters_are_one_table_with_auto(tmp_path):
    frame = numbers_and_texts()
    frame[:40].to_csv(tmp_path / "1.csv", sep=";", decimal=",", index=False)
    frame[40:].to_csv(tmp_path / "2.csv", sep="\t", index=False)
    frame.to_csv(tmp_path / "t.csv", index=False)
    options = {"label_column": "y", **SVM}
    both = randsvm.train(str(tmp_path / "[12].csv"), delimiter="auto", **options)
    whole = randsvm.train(tmp_path / "t.csv", **options)
    assert np.array_equal(both.predict(frame), whole.predict(frame))
    assert both.model.columns.columns == whole.model.columns.columns


def test_points_and_decimal_commas_of_one_column_are_not_mixed(tmp_path):
    """A comma could separate thousands in a column with decimal points."""
    path, as_before = tmp_path / "t.csv", "as before in column 'a', found"
    path.write_text("a;b;y\n1.5;2;p\n2,5;3;q\n")
    assert_refused(rf"3:1: expected decimal points {as_before} '2,5'", path, delimiter=";")
    path.write_text("a;b;y\n" + "1,5;2;p\n" * 100_000 + "2.5;3;q\n")
    assert_refused(rf"100002:1: expected decimal commas {as_before} '2.5'", path, delimiter="auto")
    path.write_text("a;y\n1,5;p\n1.234,5;q\n")
    assert_refused("3:1: expected a number in column 'a', .* '1.234,5'", path, delimiter=";")
    path.write_text("a;y\n1,5;p\n-999,0;q\n,5e1;q\n+2;p\n;p\n")
    with open_table(path, delimiter=";", missing="-999", fill=True) as D:
        mean = (1.5 + 5 + 2) / 3
        assert matrix(D, 1)[:, 0] == pytest.approx([1.5, mean, 5, 2, mean])


def test_a_column_of_decimal_commas_may_be_beside_one_of_points(tmp_path):
    """The first field with a point may come late, and be a time."""
    rows, path = 100_000, tmp_path / "t.csv"
    lines = [f"{i % 7};{i % 5},5;{i % 24}.30;{i % 9}.;{'pq'[i % 2]}" for i in range(rows)]
    path.write_text("\n".join(["a;b;time;c;y", *lines, "2.5;1;1;1;p", ""]))
    at = np.arange(rows)
    expected = np.column_stack([at % 7, at % 5 + 0.5, at % 24 + 0.3, at % 9])
    with open_table(path, delimiter=";") as D:
        assert matrix(D, 4) == pytest.approx(np.vstack([expected, [2.5, 1, 1, 1]]))


def test_a_number_that_stands_for_a_missing_one_may_have_a_decimal_comma(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a;y\n1,5;p\n-9,50;q\n2;p\n")
    for missing in ("-9.5", '"-9,5"'):
        with open_table(path, delimiter=";", missing=missing, fill=True) as D:
            assert matrix(D, 1)[:, 0] == pytest.approx([1.5, 1.75, 2])


@pytest.mark.parametrize("columns", [40, 400])
def test_auto_reads_a_first_line_of_any_length(tmp_path, columns):
    path = tmp_path / "t.csv"
    header = ";".join([*(f"{j}_{'x' * 2000}" for j in range(columns)), "y"])
    row = ";".join(["1,5"] * columns)
    path.write_text(f"{header}\n{row};p\n{row};q\n")
    with open_table(path, delimiter="auto") as D:
        assert len(D.summary.features) == columns


def test_the_column_that_is_like_a_mistyped_one_is_named_even_if_it_is_not_listed(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(",".join([*"abcdefghijkl", "Income"]) + "\n" + "1," * 12 + "p\n")
    found = r"found 'a', .* 'j', \.\.\.: did you mean 'Income'\? \(--label-column;"
    with pytest.raises(DataError, match=f"1:1: expected a column 'income', {found}"):
        randsvm.train(path, label_column="income")


OTHER = r"\(--delimiter ';' if it divides the fields[;)]"


@pytest.mark.parametrize(
    "options, problem",
    [
        ({"task": "one-class"}, rf"1:1: expected several columns, found one {OTHER}"),
        ({"label_column": "1"}, rf"1:1: expected a column of features {OTHER}"),
        ({"task": "one-class", "delimiter": ","}, rf"2:1: expected 1 fields, found 3 {OTHER}"),
    ],
)
def test_another_delimiter_is_advised_where_it_divides_the_fields(tmp_path, options, problem):
    path = tmp_path / "t.csv"
    path.write_text("a;b;y\n1,5;2,5;p\n2,5;1,5;q\n1;2;p\n")
    with pytest.raises(DataError, match=problem):
        randsvm.train(path, **options)


def test_a_column_of_texts_with_another_delimiter_is_read_as_one_if_its_own_is_given(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a;b\n" + "u;v\nw;v\n" * 20)
    with pytest.raises(DataError, match="; --delimiter ',' reads one"):
        randsvm.train(path, task="one-class")
    columns = randsvm.train(path, task="one-class", delimiter=",").model.columns
    assert columns.feature_names == ["a;b=u;v", "a;b=w;v"]


def test_a_prediction_of_another_number_of_fields_advises_the_delimiter(tmp_path):
    path = tmp_path / "t.csv"
    numbers_and_texts()[["a", "b", "y"]].to_csv(path, index=False)
    randsvm.train(path, tmp_path / "m", label_column="y", **SVM)
    path.write_text("1;2;p\n2;1;q\n1;2;p\n")
    with pytest.raises(DataError, match=rf"in a file without a header, found 1 {OTHER}"):
        randsvm.predict(path, tmp_path / "m", tmp_path / "o", params=PredictParams(no_header=True))


def test_targets_have_decimal_commas_too(tmp_path):
    path, frame = tmp_path / "t.csv", numbers_and_texts()
    frame[["a", "b"]].to_csv(path, sep=";", decimal=",", index=False)
    with open_table(path, "a", delimiter=";", labels="number") as D:
        assert np.array_equal(D.labels(), frame.a)


@pytest.mark.parametrize("delimiter", ["", "x", ";;", '"', "1", "\n", 5])
def test_a_delimiter_is_one_character(delimiter):
    with pytest.raises(ParameterError, match="delimiter: expected one of , ;"):
        randsvm.train("t.csv", label_column="y", delimiter=delimiter)


# ---- files without a header -------------------------------------------------------------------


@pytest.mark.parametrize("training", ["csv", "parquet"])
@pytest.mark.parametrize("form", ["csv", "tsv"])
@pytest.mark.parametrize("dropped", [(), ("income",), ("id", "income", "gain")])
def test_a_file_without_a_header_has_the_predictions_of_one_with_a_header(
    tmp_path, training, form, dropped
):
    """The label is not the last column, and the columns left out are first and in the middle."""
    names = ["id", "age", "workclass", "income", "gain", "education", "hours", "country"]
    frame, data = census(200)[names], tmp_path / f"t.{training}"
    getattr(frame, f"to_{training}")(data, index=False)
    model = tmp_path / "model"
    own = {"format": training, "label_column": "income"}
    randsvm.train(data, model, **own, ignore_columns="id,gain", scale="minmax", **SVM)
    rows = census(50, seed=1)[names].drop(columns=list(dropped))
    for name, header in (("with", True), ("without", False)):
        separator = "\t" if form == "tsv" else ","
        rows.to_csv(tmp_path / name, sep=separator, index=False, header=header)
        params = PredictParams(format=form, keep="age,country", no_header=not header)
        found = randsvm.predict(tmp_path / name, model, tmp_path / f"{name}.out", params=params)
        assert (found.rows, found.labelled) == (50, 0 if dropped else 50)
    assert (tmp_path / "with.out").read_bytes() == (tmp_path / "without.out").read_bytes()


def test_scaling_centres_numbers_and_leaves_0_where_a_category_is_another(tmp_path):
    """Even if most features of a row are not 0."""
    lines = "".join(f"{3 + i % 5},{7 - i % 3},{'ab'[i % 2]},{i % 2}\n" for i in range(30))
    (tmp_path / "t.csv").write_text("x,z,kind,y\n" + lines)
    with open_table(tmp_path / "t.csv") as D:
        X = matrix(scaled(D, "standard"), 4)
    assert X[:, :2].mean(axis=0) == pytest.approx(0, abs=1e-6)
    assert (X[:, 2:] == np.array([[2.0, 0], [0, 2]])[np.arange(30) % 2]).all()


@pytest.mark.parametrize("format_", ["csv", "parquet"])
def test_named_texts_and_numbers_are_missing(tmp_path, format_):
    """A text is compared as it is, a number by its value; neither is missing in a text column."""
    path, model = tmp_path / f"t.{format_}", tmp_path / "m"
    a, b = ["1", "-", "3", "-999.0"] * 10, [1.5, -999, 2.5, 4.0] * 10
    frame = pd.DataFrame({"a": a, "b": b, "c": ["u", "-", "v", "u"] * 10, "y": ["p", "q"] * 20})
    getattr(frame, f"to_{format_}")(path, index=False)
    with open_table(path, fill=True, missing=" - ,-999") as D:
        (_, _, one), (_, _, two), (_, categories, _) = columns_of(D)
        assert (one, two) == (2.0, pytest.approx(8 / 3))
        assert categories == ("-", "u", "v")
        expected = [[1, 1.5, 0, 1, 0], [2, 8 / 3, 1, 0, 0], [3, 2.5, 0, 0, 1], [2, 4, 0, 1, 0]]
        assert np.allclose(matrix(D, 5), expected * 10)
    # A prediction reads what the model calls missing.
    given = {"format": format_, "label_column": "y", "missing": "mean", "missing_values": "-,-999"}
    randsvm.train(path, model, **SVM, **given)
    randsvm.predict(path, model, tmp_path / "out")
    assert len((tmp_path / "out").read_text().splitlines()) == 40


@pytest.mark.parametrize(
    "content, place",
    [
        (b"caf\xe9,y\n1,p\n", "1:1"),
        (b"a,y\n1,p\n2,\xe9\n", "3:2"),
        (b"\na,y\n\xe9,p\n2,q\n", "3:1"),
    ],
)
def test_another_encoding_than_utf_8_is_refused(tmp_path, content, place):
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    assert_refused(rf"t\.csv:{place}: expected UTF-8 in ", path)
