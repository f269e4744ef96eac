"""What a command or a Python user calls: rows and parameters in, a model out.

Each function imports the training that it needs: the others would take longer than a small run.
"""

from __future__ import annotations

import numbers
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from randsvm.data.in_memory import Arrays, own_labels
from randsvm.events import Watch, check, silent
from randsvm.models.fitted import FittedModel, load
from randsvm.models.prediction import predict
from randsvm.parameters.option import BALANCED, gather, grid, options
from randsvm.parameters.rounds import OsunaParams, RandsvmParams, StopParams
from randsvm.parameters.run import ALGORITHMS, COMMON, WARM_START, Limits, Resources, Run, Search
from randsvm.parameters.sgd import SgdParams
from randsvm.parameters.svm import Params
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


def train_randsvm(
    data: Data,
    model: str | os.PathLike[str] | None = None,
    params: Params | None = None,
    algorithm: RandsvmParams | None = None,
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
    return _train("randsvm", data, model, (params, algorithm), job, watch, given)


def train_osuna(
    data: Data,
    model: str | os.PathLike[str] | None = None,
    params: Params | None = None,
    algorithm: OsunaParams | None = None,
    job: Job | None = None,
    watch: Watch = silent,
    *,
    closest: bool = False,
    **given: Any,
) -> FittedModel:
    """Train a kernel machine by decomposition with a working set of fixed size; closest: of the
    closest points. Otherwise as train_randsvm."""
    name = "osuna-closest" if closest else "osuna"
    return _train(name, data, model, (params, algorithm), job, watch, given)


def train_sgd(
    data: Data,
    model: str | os.PathLike[str] | None = None,
    params: SgdParams | None = None,
    job: Job | None = None,
    watch: Watch = silent,
    **given: Any,
) -> FittedModel:
    """Train a linear machine by stochastic gradient descent. Otherwise as train_randsvm."""
    return _train("sgd", data, model, (params,), job, watch, given)


def _train(
    name: str,
    data: Data,
    model: str | os.PathLike[str] | None,
    objects: tuple[Any, ...],
    job: Job | None,
    watch: Watch,
    given: Mapping[str, Any],
) -> FittedModel:
    """Make the parameters and the job out of the options in `given`, and train.

    objects: the parameters of the model and of the algorithm where the caller made them; None: as
    in `given`.
    """
    if given and (job is not None or any(objects)):
        raise TypeError(f"give {', '.join(given)} in the objects of parameters that are given")
    groups = ALGORITHMS[name]
    values = _values(given, (*groups, *COMMON))
    params, *algorithm = [
        own or gather(group, values) for own, group in zip(objects, groups, strict=False)
    ]
    kept: list[Any] = []
    job = replace(job or _job(groups, values), keep=kept.append)
    source = data if isinstance(data, Arrays) else _paths(data)
    target = None if model is None else os.fspath(model)
    outcome = _training(name, params, *algorithm)(source, target, params, job, watch)
    (trained,) = kept
    classes = None
    if isinstance(data, Arrays) and not trained.finds_novelties:
        classes = own_labels(data, trained.labels)
    return FittedModel(trained, outcome, job.resources.workers, classes)


def _training(name: str, params: Any, algorithm: Any = None) -> Callable[..., Any]:
    """Import what trains by this algorithm: all of them take longer than a small run."""
    if name == "sgd" and params.update is not None:
        from randsvm.training.online import update

        return update
    from randsvm.training.run import train

    if name == "sgd":
        from randsvm.training import linear_machine

        return partial(train, linear_machine.prepare)
    from randsvm.training import kernel_machine

    return partial(train, partial(kernel_machine.prepare, name, algorithm))


def _paths(
    data: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
) -> str | tuple[str, ...]:
    if isinstance(data, str | os.PathLike):
        return os.fspath(data)
    return tuple(os.fspath(path) for path in data)


def _job(groups: Sequence[type], values: Mapping[str, Any]) -> Job:
    stop = gather(StopParams, values) if StopParams in groups else StopParams()
    return Job(
        stop=stop,
        limits=gather(Limits, values),
        run=gather(Run, values),
        resources=gather(Resources, values),
        warm_start=values.get(WARM_START),
        search=Search(
            values.get("folds"),
            values.get("subset"),
            grid(groups, values),
            values.get(EARLIER, tuple),
        ),
        given=frozenset(values),
    )


# The arguments that no parameter class has as an option.
EARLIER = "earlier"


def _values(given: Mapping[str, Any], groups: Sequence[type]) -> dict[str, Any]:
    """The values as parameter classes have them. Raises TypeError for a name that none has."""
    kinds = {f.name: spec.kind for group in groups for f, spec in options(group)}
    kinds |= {EARLIER: ""}
    if StopParams in groups:
        kinds |= {WARM_START: "path"}
    for name in given:
        if name not in kinds:
            import difflib

            near = difflib.get_close_matches(name, kinds, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise TypeError(f"there is no option {name!r}{hint}")
    return {name: _value(kinds[name], value) for name, value in given.items()}


def _value(kind: str | tuple[str, ...], value: Any) -> Any:
    if kind == "weights":
        pairs = {BALANCED: 1.0} if value == BALANCED else value
        pairs = pairs.items() if isinstance(pairs, Mapping) else pairs
        return tuple((str(label), float(weight)) for label, weight in pairs)
    if kind == "floats" and isinstance(value, Sequence) and not isinstance(value, str):
        return tuple(map(float, value))
    if kind in ("float", "floats", "gap") and isinstance(value, numbers.Real):
        return float(value)
    return os.fspath(value) if isinstance(value, os.PathLike) else value
