"""Linear models: f = <w, x> + b, in LIBLINEAR's format."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from randsvm.arrays import to_csr
from randsvm.kernels.random_features import FeatureTransform, RandomMap
from randsvm.models.model import Model, ModelRows

# LIBLINEAR's name of novelty detection.
ONE_CLASS_SOLVER = "ONECLASS_SVM"
# LIBLINEAR's logistic regressions have the probabilities 1/(1 + exp(-f)).
LOGISTIC = ("L2R_LR", "L1R_LR", "L2R_LR_DUAL")
LOGISTIC_SIGMOID = np.array([[-1.0], [0.0]])


@dataclass(frozen=True, kw_only=True)
class LinearModel(Model):
    """A linear model, f(x) = <w, x> + b.

    Parameters
    ----------
    w : array of shape (d, K), float64
        Weights of the features, or of the random features of `mapping`. K is 1 for two classes (2
        with Crammer and Singer's loss), else the number of classes.
    solver : str
        LIBLINEAR's name of the loss.
    mapping : RandomMap, optional
        The random features; None: w are weights of the features of rows.

    Notes
    -----
    Two classes: f > 0 predicts the first label. Several classes: the largest f_c wins.
    """

    w: np.ndarray
    solver: str
    mapping: RandomMap | None = None

    @cached_property
    def _transform(self) -> FeatureTransform | None:
        return None if self.mapping is None else self.mapping.over(self.features)

    @property
    def map_tables(self) -> tuple[np.ndarray, ...]:
        """The random numbers of `mapping`, as `FeatureTransform.tables` returns them."""
        assert self._transform is not None, "the model has a mapping"
        return self._transform.tables

    def _decision(self, rows: ModelRows, labels_only: bool) -> np.ndarray:
        X = rows.X if self._transform is None else self._transform.values(to_csr(rows.X))
        return X @ self.w + self.b

    def properties(self) -> dict[str, Any]:
        task = "svr" if self.is_regression else "one-class" if self.is_one_class else "svc"
        return {
            "format": "liblinear",
            "task": task,
            "solver": self.solver,
            "random_features": None if self.mapping is None else str(self.mapping),
            "weights": len(self.w),
        }

    @property
    def is_one_class(self) -> bool:
        return self.solver == ONE_CLASS_SOLVER or "origin" in self.metadata

    @property
    def sigmoid_in_use(self) -> np.ndarray | None:
        is_logistic = self.sigmoid is None and self.solver in LOGISTIC
        return LOGISTIC_SIGMOID if is_logistic else self.sigmoid
