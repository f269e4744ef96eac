"""Stop rules: each is asked after a scan and answers with its reason, or with nothing.

Also remembers the best solution so far. Knows nothing of how rounds are made.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from randsvm.svm.scan import Certificate, Violators
from randsvm.svm.solution import SV
from randsvm.svm.working_set import WorkingSet

Rule = Callable[[SV, Violators], str]

NO_VIOLATORS = "no violators"
TIME_LIMIT = "time limit"
ITERATION_LIMIT = "iteration limit"

# A round that gains less than this of D, relatively, and has as many violators as before, is no
# progress.
LEAST_GAIN = 1e-7


@dataclass
class Best:
    """The solution of lowest P and the highest D of any round: P - D bounds that solution's
    distance from the optimum. P is not monotone."""

    dual: float = float("-inf")
    certified: bool = True
    # In one piece: a signal may strike between any two assignments.
    found: tuple[SV, float] | None = None

    def see(self, SV: SV, V: Violators) -> None:
        certificate = V.certificate
        self.dual = max(self.dual, certificate.dual)
        self.certified = certificate.certified
        # A kernel without a certificate: P is no guide, the newest solution is the best.
        if certificate.primal <= self.primal or not certificate.certified:
            self.found = SV, certificate.primal

    @property
    def solution(self) -> SV | None:
        return self.found[0] if self.found else None

    @property
    def primal(self) -> float:
        return self.found[1] if self.found else float("inf")

    @property
    def certificate(self) -> Certificate:
        return Certificate(self.primal, self.dual, self.certified)


def support_bound(k: int) -> Rule:
    """|SV| >= k, KBH07's Algorithm 1."""

    def rule(SV: SV, V: Violators) -> str:
        return f"{len(SV)} support vectors >= k = {k}" if len(SV) >= k else ""

    return rule


def working_set_full(W: WorkingSet) -> Rule:
    """There is no room left for a violator beside the support vectors."""

    def rule(SV: SV, V: Violators) -> str:
        return "" if W.room(SV) else f"working set full with {len(SV)} support vectors"

    return rule


def gap_reached(best: Best, gap: float) -> Rule:
    def rule(SV: SV, V: Violators) -> str:
        return f"gap <= {gap:g}" if best.certificate.gap <= gap else ""

    return rule


def iterations(most: int) -> Rule:
    seen = 0

    def rule(SV: SV, V: Violators) -> str:
        nonlocal seen
        seen += 1
        return ITERATION_LIMIT if seen >= most else ""

    return rule


def time_limit(ends: Callable[[], float]) -> Rule:
    """ends(): the perf_counter() at which no further round may begin."""

    def rule(SV: SV, V: Violators) -> str:
        return TIME_LIMIT if time.perf_counter() >= ends() else ""

    return rule


# The answer of a rule that asks for more precise solves instead of the end of the run.
SOLVE_MORE_PRECISELY = "solve more precisely"
PRECISION = 0.1


def no_progress() -> Rule:
    """Two rounds without progress: solve more precisely once, then give up."""
    dual, count, idle, sharpened = float("-inf"), math.inf, 0, False

    def rule(SV: SV, V: Violators) -> str:
        nonlocal dual, count, idle, sharpened
        gain = V.certificate.dual - dual
        moved = gain > LEAST_GAIN * abs(V.certificate.dual) or V.count < count
        idle = 0 if moved else idle + 1
        dual, count = max(dual, V.certificate.dual), min(count, V.count)
        if idle < 2:
            return ""
        if sharpened:
            return "no progress"
        idle, sharpened = 0, True
        return SOLVE_MORE_PRECISELY

    return rule


@dataclass
class Stop:
    """The rules of a run, in order; remembers the reason of the first that answered. precision:
    factor on the tolerance of the solves from here on."""

    rules: list[Rule]
    reason: str = field(default=NO_VIOLATORS, init=False)
    precision: float = field(default=1.0, init=False)

    def __call__(self, SV: SV, V: Violators) -> bool:
        # Every rule is asked every time: some count.
        answers = [answer for rule in self.rules if (answer := rule(SV, V))]
        if SOLVE_MORE_PRECISELY in answers:
            self.precision = PRECISION
            answers.remove(SOLVE_MORE_PRECISELY)
        if answers:
            self.reason = answers[0]
        return bool(answers)
