"""Imports scipy.sparse in a quarter of the time: every command starts with it.

scipy looks at each public name of numpy on its way, which loads numpy.f2py, numpy.testing and
others that numpy itself leaves until they are asked for (scipy 1.17, numpy 2.4; 70 of 240 ms).
Meanwhile these names are hidden; whoever asks for them later gets them as ever.
"""

from __future__ import annotations

import numpy

LEFT_FOR_LATER = {"ctypeslib", "f2py", "ma", "polynomial", "testing"}


def _import_sparse() -> None:
    listed, every = numpy.__dir__, numpy.__all__
    numpy.__dir__ = lambda: [name for name in listed() if name not in LEFT_FOR_LATER]  # type: ignore[method-assign]
    numpy.__all__ = [name for name in every if name not in LEFT_FOR_LATER]
    try:
        import scipy.sparse  # noqa: F401
    finally:
        numpy.__dir__, numpy.__all__ = listed, every  # type: ignore[method-assign]


_import_sparse()
