"""Find or make the data sets of the benchmarks as plain files."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

import click

from randsvm import files

SCRIPTS = Path(__file__).resolve().parents[1]
RESULTS = SCRIPTS.parent / "results"
REAL_DATA = SCRIPTS.parents[1] / "shared/data"
REAL_FOLDER = "real"  # below results: what real_data.py makes

# Real set -> its files for training and test.
REAL = {
    "reuters_acq": ("reuters_acq.train", "reuters_acq.test"),
    "a9a": ("a9a", "a9a.t"),
    "sms_spam": ("sms_spam.train", "sms_spam.test"),
    "reuters_r8": ("reuters_r8.train", "reuters_r8.test"),
    "satimage": ("satimage.scale", "satimage.scale.t"),
}

data_option = click.option(
    "--data",
    envvar="RANDSVM_DATA",
    default=REAL_DATA,
    type=click.Path(path_type=Path),
    help="Folder of the real sets.  [default: RANDSVM_DATA, else ../shared/data]",
)
results_option = click.option(
    "--results",
    default=RESULTS,
    type=click.Path(path_type=Path),
    help="Folder of tables, data and models.  [default: results]",
)


class MissingError(click.ClickException):
    """A data set is missing."""


def find(folder: Path, name: str) -> Path:
    """Return the path of the set `name` in `folder`, plain or .xz. Raises MissingError."""
    for path in (folder / name, folder / f"{name}.xz"):
        if path.exists():
            return path
    raise MissingError(f"{name}: neither it nor {name}.xz is in {folder} (--data, RANDSVM_DATA)")


def plain(source: Path, into: Path) -> Path:
    """Return `source`, decompressed to the folder `into` if it is .xz: peers do not read xz."""
    if source.suffix != ".xz":
        return source
    target = into / source.stem
    if _outdated(target, source):
        with files.open_input(str(source)) as packed, files.create_output(str(target)) as text:
            shutil.copyfileobj(packed, text)
    return target


def made(name: str, rows: int, seed: int, into: Path) -> Path:
    """Make a set of make_data.py in the folder `into`, if it is not there; return its path."""
    maker, target = SCRIPTS / "make_data.py", into / f"{name}.{rows}.{seed}"
    if _outdated(target, maker):
        click.echo(f"making {target}", err=True)
        words: list[str | Path] = [sys.executable, maker, name, target, "--rows", f"{rows}"]
        words += ["--seed", f"{seed}"]
        if subprocess.run(words).returncode:
            raise click.ClickException(f"{target} could not be made")
    return target


def fetched(name: str, into: Path) -> tuple[Path, Path]:
    """Return the files of a set of real_data.py for training and test. Raises MissingError."""
    train, test = (into / REAL_FOLDER / f"{name}.{part}" for part in ("train", "test"))
    if not (train.exists() and test.exists()):
        raise MissingError(f"{name}: `make data-real` fetches it")
    return train, test


def first(path: Path, rows: int, into: Path) -> Path:
    """Return a file of the first `rows` rows of a set, or the set itself if it has no more."""
    with path.open("rb") as lines:
        if sum(1 for _ in islice(lines, rows + 1)) <= rows:
            return path
        lines.seek(0)
        return _write(islice(lines, rows), into / f"{path.name}.{rows}")


def sample(path: Path, share: float, into: Path) -> Path:
    """Return a file of a random share of the rows of a set, in their order."""
    with path.open("rb") as lines:
        rows = sum(1 for _ in lines)
        chosen = set(random.Random(0).sample(range(rows), round(share * rows)))
        lines.seek(0)
        kept = (line for row, line in enumerate(lines) if row in chosen)
        return _write(kept, into / f"{path.name}.{share:g}")


def _write(lines: Iterable[bytes], target: Path) -> Path:
    with target.open("wb") as out:
        out.writelines(lines)
    return target


def _outdated(target: Path, source: Path) -> bool:
    return not target.exists() or target.stat().st_mtime < source.stat().st_mtime
