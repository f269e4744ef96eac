"""randsvm-train as a newcomer, a cron job and a terminal meet it: messages, exit codes, files."""

import fcntl
import json
import os
import pty
import re
import shlex
import struct
import subprocess
import sys
import termios

import oracle
import pytest
from base import STANDARD_OUTPUTS
from commands import run_train
from learning import OLD_MODEL

from randsvm.cli import train as training

TEXT = "+1 1:1 2:0.5\n+1 1:2\n-1 1:-1 2:1\n-1 1:-2 2:-1\n"


@pytest.fixture
def toy(tmp_path):
    """Four rows, in the folder that `command` works in."""
    path = tmp_path / "toy.svm"
    path.write_text(TEXT)
    return path


def names(folder):
    return sorted(path.name for path in folder.iterdir())


# ---- help and options -----------------------------------------------------------------------


@pytest.mark.parametrize("word, number", [("rbf", 2), ("poly", 1), ("linear", 0), ("sigmoid", 3)])
def test_words_and_libsvms_numbers_mean_the_same(train, toy, word, number):
    assert train(toy, "-t", word).model.read_bytes() == train(toy, "-t", number).model.read_bytes()


# ---- usage ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "pair"),
    [
        ("toy.svm toy.svm", ("TRAIN_FILE", "MODEL_FILE")),
        ("toy.svm ./sub/../toy.svm", ("TRAIN_FILE", "MODEL_FILE")),
        ("toy.svm link", ("TRAIN_FILE", "MODEL_FILE")),
        ("--cache toy.svm toy.svm m", ("TRAIN_FILE", "--cache")),
        ("--cache m toy.svm m", ("--cache", "MODEL_FILE")),
        ("--log toy.svm toy.svm m", ("TRAIN_FILE", "--log")),
        ("--log m toy.svm m", ("MODEL_FILE", "--log")),
        ("--log c --cache c toy.svm m", ("--cache", "--log")),
        ("--log - toy.svm /dev/stdout", ("MODEL_FILE", "--log")),
        ("--log c --keep-rows c toy.svm m", ("--log", "--keep-rows")),
        ("--log c --certificate c toy.svm m", ("--log", "--certificate")),
        ("--html c --keep-rows c toy.svm m", ("--html", "--keep-rows")),
        ("--html c --certificate c toy.svm m", ("--html", "--certificate")),
        ("--keep-rows - toy.svm -", ("MODEL_FILE", "--keep-rows")),
        ("--html - --keep-rows - toy.svm m", ("--html", "--keep-rows")),
        ("--certificate - --keep-rows - toy.svm m", ("--certificate", "--keep-rows")),
        ("--cache old --warm-start old toy.svm m", ("--warm-start", "--cache")),
    ],
)
def test_no_output_replaces_another_file_of_the_run(command, toy, words, pair):
    (toy.parent / "sub").mkdir()
    (toy.parent / "link").symlink_to("toy.svm")
    (toy.parent / "old").write_text(OLD_MODEL)
    before = names(toy.parent)
    ended = command("train", "osuna", *words.split())
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith("randsvm-train: ")
    assert ended.stderr.endswith(f" is both {pair[0]} and {pair[1]}\n")
    assert (toy.read_text(), names(toy.parent)) == (TEXT, before)


@pytest.mark.parametrize("words", ["sgd --update", "randsvm --warm-start"])
def test_a_model_may_be_replaced_by_the_one_that_continues_it(command, toy, words):
    algorithm, option = words.split()
    assert command("train", algorithm, "toy.svm", "m").returncode == 0
    ended = command("train", algorithm, option, "m", "toy.svm", "m")
    assert (ended.returncode, ended.stderr.count("both")) == (0, 0)


@pytest.mark.parametrize(
    "words, rule",
    [
        ("randsvm", "--gap 0.001"),
        ("randsvm --sample-size 3", "--sample-size 3 --gap 0.001"),
        ("osuna", "--gap 0.001"),
        ("osuna-closest", "--gap 0.001"),
        ("randsvm -s one-class -k 3", "--gap 0.001"),
        ("randsvm --require-gap 0.1", "--gap 0.001"),
        ("randsvm --require-gap 1e-5", "--gap 1e-05"),
        ("randsvm -k 3", "-k 3 --sample-size 5"),
        ("randsvm -k 3 --gap none", "-k 3 --sample-size 5"),
        # k = ceil(32 ln(4n/delta) / epsilon^2), n = 4.
        ("randsvm --gap none", "-k 2303 --sample-size 3455"),
        ("randsvm --delta 0.5", "-k 2773 --sample-size 4160"),
        ("randsvm --distortion 0.4", "-k 576 --sample-size 864"),
        ("randsvm --separable", "-k 1152 --sample-size 1728"),
        ("osuna --gap none", "--gap none"),
        ("osuna -t sigmoid", ""),
        ("randsvm -t sigmoid", "-k 2303 --sample-size 3455"),
    ],
)
def test_a_plain_run_is_certified_and_options_of_k_ask_for_the_papers_rule(
    capsys, toy, words, rule
):
    run_train(*words.split(), toy, toy.with_suffix(".model"))
    said = capsys.readouterr().err
    assert re.search("-h 1 ?(.*?) ?--seed", said.splitlines()[0])[1] == rule
    stopped = oracle.trailer(toy.with_suffix(".model"))["stopped"]
    assert stopped.startswith("gap <= ") == ("gap 0.001" in rule or "gap 1e-05" in rule)
    assert ("no gap can end the run" in said) == ("sigmoid" in words)


@pytest.mark.parametrize(
    "words, said",
    [("", True), ("--require-gap 0.99", False), ("--gap none", False), ("--gap 0.99", False)],
)
def test_a_quiet_run_says_that_its_gap_was_not_reached(train, made, words, said):
    path, _, _ = made("checkerboard", 900)
    sizes = ("--sample-size", 100, "--max-iterations", 2)
    trained = train(path, "-q", "-g", 5, *sizes, *words.split())
    assert trained.stderr.startswith("GAP NOT REACHED: ") == said
    assert len(trained.stderr.splitlines()) == said


def test_newton_steps_that_miss_their_gap_say_so_in_every_report(capsys, made, tmp_path):
    path, _, _ = made("checkerboard", 200)
    log = tmp_path / "log"
    words = ("--gap", 1e-9, "--max-iterations", 1, "--epochs", 1, "--log", log)
    run_train("sgd", "-q", *map(str, words), str(path), str(tmp_path / "m"))
    assert capsys.readouterr().err.startswith("GAP NOT REACHED: ")
    records = {one["event"]: one for one in map(json.loads, log.read_text().splitlines())}
    assert [records[name]["gap_asked"] for name in ("started", "trained")] == [1e-9, 1e-9]


# ---- what is said, and where ----------------------------------------------------------------


def test_a_gap_of_many_digits_is_short(train, made):
    """Rounding is larger than objectives of 1e-298."""
    path, _, _ = made("checkerboard", 200)
    printed = train(path, "-g", 5, "-w", 1, "1e-300").stderr
    assert re.search(r"gap \d\.\d+e\+\d+%", printed), printed
    assert not re.search(r"\d{12}", printed)


def test_a_small_gap_in_percent_has_as_many_digits_as_the_number_beside_it(train, made):
    path, _, _ = made("checkerboard", 200)
    printed = train(path, "-g", 5, "--gap", 1e-6).stderr
    percent, gap = re.search(r"gap ([\d.e-]+)% \(([\d.e-]+)\)", printed).groups()
    assert 0 < float(gap) < 1e-6
    assert float(percent) == pytest.approx(100 * float(gap))


def test_the_model_is_in_the_working_folder_and_stdout_is_empty(command, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "toy.svm").write_text(TEXT)
    ended = command("train", "randsvm", "data/toy.svm")
    assert (ended.returncode, ended.stdout) == (0, "")
    assert names(tmp_path) == ["data", "toy.svm.model"]
    assert names(tmp_path / "data") == ["toy.svm"]


@pytest.mark.parametrize("output", STANDARD_OUTPUTS)
@pytest.mark.parametrize("words", [[], ["--report", "json"], ["-v", 2]])
def test_standard_input_to_standard_output_is_the_model_alone(command, toy, output, words):
    ended = command("train", "randsvm", *words, "-", output, stdin=TEXT.encode())
    assert (ended.returncode, names(toy.parent)) == (0, ["toy.svm"])
    assert command("train", "randsvm", "-q", *words, toy, "m").returncode == 0
    assert ended.stdout == (toy.parent / "m").read_text()


def test_quiet_is_silent(command, toy):
    ended = command("train", "randsvm", "-q", toy)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    assert names(toy.parent) == ["toy.svm", "toy.svm.model"]


def test_without_a_terminal_there_is_one_line_per_iteration(command, made):
    path, _, _ = made("checkerboard", 900)
    ended = command("train", "randsvm", "-g", 5, "-k", 350, "--sample-size", 400, path)
    lines = ended.stderr.splitlines()
    numbers = [int(line.split()[0]) for line in lines if re.match(r" *[0-9]+  ", line)]
    assert len(numbers) >= 3
    assert numbers == list(range(1, len(numbers) + 1))
    assert f"after {len(numbers)} iterations" in ended.stderr
    assert "\r" not in ended.stderr
    assert all("|SV|" in line and "gap" in line for line in lines if re.match(r" *[0-9]+  ", line))


@pytest.mark.parametrize(
    "name, words",
    [
        ("toy.svm", ""),
        ("a b; it's $HOME.svm", "-c 0.1 -g 1e-7 --seed 3"),
        ("-t.svm", "-c 3"),
        ("toy.svm", "--gap 0.01 --max-iterations 7 --time-limit 5m"),
        ("toy.svm", "-t poly -d 2 -r 1 -h 0 --separable -e 1e-4"),
    ],
)
def test_the_first_line_is_the_command_that_gives_the_same_bytes(command, tmp_path, name, words):
    (tmp_path / name).write_text(TEXT)
    model = tmp_path / f"{name}.model"
    ended = command("train", "randsvm", *words.split(), "--", name)
    assert ended.returncode == 0
    content = model.read_bytes()
    model.unlink()
    program, *arguments = shlex.split(ended.stderr.splitlines()[0])
    assert program == "randsvm-train"
    again = command("train", *arguments)
    assert again.returncode == 0
    assert again.stderr.splitlines()[0] == ended.stderr.splitlines()[0]
    assert model.read_bytes() == content


def test_a_terminal_sees_progress_bars(made, tmp_path):
    path, _, _ = made("checkerboard", 900)
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("4H", 24, 100, 0, 0))
    words = ["randsvm", "-g", "5", "-k", "350", "--sample-size", "400", str(path), "m"]
    with subprocess.Popen(
        [sys.executable, "-m", "randsvm.cli.train", *words],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=slave,
    ) as process:
        os.close(slave)
        seen = b"".join(iter(lambda: read_terminal(master), b""))
        assert process.stdout.read() == b""
    os.close(master)
    assert process.returncode == 0
    assert re.search(rb"\r *(reading|scanning|solving)\b", seen)
    assert b"stopped: no violators" in seen


def read_terminal(descriptor):
    """What comes next; b"" at the end, which Linux reports as an error."""
    try:
        return os.read(descriptor, 4096)
    except OSError:
        return b""


@pytest.mark.parametrize(
    ("words", "weights", "log", "file"),
    [
        (["-w1", "3", "a"], [("1", 3)], None, "a"),
        (["--", "-w1.svm", "-w"], [], None, "-w1.svm"),
        (["--log", "-w1.jsonl", "a"], [], "-w1.jsonl", "a"),
        (["-w", "-w1", "2", "-w2", "1", "a"], [("-w1", 2), ("2", 1)], None, "a"),
        (["-w", "balanced", "-w1.svm", "2", "a"], [("balanced", 1), ("1.svm", 2)], None, "a"),
        (["-wbalanced", "a"], [("balanced", 1)], None, "a"),
        (["--weight", "balanced", "a"], [("balanced", 1)], None, "a"),
        (["--weight=balanced", "a"], [("balanced", 1)], None, "a"),
        (["--log", "balanced", "-w-1", "0.5", "a"], [("-1", 0.5)], "balanced", "a"),
    ],
)
def test_class_weights_are_written_as_for_libsvm(words, weights, log, file):
    given = training.train.commands["randsvm"].make_context("randsvm", words).params
    found = [(label, weight) for label, weight in given["weights"]]
    assert (found, given["log"], given["train_file"]) == (weights, log, file)
