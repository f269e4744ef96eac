"""The sockets and secrets of --cluster local:N, and the addresses that --cluster refuses."""

import asyncio
import ipaddress
import os
import struct
import time
from contextlib import closing
from pathlib import Path

import pytest
from commands import run_train
from dask_cluster import PATIENCE
from learning import board

from randsvm.errors import ParameterError

pytest.importorskip("distributed")
from clusters import Connection, WorkerPool
from distributed import Security
from distributed.core import rpc

# dask leaves sockets and tasks to the end of a process that closes without waiting.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::RuntimeWarning")

LISTENING = "0A"


def sockets_of(pid):
    """Return the inodes of the open sockets of a process."""
    found = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = str(link.readlink())
        except OSError:
            continue
        if target.startswith("socket:["):
            found.add(target.removeprefix("socket:[").removesuffix("]"))
    return found


def address_of(text):
    """Parse an address of /proc/net: 32-bit words in the byte order of the machine."""
    words = [int(text[at : at + 8], 16) for at in range(0, len(text), 8)]
    return ipaddress.ip_address(struct.pack(f"={len(words)}I", *words))


def listening_on(pid):
    """Return the addresses on which a process listens for TCP."""
    inodes, found = sockets_of(pid), []
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        if table.exists():
            rows = [line.split() for line in table.read_text().splitlines()[1:]]
            found += [
                address_of(row[1].partition(":")[0])
                for row in rows
                if row[3] == LISTENING and row[9] in inodes
            ]
    return found


@pytest.fixture(scope="module")
def local():
    """Return local:2 with both workers."""
    with closing(WorkerPool(Connection("local:2"))) as worker_pool:
        end = time.monotonic() + PATIENCE
        while len(worker_pool.members()) < 2:
            assert time.monotonic() < end
            time.sleep(0.1)
        yield worker_pool


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="needs Linux's /proc")
def test_a_local_cluster_listens_on_loopback_only(local):
    pids = [os.getpid(), *(process.pid for process in local.connection.processes)]
    for pid in pids:
        found = listening_on(pid)
        assert found, "a scheduler and a worker listen for each other"
        assert all(address.is_loopback for address in found), found


@pytest.mark.parametrize("how", ["without TLS", "another certificate"])
def test_a_local_cluster_refuses_clients_without_its_certificate(local, how):
    """With its certificate, the same call succeeds."""
    security = None if how == "without TLS" else Security.temporary()

    async def identity(address, arguments):
        remote = rpc(address, connection_args=arguments, timeout=PATIENCE)
        try:
            return await remote.identity()
        finally:
            await remote.close_rpc()

    ours = local.connection.client.security.get_connection_args("client")
    for address in [
        local.connection.local_cluster.scheduler_address,
        *(worker.name for worker in local.members()),
    ]:
        assert asyncio.run(identity(address, ours))
        other, arguments = address.replace("tls://", "tcp://"), {}
        if security is not None:
            other, arguments = address, security.get_connection_args("client")
        with pytest.raises(OSError):
            asyncio.run(identity(other, arguments))


def test_no_command_line_contains_a_secret(local):
    for process in local.connection.processes:
        words = Path(f"/proc/{process.pid}/cmdline").read_bytes()
        assert b"dask_worker" in words
        assert b"PRIVATE" not in words


@pytest.mark.parametrize("content", [b"+1 1:2\n-1 1:3\n", b"{}", b"{1:2", b"", b"\xff{", b"[1]"])
def test_the_error_of_a_bad_scheduler_file_has_one_line(tmp_path, content):
    path = board(20).save(tmp_path / "board")
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(ParameterError, match="expected a scheduler file") as error:
        run_train("randsvm", "-q", "--cluster", tmp_path / "file", path, tmp_path / "m")
    assert "\n" not in str(error.value)


def test_local_workers_without_cryptography_are_refused(tmp_path, monkeypatch):
    def missing():
        raise ImportError("No module named 'cryptography'")

    monkeypatch.setattr(Security, "temporary", missing)
    path = board(20).save(tmp_path / "board")
    with pytest.raises(ParameterError, match=r"needs cryptography \(pip install cryptography\)"):
        run_train("randsvm", "-q", "--cluster", "local:2", path, tmp_path / "m")
