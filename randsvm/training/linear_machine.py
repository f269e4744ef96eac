"""Linear machines: what a run needs to train one by stochastic gradient descent over a whole file.

online.py learns rows as they arrive.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from randsvm.algorithms import sgd
from randsvm.algorithms.sgd import BIAS_RATE, Learner, Progressive, Steps
from randsvm.data.classes import one_class
from randsvm.data.dataset import Dataset
from randsvm.data.sampling import Draw, Draws, Permuter
from randsvm.decimals import join_numbers
from randsvm.errors import ParameterError
from randsvm.events import Epoch, Learnt, Notice, emit
from randsvm.models.linear_model import LinearModel
from randsvm.parameters.sgd import SgdParams
from randsvm.parameters.svm import class_weights
from randsvm.svm.linear import (
    CRAMMER_SINGER,
    LOSSES,
    OUTSIDE,
    Classes,
    Linear,
    LinearFindings,
    Loss,
    Targets,
    evaluate_linear,
    linear_findings,
    with_share_outside,
)
from randsvm.training.clock import LATE, Clock, TimeLimitError
from randsvm.training.job import Decision, Job
from randsvm.training.run import Ending, Learning, Outline, Trainer
from randsvm.training.stopping import TIME_LIMIT

# A step costs as many classes.
MOST_CLASSES = 10_000
# The features' means are more than this part of |x|^2: standard deviations are a tenth of them.
FAR = 0.99


class LinearTrainer(Trainer[SgdParams, Learnt]):
    """Weights of the features, or of random features that stand for a kernel."""

    @property
    def most_classes(self) -> int:
        # Weights and their sums are 16 bytes for each feature and class.
        memory, d = self.job.resources.memory, len(self.D.summary.features)
        return min(MOST_CLASSES, max(2, memory // (16 * max(d, 1))))

    def resolved(self, params: SgdParams) -> SgdParams:
        params = params.resolved(self.D.n)
        if (mapping := self.map_of(params)) is not None:
            params = replace(params, gamma=mapping.gamma)
        return params

    def scales(self, params: SgdParams) -> tuple[float, float]:
        return params.scales(self.D.n)

    def outline(self, params: SgdParams) -> Outline:
        return Outline("sgd", words=[], notices=[])

    def decision(self, D: Dataset, params: SgdParams, clock: Clock) -> Decision:
        learning = self._learning(D, params, clock, clock.end)
        learning.learn()
        return learning.answer.decision

    def holds_out(self, params: SgdParams) -> bool:
        """A logistic regression has probabilities by itself."""
        return params.probability and params.loss != "log"

    def learning(self, params: SgdParams, clock: Clock, until: float) -> LinearLearning:
        learning = self._learning(self.D, params, clock, until)
        if learning.offset > FAR and self.job.run.scale != "standard" and not params.components:
            emit(
                Notice(
                    "features lie far from zero, and their differences are small beside that: "
                    "--scale standard is needed for steps that suit them"
                )
            )
        if learning.groups > 1:
            emit(
                Notice(
                    f"the weights of {learning.groups} groups of rows are averaged after each "
                    "epoch: one process would find slightly other ones"
                )
            )
        return learning

    def _learning(
        self, D: Dataset, params: SgdParams, clock: Clock, until: float
    ) -> LinearLearning:
        """From the subject's rows or a view of them."""
        objective, mapping = Objective.of(D, self.labelled_data.labels, params), self.map_of(params)
        if params.task == "one-class":
            D = one_class(D)
        if mapping is not None:
            D = D.mapped(mapping.over(D.summary.features))
        return LinearLearning(self, D, objective, params, clock, until)


def prepare(params: SgdParams, job: Job) -> tuple[type[LinearTrainer], SgdParams, Job]:
    """Return what makes the trainer once the data is read, the parameters and the job."""
    return LinearTrainer, params, job


ALL_EPOCHS = "all epochs"
HELD_OUT = "the loss of the held-out rows stopped falling"

# --epochs auto gives up when so many epochs in a row were no better.
PATIENCE = 5
# --early-stopping leaves so many rows to learn from.
LEAST_ROWS = 2
# A closing evaluation takes about as long as a pass that only adds up |x|^2, times this.
EVALUATION = 3.0


class LinearLearning(Learning[Learnt]):
    """Learning from the rows of D; with held-out rows the best answer is kept.

    D: all rows, with the features that the weights are of. objective: of these rows. until: the
    moment when the time for learning and evaluation is over. offset: which part of the mean of
    |x|^2 is that of the features' means.
    """

    def __init__(
        self,
        training: Trainer[SgdParams, Learnt],
        D: Dataset,
        objective: Objective,
        params: SgdParams,
        clock: Clock,
        until: float,
    ) -> None:
        self.training = training
        self.D = D
        self.objective = objective
        self.params = params
        self.clock = clock
        self.end = until
        began = time.perf_counter()
        R2, offset = sgd.squares(D)
        self.offset = offset / R2
        self.until = until - EVALUATION * (time.perf_counter() - began)
        self.start, spread = _start(D, objective)
        self.steps = _steps(params, D.n, R2, spread, objective)
        self.rng = Draws(training.job.run.seed)
        self.learner = Learner.new(self.steps, D.d, self.start)
        # Groups of rows that are learnt side by side on a cluster; few rows are learnt here.
        resources = training.job.resources
        # Beside the data, which may take the other half.
        room = resources.memory - resources.data_bytes
        self.groups = 1 if resources.cluster is None else sgd.group_count(D, self.learner, room)
        self.seconds = 0.0
        self.last: Progressive | None = None
        self.held_out = HeldOut(None, objective)
        # With exactly the share of rows outside that was asked for.
        self.shared: Linear | None = None
        self.found: LinearFindings | None = None
        self.reason = ALL_EPOCHS

    @property
    def answer(self) -> Linear:
        if self.shared is not None:
            return self.shared
        return self.held_out.best[1] if self.held_out.best else self.learner.linear

    def run(self) -> None:
        self.learn()
        with suppress(TimeLimitError), self.clock.until(lambda: self.end):
            self.found = evaluate_linear(self.D, self.answer, self.objective.loss_function)

    def learn(self) -> None:
        """All epochs, or what the time allows."""
        rows, held = _split(self.D, self.params.early_stopping, self.rng)
        self.held_out = HeldOut(held, self.objective)
        epochs = self.params.epochs
        if epochs == "auto":
            half = self.clock.share(1 / 2, self.until)
            with self.clock.until(lambda: half):
                epochs = best_epochs(self.D, self.steps, self.objective, self.start, self.rng)
        assert isinstance(epochs, int)
        horizon = 0.0 if self.steps.averages else float(epochs * rows.n)
        steps = replace(self.steps, horizon=horizon)
        self.learner = Learner.new(steps, self.D.d, self.start)
        if self.groups > 1:
            one_pass = sgd.averaged(rows, self.rng, self.groups)
        else:
            one_pass = sgd.from_dataset(rows, self.rng)
        self._begun = time.perf_counter()
        try:
            with self.clock.until(lambda: (self.until if self.begun else self.clock.end) - LATE):
                sgd.sgd(one_pass, rows.n, self.learner, epochs, self._stop, self._epoch)
                share = self.objective.share
                if share is not None:
                    self.shared = with_share_outside(self.D, self.answer, share)
        except TimeLimitError:
            if not self.begun:
                raise
            self.reason = TIME_LIMIT
        finally:
            self._count()

    def _epoch(self, number: int, learner: Learner) -> None:
        self._count()
        last = self.last = learner.progressive()
        held_out = self.held_out.loss_of(learner)
        emit(
            Epoch(
                number=number,
                seconds=self.clock.seconds,
                rows=last.rows,
                loss=last.loss,
                errors=None if self.objective.regression else last.errors,
                held_out=held_out,
                bytes_moved=self.D.executor.bytes_moved,
            )
        )
        self._begun = time.perf_counter()

    def _count(self) -> None:
        """The seconds since the last count were spent learning."""
        now = time.perf_counter()
        self.seconds += now - self._begun
        self._begun = now

    def _stop(self, learner: Learner) -> bool:
        if self.held_out.risen:
            self.reason = HELD_OUT
        return self.held_out.risen

    @property
    def begun(self) -> bool:
        return self.learner.learnt > 0

    def break_off(self, reason: str) -> None:
        """What the learner has is whole at any time."""

    def outcome(self, ending: Ending) -> Learnt:
        found, regression = self.found, self.objective.regression
        C, linear = self.training.scales(self.params)[0], self.answer
        last = self.last or self.learner.progressive()
        primal = None
        if found is not None:
            primal = float(np.square(linear.w).sum() / 2 + C * self.objective.loss(found, linear))
        wrong = None if found is None else found.wrong / found.rows
        return Learnt(
            model=ending.model,
            steps=self.learner.learnt,
            progressive_loss=last.loss,
            progressive_errors=None if regression else last.errors,
            primal=primal,
            J=None if primal is None else primal / (C * self.D.n),
            violators=None if found is None else found.violators,
            error=None if regression else wrong,
            squared_error=wrong if regression else None,
            cross_validation=ending.cross_validation,
            stopped=ending.stopped,
            solve_seconds=self.seconds,
            seconds=ending.seconds,
            bytes_moved=self.D.executor.bytes_moved,
        )

    def metadata(self, outcome: Learnt) -> dict[str, str]:
        return {
            "primal": "unknown" if outcome.primal is None else repr(outcome.primal),
            "violators": "unknown" if outcome.violators is None else str(outcome.violators),
            **({} if self.groups == 1 else {"averaged": str(self.groups)}),
            "stopped": outcome.stopped,
            # An update counts a row once, however often it was learnt: its steps are the larger.
            # Measured on three sets cut in two: 0.1 to 0.3 points better than with all steps.
            **state_metadata(self.learner, min(self.learner.t, self.D.n)),
        }

    def model(self, **common: Any) -> LinearModel:
        linear = self.answer
        return LinearModel(
            w=linear.w,
            b=linear.b,
            solver=self.objective.loss_function.solver,
            mapping=self.training.map_of(self.params),
            features=self.D.summary.features,
            **common,
        )


@dataclass
class HeldOut:
    """Rows that are not learnt, if any: the answer of least loss on them is the best."""

    D: Dataset | None
    objective: Objective
    best: tuple[float, Linear] | None = None
    risen: bool = False

    def loss_of(self, learner: Learner) -> float | None:
        """Their mean loss under the answer so far, which is kept if it is the best."""
        if self.D is None:
            return None
        linear = learner.linear
        found = evaluate_linear(self.D, linear, self.objective.loss_function)
        loss = self.objective.loss(found, linear) / self.D.n
        if self.best is None or loss < self.best[0]:
            self.best = loss, linear
        else:
            self.risen = True
        return loss


def best_epochs(
    D: Dataset, steps: Steps, objective: Objective, start: np.ndarray | None, rng: Draws
) -> int:
    """CS246: train on a small set A, with the lambda of the whole; as many epochs as gave the
    lowest loss on another small set B."""
    if D.n < 2:
        return 1
    rows = D.sample(rng.next(), 2 * min(SgdParams.AUTO_ROWS, max(1, D.n // 2)))
    mixed = rows[Permuter(rng.next()).permutation(len(rows))]
    A, B = (D.points(half) for half in np.array_split(mixed, 2))
    losses: list[float] = []

    def watch(epoch: int, learner: Learner) -> None:
        linear = learner.linear
        found = linear_findings(linear, B.X, B.y, objective.loss_function)
        losses.append(objective.loss(found, linear) / found.rows)

    def stop(learner: Learner) -> bool:
        return len(losses) - 1 - int(np.argmin(losses)) >= PATIENCE

    learner, most = Learner.new(steps, D.d, start), SgdParams.AUTO_EPOCHS
    with suppress(TimeLimitError):
        sgd.sgd(sgd.from_points(A, rng), len(A), learner, most, stop, watch)
    best = int(np.argmin(losses)) + 1 if losses else 1
    emit(Notice(f"{best} epochs had the lowest loss on {len(B):,} rows of {len(losses)} tried"))
    return best


def _start(D: Dataset, objective: Objective) -> tuple[np.ndarray | None, float]:
    """Where b begins, (K,), None: at zero; and how far from there values of f are to be found."""
    if not objective.regression:
        return objective.best_constant, 1.0
    y = D.points(D.sample(Draw(0, 0), sgd.SAMPLE)).y
    median = np.median(y)
    return np.array([median]), float(np.abs(y - median).mean()) or 1.0


def _steps(params: SgdParams, n: int, R2: float, spread: float, objective: Objective) -> Steps:
    lambda_, eta0 = params.scales(n)[1], spread / (R2 * objective.negative_gradient)
    bias_rate = BIAS_RATE * R2
    if objective.share is not None:
        # The objective is homogeneous: f is as large as lambda makes it, and so are the steps;
        # those of b stay as they are.
        bias_rate *= lambda_
        eta0 = 1 / lambda_
    return Steps(
        lambda_=lambda_,
        eta0=eta0,
        bias_rate=bias_rate,
        # b is not regularised: where lambda is large for these features, steps that suit the
        # weights would end before b has got anywhere.
        bias_lambda=min(lambda_, 1 / (n * eta0)),
        weights=objective.weights,
        loss=OUTSIDE if objective.share is not None else params.loss or "hinge",
        crammer_singer=objective.loss_function.solver == CRAMMER_SINGER,
        epsilon=objective.epsilon,
        origin=objective.origin,
        averages=params.averages,
    )


def _split(D: Dataset, share: float | None, rng: Draws) -> tuple[Dataset, Dataset | None]:
    """The rows to learn from, and those held out: a share of D, drawn at random.

    Raises ParameterError where so few rows are left that nothing can be learnt from them.
    """
    if share is None:
        return D, None
    count = max(1, round(share * D.n))
    if D.n - count < LEAST_ROWS:
        raise ParameterError(
            f"--early-stopping {share:g} holds out {count} of {D.n} rows: at least {LEAST_ROWS} "
            f"must be left to learn from"
        )
    held = D.mask(D.sample(rng.next(), count))
    return D.subset(~held), D.subset(held)


def state_metadata(learner: Learner, t: float) -> dict[str, str]:
    """What --update goes on from; t: how many steps it counts as made."""
    steps = learner.steps
    return {
        **({} if steps.epsilon is None else {"epsilon": repr(steps.epsilon)}),
        **(
            {"nu" if steps.loss == OUTSIDE else "origin": repr(steps.origin)}
            if steps.origin
            else {}
        ),
        "lambda": repr(steps.lambda_),
        "eta0": repr(steps.eta0),
        "bias_rate": repr(steps.bias_rate),
        **({} if steps.bias_lambda is None else {"bias_lambda": repr(steps.bias_lambda)}),
        "weights": join_numbers(steps.weights),
        "t": repr(t),
    }


@dataclass(frozen=True)
class Objective:
    """weights : (classes,) float64, how much the rows of each class count; counts: how many they
    are. epsilon: half width of a regression's tube. origin: weight, for each row, of a row of
    zeros with y = -1 (novelty detection); share: of the rows that novelty detection leaves outside,
    with which the origin counts as the term share * b instead."""

    weights: np.ndarray
    loss_function: Loss
    epsilon: float | None = None
    origin: float = 0.0
    share: float | None = None
    counts: tuple[int, ...] = ()

    @staticmethod
    def of(D: Dataset, labels: tuple[str, ...], params: SgdParams) -> Objective:
        """D: a subject's, or a view of it; labels: the subject's. Raises ParameterError for weights
        of labels that the data does not have."""
        if params.task == "svr":
            return Objective(np.ones(1), Targets(params.epsilon), params.epsilon)
        assert params.loss
        if params.has_share:
            # Schoelkopf et al. 2001: nu/2 |w|^2 + nu b + mean max(0, -f).
            assert params.nu
            weights = np.ones(1)
            return Objective(weights, Classes(OUTSIDE, weights), origin=params.nu, share=params.nu)
        if params.task == "one-class":
            # MADlib: every row is positive, the origin the one negative, both sides weigh the same.
            weights = np.array([(D.n + 1) / (2 * D.n)])
            return Objective(weights, Classes(params.loss, weights), origin=float(weights[0]))
        assert D.targets is not None
        counts = tuple(D.summary.counts[i] for i in np.argsort(D.targets))
        weights = np.array(class_weights(params.weights, labels, counts))
        crammer_singer = params.multiclass == "crammer-singer" and len(labels) > 2
        return Objective(weights, Classes(params.loss, weights, crammer_singer), counts=counts)

    @property
    def regression(self) -> bool:
        return self.epsilon is not None

    @property
    def negative_gradient(self) -> float:
        """How many times as far the mean row steps as one of weight 1: a row of weight 100 steps
        100 times as far, and pulls by its own weight."""
        if not self.counts:
            return 1.0
        counts = np.array(self.counts, float)
        return float(counts @ self.weights**2 / (counts @ self.weights))

    @property
    def best_constant(self) -> np.ndarray | None:
        """The b, (K,), that suits the classes where nothing is known of their features: log odds,
        or what the squared hinge is least at, which is also a fair start for the hinge. None: all
        classes alike."""
        if not self.counts or self.loss_function.solver == CRAMMER_SINGER:
            return None
        assert isinstance(self.loss_function, Classes)
        mass = self.weights * self.counts
        p = mass / mass.sum()
        b = np.log(p / (1 - p)) if self.loss_function.loss == "log" else 2 * p - 1
        return b[:1] if len(b) == 2 else b

    def loss(self, found: LinearFindings, linear: Linear) -> float:
        """The sum of losses, the origin's included."""
        if not self.origin:
            return found.loss
        if self.share is not None:
            return found.loss + found.rows * self.share * float(linear.b[0])
        assert isinstance(self.loss_function, Classes)
        at_origin = float(LOSSES[self.loss_function.loss].of(-linear.b[:1])[0])
        return found.loss + found.rows * self.origin * at_origin
