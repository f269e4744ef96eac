/* K(x_i, x_j) of every pair of rows, float32, in the layouts of _rbf.h and _differences.h.

   The values right of the diagonal are computed, 32 columns at a time, and then mirrored. */

#include "_differences.h"

/* What lies right of the diagonal, and some more. x : (m, d) float32 and panels augmented. */
INLINED void upper_gram(const int vectors, const float *x, long m, long d, const float *panels,
                        float *K)
{
    for (long i = 0; i < m; i += TILE) {
        const float *rows[TILE];
        for (int s = 0; s < TILE; s++)
            rows[s] = x + (i + s < m ? i + s : i) * d;
        for (long at = i / PANEL * PANEL; at < m; at += vectors * LANES) {
            const float *z = panels + at / PANEL * PANEL * d + at % PANEL;
            reals values[TILE][2] = {{{0}}};
            for (long k = 0; k < d; k++, z += PANEL)
                for (int v = 0; v < vectors; v++)
                    for (int s = 0; s < TILE; s++)
                        values[s][v] += rows[s][k] * *(const reals *)(z + v * LANES);
            for (int s = 0; s < TILE && i + s < m; s++)
                for (int v = 0; v < vectors; v++) {
                    float *to = K + (i + s) * m + at + v * LANES;
                    reals value = exponential(values[s][v]);
                    if (at + (v + 1) * LANES <= m)
                        *(reals *)to = value;
                    else
                        for (int lane = 0; at + v * LANES + lane < m; lane++)
                            to[lane] = value[lane];
                }
        }
    }
}

/* The same by differences. x : (m, w + 1) float64 and panels as in _differences.h. */
INLINED void upper_gram64(const int vectors, const double *x, long m, long w, double gamma,
                          const double *panels, float *K)
{
    for (long i = 0; i < m; i += TILE) {
        const double *rows[TILE];
        for (int s = 0; s < TILE; s++)
            rows[s] = x + (i + s < m ? i + s : i) * (w + 1);
        for (long at = i / PANEL * PANEL; at < m; at += vectors * HALF) {
            doubles values[TILE][2];
            values64(vectors, rows, panels + at / PANEL * PANEL * w + at % PANEL, w, gamma, values);
            for (int s = 0; s < TILE && i + s < m; s++)
                for (int v = 0; v < vectors; v++)
                    for (int lane = 0; lane < HALF && at + v * HALF + lane < m; lane++)
                        K[(i + s) * m + at + v * HALF + lane] = (float)values[s][v][lane];
        }
    }
}

/* K_ji = K_ij for j > i, a square of 32 x 32 at a time, and 1 on the diagonal. */
static void mirror(float *K, long m)
{
    for (long i = 0; i < m; i += PANEL)
        for (long j = i; j < m; j += PANEL)
            for (long to = j; to < j + PANEL && to < m; to++)
                for (long row = i; row < i + PANEL && row < to; row++)
                    K[to * m + row] = K[row * m + to];
    for (long i = 0; i < m; i++)
        K[i * m + i] = 1;
}

#define FOR_GRAM(name, vectors, target)                                                          \
    target static void name(const float *x, long m, long d, const float *panels, float *K)       \
    {                                                                                            \
        upper_gram(vectors, x, m, d, panels, K);                                                 \
    }                                                                                            \
    target static void name##_differences(const double *x, long m, long w, double gamma,                   \
                                const double *panels, float *K)                                  \
    {                                                                                            \
        upper_gram64(vectors, x, m, w, gamma, panels, K);                                        \
    }

FOR_GRAM(gram_anywhere, 1, )
#ifdef __x86_64__
FOR_GRAM(gram_avx2, 1, __attribute__((target("avx2,fma"))))
FOR_GRAM(gram_avx512, 2, __attribute__((target("avx512f"))))
#endif

/* K : (m, m). See add_rbf_sums for `widest`. */
static void rbf_gram(const float *x, long m, long d, const float *panels, float *K, int widest)
{
#ifdef __x86_64__
    if (widest >= 512 && __builtin_cpu_supports("avx512f"))
        gram_avx512(x, m, d, panels, K);
    else if (widest >= 256 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        gram_avx2(x, m, d, panels, K);
    else
#endif
        gram_anywhere(x, m, d, panels, K);
    mirror(K, m);
}

static void difference_gram(const double *x, long m, long w, double gamma, const double *panels,
                            float *K, int widest)
{
#ifdef __x86_64__
    if (widest >= 512 && __builtin_cpu_supports("avx512f"))
        gram_avx512_differences(x, m, w, gamma, panels, K);
    else if (widest >= 256 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        gram_avx2_differences(x, m, w, gamma, panels, K);
    else
#endif
        gram_anywhere_differences(x, m, w, gamma, panels, K);
    mirror(K, m);
}
