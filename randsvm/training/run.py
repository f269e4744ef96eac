"""What every training has in common, whatever the algorithm. Knows none of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from randsvm import files
from randsvm.parameters.rounds import StopParams
from randsvm.parameters.run import Limits, Resources, Run, Search

# Before a time limit: seconds kept free for what is noticed late and for writing, and by how much
# a closing evaluation may take longer than the last scan lets expect.
LATE = 0.2
HEADROOM = 1.25
# The cross-validation for probabilities takes so much longer than training.
PROBABILITY_TIME = 4


@dataclass(frozen=True)
class Job:
    """What all algorithms share: when to stop, seed and index base, resources, the model whose
    solution is the start (--warm-start), and what is cross-validated first."""

    stop: StopParams = field(default_factory=StopParams)
    limits: Limits = field(default_factory=Limits)
    run: Run = field(default_factory=Run)
    resources: Resources = field(default_factory=Resources)
    warm_start: str | None = None
    search: Search = field(default_factory=Search)


class TimeLimitError(Exception):
    """The time for rounds is over; raised out of whatever is under way."""


def check_paths(data: str, model: str, job: Job) -> None:
    """Raise ParameterError or OutputError for files that cannot be or destroy each other, before
    hours of work."""
    cache = {"--cache": job.resources.cache}
    files.check_apart({"MODEL_FILE": model}, {"TRAIN_FILE": data, **cache})
    files.check_apart(cache, {"--warm-start": job.warm_start})
    files.check_output(model)
