"""Kernel models: f(x) = sum_i beta_i K(z_i, x) + b, in LIBSVM's format."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import log
from typing import Any

import numpy as np
from scipy import sparse

from randsvm.arrays import squared_norms
from randsvm.errors import ContentError
from randsvm.kernels.expansion import Expansion, KernelLayout, values_of_each
from randsvm.kernels.kernel import Kernel
from randsvm.models import decisions, libsvm_format
from randsvm.models.layout import fast_layout, precise_layout
from randsvm.models.libsvm_format import LibsvmModel
from randsvm.models.model import Model, ModelRows

LIBSVM_KERNELS = {
    "linear": "linear",
    "poly": "polynomial",
    "rbf": "rbf",
    "sigmoid": "sigmoid",
    "precomputed": "precomputed",
}
SVM_TYPES = {"svc": "c_svc", "one-class": "one_class", "svr": "epsilon_svr"}
NU_TYPES = {"svc": "nu_svc", "svr": "nu_svr"}
# Rounding errors of a sum of 1,024 float32 products, in units of 2^-24.
SUM_ERRORS = 140
# Where float32 may be off by more than this share, it says nothing.
LARGEST_ERROR = 0.05
# What values of RBF that are left out of float32 sums may add up to.
LEFT_OUT = 1e-4
# Rows that are sorted into cells together: of more of them, cells are smaller.
CELL_ROWS_AT_ONCE = 4096


@dataclass(frozen=True, kw_only=True)
class KernelModel(Model):
    """f(x) = sum_i beta_i K(z_i, x) + b. Two classes have one column, f > 0 for the first label;
    more classes have a column each, one against the rest (one against one: PairwiseModel).

    task: svc, one-class (labels 1 and -1, 1: like the training rows), svr (no labels).
    Z : (m, d) CSR, float64 where the model is `precise` and else float32, the support vectors over
    the d distinct features they have; beta : (m, K) float64, b : (K,) float64. Features of a
    precomputed kernel are the numbers of the training rows that are support vectors, and each row
    of Z has a 1 at its own.
    density_marks : of one-class, see decisions.novelty_probabilities; None: not fitted.
    support : (m,) int64, which rows of the training data they are; None: not known, as no file
    says it. nu: trained as LIBSVM's nu form of the task, which
    predicts as the other does.
    """

    task: str
    kernel: Kernel
    Z: sparse.csr_matrix
    beta: np.ndarray
    b: np.ndarray
    density_marks: np.ndarray | None = None
    support: np.ndarray | None = None
    nu: bool = False

    def described(self) -> dict[str, Any]:
        kernel = self.kernel
        used = {"gamma": kernel.gamma, "coef0": kernel.coef0, "degree": kernel.degree}
        names = {"rbf": ["gamma"], "sigmoid": ["gamma", "coef0"], "poly": [*used]}
        return {
            "format": "libsvm",
            "task": self.task,
            "kernel": kernel.name,
            **{name: used[name] for name in names.get(kernel.name, [])},
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

    @property
    def has_probabilities(self) -> bool:
        fitted = {"svc": self.sigmoid, "svr": self.noise_scale, "one-class": self.density_marks}
        return fitted[self.task] is not None

    def probabilities(self, f: np.ndarray) -> np.ndarray:
        if self.density_marks is not None:
            return decisions.novelty_probabilities(f, self.density_marks)
        return super().probabilities(f)

    def rows(self, indptr: np.ndarray, indices: np.ndarray, values: np.ndarray) -> ModelRows:
        if self.numbered and (
            (indptr[1:] == indptr[:-1]).any() or (indices[indptr[:-1]] != 0).any()
        ):
            raise ContentError(
                "the model has a precomputed kernel: expected rows '0:number 1:K(x,x1) 2:K(x,x2) "
                "..', of which each begins with 0:, found others"
            )
        return super().rows(indptr, indices, values)

    @property
    def numbered(self) -> bool:
        return self.kernel.name == "precomputed"

    @property
    def rows_at_once(self) -> int:
        in_cells = self._labels_in_float32 and self._float32_layout.cut is not None
        return CELL_ROWS_AT_ONCE if in_cells else super().rows_at_once

    @property
    def _labels_in_float32(self) -> bool:
        """Whether most labels are sure in float32, which takes a fraction of the time."""
        return self.task != "svr" and self.kernel.name == "rbf"

    def _decision(self, rows: ModelRows, labels_only: bool) -> np.ndarray:
        """Costs m * len(beta) kernel values, a block at a time."""
        if labels_only and self._labels_in_float32:
            error = self._float32_error(rows)
            if error.min(initial=np.inf) < LARGEST_ERROR:
                return self._mostly_float32(rows, error)
        return self._in_float64(rows.X, rows.extra)

    def _in_float64(self, X: sparse.csr_matrix, extra: np.ndarray) -> np.ndarray:
        return self._f(values_of_each(self._float64, X, extra))

    def _mostly_float32(self, rows: ModelRows, error: np.ndarray) -> np.ndarray:
        """f in float32, and in float64 for rows whose label the error could change."""
        sums = values_of_each(self._float32, rows.X, rows.extra)
        f = self._f(sums[..., :-1])
        off = 1.1 * error[:, None] * self._sizes(sums[..., -1]) + LEFT_OUT
        near = np.flatnonzero(~(self._certain(f, off) & (error < LARGEST_ERROR)))
        f[near] = self._in_float64(rows.X[near], rows.extra[near])
        return f

    def _float32_error(self, rows: ModelRows) -> np.ndarray:
        """How far f of each row may be off where RBF is computed in float32, in shares of
        sum |beta_i| K(z_i, x), to first order; (m,).

        An exponent is a sum of d + 2 products that are 2 g (|x|^2 + |z|^2) together at the most, of
        rows that the centre was subtracted from. Each step of it, and of the sums of kernel values,
        and each number that goes in is rounded to 24 bits.
        """
        centre = self._float32_layout.centre
        norms = squared_norms(rows.X) + rows.extra
        if centre is not None:
            norms += centre @ centre - 2 * (rows.X @ centre)
        exponents = 2 * self.kernel.gamma * (norms + self._largest_norm)
        return 2.0**-24 * (SUM_ERRORS + (6 + self.Z.shape[1]) * exponents)

    @cached_property
    def _largest_norm(self) -> float:
        """The largest |z|^2 in the layout for float32."""
        return float(self._float32_layout.rows(self.Z).norms.max(initial=0.0))

    @cached_property
    def _float64(self) -> tuple[Expansion, ...]:
        # Labels near the hyperplane come out as svm-predict's do.
        return self._expansions(precise_layout(self.kernel, self.Z), self.beta)

    @cached_property
    def _float32(self) -> tuple[Expansion, ...]:
        """With one sum more: of what the others may be off by."""
        largest = np.abs(self.beta).max(axis=1, keepdims=True, initial=0.0)
        return self._expansions(self._float32_layout, np.hstack([self.beta, largest]))

    @cached_property
    def _float32_layout(self) -> KernelLayout:
        total = float(np.abs(self.beta).max(axis=1, initial=0.0).sum())
        cut = max(log(total / LEFT_OUT), 0.0) if total > 0 else None
        return fast_layout(self.kernel, self.Z, cut, self.beta.shape[1] + 1)

    def _expansions(self, kernel_layout: KernelLayout, beta: np.ndarray) -> tuple[Expansion, ...]:
        """The sums that f consists of."""
        return (Expansion(kernel_layout, self.Z, beta),)

    def _f(self, sums: np.ndarray) -> np.ndarray:
        """(m, columns). sums : (expansions, m, columns of beta)."""
        return sums[0] + self.b

    def _sizes(self, sums: np.ndarray) -> np.ndarray:
        """sum |beta| K at the most, in each column of f, (m, columns or 1). sums : (expansions, m),
        with the largest of each |beta|."""
        return sums[0][:, None]

    def _certain(self, f: np.ndarray, off: np.ndarray) -> np.ndarray:
        """Whether no change of f by less than `off` changes the predicted class, (m,) bool.
        off : (m, columns or 1)."""
        if f.shape[1] == 1:
            return np.abs(f[:, 0]) > off[:, 0]
        second, largest = np.partition(f, -2, axis=1)[:, -2:].T
        return (largest - second) / 2 > off.max(axis=1)

    def save(self, path: str) -> None:
        libsvm_format.write(path, self._as_written(), self._trailer)

    def _as_written(self) -> LibsvmModel:
        kernel, Z, beta = self.kernel, self.Z, self.beta
        label = self._c_labels if self.task == "svc" else None
        nr_sv = self._grouped
        if self.task == "svc" and beta.shape[1] == 1 and nr_sv is None:
            # LIBSVM groups support vectors by class.
            positive = beta[:, 0] > 0
            order = np.concatenate([np.flatnonzero(positive), np.flatnonzero(~positive)])
            Z, beta = Z[order], beta[order]
            nr_sv = (int(positive.sum()), int((~positive).sum())) if label else None
        one_vs_rest = len(self.b) > 1 and nr_sv is None
        beyond_libsvm = (self.task == "svc" and not label) or one_vs_rest or self.scaling
        indices, values = self.features[Z.indices], Z.data
        if self.numbered:
            indices, values = np.zeros_like(indices), indices.astype(np.float32)
        return LibsvmModel(
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
            indices=indices,
            values=values,
            nr_class=len(self.labels) if self.task == "svc" else 2,
            own_layout=bool(beyond_libsvm),
            **self._fitted,
        )

    @property
    def _grouped(self) -> tuple[int, ...] | None:
        """Support vectors of each class, where they are grouped by class."""
        return None

    @property
    def _fitted(self) -> dict[str, tuple[float, ...]]:
        """The lines on probabilities."""
        lines: dict[str, tuple[float, ...]] = {}
        if self.sigmoid is not None:
            lines |= zip(("probA", "probB"), map(tuple, self.sigmoid.tolist()), strict=True)
        if self.noise_scale is not None:
            lines["probA"] = (self.noise_scale,)
        if self.density_marks is not None:
            lines["prob_density_marks"] = tuple(self.density_marks.tolist())
        return lines
