"""Stop rules: each is asked after a scan and answers with its reason, or with nothing.

Knows nothing of how rounds are made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from randsvm.scan import Violators
from randsvm.solution import SV

Rule = Callable[[SV, Violators], str]

NO_VIOLATORS = "no violators"


def support_bound(k: int) -> Rule:
    """|SV| >= k, KBH07's Algorithm 1."""

    def rule(SV: SV, V: Violators) -> str:
        return f"{len(SV)} support vectors >= k = {k}" if len(SV) >= k else ""

    return rule


@dataclass
class Stop:
    """The rules of a run, in order; remembers the reason of the first that answered."""

    rules: list[Rule]
    reason: str = field(default=NO_VIOLATORS, init=False)

    def __call__(self, SV: SV, V: Violators) -> bool:
        for rule in self.rules:
            if reason := rule(SV, V):
                self.reason = reason
                return True
        return False
