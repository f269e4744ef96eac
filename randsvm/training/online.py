"""Train an existing linear model on rows as they arrive, in one pass.

No row is kept after the step that it makes.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np

from randsvm import __version__
from randsvm.algorithms.sgd import Learner, LearnerState, SgdSchedule
from randsvm.data import svmlight
from randsvm.data.batches import Batch
from randsvm.data.dataset import Source
from randsvm.data.labels import LabelTable
from randsvm.data.row_weights import RowWeights
from randsvm.errors import ModelError, ParameterError
from randsvm.events import Notice, Started, Trained, Updated, Watch, emit, listening
from randsvm.files import inputs
from randsvm.models.linear_model import LinearModel
from randsvm.models.load import load, save
from randsvm.models.model import Model, SeenFeatures
from randsvm.parameters.option import changed_flags, command_line, ineffective_flags
from randsvm.parameters.sgd import LOSSES, SgdParams
from randsvm.parameters.svm import class_weights
from randsvm.svm.linear import CRAMMER_SINGER
from randsvm.training.clock import RESERVED_SECONDS, Clock, TimeLimitError
from randsvm.training.job import Job, check_gap, check_paths
from randsvm.training.labelled_data import check_row_weights
from randsvm.training.linear_machine import state_metadata
from randsvm.training.run import TrainingRun
from randsvm.training.stopping import Stopped, StopReason


def update(
    data: Source, model: str | None, params: SgdParams, job: Job, watch: Watch
) -> tuple[Model, Trained]:
    """Train the model params.update on the rows of `data`; write it to `model`.

    Returns the model and how its training ended.

    Raises the errors of randsvm.errors; on any error `model` is untouched, except that Interrupted
    leaves the model trained so far.
    """
    if not isinstance(data, str | tuple) or model is None:
        raise ParameterError("--update needs the names of TRAIN_FILE and MODEL_FILE")
    path, *others = inputs(data)
    if others:
        raise ParameterError("--update reads one TRAIN_FILE: cat the files into a pipe")
    clock = Clock(job.limits.time_limit, watch)
    check_paths(path, model, job)
    check_gap(job, params)
    if job.search.is_wanted or job.run.scale:
        raise ParameterError("--update keeps the options of the model: no -v, lists or --scale")
    if job.run.row_weights is not None:
        check_row_weights(path, job)
    if job.run.is_table:
        raise ParameterError(f"--update reads svmlight files, not --format {job.run.format}")
    if job.resources.cluster is not None:
        raise ParameterError("--update trains on rows in order, as they arrive: no --cluster")
    with listening(clock):
        assert params.update is not None
        old = _load_updatable(params.update)
        steps, t = _steps_of(old, params, params.update)
        for option in [*ineffective_flags(params), *changed_flags(job.run)]:
            emit(Notice(f"{option} has no effect with --update"))
        arguments = [*command_line(params, names=params.UPDATE_FIELDS), *command_line(job.limits)]
        emit(
            Started(
                algorithm="sgd",
                configuration=arguments,
                n=None,
                d=None,
                nnz=None,
                C=None,
                lambda_=steps.lambda_,
                seconds=clock.seconds,
            )
        )
        # A model does not store the name of the file that it came from.
        nameless = command_line(replace(params, update="MODEL"), names=params.UPDATE_FIELDS)
        running = _running_of(old, params.update)
        weights = job.run.row_weights
        run = UpdateRun(
            path, weights, old, steps, t, running, params.checkpoint, clock, model, nameless
        )
        with run.saved_if_interrupted():
            outcome = run.save(run.train())
        return run.result(outcome)


def _load_updatable(path: str) -> LinearModel:
    """Return the model in `path`. Raises ModelError if an update cannot continue from it."""
    old = load(path)
    if not isinstance(old, LinearModel):
        raise ModelError(f"{path}: expected a linear model to update, found another")
    if old.mapping is not None:
        raise ModelError(
            f"{path}: expected a model without random features to update: they would change "
            f"with each feature that is new"
        )
    if "nu" in old.metadata:
        # Its b was set by all rows at once.
        raise ModelError(f"{path}: expected a model without -n to update")
    fitted = {
        "--scale": old.scaling,
        "-b 1": old.sigmoid,
        "--conformal": old.conformal,
    }
    for option, found in fitted.items():
        if found is not None:
            raise ModelError(f"{path}: expected a model without {option} to update")
    return old


def _running_of(old: LinearModel, path: str) -> LearnerState | None:
    """Return the running weights, of which the model's may be the mean; None: there are none."""
    try:
        return running_of(old.metadata, *old.w.shape)
    except ValueError:
        raise ModelError(
            f"{path}: expected the running weights of an update, found some that do not fit it"
        ) from None


def _steps_of(old: LinearModel, params: SgdParams, path: str) -> tuple[SgdSchedule, float]:
    """Return the rule of the model's steps, and their number."""
    metadata = old.metadata
    try:
        lambda_, eta0, bias_rate, t = (
            float(metadata[name]) for name in ("lambda", "eta0", "bias_rate", "t")
        )
        epsilon = float(metadata["epsilon"]) if "epsilon" in metadata else None
        bias_lambda = float(metadata.get("bias_lambda", metadata["lambda"]))
        origin = float(metadata.get("origin", "0"))
        weights = metadata["weights"]
    except KeyError:
        raise ModelError(
            f"{path}: expected a model of randsvm-train sgd to update, found one without its "
            f"step size"
        ) from None
    if params.weights:
        weights = class_weights(params.weights, old.labels, [1] * len(old.labels))
    losses = [name for name, loss in LOSSES.items() if loss.solver == old.solver]
    return SgdSchedule(
        lambda_=lambda_,
        eta0=eta0,
        bias_rate=bias_rate,
        bias_lambda=bias_lambda,
        weights=np.array(weights),
        loss=losses[0] if losses else "hinge",
        crammer_singer=old.solver == CRAMMER_SINGER,
        epsilon=epsilon,
        origin=origin,
        # A fixed rate follows changing data; a mean would lag behind.
        averages=params.update_rate is None,
        fixed_rate=params.update_rate or 0.0,
        # A row of weight 1 is one step, as all rows without weights are.
        counts_weights=True,
    ), t


class UpdateRun(TrainingRun):
    """The training of a linear model block by block.

    The columns of the weights are features in the order in which they appeared.

    row_weights : name of a file of weights, one for each row; None: `cost:` in the rows, if any
    features : (d,) int64, sorted
    columns : (d,) the column of each of `features`
    checkpoint : write the model after this number of rows (int) or seconds (float)
    """

    def __init__(
        self,
        data: str,
        row_weights: str | None,
        old: LinearModel,
        steps: SgdSchedule,
        t: float,
        running: LearnerState | None,
        checkpoint: int | float | None,
        clock: Clock,
        path: str,
        arguments: list[str],
    ) -> None:
        self.data = data
        self.row_weights = None if row_weights is None else RowWeights(row_weights, data)
        self.old = old
        self.learner = Learner(steps, old.w.copy(), old.b.copy())
        self.learner.start_at(t)
        if running is not None:
            self.learner.resume(running)
        self.checkpoint = checkpoint
        self.clock = clock
        self.path = path
        self.arguments = arguments
        self.features = old.features
        self.columns = np.arange(len(old.features))
        self.seconds = self.loss = self.errors = 0.0
        # The rows at the last report; the rows and the moment of the last checkpoint.
        self.reported_rows = 0
        self.written = 0, time.perf_counter()

    def train(self) -> Stopped:
        """Train on all blocks, as far as time allows; return why it ended."""
        old, steps = self.old, self.learner.steps
        try:
            with (
                listening(self._watch),
                self.clock.until(lambda: self.clock.end - RESERVED_SECONDS),
            ):
                blocks = svmlight.read_blocks(
                    self.data,
                    labels="number" if old.is_regression else "class",
                    zero_based=old.zero_based,
                    unlabelled=bool(steps.origin),
                    prompt=True,
                    watch=emit,
                )
                table = LabelTable(
                    self.data,
                    names=old.labels,
                    closed=not steps.origin,
                    any_label=bool(steps.origin),
                )
                with closing(blocks):
                    weighted = self.row_weights.in_blocks(blocks) if self.row_weights else blocks
                    for block in map(svmlight.Block.without_zero_weights, weighted):
                        self._train_on(block, _targets(block, table, steps))
        except TimeLimitError:
            return Stopped(StopReason.TIME_LIMIT)
        return Stopped(StopReason.END_OF_DATA)

    def _watch(self, event: object) -> None:
        """Write due checkpoints also while the reader, which emits events, waits for rows."""
        self.clock(event)
        self._checkpoint_if_due()

    def _train_on(self, block: svmlight.Block, y: np.ndarray) -> None:
        began = time.perf_counter()
        order = np.arange(len(block), dtype=np.int32)
        columns = self._columns_of(block)
        # A block without weights makes plain steps, which take less time.
        weighted = 1.0 if block.is_weighted else None
        self.learner.steps = replace(self.learner.steps, mean_weight=weighted)
        self.learner.learn(Batch.of(block.indptr, columns, block.values, y, order, block.weights))
        self.seconds += time.perf_counter() - began
        # At each doubling of the rows, as Vowpal Wabbit does, from the first block on.
        if self.learner.rows_learned >= 2 * self.reported_rows:
            self._count(report=True)
        self._checkpoint_if_due()

    def _columns_of(self, block: svmlight.Block) -> np.ndarray:
        new = np.setdiff1d(block.features, self.features, assume_unique=True)
        if len(new):
            count = len(self.features)
            features = np.concatenate([self.features, new])
            order = np.argsort(features)
            columns = np.concatenate([self.columns, np.arange(count, count + len(new))])
            self.features, self.columns = features[order], columns[order]
            self.learner.grow(len(features))
        return self.columns[np.searchsorted(self.features, block.indices)].astype(np.int32)

    def _count(self, report: bool) -> None:
        last = self.learner.progressive()
        self.reported_rows = self.learner.rows_learned
        self.loss += last.loss * last.weight
        self.errors += last.errors * last.weight
        if report and last.rows:
            emit(
                Updated(
                    seconds=self.clock.seconds,
                    rows=self.reported_rows,
                    last=last.rows,
                    loss=last.loss,
                    errors=None if self.old.is_regression else last.errors,
                )
            )

    def _checkpoint_if_due(self) -> None:
        rows, since = self.written
        if self.checkpoint is None or self.learner.rows_learned == rows:
            return
        if isinstance(self.checkpoint, int):
            due = self.learner.rows_learned - rows >= self.checkpoint
        else:
            due = time.perf_counter() - since >= self.checkpoint
        if due:
            self._write("checkpoint")
            self.written = self.learner.rows_learned, time.perf_counter()

    @property
    def has_model(self) -> bool:
        return self.learner.rows_learned > 0

    def outcome(self, stopped: Stopped) -> Trained:
        self._count(report=False)
        weight = self.learner.weight_learned or 1.0
        return Trained(
            model=self.path,
            steps=self.learner.rows_learned,
            progressive_loss=self.loss / weight,
            progressive_errors=None if self.old.is_regression else self.errors / weight,
            stopped=str(stopped),
            solve_seconds=self.seconds,
            seconds=self.clock.seconds,
        )

    def write(self, outcome: Trained) -> None:
        self.saved_model = self._write(outcome.stopped)

    def _write(self, stopped: str) -> LinearModel:
        learner, old = self.learner, self.old
        linear = learner.linear
        metadata = {
            **old.metadata,
            "version": __version__,
            "configuration": shlex.join(["sgd", *self.arguments]),
            "n": old.metadata.get("n", 0) + learner.rows_learned,
            "d": len(self.features),
            "primal": None,
            "violators": None,
            "stopped": stopped,
            **state_metadata(learner, learner.t),
            **running_metadata(learner.running, self.columns),
        }
        for gone in ("C", "digest", "nnz"):
            metadata.pop(gone, None)
        model = replace(
            old,
            w=linear.w[self.columns],
            b=linear.b,
            features=self.features,
            seen=SeenFeatures.of(self.features),
            metadata=metadata,
        )
        save(model, self.path)
        return model


def running_metadata(running: LearnerState, columns: np.ndarray) -> dict[str, list[float]]:
    """Return the entries of the trailer from which an update continues without a difference.

    columns : (d,) those of the weights, in the order of the features
    """
    A = running.A[columns] if running.m else running.A[:0]
    b_sum = running.b_sum if running.m else running.b_sum[:0]
    numbers = {
        "running": np.array([running.s, running.sigma, running.m]),
        "running_v": running.v[columns],
        "running_b": running.b,
        "running_A": A,
        "running_b_sum": b_sum,
    }
    return {name: some.tolist() for name, some in numbers.items()}


def running_of(metadata: Mapping[str, Any], d: int, K: int) -> LearnerState | None:
    """Return what `running_metadata` wrote for d features and K columns of weights.

    None: no update wrote this model. Raises ValueError for other numbers of features or columns.
    """
    if "running" not in metadata:
        return None
    s, sigma, m = metadata["running"]
    names = ("running_v", "running_A", "running_b", "running_b_sum")
    v, A, b, b_sum = (np.array(metadata[name], np.float64) for name in names)
    v, A = v.reshape(-1, K), A.reshape(-1, K)
    mean = 1 if m else 0
    if (len(v), len(b), len(A), len(b_sum)) != (d, K, d * mean, K * mean):
        raise ValueError("expected a running weight for each weight")
    return LearnerState(s, sigma, m, v, b, A, b_sum)


def _targets(block: svmlight.Block, table: LabelTable, steps: SgdSchedule) -> np.ndarray:
    """y of each row, (m,) float64: targets, class indices, or 0 for novelty detection."""
    if steps.epsilon is not None:
        return block.y
    y = table.classes(block)
    return np.zeros(len(y)) if steps.origin else y
