"""--update: an old linear model is taught rows as they arrive, in one pass; see stream.py."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from randsvm.algorithms.sgd import Running, Steps
from randsvm.data.dataset import Source
from randsvm.errors import ModelError, ParameterError
from randsvm.events import Learnt, Notice, Started, Watch, emit, listening
from randsvm.models.linear_model import LinearModel
from randsvm.models.load import load
from randsvm.parameters.option import command_line, given, idle
from randsvm.parameters.sgd import SgdParams
from randsvm.parameters.svm import class_weights
from randsvm.svm.linear import CRAMMER_SINGER, LOSSES
from randsvm.training.clock import Clock
from randsvm.training.job import Job, check_gap, check_paths, the_file
from randsvm.training.stream import Stream, running_of


def update(data: Source, model: str | None, params: SgdParams, job: Job, watch: Watch) -> Learnt:
    """Teach the model params.update the rows of `data`; write it to `model`.

    Raises the errors of randsvm.errors; on any error `model` is untouched, except that Interrupted
    leaves what was learnt so far.
    """
    if not isinstance(data, str | tuple) or model is None:
        raise ParameterError("--update goes from a file to a file: name both")
    path = the_file(data)
    clock = Clock(job.limits.time_limit, watch)
    check_paths(path, model, job)
    check_gap(job, params)
    if job.search.wanted or job.run.scale:
        raise ParameterError("--update goes on as the model was begun: no -v, lists or --scale")
    if job.resources.cluster is not None:
        raise ParameterError("--update learns rows in order, as they arrive: no --cluster")
    with listening(clock):
        assert params.update is not None
        old = _to_go_on_from(params.update)
        steps, t = _steps_of(old, params, params.update)
        for option in [*idle(params), *given(job.run)]:
            emit(Notice(f"{option} has no effect with --update"))
        words = [*command_line(params, names=params.OF_UPDATES), *command_line(job.limits)]
        emit(
            Started(
                algorithm="sgd",
                configuration=words,
                n=None,
                d=None,
                nnz=None,
                C=None,
                lambda_=steps.lambda_,
                seconds=clock.seconds,
            )
        )
        # The name of a file is not in a model.
        nameless = command_line(replace(params, update="MODEL"), names=params.OF_UPDATES)
        running = _running_of(old, params.update)
        return Stream(
            path, old, steps, t, running, params.checkpoint, clock, model, nameless, job.keep
        ).completed()


def _to_go_on_from(path: str) -> LinearModel:
    old = load(path)
    if not isinstance(old, LinearModel):
        raise ModelError(f"{path}: expected a linear model to go on from, found another")
    if old.mapping is not None:
        raise ModelError(
            f"{path}: expected a model without random features to go on from: they would change "
            f"with each feature that is new"
        )
    if "nu" in old.metadata:
        # Its b was set by all rows at once.
        raise ModelError(f"{path}: expected a model without -n to go on from")
    if old.scaling is not None or old.sigmoid is not None:
        what = "--scale" if old.scaling is not None else "-b 1"
        raise ModelError(f"{path}: expected a model without {what} to go on from")
    return old


def _running_of(old: LinearModel, path: str) -> Running | None:
    """The weights on their way beside the model's, which may be their mean."""
    try:
        return running_of(old.metadata, *old.w.shape)
    except (KeyError, ValueError):
        raise ModelError(
            f"{path}: expected the running weights of an update, found others than the model's"
        ) from None


def _steps_of(old: LinearModel, params: SgdParams, path: str) -> tuple[Steps, float]:
    """How the model's steps were made, and how many."""
    metadata = old.metadata
    try:
        lambda_, eta0, bias_rate, t = (
            float(metadata[name]) for name in ("lambda", "eta0", "bias_rate", "t")
        )
        epsilon = float(metadata["epsilon"]) if "epsilon" in metadata else None
        bias_lambda = float(metadata.get("bias_lambda", metadata["lambda"]))
        origin = float(metadata.get("origin", "0"))
        weights = [float(word) for word in metadata["weights"].split()]
    except (KeyError, ValueError):
        raise ModelError(
            f"{path}: expected a model of randsvm-train sgd to go on from, found one without its "
            f"step size"
        ) from None
    if params.weights:
        weights = class_weights(params.weights, old.labels, [1] * len(old.labels))
    losses = [name for name, loss in LOSSES.items() if loss.solver == old.solver]
    return Steps(
        lambda_=lambda_,
        eta0=eta0,
        bias_rate=bias_rate,
        bias_lambda=bias_lambda,
        weights=np.array(weights),
        loss=losses[0] if losses else "hinge",
        crammer_singer=old.solver == CRAMMER_SINGER,
        epsilon=epsilon,
        origin=origin,
        # A fixed rate follows what changes; a mean would lag behind.
        averages=params.update_rate is None,
        fixed_rate=params.update_rate or 0.0,
    ), t
