"""Random quadratic subproblems, and the check of their solutions."""

from __future__ import annotations

import numpy as np
from qp import objective

# Bounds C of the coefficients.
BOUNDS = (1e-3, 0.3, 1.0, 30.0, 1e4)


def kernel_matrix(rng: np.random.Generator, m: int, name: str) -> np.ndarray:
    """Return K : (m, m) float32, positive semidefinite in float32; about every fifth row is a
    duplicate.

    For the linear kernel the rows have few digits.
    """
    X = np.round(rng.normal(size=(m, 4)) * 4) / 4
    twice = rng.random(m) < 0.2
    X[twice] = X[rng.integers(0, m, twice.sum())]
    squares = (X**2).sum(axis=1)
    if name == "linear":
        return (X @ X.T).astype(np.float32)
    distances = np.maximum(0, squares[:, None] + squares - 2 * X @ X.T)
    return np.exp(-2.0 * distances).astype(np.float32)


def frozen_gradient(rng: np.random.Generator, m: int, C: float) -> np.ndarray:
    """Return the gradient of frozen coefficients, of the size of a few kernel values times C."""
    return rng.normal(size=m) * rng.choice([0.0, 1.0, 3 * C])


def random_start(rng: np.random.Generator, lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """Return a start with coefficients at both bounds and between them; its sum is arbitrary."""
    share = rng.choice([0.1, 0.5, 0.95])
    height = np.where(rng.random(len(lower)) < share, 1.0, 0.0)
    free = rng.random(len(lower)) < rng.choice([0.0, 0.3, 1.0])
    height[free] = rng.random(free.sum())
    return np.where(height == 1, upper, lower + height * (upper - lower))


def random_size(rng: np.random.Generator) -> int:
    return int(rng.choice([2, 3, 5, 17, 40, 60]))


def assert_near_minimum(
    reference: tuple[float, float],
    K: np.ndarray,
    h: np.ndarray,
    epsilon: float,
    beta: np.ndarray,
    accuracy: float,
) -> float:
    """Check the objective of beta; return its relative distance from the minimum.

    reference : the smallest objective found by qp.py, and how far above the minimum it may be
    """
    best, doubt = reference
    value = objective(K, h, epsilon, beta)
    # If the minimum is near 0, errors are relative to the terms of its sum.
    terms = np.abs(h) @ np.abs(beta) + np.abs(beta) @ np.abs(K) @ np.abs(beta) / 2
    scale = max(abs(best), 1e-3 * terms, 1e-12)
    assert doubt <= 0.3 * accuracy * scale, "the oracle is not accurate enough"
    assert abs(value - best) <= accuracy * scale
    return float(abs(value - best) / scale)
