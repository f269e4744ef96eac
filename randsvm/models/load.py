"""Read a model file of ours, of LIBSVM's or of LIBLINEAR's."""

from __future__ import annotations

import contextlib
from math import nan

from randsvm import files
from randsvm.errors import ParameterError, RandsvmError
from randsvm.models import header
from randsvm.models.metadata import split_trailer
from randsvm.models.model import Model


def refuse_as_data(path: str, order: str) -> None:
    """Raise ParameterError if what was given as data is a model; order: of the files."""
    head = b""
    with contextlib.suppress(OSError):  # what cannot be opened is said by who reads it
        head = files.head_of(path)
    if path != files.STANDARD and header.format_of(head) is not None:
        raise ParameterError(f"{path} is a model, not data: the order is {order}")


def certified(path: str) -> tuple[str, float] | None:
    """The configuration and the gap of the model in a regular file, by its trailer alone; None:
    there is no such file, it is damaged, or it certifies nothing."""
    metadata: dict[str, str] | None = None
    if files.size_of(path):
        with contextlib.suppress(RandsvmError):
            metadata = split_trailer(files.read_whole(path), path)[1]
    gap = nan
    with contextlib.suppress(ValueError):
        gap = float((metadata or {}).get("gap", "nan"))
    return None if metadata is None or gap != gap else (metadata.get("configuration", ""), gap)


def load(path: str) -> Model:
    """The model in the file `path` (`-`: standard input).

    Raises ModelError, DataError, InputError.
    """
    # One of them alone is needed, and the other takes as long as to read a small file.
    content, name = files.read_whole(path), files.display_name(path)
    if header.format_of(content) == "liblinear":
        from randsvm.models.linear_model import LinearModel

        return LinearModel.parse(content, name)
    from randsvm.models import kernel_model

    return kernel_model.parse(content, name)
