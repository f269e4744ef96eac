"""What decision values say of a row: its class, and the probability of each class."""

from __future__ import annotations

import numpy as np

# No class is ever certain or impossible: LIBSVM's bound.
LEAST_PROBABILITY = 1e-7


def predicted_classes(f: np.ndarray) -> np.ndarray:
    """The class index of each row, (m,) int64.

    f : (m,) of two classes, class 0 where f > 0 and else class 1; or (m, classes), the largest.
    """
    return f.argmax(axis=1) if f.ndim == 2 else np.where(f > 0, 0, 1)


def probabilities(f: np.ndarray, sigmoid: np.ndarray) -> np.ndarray:
    """Of each class, (m, classes): Platt's 1 / (1 + exp(A f + B)) of each column of f.

    f : (m,) or (m, classes); sigmoid : A and B, (2, columns of f). Of several classes, one against
    the rest, the sigmoids are normalised (LIBLINEAR's way).
    """
    A, B = sigmoid
    z = A * f.reshape(len(f), -1) + B
    # 1 / (1 + exp(z)) in a form that does not overflow.
    p = np.clip(0.5 - 0.5 * np.tanh(0.5 * z), LEAST_PROBABILITY, 1 - LEAST_PROBABILITY)
    if p.shape[1] == 1:
        return np.hstack([p, 1 - p])
    return p / p.sum(axis=1, keepdims=True)
