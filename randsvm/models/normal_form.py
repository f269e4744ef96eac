"""The normal form of decision functions, which the exports to C and to ONNX read:

    f = b + sum_j c_j phi_j(v)

v is a row after rounding and scaling. phi_j is the entry v_j, an RBF, a power, tanh or cos of
<v, z_j>, or a product of <v, s> over rows s of signs. Scales of random features fold into c.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from randsvm.arrays import CsrMatrix, squared_norms
from randsvm.errors import ModelError
from randsvm.models.kernel_model import KernelModel, dense_coefficients
from randsvm.models.linear_model import LinearModel
from randsvm.models.model import Model

# A row is an array with an entry for every index, of which the code in C has a copy on the stack.
MAX_INPUTS = 250_000
# Rounding of f relative to the sum of its absolute terms, in float64 and with random features,
# which training and prediction compute in float32.
DOUBLE_ROUNDING = 1e-10
RANDOM_FEATURES_ROUNDING = 1e-5
# Error of an exponent gamma |v - z|^2, divided by gamma times the squared norms of v and z.
EXPONENT_ROUNDING = 1e-14

Phi = Literal["entry", "rbf", "power", "tanh", "cos", "signs"]
PHI_OF_KERNELS: dict[str, Phi] = {"rbf": "rbf", "poly": "power", "sigmoid": "tanh"}


@dataclass(frozen=True, kw_only=True)
class NormalForm:
    """Decision functions f = b + sum_j c_j phi_j(v) of rows with an entry for every index.

    inputs : number of entries of a row
    single : whether entries are rounded to float32, before scaling and after it
    shift, factor : (inputs,), scaling (x - shift) factor; factor is 0 for unknown features. None:
    none
    unit : whether scaled rows are divided by their norm
    b : (columns,)
    phi : entry: v_j. rbf: exp(-gamma |v - z_j|^2). power, tanh, cos: of gamma <v, z_j> + offset_j.
    signs: the product of <v, s> over `degree[j]` rows s of signs.
    Z : (m, inputs) CSR, or signs of shape (sum of degree, inputs), int8; None for entries
    offset : () or (m,); degree : () of a power, or (m,) of signs
    c : (m, k), coefficients of the terms; starts, columns : see `KernelModel.class_parts`
    rounding : error of f that rounding explains, relative to the sum of absolute terms
    """

    inputs: int
    single: bool
    shift: Any = None
    factor: Any = None
    unit: bool = False
    b: np.ndarray
    phi: Phi
    Z: Any = None
    gamma: float = 1.0
    offset: np.ndarray = field(default_factory=lambda: np.array(0.0))
    degree: np.ndarray = field(default_factory=lambda: np.array(1))
    c: np.ndarray
    starts: np.ndarray
    columns: np.ndarray
    rounding: float = DOUBLE_ROUNDING

    def dense_coefficients(self) -> np.ndarray:
        """Return the coefficient of each term in each column of f, (m, columns of f)."""
        return dense_coefficients(self.c, self.starts, self.columns, len(self.b))

    def tolerance(self, largest_norm: float) -> float:
        """Return the difference of f that rounding explains for rows up to a norm after scaling.

        It is relative to the sum of the absolute terms of such a row, in which a product of signs
        counts as the root of its mean square over the choice of the signs.
        """
        r, rounding, c = largest_norm, self.rounding, self.dense_coefficients()
        sizes = np.ones(len(c))
        if self.phi == "rbf":
            largest = float(squared_norms(self.Z).max(initial=0.0))
            rounding += EXPONENT_ROUNDING * self.gamma * (r * r + largest)
        elif self.phi == "power":
            products = self.gamma * r * np.sqrt(squared_norms(self.Z)) + np.abs(self.offset)
            sizes = products**self.degree
        elif self.phi == "signs":
            sizes = r**self.degree
        terms = sizes @ np.abs(c)
        if self.phi == "entry":
            terms = r * np.sqrt(np.square(c).sum(axis=0))
        magnitude = np.abs(self.b) + terms
        return float(rounding * magnitude.max()) + 1e-300


def normal_form(model: Model) -> NormalForm:
    """Return the decision functions of a model.

    Raise ModelError for a kernel without a normal form, and for indices above MAX_INPUTS.
    """
    # An entry for each index up to the largest known.
    inputs, at = model.width, model.features.astype(np.int64) - model.index_base
    if inputs > MAX_INPUTS:
        raise ModelError(
            f"expected feature indices up to {MAX_INPUTS:,} for arrays of C, found {inputs:,}"
        )
    if isinstance(model, KernelModel):
        terms = _kernel_terms(model, inputs, at)
    else:
        assert isinstance(model, LinearModel)
        terms = _linear_terms(model, inputs, at)
    own: dict[str, Any] = {"inputs": inputs, "single": not model.float64, "b": model.b}
    return NormalForm(**own, **_scaling(model), **terms)


def _scaling(model: Model) -> dict[str, Any]:
    scaling, seen = model.scaling, model.seen
    if scaling is None or seen is None:
        return {}
    at = seen.astype(np.int64) - model.index_base
    shift, factor = np.zeros((2, model.width))
    factor[at] = 1.0 if scaling.factor is None else scaling.factor
    shift[at] = 0.0 if scaling.shift is None else scaling.shift
    return {"shift": shift, "factor": factor, "unit": scaling.factor is None}


def _in_one_part(c: np.ndarray) -> dict[str, Any]:
    """Return the fields of terms whose coefficients have a column for each decision value."""
    return {"c": c, "starts": np.array([0, len(c)]), "columns": np.arange(c.shape[1])[None]}


def _kernel_terms(model: KernelModel, inputs: int, at: np.ndarray) -> dict[str, Any]:
    """Return phi and the fields of the terms. at : the entry of a row for each feature, (d,)"""
    kernel, Z = model.kernel, model.Z.with_columns(at[model.Z.indices], inputs)
    if kernel.name == "linear":
        return {"phi": "entry", **_in_one_part(Z.column_products(model.coefficients))}
    if kernel.name not in PHI_OF_KERNELS:
        raise ModelError(
            "expected a kernel of features, linear, poly, rbf or sigmoid, for an export, "
            f"found {kernel.name}"
        )
    starts, columns = model.class_parts
    return {
        "phi": PHI_OF_KERNELS[kernel.name],
        "Z": Z,
        "gamma": kernel.gamma,
        "offset": np.array(kernel.coef0),
        "degree": np.array(kernel.degree),
        "c": model.beta,
        "starts": starts,
        "columns": columns,
    }


def _linear_terms(model: LinearModel, inputs: int, at: np.ndarray) -> dict[str, Any]:
    mapping, w = model.mapping, model.w
    if mapping is None:
        c = np.zeros((inputs, w.shape[1]))
        c[at] = w
        return {"phi": "entry", **_in_one_part(c)}
    tables = mapping.over(model.features).tables
    if mapping.kernel == "rbf":
        W, phases, scale = tables
        rows = CsrMatrix.from_dense(np.ascontiguousarray(W.T))
        Z = rows.with_columns(at[rows.indices], inputs)
        fields = {"phi": "cos", "offset": phases, "Z": Z, **_in_one_part(scale * w)}
    else:
        signs, degree, scales, length = tables
        spread = np.zeros((len(signs), inputs), np.int8)
        spread[:, at] = signs
        c = (scales * float(length) ** degree)[:, None] * w
        fields = {"phi": "signs", "Z": spread, "degree": degree, **_in_one_part(c)}
    return {"rounding": RANDOM_FEATURES_ROUNDING, **fields}
