"""A start from another model, e.g. yesterday's."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from randsvm.data.dataset import Dataset
from randsvm.data.sampling import Draws
from randsvm.errors import ModelError
from randsvm.models.kernel_model import KernelModel
from randsvm.models.load import load
from randsvm.svm.scan import Scan, Starter
from randsvm.svm.solution import Step
from randsvm.svm.working_set import Choice, WorkingSet


@dataclass(frozen=True)
class WarmStart:
    """A start from another model's coefficients."""

    model: KernelModel

    @staticmethod
    def read(path: str) -> WarmStart:
        model = load(path)
        if not isinstance(model, KernelModel):
            raise ModelError(f"{path}: expected a kernel model to start from, found a linear one")
        return WarmStart(model)

    def on(self, D: Dataset) -> Starter:
        """The start on D. Raises ModelError when the model has other labels."""
        column, sign = _orientation(D, self.model)

        def start(scan: Scan, choice: Choice, rng: Draws) -> tuple[Step, WorkingSet]:
            raise NotImplementedError

        return start


def _orientation(D: Dataset, model: KernelModel) -> tuple[int, float]:
    """The model's column that is about D's positive class, and the sign of that class there."""
    if D.targets is None or np.ptp(D.targets) == 0:  # regression, one-class
        return 0, 1.0
    first = str(D.summary.values[int(np.argmax(D.targets))])
    values = list(map(str, model.values))
    if sorted(map(str, D.summary.values)) != sorted(values):
        raise ModelError(
            f"the model to start from has the labels {list(model.values)}, the data "
            f"{list(D.summary.values)}"
        )
    index = values.index(first)
    return (index, 1.0) if len(values) > 2 else (0, 1.0 - 2 * index)
