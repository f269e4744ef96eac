"""LinearSVC: linear classification by stochastic gradient descent."""

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
    """Linear classification by stochastic gradient descent, for many rows and sparse features.

    The model is close to the optimum, but has no certificate, which needs a dual solution.
    SVC(kernel="linear") has a certificate and the hinge loss. Training makes 10 passes over many
    rows and up to 100 passes over few rows; max_iter limits the passes.
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
        self.coef_ = weights

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
        multiclass: dict[str, Any] = {}
        if self.multi_class == "crammer_singer" and len(self.classes_) > 2:
            multiclass = {"multiclass": "crammer-singer"}
        given = {
            "C": self.C,
            "loss": None if multiclass else self.loss.replace("_", "-"),
            "epochs": self._resolved_epochs(n),
            "weights": self._class_weights(arrays),
            **multiclass,
            **self._common_options(),
        }
        fitted = api.train_sgd(arrays, **given)
        self._set_training_attributes(arrays, fitted)
        self.n_iter_ = given["epochs"]
        self._set_solution_of_model()
        # As scikit-learn's, coef_ of fit is an array also for sparse rows.
        weights: Any = self.coef_
        self.coef_ = weights.toarray() if sparse.issparse(weights) else weights
        return self

    def _set_model(self, fitted: FittedModel) -> None:
        super()._set_model(fitted)
        epochs = recorded_options(fitted.model).get("epochs")
        if isinstance(epochs, float):
            self.n_iter_ = int(epochs)

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

    def _resolved_epochs(self, n: int) -> int:
        """Return the number of passes over n rows: the default of `sgd`, or max_iter if smaller."""
        usual = SgdParams().resolved(n).epochs
        assert isinstance(usual, int)
        if self.max_iter is None or self.max_iter >= usual:
            return usual
        warnings.warn(
            f"max_iter={self.max_iter} ends the training early: the default for {n:,} rows is "
            f"{usual} passes",
            ConvergenceWarning,
            stacklevel=3,
        )
        return self.max_iter
