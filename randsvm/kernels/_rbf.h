/* Compute RBF values of rows and centres, and either store them or add them up times beta, float32
   or float64. Values that are added up stay in registers.

   Centres are in panels of 32: panel p holds the features of centres 32 p ... 32 p + 31 in d rows
   of 32 values. The order of additions to a sum depends on the centres only. The code needs the
   vector types of GCC and Clang. */

#pragma once

#include <stdint.h>

#pragma GCC diagnostic ignored "-Wpsabi" /* vectors are passed to inlined functions only */

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
/* The number of panels that a sparse row uses at once. Its features are read once for all of them,
   and the independent sums hide the latency of additions. */
#define PANELS_AT_ONCE 2
/* The number of sums, over rows and columns, that stay in the cache until all panels are done. */
#define PENDING_SUMS 256
/* The number of sparse rows whose values are stored while some panels are in the cache. */
#define STORED_ROWS 128

typedef float reals __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t wholes __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef double doubles __attribute__((vector_size(8 * HALF), aligned(8), may_alias));
typedef int64_t integers __attribute__((vector_size(8 * HALF), aligned(8), may_alias));

#define INLINED static inline __attribute__((always_inline))

/* Return e^x for x <= 0, within 2 units in the last place. Below -86 the result is 0. Values above
   0, which rounding may cause, count as 0. nan stays nan.

   e^x = 2^n e^r, where n is x / ln 2 rounded and |r| <= ln 2 / 2. Adding 1.5 2^23 rounds, and leaves
   n in the last bits. The two parts of ln 2 and the polynomial are those of Cephes' expf. */
INLINED reals exponential(reals x)
{
    x = (reals)((wholes)x & ~(x >= 0.0f));
    wholes kept = ~(x <= -86.0f);
    reals shifted = x * 1.44269504f + 12582912.0f, n = shifted - 12582912.0f;
    reals r = x - n * 0.693359375f + n * 2.12194440e-4f;
    reals p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    return (reals)(((wholes)p + ((wholes)shifted << 23)) & kept);
}

/* Return e^x for x <= 0, within 2 units in the last place. Below -708, near the smallest float64,
   the result is 0.

   The method is that of `exponential`, with Taylor's polynomial; its error is below 2^-57. */
INLINED doubles exponential64(doubles x)
{
    integers kept = ~(x < -708.0);
    doubles shifted = x * 1.4426950408889634 + 6755399441055744.0;
    doubles n = shifted - 6755399441055744.0;
    doubles r = x - n * 6.93145751953125e-1 - n * 1.42860682030941723212e-6;
    doubles p = r * (1.0 / 6227020800) + 1.0 / 479001600;
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
    return (doubles)(((integers)p + ((integers)shifted << 52)) & kept);
}

/* Rows, centres and results of the loops; pointers to void are to numbers of the loop's type.

   Dense rows of float32 are augmented (see Layout.lay_out), so that
   <x, z> = -gamma |x - z|^2. Sparse rows have augmented centres, whose last row of a panel is
   right_j: the exponent is <x_i, z_j> + right_j + left_i. */
typedef struct {
    const int *starts, *features; /* of sparse rows in CSR: starts : (m + 1,); NULL: dense rows */
    const void *x, *left;         /* dense: (m, d); sparse: the values, and (m,) */
    long m;
    double gamma; /* of dense float64 rows */
    const void *panels; /* (count, d, PANEL), or (count, d + 1, PANEL) for sparse rows */
    long count, d;
    int columns;      /* of sums, at most COLUMNS; 0: the values are stored */
    const void *beta; /* (columns, count PANEL), 0 where there is no centre */
    double *u;        /* (m, columns): u_ic += sum_j beta_cj K_ij */
    void *K;          /* (m, centres) with rows of `stride` numbers: K_ij */
    long centres, stride;
} rbf_work;

#define NUMBER float
#define REALS reals
#define WIDTH LANES
#define EXPONENTIAL exponential
/* The exponent of a pair of dense rows is a sum of products. */
#define ADD_TERM(sum, x, z) sum += (x) * (z)
#define EXPONENT(sum, gamma) (sum)
#define NAMED(name) name##_32
#include "_loops.h"

#define NUMBER double
#define REALS doubles
#define WIDTH HALF
#define EXPONENTIAL exponential64
/* Sums of squared differences: rows that are far from 0 and near each other lose no digits, and
   K(x, x) = 1 exactly. */
#define ADD_TERM(sum, x, z)                                                                     \
    do {                                                                                        \
        REALS difference = (x) - (z);                                                           \
        sum += difference * difference;                                                         \
    } while (0)
#define EXPONENT(sum, gamma) ((sum) * -(gamma))
#define NAMED(name) name##_64
#include "_loops.h"

/* Each loop is compiled once for each width of vectors. `define`(name, vectors, target) is a macro
   that defines the function for one width. GCC's target_clones would not do: they choose by the
   processor only and ignore `widest`. */
#ifdef __x86_64__
#define FOR_EACH_WIDTH(define, name)                                                            \
    define(name##_anywhere, 1, )                                                                \
    define(name##_avx2, 1, __attribute__((target("avx2,fma"))))                                 \
    define(name##_avx512, 2, __attribute__((target("avx512f"))))
/* The function for the widest vectors, in bits, that the processor has and `widest` allows: 512
   (AVX-512), 256 (AVX2) or fewer. */
#define BEST_WIDTH(name, widest)                                                                \
    ((widest) >= 512 && __builtin_cpu_supports("avx512f") ? name##_avx512                       \
     : (widest) >= 256 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")       \
         ? name##_avx2                                                                          \
         : name##_anywhere)
#else
#define FOR_EACH_WIDTH(define, name) define(name##_anywhere, 1, )
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
#define DENSE_32(name, vectors, target) FOR_COLUMNS(dense_loop_32, name, vectors, target)
#define DENSE_64(name, vectors, target) FOR_COLUMNS(dense_loop_64, name, vectors, target)
#define SPARSE_32(name, vectors, target) FOR_COLUMNS(sparse_loop_32, name, vectors, target)
#define SPARSE_64(name, vectors, target) FOR_COLUMNS(sparse_loop_64, name, vectors, target)

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
