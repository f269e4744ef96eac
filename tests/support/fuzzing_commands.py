"""Damaged logs and random command lines, for fuzzing.py."""

import contextlib
import io
import json
import math
import os
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import oracle
from commands import run_train

from randsvm.cli import train as training
from randsvm.cli.report import Log, read_trials
from randsvm.errors import OutputError, RandsvmError
from randsvm.models.model_text import load
from randsvm.parameters.run import Search
from randsvm.parameters.svm import KernelParams
from randsvm.training.job import Job
from randsvm.training.search import Candidate, Scores

Damage = Callable[[bytes, random.Random], bytes]


def rows(folder: Path) -> None:
    """Write small data sets of every kind, and a file that no command may replace."""
    y, X = oracle.two_gaussians(24, d=3)
    oracle.write_svmlight(folder / "data", y, X)
    oracle.write_svmlight(folder / "targets", X[:, 0] * 1.5, X)
    (folder / "words").write_text(oracle.svmlight_text(["a", "b", "c"] * 8, X))
    (folder / "bad").write_text("1 1:x\n")
    (folder / "precious").write_text("+1 1:2\n")


# ---- logs ---------------------------------------------------------------------------------------


class Logs:
    """Check damaged logs: values that are read from one are numbers, and added lines are whole."""

    def __init__(self, folder: Path, damage: Damage) -> None:
        self.damage = damage
        rows(folder)
        self.path = folder / "damaged.jsonl"
        search = ("-v", 2, "-c", "1,2", "-g", 0.5, "--log", self.path)
        with contextlib.redirect_stdout(io.StringIO()):
            run_train("osuna", "-q", *search, folder / "data", folder / "m")
        self.valid = self.path.read_bytes()
        found = read_trials(str(self.path))
        summary = SimpleNamespace(digest=found[0]["digest"], labels=["1", "2"])
        self.D: Any = SimpleNamespace(n=24, summary=summary)
        self.words = {one["values"]["C"]: one["configuration"].split(" ") for one in found}
        self.candidates = [KernelParams(C=C) for C in self.words]

    def make(self, chance: random.Random) -> bytes:
        return self.damage(self.valid, chance)

    def check(self, content: bytes, chance: random.Random) -> str:
        self.path.write_bytes(content)
        job = Job(search=Search(folds=(2, 1), earlier=partial(read_trials, str(self.path))))
        words = lambda params, job: self.words[params.C]  # noqa: E731
        fits: Any = None  # No fold is fitted: what the log lacks stays without a score.
        scores: Any = Scores(self.D, KernelParams(), fits, job, words, math.inf)
        candidates = [Candidate(one, " ".join(self.words[one.C])) for one in self.candidates]
        for one, result in scores._usable_results(candidates).items():
            scores._emit_tried(one, number=1, of=2, resumed=True, **result)
        for one in scores.ranked:
            assert all(isinstance(score, float | int) for score in [*one.scores, one.score])
        try:
            log = Log(str(self.path))
        except OutputError as error:
            assert error.exit_code == 73
            assert "\n" not in str(error)
            assert self.path.read_bytes() == content
            return "refused"
        log.write('{"event": "notice", "text": "more"}\n')
        log.close()
        whole = self.path.read_bytes()
        assert whole.startswith(content)
        assert json.loads(whole.split(b"\n")[-2]) == {"event": "notice", "text": "more"}
        return "accepted"


# ---- command lines ------------------------------------------------------------------------------

VALUES = (
    "0", "1", "-1", "2", "3", "7", "0.5", "0.99", "1e-3", "1e-300", "1e300", "1e309", "nan", "inf",
    "", "x", "1,2", "0.1,0.9", ",", "auto", "balanced", "none", "rbf", "linear", "poly", "sigmoid",
    "svr", "one-class", "svc", "16M", "1G", "1s", "90m", "standard", "minmax", "unit", "hinge",
    "log", "ovr", "crammer-singer", "json", "a", "b", "old", "precious", "missing", "new", ".", "-",
    "no/such", "data", "18446744073709551616", "9" * 400, "\u00e9", "--", "-c",
)  # fmt: skip
SETS = (*["data"] * 9, "targets", "words", "bad", "missing", ".", "precious")
MODELS = (*["new", "old"] * 6, "precious", "data", ".", "no/such", "/dev/null")
ENDS = {2, 65, 66, 73, 75}


class Lines:
    """Check random command lines.

    Each writes a model that loads, or ends in one line of an error and its exit code. It changes no
    other file.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        rows(folder)
        run_train("osuna", "-q", folder / "data", folder / "old")
        self.kept = {
            path.name: path.read_bytes() for path in folder.iterdir() if path.name != "old"
        }
        self.old = (folder / "old").read_bytes()
        names = training.train.commands
        self.options = {name: names[name].params for name in names}

    def make(self, chance: random.Random) -> bytes:
        algorithm = chance.choice(list(self.options))
        words = [algorithm, "-q", "--time-limit", "2s"]
        named = [one for one in self.options[algorithm] if isinstance(one, click.Option)]
        for option in chance.sample(named, chance.randrange(5)):
            words.append(chance.choice(option.opts))
            count = 0 if option.is_flag else option.nargs
            words += [self._value(option.type, chance) for _ in range(count)]
        words += [chance.choice(SETS), chance.choice(MODELS)]
        return "\0".join(words).encode()

    def _value(self, kind: Any, chance: random.Random) -> str:
        """Return a value, often one that the option accepts."""
        if chance.random() < 0.3:
            return chance.choice(VALUES)
        words = getattr(kind, "choices", None) or getattr(kind, "words", None)
        return chance.choice([*filter(None, words)] if words else ("1", "2", "0.5", "1,2", "20M"))

    def check(self, content: bytes, chance: random.Random) -> str:
        words, here = content.decode().split("\0"), Path.cwd()
        os.chdir(self.folder)
        try:
            (self.folder / "old").write_bytes(self.old)
            with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO())):
                run_train(*words)
            if words[-1] in ("new", "old") and "--help" not in words:
                load(words[-1])
            return "accepted"
        except (RandsvmError, click.ClickException) as error:
            assert error.exit_code in ENDS, error
            text = error.format_message() if isinstance(error, click.ClickException) else str(error)
            assert text
            assert "\n" not in text.strip() or isinstance(error, click.NoSuchOption), text
            return "refused"
        finally:
            os.chdir(here)
            assert {name: (self.folder / name).read_bytes() for name in self.kept} == self.kept
            for path in self.folder.iterdir():
                if path.name not in {*self.kept, "old"} and path.is_file():
                    path.unlink()
