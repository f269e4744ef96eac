"""Outputs appear whole or not at all, inputs open by their first bytes, faults have exit codes."""

import bz2
import contextlib
import gzip
import lzma
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from base import check_output, create_output, files, read_whole

from randsvm.errors import ContentError, InputError, OutputError, TransferError

TEXT = b"+1 1:0.5\n-1 2:0.25\n"


def write(path, content=b"new"):
    with create_output(str(path)) as stream:
        stream.write(content)


def permissions(path):
    return stat.S_IMODE(path.stat().st_mode)


def names(folder):
    return sorted(p.name for p in folder.iterdir())


@contextlib.contextmanager
def umask(mask):
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@contextlib.contextmanager
def refused(error, exit_code, message):
    with pytest.raises(error) as caught:
        yield
    assert caught.value.exit_code == exit_code
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


# Outputs: regular files


class Stop(BaseException):
    """Neither an Exception nor known to the package, like KeyboardInterrupt."""


@pytest.mark.parametrize("error", [ValueError, Stop, TransferError("x")])
@pytest.mark.parametrize("old", [None, b"old"])
def test_an_error_inside_leaves_the_old_file_and_no_other(tmp_path, error, old):
    path = tmp_path / "m"
    if old:
        path.write_bytes(old)
    with (
        pytest.raises(error if isinstance(error, type) else type(error)),
        create_output(str(path)) as stream,
    ):
        stream.write(b"half a model" * 10000)
        stream.flush()
        raise error
    assert names(tmp_path) == (["m"] if old else [])
    assert not old or path.read_bytes() == old


def test_a_file_is_on_the_disk_before_its_name_and_its_name_before_the_end(tmp_path, monkeypatch):
    calls, plain, replace = [], os.fsync, Path.replace

    def synced(descriptor):
        calls.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        plain(descriptor)

    def replaced(path, target):
        calls.append("name")
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", replaced)
    write(tmp_path / "m")
    assert calls == ["file", "name", "folder"]


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o027, 0o640), (0o077, 0o600)])
def test_a_new_file_has_the_permissions_of_umask(tmp_path, mask, mode):
    with umask(mask):
        write(tmp_path / "m")
    assert permissions(tmp_path / "m") == mode


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o666, 0o444, 0o2755])
def test_an_old_file_keeps_its_permissions(tmp_path, mode):
    path = tmp_path / "m"
    path.write_bytes(b"old")
    path.chmod(mode)
    with umask(0o027), create_output(str(path)) as stream:
        stream.write(b"new")
        beside = [p for p in tmp_path.iterdir() if p != path]
        assert [permissions(p) for p in beside] == [mode]  # private from the first byte on
    assert permissions(path) == mode
    assert path.read_bytes() == b"new"


@pytest.mark.parametrize("target", ["there", "new"])
def test_a_symlink_is_followed(tmp_path, target):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "there").write_bytes(b"old")
    link = tmp_path / "m"
    link.symlink_to(f"folder/{target}")
    check_output(str(link))
    write(link)
    assert link.is_symlink()
    assert (tmp_path / "folder" / target).read_bytes() == b"new"
    assert names(tmp_path) == ["folder", "m"]


def link_to_itself(folder):
    (folder / "loop").symlink_to("loop")
    return folder / "loop"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda folder: folder, "Is a directory"),
        (lambda folder: f"{folder}/new/", "Is a directory"),
        (lambda folder: "", "Is a directory"),
        (lambda folder: folder / "missing" / "m", "No such file or directory"),
        (lambda folder: folder / "missing" / ".." / "file", "No such file or directory"),
        (lambda folder: folder / "file" / ".." / "file", "Not a directory"),
        (lambda folder: folder / "file" / "m", "Not a directory"),
        (lambda folder: folder / ("x" * 256), "File name too long"),
        (link_to_itself, "Too many levels of symbolic links"),
    ],
)
def test_what_cannot_be_created_is_said_before_and_when_writing(tmp_path, make, message):
    (tmp_path / "file").write_bytes(b"")
    path = str(make(tmp_path))
    before = names(tmp_path)
    for attempt in (check_output, write):
        with refused(OutputError, 73, f"cannot create {path}: {message}"):
            attempt(path)
    assert names(tmp_path) == before


PATHS = [
    "m", "./m", "sub//m", "missing/../m", "file/../m", "file/m", "sub/../m", "sub/deep/.././m",
    "new", "deep/../m", "dangling", "missing", "deep/new", "loop", "loop/../m",
]  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
def test_an_output_is_the_file_that_the_kernel_would_open(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub" / "deep" / "deeper").mkdir(parents=True)
    (tmp_path / "file").write_bytes(b"")
    for link, target in {
        "new": "sub/deep/../new", "deep": "sub/deep", "dangling": "missing/m",
        "sub/deep/new": "deeper/new", "loop": "loop",
    }.items():  # fmt: skip
        (tmp_path / link).symlink_to(target)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
    except OSError as error:
        for attempt in (check_output, write):
            with refused(OutputError, 73, f"cannot create {path}: {error.strerror}"):
                attempt(path)
    else:
        expected = Path(f"/proc/self/fd/{descriptor}").readlink()
        os.close(descriptor)
        expected.unlink()
        check_output(path)
        write(path)
        assert expected.read_bytes() == b"new"


# Outputs: everything else is written directly


@pytest.mark.parametrize("name", ["-", "/dev/stdout", "/dev/fd/1"])
def test_a_file_behind_standard_output_keeps_what_else_is_printed(tmp_path, name):
    code = f"""
from randsvm.files import create_output
print("before")
with create_output("{name}") as stream:
    stream.write(b"new\\n")
print("after")
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with (tmp_path / "out").open("wb") as out:
        subprocess.run(
            [sys.executable, "-c", code], stdout=out, env=environment, check=True, timeout=120
        )
    assert (tmp_path / "out").read_text() == "before\nnew\nafter\n"


def test_closed_standard_streams_are_refused(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stdin", None)
    for attempt in (check_output, write):
        with refused(OutputError, 73, "cannot write <stdout>: it is closed"):
            attempt("-")
    with refused(InputError, 66, "cannot read <stdin>: it is closed"):
        read_whole("-")


# Inputs

COMPRESS = {
    "plain": bytes,
    "gzip": lambda content: gzip.compress(content, mtime=0),
    "bzip2": bz2.compress,
    "xz": lzma.compress,
}
compressions = pytest.mark.parametrize("compression", COMPRESS)


@compressions
@pytest.mark.parametrize("content", [b"", b"1\n", TEXT, TEXT * 500_000], ids=len)
def test_an_input_is_known_by_its_first_bytes(tmp_path, compression, content):
    path = tmp_path / "any-name"
    path.write_bytes(COMPRESS[compression](content))
    assert read_whole(str(path)) == content


@compressions
def test_standard_input_may_come_in_drops(monkeypatch, compression):
    reader, writer = os.pipe()
    content = COMPRESS[compression](TEXT)
    first_read = threading.Event()

    def drip():
        for byte in content:
            os.write(writer, bytes([byte]))
            first_read.wait(0.001)
        os.close(writer)

    with os.fdopen(reader, encoding="utf-8") as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        files.make_standard_input_patient()
        threading.Thread(target=drip, daemon=True).start()
        assert read_whole("-") == TEXT


@pytest.mark.parametrize(
    ("name", "message"),
    [("missing", "No such file"), (".", "Is a directory"), ("", "No such file or directory")],
)
def test_what_cannot_be_opened_is_exit_66(tmp_path, monkeypatch, name, message):
    monkeypatch.chdir(tmp_path)
    with refused(InputError, 66, f"cannot open {name}: {message}"):
        read_whole(name)


@pytest.mark.parametrize("compression", ["gzip", "bzip2", "xz"])
def test_a_cut_archive_is_bad_content(tmp_path, compression):
    content = COMPRESS[compression](TEXT)
    path = tmp_path / "a"
    for size in range(files.MAGIC_BYTES, len(content)):
        path.write_bytes(content[:size])
        with refused(ContentError, 65, f"{path}: "):
            read_whole(str(path))


@pytest.mark.parametrize("compression", ["gzip", "bzip2", "xz"])
def test_a_flipped_bit_in_an_archive_is_bad_content_or_harmless(tmp_path, compression):
    content = COMPRESS[compression](TEXT)
    path = tmp_path / "a"
    for position in range(files.MAGIC_BYTES, len(content)):
        for bit in range(8):
            flipped = bytearray(content)
            flipped[position] ^= 1 << bit
            path.write_bytes(flipped)
            try:
                assert read_whole(str(path)) == TEXT
            except ContentError as error:
                assert error.exit_code == 65
