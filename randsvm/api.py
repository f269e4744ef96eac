"""What a command or a Python user calls: paths and parameters in, a model file out.

Turns names into objects, calls one algorithm, reports through one callable. Never prints.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace

import numpy as np

from randsvm import __version__, dataset, files, svmlight
from randsvm.algorithms.randsvm import randsvm
from randsvm.collectors import Draws
from randsvm.dataset import Dataset, Reading
from randsvm.events import Notice, Progress, Watch, listening, silent, tell
from randsvm.kernels import slices
from randsvm.model import Known, Model
from randsvm.params import Params, RandsvmParams, Resources, Run, command_line
from randsvm.scan import Certificate, Violators, evaluate
from randsvm.solution import SV
from randsvm.stopping import Stop, support_bound

# Rows that one prediction task holds; a block of text is several of them.
PREDICT_ROWS = 1024


@dataclass(frozen=True)
class Started:
    """Reading is over; everything that was left open is resolved."""

    algorithm: str
    configuration: list[str]
    n: int
    d: int
    nnz: int
    seconds: float


@dataclass(frozen=True)
class Iteration:
    """One solve and the scan after it. The certificate is of the whole data set."""

    number: int
    seconds: float
    support_vectors: int
    bounded: int
    violators: int
    certificate: Certificate


@dataclass(frozen=True)
class Trained:
    """How training ended; the certificate is of the model as written."""

    iterations: int
    support_vectors: int
    bounded: int
    violators: int
    certificate: Certificate
    stopped: str
    seconds: float


def train_randsvm(
    data: str,
    model: str,
    params: Params,
    algorithm: RandsvmParams,
    run: Run | None = None,
    resources: Resources | None = None,
    watch: Watch = silent,
) -> Trained:
    """Train a C-SVC on the svmlight file `data` with Algorithm 1 of KBH07; write it to `model`.

    Raises the errors of randsvm.errors; on any error `model` is untouched.
    """
    run, resources = run or Run(), resources or Resources()
    began = time.perf_counter()
    files.check_output(model)
    reading = Reading(zero_based=run.zero_based)
    with listening(watch), closing(dataset.load(data, reading, resources)) as whole:
        D = dataset.two_classes(whole, data)
        params = replace(params.resolved(D.d), cache=resources.libsvm_megabytes)
        algorithm = algorithm.resolved(D.n)
        assert algorithm.support_bound and algorithm.sample_size
        configuration = command_line(params, algorithm, run)
        clock = _Clock(began)
        tell(Started("randsvm", configuration, D.n, D.d, D.nnz, clock.seconds))
        _tell_peculiarities(D, params)
        rng = Draws(run.seed)
        stop = Stop([support_bound(algorithm.support_bound)])
        SV = randsvm(D, algorithm.sample_size, stop, params, rng, clock.iteration)
        V = evaluate(D, SV, rng)
        outcome = Trained(
            clock.iterations,
            len(SV),
            int(np.count_nonzero(~SV.unbounded)),
            V.count,
            V.certificate,
            stop.reason,
            clock.seconds,
        )
        facts = _facts(D, params, outcome, ["randsvm", *configuration])
        _model(D, SV, run, facts).save(model)
        return replace(outcome, seconds=clock.seconds)


def _tell_peculiarities(D: Dataset, params: Params) -> None:
    if D.header.queries:
        tell(Notice(f"qid: of {D.header.queries} rows ignored"))
    if params.kernel != "rbf":
        tell(
            Notice(
                "the formula for k assumes rows of length 1 in feature space, which only the rbf "
                "kernel guarantees"
            )
        )
    if not params.positive_semidefinite:
        tell(Notice("this kernel is not positive semidefinite: P and D certify nothing"))


@dataclass
class _Clock:
    """Counts iterations and seconds for the events."""

    began: float
    iterations: int = 0

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.began

    def iteration(self, SV: SV, V: Violators) -> None:
        self.iterations += 1
        bounded = int(np.count_nonzero(~SV.unbounded))
        tell(Iteration(self.iterations, self.seconds, len(SV), bounded, V.count, V.certificate))


def _facts(
    D: Dataset, params: Params, outcome: Trained, configuration: list[str]
) -> dict[str, str]:
    """What the model's trailer says of its making. Nothing that differs between equal works."""
    certificate = outcome.certificate
    return {
        "version": __version__,
        "configuration": " ".join(configuration),
        "n": str(D.n),
        "d": str(D.d),
        "nnz": str(D.nnz),
        "digest": D.header.digest,
        "C": repr(params.C),
        "lambda": repr(1 / (params.C * D.n)),
        "primal": repr(certificate.primal),
        "dual": repr(certificate.dual),
        "gap": repr(certificate.gap),
        "violators": str(outcome.violators),
        "stopped": outcome.stopped,
    }


def _model(D: Dataset, SV: SV, run: Run, facts: dict[str, str]) -> Model:
    """SV as a model of its own: over the features that its support vectors have."""
    used, columns = np.unique(SV.points.X.indices, return_inverse=True)
    Z = SV.points.X.copy()
    Z = type(Z)((Z.data, columns, Z.indptr), shape=(len(SV), len(used)))
    first = dataset.positive_class(D)
    order = (first, 1 - first)
    return Model(
        kernel=SV.kernel,
        Z=Z,
        features=D.header.features[used],
        beta=SV.beta,
        b=SV.b,
        labels=tuple(D.header.names[i] for i in order),
        values=tuple(D.header.values[i] for i in order),
        zero_based=run.zero_based,
        known=Known.of(D.header.features),
        facts=facts,
    )


@dataclass(frozen=True)
class Predicted:
    """How prediction went. correct of labelled rows; rows include the unlabelled."""

    rows: int
    labelled: int
    correct: int
    unseen_features: int
    seconds: float


def predict(
    data: str,
    model: str,
    output: str,
    *,
    scores: bool = False,
    resources: Resources | None = None,
    watch: Watch = silent,
) -> Predicted:
    """Predict the rows of the svmlight file `data` in input order; one line each into `output`.

    Labels as they were spelled in training, or with `scores` the decision values. Memory does not
    grow with the file. Raises the errors of randsvm.errors; on any error `output` is untouched.
    """
    began = time.perf_counter()
    files.check_output(output)
    loaded = Model.load(model)
    jobs = (resources or Resources()).workers
    count = _Counts()
    with listening(watch), files.create_output(output) as stream:
        for f in _decisions(data, loaded, jobs, count):
            stream.write(_lines(f, loaded, scores))
    if len(count.unseen):
        tell_to = watch
        tell_to(
            Notice(
                f"ignored {count.unseen_values} values of {len(count.unseen)} features that "
                f"training never saw"
            )
        )
    return Predicted(
        count.rows, count.labelled, count.correct, len(count.unseen), time.perf_counter() - began
    )


class _Counts:
    def __init__(self) -> None:
        self.rows = self.labelled = self.correct = self.unseen_values = 0
        self.unseen = np.empty(0, np.int32)

    def add(self, classes: np.ndarray, f: np.ndarray, unseen: np.ndarray) -> None:
        labelled = ~np.isnan(classes)
        self.rows += len(f)
        self.labelled += int(labelled.sum())
        self.correct += int((classes == np.where(f > 0, 0.0, 1.0)).sum())
        if len(unseen):
            self.unseen_values += len(unseen)
            self.unseen = np.union1d(self.unseen, unseen)


def _decisions(data: str, model: Model, jobs: int, count: _Counts) -> Iterator[np.ndarray]:
    """Decision values of consecutive blocks of rows; counts what is right on the way."""
    table = svmlight.LabelTable(data, unlabelled=True, names=model.labels)
    blocks = svmlight.read_blocks(
        data, labels="class", zero_based=model.zero_based, unlabelled=True, jobs=jobs, watch=tell
    )
    with ThreadPoolExecutor(jobs) as pool:
        for block in blocks:
            classes = table.classes(block)

            def work(at: slice, block: svmlight.Block = block) -> tuple[np.ndarray, np.ndarray]:
                indptr = block.indptr[at.start : at.stop + 1]
                values = slice(indptr[0], indptr[-1])
                rows = model.rows(indptr - indptr[0], block.indices[values], block.values[values])
                return model.decision(rows), rows.unseen

            for at, (f, unseen) in zip(
                slices(len(classes), PREDICT_ROWS),
                pool.map(work, slices(len(classes), PREDICT_ROWS)),
                strict=True,
            ):
                count.add(classes[at], f, unseen)
                yield f
            tell(Progress("predicting", count.rows))


def _lines(f: np.ndarray, model: Model, scores: bool) -> bytes:
    if scores:
        return "".join(f"{value!r}\n" for value in f.tolist()).encode()
    first, second = ((name + "\n").encode("utf-8", "surrogateescape") for name in model.labels)
    return b"".join(first if positive else second for positive in (f > 0).tolist())
