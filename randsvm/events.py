"""Everything that a run tells whoever listens, and how a signal reaches the run.

Records of plain numbers and words, and one place to send them. The library itself never prints:
cli/report.py draws these as bars and lines. By default nobody listens. Fields stand in the order
in which JSON has them.

Signals are cooperative: a handler only records the signal (`interrupt`), and the next event or
`check` of the main thread raises Interrupted. So every wait of that thread wakes up each HEARTBEAT
and checks, and every loop that runs for a second tells an event or checks.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import NamedTuple

from randsvm.errors import Interrupted

# Seconds between two looks at the signals while this thread waits.
HEARTBEAT = 0.1
# Seconds that an interrupted run goes on waiting for others, as the reader of a full pipe.
PATIENCE = 1.0


class Progress(NamedTuple):
    """Work of one kind under way: `done` of `total` `unit`s (total None: not known)."""

    stage: str
    done: int
    total: int | None = None
    unit: str = "row"


class Waiting:
    """This thread waits for another one, or for a pipe: nothing to show, but a moment at which who
    listens may end it."""


class Queued(Waiting):
    """What this thread has to do is not under way yet, or no more: somebody has to be found who
    does it."""


class Notice(NamedTuple):
    """Something the user should know, said once."""

    text: str


class Unwritten(NamedTuple):
    """A log, cache or stream that cannot be written: the run goes on without it, to its model.

    problem: the output and the reason of the system.
    """

    problem: str


# ---- every training ---------------------------------------------------------------------------


class Started(NamedTuple):
    """Everything that was left open is resolved; reading is over, where it comes before learning
    (else n, d, nnz, C and what follows are not known).

    pass_bytes: what each pass over the rows reads, and from where. working_set: rows of the first
    subproblem, solve_bytes: the memory that LIBSVM may take for it; None: there are none.
    gap_asked: the gap that ends the run; None: there is none.
    """

    algorithm: str
    configuration: list[str]
    n: int | None
    d: int | None
    nnz: int | None
    C: float | None
    lambda_: float
    seconds: float
    pass_bytes: int | None = None
    place: str | None = None
    working_set: int | None = None
    solve_bytes: int | None = None
    gap_asked: float | None = None


class Tried(NamedTuple):
    """What one combination of parameters was worth.

    values: of the parameters that the grid varies. configuration: the command line of this
    combination alone, digest: of the data; together they tell a log's line from another's. scores:
    of each fold; score: of all its rows together, of the kind score_name. resumed: found in
    --log. number, of: how many combinations are done, of those on so many rows.
    """

    values: dict[str, float]
    configuration: str
    digest: str
    scores: list[float]
    score: float
    score_name: str
    rows: int
    number: int
    of: int
    resumed: bool
    details: dict[str, float]


class Searched(NamedTuple):
    """All that was tried, best first: the first is trained on all rows. Those that were tried on
    fewer rows than it are behind. of: how many combinations there were."""

    tried: list[Tried]
    seconds: float
    of: int


# ---- training in rounds -----------------------------------------------------------------------


class Iteration(NamedTuple):
    """One solve and the scan after it.

    frozen: support vectors outside of the working set. bytes_read: of the rows, by this process;
    bytes_moved: to workers of a cluster and from them; both so far. message_seconds,
    worker_seconds, report_seconds: as Spent has them, so far. changed, scan_seconds: coefficients
    that the scan brought in, and its time. primal, dual: of this solution for the
    whole data set; gap: of the best solution so far, nan where nothing is certified. machine: the
    class that is told from all others, or the two that are told apart; empty where there is only
    one problem.
    """

    number: int
    seconds: float
    solve_seconds: float
    working_set: int
    frozen: int
    support_vectors: int
    bounded: int
    violators: int
    changed: int
    scan_seconds: float
    gap: float
    bytes_read: int
    bytes_moved: int
    message_seconds: float
    worker_seconds: float
    report_seconds: float
    machine: str
    primal: float
    dual: float


class Trained(NamedTuple):
    """How training ended; primal, dual and gap are of the model as written, of several classes the
    sum over their problems. bounded: at C in any. gap: nan where nothing is certified;
    gap_asked: what it was to be, None where nobody asked; largest_gap: of any of several problems.

    J = P / (C n). evaluated: whether the certificate was computed from scratch at the end, or
    (after a signal) stems from the running values of the scans. violators None: not counted then.
    cross_validation: of the parameters that were taken, if there was any. bytes_moved: to and from
    the workers of a cluster. saved: whether the model was written; --require-gap may forbid it.
    """

    model: str
    iterations: int
    support_vectors: int
    bounded: int
    violators: int | None
    J: float
    evaluated: bool
    cross_validation: Tried | None
    stopped: str
    solve_seconds: float
    seconds: float
    primal: float
    dual: float
    gap: float
    gap_asked: float | None = None
    largest_gap: float | None = None
    bytes_moved: int = 0
    saved: bool = True


# ---- training step by step --------------------------------------------------------------------


class Epoch(NamedTuple):
    """One pass over the rows. loss, errors: of each row before it was learnt (progressive), their
    mean. held_out: mean loss of the held-out rows afterwards, None where there are none.
    bytes_moved: as an Iteration has them."""

    number: int
    seconds: float
    rows: int
    loss: float
    errors: float | None
    held_out: float | None
    bytes_moved: int = 0


class Taught(NamedTuple):
    """Rows learnt so far by --update; loss, errors: means over the `last` of them, each row's
    before it was learnt."""

    seconds: float
    rows: int
    last: int
    loss: float
    errors: float | None


class Learnt(NamedTuple):
    """How learning ended.

    steps: rows learnt, solve_seconds: what they took. progressive_loss, progressive_errors: of the
    rows before they were learnt, in the last epoch or the whole update. primal P = 1/2 |w|^2 +
    C sum loss, J = P/(C n), violators (y f < 1, or beyond the tube), error (share of rows) and for
    a regression squared_error (mean) are of all rows; None where an update has not kept them, or
    a signal left no time. cross_validation, bytes_moved, saved: as in Trained.
    """

    model: str
    steps: int
    progressive_loss: float
    progressive_errors: float | None
    primal: float | None
    J: float | None
    violators: int | None
    error: float | None
    squared_error: float | None
    cross_validation: Tried | None
    stopped: str
    solve_seconds: float
    seconds: float
    bytes_moved: int = 0
    saved: bool = True


# ---- prediction -------------------------------------------------------------------------------


class ClassMetrics(NamedTuple):
    """Scores of one class; nan where there is nothing to divide by. rows: that truly are of it."""

    label: str
    rows: int
    precision: float
    recall: float
    f1: float


class ClassificationMetrics(NamedTuple):
    """labels: the model's, then those that only the rows have. confusion: a row for each true label
    (in the order of labels), a column for each predicted one (the model's labels). mean: over the
    model's classes that can be scored. auc: area under the ROC curve of two classes, ties counting
    half; None for more."""

    labels: tuple[str, ...]
    confusion: list[list[int]]
    classes: list[ClassMetrics]
    mean: ClassMetrics
    auc: float | None


class RegressionMetrics(NamedTuple):
    mean_absolute_error: float
    determination: float


class Predicted(NamedTuple):
    """A file was predicted. rows: of the file; labelled: those of them that had a label.

    Over the labelled rows: correct and accuracy in percent, or for a regression squared_error
    (mean) and squared_correlation; nan without labelled rows, None where the model is of the other
    kind. noise_scale: with probabilities of a regression, sigma where target - prediction has the
    density e^(-|z| / sigma) / (2 sigma). metrics: where they were asked for. to_stdout: whether
    the predictions went there.
    """

    rows: int
    labelled: int
    correct: int | None
    accuracy: float | None
    squared_error: float | None
    squared_correlation: float | None
    noise_scale: float | None
    unseen_features: int
    seconds: float
    metrics: ClassificationMetrics | RegressionMetrics | None
    to_stdout: bool


# ---- telling and listening --------------------------------------------------------------------

Watch = Callable[[object], None]


def silent(event: object) -> None:
    """The listener of those who do not want to know."""


# A context variable and not an argument: every layer from the reader to the solver would hand
# it down, and Algorithm 1 would no longer read as printed. Only the calling thread tells.
_listener: ContextVar[Watch] = ContextVar("listener", default=silent)
_emitted: ContextVar[set[str] | None] = ContextVar("emitted", default=None)


def listener() -> Watch:
    """Who hears the events of this thread now."""
    return _listener.get()


def emit(event: object) -> None:
    check()
    _listener.get()(event)


def emit_once(key: str, event: object) -> None:
    """Tell only the first event of this key within `listening`."""
    emitted = _emitted.get()
    if emitted is None or key not in emitted:
        emit(event)
        if emitted is not None:
            emitted.add(key)


@contextlib.contextmanager
def listening(watch: Watch) -> Iterator[None]:
    """Within the block, events of this thread go to `watch`."""
    tokens = _listener.set(watch), _emitted.set(set())
    try:
        yield
    finally:
        _listener.reset(tokens[0])
        _emitted.reset(tokens[1])


# ---- signals ----------------------------------------------------------------------------------


class _Signals:
    """The first signal that came, None before, and whether it has been raised."""

    number: int | None = None
    raised: bool = False


def interrupt(number: int) -> None:
    """Record a signal; of several the first one counts."""
    if _Signals.number is None:
        _Signals.number = number


def check(waited: float = 0.0) -> None:
    """Raise Interrupted if a signal has come; in the main thread only.

    It is raised once, so that the best model so far can be written after it; and again where an
    interrupted run has `waited` for somebody else, in seconds, longer than PATIENCE.
    """
    if _Signals.number is None or threading.current_thread() is not threading.main_thread():
        return
    if not _Signals.raised or waited > PATIENCE:
        _Signals.raised = True
        raise Interrupted(_Signals.number)
