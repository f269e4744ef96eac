"""NuSVC and NuSVR: kernel machines with a share of the rows in place of C or epsilon."""

from __future__ import annotations

from typing import Any

from randsvm.data.in_memory import Arrays
from randsvm.estimators.kernel_machines import KernelClassifier, KernelRegressor


class NuSVC(KernelClassifier):
    """nu-support vector classification with a certified gap; see SVC.

    nu: at most this share of the rows are errors of the margin, and at least this share are support
    vectors. fit raises ValueError where nu is infeasible (above 2 n_small / n for two classes), and
    where classes overlap so much that no margin is left. There is no class_weight.
    """

    _task = "nu-svc"

    def __init__(
        self,
        *,
        nu: float = 0.5,
        kernel: str = "rbf",
        degree: int = 3,
        gamma: float | str = "scale",
        coef0: float = 0.0,
        shrinking: bool = True,
        probability: bool = False,
        tol: float = 1e-3,
        max_iter: int = -1,
        decision_function_shape: str = "ovr",
        random_state: Any = None,
        gap: float | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self.nu = nu
        self.kernel = kernel
        self.degree = degree
        self.gamma = gamma
        self.coef0 = coef0
        self.shrinking = shrinking
        self.probability = probability
        self.tol = tol
        self.max_iter = max_iter
        self.decision_function_shape = decision_function_shape
        self.random_state = random_state
        self.gap = gap
        self.n_jobs = n_jobs

    def _own(self, arrays: Arrays) -> dict[str, Any]:
        return {"nu": self.nu}


class NuSVR(KernelRegressor):
    """nu-support vector regression with a certified gap; see SVR.

    nu: at most this share of the rows lie outside of the tube, whose width follows from it.
    """

    _task = "nu-svr"

    def __init__(
        self,
        *,
        nu: float = 0.5,
        C: float = 1.0,
        kernel: str = "rbf",
        degree: int = 3,
        gamma: float | str = "scale",
        coef0: float = 0.0,
        shrinking: bool = True,
        tol: float = 1e-3,
        max_iter: int = -1,
        random_state: Any = None,
        gap: float | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self.nu = nu
        self.C = C
        self.kernel = kernel
        self.degree = degree
        self.gamma = gamma
        self.coef0 = coef0
        self.shrinking = shrinking
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.gap = gap
        self.n_jobs = n_jobs

    def _own(self) -> dict[str, Any]:
        return {"nu": self.nu, "C": self.C}
