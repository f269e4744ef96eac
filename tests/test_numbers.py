"""Numbers at the ends of what float32 holds: a finite model, or one line, never nan or inf."""

from __future__ import annotations

import re

import numpy as np
import oracle
from scipy import sparse

from randsvm.events import Notice, listening
from randsvm.params import Params
from randsvm.points import Points
from randsvm.solver import svmlearn

NOT_FINITE = re.compile(r"\b(nan|inf|infinity)\b", re.IGNORECASE)


# ---- what LIBSVM says of itself ------------------------------------------------------------------


def notices_of_a_solve(rows: int, C: float) -> list[str]:
    y, X = oracle.two_gaussians(rows)
    points = Points(np.arange(rows), sparse.csr_matrix(X.astype(np.float32)), y)
    events: list[object] = []
    with listening(events.append):
        for _ in range(2):
            svmlearn(points, Params(kernel="linear", gamma=1.0, C=C, tolerance=1e-6))
    return [event.text for event in events if isinstance(event, Notice)]


def test_a_solve_that_ends_at_libsvms_limit_of_iterations_is_told_once(capfd):
    (said,) = notices_of_a_solve(40, C=1e9)
    assert said.startswith("LIBSVM reached its limit of iterations")
    out, err = capfd.readouterr()
    assert out == ""
    assert err.count("reaching max number of iterations") == 2  # LIBSVM's own words


def test_a_solve_that_ends_before_it_is_not(capfd):
    assert notices_of_a_solve(40, C=1.0) == []
    assert capfd.readouterr() == ("", "")
