"""Bounds of the rounding errors of kernel values, of their sums, and of objectives.

Every bound holds for IEEE arithmetic with rounding to nearest. Features, coefficients and
parameters are decimal numbers, to which the float64 numbers in use are the nearest;
docs/certificate.md has the proofs. They follow Higham, Accuracy and Stability of Numerical
Algorithms, chapters 2 to 4: a number that went through k roundings has a relative error of at most
theta_k = k unit / (1 - k unit), here `accumulated(k, unit)`. Higham calls this bound gamma_k.

How to use it, for a machine u(x) = sum_j beta_j K(z_j, x), f = u + b:

1. `sum_error` bounds the error of a computed u: `relative` S + `uniform` B, where
   S = sum_j |beta_j| |K(z_j, x)|, as computed, and B = sum_j |beta_j|. `relative` is 0 but for rbf,
   where S is at most B.
2. `offset_error` adds the rounding of y - u - b. Let E_i be the result for row i.
3. P = 1/2 |w|^2 + sum_i loss_i + ...: the computed |w|^2 = sum_i beta_i u_i is within
   sum_i |beta_i| E_i, and each loss, max(0, upper (z - width), lower (z + width)), rises by at most
   max(upper, -lower) E_i; by nothing if z is further than E_i inside of both kinks.
4. D = sum y beta - epsilon sum |beta| - 1/2 |w|^2: within 1/2 sum_i |beta_i| E_i, and
   `addition_error` of each sum. The coefficients must be within their bounds exactly. What a wrong
   sum of coefficients costs is at most what it misses times the `largest_offset`.

Plain functions of numbers; knows nothing of scans, tasks or models.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from randsvm.arrays import FLOAT32_UNIT, FLOAT64_UNIT
from randsvm.kernels.kernel import LARGEST
from randsvm.kernels.layouts import BLOCK_CENTRES, Layout, RowSizes

# Roundings between a number of a file, or of a model as written, and the float64 number in use.
WRITTEN = 8
# Those of a bound or a sum that a problem prescribes. A sum of weights has 4 with its numbers and
# its classes, and another for each pair; `balanced` divides one by a multiple of another. C, nu and
# the weight of the row are numbers and factors.
PRESCRIBED = 16
# exp of the compiled code and of numpy is within 4 units in the last place, in either precision.
EXP_ERROR = 8
# Values of exp that count as 0, or whose products with coefficients vanish, are smaller than this.
EXP_LOST = {FLOAT32_UNIT: 1e-20, FLOAT64_UNIT: 1e-280}
# The smallest number above 0: a number that underflows errs by at most half of it.
SMALLEST = {FLOAT32_UNIT: 2.0**-149, FLOAT64_UNIT: 2.0**-1074}
# The bounds themselves are computed with rounding, from sums S that are computed with rounding.
SPARE = 1.01


def accumulated(roundings: Any, unit: float = FLOAT64_UNIT) -> Any:
    """Return theta_k, the largest relative error after k roundings; inf if it has no bound."""
    error = np.minimum(roundings * unit, 0.5)
    return np.where(error < 0.5, error / (1 - error), math.inf)[()]


def grown(error: Any) -> Any:
    """Return the largest relative error of e^x where x errs by `error`; inf above 1."""
    return np.where(error < 1, np.expm1(np.minimum(error, 1.0)), math.inf)[()]


class SumError(NamedTuple):
    """The error of u is at most relative S + uniform B + other; see the module.

    They may be arrays, of rows. other: the error of a sum that u began with, and what underflows
    """

    relative: Any
    uniform: Any
    other: Any = 0.0

    def of(self, size: Any, total: Any) -> Any:
        """Return the bound of one row or of several. size: S; total: B."""
        with np.errstate(invalid="ignore"):
            bound = self.relative * size + self.uniform * total + self.other
        # An infinite part of nothing has no bound.
        return np.where(np.isnan(bound), math.inf, bound)[()]


def sum_error(
    layout: Layout,
    sizes: RowSizes,
    centres: int,
    *,
    sums: int = 2,
    passes: int = 0,
    rescaling: float = 0.0,
    other: float = 0.0,
) -> SumError:
    """Return the bound of the error of sums of kernel values in a layout.

    sizes: of rows and centres, or of each row with any centre. centres: the number of kernel values
    in a sum. sums: the number of sums over the same kernel values. passes: over how many passes the
    values are distributed, each of which adds a sum to u. rescaling: the part by which all
    coefficients change afterwards. other: see SumError.
    """
    if not centres:
        return SumError(0.0, 0.0, other)
    kernel, (norm, terms, length, moved) = layout.kernel, sizes
    later = accumulated(3 * passes) + rescaling
    # <x, z> of rows that moved changes by 2 moved sqrt(norm) at most, here as a part of norm.
    of_rows = 2 * moved / np.sqrt(norm) if moved else 0.0
    if kernel.linear:
        most = accumulated(centres + terms + 3 + WRITTEN) + of_rows + later
        return SumError(0.0, SPARE * most * norm, other)
    unit = FLOAT32_UNIT if layout.dtype is np.float32 else FLOAT64_UNIT
    adding = accumulated(layout.additions(centres, sums) + 3, unit) + later
    adding += accumulated(centres // BLOCK_CENTRES + 2 + WRITTEN)
    # A coefficient, and its product with a kernel value, may underflow.
    vanished = 4 * centres * SMALLEST[unit]
    # A product goes through its own rounding, that of both factors, of scale, and `terms` + 2
    # additions; float64 norms through as many of their own, and those of features and of
    # gamma log2(e). If products are added one after another, and norms after them, no partial sum
    # of products is above half of (|x| + |z|)^2.
    adds = terms / 2 if layout.adds_norms_last else terms
    products = accumulated(adds + 8, unit) + accumulated(terms + 6 + WRITTEN)
    if kernel.name == "rbf":
        exponent, differences = layout.exponents(norm, terms)
        # The slope of e^(-gamma r^2) is at most sqrt(2 gamma / e).
        distance = 2 * (FLOAT64_UNIT * length + moved)
        written = min(1.0, math.sqrt(2 * kernel.gamma / math.e) * distance)
        if kernel.rate == LARGEST:
            # It is below gamma log2(e), so a value may be anything from 0 to 1.
            written = 1.0
        lost = EXP_LOST[unit] + layout.left_out + written
        if np.any(differences):
            # |e^-a(1+t) - e^-a| <= |t| a e^-a / (1 - |t|) <= |t| / e / (1 - |t|)
            lost += SPARE * (accumulated(differences + 8, unit) + 2 * FLOAT64_UNIT) / math.e
        relative = grown(exponent * products) + EXP_ERROR * unit * SPARE + adding
        return SumError(SPARE * relative, SPARE * lost, other + vanished)
    products += of_rows
    largest = kernel.magnitude(norm)
    other += vanished * np.maximum(1.0, largest)
    # (g <x, z> + r)^d: d factors, each at most g |x| |z| + |r|, and fewer than d products of them.
    factors = kernel.degree * (products + unit) if kernel.name == "poly" else math.inf
    return SumError(0.0, SPARE * (grown(factors) + adding) * largest, other)


def product_error(lengths: np.ndarray, terms: int, size: float, moved: float) -> np.ndarray:
    """Return the bound of the error of <x, w> as computed in float64, (m,).

    lengths : (m,), |x| of each row; terms: the most nonzeros of a row; size: |w|; moved: how far
    scaling moved a row by its rounding
    """
    relative = accumulated(terms + WRITTEN)
    return SPARE * size * (relative * lengths + moved) + terms * SMALLEST[FLOAT64_UNIT]


def distance_of_machines(layout: Layout, total: float) -> float:
    """Return a bound of |w - w'| for the w of the vectors in a model file and that of the rows.

    total: the sum of |beta|
    """
    kernel, (norm, _, length, moved) = layout.kernel, layout.sizes
    return SPARE * total * kernel.steepness(norm) * (4 * FLOAT64_UNIT * length + 2 * moved)


def offset_error(
    error: np.ndarray, y: np.ndarray, u: np.ndarray, b: Any, width: float
) -> np.ndarray:
    """Return the bound of the error of y - u - b -+ width as computed, (m,) float64.

    error, y, u : (m,) float64; error: the bound of the error of u.
    """
    return error + (4 + WRITTEN) * FLOAT64_UNIT * (np.abs(y) + np.abs(u) + np.abs(b) + abs(width))


def addition_error(terms: Any, absolute: Any) -> Any:
    """Return the bound of the error of a float64 sum of products. absolute: the sum of their sizes,
    as computed."""
    return SPARE * accumulated(terms + 3) * absolute


def largest_offset(total: float, most: float, largest: float, primal: Any) -> Any:
    """Return a bound of |b|, and of |b +- tube|, of a solution.

    An offset of least P is where the loss of some row begins, y - u -+ epsilon, and |u| is at most
    |w| times the root of K(x, x). |w|^2 / 2 <= P; with prescribed sums |w| follows from them.

    total: the prescribed sums, of their sizes; 0: there are none. most: the largest |y| + epsilon;
    largest: a bound of K(x, x); primal: P of any machine, at most, or an array of them.
    """
    norm = total * math.sqrt(largest) if total else np.sqrt(2 * np.maximum(primal, 0.0))
    return SPARE * (most + norm * math.sqrt(largest))
