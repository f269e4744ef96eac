"""Training of kernel machines by rounds of solve and scan: paths and parameters in, a model out.

Never prints.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from randsvm.data.dataset import Source
from randsvm.errors import ContentError
from randsvm.events import Trained, Watch, silent
from randsvm.parameters.rounds import OsunaParams, RandsvmParams
from randsvm.parameters.svm import Params
from randsvm.svm.psd_check import doubt
from randsvm.training import run
from randsvm.training.algorithm_specs import SpecFactory, osuna_spec, randsvm_spec
from randsvm.training.job import Job, kernel_job, without_gap
from randsvm.training.kernel_training import KernelTrainer
from randsvm.training.labelled_data import LabelledData
from randsvm.training.warm_start import WarmStart

Begin = Callable[[LabelledData, Job], KernelTrainer]


def train_randsvm(
    data: Source,
    model: str | None,
    params: Params,
    algorithm: RandsvmParams,
    job: Job | None = None,
    watch: Watch = silent,
) -> Trained:
    """Train on the svmlight file or the arrays `data` with Algorithm 1 of KBH07; write the model to
    `model` (None: nowhere but to job.keep).

    Until job.stop.gap is certified, with all coefficients outside of the working set frozen
    wherever they stand; or, where `algorithm` bounds k or that gap is "none", until |SV| >= k.
    Raises the errors of randsvm.errors; on any error `model` is untouched, except that
    Interrupted leaves the best model so far.
    """
    job = job or Job()
    bounded = bool(algorithm.about_k) and params.task != "one-class"
    spec_factory = partial(randsvm_spec, algorithm)
    return _train(data, model, params, spec_factory, job, watch, bounded=bounded)


def train_osuna(
    data: Source,
    model: str | None,
    params: Params,
    algorithm: OsunaParams,
    job: Job | None = None,
    watch: Watch = silent,
    *,
    closest: bool = False,
) -> Trained:
    """Train by OFG97's decomposition, with MZ's choice of the closest points if `closest`.

    See train_randsvm for files and errors.
    """
    spec_factory = partial(osuna_spec, algorithm, closest)
    return _train(data, model, params, spec_factory, job or Job(), watch)


def _in_doubt(
    begin: Begin, asked: float | None, labelled_data: LabelledData, job: Job
) -> KernelTrainer:
    """The training with a precomputed kernel, which may not be positive semidefinite: then no gap
    ends it. Raises ContentError where one was asked for."""
    training, why = begin(labelled_data, job), doubt(labelled_data.D)
    if why is None:
        return training
    if asked is not None:
        raise ContentError(f"{why}: no gap can be certified, and {asked:g} was asked for")
    return replace(training, job=without_gap(job), doubt=why)


def _train(
    data: Source,
    model: str | None,
    params: Params,
    spec_factory: SpecFactory,
    job: Job,
    watch: Watch,
    *,
    bounded: bool = False,
) -> Trained:
    """bounded: whether k was asked for, which ends the run where no gap was."""

    def prepare(params: Params, job: Job) -> tuple[Begin, Params, Job]:
        old, notices, asked = None, list[str](), job.stop.wanted_gap or job.limits.require_gap
        if job.warm_start:
            old = WarmStart.read(job.warm_start)
            params, notices = old.params(params, job.left_open)
        job = kernel_job(job, params, bounded)
        begin: Begin = partial(KernelTrainer, spec_factory=spec_factory, old=old, notices=notices)
        if params.kernel == "precomputed":
            begin = partial(_in_doubt, begin, asked)
        return begin, params, job

    return run.train(data, model, params, prepare, job, watch)
