"""What a scan asks of the running values of each shard, and what it reports.

Questions are plain data, so that they can be asked anywhere. Reports of consecutive shards add up
with +, and in any grouping to the same bits: sums of numbers are made at the end, in the order of
the shards.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import randsvm.svm._kkt_scan as _kkt_scan
from randsvm.data.sampling import Smallest
from randsvm.data.shard_executor import Shard
from randsvm.svm.collectors import Candidates, Collector, Seen, collected
from randsvm.svm.offset import Breakpoints, Window
from randsvm.svm.shard_values import ShardValues
from randsvm.svm.tasks import Task


@dataclass(frozen=True)
class Values:
    """u of the rows asked for, ascending; None: of all. Reports arrays, (m,) float64."""

    rows: np.ndarray | None = None

    def __call__(self, values: ShardValues) -> list[np.ndarray]:
        if self.rows is None:
            return [values.u.copy()]
        shard = values.shard
        return [values.u[self.rows[shard.within(self.rows)] - shard.start]]


@dataclass(frozen=True)
class Totals:
    """What is known before b is. norm: sum beta u, linear: see Task.linear, of each shard."""

    norm: list[float]
    linear: list[float]
    breakpoints: Breakpoints

    def __add__(self, other: Totals) -> Totals:
        return Totals(
            self.norm + other.norm, self.linear + other.linear, self.breakpoints + other.breakpoints
        )


@dataclass(frozen=True)
class Sums:
    """Everything that P and D are made of but the losses, and the bends of P inside of a window.
    task: or a group of it, as of all questions."""

    task: Task
    window: Window

    def __call__(self, values: ShardValues) -> Totals:
        return totals(self.task, values.y, values.u, values.beta, self.window)


def totals(task: Task, y: np.ndarray, u: np.ndarray, beta: np.ndarray, window: Window) -> Totals:
    """Of any rows; y, u, beta : (m,) float64."""
    at, jump = np.empty(2 * len(y)), np.empty(2 * len(y))
    norm, linear, slope, count, before, behind = _kkt_scan.sums(
        y, u, beta, *box(task), window.left, window.right, at, jump
    )
    inside = at[:count].copy(), jump[:count].copy()
    breakpoints = Breakpoints.of(window, task.bounds, slope, *inside, (before, behind))
    return Totals([norm], [linear], breakpoints)


def box(task: Task) -> tuple[float, float, float, bool]:
    """As the compiled looks have it."""
    return *task.bounds, task.epsilon, task.one_sided


@dataclass(frozen=True)
class Found:
    """What is known once b is. loss: of each shard."""

    loss: list[float]
    candidates: Candidates

    def __add__(self, other: Found) -> Found:
        return Found(self.loss + other.loss, self.candidates + other.candidates)


@dataclass(frozen=True)
class Findings:
    """The losses with the offset b, and the violators that the collector keeps."""

    task: Task
    b: float
    tolerance: float
    collector: Collector

    def __call__(self, values: ShardValues) -> Found:
        y, u, beta, shard = values.y, values.u, values.beta, values.shard
        rise, fall = np.empty(len(y) + 1), np.empty(len(y) + 1)
        rising: np.ndarray = np.empty(len(y) + 1, np.int32)
        falling: np.ndarray = np.empty(len(y) + 1, np.int32)
        loss, _, risers, fallers = _kkt_scan.violations(
            y, u, beta, *box(self.task), self.b, self.tolerance, rising, rise, falling, fall
        )
        rows = _numbers(rising[:risers], shard)
        up = Seen(shard.start, shard.stop, rows, rise[:risers], self.b)
        rows = _numbers(falling[:fallers], shard)
        down = Seen(shard.start, shard.stop, rows, -fall[:fallers], -self.b)
        return Found([loss], collected(self.collector, up, down))


def _numbers(places: np.ndarray, shard: Shard) -> np.ndarray:
    """Row numbers of places in a shard; -1, for none, stays. (m,) int64."""
    return np.where(places < 0, np.int64(-1), places + np.int64(shard.start))


@dataclass(frozen=True)
class SteepestRows:
    """The rows that may rise, or fall, with the steepest slopes, violators or not."""

    task: Task
    rise: bool
    keep: int

    def __call__(self, values: ShardValues) -> Smallest:
        beta = np.clip(values.beta, *self.task.box(values.y))
        up, down = self.task.slopes(values.y, values.u, beta)
        keys = -up if self.rise else down
        rows = np.flatnonzero(np.isfinite(keys))
        return Smallest.of(self.keep, rows + values.shard.start, keys[rows])
