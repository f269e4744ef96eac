"""Databases with the table of a frame: files of DuckDB and SQLite, and a server of PostgreSQL.

The server runs on a socket in a temporary folder; PostgreSQL refuses to run as root, so it then
runs as another user.
"""

import os
import shutil
import sqlite3
import subprocess
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

PASSWORD = "s3cret/w@rd"


def program(name: str) -> str:
    """Return the path of a program of PostgreSQL; Debian's are not in PATH."""
    places = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    found = str(places[-1]) if places else shutil.which(name)
    if found is None:
        pytest.skip(f"needs the server of PostgreSQL: {name} was not found")
    return found


class Server:
    """A server of PostgreSQL with the user `tester`."""

    def __init__(self) -> None:
        programs = [program(name) for name in ("initdb", "pg_ctl", "postgres")]
        self.initdb, self.pg_ctl, _ = programs
        # The path of a socket has at most 107 bytes.
        self.folder = Path(tempfile.mkdtemp(prefix="pg", dir="/tmp"))
        self.data = self.folder / "data"
        (self.folder / "password").write_text(PASSWORD)
        self.how: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        if os.geteuid() == 0:
            self.how |= {"user": "nobody", "group": "nogroup", "extra_groups": []}
            shutil.chown(self.folder, "nobody")
        own = "-U", "tester", "-A", "scram-sha-256", "--pwfile", self.folder / "password"
        self.call(self.initdb, "-D", self.data, "-N", *own)
        self.start()

    def call(self, *words: object) -> None:
        environment = {"LC_ALL": "C.UTF-8", "PATH": os.environ["PATH"]}
        line = list(map(str, words))
        subprocess.run(line, check=True, cwd=self.folder, env=environment, **self.how)

    def start(self) -> None:
        options = f"-k {self.folder} -c listen_addresses='' -c fsync=off"
        log = self.folder / "log"
        self.call(self.pg_ctl, "-D", self.data, "-o", options, "-l", log, "-w", "start")

    def stop(self) -> None:
        """Stop the server without a word to its clients."""
        self.call(self.pg_ctl, "-D", self.data, "-m", "immediate", "-w", "stop")

    def url(self, password: str = PASSWORD) -> str:
        return f"postgresql://tester:{quote(password, safe='')}@/postgres?host={self.folder}"

    def execute(self, *statements: str) -> None:
        from adbc_driver_postgresql import dbapi

        with dbapi.connect(self.url(), autocommit=True) as connection:
            for statement in statements:
                with connection.cursor() as cursor:
                    cursor.execute(statement)

    def write(self, frame: Any, table: str) -> None:
        """Write a frame of pandas as a table."""
        import pyarrow
        from adbc_driver_postgresql import dbapi

        with dbapi.connect(self.url()) as connection:
            with connection.cursor() as cursor:
                rows = pyarrow.Table.from_pandas(frame, preserve_index=False)
                cursor.adbc_ingest(table, rows, "replace")
            connection.commit()

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self.folder)


def duckdb_file(path: Path, **tables: Any) -> str:
    """Write frames of pandas as tables of a file; return its URL."""
    import duckdb

    with duckdb.connect(path) as connection:
        for name, frame in tables.items():
            connection.register("frame", frame)
            connection.execute(f'CREATE TABLE "{name}" AS SELECT * FROM frame')
    return f"duckdb:///{path}"


def sqlite_file(path: Path, **tables: Any) -> str:
    """Write frames of pandas as tables of a file; return its URL."""
    connection = sqlite3.connect(path)
    for name, frame in tables.items():
        frame.to_sql(name, connection, index=False)
    connection.close()
    return f"sqlite:///{path}"
