"""Databases: the rows that a query selects, and tables of predictions (extra `sql`).

All databases are read and written through ADBC, Arrow's interface of databases, with a driver for
each. What follows after their record batches is the code of tables.
"""

from __future__ import annotations

import importlib
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, BinaryIO, TypeVar, cast
from urllib.parse import quote

from randsvm import files
from randsvm.data.chunks import spill_name, spill_stream, writing
from randsvm.data.columns import Frame
from randsvm.errors import (
    ContentError,
    InputError,
    OutputError,
    ParameterError,
    RandsvmError,
    SpillError,
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
# Bytes that a thread of DuckDB needs to sort: with fewer it is out of memory.
THREAD_BYTES = 1 << 27
# The messages of drivers about a device or a connection that fails; others are about the query.
LOST = re.compile("FATAL:|server closed|could not (?:send|receive)|I/?O error", re.IGNORECASE)
# Texts, names and comments of queries, in which a semicolon ends no statement.
PASSAGES = {
    "sqlite": r"'[^']*'|\"[^\"]*\"|`[^`]*`|\[[^]]*]|--[^\n]*|/\*.*?(?:\*/|$)",
    "postgresql": r"\bE'(?:\\.|[^'\\])*'|'[^']*'|\"[^\"]*\"|(\$\w*\$).*?\1|--[^\n]*|/\*.*?\*/",
}
TYPE_HINT = f" (a column has the type of its first {BATCH_ROWS:,} values: CAST it in the query)"


class Query(Frame):
    """The rows that a query selects, where functions expect the path of a file.

    Its text is the URL of the database without a password.

    url : with the password; driver : duckdb, sqlite or postgresql; path : the file of the database,
    empty in memory; None: it is on a server; types : of the columns by name, as pyarrow has them,
    once the rows were opened; memory : bytes that DuckDB may take; None: it decides
    """

    url: str
    sql: str
    driver: str
    path: str | None
    types: Mapping[str, Any]
    memory: int | None = None

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
        # DuckDB executes all statements, and the last one selects the rows. SQLite would ignore all
        # but the first one.
        if passages := PASSAGES.get(self.driver):
            rest = re.sub(passages, " ", self.sql, flags=re.DOTALL | re.IGNORECASE)
            if len(list(filter(str.strip, rest.split(";")))) > 1:
                raise ContentError(f"{self}: expected one statement in --sql, found several")
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

    connection, statement : of the driver, the last statement; handles : what is closed at the end,
    in reverse; busy : whether a call has not returned; left : whether the context has ended
    """

    connection: Any = None
    statement: Any = None
    busy = left = False

    def __init__(self, query: Query, writes: bool = False) -> None:
        self.query, self.writes = query, writes
        self.handles: list[Any] = []

    def __enter__(self) -> _Session:
        query = self.query
        if query.path:
            # Drivers create a file that is missing.
            with files.open_input(query.path):
                pass
        try:
            # Its module `dbapi` would import pandas and polars where they are installed.
            adbc = importlib.import_module("adbc_driver_manager")
            driver = importlib.import_module(f"adbc_driver_{query.driver}")
        except ImportError as error:
            package = "duckdb" if query.driver == "duckdb" else f"adbc-driver-{query.driver}"
            packages = f"pyarrow adbc-driver-manager {package}"
            problem = f"{query} needs a driver (pip install {packages}): {error}"
            raise ParameterError(problem) from error
        connect = partial(self._connect, adbc, driver)
        try:
            self._wait(connect, f"cannot open {query}", InputError)
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._leave()

    def _leave(self) -> None:
        self.left = True
        if self.busy:
            # This thread has stopped waiting. The thread of the call closes the database.
            with suppress(Exception):
                self.statement.cancel()
        else:
            self._close()

    def _close(self) -> None:
        while self.handles:
            with suppress(Exception):
                self.handles.pop().close()

    def _connect(self, adbc: Any, driver: Any) -> None:
        how = self._options(driver)
        self.handles.append(adbc.AdbcDatabase(**how))
        self.connection = adbc.AdbcConnection(self.handles[-1])
        self.handles.append(self.connection)
        # What is not committed is undone.
        self.connection.set_autocommit(False)
        self.new_statement = partial(adbc.AdbcStatement, self.connection)
        if self.query.driver == "sqlite":
            # SQLite reads the file when it needs it.
            self._statement().set_sql_query("PRAGMA schema_version")
            self.statement.execute_update()

    def _statement(self) -> Any:
        self.statement = self.new_statement()
        self.handles.append(self.statement)
        return self.statement

    def _options(self, driver: Any) -> dict[str, str]:
        """Return the options of the driver for this database."""
        path = self.query.path
        if self.query.driver == "duckdb":
            how = {"driver": driver.driver_path(), "entrypoint": "duckdb_adbc_init"}
            if path:
                how |= {"path": path, "access_mode": f"READ_{'WRITE' if self.writes else 'ONLY'}"}
            if self.query.memory is not None:
                threads = max(1, min(os.cpu_count() or 1, self.query.memory // THREAD_BYTES))
                how |= {"memory_limit": f"{self.query.memory}B", "threads": f"{threads}"}
            # A file that is only read has no folder of its own for sorts.
            how["temp_directory"] = tempfile.gettempdir()
            return how
        uri = self.query.url
        if path is not None:
            mode = "rw" if self.writes else "ro"
            uri = f"file:{quote(path)}?mode={mode}" if path else ":memory:"
        return {"driver": driver._driver_path(), "uri": uri}

    def _wait(self, work: Callable[[], Result], words: str, kind: type[RandsvmError]) -> Result:
        """Return work(). Raise an error of the driver as one of this kind, after some words.

        If the connection is lost, it is a TransferError.
        """

        def call() -> Result:
            try:
                return work()
            except Exception as error:
                reason = _reason(error)
                if kind is not InputError and LOST.search(reason):
                    verb = "reading " if kind is ContentError else ""
                    raise TransferError(f"{verb}{words}: {reason}") from error
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
        import pyarrow

        def rows() -> Any:
            statement = self._statement()
            statement.set_options(**BATCHES[self.query.driver])
            # PostgreSQL has the query in parentheses, which a comment at its end would hide.
            statement.set_sql_query(sql.rstrip().rstrip(";") + "\n")
            reader = pyarrow.RecordBatchReader.from_stream(statement.execute_query()[0])
            self.handles.append(reader)
            return reader

        return self._wait(rows, str(self.query), ContentError)

    def fill(self, folder: str, name: str, rows: Any, empty: str | None, words: str) -> None:
        """Write rows into a new table, or after the statement `empty` into an old one.

        Raises OutputError, which begins with `words`, or TransferError; the table is as before.
        """

        def fill() -> None:
            if empty is not None:
                self._statement().set_sql_query(empty)
                self.statement.execute_update()
            mode = "create" if empty is None else "append"
            how = {"target_table": name, "mode": f"adbc.ingest.mode.{mode}"}
            how |= {"target_db_schema": folder} if folder else {}
            statement = self._statement()
            statement.set_options(**{f"adbc.ingest.{key}": one for key, one in how.items()})
            statement.bind_stream(rows)
            statement.execute_update()
            self.connection.commit()

        self._wait(fill, words, OutputError)

    def batches(self, reader: Any) -> Iterator[Any]:
        """Yield the batches of a reader. Raises ContentError or TransferError."""
        step = partial(next, reader, None)
        while (batch := self._wait(step, str(self.query), ContentError)) is not None:
            yield batch


@contextmanager
def filled_table(
    query: Query, table: str, kept: Sequence[str], predicted: Mapping[str, str]
) -> Iterator[BinaryIO]:
    """Yield a stream for rows of CSV with a header. If the block ends without an error, they become
    the rows of a table of the database, in one transaction.

    kept : columns with the types of the query; predicted : the types of the others by name. An old
    table with these columns gets these rows in place of its own.

    Raises OutputError for an old table with other columns, and if the table cannot be written.
    """
    import pyarrow
    import pyarrow.csv

    words, columns = f"cannot write the table {table} of {query}", [*kept, *predicted]
    if query.path == "":
        raise ParameterError("--into needs a database in a file or on a server")
    if len(set(columns)) < len(columns):
        raise ParameterError(f"--into: expected different columns, found {','.join(columns)}")
    folder, _, name = table.rpartition(".")
    quoted_name = ".".join('"' + one.replace('"', '""') + '"' for one in (folder, name) if one)
    old = None
    with _Session(query) as session, suppress(ContentError):
        old = session.execute(f"SELECT * FROM {quoted_name} LIMIT 0").schema.names
    if old is not None and old != columns:
        problem = f"it exists and has the columns {','.join(old)}, not {','.join(columns)}"
        raise OutputError(f"{words}: {problem}")
    stream, where = spill_stream(None)
    with stream:
        with writing(spill_name(where), SpillError):
            yield stream
            stream.seek(0)
        types = {one: query.types[one] for one in kept}
        types |= {one: pyarrow.type_for_alias(kind) for one, kind in predicted.items()}
        plain = {one: getattr(kind, "storage_type", kind) for one, kind in types.items()}
        # pyarrow's reader of CSV has no enumerations: their texts are written.
        plain = {one: getattr(kind, "value_type", kind) for one, kind in plain.items()}
        rows = pyarrow.csv.open_csv(
            stream,
            parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=plain,
                include_columns=columns,
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
        with _Session(query, writes=True) as session:
            session.fill(folder, name, rows, f"DELETE FROM {quoted_name}" if old else None, words)


def _reason(error: Exception) -> str:
    """Return the words of a driver in one line, without the query and the class of the error."""
    text = re.split(r"\n+[Qq]uery(?: was)?: ", str(error))[0]
    words = re.sub(r"^[A-Z_]+: |^ *\^+ *$", "", text, flags=re.MULTILINE).split()
    return " ".join(words) or type(error).__name__
