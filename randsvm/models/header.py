"""Read and write the header that the formats of LIBSVM and LIBLINEAR share.

Each line is a keyword and its words. This module checks lines, words and numbers; libsvm_format.py
and liblinear_format.py define the keywords.
"""

from __future__ import annotations

import io
import itertools
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Literal, NamedTuple, TypeVar

import numpy as np

from randsvm.decimals import is_number, shortest
from randsvm.errors import ModelError, quoted
from randsvm.models.trailer import split_trailer

# The package's own layout holds what LIBSVM's and LIBLINEAR's formats cannot: labels that are
# names, scaling, several classes one against the rest. Its first line is this word and a version,
# so that their programs refuse the file instead of misreading it.
OWN_LAYOUT = "randsvm_model"
OWN_VERSION = 1

INTEGER = re.compile(rb"[+-]?[0-9]{1,18}")
INT_LIMIT = 2**31  # LIBSVM and LIBLINEAR read whole numbers as C ints
MAX_HEADER_LINES = 16  # of a header in either format, including the first line of the own layout

Number = TypeVar("Number", int, float)


class HeaderFormat(NamedTuple):
    """The header of one of the two formats.

    program : LIBSVM or LIBLINEAR
    keywords : in the order in which the program writes them
    end : the last line of the header
    longest_line : largest length of a line in bytes
    """

    program: str
    keywords: tuple[str, ...]
    end: str
    longest_line: int


def format_of(content: bytes) -> Literal["libsvm", "liblinear"] | None:
    """Return the format of a model file; None if `content` is not a model.

    The programs accept header lines in any order, so all lines of a header are searched.
    """
    for line in itertools.islice(io.BytesIO(content), MAX_HEADER_LINES):
        match line.split(None, 1)[:1]:
            case [b"svm_type"]:
                return "libsvm"
            case [b"solver_type"]:
                return "liblinear"
    return None


def render(
    header_format: HeaderFormat, entries: Mapping[str, tuple[object, ...] | None], own_format: bool
) -> bytes:
    """Return the header's lines, without entries that are None."""
    lines = [f"{OWN_LAYOUT} {OWN_VERSION}"] if own_format else []
    lines += [
        " ".join([key, *map(_text, entry)]) for key, entry in entries.items() if entry is not None
    ]
    return "\n".join([*lines, header_format.end, ""]).encode()


def _text(entry: object) -> str:
    return shortest(entry) if isinstance(entry, float | np.floating) else str(entry)


def read(
    content: bytes, name: str, header_format: HeaderFormat
) -> tuple[Header, dict[str, str] | None]:
    """Return the header and the trailer of a model.

    content : the whole file; name : the file's name in messages. Raise ModelError, also for a model
    in the own layout without a trailer.
    """
    end, trailer = split_trailer(content, name)
    header = Header(content, end, name, header_format)
    if header.own_format and trailer is None:
        raise ModelError(
            f"{name}: expected '# randsvm' lines at the end of a {OWN_LAYOUT} file, found none "
            f"(truncated?)"
        )
    return header, trailer


class Header:
    """The header lines of content[:end].

    own_format : whether the model is in the package's own layout
    size : length of the header in bytes
    first_row_line : number of the first line after the header
    """

    def __init__(self, content: bytes, end: int, name: str, header_format: HeaderFormat) -> None:
        self.content = content
        self.end = end
        self.name = name
        self.own_format = False
        self.size = 0
        self._format = header_format
        self._found: dict[str, tuple[int, list[bytes]]] = {}
        for number in itertools.count(1):
            line = self._line(number)
            self.size += len(line)
            word, *rest = line.split() or [b""]
            if number == 1 and word == OWN_LAYOUT.encode():
                self._check_version(rest)
                self.own_format = True
            elif line.rstrip() == header_format.end.encode():
                self.first_row_line = number + 1
                break
            else:
                self._add(number, word, rest, line)

    def _line(self, number: int) -> bytes:
        if self.size == self.end:
            if self.end == 0:
                raise self.error(number, "a model", "an empty file")
            raise self.error(
                number, f"the line '{self._format.end}'", "the end of the file (truncated?)"
            )
        limit = min(self.end, self.size + self._format.longest_line)
        line = self.content[self.size : self.content.find(b"\n", self.size, limit) + 1]
        if not line:
            found = self.content[self.size : limit]
            raise self.error(number, "a whole line of the model's header", found)
        return line

    def error(self, number: int, expected: str, found: bytes | str) -> ModelError:
        what = found if isinstance(found, str) else quoted(found.strip())
        return ModelError(f"{self.name}:{number}: expected {expected}, found {what}")

    def _check_version(self, words: list[bytes]) -> None:
        version = b"".join(words[:1])
        if INTEGER.fullmatch(version) and int(version) > OWN_VERSION:
            raise self.error(
                1,
                f"{OWN_LAYOUT} {OWN_VERSION}",
                f"{OWN_LAYOUT} {int(version)}: a newer version of randsvm wrote this model",
            )
        if version != b"%d" % OWN_VERSION:
            raise self.error(1, f"{OWN_LAYOUT} {OWN_VERSION}", version)

    def _add(self, number: int, word: bytes, rest: list[bytes], line: bytes) -> None:
        keyword = word.decode("ascii", "replace")
        if keyword not in self._format.keywords:
            expected = f"a keyword of {self._format.program}'s model format"
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
                f"'{self._format.end}', found none"
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
        words = self._exact_words(keyword, count)
        if not all(INTEGER.fullmatch(w) and -INT_LIMIT <= int(w) < INT_LIMIT for w in words):
            raise self.error(
                self.line_of(keyword),
                f"whole numbers below 2^31 after '{keyword}'",
                b" ".join(words),
            )
        return tuple(map(int, words))

    def numbers(self, keyword: str, count: int) -> tuple[float, ...]:
        """Return the `count` finite numbers after `keyword`."""
        words = self._exact_words(keyword, count)
        if not all(map(is_number, words)):
            raise self.error(
                self.line_of(keyword), f"finite numbers after '{keyword}'", b" ".join(words)
            )
        return tuple(map(float, words))

    def optional_numbers(self, keyword: str, count: int) -> tuple[float, ...] | None:
        return self.numbers(keyword, count) if keyword in self else None

    def non_negative(self, keyword: str, read: Callable[[str, int], tuple[Number, ...]]) -> Number:
        """Return the only number after `keyword`, at least 0. read : integers or numbers."""
        number = read(keyword, 1)[0]
        if number < 0:
            raise self.error(self.line_of(keyword), f"{keyword} of 0 or more", f"{number}")
        return number

    def _exact_words(self, keyword: str, count: int) -> list[bytes]:
        words = self.words(keyword)
        if len(words) != count:
            expected = f"{count} number{'s' * (count > 1)} after '{keyword}'"
            raise self.error(self.line_of(keyword), expected, f"{len(words)}")
        return words

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


def either(words: Iterable[str]) -> str:
    """Return the words as 'a, b or c'."""
    *others, last = words
    return f"{', '.join(others)} or {last}" if others else last
