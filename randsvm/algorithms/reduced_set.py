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

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
import scipy

from randsvm.arrays import CsrMatrix, slices, squared_norms
from randsvm.data.sampling import CANDIDATES_DRAW, REDUCTION_DRAW, Draw, Draws, SmallestKeys
from randsvm.events import Progress, Reduced, emit
from randsvm.kernels.gram import exact_gram, exact_layout
from randsvm.kernels.kernel import Kernel
from randsvm.svm.basis import Basis, objective
from randsvm.svm.scan import Scan
from randsvm.svm.solution import Certificate, KernelSolution, ReducedMachine

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
# Widths of the smoothed hinge, in units of the margin, and the most Newton steps for each.
WIDTHS, MAX_STEPS = (0.3, 0.1, 0.05, 0.02), 6
# The next width follows if the next Newton step promises to lower P by less than this part of P.
SMALL_STEP = 1e-6


@dataclass(frozen=True)
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
def choose(z: SampledSupportVectors, size: int, draws: Draws) -> ReducedSet:
    """Choose up to `size` of the candidates z."""
    r, d, least = z.f.copy(), z.diagonal.copy(), IN_SPAN * z.diagonal  # r = f - f~, d = K - L L'
    L, rows, c = np.empty((len(r), size), order="F"), np.empty(0, np.int64), np.empty(0)
    while (m := len(rows)) < size:
        score = gains(r, d, least)
        k = min(size - m, max(MIN_BLOCK, min(BLOCK, m // BLOCKS)))
        B = draw(score, CANDIDATES * k, draws)               # |f - f~|^2 falls by r^2/d for one row
        B = B[pursue(exact_gram(z.kernel, z.rows[B]) - L[B, :m] @ L[B, :m].T, r[B], k, least[B])]
        if not len(B):
            break
        G, f = z.columns(B)
        G -= L[:, :m] @ L[B, :m].T                           # K less what the basis explains
        factor = scipy.linalg.cholesky(G[B], lower=True)
        G = scipy.linalg.solve_triangular(factor, G.T, lower=True).T
        L[:, m : m + len(B)], rows = G, np.concatenate([rows, B])
        f -= L[B, :m] @ c
        c = np.concatenate([c, scipy.linalg.solve_triangular(factor, f, lower=True)])
        r -= G @ c[m:]
        d -= np.einsum("ij,ij->i", G, G)
        d[B] = 0.0
    return ReducedSet(rows, np.tril(L[rows, : len(rows)]), c)


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


def minimise(
    P: Callable[[np.ndarray, float], tuple[float, float, np.ndarray, np.ndarray]],
    L: np.ndarray, a: np.ndarray, b: float, unit: float,
) -> tuple[np.ndarray, float]:
    """Return coefficients and b with a lower P, by Newton's method on smoothed losses.

    P: returns the losses of (a, b) and their form smoothed over a width. unit: of the widths.
    """
    M = scipy.linalg.block_diag(L, 1.0)
    x = M.T @ np.append(a, b)                                # |w|^2 = v'v, x = (v, b)
    norm = np.append(np.ones(len(a)), 0.0)
    lowest, best = np.inf, np.append(a, b)
    for width in WIDTHS:
        step, part, last = np.zeros_like(x), 1.0, np.inf
        for _ in range(MAX_STEPS):
            new = x + part * step
            ab = scipy.linalg.solve_triangular(M, new, lower=True, trans="T")
            exact, smoothed, gradient, H = P(ab, width * unit)
            half = float(norm @ new**2) / 2
            if exact + half < lowest:
                lowest, best = exact + half, ab
            value = smoothed + half
            if value > last:                                 # the step is too long
                part /= 4
                continue
            x, part, last = new, 1.0, value
            gradient = scipy.linalg.solve_triangular(M, gradient, lower=True) + norm * x
            H = scipy.linalg.solve_triangular(M, H, lower=True)
            H = scipy.linalg.solve_triangular(M, H.T, lower=True)
            H.flat[:: len(x) + 1] += np.where(norm, 1.0, 1e-9 * (1 + H[-1, -1]))
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


# The basis is chosen from a random sample of support vectors if they are more than
# MIN_CANDIDATES, and more than CANDIDATES_PER_ROW for each row of the basis. The sample bounds
# the memory of the factor: 8 bytes for each candidate and row. Its size follows from both numbers
# alone, so that --memory and --jobs change no model.
MIN_CANDIDATES, CANDIDATES_PER_ROW = 8192, 4
# --reduce auto tries bases of at most this number of rows: the time to choose a basis grows with
# the cube of its rows.
MAX_ROWS = 4096
# A cost is an increase of P. Smaller costs than this part of P count as this part.
MIN_COST = 1e-9
# Values of f that are computed or compared at once.
VALUES_AT_ONCE = 2**20
# Support vectors beside the candidates whose kernel values are computed at once.
ROWS_AT_ONCE = 2**14
# --reduce auto tries at most ATTEMPTS smaller numbers of support vectors. All are above MIN_PART
# times the first number.
ATTEMPTS, MIN_PART = 4, 1 / 8
# A machine that stands in for the solution of an inner set uses this part of the gap on the rows of
# that set: it must be close to f at other rows, too. Measured on 10,000,000 rows of checkerboard:
# with all of the gap it has 179 support vectors and a gap of 8.9% over all rows.
SPARE = 1 / 8
# More support vectors are tried in steps of this factor.
GROWTH = 1.5


class SubtaskReduction(NamedTuple):
    """The changes by a reduction in one subtask.

    full : certificate of the full machine; largest, mean : changes of f over the rows
    labels_changed : rows whose f changes its sign; rows : number of rows
    """

    full: Certificate
    largest: float
    mean: float
    labels_changed: int
    rows: int


def total_reduction(
    parts: Sequence[SubtaskReduction], full: Certificate, before: int, regression: bool
) -> Reduced:
    """Return the changes of all subtasks. full : sum of their certificates; before : support
    vectors of the full machine."""
    rows = sum(one.rows for one in parts)
    return Reduced(
        support_vectors_before=before,
        full_gap=full.gap,
        largest_change=max(one.largest for one in parts),
        mean_change=sum(one.mean * one.rows for one in parts) / rows,
        labels_changed=0 if regression else sum(one.labels_changed for one in parts),
    )


class EvaluatedReduction(NamedTuple):
    """A machine with its split certificate, and how its f differs from that of the full one."""

    solution: KernelSolution
    certificate: Certificate
    changes: SubtaskReduction


class SampledSupportVectors:
    """Some support vectors of a machine as candidates for a basis.

    diagonal : (T,) K(z, z) of the candidates; rounded values of f are precise enough here
    chosen : (T,) positions of the candidates, ascending; X : (S, d) rows and beta : (S,) of all
    support vectors; f : (T,) f of the candidates without b
    """

    def __init__(
        self,
        kernel: Kernel,
        X: CsrMatrix,
        beta: np.ndarray,
        chosen: np.ndarray,
        f: np.ndarray,
    ) -> None:
        self.kernel, self.X, self.beta, self.f = kernel, X, beta, f
        self.rows = X[chosen]
        self.layout = exact_layout(kernel, self.rows)
        self.diagonal = kernel.diagonal(squared_norms(self.rows))
        self.chosen, self.others = chosen, np.setdiff1d(np.arange(len(beta)), chosen)

    def columns(self, B: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the kernel values of all candidates with those in B, (T, k), and f of B, (k,)."""
        emit(Progress("choosing support vectors", 0, None, "beat"))
        centres = self.rows[B]
        K = self.layout.values(self.rows, centres)
        f = K.T @ self.beta[self.chosen]
        for at in slices(len(self.others), ROWS_AT_ONCE):
            some = self.others[at]
            f += self.layout.values(self.X[some], centres).T @ self.beta[some]
        return K, f


class Reduction:
    """Reduces the solution of one subtask.

    scan : holds u for all rows, at first of the full machine, then of the one examined last
    size : at most this number of support vectors; None: the fewest within `gap`
    lowers : whether P is lowered if the projection misses the gap; otherwise the machine is the
        projection, and uses a part of the gap only
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
        self.scan, self.full, self.certificate = scan, full, certificate
        self.size, self.gap, self.seed, self.lowers = size, gap or 0.0, seed, lowers
        points = scan.completed(full).points
        assert points is not None
        self.points = points
        self.f = np.empty(scan.D.n)
        for at, u in self._parts():
            self.f[at] = u + full.b
        self.scale = max(abs(certificate.primal), abs(certificate.dual), certificate.least)
        # The largest increase of P within the gap, or the part of it that is used.
        room = self.gap * self.scale - (certificate.primal - certificate.dual)
        self.planned_cost = room * (1.0 if lowers else SPARE)
        self.bases = 0
        # Costs of projections by the number of rows of the basis, and by which factor the last
        # Newton steps lowered such a cost.
        self.costs: dict[int, float] = {}
        self.lowered = 1.0

    def run(self) -> EvaluatedReduction:
        """Return the reduced machine; the full one if no smaller one does."""
        if self.size is None:
            found = self._fewest(self._choose())
        else:
            smaller = self.size < len(self.full)
            found = self._attempt(self._basis(self.size)) if smaller else None
        if found is not None:
            return found
        unchanged = SubtaskReduction(self.certificate, 0.0, 0.0, 0, len(self.f))
        return EvaluatedReduction(
            replace(self.full, points=self.points), self.certificate, unchanged
        )

    # --- the basis -------------------------------------------------------------------------

    def _choose(self) -> ReducedSet:
        """Return a basis of as many rows as may be needed."""
        most = min(len(self.full), MAX_ROWS)
        size = min(most, 256)
        while True:
            chosen = self._basis(size)
            # Costs on different bases of nearly equal size say nothing about the slope.
            self.costs.clear()
            for m in (len(chosen.rows) // 2, len(chosen.rows)):
                if m:
                    self._projected(chosen.first(m))
            if len(chosen.rows) < size or size == most or not size < self._needed() <= most:
                return chosen
            size = min(2 * size, most)

    def _basis(self, size: int) -> ReducedSet:
        """Return a basis of `size` support vectors, or fewer if these span all candidates."""
        full, S = self.full, len(self.full)
        T = min(S, max(MIN_CANDIDATES, CANDIDATES_PER_ROW * size))
        keys = Draw(self.seed, CANDIDATES_DRAW).keys(0, S)
        candidates = np.sort(SmallestKeys.of(T, np.arange(S), keys).rows)
        f = self.f[full.rows[candidates]] - full.b
        kernel = Kernel.of(full.problem)
        z = SampledSupportVectors(kernel, self.points.X, full.beta, candidates, f)
        chosen = choose(z, size, Draws(self.seed, REDUCTION_DRAW))
        return replace(chosen, rows=candidates[chosen.rows])

    def _needed(self) -> int:
        """Return an estimate of the fewest support vectors with at most the planned cost. Between
        two measured costs, and beyond them, the cost counts as a power of the number."""
        S, sizes, cost = len(self.full), np.array(sorted(self.costs)), self.planned_cost
        if cost <= 0 or not len(sizes):
            return S
        costs = np.minimum.accumulate([self.costs[m] for m in sizes.tolist()])
        x, y, wanted = np.log(sizes), np.log(costs * self.lowered), np.log(cost)
        if len(sizes) == 1 or y[0] == y[-1]:
            return S if wanted < y[-1] else int(sizes[0])
        # The part of the curve with this cost, or the nearest one that is not flat.
        steep = np.flatnonzero(np.diff(y) < 0)
        i = steep[min(np.searchsorted(-y[steep + 1], -wanted), len(steep) - 1)]
        found = x[i] + (y[i] - wanted) / (y[i] - y[i + 1]) * (x[i + 1] - x[i])
        return int(min(max(np.ceil(np.exp(min(found, 50.0))), 1), S))

    # --- machines on a basis ---------------------------------------------------------------

    def _fewest(self, chosen: ReducedSet) -> EvaluatedReduction | None:
        """Return the machine with the fewest support vectors within the gap; None: there is none.

        The costs of projections give the first number; then more are tried until one suffices, and
        fewer, with a lowered P, by bisection.
        """
        high = self._needed()
        if high > MAX_ROWS:
            return None
        high = min(high, len(chosen.rows))
        best, low = self._within_gap(chosen.first(high)), int(high * MIN_PART)
        while best is None and high < len(chosen.rows):
            low, high = high, min(int(GROWTH * high) + 1, len(chosen.rows))
            best = self._within_gap(chosen.first(high))
        for _ in range(ATTEMPTS if best and self.lowers else 0):
            size = int(np.sqrt(max(low, 1) * high))
            if not low < size < high:
                break
            found = self._within_gap(chosen.first(size))
            if found is None:
                low = size
            else:
                best, high = found, size
        return best

    def _within_gap(self, chosen: ReducedSet) -> EvaluatedReduction | None:
        if len(chosen.rows) >= len(self.full):
            return None
        found = self._attempt(chosen)
        return found if found.certificate.gap <= self.gap else None

    def _attempt(self, chosen: ReducedSet) -> EvaluatedReduction:
        """Return the machine on a basis: the projection of f if it is within the gap, else a
        machine with a lower P, which is further from f."""
        projected = self._projected(chosen)
        if projected.certificate.gap <= self.gap or not self.lowers:
            return projected
        self.bases += 1
        basis = Basis(self.bases, Kernel.of(self.full.problem), self.points.X[chosen.rows])
        P = partial(objective, self.scan, basis)
        a, b = minimise(P, chosen.L, chosen.coefficients, self.full.b, self._unit)
        lowered = self._machine(chosen, a, b)
        best = min(lowered, projected, key=lambda one: one.certificate.primal)
        self.lowered = self._cost(best) / self._cost(projected)
        return best

    def _projected(self, chosen: ReducedSet) -> EvaluatedReduction:
        """Return the projection of f on a basis, and keep its cost."""
        machine = self._machine(chosen, chosen.coefficients, self.full.b)
        self.costs[len(chosen.rows)] = self._cost(machine)
        return machine

    def _cost(self, machine: EvaluatedReduction) -> float:
        """Return how far P of a machine is above that of the full one; MIN_COST of it at least,
        since the full machine is not quite optimal."""
        cost = machine.certificate.primal - self.certificate.primal
        return max(cost, MIN_COST * self.scale)

    def _machine(self, chosen: ReducedSet, a: np.ndarray, b: float) -> EvaluatedReduction:
        """Evaluate the machine with these coefficients, with the b of least P."""
        order = np.argsort(self.full.rows[chosen.rows])
        points = self.points[chosen.rows[order]]
        weights = None if self.full.weights is None else self.full.weights[chosen.rows[order]]
        machine = ReducedMachine(
            points.rows, a[order], b, self.full.problem, points, self.full.tube, weights=weights
        )
        solution, V = self.scan.examine(machine)
        certificate = replace(
            self.certificate, primal=V.certificate.primal, primal_error=0.0, distance=None
        )
        assert isinstance(solution, ReducedMachine)
        changes = self._changes(solution.b)
        solution = replace(solution, gap=certificate.gap, changes=changes)
        return EvaluatedReduction(solution, certificate, changes)

    def _parts(self) -> Iterator[tuple[slice, np.ndarray]]:
        """Yield slices of the rows and their u: arrays of n numbers are large."""
        for at in slices(self.scan.D.n, VALUES_AT_ONCE):
            yield at, self.scan.u_of(np.arange(at.start, at.stop))

    def _changes(self, b: float) -> SubtaskReduction:
        """Return the changes of f from the full machine to that of the scan, whose b is given."""
        largest, total, labels = 0.0, 0.0, 0
        for at, u in self._parts():
            f, before = u + b, self.f[at]
            change = np.abs(f - before)
            largest = max(largest, float(change.max()))
            total += float(change.sum())
            labels += int(np.count_nonzero((f > 0) != (before > 0)))
        n = len(self.f)
        return SubtaskReduction(self.certificate, largest, total / n, labels, n)

    @property
    def _unit(self) -> float:
        """The unit of the smoothing: 1, the margin of classes, or the size of f without labels."""
        task, y = self.scan.task, self.scan.audit.y
        if task.one_sided:
            return 1.0
        if task.coefficient_sum:
            return abs(self.full.b) or 1.0
        return float(np.std(y)) or 1.0
