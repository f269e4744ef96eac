"""Lines of a trailer: what is written is read, and what contradicts itself is refused."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from randsvm.data.scaling import Scaling
from randsvm.decimals import join_numbers, parse_numbers
from randsvm.errors import ModelError
from randsvm.models.trailer import SeenFeatures, Trailer, trailer_items

FIVE = SeenFeatures.of(np.array([1, 2, 3, 7, 9], np.int32))


# ---- seen features --------------------------------------------------------------------------


@given(st.sets(st.integers(0, 40), max_size=30) | st.sets(st.integers(0, 2**31 - 1), max_size=9))
def test_seen_features_are_written_as_runs_and_read_back(features):
    found = SeenFeatures.parse(str(SeenFeatures.of(np.array(sorted(features), np.int32))))
    assert found.indices(100).tolist() == sorted(features)
    assert found.count == len(features)
    asked = np.array([0, 7, 40, 2**31 - 1, *features], np.int64)
    assert found.contains(asked).tolist() == [index in features for index in asked.tolist()]


def test_one_index_too_many_shows_that_there_are_more():
    assert str(FIVE) == "1-3,7,9"
    assert FIVE.indices(5).tolist() == [1, 2, 3, 7, 9]
    assert FIVE.indices(4).tolist() == [1, 2, 3, 7, 9]
    assert FIVE.indices(3).tolist() == [1, 2, 3, 7]
    assert len(SeenFeatures.parse("1-2147483647").indices(10)) == 11


@pytest.mark.parametrize(
    "text", ["1,", "1-", "-1", "3-1", "2,1", "1,1", "1-3,3", "1 2", "1-2-3", "2147483648", "1.5"]
)
def test_what_is_no_runs_of_features_is_refused(text):
    with pytest.raises(ModelError, match=r"^m: expected .*features"):
        Trailer("m", {"features": text}).seen_features()


# ---- lines ----------------------------------------------------------------------------------


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False)))
def test_numbers_come_back_to_the_last_bit(numbers):
    array = np.array(numbers, np.float64)
    assert parse_numbers(join_numbers(array)).tobytes() == array.tobytes()


@pytest.mark.parametrize("text", ["nan", "inf", "1e999", "1_0", "0x1", "a"])
def test_what_is_no_finite_number_is_refused(text):
    with pytest.raises(ModelError, match=r"^m: expected finite numbers$"):
        Trailer("m", {"key": f"1 {text}"}).take("key", parse_numbers)


@pytest.mark.parametrize("zero_based", [False, True])
@pytest.mark.parametrize(
    "scaling",
    [
        None,
        Scaling("unit"),
        Scaling("standard", None, np.arange(1, 6) / 3),
        Scaling("minmax", np.arange(5) / 7, np.arange(1, 6) / 3),
    ],
)
def test_all_lines_are_read_as_they_were_written(zero_based, scaling):
    lines = trailer_items(["+1", "-1.0"], zero_based, FIVE, scaling, float64=zero_based)
    metadata = Trailer("m", {"seed": "7", **lines})
    assert metadata.labels((1, -1), 2) == (("+1", "-1.0"), (1, -1))
    assert metadata.zero_based() == zero_based
    assert metadata.float64() == zero_based
    assert str(metadata.seen_features()) == str(FIVE)
    found = metadata.scaling(FIVE)
    assert repr(found) == repr(scaling)
    assert metadata.unparsed == {"seed": "7"}


def test_without_a_trailer_the_header_has_the_labels():
    metadata = Trailer("m", None)
    assert metadata.labels((3, -1), 2) == (("3", "-1"), (3, -1))
    assert (metadata.zero_based(), metadata.seen_features(), metadata.scaling(None)) == (
        False,
        None,
        None,
    )


@pytest.mark.parametrize(
    ("labels", "header", "message"),
    [
        ("ham", None, "m: expected two labels in the trailer, found 1"),
        ("a b c", None, "m: expected two labels in the trailer, found 3"),
        ("ham ham", None, "m: expected different labels of one kind, found 'ham ham'"),
        ("1 +1", None, "m: expected different labels of one kind, found '1 +1'"),
        ("1 ham", None, "m: expected different labels of one kind, found '1 ham'"),
        ("-1 +1", (1, -1), "m: expected labels as in the header, found '-1 +1'"),
    ],
)
def test_labels_that_contradict_the_model_are_refused(labels, header, message):
    with pytest.raises(ModelError, match=f"^{re.escape(message)}$"):
        Trailer("m", {"labels": labels}).labels(header, 2)


@pytest.mark.parametrize(
    "lines",
    [
        {"scale": "half"},
        {"scale": "unit", "scale_factor": "1 1 1 1 1"},
        {"scale": "unit", "scale_shift": "1 1 1 1 1"},
        {"scale": "minmax"},
        {"scale": "minmax", "scale_shift": "1 1 1 1 1"},
        {"scale": "minmax", "scale_factor": "1 1 1 1"},
        {"scale": "minmax", "scale_factor": "1 1 1 1 1", "scale_shift": "1"},
    ],
)
def test_a_scaling_that_does_not_fit_its_features_is_refused(lines):
    with pytest.raises(ModelError, match="expected a scaling of each known feature"):
        Trailer("m", lines).scaling(FIVE)
    with pytest.raises(ModelError, match="expected a scaling of each known feature"):
        Trailer("m", {"scale": "unit"}).scaling(None)
    with pytest.raises(ModelError, match="expected a scaling of each known feature"):
        Trailer("m", {"scale": "unit"}).scaling(SeenFeatures.parse("1-2147483647"))


def test_an_index_base_is_0_or_1():
    with pytest.raises(ModelError, match="expected index_base 0 or 1 in the trailer, found '2'"):
        Trailer("m", {"index_base": "2"}).zero_based()


@pytest.mark.parametrize("text", ["a", "{}", "[1, 2]", '["a"]', '["a", "a"]', '["a", "b", "c"]'])
def test_what_is_no_text_for_each_label_is_refused(text):
    with pytest.raises(ModelError, match=r"^m: expected a text for each label, found"):
        Trailer("m", {"label_texts": text}).label_texts(2)
