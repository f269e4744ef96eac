/* Sums of RBF values over rows in cells, for one type of numbers and one width of vectors; _loops.h
   includes this file. The sums of a cell leave out the centres that are too far from all of
   its rows.

   Rows are sorted by a k-d split: neighbours in the order are neighbours in space. CELL consecutive
   rows form a cell, and CELL_GROUP cells a group; each has a bounding box. Rows are augmented or not as
   in _rbf.h. They are stored in panels of 32 rows that hold the 32 values of each feature side by
   side. So the rows of a cell share each loaded centre, and centres need not be copied.

   Of rows in one cell most one-hot features are the same: 42 of covtype's 54 features, 28 in a group.
   What these add to distances and exponents is computed once for each centre, not for each row; on
   covtype with gamma 32 this takes .55 of the time. */

/* ---- the order ---------------------------------------------------------------------------- */

/* Move the `left` smallest of n keys and their places to the front (Hoare's selection). */
static void NAMED(select_smallest)(NUMBER *keys, place *places, long n, long left)
{
    long low = 0, high = n - 1;
    while (low < high) {
        NUMBER pivot = keys[low + (high - low) / 2];
        long i = low, j = high;
        while (i <= j) {
            while (keys[i] < pivot)
                i++;
            while (pivot < keys[j])
                j--;
            if (i <= j) {
                NUMBER key = keys[i];
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
static void NAMED(sort_cells)(const NUMBER *x, long stride, long w, place *places, long n,
                              NUMBER *sums, NUMBER *keys)
{
    while (n > CELL) {
        const NUMBER *first = x + places[0] * stride;
        NUMBER *squares = sums + w, most = 0;
        long widest = 0, below = 0;
        for (long k = 0; k < 2 * w; k++)
            sums[k] = 0;
        for (long i = 0; i < n; i++) {
            const NUMBER *row = x + places[i] * stride;
            for (long k = 0; k < w; k++) {
                /* Differences from the first row avoid cancellation in the variance. */
                NUMBER value = row[k] - first[k];
                sums[k] += value;
                squares[k] += value * value;
            }
        }
        for (long k = 0; k < w; k++) {
            NUMBER variance = squares[k] - sums[k] / n * sums[k];
            if (variance > most)
                most = variance, widest = k;
        }
        NUMBER mean = first[widest] + sums[widest] / n;
        for (long i = 0; i < n; i++) {
            keys[i] = x[places[i] * stride + widest];
            below += keys[i] < mean;
        }
        long cells = (n + CELL - 1) / CELL, eighth = (cells + 7) / 8;
        long half = (below + CELL / 2) / CELL;
        half = half < eighth ? eighth : half > cells - eighth ? cells - eighth : half;
        NAMED(select_smallest)(keys, places, n, half * CELL);
        NAMED(sort_cells)(x, stride, w, places, half * CELL, sums, keys);
        places += half * CELL;
        n -= half * CELL;
    }
}

/* ---- the sums ----------------------------------------------------------------------------- */

/* Add what some features add to 4 times the squared distances of centres from a box.

   z : (w, stride), `count` centres; stride is a multiple of LANES. far : (stride,). */
INLINED void NAMED(add_distances)(const NUMBER *z, long stride, long count, const NUMBER *lower,
                                  const NUMBER *upper, const int32_t *features, long found,
                                  NUMBER *far)
{
    const BITS magnitude = ~((BITS)1 << (8 * sizeof(BITS) - 1));
    for (long at = 0; at < count; at += WIDTH) {
        REALS distance = *(REALS *)(far + at);
        for (long n = 0; n < found; n++) {
            long k = features[n];
            REALS value = *(const REALS *)(z + k * stride + at);
            REALS under = lower[k] - value, over = value - upper[k];
            /* Twice the distance of the value from the box in this feature. */
            REALS out = (REALS)((ALL_BITS)under & magnitude) + under
                        + ((REALS)((ALL_BITS)over & magnitude) + over);
            distance += out * out;
        }
        *(REALS *)(far + at) = distance;
    }
}

/* The same for features that have the value of x in the whole box. Add what they add to the
   exponents of all rows in the box, before EXPONENT, to shares : (stride,). */
INLINED void NAMED(add_shares)(const NUMBER *z, long stride, long count, const NUMBER *x,
                               double rate, const int32_t *features, long found, NUMBER *far,
                               NUMBER *shares)
{
    for (long at = 0; at < count; at += WIDTH) {
        REALS distance = *(REALS *)(far + at), sum = {0};
        for (long n = 0; n < found; n++) {
            long k = features[n];
            REALS value = *(const REALS *)(z + k * stride + at), out = 2 * (x[k] - value);
            distance += out * out;
            ADD_TERM(sum, x[k], value);
        }
        *(REALS *)(far + at) = distance;
        *(REALS *)(shares + at) += SCALED(sum, rate);
    }
}

/* Write to `kept` the numbers of the centres whose squared distance from a box is below `limit`;
   return how many there are. Centres with nan are kept. */
INLINED long NAMED(nearest)(const NUMBER *far, long count, NUMBER limit, int32_t *kept)
{
    long found = 0;
    for (long j = 0; j < count; j++) {
        kept[found] = j;
        found += !(far[j] >= 4 * limit);
    }
    return found;
}

/* Divide some features into those with one value in a box and others; return the number of these. */
INLINED long NAMED(divide)(const NUMBER *lower, const NUMBER *upper, const int32_t *features,
                           long count, int32_t *same, int32_t *differs)
{
    long others = 0;
    for (long n = 0; n < count; n++) {
        same[n - others] = features[n];
        differs[others] = features[n];
        others += !(lower[features[n]] == upper[features[n]]);
    }
    return others;
}

/* Compute the bounding box of the rows of some panels, (count, d, PANEL), by their first w values. */
INLINED void NAMED(surround)(const NUMBER *panels, long count, long d, long w, NUMBER *lower,
                             NUMBER *upper)
{
    for (long k = 0; k < w; k++) {
        REALS least = *(const REALS *)(panels + k * PANEL), most = least;
        for (long at = 0; at < count * PANEL; at += WIDTH) {
            REALS x = *(const REALS *)(panels + (at / PANEL * d + k) * PANEL + at % PANEL);
            ALL_BITS below = x < least, above = x > most;
            least = (REALS)(((ALL_BITS)x & below) | ((ALL_BITS)least & ~below));
            most = (REALS)(((ALL_BITS)x & above) | ((ALL_BITS)most & ~above));
        }
        lower[k] = least[0], upper[k] = most[0];
        for (int lane = 1; lane < WIDTH; lane++) {
            lower[k] = least[lane] < lower[k] ? least[lane] : lower[k];
            upper[k] = most[lane] > upper[k] ? most[lane] : upper[k];
        }
    }
}

/* Add the sums of a panel of rows over some centres to u.

   x : (d, PANEL); z : (centres, d); beta : (centres, columns); differs : (found,), the features that
   are not in `shares`; kept : (count,), the numbers of the centres to use; shares : (count,);
   places : (rows,), the row of u for each row of the panel. */
INLINED void NAMED(add_panel)(const int vectors, const int columns, const NUMBER *x, long d,
                              const NUMBER *z, double rate, const NUMBER *beta,
                              const int32_t *differs, long found, const int32_t *kept,
                              const NUMBER *shares, long count, const place *places, long rows,
                              double *u)
{
    const int wide = vectors * PARTS;
    for (int first = 0; first < PANEL / WIDTH; first += wide)
        for (long from = 0; from < count; from += ADDITIONS) {
            REALS sums[COLUMNS][2 * PARTS];
            for (int c = 0; c < columns; c++)
                for (int v = 0; v < wide; v++)
                    sums[c][v] = (REALS){0};
            long to = from + ADDITIONS < count ? from + ADDITIONS : count;
            for (long at = from; at < to; at += TILE) {
                const NUMBER *centres[TILE], *row = x + first * WIDTH;
                REALS values[TILE][2 * PARTS];
                for (int s = 0; s < TILE; s++) {
                    long one = at + s < to ? at + s : at;
                    centres[s] = z + kept[one] * d;
                    for (int v = 0; v < wide; v++)
                        values[s][v] = (REALS){0} + shares[one];
                }
                for (long n = 0; n < found; n++) {
                    long k = differs[n];
                    for (int v = 0; v < wide; v++)
                        for (int s = 0; s < TILE; s++)
                            ADD_TERM(values[s][v], centres[s][k],
                                     *(const REALS *)(row + k * PANEL + v * WIDTH));
                }
                for (int s = 0; s < TILE; s++)
                    for (int v = 0; v < wide; v++)
                        values[s][v] = NAMED(exp2)(EXPONENT(values[s][v], rate));
                for (int s = 0; s < TILE && at + s < to; s++)
                    for (int c = 0; c < columns; c++)
                        for (int v = 0; v < wide; v++)
                            sums[c][v] += beta[kept[at + s] * columns + c] * values[s][v];
            }
            for (int v = 0; v < wide; v++)
                for (int lane = 0; lane < WIDTH; lane++) {
                    long row = (first + v) * WIDTH + lane;
                    for (int c = 0; row < rows && c < columns; c++)
                        u[places[row] * columns + c] += sums[c][v][lane];
                }
        }
}

/* Add the sums to u; return the number of kernel values in the sums.

   beta : (centres, columns); u : (m, columns); room : (w, MOST + 2 CELL_GROUP + 2), and `features`
   : (4, d), work space. */
INLINED long NAMED(add_sums_of_cells)(const int vectors, const int columns, const cells *it,
                                      const NUMBER *beta, double *u, NUMBER *room,
                                      int32_t *features)
{
    const NUMBER *panels = it->panels, *z = it->z, *columns_of_z = it->columns;
    const NUMBER limit = it->limit;
    const double rate = it->rate;
    int32_t near_group[MOST], kept[MOST + TILE];
    /* Of the centres near a group, and of those near a cell. */
    NUMBER far_group[MOST], shares_group[MOST], far[MOST], shares[MOST + TILE];
    long w = it->w, d = it->d, count = (it->m + CELL - 1) / CELL, values = 0;
    NUMBER *below = room, *above = room + w, *columns_near = room + 2 * w;
    NUMBER *lower = columns_near + w * MOST, *upper = lower + w * CELL_GROUP;
    int32_t *all = features, *same = all + d, *differs_group = same + d, *differs = differs_group + d;
    for (long k = 0; k < w; k++)
        all[k] = k;
    for (long group = 0; group < count; group += CELL_GROUP) {
        long boxes = group + CELL_GROUP < count ? CELL_GROUP : count - group;
        for (long box = 0; box < boxes; box++) {
            long at = (group + box) * CELL, rows = it->m - at < CELL ? it->m - at : CELL;
            NUMBER *l = lower + box * w, *h = upper + box * w;
            NAMED(surround)(panels + at * d, (rows + PANEL - 1) / PANEL, d, w, l, h);
            for (long k = 0; k < w; k++) {
                below[k] = box && below[k] < l[k] ? below[k] : l[k];
                above[k] = box && above[k] > h[k] ? above[k] : h[k];
            }
        }
        long some = NAMED(divide)(below, above, all, w, same, differs_group);
        for (long j = 0; j < MOST; j++)
            far_group[j] = shares_group[j] = 0;
        NAMED(add_shares)(columns_of_z, it->stride, it->centres, below, rate, same, w - some,
                          far_group, shares_group);
        for (long j = 0; j < it->stride; j++)
            far[j] = far_group[j];
        NAMED(add_distances)(columns_of_z, it->stride, it->centres, below, above, differs_group,
                             some, far);
        long near = NAMED(nearest)(far, it->centres, limit, near_group);
        long stride = (near + LANES - 1) / LANES * LANES;
        for (long n = 0; n < some; n++) {
            const NUMBER *from = columns_of_z + differs_group[n] * it->stride;
            NUMBER *to = columns_near + differs_group[n] * stride;
            for (long j = 0; j < stride; j++)
                to[j] = from[near_group[j < near ? j : 0]];
        }
        for (long j = 0; j < near; j++) {
            far_group[j] = far_group[near_group[j]];
            shares_group[j] = shares_group[near_group[j]];
        }
        for (long cell = group; near && cell < group + boxes; cell++) {
            const NUMBER *l = lower + (cell - group) * w, *h = upper + (cell - group) * w;
            long others = NAMED(divide)(l, h, differs_group, some, same, differs);
            for (long j = 0; j < stride; j++)
                far[j] = far_group[j], shares[j] = shares_group[j];
            NAMED(add_shares)(columns_near, stride, near, l, rate, same, some - others, far,
                              shares);
            NAMED(add_distances)(columns_near, stride, near, l, h, differs, others, far);
            long found = NAMED(nearest)(far, near, limit, kept);
            for (long j = 0; j < found; j++) {
                shares[j] = shares[kept[j]];
                kept[j] = near_group[kept[j]];
            }
            /* The columns of augmented rows differ, and are added last. */
            for (long k = w; k < d; k++)
                differs[others++] = k;
            for (long at = cell * CELL; at < it->m && at < (cell + 1) * CELL; at += PANEL) {
                long rows = at + PANEL < it->m ? PANEL : it->m - at;
                NAMED(add_panel)(vectors, columns, panels + at * d, d, z, rate, beta, differs,
                                 others, kept, shares, found, it->places + at, rows, u);
                values += rows * found;
            }
        }
    }
    return values;
}
