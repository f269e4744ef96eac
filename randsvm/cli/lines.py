"""The lines about events on standard error, and the results on standard output."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from randsvm.events import (
    PERCENT_SCORES,
    Certified,
    ClassificationMetrics,
    Epoch,
    Explained,
    Exported,
    Iteration,
    Notice,
    Point,
    Predicted,
    RegressionMetrics,
    Searched,
    Started,
    Trained,
    Tried,
    Updated,
)
from randsvm.parameters.option import format_size

# A search prints this many combinations, the best ones, and the simplest within one standard error.
SHOWN_COMBINATIONS = 10

# ---- training ----------------------------------------------------------------------------------


def started(event: Started) -> Iterable[str]:
    if event.n is None:
        return
    sizes = (event.n, "row"), (event.d or 0, "feature"), (event.nnz or 0, "nonzero")
    yield f"read {', '.join(counted(*size) for size in sizes)} in {event.seconds:.2f} s"
    if event.C is not None:
        yield f"C = {event.C:g}, lambda = {event.lambda_:g}"
    if event.place != "memory":
        yield f"each pass reads {format_size(event.pass_bytes or 0)} from {event.place}"


def iteration(event: Iteration) -> Iterable[str]:
    """Return the line of a round, within 80 columns."""
    gap = "-" if math.isnan(event.gap) else in_percent(event.gap)
    head = f"{event.number:4d} {event.seconds:8.2f} s"
    counts = f"|V| {_count(event.violators):>6}  |SV| {_count(event.support_vectors):>6}"
    if event.machine:
        name = event.machine.replace(" / ", " vs ")
        name = name if len(name) <= 20 else name[:17] + "..."
        yield f"{head}  {name}: gap {gap:>8}  {counts}"
        return
    size = _count(event.working_set)
    yield f"{head}  gap {gap:>8}  P {event.primal:<11.6g} {counts}  B {size:>5}"


def epoch(event: Epoch) -> Iterable[str]:
    if event.number in (1, 2, 5) or event.number % 10 == 0:
        held_out = "" if event.held_out is None else f"  held-out loss {event.held_out:.6f}"
        loss = _progressive(event.loss, event.errors)
        yield f"epoch {event.number:3d}  {event.seconds:7.2f} s  {loss}{held_out}"


def updated(event: Updated) -> Iterable[str]:
    loss = _progressive(event.loss, event.errors)
    rows = counted(event.rows, "row")
    yield f"{event.seconds:7.2f} s  {rows}  of the last {event.last:,}: {loss}"


def trained(event: Trained) -> Iterable[str]:
    nouns = {"iteration": event.iterations, "step": event.steps, "pass": event.passes}
    nouns["Newton step"] = event.newton_steps
    work = " and ".join(counted(count, noun) for noun, count in nouns.items() if count) or "no step"
    in_all = "" if event.largest_gap is None else " in all"
    # The error message names an interruption.
    reason = "" if event.stopped.startswith("interrupted") else f": {event.stopped}"
    yield f"stopped{reason} after {work}{in_all}, {event.seconds:.2f} s"
    facts = []
    if event.support_vectors is not None:
        facts.append(f"{counted(event.support_vectors, 'support vector')} ({event.bounded:,} at C)")
    if event.nonzero_weights is not None:
        facts.append(f"{counted(event.nonzero_weights, 'feature')} used")
    if event.violators is not None:
        facts.append(counted(event.violators, "violator"))
    if event.error is not None:
        facts.append(f"training error {event.error:.3%}")
    if event.squared_error is not None:
        facts.append(f"mean squared error {event.squared_error:.6g}")
    if event.primal is None and event.progressive_loss is not None:
        facts.append(_progressive(event.progressive_loss, event.progressive_errors))
    facts = facts or ["not evaluated"]
    yield f"{event.model}{'' if event.saved else ' (not written)'}: {', '.join(facts)}"
    if event.primal is not None:
        yield f"{_objectives(event)}  J = P/(C n) = {event.J:.6g}"
    if event.evaluated is False:
        yield "not certified: the run ended before its closing evaluation"
    elif event.certificate == "sampled":
        yield "the gap holds with a probability of at least 1 - 1e-9 (sampled rounding)"
    if event.reduced is not None:
        found = event.reduced
        yield (
            f"reduced from {found.support_vectors_before:,} support vectors (gap "
            f"{in_percent(found.full_gap)}): P is of the reduced model, D of the full one"
        )
        yield (
            f"f changes by {found.largest_change:.3g} at most, {found.mean_change:.3g} on "
            f"average; {found.labels_changed:,} training labels change"
        )
    if event.largest_gap is not None and not math.isnan(event.gap):
        yield f"largest gap of one problem: {in_percent(event.largest_gap)}"


def missed_gap(event: Trained) -> str | None:
    """Return the line about a gap that was asked for and not reached, or None."""
    asked = event.gap_asked
    if asked is None or not event.gap > asked:
        return None
    reached = f"{100 * event.gap:.3g}% is certified"
    if math.isinf(event.gap):
        reached = "nothing is certified (rounding exceeds P and D)"
    return f"GAP NOT REACHED: {reached}, --gap {asked:g} asked for {100 * asked:.3g}%"


def point(event: Point) -> Iterable[str]:
    """Return the line of a value of C on a path, within 80 columns."""
    head = f"C {event.C:<9.4g} {event.seconds:7.2f} s  gap {in_percent(event.gap):>8}"
    features, score = event.nonzero_weights, f"error {event.error or 0.0:.3%}"
    used = "" if features is None else f"{_count(features):>8} features"
    if event.squared_error is not None:
        score = f"mean squared error {event.squared_error:.6g}"
    if event.cross_validation is not None:
        score = event.cross_validation.named_score
    yield f"{head}  P {event.primal:<10.6g}{used}  {score}"


# ---- searches ----------------------------------------------------------------------------------


def tried(event: Tried) -> Iterable[str]:
    known = "  (from the log)" if event.resumed else ""
    span = f" ({min(event.scores):.4g} to {max(event.scores):.4g})" * (len(event.scores) > 1)
    words = "  ".join([*event.named_values, f"{event.named_score}{span}, {_extent(event)}"])
    yield f"{event.number:4d} of {event.of}  {words}{known}"


def searched(event: Searched) -> Iterable[str]:
    if event.of == 1:
        return
    yield (
        f"tried {len(event.tried)} of {event.of} combinations in {event.seconds:.2f} s; "
        "score +- standard error, best first:"
    )
    shown = [
        one
        for place, one in enumerate(event.tried)
        if place < SHOWN_COMBINATIONS or one.values == event.one_standard_error
    ]
    rows = []
    for one in shown:
        error = "" if math.isnan(one.standard_error) else f"+- {one.standard_error:.2g}"
        rows.append([*one.named_values, one.named_score, error])
    for one, line in zip(shown, _table(rows), strict=True):
        is_simplest = one.values == event.one_standard_error
        remark = "; simplest within one standard error of the best" if is_simplest else ""
        yield f"  {line}  {_extent(one)}{remark}"
    if len(shown) < len(event.tried):
        yield f"  and {len(event.tried) - len(shown)} more, which --log lists"
    yield f"training on all rows with {'  '.join(event.tried[0].named_values)}"


def cross_validated(event: Searched) -> Iterable[str]:
    """Return svm-train's lines of a cross-validation."""
    best = event.tried[0]
    name, unit = best.score_name, "%" if best.score_name in PERCENT_SCORES else ""
    yield f"Cross Validation {name[:1].upper()}{name[1:]} = {best.score:g}{unit}"
    if "squared_correlation" in best.details:
        correlation = best.details["squared_correlation"]
        yield f"Cross Validation Squared correlation coefficient = {correlation:g}"


# ---- prediction --------------------------------------------------------------------------------


def predicted(event: Predicted) -> Iterable[str]:
    yield f"predicted {counted(event.rows, 'row')} in {event.seconds:.2f} s"
    if event.labelled == 0:
        yield "no labelled rows: no score"


def scores(event: Predicted) -> Iterable[str]:
    """Return svm-predict's lines, which scripts read, and those of --metrics."""
    if event.noise_scale is not None:
        yield "Prob. model for test data: target value = predicted value + z,"
        yield f"z: Laplace distribution e^(-|z|/sigma)/(2sigma),sigma={event.noise_scale:g}"
    if event.labelled == 0:
        return
    size = "intervals of width {:g}"
    if event.accuracy is not None and event.correct is not None:
        size = "{:g} labels per set"
        # `correct` and `labelled` count rows, the accuracy their weights.
        share = 100 * event.correct / event.labelled
        counts = f" ({event.correct}/{event.labelled})" * math.isclose(event.accuracy, share)
        yield f"Accuracy = {event.accuracy:g}%{counts} (classification)"
    else:
        yield f"Mean squared error = {event.squared_error:g} (regression)"
        yield f"Squared correlation coefficient = {event.squared_correlation:g} (regression)"
    found = event.coverage
    if found is not None:
        yield f"Coverage = {found.found:.4%} ({found.asked:g} asked), {size.format(found.size)}"
    if isinstance(event.metrics, RegressionMetrics):
        yield f"Mean absolute error = {event.metrics.mean_absolute_error:g}"
        yield f"Coefficient of determination = {event.metrics.determination:g}"
    elif event.metrics is not None:
        yield from _metrics(event.metrics)


def _metrics(found: ClassificationMetrics) -> Iterable[str]:
    columns = [found.labels, *zip(*found.confusion, strict=True)]
    header = ["true \\ predicted", *found.labels[: len(columns) - 1]]
    yield from _table([header, *map(list, zip(*columns, strict=True))])
    has_areas = found.mean.average_precision is not None
    rows = [["label", "precision", "recall", "F1", *["PR AUC"] * has_areas, "rows"]]
    for one in [*found.classes, found.mean]:
        shares = one.precision, one.recall, one.f1, *[one.average_precision] * has_areas
        rows.append([one.label, *(f"{share:.4f}" for share in shares), str(one.rows)])
    yield from _table(rows)
    if found.auc is not None:
        yield f"ROC AUC = {found.auc:.6f}"
    if found.probabilities is not None:
        yield f"Log loss = {found.probabilities.log_loss:.6f}"
        yield f"Brier score = {found.probabilities.brier:.6f}"


def certified(event: Certified) -> Iterable[str]:
    machine = "linear"
    if event.support_vectors is not None:
        machine = f"{event.support_vectors:,} support vectors"
    yield (
        f"{event.model}: {machine}; P and D with "
        f"{event.problem} over {event.rows:,} rows in {event.seconds:.2f} s"
    )
    if event.unknown_support_vectors:
        unknown = f"{event.unknown_support_vectors:,} support vectors"
        yield f"{unknown} are not among the rows of the training file"
    if not event.feasible:
        yield (
            f"the coefficients are infeasible (up to {event.beyond_bounds:.3g} beyond their "
            f"bounds, sum off by {event.sum_error:.3g}): D is that of feasible ones near them"
        )
    if event.largest_gap is not None:
        worst = max(event.machines, key=lambda one: (math.isnan(one.gap), one.gap))
        yield f"largest gap of one problem: {in_percent(worst.gap)} ({worst.name})"


def verdict(event: Certified) -> str:
    """Return in words what the numbers prove."""
    if not math.isfinite(event.gap):
        return "nothing is proven: no lower bound of the optimum is known"
    claimed = event.claimed_gap
    if claimed is None:
        proven = f"the optimum is at most {in_percent(event.gap)} below P"
        return f"proven: {proven}; the model claims no gap for these options"
    words = {
        "verified": "holds",
        "verified up to rounding": f"holds, or is too small by at most {event.gap - claimed:.1g}",
        "refuted": "does not hold for these rows; are they the training rows?",
        "undecided": "may hold; randsvm-check can decide",
    }
    claim = f"the gap that the model claims, {in_percent(claimed)} ({max(claimed, 0.0):.2g})"
    return f"{event.verdict}: {claim}, {words[event.verdict or '']}"


def explained(event: Explained) -> Iterable[str]:
    yield f"explained {counted(event.rows, 'row')} in {event.seconds:.2f} s"
    values = " ".join(f"{value:.6g}" for value in event.base_values)
    yield f"base values (f without any feature): {values}"


def compared(event: Exported) -> Iterable[str]:
    """Return the line of the comparison of an export with its model."""
    if event.checked_by is not None:
        yield (
            f"largest difference of decision values {event.largest_difference:.3g} over "
            f"{event.rows:,} rows, {event.labels_differ:,} labels differ ({event.checked_by})"
        )


# ---- words -------------------------------------------------------------------------------------


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, as "1 row" and "1,000 rows"."""
    plural = "" if number == 1 else "es" if noun.endswith("s") else "s"
    return f"{number:,} {noun}{plural}"


def _count(number: int) -> str:
    """Return a number with at most six characters."""
    power = 0
    while number >= 100_000 or (power and number >= 10_000):
        number, power = round(number / 1000), power + 1
    return f"{number:,}{('', 'k', 'M', 'G', 'T')[power]}"


def _progressive(loss: float, errors: float | None) -> str:
    """Return the progressive loss and error."""
    return f"progressive loss {loss:.6f}" + ("" if errors is None else f"  error {errors:.3%}")


def _objectives(event: Trained | Certified) -> str:
    """Return the objectives, and the gap in percent and as --gap has it."""
    primal, dual, gap = f"P {event.primal:.6g}", event.dual, event.gap
    if dual is None:
        return primal
    if math.isnan(gap):
        return f"{primal}  gap not certified"
    if math.isinf(dual):
        return f"{primal}  D unknown"
    if math.isinf(gap):
        return f"{primal}  D {dual:.6g}  gap not certified: rounding is larger"
    return f"{primal}  D {dual:.6g}  gap {in_percent(gap)} ({max(gap, 0.0):.2g})"


# Gaps from LARGE_GAP on have no digits after the point, and gaps below SMALL_GAP two significant
# digits.
LARGE_GAP, SMALL_GAP = 10.0, 1e-4


def in_percent(gap: float) -> str:
    """Return a gap in percent, in at most 8 characters."""
    if gap >= LARGE_GAP:
        return f"{100 * gap:.3g}%"
    # Rounding may leave D above P by its last bit: no "-0%".
    return f"{gap:.3%}" if gap >= SMALL_GAP else f"{100 * max(gap, 0.0):.2g}%"


def _extent(one: Tried) -> str:
    """Return on what a combination was scored: all folds of some rows, or some folds."""
    if one.interrupted_after is not None:
        return f"interrupted after {counted(one.interrupted_after, 'fold')}"
    if one.dropped_after is not None:
        return f"dropped as worse after {counted(one.dropped_after, 'fold')}"
    return counted(one.rows, "row")


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return lines with aligned columns, the first to the left, the others to the right."""
    words = [[str(word) for word in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*words, strict=True)]
    return [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in words
    ]


# Kind of events -> its lines on standard error.
LINES: dict[type, Callable[[Any], Iterable[str]]] = {
    Notice: lambda event: [f"note: {event.text}"],
    Started: started,
    Iteration: iteration,
    Tried: tried,
    Searched: searched,
    Epoch: epoch,
    Point: point,
    Updated: updated,
    Trained: trained,
    Predicted: predicted,
    Certified: certified,
    Exported: lambda event: [f"{event.output}: {event.bytes:,} bytes in {event.seconds:.2f} s"],
    Explained: explained,
}
# Kind of events -> its results, the lines on standard output.
RESULTS: dict[type, Callable[[Any], Iterable[str]]] = {
    Searched: cross_validated,
    Predicted: scores,
    Certified: lambda event: [_objectives(event), verdict(event)],
    Exported: compared,
}
