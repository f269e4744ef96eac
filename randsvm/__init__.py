"""randsvm: support vector machines on svmlight files too large or too noisy for LIBSVM alone.

    from randsvm import SVC
    machine = SVC(gamma=5).fit(X, y)    # scikit-learn's interface, with a certified gap

SVC, NuSVC, SVR, NuSVR, OneClassSVM, LinearSVC and LinearSVR need scikit-learn.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

__all__ = [
    "SVC",
    "SVR",
    "Arrays",
    "LinearSVC",
    "LinearSVR",
    "NuSVC",
    "NuSVR",
    "OneClassSVM",
    "certify",
    "explain",
    "export",
    "load",
    "predict",
    "train",
    "train_osuna",
    "train_randsvm",
    "train_sgd",
]

ESTIMATORS = {"SVC", "SVR", "LinearSVC", "LinearSVR", "NuSVC", "NuSVR", "OneClassSVM"}


def __getattr__(name: str) -> Any:
    """Import a name at its first use: the commands start in a tenth of a second."""
    if name not in __all__:
        raise AttributeError(f"module 'randsvm' has no attribute {name!r}")
    module = "randsvm.estimators" if name in ESTIMATORS else "randsvm.api"
    try:
        return getattr(importlib.import_module(module), name)
    except ImportError as error:
        if (error.name or "").partition(".")[0] != "sklearn":
            raise
        message = f"randsvm.{name} needs scikit-learn 1.6 or newer: pip install scikit-learn"
        raise ImportError(message, name=error.name) from None


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
