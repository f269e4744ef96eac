"""OneClassSVM: novelty detection with a certified gap."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import OutlierMixin

from randsvm.data.in_memory import Arrays
from randsvm.estimators.documentation import documented
from randsvm.estimators.kernel_machines import REPORT, SOLUTION, KernelMachine
from randsvm.estimators.machine import refuse


@documented(*SOLUTION, "offset_", *REPORT)
@dataclass(eq=False, repr=False, kw_only=True)
class OneClassSVM(OutlierMixin, KernelMachine):
    """Novelty detection with a certified gap.

    A drop-in for sklearn.svm.OneClassSVM, but for sample_weight. Equal calls give equal models.
    """

    nu: float = 0.5

    _task = "one-class"

    def fit(self, X: Any, y: Any = None, **unsupported: Any) -> OneClassSVM:
        """Train; see SVC.fit. y is ignored."""
        refuse(unsupported)
        X = self._rows(X)
        self._fit(X, Arrays(X), nu=self.nu)
        self.offset_ = -self.intercept_
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """f of each row, (m,): > 0 for rows like those of training."""
        return self._decision(X)

    def score_samples(self, X: Any) -> np.ndarray:
        """f without its offset, (m,)."""
        return self.decision_function(X) + self.offset_

    def predict(self, X: Any) -> np.ndarray:
        """1 for rows like those of training, else -1, (m,)."""
        return np.where(self._decision(X, labels_only=True) > 0, 1, -1)
