"""Stop rules: each is a pure function of numbers recorded of the rounds so far.

A rule answers with nothing, with `End`, or with `Sharpen`; whoever asks acts on it. Knows
nothing of how rounds are made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

NO_VIOLATORS = "no violators"
TIME_LIMIT = "time limit"
ITERATION_LIMIT = "iteration limit"
NO_PROGRESS = "no progress"

# A round that gains less than this of D, relatively, and has as many violators as before, is no
# progress; so many in a row are too many.
LEAST_GAIN = 1e-7
MOST_IDLE = 2
# What the tolerance of solves is multiplied by when rounds make no progress.
PRECISION = 0.1


@dataclass(frozen=True)
class Record:
    """What the rules know.

    rounds: how many there were. support_vectors: of the last; room: rows that the next working set
    has for violators. gap: of the best solution so far, nan where nothing is certified.
    seconds_left: for further rounds. dual: the highest, violators: the fewest of any round. idle:
    rounds in a row without progress since the last sharpening; sharpened: whether there was one.
    """

    rounds: int = 0
    support_vectors: int = 0
    room: int = 0
    gap: float = math.nan
    seconds_left: float = math.inf
    dual: float = -math.inf
    violators: float = math.inf
    idle: int = 0
    sharpened: bool = False

    def after(
        self,
        *,
        support_vectors: int,
        room: int,
        gap: float,
        seconds_left: float,
        dual: float,
        violators: int,
    ) -> Record:
        """The record after one more round; dual, violators: of that round."""
        moved = dual - self.dual > LEAST_GAIN * abs(dual) or violators < self.violators
        return Record(
            rounds=self.rounds + 1,
            support_vectors=support_vectors,
            room=room,
            gap=gap,
            seconds_left=seconds_left,
            dual=max(self.dual, dual),
            violators=min(self.violators, violators),
            idle=0 if moved else self.idle + 1,
            sharpened=self.sharpened,
        )

    def after_sharpening(self) -> Record:
        return replace(self, idle=0, sharpened=True)


@dataclass(frozen=True)
class End:
    """The run ends, for this reason."""

    reason: str


@dataclass(frozen=True)
class Sharpen:
    """Further solves take this factor on their tolerance."""

    precision: float


Answer = End | Sharpen | None
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


def working_set_full(record: Record) -> Answer:
    """There is no room left for a violator beside the support vectors."""
    count = record.support_vectors
    return None if record.room else End(f"working set full with {count} support vectors")


def gap_reached(gap: float) -> Rule:
    def rule(record: Record) -> Answer:
        return End(f"gap <= {gap:g}") if record.gap <= gap else None

    return rule


def iterations(most: int) -> Rule:
    def rule(record: Record) -> Answer:
        return End(ITERATION_LIMIT) if record.rounds >= most else None

    return rule


def time_limit(record: Record) -> Answer:
    return End(TIME_LIMIT) if record.seconds_left <= 0 else None


def no_progress(record: Record) -> Answer:
    """Rounds without progress: solve more precisely once, then give up."""
    if record.idle < MOST_IDLE:
        return None
    return End(NO_PROGRESS) if record.sharpened else Sharpen(PRECISION)
