"""What linear training minimises: whose rows count how much, and the loss of each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from randsvm.data.dataset import Dataset
from randsvm.parameters.sgd import SgdParams
from randsvm.parameters.svm import class_weights
from randsvm.svm.linear import (
    CRAMMER_SINGER,
    LOSSES,
    OUTSIDE,
    Classes,
    Linear,
    LinearFindings,
    Loss,
    Targets,
)


@dataclass(frozen=True)
class Objective:
    """weights : (classes,) float64, how much the rows of each class count; counts: how many they
    are. epsilon: half width of a regression's tube. origin: weight, for each row, of a row of
    zeros with y = -1 (novelty detection); share: of the rows that novelty detection leaves outside,
    with which the origin counts as the term share * b instead."""

    weights: np.ndarray
    loss_function: Loss
    epsilon: float | None = None
    origin: float = 0.0
    share: float | None = None
    counts: tuple[int, ...] = ()

    @staticmethod
    def of(D: Dataset, labels: tuple[str, ...], params: SgdParams) -> Objective:
        """D: a subject's, or a view of it; labels: the subject's. Raises ParameterError for weights
        of labels that the data does not have."""
        if params.task == "svr":
            return Objective(np.ones(1), Targets(params.epsilon), params.epsilon)
        assert params.loss
        if params.has_share:
            # Schoelkopf et al. 2001: nu/2 |w|^2 + nu b + mean max(0, -f).
            assert params.nu
            weights = np.ones(1)
            return Objective(weights, Classes(OUTSIDE, weights), origin=params.nu, share=params.nu)
        if params.task == "one-class":
            # MADlib: every row is positive, the origin the one negative, both sides weigh the same.
            weights = np.array([(D.n + 1) / (2 * D.n)])
            return Objective(weights, Classes(params.loss, weights), origin=float(weights[0]))
        assert D.targets is not None
        counts = tuple(D.summary.counts[i] for i in np.argsort(D.targets))
        weights = np.array(class_weights(params.weights, labels, counts))
        crammer_singer = params.multiclass == "crammer-singer" and len(labels) > 2
        return Objective(weights, Classes(params.loss, weights, crammer_singer), counts=counts)

    @property
    def regression(self) -> bool:
        return self.epsilon is not None

    @property
    def negative_gradient(self) -> float:
        """How many times as far the mean row steps as one of weight 1: a row of weight 100 steps
        100 times as far, and pulls by its own weight."""
        if not self.counts:
            return 1.0
        counts = np.array(self.counts, float)
        return float(counts @ self.weights**2 / (counts @ self.weights))

    @property
    def best_constant(self) -> np.ndarray | None:
        """The b, (K,), that suits the classes where nothing is known of their features: log odds,
        or what the squared hinge is least at, which is also a fair start for the hinge. None: all
        classes alike."""
        if not self.counts or self.loss_function.solver == CRAMMER_SINGER:
            return None
        assert isinstance(self.loss_function, Classes)
        mass = self.weights * self.counts
        p = mass / mass.sum()
        b = np.log(p / (1 - p)) if self.loss_function.loss == "log" else 2 * p - 1
        return b[:1] if len(b) == 2 else b

    def loss(self, found: LinearFindings, linear: Linear) -> float:
        """The sum of losses, the origin's included."""
        if not self.origin:
            return found.loss
        if self.share is not None:
            return found.loss + found.rows * self.share * float(linear.b[0])
        assert isinstance(self.loss_function, Classes)
        at_origin = float(LOSSES[self.loss_function.loss].of(-linear.b[:1])[0])
        return found.loss + found.rows * self.origin * at_origin
