"""LIBSVM's text model format and its checks.

Holds what the file holds and nothing more: what a model means is the business of model.py.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from randsvm import files, svmlight
from randsvm.errors import DataError, ModelError
from randsvm.formats import trailer as trailers
from randsvm.formats.trailer import shown

CLASSIFIERS = ("c_svc", "nu_svc")
SVM_TYPES = (*CLASSIFIERS, "one_class", "epsilon_svr", "nu_svr")
KERNEL_PARAMETERS = {
    "linear": (),
    "polynomial": ("degree", "gamma", "coef0"),
    "rbf": ("gamma",),
    "sigmoid": ("gamma", "coef0"),
}
# In LIBSVM's order. Two classes, regression and one-class all have nr_class 2 and one rho.
KEYWORDS = (
    "svm_type", "kernel_type", "degree", "gamma", "coef0", "nr_class", "total_sv", "rho",
    "label", "probA", "probB", "prob_density_marks", "nr_sv",
)  # fmt: skip

# First word of a model that LIBSVM's programs must refuse; the second word is the version.
FOREIGN = "randsvm_model"
FOREIGN_VERSION = 1

NUMBER = re.compile(rb"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,9})?")
INTEGER = re.compile(rb"[+-]?[0-9]{1,18}")
INT_LIMIT = 2**31  # LIBSVM reads whole numbers as C ints
LONGEST_LINE = 4096  # of a header

N = TypeVar("N", int, float)


@dataclass(frozen=True)
class LibsvmModel:
    """f(x) = sum_i coefficients_i K(SV_i, x) - rho, as LIBSVM writes it.

    label, nr_sv : of the two classes, None for regression and one-class
    coefficients : (m,) float64
    indptr (m + 1,) int64, indices (nnz,) int32 as written, values (nnz,) float32 : the SVs' rows
    probA, probB, prob_density_marks : 1, 1 and 10 numbers where LIBSVM fitted probabilities
    """

    svm_type: str
    kernel_type: str
    degree: int | None
    gamma: float | None
    coef0: float | None
    rho: float
    label: tuple[int, int] | None
    nr_sv: tuple[int, int] | None
    coefficients: np.ndarray
    indptr: np.ndarray
    indices: np.ndarray
    values: np.ndarray
    probA: tuple[float, ...] | None = None  # noqa: N815 - LIBSVM's keyword
    probB: tuple[float, ...] | None = None  # noqa: N815
    prob_density_marks: tuple[float, ...] | None = None


# Writing


def write(
    path: str,
    model: LibsvmModel,
    trailer: Mapping[str, str],
    foreign_first_line: str | None = None,
) -> None:
    """Write `model`, the trailer's items and their seal to `path`, whole or not at all.

    foreign_first_line: 'randsvm_model 1 ...' makes LIBSVM's programs refuse a model that they
    would misread; it may then lack `label` and `nr_sv`.
    Raises ModelError, before `path` is touched, for a model that `read` would refuse.
    """
    header = _render_header(model, foreign_first_line)
    _Header(header, len(header), path).fields()
    _check_arrays(model, path)
    with files.create_output(path) as stream:
        sealed = trailers.Sealed(stream)
        sealed.write(header)
        # Support vectors are svmlight rows with the coefficient in the label's place.
        coefficients = [repr(number) for number in model.coefficients.tolist()]
        svmlight.write(sealed, coefficients, model.indptr, model.indices, model.values)
        sealed.seal(trailer)


def _render_header(model: LibsvmModel, foreign_first_line: str | None) -> bytes:
    """The lines up to 'SV'; parameters that the kernel does not use are left out, as LIBSVM does.

    repr of a float is its shortest form that reads back to the same bits, at most 24 characters
    where LIBSVM's reader takes 80.
    """
    used = KERNEL_PARAMETERS.get(model.kernel_type, ())
    entries: dict[str, tuple[object, ...] | None] = {
        "svm_type": (model.svm_type,),
        "kernel_type": (model.kernel_type,),
        **{key: _one(getattr(model, key)) for key in used},
        "nr_class": (2,),
        "total_sv": (len(model.coefficients),),
        "rho": (float(model.rho),),
        "label": model.label,
        "probA": model.probA,
        "probB": model.probB,
        "prob_density_marks": model.prob_density_marks,
        "nr_sv": model.nr_sv,
    }
    lines = [] if foreign_first_line is None else [foreign_first_line]
    lines += [
        " ".join([key, *map(_text, entry)]) for key, entry in entries.items() if entry is not None
    ]
    return "\n".join([*lines, "SV", ""]).encode()


def _one(number: float | None) -> tuple[float] | None:
    return None if number is None else (number,)


def _text(entry: object) -> str:
    # float() first: repr of a numpy number names its type.
    return repr(float(entry)) if isinstance(entry, float | np.floating) else str(entry)


def _check_arrays(model: LibsvmModel, path: str) -> None:
    """Refuse rows that `read` would refuse: numbers not finite, indices not ascending."""
    indices, indptr = model.indices, model.indptr
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


# Reading


def read(path: str) -> tuple[LibsvmModel, dict[str, str] | None]:
    """The model in `path` (`-`: standard input) and its trailer; None for LIBSVM's own files."""
    return parse(files.read_whole(path), files.display_name(path))


def parse(content: bytes, name: str) -> tuple[LibsvmModel, dict[str, str] | None]:
    """The model in `content`, which messages call `name`, and its trailer.

    Raises ModelError, or DataError with line and column inside the support vectors.
    """
    end, trailer = trailers.split(content, name)
    header = _Header(content, end, name)
    if header.foreign and trailer is None:
        raise ModelError(
            f"{name}: expected '# randsvm' lines at the end of a {FOREIGN} file, found none "
            f"(truncated?)"
        )
    return LibsvmModel(**header.fields(), **_parse_rows(content, end, header)), trailer


class _Header:
    """The lines up to 'SV' in content[:end].

    foreign: whether the first line is one that LIBSVM's programs refuse
    size: bytes up to and with the line 'SV'; rows_at: number of the line after it
    """

    def __init__(self, content: bytes, end: int, name: str) -> None:
        self.name = name
        self.foreign = False
        self._found: dict[str, tuple[int, list[bytes]]] = {}
        self.size = 0
        for number in itertools.count(1):
            line = self._line(content, end, number)
            self.size += len(line)
            word, *rest = line.split() or [b""]
            if number == 1 and word == FOREIGN.encode():
                self._check_version(rest)
                self.foreign = True
            elif line.rstrip() == b"SV":
                self.rows_at = number + 1
                break
            else:
                self._add(number, word, rest, line)

    def _line(self, content: bytes, end: int, number: int) -> bytes:
        if self.size == end:
            if end == 0:
                raise self.error(number, "a model", "an empty file")
            raise self.error(number, "the line 'SV'", "the end of the file (truncated?)")
        limit = min(end, self.size + LONGEST_LINE)
        line = content[self.size : content.find(b"\n", self.size, limit) + 1]
        if not line:
            found = content[self.size : limit]
            raise self.error(number, "a whole line of the model's header", found)
        return line

    def error(self, number: int, expected: str, found: bytes | str) -> ModelError:
        what = found if isinstance(found, str) else shown(found.strip())
        return ModelError(f"{self.name}:{number}: expected {expected}, found {what}")

    def _check_version(self, words: list[bytes]) -> None:
        version = b"".join(words[:1])
        if INTEGER.fullmatch(version) and int(version) > FOREIGN_VERSION:
            raise self.error(
                1,
                f"{FOREIGN} {FOREIGN_VERSION}",
                f"{FOREIGN} {int(version)}: a newer version of randsvm wrote this model",
            )
        if version != b"%d" % FOREIGN_VERSION:
            raise self.error(1, f"{FOREIGN} {FOREIGN_VERSION}", version)

    def _add(self, number: int, word: bytes, rest: list[bytes], line: bytes) -> None:
        keyword = word.decode("ascii", "replace")
        if keyword not in KEYWORDS:
            raise self.error(number, "a keyword of LIBSVM's model format", word or line)
        if keyword in self._found:
            first = self._found[keyword][0]
            raise self.error(number, f"'{keyword}' once (line {first})", "it again")
        self._found[keyword] = number, rest

    def fields(self) -> dict[str, Any]:
        """What LibsvmModel holds beside the support vectors."""
        svm_type = self._choice("svm_type", SVM_TYPES)
        kernel_type = self._choice("kernel_type", KERNEL_PARAMETERS)
        self._check_classes(svm_type)
        label, nr_sv = (self._pair(keyword, svm_type) for keyword in ("label", "nr_sv"))
        if label and label[0] == label[1]:
            raise self.error(self._at("label"), "two different labels", f"{label[0]} twice")
        if nr_sv and (min(nr_sv) < 0 or sum(nr_sv) != self.total_sv):
            raise self.error(
                self._at("nr_sv"), f"two counts with the sum {self.total_sv} (total_sv)", f"{nr_sv}"
            )
        used = KERNEL_PARAMETERS[kernel_type]
        return {
            "svm_type": svm_type,
            "kernel_type": kernel_type,
            "degree": self._not_negative("degree", self._integers) if "degree" in used else None,
            "gamma": self._not_negative("gamma", self._numbers) if "gamma" in used else None,
            "coef0": self._numbers("coef0", 1)[0] if "coef0" in used else None,
            "rho": self._numbers("rho", 1)[0],
            "label": label,
            "nr_sv": nr_sv,
            "probA": self._optional_numbers("probA", 1),
            "probB": self._optional_numbers("probB", 1),
            "prob_density_marks": self._optional_numbers("prob_density_marks", 10),
        }

    @property
    def total_sv(self) -> int:
        return self._not_negative("total_sv", self._integers)

    def _not_negative(self, keyword: str, read: Callable[[str, int], tuple[N, ...]]) -> N:
        number = read(keyword, 1)[0]
        if number < 0:
            raise self.error(self._at(keyword), f"{keyword} of 0 or more", f"{number}")
        return number

    def _choice(self, keyword: str, allowed: Iterable[str]) -> str:
        words = self._words(keyword)
        word = b" ".join(words).decode("ascii", "replace")
        if word not in allowed:
            hint = "'precomputed': such a model holds row numbers, not support vectors"
            found = hint if word == "precomputed" else b" ".join(words)
            raise self.error(self._at(keyword), f"{keyword} {_either(allowed)}", found)
        return word

    def _check_classes(self, svm_type: str) -> None:
        classes = self._integers("nr_class", 1)[0]
        if classes > 2:
            raise self.error(
                self._at("nr_class"),
                "a model of two classes",
                f"nr_class {classes}: LIBSVM's models of more classes are not supported",
            )
        if classes != 2:
            raise self.error(self._at("nr_class"), "nr_class 2", f"{classes}")

    def _pair(self, keyword: str, svm_type: str) -> tuple[int, int] | None:
        """Two whole numbers: of classifiers only, and a foreign one may go without."""
        if svm_type not in CLASSIFIERS:
            if keyword in self._found:
                found = f"'{keyword}', which only {_either(CLASSIFIERS)} has"
                raise self.error(self._at(keyword), f"the header of {svm_type}", found)
            return None
        if self.foreign and keyword not in self._found:
            return None
        first, second = self._integers(keyword, 2)
        return first, second

    def _at(self, keyword: str) -> int:
        return self._found[keyword][0]

    def _words(self, keyword: str) -> list[bytes]:
        if keyword not in self._found:
            raise ModelError(
                f"{self.name}: expected a line '{keyword} ...' before the line 'SV', found none"
            )
        return self._found[keyword][1]

    def _integers(self, keyword: str, count: int) -> tuple[int, ...]:
        words = self._counted(keyword, count)
        if not all(INTEGER.fullmatch(w) and -INT_LIMIT <= int(w) < INT_LIMIT for w in words):
            raise self.error(
                self._at(keyword), f"whole numbers below 2^31 after '{keyword}'", b" ".join(words)
            )
        return tuple(map(int, words))

    def _numbers(self, keyword: str, count: int) -> tuple[float, ...]:
        words = self._counted(keyword, count)
        if not all(NUMBER.fullmatch(w) and math.isfinite(float(w)) for w in words):
            raise self.error(
                self._at(keyword), f"finite numbers after '{keyword}'", b" ".join(words)
            )
        return tuple(map(float, words))

    def _optional_numbers(self, keyword: str, count: int) -> tuple[float, ...] | None:
        return self._numbers(keyword, count) if keyword in self._found else None

    def _counted(self, keyword: str, count: int) -> list[bytes]:
        words = self._words(keyword)
        if len(words) != count:
            expected = f"{count} number{'s' * (count > 1)} after '{keyword}'"
            raise self.error(self._at(keyword), expected, f"{len(words)}")
        return words


def _either(words: Iterable[str]) -> str:
    *others, last = words
    return f"{', '.join(others)} or {last}"


def _parse_rows(content: bytes, end: int, header: _Header) -> dict[str, Any]:
    """The support vectors: as many svmlight rows as promised, one a line, nothing else."""
    _check_row_count(content, end, header)
    text = content[header.size : end]
    _check_plain_rows(text, header)
    block = svmlight.parse(
        text, name=header.name, labels="number", zero_based=True, first_line=header.rows_at
    )
    if len(block.y) != header.total_sv:
        blank = next(n for n, line in enumerate(text.split(b"\n")) if not line.strip())
        raise header.error(header.rows_at + blank, "a support vector", "a blank line")
    return {
        "coefficients": np.asarray(block.y, np.float64),
        "indptr": np.asarray(block.indptr, np.int64),
        "indices": np.asarray(block.indices, np.int32),
        "values": np.asarray(block.values, np.float32),
    }


def _check_row_count(content: bytes, end: int, header: _Header) -> None:
    promised, found = header.total_sv, content.count(b"\n", header.size, end)
    last_line = header.rows_at + found
    tail = content[content.rfind(b"\n", 0, end) + 1 : end]
    if found < promised:
        raise header.error(
            last_line,
            f"{promised} support vectors (total_sv)",
            f"{found} whole lines of them (truncated?)",
        )
    if found > promised or tail:
        raise header.error(
            header.rows_at + promised,
            f"the end of the model after {promised} support vectors (total_sv)",
            content[header.size : end].split(b"\n", promised)[promised],
        )


# A row of LIBSVM holds none of these, though svmlight text may: comments, qid, unlabelled rows.
FOREIGN_TO_ROWS = (b"#", b"q", b"?", b"\xef")


def _check_plain_rows(text: bytes, header: _Header) -> None:
    for mark in FOREIGN_TO_ROWS:
        at = text.find(mark)
        if at >= 0:
            line, column = text.count(b"\n", 0, at), at - text.rfind(b"\n", 0, at)
            raise DataError(
                header.name,
                header.rows_at + line,
                column,
                f"expected a support vector, found {shown(text[at : at + 1])}",
            )
