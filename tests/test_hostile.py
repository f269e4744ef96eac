"""Test malicious files: each ends in one line and an exit code, uses little memory, and opens no
other file.

Tests measure the peak resident memory of processes, in megabytes; an idle process has about 60.
"""

import contextlib
import gzip
import json
import re
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import NamedTuple

import numpy as np
import oracle
import pytest
from commands import run_predict, run_train
from model_files import load_model, resealed
from rows import LabelTable, parse

from randsvm.errors import DataError, ModelError

MEGABYTE = 1 << 20


class MeasuredProcess(NamedTuple):
    code: int
    stderr: str
    megabytes: int


# A small parent starts the command: a new process counts its parent's memory as its own.
MEASURED = """
import resource, subprocess, sys
code = subprocess.call([sys.executable, "-m", *sys.argv[1:]], stdout=subprocess.DEVNULL)
print(code, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def process(folder, *words, stdin=()):
    """Run a command as a process that reads its input piece by piece."""
    with subprocess.Popen(
        [sys.executable, "-c", MEASURED, *map(str, words)],
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as child:
        with contextlib.suppress(BrokenPipeError):  # the process has stopped reading
            for piece in stdin:
                child.stdin.write(piece)
        with contextlib.suppress(BrokenPipeError):
            child.stdin.close()
        said = child.stderr.read().decode()
        code, kilobytes = child.stdout.read().split()
    return MeasuredProcess(int(code), said, int(kilobytes) >> 10)


TRAIN = ("randsvm.cli.train", "randsvm", "-q")


# ---- text ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("index", [2147483647, 2147483648, 10**30])
def test_the_largest_index_takes_the_memory_of_one_feature_and_the_next_is_refused(
    train, tmp_path, index
):
    data = tmp_path / "data"
    data.write_text(f"1 1:1 {index}:1\n-1 1:2\n" * 5)
    tracemalloc.start()
    try:
        if index == 2147483647:
            assert train(data, "-t", "linear").metadata["d"] == 2
        else:
            with pytest.raises(DataError, match=rf"data:1:7: .* 2147483647, found {index}$"):
                train(data)
        assert tracemalloc.get_traced_memory()[1] < 50 * MEGABYTE
    finally:
        tracemalloc.stop()


LONG = 1 << 20
TOKENS = {
    "whole": (b"1 1:", b"7", b"", "1:3: expected a value within float32"),
    "fraction": (b"1 1:.", b"7", b"", None),
    "zeros": (b"1 1:", b"0", b"5", None),
    "not a number": (b"1 1:", b"7", b"x", "1:3: expected a number after 1:"),
    "exponent": (b"1 1:1e", b"0", b"2", None),
    "no exponent": (b"1 1:1e", b"0", b"x", "1:3: expected a number after 1:"),
    "index": (b"1 ", b"7", b":1", "1:3: expected an index of at most"),
    "label": (b"", b"7", b"", "1:1: expected a finite label"),
    "label with zeros": (b"1.", b"0", b"", None),
    "label with exponent": (b"1e", b"0", b"", None),
    "label without number": (b"1e", b"0", b"x", None),
    "qid": (b"1 qid:", b"7", b"", None),
    "comment": (b"1 1:1 #", b"7", b"", None),
}


@pytest.mark.parametrize("token", TOKENS)
def test_a_token_of_a_million_characters_is_read_or_refused_quickly(token):
    """A quadratic search would exceed pytest's time limit."""
    before, filling, behind, problem = TOKENS[token]
    text = before + filling * LONG + behind + b"\n"
    try:
        block = parse(text, name="data")
        LabelTable("data").classes(block)
    except DataError as error:
        assert problem and str(error).startswith(f"data:{problem}"), error
        assert len(str(error)) < 200
    else:
        assert problem is None
        assert len(block) == 1


def test_a_line_without_end_is_refused_in_bounded_memory(tmp_path):
    """The line would have a gigabyte."""
    ended = process(tmp_path, *TRAIN, "-", "m", stdin=(b"1" * MEGABYTE for _ in range(1024)))
    assert ended.stderr == (
        "<stdin>:1:1: expected a line of at most 268435456 bytes, found a longer one\n"
    )
    assert ended.code == 65
    assert ended.megabytes < 450


BOMBS = {
    "zeros": (bytes(MEGABYTE), "1:1: expected a line of at most 268435456 bytes, found a longer"),
    "one line": (b"1" * MEGABYTE, "1:1: expected a line of at most 268435456 bytes, found a long"),
    "newlines": (b"\n" * MEGABYTE, "1:1: expected a row, found an empty file"),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_small_archive_of_half_a_gigabyte_is_refused_in_bounded_memory(tmp_path, bomb):
    """A gzip file may repeat a member."""
    piece, problem = BOMBS[bomb]
    (tmp_path / "bomb").write_bytes(gzip.compress(piece * 16) * (8 if bomb == "newlines" else 32))
    ended = process(tmp_path, *TRAIN, "bomb", "m")
    assert ended.stderr.startswith(f"bomb:{problem}")
    assert ended.code == 65
    assert ended.megabytes < 450


def test_many_distinct_labels_are_counted_in_bounded_memory(tmp_path):
    rows = (b"".join(b"%d 1:1\n" % (1000 * i + j) for j in range(1000)) for i in range(200))
    ended = process(tmp_path, *TRAIN, "-", "m", stdin=rows)
    assert (ended.code, ended.stderr) == (
        65,
        "<stdin>:1:1: expected at most 1,000 classes, found 200,000 (-s svr takes numbers as "
        "targets)\n",
    )
    assert ended.megabytes < 250


# ---- models -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def own_models(tmp_path_factory):
    """Return a small model of each kind and layout."""
    folder = tmp_path_factory.mktemp("ours")
    y, X = oracle.two_gaussians(12)
    oracle.write_svmlight(folder / "numbers", y, X)
    (folder / "names").write_text(oracle.svmlight_text(np.where(y > 0, "ham", "spam"), X))
    found = {}
    for kind, algorithm, data, *words in (
        ("kernel", "randsvm", "numbers"),
        ("foreign kernel", "randsvm", "names", "-t", "poly"),
        ("linear", "sgd", "numbers"),
        ("foreign linear", "sgd", "names"),
        ("map", "sgd", "numbers", "-t", "poly", "--components", "3"),
    ):
        path = folder / "model"
        run_train(algorithm, "-q", *words, folder / data, path)
        found[kind] = path.read_bytes()
    return found


def refused(path, content):
    path.write_bytes(content)
    with pytest.raises((ModelError, DataError)) as caught:
        load_model(path)
    assert re.fullmatch(rf"{re.escape(str(path))}(:[0-9]+)*: expected [^\n]*", str(caught.value))
    return str(caught.value)


HUGE = {
    "total_sv": ("kernel", rb"total_sv .*", b"total_sv 2000000000"),
    "nr_sv": ("kernel", rb"nr_sv .*", b"nr_sv 1000000000 1000000000"),
    "nr_feature": ("foreign linear", rb"nr_feature .*", b"nr_feature 2000000000"),
    "nr_class": ("foreign linear", rb"nr_class .*", b"nr_class 2000000000"),
    "components": (
        "map",
        rb'map "poly components 3',
        b'map "poly components 2147483647',
    ),
    "degree": (
        "map",
        rb"gamma .* coef0 .* degree .* seed",
        b"gamma 1e308 coef0 1e308 degree 1000 seed",
    ),
    "number": ("linear", rb"\nw\n", b"\nw\n" + b"9" * LONG + b"x "),
}


@pytest.mark.parametrize("promise", HUGE)
def test_huge_sizes_in_a_model_header_take_neither_memory_nor_time(own_models, tmp_path, promise):
    kind, old, new = HUGE[promise]
    content, count = re.subn(old, new, own_models[kind], count=1)
    assert count == 1
    tracemalloc.start()
    try:
        refused(tmp_path / "m", resealed(content))
        assert tracemalloc.get_traced_memory()[1] < 80 * MEGABYTE
    finally:
        tracemalloc.stop()


# ---- no code in data -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def opened_files():
    """Record the names of opened files; an audit hook cannot be removed, so there is only one."""
    found = []
    ended = False

    def record(event, arguments):
        if event == "open" and not ended and isinstance(arguments[0], str):
            found.append(arguments[0])

    sys.addaudithook(record)
    yield found
    ended = True


PATHS = ["/etc/passwd", "../../outside", "file:///etc/passwd", "$(touch outside)", "|touch outside"]


@pytest.mark.parametrize("path", PATHS)
def test_paths_inside_data_or_models_are_not_opened(
    tmp_path,
    own_models,
    path,
    opened_files,
    monkeypatch,
):
    """Only files that the command names are opened."""
    (tmp_path / "in").mkdir()
    monkeypatch.chdir(tmp_path / "in")
    name = path.replace(":", "_").replace(" ", "_")
    Path("data").write_text(f"{name} 1:1 # {path}\nother 1:2\n" * 6)
    text = b'# randsvm version "'
    model = own_models["foreign kernel"]
    assert model.count(text) == 1
    altered = model.replace(text, text + json.dumps(path)[1:-1].encode())
    Path("model").write_bytes(resealed(altered))
    opened_files.clear()
    run_train("randsvm", "-q", "data", "m")
    run_predict("data", "m", "out")
    load_model("model")
    assert "data" in opened_files
    assert [name for name in opened_files if "outside" in name or "passwd" in name] == []
    assert {found.name for found in Path().iterdir()} == {"data", "model", "m", "out"}
    assert [found.name for found in tmp_path.iterdir()] == ["in"]
