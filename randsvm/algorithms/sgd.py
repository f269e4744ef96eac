"""Train linear SVMs by stochastic gradient descent, one step for each row.

The algorithm is Bottou's SGD-SVM as in CS246 ("Large Scale Machine Learning: SVMs"): w = s v, so
that the cost of a step is the number of nonzeros of the row; step size
eta_t = eta0 / (1 + lambda eta0 t); b is not regularised.

If the number of steps T is known, the step size is also multiplied by 1 - t/T, and the last weights
are the solution. Otherwise the solution is the mean of the weights since the last epoch of
`RESTARTS`. eta0 = 1 / R2, with R2 the mean of |x|^2, needs no search and is more stable on 1,000
rows than Bottou's. b moves 0.1 R2 times as far as a weight whose feature is 1; this suits both text
and small dense data.

On a cluster, groups of rows are learned in parallel, and the weights are averaged after each epoch,
as in MADlib: Zinkevich, Weimer, Smola, Li, "Parallelized Stochastic Gradient Descent", NIPS 2010,
with one average for each epoch instead of one at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

import randsvm.algorithms._sgd as _sgd
from randsvm.arrays import column_sums, squared_norms
from randsvm.data.batches import Batch, chunk_groups, shuffled_batches
from randsvm.data.dataset import Dataset
from randsvm.data.sampling import Draw, Draws
from randsvm.data.shard_executor import Shard
from randsvm.events import Progress, emit
from randsvm.parameters.sgd import LOSS_NAMES, OUTSIDE
from randsvm.svm.linear import Linear

# The mean restarts at these epochs: earlier weights are worse and would slow its progress.
RESTARTS = (2, 3, 5, 9, 17)
BIAS_RATE = 0.1
SAMPLE = 2000
# Least number of chunks in a group. Chunks are assigned to groups in turn, so that each group of a
# file sorted by class has rows of all classes.
GROUP_CHUNKS = 8
MAX_GROUPS = 64


@dataclass(frozen=True)
class SgdSchedule:
    """How steps are made. lambda_, eta0: see above. bias_rate: the step size of b relative to that
    of a weight whose feature is 1, at t = 0. bias_lambda: the step size of b has the factor
    1 / (1 + bias_lambda eta0 t); None: lambda_.

    horizon: the number T of steps after which the step size is 0; 0: the step size has no factor
    1 - t/T. fixed_rate: a constant step size; 0: the step size falls. weights : (classes,)
    float64, the factor of the losses of each class. epsilon: half width of a regression's tube,
    None for classes; the loss of a regression is the hinge loss, or its square, at 1 minus the
    distance of y from the tube. origin: weight, for each row, of a row of zeros with y = -1
    (novelty detection); with the loss OUTSIDE it is nu.

    mean_weight: the mean of the rows' own weights, by which they are divided; None: they have none.
    A row of weight h counts as h steps.
    """

    lambda_: float
    eta0: float
    bias_rate: float
    weights: np.ndarray
    loss: str = "hinge"
    crammer_singer: bool = False
    epsilon: float | None = None
    origin: float = 0.0
    bias_lambda: float | None = None
    averages: bool = False
    horizon: float = 0.0
    fixed_rate: float = 0.0
    mean_weight: float | None = None

    @property
    def loss_number(self) -> int:
        """Return the number of the loss in the compiled code."""
        if self.loss == OUTSIDE:
            return _sgd.OUTSIDE
        return LOSS_NAMES.index(self.loss)


class Progressive(NamedTuple):
    """The mean loss and the share of mistakes of rows, each taken before the step of the row.

    weight: the sum of the weights of the rows, their number without weights
    """

    rows: int
    weight: float
    loss: float
    errors: float


class LearnerState(NamedTuple):
    """The state from which a learner continues without a difference; see _sgd.pyx.

    v : (d, K), b : (K,), A : (d, K), or (0, K) without a mean, b_sum : (K,)
    """

    s: float
    sigma: float
    m: float
    v: np.ndarray
    b: np.ndarray
    A: np.ndarray
    b_sum: np.ndarray


@dataclass
class Learner:
    """The weights during training, see _sgd.pyx. v, A : (d, K) float64; b, b_sum : (K,) float64.

    state : (6,) float64: s, sigma, m, t, and the sums of losses and of mistakes since the last call
    of `progressive`. rows_learned: the number of all rows so far.
    """

    steps: SgdSchedule
    v: np.ndarray
    b: np.ndarray
    A: np.ndarray = field(init=False)
    b_sum: np.ndarray = field(init=False)
    state: np.ndarray = field(init=False)
    rows_learned: int = 0
    # The sum of the weights of the rows learned, relative to their mean.
    weight_learned: float = 0.0

    def __post_init__(self) -> None:
        d, K = self.v.shape
        self.A = np.zeros((d if self.steps.averages else 0, K))
        self.b_sum = np.zeros(K)
        self.state = np.array([1.0, 0.0, 0.0, 0.0, 0.0, 0.0])
        self._since = 0, 0.0

    @staticmethod
    def new(steps: SgdSchedule, d: int, b: np.ndarray | None = None) -> Learner:
        """Return a learner with all weights zero: one column for two classes, else one for each.

        b : (K,) float64, the first b; None: zero.
        """
        classes = len(steps.weights)
        K = 1 if classes <= 2 and not steps.crammer_singer else classes
        return Learner(steps, np.zeros((d, K)), np.zeros(K) if b is None else b.copy())

    @property
    def t(self) -> float:
        """Return the number of steps so far, including those of earlier runs."""
        return float(self.state[_sgd.T])

    def start_at(self, t: float) -> None:
        """Continue after t steps of an earlier run."""
        self.state[_sgd.T] = t

    def resume(self, running: LearnerState) -> None:
        """Continue with the weights of an earlier run, and with its mean if both runs have one."""
        self.v, self.b = running.v.copy(), running.b.copy()
        self.state[_sgd.S] = running.s
        if self.steps.averages and running.m:
            self.A, self.b_sum = running.A.copy(), running.b_sum.copy()
            self.state[[_sgd.SIGMA, _sgd.M]] = running.sigma, running.m

    @property
    def running(self) -> LearnerState:
        """Return the state with which a later run continues."""
        s, sigma, m = self.state[[_sgd.S, _sgd.SIGMA, _sgd.M]].tolist()
        return LearnerState(s, sigma, m, self.v, self.b, self.A, self.b_sum)

    def learn(self, batch: Batch) -> None:
        """Make a step for each row of the batch, with features rounded to float32."""
        steps, K = self.steps, self.v.shape[1]
        bias_lambda = steps.lambda_ if steps.bias_lambda is None else steps.bias_lambda
        values = batch.values.astype(np.float32, copy=False)
        row_weights = np.empty(0)
        if steps.mean_weight is not None:
            own = np.ones(len(batch.targets)) if batch.weights is None else batch.weights
            row_weights = own / steps.mean_weight
            self.weight_learned += float(row_weights[batch.order].sum())
        else:
            self.weight_learned += len(batch.order)
        _sgd.steps(
            batch.starts, batch.columns, values, batch.classes, batch.targets, batch.order,
            steps.weights, row_weights, steps.loss_number,
            steps.crammer_singer, steps.epsilon is not None, steps.epsilon or 0.0, steps.origin,
            steps.lambda_, steps.eta0, steps.bias_rate, bias_lambda, steps.horizon,
            steps.fixed_rate,
            self.v, self.b, self.A, self.b_sum, np.empty(K), np.empty(K), self.state,
        )  # fmt: skip
        self.rows_learned += len(batch.order)

    def take(self, part: GroupResult) -> None:
        """Continue with the weights that groups of rows gave."""
        self.v, self.b = part.last
        self.A -= part.total.w
        self.b_sum += part.total.b
        self.state[[_sgd.S, _sgd.SIGMA]] = 1.0, 0.0
        # Heavy rows make several steps, which count by their weight.
        self.state[[_sgd.M, _sgd.T]] += part.weight
        self.state[[_sgd.LOSS, _sgd.ERRORS]] += part.loss, part.errors
        self.rows_learned += part.rows
        self.weight_learned += part.weight

    def restart(self) -> None:
        """Restart the mean of the weights."""
        self.A.fill(0.0)
        self.b_sum.fill(0.0)
        self.state[[_sgd.SIGMA, _sgd.M]] = 0.0

    def grow(self, d: int) -> None:
        """Add weights of zero for new features, up to d."""
        more = ((0, d - len(self.v)), (0, 0))
        self.v = np.pad(self.v, more)
        if self.steps.averages:
            self.A = np.pad(self.A, more)

    @property
    def last(self) -> Linear:
        """Return the weights after the last step."""
        return Linear(self.state[_sgd.S] * self.v, self.b.copy())

    @property
    def total(self) -> Linear:
        """Return the sum of the weights over the steps of their mean."""
        return Linear(self.state[_sgd.SIGMA] * self.v - self.A, self.b_sum.copy())

    @property
    def linear(self) -> Linear:
        """Return the solution so far: the mean of the weights, or the last weights."""
        m = self.state[_sgd.M]
        if self.steps.averages and m:
            total = self.total
            return Linear(total.w / m, total.b / m)
        return self.last

    def progressive(self) -> Progressive:
        """Return the numbers of the rows learned since the last call."""
        rows, weight = self.rows_learned - self._since[0], self.weight_learned - self._since[1]
        self._since = self.rows_learned, self.weight_learned
        loss, errors = self.state[[_sgd.LOSS, _sgd.ERRORS]] / (weight if rows else 1)
        self.state[[_sgd.LOSS, _sgd.ERRORS]] = 0.0
        return Progressive(rows, weight, float(loss), float(errors))


@dataclass(frozen=True)
class GroupResult:
    """The result of steps over some rows; the results of several groups add up.

    last: the weights after the last step
    total: the sum of the weights over the steps, w : (0, K) without a mean
    loss, errors: sums over the rows, each taken before the step of the row
    """

    rows: int
    weight: float
    last: Linear
    total: Linear
    loss: float
    errors: float

    @staticmethod
    def of(learner: Learner) -> GroupResult:
        """Return the result of all steps of a learner."""
        total = learner.total if learner.steps.averages else Linear(learner.A, learner.b_sum)
        loss, errors = learner.state[[_sgd.LOSS, _sgd.ERRORS]].tolist()
        return GroupResult(
            learner.rows_learned, learner.weight_learned, learner.last, total, loss, errors
        )

    def __add__(self, other: GroupResult) -> GroupResult:
        """Return the result over the rows of both; the last weights are a mean weighted by rows."""
        rows = self.rows + other.rows
        share = other.rows / rows
        return GroupResult(
            rows,
            self.weight + other.weight,
            Linear(*(a + share * (b - a) for a, b in zip(self.last, other.last, strict=True))),
            Linear(*(a + b for a, b in zip(self.total, other.total, strict=True))),
            self.loss + other.loss,
            self.errors + other.errors,
        )


# One pass over rows: a function that makes the steps of a learner and yields their numbers.
Pass = Callable[[Learner], Iterator[int]]


def sgd(one_pass: Pass, n: int, learner: Learner, epochs: int) -> Iterator[int]:
    """Pass over the n rows `epochs` times; yield the number of each epoch when it ends."""
    for epoch in range(1, epochs + 1):
        if epoch in RESTARTS:
            learner.restart()
        done = 0
        for steps in one_pass(learner):
            done += steps
            # Heavy rows make several steps.
            emit(Progress(f"epoch {epoch}", min(done, n), n))
        yield epoch


def from_dataset(D: Dataset, rng: Draws) -> Pass:
    """Return a pass over all rows of D in random order, one step after the other."""

    def one_pass(learner: Learner) -> Iterator[int]:
        for batch in shuffled_batches(D, rng.next()):
            learner.learn(batch)
            yield len(batch.order)

    return one_pass


def group_count(D: Dataset, learner: Learner, memory: int) -> int:
    """Return the number of groups that learn the rows of D in parallel; equal for all views of D.

    memory: bytes. The results of all groups must fit the memory of one worker and of the caller.
    So --memory may change the groups, and with them the model; the number of workers never does.
    """
    # Each group has weights and their sums in float64, once as arrays and once as a message.
    room = memory // max(32 * learner.v.size, 1)
    return max(1, min(MAX_GROUPS, len(D.shards) // GROUP_CHUNKS, room))


def averaged(D: Dataset, rng: Draws, count: int) -> Pass:
    """Return a pass over all rows of D in `count` groups, whose weights are then averaged.

    Each group is learned on the worker of its leader, its first shard. It starts at the common
    weights and uses the step sizes that it would have alone. The average is weighted by rows. The
    learner changes only after all groups are learned.

    D must not use a thread pool of this process as its executor: the threads that learn also need
    it to read ahead.
    """
    groups = chunk_groups(D, count)

    def one_pass(learner: Learner) -> Iterator[int]:
        steps, common, passes = learner.steps, learner.last, learner.t / D.n
        draws = {leader: rng.next() for leader in groups}

        def learn(leader: Shard) -> GroupResult:
            chunks = [shard.number for shard in groups[leader]]
            rows = sum(shard.stop - shard.start for shard in groups[leader])
            horizon = steps.horizon * rows / D.n
            own = Learner(replace(steps, horizon=horizon), common.w.copy(), common.b.copy())
            own.start_at(passes * rows)
            for batch in shuffled_batches(D, draws[leader], chunks):
                own.learn(batch)
                emit(Progress("learning a group", min(own.rows_learned, rows), rows))
            return GroupResult.of(own)

        whole = None
        for part in D.executor.distribute(
            learn, list(groups), lambda leader: [shard.number for shard in groups[leader]]
        ):
            whole = part if whole is None else whole + part
            yield part.rows
        if whole is not None:
            learner.take(whole)

    return one_pass


def squares(D: Dataset) -> tuple[float, float]:
    """Return R2, the mean of |x|^2 over D, and |mean of x|^2.

    R2 is 1 if the mean is 0; with a feature map it is the mean over a sample. |mean of x|^2 is
    taken as 0 for sparse rows.
    """
    if D.mapping is not None and D.n > SAMPLE:
        return squares(D.subset(D.mask(D.sample(Draw(0, 0), SAMPLE))))

    def of(shard: Shard) -> tuple[float, np.ndarray]:
        norms, total = 0.0, np.zeros(d)
        for chunk in D.chunks(shard):
            norms += float(squared_norms(chunk.X).sum())
            if d:
                total += column_sums(chunk.X)
        return norms, total

    d = D.d if D.nnz > D.n * D.d / 2 else 0
    norms, total = 0.0, np.zeros(d)
    for part, part_total in D.map(of):
        norms += part
        total += part_total
    return norms / D.n or 1.0, float(np.square(total / D.n).sum())
