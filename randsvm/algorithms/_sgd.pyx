# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True
"""Stochastic gradient steps over rows, one after the other; the plain twin is tests/sgd_reference.py.

The weights are w = s v, so that shrinking w costs one product and a step costs the row's nonzeros
(Bottou; CS246, SGD-SVM). Their running mean needs no pass over w either: with sigma the sum of s
over the m steps of the mean and A the sum of (change of v) times (sigma before it),

    mean of w = (sigma v - A) / m.
"""

from libc.math cimport exp, log1p

# Losses of z = y f, in the order of params.LOSS_NAMES, and that of a regression.
cdef enum:
    HINGE = 0
    SQUARED_HINGE = 1
    LOG = 2
    REGRESSION = 3

EPSILON_INSENSITIVE = REGRESSION

# Places in `state`.
S, SIGMA, M, T, LOSS, ERRORS = range(6)

# s is folded into v before products with it lose precision.
cdef double SMALLEST = 1e-9


cdef inline double loss_of(int kind, double z) noexcept nogil:
    if kind == HINGE:
        return 1 - z if z < 1 else 0
    if kind == SQUARED_HINGE:
        return (1 - z) * (1 - z) if z < 1 else 0
    if z > 0:
        return log1p(exp(-z))
    return -z + log1p(exp(z))


cdef inline double pull_of(int kind, double z) noexcept nogil:
    """-dL/dz."""
    if kind == HINGE:
        return 1 if z < 1 else 0
    if kind == SQUARED_HINGE:
        return 2 * (1 - z) if z < 1 else 0
    if z > 0:
        return exp(-z) / (1 + exp(-z))
    return 1 / (1 + exp(z))


cdef inline double dot(const float* x, const double* v, Py_ssize_t n) noexcept nogil:
    """Four sums at a time: the compiler may not reorder one."""
    cdef double a = 0, b = 0, c = 0, d = 0
    cdef Py_ssize_t i = 0
    while i + 4 <= n:
        a += x[i] * v[i]
        b += x[i + 1] * v[i + 1]
        c += x[i + 2] * v[i + 2]
        d += x[i + 3] * v[i + 3]
        i += 4
    while i < n:
        a += x[i] * v[i]
        i += 1
    return a + b + c + d


cdef inline void add(double step, const float* x, double* v, Py_ssize_t n) noexcept nogil:
    """v += step x."""
    cdef Py_ssize_t i
    for i in range(n):
        v[i] += step * x[i]


def loss(int kind, double z):
    """L(z), z = y f."""
    return loss_of(kind, z)


def pull(int kind, double z):
    """-dL/dz: how hard a row pulls at its decision value."""
    return pull_of(kind, z)


def steps(
    const int[::1] starts, const int[::1] columns, const float[::1] values,
    const int[::1] classes, const double[::1] targets,
    const int[::1] order, const double[::1] weights,
    int kind, bint crammer_singer, double epsilon, double origin,
    double lambda_, double eta0, double bias_rate, double horizon, double fixed_rate,
    double[:, ::1] v, double[::1] b, double[:, ::1] A, double[::1] b_sum,
    double[::1] f, double[::1] change, double[::1] state,
):
    """One step for each row of `order`, for all K columns of v at once.

    Row i is values[starts[i]:starts[i + 1]] in `columns` (empty where every row has every column)
    and of class classes[i]; its loss counts weights[class] times. K = 1: class 0 is y = +1, class 1 is y = -1. K > 1: column k is class k
    against the rest, or with crammer_singer the loss is of f[class] - max of the others. A
    regression has K = 1, targets instead of classes and the loss max(0, |y - f| - epsilon). Steps on
    the squared hinge are implicit (its slope is taken at the f that the step leads to): it is the
    one loss whose pull grows, and a long or heavy row would throw w further than it was off.
    origin: the weight, beside that of each row, of a row of zeros with y = -1.
    Step t of size eta0 / (1 + lambda eta0 t), times 1 - t / horizon where there is one, or
    fixed_rate where that is positive; b moves bias_rate times as far. A (d, K), or (0, K)
    where no mean is wanted. f, change : (K,) room to work in. state: see above; LOSS and ERRORS
    add up what each row's loss and mistake was before its step.
    """
    cdef Py_ssize_t i, k, at, row, column, K = v.shape[1]
    cdef Py_ssize_t begin, end, right, rival
    cdef double s = state[0], sigma = state[1], m = state[2], t = state[3]
    cdef double losses = 0, mistakes = 0
    cdef double eta, sign, z, x, weight, step, reach
    cdef bint averaging = A.shape[0] > 0, moved
    cdef bint implied = columns.shape[0] == 0
    cdef bint dense = implied and K == 1
    with nogil:
        for i in range(order.shape[0]):
            row = order[i]
            begin, end = starts[row], starts[row + 1]
            right = 0 if kind == REGRESSION else classes[row]
            weight = weights[right]
            for k in range(K):
                f[k] = 0
            if dense:
                f[0] = dot(&values[begin], &v[0, 0], end - begin) if end > begin else 0
            elif K == 1:
                for at in range(begin, end):
                    f[0] += v[columns[at], 0] * values[at]
            else:
                for at in range(begin, end):
                    column, x = at - begin if implied else columns[at], values[at]
                    for k in range(K):
                        f[k] += v[column, k] * x
            for k in range(K):
                f[k] = s * f[k] + b[k]

            t += 1
            if fixed_rate > 0:
                eta = fixed_rate
            else:
                eta = eta0 / (1 + lambda_ * eta0 * t)
                if horizon > 0:
                    eta *= 1 - t / horizon if t < horizon else 0
            # Regularisation: w *= 1 - eta lambda.
            s *= 1 - eta * lambda_ if eta * lambda_ < 1 else SMALLEST
            if s < SMALLEST:
                for column in range(v.shape[0]):
                    for k in range(K):
                        v[column, k] *= s
                sigma /= s
                s = 1

            # How far f moves for a change of 1, twice: what an implicit step is held back by.
            reach = 0
            if kind == SQUARED_HINGE:
                reach = bias_rate
                for at in range(begin, end):
                    reach += <double>values[at] * values[at]
                reach *= 2 * eta

            # Loss: change[k] is what f[k] asks to be added, in units of x.
            moved = False
            if kind == REGRESSION:
                z = targets[row] - f[0]
                sign = 1 if z > 0 else -1
                moved = sign * z > epsilon
                losses += sign * z - epsilon if moved else 0
                change[0] = sign * eta if moved else 0
            elif crammer_singer:
                rival = 1 if right == 0 else 0
                for k in range(K):
                    change[k] = 0
                    if k != right and f[k] > f[rival]:
                        rival = k
                z = f[right] - f[rival]
                losses += weight * loss_of(kind, z)
                mistakes += z < 0 or (z == 0 and rival < right)
                step = eta * weight * pull_of(kind, z)
                if step != 0:
                    moved = True
                    change[right], change[rival] = step, -step
            else:
                for k in range(K):
                    sign = 1 if right == k else -1
                    z = sign * f[k]
                    losses += weight * loss_of(kind, z)
                    change[k] = sign * eta * weight * pull_of(kind, z) / (1 + weight * reach)
                    moved = moved or change[k] != 0
                if K == 1:
                    mistakes += (f[0] > 0) != (right == 0)
                else:
                    rival = 0
                    for k in range(1, K):
                        if f[k] > f[rival]:
                            rival = k
                    mistakes += rival != right
            if moved:
                for k in range(K):
                    b[k] += bias_rate * change[k]
                    change[k] /= s
                if dense:
                    if end > begin:
                        add(change[0], &values[begin], &v[0, 0], end - begin)
                        if averaging:
                            add(change[0] * sigma, &values[begin], &A[0, 0], end - begin)
                elif K == 1:
                    step = change[0]
                    for at in range(begin, end):
                        v[columns[at], 0] += step * values[at]
                    if averaging:
                        step *= sigma
                        for at in range(begin, end):
                            A[columns[at], 0] += step * values[at]
                else:
                    for at in range(begin, end):
                        column, x = at - begin if implied else columns[at], values[at]
                        for k in range(K):
                            v[column, k] += change[k] * x
                        if averaging:
                            x *= sigma
                            for k in range(K):
                                A[column, k] += change[k] * x
            if origin > 0:
                step = pull_of(kind, -b[0])
                losses += origin * loss_of(kind, -b[0])
                if kind == SQUARED_HINGE:
                    step /= 1 + 2 * eta * origin * bias_rate
                b[0] -= eta * bias_rate * origin * step
            if averaging:
                sigma += s
                m += 1
                for k in range(K):
                    b_sum[k] += b[k]
    state[0], state[1], state[2], state[3] = s, sigma, m, t
    state[4] += losses
    state[5] += mistakes
