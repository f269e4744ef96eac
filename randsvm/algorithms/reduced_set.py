"""Reduced sets: f of a machine on few of its support vectors, with new coefficients.

Burges, "Simplified Support Vector Decision Rules", ICML 1996; Schoelkopf et al., "Input Space
versus Feature Space in Kernel-Based Methods", IEEE Trans. Neural Networks 10, 1999. The rows are
chosen by matching pursuit, as in Keerthi, Chapelle, DeCoste, "Building Support Vector Machines with
Reduced Classifier Complexity", JMLR 7, 2006, with a pivoted Cholesky factor in blocks of random
rows, as in Chen, Epperly, Tropp, Webber, "Randomly pivoted Cholesky", 2022.

    f = sum_j beta_j K(z_j, .) over S support vectors     f~ = sum_k a_k K(z_k, .) over m of them
    K ~ L L'     q_k: orthonormal functions, q_k(z_j) = L_jk     <f, q_k> = c_k,  L_B c = f(z_B)

|f - f~|^2 = |f|^2 - sum c_k^2. If f is optimal, P(f~) - P(f) is at least half of it. L has a row
for each of T candidates z_j, which are all support vectors or a random sample of them. f, and so
c, is that of all support vectors in either case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from math import inf, log2
from typing import NamedTuple, TypeAlias

import numpy as np
import scipy

from randsvm.arrays import CsrMatrix, slices, squared_norms
from randsvm.data.sampling import CANDIDATES_DRAW, REDUCTION_DRAW, Draw, Draws, SmallestKeys
from randsvm.events import Progress, emit
from randsvm.kernels.expansion import Expansion, exact_gram, exact_layout
from randsvm.kernels.layouts import Layout
from randsvm.records import record
from randsvm.svm.running_values import RunningValues, ShardValues
from randsvm.svm.scan import Scan
from randsvm.svm.solution import Certificate, KernelSolution, ReducedMachine
from randsvm.svm.tasks import Task

# scipy.linalg is written in full: scipy imports it at its first use, which takes 30 ms.

# The number of rows that are chosen at once is 1 / BLOCKS of the basis so far, but at least
# MIN_BLOCK and at most BLOCK.
BLOCK, MIN_BLOCK, BLOCKS = 25, 2, 16
# Candidates for each row of a block, from which matching pursuit takes the best.
CANDIDATES = 8
# Rows whose squared distance from the span of the basis is below this part of K(x, x) are in the
# span. Only the rounding of r = f - f~ would choose them, and their coefficients would cancel.
# Measured on 8,647 support vectors of checkerboard: 200 rows leave |f - f~|^2 = 20 (26 with 1e-8,
# 94 with 1e-10); if u has errors of 0.001, they leave 45 (900 with 1e-8).
IN_SPAN = 1e-5
# Widths of the smoothed hinge, in standard deviations of f, and the most Newton steps for each.
WIDTHS, MAX_STEPS = (0.3, 0.1, 0.05, 0.02), 6
# Rows whose kernel values with a basis are computed at once for Newton steps.
BASIS_ROWS = 1024
# Sums over shards are rounded to multiples of their largest possible value times 2^-EXACT_BITS, so
# that they add up to the same bits in any grouping.
EXACT_BITS = 50
# The next width follows if the next Newton step promises to lower P by less than this part of P.
SMALL_STEP = 1e-6


@record
class ReducedSet:
    """A basis. rows : (m,) positions of its rows, in order of choice; L : (m, m) lower triangular;
    c : (m,)."""

    rows: np.ndarray
    L: np.ndarray
    c: np.ndarray

    def first(self, m: int) -> ReducedSet:
        """Return the basis of the first m rows."""
        return ReducedSet(self.rows[:m], self.L[:m, :m], self.c[:m])

    @property
    def coefficients(self) -> np.ndarray:
        """The coefficients a of the projection of f, (m,)."""
        return scipy.linalg.solve_triangular(self.L, self.c, lower=True, trans="T")


# fmt: off
def choose(
    full: KernelSolution, candidates: np.ndarray, f: np.ndarray, size: int, draws: Draws
) -> ReducedSet:
    """Choose up to `size` of the candidates.

    full : a machine with its points; candidates : (T,) positions of support vectors, ascending;
    f : (T,) their f without b; rounded values of f are precise enough here
    """
    assert full.points is not None
    X, Z = full.points.X, full.points.X[candidates]
    layout = exact_layout(full.kernel, Z)
    expansion = Expansion(layout, X, full.beta)
    r, d = f.copy(), full.kernel.diagonal(squared_norms(Z))  # r = f - f~, d = K - L L'
    least = IN_SPAN * d
    L, rows, c = np.empty((len(r), size), order="F"), np.empty(0, np.int64), np.empty(0)
    while (m := len(rows)) < size:
        emit(Progress("choosing support vectors", m, None, "beat"))
        k = min(size - m, max(MIN_BLOCK, min(BLOCK, m // BLOCKS)))
        B = draw(gains(r, d, least), CANDIDATES * k, draws)  # |f - f~|^2 falls by r^2/d for one row
        B = B[pursue(exact_gram(full.kernel, Z[B]) - L[B, :m] @ L[B, :m].T, r[B], k, least[B])]
        if not len(B):
            break
        G = layout.values(Z, Z[B]) - L[:, :m] @ L[B, :m].T   # K less what the basis explains
        factor = scipy.linalg.cholesky(G[B], lower=True)
        G = L[:, m : m + len(B)] = scipy.linalg.solve_triangular(factor, G.T, lower=True).T
        left = expansion.values(Z[B]) - L[B, :m] @ c
        c = np.concatenate([c, scipy.linalg.solve_triangular(factor, left, lower=True)])
        rows = np.concatenate([rows, B])
        r -= G @ c[m:]
        d -= np.einsum("ij,ij->i", G, G)
        d[B] = 0.0
    return ReducedSet(candidates[rows], np.tril(L[rows, : len(rows)]), c)


def pursue(G: np.ndarray, r: np.ndarray, k: int, least: np.ndarray) -> list[int]:
    """Return up to k positions by matching pursuit: each lowers |f - f~|^2 the most.

    G : (q, q) kernel values less what the basis explains; r : (q,) f - f~; least : (q,), a row with
    a G_ii of at most this is in the span of the basis.
    """
    chosen, d, Q = list[int](), G.diagonal().copy(), np.zeros((len(G), k))
    for t in range(min(k, len(G))):
        gain = gains(r, d, least)
        i = int(np.argmax(gain))
        if not gain[i] > 0:
            break
        Q[:, t] = (G[:, i] - Q[:, :t] @ Q[i, :t]) / np.sqrt(d[i])
        r, d = r - Q[:, t] * (r[i] / np.sqrt(d[i])), d - Q[:, t] ** 2
        d[i] = 0.0
        chosen.append(i)
    return chosen


def gains(r: np.ndarray, d: np.ndarray, least: np.ndarray) -> np.ndarray:
    """Return by how much each row lowers |f - f~|^2, 0 where d <= least; all (q,) float64."""
    return np.divide(r**2, d, out=np.zeros(len(d)), where=d > least)


def draw(score: np.ndarray, k: int, draws: Draws) -> np.ndarray:
    """Return up to k positions, drawn without replacement in proportion to their scores."""
    uniform = (draws.next().keys(0, len(score)) + 0.5) / 2.0**64
    with np.errstate(divide="ignore", over="ignore"):
        times = -np.log(uniform) / score                     # the first k of exponential clocks
    first = np.argsort(times, kind="stable")[:k]
    return first[np.isfinite(times[first])]
# fmt: on


# --- Newton steps on P over all rows ----------------------------------------------------------


class Basis(NamedTuple):
    """The rows of a basis. number: from 1, distinguishes the bases of one run; X : (m, d) CSR."""

    number: int
    layout: Layout
    X: CsrMatrix

    def blocks(self, values: ShardValues) -> Iterable[np.ndarray]:
        """Return K(x_i, z_j) of the rows of a shard, and 1 in a last column, (rows, m + 1) each.

        They are kept if memory allows.
        """
        number, blocks, size = values.basis_values
        if number == self.number:
            return blocks
        values.budget.release(size)
        size = 8 * len(values) * (self.X.shape[0] + 1)
        keeps = values.budget.reserve(size)
        # A pass that ends early, as by a time limit, leaves no values.
        values.basis_values = 0, [], size * keeps
        found = (
            np.column_stack([K, np.ones(len(K))])
            for chunk in values.D.chunks(values.shard)
            for at in slices(len(chunk.y), BASIS_ROWS)
            for K in [self.layout.values(chunk.X[at], self.X)]
        )
        if not keeps:
            return found
        values.basis_values = self.number, list(found), size
        return values.basis_values[1]


def losses(
    values: ShardValues, task: Task, basis: Basis, ab: np.ndarray, width: float, grid: float
) -> np.ndarray:
    """Return sums over the losses of a machine on a basis in a shard, (m + 2, m + 3) float64.

    The first m + 1 rows are the hessian and the gradient of the smoothed losses by a and b. The
    last column begins with the losses and the smoothed losses. A hinge max(0, t) is smoothed to
    (t + h)^2 / 4h between -h and h. ab : (m + 1,), a and b; width: h; grid: see EXACT_BITS.
    """
    h, y, start = width, values.y, 0
    sums = np.zeros((len(ab) + 1, len(ab) + 2))
    hessian, gradient, loss = sums[:-1, :-2], sums[:-1, -2], sums[:, -1]
    lower, upper = task.box(y, values.weights)
    tube = task.epsilon + task.tube
    for K in basis.blocks(values):
        at = slice(start, start + len(K))
        start += len(K)
        z = y[at] - K @ ab
        slope, curvature = np.zeros((2, len(K)))
        # The loss is upper max(0, z - tube) + (-lower) max(0, -z - tube).
        for bound, sign in ((upper[at], 1.0), (-lower[at], -1.0)):
            t = sign * z - tube
            bend = np.clip(t + h, 0.0, 2 * h)
            loss[0] += bound @ np.maximum(t, 0.0)
            loss[1] += bound @ (bend**2 / (4 * h) + np.maximum(t - h, 0.0))
            slope -= sign * bound * bend / (2 * h)
            curvature += bound * ((bend > 0) & (bend < 2 * h)) / (2 * h)
        gradient += slope @ K
        bent = np.flatnonzero(curvature)
        hessian += K[bent].T @ (curvature[bent, None] * K[bent])
    return np.round(sums / grid) * grid


def objective(
    values: RunningValues, basis: Basis, ab: np.ndarray, h: float
) -> tuple[float, float, np.ndarray, np.ndarray]:
    """Return P less |w|^2 / 2 of a machine on a basis, its smoothed form, and that one's gradient,
    (m + 1,), and hessian, (m + 1, m + 1), by (a, b). h : width of the smoothing."""
    task, m = values.task, len(ab) - 1
    diagonal = basis.layout.kernel.diagonal(squared_norms(basis.X))
    largest = float(np.abs(diagonal).max(initial=1.0))
    furthest = float(np.abs(values.labels).max()) + largest * float(1 + np.abs(ab).sum())
    # Bounds of the sums of a shard in each column: of the hessian, the gradient and the losses.
    bounds = np.repeat([largest**2 / h, largest, furthest], [m + 1, 1, 1])
    bounds *= values.total_weight * max(task.bounds)
    grid = 2.0 ** (np.ceil(np.log2(bounds)) - EXACT_BITS)
    query = partial(losses, task=task, basis=basis, ab=ab, width=h, grid=grid)
    sums = values.ask(query, "reducing")
    # The term t b of svm/tasks.py.
    sums[-2, -2] += task.coefficient_sum
    exact, smoothed = (sums[:2, -1] + task.coefficient_sum * ab[-1]).tolist()
    return exact, smoothed, sums[:-1, -2], sums[:-1, :-2]


# fmt: off
def minimise(
    P: Callable[[np.ndarray, float], tuple[float, float, np.ndarray, np.ndarray]],
    L: np.ndarray, a: np.ndarray, b: float, unit: float,
) -> tuple[np.ndarray, float]:
    """Return coefficients and b with a lower P, by Newton's method on smoothed losses.

    P: returns the losses of (a, b) and their form smoothed over a width. unit: of the widths.
    """
    M = scipy.linalg.block_diag(L, 1.0)
    x = M.T @ np.append(a, b)                                # |w|^2 = v'v, x = (v, b)
    penalised = np.append(np.ones(len(a)), 0.0)              # v is part of |w|^2, b is not
    lowest, best = np.inf, np.append(a, b)
    for width in WIDTHS:
        step, part, last = np.zeros_like(x), 1.0, np.inf
        for _ in range(MAX_STEPS):
            new = x + part * step
            ab = scipy.linalg.solve_triangular(M, new, lower=True, trans="T")
            exact, smoothed, gradient, H = P(ab, width * unit)
            half = float(penalised @ new**2) / 2
            if exact + half < lowest:
                lowest, best = exact + half, ab
            value = smoothed + half
            if value > last:                                 # the step is too long
                part /= 4
                continue
            x, part, last = new, 1.0, value
            gradient = scipy.linalg.solve_triangular(M, gradient, lower=True) + penalised * x
            H = scipy.linalg.solve_triangular(M, H, lower=True)
            H = scipy.linalg.solve_triangular(M, H.T, lower=True)
            H.flat[:: len(x) + 1] += np.where(penalised, 1.0, 1e-9 * (1 + H[-1, -1]))
            step = newton_step(H, gradient)
            if -gradient @ step < SMALL_STEP * abs(value):
                break
    return best[:-1], float(best[-1])
# fmt: on


def newton_step(H: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    """Return -H^-1 gradient, (m + 1,).

    The part of H by v has eigenvalues of 1 or more. If the basis is nearly dependent, rounding may
    leave some of H below 0; then those below 1 count as 1, which shortens the step.
    """
    try:
        return -scipy.linalg.cho_solve(scipy.linalg.cho_factor(H), gradient)
    except np.linalg.LinAlgError:
        values, Q = scipy.linalg.eigh(H)
        return -Q @ (Q.T @ gradient / np.maximum(values, 1.0))


# --- the reduction of a machine ---------------------------------------------------------------

# The basis is chosen from a random sample of support vectors if they are more than
# MIN_CANDIDATES, and more than CANDIDATES_PER_ROW for each row of the basis. The sample bounds
# the memory of the factor: 8 bytes for each candidate and row. Its size follows from both numbers
# alone, so that --memory and --jobs change no model.
MIN_CANDIDATES, CANDIDATES_PER_ROW = 8192, 4
# Bases of --reduce auto have these numbers of rows, until one suffices: the time to choose a basis
# grows with the cube of its rows. Then it tries ATTEMPTS numbers between this one and the one
# before, or a part of the first.
SIZES, FIRST_PART, ATTEMPTS = (256, 512, 1024, 2048, 4096), 1 / 8, 4
# The rows of the basis of a machine that stands in for the solution of an inner set. Few of them
# are not close to f at other rows: measured on 10,000,000 rows of checkerboard, 179 have a gap of
# 8.9% over all rows.
INNER_SIZE = 1024


class SubtaskReduction(NamedTuple):
    """The changes by a reduction in one subtask.

    full : certificate of the full machine; rows : number of rows; largest, mean : changes of f over
    the rows; labels_changed : rows whose f changes its sign
    """

    full: Certificate
    rows: int
    largest: float = 0.0
    mean: float = 0.0
    labels_changed: int = 0


# A reduced machine, and its certificate with P of this machine and D of the full one.
Reduction: TypeAlias = tuple[ReducedMachine, Certificate]


class Reducer:
    """Reduces the solution of one subtask.

    scan : holds u for all rows, at first of the full machine, then of the one examined last
    size : at most this number of support vectors; None: the fewest within `gap`
    lowers : whether P is lowered if the projection misses the gap
    room : the largest increase of P within the gap
    """

    def __init__(
        self,
        scan: Scan,
        full: KernelSolution,
        certificate: Certificate,
        size: int | None,
        gap: float | None,
        seed: int,
        lowers: bool = True,
    ) -> None:
        self.scan, self.full, self.certificate = scan, scan.completed(full), certificate
        self.size, self.seed, self.lowers = size, seed, lowers
        assert self.full.points is not None
        self.points = self.full.points
        self.f = scan.u + full.b
        scale = max(abs(certificate.primal), abs(certificate.dual), certificate.floor)
        self.room = (gap or 0.0) * scale - (certificate.primal - certificate.dual)
        self.bases = 0

    def run(self) -> tuple[KernelSolution, Certificate]:
        """Return the reduced machine; the full one if no smaller one does."""
        found = None
        if self.size is None and self.room > 0:
            found = self._fewest(SIZES, ATTEMPTS) if self.lowers else self._fewest((INNER_SIZE,), 0)
        elif self.size and self.size < len(self.full):
            found = self._attempt(self._basis(self.size))
        return found or (self.full, self.certificate)

    # --- the basis -------------------------------------------------------------------------

    def _basis(self, size: int) -> ReducedSet:
        """Return a basis of `size` support vectors, or fewer if these span all candidates."""
        full, S = self.full, len(self.full)
        T = min(S, max(MIN_CANDIDATES, CANDIDATES_PER_ROW * size))
        keys = Draw(self.seed, CANDIDATES_DRAW).keys(0, S)
        candidates = np.sort(SmallestKeys.of(T, np.arange(S), keys).rows)
        f = self.f[full.rows[candidates]] - full.b
        return choose(full, candidates, f, size, Draws(self.seed, REDUCTION_DRAW))

    # --- machines on a basis ---------------------------------------------------------------

    def _fewest(self, sizes: tuple[int, ...], attempts: int) -> Reduction | None:
        """Return the machine with the fewest support vectors within the gap; None: none is.

        sizes: to try, until one suffices; attempts: numbers to try between that one and the last
        """
        low, cost, most = 0, inf, len(self.full) - 1
        for size in sizes:
            chosen = self._basis(min(size, most))
            best, high = self._attempt(chosen), len(chosen.rows)
            last, cost = cost, self._cost(best)
            if cost <= self.room:
                break
            # The largest basis does not suffice if the cost is nan, or if it keeps falling at this
            # rate: by cost / last each time that the size is doubled.
            expected = cost * (cost / last) ** log2(sizes[-1] / size)
            if high < size or high == most or not expected <= self.room:
                return None
            low = high
        low = low or int(high * FIRST_PART)
        for _ in range(attempts):
            size = int(np.sqrt(low * high))
            if not low < size < high:
                break
            found = self._attempt(chosen.first(size))
            if self._cost(found) <= self.room:
                best, high = found, size
            else:
                low = size
        return best

    def _cost(self, found: Reduction) -> float:
        """Return the increase of P by a reduction."""
        return found[1].primal - self.certificate.primal

    def _attempt(self, chosen: ReducedSet) -> Reduction:
        """Return the machine on a basis: the projection of f if it is within the gap, else a
        machine with a lower P, which is further from f."""
        a = chosen.coefficients
        projected = self._machine(chosen, a, self.full.b)
        if self._cost(projected) <= self.room or not self.lowers:
            return projected
        self.bases += 1
        X = self.points.X[chosen.rows]
        basis = Basis(self.bases, exact_layout(self.full.kernel, X), X)
        P = partial(objective, self.scan, basis)
        a, b = minimise(P, chosen.L, a, self.full.b, float(np.std(self.f)) or 1.0)
        return min(self._machine(chosen, a, b), projected, key=lambda one: one[1].primal)

    def _machine(self, chosen: ReducedSet, a: np.ndarray, b: float) -> Reduction:
        """Evaluate the machine with these coefficients, with the b of least P."""
        full, order = self.full, np.argsort(self.full.rows[chosen.rows])
        places = chosen.rows[order]
        points, weights = self.points[places], full.weights
        weights = None if weights is None else weights[places]
        machine = ReducedMachine(
            points.rows, a[order], b, full.problem, points, full.tube, weights=weights
        )
        solution, V = self.scan.examine(machine)
        certificate = replace(
            self.certificate, primal=V.certificate.primal, primal_error=0.0, distance=None
        )
        assert isinstance(solution, ReducedMachine)
        f = self.scan.u + solution.b
        change, labels = np.abs(f - self.f), np.count_nonzero((f > 0) != (self.f > 0))
        largest, mean = float(change.max()), float(change.mean())
        changes = SubtaskReduction(self.certificate, len(f), largest, mean, int(labels))
        return replace(solution, gap=certificate.gap, full=self.full, changes=changes), certificate
