"""What a command or a Python user calls: paths and parameters in, a model file out."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy

from randsvm.events import check

# Parts of numpy that it imports only when somebody asks for them.
LAZY = {"ctypeslib", "f2py", "ma", "polynomial", "testing"}


@contextlib.contextmanager
def _without_lazy_parts() -> Iterator[None]:
    """Within the block numpy does not list its lazy parts.

    scipy, while it is imported, looks at every name that numpy lists. That would import numpy.f2py,
    numpy.testing and others, which nobody needs here: 70 of 240 ms (scipy 1.17, numpy 2.4).
    """
    listed, every = numpy.__dir__, numpy.__all__
    numpy.__dir__ = lambda: [name for name in listed() if name not in LAZY]  # type: ignore[method-assign]
    numpy.__all__ = [name for name in every if name not in LAZY]
    try:
        yield
    finally:
        numpy.__dir__, numpy.__all__ = listed, every  # type: ignore[method-assign]


with _without_lazy_parts():
    import scipy.sparse  # noqa: F401

    check()
    from randsvm.models.prediction import predict
    from randsvm.parameters.prediction import PredictParams
    from randsvm.training.job import Job
    from randsvm.training.kernel_svm import train_osuna, train_randsvm
    from randsvm.training.linear_svm import train_sgd

check()

__all__ = ["Job", "PredictParams", "predict", "train_osuna", "train_randsvm", "train_sgd"]
