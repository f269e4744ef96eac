"""Make and damage files for the readers, and check how each reader ends.

A case is the bytes of a file. The reader returns a result that an independent reader confirms, or
raises an error of one line with exit code 65. Every choice comes from one random.Random, so that a
seed repeats a case.
"""

import os
import random
import re
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import oracle
import svmlight_reference as reference
from commands import run_train
from fuzzing_commands import Lines, Logs
from liblinear import liblinearutil
from libsvm import svm, svmutil
from model_files import SEAL, resealed, rows_of
from scipy import sparse

from randsvm.arrays import squared_norms
from randsvm.data import dataset, svmlight
from randsvm.data.labels import LabelTable
from randsvm.data.svmlight import ParseOptions
from randsvm.errors import DataError, ModelError, ParameterError
from randsvm.files import encoded
from randsvm.models import libsvm_format, linear_model
from randsvm.models.kernel_model import KernelModel
from randsvm.models.linear_model import LinearModel
from randsvm.models.model import Model
from randsvm.models.model_text import load
from randsvm.parameters.run import Resources

# An error of one line: the place, and what was expected.
PLACED = re.compile(r"[^\n]*:[0-9]+:[0-9]+: expected [^\n]*, found [^\n]*")
PARSE_ERROR = re.compile(r"[^\n]*file(:[0-9]+){0,2}: expected [^\n]*")

Check = Callable[[bytes, random.Random], str]


# ---- damage -------------------------------------------------------------------------------------

WORDS = [
    b"\n", b"\r\n", b" ", b"\t", b"\0", b"\xff", b"\xef\xbb\xbf", b"\x0b", b"#", b":", b",", b"?",
    b"+", b"-", b"_", b".", b"0", b"1", b"9" * 50, b"2147483647", b"2147483648", b"-2147483648",
    b"18446744073709551617", b"1e38", b"3.5e38", b"1e-46", b"1e308", b"1e309", b"-1e999", b"1e-999",
    b"0x10", b"nan", b"inf", b"1:1 ", b"0:1 ", b"qid:1 ", b"e", b"1e", b"SV\n", b"w\n", b"rho 1\n",
    b"cost:2 ", b"cost:0 ", b"cost:",
    b"randsvm_model 2\n", b"randsvm_model 3\n", b"# randsvm ", b"# randsvm format 2\n",
]  # fmt: skip
NUMBER = re.compile(rb"[0-9.eE+-]+")


def damaged(content: bytes, chance: random.Random, words: Sequence[bytes] = WORDS) -> bytes:
    """Apply random edits: flip, cut, insert or repeat bytes, replace numbers, exchange lines."""
    for _ in range(chance.choice((1, 1, 1, 2, 3, 5))):
        content = chance.choice(EDITS)(content, chance, words)
    return content


def flip(content: bytes, chance: random.Random, words: Sequence[bytes]) -> bytes:
    changed = bytearray(content or b"\n")
    changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def cut_out(content: bytes, chance: random.Random, words: Sequence[bytes]) -> bytes:
    place = chance.randint(0, len(content))
    return content[:place] + content[place + chance.choice((1, 2, 10, 100)) :]


def cut_off(content: bytes, chance: random.Random, words: Sequence[bytes]) -> bytes:
    return content[: chance.randint(0, len(content))]


def put_in(content: bytes, chance: random.Random, words: Sequence[bytes]) -> bytes:
    place = chance.randint(0, len(content))
    return content[:place] + chance.choice(words) + content[place:]


def repeat(content: bytes, chance: random.Random, words: Sequence[bytes]) -> bytes:
    first, last = sorted(chance.randint(0, len(content)) for _ in range(2))
    return content[:last] + content[first:]


def renumber(content: bytes, chance: random.Random, words: Sequence[bytes]) -> bytes:
    found = list(NUMBER.finditer(content))
    if not found:
        return content
    first, last = chance.choice(found).span()
    return content[:first] + chance.choice(words) + content[last:]


def exchange(content: bytes, chance: random.Random, words: Sequence[bytes]) -> bytes:
    lines = content.splitlines(keepends=True) or [b""]
    i, j = (chance.randrange(len(lines)) for _ in range(2))
    lines[i], lines[j] = lines[j], lines[i]
    return b"".join(lines)


EDITS = (flip, cut_out, cut_off, put_in, put_in, repeat, renumber, renumber, exchange)


# ---- svmlight text ------------------------------------------------------------------------------

NUMBERS = (b"0.5", b"-3", b"+1e-3", b"7.", b".25", b"1e38", b"-0", b"123456789.123456789", b"1e-45")
LABELS = (b"1", b"-1", b"+1", b"1.0", b"2", b"spam", b"a-long-label", b"?", b"0.5")
LINE_ENDS = (b"\n", b"\n", b"\n", b"\r\n", b" \n", b" # x\n", b"\n\n")


def make_text(chance: random.Random) -> bytes:
    """Return rows that are legal, except that kinds of labels may be mixed, or damaged rows."""
    content = b"".join(_made_row(chance) for _ in range(chance.choice((1, 3, 10))))
    return damaged(content, chance) if chance.random() < 0.8 else content


def _made_row(chance: random.Random) -> bytes:
    words = [chance.choice(LABELS)]
    if chance.random() < 0.1:
        words.append(b"qid:%d" % chance.randrange(9))
    if chance.random() < 0.1:
        words.append(b"cost:" + chance.choice((b"0", b"2", b"0.5", b"1e-3", b"1e300")))
    index = 0
    for _ in range(chance.randrange(6)):
        index += chance.choice((1, 1, 2, 100, 1 << 24))
        words.append(b"%d:%s" % (index, chance.choice(NUMBERS)))
    return chance.choice((b" ", b" ", b"\t", b"  ")).join(words) + chance.choice(LINE_ENDS)


def check_text(content: bytes, chance: random.Random) -> str:
    """Check for the rows of the reference reader, or an error at the same place."""
    options: dict[str, Any] = {
        "labels": chance.choice(("class", "number")),
        "zero_based": chance.random() < 0.3,
        "unlabelled": chance.random() < 0.5,
    }
    parse_options = ParseOptions(options["labels"], options["zero_based"], options["unlabelled"])
    content = content.removeprefix(b"\xef\xbb\xbf")
    try:
        expected = reference.parse(content, **options)
    except reference.BadTokenError as bad:
        return _refused_at(content, parse_options, bad.place)
    block = svmlight.parse(content, parse_options, "file")
    # A float32 stands for its shortest decimal number.
    values = [float(str(value)) for value in block.X.data]
    pairs = zip(block.X.indices.tolist(), values, strict=True)
    entries = [entry for row in expected.entries for entry in row]
    assert list(pairs) == entries
    assert block.X.indptr.tolist() == np.cumsum([0, *map(len, expected.entries)]).tolist()
    assert block.features.tolist() == sorted({index for index, _ in entries})
    assert block.queries == expected.queries
    weights = [1.0] * len(block) if block.weights is None else block.weights.tolist()
    assert weights == expected.weights
    if options["labels"] == "number":
        assert np.array_equal(block.y, expected.labels, equal_nan=True)
        return "accepted"
    names = [encoded(block.spellings[code].text) for code in block.codes]
    assert names == expected.labels
    try:
        LabelTable("file", options["unlabelled"]).classes(block)
    except DataError as error:
        assert PLACED.fullmatch(str(error)), error
    return "accepted"


def _refused_at(content: bytes, options: ParseOptions, place: tuple[int, int]) -> str:
    try:
        svmlight.parse(content, options, "file")
    except DataError as error:
        assert PLACED.fullmatch(str(error)), error
        assert str(error).startswith(f"file:{place[0]}:{place[1]}: ")
        return "refused"
    raise AssertionError(f"accepted, though the token at {place} is bad")


# ---- models -------------------------------------------------------------------------------------

TRAILER = re.compile(rb"(?:\A|\n)# randsvm ")
TRAILER_WORDS = [
    *WORDS,
    b'# randsvm features "1-2147483647"\n',
    b'# randsvm features "1-67108864,67108866-2147483647"\n',
    b'# randsvm labels ["a", "b"]\n',
    b'# randsvm map "rbf components 2147483647 gamma 1 seed 0"\n',
    b'# randsvm map "poly components 2147483647 gamma 1 coef0 1 degree 1000 seed 0"\n',
    b'# randsvm map "poly components 3 gamma 1e308 coef0 1e308 degree 1000 seed 0 exact"\n',
    b"2000000000", b"1-2", b"4-3", b"99999999999",
]  # fmt: skip
# Rows to predict: no features, few, one that no model knows.
TEST_ROWS: tuple[list[tuple[int, float]], ...] = (
    [],
    [(1, 0.5)],
    [(1, -1.0), (2, 2.0), (3, 0.25)],
    [(2, 1.0), (2147483647, 1.0)],
)
LIBSVM_OPTIONS = ("-t 0", "-t 1 -r 1", "-t 2", "-t 3", "-s 1", "-s 2", "-s 3", "-s 4", "-b 1")
LIBLINEAR_OPTIONS = ("-s 0 -B 1", "-s 1", "-s 4", "-s 11", "-s 21")
OURS = (
    ("randsvm", "plain"),
    ("randsvm", "-t", "linear", "words"),
    ("randsvm", "-t", "poly", "-r", 1, "--components", 5, "plain"),
    ("sgd", "plain"),
    ("sgd", "words"),
    ("sgd", "-t", "rbf", "--components", 4, "words"),
    ("sgd", "-s", "svr", "plain"),
)


def valid_models(folder: Path) -> list[bytes]:
    """Write small models of LIBSVM, LIBLINEAR and randsvm, some in a foreign layout."""
    y, X = oracle.two_gaussians(24, d=3)
    path, found = folder / "model", []
    for options in LIBSVM_OPTIONS:
        problem = svm.svm_problem(y, sparse.csr_matrix(X))
        learnt = svmutil.svm_train(problem, svm.svm_parameter(f"-q -c 0.1 {options}"))
        svmutil.svm_save_model(str(path), learnt)
        found.append(path.read_bytes())
    for options in LIBLINEAR_OPTIONS:
        learnt = liblinearutil.train(y, X, f"-q {options}")
        liblinearutil.save_model(str(path), learnt)
        found.append(path.read_bytes())
    oracle.write_svmlight(folder / "plain", y, X)
    (folder / "words").write_text(oracle.svmlight_text(np.where(y > 0, "ham", "spam").tolist(), X))
    for *words, data in OURS:
        run_train(*words, "-q", folder / data, path)
        found.append(path.read_bytes())
    return found


@dataclass(frozen=True)
class Models:
    """Check models that were made from valid ones; path: the file that the libraries read."""

    valid: list[bytes]
    path: Path

    def make(self, chance: random.Random) -> bytes:
        """Return a damaged model, or one of randsvm that was edited and has a new sha256 line."""
        content = chance.choice(self.valid)
        if SEAL in content and chance.random() < 0.5:
            return resealed(damaged(content[: content.index(SEAL)], chance, TRAILER_WORDS))
        return damaged(content, chance)

    def check(self, content: bytes, chance: random.Random) -> str:
        self.path.write_bytes(content)
        try:
            loaded = load(str(self.path))
        except (ModelError, DataError) as error:
            assert error.exit_code == 65
            assert PARSE_ERROR.fullmatch(str(error)), error
            return "refused"
        if content in self.valid:
            return "accepted"
        if TRAILER.search(content):
            assert content == resealed(content), "an altered model"
            self._predict(loaded)
            return "accepted"
        self._compare(content, loaded)
        return "accepted"

    def _predict(self, loaded: Model) -> np.ndarray | None:
        """Return decision values of TEST_ROWS, (rows, columns); None if they exceed float64."""
        indptr = np.cumsum([0, *map(len, TEST_ROWS)])
        pairs = [pair for row in TEST_ROWS for pair in row]
        indices = np.array([index for index, _ in pairs], np.int32)
        values = np.array([value for _, value in pairs], np.float32)
        try:
            return loaded.decision(rows_of(loaded, indptr, indices, values))
        except ParameterError:
            return None

    def _compare(self, content: bytes, loaded: Model) -> None:
        """Compare with the values of LIBSVM and LIBLINEAR on the same file, if they read it."""
        f, size = self._predict(loaded), size_of(loaded)
        # LIBSVM and LIBLINEAR read memory that is not theirs where their keywords change places.
        if f is None or not size < 1e30 or not in_order(content):
            return
        assert np.isfinite(f).all()
        kernel = isinstance(loaded, KernelModel)
        theirs = self._by_libsvm() if kernel else self._by_liblinear()
        if theirs is not None:
            assert np.abs(f - theirs).max() <= 1e-6 * size, (f, theirs)

    def _by_libsvm(self) -> np.ndarray | None:
        loaded = svmutil.svm_load_model(str(self.path))
        if loaded is None:
            return None
        return oracle.libsvm_predictions(loaded, [dict(row) for row in TEST_ROWS])[1]

    def _by_liblinear(self) -> np.ndarray | None:
        loaded = liblinearutil.load_model(str(self.path))
        if loaded is None:
            return None
        X = np.zeros((len(TEST_ROWS), min(loaded.nr_feature, 3)))
        for x, row in zip(X, TEST_ROWS, strict=True):
            for index, value in row:
                if index <= len(x):
                    x[index - 1] = value
        return oracle.liblinear_predictions(self.path, X)[1]


def in_order(content: bytes) -> bool:
    """Whether the keywords are in the order in which their program writes them."""
    lines = [line.split(None, 1) for line in content.split(b"\n")]
    found = [words[0].decode("latin-1") for words in lines if words]
    layouts = (libsvm_format.HEADER_FORMAT, linear_model.HEADER_FORMAT)
    return any(
        [word for word in keywords if word in found] == found[: found.index(last_line)]
        for _, last_line, keywords in layouts
        if last_line in found
    )


def size_of(loaded: Model) -> float:
    """Return a bound of the rounding errors in a decision value of TEST_ROWS."""
    with np.errstate(over="ignore"):
        if isinstance(loaded, LinearModel):
            return 1 + float(np.abs(loaded.w).sum() + np.abs(loaded.b).sum())
        assert isinstance(loaded, KernelModel)
        norm = max(10.0, float(squared_norms(loaded.Z).max(initial=0.0)))
        values = 1 + loaded.kernel.magnitude(norm)
        total = 1 + float(np.abs(loaded.beta).sum())
        return (1 + loaded.kernel.degree) * values * total + float(np.abs(loaded.b).max())


# ---- caches -------------------------------------------------------------------------------------


class Caches:
    """Check damaged caches: the data must be those of the text, and the cache whole again."""

    def __init__(self, folder: Path) -> None:
        self.path, self.cache = folder / "cached.svm", folder / "cache"
        oracle.write_svmlight(self.path, *oracle.sparse_rows(60, d=40))
        os.utime(self.path, ns=(1, 1))  # it stands in the cache, which shall be always the same
        self.expected = self._load()
        self.valid = self.cache.read_bytes()

    def make(self, chance: random.Random) -> bytes:
        return damaged(self.valid, chance)

    def check(self, content: bytes, chance: random.Random) -> str:
        self.cache.write_bytes(content)
        assert self._load() == self.expected
        if self.cache.read_bytes() == self.valid:
            return "accepted" if content == self.valid else "rebuilt"
        return "accepted"

    def _load(self) -> list[Any]:
        options, resources = ParseOptions(chunk_rows=25), Resources(cache=str(self.cache), jobs=1)
        with closing(dataset.load((str(self.path),), options, resources)) as D:
            chunks = [D.store.read(number) for number in range(len(D.stored_starts) - 1)]
            arrays = [
                array.tobytes()
                for chunk in chunks
                for array in (*vars(chunk.X).values(), chunk.y, chunk.weights)
                if isinstance(array, np.ndarray)
            ]
            summary = {**vars(D.summary), "features": D.summary.features.tolist()}
            return [summary, arrays]


# ---- all of them --------------------------------------------------------------------------------


class Fuzz:
    """The cases of each reader, by its name: make(chance) -> bytes, check(bytes, chance) -> end.

    The end is one of accepted, refused, rebuilt. A wrong end raises an exception.
    """

    def __init__(self, folder: Path) -> None:
        models, caches = Models(valid_models(folder), folder / "file"), Caches(folder)
        places = folder / "logs", folder / "lines"
        for place in places:
            place.mkdir()
        logs, lines = Logs(places[0], damaged), Lines(places[1])
        self.readers: dict[str, tuple[Callable[[random.Random], bytes], Check]] = {
            "text": (make_text, check_text),
            "model": (models.make, models.check),
            "cache": (caches.make, caches.check),
            "log": (logs.make, logs.check),
            "line": (lines.make, lines.check),
        }

    def one(self, reader: str, chance: random.Random) -> str:
        make, check = self.readers[reader]
        return check(make(chance), chance)
