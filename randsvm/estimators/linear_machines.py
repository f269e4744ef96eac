"""LinearSVC: linear classification by stochastic gradient descent."""

from __future__ import annotations

from typing import Any

import numpy as np

from randsvm import api
from randsvm.estimators.machine import Classifier, one_blas_thread, refuse


class LinearSVC(Classifier):
    """Linear classification by stochastic gradient descent, for many rows and sparse features.

    Close to the optimum and not certified: its steps keep no dual solution whose distance could be
    told, so gap_ is nan. SVC(kernel="linear") is certified, with the hinge loss.

    Parameters as sklearn.svm.LinearSVC has them. loss: hinge, squared_hinge or log. multi_class:
    ovr or crammer_singer (with its own loss). max_iter: passes over the rows; None: as many as
    the commands take. The intercept is not regularised. After fit: coef_, intercept_, classes_,
    n_iter_, n_features_in_, gap_ (nan), model_.
    """

    def __init__(
        self,
        *,
        C: float = 1.0,
        loss: str = "squared_hinge",
        multi_class: str = "ovr",
        class_weight: Any = None,
        max_iter: int | None = None,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.C = C
        self.loss = loss
        self.multi_class = multi_class
        self.class_weight = class_weight
        self.max_iter = max_iter
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: Any, **unsupported: Any) -> LinearSVC:
        """X : (m, d) array, sparse matrix or data frame; y : (m,) labels. Raises ValueError;
        TypeError for weights of single rows."""
        refuse(unsupported)
        X, arrays = self._labelled(X, y)
        several: dict[str, Any] = {}
        if self.multi_class == "crammer_singer" and len(self.classes_) > 2:
            several = {"multiclass": "crammer-singer"}
        elif self.multi_class not in ("ovr", "crammer_singer"):
            raise ValueError(
                f"multi_class must be 'ovr' or 'crammer_singer', got {self.multi_class!r}"
            )
        given = {
            "C": self.C,
            "loss": None if several else self.loss.replace("_", "-"),
            "epochs": self.max_iter,
            "weights": self._weights(arrays),
            **several,
            **self._common(),
        }
        with one_blas_thread():
            fitted = api.train_sgd(arrays, **given)
        self._take(arrays, fitted)
        self.gap_ = fitted.gap
        model: Any = fitted.model
        outcome: Any = fitted.outcome
        self.n_iter_ = max(outcome.steps // X.shape[0], 1)
        self.coef_ = np.zeros((model.w.shape[1], X.shape[1]))
        self.coef_[:, model.features - 1] = model.w.T
        self.intercept_ = model.b.copy()
        if len(self.intercept_) == 1:
            self.coef_, self.intercept_ = self._sign * self.coef_, self._sign * self.intercept_
        else:
            order = np.argsort(self._numbers)
            self.coef_, self.intercept_ = self.coef_[order], self.intercept_[order]
        return self
