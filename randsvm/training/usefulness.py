"""Detect solutions that are useless for rows that they were not trained on.

A certificate bounds the distance from the optimum. With features on large scales or an unsuitable
gamma, the optimum itself is useless.
"""

from __future__ import annotations

import numpy as np

from randsvm.parameters.svm import Problem
from randsvm.svm.running_values import Values
from randsvm.svm.scan import Scan
from randsvm.svm.solution import SV

MEMORISED = (
    "nearly every row is a support vector and is fitted by its own coefficient alone, since kernel "
    "values between rows are almost 0: the model says little of other rows, however small its gap; "
    "try --scale standard, -g scale or a smaller -g"
)
CONSTANT = (
    "all rows have nearly the same decision value, since kernel values hardly differ: the model "
    "says nothing, however small its gap; try --scale standard, -g scale, a larger -g or a larger "
    "-c"
)
USELESS_MODEL_TEXTS = (MEMORISED, CONSTANT)

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


def why_useless(scan: Scan, solution: SV) -> str | None:
    """Return why a solution is useless, judged by the audit rows; None: no reason was found.

    scan: its running values must be those of the solution
    """
    audit, problem = scan.audit, scan.problem
    if not len(solution) or problem.kernel == "precomputed":
        return None
    u, beta = np.concatenate(scan.ask(Values(audit.rows))), scan.coefficients.of(audit.rows)
    if problem.prediction_type != "one-class" and np.ptp(u) < MIN_SPREAD * _margin(
        problem, solution, audit.y
    ):
        return CONSTANT
    nearly_all = len(solution) >= MEMORISED_PART * scan.D.n or problem.prediction_type == "svr"
    if problem.kernel != "rbf" or scan.D.n < MIN_ROWS or not nearly_all:
        return None
    others = u - beta  # K(x, x) = 1
    typical = np.median(np.abs(others - np.median(others)))
    return MEMORISED if typical < MAX_CONTRIBUTION * np.median(np.abs(beta)) else None


def _margin(problem: Problem, solution: SV, y: np.ndarray) -> float:
    """Return the distance of the margin from f = 0; for a regression, the deviation of y."""
    if problem.prediction_type == "svr":
        return float(np.std(y))
    return abs(solution.tube) if problem.task == "nu-svc" else 1.0
