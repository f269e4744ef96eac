"""Print the memory of trainings on one table from several libraries, as docs/python.md has it.

    python scripts/benchmarks/frames.py [ROWS]

Each training is a process of its own. The table has its resident memory before the training, when
the rows are as the library holds them, and the highest during the training.
"""

import re
import subprocess
import sys
import tempfile
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

COLUMNS = 20
KINDS = {
    "pandas": "pandas",
    "pandas, types of Arrow": "pandas",
    "pyarrow `Table`": "pyarrow",
    "pyarrow `RecordBatchReader`": "pyarrow",
    "polars `DataFrame`": "polars",
    "polars `LazyFrame`": "polars",
    "DuckDB relation": "duckdb",
}


def rows_of(kind: str, path: str, names: list[str]) -> Any:
    """Return columns of a Parquet file as a library holds them."""
    if kind.startswith("pandas"):
        import pandas

        if kind == "pandas":
            return pandas.read_parquet(path, columns=names)
        return pandas.read_parquet(path, columns=names, dtype_backend="pyarrow")
    if kind.startswith("pyarrow"):
        from pyarrow import dataset, parquet

        if "Reader" in kind:
            return dataset.dataset(path).scanner(columns=names).to_reader()
        return parquet.read_table(path, columns=names)
    if kind.startswith("polars"):
        import polars

        return (
            polars.scan_parquet(path).select(names)
            if "Lazy" in kind
            else (polars.read_parquet(path, columns=names))
        )
    import duckdb

    return duckdb.connect().sql(f"SELECT {', '.join(names)} FROM '{path}'")


def status(name: str) -> float:
    """Return a number of this process's status, in MB."""
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def measure(kind: str, work: str, path: str) -> None:
    """Train, and print the MB before and at most."""
    import randsvm

    names = [f"x{j}" for j in range(COLUMNS)]
    y = np.fromfile(f"{path}.y")
    rows = rows_of(kind, path, names if work == "fit" else [*names, "y"])
    Path("/proc/self/clear_refs").write_text("5")
    before = status("VmRSS")
    if work == "fit":
        warnings.simplefilter("ignore")
        randsvm.LinearSVC(max_iter=1).fit(rows, y)
    else:
        how: dict[str, Any] = {"algorithm": "sgd", "epochs": 1, "memory": "128M"}
        randsvm.train(rows, label_column="y", **how)
    print(f"{before:,.0f} to {status('VmHWM'):,.0f}")


def main(rows: int) -> None:
    """Print the table."""
    import pyarrow
    from pyarrow import parquet

    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/t.parquet"
        X = np.random.default_rng(0).normal(size=(rows, COLUMNS))
        y = np.where(X[:, 0] > X[:, 1], 1.0, -1.0)
        y.tofile(f"{path}.y")
        table = {f"x{j}": X[:, j] for j in range(COLUMNS)} | {"y": y.astype(np.int64)}
        parquet.write_table(pyarrow.table(table), path)
        print(f"{rows:,} rows, {X.nbytes / 2**20:.0f} MB of float64")
        for kind, package in KINDS.items():
            found = []
            for work in ("fit", "train"):
                command = [sys.executable, __file__, kind, work, path]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                found.append(done.stdout.strip())
            print(f"| {kind} | {version(package)} | {' | '.join(found)} |", flush=True)


if __name__ == "__main__":
    if len(sys.argv) == 4:
        measure(*sys.argv[1:])
    else:
        main(*map(int, sys.argv[1:] or ["1000000"]))
