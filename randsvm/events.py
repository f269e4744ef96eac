"""Events that a run emits to its listener, and how a signal stops a run.

Most events are tuples of plain numbers and words, with their fields in the order of the log.
The library never prints: cli/report.py shows events as lines and a bar.

Signals are cooperative: a handler only records the signal (`interrupt`), and the next event or
`check` of the main thread raises Interrupted. So every wait of that thread wakes up each HEARTBEAT
seconds and checks, and every loop that runs for a second emits an event or checks.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from math import isnan, nan
from typing import Any, NamedTuple

from randsvm.errors import Interrupted

# Version of the records of a log: of their names and what they mean. Programs that read records
# check it.
SCHEMA = 5
# Seconds between two checks for signals while this thread waits.
HEARTBEAT = 0.1


class Progress(NamedTuple):
    """Progress of one stage of work."""

    stage: str  # Name of the stage, such as "reading"
    done: int  # Units that are done
    total: int | None = None  # Units of the whole stage; None is unknown
    unit: str = "row"  # "row", "B" (bytes), "fit", or "beat" for a stage that only takes time


class Waiting:
    """A moment at which this thread waits for another one, or for a pipe.

    The event carries no data. The listener may raise an exception to end the wait.
    """


class Underway:
    """A training run that begins: its listener may ask for the model so far, and may end it.

    Both functions may be called while the listener has an event, until the training ends. The event
    is in no log.

    Parameters
    ----------
    so_far : callable
        Returns the model of the solutions so far and its `Trained`, with P, D and the gap of the
        running values, or None before there is a solution. The model itself is not certified.
    stop : callable
        Ends the training with the round or step that is under way. The closing evaluation follows.
    """

    def __init__(self, so_far: Callable[[], Any], stop: Callable[[], None]) -> None:
        self.so_far, self.stop = so_far, stop


class Notice(NamedTuple):
    """A sentence that the user should know."""

    text: str  # The sentence


class Unwritten(NamedTuple):
    """An output other than the model that cannot be written.

    The run goes on without a log, a cache or a standard stream.
    """

    problem: str  # The output, and the reason that the system gives


# ---- every training run -----------------------------------------------------------------------


class Started(NamedTuple):
    """The configuration of a run, once all of it is resolved."""

    algorithm: str  # "randsvm", "osuna", "osuna-closest" or "sgd"
    configuration: list[str]  # Options of the command line that repeat this run
    n: int | None  # Rows; None where rows are learned as they arrive
    d: int | None  # Distinct features
    nnz: int | None  # Stored values
    C: float | None  # C of the machine; None where a search chooses it
    # The regularisation lambda = 1/(C n), a factor of 1/2 |w|^2; None where a search chooses it. If
    # rows have weights, n is the sum of the weights.
    lambda_: float | None
    seconds: float  # Seconds since the start of the run
    pass_bytes: int | None = None  # Bytes that one pass over all rows reads
    place: str | None = None  # Where a pass reads the rows: memory or a file
    working_set: int | None = None  # Rows of the first subproblem; None without subproblems
    solve_bytes: int | None = None  # Bytes that LIBSVM may take for the first subproblem
    # The relative gap at which the run ends; None if no gap is asked for.
    gap_asked: float | None = None


# The names of scores in percent.
PERCENT_SCORES = ("accuracy", "balanced accuracy")


class Tried(NamedTuple):
    """The score of one combination of parameters."""

    values: dict[str, float]  # Values of the parameters that are searched
    configuration: str  # Options of the command line of this combination alone
    digest: str  # Digest of the data; with `configuration` it identifies a record of a log
    scores: list[float]  # Score of each fold
    # Score over the rows of all folds together; for AUC, F1 and balanced accuracy the mean of the
    # scores of the folds.
    score: float
    score_name: str  # "accuracy" (in percent), "mean squared error" or another name
    rows: int  # Rows of the cross-validation
    number: int  # Combinations that are scored on this number of rows so far, including this one
    of: int  # Combinations to score on this number of rows
    resumed: bool  # Whether the score comes from a log
    details: dict[str, float]  # Other scores, by their names
    # Number of folds after which the combination was significantly worse than another and was
    # dropped; None: all folds are scored.
    dropped_after: int | None = None
    mean: float = nan  # Mean of the scores of the folds
    standard_error: float = nan  # Standard error of the mean; nan for one fold
    # Number of folds that were scored before a signal, or a failure of the cluster, ended the run;
    # None: the combination was finished or dropped.
    interrupted_after: int | None = None

    @property
    def named_values(self) -> list[str]:
        """The name and the value of each parameter that is searched."""
        return [f"{name.rstrip('_')} {value:g}" for name, value in self.values.items()]

    @property
    def named_score(self) -> str:
        """The name and the score, with its unit."""
        if isnan(self.score):
            return f"no {self.score_name}"
        return f"{self.score_name} {self.score:.6g}" + "%" * (self.score_name in PERCENT_SCORES)


class Searched(NamedTuple):
    """The scores of a search."""

    # Scores, best first: the first is trained on all rows. Combinations that were dropped, and
    # scores on fewer rows than the first, come last.
    tried: list[Tried]
    seconds: float  # Seconds of the search
    of: int  # Combinations of the search, including those without a score
    # Values of the simplest combination whose score is within one standard error of the best: the
    # smallest C, then the smallest gamma; None: the standard error is unknown.
    one_standard_error: dict[str, float] | None = None


# ---- training in rounds -----------------------------------------------------------------------


class Iteration(NamedTuple):
    """One solve of a subproblem and the scan after it."""

    number: int  # Number of the round, from 1
    seconds: float  # Seconds since the start of the run
    solve_seconds: float  # Seconds of this solve
    working_set: int  # Rows of the working set
    support_vectors: int  # Support vectors
    bounded: int  # Support vectors whose coefficients are at C
    violators: int  # Rows that violate the KKT conditions
    changed: int  # Coefficients that changed
    scan_seconds: float  # Seconds of the scan
    gap: float  # Relative gap of the best solution so far; nan where nothing is certified
    bytes_moved: int  # Bytes to and from workers of a cluster so far
    # Name of the class that is trained against the rest, or of the pair of classes; empty if the
    # training has only one problem. Pairs that are solved at once have their number, "1,225 pairs":
    # the numbers of the round are sums over them.
    machine: str
    primal: float  # Primal objective P of this solution over all rows
    dual: float  # Dual objective D of this solution over all rows
    # Number of rows of the inner set or random subset, if the round solves the problem of these
    # rows alone; gap, primal, dual and violators are then of that problem. 0: the round is over all
    # rows.
    inner_set: int = 0


class Reduced(NamedTuple):
    """The reduction of a machine to few support vectors.

    The gap of the reduced machine is in `Trained`. It is computed from P of the reduced machine and
    D of the full machine.
    """

    support_vectors_before: int  # Support vectors of the full machine
    full_gap: float  # Relative gap of the full machine
    largest_change: float  # Largest change of a decision value over all training rows
    mean_change: float  # Mean change of a decision value
    # Training rows whose decision value changes its sign, summed over several problems; 0 for a
    # regression.
    labels_changed: int


# ---- training step by step --------------------------------------------------------------------


class Epoch(NamedTuple):
    """One pass of stochastic gradient descent over the rows."""

    number: int  # Number of the pass, from 1
    seconds: float  # Seconds since the start of the run
    rows: int  # Rows learned in this pass
    loss: float  # Mean progressive loss: of each row before it was learned
    errors: float | None  # Share of wrong labels among the same predictions; None for a regression
    held_out: float | None  # Mean loss of the held-out rows after the pass; None without such rows
    bytes_moved: int = 0  # Bytes to and from workers of a cluster so far


class Updated(NamedTuple):
    """Rows that `--update` has learned so far."""

    seconds: float  # Seconds since the start of the run
    rows: int  # Rows learned
    last: int  # Number of the latest rows over which `loss` and `errors` are means
    loss: float  # Mean progressive loss: of each row before it was learned
    errors: float | None  # Share of wrong labels among the same predictions; None for a regression


class Point(NamedTuple):
    """The solution for one C of a path."""

    C: float  # C
    lambda_: float  # lambda = 1/(C n)
    seconds: float  # Seconds since the start of the run
    passes: int  # Passes of coordinate ascent from the solution before
    newton_steps: int  # Newton steps from the solution before
    primal: float  # Primal objective P
    dual: float  # Dual objective D
    gap: float  # Relative gap
    nonzero_weights: int | None  # Features with a weight; None without an L1 penalty
    error: float | None  # Share of wrong labels among all rows; None for a regression
    squared_error: float | None  # Mean squared error over all rows of a regression
    cross_validation: Tried | None  # The result of cross-validation for this C; None without -v


# ---- the end of every training run -------------------------------------------------------------


class Trained(NamedTuple):
    """The end of a training run.

    primal, dual and gap belong to the model as written. If the training has several problems, P and
    D are sums over the problems, and the gap is computed from these sums.
    """

    model: str  # Model file
    stopped: str  # Reason for the end
    seconds: float  # Seconds of the run
    # Primal objective P of the model over all rows; None where they were not kept, or after a
    # signal in sgd.
    primal: float | None = None
    dual: float | None = None  # Dual objective D; None without a gap
    gap: float = nan  # Relative gap (P - D) / max(|P|, |D|); nan where nothing is certified
    # The gap at which the run was to end; None if no gap was asked for.
    gap_asked: float | None = None
    # The largest gap of any problem; None if there is only one problem.
    largest_gap: float | None = None
    J: float | None = None  # P / (C n)
    # Rows that violate the KKT conditions; of sgd, rows with y f < 1, or outside the tube. None
    # where they were not counted.
    violators: int | None = None
    # The result of cross-validation for these parameters, if there was any.
    cross_validation: Tried | None = None
    saved: bool = True  # Whether the model was written; `require_gap` may forbid it
    bytes_moved: int = 0  # Bytes to and from workers of a cluster
    digest: str | None = None  # The digest of the data in the model file
    # ---- of kernel machines
    iterations: int | None = None  # Rounds
    support_vectors: int | None = None  # Support vectors of the model
    bounded: int | None = None  # Support vectors at C in any of the problems
    # Whether the certificate was computed from scratch at the end; else it comes from the running
    # values of the scans, as after a signal.
    evaluated: bool | None = None
    certificate: str | None = None  # The word of the model file for how far P and D are proven
    reduced: Reduced | None = None  # What `--reduce` did; None without it
    # ---- of sgd, with P = 1/2 |w|^2 + C sum loss
    steps: int | None = None  # Steps, each of one row
    # Mean loss of each row before it was learned, in the last epoch or the whole update.
    progressive_loss: float | None = None
    progressive_errors: float | None = None  # Share of wrong labels among the same predictions
    error: float | None = None  # Share of wrong labels among all rows
    squared_error: float | None = None  # Mean squared error over all rows of a regression
    nonzero_weights: int | None = None  # Features with a weight; None without an L1 penalty
    newton_steps: int | None = None  # Newton steps that were made to reach a gap
    passes: int | None = None  # passes of coordinate ascent that were made to reach a gap


# ---- prediction -------------------------------------------------------------------------------


class ClassMetrics(NamedTuple):
    """Scores of one class; nan where a quotient has the denominator 0."""

    label: str  # The label
    rows: int  # Rows that have this label
    precision: float  # Share of correct rows among those predicted as this label
    recall: float  # Share of correct rows among those that have this label
    f1: float  # Harmonic mean of precision and recall
    # Area under the precision-recall curve of this class: the mean precision over the rows of the
    # class, ranked by decision value; None if there are more than two classes.
    average_precision: float | None = None


class ProbabilityMetrics(NamedTuple):
    """Scores of probabilities over the rows whose label the model has; nan without such rows."""

    log_loss: float  # Mean of -log p of the true class
    # Mean of the sum of (p - t)^2 over the classes, where t is 1 for the true class and else 0; for
    # two classes half of it, which is (p - t)^2 of one class.
    brier: float


class ClassificationMetrics(NamedTuple):
    """Scores of a classification."""

    labels: tuple[str, ...]  # Labels of the model, then labels that only the rows have
    # A row for each true label, in the order of `labels`; a column for each label of the model.
    confusion: list[list[int]]
    classes: list[ClassMetrics]  # Scores of each class
    mean: ClassMetrics  # Means over the classes of the model that have scores
    auc: float | None  # Area under the ROC curve of two classes, ties counting half; None for more
    # Scores of the probabilities; None where none were computed.
    probabilities: ProbabilityMetrics | None = None


class RegressionMetrics(NamedTuple):
    """Scores of a regression."""

    mean_absolute_error: float  # Mean of |y - f|
    determination: float  # Coefficient of determination R^2


class Coverage(NamedTuple):
    """How often label sets contained the true label, or intervals the target."""

    asked: float  # Probability that was asked for
    # Share of the labelled rows whose label is in the set, or whose target is in the interval; nan
    # without labelled rows.
    found: float
    size: float  # Mean number of labels in a set, or the width of the intervals


class Predicted(NamedTuple):
    """The end of the prediction of a file."""

    rows: int  # Rows of the file
    labelled: int  # Rows that have a label; the scores below are over these, and nan without any
    correct: int | None  # Rows whose label was predicted; None for a regression
    accuracy: float | None  # Weight of the rows whose label was predicted, in percent
    squared_error: float | None  # Mean squared error of a regression
    squared_correlation: float | None  # Squared correlation coefficient of a regression
    # With probabilities of a regression, sigma of the density e^(-|z| / sigma) / (2 sigma) of z =
    # target - prediction.
    noise_scale: float | None
    unseen_features: int  # Features of the rows that the training did not have
    seconds: float  # Seconds of the prediction
    # Further scores where they were asked for.
    metrics: ClassificationMetrics | RegressionMetrics | None
    # Coverage of label sets or intervals; None without `--coverage`.
    coverage: Coverage | None = None


class MachineObjectives(NamedTuple):
    """The objectives of one machine of a model over its training file."""

    name: str  # The classes that it separates; empty if the model has one machine only
    primal: float  # Primal objective P
    # Dual objective D of the feasible coefficients next to those of the machine; nan where there
    # are none, or the kernel is not positive semidefinite.
    dual: float
    gap: float  # Relative gap, (P - D) / max(|P|, |D|) and the bounds of rounding
    # Distance of the coefficients from the feasible ones, as a share of sum |beta|.
    infeasibility: float
    beyond_bounds: float  # Largest distance of a coefficient from its bounds
    sum_error: float  # Sum of the coefficients minus the sum that the problem demands
    primal_error: float  # Bound of the rounding of P, which the gap includes
    dual_error: float  # Bound of the rounding of D, which the gap includes


class Certified(NamedTuple):
    """P, D and the gap of a model file, computed from the text of its training file.

    With several machines P and D are sums over the machines, and the gap is computed from these.
    """

    model: str  # Model file
    problem: str  # Options that define the problem beside the model: "-c 1"
    rows: int  # Rows of the training file
    support_vectors: int | None  # Support vectors of the model; None: it is linear
    unknown_support_vectors: int  # Support vectors that are not among the rows of the training file
    primal: float  # Primal objective P of the machine as written
    dual: float  # Dual objective D of the feasible coefficients next to those of the model
    gap: float  # Relative gap (P - D) / max(|P|, |D|); nan where D is unknown
    largest_gap: float | None  # The largest gap of a machine; None if there is only one
    feasible: bool  # Whether the coefficients of the model are feasible, except for rounding
    infeasibility: float  # Largest infeasibility of a machine
    beyond_bounds: float  # Largest distance of a coefficient from its bounds
    # Largest difference of a sum of coefficients from the sum that the problem demands.
    sum_error: float
    primal_error: float  # Bound of the rounding of P, which the gap includes
    dual_error: float  # Bound of the rounding of D, which the gap includes
    # The gap that the model file claims for this problem; None if it claims none.
    claimed_gap: float | None
    # Whether the claim holds: "verified", "verified up to rounding", "refuted" or "undecided"; None
    # without a claim.
    verdict: str | None
    machines: list[MachineObjectives]  # The objectives of each machine
    seconds: float  # Seconds of the computation


class Exported(NamedTuple):
    """The export of a model, and its comparison with the model."""

    format: str  # Format of the export: c or onnx
    model: str  # Model file
    output: str  # File that was written
    bytes: int  # Size of that file
    seconds: float  # Seconds of the export
    # Program that predicted the rows by the export, such as cc; None: the export was not run.
    checked_by: str | None = None
    rows: int | None = None  # Rows that were compared
    # Largest difference of a decision value from that of the model.
    largest_difference: float | None = None
    # Rows whose label differs because rounding moves a decision value across 0.
    labels_differ: int | None = None


class Explained(NamedTuple):
    """The Shapley values of rows."""

    model: str  # Model file
    output: str  # File that was written
    rows: int  # Rows that were explained
    # Each decision value without any feature. Added to the Shapley values of a row, it gives the
    # decision value of the row.
    base_values: list[float]
    seconds: float  # Seconds of the computation


# ---- emitting and listening -------------------------------------------------------------------

Watch = Callable[[object], None]


def silent(event: object) -> None:
    """Ignore an event: the default listener.

    Parameters
    ----------
    event : object
        The event.
    """


# The listener is a context variable. As an argument it would pass through every layer from reader
# to solver, and the code of Algorithm 1 would differ from the paper. Only the calling thread emits.
# The set has the keys of `emit_once` that were emitted.
_listener: ContextVar[tuple[Watch, set[str]]] = ContextVar("listener", default=(silent, set()))


def listener() -> Watch:
    """Return the listener of this thread.

    Returns
    -------
    callable
        The function that `listening` was called with, or `silent`.
    """
    return _listener.get()[0]


def emit(event: object) -> None:
    """Call the listener of this thread with an event.

    Parameters
    ----------
    event : object
        The event.

    Raises
    ------
    Interrupted
        If a signal has come.
    """
    check()
    listener()(event)


def emit_once(key: str, event: object) -> None:
    """Emit an event unless one with the same key was emitted within `listening`.

    Parameters
    ----------
    key : str
        Identifies equal events.
    event : object
        The event.
    """
    _, emitted = _listener.get()
    if key not in emitted:
        emit(event)
        emitted.add(key)


@contextlib.contextmanager
def listening(watch: Watch) -> Iterator[None]:
    """Send the events of this thread to a listener within a `with` block.

    Parameters
    ----------
    watch : callable
        Called with each event.
    """
    token = _listener.set((watch, set()))
    try:
        yield
    finally:
        _listener.reset(token)


# ---- signals ----------------------------------------------------------------------------------


class _Signals:
    """The first signal and its time; None before it. Whether `check` has raised it."""

    first: tuple[int, float] | None = None
    raised: bool = False


def interrupt(number: int, now: float = 0.0) -> tuple[int, float | None]:
    """Record a signal, if it is the first one.

    Parameters
    ----------
    number : int
        Number of the signal.
    now : float, default=0.0
        Time of the signal, seconds.

    Returns
    -------
    tuple
        Number and time of the first signal; the time is None if this is the first.
    """
    if _Signals.first is not None:
        return _Signals.first
    _Signals.first = number, now
    return number, None


def check() -> None:
    """Raise Interrupted if a signal has come; in the main thread only.

    The exception is raised once, so that the run can still write its best model.

    Raises
    ------
    Interrupted
        If a signal has come.
    """
    if _Signals.first is None or threading.current_thread() is not threading.main_thread():
        return
    if not _Signals.raised:
        _Signals.raised = True
        raise Interrupted(_Signals.first[0])
