"""Linear machines: train one by epochs of stochastic gradient descent, or update one.

Epochs pass over all rows of a file. An update trains on rows as they arrive, in one pass, and keeps
no row after the step that it makes.
"""

from __future__ import annotations

import math
import shlex
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from randsvm import __version__
from randsvm.algorithms import newton, sgd
from randsvm.algorithms.sgd import BIAS_RATE, Learner, LearnerState, Progressive, SgdSchedule
from randsvm.arrays import median
from randsvm.data import svmlight
from randsvm.data.batches import Batch
from randsvm.data.classes import one_class
from randsvm.data.dataset import Chunk, Dataset, Source
from randsvm.data.labels import LabelTable
from randsvm.data.row_weights import RowWeights
from randsvm.data.sampling import Draw, Draws
from randsvm.errors import ModelError, ParameterError
from randsvm.events import Epoch, Notice, Started, Trained, Updated, Watch, emit, listening
from randsvm.files import inputs
from randsvm.models.linear_model import LOGISTIC, LinearModel
from randsvm.models.model import Model
from randsvm.models.model_text import load, save
from randsvm.parameters.option import changed_flags, command_line, ineffective_flags, require
from randsvm.parameters.sgd import LOSSES, OUTSIDE, SgdParams
from randsvm.parameters.svm import class_weights
from randsvm.svm.linear import (
    CRAMMER_SINGER,
    SQUARED_EPSILON_INSENSITIVE,
    Classes,
    Linear,
    LinearFindings,
    Loss,
    Targets,
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
from randsvm.training.run import (
    BatchRun,
    Trainer,
    TrainingRun,
    check_row_weights,
)

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
        run = self._training(D, params, clock, clock.end)
        run.train()
        return run.solution.decision

    def fits_probabilities(self, params: SgdParams) -> bool:
        # A logistic regression has probabilities of its own.
        return params.probability and params.loss != "log"

    def start(self, params: SgdParams, clock: Clock, until: float) -> LinearTrainingRun:
        run = self._training(self.D, params, clock, until)
        if (
            run.share_of_means > FAR_FROM_ZERO
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

    def _training(
        self, D: Dataset, params: SgdParams, clock: Clock, until: float
    ) -> LinearTrainingRun:
        """Return a training on all rows or on a view of them."""
        objective, mapping = LinearObjective.of(D, self.labels, params), self.map_of(params)
        if params.task == "one-class":
            D = one_class(D)
        if mapping is not None:
            D = D.mapped(mapping.over(D.summary.features))
        return LinearTrainingRun(self, D, objective, params, clock, until)


# --early-stopping leaves at least this number of rows to train on.
MIN_TRAINING_ROWS = 2
# A closing evaluation takes about this many times as long as a pass that only adds up |x|^2.
EVALUATION_FACTOR = 3.0


class LinearTrainingRun(BatchRun[SgdParams]):
    """SGD on the rows of D. With held-out rows, the solution of their lowest loss is kept.

    D : all rows, with the features that the weights belong to
    objective : for these rows
    end : the moment when the time for training and evaluation is over
    training_end : the moment when the time for training is over
    share_of_means : the part of the mean of |x|^2 that the squares of the features' means make up
    groups : the number of groups of rows that a cluster trains on side by side
    """

    def __init__(
        self,
        trainer: Trainer[SgdParams],
        D: Dataset,
        objective: LinearObjective,
        params: SgdParams,
        clock: Clock,
        end: float,
    ) -> None:
        self.trainer = trainer
        self.D = D
        self.objective = objective
        self.params = params
        self.clock = clock
        self.end = end
        began = time.perf_counter()
        R2, of_means = sgd.squares(D)
        self.share_of_means = of_means / R2
        self.training_end = end - EVALUATION_FACTOR * (time.perf_counter() - began)
        self.start, spread = _start(D, objective, params)
        self.steps = _steps(params, D, R2, spread, objective)
        self.rng = Draws(trainer.job.data_params.seed)
        self.learner = Learner.new(self.steps, D.d, self.start)
        # Few rows make one group, which this process trains on.
        resources = trainer.job.resources
        # The data may take the other part of the memory.
        room = resources.memory - resources.data_bytes
        self.groups = 1 if resources.cluster is None else sgd.group_count(D, self.learner, room)
        self.seconds = 0.0
        self.last: Progressive | None = None
        # Rows that are not trained on, the lowest loss of them with its solution, and whether an
        # epoch did not lower it.
        self.held_rows: Dataset | None = None
        self.best: tuple[float, Linear] | None = None
        self.risen = False
        # The solution with exactly the share of rows outside that was asked for (-n).
        self.with_share: Linear | None = None
        self.evaluation: LinearFindings | None = None
        # The last Newton step of --gap.
        self.newton: newton.Solution | None = None
        self.stopped = Stopped(StopReason.ALL_EPOCHS)

    @property
    def solution(self) -> Linear:
        if self.newton is not None:
            return self.newton.linear
        if self.with_share is not None:
            return self.with_share
        return self.best[1] if self.best else self.learner.linear

    def run(self) -> None:
        self.train()
        with suppress(TimeLimitError), self.clock.until(lambda: self.end):
            self.evaluation = evaluate_linear(self.D, self.solution, self.objective.loss_function)

    def train(self) -> None:
        """Make all epochs, or those that time allows."""
        rows, self.held_rows = _split(self.D, self.params.early_stopping, self.rng)
        epochs = self.params.epochs
        assert epochs is not None, "params.resolved() comes first"
        horizon = 0.0 if self.steps.averages else float(epochs * rows.n)
        steps = replace(self.steps, horizon=horizon)
        self.learner = Learner.new(steps, self.D.d, self.start)
        if self.groups > 1:
            one_pass = sgd.averaged(rows, self.rng, self.groups)
        else:
            one_pass = sgd.from_dataset(rows, self.rng)
        began = time.perf_counter()
        try:
            with self.clock.until(
                lambda: (self.training_end if self.has_model else self.clock.end) - RESERVED_SECONDS
            ):
                for number in sgd.sgd(one_pass, rows.n, self.learner, epochs):
                    self._report_epoch(number)
                    if self.risen:
                        self.stopped = Stopped(StopReason.HELD_OUT_LOSS)
                        break
                share = self.objective.share
                if share is not None:
                    self.with_share = with_share_outside(self.D, self.solution, share)
                if self.params.gap is not None:
                    self._reach(self.params.gap)
        except TimeLimitError:
            if not self.has_model:
                raise
            self.stopped = Stopped(StopReason.TIME_LIMIT)
        finally:
            self.seconds = time.perf_counter() - began

    def _reach(self, gap: float) -> None:
        """Make Newton steps until the duality gap, or as many as are allowed."""
        C = self.params.cost_and_lambda(self.D.total_weight())[0]
        form = self.objective.dual_form(C, self.params)
        most = self.params.max_iterations
        for found in newton.minimise(self.D, form, self.learner.linear, gap):
            self.newton = found
            if most is not None and found.steps >= most:
                break
        assert self.newton is not None
        if self.newton.gap <= gap:
            self.stopped = Stopped(StopReason.GAP_REACHED, (gap,))
        elif most is not None and self.newton.steps >= most:
            self.stopped = Stopped(StopReason.ITERATION_LIMIT)
        else:
            self.stopped = Stopped(StopReason.PRECISION_LIMIT)

    def _report_epoch(self, number: int) -> None:
        last = self.last = self.learner.progressive()
        emit(
            Epoch(
                number=number,
                seconds=self.clock.seconds,
                rows=last.rows,
                loss=last.loss,
                errors=None if self.objective.is_regression else last.errors,
                held_out=self._loss_of_held_rows(),
                bytes_moved=self.D.executor.bytes_moved,
            )
        )

    def _loss_of_held_rows(self) -> float | None:
        """Return the mean loss of the solution so far, which is kept if it is the best."""
        if self.held_rows is None:
            return None
        linear = self.learner.linear
        found = evaluate_linear(self.held_rows, linear, self.objective.loss_function)
        loss = self.objective.loss(found, linear) / found.weight
        if self.best is None or loss < self.best[0]:
            self.best = loss, linear
        else:
            self.risen = True
        return loss

    @property
    def has_model(self) -> bool:
        return self.learner.rows_learned > 0

    def own_outcome(self, stopped: str) -> Trained:
        found, regression = self.evaluation, self.objective.is_regression
        C, linear = self.trainer.cost_and_lambda(self.params)[0], self.solution
        last = self.last or self.learner.progressive()
        primal = None
        if found is not None:
            primal = float(np.square(linear.w).sum() / 2 + C * self.objective.loss(found, linear))
        wrong = None if found is None else found.wrong / found.weight
        newton_steps, dual, gap = 0, None, math.nan
        if self.newton is not None:
            newton_steps, dual, gap = self.newton.steps, self.newton.dual, self.newton.gap
        return Trained(
            model=self.name,
            steps=self.learner.rows_learned,
            progressive_loss=last.loss,
            progressive_errors=None if regression else last.errors,
            primal=primal,
            J=None if primal is None or found is None else primal / (C * found.weight),
            violators=None if found is None else found.violators,
            error=None if regression else wrong,
            squared_error=wrong if regression else None,
            cross_validation=self.cross_validation,
            stopped=stopped,
            solve_seconds=self.seconds,
            seconds=self.clock.seconds,
            bytes_moved=self.D.executor.bytes_moved,
            newton_steps=newton_steps,
            dual=dual,
            gap=gap,
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
            # --update continues as if there had been one epoch; in it a row counts by its weight:
            # so its steps are larger. Measured on three sets cut in two: 0.1 to 0.3 points better.
            **state_metadata(self.learner, min(self.learner.t, one_epoch)),
        }

    def model(self, **common: Any) -> LinearModel:
        linear = self.solution
        return LinearModel(
            w=linear.w,
            b=linear.b,
            solver=self.objective.loss_function.solver,
            mapping=self.trainer.map_of(self.params),
            features=self.D.summary.features,
            **common,
        )


def _start(
    D: Dataset, objective: LinearObjective, params: SgdParams
) -> tuple[np.ndarray | None, float]:
    """Return b at the start, (K,) float64 or None for zero, and the expected spread of f.

    The spread is divided by the slope of the loss at that distance; for a squared loss the two
    cancel: 1.
    """
    if not objective.is_regression:
        return None if params.no_bias else objective.best_constant, 1.0
    y = D.points(D.sample(Draw(0, 0), sgd.SAMPLE)).y
    middle = 0.0 if params.no_bias else median(y)
    spread = 1.0 if params.squares_loss else float(np.abs(y - middle).mean()) or 1.0
    return np.array([middle]), spread


def _steps(
    params: SgdParams, D: Dataset, R2: float, spread: float, objective: LinearObjective
) -> SgdSchedule:
    n, weight = D.n, D.total_weight()
    lambda_, eta0 = params.cost_and_lambda(weight)[1], spread / (R2 * objective.mean_step)
    bias_rate = 0.0 if params.no_bias else BIAS_RATE * R2
    if objective.share is not None:
        # The objective is homogeneous: f and the steps of w scale with 1 / lambda. The steps of b
        # stay as they are.
        bias_rate *= lambda_
        eta0 = 1 / lambda_
    return SgdSchedule(
        lambda_=lambda_,
        eta0=eta0,
        bias_rate=bias_rate,
        # b is not regularised: with a lambda that is large for these features, steps that suit the
        # weights would become too small before b is near its optimum.
        bias_lambda=min(lambda_, 1 / (n * eta0)),
        weights=objective.weights,
        loss=OUTSIDE if objective.share is not None else _margin_loss(params),
        crammer_singer=objective.loss_function.solver == CRAMMER_SINGER,
        epsilon=objective.epsilon,
        origin=objective.origin,
        averages=params.averages,
        # Divided by their mean, the weights of all rows sum to n: an epoch has n steps.
        mean_weight=weight / n if D.summary.weighted else None,
    )


def _margin_loss(params: SgdParams) -> str:
    """Return the loss of z, which for a regression is 1 minus the distance from the tube."""
    if params.task == "svr":
        return "squared-hinge" if params.squares_loss else "hinge"
    return params.loss or "hinge"


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
    return {
        **({} if steps.epsilon is None else {"epsilon": steps.epsilon}),
        **({"nu" if steps.loss == OUTSIDE else "origin": steps.origin} if steps.origin else {}),
        "lambda": steps.lambda_,
        "eta0": steps.eta0,
        "bias_rate": steps.bias_rate,
        **({} if steps.bias_lambda is None else {"bias_lambda": steps.bias_lambda}),
        "weights": steps.weights.tolist(),
        "t": t,
    }


@dataclass(frozen=True)
class LinearObjective:
    """The objective of linear training: the weight of each row, and its loss.

    weights : (classes,) float64, the weight of the rows of each class
    counts : the weight of the rows of each class, their number without weights of rows; empty
        without classes
    epsilon : the half width of a regression's tube
    origin : the weight, for each unit of the rows' weight, of a row of zeros with y = -1 (novelty
        detection)
    share : the share of the rows' weight that novelty detection leaves outside; the origin then
        counts as the term share * b
    """

    weights: np.ndarray
    loss_function: Loss
    epsilon: float | None = None
    origin: float = 0.0
    share: float | None = None
    counts: tuple[float, ...] = ()

    @staticmethod
    def of(D: Dataset, labels: tuple[str, ...], params: SgdParams) -> LinearObjective:
        """Return the objective for D.

        D : all rows or a view of them; labels : of all rows. Raises ParameterError for weights of
        labels that the data does not have.
        """
        if params.task == "svr":
            loss = Targets(params.epsilon, params.squares_loss)
            return LinearObjective(np.ones(1), loss, params.epsilon)
        assert params.loss
        if params.has_share:
            # Schoelkopf et al. 2001: nu/2 |w|^2 + nu b + mean max(0, -f).
            assert params.nu
            weights = np.ones(1)
            return LinearObjective(
                weights, Classes(OUTSIDE, weights), origin=params.nu, share=params.nu
            )
        if params.task == "one-class":
            # MADlib: every row is positive, the origin is the only negative, both sides have the
            # same weight.
            n = D.total_weight()
            weights = np.array([(n + 1) / (2 * n)])
            return LinearObjective(weights, Classes(params.loss, weights), origin=float(weights[0]))
        assert D.targets is not None
        by_class = D.summary.total_weight_by_class
        counts = tuple(by_class[i] for i in np.argsort(D.targets))
        weights = np.array(class_weights(params.weights, labels, counts))
        crammer_singer = params.multiclass == "crammer-singer" and len(labels) > 2
        return LinearObjective(
            weights, Classes(params.loss, weights, crammer_singer), counts=counts
        )

    @property
    def is_regression(self) -> bool:
        return self.epsilon is not None

    def dual_form(self, C: float, params: SgdParams) -> newton.DualForm:
        """Return the losses of rows, times C, as Newton's method takes them.

        Only for the hinge, its square, and a regression.
        """
        if self.is_regression:
            terms: Any = partial(_targets_and_costs, C)
        else:
            terms = partial(_signs_and_costs, C * self.weights)
        return newton.DualForm(terms, params.squares_loss, self.epsilon, not params.no_bias)

    @property
    def mean_step(self) -> float:
        """The mean step of a row, relative to the step of a row of weight 1.

        The mean is weighted by the rows' weights: a row of weight 100 makes a step 100 times as
        long, and counts 100 times.
        """
        if not self.counts:
            return 1.0
        counts = np.array(self.counts, float)
        return float(counts @ self.weights**2 / (counts @ self.weights))

    @property
    def best_constant(self) -> np.ndarray | None:
        """The b, (K,) float64, of the lowest loss without features; None: 0.

        That is the log odds of the classes for the logistic loss, and the minimum of the squared
        hinge for both hinges.
        """
        if not self.counts or self.loss_function.solver == CRAMMER_SINGER:
            return None
        assert isinstance(self.loss_function, Classes)
        mass = self.weights * self.counts
        p = mass / mass.sum()
        b = np.log(p / (1 - p)) if self.loss_function.loss == "log" else 2 * p - 1
        return b[:1] if len(b) == 2 else b

    def loss(self, found: LinearFindings, linear: Linear) -> float:
        """Return the sum of losses, including that of the origin."""
        if not self.origin:
            return found.loss
        if self.share is not None:
            return found.loss + found.weight * self.share * float(linear.b[0])
        assert isinstance(self.loss_function, Classes)
        at_origin = float(LOSSES[self.loss_function.loss].of(-linear.b[:1])[0])
        return found.loss + found.weight * self.origin * at_origin


def _targets_and_costs(C: float, chunk: Chunk) -> tuple[np.ndarray, np.ndarray]:
    """Return the targets of rows, and C times their weights, both (m, 1)."""
    weights = np.ones(len(chunk.y)) if chunk.weights is None else chunk.weights
    return chunk.y[:, None], C * weights[:, None]


def _signs_and_costs(C: np.ndarray, chunk: Chunk) -> tuple[np.ndarray, np.ndarray]:
    """Return 1 for rows of the class of each decision function, else -1, and C of the rows.

    Both are (m, K). C : (classes,); two classes have one function, in which class 0 is 1.
    """
    classes = chunk.y.astype(np.int64)
    functions = np.arange(1 if len(C) == 2 else len(C))
    signs = np.where(classes[:, None] == functions, 1.0, -1.0)
    costs = C[classes] if chunk.weights is None else C[classes] * chunk.weights
    # A class of weight 0 has no losses; the coefficients of its rows are divided by its cost.
    return signs, np.broadcast_to(np.maximum(costs, np.finfo(float).tiny)[:, None], signs.shape)


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
    if job.search.is_wanted or job.data_params.scale:
        raise ParameterError("--update keeps the options of the model: no -v, lists or --scale")
    if job.data_params.row_weights is not None:
        check_row_weights(path, job)
    if job.data_params.is_table:
        raise ParameterError(
            f"--update reads svmlight files, not --format {job.data_params.format}"
        )
    if job.resources.cluster is not None:
        raise ParameterError("--update trains on rows in order, as they arrive: no --cluster")
    with listening(clock):
        assert params.update is not None
        old = _load_updatable(params.update)
        steps, t = _steps_of(old, params, params.update)
        for option in [*ineffective_flags(params), *changed_flags(job.data_params)]:
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
        weights = job.data_params.row_weights
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
        "-b 1": None if old.solver in LOGISTIC else old.sigmoid,
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
    if old.solver == SQUARED_EPSILON_INSENSITIVE:
        losses = ["squared-hinge"]
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
            seen=self.features,
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
