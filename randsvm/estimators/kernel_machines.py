"""The base of kernel estimators: the training, and the attributes of the solution."""

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
from randsvm.arrays import Matrix, slices
from randsvm.data.in_memory import Arrays
from randsvm.estimators.machine import Machine, one_blas_thread
from randsvm.events import Iteration, Notice
from randsvm.parameters.problem import SCALE, positive_semidefinite, resolve_gamma
from randsvm.parameters.run import Resources
from randsvm.training.usefulness import TEXTS

# Rows whose values are summed at a time.
ROWS_AT_ONCE = 8192
# C in place of infinity: coefficients of separable classes stay far below it.
LARGEST_C = 1e10
# Bytes of the kernel values of one pair of rows that a function returns.
VALUE_BYTES = 8

SOLUTION = ("support_", "support_vectors_", "n_support_", "dual_coef_", "coef_", "intercept_")
REPORT = (
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
class KernelMachine(Machine):
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
        """The kernel that the model has: "precomputed" for a function."""
        if callable(self.kernel):
            return "precomputed"
        if not isinstance(self.kernel, str):
            raise ValueError(
                "kernel must be linear, poly, rbf, sigmoid, precomputed or a function, got "
                f"{self.kernel!r}"
            )
        return self.kernel

    def _rows(self, X: Any, reset: bool = True, **given: Any) -> Any:
        """Return X, or X and y if y is given, as checked.

        With a kernel that is a function, its values with the rows of fit take the place of X.
        """
        if not callable(self.kernel):
            return super()._rows(X, reset, **given)
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
        """Raise ValueError where the kernel values of all pairs of rows exceed the memory."""
        most = int((Resources().memory / VALUE_BYTES) ** 0.5)
        if n > most:
            raise ValueError(
                f"a kernel that is a function is called with all pairs of rows: expected at most "
                f"{most:,} rows, found {n:,}; give a kernel by its name"
            )

    def _fit(self, X: Matrix, arrays: Arrays, **own: Any) -> None:
        """Train, and set the attributes of a fitted kernel machine."""
        kernel = self._kernel_name
        self._gamma = self._gamma_of(X)
        given = {
            "task": self._task,
            "kernel": kernel,
            "degree": self.degree,
            "gamma": self._gamma,
            "coef0": self.coef0,
            "tolerance": self.tol,
            "shrinking": bool(self.shrinking),
            **self._common(),
            **own,
        }
        if self.gap is not None and positive_semidefinite(kernel, self.coef0):
            given["gap"] = self.gap
        if self.max_iter != -1:
            given["max_iterations"] = self.max_iter
        doubts: list[str] = []
        rounds: Counter[str] = Counter()

        def watch(event: object) -> None:
            if isinstance(event, Iteration):
                rounds[event.machine] += 1
            elif isinstance(event, Notice) and event.text in TEXTS:
                doubts.append(event.text)

        with one_blas_thread():
            fitted = api.train_randsvm(arrays, watch=watch, **given)
        self.shape_fit_, self._sparse = X.shape, sparse.issparse(X)
        self._take(arrays, fitted)
        self.n_iter_ = self._rounds(rounds)
        self._take_solution(X)
        for text in doubts:
            warnings.warn(text, UserWarning, stacklevel=3)
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

    def _rounds(self, found: Counter[str]) -> Any:
        """Return n_iter_. found: rounds of each problem, by the name in its events."""
        return max(found.total(), 1)

    def _gamma_of(self, X: Matrix) -> float | None:
        if self._kernel_name == "precomputed":
            return None
        if isinstance(self.gamma, str) and self.gamma not in (SCALE, "auto"):
            raise ValueError(f"gamma must be a number, 'scale' or 'auto', got {self.gamma!r}")
        gamma = None if self.gamma == "auto" else self.gamma
        # The variance overflows for values that the training refuses, with their place.
        return resolve_gamma(gamma, X.shape[1], lambda: _variance(X))

    def _take_solution(self, X: Matrix) -> None:
        """Set the attributes of the decision functions."""
        model: Any = self.model_.model
        support, dual, intercept, self.n_support_ = self._functions(
            model.support.astype(np.int32), model.beta.T.copy(), model.b.copy()
        )
        self.support_, self.intercept_ = support, intercept
        self.support_vectors_ = X[support[:0] if model.has_row_numbers else support]
        self.dual_coef_ = sparse.csr_matrix(dual) if self._sparse else dual

    def _functions(
        self, support: np.ndarray, dual: np.ndarray, intercept: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return support_, dual_coef_, intercept_ and n_support_, from those of the model."""
        return support, dual, intercept, np.array([len(support)], np.int32)

    @property
    def coef_(self) -> Any:
        """Weights of the features, (n_functions, d), read-only; with the linear kernel only."""
        if self.kernel != "linear":
            raise AttributeError("coef_ is only available when using a linear kernel")
        dual: Any = self.dual_coef_
        dual = dual.toarray() if self._sparse else dual
        weights = np.asarray(self._weights_of(dual))
        w: Any = sparse.csr_matrix(weights) if self._sparse else weights
        (w.data if self._sparse else w).flags.writeable = False
        return w

    def _weights_of(self, dual: np.ndarray) -> np.ndarray:
        return dual @ self.support_vectors_


def finite(C: float) -> float:
    """Return C, or LARGEST_C in place of infinity."""
    return LARGEST_C if np.inf == C else C


def _variance(X: Matrix) -> float:
    """Return the variance of all values of X, zeros included, without a copy of X."""
    size = X.shape[0] * X.shape[1]
    values = X if isinstance(X, np.ndarray) else X.data
    squares = 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        mean = X.mean(dtype=np.float64)
        for at in slices(len(values), ROWS_AT_ONCE):
            squares += np.square(values[at] - mean, dtype=np.float64).sum()
        return float((squares + (size - values.size) * mean**2) / size)
