/* Compute RBF values of rows and centres, and either store them or add them up times beta, float32
   or float64. Values that are added up stay in registers.

   Centres are in panels of 32: panel p holds the features of centres 32 p ... 32 p + 31 in d rows
   of 32 values. The order of additions to a sum depends on the centres only. The code needs the
   vector types of GCC and Clang. */

#pragma once

#include <stdint.h>

#pragma GCC diagnostic ignored "-Wpsabi" /* vectors are passed to inlined functions only */

/* A sum of float32 values is that of LANES partial sums, whatever the width of vectors is; one of
   float64 values that of HALF. */
#define LANES 16
#define HALF (LANES / 2)
#define PANEL 32
/* The number of rows that share each load of a centre. Their exponents fill half of the registers. */
#define TILE 4
/* The largest number of sums over the same kernel values in one call. */
#define COLUMNS 8
/* The numbers of panels whose values are added up before they are added to a sum, so that a value
   goes through fewer additions: to a sum in a register for dense rows, in float64 for sparse ones. */
#define DENSE_GROUP 8
#define SPARSE_GROUP 32
/* The number of sums, over rows and columns, that stay in the cache until all panels are done. */
#define PENDING_SUMS 256
/* The number of sparse rows whose values are stored while some panels are in the cache. */
#define STORED_ROWS 128

#define INLINED static inline __attribute__((always_inline, unused))

/* Rows, centres and results of the loops; pointers to void are to numbers of the loop's type.

   Exponents are powers of 2. Dense rows of float32 are augmented (see Layout.lay_out), so that
   <x, z> = -rate |x - z|^2. Sparse rows have augmented centres, whose last row of a panel is
   right_j: the exponent is <x_i, z_j> + right_j + left_i. */
typedef struct {
    const int *starts, *features; /* of sparse rows in CSR: starts : (m + 1,); NULL: dense rows */
    const void *x, *left;         /* dense: (m, d); sparse: the values, and (m,) */
    long m;
    double rate; /* of dense float64 rows: K(x, z) = 2^(-rate |x - z|^2) */
    const void *panels; /* (count, d, PANEL), or (count, d + 1, PANEL) for sparse rows */
    long count, d;
    int columns;      /* of sums, at most COLUMNS; 0: the values are stored */
    const void *beta; /* (columns, count PANEL), 0 where there is no centre */
    double *u;        /* (m, columns): u_ic += sum_j beta_cj K_ij */
    void *K;          /* (m, centres) with rows of `stride` numbers: K_ij */
    long centres, stride;
} rbf_work;

/* Measured on covtype in chunks of 8,192 rows (gamma 32): cells of 64 rows keep 10% of the values,
   of 32 rows 8%, of 128 rows 15%. In chunks of 65,536 rows, cells of 64 rows would keep 7%. */
#define CELL 64
#define CELL_GROUP 16
/* The largest number of centres in a call. */
#define MOST 1024
/* The number of additions after which a sum is added to the float64 sum of its row. */
#define ADDITIONS 128

typedef uint16_t place;

/* Rows in the layout of Cells (layouts.py), and centres; pointers to void are to numbers of the
   type. */
typedef struct {
    long m, d, w;         /* numbers of rows, of values of a row in a panel, of features */
    const void *panels;   /* (m / PANEL rounded up, d, PANEL) */
    const place *places;  /* (m,), the row of u for each row */
    long centres, stride; /* centres is at most MOST */
    const void *z;        /* (centres, d) */
    const void *columns;  /* (w, stride), the features of centres; stride a multiple of LANES */
    double limit;         /* squared distance from which centres are left out */
    double rate;
} cells;

/* The loops for vectors of 64 bytes (AVX-512), 32 (AVX2) and 16. */
#ifdef __x86_64__
#define DOUBLE 0
#define BYTES 64
#define NAMED(name) name##_32_512
#include "_loops.h"
#define DOUBLE 1
#define BYTES 64
#define NAMED(name) name##_64_512
#include "_loops.h"
#define DOUBLE 0
#define BYTES 32
#define NAMED(name) name##_32_256
#include "_loops.h"
#define DOUBLE 1
#define BYTES 32
#define NAMED(name) name##_64_256
#include "_loops.h"
#endif
#define DOUBLE 0
#define BYTES 16
#define NAMED(name) name##_32_128
#include "_loops.h"
#define DOUBLE 1
#define BYTES 16
#define NAMED(name) name##_64_128
#include "_loops.h"

/* Each loop is compiled once for each width of vectors. `define`(name, bits, vectors, target) is a
   macro that defines the function for one width. GCC's target_clones would not do: they choose by
   the processor only and ignore `widest`. Vectors wider than those of the processor would not do
   either: GCC keeps them in memory, and compares their lanes one by one. */
#ifdef __x86_64__
#define FOR_EACH_WIDTH(define, name)                                                            \
    define(name##_anywhere, 128, 1, )                                                           \
    define(name##_avx2, 256, 1, __attribute__((target("avx2,fma"))))                            \
    define(name##_avx512, 512, 2, __attribute__((target("avx512f"))))
/* The function for the widest vectors, in bits, that the processor has and `widest` allows: 512
   (AVX-512), 256 (AVX2) or fewer. */
#define BEST_WIDTH(name, widest)                                                                \
    ((widest) >= 512 && __builtin_cpu_supports("avx512f") ? name##_avx512                       \
     : (widest) >= 256 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")       \
         ? name##_avx2                                                                          \
         : name##_anywhere)
#else
#define FOR_EACH_WIDTH(define, name) define(name##_anywhere, 128, 1, )
#define BEST_WIDTH(name, widest) ((void)(widest), name##_anywhere)
#endif

/* Stored values, one sum, and two, a sum and that of its sizes, are compiled separately: sums then
   stay in registers, too. */
#define FOR_COLUMNS(loop, name, vectors, target)                                                \
    target static void name(const rbf_work *it)                                                 \
    {                                                                                           \
        if (it->columns == 0)                                                                   \
            loop(vectors, 0, it);                                                               \
        else if (it->columns == 1)                                                              \
            loop(vectors, 1, it);                                                               \
        else if (it->columns == 2)                                                              \
            loop(vectors, 2, it);                                                               \
        else                                                                                    \
            loop(vectors, it->columns, it);                                                     \
    }
#define DENSE_32(name, bits, vectors, target)                                             \
    FOR_COLUMNS(dense_loop_32_##bits, name, vectors, target)
#define DENSE_64(name, bits, vectors, target)                                             \
    FOR_COLUMNS(dense_loop_64_##bits, name, vectors, target)
#define SPARSE_32(name, bits, vectors, target)                                             \
    FOR_COLUMNS(sparse_loop_32_##bits, name, vectors, target)
#define SPARSE_64(name, bits, vectors, target)                                             \
    FOR_COLUMNS(sparse_loop_64_##bits, name, vectors, target)

FOR_EACH_WIDTH(DENSE_32, dense_32)
FOR_EACH_WIDTH(DENSE_64, dense_64)
FOR_EACH_WIDTH(SPARSE_32, sparse_32)
FOR_EACH_WIDTH(SPARSE_64, sparse_64)

/* Run a loop. is_double: whether its numbers are float64; widest: see BEST_WIDTH. */
static void run_rbf(const rbf_work *it, int is_double, int widest)
{
    if (it->starts)
        (is_double ? BEST_WIDTH(sparse_64, widest) : BEST_WIDTH(sparse_32, widest))(it);
    else
        (is_double ? BEST_WIDTH(dense_64, widest) : BEST_WIDTH(dense_32, widest))(it);
}

#define FOR_CELLS(add, name, vectors, target)                                                   \
    target static long name(const cells *it, int columns, const void *beta, double *u,          \
                            void *room, int32_t *features)                                      \
    {                                                                                           \
        if (columns == 1)                                                                       \
            return add(vectors, 1, it, beta, u, room, features);                                \
        if (columns == 2)                                                                       \
            return add(vectors, 2, it, beta, u, room, features);                                \
        return add(vectors, columns, it, beta, u, room, features);                              \
    }
#define CELLS_32(name, bits, vectors, target)                                                   \
    FOR_CELLS(add_sums_of_cells_32_##bits, name, vectors, target)
#define CELLS_64(name, bits, vectors, target)                                                   \
    FOR_CELLS(add_sums_of_cells_64_##bits, name, vectors, target)
#define EXP2_32(name, bits, vectors, target)                                                    \
    target static void name(void *x, long count) { all_exp2_32_##bits(x, count); }
#define EXP2_64(name, bits, vectors, target)                                                    \
    target static void name(void *x, long count) { all_exp2_64_##bits(x, count); }

FOR_EACH_WIDTH(CELLS_32, cells_32)
FOR_EACH_WIDTH(CELLS_64, cells_64)
FOR_EACH_WIDTH(EXP2_32, exp2_32)
FOR_EACH_WIDTH(EXP2_64, exp2_64)

/* Add the sums of rows in cells to u; see add_sums_of_cells, and run_rbf for the last two. */
static long run_cells(const cells *it, int columns, const void *beta, double *u, void *room,
                      int32_t *features, int is_double, int widest)
{
    return (is_double ? BEST_WIDTH(cells_64, widest)
                      : BEST_WIDTH(cells_32, widest))(it, columns, beta, u, room, features);
}

/* See sort_cells. */
static void run_sort(const void *x, long stride, long w, place *places, long n, void *room,
                     int is_double)
{
    if (is_double)
        sort_cells_64_128(x, stride, w, places, n, room, (double *)room + 2 * w);
    else
        sort_cells_32_128(x, stride, w, places, n, room, (float *)room + 2 * w);
}

/* Replace each x by 2^x, or by 1 where rounding has made x positive. */
static void run_exp2(void *x, long count, int is_double, int widest)
{
    (is_double ? BEST_WIDTH(exp2_64, widest) : BEST_WIDTH(exp2_32, widest))(x,
                                                                                            count);
}
