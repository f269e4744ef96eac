"""Test folds that keep groups of rows, against scikit-learn and by their definition."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from learning import learn
from rows import groups_of
from scipy import sparse
from trainings import folds_of, group_folds, open_task, rows_of_groups, subset_of

import randsvm
from randsvm.errors import DataError

GROUPS, ROWS_IN_GROUP = 40, 6
N = GROUPS * ROWS_IN_GROUP


def near_duplicates():
    """Return y, X and qids of groups of rows that are nearly equal, each with a label by chance.

    Rows of one group tell the labels of each other, but nothing of the labels of other groups.
    """
    rng = np.random.default_rng(3)
    group = np.repeat(np.arange(GROUPS), ROWS_IN_GROUP)
    y = np.where(rng.random(GROUPS) < 0.5, 1, -1)[group]
    X = rng.normal(size=(GROUPS, 2))[group] + 0.01 * rng.normal(size=(N, 2))
    order = rng.permutation(N)
    return y[order], np.round(X[order], 4), 7 * group[order] - 50


def lines_of(y, X, qids):
    rows = zip(y.tolist(), qids.tolist(), X.tolist(), strict=True)
    return [f"{label:+d} qid:{qid} 1:{a} 2:{b}\n" for label, qid, (a, b) in rows]


@pytest.fixture
def path(tmp_path):
    (tmp_path / "d").write_text("".join(lines_of(*near_duplicates())))
    return tmp_path / "d"


# ---- folds --------------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 2)), min_size=2, max_size=200),
    st.integers(2, 6),
    st.integers(0, 99),
)
def test_groups_stay_together_and_no_fold_is_empty(rows, folds, seed):
    groups, y = np.array(rows, np.int64).T
    fold = group_folds(groups, y, folds, seed)
    of_group = [set(fold[groups == group].tolist()) for group in np.unique(groups)]
    assert all(len(numbers) == 1 for numbers in of_group)
    assert len(set.union(*of_group)) == min(folds, len(of_group))
    assert set.union(*of_group) <= set(range(folds))


def test_folds_of_some_rows_keep_their_groups(path):
    _, _, qids = near_duplicates()
    some = np.arange(N) % 3 > 0
    with open_task(path, groups=True) as D:
        (fold,) = folds_of(D.subset(some), folds=3, groups="qid")
    of_group = [set(fold[qids[some] == qid].tolist()) for qid in np.unique(qids)]
    assert all(len(numbers) == 1 for numbers in of_group)
    assert set.union(*of_group) == {0, 1, 2}


@pytest.mark.parametrize("count", [2, 5, GROUPS, 2 * GROUPS])
def test_the_first_stage_of_a_search_has_a_group_for_each_fold(path, count):
    with open_task(path, groups=True) as D:
        rows = rows_of_groups(D, count, 0)
        found = [len(set(subset_of(D, n, 0).groups.tolist())) for n in (rows - 1, rows)]
    most = min(count, GROUPS)
    assert found == [most - 1, most]


# ---- scores -------------------------------------------------------------------------------------


def test_probabilities_are_fitted_to_groups_that_are_held_out(path, tmp_path):
    """A sigmoid of near duplicates is steep; one of groups by chance is nearly flat."""
    words = "-v", 4, "-g", 20, "-c", 5, "-b", 1
    A = []
    for more in ((), ("--groups", "qid")):
        found = learn("randsvm", path, tmp_path / "m", *words, *more)
        (line,) = re.findall(rb"^probA (.*)$", found.body, re.MULTILINE)
        A.append(abs(float(line)))
    assert A[1] < A[0] / 5


# ---- sources ------------------------------------------------------------------------------------


def tried(data, model, **options):
    found = []

    def watch(event):
        if type(event).__name__ == "Tried":
            found.extend(event.scores)

    given = {"folds": 4, "gamma": 20.0, "C": 5.0, "groups": "qid", **options}
    randsvm.train(data, model, "randsvm", watch, **given)
    return found


def test_files_caches_tables_and_arrays_have_the_same_folds(path, tmp_path):
    y, X, qids = near_duplicates()
    expected = tried(path, None)
    assert len(expected) == 4
    for _ in range(2):
        assert tried(path, None, cache=str(tmp_path / "cache")) == expected
    assert tried(path, None, memory=1 << 24, jobs=1) == expected
    parts = tmp_path / "a", tmp_path / "b"
    for part, some in zip(parts, (slice(99), slice(99, None)), strict=True):
        part.write_text("".join(lines_of(y[some], X[some], qids[some])))
    assert tried(parts, None) == expected
    # Groups are numbered in the order of their names, as those of a file by their qids.
    for rows in (X, sparse.csr_matrix(X), pd.DataFrame(X)):
        assert tried(randsvm.Arrays(rows, y, groups=qids), None) == expected
    texts = [f"g{qid + 50:04d}" for qid in qids]
    assert tried(randsvm.Arrays(X, y, groups=texts), None) == expected
    frame = pd.DataFrame({"who": texts, "a": X[:, 0], "label": y, "b": X[:, 1]})
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_parquet(tmp_path / "t.parquet")
    found = []
    for form in ("csv", "parquet"):
        table = {"format": form, "label_column": "label", "group_column": "who"}
        found.append(tried(tmp_path / f"t.{form}", tmp_path / form, **table))
        described = (tmp_path / form).read_text().partition("# randsvm columns ")[2]
        columns = json.loads(described.splitlines()[0])["columns"]
        assert [column["name"] for column in columns] == ["a", "b"]
    # Groups of tables are numbered in the order of their first rows.
    order = list(dict.fromkeys(texts))
    numbers = [order.index(text) for text in texts]
    assert found == [tried(randsvm.Arrays(X, y, groups=numbers), None)] * 2


@given(
    st.lists(st.integers(-(2**70), 2**70) | st.integers(-9, 9), min_size=1, max_size=30),
    st.sampled_from(["", "cost:2 "]),
    st.sampled_from(["", "cost:2 "]),
)
def test_groups_are_qids_modulo_2_to_the_64(values, before, after):
    if before:
        after = ""
    text = "".join(
        f"{i % 2} {before}qid:{value:+04d} {after}1:2\n# a comment\n"
        for i, value in enumerate(values)
    )
    assert groups_of(text.encode()).view(np.uint64).tolist() == [value % 2**64 for value in values]


# ---- errors -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "place", "found"),
    [
        ("1 1:2", "3:3", "'1:2' (--groups qid needs it in each row)"),
        ("1 1:2 qid:3", "3:3", "'1:2'"),
        ("  1", "3:4", "the end of the row"),
        ("1 cost:2 # qid:3", "3:10", "the end of the row"),
        ("1 qid:x 1:2", "3:3", "'qid:x'"),
    ],
)
def test_a_row_without_a_qid_is_refused(tmp_path, line, place, found):
    (tmp_path / "d").write_text(f"1 qid:4 1:1\n-1 qid:5 2:1\n{line}\n1 1:1\n")
    message = re.escape(f"d:{place}: expected qid:number, found {found}")
    with pytest.raises(DataError, match=message), open_task(tmp_path / "d", groups=True):
        pass
