/* Compute sum_j beta_jc exp(<x_i, z_j> + right_j + left_i) for sparse rows x_i, float32 or float64.
   Only the features of the row are read from a centre. Kernel values stay in registers.

   Centres are in panels of 32 as in _rbf.h; the last row of a panel holds right_j. The order of
   additions to a sum depends on the centres only. */

#pragma once

#include "_differences.h"

/* The number of panels that a row uses at once. Its features are read once for all of them, and the
   independent sums hide the latency of additions. */
#define PANELS_AT_ONCE 2
/* The number of sums, over rows and columns, that stay in the cache until all panels are done. */
#define PENDING_SUMS 256

#define NUMBER float
#define REALS reals
#define WIDTH LANES
#define EXPONENTIAL exponential
#define NAMED(name) name##_32
#include "_sparse_sums.h"

#define NUMBER double
#define REALS doubles
#define WIDTH HALF
#define EXPONENTIAL exponential64
#define NAMED(name) name##_64
#include "_sparse_sums.h"

#define SPARSE_SUMS(name, target, number, add_sparse)                                               \
    target static void name(int columns, const int *starts, const int *features, const number *x, \
                            const number *left, long m, long d, const number *panels, long count,  \
                            const number *beta, double *u)                                        \
    {                                                                                            \
        if (columns == 1)                                                                        \
            add_sparse(1, starts, features, x, left, m, d, panels, count, beta, u);              \
        else                                                                                     \
            add_sparse(columns, starts, features, x, left, m, d, panels, count, beta, u);        \
    }
#define FOR_SPARSE(name, vectors, target) SPARSE_SUMS(name, target, float, add_sparse_32)
#define FOR_SPARSE64(name, vectors, target) SPARSE_SUMS(name, target, double, add_sparse_64)

FOR_EACH_WIDTH(FOR_SPARSE, add_sparse_sums)
FOR_EACH_WIDTH(FOR_SPARSE64, add_sparse_sums64)

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

static void add_sparse_sums64(int columns, const int *starts, const int *features, const double *x,
                              const double *left, long m, long d, const double *panels, long count,
                              const double *beta, double *u, int widest)
{
    BEST_WIDTH(add_sparse_sums64, widest)(columns, starts, features, x, left, m, d, panels, count, beta, u);
}
