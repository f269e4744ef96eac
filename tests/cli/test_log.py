"""--log, --report json, and that neither they nor resources change a byte of a model."""

import json
import math
import signal
import subprocess
import sys

import numpy as np
import pytest
from command_parts import as_json
from commands import run_train
from learning import answer_of, board, gaussians, learn, optimum

WORDS = "-t 2 -g 5"
GAP = ("randsvm", *WORDS.split(), "--gap", 0.001, "--sample-size", 250)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return board(2000).save(tmp_path_factory.mktemp("log") / "data")


# ---- the log --------------------------------------------------------------------------------


def test_rounds_are_numbered_over_all_pairs_of_classes(tmp_path):
    data = tmp_path / "data"
    lines = [f"{row % 4} 1:{row % 7} 2:{row % 4}\n" for row in range(400)]
    data.write_text("".join(lines))
    rounds = learn("randsvm", data, tmp_path / "m", "-g", 1).rounds
    assert len({event["machine"] for event in rounds}) == 6
    assert [event["number"] for event in rounds] == [*range(1, len(rounds) + 1)]
    # The pairs of small classes are one round.
    data.write_text("".join(lines[:60]))
    rounds = learn("randsvm", data, tmp_path / "m", "-g", 1).rounds
    assert [(event["number"], event["machine"]) for event in rounds] == [(1, "6 pairs")]


@pytest.mark.parametrize(
    "words",
    [
        GAP,
        ("osuna", *WORDS.split(), "--working-set", 250),
        ("osuna-closest", *WORDS.split(), "--working-set", 250),
        ("randsvm", *WORDS.split(), "-k", 999, "--sample-size", 1000),
    ],
    ids=lambda words: words[0],
)
def test_each_iteration_is_one_object_and_its_numbers_are_right(tmp_path, path, words):
    learnt = learn(words[0], path, tmp_path / "m", *words[1:])
    rounds, whole = learnt.rounds, optimum("board", 2000, WORDS)
    assert len(rounds) > 2
    assert [event["number"] for event in rounds] == [*range(1, len(rounds) + 1)]
    for event in rounds:
        assert event["bounded"] <= event["support_vectors"]
        assert event["dual"] <= whole.primal * (1 + 1e-6)
        assert event["primal"] >= whole.dual * (1 - 1e-6)
        assert event["seconds"] > 0
    # The gap is of the best so far: lowest P, highest D of any round, less what rounding may have
    # added to it.
    P = np.minimum.accumulate([event["primal"] for event in rounds])
    D = np.maximum.accumulate([event["dual"] for event in rounds])
    expected = (P - D) / np.maximum(np.abs(P), np.abs(D))
    assert [event["gap"] for event in rounds] == pytest.approx(expected.tolist(), abs=2e-5)
    found = answer_of(learnt.model, board(2000), WORDS)
    assert learnt.outcome["support_vectors"] == np.count_nonzero(found.beta)
    assert learnt.outcome["bounded"] == np.count_nonzero(np.abs(found.beta) == 1)


def test_the_log_of_a_killed_run_is_whole_up_to_its_last_line(tmp_path):
    """Each line is in the file before the next round begins."""
    path = board(5000).save(tmp_path / "data")
    words = ["osuna", "-g", "5", "--working-set", "300", "--swap", "1", "--log", "log", path, "m"]
    with subprocess.Popen(
        [sys.executable, "-m", "randsvm.cli.train", *map(str, words)],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        for line in process.stderr:
            if line.startswith("  12 "):
                break
        process.send_signal(signal.SIGKILL)
    *lines, _ = (tmp_path / "log").read_text().split("\n")
    events = [json.loads(line) for line in lines]
    numbers = [event["number"] for event in events if event["event"] == "iteration"]
    assert numbers == [*range(1, len(numbers) + 1)]
    assert len(numbers) >= 12
    # Killed like that there is no model, and no half of one.
    assert {found.name for found in tmp_path.iterdir()} == {"data", "log"}


# ---- what changes no byte -------------------------------------------------------------------


def test_numbers_that_json_lacks_are_null():
    found = as_json({"lambda_": math.inf, "gaps": (math.nan, -math.inf, 0.5)})
    assert found == {"lambda": None, "gaps": [None, None, 0.5]}


def test_records_after_a_line_that_was_cut_short_are_whole(tmp_path):
    path = gaussians(50).save(tmp_path / "data")
    log = tmp_path / "log"
    log.write_text('{"event": "notice", "text": "cut')
    run_train("osuna", "-q", "--log", log, path, tmp_path / "m")
    first, *lines = log.read_text().splitlines()
    assert first.endswith("cut")
    assert json.loads(lines[-1])["event"] == "trained"
