"""Write models as code of C or as graphs of ONNX, and compare what these predict with the model.

An export is written only after it has predicted rows as the model does.
"""

from __future__ import annotations

import io
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np

from randsvm import files
from randsvm.arrays import CsrMatrix, slices, squared_norms
from randsvm.data import svmlight
from randsvm.data.labels import label_values
from randsvm.errors import ExportError, ModelError, ParameterError
from randsvm.events import Exported, Notice, Progress, Watch, emit, listening, silent
from randsvm.models.c_source import BEGINNING, c_source
from randsvm.models.model import Model
from randsvm.models.model_text import check_is_not_model, load
from randsvm.models.normal_form import NormalForm, normal_form
from randsvm.models.row_files import RowFiles, csr_rows
from randsvm.parameters.run import EXPORT_FORMATS

if TYPE_CHECKING:
    from subprocess import CompletedProcess

# Support vectors, or drawn rows, that stand for a data set if there is none.
MAX_OWN_ROWS = 10_000
DRAWN_ROWS = 500
# The largest number of values in a drawn row.
DRAWN_VALUES = 100
# Bytes of the arrays of rows that are compared at once.
BLOCK_BYTES = 1 << 25
MAX_SHOWN_PROBLEM = 300
# The fields of Exported that a comparison finds; None without one.
COMPARED = ("checked_by", "rows", "largest_difference", "labels_differ")


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
        If a decision value of the export differs by more than rounding, if a label does not follow
        from the decision values, or if a compiler refuses the code.
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
        if len(loaded.labels) == 1:
            raise ModelError(f"{model}: expected a model of two or more classes")
        row_files = (
            None
            if paths is None
            else RowFiles(loaded, model, paths, data_format, no_header=no_header)
        )
        form = normal_form(loaded)
        make, predictor = EXPORTERS[format]
        content = make(loaded, form)
        with predictor(content, loaded) as found_predictor:
            found: dict[str, Any] = dict.fromkeys(COMPARED)
            if found_predictor is not None:
                found = _compare(found_predictor, loaded, form, row_files)
        with files.create_output(output) as stream:
            stream.write(content)
        outcome = Exported(
            format=format,
            model=model,
            output=output,
            bytes=len(content),
            **found,
            seconds=time.perf_counter() - began,
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


class Predictions(NamedTuple):
    """Predictions of a model, or of its export, for m rows.

    f : (m, columns) float64; predicted : (m,) class indices, or f of a regression; probabilities :
    (m, classes), or None.
    """

    f: np.ndarray
    predicted: np.ndarray
    probabilities: np.ndarray | None


# The name of the program that runs an export, and a function that predicts rows by it.
Predictor: TypeAlias = tuple[str, Callable[[CsrMatrix], Predictions]]


# --- rows to compare -----------------------------------------------------------------------


def _compared_rows(
    model: Model, form: NormalForm, row_files: RowFiles | None
) -> Iterator[tuple[CsrMatrix, Predictions, float]]:
    """Yield rows over all inputs, what the model predicts, and the largest norm.

    The rows are those of files, or some of the model's own.
    """
    first, cut_values = model.index_base, 0
    for indptr, indices, values in _csr_parts(model, form, row_files):
        inside = indices < form.inputs + first
        cut_values += int((~inside).sum())
        starts = np.concatenate([[0], np.cumsum(inside)])[indptr]
        indices, values, m = indices[inside], values[inside], len(indptr) - 1
        X = CsrMatrix(values.astype(np.float64), indices - first, starts, (m, form.inputs))
        rows = model.rows(np.asarray(starts, np.int64), indices, values)
        f = model.decision(rows)
        p = model.probabilities(f) if model.has_class_probabilities else None
        largest = float(np.sqrt((rows.extra + squared_norms(rows.X)).max(initial=0.0)))
        yield X, Predictions(f.reshape(m, -1), model.predicted(f), p), largest
    if cut_values:
        emit(Notice(f"left out {cut_values} values of features beyond the model's"))
    if row_files is not None:
        row_files.report_other_texts()


def _csr_parts(
    model: Model, form: NormalForm, row_files: RowFiles | None
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield indptr, indices and values of consecutive rows."""
    at_once = max(1, min(8192, BLOCK_BYTES // (8 * form.inputs)))
    if row_files is None:
        X = _own_rows(form)
        for at in slices(X.shape[0], at_once):
            part = X[at]
            yield part.indptr, (part.indices + model.index_base).astype(np.int32), part.data
        return
    done = 0
    for block in row_files.blocks():
        for at in slices(len(block), at_once):
            yield csr_rows(block, at)
        done += len(block)
        emit(Progress("comparing", done, None, "row"))


def _own_rows(form: NormalForm) -> CsrMatrix:
    """Return rows to compare if there are no files, (m, inputs) CSR of float64.

    They are support vectors as they were before scaling, or rows that are drawn at random.
    """
    inputs = form.inputs
    if form.phi in ("rbf", "power", "tanh") and len(form.c):
        X = form.Z[:: max(1, -(-len(form.c) // MAX_OWN_ROWS))].astype(np.float64)
    else:
        random = np.random.default_rng(0)
        count = min(inputs, DRAWN_VALUES)
        at = np.argsort(random.random((DRAWN_ROWS, min(inputs, 10 * count))), axis=1)[:, :count]
        at = np.sort(at * max(1, inputs // (10 * count)), axis=1)
        starts = np.arange(DRAWN_ROWS + 1) * count
        values = random.standard_normal(at.size)
        X = CsrMatrix(values, at.ravel(), starts, (DRAWN_ROWS, inputs))
    if form.factor is not None and form.shift is not None:
        size = np.divide(1, form.factor, out=np.zeros(inputs), where=form.factor != 0)
        X = X.with_data(X.data * size[X.indices])
        if form.shift.any():
            X = CsrMatrix.from_dense(X.toarray() + form.shift)
    return X.astype(np.float32).astype(np.float64) if form.single else X


# --- the comparison ------------------------------------------------------------------------


def _compare(
    predictor: Predictor, model: Model, form: NormalForm, row_files: RowFiles | None
) -> dict[str, Any]:
    """Compare an export with its model, and return the fields COMPARED of Exported.

    Raise ExportError if they differ by more than rounding.
    """
    name, predict = predictor
    count = labels = 0
    largest = 0.0
    for X, own, norm in _compared_rows(model, form, row_files):
        found = predict(X)
        difference = np.abs(found.f - own.f)
        # A nan compares as False.
        wrong = ~(difference <= form.tolerance(norm)).all(axis=1)
        largest = float(np.max([largest, difference.max(initial=0.0)]))
        f = found.f[:, 0] if found.f.shape[1] == 1 else found.f
        if not model.is_regression:
            labels += int((found.predicted != own.predicted).sum())
            wrong |= found.predicted != model.predicted(f)
        if found.probabilities is not None:
            again = model.probabilities(f)
            wrong |= ~(np.abs(found.probabilities - again) <= 1e-8).all(axis=1)
        if wrong.any():
            first = int(np.flatnonzero(wrong)[0])
            raise ExportError(
                f"the export is not written: {name} computes f = {_shown(found.f[first])} for row "
                f"{count + first + 1}, and the model {_shown(own.f[first])}"
            )
        count += len(f)
    return dict(zip(COMPARED, (name, count, largest, labels), strict=True))


def _shown(values: np.ndarray) -> str:
    return " ".join(f"{value:.10g}" for value in values.ravel()[:4])


# --- C -------------------------------------------------------------------------------------


@contextmanager
def _c_predictor(content: bytes, model: Model) -> Iterator[Predictor | None]:
    """Compile the code, and yield a function that runs it."""
    import subprocess
    import tempfile

    compiler = find_compiler()
    if compiler is None:
        emit(Notice("there is no C compiler: the exported code was not compiled and compared"))
        yield None
        return
    with tempfile.TemporaryDirectory() as folder:
        program = compiled(compiler, content, Path(folder))
        try:
            subprocess.run([program], input=b"", capture_output=True, check=False)
        except OSError as error:
            emit(Notice(f"the exported code is compiled but not compared: {error.strerror}"))
            yield None
        else:
            yield compiler[0], partial(run_program, program, model)


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


def run_program(program: Path, model: Model, X: CsrMatrix) -> Predictions:
    """Return what the compiled program computes for rows over all inputs."""
    import subprocess

    m, columns = X.shape[0], len(model.b)
    rows = io.BytesIO()
    # float32 values have shorter decimals, which are the same numbers.
    indices = (X.indices + model.index_base).astype(np.int32)
    svmlight.write(rows, ["0"] * m, X.indptr, indices, X.data)
    ran = subprocess.run([program], input=rows.getvalue(), capture_output=True, check=False)
    out = np.array(ran.stdout.split(), np.float64)
    classes = len(model.labels) if model.has_class_probabilities else 0
    width = columns + (not model.is_regression) + classes
    if ran.returncode or out.size != m * width:
        raise ExportError(f"the export is not written: the code fails: {_problem(ran)}")
    f, others = np.split(out.reshape(m, width), [columns], axis=1)
    if model.is_regression:
        return Predictions(f, f[:, 0], None)
    return Predictions(f, others[:, 0].astype(np.int64), others[:, 1:] if classes else None)


# --- ONNX ----------------------------------------------------------------------------------


def _onnx_content(model: Model, form: NormalForm) -> bytes:
    # onnx is optional.
    from randsvm.models.onnx_graph import onnx_graph

    content: bytes = onnx_graph(model, form).SerializeToString()
    return content


@contextmanager
def _onnx_predictor(content: bytes, model: Model) -> Iterator[Predictor | None]:
    """Yield a function that runs the graph."""
    try:
        import onnxruntime
    except ImportError:
        emit(Notice("there is no onnxruntime: the exported graph was not run"))
        yield None
        return
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_outputs()]
    index = {value: number for number, value in enumerate(label_values(model.labels))}

    def predict(X: CsrMatrix) -> Predictions:
        found = dict(zip(names, session.run(None, {"X": X.toarray()}), strict=True))
        predicted = found["f"][:, 0]
        if not model.is_regression:
            predicted = np.array([index[value] for value in found["label"].tolist()])
        return Predictions(found["f"], predicted, found.get("probabilities"))

    yield "onnxruntime", predict


# Format -> functions that return the content of the file, and that predict by it.
EXPORTERS = {"c": (c_source, _c_predictor), "onnx": (_onnx_content, _onnx_predictor)}
