"""What a command or a Python user calls: rows and parameters in, a model out.

Each function imports the training that it needs: the others would take longer than a small run.
"""

from __future__ import annotations

import contextlib
import functools
import numbers
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy

from randsvm.events import Watch, check, silent

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
    from randsvm.data.in_memory import Arrays
    from randsvm.models.fitted import FittedModel, load
    from randsvm.models.prediction import predict
    from randsvm.parameters import rounds, run, sgd, svm
    from randsvm.parameters.option import BALANCED, gather, grid, options
    from randsvm.training.job import Job

check()

__all__ = [
    "Arrays",
    "FittedModel",
    "Job",
    "load",
    "predict",
    "train_osuna",
    "train_randsvm",
    "train_sgd",
]

Data = Arrays | str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
# Each class of an algorithm's parameters, and its object or None.
Groups = dict[type, Any]


def train_randsvm(
    data: Data,
    model: str | os.PathLike[str] | None = None,
    params: svm.Params | None = None,
    algorithm: rounds.RandsvmParams | None = None,
    job: Job | None = None,
    watch: Watch = silent,
    **given: Any,
) -> FittedModel:
    """Train a kernel machine by random sampling of violators.

    data: the name of an svmlight file, a pattern of names, several names, or Arrays(X, y). model: a
    file to write; None: none. watch: called with each record of randsvm.events, Progress among
    them. given, in place of
    params, algorithm and job: the fields of Params, RandsvmParams, StopParams, Limits, Run, Search
    and Resources by name, as gamma=5, gap=0.001, C=[1, 8] (searched), weights={"spam": 10} or
    "balanced", time_limit=60 (seconds), memory=2**30 (bytes); and warm_start, a model's file.

    Raises the errors of randsvm.errors, which for bad values are ValueErrors as well, and TypeError
    for a name that there is not.
    """
    from randsvm.training import kernel_svm

    groups: Groups = {svm.Params: params, rounds.RandsvmParams: algorithm}
    return _train(kernel_svm.train_randsvm, groups, STOPPED, (data, model), job, watch, given)


def train_osuna(
    data: Data,
    model: str | os.PathLike[str] | None = None,
    params: svm.Params | None = None,
    algorithm: rounds.OsunaParams | None = None,
    job: Job | None = None,
    watch: Watch = silent,
    *,
    closest: bool = False,
    **given: Any,
) -> FittedModel:
    """Train a kernel machine by decomposition with a working set of fixed size; closest: of the
    closest points. Otherwise as train_randsvm."""
    from randsvm.training import kernel_svm

    call = functools.partial(kernel_svm.train_osuna, closest=closest)
    groups: Groups = {svm.Params: params, rounds.OsunaParams: algorithm}
    return _train(call, groups, STOPPED, (data, model), job, watch, given)


def train_sgd(
    data: Data,
    model: str | os.PathLike[str] | None = None,
    params: sgd.SgdParams | None = None,
    job: Job | None = None,
    watch: Watch = silent,
    **given: Any,
) -> FittedModel:
    """Train a linear machine by stochastic gradient descent. Otherwise as train_randsvm."""
    from randsvm.training import linear_svm

    groups: Groups = {sgd.SgdParams: params}
    return _train(linear_svm.train_sgd, groups, COMMON, (data, model), job, watch, given)


# The options of a job, besides what is searched.
COMMON: tuple[type, ...] = (run.Limits, run.Run, run.Resources)
STOPPED: tuple[type, ...] = (rounds.StopParams, *COMMON)
WARM_START = "warm_start"


def _train(
    call: Callable[..., Any],
    groups: Groups,
    common: tuple[type, ...],
    files: tuple[Data, str | os.PathLike[str] | None],
    job: Job | None,
    watch: Watch,
    given: Mapping[str, Any],
) -> FittedModel:
    """Make objects of what was given by name, call once."""
    if given and (job is not None or any(groups.values())):
        raise TypeError(f"give {', '.join(given)} in the objects of parameters that are given")
    values = _values(given, [*groups, *common, run.Search], WARM_START if common is STOPPED else "")
    params = [gather(group, values) if own is None else own for group, own in groups.items()]
    job = job or _job(list(groups), common, values)
    kept: list[Any] = []
    data, model = files
    source = data if isinstance(data, Arrays) else _paths(data)
    target = None if model is None else os.fspath(model)
    outcome = call(source, target, *params, replace(job, keep=kept.append), watch)
    fitted = kept[0]
    if isinstance(data, Arrays) and data.boolean:
        fitted = replace(fitted, values=tuple(map(bool, fitted.values)))
    return FittedModel(fitted, outcome, job.resources.workers)


def _paths(
    data: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
) -> str | tuple[str, ...]:
    if isinstance(data, str | os.PathLike):
        return os.fspath(data)
    return tuple(os.fspath(path) for path in data)


def _job(groups: list[type], common: tuple[type, ...], values: dict[str, Any]) -> Job:
    stop = gather(rounds.StopParams, values) if rounds.StopParams in common else rounds.StopParams()
    search = run.Search(values.get("folds"), values.get("subset"), grid(groups, values))
    old = values.get(WARM_START)
    left_open = [f.name for f in fields(groups[0]) if f.name not in values] if old else []
    resources = gather(run.Resources, values)
    limits, own = gather(run.Limits, values), gather(run.Run, values)
    return Job(stop, limits, own, resources, old, search, frozenset(left_open))


def _values(given: Mapping[str, Any], groups: Sequence[type], extra: str) -> dict[str, Any]:
    """The values as parameter classes have them. Raises TypeError for a name that none has."""
    specs = {f.name: spec for group in groups for f, spec in options(group)}
    known = [*specs, *filter(None, [extra])]
    for name in given:
        if name not in known:
            import difflib

            near = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise TypeError(f"there is no option {name!r}{hint}")
    return {
        name: _value(specs[name].kind if name in specs else "path", value)
        for name, value in given.items()
    }


def _value(kind: str | tuple[str, ...], value: Any) -> Any:
    if kind == "weights":
        pairs = {BALANCED: 1.0} if value == BALANCED else dict(value)
        return tuple((str(label), float(weight)) for label, weight in pairs.items())
    if kind == "floats" and isinstance(value, Sequence) and not isinstance(value, str):
        return tuple(map(float, value))
    if kind in ("float", "floats", "gap") and isinstance(value, numbers.Real):
        return float(value)
    return os.fspath(value) if isinstance(value, os.PathLike) else value
