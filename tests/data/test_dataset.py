"""Test that a data set has the same rows and chunks in memory, in a spill file and in a cache."""

import os
import time

import numpy as np
import oracle
import pytest
from base import Cancelled
from hypothesis import given, settings
from hypothesis import strategies as st
from rows import (
    Draws,
    arrays_of,
    by_class,
    dataset,
    matrix_of,
    open_rows,
    parts_of,
    sample,
    shuffled_batches,
    two_classes,
    without_parsing,
)
from sizes import change_sizes
from trainings import Draw

from randsvm.events import Waiting, emit, listening

SMALL = {"chunk_rows": 64, "chunk_nonzeros": 512}


def contents(D):
    """Return all that the chunks hold."""
    parts = [(part.start, part.X.tolist(), part.y.tolist()) for part in parts_of(D)]
    return D.summary.features.tolist(), parts


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    y, X = oracle.sparse_rows(900)
    return oracle.write_svmlight(tmp_path_factory.mktemp("d") / "a.svm", y, X)


@pytest.fixture
def small(tmp_path):
    """Return a function that writes text to small.svm."""

    def write(text):
        path = tmp_path / "small.svm"
        path.write_text(text)
        return path

    return write


# ---- memory, spill file and cache -----------------------------------------------------------


@settings(max_examples=25)
@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=60),
    st.integers(1, 8),
    st.integers(1, 30),
    st.integers(1, 500),
)
def test_chunk_boundaries_depend_on_the_rows_alone(
    tmp_path_factory,
    lengths,
    rows,
    nonzeros,
    block_size,
):
    """A chunk ends with the row that reaches either bound; the reader's blocks do not matter."""
    path = tmp_path_factory.mktemp("cuts") / "a.svm"
    path.write_text(
        "".join(" ".join(["1", *(f"{j}:1" for j in range(1, m + 1))]) + "\n" for m in lengths)
    )
    expected, held = [0], 0
    for row, m in enumerate(lengths, 1):
        held += m
        if row - expected[-1] == rows or held >= nonzeros or row == len(lengths):
            expected.append(row)
            held = 0
    with pytest.MonkeyPatch.context() as patch:
        change_sizes(patch, block_bytes=block_size)
        for place in ({"jobs": 1}, {"memory": 0}):
            with open_rows(path, chunk_rows=rows, chunk_nonzeros=nonzeros, **place) as D:
                assert [part.start for part in parts_of(D)] == expected[:-1]
                assert matrix_of(D).sum(axis=1).tolist() == lengths


def test_the_digest_depends_on_labels_weights_indices_and_values_not_on_their_notation(
    small,
):
    def digest(text):
        with open_rows(small(text)) as D:
            return D.summary.digest

    plain = digest("+1 1:0.5 3:2\n-1 2:1\n")
    assert digest("# comment\n+1\t1:5e-1 3:2.0\r\n\n-1 2:1 # end") == plain
    assert digest("+1 cost:1 1:0.5 3:2\n-1 2:1\n") == plain
    others = ["+1 1:0.5 3:2\n-1 2:1.5\n", "+1 1:0.5 4:2\n-1 2:1\n", "-1 1:0.5 3:2\n+1 2:1\n"]
    others += ["+1 cost:2 1:0.5 3:2\n-1 2:1\n", "+1 1:0.5 3:2\n-1 cost:2 2:1\n"]
    others += ["+1 1:0.5 3:2\n-1 2:1\n-1 2:1\n", "spam 1:0.5 3:2\nham 2:1\n"]
    # The same numbers in the same order, divided into other rows.
    others += ["+1 1:0.5\n-1 3:2 4:1\n", "+1 1:0.5 3:2\n-1 4:1\n"]
    assert len({plain, *map(digest, others)}) == 1 + len(others)


# ---- the cache ------------------------------------------------------------------------------


@pytest.fixture
def cached(tmp_path):
    """Write a source and its cache; return the path and what reading it with the cache gives."""
    path = oracle.write_svmlight(tmp_path / "a.svm", *oracle.two_gaussians(300))

    def found(**options):
        return uncached(path, cache=tmp_path / "cache", **options)

    found()
    return path, found


def uncached(path, **options):
    with open_rows(path, **{**SMALL, **options}) as D:
        return contents(D)


def test_a_cache_is_used_while_its_source_is_unchanged(cached, monkeypatch):
    path, found = cached
    expected = uncached(path)
    without_parsing(monkeypatch)
    assert found() == expected


@pytest.mark.parametrize("keeps_time", [False, True])
@pytest.mark.parametrize("changed", ["first row", "last row"])
def test_a_cache_of_a_changed_source_is_rebuilt(cached, set_sizes, changed, keeps_time):
    """The new text has the same length."""
    path, found = cached
    set_sizes(cache_end_bytes=100)
    found()
    before, text = path.stat(), path.read_text()
    at = 0 if changed == "first row" else text.rindex("\n", 0, -1) + 1
    path.write_text(text[:at] + {"+": "-", "-": "+"}[text[at]] + text[at + 1 :])
    if keeps_time:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    assert found() == uncached(path)


def test_a_cache_of_other_options_is_rebuilt(cached):
    path, found = cached
    for options in ({"zero_based": True}, {"labels": "number"}, {}):
        assert found(**options) == uncached(path, **options)


# ---- rows and samples -----------------------------------------------------------------------


@pytest.mark.parametrize("rare", [1, 7, 25])
@pytest.mark.parametrize("r, least", [(20, 5), (100, 10)])
def test_the_first_subset_has_rows_of_a_rare_class_and_the_requested_size(small, rare, r, least):
    """It has ten rows of a class, or the whole class, limited to half of the subset."""
    labels = ["-1"] * (1000 - rare) + ["+1"] * rare
    path = small("".join(f"{label} 1:{i}\n" for i, label in enumerate(labels)))
    with open_rows(path, **SMALL) as D:
        D = two_classes(D)
        S = D.points(dataset.random_subset(D, r, Draws(0)))
        assert np.count_nonzero(S.y > 0) >= min(least, rare)
        assert len(S) == r


# ---- views of some rows ---------------------------------------------------------------------


row_sets = st.sets(st.integers(0, 899), min_size=1, max_size=300)


@settings(max_examples=20)
@given(row_sets, st.booleans(), st.data())
def test_a_view_of_some_rows_behaves_like_a_data_set(source, wanted, spilt, data):
    """Its rows are numbered from 0; its own views and relabelled views contain the same rows."""
    y, X = oracle.sparse_rows(900)
    X = X[:, X.any(axis=0)]
    rows = np.array(sorted(wanted), np.int64)
    with open_rows(source, memory=0 if spilt else None, **SMALL) as whole:
        D = two_classes(whole)
        view = D.subset(D.mask(rows))
        assert_equals_rows(view, y[rows], X[rows])
        again = np.array(sorted(data.draw(st.sets(st.integers(0, len(rows) - 1), min_size=1))))
        assert_equals_rows(view.subset(view.mask(again)), y[rows][again], X[rows][again])
        assert_equals_rows(whole.subset(whole.mask(rows)).relabel(D.targets), y[rows], X[rows])
        # The whole set is unchanged.
        assert_equals_rows(D, y, X)


def assert_equals_rows(D, y, X):
    m = len(y)
    assert (D.n, D.d) == X.shape
    parts = parts_of(D)
    assert (np.concatenate([part.X for part in parts]) == X).all()
    assert [c.start + i for c in parts for i in range(len(c.y))] == list(range(m))
    assert np.concatenate([part.y for part in parts]).tolist() == y.tolist()
    bounds = [(shard.start, shard.stop) for shard in D.shards]
    assert [start for start, _ in bounds] + [m] == [0] + [stop for _, stop in bounds]
    some = np.arange(0, m, 3)
    points = D.points(some)
    assert points.rows.tolist() == some.tolist()
    assert (points.X.toarray() == X[some]).all()
    assert points.y.tolist() == y[some].tolist()
    keys = np.random.Philox(key=np.array([9, 4], np.uint64)).random_raw(m)
    assert sample(D, 20, 9, 4).tolist() == sorted(np.argsort(keys)[:20].tolist())


# ---- rows in random order -------------------------------------------------------------------


@pytest.fixture
def pieces(set_sizes):
    """Let a pass have several batches of pieces from several chunks."""
    set_sizes(piece_rows=20, batch_rows=130)


@pytest.fixture
def numbered(small):
    """Return 900 rows sorted by class; feature 1 of each row identifies it."""
    lines = [f"{'abc'[i // 300]} 1:{i + 1} {3 + i % 7}:1\n" for i in range(900)]
    return small("".join(lines))


def rows_in_pass_order(D, *key):
    """Return row numbers in the order of a pass, batch by batch, after checks of labels and
    columns.
    """
    found = []
    for batch in shuffled_batches(D, Draw(*key)):
        rows, (starts, columns, values) = [], arrays_of(batch)
        for i in batch.order:
            at = slice(starts[i], starts[i + 1])
            row = int(values[at][0]) - 1
            assert columns[at].tolist() == [0, 1 + row % 7]
            assert batch.y[i] == row // 300
            rows.append(row)
        found.append(rows)
    return found


def concatenated(batches):
    return [row for rows in batches for row in rows]


@pytest.mark.parametrize("some", [False, True])
def test_a_pass_visits_every_row_once_in_a_random_order(numbered, pieces, some):
    kept = np.flatnonzero(np.arange(900) % 5 != 2) if some else np.arange(900)
    with open_rows(numbered, **SMALL) as whole:
        D, _ = by_class(whole, numbered)
        D = D.subset(D.mask(kept)) if some else D
        one, two, other = (rows_in_pass_order(D, *key) for key in ((3, 1), (3, 2), (4, 1)))
        assert len(one) > 5
        for batches in (one, two, other):
            assert sorted(concatenated(batches)) == kept.tolist()
        assert len({tuple(concatenated(batches)) for batches in (one, two, other)}) == 3
        # Neighbours in the file are not neighbours in a pass; 4 of 900 are expected by chance.
        adjacent = np.abs(np.diff(concatenated(one))) == 1
        assert adjacent.sum() < 40
        assert rows_in_pass_order(D, 3, 1) == one


@pytest.mark.parametrize("rows, nonzeros", [(80_000, 1), (2000, 2000)], ids=["short", "wide"])
@pytest.mark.parametrize("draw", range(3))
def test_batches_of_a_file_sorted_by_class_hold_both_classes(tmp_path, rows, nonzeros, draw):
    """The batches mix the classes, without long runs of one class."""
    tail = " ".join(f"{j}:1" for j in range(1, nonzeros + 1)) + "\n"
    path = tmp_path / "a"
    path.write_text(f"+1 {tail}" * (rows // 2) + f"-1 {tail}" * (rows // 2))
    with open_rows(path) as whole:
        D, _ = by_class(whole, path)
        found = [batch.y[batch.order] for batch in shuffled_batches(D, Draw(0, draw))]
    assert len(found) > 1
    for classes in found:
        assert 0.1 < classes.mean() < 0.9
        changes = np.flatnonzero(np.diff(classes))
        assert np.diff(changes).max() < 100


# ---- labels, features, refusals -------------------------------------------------------------


@pytest.mark.parametrize(
    "labels, places",
    [("-1 +1", [1, 0]), ("2 1", [0, 1]), ("ham spam", [0, 1]), ("3 1 2 1", [0, 1, 2, 1])],
)
def test_classes_of_a_model_begin_with_libsvms_first_label(small, labels, places):
    """This holds for two labels; more labels are in the order of their first rows."""
    path = small("".join(f"{label} 1:1\n" for label in labels.split()))
    with open_rows(path) as whole:
        D, names = by_class(whole, path)
        assert D.points(np.arange(D.n)).y.tolist() == places
        assert [names[place] for place in places] == labels.split()


def test_calls_in_threads_end_when_nobody_waits_for_them(source):
    """As block solves after a signal: the closing evaluation needs their threads."""
    ended = []

    def work(item):
        try:
            for _ in range(100):
                time.sleep(0.05)
                emit(Waiting())
        except Cancelled:
            ended.append("early")
            raise
        ended.append("late")

    def interrupted(event):
        raise TimeoutError

    with open_rows(source, **SMALL) as D:
        with listening(interrupted), pytest.raises(TimeoutError):
            D.in_threads(work, range(4))
        assert len(D.labels()) == 900
    assert ended and set(ended) == {"early"}
