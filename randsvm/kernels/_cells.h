/* sum_j beta_jc exp(<x_i, z_j>) of float32 rows that lie in cells: centres that are too far from
   all rows of a cell take no part in it.

   Rows are sorted by a k-d split: neighbours in the order are neighbours in space. CELL rows in
   that order are a cell, GROUP cells are a group; both have a box. Rows come augmented as in
   _rbf.h, in panels of 32, each feature of theirs side by side, so that the rows of a cell share
   each centre and any list of centres can be gone through without copying them. */

#pragma once

#include "_rbf.h"

/* Measured on covtype in chunks of 8,192 rows (gamma 32): cells of 64 rows keep 10% of the values,
   of 32 rows 8%, of 128 rows 15%; pieces of 65,536 rows would keep 7%. */
#define CELL 64
#define CELL_PANELS (CELL / PANEL)
#define GROUP 16
/* Centres that a call may have. */
#define MOST 1024
/* Additions to a float32 sum, before it goes to a float64 one. */
#define ADDITIONS 128

typedef uint16_t place;

/* ---- the order ---------------------------------------------------------------------------- */

/* Moves the `left` smallest of n keys to the front, and their places with them (Hoare). */
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

/* Sorts places[0 .. n) of rows x (of which every `stride` values are one, w of them features) into
   cells: split where the feature of the largest variance is at its mean, as near to there as
   whole cells allow, and at an eighth of the rows at least. sums: 2 w, keys: n. */
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
                /* From the first row, lest two large numbers are subtracted. */
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

/* Of `count` centres, z : (w, stride) with stride a multiple of LANES, those that are nearer than
   `limit`, squared, to the box: their numbers into kept. Returns how many. What is not a number
   is kept. */
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
            /* Twice what the value is outside of the box by. */
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

/* The box around some boxes. */
INLINED void surround(const float *lower, const float *upper, long boxes, long w, float *below,
                      float *above)
{
    for (long k = 0; k < w; k++)
        below[k] = lower[k], above[k] = upper[k];
    for (long box = 1; box < boxes; box++)
        for (long k = 0; k < w; k++) {
            float l = lower[box * w + k], h = upper[box * w + k];
            below[k] = l < below[k] ? l : below[k];
            above[k] = h > above[k] ? h : above[k];
        }
}

/* Adds the sums of a panel of rows over some centres to u. x : (d, PANEL); z : (centres, d), beta :
   (centres, columns), of which `count` are `kept`; places: of the panel's `rows` rows in u. */
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

/* Rows, as lay_cells has laid them out, and centres. */
typedef struct {
    long m, d, w;         /* rows, features augmented, features */
    const float *panels;  /* (m / PANEL rounded up, d, PANEL) */
    const float *lower;   /* (m / CELL rounded up, w) */
    const float *upper;   /* the same */
    const place *places;  /* (m,) */
    long centres, stride; /* up to MOST of them */
    const float *z;       /* (centres, d), augmented */
    const float *columns; /* (w, stride), as the rows' features are; stride a multiple of LANES */
    float limit;          /* squared distance from which centres are left out */
} cells;

/* beta : (centres, columns); u : (m, columns). room: (w, MOST + 2). Returns how many kernel values
   took part. */
INLINED long add_sums_of_cells(const int vectors, const int columns, const cells *it,
                               const float *beta, double *u, float *room)
{
    int32_t near_group[MOST], kept[MOST + TILE];
    long w = it->w, count = (it->m + CELL - 1) / CELL, values = 0;
    float *below = room, *above = room + w, *columns_near = room + 2 * w;
    for (long group = 0; group < count; group += GROUP) {
        long boxes = group + GROUP < count ? GROUP : count - group;
        surround(it->lower + group * w, it->upper + group * w, boxes, w, below, above);
        long near = nearest(it->columns, it->stride, it->centres, below, above, w, it->limit,
                            near_group);
        long stride = (near + LANES - 1) / LANES * LANES;
        for (long k = 0; k < w; k++)
            for (long j = 0; j < stride; j++)
                columns_near[k * stride + j]
                    = it->columns[k * it->stride + near_group[j < near ? j : 0]];
        for (long cell = group; near && cell < group + boxes; cell++) {
            long found = nearest(columns_near, stride, near, it->lower + cell * w,
                                 it->upper + cell * w, w, it->limit, kept);
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
        return add_sums_of_cells(vectors, columns, it, beta, u, room);                           \
    }

FOR_EACH_WIDTH(FOR_CELLS, add_cells)

/* See add_rbf_sums for `widest`. */
static long add_cells(int columns, const cells *it, const float *beta, double *u, float *room,
                      int widest)
{
    return BEST_WIDTH(add_cells, widest)(columns, it, beta, u, room);
}
