"""Rows that are in memory already, as arrays, sparse matrices or data frames: the chunks of D.

Chunks end where those of a file with the same rows would, so that the model has the same bytes.
This module does not know text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from randsvm.arrays import CsrMatrix, Matrix, distinct, slices
from randsvm.data.chunks import ArrayRows, RawChunk, Store, as_in_file
from randsvm.data.labels import REGRESSION, LabelTable
from randsvm.data.reading import FirstPass, Summary
from randsvm.data.row_weights import in_range
from randsvm.data.scaling import SPARSE
from randsvm.data.svmlight import ParsedRows, ParseOptions
from randsvm.errors import ContentError, DataError
from randsvm.records import record

# Rows that are converted at a time, and values that are checked.
ROWS_AT_ONCE = 8192
VALUES_AT_ONCE = 1 << 18


@record
class Arrays:
    """Rows in memory and their labels, in place of the name of a file.

    Parameters
    ----------
    X : array, scipy sparse matrix or data frame of shape (n, d)
        Rows. Column j is the feature j + 1, or j where features begin at 0.
    y : array of shape (n,), optional
        Labels or targets; None for novelty detection.
    classes : array of shape (classes,), optional
        Labels in the order of the classes; y has the numbers of classes then. None means that y has
        the labels, which are ordered by first appearance, as in files.
    weights : array of shape (n,), optional
        Weights of the rows, at least 0; C of a row is C times its weight. Rows of weight 0 are
        left out. None means that all weights are 1.
    groups : array of shape (n,), optional
        Groups of the rows, numbers or texts. A search with the option groups="qid" keeps the rows
        of a group in one fold.
    """

    X: Any
    y: Any = None
    classes: Any = None
    weights: Any = None
    groups: Any = None

    def __str__(self) -> str:
        return "<arrays>"


def read(arrays: Arrays, options: ParseOptions) -> tuple[Summary, Store]:
    """Return the summary of arrays, as of the first pass over a file, and their chunks.

    X is not copied if it is a C-contiguous array or a CSR matrix of float32 or float64, and no row
    has the weight 0. Raises ContentError for content that no file can hold.
    """
    X, base = to_matrix(arrays.X), 0 if options.zero_based else 1
    n, d = X.shape
    if not n:
        raise ContentError("X: expected a row, found none")
    y, labels = _labels(arrays, n, options)
    weights = _weights(arrays, n)
    groups = _groups(arrays, n) if options.groups else None
    if options.has_row_numbers:
        if n != d:
            raise ContentError(
                f"X: expected kernel values of each row with each row, found {n} rows, {d} columns"
            )
        X, d = with_row_numbers(X), d + 1
    whole = ArrayRows(X, y, weights, base)
    has_all = isinstance(X, np.ndarray) or options.has_row_numbers
    every = np.arange(base, base + d, dtype=np.int32) if has_all else None

    def block(at: slice) -> ParsedRows:
        part = whole[at]
        features = distinct(part.X.indices) if every is None else every
        of_rows = None if groups is None else groups[at]
        return ParsedRows(part.X, part.y, part.weights, features, groups=of_rows)

    first_pass, kept, end = FirstPass(options), list[RawChunk | ArrayRows](), 0
    size = max(1, min(ROWS_AT_ONCE, n * options.chunk_nonzeros // max(whole.nonzeros, 1)))
    for chunk in first_pass.chunks(map(block, slices(n, size))):
        begin, end = end, end + len(chunk)
        # Until a row of weight 0 is read, chunks have consecutive rows of the arrays: no copies.
        kept.append(chunk if first_pass.zero_weights else whole.some(slice(begin, end)))
    summary = first_pass.summary(labels)
    if first_pass.zero_weights and not (options.any_label or all(summary.counts)):
        label = labels[summary.counts.index(0)]
        raise ContentError(f"weights: expected one above 0 in a row of label {label}, found only 0")
    return summary, Store(chunks=kept)


def _weights(arrays: Arrays, n: int) -> np.ndarray | None:
    """Return the weights, (n,) float64. Raises ContentError for weights that no file can hold."""
    if arrays.weights is None:
        return None
    try:
        weights: np.ndarray = np.array(arrays.weights, np.float64)
    except (TypeError, ValueError) as error:
        raise ContentError(f"weights: expected numbers, found others: {error}") from None
    _check_length("weights", weights, n)
    bad = ~in_range(weights)
    if bad.any():
        row = int(np.argmax(bad))
        problem = f"expected a weight from 0 to 3.4e38, found {weights[row]:.9g}"
        raise ContentError(f"weights[{row}]: {problem}")
    if not weights.any():
        raise ContentError(f"weights: expected one above 0, found the weight 0 in all {n:,} rows")
    return weights


def _check_length(name: str, of_rows: np.ndarray, n: int) -> None:
    """Raise ContentError unless an array has one value for each of n rows."""
    if of_rows.shape != (n,):
        found = len(of_rows) if of_rows.ndim == 1 else f"an array of shape {of_rows.shape}"
        raise ContentError(f"{name}: expected {n}, one for each row of X, found {found}")


def _groups(arrays: Arrays, n: int) -> np.ndarray:
    """Return the number of the group of each row, (n,) int64. Raises ContentError."""
    groups = np.asarray(arrays.groups)
    _check_length("groups", groups, n)
    try:
        return np.unique(groups, return_inverse=True)[1].astype(np.int64)
    except TypeError as error:
        raise ContentError(f"groups: expected numbers or texts, found others: {error}") from None


def with_row_numbers(X: Matrix) -> Matrix:
    """Return kernel values as in files: a row begins with its number, from 1. X: see to_matrix."""
    m, d = X.shape
    numbers = np.arange(1, m + 1, dtype=X.dtype)
    if isinstance(X, np.ndarray):
        return np.hstack([numbers[:, None], X])
    starts = X.indptr[:-1]
    values, columns = np.insert(X.data, starts, numbers), np.insert(X.indices + 1, starts, 0)
    return CsrMatrix(values, columns, X.indptr + np.arange(m + 1), (m, d + 1))


def parts_of(X: Any, zero_based: bool, rows: int) -> Iterator[CsrMatrix]:
    """Yield X for prediction, some rows at a time, as in a file."""
    matrix = X if isinstance(X, CsrMatrix) else to_matrix(X)
    return (as_in_file(matrix[at], 1 - zero_based) for at in slices(matrix.shape[0], rows))


# ---- rows -------------------------------------------------------------------------------------


def to_matrix(X: Any) -> Matrix:
    """Return X as float32 if its dtype shows that this changes no value, else as float64.

    The result is a C-contiguous array, or CSR with ascending columns if few values are not 0. It
    shares the memory of X if X has that form.
    """
    is_sparse = is_sparse_of_scipy(X)
    # A data frame has columns of several types: they come together as one.
    array = X if is_sparse or isinstance(X, np.ndarray) else np.asarray(X, dtype=np.float64)
    if array.dtype.kind in "cmM":
        raise ContentError(f"X: expected real numbers, found the type {array.dtype}")
    dtype: type = np.float32 if np.can_cast(array.dtype, np.float32) else np.float64
    if array.ndim != 2:
        raise ContentError(f"X: expected two dimensions, rows and features, found {array.ndim}")
    rows: Matrix
    if is_sparse:
        rows = CsrMatrix.from_scipy(array).astype(dtype, copy=False)
    elif array.size and np.count_nonzero(array) < SPARSE * array.size:
        rows = _without_zeros(array, dtype)
    else:
        rows = np.ascontiguousarray(array, dtype)
    _check_finite(rows)
    return rows


def is_sparse_of_scipy(X: Any) -> bool:
    """Return whether X is a sparse matrix of scipy, without an import of scipy."""
    return hasattr(X, "tocsr")


def _without_zeros(array: np.ndarray, dtype: type) -> CsrMatrix:
    n, d = array.shape
    indptr = np.concatenate([[0], np.cumsum(np.count_nonzero(array, axis=1))])
    values, indices = np.empty(indptr[-1], dtype), np.empty(indptr[-1], np.int32)
    for at in slices(n, ROWS_AT_ONCE):
        rows, columns = np.nonzero(array[at])
        place = slice(indptr[at.start], indptr[at.stop])
        values[place], indices[place] = array[at][rows, columns], columns
    return CsrMatrix(values, indices, indptr, (n, d))


def _check_finite(X: Matrix) -> None:
    """Raise ContentError for a value that is nan or that no float32 is near to."""
    values = X.ravel() if isinstance(X, np.ndarray) else X.data
    for at in slices(len(values), VALUES_AT_ONCE):
        with np.errstate(over="ignore"):
            bad = ~np.isfinite(values[at].astype(np.float32, copy=False))
        if bad.any():
            first = at.start + int(bad.argmax())
            if isinstance(X, np.ndarray):
                row, column = divmod(first, X.shape[1])
            else:
                row, column = np.searchsorted(X.indptr, first, "right") - 1, X.indices[first]
            found = "NaN" if np.isnan(values[first]) else "infinity"
            expected = "expected a finite value within float32 (3.4e38)"
            raise ContentError(f"X[{row}, {column}]: {expected}, found {found}")


# ---- labels -----------------------------------------------------------------------------------


def _labels(arrays: Arrays, n: int, options: ParseOptions) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return y of the chunks, and the labels of the classes, none for a regression."""
    y = np.zeros(n, int) if arrays.y is None else np.asarray(arrays.y).ravel()
    if arrays.y is None and not options.any_label:
        raise ContentError("y: expected a label or target for each row, found None")
    _check_length("y", y, n)
    if options.labels == "number":
        targets = y.astype(np.float64)
        with np.errstate(over="ignore"):
            is_finite = np.isfinite(targets.astype(np.float32)).all()
        if not is_finite:
            raise ContentError("y: expected targets within float32 (3.4e38), found others or NaN")
        return targets, ()
    if arrays.classes is not None:
        return y.astype(np.float64), label_texts(arrays.classes)
    distinct, first, codes = np.unique(y, return_index=True, return_inverse=True)
    order = np.argsort(first)
    labels = label_texts(distinct[order])
    _check_labels(labels, options.any_label)
    return np.argsort(order)[codes.ravel()].astype(np.float64), labels


def original_labels(arrays: Arrays, labels: Sequence[str]) -> np.ndarray | None:
    """Return the labels of the caller that are written as `labels`, (labels,) with their dtype.

    Returns None if y does not have them all, for example if it has targets.
    """
    if arrays.y is None or not labels:
        return None
    given = np.asarray(arrays.y).ravel() if arrays.classes is None else np.asarray(arrays.classes)
    distinct = np.unique(given)
    places = {text: place for place, text in enumerate(label_texts(distinct))}
    return distinct[[places[label] for label in labels]] if places.keys() >= set(labels) else None


def _check_labels(labels: Sequence[str], any_label: bool) -> None:
    """Raise ContentError for equal labels, and for numbers that are not whole or mixed with
    names."""
    try:
        known = LabelTable("y", labels=labels, any_label=any_label)
    except DataError as error:
        problem = error.parts[-1].replace(REGRESSION, "task='svr'")
        raise ContentError(f"y: {problem}") from None
    if len(known) != len(labels):
        raise ContentError(f"y: expected different labels, found {' '.join(labels)[:40]}")


def label_texts(labels: np.ndarray) -> tuple[str, ...]:
    """Return labels as texts: whole numbers without a point, False and True as 0 and 1."""
    return tuple(map(_spelled, labels))


def _spelled(label: Any) -> str:
    whole = isinstance(label, (float, np.floating)) and float(label).is_integer()
    return str(int(label)) if whole or isinstance(label, (bool, np.bool_)) else str(label)
