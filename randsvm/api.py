"""Train models: the function of the Python interface, which the command uses too."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from randsvm.errors import ParameterError, suggestion
from randsvm.events import Watch, check, silent
from randsvm.parameters.option import Kind, grid, make_parameters, option_fields, read_value
from randsvm.parameters.rounds import RoundsParams
from randsvm.parameters.run import (
    ALGORITHMS,
    COMMON,
    DataParams,
    Limits,
    Resources,
    Search,
)

if TYPE_CHECKING:
    from randsvm.data.dataset import Source
    from randsvm.data.in_memory import Arrays
    from randsvm.models.fitted import FittedModel
    from randsvm.training.run import Trainer

    # A data frame has no type that is known without pandas or pyarrow.
    Data: TypeAlias = Arrays | str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | Any

# A signal may have come during the imports.
check()


def train(
    data: Data,
    model: str | os.PathLike[str] | None = None,
    algorithm: str = "randsvm",
    watch: Watch = silent,
    *,
    earlier: Callable[[], Sequence[Mapping[str, Any]]] = tuple,
    **options: Any,
) -> FittedModel:
    """Train a model, as the command randsvm-train does.

    Parameters
    ----------
    data : str, PathLike, sequence of these, Arrays, or data frame
        Name of an svmlight file, a pattern of names, several names, or rows in memory. Files may be
        compressed; "-" is standard input. With the option ``sql``, a query, it is the URL of a
        database. A data frame of pandas, or any object with Arrow's interface of streams, is read
        as a file of a table, with the option ``label_column``.
    model : str or PathLike, optional
        Model file to write. None writes no file.
    algorithm : {"randsvm", "osuna", "osuna-closest", "sgd"}, default="randsvm"
        Kernel machines by random sampling of violators or by decomposition, or a linear machine by
        stochastic gradient descent.
    watch : callable, default=silent
        Called with each event of `randsvm.events`.
    earlier : callable, optional
        Returns the `tried` records of earlier searches, whose scores are used again.
    **options : object
        Options by the long names of the command line: fields of KernelParams and RandsvmParams or
        OsunaParams, or of SgdParams, and of RoundsParams, Limits, DataParams, Search and Resources:
        ``gamma=5``, ``gap=0.001``, ``C=[1, 8]`` (a list is searched), ``weights={"spam": 10}`` or
        ``weights="balanced"``, ``time_limit=60`` (seconds), ``memory=2**30`` (bytes). A word of
        the command line is also a value: ``time_limit="10m"``, ``memory="1G"``. Also
        ``warm_start``, the name of a model file to start from, or for sgd ``update``, that name or
        a FittedModel.

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

    After any error the best model so far, if there is one, is written to the file `model`, or to
    ``model.interrupted`` if that holds a better model or cannot be written. An update that an error
    other than Interrupted ends leaves `model` as it was or as the last `checkpoint`, and writes
    ``model.interrupted``.

    References
    ----------
    Kumar, Bhattacharyya, Hariharan, "A Randomized Algorithm for Large Scale Support Vector
    Learning", NIPS 2007 (randsvm). Osuna, Freund, Girosi, AI Memo 1602, 1997 (osuna). Mostefaoui,
    Zaou, "SVM: Reduction of Learning Time" (osuna-closest).
    """
    from randsvm.data.columns import Frame, format_of_name, is_frame
    from randsvm.data.in_memory import Arrays, original_labels
    from randsvm.files import inputs
    from randsvm.models.fitted import FittedModel
    from randsvm.training.job import Job

    if algorithm not in ALGORITHMS:
        raise ParameterError(f"expected algorithm {', '.join(ALGORITHMS)}, found {algorithm!r}")
    groups, source = ALGORITHMS[algorithm], cast("Source", data)
    if options.get("sql") is not None:
        from randsvm.data.database import Query

        source = (Query(data, options["sql"]),)
    elif not isinstance(data, Arrays):
        source = (Frame(data),) if is_frame(data) else inputs(data)
    old = options.get("update")
    if isinstance(old, FittedModel):
        options["update"] = "<memory>"
    target = None if model is None else os.fspath(model)
    own_format = {}
    if is_frame(data):
        # Files for the model of a frame have its types of columns.
        own_format = {"format": "parquet"}
    elif not isinstance(source, Arrays) and options.get("sql") is None and old is None:
        # An update reads its rows as the model says.
        formats = {format_of_name(path) for path in source}
        if len(formats) == 1 and "svmlight" not in formats:
            own_format = {"format": formats.pop()}
    values = _values({**own_format, **options}, groups)
    made: list[Any] = [make_parameters(one, values) for one in groups if one is not RoundsParams]
    # ALGORITHMS has the parameters of the machine first.
    params, *algorithm_params = made
    job = Job(
        stop=make_parameters(RoundsParams, values) if RoundsParams in groups else RoundsParams(),
        limits=make_parameters(Limits, values),
        data_params=make_parameters(DataParams, values),
        resources=make_parameters(Resources, values),
        search=make_parameters(
            Search,
            values,
            grid=grid(groups, values),
            path=values.get("path", False),
            earlier=earlier,
        ),
        given=frozenset(values),
    )
    if options.get("sql") is not None:
        cast("Any", source)[0].memory = job.resources.memory // 2
    # Only the modules of training that the algorithm needs are imported.
    if values.get("update") is not None:
        from randsvm.training.linear_machine import update

        old_model = old.model if isinstance(old, FittedModel) else None
        trained, outcome = update(source, target, params, job, watch, old_model)
    else:
        from randsvm.training import run

        trainer: Trainer[Any]
        if algorithm == "sgd":
            from randsvm.training.linear_machine import LinearTrainer

            trainer = LinearTrainer(algorithm, job)
        else:
            from randsvm.training.kernel_machine import KernelTrainer

            trainer = KernelTrainer(algorithm, job, *algorithm_params)
        trained, outcome = run.train(trainer, source, target, params, watch)
    classes: Any = None
    if isinstance(source, Arrays) and not trained.is_one_class:
        classes = original_labels(source, trained.labels)
    return FittedModel(trained, outcome, job.resources.threads, classes)


def _values(given: Mapping[str, Any], groups: Sequence[type]) -> dict[str, Any]:
    """Return options as the parameter classes store them.

    Raise TypeError for an unknown name, and ParameterError for a value of another type.
    """
    kinds: dict[str, tuple[Kind, bool]] = {
        f.name: (spec.kind, f.default is None)
        for group in (*groups, *COMMON)
        for f, spec in option_fields(group)
    }
    values = {}
    for name, value in given.items():
        if name not in kinds:
            raise TypeError(f"there is no option {name!r}{suggestion(name, kinds)}")
        kind, may_be_none = kinds[name]
        if value is None and not may_be_none:
            raise ParameterError(f"{name} must have a value, got None")
        values[name] = read_value(name, kind, value)
    return values
