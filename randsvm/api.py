"""Train models: the function of the Python interface, which the command uses too."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from randsvm.errors import ParameterError
from randsvm.events import Trained, Watch, check, silent
from randsvm.parameters.option import grid, make_parameters, options
from randsvm.parameters.rounds import StopParams
from randsvm.parameters.run import (
    ALGORITHMS,
    COMMON,
    WARM_START,
    DataParams,
    Limits,
    Resources,
    Search,
)
from randsvm.parameters.values import Kind, Path

if TYPE_CHECKING:
    from randsvm.data.dataset import Source
    from randsvm.data.in_memory import Arrays
    from randsvm.models.fitted import FittedModel
    from randsvm.models.model import Model
    from randsvm.training.job import Job
    from randsvm.training.run import Trainer

    # A data frame has no type that is known without pandas or pyarrow.
    Data: TypeAlias = Arrays | str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | Any

check()


def train(
    data: Data,
    model: str | os.PathLike[str] | None = None,
    algorithm: str = "randsvm",
    watch: Watch = silent,
    **options: Any,
) -> FittedModel:
    """Train a model, as the command randsvm-train does.

    Parameters
    ----------
    data : str, PathLike, sequence of these, Arrays, or data frame
        Name of an svmlight file, a pattern of names, several names, or rows in memory. Files may be
        compressed; "-" is standard input. A data frame of pandas or a table of pyarrow is read as a
        file of a table, with the option ``label_column``.
    model : str or PathLike, optional
        Model file to write. None writes no file.
    algorithm : {"randsvm", "osuna", "osuna-closest", "sgd"}, default="randsvm"
        Kernel machines by random sampling of violators or by decomposition, or a linear machine by
        stochastic gradient descent.
    watch : callable, default=silent
        Called with each event of `randsvm.events`.
    **options : object
        Options by the long names of the command line: fields of KernelParams and RandsvmParams or
        OsunaParams, or of SgdParams, and of StopParams, Limits, DataParams, Search and Resources:
        ``gamma=5``, ``gap=0.001``, ``C=[1, 8]`` (a list is searched), ``weights={"spam": 10}`` or
        ``weights="balanced"``, ``time_limit=60`` (seconds), ``memory=2**30`` (bytes). A word of
        the command line is a value, too: ``time_limit="10m"``, ``memory="1G"``. Also
        ``warm_start``, or for sgd ``update``, the name of a model file to start from, and
        ``earlier``, a function that returns `tried` records of earlier searches.

    Returns
    -------
    FittedModel
        The model and how its training ended.

    Raises
    ------
    ParameterError
        If a value is out of its bounds or contradicts another value. It is a ValueError.
    DataError, ContentError
        If the rows are unusable. Both are ValueErrors.
    InputError, OutputError, TransferError
        If a file cannot be opened, created, read or written.
    GapError
        If the gap is above `require_gap`, or if the run ended early and the existing file `model`
        has a smaller gap; the new model is then in another file.
    OutOfTimeError
        If `time_limit` passes before there is a model.
    TypeError
        If a name in `options` is not an option.

    Notes
    -----
    Training of kernel machines ends at the relative gap ``(P - D) / max(|P|, |D|)`` of the primal
    and dual objectives: P of the model is within this share of the optimum. With `support_bound`,
    or ``gap="none"``, it ends by the rule of the paper. sgd minimises ``lambda/2 |w|^2 + mean
    loss`` with ``C = 1/(lambda n)`` for n rows.

    On an error the file `model` is unchanged, except that after Interrupted or ClusterError the
    best model so far, if there is one, is written.

    References
    ----------
    Kumar, Bhattacharyya, Hariharan, "A Randomized Algorithm for Large Scale Support Vector
    Learning", NIPS 2007 (randsvm). Osuna, Freund, Girosi, AI Memo 1602, 1997 (osuna). Mostefaoui,
    Zaou, "SVM: Reduction of Learning Time" (osuna-closest).
    """
    if algorithm not in ALGORITHMS:
        raise ParameterError(f"expected algorithm {', '.join(ALGORITHMS)}, found {algorithm!r}")
    params, *own, job = _parameters(algorithm, data, options)
    source, target = _source(data), None if model is None else os.fspath(model)
    # Only the modules of training that the algorithm needs are imported.
    if algorithm == "sgd":
        from randsvm.training.linear_machine import LinearTrainer, update

        if params.update is not None:
            return _fitted(data, *update(source, target, params, job, watch), job)
        trainer: Trainer[Any] = LinearTrainer(algorithm, job)
    else:
        from randsvm.training.kernel_machine import KernelTrainer

        trainer = KernelTrainer(algorithm, job, *own)
    from randsvm.training import run

    return _fitted(data, *run.train(trainer, source, target, params, watch), job)


def _parameters(name: str, data: Data, given: Mapping[str, Any]) -> list[Any]:
    """Return the parameters of the model, those of the algorithm if it has any, and the job.

    name: a key of ALGORITHMS
    given: options by name
    """
    from randsvm.data.columns import is_frame

    groups = ALGORITHMS[name]
    # Files for the model of a frame have its types of columns.
    own_format = {"format": "parquet"} if is_frame(data) else {}
    values = _parameter_values({**own_format, **given}, (*groups, *COMMON))
    own: list[Any] = [make_parameters(one, values) for one in groups if one is not StopParams]
    return [*own, _job(groups, values)]


def _source(data: Data) -> Source:
    from randsvm.data.columns import Frame, is_frame
    from randsvm.data.in_memory import Arrays

    if isinstance(data, Arrays):
        return data
    if is_frame(data):
        return Frame(data)
    if isinstance(data, str | os.PathLike):
        return os.fspath(data)
    return tuple(os.fspath(path) for path in data)


def _fitted(data: Data, trained: Model, outcome: Trained, job: Job) -> FittedModel:
    """Return the model with the labels of arrays as the caller gave them."""
    from randsvm.data.in_memory import Arrays, original_labels
    from randsvm.models.fitted import FittedModel

    classes: Any = None
    if isinstance(data, Arrays) and not trained.is_one_class:
        classes = original_labels(data, trained.labels)
    return FittedModel(trained, outcome, job.resources.workers, classes)


def _job(groups: Sequence[type], values: Mapping[str, Any]) -> Job:
    from randsvm.training.job import Job

    stop = make_parameters(StopParams, values) if StopParams in groups else StopParams()
    return Job(
        stop=stop,
        limits=make_parameters(Limits, values),
        data_params=make_parameters(DataParams, values),
        resources=make_parameters(Resources, values),
        warm_start=values.get(WARM_START),
        search=Search(
            **{f.name: values[f.name] for f, _ in options(Search) if f.name in values},
            grid=grid(groups, values),
            earlier=values.get(EARLIER, tuple),
        ),
        given=frozenset(values),
    )


# An option of the functions above, not of the command line: a function that returns `tried`
# records.
EARLIER = "earlier"


def _parameter_values(given: Mapping[str, Any], groups: Sequence[type]) -> dict[str, Any]:
    """Convert values to the types of the parameter classes. Raise TypeError for an unknown name."""
    kinds: dict[str, Kind | None] = {
        f.name: spec.kind for group in groups for f, spec in options(group)
    }
    kinds[EARLIER] = None
    if StopParams in groups:
        kinds[WARM_START] = Path()
    for name in given:
        if name not in kinds:
            import difflib

            near = difflib.get_close_matches(name, kinds, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise TypeError(f"there is no option {name!r}{hint}")
    optional = {f.name for group in groups for f, _ in options(group) if f.default is None}
    for name, value in given.items():
        if value is None and name not in optional | {EARLIER, WARM_START}:
            raise ParameterError(f"{name} must have a value, got None")
    return {name: _converted(name, kinds[name], value) for name, value in given.items()}


def _converted(name: str, kind: Kind | None, value: Any) -> Any:
    """Return a value as the option stores it. Raise ParameterError for another type."""
    if hasattr(value, "tolist"):  # an array or a number of NumPy
        value = value.tolist()
    if kind is None or value is None:
        return value
    try:
        return kind.value(value)
    except ValueError as error:
        raise ParameterError(f"{name}: {error}") from None
