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

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

import randsvm.algorithms._sgd as _sgd
from randsvm.arrays import csr_parts, squared_norms
from randsvm.data.batches import Batch, chunk_groups, shuffled_batches
from randsvm.data.dataset import Dataset
from randsvm.data.sampling import Draws
from randsvm.data.shard_executor import Shard
from randsvm.events import Progress, emit
from randsvm.parameters.sgd import LOSS_NAMES, OUTSIDE
from randsvm.svm.linear_loss import Linear, LinearObjective

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
    bias_lambda: the step size of b has the factor 1 / (1 + bias_lambda eta0 t).

    averages: whether the solution is the mean of the weights. horizon: the number T of steps after
    which the step size is 0; 0: the step size has no factor 1 - t/T. fixed_rate: a constant step
    size; 0: the step size falls.

    mean_weight: the mean of the rows' own weights, by which they are divided; None: they have none.
    A row of weight h counts as h steps.
    """

    lambda_: float
    eta0: float
    bias_rate: float
    bias_lambda: float
    averages: bool = False
    horizon: float = 0.0
    fixed_rate: float = 0.0
    mean_weight: float | None = None


class Learner:
    """The weights during training, see _sgd.pyx. v, A : (d, K) float64; b, b_sum : (K,) float64.

    steps_before: the number of steps of earlier runs, which t counts, too
    state : (8,) float64: s, sigma, m, t, and sums over all steps, see `sums`.
    """

    def __init__(
        self, steps: SgdSchedule, v: np.ndarray, b: np.ndarray, steps_before: float = 0.0
    ) -> None:
        self.steps, self.v, self.b = steps, v, b
        self.A = np.zeros((len(v) if steps.averages else 0, len(b)))
        self.b_sum, self.state = np.zeros(len(b)), np.zeros(8)
        self.state[[_sgd.S, _sgd.T]] = 1.0, steps_before

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

    @property
    def sums(self) -> np.ndarray:
        """Return sums over all steps, also of learners that were joined or taken, (4,) float64.

        They are the number of steps, the weights of their rows relative to the mean, and the losses
        and mistakes of these rows before their steps.
        """
        return self.state[_sgd.STEPS :].copy()

    @property
    def steps_made(self) -> int:
        return int(self.state[_sgd.STEPS])

    def progressive(self, since: np.ndarray | float = 0.0) -> tuple[int, float, float | None]:
        """Return the number of steps since the `sums` of an earlier moment, and the mean loss and
        the share of mistakes of their rows, each before its step.

        The share is None without steps, and in a regression.
        """
        steps, weight, loss, errors = (self.sums - since).tolist()
        has_share = steps and not self.steps.is_regression
        return int(steps), loss / (weight or 1.0), errors / weight if has_share else None

    def learn(self, batch: Batch) -> None:
        """Make a step for each row of the batch, with features rounded to float32."""
        steps, K, row_weights = self.steps, self.v.shape[1], np.empty(0)
        if steps.mean_weight is not None:
            own = np.ones(len(batch.y)) if batch.weights is None else batch.weights
            row_weights = own / steps.mean_weight
        starts, columns, values = csr_parts(batch.X)
        _sgd.steps(
            starts, columns, values.astype(np.float32, copy=False), batch.y, batch.order,
            steps.weights, row_weights, [*LOSS_NAMES, OUTSIDE].index(steps.loss),
            steps.crammer_singer, steps.epsilon is not None, steps.epsilon or 0.0, steps.origin,
            steps.lambda_, steps.eta0, steps.bias_rate, steps.bias_lambda, steps.horizon,
            steps.fixed_rate,
            self.v, self.b, self.A, self.b_sum, np.empty(K), np.empty(K), self.state,
        )  # fmt: skip

    def fold(self) -> None:
        """Set s = 1 and sigma = 0.

        The weights and their mean stay: w = s v is v, and the sum sigma v - A over the steps of the
        mean is -A; see _sgd.pyx.
        """
        s, sigma = self.state[[_sgd.S, _sgd.SIGMA]]
        if self.steps.averages:
            self.A -= sigma * self.v
        self.v *= s
        self.state[[_sgd.S, _sgd.SIGMA]] = 1.0, 0.0

    def add_sums(self, other: Learner) -> None:
        """Add the sums over the steps of another learner, whose weights are taken over."""
        self.A += other.A
        self.b_sum += other.b_sum
        self.state[_sgd.STEPS :] += other.state[_sgd.STEPS :]

    def restart(self) -> None:
        """Restart the mean of the weights."""
        self.A.fill(0.0)
        self.b_sum.fill(0.0)
        self.state[[_sgd.SIGMA, _sgd.M]] = 0.0

    def insert(self, places: np.ndarray) -> None:
        """Insert weights of zero for new features. places : (new,), as numpy.insert takes them."""
        self.v = np.insert(self.v, places, 0.0, axis=0)
        if self.steps.averages:
            self.A = np.insert(self.A, places, 0.0, axis=0)

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


def sgd(D: Dataset, learner: Learner, epochs: int, rng: Draws, groups: int = 1) -> Iterator[int]:
    """Pass over the rows of D `epochs` times; yield the number of each epoch when it ends.

    groups: of rows that are learned in parallel, see `averaged_pass`
    """
    for epoch in range(1, epochs + 1):
        if epoch in RESTARTS:
            learner.restart()
        done, one_pass = 0, sequential_pass(D, learner, rng)
        if groups > 1:
            one_pass = averaged_pass(D, learner, rng, groups)
        for steps in one_pass:
            done += steps
            # Heavy rows make several steps.
            emit(Progress(f"epoch {epoch}", min(done, D.n), D.n))
        yield epoch


def sequential_pass(D: Dataset, learner: Learner, rng: Draws) -> Iterator[int]:
    """Learn all rows of D in random order, one after the other; yield the steps of each batch."""
    for batch in shuffled_batches(D, rng.next()):
        learner.learn(batch)
        yield len(batch.order)


def group_count(D: Dataset, learner: Learner, memory: int) -> int:
    """Return the number of groups that learn the rows of D in parallel; equal for all views of D.

    memory: bytes. The results of all groups must fit the memory of one worker and of the caller.
    So --memory may change the groups, and with them the model; the number of workers never does.
    """
    # Each group has weights and their sums in float64, once as arrays and once as a message.
    room = memory // max(32 * learner.v.size, 1)
    return max(1, min(MAX_GROUPS, len(D.shards) // GROUP_CHUNKS, room))


def averaged_pass(D: Dataset, learner: Learner, rng: Draws, count: int) -> Iterator[int]:
    """Learn all rows of D in `count` groups, whose weights are then averaged; yield the steps of
    each group.

    Each group is learned on the worker of its leader, its first shard. It starts at the common
    weights and uses the step sizes that it would have alone. The average is weighted by rows. The
    learner changes only after all groups are learned.

    D must not use a thread pool of this process as its executor: the threads that learn also need
    it to read ahead.
    """
    groups = chunk_groups(D, count)
    steps, common, passes = learner.steps, learner.last, learner.t / D.n
    draws = {leader: rng.next() for leader in groups}

    def numbers(leader: Shard) -> list[int]:
        return [shard.number for shard in groups[leader]]

    def learn(leader: Shard) -> Learner:
        rows = sum(shard.stop - shard.start for shard in groups[leader])
        own = replace(steps, horizon=steps.horizon * rows / D.n)
        part = Learner(own, common.w.copy(), common.b.copy(), passes * rows)
        for batch in shuffled_batches(D, draws[leader], numbers(leader)):
            part.learn(batch)
            emit(Progress("learning a group", min(part.steps_made, rows), rows))
        part.fold()
        return part

    mean = Learner(steps, np.zeros_like(learner.v), np.zeros_like(learner.b))
    for part in D.executor.distribute(learn, list(groups), numbers):
        yield part.steps_made
        share = part.steps_made / (mean.steps_made + part.steps_made)
        mean.v += share * (part.v - mean.v)
        mean.b += share * (part.b - mean.b)
        mean.add_sums(part)
    learner.fold()
    learner.v, learner.b = mean.v, mean.b
    learner.add_sums(mean)
    # Heavy rows make several steps, which count by their weight.
    learner.state[[_sgd.M, _sgd.T]] += mean.state[_sgd.WEIGHT]


def mean_square(D: Dataset) -> float:
    """Return the mean of |x|^2 over D."""

    def squares(shard: Shard) -> float:
        return sum(float(squared_norms(chunk.X).sum()) for chunk in D.chunks(shard))

    return sum(D.map(squares)) / D.n
