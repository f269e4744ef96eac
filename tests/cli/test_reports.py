"""The last record of a run: --report json, failures, and the page that describes records."""

import json
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest
from command_parts import COMMAND_ENDS, Failed
from commands import run_train
from learning import gaussians, read_log

from randsvm import events

PAGE = Path(__file__).parents[2] / "docs" / "file-formats.md"
REPORT = ("-q", "--report", "json")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Enter a folder with data of two classes and a file that is none."""
    gaussians(300).save(tmp_path / "data")
    (tmp_path / "bad").write_text("+1 1:1\n-1 1:x\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("algorithm", ["randsvm", "osuna", "osuna-closest", "sgd"])
def test_the_report_is_the_last_line_of_the_log(folder, capsys, algorithm):
    run_train(algorithm, *REPORT, "--log", "log", "data", "m")
    last = json.loads(capsys.readouterr().out)
    assert last == read_log(Path("log"))[-1]
    assert (last["algorithm"], last["exit_code"], last["n"]) == (algorithm, 0, 300)


# ---- failures -------------------------------------------------------------------------------

LATE = ("osuna", "-g", 5, "--working-set", 20, "--swap", 2)
FAILURES = {
    "bad data": (65, ("osuna", "bad", "m")),
    "no data": (66, ("osuna", "missing", "m")),
    "no folder": (73, ("osuna", "data", "no/m")),
    "gap": (75, (*LATE, "--max-iterations", 2, "--require-gap", 1e-6, "data", "m")),
    "contradiction": (2, ("sgd", "-c", 1, "--lambda", 1, "data", "m")),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_failed_run_writes_its_report_and_its_record(command, folder, name):
    code, words = FAILURES[name]
    ended = command("train", words[0], *REPORT, "--log", "log", *words[1:])
    report = json.loads(ended.stdout)
    assert (ended.returncode, report["exit_code"], report["algorithm"]) == (code, code, words[0])
    assert report["event"] == ("trained" if name == "gap" else "failed")
    if name != "gap":
        assert report["problem"] in ended.stderr
    if code == 2:
        assert not Path("log").exists()
    else:
        assert read_log(Path("log"))[-1] == report


def test_a_failed_prediction_has_a_report(command, folder):
    ended = command("predict", "--report", "json", "data", "bad", "labels")
    last = json.loads(ended.stdout)
    assert (last["event"], last["exit_code"], last["output"]) == ("failed", 65, "labels")


def test_a_bug_has_a_report(folder, monkeypatch, capsys):
    from randsvm import api

    def fail(*words, **options):
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(api, "train", fail)
    with pytest.raises(ZeroDivisionError):
        run_train(*REPORT, "--log", "log", "data", "m")
    assert json.loads(capsys.readouterr().out)["exit_code"] == 70
    (last,) = read_log(Path("log"))
    assert last["problem"] == "ZeroDivisionError: division by zero"


# ---- the process ----------------------------------------------------------------------------

ALLOCATING = """
import sys
block = b"x" * (300 << 20)
del block
from randsvm.cli.train import train
train.main(sys.argv[1:], standalone_mode=False)
"""


@pytest.mark.parametrize("code", ["from randsvm.cli.train import main; main()", ALLOCATING])
def test_the_last_record_has_host_and_peak_memory(folder, code):
    words = [sys.executable, "-c", code, "-q", "--report", "json", "data", "m"]
    ended = subprocess.run(words, capture_output=True, text=True, check=True)
    record = json.loads(ended.stdout)
    assert record["host"] == platform.node()
    size = record["peak_memory"] / 2**20
    assert 300 < size < 600 if code is ALLOCATING else 10 < size < 300


# ---- the page -------------------------------------------------------------------------------

RECORDS = {
    **{kind.__name__.lower(): kind for kind in COMMAND_ENDS},
    **{
        kind.__name__.lower(): kind
        for kind in (
            *(events.Started, events.Notice, events.Unwritten, events.Tried, events.Searched),
            *(events.Iteration, events.Epoch, events.Point, events.Updated, Failed),
        )
    },
}


# Fields in the rows of the table about all records. `parameters` holds the configuration.
OF_ALL = {"data", "model", "output", "algorithm", "n", "d", "nnz", "configuration"}


def test_the_page_of_file_formats_describes_every_field_of_every_record():
    section = PAGE.read_text().partition("\n## Log records\n")[2].partition("\n## ")[0]
    rows = {}
    for title, text in re.findall(
        r"^### (.*?)\n(.*?)(?=^### |\Z)", section, re.MULTILINE | re.DOTALL
    ):
        for name in re.findall(r"[a-z]\w*", title):
            rows.setdefault(name, set()).update(re.findall(r"`(\w+)`", text))
    described = {name: set(kind._fields) for name, kind in RECORDS.items()}
    missing = {
        name: {field.rstrip("_") for field in fields} - rows.get(name, set()) - OF_ALL
        for name, fields in described.items()
    }
    assert {name: fields for name, fields in missing.items() if fields} == {}
    assert {"exit_code", "peak_memory", "host"} <= set(re.findall(r"`(\w+)`", section))


def test_lines_of_weighted_rows_and_of_several_classes_say_what_they_count(tmp_path, capsys):
    data = tmp_path / "data"
    rows = [f"{label} cost:0.5 1:{label} 2:{k}\n" for k in range(4) for label in (1, 2, 3)]
    data.write_text("".join(rows))
    run_train("randsvm", "-c", 2, data, tmp_path / "m")
    lines = capsys.readouterr().err.splitlines()
    assert lines[2] == "C = 2, lambda = 0.0833333"
    assert [" 1 vs 2: " in line for line in lines[3:6]].count(True) == 1
    (stopped,) = [line for line in lines if line.startswith("stopped")]
    assert " after 3 iterations in all, " in stopped
    data.write_text("".join(rows).replace("cost:0.5 ", ""))
    run_train("randsvm", "-c", 2, data, tmp_path / "m")
    assert capsys.readouterr().err.splitlines()[2].endswith(" = 0.0416667")


def test_the_bytes_of_a_pass_have_a_unit_and_three_digits(folder, capsys):
    run_train("sgd", "--cache", "rows", "--log", "log", "data", "m")
    (begun,) = [one for one in read_log(Path("log")) if one["event"] == "started"]
    found = re.search(r"^each pass reads (\S+)M from the cache$", capsys.readouterr().err, re.M)
    assert float(found[1]) * 2**20 == pytest.approx(begun["pass_bytes"], rel=0.005)
    assert len(found[1].strip("0.")) <= 3


@pytest.mark.parametrize("epochs", [0, 1])
def test_newton_steps_are_counted_beside_the_others(folder, capsys, epochs):
    run_train("sgd", "--log", "log", "--epochs", epochs, "--gap", 0.001, "data", "m")
    count = read_log(Path("log"))[-1]["newton_steps"]
    others = "300 steps and " if epochs else ""
    assert f"stopped: gap <= 0.001 after {others}{count} Newton step" in capsys.readouterr().err
