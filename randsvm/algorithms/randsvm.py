"""Algorithm 1 of KBH07: RandSVM-1(D, k, r).

Kumar, Bhattacharyya, Hariharan, "A Randomized Algorithm for Large Scale Support Vector Learning",
NIPS 2007. Never mentions files, folds or progress bars.
"""

from __future__ import annotations

from collections.abc import Callable

from randsvm.collectors import Draws
from randsvm.dataset import Dataset
from randsvm.params import Params
from randsvm.scan import Starter, Violators, violators
from randsvm.solution import SV
from randsvm.solver import svmlearn


def randsvm(
    D: Dataset,
    r: int,
    stop: Callable[[SV, Violators], bool],
    params: Params,
    rng: Draws,
    watch: Callable[[SV, Violators], None],
    start: Starter,
) -> SV:
    """Solve a random subset S of r rows, scan D for violators V, solve SV + random violators R,
    until V is empty or `stop` says so (KBH07: |SV| >= k).

    Where n <= r, S is all of D: one LIBSVM solve and the scan that certifies it.
    """
    S, bound = start(D, r, params, rng)  # KBH07: a random subset of r rows, nothing bound
    SV = svmlearn(S, params, bound)
    V = violators(D, SV, outside=S, keep=SV.room(r), rng=rng)
    watch(SV, V)
    while V.count > 0 and not stop(SV, V):
        R = V.draw(SV.room(r))  # r - |SV| in KBH07
        active, bound = SV.split(r, R)  # KBH07: everything is active and bound is empty
        SV = svmlearn(active + R, params, bound)
        V = violators(D, SV, outside=active + R, keep=SV.room(r), rng=rng)
        watch(SV, V)
    return SV
