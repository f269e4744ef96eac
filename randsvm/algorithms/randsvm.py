"""Algorithm 1 of KBH07, RandSVM-1(D, k, r), over working sets of any rows.

Kumar, Bhattacharyya, Hariharan, "A Randomized Algorithm for Large Scale Support Vector Learning",
NIPS 2007. Never mentions files, folds or progress bars.

As printed, alpha is 0 outside of the working set, which therefore holds every support vector
(Choice.kbh07; -k and its kin ask for it). Without that, what is outside is frozen wherever it
stands, and the working set has a fixed size whatever the data.

The default r = 1.5 k of the printed rule (RandsvmParams.EXCESS) is measured: r - |SV| violators
enter a round, so a small excess over k makes many rounds, while LIBSVM's time grows with r squared.
"""

from __future__ import annotations

from collections.abc import Callable

from randsvm.data.sampling import Draws
from randsvm.svm.scan import Scan, Starter, Stop, Violators
from randsvm.svm.solution import SV
from randsvm.svm.subproblem import svmlearn
from randsvm.svm.working_set import Choice


def randsvm(
    scan: Scan,
    choice: Choice,
    stop: Stop,
    rng: Draws,
    watch: Callable[[SV, Violators], None],
    start: Starter,
) -> SV:
    """Solve a random subset S of r rows, scan D for violators V, solve SV + violators R, until V
    is empty or `stop` says so (KBH07: |SV| >= k).

    Where n <= r, S is all of D.
    """
    step, W = start(scan, choice, rng)  # KBH07: a random subset S of r rows, solved
    SV, V = scan.after(step, choice.collector(rng.next()), stop.tolerance)
    watch(SV, V)
    while not stop(SV, V):  # KBH07: V is empty, or |SV| >= k
        W = choice.next(W, SV, V.candidates)  # KBH07: SV and r - |SV| of V, drawn at random
        step = svmlearn(scan.points(W.rows), scan.problem, scan.space, stop.tolerance)
        SV, V = scan.after(step, choice.collector(rng.next()), stop.tolerance)
        watch(SV, V)
    return SV
