# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Loops around LIBSVM that are too slow in numpy, and a function that reads its output.

Tests compare lay_out and product with plain numpy versions. The print function does not take
Python's lock: LIBSVM prints a dot every few iterations, and a thread that waits for the lock at each
of them can take a hundred times as long.
"""

from libc.stdint cimport uint64_t, uintptr_t
from libc.stdlib cimport free, malloc

cdef extern from *:
    """
    #include <stdio.h>
    #include <string.h>

    /* Iterations of the solve of this package that runs in this thread, or ran last; whether one
       runs. Solves may run in parallel. */
    static __thread int solver_iterations = 0, solver_runs = 0;

    static void begin_solve(void)
    {
        solver_iterations = 0;
        solver_runs = 1;
    }

    static int end_solve(void)
    {
        solver_runs = 0;
        return solver_iterations;
    }

    /* LIBSVM has one print function, which nobody can read. So this one stays, and prints for other
       callers what LIBSVM prints by default. */
    static void read_iterations(const char *text)
    {
        const char *found = strstr(text, "#iter = ");
        if (!solver_runs) {
            fputs(text, stdout);
            fflush(stdout);
        } else if (found != NULL)
            sscanf(found, "#iter = %d", &solver_iterations);
    }

    /* LIBSVM's functions, and svm_problem, whose rows are pointers to their nodes. */
    typedef void *(*train_function)(const void *problem, const void *parameter);
    typedef void (*free_function)(void **model);
    typedef struct { int l; double *y; const void **x; } rows_and_labels;

    /* Solve a problem, and set the coefficients of its rows. parts: the offsets of l, sv_coef and
       sv_indices in svm_model, which differ between versions of LIBSVM. */
    static void train_rows(train_function train, free_function destroy, const void *parameter,
                           rows_and_labels problem, const long *parts, double *beta)
    {
        void *model = train(&problem, parameter);
        const char *fields = (const char *) model;
        const int count = *(const int *) (fields + parts[0]);
        const double *coefficients = **(double ***) (fields + parts[1]);
        const int *indices = *(int **) (fields + parts[2]);
        for (int k = 0; k < count; k++)
            beta[indices[k] - 1] = coefficients[k];
        destroy(&model);
    }

    /* u = K beta of some rows of K, which has n columns. */
    static void sums_of_rows(const double *K, long n, const int *at, long m, const double *beta,
                             double *u)
    {
        for (long j = 0; j < m; j++) {
            const double *row = K + at[j] * n;
            if (beta[j] != 0)
                for (long i = 0; i < m; i++)
                    u[i] += beta[j] * row[at[i]];
        }
    }

    static void interleave(const float *restrict a, const float *restrict b,
                           const int *restrict index, double *restrict out, long n)
    {
        for (long j = 0; j < n; j++) {
            out[2 * j] = a[index[j]];
            out[2 * j + 1] = b[index[j]];
        }
    }

    /* For rows a and b: out[2j] = f_a f_j (k_a[rows[j]] - one_a - more_a is_one[j] - shift_a[j]). */
    typedef struct {
        const float *k;
        const double *shift;
        double factor, one, more;
    } move;

    static void lay_out_pair(const move *moves, const int *restrict rows, const double *restrict f,
                             const double *restrict is_one, double *restrict out, long n)
    {
        const move a = moves[0], b = moves[1];
        for (long j = 0; j < n; j++) {
            out[2 * j] = a.factor * f[j] * (a.k[rows[j]] - a.one - a.more * is_one[j] - a.shift[j]);
            out[2 * j + 1]
                = b.factor * f[j] * (b.k[rows[j]] - b.one - b.more * is_one[j] - b.shift[j]);
        }
    }

    static void add_rows(const float *const *rows, const double *v, double *restrict out, long m)
    {
        const float *restrict a = rows[0], *restrict b = rows[1];
        const float *restrict c = rows[2], *restrict d = rows[3];
        for (long j = 0; j < m; j++)
            out[j] += (v[0] * a[j] + v[1] * b[j]) + (v[2] * c[j] + v[3] * d[j]);
    }
    """
    void begin_solve() noexcept nogil
    int end_solve() noexcept nogil
    void read_iterations(const char *text) noexcept nogil
    void interleave(const float *a, const float *b, const int *index, double *out,
                    long n) noexcept nogil
    ctypedef void *(*train_function)(const void *problem, const void *parameter) noexcept nogil
    ctypedef void (*free_function)(void **model) noexcept nogil
    ctypedef struct rows_and_labels:
        int l
        double *y
        const void **x
    void train_rows(train_function train, free_function destroy, const void *parameter,
                    rows_and_labels problem, const long *parts, double *beta) noexcept nogil
    void sums_of_rows(const double *K, long n, const int *at, long m, const double *beta,
                      double *u) noexcept nogil
    ctypedef struct move:
        const float *k
        const double *shift
        double factor, one, more
    void lay_out_pair(const move *moves, const int *rows, const double *f, const double *is_one,
                      double *out, long n) noexcept nogil
    void add_rows(const float **rows, const double *v, double *out, long m) noexcept nogil

# Address of a print function for LIBSVM that reads the number of iterations.
READ_ITERATIONS = <uintptr_t> &read_iterations


def begin():
    """Read what LIBSVM prints in this thread from here on."""
    begin_solve()


def end():
    """Stop reading; return the number of iterations."""
    return end_solve()


def lay_out(const float[:, ::1] K, const int[::1] index, double[:, :, ::1] values):
    """Set values[i // 2, 1 + j, i % 2] = K[index[i], index[j]] for i, j < n = len(index).

    If n is odd, both halves of the last pair are written. K : (m, m) float32; index : (n,) int32,
    numbers below m; values : float64, with room for at least n rows and columns.
    """
    cdef long n = index.shape[0], i
    with nogil:
        for i in range(0, n, 2):
            interleave(&K[index[i], 0], &K[index[min(i + 1, n - 1)], 0], &index[0],
                       &values[i // 2, 1, 0], n)


def lay_out_moves(const float[:, ::1] K, const int[::1] rows, const double[::1] factor,
                  const double[::1] group, const double[:, ::1] shift, double[:, :, ::1] values):
    """Set values[i // 2, 1 + j, i % 2] = factor_i factor_j (K[rows[i], rows[j]] - shift[g_j, i]
    - shift[g_i, j]), where g is the group of a move, 0 or 1. If n is odd, both halves of the last
    pair are written.

    K : (m, m) float32; rows : (n,) int32; factor, group : (n,) float64; shift : (groups, n).
    """
    cdef long n = rows.shape[0], i, k, at, g
    cdef move pair[2]
    with nogil:
        for i in range(0, n, 2):
            for k in range(2):
                at = min(i + k, n - 1)
                g = <long> group[at]
                pair[k].k, pair[k].shift = &K[rows[at], 0], &shift[g, 0]
                pair[k].factor, pair[k].one, pair[k].more = factor[at], shift[0, at], 0.0
                if shift.shape[0] > 1:
                    pair[k].more = shift[1, at] - shift[0, at]
            lay_out_pair(pair, &rows[0], &factor[0], &group[0], &values[i // 2, 1, 0], n)


def product(const float[:, ::1] K, const double[::1] beta, double[::1] out):
    """Add K beta to out, in float64. K : (m, m) float32, symmetric; beta, out : (m,) float64.

    Rows of K with beta = 0 are not read.
    """
    cdef long m = K.shape[0], columns = K.shape[1], i, count = 0
    cdef const float *rows[4]
    cdef double v[4]
    with nogil:
        for i in range(m):
            if beta[i] == 0.0:
                continue
            rows[count] = &K[i, 0]
            v[count] = beta[i]
            count += 1
            if count == 4:
                add_rows(rows, v, &out[0], columns)
                count = 0
        if count:
            for i in range(count, 4):
                rows[i] = rows[0]
                v[i] = 0.0
            add_rows(rows, v, &out[0], columns)


def train_pairs(
    uintptr_t train, uintptr_t destroy, uintptr_t parameter, const long[::1] parts,
    double[::1] weights, const uint64_t[::1] starts, const double[:, ::1] K, const int[:, ::1] at,
    const int[:, ::1] counts, const double[:, ::1] bounds, double[:, ::1] beta, double[:, ::1] u,
):
    """Solve the C-SVC of each pair of classes with LIBSVM's svm_train; set beta, and u = K beta.

    train, destroy: the addresses of svm_train and of the function that frees its model; parameter:
    of an svm_parameter whose factors of C are `weights`, (2,); parts : (3,), see train_rows.
    starts : (n,), the address of each row of kernel values; K : (n, n), these values in float64.
    at : (pairs, m), the rows of each pair: counts[:, 0] of label 1 and counts[:, 1] of label -1.
    bounds : (pairs, 2), of these labels; beta, u : (pairs, m), 0 before.
    """
    cdef long p, k, m, n = K.shape[0], most = at.shape[1]
    cdef rows_and_labels problem
    cdef double *y = <double *> malloc(most * sizeof(double))
    cdef const void **x = <const void **> malloc(most * sizeof(void *))
    if y == NULL or x == NULL:
        free(y)
        free(x)
        raise MemoryError
    problem.y, problem.x = y, x
    with nogil:
        for p in range(at.shape[0]):
            m = counts[p, 0] + counts[p, 1]
            for k in range(m):
                y[k] = 1.0 if k < counts[p, 0] else -1.0
                x[k] = <const void *> <uintptr_t> starts[at[p, k]]
            weights[0], weights[1], problem.l = bounds[p, 0], bounds[p, 1], <int> m
            train_rows(<train_function> train, <free_function> destroy, <const void *> parameter,
                       problem, &parts[0], &beta[p, 0])
            sums_of_rows(&K[0, 0], n, &at[p, 0], m, &beta[p, 0], &u[p, 0])
    free(y)
    free(x)
