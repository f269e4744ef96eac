# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Compiled loops over sparse rows.

They do what scipy.sparse does, in the same order and with the same results, without its import,
which takes a sixth of the time of a small run.
"""

from libc.stdint cimport int32_t, int64_t

# Starts of rows.
ctypedef fused offset:
    int32_t
    int64_t

# Values of rows, which may have another precision than sums.
ctypedef fused stored:
    float
    double

ctypedef fused real:
    float
    double


def copy_rows(
    const offset[::1] starts, const int[::1] columns, const stored[::1] values,
    const int64_t[::1] rows, const offset[::1] ends, int[::1] out_columns, stored[::1] out_values,
):
    """Copy the columns and values of some rows, one after another.

    ends : (len(rows),), the end of each row in the result.
    """
    cdef Py_ssize_t i, at, to = 0
    with nogil:
        for i in range(rows.shape[0]):
            at = starts[rows[i]]
            while to < ends[i]:
                out_columns[to] = columns[at]
                out_values[to] = values[at]
                to += 1
                at += 1


def fill_dense(
    const offset[::1] starts, const int[::1] columns, const stored[::1] values, stored[:, ::1] out
):
    """Write the values of sparse rows into `out`, which is 0."""
    cdef Py_ssize_t i, at
    with nogil:
        for i in range(out.shape[0]):
            for at in range(starts[i], starts[i + 1]):
                out[i, columns[at]] = values[at]


def add_row_products(
    const offset[::1] starts, const int[::1] columns, const stored[::1] values,
    const real[:, ::1] W, real[:, ::1] out,
):
    """Compute out[i, k] += sum_j x_ij W[j, k], in the order of j, in the precision of W."""
    cdef Py_ssize_t i, at, k
    cdef real x, total
    with nogil:
        if W.shape[1] == 1:
            for i in range(out.shape[0]):
                total = out[i, 0]
                for at in range(starts[i], starts[i + 1]):
                    total += <real> values[at] * W[columns[at], 0]
                out[i, 0] = total
        else:
            for i in range(out.shape[0]):
                for at in range(starts[i], starts[i + 1]):
                    x = <real> values[at]
                    for k in range(out.shape[1]):
                        out[i, k] += x * W[columns[at], k]


def add_column_products(
    const offset[::1] starts, const int[::1] columns, const stored[::1] values,
    const double[:, ::1] W, double[:, ::1] out,
):
    """Compute out[j, k] += sum_i x_ij W[i, k], in the order of i."""
    cdef Py_ssize_t i, at, k
    cdef double x
    with nogil:
        for i in range(W.shape[0]):
            for at in range(starts[i], starts[i + 1]):
                x = values[at]
                for k in range(W.shape[1]):
                    out[columns[at], k] += x * W[i, k]


def transpose(
    const offset[::1] starts, const int[::1] columns, const stored[::1] values,
    offset[::1] places, int[::1] out_rows, stored[::1] out_values,
):
    """Write the values of sparse rows by columns, with their rows, which ascend in each column.

    places : (d,), the first place of each column in the result; the places are moved to the end.
    """
    cdef Py_ssize_t i, at, to
    with nogil:
        for i in range(starts.shape[0] - 1):
            for at in range(starts[i], starts[i + 1]):
                to = places[columns[at]]
                out_rows[to] = i
                out_values[to] = values[at]
                places[columns[at]] += 1


def subtract_centre(
    const int[::1] starts, const int[::1] features, const stored[::1] values,
    const int[::1] of_centre, const double[::1] centre,
    int[::1] new_starts, int[::1] new_features, real[::1] new_values,
):
    """Write the nonzeros of x_i - c for CSR rows x_i; return their number.

    The features of a row ascend, in both matrices. of_centre, centre : (k,), the features and the
    values of c that are not 0; new_starts : (m + 1,); new_features, new_values: with room for the
    values of all rows and k more of each row. Differences are computed in float64.
    """
    cdef Py_ssize_t m = starts.shape[0] - 1, k = centre.shape[0], i, at, end, j, count = 0
    cdef int feature
    cdef real difference
    if m < 0 or of_centre.shape[0] != k or new_starts.shape[0] != m + 1 or (
        features.shape[0] != values.shape[0] or starts[m] > values.shape[0]
        or new_features.shape[0] < starts[m] + m * k or new_values.shape[0] < starts[m] + m * k
    ):
        raise ValueError("expected rows, a centre and new rows of shapes that fit")
    with nogil:
        new_starts[0] = 0
        for i in range(m):
            at, end, j = starts[i], starts[i + 1], 0
            while at < end or j < k:
                if j == k or (at < end and features[at] < of_centre[j]):
                    feature, difference = features[at], <real> values[at]
                    at += 1
                elif at == end or of_centre[j] < features[at]:
                    feature, difference = of_centre[j], <real> -centre[j]
                    j += 1
                else:
                    feature, difference = features[at], <real> (<double> values[at] - centre[j])
                    at += 1
                    j += 1
                if difference != 0:
                    new_features[count], new_values[count] = feature, difference
                    count += 1
            new_starts[i + 1] = <int> count
    return count
