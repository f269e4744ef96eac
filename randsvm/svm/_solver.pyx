# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The loops around LIBSVM that numpy is too slow for, and the function that hears what it prints.

lay_out and product are held together with their plain numpy twins by the tests. Nothing here
holds Python's lock: LIBSVM prints a dot every few iterations, and a thread that waits for the lock
at each of them can take a hundred times as long.
"""

from libc.stdint cimport uintptr_t

cdef extern from *:
    """
    #include <stdio.h>
    #include <string.h>

    /* Of the thread's last solve: solves may run side by side. */
    static __thread int solver_iterations = 0;

    static void solver_hear(const char *text)
    {
        const char *said = strstr(text, "#iter = ");
        if (said != NULL)
            sscanf(said, "#iter = %d", &solver_iterations);
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
    void solver_hear(const char *text) noexcept nogil
    void interleave(const float *a, const float *b, const int *index, double *out,
                    long n) noexcept nogil
    void add_rows(const float **rows, const double *v, double *out, long m) noexcept nogil

# Address of a print function for LIBSVM.
HEAR = <uintptr_t> &solver_hear


def iterations():
    """Iterations of the solve that ended last in this thread."""
    return solver_iterations


def lay_out(const float[:, ::1] K, const int[::1] index, double[:, :, ::1] values):
    """values[i // 2, 1 + j, i % 2] = K[index[i], index[j]] for i, j < n = len(index); of a last
    pair that is half a pair the other half is written as well.

    K : (m, m); index : (n,) numbers below m; values : room for at least n rows and columns.
    """
    cdef long n = index.shape[0], i
    with nogil:
        for i in range(0, n, 2):
            interleave(&K[index[i], 0], &K[index[min(i + 1, n - 1)], 0], &index[0],
                       &values[i // 2, 1, 0], n)


def product(const float[:, ::1] K, const double[::1] beta, double[::1] out):
    """out += K beta in float64 for a symmetric K; rows with beta = 0 are not read."""
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
