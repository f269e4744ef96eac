"""Judge a certificate by arithmetic that encloses the true P and D.

The problem is that of the decimal numbers in the training file, the machine that of the decimal
numbers in the model file. Both are read here, line by line; nothing of the package is used. Scaled
rows follow from the decimals of the file and the shift and factor in the trailer.
Fractions hold all numbers but the kernel values of rbf and of large poly problems, which have a
bound of their error. So P and D are known up to a radius, in one of three arithmetics:

- "double": kernel values in float64, with a unit roundoff of 2^-53. For files of 20,000 rows.
- "double-double": kernel values as sums of two float64 numbers, unit 2^-100. Errors of the steps:
  Joldes, Muller, Popescu, Tight and rigorous error bounds for basic building blocks of
  double-word arithmetic, ACM TOMS 44, 2017.
- "exact": integers for linear, poly and precomputed, and 50 decimal digits for exp.

A certificate is false if P as said, with its bound of rounding, is below P of the machine; if D as
said, without its bound, is above P of any machine; or if the gap is smaller than P and D say.
"""

import decimal
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import cache
from itertools import product
from math import inf, isfinite, lcm
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

UNIT = {"double": 2.0**-53, "double-double": 2.0**-100, "exact": 0.0}
# Rows of X times rows of Z of a block, so that its parts stay in the cache of a core.
BLOCK = 1 << 14
# A value that is smaller counts as 0 with this error: products of it would lose their digits.
TINY = 1e-260
# exp(-a) is below it where a is larger.
FAR = 600.0
DIGITS = 50
# What float64 arithmetic on positive radii may lose of them.
ROOM = 1.001


# ---- files --------------------------------------------------------------------------------------


class Rows(NamedTuple):
    """Rows of a file. X : (n, d) of Decimal, of precomputed kernels the kernel values of each row;
    labels: as written; weights : (n,) of Fraction.

    scaled : (n, d) float64, scaled rows as float64 arithmetic has them, by which the vectors of a
    model are found; X is exact
    numbers: of the rows of precomputed kernels
    """

    labels: list[str]
    weights: np.ndarray
    X: np.ndarray
    scaled: np.ndarray | None = None
    numbers: Sequence[int] = ()


class Machine(NamedTuple):
    """A decision function u + b. Z : (m, d) of Decimal, of precomputed kernels (m, 1) row numbers;
    beta : (m,) of Fraction; labels: of f > 0 and of the others."""

    Z: np.ndarray
    beta: np.ndarray
    b: Fraction
    labels: list[str]


class Kernel(NamedTuple):
    name: str
    gamma: Fraction = Fraction(1)
    coef0: Fraction = Fraction(0)
    degree: int = 3


def read_rows(path: Path, row_weights: Path | None = None) -> Rows:
    """Read svmlight rows whose features count from 1. row_weights: a file of weights, one a line.

    Rows of weight 0 are left out.
    """
    labels, weights, entries, numbers = [], [], [], []
    for line in path.read_text().splitlines():
        words = line.partition("#")[0].split()
        if not words:
            continue
        labels.append(words.pop(0))
        named = dict(word.split(":") for word in words)
        weights.append(Fraction(named.pop("cost", "1")))
        numbers.append(int(float(named.pop("0", "0"))))
        entries.append({int(index): Decimal(value) for index, value in named.items()})
    if row_weights is not None:
        weights = list(map(Fraction, row_weights.read_text().split()))
    d = max((max(each, default=0) for each in entries), default=0)
    return _kept(Rows(labels, _objects(weights), _dense(entries, d), numbers=numbers))


def read_table(path: Path, target: str, row_weights: Path | None = None) -> Rows:
    """Read a CSV table without quotes. A column that has a text in it is one feature for each of
    its texts, in the order of their code points."""
    names, *lines = (line.split(",") for line in path.read_text().splitlines())
    columns = dict(zip(names, zip(*lines, strict=True), strict=True))
    labels = list(columns.pop(target))
    weights = row_weights.read_text().split() if row_weights else ["1"] * len(labels)
    features = []
    for column in columns.values():
        if all(map(_is_number, column)):
            features.append(list(map(Decimal, column)))
        else:
            texts = sorted(set(column))
            features += [[Decimal(int(value == text)) for value in column] for text in texts]
    X = _objects([v for feature in features for v in feature]).reshape(len(features), -1).T
    return _kept(Rows(labels, _objects(list(map(Fraction, weights))), X))


def _is_number(text: str) -> bool:
    try:
        return Decimal(text).is_finite()
    except decimal.InvalidOperation:
        return False


def _kept(rows: Rows) -> Rows:
    """Return the rows whose weight is not 0."""
    kept = rows.weights != 0
    at = np.flatnonzero(kept).tolist()
    labels, numbers = [rows.labels[i] for i in at], [rows.numbers[i] for i in at if rows.numbers]
    return Rows(labels, rows.weights[kept], rows.X[kept], numbers=numbers)


def read_trailer(path: Path) -> dict[str, Any]:
    """Return the lines of a model's trailer, numbers as Decimal."""
    words = (line.split(" ", 3) for line in path.read_text().splitlines())
    lines = {line[2]: line[3] for line in words if line[:2] == ["#", "randsvm"]}
    lines.pop("sha256", None)
    return {
        key: json.loads(value, parse_float=Decimal, parse_int=Decimal)
        for key, value in lines.items()
    }


def scaled(rows: Rows, trailer: Mapping[str, Any]) -> Rows:
    """Return rows as the scaling of a model makes them, without rounding; lengths of unit have 60
    digits."""
    X, x = rows.X, rows.X.astype(np.float64)
    if trailer.get("scale") == "unit":
        with decimal.localcontext(prec=60):
            norms = _objects([sum((v * v for v in row), Decimal(0)).sqrt() for row in X])
            norms[norms == 0] = Decimal(1)
            return rows._replace(X=X / norms[:, None], scaled=x / norms.astype(np.float64)[:, None])
    if "scale" not in trailer:
        return rows
    runs = (run.partition("-") for run in trailer["features"].split(","))
    at = [k - 1 for a, _, b in runs for k in range(int(a), int(b or a) + 1)]
    shift = np.full(X.shape[1], Decimal(0), dtype=object)
    factor = shift.copy()
    factor[at] = trailer["scale_factor"]
    shift[at] = trailer.get("scale_shift") or shift[at]
    steps = [(Fraction(s), Fraction(f)) for s, f in zip(shift, factor, strict=True)]
    exact = [(Fraction(v) - s) * f for row in X for v, (s, f) in zip(row, steps, strict=True)]
    near = (x - shift.astype(np.float64)) * factor.astype(np.float64)
    return rows._replace(X=_objects(exact).reshape(X.shape), scaled=near)


def read_model(path: Path, d: int) -> tuple[Kernel, Machine]:
    """Read a model of one machine. d: features, as many as the rows have."""
    head, _, rest = path.read_text().partition("\nSV\n")
    named = dict(line.split(" ", 1) for line in head.splitlines())
    assert int(named.get("nr_class", "2")) == 2
    beta, entries = [], []
    for line in rest.splitlines():
        if line.startswith("#"):
            break
        coefficient, *words = line.split()
        beta.append(Fraction(coefficient))
        pairs = (word.split(":") for word in words)
        entries.append({int(index): Decimal(value) for index, value in pairs})
    kernel = Kernel(
        {"polynomial": "poly"}.get(named["kernel_type"], named["kernel_type"]),
        Fraction(named.get("gamma", "1")),
        Fraction(named.get("coef0", "0")),
        int(named.get("degree", "3")),
    )
    if kernel.name == "precomputed":
        Z = _objects([each[0] for each in entries]).reshape(-1, 1)
    else:
        Z = _dense(entries, d)
    return kernel, Machine(
        Z, _objects(beta), -Fraction(named["rho"]), named.get("label", "").split()
    )


def _dense(entries: Sequence[Mapping[int, Decimal]], d: int) -> np.ndarray:
    X = np.full((len(entries), d), Decimal(0), dtype=object)
    for row, named in zip(X, entries, strict=True):
        for index, value in named.items():
            row[index - 1] = value
    return X


def _objects(values: Sequence[Any]) -> np.ndarray:
    found = np.empty(len(values), dtype=object)
    found[:] = values
    return found


# ---- precomputed kernels ------------------------------------------------------------------------


def among_themselves(rows: Rows, machine: Machine) -> tuple[Rows, Machine]:
    """Return rows with the kernel values of these rows alone, (n, n), and the machine with the
    places of its vectors, from 1."""
    place = {number: i + 1 for i, number in reversed(list(enumerate(rows.numbers)))}
    Z = _objects([place[int(z)] for z in machine.Z[:, 0]]).reshape(-1, 1)
    X = rows.X[:, [number - 1 for number in rows.numbers]]
    return rows._replace(X=X), machine._replace(Z=Z)


def made_semidefinite(rows: Rows) -> Rows:
    """Return rows with the symmetric part of K, plus the least number on the diagonal that makes it
    positive semidefinite, but for what float64 eigenvalues are wrong by."""
    K = np.array([[Fraction(v) for v in x] for x in rows.X], dtype=object)
    K = (K + K.T) / 2
    eigenvalues = np.linalg.eigvalsh(K.astype(np.float64))
    rounding = len(K) * 2.0**-53 * float(np.abs(eigenvalues).max())
    K[np.diag_indices(len(K))] += Fraction(max(0.0, rounding - float(eigenvalues[0])))
    return rows._replace(X=K)


# ---- double-double arithmetic -------------------------------------------------------------------

Pair = tuple[np.ndarray, np.ndarray]


def two_sum(a: Any, b: Any) -> Pair:
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def two_product(a: Any, b: Any) -> Pair:
    """Return the product and its rounding error, by Dekker's splitting."""
    p = a * b
    c, d = 134217729.0 * a, 134217729.0 * b
    a1, b1 = c - (c - a), d - (d - b)
    a2, b2 = a - a1, b - b1
    return p, ((a1 * b1 - p) + a1 * b2 + a2 * b1) + a2 * b2


def _quick_sum(a: Any, b: Any) -> Pair:
    """Return the sum of a and a smaller b."""
    s = a + b
    return s, b - (s - a)


def add(x: Pair, y: Pair) -> Pair:
    """Return x + y with a relative error of at most 2^-104."""
    s, e = two_sum(x[0], y[0])
    t, f = two_sum(x[1], y[1])
    s, e = _quick_sum(s, e + t)
    return _quick_sum(s, e + f)


def multiply(x: Pair, y: Pair) -> Pair:
    """Return x y with a relative error of at most 2^-103."""
    p, e = two_product(x[0], y[0])
    return _quick_sum(p, e + (x[0] * y[1] + x[1] * y[0]))


def pair_of(values: np.ndarray) -> Pair:
    """Return numbers of any exact type as pairs, with a relative error of at most 2^-106."""
    flat = [(float(v), v) for v in values.ravel()]
    low = [float(Fraction(v) - Fraction(high)) for high, v in flat]
    return np.array([h for h, _ in flat]).reshape(values.shape), np.array(low).reshape(values.shape)


@cache
def _tables() -> tuple[Pair, Pair]:
    """Return exp(-i) for i below 1,024 and exp(-j 2^-16) for j below 2^16."""
    with decimal.localcontext(prec=DIGITS):
        parts = [
            pair_of(_objects([(-Decimal(i) / size).exp() for i in range(count)]))
            for count, size in ((1024, 1), (256, 256), (256, 65536))
        ]
    whole, coarse, fine = parts
    product = multiply((coarse[0][:, None], coarse[1][:, None]), fine)
    return whole, (product[0].ravel(), product[1].ravel())


def exp_of_minus(a: Pair) -> Pair:
    """Return exp(-a), 0 <= a <= FAR, with a relative error of at most 2^-100.

    a = i + j 2^-16 + r with |r| <= 2^-17; terms of exp(-r) from r^6 on are below 2^-111, and in
    float64 r^3 / 6 and the later ones have an error below 2^-105.
    """
    whole, part = _tables()
    k = np.rint(a[0] * 65536)
    r, e = two_sum(a[0] - k / 65536, a[1])
    half, rest = two_product(r, r)
    square = half / 2, rest / 2 + r * e
    last = r * r * r * (-1 / 6 + r * (1 / 24 - r / 120))
    series = add((-r, last - e), square)
    series = add(series, (np.ones_like(r), np.zeros_like(r)))
    i, j = np.divmod(k.astype(np.int64), 65536)
    return multiply(multiply((whole[0][i], whole[1][i]), (part[0][j], part[1][j])), series)


# ---- kernel values and their sums ---------------------------------------------------------------


class Sums(NamedTuple):
    """u of rows. centres : (n,) of Fraction; radii : (n,) float64, bounds of their error."""

    centres: np.ndarray
    radii: np.ndarray


def sums(kernel: Kernel, X: np.ndarray, Z: np.ndarray, beta: np.ndarray, arithmetic: str) -> Sums:
    """Return sum_j beta_j K(x_i, z_j) of each row of X."""
    if not len(Z):
        return Sums(_objects([Fraction(0)] * len(X)), np.zeros(len(X)))
    if kernel.name in ("linear", "precomputed"):
        return _by_products(kernel, X, Z, beta)
    if arithmetic != "double" and kernel.name == "poly":
        return _by_powers(kernel, X, Z, beta)
    if arithmetic == "exact":
        return _by_digits(kernel, X, Z, beta)
    return _by_blocks(kernel, X, Z, beta, arithmetic)


def integers(values: np.ndarray) -> tuple[np.ndarray, int]:
    """Return integers and the divisor that makes them the numbers."""
    fractions = [Fraction(value) for value in values.ravel()]
    divisor = lcm(*{value.denominator for value in fractions})
    found = [value.numerator * (divisor // value.denominator) for value in fractions]
    return _objects(found).reshape(values.shape), divisor


def _by_products(kernel: Kernel, X: np.ndarray, Z: np.ndarray, beta: np.ndarray) -> Sums:
    (x, of_x), (c, of_c) = integers(X), integers(beta)
    if kernel.name == "precomputed":
        values, divisor = x[:, [int(z) - 1 for z in Z[:, 0]]] @ c, of_x * of_c
    else:
        z, of_z = integers(Z)
        values, divisor = x @ (c @ z), of_x * of_z * of_c
    return Sums(_objects([Fraction(v, divisor) for v in values]), np.zeros(len(X)))


def _by_powers(kernel: Kernel, X: np.ndarray, Z: np.ndarray, beta: np.ndarray) -> Sums:
    (x, of_x), (z, of_z), (c, of_c) = integers(X), integers(Z), integers(beta)
    # gamma x z + r = (p x z + q) / divisor for the integers x z.
    divisor = of_x * of_z * kernel.gamma.denominator * kernel.coef0.denominator
    p = kernel.gamma.numerator * kernel.coef0.denominator
    q = kernel.coef0.numerator * (divisor // kernel.coef0.denominator)
    of_u = of_c * divisor**kernel.degree
    u = [Fraction(((p * (z @ row) + q) ** kernel.degree) @ c, of_u) for row in x]
    return Sums(_objects(u), np.zeros(len(X)))


def _by_digits(kernel: Kernel, X: np.ndarray, Z: np.ndarray, beta: np.ndarray) -> Sums:
    (both, of_x), (c, of_c) = integers(np.concatenate([X, Z])), integers(beta)
    x, z = both[: len(X)], both[len(X) :]
    u, radii = [], []
    with decimal.localcontext(prec=DIGITS):
        size = sum(Decimal(abs(v)) / Decimal(of_c) for v in c)
        of_a = Decimal(kernel.gamma.denominator * of_x**2)
        for row in x:
            squares = kernel.gamma.numerator * ((z - row) ** 2).sum(axis=1)
            a = [Decimal(int(square)) / of_a for square in squares]
            # Values below 10^-390 count as 0.
            K = [(-each).exp() if each < 900 else Decimal(0) for each in a]
            terms = [Fraction(k) * v for k, v in zip(K, c, strict=True)]
            u.append(sum(terms) / of_c)
            errors = (k * (2 + each) * abs(v) for k, each, v in zip(K, a, c, strict=True))
            radii.append(float(sum(errors) / of_c) * 10.0 ** (1 - DIGITS) + float(size) * 1e-300)
    return Sums(_objects(u), np.array(radii) * ROOM)


def _by_blocks(
    kernel: Kernel, X: np.ndarray, Z: np.ndarray, beta: np.ndarray, arithmetic: str
) -> Sums:
    wide, unit = arithmetic == "double-double", UNIT[arithmetic]
    x, z, c = (
        pair_of(each) if wide else (each.astype(np.float64), np.zeros(each.shape))
        for each in (X, Z, beta)
    )
    norm = float(np.linalg.norm(np.maximum(np.abs(x[0]).max(axis=0), np.abs(z[0]).max(axis=0))))
    columns = min(len(Z), 128)
    rows = max(1, BLOCK // columns)
    u, sizes, radii = (np.zeros(len(X)), np.zeros(len(X))), np.zeros(len(X)), np.zeros(len(X))
    for i, j in product(range(0, len(X), rows), range(0, len(Z), columns)):
        some, part = slice(i, i + rows), slice(j, j + columns)
        K, errors = _values(
            kernel, (x[0][some], x[1][some]), (z[0][part], z[1][part]), norm, arithmetic
        )
        size = np.abs(c[0][part])
        if wide:
            term = _sum_of_columns(multiply(K, (c[0][part], c[1][part])))
        else:
            term = K[0] @ c[0][part], np.zeros(len(size))[:1]
        u[0][some], u[1][some] = add((u[0][some], u[1][some]), term)
        sizes[some] += np.abs(K[0]) @ size
        radii[some] += errors @ size
    # A term of a sum of m has an error of m units, and beta and the sum of blocks some more.
    rounding = (16 if wide else columns + 16) * unit + UNIT["double-double"] * len(Z) / columns
    radii = (radii + rounding * sizes) * ROOM + TINY * float(np.abs(c[0]).sum())
    known = np.isfinite(u[0] + u[1] + radii)
    found = zip(*(np.where(known, each, 0.0).tolist() for each in u), strict=True)
    centres = [Fraction(high) + Fraction(low) for high, low in found]
    return Sums(_objects(centres), np.where(known, radii, inf))


def _sum_of_columns(x: Pair) -> Pair:
    while x[0].shape[1] > 1:
        if x[0].shape[1] % 2:
            x = np.pad(x[0], ((0, 0), (0, 1))), np.pad(x[1], ((0, 0), (0, 1)))
        half = x[0].shape[1] // 2
        x = add((x[0][:, :half], x[1][:, :half]), (x[0][:, half:], x[1][:, half:]))
    return x[0][:, 0], x[1][:, 0]


def _values(
    kernel: Kernel, X: Pair, Z: Pair, norm: float, arithmetic: str
) -> tuple[Pair, np.ndarray]:
    """Return kernel values and bounds of their errors.

    With d features and unit u, a = gamma |x - z|^2 has a relative error of at most (d + 8) u from
    its sums. Features that are rounded by u |x| move a by at most 2 |x - z| e + e^2 with e at most
    2 u times the norm of the largest values. norm: this norm.
    """
    unit, gamma, d = UNIT[arithmetic], float(kernel.gamma), X[0].shape[1]
    if kernel.name == "poly":
        p, size = X[0] @ Z[0].T, np.abs(X[0]) @ np.abs(Z[0]).T
        t, r = gamma * p + float(kernel.coef0), abs(float(kernel.coef0))
        error = unit * ((d + 8) * gamma * size + 4 * r)
        most = np.abs(t) + error
        errors = kernel.degree * (error + 8 * unit * most) * most ** (kernel.degree - 1)
        return (t**kernel.degree, np.zeros(1)), errors
    if arithmetic == "double":
        a = gamma * sum((X[0][:, [k]] - Z[0][:, k]) ** 2 for k in range(d))
        K = np.exp(-np.minimum(a, FAR)), np.zeros(1)
    else:
        square = np.zeros((len(X[0]), len(Z[0]))), np.zeros((len(X[0]), len(Z[0])))
        for k in range(d):
            difference = add((X[0][:, [k]], X[1][:, [k]]), (-Z[0][:, k], -Z[1][:, k]))
            square = add(square, multiply(difference, difference))
        high, low = multiply(square, pair_of(_objects([kernel.gamma])))
        far = high > FAR
        a = high
        K = exp_of_minus((np.where(far, FAR, high), np.where(far, 0.0, low)))
    error = unit * ((d + 8) * a + 8) + 4 * unit * np.sqrt(gamma * a) * norm
    # e^700 is a float64, and times e^-FAR it is above 1.
    errors = np.expm1(np.minimum(error + gamma * (2 * unit * norm) ** 2, 700.0))
    # A value at most 1, known up to the error or as a number of no consequence.
    return K, np.minimum(K[0] * errors + np.where(a > FAR, TINY, 0), 1.0)


# ---- problems -----------------------------------------------------------------------------------


class Interval(NamedTuple):
    least: Fraction
    most: Fraction


EVERYTHING = Interval(Fraction(-(10**400)), Fraction(10**400))


class Problem(NamedTuple):
    """A task over rows, in the form of a table of losses and boxes:

        P = 1/2 |w|^2 + sum_i loss_i(y_i - f_i) + total b + size tube
        D = sum y beta - epsilon sum |beta| - 1/2 |w|^2
        loss_i(z) = max(0, upper_i (z - epsilon - tube), lower_i (z + epsilon + tube))
        lower <= beta <= upper, sum beta = total; of nu tasks sum |beta| = size, or <= size for
        regressions

    All (n,) arrays are of Fraction.
    """

    task: str
    y: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    epsilon: Fraction = Fraction(0)
    total: Fraction = Fraction(0)
    size: Fraction = Fraction(0)


def problem_of(
    rows: Rows,
    task: str,
    labels: Sequence[str] = (),
    *,
    C: Any = 1,
    epsilon: Any = 0,
    nu: Any = 0,
    class_weights: Mapping[str, Any] | None = None,
) -> Problem:
    """Return the problem of a training. Numbers are exact: give text for a decimal number.

    labels: of f > 0 and of the others; class_weights: of these labels
    """
    cost, share, weights = Fraction(C), Fraction(nu), rows.weights
    n = sum(weights)
    zero = weights * 0
    if task == "one-class":
        return Problem(task, zero, zero, weights, total=share * n)
    if task in ("svr", "nu-svr"):
        y = _objects([Fraction(label) for label in rows.labels])
        upper = cost * weights
        if task == "svr":
            return Problem(task, y, -upper, upper, Fraction(epsilon))
        return Problem(task, y, -upper, upper, size=cost * share * n)
    first = np.array([float(label) == float(labels[0]) for label in rows.labels])
    y = _objects([Fraction(1 if each else -1) for each in first])
    if task == "nu-svc":
        upper, lower = np.where(first, weights, zero), np.where(first, zero, -weights)
        return Problem(task, y, lower, upper, Fraction(1), size=share * n)
    more = {float(name): Fraction(value) for name, value in (class_weights or {}).items()}
    of = [cost * more.get(float(label), Fraction(1)) for label in labels]
    upper, lower = np.where(first, of[0] * weights, zero), np.where(first, zero, -of[1] * weights)
    return Problem(task, y, lower, upper)


# ---- P ------------------------------------------------------------------------------------------


def primal(
    problem: Problem, u: Sums, norm: Interval, b: Fraction, tube: Fraction | None = None
) -> Interval:
    """Return P of a machine. tube: of a nu task; None: the one with the least P."""
    z = problem.y - u.centres - b
    tube_is_sought = bool(problem.size) and tube is None
    if tube_is_sought:
        tube = _best_tube(problem, z)
    width = problem.epsilon + (tube or 0)
    slopes = np.maximum(problem.upper, -problem.lower).astype(np.float64)
    lost = np.maximum(problem.upper * (z - width), problem.lower * (z + width))
    # The least tube may be another one within the radii: then all rows count.
    unsure = np.full(len(z), tube_is_sought)
    unsure |= np.array(
        [
            bool(v + Fraction(s * r * ROOM) > 0) if isfinite(r) else True
            for v, s, r in zip(lost, slopes, u.radii, strict=True)
        ]
    )
    radius = float(slopes[unsure] @ u.radii[unsure]) * ROOM
    if not isfinite(radius):
        return EVERYTHING
    loss = sum((v for v in lost if v > 0), Fraction(0))
    rest = loss + problem.total * b + problem.size * (tube or 0)
    return Interval(
        norm.least / 2 + rest - Fraction(radius), norm.most / 2 + rest + Fraction(radius)
    )


def _best_tube(problem: Problem, z: np.ndarray) -> Fraction:
    """Return the tube with the least P: its slope is size less the slopes of rows outside."""
    outside = np.where(z > 0, problem.upper, -problem.lower)
    if problem.task == "nu-svc":  # rows outside have y z > 1 + tube
        z, outside = problem.y * z - 1, problem.upper - problem.lower
    else:
        z = np.abs(z)
    sum_of_slopes = Fraction(0)
    for i in sorted(range(len(z)), key=lambda i: -z[i]):
        sum_of_slopes += outside[i]
        if sum_of_slopes >= problem.size:
            return z[i]
    return Fraction(0)


def best_offset(problem: Problem, u: Sums) -> Fraction:
    """Return a b with about the least P, found in float64 at the breakpoints of the losses."""
    z = (problem.y - u.centres).astype(np.float64)
    lower, upper = problem.lower.astype(np.float64), problem.upper.astype(np.float64)
    epsilon = float(problem.epsilon)
    # As b rises, a row stops losing by its upper bound at z - epsilon, and begins to lose by its
    # lower bound at z + epsilon: the slope of P rises by the bound at each.
    points = np.concatenate([z - epsilon, z + epsilon])
    rises = np.concatenate([upper, -lower])
    order = np.argsort(points, kind="stable")
    slopes = float(problem.total) - upper.sum() + np.cumsum(rises[order])
    at = int(np.searchsorted(slopes, 0))
    return Fraction(float(points[order[min(at, len(order) - 1)]]))


# ---- D ------------------------------------------------------------------------------------------


def dual(problem: Problem, norm: Interval, beta: np.ndarray) -> Interval:
    """Return D. beta : (n,) of Fraction, feasible; norm: |w|^2 of beta."""
    size, nu_svc = sum(np.abs(beta)), problem.task == "nu-svc"
    assert (problem.lower <= beta).all() and (beta <= problem.upper).all()
    assert sum(beta) == problem.total
    assert not problem.size or (size == problem.size if nu_svc else size <= problem.size)
    linear = problem.y @ beta - problem.epsilon * size
    return Interval(linear - norm.most / 2, linear - norm.least / 2)


def feasible(problem: Problem, beta: np.ndarray) -> np.ndarray:
    """Return feasible coefficients near any, (n,) of Fraction: each at its nearest bound, then a
    side is scaled, or for a prescribed sum the room of all is used in proportion."""
    beta = np.maximum(problem.lower, np.minimum(problem.upper, beta))
    zero = beta * 0
    if problem.task == "nu-svc":
        half = problem.size / 2
        positive = _with_sum(np.maximum(beta, 0), zero, problem.upper, half)
        return positive + _with_sum(np.minimum(beta, 0), problem.lower, zero, -half)
    if problem.total:
        return _with_sum(beta, problem.lower, problem.upper, problem.total)
    excess = sum(beta)
    side = np.where(beta > 0, beta, zero) if excess > 0 else np.where(beta < 0, beta, zero)
    if excess:
        beta = beta - side * (excess / sum(side))
    size = sum(np.abs(beta))
    return beta * (problem.size / size) if problem.size and size > problem.size else beta


def _with_sum(
    beta: np.ndarray, lower: np.ndarray, upper: np.ndarray, total: Fraction
) -> np.ndarray:
    left = total - sum(beta)
    room = upper - beta if left > 0 else lower - beta
    return beta + room * (left / sum(room)) if left else beta


def coefficients(
    problem: Problem, rows: Rows, machine: Machine, numbered: bool = False
) -> tuple[np.ndarray, int]:
    """Return the coefficient of each row, (n,) of Fraction, and how many vectors are no row.

    Of equal rows only the sum of their coefficients matters to w: it is given to those where D
    rises most, within their bounds. Of nu tasks the sum of each side.
    """
    exact: dict[tuple[Any, ...], list[int]] = {}
    near: dict[tuple[Any, ...], list[int]] = {}
    for i, x in enumerate(rows.X if rows.scaled is None else rows.scaled):
        exact.setdefault(tuple(x), []).append(i)
        near.setdefault(tuple(x.astype(np.float32)), []).append(i)
    wanted: dict[tuple[int, ...], list[Fraction]] = {}
    for z, coefficient in zip(machine.Z, machine.beta, strict=True):
        # Programs that write 8 digits, or float32 values, mean a row that is near.
        found = exact.get(tuple(z)) or near.get(tuple(z.astype(np.float32))) or []
        if rows.scaled is not None:
            z_near = z.astype(np.float64)
            distances = np.abs(rows.scaled - z_near) / np.maximum(np.abs(z_near), TINY)
            found = exact[tuple(rows.scaled[distances.max(axis=1).argmin()])]
        at = (int(z[0]) - 1,) if numbered else tuple(found)
        wanted.setdefault(at, []).append(coefficient)
    beta = problem.y * 0
    for at, values in wanted.items():
        sides = [values]
        if problem.size:
            sides = [[v for v in values if v > 0], [v for v in values if v < 0]]
        for side in sides:
            _fill(problem, at, sum(side, Fraction(0)), beta)
    return beta, len(wanted.get((), ()))


def _fill(problem: Problem, rows: Sequence[int], total: Fraction, beta: np.ndarray) -> None:
    """Add coefficients with this sum to rows, the steepest pieces of D first."""
    pieces = []
    for i in rows:
        low, high = problem.lower[i], problem.upper[i]
        if total < 0 or not problem.size:
            pieces.append((problem.y[i] + problem.epsilon, i, low, Fraction(0)))
        if total > 0 or not problem.size:
            pieces.append((problem.y[i] - problem.epsilon, i, Fraction(0), high))
    pieces.sort(key=lambda piece: -piece[0])
    left = total - sum((low for _, _, low, _ in pieces), Fraction(0))
    for _, i, low, high in pieces:
        step = max(Fraction(0), min(high - low, left))
        beta[i] += low + step
        left -= step


# ---- machines -----------------------------------------------------------------------------------


def objective(
    problem: Problem, kernel: Kernel, rows: Rows, machine: Machine, arithmetic: str = "exact"
) -> Interval:
    """Return P of a machine as written; of a nu task with the tube that has the least P."""
    rho = _divisor(problem, machine)
    beta, b = machine.beta * rho, machine.b * rho
    u = sums(kernel, rows.X, machine.Z, beta, arithmetic)
    return primal(problem, u, squared_norm(kernel, rows, machine.Z, beta, u, arithmetic), b)


def _divisor(problem: Problem, machine: Machine) -> Fraction:
    """Return rho, by which a model of nu-svc is divided: sum alpha was nu n."""
    size = sum(np.abs(machine.beta))
    return problem.size / size if problem.task == "nu-svc" and size else Fraction(1)


def enclosed(
    problem: Problem, kernel: Kernel, rows: Rows, machine: Machine, wanted: Fraction
) -> Interval:
    """Return P of a machine by the cheapest arithmetic whose interval is not wider than wanted."""
    pairs = len(rows.X) * max(1, len(machine.Z))
    most = {"double": inf, "double-double": 1e8, "exact": 2e7 if kernel.name == "poly" else 1e5}
    for arithmetic in UNIT:
        if pairs <= most[arithmetic]:
            found = objective(problem, kernel, rows, machine, arithmetic)
        if found.most - found.least <= wanted:
            break
    return found


def squared_norm(
    kernel: Kernel, rows: Rows, Z: np.ndarray, beta: np.ndarray, u: Sums, arithmetic: str
) -> Interval:
    """Return |w|^2. u: that of all rows, which serves for the vectors that are rows."""
    places = {tuple(x): i for i, x in enumerate(rows.X)}
    at = [places.get(tuple(z), -1) for z in Z]
    if kernel.name == "precomputed":
        at = [int(number) - 1 for number in Z[:, 0]]
    if min(at, default=0) < 0:
        u, at = sums(kernel, Z, Z, beta, arithmetic), list(range(len(Z)))
    radius = float(np.abs(beta).astype(np.float64) @ u.radii[at]) * ROOM
    if not isfinite(radius):
        return EVERYTHING
    centre = beta @ u.centres[at] if len(at) else Fraction(0)
    # |w|^2 is never below 0, unless the values of a file are no kernel.
    least = -EVERYTHING.most if kernel.name == "precomputed" else Fraction(0)
    return Interval(max(least, centre - Fraction(radius)), centre + Fraction(radius))


def dual_objective(
    problem: Problem, kernel: Kernel, rows: Rows, machine: Machine, arithmetic: str = "exact"
) -> Interval:
    """Return D of feasible coefficients near those of a machine."""
    machine = machine._replace(beta=machine.beta * _divisor(problem, machine))
    beta = feasible(problem, coefficients(problem, rows, machine, kernel.name == "precomputed")[0])
    at = np.flatnonzero(beta)
    Z = rows.X[at] if kernel.name != "precomputed" else _objects(list(at + 1)).reshape(-1, 1)
    u = sums(kernel, rows.X[at], Z, beta[at], arithmetic)
    own = Rows([], rows.weights, rows.X[at] if kernel.name != "precomputed" else rows.X)
    if kernel.name == "precomputed":
        u = sums(kernel, rows.X, Z, beta[at], arithmetic)
    return dual(problem, squared_norm(kernel, own, Z, beta[at], u, arithmetic), beta)


def kernel_values(kernel: Kernel, X: np.ndarray) -> np.ndarray:
    """Return the kernel values of every pair of rows, (n, n) float64, without bounds."""
    x = X.astype(np.float64)
    if kernel.name == "precomputed":
        return x
    if kernel.name == "rbf":
        squares = sum((x[:, [k]] - x[:, k]) ** 2 for k in range(x.shape[1]))
        return np.exp(-float(kernel.gamma) * (squares + np.zeros((len(x), len(x)))))
    if kernel.name == "linear":
        return x @ x.T
    return (float(kernel.gamma) * (x @ x.T) + float(kernel.coef0)) ** kernel.degree


def machine_of_rows(kernel: Kernel, rows: Rows, beta: np.ndarray) -> Machine:
    """Return the machine with a coefficient for each row, and b = 0."""
    numbers = np.arange(1, len(beta) + 1).astype(object).reshape(-1, 1)
    Z = numbers if kernel.name == "precomputed" else rows.X
    return Machine(Z, beta, Fraction(0), [])


def zero_machine(problem: Problem) -> Interval:
    """Return P of w = 0 with the best offset."""
    n = len(problem.y)
    u, nothing = Sums(problem.y * 0, np.zeros(n)), Interval(Fraction(0), Fraction(0))
    return primal(problem, u, nothing, best_offset(problem, u))


# ---- certificates -------------------------------------------------------------------------------


class Said(NamedTuple):
    """A certificate as a trailer or a record has it.

    The bounds of rounding are separate numbers, or parts of P and D. bounded: whether there are
    any.
    """

    primal: float
    dual: float
    gap: float
    primal_error: float
    dual_error: float
    bounded: bool

    @property
    def digits(self) -> Fraction:
        """Return the relative error that P and D as said may have in addition to their bounds."""
        return STATED if self.bounded else WITHOUT_BOUNDS

    @property
    def upper(self) -> Fraction:
        return Fraction(self.primal) + Fraction(self.primal_error)

    @property
    def lower(self) -> Fraction:
        return Fraction(self.dual) - Fraction(self.dual_error)


def said(stated: Mapping[str, Any]) -> Said | None:
    """Return the certificate of a trailer's lines or of a record; None: it has none.

    The one place that knows how they are written.
    """
    names = ("primal", "dual", "gap", "primal_error", "dual_error")
    word, found = stated.get("certificate", ""), [stated.get(name, 0.0) for name in names]
    # An infinite gap is null.
    numbers = [inf if number is None else float(number) for number in found]
    if word == "none" or not all(map(isfinite, numbers)):
        return None
    primal, dual, gap, *errors = numbers
    bounded = word in ("proven", "sampled") or any(errors)
    return Said(primal, dual, gap, errors[0], errors[1], bounded)


# Digits of P, D and the gap are those of float64; without bounds of rounding sums have fewer.
# The judge's feasible coefficients are those of the text, so D differs by rounding.
SAME = Fraction(1, 10**12)
STATED, WITHOUT_BOUNDS = Fraction(1, 10**15), Fraction(1, 10**9)


def contradictions(
    claim: Said,
    written: Interval | None,
    machines: Sequence[Interval],
    least: Fraction = Fraction(0),
    distance: Callable[[], Fraction] | None = None,
) -> Iterator[str]:
    """Yield how a certificate is false, as sentences.

    written: P of the machine that it is about; machines: P of any machines of the problem; least:
    the size below which an objective of one-class counts as 0 in the gap. distance: returns the
    least that P - D of the coefficients can be. It decides where the gap is less than P and D with
    their bounds of rounding say, since rounding of the same coefficients cancels; None: there is
    no other D than the one said
    """
    scale = max(abs(Fraction(claim.primal)), abs(Fraction(claim.dual)), least)
    digits = claim.digits * scale
    if written is not None and claim.upper + digits < written.least:
        yield f"P {float(claim.upper):.12g} said, {float(written.least):.12g} of the model"
    best = min(each.most for each in (*machines, *([written] if written else [])))
    if claim.lower - digits > best:
        yield f"D {float(claim.lower):.12g} said, a machine has P {float(best):.12g}"
    gap = (claim.upper - claim.lower) / scale if scale else Fraction(0)
    if distance is not None and Fraction(claim.gap) + STATED + gap * STATED < gap:
        gap = max(Fraction(claim.primal) - Fraction(claim.dual), distance()) / scale - SAME
    if Fraction(claim.gap) + STATED + gap * STATED < gap:
        yield f"gap {claim.gap:.6g} said, {float(gap):.6g} by P and D"


def resolution(claim: Said, least: Fraction) -> Fraction:
    """Return how exactly P must be known to judge a claim: the gap, or the digits of P and D."""
    scale = max(abs(Fraction(claim.primal)), abs(Fraction(claim.dual)), least)
    return max(claim.upper - claim.lower, Fraction(claim.gap) * scale, WITHOUT_BOUNDS * scale)


class Verdict(NamedTuple):
    """What is wrong with a certificate, and how far the judge may err, as a share of the gap."""

    wrong: list[str]
    doubt: float


def judge(
    data: Path,
    model: Path,
    stated: Mapping[str, Any],
    task: str,
    others: Callable[[Problem, Kernel, Rows], list[Interval]] | None = None,
    read: Callable[[Path], Rows] = read_rows,
    **numbers: Any,
) -> Verdict | None:
    """Judge the certificate of a model; None: it has none.

    stated: the trailer, or a record of events; others: returns P of further machines; read: reads
    the data; numbers: as for `problem_of`
    """
    claim = said(stated)
    if claim is None:
        return None
    rows = scaled(read(data), read_trailer(model))
    kernel, machine = read_model(model, rows.X.shape[1])
    problem = problem_of(rows, task, machine.labels, **numbers)
    kinds = [rows]
    if kernel.name == "precomputed":
        # What is said of P holds for the values of the file, and all for the nearest kernel.
        rows, machine = among_themselves(rows, machine)
        kinds = [rows, made_semidefinite(rows)]
    verdicts = []
    for each in kinds:
        # No machine bounds the optimum of values that are no kernel.
        is_kernel = each is kinds[-1]
        more = others(problem, kernel, each) if others and is_kernel else []
        verdicts.append(_judged(claim, problem, kernel, each, machine, more))
    return Verdict(
        [wrong for one in verdicts for wrong in one.wrong], max(one.doubt for one in verdicts)
    )


def _judged(
    claim: Said,
    problem: Problem,
    kernel: Kernel,
    rows: Rows,
    machine: Machine,
    others: Sequence[Interval],
) -> Verdict:
    least = least_objective(problem, kernel, rows)
    needed = resolution(claim, least)
    written = enclosed(problem, kernel, rows, machine, needed / 1000)
    machines = [*others, zero_machine(problem)] if problem.task != "nu-svc" else [*others]

    def distance() -> Fraction:
        arithmetic = "double-double" if len(machine.Z) ** 2 <= 1e7 else "double"
        return written.least - dual_objective(problem, kernel, rows, machine, arithmetic).most

    wrong = contradictions(claim, written, machines, least, distance if claim.bounded else None)
    width = written.most - written.least
    return Verdict(list(wrong), float(width / needed) if needed else float(width > 0))


def least_objective(problem: Problem, kernel: Kernel, rows: Rows) -> Fraction:
    """Return the size below which an objective of one-class counts as 0: a hundredth of the
    optimum of orthogonal rows; 0 of other tasks."""
    if problem.task != "one-class" or kernel.name == "precomputed":
        return Fraction(0)
    n = len(problem.y)
    products = [sum((Fraction(v) ** 2 for v in x), Fraction(0)) for x in rows.X]
    if kernel.name == "poly":
        products = [(kernel.gamma * v + kernel.coef0) ** kernel.degree for v in products]
    diagonal = Fraction(n) if kernel.name == "rbf" else sum(products, Fraction(0))
    return Fraction(1, 200) * (problem.total / n) ** 2 * diagonal
