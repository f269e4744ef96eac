"""Measure what averaging costs: compare sgd on a cluster, where the weights of groups of rows are
averaged after each epoch, with sgd in one process. Print a table for docs/cluster.md.

Chunks are small here. The groups of a file that is worth a cluster are far larger.
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import click

from randsvm import api
from randsvm.algorithms import sgd
from randsvm.data.reading import ParseOptions
from randsvm.events import LinearTrained
from randsvm.models.prediction import predict
from randsvm.training import labelled_data

# Rows of a chunk.
CHUNK_ROWS = 64


def measured(
    train: str, test: str, groups: int, options: dict[str, Any], cluster: str
) -> tuple[float, float]:
    """Return P on the training rows, and the accuracy on the test rows in percent.

    groups: the number of groups; 1: sgd in one process.
    """
    sgd.GROUP_CHUNKS, sgd.MAX_GROUPS = 1, groups
    given = options if groups == 1 else {**options, "cluster": cluster}
    with tempfile.TemporaryDirectory() as folder:
        model, output = str(Path(folder, "model")), str(Path(folder, "output"))
        outcome = api.train_sgd(train, model, **given).outcome
        predicted = predict(test, model, output)
    assert isinstance(outcome, LinearTrained)
    assert outcome.primal is not None
    assert predicted.accuracy is not None
    return outcome.primal, predicted.accuracy


@click.command()
@click.argument("train")
@click.argument("test")
@click.option("--groups", default="2,8,32", show_default=True, help="How many, as 2,8,32.")
@click.option("--epochs", type=int, help="As sgd has it.")
@click.option("--cluster", default="local:1", show_default=True, help="As sgd has it.")
def main(train: str, test: str, groups: str, epochs: int | None, cluster: str) -> None:
    """Train on the file TRAIN, predict TEST."""
    setattr(labelled_data, ParseOptions.__name__, partial(ParseOptions, chunk_rows=CHUNK_ROWS))
    options: dict[str, Any] = {} if epochs is None else {"epochs": epochs}
    plain = None
    for count in [1, *map(int, groups.split(","))]:
        P, accuracy = measured(train, test, count, options, cluster)
        plain = plain or P
        words = "plain" if count == 1 else f"{count} groups"
        print(f"| {Path(train).name} | {words} | {P / plain - 1:+.2%} | {accuracy:.2f}% |")


if __name__ == "__main__":
    main()
