"""Write models as code of C or as graphs of ONNX, and compare what these predict with the model.

An export is written only after it has predicted rows as the model does.
"""

from __future__ import annotations

import io
import os
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from randsvm import files
from randsvm.arrays import FEATURES, CsrMatrix, rows_over, slices, squared_norms
from randsvm.data import svmlight
from randsvm.data.labels import label_values
from randsvm.errors import ExportError, ModelError, ParameterError
from randsvm.events import Exported, Notice, Progress, Watch, emit, listening, silent
from randsvm.models.c_source import BEGINNING, c_source
from randsvm.models.model import Model
from randsvm.models.model_text import check_is_not_model, load
from randsvm.models.normal_form import NormalForm, normal_form
from randsvm.models.onnx_graph import onnx_graph
from randsvm.models.row_files import RowFiles, sources
from randsvm.parameters.option import TABLE, changed_flags
from randsvm.parameters.run import EXPORT_FORMATS, PredictParams

# Support vectors, or drawn rows, that stand for a data set if there is none.
MAX_OWN_ROWS = 10_000
DRAWN_ROWS = 500
# The mean number of values in a drawn row of many.
DRAWN_VALUES = 100
# Rows that are compared at once, and bytes of their arrays.
MOST_AT_ONCE, BLOCK_BYTES = 8192, 1 << 25
MAX_SHOWN_PROBLEM = 300


def export(
    model: str | os.PathLike[str],
    output: str | os.PathLike[str],
    data: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
    *,
    format: Literal["c", "onnx"] = "c",
    params: PredictParams | None = None,
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
    params : PredictParams, optional
        How the files are read: its ``format``, ``no_header``, ``delimiter`` and ``sql``. With
        ``sql``, a query, `data` is the URL of a database. Other options have no effect.
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
    params = params or PredictParams()
    if data is None and changed_flags(params, TABLE):
        which = "--format, --no-header, --delimiter and --sql"
        raise ParameterError(f"{which} are for the rows of --data: add --data")
    paths = None if data is None else sources(data, params.sql, params.format)
    files.check_distinct({"OUTPUT_FILE": output}, {"TEST_FILE": paths, "MODEL_FILE": model})
    check_is_not_model(paths or (), "c|onnx MODEL_FILE OUTPUT_FILE --data TEST_FILE")
    kind, is_one, make, find_predictor = FORMATS[format]
    files.check_output(output, kind, is_one)
    with listening(watch):
        loaded = load(model)
        if len(loaded.labels) == 1:
            raise ModelError(f"{model}: expected a model of two or more classes")
        form = normal_form(loaded)
        if paths is None:
            parts: Iterable[CsrMatrix] = [_own_rows(form)]
        else:
            row_files = RowFiles(loaded, model, paths, params)
            parts = _rows_of_files(loaded, form.inputs, row_files)
        content = make(loaded, form)
        with tempfile.TemporaryDirectory() as folder:
            predictor = find_predictor(content, loaded, Path(folder))
            found = {} if predictor is None else _compare(predictor, loaded, form, parts)
        with files.create_output(output) as stream:
            stream.write(content)
        outcome = Exported(
            format=format,
            model=model,
            output=output,
            bytes=len(content),
            seconds=time.perf_counter() - began,
            **found,
        )
        emit(outcome)
        return outcome


# The name of the program that runs an export, and a function that returns what the export computes
# for m rows: f, (m, columns); class indices, (m,); probabilities, (m, classes). The class indices
# of a regression, and probabilities that the model does not have, are of size 0.
Predictor: TypeAlias = tuple[str, Callable[[CsrMatrix], tuple[np.ndarray, np.ndarray, np.ndarray]]]


# --- rows to compare -----------------------------------------------------------------------


def _rows_of_files(model: Model, inputs: int, row_files: RowFiles) -> Iterator[CsrMatrix]:
    """Yield the rows of files with a column for each input, without features beyond these."""
    features = np.arange(inputs, dtype=np.int32) + model.index_base
    done = 0
    for block in row_files.blocks():
        yield rows_over(block.X, features)[0]
        done += len(block)
        emit(Progress("comparing", done, None, "row"))


def _own_rows(form: NormalForm) -> CsrMatrix:
    """Return rows to compare if there are no files, with a column for each input.

    They are support vectors as they were before scaling, or rows that are drawn at random.
    """
    inputs = form.inputs
    if form.phi in ("rbf", "power", "tanh") and len(form.c):
        X = form.Z[:: max(1, -(-len(form.c) // MAX_OWN_ROWS))].astype(np.float64)
    else:
        from scipy import sparse

        draw, share = np.random.default_rng(0), min(1.0, DRAWN_VALUES / inputs)
        normal = draw.standard_normal
        X = CsrMatrix.from_scipy(
            sparse.random(DRAWN_ROWS, inputs, share, random_state=draw, data_rvs=normal)
        )
    if form.factor is not None:
        size = np.divide(1, form.factor, out=np.zeros(inputs), where=form.factor != 0)
        X = X.with_data(X.data * size[X.indices])
        if form.shift.any():
            X = CsrMatrix.from_dense(X.toarray() + form.shift)
    return X.astype(np.float32).astype(np.float64) if form.single else X


# --- the comparison ------------------------------------------------------------------------


def _compare(
    predictor: Predictor, model: Model, form: NormalForm, parts: Iterable[CsrMatrix]
) -> dict[str, Any]:
    """Compare an export with its model, and return the fields of Exported about it.

    parts : rows with a column for each input. Raise ExportError if the decision values differ by
    more than rounding, or if labels or probabilities do not follow from the decision values.
    """
    name, predict = predictor
    count, labels, largest = 0, 0, 0.0
    at_once = max(1, min(MOST_AT_ONCE, BLOCK_BYTES // (8 * form.inputs)))
    for X in (part[at] for part in parts for at in slices(part.shape[0], at_once)):
        rows = model.rows(X.with_columns(X.indices + model.index_base, FEATURES))
        f_of_model = model.decision(rows)
        norm = float(np.sqrt((rows.extra + squared_norms(rows.X)).max(initial=0.0)))
        f, predicted, probabilities = predict(X)
        differences = np.abs(f - f_of_model)
        # A nan compares as False.
        wrong = ~(differences <= form.tolerance(norm)).all(axis=1)
        largest = float(np.max([largest, differences.max(initial=0.0)]))
        if not model.is_regression:
            labels += int((predicted != model.predicted(f_of_model)).sum())
            wrong |= predicted != model.predicted(f)
        if probabilities.size:
            again = model.probabilities(f)
            wrong |= ~(np.abs(probabilities - again) <= 1e-8).all(axis=1)
        if wrong.any():
            first = int(np.flatnonzero(wrong)[0])
            raise ExportError(
                f"the export is not written: {name} computes f = {_shown(f[first])} for row "
                f"{count + first + 1}, and the model {_shown(f_of_model[first])}"
            )
        count += len(f)
    return {
        "checked_by": name,
        "rows": count,
        "largest_difference": largest,
        "labels_differ": labels,
    }


def _shown(values: np.ndarray) -> str:
    return " ".join(f"{value:.10g}" for value in values.ravel()[:4])


# --- C -------------------------------------------------------------------------------------


def _c_predictor(content: bytes, model: Model, folder: Path) -> Predictor | None:
    """Compile the code in a folder, and return a function that runs it."""
    compiler = find_compiler()
    if compiler is None:
        emit(Notice("there is no C compiler: the exported code was not compiled and compared"))
        return None
    program = compiled(compiler, content, folder)
    try:
        subprocess.run([program], input=b"", capture_output=True, check=False)
    except OSError as error:
        emit(Notice(f"the exported code is compiled but not compared: {error.strerror}"))
        return None
    return compiler[0], partial(run_program, program, model)


def find_compiler() -> list[str] | None:
    """Return the command of a C compiler: that of CC, or the first of cc, gcc and clang."""
    named = shlex.split(os.environ.get("CC", ""))
    commands = [named] if named else [["cc"], ["gcc"], ["clang"]]
    return next((command for command in commands if shutil.which(command[0])), None)


def compiled(compiler: Sequence[str], source: bytes, folder: Path) -> Path:
    """Compile source with its test, and return the program.

    compiler : command. Raise ExportError if the compiler refuses the source.
    """
    path, program = folder / "model.c", folder / "model"
    path.write_bytes(source)
    strict = ["-std=c99", "-Wall", "-Werror", "-pedantic", "-O2", "-DTEST"]
    command = [*compiler, *strict, "-o", str(program), str(path), "-lm"]
    ran = subprocess.run(command, capture_output=True, check=False)
    if ran.returncode:
        raise ExportError(f"the export is not written: {compiler[0]} refuses it: {_problem(ran)}")
    return program


def _problem(ran: subprocess.CompletedProcess[bytes]) -> str:
    """Return what a program printed, as one line."""
    text = (ran.stderr or ran.stdout).decode(errors="replace")
    return " ".join(text.split())[:MAX_SHOWN_PROBLEM] or f"exit code {ran.returncode}"


def run_program(
    program: Path, model: Model, X: CsrMatrix
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return what the compiled program computes for rows with a column for each input."""
    m, rows = X.shape[0], io.BytesIO()
    svmlight.write(rows, ["0"] * m, X.with_columns(X.indices + model.index_base, FEATURES))
    ran = subprocess.run([program], input=rows.getvalue(), capture_output=True, check=False)
    out = np.array(ran.stdout.split(), np.float64)
    # f, the class index, and the probabilities.
    probabilities = len(model.labels) * model.has_class_probabilities
    parts = [len(model.b), int(not model.is_regression), probabilities]
    if ran.returncode or out.size != m * sum(parts):
        raise ExportError(f"the export is not written: the code fails: {_problem(ran)}")
    f, predicted, p = np.split(out.reshape(m, -1), np.cumsum(parts)[:2], axis=1)
    return f, predicted.ravel().astype(np.int64), p


# --- ONNX ----------------------------------------------------------------------------------


def _onnx_predictor(content: bytes, model: Model, folder: Path) -> Predictor | None:
    """Return a function that runs the graph."""
    try:
        import onnxruntime
    except ImportError:
        emit(Notice("there is no onnxruntime: the exported graph was not run"))
        return None
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_outputs()]
    index = {value: number for number, value in enumerate(label_values(model.labels))}

    def predict(X: CsrMatrix) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        found = dict(zip(names, session.run(None, {"X": X.toarray()}), strict=True))
        labels = () if model.is_regression else found["label"].tolist()
        predicted = np.array([index[value] for value in labels])
        return found["f"], predicted, found.get("probabilities", np.empty(0))

    return "onnxruntime", predict


# Format -> the kind of its files, a function that recognises one by its first bytes, and functions
# that return the content of a file, and that predict by it. A graph begins with the version of ONNX
# (field 1) and the name of the producer (field 2).
FORMATS: dict[str, tuple[Any, ...]] = {
    "c": ("an export to C", lambda head: head.startswith(BEGINNING), c_source, _c_predictor),
    "onnx": (
        "an export to ONNX",
        lambda head: head[:1] == b"\x08" and b"\x12\x07randsvm" in head[:16],
        lambda model, form: onnx_graph(model, form).SerializeToString(),
        _onnx_predictor,
    ),
}
