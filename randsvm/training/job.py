"""What a user asks of a training besides its parameters; types that all of training uses.

Knows no algorithm.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from randsvm import files
from randsvm.arrays import Matrix
from randsvm.data.cache import is_cache
from randsvm.data.dataset import Dataset, Source
from randsvm.errors import ParameterError
from randsvm.models.header import format_of
from randsvm.models.load import refuse_as_data
from randsvm.models.model import Model
from randsvm.parameters.rounds import StopParams
from randsvm.parameters.run import Limits, Resources, Run, Search
from randsvm.parameters.sgd import SgdParams
from randsvm.parameters.svm import Params

# Parameters of kernel training or of linear training.
P = TypeVar("P", bound=Params | SgdParams)

# f of rows, (m, K) float64.
Decision = Callable[[Matrix], np.ndarray]
# The name of a model that no file holds.
IN_MEMORY = "<memory>"


def forget(model: Model) -> None:
    """Of those who want a file alone."""


# What is learnt from the rows of a view with these parameters.
Fit = Callable[[Dataset, P], Decision]
# The same in so many seconds, or a little more; raises TimeLimitError where that is nothing.
TimedFit = Callable[[Dataset, P, float], Decision]


@dataclass(frozen=True)
class Job:
    """What all algorithms share: when to stop, seed and index base, resources, the model whose
    solution is the start (--warm-start), and what is cross-validated first. given: the names of the
    options that the user gave, the others are as in that model; None: all of them. keep: called
    with the model as it is written."""

    stop: StopParams = field(default_factory=StopParams)
    limits: Limits = field(default_factory=Limits)
    run: Run = field(default_factory=Run)
    resources: Resources = field(default_factory=Resources)
    warm_start: str | None = None
    search: Search = field(default_factory=Search)
    given: frozenset[str] | None = None
    keep: Callable[[Model], object] = forget

    def for_parts(self) -> Job:
        """Without a start from another model, and without what only the whole run needs."""
        return replace(self, search=Search(), warm_start=None, keep=forget)


def kernel_job(job: Job, params: Params, bounded: bool) -> Job:
    """The job with the gap filled in; bounded: whether k was asked for. Raises ParameterError for
    what these parameters of a kernel machine do not allow."""
    job.stop.check(params)
    if job.warm_start and params.components:
        raise ParameterError("--warm-start goes with a kernel, not with --components")
    if params.kernel == "precomputed":
        _check_precomputed(job)
    return replace(job, stop=job.stop.resolved(params, bounded, job.limits.require_gap))


def without_gap(job: Job) -> Job:
    """The job where nothing is certified: a gap that was filled in is left open."""
    gap = job.stop.gap if isinstance(job.stop.gap, str) else None
    return replace(job, stop=replace(job.stop, gap=gap))


def _check_precomputed(job: Job) -> None:
    """Raise ParameterError for what rows of kernel values do not go with."""
    against = {
        "--scale": (job.run.scale, "kernel values, which scaled are those of no kernel"),
        "--zero-based": (job.run.zero_based, "rows that begin with 0:number in any case"),
        "--cluster": (job.resources.cluster, "numbers of rows, which its workers do not look at"),
        "--warm-start": (job.warm_start, "no features to find the old model's rows by"),
    }
    for option, (given, reason) in against.items():
        if given:
            raise ParameterError(f"{option}: -t precomputed has {reason}")


def beside(model: str) -> str:
    """The file of a model that was interrupted, where a better one stays in its place."""
    return f"{model}.interrupted"


def may_stay(model: str) -> bool:
    """Whether there is a file that a worse model does not replace."""
    return model not in files.STANDARD_OUTPUTS and bool(files.size_of(model))


def check_paths(data: Source, model: str | None, job: Job) -> None:
    """Raise ParameterError or OutputError for files that cannot be or destroy each other, before
    hours of work."""
    paths = files.inputs(data) if isinstance(data, str | tuple) else ()
    if not paths and job.resources.cache is not None:
        raise ParameterError("--cache keeps what was parsed from a file, and there is none")
    cache = {"--cache": job.resources.cache}
    for path in paths or (None,):
        files.check_apart({"MODEL_FILE": model}, {"TRAIN_FILE": path, **cache})
        files.check_apart(cache, {"TRAIN_FILE": path, "--warm-start": job.warm_start})
    for path in paths:
        refuse_as_data(path, "TRAIN_FILE MODEL_FILE")
    if model is not None:
        names = [model]
        if not job.limits.overwrite and may_stay(model):
            names.append(beside(model))
        for name in names:
            files.check_output(name)
            files.check_kind(name, "a model", lambda head: format_of(head) is not None)
    if job.resources.cache is not None:
        files.check_kind(job.resources.cache, "a cache", is_cache)


def the_file(data: str | tuple[str, ...]) -> str:
    """The only one. Raises ParameterError where there are several."""
    path, *others = files.inputs(data)
    if others:
        raise ParameterError("--update reads one TRAIN_FILE: cat the files into a pipe")
    return path


def check_gap(job: Job, params: Params | SgdParams) -> None:
    """Raise ParameterError where --require-gap asks for what there is not."""
    certified = isinstance(params, Params) and params.positive_semidefinite
    if job.limits.require_gap is not None and not certified:
        raise ParameterError(
            "--require-gap needs a certificate: randsvm, osuna or osuna-closest with a positive "
            "semidefinite kernel"
        )


def lack_of_gap(job: Job, gap: float, model: str) -> str | None:
    """Why a model with that gap must not be written; None: it may."""
    required = job.limits.require_gap
    # nan is no gap.
    if required is None or gap <= required:
        return None
    name = files.display_output(model)
    return f"gap {gap:.3g} is above {required:g} (--require-gap): {name} is left as it was"
