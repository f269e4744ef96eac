"""Read and write model files of this package, of LIBSVM or of LIBLINEAR."""

from __future__ import annotations

import contextlib

from randsvm import files
from randsvm.errors import ParameterError, RandsvmError
from randsvm.models.model import Model
from randsvm.models.model_text import format_of, split_trailer


def check_is_not_model(path: str, order: str) -> None:
    """Raise ParameterError if the file `path` is a model instead of data.

    order : the files of the command in the right order, for the message.
    """
    head = b""
    with contextlib.suppress(OSError):  # the reader of the data reports it
        head = files.first_bytes(path)
    if path != files.STANDARD and format_of(head) is not None:
        raise ParameterError(f"{path} is a model, not data: the order is {order}")


def check_replaces_model(path: str) -> None:
    """Raise OutputError if the file `path` exists and has other content than a model."""
    files.check_file_type(path, "a model", lambda head: format_of(head) is not None)


def configuration_and_gap(path: str) -> tuple[str, float] | None:
    """Return the configuration and the gap in the trailer of a model file.

    None if the file is missing, not regular or damaged, or if the model has no certified gap.
    """
    lines = None
    if files.size_of(path):
        with contextlib.suppress(RandsvmError):
            lines = split_trailer(files.read_whole(path), path)[1]
    gap = (lines or {}).get("gap")
    return (lines["configuration"], gap) if lines and isinstance(gap, float) else None


def load(path: str, float64: bool = False) -> Model:
    """Return the model in a file.

    Parameters
    ----------
    path : str
        Name of the file; "-" is standard input.
    float64 : bool, default=False
        Whether feature values are float64 even if the training rounded them to float32.

    Returns
    -------
    Model
        A KernelModel, PairwiseModel or LinearModel.

    Raises
    ------
    ModelError, DataError
        If the file is not a model, or was altered or truncated.
    InputError
        If the file cannot be opened.
    """
    # Only the module of this format is imported: an import takes as long as reading a small file.
    content, name = files.read_whole(path), files.display_name(path)
    if format_of(content) == "liblinear":
        from randsvm.models import linear_model

        return linear_model.read(content, name)
    from randsvm.models import libsvm_format

    return libsvm_format.read(content, name, float64)


def save(model: Model, path: str) -> None:
    """Write a model in the format of LIBSVM or LIBLINEAR.

    A model that their formats cannot express is written in a layout that their programs refuse.

    Parameters
    ----------
    model : Model
        The model.
    path : str
        Name of the file; it is replaced as a whole or not at all.

    Raises
    ------
    OutputError, TransferError
        If the file cannot be created or written.
    """
    from randsvm.models import linear_model

    if isinstance(model, linear_model.LinearModel):
        linear_model.write(model, path)
        return
    from randsvm.models import libsvm_format
    from randsvm.models.kernel_model import KernelModel

    assert isinstance(model, KernelModel)
    libsvm_format.write(model, path)
