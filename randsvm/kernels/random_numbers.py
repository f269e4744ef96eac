"""Random numbers that are the same everywhere.

Each has an address (seed, purpose, component, feature, group) and is made of the raw Philox bits
there by operations that IEEE 754 rounds exactly: it depends on no other number and on no library's
version. Knows nothing of kernels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

# What numbers are for: a part of the Philox counter. Purpose 0 is that of sampling.Draw.
PHASES, DEGREES, NORMALS, SIGNS = 1, 2, 3, 4


def words_at(seed: int, purpose: int, count: int, feature: int = 0, group: int = 0) -> np.ndarray:
    """The first `count` words at this address, (count,) uint64; asking for more of them does not
    change the first."""
    bits = np.random.Philox(
        key=np.array([seed, feature], np.uint64),
        counter=np.array([0, group, purpose, 0], np.uint64),
    )
    return bits.random_raw(count)


def uniform(seed: int, purpose: int, count: int) -> np.ndarray:
    """One number in [0, 1) for each component, (count,) float64."""
    return (words_at(seed, purpose, count) >> np.uint64(11)) * 2.0**-53


# artanh t = t sum_k ARTANH[k] t^2k; sin t = t sum_k SIN[k] t^2k.
ARTANH = [1 / (2 * k + 1) for k in range(8)]
SIN = [(-1) ** k / math.factorial(2 * k + 1) for k in range(8)]
LN2 = 0.6931471805599453


def _series(x: np.ndarray, coefficients: Sequence[float]) -> np.ndarray:
    """sum_k coefficients[k] x^k by Horner's rule."""
    total = np.full_like(x, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        total *= x
        total += coefficient
    return total


def normals(words: np.ndarray) -> np.ndarray:
    """Two normal numbers of every word. words : (..., n) uint64; returns (..., 2n) float32.

    Box and Muller: sqrt(-2 ln u) (cos v, sin v), with u in (0, 1) of the upper half of a word and
    v in (-pi, pi) of the lower. ln and sin are series, right to 1e-12: the last bits of a
    library's differ from version to version and from one processor to the other.
    """
    # u = 2^-32 mantissa 2^exponent, ln mantissa = 2 artanh t - ln 2 / 2, |t| < 0.172.
    mantissa, exponent = np.frexp((words >> np.uint64(32)) + 0.5)
    t = (mantissa - math.sqrt(0.5)) / (mantissa + math.sqrt(0.5))
    radius = np.sqrt((65 - 2.0 * exponent) * LN2 - 4 * t * _series(t * t, ARTANH))
    # v / 4 is at most pi / 4; twice the double angle leads back to v.
    quarter = ((words & np.uint64(2**32 - 1)) - (2.0**31 - 0.5)) * (math.pi / 2**33)
    sine = quarter * _series(quarter * quarter, SIN)
    sine, cosine = 2 * sine * np.sqrt(1 - sine * sine), 1 - 2 * sine * sine
    out = np.empty((*words.shape, 2), np.float32)
    out[..., 0] = radius * (1 - 2 * sine * sine)
    out[..., 1] = radius * (2 * sine * cosine)
    return out.reshape(*words.shape[:-1], -1)
