"""Decide from recorded numbers whether the rounds of a run end.

Knows nothing of how a round is made.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple


class StopReason(Enum):
    """Why a training ended. The value is the text that is printed, logged and written to models."""

    # The duality gap that was asked for is certified. Detail: that gap.
    GAP_REACHED = "gap <= {:g}"
    # KBH07's bound on the number of support vectors is reached. Details: the number, and k.
    SUPPORT_BOUND = "{} support vectors >= k = {}"
    # No row violates the KKT conditions by more than the tolerance.
    NO_VIOLATORS = "no violators"
    # No row violates the tightest tolerance, and yet the gap is above the one asked for.
    PRECISION_LIMIT = "limit of float64 precision"
    # Further rounds gain nothing in the dual objective, the violations or the gap. Detail: advice.
    NO_PROGRESS = "no progress ({})"
    # The optimum of -s nu-svc has rho <= 0.
    NO_MARGIN = "no margin at this nu"
    # --max-iterations rounds are done.
    ITERATION_LIMIT = "iteration limit"
    # --time-limit is over, or what it leaves is too short for another round.
    TIME_LIMIT = "time limit"
    # SGD has made all of its epochs.
    ALL_EPOCHS = "all epochs"
    # An epoch of SGD did not lower the loss of the held-out rows below its lowest value so far.
    HELD_OUT_LOSS = "the loss of the held-out rows stopped falling"
    # --update has read all rows.
    END_OF_DATA = "end of the data"
    # A signal came, or the cluster failed. Detail: the message of that error.
    INTERRUPTED = "{}"
    # The subtasks of one training ended for different reasons. Detail: a list of them. (The value
    # differs from that of INTERRUPTED, as members of an enum with equal values would be one.)
    SEVERAL = "{0}"


class Stopped(NamedTuple):
    """Why a training ended, with the details that the text of its reason has."""

    reason: StopReason
    details: tuple[float | str, ...] = ()

    def __str__(self) -> str:
        return self.reason.value.format(*self.details)


class Tighten:
    """The run continues with a tighter tolerance."""


# A round makes progress if it raises D by this factor of |D|, lowers the largest violation, or
# lowers the gap to this factor of the lowest one so far.
MIN_DUAL_GAIN = 1e-9
LOWER_GAP_FACTOR = 0.99
# A run ends after this number of rounds in a row without progress.
MAX_IDLE_ROUNDS = 5
# Where LIBSVM solves all rows at once, all rounds after the first together may take this number of
# iterations more than the first. Measured: a linear kernel on unscaled rows takes 14 millions.
MAX_FURTHER_ITERATIONS = 10_000_000
# `Tighten` multiplies the tolerance by this factor, down to what float64 can resolve.
TIGHTEN_FACTOR = 0.1
MIN_TOLERANCE = 1e-13
# With a gap the tolerance also tightens as soon as the violators are fewer than this share of a
# working set: otherwise rounds of few rows follow that hardly lower the gap. Measured, rounds and
# changed coefficients until a gap of 0.1%, without this and with it: arm of 8 joints (36,000 rows,
# C = 1, g = 0.5, epsilon 0.1) 129 and 96 rounds, 104,521 and 92,573 changes; Friedman's function
# (20,000 rows, epsilon 0.01) 227 and 186, 168,317 and 156,485; svmguide1 (C = 10, g = 0.01) 33 and
# 18, 17,766 and 13,647. Shares of 0.3 and 1 give nearly the same numbers.
FEW_VIOLATORS_SHARE = 0.5


@dataclass(frozen=True)
class Record:
    """The numbers of the rounds so far.

    tolerance: of the KKT conditions
    rounds: the number of rounds so far
    support_vectors, violators: their numbers after the last round
    violation: the smallest max_violation of all rounds at this tolerance
    gap: the gap between P of the newest solution and the highest D of any round; nan for a kernel
        without a certificate
    seconds_left: the time left for further rounds
    dual: the highest D of any round
    lowest_gap: the lowest gap so far; a gap replaces it only if below LOWER_GAP_FACTOR times it
    idle: the number of rounds in a row without progress at this tolerance
    whole: whether the last round solved all rows at once
    first_steps, further_steps: iterations of LIBSVM in the first round, and in all others
    """

    tolerance: float
    rounds: int = 0
    support_vectors: int = 0
    violators: int = 0
    violation: float = math.inf
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
        violation: float,
        gap: float,
        seconds_left: float,
        dual: float,
        whole: bool = False,
        steps: int = 0,
    ) -> Record:
        """Return the record after one more round.

        violation, dual, steps: values of that round alone; the others as in Record.
        """
        lower = gap < LOWER_GAP_FACTOR * self.lowest_gap
        gains = dual - self.dual > MIN_DUAL_GAIN * abs(dual)
        progress = lower or gains or violation < self.violation
        return Record(
            tolerance=self.tolerance,
            rounds=self.rounds + 1,
            support_vectors=support_vectors,
            violators=violators,
            violation=min(self.violation, violation),
            gap=gap,
            seconds_left=seconds_left,
            dual=max(self.dual, dual),
            lowest_gap=gap if lower else self.lowest_gap,
            idle=0 if progress else self.idle + 1,
            whole=whole,
            first_steps=self.first_steps if self.rounds else steps,
            further_steps=self.further_steps + steps if self.rounds else 0,
        )

    def tightened(self) -> Record:
        """Return this record with a tighter tolerance, at which no round has been made."""
        return replace(self, tolerance=self.tolerance * TIGHTEN_FACTOR, violation=math.inf, idle=0)


class RoundLimits(NamedTuple):
    """What ends the rounds of a run, beside the lack of violators or of progress.

    rows: of a working set
    advice: what the user may change if rounds make no progress
    gap: the gap that was asked for; None: no gap ends the run
    target: the gap of running values at which the closing evaluation is expected to find `gap`
    support_vectors: KBH07's bound k; None: there is no such bound
    rounds: the most rounds; None: any number
    least_norm: for -s nu-svc, the |w|^2 at which no machine is left; None: another task
    """

    rows: int
    advice: str
    gap: float | None = None
    target: float = 0.0
    support_vectors: int | None = None
    rounds: int | None = None
    least_norm: float | None = None


def decide(record: Record, limits: RoundLimits) -> Stopped | Tighten | None:
    """Return why the run ends after this round; None: it goes on."""
    gap, k = limits.gap, limits.support_vectors
    if k is not None and record.support_vectors >= k:
        return Stopped(StopReason.SUPPORT_BOUND, (record.support_vectors, k))
    if gap is not None and record.gap <= limits.target:
        return Stopped(StopReason.GAP_REACHED, (gap,))
    if limits.rounds is not None and record.rounds >= limits.rounds:
        return Stopped(StopReason.ITERATION_LIMIT)
    # Where classes overlap by more than the support vectors of a nu-SVC allow, D = -1/2 |w|^2 goes
    # to 0: LIBSVM divides by 0 and returns a machine of infinite C.
    if limits.least_norm is not None and -2 * record.dual <= limits.least_norm:
        return Stopped(StopReason.NO_MARGIN)
    if record.seconds_left <= 0:
        return Stopped(StopReason.TIME_LIMIT)
    # Only a tighter tolerance lowers a gap that is asked for and not reached without violators.
    may_tighten = gap is not None and record.tolerance * TIGHTEN_FACTOR >= MIN_TOLERANCE
    if not record.violators:
        return Tighten() if may_tighten else Stopped(StopReason.NO_VIOLATORS)
    # A round over all rows has no use for more violators.
    few = record.violators < FEW_VIOLATORS_SHARE * limits.rows and not record.whole
    if few and may_tighten:
        return Tighten()
    return _without_progress(record, may_tighten, limits.advice)


def _without_progress(record: Record, may_tighten: bool, advice: str) -> Stopped | Tighten | None:
    """Return what ends rounds without progress.

    A few rows near the tolerance may violate it in turn while the gap does not fall, so it is
    tightened first. A further round over all rows would repeat the one before. Such a run ends
    after one round without progress, or if its further rounds together took
    MAX_FURTHER_ITERATIONS more iterations of LIBSVM than the first one.
    """
    stopped = Stopped(StopReason.NO_PROGRESS, (advice,))
    if record.whole:
        slow = record.further_steps > MAX_FURTHER_ITERATIONS + record.first_steps
        return stopped if record.idle or slow else None
    if record.idle < MAX_IDLE_ROUNDS:
        return None
    return Tighten() if may_tighten else stopped
