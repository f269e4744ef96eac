"""Whether a solution says anything of rows that it was not trained on.

A certificate bounds the distance from the optimum of the problem as it was posed. With features on
large scales or an unsuitable gamma that optimum itself is useless.
"""

from __future__ import annotations

import numpy as np

from randsvm.parameters.problem import Problem
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
TEXTS = (MEMORISED, CONSTANT)

# Share of the rows that are support vectors of a memorised data set, but for a regression, whose
# tube may hold some. Ordinary noisy data has fewer: a9a 37%, covtype 58%.
NEARLY_ALL = 0.95
# The most that all other rows contribute to f of a memorised row, relative to its own coefficient;
# medians. Measured: up to 0.16 for digits, wine and others unscaled at gamma = 1/d, where held-out
# rows are predicted badly; from 0.6 on for random labels and for regressions with a tube of 0, of
# which every row is a support vector, too.
LITTLE = 0.2
# The spread of f relative to the margin, below which it is constant.
NOTHING = 1e-3
# Of fewer rows nearly all are support vectors of good models as well.
LEAST_ROWS = 100


def why_useless(scan: Scan, solution: SV) -> str | None:
    """Return why a solution is useless, judged by the audit rows; None: no reason was found.

    scan: whose running values are those of the solution.
    """
    audit, problem = scan.audit, scan.problem
    if not len(solution) or problem.kernel == "precomputed":
        return None
    u, beta = np.concatenate(scan.ask(Values(audit.rows))), scan.coefficients.of(audit.rows)
    if problem.kind != "one-class" and np.ptp(u) < NOTHING * _margin(problem, solution, audit.y):
        return CONSTANT
    nearly_all = len(solution) >= NEARLY_ALL * scan.D.n or problem.kind == "svr"
    if problem.kernel != "rbf" or scan.D.n < LEAST_ROWS or not nearly_all:
        return None
    others = u - beta  # K(x, x) = 1
    typical = np.median(np.abs(others - np.median(others)))
    return MEMORISED if typical < LITTLE * np.median(np.abs(beta)) else None


def _margin(problem: Problem, solution: SV, y: np.ndarray) -> float:
    """The distance of the margin from f = 0; of a regression the standard deviation of y."""
    if problem.kind == "svr":
        return float(np.std(y))
    return abs(solution.tube) if problem.task == "nu-svc" else 1.0
