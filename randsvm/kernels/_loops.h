/* The loops of _rbf.h for one type of numbers and one width of vectors. The file that includes this
   one defines DOUBLE, 1 for float64, BYTES of a vector, and NAMED(name), the name of a function for
   these.

   columns is a compile-time constant up to 2. vectors: how many times WHOLE values of a panel a
   dense row uses at once, 1 or 2. */

#if DOUBLE
#define NUMBER double
#define BITS int64_t
/* The number of partial sums. */
#define WHOLE HALF
/* Sums of squared differences: rows that are far from 0 and near each other lose no digits, and
   K(x, x) = 1 exactly. */
#define ADD_TERM(sum, x, z)                                                                     \
    do {                                                                                        \
        REALS difference = (x) - (z);                                                           \
        sum += difference * difference;                                                         \
    } while (0)
#define EXPONENT(sum, gamma) ((sum) * -(gamma))
#define SCALED(sum, gamma) (sum)
#else
#define NUMBER float
#define BITS int32_t
#define WHOLE LANES
/* The exponent of a pair of dense rows is a sum of products. */
#define ADD_TERM(sum, x, z) sum += (x) * (z)
#define EXPONENT(sum, gamma) (sum)
#define SCALED(sum, gamma) ((sum) * (float)(2 * (gamma)))
#endif
#define WIDTH (BYTES / (int)sizeof(NUMBER)) /* the lanes of a vector */
#define PARTS (WHOLE / WIDTH)               /* vectors that hold the partial sums */
#define REALS NAMED(reals)
#define ALL_BITS NAMED(all_bits)
typedef NUMBER REALS __attribute__((vector_size(BYTES), aligned(__alignof__(NUMBER)), may_alias));
typedef BITS ALL_BITS __attribute__((vector_size(BYTES), aligned(__alignof__(NUMBER)), may_alias));

#if DOUBLE
/* Return e^x for x <= 0, within 2 units in the last place. Below -708, near the smallest float64,
   the result is 0. Values above 0, which rounding may cause, count as 0. nan stays nan.

   e^x = 2^n e^r, where n is x / ln 2 rounded and |r| <= ln 2 / 2. Adding 1.5 2^52 rounds, and leaves
   n in the last bits. The polynomial is Taylor's; its error is below 2^-57. */
INLINED REALS NAMED(exponential)(REALS x)
{
    x = (REALS)((ALL_BITS)x & ~(x >= 0.0));
    ALL_BITS kept = ~(x < -708.0);
    REALS shifted = x * 1.4426950408889634 + 6755399441055744.0;
    REALS n = shifted - 6755399441055744.0;
    REALS r = x - n * 6.93145751953125e-1 - n * 1.42860682030941723212e-6;
    REALS p = r * (1.0 / 6227020800) + 1.0 / 479001600;
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
    return (REALS)(((ALL_BITS)p + ((ALL_BITS)shifted << 52)) & kept);
}
#else
/* Return e^x for x <= 0, within 2 units in the last place. Below -86 the result is 0. Values above
   0, which rounding may cause, count as 0. nan stays nan.

   The method is that of float64 above. The two parts of ln 2 and the polynomial are those of Cephes'
   expf. */
INLINED REALS NAMED(exponential)(REALS x)
{
    x = (REALS)((ALL_BITS)x & ~(x >= 0.0f));
    ALL_BITS kept = ~(x <= -86.0f);
    REALS shifted = x * 1.44269504f + 12582912.0f, n = shifted - 12582912.0f;
    REALS r = x - n * 0.693359375f + n * 2.12194440e-4f;
    REALS p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    return (REALS)(((ALL_BITS)p + ((ALL_BITS)shifted << 23)) & kept);
}
#endif

/* Replace each x by e^x. */
INLINED void NAMED(exponentials)(NUMBER *x, long count)
{
    long at = 0;
    for (; at + WIDTH <= count; at += WIDTH)
        *(REALS *)(x + at) = NAMED(exponential)(*(REALS *)(x + at));
    REALS last = {0};
    for (int lane = 0; at + lane < count; lane++)
        last[lane] = x[at + lane];
    last = NAMED(exponential)(last);
    for (int lane = 0; at + lane < count; lane++)
        x[at + lane] = last[lane];
}

/* Store the first `count` of a vector of values. */
INLINED void NAMED(store)(REALS values, NUMBER *to, long count)
{
    if (count >= WIDTH)
        *(REALS *)to = values;
    else
        for (int lane = 0; lane < count; lane++)
            to[lane] = values[lane];
}

/* Return the sum of the partial sums. */
INLINED double NAMED(total)(const REALS *sums)
{
    double some[4] = {0};
    for (int lane = 0; lane < WHOLE; lane++)
        some[lane % 4] += sums[lane / WIDTH][lane % WIDTH];
    return some[0] + some[1] + (some[2] + some[3]);
}

INLINED void NAMED(dense_loop)(const int vectors, const int columns, const rbf_work *it)
{
    /* Copied: vectors may alias the work. */
    const NUMBER *x = it->x, *panels = it->panels, *beta = it->beta;
    const long m = it->m, d = it->d, centres = it->count * PANEL, group = DENSE_GROUP * PANEL;
    for (long i = 0; i < m; i += TILE) {
        const NUMBER *rows[TILE];
        REALS sums[COLUMNS][TILE][PARTS];
        for (int c = 0; c < columns; c++)
            for (int s = 0; s < TILE; s++)
                for (int p = 0; p < PARTS; p++)
                    sums[c][s][p] = (REALS){0};
        for (int s = 0; s < TILE; s++)
            rows[s] = x + (i + s < m ? i + s : i) * d;
        for (long first = 0; first < centres; first += group) {
            const long last = first + group < centres ? first + group : centres;
            REALS some[COLUMNS][TILE][PARTS];
            for (int c = 0; c < columns; c++)
                for (int s = 0; s < TILE; s++)
                    for (int p = 0; p < PARTS; p++)
                        some[c][s][p] = (REALS){0};
            for (long at = first; at < last; at += vectors * WHOLE) {
                const NUMBER *z = panels + at / PANEL * PANEL * d + at % PANEL;
                REALS values[TILE][2 * PARTS];
                for (int s = 0; s < TILE; s++)
                    for (int v = 0; v < vectors * PARTS; v++)
                        values[s][v] = (REALS){0};
                for (long k = 0; k < d; k++, z += PANEL)
                    for (int v = 0; v < vectors * PARTS; v++)
                        for (int s = 0; s < TILE; s++)
                            ADD_TERM(values[s][v], rows[s][k], *(const REALS *)(z + v * WIDTH));
                for (int v = 0; v < vectors * PARTS; v++)
                    for (int s = 0; s < TILE; s++)
                        values[s][v] = NAMED(exponential)(EXPONENT(values[s][v], it->gamma));
                for (int s = 0; columns == 0 && s < TILE && i + s < m; s++)
                    for (int v = 0; v < vectors * PARTS; v++)
                        NAMED(store)(values[s][v],
                                     (NUMBER *)it->K + (i + s) * it->stride + at + v * WIDTH,
                                     it->centres - at - v * WIDTH);
                for (int c = 0; c < columns; c++)
                    for (int v = 0; v < vectors * PARTS; v++) {
                        const NUMBER *weights = beta + c * centres + at + v * WIDTH;
                        for (int s = 0; s < TILE; s++)
                            some[c][s][v % PARTS] += values[s][v] * *(const REALS *)weights;
                    }
            }
            for (int c = 0; c < columns; c++)
                for (int s = 0; s < TILE; s++)
                    for (int p = 0; p < PARTS; p++)
                        sums[c][s][p] += some[c][s][p];
        }
        for (int s = 0; s < TILE && i + s < m; s++)
            for (int c = 0; c < columns; c++)
                it->u[(i + s) * columns + c] += NAMED(total)(sums[c][s]);
    }
}

#define VECTORS (PANEL / WIDTH) /* in the row of a panel */

/* Compute the values of sparse rows first .. last - 1 with the centres of `abreast` panels from
   number p on, and store them or add them up in sums : (rows, columns, PARTS). */
INLINED void NAMED(sparse_panels)(const int abreast, const int columns, const rbf_work *it,
                                  long first, long last, long p, REALS *sums)
{
    const NUMBER *x = it->x, *left = it->left, *beta = (const NUMBER *)it->beta + p * PANEL;
    const int *starts = it->starts, *features = it->features;
    const long panel = (it->d + 1) * PANEL, centres = it->count * PANEL;
    const NUMBER *z = (const NUMBER *)it->panels + p * panel, *right = z + it->d * PANEL;
    for (long i = first; i < last; i++, sums += columns * PARTS) {
        REALS values[VECTORS * PANELS_AT_ONCE];
        for (int v = 0; v < VECTORS * abreast; v++)
            values[v] = (REALS){0};
        for (long at = starts[i]; at < starts[i + 1]; at++) {
            const NUMBER *of_feature = z + (long)features[at] * PANEL;
            for (int v = 0; v < VECTORS * abreast; v++)
                values[v] += x[at] * *(const REALS *)(of_feature + v / VECTORS * panel
                                                      + v % VECTORS * WIDTH);
        }
        /* In the order of dense rows, so that values have the same bits. */
        for (int v = 0; v < VECTORS * abreast; v++) {
            values[v] += *(const REALS *)(right + v / VECTORS * panel + v % VECTORS * WIDTH);
            values[v] = NAMED(exponential)(values[v] + left[i]);
        }
        for (int v = 0; columns == 0 && v < VECTORS * abreast; v++)
            NAMED(store)(values[v], (NUMBER *)it->K + i * it->stride + p * PANEL + v * WIDTH,
                         it->centres - p * PANEL - v * WIDTH);
        for (int c = 0; c < columns; c++)
            for (int v = 0; v < VECTORS * abreast; v++)
                sums[c * PARTS + v % PARTS]
                    += values[v] * *(const REALS *)(beta + c * centres + v * WIDTH);
    }
}

INLINED void NAMED(sparse_loop)(const int vectors, const int columns, const rbf_work *it)
{
    REALS sums[PENDING_SUMS * PARTS];
    const long rows = columns ? PENDING_SUMS / columns : STORED_ROWS;
    for (long first = 0; first < it->m; first += rows) {
        const long last = first + rows < it->m ? first + rows : it->m;
        for (long p = 0; p < it->count;) {
            const long end = p + SPARSE_GROUP < it->count ? p + SPARSE_GROUP : it->count;
            for (long i = 0; i < (last - first) * columns * PARTS; i++)
                sums[i] = (REALS){0};
            for (; p + PANELS_AT_ONCE <= end; p += PANELS_AT_ONCE)
                NAMED(sparse_panels)(PANELS_AT_ONCE, columns, it, first, last, p, sums);
            for (; p < end; p++)
                NAMED(sparse_panels)(1, columns, it, first, last, p, sums);
            for (long i = 0; i < (last - first) * columns; i++)
                it->u[first * columns + i] += NAMED(total)(sums + i * PARTS);
        }
    }
}

#include "_cells.h"

#undef VECTORS
#undef NUMBER
#undef BITS
#undef WHOLE
#undef ADD_TERM
#undef EXPONENT
#undef SCALED
#undef WIDTH
#undef PARTS
#undef REALS
#undef ALL_BITS
#undef DOUBLE
#undef BYTES
#undef NAMED
