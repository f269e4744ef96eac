# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True
"""Passes of coordinate ascent on the dual of a linear machine; see coordinates.py.

Of row i, with r = y - f and the slope g = -r + ridge beta of the negative dual without epsilon, the
coefficient moves to where g + epsilon (beta > 0) or g - epsilon (beta < 0) is 0, in its box.
"""

from libc.math cimport fabs
from libc.stdint cimport int64_t, uint64_t

cdef extern from *:
    """
    #define PREFETCH(address) __builtin_prefetch(address)
    """
    void PREFETCH(const void *address) noexcept nogil

cdef enum:
    AHEAD = 8       # visits between the request for a row and its use


cdef inline uint64_t drawn(uint64_t *state) noexcept nogil:
    """xorshift64."""
    state[0] ^= state[0] << 13
    state[0] ^= state[0] >> 7
    state[0] ^= state[0] << 17
    return state[0]


def shuffle(int[::1] order, Py_ssize_t active, uint64_t[::1] seed):
    """Bring the first `active` rows into random order."""
    cdef Py_ssize_t at, other
    for at in range(active):
        other = at + <Py_ssize_t>(drawn(&seed[0]) % <uint64_t>(active - at))
        order[at], order[other] = order[other], order[at]


cdef inline double missing(
    double r, double beta, double lower, double upper, double ridge, double epsilon,
) noexcept nogil:
    """Return the row's part of P - D: loss(r) - beta r + epsilon |beta| + ridge beta^2 / 2."""
    cdef double beyond = 0, bound = 0
    if r > epsilon and upper > 0:
        beyond, bound = r - epsilon, upper
    elif r < -epsilon and lower < 0:
        beyond, bound = r + epsilon, lower
    bound = beyond / (2 * ridge) if ridge > 0 else bound
    return beyond * bound - beta * r + epsilon * fabs(beta) + ridge * beta * beta / 2


def visit(
    const int64_t[::1] starts, const int[::1] columns, const float[::1] values,
    const double[::1] y, const double[::1] lower, const double[::1] upper, const double[::1] ridge,
    const double[::1] curvature, double epsilon, double bias_square, double inside,
    int[::1] order, Py_ssize_t at, Py_ssize_t stop, Py_ssize_t active,
    double[::1] beta, double[::1] w, double[::1] state,
):
    """Move the coefficients of order[at:stop], and w and b with them; return the new `at`, `stop`
    and `active`.

    A row that stays at its bound or at 0 by a slope of more than `inside` moves behind the first
    `active` rows of the order. state : b, and the largest slope and the sum of `missing` so far.
    """
    cdef double f, g, up, down, old, new, slope, step, largest = state[1], gap = state[2], b = state[0]
    cdef Py_ssize_t i, j, ahead
    cdef bint idle
    with nogil:
        while at < stop:
            i = order[at]
            if at + AHEAD < stop:
                ahead = order[at + AHEAD]
                PREFETCH(&beta[ahead])
                # A line of the cache has 16 values.
                for j in range(starts[ahead], starts[ahead + 1], 16):
                    PREFETCH(&columns[j])
                    PREFETCH(&values[j])
            f = b
            for j in range(starts[i], starts[i + 1]):
                f += w[columns[j]] * values[j]
            old = beta[i]
            gap += missing(y[i] - f, old, lower[i], upper[i], ridge[i], epsilon)
            g = f - y[i] + ridge[i] * old
            up, down = g + epsilon, g - epsilon
            if old >= upper[i] and old > 0:
                slope, idle = (up if up > 0 else 0), up < -inside
            elif old <= lower[i] and old < 0:
                slope, idle = (-down if down < 0 else 0), down > inside
            elif old != 0:
                slope, idle = fabs(up if old > 0 else down), False
            else:
                slope = -up if upper[i] > 0 and up < 0 else down if lower[i] < 0 and down > 0 else 0
                idle = (upper[i] == 0 or up > inside) and (lower[i] == 0 or down < -inside)
            if idle:
                active -= 1
                stop -= 1
                order[at], order[stop] = order[stop], order[at]
                order[stop], order[active] = order[active], order[stop]
                continue
            at += 1
            if slope > largest:
                largest = slope
            if slope == 0:
                continue
            if up < curvature[i] * old:
                new = old - up / curvature[i]
            elif down > curvature[i] * old:
                new = old - down / curvature[i]
            else:
                new = 0
            new = lower[i] if new < lower[i] else upper[i] if new > upper[i] else new
            step = new - old
            beta[i] = new
            b += bias_square * step
            for j in range(starts[i], starts[i + 1]):
                w[columns[j]] += step * values[j]
    state[0], state[1], state[2] = b, largest, gap
    return at, stop, active
