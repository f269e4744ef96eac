"""Test databases: a query trains, predicts and fails as the Parquet file of the same table does."""

import json
import re
import sqlite3
import time

import numpy as np
import pandas as pd
import pytest
from databases import Server, duckdb_file, sqlite_file
from test_parquet import SVM
from test_table import census

import randsvm
from randsvm.errors import (
    ContentError,
    DataError,
    OutOfTimeError,
    OutputError,
    ParameterError,
    RandsvmError,
    TransferError,
)
from randsvm.events import Progress
from randsvm.parameters.run import PredictParams

for module in ("duckdb", "adbc_driver_manager", "adbc_driver_sqlite", "adbc_driver_postgresql"):
    pytest.importorskip(module)

KINDS = ["duckdb", "sqlite", "postgresql"]


@pytest.fixture(scope="session")
def server():
    running = Server()
    yield running
    running.close()


@pytest.fixture
def database(tmp_path, request):
    """database("duckdb", t=frame): write tables; return the URL of their database."""

    def write(kind, **tables):
        if kind == "postgresql":
            server = request.getfixturevalue("server")
            for name, frame in tables.items():
                server.write(frame, name)
            return server.url()
        of_file = duckdb_file if kind == "duckdb" else sqlite_file
        return of_file(tmp_path / f"{kind}.db", **tables)

    return write


def rows_with_gaps(n, seed=0):
    """Return a table with missing numbers and texts, and a column of booleans."""
    frame = census(n, seed)
    frame.loc[::7, "hours"] = np.nan
    frame.loc[::5, "country"] = None
    return frame.assign(married=frame.age % 3 == 0)


def without_source(path):
    """Return the lines of a model that do not name where its rows came from."""
    text = re.sub(r"# randsvm database .*\n", "", path.read_text())
    text = re.sub(r"--sql '[^']*'", "--format parquet", text)
    # Options are in the order of their help.
    return [line for line in text.splitlines() if "sha256" not in line]


@pytest.mark.parametrize("kind", KINDS)
def test_the_model_and_the_predictions_are_those_of_the_table_as_a_file(tmp_path, database, kind):
    frame, test = rows_with_gaps(600), rows_with_gaps(200, seed=1)
    if kind == "sqlite":  # has no booleans
        frame, test = (one.assign(married=one.married.astype(int)) for one in (frame, test))
    url = database(kind, people=frame, others=test.drop(columns="income"))
    frame.to_parquet(tmp_path / "people.parquet")
    test.drop(columns="income").to_parquet(tmp_path / "others.parquet")
    options = {"missing": "mean", "scale": "minmax", **SVM}
    randsvm.train(tmp_path / "people.parquet", tmp_path / "file.model", **options)
    sql = "SELECT * FROM people ORDER BY id"
    found = randsvm.train(url, tmp_path / "sql.model", sql=sql, **options)
    expected = without_source(tmp_path / "file.model")
    assert without_source(tmp_path / "sql.model") == expected
    assert sql in found.info()["configuration"]
    params = {"scores": True, "keep": "id,country,married"}
    files = tmp_path / "others.parquet", tmp_path / "file.model", tmp_path / "file.csv"
    randsvm.predict(*files, params=PredictParams(**params))
    params["sql"] = "SELECT * FROM others ORDER BY id"
    randsvm.predict(
        url, tmp_path / "sql.model", tmp_path / "sql.csv", params=PredictParams(**params)
    )
    assert (tmp_path / "sql.csv").read_text() == (tmp_path / "file.csv").read_text()
    # The model of a query reads files, and that of a file a query.
    randsvm.predict(tmp_path / "others.parquet", tmp_path / "sql.model", tmp_path / "out")
    params["keep"] = None
    randsvm.predict(url, tmp_path / "file.model", tmp_path / "out", params=PredictParams(**params))


def test_linear_models_regressions_and_updates_read_queries(tmp_path, database):
    url = database("duckdb", people=census(500))
    sql = "SELECT age, hours, education, gain / 1000 AS gain FROM people"
    options = {"sql": sql, "label_column": "gain", "task": "svr", "C": 0.01}
    assert randsvm.train(url, gamma=0.1, **options).gap <= 0.001
    options = {"sql": "SELECT * FROM people", "label_column": "income", "ignore_columns": "id"}
    randsvm.train(url, tmp_path / "m", algorithm="sgd", epochs=2, **options)
    updated = randsvm.train(
        url, tmp_path / "u", algorithm="sgd", update=tmp_path / "m", sql="SELECT * FROM people"
    )
    assert updated.model.metadata.n == 1000


# The type of a column in the database -> its texts as features, or None for a number.
TYPES = {
    "duckdb": {
        "CAST(i AS TINYINT)": None,
        "CAST(i AS HUGEINT)": None,
        "CAST(i AS FLOAT) / 2": None,
        "CAST(i AS DECIMAL(9, 2))": None,
        "CASE WHEN i > 1 THEN i END": None,
        "CASE WHEN i > 1 THEN CAST(i AS DOUBLE) ELSE 'nan' END": None,
        "i % 2 = 0": ["false", "true"],
        "'w' || (i % 2)": ["w0", "w1"],
        "CAST('a' || (i % 2) AS ENUM('a1', 'a0'))": ["a0", "a1"],
    },
    "sqlite": {
        "i": None,
        "i / 2.0": None,
        "CASE WHEN i > 1 THEN i END": None,
        "'w' || (i % 2)": ["w0", "w1"],
    },
    "postgresql": {
        "i::smallint": None,
        "i::bigint": None,
        "i::real / 2": None,
        "i::numeric / 4": None,
        "CASE WHEN i > 1 THEN i ELSE 'NaN'::numeric END": None,
        "CASE WHEN i > 1 THEN i ELSE 'NaN'::float8 END": None,
        "CASE WHEN i > 1 THEN i END": None,
        "i % 2 = 0": ["false", "true"],
        "('w' || (i % 2))::varchar(9)": ["w0", "w1"],
        "('w' || (i % 2))::char(5)": ["w0", "w1"],
    },
}
SERIES = {
    "duckdb": "(SELECT range AS i FROM range(40))",
    "sqlite": "(WITH RECURSIVE s(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM s LIMIT 40) "
    "SELECT i FROM s)",
    "postgresql": "(SELECT i FROM generate_series(0, 39) AS s(i))",
}


def of_kind(request, tmp_path, kind):
    """Return the URL of a database without tables, and a subquery with i of 0 to 39."""
    if kind == "postgresql":
        return request.getfixturevalue("server").url(), SERIES[kind]
    if kind == "sqlite":
        sqlite3.connect(tmp_path / "empty.db").execute("VACUUM").connection.close()
        return f"sqlite:///{tmp_path / 'empty.db'}", SERIES[kind]
    return "duckdb://", SERIES[kind]


@pytest.mark.parametrize(
    ("kind", "column"), [(kind, column) for kind in KINDS for column in TYPES[kind]]
)
def test_a_type_of_the_database_is_a_number_or_categories(request, tmp_path, kind, column):
    url, series = of_kind(request, tmp_path, kind)
    sql = f"SELECT {column} AS c, i AS x, i % 3 AS y FROM {series} AS rows ORDER BY i -- all rows"
    found = randsvm.train(url, sql=sql, label_column="y", missing="mean", gamma=1)
    categories = TYPES[kind][column]
    assert found.model.columns.columns[0].categories == (categories and tuple(categories))


def test_decimals_of_a_database_are_the_numbers_that_their_texts_are(tmp_path):
    # One in seven decimals with two digits is not the nearest number to its digits / 100.
    sql = "SELECT CAST(i * 0.07 - 92.82 AS DECIMAL(10, 2)) AS c, i % 2 AS y FROM range(400) AS s(i)"
    texts = (f"{(7 * i - 9282) / 100:.2f},{i % 2}" for i in range(400))
    (tmp_path / "t.csv").write_text("\n".join(["c,y", *texts, ""]))
    kept = tmp_path / "of_query", tmp_path / "of_csv"
    options = {"label_column": "y", "gamma": 1}
    randsvm.train("duckdb://", sql=sql, keep_rows=kept[0], **options)
    randsvm.train(tmp_path / "t.csv", keep_rows=kept[1], **options)
    assert kept[0].read_text() == kept[1].read_text()


@pytest.mark.parametrize(
    ("kind", "column", "message"),
    [
        (
            "duckdb",
            "DATE '2020-01-01'",
            r"duckdb://:1:1: .*column 'c', found the type date32",
        ),
        ("duckdb", "[i]", r"found the type list<.*--ignore-columns leaves it out"),
        ("postgresql", "now()", r"found the type timestamp\[us, tz=UTC\]"),
        ("postgresql", "gen_random_uuid()", "found the type fixed_size_binary"),
        ("duckdb", "CAST(i AS DOUBLE) / 0", "expected a finite number within float32"),
        ("duckdb", "CASE WHEN i = 3 THEN NULL ELSE i END", ":4:1: .* 'c', found none"),
        ("postgresql", "CASE WHEN i = 3 THEN 'NaN'::float8 ELSE i END", ":4:1: .* 'c', found nan"),
        ("sqlite", "CASE WHEN i > 0 THEN 'a' ELSE i END", ":2:1: .*'c', which has 1 number"),
    ],
)
def test_values_without_features_are_refused_with_their_place(
    request, tmp_path, kind, column, message
):
    url, series = of_kind(request, tmp_path, kind)
    sql = f"SELECT {column} AS c, i AS x, i % 3 AS y FROM {series} AS rows ORDER BY i"
    with pytest.raises(DataError, match=message):
        randsvm.train(url, sql=sql, label_column="y", gamma=1)


BAD_SQL = {
    "SELECT * FROM nothing": "nothing",
    "SELEC 1": "SELEC",
    "SELECT i, CAST('w' AS INTEGER) AS y FROM {}": "w",
    "SELECT i, 1 / (39 - i) AS y FROM {}": "zero",
}


@pytest.mark.parametrize(
    ("kind", "sql"),
    [
        *((kind, sql) for kind in KINDS for sql in [*BAD_SQL][:2]),
        ("duckdb", [*BAD_SQL][2]),
        *(("postgresql", sql) for sql in [*BAD_SQL][2:]),
    ],
)
def test_an_error_of_the_query_is_one_line(request, tmp_path, command, kind, sql):
    url, series = of_kind(request, tmp_path, kind)
    words = "--label-column", "y", "--sql", sql.format(f"{series} AS rows")
    ended = command("train", *words, url, "model")
    assert ended.returncode == 65
    assert ended.stderr.startswith("randsvm-train: ") and ended.stderr.count("\n") == 1
    assert BAD_SQL[sql] in ended.stderr
    assert not (tmp_path / "model").exists()


# The ends of queries, and whether more than one statement is in them.
ENDS = {
    "; SELECT 1": True,
    ";\n-- ;\nSELECT 1;": True,
    ";": False,
    " -- the end; of all": False,
    """ WHERE ';' <> 'it''s;' AND "hours" > -1 /* ; */""": False,
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_query_is_one_statement_but_in_duckdb(database, kind, end):
    frame = census(50)
    url, sql = database(kind, people=frame), f"SELECT * FROM people{end}"
    if kind == "duckdb" and ENDS[end]:
        sql = f"SELECT 1; {sql.partition(';')[0]}"
    elif ENDS[end]:
        with pytest.raises(ContentError, match="expected one statement in --sql, found several"):
            randsvm.train(url, sql=sql, label_column="income")
        return
    assert randsvm.train(url, sql=sql, label_column="income", gamma=1).model.metadata.n == 50


@pytest.mark.parametrize(
    ("kind", "column"),
    [("sqlite", "`a;'b` AS a"), ("sqlite", '[a;"b] AS a'), ("postgresql", r"E'\';' AS a"),
     ("postgresql", "$t$ ; ' $$ $t$ AS a")],
)  # fmt: skip
def test_semicolons_in_names_and_texts_end_no_statement(database, kind, column):
    frame = census(50).assign(**{"a;'b": 1, 'a;"b': 2})
    url, sql = database(kind, people=frame), f"SELECT {column}, age, income FROM people"
    assert randsvm.train(url, sql=sql, label_column="income", gamma=1).model.metadata.n == 50


def test_sqlite_names_a_type_that_changes_below_the_first_rows(tmp_path):
    url = sqlite_file(tmp_path / "t.db", t=pd.DataFrame({"i": range(40_000)}))
    sql = "SELECT CASE WHEN i < 39999 THEN i ELSE 0.5 END AS x, i % 2 AS y FROM t"
    with pytest.raises(ContentError, match=r"column 0.* CAST it in the query"):
        randsvm.train(url, sql=sql, label_column="y")


@pytest.mark.parametrize("kind", ["duckdb", "sqlite"])
def test_a_file_that_cannot_be_opened_ends_with_66_and_is_not_created(tmp_path, command, kind):
    words = "--label-column", "y", "--sql", "SELECT 1 AS y"
    assert command("train", *words, f"{kind}:///missing.db", "m").returncode == 66
    assert not (tmp_path / "missing.db").exists()
    (tmp_path / "text.db").write_text("no database " * 100)
    ended = command("train", *words, f"{kind}:///text.db", "m")
    assert ended.returncode == 66 and ended.stderr.count("\n") == 1


@pytest.mark.parametrize("kind", ["duckdb", "sqlite"])
def test_a_query_cannot_change_the_database(database, tmp_path, kind):
    url = database(kind, people=census(50))
    before = (tmp_path / f"{kind}.db").read_bytes()
    with pytest.raises(ContentError, match=r"read.?only"):
        randsvm.train(url, sql="DELETE FROM people", label_column="income")
    assert (tmp_path / f"{kind}.db").read_bytes() == before


def test_a_server_keeps_its_rows_after_a_query_that_deletes_them(server):
    server.write(census(50), "kept")
    with pytest.raises(RandsvmError):
        randsvm.train(server.url(), sql="DELETE FROM kept", label_column="income")
    found = randsvm.train(server.url(), sql="SELECT * FROM kept", label_column="income", gamma=1)
    assert found.model.metadata.n == 50


@pytest.mark.parametrize("kind", KINDS)
def test_other_commands_read_queries(tmp_path, database, kind, command):
    frame = census(300)
    url = database(kind, people=frame)
    frame.to_parquet(tmp_path / "people.parquet")
    model, sql = tmp_path / "m", ["--sql", "SELECT * FROM people"]
    randsvm.train(tmp_path / "people.parquet", model, scale="minmax", **SVM)
    outputs = []
    for name, data, given in (("file", tmp_path / "people.parquet", []), ("query", url, sql)):
        found = [
            command("predict", "certify", "--report", "json", *given, data, model),
            command("predict", "explain", "--report", "json", *given, data, model, tmp_path / name),
            command(
                "predict",
                "export",
                "c",
                "--report",
                "json",
                *given,
                "--data",
                data,
                model,
                tmp_path / "c",
            ),
        ]
        numbers = [
            [json.loads(one.stdout)[field] for field in fields]
            for one, fields in zip(
                found, (("primal", "dual", "gap"), ("rows",), ("rows",)), strict=True
            )
        ]
        outputs.append((numbers, (tmp_path / name).read_text()))
    assert outputs[0] == outputs[1]


# ---- servers ------------------------------------------------------------------------------------


def test_a_wrong_password_ends_with_66(server, command):
    words = "--label-column", "y", "--sql", "SELECT 1 AS y"
    for url in (server.url("wr0ng"), server.url().replace("?host=/", "?host=/no/")):
        ended = command("train", *words, url, "m")
        assert ended.returncode == 66
        assert ended.stderr.startswith("randsvm-train: cannot open postgresql://tester@/postgres")
        assert ended.stderr.count("\n") == 1 and "wr0ng" not in ended.stderr


def test_the_password_is_in_no_file_and_no_message(server, tmp_path, command):
    server.write(census(300), "people")
    words = "--sql", "SELECT * FROM people", "--label-column", "income", "--ignore-columns", "id"
    for password in ("", "&password=s3cret/w@rd"):
        url = server.url()
        if password:
            url = url.replace(f":{url.split(':')[2].split('@')[0]}@", "@") + password
        outputs = "--log", "log", "--html", "page.html", "--certificate", "proof"
        trained = command("train", *words, *outputs, "-g", "0.1", "--report", "json", url, "model")
        assert trained.returncode == 0, trained.stderr
        predicted = command("predict", *words[:2], "--report", "json", url, "model", "out")
        assert predicted.returncode == 0, predicted.stderr
        failed = command("train", *words, "--log", "log", url, "proof")
        assert failed.returncode == 73
        shown = command("predict", "info", "model")
        assert (
            f"database         postgresql://tester@/postgres?host={server.folder}" in shown.stdout
        )
        assert json.loads(predicted.stdout)["data"].startswith(
            "postgresql://tester@/postgres?host="
        )
        texts = [one.stdout + one.stderr for one in (trained, predicted, failed, shown)]
        texts += [path.read_bytes().decode("latin-1") for path in tmp_path.iterdir()]
        for text in texts:
            assert "s3cret" not in text and "w@rd" not in text and "w%40rd" not in text


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:se@cret@host/db",
        "postgresql://u:se/cret@host/db",
        "postgresql://u:cret",
        "postgresql://u:%zzcret@host/db",
        "postgresql://u:cret%00@host/db",
        "postgresql://host:cret/db",
        "postgresql://u:se?cret@host",
        "postgresql://u@host/db?password=%1cret",
        "mysql://u:cret@host/db",
        "cret",
    ],
)
def test_a_url_that_libpq_would_misread_is_refused_without_its_text(command, tmp_path, url):
    words = "--sql", "SELECT 1 AS y", "--label-column", "y", "--log", "log"
    for ended in (command("train", *words, url, "m"), command("train", *words[-2:], url, "m")):
        assert ended.returncode in (2, 66) and ended.stderr.count("\n") == 1
        texts = [ended.stderr, *(path.read_text() for path in tmp_path.iterdir())]
        assert url == "cret" or not any("cret" in text for text in texts)


def test_a_server_that_dies_while_rows_are_read_leaves_the_old_model(server, tmp_path):
    server.write(census(300), "people")
    model, killed = tmp_path / "model", []
    randsvm.train(server.url(), model, sql="SELECT * FROM people", **SVM)
    before = model.read_bytes()

    def watch(event):
        if isinstance(event, Progress) and event.stage == "reading" and not killed:
            killed.append(event.done)
            server.stop()

    sql = "SELECT i % 2 AS y, i AS x FROM generate_series(1, 30000000) AS s(i)"
    try:
        with pytest.raises(TransferError, match=r"reading postgresql://tester@/.*server closed"):
            randsvm.train(server.url(), model, sql=sql, label_column="y", watch=watch)
    finally:
        server.start()
    assert killed and model.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_the_time_limit_ends_a_query_that_does_not(server):
    sql = "SELECT pg_sleep(600)::text AS y, 1 AS x"
    with pytest.raises(OutOfTimeError):
        randsvm.train(server.url(), sql=sql, label_column="y", time_limit=2)
    # The server ends it, too.
    sql = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' "
    sql += "AND query LIKE '%pg_sleep' || '(600)%'"
    deadline = time.monotonic() + 10
    while rows_of("postgresql", server.url(), f"({sql}) AS one")[1] != [(0,)]:
        assert time.monotonic() < deadline
        time.sleep(0.05)


# ---- tables of predictions ---------------------------------------------------------------------


def rows_of(kind, url, table):
    """Return the columns, the types and the rows of a table, read by the program's own library."""
    if kind == "duckdb":
        import duckdb

        with duckdb.connect(url.removeprefix("duckdb:///")) as connection:
            found = connection.execute(f"SELECT * FROM {table} ORDER BY 1")
            return [one[0] for one in found.description], found.fetchall()
    if kind == "sqlite":
        connection = sqlite3.connect(url.removeprefix("sqlite:///"))
        found = connection.execute(f"SELECT * FROM {table} ORDER BY 1")
        rows = [one[0] for one in found.description], found.fetchall()
        connection.close()
        return rows
    from adbc_driver_postgresql import dbapi

    with dbapi.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {table} ORDER BY 1")
        return [one[0] for one in cursor.description], cursor.fetchall()


def execute(kind, url, statement):
    """Execute a statement by the program's own library."""
    path = url.partition(":///")[2]
    if kind == "duckdb":
        import duckdb

        with duckdb.connect(path) as connection:
            connection.execute(statement)
    elif kind == "sqlite":
        connection = sqlite3.connect(path)
        connection.execute(statement)
        connection.commit()
        connection.close()
    else:
        from adbc_driver_postgresql import dbapi

        with dbapi.connect(url, autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute(statement)


def people(n):
    """Return rows whose keys are texts and days, which a file of CSV would not keep apart."""
    frame = census(n)
    frame["name"] = [f"{i:04d}" if i % 7 else f'a "b",\nc{i}' for i in range(n)]
    return frame.assign(born=pd.date_range("2001-01-01", periods=n).date)


@pytest.mark.parametrize("kind", KINDS)
def test_predictions_become_a_table_or_replace_its_rows(database, tmp_path, kind):
    frame = people(300)
    url, model = database(kind, people=frame), tmp_path / "model"
    options = {"label_column": "income", "ignore_columns": "id,name,born", "gamma": 0.1, "C": 1}
    sql = "SELECT * FROM people"
    trained = randsvm.train(url, model, sql=sql, **options)
    labels = trained.predict(frame.drop(columns="income"))
    scores = trained.decision_function(frame)
    execute(kind, url, 'DROP TABLE IF EXISTS "old table"')
    words = {"sql": f"{sql} WHERE id < 200", "into": "old table"}
    randsvm.predict(url, model, params=PredictParams(keep="id,name,born", **words))
    names, rows = rows_of(kind, url, '"old table"')
    assert names == ["id", "name", "born", "label"]
    days = frame.born if kind != "sqlite" else frame.born.map(str)
    expected = list(zip(frame.id, frame.name, days, labels, strict=True))
    assert rows == expected[:200]
    # The rows are replaced, and what else is known of the table stays.
    if kind != "duckdb":
        execute(kind, url, 'CREATE INDEX own_index ON "old table" (id)')
    words["sql"] = f"{sql} WHERE id >= 100"
    randsvm.predict(url, model, params=PredictParams(keep="id,name,born", **words))
    assert rows_of(kind, url, '"old table"')[1] == expected[100:]
    with pytest.raises(OutputError, match="it exists and has the columns id,name,born,label, not"):
        randsvm.predict(url, model, params=PredictParams(keep="id", **words))
    words |= {"into": "scores", "sql": sql}
    execute(kind, url, "DROP TABLE IF EXISTS scores")
    randsvm.predict(url, model, params=PredictParams(keep="id", scores=True, **words))
    names, rows = rows_of(kind, url, "scores")
    assert names == ["id", "score"]
    assert np.allclose([score for _, score in rows], scores, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_a_prediction_that_fails_leaves_the_old_rows(database, tmp_path, kind):
    url, model = database(kind, people=census(300)), tmp_path / "model"
    options = {"label_column": "income", "ignore_columns": "id", "gamma": 0.1, "C": 1}
    randsvm.train(url, model, sql="SELECT * FROM people", **options)
    # The last rows break a rule of the table, when all others are in it.
    execute(kind, url, "DROP TABLE IF EXISTS kept")
    texts = {"duckdb": "VARCHAR", "sqlite": "TEXT", "postgresql": "TEXT"}[kind]
    rule = f"CREATE TABLE kept (id BIGINT CHECK (id < 290), label {texts})"
    execute(kind, url, rule)
    params = {"keep": "id", "into": "kept"}
    sql = "SELECT * FROM people WHERE id < 100"
    randsvm.predict(url, model, params=PredictParams(sql=sql, **params))
    before = rows_of(kind, url, "kept")
    assert len(before[1]) == 100
    with pytest.raises(OutputError, match="cannot write the table kept of"):
        randsvm.predict(url, model, params=PredictParams(sql="SELECT * FROM people", **params))
    assert rows_of(kind, url, "kept") == before
    # A row that has no prediction.
    bad = "SELECT id, CASE WHEN id = 299 THEN NULL ELSE age END AS age, workclass, education, "
    bad += "gain, hours, country FROM people ORDER BY id"
    with pytest.raises(DataError, match=":300:2:"):
        randsvm.predict(url, model, params=PredictParams(sql=bad, **params))
    assert rows_of(kind, url, "kept") == before


def test_a_table_of_a_schema_gets_whole_numbers_as_labels(server, tmp_path):
    server.execute("CREATE SCHEMA IF NOT EXISTS results", "DROP TABLE IF EXISTS results.found")
    url, model = server.url(), tmp_path / "model"
    sql = "SELECT i::numeric / 8 AS key, i AS x, i % 2 AS y FROM generate_series(0, 49) AS s(i)"
    options = {"label_column": "y", "ignore_columns": "key", "gamma": 10, "C": 10}
    randsvm.train(url, model, sql=sql, **options)
    params = PredictParams(sql=sql, into="results.found", keep="key,x")
    randsvm.predict(url, model, params=params)
    names, rows = rows_of("postgresql", url, "results.found")
    assert names == ["key", "x", "label"] and len(rows) == 50
    assert all(label == x % 2 for _, x, label in rows)


@pytest.mark.parametrize("kind", KINDS)
def test_words_for_missing_values_are_texts_in_a_table_of_predictions(database, tmp_path, kind):
    words = ["NA", "null", "nan", "#N/A", None]
    table = pd.DataFrame({"word": words * 8, "x": np.arange(40) % 5 * 1.0})
    url = database(kind, words=table.assign(y=table.word.fillna("NULL")))
    options = {"label_column": "y", "ignore_columns": "word", "gamma": 1, "C": 100}
    randsvm.train(url, tmp_path / "model", sql="SELECT * FROM words", **options)
    execute(kind, url, "DROP TABLE IF EXISTS said")
    params = PredictParams(sql="SELECT * FROM words", into="said", keep="word")
    randsvm.predict(url, tmp_path / "model", params=params)
    expected = {(one, one or "NULL") for one in words}
    assert set(map(tuple, rows_of(kind, url, "said")[1])) == expected


def test_keys_of_a_database_come_back_as_they_are(tmp_path):
    import duckdb

    path = tmp_path / "keys.duckdb"
    texts = ["'  pad '", "''", "NULL", "'nan'", "'a,\"b'", "'\t'"]
    reals = ["'nan'::DOUBLE", "NULL", "0.1", "-1e300", "'inf'::DOUBLE", "92.82"]
    enums = ["'a'", "'b'", "NULL", "'b'", "'a'", "'b'"]
    rows = [
        f"({k}, {', '.join(row)}, {k % 2})"
        for k, row in enumerate(zip(texts, reals, enums, strict=True))
    ]
    with duckdb.connect(path) as connection:
        connection.execute("CREATE TYPE e AS ENUM ('a', 'b')")
        connection.execute("CREATE TABLE t (id INTEGER, word TEXT, r DOUBLE, e e, y INTEGER)")
        connection.execute(f"INSERT INTO t VALUES {', '.join(rows)}")
    sql, model = "SELECT id, word, r, e, y, id AS x FROM t", tmp_path / "model"
    options = {"label_column": "y", "ignore_columns": "id,word,r,e", "gamma": 1}
    randsvm.train(str(path), model, sql=sql, **options)
    for into, keys in (("found", "id,word,r,e"), ("words", "word"), ("enums", "e")):
        params = PredictParams(sql=sql, keep=keys, into=into)
        randsvm.predict(str(path), model, params=params)
        with duckdb.connect(path) as connection:
            found = connection.execute(f"SELECT {keys} FROM {into} ORDER BY ALL").fetchall()
            expected = connection.execute(f"SELECT {keys} FROM t ORDER BY ALL").fetchall()
        assert list(map(repr, found)) == list(map(repr, expected))


def test_a_table_needs_its_options(tmp_path, command, database):
    url, model = database("duckdb", people=census(60)), tmp_path / "model"
    options = {"label_column": "income", "ignore_columns": "id", "gamma": 0.1}
    randsvm.train(url, model, sql="SELECT * FROM people", **options)
    sql = "--sql", "SELECT * FROM people"
    for words, message in (
        ((*sql, "--into", "t"), "--into needs --keep"),
        (("--into", "t", "--keep", "id"), "--into is for the database of --sql"),
        (sql, "Missing argument 'OUTPUT_FILE'"),
        ((*sql, "--into", "t", "--keep", "age,age"), "expected different columns, found age,age,"),
    ):
        ended = command("predict", *words, url, "model")
        assert ended.returncode == 2 and message in ended.stderr
    ended = command("predict", *sql, "--into", "t", "--keep", "id", url, "model", "out")
    assert ended.returncode == 2 and "give one of OUTPUT_FILE and --into" in ended.stderr
    with pytest.raises(ParameterError, match="--into needs a database in a file or on a server"):
        params = PredictParams(sql="SELECT 1 AS x", into="t", keep="x")
        randsvm.predict("duckdb://", model, params=params)
    ended = command(
        "predict", *sql, "--into", "t", "--keep", "id", "--report", "json", url, "model"
    )
    assert ended.returncode == 0 and json.loads(ended.stdout)["output"] == "t"


# ---- options ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "csv"}, "give one of --sql and --format"),
        ({"no_header": True}, "--no-header is for CSV"),
        ({"delimiter": ";"}, "--delimiter is for CSV"),
        ({"label_column": None}, "--sql needs --label-column"),
        ({"cache": "cache"}, "--cache keeps what was parsed from a file"),
        ({"kernel": "precomputed"}, "-t precomputed reads svmlight files"),
    ],
)
def test_options_of_other_sources_are_refused(options, message):
    options = {"sql": "SELECT 1 AS y", "label_column": "y", **options}
    with pytest.raises(ParameterError, match=message):
        randsvm.train("duckdb://", **{key: one for key, one in options.items() if one is not None})


def test_a_query_reads_one_database_and_a_model_of_a_table(tmp_path, database):
    for data in (["a", "b"], randsvm.Arrays(np.eye(2), [0, 1])):
        with pytest.raises(ParameterError, match="--sql reads one database"):
            randsvm.train(data, sql="SELECT 1")
    model = tmp_path / "model"
    randsvm.train(randsvm.Arrays(np.eye(2), [0, 1]), model)
    params = PredictParams(sql="SELECT 1")
    with pytest.raises(ParameterError, match=r"--sql: .*model was trained without a table"):
        randsvm.predict("duckdb://", model, tmp_path / "out", params=params)
