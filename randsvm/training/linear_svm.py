"""Training of linear models by stochastic gradient descent: paths and parameters in, a model out.

Two ways in: `train_sgd` over a whole file, and, with --update, over rows as they arrive.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace
from math import inf

import numpy as np

from randsvm import __version__
from randsvm.algorithms import sgd as algorithm
from randsvm.algorithms.sgd import BIAS_RATE, Learner, Steps
from randsvm.data import dataset, svmlight
from randsvm.data.batches import Batch
from randsvm.data.classes import one_class
from randsvm.data.dataset import Dataset, ParseOptions
from randsvm.data.labels import LabelTable
from randsvm.data.sampling import Draws, Permuter
from randsvm.data.svmlight import Labels
from randsvm.errors import Interrupted, ModelError, ParameterError
from randsvm.events import (
    Epoch,
    Learnt,
    Notice,
    Searched,
    Started,
    Taught,
    Watch,
    listening,
    silent,
    tell,
)
from randsvm.kernels.random_features import RandomMap
from randsvm.models.linear_model import LinearModel
from randsvm.models.load import load
from randsvm.models.seen_features import SeenFeatures
from randsvm.parameters.option import command_line
from randsvm.parameters.sgd import SgdParams
from randsvm.parameters.svm import Params, class_weights
from randsvm.svm.linear import (
    CRAMMER_SINGER,
    LOSSES,
    Classes,
    Judge,
    Linear,
    LinearFindings,
    Targets,
    evaluate_linear,
    linear_findings,
)
from randsvm.training import grid_search, platt
from randsvm.training.cross_validation import Decision
from randsvm.training.run import LATE, PROBABILITY_TIME, Job, TimeLimitError, check_paths
from randsvm.training.several_classes import Subject
from randsvm.training.stopping import TIME_LIMIT

ALL_EPOCHS = "all epochs"
HELD_OUT = "the loss of the held-out rows stopped falling"
END_OF_DATA = "end of the data"

# --epochs auto gives up when so many epochs in a row were no better.
PATIENCE = 5
# A step costs as many classes.
MOST_CLASSES = 10_000
# A closing evaluation takes about as long as a pass that only adds up |x|^2, times this.
EVALUATION = 3.0


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
        if params.update is not None and (job.search.wanted or job.run.scale):
            raise ParameterError("--update goes on as the model was begun: no -v, lists or --scale")
        if params.update is None:
            return _train(data, model, params, job, clock)
        return _update(data, model, params, job, clock)


class _Clock:
    """Passes events on; once `armed`, the first event after the deadline raises TimeLimitError.

    meanwhile: done at each event besides.
    """

    def __init__(self, watch: Watch, ends: float) -> None:
        self.began = time.perf_counter()
        self.watch = watch
        self.ends = ends
        self.armed = False
        self.meanwhile: Callable[[], None] = lambda: None
        self.learning = 0.0

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.began

    @property
    def middle(self) -> float:
        """A search may take half of the time that is left."""
        now = time.perf_counter()
        return now + (self.ends - now) / 2

    def spare(self, probability: bool) -> float:
        """Learning begins; where probabilities follow, they get most of the time that is left.
        Returns when that ends."""
        now, end = time.perf_counter(), self.ends
        self.ends = now + (end - now) / (1 + PROBABILITY_TIME * probability)
        return end

    def __call__(self, event: object) -> None:
        self.watch(event)
        self.meanwhile()
        if self.armed and time.perf_counter() >= self.ends - LATE:
            self.armed = False
            raise TimeLimitError


# --- a whole file ------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Task:
    """How much the rows of each class count, and what the answer is asked."""

    weights: np.ndarray
    judge: Judge
    epsilon: float | None = None
    origin: float = 0.0
    counts: tuple[int, ...] = ()

    @staticmethod
    def of(D: Dataset, labels: tuple[str, ...], params: SgdParams) -> _Task:
        """D: a subject's, or a view of it; labels: those of its places."""
        if params.task == "svr":
            return _Task(np.ones(1), Targets(params.epsilon), params.epsilon)
        assert params.loss
        if params.task == "one-class":
            # MADlib: every row is positive, the origin the one negative, both sides weigh the same.
            weights = np.array([(D.n + 1) / (2 * D.n)])
            return _Task(weights, Classes(params.loss, weights), origin=float(weights[0]))
        assert D.targets is not None
        counts = tuple(D.summary.counts[i] for i in np.argsort(D.targets))
        weights = np.array(class_weights(params.weights, labels, counts))
        crammer_singer = params.multiclass == "crammer-singer" and len(labels) > 2
        return _Task(weights, Classes(params.loss, weights, crammer_singer), counts=counts)

    @property
    def regression(self) -> bool:
        return self.epsilon is not None

    def loss(self, found: LinearFindings, linear: Linear) -> float:
        """The sum of losses, the origin's included."""
        if not self.origin:
            return found.loss
        assert isinstance(self.judge, Classes)
        at_origin = float(LOSSES[self.judge.loss].of(-linear.b[:1])[0])
        return found.loss + found.rows * self.origin * at_origin


@dataclass(frozen=True)
class _Training:
    """What is to be trained, everything resolved."""

    subject: Subject
    job: Job

    def map_of(self, params: SgdParams) -> RandomMap | None:
        return random_map(params, len(self.subject.D.summary.features), self.job.run.seed)

    def learning(self, D: Dataset, params: SgdParams, clock: _Clock) -> _Learning:
        """From the subject's rows or a view of them."""
        task, mapping = _Task.of(D, self.subject.labels, params), self.map_of(params)
        if params.task == "one-class":
            D = one_class(D)
        if mapping is not None:
            D = D.mapped(mapping.over(D.summary.features))
        began = time.perf_counter()
        R2 = algorithm.mean_squared_norm(D)
        clock.ends -= EVALUATION * (time.perf_counter() - began)
        steps = _steps(params, params.scales(D.n)[1], R2, task)
        return _Learning(D, task, params, steps, clock, Draws(self.job.run.seed))

    def fit(self, D: Dataset, params: SgdParams) -> Decision:
        """What is learnt from a view of the rows; for scores."""
        learning = self.learning(D, params, _Clock(silent, inf))
        learning.run()
        linear, mapping = learning.answer, self.map_of(params)
        if mapping is None:
            return linear.decision
        prepared = mapping.over(D.summary.features)
        return lambda X: linear.decision(prepared.values(X))


def _train(data: str, model: str, params: SgdParams, job: Job, clock: _Clock) -> Learnt:
    labels: Labels = "number" if params.task == "svr" else "class"
    options = ParseOptions(labels, job.run.zero_based)
    job = replace(job, search=job.search.resolved())
    with closing(dataset.load(data, options, job.resources)) as whole:
        params = params.resolved(whole.n)
        # Weights and their sums are 16 bytes for each feature and class.
        most = min(MOST_CLASSES, max(2, job.resources.memory // (16 * max(whole.d, 1))))
        training = _Training(Subject.of(whole, data, params.task, most), job)
        if (mapping := training.map_of(params)) is not None:
            params = replace(params, gamma=mapping.gamma)
        _Task.of(training.subject.D, training.subject.labels, params)  # refuses unknown labels
        C, lambda_ = params.scales(whole.n)
        common = command_line(job.run, job.search)
        repeat = [*command_line(params, grid=job.search.grid), *common, *command_line(job.limits)]
        tell(
            Started(
                algorithm="sgd",
                configuration=repeat,
                n=whole.n,
                d=whole.d,
                nnz=whole.nnz,
                C=C,
                lambda_=lambda_,
                seconds=clock.seconds,
                pass_bytes=whole.store.nbytes,
                place=whole.store.place,
            )
        )
        if whole.summary.queries:
            tell(Notice(f"qid: of {whole.summary.queries} rows ignored"))
        training = replace(training, subject=training.subject.scaled(job.run.scale))

        def configuration(params: SgdParams) -> list[str]:
            return ["sgd", *command_line(params), *common]

        searched = None
        if job.search.wanted:
            searched = grid_search.searched(
                training.subject.D, params, training.fit, job, configuration, clock.middle
            )
            params = replace(params, **searched.tried[0].values)  # type: ignore[arg-type]
        words = configuration(params)
        return _Trial(training, params, clock, model, words, searched).run()


def random_map(params: SgdParams | Params, d: int, seed: int) -> RandomMap | None:
    """The random features that stand for the kernel; None: there are none."""
    if params.components is None:
        return None
    gamma = params.gamma
    if gamma is None:
        gamma = 1.0 if params.kernel == "poly" else 1.0 / max(d, 1)
    return RandomMap(
        kernel=params.kernel,
        components=params.components,
        gamma=gamma,
        coef0=params.coef0,
        degree=params.degree,
        seed=seed,
        exact=params.exact,
    )


def _steps(params: SgdParams, lambda_: float, R2: float, task: _Task) -> Steps:
    # A row of weight 100 steps 100 times as far: the mean weight, each row's by its own weight.
    counts = np.array(task.counts, float)
    pull = float(counts @ task.weights**2 / (counts @ task.weights)) if len(counts) else 1.0
    return Steps(
        lambda_,
        1 / (R2 * pull),
        BIAS_RATE * R2,
        task.weights,
        params.loss or "hinge",
        task.judge.solver == CRAMMER_SINGER,
        task.epsilon,
        task.origin,
        params.averages,
    )


@dataclass
class _Learning:
    """Learning from the rows of D, from the first step to the answer; with held-out rows the best
    answer is kept. clock: is told each epoch, and breaks off."""

    D: Dataset
    task: _Task
    params: SgdParams
    steps: Steps
    clock: _Clock
    rng: Draws
    learner: Learner = field(init=False)
    begun: float = 0.0
    held: Dataset | None = None
    last: algorithm.Progressive | None = None
    best: tuple[float, Linear] | None = None
    reason: str = ALL_EPOCHS

    def __post_init__(self) -> None:
        self.learner = Learner.new(self.steps, self.D.d)

    @property
    def answer(self) -> Linear:
        return self.best[1] if self.best else self.learner.linear

    def run(self) -> None:
        """All epochs, or what the time allows; `reason` is what ended them."""
        training, self.held = _split(self.D, self.params.early_stopping, self.rng)
        epochs = self._best_epochs() if self.params.epochs == "auto" else self.params.epochs
        assert isinstance(epochs, int)
        horizon = 0.0 if self.steps.averages else float(epochs * training.n)
        self.learner = Learner.new(replace(self.steps, horizon=horizon), self.D.d)
        batches = algorithm.from_dataset(training, self.rng)
        self.clock.armed = True
        self.begun = time.perf_counter()
        try:
            algorithm.sgd(batches, training.n, self.learner, epochs, self._stop, self._epoch)
        except TimeLimitError:
            self.reason = TIME_LIMIT
        self.clock.armed = False

    def _epoch(self, number: int, learner: Learner) -> None:
        self.clock.learning += time.perf_counter() - self.begun
        last = self.last = learner.progressive()
        held_out = None if self.held is None else self._held_out(self.held)
        errors = None if self.task.regression else last.errors
        self.clock(
            Epoch(
                number=number,
                seconds=self.clock.seconds,
                rows=last.rows,
                loss=last.loss,
                errors=errors,
                held_out=held_out,
            )
        )
        self.begun = time.perf_counter()

    def _held_out(self, held: Dataset) -> float:
        linear = self.learner.linear
        loss = self.task.loss(evaluate_linear(held, linear, self.task.judge), linear) / held.n
        if self.best is None or loss < self.best[0]:
            self.best = loss, linear
        else:
            self.reason = HELD_OUT
        return loss

    def _stop(self, learner: Learner) -> bool:
        return self.reason == HELD_OUT

    def _best_epochs(self) -> int:
        """CS246: train on a small set A, with the lambda of the whole; as many epochs as gave the
        lowest loss on another small set B."""
        D, rng = self.D, self.rng
        draw = rng.next()
        rows = D.sample(draw, 2 * min(SgdParams.AUTO_ROWS, max(1, D.n // 2)))
        mixed = rows[Permuter(rng.next()).permutation(len(rows))]
        A, B = (D.points(half) for half in np.array_split(mixed, 2))
        losses: list[float] = []
        learner = Learner.new(self.steps, D.d)

        def watch(epoch: int, learner: Learner) -> None:
            linear = learner.linear
            found = linear_findings(linear, B.X, B.y, self.task.judge)
            losses.append(self.task.loss(found, linear) / found.rows)

        def stop(learner: Learner) -> bool:
            return len(losses) - 1 - int(np.argmin(losses)) >= PATIENCE

        most = SgdParams.AUTO_EPOCHS
        algorithm.sgd(algorithm.from_points(A, rng), len(A), learner, most, stop, watch)
        best = int(np.argmin(losses)) + 1
        tell(Notice(f"{best} epochs had the lowest loss on {len(B):,} rows of {len(losses)} tried"))
        return best


@dataclass
class _Trial:
    """One training over a whole file, from its first step to its written model."""

    training: _Training
    params: SgdParams
    clock: _Clock
    model: str
    configuration: list[str]
    searched: Searched | None
    sigmoid: np.ndarray | None = None
    saved: bool = False

    def run(self) -> Learnt:
        training, clock = self.training, self.clock
        # A logistic regression has probabilities by itself.
        fits_sigmoid = self.params.probability and self.params.loss != "log"
        end = clock.spare(fits_sigmoid)
        learning = training.learning(training.subject.D, self.params, clock)
        found = None
        try:
            learning.run()
            found = evaluate_linear(learning.D, learning.answer, learning.task.judge)
            if fits_sigmoid:
                D, job = training.subject.D, training.job
                self.sigmoid = platt.cross_validated(D, self.params, training.fit, job, end)
            return self.save(learning, found, learning.reason)
        except Interrupted as signal:
            clock.armed = False
            if learning.learner.learnt and not self.saved:
                self.save(learning, found, str(signal))
            raise

    def save(self, learning: _Learning, found: LinearFindings | None, reason: str) -> Learnt:
        """Write the answer as the model; found is its evaluation, None if there was no time."""
        D, task, learner, linear = learning.D, learning.task, learning.learner, learning.answer
        C, _ = self.params.scales(D.n)
        last = learning.last or learner.progressive()
        primal = None
        if found is not None:
            primal = float(np.square(linear.w).sum() / 2 + C * task.loss(found, linear))
        outcome = Learnt(
            model=self.model,
            rows=learner.learnt,
            progressive_loss=last.loss,
            progressive_errors=None if task.regression else last.errors,
            primal=primal,
            J=None if primal is None else primal / (C * D.n),
            violators=None if found is None else found.violators,
            error=None if found is None or task.regression else found.wrong / found.rows,
            squared_error=found.wrong / found.rows if found and task.regression else None,
            cross_validation=None if self.searched is None else self.searched.tried[0],
            stopped=reason,
            learning=self.clock.learning,
            seconds=self.clock.seconds,
        )
        seed = self.training.job.run.seed
        facts = {
            "version": __version__,
            "configuration": " ".join(self.configuration),
            "seed": str(seed),
            "n": str(D.n),
            "d": str(len(D.summary.features)),
            "nnz": str(D.summary.nnz),
            "digest": D.summary.digest,
            "C": repr(C),
            "primal": "unknown" if primal is None else repr(primal),
            "violators": "unknown" if found is None else str(found.violators),
            "stopped": reason,
            # An update counts a row once, however often it was learnt: its steps are the larger.
            # Measured on three sets cut in two: 0.1 to 0.3 points better than with all steps.
            **_state(learner, min(learner.t, D.n)),
            **grid_search.facts(self.searched),
        }
        LinearModel(
            w=linear.w,
            b=linear.b,
            solver=task.judge.solver,
            mapping=self.training.map_of(self.params),
            features=D.summary.features,
            labels=self.training.subject.labels,
            values=self.training.subject.values,
            zero_based=self.training.job.run.zero_based,
            seen=SeenFeatures.of(D.summary.features),
            scaling=D.scaling,
            sigmoid=self.sigmoid,
            facts=facts,
        ).save(self.model)
        self.saved = True
        outcome = replace(outcome, seconds=self.clock.seconds)
        tell(outcome)
        return outcome


def _split(D: Dataset, share: float | None, rng: Draws) -> tuple[Dataset, Dataset | None]:
    """The rows to learn from, and those held out: a share of D, drawn at random."""
    if share is None:
        return D, None
    held = D.mask(D.sample(rng.next(), min(max(1, round(share * D.n)), D.n - 1)))
    return D.only(~held), D.only(held)


def _state(learner: Learner, t: float) -> dict[str, str]:
    """What --update goes on from; t: how many steps it counts as made."""
    steps = learner.steps
    task = {
        **({} if steps.epsilon is None else {"epsilon": repr(steps.epsilon)}),
        **({"origin": repr(steps.origin)} if steps.origin else {}),
    }
    return {
        **task,
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
    if old.mapping is not None:
        raise ModelError(
            f"{params.update}: expected a model without random features to go on from: they would "
            f"change with each feature that is new"
        )
    if old.scaling is not None or old.sigmoid is not None:
        what = "--scale" if old.scaling is not None else "-b 1"
        raise ModelError(f"{params.update}: expected a model without {what} to go on from")
    steps, t = _steps_of(old, params, params.update)
    words = command_line(params, job.run)
    repeat = [*words, *command_line(job.limits)]
    tell(
        Started(
            algorithm="sgd",
            configuration=repeat,
            n=None,
            d=None,
            nnz=None,
            C=None,
            lambda_=steps.lambda_,
            seconds=clock.seconds,
        )
    )
    # The name of a file is not in a model.
    nameless = command_line(replace(params, update="MODEL"), job.run)
    stream = _Stream(old, steps, t, params, clock, model, nameless)
    clock.meanwhile = stream.checkpoint_if_due
    clock.armed, reason = True, END_OF_DATA
    try:
        blocks = svmlight.read_blocks(
            data,
            labels="number" if old.regression else "class",
            zero_based=old.zero_based,
            prompt=True,
            watch=tell,
        )
        table = LabelTable(data, names=old.labels, closed=not steps.origin)
        with closing(blocks):
            for block in blocks:
                stream.learn(block, _targets(block, table, steps))
    except TimeLimitError:
        reason = TIME_LIMIT
    except Interrupted as signal:
        clock.armed = False
        stream.save_once(str(signal))
        raise
    clock.armed = False
    try:
        return stream.save(reason)
    except Interrupted as signal:
        stream.save_once(str(signal))
        raise


def _steps_of(old: LinearModel, params: SgdParams, path: str) -> tuple[Steps, float]:
    """How the model's steps were made, and how many."""
    facts = old.facts
    try:
        lambda_, eta0, bias_rate, t = (
            float(facts[name]) for name in ("lambda", "eta0", "bias_rate", "t")
        )
        epsilon = float(facts["epsilon"]) if "epsilon" in facts else None
        origin = float(facts.get("origin", "0"))
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
        epsilon,
        origin,
        # A fixed rate follows what changes; a mean would lag behind.
        averages=params.update_rate is None,
        fixed_rate=params.update_rate or 0.0,
    ), t


def _targets(block: svmlight.Block, table: LabelTable, steps: Steps) -> np.ndarray:
    """y of each row, (m,) float64: targets, class numbers, or nothing for novelty detection."""
    if steps.epsilon is not None:
        return block.y
    y = table.classes(block)
    return np.zeros(len(y)) if steps.origin else y


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
        self.done = False

    def learn(self, block: svmlight.Block, y: np.ndarray) -> None:
        began = time.perf_counter()
        order = np.arange(len(block), dtype=np.int32)
        columns = self._columns(block)
        self.learner.learn(Batch.of(block.indptr, columns, block.values, y, order))
        self.clock.learning += time.perf_counter() - began
        self._tell()
        self.checkpoint_if_due()

    def checkpoint_if_due(self) -> None:
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
            errors = None if self.old.regression else last.errors
            tell(
                Taught(
                    seconds=self.clock.seconds,
                    rows=self.told,
                    last=last.rows,
                    loss=last.loss,
                    errors=errors,
                )
            )

    def _due(self) -> bool:
        rows, since = self.saved
        if self.learner.learnt == rows:
            return False
        if isinstance(self.checkpoint, int):
            return self.learner.learnt - rows >= self.checkpoint
        return self.checkpoint is not None and time.perf_counter() - since >= self.checkpoint

    def _write(self, reason: str) -> None:
        learner, old = self.learner, self.old
        linear = learner.linear
        facts = {
            **old.facts,
            "version": __version__,
            "configuration": " ".join(["sgd", *self.configuration]),
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
            seen=SeenFeatures.of(self.features),
            facts=facts,
        ).save(self.model)

    def save_once(self, reason: str) -> None:
        """What was learnt, if that is anything and the last word was not spoken yet."""
        if self.learner.learnt and not self.done:
            self.save(reason)

    def save(self, reason: str) -> Learnt:
        self._count(tell_it=False)
        self._write(reason)
        self.done = True
        rows = max(self.learner.learnt, 1)
        outcome = Learnt(
            model=self.model,
            rows=self.learner.learnt,
            progressive_loss=self.loss / rows,
            progressive_errors=None if self.old.regression else self.errors / rows,
            primal=None,
            J=None,
            violators=None,
            error=None,
            squared_error=None,
            cross_validation=None,
            stopped=reason,
            learning=self.clock.learning,
            seconds=self.clock.seconds,
        )
        tell(outcome)
        return outcome
