"""The types of the fixtures that conftest.py defines, for the annotations of tests."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import oracle


class TrainRun(NamedTuple):
    """The model file of a training run, and its text on stderr."""

    model: Path
    stderr: str

    @property
    def metadata(self) -> dict[str, Any]:
        return oracle.trailer(self.model)

    @property
    def body(self) -> bytes:
        """The model without its trailer."""
        return self.model.read_bytes().partition(b"# randsvm")[0]

    @property
    def iterations(self) -> int:
        found = re.search(r"after ([0-9]+) iteration", self.stderr)
        assert found
        return int(found[1])


class PredictRun(NamedTuple):
    """The lines that a prediction wrote, and its text on stdout and stderr."""

    lines: list[str]
    out: str
    err: str

    @property
    def scores(self) -> np.ndarray:
        return np.array(self.lines, float)


Train: TypeAlias = Callable[..., TrainRun]
Predict: TypeAlias = Callable[..., PredictRun]
Command: TypeAlias = Callable[..., "CompletedProcess[str]"]
MakeSet: TypeAlias = Callable[..., tuple[Path, np.ndarray, np.ndarray]]
RealSet: TypeAlias = Callable[[str], Path]
ImportScript: TypeAlias = Callable[[str], ModuleType]
