"""Read a model file of ours, of LIBSVM's or of LIBLINEAR's."""

from __future__ import annotations

from randsvm import files
from randsvm.models import header
from randsvm.models.kernel_model import KernelModel
from randsvm.models.linear_model import LinearModel
from randsvm.models.model import Model


def load(path: str) -> Model:
    """The model in the file `path` (`-`: standard input).

    Raises ModelError, DataError, InputError.
    """
    content, name = files.read_whole(path), files.display_name(path)
    if header.format_of(content) == "liblinear":
        return LinearModel.parse(content, name)
    return KernelModel.parse(content, name)
