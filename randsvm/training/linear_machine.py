"""Linear machines: train one by epochs of stochastic gradient descent, or update one.

Epochs pass over all rows of a file, and Newton steps may follow them. An update trains on rows as
they arrive, in one pass, and keeps no row after the step that it makes.
"""

from __future__ import annotations

import math
import shlex
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any

import numpy as np

from randsvm import __version__
from randsvm.algorithms import newton, sgd
from randsvm.algorithms._sgd import SIGMA, M, S
from randsvm.algorithms.sgd import BIAS_RATE, Learner, Progressive, SgdSchedule
from randsvm.arrays import median
from randsvm.data import svmlight
from randsvm.data.batches import Batch
from randsvm.data.classes import one_class
from randsvm.data.dataset import Dataset, Source
from randsvm.data.labels import LabelTable
from randsvm.data.row_weights import RowWeights
from randsvm.data.sampling import Draw, Draws
from randsvm.errors import ModelError, ParameterError
from randsvm.events import Epoch, Notice, Started, Trained, Updated, Watch, emit, listening
from randsvm.models.linear_model import LOGISTIC, ORIGIN, SHARE_OUTSIDE, LinearModel
from randsvm.models.model import Model
from randsvm.models.model_text import load, save
from randsvm.parameters.option import changed_flags, command_line, ineffective_flags, require
from randsvm.parameters.sgd import LOSS_NAMES, LOSSES, OUTSIDE, SgdParams
from randsvm.parameters.svm import class_weights
from randsvm.svm.linear import (
    CRAMMER_SINGER,
    SOLVER_OF_REGRESSION_LOSS,
    Linear,
    LinearFindings,
    LinearObjective,
    evaluate_linear,
    with_share_outside,
)
from randsvm.training.job import (
    RESERVED_SECONDS,
    Clock,
    Decision,
    Job,
    Stopped,
    StopReason,
    TimeLimitError,
    check_gap,
    check_paths,
)
from randsvm.training.run import BatchRun, Trainer, TrainingRun, check_row_weights

# The cost of a step is proportional to the number of classes.
MAX_CLASSES = 10_000
# Features lie far from zero if the squares of their means are more than this part of the mean of
# |x|^2: then their standard deviations are a tenth of their means.
FAR_FROM_ZERO = 0.99


class LinearTrainer(Trainer[SgdParams]):
    """Trainer of weights of the features, or of random features that approximate a kernel."""

    @property
    def max_classes(self) -> int:
        # Weights and their sums are 16 bytes for each feature and class.
        memory, d = self.job.resources.memory, len(self.D.summary.features)
        return min(MAX_CLASSES, max(2, memory // (16 * max(d, 1))))

    def resolved(self, params: SgdParams) -> SgdParams:
        params = params.resolved(self.D.n)
        if (mapping := self.map_of(params)) is not None:
            params = replace(params, gamma=mapping.gamma)
        return params

    def cost_and_lambda(self, params: SgdParams) -> tuple[float, float]:
        return params.cost_and_lambda(self.D.total_weight())

    def prepared(self, params: SgdParams) -> SgdParams:
        require(
            self.job.search.search_gap is None,
            "--search-gap is for kernel machines: sgd ends after --epochs, not at a gap",
        )
        require(
            params.gap is None or self.job.resources.cluster is None,
            "--gap of sgd needs the rows in this process: no --cluster",
        )
        return params

    def decision(self, D: Dataset, params: SgdParams, clock: Clock) -> Decision:
        run = LinearTrainingRun(self, D, params, clock, clock.end)
        run.train()
        return run.linear.decision

    def fits_probabilities(self, params: SgdParams) -> bool:
        # A logistic regression has probabilities of its own.
        return params.probability and params.loss != "log"

    def start(self, params: SgdParams, clock: Clock, until: float) -> LinearTrainingRun:
        run = LinearTrainingRun(self, self.D, params, clock, until)
        if (
            run.share_of_means > FAR_FROM_ZERO
            and params.epochs
            and self.job.data_params.scale != "standard"
            and not params.components
        ):
            emit(
                Notice(
                    "features lie far from zero, and their differences are small beside that: "
                    "--scale standard is needed for steps that suit them"
                )
            )
        if run.groups > 1:
            emit(
                Notice(
                    f"the weights of {run.groups} groups of rows are averaged after each "
                    "epoch: one process would find slightly other ones"
                )
            )
        return run


# One thread computes the sums over at most this many nonzeros: handing them over takes longer.
FEW_VALUES = 1 << 20
# --early-stopping leaves at least this number of rows to train on.
MIN_TRAINING_ROWS = 2
# A closing evaluation takes about this many times as long as a pass that only adds up |x|^2.
EVALUATION_FACTOR = 3.0


class LinearTrainingRun(BatchRun[SgdParams]):
    """SGD on the rows of D, or of a view of it. With held-out rows, the solution of their lowest
    loss is kept.

    D : all rows, with the features that the weights belong to
    end : the moment when the time for training and evaluation is over
    training_end : the moment when the time for training is over
    share_of_means : the part of the mean of |x|^2 that the squares of the features' means make up
    groups : the number of groups of rows that a cluster trains on side by side
    found : a solution that is better than that of the steps: the one of the lowest loss of held-out
        rows, the one with the share of rows outside that -n asks for, or the one of Newton steps
    last_step : the result of the last Newton step of --gap
    """

    found: Linear | None = None
    last_step: newton.Solution | None = None
    evaluation: LinearFindings | None = None
    progressive: Progressive | None = None
    stopped = Stopped(StopReason.ALL_EPOCHS)
    seconds = 0.0

    def __init__(
        self,
        trainer: Trainer[SgdParams],
        D: Dataset,
        params: SgdParams,
        clock: Clock,
        end: float,
    ) -> None:
        self.trainer, self.params, self.clock, self.end = trainer, params, clock, end
        self.objective = objective_of(D, trainer.labels, params)
        mapping = trainer.map_of(params)
        self.D = one_class(D) if params.task == "one-class" else D
        if mapping is not None:
            self.D = self.D.mapped(mapping.over(D.summary.features))
        if self.D.nnz <= FEW_VALUES:
            self.D = self.D.single_threaded()
        began = time.perf_counter()
        R2, of_means = sgd.squares(self.D)
        self.share_of_means = of_means / R2
        self.training_end = end - EVALUATION_FACTOR * (time.perf_counter() - began)
        self.rng = Draws(trainer.job.data_params.seed)
        steps, b = _first_steps(self.D, self.objective, params, R2)
        self.learner = Learner.new(steps, self.D.d, b)
        # Few rows make one group, which this process trains on.
        resources = trainer.job.resources
        # The data may take the other part of the memory.
        room = resources.memory - resources.data_bytes
        self.groups = (
            1 if resources.cluster is None else sgd.group_count(self.D, self.learner, room)
        )

    @property
    def linear(self) -> Linear:
        """The solution so far."""
        return self.learner.linear if self.found is None else self.found

    def run(self) -> None:
        self.train()
        with suppress(TimeLimitError), self.clock.until(lambda: self.end):
            self.evaluation = evaluate_linear(self.D, self.linear, self.objective)

    def train(self) -> None:
        """Make all epochs and Newton steps, or those that time allows."""
        began = time.perf_counter()
        try:
            with self.clock.until(
                lambda: (self.training_end if self.has_model else self.clock.end) - RESERVED_SECONDS
            ):
                self._make_epochs()
                if self.objective.share is not None:
                    self.found = with_share_outside(self.D, self.linear, self.objective.share)
                if self.params.gap is not None:
                    self._reach(self.params.gap)
        except TimeLimitError:
            if not self.has_model:
                raise
            self.stopped = Stopped(StopReason.TIME_LIMIT)
        finally:
            self.seconds = time.perf_counter() - began

    def _make_epochs(self) -> None:
        rows, held_out = _split(self.D, self.params.early_stopping, self.rng)
        epochs, lowest, steps = self.params.epochs, math.inf, self.learner.steps
        assert epochs is not None, "params.resolved() comes first"
        if not steps.averages:
            self.learner.steps = replace(steps, horizon=float(epochs * rows.n))
        if self.groups > 1:
            one_pass = sgd.averaged(rows, self.rng, self.groups)
        else:
            one_pass = sgd.from_dataset(rows, self.rng)
        for number in sgd.sgd(one_pass, rows.n, self.learner, epochs):
            last = self.progressive = self.learner.progressive()
            loss = None if held_out is None else self._mean_loss(held_out, self.learner.linear)
            falls = loss is None or loss < lowest
            if loss is not None and falls:
                lowest, self.found = loss, self.learner.linear
            emit(
                Epoch(
                    number=number,
                    seconds=self.clock.seconds,
                    rows=rows.n,
                    loss=last.loss,
                    errors=None if self.objective.is_regression else last.errors,
                    held_out=loss,
                    bytes_moved=self.D.executor.bytes_moved,
                )
            )
            if not falls:
                self.stopped = Stopped(StopReason.HELD_OUT_LOSS)
                return

    def _mean_loss(self, rows: Dataset, linear: Linear) -> float:
        found = evaluate_linear(rows, linear, self.objective)
        return self.objective.total(found, linear) / found.weight

    def _reach(self, gap: float) -> None:
        """Make Newton steps until the duality gap, or as many as are allowed."""
        C, most = self.trainer.cost_and_lambda(self.params)[0], self.params.max_iterations
        bias, start = not self.params.no_bias, self.learner.linear
        for found in newton.minimise(self.D, self.objective, C, start, gap, bias=bias, most=most):
            self.last_step, self.found = found, found.linear
        if found.gap <= gap:
            self.stopped = Stopped(StopReason.GAP_REACHED, (gap,))
        elif found.steps == most:
            self.stopped = Stopped(StopReason.ITERATION_LIMIT)
        else:
            self.stopped = Stopped(StopReason.PRECISION_LIMIT)

    @property
    def has_model(self) -> bool:
        return self.learner.steps_made > 0 or self.found is not None

    def outcome(self, stopped: Stopped) -> Trained:
        found, regression = self.evaluation, self.objective.is_regression
        C, linear = self.trainer.cost_and_lambda(self.params)[0], self.linear
        last = self.progressive or self.learner.progressive()
        known: dict[str, Any] = {}
        if found is not None:
            loss = self.objective.total(found, linear)
            primal = float(np.square(linear.w).sum() / 2 + C * loss)
            wrong = "squared_error" if regression else "error"
            known = {
                "primal": primal,
                "J": primal / (C * found.weight),
                "violators": found.violators,
                wrong: found.wrong / found.weight,
            }
        if (step := self.last_step) is not None:
            known |= {"newton_steps": step.steps, "dual": step.dual, "gap": step.gap}
        return Trained(
            model=self.name,
            steps=self.learner.steps_made,
            progressive_loss=last.loss if last.steps else None,
            progressive_errors=last.errors if last.steps and not regression else None,
            cross_validation=self.cross_validation,
            stopped=str(stopped),
            solve_seconds=self.seconds,
            seconds=self.clock.seconds,
            bytes_moved=self.D.executor.bytes_moved,
            **known,
        )

    def metadata(self, outcome: Trained) -> dict[str, Any]:
        D = self.D
        one_epoch = D.total_weight() if D.summary.weighted else D.n
        return {
            "primal": outcome.primal,
            **({} if outcome.dual is None else {"dual": outcome.dual}),
            **({} if math.isnan(outcome.gap) else {"gap": outcome.gap}),
            "violators": outcome.violators,
            **({} if self.groups == 1 else {"averaged": self.groups}),
            "stopped": outcome.stopped,
            # --update continues as after one epoch, in which a row counts by its weight. That makes
            # the steps of the update larger: measured on three sets cut in two, its models are 0.1
            # to 0.3 points better.
            **state_metadata(
                self.learner, min(self.learner.t, one_epoch) if self.params.epochs else one_epoch
            ),
        }

    def model(self, **common: Any) -> LinearModel:
        return LinearModel(
            w=self.linear.w,
            b=self.linear.b,
            solver=self.objective.solver,
            mapping=self.trainer.map_of(self.params),
            features=self.D.summary.features,
            **common,
        )


def objective_of(D: Dataset, labels: tuple[str, ...], params: SgdParams) -> LinearObjective:
    """Return the losses of the rows of D.

    D : all rows or a view of them; labels : of all rows. Raises ParameterError for weights of
    labels that the data does not have.
    """
    if params.task == "svr":
        loss = "squared-hinge" if params.squares_loss else "hinge"
        return LinearObjective(weights=np.ones(1), loss=loss, epsilon=params.epsilon)
    assert params.loss
    if params.has_share:
        # Schoelkopf et al. 2001: nu/2 |w|^2 + nu b + mean max(0, -f).
        assert params.nu
        return LinearObjective(weights=np.ones(1), loss=OUTSIDE, origin=params.nu)
    if params.task == "one-class":
        # MADlib: every row is positive, the origin is the only negative, both sides have the same
        # weight.
        n = D.total_weight()
        half = (n + 1) / (2 * n)
        return LinearObjective(weights=np.array([half]), loss=params.loss, origin=half)
    weights = class_weights(params.weights, labels, _class_sizes(D).tolist())
    crammer_singer = params.multiclass == "crammer-singer" and len(labels) > 2
    return LinearObjective(
        weights=np.array(weights), loss=params.loss, crammer_singer=crammer_singer
    )


def _class_sizes(D: Dataset) -> np.ndarray:
    """Return the weight of the rows of each class, their number without weights, (classes,)."""
    assert D.targets is not None
    # targets map the numbers of the file to class indices; this is the inverse.
    return np.array(D.summary.total_weight_by_class, float)[np.argsort(D.targets)]


def _first_steps(
    D: Dataset, objective: LinearObjective, params: SgdParams, R2: float
) -> tuple[SgdSchedule, np.ndarray | None]:
    """Return how steps are made, and b at the start, (K,) float64 or None for zero.

    For classes this b has the lowest loss without features: the log odds of the classes for the
    logistic loss, and the minimum of the squared hinge for both hinges.
    """
    # The first step is divided by the length of the mean step, relative to that of a row of weight
    # 1. The mean is weighted by the rows' weights: a row of weight 100 makes a step 100 times as
    # long, and counts 100 times. It is multiplied by the expected spread of f, divided by the slope
    # of the loss at that distance; for a squared loss the two cancel.
    n, weight, b, spread, mean_step = D.n, D.total_weight(), None, 1.0, 1.0
    if params.task == "svr":
        y = D.points(D.sample(Draw(0, 0), sgd.SAMPLE)).y
        b = np.array([0.0 if params.no_bias else median(y)])
        spread = 1.0 if objective.is_squared else float(np.abs(y - b[0]).mean()) or 1.0
    elif params.task == "svc":
        sizes, weights = _class_sizes(D), objective.weights
        mean_step = float(sizes @ weights**2 / (sizes @ weights))
        if not (objective.crammer_singer or params.no_bias):
            p = weights * sizes / (weights * sizes).sum()
            b = np.log(p / (1 - p)) if objective.loss == "log" else 2 * p - 1
            b = b[:1] if len(b) == 2 else b
    lambda_, eta0 = params.cost_and_lambda(weight)[1], spread / (R2 * mean_step)
    bias_rate = 0.0 if params.no_bias else BIAS_RATE * R2
    if objective.share is not None:
        # The objective is homogeneous: f and the steps of w scale with 1 / lambda. The steps of b
        # stay as they are.
        bias_rate *= lambda_
        eta0 = 1 / lambda_
    steps = SgdSchedule(
        **vars(objective),
        lambda_=lambda_,
        eta0=eta0,
        bias_rate=bias_rate,
        # b is not regularised: with a lambda that is large for these features, steps that suit the
        # weights would become too small before b is near its optimum.
        bias_lambda=min(lambda_, 1 / (n * eta0)),
        averages=params.averages,
        # Divided by their mean, the weights of all rows sum to n: an epoch has n steps.
        mean_weight=weight / n if D.summary.weighted else None,
    )
    return steps, b


def _split(D: Dataset, share: float | None, rng: Draws) -> tuple[Dataset, Dataset | None]:
    """Return the rows to train on, and a random share of D that is held out.

    Raises ParameterError if too few rows are left to train on.
    """
    if share is None:
        return D, None
    count = max(1, round(share * D.n))
    if D.n - count < MIN_TRAINING_ROWS:
        raise ParameterError(
            f"--early-stopping {share:g} holds out {count} of {D.n} rows: at least "
            f"{MIN_TRAINING_ROWS} must be left to train on"
        )
    held = D.mask(D.sample(rng.next(), count))
    return D.subset(~held), D.subset(held)


def state_metadata(learner: Learner, t: float) -> dict[str, Any]:
    """Return the entries of the trailer that --update continues from.

    t: the number of steps that count as made
    """
    steps = learner.steps
    mark = SHARE_OUTSIDE if steps.loss == OUTSIDE else ORIGIN
    return {
        **({} if steps.epsilon is None else {"epsilon": steps.epsilon}),
        **({mark: steps.origin} if steps.origin else {}),
        "lambda": steps.lambda_,
        "eta0": steps.eta0,
        "bias_rate": steps.bias_rate,
        **({} if steps.bias_lambda is None else {"bias_lambda": steps.bias_lambda}),
        "weights": steps.weights.tolist(),
        "t": t,
    }


# ---- updates ---------------------------------------------------------------------------------


def update(
    data: Source, model: str | None, params: SgdParams, job: Job, watch: Watch
) -> tuple[Model, Trained]:
    """Train the model params.update on the rows of `data`; write it to `model`.

    Returns the model and how its training ended.

    Raises the errors of randsvm.errors; on any error `model` is untouched, except that Interrupted
    leaves the model trained so far.
    """
    if not isinstance(data, tuple) or model is None:
        raise ParameterError("--update needs the names of TRAIN_FILE and MODEL_FILE")
    path, *others = data
    require(not others, "--update reads one TRAIN_FILE: cat the files into a pipe")
    clock = Clock(job.limits.time_limit, watch)
    check_paths(data, model, job)
    check_gap(job, params)
    how = job.data_params
    require(
        not (job.search.is_wanted or how.scale),
        "--update keeps the options of the model: no -v, lists or --scale",
    )
    if how.row_weights is not None:
        check_row_weights(data, job)
    require(not how.is_table, f"--update reads svmlight files, not --format {how.format}")
    require(
        job.resources.cluster is None,
        "--update trains on rows in order, as they arrive: no --cluster",
    )
    with listening(clock):
        run = UpdateRun(path, model, params, how.row_weights, clock)
        for option in [*ineffective_flags(params), *changed_flags(how)]:
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
                lambda_=run.learner.steps.lambda_,
                seconds=clock.seconds,
            )
        )
        with run.saved_if_interrupted():
            outcome = run.save(run.train())
        return run.result(outcome)


def _load_updatable(path: str) -> LinearModel:
    """Return the model in `path`. Raises ModelError if an update cannot continue from it."""
    old = load(path)
    if not isinstance(old, LinearModel):
        raise ModelError(f"{path}: expected a linear model to update, found another")
    refused = {
        "random features": old.mapping,
        # Its b was set by all rows at once.
        "-n": old.metadata.get(SHARE_OUTSIDE),
        "--scale": old.scaling,
        "-b 1": None if old.solver in LOGISTIC else old.sigmoid,
        "--conformal": old.conformal,
    }
    for option, found in refused.items():
        if found is not None:
            raise ModelError(f"{path}: expected a model without {option} to update")
    return old


def _learner_of(old: LinearModel, params: SgdParams, path: str) -> Learner:
    """Return the learner that continues where the model in `path` ended."""
    metadata = old.metadata
    try:
        lambda_, eta0, bias_rate, t = (
            float(metadata[name]) for name in ("lambda", "eta0", "bias_rate", "t")
        )
        weights = metadata["weights"]
    except KeyError:
        raise ModelError(
            f"{path}: expected a model of randsvm-train sgd to update, found one without its "
            f"step size"
        ) from None
    if params.weights:
        weights = class_weights(params.weights, old.labels, [1] * len(old.labels))
    losses = {LOSSES[name].solver: name for name in LOSS_NAMES}
    losses |= {solver: name for name, solver in SOLVER_OF_REGRESSION_LOSS.items()}
    steps = SgdSchedule(
        weights=np.array(weights),
        loss=losses.get(old.solver, "hinge"),
        crammer_singer=old.solver == CRAMMER_SINGER,
        epsilon=float(metadata["epsilon"]) if "epsilon" in metadata else None,
        origin=float(metadata.get(ORIGIN, "0")),
        lambda_=lambda_,
        eta0=eta0,
        bias_rate=bias_rate,
        bias_lambda=float(metadata.get("bias_lambda", lambda_)),
        # A fixed rate follows changing data; a mean would lag behind.
        averages=params.update_rate is None,
        fixed_rate=params.update_rate or 0.0,
    )
    learner = Learner(steps, old.w.copy(), old.b.copy())
    learner.start_at(t)
    try:
        _continue_update(learner, metadata)
    except ValueError:
        raise ModelError(
            f"{path}: expected the running weights of an update, found some that do not fit it"
        ) from None
    return learner


class UpdateRun(TrainingRun):
    """The training of a linear model block by block.

    The columns of the weights are features in the order in which they appeared.

    row_weights : name of a file of weights, one for each row; None: `cost:` in the rows, if any
    features : (d,) int64, sorted
    columns : (d,) the column of each of `features`
    checkpoint : write the model after this number of rows (int) or seconds (float)
    """

    def __init__(
        self, data: str, path: str, params: SgdParams, row_weights: str | None, clock: Clock
    ) -> None:
        assert params.update is not None
        self.data, self.path, self.clock = data, path, clock
        self.row_weights = None if row_weights is None else RowWeights(row_weights, data)
        self.old = _load_updatable(params.update)
        self.learner = _learner_of(self.old, params, params.update)
        self.checkpoint = params.checkpoint
        # A model does not store the name of the file that it came from.
        nameless = replace(params, update="MODEL")
        self.arguments = command_line(nameless, names=params.UPDATE_FIELDS)
        self.features = self.old.features
        self.columns = np.arange(len(self.features))
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
                    labels=old.labels,
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
        if self.learner.steps_made >= max(2 * self.reported_rows, 1):
            self.reported_rows, last = self.learner.steps_made, self._progress()
            emit(
                Updated(
                    seconds=self.clock.seconds,
                    rows=self.reported_rows,
                    last=last.steps,
                    loss=last.loss,
                    errors=None if self.old.is_regression else last.errors,
                )
            )
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

    def _progress(self) -> Progressive:
        """Return the numbers of the rows since the last call, and add them to those of all rows."""
        last = self.learner.progressive()
        self.loss += last.loss * last.weight
        self.errors += last.errors * last.weight
        return last

    def _checkpoint_if_due(self) -> None:
        rows, since = self.written
        new = self.learner.steps_made - rows
        if self.checkpoint is None or not new:
            return
        waited = new if isinstance(self.checkpoint, int) else time.perf_counter() - since
        if waited >= self.checkpoint:
            self._write("checkpoint")
            self.written = self.learner.steps_made, time.perf_counter()

    @property
    def has_model(self) -> bool:
        return self.learner.steps_made > 0

    def outcome(self, stopped: Stopped) -> Trained:
        self._progress()
        weight = self.learner.weight_learned or 1.0
        return Trained(
            model=self.path,
            steps=self.learner.steps_made,
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
        # Other lines of the old model, as its gap, are not true of these weights.
        metadata = {
            "version": __version__,
            "configuration": shlex.join(["sgd", *self.arguments]),
            "n": old.metadata.get("n", 0) + learner.steps_made,
            "d": len(self.features),
            "stopped": stopped,
            **state_metadata(learner, learner.t),
            **running_metadata(learner, self.columns),
        }
        model = replace(
            old,
            w=linear.w[self.columns],
            b=linear.b,
            features=self.features,
            seen=self.features,
            metadata=metadata,
        )
        save(model, self.path)
        return model


def running_metadata(learner: Learner, columns: np.ndarray) -> dict[str, list[float]]:
    """Return the entries of the trailer from which an update continues without a difference.

    columns : (d,) those of the weights, in the order of the features
    """
    s, sigma, m = learner.state[[S, SIGMA, M]].tolist()
    numbers = {
        "running": np.array([s, sigma, m]),
        "running_v": learner.v[columns],
        "running_b": learner.b,
        "running_A": learner.A[columns] if m else learner.A[:0],
        "running_b_sum": learner.b_sum if m else learner.b_sum[:0],
    }
    return {name: some.tolist() for name, some in numbers.items()}


def _continue_update(learner: Learner, metadata: Mapping[str, Any]) -> None:
    """Continue with what `running_metadata` wrote, and with its mean if both runs have one.

    Does nothing if no update wrote the model. Raises ValueError for other numbers of features or
    decision functions.
    """
    if "running" not in metadata:
        return
    s, sigma, m = metadata["running"]
    names, (d, K) = ("running_v", "running_A", "running_b", "running_b_sum"), learner.v.shape
    v, A, b, b_sum = (np.array(metadata[name], np.float64) for name in names)
    mean = 1 if m else 0
    v, b = v.reshape(d, K), b.reshape(K)
    A, b_sum = A.reshape(d * mean, K), b_sum.reshape(K * mean)
    learner.v, learner.b, learner.state[S] = v, b, s
    if learner.steps.averages and m:
        learner.A, learner.b_sum = A, b_sum
        learner.state[[SIGMA, M]] = sigma, m


def _targets(block: svmlight.Block, table: LabelTable, steps: SgdSchedule) -> np.ndarray:
    """y of each row, (m,) float64: targets, class indices, or 0 for novelty detection."""
    if steps.epsilon is not None:
        return block.y
    y = table.classes(block)
    return np.zeros(len(y)) if steps.origin else y
