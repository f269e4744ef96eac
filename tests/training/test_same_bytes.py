"""The model of a run does not depend on threads, memory, caches, or how the rows arrive."""

import bz2
import gzip
import io
import sys

import numpy as np
import oracle
import pytest
from commands import run_train
from learning import board
from sizes import INNER_SETS, MANY_ROWS, MANY_SHARDS

ROUNDS = "randsvm --sample-size 30 -g 5 --gap 0.01"
# Kinds of runs, and the file of rows that each has.
KINDS = {
    "rounds": (ROUNDS, "two"),
    "paper": ("randsvm --gap none -k 40 --sample-size 50 -g 5", "two"),
    "inner set": (f"{ROUNDS} --reduce 9", "two"),
    "linear": (f"{ROUNDS} -t linear --max-iterations 9", "two"),
    "sparse": ("randsvm -g 0.02 --gap 0.05 --sample-size 30 --max-iterations 3", "sparse"),
    "osuna-closest": ("osuna-closest --working-set 20 -g 5 --max-iterations 9", "two"),
    "osuna": ("osuna --working-set 20 -g 5 --gap 0.01", "two"),
    "weights": (f"{ROUNDS} -w balanced", "weighted"),
    "svr": (f"{ROUNDS} -s svr --conformal", "targets"),
    "one-class": (f"{ROUNDS} -s one-class -n 0.2", "two"),
    "nu-svc": (f"{ROUNDS} -s nu-svc -n 0.3", "two"),
    "pairs": (f"{ROUNDS} -b 1", "three"),
    "rest": (f"{ROUNDS} --multiclass ovr --scale standard", "three"),
    "reduced": (f"{ROUNDS} --reduce 9", "two"),
    "search": (f"{ROUNDS} -v 3 -c 1,8 -g 0.5,5 --search-gap 0.01", "two"),
    "race": ("randsvm -v 4 -c 0.01,1,100 -g 0.5,20", "two"),
    "precomputed": ("randsvm -t precomputed --sample-size 30", "kernel"),
    "features": ("randsvm --components 40 -g 1 --gap 0.05", "two"),
    "sgd": ("sgd --epochs 3 -b 1", "three"),
    "sgd of features": ("sgd -t rbf --components 40 -g 1 -v 3 -c 1,8 --epochs 3", "two"),
    "sgd mean": ("sgd --epochs 3 --average --loss log -w balanced", "three"),
    "sgd together": ("sgd --multiclass crammer-singer --early-stopping 0.2", "three"),
    "sgd early": ("sgd --early-stopping 0.2", "two"),
    "sgd svr": ("sgd -s svr --epochs 2", "targets"),
    "sgd one-class": ("sgd -s one-class -t rbf -g 0.1 --components 40 --epochs 2", "two"),
    "update": ("sgd --update linear", "two"),
    "float64": (f"{ROUNDS}", "large"),
    "qids": (f"{ROUNDS} -v 3 --groups qid", "qids"),
}
ROWS = 120


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    y, X = board(ROWS)
    oracle.write_rows(folder / "two", y, X)
    oracle.write_rows(folder / "weighted", y, X, 1, 1 + np.arange(ROWS) % 7 / 4)
    oracle.write_rows(folder / "targets", np.round(np.sin(3 * X[:, 0]) + X[:, 1], 3), X)
    oracle.write_rows(folder / "three", *oracle.clouds(ROWS, classes=3))
    oracle.write_rows(folder / "large", y, 1e7 + X)
    oracle.write_rows(folder / "sparse", *oracle.sparse_rows(ROWS))
    K = oracle.kernel_matrix("rbf", X, X, 2.0)
    oracle.write_rows(folder / "kernel", y, np.column_stack([1 + np.arange(ROWS), K]), 0)
    lines = (folder / "two").read_text().splitlines()
    of_groups = (line.replace(" ", f" qid:{i // 4} ", 1) for i, line in enumerate(lines))
    (folder / "qids").write_text("\n".join(of_groups) + "\n")
    run_train("sgd", "-q", folder / "two", folder / "linear")
    return folder


def packed(compress):
    def pack(path):
        (path.parent / "packed").write_bytes(compress(path.read_bytes()))
        return ["packed"]

    return pack


def parts(path):
    lines = path.read_bytes().splitlines(keepends=True)
    for name, part in (("one", lines[:50]), ("two", lines[50:])):
        (path.parent / f"{path.name}.{name}").write_bytes(b"".join(part))
    return [f"{path.name}.one", f"{path.name}.two"]


# Ways to run the same: options, and how the rows are given.
WAYS = {
    "3 jobs, another kernel cache": ("--jobs 3 -m 0.5", None),
    "time enough, gzip": ("--jobs 1 --time-limit 1h", packed(gzip.compress)),
    "little memory, bzip2": ("--jobs 2 --memory 16M --tmpdir .", packed(bz2.compress)),
    "a new cache": ("--jobs 1 --cache c", None),
    "a log, two files": ("--jobs 1 --log log --report json", parts),
    "a pipe": ("--jobs 2", lambda path: ["-"]),
}


@pytest.mark.parametrize("name", KINDS)
def test_the_way_of_a_run_changes_no_byte(tmp_path, monkeypatch, set_sizes, capsys, folder, name):
    words, data = KINDS[name]
    set_sizes(**MANY_SHARDS, **MANY_ROWS, **(INNER_SETS if name == "inner set" else {}))
    for file in (data, "linear"):
        (tmp_path / file).write_bytes((folder / file).read_bytes())
    monkeypatch.chdir(tmp_path)

    def model(given, files=(data,)):
        if "--update" in words and ("--cache" in given or len(files) > 1):
            return expected  # rows of a stream
        if " -v " in words and "--time-limit" in given:
            return expected  # with a limit, a search begins on few rows
        if words.startswith("sgd"):
            given = given.replace("-m 0.5", "")  # no LIBSVM
        stdin = io.TextIOWrapper(io.BytesIO((tmp_path / data).read_bytes()))
        monkeypatch.setattr(sys, "stdin", stdin)
        run_train(*words.split(), "-q", *given.split(), *files, "m")
        return (tmp_path / "m").read_bytes()

    expected = None
    expected = model("--jobs 1")
    for way, (given, arrive) in WAYS.items():
        files = arrive(tmp_path / data) if arrive else (data,)
        assert model(given, files) == expected, way
    assert model("--jobs 3 --cache c") == expected, "an old cache"
    set_sizes(data_bytes=0)
    assert model("--jobs 2") == expected, "a spill file"
