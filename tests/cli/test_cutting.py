"""Real processes cut off at a random moment: a share of scripts/fuzz_limits.py."""

from __future__ import annotations

import cutting
import pytest


@pytest.fixture(scope="module")
def cuts(tmp_path_factory) -> cutting.Cuts:
    return cutting.Cuts(tmp_path_factory.mktemp("cutting"))


@pytest.mark.parametrize("number", range(4))
def test_a_time_limit_at_a_random_moment_loses_no_model(cuts, number):
    cuts.limit(number)


@pytest.mark.parametrize("number", range(4, 8))
def test_a_signal_at_a_random_moment_loses_no_model(cuts, number):
    cuts.signal(number)
