"""Print digests of what the commands write: a change that keeps all results keeps every line.

    python scripts/digests.py > before.txt
    python scripts/digests.py --against before.txt

A line is a run's name, the digest of what training wrote (model file, standard output, log) and of
what prediction wrote (output file, standard output). Versions and seconds are left out. Digests
are a machine's own: another processor, numpy or BLAS may round otherwise, so compare on the same.
"""

from __future__ import annotations

import gzip
import hashlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np

DATA = Path(__file__).resolve().parents[1] / "data"
TRAIN, PREDICT = (str(Path(sys.executable).with_name(f"randsvm-{w}")) for w in ("train", "predict"))

SEED = 20071206
DIGITS = 16  # printed of each digest
SHOWN = 500  # characters of the error output of a failed command
UNKNOWN = 20  # rows without a label at the start of a test file

# Lines of a model that change with the version alone.
VERSION = re.compile(rb"^# randsvm (version|sha256) .*\n", re.M)
# What differs between equal runs: times, memory, and the names of runs.
VARYING = re.compile(
    rb'("(?:\w*seconds|peak_memory)": )[0-9.e+-]+|("(?:time|run|version)": )"[^"]*"'
)


# ---- data -------------------------------------------------------------------------------------

# A label, indices and values of a row.
Row = tuple[str, Sequence[int], Sequence[float]]


def dense(labels: Iterable[str], X: np.ndarray, first: int = 1) -> Iterator[Row]:
    """All values of X, with indices from `first` on."""
    indices = range(first, first + X.shape[1])
    for label, values in zip(labels, X.tolist(), strict=True):
        yield label, indices, values


def signs(positive: np.ndarray) -> list[str]:
    return ["+1" if one else "-1" for one in positive]


def noisy(rng: np.random.Generator, n: int, first: int = 1) -> Iterator[Row]:
    """Two classes, a tenth of the labels wrong."""
    X = rng.normal(size=(n, 6))
    wrong = rng.random(n) < 0.1
    return dense(signs((X[:, 0] * X[:, 1] + X[:, 2] > 0) ^ wrong), X, first)


def zero_based(rng: np.random.Generator, n: int) -> Iterator[Row]:
    """The same with indices from 0 on."""
    return noisy(rng, n, first=0)


def text(rng: np.random.Generator, n: int) -> Iterator[Row]:
    """Counts of frequent and rare words; the labels are words, too."""
    spam = rng.random(n) < 0.4
    words = (2000 * rng.random((n, 25)) ** 3).astype(int)
    words |= spam[:, None] & (rng.random(words.shape) < 0.3)  # spam prefers odd words
    for is_spam, row in zip(spam.tolist(), words, strict=True):
        indices, counts = np.unique(row, return_counts=True)
        yield "spam" if is_spam else "ham", (indices + 1).tolist(), np.log1p(counts).tolist()


def three(rng: np.random.Generator, n: int) -> Iterator[Row]:
    """Three classes of different size that overlap, on features of different scale."""
    k = rng.choice(3, size=n, p=[0.6, 0.3, 0.1])
    X = (rng.normal(size=(n, 5)) + 1.2 * np.eye(3, 5)[k]) * [1, 10, 0.1, 3, 1] + [0, 5, 0, 0, 0]
    return dense(map(str, (k + 1).tolist()), X)


def curve(rng: np.random.Generator, n: int) -> Iterator[Row]:
    """Regression: a wave and a slope."""
    X = rng.uniform(-2, 2, size=(n, 3))
    y = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + rng.normal(scale=0.1, size=n)
    return dense((f"{value:.5g}" for value in y.tolist()), X)


def usual(rng: np.random.Generator, n: int) -> Iterator[Row]:
    """Rows for novelty detection: a cloud with a twentieth of outliers."""
    odd = rng.random(n) < 0.05
    return dense(signs(~odd), 2 + rng.normal(size=(n, 4)) * np.where(odd, 4, 1)[:, None])


def large(rng: np.random.Generator, n: int) -> Iterator[Row]:
    """Two classes in rows that, once parsed, go to a spill file with --memory 16M."""
    X = rng.normal(size=(n, 20))
    return dense(signs(X[:, :5].sum(axis=1) + rng.normal(size=n) > 0), X)


# Rows to train on and to predict.
SETS: dict[str, tuple[Callable[[np.random.Generator, int], Iterator[Row]], int, int]] = {
    "noisy": (noisy, 3000, 600),
    "zero-based": (zero_based, 1000, 200),
    "text": (text, 2500, 500),
    "three": (three, 1500, 400),
    "curve": (curve, 1500, 300),
    "usual": (usual, 1500, 300),
    "large": (large, 56000, 500),
}


def svmlight(label: str, indices: Sequence[int], values: Sequence[float]) -> str:
    return " ".join([label, *(f"{i}:{v:.6g}" for i, v in zip(indices, values, strict=True))]) + "\n"


def write_set(name: str, folder: Path) -> None:
    """NAME.train and NAME.test; the first rows to predict have no label."""
    rows, train, test = SETS[name]
    rng = np.random.default_rng([SEED, list(SETS).index(name)])
    with (folder / f"{name}.train").open("w") as stream:
        stream.writelines(svmlight(*row) for row in rows(rng, train))
    with (folder / f"{name}.test").open("w") as stream:
        for number, (label, indices, values) in enumerate(rows(rng, test)):
            stream.write(svmlight("?" if number < UNKNOWN else label, indices, values))


def write_data(folder: Path) -> None:
    """Every set, those of data/, and one compressed."""
    for name in SETS:
        write_set(name, folder)
    for source in DATA.glob("*.svm"):
        for part in ("train", "test"):
            shutil.copyfile(source, folder / f"{source.stem}.{part}")
    for part in ("train", "test"):
        packed = gzip.compress((folder / f"noisy.{part}").read_bytes(), mtime=0)
        (folder / f"noisy-gzip.{part}").write_bytes(packed)


# ---- runs -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """One training and one prediction.

    data: the set. train, predict: words of the commands before the files. after: the run that
    must come before, whose model or cache it takes. stdin: the files come as standard input.
    """

    data: str
    train: str
    predict: str = ""
    after: str = ""
    stdin: bool = False


GAP = "randsvm --gap 0.001 -g 0.2"

RUNS = {
    "rbf": Run("checkerboard", "randsvm -g 5", "--metrics"),
    "linear": Run("text", "randsvm -t linear", "--metrics"),
    "poly": Run("noisy", "randsvm -t poly -d 2 -r 1 -g 0.2 -e 0.01 -h 0"),
    "sigmoid": Run("twonorm", "randsvm -t sigmoid -g 0.01"),
    "gap": Run("noisy", f"{GAP} --sample-size 800 --log gap.jsonl --report json", "--report json"),
    "gap-growing": Run("noisy", "osuna --gap 0.001 -g 0.2", "--scores"),
    "support-bound": Run("noisy", "randsvm -g 0.2 -k 300 --sample-size 500 --seed 7"),
    "osuna": Run("checkerboard", "osuna --working-set 200 -g 5 --log osuna.jsonl", "--scores"),
    "osuna-closest": Run("checkerboard", "osuna-closest --swap 10 --working-set 700 -g 5"),
    "weight": Run("noisy", f"{GAP} -w1 10", "--metrics --report json"),
    "balanced": Run("three", "randsvm -g 0.1 --scale standard -w balanced", "--metrics"),
    "three": Run("three", "randsvm -g 0.3 --sample-size 600 --gap 0.01", "--scores"),
    "three-osuna": Run("three", "osuna -g 0.1 --working-set 400 --scale standard --gap 0.01"),
    "three-probability": Run("three", "randsvm -g 0.1 --scale minmax -b 1", "-b 1"),
    "probability": Run("checkerboard", "randsvm -b 1 -g 5", "-b 1 --metrics --report json"),
    "svr": Run("curve", "randsvm -s svr -p 0.05 -g 0.5 --sample-size 500 --gap 0.001"),
    "svr-osuna": Run("curve", "osuna -s svr -t poly -r 1 -g 0.3 --working-set 300 --gap 0.01"),
    "one-class": Run("usual", "randsvm -s one-class -n 0.1 -g 0.1", "--scores"),
    "one-class-osuna": Run("usual", "osuna -s one-class -n 0.2 -g 0.1 --working-set 200"),
    "unit": Run("text", "randsvm --scale unit -g 1 --gap 0.01 --time-limit 1h"),
    "features-rbf": Run("noisy", "randsvm -t rbf -g 0.2 --components 60 --gap 0.05"),
    "zero-based": Run("zero-based", "randsvm --zero-based -g 0.2", "--scores"),
    "gzip": Run("noisy-gzip", GAP),
    "stdin": Run("noisy", GAP, stdin=True),
    "jobs-1": Run("noisy", f"{GAP} --jobs 1", "--jobs 1"),
    "jobs-2": Run("noisy", f"{GAP} --jobs 2", "--jobs 2"),
    "cache-first": Run("noisy", f"{GAP} --cache noisy.cache"),
    "cache-second": Run("noisy", f"{GAP} --cache noisy.cache", after="cache-first"),
    "warm-start": Run("noisy", f"{GAP} --warm-start support-bound.model", after="support-bound"),
    "spill": Run("large", "randsvm -t linear --gap 0.1 --max-iterations 5 --memory 16M"),
    "grid": Run("checkerboard", "randsvm -v 3 -c 1,4 -g 5"),
    "grid-subset": Run("curve", "osuna -s svr -p 0.1,0.2 -g 0.5,1 --subset 900 --report json"),
    "sgd": Run("twonorm", "sgd --log sgd.jsonl --report json", "--scores"),
    "sgd-words": Run("text", "sgd --average -w spam 2 --seed 3", "--metrics"),
    "sgd-squared": Run("text", "sgd --loss squared-hinge"),
    "sgd-log": Run("text", "sgd --loss log --scale unit --lambda 1e-3", "-b 1"),
    "sgd-early": Run("noisy", "sgd --early-stopping 0.1 -b 1", "-b 1"),
    "sgd-three": Run("three", "sgd --scale standard -w balanced", "--metrics --scores"),
    "sgd-crammer-singer": Run("three", "sgd --scale minmax --multiclass crammer-singer"),
    "sgd-svr": Run("curve", "sgd -s svr -p 0.05 --epochs 5", "--report json"),
    "sgd-one-class": Run("usual", "sgd -s one-class -t rbf -g 0.05 --components 64", "--scores"),
    "sgd-rbf": Run("checkerboard", "sgd -t rbf -g 5 --components 200", "--scores"),
    "sgd-poly": Run("noisy", "sgd -t poly -d 2 -r 1 --components 100", "--scores"),
    "sgd-update": Run("twonorm", "sgd --update sgd.model", after="sgd", stdin=True),
    "sgd-grid": Run("twonorm", "sgd -v 4 --lambda 1e-2,1e-3 --jobs 2"),
    "sgd-spill": Run("large", "sgd --epochs 3 --memory 16M", "--metrics"),
    "sgd-memory": Run("large", "sgd --epochs 3", "--metrics"),
}


def output(words: Sequence[str], folder: Path, stdin: Path | None) -> bytes:
    """What a command prints on standard output, without its times."""
    with (stdin or folder / "empty").open("rb") as stream:
        done = subprocess.run(words, cwd=folder, stdin=stream, capture_output=True)
    if done.returncode:
        said = done.stderr.decode(errors="replace")[-SHOWN:]
        raise click.ClickException(f"{shlex.join(words)}: exit {done.returncode}\n{said}")
    return VARYING.sub(rb"\1\2-", done.stdout)


def command(program: str, words: str, run: Run, part: str, *into: str, folder: Path) -> bytes:
    """Run a program on the set's part "train" or "test"; return what it prints."""
    source = f"{run.data}.{part}"
    call = [program, *words.split(), "-q", "-" if run.stdin else source, *into]
    return output(call, folder, folder / source if run.stdin else None)


def train(name: str, folder: Path) -> bytes:
    """Write NAME.model, after the model that it starts from; return all that must stay the same."""
    run = RUNS[name]
    if run.after and not (folder / f"{run.after}.model").exists():
        train(run.after, folder)
    printed = command(TRAIN, run.train, run, "train", f"{name}.model", folder=folder)
    model = VERSION.sub(b"", (folder / f"{name}.model").read_bytes())
    log = folder / f"{name}.jsonl"
    return printed + model + (VARYING.sub(rb"\1\2-", log.read_bytes()) if log.exists() else b"")


def predict(name: str, folder: Path) -> bytes:
    """Write NAME.out; return all that must stay the same."""
    run = RUNS[name]
    files = f"{name}.model", f"{name}.out"
    printed = command(PREDICT, run.predict, run, "test", *files, folder=folder)
    return printed + (folder / f"{name}.out").read_bytes()


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:DIGITS]


def digests(names: Iterable[str]) -> Iterator[str]:
    """The line of each run."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_data(folder)
        (folder / "empty").touch()
        for name in names:
            both = digest(train(name, folder)), digest(predict(name, folder))
            yield f"{name:20s} {' '.join(both)}"


# ---- comparison -------------------------------------------------------------------------------


def faults(found: dict[str, str], earlier: dict[str, str]) -> list[str]:
    """Return a line for each run whose digests differ."""
    return [
        f"{name}: {found.get(name, 'missing')}, was {earlier.get(name, 'missing')}"
        for name in {**earlier, **found}
        if found.get(name) != earlier.get(name)
    ]


def columns(lines: Iterable[str]) -> dict[str, str]:
    """Name -> digests."""
    parts = (line.split() for line in lines)
    return {name: " ".join(rest) for name, *rest in parts}


@click.command(help=__doc__.splitlines()[0])
@click.option("--only", multiple=True, metavar="NAME...", help="These runs alone.")
@click.option("--against", type=click.File(), help="Compare with this earlier output.")
@click.argument("more", nargs=-1, metavar="")
def main(only: tuple[str, ...], more: tuple[str, ...], against: Iterable[str] | None) -> None:
    only += more
    if unknown := set(only) - RUNS.keys():
        raise click.UsageError(f"no run is called {', '.join(sorted(unknown))}")
    earlier = columns(against) if against else {}
    lines = []
    for line in digests(only or RUNS):
        click.echo(line)
        lines.append(line)
    if against:
        chosen = {name: both for name, both in earlier.items() if not only or name in only}
        if differing := faults(columns(lines), chosen):
            raise click.ClickException("\n".join(["these differ", *differing]))


if __name__ == "__main__":
    main()
