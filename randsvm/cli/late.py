"""Modules that libraries import and commands hardly use, which are loaded at their first use."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import threading
from collections.abc import Sequence
from types import ModuleType
from typing import Any, ClassVar

# Modules of Python, which this package, pathlib, shutil, numpy and scipy import.
OF_PYTHON = ("bz2", "csv", "ipaddress", "json", "lzma", "pickle", "pydoc", "subprocess", "tempfile")
# The last one, of scipy.sparse, asks numpy for every name that it has, and thereby imports numpy.ma
# and others: 90 of 240 ms (scipy 1.17, numpy 2.4).
OF_LIBRARIES = (
    "numpy.f2py",
    "numpy.polynomial",
    "numpy.testing",
    "scipy._lib.array_api_compat.numpy",
)


class LateModule(ModuleType):
    """A module that is loaded when a name in it is asked for.

    `importlib.util.LazyLoader` loads a module as soon as it is imported a second time, and shows it
    incomplete to other threads (Python 3.11).
    """

    lock: ClassVar = threading.RLock()

    def __getattr__(self, name: str) -> Any:
        # Imports and inspect ask for names that a module may lack, such as __wrapped__.
        if not name.startswith("__") or name == "__all__":
            with self.lock:
                # The loader is taken away before it runs, as the module may ask for its own names.
                loader = vars(self).pop("late_loader", None)
                if loader is not None:
                    loader.exec_module(self)
                    self.__class__ = ModuleType  # type: ignore[assignment]
                    return getattr(self, name)
                return ModuleType.__getattribute__(self, name)
        raise AttributeError(name)


def import_late(names: Sequence[str]) -> None:
    """Put modules that are not imported yet in place of those that imports would load.

    names: full names, which need not exist, as in another version of a library
    """
    for name in names:
        parent, _, last = name.rpartition(".")
        with contextlib.suppress(ModuleNotFoundError):
            spec = None if name in sys.modules else importlib.util.find_spec(name)
            if spec is not None and spec.loader is not None:
                module = importlib.util.module_from_spec(spec)
                vars(module)["late_loader"] = spec.loader
                module.__class__ = LateModule
                sys.modules[name] = module
                if parent:  # as Python does with every module of a package once it is imported
                    setattr(sys.modules[parent], last, module)
