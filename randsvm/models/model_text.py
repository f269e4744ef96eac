"""Model files: a header in the format of LIBSVM or LIBLINEAR, rows, and a trailer.

A line of the header is a keyword and its words. The trailer is lines `# randsvm key value` with
values in JSON, which hold what the two formats cannot. It ends with a seal, the sha256 of all bytes
before it. libsvm_format.py and linear_model.py define the keywords and the rows.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import io
import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from randsvm import files
from randsvm.data import svmlight
from randsvm.data.columns import Columns
from randsvm.data.scaling import Scaling
from randsvm.data.svmlight import ParsedRows
from randsvm.decimals import is_number, shortest
from randsvm.errors import DataError, ModelError, ParameterError, RandsvmError, quoted
from randsvm.models.decisions import NonconformityScores
from randsvm.models.model import ONE_CLASS_LABELS, Model

# The package's own layout holds what LIBSVM's and LIBLINEAR's formats cannot: labels that are
# names, scaling, several classes one against the rest. Its first line is this word and a version,
# so that their programs refuse the file instead of misreading it.
OWN_LAYOUT = "randsvm_model"
# Version of the trailer and of the own layout.
VERSION = 2

LINE_PREFIX = b"# randsvm "
FORMAT_PREFIX = LINE_PREFIX + b"format "
SEAL_PREFIX = LINE_PREFIX + b"sha256 "

INTEGER = re.compile(rb"[+-]?[0-9]{1,18}")
INT_LIMIT = 2**31  # LIBSVM and LIBLINEAR read whole numbers as C ints
LONGEST_LINE = 1 << 20  # of a header, in bytes; LIBLINEAR's has room for 87,000 labels
MAX_HEADER_LINES = 16  # of a header in either format, including the first line of the own layout
# The largest number of features that the trailer of a model may list as runs.
MAX_FEATURES = 1 << 26

# What a word after a keyword is: whether it is one, its value, and how messages name such words.
WordKind: TypeAlias = tuple[Callable[[bytes], bool], Callable[[bytes], Any], str]
# The header of one of the two formats: the program, the last line, and the kinds of words by
# keyword.
HeaderFormat: TypeAlias = tuple[str, str, dict[str, WordKind]]

# First bytes of syntax that svmlight files may contain and models may not: comments, qid, cost,
# unlabelled rows, a byte order mark.
FOREIGN_BYTES = (b"#", b"q", b"c", b"?", b"\xef")

# Format -> the word that begins a line of its headers, and the module that reads and writes it.
FORMATS = {
    "libsvm": (b"svm_type", "libsvm_format"),
    "liblinear": (b"solver_type", "linear_model"),
}


def format_of(content: bytes) -> str | None:
    """Return the format of a model file; None if `content` is not a model.

    The programs accept header lines in any order, so all lines of a header are searched.
    """
    for line in itertools.islice(io.BytesIO(content), MAX_HEADER_LINES):
        for name, (keyword, _) in FORMATS.items():
            if line.split(None, 1)[:1] == [keyword]:
                return name
    return None


# --- writing -------------------------------------------------------------------------------


class SealedStream:
    """A stream that writes to another one and ends with a trailer and the digest of all bytes."""

    def __init__(self, stream: files.Sink) -> None:
        self._stream = stream
        self._digest = hashlib.sha256()

    def write(self, data: bytes, /) -> int:
        self._digest.update(data)
        self._stream.write(data)
        return len(data)

    def seal(self, items: Mapping[str, Any]) -> None:
        """Write the trailer: its version, the items in order, the sha256 of all bytes so far."""
        self.write(FORMAT_PREFIX + b"%d\n" % VERSION)
        for key, value in items.items():
            text = json.dumps(_finite(value), ensure_ascii=False, default=np.ndarray.tolist)
            self.write(LINE_PREFIX + files.encoded(f"{key} {text}\n"))
        self._stream.write(SEAL_PREFIX + self._digest.hexdigest().encode() + b"\n")


def _finite(value: Any) -> Any:
    """Return null in place of nan and infinity, which JSON lacks."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


@contextlib.contextmanager
def written(
    path: str,
    header_format: HeaderFormat,
    entries: Mapping[str, Sequence[object] | None],
    own_layout: bool,
    trailer: Mapping[str, Any],
) -> Iterator[SealedStream]:
    """Write a model: the header, without entries that are None, the caller's rows, the trailer.

    The file `path` is replaced as a whole or not at all.
    """
    lines = [f"{OWN_LAYOUT} {VERSION}"] if own_layout else []
    lines += [
        " ".join([key, *map(_text, entry)]) for key, entry in entries.items() if entry is not None
    ]
    with files.create_output(path) as stream:
        sealed = SealedStream(stream)
        sealed.write("\n".join([*lines, header_format[1], ""]).encode())
        yield sealed
        sealed.seal(trailer)


def _text(entry: object) -> str:
    return shortest(entry) if isinstance(entry, float | np.floating) else str(entry)


def check_finite(path: str, **arrays: np.ndarray | float) -> None:
    """Raise ModelError for a model with numbers that the formats cannot hold."""
    for name, numbers in arrays.items():
        if not np.isfinite(numbers).all():
            raise ModelError(f"{path}: expected finite numbers in {name}, found others")


# --- the trailer ---------------------------------------------------------------------------


def trailer_of(model: Model, has_labels: bool, **own: Any) -> dict[str, Any]:
    """Return the lines of the trailer.

    has_labels : whether the labels come from the training data; own : lines of a class of models
    """
    scaling, conformal, columns = model.scaling, model.conformal, model.columns
    lines = {
        "labels": model.labels if has_labels else None,
        "index_base": model.index_base,
        "values": "float64" if model.float64 else None,
        "features": None if model.seen is None else runs_of(model.seen),
        "columns": None if columns is None else json.loads(columns.to_json()),
        "scale": None if scaling is None else scaling.name,
        "scale_shift": None if scaling is None else scaling.shift,
        "scale_factor": None if scaling is None else scaling.factor,
        "conformal_scores": None if conformal is None else conformal.scores,
        "conformal_ranks": None if conformal is None else conformal.ranks,
        **own,
    }
    return {**model.metadata, **{key: one for key, one in lines.items() if one is not None}}


def fields_of(
    trailer: Mapping[str, Any] | None,
    prediction_type: str,
    nr_class: int,
    header_labels: tuple[int, ...] | None,
) -> dict[str, Any]:
    """Return the fields of Model from the trailer and the labels of the header.

    prediction_type : svc, one-class or svr; trailer : None for a model of LIBSVM or LIBLINEAR,
    which parse features as float64. Fields that the trailer lacks are None.
    """
    lines = dict(trailer or {})
    labels = tuple(map(str, lines.pop("labels", header_labels or ())))
    if prediction_type == "svc" and len(labels) != nr_class:
        raise ValueError(f"expected {nr_class} labels")
    names = ("scale_shift", "scale_factor", "conformal_scores", "conformal_ranks")
    shift, factor, scores, ranks = (
        np.array(lines.pop(name), np.float64) if name in lines else None for name in names
    )
    seen, columns, scale = (lines.pop(name, None) for name in ("features", "columns", "scale"))
    features = None if seen is None else features_of(seen)
    arrays = [one for one in (shift, factor) if one is not None]
    if scale is not None and (
        features is None or any(one.shape != features.shape for one in arrays)
    ):
        raise ValueError("expected a scaling of each feature")
    conformal = None
    if scores is not None and ranks is not None:
        conformal = NonconformityScores(scores, ranks)
    return {
        "labels": {"svc": labels, "one-class": ONE_CLASS_LABELS, "svr": ()}[prediction_type],
        "zero_based": lines.pop("index_base", 1) == 0,
        "float64": lines.pop("values", None) == "float64" or trailer is None,
        "seen": features,
        "scaling": None if scale is None else Scaling(scale, shift, factor),
        "conformal": conformal,
        "columns": None if columns is None else Columns.from_json(json.dumps(columns)),
        "metadata": lines,
    }


def runs_of(features: np.ndarray) -> str:
    """Return ascending indices as runs first-last: '1-7,9,12-13'."""
    gaps = np.diff(features) != 1
    first = features[np.append(True, gaps)[: len(features)]].tolist()
    last = features[np.append(gaps, True)[: len(features)]].tolist()
    return ",".join(f"{a}-{b}" if b > a else f"{a}" for a, b in zip(first, last, strict=True))


def features_of(runs: str) -> np.ndarray:
    """Return the indices of a text that `runs_of` made, (d,) int32; ValueError for another."""
    pairs = [run.partition("-") for run in runs.split(",") if run]
    ends = np.array([[int(a), int(b or a)] for a, _, b in pairs], np.int64).reshape(-1, 2)
    sizes = ends[:, 1] - ends[:, 0] + 1
    ascending = (np.diff(ends.ravel(), prepend=0, append=INT_LIMIT - 1) >= 0).all()
    if not ascending or sizes.sum() > MAX_FEATURES:
        raise ValueError(f"expected at most {MAX_FEATURES} features, ascending")
    start = np.repeat(ends[:, 0] - np.cumsum(sizes) + sizes, sizes)
    return (start + np.arange(len(start))).astype(np.int32)


def split_trailer(content: bytes, name: str) -> tuple[int, dict[str, Any] | None]:
    """Return the length of the model's text without its trailer, and the trailer's items.

    content : the whole file; name : the file's name in messages. The items are None for a file
    without a trailer, by LIBSVM or LIBLINEAR. Raise ModelError if the file is truncated or altered,
    or the trailer of another version.
    """
    if content.startswith(LINE_PREFIX):
        raise ModelError(f"{name}:1: expected a model, found its trailer alone")
    start = content.find(b"\n" + LINE_PREFIX) + 1
    if start == 0:
        return len(content), None
    first_line = content.count(b"\n", 0, start) + 1
    where, (first, *lines) = f"{name}:{first_line}", content[start:].split(b"\n")
    if not first.startswith(FORMAT_PREFIX):
        raise ModelError(f"{where}: expected '# randsvm format {VERSION}', found {quoted(first)}")
    _check_version(first.removeprefix(FORMAT_PREFIX), where)
    end = content.rfind(b"\n" + SEAL_PREFIX) + 1
    digest = hashlib.sha256(memoryview(content)[:end]).hexdigest()
    if content[end:] != SEAL_PREFIX + digest.encode() + b"\n":
        raise ModelError(
            f"{name}: expected the line '{SEAL_PREFIX.decode()}...' of all bytes before it at the "
            f"end, found others: the model was truncated, altered or damaged after it was written"
        )
    with reading(name):
        words = [line.removeprefix(LINE_PREFIX).partition(b" ") for line in lines[:-2]]
        return start, {key.decode(): json.loads(files.decoded(text)) for key, _, text in words}


def _check_version(version: bytes, where: str) -> None:
    if version == b"%d" % VERSION:
        return
    found, hint = quoted(version), ""
    if re.fullmatch(rb"[1-9][0-9]{0,8}", version):
        found = version.decode()
        older = "an older version of randsvm wrote this model: train again"
        newer = "a newer version of randsvm wrote this model"
        hint = f": {older if int(version) < VERSION else newer}"
    raise ModelError(f"{where}: expected model format {VERSION}, found {found}{hint}")


@contextlib.contextmanager
def reading(name: str) -> Iterator[None]:
    """Raise ModelError in place of any error from the lines of a trailer.

    The seal is valid, so a line that does not fit was edited and sealed again.
    """
    try:
        yield
    except RandsvmError:
        raise
    except (
        ValueError, TypeError, LookupError, AttributeError, RecursionError, OverflowError
    ) as error:  # fmt: skip
        raise ModelError(
            f"{name}: expected lines '# randsvm' that fit the model, found others: {error}"
        ) from error


# --- the header and the rows ---------------------------------------------------------------


class Header:
    """The lines of a model before its rows, and its trailer.

    trailer : None for a model of LIBSVM or LIBLINEAR
    own_layout : whether the model is in the package's own layout
    values : by keyword; lines : number of the line with each keyword; first_line : of the first row
    """

    def __init__(self, content: bytes, name: str, header_format: HeaderFormat) -> None:
        """Read the header. content : the whole file; name : the file's name in messages.

        Raise ModelError, also for a model in the own layout without a trailer.
        """
        self.name = name
        self.program, self.last_line, kinds = header_format
        end, self.trailer = split_trailer(content, name)
        self.own_layout, self.lines = False, dict[str, int]()
        self.values: dict[str, tuple[Any, ...]] = {}
        stream = io.BytesIO(content)
        for number in itertools.count(1):
            line = stream.readline(LONGEST_LINE)
            if not line.endswith(b"\n"):
                expected = f"a model with a line '{self.last_line}'"
                raise self.error(number, expected, line or "the end (truncated?)")
            word, *words = line.split() or [b""]
            if number == 1 and word == OWN_LAYOUT.encode():
                _check_version(b" ".join(words), f"{name}:1")
                self.own_layout = True
            elif line.rstrip() == self.last_line.encode():
                break
            else:
                self._add(number, word.decode("ascii", "replace"), words, kinds)
        self._text, self.first_line = content[stream.tell() : end], number + 1
        if self.own_layout and self.trailer is None:
            raise ModelError(
                f"{name}: expected '# randsvm' lines at the end of a {OWN_LAYOUT} file, found none "
                f"(truncated?)"
            )

    def _add(
        self, number: int, keyword: str, words: list[bytes], kinds: Mapping[str, WordKind]
    ) -> None:
        if keyword not in kinds:
            expected = f"a keyword of {self.program}'s model format"
            hint = " (is it a model?)" if number == 1 else ""
            raise self.error(number, expected, quoted(keyword.encode()) + hint)
        if keyword in self.lines:
            raise self.error(number, f"'{keyword}' once (line {self.lines[keyword]})", "it again")
        is_one, value, kind = kinds[keyword]
        if not all(map(is_one, words)):
            raise self.error(number, f"{kind} after '{keyword}'", b" ".join(words))
        self.lines[keyword], self.values[keyword] = number, tuple(map(value, words))

    def error(self, at: int | str, expected: str, found: bytes | str) -> ModelError:
        """Return the error of a line. at : its number, or the keyword that it begins with."""
        number = self.lines[at] if isinstance(at, str) else at
        what = found if isinstance(found, str) else quoted(found.strip())
        return ModelError(f"{self.name}:{number}: expected {expected}, found {what}")

    def get(self, keyword: str, count: int = 1) -> tuple[Any, ...]:
        """Return the `count` values after a keyword."""
        if keyword not in self.values:
            raise ModelError(
                f"{self.name}: expected a line '{keyword} ...' before the line "
                f"'{self.last_line}', found none"
            )
        found = self.values[keyword]
        if len(found) != count:
            expected = f"{count} value{'s' * (count > 1)} after '{keyword}'"
            raise self.error(keyword, expected, f"{len(found)}")
        return found

    def classes(self, kind: str, classifiers: Sequence[str], *keywords: str) -> list[Any]:
        """Return nr_class, and for each keyword the whole number of each class.

        kind : svm_type or solver_type. Tasks that are not `classifiers` have nr_class 2 and None
        for each keyword. Models in the own layout may lack a keyword: also None.
        """
        (number,), is_classifier = self.get("nr_class"), kind in classifiers
        if number < 1 or (number != 2 and not is_classifier):
            expected = "1 or more" if is_classifier else f"2 of {kind}"
            raise self.error("nr_class", f"nr_class {expected}", f"{number}")
        if not is_classifier:
            return [number, *(None for _ in keywords)]
        found = [
            None if self.own_layout and keyword not in self.values else self.get(keyword, number)
            for keyword in keywords
        ]
        for label, times in Counter(found[0] or ()).items():
            if times > 1:
                raise self.error("label", "different labels", f"{label} twice")
        return [number, *found]

    def rows(self, count: int, columns: int, row: str, rows: str) -> tuple[np.ndarray, ParsedRows]:
        """Return the numbers that begin the rows, (count, columns) float64, and their features.

        row, rows : name one and all of them in messages. Memory depends on the text alone, not on
        `count` and `columns`. Raise ModelError unless the model has exactly `count` whole lines of
        them.
        """
        text, first_line = self._text, self.first_line
        found, tail = text.count(b"\n"), text[text.rfind(b"\n") + 1 :]
        if found < count:
            whole = f"{found} whole lines of them (truncated?)"
            raise self.error(first_line + found, f"{count} {rows}", whole)
        if found > count or tail:
            expected = f"the end of the model after {count} {rows}"
            raise self.error(first_line + count, expected, text.split(b"\n", count)[count])
        self._check_plain_rows(row)
        first, rest = np.empty((count, 0)), text
        if columns > 1:
            first, rest = svmlight.first_numbers(text, count, columns - 1)
        short = len(first)
        if short == count:
            block = svmlight.parse(
                rest,
                name=self.name,
                labels="number",
                zero_based=True,
                float64=True,
                first_line=first_line,
            )
            if len(block.y) == count:
                return np.column_stack([first, block.y])[:, :columns], block
            short = next(n for n, line in enumerate(rest.split(b"\n")) if not line.strip())
        numbers = f"{columns} number{'s' * (columns > 1)} in a {row}"
        raise self.error(first_line + short, numbers, text.split(b"\n", short + 1)[short])

    def _check_plain_rows(self, row: str) -> None:
        """Raise DataError for syntax of svmlight files that models may not contain."""
        text = self._text
        places = [at for at in map(text.find, FOREIGN_BYTES) if at >= 0]
        if places:
            at = min(places)
            line, column = text.count(b"\n", 0, at), at - text.rfind(b"\n", 0, at)
            found = quoted(text[at : at + 1])
            raise DataError(
                self.name, self.first_line + line, column, f"expected a {row}, found {found}"
            )


def is_c_int(word: bytes) -> bool:
    return bool(INTEGER.fullmatch(word)) and -INT_LIMIT <= int(word) < INT_LIMIT


INTS: WordKind = (is_c_int, int, "whole numbers below 2^31")
COUNTS: WordKind = (
    lambda word: is_c_int(word) and int(word) >= 0, int, "whole numbers of 0 or more, below 2^31"
)  # fmt: skip
NUMBERS: WordKind = (is_number, float, "finite numbers")
NOT_NEGATIVE: WordKind = (
    lambda word: is_number(word) and float(word) >= 0, float, "finite numbers of 0 or more"
)  # fmt: skip


def one_of(allowed: Iterable[str]) -> WordKind:
    """Return the kind of words that are one of these."""
    *others, last = allowed
    encoded = {word.encode() for word in allowed}
    return encoded.__contains__, bytes.decode, f"{', '.join(others)} or {last}"


# --- files ---------------------------------------------------------------------------------


def load(path: str) -> Model:
    """Return the model in a file.

    Parameters
    ----------
    path : str
        Name of the file; "-" is standard input.

    Returns
    -------
    Model
        A KernelModel or a LinearModel.

    Raises
    ------
    ModelError, DataError
        If the file is not a model, or was altered or truncated.
    InputError
        If the file cannot be opened.
    """
    content, name = files.read_whole(path), files.display_name(path)
    return _module_of(format_of(content) or "libsvm").read(content, name)


def save(model: Model, path: str) -> None:
    """Write a model in the format of LIBSVM or LIBLINEAR.

    A model that their formats cannot express is written in a layout that their programs refuse.

    Parameters
    ----------
    model : Model
        The model.
    path : str
        Name of the file; it is replaced as a whole or not at all.

    Raises
    ------
    OutputError, TransferError
        If the file cannot be created or written.
    """
    _module_of(model.properties()["format"]).write(model, path)


def _module_of(format_: str) -> Any:
    """Return the module of a format, which imports this one.

    Only one is imported: an import takes as long as reading a small file.
    """
    return importlib.import_module(f"randsvm.models.{FORMATS[format_][1]}")


def check_is_not_model(paths: Iterable[str], order: str) -> None:
    """Raise ParameterError if one of the files is a model instead of data.

    order : the files of the command in the right order, for the message.
    """
    for path in paths:
        head = b""
        with contextlib.suppress(OSError):  # the reader of the data reports it
            head = files.first_bytes(path)
        if path != files.STANDARD and format_of(head) is not None:
            raise ParameterError(f"{path} is a model, not data: the order is {order}")


def check_replaces_model(path: str) -> None:
    """Raise OutputError if a model cannot be written to `path`, or would replace another file."""
    files.check_output(path, "a model", lambda head: format_of(head) is not None)


def configuration_and_gap(path: str) -> tuple[str, float] | None:
    """Return the configuration and the gap in the trailer of a model file.

    None if the file is missing, not regular or damaged, or if the model has no certified gap.
    """
    lines = None
    if files.size_of(path):
        with contextlib.suppress(RandsvmError):
            lines = split_trailer(files.read_whole(path), path)[1]
    gap = (lines or {}).get("gap")
    return (lines["configuration"], gap) if lines and isinstance(gap, float) else None
