"""Rows as the package holds them."""

from typing import Any

from scipy import sparse

from randsvm.arrays import CsrMatrix


def csr(*arguments: Any, **named: Any) -> CsrMatrix:
    """Return the matrix that scipy.sparse.csr_matrix makes of these arguments."""
    return CsrMatrix.from_scipy(sparse.csr_matrix(*arguments, **named))
