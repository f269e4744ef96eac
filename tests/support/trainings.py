"""Folds, scores, searches and sigmoids of the package, given as plain arrays.

The only way from tests to the modules of randsvm.training and randsvm.algorithms.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rows import open_rows

import randsvm
from randsvm import files
from randsvm.algorithms import _sgd, sgd
from randsvm.algorithms.decomposition import Decomposition, osuna
from randsvm.algorithms.sgd import Learner, SgdSchedule
from randsvm.arrays import to_csr
from randsvm.data import sampling
from randsvm.data.dataset import Dataset
from randsvm.data.sampling import Draw
from randsvm.errors import WriteError
from randsvm.parameters.option import command_line
from randsvm.parameters.rounds import RandsvmParams, RoundsParams
from randsvm.parameters.run import DataParams, Resources, Search
from randsvm.parameters.svm import KernelParams
from randsvm.svm.linear_loss import Linear, with_share_outside
from randsvm.svm.solution import Certificate
from randsvm.training import cross_validation, kernel_machine, linear_machine, probabilities
from randsvm.training import search as searches
from randsvm.training.cross_validation import CrossValidation
from randsvm.training.job import Clock, Job, Stopped, StopReason, TimeLimitError
from randsvm.training.rounds import Algorithm, History, Rounds, total_certificate
from randsvm.training.run import labelled
from randsvm.training.small_pairs import small_pairs as solve_small_pairs
from randsvm.training.subtasks import Subtask, Subtasks


@contextmanager
def open_task(path: Path, kind: str = "svc", **options: Any) -> Iterator[Dataset]:
    """Open a data set as a training does. kind: "svr", "one-class", or another for classes."""
    task = kind if kind in ("svr", "one-class") else "svc"
    labels = "number" if kind == "svr" else "class"
    with open_rows(path, labels=labels, **options) as whole:
        yield labelled(whole, str(path), task)[0]


@contextmanager
def open_rounds(path: Path, **params: Any) -> Iterator[Rounds]:
    """Open a data set and the rounds of `randsvm` on its two classes. params: of KernelParams."""
    with open_task(path) as D:
        job = Job(stop=RoundsParams(gap=0.01), resources=Resources(jobs=1))
        task = Subtasks(D, KernelParams(**params), job.resources)[0]
        nonzeros = D.nnz / D.n
        algorithm = Algorithm("randsvm", RandsvmParams(), job, D.n, nonzeros, task.problem)
        rounds = Rounds(task, algorithm)
        yield rounds
        rounds.scan.forget()


def trained(rounds: Rounds) -> Any:
    """Return the solution of all rounds, as a training has it."""
    return rounds.certified(math.inf)


# ---- folds --------------------------------------------------------------------------------------


def _job(seed: int, search: Search) -> Job:
    return Job(data_params=DataParams(seed=seed), resources=Resources(jobs=1), search=search)


def splits_of(D: Dataset, seed: int = 0, **search: Any) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return masks of the training rows and of the held-out rows of each fold of a search.

    search: fields of Search, such as folds=5
    """
    folds = CrossValidation.of(D, _job(seed, Search(**search)))
    return [folds.rows(k) for k in folds.folds]


def folds_of(D: Dataset, seed: int = 0, **search: Any) -> list[np.ndarray]:
    """Return the number of the fold that holds out each row, for each repetition of a search."""
    return list(CrossValidation.of(D, _job(seed, Search(**search))).assigned)


def group_folds(groups: np.ndarray, y: np.ndarray, folds: int, seed: int) -> np.ndarray:
    """Return the number of the fold of each row; rows of a group stay together."""
    return cross_validation.assign_groups(groups, y, folds, Draw(seed, 1))


# The number of the fold of each of n rows in the order of time.
forward_folds = cross_validation.forward_folds
# The random rows of a data set that a search with --subset scores on.
subset_of = cross_validation.subset_of
# The fewest of these rows that have a number of groups.
rows_of_groups = cross_validation.rows_of_groups


def rows_of_subset(D: Dataset, rows: int) -> np.ndarray:
    """Return the numbers of these rows, for the seed 0."""
    return D.sample(Draw(0, sampling.SUBSET_DRAW), rows)


def decision_of_part(
    path: Path, part: np.ndarray, X: np.ndarray, **options: Any
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Train as a fold does on the rows of a file where `part` is true.

    Return the decision values of X, (m, columns), and the labels.
    """
    found = []

    def new_run(original: Any, trainer: Any, plan: Any, clock: Any) -> Any:
        decision = trainer.for_parts().fit(trainer.D.subset(part), plan.params)
        found.append((decision(to_csr(X)), trainer.labels))
        return original(trainer, plan, clock)

    with pytest.MonkeyPatch.context() as patch:
        for trainer in (kernel_machine.KernelTrainer, linear_machine.LinearTrainer):
            original = trainer.new_run
            patch.setattr(trainer, "new_run", lambda *words, of=original: new_run(of, *words))
        randsvm.train([path], **options)
    return found[0]


# ---- scores -------------------------------------------------------------------------------------


def score_of(
    name: str, classes: int, y: np.ndarray, f: np.ndarray, w: np.ndarray | None = None
) -> Any:
    """Return the score of decision values f by a metric of --select-by, with the loss of rows."""
    params = KernelParams("svr" if name.endswith("error") else "svc")
    labels = [str(label) for label in range(classes)]
    criterion = cross_validation.criterion_of(Search((5, 1), select_by=name), params, labels)
    kept = criterion.keep(f[:, None] if f.ndim == 1 else f, y)
    return criterion.of_fold(y, kept, np.ones(len(y)) if w is None else w)


# The combinations that a race drops.
significantly_worse = cross_validation.significantly_worse
# The mean of the scores of folds, and its standard error.
mean_and_error = cross_validation.mean_and_error
# The values of the simplest combination within one standard error of the best.
simplest_within_error = cross_validation.simplest_within_error


def search(
    D: Dataset,
    fit: Callable[[Dataset, Any], Any],
    grid: dict[str, Any],
    *,
    task: str = "svc",
    until: float = math.inf,
    folds: int = 3,
) -> tuple[Any, Any]:
    """Search a grid with fits by a function; return the results and the best parameters."""
    own = Search((folds, 1), None, tuple(grid.items())).resolved()
    job = Job(resources=Resources(jobs=1), search=own)
    params = KernelParams(task, gamma=0.5)

    def configuration(params: KernelParams, job: Job) -> list[str]:
        return command_line(params, job.search)

    @contextmanager
    def fits(D: Dataset, candidates: Any) -> Iterator[Any]:
        yield [partial(cross_validation.fit_anew, D, fit)], 1

    return searches.search(D, params, fits, job, configuration, until)


# ---- probabilities ------------------------------------------------------------------------------


# A and B of P(positive) = 1 / (1 + exp(A f + B)).
fit_sigmoid = probabilities.fit_sigmoid


# ---- notices ------------------------------------------------------------------------------------

OVERFITTED = kernel_machine.OVERFITTED
CONSTANT_DECISION = kernel_machine.CONSTANT_DECISION
POOR_FIT_NOTICES = kernel_machine.POOR_FIT_NOTICES


# ---- linear machines ----------------------------------------------------------------------------


def offset_for_share(D: Dataset, w: list[float], share: float) -> float:
    """Return b of the novelty detection with weights w for which a share of D has f <= 0."""
    found = with_share_outside(D, Linear(np.array(w)[:, None], np.zeros(1)), share)
    return float(found.b[0])


def refuse_some_writes(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Let the first `count` models that a training writes fail as on a full disk."""
    create, left = files.create_output, [count]

    def created(path: str, *words: Any, **options: Any) -> Any:
        if left[0]:
            left[0] -= 1
            raise WriteError(f"writing {path}: No space left on device")
        return create(path, *words, **options)

    monkeypatch.setattr(files, "create_output", created)


# ---- subtasks -----------------------------------------------------------------------------------


def refuse_subtasks(patch: pytest.MonkeyPatch) -> None:
    """Let any reading of the rows of a binary problem fail."""

    def refused(*_: Any) -> None:
        raise AssertionError("read for nothing")

    patch.setattr(Subtasks, "__getitem__", refused)


def certificates_of_small_pairs(patch: pytest.MonkeyPatch) -> dict[str, Certificate]:
    """Return a dictionary that has, after a training, the certificate of each pair of classes that
    was solved together with others, by its name."""
    found, actual = dict[str, Certificate](), solve_small_pairs

    def small_pairs(subtasks: Subtasks, *given: Any) -> Iterator[Any]:
        for some in actual(subtasks, *given):
            for number, one in some.solutions.items():
                found[subtasks.name_of(number)] = one.certificate
            yield some

    patch.setattr(kernel_machine, "small_pairs", small_pairs)
    return found
