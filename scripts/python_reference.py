"""Write docs/python-reference.md from the docstrings of the public code.

    python scripts/python_reference.py

The docstrings are the source: a test fails while the page differs from them.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from numpydoc.docscrape import NumpyDocString, Parameter

from randsvm import api, errors, estimators, events
from randsvm.models.model import Model

PAGE = Path(__file__).parents[1] / "docs" / "python-reference.md"
TOP = """\
# Python reference

This page describes the public functions and classes. `python scripts/python_reference.py` writes
it from the docstrings, which `help()` shows as well. [Python](python.md) has examples.
"""
LISTS = ("Parameters", "Attributes", "Returns", "Raises")
TEXTS = ("Notes", "References")
# Classes whose methods are explained in full. Other ones only list theirs.
EXPLAINED = {api.FittedModel, Model}
# Characters that begin or end a form of Markdown outside of code.
MARKUP = re.compile(r"(`[^`]+`)|([*_<>|\\])")


def text(lines: Sequence[str]) -> str:
    """Return the lines of a docstring as paragraphs and lists of Markdown."""
    joined = re.sub(r"``(.+?)``", r"`\1`", "\n".join(lines), flags=re.DOTALL)
    escaped = MARKUP.sub(lambda found: found[1] or f"\\{found[2]}", joined)
    paragraphs = re.split(r"\n\s*\n|\n(?=[-\d]+[.]? )", escaped)
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def definitions(parameters: Iterable[Parameter]) -> str:
    """Return a list of names with their types and descriptions."""
    return "\n".join(_definition(each) for each in parameters)


def _definition(parameter: Parameter) -> str:
    heads = [f"`{parameter.name}`"] if parameter.name else []
    heads += [f"*{text([parameter.type])}*"] if parameter.type else []
    return f"- {', '.join(heads)}: {' '.join(text(parameter.desc).split())}"


def sections(documented: NumpyDocString) -> Iterator[str]:
    """Return the parts of a docstring after its first line."""
    if documented["Extended Summary"]:
        yield text(documented["Extended Summary"])
    for title in LISTS:
        if documented[title]:
            yield f"**{title}**"
            yield definitions(documented[title])
    for title in TEXTS:
        if documented[title]:
            yield f"**{title}**"
            yield text(documented[title])
    if documented["See Also"]:
        names = [name for group, _ in documented["See Also"] for name, _ in group]
        yield "See also: " + ", ".join(f"[`{name}`](#{name.lower()})" for name in names) + "."


def signature(name: str, value: Any) -> str:
    """Return a call with the names and the defaults of the parameters."""
    every = inspect.signature(value).parameters.values()
    parameters = [each for each in every if each.name != "self"]
    spelled = [_spelled(each) for each in parameters]
    named = [each.kind is inspect.Parameter.KEYWORD_ONLY for each in parameters]
    if any(named):
        spelled.insert(named.index(True), "*")
    line = f"{name}({', '.join(spelled)})"
    if len(line) <= 100:
        return line
    return f"{name}(\n" + "".join(f"    {each},\n" for each in spelled) + ")"


def _spelled(parameter: inspect.Parameter) -> str:
    star: dict[Any, str] = {
        inspect.Parameter.VAR_POSITIONAL: "*",
        inspect.Parameter.VAR_KEYWORD: "**",
    }
    default = parameter.default
    if default is inspect.Parameter.empty:
        return star.get(parameter.kind, "") + parameter.name
    return f"{parameter.name}={default.__name__ if callable(default) else repr(default)}"


def own_methods(cls: type) -> dict[str, object]:
    """Return the public methods and properties that a class of this package defines."""
    names = sorted(
        {
            name
            for base in cls.__mro__
            if base.__module__.startswith("randsvm")
            for name, value in vars(base).items()
            if not name.startswith("_")
            and name not in vars(base).get("_fields", ())  # of a named tuple
            and not name.endswith("_request")  # of scikit-learn
            and (inspect.isfunction(value) or isinstance(value, property | classmethod))
        }
    )
    return {name: getattr(cls, name) for name in names if hasattr(cls, name)}


def method(name: str, value: Any) -> str:
    """Return a method or a property as an entry of a list: its call and its first line."""
    call = f"{name}" if isinstance(value, property) else signature(name, value)
    return f"- `{' '.join(call.split())}`: {' '.join(parsed(value)['Summary'])}"


def parsed(value: object) -> NumpyDocString:
    return NumpyDocString(inspect.getdoc(value) or "")


def entry(name: str, value: Any, level: int = 3) -> str:
    """Return a function or a class as a part of the page."""
    documented = parsed(value)
    parts = [f"{'#' * level} {name}"]
    if not isinstance(value, property):
        parts.append(f"```text\n{signature(name, value)}\n```")
    parts += [text(documented["Summary"]), *sections(documented)]
    if inspect.isclass(value):
        methods = own_methods(value)
        if value in EXPLAINED:
            parts += [entry(f"{name}.{each}", one, level + 1) for each, one in methods.items()]
        elif methods:
            parts += ["**Methods**", "\n".join(method(*each) for each in methods.items())]
    return "\n\n".join(parts)


def error(name: str, value: type[errors.RandsvmError]) -> str:
    """Return an error as an entry of a list: its bases, its docstring and its exit code."""
    bases = ", ".join(base.__name__ for base in value.__bases__)
    documented = parsed(value)
    meaning = text([*documented["Summary"], *documented["Extended Summary"]])
    code = "" if "exit code" in meaning else f" The exit code is {value.exit_code}."
    return f"- `{name}({bases})`: {meaning}{code}"


def public_classes(module: ModuleType) -> dict[str, type]:
    """Return the public classes that a module defines, in its order."""
    return {
        name: value
        for name, value in vars(module).items()
        if inspect.isclass(value)
        and value.__module__ == module.__name__
        and not name.startswith("_")
    }


def page() -> str:
    """Return the whole page."""
    training = ("train_randsvm", "train_osuna", "train_sgd")
    functions = (*training, "predict", "certify", "export", "importance", "explain", "load")
    parts = [
        TOP.rstrip(),
        "## Functions",
        *(entry(name, getattr(api, name)) for name in functions),
        "## Data and models",
        *(entry(name, getattr(api, name)) for name in ("Arrays", "FittedModel")),
        "## Estimators",
        *(entry(name, getattr(estimators, name)) for name in estimators.__all__),
        "## Events",
        text([(inspect.getdoc(events) or "").partition("\n\n")[0]]),
        *(entry(name, value) for name, value in public_classes(events).items()),
        "## Errors",
        text([(inspect.getdoc(errors) or "").partition("\n\n")[0]]),
        "\n".join(error(name, value) for name, value in public_classes(errors).items()),
    ]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
