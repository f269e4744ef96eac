"""A float32 stands for its shortest decimal, so that every value of a file comes back exactly."""

import gzip
import io
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rows import matrix_of, numbers_of, open_rows, parse, stored
from scipy import sparse

from randsvm import Arrays

rng = np.random.default_rng(0)
ROWS = 200
NORMAL = rng.normal(size=(ROWS, 3))


def digits(X, form):
    """Return the numbers as a file with these digits has them."""
    return np.array([float(format(x, form)) for x in X.ravel().tolist()]).reshape(X.shape)


# Numbers of a file, and whether float32 stands for them.
NUMBERS = {
    "six digits": (digits(NORMAL * 10.0 ** rng.integers(-15, 15, NORMAL.shape), ".6g"), True),
    "three decimals": (digits(NORMAL * 100, ".3f"), True),
    "seven decimals in [0, 1)": (digits(rng.random(NORMAL.shape), ".7f"), True),
    "whole numbers": (rng.integers(-(2**24), 2**24, NORMAL.shape).astype(float), True),
    "shortest float32": (np.array([float(str(x)) for x in NORMAL.astype("f").ravel()]), True),
    "float32": (NORMAL.astype("f").astype(float), False),
    "all digits": (NORMAL, False),
    "nine digits": (digits(NORMAL, ".9g"), False),
    "seconds since 1970": (np.round(1.7e9 + 3e5 * NORMAL), False),
    "tiny": (digits(NORMAL * 1e-30, ".6g"), False),
}


@pytest.mark.parametrize("X, is_float32", NUMBERS.values(), ids=NUMBERS)
def test_numbers_come_back_from_storage(X, is_float32):
    values = stored(X.ravel())
    assert values.dtype == (np.float32 if is_float32 else np.float64)
    assert numbers_of(values).tolist() == X.ravel().tolist()


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32), min_size=1))
def test_a_float32_stands_for_the_decimal_that_numpy_prints(values):
    x = np.array(values, np.float32)
    numbers = numbers_of(x)
    assert numbers.astype(np.float32).view(np.int32).tolist() == x.view(np.int32).tolist()
    usual = (np.abs(x) > 1e-15) & (np.abs(x) < 1e22)
    assert numbers[usual].tolist() == [float(str(one)) for one in x[usual]]


@given(
    st.lists(
        st.one_of(
            st.floats(-1e38, 1e38).map(repr),
            st.from_regex(r"[0-9]{1,25}(\.[0-9]{1,25})?(e-?[0-9])?", fullmatch=True),
        ),
        min_size=1,
        max_size=20,
    ),
    st.booleans(),
)
def test_values_are_those_of_python(texts, float64):
    row = " ".join(f"{i}:{text}" for i, text in enumerate(texts, 1))
    block = parse(f"1 {row}\n".encode(), float64=float64)
    assert numbers_of(block.values).tolist() == [float(text) for text in texts]


# ---- ways to read -----------------------------------------------------------------------------


def text_of(X):
    rows = (" ".join(f"{j}:{x!r}" for j, x in enumerate(row, 1)) for row in X.tolist())
    return "".join(f"{1 - 2 * (i % 2)} {row}\n" for i, row in enumerate(rows)).encode()


def table_of(X):
    rows = (",".join(map(repr, row)) for row in X.tolist())
    return "".join(
        ["y,a,b,c\n", *(f"{'pq'[i % 2]},{row}\n" for i, row in enumerate(rows))]
    ).encode()


def assert_rows(X, source, **options):
    with open_rows(source, **options) as D:
        assert D.summary.float64
        np.testing.assert_array_equal(matrix_of(D), X)
        np.testing.assert_array_equal(D.points(np.array([1, ROWS - 1])).X.toarray(), X[[1, -1]])


WAYS = ["text", "gzip", "pipe", "cache", "kept cache", "spill file", "CSV", "Parquet"]
WAYS += ["array", "Fortran order", "CSR"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "long", [slice(ROWS), slice(20), slice(180, ROWS)], ids=["all", "first", "last"]
)
def test_rows_are_those_of_the_source(tmp_path, monkeypatch, way, long):
    X = NORMAL.round(3)
    X[long] = NORMAL[long]
    path, options = tmp_path / "data", {"chunk_rows": 64}
    path.write_bytes(table_of(X) if way == "CSV" else text_of(X))
    source = path
    if way == "gzip":
        path.write_bytes(gzip.compress(text_of(X)))
    elif way == "pipe":
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text_of(X))))
        source = "-"
    elif way in ("cache", "kept cache"):
        options["cache"] = tmp_path / "cache"
        if way == "kept cache":
            assert_rows(X, source, **options)
    elif way == "spill file":
        options["memory"] = 2000
    elif way in ("CSV", "Parquet"):
        options["table"] = {"format": way.lower(), "label": "y"}
        if way == "Parquet":
            pyarrow = pytest.importorskip("pyarrow")
            columns = dict(zip("abc", X.T, strict=True))
            whole = pyarrow.table({"y": ["p", "q"] * (ROWS // 2), **columns})
            pytest.importorskip("pyarrow.parquet").write_table(whole, path)
    else:
        kinds = {"array": X, "Fortran order": np.asfortranarray(X), "CSR": sparse.csr_matrix(X)}
        if way in kinds:
            source = Arrays(kinds[way], np.arange(ROWS) % 2)
    assert_rows(X, source, **options)


def test_float32_arrays_are_their_own_numbers():
    X = NORMAL.astype(np.float32)
    assert_rows(X.astype(np.float64), Arrays(X, np.arange(ROWS) % 2))
