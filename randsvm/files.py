"""Open inputs, compressed or not, and write outputs that appear completely or not at all.

Errors of the system are raised as errors of randsvm.errors. The first bytes of an input determine
its compression (gzip, bzip2, xz, zstd).
"""

from __future__ import annotations

import contextlib
import glob
import io
import os
import re
import select
import stat
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

from randsvm.errors import (
    ContentError,
    InputError,
    OutputError,
    ParameterError,
    RandsvmError,
    TransferError,
    WriteError,
)
from randsvm.events import HEARTBEAT, Waiting, check, emit

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

STANDARD = "-"
# Names of standard output. Replacing the file behind them would lose other printed lines.
STANDARD_OUTPUTS = (STANDARD, "/dev/stdout", "/dev/fd/1")
FILE_TYPE_BYTES = 1 << 16  # bytes that identify the type of a file
READ_BYTES = 1 << 22  # bytes read at once where a whole file is wanted

# First bytes -> module of the standard library whose open() reads the rest. compression.zstd needs
# Python 3.14.
COMPRESSIONS = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bz2",
    b"\xfd7zXZ\x00": "lzma",
    b"\x28\xb5\x2f\xfd": "compression.zstd",
}
MAGIC_BYTES = max(map(len, COMPRESSIONS))


class Sink(Protocol):
    """A writer of bytes."""

    def write(self, data: bytes, /) -> object: ...


# Schemes of the URLs of databases.
DATABASES = ("duckdb", "sqlite", "postgresql", "postgres")
# libpq repeats what it cannot read in its messages. Of a URL of this pattern it can read all parts.
SERVER = re.compile(
    r"postgres(?:ql)?://(?:[^:@/?#\s]*(?::[^:@/?#\s]*)?@)?"
    r"(?:(?:[^:@/?#\s,\[\]]*|\[[^@/\]\s]*\])(?::\d+)?,?)*(?:/[^:@/?#\s]*)?(?:\?[^?#\s]*)?"
)
BAD_ESCAPE = re.compile("%(?![0-9A-Fa-f]{2})|%00")
# What follows the user in a URL, or the name of a parameter.
PASSWORD = re.compile(r"(?<=://)([^:@/?#]*):[^/]*(?=@)|([?&][^=&#]*(?:pass|secret)[^=&#]*)=[^&#]*")


def is_server(url: str) -> bool:
    """Return whether this is the URL of a server of PostgreSQL that libpq can read."""
    return bool(SERVER.fullmatch(url)) and not BAD_ESCAPE.search(url)


def without_password(url: str) -> str:
    """Return a URL without its password, or another name as it is."""
    if not is_url(url):
        return url
    if url.startswith("postgres") and not is_server(url):
        return f"{url.partition(':')[0]}://..."
    return PASSWORD.sub(r"\1\2", url)


def display_name(path: str) -> str:
    """Return the name of an input for messages."""
    return "<stdin>" if path == STANDARD else without_password(path)


def display_output(path: str) -> str:
    """Return the name of an output for messages."""
    return "<stdout>" if path in STANDARD_OUTPUTS else path


def inputs(data: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> tuple[str, ...]:
    """Return the paths that names and patterns such as part-*.svm stand for.

    The matches of a pattern are sorted. A name without a match stays, so that opening it fails.
    Raises ParameterError if `data` is empty or no names.
    """
    paths: list[str] = []
    words = [data] if isinstance(data, str | os.PathLike) else data
    if not isinstance(words, Sequence):
        raise ParameterError(f"expected names of files, found {type(data).__name__}")
    if not words:
        raise ParameterError("expected the name of a file, found none")
    for name in words:
        word = os.fspath(name)
        is_name = word == STANDARD or file_exists(word)
        matches = [] if is_name else sorted(glob.glob(word))  # noqa: PTH207 - Path takes no absolute pattern
        # A missing file is reported when it is opened.
        paths += matches or [word]
    return tuple(paths)


def file_exists(path: str) -> bool:
    """Return whether the file exists; False if the system raises an error, as for a long name."""
    return os.path.exists(path)  # noqa: PTH110 - Path raises the error


def is_stream(path: str) -> bool:
    """Return whether a file is read only once: standard input, a URL, a pipe or a device."""
    return path == STANDARD or is_url(path) or Path(path).is_fifo() or Path(path).is_char_device()


def size_of(path: str) -> int | None:
    """Return the bytes of a regular file; None for anything else."""
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def joint_name(paths: Sequence[str]) -> str:
    """Return a name of several files for messages."""
    more = len(paths) - 1
    others = f" and {more} other file{'s' * (more > 1)}" if more else ""
    return display_name(paths[0]) + others


def encoded(text: str) -> bytes:
    """Return text as bytes of a file; `decoded` is the inverse for any bytes."""
    return text.encode("utf-8", "surrogateescape")


def decoded(data: bytes) -> str:
    """Return bytes of a file as text."""
    return data.decode("utf-8", "surrogateescape")


@contextlib.contextmanager
def open_input(path: str) -> Iterator[BinaryIO]:
    """Open a binary stream of the decompressed content of `path` (`-`: standard input).

    Raises InputError if it cannot be opened or this Python cannot decompress it. Read from the
    stream within `reading`, which raises errors of this package.
    """
    with contextlib.ExitStack() as stack:
        with _raising(InputError, f"cannot open {without_password(path)}"):
            if path == STANDARD:
                stream = _standard_input()
            elif is_url(path):
                stream = stack.enter_context(io.BufferedReader(RemoteFile(path)))
            else:
                raw = PatientFile(path, opener=_open_to_read)
                stream = stack.enter_context(io.BufferedReader(raw))
        with _raising(InputError, f"cannot read {display_name(path)}"):
            head = stream.peek(MAGIC_BYTES)[:MAGIC_BYTES]
        yield _decompressed(path, stream, head)


def is_url(path: str) -> bool:
    """Return whether an input is a URL, such as s3://bucket/rows.svm."""
    return "://" in path


class RemoteFile(io.RawIOBase):
    """The content behind a URL: each of its file systems raises errors of its own.

    Raises ParameterError without fsspec, InputError if it cannot be opened, and TransferError if a
    read fails.
    """

    def __init__(self, url: str) -> None:
        self.url, self.name = url, without_password(url)
        if url.partition("://")[0] in DATABASES:
            raise ParameterError(f"{self.name} is a database: give --sql, the query of its rows")
        try:
            import fsspec
        except ImportError as error:
            raise ParameterError(
                f"{self.name} needs fsspec (pip install fsspec aiohttp): {error}"
            ) from error
        # An error may be that of a wrong name, missing rights or no network.
        with self._errors(InputError, "cannot open"):
            self.stream = fsspec.open(url, "rb").open()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        with self._errors(TransferError, "reading"):
            count: int = self.stream.readinto(buffer)
            return count

    def close(self) -> None:
        if not self.closed:
            super().close()
            # What was read is complete; the error of closing says nothing new.
            with contextlib.suppress(Exception):
                self.stream.close()

    @contextlib.contextmanager
    def _errors(self, kind: type[RandsvmError], verb: str) -> Iterator[None]:
        """Turn any error of another package into one of this package."""
        try:
            yield
        except RandsvmError:
            raise
        except Exception as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            reason = reason.replace(self.url, self.name)
            raise kind(f"{verb} {self.name}: {reason}") from error


def _standard_input() -> io.BufferedReader:
    if sys.stdin is None:  # the caller closed it (<&-)
        raise InputError("cannot read <stdin>: it is closed")
    stream: Any = sys.stdin.buffer
    # A caller's stdin may be bytes in memory.
    return stream if hasattr(stream, "peek") else io.BufferedReader(stream)


def _decompressed(path: str, stream: BinaryIO, head: bytes) -> BinaryIO:
    for magic, module in COMPRESSIONS.items():
        if head.startswith(magic):
            try:
                codec = __import__(module, fromlist=["open"])
            except ImportError as error:
                raise InputError(
                    f"cannot read {display_name(path)}: it is compressed with "
                    f"{module.rpartition('.')[2]}, which this Python does not support; "
                    f"decompress it into a pipe and give - as the file"
                ) from error
            return codec.open(stream)
    return stream


@contextlib.contextmanager
def reading(path: str) -> Iterator[None]:
    """Turn an error of reading a stream into one of this package.

    Raises ContentError for a damaged archive and TransferError for a failing device.
    """
    try:
        yield
    except EOFError as error:
        raise ContentError(
            f"{display_name(path)}: expected the end of the compressed stream, "
            f"found the end of the file (truncated?)"
        ) from error
    except OSError as error:
        if error.errno is None:  # gzip and bz2 report bad content as an OSError without number
            raise ContentError(f"{display_name(path)}: damaged archive: {error}") from error
        raise TransferError(f"reading {display_name(path)}: {error.strerror}") from error
    except Exception as error:  # zlib, lzma and zstd have an error class each
        if type(error).__module__.partition(".")[0] in ("zlib", "_lzma", "lzma", "compression"):
            raise ContentError(f"{display_name(path)}: damaged archive: {error}") from error
        raise


def has_more(stream: BinaryIO, seconds: float) -> bool:
    """Return whether a pipe has content, or ends, within `seconds`; True for other streams.

    This function asks the operating system; it does not see bytes in the buffer of the stream.
    """
    if not isinstance(stream, io.BufferedReader):
        return True
    try:
        descriptor = stream.fileno()
    except io.UnsupportedOperation:  # a caller's stdin, without a system file
        return True
    return is_ready(descriptor, seconds)


def read_whole(path: str) -> bytes:
    """Return the decompressed content of `path` (`-`: standard input)."""
    content = io.BytesIO()  # joining blocks would hold them twice
    with open_input(path) as stream, reading(path):
        while block := stream.read(READ_BYTES):
            content.write(block)
    return content.getvalue()


def read_json_lines(path: str) -> list[dict[str, Any]]:
    """Return the JSON objects in the lines of a file; lines that were cut short are left out.

    Raises InputError if the file cannot be opened.
    """
    import json  # not for --help

    with _raising(InputError, f"cannot open {path}"):
        lines = Path(path).read_bytes().splitlines()
    found = []
    for line in lines:
        # Python raises RecursionError for deeply nested brackets.
        with contextlib.suppress(ValueError, RecursionError):
            found.append(json.loads(line))
    return [one for one in found if isinstance(one, dict)]


@contextlib.contextmanager
def create_output(path: str) -> Iterator[BinaryIO]:
    """Create a binary stream whose content becomes `path` when the block ends without an error.

    A regular file is written under another name in its folder, synced and renamed, so that a reader
    sees either the old file or the new one. Symlinks are followed. The mode is that of the old
    file, or follows from the umask. FIFOs, devices and `-` (standard output) are written directly.

    Raises OutputError when it cannot be created and WriteError when writing fails.
    """
    if path in STANDARD_OUTPUTS:
        stream = _standard_output()
        with _writing(path):
            yield stream
            stream.flush()
        return
    target, mode = _target(path)
    if not _is_replaceable(mode):
        with _creating(path):
            stream = target.open("wb")
        with _writing(path), stream:
            yield stream
        return
    temporary = target.with_name(f".{target.name[:50]}.{os.urandom(8).hex()}")
    try:
        # The kernel applies the umask: reading it would change it for all threads.
        wanted, flags = 0o666 if mode is None else stat.S_IMODE(mode), os.O_CREAT | os.O_EXCL
        with _creating(path):
            descriptor = os.open(temporary, os.O_RDWR | flags, wanted & 0o777)
            if mode is not None:
                os.fchmod(descriptor, wanted)
        with _writing(path), os.fdopen(descriptor, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(descriptor)
        with _creating(path):
            temporary.replace(target)
            _sync_folder(target.parent)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def _standard_output() -> BinaryIO:
    if sys.stdout is None:  # the caller closed it (>&-)
        raise OutputError("cannot write <stdout>: it is closed")
    sys.stdout.flush()  # what was printed before comes first
    return sys.stdout.buffer


def _target(path: str) -> tuple[Path, int | None]:
    """Return the file of `path`, links followed, and its mode; None if it does not exist."""
    mode = None
    with _creating(path), contextlib.suppress(FileNotFoundError):
        mode = Path(path).stat().st_mode
    if path.endswith("/") or (mode is not None and stat.S_ISDIR(mode)):
        raise OutputError(f"cannot create {path}: Is a directory")
    if not _is_replaceable(mode):
        # Links are resolved only for a file that is renamed into place. The link /dev/fd/63 of a
        # shell's >(command) does not lead to a path.
        return Path(path), mode
    target = Path(path).resolve()
    with _creating(path):
        # resolve() takes NODIR/../NAME for NAME; the system does not.
        for folder in (Path(path).parent, target.parent):
            folder.stat()
    return target, mode


def _is_replaceable(mode: int | None) -> bool:
    return mode is None or stat.S_ISREG(mode)


def _sync_folder(folder: Path) -> None:
    # A rename is durable once its folder is synced; not every file system supports that.
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _creating(path: str) -> contextlib.AbstractContextManager[None]:
    return _raising(OutputError, f"cannot create {path}")


def _writing(path: str) -> contextlib.AbstractContextManager[None]:
    return _raising(WriteError, f"writing {display_output(path)}")


@contextlib.contextmanager
def _raising(kind: type[RandsvmError], words: str) -> Iterator[None]:
    """Turn an error of the system into one of this package, except that of a closed pipe."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise kind(f"{words}: {error.strerror or error}") from error


def check_output(
    path: str, kind: str = "", recognised: Callable[[bytes], bool] | None = None
) -> None:
    """Raise OutputError if `path` cannot be created, before the work for it begins.

    Raise it, too, if the file exists and has content of another type, such as a data set. This
    function writes nothing.

    kind: name of the type, for the message. recognised: called with the first bytes; None: any type
    is replaced.
    """
    if path in STANDARD_OUTPUTS:
        _standard_output()
        return
    target, mode = _target(path)
    is_renamed = _is_replaceable(mode)
    if not os.access(target.parent if is_renamed else target, os.W_OK | os.X_OK * is_renamed):
        raise OutputError(f"cannot create {path}: Permission denied")
    if recognised is None:
        return
    with _creating(path):
        head = first_bytes(path)
    if head and not recognised(head):
        raise OutputError(
            f"cannot create {path}: the file exists and is not {kind}, so it is not replaced: "
            f"give the output another name"
        )


def first_bytes(path: str) -> bytes:
    """Return the first FILE_TYPE_BYTES bytes of a regular file; b"" for anything else."""
    if not Path(path).is_file():
        return b""
    with Path(path).open("rb") as stream:
        return stream.read(FILE_TYPE_BYTES)


def check_distinct(
    outputs: Mapping[str, str | None], inputs: Mapping[str, str | Sequence[str] | None]
) -> None:
    """Raise ParameterError if an output is the same file as an input or another output.

    outputs, inputs: role -> path; an input may be several. For example, a cache must not replace
    the data from which it was made.
    """
    roles: dict[object, str] = {}
    for role, paths in inputs.items():
        for path in [paths] if isinstance(paths, str) else paths or ():
            roles.setdefault(_identity(path), role)
    for role, output in outputs.items():
        identity = None if output is None else _identity(output)
        if identity is not None and identity in roles:
            raise ParameterError(f"{output} is both {roles[identity]} and {role}")
        roles[identity] = role


def _identity(path: str) -> object:
    """Return a value that is equal for two paths of one regular file, which may not exist yet."""
    if path in STANDARD_OUTPUTS:
        return None
    try:
        status = Path(path).stat()
    except FileNotFoundError:
        return Path(path).resolve()
    except OSError:
        return None
    return (status.st_dev, status.st_ino) if stat.S_ISREG(status.st_mode) else None


# ---- waiting for input -------------------------------------------------------------------------

# Python continues a system call after a signal whose handler raises nothing. A wait for input in a
# system call would thus delay the reaction to a signal, so these streams wait in poll() and check.
# A write that waits, or an output that waits for its reader, is ended by a second signal.


class PatientFile(io.FileIO):
    """A file, pipe or terminal that is read, and checks for signals while it waits.

    The first read waits for MAGIC_BYTES bytes or the end, as the first write into a pipe may be
    shorter.
    """

    is_read = False

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        view, count = memoryview(buffer), self._read_some(buffer)
        while not self.is_read and count < MAGIC_BYTES and (more := self._read_some(view[count:])):
            count += more
        self.is_read = True
        return count

    def _read_some(self, buffer: WriteableBuffer) -> int:
        while not is_ready(self.fileno(), HEARTBEAT):
            emit(Waiting())
        check()
        return super().readinto(buffer)


def make_standard_input_patient() -> None:
    """Replace sys.stdin by a patient one until the process ends."""
    if sys.stdin is not None:
        reader = io.BufferedReader(PatientFile(sys.stdin.fileno(), "rb", closefd=False))
        sys.stdin = io.TextIOWrapper(reader, sys.stdin.encoding, sys.stdin.errors)


def is_ready(descriptor: int, seconds: float) -> bool:
    """Return whether it can be read within `seconds`. A regular file always can."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(1000 * seconds))


def _open_to_read(path: str, flags: int) -> int:
    """Open a file for io.FileIO; that of a FIFO does not wait for its writer, but reading does."""
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    os.set_blocking(descriptor, True)
    return descriptor
