"""OneClassSVM: novelty detection with a certified gap."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import OutlierMixin

from randsvm.data.in_memory import Arrays
from randsvm.estimators.documentation import documented
from randsvm.estimators.kernel_machines import (
    SOLUTION_ATTRIBUTES,
    TRAINING_ATTRIBUTES,
    KernelMachine,
)
from randsvm.estimators.machine import checked_weights
from randsvm.models.fitted import FittedModel


@documented(*SOLUTION_ATTRIBUTES, "offset_", *TRAINING_ATTRIBUTES)
@dataclass(eq=False, repr=False, kw_only=True)
class OneClassSVM(OutlierMixin, KernelMachine):
    """Novelty detection with a certified gap.

    It replaces sklearn.svm.OneClassSVM. Equal calls give equal models.
    """

    nu: float = 0.5

    _task = "one-class"

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> OneClassSVM:
        """Learn a region that contains most of the rows.

        Parameters
        ----------
        X : array, sparse matrix or data frame of shape (n_samples, n_features)
            Rows; at most one copy of them is made, as float32.
        y : object, optional
            Ignored.
        sample_weight : float or array of shape (n_samples,), optional
            Weights of the rows, which multiply the bounds of their coefficients; rows without a
            weight above 0 are left out.

        Returns
        -------
        OneClassSVM
            The fitted estimator.

        Raises
        ------
        ValueError
            If a parameter or a value is invalid.
        """
        X = self._checked_rows(X)
        weights = checked_weights(sample_weight, X.shape[0])
        self._fit(X, Arrays(X, weights=weights), nu=self.nu)
        self.offset_ = -self.intercept_
        return self

    def _set_model(self, fitted: FittedModel) -> None:
        super()._set_model(fitted)
        self.offset_ = -fitted.model.b

    def decision_function(self, X: Any) -> np.ndarray:
        """Return the decision values of rows.

        Parameters
        ----------
        X : array, sparse matrix or data frame of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples,)
            Values f, > 0 for rows inside the learned region.
        """
        return self._decision(X)

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
        return self.decision_function(X) + self.offset_

    def predict(self, X: Any) -> np.ndarray:
        """Return whether each row lies inside the learned region.

        Parameters
        ----------
        X : array, sparse matrix or data frame of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples,)
            The number 1 for rows inside the region, else -1.
        """
        return np.where(self._decision(X, labels_only=True) > 0, 1, -1)
