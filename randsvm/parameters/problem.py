"""Problem: what is solved, with every open value filled in. All that svm/ and algorithms/ know."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """One machine with one decision function, over the rows of one D.

    bounds: of |beta| where beta > 0 and where it is < 0 (C of the class y = +1 and of the class
    y = -1; 1 for one-class and nu-SVC, LIBSVM's scale). epsilon: half
    width of the tube of an epsilon-SVR. total: sum beta of every solution, nu n for one-class and
    else 0. size: sum |beta| of nu-SVC and nu-SVR, else 0. tolerance: of the KKT conditions.
    kernel_cache: size of LIBSVM's, in MB; changes no result, only the time. doubtful: whether a
    precomputed kernel may not be positive semidefinite.
    """

    task: str
    kernel: str
    degree: int
    gamma: float
    coef0: float
    bounds: tuple[float, float]
    epsilon: float
    total: float
    tolerance: float
    shrinking: bool
    kernel_cache: float = 100.0
    size: float = 0.0
    doubtful: bool = False

    @property
    def kind(self) -> str:
        """svc, svr or one-class: what is predicted."""
        return kind_of(self.task)

    @property
    def positive_semidefinite(self) -> bool:
        """Whether the kernel is: only then D <= optimum <= P holds."""
        return not self.doubtful and positive_semidefinite(self.kernel, self.coef0)


def kind_of(task: str) -> str:
    """What a task predicts, however the machine is parametrised: classes, numbers or novelties."""
    return task.removeprefix("nu-")


def positive_semidefinite(kernel: str, coef0: float) -> bool:
    """Whether a kernel is, or, of a precomputed one, may be: nobody knows before it is read."""
    definite = kernel in ("linear", "rbf", "precomputed")
    return definite or (kernel == "poly" and coef0 >= 0)
