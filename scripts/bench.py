"""Benchmarks of whole processes, ours beside its peers. What is measured and how: harness.py.

Writes results/bench-NAME.json and results/bench-NAME.md.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import sys
from pathlib import Path

import click
from harness import (
    Command,
    Comparison,
    MissingError,
    compare,
    data_option,
    find,
    made,
    output,
    plain,
)

RESULTS = Path(__file__).resolve().parents[1] / "results"
TRAIN, PREDICT = (str(Path(sys.executable).with_name(f"randsvm-{w}")) for w in ("train", "predict"))

NO_LIBLINEAR, NO_SKLEARN = (
    None if found else f"{peer} is not installed"
    for found, peer in (
        (shutil.which("liblinear-train"), "liblinear-train (Debian's liblinear-tools)"),
        (importlib.util.find_spec("sklearn"), "scikit-learn"),
    )
)

# Reads and learns the first file; given a second one, writes the accuracy on it.
SKLEARN_SGD = """
import sys
from sklearn.datasets import load_svmlight_files
from sklearn.linear_model import SGDClassifier
X, y, *test = load_svmlight_files(sys.argv[1:])
# scikit-learn 1.9 with scipy 1.17 reads 64-bit indices, which its SGDClassifier refuses.
X.indices, X.indptr = X.indices.astype("int32"), X.indptr.astype("int32")
# alpha = 1/(C n), C = 1; a fixed seed, as its accuracy differs by up to 2 points between seeds.
learnt = SGDClassifier(loss="hinge", alpha=1 / len(y), random_state=0).fit(X, y)
if test:
    print(f"Accuracy = {100 * learnt.score(*test)}%")
"""

# Real set -> its files for training and test.
REAL = {
    "reuters_acq": ("reuters_acq.train", "reuters_acq.test"),
    "a9a": ("a9a", "a9a.t"),
    "sms_spam": ("sms_spam.train", "sms_spam.test"),
    "reuters_r8": ("reuters_r8.train", "reuters_r8.test"),
    "satimage": ("satimage.scale", "satimage.scale.t"),
}
SPARSE_TEST_ROWS = 100_000
# Set -> by how many points of accuracy ours may be below a peer.
LINEAR = dict.fromkeys([*REAL, "sparse"], 0.2) | {"reuters_r8": 0.5, "satimage": 0.5}


def accuracy(*words: object) -> dict[str, float]:
    """Per cent, as LIBSVM's and LIBLINEAR's programs print it."""
    return {"accuracy": float(re.search(r"Accuracy = ([0-9.]+)%", output(*words))[1])}


def primal(model: Path) -> dict[str, float]:
    """P = 1/2 |w|^2 + C sum loss, from the trailer of our model."""
    return {"P": float(re.search(r"^# randsvm primal (.+)$", model.read_text(), re.M)[1])}


def parts(name: str, data: Path, rows: int, results: Path) -> tuple[Path, Path]:
    """The files of a set for training and test, as plain text."""
    if name in REAL:
        train, test = REAL[name]
        return plain(find(data, train), results), plain(find(data, test), results)
    return made(name, rows, 0, results), made(name, SPARSE_TEST_ROWS, 1, results)


def linear(name: str, train: Path, test: Path, results: Path) -> Comparison:
    """Hinge loss, C = 1, each program otherwise at its defaults; all of them only train."""
    ours, theirs = (results / f"{name}.{peer}.model" for peer in ("sgd", "liblinear"))
    sklearn = [sys.executable, "-c", SKLEARN_SGD, str(train)]
    commands = [
        Command(
            "randsvm-train sgd",
            [TRAIN, "sgd", str(train), str(ours)],
            lambda: accuracy(PREDICT, test, ours, "/dev/null") | primal(ours),
        ),
        Command(
            "liblinear-train -s 3 -B 1",
            ["liblinear-train", "-s", "3", "-B", "1", str(train), str(theirs)],
            lambda: accuracy("liblinear-predict", test, theirs, "/dev/null"),
            NO_LIBLINEAR,
        ),
        Command("SGDClassifier", sklearn, lambda: accuracy(*sklearn, test), NO_SKLEARN),
    ]
    return Comparison(name, commands, {"accuracy": LINEAR[name]})


@click.group()
def main() -> None:
    """Run ours and its peers in turn; compare quality, time and memory."""


@main.command()
@click.argument("sets", nargs=-1, type=click.Choice(list(LINEAR)))
@click.option(
    "--runs",
    default=3,
    show_default=True,
    type=click.IntRange(min=1),
    help="Counted runs of each command.",
)
@click.option("--rows", default=500_000, show_default=True, help="Rows of the sparse set.")
@click.option(
    "--results",
    default=RESULTS,
    type=click.Path(path_type=Path),
    help="Folder of tables, data and models.  [default: results]",
)
@data_option
def sgd(sets: tuple[str, ...], runs: int, rows: int, results: Path, data: Path) -> None:
    """Linear SVMs on SETS (all): randsvm-train sgd, liblinear-train, scikit-learn."""
    results.mkdir(parents=True, exist_ok=True)
    comparisons, skipped = [], []
    for name in sets or LINEAR:
        try:
            comparisons.append(linear(name, *parts(name, data, rows, results), results))
        except MissingError as error:
            skipped.append(error.message)
    compare("bench-sgd", comparisons, skipped, runs, results)


if __name__ == "__main__":
    main()
