"""Where the rows of a training come from: a file, read by this process or by a cluster."""

from __future__ import annotations

from randsvm import files
from randsvm.data import dataset
from randsvm.data.dataset import Dataset, ParseOptions, Source
from randsvm.data.in_memory import Arrays
from randsvm.errors import ParameterError
from randsvm.events import Notice, emit
from randsvm.files import inputs
from randsvm.parameters.sgd import SgdParams
from randsvm.parameters.svm import Params
from randsvm.training.job import Job


def load(data: Source, params: Params | SgdParams, job: Job) -> Dataset:
    """D, with the labels as the task has them. Raises DataError for bad text, and the errors of
    opening and reading a file."""
    D = _loaded(data, params, job)
    if D.summary.precise:
        emit(
            Notice(
                "features are large beside their differences, which float32 would round: kept as "
                "float64"
            )
        )
    return D


def _loaded(data: Source, params: Params | SgdParams, job: Job) -> Dataset:
    numbered = params.kernel == "precomputed"
    options = ParseOptions(
        labels="number" if params.kind == "svr" else "class",
        any_label=params.task == "one-class",
        zero_based=job.run.zero_based or numbered,
        numbered=numbered,
    )
    if job.resources.cluster is None:
        return dataset.load(data, options, job.resources)
    if isinstance(data, Arrays):
        raise ParameterError("--cluster reads files that all workers see, not arrays")
    # Who does not ask for a cluster need not have dask, nor wait a second for its import.
    try:
        from randsvm.cluster.byte_ranges import load
    except ImportError as error:
        raise ParameterError(
            f"--cluster needs dask.distributed (pip install 'randsvm[cluster]'): {error}"
        ) from error
    return load(inputs(data), options, job.resources)


def name_of(data: Source) -> str:
    """As messages have it."""
    return str(data) if isinstance(data, Arrays) else files.name_of(inputs(data))
