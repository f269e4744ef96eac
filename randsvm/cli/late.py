"""Modules that libraries import and commands hardly use, which are loaded at their first use."""

from __future__ import annotations

import importlib.util
import sys
import threading
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any, ClassVar

# Modules of Python that this package, its libraries and other modules of Python import.
OF_PYTHON = (
    *("bz2", "csv", "ctypes", "inspect", "ipaddress", "json", "lzma", "pickle", "pydoc", "shutil"),
    *("subprocess", "tempfile", "textwrap", "tokenize", "traceback"),
)
# numpy imports these for the docstrings that they give to compiled functions.
DOCSTRINGS = ("numpy._core._add_newdocs", "numpy._core._add_newdocs_scalars")
OF_NUMPY = ("numpy.f2py", "numpy.polynomial", "numpy.testing")
# The bindings of LIBSVM import scipy and scipy.sparse for functions that the package does not call.
# The last one, of scipy.sparse, asks numpy for every name that it has, and thereby imports numpy.ma
# and others: 90 of 240 ms (scipy 1.17, numpy 2.4).
OF_SCIPY = ("scipy", "scipy.sparse", "scipy._lib.array_api_compat.numpy")


class LateModule(ModuleType):
    """A module that is loaded when a name in it is asked for.

    `importlib.util.LazyLoader` loads a module as soon as it is imported a second time, and shows it
    incomplete to other threads (Python 3.11).
    """

    lock: ClassVar = threading.RLock()

    def __getattr__(self, name: str) -> Any:
        with self.lock:
            if not _load(self):
                return ModuleType.__getattribute__(self, name)
        return getattr(self, name)


def _load(module: ModuleType) -> bool:
    """Load a module after its package, as imports do; return whether it waited for that."""
    # The loader is taken away before it runs, as the module may ask for its own names.
    loader = vars(module).pop("late_loader", None)
    if loader is None:
        return False
    package = module.__name__.rpartition(".")[0]
    if package in sys.modules:
        _load(sys.modules[package])
    loader.exec_module(module)
    module.__class__ = ModuleType
    return True


def import_late(names: Sequence[str]) -> None:
    """Put a LateModule into sys.modules for each of these modules that is not imported yet.

    names: full names, which need not exist, as in another version of a library. If the package of a
    module is there already, the module becomes an attribute of it, as imports do.
    """
    for name in names:
        package, _, last = name.rpartition(".")
        spec = None if name in sys.modules else _find(name)
        if spec is not None and spec.loader is not None:
            module = importlib.util.module_from_spec(spec)
            vars(module)["late_loader"] = spec.loader
            module.__class__ = LateModule
            sys.modules[name] = module
            if package in sys.modules:
                setattr(sys.modules[package], last, module)


def _find(name: str) -> ModuleSpec | None:
    """Return the spec of a module. importlib.util.find_spec would import its package."""
    parts = name.split(".")
    folders = None
    for end in range(1, len(parts)):
        package = PathFinder.find_spec(".".join(parts[:end]), folders)
        if package is None:
            return None
        folders = package.submodule_search_locations
    return PathFinder.find_spec(name, folders)
