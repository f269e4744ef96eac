"""Kernel models: f(x) = sum_i beta_i K(z_i, x) + b, in LIBSVM's format."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from randsvm.arrays import squared_norms
from randsvm.kernels.expansion import Expansion
from randsvm.kernels.kernel import Kernel
from randsvm.models import libsvm_format
from randsvm.models.facts import Facts
from randsvm.models.libsvm_format import LibsvmModel
from randsvm.models.model import Model, ModelRows, fields_of_any_model

LIBSVM_KERNELS = {"linear": "linear", "poly": "polynomial", "rbf": "rbf", "sigmoid": "sigmoid"}
KERNELS = {name: ours for ours, name in LIBSVM_KERNELS.items()}
# Models of LIBSVM's nu forms predict as those of its C forms do.
TASKS = {
    "c_svc": "svc",
    "nu_svc": "svc",
    "one_class": "one-class",
    "epsilon_svr": "svr",
    "nu_svr": "svr",
}
SVM_TYPES = {"svc": "c_svc", "one-class": "one_class", "svr": "epsilon_svr"}
NU_TYPES = {"svc": "nu_svc", "svr": "nu_svr"}
# Rounding errors of a sum of 1,024 float32 products, in units of 2^-24.
SUM_ERRORS = 128
# If even the smallest error bound is above this, most rows would be computed twice.
LARGEST_ERROR = 0.2


@dataclass(frozen=True, kw_only=True)
class KernelModel(Model):
    """f(x) = sum_i beta_i K(z_i, x) + b. Two classes have one column, f > 0 for the first label;
    more classes have a column each, one against the rest.

    task: svc, one-class (labels 1 and -1, 1: like the training rows), svr (no labels).
    Z : (m, d) CSR float32, the support vectors over the d distinct features they have; beta :
    (m, K) float64, b : (K,) float64. support : (m,) int64, which rows of the training data
    they are; None: not known, as no file says it. nu: trained as LIBSVM's nu form of the task,
    which predicts as the other does.
    """

    task: str
    kernel: Kernel
    Z: sparse.csr_matrix
    beta: np.ndarray
    b: np.ndarray
    support: np.ndarray | None = None
    nu: bool = False

    def described(self) -> dict[str, Any]:
        kernel = self.kernel
        used = {"gamma": kernel.gamma, "coef0": kernel.coef0, "degree": kernel.degree}
        names = {"linear": [], "rbf": ["gamma"], "sigmoid": ["gamma", "coef0"], "poly": [*used]}
        return {
            "format": "libsvm",
            "task": self.task,
            "kernel": kernel.name,
            **{name: used[name] for name in names[kernel.name]},
            "support_vectors": len(self.beta),
        }

    @property
    def _labels_from_data(self) -> bool:
        return self.task == "svc"

    @property
    def finds_novelties(self) -> bool:
        return self.task == "one-class"

    @property
    def counts_unseen(self) -> bool:
        """By |x - z|^2; scaled, a feature that was never seen is 0."""
        return self.kernel.name == "rbf" and self.scaling is None

    @cached_property
    def _expansion(self) -> Expansion:
        # float64: labels near the hyperplane come out as svm-predict's do.
        return Expansion.of(self.kernel, self.Z, self.beta)

    @cached_property
    def _float32_expansion(self) -> Expansion:
        return Expansion.of(self.kernel, self.Z, self.beta, np.float32)

    @cached_property
    def _largest_norm(self) -> float:
        """The largest |z|^2."""
        return float(squared_norms(self.Z).max(initial=0.0))

    def _decision(self, rows: ModelRows, labels_only: bool) -> np.ndarray:
        """Costs m * len(beta) kernel values, a block at a time."""
        if labels_only and self.task != "svr" and self.kernel.name == "rbf":
            error = self._float32_error(rows)
            if error.min(initial=np.inf) < LARGEST_ERROR:
                return self._mostly_float32(rows, error)
        return self._expansion.values(rows.X, rows.extra) + self.b

    def _float32_error(self, rows: ModelRows) -> np.ndarray:
        """How far f of each row may be off where RBF is computed in float32, (m,).

        An exponent is a sum of d + 2 products that are 2 g (|x|^2 + |z|^2) together at the most; a
        block is a sum of 1,024 products with K <= 1. Each step and each number that goes in is
        rounded to 24 bits.
        """
        norms = squared_norms(rows.X) + rows.extra
        exponents = 2 * self.kernel.gamma * (norms + self._largest_norm)
        scale = np.abs(self.beta).sum(axis=0).max(initial=0.0)
        return 2.0**-24 * (SUM_ERRORS + (6 + self.Z.shape[1]) * exponents) * scale

    def _mostly_float32(self, rows: ModelRows, error: np.ndarray) -> np.ndarray:
        """f in float32, and in float64 for rows whose label the error could change."""
        f = self._float32_expansion.values(rows.X, rows.extra) + self.b
        if f.shape[1] == 1:
            margin = np.abs(f[:, 0])
        else:
            second, largest = np.partition(f, -2, axis=1)[:, -2:].T
            margin = (largest - second) / 2
        near = np.flatnonzero(~(margin > error))
        f[near] = self._expansion.values(rows.X[near], rows.extra[near]) + self.b
        return f

    def save(self, path: str) -> None:
        kernel, Z, beta = self.kernel, self.Z, self.beta
        label = self._c_labels if self.task == "svc" else None
        nr_sv = None
        if self.task == "svc" and beta.shape[1] == 1:
            # LIBSVM groups support vectors by class.
            positive = beta[:, 0] > 0
            order = np.concatenate([np.flatnonzero(positive), np.flatnonzero(~positive)])
            Z, beta = Z[order], beta[order]
            nr_sv = (int(positive.sum()), int((~positive).sum())) if label else None
        beyond_libsvm = (self.task == "svc" and not label) or len(self.b) > 1 or self.scaling
        sigmoid = (None, None) if self.sigmoid is None else tuple(map(tuple, self.sigmoid.tolist()))
        body = LibsvmModel(
            svm_type=(NU_TYPES if self.nu else SVM_TYPES)[self.task],
            kernel_type=LIBSVM_KERNELS[kernel.name],
            degree=kernel.degree,
            gamma=kernel.gamma,
            coef0=kernel.coef0,
            rho=tuple((0.0 - self.b).tolist()),  # no -0.0
            label=label,
            nr_sv=nr_sv,
            coefficients=beta,
            indptr=Z.indptr.astype(np.int64),
            indices=self.features[Z.indices],
            values=Z.data,
            probA=sigmoid[0],
            probB=sigmoid[1],
            nr_class=len(self.labels) if self.task == "svc" else 2,
            own_layout=bool(beyond_libsvm),
        )
        libsvm_format.write(path, body, self._trailer)

    @staticmethod
    def parse(content: bytes, name: str) -> KernelModel:
        """Raises ModelError and DataError, which call the file `name`."""
        body, trailer = libsvm_format.parse(content, name)
        task = TASKS[body.svm_type]
        fields = fields_of_any_model(Facts(name, trailer), task, body.label, body.nr_class)
        if task == "svc" and body.probA and body.probB:
            fields["sigmoid"] = np.array([body.probA, body.probB])
        features, columns = np.unique(body.indices, return_inverse=True)
        m = len(body.coefficients)
        return KernelModel(
            task=task,
            nu=body.svm_type in NU_TYPES.values(),
            kernel=Kernel(
                KERNELS[body.kernel_type],
                1.0 if body.gamma is None else body.gamma,
                0.0 if body.coef0 is None else body.coef0,
                3 if body.degree is None else body.degree,
            ),
            Z=sparse.csr_matrix((body.values, columns, body.indptr), shape=(m, len(features))),
            features=features.astype(np.int32),
            beta=body.coefficients,
            b=-np.array(body.rho),
            **fields,
        )
