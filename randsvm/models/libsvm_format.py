"""Read and write kernel models in LIBSVM's text format."""

from __future__ import annotations

from typing import Any

import numpy as np

from randsvm.arrays import FEATURES, find_columns
from randsvm.data import svmlight
from randsvm.decimals import join_rows
from randsvm.kernels.kernel import Kernel
from randsvm.models.kernel_model import KernelModel
from randsvm.models.model_text import (
    COUNTS,
    INTS,
    NOT_NEGATIVE,
    NUMBERS,
    Header,
    one_of,
    trailer_of,
    whole_numbers,
    written,
)
from randsvm.parameters.svm import KERNELS

# LIBSVM's svm_type -> task, and whether it has a bound nu. A nu_svc or nu_svr model predicts like a
# c_svc or epsilon_svr model.
TYPES = {
    "c_svc": ("svc", False),
    "one_class": ("one-class", False),
    "epsilon_svr": ("svr", False),
    "nu_svc": ("svc", True),
    "nu_svr": ("svr", True),
}
# Kernels of this package by their names in LIBSVM's models.
KERNELS_OF_LIBSVM = {"polynomial" if name == "poly" else name: name for name in KERNELS}
# The keywords are in LIBSVM's order. Two classes, regression and one-class have nr_class 2. A
# classifier that was trained with rows of one class has nr_class 1 and no support vectors.
KEYWORDS = {
    "svm_type": one_of(TYPES),
    "kernel_type": one_of(KERNELS_OF_LIBSVM),
    "degree": COUNTS,
    "gamma": NOT_NEGATIVE,
    "coef0": NUMBERS,
    "nr_class": whole_numbers(1),
    "total_sv": COUNTS,
    "rho": NUMBERS,
    "label": INTS,
    "probA": NUMBERS,
    "probB": NUMBERS,
    "prob_density_marks": NUMBERS,
    "nr_sv": COUNTS,
}

HEADER_FORMAT = ("LIBSVM", "SV", KEYWORDS)


# --- writing -------------------------------------------------------------------------------


def write(model: KernelModel, path: str) -> None:
    """Write a model and its sealed trailer; `path` is replaced as a whole or not at all.

    Raise ModelError, before `path` changes, for numbers that are not finite.
    """
    Z, beta, kernel = model.Z, model.beta, model.kernel
    is_svc, two = model.prediction_type == "svc", len(model.b) == 1
    classes, nr_sv = model.class_of, None
    if is_svc and two:
        classes = 1 * (beta[:, 0] <= 0)
    if classes is not None:
        # LIBSVM's format groups support vectors by class.
        order = np.argsort(classes, kind="stable")
        Z, beta = Z[order], beta[order]
        nr_sv = np.bincount(classes, minlength=len(model.labels)).tolist()
    label = model.int_labels if is_svc else None
    # LIBSVM knows neither words as labels, nor scaling, nor classes one against the rest.
    own_layout = (is_svc and (label is None or nr_sv is None)) or model.scaling is not None
    numbers = {"rho": model.b, "coefficients": beta, "values": Z.data, "gamma": kernel.gamma}
    rows = Z.with_columns(model.features[Z.indices], FEATURES)
    if model.has_row_numbers:
        # The support vector is the number of its row.
        own = rows.indices.astype(np.float32)
        rows = rows.with_data(own).with_columns(np.zeros_like(rows.indices), FEATURES)
    A, B = (None, None) if model.sigmoid is None else model.sigmoid.tolist()
    # A number has at most 24 characters; LIBSVM's reader takes 80.
    header = {
        "svm_type": [{ours: name for name, ours in TYPES.items()}[model.prediction_type, model.nu]],
        "kernel_type": [{ours: name for name, ours in KERNELS_OF_LIBSVM.items()}[kernel.name]],
        # LIBSVM writes only the parameters that the kernel uses.
        **{key: [getattr(kernel, key)] for key in KERNELS[kernel.name]},
        "nr_class": [len(model.labels) if is_svc else 2],
        "total_sv": [len(beta)],
        "rho": (0.0 - model.b).tolist(),  # no -0.0
        "label": label,
        "probA": A if model.noise_scale is None else [model.noise_scale],
        "probB": B,
        "prob_density_marks": model.density_marks,
        # The signs of the coefficients tell of which of two classes a support vector is: only the
        # reader of LIBSVM needs these numbers then.
        "nr_sv": None if label is None and two else nr_sv,
    }
    trailer = trailer_of(model, is_svc)
    with written(path, HEADER_FORMAT, header, own_layout, trailer, numbers) as stream:
        # Support vectors are svmlight rows with coefficients instead of a label.
        svmlight.write(stream, join_rows(beta), rows)


# --- reading -------------------------------------------------------------------------------


def read(content: bytes, name: str) -> KernelModel:
    """Return the model in `content`, a file of LIBSVM or of this package.

    name : the file's name in messages.
    Raise ModelError, or DataError with line and column inside the support vectors.
    """
    header = Header(content, name, HEADER_FORMAT)
    ((task, nu),), (kernel_name,) = header.get("svm_type"), header.get("kernel_type")
    given = header.fields(task)
    kernel = Kernel(kernel_name, **{key: header.get(key)[0] for key in KERNELS[kernel_name]})
    (nr_class,), (total_sv,) = header.get("nr_class"), header.get("total_sv")
    nr_sv = header.get("nr_sv", nr_class, header.own_layout) if task == "svc" else None
    if nr_class == 1 and (total_sv or not nr_sv):
        raise header.error("nr_class", "nr_class 1 with total_sv 0 and nr_sv 0", "others")
    if nr_sv and sum(nr_sv) != total_sv:
        raise header.error("nr_sv", f"counts with the sum {total_sv} (total_sv)", f"{nr_sv}")
    # Several classes with nr_sv are one against one: support vectors are grouped by class, and
    # those of class i have a coefficient for each other class. Without nr_sv, which only the own
    # layout may lack, the classes are one against the rest.
    pairs = nr_class != 2 and nr_sv is not None
    columns = 1 if nr_class == 2 else nr_class - 1 if pairs else nr_class
    decisions = nr_class * (nr_class - 1) // 2 if pairs or nr_class == 2 else nr_class
    A, B = (header.get(key, decisions, optional=True) for key in ("probA", "probB"))
    marks = header.get("prob_density_marks", 10, optional=True)
    b = -np.array(header.get("rho", decisions))
    beta, rows = header.rows(total_sv, columns, "support vector", "support vectors (total_sv)")
    X, features = rows.X, rows.features
    if kernel.name == "precomputed":
        # Rows of kernel values begin with 0:number. The number of the training row is its feature.
        numbers = svmlight.row_numbers(X)
        if X.nnz != len(rows) or not numbers.all():
            expected = "'0:number' of a training row in each support vector"
            raise header.error(header.first_line, expected, "others")
        X = X.with_columns(numbers.astype(np.int32), FEATURES).with_data(np.ones_like(X.data))
        features, given["zero_based"] = np.unique(X.indices), True
    elif given["seen"] is not None and not find_columns(given["seen"], features)[1].all():
        raise ValueError("expected the features of all support vectors")
    fields: dict[str, Any] = given | {
        "float64": True,
        "prediction_type": task,
        "nu": nu,
        "kernel": kernel,
        "features": features,
        "Z": X.with_columns(np.searchsorted(features, X.indices), len(features)),
        "beta": beta,
        "b": b,
        "class_of": np.repeat(np.arange(nr_class), nr_sv or ()) if pairs else None,
        "density_marks": np.array(marks) if task == "one-class" and marks else None,
        "noise_scale": A[0] if task == "svr" and A else None,
        "sigmoid": np.array([A, B]) if task == "svc" and None not in (A, B) else None,
    }
    return KernelModel(**fields)
