"""What holds for models in LIBSVM's and in LIBLINEAR's format alike: no bad file is misread."""

from __future__ import annotations

import dataclasses
import io
import tracemalloc

import numpy as np
import pytest
from model_files import (
    FORMATS,
    LIBLINEAR,
    LIBSVM,
    OWN_LINE,
    TRAILER,
    assert_same,
    edited,
    of_the_library,
    without_trailer,
)

from randsvm.errors import ModelError
from randsvm.models import header
from randsvm.models.load import load
from randsvm.models.trailer import SealedStream


@pytest.fixture(params=FORMATS)
def format_(request):
    return FORMATS[request.param]


@pytest.fixture(params=[False, True], ids=["plain", "own layout"])
def model(request, format_):
    return dataclasses.replace(format_.model, own_format=request.param)


# ---- what is written ------------------------------------------------------------------------


def test_what_is_written_is_read(format_, model, tmp_path):
    found, trailer = format_.module.parse(format_.content(model, tmp_path), "m")
    assert_same(found, model)
    assert trailer == TRAILER


@pytest.mark.parametrize("label", [True, False])
def test_the_library_refuses_a_model_in_our_own_layout(format_, tmp_path, capfd, label):
    model = dataclasses.replace(format_.model, own_format=True)
    if not label:
        model = dataclasses.replace(model, label=None)
    content = format_.content(model, tmp_path)
    assert content.startswith(OWN_LINE)
    assert format_.load(str(tmp_path / "m")) is None
    assert "unknown text in model file: [randsvm_model]" in capfd.readouterr().err
    assert_same(format_.module.parse(content, "m")[0], model)


def test_standard_output(format_, monkeypatch):
    out = io.TextIOWrapper(io.BytesIO())
    monkeypatch.setattr("sys.stdout", out)
    format_.module.write("-", format_.model, TRAILER)
    found, trailer = format_.module.parse(out.buffer.getvalue(), "m")
    assert_same(found, format_.model)
    assert trailer == TRAILER


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"label": None}, "m: expected a line 'label ...' before the line "),
        ({"label": (1, 2**31, 3)}, "expected whole numbers below 2^31 after 'label'"),
        ({"label": (1, 1, 3)}, "expected different labels, found 1 "),
        ({"label": (1,)}, "numbers after 'label', found 1"),
        ({"label": ("ham", "spam", "egg")}, "expected whole numbers below 2^31 after 'label'"),
    ],
)
def test_labels_that_could_not_be_read_are_not_written(format_, tmp_path, changes, message):
    label = changes["label"] and changes["label"][: format_.model.nr_class]
    assert message in format_.not_written(dataclasses.replace(format_.model, label=label), tmp_path)


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_not_written(format_, model, tmp_path, number):
    keyword = format_.number_line.split()[0].decode()
    value = {keyword: number}
    changed = dataclasses.replace(model, **value)
    message = f"expected finite numbers after '{keyword}', found '{number}'"
    assert message in format_.not_written(changed, tmp_path)


# ---- what is read ---------------------------------------------------------------------------


def test_line_ends_of_windows_are_read(format_, tmp_path):
    body = without_trailer(format_.content(format_.model, tmp_path))
    found, _ = format_.module.parse(body.replace(b"\n", b"\r\n"), "m")
    assert_same(found, of_the_library(format_.model))


@pytest.mark.parametrize("first_line", [b"", OWN_LINE])
@pytest.mark.parametrize("step", [1, -1])
def test_header_lines_are_read_in_any_order(format_, first_line, step):
    content = b"".join([*format_.header[::step], format_.end_line, format_.rows])
    name = header.format_of(first_line + content)
    assert name is not None
    assert FORMATS[name] is format_
    found, _ = format_.module.parse(content, "m")
    assert_same(found, format_.module.parse(format_.body, "m")[0])


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        b"+1 1:0.5\n",
        b"svm_typ",
        b"nr_class 2\n" * 40 + b"svm_type c_svc\n",
        b"\xff" * 99,
    ],
)
def test_what_is_no_model_has_no_format(content):
    assert header.format_of(content) is None


def test_messages_name_standard_input_and_the_file_as_given(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"x\n")))
    with pytest.raises(ModelError, match=r"^<stdin>:1: expected"):
        load("-")
    (tmp_path / "m").write_bytes(b"x\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelError, match=r"^m:1: expected"):
        load("m")


# ---- what is refused ------------------------------------------------------------------------


def test_with_a_trailer_every_flipped_bit_is_refused(format_, model, tmp_path):
    content = format_.content(model, tmp_path)
    for position in range(len(content)):
        for bit in range(8):
            flipped = bytearray(content)
            flipped[position] ^= 1 << bit
            format_.refused(bytes(flipped))


def test_every_cut_is_refused_but_the_one_that_leaves_a_model_of_the_library(
    format_, model, tmp_path
):
    content = format_.content(model, tmp_path)
    body = len(without_trailer(content))
    for size in range(len(content)):
        if size != body or model.own_format:
            format_.refused(content[:size])
    if not model.own_format:
        assert_same(format_.module.parse(content[:body], "m")[0], of_the_library(model))


def number_line(format_, *words):
    """The body with other words after the keyword of its number line, and that line's number."""
    at = format_.header.index(format_.number_line) + 1
    keyword = format_.number_line.split()[0].decode()
    line = " ".join([keyword, *words]).encode() + b"\n"
    return at, edited(format_.body, format_.number_line, line)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["1", "2"], "expected 1 number after '{}', found 2"),
        ([], "expected 1 number after '{}', found 0"),
        (["1_0"], "expected finite numbers after '{}', found '1_0'"),
        (["nan"], "expected finite numbers after '{}', found 'nan'"),
        (["inf"], "expected finite numbers after '{}', found 'inf'"),
        (["-1e999"], "expected finite numbers after '{}', found '-1e999'"),
        (["0x1p3"], "expected finite numbers after '{}', found '0x1p3'"),
    ],
)
def test_a_line_without_its_one_number_is_refused(format_, words, expected):
    at, content = number_line(format_, *words)
    keyword = format_.number_line.split()[0].decode()
    assert format_.refused(content) == f"m:{at}: {expected.format(keyword)}"


def test_a_line_that_comes_twice_is_refused(format_):
    at, _ = number_line(format_)
    keyword = format_.number_line.split()[0].decode()
    message = format_.refused(edited(format_.body, format_.number_line, 2 * format_.number_line))
    assert message == f"m:{at + 1}: expected '{keyword}' once (line {at}), found it again"


def test_every_line_of_the_header_is_needed(format_):
    for line in format_.header:
        keyword = line.split()[0].decode()
        message = format_.refused(edited(format_.body, line, b""))
        assert message.startswith(f"m: expected a line '{keyword} ...' before the line '")


def test_an_unknown_keyword_is_refused(format_):
    at, _ = number_line(format_)
    content = edited(format_.body, format_.number_line, b"x" + format_.number_line)
    expected = f"m:{at}: expected a keyword of {format_.program}'s model format, found 'x"
    assert format_.refused(content).startswith(expected)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "m:1: expected a model, found an empty file"),
        (
            b"+1 1:0.5\n",
            "m:1: expected a keyword of {}'s model format, found '+1' (is it a model?)",
        ),
        (b"\x00\xff" * 9000, "m:1: expected a whole line of the model's header, found '\\x00"),
    ],
)
def test_what_is_no_model_is_refused(format_, content, message):
    assert format_.refused(content).startswith(message.format(format_.program))


def test_a_header_without_its_last_line_is_refused(format_):
    end, at = format_.end_line, len(format_.header) + 1
    keyword = f"m:{at}: expected a keyword of {format_.program}'s model format, found"
    assert format_.refused(edited(format_.body, b"\n" + end, b"\n\n")).startswith(f"{keyword} ''")
    assert format_.refused(edited(format_.body, b"\n" + end, b"\n")).startswith(keyword)
    assert format_.refused(edited(format_.body, b"\n" + end, b"\n2" + end)).startswith(keyword)
    expected = f"m:{at}: expected the line '{end.decode().strip()}', found the end of the file"
    assert format_.refused(b"".join(format_.header)).startswith(expected)


@pytest.mark.parametrize("more", [b"\n", b"x", b"# end\n"])
def test_anything_after_the_promised_rows_is_refused(format_, more):
    at = format_.body.count(b"\n") + 1
    assert format_.refused(format_.body + more).startswith(f"m:{at}: expected the end of the model")


def test_rows_without_their_last_newline_are_refused(format_):
    at, rows = format_.body.count(b"\n"), format_.rows.count(b"\n")
    message = format_.refused(format_.body[:-1])
    assert message.startswith(f"m:{at}: expected {rows} ")
    assert message.endswith(f"found {rows - 1} whole lines of them (truncated?)")


@pytest.mark.parametrize(
    ("first_line", "message"),
    [
        (OWN_LINE, "m: expected '# randsvm' lines at the end of a randsvm_model file, found none"),
        (b"randsvm_model 2\n", "m:1: expected randsvm_model 1, found randsvm_model 2: a newer"),
        (b"randsvm_model\n", "m:1: expected randsvm_model 1, found ''"),
    ],
)
def test_our_own_layout_has_a_version_and_a_trailer(format_, first_line, message):
    assert format_.refused(first_line + format_.body).startswith(message)


PROMISES = [
    (
        LIBSVM,
        edited(LIBSVM.body, b"total_sv 2", b"total_sv 2147483647").replace(
            b"1 1\n", b"2147483646 1\n"
        ),
    ),
    (LIBLINEAR, edited(LIBLINEAR.body, b"nr_feature 2", b"nr_feature 700000000")),
    (LIBLINEAR, edited(LIBLINEAR.body, b"nr_class 3", b"nr_class 700000000")),
    (
        LIBLINEAR,
        b"solver_type ONECLASS_SVM\nnr_class 2\nnr_feature 2147483647\nbias -1\nrho 0\nw\n1 \n2 \n",
    ),
]


def costs_no_memory(format_, content):
    tracemalloc.start()
    try:
        message = format_.refused(content)
        assert tracemalloc.get_traced_memory()[1] < 1e6
    finally:
        tracemalloc.stop()
    return message


@pytest.mark.parametrize(("promising", "content"), PROMISES)
def test_a_promise_of_two_billion_numbers_costs_no_memory(promising, content):
    costs_no_memory(promising, content)


def test_nor_does_one_of_two_billion_classes_where_no_labels_are_needed(tmp_path):
    model = dataclasses.replace(LIBLINEAR.model, label=None, own_format=True)
    body = without_trailer(LIBLINEAR.content(model, tmp_path))
    stream = io.BytesIO()
    sealed = SealedStream(stream)
    sealed.write(edited(body, b"nr_class 3", b"nr_class 2147483647"))
    sealed.seal(TRAILER)
    message = costs_no_memory(LIBLINEAR, stream.getvalue())
    assert "expected 2147483647 numbers in a row of w, found 3" in message
