"""Databases: the rows that a query selects (extra `sql`).

All databases are read through ADBC, Arrow's interface of databases, with a driver for each. What
follows after their record batches is the code of tables.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, TypeVar, cast
from urllib.parse import quote

from randsvm import files
from randsvm.data.columns import Frame
from randsvm.errors import (
    ContentError,
    InputError,
    ParameterError,
    RandsvmError,
    TransferError,
    quoted,
)
from randsvm.parallel import run_in_daemon_thread

Result = TypeVar("Result")

FORMS = "duckdb:///FILE, sqlite:///FILE or postgresql://USER@HOST/NAME"
# Rows of a batch; those of PostgreSQL have about this number of bytes. The driver of SQLite takes
# the types of the columns from the first batch.
BATCH_ROWS, BATCH_BYTES = 1 << 14, 1 << 22
BATCHES = {
    "duckdb": {},
    "sqlite": {"adbc.sqlite.query.batch_rows": f"{BATCH_ROWS}"},
    "postgresql": {"adbc.postgresql.batch_size_hint_bytes": f"{BATCH_BYTES}"},
}
# The messages of drivers about a device or a connection that fails; others are about the query.
LOST = re.compile("FATAL:|server closed|could not (?:send|receive)|I/?O error", re.IGNORECASE)
TYPE_HINT = f" (a column has the type of its first {BATCH_ROWS:,} values: CAST it in the query)"


class Query(Frame):
    """The rows that a query selects, where functions expect the path of a file.

    Its text is the URL of the database without a password.

    url : with the password; driver : duckdb, sqlite or postgresql; path : the file of the database,
    empty in memory; None: it is on a server; types : of the columns by name, as pyarrow has them,
    once the rows were opened
    """

    url: str
    sql: str
    driver: str
    path: str | None
    types: Mapping[str, Any]

    def __new__(cls, database: Any, sql: str) -> Query:
        """Return the query. Raise ParameterError if the database is not one of FORMS."""
        if isinstance(database, Query):
            return database
        if not isinstance(database, str | os.PathLike):
            raise ParameterError(f"--sql reads one database: expected {FORMS}")
        url = os.fspath(database)
        if not files.is_url(url) and url.endswith(".duckdb"):
            url = f"duckdb:///{url}"
        driver, separator, rest = url.partition("://")
        path = None
        if not separator or driver not in files.DATABASES:
            found = f"a URL of {quoted(driver)}" if separator else quoted(url)
            raise ParameterError(f"--sql reads a database: expected {FORMS}, found {found}")
        if driver in ("duckdb", "sqlite"):
            if rest and not rest.startswith("/"):
                raise ParameterError(f"expected {driver}:///FILE, found {quoted(url)}")
            path = rest[1:]
        elif not files.is_server(url):
            problem = "with : @ / ? # % in a user or password as %3A %40 %2F %3F %23 %25"
            raise ParameterError(f"expected {driver}://USER:PASSWORD@HOST:PORT/NAME, {problem}")
        query = cast("Query", super().__new__(cls, None, files.without_password(url)))
        query.url, query.sql, query.path = url, sql, path
        query.driver = "postgresql" if path is None else driver
        return query

    @contextmanager
    def opened(self) -> Iterator[Batches]:
        """Yield the record batches that the query selects.

        Raises the errors of `_Session`, and ContentError for a mistaken query.
        """
        with _Session(self) as session:
            reader = session.execute(self.sql)
            schema = reader.schema
            self.types = dict(zip(schema.names, schema.types, strict=True))
            yield Batches(schema, session.batches(reader))


class Batches:
    """Record batches of a source that raises errors of this package, which pyarrow would change.

    schema : of the batches, as pyarrow has it
    """

    def __init__(self, schema: Any, batches: Iterator[Any]) -> None:
        self.schema, self.batches = schema, batches

    def __iter__(self) -> Iterator[Any]:
        return self.batches


class _Session:
    """An open database, as a context. Calls run in threads: this thread reacts to signals.

    Entering it raises ParameterError if the driver is missing, and InputError if the database
    cannot be opened.

    busy : whether a call has not returned; left : whether the context has ended
    """

    connection: Any = None
    cursor: Any = None
    busy = left = False

    def __init__(self, query: Query) -> None:
        self.query = query

    def __enter__(self) -> _Session:
        query = self.query
        if query.path:
            # Drivers create a file that is missing.
            with files.open_input(query.path):
                pass
        try:
            dbapi = importlib.import_module("adbc_driver_manager.dbapi")
            driver = importlib.import_module(f"adbc_driver_{query.driver}")
        except ImportError as error:
            problem = f"{query} needs a driver (pip install 'randsvm[sql]'): {error}"
            raise ParameterError(problem) from error
        connect = partial(self._connect, dbapi, driver)
        self._wait(connect, f"cannot open {query}", InputError)
        return self

    def __exit__(self, *error: object) -> None:
        self.left = True
        if self.busy:
            # This thread has stopped waiting. The thread of the call closes the database.
            with suppress(Exception):
                self.cursor.adbc_cancel()
        else:
            self._close()

    def _close(self) -> None:
        for one in filter(None, (self.cursor, self.connection)):
            with suppress(Exception):
                one.close()

    def _connect(self, dbapi: Any, driver: Any) -> None:
        path = self.query.path
        if self.query.driver == "duckdb":
            how = {"path": path, "access_mode": "READ_ONLY"} if path else {}
            library = driver.driver_path()
            entry = "duckdb_adbc_init"
            self.connection = dbapi.connect(driver=library, entrypoint=entry, db_kwargs=how)
            return
        uri = self.query.url
        if path is not None:
            uri = f"file:{quote(path)}?mode=ro" if path else ":memory:"
        self.connection = dbapi.connect(driver=driver._driver_path(), db_kwargs={"uri": uri})
        if path is not None:
            # SQLite reads the file when it needs it.
            with self.connection.cursor() as cursor:
                cursor.execute("PRAGMA schema_version")

    def _wait(self, work: Callable[[], Result], words: str, kind: type[RandsvmError]) -> Result:
        """Return work(). Raise an error of the driver as one of this kind, after some words.

        If the connection is lost, it is a TransferError.
        """

        def call() -> Result:
            try:
                return work()
            except Exception as error:
                reason = _reason(error)
                if kind is ContentError and LOST.search(reason):
                    raise TransferError(f"reading {words}: {reason}") from error
                hint = TYPE_HINT if "Type mismatch in column" in reason else ""
                raise kind(f"{words}: {reason}{hint}") from error
            finally:
                self.busy = False
                if self.left:
                    self._close()

        self.busy = True
        return run_in_daemon_thread(call, None, self)

    def execute(self, sql: str) -> Any:
        """Execute a statement and return the reader of its rows. Raises ContentError."""
        cursor = self.cursor = self.connection.cursor()
        cursor.adbc_statement.set_options(**BATCHES[self.query.driver])

        def rows() -> Any:
            # PostgreSQL has the query in parentheses, which a comment at its end would hide.
            cursor.execute(sql.rstrip().rstrip(";") + "\n")
            return cursor.fetch_record_batch()

        return self._wait(rows, str(self.query), ContentError)

    def batches(self, reader: Any) -> Iterator[Any]:
        """Yield the batches of a reader. Raises ContentError or TransferError."""
        step = partial(next, reader, None)
        while (batch := self._wait(step, str(self.query), ContentError)) is not None:
            yield batch


def _reason(error: Exception) -> str:
    """Return the words of a driver in one line, without the query and the class of the error."""
    text = re.split(r"\n+[Qq]uery(?: was)?: ", str(error))[0]
    words = re.sub(r"^[A-Z_]+: |^ *\^+ *$", "", text, flags=re.MULTILINE).split()
    return " ".join(words) or type(error).__name__
