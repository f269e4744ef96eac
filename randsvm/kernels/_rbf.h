/* Compute sum_j beta_jc exp(<x_i, z_j>) for dense float32 rows. Kernel values stay in registers.

   Rows and centres are augmented (see lay_out_rows in _kernels.pyx), so that
   <x, z> = -gamma |x - z|^2. Centres are in panels of 32: panel p holds the features of centres
   32 p ... 32 p + 31 in d rows of 32 values. The order of additions to a sum depends on the centres
   only. The code needs the vector types of GCC and Clang. */

#pragma once

#include <stdint.h>

#pragma GCC diagnostic ignored "-Wpsabi" /* vectors are passed to inlined functions only */

#define LANES 16
#define PANEL 32
/* The number of rows that share each load of a centre. Their exponents fill half of the registers. */
#define TILE 4
/* The largest number of sums over the same kernel values in one call. */
#define COLUMNS 16

typedef float reals __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t wholes __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

#define INLINED static inline __attribute__((always_inline))

/* Return e^x for x <= 0, within 2 units in the last place. Below -86 the result is 0. Values above
   0, which rounding may cause, count as 0. nan stays nan.

   e^x = 2^n e^r, where n is x / ln 2 rounded and |r| <= ln 2 / 2. Adding 1.5 2^23 rounds, and leaves
   n in the last bits. The two parts of ln 2 and the polynomial are those of Cephes' expf. */
INLINED reals exponential(reals x)
{
    x = (reals)((wholes)x & ~(x >= 0.0f));
    wholes kept = ~(x <= -86.0f);
    reals shifted = x * 1.44269504f + 12582912.0f, n = shifted - 12582912.0f;
    reals r = x - n * 0.693359375f + n * 2.12194440e-4f;
    reals p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    return (reals)(((wholes)p + ((wholes)shifted << 23)) & kept);
}

/* Compute the sums of add_rbf_sums.

   vectors: how many of the two vectors of a panel are computed at once. columns: the columns of beta
   and u, at most COLUMNS. vectors is a compile-time constant, and so is columns if it is 1. */
INLINED void add_sums(const int vectors, const int columns, const float *x, long m, long d,
                      const float *panels, long count, const float *beta, double *u)
{
    for (long i = 0; i < m; i += TILE) {
        const float *rows[TILE];
        reals sums[COLUMNS][TILE];
        for (int c = 0; c < columns; c++)
            for (int s = 0; s < TILE; s++)
                sums[c][s] = (reals){0};
        for (int s = 0; s < TILE; s++)
            rows[s] = x + (i + s < m ? i + s : i) * d;
        for (long at = 0; at < count * PANEL; at += vectors * LANES) {
            const float *z = panels + at / PANEL * PANEL * d + at % PANEL;
            reals values[TILE][2] = {{{0}}};
            for (long k = 0; k < d; k++, z += PANEL)
                for (int v = 0; v < vectors; v++)
                    for (int s = 0; s < TILE; s++)
                        values[s][v] += rows[s][k] * *(const reals *)(z + v * LANES);
            for (int v = 0; v < vectors; v++)
                for (int s = 0; s < TILE; s++)
                    values[s][v] = exponential(values[s][v]);
            for (int c = 0; c < columns; c++)
                for (int v = 0; v < vectors; v++) {
                    const float *weights = beta + c * count * PANEL + at + v * LANES;
                    for (int s = 0; s < TILE; s++)
                        sums[c][s] += values[s][v] * *(const reals *)weights;
                }
        }
        for (int s = 0; s < TILE && i + s < m; s++)
            for (int c = 0; c < columns; c++) {
                double sum = 0;
                for (int lane = 0; lane < LANES; lane++)
                    sum += sums[c][s][lane];
                u[(i + s) * columns + c] += sum;
            }
    }
}

/* Each loop is compiled once for each width of vectors. `define`(name, vectors, target) is a macro
   that defines the function for one width. Each loop needs its own macro, because the arguments
   differ. GCC's target_clones would not do: they choose by the processor only and ignore `widest`. */
#ifdef __x86_64__
#define FOR_EACH_WIDTH(define, name)                                                            \
    define(name##_anywhere, 1, )                                                                \
    define(name##_avx2, 1, __attribute__((target("avx2,fma"))))                                 \
    define(name##_avx512, 2, __attribute__((target("avx512f"))))
/* The function for the widest vectors, in bits, that the processor has and `widest` allows. */
#define BEST_WIDTH(name, widest)                                                                \
    ((widest) >= 512 && __builtin_cpu_supports("avx512f") ? name##_avx512                       \
     : (widest) >= 256 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")       \
         ? name##_avx2                                                                          \
         : name##_anywhere)
#else
#define FOR_EACH_WIDTH(define, name) define(name##_anywhere, 1, )
#define BEST_WIDTH(name, widest) ((void)(widest), name##_anywhere)
#endif

/* One column and two, a sum and that of its sizes, are compiled separately: their sums then stay in
   registers, too. */
#define FOR(name, vectors, target)                                                              \
    target static void name(int columns, const float *x, long m, long d, const float *panels,   \
                            long count, const float *beta, double *u)                           \
    {                                                                                           \
        if (columns == 1)                                                                       \
            add_sums(vectors, 1, x, m, d, panels, count, beta, u);                              \
        else if (columns == 2)                                                                  \
            add_sums(vectors, 2, x, m, d, panels, count, beta, u);                              \
        else                                                                                    \
            add_sums(vectors, columns, x, m, d, panels, count, beta, u);                        \
    }

FOR_EACH_WIDTH(FOR, add_rbf_sums)

/* Compute u_ic += sum_j beta_cj exp(<x_i, z_j>) with the widest vectors that the processor has and
   `widest` allows: 512 (AVX-512), 256 (AVX2) or fewer bits.

   x : (m, d); panels : (count, d, PANEL); beta : (columns, count PANEL), 0 where there is no
   centre; u : (m, columns). */
static void add_rbf_sums(int columns, const float *x, long m, long d, const float *panels,
                         long count, const float *beta, double *u, int widest)
{
    BEST_WIDTH(add_rbf_sums, widest)(columns, x, m, d, panels, count, beta, u);
}
