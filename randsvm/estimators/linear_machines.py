"""LinearSVC and LinearSVR: linear machines, trained to a duality gap."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from scipy import sparse
from sklearn.base import RegressorMixin
from sklearn.exceptions import ConvergenceWarning

from randsvm.data.in_memory import Arrays
from randsvm.data.scaling import SPARSE
from randsvm.estimators.callbacks import FitTasks
from randsvm.estimators.machine import (
    TRAINING_ATTRIBUTES,
    BaseSVM,
    Classifier,
    as_configured,
    documented,
)
from randsvm.events import Epoch
from randsvm.models.fitted import FittedModel
from randsvm.parameters.sgd import SgdParams

AnyLinear = TypeVar("AnyLinear", bound="LinearMachine")

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

    _format = "liblinear"

    def _set_model(self, fitted: FittedModel, recorded: dict[str, Any]) -> None:
        super()._set_model(fitted, recorded)
        self.fit_intercept = not recorded.get("no_bias", False)
        if isinstance(recorded.get("gap"), float):
            self.tol = recorded["gap"]

    def _options(self, arrays: Arrays) -> dict[str, Any]:
        loss = self.loss.replace("_", "-")
        return super()._options(arrays) | {"no_bias": not self.fit_intercept, "loss": loss}

    def _fit(self, arrays: Arrays, tasks: FitTasks) -> None:
        given = self._options(arrays)
        # The loss of Crammer and Singer has no duality gap.
        certified = given["loss"] is not None
        if certified:
            given |= {"epochs": 0, "gap": float(self.tol), "max_iterations": self.max_iter}
        else:
            weights = arrays.weights
            n = arrays.X.shape[0] if weights is None else int(np.count_nonzero(weights))
            usual: Any = SgdParams().resolved(n).epochs
            given["epochs"] = usual if self.max_iter is None else min(usual, self.max_iter)
        fitted = self._trained(arrays, algorithm="sgd", watch=tasks.watch, **given)
        self._set_fitted(fitted, arrays, tasks.events)
        if not certified:
            warnings.warn(
                f"{self.n_iter_} passes of stochastic gradient descent: how close they come to the "
                "optimum is not known; multi_class='ovr' is certified",
                ConvergenceWarning,
                stacklevel=4,
            )
        self._warns_of_gap(
            "a larger max_iter, a smaller C or scaled features (StandardScaler) may help"
        )

    def _set_fitted(self, fitted: FittedModel, arrays: Arrays, events: list[Any]) -> None:
        self._take(fitted)
        epochs = sum(isinstance(event, Epoch) for event in events)
        outcome: Any = fitted.outcome
        self.n_iter_ = max((outcome.passes or 0) + (outcome.newton_steps or 0) or epochs, 1)

    def _learn(self: AnyLinear, arrays: Arrays, begins: bool) -> AnyLinear:
        """Make one step for each row, as `randsvm-train sgd --update` does.

        begins: whether no rows came before
        """
        how = {"epochs": 1, **self._options(arrays)} if begins else {"update": self.model_}
        self._take(self._trained(arrays, algorithm="sgd", **how))
        self.n_iter_ = 1
        return self

    @property
    def coef_(self) -> Any:
        """Weights of the features; predictions use those of model_."""
        model: Any = self.model_.model
        if model.mapping is not None:
            raise AttributeError("coef_ is only available without random features")
        weights = self._feature_weights(model.w)
        # As scikit-learn's, coef_ of fit is an array also for sparse rows.
        few = len(model.features) < SPARSE * self.n_features_in_
        is_sparse = few and self.model_.outcome is None
        return as_configured(weights) if is_sparse else weights.toarray()


@documented("sklearn.svm.LinearSVC", f"classes_ class_weight_ {LINEAR_ATTRIBUTES}")
@dataclass(eq=False, repr=False, kw_only=True)
class LinearSVC(Classifier, LinearMachine):
    """Linear classification for many rows and sparse features.

    Coordinate ascent (sparse rows) or Newton steps train until the relative duality gap is at most
    tol: the objective, in which the intercept is not regularised, is then within this share of the
    optimum. With penalty="l1" Newton steps with coordinate descent do so; the sum of the sizes of
    the weights takes the place of half the sum of their squares, and many weights are 0.
    multi_class="crammer_singer" has passes of stochastic gradient descent instead, and no
    certificate.
    """

    # These two parameters are positional in scikit-learn.
    penalty: str = field(default="l2", kw_only=False)
    loss: str = field(default="squared_hinge", kw_only=False)
    multi_class: str = "ovr"

    _task = "svc"

    def _options(self, arrays: Arrays) -> dict[str, Any]:
        options = super()._options(arrays)
        if self.multi_class == "crammer_singer" and len(self.classes_) > 2:
            return options | {"loss": None, "multiclass": "crammer-singer"}
        return options | {"penalty": self.penalty}

    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None
    ) -> LinearSVC:
        """Train on more rows by stochastic gradient descent, in one pass, without a certificate.

        Parameters
        ----------
        X : array, sparse matrix or data frame of shape (n_samples, n_features)
            Rows.
        y : array of shape (n_samples,)
            Labels.
        classes : array of shape (n_classes,), optional
            All classes, also those of later calls; None: the labels of the first call.
        sample_weight : float or array of shape (n_samples,), optional
            Weights of the rows.

        Returns
        -------
        LinearSVC
            The fitted estimator.

        Raises
        ------
        ValueError
            If a parameter or a value is invalid, or if a label is new.
        """
        if self.penalty == "l1":
            raise ValueError("partial_fit does not support penalty='l1'")
        begins = not hasattr(self, "model_")
        return self._learn(self._checked(X, y, sample_weight, begins, classes), begins)

    def _check_parameters(self) -> None:
        is_wrong = self.loss == "hinge" and self.dual is False
        if self.penalty == "l1":
            is_wrong = self.loss == "hinge" or self.dual is True
        if self.penalty not in ("l1", "l2") or is_wrong:
            raise ValueError(
                f"Unsupported set of arguments: penalty={self.penalty!r}, loss={self.loss!r}, "
                f"dual={self.dual!r}; penalty must be 'l1' or 'l2', 'l1' has neither 'hinge' nor "
                f"the dual, and 'hinge' needs the dual"
            )
        if self.multi_class not in ("ovr", "crammer_singer"):
            raise ValueError(
                f"multi_class must be 'ovr' or 'crammer_singer', got {self.multi_class!r}"
            )


@documented("sklearn.svm.LinearSVR", LINEAR_ATTRIBUTES)
@dataclass(eq=False, repr=False, kw_only=True)
class LinearSVR(RegressorMixin, LinearMachine):
    """Linear regression for many rows and sparse features.

    It trains as LinearSVC does, with the epsilon-insensitive loss or its square, whose sum over the
    rows is multiplied by C.
    """

    epsilon: float = 0.0
    loss: str = "epsilon_insensitive"

    _task = "svr"

    def _check_parameters(self) -> None:
        if self.loss == "epsilon_insensitive" and self.dual is False:
            raise ValueError(
                "Unsupported set of arguments: loss='epsilon_insensitive' needs the dual"
            )

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> LinearSVR:
        """Train on more rows by stochastic gradient descent, in one pass, without a certificate.

        Parameters
        ----------
        X : array, sparse matrix or data frame of shape (n_samples, n_features)
            Rows.
        y : array of shape (n_samples,)
            Targets.
        sample_weight : float or array of shape (n_samples,), optional
            Weights of the rows.

        Returns
        -------
        LinearSVR
            The fitted estimator.

        Raises
        ------
        ValueError
            If a parameter or a value is invalid.
        """
        begins = not hasattr(self, "model_")
        return self._learn(self._checked(X, y, sample_weight, begins), begins)

    @property
    def coef_(self) -> np.ndarray:
        """Weights of the features, of shape (d,) as scikit-learn's."""
        w = super().coef_
        return w.toarray()[0] if sparse.issparse(w) else w[0]
