/* Compute sum_j beta_jc exp(<x_i, z_j>) for float32 rows in cells. The sums of a cell leave out the
   centres that are too far from all of its rows.

   Rows are sorted by a k-d split: neighbours in the order are neighbours in space. CELL consecutive
   rows form a cell, and CELL_GROUP cells a group; each has a bounding box. Rows are augmented as in
   _rbf.h. They are stored in panels of 32 rows that hold the 32 values of each feature side by
   side. So the rows of a cell share each loaded centre, and centres need not be copied. */

#pragma once

#include "_rbf.h"

/* Measured on covtype in chunks of 8,192 rows (gamma 32): cells of 64 rows keep 10% of the values,
   of 32 rows 8%, of 128 rows 15%. In chunks of 65,536 rows, cells of 64 rows would keep 7%. */
#define CELL 64
#define CELL_GROUP 16
/* The largest number of centres in a call. */
#define MOST 1024
/* The number of additions after which a float32 sum is added to a float64 sum. */
#define ADDITIONS 128

typedef uint16_t place;

/* ---- the order ---------------------------------------------------------------------------- */

/* Move the `left` smallest of n keys and their places to the front (Hoare's selection). */
static void select_smallest(float *keys, place *places, long n, long left)
{
    long low = 0, high = n - 1;
    while (low < high) {
        float pivot = keys[low + (high - low) / 2];
        long i = low, j = high;
        while (i <= j) {
            while (keys[i] < pivot)
                i++;
            while (pivot < keys[j])
                j--;
            if (i <= j) {
                float key = keys[i];
                place one = places[i];
                keys[i] = keys[j], keys[j] = key;
                places[i] = places[j], places[j] = one;
                i++, j--;
            }
        }
        if (left <= j)
            high = j;
        else if (left >= i)
            low = i;
        else
            return;
    }
}

/* Sort places[0 .. n), numbers of rows of x, into cells.

   Split at the mean of the feature with the largest variance, rounded to whole cells; each part has
   at least an eighth of the cells. x : (rows, stride), the first w values are features; sums : (2 w,)
   and keys : (n,) are work space. */
static void sort_cells(const float *x, long stride, long w, place *places, long n, float *sums,
                       float *keys)
{
    while (n > CELL) {
        const float *first = x + places[0] * stride;
        float *squares = sums + w, most = 0;
        long widest = 0, below = 0;
        for (long k = 0; k < 2 * w; k++)
            sums[k] = 0;
        for (long i = 0; i < n; i++) {
            const float *row = x + places[i] * stride;
            for (long k = 0; k < w; k++) {
                /* Differences from the first row avoid cancellation in the variance. */
                float value = row[k] - first[k];
                sums[k] += value;
                squares[k] += value * value;
            }
        }
        for (long k = 0; k < w; k++) {
            float variance = squares[k] - sums[k] / n * sums[k];
            if (variance > most)
                most = variance, widest = k;
        }
        float mean = first[widest] + sums[widest] / n;
        for (long i = 0; i < n; i++) {
            keys[i] = x[places[i] * stride + widest];
            below += keys[i] < mean;
        }
        long cells = (n + CELL - 1) / CELL, eighth = (cells + 7) / 8;
        long half = (below + CELL / 2) / CELL;
        half = half < eighth ? eighth : half > cells - eighth ? cells - eighth : half;
        select_smallest(keys, places, n, half * CELL);
        sort_cells(x, stride, w, places, half * CELL, sums, keys);
        places += half * CELL;
        n -= half * CELL;
    }
}

/* ---- the sums ----------------------------------------------------------------------------- */

/* Write to `kept` the numbers of the centres whose squared distance from the box is below `limit`;
   return how many there are. Centres with nan are kept.

   z : (w, stride), `count` centres; stride is a multiple of LANES. */
INLINED long nearest(const float *z, long stride, long count, const float *lower,
                     const float *upper, long w, float limit, int32_t *kept)
{
    long found = 0;
    const int32_t magnitude = 0x7fffffff;
    for (long at = 0; at < count; at += LANES) {
        reals distance = {0};
        for (long k = 0; k < w; k++) {
            reals value = *(const reals *)(z + k * stride + at);
            reals under = lower[k] - value, over = value - upper[k];
            /* Twice the distance of the value from the box in this feature. */
            reals out = (reals)((wholes)under & magnitude) + under
                        + ((reals)((wholes)over & magnitude) + over);
            distance += out * out;
        }
        wholes far = distance >= 4 * limit;
        for (int lane = 0; lane < LANES && at + lane < count; lane++) {
            kept[found] = at + lane;
            found += far[lane] == 0;
        }
    }
    return found;
}

/* Compute the bounding box of the rows of some panels, (count, d, PANEL), by their first w values. */
INLINED void surround(const float *panels, long count, long d, long w, float *lower, float *upper)
{
    for (long k = 0; k < w; k++) {
        reals least = *(const reals *)(panels + k * PANEL), most = least;
        for (long at = 0; at < count * PANEL; at += LANES) {
            reals x = *(const reals *)(panels + (at / PANEL * d + k) * PANEL + at % PANEL);
            wholes below = x < least, above = x > most;
            least = (reals)(((wholes)x & below) | ((wholes)least & ~below));
            most = (reals)(((wholes)x & above) | ((wholes)most & ~above));
        }
        lower[k] = least[0], upper[k] = most[0];
        for (int lane = 1; lane < LANES; lane++) {
            lower[k] = least[lane] < lower[k] ? least[lane] : lower[k];
            upper[k] = most[lane] > upper[k] ? most[lane] : upper[k];
        }
    }
}

/* Add the sums of a panel of rows over some centres to u.

   x : (d, PANEL); z : (centres, d); beta : (centres, columns); kept : (count,), the numbers of the
   centres to use; places : (rows,), the row of u for each row of the panel. */
INLINED void add_panel(const int vectors, const int columns, const float *x, long d, const float *z,
                       const float *beta, const int32_t *kept, long count, const place *places,
                       long rows, double *u)
{
    for (int first = 0; first < PANEL / LANES; first += vectors)
        for (long from = 0; from < count; from += ADDITIONS) {
            reals sums[COLUMNS][2];
            for (int c = 0; c < columns; c++)
                for (int v = 0; v < vectors; v++)
                    sums[c][v] = (reals){0};
            long to = from + ADDITIONS < count ? from + ADDITIONS : count;
            for (long at = from; at < to; at += TILE) {
                const float *centres[TILE], *row = x + first * LANES;
                reals values[TILE][2] = {{{0}}};
                for (int s = 0; s < TILE; s++)
                    centres[s] = z + kept[at + s < to ? at + s : at] * d;
                for (long k = 0; k < d; k++, row += PANEL)
                    for (int v = 0; v < vectors; v++)
                        for (int s = 0; s < TILE; s++)
                            values[s][v] += centres[s][k] * *(const reals *)(row + v * LANES);
                for (int s = 0; s < TILE; s++)
                    for (int v = 0; v < vectors; v++)
                        values[s][v] = exponential(values[s][v]);
                for (int s = 0; s < TILE && at + s < to; s++)
                    for (int c = 0; c < columns; c++)
                        for (int v = 0; v < vectors; v++)
                            sums[c][v] += beta[kept[at + s] * columns + c] * values[s][v];
            }
            for (int v = 0; v < vectors; v++)
                for (int lane = 0; lane < LANES; lane++) {
                    long row = (first + v) * LANES + lane;
                    for (int c = 0; row < rows && c < columns; c++)
                        u[places[row] * columns + c] += sums[c][v][lane];
                }
        }
}

/* Rows in the layout of Cells (layouts.py), and centres. */
typedef struct {
    long m, d, w;         /* numbers of rows, of augmented features, of features */
    const float *panels;  /* (m / PANEL rounded up, d, PANEL) */
    const place *places;  /* (m,), the row of u for each row */
    long centres, stride; /* centres is at most MOST */
    const float *z;       /* (centres, d), augmented */
    const float *columns; /* (w, stride), the features of centres; stride a multiple of LANES */
    float limit;          /* squared distance from which centres are left out */
} cells;

/* Add the sums to u; return the number of kernel values in the sums.

   beta : (centres, columns); u : (m, columns); room : (w, MOST + 2 CELL_GROUP + 2), work space. */
INLINED long add_sums_of_cells(const int vectors, const int columns, const cells *it,
                               const float *beta, double *u, float *room)
{
    int32_t near_group[MOST], kept[MOST + TILE];
    long w = it->w, count = (it->m + CELL - 1) / CELL, values = 0;
    float *below = room, *above = room + w, *columns_near = room + 2 * w;
    float *lower = columns_near + w * MOST, *upper = lower + w * CELL_GROUP;
    for (long group = 0; group < count; group += CELL_GROUP) {
        long boxes = group + CELL_GROUP < count ? CELL_GROUP : count - group;
        for (long box = 0; box < boxes; box++) {
            long at = (group + box) * CELL, rows = it->m - at < CELL ? it->m - at : CELL;
            float *l = lower + box * w, *h = upper + box * w;
            surround(it->panels + at * it->d, (rows + PANEL - 1) / PANEL, it->d, w, l, h);
            for (long k = 0; k < w; k++) {
                below[k] = box && below[k] < l[k] ? below[k] : l[k];
                above[k] = box && above[k] > h[k] ? above[k] : h[k];
            }
        }
        long near = nearest(it->columns, it->stride, it->centres, below, above, w, it->limit,
                            near_group);
        long stride = (near + LANES - 1) / LANES * LANES;
        for (long k = 0; k < w; k++)
            for (long j = 0; j < stride; j++)
                columns_near[k * stride + j]
                    = it->columns[k * it->stride + near_group[j < near ? j : 0]];
        for (long cell = group; near && cell < group + boxes; cell++) {
            long found = nearest(columns_near, stride, near, lower + (cell - group) * w,
                                 upper + (cell - group) * w, w, it->limit, kept);
            for (long j = 0; j < found; j++)
                kept[j] = near_group[kept[j]];
            for (long at = cell * CELL; at < it->m && at < (cell + 1) * CELL; at += PANEL) {
                long rows = at + PANEL < it->m ? PANEL : it->m - at;
                add_panel(vectors, columns, it->panels + at * it->d, it->d, it->z, beta, kept,
                          found, it->places + at, rows, u);
                values += rows * found;
            }
        }
    }
    return values;
}

#define FOR_CELLS(name, vectors, target)                                                         \
    target static long name(int columns, const cells *it, const float *beta, double *u,          \
                            float *room)                                                         \
    {                                                                                            \
        if (columns == 1)                                                                        \
            return add_sums_of_cells(vectors, 1, it, beta, u, room);                             \
        if (columns == 2)                                                                        \
            return add_sums_of_cells(vectors, 2, it, beta, u, room);                             \
        return add_sums_of_cells(vectors, columns, it, beta, u, room);                           \
    }

FOR_EACH_WIDTH(FOR_CELLS, add_cells)

/* See BEST_WIDTH for `widest`. */
static long add_cells(int columns, const cells *it, const float *beta, double *u, float *room,
                      int widest)
{
    return BEST_WIDTH(add_cells, widest)(columns, it, beta, u, room);
}
