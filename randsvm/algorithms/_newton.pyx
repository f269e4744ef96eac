# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True
"""Sums over rows for Newton's method on a linear machine; newton.py has the formulas."""

from libc.math cimport exp, fabs, log1p
from libc.stdint cimport int64_t

ctypedef fused number:
    float
    double

# The least curvature of a weight: as a part of that without b, and altogether.
cdef double FLAT = 1e-12, SMALLEST = 1e-100


cdef inline double product(
    const int64_t[::1] starts, const int[::1] columns, const number[::1] values,
    const double[::1] w, Py_ssize_t i,
) noexcept nogil:
    """Return <w, x> of row i. columns is empty if every row has every column."""
    cdef double found = 0
    cdef Py_ssize_t j, begin = starts[i]
    if columns.shape[0] == 0:
        for j in range(starts[i + 1] - begin):
            found += w[j] * values[begin + j]
    else:
        for j in range(begin, starts[i + 1]):
            found += w[columns[j]] * values[j]
    return found


cdef inline void add_row(
    const int64_t[::1] starts, const int[::1] columns, const number[::1] values, Py_ssize_t i,
    double factor, double *sums, Py_ssize_t step,
) noexcept nogil:
    """Add factor x of row i to the sums, of which those of two columns are `step` apart."""
    cdef Py_ssize_t j, begin = starts[i]
    if columns.shape[0] == 0:
        for j in range(starts[i + 1] - begin):
            sums[step * j] += factor * values[begin + j]
    else:
        for j in range(begin, starts[i + 1]):
            sums[step * columns[j]] += factor * values[j]


def add_sums(
    const int64_t[::1] starts, const int[::1] columns, const number[::1] values,
    const double[::1] w, double b, const double[::1] y, const double[::1] C,
    const double[::1] most, const double[::1] beta0, bint is_regression, bint is_squared,
    bint is_log, double epsilon, double width, bint given, double[::1] beta, double[::1] second,
    double[:, ::1] sums,
):
    """Add the sums of some rows to `sums`, (5 + d, 2), and set their beta and second derivatives.

    columns is empty if every row has every column. given: whether beta stays.
    """
    cdef Py_ssize_t i, side
    cdef double r, up, down, loss, sigma, moved, bound, found, size, proximal, z, share
    with nogil:
        for i in range(y.shape[0]):
            r = y[i] - b - product(starts, columns, values, w, i)
            if is_log:
                z = 1 - y[i] * r
                share = exp(-fabs(z))
                loss = log1p(share) + (-z if z < 0 else 0)
                share = share / (1 + share) if z > 0 else 1 / (1 + share)
                beta[i] = found = C[i] * share * y[i]
                second[i] = C[i] * share * (1 - share)
                sums[0, 0] += C[i] * loss
                sums[0, 1] += C[i] * loss
                proximal = 0
            else:
                # The loss has these slopes, times C, beyond epsilon and below -epsilon.
                up, down = is_regression or y[i] > 0, is_regression or y[i] < 0
                loss = up * (r - epsilon) if r > epsilon else -down * (r + epsilon) if r < -epsilon else 0
                sigma = 2 * C[i] if is_squared else C[i] / width
                moved = beta0[i] + sigma * r
                bound = sigma * epsilon
                moved = moved - bound if moved > bound else moved + bound if moved < -bound else 0
                found = up * most[i] if moved > up * most[i] else moved
                found = -down * most[i] if found < -down * most[i] else found
                if given:
                    found = beta[i]
                beta[i] = found
                second[i] = sigma if found == moved and found != 0 else 0
                # The square of a coefficient may underflow where C is small.
                proximal = (found - beta0[i]) * ((found - beta0[i]) / (2 * sigma))
                sums[0, 0] += C[i] * (loss * loss if is_squared else loss)
                sums[0, 1] += found * r - epsilon * fabs(found) - proximal
            sums[1, 0] += 0 if is_squared else proximal
            sums[1, 1] += second[i]
            if found == 0:
                continue
            side, size = 0 if found > 0 else 1, fabs(found)
            sums[2, side] += size
            sums[3, side] += y[i] * found - epsilon * size
            if is_squared:
                # No underflow where C is small. Where it is large, an overflow makes D -inf, which
                # would be lost in the rounding of w.
                sigma = 4 * C[i]
                sums[4, side] += found * (found / sigma) if C[i] < 1 else found * found / sigma
            add_row(starts, columns, values, i, found, &sums[5, side], 2)


def add_curvature(
    const int64_t[::1] starts, const int[::1] columns, const number[::1] values,
    const double[::1] second, double[:, ::1] H,
):
    """Add the sum of second x x^T, with x = (row, 1), to the upper triangle of H."""
    cdef Py_ssize_t i, j, k, row, begin, end, d = H.shape[0] - 1
    cdef bint dense = columns.shape[0] == 0
    cdef double x
    with nogil:
        for i in range(second.shape[0]):
            if second[i] == 0:
                continue
            begin, end = starts[i], starts[i + 1]
            for j in range(begin, end):
                x, row = second[i] * values[j], j - begin if dense else columns[j]
                if dense:
                    for k in range(row, d):
                        H[row, k] += x * values[begin + k]
                else:
                    for k in range(j, end):
                        H[row, columns[k]] += x * values[k]
                H[row, d] += x
            H[d, d] += second[i]


def add_products(
    const int64_t[::1] starts, const int[::1] columns, const number[::1] values,
    const double[::1] p, const double[::1] second, double[::1] sums,
):
    """Add the sum of second x <x, p>, with x = (row, 1), to `sums`. p, sums : (d + 1,)"""
    cdef Py_ssize_t i, d = p.shape[0] - 1
    cdef double q
    with nogil:
        for i in range(second.shape[0]):
            if second[i] == 0:
                continue
            q = second[i] * (p[d] + product(starts, columns, values, p, i))
            sums[d] += q
            add_row(starts, columns, values, i, q, &sums[0], 1)


cdef inline double lowest(double w, double G, double H) noexcept nogil:
    """Return the minimum of |v| + G (v - w) + H (v - w)^2 / 2 over v."""
    cdef double t = w * H - G
    return (t - 1) / H if t > 1 else (t + 1) / H if t < -1 else 0


def descend(
    const int64_t[::1] starts, const int[::1] rows, const number[::1] values,
    const double[::1] second, const double[::1] gradient, const double[::1] u, double total,
    double[:, ::1] curvature, int[::1] order, double[::1] moved, double[::1] step,
):
    """Move each weight of `order` to the minimum of the model of P in which all others stay and b
    is the best one; return how many were or are not 0, and the sum of H change^2, with the
    curvature H of each: at most twice the decrease.

    starts, rows, values: of the columns. gradient, u : (d + 1,), of the losses, and w and b, before
    the step. total: the sum of `second`; 0: b is 0. curvature : (2, d), sums of second x and of
    second x^2 over each column, which are computed where the latter is below 0. moved : (n,),
    second <x, step> of each row but for b. order: in the end, weights that stayed 0 come last.
    """
    cdef Py_ssize_t i, k, last = order.shape[0], at = 0, d = u.shape[0] - 1
    cdef int j
    cdef double G, H, now, new, delta, mean, found = 0
    with nogil:
        while at < last:
            j = order[at]
            if curvature[1, j] < 0:
                curvature[0, j], curvature[1, j] = 0, 0
                for k in range(starts[j], starts[j + 1]):
                    delta = values[k] * second[rows[k]]
                    curvature[0, j] += delta
                    curvature[1, j] += delta * values[k]
            mean = curvature[0, j] / total if total > 0 else 0
            G = gradient[j] + step[d] * curvature[0, j]
            for k in range(starts[j], starts[j + 1]):
                G += values[k] * moved[rows[k]]
            H = curvature[1, j] - mean * curvature[0, j]
            H = H if H > FLAT * curvature[1, j] else FLAT * curvature[1, j]
            H = H if H > SMALLEST else SMALLEST
            now = u[j] + step[j]
            new = lowest(now, G, H)
            delta = new - now
            if new == 0 and delta == 0:
                last -= 1
                order[at], order[last] = order[last], j
                continue
            at += 1
            if delta == 0:
                continue
            found += H * delta * delta
            step[j] += delta
            step[d] -= mean * delta
            for k in range(starts[j], starts[j + 1]):
                i = rows[k]
                moved[i] += delta * second[i] * values[k]
    return last, found


def descend_few(
    const double[:, ::1] H, double[::1] G, double[::1] w, int passes, double enough,
):
    """Move each weight to the minimum while all others stay, in at most so many passes, until the
    sum of H change^2 over a pass is at most `enough`; return this sum.

    H, G: the second and first derivatives without |w|_1; their last row is not used
    """
    cdef Py_ssize_t j, k, d = w.shape[0]
    cdef int number
    cdef double h, new, delta, found = 0
    with nogil:
        for number in range(passes):
            found = 0
            for j in range(d):
                h = H[j, j] if H[j, j] > SMALLEST else SMALLEST
                new = lowest(w[j], G[j], h)
                delta = new - w[j]
                if delta == 0:
                    continue
                w[j] = new
                found += h * delta * delta
                for k in range(d):
                    G[k] += delta * H[j, k]
            if found <= enough:
                break
    return found
