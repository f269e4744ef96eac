/* The loops of _sparse.h for one type of numbers. The file that includes this one defines NUMBER, its
   vectors REALS of WIDTH lanes, EXPONENTIAL, and NAMED(name), the name of a function for the type. */

#define VECTORS (PANEL / WIDTH) /* in the row of a panel */

/* Add the sums of rows first .. last - 1 over `abreast` panels at z.

   sums : (rows, columns, WIDTH). */
INLINED void NAMED(add_sparse_panels)(const int abreast, const int columns, const int *starts,
                                      const int *features, const NUMBER *x, const NUMBER *left,
                                      long first, long last, long d, const NUMBER *z,
                                      const NUMBER *beta, long stride, REALS *sums)
{
    const long panel = (d + 1) * PANEL;
    for (long i = first; i < last; i++, sums += columns) {
        REALS values[VECTORS * PANELS_AT_ONCE];
        for (int v = 0; v < VECTORS * abreast; v++)
            values[v] = left[i] + *(const REALS *)(z + v / VECTORS * panel + d * PANEL
                                                   + v % VECTORS * WIDTH);
        for (long at = starts[i]; at < starts[i + 1]; at++) {
            const NUMBER *of_feature = z + (long)features[at] * PANEL;
            for (int v = 0; v < VECTORS * abreast; v++)
                values[v] += x[at] * *(const REALS *)(of_feature + v / VECTORS * panel
                                                      + v % VECTORS * WIDTH);
        }
        for (int v = 0; v < VECTORS * abreast; v++)
            values[v] = EXPONENTIAL(values[v]);
        for (int c = 0; c < columns; c++)
            for (int v = 0; v < VECTORS * abreast; v++)
                sums[c] += values[v] * *(const REALS *)(beta + c * stride + v * WIDTH);
    }
}

INLINED void NAMED(add_sparse)(const int columns, const int *starts, const int *features,
                               const NUMBER *x, const NUMBER *left, long m, long d,
                               const NUMBER *panels, long count, const NUMBER *beta, double *u)
{
    REALS sums[PENDING_SUMS];
    for (long first = 0; first < m; first += PENDING_SUMS / columns) {
        long last = first + PENDING_SUMS / columns < m ? first + PENDING_SUMS / columns : m;
        for (long i = 0; i < (last - first) * columns; i++)
            sums[i] = (REALS){0};
        long p = 0;
        for (; p + PANELS_AT_ONCE <= count; p += PANELS_AT_ONCE)
            NAMED(add_sparse_panels)(PANELS_AT_ONCE, columns, starts, features, x, left, first, last,
                                     d, panels + p * (d + 1) * PANEL, beta + p * PANEL,
                                     count * PANEL, sums);
        for (; p < count; p++)
            NAMED(add_sparse_panels)(1, columns, starts, features, x, left, first, last, d,
                                     panels + p * (d + 1) * PANEL, beta + p * PANEL, count * PANEL,
                                     sums);
        for (long i = 0; i < (last - first) * columns; i++) {
            double sum = 0;
            for (int lane = 0; lane < WIDTH; lane++)
                sum += sums[i][lane];
            u[first * columns + i] += sum;
        }
    }
}

#undef VECTORS
#undef NUMBER
#undef REALS
#undef WIDTH
#undef EXPONENTIAL
#undef NAMED
