"""SVC, NuSVC, SVR, NuSVR and OneClassSVM: kernel machines with a certified gap."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import OutlierMixin, RegressorMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils import check_array, check_X_y
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import _ovr_decision_function
from sklearn.utils.validation import _num_samples, check_is_fitted

from randsvm.arrays import slices
from randsvm.data.in_memory import Arrays
from randsvm.data.scaling import SPARSE
from randsvm.estimators.callbacks import FitTasks
from randsvm.estimators.machine import (
    TRAINING_ATTRIBUTES,
    BaseSVM,
    Classifier,
    as_configured,
    checked_weights,
    documented,
)
from randsvm.events import Iteration, Notice
from randsvm.models import decisions
from randsvm.models.fitted import FittedModel
from randsvm.parameters.svm import SCALE, is_semidefinite, resolve_gamma
from randsvm.training.kernel_machine import CONSTANT_DECISION, OVERFITTED

# Stored values of a sparse X, or rows of a dense X, squared at once for the variance of X.
VARIANCE_VALUES = 8192

# What may help against a poor fit, by the notice of the training, which names options of the
# commands.
ADVICE = {
    OVERFITTED: "scaled features (StandardScaler), gamma='scale' or a smaller gamma",
    CONSTANT_DECISION: "scaled features (StandardScaler), gamma='scale', a larger gamma or C",
}

SOLUTION_ATTRIBUTES = (
    "support_ support_vectors_ n_support_ dual_coef_ coef_ intercept_ shape_fit_ fit_status_ "
    f"{TRAINING_ATTRIBUTES}"
)
CLASSIFIER_ATTRIBUTES = f"classes_ class_weight_ {SOLUTION_ATTRIBUTES}"


@dataclass(eq=False, repr=False, kw_only=True)
class KernelMachine(BaseSVM):
    """The base of estimators of kernel machines."""

    kernel: str | Callable[[Any, Any], Any] = "rbf"
    degree: int = 3
    gamma: float | str = "scale"
    coef0: float = 0.0
    tol: float = 1e-3
    shrinking: bool = True
    cache_size: float = 200
    max_iter: int = -1
    gap: float | None = None

    _format = "libsvm"

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.kernel == "precomputed"
        return tags

    @property
    def _kernel_name(self) -> str:
        """The name of the model's kernel: "precomputed" for a callable."""
        return "precomputed" if callable(self.kernel) else self.kernel

    def _checked_rows(self, X: Any, reset: bool = True, **given: Any) -> Any:
        """Check X, and y if y is given, and return them.

        A callable kernel replaces X by the kernel matrix of X and the training rows.
        """
        if not callable(self.kernel):
            return super()._checked_rows(X, reset, **given)
        if reset:
            self._X_fit = X
        K = self.kernel(X, self._X_fit)
        K = K.toarray() if sparse.issparse(K) else K
        shape = _num_samples(X), _num_samples(self._X_fit)
        if np.shape(K) != shape:
            raise ValueError(f"kernel returned values of shape {np.shape(K)}, expected {shape}")
        dtype = [np.float64, np.float32]
        return check_X_y(K, dtype=dtype, **given) if given else check_array(K, dtype=dtype)

    def _options(self, arrays: Arrays) -> dict[str, Any]:
        kernel = self._kernel_name
        given = {
            "kernel": kernel,
            "degree": self.degree,
            "gamma": self._gamma,
            "coef0": self.coef0,
            "tolerance": self.tol,
            "shrinking": bool(self.shrinking),
            **super()._options(arrays),
        }
        if self.gap is not None:
            if not is_semidefinite(kernel, self.coef0):
                of_kernel = f"kernel={kernel!r} with coef0={self.coef0!r} has no certificate"
                raise ValueError(f"gap must be None, got {self.gap!r}: {of_kernel}")
            given["gap"] = self.gap
        if self.max_iter != -1:
            given["max_iterations"] = self.max_iter
        return given

    def _fit(self, arrays: Arrays, tasks: FitTasks) -> None:
        self._gamma = self._resolved_gamma(arrays.X)
        fitted = self._trained(arrays, watch=tasks.watch, **self._options(arrays))
        self._set_fitted(fitted, arrays, tasks.events)
        for event in tasks.events:
            if isinstance(event, Notice) and event.text in ADVICE:
                problem = event.text.partition("; try ")[0]
                warnings.warn(f"{problem}; try {ADVICE[event.text]}", UserWarning, stacklevel=4)
        self.fit_status_ = int(
            self._warns_of_gap("scaling the features may help (StandardScaler, MinMaxScaler)")
        )

    def _set_fitted(self, fitted: FittedModel, arrays: Arrays, events: list[Any]) -> None:
        X = arrays.X
        self.shape_fit_, self._sparse = X.shape, sparse.issparse(X)
        self._take(fitted)
        model: Any = fitted.model
        # model.support numbers the rows with a weight above 0 only.
        rows = model.support
        if arrays.weights is not None:
            rows = np.flatnonzero(arrays.weights)[rows]
        order = self._set_solution(X[rows[:0] if model.has_row_numbers else rows])
        self.support_ = rows[order].astype(np.int32)
        rounds = Counter(event.machine for event in events if isinstance(event, Iteration))
        pairs = [" / ".join(pair) for pair in combinations(model.labels, 2)]
        machines = pairs if model.has_pairs else [""]
        counts = np.array([max(rounds[name], 1) for name in machines], np.int32)
        self.n_iter_ = counts if isinstance(self, Classifier) else counts.item()

    def _set_model(self, fitted: FittedModel, recorded: dict[str, Any]) -> None:
        super()._set_model(fitted, recorded)
        kernel = fitted.model.kernel  # type: ignore[attr-defined]
        self.kernel, self.gamma = kernel.name, kernel.gamma
        self.coef0, self.degree = kernel.coef0, kernel.degree
        vectors = self._vectors_of_model()
        self._sparse = vectors.nnz < SPARSE * vectors.shape[0] * vectors.shape[1]
        self._set_solution(vectors if self._sparse else vectors.toarray())

    def _vectors_of_model(self) -> Any:
        """Return the support vectors in the order of the model, a CSR matrix of scipy."""
        model: Any = self.model_.model
        Z = model.Z
        columns = model.features[Z.indices] - model.index_base
        return sparse.csr_matrix((Z.data, columns, Z.indptr), (Z.shape[0], self.n_features_in_))

    def _set_solution(self, vectors: Any) -> np.ndarray:
        """Set the attributes of the solution, and return the order of its support vectors.

        They are grouped by class, as in LIBSVM. vectors : in the order of the model, or none if the
        kernel is precomputed.
        """
        codes, classes = self._classes_of_vectors()
        order = np.argsort(codes, kind="stable")
        dual = self._in_class_order(self.model_.model.coefficients)[order]  # type: ignore[attr-defined]
        if classes > 2:
            pairs = decisions.pairs_of_classes(classes)[codes[order]]
            dual = np.take_along_axis(dual, pairs, axis=1)
        self.support_vectors_ = as_configured(vectors[order] if vectors.shape[0] else vectors)
        self.dual_coef_ = as_configured(sparse.csr_matrix(dual.T) if self._sparse else dual.T)
        if classes:
            self.n_support_ = np.bincount(codes, minlength=classes).astype(np.int32)
        return order

    def _classes_of_vectors(self) -> tuple[np.ndarray, int]:
        """Return the class of each support vector in the order of the model, and their number.

        It is 1 without classes, and 0 if a vector can be in the functions of several classes.
        """
        return np.zeros(len(self.model_.model.beta), np.int64), 1  # type: ignore[attr-defined]

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
        model: Any = self.model_.model
        w = self._feature_weights(model.Z.column_products(model.coefficients))
        w = as_configured(w if self._sparse else w.toarray())
        (w.data if self._sparse else w).flags.writeable = False
        return w


@dataclass(eq=False, repr=False, kw_only=True)
class KernelClassifier(KernelMachine, Classifier):
    """Classification by one decision function, or by one for each pair of classes."""

    probability: bool | str = False
    decision_function_shape: str = "ovr"
    break_ties: bool = False

    def _check_parameters(self) -> None:
        if self.decision_function_shape not in ("ovr", "ovo"):
            raise ValueError(
                f"decision_function_shape must be 'ovr' or 'ovo', got "
                f"{self.decision_function_shape!r}"
            )

    def _options(self, arrays: Arrays) -> dict[str, Any]:
        return super()._options(arrays) | {"probability": self._has_probabilities()}

    def _set_model(self, fitted: FittedModel, recorded: dict[str, Any]) -> None:
        super()._set_model(fitted, recorded)
        self.probability = fitted.model.has_probabilities

    def _classes_of_vectors(self) -> tuple[np.ndarray, int]:
        model: Any = self.model_.model
        if self.model_.model.has_pairs:
            return self._class_indices[model.class_of], len(self.classes_)
        if len(model.b) > 1:
            return super()._classes_of_vectors()[0], 0
        return 1 * (self._in_class_order(model.beta)[:, 0] > 0), 2

    def _values(self, X: Any) -> np.ndarray:
        f = super()._values(X)
        by_pair = self.model_.model.has_pairs and self.decision_function_shape != "ovo"
        return _ovr_decision_function(f < 0, -f, len(self.classes_)) if by_pair else f

    def predict(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        if self.break_ties and self.decision_function_shape == "ovo":
            raise ValueError("break_ties must be False when decision_function_shape is 'ovo'")
        if self.break_ties and len(self.classes_) > 2:
            return self.classes_[self._values(X).argmax(axis=1)]
        return super().predict(X)

    predict.__doc__ = BaseSVM.predict.__doc__

    def _has_probabilities(self) -> bool:
        return bool(self.probability) and self.probability != "deprecated"

    @available_if(_has_probabilities)
    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probability of each class for each row.

        Parameters
        ----------
        X : array, sparse matrix or data frame of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Probabilities, in the order of classes_.
        """
        check_is_fitted(self)
        if not self.model_.model.has_probabilities:
            raise NotFittedError(
                "predict_proba is not available when fitted with probability=False"
            )
        p = self.model_.predict_proba(self._checked_rows(X, reset=False))
        return p[:, np.argsort(self._class_indices)]

    @available_if(_has_probabilities)
    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Return the logarithm of the probability of each class for each row.

        Parameters
        ----------
        X : array, sparse matrix or data frame of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Logarithms of predict_proba.
        """
        return np.log(self.predict_proba(X))


@documented("sklearn.svm.SVC", CLASSIFIER_ATTRIBUTES)
@dataclass(eq=False, repr=False, kw_only=True)
class SVC(KernelClassifier):
    """C-support vector classification with a certified gap, in place of sklearn.svm.SVC.

    Equal calls give equal models.
    """

    C: float = 1.0

    _task = "svc"


@documented("sklearn.svm.NuSVC", CLASSIFIER_ATTRIBUTES)
@dataclass(eq=False, repr=False, kw_only=True)
class NuSVC(KernelClassifier):
    """Nu-support vector classification with a certified gap, in place of sklearn.svm.NuSVC.

    As in scikit-learn class_weight has no effect. With sample_weight
    nu is a share of the sum of the weights. fit raises ValueError if nu is infeasible (for two
    classes, above twice the share of the smaller one), or if the classes overlap too much for a
    margin.
    """

    nu: float = 0.5

    _task = "nu-svc"
    _single_class_message = "specified nu is infeasible"

    def _class_weights(self) -> dict[str, float]:
        if np.ptp(self.class_weight_):
            warnings.warn(
                "class_weight has no effect on NuSVC, as in scikit-learn: use SVC", stacklevel=8
            )
        return {}


@documented("sklearn.svm.SVR", SOLUTION_ATTRIBUTES)
@dataclass(eq=False, repr=False, kw_only=True)
class SVR(RegressorMixin, KernelMachine):
    """Epsilon-support vector regression with a certified gap, in place of sklearn.svm.SVR.

    Equal calls give equal models.
    """

    C: float = 1.0
    epsilon: float = 0.1

    _task = "svr"


@documented("sklearn.svm.NuSVR", SOLUTION_ATTRIBUTES)
@dataclass(eq=False, repr=False, kw_only=True)
class NuSVR(RegressorMixin, KernelMachine):
    """Nu-support vector regression with a certified gap, in place of sklearn.svm.NuSVR.

    The width of the tube follows from nu.
    """

    nu: float = 0.5
    C: float = 1.0

    _task = "nu-svr"


@documented("sklearn.svm.OneClassSVM", f"offset_ {SOLUTION_ATTRIBUTES}")
@dataclass(eq=False, repr=False, kw_only=True)
class OneClassSVM(OutlierMixin, KernelMachine):
    """Novelty detection with a certified gap, in place of sklearn.svm.OneClassSVM.

    Equal calls give equal models.
    """

    nu: float = 0.5

    _task = "one-class"

    def _checked(
        self, X: Any, y: Any, sample_weight: Any = None, reset: bool = True, classes: Any = None
    ) -> Arrays:
        X = self._checked_rows(X)
        return Arrays(X, weights=checked_weights(sample_weight, X))

    @property
    def offset_(self) -> np.ndarray:
        """Offset of the decision function, -intercept_."""
        return -self.intercept_

    def score_samples(self, X: Any) -> np.ndarray:
        """Return the decision values of rows without their offset.

        Parameters
        ----------
        X : array, sparse matrix or data frame of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples,)
            Values f + offset_.
        """
        return self._values(X) + self.offset_


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
