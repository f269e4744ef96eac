"""Test cross-validation and grid search against scikit-learn on the same folds, and against direct
training.
"""

import itertools
import json
import re
import signal
from itertools import pairwise

import numpy as np
import oracle
import pytest
from command_parts import Report
from commands import run_train
from learning import Data, learn
from sklearn.metrics import mean_squared_error, r2_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import SVC, SVR, OneClassSVM
from task_sets import GAMMA, SETS
from trainings import folds_of, open_task, rows_of_subset, searches, splits_of, subset_of

from randsvm import api, events
from randsvm.errors import Interrupted
from randsvm.events import Progress, Tried

# The options of the command, and scikit-learn's estimators.
WORDS = {
    "svc": ("-g", GAMMA),
    "several": ("-g", GAMMA),
    "svr": ("-s", "svr", "-g", GAMMA),
    "one-class": ("-s", "one-class", "-n", 0.2, "-g", GAMMA),
}
PEERS = {
    "svc": SVC(gamma=GAMMA, tol=1e-4),
    "several": OneVsRestClassifier(SVC(gamma=GAMMA, tol=1e-4)),
    "svr": SVR(gamma=GAMMA, epsilon=0.1, tol=1e-4),
    "one-class": OneClassSVM(gamma=GAMMA, nu=0.2, tol=1e-4),
}


@pytest.fixture
def write_set(tmp_path):
    """write_set(kind): write one of SETS to a file and return its path."""

    def save(kind):
        y, X = SETS[kind]
        labels = [f"{label:g} qid:{i // 5}" for i, label in enumerate(y)]
        return oracle.write_rows(tmp_path / kind, labels, X)

    return save


# ---- scores ------------------------------------------------------------------------------------


def score(kind, y, said):
    return mean_squared_error(y, said) if kind == "svr" else 100 * float(np.mean(y == said))


def four_splits(path, kind, groups=None):
    """Return masks of the training rows and of the held-out rows of four folds."""
    with open_task(path, kind, groups=groups == "qid") as D:
        return splits_of(D, folds=4, groups=groups)


def scores_by_hand(kind, data, splits):
    """Return the score of each fold, the held-out rows, and their predictions."""
    said, scores = np.full(len(data.y), np.nan), []
    for training, held in splits:
        said[held] = PEERS[kind].fit(data.X[training], data.y[training]).predict(data.X[held])
        scores.append(score(kind, data.y[held], said[held]))
    held = ~np.isnan(said)
    return scores, held, said[held]


# Folds that share kernel values, that start from each other, and that are trained from nothing.
WAYS = {
    "shared": ("randsvm",),
    "seeded": ("randsvm", "--search-gap", 1e-5, "--sample-size", 40),
    "cold": ("randsvm", "-e", 1e-4, "--gap", "none"),
    "osuna": ("osuna", "-e", 1e-4, "--gap", "none"),
}
CASES = [
    *((kind, way, None) for kind in SETS for way in WAYS),
    *(("svc", way, groups) for way in WAYS for groups in ("qid", "time")),
]


@pytest.mark.parametrize("kind, way, groups", CASES)
def test_scores_equal_scikit_learns_on_the_same_folds(
    tmp_path, write_set, capsys, kind, way, groups
):
    path, data = write_set(kind), SETS[kind]
    algorithm, *words = WAYS[way]
    words += [] if groups is None else ["--groups", groups]
    learnt = learn(algorithm, path, tmp_path / "m", "-v", 4, *words, *WORDS[kind])
    splits = four_splits(path, kind, groups)
    if groups == "time":
        assert all(np.flatnonzero(past).max() < np.argmax(held) for past, held in splits)
    scores, held, said = scores_by_hand(kind, data, splits)
    (found,) = learnt.of("tried")
    # One row in 50 may be too close to the hyperplane to decide.
    close = {"rel": 5e-3} if kind == "svr" else {"abs": 2.51}
    assert found["scores"] == pytest.approx(scores, **close)
    assert found["score"] == pytest.approx(score(kind, data.y[held], said), **close)
    assert found["rows"] == held.sum()
    assert learnt.metadata["cross_validation"] == f"{found['score_name']} {found['score']!r}"
    assert "searched" not in learnt.metadata
    out = capsys.readouterr().out
    if kind == "svr":
        lines = re.fullmatch(
            r"Cross Validation Mean squared error = (\S+)\n"
            r"Cross Validation Squared correlation coefficient = (\S+)\n",
            out,
        )
        assert float(lines[2]) == pytest.approx(np.corrcoef(data.y, said)[0, 1] ** 2, rel=1e-2)
        assert 0 < r2_score(data.y, said) < 1
    else:
        lines = re.fullmatch(r"Cross Validation Accuracy = (\S+)%\n", out)
    assert float(lines[1]) == pytest.approx(found["score"], rel=1e-5)


@pytest.mark.parametrize("kind", ["svc", "several", "svr"])
def test_scores_of_sgd_equal_those_of_a_file_for_each_fold(tmp_path, write_set, predict, kind):
    path, data = write_set(kind), SETS[kind]
    words = ("--epochs", 50, *WORDS[kind][:-2])
    (found,) = learn("sgd", path, tmp_path / "m", "-v", 4, *words).of("tried")
    splits, lines = four_splits(path, kind), path.read_text().splitlines(keepends=True)
    for (_, held), its_score in zip(splits, found["scores"], strict=True):
        for name, some in (("train", ~held), ("test", held)):
            rows = [line for line, wanted in zip(lines, some, strict=True) if wanted]
            (tmp_path / name).write_text("".join(rows))
        one = learn("sgd", tmp_path / "train", tmp_path / "one", *words)
        said = predict(tmp_path / "test", one.model).scores
        # The same rows in another random order.
        close = {"rel": 0.1} if kind == "svr" else {"abs": 4.01}
        assert its_score == pytest.approx(score(kind, data.y[held], said), **close)


# ---- the grid -----------------------------------------------------------------------------------

GRIDS = {
    "-c -g": ("svc", "randsvm", {"-c": (0.01, 1, 100), "-g": (0.001, 0.5)}),
    "several": ("several", "osuna", {"-c": (0.01, 1), "-g": (0.001, 0.5)}),
    "-p": ("svr", "randsvm", {"-p": (2, 0.1, 0.5)}),
    "-n": ("one-class", "randsvm", {"-n": (0.8, 0.1, 0.3)}),
    "components": ("svc", "randsvm", {"-g": (0.001, 0.5)}),
    "--lambda": ("svc", "sgd", {"--lambda": (10, 0.001)}),
    "sgd svr": ("svr", "sgd", {"-p": (3, 0.1), "-c": (0.001, 1)}),
}
FIELDS = {"-c": "C", "-g": "gamma", "-p": "epsilon", "-n": "nu", "--lambda": "lambda"}


@pytest.mark.parametrize("name", GRIDS)
def test_the_winner_of_a_grid_is_trained_on_all_rows(tmp_path, write_set, name, capsys):
    kind, algorithm, grid = GRIDS[name]
    path, words = write_set(kind), WORDS[kind][:2] if kind in ("svr", "one-class") else ()
    words = (*words, *(("--components", 100) if name == "components" else ()))
    lists = [word for flag, values in grid.items() for word in (flag, ",".join(map(str, values)))]
    found = learn(algorithm, path, tmp_path / "m", "-v", 3, *words, *lists)
    every, (searched,) = found.of("tried"), found.of("searched")
    assert len(every) == np.prod([len(values) for values in grid.values()])
    combinations = {tuple(one["values"][FIELDS[flag]] for flag in grid) for one in every}
    assert combinations == set(itertools.product(*grid.values()))
    best = searched["tried"][0]
    sign = 1 if kind == "svr" else -1
    scores = [sign * one["score"] for one in searched["tried"]]
    assert scores == sorted(scores)
    assert scores[0] < scores[-1]
    own = [word for flag in grid for word in (flag, best["values"][FIELDS[flag]])]
    straight = learn(algorithm, path, tmp_path / "straight", *words, *own)
    assert found.body == straight.body
    assert found.metadata["searched"] == len(every)
    assert f"= {best['score']:g}" in capsys.readouterr().out


def test_the_model_counts_the_combinations_with_a_score(tmp_path, write_set, monkeypatch):
    """There was no time for one of the three."""

    search = searches.search

    def ended_early(*given):
        found, params = search(*given)
        return found._replace(tried=found.tried[:2]), params

    monkeypatch.setattr(searches, "search", ended_early)
    learnt = learn("randsvm", write_set("svc"), tmp_path / "m", "-v", 3, "-c", "0.1,1,10")
    assert learnt.metadata["searched"] == 2


def test_a_signal_that_comes_with_a_score_leaves_it_to_the_listener(
    tmp_path, write_set, monkeypatch
):
    """The signal is raised once, before the event of the score."""
    received, mean_and_error = [], searches.mean_and_error
    monkeypatch.setattr(events._Signals, "first", None)
    monkeypatch.setattr(events._Signals, "raised", False)

    def signalled(*given):
        events.interrupt(signal.SIGTERM)
        return mean_and_error(*given)

    monkeypatch.setattr(searches, "mean_and_error", signalled)
    grid = {"C": [0.1, 1], "folds": 3, "no_racing": True, "jobs": 1}
    with pytest.raises(Interrupted):
        api.train(write_set("svc"), tmp_path / "m", watch=received.append, **grid)
    whole = [one for one in received if isinstance(one, Tried) and one.interrupted_after is None]
    assert [len(one.scores) for one in whole] == [3]


def test_each_combination_has_the_score_of_a_separate_cross_validation(tmp_path, write_set):
    grid = "-c", "0.01,1", "-g", "0.01,0.5"
    found = learn("randsvm", write_set("svc"), tmp_path / "m", *grid, "--no-racing")
    for one in found.of("tried"):
        values = [word for flag in ("-c", "-g") for word in (flag, one["values"][FIELDS[flag]])]
        alone = learn("randsvm", write_set("svc"), tmp_path / "alone", "-v", 5, *values)
        assert alone.of("tried")[-1]["scores"] == one["scores"]


def test_the_table_is_sorted_by_score(tmp_path, write_set, command):
    words = "-v", 3, "-c", "0.001,1,10", "--no-racing"
    ended = command("train", "randsvm", *words, write_set("svc"), "m")
    _, _, table = ended.stderr.partition("best first:\n")
    rows = re.findall(r"^  C (\S+) +accuracy (\S+)% +\+- (\S+)", table, re.MULTILINE)
    assert len(rows) == 3
    scores = [float(score) for _, score, *_ in rows]
    assert scores == sorted(scores, reverse=True)
    assert float(oracle.trailer(tmp_path / "m")["C"]) == float(rows[0][0])
    assert f"\ntraining on all rows with C {rows[0][0]}\n" in ended.stderr
    assert "lambda = " not in ended.stderr  # of no single C
    assert len({line.index("%") for line in table.splitlines()[:3]}) == 1


@pytest.mark.parametrize(
    "task, words, flag",
    [
        ("svc", "-c 0.0001,0.001,0.1", "-c"),
        ("svc", "-c 0.001,1,1000", "-c"),
        ("svc", "-c 0.1,1", "-c"),
        ("svc", "-g 0.01,0.1,100", "-g"),
        ("svr", "-c 10 -p 0,5,50", "-p"),
        ("svr", "-c 10 -p 0.01,5,50", "-p"),
    ],
)
def test_a_best_value_at_the_edge_of_its_list_is_noted(
    tmp_path, write_set, command, task, words, flag
):
    given = words.split()
    values = sorted(float(one) for one in given[given.index(flag) + 1].split(","))
    ended = command(
        "train", "randsvm", "-s", task, "-v", 3, "--no-racing", *given, write_set(task), "m"
    )
    name = FIELDS[flag]
    best = re.search(rf"best first:\n  {name} +(\S+)", ended.stderr)
    assert best is not None
    place = values.index(float(best[1]))
    # A list of two has no inside, and no epsilon is below 0.
    inside = len(values) < 3 or 0 < place < len(values) - 1 or values[place] == 0
    edge = "smallest" if place == 0 else "largest"
    note = f"at the edge of the lists ({name} {best[1]} is the {edge}): values beyond may be better"
    assert ended.stderr.count("at the edge of the lists") == ended.stderr.count(note) != inside


def test_a_long_table_has_the_best_combinations_and_the_simplest(tmp_path, write_set, command):
    grid = "-c", ",".join(f"{2.0**k}" for k in range(-6, 10))
    words = "-v", 3, *grid, "--no-racing", "--log", "log"
    ended = command("train", "randsvm", *words, write_set("svc"), "m")
    _, _, table = ended.stderr.partition("best first:\n")
    shown = re.findall(r"^  C (\S+) +accuracy", table, re.MULTILINE)
    (record,) = [
        one
        for one in map(json.loads, (tmp_path / "log").read_text().splitlines())
        if one["event"] == "searched"
    ]
    ranked = [f"{one['values']['C']:g}" for one in record["tried"]]
    assert len(ranked) == 16
    assert shown[:10] == ranked[:10]
    simplest = [f"{record['one_standard_error']['C']:g}"]
    assert shown[10:] in ([], simplest)
    assert set(simplest) <= set(shown)
    assert f"and {16 - len(shown)} more, which --log lists" in table


def test_a_search_on_a_subset_trains_the_model_on_all_rows(tmp_path, write_set):
    path, data = write_set("svc"), SETS["svc"]
    learnt = learn("randsvm", path, tmp_path / "m", "-v", 4, "--subset", 80, *WORDS["svc"])
    with open_task(path) as D:
        rows = rows_of_subset(D, 80)
        some = subset_of(D, 80, 0)
        (fold,) = folds_of(some, folds=4)
        assert (some.labels() == D.labels()[rows]).all()
    splits = [(fold != part, fold == part) for part in range(4)]
    scores, _, _ = scores_by_hand("svc", Data(data.y[rows], data.X[rows]), splits)
    (found,) = learnt.of("tried")
    assert found["scores"] == pytest.approx(scores, abs=5.01)
    assert found["rows"] == 80
    assert learnt.body == learn("randsvm", path, tmp_path / "all", *WORDS["svc"]).body


# ---- resuming from a log ------------------------------------------------------------------------

SEARCH = ("--no-racing", "-v", 3, "-c", "0.01,0.1,1,10", "-g", 0.5)


def logged(text):
    """Return the combinations in a part of a log with other lines."""
    lines = [line for line in text.splitlines(keepends=True) if line.endswith(b"\n")]
    return [json.loads(line) for line in lines if line.startswith(b'{"event": "tried"')]


def resumed(path, model, log, words=SEARCH):
    """Return the combinations of a search that resumes from this log."""
    file = model.with_suffix(".jsonl")
    file.write_bytes(log)
    run_train("randsvm", "-q", "--log", file, *words, path, model)
    whole = file.read_bytes()
    assert whole.startswith(log)
    return logged(whole[len(log) :])


@pytest.fixture
def finished_search(tmp_path, write_set):
    """Return a file, a finished search on it, and its log."""
    learnt = learn("randsvm", write_set("svc"), tmp_path / "whole", *SEARCH)
    return write_set("svc"), learnt, (tmp_path / "whole.jsonl").read_bytes()


def log_after(log, combinations):
    """Return the log after that many finished combinations."""
    lines = log.splitlines(keepends=True)
    ends = [i for i, line in enumerate(lines) if json.loads(line)["event"] == "tried"]
    return b"".join(lines[: ends[combinations - 1] + 1])


def test_a_search_reuses_the_scores_of_its_log(tmp_path, finished_search):
    path, whole, log = finished_search
    events = resumed(path, tmp_path / "m", log_after(log, 2))
    assert [one["resumed"] for one in events] == [True, True, False, False]
    assert [one["number"] for one in events] == [1, 2, 3, 4]
    scores = [
        {one["configuration"]: one["scores"] for one in some}
        for some in (events, whole.of("tried"))
    ]
    assert scores[0] == scores[1]
    assert (tmp_path / "m").read_bytes() == whole.model.read_bytes()


@pytest.mark.parametrize(
    "words",
    [
        ("randsvm", "-c", "1,2,4"),
        ("randsvm", "-c", "1,2,4", "--no-racing"),
        ("sgd", "--lambda", "0.1,0.01"),
    ],
)
def test_a_finished_search_takes_all_scores_from_its_log(tmp_path, write_set, words):
    log, models = tmp_path / "log", [tmp_path / "m1", tmp_path / "m2"]
    path, ends = write_set("svc"), [0]
    for model in models:
        run_train(words[0], "-q", "-v", 3, "--log", log, *words[1:], path, model)
        ends.append(log.stat().st_size)
    first, second = (logged(log.read_bytes()[a:b]) for a, b in pairwise(ends))
    assert [one["resumed"] for one in second] == [True] * len(first)
    key = "configuration"
    assert {one[key]: one["scores"] for one in second} == {one[key]: one["scores"] for one in first}
    assert models[0].read_bytes() == models[1].read_bytes()


def test_the_progress_of_fits_states_the_folds_that_run(tmp_path, write_set):
    stages = set()

    def watch(event):
        if isinstance(event, Progress) and event.unit == "fit":
            stages.add(event.stage)

    grid = {"C": [0.1, 1], "folds": 4, "no_racing": True}
    api.train(write_set("svc"), tmp_path / "m", "randsvm", watch, **grid)
    assert stages == {"fits, fold 1", "fits, fold 2 to 4"}


OTHER = {
    "other data": lambda log: log.replace(b'"digest": "', b'"digest": "0'),
    "other options": lambda log: log.replace(b" -e 0.001 ", b" -e 0.01 "),
    "another seed": lambda log: log.replace(b"--seed 0", b"--seed 1"),
    "other folds": lambda log: log.replace(b"-v 3", b"-v 4"),
    "another algorithm": lambda log: log.replace(b'"randsvm -s', b'"osuna -s'),
    "a line cut short": lambda log: log_after(log, 1)[:-9],
    "a line without scores": lambda log: re.sub(rb'"scores": .*?], ', b"", log),
    "a line with a word for a score": lambda log: re.sub(rb'"score": [^,]*', b'"score": "x"', log),
    "other things": lambda log: (
        b'{"event": "notice"}\n[1]\nnull\n"tried"\n{"event": "tried"}\nwords\n\xff\n'
    ),
}


@pytest.mark.parametrize("other", OTHER)
def test_log_lines_of_other_searches_are_ignored(tmp_path, finished_search, other):
    path, whole, log = finished_search
    altered = OTHER[other](log)
    assert altered != log
    events = resumed(path, tmp_path / "m", altered)
    assert [one["resumed"] for one in events] == [False] * 4
    assert (tmp_path / "m").read_bytes() == whole.model.read_bytes()


def test_an_interrupted_search_without_a_log_says_that_its_scores_are_lost(
    tmp_path, write_set, capsys
):
    """Finished combinations come before those with some folds."""
    events = []

    def watch(event):
        if isinstance(event, Tried):
            events.append(event)
        elif len(events) == 2 and isinstance(event, Progress):
            raise Interrupted(2)

    grid = {"C": [0.01, 0.1, 1, 10], "folds": 3, "no_racing": True, "jobs": 1}
    with pytest.raises(Interrupted) as raised:
        api.train(write_set("svc"), tmp_path / "m", "randsvm", watch, **grid)
    best = max(events[:2], key=lambda one: one.score)
    assert str(raised.value) == (
        f"interrupted by Ctrl-C: no model was written; the best combination so far is C "
        f"{best.values['C']:g}: accuracy {best.score:.6g}%"
    )
    report = Report("randsvm-train", {}, {"quiet": True, "report": "text"})
    with pytest.raises(Interrupted, match=r"Ctrl-C; without --log its scores are lost$"), report:
        report(events[0])
        raise Interrupted(2)
