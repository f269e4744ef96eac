"""A second opinion on quadratic programs: an interior-point method in plain numpy and float64.

Uses nothing of the modules tested. Says itself how far from the optimum it may be.
"""

from __future__ import annotations

import numpy as np


def objective(K, h, epsilon, beta):
    return float(beta @ (K.astype(np.float64) @ beta) / 2 - h @ beta + epsilon * np.abs(beta).sum())


def lower_bound(K, h, lower, upper, s, x):
    """What no feasible point is below if K is positive semidefinite: the objective's tangent at x
    at its smallest, which fills the coordinates of the smallest slope first."""
    slope = K @ x - h
    left, point = s - lower.sum(), lower.copy()
    for i in np.argsort(slope):
        step = min(upper[i] - lower[i], max(left, 0.0))
        point[i] += step
        left -= step
    return float(x @ (K @ x) / 2 - h @ x + slope @ (point - x))


def doubled(K, h, lower, upper, epsilon):
    """The same without epsilon: beta = a + a*, each with half of the box."""
    zero = np.zeros_like(upper)
    h = np.concatenate([h - epsilon, h + epsilon])
    lower, upper = np.concatenate([zero, lower]), np.concatenate([upper, zero])
    return np.tile(K, (2, 2)), h, lower, upper


def solution(K, h, lower, upper, s, epsilon=0.0):
    """beta next to the optimum, (m,); its sum is s but for rounding."""
    m = len(h)
    if epsilon:
        K, h, lower, upper = doubled(K, h, lower, upper, epsilon)
    if s <= lower.sum() or s >= upper.sum():
        x = lower if s <= lower.sum() else upper
    else:
        x = interior_point(K, h, lower, upper, s)
    return x.reshape(-1, m).sum(axis=0)


def minimum(K, h, lower, upper, s, epsilon=0.0):
    """The smallest objective, and how much smaller it may be in truth."""
    K = K.astype(np.float64)
    if epsilon:
        K, h, lower, upper = doubled(K, h, lower, upper, epsilon)
    if s <= lower.sum() or s >= upper.sum():
        x = lower if s <= lower.sum() else upper
        return float(x @ (K @ x) / 2 - h @ x), 0.0
    x = interior_point(K, h, lower, upper, s)
    best = float(x @ (K @ x) / 2 - h @ x)
    return best, best - lower_bound(K, h, lower, upper, s, x)


@np.errstate(divide="ignore", over="ignore", invalid="ignore")  # what is not finite is left
def interior_point(K, h, lower, upper, s, rounds=200):
    """Primal-dual, in units in which the box is 0 .. 1. Returns a strictly feasible x."""
    width = upper - lower
    P, q = K * width[:, None] * width, width * (K @ lower - h)
    scale = max(np.abs(P).max(), np.abs(q).max())
    P, q = P / scale, q / scale
    ones, total = width / width.max(), (s - lower.sum()) / width.max()
    x = np.full(len(h), total / ones.sum())
    low, high, b = np.ones(len(h)), np.ones(len(h)), 0.0
    for _ in range(rounds):
        if not ((x > 0) & (x < 1)).all():
            break
        mu = (low @ x + high @ (1 - x)) / (2 * len(h))
        target = 0.1 * mu
        D = low / x + high / (1 - x)
        right = -(P @ x + q + b * ones) + target / x - target / (1 - x)
        M = P + np.diag(D)
        try:
            solved = np.linalg.solve(M, np.stack([right, ones], axis=1))
        except np.linalg.LinAlgError:
            break
        db = (ones @ solved[:, 0] - (total - ones @ x)) / (ones @ solved[:, 1])
        dx = solved[:, 0] - db * solved[:, 1]
        dlow = target / x - low - low / x * dx
        dhigh = target / (1 - x) - high + high / (1 - x) * dx
        step = 1.0
        for value, change in ((x, dx), (1 - x, -dx), (low, dlow), (high, dhigh)):
            shrinks = change < 0
            if shrinks.any():
                step = min(step, 0.99 * (value[shrinks] / -change[shrinks]).min())
        if not np.isfinite(step) or not np.isfinite(dx).all():
            break
        x, b = x + step * dx, b + step * db
        low, high = low + step * dlow, high + step * dhigh
        value = abs(x @ (P @ x) / 2 + q @ x)
        if 2 * len(h) * mu <= 1e-11 * value:
            break
    return lower + width * np.clip(x, 0, 1)
