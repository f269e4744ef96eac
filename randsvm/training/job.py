"""Records that all trainings share: the options of a run (`Job`), its clock and why it ended.

This module knows no algorithm.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import field
from enum import Enum
from math import inf
from typing import Any, NamedTuple, TypeVar

import numpy as np

from randsvm import files
from randsvm.arrays import Matrix
from randsvm.data.cache import is_cache
from randsvm.data.columns import Frame
from randsvm.data.dataset import Dataset, Source
from randsvm.data.kept_rows import is_kept
from randsvm.errors import ClusterError, Interrupted, OutOfTimeError
from randsvm.events import Iteration, Watch, listener, listening, silent
from randsvm.files import display_output
from randsvm.models.model_text import check_is_not_model, check_replaces_model
from randsvm.parameters.option import require
from randsvm.parameters.rounds import RoundsParams
from randsvm.parameters.run import DataParams, Limits, Resources, Search
from randsvm.parameters.sgd import SgdParams
from randsvm.parameters.svm import KernelParams
from randsvm.records import record

# The parameters of a kernel machine or of a linear one.
AnyParams = TypeVar("AnyParams", bound=KernelParams | SgdParams)

# The begin of the file of --certificate.
TRANSCRIPT = b"randsvm transcript "
# Returns f of rows: (m, K) float64.
Decision = Callable[[Matrix], np.ndarray]
# The name, in messages, of a model that is not written to a file.
IN_MEMORY = "<memory>"

# Maps f, (m, columns) float64, and y, (m,), of some rows to the values to keep, row by row.
Keep = Callable[[np.ndarray, np.ndarray], np.ndarray]

# Trains on the rows of a view with the given parameters; returns f.
Fit = Callable[[Dataset, AnyParams], Decision]

# fit(params, previous, training, held_out, keep) trains on some rows of a view. It returns two
# values: keep(f, y) of the rows that are held out, and its fit, from which another may start.
# previous: a fit with the same parameters except C, on these or other rows; None: from nothing.
# training, held_out : (n,) bool, the rows to train on and those that f is of.
FoldFit = Callable[[AnyParams, Any, np.ndarray, np.ndarray, Keep], tuple[np.ndarray, Any]]


@record
class Job:
    """The options that all algorithms share.

    stop, limits, data_params, resources, search: groups of options
    given: the names of the options that the user gave; the others are as in the model of
        --warm-start. None: all were given
    """

    stop: RoundsParams = field(default_factory=RoundsParams)
    limits: Limits = field(default_factory=Limits)
    data_params: DataParams = field(default_factory=DataParams)
    resources: Resources = field(default_factory=Resources)
    search: Search = field(default_factory=Search)
    given: frozenset[str] | None = None


def interrupted_path(model: str) -> str:
    """Return the file for an interrupted run's model if the model in `model` is better."""
    return f"{model}.interrupted"


def is_existing_file(model: str) -> bool:
    """Return whether `model` is a file with content, not standard output."""
    return model not in files.STANDARD_OUTPUTS and bool(files.size_of(model))


def check_paths(data: Source, model: str | None, job: Job) -> None:
    """Check the files of a run before hours of work.

    Raises ParameterError or OutputError for files that cannot be written, or that would overwrite
    each other.
    """
    paths = [one for one in data if not isinstance(one, Frame)] if isinstance(data, tuple) else []
    require(
        bool(paths) or job.resources.cache is None,
        "--cache keeps what was parsed from a file, and there is none",
    )
    cache, certificate = {"--cache": job.resources.cache}, job.limits.certificate
    others = {
        "MODEL_FILE": model,
        "--certificate": certificate,
        "--keep-rows": job.limits.keep_rows,
    }
    files.check_distinct(others, {"TRAIN_FILE": paths, **cache})
    require(
        certificate is None or model not in (None, *files.STANDARD_OUTPUTS),
        "--certificate needs a MODEL_FILE",
    )
    if certificate is not None:
        files.check_output(certificate, "a transcript", lambda head: head.startswith(TRANSCRIPT))
    if job.limits.keep_rows is not None:
        files.check_output(job.limits.keep_rows, "a file of --keep-rows", is_kept)
    files.check_distinct(cache, {"TRAIN_FILE": paths, "--warm-start": job.stop.warm_start})
    check_is_not_model(paths, "TRAIN_FILE MODEL_FILE")
    if model is not None:
        names = [model]
        if not job.limits.overwrite and is_existing_file(model):
            names.append(interrupted_path(model))
        for name in names:
            check_replaces_model(name)
    if job.resources.cache is not None:
        files.check_output(job.resources.cache, "a cache", is_cache)


def check_gap(job: Job, params: KernelParams | SgdParams) -> None:
    """Raise ParameterError if an option about the gap or -m does not go with this training."""
    is_kernel, required = isinstance(params, KernelParams), job.limits.require_gap is not None
    require(
        is_kernel or job.resources.libsvm_cache is None,
        "-m is the size of LIBSVM's cache: sgd does not use LIBSVM",
    )
    require(
        isinstance(params, KernelParams)
        or job.limits.certificate is None
        or params.gap is not None,
        "--certificate of sgd needs --gap",
    )
    require(
        is_kernel or not required,
        "--require-gap is for randsvm, osuna and osuna-closest: sgd writes its model whatever the "
        "gap",
    )
    require(
        not (isinstance(params, KernelParams) and required) or params.positive_semidefinite,
        "--require-gap needs a positive semidefinite kernel",
    )


# Seconds before a time limit that are reserved for late events and for writing the model.
RESERVED_SECONDS = 0.2


class TimeLimitError(Exception):
    """The time of a phase is over; raised by the first event after that moment."""


def never() -> float:
    """Return a deadline that never comes."""
    return inf


class Clock:
    """A listener of a run that passes events on and ends a phase whose time is over.

    Moments are in seconds, as perf_counter() returns them.

    began: the moment when the run began
    end: the moment when the time limit of the run is over; infinite without a limit
    rounds: the number of rounds that it has passed on; it numbers them
    stopping: set once a listener has ended the training; see events.Underway
    """

    def __init__(self, limit: float | None = None, watch: Watch = silent) -> None:
        self.began = time.perf_counter()
        self.end = inf if limit is None else self.began + limit
        self.watch, self.rounds = watch, 0
        self.stopping = threading.Event()
        self._deadline: Callable[[], float] = never

    @property
    def seconds(self) -> float:
        """The seconds since the run began."""
        return time.perf_counter() - self.began

    def share(self, part: float, end: float | None = None) -> float:
        """Return the moment when this part of the time left until `end` is over.

        end: None stands for the end of the run.
        """
        now = time.perf_counter()
        return now + ((self.end if end is None else end) - now) * part

    @contextmanager
    def until(self, deadline: Callable[[], float]) -> Iterator[None]:
        """Raise TimeLimitError at the first event in the block after the moment `deadline()`.

        Deadlines of outer blocks do not apply within the block.
        """
        outer, self._deadline = self._deadline, deadline
        try:
            yield
        finally:
            self._deadline = outer

    @contextmanager
    def before_a_model(self, model: str, has_model: Callable[[], bool]) -> Iterator[None]:
        """Say that there is no model if a signal, the time limit or a cluster ends this block.

        Raises OutOfTimeError for the time limit. has_model: whether there is one after all
        """
        try:
            with self.until(lambda: self.end):
                yield
        except TimeLimitError:
            name = display_output(model)
            raise OutOfTimeError(
                f"--time-limit is over before there is a model: {name} is left as it was"
            ) from None
        except (Interrupted, ClusterError) as error:
            if not has_model():
                reason, *more = error.args
                error.args = ("; ".join([f"{reason}: no model was written", *more]),)
            raise

    def pass_on(self, event: object) -> None:
        """Pass an event on, also after the deadline."""
        if isinstance(event, Iteration):
            self.rounds += 1
            event = event._replace(number=self.rounds)
        self.watch(event)

    def __call__(self, event: object) -> None:
        self.pass_on(event)
        if time.perf_counter() >= self._deadline():
            self._deadline = never
            raise TimeLimitError


@contextmanager
def limited(seconds: float) -> Iterator[Clock]:
    """Yield a clock for a part of a run; it passes events on to the current listener."""
    clock = Clock(seconds, listener())
    with listening(clock):
        yield clock


class StopReason(Enum):
    """Why a training ended. The value is the text that is printed, logged and written to models."""

    # The gap of the running values is what was asked for; the closing evaluation confirms it or
    # gives GAP_NOT_PROVEN. With --reduce it is that of the full model, over all rows or over an
    # inner set. Detail: the gap asked for.
    GAP_REACHED = "gap <= {:g}"
    # KBH07's bound on the number of support vectors is reached. Details: the number, and k.
    SUPPORT_BOUND = "{} support vectors >= k = {}"
    # No row violates the KKT conditions by more than the tolerance.
    NO_VIOLATORS = "no violators"
    # Rounds or Newton steps have ended, and the proven gap misses the one asked for.
    GAP_NOT_PROVEN = "the proven gap is above --gap"
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
    # A listener has ended the training (events.Underway.stop).
    CALLBACK = "ended by a callback"
    # --update has read all rows.
    END_OF_DATA = "end of the data"
    # --checkpoint wrote the model; its training goes on.
    CHECKPOINT = "checkpoint"
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
