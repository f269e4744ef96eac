# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Inner products of sparse rows as a dense block; the twin is scipy's sparse product, which
builds a sparse result first and costs five times as much (measured on tf-idf rows).

Sums of RBF values over dense rows; the twin is kernels.py's matrix product, exp and product with
beta, which reads and writes a block of values for each and takes three times as long.
"""

cdef extern from "_rbf.h":
    const int PANEL
    const int COLUMNS
    void _add_rbf_sums "add_rbf_sums"(
        int columns, const float *x, long m, long d, const float *panels, long count,
        const float *beta, double *u, int widest) noexcept nogil

# Centres of one panel, and columns of one call at the most.
PANEL_CENTRES = PANEL
PANEL_COLUMNS = COLUMNS

ctypedef fused real:
    float
    double


def add_products(
    const int[::1] x_starts, const int[::1] x_columns, const real[::1] x_values,
    const int[::1] z_starts, const int[::1] z_rows, const real[::1] z_values,
    real[:, ::1] block,
):
    """block[i, j] += <x_i, z_j>.

    x in CSR: row i is x_values[x_starts[i]:x_starts[i + 1]]; z by columns (CSC of the rows z_j):
    z_values[z_starts[c]:z_starts[c + 1]] are the values of column c, in rows z_rows.
    """
    cdef Py_ssize_t i, at, column, entry
    cdef real value
    cdef real* row
    if block.shape[1] == 0:
        return
    with nogil:
        for i in range(block.shape[0]):
            row = &block[i, 0]
            for at in range(x_starts[i], x_starts[i + 1]):
                column, value = x_columns[at], x_values[at]
                for entry in range(z_starts[column], z_starts[column + 1]):
                    row[z_rows[entry]] += value * z_values[entry]


def add_rbf_sums(
    const float[:, ::1] x, const float[:, :, ::1] panels, const float[:, ::1] beta,
    double[:, ::1] u, int widest=512,
):
    """u[i, c] += sum_j beta[c, j] exp(<x_i, z_j>), for rows and centres whose product is an
    exponent <= 0.

    x : (m, d); panels : (count, d, PANEL_CENTRES), centre 32 p + l is panels[p, :, l];
    beta : (columns, count * PANEL_CENTRES), 0 where there is no centre; u : (m, columns).
    columns is at most PANEL_COLUMNS. widest: bits of the vectors that the processor may be asked
    for; in the last places the sums depend on them.
    """
    if beta.shape[0] > PANEL_COLUMNS or u.shape[0] != x.shape[0] or u.shape[1] != beta.shape[0] or (
        x.shape[1] != panels.shape[1] or panels.shape[2] != PANEL_CENTRES
        or beta.shape[1] != panels.shape[0] * PANEL_CENTRES
    ):
        raise ValueError("expected x, panels, beta and u of shapes that fit")
    if x.shape[0] and panels.shape[0]:
        with nogil:
            _add_rbf_sums(
                beta.shape[0], &x[0, 0], x.shape[0], x.shape[1], &panels[0, 0, 0],
                panels.shape[0], &beta[0, 0], &u[0, 0], widest)
