"""--reduce: replace the solution of a subtask by a machine with few support vectors.

The certificate is split: P is that of the reduced machine over all rows, D that of the full one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from randsvm.algorithms import reduced_set
from randsvm.algorithms.reduced_set import ReducedSet
from randsvm.data.sampling import Draws
from randsvm.events import Progress, Reduced, emit
from randsvm.kernels.gram import Float64Rows, cross_gram
from randsvm.kernels.kernel import Kernel
from randsvm.svm.basis import Basis, objective
from randsvm.svm.scan import Scan
from randsvm.svm.solution import SV, Certificate

# The first random draw of --reduce; the rounds of a run have smaller numbers.
REDUCTION_DRAW = 2**62
# --reduce auto tries at most ATTEMPTS smaller numbers of support vectors. All are above LEAST_PART
# times the number that the errors of the projection suggest.
ATTEMPTS, LEAST_PART = 4, 1 / 8
# More support vectors are tried in steps of this factor. The basis is large enough if its error is
# this part of what is allowed.
GROWTH, SPARE = 1.5, 1 / 8
# Estimates of the needed support vectors follow from the errors of this last part of the basis.
TREND = 0.5


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


class Machine(NamedTuple):
    """A machine with its split certificate, and f of all rows, (n,)."""

    solution: SV
    certificate: Certificate
    f: np.ndarray


@dataclass
class Reduction:
    """Reduces the solution of one subtask.

    scan : holds u of the full machine for all rows
    size : at most this number of support vectors; None: the fewest within `gap`
    memory : bytes that the factor of the basis may take
    lowers : whether P is lowered if the projection misses the gap
    """

    scan: Scan
    full: SV
    certificate: Certificate
    size: int | None
    gap: float | None
    memory: int
    seed: int
    lowers: bool = True
    bases: int = 0

    def run(self) -> tuple[SV, Certificate, SubtaskReduction]:
        """Return the reduced machine and its certificate, or the full ones if that is as small."""
        self.points = self.scan.completed(self.full).points
        self.f = self.scan.u + self.full.b
        chosen = self._choose()
        found: Machine | None = None
        if self.size is None:
            found = self._fewest(chosen)
        elif self.size < len(self.full):
            found = self._attempt(chosen)
        if found is None:
            found = Machine(replace(self.full, points=self.points), self.certificate, self.f)
        change = np.abs(found.f - self.f)
        cost, promised = found.certificate.primal - self.certificate.primal, chosen.errors[-1] / 2
        # The errors are a lower bound of the cost; the machine shows by how much.
        ratio = min(max(cost / promised, 0.1), 100.0) if cost > 0 and promised > 0 else 1.0
        reduction = SubtaskReduction(
            self.certificate,
            float(change.max()),
            float(change.mean()),
            int(np.count_nonzero((found.f > 0) != (self.f > 0))),
            len(self.f),
            (self._needed(chosen, 0.01 / ratio), self._needed(chosen, 0.05 / ratio)),
        )
        return found.solution, found.certificate, reduction

    # --- the basis -------------------------------------------------------------------------

    def _choose(self) -> ReducedSet:
        """Return a basis of as many rows as may be needed."""
        S, kernel = len(self.full), Kernel.of(self.full.problem)
        assert self.points is not None
        rows = Float64Rows.of(kernel, self.points.X)
        diagonal = _diagonal(kernel, rows)

        def K(some: np.ndarray | None, B: np.ndarray) -> np.ndarray:  # noqa: N802 - the kernel
            emit(Progress("choosing support vectors", 0, None, "beat"))
            return cross_gram(kernel, rows if some is None else rows[some], rows[B])

        u = self.f[self.full.rows] - self.full.b
        most = S if self.size is None else min(self.size, S)
        most = max(1, min(most, int(self.memory / (8 * max(S, 1)))))
        draws, beta = Draws(self.seed, REDUCTION_DRAW), self.full.beta
        if self.size is not None:
            return reduced_set.choose(K, diagonal, u, beta, most, draws)
        size = min(most, 256)
        while True:
            # The same draws: a larger basis begins with the rows of the smaller one.
            draws = Draws(self.seed, REDUCTION_DRAW)
            chosen = reduced_set.choose(K, diagonal, u, beta, size, draws)
            enough = chosen.errors[-1] / 2 <= SPARE * self._allowance
            if enough or len(chosen.rows) < size or size == most:
                return chosen
            size = min(2 * size, most)

    @property
    def _scale(self) -> float:
        certificate = self.certificate
        return max(abs(certificate.primal), abs(certificate.dual), certificate.least)

    @property
    def _allowance(self) -> float:
        """Return the largest increase of P with which the reduced machine is within the gap."""
        assert self.gap is not None
        return self.gap * self._scale - (self.certificate.primal - self.certificate.dual)

    def _needed(self, chosen: ReducedSet, share: float) -> int:
        """Return the estimated number of support vectors that raise P by this share."""
        wanted, errors = 2 * share * self._scale, chosen.errors
        if errors[-1] <= wanted:
            return max(1, int(np.argmax(errors <= wanted)))
        m = len(chosen.rows)
        first = max(1, int(m * (1 - TREND)))
        fall = np.log(errors[first] / errors[-1]) / np.log(m / first) if m > first else 0.0
        if fall <= 0:
            return len(self.full)
        growth = np.log(errors[-1] / wanted) / fall
        return int(min(len(self.full), m * np.exp(min(growth, 50.0))))

    # --- machines on a basis ---------------------------------------------------------------

    def _fewest(self, chosen: ReducedSet) -> Machine | None:
        """Return the machine with the fewest support vectors within the gap; None: there is none.

        The errors of the projection are a lower bound of its cost. They give the first number; then
        more are tried until one suffices, and fewer, with a lowered P, by bisection.
        """
        enough = chosen.errors / 2 <= self._allowance
        high = max(1, int(np.argmax(enough)) if enough.any() else len(chosen.rows))
        best, low = self._within_gap(chosen.first(high)), int(high * LEAST_PART)
        while best is None and high < len(chosen.rows):
            low, high = high, min(int(GROWTH * high) + 1, len(chosen.rows))
            best = self._within_gap(chosen.first(high))
        for _ in range(ATTEMPTS if best else 0):
            size = int(np.sqrt(max(low, 1) * high))
            if not low < size < high:
                break
            found = self._within_gap(chosen.first(size))
            if found is None:
                low = size
            else:
                best, high = found, size
        return best

    def _within_gap(self, chosen: ReducedSet) -> Machine | None:
        if len(chosen.rows) >= len(self.full):
            return None
        found = self._attempt(chosen)
        assert self.gap is not None
        return found if found.certificate.gap <= self.gap else None

    def _attempt(self, chosen: ReducedSet) -> Machine:
        """Return the machine on a basis: the projection of f if it is within the gap, else a
        machine with a lower P, which is further from f."""
        a, b = chosen.coefficients, self.full.b
        projected = self._machine(chosen, a, b)
        if projected.certificate.gap <= (self.gap or 0.0) or not self.lowers:
            return projected
        assert self.points is not None
        self.bases += 1
        basis = Basis(self.bases, Kernel.of(self.full.problem), self.points.X[chosen.rows])
        P = partial(objective, self.scan, basis)
        lowered = self._machine(chosen, *reduced_set.lower(P, chosen.L, a, b, self._unit))
        return min(lowered, projected, key=lambda one: one.certificate.primal)

    def _machine(self, chosen: ReducedSet, a: np.ndarray, b: float) -> Machine:
        """Evaluate the machine with these coefficients, with the b of least P."""
        assert self.points is not None
        order = np.argsort(self.full.rows[chosen.rows])
        points = self.points[chosen.rows[order]]
        weights = None if self.full.weights is None else self.full.weights[chosen.rows[order]]
        machine = replace(self.full, rows=points.rows, beta=a[order], b=b, points=points)
        solution, V = self.scan.evaluate(replace(machine, weights=weights))
        certificate = replace(self.certificate, primal=V.certificate.primal)
        return Machine(solution, certificate, self.scan.u + solution.b)

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
