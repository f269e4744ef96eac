"""Test several files that form one data set, in the order of their names or as listed."""

import pytest
from commands import run_predict, run_train
from learning import board

from randsvm.errors import DataError, InputError

ROWS = 600
WORDS = ("randsvm", "-g", 5, "--gap", 0.1, "-q")


@pytest.fixture(scope="module")
def whole_file(tmp_path_factory):
    return board(ROWS).save(tmp_path_factory.mktemp("files") / "whole")


@pytest.fixture(scope="module")
def model(whole_file, tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "m"
    run_train(*WORDS, whole_file, path)
    return path.read_bytes()


@pytest.fixture
def parts(whole_file, tmp_path):
    """Return files with the same rows; the first lacks its last newline, the second has no rows."""
    lines = whole_file.read_text().splitlines(keepends=True)
    texts = ["".join(lines[:100]).rstrip("\n"), "# nothing\n\n", "".join(lines[100:])]
    paths = [tmp_path / f"part-{number}.svm" for number in range(3)]
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text)
    return paths


def test_a_pattern_that_matches_one_file_trains_on_that_file(tmp_path, monkeypatch, whole_file):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "part-1.svm").write_bytes(whole_file.read_bytes())
    run_train(*WORDS, "part-1*.svm")
    assert {path.name for path in tmp_path.iterdir()} == {"part-1.svm", "part-1.svm.model"}


def test_a_cache_of_parts_is_rebuilt_if_a_part_changes(tmp_path, monkeypatch, parts, model):
    monkeypatch.chdir(tmp_path)
    seen = []
    for _ in range(2):
        run_train(*WORDS, "--cache", "c", "part-*.svm", "m")
        assert (tmp_path / "m").read_bytes() == model
        seen.append((tmp_path / "c").stat().st_ino)
    parts[1].write_text("+1 1:1\n")
    run_train(*WORDS, "--cache", "c", "part-*.svm", "m")
    seen.append((tmp_path / "c").stat().st_ino)
    assert seen[0] == seen[1] != seen[2]
    assert (tmp_path / "m").read_bytes() != model


@pytest.mark.parametrize(
    ("line", "problem"),
    [("+1 1:x\n", "found 'x'"), ("spam 1:1\n", "found 'spam'")],
)
def test_an_error_names_the_part_and_its_line(tmp_path, parts, line, problem):
    parts[1].write_text("# nothing\n" + line)
    with pytest.raises(DataError, match=problem) as error:
        run_train(*WORDS, tmp_path / "part-*.svm", tmp_path / "m")
    assert str(error.value).startswith(f"{parts[1]}:2:")


def test_predictions_of_parts_are_those_of_the_whole_file_in_order(
    tmp_path, whole_file, parts, model
):
    (tmp_path / "m").write_bytes(model)
    run_predict("-q", whole_file, tmp_path / "m", tmp_path / "expected")
    run_predict("-q", tmp_path / "part-*.svm", tmp_path / "m", tmp_path / "found")
    assert (tmp_path / "found").read_bytes() == (tmp_path / "expected").read_bytes()


@pytest.mark.parametrize("name", ["missing", "a" * 300])
def test_a_missing_part_is_named(tmp_path, parts, model, name):
    (tmp_path / "m").write_bytes(model)
    for run, *words in (
        (run_train, *WORDS, parts[0], name, tmp_path / "m"),
        (run_train, name, tmp_path / "m"),
        (run_predict, name, tmp_path / "m", tmp_path / "out"),
    ):
        with pytest.raises(InputError, match=f"cannot open {name}: "):
            run(*words)
