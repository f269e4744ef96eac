"""Linear machines: train one by epochs of stochastic gradient descent, or update one.

Epochs pass over all rows of a file, or passes and Newton steps reach a gap. An update trains on
rows as they arrive, in one pass, and keeps no row after the step that it makes.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Generator, Sequence
from contextlib import closing, suppress
from copy import copy
from dataclasses import replace
from functools import cache, cached_property, partial
from math import inf, nan
from typing import Any

import numpy as np

from randsvm import __version__
from randsvm.algorithms import newton, sgd
from randsvm.algorithms._sgd import SIGMA, M, S
from randsvm.algorithms.sgd import BIAS_RATE, Learner, SgdSchedule
from randsvm.arrays import distinct, find_columns, median
from randsvm.data import in_memory
from randsvm.data.batches import Batch
from randsvm.data.chunks import RawChunk
from randsvm.data.classes import one_class
from randsvm.data.dataset import Dataset, Source
from randsvm.data.in_memory import Arrays
from randsvm.data.sampling import Draw, Draws
from randsvm.data.svmlight import ParseOptions
from randsvm.decimals import label_value
from randsvm.errors import (
    ContentError,
    ModelError,
    OutputError,
    ParameterError,
    TransferError,
)
from randsvm.events import Epoch, Notice, Point, Started, Trained, Updated, Watch, emit, listening
from randsvm.models.linear_model import LOGISTIC, LinearModel
from randsvm.models.metadata import Metadata, or_nan
from randsvm.models.model import Model
from randsvm.models.model_text import load, save
from randsvm.models.row_files import RowFiles
from randsvm.parameters.option import changed_flags, command_line, ineffective_flags, require
from randsvm.parameters.run import PredictParams
from randsvm.parameters.sgd import CRAMMER_SINGER, OUTSIDE, SgdParams
from randsvm.parameters.svm import class_weights
from randsvm.svm.linear_certificate import certified
from randsvm.svm.linear_loss import (
    LOSS_OF_SOLVER,
    Linear,
    LinearFindings,
    LinearObjective,
    evaluate_linear,
    with_share_outside,
)
from randsvm.svm.solution import Certificate
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
    never,
)
from randsvm.training.rounds import INTERRUPTED_SECONDS, total_certificate
from randsvm.training.run import (
    BROKEN_OFF,
    FileRun,
    Plan,
    StartDetails,
    Trainer,
    TrainingRun,
    check_row_weights,
)
from randsvm.training.transcript import write as write_transcript

# The cost of a step is proportional to the number of classes.
MAX_CLASSES = 10_000
# Bytes of a nonzero, in its row and in its column.
COLUMN_BYTES = 24
# Features lie far from zero if the squares of their means are more than this part of the mean of
# |x|^2: then their standard deviations are a tenth of their means.
FAR_FROM_ZERO = 0.99


class LinearTrainer(Trainer[SgdParams]):
    """Trainer of weights of the features, or of random features that approximate a kernel.

    path: the parameters of --path, ascending in C
    """

    path: Sequence[SgdParams] = ()

    @property
    def max_classes(self) -> int:
        # Weights and their sums are 16 bytes for each feature and class.
        memory, d = self.job.resources.memory, len(self.D.summary.features)
        return min(MAX_CLASSES, max(2, memory // (16 * max(d, 1))))

    def resolved(self, params: SgdParams) -> SgdParams:
        params, needed = params.resolved(self.D.n), COLUMN_BYTES * self.D.nnz
        require(
            params.penalty != "l1" or needed <= self.job.resources.memory,
            f"--penalty l1 keeps all rows in memory, here {needed:,} bytes: --memory is too small",
        )
        if (mapping := self.map_of(params)) is not None:
            params = replace(params, gamma=mapping.gamma)
        return params

    def cost_and_lambda(self, params: SgdParams) -> tuple[float, float]:
        return params.cost_and_lambda(self.D.total_weight())

    def prepared(self, params: SgdParams) -> tuple[LinearTrainer, SgdParams]:
        require(
            self.job.search.search_gap is None,
            "--search-gap is for kernel machines: sgd ends after --epochs, not at a gap",
        )
        require(
            params.gap is None or self.job.resources.cluster is None,
            "--gap of sgd needs the rows in this process: no --cluster",
        )
        search = self.job.search
        if not search.path:
            return self, params
        require(
            [name for name, _ in search.grid] in (["C"], ["lambda_"]),
            "--path is over several values of -c or of --lambda, and of no other option",
        )
        other, points = copy(self), search.candidates(params)
        other.path = sorted(points, key=lambda one: one.cost_and_lambda(1.0)[0])
        return other, replace(other.path[-1], path=False)

    def described(self, params: SgdParams) -> StartDetails:
        unused = "--average has no effect with --gap and without --epochs"
        notices = [unused] * (params.average and not params.epochs)
        return StartDetails(notices=notices, fields={"gap_asked": params.gap})

    def decision(self, D: Dataset, params: SgdParams, clock: Clock) -> Decision:
        run = LinearTrainingRun(self, Plan(params, clock.end), clock, D)
        run.train()
        return run.linear.decision

    def new_run(self, plan: Plan[SgdParams], clock: Clock) -> LinearTrainingRun:
        points = [replace(plan.params, C=one.C, lambda_=one.lambda_) for one in self.path]
        run, params = LinearTrainingRun(self, plan, clock, self.D, points), plan.params
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
        return run


# One thread computes the sums over at most this many nonzeros: handing them over takes longer.
FEW_VALUES = 1 << 20
# --early-stopping leaves at least this number of rows to train on.
MIN_TRAINING_ROWS = 2
# The steps end at this part of the gap: the closing evaluation adds bounds of rounding.
STEPS_SHARE = 0.99
# A closing evaluation takes about this many times as long as the pass for the mean of |x|^2.
EVALUATION_PASSES = 3.0
# The first probability of a class is at least this far from 0 and 1: its log odds are finite.
CERTAIN = 1e-15
# Without the bounds of a closing evaluation nothing is certified.
UNKNOWN = Certificate(nan, nan, certified=False)
# A notice names at most this many classes that are not trained.
MAX_NAMED = 10


class LinearTrainingRun(FileRun[SgdParams]):
    """SGD on the rows of D, or of a view of it. With held-out rows, the solution of their lowest
    loss is kept.

    D : all rows, with the features that the weights belong to
    training_end : the moment when the steps must end: the plan's time is for the evaluation as well
    share_of_means : the part of the mean of |x|^2 that the squares of the features' means make up
    groups : the number of groups of rows that a cluster trains on side by side
    found : a solution that is better than that of the steps: the one of the lowest loss of held-out
        rows, or the one with the share of rows outside that -n asks for
    last_step : the result of the passes and Newton steps of --gap
    points : the parameters that the run trains with in turn, each from the solution before
    missed : each C of the points so far whose proven gap is above --gap
    kept : the run as it was after the parameters of the plan, or after the last ones so far; None:
        it is at the first ones
    progressive : the steps of the last whole epoch, see Learner.progressive; before: all steps
    """

    found: Linear | None = None
    last_step: newton.Solution | None = None
    evaluation: LinearFindings | None = None
    certificate = UNKNOWN
    largest_gap: float | None = None
    progressive: tuple[int, float, float | None] | None = None
    # Few rows make one group, which this process trains on.
    groups = 1
    share_of_means = 0.0
    stopped = Stopped(StopReason.ALL_EPOCHS)
    kept: LinearTrainingRun | None = None

    def __init__(
        self,
        trainer: Trainer[SgdParams],
        plan: Plan[SgdParams],
        clock: Clock,
        D: Dataset,
        points: Sequence[SgdParams] = (),
    ) -> None:
        super().__init__(trainer, plan, clock)
        self.points, self.missed = points or (plan.params,), list[str]()
        self.params = params = self.points[0]
        mapping = trainer.map_of(params)
        self.D = one_class(D) if params.task == "one-class" else D
        if mapping is not None:
            self.D = self.D.mapped(mapping.over(D.summary.features))
        if self.D.nnz <= FEW_VALUES:
            self.D = self.D.single_threaded()
        began, self.moments = time.perf_counter(), cache(partial(newton.column_moments, self.D))
        # Columns of sparse rows are many, and their means are small.
        if 2 * self.D.nnz <= self.D.n * self.D.d:
            R2 = sgd.mean_square(self.D) or 1.0
        else:
            R2 = float(self.moments()[1].sum()) or 1.0
            self.share_of_means = float(np.square(self.moments()[0]).sum()) / R2
        self.rng = Draws(trainer.job.data_params.seed)
        passes = EVALUATION_PASSES * (time.perf_counter() - began)
        self.first_learner = partial(_first_learner, self.D, trainer.labels, R2, self.rng.seed)
        self.learner = self.first_learner(params)
        # The latest pass takes one to evaluate, and the bounds of each decision function another.
        self.training_end -= passes * (1 + (1 + len(self.learner.b)) * (params.gap is not None))
        resources = trainer.job.resources
        if resources.cluster is not None:
            # The data may take the other part of the memory.
            room = resources.memory - resources.data_bytes
            self.groups = sgd.group_count(self.D, self.learner, room)

    @cached_property
    def minimiser(self) -> newton.Minimiser:
        return newton.Minimiser(
            self.D,
            self.learner.steps,
            self.moments,
            bias=not self.params.no_bias,
            memory=self.trainer.job.resources.memory // 4,
        )

    @property
    def cost(self) -> float:
        """C of the parameters, also if they have lambda."""
        return self.params.cost_and_lambda(self.D.total_weight())[0]

    @property
    def linear(self) -> Linear:
        """The solution so far."""
        if self.last_step is not None:
            return self.last_step.linear
        return self.learner.linear if self.found is None else self.found

    def run(self) -> None:
        for params in self.points:
            if params is not self.params:
                self.params, self.learner = params, self.first_learner(params)
                self.evaluation, self.certificate, self.largest_gap = None, UNKNOWN, None
            self.train()
            with suppress(TimeLimitError), self.clock.until(lambda: self.plan.training_end):
                self._evaluate()
            if self.last_step is not None and not self.certificate.certified:
                self.stopped = Stopped(StopReason.TIME_LIMIT)
            stopped = self.stopped
            if stopped.reason is StopReason.TIME_LIMIT:
                break
            asked = self.params.gap or inf
            if stopped.reason is StopReason.GAP_REACHED and not self.certificate.gap <= asked:
                self.stopped = Stopped(StopReason.GAP_NOT_PROVEN)
            if len(self.points) > 1:
                point = self._point()
                emit(point)
                if point.gap > asked:
                    self.missed.append(f"{point.C:g}")
            if self.kept is None or self.kept.params != self.plan.params:
                self.kept = copy(self)
        if self.kept is not None:
            self._take_kept()
        if stopped.reason is StopReason.TIME_LIMIT:
            self.stopped = stopped

    def _point(self) -> Point:
        found = self.outcome(self.stopped)._asdict()
        C, lambda_ = self.trainer.cost_and_lambda(self.params)
        return Point(C, lambda_, *(found[name] for name in Point._fields[2:]))

    def _take_kept(self) -> None:
        vars(self).update(vars(self.kept), kept=self.kept)

    def interrupt(self, stopped: Stopped) -> None:
        if self.kept is not None:
            self._take_kept()
        elif self.last_step is not None:
            clock = Clock(INTERRUPTED_SECONDS)
            # What ended the steps may end the evaluation as well. Other listeners might do so.
            with suppress(Exception), listening(clock), clock.until(lambda: clock.end):
                self.last_step.take_latest()
                self._evaluate()

    def _evaluate(self) -> None:
        """Evaluate the solution over all rows, and certify it where there are coefficients."""
        steps, step = self.learner.steps, self.last_step
        self.evaluation = evaluate_linear(self.D, self.linear, steps)
        if step is not None:
            bias = not self.params.no_bias
            parts = certified(self.D, self.linear, steps, self.cost, step.coefficients, bias)
            self.certificate = total_certificate(parts)
            self.largest_gap = max(one.gap for one in parts) if len(parts) > 1 else None

    def save(self, stopped: Stopped, path: str | None = None) -> Trained:
        notes = []
        if self.missed:
            text = ", ".join(self.missed)
            notes.append(f"--gap {self.params.gap:g} is not reached at C = {text}")
        if stopped.reason in BROKEN_OFF and self.params != self.plan.params:
            notes.append(f"the path came to C = {self.cost:g}, and that is the C of the model")
        if stopped.reason in BROKEN_OFF and self.kept is None and self.last_step is not None:
            each = zip(self.trainer.labels, self.linear.w.T, strict=False)
            labels = [label for label, w in each if not w.any()] * (len(self.linear.b) > 1)
            text = ", ".join(labels[:MAX_NAMED]) + ", ..." * (len(labels) > MAX_NAMED)
            if labels:
                notes.append(f"weights of {len(labels)} classes are 0, not yet trained: {text}")
        with self.clock.until(never):
            for text in notes:
                emit(Notice(text))
        return super().save(stopped, path)

    def train(self) -> None:
        """Make all epochs and the steps to a gap, or those that time allows."""
        try:
            with self.clock.until(
                lambda: (self.training_end if self.has_model else self.clock.end) - RESERVED_SECONDS
            ):
                self._make_epochs()
                if self.learner.steps.share is not None:
                    self.found = with_share_outside(self.D, self.linear, self.learner.steps.share)
                if self.params.gap is not None:
                    self._reach(self.params.gap)
        except TimeLimitError:
            if not self.has_model:
                raise
            if self.last_step is not None:
                self.last_step.take_latest()
            self.stopped = Stopped(StopReason.TIME_LIMIT)

    def _make_epochs(self) -> None:
        rows, held_out = _split(self.D, self.params.early_stopping, self.rng)
        learner, epochs, lowest = self.learner, self.params.epochs, inf
        assert epochs is not None, "params.resolved() comes first"
        if not learner.steps.averages:
            learner.steps = replace(learner.steps, horizon=float(epochs * rows.n))
        before = learner.sums
        for number in sgd.sgd(rows, learner, epochs, self.rng, self.groups):
            _, progressive_loss, errors = self.progressive = learner.progressive(before)
            before = learner.sums
            loss, falls = None, True
            if held_out is not None:
                linear = learner.linear
                found = evaluate_linear(held_out, linear, self.learner.steps)
                loss = self.learner.steps.total(found, linear) / found.weight
                if falls := loss < lowest:
                    lowest, self.found = loss, linear
            emit(
                Epoch(
                    number=number,
                    seconds=self.clock.seconds,
                    rows=rows.n,
                    loss=progressive_loss,
                    errors=errors,
                    held_out=loss,
                    bytes_moved=self.D.executor.bytes_moved,
                )
            )
            if not falls:
                self.stopped = Stopped(StopReason.HELD_OUT_LOSS)
                return

    def _reach(self, gap: float) -> None:
        """Make passes and Newton steps until the duality gap, or as many as are allowed."""
        start = self.last_step or newton.Solution.at(self.learner.linear, self.cost, self.D.n)
        most = self.params.max_iterations
        for found in self.minimiser.minimise(self.cost, start, STEPS_SHARE * gap, most):
            self.last_step = found
        self.stopped = Stopped(StopReason.GAP_REACHED, (gap,))
        if self.last_step is not None and self.last_step.is_limited:
            self.stopped = Stopped(StopReason.ITERATION_LIMIT)

    @property
    def has_model(self) -> bool:
        has_found = self.found is not None or self.last_step is not None
        return self.learner.steps_made > 0 or has_found

    def outcome(self, stopped: Stopped) -> Trained:
        evaluation, objective, linear = self.evaluation, self.learner.steps, self.linear
        steps, progressive_loss, errors = self.progressive or self.learner.progressive()
        known: dict[str, Any] = {}
        if evaluation is not None:
            penalty = float(objective.penalty(linear.w).sum())
            primal = penalty + self.cost * objective.total(evaluation, linear)
            primal = self.certificate.primal if self.certificate.certified else primal
            wrong = "squared_error" if objective.is_regression else "error"
            known = {
                "nonzero_weights": int(linear.w.any(axis=1).sum()) if objective.l1 else None,
                "primal": primal,
                "J": primal / (self.cost * evaluation.weight),
                "violators": int(evaluation.violators),
                wrong: evaluation.wrong / evaluation.weight,
            }
        if (step := self.last_step) is not None:
            known |= {"newton_steps": step.steps, "passes": step.passes}
            dual, gap, word = self.certificate.dual, self.certificate.gap, "proven"
            if not self.certificate.certified:
                # A listener gets the gap without bounds of rounding, and a model none.
                gap = step.gap if stopped.reason is StopReason.CHECKPOINT else nan
                dual, word = step.dual, "none"
            known |= {"dual": dual, "gap": gap, "certificate": word}
            known |= {"largest_gap": self.largest_gap, "evaluated": evaluation is not None}
        return Trained(
            model=self.name,
            steps=self.learner.steps_made,
            progressive_loss=progressive_loss if steps else None,
            progressive_errors=errors,
            cross_validation=self.cross_validation,
            stopped=str(stopped),
            seconds=self.clock.seconds,
            gap_asked=self.params.gap,
            bytes_moved=self.D.executor.bytes_moved,
            digest=self.D.summary.digest,
            **known,
        )

    @property
    def _problem(self) -> dict[str, Any]:
        """The problem as docs/certificate-format.md defines it."""
        steps, params = self.learner.steps, self.params
        of_task = {"epsilon": steps.epsilon}
        if not steps.is_regression:
            of_task = {"class_weights": steps.weights.tolist()}
        return {
            "task": params.task,
            "loss": steps.loss,
            "C": self.cost,
            **of_task,
            "bias": not params.no_bias,
            **({"penalty": "l1"} if steps.l1 else {}),
        }

    def metadata(self, outcome: Trained) -> dict[str, Any]:
        D, gaps = self.D, dict[str, Any]()
        one_epoch = D.total_weight() if D.summary.weighted else D.n
        if outcome.dual is not None:
            gaps = {
                "problem": self._problem,
                "primal_error": self.certificate.primal_error,
                "dual": outcome.dual,
                "dual_error": self.certificate.dual_error,
                "gap": outcome.gap,
                "certificate": outcome.certificate,
                "largest_gap": self.largest_gap,
            }
        return {
            "primal": or_nan(outcome.primal),
            **gaps,
            "violators": or_nan(outcome.violators),
            **({} if self.groups == 1 else {"averaged": self.groups}),
            "stopped": outcome.stopped,
            # --update continues as after one epoch, also after several. A row counts by its weight
            # there. The steps of the update are larger than after all epochs: measured on three
            # sets cut in two, its models are 0.1 to 0.3 points better.
            **state_metadata(
                self.learner, min(self.learner.t, one_epoch) if self.params.epochs else one_epoch
            ),
        }

    def write_transcript(self, outcome: Trained) -> None:
        path, step = self.trainer.job.limits.certificate, self.last_step
        if path is None:
            return
        if step is None or not self.certificate.certified:
            emit(Notice(f"{path} is not written: the training ended before its closing evaluation"))
            return
        machines = [{"rows": part.rows, "beta": part.beta} for part in step.parts]
        write_transcript(path, outcome.model, machines)

    def model(self, **common: Any) -> LinearModel:
        return LinearModel(
            w=self.linear.w,
            b=self.linear.b,
            solver=self.learner.steps.solver,
            mapping=self.trainer.map_of(self.params),
            features=self.D.summary.features,
            **common,
        )


def _first_learner(
    D: Dataset, labels: tuple[str, ...], R2: float, seed: int, params: SgdParams
) -> Learner:
    """Return a learner of the rows before its first step.

    D : all rows or a view of them; labels : of all rows; R2 : mean of |x|^2. Raises ParameterError
    for weights of labels that the data does not have.

    For classes the first b has the lowest loss without features: the log odds of the classes for
    the logistic loss, and the minimum of the squared hinge for both hinges.
    """
    # The first step is eta0 = spread / (R2 * mean_step).
    # mean_step: the length of the mean step, relative to that of a row of weight 1. Rows count by
    # their weights: a row of weight 100 makes a step 100 times as long, and counts 100 times.
    # spread: the expected distance of f from y, divided by the slope of the loss at that distance;
    # for a squared loss the two cancel.
    n, weight, b, spread, mean_step = D.n, D.total_weight(), None, 1.0, 1.0
    lambda_, loss = params.cost_and_lambda(weight)[1], params.loss or "hinge"
    if params.task == "svr":
        loss = "squared-hinge" if params.squares_loss else "hinge"
        objective = LinearObjective(weights=np.ones(1), loss=loss, epsilon=params.epsilon)
        y = D.points(D.sample(Draw(seed, 0), sgd.SAMPLE)).y
        b = np.array([0.0 if params.no_bias else median(y)])
        spread = 1.0 if params.squares_loss else float(np.abs(y - b[0]).mean()) or 1.0
    elif params.has_share:
        # Schoelkopf et al. 2001: nu/2 |w|^2 + nu b + mean max(0, -f).
        objective = LinearObjective(weights=np.ones(1), loss=OUTSIDE, origin=lambda_)
    elif params.task == "one-class":
        # MADlib: every row is positive, the origin is the only negative, both sides have the same
        # weight.
        half = (weight + 1) / (2 * weight)
        objective = LinearObjective(weights=np.array([half]), loss=loss, origin=half)
    else:
        _, sizes = D.class_totals()
        weights = np.array(class_weights(params.weights, labels, sizes.tolist()))
        at_once = params.multiclass == "crammer-singer" and len(labels) > 2
        objective = LinearObjective(
            weights=weights, loss=loss, crammer_singer=at_once, l1=params.penalty == "l1"
        )
        # Squares of the weights may leave float64.
        largest = float(weights.max())
        relative = weights / largest
        mean_step = float(sizes @ relative**2 / (sizes @ relative)) * largest
        # Rows that lack a class, in a fold or at the begin of a stream, do not show its frequency.
        if sizes.all() and not (at_once or params.no_bias):
            p = relative * sizes / (relative * sizes).sum()
            likely = np.clip(p, CERTAIN, 1 - CERTAIN)
            b = np.log(likely / (1 - likely)) if loss == "log" else 2 * p - 1
            b = b[:1] if len(b) == 2 else b
    eta0 = max(spread / R2 / mean_step, float(np.finfo(float).tiny))
    bias_rate = 0.0 if params.no_bias else BIAS_RATE * R2
    if params.has_share:
        # The loss has the same slope at any scale of f, so that f and the steps of w scale with
        # 1 / lambda. Those of b, eta0 * bias_rate, do not depend on lambda.
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
    return Learner.new(steps, D.d, b)


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


# The numbers of a schedule that a model stores.
STORED = ("lambda_", "eta0", "bias_rate", "bias_lambda")
# The arrays of a Learner that an update stores; the last two are of the mean.
RUNNING = ("v", "b", "A", "b_sum")


def state_metadata(learner: Learner, t: float) -> dict[str, Any]:
    """Return the fields of Metadata that --update continues from; see `_learner_of`.

    t: the number of steps that count as made
    """
    steps = learner.steps
    # Both mark novelty detection: the weight of the origin, or with -n the share of rows outside.
    mark = "nu" if steps.loss == OUTSIDE else "origin"
    return {
        **({} if steps.epsilon is None else {"epsilon": steps.epsilon}),
        **({mark: steps.origin} if steps.origin else {}),
        **{name: getattr(steps, name) for name in STORED},
        "weights": steps.weights,
        "t": float(t),
    }


def _learner_of(old: LinearModel, params: SgdParams, path: str) -> Learner:
    """Return the learner that continues where the model in `path` ended.

    If an update wrote the model, it continues with its running weights, and with their mean if
    both runs have one.
    """
    found = old.metadata
    numbers = {name: getattr(found, name) for name in STORED}
    origin, epsilon, t, weights = found.origin or 0.0, found.epsilon, found.t, found.weights
    if (
        t is None
        or weights is None
        or not np.isfinite([t, origin, epsilon or 0.0, *numbers.values()]).all()
    ):
        raise ModelError(
            f"{path}: expected a model of randsvm-train sgd to update, found one without its "
            f"step size"
        )
    if params.weights:
        weights = np.array(class_weights(params.weights, old.labels, [1] * len(old.labels)))
    steps = SgdSchedule(
        weights=weights,
        loss=LOSS_OF_SOLVER.get(old.solver, "hinge"),
        crammer_singer=old.solver == CRAMMER_SINGER,
        epsilon=epsilon,
        origin=origin,
        # A fixed rate follows changing data; a mean would lag behind.
        averages=params.update_rate is None,
        fixed_rate=params.update_rate or 0.0,
        **numbers,
    )
    learner = Learner(steps, old.w.copy(), old.b.copy(), steps_before=t)
    if found.running is None:
        return learner
    learner.state[S], sigma, m = found.running
    for name in RUNNING if m and steps.averages else RUNNING[:2]:
        own: np.ndarray = getattr(learner, name)
        own[...] = getattr(found, f"running_{name}").reshape(own.shape)
    if m and steps.averages:
        learner.state[[SIGMA, M]] = sigma, m
    return learner


# ---- updates ---------------------------------------------------------------------------------


# Fields of DataParams that say how an update reads its rows.
READING = ("row_weights", "format", "sql", "no_header", "delimiter")


def update(
    data: Source,
    model: str | None,
    params: SgdParams,
    job: Job,
    watch: Watch,
    old: Model | None = None,
) -> tuple[Model, Trained]:
    """Train the model `old` (None: that in the file params.update) on the rows of `data`; write it
    to `model` (None: no file).

    Returns the model and how its training ended.

    Raises the errors of randsvm.errors. On Interrupted the model so far is written to `model`, on
    any other error to the file of an interrupted run; `model` is then unchanged or the last
    checkpoint.
    """
    clock, how = Clock(job.limits.time_limit, watch), job.data_params
    check_paths(data, model, job)
    check_gap(job, params)
    require(model is not None or params.checkpoint is None, "--checkpoint needs a MODEL_FILE")
    require(
        not (job.search.is_wanted or how.scale),
        "--update keeps the options of the model: no -v, lists or --scale",
    )
    require(
        job.resources.cluster is None,
        "--update trains on rows in order, as they arrive: no --cluster",
    )
    require(job.limits.keep_rows is None, "--keep-rows does not go with --update")
    if how.row_weights is not None:
        check_row_weights(data, job)
    with listening(clock):
        run = UpdateRun(data, model, old, params, job, clock)
        effective = command_line(how, names=READING)
        for option in [*ineffective_flags(params), *changed_flags(how)]:
            if option not in effective:
                emit(Notice(f"{option} has no effect with --update"))
        arguments = [*command_line(params, names=params.UPDATE_FIELDS), *effective]
        arguments += command_line(job.limits)
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
        with clock.before_a_model(run.name, lambda: run.has_model), run.saved_if_broken_off():
            outcome = run.save(run.train())
        return run.result(outcome)


def _updatable(old: Model, path: str) -> LinearModel:
    """Return the model. Raises ModelError if an update cannot continue from it."""
    if not isinstance(old, LinearModel):
        raise ModelError(f"{path}: expected a linear model to update, found another")
    refused = {
        "random features": old.mapping,
        # Gradient steps have no weights of 0.
        "--penalty l1": True if old.is_l1 else None,
        # Its b was set by all rows at once.
        "-n": old.metadata.nu,
        "--scale": old.scaling,
        "-b 1": None if old.solver in LOGISTIC else old.sigmoid,
        "--conformal": old.conformal,
    }
    for option, found in refused.items():
        if found is not None:
            raise ModelError(f"{path}: expected a model without {option} to update")
    return old


class UpdateRun(TrainingRun):
    """The training of a linear model block by block.

    features : (d,) int32, ascending, those of the weights
    checkpoint : write the model after this number of rows (int) or seconds (float)
    """

    # The rows after the last checkpoint may be learned again, by the same command.
    keeps_file_on_error = True

    def __init__(
        self,
        data: Source,
        path: str | None,
        old: Model | None,
        params: SgdParams,
        job: Job,
        clock: Clock,
    ) -> None:
        assert params.update is not None
        self.path, self.clock, self.checkpoint = path, clock, params.checkpoint
        self.old = _updatable(old or load(params.update), params.update)
        self.rows = _rows_in_order(data, self.old, params.update, job)
        self.learner = _learner_of(self.old, params, params.update)
        # A model does not store the name of the file that it came from.
        nameless = replace(params, update="MODEL")
        self.arguments = command_line(nameless, names=params.UPDATE_FIELDS)
        self.features = self.old.features
        # The sums of the learner at the last report; its steps in the last checkpoint; its steps
        # and the moment when a checkpoint was last tried.
        self.reported, self.saved_rows = self.learner.sums, 0
        self.tried = 0, time.perf_counter()

    def train(self) -> Stopped:
        """Train on all blocks, as far as time allows; return why it ended."""
        try:
            with (
                listening(self._watch),
                self.clock.until(lambda: self.clock.end - RESERVED_SECONDS),
                closing(self.rows),
            ):
                for rows in self.rows:
                    self._train_on(rows)
        except TimeLimitError:
            return Stopped(StopReason.TIME_LIMIT)
        return Stopped(StopReason.END_OF_DATA)

    def _watch(self, event: object) -> None:
        """Write due checkpoints also while the reader, which emits events, waits for rows."""
        self.clock(event)
        self._checkpoint_if_due()

    def _train_on(self, rows: RawChunk) -> None:
        learner = self.learner
        # Rows without weights make plain steps, which take less time.
        weighted = rows.weights is not None and bool((rows.weights != 1).any())
        learner.steps = replace(learner.steps, mean_weight=1.0 if weighted else None)
        y = np.zeros(len(rows.y)) if self.old.is_one_class else rows.y
        columns, order = self._columns_of(rows.X.indices), np.arange(len(y), dtype=np.int32)
        X = rows.X.with_columns(columns, len(self.features))
        learner.learn(Batch(X, y, order, rows.weights))
        # At each doubling of the rows, as Vowpal Wabbit does, from the first block on.
        if learner.steps_made >= max(2 * self.reported[0], 1):
            last, loss, errors = learner.progressive(self.reported)
            self.reported = learner.sums
            emit(
                Updated(
                    seconds=self.clock.seconds,
                    rows=learner.steps_made,
                    last=last,
                    loss=loss,
                    errors=errors,
                )
            )
        self._checkpoint_if_due()

    def _columns_of(self, indices: np.ndarray) -> np.ndarray:
        """Return the columns of features, (nnz,) int32; new features get weights of 0."""
        columns, known = find_columns(self.features, indices)
        if not known.all():
            new = distinct(indices[~known])
            places = np.searchsorted(self.features, new)
            self.features = np.insert(self.features, places, new)
            self.learner.insert(places)
            columns, _ = find_columns(self.features, indices)
        return columns

    def _checkpoint_if_due(self) -> None:
        rows, moment = self.tried
        new, waited = self.learner.steps_made - rows, time.perf_counter() - moment
        due = self.checkpoint or inf
        if new and (new if isinstance(due, int) else waited) >= due:
            try:
                self.write(self.outcome(Stopped(StopReason.CHECKPOINT)))
            except (OutputError, TransferError) as error:
                # The learner has all rows so far, and the next checkpoint may succeed.
                has = (
                    f"has the first {self.saved_rows:,} rows" if self.saved_rows else "is as before"
                )
                emit(Notice(f"checkpoint: {error}: {self.name} {has}; the update goes on"))
            else:
                self.saved_rows = self.learner.steps_made
            self.tried = self.learner.steps_made, time.perf_counter()

    @property
    def has_model(self) -> bool:
        return self.learner.steps_made > 0

    @property
    def extent(self) -> str:  # type: ignore[override]
        return f" of {self.learner.steps_made:,} rows"

    def outcome(self, stopped: Stopped) -> Trained:
        steps, loss, errors = self.learner.progressive()
        return Trained(
            model=self.name,
            steps=steps,
            progressive_loss=loss if steps else None,
            progressive_errors=errors,
            stopped=str(stopped),
            seconds=self.clock.seconds,
        )

    def write(self, outcome: Trained) -> None:
        learner, old = self.learner, self.old
        running = learner.state[[S, SIGMA, M]]
        names = RUNNING if running[2] else RUNNING[:2]
        # Other lines of the old model, as its gap, are not true of these weights.
        metadata = Metadata(
            version=__version__,
            configuration=shlex.join(["sgd", *self.arguments]),
            n=(old.metadata.n or 0) + learner.steps_made,
            d=len(self.features),
            stopped=outcome.stopped,
            **state_metadata(learner, learner.t),
            # Another update continues from these without a difference.
            running=running,
            **{f"running_{name}": getattr(learner, name).copy() for name in names},
        )
        w, b = learner.linear
        model = replace(
            old, w=w, b=b, features=self.features, seen=self.features, metadata=metadata
        )
        if self.path is not None:
            save(model, outcome.model)
        self.saved_model = model


def _rows_in_order(
    data: Source, old: LinearModel, path: str, job: Job
) -> Generator[RawChunk, None, None]:
    """Return the rows to learn in their order; y has class indices of the model, or targets.

    path: the model file. Rows of weight 0 are left out.
    """
    if isinstance(data, Arrays):
        return _rows_in_memory(data, old)
    how = job.data_params
    params = PredictParams(
        format=how.format if job.given is None or "format" in job.given else None,
        no_header=how.no_header,
        delimiter=how.delimiter,
        row_weights=how.row_weights,
    )
    return RowFiles(old, path, data, params, training=True, prompt=True).blocks(emit)


def _rows_in_memory(arrays: Arrays, old: LinearModel) -> Generator[RawChunk, None, None]:
    """Yield the rows of arrays. Raises ContentError for a label that the model does not have."""
    classes = not old.is_regression
    options = ParseOptions(
        labels="class" if classes else "number", any_label=classes, zero_based=old.zero_based
    )
    summary, store = in_memory.read(arrays, options)
    places = {label_value(label): index for index, label in enumerate(old.labels)}
    found = [places.get(label_value(label)) for label in summary.labels]
    if None in found and not old.is_one_class:
        known, other = ", ".join(old.labels), summary.labels[found.index(None)]
        raise ContentError(f"y: expected one of the labels {known}, found {other}")
    indices = np.array(found, float)
    for number in range(len(store.sizes)):
        chunk = store.read(number)
        yield replace(chunk, y=indices[chunk.y.astype(np.int64)]) if classes else chunk
