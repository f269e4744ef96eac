"""Test svmlight.py against a plain Python reference, scikit-learn, Python's float() and its own
writer.
"""

import gzip
import io
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
import svmlight_reference as reference
from hypothesis import example, given
from hypothesis import strategies as st
from rows import LabelTable, numbers_of, parse, read_blocks, write_svmlight
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

from randsvm.errors import ContentError, DataError


def read(path, *labels, **options):
    return list(read_blocks(path, *labels, **options))


@pytest.fixture
def file(tmp_path, monkeypatch):
    """Return a function that writes bytes to a.svm in an empty working folder; messages show that
    name.
    """
    monkeypatch.chdir(tmp_path)

    def write(text, name="a.svm"):
        Path(name).write_bytes(text)
        return name

    return write


def problem_of(path, table=None, **options):
    """Return the message of the first error while reading everything and mapping the labels."""
    table = table or LabelTable(path)
    with pytest.raises(DataError) as caught:
        for block in read_blocks(path, **options):
            table.classes(block)
    return str(caught.value)


def rows_of(blocks):
    """Return blocks as plain data: labels as written (or y), and the bits of the entries."""
    rows = []
    for block in blocks:
        labels = [block.spellings[code].text for code in block.codes] or block.y.tolist()
        for row in range(len(block)):
            part = slice(block.indptr[row], block.indptr[row + 1])
            entries = zip(
                block.indices[part], numbers_of(block.values)[part].view(np.int64), strict=True
            )
            label = labels[row]
            rows.append((str(label), [(int(i), int(bits)) for i, bits in entries]))
    return rows


# ---- legal text -------------------------------------------------------------------------------

LEGAL = {
    "plain": b"1 1:0.5 3:2\n-1 2:1\n",
    "no final newline": b"1 1:0.5 3:2\n-1 2:1",
    "CRLF": b"1 1:0.5 3:2\r\n-1 2:1\r\n",
    "a carriage return at the end": b"1 1:0.5 3:2\r\n-1 2:1\r",
    "tabs and runs of spaces": b" \t1\t\t1:0.5   3:2 \t\n  -1 2:1  \n",
    "comment lines and comments": b"# head\n1 1:0.5 3:2 # 7:7\n#\n-1 2:1# tail\n  # x",
    "blank lines": b"\n\r\n1 1:0.5 3:2\n \t\n\n-1 2:1\n\n\r\n",
    "a byte order mark": b"\xef\xbb\xbf1 1:0.5 3:2\n-1 2:1\n",
    "qid": b"1 qid:4 1:0.5 3:2\n-1 qid:04\t2:1\n",
    "a qid of any size": b"1 qid:-1 1:0.5 3:2\n-1 qid:+" + b"9" * 99 + b" 2:1\n",
    "weights of 1": b"1 cost:1 1:0.5 3:2\n-1 2:1\n",
    "scientific notation": b"1 1:5e-1 3:.2E+01\n-1 2:1000.e-3\n",
    "plus signs and zeros": b"1 01:+0.500 00000000000003:2\n-1 2:+1.0e0\n",
}


@pytest.mark.parametrize("text", LEGAL.values(), ids=LEGAL.keys())
def test_legal_notations_give_the_expected_rows(file, text):
    blocks = read(file(text))
    assert rows_of(blocks) == rows_of([parse(b"1 1:0.5 3:2\n-1 2:1\n")])
    assert sum(block.queries for block in blocks) == (2 if b"qid" in text else 0)


def test_a_block_holds_labels_and_rows_in_file_order():
    block = parse(b"b 1:0.5 3:2\na 2:1\nb\n")
    assert block.spellings == [("b", 1, 1), ("a", 2, 1)]
    assert block.codes.tolist() == [0, 1, 0]
    assert block.indptr.tolist() == [0, 2, 3, 3]
    assert block.indices.tolist() == [1, 3, 2]
    assert block.values.tolist() == [0.5, 2, 1]
    assert block.features.tolist() == [1, 2, 3]


def test_rows_of_weight_0_leave_their_labels_and_no_features():
    block = parse(b"a 1:1\nb cost:0 2:5\nc cost:3 1:1 4:2\nd 4:1\n").without_zero_weights()
    assert [spelling.text for spelling in block.spellings] == ["a", "b", "c", "d"]
    assert block.codes.tolist() == [0, 2, 3]
    assert block.indptr.tolist() == [0, 1, 3, 4]
    assert (block.indices.tolist(), block.values.tolist()) == ([1, 1, 4, 4], [1, 1, 2, 1])
    assert block.features.tolist() == [1, 4]
    assert block.weights.tolist() == [1, 3, 1]


def test_unlabelled_rows_are_nan():
    assert np.isnan(parse(b"? 1:1\n", "number", any_label=True).y).all()
    table = LabelTable("a.svm", unlabelled=True)
    assert np.isnan(table.classes(parse(b"? 1:1\n", any_label=True))).all()
    assert table.labels == []
    assert table.numeric is None


# ---- illegal text -----------------------------------------------------------------------------

LONG = "9" * 60
INDEX_0 = "expected an index of 1 or more (from 0: train with --zero-based), found 0"
REFUSED = [
    (b"1 1:1\n1 1:1\n1 a\n", "3:3: expected index:value, found 'a'"),
    (b"1 5\n", "1:3: expected index:value, found '5'"),
    (b"1 1:\n", "1:3: expected index:value, found '1:'"),
    (b"1 1: 5\n", "1:3: expected index:value, found '1:'"),
    (b"1 :5\n", "1:3: expected index:value, found ':5'"),
    (b"1 0:1\n", f"1:3: {INDEX_0}"),
    (b"1 3:1 00:1\n", f"1:7: {INDEX_0}"),
    (b"1 1:1 2:1  2:1\n", "1:12: expected an index above 2, found 2"),
    (b"1 1:1 8:1\t3:1\n", "1:11: expected an index above 8, found 3"),
    (b"1 -1:1\n", "1:3: expected an index in digits, found '-1'"),
    (b"1 +1:1\n", "1:3: expected an index in digits, found '+1'"),
    (b"1 1a:1\n", "1:3: expected an index in digits, found '1a'"),
    (b"1 1.0:1\n", "1:3: expected an index in digits, found '1.0'"),
    (b"1 sid:1\n", "1:3: expected an index in digits, found 'sid'"),
    (b"1 2147483648:1\n", "1:3: expected an index of at most 2147483647, found 2147483648"),
    (
        b"1 18446744073709551617:1\n",
        "1:3: expected an index of at most 2147483647, found 18446744073709551617",
    ),
    (b"1 1:1\n1 7:0.5x\n", "2:3: expected a number after 7:, found '0.5x'"),
    (b"1 7:0x10\n", "1:3: expected a number after 7:, found '0x10'"),
    (b"1 7:1:1\n", "1:3: expected a number after 7:, found '1:1'"),
    (b"1 7:1,5\n", "1:3: expected a number after 7:, found '1,5'"),
    (b"1 7:.\n", "1:3: expected a number after 7:, found '.'"),
    (b"1 7:e5\n", "1:3: expected a number after 7:, found 'e5'"),
    (b"1 7:1e\n", "1:3: expected a number after 7:, found '1e'"),
    (b"1 7:1e+\n", "1:3: expected a number after 7:, found '1e+'"),
    (b"1 7:--1\n", "1:3: expected a number after 7:, found '--1'"),
    (b"1 7:-+1\n", "1:3: expected a number after 7:, found '-+1'"),
    (b"1 7:1_0\n", "1:3: expected a number after 7:, found '1_0'"),
    (b"1 7:1\r1 7:1\n", "1:3: expected a number after 7:, found '1\\r1'"),
    (b"1 7:\xc3\xa9\xff\n", "1:3: expected a number after 7:, found 'é\\xff'"),
    (b"1 1:" + LONG.encode() + b"x", f"1:3: expected a number after 1:, found '{LONG[:40]}...'"),
    (b"1 7:nan\n", "1:3: expected a finite value, found 'nan'"),
    (b"1 7:-INF\n", "1:3: expected a finite value, found '-INF'"),
    (b"1 7:Infinity\n", "1:3: expected a finite value, found 'Infinity'"),
    (b"1 7:1e39\n", "1:3: expected a value within float32 (3.4e38), found '1e39'"),
    (b"1 7:-1e999999999999999999999\n", "1:3: expected a value within float32 (3.4e38), "
     "found '-1e999999999999999999999'"),
    (b"1 1:1 qid:3\n", "1:7: expected qid: directly after the label, found 'qid:3'"),
    (b"1 qid:3 qid:3\n", "1:9: expected qid: directly after the label, found 'qid:3'"),
    (b"1 qid:x 1:1\n", "1:3: expected qid:number, found 'qid:x'"),
    (b"1 qid: 1:1\n", "1:3: expected qid:number, found 'qid:'"),
    (b"1 qid:- 1:1\n", "1:3: expected qid:number, found 'qid:-'"),
    (b"1 qid:--1 1:1\n", "1:3: expected qid:number, found 'qid:--1'"),
    (b"1 1:1\n1 cost:-1 1:1\n", "2:3: expected cost:weight from 0 to 3.4e38, found 'cost:-1'"),
    (b"1 cost:nan 1:1\n", "1:3: expected cost:weight from 0 to 3.4e38, found 'cost:nan'"),
    (b"1 cost:inf 1:1\n", "1:3: expected cost:weight from 0 to 3.4e38, found 'cost:inf'"),
    (b"1 cost:1e999 1:1\n", "1:3: expected cost:weight from 0 to 3.4e38, found 'cost:1e999'"),
    (b"1 cost:1e200 1:1\n", "1:3: expected cost:weight from 0 to 3.4e38, found 'cost:1e200'"),
    (b"1 cost:two\n", "1:3: expected cost:weight from 0 to 3.4e38, found 'cost:two'"),
    (b"1 cost:\n", "1:3: expected cost:weight from 0 to 3.4e38, found 'cost:'"),
    (b"1 cost:1:2\n", "1:3: expected cost:weight from 0 to 3.4e38, found 'cost:1:2'"),
    (b"1 1:1 cost:2\n", "1:7: expected cost: once, before the features, found 'cost:2'"),
    (b"1 cost:2 cost:2\n", "1:10: expected cost: once, before the features, found 'cost:2'"),
    (b"1 cost:2\x00 1:2\n", "1:9: expected text, found a NUL byte"),
    (b"1 costs:2\n", "1:3: expected an index in digits, found 'costs'"),
    (b"1 1:1\n 1:2\n", "2:2: expected a label, found '1:2'"),
    (b"qid:3 1:2\n", "1:1: expected a label, found 'qid:3'"),
    (b"1,2 1:2\n", "1:1: expected one label, found '1,2'"),
    (b"1 a,b\n", "1:3: expected index:value (is it a CSV file?), found 'a,b'"),
    (b"1,0.5,7\n", "1:1: expected label index:value ... with spaces between them (is it a CSV "
     "file?), found '1,0.5,7'"),
    (b"1 1:1\n? 1:2\n", "2:1: expected a label (unlabelled rows are for prediction only), "
     "found '?'"),
    (b"nan 1:2\n", "1:1: expected a finite label, found 'nan'"),
    (b"+Inf 1:2\n", "1:1: expected a finite label, found '+Inf'"),
    (b"a\x1bb 1:2\n", "1:1: expected a label without control characters, found 'a\\x1bb'"),
    (b"a\x7fb 1:2\n", "1:1: expected a label without control characters, found 'a\\x7fb'"),
    (b"1\r-1\r1\r", "1:1: expected a label without control characters, found '1\\r-1\\r1'"),
    (b"1 1:1\n1 1:\x001\n", "2:5: expected text, found a NUL byte"),
    (b"1\x00 1:1\n", "1:2: expected text, found a NUL byte"),
    (b"1 1:1\n\x00\n", "2:1: expected text, found a NUL byte"),
    (b"1 1:1 # \x00\n", "1:9: expected text, found a NUL byte"),
    (b"# \x00\n", "1:3: expected text, found a NUL byte"),
]  # fmt: skip
REFUSED_CLASSES = [
    (b"1 1:1\n1.5 1:1\n", "2:1: expected a whole number as the class (or -s svr for regression), "
     "found '1.5'"),
    (b"1e-1\n", "1:1: expected a whole number as the class (or -s svr for regression), "
     "found '1e-1'"),
    (b"1\n\n\n  spam\n2\n", "4:3: expected a number like the first label, '1', found 'spam'"),
    (b"spam\n0x1f\n+1\n", "3:1: expected a name like the first label, 'spam', found '+1'"),
    (b"1e400 1:1\n", "1:1: expected a finite label, found '1e400'"),
]  # fmt: skip
REFUSED_NUMBERS = [
    (b"1.5 1:1\nspam 1:1\n", "2:1: expected a number as label, found 'spam'"),
    (b"0x1f\n", "1:1: expected a number as label, found '0x1f'"),
    (b"1e999\n", "1:1: expected a label within float32 (3.4e38), found '1e999'"),
    (b"-3.5e38 1:1\n", "1:1: expected a label within float32 (3.4e38), found '-3.5e38'"),
    (b"-infinity\n", "1:1: expected a finite label, found '-infinity'"),
    (b"1:5\n", "1:1: expected a label, found '1:5'"),
    (b"1,5\n", "1:1: expected one label, found '1,5'"),
    (b"?\n", "1:1: expected a label (unlabelled rows are for prediction only), found '?'"),
    (b"1.\x005\n", "1:3: expected text, found a NUL byte"),
]


@pytest.mark.parametrize(
    ("labels", "text", "message"),
    [
        *(("class", *one) for one in REFUSED + REFUSED_CLASSES),
        *(("number", *one) for one in REFUSED_NUMBERS),
    ],
)
def test_errors_name_the_place_and_the_reason(file, labels, text, message):
    assert problem_of(file(text), labels=labels) == f"a.svm:{message}"


BAD_LATE = b"# x\n1 1:1\n\n-1 2:1 # y\n1 1:1\nspam 1:1 2:z\n1.5 0:1\n"


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("block_size", [1, 2, 7, 12, 33, 1000])
@pytest.mark.parametrize(("text", "message"), [
    (BAD_LATE, "6:1: expected a number like the first label, '1', found 'spam'"),
    (BAD_LATE.replace(b"spam", b"1"), "6:7: expected a number after 2:, found 'z'"),
    (BAD_LATE.replace(b"spam", b"?"), "6:1: expected a label (unlabelled rows are for "
     "prediction only), found '?'"),
])  # fmt: skip
def test_the_first_bad_token_is_reported_with_any_block_size(
    file, text, message, block_size, threads
):
    path = file(text)
    assert problem_of(path, block_size=block_size, threads=threads) == f"a.svm:{message}"


@pytest.mark.parametrize("block_size", [1, 1000])
def test_a_byte_order_mark_is_legal_only_at_the_start(file, block_size):
    path = file(b"1 1:1\n\xef\xbb\xbf1 1:1\n")
    assert problem_of(path, block_size=block_size) == (
        "a.svm:2:1: expected a number like the first label, '1', found '\\ufeff1'"
    )


@pytest.mark.parametrize("block_size", [1, 16, 64, 1000])
def test_a_line_that_is_too_long_is_reported_with_its_first_position(file, set_sizes, block_size):
    set_sizes(longest_line=50)
    fits = b"1 1:" + b"0" * 46
    assert len(read(file(b"2\n" + fits + b"\n" + fits), block_size=block_size)) >= 1
    for text in (b"2\n" + fits + b"0\n1 x\n", b"2\n" + fits + b"0"):
        message = problem_of(file(text), block_size=block_size)
        assert message == "a.svm:2:1: expected a line of at most 50 bytes, found a longer one"


def test_a_bad_line_is_reported_before_a_damaged_end_of_the_file(file):
    lines = b"".join(b"1 1:%d\n" % (n * 7919 % 10007) for n in range(5000))
    path = file(gzip.compress(lines)[:-20])
    with pytest.raises(ContentError):
        read(path, block_size=100)
    path = file(gzip.compress(b"1 x\n" + lines)[:-20])
    assert problem_of(path, block_size=100, threads=2) == (
        "a.svm:1:3: expected index:value, found 'x'"
    )


# ---- blocks, threads, streams -----------------------------------------------------------------

SAMPLE = b"".join(
    b"%s %d:%.6f%s%d:%d%s" % (
        [b"a", b"bb", b"long-label"][n % 3], 1 + n % 7, n / 7, [b" ", b"\t"][n % 2],
        10 + n * n, n, [b"\n", b"\r\n", b" # c\n", b"\n\n"][n % 4],
    )
    for n in range(300)
)  # fmt: skip


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("block_size", [1, 5, 100, 1 << 20])
def test_blocks_and_threads_do_not_change_the_rows(file, block_size, threads):
    path = file(b"\xef\xbb\xbf" + SAMPLE)
    blocks = read(path, block_size=block_size, threads=threads)
    whole = parse(SAMPLE)
    assert rows_of(blocks) == rows_of([whole])
    features = np.unique(np.concatenate([block.features for block in blocks]))
    assert features.tolist() == whole.features.tolist() == np.unique(whole.indices).tolist()
    first = {s.text: s for block in reversed(blocks) for s in block.spellings}
    assert [first[s.text] for s in whole.spellings] == whole.spellings
    assert (len(blocks) > 100) == (block_size < 10)


# ---- rounding ---------------------------------------------------------------------------------


def value_of(text):
    return numbers_of(parse(f"1 1:{text}".encode()).values)[0]


def check_rounding(text):
    with np.errstate(over="ignore"):
        expected = np.float64(text)
        rounded = np.float32(expected)
    if np.isfinite(rounded):
        assert value_of(text).view(np.int64) == expected.view(np.int64)
        assert parse(text.encode(), "number").y[0].view(np.int64) == expected.view(np.int64)
    else:
        with pytest.raises(DataError, match="within float32"):
            value_of(text)
        with pytest.raises(DataError, match="a label within float32"):
            parse(text.encode(), "number")


@given(st.floats(allow_nan=False, allow_infinity=False), st.sampled_from([".17g", ".8e", ".25f"]))
@example(7.038531e-26, ".6e")  # rounds to another float32 if it is not rounded to float64 first
@example(3.4028235677973366e38, ".17g")  # the smallest number beyond float32
@example(3.4028235677973362e38, ".17g")
@example(1.1754943157898258e-38, ".17g")
@example(7.006492321624085e-46, ".17g")  # half the smallest float32
@example(5e-324, ".17g")
@example(1e39, ".17g")
def test_values_are_rounded_as_by_python(value, form):
    check_rounding(format(value, form))


@pytest.mark.parametrize("text", [
    "1e18446744073709551616",  # 2**64: an exponent must not wrap around
    "1e-18446744073709551616",
    "0e18446744073709551617",
    "0." + "1" * 10**6,
    "3" * 20 + "0" * 10**6 + "e-1000000",
    "0" * 10**6 + "7",
    "1.000000059604644775390625" + "0" * 10**6 + "1",  # just above the middle of two float32
    "1.00000000000000011102230246251565404236316680908203125" + "0" * 10**6 + "1",
    "0." + "0" * 10**6 + "5e1000001",
    "1" + "0" * 10**6,
])  # fmt: skip
def test_a_number_may_have_any_number_of_digits(text):
    check_rounding(text)


# ---- classes ----------------------------------------------------------------------------------


def test_notations_of_one_number_are_one_class():
    table = LabelTable("a.svm")
    classes = table.classes(parse(b"+1\n1.0\n-0\n1e0\n0.0\n10e-1\n-1\n0.01e2\n.0e99999999999\n"))
    assert classes.tolist() == [0, 0, 1, 0, 1, 0, 2, 0, 1]
    assert table.labels == ["+1", "-0", "-1"]
    assert table.numeric is True
    assert len(table) == 3


def test_known_names_keep_their_numbers_and_unknown_labels_get_new_ones():
    table = LabelTable("a.svm", unlabelled=True, labels=["2", "-1"])
    block = parse(b"-1\n7\n2.0\n?\n", any_label=True)
    assert np.array_equal(table.classes(block), [1, 2, 0, np.nan], equal_nan=True)
    assert table.labels == ["2", "-1", "7"]


def test_number_labels_are_refused_for_a_model_with_names(file):
    table = LabelTable("a.svm", labels=["spam", "ham"])
    message = problem_of(file(b"ham\n1\n"), table)
    assert message == "a.svm:2:1: expected a name like the first label, 'spam', found '1'"


# ---- other readers, and our writer ------------------------------------------------------------


def check_against_scikit_learn(path):
    X, y = load_svmlight_file(str(path), dtype=np.float64, zero_based=False)
    blocks = read(path, "number", block_size=1 << 16)
    assert np.array_equal(np.concatenate([block.y for block in blocks]), y)
    values = np.concatenate([numbers_of(block.values) for block in blocks])
    assert np.array_equal(values, X.data)
    assert np.array_equal(np.concatenate([block.indices for block in blocks]), X.indices + 1)
    lengths = np.concatenate([np.diff(block.indptr) for block in blocks])
    assert np.array_equal(lengths, np.diff(X.indptr))


@pytest.mark.parametrize("density", [1.0, 0.05])
def test_scikit_learn_reads_and_writes_the_same_rows(tmp_path, density):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(300, 40)) * 10.0 ** rng.integers(-9, 9, size=(300, 40))
    X[rng.random(X.shape) >= density] = 0
    dump_svmlight_file(X, rng.normal(size=300), str(tmp_path / "a.svm"), zero_based=False,
                       comment="from scikit-learn")  # fmt: skip
    check_against_scikit_learn(tmp_path / "a.svm")


def written(labels, indptr, indices, values):
    stream = io.BytesIO()
    write_svmlight(stream, labels, np.array(indptr), np.array(indices), values)
    return stream.getvalue()


def texts_of(values):
    """Return each value as `write` formats it."""
    count = len(values)
    text = written(["x"], [0, count], np.arange(1, count + 1), values).decode()
    return [entry.partition(":")[2] for entry in text.split()[1:]]


@pytest.mark.parametrize("more", [[], ["0.1234567890123456", "-1.7976931348623157e308", "5e-324"]])
def test_float64_values_of_few_digits_are_written_with_these_digits(more):
    """A value that needs float64 does not change the form of the others."""
    values = ["0.1", "-2.5", "17", "1.25e-5", "-0", "1e20", "123456789", *more]
    assert texts_of(np.array([float(value) for value in values])) == values


def float32s(numbers):
    return np.array(numbers).astype(np.float32)


# Each 7-digit form of it reads as the next float32, because reading rounds to float64 first.
ROUNDED_TWICE = float.fromhex("0x1.5c87fap-84")

LAYOUTS = {
    "1": 1, "-0.5": -0.5, "0": 0, "-0": -0.0, "0.1": 0.1, "255": 255, "-3.14": -3.14, "100": 100,
    "0.001": 0.001, "1.25e-5": 1.25e-5, "1e-4": 1e-4, "0.00010001": 1.0001e-4,
    "999999": 999999, "1e6": 1e6, "-1234567": -1234567, "1234567.1": 1234567.1,
    "1234000": 1234000, "1.23e6": 1.23e6, "2097152.2": 2097152.25, "2097152.8": 2097152.75,
    "16777216": 2**24, "1.2e7": 1.2e7, "123456790": 123456789, "1e10": 1e10, "1.1e10": 1.1e10,
    "1e20": 1e20, "3.4028235e38": 3.4028234663852886e38, "1e-45": 2**-149,
    "1.1754944e-38": 2**-126, "7.0385307e-26": ROUNDED_TWICE,
}  # fmt: skip


def test_values_are_written_in_their_shortest_form():
    assert texts_of(float32s(list(LAYOUTS.values()))) == list(LAYOUTS)


def check_spelling(values):
    """Check that the text is as long as the reference's and as near, and reads back to the same
    bits.
    """
    texts = texts_of(values)
    numbers = np.array([float(text) for text in texts])
    assert np.array_equal(numbers.astype(np.float32).view(np.int32), values.view(np.int32))
    row = " ".join(f"{index}:{text}" for index, text in enumerate(texts, 1))
    block = parse(f"x {row}\n".encode())
    assert np.array_equal(block.values.astype(np.float32).view(np.int32), values.view(np.int32))
    for text, value in zip(texts, values.tolist(), strict=True):
        expected = reference.spelled(value)
        if text != expected:  # float64 cannot decide which of the two is nearer
            assert len(text) == len(expected)
            far, near = (abs(Decimal(shown) - Decimal(value)) for shown in (text, expected))
            assert near <= far < near * Decimal("1.000001")


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=20))
def test_every_bit_pattern_is_written_in_its_shortest_form(bits):
    values = np.array(bits, np.uint32).view(np.float32)
    check_spelling(values[np.isfinite(values)])


@given(st.lists(
    st.tuples(
        st.sampled_from(["1", "spam", "\udcff", "ü"]),
        st.dictionaries(st.integers(1, 2**31 - 1),
                        st.floats(width=32, allow_nan=False, allow_infinity=False), max_size=5),
    ), max_size=5,
))  # fmt: skip
def test_writing_then_reading_is_identity(rows):
    entries = [(i, row[i]) for _, row in rows for i in sorted(row)]
    indptr = np.cumsum([0, *[len(row) for _, row in rows]])
    indices = np.array([i for i, _ in entries], np.int32)
    values = np.array([value for _, value in entries], np.float32)
    block = parse(written([label for label, _ in rows], indptr, indices, values))
    assert [block.spellings[code].text for code in block.codes] == [label for label, _ in rows]
    assert np.array_equal(block.indptr, indptr)
    assert np.array_equal(block.indices, indices)
    assert np.array_equal(block.values.astype(np.float32).view(np.int32), values.view(np.int32))
