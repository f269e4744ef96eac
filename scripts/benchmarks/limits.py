"""Measure the limits of the machine, and compute which share of them randsvm reaches.

Run as a program, it prints the limits as JSON.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks import papers
from benchmarks.tables import Record, table

REPEATS = 3
COPIED = 1 << 25  # float32 values of an array that is copied: 128 MB
ORDER = 1536  # of the square matrices
DENSE = (8192, 20)  # rows and features of the text that is parsed
# exp fills a block like the scan's, in the second-level cache, so often.
BLOCK, TIMES = 1 << 18, 40


def measured() -> dict[str, dict[str, float]]:
    """Return number of workers, one or one per core -> limit -> rate per second.

    Limits: bytes read and written by copies, float32 operations of matrix products, float32 values
    of exp, bytes of svmlight text in memory that are parsed.
    """
    # One thread each, as the scan's workers have it; BLAS reads it when numpy is imported.
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    import numpy as np

    def copy() -> Callable[[], float]:
        source, target = (np.ones(COPIED, np.float32) for _ in range(2))

        def work() -> float:
            np.copyto(target, source)
            return source.nbytes + target.nbytes

        return work

    def product() -> Callable[[], float]:
        A, B, out = (np.ones((ORDER, ORDER), np.float32) for _ in range(3))

        def work() -> float:
            np.matmul(A, B, out=out)
            return 2 * ORDER**3

        return work

    def exponential() -> Callable[[], float]:
        exponents, out = -np.random.default_rng(0).random(BLOCK, np.float32), np.empty(BLOCK, "f4")

        def work() -> float:
            for _ in range(TIMES):
                np.exp(exponents, out=out)
            return BLOCK * TIMES

        return work

    def parse() -> Callable[[], float]:
        from randsvm.data import svmlight

        numbers = np.random.default_rng(0).normal(size=DENSE)
        text = b"".join(
            b"+1 " + b" ".join(b"%d:%.6g" % cell for cell in enumerate(row, 1)) + b"\n"
            for row in numbers.tolist()
        )

        def work() -> float:
            for _ in range(TIMES):
                svmlight.parse(text, name="", labels="class")
            return len(text) * TIMES

        return work

    def rate(make: Callable[[], Callable[[], float]], workers: int) -> float:
        """Return the best rate of REPEATS runs of all workers at once."""
        works = [make() for _ in range(workers)]
        found = []
        with ThreadPoolExecutor(workers) as pool:
            for _ in range(REPEATS):
                began = time.perf_counter()
                done = sum(pool.map(lambda work: work(), works))
                found.append(done / (time.perf_counter() - began))
        return max(found)

    kinds = {"copied": copy, "product": product, "exp": exponential, "parsed": parse}
    return {
        str(workers): {name: rate(make, workers) for name, make in kinds.items()}
        for workers in sorted({1, os.cpu_count() or 1})
    }


def shares(found: Record) -> list[str]:
    """Return the limits in Markdown, and the shares that reader, scan and sgd reach in `found`."""
    one, all_cores = (found["limits"][str(workers)] for workers in (1, os.cpu_count()))
    rows = [
        [name, f"{one[key] / unit:.1f}", f"{all_cores[key] / unit:.1f}"]
        for name, key, unit in (
            ("memory, GB/s read and written by copies", "copied", 1e9),
            ("matrix product, single precision, Gflop/s", "product", 1e9),
            ("exp, numpy, single precision, 1e9/s", "exp", 1e9),
            ("svmlight text like twonorm's, parsed in memory, GB/s", "parsed", 1e9),
        )
    ]
    reached = [
        *_reader(found, one["parsed"]),
        *_scan(found, all_cores),
        *_sgd(found, one["copied"]),
        *_start(found),
    ]
    return [
        "",
        "## Physical limits",
        "",
        *table(["limit", "1 core", f"{os.cpu_count()} cores"], rows),
        "",
        *table(["ours", "did", "limit", "share of it"], reached),
        "",
        "The reader's limit is its loop over the bytes; sgd's on small files is the start of "
        "Python. The scan's limit is what OpenBLAS's matrix product and numpy's exp take alone, "
        "one after the other; above 100% it is faster than the two, as its kernel values stay in "
        "registers.",
    ]


def _commands(found: Record, name: str) -> list[tuple[str, Record]]:
    """Return titles and our records of the comparisons whose names begin with `name`."""
    return [
        (f"{each['name']} {each['rows']:,}", each["commands"][0])
        for each in found["comparisons"]
        if each["name"].startswith(name)
    ]


def _reader(found: Record, parsed: float) -> list[list[str]]:
    """Bytes of text per second, in one thread beside the main one."""
    return [
        _row(name, Path(record["words"][-1]).stat().st_size / record["best"]["wall"], parsed)
        for name, record in _commands(found, "reading")
    ]


def _row(name: str, bytes_per_second: float, bandwidth: float) -> list[str]:
    share = f"{bytes_per_second / bandwidth:.1%}"
    return [name, f"{bytes_per_second / 1e9:.2f} GB/s", f"{bandwidth / 1e9:.1f} GB/s", share]


def _scan(found: Record, limit: dict[str, float]) -> list[list[str]]:
    """Kernel values per second of all scans of --gap: every coefficient that changed over every
    row, or every row of the inner set. A value costs 2 (d + 2) + 2 operations of matrix products,
    and one exp."""
    rows = []
    for name in papers.SYNTHETIC:
        for title, record in _commands(found, name):
            started = papers.log(record)["started"]
            rounds = [each for each in papers.events(record) if each["event"] == "iteration"]
            n, d = started["n"], started["d"]
            values = sum(each["changed"] * (each["inner_set"] or n) for each in rounds)
            seconds = sum(each["scan_seconds"] for each in rounds)
            most = 1 / ((2 * (d + 2) + 2) / limit["product"] + 1 / limit["exp"])
            did = values / seconds
            cells = [f"{1e-6 * did:.0f} million kernel values/s", f"{1e-6 * most:.0f} million/s"]
            rows.append([f"scan, {title}, d = {d}", *cells, f"{did / most:.0%}"])
    return rows


def _sgd(found: Record, bandwidth: float) -> list[list[str]]:
    """Bytes of rows that the steps of all epochs read per second: 8 for a nonzero."""
    rows = []
    for name, record in _commands(found, "linear"):
        log = papers.log(record)
        epochs = log["trained"]["steps"] / log["started"]["n"]
        read = 8 * log["started"]["nnz"] * epochs
        rows.append(_row(f"sgd, {name}", read / log["trained"]["solve_seconds"], bandwidth))
    return rows


def _start(found: Record) -> list[list[str]]:
    """Return the time of sgd on 100 rows as a share of its time on each linear set."""
    starts = [
        record["median"]["wall"]
        for each in found["comparisons"]
        for record in each["commands"]
        if each["name"] == "start-up" and record["name"] == "randsvm-train sgd"
    ]
    rows = []
    for name, record in _commands(found, "linear") if starts else []:
        whole = record["median"]["wall"]
        cells = [f"{starts[0]:.2f} s", f"{whole:.2f} s in all", f"{starts[0] / whole:.0%}"]
        rows.append([f"start-up, {name}", *cells])
    return rows


if __name__ == "__main__":
    print(json.dumps(measured()))
