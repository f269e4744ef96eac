"""Kernel models, f(x) = sum_i beta_i K(z_i, x) + b, in LIBSVM's format."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from math import log
from typing import Any

import numpy as np

from randsvm.arrays import FLOAT32_UNIT, CsrMatrix, Matrix, slices
from randsvm.errors import ContentError
from randsvm.kernels.expansion import CENTRE_BYTES, Expansion, evaluate_expansions
from randsvm.kernels.kernel import Kernel
from randsvm.kernels.layouts import BLOCK_CENTRES, SLICE_ROWS, Cells, Layout, choose_layout
from randsvm.kernels.rounding import EXP_ERROR
from randsvm.models import decisions
from randsvm.models.model import ROWS_AT_ONCE, Model, ModelRows
from randsvm.parameters.svm import KERNELS

# Rounding of a float32 value and of its product with a coefficient, in units of 2^-24: of exp, of
# both factors, of the product and of the last addition of each of a few lanes.
VALUE_ROUNDING = EXP_ERROR + 8
# Rows with a larger bound on the relative error of float32 are predicted in float64.
MAX_RELATIVE_ERROR = 0.05
# Bound on the sum of the RBF terms that cells may skip in float32 sums.
MAX_OMITTED_SUM = 1e-4
# Rows that are sorted into cells at once; with more rows the boxes of cells are smaller, and more
# terms are skipped.
CELL_ROWS = 4096


@dataclass(frozen=True, kw_only=True)
class KernelModel(Model):
    """A kernel model, f(x) = sum_i beta_i K(z_i, x) + b.

    Two classes: f > 0 predicts the first label. Several classes are one against the rest, where the
    largest f_c wins, or one against one: f_ij(x) = sum_s beta_s K(z_s, x) + b_ij over the support
    vectors s of the classes i and j > i, and f_ij > 0 is a vote for i, else for j.

    prediction_type : svc, svr (no labels) or one-class (labels 1, like the training rows, and -1)
    Z : (m, d) CSR, support vectors; column j is the feature `features[j]`. float64 if the model is
    `float64`, else float32. With a precomputed kernel `features` has the row numbers of the support
    vectors in the training data, and each row of Z has one value: 1 in the column of its number.
    beta : (m, K) float64, coefficients of the support vectors. K is 1 for two classes, regression
    and novelty detection, and the number of classes for one against the rest. For one against one
    it is that number less 1: coefficients y alpha in the pairs of the own class with each other
    class, as in LIBSVM.
    class_of : (m,) int64, index of the class of each support vector, ascending, for one against
    one, where b and `sigmoid` have the order of `decisions.class_pairs`; else None
    support : (m,) int64, row numbers of the support vectors in the training data; None for a file
    nu : whether the task was nu-svc or nu-svr
    """

    prediction_type: str
    kernel: Kernel
    Z: CsrMatrix
    beta: np.ndarray
    class_of: np.ndarray | None = None
    support: np.ndarray | None = None
    nu: bool = False

    @property
    def has_pairs(self) -> bool:
        return self.class_of is not None

    @cached_property
    def class_parts(self) -> tuple[np.ndarray, np.ndarray]:
        """The support vectors of each class for one against one, else all in one part.

        starts : (parts + 1,), part p has the support vectors starts[p] to starts[p + 1];
        columns : (parts, K), the column of f to which each column of its beta belongs
        """
        if self.class_of is None:
            return np.array([0, len(self.beta)]), np.arange(self.beta.shape[1])[None]
        classes = len(self.labels)
        starts = np.searchsorted(self.class_of, np.arange(classes + 1))
        return starts, decisions.pairs_of_classes(classes)

    @property
    def coefficients(self) -> np.ndarray:
        """The coefficient of each support vector in each decision value, (m, columns of f)."""
        return dense_coefficients(self.beta, *self.class_parts, len(self.b))

    def properties(self) -> dict[str, Any]:
        kernel = self.kernel
        return {
            "format": "libsvm",
            "task": self.prediction_type,
            "kernel": kernel.name,
            **{name: getattr(kernel, name) for name in KERNELS[kernel.name]},
            "support_vectors": len(self.beta),
        }

    @property
    def counts_unseen(self) -> bool:
        """Whether unseen features change f: RBF counts them in |x - z|^2; scaling removes them."""
        return self.kernel.name == "rbf" and self.scaling is None

    def rows(self, X: CsrMatrix) -> ModelRows:
        if self.has_row_numbers and (
            (np.diff(X.indptr) == 0).any() or (X.indices[X.indptr[:-1]] != 0).any()
        ):
            raise ContentError(
                "the model has a precomputed kernel: expected rows '0:number 1:K(x,x1) 2:K(x,x2) "
                "..', of which each begins with 0:, found others"
            )
        return super().rows(X)

    @property
    def has_row_numbers(self) -> bool:
        return self.kernel.name == "precomputed"

    @property
    def rows_at_once(self) -> int:
        rows = super().rows_at_once
        in_cells = self._prefers_float32 and isinstance(self._float32_layout, Cells)
        return CELL_ROWS if in_cells and rows == ROWS_AT_ONCE else rows

    def without_unused_features(self) -> KernelModel:
        """Return a model with the same f without the features that no support vector has."""
        used = np.zeros(self.Z.shape[1], bool)
        used[self.Z.indices] = True
        if used.all():
            return self
        # np.unique would sort the indices.
        columns = (np.cumsum(used) - 1)[self.Z.indices]
        Z = self.Z.with_columns(columns, int(used.sum()))
        return replace(self, Z=Z, features=self.features[used])

    # --- decision values -------------------------------------------------------------------

    def decision(self, rows: ModelRows, labels_only: bool = False) -> np.ndarray:
        """Return f, (m, columns) float64.

        labels_only: RBF sums may be in float32 for rows whose label rounding cannot change.
        """
        if labels_only and self._prefers_float32:
            error = self._float32_error(rows)
            if error.min(initial=np.inf) < MAX_RELATIVE_ERROR:
                return self._decision_mostly_in_float32(rows, error)
        return self._decision_in_float64(rows.X, rows.extra)

    @property
    def _prefers_float32(self) -> bool:
        """Return whether labels follow from float32 sums where rounding cannot change them."""
        return self.prediction_type != "svr" and self.kernel.name == "rbf"

    def _decision_in_float64(self, X: Matrix, extra: np.ndarray) -> np.ndarray:
        return self._f(evaluate_expansions(self._float64, X, extra))

    def decision_and_sizes(self, X: Matrix, extra: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return f and the sums of |beta| K that bound its rounding, both (m, columns) float64.

        X : (m, d), rows as `rows` returns them; extra : (m,), squared norms of their other features
        """
        sums = evaluate_expansions(self._float64_with_sizes, X, extra)
        columns = self.beta.shape[1]
        return self._f(sums[..., :columns]), self._f(sums[..., columns:]) - self.b

    @cached_property
    def _float64_with_sizes(self) -> tuple[Expansion, ...]:
        both = np.hstack([self.beta, np.abs(self.beta)])
        return self._expansions(self.float64_layout, both)

    def _decision_mostly_in_float32(self, rows: ModelRows, error: np.ndarray) -> np.ndarray:
        """Return f in float32, or in float64 for rows whose label rounding errors could change.

        error : (m,), the bounds of `_float32_error`.
        """
        sums = evaluate_expansions(self._float32, rows.X, rows.extra)
        f = self._f(sums[..., :-1])
        # The last column has the sum of largest |beta| K of each part. A column of f has the terms
        # of two parts at most.
        sizes = np.sort(sums[..., -1], axis=0)[-2:].sum(axis=0)
        bound = (1.1 * error * sizes + MAX_OMITTED_SUM)[:, None]
        uncertain = ~(self._is_certain(f, bound) & (error < MAX_RELATIVE_ERROR))
        again = np.flatnonzero(uncertain)
        f[again] = self._decision_in_float64(rows.X[again], rows.extra[again])
        return f

    def _float32_error(self, rows: ModelRows) -> np.ndarray:
        """Return the error bound of float32 RBF sums relative to sum |beta_i| K(z_i, x), (m,).

        The exponent g |x - z|^2 is computed as a sum of d + 2 products, from rows minus the centre.
        The sum of their absolute values is at most 2 g (|x|^2 + |z|^2). The bound is of first
        order: every input and every partial sum, also of kernel values, is rounded to 24 bits.
        """
        norms = self._float32_layout.squared_norms(rows.X) + rows.extra
        exponents = 2 * self.kernel.gamma * (norms + self._max_squared_norm)
        adding = self._float32_layout.additions(len(self.beta), self.beta.shape[1] + 1)
        return FLOAT32_UNIT * (VALUE_ROUNDING + adding + (6 + self.Z.shape[1]) * exponents)

    @cached_property
    def _max_squared_norm(self) -> float:
        """The largest |z|^2 in the layout for float32."""
        layout, Z = self._float32_layout, self.Z
        parts = (layout.squared_norms(Z[at]) for at in slices(Z.shape[0], BLOCK_CENTRES))
        return max((float(norms.max()) for norms in parts), default=0.0)

    @cached_property
    def _float64(self) -> tuple[Expansion, ...]:
        """The expansions in float64; labels near the hyperplane agree with svm-predict's."""
        return self._expansions(self.float64_layout, self.beta)

    @cached_property
    def _float32(self) -> tuple[Expansion, ...]:
        """The expansions in float32; an additional column has the largest |beta| of each row."""
        largest = np.abs(self.beta).max(axis=1, keepdims=True, initial=0.0)
        return self._expansions(self._float32_layout, np.hstack([self.beta, largest]))

    @property
    def float64_layout(self) -> Layout:
        return choose_layout(self.kernel, (*self.Z.shape, self.Z.nnz), np.float64)

    @cached_property
    def _float32_layout(self) -> Layout:
        Z, m, sums = self.Z, len(self.beta), self.beta.shape[1] + 1
        total = float(np.abs(self.beta).max(axis=1, initial=0.0).sum())
        # The speed is tried with some support vectors in place of the rows and of the centres: at
        # most these numbers of them.
        limits = SLICE_ROWS, BLOCK_CENTRES // 8
        rows, centres = (Z[:: max(1, -(-m // most))] for most in limits)
        return choose_layout(
            self.kernel,
            (*Z.shape, Z.nnz),
            np.float32,
            sample=Z,
            reads_nonzeros=True,
            profits=lambda cells: (
                m > BLOCK_CENTRES and total > 0 and cells.profits(rows, centres, sums)
            ),
            cutoff=max(log(total / MAX_OMITTED_SUM), 0.0) if total > 0 else 0.0,
        )

    def _expansions(self, kernel_layout: Layout, beta: np.ndarray) -> tuple[Expansion, ...]:
        """Return the kernel expansion of each part.

        Each kernel value is computed once and used for all pairs that contain the class. One
        product with the coefficients of all pairs takes K / 2 times as many operations: measured,
        6.8 instead of .8 ns a kernel value with 26 classes, 1.2 instead of .5 with 10.
        """
        parts = [slice(*ends) for ends in pairwise(self.class_parts[0].tolist())]
        most = CENTRE_BYTES // max(len(parts), 1)
        return tuple(Expansion(kernel_layout, self.Z[part], beta[part], most) for part in parts)

    def _f(self, sums: np.ndarray) -> np.ndarray:
        """Return f, (m, columns). sums : (parts, m, columns of beta)."""
        f = np.zeros((len(self.b), sums.shape[1]))
        for columns, of_part in zip(self.class_parts[1], sums, strict=True):
            f[columns] += of_part.T
        return f.T + self.b

    def _is_certain(self, f: np.ndarray, bound: np.ndarray) -> np.ndarray:
        """Return whether the class is certain for an error of f of at most `bound`, (m,) bool.

        f : (m, columns); bound : (m, 1).
        """
        if self.has_pairs:
            doubtful = np.abs(f) <= bound
            certain = ~doubtful.any(axis=1)
            unsure = np.flatnonzero(~certain)
            certain[unsure] = self._winner_is_fixed(f[unsure], doubtful[unsure])
            return certain
        if f.shape[1] == 1:
            return np.abs(f[:, 0]) > bound[:, 0]
        second, largest = np.partition(f, -2, axis=1)[:, -2:].T
        return (largest - second) / 2 > bound[:, 0]

    def _winner_is_fixed(self, f: np.ndarray, doubtful: np.ndarray) -> np.ndarray:
        """Return whether the winner is the same for all votes of the doubtful pairs, (m,) bool.

        f, doubtful : (m, pairs).
        """
        classes, wins = len(self.labels), f > 0
        # The votes of each class if it loses all of its doubtful pairs, and if it wins them.
        fewest = decisions.votes(wins & ~doubtful, ~(wins | doubtful), classes)
        most = decisions.votes(wins | doubtful, ~wins | doubtful, classes)
        row, winner = np.arange(len(f)), self.predicted(f)
        # With equal votes the first class wins.
        most += 0.5 * (np.arange(classes) < winner[:, None])
        most[row, winner] = -1  # only its rivals count
        return fewest[row, winner] >= most.max(axis=1)


def dense_coefficients(
    c: np.ndarray, starts: np.ndarray, columns: np.ndarray, count: int
) -> np.ndarray:
    """Return the coefficient of each term in each of `count` columns of f, (m, count) float64.

    c : (m, K), coefficients of terms; starts, columns : see `KernelModel.class_parts`
    """
    found = np.zeros((len(c), count))
    np.put_along_axis(found, np.repeat(columns, np.diff(starts), axis=0), c, axis=1)
    return found
