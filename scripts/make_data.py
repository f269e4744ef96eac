"""Make synthetic sets as svmlight files: KBH07's twonorm, ringnorm, checkerboard; unbalanced (one
row in six positive); sparse text; waveform and letters (3 and 26 classes); sinc and friedman
(regressions). incomes is a table as CSV, with texts and missing values.

Row i of a set depends on the seed and i alone, so a set of 100,000 rows is the beginning of the
set of 1,000,000 rows. Values are float32.
"""

from __future__ import annotations

import csv
import io
from typing import Any, NamedTuple

import click
import numpy as np

from randsvm import files
from randsvm.arrays import FEATURES, CsrMatrix
from randsvm.data import svmlight
from randsvm.errors import RandsvmError

BLOCK_ROWS = 10_000
DIMENSIONS = 20
SHIFT = 2 / np.sqrt(DIMENSIONS)

WORDS = 50_000  # the vocabulary of sparse
RELEVANT = 0.5  # the share of words that say something about the class
NOISE = 0.1  # standard deviation of the noise; that of w x is about 0.7

SINC_NOISE = 0.1


class Rows(NamedTuple):
    """Labels y (m,), and the rows as CSR: indptr (m + 1,), indices (nnz,) from 1, values (nnz,)."""

    y: np.ndarray
    indptr: np.ndarray
    indices: np.ndarray
    values: np.ndarray

    @classmethod
    def dense(cls, y: np.ndarray, X: np.ndarray) -> Rows:
        m, d = X.shape
        return cls(y, np.arange(m + 1) * d, np.tile(np.arange(1, d + 1), m), X.ravel())

    def first(self, m: int) -> Rows:
        nnz = self.indptr[m]
        return Rows(self.y[:m], self.indptr[: m + 1], self.indices[:nnz], self.values[:nnz])


def twonorm(rng: np.random.Generator, m: int) -> Rows:
    """Breiman's twonorm: N(a, I) against N(-a, I) in 20 dimensions, a = 2 / sqrt(20)."""
    y = rng.choice([-1, 1], m)
    return Rows.dense(y, rng.normal(size=(m, DIMENSIONS)) + SHIFT * y[:, None])


def ringnorm(rng: np.random.Generator, m: int) -> Rows:
    """KBH07's ringnorm as printed: N(1, 4 I) against N(a, I) in 20 dimensions, a = 2 / sqrt(20)."""
    y = rng.choice([-1, 1], m)
    X = rng.normal(size=(m, DIMENSIONS))
    return Rows.dense(y, np.where(y[:, None] > 0, 1 + 2 * X, SHIFT + X))


def checkerboard(rng: np.random.Generator, m: int) -> Rows:
    """KBH07's 4 x 4 board on [0, 4]^2: negative where ceil(x1) % 2 != ceil(x2) % 2."""
    X = rng.uniform(0, 4, (m, 2))
    parity = np.ceil(X) % 2
    return Rows.dense(np.where(parity[:, 0] != parity[:, 1], -1, 1), X)


def unbalanced(rng: np.random.Generator, m: int) -> Rows:
    """Twonorm with one positive row in six, its means a little nearer to each other."""
    y = np.where(rng.random(m) < 1 / 6, 1, -1)
    return Rows.dense(y, rng.normal(size=(m, DIMENSIONS)) + 0.92 * SHIFT * y[:, None])


def letters(rng: np.random.Generator, m: int) -> Rows:
    """26 classes of three clouds each in 16 features of 16 values each, as in Statlog's letter.

    With C = 4 and gamma = 1, 9,700 of 15,000 rows are support vectors; the test accuracy is 92%.
    """
    classes, clouds, d = 26, 3, 16
    centres = np.random.default_rng(5).normal(size=(classes, clouds, d)) * 0.35
    y, cloud = rng.integers(0, classes, m), rng.integers(0, clouds, m)
    X = np.clip(centres[y, cloud] + rng.normal(size=(m, d)) * 0.27, -1, 1)
    return Rows.dense(y + 1, np.round((X + 1) * 7.5) / 7.5 - 1)


def sparse(rng: np.random.Generator, m: int) -> Rows:
    """Like tf-idf of short texts: Zipf's law, about 14 of 50,000 words a row, rows of length 1.

    The label is the sign of w x + noise. w and the frequencies of the words are the same for every
    seed, so that another seed makes a test set.
    """
    fixed = np.random.default_rng(0)
    frequency = 1 / np.arange(1, WORDS + 1)
    frequency = fixed.permutation(frequency / frequency.sum())
    w = fixed.normal(size=WORDS) * (fixed.random(WORDS) < RELEVANT)
    lengths = 1 + rng.negative_binomial(3, 3 / 17.4, m)
    row = np.repeat(np.arange(m), lengths)
    word = rng.choice(WORDS, lengths.sum(), p=frequency)
    # One number for row and word: equal words of a row come together, in order.
    entries, times = np.unique(row * WORDS + word, return_counts=True)
    row, word = np.divmod(entries, WORDS)
    values = (1 + np.log(times)) * -np.log(frequency[word])
    values /= np.sqrt(np.bincount(row, values**2, m))[row]
    score = np.bincount(row, values * w[word], m) + rng.normal(scale=NOISE, size=m)
    indptr = np.searchsorted(row, np.arange(m + 1))
    return Rows(np.where(score > 0, 1, -1), indptr, word + 1, values)


def waveform(rng: np.random.Generator, m: int) -> Rows:
    """Breiman's waveform: each class mixes two of three triangles over 21 places, plus N(0, 1)."""
    triangles = np.maximum(0, 6 - np.abs(np.arange(21) - np.array([[6], [14], [10]])))
    label = rng.integers(3, size=m)
    share = rng.uniform(size=(m, 1))
    X = share * triangles[[0, 0, 1]][label] + (1 - share) * triangles[[1, 2, 2]][label]
    return Rows.dense(1 + label, X + rng.normal(size=X.shape))


def sinc(rng: np.random.Generator, m: int) -> Rows:
    """y = sin(x) / x + noise for x in [-10, 10], the usual example of support vector regression."""
    x = rng.uniform(-10, 10, m)
    return Rows.dense(np.sinc(x / np.pi) + rng.normal(scale=SINC_NOISE, size=m), x[:, None])


def friedman(rng: np.random.Generator, m: int) -> Rows:
    """Friedman's first function (1991) of 5 of 8 features in [0, 1], plus N(0, 1), scaled by its
    own mean 14.4 and standard deviation 5."""
    X = rng.random((m, 8))
    y = 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2
    y += 10 * X[:, 3] + 5 * X[:, 4] + rng.normal(size=m)
    return Rows.dense((y - 14.4) / 5, X)


INCOMES = ("id", "age", "sector", "education", "hours", "country", "income")
EDUCATION = ("10th grade", "High school", "Some college, no degree", "Bachelor", "Master", "PhD")
SECTORS = ("Private", "Self-employed", "Local government", "State, federal", "Without pay")
COUNTRIES = ("US", "MX", "PH", "DE")


def incomes(rng: np.random.Generator, start: int, m: int) -> list[tuple[Any, ...]]:
    """Make rows of persons: income above 50,000 depends on age, education, sector and hours."""
    age, level = rng.integers(17, 90, m), rng.integers(0, len(EDUCATION), m)
    sector = rng.choice(len(SECTORS), m, p=[0.7, 0.1, 0.1, 0.08, 0.02])
    country = rng.choice(len(COUNTRIES), m, p=[0.85, 0.08, 0.05, 0.02])
    hours = np.clip(rng.normal(40, 10, m).round(1), 1, 99)
    score = level + np.minimum(age, 110 - age) / 12 + (hours - 40) / 8 - 0.5 * (sector == 2)
    high = score + rng.normal(size=m) > 6.5
    known = rng.random(m) > 0.03
    return [
        (
            start + i,
            int(age[i]),
            SECTORS[sector[i]],
            EDUCATION[level[i]],
            float(hours[i]) if known[i] else None,
            COUNTRIES[country[i]],
            "high" if high[i] else "low",
        )
        for i in range(m)
    ]


# Name -> function that makes the set, and format of its labels.
SETS = {
    "twonorm": (twonorm, "{:+d}"),
    "ringnorm": (ringnorm, "{:+d}"),
    "checkerboard": (checkerboard, "{:+d}"),
    "unbalanced": (unbalanced, "{:+d}"),
    "letters": (letters, "{:d}"),
    "sparse": (sparse, "{:+d}"),
    "waveform": (waveform, "{:d}"),
    "sinc": (sinc, "{:.4f}"),
    "friedman": (friedman, "{:.4f}"),
}


def write_incomes(stream: files.Sink, rows: int, seed: int) -> None:
    """Write rows of `incomes` with the names of the columns."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(INCOMES)
    for start in range(0, rows, BLOCK_ROWS):
        made = incomes(np.random.default_rng([seed, start]), start, BLOCK_ROWS)
        writer.writerows(made[: rows - start])
        stream.write(text.getvalue().encode())
        text.seek(0)
        text.truncate()


@click.command()
@click.argument("name", type=click.Choice([*SETS, "incomes"]))
@click.argument("output")
@click.option("--rows", default=100_000, show_default=True, help="Number of rows.")
@click.option("--seed", default=0, show_default=True, help="Another seed is another set.")
def main(name: str, output: str, rows: int, seed: int) -> None:
    """Write ROWS rows of the set NAME to OUTPUT (- is standard output)."""
    try:
        with files.create_output(output) as stream:
            write(stream, name, rows, seed)
    except RandsvmError as error:
        raise click.ClickException(str(error)) from None


def write(stream: files.Sink, name: str, rows: int, seed: int) -> None:
    """Write a set to a stream."""
    if name == "incomes":
        write_incomes(stream, rows, seed)
        return
    made, spelling = SETS[name]
    for start in range(0, rows, BLOCK_ROWS):
        # A whole block is drawn even for a part of it: its rows must not depend on ROWS.
        block = made(np.random.default_rng([seed, start]), BLOCK_ROWS)
        y, indptr, indices, values = block.first(min(BLOCK_ROWS, rows - start))
        X = CsrMatrix(values, indices, indptr, (len(y), FEATURES))
        svmlight.write(stream, [spelling.format(label) for label in y.tolist()], X)


if __name__ == "__main__":
    main()
