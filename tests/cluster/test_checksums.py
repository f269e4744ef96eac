"""A change of a file after the first pass, or on another machine, is an error."""

from __future__ import annotations

import os
import random
import time
from functools import partial
from pathlib import Path

import pytest
from commands import run_predict, run_train
from dask_cluster import PATIENCE, DaskCluster
from learning import board

from randsvm import api
from randsvm.data.reading import ParseOptions
from randsvm.errors import TransferError
from randsvm.events import HEARTBEAT, Iteration
from randsvm.training import labelled_data

pytest.importorskip("distributed")
from fake_cluster import FakeWorkerPool

from randsvm.cluster import text_file
from randsvm.cluster.byte_ranges import first_pass, text_file_at
from randsvm.cluster.worker_pool import WorkerPool

# dask leaves sockets and tasks to the end of a process that closes without waiting.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::RuntimeWarning")

ROWS, SHARD = 1000, 150
DIFFERS = "changed while in use, or workers see different files"


@pytest.fixture(autouse=True)
def small_shards(monkeypatch):
    monkeypatch.setattr(labelled_data, "ParseOptions", partial(ParseOptions, chunk_rows=SHARD))


@pytest.fixture
def path(tmp_path):
    return board(ROWS).save(tmp_path / "board")


def with_another_label(content, at):
    """Return the content with another label in the first row after byte `at`."""
    begin = content.index(b"\n", at) + 1
    old, new = (b"-1", b"+1") if content[begin:].startswith(b"-1") else (b"+1", b"-1")
    if not content[begin:].startswith(old):
        old, new = b"1", b"2"
    assert content[begin:].startswith(old)
    return content[:begin] + new + content[begin + len(new) :]


@pytest.mark.parametrize("range_size", [700, 5000, 1 << 20])
@pytest.mark.parametrize("block", [64, 1000, 1 << 16])
def test_a_change_of_any_byte_is_detected(path, monkeypatch, range_size, block):
    monkeypatch.setattr(text_file, "BLOCK_BYTES", block)
    monkeypatch.setattr("randsvm.cluster.byte_ranges.RANGE_BYTES", range_size)
    whole = path.read_bytes()
    found = first_pass(
        FakeWorkerPool("1"),
        "key",
        [text_file_at(str(path), ParseOptions("class", chunk_rows=SHARD))],
    )
    numbers = range(len(found.rows))
    rows = [found.chunk(number) for number in numbers]
    assert sum(len(chunk.y) for chunk in rows) == ROWS
    choose = random.Random(1)
    for _ in range(20):
        at = choose.randrange(len(whole))
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        number = next(n for n in numbers if at < found.starts[n + 1])
        with pytest.raises(TransferError, match=DIFFERS):
            found.chunk(number)
    path.write_bytes(whole)
    for number in numbers:
        assert (found.chunk(number).values == rows[number].values).all()


def test_a_change_during_the_first_pass_is_detected(path, monkeypatch):
    """Each range is read once; the next range has to begin where it ends."""
    monkeypatch.setattr("randsvm.cluster.byte_ranges.RANGE_BYTES", 5000)
    monkeypatch.setattr("randsvm.cluster.byte_ranges.BLOCK_BYTES", 1)
    worker_pool, submit = FakeWorkerPool("1"), FakeWorkerPool.submit
    whole = path.read_bytes()
    newline = whole.index(b"\n", 5000)

    def changing(self, function, *words, **options):
        if self.submitted == 1:
            # The first line of the second range begins later.
            path.write_bytes(whole[:newline] + b" " + whole[newline + 1 :])
        return submit(self, function, *words, **options)

    monkeypatch.setattr(FakeWorkerPool, "submit", changing)
    with pytest.raises(Exception, match=f"{DIFFERS}|expected"):
        first_pass(
            worker_pool, "key", [text_file_at(str(path), ParseOptions("class", chunk_rows=SHARD))]
        )


@pytest.fixture
def views(tmp_path, path):
    """Return a cluster whose two workers see different files under one name, and that name."""
    (tmp_path / "cluster").mkdir()
    cluster = DaskCluster(tmp_path / "cluster")
    content = path.read_bytes()
    for name, seen in (("a", content), ("b", with_another_label(content, len(content) // 2))):
        (tmp_path / name).mkdir()
        (tmp_path / name / "board").write_bytes(seen)
        cluster.add(tmp_path / name)
    yield cluster, Path("/proc/self/cwd/board")
    cluster.close()


def wait_for_two(worker_pool):
    end = time.monotonic() + PATIENCE
    while len(worker_pool.members()) < 2:
        assert time.monotonic() < end
        time.sleep(HEARTBEAT)


@pytest.mark.skipif(not Path("/proc/self/cwd").exists(), reason="needs Linux's /proc")
@pytest.mark.parametrize("seen", [16, 1 << 16], ids=["in the second read", "in the first read"])
def test_workers_that_see_different_files_write_no_model(tmp_path, monkeypatch, views, seen):
    cluster, name = views
    monkeypatch.setattr(WorkerPool, "_wait_for_workers", wait_for_two)
    monkeypatch.setattr("randsvm.cluster.byte_ranges.BLOCK_BYTES", seen)
    monkeypatch.chdir(tmp_path / "a")
    words = ["randsvm", "-q", "-g", 5, "--cluster", cluster.file, name, tmp_path / "m"]
    with pytest.raises(TransferError, match=f"worker tcp://.*board: it {DIFFERS}") as error:
        run_train(*words)
    assert error.value.exit_code == 74
    assert not (tmp_path / "m").exists()


@pytest.mark.skipif(not Path("/proc/self/cwd").exists(), reason="needs Linux's /proc")
def test_a_prediction_detects_another_file(tmp_path, monkeypatch, views):
    cluster, name = views
    cluster.kill(0)
    monkeypatch.setattr("randsvm.cluster.byte_ranges.RANGE_BYTES", 500)
    monkeypatch.chdir(tmp_path / "a")
    run_train("randsvm", "-q", "-g", 5, "--max-iterations", 1, "board", tmp_path / "m")
    with pytest.raises(TransferError, match=f"worker tcp://.*{DIFFERS}"):
        run_predict("-q", "--cluster", cluster.file, name, tmp_path / "m", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_new_worker_detects_a_file_changed_in_place(tmp_path, path):
    (tmp_path / "cluster").mkdir()
    cluster = DaskCluster(tmp_path / "cluster")
    cluster.add()
    changed = []

    def change(event):
        if isinstance(event, Iteration) and event.number == 3 and not changed:
            content = path.read_bytes()
            with path.open("r+b") as stream:
                os.pwrite(stream.fileno(), with_another_label(content, len(content) // 2), 0)
            cluster.add()
            cluster.kill(0)
            changed.append(path)

    rule = {"sample_size": 100, "gap": 1e-9, "cluster": cluster.file}
    try:
        with pytest.raises(TransferError, match=f"worker tcp://.*board: it {DIFFERS}"):
            api.train_randsvm(path, tmp_path / "m", change, gamma=5, **rule)
    finally:
        cluster.close()
