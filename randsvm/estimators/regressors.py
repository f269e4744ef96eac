"""SVR and NuSVR: regression with a certified gap."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin

from randsvm.data.in_memory import Arrays
from randsvm.estimators.documentation import documented
from randsvm.estimators.kernel_machines import (
    SOLUTION_ATTRIBUTES,
    TRAINING_ATTRIBUTES,
    KernelMachine,
    finite_cost,
)
from randsvm.estimators.machine import checked_weights


@dataclass(eq=False, repr=False, kw_only=True)
class KernelRegressor(RegressorMixin, KernelMachine):
    """Regression by one decision function."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> KernelRegressor:
        """Train a regression on rows and targets.

        Parameters
        ----------
        X : array, sparse matrix or data frame of shape (n_samples, n_features)
            Rows; at most one copy of them is made, as float32.
        y : array of shape (n_samples,)
            Targets.
        sample_weight : float or array of shape (n_samples,), optional
            Weights of the rows, which multiply C; rows without a weight above 0 are left out.

        Returns
        -------
        KernelRegressor
            The fitted estimator.

        Raises
        ------
        ValueError
            If a parameter or a value is invalid.
        """
        X, y = self._checked_rows(X, y=y, y_numeric=True)
        weights = checked_weights(sample_weight, len(y))
        self._fit(X, Arrays(X, y, weights=weights), **self._own_options())
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Return the predicted target of each row.

        Parameters
        ----------
        X : array, sparse matrix or data frame of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples,), float64
            Predicted targets.
        """
        return self._decision(X)

    def _own_options(self) -> dict[str, Any]:
        """Return the options that only this estimator has."""
        raise NotImplementedError


@documented(*SOLUTION_ATTRIBUTES, *TRAINING_ATTRIBUTES)
@dataclass(eq=False, repr=False, kw_only=True)
class SVR(KernelRegressor):
    """Epsilon-support vector regression with a certified gap.

    It replaces sklearn.svm.SVR. Equal calls give equal models.
    """

    C: float = 1.0
    epsilon: float = 0.1

    _task = "svr"

    def _own_options(self) -> dict[str, Any]:
        return {"C": finite_cost(self.C), "epsilon": self.epsilon}


@documented(*SOLUTION_ATTRIBUTES, *TRAINING_ATTRIBUTES)
@dataclass(eq=False, repr=False, kw_only=True)
class NuSVR(KernelRegressor):
    """Nu-support vector regression with a certified gap.

    It replaces sklearn.svm.NuSVR. The width of the tube follows from nu.
    """

    nu: float = 0.5
    C: float = 1.0

    _task = "nu-svr"

    def _own_options(self) -> dict[str, Any]:
        return {"nu": self.nu, "C": finite_cost(self.C)}
