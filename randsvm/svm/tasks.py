"""All tasks in one form: the loss of a row and the bounds of its coefficient.

    P = 1/2 |w|^2 + sum_i loss_i(y_i - f_i) + t b + a tube,       f = u + b
    D = sum y beta - epsilon sum |beta| - 1/2 |w|^2,      lower <= beta <= upper, sum beta = t
    loss_i(z) = max(0, upper_i (z - epsilon - tube), lower_i (z + epsilon + tube))

    task         y         lower, upper                           epsilon    t       a
    C-SVC        -1, +1    0, C+ where y = 1; -C-, 0 elsewhere    0          0       0
    epsilon-SVR  targets   -C, C                                  epsilon    0       0
    one-class    0         0, 1 (LIBSVM's scale), b = -rho        0          nu n    0
    nu-SVC       -1, +1    as C-SVC with C = 1                    1          0       nu n
    nu-SVR       targets   -C, C                                  0          0       C nu n

A row of weight w has w times these bounds, and n is the sum of all weights: a row of weight 2 is
the same as two equal rows. So nu bounds shares of the weight instead of shares of the rows: rows
with a loss have at most the share nu of the weight, support vectors at least that share.

t is `Task.coefficient_sum` and a is `Task.absolute_sum`. The nu tasks (Schoelkopf et al. 2000) have
the second sum, sum |beta| = a (for nu-SVR, <= a), and its multiplier, the tube, is found as b is:
half the width of a regression's tube, and -rho of nu-SVC, whose loss is max(0, rho - y f). With
P's term a tube this is nu-SVC in LIBSVM's scale,
P = 1/2 |w|^2 - nu n rho + sum max(0, rho - y f), D = -1/2 |w|^2; the model is divided by rho.

The two sums of a nu task are one sum each for the coefficients above 0 and for those below: two
groups, which depend on each other only through |w|^2. Each is a separate task, with the
offset b + tube above 0 and b - tube below.

The tasks differ only by their row of the table. Plain functions of some rows; knows nothing of
scans or solvers.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from randsvm.arrays import FLOAT64_UNIT
from randsvm.kernels.rounding import PRESCRIBED, SPARE
from randsvm.parameters.svm import Problem
from randsvm.records import record

# Rounding of coefficients: |beta| may exceed its bound, or a sum of bounds differ, by the part
# BOUND_ROUNDING, and a sum of coefficients differ from the prescribed one by SUM_ROUNDING.
BOUND_ROUNDING, SUM_ROUNDING = 1e-9, 1e-12


@record
class Task:
    """One row of the table. y, u, f, beta : (m,) float64 of some rows; weights : (m,) float64,
    None: all are 1.

    bounds: of |beta| where y > 0 and elsewhere, for weight 1. one_sided: beta has the sign of y.
    tube: as last found, 0 where absolute_sum is 0.
    """

    bounds: tuple[float, float]
    epsilon: float = 0.0
    coefficient_sum: float = 0.0
    one_sided: bool = False
    absolute_sum: float = 0.0
    tube: float = 0.0

    @property
    def groups(self) -> list[Task]:
        """Return tasks with one sum each.

        A row whose beta is beyond the bounds of one group belongs to the other group.
        """
        if not self.absolute_sum:
            return [self]
        (positive, negative), half = self.bounds, self.absolute_sum / 2
        one = replace(self, absolute_sum=0.0, tube=0.0)
        return [
            replace(one, bounds=(positive, 0.0), coefficient_sum=half),
            replace(one, bounds=(0.0, negative), coefficient_sum=-half),
        ]

    def without_absolute_sum(self) -> Task:
        """Return the task while sum |beta| may still rise before it reaches absolute_sum.

        Then one sum is left, and the tube has no width.
        """
        return replace(self, absolute_sum=0.0, tube=0.0)

    def group_offsets(self, b: float) -> list[float]:
        """Return the offset of each group."""
        return [b + self.tube, b - self.tube] if self.absolute_sum else [b]

    def at(self, offsets: list[float]) -> tuple[Task, float]:
        """Return the task with the tube, and b, that follow from the offset of each group."""
        if not self.absolute_sum:
            return self, offsets[0]
        above, below = offsets
        return replace(self, tube=(above - below) / 2), (above + below) / 2

    def box(
        self, y: np.ndarray, weights: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return lower and upper of each row, (m,) float64."""
        if self.one_sided:
            positive = y > 0
            lower = np.where(positive, 0.0, -self.bounds[1])
            upper = np.where(positive, self.bounds[0], 0.0)
        else:
            lower, upper = np.full(y.shape, -self.bounds[1]), np.full(y.shape, self.bounds[0])
        return (lower, upper) if weights is None else (lower * weights, upper * weights)

    def loss(self, y: np.ndarray, f: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
        """Return loss(y - f) of each row."""
        lower, upper = self.box(y, weights)
        z = y - f
        width = self.epsilon + self.tube
        lost = np.maximum(upper * (z - width), lower * (z + width))
        return np.maximum(lost, 0.0)

    def breakpoints(self, y: np.ndarray, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the b below which a row loses by its upper bound, and the b above which it loses
        by its lower bound."""
        z, width = y - u, self.epsilon + self.tube
        return z - width, z + width

    def slopes(
        self, y: np.ndarray, u: np.ndarray, beta: np.ndarray, weights: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the one-sided derivatives of D by each beta: rise upwards, fall downwards.

        rise is -inf where beta is at its upper bound, fall is inf at the lower one. Where beta is
        unbounded they are equal, except at beta = 0 of a regression, where fall - rise is the width
        of the tube. The KKT conditions are rise <= b <= fall for all rows.
        """
        lower, upper = self.box(y, weights)
        below, above = self.breakpoints(y, u)
        rise, fall = np.where(beta < 0, above, below), np.where(beta > 0, below, above)
        rise[beta >= upper] = -np.inf
        fall[beta <= lower] = np.inf
        return rise, fall

    def absolute_sum_slack(self, beta: np.ndarray) -> float:
        """Return absolute_sum less sum |beta|; 0 if that is rounding, and for classifications."""
        if not self.absolute_sum or self.one_sided:
            return 0.0
        short = self.absolute_sum - float(np.abs(beta).sum())
        return short if short > SUM_ROUNDING * self.absolute_sum else 0.0

    def violation(
        self, y: np.ndarray, u: np.ndarray, beta: np.ndarray, weights: np.ndarray | None = None
    ) -> float:
        """Return by how much the steepest rise exceeds the steepest fall of a group, LIBSVM's
        measure of optimality; -inf if no coefficient may move."""
        worst = -np.inf
        for group in self.groups:
            rise, fall = group.slopes(y, u, np.clip(beta, *group.box(y, weights)), weights)
            worst = max(worst, rise.max(initial=-np.inf) - fall.min(initial=np.inf))
        return float(worst)

    def linear(self, y: np.ndarray, beta: np.ndarray) -> float:
        """Return sum y beta - epsilon sum |beta|."""
        return float(y @ beta) - self.epsilon * float(np.abs(beta).sum())


def change_of_dual(
    task: Task, y: np.ndarray, beta: np.ndarray, weights: np.ndarray | None, offset: float
) -> float:
    """Return by how much D of coefficients may be above the optimum, but for its own rounding.

    The bounds and sums of the problem are decimal numbers. Coefficients beta times a factor of at
    most 1 are within the bounds. For these, with any sums, and for the offset b of a solution,
    D + b (t - sum beta) <= P: so a sum that misses the prescribed one costs at most |b| times what
    it misses, for each group.

    offset: see `rounding.largest_offset`.
    """
    if task.absolute_sum_slack(beta):
        task = task.without_absolute_sum()
    lower, upper = task.box(y, weights)
    bounds = np.where(beta > 0, upper, -lower)
    with np.errstate(divide="ignore"):
        excess = float((np.abs(beta) / bounds).max(initial=0.0))
    # Bounds of 1, those of one-class and nu-svc without weights, are exact.
    is_exact = weights is None and set(task.bounds) <= {0.0, 1.0} and excess <= 1
    written = PRESCRIBED * FLOAT64_UNIT
    # The factor that brings beta within the bounds is 1 - scaled.
    scaled = 0.0 if is_exact else SPARE * (1 - (1 - written) / max(1.0, excess))
    cost = scaled * float(np.abs(beta) @ (np.abs(y) + task.epsilon))
    for group in task.groups:
        t = group.coefficient_sum
        own = beta if len(task.groups) == 1 else np.where(beta * t > 0, beta, 0.0)
        missing = abs(math.fsum([t, *(-own).tolist()]))
        missing += scaled * float(np.abs(own).sum()) + written * abs(t)
        cost += SPARE * missing * offset if missing else 0.0
    return cost


def task_of(problem: Problem) -> Task:
    """Return the row of the table that `problem` names."""
    if problem.task == "svr":
        return Task(problem.bounds, epsilon=problem.epsilon)
    if problem.task == "nu-svr":
        return Task(problem.bounds, absolute_sum=problem.absolute_sum)
    if problem.task == "nu-svc":
        return Task(problem.bounds, epsilon=1.0, one_sided=True, absolute_sum=problem.absolute_sum)
    if problem.task == "one-class":
        return Task((problem.bounds[0], 0.0), coefficient_sum=problem.coefficient_sum)
    return Task(problem.bounds, one_sided=True)
