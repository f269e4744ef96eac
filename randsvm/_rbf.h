/* sum_j beta_j exp(<x_i, z_j>) of dense float32 rows: kernel values never leave the registers.

   Rows and centres come augmented (see kernels.py), so that <x, z> = -gamma |x - z|^2. Centres
   come in panels of 32, each feature of theirs side by side: panel p holds the features of centres
   32 p ... 32 p + 31 in d rows of 32 values. The order of additions to a row's sum depends on
   nothing but the centres. Needs the vector types of GCC and Clang. */

#include <stdint.h>

#pragma GCC diagnostic ignored "-Wpsabi" /* vectors are passed to inlined functions only */

#define LANES 16
#define PANEL 32
/* Rows that share each load of a centre; their exponents fill half of the registers. */
#define TILE 4

typedef float reals __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t wholes __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

#define INLINED static inline __attribute__((always_inline))

/* e^x for x <= 0 within 2 units in the last place, and 0 below -86; rounding above 0 counts as 0.

   e^x = 2^n e^r with n = x / ln 2 rounded (adding 1.5 2^23 rounds, and leaves n in the last bits)
   and |r| <= ln 2 / 2; ln 2 in two parts and the polynomial are those of Cephes' expf. */
INLINED reals exponential(reals x)
{
    x = (reals)((wholes)x & (x < 0.0f));
    wholes kept = x > -86.0f;
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

/* vectors: of a panel's two, how many are computed at once; a constant. */
INLINED void add_sums(const int vectors, const float *x, long m, long d, const float *panels,
                      long count, const float *beta, double *u)
{
    for (long i = 0; i < m; i += TILE) {
        const float *rows[TILE];
        reals sums[TILE] = {{0}};
        for (int s = 0; s < TILE; s++)
            rows[s] = x + (i + s < m ? i + s : i) * d;
        for (long at = 0; at < count * PANEL; at += vectors * LANES) {
            const float *z = panels + at / PANEL * PANEL * d + at % PANEL;
            reals exponents[TILE][2] = {{{0}}};
            for (long k = 0; k < d; k++, z += PANEL)
                for (int v = 0; v < vectors; v++)
                    for (int s = 0; s < TILE; s++)
                        exponents[s][v] += rows[s][k] * *(const reals *)(z + v * LANES);
            for (int v = 0; v < vectors; v++)
                for (int s = 0; s < TILE; s++)
                    sums[s] += exponential(exponents[s][v]) * *(const reals *)(beta + at + v * LANES);
        }
        for (int s = 0; s < TILE && i + s < m; s++) {
            double sum = 0;
            for (int lane = 0; lane < LANES; lane++)
                sum += sums[s][lane];
            u[i + s] += sum;
        }
    }
}

typedef void add_rbf_sums_function(const float *, long, long, const float *, long, const float *,
                                   double *);

#define FOR(name, vectors, target)                                                               \
    target static void name(const float *x, long m, long d, const float *panels, long count,    \
                            const float *beta, double *u)                                       \
    {                                                                                           \
        add_sums(vectors, x, m, d, panels, count, beta, u);                                     \
    }

FOR(add_rbf_sums_anywhere, 1, )
#ifdef __x86_64__
FOR(add_rbf_sums_avx2, 1, __attribute__((target("avx2,fma"))))
FOR(add_rbf_sums_avx512, 2, __attribute__((target("avx512f"))))
#endif

/* u_i += sum_j beta_j exp(<x_i, z_j>), by the widest vectors that the processor has and `widest`
   allows: 512 (AVX-512), 256 (AVX2) or less, in bits.
   x : (m, d); panels : (count, d, PANEL); beta : (count PANEL,), 0 where there is no centre. */
static void add_rbf_sums(const float *x, long m, long d, const float *panels, long count,
                         const float *beta, double *u, int widest)
{
    add_rbf_sums_function *best = add_rbf_sums_anywhere;
#ifdef __x86_64__
    if (widest >= 512 && __builtin_cpu_supports("avx512f"))
        best = add_rbf_sums_avx512;
    else if (widest >= 256 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        best = add_rbf_sums_avx2;
#endif
    best(x, m, d, panels, count, beta, u);
}
