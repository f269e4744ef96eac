"""Kernel models, f(x) = sum_i beta_i K(z_i, x) + b, in LIBSVM's format."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import log
from typing import Any

import numpy as np

from randsvm.arrays import CsrMatrix, Matrix, column_sums, squared_norms
from randsvm.errors import ContentError
from randsvm.kernels.expansion import (
    BLOCK_CENTRES,
    SLICE_ROWS,
    Expansion,
    KernelLayout,
    evaluate_expansions,
    has_few_nonzeros,
    prefers_dense,
    profits_from_cells,
    usual_values,
)
from randsvm.kernels.kernel import Kernel
from randsvm.models import decisions, libsvm_format
from randsvm.models.conformal import class_scores
from randsvm.models.libsvm_format import LibsvmModel
from randsvm.models.model import Model, ModelRows, common_fields
from randsvm.models.trailer import Trailer
from randsvm.parameters.kernel import KERNELS

# Kernel names of this package -> names in LIBSVM's models, and the inverse.
LIBSVM_KERNELS = {name: "polynomial" if name == "poly" else name for name in KERNELS}
KERNELS_OF_LIBSVM = {name: ours for ours, name in LIBSVM_KERNELS.items()}
# Task -> LIBSVM's svm_type. A nu_svc or nu_svr model predicts like a c_svc or epsilon_svr model.
LIBSVM_TYPES = {"svc": "c_svc", "one-class": "one_class", "svr": "epsilon_svr"}
LIBSVM_NU_TYPES = {"svc": "nu_svc", "svr": "nu_svr"}
TASKS_OF_LIBSVM = {
    name: task for types in (LIBSVM_TYPES, LIBSVM_NU_TYPES) for task, name in types.items()
}
# Bound on the relative rounding error of a sum of 1,024 float32 products, in units of 2^-24.
SUM_ROUNDING_ERRORS = 140
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

    Parameters
    ----------
    task : str
        The word svc, svr (no labels) or one-class (labels 1, like the training rows, and -1).
    kernel : Kernel
        The kernel with its parameters.
    Z : CSR matrix of shape (m, d)
        Support vectors; column j is the feature `features[j]`. float64 if the model is `float64`,
        else float32. With a precomputed kernel `features` has the row numbers of the support
        vectors in the training data, and each row of Z has one value: 1 in the column of its
        number.
    beta : array of shape (m, K), float64
        Coefficients of the support vectors. K is 1 for two classes, regression and novelty
        detection, else the number of classes, one against the rest.
    density_marks : array of shape (10,), optional
        Bounds of the bins of `decisions.novelty_probabilities`; None: not fitted.
    support : array of shape (m,), int64, optional
        Row numbers of the support vectors in the training data; None for a model from a file.
    nu : bool
        Whether the task was nu-svc or nu-svr.

    Notes
    -----
    Two classes: f > 0 predicts the first label. Several classes: the largest f_c wins.
    """

    task: str
    kernel: Kernel
    Z: CsrMatrix
    beta: np.ndarray
    density_marks: np.ndarray | None = None
    support: np.ndarray | None = None
    nu: bool = False

    @property
    def coefficients(self) -> np.ndarray:
        """The coefficient of each support vector in each decision value, (m, columns of f)."""
        return self.beta

    def properties(self) -> dict[str, Any]:
        kernel = self.kernel
        parameters = {"gamma": kernel.gamma, "coef0": kernel.coef0, "degree": kernel.degree}
        used = KERNELS[kernel.name]
        return {
            "format": "libsvm",
            "task": self.task,
            "kernel": kernel.name,
            **{name: value for name, value in parameters.items() if name in used},
            "support_vectors": len(self.beta),
        }

    @property
    def _labels_from_data(self) -> bool:
        return self.task == "svc"

    @property
    def is_one_class(self) -> bool:
        return self.task == "one-class"

    @property
    def counts_unseen(self) -> bool:
        """Whether unseen features change f: RBF counts them in |x - z|^2; scaling removes them."""
        return self.kernel.name == "rbf" and self.scaling is None

    @property
    def has_probabilities(self) -> bool:
        if self.task == "svc":
            return super().has_probabilities
        return (self.noise_scale if self.task == "svr" else self.density_marks) is not None

    def probabilities(self, f: np.ndarray) -> np.ndarray:
        if self.density_marks is not None:
            return decisions.novelty_probabilities(f, self.density_marks)
        return super().probabilities(f)

    def rows(self, indptr: np.ndarray, indices: np.ndarray, values: np.ndarray) -> ModelRows:
        if self.has_row_numbers and (
            (indptr[1:] == indptr[:-1]).any() or (indices[indptr[:-1]] != 0).any()
        ):
            raise ContentError(
                "the model has a precomputed kernel: expected rows '0:number 1:K(x,x1) 2:K(x,x2) "
                "..', of which each begins with 0:, found others"
            )
        return super().rows(indptr, indices, values)

    @property
    def has_row_numbers(self) -> bool:
        return self.kernel.name == "precomputed"

    @property
    def rows_at_once(self) -> int:
        in_cells = self._prefers_float32 and self._float32_layout.cutoff is not None
        return CELL_ROWS if in_cells else super().rows_at_once

    def without_unused_features(self) -> KernelModel:
        """Return this model without the features that no support vector has.

        Returns
        -------
        KernelModel
            A model with the same decision values.
        """
        Z = self.Z
        used, columns = np.unique(Z.indices, return_inverse=True)
        Z = CsrMatrix(Z.data, columns, Z.indptr, (Z.shape[0], len(used)))
        return replace(self, Z=Z, features=self.features[used])

    # --- decision values -------------------------------------------------------------------

    def _decision(self, rows: ModelRows, labels_only: bool) -> np.ndarray:
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
        return self.task != "svr" and self.kernel.name == "rbf"

    def _decision_in_float64(self, X: Matrix, extra: np.ndarray) -> np.ndarray:
        return self._f(evaluate_expansions(self._float64, X, extra))

    @property
    def sums_differences(self) -> bool:
        """Whether `decision_and_sizes` sums rbf over differences of features in all cases."""
        return _fastest_float64_layout(self.kernel, self.Z).uses_differences

    def decision_and_sizes(self, X: Matrix, extra: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return f and the sums of |beta| K that bound its rounding, both (m, columns) float64.

        Parameters
        ----------
        X : CSR matrix or array of shape (m, d)
            Rows, scaled, as `rows` returns them.
        extra : array of shape (m,)
            Squared norms of their other features.

        Returns
        -------
        tuple of array
            The decision values, and the sums.
        """
        sums = evaluate_expansions(self._float64_with_sizes, X, extra)
        columns = self.beta.shape[1]
        return self._f(sums[..., :columns]), self._f(sums[..., columns:]) - self.b

    @cached_property
    def _float64_with_sizes(self) -> tuple[Expansion, ...]:
        both = np.hstack([self.beta, np.abs(self.beta)])
        return self._expansions(_fastest_float64_layout(self.kernel, self.Z), both)

    def _decision_mostly_in_float32(self, rows: ModelRows, error: np.ndarray) -> np.ndarray:
        """Return f in float32, or in float64 for rows whose label rounding errors could change.

        error : (m,), the bounds of `_float32_error`.
        """
        sums = evaluate_expansions(self._float32, rows.X, rows.extra)
        f = self._f(sums[..., :-1])
        bound = 1.1 * error[:, None] * self._absolute_sums(sums[..., -1]) + MAX_OMITTED_SUM
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
        centre = self._float32_layout.centre
        norms = squared_norms(rows.X) + rows.extra
        if centre is not None:
            norms += centre @ centre - 2 * (rows.X @ centre)
        exponents = 2 * self.kernel.gamma * (norms + self._max_squared_norm)
        return 2.0**-24 * (SUM_ROUNDING_ERRORS + (6 + self.Z.shape[1]) * exponents)

    @cached_property
    def _max_squared_norm(self) -> float:
        """The largest |z|^2 in the layout for float32."""
        return float(self._float32_layout.convert(self.Z).norms.max(initial=0.0))

    @cached_property
    def _float64(self) -> tuple[Expansion, ...]:
        """The expansions in float64; labels near the hyperplane agree with svm-predict's."""
        return self._expansions(_fastest_float64_layout(self.kernel, self.Z), self.beta)

    @cached_property
    def _float32(self) -> tuple[Expansion, ...]:
        """The expansions in float32; an additional column has the largest |beta| of each row."""
        largest = np.abs(self.beta).max(axis=1, keepdims=True, initial=0.0)
        return self._expansions(self._float32_layout, np.hstack([self.beta, largest]))

    @cached_property
    def _float32_layout(self) -> KernelLayout:
        total = float(np.abs(self.beta).max(axis=1, initial=0.0).sum())
        cut = max(log(total / MAX_OMITTED_SUM), 0.0) if total > 0 else None
        return _fastest_float32_layout(self.kernel, self.Z, cut, self.beta.shape[1] + 1)

    def _expansions(self, kernel_layout: KernelLayout, beta: np.ndarray) -> tuple[Expansion, ...]:
        """Return the kernel expansions whose sums are the terms of f."""
        return (Expansion(kernel_layout, self.Z, beta),)

    def _f(self, sums: np.ndarray) -> np.ndarray:
        """Return f, (m, columns). sums : (expansions, m, columns of beta)."""
        return sums[0] + self.b

    def _absolute_sums(self, sums: np.ndarray) -> np.ndarray:
        """Return a bound on sum |beta| K for each column of f, (m, columns or 1).

        sums : (expansions, m), kernel sums with the largest |beta| of each support vector.
        """
        return sums[0][:, None]

    def _is_certain(self, f: np.ndarray, bound: np.ndarray) -> np.ndarray:
        """Return whether the class is certain for an error of f of at most `bound`, (m,) bool.

        bound : (m, columns or 1).
        """
        if f.shape[1] == 1:
            return np.abs(f[:, 0]) > bound[:, 0]
        second, largest = np.partition(f, -2, axis=1)[:, -2:].T
        return (largest - second) / 2 > bound.max(axis=1)

    # --- the model file --------------------------------------------------------------------

    def save(self, path: str) -> None:
        libsvm_format.write(path, self._to_libsvm_model(), self._trailer)

    def _to_libsvm_model(self) -> LibsvmModel:
        kernel, Z, beta = self.kernel, self.Z, self.beta
        label = self._c_labels if self.task == "svc" else None
        nr_sv = self._class_sizes
        if self.task == "svc" and beta.shape[1] == 1 and nr_sv is None:
            # LIBSVM's format groups support vectors by class.
            positive = beta[:, 0] > 0
            order = np.concatenate([np.flatnonzero(positive), np.flatnonzero(~positive)])
            Z, beta = Z[order], beta[order]
            nr_sv = (int(positive.sum()), int((~positive).sum())) if label else None
        one_vs_rest = len(self.b) > 1 and nr_sv is None
        beyond_libsvm = (self.task == "svc" and not label) or one_vs_rest or self.scaling
        indices, values = self.features[Z.indices], Z.data
        if self.has_row_numbers:
            indices, values = np.zeros_like(indices), indices.astype(np.float32)
        return LibsvmModel(
            svm_type=(LIBSVM_NU_TYPES if self.nu else LIBSVM_TYPES)[self.task],
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
            own_format=bool(beyond_libsvm),
            **self._probability_fields,
        )

    @property
    def _class_sizes(self) -> tuple[int, ...] | None:
        """Number of support vectors of each class; None if they are not grouped by class."""
        return None

    @property
    def _probability_fields(self) -> dict[str, tuple[float, ...]]:
        """The fields of LibsvmModel for probabilities."""
        lines: dict[str, tuple[float, ...]] = {}
        if self.sigmoid is not None:
            lines |= zip(("probA", "probB"), map(tuple, self.sigmoid.tolist()), strict=True)
        if self.noise_scale is not None:
            lines["probA"] = (self.noise_scale,)
        if self.density_marks is not None:
            lines["prob_density_marks"] = tuple(self.density_marks.tolist())
        return lines


@dataclass(frozen=True, kw_only=True)
class PairwiseModel(KernelModel):
    """A kernel model of K > 2 classes, one against one, as in LIBSVM.

    Parameters
    ----------
    nr_sv : tuple of int
        Number of support vectors of each class; the rows of Z are grouped by class, in this order.
    beta : array of shape (m, K - 1), float64
        LIBSVM's sv_coef. For a support vector of class i, column j - 1 is its coefficient against
        class j > i, and column j the one against class j < i.
    b : array of shape (K (K - 1) / 2,), float64
        Offset of each pair, in the order of `decisions.class_pairs`. `sigmoid` has its columns in
        this order too.

    Notes
    -----
    f_ij(x) = sum of the coefficients times K(z, x) over the support vectors of classes i and j,
    + b_ij. f_ij > 0 is a vote for i, else for j.
    """

    nr_sv: tuple[int, ...]

    @property
    def coefficients(self) -> np.ndarray:
        K = len(self.nr_sv)
        own = np.repeat(np.arange(K), self.nr_sv)
        found = np.zeros((len(own), len(self.b)))
        for number, (i, j) in enumerate(zip(*decisions.class_pairs(K), strict=True)):
            found[own == i, number] = self.beta[own == i, j - 1]
            found[own == j, number] = self.beta[own == j, i]
        return found

    def predicted(self, f: np.ndarray) -> np.ndarray:
        """Return the class with the most votes for each row.

        Parameters
        ----------
        f : array of shape (m, pairs), float64
            Result of `decision`.

        Returns
        -------
        array of shape (m,), int64
            Class index of each row.
        """
        return decisions.voted_classes(f, len(self.labels))

    def probabilities(self, f: np.ndarray) -> np.ndarray:
        columns = decisions.sigmoids(f, self.sigmoid_in_use)
        return decisions.coupled_probabilities(columns, len(self.labels))

    def class_scores(self, f: np.ndarray) -> np.ndarray:
        return class_scores(f, pairs=True)

    def _expansions(self, kernel_layout: KernelLayout, beta: np.ndarray) -> tuple[Expansion, ...]:
        """Return an expansion for each class, with a column for each other class.

        Each kernel value is computed once and used for all pairs that contain the class.
        """
        ends = np.cumsum(self.nr_sv).tolist()
        parts = [slice(end - count, end) for end, count in zip(ends, self.nr_sv, strict=True)]
        return tuple(Expansion(kernel_layout, self.Z[part], beta[part]) for part in parts)

    def _f(self, sums: np.ndarray) -> np.ndarray:
        """Return f, (m, pairs). sums : (classes, m, classes - 1)."""
        i, j = decisions.class_pairs(len(self.nr_sv))
        return (sums[i, :, j - 1] + sums[j, :, i]).T + self.b

    def _absolute_sums(self, sums: np.ndarray) -> np.ndarray:
        i, j = decisions.class_pairs(len(self.nr_sv))
        return (sums[i] + sums[j]).T

    def _is_certain(self, f: np.ndarray, bound: np.ndarray) -> np.ndarray:
        """Return whether the winner does not depend on pairs with |f| <= bound, (m,) bool."""
        doubtful = np.abs(f) <= bound
        certain = ~doubtful.any(axis=1)
        some = np.flatnonzero(~certain)
        certain[some] = self._winner_is_fixed(f[some], doubtful[some])
        return certain

    def _winner_is_fixed(self, f: np.ndarray, doubtful: np.ndarray) -> np.ndarray:
        """Return whether the winner is the same for all votes of the doubtful pairs, (m,) bool.

        f, doubtful : (m, pairs).
        """
        classes, wins = len(self.nr_sv), f > 0
        least = decisions.votes(wins & ~doubtful, ~(wins | doubtful), classes)
        most = decisions.votes(wins | doubtful, ~wins | doubtful, classes)
        row, winner = np.arange(len(f)), self.predicted(f)
        # With equal votes the first class wins.
        most += 0.5 * (np.arange(classes) < winner[:, None])
        most[row, winner] = -1
        return least[row, winner] >= most.max(axis=1)

    @property
    def _class_sizes(self) -> tuple[int, ...]:
        return self.nr_sv

    def pair_model(self, first: int, second: int) -> KernelModel:
        """Return the model of one pair of classes.

        Parameters
        ----------
        first : int
            Index of the class that f > 0 predicts.
        second : int
            Index of the other class.

        Returns
        -------
        KernelModel
            A model of two classes.
        """
        i, j = sorted((first, second))
        sign = 1.0 if first == i else -1.0
        ends = np.cumsum(self.nr_sv)
        rows = np.concatenate([np.arange(ends[k] - self.nr_sv[k], ends[k]) for k in (i, j)])
        columns = np.repeat([j - 1, i], [self.nr_sv[i], self.nr_sv[j]])
        beta = sign * self.beta[rows, columns]
        used = beta != 0
        number = decisions.pair_index(i, j, len(self.nr_sv))
        return KernelModel(
            task=self.task,
            kernel=self.kernel,
            Z=self.Z[rows[used]],
            beta=beta[used, None],
            b=sign * self.b[number : number + 1],
            features=self.features,
            labels=(self.labels[first], self.labels[second]),
            values=(self.values[first], self.values[second]),
            zero_based=self.zero_based,
            seen=self.seen,
            scaling=self.scaling,
            float64=self.float64,
            columns=self.columns,
        )


# --- layouts of support vectors ------------------------------------------------------------


def _fastest_float64_layout(kernel: Kernel, Z: CsrMatrix) -> KernelLayout:
    """Return the fastest float64 layout for the centres Z, (m, d)."""
    m, d = Z.shape
    return KernelLayout(kernel, prefers_dense(m, d, Z.nnz), None, np.float64)


def _fastest_float32_layout(
    kernel: Kernel, Z: CsrMatrix, cut: float | None, sums: int
) -> KernelLayout:
    """Return the fastest float32 layout for the centres Z, (m, d), and rows of the same kind.

    cut : the cutoff of KernelLayout; it is used only if cells are faster.
    sums : number of sums over the same kernel values.
    """
    m, d = Z.shape
    dense = prefers_dense(m, d, Z.nnz)
    if dense and has_few_nonzeros(kernel, m, d, Z.nnz):
        usual = usual_values(Z[:: max(1, -(-m // BLOCK_CENTRES))])
        return KernelLayout(kernel, dense, usual, np.float32, uses_nonzeros=True)
    centre = column_sums(Z) / m if dense and m else None
    kernel_layout = KernelLayout(kernel, dense, centre, np.float32, cut)
    some, fewer = (Z[:: max(1, -(-m // most))] for most in (SLICE_ROWS, BLOCK_CENTRES))
    pays = m > BLOCK_CENTRES and profits_from_cells(kernel_layout, some, fewer, sums)
    return kernel_layout if pays else replace(kernel_layout, cutoff=None)


# --- reading -------------------------------------------------------------------------------


def parse(content: bytes, name: str, float64: bool = False) -> KernelModel:
    """Return the model in `content`, a file of LIBSVM or of this package.

    name : the file's name in messages; float64 : whether feature values are float64 in any case.
    Raise ModelError or DataError.
    """
    body, lines = libsvm_format.parse(content, name, float64)
    trailer = Trailer(name, lines)
    task = TASKS_OF_LIBSVM[body.svm_type]
    common = common_fields(trailer, task, body.label, body.nr_class, len(body.rho))
    features, Z = _support_vectors(body, trailer)
    fields = {
        "task": task,
        "kernel": Kernel(
            KERNELS_OF_LIBSVM[body.kernel_type],
            1.0 if body.gamma is None else body.gamma,
            0.0 if body.coef0 is None else body.coef0,
            3 if body.degree is None else body.degree,
        ),
        "Z": Z,
        "features": features,
        "beta": body.coefficients,
        "b": -np.array(body.rho),
        "nu": body.svm_type in LIBSVM_NU_TYPES.values(),
        **common,
        **_probability_fields(body, task),
    }
    fields["float64"] = fields["float64"] or float64
    if body.kernel_type == "precomputed":
        # Rows of kernel values begin with 0:number.
        fields["zero_based"] = True
    if body.nr_class != 2 and body.nr_sv is not None:
        return PairwiseModel(nr_sv=body.nr_sv, **fields)
    return KernelModel(**fields)


def _support_vectors(body: LibsvmModel, trailer: Trailer) -> tuple[np.ndarray, CsrMatrix]:
    """Return the features of the support vectors, (d,) int32 ascending, and Z over them."""
    indices, values = body.indices, body.values
    if body.kernel_type == "precomputed":
        whole = (values == np.floor(values)) & (values > 0)
        if (np.diff(body.indptr) != 1).any() or (indices != 0).any() or not whole.all():
            raise trailer.error("expected '0:number' of a training row in each support vector")
        indices, values = values.astype(np.int32), np.ones_like(values)
    features, columns = np.unique(indices, return_inverse=True)
    shape = (len(body.coefficients), len(features))
    return features.astype(np.int32), CsrMatrix(values, columns, body.indptr, shape)


def _probability_fields(body: LibsvmModel, task: str) -> dict[str, Any]:
    """Return the fields of KernelModel for probabilities."""
    if task == "one-class":
        marks = body.prob_density_marks
        return {} if marks is None else {"density_marks": np.array(marks)}
    if body.probA is None:
        return {}
    if task == "svr":
        return {"noise_scale": body.probA[0]}
    return {} if body.probB is None else {"sigmoid": np.array([body.probA, body.probB])}
