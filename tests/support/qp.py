"""An interior-point method for quadratic programs in plain numpy and float64, as a reference.

Uses nothing of the modules tested. Says itself how far from the optimum it may be.
"""

import numpy as np


def objective(K: np.ndarray, h: np.ndarray, epsilon: float, beta: np.ndarray) -> float:
    return float(beta @ (K.astype(np.float64) @ beta) / 2 - h @ beta + epsilon * np.abs(beta).sum())


def lower_bound(
    K: np.ndarray, h: np.ndarray, lower: np.ndarray, upper: np.ndarray, s: float, x: np.ndarray
) -> float:
    """Return a lower bound of the objective if K is positive semidefinite: the smallest value of
    its tangent at x over the feasible points. The smallest slopes are filled first."""
    slope = K @ x - h
    left, point = s - lower.sum(), lower.copy()
    for i in np.argsort(slope):
        step = min(upper[i] - lower[i], max(left, 0.0))
        point[i] += step
        left -= step
    return float(x @ (K @ x) / 2 - h @ x + slope @ (point - x))


def doubled(
    K: np.ndarray, h: np.ndarray, lower: np.ndarray, upper: np.ndarray, epsilon: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the problem without epsilon: beta = a + a*, each with half of the box."""
    zero = np.zeros_like(upper)
    h = np.concatenate([h - epsilon, h + epsilon])
    lower, upper = np.concatenate([zero, lower]), np.concatenate([upper, zero])
    return np.tile(K, (2, 2)), h, lower, upper


def solution(
    K: np.ndarray,
    h: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    s: float,
    epsilon: float = 0.0,
) -> np.ndarray:
    """Return beta near the optimum, (m,); its sum is s except for rounding."""
    m = len(h)
    if epsilon:
        K, h, lower, upper = doubled(K, h, lower, upper, epsilon)
    if s <= lower.sum() or s >= upper.sum():
        x = lower if s <= lower.sum() else upper
    else:
        x = interior_point(K, h, lower, upper, s)
    return x.reshape(-1, m).sum(axis=0)


def minimum(
    K: np.ndarray,
    h: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    s: float,
    epsilon: float = 0.0,
) -> tuple[float, float]:
    """Return the smallest objective found, and how far above the minimum it may be."""
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
def interior_point(
    K: np.ndarray,
    h: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    s: float | np.ndarray,
    groups: np.ndarray | None = None,
    rounds: int = 200,
) -> np.ndarray:
    """Return a strictly feasible x near the optimum, by a primal-dual method on the box 0 .. 1.

    groups : (k, m) bool; s has the sum of each group. None: one group of all.
    """
    groups = np.ones((1, len(h)), bool) if groups is None else groups
    width = upper - lower
    P, q = K * width[:, None] * width, width * (K @ lower - h)
    scale = max(np.abs(P).max(), np.abs(q).max())
    P, q = P / scale, q / scale
    A, total = groups * width / width.max(), (s - groups @ lower) / width.max()
    x = (total / A.sum(axis=1)) @ groups
    low, high, b = np.ones(len(h)), np.ones(len(h)), np.zeros(len(A))
    for _ in range(rounds):
        if not ((x > 0) & (x < 1)).all():
            break
        mu = (low @ x + high @ (1 - x)) / (2 * len(h))
        target = 0.1 * mu
        D = low / x + high / (1 - x)
        right = -(P @ x + q + b @ A) + target / x - target / (1 - x)
        M = P + np.diag(D)
        try:
            solved = np.linalg.solve(M, np.column_stack([right, A.T]))
            db = np.linalg.solve(A @ solved[:, 1:], A @ solved[:, 0] - (total - A @ x))
        except np.linalg.LinAlgError:
            break
        dx = solved[:, 0] - solved[:, 1:] @ db
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


def minimum_of_groups(
    K: np.ndarray, h: np.ndarray, lower: np.ndarray, upper: np.ndarray, sums: tuple[float, float]
) -> tuple[float, float]:
    """Return the smallest objective found, and how far above the minimum it may be.

    sums: the sum of the coefficients above 0, and minus the sum of those below 0. A row whose
    bounds have both signs has two coefficients.
    """
    K = K.astype(np.float64)
    if (lower[upper > 0] < 0).any():
        K, h, lower, upper = doubled(K, h, lower, upper, 0.0)
    groups = [(upper > 0, sums[0]), (lower < 0, -sums[1])]
    x = lower.copy()
    loose = np.zeros(len(h), bool)
    for group, s in groups:
        near = 1e-12 * (1 + np.abs(lower[group]).sum() + upper[group].sum())
        if s >= upper[group].sum() - near:
            x[group] = upper[group]
        elif s > lower[group].sum() + near:
            loose |= group
    if loose.any():
        inside = [(group[loose], s) for group, s in groups if (group & loose).any()]
        moved = h - K @ np.where(loose, 0.0, x)
        x[loose] = interior_point(
            K[np.ix_(loose, loose)],
            moved[loose],
            lower[loose],
            upper[loose],
            np.array([s for _, s in inside]),
            np.array([group for group, _ in inside]),
        )
    slope, point = K @ x - h, np.zeros(len(h))
    for group, s in groups:
        left, point[group] = s - lower[group].sum(), lower[group]
        for i in np.flatnonzero(group)[np.argsort(slope[group])]:
            step = min(upper[i] - lower[i], max(left, 0.0))
            point[i] += step
            left -= step
    best = float(x @ (K @ x) / 2 - h @ x)
    return best, -float(slope @ (point - x))
