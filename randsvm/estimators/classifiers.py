"""SVC and NuSVC: classification with a certified gap."""

from __future__ import annotations

import warnings
from collections import Counter
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from sklearn.exceptions import NotFittedError
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from randsvm.data.in_memory import Arrays
from randsvm.estimators.documentation import documented
from randsvm.estimators.kernel_machines import (
    SOLUTION_ATTRIBUTES,
    TRAINING_ATTRIBUTES,
    KernelMachine,
    finite_cost,
)
from randsvm.estimators.machine import Classifier
from randsvm.models.decisions import class_pairs, pair_index
from randsvm.models.fitted import FittedModel
from randsvm.models.kernel_model import PairwiseModel
from randsvm.models.libsvm_format import pair_coefficients

CLASSIFIER_ATTRIBUTES = (
    "classes_",
    "class_weight_",
    *SOLUTION_ATTRIBUTES,
    "probA_",
    "probB_",
    *TRAINING_ATTRIBUTES,
)


@dataclass(eq=False, repr=False, kw_only=True)
class KernelClassifier(KernelMachine, Classifier):
    """Classification by one decision function, or by one for each pair of classes."""

    probability: bool | str = False
    decision_function_shape: str = "ovr"
    break_ties: bool = False

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> KernelClassifier:
        """Train a classifier on rows and labels.

        Parameters
        ----------
        X : array, sparse matrix or data frame of shape (n_samples, n_features)
            Rows; at most one copy of them is made, as float32.
        y : array of shape (n_samples,)
            Labels of any type.
        sample_weight : float or array of shape (n_samples,), optional
            Weights of the rows, which multiply C; rows without a weight above 0 are left out.

        Returns
        -------
        KernelClassifier
            The fitted estimator.

        Raises
        ------
        ValueError
            If a parameter or a value is invalid.
        """
        if self.decision_function_shape not in ("ovr", "ovo"):
            raise ValueError(
                f"decision_function_shape must be 'ovr' or 'ovo', got "
                f"{self.decision_function_shape!r}"
            )
        X, arrays = self._checked_labelled_rows(X, y, sample_weight)
        probability = self._has_probabilities()
        self._fit(X, arrays, probability=probability, **self._own_options(arrays))
        return self

    def _own_options(self, arrays: Arrays) -> dict[str, Any]:
        """Return the options that only this estimator has."""
        raise NotImplementedError

    def _set_model(self, fitted: FittedModel) -> None:
        super()._set_model(fitted)
        self.probability = fitted.model.has_probabilities

    def _iteration_counts(self, found: Counter[str]) -> np.ndarray:
        if not self._has_pairs:
            return np.array([super()._iteration_counts(found)], np.int32)
        labels = self.model_.model.labels
        names = [labels[number] for number in np.argsort(self._class_indices)]
        pairs = [" / ".join(pair) for pair in combinations(names, 2)]
        return np.array([max(found[pair], 1) for pair in pairs], np.int32)

    def _functions_of_model(
        self, model: Any
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]:
        """Return them grouped by class, as in LIBSVM."""
        K, indices = len(self.classes_), self._class_indices
        functions = np.argsort(indices)
        if K == 2:
            dual, intercept = self._sign * model.beta.T, self._sign * model.b
            codes = (dual[0] > 0).astype(np.int64)
            order = np.argsort(codes, kind="stable")
            dual = dual[:, order]
        elif self._has_pairs:
            codes = indices[model.own]
            order = np.argsort(codes, kind="stable")
            dual = pair_coefficients(codes[order], model.beta[order][:, functions]).T
            intercept = pairs_of_classes(model.b[None], indices)[0]
        else:
            # A support vector of one class against the rest may be one of several functions.
            order, dual, intercept, _ = super()._functions_of_model(model)
            return order, dual[functions], intercept[functions], None
        return order, dual, intercept, np.bincount(codes, minlength=K).astype(np.int32)

    @property
    def _has_pairs(self) -> bool:
        """Return whether the model has a decision function for each pair of classes."""
        return isinstance(self.model_.model, PairwiseModel)

    def _linear_weights(self, dual: np.ndarray) -> np.ndarray:
        model: Any = self.model_.model
        if not self._has_pairs:
            return super()._linear_weights(dual)
        order = np.argsort(self._class_indices[model.own], kind="stable")
        coefficients = pairs_of_classes(model.coefficients[order], self._class_indices)
        return coefficients.T @ self.support_vectors_

    def decision_function(self, X: Any) -> np.ndarray:
        """Return the decision values of rows.

        Parameters
        ----------
        X : array, sparse matrix or data frame of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_functions)
            Values f. For two classes f > 0 predicts classes_[1]. More classes have a column
            for each class; with ``decision_function_shape="ovo"`` they have a column for each pair,
            where f > 0 is a vote for the first class of the pair.
        """
        if not hasattr(self, "model_") or not self._has_pairs:
            return super().decision_function(X)
        K = len(self.classes_)
        f = pairs_of_classes(self._decision(X), self._class_indices)
        return f if self.decision_function_shape == "ovo" else class_values(f, K)

    def predict(self, X: Any) -> np.ndarray:
        """Return the class of each row.

        Parameters
        ----------
        X : array, sparse matrix or data frame of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples,)
            Labels of the classes with most votes; with `break_ties` those of the largest decision
            value.
        """
        check_is_fitted(self)
        if self.break_ties and self.decision_function_shape == "ovo":
            raise ValueError("break_ties must be False when decision_function_shape is 'ovo'")
        if self.break_ties and len(self.classes_) > 2:
            return self.classes_[self.decision_function(X).argmax(axis=1)]
        return super().predict(X)

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
        p = self.model_.model.probabilities(self._decision(X))
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

    @property
    def probA_(self) -> np.ndarray:  # noqa: N802
        """Slopes A of Platt's 1 / (1 + exp(A f + B)), for each pair of classes."""
        return self._sigmoid[0]

    @property
    def probB_(self) -> np.ndarray:  # noqa: N802
        """Constants B of Platt's 1 / (1 + exp(A f + B)), for each pair of classes."""
        return self._sigmoid[1]

    @property
    def _sigmoid(self) -> np.ndarray:
        """Return A and B, (2, functions), for functions with f > 0 for the first class of a pair.

        With two classes the model may have f > 0 for the second class. Then B changes its sign:
        1 - 1 / (1 + exp(A f + B)) = 1 / (1 + exp(A (-f) - B)).
        """
        check_is_fitted(self)
        found = self.model_.model.sigmoid
        if found is None:
            return np.empty((2, 0))
        A, B = found
        return np.array([A, -B if len(self.classes_) == 2 and self._sign > 0 else B])


@documented(*CLASSIFIER_ATTRIBUTES)
@dataclass(eq=False, repr=False, kw_only=True)
class SVC(KernelClassifier):
    """C-support vector classification with a certified gap.

    It replaces sklearn.svm.SVC. Equal calls give equal models.
    """

    C: float = 1.0

    _task = "svc"

    def _own_options(self, arrays: Arrays) -> dict[str, Any]:
        return {"C": finite_cost(self.C), "weights": self._class_weights(arrays)}


@documented(*CLASSIFIER_ATTRIBUTES)
@dataclass(eq=False, repr=False, kw_only=True)
class NuSVC(KernelClassifier):
    """Nu-support vector classification with a certified gap.

    It replaces sklearn.svm.NuSVC. As in scikit-learn class_weight has no effect. With sample_weight
    nu is a share of the sum of the weights. fit raises ValueError if nu is infeasible (for two
    classes, above twice the share of the smaller one), or if the classes overlap too much for a
    margin.
    """

    nu: float = 0.5

    _task = "nu-svc"
    _single_class_message = "specified nu is infeasible"

    def _own_options(self, arrays: Arrays) -> dict[str, Any]:
        if np.ptp(self.class_weight_):
            warnings.warn(
                "class_weight has no effect on NuSVC, as in scikit-learn: use SVC", stacklevel=3
            )
        return {"nu": self.nu}


# Decision values of pairs of classes, (0, 1), (0, 2) .. (K - 2, K - 1).


def pairs_of_classes(f: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Return decision values for the pairs of classes_, (m, pairs).

    f : (m, pairs), for the pairs of the model's labels. numbers : (K,) index of each in classes_.
    """
    i, j = (numbers[each] for each in class_pairs(len(numbers)))
    ordered = np.empty_like(f)
    columns = pair_index(np.minimum(i, j), np.maximum(i, j), len(numbers))
    ordered[:, columns] = np.where(i < j, f, -f)
    return ordered


def class_values(f: np.ndarray, K: int) -> np.ndarray:
    """Return a value for each class, (m, K): its votes plus a share of a vote that breaks ties.

    f : (m, pairs), > 0 for the first class of a pair. Among classes with equal votes the class with
    the largest sum of decision values has the largest value.
    """
    votes, sums = np.zeros((2, len(f), K))
    for column, i, j in zip(f.T, *class_pairs(K), strict=True):
        votes[:, i] += column >= 0
        votes[:, j] += column < 0
        sums[:, i] += column
        sums[:, j] -= column
    # The added part is within (-1/3, 1/3), so that it only breaks ties.
    return votes + sums / (3 * (np.abs(sums) + 1))
