"""A plain Python reference of randsvm/algorithms/_sgd.pyx: w and its mean are stored in full."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import oracle

LOSSES: dict[str, Callable[[Any], Any]] = {
    **oracle.LINEAR_LOSSES,
    "outside": lambda z: np.maximum(0, -z),
}
# dL/dz.
SLOPES: dict[str, Callable[[float], float]] = {
    "hinge": lambda z: -1.0 if z < 1 else 0.0,
    "squared-hinge": lambda z: -2 * max(0.0, 1 - z),
    "log": lambda z: -1 / (1 + math.exp(z)),
    "outside": lambda z: -1.0 if z <= 0 else 0.0,
}


class Plain:
    """w (d, K), b (K,); all iterates are kept, so that the mean is computed directly."""

    def __init__(self, d: int, classes: int, steps: Any) -> None:
        K = 1 if classes <= 2 and not steps.crammer_singer else classes
        self.w, self.b = np.zeros((d, K)), np.zeros(K)
        self.steps, self.t = steps, 0
        self.iterates: list[tuple[np.ndarray, np.ndarray]] = []
        self.losses, self.errors = 0.0, 0

    def rate(self) -> float:
        steps = self.steps
        if steps.fixed_rate:
            return steps.fixed_rate
        eta = steps.eta0 / (1 + steps.lambda_ * steps.eta0 * self.t)
        return eta * max(0.0, 1 - self.t / steps.horizon) if steps.horizon else eta

    def bias_rate(self) -> float:
        """Return the ratio of the steps of b to those of the weights."""
        steps = self.steps
        if steps.fixed_rate:
            return steps.bias_rate
        own, theirs = (
            1 + rate * steps.eta0 * self.t for rate in (steps.bias_lambda, steps.lambda_)
        )
        return steps.bias_rate * theirs / own

    def learn(self, x: np.ndarray, label: Any) -> None:
        """label: the class number, or a regression's y."""
        steps, f = self.steps, x @ self.w + self.b
        K, weight = len(f), steps.weights[0 if steps.epsilon is not None else label]
        self.t += 1
        eta = self.rate()
        gradient = np.zeros(K)
        if steps.epsilon is not None:
            return self.move(x, eta, self.tube(label - f[0]) / self.held_back(x, eta))
        if steps.crammer_singer:
            rival = max((k for k in range(K) if k != label), key=lambda k: f[k])
            z = f[label] - f[rival]
            self.losses += weight * LOSSES["hinge"](z)
            gradient[label] += weight * SLOPES["hinge"](z)
            gradient[rival] -= weight * SLOPES["hinge"](z)
        else:
            signs = [1 if label == k else -1 for k in range(K)]
            self.losses += weight * sum(
                LOSSES[steps.loss](s * g) for s, g in zip(signs, f, strict=True)
            )
            gradient = np.array(
                [weight * s * SLOPES[steps.loss](s * g) for s, g in zip(signs, f, strict=True)]
            ) / self.held_back(x, eta * weight)
        said = int(f.argmax()) if K > 1 else int(f[0] <= 0)
        self.errors += said != label
        return self.move(x, eta, gradient)

    def held_back(self, x: np.ndarray, eta: float) -> float:
        """Return the divisor of the slope for an implicit step on the squared hinge, else 1.

        The step solves g = L'(z - eta g q) for the slope g; q = |x|^2 + bias rate is the change of
        f for a unit step.
        """
        if self.steps.loss != "squared-hinge":
            return 1.0
        return 1 + 2 * eta * (np.dot(x, x) + self.bias_rate())

    def tube(self, z: float) -> np.ndarray:
        """Return dL/df of L = max(0, |z| - epsilon), or of its square, z = y - f."""
        distance = max(0.0, abs(z) - self.steps.epsilon)
        if self.steps.loss == "squared-hinge":
            self.losses += distance**2
            return np.array([-2 * np.sign(z) * distance])
        self.losses += distance
        return np.array([-np.sign(z) * (distance > 0)])

    def move(self, x: np.ndarray, eta: float, gradient: np.ndarray) -> None:
        """Take a step, and for novelty detection one for the origin, a row of zeros with y = -1.

        gradient: dL/df.
        """
        steps = self.steps
        self.w = self.w * (1 - eta * steps.lambda_) - eta * np.outer(x, gradient)
        self.b = self.b - eta * self.bias_rate() * gradient
        if steps.loss == "outside":
            self.losses += steps.origin * self.b[0]
            self.b = self.b - eta * self.bias_rate() * steps.origin
        elif steps.origin:
            z = -self.b[0]
            self.losses += steps.origin * LOSSES[steps.loss](z)
            step = (
                steps.origin
                * SLOPES[steps.loss](z)
                / self.held_back(np.zeros(1), eta * steps.origin)
            )
            self.b = self.b + eta * self.bias_rate() * step
        self.iterates.append((self.w, self.b))

    def mean(self) -> list[np.ndarray]:
        return [np.mean([iterate[i] for iterate in self.iterates], axis=0) for i in (0, 1)]
