"""Training of linear models by stochastic gradient descent: paths and parameters in, a model out.

Two ways in: `train_sgd` over a whole file, and, with --update, over rows as they arrive.
"""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from randsvm import __version__, dataset, svmlight
from randsvm.algorithms import sgd as algorithm
from randsvm.algorithms.sgd import BIAS_RATE, Learner, Steps
from randsvm.collectors import Draws, Permuter
from randsvm.dataset import Batch, Dataset, Reading
from randsvm.errors import Interrupted, ModelError
from randsvm.events import Notice, Watch, listening, silent, tell
from randsvm.jobs import LATE, Job, Started, TimeLimitError, check_paths
from randsvm.model import Known, LinearModel, load
from randsvm.params import SgdParams, class_weights, command_line
from randsvm.points import Points
from randsvm.scan import LinearFindings, evaluate_linear, linear_findings
from randsvm.solution import Linear
from randsvm.stopping import TIME_LIMIT
from randsvm.tasks import CRAMMER_SINGER, LOSSES

ALL_EPOCHS = "all epochs"
HELD_OUT = "the loss of the held-out rows stopped falling"
END_OF_DATA = "end of the data"

# --epochs auto gives up when so many epochs in a row were no better.
PATIENCE = 5
# A closing evaluation takes about as long as a pass that only adds up |x|^2, times this.
EVALUATION = 3.0


@dataclass(frozen=True)
class Epoch:
    """One pass over the rows. loss, errors: of each row before it was learnt (progressive), their
    mean. held_out: mean loss of the held-out rows afterwards, None where there are none."""

    number: int
    seconds: float
    rows: int
    loss: float
    errors: float
    held_out: float | None


@dataclass(frozen=True)
class Learnt:
    """How learning ended.

    rows: steps made, learning: the seconds they took. progressive_loss, progressive_errors: of the
    rows before they were learnt, in the last epoch or the whole update. primal P = 1/2 |w|^2 +
    C sum loss, J = P/(C n), violators (y f < 1) and error (share of rows) are of all rows; None
    where an update has not kept them, or a time limit or a signal left no time.
    """

    model: str
    rows: int
    progressive_loss: float
    progressive_errors: float
    primal: float | None
    J: float | None
    violators: int | None
    error: float | None
    stopped: str
    learning: float
    seconds: float


def train_sgd(
    data: str, model: str, params: SgdParams, job: Job | None = None, watch: Watch = silent
) -> Learnt:
    """Train a linear classifier on the svmlight file `data` by SGD; write it to `model`.

    With params.update that model is taught the rows of `data` in one pass, as they arrive. Raises
    the errors of randsvm.errors; on any error `model` is untouched, except that Interrupted leaves
    what was learnt so far.
    """
    job = job or Job()
    check_paths(data, model, job)
    limit = job.limits.time_limit
    clock = _Clock(watch, inf if limit is None else time.perf_counter() + limit)
    with listening(clock):
        if params.update is None:
            return _train(data, model, params.resolved(), job, clock)
        return _update(data, model, params, job, clock)


class _Clock:
    """Passes events on; once `armed`, the first event after the deadline raises TimeLimitError."""

    def __init__(self, watch: Watch, ends: float) -> None:
        self.began = time.perf_counter()
        self.watch = watch
        self.ends = ends
        self.armed = False
        self.learning = 0.0

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.began

    def __call__(self, event: object) -> None:
        self.watch(event)
        if self.armed and time.perf_counter() >= self.ends - LATE:
            self.armed = False
            raise TimeLimitError


# --- a whole file ------------------------------------------------------------------------------


def _train(data: str, model: str, params: SgdParams, job: Job, clock: _Clock) -> Learnt:
    reading = Reading(zero_based=job.run.zero_based)
    with closing(dataset.load(data, reading, job.resources)) as whole:
        D, order = dataset.labelled_classes(whole, data)
        names = [D.header.names[i] for i in order]
        weights = class_weights(params.weights, names, [D.header.counts[i] for i in order])
        C, lambda_ = params.scales(D.n)
        words = command_line(params, job.run)
        repeat = [*words, *command_line(job.limits)]
        tell(Started("sgd", repeat, D.n, D.d, D.nnz, C, lambda_, clock.seconds))
        if D.header.queries:
            tell(Notice(f"qid: of {D.header.queries} rows ignored"))
        began = time.perf_counter()
        R2 = algorithm.mean_squared_norm(D)
        clock.ends -= EVALUATION * (time.perf_counter() - began)
        steps = _steps(params, lambda_, R2, np.array(weights))
        trial = _Trial(D, order, params, steps, job, clock, model, ["sgd", *words])
        return trial.run()


def _steps(params: SgdParams, lambda_: float, R2: float, weights: np.ndarray) -> Steps:
    assert params.loss
    return Steps(
        lambda_,
        algorithm.STEP[params.loss] / R2,
        BIAS_RATE * R2,
        weights,
        params.loss,
        params.multiclass == "crammer-singer" and len(weights) > 2,
        params.averages,
    )


@dataclass
class _Trial:
    """One training over a whole file, from its first step to its written model."""

    D: Dataset
    order: list[int]
    params: SgdParams
    steps: Steps
    job: Job
    clock: _Clock
    model: str
    configuration: list[str]

    def run(self) -> Learnt:
        D, rng = self.D, Draws(self.job.run.seed)
        training, held = _split(D, self.params.early_stopping, rng)
        epochs = self._best_epochs(rng) if self.params.epochs == "auto" else self.params.epochs
        assert isinstance(epochs, int)
        horizon = 0.0 if self.steps.averages else float(epochs * training.n)
        learner = Learner.new(replace(self.steps, horizon=horizon), D.d)
        watch = _Watcher(self, learner, held)
        self.clock.armed, reason = True, ALL_EPOCHS
        try:
            batches = algorithm.from_dataset(training, rng)
            algorithm.sgd(batches, training.n, learner, epochs, watch.stop, watch.epoch)
            reason = watch.reason or reason
        except TimeLimitError:
            reason = TIME_LIMIT
        except Interrupted as signal:
            self.save(watch, None, str(signal))
            raise
        self.clock.armed = False
        return self.save(watch, self.evaluate(D, watch.answer), reason)

    def evaluate(self, D: Dataset, linear: Linear) -> LinearFindings:
        steps = self.steps
        return evaluate_linear(
            D, linear, LOSSES[steps.loss], steps.weights, crammer_singer=steps.crammer_singer
        )

    def _best_epochs(self, rng: Draws) -> int:
        """CS246: train on a small set A, with the lambda of the whole; as many epochs as gave the
        lowest loss on another small set B."""
        D, draw = self.D, rng.next()
        rows = D.sample(draw, 2 * min(SgdParams.AUTO_ROWS, max(1, D.n // 2)))
        mixed = rows[Permuter(rng.next()).permutation(len(rows))]
        A, B = (D.points(half) for half in np.array_split(mixed, 2))
        losses: list[float] = []
        learner = Learner.new(self.steps, D.d)

        def watch(epoch: int, learner: Learner) -> None:
            losses.append(_mean_loss(B, learner.linear, self.steps))

        def stop(learner: Learner) -> bool:
            return len(losses) - 1 - int(np.argmin(losses)) >= PATIENCE

        most = SgdParams.AUTO_EPOCHS
        algorithm.sgd(algorithm.from_points(A, rng), len(A), learner, most, stop, watch)
        best = int(np.argmin(losses)) + 1
        tell(Notice(f"{best} epochs had the lowest loss on {len(B):,} rows of {len(losses)} tried"))
        return best

    def save(self, watch: _Watcher, found: LinearFindings | None, reason: str) -> Learnt:
        """Write the answer as the model; found is its evaluation, None if there was no time."""
        D, learner, linear = self.D, watch.learner, watch.answer
        C, _ = self.params.scales(D.n)
        last = watch.last or learner.progressive()
        primal = None
        if found is not None:
            primal = float(np.square(linear.w).sum()) / 2 + C * found.loss
        outcome = Learnt(
            self.model,
            learner.learnt,
            last.loss,
            last.errors,
            primal,
            None if primal is None else primal / (C * D.n),
            None if found is None else found.violators,
            None if found is None else found.errors / found.rows,
            reason,
            self.clock.learning,
            self.clock.seconds,
        )
        facts = {
            "version": __version__,
            "configuration": " ".join(self.configuration),
            "seed": str(self.job.run.seed),
            "n": str(D.n),
            "d": str(D.d),
            "nnz": str(D.nnz),
            "digest": D.header.digest,
            "C": repr(C),
            "primal": "unknown" if primal is None else repr(primal),
            "violators": "unknown" if found is None else str(found.violators),
            "stopped": reason,
            # An update counts a row once, however often it was learnt: its steps are the larger.
            # Measured on three sets cut in two: 0.1 to 0.3 points better than with all steps.
            **_state(learner, min(learner.t, D.n)),
        }
        LinearModel(
            w=linear.w,
            b=linear.b,
            solver=_solver(self.steps),
            features=D.header.features,
            labels=tuple(D.header.names[i] for i in self.order),
            values=tuple(D.header.values[i] for i in self.order),
            zero_based=self.job.run.zero_based,
            known=Known.of(D.header.features),
            facts=facts,
        ).save(self.model)
        outcome = replace(outcome, seconds=self.clock.seconds)
        tell(outcome)
        return outcome


class _Watcher:
    """What happens after each epoch: it is told, and with held-out rows the best one is kept."""

    def __init__(self, trial: _Trial, learner: Learner, held: Dataset | None) -> None:
        self.trial = trial
        self.learner = learner
        self.held = held
        self.last: algorithm.Progressive | None = None
        self.best: tuple[float, Linear] | None = None
        self.reason = ""
        self.begun = time.perf_counter()

    @property
    def answer(self) -> Linear:
        return self.best[1] if self.best else self.learner.linear

    def epoch(self, number: int, learner: Learner) -> None:
        clock = self.trial.clock
        clock.learning += time.perf_counter() - self.begun
        self.last = learner.progressive()
        held_out = None if self.held is None else self._held_out(self.held)
        last = self.last
        clock(Epoch(number, clock.seconds, last.rows, last.loss, last.errors, held_out))
        self.begun = time.perf_counter()

    def _held_out(self, held: Dataset) -> float:
        linear = self.learner.linear
        loss = self.trial.evaluate(held, linear).loss / held.n
        if self.best is None or loss < self.best[0]:
            self.best = loss, linear
        else:
            self.reason = HELD_OUT
        return loss

    def stop(self, learner: Learner) -> bool:
        return bool(self.reason)


def _split(D: Dataset, share: float | None, rng: Draws) -> tuple[Dataset, Dataset | None]:
    """The rows to learn from, and those held out: a share of D, drawn at random."""
    if share is None:
        return D, None
    held = D.sample(rng.next(), min(max(1, round(share * D.n)), D.n - 1))
    return D.only(np.setdiff1d(np.arange(D.n), held)), D.only(held)


def _mean_loss(points: Points, linear: Linear, steps: Steps) -> float:
    found = linear_findings(
        linear,
        points.X,
        points.y.astype(np.int64),
        LOSSES[steps.loss],
        steps.weights,
        crammer_singer=steps.crammer_singer,
    )
    return found.loss / found.rows


def _solver(steps: Steps) -> str:
    return CRAMMER_SINGER if steps.crammer_singer else LOSSES[steps.loss].solver


def _state(learner: Learner, t: float) -> dict[str, str]:
    """What --update goes on from; t: how many steps it counts as made."""
    steps = learner.steps
    return {
        "lambda": repr(steps.lambda_),
        "eta0": repr(steps.eta0),
        "bias_rate": repr(steps.bias_rate),
        "weights": " ".join(map(repr, steps.weights.tolist())),
        "t": repr(t),
    }


# --- rows as they arrive -----------------------------------------------------------------------


def _update(data: str, model: str, params: SgdParams, job: Job, clock: _Clock) -> Learnt:
    assert params.update is not None
    old = load(params.update)
    if not isinstance(old, LinearModel):
        raise ModelError(f"{params.update}: expected a linear model to go on from, found another")
    steps, t = _steps_of(old, params, params.update)
    words = command_line(params, job.run)
    repeat = [*words, *command_line(job.limits)]
    tell(Started("sgd", repeat, None, None, None, None, steps.lambda_, clock.seconds))
    stream = _Stream(old, steps, t, params, clock, model, ["sgd", *words])
    clock.armed, reason = True, END_OF_DATA
    try:
        blocks = svmlight.read_blocks(
            data, labels="class", zero_based=old.zero_based, prompt=True, watch=tell
        )
        table = svmlight.LabelTable(data, names=old.labels, closed=True)
        with closing(blocks):
            for block in blocks:
                stream.learn(block, table.classes(block).astype(np.int32))
    except TimeLimitError:
        reason = TIME_LIMIT
    except Interrupted as signal:
        clock.armed = False
        stream.save(str(signal))
        raise
    clock.armed = False
    return stream.save(reason)


def _steps_of(old: LinearModel, params: SgdParams, path: str) -> tuple[Steps, float]:
    """How the model's steps were made, and how many."""
    facts = old.facts
    try:
        lambda_, eta0, bias_rate, t = (
            float(facts[name]) for name in ("lambda", "eta0", "bias_rate", "t")
        )
        weights = [float(word) for word in facts["weights"].split()]
    except (KeyError, ValueError):
        raise ModelError(
            f"{path}: expected a model of randsvm-train sgd to go on from, found one without its "
            f"step size"
        ) from None
    if params.weights:
        weights = class_weights(params.weights, old.labels, [1] * len(old.labels))
    losses = [name for name, loss in LOSSES.items() if loss.solver == old.solver]
    return Steps(
        lambda_,
        eta0,
        bias_rate,
        np.array(weights),
        losses[0] if losses else "hinge",
        old.solver == CRAMMER_SINGER,
        # A fixed rate follows what changes; a mean would lag behind.
        averages=params.update_rate is None,
        fixed_rate=params.update_rate or 0.0,
    ), t


class _Stream:
    """A model that is taught block by block; its columns are features in order of appearance."""

    def __init__(
        self,
        old: LinearModel,
        steps: Steps,
        t: float,
        params: SgdParams,
        clock: _Clock,
        model: str,
        configuration: list[str],
    ) -> None:
        self.old = old
        self.learner = Learner(steps, old.w.copy(), old.b.copy())
        self.learner.start_at(t)
        self.checkpoint = params.checkpoint
        self.clock = clock
        self.model = model
        self.configuration = configuration
        self.features = old.features
        self.places = np.arange(len(old.features))
        self.loss = self.errors = 0.0
        self.told = 0
        self.saved = 0, time.perf_counter()

    def learn(self, block: svmlight.Block, classes: np.ndarray) -> None:
        began = time.perf_counter()
        starts = block.indptr.astype(np.int32)
        order = np.arange(len(block), dtype=np.int32)
        self.learner.learn(Batch(starts, self._columns(block), block.values, classes, order))
        self.clock.learning += time.perf_counter() - began
        self._tell()
        if self._due():
            self._write("checkpoint")
            self.saved = self.learner.learnt, time.perf_counter()

    def _columns(self, block: svmlight.Block) -> np.ndarray:
        new = np.setdiff1d(block.features, self.features, assume_unique=True)
        if len(new):
            count = len(self.features)
            features = np.concatenate([self.features, new])
            order = np.argsort(features)
            places = np.concatenate([self.places, np.arange(count, count + len(new))])
            self.features, self.places = features[order], places[order]
            self.learner.grow(len(features))
        return self.places[np.searchsorted(self.features, block.indices)].astype(np.int32)

    def _tell(self) -> None:
        """At each doubling of the rows, as Vowpal Wabbit does, from the first block on."""
        if self.learner.learnt >= 2 * self.told:
            self._count(tell_it=True)

    def _count(self, tell_it: bool) -> None:
        last = self.learner.progressive()
        self.told = self.learner.learnt
        self.loss += last.loss * last.rows
        self.errors += last.errors * last.rows
        if tell_it and last.rows:
            tell(Taught(self.clock.seconds, self.told, last.rows, last.loss, last.errors))

    def _due(self) -> bool:
        rows, since = self.saved
        if isinstance(self.checkpoint, int):
            return self.learner.learnt - rows >= self.checkpoint
        return self.checkpoint is not None and time.perf_counter() - since >= self.checkpoint

    def _write(self, reason: str) -> None:
        learner, old = self.learner, self.old
        linear = learner.linear
        facts = {
            **old.facts,
            "version": __version__,
            "configuration": " ".join(self.configuration),
            "n": str(int(old.facts.get("n", "0")) + learner.learnt),
            "d": str(len(self.features)),
            "primal": "unknown",
            "violators": "unknown",
            "stopped": reason,
            **_state(learner, learner.t),
        }
        for gone in ("C", "digest", "nnz"):
            facts.pop(gone, None)
        replace(
            old,
            w=linear.w[self.places],
            b=linear.b,
            features=self.features,
            known=Known.of(self.features),
            facts=facts,
        ).save(self.model)

    def save(self, reason: str) -> Learnt:
        self._count(tell_it=False)
        self._write(reason)
        rows = max(self.learner.learnt, 1)
        outcome = Learnt(
            self.model,
            self.learner.learnt,
            self.loss / rows,
            self.errors / rows,
            None,
            None,
            None,
            None,
            reason,
            self.clock.learning,
            self.clock.seconds,
        )
        tell(outcome)
        return outcome


@dataclass(frozen=True)
class Taught:
    """Rows learnt so far by --update; loss, errors: means over the `last` of them, each row's
    before it was learnt."""

    seconds: float
    rows: int
    last: int
    loss: float
    errors: float


__all__ = ["Epoch", "Learnt", "Taught", "train_sgd"]
