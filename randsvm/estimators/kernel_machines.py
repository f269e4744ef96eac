"""The base class of kernel estimators: training and the attributes of the solution."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_array, check_X_y
from sklearn.utils.validation import _num_samples

from randsvm import api
from randsvm.arrays import slices
from randsvm.data.in_memory import Arrays
from randsvm.data.scaling import SPARSE
from randsvm.estimators.machine import BaseSVM
from randsvm.events import Iteration, Notice
from randsvm.models.fitted import FittedModel
from randsvm.parameters.kernel import SCALE, positive_semidefinite, resolve_gamma
from randsvm.parameters.run import Resources
from randsvm.training.kernel_machine import CONSTANT_DECISION, OVERFITTED

# Stored values of a sparse X, or rows of a dense X, squared at once for the variance of X.
VARIANCE_VALUES = 8192
# The value of C that replaces infinity: coefficients of separable classes stay far below it.
INFINITE_C = 1e10
# Bytes of one kernel value that a callable kernel returns.
VALUE_BYTES = 8

# What may help against a poor fit, by the notice of the training, which names options of the
# commands.
ADVICE = {
    OVERFITTED: "scaled features (StandardScaler), gamma='scale' or a smaller gamma",
    CONSTANT_DECISION: "scaled features (StandardScaler), gamma='scale', a larger gamma or C",
}

SOLUTION_ATTRIBUTES: tuple[str, ...] = (
    "support_",
    "support_vectors_",
    "n_support_",
    "dual_coef_",
    "coef_",
    "intercept_",
)
TRAINING_ATTRIBUTES: tuple[str, ...] = (
    "n_iter_",
    "n_features_in_",
    "shape_fit_",
    "fit_status_",
    "fit_time_",
    "stopped_",
    "gap_",
    "model_",
)


@dataclass(eq=False, repr=False, kw_only=True)
class KernelMachine(BaseSVM):
    """The base of estimators that api.train_randsvm trains."""

    kernel: str | Callable[[Any, Any], Any] = "rbf"
    degree: int = 3
    gamma: float | str = "scale"
    coef0: float = 0.0
    tol: float = 1e-3
    shrinking: bool = True
    cache_size: float = 200
    max_iter: int = -1
    gap: float | None = None

    _task: ClassVar[str]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.kernel == "precomputed"
        return tags

    @property
    def _kernel_name(self) -> str:
        """The name of the model's kernel: "precomputed" for a callable."""
        if callable(self.kernel):
            return "precomputed"
        if not isinstance(self.kernel, str):
            raise ValueError(
                "kernel must be linear, poly, rbf, sigmoid, precomputed or a function, got "
                f"{self.kernel!r}"
            )
        return self.kernel

    def _checked_rows(self, X: Any, reset: bool = True, **given: Any) -> Any:
        """Check X, and y if y is given, and return them.

        A callable kernel replaces X by the kernel matrix of X and the training rows.
        """
        if not callable(self.kernel):
            return super()._checked_rows(X, reset, **given)
        if reset:
            self._check_size(_num_samples(X))
            self._X_fit = X
        K = self.kernel(X, self._X_fit)
        K = K.toarray() if sparse.issparse(K) else K
        shape = _num_samples(X), _num_samples(self._X_fit)
        if np.shape(K) != shape:
            raise ValueError(f"kernel returned values of shape {np.shape(K)}, expected {shape}")
        dtype = [np.float64, np.float32]
        return check_X_y(K, dtype=dtype, **given) if given else check_array(K, dtype=dtype)

    def _check_size(self, n: int) -> None:
        """Raise ValueError if the kernel values of all pairs of n rows exceed the memory."""
        most = int((Resources().memory / VALUE_BYTES) ** 0.5)
        if n > most:
            raise ValueError(
                f"a kernel that is a function is called with all pairs of rows: expected at most "
                f"{most:,} rows, found {n:,}; give a kernel by its name"
            )

    def _fit(self, X: Any, arrays: Arrays, **own: Any) -> None:
        """Train, and set the attributes of a fitted kernel machine."""
        kernel = self._kernel_name
        self._gamma = self._resolved_gamma(X)
        given = {
            "task": self._task,
            "kernel": kernel,
            "degree": self.degree,
            "gamma": self._gamma,
            "coef0": self.coef0,
            "tolerance": self.tol,
            "shrinking": bool(self.shrinking),
            **self._common_options(),
            **own,
        }
        if self.gap is not None and positive_semidefinite(kernel, self.coef0):
            given["gap"] = self.gap
        if self.max_iter != -1:
            given["max_iterations"] = self.max_iter
        poor_fit_notices: list[str] = []
        rounds: Counter[str] = Counter()

        def watch(event: object) -> None:
            if isinstance(event, Iteration):
                rounds[event.machine] += 1
            elif isinstance(event, Notice) and event.text in ADVICE:
                poor_fit_notices.append(event.text)

        fitted = api.train_randsvm(arrays, watch=watch, **given)
        self.shape_fit_, self._sparse = X.shape, sparse.issparse(X)
        self._set_training_attributes(arrays, fitted)
        self.n_iter_ = self._iteration_counts(rounds)
        model: Any = fitted.model
        # model.support numbers the rows with a weight above 0 only.
        rows = model.support
        if arrays.weights is not None:
            rows = np.flatnonzero(arrays.weights)[rows]
        order = self._set_functions(X[rows[:0] if model.has_row_numbers else rows])
        self.support_ = rows[order].astype(np.int32)
        for text in poor_fit_notices:
            problem = text.partition("; try ")[0]
            warnings.warn(f"{problem}; try {ADVICE[text]}", UserWarning, stacklevel=3)
        outcome: Any = fitted.outcome
        missed = outcome.gap_asked is not None and not outcome.gap <= outcome.gap_asked
        self.fit_status_ = int(missed)
        if missed:
            warnings.warn(
                f"stopped: {outcome.stopped}, with a gap of {outcome.gap:.3g} above "
                f"{outcome.gap_asked:g}; scaling the features may help (StandardScaler, "
                "MinMaxScaler)",
                ConvergenceWarning,
                stacklevel=3,
            )

    @classmethod
    def _kind_of_model(cls) -> tuple[str, str]:
        return "libsvm", cls._task.removeprefix("nu-")

    def _set_model(self, fitted: FittedModel) -> None:
        super()._set_model(fitted)
        kernel = fitted.model.kernel  # type: ignore[attr-defined]
        self.kernel, self.gamma = kernel.name, kernel.gamma
        self.coef0, self.degree = kernel.coef0, kernel.degree

    def _set_solution_of_model(self) -> None:
        """Set the attributes of the decision functions that the model file determines."""
        model: Any = self.model_.model
        Z = model.Z
        columns = model.features[Z.indices] - model.index_base
        vectors = sparse.csr_matrix((Z.data, columns, Z.indptr), (Z.shape[0], model.width))
        self._sparse = vectors.nnz < SPARSE * vectors.shape[0] * vectors.shape[1]
        self._set_functions(vectors if self._sparse else vectors.toarray())

    def _set_functions(self, vectors: Any) -> np.ndarray:
        """Set the attributes of the decision functions; return the order of the support vectors.

        vectors : in the order of the model, or none if the kernel is precomputed.
        """
        order, dual, self.intercept_, n_support = self._functions_of_model(self.model_.model)
        self.support_vectors_ = vectors[order] if vectors.shape[0] else vectors
        self.dual_coef_ = sparse.csr_matrix(dual) if self._sparse else dual
        if n_support is not None:
            self.n_support_ = n_support
        return order

    def _functions_of_model(
        self, model: Any
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]:
        """Return the order of the support vectors, dual_coef_, intercept_ and n_support_."""
        count = len(model.beta)
        return np.arange(count), model.beta.T.copy(), model.b.copy(), np.array([count], np.int32)

    def _iteration_counts(self, found: Counter[str]) -> Any:
        """Return n_iter_. found : number of rounds of each problem, by its name in events."""
        return max(found.total(), 1)

    def _resolved_gamma(self, X: Any) -> float | None:
        if self._kernel_name == "precomputed":
            return None
        if isinstance(self.gamma, str) and self.gamma not in (SCALE, "auto"):
            raise ValueError(f"gamma must be a number, 'scale' or 'auto', got {self.gamma!r}")
        gamma = None if self.gamma == "auto" else self.gamma
        # The variance may overflow for large values. The training refuses them in its own message.
        return resolve_gamma(gamma, X.shape[1], lambda: _variance(X))

    @property
    def coef_(self) -> Any:
        """Weights of the features, (n_functions, d), read-only; with the linear kernel only."""
        if self.kernel != "linear":
            raise AttributeError("coef_ is only available when using a linear kernel")
        dual: Any = self.dual_coef_
        dual = dual.toarray() if self._sparse else dual
        weights = np.asarray(self._linear_weights(dual))
        w: Any = sparse.csr_matrix(weights) if self._sparse else weights
        (w.data if self._sparse else w).flags.writeable = False
        return w

    def _linear_weights(self, dual: np.ndarray) -> np.ndarray:
        return dual @ self.support_vectors_


def finite_cost(C: float) -> float:
    """Return C, or INFINITE_C in place of infinity."""
    return INFINITE_C if np.inf == C else C


def _variance(X: Any) -> float:
    """Return the variance of all values of X, zeros included, without a copy of X."""
    size = X.shape[0] * X.shape[1]
    values = X if isinstance(X, np.ndarray) else X.data
    squares = 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        mean = X.mean(dtype=np.float64)
        for at in slices(len(values), VARIANCE_VALUES):
            squares += np.square(values[at] - mean, dtype=np.float64).sum()
        return float((squares + (size - values.size) * mean**2) / size)
