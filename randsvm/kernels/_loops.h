/* The loops of _rbf.h for one type of numbers. The file that includes this one defines NUMBER, its
   vectors REALS of WIDTH lanes, EXPONENTIAL, how exponents of dense rows are added up, and
   NAMED(name), the name of a function for the type.

   columns is a compile-time constant up to 2. vectors: the vectors of a panel that a dense row uses
   at once, 1 or 2. */

/* Store the first `count` of a vector of values. */
INLINED void NAMED(store)(REALS values, NUMBER *to, long count)
{
    if (count >= WIDTH)
        *(REALS *)to = values;
    else
        for (int lane = 0; lane < count; lane++)
            to[lane] = values[lane];
}

/* Return the sum of all lanes. */
INLINED double NAMED(total)(REALS sums)
{
    double some[4] = {0};
    for (int lane = 0; lane < WIDTH; lane++)
        some[lane % 4] += sums[lane];
    return some[0] + some[1] + (some[2] + some[3]);
}

INLINED void NAMED(dense_loop)(const int vectors, const int columns, const rbf_work *it)
{
    /* Copied: vectors may alias the work. */
    const NUMBER *x = it->x, *panels = it->panels, *beta = it->beta;
    const long m = it->m, d = it->d, centres = it->count * PANEL, group = DENSE_GROUP * PANEL;
    for (long i = 0; i < m; i += TILE) {
        const NUMBER *rows[TILE];
        REALS sums[COLUMNS][TILE];
        for (int c = 0; c < columns; c++)
            for (int s = 0; s < TILE; s++)
                sums[c][s] = (REALS){0};
        for (int s = 0; s < TILE; s++)
            rows[s] = x + (i + s < m ? i + s : i) * d;
        for (long first = 0; first < centres; first += group) {
            const long last = first + group < centres ? first + group : centres;
            REALS some[COLUMNS][TILE];
            for (int c = 0; c < columns; c++)
                for (int s = 0; s < TILE; s++)
                    some[c][s] = (REALS){0};
            for (long at = first; at < last; at += vectors * WIDTH) {
                const NUMBER *z = panels + at / PANEL * PANEL * d + at % PANEL;
                REALS values[TILE][2];
                for (int s = 0; s < TILE; s++)
                    for (int v = 0; v < vectors; v++)
                        values[s][v] = (REALS){0};
                for (long k = 0; k < d; k++, z += PANEL)
                    for (int v = 0; v < vectors; v++)
                        for (int s = 0; s < TILE; s++)
                            ADD_TERM(values[s][v], rows[s][k], *(const REALS *)(z + v * WIDTH));
                for (int v = 0; v < vectors; v++)
                    for (int s = 0; s < TILE; s++)
                        values[s][v] = EXPONENTIAL(EXPONENT(values[s][v], it->gamma));
                for (int s = 0; columns == 0 && s < TILE && i + s < m; s++)
                    for (int v = 0; v < vectors; v++)
                        NAMED(store)(values[s][v],
                                     (NUMBER *)it->K + (i + s) * it->stride + at + v * WIDTH,
                                     it->centres - at - v * WIDTH);
                for (int c = 0; c < columns; c++)
                    for (int v = 0; v < vectors; v++) {
                        const NUMBER *weights = beta + c * centres + at + v * WIDTH;
                        for (int s = 0; s < TILE; s++)
                            some[c][s] += values[s][v] * *(const REALS *)weights;
                    }
            }
            for (int c = 0; c < columns; c++)
                for (int s = 0; s < TILE; s++)
                    sums[c][s] += some[c][s];
        }
        for (int s = 0; s < TILE && i + s < m; s++)
            for (int c = 0; c < columns; c++)
                it->u[(i + s) * columns + c] += NAMED(total)(sums[c][s]);
    }
}

#define VECTORS (PANEL / WIDTH) /* in the row of a panel */

/* Compute the values of sparse rows first .. last - 1 with the centres of `abreast` panels from
   number p on, and store them or add them up in sums : (rows, columns). */
INLINED void NAMED(sparse_panels)(const int abreast, const int columns, const rbf_work *it,
                                  long first, long last, long p, REALS *sums)
{
    const NUMBER *x = it->x, *left = it->left, *beta = (const NUMBER *)it->beta + p * PANEL;
    const int *starts = it->starts, *features = it->features;
    const long panel = (it->d + 1) * PANEL, centres = it->count * PANEL;
    const NUMBER *z = (const NUMBER *)it->panels + p * panel, *right = z + it->d * PANEL;
    for (long i = first; i < last; i++, sums += columns) {
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
            values[v] = EXPONENTIAL(values[v] + left[i]);
        }
        for (int v = 0; columns == 0 && v < VECTORS * abreast; v++)
            NAMED(store)(values[v], (NUMBER *)it->K + i * it->stride + p * PANEL + v * WIDTH,
                         it->centres - p * PANEL - v * WIDTH);
        for (int c = 0; c < columns; c++)
            for (int v = 0; v < VECTORS * abreast; v++)
                sums[c] += values[v] * *(const REALS *)(beta + c * centres + v * WIDTH);
    }
}

INLINED void NAMED(sparse_loop)(const int vectors, const int columns, const rbf_work *it)
{
    REALS sums[PENDING_SUMS];
    const long rows = columns ? PENDING_SUMS / columns : STORED_ROWS;
    for (long first = 0; first < it->m; first += rows) {
        const long last = first + rows < it->m ? first + rows : it->m;
        for (long p = 0; p < it->count;) {
            const long end = p + SPARSE_GROUP < it->count ? p + SPARSE_GROUP : it->count;
            for (long i = 0; i < (last - first) * columns; i++)
                sums[i] = (REALS){0};
            for (; p + PANELS_AT_ONCE <= end; p += PANELS_AT_ONCE)
                NAMED(sparse_panels)(PANELS_AT_ONCE, columns, it, first, last, p, sums);
            for (; p < end; p++)
                NAMED(sparse_panels)(1, columns, it, first, last, p, sums);
            for (long i = 0; i < (last - first) * columns; i++)
                it->u[first * columns + i] += NAMED(total)(sums[i]);
        }
    }
}

#undef VECTORS
#undef NUMBER
#undef REALS
#undef WIDTH
#undef EXPONENTIAL
#undef ADD_TERM
#undef EXPONENT
#undef NAMED
