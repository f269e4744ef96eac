"""Model: what prediction needs, decision values and labels of rows, save and load.

Stands alone: a model knows nothing of the data set and the run that made it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from scipy import sparse

from randsvm.errors import ModelError
from randsvm.formats import libsvm_model
from randsvm.formats.libsvm_model import LibsvmModel
from randsvm.kernels import Expansion, Kernel, Space, prefers_dense

LIBSVM_KERNELS = {"linear": "linear", "poly": "polynomial", "rbf": "rbf", "sigmoid": "sigmoid"}
KERNELS = {name: ours for ours, name in LIBSVM_KERNELS.items()}


@dataclass(frozen=True)
class Known:
    """The feature indices that training saw, as runs first..last. Written '1-7,9,12-13'."""

    first: np.ndarray
    last: np.ndarray

    @staticmethod
    def of(features: np.ndarray) -> Known:
        """features : (d,) int32, sorted."""
        breaks = np.flatnonzero(np.diff(features) != 1)
        at_first = np.concatenate([[0], breaks + 1])[: len(features)]
        at_last = np.concatenate([breaks, [len(features) - 1]])[: len(features)]
        return Known(features[at_first], features[at_last])

    def holds(self, indices: np.ndarray) -> np.ndarray:
        """Which indices were seen; (m,) bool."""
        if len(self.first) == 0:
            return np.zeros(len(indices), bool)
        at = np.searchsorted(self.first, indices, side="right") - 1
        return (at >= 0) & (indices <= self.last[at])

    def __str__(self) -> str:
        pairs = zip(self.first.tolist(), self.last.tolist(), strict=True)
        return ",".join(f"{a}-{b}" if b > a else f"{a}" for a, b in pairs)

    @staticmethod
    def parse(text: str) -> Known:
        """The inverse of str(). Raises ValueError."""
        if not re.fullmatch(r"(\d{1,10}(-\d{1,10})?(,\d{1,10}(-\d{1,10})?)*)?", text):
            raise ValueError(f"expected runs of features as 1-7,9, found {text[:40]!r}")
        runs = [run.partition("-") for run in text.split(",") if run]
        first = np.array([int(a) for a, _, _ in runs], np.int64)
        last = np.array([int(b or a) for a, _, b in runs], np.int64)
        if not (np.all(first <= last) and np.all(last[:-1] < first[1:])):
            raise ValueError("expected runs of features in ascending order")
        return Known(first, last)


@dataclass(frozen=True)
class Model:
    """f(x) = sum_i beta_i K(z_i, x) + b; f > 0 is the first of `labels`, else the second.

    Z : (m, d) CSR float32, the support vectors over the d distinct features they have, grouped by
    class; features : (d,) int32, sorted, as written in the file; beta : (m,) float64.
    labels, values: the two labels as first spelled, and what they stand for (int or str).
    known: features that training saw; None: not recorded (a model of LIBSVM's own), so that
    every feature counts.
    facts: what the trailer says besides.
    """

    kernel: Kernel
    Z: sparse.csr_matrix
    features: np.ndarray
    beta: np.ndarray
    b: float
    labels: tuple[str, ...]
    values: tuple[int | str, ...]
    zero_based: bool = False
    known: Known | None = None
    facts: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def _expansion(self) -> Expansion:
        # float64: labels near the hyperplane come out as svm-predict's do.
        m, d = self.Z.shape
        dense = prefers_dense(m, d, self.Z.nnz)
        return Expansion(Space(self.kernel, dense, None, np.float64), self.Z, self.beta)

    def decision(self, rows: TestRows) -> np.ndarray:
        """f of each row, (m,) float64. Costs m * len(beta) kernel values, a block at a time."""
        return self._expansion.values(rows.X, rows.extra) + self.b

    def rows(self, indptr: np.ndarray, indices: np.ndarray, values: np.ndarray) -> TestRows:
        """Rows as parsed, laid out over this model's features."""
        m, d = len(indptr) - 1, len(self.features)
        column = np.searchsorted(self.features, indices)
        used = np.zeros(len(indices), bool)
        inside = column < d
        used[inside] = self.features[column[inside]] == indices[inside]
        seen = used if self.known is None else used | self.known.holds(indices)
        row = np.repeat(np.arange(m), np.diff(indptr))
        # A feature that training saw but no support vector has still counts in |x|^2.
        other = ~used if self.known is None else seen & ~used
        extra = np.bincount(row[other], np.square(values[other], dtype=np.float64), m)
        starts = np.concatenate([[0], np.cumsum(used)])[indptr]
        X = sparse.csr_matrix((values[used], column[used], starts), shape=(m, d))
        unseen = np.empty(0, np.int32) if self.known is None else indices[~seen]
        return TestRows(X, extra, unseen)

    def save(self, path: str) -> None:
        """Write the model in LIBSVM's format, or in one that LIBSVM's programs refuse.

        Raises OutputError and TransferError; the old file stays until the new one is whole.
        """
        positive = self.beta > 0
        order = np.concatenate([np.flatnonzero(positive), np.flatnonzero(~positive)])
        Z = self.Z[order]
        plain = all(isinstance(v, int) and -(2**31) <= v < 2**31 for v in self.values)
        numbers = tuple(int(v) for v in self.values) if plain else None
        kernel = self.kernel
        body = LibsvmModel(
            svm_type="c_svc",
            kernel_type=LIBSVM_KERNELS[kernel.name],
            degree=kernel.degree,
            gamma=kernel.gamma,
            coef0=kernel.coef0,
            rho=0.0 - self.b,  # no -0.0
            label=numbers,  # type: ignore[arg-type]
            nr_sv=(int(positive.sum()), int((~positive).sum())) if plain else None,
            coefficients=self.beta[order],
            indptr=Z.indptr.astype(np.int64),
            indices=self.features[Z.indices],
            values=Z.data,
        )
        facts = {
            "labels": " ".join(self.labels),
            "index_base": "0" if self.zero_based else "1",
            **({} if self.known is None else {"features": str(self.known)}),
        }
        foreign = None if plain else f"{libsvm_model.FOREIGN} {libsvm_model.FOREIGN_VERSION}"
        libsvm_model.write(path, body, {**self.facts, **facts}, foreign)

    @staticmethod
    def load(path: str) -> Model:
        """Read a model of ours or of LIBSVM's. Raises ModelError, DataError, InputError."""
        body, trailer = libsvm_model.read(path)
        if body.svm_type != "c_svc":
            raise ModelError(f"{path}: expected a c_svc model, found {body.svm_type}")
        facts = dict(trailer or {})
        names = tuple(facts.pop("labels", " ".join(map(str, body.label or ()))).split(" "))
        if len(names) != 2:
            raise ModelError(f"{path}: expected two labels in the trailer, found {len(names)}")
        try:
            known = Known.parse(facts.pop("features")) if "features" in facts else None
        except ValueError as error:
            raise ModelError(f"{path}: {error}") from error
        features, columns = np.unique(body.indices, return_inverse=True)
        m = len(body.coefficients)
        return Model(
            kernel=Kernel(
                KERNELS[body.kernel_type],
                1.0 if body.gamma is None else body.gamma,
                0.0 if body.coef0 is None else body.coef0,
                3 if body.degree is None else body.degree,
            ),
            Z=sparse.csr_matrix((body.values, columns, body.indptr), shape=(m, len(features))),
            features=features.astype(np.int32),
            beta=body.coefficients,
            b=-body.rho,
            labels=names,
            values=tuple(body.label) if body.label else names,
            zero_based=facts.pop("index_base", "1") == "0",
            known=known,
            facts=facts,
        )


@dataclass(frozen=True)
class TestRows:
    """Rows in a model's terms: X (m, d) CSR; extra (m,) squared norm of the features that count
    in |x|^2 only; unseen: indices that training never saw, one for each value dropped."""

    __test__ = False  # pytest: not a test class

    X: sparse.csr_matrix
    extra: np.ndarray
    unseen: np.ndarray
