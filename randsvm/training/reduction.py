"""Replace the solution of a subtask by a machine with few support vectors.

The certificate is split: P is that of the reduced machine over all rows, D that of the full one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from randsvm.algorithms import reduced_set
from randsvm.algorithms.reduced_set import ReducedSet
from randsvm.arrays import CsrMatrix, slices
from randsvm.data.sampling import Draw, Draws, SmallestKeys
from randsvm.events import Progress, Reduced, emit
from randsvm.kernels.gram import Float64Rows, cross_gram
from randsvm.kernels.kernel import Kernel
from randsvm.svm.basis import Basis, objective
from randsvm.svm.running_values import ValuesQuery
from randsvm.svm.scan import Scan
from randsvm.svm.solution import Certificate, KernelSolution, ReducedMachine

# The first random draw of --reduce, and the draw of its candidates. Rounds have smaller numbers.
REDUCTION_DRAW, CANDIDATES_DRAW = 2**62, 2**62 - 1
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
    labels : rows whose f changes its sign; rows : number of rows
    needed : support vectors for a cost of 1% and of 5%
    """

    full: Certificate
    largest: float
    mean: float
    labels: int
    rows: int
    needed: tuple[int, int]


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
        labels_changed=0 if regression else sum(one.labels for one in parts),
        needed_for_1_percent=max(one.needed[0] for one in parts),
        needed_for_5_percent=max(one.needed[1] for one in parts),
    )


class Change(NamedTuple):
    """The largest and the mean change of f over the rows, and how many rows change their sign."""

    largest: float
    mean: float
    labels: int


class EvaluatedReduction(NamedTuple):
    """A machine with its split certificate, and how its f differs from that of the full one."""

    solution: KernelSolution
    certificate: Certificate
    change: Change


class SampledSupportVectors:
    """Some support vectors of a machine as candidates for a basis, see reduced_set.BasisCandidates.

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
        self.rows = Float64Rows.of(kernel, X[chosen])
        self.diagonal = _diagonal(kernel, self.rows)
        self.chosen, self.others = chosen, np.setdiff1d(np.arange(len(beta)), chosen)

    def gram(self, B: np.ndarray) -> np.ndarray:
        return cross_gram(self.kernel, self.rows[B], self.rows[B])

    def columns(self, B: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        emit(Progress("choosing support vectors", 0, None, "beat"))
        centres = self.rows[B]
        K = cross_gram(self.kernel, self.rows, centres)
        f = K.T @ self.beta[self.chosen]
        for at in slices(len(self.others), ROWS_AT_ONCE):
            some = self.others[at]
            f += cross_gram(self.kernel, self.rows.like(self.X[some]), centres).T @ self.beta[some]
        return K, f


@dataclass
class Reduction:
    """Reduces the solution of one subtask.

    scan : holds u of the full machine for all rows
    size : at most this number of support vectors; None: the fewest within `gap`
    lowers : whether P is lowered if the projection misses the gap; otherwise the machine is the
        projection, and uses a part of the gap only
    """

    scan: Scan
    full: KernelSolution
    certificate: Certificate
    size: int | None
    gap: float | None
    seed: int
    lowers: bool = True
    bases: int = 0
    # Costs of projections by the number of rows of the basis, and by which factor the last Newton
    # steps lowered such a cost.
    costs: dict[int, float] = field(default_factory=dict)
    lowered: float = 1.0

    def run(self) -> tuple[KernelSolution, Certificate, SubtaskReduction]:
        """Return the reduced machine and its certificate; the full ones if no smaller one does."""
        self.points = self.scan.completed(self.full).points
        self.f = np.empty(self.scan.D.n)
        for at, u in self._parts():
            self.f[at] = u + self.full.b
        chosen = self._choose()
        found: EvaluatedReduction | None = None
        if self.size is None:
            found = self._fewest(chosen)
        elif self.size < len(self.full):
            found = self._attempt(chosen)
        if found is None:
            full = replace(self.full, points=self.points)
            found = EvaluatedReduction(full, self.certificate, Change(0.0, 0.0, 0))
        reduction = SubtaskReduction(
            self.certificate,
            *found.change,
            len(self.f),
            (self._needed(0.01 * self._scale), self._needed(0.05 * self._scale)),
        )
        if not isinstance(found.solution, ReducedMachine):
            return found.solution, found.certificate, reduction
        machine = replace(found.solution, gap=found.certificate.gap, changes=reduction)
        return machine, found.certificate, reduction

    # --- the basis -------------------------------------------------------------------------

    def _choose(self) -> ReducedSet:
        """Return a basis of as many rows as may be needed."""
        S = len(self.full)
        if self.size is not None:
            chosen = self._basis(max(1, min(self.size, S)))
            self._measure(chosen)
            return chosen
        assert self.gap is not None
        most = min(S, MAX_ROWS)
        size = min(most, 256)
        while True:
            chosen = self._basis(size)
            self._measure(chosen)
            needed = self._needed(self._planned_cost)
            if len(chosen.rows) < size or size == most or not size < needed <= most:
                return chosen
            size = min(2 * size, most)

    def _basis(self, size: int) -> ReducedSet:
        """Return a basis of `size` support vectors, or fewer if these span all candidates."""
        full, S = self.full, len(self.full)
        assert self.points is not None
        T = min(S, max(MIN_CANDIDATES, CANDIDATES_PER_ROW * size))
        keys = Draw(self.seed, CANDIDATES_DRAW).keys(0, S)
        candidates = np.sort(SmallestKeys.of(T, np.arange(S), keys).rows)
        u = self.f[full.rows] - full.b
        kernel, X = Kernel.of(full.problem), self.points.X
        z = SampledSupportVectors(kernel, X, full.beta, candidates, u[candidates])
        draws = Draws(self.seed, REDUCTION_DRAW)
        chosen = reduced_set.choose(z, float(full.beta @ u), size, draws)
        return replace(chosen, rows=candidates[chosen.rows])

    @property
    def _scale(self) -> float:
        certificate = self.certificate
        return max(abs(certificate.primal), abs(certificate.dual), certificate.least)

    @property
    def _allowance(self) -> float:
        """Return the largest increase of P with which the reduced machine is within the gap."""
        assert self.gap is not None
        return self.gap * self._scale - (self.certificate.primal - self.certificate.dual)

    @property
    def _planned_cost(self) -> float:
        """Return the increase of P that the first number of support vectors is chosen for."""
        return self._allowance * (1.0 if self.lowers else SPARE)

    def _measure(self, chosen: ReducedSet) -> None:
        """Find the costs of the projections on a basis and on its first half."""
        for m in (len(chosen.rows) // 2, len(chosen.rows)):
            if m and m not in self.costs:
                self._projected(chosen.first(m))

    def _needed(self, cost: float) -> int:
        """Return an estimate of the fewest support vectors with at most this cost. Between two
        measured costs, and beyond them, the cost counts as a power of the number."""
        S, sizes = len(self.full), np.array(sorted(self.costs))
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
        high = self._needed(self._planned_cost)
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
        assert self.gap is not None
        return found if found.certificate.gap <= self.gap else None

    def _attempt(self, chosen: ReducedSet) -> EvaluatedReduction:
        """Return the machine on a basis: the projection of f if it is within the gap, else a
        machine with a lower P, which is further from f."""
        a, b = chosen.coefficients, self.full.b
        projected = self._projected(chosen)
        if projected.certificate.gap <= (self.gap or 0.0) or not self.lowers:
            return projected
        assert self.points is not None
        self.bases += 1
        basis = Basis(self.bases, Kernel.of(self.full.problem), self.points.X[chosen.rows])
        P = partial(objective, self.scan, basis)
        lowered = self._machine(chosen, *reduced_set.minimise(P, chosen.L, a, b, self._unit))
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
        return max(cost, MIN_COST * self._scale)

    def _machine(self, chosen: ReducedSet, a: np.ndarray, b: float) -> EvaluatedReduction:
        """Evaluate the machine with these coefficients, with the b of least P."""
        assert self.points is not None
        order = np.argsort(self.full.rows[chosen.rows])
        points = self.points[chosen.rows[order]]
        weights = None if self.full.weights is None else self.full.weights[chosen.rows[order]]
        machine = ReducedMachine(
            points.rows, a[order], b, self.full.problem, points, self.full.tube, weights=weights
        )
        solution, V = self.scan.examine(machine)
        primal, full = V.certificate.primal, self.certificate
        certificate = replace(full, primal=primal, primal_error=0.0, distance=None)
        return EvaluatedReduction(solution, certificate, self._change(solution.b))

    def _parts(self) -> Iterator[tuple[slice, np.ndarray]]:
        """Yield slices of the rows and their u: arrays of n numbers are large."""
        for at in slices(self.scan.D.n, VALUES_AT_ONCE):
            yield at, np.concatenate(self.scan.ask(ValuesQuery(np.arange(at.start, at.stop))))

    def _change(self, b: float) -> Change:
        """Return how f of the machine that the scan holds differs from that of the full one."""
        largest, total, labels = 0.0, 0.0, 0
        for at, u in self._parts():
            f, before = u + b, self.f[at]
            change = np.abs(f - before)
            largest = max(largest, float(change.max()))
            total += float(change.sum())
            labels += int(np.count_nonzero((f > 0) != (before > 0)))
        return Change(largest, total / len(self.f), labels)

    @property
    def _unit(self) -> float:
        """The unit of the smoothing: 1, the margin of classes, or the size of f without labels."""
        task, y = self.scan.task, self.scan.audit.y
        if task.one_sided:
            return 1.0
        if task.coefficient_sum:
            return abs(self.full.b) or 1.0
        return float(np.std(y)) or 1.0


def _diagonal(kernel: Kernel, rows: Float64Rows) -> np.ndarray:
    """Return K(x, x) of rows, (m,)."""
    K = (kernel.scale * rows.norms + kernel.left(rows.norms) + kernel.right(rows.norms))[None]
    kernel.finish(K)
    return K[0]
