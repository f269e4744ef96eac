# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True
"""Stochastic gradient steps over rows, one after the other.

tests/support/sgd_reference.py does the same in plain Python.

The weights are w = s v, so that shrinking w costs one product and a step costs the row's nonzeros
(Bottou; CS246, SGD-SVM). Their running mean needs no pass over w either: with sigma the sum of s
over the m steps of the mean and A the sum of (change of v) times (sigma before it),

    mean of w = (sigma v - A) / m.

Weights of rows make steps that are aware of them (Karampatziakis and Langford, "Online Importance
Weight Aware Updates", 2011): a row of weight h moves w along x as infinitely many steps with the
sum h would, so that a heavy row never moves f beyond its margin. With z = y f before the step,
q = |x|^2 + bias rate, by which f moves for a change of 1, and a = h eta, the change is

    hinge                  min(a, (1 - z) / q)
    squared hinge          (1 - z) / q (1 - exp(-2 a q))
    logistic               d / q with d + exp(z) (exp(d) - 1) = a q, by Newton's iteration
    epsilon-insensitive    as hinge with z = 1 + epsilon - |y - f|; its square as squared hinge
    Crammer and Singer     min(a, (1 - z) / (2 q)), exact as long as the rival stays the same
    outside                min(a, eta - z / q), since a row at f = 0 must be able to move

"""

from libc.math cimport exp, expm1, log1p

# Losses of z = y f, in the order of parameters.sgd.LOSS_NAMES, and parameters.sgd.OUTSIDE.
cdef enum:
    HINGE = 0
    SQUARED_HINGE = 1
    LOG = 2
    OUTSIDE_LOSS = 3

# Places in `state`.
S, SIGMA, M, T, STEPS, WEIGHT, LOSS, ERRORS = range(8)

# s is folded into v before products with it lose precision.
cdef double SMALLEST = 1e-9


cdef inline double loss_of(int kind, double z) noexcept nogil:
    if kind == HINGE:
        return 1 - z if z < 1 else 0
    if kind == SQUARED_HINGE:
        return (1 - z) * (1 - z) if z < 1 else 0
    if kind == OUTSIDE_LOSS:
        return -z if z < 0 else 0
    if z > 0:
        return log1p(exp(-z))
    return -z + log1p(exp(z))


cdef inline double pull_of(int kind, double z) noexcept nogil:
    """-dL/dz: how hard a row pulls at its decision value."""
    if kind == HINGE:
        return 1 if z < 1 else 0
    if kind == SQUARED_HINGE:
        return 2 * (1 - z) if z < 1 else 0
    if kind == OUTSIDE_LOSS:
        # At w = 0 every row is outside: else no step would ever be made.
        return 1 if z <= 0 else 0
    if z > 0:
        return exp(-z) / (1 + exp(-z))
    return 1 / (1 + exp(z))


cdef inline double dot(const float* x, const double* v, Py_ssize_t n) noexcept nogil:
    """Four sums side by side: the compiler may not reorder a single one."""
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


cdef struct Options:
    int kind                # of loss
    bint crammer_singer, is_regression
    double epsilon, lambda_, eta0, bias_rate, bias_lambda, horizon, fixed_rate


cdef struct Row:
    const float *x          # its values
    const int *columns      # theirs; NULL where it has every column
    Py_ssize_t length
    Py_ssize_t right        # its class, 0 in a regression
    double target
    double weight           # of its class and of its own: how much its loss counts
    double own              # its own weight, 1 without weights of rows
    bint aware              # whether its step is aware of its weight


cdef struct Model:
    Py_ssize_t K            # columns of v: decision values of a row
    double *v               # (d, K), w = s v
    double *b               # (K,)
    double *A               # (d, K), for the mean; NULL where none is wanted
    double s, sigma


cdef enum:
    MAX_NEWTON_STEPS = 100


cdef inline double moved_by_log_loss(double z, double a) noexcept nogil:
    """Return the d >= 0 with d + exp(z) (exp(d) - 1) = a."""
    cdef double d, step
    cdef int i
    if z > 700:
        return 0
    # Both terms are at least 0: d is at most either bound, and Newton's iteration falls to it.
    d = log1p(a * exp(-z)) if z > -700 else a
    if d > a:
        d = a
    for i in range(MAX_NEWTON_STEPS):
        step = (d + exp(z) * expm1(d) - a) / (1 + exp(z + d))
        d -= step
        if step <= 1e-12 * d:
            break
    return d if d > 0 else 0


cdef inline double aware_change(
    int kind, double z, double weight, double eta, double q,
) noexcept nogil:
    """Return the change of a row with weight: see above."""
    cdef double most = weight * eta, change
    if kind == LOG:
        return moved_by_log_loss(z, most * q) / q if q > 0 else most * pull_of(kind, z)
    if pull_of(kind, z) == 0:
        return 0
    if q <= 0:
        return most * pull_of(kind, z)
    if kind == SQUARED_HINGE:
        return -(1 - z) / q * expm1(-2 * most * q)
    change = eta - z / q if kind == OUTSIDE_LOSS else (1 - z) / q
    return change if change < most else most


cdef inline double reach(const Row *row, double bias_rate) noexcept nogil:
    """Return q = |x|^2 + bias rate, by which f moves for a change of 1."""
    cdef Py_ssize_t at
    cdef double q = bias_rate
    for at in range(row.length):
        q += <double>row.x[at] * row.x[at]
    return q


cdef inline void decide(const Row *row, Model *model, double *f) noexcept nogil:
    """f = <w, x> + b, (K,)."""
    cdef Py_ssize_t at, k, column, K = model.K
    cdef double x, total = 0
    cdef double *v = model.v
    if K == 1:
        if row.columns == NULL:
            total = dot(row.x, v, row.length)
        else:
            for at in range(row.length):
                total += v[row.columns[at]] * row.x[at]
        f[0] = total
    else:
        for k in range(K):
            f[k] = 0
        for at in range(row.length):
            column, x = at if row.columns == NULL else row.columns[at], row.x[at]
            for k in range(K):
                f[k] += v[column * K + k] * x
    for k in range(K):
        f[k] = model.s * f[k] + model.b[k]


cdef inline double rate(const Options *how, double t) noexcept nogil:
    """eta, the size of step t."""
    cdef double eta
    if how.fixed_rate > 0:
        return how.fixed_rate
    eta = how.eta0 / (1 + how.lambda_ * how.eta0 * t)
    if how.horizon > 0:
        eta *= 1 - t / how.horizon if t < how.horizon else 0
    return eta


cdef inline double bias_rate_at(const Options *how, double t) noexcept nogil:
    """Return the ratio of the change of b to the change of a weight whose feature is 1, at step t.

    bias_lambda, instead of lambda, determines how the step size of b falls.
    """
    if how.fixed_rate > 0:
        return how.bias_rate
    return how.bias_rate * (1 + how.lambda_ * how.eta0 * t) / (1 + how.bias_lambda * how.eta0 * t)


cdef inline void shrink(Model *model, double eta_lambda, Py_ssize_t d) noexcept nogil:
    """Regularisation: w *= 1 - eta lambda."""
    cdef Py_ssize_t i
    model.s *= 1 - eta_lambda if eta_lambda < 1 else SMALLEST
    if model.s < SMALLEST:
        for i in range(d * model.K):
            model.v[i] *= model.s
        model.sigma /= model.s
        model.s = 1


cdef inline double held_back(
    const Options *how, const Row *row, double eta, double bias_rate,
) noexcept nogil:
    """Return the divisor that makes a step on the squared hinge implicit: 1 + 2 eta weight q, where
    q = |x|^2 + bias rate is how far f moves for a change of 1."""
    if how.kind != SQUARED_HINGE or row.aware:
        return 1
    return 1 + row.weight * (reach(row, bias_rate) * (2 * eta))


# The loss of a row. Each of these functions fills `change` (column k of w is to move by change[k]
# times x), adds to the sums of losses and of mistakes, and returns whether any change is not 0.


cdef inline bint crammer_singer(
    const Options *how, const Row *row, double eta, double bias_rate, Py_ssize_t K, const double *f,
    double *change, double *losses, double *mistakes,
) noexcept nogil:
    """L(z), z = f[right] - max of the others."""
    cdef Py_ssize_t k, rival = 1 if row.right == 0 else 0
    cdef double z, step
    for k in range(K):
        change[k] = 0
        if k != row.right and f[k] > f[rival]:
            rival = k
    z = f[row.right] - f[rival]
    losses[0] += row.weight * loss_of(how.kind, z)
    if z < 0 or (z == 0 and rival < row.right):
        mistakes[0] += row.own
    step = eta * row.weight * pull_of(how.kind, z)
    if row.aware:
        step = aware_change(how.kind, z, row.weight, eta, 2 * reach(row, bias_rate))
    if step == 0:
        return False
    change[row.right], change[rival] = step, -step
    return True


cdef inline bint one_vs_rest(
    const Options *how, const Row *row, double eta, double bias_rate, Py_ssize_t K, const double *f,
    double *change, double *losses, double *mistakes,
) noexcept nogil:
    """The sum of L(z_k), z_k = f[k] for the row's class and -f[k] for all others.

    max(0, |y - f| - epsilon) of a regression is the hinge at z = 1 + epsilon - |y - f|.
    """
    cdef Py_ssize_t k, predicted = 0
    cdef double sign, z, divisor = held_back(how, row, eta, bias_rate)
    cdef double q = reach(row, bias_rate) if row.aware else 0
    cdef bint moved = False
    for k in range(K):
        if how.is_regression:
            sign = 1 if row.target > f[0] else -1
            z = 1 - (sign * (row.target - f[0]) - how.epsilon)
        else:
            sign = 1 if row.right == k else -1
            z = sign * f[k]
        losses[0] += row.weight * loss_of(how.kind, z)
        if row.aware:
            change[k] = sign * aware_change(how.kind, z, row.weight, eta, q)
        else:
            change[k] = sign * eta * row.weight * pull_of(how.kind, z) / divisor
        moved = moved or change[k] != 0
        if f[k] > f[predicted]:
            predicted = k
    if K == 1:
        predicted = 0 if f[0] > 0 else 1
    if predicted != row.right and not how.is_regression:
        mistakes[0] += row.own
    return moved


cdef inline void move(
    const Row *row, Model *model, double bias_rate, double *change,
) noexcept nogil:
    """w += change x, b += bias rate change."""
    cdef Py_ssize_t at, k, column, K = model.K
    cdef double x, step
    cdef double *v = model.v
    cdef double *A = model.A
    for k in range(K):
        model.b[k] += bias_rate * change[k]
        change[k] /= model.s
    if K == 1 and row.columns == NULL:
        add(change[0], row.x, v, row.length)
        if A != NULL:
            add(change[0] * model.sigma, row.x, A, row.length)
    elif K == 1:
        step = change[0]
        for at in range(row.length):
            v[row.columns[at]] += step * row.x[at]
        if A != NULL:
            step *= model.sigma
            for at in range(row.length):
                A[row.columns[at]] += step * row.x[at]
    else:
        for at in range(row.length):
            column, x = at if row.columns == NULL else row.columns[at], row.x[at]
            for k in range(K):
                v[column * K + k] += change[k] * x
            if A != NULL:
                x *= model.sigma
                for k in range(K):
                    A[column * K + k] += change[k] * x


def loss(int kind, double z):
    """L(z), z = y f."""
    return loss_of(kind, z)


def negative_gradient(int kind, double z):
    """-dL/dz."""
    return pull_of(kind, z)


def steps(
    const int[::1] starts, const int[::1] columns, const float[::1] values,
    const double[::1] y,
    const int[::1] order, const double[::1] weights, const double[::1] row_weights,
    int kind, bint crammer_singer_loss, bint is_regression,
    double epsilon, double origin, double lambda_, double eta0, double bias_rate, double bias_lambda, double horizon,
    double fixed_rate,
    double[:, ::1] v, double[::1] b, double[:, ::1] A, double[::1] b_sum,
    double[::1] f, double[::1] change, double[::1] state,
):
    """One step for each row of `order`, for all K columns of v at once.

    Row i is values[starts[i]:starts[i + 1]] in `columns` (empty where every row has every column)
    and of class or target y[i]; its loss counts weights[class] times, and row_weights[i] times if they
    are not empty: a row of weight h then counts as h steps. K = 1:
    class 0 is positive, class 1 is negative. K > 1: column k is class k against the rest, or with
    crammer_singer_loss the loss is of f[class] - max of the others. A regression has K = 1, the
    target y[i] and the loss max(0, |y - f| - epsilon), or its square. Steps on the squared hinge are
    implicit (its slope is taken at the f that the step leads to). It is the only loss whose
    negative_gradient is unbounded: an explicit step on a row with a large norm or weight would
    overshoot the minimum of the row's loss.
    origin: the weight, for each row, of a further row of zeros with y = -1; with the loss OUTSIDE
    the nu of the term nu b, for each row.
    Step t has the size eta0 / (1 + lambda eta0 t), times 1 - t / horizon where there is one, or
    fixed_rate where that is positive. b has steps of its own: bias_rate times as far, falling by
    bias_lambda instead of lambda. A (d, K), or (0, K) where no mean is wanted. f, change : (K,)
    room to work in. state: see above; STEPS and WEIGHT add up the steps and the weights of their rows,
    LOSS and ERRORS what each row's loss and mistake was before its step.
    """
    cdef Options how = Options(
        kind, crammer_singer_loss, is_regression, epsilon, lambda_, eta0, bias_rate, bias_lambda, horizon,
        fixed_rate,
    )
    cdef Model model = Model(v.shape[1], &v[0, 0], &b[0], NULL, state[0], state[1])
    cdef Row row
    cdef Py_ssize_t i, k, number, K = v.shape[1]
    cdef double m = state[2], t = state[3], learned = 0, losses = 0, mistakes = 0, eta, b_rate, step, count
    cdef bint moved
    if A.shape[0] > 0:
        model.A = &A[0, 0]
    with nogil:
        for i in range(order.shape[0]):
            number = order[i]
            row.x = &values[starts[number]]
            row.columns = NULL
            if columns.shape[0] > 0:
                row.columns = &columns[starts[number]]
            row.length = starts[number + 1] - starts[number]
            row.right = 0 if is_regression else <Py_ssize_t>y[number]
            row.target, row.weight = y[number], weights[row.right]
            row.aware, row.own, count = row_weights.shape[0] > 0, 1, 1
            if row.aware:
                row.own = row_weights[number]
                row.weight *= row.own
                count = row.own
            decide(&row, &model, &f[0])
            t += count
            learned += count
            eta = rate(&how, t)
            b_rate = bias_rate_at(&how, t)
            shrink(&model, count * (eta * lambda_), v.shape[0])
            if crammer_singer_loss:
                moved = crammer_singer(
                    &how, &row, eta, b_rate, K, &f[0], &change[0], &losses, &mistakes)
            else:
                moved = one_vs_rest(
                    &how, &row, eta, b_rate, K, &f[0], &change[0], &losses, &mistakes)
            if moved:
                move(&row, &model, b_rate, &change[0])

            if kind == OUTSIDE_LOSS:
                losses += count * origin * b[0]
                b[0] -= eta * b_rate * (count * origin)
            elif origin > 0:
                losses += count * origin * loss_of(kind, -b[0])
                if row.aware:
                    b[0] -= b_rate * aware_change(kind, -b[0], count * origin, eta, b_rate)
                else:
                    step = pull_of(kind, -b[0])
                    if kind == SQUARED_HINGE:
                        step /= 1 + 2 * eta * origin * b_rate
                    b[0] -= eta * b_rate * origin * step
            if model.A != NULL:
                model.sigma += count * model.s
                m += count
                for k in range(K):
                    b_sum[k] += count * b[k]
    state[0], state[1], state[2], state[3] = model.s, model.sigma, m, t
    state[4] += order.shape[0]
    state[5] += learned
    state[6] += losses
    state[7] += mistakes
