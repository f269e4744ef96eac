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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from randsvm import files
from randsvm.data import svmlight
from randsvm.data.columns import Columns
from randsvm.data.labels import label_values
from randsvm.data.scaling import Scaling
from randsvm.data.svmlight import ParsedRows, ParseOptions
from randsvm.decimals import is_number, shortest
from randsvm.errors import ModelError, ParameterError, RandsvmError, quoted
from randsvm.models.decisions import NonconformityScores
from randsvm.models.metadata import (
    ARRAY,
    TEXTS,
    LineKind,
    Metadata,
    Trailer,
    any_of,
)
from randsvm.models.model import ONE_CLASS_LABELS, Model
from randsvm.parameters.svm import prediction_type_of

# The package's own layout holds what LIBSVM's and LIBLINEAR's formats cannot: labels that are
# names, scaling, several classes one against the rest. Its first line is this word and a version,
# so that their programs refuse the file instead of misreading it.
OWN_LAYOUT = b"randsvm_model "
# Version of the trailer and of the own layout.
VERSION = 2

LINE_PREFIX = b"# randsvm "
FORMAT_PREFIX = LINE_PREFIX + b"format "
SEAL_PREFIX = LINE_PREFIX + b"sha256 "

INTEGER = re.compile(rb"[+-]?[0-9]{1,18}")
INT_LIMIT = 2**31  # LIBSVM and LIBLINEAR read whole numbers as C ints
MAX_HEADER_LINES = 16  # of a header in either format, including the first line of the own layout
# The largest number of features that the trailer of a model may list as runs, unless another line
# has the same number: a damaged run would take 8 GB.
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
    lines = itertools.islice(io.BytesIO(content), MAX_HEADER_LINES)
    words = {word for line in lines for word in line.split(None, 1)[:1]}
    return next((name for name, (keyword, _) in FORMATS.items() if keyword in words), None)


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
    numbers: Mapping[str, Any],
) -> Iterator[SealedStream]:
    """Write a model: the header, without entries that are None, the caller's rows, the trailer.

    The file `path` is replaced as a whole or not at all. Raise ModelError before if some of the
    numbers are not finite, which the formats cannot hold.
    """
    for name, some in numbers.items():
        if not np.isfinite(some).all():
            raise ModelError(f"{path}: expected finite numbers in {name}, found others")
    lines = [f"{OWN_LAYOUT.decode()}{VERSION}"] if own_layout else []
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
        "columns": None if columns is None else columns.to_json(),
        "scale": None if scaling is None else scaling.name,
        "scale_shift": None if scaling is None else scaling.shift,
        "scale_factor": None if scaling is None else scaling.factor,
        "conformal_scores": None if conformal is None else conformal.scores,
        "conformal_ranks": None if conformal is None else conformal.ranks,
        **own,
    }
    known = {key: one for key, one in lines.items() if one is not None}
    return {**model.metadata.lines(), **known}


def runs_of(features: np.ndarray) -> str:
    """Return ascending indices as runs first-last: '1-7,9,12-13'."""
    gaps = np.diff(features) != 1
    first = features[np.append(True, gaps)[: len(features)]].tolist()
    last = features[np.append(gaps, True)[: len(features)]].tolist()
    return ",".join(f"{a}-{b}" if b > a else f"{a}" for a, b in zip(first, last, strict=True))


def features_of(runs: str, most: int = MAX_FEATURES) -> np.ndarray:
    """Return the indices of a text that `runs_of` made, (d,) int32; ValueError for another text,
    and for more than `most` indices."""
    pairs = [run.partition("-") for run in runs.split(",") if run]
    ends = np.array([[int(a), int(b or a)] for a, _, b in pairs], np.int64).reshape(-1, 2)
    sizes = ends[:, 1] - ends[:, 0] + 1
    ascending = (np.diff(ends.ravel(), prepend=0, append=INT_LIMIT - 1) >= 0).all()
    if not ascending or sizes.sum() > most:
        raise ValueError(f"expected at most {most} features, ascending")
    start = np.repeat((ends[:, 0] - np.cumsum(sizes) + sizes).astype(np.int32), sizes)
    start += np.arange(len(start), dtype=np.int32)
    return start


def split_trailer(content: bytes, name: str) -> tuple[int, dict[str, Any] | None]:
    """Return the length of the model's text without its trailer, and the trailer's items.

    content : the whole file; name : the file's name in messages. The items are None for a file
    without a trailer, by LIBSVM or LIBLINEAR. Raise ModelError if the file is truncated or altered,
    or the trailer of another version.
    """
    start = content.find(b"\n" + LINE_PREFIX) + 1
    if start == 0:
        return len(content), None
    line_number = content.count(b"\n", 0, start) + 1
    first, *lines = content[start:].split(b"\n")
    _check_version(first, FORMAT_PREFIX, f"{name}:{line_number}")
    end = content.rfind(b"\n" + SEAL_PREFIX) + 1
    digest = hashlib.sha256(memoryview(content)[:end]).hexdigest()
    if content[end:] != SEAL_PREFIX + digest.encode() + b"\n":
        raise ModelError(
            f"{name}: expected the line '{SEAL_PREFIX.decode()}...' of all bytes before it at the "
            f"end, found others: the model was truncated, altered or damaged after it was written"
        )
    items = dict[str, Any]()
    for number, line in enumerate(lines[:-2], line_number + 1):
        key, _, text = files.decoded(line.removeprefix(LINE_PREFIX)).partition(" ")
        try:
            if key in items:
                raise ValueError
            items[key] = json.loads(text)
        except (ValueError, RecursionError) as error:
            expected = "'# randsvm', a key that no line before it has, and JSON"
            raise ModelError(
                f"{name}:{number}: expected {expected}, found {quoted(line)}"
            ) from error
    return start, items


def _check_version(line: bytes, before: bytes, where: str) -> None:
    """Raise ModelError unless a line is `before` and the version."""
    if line != before + b"%d" % VERSION:
        raise ModelError(
            f"{where}: expected '{before.decode()}{VERSION}', found {quoted(line)}: another "
            f"version of randsvm wrote this model, train again"
        )


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

    trailer : its lines that were not read yet
    is_foreign : whether there is no trailer: LIBSVM or LIBLINEAR wrote the model
    own_layout : whether the model is in the package's own layout
    words, lines : of each keyword, and the number of its line; first_line : of the first row
    """

    def __init__(self, content: bytes, name: str, header_format: HeaderFormat) -> None:
        """Read the header. content : the whole file; name : the file's name in messages.

        Raise ModelError, also for a model in the own layout without a trailer.
        """
        self.name = name
        program, self.last_line, self._kinds = header_format
        end, items = split_trailer(content, name)
        self.trailer, self.is_foreign = Trailer(items or {}, name), items is None
        self.own_layout = False
        self.lines, self.words = dict[str, int](), dict[str, list[bytes]]()
        stream, number = io.BytesIO(content), 0
        for number, line in enumerate(stream, 1):
            if line.rstrip() == self.last_line.encode():
                break
            if number == 1 and line.startswith(OWN_LAYOUT.strip()):
                _check_version(line.strip(), OWN_LAYOUT, f"{name}:1")
                self.own_layout = True
                continue
            word, *rest = line.split(None, 1) or [b""]
            keyword = word.decode("ascii", "replace")
            if keyword not in self._kinds:
                expected = f"a keyword of {program}'s model format"
                hint = " (is it a model?)" if number == 1 else ""
                raise self.error(number, expected, quoted(word) + hint)
            if keyword in self.lines:
                once = f"'{keyword}' once (line {self.lines[keyword]})"
                raise self.error(number, once, "it again")
            self.lines[keyword], self.words[keyword] = number, b"".join(rest).split()
        else:
            expected = f"a model with a line '{self.last_line}'"
            raise self.error(number + 1, expected, "the end (truncated?)")
        if self.own_layout and self.is_foreign:
            raise self.error(1, "'# randsvm' lines at the end of the file", "none (truncated?)")
        self._text, self.first_line = content[stream.tell() : end], number + 1

    def error(self, at: int | str, expected: str, found: bytes | str) -> ModelError:
        """Return the error of a line. at : its number, or the keyword that it begins with."""
        number = self.lines[at] if isinstance(at, str) else at
        what = found if isinstance(found, str) else quoted(found.strip())
        return ModelError(f"{self.name}:{number}: expected {expected}, found {what}")

    def get(self, keyword: str, count: int = 1, optional: bool = False) -> Any:
        """Return the `count` values after a keyword, a tuple; None if it is missing and may be."""
        if keyword not in self.words:
            if optional:
                return None
            raise ModelError(
                f"{self.name}: expected a line '{keyword} ...' before the line "
                f"'{self.last_line}', found none"
            )
        words, (is_one, value, kind) = self.words[keyword], self._kinds[keyword]
        if not all(map(is_one, words)):
            raise self.error(keyword, f"{kind} after '{keyword}'", b" ".join(words))
        if len(words) != count:
            expected = f"{count} value{'s' * (count > 1)} after '{keyword}'"
            raise self.error(keyword, expected, f"{len(words)}")
        return tuple(map(value, words))

    def fields(self, task: str) -> dict[str, Any]:
        """Return the fields of Model from the labels of the header and the trailer.

        task : svc, one-class or svr. Lines that only some classes of models have come before.
        """
        take, require = self.trailer.take, self.trailer.require
        index_base, metadata = take("index_base", any_of(0, 1)), Metadata.read(self.trailer)
        most = max(MAX_FEATURES, metadata.d or 0)
        features = LineKind(
            f"at most {most:,} ascending indices as '1-7,9,12-13'",
            lambda runs: features_of(runs, most),
        )
        seen, is_float64 = take("features", features), take("values", any_of("float64"))
        columns = take("columns", LineKind("the columns of a table", Columns.from_json))
        found = {
            "labels": self._labels(task),
            "zero_based": index_base == 0,
            "float64": self.is_foreign or is_float64 is not None,
            "seen": seen,
            "scaling": self._scaling(seen),
            "conformal": self._conformal(),
            "columns": columns,
            "metadata": metadata,
        }
        if not self.is_foreign:
            require("index_base", index_base)
            self.trailer.end()
        count = None if seen is None else len(seen)
        if metadata.d not in (None, count):
            raise ValueError(f"expected {metadata.d} features")
        if seen is not None and (seen[:1] < index_base).any():
            raise ValueError(f"expected features from {index_base} on")
        if columns is not None and (
            seen is None or (seen[-1:] >= columns.features + index_base).any()
        ):
            raise ValueError("expected the features of the columns")
        return found

    def _labels(self, task: str) -> tuple[str, ...]:
        """Return the labels as the training data spelled them, or those of a foreign model."""
        (nr_class,), labels = self.get("nr_class"), tuple[Any, ...]()
        if task == "svc":
            labels = self.get("label", nr_class, self.own_layout) or ()
            if len(set(labels)) < len(labels):
                raise self.error("label", "different labels", f"{list(labels)}")
        elif nr_class != 2:
            raise self.error("nr_class", f"nr_class 2 of a model of {task}", f"{nr_class}")
        own = self.trailer.take("labels", TEXTS)
        if task == "one-class":
            if own is not None and own != ONE_CLASS_LABELS:
                raise ValueError(f"expected the labels {ONE_CLASS_LABELS}")
            return ONE_CLASS_LABELS
        if task == "svr":
            if own:
                raise ValueError("expected no labels of a regression")
            return ()
        if self.is_foreign:
            own = tuple(map(str, labels))
        values = label_values(self.trailer.require("labels", own))
        if len(set(values)) != nr_class or (labels and values != labels):
            raise ValueError(f"expected {nr_class} labels, those of the header")
        return own

    def _scaling(self, seen: np.ndarray | None) -> Scaling | None:
        take = self.trailer.take
        name = take("scale", any_of("minmax", "standard", "unit"))
        shift, factor = (take(f"scale_{one}", ARRAY) for one in ("shift", "factor"))
        if name is None and shift is None and factor is None:
            return None
        shapes = {one.shape for one in (shift, factor) if one is not None}
        # Only the unit norm has no factor of each feature.
        is_whole = name is not None and (factor is None) == (name == "unit")
        if not is_whole or seen is None or shapes - {seen.shape}:
            raise ValueError("expected a scaling of each feature")
        return Scaling(name, shift, factor)

    def _conformal(self) -> NonconformityScores | None:
        keys = "conformal_scores", "conformal_ranks"
        scores, ranks = (self.trailer.take(key, ARRAY) for key in keys)
        if scores is None and ranks is None:
            return None
        for key, found in zip(keys, (scores, ranks), strict=True):
            ascending = self.trailer.require(key, found).ndim == 1 and (np.diff(found) >= 0).all()
            if not ascending or found.shape != scores.shape or not len(found):
                raise ValueError(f"expected {key} in ascending order")
        return NonconformityScores(scores, ranks)

    def rows(self, count: int, columns: int, row: str, rows: str) -> tuple[np.ndarray, ParsedRows]:
        """Return the numbers that begin the rows, (count, columns) float64, and their features.

        row, rows : name one and all of them in messages. Memory depends on the text alone, not on
        `count` and `columns`. Raise ModelError unless the model has exactly `count` whole lines of
        them.
        """
        text, line = self._text, self.first_line
        if self.is_foreign and text.count(b"\n") >= count:
            # LIBSVM and LIBLINEAR ignore blank lines at the end.
            *own, rest = text.split(b"\n", count)
            text = b"\n".join([*own, rest.lstrip() if rest.isspace() else rest])
        found, tail = text.count(b"\n"), text[text.rfind(b"\n") + 1 :]
        if found < count:
            whole = f"{found} whole lines of them (truncated?)"
            raise self.error(line + found, f"{count} {rows}", whole)
        if found > count or tail:
            expected = f"the end of the model after {count} {rows}"
            raise self.error(line + count, expected, text.split(b"\n", count)[count])
        foreign = min((at for at in map(text.find, FOREIGN_BYTES) if at >= 0), default=None)
        if foreign is not None:
            line += text.count(b"\n", 0, foreign)
            raise self.error(line, f"a {row}", text[foreign : foreign + 1])
        first, rest = np.empty((count, 0)), text
        if columns > 1:
            first, rest = svmlight.first_numbers(text, count, columns - 1)
        # The first row with too few numbers, where `first_numbers` ends. The last number of each
        # row is parsed as its label.
        short = len(first)
        if short == count:
            options = ParseOptions(labels="coefficient", zero_based=True, float64=True)
            block = svmlight.parse(rest, options, self.name, line)
            if len(block.y) == count:
                return np.column_stack([first, block.y])[:, :columns], block
            short = next(n for n, words in enumerate(rest.split(b"\n")) if not words.strip())
        numbers = f"{columns} number{'s' * (columns > 1)} in a {row}"
        raise self.error(line + short, numbers, text.split(b"\n", short + 1)[short])


def is_c_int(word: bytes) -> bool:
    return bool(INTEGER.fullmatch(word)) and -INT_LIMIT <= int(word) < INT_LIMIT


def whole_numbers(least: int) -> WordKind:
    """Return the kind of whole numbers from `least`."""
    return (
        lambda word: is_c_int(word) and int(word) >= least,
        int,
        f"whole numbers of {least} or more, below 2^31",
    )


INTS: WordKind = (is_c_int, int, "whole numbers below 2^31")
COUNTS = whole_numbers(0)
NUMBERS: WordKind = (is_number, float, "finite numbers")
NOT_NEGATIVE: WordKind = (
    lambda word: is_number(word) and float(word) >= 0, float, "finite numbers of 0 or more"
)  # fmt: skip


def one_of(meanings: Mapping[str, Any]) -> WordKind:
    """Return the kind of words that are one of these. meanings : value of each word"""
    *others, last = meanings
    values = {word.encode(): value for word, value in meanings.items()}
    return values.__contains__, values.__getitem__, f"{', '.join(others)} or {last}"


# --- files ---------------------------------------------------------------------------------


def load(path: str) -> Model:
    """Return the model in a file; "-" is standard input.

    Raise ModelError or DataError for a file that is not a model, or was altered or truncated, and
    InputError if it cannot be opened.
    """
    content, name = read_content(path), files.display_name(path)
    with reading(name):
        model: Model = _module_of(format_of(content) or "libsvm").read(content, name)
        task = model.metadata.options.get("task")
        if task is not None and prediction_type_of(task) != model.properties()["task"]:
            raise ValueError(f"expected no training of -s {task}")
        return model


def read_content(path: str) -> bytes:
    """Return the content of a model file with line ends of Unix, as the seal counts them."""
    content = files.read_whole(path)
    return content.replace(b"\r\n", b"\n") if b"\r\n" in content else content


def save(model: Model, path: str) -> None:
    """Write a model in the format of LIBSVM or LIBLINEAR, or in a layout that their programs refuse
    if their formats cannot express it.

    The file is replaced as a whole or not at all. Raise OutputError or TransferError.
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
        with contextlib.suppress(OSError):  # the reader of the data reports it
            if path != files.STANDARD and format_of(files.first_bytes(path)) is not None:
                raise ParameterError(f"{path} is a model, not data: the order is {order}")


def check_replaces_model(path: str) -> None:
    """Raise OutputError if a model cannot be written to `path`, or would replace another file."""
    files.check_output(path, "a model", lambda head: format_of(head) is not None)


def metadata_of(path: str) -> Metadata | None:
    """Return the metadata of a model file.

    None if the file is missing, not regular, damaged or by another program.
    """
    if files.size_of(path):
        with contextlib.suppress(RandsvmError):
            items = split_trailer(read_content(path), path)[1]
            return None if items is None else Metadata.read(Trailer(items, path))
    return None
