"""Docstrings: how those of the package begin, and numpydoc's validation of the public ones."""

import inspect

import pytest
from model_files import fitted

from randsvm import api, errors, estimators, events

validate = pytest.importorskip("numpydoc.validate").validate

# numpydoc's numbers: a docstring everywhere, with the sections in order (GL); a summary of one
# sentence on one line (SS); every parameter with a type and a description, and no others (PR);
# every returned value (RT). The order of parameters is left to scikit-learn's estimators (PR03).
CHECKS = {
    "GL03", "GL05", "GL06", "GL07", "GL08", "GL09",
    "SS01", "SS02", "SS03", "SS04", "SS05", "SS06",
    "PR01", "PR02", "PR04", "PR05", "PR06", "PR07", "PR08", "PR09", "PR10",
    "RT01", "RT02", "RT03", "RT04", "RT05",
}  # fmt: skip
MODULES = [api, errors, estimators, events, fitted]


def public_names():
    """Dotted names of the public functions, classes and methods."""
    found = []
    for module in MODULES:
        for name in listed(module):
            found.append(f"{module.__name__}.{name}")
            if inspect.isclass(getattr(module, name)):
                found += [f"{found[-1]}.{method}" for method in methods(getattr(module, name))]
    return found


def listed(module):
    names = getattr(module, "__all__", None) or [
        name
        for name, value in vars(module).items()
        if getattr(value, "__module__", "") == module.__name__ and not name.startswith("_")
    ]
    return [name for name in names if inspect.getmodule(getattr(module, name)) is not None]


def is_event(name):
    value = getattr(events, name.removeprefix("randsvm.events."), None)
    return hasattr(value, "_fields")


def methods(cls):
    """Public methods and properties that a class of this package defines, inherited ones too."""
    return sorted(
        name
        for base in cls.__mro__
        if base.__module__.startswith("randsvm")
        for name, value in vars(base).items()
        if not name.startswith("_")
        and name not in vars(base).get("_fields", ())  # of a named tuple
        and not name.endswith("_request")  # of scikit-learn
        and (callable(getattr(cls, name)) or isinstance(value, property))
    )


@pytest.mark.parametrize("name", sorted(set(public_names())))
def test_numpydoc_finds_no_fault(name):
    checks = CHECKS - {"PR01"} if is_event(name) else CHECKS
    assert [error for error in validate(name)["errors"] if error[0] in checks] == []
