"""Write a model as C99 source: `decision.c` of this package with the tables of the model.

The code allocates no memory and reads no files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from textwrap import fill, wrap
from typing import Any

import numpy as np

from randsvm import __version__
from randsvm.data.chunks import as_stored
from randsvm.files import encoded
from randsvm.models import decisions
from randsvm.models.kernel_model import KernelModel
from randsvm.models.model import Model
from randsvm.models.normal_form import NormalForm

# The first words of a file, by which a later export recognises that it may replace it.
BEGINNING: bytes = b"/* randsvm model in C"
# The line of decision.c that the constants and tables of a model replace.
PLACE = '#include "model.h"\n'
# Terms with a larger share of nonzeros are stored with their zeros.
DENSE = 0.4
# Type of the entries of a table -> their type in C.
TYPES = {
    "float64": "randsvm_real",
    "float32": "float",
    "int8": "signed char",
    "int16": "short",
    "int32": "int",
    "int64": "int",
}
# A shift of this many deviations takes six of the 24 bits of a float.
FAR_FROM_0 = 64


def c_source(model: Model, form: NormalForm) -> bytes:
    """Return the source of a model of a regression or of at least two classes."""
    code = Path(__file__).with_name("decision.c").read_text()
    tables = [
        _table(name, values) if isinstance(values, np.ndarray) else _texts(name, values)
        for name, values in _tables(model, form).items()
    ]
    definitions = "\n".join([*_constants(model, form), "", *tables])
    return encoded(f"{_comment(model)}\n{code.replace(PLACE, definitions)}")


def _comment(model: Model) -> str:
    about = {name: value for name, value in model.properties().items() if name != "format"}
    shown = ", ".join(f"{name} {value}" for name, value in about.items() if value is not None)
    first = "feature i" if model.zero_based else "feature i + 1"
    lines = [
        *wrap(f"{shown}.".replace("*/", "* /"), 96),
        f"x has RANDSVM_FEATURES entries: x[i] is {first} of a row, 0 where a row has none.",
        f"f has RANDSVM_DECISIONS entries: {_meaning(model)}.",
    ]
    if model.columns is not None:
        lines.append(
            "randsvm_feature(i) names entry i: column, or column=text (x[i] = 1: that text)."
        )
    if model.has_class_probabilities:
        lines.append("p has RANDSVM_CLASSES entries: the probability of each class.")
    text = "\n".join(f" * {line}" for line in lines)
    return f"{BEGINNING.decode()}, written by randsvm {__version__}.\n{text}\n */"


def _meaning(model: Model) -> str:
    if model.is_regression:
        return "the prediction"
    if model.has_pairs:
        return "one for each pair (0, 1), (0, 2), .., > 0 is a vote for the first class"
    if len(model.b) > 1:
        return "one for each class, the largest wins"
    return "> 0 is class 0, else class 1"


def _constants(model: Model, form: NormalForm) -> Iterator[str]:
    marks = model.density_marks
    scalar = form.offset.ndim == 0
    values: dict[str, Any] = {
        "RANDSVM_FEATURES": form.inputs,
        "RANDSVM_DECISIONS": len(form.b),
        "RANDSVM_CLASSES": len(model.labels),
        "FIRST_INDEX": model.index_base,
        "NEEDS_DOUBLE": int(_needs_double(model)),
        "SINGLE": int(form.single),
        "SCALED": int(form.factor is not None),
        "UNIT": int(form.unit),
        "PHI": form.phi.upper(),
        "SPARSE": int(_is_sparse(form)),
        "GAMMA": repr(float(form.gamma)),
        "OFFSET(j)": repr(float(form.offset)) if scalar else "phases[j]",
        "DEGREE": int(form.degree) if form.degree.ndim == 0 else 0,
        "GROUPS": len(form.columns),
        "WIDTH": form.c.shape[1],
        "PAIRS": int(model.has_pairs),
        "INTEGER_LABELS": int(bool(model.int_labels)),
        "HAS_FEATURE_NAMES": int(model.columns is not None),
        "PROBABILITIES": int(model.has_class_probabilities),
        "MARKS": 0 if marks is None else len(marks),
        "MIN_PROBABILITY": decisions.MIN_PROBABILITY,
        "COUPLING_STEPS": max(decisions.MAX_COUPLING_STEPS, len(model.labels)),
        "COUPLING_TOLERANCE": decisions.COUPLING_TOLERANCE / max(1, len(model.labels)),
    }
    if model.noise_scale is not None:
        values["NOISE_SCALE"] = repr(float(model.noise_scale))
    return (f"#define {name} {value}" for name, value in values.items())


def _is_sparse(form: NormalForm) -> bool:
    is_matrix = form.phi not in ("entry", "signs")
    return is_matrix and form.Z.nnz < DENSE * len(form.c) * form.inputs


def _needs_double(model: Model) -> bool:
    """Return whether float is too coarse for the features of the model.

    After scaling, features are near 0: then float lacks digits of features far from 0 only.
    """
    if not isinstance(model, KernelModel):
        return model.float64
    if model.scaling is None:
        return as_stored(model.Z.data).dtype == np.float64
    shift, factor = model.scaling.shift, model.scaling.factor
    return shift is not None and bool(np.abs(shift * factor).max(initial=0.0) > FAR_FROM_0)


# --- tables --------------------------------------------------------------------------------


def _tables(model: Model, form: NormalForm) -> dict[str, Any]:
    """Return the tables by name: arrays of numbers, or sequences of texts."""
    tables = {
        "offsets": form.b,
        "shift": form.shift,
        "factor": form.factor,
        "groups": form.starts,
        "columns": form.columns,
        "coefficients": form.c,
        "phases": form.offset if form.offset.ndim else None,
        "labels": model.labels or None,
        "label_values": np.array(model.int_labels) if model.int_labels else None,
        "marks": model.density_marks,
    }
    if form.phi == "signs":
        tables |= {"start": np.cumsum([0, *form.degree]), "signs": form.Z}
    elif _is_sparse(form):
        position = form.Z.indices.astype(np.min_scalar_type(-form.inputs))
        tables |= {"start": form.Z.indptr, "position": position, "entries": form.Z.data}
    elif form.phi != "entry":
        tables["entries"] = form.Z.toarray()
    if model.columns is not None:
        names = model.columns.feature_names[: form.inputs]
        tables["feature_names"] = names + [""] * (form.inputs - len(names))
    if model.sigmoid is not None:
        tables |= {"sigmoid_a": model.sigmoid[0], "sigmoid_b": model.sigmoid[1]}
    return {name: values for name, values in tables.items() if values is not None}


def _table(name: str, values: np.ndarray) -> str:
    """Return the definition of a constant array, of literals that read back to the same bits."""
    suffix = "f" if values.dtype == np.float32 else ""
    # The text of a float32 is its shortest one. C has no arrays of length 0.
    words = [f"{word}{suffix}" for word in values.ravel().astype(str).tolist()] or ["0"]
    text = fill(", ".join(words), 99, break_long_words=False, break_on_hyphens=False)
    return f"static const {TYPES[values.dtype.name]} {name}[{len(words)}] = {{\n{text}\n}};\n"


def _texts(name: str, texts: Sequence[str]) -> str:
    """Return an array of strings; bytes that are not printable ASCII, and '?', are escaped."""
    plain = set(range(32, 127)) - set(b'"\\?')
    escaped = [
        "".join(chr(b) if b in plain else f"\\{b:03o}" for b in encoded(text)) for text in texts
    ]
    listed = ",\n".join(f'"{text}"' for text in escaped)
    return f"static const char *const {name}[{len(texts)}] = {{\n{listed}\n}};\n"
