"""Stop rules: each is a pure function of numbers recorded of the rounds so far.

A rule answers with nothing, with `End`, or with `Tighten`; whoever asks acts on it. Knows
nothing of how rounds are made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

NO_VIOLATORS = "no violators"
# The same where a gap was asked for and is not reached.
NO_DIGITS = "float64 carries no further"
TIME_LIMIT = "time limit"
ITERATION_LIMIT = "iteration limit"
NO_PROGRESS = "no progress: scale the features"
NO_MARGIN = "no margin at this nu"

# A round is no progress if it gains less than LEAST_GAIN of D, relatively, comes no nearer to the
# KKT conditions, and leaves the gap above this share of the lowest; so many in a row are too many.
LEAST_GAIN = 1e-9
LOWER = 0.99
MOST_IDLE = 5
# Iterations of LIBSVM for a better answer where it solved all rows at once, beside those of its
# first one, which may be as many. Measured: a linear kernel on unscaled rows takes 14 millions.
MOST_STEPS = 10_000_000
# By what the tolerance becomes tighter where it has to, and what float64 carries at the most.
TIGHTER = 0.1
LEAST_TOLERANCE = 1e-13


@dataclass(frozen=True)
class Record:
    """What the rules know.

    rounds: how many there were. support_vectors, violators: of the last. steepest: by how much the
    KKT conditions were violated at the least. tolerance: of the KKT conditions. gap: of the best
    solution so far, nan where nothing is certified. seconds_left: for further rounds. dual: the
    highest of any round. lowest_gap: so far, but for less than LOWER. idle: rounds in a row
    without progress at this tolerance. whole: whether the last round solved all rows at once.
    first_steps, further_steps: iterations of LIBSVM in the first round, and in all others.
    """

    tolerance: float
    rounds: int = 0
    support_vectors: int = 0
    violators: int = 0
    steepest: float = math.inf
    gap: float = math.nan
    seconds_left: float = math.inf
    dual: float = -math.inf
    lowest_gap: float = math.inf
    idle: int = 0
    whole: bool = False
    first_steps: int = 0
    further_steps: int = 0

    def after(
        self,
        *,
        support_vectors: int,
        violators: int,
        steepest: float,
        gap: float,
        seconds_left: float,
        dual: float,
        whole: bool = False,
        steps: int = 0,
    ) -> Record:
        """The record after one more round; steepest, dual: of that round."""
        lower = gap < LOWER * self.lowest_gap
        gains = dual - self.dual > LEAST_GAIN * abs(dual)
        moved = lower or gains or steepest < self.steepest
        return Record(
            tolerance=self.tolerance,
            rounds=self.rounds + 1,
            support_vectors=support_vectors,
            violators=violators,
            steepest=min(self.steepest, steepest),
            gap=gap,
            seconds_left=seconds_left,
            dual=max(self.dual, dual),
            lowest_gap=gap if lower else self.lowest_gap,
            idle=0 if moved else self.idle + 1,
            whole=whole,
            first_steps=self.first_steps if self.rounds else steps,
            further_steps=self.further_steps + steps if self.rounds else 0,
        )

    def tightened(self) -> Record:
        return replace(self, tolerance=self.tolerance * TIGHTER, steepest=math.inf, idle=0)


class End(NamedTuple):
    """The run ends, for this reason."""

    reason: str


class Tighten:
    """The run goes on with a tighter tolerance."""


Answer = End | Tighten | None
Rule = Callable[[Record], Answer]


def first_answer(rules: Iterable[Rule], record: Record) -> Answer:
    """Of the first rule that has one."""
    answers = (rule(record) for rule in rules)
    return next((answer for answer in answers if answer is not None), None)


def support_bound(k: int) -> Rule:
    """|SV| >= k, KBH07's Algorithm 1."""

    def rule(record: Record) -> Answer:
        count = record.support_vectors
        return End(f"{count} support vectors >= k = {k}") if count >= k else None

    return rule


def reached(gap: float) -> str:
    return f"gap <= {gap:g}"


def gap_reached(gap: float, aim: float) -> Rule:
    """aim: the gap of running values at which that of the closing evaluation will be `gap`."""

    def rule(record: Record) -> Answer:
        return End(reached(gap)) if record.gap <= aim else None

    return rule


def iterations(most: int) -> Rule:
    def rule(record: Record) -> Answer:
        return End(ITERATION_LIMIT) if record.rounds >= most else None

    return rule


def no_margin(least_norm: float) -> Rule:
    """D = -1/2 |w|^2 of -s nu-svc has come so near to 0 that no machine is left: with fewer
    support vectors than classes overlap by, LIBSVM divides by 0 and has one of infinite C."""

    def rule(record: Record) -> Answer:
        return End(NO_MARGIN) if -2 * record.dual <= least_norm else None

    return rule


def time_limit(record: Record) -> Answer:
    return End(TIME_LIMIT) if record.seconds_left <= 0 else None


def no_violators(wants_gap: bool) -> Rule:
    """V = 0. wants_gap: a gap was asked for and is not reached (else another rule had ended the
    run): only a tighter tolerance can bring it, as far as float64 carries."""

    def rule(record: Record) -> Answer:
        return None if record.violators else _tighter(record, wants_gap, NO_VIOLATORS)

    return rule


def no_progress(wants_gap: bool) -> Rule:
    """Return the rule that ends rounds without progress: D stands still where solves cannot be more
    precise.

    wants_gap: as of no_violators; a few rows near the tolerance may violate it in turn and leave
    the gap as it is. A round over all rows would only be repeated, and such rounds together take
    about as many iterations of LIBSVM as it may take for the first one.
    """

    def rule(record: Record) -> Answer:
        if record.whole:
            slow = record.further_steps > MOST_STEPS + record.first_steps
            return End(NO_PROGRESS) if record.idle or slow else None
        return _tighter(record, wants_gap, NO_PROGRESS) if record.idle >= MOST_IDLE else None

    return rule


def _tighter(record: Record, wants_gap: bool, reason: str) -> Answer:
    carries = record.tolerance * TIGHTER >= LEAST_TOLERANCE
    return Tighten() if wants_gap and carries else End(reason)
