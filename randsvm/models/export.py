"""Write models as code of C or as graphs of ONNX, and compare what these predict with the model.

An export is written only after it has predicted rows as the model does.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from randsvm import files
from randsvm.arrays import CsrMatrix, absolute, squared_norms
from randsvm.errors import ExportError, ModelError, ParameterError
from randsvm.events import Exported, Notice, Progress, Watch, emit, listening, silent
from randsvm.models.c_source import BEGINNING, StoredRows, c_source, input_count
from randsvm.models.kernel_model import KernelModel, PairwiseModel
from randsvm.models.linear_model import LinearModel
from randsvm.models.load import check_is_not_model, load
from randsvm.models.model import Model, ModelRows
from randsvm.models.row_files import RowFiles
from randsvm.models.trailer import MAX_FEATURES
from randsvm.parameters.run import EXPORT_FORMATS

if TYPE_CHECKING:
    from subprocess import CompletedProcess

# Rows that the exported program stores for its own test.
STORED_ROWS = 20
# Support vectors, or drawn rows, that stand for a data set if there is none.
MAX_OWN_ROWS = 10_000
DRAWN_ROWS = 500
# The largest number of values in a drawn row.
DRAWN_VALUES = 100
# Bytes of the arrays of rows that are compared at once.
BLOCK_BYTES = 1 << 25
# Rounding of sums relative to the sum of the absolute terms: float64, random features, float32.
DOUBLE_ROUNDING = 1e-10
RANDOM_FEATURES_ROUNDING = 1e-5
FLOAT_ROUNDING = 2e-5
# Error of an exponent gamma |x - z|^2, divided by gamma times the squared norms of x and z.
EXPONENT_ROUNDING = {"double": 1e-14, "float": 1e-6}
MAX_SHOWN_PROBLEM = 300


def export(
    model: str | os.PathLike[str],
    output: str | os.PathLike[str],
    data: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
    *,
    format: Literal["c", "onnx"] = "c",
    data_format: str | None = None,
    no_header: bool = False,
    watch: Watch = silent,
) -> Exported:
    """Write a model as C99 source or as an ONNX graph, and compare its predictions.

    Parameters
    ----------
    model : str or PathLike
        Model file of randsvm, LIBSVM or LIBLINEAR.
    output : str or PathLike
        File to write; "-" is standard output.
    data : str, PathLike or sequence of these, optional
        Files whose rows are compared; None compares the support vectors, or for a linear model
        rows that are drawn at random.
    format : {"c", "onnx"}, default="c"
        Format of the file; "onnx" needs the package onnx.
    data_format : {"svmlight", "csv", "tsv", "parquet"}, optional
        Format of the files of rows; by default that of the training.
    no_header : bool, default=False
        Whether the first line of a CSV or TSV file is a row, with the columns of the training.
    watch : callable, default=silent
        Called with each event of `randsvm.events`.

    Returns
    -------
    Exported
        The number of compared rows and the largest difference.

    Raises
    ------
    ModelError
        If the model is unusable or cannot be expressed, as with a precomputed kernel.
    ExportError
        If the exported code predicts another label than the model, beyond rounding.
    DataError, InputError, OutputError, TransferError
        If a file is unusable, or cannot be opened, created, read or written.

    Notes
    -----
    C code is compiled with the command in the environment variable CC, or with cc, gcc or clang,
    and run. A graph is run by the package onnxruntime. Without these the export is written without
    a comparison, and `checked_by` is None. On any error `output` is unchanged.
    """
    began = time.perf_counter()
    if format not in EXPORT_FORMATS:
        raise ParameterError(f"expected a format {' or '.join(EXPORT_FORMATS)}, found {format!r}")
    model, output = os.fspath(model), os.fspath(output)
    paths = None if data is None else files.inputs(data)
    for path in paths or ():
        if files.is_stream(path):
            raise ParameterError("an export reads TEST_FILE several times: name a file")
        files.check_distinct({"OUTPUT_FILE": output}, {"TEST_FILE": path})
        check_is_not_model(path, "c|onnx MODEL_FILE OUTPUT_FILE --data TEST_FILE")
    files.check_distinct({"OUTPUT_FILE": output}, {"MODEL_FILE": model})
    files.check_output(output)
    kind, recognised = FILE_TYPES[format]
    files.check_file_type(output, kind, recognised)
    with listening(watch):
        loaded = load(model)
        if loaded.has_row_numbers:
            raise ModelError(
                f"{model}: expected a kernel of features: a precomputed kernel cannot be exported"
            )
        if len(loaded.labels) == 1:
            raise ModelError(f"{model}: expected a model of two or more classes")
        row_files = (
            None
            if paths is None
            else RowFiles(loaded, model, paths, data_format, no_header=no_header)
        )
        rows = _Rows(loaded, row_files)
        content, check = _EXPORTERS[format](loaded, rows)
        found = check()
        with files.create_output(output) as stream:
            stream.write(content)
        outcome = Exported(
            format=format,
            model=model,
            output=output,
            bytes=len(content),
            checked_by=found.checked_by,
            rows=found.rows,
            largest_difference=found.largest_difference,
            labels_differ=found.labels_differ,
            seconds=time.perf_counter() - began,
            to_stdout=output in files.STANDARD_OUTPUTS,
        )
        emit(outcome)
        return outcome


def holds_c_source(head: bytes) -> bool:
    """Return whether a file with this beginning is an earlier export to C."""
    return head.startswith(BEGINNING)


def holds_onnx(head: bytes) -> bool:
    """Return whether a file with this beginning is an earlier export to ONNX.

    It begins with the version of the format (field 1) and the name of the producer (field 2).
    """
    return head[:1] == b"\x08" and b"\x12\x07randsvm" in head[:16]


FILE_TYPES = {
    "c": ("an export to C", holds_c_source),
    "onnx": ("an export to ONNX", holds_onnx),
}


class Found(NamedTuple):
    """The result of a comparison; see Exported."""

    checked_by: str | None = None
    rows: int | None = None
    largest_difference: float | None = None
    labels_differ: int | None = None


# --- rows to compare -----------------------------------------------------------------------


@dataclass(frozen=True)
class Comparison:
    """Rows and what the model predicts for them.

    X : (m, inputs) CSR of float64, column i is entry i of a row of the exported function
    f : (m, columns) float64; predicted : (m,) class indices, or f of a regression
    probabilities : (m, classes), or None
    size : (m, columns), sums of the absolute terms of f
    norms : (m,), squared norms of the rows after scaling
    """

    X: CsrMatrix
    f: np.ndarray
    predicted: np.ndarray
    probabilities: np.ndarray | None
    size: np.ndarray
    norms: np.ndarray


class _Rows:
    """The rows with which an export is compared: those of files, or some of the model's own."""

    def __init__(self, model: Model, row_files: RowFiles | None) -> None:
        self.model, self.files = model, row_files
        self.inputs = input_count(model)
        self.at_once = max(1, min(8192, BLOCK_BYTES // (8 * self.inputs)))
        self.cut_values = 0

    def __iter__(self) -> Iterator[Comparison]:
        self.cut_values = 0
        for indptr, indices, values in self._parts():
            yield self._compared(indptr, indices, values)
        if self.cut_values:
            emit(Notice(f"left out {self.cut_values} values of features beyond the model's"))
        if self.files is not None:
            self.files.report_other_texts()

    def _parts(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Yield indptr, indices and values of consecutive rows."""
        model = self.model
        if self.files is None:
            X = _own_rows(model, self.inputs)
            for begin in range(0, X.shape[0], self.at_once):
                part = X[begin : begin + self.at_once]
                index = part.indices + model.index_base
                yield part.indptr, index.astype(np.int32), part.data
            return
        done = 0
        self.files.other_texts.clear()
        for block in self.files.blocks():
            for begin in range(0, len(block), self.at_once):
                indptr = block.indptr[begin : begin + self.at_once + 1]
                at = slice(indptr[0], indptr[-1])
                yield indptr - indptr[0], block.indices[at], block.values[at]
            done += len(block)
            emit(Progress("comparing", done, None, "row"))

    def _compared(self, indptr: np.ndarray, indices: np.ndarray, values: np.ndarray) -> Comparison:
        model, m = self.model, len(indptr) - 1
        first = model.index_base
        inside = indices < self.inputs + first
        if not inside.all():
            self.cut_values += int((~inside).sum())
            indptr = np.concatenate([[0], np.cumsum(inside)])[indptr]
            indices, values = indices[inside], values[inside]
        X = CsrMatrix(values.astype(np.float64), indices - first, indptr, (m, self.inputs))
        rows = model.rows(np.asarray(indptr, np.int64), indices, values)
        f = model.decision(rows)
        probabilities = None
        if model.has_probabilities and not model.is_regression:
            probabilities = model.probabilities(f)
        norms = rows.extra + squared_norms(rows.X)
        size = absolute_sums(model, rows)
        matrix = f.reshape(m, -1)
        return Comparison(X, matrix, model.predicted(f), probabilities, size, norms)


def absolute_sums(model: Model, rows: ModelRows) -> np.ndarray:
    """Return a bound on the sums of the absolute terms of f, (m, columns) float64."""
    if isinstance(model, KernelModel):
        positive = replace(model, beta=np.abs(model.beta), b=np.abs(model.b))
        if model.kernel.name != "rbf":
            kernel = replace(model.kernel, coef0=abs(model.kernel.coef0))
            positive = replace(positive, Z=model.Z.with_data(np.abs(model.Z.data)), kernel=kernel)
            rows = rows._replace(X=absolute(rows.X))
        f = positive.decision(rows)
    else:
        assert isinstance(model, LinearModel)
        f = model.absolute_sums(rows)
    return f.reshape(rows.X.shape[0], -1) + 1e-300


def _own_rows(model: Model, inputs: int) -> CsrMatrix:
    """Return rows to compare if there are no files, (m, inputs) CSR of float64.

    They are support vectors as they were before scaling, or rows that are drawn at random.
    """
    first = model.index_base
    if isinstance(model, KernelModel) and len(model.beta):
        Z = model.Z[:: max(1, -(-len(model.beta) // MAX_OWN_ROWS))]
        columns = model.features.astype(np.int64) - first
        X = CsrMatrix(Z.data, columns[Z.indices], Z.indptr, (Z.shape[0], inputs))
        X = X.astype(np.float64)
    else:
        random = np.random.default_rng(0)
        if inputs <= DRAWN_VALUES:
            X = CsrMatrix.from_dense(random.standard_normal((DRAWN_ROWS, inputs)))
        else:
            from scipy import sparse

            places = random.integers(0, inputs, (DRAWN_ROWS, DRAWN_VALUES))
            values = random.standard_normal(places.size)
            row = np.repeat(np.arange(DRAWN_ROWS), DRAWN_VALUES)
            shape = (DRAWN_ROWS, inputs)
            X = CsrMatrix.from_scipy(sparse.coo_matrix((values, (row, places.ravel())), shape))
    if model.scaling is not None and model.scaling.factor is not None and model.seen is not None:
        seen = model.seen.indices(MAX_FEATURES).astype(np.int64) - first
        factor, shift = np.zeros(inputs), np.zeros(inputs)
        factor[seen] = model.scaling.factor
        if model.scaling.shift is not None:
            shift[seen] = model.scaling.shift
        size = np.divide(1, factor, out=np.zeros(inputs), where=factor != 0)
        X = X.with_data(X.data * size[X.indices])
        if shift.any():
            X = CsrMatrix.from_dense(X.toarray() + shift)
    if not model.float64:
        X = X.astype(np.float32).astype(np.float64)
    return X


# --- differences ---------------------------------------------------------------------------


class _Differences:
    """Adds up the differences between a model and its export."""

    def __init__(self, model: Model, rounding: float, name: str) -> None:
        """rounding : relative error of sums; name : the program that predicted."""
        self.model, self.rounding, self.name = model, rounding, name
        self.rows = self.labels = 0
        self.largest = 0.0

    def add(
        self,
        rows: Comparison,
        f: np.ndarray,
        predicted: np.ndarray,
        probabilities: np.ndarray | None,
    ) -> None:
        """Compare m rows.

        f : (m, columns); predicted : (m,) class indices, or f of a regression; probabilities : (m,
        classes), or None. Raise ExportError if they differ by more than rounding.
        """
        model = self.model
        difference = np.abs(f - rows.f)
        # A nan compares as False.
        wrong = ~(difference <= tolerances(model, rows, self.rounding)).all(axis=1)
        self.rows += len(f)
        self.largest = float(np.max([self.largest, difference.max(initial=0.0)]))
        if not model.is_regression:
            own = model.predicted(f[:, 0] if f.shape[1] == 1 else f)
            self.labels += int((predicted != rows.predicted).sum())
            wrong |= predicted != own
        if probabilities is not None and rows.probabilities is not None:
            again = model.probabilities(f[:, 0] if f.shape[1] == 1 else f)
            wrong |= ~(np.abs(probabilities - again) <= self.rounding * 10 + 1e-9).all(axis=1)
        if wrong.any():
            first = int(np.flatnonzero(wrong)[0])
            raise ExportError(
                f"the export is not written: {self.name} computes f = {_shown(f[first])} for row "
                f"{self.rows - len(f) + first + 1}, and the model {_shown(rows.f[first])}"
            )

    @property
    def found(self) -> Found:
        return Found(self.name, self.rows, self.largest, self.labels)


def _shown(values: np.ndarray) -> str:
    return " ".join(f"{value:.10g}" for value in values.ravel()[:4])


def tolerances(model: Model, rows: Comparison, rounding: float) -> np.ndarray:
    """Return the differences of f that rounding explains, (m, columns) float64."""
    relative = np.full(len(rows.norms), rounding)
    if isinstance(model, KernelModel) and model.kernel.name == "rbf":
        kind = "double" if rounding < FLOAT_ROUNDING else "float"
        largest = float(squared_norms(model.Z).max()) if len(model.beta) else 0.0
        relative += EXPONENT_ROUNDING[kind] * model.kernel.gamma * (rows.norms + largest)
    return rows.size * relative[:, None]


# --- C -------------------------------------------------------------------------------------


def _export_c(model: Model, rows: _Rows) -> tuple[bytes, Callable[[], Found]]:
    stored = next(iter(rows), None)
    if stored is None:
        stored = next(iter(_Rows(model, None)))
    rounding = _rounding(model)
    content = c_source(model, _stored_rows(model, stored, rounding))

    def check() -> Found:
        import subprocess
        import tempfile

        compiler = find_compiler()
        if compiler is None:
            emit(Notice("there is no C compiler: the exported code was not compiled and tested"))
            return Found()
        with tempfile.TemporaryDirectory() as folder:
            program = compiled(compiler, content, Path(folder))
            try:
                tested = subprocess.run([program], capture_output=True, check=False)
            except OSError as error:
                emit(Notice(f"the exported code is compiled but not tested: {error.strerror}"))
                return Found()
            if tested.returncode:
                raise ExportError(f"the export is not written: {_problem(tested)}")
            differences = _Differences(model, rounding, compiler[0])
            for part in rows:
                differences.add(part, *run_program(program, model, part))
            return differences.found

    return content, check


def _rounding(model: Model) -> float:
    mapped = isinstance(model, LinearModel) and model.mapping is not None
    return RANDOM_FEATURES_ROUNDING if mapped else DOUBLE_ROUNDING


def _stored_rows(model: Model, rows: Comparison, rounding: float) -> StoredRows:
    """Return rows for the test, of all predicted classes if possible."""
    m = len(rows.f)
    chosen = np.unique(np.linspace(0, m - 1, min(m, STORED_ROWS)).astype(np.int64))
    if not model.is_regression:
        # Rows of each class in turn: the nth row of its class comes before each n + 1st.
        turn = np.empty(m, np.int64)
        for one in np.unique(rows.predicted):
            at = np.flatnonzero(rows.predicted == one)
            turn[at] = np.arange(len(at))
        chosen = np.sort(np.argsort(turn, kind="stable")[:STORED_ROWS])
    f = rows.f[chosen]
    if f.shape[1] == 1 or isinstance(model, PairwiseModel):
        margin = np.abs(f).min(axis=1)
    else:
        second, largest = np.sort(f, axis=1)[:, -2:].T
        margin = (largest - second) / 2
    some = Comparison(
        rows.X[chosen], f, rows.predicted[chosen], None, rows.size[chosen], rows.norms[chosen]
    )
    return StoredRows(
        some.X,
        f,
        some.predicted,
        margin,
        float(tolerances(model, some, rounding).max()),
        float(tolerances(model, some, FLOAT_ROUNDING).max()),
    )


def find_compiler() -> list[str] | None:
    """Return the command of a C compiler: that of CC, or the first of cc, gcc and clang."""
    import shlex
    import shutil

    named = shlex.split(os.environ.get("CC", ""))
    for command in [named] if named else [["cc"], ["gcc"], ["clang"]]:
        if shutil.which(command[0]) is not None:
            return command
    return None


def compiled(
    compiler: Sequence[str], source: bytes, folder: Path, options: Sequence[str] = ()
) -> Path:
    """Compile source with its test, and return the program.

    compiler : command; options : further ones. Raise ExportError if the compiler refuses it.
    """
    import subprocess

    path, program = folder / "model.c", folder / "model"
    path.write_bytes(source)
    strict = ["-std=c99", "-Wall", "-Werror", "-pedantic", "-O2", "-DTEST"]
    command = [*compiler, *strict, *options, "-o", str(program), str(path), "-lm"]
    ran = subprocess.run(command, capture_output=True, check=False)
    if ran.returncode:
        raise ExportError(f"the export is not written: {compiler[0]} refuses it: {_problem(ran)}")
    return program


def _problem(ran: CompletedProcess[bytes]) -> str:
    """Return what a program printed, as one line."""
    text = (ran.stderr or ran.stdout).decode(errors="replace")
    return " ".join(text.split())[:MAX_SHOWN_PROBLEM] or f"exit code {ran.returncode}"


def run_program(
    program: Path, model: Model, rows: Comparison
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Return f, predictions and probabilities of rows as the compiled program computes them."""
    import subprocess

    columns = rows.f.shape[1]
    classes = 0 if rows.probabilities is None else rows.probabilities.shape[1]
    ran = subprocess.run(
        [program, "rows"], input=rows.X.toarray().tobytes(), capture_output=True, check=False
    )
    width = columns + 1 + classes
    if ran.returncode or len(ran.stdout) != 8 * width * len(rows.f):
        raise ExportError(f"the export is not written: the code fails: {_problem(ran)}")
    out = np.frombuffer(ran.stdout).reshape(-1, width)
    f = out[:, :columns]
    predicted = f[:, 0] if model.is_regression else out[:, columns].astype(np.int64)
    return f, predicted, out[:, columns + 1 :] if classes else None


# --- ONNX ----------------------------------------------------------------------------------


def _export_onnx(model: Model, rows: _Rows) -> tuple[bytes, Callable[[], Found]]:
    from randsvm.models.onnx_graph import onnx_graph

    content: bytes = onnx_graph(model).SerializeToString()

    def check() -> Found:
        try:
            import onnxruntime
        except ImportError:
            emit(Notice("there is no onnxruntime: the exported graph was not run"))
            return Found()
        session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
        names = [one.name for one in session.get_outputs()]
        index = {value: number for number, value in enumerate(model.values)}
        differences = _Differences(model, _rounding(model), "onnxruntime")
        for part in rows:
            outputs = session.run(None, {"X": part.X.toarray()})
            found = dict(zip(names, outputs, strict=True))
            f = found["f"]
            predicted = f[:, 0]
            if not model.is_regression:
                predicted = np.array([index[value] for value in found["label"].tolist()])
            differences.add(part, f, predicted, found.get("probabilities"))
        return differences.found

    return content, check


_EXPORTERS = {"c": _export_c, "onnx": _export_onnx}
