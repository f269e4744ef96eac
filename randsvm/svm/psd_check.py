"""Whether a precomputed kernel is positive semidefinite: only then D <= optimum <= P holds.

Knows nothing of solvers or files.
"""

from __future__ import annotations

import numpy as np

from randsvm.data.dataset import Dataset
from randsvm.data.precomputed import centres, kernel_values

# Of so many rows Cholesky's decomposition takes a second or two, and 16 bytes a pair, 268 MB, as
# much as the largest subproblem that has room under any --memory: that must not decide what is
# certified.
MOST_ROWS = 4096
# Rounding of values, as a share of the largest: it moves the eigenvalues of n rows by so much times
# sqrt(n). Measured in units of 2^-24 sqrt(n): 0.1 for values of float64 kept in float32, up to 3
# for those that were computed in float32 (rbf, n = 3,500), 2 to 12 for six digits.
ROUNDING = 2.0**-21

INDEFINITE = "the precomputed kernel is not positive semidefinite (but for rounding)"
NOT_CHECKED = (
    f"a precomputed kernel of more than {MOST_ROWS:,} rows is not checked to be positive "
    "semidefinite"
)


def doubt(D: Dataset) -> str | None:
    """Why the values in D may be of no positive semidefinite kernel; None: they are of one, but for
    rounding: no eigenvalue is below -ROUNDING sqrt(n) times the largest value, which a kernel has
    on its diagonal. Raises ContentError where the values are not symmetric.
    """
    # Imported here: it takes 30 ms, an eighth of a small training, and no other kernel needs it.
    from scipy.linalg import lapack

    if D.n > MOST_ROWS:
        return NOT_CHECKED
    K = kernel_values(D, centres(D, np.arange(D.n))).astype(np.float64)
    largest = max(float(K.diagonal().max()), float(np.finfo(np.float32).tiny))
    K.flat[:: D.n + 1] += ROUNDING * np.sqrt(D.n) * largest
    # LAPACK takes columns, of which a symmetric matrix has the same, and works in their place.
    _, failed = lapack.dpotrf(K.T, clean=False, overwrite_a=True)
    return INDEFINITE if failed else None
