"""Linear SVMs by stochastic gradient descent: one row, one step.

Bottou's SGD-SVM as CS246 gives it ("Large Scale Machine Learning: SVMs"): w = s v, so that a step
costs the row's nonzeros; step size eta_t = eta0 / (1 + lambda eta0 t); b is not regularised.

Where the number of steps T is known the step size also falls by 1 - t/T and the last weights are
the answer; elsewhere it is the mean of the weights since the last of `RESTARTS` epochs. eta0 =
1 / R2, R2 the mean of |x|^2, needs no search and is steadier than Bottou's on 1,000 rows; b moves
0.1 R2 times as far as a weight whose feature is 1, which suits text and small dense data alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

import randsvm.algorithms._sgd as _sgd
from randsvm.arrays import squared_norms
from randsvm.data.batches import Batch, shuffled
from randsvm.data.dataset import Dataset, Shard
from randsvm.data.points import Points
from randsvm.data.sampling import Draw, Draws, Permuter
from randsvm.events import Progress, tell
from randsvm.parameters.sgd import LOSS_NAMES
from randsvm.svm.linear import OUTSIDE, Linear

# The mean begins anew with these epochs: what was learnt before drags it back.
RESTARTS = (2, 3, 5, 9, 17)
BIAS_RATE = 0.1
SAMPLE = 2000


@dataclass(frozen=True)
class Steps:
    """How steps are made. lambda_, eta0: see above. bias_rate: how far b moves for a weight's 1;
    bias_lambda: its steps fall by 1 / (1 + bias_lambda eta0 t); None: as those of the weights.

    horizon: steps T until the step size is 0; 0: it only falls by t. fixed_rate: this step size
    always; 0: none. weights : (classes,) float64, how much a row of a class counts. epsilon: half
    width of a regression's tube, None for classes. origin: weight, for each row, of a row of zeros
    with y = -1 (novelty detection); with the loss OUTSIDE it is nu.
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

    @property
    def kind(self) -> int:
        """The loss as _sgd.pyx knows it."""
        if self.epsilon is not None:
            return _sgd.EPSILON_INSENSITIVE
        if self.loss == OUTSIDE:
            return _sgd.OUTSIDE
        return LOSS_NAMES.index(self.loss)


class Progressive(NamedTuple):
    """What rows were before they were learnt: their mean loss and the share of mistakes."""

    rows: int
    loss: float
    errors: float


class Running(NamedTuple):
    """What a learner needs to go on as if it had never ended; see _sgd.pyx. v : (d, K), b : (K,),
    A : (d, K), or (0, K) without a mean, b_sum : (K,)."""

    s: float
    sigma: float
    m: float
    v: np.ndarray
    b: np.ndarray
    A: np.ndarray
    b_sum: np.ndarray


@dataclass
class Learner:
    """The weights on their way, see _sgd.pyx. v : (d, K); b : (K,).

    state: s, sigma, m, t, and the sums of losses and mistakes since they were last asked for.
    """

    steps: Steps
    v: np.ndarray
    b: np.ndarray
    A: np.ndarray = field(init=False)
    b_sum: np.ndarray = field(init=False)
    state: np.ndarray = field(init=False)
    learnt: int = 0

    def __post_init__(self) -> None:
        d, K = self.v.shape
        self.A = np.zeros((d if self.steps.averages else 0, K))
        self.b_sum = np.zeros(K)
        self.state = np.array([1.0, 0.0, 0.0, 0.0, 0.0, 0.0])
        self._since = 0

    @staticmethod
    def new(steps: Steps, d: int, b: np.ndarray | None = None) -> Learner:
        """All weights zero: one column for two classes, else one for each. b : (K,), where to
        begin; None: at zero."""
        classes = len(steps.weights)
        K = 1 if classes <= 2 and not steps.crammer_singer else classes
        return Learner(steps, np.zeros((d, K)), np.zeros(K) if b is None else b.copy())

    @property
    def t(self) -> float:
        """Steps made so far, those of earlier runs included."""
        return float(self.state[_sgd.T])

    def start_at(self, t: float) -> None:
        """Go on after t steps of an earlier run."""
        self.state[_sgd.T] = t

    def resume(self, running: Running) -> None:
        """Go on from the weights on their way of an earlier run, and with its mean if this one
        takes a mean and it had one."""
        self.v, self.b = running.v.copy(), running.b.copy()
        self.state[_sgd.S] = running.s
        if self.steps.averages and running.m:
            self.A, self.b_sum = running.A.copy(), running.b_sum.copy()
            self.state[[_sgd.SIGMA, _sgd.M]] = running.sigma, running.m

    @property
    def running(self) -> Running:
        s, sigma, m = self.state[[_sgd.S, _sgd.SIGMA, _sgd.M]].tolist()
        return Running(s, sigma, m, self.v, self.b, self.A, self.b_sum)

    def learn(self, batch: Batch) -> None:
        """One step for each row."""
        steps, K = self.steps, self.v.shape[1]
        bias_lambda = steps.lambda_ if steps.bias_lambda is None else steps.bias_lambda
        _sgd.steps(
            batch.starts, batch.columns, batch.values, batch.classes, batch.targets, batch.order,
            steps.weights, steps.kind, steps.crammer_singer, steps.epsilon or 0.0, steps.origin,
            steps.lambda_, steps.eta0, steps.bias_rate, bias_lambda, steps.horizon,
            steps.fixed_rate,
            self.v, self.b, self.A, self.b_sum, np.empty(K), np.empty(K), self.state,
        )  # fmt: skip
        self.learnt += len(batch.order)

    def restart(self) -> None:
        """The mean of the weights begins here."""
        self.A.fill(0.0)
        self.b_sum.fill(0.0)
        self.state[[_sgd.SIGMA, _sgd.M]] = 0.0

    def grow(self, d: int) -> None:
        """Room for features that came later."""
        more = ((0, d - len(self.v)), (0, 0))
        self.v = np.pad(self.v, more)
        if self.steps.averages:
            self.A = np.pad(self.A, more)

    @property
    def linear(self) -> Linear:
        """The answer so far: the mean of the weights, or the last ones."""
        s, sigma, m = self.state[[_sgd.S, _sgd.SIGMA, _sgd.M]]
        if self.steps.averages and m:
            return Linear((sigma * self.v - self.A) / m, self.b_sum / m)
        return Linear(s * self.v, self.b.copy())

    def progressive(self) -> Progressive:
        """Of the rows learnt since this was last asked."""
        rows = self.learnt - self._since
        self._since = self.learnt
        loss, errors = self.state[[_sgd.LOSS, _sgd.ERRORS]] / max(rows, 1)
        self.state[[_sgd.LOSS, _sgd.ERRORS]] = 0.0
        return Progressive(rows, float(loss), float(errors))


# One pass over rows in random order, as batches.
Pass = Callable[[], Iterator[Batch]]


def sgd(
    batches: Pass,
    n: int,
    learner: Learner,
    epochs: int,
    stop: Callable[[Learner], bool],
    watch: Callable[[int, Learner], None],
) -> Learner:
    """Pass over the n rows `epochs` times, or until `stop` says so after an epoch."""
    for epoch in range(1, epochs + 1):
        if epoch in RESTARTS:
            learner.restart()
        begun = learner.learnt
        for batch in batches():
            learner.learn(batch)
            tell(Progress(f"epoch {epoch}", learner.learnt - begun, n))
        watch(epoch, learner)
        if stop(learner):
            break
    return learner


def from_dataset(D: Dataset, rng: Draws) -> Pass:
    return lambda: shuffled(D, rng.next())


def from_points(points: Points, rng: Draws) -> Pass:
    """The rows of a small set, whose y are class numbers."""
    X = points.X
    nobody = np.empty(0, np.int32)
    batch = Batch.of(X.indptr, X.indices.astype(np.int32), X.data, points.y, nobody)

    def batches() -> Iterator[Batch]:
        order = Permuter(rng.next()).permutation(len(points)).astype(np.int32)
        yield replace(batch, order=order)

    return batches


def squares(D: Dataset) -> tuple[float, float]:
    """R2, the mean of |x|^2 over D (over a sample where rows are computed), 1 where that is 0; and
    |mean of x|^2, how far from zero the rows lie, 0 for sparse ones, most of whose values are zero.
    """
    if D.mapping is not None and D.n > SAMPLE:
        return squares(D.only(D.mask(D.sample(Draw(0, 0), SAMPLE))))

    def of(shard: Shard) -> tuple[float, np.ndarray]:
        norms, total = 0.0, np.zeros(d)
        for chunk in D.chunks(shard):
            norms += float(squared_norms(chunk.X).sum())
            if d:
                total += np.ones(chunk.X.shape[0]) @ chunk.X
        return norms, total

    d = D.d if D.nnz > D.n * D.d / 2 else 0
    norms, total = 0.0, np.zeros(d)
    for part, part_total in D.map(of):
        norms += part
        total += part_total
    return norms / D.n or 1.0, float(np.square(total / D.n).sum())
