"""The first pass by byte ranges gives the result of the first pass over the whole file."""

from __future__ import annotations

from contextlib import closing, contextmanager
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from randsvm.data import dataset
from randsvm.data.columns import TableOptions
from randsvm.data.reading import ParseOptions
from randsvm.errors import DataError, RandsvmError
from randsvm.parameters.run import Resources

pytest.importorskip("distributed")
from fake_cluster import FakeWorkerPool

from randsvm.cluster import byte_ranges, text_file

WIDE = " ".join(["-1", *(f"{i}:1" for i in range(1, 40))])
LINES = [
    "+1 1:0.5 3:2\n", "-1 2:1 # an end\n", "1.0 1:5e-1 900:2\r\n", "# a line\n", "\n", " \t\n",
    "-1\n", "+1 qid:3 1:1\n", "   -1 7:0\n", WIDE + "\n",
    "-1 cost:0 4:1\n", "+1 cost:0.1 1:3\n",
]  # fmt: skip
BAD = ["+1 1:x\n", "spam 1:1\n", "1.5 1:1\n", "+1 2:1 2:1\n"]


def by_ranges(paths, options):
    """Return what all workers know, as byte_ranges.load finds it."""
    files = byte_ranges.text_files([str(path) for path in paths], options, 1)
    text = byte_ranges.first_pass(FakeWorkerPool("1"), "key", files)
    with closing(text.store(0, None)) as store:
        chunks = map(store.read, range(len(text.rows)))
        needs_float64 = any(chunk.values.dtype == np.float64 for chunk in chunks)
    return replace(text, summary=replace(text.summary, float64=needs_float64))


@contextmanager
def ranges_of(size, piece):
    """Read ranges of `size` bytes, parsed in pieces of `piece` bytes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(byte_ranges, "RANGE_BYTES", size)
        patch.setattr(byte_ranges, "PIECE_BYTES", piece)
        patch.setattr(text_file, "PIECE_BYTES", piece)
        yield


def written(folder, *parts):
    """Write a file for each part, and return their paths."""
    paths = [folder / f"part {i}" for i in range(len(parts))]
    for path, lines in zip(paths, parts, strict=True):
        path.write_text("".join(lines), newline="")
    return paths


def check_result(paths, options, size, piece):
    """Compare ranges of some size with the whole files: the rows, or the error."""
    with ranges_of(size, piece):
        try:
            whole = dataset.load(tuple(map(str, paths)), options, Resources())
        except DataError as error:
            with pytest.raises(DataError) as other:
                by_ranges(paths, options)
            assert str(other.value) == str(error)
            return
        with closing(whole):
            assert_same(by_ranges(paths, options), whole)


@settings(max_examples=60)
@given(
    st.lists(st.sampled_from(LINES), min_size=1, max_size=30),
    st.integers(1, 200), st.integers(1, 100), st.integers(1, 9), st.integers(1, 60),
    st.booleans(), st.booleans(), st.sampled_from(["class", "number"]),
)  # fmt: skip
def test_ranges_of_any_size_give_the_same_summary(
    tmp_path_factory,
    lines,
    size,
    piece,
    rows,
    nonzeros,
    mark,
    cut,
    labels,
):
    path = tmp_path_factory.mktemp("text") / "data"
    content = "".join(["\ufeff" if mark else "", *lines])
    path.write_text(content.rstrip("\n") if cut else content, newline="")
    options = ParseOptions(labels=labels, chunk_rows=rows, chunk_nonzeros=nonzeros)
    check_result([path], options, size, piece)


RECORDS = [
    "1,u,p\n", "2.5, v ,q\r\n", '3,"a ""b"",\n c","p"\n', "\n", ",u,q\n", '"4","x\ny",p q\n',
    "5e-1,v,q\n",
]  # fmt: skip
BAD_RECORDS = ["1,u\n", "1,u,p,q\n", '1,"u"v,p\n', "1,u,\n", "1,u,p_q\n", "1,u\0,p\n"]


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.lists(st.sampled_from(RECORDS), min_size=0, max_size=20), min_size=1, max_size=2),
    st.none() | st.tuples(st.sampled_from(BAD_RECORDS), st.integers(0, 20)),
    st.integers(1, 200), st.integers(1, 100), st.integers(1, 9), st.integers(1, 60),
    st.booleans(), st.booleans(), st.booleans(),
)  # fmt: skip
@example(  # a bad record that is the first of its range, but not of the file without a header
    records=[[]], bad=("1,u,\n", 0), size=1, piece=1, rows=1, nonzeros=1,
    mark=False, cut=False, header=False,
)  # fmt: skip
def test_ranges_of_a_table_give_the_same_summary(
    tmp_path_factory,
    records,
    bad,
    size,
    piece,
    rows,
    nonzeros,
    mark,
    cut,
    header,
):
    """Also for quoted newlines, several files and bad records."""
    folder = tmp_path_factory.mktemp("text")
    if bad is not None:
        records[-1].insert(bad[1], bad[0])
    paths = []
    for i, lines in enumerate(records):
        first = '"x",t,"the\nlabel"\n' if header else "0,u,p\n"
        content = "".join(["\ufeff" if mark else "", first, *lines])
        paths.append(folder / f"{i}.csv")
        paths[-1].write_text(content.rstrip("\r\n") if cut else content, newline="")
    own = TableOptions("csv", "3", header=header, fill=True)
    options = ParseOptions(chunk_rows=rows, chunk_nonzeros=nonzeros, table=own)
    check_result(paths, options, size, piece)


@settings(max_examples=60)
@given(
    st.lists(st.sampled_from(LINES[:-2]), min_size=1, max_size=30),
    st.integers(1, 200), st.integers(1, 100), st.integers(1, 9), st.integers(0, 30),
    st.lists(st.sampled_from([0.0, 0.0, 1.0, 2.5]), min_size=40, max_size=40),
    st.sampled_from([0, 0, 0, 0, -1, 1]),
)  # fmt: skip
def test_ranges_have_the_weights_of_a_file_of_weights(
    tmp_path_factory,
    lines,
    size,
    piece,
    rows,
    split,
    weights,
    excess,
):
    """Also for too few weights, too many weights and classes whose weights are all 0."""
    folder = tmp_path_factory.mktemp("text")
    paths = written(folder, lines[:split], lines[split:])
    count = sum(bool(line.split("#")[0].split()) for line in lines)
    wanted = weights[: max(0, count + excess)]
    (folder / "w").write_text("".join(f"{weight}\n" for weight in wanted))
    options = ParseOptions(chunk_rows=rows, row_weights=str(folder / "w"))
    check_result(paths, options, size, piece)


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.integers(-3, 3), st.sampled_from(["", "cost:0 "])), min_size=1),
    st.integers(1, 60), st.integers(1, 40), st.integers(0, 30),
)  # fmt: skip
def test_ranges_have_the_groups_of_one_process(
    tmp_path_factory,
    rows,
    size,
    piece,
    split,
):
    lines = [f"1 {cost}qid:{qid} 1:1\n# a line\n" for qid, cost in rows]
    folder = tmp_path_factory.mktemp("text")
    paths = written(folder, lines[:split], [*lines[split:], "-1 qid:5\n"])
    options = ParseOptions(groups=True, any_label=True)
    with ranges_of(size, piece):
        found = by_ranges(paths, options).summary.groups
    expected = [qid for qid, cost in rows if not cost] + [5]
    assert found is not None
    assert found.tolist() == expected
    with closing(dataset.load(tuple(map(str, paths)), options, Resources())) as whole:
        assert whole.groups is not None
        assert whole.groups.tolist() == expected


@pytest.mark.parametrize("line", ["+1 cost:2 1:1\n", "+1 1:x\n"])
def test_weights_of_both_kinds_and_bad_lines_are_refused_as_on_one_machine(tmp_path, line):
    path = tmp_path / "data"
    path.write_text("".join([*LINES[:3], line]), newline="")
    (tmp_path / "w").write_text("1\n" * 4)
    options = ParseOptions(row_weights=str(tmp_path / "w"))
    with pytest.raises(RandsvmError) as expected:
        dataset.load(str(path), options, Resources())
    with pytest.raises(type(expected.value)) as error:
        by_ranges([path], options)
    assert str(error.value) == str(expected.value)


def assert_same(source, whole):
    # The sums of weights are computed with the digest, by another pass.
    own = {"digest": "", "weight_sum": 0, "class_weight_sums": ()}
    expected = vars(whole.summary) | own | {"features": whole.summary.features.tolist()}
    assert vars(source.summary) | {"features": source.summary.features.tolist()} == expected
    assert source.rows.tolist() == whole.store.sizes.tolist()
    store = source.store(0, None)
    for number in range(len(source.rows)):
        for _ in range(2):  # parsed, then from the store
            for name in ("y", "indptr", "indices", "values"):
                ours, theirs = (getattr(s.read(number), name) for s in (store, whole.store))
                assert np.array_equal(ours, theirs)
            m = source.rows[number]
            weights = [s.read(number).weights for s in (store, whole.store)]
            ours, theirs = (np.ones(m) if w is None else w for w in weights)
            assert np.array_equal(ours, theirs)
    store.close()


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("size", [10, 33, 1000])
def test_the_error_names_the_first_bad_line(tmp_path, monkeypatch, bad, size):
    monkeypatch.setattr(byte_ranges, "RANGE_BYTES", size)
    path = tmp_path / "data"
    path.write_text("".join([*LINES, bad, *LINES, "-1 1:y\n"]), newline="")
    with pytest.raises(DataError) as expected:
        dataset.load(str(path), ParseOptions(), Resources())
    with pytest.raises(DataError) as error:
        by_ranges([path], ParseOptions())
    assert str(error.value) == str(expected.value)
