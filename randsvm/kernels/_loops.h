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
/* The number of panels that a sparse row uses at once. Two float64 panels of 192 features do not
   fit the fastest cache: a value takes 2.1 ns, and 3.0 ns with two at once. */
#define ABREAST 1
/* Sums of squared differences: rows that are far from 0 and near each other lose no digits, and
   K(x, x) = 1 exactly. */
#define ADD_TERM(sum, x, z)                                                                     \
    do {                                                                                        \
        REALS difference = (x) - (z);                                                           \
        sum += difference * difference;                                                         \
    } while (0)
#define EXPONENT(sum, rate) ((sum) * -(rate))
#define SCALED(sum, rate) (sum)
#else
#define NUMBER float
#define BITS int32_t
#define WHOLE LANES
/* Its features are read once for both panels, and the independent sums hide the latency of
   additions. */
#define ABREAST 2
/* The exponent of a pair of dense rows is a sum of products. */
#define ADD_TERM(sum, x, z) sum += (x) * (z)
#define EXPONENT(sum, rate) (sum)
#define SCALED(sum, rate) ((sum) * (float)(2 * (rate)))
#endif
#define WIDTH (BYTES / (int)sizeof(NUMBER)) /* the lanes of a vector */
#define PARTS (WHOLE / WIDTH)               /* vectors that hold the partial sums */
#define REALS NAMED(reals)
#define ALL_BITS NAMED(all_bits)
typedef NUMBER REALS __attribute__((vector_size(BYTES), aligned(__alignof__(NUMBER)), may_alias));
typedef BITS ALL_BITS __attribute__((vector_size(BYTES), aligned(__alignof__(NUMBER)), may_alias));

#if DOUBLE
#define SMALLEST_EXPONENT -1021.0
/* Adding 1.5 2^52 rounds to a whole number, and leaves it in the last bits. */
#define ROUNDING_TERM 6755399441055744.0
#define EXPONENT_BIT 52
#else
#define SMALLEST_EXPONENT -124.0f
#define ROUNDING_TERM 12582912.0f
#define EXPONENT_BIT 23
#endif

/* Return 2^x for x <= 0, within 2 units in the last place. Below SMALLEST_EXPONENT, near the
   smallest number, the result is 0. Values above 0, which rounding may cause, count as 0. nan stays
   nan.

   2^x = 2^n 2^r, where n is x rounded and |r| <= 1/2. The polynomial is that of the least relative
   error among those with the value 1 at 0 (Remez): 1.8e-17 in float64, 2.6e-9 in float32. */
INLINED REALS NAMED(exp2)(REALS x)
{
    x = (REALS)((ALL_BITS)x & ~(x >= (NUMBER)0));
    ALL_BITS kept = ~(x < SMALLEST_EXPONENT);
    REALS shifted = x + ROUNDING_TERM;
    REALS r = x - (shifted - ROUNDING_TERM);
#if DOUBLE
    REALS p = r * 4.078071929588336665e-10 + 7.0725704128144235096e-9;
    p = p * r + 1.0180647659234138888e-7;
    p = p * r + 1.3215442675329822143e-6;
    p = p * r + 1.5252727385193868197e-5;
    p = p * r + 1.540353044157213033e-4;
    p = p * r + 1.3333558153439964747e-3;
    p = p * r + 9.6181291076070023796e-3;
    p = p * r + 5.5504108664790394552e-2;
    p = p * r + 2.4022650695910098007e-1;
    p = p * r + 6.9314718055994569675e-1;
#else
    REALS p = r * 1.5594678161326619e-4f + 1.3406643902351759e-3f;
    p = p * r + 9.6176929729930623e-3f;
    p = p * r + 5.5503105510137972e-2f;
    p = p * r + 2.4022652782887737e-1f;
    p = p * r + 6.9314721496802790e-1f;
#endif
    p = p * r + 1;
    return (REALS)(((ALL_BITS)p + ((ALL_BITS)shifted << EXPONENT_BIT)) & kept);
}

/* Replace each x by 2^x. */
INLINED void NAMED(all_exp2)(NUMBER *x, long count)
{
    long at = 0;
    for (; at + WIDTH <= count; at += WIDTH)
        *(REALS *)(x + at) = NAMED(exp2)(*(REALS *)(x + at));
    REALS last = {0};
    for (int lane = 0; at + lane < count; lane++)
        last[lane] = x[at + lane];
    last = NAMED(exp2)(last);
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
                        values[s][v] = NAMED(exp2)(EXPONENT(values[s][v], it->rate));
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
        REALS values[VECTORS * ABREAST];
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
            values[v] = NAMED(exp2)(values[v] + left[i]);
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
            for (; p + ABREAST <= end; p += ABREAST)
                NAMED(sparse_panels)(ABREAST, columns, it, first, last, p, sums);
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
#undef ABREAST
#undef ADD_TERM
#undef EXPONENT
#undef SMALLEST_EXPONENT
#undef ROUNDING_TERM
#undef EXPONENT_BIT
#undef SCALED
#undef WIDTH
#undef PARTS
#undef REALS
#undef ALL_BITS
#undef DOUBLE
#undef BYTES
#undef NAMED
