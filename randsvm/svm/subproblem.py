"""One subproblem in, one solution out: what LIBSVM is asked, over which rows and from where."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from randsvm.data.points import Points
from randsvm.kernels.expansion import Expansion
from randsvm.kernels.kernel import Kernel
from randsvm.parameters.problem import Problem
from randsvm.svm.libsvm import GRAM_MOST, Gram, Nodes, check_values, solve
from randsvm.svm.solution import SV, Bound, Solve
from randsvm.svm.tasks import task_of

# How far the dual objective may fall behind in one solve, relative to sum alpha, and how often
# a solve that loses more is repeated, each time to a tenth of the tolerance.
SLACK = 1e-6
TRIES = 3


def svmlearn(points: Points, problem: Problem, bound: Bound | None = None) -> SV:
    """Solve the SVM over `points`, to half of problem.tolerance; labels are -1/+1.

    Without a bound set alpha = 0 outside of `points`. With one, its rows stay at alpha = C and
    enter as the linear term g_i = sum_{j in N} beta_j K_ij; points then carry u of the
    solution `bound.before`, and the dual objective does not fall behind it by more than SLACK.
    A class that is missing altogether makes the solution empty: f = b = the class that is there.
    """
    began = time.perf_counter()
    with _laid_out(points, problem, again=bound is not None) as rows:
        if bound is None:
            beta, b = _solve_task(rows, points, problem, problem.tolerance / 2)
            return _solution(points, beta, b, problem, began)
        beta, b = _Subproblem.of(rows, points, problem, bound).solve()
    SV = _solution(points, beta, b, problem, began)
    both = Points.concatenate([SV.points, bound.points])
    order = np.argsort(both.rows, kind="stable")
    beta = np.concatenate([SV.beta, bound.beta])[order]
    solve = replace(SV.solve, frozen=len(bound.points))
    return replace(SV, points=both[order], beta=beta, solve=solve)


def _solution(points: Points, beta: np.ndarray, b: float, problem: Problem, began: float) -> SV:
    at = np.flatnonzero(beta)
    solve = Solve(len(points), 0, time.perf_counter() - began)
    return SV(replace(points[at], u=None), beta[at], b, problem, solve)


@contextlib.contextmanager
def _laid_out(points: Points, problem: Problem, again: bool) -> Iterator[Nodes | Gram]:
    """The rows of a subproblem in LIBSVM's terms. again: it starts from a solution, so that LIBSVM
    is going to need nearly all of its kernel values."""
    check_values(points, problem)
    if not again or len(points) > GRAM_MOST:
        yield Nodes.of(points)
        return
    matrix = Gram.of(points, problem)
    yield matrix
    # Not where a solve was broken off: LIBSVM still reads it.
    matrix.close()


@dataclass(frozen=True)
class _Subproblem:
    """The task over W with targets y_i - g_i, e.g. for C-SVC

        min 1/2 beta' K beta - sum (y_i - g_i) beta_i, 0 <= y_i beta_i <= C, sum beta = 0.

    rows: W in LIBSVM's terms. before: the coefficients that W came with; products: K before.
    start: where LIBSVM begins, which is at C for bounded rows where both classes have one C;
    lifted: K start.
    """

    rows: Nodes | Gram
    W: Points
    problem: Problem
    g: np.ndarray
    before: np.ndarray
    products: np.ndarray
    start: np.ndarray
    lifted: np.ndarray
    scale: float
    tolerance: float
    b: float

    @staticmethod
    def of(rows: Nodes | Gram, W: Points, problem: Problem, bound: Bound) -> _Subproblem:
        assert W.u is not None, "with a bound set, u of the working set must be known"
        SV = bound.before
        before = np.zeros(len(W))
        before[np.searchsorted(W.rows, SV.points.rows)] = SV.beta
        products = _exact_sums(rows, W, before, problem)
        frozen = len(bound.points) > 0
        g = W.u - products if frozen else np.zeros(len(W))
        start = lifted = np.zeros(len(W))
        if problem.task == "svc" and problem.one_bound:
            start = _at_bound(before, problem)
        if start.any():
            lifted = products - _exact_sums(rows, W, before - start, problem)
        scale = np.abs(before).sum() + np.abs(bound.beta).sum()
        tolerance = problem.tolerance / 2 * bound.precision
        return _Subproblem(
            rows, W, problem, g, before, products, start, lifted, scale, tolerance, SV.b
        )

    def dual(self, beta: np.ndarray, products: np.ndarray) -> float:
        """The part of D that W can change."""
        return task_of(self.problem).reward(self.W.y - self.g, beta) - float(products @ beta) / 2

    def solve(self) -> tuple[np.ndarray, float]:
        """A solution that does not fall behind `before`; tighter tolerances if it does."""
        tolerance = self.tolerance
        floor = self.dual(self.before, self.products) - SLACK * self.scale
        for _ in range(TRIES):
            beta, b = self._attempt(tolerance)
            products = _exact_sums(self.rows, self.W, beta, self.problem)
            if not self.problem.positive_semidefinite or self.dual(beta, products) >= floor:
                return beta, b
            tolerance /= 10
        return self.before, self.b

    def _attempt(self, tolerance: float) -> tuple[np.ndarray, float]:
        W, problem = self.W, self.problem
        assert W.u is not None
        if problem.task != "svc" or not (self.g.any() or self.start.any()):
            return _solve_task(self.rows, W, problem, tolerance, self.g)
        # LIBSVM begins at 0, so it is asked for the distance from `start`, which goes towards
        # `side` only: min 1/2 a' Q a - sum_i side_i targets_i a_i, 0 <= a <= C, sum side_i a_i = 0.
        side = np.where(self.start == 0, W.y, -W.y)
        targets = W.y - self.g - self.lifted
        C = problem.bounds[0]
        if isinstance(self.rows, Gram) and self.rows.lean((side - targets) / C):
            moved, b = solve(self.rows, np.append(side, [1.0, -1.0]), problem, tolerance)
            if moved[-2] == C and moved[-1] == -C:
                return self.start + moved[:-2], b
        # As an epsilon-SVR, of twice as many variables. Exact if and only if |f - y| <= 2 M over
        # W; checked by the signs.
        M = 2.0 ** math.ceil(math.log2(1000 * (1 + np.abs(W.u + self.b).max())))
        while True:
            moved, b = solve(self.rows, targets + side * M, problem, tolerance, epsilon=M)
            if (side * moved >= 0).all():
                return self.start + moved, b
            M *= 16


def _at_bound(beta: np.ndarray, problem: Problem) -> np.ndarray:
    """beta where it is at C, for as many rows of either sign; elsewhere 0. (m,) float64."""
    sides = [np.flatnonzero(sign * beta >= problem.bounds[0]) for sign in (1, -1)]
    balanced = min(map(len, sides))
    start = np.zeros(len(beta))
    for side in sides:
        start[side[:balanced]] = beta[side[:balanced]]
    return start


def _solve_task(
    rows: Nodes | Gram, W: Points, problem: Problem, tolerance: float, g: np.ndarray | float = 0.0
) -> tuple[np.ndarray, float]:
    """The task as LIBSVM has it; g moves the targets of a regression, elsewhere it is 0."""
    y = W.y
    if problem.task == "svr":
        return solve(rows, y - g, problem, tolerance, epsilon=problem.epsilon)
    if problem.task == "svc" and np.all(y == y[0]):
        return np.zeros(len(y)), float(y[0])
    return solve(rows, y, problem, tolerance)


def _exact_sums(rows: Nodes | Gram, W: Points, beta: np.ndarray, problem: Problem) -> np.ndarray:
    """sum_j beta_j K(w_j, w_i) in float64; (|W|,)."""
    if isinstance(rows, Gram):
        return rows.times(beta)
    used = np.flatnonzero(beta)
    return Expansion.of(Kernel.of(problem), W.X[used], beta[used]).values(W.X)
