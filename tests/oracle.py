"""Outside truths for the tests: dense float64 formulas, LIBSVM's bindings, made data sets.

Slow and plain on purpose. Uses nothing of the package.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from libsvm import svm as bindings
from libsvm import svmutil
from scipy import sparse

LIBSVM_KERNELS = ("linear", "poly", "rbf", "sigmoid")


# ---- data -------------------------------------------------------------------------------------


def two_gaussians(rows: int, seed: int = 0, d: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Two overlapping clouds: y (m,) -1/+1, X (m, d) float32 values in float64."""
    rng = np.random.default_rng([seed, 1])
    y = np.where(rng.random(rows) < 0.5, 1.0, -1.0)
    return y, as_float32(rng.normal(size=(rows, d)) + y[:, None])


def checkerboard(rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """KBH07's board: negative where ceil(x1) % 2 != ceil(x2) % 2."""
    rng = np.random.default_rng([seed, 2])
    X = as_float32(rng.uniform(0, 4, (rows, 2)))
    parity = np.ceil(X) % 2
    return np.where(parity[:, 0] != parity[:, 1], -1.0, 1.0), X


def sparse_rows(rows: int, seed: int = 0, d: int = 300) -> tuple[np.ndarray, np.ndarray]:
    """Few nonzeros in many features, some rows without any; classes differ in a few features."""
    rng = np.random.default_rng([seed, 3])
    y = np.where(rng.random(rows) < 0.5, 1.0, -1.0)
    X = np.where(rng.random((rows, d)) < 0.01, rng.normal(size=(rows, d)), 0.0)
    X[:, :4] += (rng.random((rows, 4)) < 0.3) * y[:, None]
    X[:: max(rows // 5, 1)] = 0.0
    return y, as_float32(X)


def as_float32(X: np.ndarray) -> np.ndarray:
    """What a reader that keeps float32 holds, in float64 for the formulas."""
    return X.astype(np.float32).astype(np.float64)


def svmlight_text(labels: Sequence[object], X: np.ndarray, base: int = 1) -> str:
    """Rows as svmlight text: zeros left out, every value in full."""
    lines = []
    for label, x in zip(labels, X, strict=True):
        entries = [f"{j + base}:{float(x[j])!r}" for j in np.flatnonzero(x)]
        lines.append(" ".join([str(label), *entries]))
    return "\n".join(lines) + "\n"


def write_svmlight(path: Path, y: np.ndarray, X: np.ndarray) -> Path:
    path.write_text(svmlight_text([f"{int(label):+d}" for label in y], X))
    return path


# ---- formulas ---------------------------------------------------------------------------------


def kernel_matrix(
    kernel: str, X: np.ndarray, Z: np.ndarray, gamma: float, coef0: float = 0.0, degree: int = 3
) -> np.ndarray:
    """K(x_i, z_j) as LIBSVM's README defines it, (m, n) float64."""
    products = X @ Z.T
    if kernel == "linear":
        return products
    if kernel == "poly":
        return (gamma * products + coef0) ** degree
    if kernel == "sigmoid":
        return np.tanh(gamma * products + coef0)
    return np.exp(-gamma * np.maximum(0, squares(X)[:, None] + squares(Z) - 2 * products))


def squares(X: np.ndarray) -> np.ndarray:
    return (X**2).sum(axis=1)


class Objectives(NamedTuple):
    """P = 1/2 |w|^2 + C sum max(0, 1 - y f), D = sum alpha - 1/2 |w|^2, their gap."""

    primal: float
    dual: float

    @property
    def gap(self) -> float:
        return (self.primal - self.dual) / max(abs(self.primal), abs(self.dual))


def objectives(y: np.ndarray, u: np.ndarray, beta: np.ndarray, b: float, C: float) -> Objectives:
    """All of (n,): beta with zeros for rows that are no support vectors, u = K beta."""
    norm = beta @ u
    loss = np.maximum(0, 1 - y * (u + b)).sum()
    return Objectives(norm / 2 + C * loss, np.abs(beta).sum() - norm / 2)


def violating(
    y: np.ndarray, f: np.ndarray, beta: np.ndarray, C: float, tolerance: float
) -> np.ndarray:
    """alpha = 0: y f >= 1; alpha = C: y f <= 1; between: y f = 1. (n,) bool."""
    alpha, margin = np.abs(beta), y * f
    too_small = (alpha < C) & (margin < 1 - tolerance)
    too_large = (alpha > 0) & (margin > 1 + tolerance)
    return too_small | too_large


# ---- LIBSVM -----------------------------------------------------------------------------------


class Solved(NamedTuple):
    """LIBSVM's answer: row numbers of the support vectors, beta = y alpha, b; and its model."""

    rows: np.ndarray
    beta: np.ndarray
    b: float
    model: Any

    def dense(self, n: int) -> np.ndarray:
        beta = np.zeros(n)
        beta[self.rows] = self.beta
        return beta


def libsvm_train(y: np.ndarray, X: np.ndarray, words: str) -> Solved:
    """svm_train of the PyPI bindings; y is -1/+1, for which LIBSVM's first label is +1."""
    problem = bindings.svm_problem(y, sparse.csr_matrix(X))
    model = svmutil.svm_train(problem, bindings.svm_parameter(f"-q {words}"))
    rows = np.array(model.get_sv_indices()) - 1
    beta = np.array([coefficients[0] for coefficients in model.get_sv_coef()])
    assert model.get_labels() == [1, -1]
    order = np.argsort(rows)
    return Solved(rows[order], beta[order], -model.rho[0], model)


def libsvm_decisions(model: Any, X: np.ndarray) -> np.ndarray:
    """svm_predict_values row by row; features are columns counted from 1."""
    values = (ctypes.c_double * 1)()
    f = np.empty(len(X))
    for i, x in enumerate(X):
        row = {int(j) + 1: float(x[j]) for j in np.flatnonzero(x)}
        nodes, _ = bindings.gen_svm_nodearray(row)
        bindings.libsvm.svm_predict_values(model, nodes, values)
        f[i] = values[0]
    return f


class ModelFile(NamedTuple):
    """A model file as LIBSVM's own loader sees it, and the trailer's facts."""

    Z: np.ndarray
    beta: np.ndarray
    b: float
    gamma: float
    facts: dict[str, str]


def read_model(path: Path, d: int) -> ModelFile:
    """Through svm_load_model. Z : (m, d) over features 1..d."""
    loaded = svmutil.svm_load_model(str(path))
    assert loaded is not None
    Z = np.zeros((loaded.l, d))
    for row, nodes in zip(Z, loaded.get_SV(), strict=True):
        for index, value in nodes.items():
            row[index - 1] = value
    beta = np.array([coefficients[0] for coefficients in loaded.get_sv_coef()])
    return ModelFile(Z, beta, -loaded.rho[0], loaded.param.gamma, trailer(path))


def trailer(path: Path) -> dict[str, str]:
    """The '# randsvm key value' lines."""
    lines = path.read_text().splitlines()
    found = [line.removeprefix("# randsvm ") for line in lines if line.startswith("# randsvm ")]
    return dict(line.partition(" ")[::2] for line in found)
