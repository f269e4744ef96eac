"""What a terminal of 80 columns sees: lines, bars, and nothing left behind."""

import io
import math
import re
import sys

import pytest
from command_parts import Bar, can_draw, lines
from commands import run_train

from randsvm.events import Iteration, Progress

ROUND = Iteration(
    number=3,
    seconds=1.25,
    solve_seconds=1.0,
    working_set=1000,
    support_vectors=754,
    bounded=681,
    violators=62,
    changed=5,
    scan_seconds=0.1,
    gap=0.01,
    bytes_moved=0,
    machine="",
    primal=541.447,
    dual=541.18,
)
LARGEST = {
    "number": 9999,
    "seconds": 99_999.99,
    "working_set": 123_456,
    "support_vectors": 12_345_678_901,
    "violators": 99_999,
    "gap": 1.99,
    "primal": -1.23456789e-100,
}


@pytest.mark.parametrize(
    "changed", [{}, LARGEST, {"gap": math.nan}, {**LARGEST, "machine": "a very long name " * 3}]
)
def test_a_round_takes_one_line_of_80_columns(changed):
    (line,) = lines.iteration(ROUND._replace(**changed))
    assert len(line) <= 80
    assert "\n" not in line
    assert "|V| " in line
    assert "|SV| " in line


# ---- bars -------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    """A stream that keeps what a terminal would show: rows, wrapped again if its width changes."""

    def __init__(self):
        super().__init__()
        self.columns, self.rows, self.column = 80, [""], 0
        self.written = []

    def isatty(self):
        return True

    def write(self, text):
        for part in re.findall(r"\033\[\d*[AJK]|\r|\n|[^\033\r\n]+", text):
            if part == "\r":
                self.column = 0
            elif part == "\n":
                self.rows, self.column = [*self.rows, ""], 0
            elif part.endswith("A") and part[0] == "\033":
                del self.rows[len(self.rows) - int(part[2:-1]) :]
            elif part[0] == "\033":
                self.rows[-1] = self.rows[-1][: self.column]
            else:
                self._put(part)
        self.written.append(text)
        return len(text)

    def _put(self, text):
        row = self.rows.pop().ljust(self.column)
        row = row[: self.column] + text + row[self.column + len(text) :]
        self.rows += [row[i : i + self.columns] for i in range(0, len(row), self.columns)]
        self.column = (self.column + len(text) - 1) % self.columns + 1

    @property
    def seen(self):
        return [row.rstrip() for row in self.rows if row.strip()]


@pytest.fixture
def opened(monkeypatch):
    """opened(): replace standard error by a Terminal. (pytest would undo that of a fixture.)"""

    def put():
        terminal = Terminal()
        monkeypatch.setattr(sys, "stderr", terminal)
        monkeypatch.delenv("NO_COLOR", raising=False)
        monkeypatch.setenv("TERM", "xterm")
        return terminal

    return put


@pytest.mark.parametrize("unit", ["B", "row", "fit", "beat"])
@pytest.mark.parametrize("total", [None, 1000])
def test_a_bar_stands_at_once_moves_and_leaves_nothing(opened, monkeypatch, unit, total):
    terminal = opened()
    bar, seen = Bar(is_drawn=True), []
    for done in (0, 1, 500):
        bar.draw(Progress("stage", done, total, unit))
        bar.bar.mininterval = 0.0
        (row,) = terminal.seen
        seen.append(row)
        assert row.startswith("stage: ")
    if unit != "beat":
        assert len(set(seen)) > 1
    bar.close()
    assert terminal.seen == []


def test_a_bar_goes_on_after_a_line(opened):
    """With the time since its stage began, not since the line. Less progress begins a new stage."""
    terminal = opened()
    bar = Bar(is_drawn=True)
    bar.draw(Progress("cross-validation", 0, 12, "fit"))
    bar.bar.mininterval, bar.bar.start_t = 0.0, bar.bar.start_t - 60
    bar.draw(Progress("cross-validation", 3, 12, "fit"))
    assert "| 01:00" in terminal.seen[0]
    bar.clear()
    assert terminal.seen == []
    sys.stderr.write("a line\n")
    bar.draw(Progress("cross-validation", 4, 12, "fit"))
    assert terminal.seen[0] == "a line"
    assert "4 of 12" in terminal.seen[1]
    assert "| 01:00" in terminal.seen[1]
    bar.draw(Progress("cross-validation", 0, 12, "fit"))
    assert "| 00:00" in terminal.seen[1]


def test_a_bar_shows_the_gap_of_the_last_round(opened):
    terminal, bar = opened(), Bar(is_drawn=True)
    bar.update(ROUND._replace(gap=0.0123))
    bar.draw(Progress("scanning", 5, 10))
    bar.bar.refresh()
    assert terminal.seen[0].endswith("gap 0.0123")


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "data"
    path.write_text("+1 1:1 2:0.5\n+1 1:2\n-1 1:-1 2:1\n-1 1:-2 2:-1\n")
    return path


def test_epochs_have_a_bar_on_a_terminal_and_some_lines_elsewhere(opened, capsys, text):
    model, words = text.with_suffix(".model"), ("sgd", "--epochs", 7)
    run_train(*words, text, model)
    rows = capsys.readouterr().err.splitlines()
    assert [int(row[5:9]) for row in rows if row.startswith("epoch")] == [1, 2, 5]
    terminal = opened()
    run_train(*words, text, model)
    assert not [row for row in terminal.seen if row.startswith("epoch")]
    assert max(map(len, terminal.seen[1:])) <= 80


@pytest.mark.parametrize("variables", [{"TERM": "dumb"}, {}])
def test_a_dumb_terminal_and_a_pipe_have_no_bars(monkeypatch, variables):
    monkeypatch.setattr(sys, "stderr", Terminal() if variables else io.StringIO())
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert not can_draw()


@pytest.mark.parametrize("colour", [True, False])
def test_a_missed_gap_is_loud_but_without_colours_where_nobody_wants_them(
    opened, monkeypatch, text, colour
):
    terminal = opened()
    if not colour:
        monkeypatch.setenv("NO_COLOR", "1")
    model = text.with_suffix(".model")
    run_train("--sample-size", 2, "--gap", 1e-9, "--max-iterations", 1, text, model)
    (line,) = [words for words in terminal.written if "GAP NOT REACHED" in words]
    assert ("\033[" in line) == colour
