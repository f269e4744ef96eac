"""SVC, SVR and OneClassSVM: kernel machines with a certified gap."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

import numpy as np
from sklearn.base import OutlierMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.metaestimators import available_if

from randsvm import api
from randsvm.arrays import Matrix, slices
from randsvm.data.in_memory import Arrays
from randsvm.estimators.machine import Classifier, Machine, one_blas_thread, refuse
from randsvm.estimators.one_vs_one import class_values, pair_weights
from randsvm.events import Notice
from randsvm.parameters.problem import positive_semidefinite
from randsvm.training.usefulness import TEXTS

# Rows whose values are summed at a time.
ROWS_AT_ONCE = 8192


class KernelMachine(Machine):
    """Trained by rounds of solve and scan, see api.train_randsvm."""

    _task: ClassVar[str]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self._precomputed
        return tags

    @property
    def _precomputed(self) -> bool:
        """Whether X has kernel values: of each row with each in fit, else with those of fit."""
        return bool(self.kernel == "precomputed")

    def _fit(self, X: Matrix, arrays: Arrays, **own: Any) -> None:
        """Train; sets what scikit-learn's machines have after fit."""
        if not isinstance(self.kernel, str):
            raise ValueError(
                f"kernel must be linear, poly, rbf, sigmoid or precomputed, got {self.kernel!r}"
            )
        self._gamma = self._gamma_of(X)
        given = {
            "task": self._task,
            "kernel": self.kernel,
            "degree": self.degree,
            "gamma": self._gamma,
            "coef0": self.coef0,
            "tolerance": self.tol,
            "shrinking": bool(self.shrinking),
            **self._common(),
            **own,
        }
        if self.gap is not None and positive_semidefinite(self.kernel, self.coef0):
            given["gap"] = self.gap
        if self.max_iter != -1:
            given["max_iterations"] = self.max_iter
        doubts: list[str] = []

        def watch(event: object) -> None:
            if isinstance(event, Notice) and event.text in TEXTS:
                doubts.append(event.text)

        with one_blas_thread():
            fitted = api.train_randsvm(arrays, watch=watch, **given)
        self._take(arrays, fitted)
        outcome: Any = fitted.outcome
        self.gap_, self.n_iter_ = fitted.gap, max(outcome.iterations, 1)
        self._take_solution(X)
        for text in doubts:
            warnings.warn(text, UserWarning, stacklevel=3)
        if outcome.gap_asked is not None and not outcome.gap <= outcome.gap_asked:
            warnings.warn(
                f"stopped: {outcome.stopped}, with a gap of {outcome.gap:.3g} above "
                f"{outcome.gap_asked:g}",
                ConvergenceWarning,
                stacklevel=3,
            )

    def _gamma_of(self, X: Matrix) -> float | None:
        if self._precomputed:
            return None
        if self.gamma == "scale":
            variance = _variance(X)
            return 1.0 / (X.shape[1] * variance) if variance else 1.0
        if self.gamma == "auto":
            return 1.0 / X.shape[1]
        if isinstance(self.gamma, str):
            raise ValueError(f"gamma must be a number, 'scale' or 'auto', got {self.gamma!r}")
        return self.gamma

    def _take(self, arrays: Arrays, fitted: Any) -> None:
        self.model_ = fitted

    def _take_solution(self, X: Matrix) -> None:
        """support_, dual_coef_ and intercept_ of one function."""
        model: Any = self.model_.model
        self.support_ = model.support.astype(np.int32)
        self.support_vectors_ = X[self.support_[:0] if self._precomputed else self.support_]
        self.dual_coef_ = model.beta.T.copy()
        self.intercept_ = model.b.copy()
        self.n_support_ = np.array([len(self.support_)], np.int32)

    @property
    def coef_(self) -> np.ndarray:
        """Weights of the features, (functions, d); of the linear kernel alone."""
        if self.kernel != "linear":
            raise AttributeError("coef_ is only available when using a linear kernel")
        return np.asarray(self.dual_coef_ @ self.support_vectors_)


class KernelClassifier(KernelMachine, Classifier):
    """Classes by one decision function, or by one for each pair of them."""

    def fit(self, X: Any, y: Any, **unsupported: Any) -> KernelClassifier:
        """X : (m, d) array, sparse matrix or data frame; y : (m,) labels. One copy of X is made, as
        float32, and none where it is float32 already. Raises ValueError; TypeError for weights of
        single rows, as all of them do."""
        refuse(unsupported)
        if self.decision_function_shape not in ("ovr", "ovo"):
            raise ValueError(
                f"decision_function_shape must be 'ovr' or 'ovo', got "
                f"{self.decision_function_shape!r}"
            )
        X, arrays = self._labelled(X, y)
        self._fit(X, arrays, probability=bool(self.probability), **self._own(arrays))
        return self

    def _own(self, arrays: Arrays) -> dict[str, Any]:
        """The options that only this machine has."""
        raise NotImplementedError

    def _take(self, arrays: Arrays, fitted: Any) -> None:
        Classifier._take(self, arrays, fitted)
        self._codes = np.asarray(arrays.y)

    def _take_solution(self, X: Matrix) -> None:
        super()._take_solution(X)
        codes = self._codes[self.support_]
        del self._codes
        if len(self.classes_) == 2:
            self.dual_coef_ *= self._sign
            self.intercept_ *= self._sign
        # Grouped by class, as in LIBSVM.
        order = np.argsort(codes, kind="stable")
        self.support_ = self.support_[order]
        if not self._precomputed:
            self.support_vectors_ = self.support_vectors_[order]
        self.dual_coef_ = self.dual_coef_[:, order]
        self.n_support_ = np.bincount(codes, minlength=len(self.classes_)).astype(np.int32)

    @property
    def _has_pairs(self) -> bool:
        """Whether the model has a function of each pair of classes."""
        return hasattr(self.model_.model, "nr_sv")

    @property
    def coef_(self) -> np.ndarray:
        """As of every kernel machine; of several classes one against one, (pairs, d)."""
        if self.kernel != "linear" or not self._has_pairs:
            return super().coef_
        return pair_weights(self.dual_coef_, self.support_vectors_, self.n_support_)

    def decision_function(self, X: Any) -> np.ndarray:
        """f of each row: (m,) of two classes, > 0 for classes_[1]; else a column for each class, or
        with decision_function_shape="ovo" for each pair, > 0 for its first."""
        if not hasattr(self, "model_") or not self._has_pairs:
            return super().decision_function(X)
        f = self._decision(X)
        return f if self.decision_function_shape == "ovo" else class_values(f, len(self.classes_))

    def _has_probabilities(self) -> bool:
        return bool(self.probability)

    @available_if(_has_probabilities)
    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of each class, (m, classes), by Platt's sigmoid."""
        p = self.model_.model.probabilities(self._decision(X))
        return p[:, np.argsort(self._numbers)]

    @available_if(_has_probabilities)
    def predict_log_proba(self, X: Any) -> np.ndarray:
        return np.log(self.predict_proba(X))


class SVC(KernelClassifier):
    """C-support vector classification with a certified gap.

    Parameters as sklearn.svm.SVC has them. gap: the training ends when its objective is certified
    to be within this part of the optimum; None: the default of the commands. max_iter: rounds of
    solve and scan, -1: no limit. n_jobs: threads, None: all cores. random_state None is 0: equal
    calls give equal models.

    kernel="precomputed": X of fit has the kernel values of each row with each, dense or sparse, and
    X of predict those of its rows with the rows of fit, a column for each.

    After fit: classes_, support_, support_vectors_ (none where the kernel is precomputed),
    n_support_, dual_coef_, intercept_, coef_ (linear kernel), n_iter_, n_features_in_ as there;
    gap_, the certified gap (nan for kernels that are not positive semidefinite); model_, the model
    with how its training ended.
    """

    _task = "svc"

    def __init__(
        self,
        *,
        C: float = 1.0,
        kernel: str = "rbf",
        degree: int = 3,
        gamma: float | str = "scale",
        coef0: float = 0.0,
        shrinking: bool = True,
        probability: bool = False,
        tol: float = 1e-3,
        class_weight: Any = None,
        max_iter: int = -1,
        decision_function_shape: str = "ovr",
        random_state: Any = None,
        gap: float | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self.C = C
        self.kernel = kernel
        self.degree = degree
        self.gamma = gamma
        self.coef0 = coef0
        self.shrinking = shrinking
        self.probability = probability
        self.tol = tol
        self.class_weight = class_weight
        self.max_iter = max_iter
        self.decision_function_shape = decision_function_shape
        self.random_state = random_state
        self.gap = gap
        self.n_jobs = n_jobs

    def _own(self, arrays: Arrays) -> dict[str, Any]:
        return {"C": self.C, "weights": self._weights(arrays)}


class KernelRegressor(RegressorMixin, KernelMachine):
    """A number for each row."""

    def fit(self, X: Any, y: Any, **unsupported: Any) -> KernelRegressor:
        """X : (m, d), see KernelClassifier.fit; y : (m,) targets."""
        refuse(unsupported)
        X, y = self._rows(X, y=y, y_numeric=True)
        self._fit(X, Arrays(X, y), **self._own())
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The value of each row, (m,) float64."""
        return self._decision(X)

    def _own(self) -> dict[str, Any]:
        """The options that only this machine has."""
        raise NotImplementedError


class SVR(KernelRegressor):
    """Epsilon-support vector regression with a certified gap; see SVC."""

    _task = "svr"

    def __init__(
        self,
        *,
        kernel: str = "rbf",
        degree: int = 3,
        gamma: float | str = "scale",
        coef0: float = 0.0,
        tol: float = 1e-3,
        C: float = 1.0,
        epsilon: float = 0.1,
        shrinking: bool = True,
        max_iter: int = -1,
        random_state: Any = None,
        gap: float | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self.kernel = kernel
        self.degree = degree
        self.gamma = gamma
        self.coef0 = coef0
        self.tol = tol
        self.C = C
        self.epsilon = epsilon
        self.shrinking = shrinking
        self.max_iter = max_iter
        self.random_state = random_state
        self.gap = gap
        self.n_jobs = n_jobs

    def _own(self) -> dict[str, Any]:
        return {"C": self.C, "epsilon": self.epsilon}


class OneClassSVM(OutlierMixin, KernelMachine):
    """Novelty detection with a certified gap; see SVC. After fit also offset_ = -intercept_."""

    _task = "one-class"

    def __init__(
        self,
        *,
        kernel: str = "rbf",
        degree: int = 3,
        gamma: float | str = "scale",
        coef0: float = 0.0,
        tol: float = 1e-3,
        nu: float = 0.5,
        shrinking: bool = True,
        max_iter: int = -1,
        random_state: Any = None,
        gap: float | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self.kernel = kernel
        self.degree = degree
        self.gamma = gamma
        self.coef0 = coef0
        self.tol = tol
        self.nu = nu
        self.shrinking = shrinking
        self.max_iter = max_iter
        self.random_state = random_state
        self.gap = gap
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: Any = None, **unsupported: Any) -> OneClassSVM:
        """X : (m, d), see KernelClassifier.fit; y is not looked at."""
        refuse(unsupported)
        X = self._rows(X)
        self._fit(X, Arrays(X), nu=self.nu)
        self.offset_ = -self.intercept_
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """f of each row, (m,): > 0 for rows like those of training."""
        return self._decision(X)

    def score_samples(self, X: Any) -> np.ndarray:
        """f without its offset, (m,)."""
        return self.decision_function(X) + self.offset_

    def predict(self, X: Any) -> np.ndarray:
        """1 for rows like those of training, else -1, (m,)."""
        return np.where(self._decision(X, labels_only=True) > 0, 1, -1)


def _variance(X: Matrix) -> float:
    """Of all values of X, zeros included, without a copy of them."""
    mean, size = float(X.mean(dtype=np.float64)), X.shape[0] * X.shape[1]
    values = X if isinstance(X, np.ndarray) else X.data
    squares = 0.0
    for at in slices(len(values), ROWS_AT_ONCE):
        squares += float(np.square(values[at] - mean, dtype=np.float64).sum())
    return (squares + (size - values.size) * mean**2) / size
