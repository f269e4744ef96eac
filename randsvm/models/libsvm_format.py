"""Read and write kernel models in LIBSVM's text format."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from randsvm import files
from randsvm.arrays import CsrMatrix
from randsvm.data import svmlight
from randsvm.data.svmlight import Block
from randsvm.decimals import join_rows
from randsvm.kernels.kernel import Kernel
from randsvm.models.kernel_model import KernelModel, PairwiseModel
from randsvm.models.model import fields_of, trailer_of
from randsvm.models.model_text import (
    Header,
    SealedStream,
    check_finite,
    parse_rows,
    read_header,
    reading,
    render_header,
)
from randsvm.parameters.kernel import KERNELS

# Task -> LIBSVM's svm_type. A nu_svc or nu_svr model predicts like a c_svc or epsilon_svr model.
TYPES = {"svc": "c_svc", "one-class": "one_class", "svr": "epsilon_svr"}
NU_TYPES = {"svc": "nu_svc", "svr": "nu_svr"}
TASKS = {name: task for types in (TYPES, NU_TYPES) for task, name in types.items()}
# Kernels of this package by their names in LIBSVM's models.
KERNELS_OF_LIBSVM = {"polynomial" if name == "poly" else name: name for name in KERNELS}
# The keywords are in LIBSVM's order. Two classes, regression and one-class have nr_class 2. A
# classifier that was trained with rows of one class has nr_class 1 and no support vectors.
KEYWORDS = (
    "svm_type", "kernel_type", "degree", "gamma", "coef0", "nr_class", "total_sv", "rho",
    "label", "probA", "probB", "prob_density_marks", "nr_sv",
)  # fmt: skip

CLASSIFIERS = ("c_svc", "nu_svc")

HEADER_FORMAT = ("LIBSVM", "SV", KEYWORDS)


# --- writing -------------------------------------------------------------------------------


def write(model: KernelModel, path: str) -> None:
    """Write a model and its sealed trailer; `path` is replaced as a whole or not at all.

    Raise ModelError, before `path` changes, for numbers that are not finite.
    """
    Z, beta = model.Z, model.beta
    is_svc = model.task == "svc"
    nr_sv = None
    if isinstance(model, PairwiseModel):
        beta = pair_coefficients(model.own, beta)
        nr_sv = tuple(np.bincount(model.own, minlength=len(model.labels)).tolist())
    elif is_svc and beta.shape[1] == 1:
        # LIBSVM's format groups support vectors by class.
        positive = beta[:, 0] > 0
        order = np.concatenate([np.flatnonzero(positive), np.flatnonzero(~positive)])
        Z, beta = Z[order], beta[order]
        nr_sv = (int(positive.sum()), int((~positive).sum()))
    label = model.int_labels if is_svc else None
    # LIBSVM knows neither words as labels, nor scaling, nor classes one against the rest.
    own_layout = (is_svc and (label is None or nr_sv is None)) or model.scaling is not None
    header = _header(model, label, None if label is None and len(model.b) == 1 else nr_sv)
    check_finite(path, rho=model.b, coefficients=beta, values=Z.data, gamma=model.kernel.gamma)
    indices, values = model.features[Z.indices], Z.data
    if model.has_row_numbers:
        indices, values = np.zeros_like(indices), indices.astype(np.float32)
    with files.create_output(path) as stream:
        sealed = SealedStream(stream)
        sealed.write(render_header(HEADER_FORMAT, header, own_layout))
        # Support vectors are svmlight rows with coefficients instead of a label.
        svmlight.write(sealed, join_rows(beta), Z.indptr, indices, values)
        sealed.seal(trailer_of(model, labels=is_svc))


def _header(
    model: KernelModel, label: tuple[int, ...] | None, nr_sv: tuple[int, ...] | None
) -> dict[str, Sequence[object] | None]:
    """Return the header, like LIBSVM without parameters that the kernel does not use.

    A number has at most 24 characters; LIBSVM's reader takes 80.
    """
    kernel, sigmoid, marks = model.kernel, model.sigmoid, model.density_marks
    name = next(name for name, ours in KERNELS_OF_LIBSVM.items() if ours == kernel.name)
    noise = None if model.noise_scale is None else (model.noise_scale,)
    return {
        "svm_type": ((NU_TYPES if model.nu else TYPES)[model.task],),
        "kernel_type": (name,),
        **{key: (getattr(kernel, key),) for key in KERNELS[kernel.name]},
        "nr_class": (len(model.labels) if model.task == "svc" else 2,),
        "total_sv": (len(model.beta),),
        "rho": (0.0 - model.b).tolist(),  # no -0.0
        "label": label,
        "probA": noise if sigmoid is None else sigmoid[0].tolist(),
        "probB": None if sigmoid is None else sigmoid[1].tolist(),
        "prob_density_marks": None if marks is None else marks.tolist(),
        "nr_sv": nr_sv,
    }


# --- reading -------------------------------------------------------------------------------


def read(content: bytes, name: str, float64: bool = False) -> KernelModel:
    """Return the model in `content`, a file of LIBSVM or of this package.

    name : the file's name in messages; float64 : whether feature values are float64 in any case.
    Raise ModelError, or DataError with line and column inside the support vectors.
    """
    header, trailer = read_header(content, name, HEADER_FORMAT)
    svm_type = header.choice("svm_type", TASKS)
    kernel_type = header.choice("kernel_type", KERNELS_OF_LIBSVM)
    nr_class = header.nr_class(svm_type, CLASSIFIERS)
    label, nr_sv = (header.per_class(key, svm_type, CLASSIFIERS) for key in ("label", "nr_sv"))
    _check_classes(header, nr_class, nr_sv)
    used = KERNELS[KERNELS_OF_LIBSVM[kernel_type]]
    task = TASKS[svm_type]
    # Several classes with nr_sv are one against one: support vectors are grouped by class, and
    # those of class i have a coefficient for each other class. Without nr_sv, which only the own
    # layout may lack, the classes are one against the rest.
    pairs = nr_class != 2 and nr_sv is not None
    columns = 1 if nr_class == 2 else nr_class - 1 if pairs else nr_class
    decisions = nr_class * (nr_class - 1) // 2 if pairs or nr_class == 2 else nr_class
    kernel = Kernel(
        KERNELS_OF_LIBSVM[kernel_type],
        header.non_negative("gamma", header.numbers) if "gamma" in used else 1.0,
        header.numbers("coef0", 1)[0] if "coef0" in used else 0.0,
        header.non_negative("degree", header.integers) if "degree" in used else 3,
    )
    given: dict[str, Any] = {
        "b": -np.array(header.numbers("rho", decisions)),
        **_probabilities(header, task, decisions),
    }
    with reading(name):
        given |= fields_of(trailer, task, label)
        given["float64"] = given["float64"] or float64
        if task == "svc" and len(given["labels"]) != nr_class:
            raise ValueError(f"expected {nr_class} labels")
    given["beta"], rows = parse_rows(
        header,
        _total_sv(header),
        columns,
        "support vector",
        "support vectors (total_sv)",
        given["float64"],
    )
    features, indices, values = rows.features, rows.indices, rows.values
    if kernel.name == "precomputed":
        # Rows of kernel values begin with 0:number. The number of the training row is its feature.
        indices, values = _row_numbers(header, rows), np.ones_like(values)
        features, given["zero_based"] = np.unique(indices), True
    shape = (len(rows), len(features))
    given |= {
        "task": task,
        "kernel": kernel,
        "nu": svm_type in NU_TYPES.values(),
        "features": features,
        "Z": CsrMatrix(values, np.searchsorted(features, indices), rows.indptr, shape),
    }
    if not pairs:
        return KernelModel(**given)
    own = np.repeat(np.arange(nr_class), nr_sv or 0)
    # The inverse of `pair_coefficients`.
    beta = np.zeros((len(own), nr_class))
    beta[own[:, None] != np.arange(nr_class)] = given["beta"].ravel()
    given["beta"] = _signed(own, beta)
    return PairwiseModel(own=own, **given)


def pair_coefficients(own: np.ndarray, beta: np.ndarray) -> np.ndarray:
    """Return LIBSVM's sv_coef, (m, K - 1): y alpha in the pairs with each other class.

    own, beta : see PairwiseModel.
    """
    K = beta.shape[1]
    return _signed(own, beta)[own[:, None] != np.arange(K)].reshape(len(own), K - 1)


def _signed(own: np.ndarray, beta: np.ndarray) -> np.ndarray:
    """Return beta times y of the own class: 1 in pairs with later classes, -1 with earlier ones."""
    later = own[:, None] <= np.arange(beta.shape[1])
    return np.where(later, beta, 0.0 - beta)  # no -0.0


def _check_classes(header: Header, nr_class: int, nr_sv: tuple[int, ...] | None) -> None:
    total_sv = _total_sv(header)
    if nr_class == 1 and (total_sv or not nr_sv):
        raise header.error(
            header.line_of("nr_class"), "nr_class 1 with total_sv 0 and nr_sv 0", "others"
        )
    if nr_sv and (min(nr_sv) < 0 or sum(nr_sv) != total_sv):
        raise header.error(
            header.line_of("nr_sv"), f"counts with the sum {total_sv} (total_sv)", f"{nr_sv}"
        )


def _probabilities(header: Header, task: str, decisions: int) -> dict[str, Any]:
    """Return the fields of KernelModel for probabilities."""
    marks = header.optional_numbers("prob_density_marks", 10)
    A, B = (header.optional_numbers(key, decisions) for key in ("probA", "probB"))
    if task == "one-class":
        return {} if marks is None else {"density_marks": np.array(marks)}
    if A is None:
        return {}
    if task == "svr":
        return {"noise_scale": A[0]}
    return {} if B is None else {"sigmoid": np.array([A, B])}


def _total_sv(header: Header) -> int:
    return header.non_negative("total_sv", header.integers)


def _row_numbers(header: Header, rows: Block) -> np.ndarray:
    """Return the number of the training row that each support vector names, (m,) int32."""
    values = rows.values
    whole = (values == np.floor(values)) & (values > 0)
    if (np.diff(rows.indptr) != 1).any() or rows.indices.any() or not whole.all():
        raise header.error(
            header.first_row_line, "'0:number' of a training row in each support vector", "others"
        )
    return values.astype(np.int32)
