# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Loops around LIBSVM that are too slow in numpy, and functions that read or drop its output.

Tests compare lay_out and product with plain numpy versions. The print function does not take
Python's lock: LIBSVM prints a dot every few iterations, and a thread that waits for the lock at each
of them can take a hundred times as long.
"""

from libc.stdint cimport uintptr_t

cdef extern from *:
    """
    #include <stdio.h>
    #include <string.h>
    #include <unistd.h>

    #ifdef __GLIBC__
    /* At its limit of iterations LIBSVM prints a warning with fprintf(stderr), which
     * svm_set_print_string_function does not redirect. A training has up to thousands of solves, so
     * the warning would be repeated in the middle of progress bars and on a quiet run, whereas the
     * package reports it once, with a remedy. In glibc, stderr is a variable: during solves it is a
     * stream that drops this line and writes everything else to file descriptor 2 at once. */
    static FILE *without_warning = NULL, *real_stderr = NULL;
    static int solves = 0;

    static ssize_t pass_on(void *nothing, const char *text, size_t length)
    {
        static const char warning[] = "WARNING: reaching max number of iterations";
        ssize_t written = length;
        (void)nothing;
        if (memmem(text, length, warning, sizeof warning - 1) == NULL)
            written = write(STDERR_FILENO, text, length);
        return written < 0 ? 0 : written;
    }

    static void solver_begins(void)
    {
        if (without_warning == NULL) {
            cookie_io_functions_t functions = {NULL, pass_on, NULL, NULL};
            without_warning = fopencookie(NULL, "w", functions);
            if (without_warning == NULL)
                return;
            setvbuf(without_warning, NULL, _IONBF, 0);
        }
        if (solves++ == 0) {
            real_stderr = stderr;
            stderr = without_warning;
        }
    }

    static void solver_ends(void)
    {
        if (without_warning != NULL && --solves == 0)
            stderr = real_stderr;
    }
    #else
    static void solver_begins(void) {}
    static void solver_ends(void) {}
    #endif

    /* Iterations of this thread's last solve: solves may run in parallel. */
    static __thread int solver_iterations = 0;

    static void read_iterations(const char *text)
    {
        const char *found = strstr(text, "#iter = ");
        if (found != NULL)
            sscanf(found, "#iter = %d", &solver_iterations);
    }

    static void interleave(const float *restrict a, const float *restrict b,
                           const int *restrict index, double *restrict out, long n)
    {
        for (long j = 0; j < n; j++) {
            out[2 * j] = a[index[j]];
            out[2 * j + 1] = b[index[j]];
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
    int solver_iterations
    void solver_begins()
    void solver_ends()
    void read_iterations(const char *text) noexcept nogil
    void interleave(const float *a, const float *b, const int *index, double *out,
                    long n) noexcept nogil
    void add_rows(const float **rows, const double *v, double *out, long m) noexcept nogil

# Address of a print function for LIBSVM that reads the number of iterations.
READ_ITERATIONS = <uintptr_t> &read_iterations


def drop_warning():
    """Drop LIBSVM's own warning until `restore_stderr`. Call both around each solve.

    Both hold Python's lock, so threads may solve in parallel.
    """
    solver_begins()


def restore_stderr():
    """Stop dropping LIBSVM's warning, unless another thread still solves."""
    solver_ends()


def iterations():
    """Return the number of iterations of the last solve in this thread."""
    return solver_iterations


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
