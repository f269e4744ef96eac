"""A model in the hands of a Python user: predicts arrays, saves itself, says what it is."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from randsvm.errors import ModelError
from randsvm.events import Learnt, Trained
from randsvm.models import load as loading
from randsvm.models.description import described, lines
from randsvm.models.in_memory import decision_values
from randsvm.models.model import Model
from randsvm.parameters.run import Resources


@dataclass(frozen=True, repr=False)
class FittedModel:
    """A model and, where it was just trained, how that ended.

    outcome: None for a model that was loaded. jobs: worker threads that predict. classes :
    (classes,) the labels that `predict` returns, in the order of the model's labels; None: those
    of the model file.
    """

    model: Model
    outcome: Trained | Learnt | None = None
    jobs: int = 1
    classes: np.ndarray | None = None

    @property
    def gap(self) -> float:
        """The certified relative gap (P - D) / max(|P|, |D|) to the exact answer; nan where nothing
        is certified."""
        if isinstance(self.outcome, Trained):
            return self.outcome.gap
        return float(self.model.metadata.get("gap", math.nan))

    def decision_function(self, X: Any) -> np.ndarray:
        """f of each row, (m,) float64, or (m, columns) of several classes: of each pair in LIBSVM's
        order, or of each class (sgd, ovr), in the order of the model's labels. X : (m, d) array,
        scipy sparse matrix or data frame, whose column j is the feature j + 1 (j in a model whose
        features begin at 0), and of a precomputed kernel the value with row j of the training.
        Raises ContentError for values that are not finite."""
        return decision_values(self.model, X, self.jobs)

    def predict(self, X: Any) -> np.ndarray:
        """Return the label of each row, (m,); float64 targets for a regression. Labels have the
        type of the array that the model was trained with, as bool; they are int64 or str where it
        was trained with a file or loaded."""
        f = decision_values(self.model, X, self.jobs, labels_only=True)
        found = self.model.predicted(f)
        if self.model.regression:
            return found
        classes = np.array(self.model.values) if self.classes is None else self.classes
        return classes[found]

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of each class, (m, classes), in the order of the model's labels. Raises
        ModelError for a model that has none."""
        if self.model.regression or not self.model.has_probabilities:
            raise ModelError("the model has no probabilities: train with probability=True")
        return self.model.probabilities(self.decision_function(X))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model file, see Model.save."""
        self.model.save(os.fspath(path))

    def info(self) -> dict[str, Any]:
        """What the model is and how it was made, plain words and numbers."""
        return described(self.model)

    def __repr__(self) -> str:
        return "\n".join(lines(self.info()))

    def _repr_html_(self) -> str:
        import html

        rows = [
            "".join(f"<td>{html.escape(word)}</td>" for word in line.split(maxsplit=1))
            for line in lines(self.info())
        ]
        return "<table>" + "".join(f"<tr>{row}</tr>" for row in rows) + "</table>"


def load(path: str) -> FittedModel:
    """The model in a file of ours, of LIBSVM's or of LIBLINEAR's.

    Raises ModelError, DataError, InputError.
    """
    return FittedModel(loading.load(path), jobs=Resources().workers)
