"""LinearSVC: linear classification to a duality gap."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from randsvm import api
from randsvm.data.scaling import SPARSE
from randsvm.estimators.documentation import documented
from randsvm.estimators.machine import Classifier, recorded_options
from randsvm.models.fitted import FittedModel
from randsvm.parameters.sgd import SgdParams


@documented(
    "classes_",
    "class_weight_",
    "coef_",
    "intercept_",
    "n_iter_",
    "n_features_in_",
    "fit_time_",
    "stopped_",
    "gap_",
    "model_",
)
@dataclass(eq=False, repr=False, kw_only=True)
class LinearSVC(Classifier):
    """Linear classification for many rows and sparse features.

    One pass of stochastic gradient descent and Newton steps train until the relative duality gap is
    at most tol: the objective, in which the intercept is not regularised, is then within this share
    of the optimum. multi_class="crammer_singer" and loss="log" have passes of stochastic gradient
    descent only, and no certificate.
    """

    # These two parameters are positional in scikit-learn.
    penalty: str = field(default="l2", kw_only=False)
    loss: str = field(default="squared_hinge", kw_only=False)
    C: float = 1.0
    dual: bool | str = "auto"
    tol: float = 1e-4
    multi_class: str = "ovr"
    fit_intercept: bool = True
    intercept_scaling: float = 1.0
    max_iter: int | None = 1000

    def _set_solution_of_model(self) -> None:
        model: Any = self.model_.model
        if len(model.b) == 1:
            w, self.intercept_ = self._sign * model.w.T, self._sign * model.b
        else:
            order = np.argsort(self._class_indices)
            w, self.intercept_ = model.w.T[order], model.b[order]
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

    @property
    def coef_(self) -> Any:
        """Weights of the features, (n_functions, d); predictions use those of model_."""
        if not hasattr(self, "_coef"):
            raise AttributeError("coef_ is only available after fit, and without random features")
        return self._coef

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> LinearSVC:
        """Train a linear classifier on rows and labels.

        Parameters
        ----------
        X : array, sparse matrix or data frame of shape (n_samples, n_features)
            Rows.
        y : array of shape (n_samples,)
            Labels of any type.
        sample_weight : float or array of shape (n_samples,), optional
            Weights of the rows, which multiply C; rows without a weight above 0 are left out.

        Returns
        -------
        LinearSVC
            The fitted estimator.

        Raises
        ------
        ValueError
            If a parameter or a value is invalid.
        """
        self._check_parameters()
        X, arrays = self._checked_labelled_rows(X, y, sample_weight)
        n = X.shape[0] if arrays.weights is None else int(np.count_nonzero(arrays.weights))
        crammer_singer = self.multi_class == "crammer_singer" and len(self.classes_) > 2
        certified = not crammer_singer and self.loss != "log"
        given: dict[str, Any] = {
            "C": self.C,
            "loss": None if crammer_singer else self.loss.replace("_", "-"),
            "multiclass": "crammer-singer" if crammer_singer else None,
            "weights": self._class_weights(arrays),
            **self._common_options(),
        }
        if certified:
            given |= {"epochs": 1, "gap": float(self.tol), "max_iterations": self.max_iter}
        else:
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
                stacklevel=2,
            )
        elif not self.gap_ <= self.tol:
            warnings.warn(
                f"stopped: {self.stopped_}, with a gap of {self.gap_:.3g} above tol={self.tol:g}; "
                "a larger max_iter, a smaller C or scaled features (StandardScaler) may help",
                ConvergenceWarning,
                stacklevel=2,
            )
        self._set_solution_of_model()
        # As scikit-learn's, coef_ of fit is an array also for sparse rows.
        weights: Any = self._coef
        self._coef = weights.toarray() if sparse.issparse(weights) else weights
        return self

    def _set_model(self, fitted: FittedModel) -> None:
        super()._set_model(fitted)
        gap = recorded_options(fitted.model).get("gap")
        if isinstance(gap, float):
            self.tol = gap

    def _check_parameters(self) -> None:
        """Raise ValueError for values of scikit-learn's parameters that are not supported."""
        if self.penalty != "l2" or (self.loss == "hinge" and self.dual is False):
            raise ValueError(
                f"Unsupported set of arguments: penalty={self.penalty!r}, loss={self.loss!r}, "
                f"dual={self.dual!r}; penalty must be 'l2', and 'hinge' needs the dual"
            )
        if not self.fit_intercept:
            raise ValueError(
                "fit_intercept must be True: the intercept is always fitted, and not regularised"
            )
        if self.multi_class not in ("ovr", "crammer_singer"):
            raise ValueError(
                f"multi_class must be 'ovr' or 'crammer_singer', got {self.multi_class!r}"
            )
