"""Scan D: advance the running decision values and find the rows that violate the KKT conditions.

One scan computes the violators, the primal objective P, the dual objective D and the offset b. The
queries of a scan are plain data, so other processes can run them on their shards. The reports of
consecutive shards add up with +, in any grouping to the same bits: numbers are summed at the end,
in the order of the shards.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np

import randsvm.svm._kkt_scan as _kkt_scan
from randsvm.arrays import sum_in_order
from randsvm.data.sampling import EVALUATION_DRAW, Draw, SmallestKeys
from randsvm.events import Notice, emit_once
from randsvm.kernels.expansion import Expansion
from randsvm.kernels.layouts import Layout, RowSizes
from randsvm.kernels.rounding import (
    SumError,
    addition_error,
    sum_error,
)
from randsvm.records import record
from randsvm.svm.certificate import (
    DUAL_SHARE,
    LOG_FAILURE,
    ResidualQuery,
    ResidualSums,
    Sharpened,
    Transcribed,
    change_of_solution,
    error_of_rows,
    proven,
)
from randsvm.svm.libsvm import remedy
from randsvm.svm.offset import Breakpoints, Window
from randsvm.svm.running_values import (
    NOTHING_ADDED,
    Added,
    RunningValues,
    ShardValues,
)
from randsvm.svm.solution import NO_STEP, Certificate, KernelSolution, ReducedMachine, Step
from randsvm.svm.tasks import Task
from randsvm.svm.working_set import (
    KEEP_NONE,
    Candidates,
    Collector,
    Side,
    interleaved,
    side_of,
)

# An evaluation computes some u in float64 if the bounds of float32 leave a gap above the one asked
# for. If the running values have missed that one, the limit is this multiple of their gap.
LOOSE_GAP = 1.05
# If more rows than this show rounding, only a sample of them is computed.
FEW_LOOSE = 4096
# A sample may raise P - D by at most this share of the room that the rest leaves below the gap
# asked for. A sample of more than the share MOST_DRAWN of the rows is not drawn: all are computed.
SAMPLED_ROOM, MOST_DRAWN = 0.75, 0.75
# All support vectors are computed if the error of D is above this share of the objectives: it makes
# the divisor of the gap smaller.
MAX_SHRUNK = 0.1
# A side with fewer violators than this share of the other side's gets its steepest rows instead.
# With BALANCED_SHARE = 1, a9a, checkerboard, twonorm and covtype (30,000 rows) take as many rounds,
# and 100,000 rows of covtype take 175 instead of 133 with one seed of three.
BALANCED_SHARE = 0.25
NOT_SOLVED = "LIBSVM reached its limit of iterations, a subproblem is not solved to the tolerance: "
# The time of a scan of fewer changes than this does not predict the time of a full scan.
MEASURABLE_CHANGES = 256


@record
class ScanResult:
    """V: candidates for the next working set, the number of all violators, and the certificate.

    groups: the candidates of each group of the task. The group with the steepest pair is the first,
    so that a working set with room for one pair takes that pair. changed: coefficients that the
    step changed. seconds: duration of the scan; full_scan_seconds: estimated duration of a scan
    from scratch. step: the step before the scan.
    """

    groups: tuple[Candidates, ...]
    certificate: Certificate
    changed: int = 0
    seconds: float = 0.0
    full_scan_seconds: float = 0.0
    step: Step = NO_STEP

    @property
    def count(self) -> int:
        return sum(group.count for group in self.groups)

    @property
    def max_violation(self) -> float:
        return max(group.max_violation for group in self.groups)

    @property
    def sides(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows that may rise and those that may fall, one row of each group in turn."""
        rising = interleaved(*(group.rising.rows for group in self.groups))
        return rising, interleaved(*(group.falling.rows for group in self.groups))


class Scan(RunningValues):
    """Scans of D for one problem.

    latest: the result of the last scan, and its tolerance; None: a step or an evaluation from
        scratch has changed u since
    draws: the number of evaluations that drew rows, or computed all of them, in float64
    """

    draws = 0
    latest: tuple[KernelSolution, ScanResult, float] | None = None

    def after(
        self, step: Step, collector: Collector, tolerance: float | None = None
    ) -> tuple[KernelSolution, ScanResult]:
        """Make the step, scan D, and return the solution with its b, and V.

        u advances by the coefficients that change, or is computed from scratch if that is cheaper.
        b minimises P. tolerance: of the KKT conditions; None: that of the problem.
        """
        if not step.ended:
            emit_once("iterations of LIBSVM", Notice(NOT_SOLVED + remedy(self.problem)))
        began = time.perf_counter()
        changed = self.make_step(step)
        advance_seconds = time.perf_counter() - began
        SV, V = self.find_violators(collector, tolerance)
        seconds = time.perf_counter() - began
        # A linear expansion is one vector, whatever the number of support vectors.
        is_linear = self.kernel_layout.kernel.linear
        ratio = 1.0 if is_linear else len(SV) / max(changed, MEASURABLE_CHANGES)
        return SV, replace(
            V,
            changed=changed,
            seconds=seconds,
            full_scan_seconds=ratio * advance_seconds + (seconds - advance_seconds),
            step=step,
        )

    def make_step(self, step: Step) -> int:
        """Make the step, and return the number of coefficients that change.

        u advances by these, or is computed from scratch if they are as many as all.
        """
        points = step.points
        assert points.beta is not None
        # u is between two solutions until the step is made. An exception, as that of a time limit,
        # may leave it there.
        was_settled, self.settled, self.latest = self.settled, False, None
        self.reduced = step.reduced
        self.set_coefficients(points.rows, step.beta)
        at = np.flatnonzero(step.beta != points.beta)
        if was_settled and len(at) < np.count_nonzero(self.beta):
            self.advance(points.X[at], step.beta[at] - points.beta[at])
        else:
            self.continue_from(self.beta)
        self.settled = True
        return len(at)

    def find_violators(
        self, collector: Collector, tolerance: float | None = None
    ) -> tuple[KernelSolution, ScanResult]:
        """Scan D without a step; return the current solution with its b, and V."""
        tolerance = self.problem.tolerance if tolerance is None else tolerance
        task = self.task
        primal, before, offsets, found = 0.0, task.group_offsets(self.b), [], []
        windows: list[Window] = []
        for k, group in enumerate(task.groups):
            offset = self._least_loss_offset(group, self.windows[k])
            windows.append(Window.around(offset, 4 * abs(offset - before[k]) + tolerance))
            candidates = self.ask(
                partial(violations, task=group, b=offset, tolerance=tolerance, collector=collector)
            )
            loss = sum_in_order(shard[0] for shard in candidates.sums)
            # For a nu task the two terms add up to a / 2 (b + tube) - a / 2 (b - tube) = a tube.
            primal += loss + group.coefficient_sum * offset
            found.append((group, candidates))
            offsets.append(offset)
        # The sums of beta u and of the linear terms are over all rows: each group, as here the last
        # one, has the same.
        _, norm, linear = map(sum_in_order, zip(*candidates.sums, strict=True))
        task, b = task.at(offsets)
        rows = self.support
        beta = self.beta[rows]
        slack = task.absolute_sum_slack(beta)
        if slack:
            # P is that of the best tube. But sum |beta| is below its bound. The multiplier of this
            # bound is the width of the tube, so the KKT conditions ask for the width 0.
            one_sum = task.without_absolute_sum()
            query = partial(violations, task=one_sum, b=b, tolerance=tolerance, collector=collector)
            found = [(one_sum, self.ask(query))]
        balanced = [self._with_both_sides(group, candidates) for group, candidates in found]
        self.task, self.b, self.slack, self.windows = task, b, slack, tuple(windows)
        certified = self.problem.positive_semidefinite
        certificate = Certificate(norm / 2 + primal, linear - norm / 2, certified, self.floor)
        weights = None if self.weights is None else self.weights[rows]
        solution = KernelSolution(
            rows, beta, b, self.problem, tube=task.tube, norm=norm, weights=weights
        )
        if self.reduced is not None:
            solution = replace(self.reduced, b=b, tube=task.tube, norm=norm)
            certificate = replace(certificate, dual=-math.inf)
        groups = sorted(balanced, key=lambda group: -group.max_violation)
        violators = ScanResult(tuple(groups), certificate)
        passes = self.passes_audit(violators.max_violation, certificate)
        if not passes and self.repeat_in_float64():
            return self.find_violators(collector, tolerance)
        self.latest = solution, violators, tolerance
        return solution, violators

    def _least_loss_offset(self, group: Task, window: Window) -> float:
        """Return the offset of a group that minimises P."""
        while True:
            breakpoints = self.ask(partial(breakpoints_of, task=group, window=window))
            most = self.total_weight * max(group.bounds)
            found = breakpoints.minimum(group.coefficient_sum, most)
            if not isinstance(found, Window):
                return found
            window = found

    def evaluations(
        self, solution: KernelSolution, gap: float | None = None
    ) -> Iterator[tuple[KernelSolution, ScanResult]]:
        """Yield the solution with the b of least P, and V with a proven certificate.

        Its bounds are those of the running values. A second certificate follows if these bounds
        leave a gap above the one asked for: u of the rows whose rounding shows, or of a sample of
        these, is computed in float64.

        gap: the gap that is asked for; None: that of the running values.
        """
        if math.isinf(self.added.total):
            # Values that were taken over have no known bound.
            self.return_to(solution)
            self.continue_from(self.beta)
            self.latest = None
        solution, V = self.examine(solution)
        running = V.certificate
        if not running.certified:
            yield solution, V
            return
        # Steps 2 to 4 of docs/certificate.md, with the bound E_i of the running values.
        query = self._query(solution)
        sums = self.ask(query, "evaluating")
        first = self._proven(solution, running, query, sums)
        yield solution, replace(V, certificate=first)
        # Float64 sums lower the bounds of rounding only. So they are of no use if these bounds add
        # little to the gap of the running values. A reduced machine has no gap here, because its D
        # is that of other coefficients.
        little_above = LOOSE_GAP * running.gap
        allowed_gap = little_above if gap is None or running.gap > gap else gap
        if not self._can_sharpen or (not query.primal_only and first.gap <= allowed_gap):
            return
        # Step 5: q of a sample, or 0.
        q = sample_of(ResidualSums.total(sums), first, allowed_gap)
        # The end of step 3: whether the error of D makes the divisor of the gap too small.
        largest = max(abs(first.primal), abs(first.dual))
        with_dual = q > 0 or query.primal_only or first.dual_error > MAX_SHRUNK * largest
        sums = self.ask(self._sharpened(solution, query, q, with_dual), "evaluating")
        sharp = self._proven(solution, running, query, sums, q)
        best = min(first, sharp, key=lambda one: (one.gap, one.primal + one.primal_error))
        yield solution, replace(V, certificate=best)

    def examine(self, solution: KernelSolution) -> tuple[KernelSolution, ScanResult]:
        """Return to a solution and scan D, unless that was the last scan; return it with its b,
        and V."""
        if self.latest is not None:
            found, V, tolerance = self.latest
            if found is solution and tolerance == self.problem.tolerance:
                return found, V
        self.return_to(solution)
        return self.find_violators(KEEP_NONE)

    @property
    def _can_sharpen(self) -> bool:
        """Return whether float64 sums from scratch have lower bounds than the running values."""
        kernel, is_float64 = self.kernel_layout.kernel, self.kernel_layout.dtype is np.float64
        # In float64, bounds of rbf follow from each row's own terms; those of other kernels gain
        # nothing.
        return not kernel.linear and (not is_float64 or kernel.name == "rbf")

    def _error(self, layout: Layout, added: Added) -> Callable[[RowSizes], SumError]:
        """Return the function of the sizes of rows that bounds the errors of their sums in a
        layout."""
        passes, centres, _, exact_centres, exact_total = added
        bound = partial(sum_error, passes=passes, rescaling=self._rescaling)
        # Step 1 of docs/certificate.md: the kernel is the symmetric part of precomputed values.
        other = self.problem.defects.asymmetry / 2 * (added.total + exact_total)
        if exact_centres:
            # Step 2 of docs/certificate.md: these terms go through all later additions, too.
            exact = layout.of_all_in_float64
            of_exact = bound(exact, exact.sizes, exact_centres + centres)
            other += of_exact.of(exact_total, exact_total)
        return partial(bound, layout, centres=centres, other=other)

    def _query(self, solution: KernelSolution) -> ResidualQuery:
        """Return the query for the residuals of the current coefficients."""
        layout, added = self.kernel_layout, self.added
        error = self._error(layout, added)(layout.sizes)
        task, primal_only = self._task_of_primal, not solution.within_bounds
        rescaling, shift = self._rescaling, self.problem.defects.shift
        return ResidualQuery(task, self.b, error, added.total, primal_only, rescaling, shift)

    @property
    def _rescaling(self) -> float:
        """The relative change of coefficients and b in the model file of nu-SVC, or 0.

        It scales them to the prescribed absolute sum.
        """
        size = self.task.absolute_sum
        if self.problem.task != "nu-svc" or not size:
            return 0.0
        return 2 * abs(math.fsum([size, *(-np.abs(self.beta[self.support])).tolist()])) / size

    @property
    def _task_of_primal(self) -> Task:
        """The task with a tube that P allows: that of a regression has no negative width."""
        task = self.task
        return task if task.one_sided or task.tube >= 0 else replace(task, tube=0.0)

    def _sharpened(
        self, solution: KernelSolution, query: ResidualQuery, q: float, with_dual: bool
    ) -> Sharpened:
        """Return the query with u in float64; q, with_dual: see Sharpened."""
        layout, beta = self.kernel_layout.in_float64, solution.beta
        X, added = self.rows(solution.rows).X, NOTHING_ADDED.after(beta)
        error = self._error(layout, added)(layout.sizes)
        running = self.kernel_layout
        own_error = partial(error_of_rows, layout=running, error=self._error(running, self.added))
        self.draws += 1
        draw = Draw(self.seed, EVALUATION_DRAW + self.draws)
        expansion = Expansion(layout, X, np.column_stack([beta, np.abs(beta)]))
        return Sharpened(query, own_error, expansion, added.total, error, draw, q, with_dual)

    def _proven(
        self,
        solution: KernelSolution,
        running: Certificate,
        query: ResidualQuery,
        sums: list[ResidualSums],
        q: float = 0.0,
    ) -> Certificate:
        """Return the certificate of the current coefficients; see `proven`."""
        of_shards = len(sums) + max(shard.stop - shard.start for shard in self.values.shards)
        # The linear term of D is one sum over all coefficients.
        additions = max(of_shards, len(solution.beta))
        layout, total = self.kernel_layout, ResidualSums.total(sums)
        return proven(query, total, additions, solution, running, self.labels, layout, q)

    def with_dual_of(self, solution: KernelSolution, evaluated: Certificate) -> Certificate:
        """Return the certificate with D of coefficients of the problem, from float64 sums."""
        beta, y = solution.beta, self.labels[solution.rows]
        (u, error), size = self.sums_of(solution), np.abs(beta)
        norm_error = float(size.sum()) * error + addition_error(len(beta), float(size @ np.abs(u)))
        norm_error += self.problem.defects.shift * float(beta @ beta)
        linear_size = float(size @ (np.abs(y) + self.task.epsilon))
        dual = self.task.linear(y, beta) - float(beta @ u) / 2
        rounding = norm_error / 2 + addition_error(len(beta), linear_size)
        most = evaluated.primal + evaluated.primal_error
        change = change_of_solution(self.task, solution, self.labels, self.kernel_layout, most)
        return evaluated.with_dual(dual, rounding + change)

    def transcript(self, solution: KernelSolution) -> np.ndarray:
        """Return u of all rows, bounds of its error, and which are sums in float64, (3, n)."""
        self.return_to(solution)
        query, sharp = self._query(solution), None
        if self._can_sharpen:
            sharp = self._sharpened(solution, query, 0.0, with_dual=False)
        return np.hstack(self.ask(Transcribed(query, sharp), "evaluating"))

    def sums_of(self, solution: KernelSolution) -> tuple[np.ndarray, float]:
        """Return u of the support vectors in float64, and a bound of its error."""
        points, beta = self.completed(solution).points, solution.beta
        assert points is not None
        layout, added = self.kernel_layout.in_float64, NOTHING_ADDED.after(beta)
        error = self._error(layout, added)(layout.sizes).of(added.total, added.total)
        # With a precomputed kernel the rows of the data have the values, and the centres do not.
        is_precomputed = layout.kernel.name == "precomputed"
        X = self.D.points(solution.rows).X if is_precomputed else points.X
        return Expansion(layout, points.X, beta).values(X), error

    def step_to(self, solution: KernelSolution | None) -> Step:
        """Return the step from the current coefficients to a solution, and leave u as it is.

        None: to coefficients 0.
        """
        then = np.zeros(self.D.n) if solution is None else solution.dense(self.D.n)
        rows = np.flatnonzero((self.beta != 0) | (then != 0))
        reduced = solution if isinstance(solution, ReducedMachine) else None
        return Step(replace(self.rows(rows), beta=self.beta[rows]), then[rows], reduced=reduced)

    def return_to(self, solution: KernelSolution) -> None:
        """Make the step to an earlier solution; see `make_step`."""
        is_reduced = self.reduced is not None or isinstance(solution, ReducedMachine)
        if is_reduced or not self.holds(solution):
            self.make_step(self.step_to(solution))

    def completed(self, SV: KernelSolution) -> KernelSolution:
        """Return the solution with the rows of its support vectors."""
        return replace(SV, points=self.rows(SV.rows)) if SV.points is None else SV

    def near_margin(self, distance: float) -> np.ndarray:
        """Return the support vectors and the rows at most `distance` beyond the margin, ascending;
        (m,) int64."""
        query = partial(ShardValues.near_margin, task=self.task, b=self.b, distance=distance)
        return np.concatenate(self.ask(query))

    def _with_both_sides(self, group: Task, found: Candidates) -> Candidates:
        """Return the candidates, with the steepest rows of a side that has few violators: if
        coefficients of one side rise, others of the other side have to fall."""
        rising, falling = len(found.rising.chosen.rows), len(found.falling.chosen.rows)
        most = max(rising, falling)
        if min(rising, falling) >= BALANCED_SHARE * most:
            return found
        name = "rising" if rising < falling else "falling"
        steepest = partial(most_violating, task=group, rise=rising < falling, keep=most)
        side = replace(getattr(found, name), chosen=self.ask(steepest))
        return replace(found, **{name: side})


def sample_of(sums: ResidualSums, proven: Certificate, allowed_gap: float) -> float:
    """Return the q of Sharpened with which the gap is at most the allowed one; 0: all rows whose
    residual may rise are computed in float64.

    A reduced machine, whose gap needs the D of other coefficients, has no sample. sums, proven:
    from the running values.
    """
    count, rise = sums.may_rise, sums.rise
    if math.isinf(proven.dual):
        return 0.0
    # The room that P - D without this rise leaves below the allowed gap.
    room = allowed_gap * max(abs(proven.primal), abs(proven.dual)) - (
        proven.largest_distance - rise
    )
    # Rows that are not drawn add T = q LOG_FAILURE to P - D. They add T / (2 DUAL_SHARE) to the
    # error of D, so the divisor of the gap is smaller by that, and the room by allowed_gap times
    # that: T (1 + allowed_gap / (2 DUAL_SHARE)) has to be within the room.
    q = SAMPLED_ROOM * room / (1 + allowed_gap / (2 * DUAL_SHARE)) / LOG_FAILURE
    if count > FEW_LOOSE and 0 < q < math.inf:
        # The sum of the probabilities w_i / q of step 5.
        drawn = (rise + DUAL_SHARE * sums.norm_error) / q
        if drawn <= MOST_DRAWN * count:
            return q
    return 0.0


# nu-SVC: if |w|^2 is below this share of (sum |beta|)^2 times the variance of the rows in feature
# space, only rounding separates the classes.
SEPARATING_SHARE = 1e-8


def least_norm(scan: Scan) -> float:
    """Return the |w|^2 of nu-SVC below which nothing but rounding separates the classes."""
    K = scan.gram(scan.audit).astype(np.float64)
    return SEPARATING_SHARE * scan.task.absolute_sum**2 * float(K.diagonal().mean() - K.mean())


def breakpoints_of(values: ShardValues, task: Task, window: Window) -> Breakpoints:
    """Return the breakpoints of P of a shard in a window."""
    y, box = values.y, box_parameters(task)
    at, jump = np.empty(2 * len(y)), np.empty(2 * len(y))
    slope, count, *outside = _kkt_scan.breakpoints(
        y, values.u, values.weights, *box, window.left, window.right, at, jump
    )
    return Breakpoints.of(window, slope, at[:count].copy(), jump[:count].copy(), *outside)


def box_parameters(task: Task) -> tuple[float, float, float, bool]:
    """Return the parameters of a task in the order of the compiled functions."""
    return *task.bounds, task.epsilon, task.one_sided


def violations(
    values: ShardValues, task: Task, b: float, tolerance: float, collector: Collector
) -> Candidates:
    """Return the violators of a shard with the offset b that the collector keeps, and the parts of
    P and D."""
    y, shard, box = values.y, values.shard, box_parameters(task)
    # Entry 0 of a side is its steepest row, or -1 if there is none; its violators follow.
    rise, fall = np.empty(len(y) + 1), np.empty(len(y) + 1)
    rising, falling = np.empty(len(y) + 1, np.int32), np.empty(len(y) + 1, np.int32)
    *sums, risers, fallers = _kkt_scan.violations(
        y, values.u, values.beta, values.weights, *box, b, tolerance, rising, rise, falling, fall
    )

    def side(places: np.ndarray, slope: np.ndarray, level: float) -> Side:
        rows = np.where(places < 0, np.int64(-1), places + np.int64(shard.start))
        weights = None if values.weights is None else values.weights[places]
        return side_of(collector, shard, rows, slope, level, weights)

    rises = side(rising[:risers], rise[:risers], b)
    falls = side(falling[:fallers], -fall[:fallers], -b)
    # Both counts include entry 0, which need not be a violator.
    return Candidates(risers + fallers - 2, rises, falls, [tuple(sums)])


def most_violating(values: ShardValues, task: Task, rise: bool, keep: int) -> SmallestKeys:
    """Return the `keep` rows of a shard with the steepest slope on one side, violators or not.

    rise: whether to return rows whose beta may rise; otherwise rows whose beta may fall.
    """
    y, weights = values.y, values.weights
    beta = np.clip(values.beta, *task.box(y, weights))
    up, down = task.slopes(y, values.u, beta, weights)
    keys = -up if rise else down
    rows = np.flatnonzero(np.isfinite(keys))
    return SmallestKeys.of(keep, rows + values.shard.start, keys[rows])
