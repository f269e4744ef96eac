/* Compute sum_j beta_jc exp(-gamma |x_i - z_j|^2) for dense float64 rows from differences of
   features. Rows that are far from 0 and near each other lose no digits, and K(x, x) = 1 exactly.

   Centres are in panels of 32 as in _rbf.h, without augmentation: panel p holds the features of
   centres 32 p ... 32 p + 31 in w rows of 32 values. A row of x has one more value: a squared
   distance that is added to the squared distances from all centres. */

#pragma once

#include "_rbf.h"

#define HALF (LANES / 2)

typedef double doubles __attribute__((vector_size(8 * HALF), aligned(8), may_alias));
typedef int64_t integers __attribute__((vector_size(8 * HALF), aligned(8), may_alias));
typedef float halves __attribute__((vector_size(4 * HALF), aligned(4), may_alias));

/* Return e^x for x <= 0, within 2 units in the last place. Below -708, near the smallest float64,
   the result is 0.

   The method is that of `exponential`, with Taylor's polynomial; its error is below 2^-57. */
INLINED doubles exponential64(doubles x)
{
    integers kept = ~(x < -708.0);
    doubles shifted = x * 1.4426950408889634 + 6755399441055744.0;
    doubles n = shifted - 6755399441055744.0;
    doubles r = x - n * 6.93145751953125e-1 - n * 1.42860682030941723212e-6;
    doubles p = r * (1.0 / 6227020800) + 1.0 / 479001600;
    p = p * r + 1.0 / 39916800;
    p = p * r + 1.0 / 3628800;
    p = p * r + 1.0 / 362880;
    p = p * r + 1.0 / 40320;
    p = p * r + 1.0 / 5040;
    p = p * r + 1.0 / 720;
    p = p * r + 1.0 / 120;
    p = p * r + 1.0 / 24;
    p = p * r + 1.0 / 6;
    p = p * r + 0.5;
    p = p * (r * r) + r + 1.0;
    return (doubles)(((integers)p + ((integers)shifted << 52)) & kept);
}

/* Compute the kernel values of TILE rows with `vectors` vectors of centres at z. */
INLINED void values64(const int vectors, const double *const *rows, const double *z, long w,
                      double gamma, doubles (*values)[2])
{
    for (int s = 0; s < TILE; s++)
        for (int v = 0; v < vectors; v++)
            values[s][v] = (doubles){0} + rows[s][w];
    for (long k = 0; k < w; k++, z += PANEL)
        for (int v = 0; v < vectors; v++)
            for (int s = 0; s < TILE; s++) {
                doubles difference = rows[s][k] - *(const doubles *)(z + v * HALF);
                values[s][v] += difference * difference;
            }
    for (int v = 0; v < vectors; v++)
        for (int s = 0; s < TILE; s++)
            values[s][v] = exponential64(values[s][v] * -gamma);
}

INLINED void add_sums64(const int vectors, const int columns, const double *x, long m, long w,
                        double gamma, const double *panels, long count, const double *beta,
                        double *u)
{
    for (long i = 0; i < m; i += TILE) {
        const double *rows[TILE];
        doubles sums[COLUMNS][TILE];
        for (int c = 0; c < columns; c++)
            for (int s = 0; s < TILE; s++)
                sums[c][s] = (doubles){0};
        for (int s = 0; s < TILE; s++)
            rows[s] = x + (i + s < m ? i + s : i) * (w + 1);
        for (long at = 0; at < count * PANEL; at += vectors * HALF) {
            doubles values[TILE][2];
            values64(vectors, rows, panels + at / PANEL * PANEL * w + at % PANEL, w, gamma, values);
            for (int c = 0; c < columns; c++)
                for (int v = 0; v < vectors; v++) {
                    const double *weights = beta + c * count * PANEL + at + v * HALF;
                    for (int s = 0; s < TILE; s++)
                        sums[c][s] += values[s][v] * *(const doubles *)weights;
                }
        }
        for (int s = 0; s < TILE && i + s < m; s++)
            for (int c = 0; c < columns; c++) {
                double sum = 0;
                for (int lane = 0; lane < HALF; lane++)
                    sum += sums[c][s][lane];
                u[(i + s) * columns + c] += sum;
            }
    }
}

#define FOR64(name, vectors, target)                                                             \
    target static void name(int columns, const double *x, long m, long w, double gamma,          \
                            const double *panels, long count, const double *beta, double *u)     \
    {                                                                                            \
        if (columns == 1)                                                                        \
            add_sums64(vectors, 1, x, m, w, gamma, panels, count, beta, u);                      \
        else                                                                                     \
            add_sums64(vectors, columns, x, m, w, gamma, panels, count, beta, u);                \
    }

FOR_EACH_WIDTH(FOR64, add_sums64)

/* Compute u_ic += sum_j beta_cj exp(-gamma (|x_i - z_j|^2 + e_i)).

   x : (m, w + 1), rows [x_i, e_i]; panels : (count, w, PANEL); beta : (columns, count PANEL); u :
   (m, columns). `widest`: see add_rbf_sums. */
static void add_difference_sums(int columns, const double *x, long m, long w, double gamma,
                                const double *panels, long count, const double *beta, double *u,
                                int widest)
{
    BEST_WIDTH(add_sums64, widest)(columns, x, m, w, gamma, panels, count, beta, u);
}
