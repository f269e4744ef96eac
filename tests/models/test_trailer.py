"""The seal holds for every byte before it, and items come back as they were given."""

from __future__ import annotations

import hashlib
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from randsvm.errors import ModelError
from randsvm.models.trailer import SealedStream, split_trailer

BODY = b"any\nmodel 0.5\n"
ITEMS = {"seed": "7", "labels": "ham spam", "stopped": ""}


def sealed(body=BODY, items=ITEMS):
    stream = io.BytesIO()
    writer = SealedStream(stream)
    writer.write(body)
    writer.seal(items)
    return stream.getvalue()


def resealed(text):
    """`text` with a right sha256 line, as an editor of the model might make it."""
    return text + b"# randsvm sha256 " + hashlib.sha256(text).hexdigest().encode() + b"\n"


def test_the_trailer_is_plain_lines_and_the_sha256_of_all_before_its_line():
    lines = sealed().splitlines(keepends=True)
    before = b"".join(lines[:-1])
    assert before == BODY + (
        b"# randsvm format 1\n# randsvm seed 7\n# randsvm labels ham spam\n# randsvm stopped \n"
    )
    assert lines[-1] == b"# randsvm sha256 " + hashlib.sha256(before).hexdigest().encode() + b"\n"


keys = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1)
reserved = {"format", "sha256"}


@given(st.dictionaries(keys.filter(lambda key: key not in reserved), st.text(), max_size=5))
def test_items_come_back_in_their_order_whatever_the_values_hold(items):
    content = sealed(items=items)
    end, found = split_trailer(content, "m")
    assert content[:end] == BODY
    assert found is not None
    assert list(found.items()) == list(items.items())


def test_a_label_name_in_bytes_that_are_not_utf8_comes_back():
    name = b"caf\xe9".decode(errors="surrogateescape")
    assert split_trailer(sealed(items={"labels": name}), "m")[1] == {"labels": name}


def test_each_item_is_one_line():
    content = sealed(items={"note": "a\nb\rc\r\n\\n\0"})
    assert len(content.splitlines()) == len(BODY.splitlines()) + 3
    assert b"\0" not in content  # a string of C ends there, and LIBSVM's reader counts lines so


@pytest.mark.parametrize("key", ["", "two words", "format", "sha256", "line\n", "été"])
def test_a_key_is_one_free_word(key):
    with pytest.raises(ValueError, match="trailer key"):
        sealed(items={key: "x"})


def test_a_file_without_trailer_is_all_body():
    assert split_trailer(BODY, "m") == (len(BODY), None)


def test_every_flipped_bit_is_refused():
    content = sealed()
    for position in range(len(content)):
        for bit in range(8):
            flipped = bytearray(content)
            flipped[position] ^= 1 << bit
            with pytest.raises(ModelError, match=r"^m:[0-9]+: expected .*, found "):
                split_trailer(bytes(flipped), "m")


def test_every_cut_inside_the_trailer_is_refused_or_leaves_bytes_after_the_body():
    content = sealed()
    for size in range(len(BODY) + len(b"# randsvm "), len(content)):
        with pytest.raises(ModelError, match="found"):
            split_trailer(content[:size], "m")
    for size in range(len(BODY) + 1, len(BODY) + len(b"# randsvm ")):
        assert split_trailer(content[:size], "m") == (size, None)  # not a body: it ends in '# rand'


@pytest.mark.parametrize("rest", [b"x", b"\n", b"# randsvm more 1\n", sealed()])
def test_bytes_after_the_seal_are_refused(rest):
    with pytest.raises(ModelError, match="m:7: expected the end of the file after the sha256"):
        split_trailer(sealed() + rest, "m")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            resealed(BODY + b"# randsvm format 2\n# randsvm new thing\n"),
            "m:3: expected model format 1, found 2: a newer version of randsvm wrote this model",
        ),
        (
            BODY + b"# randsvm format 12\n# another seal\n",
            "expected model format 1, found 12: a ne",
        ),
        (resealed(BODY + b"# randsvm format 0\n"), "m:3: expected model format 1, found '0'"),
        (resealed(BODY + b"# randsvm format \n"), "m:3: expected model format 1, found ''"),
        (resealed(BODY + b"# randsvm seed 7\n"), "m:3: expected '# randsvm format 1', found"),
        (
            BODY + b"# randsvm format 1\n# randsvm seed 7\n",
            "m:5: expected a line '# randsvm sha256",
        ),
        (sealed()[:-1], "m:7: expected a newline at the end"),
        (sealed().replace(b"0.5", b"0.6"), r"m:7: expected sha256 .* altered or damaged"),
        (
            resealed(BODY + b"# randsvm format 1\n# comment\n"),
            "m:4: expected '# randsvm key value'",
        ),
        (resealed(BODY + b"# randsvm format 1\n\n"), "m:4: expected '# randsvm key value'"),
        (
            resealed(BODY + b"# randsvm format 1\n# randsvm a 1\n# randsvm a 2\n"),
            "m:5: expected '# randsvm key value' and each key once, found '# randsvm a 2'",
        ),
        (sealed(body=b""), "m:1: expected a model, found its trailer alone"),
    ],
)
def test_a_bad_trailer_is_refused_by_line(content, message):
    with pytest.raises(ModelError, match=message) as caught:
        split_trailer(content, "m")
    assert caught.value.exit_code == 65
    assert "\n" not in str(caught.value)


def test_an_unknown_escape_is_left_as_it_stands():
    content = resealed(BODY + b"# randsvm format 1\n# randsvm path C:\\temp\\\n")
    assert split_trailer(content, "m")[1] == {"path": "C:\\temp\\"}
