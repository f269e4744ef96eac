"""Kernel models: f(x) = sum_i beta_i K(z_i, x) + b, in LIBSVM's format."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse

from randsvm.arrays import squared_norms
from randsvm.kernels.expansion import Expansion
from randsvm.kernels.kernel import Kernel
from randsvm.models import libsvm_format
from randsvm.models.libsvm_format import LibsvmModel
from randsvm.models.model import (
    FOREIGN_LINE,
    ONE_CLASS_LABELS,
    ONE_CLASS_VALUES,
    Model,
    TestRows,
    common_parts,
    flat,
)

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
# Rounding of a sum of 1,024 float32 products, in last places.
ROUNDED = 128
# Where rounding may reach further than this, too many rows would be computed twice.
WORTHWHILE = 0.2


@dataclass(frozen=True, kw_only=True)
class KernelModel(Model):
    """f(x) = sum_i beta_i K(z_i, x) + b; one column for two classes, f > 0 being the first label
    and else the second; of more classes the largest of one column for each, against the rest.

    task: svc, one-class (labels 1 and -1, 1: like the training rows), svr (no labels: f is it).
    Z : (m, d) CSR float32, the support vectors over the d distinct features they have; beta :
    (m, K) float64, b : (K,) float64.
    """

    task: str
    kernel: Kernel
    Z: sparse.csr_matrix
    beta: np.ndarray
    b: np.ndarray

    @property
    def _named(self) -> bool:
        return self.task == "svc"

    @cached_property
    def _expansion(self) -> Expansion:
        # float64: labels near the hyperplane come out as svm-predict's do.
        return Expansion.of(self.kernel, self.Z, self.beta)

    @cached_property
    def _rough_expansion(self) -> Expansion:
        return Expansion.of(self.kernel, self.Z, self.beta, np.float32)

    @cached_property
    def _norm(self) -> float:
        """The largest |z|^2."""
        return float(squared_norms(self.Z).max(initial=0.0))

    def decision(self, rows: TestRows, rough: bool = False) -> np.ndarray:
        """Costs m * len(beta) kernel values, a block at a time. rough: in float32 where that
        changes no label."""
        if rough and self.task != "svr" and self.kernel.name == "rbf":
            return self._rough_decision(rows)
        return self._exact_decision(rows)

    def _exact_decision(self, rows: TestRows) -> np.ndarray:
        return flat(self._expansion.values(rows.X, rows.extra) + self.b)

    def _rough_decision(self, rows: TestRows) -> np.ndarray:
        """f in float32, and in float64 for rows that are nearer to another label than the rounding
        may reach.

        An exponent is a sum of d + 2 products that are 2 g (|x|^2 + |z|^2) together at the most, a
        block a sum of 1,024 products with K <= 1; each step, and each of what goes in, is rounded
        to 24 bits.
        """
        norms = squared_norms(rows.X) + rows.extra
        exponents = 2 * self.kernel.gamma * (norms + self._norm)
        scale = np.abs(self.beta).sum(axis=0).max(initial=0.0)
        error = 2.0**-24 * (ROUNDED + (6 + self.Z.shape[1]) * exponents) * scale
        if not error.min(initial=np.inf) < WORTHWHILE:
            return self._exact_decision(rows)
        f = self._rough_expansion.values(rows.X, rows.extra) + self.b
        if f.shape[1] == 1:
            margin = np.abs(f[:, 0])
        else:
            least, most = np.partition(f, -2, axis=1)[:, -2:].T
            margin = (most - least) / 2
        near = np.flatnonzero(~(margin > error))
        f[near] = self._expansion.values(rows.X[near], rows.extra[near]) + self.b
        return flat(f)

    def save(self, path: str) -> None:
        kernel, Z, beta = self.kernel, self.Z, self.beta
        nr_sv = None
        numbers = self._numbers if self.task == "svc" else None
        if self.task == "svc" and beta.shape[1] == 1:
            # LIBSVM has them grouped by class.
            positive = beta[:, 0] > 0
            order = np.concatenate([np.flatnonzero(positive), np.flatnonzero(~positive)])
            Z, beta = Z[order], beta[order]
            nr_sv = (int(positive.sum()), int((~positive).sum())) if numbers else None
        sigmoid = (None, None) if self.sigmoid is None else tuple(map(tuple, self.sigmoid.tolist()))
        body = LibsvmModel(
            svm_type=SVM_TYPES[self.task],
            kernel_type=LIBSVM_KERNELS[kernel.name],
            degree=kernel.degree,
            gamma=kernel.gamma,
            coef0=kernel.coef0,
            rho=tuple((0.0 - self.b).tolist()),  # no -0.0
            label=numbers,
            nr_sv=nr_sv,
            coefficients=beta,
            indptr=Z.indptr.astype(np.int64),
            indices=self.features[Z.indices],
            values=Z.data,
            probA=sigmoid[0],
            probB=sigmoid[1],
            nr_class=len(self.labels) if self.task == "svc" else 2,
        )
        foreign = (self.task == "svc" and not numbers) or len(self.b) > 1 or self.scaling
        libsvm_format.write(path, body, self._trailer, FOREIGN_LINE if foreign else None)

    @staticmethod
    def parse(content: bytes, name: str) -> KernelModel:
        body, trailer = libsvm_format.parse(content, name)
        task = TASKS[body.svm_type]
        if task == "one-class":
            common = {**common_parts(name, trailer, None, 0), "labels": ONE_CLASS_LABELS}
            common["values"] = ONE_CLASS_VALUES
        else:
            common = common_parts(name, trailer, body.label, body.nr_class if task == "svc" else 0)
            if task == "svc" and body.probA and body.probB:
                common["sigmoid"] = np.array([body.probA, body.probB])
        features, columns = np.unique(body.indices, return_inverse=True)
        m = len(body.coefficients)
        return KernelModel(
            task=task,
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
            **common,
        )
