"""Models as the package builds, reads and writes them, and what it computes from decision values.

The only way from tests to the modules of randsvm.models.
"""

import hashlib
from typing import Any

import numpy as np
import pytest

import randsvm
from randsvm.arrays import FEATURES, CsrMatrix
from randsvm.kernels.kernel import Kernel
from randsvm.kernels.layouts import Cells
from randsvm.models import (
    decisions,
    export,
    fitted,
    libsvm_format,
    metrics,
    model_text,
    onnx_graph,
    shapley,
)
from randsvm.models import linear_model as liblinear_format
from randsvm.models.decisions import NonconformityScores
from randsvm.models.kernel_model import KernelModel
from randsvm.models.metadata import Metadata
from randsvm.models.model import Model
from randsvm.models.model_text import load
from randsvm.training import probabilities

# ---- files --------------------------------------------------------------------------------------


def rows_of(model: Any, indptr: np.ndarray, indices: np.ndarray, values: np.ndarray) -> Any:
    """Return rows as the model computes with them. indices: of the features, as in a file."""
    return model.rows(CsrMatrix(values, indices, indptr, (len(indptr) - 1, FEATURES)))


def load_model(path: object) -> Any:
    """Return the model in a file."""
    return randsvm.load(str(path)).model


def save_model(model: Model, path: object) -> None:
    """Write a model file."""
    model_text.save(model, str(path))


def metadata_of(path: object) -> Any:
    """Return what a file tells about the training, or None."""
    return model_text.metadata_of(str(path))


def read_body(content: bytes, like: bytes = b"") -> Any:
    """Return the model of a text in the format of LIBSVM or LIBLINEAR; messages name it m.

    like: a text in the same format, if `content` is damaged
    """
    module = liblinear_format if b"solver_type" in (like or content) else libsvm_format
    return module.read(content, "m")


# The formats of files of models, and the first line of those that no other program reads.
format_of = model_text.format_of
OWN_LAYOUT = model_text.OWN_LAYOUT
# Return the end of the body of a file, and the values in its trailer.
split_trailer = model_text.split_trailer
# Features as the text of their runs, and the features of such a text.
runs_of = model_text.runs_of
features_of = model_text.features_of


def allow_features(patch: pytest.MonkeyPatch, most: int) -> None:
    """Let trailers list this number of features where no other line has their number."""
    patch.setattr(model_text, "MAX_FEATURES", most)


# A stream of a file that ends with its digest.
SealedStream = model_text.SealedStream


SEAL = b"# randsvm sha256 "


def resealed(content: bytes) -> bytes:
    """Return a model with a right sha256 line, as somebody who edits the model may write it."""
    text = content.partition(SEAL)[0]
    return text + SEAL + hashlib.sha256(text).hexdigest().encode() + b"\n"


# ---- models -------------------------------------------------------------------------------------


# A description of a training.
metadata = Metadata


def kernel_model(kernel: tuple[Any, ...], **fields: Any) -> Any:
    """Return a model of kernel machines; with `own`, of pairs of classes.

    kernel: name, gamma, coef0 and degree. fields: see KernelModel.
    """
    return KernelModel(kernel=Kernel(*kernel), **fields)


def predicts_by_cells(model: Any) -> bool:
    """Return whether sums leave out pairs of cells of rows whose kernel values are negligible."""
    return isinstance(model._float32_layout, Cells)


def largest_score(scores: np.ndarray, coverage: float, *weights: np.ndarray) -> float:
    """Return the score that a new row exceeds with a chance of 1 - coverage at most."""
    return NonconformityScores.of(scores, *weights).largest(coverage)


# ---- decision values ----------------------------------------------------------------------------

voted_classes = decisions.voted_classes
class_pairs = decisions.class_pairs


def coupled_probabilities(f: np.ndarray, sigmoid: np.ndarray, classes: int) -> np.ndarray:
    """Return the probabilities of the classes of each row from the values of pairs."""
    return decisions.coupled_probabilities(decisions.sigmoids(f, sigmoid), classes)


def count_of(kind: str, classes: int = 0) -> Any:
    """Return what --metrics counts: of "classes" or "errors" of a regression."""
    return (
        metrics.ClassCounts(classes, areas=True)
        if kind == "classes"
        else metrics.RegressionErrors()
    )


# What -b fits to decision values, with weights of rows.
fit_sigmoids = probabilities.fit_sigmoids
fit_pair_sigmoids = probabilities.fit_pair_sigmoids
laplace_scale = probabilities.laplace_scale
density_marks = probabilities.density_marks

shapley_values = shapley.shapley_values


# ---- exports ------------------------------------------------------------------------------------

find_compiler = export.find_compiler
DRAWN_ROWS = export.DRAWN_ROWS


def allow_bytes(patch: pytest.MonkeyPatch, most: int) -> None:
    """Let graphs of ONNX have this size."""
    patch.setattr(onnx_graph, "MAX_BYTES", most)


def exchange_predictions(patch: pytest.MonkeyPatch) -> None:
    """Let models predict the other of two classes for the first of some rows."""
    right = Model.predicted
    patch.setattr(
        Model, "predicted", lambda self, f: abs((np.arange(len(f)) == 0) - right(self, f))
    )
