"""Test that the same seed gives the same bytes with any jobs, memory, compression or cache."""

from __future__ import annotations

import dataclasses
import gzip
import io
import sys
from pathlib import Path

import numpy as np
import oracle
import pytest
from learning import board, learn

from randsvm.data import batches, svmlight
from randsvm.data.reading import ParseOptions
from randsvm.parameters.run import Resources
from randsvm.svm.running_values import FEW_ROWS

# Kind of training -> the set, the command.
TRAININGS = {
    "randsvm": ("board", "randsvm -g 5 -k 500 --sample-size 800"),
    "certified": ("board", "randsvm -g 5 --gap 0.001 --sample-size 250"),
    # Rows that stay sparse, in chunks that may be read again.
    "nonzeros": ("sparse", "randsvm -g 0.02 --gap 0.05 --sample-size 250 --max-iterations 3"),
    "weights": ("board", "randsvm -g 5 --gap 0.01 --sample-size 400 -w 1 2"),
    "linear": ("board", "randsvm -t linear --gap 0.01 --sample-size 250 --max-iterations 9"),
    "osuna": ("board", "osuna -g 5 --gap 0.01 --working-set 250 --swap 100"),
    "osuna-closest": ("board", "osuna-closest -g 5 --max-iterations 9 --working-set 250"),
    "svr": ("clouds", "randsvm -s svr -g 0.1 --gap 0.01 --sample-size 250"),
    "one-class": ("clouds", "osuna -s one-class -n 0.1 -g 0.1 --gap 0.01 --working-set 250"),
    "features": (
        "board",
        "randsvm -t rbf -g 5 --components 40 --gap 0.01 --sample-size 250 --max-iterations 9",
    ),
    "sgd": ("board", "sgd --epochs 3"),
    "sgd mean": ("clouds", "sgd --epochs 3 --average --loss log -w balanced"),
    "sgd together": ("clouds", "sgd --multiclass crammer-singer --early-stopping 0.2"),
    "sgd auto": ("clouds", "sgd --epochs auto"),
    "sgd svr": ("clouds", "sgd -s svr --epochs 2"),
    "sgd features": ("board", "sgd -t rbf -g 5 --components 40 --epochs 2"),
    "sgd one-class": ("clouds", "sgd -s one-class -t rbf -g 0.1 --components 40 --epochs 2"),
}


@pytest.fixture(autouse=True)
def many_shards(monkeypatch):
    """Give small sets what large ones have: several blocks of text, chunks, shards and batches."""
    small = {"chunk_rows": 100, "chunk_nonzeros": 1 << 20}
    defaults = tuple(small.get(one.name, one.default) for one in dataclasses.fields(ParseOptions))
    monkeypatch.setattr(ParseOptions.__init__, "__defaults__", defaults)
    keywords = {**(svmlight.read_blocks.__kwdefaults__ or {}), "block_size": 10_000}
    monkeypatch.setattr(svmlight.read_blocks, "__kwdefaults__", keywords)
    monkeypatch.setattr(batches, "BATCH_ROWS", 300)
    monkeypatch.setattr(batches, "PIECE_ROWS", 50)


def sparse_classes(rows):
    """Return two noisy classes; a fifth of 40 features is not 0."""
    rng = np.random.default_rng(3)
    X = oracle.as_float32(rng.normal(size=(rows, 40)) * (rng.random((rows, 40)) < 0.2))
    return np.sign(X @ rng.normal(size=40) + rng.normal(size=rows)), X


@pytest.fixture(scope="module")
def sets(tmp_path_factory):
    folder = tmp_path_factory.mktemp("repeat")
    paths = {
        "board": board(1500).save(folder / "board"),
        "clouds": oracle.write_svmlight(folder / "clouds", *oracle.clouds(1500, 0, 3)),
        "sparse": oracle.write_svmlight(folder / "sparse", *sparse_classes(FEW_ROWS + 150)),
    }
    for path in paths.values():
        path.with_suffix(".gz").write_bytes(gzip.compress(path.read_bytes()))
    return paths


# Way of running -> its options, the file that it reads.
WAYS = {
    "again": ("", "{}"),
    "one job": ("--jobs 1", "{}"),
    "three jobs": ("--jobs 3", "{}"),
    "little memory": ("--memory 16M", "{}"),
    "another kernel cache": ("-m 0.5", "{}"),
    "time enough": ("--time-limit 1h", "{}"),
    "gzip": ("", "{}.gz"),
    "pipe": ("", "-"),
    "new cache": ("--cache cache", "{}"),
    "old cache": ("--cache cache --jobs 3", "{}"),
    "spilt": ("--jobs 3", "{}"),
    "spilt, one job": ("--jobs 1", "{}"),
}


@pytest.mark.parametrize("name, line", TRAININGS.values(), ids=TRAININGS)
def test_the_way_of_running_does_not_change_the_model(sets, tmp_path, monkeypatch, name, line):
    path, words = sets[name], line.split()
    monkeypatch.chdir(tmp_path)
    content = learn(words[0], path, tmp_path / "m", *words[1:], "--jobs", 2).model.read_bytes()
    found = {}
    for way, (more, file) in WAYS.items():
        with monkeypatch.context() as patch:
            if way.startswith("spilt"):
                patch.setattr(Resources, "data_bytes", 0)
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(path.read_bytes())))
            data = Path(file.format(path))
            learnt = learn(words[0], data, tmp_path / "n", *words[1:], *more.split())
        found[way] = learnt.model.read_bytes() == content
    assert found == dict.fromkeys(WAYS, True)
