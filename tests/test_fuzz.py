"""Whatever a file holds, each reader ends in a right result or in one line: a share of `make fuzz`.

The cases, and what is checked of each, are in fuzzing.py.
"""

from __future__ import annotations

import random

import fuzzing
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

CASES = {"text": 400, "model": 300, "cache": 40, "log": 200, "line": 100}


@pytest.fixture(scope="module")
def fuzz(tmp_path_factory) -> fuzzing.Fuzz:
    return fuzzing.Fuzz(tmp_path_factory.mktemp("fuzz"))


@pytest.mark.parametrize("reader", CASES)
def test_a_damaged_file_is_read_right_or_refused_in_one_line(fuzz, reader):
    ends = {fuzz.one(reader, random.Random(f"0 {reader} {n}")) for n in range(CASES[reader])}
    assert len(ends) == 2, "all cases ended alike: the files are too much alike"


@pytest.mark.parametrize("reader", CASES)
def test_hypothesis_finds_no_other_file(fuzz, reader):
    @given(st.randoms(use_true_random=False))
    @settings(
        max_examples=CASES[reader] // 4,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    def one(chance: random.Random) -> None:
        fuzz.one(reader, chance)

    one()


@given(st.binary(max_size=300))
@settings(max_examples=200, derandomize=True, database=None)
def test_any_bytes_are_text_or_no_text(content):
    assert fuzzing.check_text(content, random.Random(0)) in ("accepted", "refused")
