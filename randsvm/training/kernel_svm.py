"""Kernel machines: what a run needs to train one by rounds of solve and scan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from randsvm.errors import ContentError
from randsvm.parameters.rounds import OsunaParams, RandsvmParams
from randsvm.parameters.svm import Params
from randsvm.svm.kernel_layout import why_not_psd
from randsvm.training.algorithm_specs import SPECS, SpecFactory
from randsvm.training.job import Job, kernel_job, without_gap
from randsvm.training.kernel_training import KernelTrainer
from randsvm.training.labelled_data import LabelledData
from randsvm.training.warm_start import WarmStart

Begin = Callable[[LabelledData, Job], KernelTrainer]


def prepare(
    name: str, algorithm: RandsvmParams | OsunaParams, params: Params, job: Job
) -> tuple[Begin, Params, Job]:
    """Return what makes the trainer once the data is read, and the parameters and the job with
    what follows from --warm-start and the kernel filled in.

    name: of the algorithm, in SPECS. Raises ParameterError for what does not go together.
    """
    old, notices, asked = None, list[str](), job.stop.wanted_gap or job.limits.require_gap
    if job.warm_start:
        old = WarmStart.read(job.warm_start)
        params, notices = old.params(params, job.given)
    # Where k is asked for it ends the run, and no gap.
    bounded = isinstance(algorithm, RandsvmParams) and bool(algorithm.about_k)
    job = kernel_job(job, params, bounded and params.task != "one-class")
    spec_factory: SpecFactory = partial(SPECS[name], algorithm)
    begin: Begin = partial(KernelTrainer, spec_factory=spec_factory, old=old, notices=notices)
    if params.kernel == "precomputed":
        begin = partial(_in_doubt, begin, asked)
    return begin, params, job


def _in_doubt(
    begin: Begin, asked: float | None, labelled_data: LabelledData, job: Job
) -> KernelTrainer:
    """The training with a precomputed kernel, which may not be positive semidefinite: then no gap
    ends it. Raises ContentError where one was asked for."""
    training, why = begin(labelled_data, job), why_not_psd(labelled_data.D)
    if why is None:
        return training
    if asked is not None:
        raise ContentError(f"{why}: no gap can be certified, and {asked:g} was asked for")
    return replace(training, job=without_gap(job), doubt=why)
