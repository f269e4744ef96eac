"""Find reasons why a certified solution fits other rows poorly."""

from __future__ import annotations

import numpy as np

from randsvm.arrays import median
from randsvm.parameters.svm import Problem
from randsvm.svm.running_values import ValuesQuery
from randsvm.svm.scan import Scan
from randsvm.svm.solution import KernelSolution

# A certificate bounds the distance from the optimum. With features on large scales or an unsuitable
# gamma, the optimum itself fits rows poorly that it was not trained on.
OVERFITTED = (
    "nearly every row is a support vector and is fitted by its own coefficient alone, since kernel "
    "values between rows are almost 0: the model is overfitted, however small its gap is; "
    "try --scale standard, -g scale or a smaller -g"
)
CONSTANT_DECISION = (
    "all rows have nearly the same decision value, since kernel values hardly differ: the model "
    "predicts a constant, however small its gap is; try --scale standard, -g scale, a larger -g or "
    "a larger -c"
)
POOR_FIT_NOTICES = (OVERFITTED, CONSTANT_DECISION)

# At least this part of the rows of a memorised data set are support vectors, except for a
# regression, whose tube may hold some rows. Noisy data has fewer: a9a 37%, covtype 58%.
MEMORISED_PART = 0.95
# All other rows together contribute at most this much to f of a memorised row, relative to its own
# coefficient; medians. Measured: up to 0.16 for digits, wine and others unscaled at gamma = 1/d,
# where held-out rows are predicted badly; at least 0.6 for random labels, and for regressions with
# a tube of 0, of which every row is a support vector as well.
MAX_CONTRIBUTION = 0.2
# f is constant if its spread relative to the margin is below this.
MIN_SPREAD = 1e-3
# With fewer rows, nearly all rows are support vectors of good models as well.
MIN_ROWS = 100


def poor_fit_reason(scan: Scan, solution: KernelSolution) -> str | None:
    """Return why a solution fits other rows poorly, by the audit rows; None: no reason was found.

    scan: its running values must be those of the solution
    """
    audit, problem = scan.audit, scan.problem
    if not len(solution) or problem.kernel == "precomputed":
        return None
    u = np.concatenate(scan.ask(ValuesQuery(audit.rows)))
    if problem.prediction_type != "one-class" and np.ptp(u) < MIN_SPREAD * _margin(
        problem, solution, audit.y
    ):
        return CONSTANT_DECISION
    nearly_all = len(solution) >= MEMORISED_PART * scan.D.n or problem.prediction_type == "svr"
    if problem.kernel != "rbf" or scan.D.n < MIN_ROWS or not nearly_all:
        return None
    beta = scan.coefficients.of(audit.rows)
    others = u - beta  # K(x, x) = 1
    typical = median(np.abs(others - median(others)))
    return OVERFITTED if typical < MAX_CONTRIBUTION * median(np.abs(beta)) else None


def _margin(problem: Problem, solution: KernelSolution, y: np.ndarray) -> float:
    """Return the distance of the margin from f = 0; for a regression, the deviation of y."""
    if problem.prediction_type == "svr":
        return float(np.std(y))
    return abs(solution.tube) if problem.task == "nu-svc" else 1.0
