# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Compiled loops for kernel values: products of sparse rows, RBF values and their sums.

They replace slower code of libraries. scipy's product of sparse rows builds a sparse result and
takes five times as long (measured on tf-idf rows). Sums of RBF values by a matrix product, exp and
a product with beta read and write a block of values three times and take three times as long.
"""

from libc.stdint cimport uint16_t
from libc.stdlib cimport free, malloc

cdef extern from "_rbf.h":
    const int PANEL
    const int COLUMNS
    const int DENSE_GROUP
    const int SPARSE_GROUP
    ctypedef struct rbf_work:
        const int *starts
        const int *features
        const void *x
        const void *left
        long m
        double rate
        const void *panels
        long count, d
        int columns
        const void *beta
        double *u
        void *K
        long centres, stride
    void run_rbf(const rbf_work *it, int is_double, int widest) noexcept nogil
    void run_exp2(void *x, long count, int is_double, int widest) noexcept nogil
    const int CELL
    const int CELL_GROUP
    const int MOST
    const int LANES
    ctypedef struct cells:
        long m, d, w
        const void *panels
        const uint16_t *places
        long centres, stride
        const void *z
        const void *columns
        double limit, rate
    void run_sort(
        const void *x, long stride, long w, uint16_t *places, long n, void *room, int is_double
    ) noexcept nogil
    long run_cells(
        const cells *it, int columns, const void *beta, double *u, void *room, int *features,
        int is_double, int widest
    ) noexcept nogil

# The number of centres in a panel, and the largest number of columns in a call.
PANEL_CENTRES = PANEL
PANEL_COLUMNS = COLUMNS
# The numbers of panels whose values are added up before they are added to a sum.
DENSE_PANELS, SPARSE_PANELS = DENSE_GROUP, SPARSE_GROUP
# The number of rows in a cell.
CELL_ROWS = CELL

ctypedef fused real:
    float
    double


def sparse_arguments(
    const int[::1] x_starts, const int[::1] x_columns, const real[::1] x_values,
    const int[::1] z_starts, const int[::1] z_rows, const real[::1] z_values,
    const real[::1] left, const real[::1] right, real[:, :] block,
):
    """Compute block[i, j] = left[i] + right[j] + <x_i, z_j>.

    x is in CSR: row i has the values x_values[x_starts[i]:x_starts[i + 1]]. z is in CSC: column c
    has the values z_values[z_starts[c]:z_starts[c + 1]], in the rows z_rows. The values of a row
    of the block are adjacent.
    """
    cdef Py_ssize_t i, j, at, column, entry, m = block.shape[1]
    cdef real value
    cdef real* row
    cdef const real* of_columns
    if left.shape[0] != block.shape[0] or right.shape[0] != m:
        raise ValueError("expected a number in left for each row of block, in right for each column")
    if m and block.strides[1] != sizeof(real):
        raise ValueError("expected adjacent values in a row of block")
    if block.shape[0] == 0 or m == 0:
        return
    of_columns = &right[0]
    with nogil:
        for i in range(block.shape[0]):
            row, value = &block[i, 0], left[i]
            for j in range(m):
                row[j] = value + of_columns[j]
            for at in range(x_starts[i], x_starts[i + 1]):
                column, value = x_columns[at], x_values[at]
                for entry in range(z_starts[column], z_starts[column + 1]):
                    row[z_rows[entry]] += value * z_values[entry]


def lay_out_panels(
    const int[::1] starts, const int[::1] features, const real[::1] values, const real[::1] right,
    real[:, :, ::1] panels,
):
    """Lay out sparse centres: panels[j // PANEL_CENTRES, :, j % PANEL_CENTRES] = z_j and right_j.

    z is in CSR, as x of sparse_rbf; right : (m,); panels : (count, d + 1, PANEL_CENTRES), zeros.
    Places beyond the last centre repeat it: with zeros there, a row whose values overflow to
    infinity would give 0 times infinity, which is nan.
    """
    cdef Py_ssize_t j, centre, at, m = right.shape[0], d = panels.shape[1] - 1
    if starts.shape[0] != m + 1 or d < 0 or panels.shape[2] != PANEL or (
        panels.shape[0] != (m + PANEL - 1) // PANEL
    ):
        raise ValueError("expected centres and panels of shapes that fit")
    with nogil:
        for j in range(panels.shape[0] * PANEL):
            centre = j if j < m else m - 1
            for at in range(starts[centre], starts[centre + 1]):
                panels[j // PANEL, features[at], j % PANEL] = values[at]
            panels[j // PANEL, d, j % PANEL] = right[centre]


cdef int _run(
    rbf_work *it, const real[:, :, ::1] panels, real[:, :] K, const real[:, ::1] beta,
    double[:, ::1] u, int widest,
) except -1:
    """Complete the work by its centres and by where its values go, and run it."""
    it.panels, it.count = &panels[0, 0, 0] if panels.shape[1] else NULL, panels.shape[0]
    if K is None:
        if beta.shape[0] > PANEL_COLUMNS or u.shape[0] != it.m or u.shape[1] != beta.shape[0] or (
            beta.shape[1] != it.count * PANEL
        ):
            raise ValueError("expected panels, beta and u of shapes that fit")
        it.columns = beta.shape[0]
    elif K.shape[0] != it.m or K.shape[1] > it.count * PANEL or (
        K.shape[1] and K.strides[1] != sizeof(real)
    ):
        raise ValueError("expected panels and K of shapes that fit")
    else:
        it.columns, it.centres, it.stride = 0, K.shape[1], K.strides[0] // <Py_ssize_t> sizeof(real)
    if it.m == 0 or it.count == 0 or (it.columns == 0 and it.centres == 0):
        return 0
    if K is None:
        it.beta, it.u = &beta[0, 0], &u[0, 0]
    else:
        it.K = &K[0, 0]
    with nogil:
        run_rbf(it, sizeof(real) == 8, widest)
    return 0


def dense_rbf(
    const real[:, ::1] x, const real[:, :, ::1] panels, double rate, real[:, :] K=None,
    const real[:, ::1] beta=None, double[:, ::1] u=None, int widest=512,
):
    """Store kernel values of dense rows and centres, K_ij, or compute u_ic += sum_j beta_cj K_ij.

    float32: K_ij = 2^<x_i, z_j>, where all products are <= 0; x : (m, d).
    float64: K_ij = 2^(-rate |x_i - z_j|^2); x : (m, d).
    panels : (count, d, PANEL_CENTRES), centre 32 p + l is panels[p, :, l]; K : (m, centres), values
    adjacent; beta : (columns, count * PANEL_CENTRES), 0 where there is no centre, columns at most
    PANEL_COLUMNS; u : (m, columns). widest: the largest width of vectors in bits; the last digits
    of the results depend on the width.
    """
    cdef rbf_work it
    it.starts, it.m, it.d, it.rate = NULL, x.shape[0], x.shape[1], rate
    if it.d != panels.shape[1] or panels.shape[2] != PANEL:
        raise ValueError("expected x and panels of shapes that fit")
    it.x = &x[0, 0] if it.m and it.d else NULL
    _run(&it, panels, K, beta, u, widest)


def sparse_rbf(
    const int[::1] starts, const int[::1] features, const real[::1] x, const real[::1] left,
    const real[:, :, ::1] panels, real[:, :] K=None, const real[:, ::1] beta=None,
    double[:, ::1] u=None, int widest=512,
):
    """Store kernel values of sparse rows and centres, or add them up; see dense_rbf.

    K_ij = 2^(<x_i, z_j> + right_j + left_i); exponents are <= 0. x is in CSR: row i has the values
    x[starts[i]:starts[i + 1]] of `features`, all below d. panels : (count, d + 1, PANEL_CENTRES),
    panels[p, :, l] is z_j and right_j of centre 32 p + l. float32 values have the bits of those of
    dense rows.
    """
    cdef rbf_work it
    it.m, it.d = left.shape[0], panels.shape[1] - 1
    if starts.shape[0] != it.m + 1 or panels.shape[1] < 1 or panels.shape[2] != PANEL or (
        features.shape[0] != x.shape[0] or starts[it.m] > x.shape[0]
    ):
        raise ValueError("expected rows and panels of shapes that fit")
    # If x is empty, it has no first value.
    it.features = &features[0] if x.shape[0] else NULL
    it.x = &x[0] if x.shape[0] else NULL
    it.starts, it.left = &starts[0], &left[0] if it.m else NULL
    _run(&it, panels, K, beta, u, widest)


def exp2(real[:, :] K, int widest=512):
    """Replace each exponent by its value 2^K_ij, or 1 where rounding has made it positive.

    K : (m, k), the values of a row are adjacent. Errors are below 2 units in the last place, and
    values below 2^-124 of float32, or 2^-1021 of float64, become 0.
    """
    cdef Py_ssize_t i
    if K.shape[1] and K.strides[1] != sizeof(real):
        raise ValueError("expected adjacent values in a row of K")
    if K.shape[0] == 0 or K.shape[1] == 0:
        return
    with nogil:
        for i in range(K.shape[0]):
            run_exp2(&K[i, 0], K.shape[1], sizeof(real) == 8, widest)


def mirror(real[:, ::1] K, int begin, int end):
    """Set K[i, j] = K[j, i] for begin <= i < end and j > i. K : (m, m)."""
    cdef Py_ssize_t m = K.shape[0], row, column, i, j
    if K.shape[1] != m or not 0 <= begin <= end <= m:
        raise ValueError("expected a square matrix and some of its rows")
    with nogil:
        # Both the lines of the cache that a square of 16 x 16 reads and those it writes stay there.
        for column in range(begin, m, 16):
            for row in range(begin, min(end, column + 16), 16):
                for i in range(row, min(row + 16, end)):
                    for j in range(max(column, i + 1), min(column + 16, m)):
                        K[i, j] = K[j, i]


def sort_into_cells(const real[:, ::1] x, int w, uint16_t[::1] places):
    """Sort places (row numbers of x) so that CELL_ROWS consecutive ones are neighbours in space.

    x : (m, w or more), of which the first w features count; places : (m,), 0 ... m - 1 on entry,
    m <= 65,536.
    """
    cdef void *room
    if places.shape[0] != x.shape[0] or x.shape[0] > 1 << 16 or x.shape[1] < w:
        raise ValueError("expected x and places of shapes that fit")
    if x.shape[0] == 0 or w == 0:
        return
    room = malloc((2 * w + x.shape[0]) * sizeof(real))
    if room is NULL:
        raise MemoryError
    with nogil:
        run_sort(&x[0, 0], x.shape[1], w, &places[0], x.shape[0], room, sizeof(real) == 8)
        free(room)


def add_sums_of_cells(
    const real[:, :, ::1] panels, const uint16_t[::1] places, const real[:, ::1] z,
    const real[:, ::1] columns, const real[:, ::1] beta, double limit, double rate,
    double[:, ::1] u, int widest=512,
):
    """Compute u[i, c] += sum_j beta[j, c] K_ij over the centres near the cell of x_i; K_ij: see
    dense_rbf.

    These are the centres whose squared distance from the box of the cell is below `limit`. Return
    the number of kernel values in the sums.

    panels: see Cells in layouts.py; places : (m,), of the rows in u; z : (centres, d);
    columns : (w, centres rounded up to a multiple of 16), their features, not scaled as in z;
    beta : (centres, K), K <= PANEL_COLUMNS; u : (m, K). centres <= 1,024. widest: see
    dense_rbf.
    """
    cdef cells it
    cdef void *room
    cdef int *features
    cdef long values
    cdef Py_ssize_t m = places.shape[0], d = panels.shape[1], w = columns.shape[0]
    cdef Py_ssize_t centres = z.shape[0]
    if (
        m == 0 or w == 0 or centres == 0 or centres > MOST or beta.shape[0] != centres
        or not 0 < beta.shape[1] <= PANEL_COLUMNS or u.shape[0] != m or u.shape[1] != beta.shape[1]
        or z.shape[1] != d or panels.shape[2] != PANEL or panels.shape[0] * PANEL < m
        or d < w or columns.shape[1] < centres or columns.shape[1] % LANES
        or columns.shape[1] > MOST
    ):
        raise ValueError("expected rows in cells, centres, beta and u of shapes that fit")
    it.m, it.d, it.w = m, d, w
    it.panels, it.places = &panels[0, 0, 0], &places[0]
    it.centres, it.stride = centres, columns.shape[1]
    it.z, it.columns, it.limit, it.rate = &z[0, 0], &columns[0, 0], limit, rate
    room = malloc(w * (MOST + 2 * CELL_GROUP + 2) * sizeof(real) + 4 * d * sizeof(int))
    if room is NULL:
        raise MemoryError
    features = <int *> (<real *> room + w * (MOST + 2 * CELL_GROUP + 2))
    with nogil:
        values = run_cells(
            &it, beta.shape[1], &beta[0, 0], &u[0, 0], room, features, sizeof(real) == 8, widest
        )
        free(room)
    return values


def squared_distances(
    const int[::1] x_starts, const int[::1] x_columns, const real[::1] x_values,
    const int[::1] z_starts, const int[::1] z_columns, const real[::1] z_values,
    double[:, :] block,
):
    """Compute block[i, j] = |x_i - z_j|^2 from the differences of features.

    Rows that are far from 0 lose no digits. Both matrices are in CSR with ascending columns.
    """
    cdef Py_ssize_t i, j, a, b, a_end, b_end
    cdef double difference, sum
    with nogil:
        for i in range(block.shape[0]):
            for j in range(block.shape[1]):
                a, a_end = x_starts[i], x_starts[i + 1]
                b, b_end = z_starts[j], z_starts[j + 1]
                sum = 0
                while a < a_end and b < b_end:
                    if x_columns[a] == z_columns[b]:
                        difference = <double> x_values[a] - z_values[b]
                        a += 1
                        b += 1
                    elif x_columns[a] < z_columns[b]:
                        difference = x_values[a]
                        a += 1
                    else:
                        difference = z_values[b]
                        b += 1
                    sum += difference * difference
                for a in range(a, a_end):
                    sum += <double> x_values[a] * x_values[a]
                for b in range(b, b_end):
                    sum += <double> z_values[b] * z_values[b]
                block[i, j] = sum
