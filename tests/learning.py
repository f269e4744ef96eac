"""Training runs of any algorithm with their log, and the optimum that they have to reach."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import oracle

from randsvm.cli import train as training


class Learnt(NamedTuple):
    """A finished run: the model file and what --log wrote."""

    model: Path
    events: list[dict[str, Any]]

    def of(self, name: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["event"] == name]

    @property
    def rounds(self) -> list[dict[str, Any]]:
        return self.of("iteration")

    @property
    def outcome(self) -> dict[str, Any]:
        (trained,) = self.of("trained")
        return trained

    @property
    def notices(self) -> list[str]:
        return [event["text"] for event in self.of("notice")]

    @property
    def facts(self) -> dict[str, str]:
        return oracle.trailer(self.model)


def read_log(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def learn(algorithm: str, data: Path, model: Path, *words: object) -> Learnt:
    """`randsvm-train ALGORITHM` within this process; errors come as exceptions."""
    log = model.with_suffix(".jsonl")
    arguments = [algorithm, "-q", "--log", log, *words, data, model]
    training.train.main([str(word) for word in arguments], standalone_mode=False)
    return Learnt(model, read_log(log))
