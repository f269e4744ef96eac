"""Docstrings: how those of the package begin, and numpydoc's validation of the public ones."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields, is_dataclass

import pytest

from randsvm import api, errors, estimators, events
from randsvm.models import fitted
from randsvm.models.kernel_model import KernelModel, PairwiseModel
from randsvm.models.linear_model import LinearModel
from randsvm.models.model import Model
from randsvm.models.model_text import load

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
# Public objects of modules that have internal functions too.
OBJECTS = [Model, KernelModel, PairwiseModel, LinearModel, load]


def public_names():
    """Dotted names of the public functions, classes and methods."""
    found = []
    for module in MODULES:
        for name in listed(module):
            found.append(f"{module.__name__}.{name}")
            if inspect.isclass(getattr(module, name)):
                found += [f"{found[-1]}.{method}" for method in methods(getattr(module, name))]
    for value in OBJECTS:
        found.append(f"{value.__module__}.{value.__name__}")
        if inspect.isclass(value):
            found += [documented_name(value, method) for method in methods(value)]
    return found


def documented_name(cls, method):
    """Dotted name of the method in the first base class that documents it."""
    defining = [base for base in cls.__mro__ if method in vars(base)]
    owners = [base for base in defining if vars(base)[method].__doc__]
    owner = (owners or [cls])[0]
    return f"{owner.__module__}.{owner.__name__}.{method}"


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
    found = [(code, text) for code, text in validate(name)["errors"] if code in checks]
    assert [fault for fault in found if not is_documented_by_a_base(name, *fault)] == []


def is_documented_by_a_base(name, code, text):
    """Return whether the only undocumented parameters of a model class are fields of its bases."""
    cls = {f"{cls.__module__}.{cls.__name__}": cls for cls in OBJECTS}.get(name)
    if code != "PR01" or not inspect.isclass(cls):
        return False
    inherited = {f.name for base in cls.__bases__ if is_dataclass(base) for f in fields(base)}
    return set(re.findall(r"'(\w+)'", text)) <= inherited
