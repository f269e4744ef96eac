"""LinearSVC and LinearSVR: linear machines to a duality gap."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import RegressorMixin
from sklearn.exceptions import ConvergenceWarning

from randsvm import api
from randsvm.data.in_memory import Arrays
from randsvm.data.scaling import SPARSE
from randsvm.estimators.machine import (
    TRAINING_ATTRIBUTES,
    BaseSVM,
    Classifier,
    documented,
    recorded_options,
)
from randsvm.models.fitted import FittedModel
from randsvm.parameters.sgd import SgdParams

LINEAR_ATTRIBUTES = f"coef_ intercept_ {TRAINING_ATTRIBUTES}"


@dataclass(eq=False, repr=False, kw_only=True)
class LinearMachine(BaseSVM):
    """The base of estimators that train a linear machine."""

    C: float = 1.0
    dual: bool | str = "auto"
    tol: float = 1e-4
    fit_intercept: bool = True
    intercept_scaling: float = 1.0
    max_iter: int | None = 1000

    def _set_model(self, fitted: FittedModel) -> None:
        super()._set_model(fitted)
        gap = recorded_options(fitted.model).get("gap")
        if isinstance(gap, float):
            self.tol = gap

    def _functions(self, model: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return the weights, (functions, d), and the intercepts of the decision functions."""
        return model.w.T, model.b

    def _set_solution_of_model(self) -> None:
        model: Any = self.model_.model
        w, self.intercept_ = self._functions(model)
        if model.mapping is not None:
            return
        columns = model.features - model.index_base
        if len(columns) < SPARSE * self.n_features_in_:
            rows = np.arange(len(w) + 1) * len(columns)
            entries = (w.ravel(), np.tile(columns, len(w)), rows)
            weights: Any = sparse.csr_matrix(entries, (len(w), self.n_features_in_))
        else:
            weights = np.zeros((len(w), self.n_features_in_))
            weights[:, columns] = w
        self._coef = weights

    def _check_parameters(self) -> None:
        if not self.fit_intercept:
            raise ValueError(
                "fit_intercept must be True: the intercept is always fitted, and not regularised"
            )

    @property
    def _certified(self) -> bool:
        """Whether the loss has a duality gap."""
        return True

    def _fit(self, X: Any, arrays: Arrays) -> None:
        certified = self._certified
        given = {"C": self.C, **self._own_options(arrays), **self._common_options()}
        if certified:
            given |= {"epochs": 1, "gap": float(self.tol), "max_iterations": self.max_iter}
        else:
            weights = arrays.weights
            n = arrays.X.shape[0] if weights is None else int(np.count_nonzero(weights))
            usual: Any = SgdParams().resolved(n).epochs
            given["epochs"] = usual if self.max_iter is None else min(usual, self.max_iter)
        fitted = api.train_sgd(arrays, **given)
        self._set_training_attributes(arrays, fitted)
        outcome: Any = fitted.outcome
        self.n_iter_ = max(outcome.newton_steps, 1) if certified else given["epochs"]
        if not certified:
            warnings.warn(
                f"{self.n_iter_} passes of stochastic gradient descent: how close they come to the "
                "optimum is not known; multi_class='ovr' with a hinge loss is certified",
                ConvergenceWarning,
                stacklevel=4,
            )
        elif not self.gap_ <= self.tol:
            warnings.warn(
                f"stopped: {self.stopped_}, with a gap of {self.gap_:.3g} above tol={self.tol:g}; "
                "a larger max_iter, a smaller C or scaled features (StandardScaler) may help",
                ConvergenceWarning,
                stacklevel=4,
            )
        self._set_solution_of_model()
        # As scikit-learn's, coef_ of fit is an array also for sparse rows.
        self._coef = _dense(self._coef)

    @property
    def coef_(self) -> Any:
        """Weights of the features; predictions use those of model_."""
        if not hasattr(self, "_coef"):
            raise AttributeError("coef_ is only available after fit, and without random features")
        return self._coef


def _dense(weights: Any) -> np.ndarray:
    return weights.toarray() if sparse.issparse(weights) else weights


@documented("sklearn.svm.LinearSVC", f"classes_ class_weight_ {LINEAR_ATTRIBUTES}")
@dataclass(eq=False, repr=False, kw_only=True)
class LinearSVC(Classifier, LinearMachine):
    """Linear classification for many rows and sparse features.

    One pass of stochastic gradient descent and Newton steps train until the relative duality gap is
    at most tol: the objective, in which the intercept is not regularised, is then within this share
    of the optimum. multi_class="crammer_singer" and loss="log" have passes of stochastic gradient
    descent only, and no certificate.
    """

    # These two parameters are positional in scikit-learn.
    penalty: str = field(default="l2", kw_only=False)
    loss: str = field(default="squared_hinge", kw_only=False)
    multi_class: str = "ovr"

    def _functions(self, model: Any) -> tuple[np.ndarray, np.ndarray]:
        w, b = super()._functions(model)
        if len(b) == 1:
            return self._sign * w, self._sign * b
        order = np.argsort(self._class_indices)
        return w[order], b[order]

    @property
    def _crammer_singer(self) -> bool:
        return self.multi_class == "crammer_singer" and len(self.classes_) > 2

    @property
    def _certified(self) -> bool:
        return not self._crammer_singer and self.loss != "log"

    def _own_options(self, arrays: Arrays) -> dict[str, Any]:
        return {
            "loss": None if self._crammer_singer else self.loss.replace("_", "-"),
            "multiclass": "crammer-singer" if self._crammer_singer else None,
            "weights": self._class_weights(arrays),
        }

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.penalty != "l2" or (self.loss == "hinge" and self.dual is False):
            raise ValueError(
                f"Unsupported set of arguments: penalty={self.penalty!r}, loss={self.loss!r}, "
                f"dual={self.dual!r}; penalty must be 'l2', and 'hinge' needs the dual"
            )
        if self.multi_class not in ("ovr", "crammer_singer"):
            raise ValueError(
                f"multi_class must be 'ovr' or 'crammer_singer', got {self.multi_class!r}"
            )


@documented("sklearn.svm.LinearSVR", LINEAR_ATTRIBUTES)
@dataclass(eq=False, repr=False, kw_only=True)
class LinearSVR(RegressorMixin, LinearMachine):
    """Linear regression for many rows and sparse features.

    It trains as LinearSVC does, with the epsilon-insensitive loss, whose sum over the rows is
    multiplied by C.
    """

    epsilon: float = 0.0
    loss: str = "epsilon_insensitive"

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.loss != "epsilon_insensitive" or self.dual is False:
            raise ValueError(
                f"Unsupported set of arguments: loss={self.loss!r}, dual={self.dual!r}; loss must "
                "be 'epsilon_insensitive', which needs the dual"
            )

    def _own_options(self, arrays: Arrays) -> dict[str, Any]:
        return {"task": "svr", "epsilon": self.epsilon}

    def _set_solution_of_model(self) -> None:
        super()._set_solution_of_model()
        # As scikit-learn's, the weights of the only function are of shape (d,).
        if hasattr(self, "_coef"):
            self._coef = _dense(self._coef)[0]

    @classmethod
    def _kind_of_model(cls) -> tuple[str, str]:
        return "liblinear", "svr"
