"""Read, check and write LIBSVM's text format.

kernel_model.py converts the contents of a file to a KernelModel.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, isfinite
from typing import Any, NamedTuple

import numpy as np

from randsvm import files
from randsvm.data import svmlight
from randsvm.decimals import NUMBER, join_rows
from randsvm.errors import DataError, ModelError, quoted
from randsvm.models import header as headers
from randsvm.models.header import Header, HeaderFormat
from randsvm.models.trailer import SealedStream, has_float64_values
from randsvm.parameters.kernel import KERNELS

CLASSIFIER_TYPES = ("c_svc", "nu_svc")
SVM_TYPE_NAMES = (*CLASSIFIER_TYPES, "one_class", "epsilon_svr", "nu_svr")
KERNEL_PARAMETERS = {"polynomial" if name == "poly" else name: KERNELS[name] for name in KERNELS}
# The keywords are in LIBSVM's order. Two classes, regression and one-class have nr_class 2. A
# classifier that was trained with rows of one class has nr_class 1 and no support vectors.
KEYWORDS = (
    "svm_type", "kernel_type", "degree", "gamma", "coef0", "nr_class", "total_sv", "rho",
    "label", "probA", "probB", "prob_density_marks", "nr_sv",
)  # fmt: skip

HEADER_FORMAT = HeaderFormat("LIBSVM", KEYWORDS, end="SV", longest_line=1 << 20)


@dataclass(frozen=True)
class LibsvmModel:
    """The lines of a model as LIBSVM writes them.

    label, nr_sv : for each class; None for regression and one-class. Several classes with nr_sv are
    one against one: support vectors are grouped by class, and those of class i have a coefficient
    for each other class. Only the own layout may lack nr_sv; then the classes are one against the
    rest, and each support vector has a coefficient for each class.
    coefficients : (m, columns) float64
    rho : a number for each decision value
    indptr : (m + 1,) int64
    indices : (nnz,) int32, as in the file
    values : (nnz,) float32 or float64. These three arrays are the rows of the support vectors. With
    a precomputed kernel each row has one value: the number of a training row, at index 0.
    probA, probB : the length of rho, but one probA for a regression; None if not fitted
    prob_density_marks : 10 numbers for one-class; None if not fitted
    own_format : whether the layout is the package's own, which LIBSVM refuses
    """

    svm_type: str
    kernel_type: str
    degree: int | None
    gamma: float | None
    coef0: float | None
    rho: tuple[float, ...]
    label: tuple[int, ...] | None
    nr_sv: tuple[int, ...] | None
    coefficients: np.ndarray
    indptr: np.ndarray
    indices: np.ndarray
    values: np.ndarray
    probA: tuple[float, ...] | None = None  # noqa: N815 - LIBSVM's keyword
    probB: tuple[float, ...] | None = None  # noqa: N815
    prob_density_marks: tuple[float, ...] | None = None
    nr_class: int = 2
    own_format: bool = False


class ColumnCounts(NamedTuple):
    """Numbers of coefficients of a support vector and of decision values of a row."""

    coefficients: int
    decisions: int


def _column_counts(nr_class: int, one_against_one: bool) -> ColumnCounts:
    """Return the numbers of columns; both are 1 for two classes, a regression and one-class."""
    if one_against_one or nr_class == 2:
        return ColumnCounts(nr_class - 1, nr_class * (nr_class - 1) // 2)
    return ColumnCounts(nr_class, nr_class)


# --- writing -------------------------------------------------------------------------------


def write(path: str, model: LibsvmModel, trailer: Mapping[str, str]) -> None:
    """Write the model and its sealed trailer; `path` is replaced as a whole or not at all.

    Raise ModelError, before `path` changes, for a model that `parse` would refuse.
    """
    header = _render_header(model)
    _fields(Header(header, len(header), path, HEADER_FORMAT))
    _check_arrays(model, path)
    with files.create_output(path) as stream:
        sealed = SealedStream(stream)
        sealed.write(header)
        # Support vectors are svmlight rows with coefficients instead of a label.
        coefficients = join_rows(model.coefficients)
        svmlight.write(sealed, coefficients, model.indptr, model.indices, model.values)
        sealed.seal(trailer)


def _render_header(model: LibsvmModel) -> bytes:
    """Return the lines up to 'SV', like LIBSVM without parameters that the kernel does not use.

    A number has at most 24 characters; LIBSVM's reader takes 80.
    """
    used = KERNEL_PARAMETERS.get(model.kernel_type, ())
    entries: dict[str, tuple[object, ...] | None] = {
        "svm_type": (model.svm_type,),
        "kernel_type": (model.kernel_type,),
        **{key: _optional_entry(getattr(model, key)) for key in used},
        "nr_class": (model.nr_class,),
        "total_sv": (len(model.coefficients),),
        "rho": tuple(map(float, model.rho)),
        "label": model.label,
        "probA": model.probA,
        "probB": model.probB,
        "prob_density_marks": model.prob_density_marks,
        "nr_sv": model.nr_sv,
    }
    return headers.render(HEADER_FORMAT, entries, model.own_format)


def _optional_entry(number: float | None) -> tuple[float] | None:
    return None if number is None else (number,)


def _check_arrays(model: LibsvmModel, path: str) -> None:
    """Raise ValueError or ModelError for arrays that `parse` would refuse."""
    indices, indptr = model.indices, model.indptr
    columns = _column_counts(model.nr_class, model.nr_sv is not None).coefficients
    if model.coefficients.shape[1:] != (columns,):
        raise ValueError(f"expected {columns} columns of coefficients")
    if not (
        len(indptr) == len(model.coefficients) + 1
        and indptr[0] == 0
        and indptr[-1] == len(indices) == len(model.values)
        and (np.diff(indptr) >= 0).all()
    ):
        raise ValueError("expected indptr, indices and values of one CSR matrix, a row per SV")
    starts = np.zeros(len(indices) + 1, dtype=bool)
    starts[indptr] = True
    if len(indices) and not (indices.min() >= 0 and (starts[1:-1] | (np.diff(indices) > 0)).all()):
        raise ValueError("expected ascending indices from 0 in each support vector")
    for what, numbers in (("coefficients", model.coefficients), ("values", model.values)):
        if not np.isfinite(numbers).all():
            raise ModelError(f"{path}: expected finite {what} of support vectors, found others")


# --- reading -------------------------------------------------------------------------------


def parse(
    content: bytes, name: str, float64: bool = False
) -> tuple[LibsvmModel, dict[str, str] | None]:
    """Return the model in `content` and its trailer. name : the file's name in messages.

    float64 : whether feature values are float64 even if the trailer says float32.

    Raise ModelError, or DataError with line and column inside the support vectors.
    """
    header, trailer = headers.read(content, name, HEADER_FORMAT)
    fields = _fields(header)
    rows = _parse_rows(header, float64 or has_float64_values(trailer))
    return LibsvmModel(**fields, **rows), trailer


def _fields(header: Header) -> dict[str, Any]:
    """Return the fields of LibsvmModel without the support vectors."""
    svm_type = header.choice("svm_type", SVM_TYPE_NAMES)
    kernel_type = header.choice("kernel_type", KERNEL_PARAMETERS)
    nr_class = _nr_class(header, svm_type)
    label, nr_sv = (_per_class(header, key, svm_type, nr_class) for key in ("label", "nr_sv"))
    decisions = _column_counts(nr_class, nr_sv is not None).decisions
    duplicates = [value for value, count in Counter(label or ()).items() if count > 1]
    if duplicates:
        raise header.error(header.line_of("label"), "different labels", f"{duplicates[0]} twice")
    total_sv = _total_sv(header)
    if nr_class == 1 and (total_sv or not nr_sv):
        raise header.error(
            header.line_of("nr_class"), "nr_class 1 with total_sv 0 and nr_sv 0", "others"
        )
    if nr_sv and (min(nr_sv) < 0 or sum(nr_sv) != total_sv):
        raise header.error(
            header.line_of("nr_sv"), f"counts with the sum {total_sv} (total_sv)", f"{nr_sv}"
        )
    used = KERNEL_PARAMETERS[kernel_type]
    return {
        "svm_type": svm_type,
        "kernel_type": kernel_type,
        "degree": header.non_negative("degree", header.integers) if "degree" in used else None,
        "gamma": header.non_negative("gamma", header.numbers) if "gamma" in used else None,
        "coef0": header.numbers("coef0", 1)[0] if "coef0" in used else None,
        "rho": header.numbers("rho", decisions),
        "label": label,
        "nr_sv": nr_sv,
        "probA": header.optional_numbers("probA", decisions),
        "probB": header.optional_numbers("probB", decisions),
        "prob_density_marks": header.optional_numbers("prob_density_marks", 10),
        "nr_class": nr_class,
        "own_format": header.own_format,
    }


def _total_sv(header: Header) -> int:
    return header.non_negative("total_sv", header.integers)


def _nr_class(header: Header, svm_type: str) -> int:
    classes = header.integers("nr_class", 1)[0]
    if classes < 1 or (classes != 2 and svm_type not in CLASSIFIER_TYPES):
        raise header.error(header.line_of("nr_class"), "nr_class 2", f"{classes}")
    return classes


def _per_class(
    header: Header, keyword: str, svm_type: str, nr_class: int
) -> tuple[int, ...] | None:
    """Return a number for each class; None for other tasks, or if the own layout lacks it."""
    if svm_type not in CLASSIFIER_TYPES:
        header.check_absent(keyword, svm_type, CLASSIFIER_TYPES)
        return None
    if header.own_format and keyword not in header:
        return None
    return header.integers(keyword, nr_class)


def _parse_rows(header: Header, float64: bool) -> dict[str, Any]:
    """Return the fields of LibsvmModel for the support vectors: `total_sv` svmlight rows.

    float64 : whether values are float64.
    """
    total_sv = _total_sv(header)
    header.check_rows(total_sv, "support vectors (total_sv)")
    text = header.content[header.size : header.end]
    _check_plain_rows(text, header)
    columns = _column_counts(header.integers("nr_class", 1)[0], "nr_sv" in header).coefficients
    others, text = _first_coefficients(text, columns - 1, header)
    block = svmlight.parse(
        text,
        name=header.name,
        labels="number",
        zero_based=True,
        float64=float64,
        first_line=header.first_row_line,
    )
    if len(block.y) != total_sv:
        blank = next(n for n, line in enumerate(text.split(b"\n")) if not line.strip())
        raise header.error(header.first_row_line + blank, "a support vector", "a blank line")
    return {
        "coefficients": np.column_stack([*others, np.asarray(block.y, np.float64)])[:, :columns],
        "indptr": np.asarray(block.indptr, np.int64),
        "indices": np.asarray(block.indices, np.int32),
        "values": np.asarray(block.values),
    }


def _first_coefficients(text: bytes, count: int, header: Header) -> tuple[list[np.ndarray], bytes]:
    """Return the first `count` coefficients of each row, by column, and the text without them.

    Blanks replace them, so that later errors name the right column.
    """
    if count <= 0:
        return [], text
    # One pattern for the line: checking each word takes three times as long.
    pattern = re.compile(rb"(?:[ \t]*" + NUMBER.pattern + rb"(?=[ \t])){%d}" % count)
    lines, found = [], []
    for number, line in enumerate(text.split(b"\n")[:-1], header.first_row_line):
        match = pattern.match(line)
        numbers = list(map(float, match[0].split())) if match else [inf]
        if not all(map(isfinite, numbers)):
            raise header.error(number, f"{count + 1} coefficients of a support vector", line)
        assert match is not None
        found.append(numbers)
        lines.append(b" " * match.end() + line[match.end() :])
    return list(np.array(found).reshape(-1, count).T), b"\n".join([*lines, b""])


# First bytes of syntax that svmlight files may contain and LIBSVM's models may not: comments, qid,
# cost, unlabelled rows, a byte order mark.
FOREIGN_BYTES = (b"#", b"q", b"c", b"?", b"\xef")


def _check_plain_rows(text: bytes, header: Header) -> None:
    for mark in FOREIGN_BYTES:
        at = text.find(mark)
        if at >= 0:
            line, column = text.count(b"\n", 0, at), at - text.rfind(b"\n", 0, at)
            raise DataError(
                header.name,
                header.first_row_line + line,
                column,
                f"expected a support vector, found {quoted(text[at : at + 1])}",
            )
