"""Kernel models out of files in LIBSVM's format, of LIBSVM's own or ours."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from randsvm.kernels.kernel import Kernel
from randsvm.models import libsvm_format
from randsvm.models.kernel_model import LIBSVM_KERNELS, NU_TYPES, KernelModel
from randsvm.models.libsvm_format import LibsvmModel
from randsvm.models.metadata import Metadata
from randsvm.models.model import fields_of_any_model
from randsvm.models.pairwise_model import PairwiseModel

KERNELS = {name: ours for ours, name in LIBSVM_KERNELS.items()}
# Models of LIBSVM's nu forms predict as those of its C forms do.
TASKS = {
    "c_svc": "svc",
    "nu_svc": "svc",
    "one_class": "one-class",
    "epsilon_svr": "svr",
    "nu_svr": "svr",
}


def parse(content: bytes, name: str) -> KernelModel:
    """The model in `content`. Raises ModelError and DataError, which call it `name`."""
    body, trailer = libsvm_format.parse(content, name)
    return _kernel_model(body, Metadata(name, trailer))


def _kernel_model(body: LibsvmModel, metadata: Metadata) -> KernelModel:
    task = TASKS[body.svm_type]
    common = fields_of_any_model(metadata, task, body.label, body.nr_class)
    features, Z = _support_vectors(body, metadata)
    fields = {
        "task": task,
        "kernel": Kernel(
            KERNELS[body.kernel_type],
            1.0 if body.gamma is None else body.gamma,
            0.0 if body.coef0 is None else body.coef0,
            3 if body.degree is None else body.degree,
        ),
        "Z": Z,
        "features": features,
        "beta": body.coefficients,
        "b": -np.array(body.rho),
        "nu": body.svm_type in NU_TYPES.values(),
        **common,
        **_fitted(body, task),
    }
    if body.kernel_type == "precomputed":
        # Rows begin with 0:number.
        fields["zero_based"] = True
    if body.nr_class != 2 and body.nr_sv is not None:
        return PairwiseModel(nr_sv=body.nr_sv, **fields)
    return KernelModel(**fields)


def _support_vectors(body: LibsvmModel, metadata: Metadata) -> tuple[np.ndarray, sparse.csr_matrix]:
    """The features that support vectors have, (d,) int32 ascending, and the rows over them."""
    indices, values = body.indices, body.values
    if body.kernel_type == "precomputed":
        whole = (values == np.floor(values)) & (values > 0)
        if (np.diff(body.indptr) != 1).any() or (indices != 0).any() or not whole.all():
            raise metadata.error("expected '0:number' of a training row in each support vector")
        indices, values = values.astype(np.int32), np.ones_like(values)
    features, columns = np.unique(indices, return_inverse=True)
    shape = (len(body.coefficients), len(features))
    return features.astype(np.int32), sparse.csr_matrix((values, columns, body.indptr), shape=shape)


def _fitted(body: LibsvmModel, task: str) -> dict[str, Any]:
    """What probabilities come from."""
    if task == "one-class":
        marks = body.prob_density_marks
        return {} if marks is None else {"density_marks": np.array(marks)}
    if body.probA is None:
        return {}
    if task == "svr":
        return {"noise_scale": body.probA[0]}
    return {} if body.probB is None else {"sigmoid": np.array([body.probA, body.probB])}
