"""Test the benchmarks: the commands of each benchmark, its data sets, and the page made from
records.
"""

from __future__ import annotations

import json
import tracemalloc
from collections import Counter
from functools import partial
from math import inf

import click
import numpy as np
import oracle
import pytest
import real_sets
from click.testing import CliRunner
from commands import run_train


@pytest.fixture
def bench(script, tmp_path):
    """Run a hundredth of the size in a separate folder."""
    return script("benchmarks.trainings").Bench(1000, tmp_path, tmp_path)


# ---- sets -------------------------------------------------------------------------------------


def test_the_works_of_reduced_models_cover_all_real_sets(script):
    reduced = script("benchmarks.reductions").REDUCED
    made = set(script("benchmarks.real_data").PARAMETERS)
    assert made <= set(reduced)
    if real_sets.FOLDER is not None:
        every = {path.name.removesuffix(".xz") for path in real_sets.FOLDER.glob("*.xz")}
        training = {name for name in every if not name.endswith((".t", ".test"))}
        assert {file for name, (file, _) in reduced.items() if name not in made} == training


ROWS, WIDTH = 3000, 1000


@pytest.fixture
def large(tmp_path):
    """Return a file of 3 MB with distinct rows."""
    path = tmp_path / "rows"
    path.write_text("".join(f"{row:0{WIDTH - 1}}\n" for row in range(ROWS)))
    return path


def test_a_part_of_a_set_has_its_first_rows_or_a_random_share_in_order(script, large, tmp_path):
    sets, rows = script("benchmarks.sets"), large.read_bytes().splitlines()
    assert sets.first(large, ROWS, tmp_path) == large
    assert sets.first(large, ROWS - 1, tmp_path).read_bytes().splitlines() == rows[:-1]
    chosen = sets.sample(large, 0.1, tmp_path).read_bytes().splitlines()
    assert len(chosen) == ROWS // 10
    assert chosen == sorted(set(chosen) & set(rows))
    assert rows[ROWS // 4] < chosen[ROWS // 20] < rows[3 * ROWS // 4]


@pytest.mark.parametrize(("part", "size"), [("first", ROWS - 1), ("sample", 0.5)])
def test_sets_are_not_held_in_memory(script, large, tmp_path, part, size):
    take = partial(getattr(script("benchmarks.sets"), part), large, size, tmp_path)
    tracemalloc.start()
    take()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < ROWS * WIDTH / 3


# ---- works ------------------------------------------------------------------------------------


def test_loose_peers_train_with_a_larger_tolerance(script, bench):
    """The models and logs of the strict training are not changed."""
    trainings, name = script("benchmarks.trainings"), "regression-40000"
    plain, loose = trainings.training(name, bench), trainings.loose(f"loose-{name}", bench)
    ours, svm_train, intelex = loose.commands
    by_name = {command.name: command for command in plain.commands}
    assert ours.name == "randsvm --gap 0.001"
    tolerance = str(trainings.LOOSE[f"loose-{name}"][1])
    assert svm_train.name == f"svm-train, tolerance {tolerance}"
    for command, of in ((ours, ours.name), (svm_train, "svm-train"), (intelex, "intelex")):
        own, other = (
            Counter(word for word in each.words if not word.startswith(str(bench.results)))
            for each in (command, by_name[of])
        )
        assert own - other == Counter([] if command is ours else ["-e", tolerance])
        assert own >= other
    files = [{w for w in each.words if ".model" in w or ".jsonl" in w} for each in loose.commands]
    assert [len(each) for each in files] == [2, 1, 1]
    assert not set.union(*files) & {word for each in plain.commands for word in each.words}
    assert svm_train.once
    assert not intelex.once


def test_benchmarks_are_sorted_by_cost_with_loose_ones_last(script):
    works = list(script("benchmarks.__main__").WORKS)
    loose = [place for place, name in enumerate(works) if name.startswith("loose-")]
    assert len(loose) == 9
    assert works.index("growth-1000000") < min(loose)
    assert max(loose) < works.index("memory")
    assert {name for name, _ in script("benchmarks.trainings").LOOSE.values()} <= set(works)


def test_growth_is_measured_repeatedly_except_at_the_largest_size(script, bench, monkeypatch):
    works = script("benchmarks.works")
    monkeypatch.setattr(works, "made", lambda name, rows, seed, into: into / f"{name}.{rows}")
    monkeypatch.setattr(works, "output", lambda *words: "")
    grown = {
        name: work
        for name, work in script("benchmarks.__main__").WORKS.items()
        if name[:6] == "growth"
    }
    rounds = {int(name.partition("-")[2]): work(bench).rounds for name, work in grown.items()}
    assert {rows for rows, most in rounds.items() if most == inf} == {
        10_000,
        30_000,
        100_000,
        300_000,
    }
    assert rounds[1_000_000] == 1


def test_a_word_stands_for_all_works_that_begin_with_it(script):
    module = script("benchmarks.__main__")
    assert module.chosen([]) == list(module.WORKS)
    linear = [name for name in module.WORKS if name.startswith("linear-")]
    assert len(linear) > 3
    assert module.chosen(["linear", "a9a"]) == ["a9a", *linear]
    untuned = module.chosen(["untuned"])
    assert untuned == [f"untuned-{name}" for name in script("benchmarks.untuned").UNTUNED]


def test_a_run_resumes_with_what_the_last_one_did_not_begin(script, monkeypatch, tmp_path):
    module, begun = script("benchmarks.__main__"), []
    monkeypatch.setattr(module, "compare", lambda title, works, *rest, **_: begun.append(works))
    monkeypatch.setattr(module, "output", lambda *words, folder: "{}")
    words = ["--resume", "--results", str(tmp_path), "linear", "memory"]

    def run():
        return CliRunner().invoke(module.main, words).output

    assert "no run can be resumed" in run()
    last = tmp_path / "benchmarks.json"
    last.write_text('{"not_run": ["memory", "linear-a9a", "start-up"]}')
    run()
    last.write_text('{"not_run": ["start-up"]}')
    assert "every work of the last run was begun" in run()
    assert [list(works) for works in begun] == [["linear-a9a", "memory"]]


def test_searches_compare_equal_grids_and_the_best_scores(script, bench, tmp_path, monkeypatch):
    searches, peers = script("benchmarks.searches"), script("benchmarks.peers")
    names = {"digits", "sms_spam", "reviews", "magic04", "covtype-10000", "a9a"}
    assert set(searches.SEARCHES) == names
    y, X = oracle.two_gaussians(60, 0)
    train = oracle.write_svmlight(tmp_path / "d", y, X)
    monkeypatch.setattr(searches, "rows_of", lambda name, bench: train)
    for name, grid in searches.SEARCHES.items():
        comparison = searches.search(name, bench)
        own = [command for command in comparison.commands if command.gates is not None]
        assert (len(own) == 2) == grid.whole
        assert [command.name for command in comparison.commands[len(own) :]] == list(grid.peers)
        for command in comparison.commands:
            assert {grid.C, grid.gamma, str(train)} <= set(command.words)
    # Scores of a small grid by each program that is here.
    grid, scores = searches.Grid("1,2", "0.01,100"), []
    if not searches.NO_SKLEARN:
        peers.search("sklearn", str(train), str(tmp_path / "found"), grid.C, grid.gamma, "csr")
        scores.append(json.loads((tmp_path / "found").read_text())["score"])
    if not searches.NO_LIBSVM:
        peers.search("svm-train", str(train), str(tmp_path / "found"), grid.C, grid.gamma, "csr")
        scores.append(json.loads((tmp_path / "found").read_text())["score"])
    ours = searches.ours(bench, train, searches.RACING, grid)
    run_train(*ours.words[1:])
    quality = ours.quality()
    assert quality["fits"] > 0
    assert scores == pytest.approx([quality["score"]] * len(scores), abs=5)


def test_digits_are_written_as_rows_of_64_features(script, tmp_path):
    pytest.importorskip("sklearn")
    path = script("benchmarks.searches").digits(tmp_path)
    rows = path.read_text().splitlines()
    assert len(rows) == 1797
    values = [float(entry.split(":")[1]) for row in rows for entry in row.split()[1:]]
    assert max(values) == 1


# ---- sets that nothing was tuned on -----------------------------------------------------------


def test_every_untuned_set_has_options(script):
    sets, works = script("benchmarks.untuned_sets"), script("benchmarks.untuned")
    assert sorted(works.UNTUNED) == sorted(sets.NAMES)
    assert sorted(sets.DIGESTS) == sorted((*sets.BUNDLED, *sets.PACKED))
    assert sorted(sets.MAKERS) == sorted(sets.PACKED)
    assert len(sets.NAMES) >= 20


def test_each_division_has_every_row_once(script, tmp_path):
    path = tmp_path / "some.all"
    path.write_text("".join(f"{row}\n" for row in range(1003)))
    rows = path.read_bytes().splitlines()
    found = [
        [part.read_bytes().splitlines() for part in script("benchmarks.untuned_sets").division(*of)]
        for of in ((path, 0, tmp_path), (path, 1, tmp_path), (path, 0, tmp_path))
    ]
    for train, test in found:
        assert len(test) == 200
        assert sorted(train + test) == sorted(rows)
    assert found[0] == found[2]
    assert found[0] != found[1]
    assert found[0][1] != rows[:200]


@pytest.mark.parametrize("name", ["wine", "diabetes"])
def test_an_untuned_set_has_scaled_features_and_labels(script, tmp_path, name):
    """scikit-learn's scalers give the same values, in another order of rows."""
    datasets = pytest.importorskip("sklearn.datasets")
    preprocessing = pytest.importorskip("sklearn.preprocessing")
    pytest.importorskip("pandas")
    sets = script("benchmarks.untuned_sets")
    X, y = datasets.load_svmlight_file(str(sets.make(name, tmp_path, tmp_path)))
    expected, target = getattr(datasets, sets.BUNDLED[name])(return_X_y=True)
    if name == "diabetes":
        target = (target - target.mean()) / target.std()
    expected = np.column_stack([preprocessing.minmax_scale(expected), target])
    found = np.column_stack([X.toarray(), y])
    one, other = (table[np.lexsort(table.T[::-1].round(4))] for table in (found, expected))
    np.testing.assert_allclose(one, other, atol=1e-5)
    np.testing.assert_array_less(0, np.ptp(found, axis=0))


def test_a_changed_set_is_refused(script, tmp_path, monkeypatch):
    pytest.importorskip("pandas")
    pytest.importorskip("sklearn")
    sets = script("benchmarks.untuned_sets")
    monkeypatch.setitem(sets.DIGESTS, "iris", "0" * 64)
    with pytest.raises(click.ClickException, match="expected sha256 0000"):
        sets.make("iris", tmp_path, tmp_path)


def test_qualities_are_means_over_divisions_with_standard_errors(script, bench, monkeypatch):
    """scikit-learn's SVC has the same accuracies and areas under the curve."""
    svm, metrics = pytest.importorskip("sklearn.svm"), pytest.importorskip("sklearn.metrics")
    datasets = pytest.importorskip("sklearn.datasets")
    works = script("benchmarks.untuned")
    y, X = oracle.two_gaussians(600)
    y, X = (part[np.r_[np.flatnonzero(y > 0)[:60], np.flatnonzero(y < 0)]] for part in (y, X))
    folder = bench.results / "real"
    folder.mkdir()
    oracle.write_svmlight(folder / "some.all", y, X)
    monkeypatch.setitem(works.UNTUNED, "some", works.Untuned("some", "-c 2 -g 0.5", "-s 2 -c 1"))
    comparison = works.untuned("some", bench)
    ours, svm_train, linear, _ = comparison.commands
    assert [each.name for each in comparison.commands] == [
        "randsvm --gap 0.001",
        "svm-train",
        "liblinear-train, tuned",
        "randsvm-train, 100 rows",
    ]
    assert svm_train.words[-6:-2] == ["-c", "2", "-g", "0.5"]
    assert linear.words[1:-2] == ["-q", "-B", "1", "-s", "2", "-c", "1"]
    script("benchmarks.harness").output(*ours.words)
    found = ours.quality()
    scores = []
    for seed in range(5):
        train, test = (bench.results / f"some.{seed}.{part}" for part in ("train", "test"))
        rows, labels, others, truth = datasets.load_svmlight_files([str(train), str(test)])
        rows, others = rows.toarray(), others.toarray()
        model = svm.SVC(C=2, gamma=0.5).fit(rows, labels)
        area = metrics.roc_auc_score(truth, model.decision_function(others))
        scores.append((100 * model.score(others, truth), area))
    for place, (of, far) in enumerate((("accuracy", 0.3), ("auc", 0.003))):
        values = [each[place] for each in scores]
        assert found[of] == pytest.approx(np.mean(values), abs=far)
        assert found[f"{of}_error"] == pytest.approx(np.std(values, ddof=1) / 5**0.5, abs=far)
    assert found["gap"] <= 0.001


def test_the_area_under_the_curve_is_shown_for_unequal_classes_only(script, tmp_path):
    path, is_unequal = tmp_path / "rows", script("benchmarks.untuned").is_unequal
    for labels, unequal in (("+-----", True), ("++----", False), ("+-----2", False)):
        path.write_text("".join(f"{label}1 1:1\n" for label in labels))
        assert is_unequal(path) is unequal


def test_a_table_says_where_svm_train_is_faster_by_more_than_the_start(
    script,
):
    tables, harness = script("benchmarks.page_tables"), script("benchmarks.harness")
    compared = []
    for name, own in (("iris", 0.26), ("soil", 9.0)):
        ours = record("randsvm --gap 0.001", own, gap=0.0005, accuracy=95.5, accuracy_error=0.25)
        peers = [
            record("svm-train", 0.01 if name == "iris" else 7.5, accuracy=95.0),
            record("liblinear-train, tuned", 0.01, auc=0.75),
            record("randsvm-train, 100 rows", 0.25),
        ]
        compared.append(comparison(harness, f"untuned-{name}", ours, *peers))
    *_, iris, soil = tables.untuned({"comparisons": compared})
    assert "| 0.05% | no | 95.50 ± 0.25% | 95.00% | AUC 0.750 | 50, -, 50 |" in iris
    assert "| 0.05% | 1.2 s |" in soil
    assert "7.5 s | - | 9 s" in soil
    assert len(tables.untuned({"comparisons": []})) == 2


# ---- the page ---------------------------------------------------------------------------------


def record(name, seconds, **quality):
    numbers = {"wall": seconds, "cpu": seconds, "peak": 50.0}
    made = {"name": name, "words": [name], "runs": [numbers], "median": numbers, "ended": False}
    return made | {"best": numbers, "quality": quality}


def comparison(harness, name, *records):
    """Compare runs; the first is ours."""
    ours, *peers = records
    ours["peers"] = {peer["name"]: harness.against(ours, peer, ()) for peer in peers}
    return {"name": name, "rows": 1000, "commands": list(records)}
