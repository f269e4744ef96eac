"""randsvm: LIBSVM's support vector machines, faster on large files, with a certificate.

    from randsvm import SVC
    machine = SVC(gamma=5).fit(X, y)    # scikit-learn's interface, with a certified gap

SVC, NuSVC, SVR, NuSVR, OneClassSVM, LinearSVC and LinearSVR need scikit-learn.
"""

import importlib
from typing import Any

__version__ = "0.1.0"

# Name -> the module that has it.
MODULES = {
    "Arrays": "data.in_memory",
    "certify": "training.certification",
    "explain": "models.shapley",
    "export": "models.export",
    "load": "models.fitted",
    "predict": "models.prediction",
    "train": "api",
    "SVC": "estimators",
    "SVR": "estimators",
    "LinearSVC": "estimators",
    "LinearSVR": "estimators",
    "NuSVC": "estimators",
    "NuSVR": "estimators",
    "OneClassSVM": "estimators",
}

__all__ = [*MODULES]


def __getattr__(name: str) -> Any:
    """Import a name at its first use: the commands start in a tenth of a second."""
    if name not in MODULES:
        raise AttributeError(f"module 'randsvm' has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(f"randsvm.{MODULES[name]}"), name)
    except ImportError as error:
        if (error.name or "").partition(".")[0] != "sklearn":
            raise
        message = f"randsvm.{name} needs scikit-learn 1.6 or newer: pip install scikit-learn"
        raise ImportError(message, name=error.name) from None


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
