/* Compute K(x_i, x_j) for every pair of rows, float32, in the layouts of _rbf.h and _differences.h.

   Only values above the diagonal are computed, for 32 rows at a time, or SPARSE_ROWS rows if only
   their nonzeros are read. They are mirrored while they are in the cache. */

#include "_differences.h"

/* Compute the values above the diagonal, and a few others, for PANEL rows from row `begin` on.

   x : (m, d) float32 and panels, both augmented. */
INLINED void upper_gram(const int vectors, const float *x, long m, long d, const float *panels,
                        float *K, long begin)
{
    for (long i = begin; i < begin + PANEL && i < m; i += TILE) {
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

/* Compute the values of `upper_gram` from differences of features.

   x : (m, w + 1) float64 and panels, as in _differences.h. */
INLINED void upper_gram64(const int vectors, const double *x, long m, long w, double gamma,
                          const double *panels, float *K, long begin)
{
    for (long i = begin; i < begin + PANEL && i < m; i += TILE) {
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

/* The number of sparse rows whose values are computed while a pair of panels is in the cache. */
#define SPARSE_ROWS 128

/* Compute the values of some panels above the diagonal for the sparse rows first .. last - 1.

   starts, features, x, left: as in _sparse.h; z: panel number p of `abreast` panels, as there. The
   additions have the order of `upper_gram`, so that both functions return the same values. */
INLINED void sparse_upper_gram(const int abreast, const int *starts, const int *features,
                               const float *x, const float *left, long m, long d, const float *z,
                               long p, float *K, long first, long last)
{
    const long panel = (d + 1) * PANEL;
    for (long i = first; i < last; i++) {
        reals values[2 * (PANEL / LANES)] = {{0}};
        for (long at = starts[i]; at < starts[i + 1]; at++)
            for (int v = 0; v < abreast * (PANEL / LANES); v++)
                values[v] += x[at] * *(const reals *)(z + v / (PANEL / LANES) * panel
                                                      + (long)features[at] * PANEL
                                                      + v % (PANEL / LANES) * LANES);
        for (int v = 0; v < abreast * (PANEL / LANES); v++) {
            values[v] += *(const reals *)(z + v / (PANEL / LANES) * panel + d * PANEL
                                          + v % (PANEL / LANES) * LANES);
            reals value = exponential(values[v] + left[i]);
            long column = p * PANEL + v * LANES;
            float *to = K + i * m + column;
            if (column + LANES <= m)
                *(reals *)to = value;
            else
                for (int lane = 0; column + lane < m; lane++)
                    to[lane] = value[lane];
        }
    }
}

typedef float four __attribute__((vector_size(16), aligned(4), may_alias));

/* Copy the transpose of 4 x 4 values. Both matrices have m columns. */
INLINED void transpose(const float *from, float *to, long m)
{
    four a = *(const four *)from, b = *(const four *)(from + m);
    four c = *(const four *)(from + 2 * m), d = *(const four *)(from + 3 * m);
    for (int s = 0; s < 4; s++)
        *(four *)(to + s * m) = (four){a[s], b[s], c[s], d[s]};
}

/* Set K_ji = K_ij for j > i, and K_ii = 1, for PANEL rows i from row `begin` on. */
INLINED void mirror(float *K, long m, long begin)
{
    long end = begin + PANEL < m ? begin + PANEL : m, fours = end;
    for (; end - begin == PANEL && fours + 4 <= m; fours += 4)
        for (long row = begin; row < end; row += 4)
            transpose(K + row * m + fours, K + fours * m + row, m);
    for (long row = begin; row < end; row++) {
        K[row * m + row] = 1;
        for (long to = row + 1; to < end; to++)
            K[to * m + row] = K[row * m + to];
        for (long to = fours; to < m; to++)
            K[to * m + row] = K[row * m + to];
    }
}

#define FOR_GRAM(name, vectors, target)                                                          \
    target static void name(const float *x, long m, long d, const float *panels, float *K)       \
    {                                                                                            \
        for (long i = 0; i < m; i += PANEL) {                                                    \
            upper_gram(vectors, x, m, d, panels, K, i);                                          \
            mirror(K, m, i);                                                                     \
        }                                                                                        \
    }

#define FOR_SPARSE_GRAM(name, vectors, target)                                                   \
    target static void name(const int *starts, const int *features, const float *x,              \
                            const float *left, long m, long d, const float *panels, float *K)    \
    {                                                                                            \
        const long count = (m + PANEL - 1) / PANEL, panel = (d + 1) * PANEL;                     \
        for (long begin = 0; begin < m; begin += SPARSE_ROWS) {                                  \
            const long end = begin + SPARSE_ROWS < m ? begin + SPARSE_ROWS : m;                  \
            long p = begin / PANEL;                                                              \
            for (; p + 2 <= count; p += 2)                                                       \
                sparse_upper_gram(2, starts, features, x, left, m, d, panels + p * panel, p, K,  \
                                  begin, end < (p + 2) * PANEL ? end : (p + 2) * PANEL);         \
            if (p < count)                                                                       \
                sparse_upper_gram(1, starts, features, x, left, m, d, panels + p * panel, p, K,  \
                                  begin, end);                                                   \
            for (long i = begin; i < end; i += PANEL)                                            \
                mirror(K, m, i);                                                                 \
        }                                                                                        \
    }

#define FOR_DIFFERENCE_GRAM(name, vectors, target)                                               \
    target static void name(const double *x, long m, long w, double gamma, const double *panels, \
                            float *K)                                                            \
    {                                                                                            \
        for (long i = 0; i < m; i += PANEL) {                                                    \
            upper_gram64(vectors, x, m, w, gamma, panels, K, i);                                 \
            mirror(K, m, i);                                                                     \
        }                                                                                        \
    }

FOR_EACH_WIDTH(FOR_GRAM, gram)
FOR_EACH_WIDTH(FOR_SPARSE_GRAM, sparse_gram)
FOR_EACH_WIDTH(FOR_DIFFERENCE_GRAM, gram64)

/* Compute K : (m, m). `widest`: see add_rbf_sums. */
static void rbf_gram(const float *x, long m, long d, const float *panels, float *K, int widest)
{
    BEST_WIDTH(gram, widest)(x, m, d, panels, K);
}

/* starts : (m + 1,), features, x: rows in CSR; left : (m,); panels : (m / 32 rounded up, d + 1,
   PANEL); K : (m, m). */
static void sparse_rbf_gram(const int *starts, const int *features, const float *x,
                            const float *left, long m, long d, const float *panels, float *K,
                            int widest)
{
    BEST_WIDTH(sparse_gram, widest)(starts, features, x, left, m, d, panels, K);
}

static void difference_gram(const double *x, long m, long w, double gamma, const double *panels,
                            float *K, int widest)
{
    BEST_WIDTH(gram64, widest)(x, m, w, gamma, panels, K);
}
