"""Test osuna and osuna-closest: they share the start, choose violators in two ways, and reach
LIBSVM's optimum.
"""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from commands import run_train
from learning import answer_of, board, gaussians, learn, optimum
from rows import Draws
from scans import TASKS, case, task_file
from solving import file_order, largest_violation
from trainings import Decomposition, osuna

from randsvm.errors import ParameterError

BOTH = ("osuna", "osuna-closest")
ORDERS = {"osuna": file_order, "osuna-closest": largest_violation}
WORDS = "-t 2 -g 5"


@pytest.mark.parametrize("algorithm", BOTH)
def test_a_working_set_smaller_than_the_support_vectors_reaches_libsvms_optimum(
    tmp_path, algorithm, set_sizes
):
    """Also where a subproblem has more rows than whose kernel values are all held."""
    set_sizes(gram_rows=100)
    data, whole = board(2000), optimum("board", 2000, WORDS)
    path = data.save(tmp_path / "data")
    learnt = learn(
        algorithm, path, tmp_path / "m", *WORDS.split(), "--gap", "none", "--working-set", 250
    )
    found = answer_of(learnt.model, data, WORDS)
    assert (learnt.metadata["stopped"], learnt.metadata["violators"]) == ("no violators", 0)
    assert whole.unbounded < 250 < 3 * 250 < np.count_nonzero(whole.beta)
    assert max(event["working_set"] for event in learnt.rounds) == 250
    assert max(abs(found.primal - whole.dual), abs(found.dual - whole.dual)) <= 1e-3 * whole.dual


# ---- few rows, any task -----------------------------------------------------------------------


@pytest.mark.parametrize("size", [2, 3, 10])
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("algorithm", BOTH)
def test_the_smallest_working_sets_converge_and_no_round_lowers_d(tmp_path, algorithm, task, size):
    """The box and the sum stay exact over hundreds of rounds."""
    asked = replace(TASKS[task], coefficient_sum=30.0 if task == "one-class" else 0.0)
    with case(*task_file(tmp_path, asked, rows=100), asked) as one:
        duals, gaps = [], []
        rounds = osuna(
            Decomposition(one.scan, Draws(0), lambda: 1e-3), size, None, ORDERS[algorithm]
        )
        for _, V in itertools.islice(rounds, 1500):
            duals.append(V.certificate.dual)
            gaps.append(V.certificate.gap)
            if gaps[-1] <= 1e-2:
                break
        lower, upper = one.box
        beta = one.standing
        assert min(gaps) <= 1e-2
        assert (np.diff(duals) >= -1e-6 * np.abs(duals).max()).all()
        assert (lower <= beta).all() and (beta <= upper).all()
        total = asked.coefficient_sum
        assert beta.sum() == pytest.approx(total, abs=1e-9 * upper.max())


def test_a_working_set_that_exceeds_the_memory_is_refused(tmp_path):
    """A working set smaller than the data takes 16 bytes for each pair of its rows."""
    path = gaussians(5000).save(tmp_path / "data")
    words = (path, tmp_path / "m", "--memory", "300M", "--working-set")
    with pytest.raises(ParameterError, match="4500 rows take 309M, --memory is 300M"):
        run_train("osuna", *words, 4500)
    assert not (tmp_path / "m").exists()
    run_train("osuna", *words, 4400, "--max-iterations", 1)
    assert (tmp_path / "m").exists()


def test_few_rows_swapped_in_a_round_need_more_rounds(tmp_path):
    path = board(800).save(tmp_path / "data")
    rounds = {}
    for swap in (10, 100):
        learnt = learn(
            "osuna-closest", path, tmp_path / "m", "-g", 5, "--working-set", 200, "--swap", swap
        )
        rounds[swap] = len(learnt.rounds)
    assert rounds[10] > 2 * rounds[100]
