"""The '# randsvm key value' lines after a model, and the sha256 seal that ends them.

Knows nothing of the model before them: to it that is bytes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

from randsvm.errors import ModelError, quoted
from randsvm.files import Sink, decoded, encoded

FORMAT = 1  # of the trailer and of all it says about the model; raise it when old readers would err

PREFIX = b"# randsvm "
FIRST = PREFIX + b"format "
SEAL = PREFIX + b"sha256 "

# A value must stay on its line, and LIBSVM's reader stops at a NUL.
ESCAPES = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\0": "\\0"}
UNESCAPES = {written: plain for plain, written in ESCAPES.items()}


class Sealed:
    """Passes bytes on to `stream` and remembers their digest, until `seal` ends the file."""

    def __init__(self, stream: Sink) -> None:
        self._stream = stream
        self._digest = hashlib.sha256()

    def write(self, data: bytes, /) -> int:
        self._digest.update(data)
        self._stream.write(data)
        return len(data)

    def seal(self, items: Mapping[str, str]) -> None:
        """Write the trailer: the format, the items in their order, the digest of all before it."""
        self.write(FIRST + b"%d\n" % FORMAT)
        for key, value in items.items():
            self.write(_line(key, value))
        self._stream.write(SEAL + self._digest.hexdigest().encode() + b"\n")


def _line(key: str, value: str) -> bytes:
    if not re.fullmatch(r"[!-~]+", key) or key in ("format", "sha256"):
        raise ValueError(f"expected one free ASCII word as trailer key, got {key!r}")
    escaped = "".join(ESCAPES.get(character, character) for character in value)
    return PREFIX + encoded(f"{key} {escaped}\n")


def split(content: bytes, name: str) -> tuple[int, dict[str, str] | None]:
    """Where the model's own text ends in `content`, and the items that follow it.

    The items are None for a file without a trailer, as LIBSVM and LIBLINEAR write it.
    Raises ModelError when the trailer is cut, altered, followed by anything, or of a newer format.
    """
    if content.startswith(PREFIX):
        raise ModelError(f"{name}:1: expected a model, found its trailer alone")
    start = content.find(b"\n" + PREFIX) + 1
    if start == 0:
        return len(content), None
    first_line = content.count(b"\n", 0, start) + 1
    lines = content[start:].split(b"\n")
    _check_format(lines[0], f"{name}:{first_line}")
    _check_seal(content, lines, name, first_line)
    return start, _items(lines[1:-2], name, first_line + 1)


def _check_format(line: bytes, where: str) -> None:
    if not line.startswith(FIRST):
        raise ModelError(f"{where}: expected '{FIRST.decode()}{FORMAT}', found {quoted(line)}")
    version = line.removeprefix(FIRST)
    if re.fullmatch(rb"[1-9][0-9]{0,8}", version) and int(version) > FORMAT:
        raise ModelError(
            f"{where}: expected model format {FORMAT}, found {int(version)}: "
            f"a newer version of randsvm wrote this model"
        )
    if version != b"%d" % FORMAT:
        raise ModelError(f"{where}: expected model format {FORMAT}, found {quoted(version)}")


def _check_seal(content: bytes, lines: list[bytes], name: str, first_line: int) -> None:
    sealed = [number for number, line in enumerate(lines) if line.startswith(SEAL)]
    if not sealed:
        raise ModelError(
            f"{name}:{first_line + len(lines) - 1}: expected a line '{SEAL.decode()}...' at the "
            f"end, found the end of the file (truncated?)"
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
    if line != SEAL + digest.encode():
        raise ModelError(
            f"{where}: expected sha256 {digest}, found {quoted(line.removeprefix(SEAL))}: "
            f"the model was altered or damaged after it was written"
        )


def _items(lines: list[bytes], name: str, first_line: int) -> dict[str, str]:
    items: dict[str, str] = {}
    for number, line in enumerate(lines, first_line):
        key, _, value = decoded(line.removeprefix(PREFIX)).partition(" ")
        if not line.startswith(PREFIX) or not key or key in items:
            raise ModelError(
                f"{name}:{number}: expected '# randsvm key value' and each key once, "
                f"found {quoted(line)}"
            )
        items[key] = re.sub(r"\\.", lambda found: UNESCAPES.get(found[0], found[0]), value)
    return items
