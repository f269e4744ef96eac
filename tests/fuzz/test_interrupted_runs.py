"""Test a time limit or a signal at a random moment; see support/interrupted_runs.py."""

from __future__ import annotations

import interrupted_runs
import pytest
from learning import SLOWNESS

# Maximum seconds on an idle machine after the time limit and the tolerance, or after a signal.
LATE = 5.0 * SLOWNESS


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return interrupted_runs.InterruptedRuns(tmp_path_factory.mktemp("interrupted"))


@pytest.mark.fuzz
@pytest.mark.parametrize("kind", ["limit", "signal"])
@pytest.mark.parametrize("number", range(50))
def test_runs_end_soon_after_a_time_limit_or_a_signal(runs, kind, number):
    _, late = getattr(runs, kind)(number)
    assert late <= LATE
