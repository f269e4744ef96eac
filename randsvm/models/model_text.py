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
from typing import Any, TypeAlias, TypeVar

import numpy as np

from randsvm import files
from randsvm.data import svmlight
from randsvm.data.svmlight import Block
from randsvm.decimals import is_number, shortest
from randsvm.errors import DataError, ModelError, ParameterError, RandsvmError, quoted
from randsvm.models.model import Model

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

Number = TypeVar("Number", int, float)

# The header of one of the two formats: the program, the last line, and the keywords in the order in
# which the program writes them.
HeaderFormat: TypeAlias = tuple[str, str, tuple[str, ...]]

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


def render_header(
    header_format: HeaderFormat, entries: Mapping[str, Sequence[object] | None], own_layout: bool
) -> bytes:
    """Return the header's lines, without entries that are None."""
    lines = [f"{OWN_LAYOUT} {VERSION}"] if own_layout else []
    lines += [
        " ".join([key, *map(_text, entry)]) for key, entry in entries.items() if entry is not None
    ]
    return "\n".join([*lines, header_format[1], ""]).encode()


def _text(entry: object) -> str:
    return shortest(entry) if isinstance(entry, float | np.floating) else str(entry)


def check_finite(path: str, **arrays: np.ndarray | float) -> None:
    """Raise ModelError for a model with numbers that the formats cannot hold."""
    for name, numbers in arrays.items():
        if not np.isfinite(numbers).all():
            raise ModelError(f"{path}: expected finite numbers in {name}, found others")


# --- the trailer ---------------------------------------------------------------------------


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
    lines = content[start:].split(b"\n")
    where = f"{name}:{first_line}"
    if not lines[0].startswith(FORMAT_PREFIX):
        raise ModelError(
            f"{where}: expected '# randsvm format {VERSION}', found {quoted(lines[0])}"
        )
    _check_version(lines[0].removeprefix(FORMAT_PREFIX), where)
    end = content.rfind(b"\n" + SEAL_PREFIX) + 1
    digest = hashlib.sha256(memoryview(content)[:end]).hexdigest()
    if content[end:] != SEAL_PREFIX + digest.encode() + b"\n":
        raise ModelError(
            f"{name}: expected the line '{SEAL_PREFIX.decode()}...' of all bytes before it at the "
            f"end, found others: the model was truncated, altered or damaged after it was written"
        )
    with reading(name):
        words = [line.removeprefix(LINE_PREFIX).partition(b" ") for line in lines[1:-2]]
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
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise ModelError(
            f"{name}: expected lines '# randsvm' that fit the model, found others: {error}"
        ) from error


# --- the header ----------------------------------------------------------------------------


def read_header(
    content: bytes, name: str, header_format: HeaderFormat
) -> tuple[Header, dict[str, Any] | None]:
    """Return the header and the trailer of a model.

    content : the whole file; name : the file's name in messages. Raise ModelError, also for a model
    in the own layout without a trailer.
    """
    end, trailer = split_trailer(content, name)
    header = Header(content, end, name, header_format)
    if header.own_layout and trailer is None:
        raise ModelError(
            f"{name}: expected '# randsvm' lines at the end of a {OWN_LAYOUT} file, found none "
            f"(truncated?)"
        )
    return header, trailer


class Header:
    """The header lines of content[:end].

    own_layout : whether the model is in the package's own layout
    size : length of the header in bytes
    first_row_line : number of the first line after the header
    """

    def __init__(self, content: bytes, end: int, name: str, header_format: HeaderFormat) -> None:
        self.content = content
        self.end = end
        self.name = name
        self.own_layout = False
        self.size = 0
        self.program, self.last_line, self.keywords = header_format
        self._found: dict[str, tuple[int, list[bytes]]] = {}
        for number in itertools.count(1):
            line = self._line(number)
            self.size += len(line)
            word, *rest = line.split() or [b""]
            if number == 1 and word == OWN_LAYOUT.encode():
                _check_version(b" ".join(rest), f"{name}:1")
                self.own_layout = True
            elif line.rstrip() == self.last_line.encode():
                self.first_row_line = number + 1
                break
            else:
                self._add(number, word, rest, line)

    def _line(self, number: int) -> bytes:
        if self.size == self.end:
            if self.end == 0:
                raise self.error(number, "a model", "an empty file")
            raise self.error(
                number, f"the line '{self.last_line}'", "the end of the file (truncated?)"
            )
        limit = min(self.end, self.size + LONGEST_LINE)
        line = self.content[self.size : self.content.find(b"\n", self.size, limit) + 1]
        if not line:
            found = self.content[self.size : limit]
            raise self.error(number, "a whole line of the model's header", found)
        return line

    def error(self, number: int, expected: str, found: bytes | str) -> ModelError:
        what = found if isinstance(found, str) else quoted(found.strip())
        return ModelError(f"{self.name}:{number}: expected {expected}, found {what}")

    def _add(self, number: int, word: bytes, rest: list[bytes], line: bytes) -> None:
        keyword = word.decode("ascii", "replace")
        if keyword not in self.keywords:
            expected = f"a keyword of {self.program}'s model format"
            error = self.error(number, expected, word or line)
            raise ModelError(f"{error} (is it a model?)") if number == 1 else error
        if keyword in self._found:
            first = self._found[keyword][0]
            raise self.error(number, f"'{keyword}' once (line {first})", "it again")
        self._found[keyword] = number, rest

    def __contains__(self, keyword: str) -> bool:
        return keyword in self._found

    def line_of(self, keyword: str) -> int:
        """Return the number of the line with `keyword`."""
        return self._found[keyword][0]

    def words(self, keyword: str) -> list[bytes]:
        """Return the words after `keyword`."""
        if keyword not in self._found:
            raise ModelError(
                f"{self.name}: expected a line '{keyword} ...' before the line "
                f"'{self.last_line}', found none"
            )
        return self._found[keyword][1]

    def choice(self, keyword: str, allowed: Iterable[str]) -> str:
        """Return the only word after `keyword`. Raise ModelError if it is not in `allowed`."""
        words = b" ".join(self.words(keyword))
        word = words.decode("ascii", "replace")
        if word not in allowed:
            raise self.error(self.line_of(keyword), f"{keyword} {either(allowed)}", words)
        return word

    def integers(self, keyword: str, count: int) -> tuple[int, ...]:
        """Return the `count` whole numbers after `keyword`."""
        words = self._numbers(keyword, count, "whole numbers below 2^31", _is_c_int)
        return tuple(map(int, words))

    def numbers(self, keyword: str, count: int) -> tuple[float, ...]:
        """Return the `count` finite numbers after `keyword`."""
        return tuple(map(float, self._numbers(keyword, count, "finite numbers", is_number)))

    def _numbers(
        self, keyword: str, count: int, what: str, is_one: Callable[[bytes], bool]
    ) -> list[bytes]:
        words = self.words(keyword)
        if len(words) != count:
            expected = f"{count} number{'s' * (count > 1)} after '{keyword}'"
            raise self.error(self.line_of(keyword), expected, f"{len(words)}")
        if not all(map(is_one, words)):
            raise self.error(self.line_of(keyword), f"{what} after '{keyword}'", b" ".join(words))
        return words

    def optional_numbers(self, keyword: str, count: int) -> tuple[float, ...] | None:
        return self.numbers(keyword, count) if keyword in self else None

    def non_negative(self, keyword: str, read: Callable[[str, int], tuple[Number, ...]]) -> Number:
        """Return the only number after `keyword`, at least 0. read : integers or numbers."""
        number = read(keyword, 1)[0]
        if number < 0:
            raise self.error(self.line_of(keyword), f"{keyword} of 0 or more", f"{number}")
        return number

    def nr_class(self, kind: str, classifiers: Sequence[str]) -> int:
        """Return the number of classes. kind : svm_type or solver_type; others have nr_class 2."""
        number = self.integers("nr_class", 1)[0]
        if number < 1 or (number != 2 and kind not in classifiers):
            expected = "1 or more" if kind in classifiers else f"2 of {kind}"
            raise self.error(self.line_of("nr_class"), f"nr_class {expected}", f"{number}")
        return number

    def per_class(
        self, keyword: str, kind: str, classifiers: Sequence[str]
    ) -> tuple[int, ...] | None:
        """Return a number for each class; None for other tasks, or if the own layout lacks it."""
        if kind not in classifiers:
            self.check_absent(keyword, kind, classifiers)
            return None
        if self.own_layout and keyword not in self:
            return None
        numbers = self.integers(keyword, self.nr_class(kind, classifiers))
        repeated = [number for number, times in Counter(numbers).items() if times > 1]
        if keyword == "label" and repeated:
            raise self.error(self.line_of("label"), "different labels", f"{repeated[0]} twice")
        return numbers

    def check_absent(self, keyword: str, kind: str, owners: Iterable[str]) -> None:
        """Raise ModelError if the header of `kind` has `keyword`, which only `owners` have."""
        if keyword in self:
            found = f"'{keyword}', which only {either(owners)} has"
            raise self.error(self.line_of(keyword), f"the header of {kind}", found)

    def check_rows(self, promised: int, what: str) -> None:
        """Raise ModelError unless the model has exactly `promised` whole lines after the header."""
        found = self.content.count(b"\n", self.size, self.end)
        tail = self.content[self.content.rfind(b"\n", 0, self.end) + 1 : self.end]
        if found < promised:
            raise self.error(
                self.first_row_line + found,
                f"{promised} {what}",
                f"{found} whole lines of them (truncated?)",
            )
        if found > promised or tail:
            raise self.error(
                self.first_row_line + promised,
                f"the end of the model after {promised} {what}",
                self.content[self.size : self.end].split(b"\n", promised)[promised],
            )


def _is_c_int(word: bytes) -> bool:
    return bool(INTEGER.fullmatch(word)) and -INT_LIMIT <= int(word) < INT_LIMIT


def either(words: Iterable[str]) -> str:
    """Return the words as 'a, b or c'."""
    *others, last = words
    return f"{', '.join(others)} or {last}" if others else last


# --- rows ----------------------------------------------------------------------------------


def parse_rows(
    header: Header, count: int, columns: int, row: str, rows: str, float64: bool = True
) -> tuple[np.ndarray, Block]:
    """Return the numbers that begin the rows, (count, columns) float64, and features of the rows.

    row, rows : name one and all of them in messages; float64 : whether values of features are
    float64. Memory depends on the text alone, not on `count` and `columns`.
    """
    header.check_rows(count, rows)
    text = header.content[header.size : header.end]
    _check_plain_rows(text, header, row)
    numbers = f"{columns} number{'s' * (columns > 1)} in a {row}"

    def missing(number: int) -> ModelError:
        line = text.split(b"\n", number + 1)[number]
        return header.error(header.first_row_line + number, numbers, line)

    first, rest = np.empty((count, 0)), text
    if columns > 1:
        first, rest = svmlight.first_numbers(text, count, columns - 1)
    if len(first) < count:
        raise missing(len(first))
    block = svmlight.parse(
        rest,
        name=header.name,
        labels="number",
        zero_based=True,
        float64=float64,
        first_line=header.first_row_line,
    )
    if len(block.y) != count:
        raise missing(next(n for n, line in enumerate(rest.split(b"\n")) if not line.strip()))
    return np.column_stack([first, block.y])[:, :columns], block


# First bytes of syntax that svmlight files may contain and LIBSVM's models may not: comments, qid,
# cost, unlabelled rows, a byte order mark.
FOREIGN_BYTES = (b"#", b"q", b"c", b"?", b"\xef")


def _check_plain_rows(text: bytes, header: Header, row: str) -> None:
    for mark in FOREIGN_BYTES:
        at = text.find(mark)
        if at >= 0:
            line, column = text.count(b"\n", 0, at), at - text.rfind(b"\n", 0, at)
            raise DataError(
                header.name,
                header.first_row_line + line,
                column,
                f"expected a {row}, found {quoted(text[at : at + 1])}",
            )


# --- files ---------------------------------------------------------------------------------


def load(path: str, float64: bool = False) -> Model:
    """Return the model in a file.

    Parameters
    ----------
    path : str
        Name of the file; "-" is standard input.
    float64 : bool, default=False
        Whether feature values are float64 even if the training rounded them to float32.

    Returns
    -------
    Model
        A KernelModel, PairwiseModel or LinearModel.

    Raises
    ------
    ModelError, DataError
        If the file is not a model, or was altered or truncated.
    InputError
        If the file cannot be opened.
    """
    content, name = files.read_whole(path), files.display_name(path)
    return _module_of(format_of(content) or "libsvm").read(content, name, float64)


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


def check_is_not_model(path: str, order: str) -> None:
    """Raise ParameterError if the file `path` is a model instead of data.

    order : the files of the command in the right order, for the message.
    """
    head = b""
    with contextlib.suppress(OSError):  # the reader of the data reports it
        head = files.first_bytes(path)
    if path != files.STANDARD and format_of(head) is not None:
        raise ParameterError(f"{path} is a model, not data: the order is {order}")


def check_replaces_model(path: str) -> None:
    """Raise OutputError if the file `path` exists and has other content than a model."""
    files.check_file_type(path, "a model", lambda head: format_of(head) is not None)


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
