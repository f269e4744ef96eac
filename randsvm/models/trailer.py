"""Read and write the trailer of a model file: '# randsvm key value' lines that end with a seal.

The trailer holds what LIBSVM's and LIBLINEAR's formats cannot: labels as the training data spells
them, the index base, the features of the training data, scaling, the certificate. The seal is a
line with the sha256 of all bytes before it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from randsvm.data.columns import Columns
from randsvm.data.labels import LabelTable
from randsvm.data.scaling import Scaling
from randsvm.data.svmlight import MAX_INDEX
from randsvm.decimals import join_numbers, parse_numbers
from randsvm.errors import DataError, ModelError, quoted
from randsvm.files import Sink, decoded, encoded
from randsvm.parameters.run import SCALINGS

Parsed = TypeVar("Parsed")

# --- features of the training data ---------------------------------------------------------

# The largest length of an array of features. Without it a few bytes of a damaged model
# ("1-2147483647") would allocate gigabytes.
MAX_FEATURES = 1 << 22


@dataclass(frozen=True)
class SeenFeatures:
    """Feature indices as runs first..last, both (runs,) int64 and ascending: '1-7,9,12-13'."""

    first: np.ndarray
    last: np.ndarray

    @staticmethod
    def of(features: np.ndarray) -> SeenFeatures:
        """Return the runs of features, (d,) int32 and ascending."""
        breaks = np.flatnonzero(np.diff(features) != 1)
        starts = np.concatenate([[0], breaks + 1])[: len(features)]
        ends = np.concatenate([breaks, [len(features) - 1]])[: len(features)]
        return SeenFeatures(features[starts], features[ends])

    def contains(self, indices: np.ndarray) -> np.ndarray:
        """Return whether each index was in the training data, (m,) bool. indices : (m,)."""
        if len(self.first) == 0:
            return np.zeros(len(indices), bool)
        run = np.searchsorted(self.first, indices, side="right") - 1
        return (run >= 0) & (indices <= self.last[run])

    def indices(self, limit: int) -> np.ndarray:
        """Return the first `limit` + 1 indices, (m,) int32 and ascending.

        m > limit means that the features may be incomplete.
        """
        sizes = np.cumsum(self.last - self.first + 1)
        runs = int(np.searchsorted(sizes, limit, side="right")) + 1
        pairs = zip(self.first[:runs].tolist(), self.last[:runs].tolist(), strict=True)
        parts = [np.arange(a, min(b, a + limit) + 1) for a, b in pairs]
        return np.concatenate([np.empty(0, np.int64), *parts])[: limit + 1].astype(np.int32)

    @property
    def count(self) -> int:
        return int((self.last - self.first + 1).sum())

    def __str__(self) -> str:
        pairs = zip(self.first.tolist(), self.last.tolist(), strict=True)
        return ",".join(f"{a}-{b}" if b > a else f"{a}" for a, b in pairs)

    @staticmethod
    def parse(text: str) -> SeenFeatures:
        """Return the features of a text that str() made. Raise ValueError."""
        if not re.fullmatch(r"(\d{1,10}(-\d{1,10})?(,\d{1,10}(-\d{1,10})?)*)?", text):
            raise ValueError(f"expected runs of features as 1-7,9, found {text[:40]!r}")
        runs = [run.partition("-") for run in text.split(",") if run]
        first = np.array([int(a) for a, _, _ in runs], np.int64)
        last = np.array([int(b or a) for a, _, b in runs], np.int64)
        if not (np.all(first <= last) and np.all(last[:-1] < first[1:])):
            raise ValueError("expected runs of features in ascending order")
        if len(last) and last[-1] > MAX_INDEX:
            raise ValueError(f"expected features of at most {MAX_INDEX}, found {last[-1]}")
        return SeenFeatures(first, last)


# --- lines and seal ------------------------------------------------------------------------

# Version of the trailer. Raise it when older readers would misunderstand a model.
TRAILER_VERSION = 1

LINE_PREFIX = b"# randsvm "
FORMAT_PREFIX = LINE_PREFIX + b"format "
SEAL_PREFIX = LINE_PREFIX + b"sha256 "

# A value must stay on its line, and LIBSVM's reader stops at a NUL.
ESCAPES = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\0": "\\0"}
UNESCAPES = {written: plain for plain, written in ESCAPES.items()}


class SealedStream:
    """A stream that writes to another one and ends with a trailer and the digest of all bytes."""

    def __init__(self, stream: Sink) -> None:
        self._stream = stream
        self._digest = hashlib.sha256()

    def write(self, data: bytes, /) -> int:
        self._digest.update(data)
        self._stream.write(data)
        return len(data)

    def seal(self, items: Mapping[str, str]) -> None:
        """Write the trailer: its format, the items in order, the sha256 of all bytes so far."""
        self.write(FORMAT_PREFIX + b"%d\n" % TRAILER_VERSION)
        for key, value in items.items():
            self.write(_line(key, value))
        self._stream.write(SEAL_PREFIX + self._digest.hexdigest().encode() + b"\n")


def _line(key: str, value: str) -> bytes:
    if not re.fullmatch(r"[!-~]+", key) or key in ("format", "sha256"):
        raise ValueError(f"expected one unreserved ASCII word as trailer key, got {key!r}")
    escaped = "".join(ESCAPES.get(character, character) for character in value)
    return LINE_PREFIX + encoded(f"{key} {escaped}\n")


def split_trailer(content: bytes, name: str) -> tuple[int, dict[str, str] | None]:
    """Return the length of the model's text without its trailer, and the trailer's items.

    content : the whole file; name : the file's name in messages. The items are None for a file
    without a trailer, by LIBSVM or LIBLINEAR. Raise ModelError if the trailer is truncated,
    altered, followed by other bytes, or of a newer format.
    """
    if content.startswith(LINE_PREFIX):
        raise ModelError(f"{name}:1: expected a model, found its trailer alone")
    start = content.find(b"\n" + LINE_PREFIX) + 1
    if start == 0:
        return len(content), None
    first_line = content.count(b"\n", 0, start) + 1
    lines = content[start:].split(b"\n")
    _check_format(lines[0], f"{name}:{first_line}")
    _check_seal(content, lines, name, first_line)
    return start, _items(lines[1:-2], name, first_line + 1)


def _check_format(line: bytes, where: str) -> None:
    if not line.startswith(FORMAT_PREFIX):
        raise ModelError(
            f"{where}: expected '{FORMAT_PREFIX.decode()}{TRAILER_VERSION}', found {quoted(line)}"
        )
    version = line.removeprefix(FORMAT_PREFIX)
    if re.fullmatch(rb"[1-9][0-9]{0,8}", version) and int(version) > TRAILER_VERSION:
        raise ModelError(
            f"{where}: expected model format {TRAILER_VERSION}, found {int(version)}: "
            f"a newer version of randsvm wrote this model"
        )
    if version != b"%d" % TRAILER_VERSION:
        raise ModelError(
            f"{where}: expected model format {TRAILER_VERSION}, found {quoted(version)}"
        )


def _check_seal(content: bytes, lines: list[bytes], name: str, first_line: int) -> None:
    sealed = [number for number, line in enumerate(lines) if line.startswith(SEAL_PREFIX)]
    if not sealed:
        raise ModelError(
            f"{name}:{first_line + len(lines) - 1}: expected a line '{SEAL_PREFIX.decode()}...' at "
            f"the end, found the end of the file (truncated?)"
        )
    line = lines[sealed[0]]
    where = f"{name}:{first_line + sealed[0]}"
    after = b"\n".join(lines[sealed[0] + 1 :])
    if len(lines) == sealed[0] + 1:
        raise ModelError(
            f"{where}: expected a newline at the end, found {quoted(line)} (truncated?)"
        )
    if after:
        raise ModelError(
            f"{where}: expected the end of the file after the sha256, found {quoted(after)}"
        )
    covered = memoryview(content)[: len(content) - len(line) - 1]
    digest = hashlib.sha256(covered).hexdigest()
    if line != SEAL_PREFIX + digest.encode():
        raise ModelError(
            f"{where}: expected sha256 {digest}, found {quoted(line.removeprefix(SEAL_PREFIX))}: "
            f"the model was altered or damaged after it was written"
        )


def _items(lines: list[bytes], name: str, first_line: int) -> dict[str, str]:
    items: dict[str, str] = {}
    for number, line in enumerate(lines, first_line):
        key, _, value = decoded(line.removeprefix(LINE_PREFIX)).partition(" ")
        if not line.startswith(LINE_PREFIX) or not key or key in items:
            raise ModelError(
                f"{name}:{number}: expected '# randsvm key value' and each key once, "
                f"found {quoted(line)}"
            )
        items[key] = re.sub(r"\\.", lambda found: UNESCAPES.get(found[0], found[0]), value)
    return items


# --- meaning of the lines ------------------------------------------------------------------


def trailer_items(
    labels: Sequence[str],
    zero_based: bool,
    seen: SeenFeatures | None,
    scaling: Scaling | None,
    float64: bool,
    columns: Columns | None = None,
    label_texts: Sequence[str] | None = None,
) -> dict[str, str]:
    """Return the items that `Trailer` reads.

    labels : as the training data spells them; empty if the header or the task determines them.
    float64 : whether feature values are float64. columns : those of tables. label_texts : what
    `labels` stand for if no file of rows can hold it.
    """
    lines = {"labels": " ".join(labels)} if labels else {}
    if label_texts is not None:
        lines["label_texts"] = json.dumps(label_texts)
    lines["index_base"] = "0" if zero_based else "1"
    if float64:
        lines["values"] = "float64"
    if seen is not None:
        lines["features"] = str(seen)
    if columns is not None:
        lines["columns"] = columns.to_json()
    if scaling is not None:
        arrays = {"scale_shift": scaling.shift, "scale_factor": scaling.factor}
        lines["scale"] = scaling.name
        lines |= {key: join_numbers(array) for key, array in arrays.items() if array is not None}
    return lines


def has_float64_values(lines: Mapping[str, str] | None) -> bool:
    """Return whether the feature values of a model are float64. lines : see Trailer.

    A model without a trailer has float64 values, because LIBSVM and LIBLINEAR parse float64.
    """
    return lines is None or lines.get("values") == "float64"


class Trailer:
    """The lines of one trailer. Each method removes the lines that it parses from `unparsed`.

    All methods raise ModelError with the name of the file.
    """

    def __init__(self, file: str, lines: Mapping[str, str] | None) -> None:
        """Take the lines of a trailer; None for a model without one, by LIBSVM or LIBLINEAR."""
        self.file = file
        self.has_no_trailer = lines is None
        self.unparsed = dict(lines or {})

    def take(self, key: str, parse: Callable[[str], Parsed]) -> Parsed | None:
        """Remove the line `key` and return its parsed value; None if there is no such line."""
        try:
            return parse(self.unparsed.pop(key)) if key in self.unparsed else None
        except ValueError as error:
            raise self.error(str(error)) from error

    def error(self, problem: str) -> ModelError:
        return ModelError(f"{self.file}: {problem}")

    def labels(
        self, header: tuple[int, ...] | None, classes: int
    ) -> tuple[tuple[str, ...], tuple[int | str, ...]]:
        """Return the label of each class as spelled, and its value (int or str).

        header : the labels in the model's header, or None. The trailer may spell an equal label
        differently ("+1" for 1).
        """
        text = self.unparsed.pop("labels", " ".join(map(str, header or ())))
        labels = tuple(filter(None, text.split(" ")))
        if len(labels) != classes:
            expected = {2: "two"}.get(classes, str(classes))
            raise self.error(f"expected {expected} labels in the trailer, found {len(labels)}")
        values = self._values(labels)
        if header and values != header:
            raise self.error(f"expected labels as in the header, found {' '.join(labels)[:40]!r}")
        return labels, values

    def label_texts(self, classes: int) -> tuple[str, ...] | None:
        """Return the texts that the labels stand for; None if these are the labels themselves."""

        def parse(text: str) -> tuple[str, ...]:
            try:
                found = json.loads(text)
            except (ValueError, RecursionError):
                found = None
            valid = isinstance(found, list) and all(isinstance(one, str) for one in found)
            if not valid or not len(found) == len(set(found)) == classes:
                raise ValueError(f"expected a text for each label, found {text[:40]!r}")
            return tuple(found)

        return self.take("label_texts", parse)

    def _values(self, labels: tuple[str, ...]) -> tuple[int | str, ...]:
        """Return the values of labels by the rules for labels of training data."""
        try:
            values = tuple(LabelTable(self.file, names=labels).values)
        except DataError:
            values = ()
        if len(values) != len(labels):
            raise self.error(
                f"expected different labels of one kind, found {' '.join(labels)[:40]!r}"
            )
        return values

    def zero_based(self) -> bool:
        base = self.unparsed.pop("index_base", "1")
        if base not in ("0", "1"):
            raise self.error(f"expected index_base 0 or 1 in the trailer, found {base!r}")
        return base == "0"

    def float64(self) -> bool:
        """Return whether feature values are float64; see `has_float64_values`."""
        float64 = has_float64_values(None if self.has_no_trailer else self.unparsed)
        values = self.unparsed.pop("values", "float64" if float64 else "float32")
        if values not in ("float32", "float64"):
            raise self.error(f"expected values float32 or float64 in the trailer, found {values!r}")
        return float64

    def seen_features(self) -> SeenFeatures | None:
        return self.take("features", SeenFeatures.parse)

    def columns(self) -> Columns | None:
        return self.take("columns", Columns.from_json)

    def scaling(self, seen: SeenFeatures | None) -> Scaling | None:
        """Return the scaling of the seen features; None if rows are not scaled."""
        shift, factor = (self.take(key, parse_numbers) for key in ("scale_shift", "scale_factor"))
        scale = self.unparsed.pop("scale", None)
        if scale is None:
            return None
        arrays = [array for array in (shift, factor) if array is not None]
        fits = (
            scale in SCALINGS
            and (scale != "unit" or not arrays)
            and (scale == "unit" or factor is not None)
            and seen is not None
            and seen.count <= MAX_FEATURES
            and all(len(array) == seen.count for array in arrays)
        )
        if not fits:
            raise self.error(f"expected a scaling of each known feature, found {scale!r}")
        return Scaling(scale, shift, factor)
