"""Random feature maps: rows x become z(x) with E <z(x), z(y)> = K(x, y) over the choice of the map.

A linear model of z(x) then stands for a kernel model; the error of <z(x), z(y)> falls like
1 / sqrt(N) with the number N of components.

    rbf    random Fourier features      z_j(x) = sqrt(2 / N) cos(<w_j, x> + b_j)
    poly   random Maclaurin features    z_j(x) = sqrt(a_m / (q_m N)) prod_{i = 1 .. m} <w_ij, x>

Each random number depends on (seed, component, feature, factor) alone, see `words_at`.
This module does not know files, data sets or training.

Rahimi and Recht, "Random Features for Large-Scale Kernel Machines", NIPS 2007. Kar and Karnick,
"Random Feature Maps for Dot Product Kernels", AISTATS 2012. MADlib design document, chapter SVM,
with two corrections: its 'divided by 1/sqrt(D)' has to be 'multiplied by', and its
P[N = m] = 1/p^(m+1) is a distribution only for p = 2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, localcontext
from functools import cached_property

import numpy as np

from randsvm.arrays import CsrMatrix, Matrix, philox_words, slices
from randsvm.decimals import compact
from randsvm.errors import ContentError, ParameterError
from randsvm.parameters.option import require
from randsvm.records import record

# ---- random numbers --------------------------------------------------------------------------

# Purposes of numbers, a part of the Philox counter. Purpose 0 is that of sampling.Draw.
PHASES, DEGREES, NORMALS, SIGNS = 1, 2, 3, 4


def words_at(seed: int, purpose: int, count: int, feature: int = 0, group: int = 0) -> np.ndarray:
    """Return the first `count` words of the Philox stream of the other arguments, (count,) uint64.

    key: seed and feature. counter: group and purpose. A word does not depend on count.
    """
    return philox_words((seed, feature), (0, group, purpose, 0), 0, count)


def uniform(seed: int, purpose: int, count: int) -> np.ndarray:
    """Return a number in [0, 1) for each component, (count,) float64."""
    return (words_at(seed, purpose, count) >> np.uint64(11)) * 2.0**-53


# artanh t = t sum_k ARTANH[k] t^2k; sin t = t sum_k SIN[k] t^2k.
ARTANH = [1 / (2 * k + 1) for k in range(8)]
SIN = [(-1) ** k / math.factorial(2 * k + 1) for k in range(8)]
LN2 = 0.6931471805599453


def _series(x: np.ndarray, coefficients: Sequence[float]) -> np.ndarray:
    """Return sum_k coefficients[k] x^k by Horner's rule."""
    total = np.full_like(x, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        total *= x
        total += coefficient
    return total


def normals(words: np.ndarray) -> np.ndarray:
    """Return two normal numbers for each word. words : (..., n) uint64; returns (..., 2n) float32.

    Box and Muller: sqrt(-2 ln u) (cos v, sin v), with u in (0, 1) from the upper half of a word and
    v in (-pi, pi) from the lower. ln and sin are series with an error of 1e-12: the last bits of a
    library's functions differ between versions and processors.
    """
    # u = 2^-32 mantissa 2^exponent, ln mantissa = 2 artanh t - ln 2 / 2, |t| < 0.172. So -2 ln u is
    # (65 - 2 exponent) ln 2 - 4 artanh t.
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


# Values of a block: 1 MB of float32 stays in the L2 cache from the product to the cosine. Blocks
# are rows of all components: cut by components too, they are no longer contiguous in the result
# and take up to half as long again (measured, N = 4,096).
BLOCK = 1 << 18
# A dense product of fewer rows is slower.
MIN_ROWS = 16

# Raw words that become numbers at a time: they and intermediate results fit the cache.
WORDS = 8192

# Share of nonzeros from which dense rows are faster: a dense product costs about d / 55 ns a value,
# a sparse one 0.08 ns for each nonzero of the row (measured for d = 64 to 4,096, one core).
DENSE = 0.2

TOO_LARGE = "coefficients too large for random features: lower degree or coef0"


# --- random features -----------------------------------------------------------------------


@record
class RandomMap:
    """The parameters of a random feature map; they determine its random numbers.

    kernel: rbf, exp(-gamma |x - y|^2), or poly, (gamma <x, y> + coef0)^degree with coef0 >= 0.
    components: N.
    rbf has neither coef0 nor degree; given values are replaced by the defaults, so that equal maps
    are equal.
    """

    kernel: str
    components: int
    gamma: float
    coef0: float = 0.0
    degree: int = 3
    seed: int = 0

    def __post_init__(self) -> None:
        require(
            self.kernel in ("rbf", "poly"),
            f"random features are for the kernels rbf and poly, not {self.kernel}",
        )
        N = self.components
        require(1 <= N < 2**31, f"components must be >= 1 and < 2^31, got {N}")
        require(0 <= self.seed < 2**64, f"seed must be >= 0 and < 2^64, got {self.seed}")
        require(0 <= self.gamma < math.inf, f"gamma must be >= 0 and finite, got {self.gamma}")
        if self.kernel == "poly":
            self._check_poly()
        else:
            object.__setattr__(self, "coef0", RandomMap.coef0)
            object.__setattr__(self, "degree", RandomMap.degree)

    def _check_poly(self) -> None:
        require(0 <= self.degree <= 1000, f"degree must be from 0 to 1000, got {self.degree}")
        require(
            0 <= self.coef0 < math.inf,
            f"random features of poly need coef0 >= 0 and finite, got {self.coef0}",
        )
        kernel = f"({compact(self.gamma)} <x, y> + {compact(self.coef0)})^{self.degree}"
        a = self.coefficients
        require(bool((a > 0).any()), f"{kernel} is 0 everywhere: raise gamma or coef0")
        require(bool(np.isfinite(a).all()), f"{kernel} has {TOO_LARGE}")

    def __str__(self) -> str:
        """Return the map as one line of words, the inverse of `parse`. Numbers read back to the
        same bits."""
        poly = f" coef0 {compact(self.coef0)} degree {self.degree}" if self.kernel == "poly" else ""
        return (
            f"{self.kernel} components {self.components} gamma {compact(self.gamma)}{poly} "
            f"seed {self.seed}"
        )

    @staticmethod
    def parse(text: str) -> RandomMap:
        """Return the map that `str` wrote. Raises ValueError for any other text."""
        kernel, *words = text.split(" ")
        try:
            given = dict(zip(words[::2], words[1::2], strict=True))
            made = RandomMap(
                kernel,
                int(given["components"]),
                float(given["gamma"]),
                float(given.get("coef0", RandomMap.coef0)),
                int(given.get("degree", RandomMap.degree)),
                int(given["seed"]),
            )
        except (KeyError, ParameterError, ValueError) as error:
            raise ValueError(f"expected a random feature map, found {text!r}: {error}") from None
        if str(made) != text:
            raise ValueError(f"expected {str(made)!r}, found {text!r}")
        return made

    @cached_property
    def coefficients(self) -> np.ndarray:
        """Return a_m of (gamma t + coef0)^degree = sum_m a_m t^m, (degree + 1,) float64.

        a_m = binomial(degree, m) gamma^m coef0^(degree - m); inf if it leaves float64.
        """
        return _coefficients(self.degree, self.gamma, self.coef0)

    @cached_property
    def probabilities(self) -> np.ndarray:
        """Return q_m, the probability that a component has degree m, (degree + 1,) float64.

        2^-(m + 1) where a_m > 0, divided by their sum.
        """
        drawn = self.coefficients > 0
        q = np.where(drawn, np.ldexp(1.0, -1 - np.arange(len(drawn))), 0.0)
        return q / math.fsum(q)

    @cached_property
    def degrees(self) -> np.ndarray:
        """Return the degree m of each component of poly, (N,) int64."""
        # The last sum, 1 except for rounding, is omitted: no number may lie beyond it.
        last = np.flatnonzero(self.probabilities)[-1]
        sums = np.cumsum(self.probabilities)[:last]
        return np.searchsorted(
            sums,
            uniform(self.seed, DEGREES, self.components),
            side="right",
        )

    @cached_property
    def scales(self) -> np.ndarray:
        """Return sqrt(a_m / (gamma^m q_m N)) of each component of poly, (N,) float32.

        sqrt(gamma) is a factor of each <w_ij, x>, so that products stay within float32.
        """
        without_gamma = _coefficients(self.degree, 1.0, self.coef0)[self.degrees]
        with np.errstate(over="ignore"):
            squares = without_gamma / (self.probabilities[self.degrees] * self.components)
            return np.sqrt(squares).astype(np.float32)

    def over(self, features: np.ndarray) -> FeatureTransform:
        """Return the map for rows of these features.

        features : (d,) int32, ascending, as written in the file. The result holds 4 d bytes for
        each component of rbf, and for each factor of each component of poly. Raises ParameterError.
        """
        if self.kernel == "poly":
            require(bool(np.isfinite(self.scales).all()), f"{self} has {TOO_LARGE}")
        return (_FourierFeatures if self.kernel == "rbf" else _MaclaurinFeatures)(self, features)


def _coefficients(degree: int, gamma: float, coef0: float) -> np.ndarray:
    """Return binomial(degree, m) gamma^m coef0^(degree - m) for m = 0 .. degree, float64; inf
    beyond."""
    # Decimals have powers of any size, and the same ones on every machine. A float64 has up to 767
    # digits; with fewer, products of a few bits that lie between two floats round to the wrong one.
    with localcontext(Context(prec=800, Emin=MIN_EMIN, Emax=MAX_EMAX)):
        powers = [
            [Decimal(number) ** m if m else Decimal(1) for m in range(degree + 1)]
            for number in (gamma, coef0)
        ]
        products = zip(*(powers[0], reversed(powers[1])), strict=True)
        return np.array([float(math.comb(degree, m) * g * r) for m, (g, r) in enumerate(products)])


# --- maps over given features ------------------------------------------------------------------


class FeatureTransform:
    """A random map for rows of d given features. Threads may share it.

    width : the number of columns of z(x), the components in order.
    """

    reads_numbers = False

    def __init__(self, given: RandomMap) -> None:
        self.map, self.width = given, given.components

    @property
    def tables(self) -> tuple[np.ndarray, ...]:
        """The random numbers of the components, which determine their values.

        rbf : W (d, N), phases (N,) and the scale (), all float32.
        poly : signs (factors, d) int8, the factors of component 0 first; degrees (N,) int64, the
        numbers of factors; scales (N,) and the length of a factor (), float32.
        """
        raise NotImplementedError

    def fill(self, X: Matrix, out: np.ndarray) -> None:
        """Write z(x) of each row to out, (m, width) float32."""
        raise NotImplementedError

    def values(self, X: CsrMatrix, out: np.ndarray | None = None) -> np.ndarray:
        """Return z(x) of each row, (m, width) float32, C-contiguous. X : (m, d) CSR, float32 or
        float64.

        out : an array of that shape to fill; reusing one saves the time for new pages. The error of
        a value of rbf is about abs(<w, x> + b) 2^-24. How rows are cut into calls changes values
        too, but by no more: BLAS rounds a row differently at different places of a block.
        Raises ContentError if a value leaves float32.
        """
        m, d = X.shape
        out = np.empty((m, self.width), np.float32) if out is None else out
        dense = X.nnz > DENSE * m * d
        with np.errstate(over="ignore", invalid="ignore"):
            for rows in slices(m, max(MIN_ROWS, BLOCK // self.width)):
                self.fill(X[rows].toarray() if dense else X[rows], out[rows])
                if not np.isfinite(out[rows]).all():
                    raise ContentError(
                        f"random features of {self.map} leave float32 on this data: scale it or "
                        f"lower gamma"
                    )
        return out


class _FourierFeatures(FeatureTransform):
    """Fourier features scale cos(X W + b). W : (d, N), b : (N,), float32.

    w_j ~ N(0, 2 gamma I), b_j is uniform on [0, 2 pi), and scale is sqrt(2 / N).
    """

    def __init__(self, given: RandomMap, features: np.ndarray) -> None:
        super().__init__(given)
        N = given.components
        W, words = np.empty((len(features), N), np.float32), (N + 1) // 2
        for rows in slices(len(features), max(1, WORDS // words)):
            bits = [words_at(given.seed, NORMALS, words, feature) for feature in features[rows]]
            W[rows] = normals(np.array(bits))[:, :N]
            W[rows] *= np.float32(math.sqrt(2 * given.gamma))
        self.W, self.scale = W, np.float32(math.sqrt(2 / N))
        self.b = (2 * math.pi * uniform(given.seed, PHASES, N)).astype(np.float32)

    @property
    def tables(self) -> tuple[np.ndarray, ...]:
        return self.W, self.b, np.array(self.scale)

    def fill(self, X: Matrix, out: np.ndarray) -> None:
        phases = X @ self.W
        if phases.dtype == np.float64:
            # Large phases: in float32 their remainders modulo 2 pi would have too few digits. So
            # the remainders are computed in float64.
            phases = np.remainder(phases, 2 * math.pi).astype(np.float32)
        phases += self.b
        np.cos(phases, out=out)
        out *= self.scale


class _MaclaurinFeatures(FeatureTransform):
    """Maclaurin features scale prod_i X W_i, w_ij = +-sqrt(gamma).

    Bit i of the word of (component j, feature) is the sign. Components are stored by falling
    degree, so that those with an i-th factor come first.

    W : for each i a (d, components with that factor) float32; scales : (N,) float32, by falling
    degree; place : (N,), the stored position of each component.
    """

    def __init__(self, given: RandomMap, features: np.ndarray) -> None:
        super().__init__(given)
        N, degrees = given.components, given.degrees
        order = np.argsort(-degrees, kind="stable")
        having = [order[: np.count_nonzero(degrees > i)] for i in range(degrees.max())]
        W = [np.empty((len(features), len(some)), np.float32) for some in having]
        length = np.float32(math.sqrt(given.gamma))
        for rows in slices(len(features), max(1, WORDS // N)):
            for factors in slices(len(having), 64):
                group = factors.start // 64
                bits = np.array([words_at(given.seed, SIGNS, N, f, group) for f in features[rows]])
                for bit, i in enumerate(range(factors.start, factors.stop)):
                    odd = bits[:, having[i]] & np.uint64(1 << bit) != 0
                    W[i][rows] = np.where(odd, -length, length)
        self.W, self.scales, self.place = W, given.scales[order], np.argsort(order)

    @property
    def tables(self) -> tuple[np.ndarray, ...]:
        columns = [[W[:, at] for W in self.W if at < W.shape[1]] for at in self.place]
        degrees = np.array([len(factors) for factors in columns])
        W = np.array([factor for factors in columns for factor in factors], np.float32)
        length = np.abs(W.ravel()[:1]).sum(dtype=np.float32)
        return np.sign(W).astype(np.int8), degrees, self.scales[self.place], np.array(length)

    def fill(self, X: Matrix, out: np.ndarray) -> None:
        product = np.tile(self.scales, (len(out), 1))
        for W in self.W:
            product[:, : W.shape[1]] *= (X @ W).astype(np.float32, copy=False)
        np.take(product, self.place, axis=1, out=out, mode="clip")
