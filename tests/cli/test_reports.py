"""The last record of a run: --report prometheus, --report-file, failures, and the JSON Schema."""

from __future__ import annotations

import json
import os
import platform
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import jsonschema
import pytest
from commands import run_predict, run_train
from fixtures import Command, ImportScript
from hypothesis import given
from hypothesis import strategies as st
from learning import board, gaussians, read_log
from prometheus_client.parser import text_string_to_metric_families

from randsvm.cli.log import RECORDS
from randsvm.cli.prometheus import LABELS, METRICS, exposition
from randsvm.errors import RandsvmError

SCHEMA = Path(__file__).parents[2] / "docs" / "log-records.schema.json"
PROMETHEUS = ("-q", "--report", "prometheus")
TO_FILE = (*PROMETHEUS, "--report-file", "report.prom")


def metrics(text: str) -> dict[str, float]:
    """Return metric -> value; every sample has the same labels, and a unit that fits its name."""
    found, labels = {}, set()
    for family in text_string_to_metric_families(text):
        assert (family.type, len(family.samples)) == ("gauge", 1)
        assert family.documentation.endswith(".")
        (sample,) = family.samples
        assert set(sample.labels) == set(LABELS)
        labels.add(tuple(sample.labels.items()))
        found[sample.name.removeprefix("randsvm_")] = sample.value
    assert len(labels) == 1
    return found


def labels_of(text: str) -> dict[str, str]:
    return next(iter(text_string_to_metric_families(text))).samples[0].labels


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Enter a folder with data of two classes and a file that is none."""
    gaussians(300).save(tmp_path / "data")
    (tmp_path / "bad").write_text("+1 1:1\n-1 1:x\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


# ---- metrics --------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["randsvm", "osuna", "osuna-closest", "sgd"])
def test_metrics_of_a_training_are_those_of_the_log(folder, algorithm) -> None:
    before = time.time()
    run_train(algorithm, *TO_FILE, "--log", "log", "data", "m")
    text, record = Path("report.prom").read_text(), read_log(Path("log"))[-1]
    found = metrics(text)
    asked = {"gap_asked_ratio": 0.001, "gap_ratio": record["gap"]}
    vectors = {"support_vectors": record["support_vectors"]}
    assert found == {
        "duration_seconds": record["seconds"],
        "rows": 300,
        "peak_memory_bytes": pytest.approx(record["peak_memory"], rel=0.2),
        "exit_code": 0,
        "completion_timestamp_seconds": pytest.approx(before, abs=100),
        **({} if algorithm == "sgd" else asked | vectors),
    }
    names = {"command": "randsvm-train", "algorithm": algorithm, "data": "data", "model": "m"}
    assert labels_of(text) == names
    assert sorted(path.name for path in folder.iterdir()) == [
        *("bad", "data", "log", "m", "report.prom")
    ]


def test_metrics_of_a_prediction(folder, capsys: pytest.CaptureFixture[str]) -> None:
    run_train("-q", "data", "m")
    run_predict(*TO_FILE, "data", "m", "labels")
    found = metrics(Path("report.prom").read_text())
    truth = [line.split()[0] for line in Path("data").read_text().splitlines()]
    correct = sum(map(str.__eq__, truth, Path("labels").read_text().split()))
    assert found["accuracy_ratio"] == pytest.approx(correct / 300, rel=1e-12)
    assert found["rows"] == 300
    assert capsys.readouterr().out == ""


def test_metrics_of_an_update_count_its_rows(folder) -> None:
    run_train("sgd", "-q", "data", "old")
    run_train("sgd", *TO_FILE, "--update", "old", "data", "m")
    assert metrics(Path("report.prom").read_text())["rows"] == 300


def test_metrics_go_to_standard_output_without_a_file(
    folder, capsys: pytest.CaptureFixture[str]
) -> None:
    run_train(*PROMETHEUS, "-v", 2, "data", "m")
    assert metrics(capsys.readouterr().out)["exit_code"] == 0


def test_names_of_files_are_escaped(folder) -> None:
    data = 'a "quoted\\n" \n name'
    Path("data").rename(data)
    run_train(*TO_FILE, data, "m")
    assert labels_of(Path("report.prom").read_text())["data"] == data


@given(
    st.text(st.characters(exclude_categories=["Cs"])), st.lists(st.text('a\\"\n{}#=,'), max_size=3)
)
def test_any_name_is_read_as_it_was_written(name: str, several: list[str]) -> None:
    record = {"command": name, "data": several, "time": "2026-01-02T03:04:05.678Z", "exit_code": 3}
    text = exposition(record)
    found = {"command": name, "algorithm": "", "data": " ".join(several), "model": ""}
    assert labels_of(text) == found
    assert metrics(text)["completion_timestamp_seconds"] == 1767323045.678


def test_a_name_that_is_not_utf_8_gives_a_file_that_is(folder) -> None:
    data = os.fsdecode(b"caf\xe9")
    Path("data").rename(data)
    run_train(*TO_FILE, data, "m")
    assert labels_of(Path("report.prom").read_text(encoding="utf-8"))["data"] == r"caf\udce9"


def test_names_of_metrics_have_base_units_and_no_two_meanings() -> None:
    for name in METRICS:
        unit = name.rpartition("_")[2]
        assert unit in {"ratio", "seconds", "bytes", "rows", "vectors", "code", "loss"}
    assert len({meaning for _, meaning in METRICS.values()}) == len(METRICS)


def test_the_page_of_file_formats_has_every_metric() -> None:
    text = SCHEMA.with_name("file-formats.md").read_text()
    named = re.findall(r"^\| `randsvm_(\w+)` \|", text, re.MULTILINE)
    assert named == [*METRICS]


# ---- failures -------------------------------------------------------------------------------

LATE = ("osuna", "-g", 5, "--working-set", 20, "--swap", 2)
FAILURES = {
    "bad data": (65, ("osuna", "bad", "m")),
    "no data": (66, ("osuna", "missing", "m")),
    "no folder": (73, ("osuna", "data", "no/m")),
    "gap": (75, (*LATE, "--max-iterations", 2, "--require-gap", 1e-6, "data", "m")),
    "value": (2, ("osuna", "--gap", "abc", "data", "m")),
    "bound": (2, ("osuna", "-c", 0, "data", "m")),
    "contradiction": (2, ("sgd", "-c", 1, "--lambda", 1, "data", "m")),
    "no argument": (2, ("osuna",)),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_failed_run_writes_its_report_and_its_record(command: Command, folder, name) -> None:
    code, words = FAILURES[name]
    # An old report is replaced.
    run_train(*TO_FILE, "data", "old")
    ended = command("train", words[0], *TO_FILE, "--log", "log", *words[1:])
    assert (ended.returncode, ended.stdout) == (code, "")
    text = Path("report.prom").read_text()
    found = metrics(text)
    assert found["exit_code"] == code
    assert labels_of(text)["algorithm"] == words[0]
    assert ("gap_ratio" in found) == (name == "gap")
    if code == 2:
        assert not Path("log").exists()
    else:
        last = read_log(Path("log"))[-1]
        assert last["event"] == ("trained" if name == "gap" else "failed")
        assert last["exit_code"] == code
        if name != "gap":
            assert last["problem"] in ended.stderr
    # And as JSON on standard output.
    ended = command("train", words[0], "-q", "--report", "json", *words[1:])
    last = json.loads(ended.stdout)
    assert (ended.returncode, last["exit_code"]) == (code, code)
    validate(last)


@pytest.mark.parametrize("words", [("-",), ("part*",)])
def test_a_run_without_a_name_for_its_model_has_a_report(
    command: Command, folder: None, words: tuple[str, ...]
) -> None:
    for name in ("part1", "part2"):
        Path(name).write_text("+1 1:1\n-1 2:1\n")
    ended = command("train", "-q", "--report", "json", *words)
    last = json.loads(ended.stdout)
    assert (ended.returncode, last["event"], last["exit_code"]) == (2, "failed", 2)
    assert last["problem"] in ended.stderr
    assert "a MODEL_FILE" in last["problem"]
    validate(last)


def test_a_failed_prediction_has_a_report(command: Command, folder) -> None:
    run_train("-q", "data", "m")
    ended = command("predict", *TO_FILE, "bad", "m", "labels")
    assert ended.returncode == metrics(Path("report.prom").read_text())["exit_code"] == 65
    ended = command("predict", "--report", "json", "data", "bad", "labels")
    last = json.loads(ended.stdout)
    assert (last["event"], last["exit_code"], last["output"]) == ("failed", 65, "labels")
    validate(last)


def test_an_interrupted_run_has_its_signal_in_all_reports(tmp_path: Path) -> None:
    path = board(5000).save(tmp_path / "data")
    words = ("osuna", "-g", 5, "--working-set", 300, "--swap", 1, *TO_FILE[1:], "--log", "log")
    with subprocess.Popen(
        [sys.executable, "-m", "randsvm.cli.train", *map(str, words), path, "m"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("   3 "):
                break
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    found = metrics((tmp_path / "report.prom").read_text())
    last = read_log(tmp_path / "log")[-1]
    assert (last["event"], last["exit_code"]) == ("trained", 143)
    assert found["exit_code"] == process.returncode == 143
    assert found["gap_ratio"] == last["gap"] > 0.001


def test_a_bug_has_a_report(folder, monkeypatch: pytest.MonkeyPatch) -> None:
    from randsvm import api

    def fail(*words: object, **options: object) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(api, "train_randsvm", fail)
    with pytest.raises(ZeroDivisionError):
        run_train(*TO_FILE, "--log", "log", "data", "m")
    assert metrics(Path("report.prom").read_text())["exit_code"] == 70
    (last,) = read_log(Path("log"))
    assert last["problem"] == "ZeroDivisionError: division by zero"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_report_that_cannot_be_written_is_74_and_the_log_has_that_code(
    command: Command, folder
) -> None:
    words = (*PROMETHEUS, "--log", "log", "data", "m")
    ended = command("train", *words[:-2], "--report-file", "/dev/full", *words[-2:])
    assert ended.returncode == 74
    problem = "writing /dev/full: No space left on device"
    assert ended.stderr.splitlines() == [
        f"note: {problem}: the run goes on without it",
        f"randsvm-train: {problem}: all else is done",
    ]
    *_, unwritten, trained = read_log(Path("log"))
    assert (unwritten["event"], unwritten["problem"]) == ("unwritten", problem)
    assert (trained["event"], trained["exit_code"]) == ("trained", 74)
    assert Path("m").exists()
    # A log that fails is in the report.
    ended = command("train", *TO_FILE, "--log", "/dev/full", "data", "m")
    assert ended.returncode == metrics(Path("report.prom").read_text())["exit_code"] == 74


# ---- the file -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["prometheus", "json"])
def test_a_report_replaces_only_a_report_of_its_kind(folder, kind) -> None:
    words = ("-q", "--report", kind, "--report-file", "r", "data", "m")
    for old in ("data", "m"):
        run_train("-q", "data", "m")
        content = Path(old).read_bytes()
        Path("r").write_bytes(content)
        with pytest.raises(RandsvmError, match="is not a report") as refused:
            run_train(*words)
        assert refused.value.exit_code == 73
        assert Path("r").read_bytes() == content
    Path("r").write_text("")
    for _ in range(2):
        run_train(*words)
        assert Path("r").read_text().count("exit_code") > 0


@pytest.mark.parametrize("other", ["data", "m", "log", "cache", "old"])
def test_a_report_is_no_other_file_of_the_run(folder, other) -> None:
    run_train("-q", "data", "old")
    words = ("--log", "log", "--cache", "cache", "--warm-start", "old", "data", "m")
    with pytest.raises(RandsvmError, match=f"{other} is both ") as refused:
        run_train(*PROMETHEUS, "--report-file", other, *words)
    assert refused.value.exit_code == 2
    with pytest.raises(RandsvmError, match=f"{other} is both "):
        run_predict(*PROMETHEUS, "--report-file", other, other, "old", "labels")


def test_a_report_file_needs_a_report(folder) -> None:
    for run, words in ((run_train, ("data", "m")), (run_predict, ("data", "m", "labels"))):
        with pytest.raises(RandsvmError, match="goes with --report json or prometheus"):
            run("--report-file", "r", *words)
    with pytest.raises(RandsvmError, match="--info MODEL goes with"):
        run_predict("--info", "m", *PROMETHEUS)
    assert not Path("r").exists()


def test_a_json_report_in_a_file_is_the_last_line_of_the_log(
    folder, capsys: pytest.CaptureFixture[str]
) -> None:
    run_train("-q", "--report", "json", "--report-file", "r", "--log", "log", "data", "m")
    assert json.loads(Path("r").read_text()) == read_log(Path("log"))[-1]
    assert capsys.readouterr().out == ""


# ---- the process ----------------------------------------------------------------------------

ALLOCATING = """
import sys
block = b"x" * (300 << 20)
del block
from randsvm.cli.train import train
train.main(sys.argv[1:], standalone_mode=False)
"""


@pytest.mark.parametrize("code", ["from randsvm.cli.train import main; main()", ALLOCATING])
def test_the_last_record_has_host_and_peak_memory(folder, code) -> None:
    words = [sys.executable, "-c", code, "-q", "--report", "json", "data", "m"]
    ended = subprocess.run(words, capture_output=True, text=True, check=True)
    record = json.loads(ended.stdout)
    assert record["host"] == platform.node()
    size = record["peak_memory"] / 2**20
    assert 300 < size < 600 if code is ALLOCATING else 10 < size < 300


# ---- the schema -----------------------------------------------------------------------------

VALIDATOR = jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text()))


def validate(record: dict) -> None:
    """Check a record against the schema of its kind, for a plain message, and the whole one."""
    kind = {"$ref": f"#/$defs/{record['event']}", "$defs": VALIDATOR.schema["$defs"]}
    jsonschema.Draft202012Validator(kind).validate(record)
    VALIDATOR.validate(record)


def test_the_schema_is_up_to_date(script: ImportScript) -> None:
    message = "run: python scripts/record_schema.py"
    assert SCHEMA.read_text() == script("record_schema").text(), message
    VALIDATOR.check_schema(VALIDATOR.schema)


def test_every_record_of_every_command_fits_the_schema(
    command: Command, folder, capsys: pytest.CaptureFixture[str]
) -> None:
    run_train("-q", "data", "plain")
    board(300).save(folder / "two")
    noisy = "".join(f"{i % 3} 1:{i % 3 + i % 2} 2:{i % 7}\n" for i in range(120))
    Path("three").write_text(noisy)
    trainings = [
        *((name, "data") for name in ("randsvm", "osuna", "osuna-closest", "sgd")),
        ("randsvm", "-c", "1,2", "-g", "0.1,1", "-v", 3, "data"),
        ("randsvm", "-v", 3, "data"),
        ("randsvm", "-s", "svr", "-v", 2, "two"),
        ("randsvm", "-s", "one-class", "-n", 0.1, "data"),
        ("randsvm", "-t", "sigmoid", "-g", 0.5, "-r", -1, "--max-iterations", 3, "data"),
        ("randsvm", "-b", 1, "three"),
        ("randsvm", "-k", 500, "data"),
        ("randsvm", "--warm-start", "plain", "data"),
        ("sgd", "--lambda", "0.1,0.01", "-v", 2, "three"),
        ("sgd", "-s", "svr", "--early-stopping", 0.2, "data"),
        ("randsvm", "three", "two"),
    ]
    for name, *words in trainings:
        run_train(name, "-q", "--log", "log", *words, "m")
    run_train("sgd", "-q", "data", "linear")
    run_train("sgd", "-q", "--log", "log", "--update", "linear", "data", "updated")
    for _, words in FAILURES.values():
        command("train", words[0], "-q", "--log", "log", *words[1:])
    if Path("/dev/full").exists():
        command("train", "-q", *PROMETHEUS, "--report-file", "/dev/full", "--log", "log", "data")
    records = read_log(Path("log"))
    capsys.readouterr()
    run_train("-q", "-s", "svr", "-b", 1, "data", "regression")
    for words in (["plain"], ["--metrics", "plain"], ["--metrics", "-b", 1, "regression"]):
        run_predict("--report", "json", *words[:-1], "data", words[-1], "labels")
        records.append(json.loads(capsys.readouterr().out))
    run_predict("--certify", "--report", "json", "three", "m", "-c", 1)
    records.append(json.loads(capsys.readouterr().out))
    for mode, *names in (
        ("--export", "c", "plain", "plain.c"),
        ("--importance", "data", "plain"),
        ("--explain", "data", "plain", "shapley"),
    ):
        run_predict(mode, *names, "--report", "json")
        records.append(json.loads(capsys.readouterr().out))
    for record in records:
        validate(record)
    assert {record["event"] for record in records} == set(RECORDS)
    lasts = {record["run"]: record["event"] for record in records}
    ends = {"trained", "failed", "predicted", "certified", "exported", "importances", "explained"}
    assert set(lasts.values()) == ends


@pytest.mark.parametrize(
    "change",
    [{"gap": "small"}, {"extra": 1}, {"exit_code": None}, {"schema": 2}, {"event": "ended"}],
    ids=str,
)
def test_the_schema_refuses_what_is_no_record(folder, change) -> None:
    run_train("-q", "--log", "log", "data", "m")
    record = read_log(Path("log"))[-1]
    VALIDATOR.validate(record)
    assert not VALIDATOR.is_valid(record | change)
    for name in ("time", "n", "exit_code", "gap", "data"):
        assert not VALIDATOR.is_valid({key: record[key] for key in record if key != name})
