"""Read, check and write LIBLINEAR's text format.

linear_model.py converts the contents of a file to a LinearModel.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from randsvm import files
from randsvm.decimals import compact, is_number, words_of_numbers
from randsvm.errors import ModelError
from randsvm.models import header as headers
from randsvm.models.header import INT_LIMIT, Header, HeaderFormat
from randsvm.models.trailer import SealedStream

CRAMMER_SINGER = "MCSVM_CS"
CLASSIFIER_SOLVERS = (
    "L2R_LR", "L2R_L2LOSS_SVC_DUAL", "L2R_L2LOSS_SVC", "L2R_L1LOSS_SVC_DUAL", CRAMMER_SINGER,
    "L1R_L2LOSS_SVC", "L1R_LR", "L2R_LR_DUAL",
)  # fmt: skip
REGRESSION_SOLVERS = ("L2R_L2LOSS_SVR", "L2R_L2LOSS_SVR_DUAL", "L2R_L1LOSS_SVR_DUAL")
ONE_CLASS_SOLVER = "ONECLASS_SVM"
SOLVER_TYPES = (*CLASSIFIER_SOLVERS, *REGRESSION_SOLVERS, ONE_CLASS_SOLVER)

# The keywords are in LIBLINEAR's order: its reader needs nr_class before label. Regression and
# one-class have nr_class 2. The longest line, in bytes, is that of 87,000 labels.
HEADER_FORMAT = HeaderFormat(
    "LIBLINEAR",
    ("solver_type", "nr_class", "label", "nr_feature", "bias", "rho"),
    end="w",
    longest_line=1 << 20,
)
BLOCK_NUMBERS = 1 << 16  # numbers of w that are formatted at once
BLOCK_BYTES = 1 << 20  # bytes of text that are parsed at once


@dataclass(frozen=True)
class LiblinearModel:
    """The lines of a model as LIBLINEAR writes them.

    f_c(x) = sum_j w_jc x_j + bias w_(last)c - rho

    label : for each class; None for regression and one-class
    bias : value of the additional last feature; negative: no such feature
    rho : for one-class, else None
    w : (nr_feature + 1 with a bias, columns) float64, C-contiguous; see `shape_of_w`
    own_format : whether the layout is the package's own, which LIBLINEAR refuses
    """

    solver_type: str
    nr_class: int
    label: tuple[int, ...] | None
    nr_feature: int
    bias: float
    rho: float | None
    w: np.ndarray
    own_format: bool = False


def shape_of_w(solver_type: str, nr_class: int, nr_feature: int, bias: float) -> tuple[int, int]:
    """Return rows and columns of w. Two classes have one column except in MCSVM_CS."""
    one_column = nr_class == 2 and solver_type != CRAMMER_SINGER
    return nr_feature + (bias >= 0), 1 if one_column else nr_class


# --- writing -------------------------------------------------------------------------------


def write(path: str, model: LiblinearModel, trailer: Mapping[str, str]) -> None:
    """Write the model and its sealed trailer; `path` is replaced as a whole or not at all.

    Raise ModelError, before `path` changes, for a model that `parse` would refuse.
    """
    header = _render_header(model)
    _, shape = _fields(Header(header, len(header), path, HEADER_FORMAT))
    if model.w.shape != shape:
        raise ValueError(f"expected w of shape {shape}, got {model.w.shape}")
    if not np.isfinite(model.w).all():
        raise ModelError(f"{path}: expected finite numbers in w, found others")
    with files.create_output(path) as stream:
        sealed = SealedStream(stream)
        sealed.write(header)
        for text in _render_rows(model.w):
            sealed.write(text)
        sealed.seal(trailer)


def _render_header(model: LiblinearModel) -> bytes:
    """Return the lines up to 'w', in LIBLINEAR's order."""
    entries: dict[str, tuple[object, ...] | None] = {
        "solver_type": (model.solver_type,),
        "nr_class": (model.nr_class,),
        "label": model.label,
        "nr_feature": (model.nr_feature,),
        "bias": (compact(model.bias),),
        "rho": None if model.rho is None else (compact(model.rho),),
    }
    return headers.render(HEADER_FORMAT, entries, model.own_format)


def _render_rows(w: np.ndarray) -> Iterator[bytes]:
    """Yield the rows of w in blocks of lines. As in LIBLINEAR a space follows each number."""
    columns = w.shape[1]
    rows = max(1, BLOCK_NUMBERS // columns)
    for start in range(0, len(w), rows):
        numbers = words_of_numbers(w[start : start + rows])
        lines = map(" ".join, zip(*[iter(numbers)] * columns, strict=True))
        text = " \n".join([*lines, ""])
        yield text.replace(".0 ", " ").encode()  # only whole numbers end with '.0'


# --- reading -------------------------------------------------------------------------------


def parse(content: bytes, name: str) -> tuple[LiblinearModel, dict[str, str] | None]:
    """Return the model in `content` and its trailer, None in LIBLINEAR's files.

    name : the file's name in messages. Memory: `content`, two copies of w and some blocks of text.
    A wrong size in the header does not increase it. Raise ModelError.
    """
    header, trailer = headers.read(content, name, HEADER_FORMAT)
    fields, (rows, columns) = _fields(header)
    return LiblinearModel(**fields, w=_parse_rows(header, rows, columns)), trailer


def _fields(header: Header) -> tuple[dict[str, Any], tuple[int, int]]:
    """Return the fields of LiblinearModel without w, and the shape of w."""
    solver_type = header.choice("solver_type", SOLVER_TYPES)
    nr_class = _nr_class(header, solver_type)
    nr_feature = header.non_negative("nr_feature", header.integers)
    bias = header.numbers("bias", 1)[0]
    shape = shape_of_w(solver_type, nr_class, nr_feature, bias)
    _check_size(header, *shape)
    return {
        "solver_type": solver_type,
        "nr_class": nr_class,
        "label": _label(header, solver_type, nr_class),
        "nr_feature": nr_feature,
        "bias": bias,
        "rho": _rho(header, solver_type),
        "own_format": header.own_format,
    }, shape


def _nr_class(header: Header, solver_type: str) -> int:
    nr_class = header.integers("nr_class", 1)[0]
    if solver_type not in CLASSIFIER_SOLVERS and nr_class != 2:
        raise header.error(
            header.line_of("nr_class"), f"nr_class 2 of {solver_type}", f"{nr_class}"
        )
    if nr_class < 1:
        raise header.error(header.line_of("nr_class"), "nr_class of 1 or more", f"{nr_class}")
    return nr_class


def _label(header: Header, solver_type: str, nr_class: int) -> tuple[int, ...] | None:
    """Return a number for each class; None for other tasks, or if the own layout lacks it."""
    if solver_type not in CLASSIFIER_SOLVERS:
        header.check_absent("label", solver_type, ["a classifier"])
        return None
    if header.own_format and "label" not in header:
        return None
    label = header.integers("label", nr_class)
    most_common, times = Counter(label).most_common(1)[0]
    if times > 1:
        raise header.error(
            header.line_of("label"), "different labels", f"{most_common} {times} times"
        )
    return label


def _rho(header: Header, solver_type: str) -> float | None:
    if solver_type != ONE_CLASS_SOLVER:
        header.check_absent("rho", solver_type, [ONE_CLASS_SOLVER])
        return None
    return header.numbers("rho", 1)[0]


def _check_size(header: Header, rows: int, columns: int) -> None:
    if not header.own_format and max(rows, rows * columns) >= INT_LIMIT:
        raise header.error(
            header.line_of("nr_feature"),
            "less than 2^31 numbers of w, which LIBLINEAR counts in a C int",
            f"{rows} rows of {columns}",
        )


def _parse_rows(header: Header, rows: int, columns: int) -> np.ndarray:
    """Return w, (rows, columns) float64, from one line of numbers for each row.

    Memory depends on the text alone, not on `rows` and `columns`.
    """
    header.check_rows(rows, "rows of w (nr_feature and the bias)")
    blocks = [np.empty(0)]
    number = header.first_row_line
    for text in _blocks_of_lines(header.content, header.size, header.end):
        block = _numbers(text, columns)
        if block is None:
            raise _first_error(header, number, text, columns)
        blocks.append(block)
        number += text.count(b"\n")
    return np.concatenate(blocks).reshape(rows, columns)


def _blocks_of_lines(content: bytes, start: int, end: int) -> Iterator[bytes]:
    """Yield content[start:end], which ends with a newline, in blocks of whole lines."""
    while start < end:
        stop = content.index(b"\n", min(start + BLOCK_BYTES, end - 1)) + 1
        yield content[start:stop]
        start = stop


def _numbers(text: bytes, columns: int) -> np.ndarray | None:
    """Return the numbers in lines of `columns` finite numbers; None if the text is anything else.

    float() also accepts inf, nan and 1_0, which `is_number` refuses.
    """
    if not _has_columns(text, columns):
        return None
    try:
        numbers = np.array(list(map(float, text.split())))
    except ValueError:
        return None
    return numbers if np.isfinite(numbers).all() and b"_" not in text else None


def _has_columns(text: bytes, columns: int) -> bool:
    """Return whether every line of text has `columns` words."""
    characters = np.frombuffer(text, np.uint8)
    blank = characters <= ord(" ")  # a word with another control character is not a number
    word_start = ~blank
    word_start[1:] &= blank[:-1]
    newlines = np.flatnonzero(characters == ord("\n"))
    words_before = np.searchsorted(np.flatnonzero(word_start), newlines)
    return bool((words_before == columns * np.arange(1, len(newlines) + 1)).all())


def _first_error(header: Header, first_line: int, text: bytes, columns: int) -> ModelError:
    """Return the error of the first invalid line. The text must contain an invalid line."""
    for number, line in enumerate(text[:-1].split(b"\n"), first_line):
        words = line.split()
        for word in words:
            if not is_number(word):
                return header.error(number, "a finite number of w", word)
        if len(words) != columns:
            expected = f"{columns} number{'s' * (columns > 1)} in a row of w"
            return header.error(number, expected, f"{len(words)}")
    raise AssertionError("expected a bad line")
