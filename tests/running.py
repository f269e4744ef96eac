"""The commands within this process; errors come as exceptions."""

from __future__ import annotations

from randsvm.cli import predict as predicting
from randsvm.cli import train as training


def run_train(*words: object) -> None:
    """`randsvm-train WORDS`."""
    training.train.main([str(word) for word in words], standalone_mode=False)


def run_predict(*words: object) -> None:
    """`randsvm-predict WORDS`."""
    predicting.predict.main([str(word) for word in words], standalone_mode=False)
