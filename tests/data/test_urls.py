"""Test inputs behind URLs: the rows and models of the same files, and errors."""

import bz2
import gzip
import lzma

import numpy as np
import pytest
from test_table import SVM, census

import randsvm
from randsvm.errors import ContentError, DataError, InputError, TransferError

fsspec = pytest.importorskip("fsspec")

# The options of each format, for the columns of `census`.
TABLE = {"label_column": "income", "ignore_columns": "id"}
FORMATS = [{}, {**TABLE, "format": "csv"}, {**TABLE, "format": "parquet"}]


@pytest.fixture
def remote():
    """Return a function that writes a file in memory and returns its URL."""

    def write(name, content):
        with fsspec.open(f"memory://{name}", "wb") as stream:
            stream.write(content)
        return f"memory://{name}"

    yield write
    fsspec.filesystem("memory").store.clear()


@pytest.mark.parametrize("packed", [bytes, gzip.compress, lzma.compress])
def test_rows_of_a_url_train_and_predict_as_those_of_the_file(tmp_path, remote, packed):
    rng = np.random.default_rng(0)
    rows = b"".join(b"%d 1:%.3f 2:%.3f\n" % (i % 2, *rng.normal(i % 2, 1, 2)) for i in range(500))
    (tmp_path / "rows").write_bytes(rows)
    url = remote("rows.svm", packed(rows))
    randsvm.train(tmp_path / "rows", tmp_path / "m", **SVM)
    model = randsvm.train(url, tmp_path / "u", **SVM)
    head = [(tmp_path / name).read_text().partition("# randsvm")[0] for name in "mu"]
    assert head[0] == head[1]
    assert randsvm.predict(url, tmp_path / "m", tmp_path / "out").rows == 500
    # A model and weights may be URLs, too.
    loaded = randsvm.load(remote("model", (tmp_path / "m").read_bytes()))
    X = rng.normal(size=(9, 2))
    np.testing.assert_allclose(loaded.decision_function(X), model.decision_function(X), atol=1e-9)
    weights = remote("weights", b"1\n2\n" * 250)
    randsvm.train(url, row_weights=weights, **SVM)


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_tables_of_a_url_are_those_of_the_file(tmp_path, remote, form):
    frame, path = census(300), tmp_path / f"t.{form}"
    frame.to_csv(path, index=False) if form == "csv" else frame.to_parquet(path, index=False)
    options = {**SVM, "format": form, "label_column": "income", "ignore_columns": "id"}
    url = remote(path.name, path.read_bytes())
    for data, name in ((path, "m"), (url, "u")):
        randsvm.train(data, tmp_path / name, **options)
        randsvm.predict(data, tmp_path / name, tmp_path / f"{name}.out")
    assert (tmp_path / "m.out").read_bytes() == (tmp_path / "u.out").read_bytes()


def test_errors_name_the_url(tmp_path, remote):
    with pytest.raises(DataError, match=r"^memory://bad:2:3: expected"):
        randsvm.train(remote("bad", b"1 1:1\n2 x\n"))
    for url in ("memory://missing", "nothing://x"):
        with pytest.raises(InputError, match=f"cannot open {url}: ."):
            randsvm.train(url)


@pytest.mark.parametrize("packed", [bytes, gzip.compress, bz2.compress, lzma.compress])
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
    "error", [OSError("connection\nlost"), ValueError("connection lost"), TimeoutError(), OSError()]
)
def test_a_lost_connection_is_no_damaged_archive(monkeypatch, remote, packed, form, error):
    """Each file system raises its own errors, with or without a number."""
    url = remote("rows", packed(np.random.default_rng(0).bytes(100_000)))
    opened = fsspec.filesystem("memory").store["/rows"]
    read, calls = type(opened).readinto, []

    def lose(self, buffer):
        calls.append(len(buffer))
        if len(calls) > 1:
            raise error
        return read(self, buffer)

    monkeypatch.setattr(type(opened), "readinto", lose, raising=False)
    words = " ".join(str(error).split()) or type(error).__name__
    with pytest.raises(TransferError, match=f"^reading {url}: {words}$"):
        randsvm.train(url, **form)


@pytest.mark.parametrize("packed", [gzip.compress, bz2.compress, lzma.compress])
@pytest.mark.parametrize("form", FORMATS)
def test_damaged_archives_are_named(tmp_path, remote, packed, form):
    path = tmp_path / "data"
    if not form:
        path.write_bytes(b"".join(b"%d 1:%d\n" % (i % 2, i) for i in range(300)))
    elif form["format"] == "csv":
        census(300).to_csv(path, index=False)
    else:
        census(300).to_parquet(path, index=False)
    whole = packed(path.read_bytes())
    half = len(whole) // 2
    damaged = whole[:half] + bytes(20) + whole[half + 20 :]
    for content, problem in ((damaged, "damaged archive: "), (whole[:half], "expected the end ")):
        path.write_bytes(content)
        for name in (path, remote("rows", content)):
            with pytest.raises(ContentError, match=f"^{name}: {problem}"):
                randsvm.train(name, **form)
