"""Train linear SVMs by stochastic gradient descent, one step for each row.

The algorithm is Bottou's SGD-SVM as in CS246 ("Large Scale Machine Learning: SVMs"): w = s v, so
that the cost of a step is the number of nonzeros of the row; step size
eta_t = eta0 / (1 + lambda eta0 t); b is not regularised.

If the number of steps T is known, the step size is also multiplied by 1 - t/T, and the last weights
are the solution. Otherwise the solution is the mean of the weights since the last epoch of
`RESTARTS`. eta0 is about 1 / R2, with R2 the mean of |x|^2; weights and targets of regressions
change it by a factor. It needs no search and is more stable on 1,000 rows than Bottou's. b moves
0.1 R2 times as far as a weight whose feature is 1; this suits both text and small dense data.

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
from randsvm.svm.linear import Linear, LinearObjective

# The mean restarts at these epochs: earlier weights are worse and would slow its progress.
RESTARTS = (2, 3, 5, 9, 17)
BIAS_RATE = 0.1
SAMPLE = 2000
# Least number of chunks in a group. Chunks are assigned to groups in turn, so that each group of a
# file sorted by class has rows of all classes.
GROUP_CHUNKS = 8
MAX_GROUPS = 64


@dataclass(frozen=True, kw_only=True)
class SgdSchedule(LinearObjective):
    """An objective, and the steps that lower it. lambda_, eta0: see above.

    bias_rate: the step size of b relative to that of a weight whose feature is 1, at t = 0.
    bias_lambda: the step size of b has the factor 1 / (1 + bias_lambda eta0 t); None: lambda_.

    averages: whether the solution is the mean of the weights. horizon: the number T of steps after
    which the step size is 0; 0: the step size has no factor 1 - t/T. fixed_rate: a constant step
    size; 0: the step size falls.

    mean_weight: the mean of the rows' own weights, by which they are divided; None: they have none.
    A row of weight h counts as h steps.
    """

    lambda_: float
    eta0: float
    bias_rate: float
    bias_lambda: float | None = None
    averages: bool = False
    horizon: float = 0.0
    fixed_rate: float = 0.0
    mean_weight: float | None = None

    @property
    def loss_number(self) -> int:
        """Return the number of the loss in the compiled code."""
        return _sgd.OUTSIDE if self.loss == OUTSIDE else LOSS_NAMES.index(self.loss)


class Progressive(NamedTuple):
    """The mean loss and the share of mistakes of steps, each taken before the step.

    weight: the sum of the weights of the rows, their number without weights
    """

    steps: int
    weight: float
    loss: float
    errors: float


@dataclass
class Learner:
    """The weights during training, see _sgd.pyx. v, A : (d, K) float64; b, b_sum : (K,) float64.

    state : (6,) float64: s, sigma, m, t, and the sums of losses and of mistakes since the last call
    of `progressive`. steps_made: by this learner and those that it took or joined.
    """

    steps: SgdSchedule
    v: np.ndarray
    b: np.ndarray
    A: np.ndarray = field(init=False)
    b_sum: np.ndarray = field(init=False)
    state: np.ndarray = field(init=False)
    steps_made: int = 0
    # The sum of the weights of the rows learned, relative to their mean; without weights the steps.
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
        self.steps_made += len(batch.order)

    def fold(self) -> None:
        """Set s = 1 and sigma = 0.

        So v is w, and the sum of w over the steps of the mean is -A.
        """
        s, sigma = self.state[[_sgd.S, _sgd.SIGMA]]
        if self.steps.averages:
            self.A -= sigma * self.v
        self.v *= s
        self.state[[_sgd.S, _sgd.SIGMA]] = 1.0, 0.0

    def join(self, other: Learner) -> None:
        """Average the weights with those of a learner of other rows, and add up the sums over rows.

        Both are folded; their shares in the average are those of their steps.
        """
        share = other.steps_made / (self.steps_made + other.steps_made)
        self.v += share * (other.v - self.v)
        self.b += share * (other.b - self.b)
        self._add(other)

    def take(self, other: Learner) -> None:
        """Continue with the weights of a folded learner, which began with those of this one."""
        self.fold()
        self.v, self.b = other.v, other.b
        self._add(other)
        # Heavy rows make several steps, which count by their weight.
        self.state[[_sgd.M, _sgd.T]] += other.weight_learned

    def _add(self, other: Learner) -> None:
        self.A += other.A
        self.b_sum += other.b_sum
        self.state[[_sgd.LOSS, _sgd.ERRORS]] += other.state[[_sgd.LOSS, _sgd.ERRORS]]
        self.steps_made += other.steps_made
        self.weight_learned += other.weight_learned

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
    def linear(self) -> Linear:
        """Return the solution so far: the mean of the weights, or the last weights."""
        sigma, m = self.state[[_sgd.SIGMA, _sgd.M]]
        if self.steps.averages and m:
            return Linear((sigma * self.v - self.A) / m, self.b_sum / m)
        return self.last

    def progressive(self) -> Progressive:
        """Return the numbers of the steps made since the last call."""
        steps, weight = self.steps_made - self._since[0], self.weight_learned - self._since[1]
        self._since = self.steps_made, self.weight_learned
        loss, errors = self.state[[_sgd.LOSS, _sgd.ERRORS]] / (weight if steps else 1)
        self.state[[_sgd.LOSS, _sgd.ERRORS]] = 0.0
        return Progressive(steps, weight, float(loss), float(errors))


# One pass over rows: a function that makes the steps of a learner, and yields how many it made,
# batch by batch.
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

        def learn(leader: Shard) -> Learner:
            chunks = [shard.number for shard in groups[leader]]
            rows = sum(shard.stop - shard.start for shard in groups[leader])
            horizon = steps.horizon * rows / D.n
            own = Learner(replace(steps, horizon=horizon), common.w.copy(), common.b.copy())
            own.start_at(passes * rows)
            for batch in shuffled_batches(D, draws[leader], chunks):
                own.learn(batch)
                emit(Progress("learning a group", min(own.steps_made, rows), rows))
            own.fold()
            return own

        whole: Learner | None = None
        for part in D.executor.distribute(
            learn, list(groups), lambda leader: [shard.number for shard in groups[leader]]
        ):
            yield part.steps_made
            if whole is None:
                whole = part
            else:
                whole.join(part)
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

    columns = D.d if D.nnz > D.n * D.d / 2 else 0

    def of(shard: Shard) -> np.ndarray:
        found = np.zeros(1 + columns)
        for chunk in D.chunks(shard):
            found[0] += squared_norms(chunk.X).sum()
            if columns:
                found[1:] += column_sums(chunk.X)
        return found

    total = np.zeros(1 + columns)
    for found in D.map(of):
        total += found
    return float(total[0]) / D.n or 1.0, float(np.square(total[1:] / D.n).sum())
