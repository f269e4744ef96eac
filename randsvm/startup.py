"""Imports of large libraries: undisturbed, and of what is used alone."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator

SIGNALS = {signal.SIGINT, signal.SIGTERM}
# What numpy itself leaves until somebody asks for it.
LEFT_FOR_LATER = {"ctypeslib", "f2py", "ma", "polynomial", "testing"}


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Signals wait for the end of the block: many a library catches every exception while it is
    imported, and one that stands for a signal would be lost."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def import_sparse() -> None:
    """Import scipy.sparse in a quarter of the time.

    scipy looks at each public name of numpy on its way, which loads numpy.f2py, numpy.testing and
    others (scipy 1.17, numpy 2.4; 70 of 240 ms). Meanwhile these names are hidden; whoever asks
    for them later gets them as ever.
    """
    import numpy

    listed, every = numpy.__dir__, numpy.__all__
    numpy.__dir__ = lambda: [name for name in listed() if name not in LEFT_FOR_LATER]  # type: ignore[method-assign]
    numpy.__all__ = [name for name in every if name not in LEFT_FOR_LATER]
    try:
        import scipy.sparse  # noqa: F401
    finally:
        numpy.__dir__, numpy.__all__ = listed, every  # type: ignore[method-assign]
