/* Compute sum_j beta_jc exp(<x_i, z_j> + right_j + left_i) for sparse float32 rows x_i. Only the
   features of the row are read from a centre. Kernel values stay in registers.

   Centres are in panels of 32 as in _rbf.h; the last row of a panel holds right_j. The order of
   additions to a sum depends on the centres only. */

#pragma once

#include "_rbf.h"

/* The number of panels that a row uses at once. Its features are read once for all of them, and the
   independent sums hide the latency of additions. */
#define PANELS_AT_ONCE 2
/* The number of sums, over rows and columns, that stay in the cache until all panels are done. */
#define PENDING_SUMS 256

/* Add the sums of rows first .. last - 1 over `abreast` panels at z.

   sums : (rows, columns, LANES). */
INLINED void add_sparse_panels(const int abreast, const int columns, const int *starts,
                               const int *features, const float *x, const float *left, long first,
                               long last, long d, const float *z, const float *beta, long stride,
                               reals *sums)
{
    const long panel = (d + 1) * PANEL;
    for (long i = first; i < last; i++, sums += columns) {
        reals values[2 * PANELS_AT_ONCE];
        for (int v = 0; v < 2 * abreast; v++)
            values[v] = *(const reals *)(z + v / 2 * panel + d * PANEL + v % 2 * LANES) + left[i];
        for (long at = starts[i]; at < starts[i + 1]; at++) {
            const float *of_feature = z + (long)features[at] * PANEL;
            for (int v = 0; v < 2 * abreast; v++)
                values[v] += x[at] * *(const reals *)(of_feature + v / 2 * panel + v % 2 * LANES);
        }
        for (int v = 0; v < 2 * abreast; v++)
            values[v] = exponential(values[v]);
        for (int c = 0; c < columns; c++)
            for (int v = 0; v < 2 * abreast; v++)
                sums[c] += values[v] * *(const reals *)(beta + c * stride + v * LANES);
    }
}

INLINED void add_sparse(const int columns, const int *starts, const int *features, const float *x,
                        const float *left, long m, long d, const float *panels, long count,
                        const float *beta, double *u)
{
    reals sums[PENDING_SUMS];
    for (long first = 0; first < m; first += PENDING_SUMS / columns) {
        long last = first + PENDING_SUMS / columns < m ? first + PENDING_SUMS / columns : m;
        for (long i = 0; i < (last - first) * columns; i++)
            sums[i] = (reals){0};
        long p = 0;
        for (; p + PANELS_AT_ONCE <= count; p += PANELS_AT_ONCE)
            add_sparse_panels(PANELS_AT_ONCE, columns, starts, features, x, left, first, last, d,
                              panels + p * (d + 1) * PANEL, beta + p * PANEL, count * PANEL, sums);
        for (; p < count; p++)
            add_sparse_panels(1, columns, starts, features, x, left, first, last, d,
                              panels + p * (d + 1) * PANEL, beta + p * PANEL, count * PANEL, sums);
        for (long i = 0; i < (last - first) * columns; i++) {
            double sum = 0;
            for (int lane = 0; lane < LANES; lane++)
                sum += sums[i][lane];
            u[first * columns + i] += sum;
        }
    }
}

#define FOR_SPARSE(name, vectors, target)                                                         \
    target static void name(int columns, const int *starts, const int *features, const float *x, \
                            const float *left, long m, long d, const float *panels, long count,  \
                            const float *beta, double *u)                                        \
    {                                                                                            \
        if (columns == 1)                                                                        \
            add_sparse(1, starts, features, x, left, m, d, panels, count, beta, u);              \
        else                                                                                     \
            add_sparse(columns, starts, features, x, left, m, d, panels, count, beta, u);        \
    }

FOR_EACH_WIDTH(FOR_SPARSE, add_sparse_sums)

/* Compute u_ic += sum_j beta_cj exp(<x_i, z_j> + right_j + left_i).

   starts : (m + 1,), features, x: rows in CSR; left : (m,); panels : (count, d + 1, PANEL); beta :
   (columns, count PANEL), 0 where there is no centre; u : (m, columns). `widest`: see
   add_rbf_sums. */
static void add_sparse_sums(int columns, const int *starts, const int *features, const float *x,
                            const float *left, long m, long d, const float *panels, long count,
                            const float *beta, double *u, int widest)
{
    BEST_WIDTH(add_sparse_sums, widest)(columns, starts, features, x, left, m, d, panels, count, beta, u);
}
