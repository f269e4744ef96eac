"""Test the peaks of memory that README states: of whole processes, and of growing arrays."""

import gzip
import subprocess
import sys
import tracemalloc

import numpy as np
import oracle
import pandas as pd
import pytest
from databases import duckdb_file
from libsvm import svm, svmutil
from model_files import count_of

MEGABYTE = 10**6

# A small parent starts the command: a new process counts its parent's memory as its own.
MEASURED = """
import resource, subprocess, sys
code = subprocess.call([sys.executable, "-m", *sys.argv[1:]], stdout=subprocess.DEVNULL)
print(code, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def peak(folder, *words):
    """Return the peak memory of a command in MB."""
    ended = subprocess.run(
        [sys.executable, "-c", MEASURED, *map(str, words)],
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
    )
    code, kilobytes = ended.stdout.split()
    assert code == "0", ended.stderr
    unit = 1 if sys.platform == "darwin" else 1024
    return int(kilobytes) * unit / MEGABYTE


def test_the_largest_subproblem_of_a_regression_stays_within_the_stated_memory(
    tmp_path,
):
    n, random = 8000, np.random.default_rng(0)
    X = random.normal(size=(n, 5)).round(3)
    y = np.sin(3 * X[:, 0]) + random.normal(size=n)
    with (tmp_path / "data").open("w") as file:
        for target, row in zip(y, X, strict=True):
            pairs = " ".join(f"{j + 1}:{value:g}" for j, value in enumerate(row))
            file.write(f"{target:.4f} {pairs}\n")
    words = ("randsvm.cli.train", "-s", "svr", "--sample-size", 3000, "--max-iterations", 2)
    found = peak(tmp_path, *words, "--memory", "16M", "data", "m")
    assert found < 16 * 1.05 + 16 * n / MEGABYTE + 300


def wide_rows(folder):
    """Write 60,000 rows with 20 of 1.2 million features."""
    with (folder / "data").open("w") as file:
        for i in range(60_000):
            pairs = " ".join(f"{j + 1}:{1 + i % 2}" for j in range(20 * i, 20 * i + 20))
            file.write(f"{i % 2} {pairs}\n")
    return 60_000


def long_weights(folder):
    """Write 2,000 rows, and their weights between 400 MB of comments."""
    (folder / "data").write_text("".join(f"{i % 2} 1:{i}\n" for i in range(2000)))
    comment = b"#" * 999 + b"\n"
    with gzip.open(folder / "weights", "wb", 1) as file:
        file.write(b"1\n" * 1000)
        for _ in range(400):
            file.write(comment * 1000)
        file.write(b"1\n" * 1000)
    return 2000


@pytest.mark.parametrize(
    ("write", "words"),
    [
        (wide_rows, "sgd --epochs 1 --scale standard"),
        (long_weights, "sgd --epochs 1 --row-weights weights"),
    ],
)
def test_the_worst_shapes_of_data_stay_within_the_stated_memory(tmp_path, write, words):
    n = write(tmp_path)
    found = peak(tmp_path, "randsvm.cli.train", *words.split(), "--memory", "64M", "data", "m")
    assert found < 64 * 1.05 + 16 * n / MEGABYTE + 300


def test_a_prediction_with_many_support_vectors_takes_at_most_300_mb(tmp_path):
    """As dense float64 rows, the support vectors would take 240 MB more."""
    n, rows = 30_000, []
    for i in range(n):
        columns = sorted((37 * i + 41 * k) % 1000 for k in range(22))
        rows.append(" ".join(f"{column + 1}:1" for column in columns))
    (tmp_path / "data").write_text("".join(f"1 {row}\n" for row in rows[:50]))
    head = (
        f"svm_type c_svc\nkernel_type rbf\ngamma 0.05\nnr_class 2\ntotal_sv {n}\nrho 0\n"
        f"label 1 -1\nnr_sv {n // 2} {n // 2}\nSV\n"
    )
    lines = [f"{1 if i < n // 2 else -1} {row} \n" for i, row in enumerate(rows)]
    (tmp_path / "model").write_text(head + "".join(lines))
    assert peak(tmp_path, "randsvm.cli.predict", "data", "model", "out") < 300


TABLE = (
    *("randsvm.cli.train", "sgd", "--epochs", "1", "--memory", "16M"),
    *("--label-column", "y", "--ignore-columns", "name"),
)


def write_table(path, n):
    """Write n rows of 12 numbers, 4 texts and a name as CSV, as Parquet in one row group, or as a
    table of DuckDB.
    """
    random = np.random.default_rng(0)
    columns = {f"x{j}": random.normal(size=n).round(4) for j in range(12)}
    columns |= {f"t{j}": random.choice([f"word {i}" for i in range(9)], n) for j in range(4)}
    columns["y"] = random.choice(["yes", "no"], n)
    columns["name"] = [f"person {i:012d}" for i in range(n)]
    frame = pd.DataFrame(columns)
    if path.suffix == ".csv":
        frame.to_csv(path, index=False)
    elif path.suffix == ".duckdb":
        duckdb_file(path, rows=frame)
    else:
        frame.to_parquet(path, row_group_size=n)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["csv", "parquet", "duckdb"])
def test_four_times_the_rows_of_a_table_take_no_more_memory(tmp_path, form):
    """The peak grows by 17 bytes a row at most, while parsed rows take 60 MB more.

    pyarrow's threads make it vary by 20 MB from run to run.
    """
    n = 120_000
    peaks, how = [], ("--format", form)
    if form == "duckdb":
        for module in ("duckdb", "adbc_driver_manager"):
            pytest.importorskip(module)
        how = "--sql", "SELECT * FROM rows"
    for rows_of_table in (n, 4 * n):
        data = tmp_path / f"{rows_of_table}.{form}"
        write_table(data, rows_of_table)
        model = tmp_path / f"{rows_of_table}.model"
        training = peak(tmp_path, *TABLE, *how, "-q", data, model)
        words = "randsvm.cli.predict", *how, "--keep", "x0,name", "-q"
        peaks.append((training, peak(tmp_path, *words, data, model, tmp_path / "out.csv")))
        (tmp_path / "out.csv").unlink()
    (training, predicting), (more_training, more_predicting) = peaks
    assert more_training - training < 17 * 3 * n / MEGABYTE + 45
    assert more_predicting - predicting < 9 * 3 * n / MEGABYTE + 30


@pytest.mark.slow
def test_a_prediction_of_parquet_takes_at_most_300_mb(tmp_path):
    """The table is wide, and the model has 20,000 support vectors."""
    n, random = 21_500, np.random.default_rng(0)
    columns = {f"x{j}": random.normal(size=n).round(4) for j in range(12)}
    columns |= {f"t{j}": random.choice([f"word {i}" for i in range(13)], n) for j in range(28)}
    columns["y"] = random.choice(["yes", "no"], n)
    data, model = tmp_path / "data.parquet", tmp_path / "model"
    frame = pd.DataFrame(columns)
    frame.to_parquet(data, row_group_size=n)
    # So narrow a kernel gives each row the coefficient C.
    training = ("randsvm.cli.train", "-g", "9", "-c", "0.1", "--gap", "0.1", "--memory", "2G")
    peak(tmp_path, *training, "--format", "parquet", "--label-column", "y", "-q", data, model)
    head = model.read_text().partition("SV\n")[0]
    assert int(head.split("total_sv ")[1].split()[0]) > 20_000
    some = tmp_path / "some.parquet"
    frame[:8000].to_parquet(some, row_group_size=n)
    assert peak(tmp_path, "randsvm.cli.predict", "-q", some, model, tmp_path / "out") < 300


def test_a_prediction_with_300_classes_takes_no_array_of_all_rows_and_pairs(tmp_path):
    """That array takes 370 MB, and a prediction needs several of them at once."""
    classes, n, random = 300, 1030, np.random.default_rng(0)
    head = "svm_type c_svc\nkernel_type rbf\ngamma 1\nnr_class 300\ntotal_sv 300\n"
    rows = [("rho", random.normal(size=classes * (classes - 1) // 2).round(4))]
    rows += [("label", range(1, classes + 1)), ("nr_sv", [1] * classes)]
    lines = [" ".join([name, *map(str, values)]) for name, values in rows]
    coefficients = random.normal(size=(classes, classes - 1)).round(3)
    for beta, z in zip(coefficients, random.normal(size=(classes, 2)).round(3), strict=True):
        lines.append(" ".join([*map(str, beta), f"1:{z[0]} 2:{z[1]} "]))
    lines.insert(3, "SV")
    (tmp_path / "m").write_text(head + "\n".join(lines) + "\n")
    X = random.normal(size=(n, 2)).round(3)
    oracle.write_svmlight(tmp_path / "d", np.ones(n), X)
    assert peak(tmp_path, "randsvm.cli.predict", "-q", "d", "m", "out") < 350
    model = svmutil.svm_load_model(str(tmp_path / "m"))
    found = (tmp_path / "out").read_text().split()
    for row in range(0, n, 10):
        nodes, _ = svm.gen_svm_nodearray(dict(enumerate(X[row].tolist(), start=1)))
        assert int(found[row]) == svm.libsvm.svm_predict(model, nodes)


def test_the_counts_of_10_000_classes_take_no_matrix_of_all_pairs():
    classes, random = 10_000, np.random.default_rng(0)
    y, weights = random.integers(0, classes, (3, 500)), random.random((3, 500)) + 0.5
    predicted = np.where(random.random((3, 500)) < 0.7, y, random.integers(0, classes, (3, 500)))
    counts = count_of("classes", classes)
    tracemalloc.start()
    for block in zip(y.astype(float), np.zeros((3, 500, 1)), predicted, weights, strict=True):
        counts.add(*block)
    correct, accuracy = counts.correct, counts.accuracy
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 5 * MEGABYTE
    assert correct == np.count_nonzero(y == predicted)
    assert accuracy == pytest.approx(100 * weights[y == predicted].sum() / weights.sum())
