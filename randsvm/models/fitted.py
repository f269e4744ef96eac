"""Predict arrays with a trained model, save it and describe it from Python."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np

from randsvm import files
from randsvm.arrays import CsrMatrix
from randsvm.data.columns import as_table, is_frame
from randsvm.data.in_memory import is_sparse_of_scipy, parts_of, to_matrix, with_row_numbers
from randsvm.data.labels import label_values
from randsvm.errors import ContentError, ModelError
from randsvm.events import Trained
from randsvm.models.model import Model
from randsvm.models.model_text import check_replaces_model, save
from randsvm.models.model_text import load as load_model
from randsvm.parallel import ThreadPool, one_blas_thread
from randsvm.parameters.run import Resources
from randsvm.records import record

__all__ = ["FittedModel", "load"]

# The lines of the trailer in a description.
NUMBERS = ("n", "d", "nnz", "violators", "seed", "C", "lambda", "primal", "dual", "gap")
TEXTS = ("stopped", "digest")
# Labels that a line lists; a longer list ends with the number of labels.
MAX_SHOWN_LABELS = 20


@record
class FittedModel:
    """A model, with the outcome of its training.

    Parameters
    ----------
    model : Model
        The model as a file holds it.
    outcome : Trained, optional
        How the training ended; None for a model that was loaded.
    jobs : int, default=1
        Worker threads that predict.
    classes : ndarray of shape (n_classes,), optional
        Labels that `predict` returns, in the order of the model's labels; by default the labels of
        the model file, int64 or str.
    """

    model: Model
    outcome: Trained | None = None
    jobs: int = 1
    classes: np.ndarray = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        if self.classes is None:
            object.__setattr__(self, "classes", np.array(label_values(self.model.labels)))

    @property
    def gap(self) -> float:
        """The certified relative gap (P - D) / max(|P|, |D|), a float.

        P and D are the primal and the dual objective: the objective of the model is at most this
        share above the optimum. nan for a model without a certificate.
        """
        if self.outcome is not None:
            return self.outcome.gap
        gap = self.model.metadata.gap
        return math.nan if gap is None else gap

    def decision_function(self, X: Any) -> np.ndarray:
        """Return the decision values of rows.

        Parameters
        ----------
        X : array, scipy sparse matrix or data frame of shape (m, d)
            Rows. Column j is the feature j + 1, or j where features begin at 0; with a precomputed
            kernel it is the kernel value with training row j.

        Returns
        -------
        ndarray of shape (m,) or (m, columns), float64
            Values f of each row. Three or more classes have a column for each pair, in LIBSVM's
            order, or for each class (sgd, ``multiclass="ovr"``), in the order of the labels.

        Raises
        ------
        ContentError
            If a value is not finite, if an array has too few columns, or values in a column beyond
            the features of the training, or if a data frame has not the features of a model of
            tables.

        Notes
        -----
        A sparse matrix may have any number of columns, as a file may.
        """
        f = decision_values(self.model, X, self.jobs)
        return f[:, 0] if f.shape[1] == 1 else f

    def predict(self, X: Any) -> np.ndarray:
        """Return the label, or the target of a regression, of each row.

        Parameters
        ----------
        X : array, scipy sparse matrix or data frame of shape (m, d)
            Rows, as in `decision_function`.

        Returns
        -------
        ndarray of shape (m,)
            Labels with the type of the array that the model was trained with; int64 or str if it
            was trained with a file or loaded; float64 targets of a regression.
        """
        model = self.model
        predicted = of_blocks(model, X, self.jobs, model.predicted, labels_only=True)
        return predicted if model.is_regression else self.classes[predicted]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probability of each class for each row.

        Parameters
        ----------
        X : array, scipy sparse matrix or data frame of shape (m, d)
            Rows, as in `decision_function`.

        Returns
        -------
        ndarray of shape (m, n_classes), float64
            Probabilities, in the order of the model's labels.

        Raises
        ------
        ModelError
            If the model has no probabilities.
        """
        if not self.model.has_class_probabilities:
            raise ModelError("the model has no probabilities: train with probability=True")
        return of_blocks(self.model, X, self.jobs, self.model.probabilities)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model file.

        Parameters
        ----------
        path : str or PathLike
            Name of the file; it is replaced as a whole or not at all.

        Raises
        ------
        OutputError, TransferError
            If the file cannot be created or written, or if it exists and is not a model.
        """
        path = os.fspath(path)
        check_replaces_model(path)
        save(self.model, path)

    def info(self) -> dict[str, Any]:
        """Return a description of the model and of its training, with the names of the log.

        Returns
        -------
        dict
            Values by the name of the property: str, bool, numbers, lists or None.
        """
        model, metadata = self.model, self.model.metadata
        lines = {
            key: one
            for key, one in metadata.lines().items()
            if not isinstance(one, float) or math.isfinite(one)
        }
        # Older models of sgd --gap have no line `certificate`: their gap has no bounds of rounding.
        # Models of other programs have no certificate.
        unrecorded = "none" if metadata.gap is None else "computed"
        return {
            **model.properties(),
            "labels": list(model.labels),
            "probabilities": model.has_probabilities,
            "conformal_rows": None if model.conformal is None else float(model.conformal.ranks[-1]),
            "index_base": model.index_base,
            "features": None if model.seen is None else len(model.seen),
            "scaling": None if model.scaling is None else model.scaling.name,
            "columns": None if model.columns is None else list(map(str, model.columns.columns)),
            "label_column": None if model.columns is None else model.columns.label,
            "version": metadata.version,
            "configuration": metadata.configuration,
            "database": metadata.database,
            **{name: lines.get(name) for name in NUMBERS},
            "certificate": lines.get("certificate", metadata.version and unrecorded),
            **{name: lines.get(name) for name in TEXTS},
        }

    def __repr__(self) -> str:
        return "\n".join(format_lines(self.info()))


def load(path: str | os.PathLike[str]) -> FittedModel:
    """Return the model in a file of randsvm, LIBSVM or LIBLINEAR.

    Parameters
    ----------
    path : str or PathLike
        Name of the model file.

    Returns
    -------
    FittedModel
        The model; it predicts with all cores.

    Raises
    ------
    ModelError
        If the file is not a model, or was altered or truncated.
    InputError
        If the file cannot be opened.
    """
    return FittedModel(load_model(os.fspath(path)), jobs=Resources().threads)


def decision_values(model: Model, X: Any, jobs: int) -> np.ndarray:
    """Return the decision values of rows in memory, (m, columns) float64; see `of_blocks`."""
    return of_blocks(model, X, jobs, lambda f: f)


def of_blocks(
    model: Model,
    X: Any,
    jobs: int,
    result: Callable[[np.ndarray], np.ndarray],
    labels_only: bool = False,
) -> np.ndarray:
    """Return what follows from the decision values of rows in memory.

    X : rows, as in `FittedModel.decision_function`; result : a function of f of a block of rows,
    since f of all rows may be large; labels_only : as for `Model.decision`. Raise ContentError as
    `decision_function` does.
    """

    def of_block(part: CsrMatrix) -> np.ndarray:
        return result(model.decision(model.rows(part), labels_only))

    X = as_table(X)
    columns = None if model.columns is None or not is_frame(X) else model.columns
    if columns is not None and not hasattr(X, "iloc"):
        import pyarrow

        X = pyarrow.table(X)
    # A data frame whose columns are the features themselves is read as an array.
    if columns is not None and _names_of(X) != columns.feature_names:
        # Imported here because few predictions are of tables.
        from randsvm.data import table

        parts = table.parts_of(X, columns, model.zero_based)
    else:
        _check_width(model, X)
        X = with_row_numbers(to_matrix(X)) if model.has_row_numbers else X
        parts = parts_of(X, model.zero_based, model.rows_at_once)
    with one_blas_thread(), ThreadPool(jobs) as pool:
        no_rows = result(np.empty((0, len(model.b))))
        return np.concatenate([no_rows, *pool.map_in_order(of_block, parts)])


def _names_of(X: Any) -> list[str]:
    """Return the names of the columns of a data frame of pandas or a table of pyarrow."""
    return list(map(str, X.columns if hasattr(X, "iloc") else X.column_names))


def _check_width(model: Model, X: Any) -> None:
    """Raise ContentError if the columns of an array are not the model's features."""
    # A sparse matrix may have any number of columns, as files of rows may.
    if is_sparse_of_scipy(X) or model.seen is None or model.has_row_numbers:
        return
    shape, width = np.shape(X), model.width
    if len(shape) != 2 or shape[1] == width:
        return
    # Columns of zeros change no decision value.
    if shape[1] < width or np.count_nonzero(np.asarray(X)[:, width:]):
        raise ContentError(f"X has {shape[1]} features, but the model expects {width}")


# ---- descriptions ------------------------------------------------------------------------------


def describe_file(path: str) -> dict[str, Any]:
    """Return `FittedModel.info` of a model file, its name as "model", and as "made" when it was
    written."""
    info, made = load(path).info(), None
    if not files.is_stream(path):
        seconds = Path(path).stat().st_mtime
        made = f"{datetime.fromtimestamp(seconds, timezone.utc):%Y-%m-%dT%H:%M:%SZ}"
    return {"model": files.display_name(path), "made": made, **info}


def format_lines(info: Mapping[str, Any]) -> list[str]:
    """Return a line for each property whose value is known: its name and its value, in columns.

    info : see `FittedModel.info`
    """
    # A training in memory has numbers of numpy, whose comparison with a list is no truth value.
    empty = {name for name, value in info.items() if isinstance(value, list) and not value}
    shown = {
        name: _format_value(value)
        for name, value in info.items()
        if value is not None and name not in empty
    }
    width = max(map(len, shown))
    return [f"{name.ljust(width)}  {text}" for name, text in shown.items()]


def _format_value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        rest = f" ... ({len(value)})" if len(value) > MAX_SHOWN_LABELS else ""
        return shlex.join(map(str, value[:MAX_SHOWN_LABELS])) + rest
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value)
