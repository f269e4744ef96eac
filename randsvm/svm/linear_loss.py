"""Solutions of linear machines, the losses of rows, and the pass over all rows that computes P."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from randsvm.arrays import Matrix
from randsvm.data.dataset import Chunk, Dataset
from randsvm.data.shard_executor import Shard
from randsvm.events import Progress, emit
from randsvm.parameters.sgd import CRAMMER_SINGER, L1_LOSSES, LOSS_NAMES, OUTSIDE
from randsvm.records import record

# Relative difference of two sums of the same products in different orders.
ROUNDING = 1e-9


@record
class MarginLoss:
    """A loss of linear models.

    solver: LIBLINEAR's name of a solver with this loss, for the model file
    of: returns the loss of z = y f elementwise, (m, K) float64
    margin: rows with z below it violate
    """

    solver: str
    of: Callable[[np.ndarray], np.ndarray]
    margin: float = 1.0


LOSSES = {
    "hinge": MarginLoss("L2R_L1LOSS_SVC_DUAL", lambda z: (1.0 - z).clip(0.0)),
    "squared-hinge": MarginLoss("L2R_L2LOSS_SVC", lambda z: (1.0 - z).clip(0.0) ** 2),
    "log": MarginLoss("L2R_LR", lambda z: np.logaddexp(0.0, -z)),
    OUTSIDE: MarginLoss("L2R_L1LOSS_SVC_DUAL", lambda z: (-z).clip(0.0), margin=0.0),
}
# LIBLINEAR's solvers of a regression by its loss.
SOLVER_OF_REGRESSION_LOSS = {"hinge": "L2R_L1LOSS_SVR_DUAL", "squared-hinge": "L2R_L2LOSS_SVR"}


def l1_solver(solver: str) -> str:
    """Return LIBLINEAR's name of the solver with the same loss and an L1 penalty."""
    return solver.replace("L2R", "L1R")


# The loss of each solver of LIBLINEAR, but for CRAMMER_SINGER: the first one that names it.
LOSS_OF_SOLVER = {
    **{LOSSES[name].solver: name for name in reversed(LOSS_NAMES)},
    **{l1_solver(LOSSES[name].solver): name for name in L1_LOSSES},
    **{solver: loss for loss, solver in SOLVER_OF_REGRESSION_LOSS.items()},
}


class Linear(NamedTuple):
    """f(x) = <w, x> + b, one column for each decision value.

    w : (d, K) float64; b : (K,) float64. With K = 1, f > 0 predicts class 0; otherwise the largest
    f predicts the class.
    """

    w: np.ndarray
    b: np.ndarray

    def decision(self, X: Matrix) -> np.ndarray:
        """Return f of each row, (m, K) float64. X : (m, d)."""
        return X @ self.w + self.b


class LinearFindings(NamedTuple):
    """Sums over rows for a linear solution.

    weight: the sum of their weights, or their number. loss: sum of the losses, each times the
    weights of its row and its class. violators: number of rows inside the margin (y f < 1; for
    novelty detection f < 0) or outside the tube of a regression. wrong: weight of the rows whose
    predicted class is wrong, or the weighted sum of squared errors.
    """

    weight: float
    loss: float
    violators: float
    wrong: float


@dataclass(frozen=True, kw_only=True)
class LinearObjective:
    """The losses whose weighted sum, times C, is added to 1/2 |w|^2 or |w|_1.

    weights : (classes,) float64, the weight of the losses of each class; of a regression (1,)
    loss: the name of a loss of z = y f; in a regression "hinge" or "squared-hinge" for the distance
    of y from the tube, or its square
    crammer_singer: whether z is f[class] - max of the others; otherwise each decision function has
    a loss, with y = 1 for its class
    epsilon: half width of a regression's tube; None: classes, whose numbers are y
    l1: whether |w|_1, the sum of the sizes of the weights, takes the place of 1/2 |w|^2
    origin: 0 except in novelty detection. Loss OUTSIDE: the nu of the term nu b. Other losses: the
    weight of a row of zeros with y = -1, for each unit of the rows' weight
    """

    weights: np.ndarray
    loss: str = "hinge"
    crammer_singer: bool = False
    epsilon: float | None = None
    l1: bool = False
    origin: float = 0.0

    @property
    def solver(self) -> str:
        """The name of the LIBLINEAR solver in a model."""
        if self.is_regression:
            return SOLVER_OF_REGRESSION_LOSS[self.loss]
        solver = CRAMMER_SINGER if self.crammer_singer else LOSSES[self.loss].solver
        return l1_solver(solver) if self.l1 else solver

    @property
    def is_regression(self) -> bool:
        return self.epsilon is not None

    @property
    def is_squared(self) -> bool:
        """Whether the loss is the square of a hinge."""
        return self.loss == "squared-hinge"

    @property
    def share(self) -> float | None:
        """The share of the rows' weight that novelty detection leaves outside; None: any."""
        return self.origin if self.loss == OUTSIDE else None

    def penalty(self, w: np.ndarray) -> np.ndarray:
        """Return 1/2 |w|^2 or |w|_1 of each decision function, (K,). w : (d, K)"""
        return np.abs(w).sum(axis=0) if self.l1 else np.square(w).sum(axis=0) / 2

    def losses(self, y: np.ndarray, f: np.ndarray) -> np.ndarray:
        """Return the losses of rows with y = 1 or -1, or with targets y, elementwise."""
        if self.epsilon is None:
            return LOSSES[self.loss].of(y * f)
        # As 1 - z, a distance from the tube would have an absolute error of 1e-16.
        outside = np.maximum(np.abs(y - f) - self.epsilon, 0.0)
        return outside**2 if self.is_squared else outside

    def gains(self, y: np.ndarray, beta: np.ndarray, C: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return the terms of D but for |w|^2: y beta - epsilon |beta|, or C times the entropy of
        |beta| / C of the logistic loss; and what a squared loss subtracts; both (m,).

        beta : (m,); C : (m,), of each row
        """
        size = np.abs(beta)
        if self.loss == "log":
            p = np.minimum(size / C, 1.0)
            with np.errstate(divide="ignore", invalid="ignore"):
                logs = size * np.log(p), np.maximum(C - size, 0.0) * np.log1p(-p)
            # 0 log 0 is 0. Where p underflows, a coefficient is too small to count.
            return -np.nan_to_num(logs, neginf=0.0).sum(axis=0), np.zeros(len(y))
        # size * size may underflow where C is small.
        penalty = size * (size / (4 * C)) if self.is_squared else np.zeros(len(y))
        return y * beta - (self.epsilon or 0.0) * size, penalty

    def of(self, chunk: Chunk, f: np.ndarray) -> np.ndarray:
        """Return the LinearFindings of some rows, (4,) float64. f : (m, K) float64, their decision
        values.

        With K = 1, f > 0 predicts class 0; otherwise the largest f predicts the class.
        """
        y, weights = chunk.y, weights_of(chunk)
        if self.is_regression:
            loss, wrong = self.losses(y, f[:, 0]), (y - f[:, 0]) ** 2
            violating = loss > 0
        else:
            classes = y.astype(np.int64)
            own = np.arange(f.shape[1]) == classes[:, None]
            z = np.where(own, f, -f)
            if self.crammer_singer:
                # f of the row's own class less the largest f of another one.
                z = f[own, None] - np.where(own, -np.inf, f).max(axis=1, keepdims=True)
            predicted = f.argmax(axis=1) if f.shape[1] > 1 else f[:, 0] <= 0
            wrong = predicted != classes
            loss = self.weights[classes] * self.losses(np.ones(1), z).sum(axis=1)
            violating = np.asarray((z < LOSSES[self.loss].margin).any(axis=1))
        losses, mistakes = (weights * loss).sum(), (weights * wrong).sum()
        return np.array([weights.sum(), losses, violating.sum(), mistakes])

    def total(self, found: LinearFindings, linear: Linear) -> float:
        """Return the sum of losses, including that of the origin."""
        if not self.origin:
            return found.loss
        b = linear.b[:1]
        at_origin = float(b[0] if self.share is not None else LOSSES[self.loss].of(-b)[0])
        return found.loss + found.weight * self.origin * at_origin

    def binary(
        self, y: np.ndarray, weights: np.ndarray | None, k: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return y of rows for decision function k, and the weights of their losses, both (m,).

        y is 1 for class k and -1 for the others; in a regression it is the target. weights : (m,),
        or None if all are 1.
        """
        own = np.ones(len(y)) if weights is None else weights
        if self.is_regression:
            return y, own
        classes = y.astype(np.int64)
        return np.where(classes == k, 1.0, -1.0), self.weights[classes] * own


def evaluate_linear(D: Dataset, linear: Linear, objective: LinearObjective) -> LinearFindings:
    """Return loss, violators and errors of all rows of D: P = 1/2 |w|^2 + C loss."""

    def sums(shard: Shard) -> np.ndarray:
        parts = (objective.of(one, linear.decision(one.X)) for one in D.chunks(shard))
        return sum(parts, np.zeros(4))

    total = np.zeros(4)
    for shard, part in zip(D.shards, D.map(sums), strict=True):
        total += part
        emit(Progress("scanning", shard.stop, D.n))
    return LinearFindings(*total.tolist())


def weights_of(chunk: Chunk) -> np.ndarray:
    """Return the weights of rows, (m,) float64."""
    return np.ones(len(chunk.y)) if chunk.weights is None else chunk.weights


def with_share_outside(D: Dataset, linear: Linear, share: float) -> Linear:
    """Return the solution with the b for which at most this share of the weight of D has f <= 0.

    This b minimises P with the term share * b (K = 1). Holds u = <w, x> and the weights of all
    rows, 16 bytes each.
    """

    def decisions(shard: Shard) -> list[tuple[np.ndarray, np.ndarray]]:
        return [(chunk.X @ linear.w[:, 0], weights_of(chunk)) for chunk in D.chunks(shard)]

    parts = [part for found in D.map(decisions) for part in found]
    u, weights = (np.concatenate(each) for each in zip(*parts, strict=True))
    order = np.argsort(u, kind="stable")
    u, sums = u[order], np.cumsum(weights[order])
    count = int(np.searchsorted(sums, share * sums[-1], side="right"))
    if count < len(u):
        # Rows with equal u are on the same side.
        count = int(np.searchsorted(u, u[count]))
    # b lies between the last row outside and the first one inside, so that neither has f = 0. If
    # all rows are on one side, it differs from the nearest by more than the rounding of sums.
    first, last = u[[0, -1]]
    edges = np.concatenate([[first - _slightly(first)], u, [last + _slightly(last)]])
    return Linear(linear.w, -edges[count : count + 2].mean(keepdims=True))


def _slightly(u: float) -> float:
    """Return a difference from u that is above the rounding of its sum."""
    return ROUNDING * abs(u) or float(np.finfo(float).tiny)
