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
    checked_weights,
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

    _format = "liblinear"

    def _set_model(self, fitted: FittedModel) -> None:
        super()._set_model(fitted)
        recorded = recorded_options(fitted.model)
        self.fit_intercept = not recorded.get("no_bias", False)
        if isinstance(recorded.get("gap"), float):
            self.tol = recorded["gap"]

    def _fit(self, X: Any, arrays: Arrays) -> None:
        given = self._options(arrays)
        # The logistic loss and that of Crammer and Singer have no duality gap.
        certified = given["loss"] not in ("log", None)
        if certified:
            given |= {"epochs": 0, "gap": float(self.tol), "max_iterations": self.max_iter}
        else:
            weights = arrays.weights
            n = arrays.X.shape[0] if weights is None else int(np.count_nonzero(weights))
            usual: Any = SgdParams().resolved(n).epochs
            given["epochs"] = usual if self.max_iter is None else min(usual, self.max_iter)
        fitted = api.train(arrays, algorithm="sgd", **given)
        outcome: Any = fitted.outcome
        self._take(fitted)
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

    def _options(self, arrays: Arrays) -> dict[str, Any]:
        """Return the options of fit and of the first partial_fit."""
        own = {"no_bias": not self.fit_intercept, **self._own_options(arrays)}
        return {**own, **self._common_options()}

    def _learn(self, arrays: Arrays, begins: bool) -> None:
        """Make one step for each row, as `randsvm-train sgd --update` does.

        begins: whether no rows came before
        """
        how = {"epochs": 1, **self._options(arrays)} if begins else {"update": self.model_}
        self._take(api.train(arrays, algorithm="sgd", **how))
        self.n_iter_ = 1

    @property
    def coef_(self) -> Any:
        """Weights of the features; predictions use those of model_."""
        model: Any = self.model_.model
        if model.mapping is not None:
            raise AttributeError("coef_ is only available without random features")
        w, d = self._in_class_order(model.w).T, self.n_features_in_
        columns, rows = np.tile(model.features - model.index_base, len(w)), len(model.features)
        weights = sparse.csr_matrix((w.ravel(), columns, np.arange(len(w) + 1) * rows), (len(w), d))
        # As scikit-learn's, coef_ of fit is an array also for sparse rows.
        is_array = self.model_.outcome is not None or rows >= SPARSE * d
        return weights.toarray() if is_array else weights


@documented("sklearn.svm.LinearSVC", f"classes_ class_weight_ {LINEAR_ATTRIBUTES}")
@dataclass(eq=False, repr=False, kw_only=True)
class LinearSVC(Classifier, LinearMachine):
    """Linear classification for many rows and sparse features.

    Newton steps train until the relative duality gap is at most tol: the objective, in which the
    intercept is not regularised, is then within this share of the optimum.
    multi_class="crammer_singer" and loss="log" have passes of stochastic gradient descent instead,
    and no certificate.
    """

    # These two parameters are positional in scikit-learn.
    penalty: str = field(default="l2", kw_only=False)
    loss: str = field(default="squared_hinge", kw_only=False)
    multi_class: str = "ovr"

    _task = "svc"

    @property
    def _crammer_singer(self) -> bool:
        return self.multi_class == "crammer_singer" and len(self.classes_) > 2

    def _own_options(self, arrays: Arrays) -> dict[str, Any]:
        return {
            "loss": None if self._crammer_singer else self.loss.replace("_", "-"),
            "multiclass": "crammer-singer" if self._crammer_singer else None,
            "weights": self._class_weights(arrays),
        }

    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None
    ) -> LinearSVC:
        """Train on more rows by stochastic gradient descent, in one pass, without a certificate.

        Parameters
        ----------
        X : array, sparse matrix or data frame of shape (n_samples, n_features)
            Rows.
        y : array of shape (n_samples,)
            Labels; those of the first call must be all classes.
        classes : array of shape (n_classes,), optional
            All classes, as scikit-learn's methods take them; they are compared with y.
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
        self._check_parameters()
        begins = not hasattr(self, "model_")
        if begins:
            X, arrays = self._checked(X, y, sample_weight)
            if classes is not None and not np.array_equal(np.unique(classes), self.classes_):
                raise ValueError(
                    "the first rows of partial_fit must have all classes, and no others"
                )
        else:
            X, y = self._checked_rows(X, False, y=y)
            if not np.isin(y, self.classes_).all():
                raise ValueError("y has labels that the first rows of partial_fit did not have")
            codes, weights = np.searchsorted(self.classes_, y), checked_weights(sample_weight, X)
            arrays = Arrays(X, codes, self.classes_, weights)
        self._learn(arrays, begins)
        return self

    def _check_parameters(self) -> None:
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
        self._check_parameters()
        begins = not hasattr(self, "model_")
        X, y = self._checked_rows(X, begins, y=y, y_numeric=True)
        self._learn(Arrays(X, y, weights=checked_weights(sample_weight, X)), begins)
        return self

    def _own_options(self, arrays: Arrays) -> dict[str, Any]:
        loss = self.loss.replace("_", "-")
        return {"task": "svr", "loss": loss}

    @property
    def coef_(self) -> np.ndarray:
        """Weights of the features, of shape (d,) as scikit-learn's."""
        w = super().coef_
        return w.toarray()[0] if sparse.issparse(w) else w[0]
