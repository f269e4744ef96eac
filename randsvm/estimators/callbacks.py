"""Callbacks of scikit-learn 1.9: the tasks of a fit, one for each round or step.

Older versions have no callbacks; the estimators then have no `set_callbacks`.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import wraps
from typing import Any

from randsvm.data.in_memory import Arrays, original_labels
from randsvm.events import Epoch, Iteration, Notice, Progress, Underway
from randsvm.models.fitted import FittedModel

__all__ = ["CallbackSupportMixin", "FitTasks", "with_callbacks"]

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """The base of estimators without callbacks."""

    def with_callbacks(method: Callable[..., Any]) -> Callable[..., Any]:
        """Return the method in a frame of its own: warnings name the caller's caller."""

        @wraps(method)
        def fit(*given: Any, **options: Any) -> Any:
            return method(*given, **options)

        return fit


# The stages of the events of algorithms/newton.py and coordinates.py.
STAGES = ("Newton step", "coordinate ascent")


class FitTasks:
    """The tasks of one `fit`: the root, and a sequence of rounds or steps.

    As in scikit-learn's own estimators a task begins where the one before it ends. The last one has
    no round: it ends with the closing evaluation and the final model.

    arrays: the rows of the training
    given: what the hooks of callbacks may ask for
    events: the rounds, epochs and notices of the training
    """

    training: Underway

    def __init__(self, estimator: Any, arrays: Arrays, X: Any, y: Any, sample_weight: Any) -> None:
        metadata = None if sample_weight is None else {"sample_weight": sample_weight}
        self.estimator, self.arrays, self.events = estimator, arrays, list[Any]()
        self.given = {"X": X, "y": y, "metadata": metadata}
        self.open: list[Any] = []
        self.steps = 0
        if hasattr(estimator, "_init_callback_context"):
            root = estimator._init_callback_context(max_subtasks=None)
            self._begin(root, lambda: None)
        self.has_callbacks = hasattr(estimator, "_skl_callbacks")

    def watch(self, event: object) -> None:
        """Take an event of the training."""
        if isinstance(event, Iteration | Epoch | Notice):
            self.events.append(event)
        if not self.has_callbacks:
            return
        if isinstance(event, Underway):
            self.training = event
            self._begin_round()
        elif isinstance(event, Iteration | Epoch) or self._is_step(event):
            if self._end(self._so_far):
                self.training.stop()
            self._begin_round()

    def finish(self) -> None:
        """End the open tasks: the estimator is fitted."""
        while self.open:
            self._end(dict)

    def _is_step(self, event: object) -> bool:
        """Return whether there is a pass or Newton step since the last event; they have none
        themselves."""
        if not isinstance(event, Progress) or event.stage not in STAGES:
            return False
        found, before = self.training.so_far(), self.steps
        self.steps = (found[1].passes or 0) + (found[1].newton_steps or 0) if found else 0
        return self.steps > before

    def _begin_round(self) -> None:
        self._begin(self.open[0].subcontext("round"), self._so_far)

    def _begin(self, task: Any, fitted: Callable[[], dict[str, Any] | None]) -> None:
        self.open.append(task)
        given = {**self.given, "reconstruction_attributes": fitted}
        task.call_on_fit_task_begin(estimator=self.estimator, **given)

    def _end(self, fitted: Callable[[], dict[str, Any] | None]) -> bool:
        """End the latest task; return whether a callback asks for the end of the training."""
        given = {**self.given, "reconstruction_attributes": fitted}
        return bool(self.open.pop().call_on_fit_task_end(estimator=self.estimator, **given))

    def _so_far(self) -> dict[str, Any] | None:
        """Return the attributes of the estimator as if the training had ended here."""
        found = self.training.so_far()
        if found is None:
            return None
        model, outcome = found
        classes: Any = original_labels(self.arrays, model.labels)
        estimator = copy(self.estimator)
        estimator._set_fitted(FittedModel(model, outcome, 1, classes), self.arrays, self.events)
        return vars(estimator)
