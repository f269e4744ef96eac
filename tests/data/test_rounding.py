"""Whether rounding to float32 shows: by data whose answer is known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from randsvm.data import svmlight
from randsvm.data.chunks import ALL_ROWS, RawChunk, join_and_round, rows_checked

ROWS = 2000


def chunk_of(*columns: np.ndarray) -> RawChunk:
    """Rows of dense columns; nan: the row lacks the feature."""
    X = np.column_stack(columns)
    there = ~np.isnan(X)
    indptr = np.concatenate([[0], np.cumsum(there.sum(axis=1))])
    return RawChunk(np.zeros(len(X)), indptr, np.nonzero(there)[1].astype(np.int32), X[there])


def normal(seed: int = 0, rows: int = ROWS) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=rows)


def often_missing(column: np.ndarray, share: float, value: float) -> np.ndarray:
    missing = np.random.default_rng(1).random(len(column)) < share
    return np.where(missing, value, column)


SHOWS = {
    "seconds since 1970": 1.7e9 + 3e5 * normal(),
    "1e8, spread 10": 1e8 + 10 * normal(),
    "whole numbers": np.round(1e8 + 10 * normal()),
    "negative": -1e4 + normal(),
    "small": 1e-6 + 1e-10 * normal(),
    "sorted": np.sort(1e6 + normal()),
    "a tenth is 0": often_missing(1e8 + 10 * normal(), 0.1, 0.0),
    "half is absent": often_missing(1e8 + 10 * normal(), 0.5, np.nan),
    "few rows": 1e8 + 10 * normal(rows=9),
}
HIDDEN = {
    "normal": normal(),
    "20, spread 1": 20 + normal(),
    "sorted": np.sort(normal()),
    "heavy tails": np.exp(3 * normal()),
    "small": 1e-30 * normal(),
    "years, which float32 has": np.round(1990 + 5 * normal()),
    "constant": np.full(ROWS, 0.1),
    "constant but for rounding": 0.1 + 1e-17 * (np.arange(ROWS) % 9),
    "two values": np.where(normal() > 1, 0.1, 0.7),
    # 13 or 14 ones in rows of length 1, most of them 14.
    "unit length": 1 / np.sqrt(14 - (normal() > 1)),
    "time that passes": np.linspace(0, 1, ROWS),
    "nothing": np.zeros(ROWS),
}


@pytest.mark.parametrize("column", SHOWS.values(), ids=SHOWS)
def test_columns_in_which_rounding_shows_stay_float64(column: np.ndarray) -> None:
    others = normal(2, len(column)), normal(3, len(column))
    chunk = join_and_round([chunk_of(others[0], column, others[1])], 0)
    assert chunk.float64
    assert len(chunk.values) == 3 * len(column) - np.isnan(column).sum()


@pytest.mark.parametrize("column", HIDDEN.values(), ids=HIDDEN)
def test_other_columns_become_float32(column: np.ndarray) -> None:
    chunk = chunk_of(normal(2), column)
    rounded = join_and_round([chunk], 0)
    assert rounded.values.dtype == np.float32
    np.testing.assert_array_equal(rounded.values, chunk.values.astype(np.float32))


def test_few_rows_behind_others_are_no_evidence() -> None:
    """A word with nearly equal counts in the last two rows of a large file says nothing."""
    chunk = chunk_of(np.array([0.7123456789, 0.7123456111]))
    assert join_and_round([chunk], 0).float64
    assert not join_and_round([chunk], 1).float64


@given(st.integers(1, 10_000))
def test_a_sample_is_of_rows_from_all_over(m: int) -> None:
    rows = rows_checked(m)
    assert (np.diff(rows) > 0).all()
    assert rows[0] == 0
    assert rows[-1] >= m - 1 - m // 64
    assert m <= ALL_ROWS or len(rows) == 64


@given(
    st.lists(
        st.one_of(
            st.floats(-1e38, 1e38).map(repr),
            st.from_regex(r"[0-9]{1,25}(\.[0-9]{1,25})?(e-?[0-9])?", fullmatch=True),
        ),
        min_size=1,
        max_size=20,
    )
)
def test_precise_values_are_those_of_python(texts: list[str]) -> None:
    row = " ".join(f"{i}:{text}" for i, text in enumerate(texts, 1))
    block = svmlight.parse(f"1 {row}\n".encode(), name="f", labels="class", float64=True)
    assert block.values.dtype == np.float64
    assert block.values.tolist() == [float(text) for text in texts]
