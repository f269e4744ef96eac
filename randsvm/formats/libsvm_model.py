"""LIBSVM's text model format and its checks.

Holds what the file holds and nothing more: what a model means is the business of model.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from randsvm import files, svmlight
from randsvm.errors import DataError, ModelError
from randsvm.formats import header as headers
from randsvm.formats import trailer as trailers
from randsvm.formats.header import FOREIGN as FOREIGN
from randsvm.formats.header import FOREIGN_VERSION as FOREIGN_VERSION
from randsvm.formats.header import Header, Layout
from randsvm.formats.trailer import shown

CLASSIFIERS = ("c_svc", "nu_svc")
SVM_TYPES = (*CLASSIFIERS, "one_class", "epsilon_svr", "nu_svr")
KERNEL_PARAMETERS = {
    "linear": (),
    "polynomial": ("degree", "gamma", "coef0"),
    "rbf": ("gamma",),
    "sigmoid": ("gamma", "coef0"),
}
NO_KERNELS = {"precomputed": "'precomputed': such a model holds row numbers, not support vectors"}
# In LIBSVM's order. Two classes, regression and one-class all have nr_class 2 and one rho.
KEYWORDS = (
    "svm_type", "kernel_type", "degree", "gamma", "coef0", "nr_class", "total_sv", "rho",
    "label", "probA", "probB", "prob_density_marks", "nr_sv",
)  # fmt: skip

LAYOUT = Layout("LIBSVM", KEYWORDS, end="SV", longest_line=4096)


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
    _fields(Header(header, len(header), path, LAYOUT))
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

    repr of a float has at most 24 characters where LIBSVM's reader takes 80.
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
    return headers.render(LAYOUT, entries, foreign_first_line)


def _one(number: float | None) -> tuple[float] | None:
    return None if number is None else (number,)


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
    header, trailer = headers.read(content, name, LAYOUT)
    return LibsvmModel(**_fields(header), **_parse_rows(header)), trailer


def _fields(header: Header) -> dict[str, Any]:
    """What LibsvmModel holds beside the support vectors."""
    svm_type = header.choice("svm_type", SVM_TYPES)
    kernel_type = header.choice("kernel_type", KERNEL_PARAMETERS, NO_KERNELS)
    _check_classes(header)
    label, nr_sv = (_pair(header, keyword, svm_type) for keyword in ("label", "nr_sv"))
    if label and label[0] == label[1]:
        raise header.error(header.at("label"), "two different labels", f"{label[0]} twice")
    total_sv = _total_sv(header)
    if nr_sv and (min(nr_sv) < 0 or sum(nr_sv) != total_sv):
        raise header.error(
            header.at("nr_sv"), f"two counts with the sum {total_sv} (total_sv)", f"{nr_sv}"
        )
    used = KERNEL_PARAMETERS[kernel_type]
    return {
        "svm_type": svm_type,
        "kernel_type": kernel_type,
        "degree": header.not_negative("degree", header.integers) if "degree" in used else None,
        "gamma": header.not_negative("gamma", header.numbers) if "gamma" in used else None,
        "coef0": header.numbers("coef0", 1)[0] if "coef0" in used else None,
        "rho": header.numbers("rho", 1)[0],
        "label": label,
        "nr_sv": nr_sv,
        "probA": header.optional_numbers("probA", 1),
        "probB": header.optional_numbers("probB", 1),
        "prob_density_marks": header.optional_numbers("prob_density_marks", 10),
    }


def _total_sv(header: Header) -> int:
    return header.not_negative("total_sv", header.integers)


def _check_classes(header: Header) -> None:
    classes = header.integers("nr_class", 1)[0]
    if classes > 2:
        raise header.error(
            header.at("nr_class"),
            "a model of two classes",
            f"nr_class {classes}: LIBSVM's models of more classes are not supported",
        )
    if classes != 2:
        raise header.error(header.at("nr_class"), "nr_class 2", f"{classes}")


def _pair(header: Header, keyword: str, svm_type: str) -> tuple[int, int] | None:
    """Two whole numbers: of classifiers only, and a foreign one may go without."""
    if svm_type not in CLASSIFIERS:
        header.check_absent(keyword, svm_type, CLASSIFIERS)
        return None
    if header.foreign and keyword not in header:
        return None
    first, second = header.integers(keyword, 2)
    return first, second


def _parse_rows(header: Header) -> dict[str, Any]:
    """The support vectors: as many svmlight rows as promised, one a line, nothing else."""
    total_sv = _total_sv(header)
    header.check_rows(total_sv, "support vectors (total_sv)")
    text = header.content[header.size : header.end]
    _check_plain_rows(text, header)
    block = svmlight.parse(
        text, name=header.name, labels="number", zero_based=True, first_line=header.rows_at
    )
    if len(block.y) != total_sv:
        blank = next(n for n, line in enumerate(text.split(b"\n")) if not line.strip())
        raise header.error(header.rows_at + blank, "a support vector", "a blank line")
    return {
        "coefficients": np.asarray(block.y, np.float64),
        "indptr": np.asarray(block.indptr, np.int64),
        "indices": np.asarray(block.indices, np.int32),
        "values": np.asarray(block.values, np.float32),
    }


# A row of LIBSVM holds none of these, though svmlight text may: comments, qid, unlabelled rows.
FOREIGN_TO_ROWS = (b"#", b"q", b"?", b"\xef")


def _check_plain_rows(text: bytes, header: Header) -> None:
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
