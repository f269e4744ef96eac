"""Reduced sets: f of a machine on few of its support vectors, with new coefficients.

Burges, "Simplified Support Vector Decision Rules", ICML 1996; Schoelkopf et al., "Input Space
versus Feature Space in Kernel-Based Methods", IEEE Trans. Neural Networks 10, 1999. The rows are
chosen by matching pursuit, as in Keerthi, Chapelle, DeCoste, "Building Support Vector Machines with
Reduced Classifier Complexity", JMLR 7, 2006, with a pivoted Cholesky factor in blocks of random
rows, as in Chen, Epperly, Tropp, Webber, "Randomly pivoted Cholesky", 2022.

    f = sum_j beta_j K(z_j, .) over S support vectors     f~ = sum_k a_k K(z_k, .) over m of them
    K ~ L L'     q_k: orthonormal functions, q_k(z_j) = L_jk     <f, q_k> = c_k,  L_B c = f(z_B)

|f - f~|^2 = |f|^2 - sum c_k^2. If f is optimal, P(f~) - P(f) is at least half of it. L has a row
for each of T candidates z_j, which are all support vectors or a random sample of them. f, and so
c, is that of all support vectors in either case.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import scipy

from randsvm.data.sampling import Draws
from randsvm.svm.basis import SmoothedObjective

# scipy.linalg is written in full: scipy imports it at its first use, which takes 30 ms.

# The number of rows that are chosen at once is 1 / BLOCKS of the basis so far, but at least
# MIN_BLOCK and at most BLOCK.
BLOCK, MIN_BLOCK, BLOCKS = 25, 2, 16
# Candidates for each row of a block, from which matching pursuit takes the best.
CANDIDATES = 8
# Rows whose squared distance from the span of the basis is below this part of K(x, x) are in the
# span. Only the rounding of r = f - f~ would choose them, and their coefficients would cancel.
# Measured on 8,647 support vectors of checkerboard: 200 rows leave |f - f~|^2 = 20 (26 with 1e-8,
# 94 with 1e-10); if u has errors of 0.001, they leave 45 (900 with 1e-8).
IN_SPAN = 1e-5
# Widths of the smoothed hinge, in units of the margin, and the most Newton steps for each.
WIDTHS, MAX_STEPS = (0.3, 0.1, 0.05, 0.02), 6
# The next width follows if the next Newton step promises to lower P by less than this part of P.
SMALL_STEP = 1e-6


@dataclass(frozen=True)
class ReducedSet:
    """A basis. rows : (m,) positions of its rows, in order of choice; L : (m, m) lower triangular;
    c : (m,); errors : (m + 1,) |f - f~|^2 of the first 0 to m rows."""

    rows: np.ndarray
    L: np.ndarray
    c: np.ndarray
    errors: np.ndarray

    def first(self, m: int) -> ReducedSet:
        """Return the basis of the first m rows."""
        return ReducedSet(self.rows[:m], self.L[:m, :m], self.c[:m], self.errors[: m + 1])

    @property
    def coefficients(self) -> np.ndarray:
        """The coefficients a of the projection of f, (m,)."""
        return scipy.linalg.solve_triangular(self.L, self.c, lower=True, trans="T")


class BasisCandidates(Protocol):
    """The T support vectors from which a basis is chosen.

    diagonal : (T,) K(z, z); f : (T,) f without b; rounded values of f are precise enough here
    """

    diagonal: np.ndarray
    f: np.ndarray

    def gram(self, B: np.ndarray) -> np.ndarray:
        """Return the kernel values of some candidates, (k, k)."""

    def columns(self, B: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the kernel values of all candidates with those in B, (T, k), and f of B, (k,)."""


# fmt: off
def choose(z: BasisCandidates, norm: float, size: int, draws: Draws) -> ReducedSet:
    """Choose up to `size` of the candidates z. norm: |f|^2."""
    r, d, least = z.f.copy(), z.diagonal.copy(), IN_SPAN * z.diagonal  # r = f - f~, d = K - L L'
    L, rows, c = np.empty((len(r), size), order="F"), np.empty(0, np.int64), np.empty(0)
    while (m := len(rows)) < size:
        score = gains(r, d, least)
        k = min(size - m, max(MIN_BLOCK, min(BLOCK, m // BLOCKS)))
        B = draw(score, CANDIDATES * k, draws)               # |f - f~|^2 falls by r^2/d for one row
        B = B[pursue(z.gram(B) - L[B, :m] @ L[B, :m].T, r[B], k, least[B])]
        if not len(B):
            break
        G, f = z.columns(B)
        G -= L[:, :m] @ L[B, :m].T                           # K less what the basis explains
        factor = scipy.linalg.cholesky(G[B], lower=True)
        G = scipy.linalg.solve_triangular(factor, G.T, lower=True).T
        L[:, m : m + len(B)], rows = G, np.concatenate([rows, B])
        f -= L[B, :m] @ c
        c = np.concatenate([c, scipy.linalg.solve_triangular(factor, f, lower=True)])
        r -= G @ c[m:]
        d -= np.einsum("ij,ij->i", G, G)
        d[B] = 0.0
    errors = norm - np.concatenate([[0.0], np.cumsum(c**2)])
    return ReducedSet(rows, np.tril(L[rows, : len(rows)]), c, np.maximum(errors, 0.0))


def pursue(G: np.ndarray, r: np.ndarray, k: int, least: np.ndarray) -> list[int]:
    """Return up to k positions by matching pursuit: each lowers |f - f~|^2 the most.

    G : (q, q) kernel values less what the basis explains; r : (q,) f - f~; least : (q,), a row with
    a G_ii of at most this is in the span of the basis.
    """
    chosen, d, Q = list[int](), G.diagonal().copy(), np.zeros((len(G), k))
    for t in range(min(k, len(G))):
        gain = gains(r, d, least)
        i = int(np.argmax(gain))
        if not gain[i] > 0:
            break
        Q[:, t] = (G[:, i] - Q[:, :t] @ Q[i, :t]) / np.sqrt(d[i])
        r, d = r - Q[:, t] * (r[i] / np.sqrt(d[i])), d - Q[:, t] ** 2
        d[i] = 0.0
        chosen.append(i)
    return chosen


def gains(r: np.ndarray, d: np.ndarray, least: np.ndarray) -> np.ndarray:
    """Return by how much each row lowers |f - f~|^2, 0 where d <= least; all (q,) float64."""
    return np.divide(r**2, d, out=np.zeros(len(d)), where=d > least)


def draw(score: np.ndarray, k: int, draws: Draws) -> np.ndarray:
    """Return up to k positions, drawn without replacement in proportion to their scores."""
    uniform = (draws.next().keys(0, len(score)) + 0.5) / 2.0**64
    with np.errstate(divide="ignore", over="ignore"):
        times = -np.log(uniform) / score                     # the first k of exponential clocks
    first = np.argsort(times, kind="stable")[:k]
    return first[np.isfinite(times[first])]


def minimise(
    P: Callable[[np.ndarray, float, float], SmoothedObjective],
    L: np.ndarray, a: np.ndarray, b: float, unit: float,
) -> tuple[np.ndarray, float]:
    """Return coefficients and b with a lower P, by Newton's method on smoothed losses.

    P: returns the objective of (a, b) with the losses smoothed over a width. unit: of the widths.
    """
    x, best = np.append(L.T @ a, b), (np.inf, a, b)          # |w|^2 = v'v, x = (v, b)
    for width in WIDTHS:
        step, part, last = np.zeros_like(x), 1.0, np.inf
        for _ in range(MAX_STEPS):
            v, b = (x + part * step)[:-1], float((x + part * step)[-1])
            a = scipy.linalg.solve_triangular(L, v, lower=True, trans="T")
            found = P(a, b, width * unit)
            best = min(best, (found.exact, a, b), key=lambda one: one[0])
            value = found.value + float(v @ v) / 2
            if value > last:                                 # the step is too long
                part /= 4
                continue
            x, part, last = x + part * step, 1.0, value
            gradient, H = found.gradient.copy(), found.hessian.copy()
            gradient[:-1] = scipy.linalg.solve_triangular(L, gradient[:-1], lower=True) + v
            H[:-1] = scipy.linalg.solve_triangular(L, H[:-1], lower=True)
            H[:, :-1] = scipy.linalg.solve_triangular(L, H[:, :-1].T, lower=True).T
            H.flat[:: len(x) + 1] += np.append(np.ones(len(v)), 1e-9 * (1 + H[-1, -1]))
            step = newton_step(H, gradient)
            if -gradient @ step < SMALL_STEP * abs(value):
                break
    return best[1:]
# fmt: on


def newton_step(H: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    """Return -H^-1 gradient, (m + 1,).

    The part of H by v has eigenvalues of 1 or more. If the basis is nearly dependent, rounding may
    leave some of H below 0; then those below 1 count as 1, which shortens the step.
    """
    try:
        return -scipy.linalg.cho_solve(scipy.linalg.cho_factor(H), gradient)
    except np.linalg.LinAlgError:
        values, Q = scipy.linalg.eigh(H)
        return -Q @ (Q.T @ gradient / np.maximum(values, 1.0))
