# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True
"""Passes over the rows of a shard: `breakpoints` for b, the KKT check `violations`, and the
`residuals` of a certificate.

tests/support/kkt_scan_reference.py has the first two in plain Python.

y, u, beta, weights : (m,) float64, of the rows of one shard: labels, decision values without b,
coefficients within [lower, upper], and the factors of these bounds; weights may be None. The
formulas are in svm/tasks.py.
"""

from libc.math cimport INFINITY, fabs


cdef struct Box:
    # Bounds of |beta| where y > 0 and elsewhere; one_sided: beta has the sign of y.
    double positive
    double negative
    double epsilon
    bint one_sided


cdef inline double lower_of(const Box *box, double y) noexcept nogil:
    return 0.0 if box.one_sided and y > 0 else -box.negative


cdef inline double upper_of(const Box *box, double y) noexcept nogil:
    return 0.0 if box.one_sided and not y > 0 else box.positive


def breakpoints(
    const double[::1] y, const double[::1] u, const double[::1] weights,
    double positive, double negative, double epsilon, bint one_sided,
    double left, double right,
    double[::1] at, double[::1] jump,
):
    """Return slope, count, before, after.

    slope: the slope of P at b = left. count: the number of breakpoints of P within (left, right].
    before, after: the nearest breakpoints outside, infinite if there are none.
    at, jump : (2 m,) float64, output: the breakpoints, and the increase of the slope at each.
    """
    cdef Box box
    cdef Py_ssize_t i, count = 0
    cdef double slope = 0, lower, upper, z, below, above
    cdef double before = -INFINITY, after = INFINITY
    cdef bint weighted = weights is not None
    box.positive, box.negative, box.epsilon, box.one_sided = positive, negative, epsilon, one_sided
    with nogil:
        for i in range(y.shape[0]):
            lower, upper = lower_of(&box, y[i]), upper_of(&box, y[i])
            if weighted:
                lower, upper = lower * weights[i], upper * weights[i]
            z = y[i] - u[i]
            below, above = z - epsilon, z + epsilon
            if below > left:
                slope -= upper
                if below <= right and upper != 0:
                    at[count], jump[count] = below, upper
                    count += 1
            if above <= left:
                slope -= lower
            elif above <= right and lower != 0:
                at[count], jump[count] = above, -lower
                count += 1
            if upper != 0:
                if below <= left:
                    before = max(before, below)
                elif below > right:
                    after = min(after, below)
            if lower != 0:
                if above <= left:
                    before = max(before, above)
                elif above > right:
                    after = min(after, above)
    return slope, count, before, after


def violations(
    const double[::1] y, const double[::1] u, const double[::1] beta, const double[::1] weights,
    double positive, double negative, double epsilon, bint one_sided,
    double b, double tolerance,
    int[::1] rising, double[::1] rise, int[::1] falling, double[::1] fall,
):
    """Check the KKT conditions; return loss, norm, linear, risers, fallers.

    loss: the sum of the losses of the rows. norm: sum beta u. linear: sum y beta - epsilon
    sum |beta|. risers, fallers: the numbers of rows in `rising` and in `falling`.
    rising, falling : (m + 1,) int32, output: the row of the steepest rise (fall), followed by the
    violators; if the steepest row is a violator, it occurs twice. rise, fall : (m + 1,) float64,
    output: their slopes. A row whose beta is beyond its bounds belongs to the other group of a nu
    task: it adds to the sums and is no violator.
    """
    cdef Box box
    cdef Py_ssize_t i, risers = 1, fallers = 1
    cdef double loss = 0, norm = 0, linear = 0, lower, upper, z, below, above, up, down
    cdef bint weighted = weights is not None
    box.positive, box.negative, box.epsilon, box.one_sided = positive, negative, epsilon, one_sided
    with nogil:
        rise[0], fall[0], rising[0], falling[0] = -INFINITY, INFINITY, -1, -1
        for i in range(y.shape[0]):
            lower, upper = lower_of(&box, y[i]), upper_of(&box, y[i])
            if weighted:
                lower, upper = lower * weights[i], upper * weights[i]
            z = y[i] - u[i]
            below, above = z - epsilon, z + epsilon
            if below > b:
                loss += upper * (below - b)
            if above < b:
                loss += lower * (above - b)
            if beta[i] != 0:
                norm += beta[i] * u[i]
                linear += y[i] * beta[i] - epsilon * fabs(beta[i])
            if beta[i] < lower or beta[i] > upper:
                continue
            if beta[i] < upper:
                up = above if beta[i] < 0 else below
                if up > rise[0]:
                    rise[0], rising[0] = up, <int>i
                if up - b > tolerance:
                    rise[risers], rising[risers] = up, <int>i
                    risers += 1
            if beta[i] > lower:
                down = below if beta[i] > 0 else above
                if down < fall[0]:
                    fall[0], falling[0] = down, <int>i
                if b - down > tolerance:
                    fall[fallers], falling[fallers] = down, <int>i
                    fallers += 1
    return loss, norm, linear, risers, fallers


cdef inline double residual(
    double z, double width, double beta, double up, double down
) noexcept nogil:
    # loss(z) - beta (z - width) for beta >= 0. The loss is the largest of upper (z - width), 0 and
    # lower (z + width); up is upper - beta, and down is lower - beta.
    return max(max(up * (z - width), -beta * (z - width)), down * (z + width) + 2 * width * beta)


def residuals(
    const double[::1] y, const double[::1] u, const double[::1] beta, const double[::1] weights,
    double positive, double negative, double width, bint one_sided,
    double b, const double[::1] error, double[::1] computed, double[::1] rise,
):
    """Compute the residual of each row, and by how much it may rise; see certificate.py.

    width: epsilon + tube. error : (m,) float64, of y - u - b. computed, rise : (m,) float64,
    output. A residual is convex in y - u - b, so it is largest at an end of the interval.
    """
    cdef Box box
    cdef Py_ssize_t i
    cdef double lower, upper, z, size, most
    cdef bint weighted = weights is not None
    box.positive, box.negative, box.epsilon, box.one_sided = positive, negative, width, one_sided
    with nogil:
        for i in range(y.shape[0]):
            lower, upper = lower_of(&box, y[i]), upper_of(&box, y[i])
            if weighted:
                lower, upper = lower * weights[i], upper * weights[i]
            z, size = y[i] - u[i] - b, beta[i]
            if size < 0:
                # Mirrored, so that beta >= 0.
                z, size, lower, upper = -z, -size, -upper, -lower
            lower, upper = lower - size, upper - size
            computed[i] = residual(z, width, size, upper, lower)
            most = max(
                residual(z - error[i], width, size, upper, lower),
                residual(z + error[i], width, size, upper, lower),
            )
            rise[i] = max(most - computed[i], 0.0)
