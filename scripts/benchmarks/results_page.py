"""Publish the results of the benchmarks: docs/benchmarks.json, the pages and the pictures.

docs/benchmarks.json is the copy of results/benchmarks.json that the repository keeps. Every table
of docs/results.md, docs/benchmarks.md and README.md, and both pictures, are made from it. Nothing
is measured. The pictures need matplotlib (extra plot).
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Callable, Sequence
from math import inf, log10
from operator import itemgetter
from pathlib import Path

import click

import plot
from benchmarks import page_tables, papers
from benchmarks.harness import put
from benchmarks.sets import SCRIPTS, results_option
from benchmarks.tables import (
    Record,
    bounded,
    day_and_duration,
    left_out,
    peak,
    spread,
    table,
    value,
)
from benchmarks.trainings import ALL_CORES, LOOSE, TENTH, TRAININGS
from benchmarks.untuned import DIVISIONS, RARE, START_ROWS
from benchmarks.untuned_search import ROWS as SEARCHED
from benchmarks.works import MAX_ROWS
from randsvm import files

REAL_SETS = ("covtype", "covtype7", "census", "flights", "delay", "a9a", "satimage", "reuters_r8")
# Works whose gap is drawn against time, where they were measured.
DRAWN = ("covtype-30000", "a9a", "checkerboard", "twonorm")
REACHED = 0.001  # the gap at which times are compared on equal terms
SAME = "At a similar gap"
UNTUNED_SETS = "Sets that were not used in development"
REPORTED = "reported"


ABOUT_UNTUNED = f"""\
C and gamma were found by a cross-validation of scikit-learn's SVC and SVR on {SEARCHED:,} rows, and
the C of the linear machine by liblinear-train -C on the same rows (options:
`scripts/benchmarks/untuned.py`). Qualities with "+-" are means of {DIVISIONS} random divisions into
training and test rows, with the standard error of the mean; times and gaps are those of the first
division. AUC is shown where one of two classes has less than {RARE:.0%} of the rows. The last row
of each set is the time that randsvm-train needs for {START_ROWS} rows, mostly Python's start."""


def introduction(effort: Record) -> str:
    """Return how the commands were measured, how often and for how long they ran."""
    once, own, most = (f"{effort[name]:g}" for name in ("once", "own_once", "most"))
    return f"""\
Every line of a training is one whole process, which reads the file and writes the model. The
commands of a benchmark run in turn. Seconds are the median of the runs, with the smallest and the
largest in brackets. A peer that takes {once} s or more is run once; randsvm is run once if it takes
{own} s or more. A peer that takes more than {most} s is ended, unless it was given more time: the
table has "> {most}", its result is unknown, and its ratio is a lower bound. "Fit alone" is the
training without start and reading, as measured around the library's own call. A peak with "<=" is
an upper bound: the measurement cannot show less. "Time / ours" is the time of a peer divided by
that of randsvm. A goal "3 times X" is reached if X takes at least 3 times as long as randsvm; "X's
fit alone" compares the whole process of randsvm with the training time of X.

Gap and accuracy are computed from each model file: P and D by `randsvm-predict --certify`
(unless a note above names another program), in double precision. Only the reader and the kernel
functions are shared with the training. The gap is (P - D) / max(|P|, |D|) and
bounds the distance to the optimum; for several classes it is the largest gap of a pair. Gaps that
need more than 7e9 kernel values are not computed. A gap marked "({REPORTED})" is the
one that randsvm reports, not checked by --certify. Accuracy is on at
most 10,000 rows that were not trained on; a regression has its mean squared error there. The
time of a peer is "not compared" if randsvm is less accurate by more than 0.2 percentage points
(0.3 for several classes; 1% of the squared error).

Peers: `svm-train -m 2000` (one core, 2 GB of kernel cache); "{ALL_CORES}", LIBSVM as
libsvm-official builds it with OpenMP, through its own Python bindings; "intelex", the SVC and SVR
of scikit-learn-intelex on all cores, with 2 GB of cache, scikit-learn's reader, and sparse or
dense rows, whichever is faster; "{TENTH}" of the rows, drawn at random, to compare with training
on fewer rows."""


# ---- cells ------------------------------------------------------------------------------------


def _name(record: Record) -> str:
    """Return the name of the command without the path of the model that it starts from."""
    return record["name"].partition(" --warm-start ")[0] + (
        " --warm-start" if "--warm-start" in record["name"] else ""
    )


def _seconds(record: Record, of: str = "wall") -> str:
    runs = [run[of] for run in record["runs"] if of in run]
    if not runs:
        return ""
    middle = bounded(record, f"{record['median'][of]:.3g}")
    return middle if len(runs) == 1 else f"{middle} ({min(runs):.3g}-{max(runs):.3g})"


def _gap(record: Record) -> str:
    quality = record["quality"]
    if "gap" in quality:
        return _percent(quality["gap"])
    if "reported_gap" in quality:
        return f"{_percent(quality['reported_gap'])} ({REPORTED})"
    return "not evaluated" if "SV" in quality else ""


def _percent(gap: float) -> str:
    return f"{gap:.2%}" if gap >= 0.01 else f"{gap:.4%}"


def _accuracy(record: Record) -> str:
    """Return the qualities on test rows, with the standard error of those that are means."""
    spelling = {
        "accuracy": ("{:.2f}", "%"),
        "auc": ("AUC {:.4f}", ""),
        "mse": ("mse {:.4f}", ""),
        "inliers": ("{:.1f}", "% inside"),
    }
    quality = record["quality"]
    cells = []
    for of, (number, unit) in spelling.items():
        if of in quality:
            error = quality.get(f"{of}_error")
            more = "" if error is None else f" +- {error:.2g}"
            cells.append(f"{number.format(quality[of])}{more}{unit}")
    return ", ".join(cells)


def _size(record: Record) -> str:
    return f"{record['quality']['SV']:,.0f}" if "SV" in record["quality"] else ""


def _other(record: Record) -> str:
    own = {
        name: value
        for name, value in record["quality"].items()
        if name not in ("SV", "reported_gap")
    }
    return ", ".join(f"{name} {value:.6g}" for name, value in own.items())


def _quality(record: Record, name: str, spelling: str) -> str:
    return spelling.format(record["quality"][name]) if name in record["quality"] else ""


Column = tuple[str, Callable[[Record], str]]
ENDS: list[Column] = [("peak MB", peak)]
KERNEL: list[Column] = [
    ("fit alone", lambda record: _seconds(record, "fit")),
    ("gap", _gap),
    ("test accuracy", _accuracy),
    ("SV", _size),
    *ENDS,
]
GENERAL: list[Column] = [("quality", _other), *ENDS]
SEARCH: list[Column] = [
    ("CPU seconds", lambda record: _seconds(record, "cpu")),
    ("best score", lambda record: _quality(record, "score", "{:.2f}%")),
    ("final fits", lambda record: _quality(record, "fits", "{:.3g}")),
    *ENDS,
]


def _times(ours: Record, peer: Record) -> str:
    """Return the time of a peer, and of its fit, divided by ours."""
    found = ours["peers"].get(peer["name"])
    if found is None or not found["times"]:
        return "not compared" if found and found["short"] else ""
    fit = f"; fit {found['fit']['median']:.3g}" if found["fit"] else ""
    return spread(found["times"]) + fit


def _table(comparisons: Sequence[Record], columns: Sequence[Column]) -> list[str]:
    header = ["benchmark", "program", "seconds", *(title for title, _ in columns), "time / ours"]
    rows = []
    for each in comparisons:
        first = each["commands"][0]
        for place, record in enumerate(each["commands"]):
            title = "" if place else f"{each['name']}, {each['rows']:,} rows"
            faster = _times(first, record) if place and "peers" in first else ""
            cells = [cell(record) for _, cell in columns]
            rows.append([title, _name(record), _seconds(record), *cells, faster])
    return table(header, rows)


# ---- sections ---------------------------------------------------------------------------------


def _is_large(each: Record) -> bool:
    first = each["commands"][0]["name"]
    return first.startswith(papers.LARGE_GAP) or each["name"].startswith("warm start")


def sections(found: Record) -> list[str]:
    rest = list(found["comparisons"])

    def those(test: Callable[[Record], bool]) -> list[Record]:
        chosen = [each for each in rest if test(each)]
        rest[:] = [each for each in rest if not test(each)]
        return chosen

    growth = those(lambda each: each["name"] == "growth")
    loose = those(lambda each: each["name"] in LOOSE)
    large = those(_is_large)
    groups = [
        ("Real data", KERNEL, those(lambda each: _set(each) in REAL_SETS)),
        (UNTUNED_SETS, KERNEL, those(lambda each: each["name"].startswith("untuned-"))),
        ("Generated data", KERNEL, those(lambda each: _set(each) is not None)),
        (SAME, KERNEL, loose),
        ("A million rows and more, and warm starts", KERNEL, large),
        ("Linear machines", GENERAL, those(lambda each: each["name"].startswith("linear"))),
        ("Searches", SEARCH, those(lambda each: each["name"].startswith("search "))),
        ("Prediction, reading, start-up, memory", GENERAL, rest),
    ]
    lines = []
    for title, columns, chosen in groups:
        if chosen:
            lines += ["", f"## {title}", ""]
            lines += _fastest(found, loose) if title == SAME else []
            lines += [ABOUT_UNTUNED, ""] if title == UNTUNED_SETS else []
            lines += _table(chosen, columns)
    return lines + (_growth(growth) if growth else [])


def _set(each: Record) -> str | None:
    """Return the data set of a training; None for other benchmarks."""
    return TRAININGS[each["name"]].set if each["name"] in TRAININGS else None


def _fastest(found: Record, loose: Sequence[Record]) -> list[str]:
    """Return for each data set the fastest peer with a gap of at most REACHED, at any tolerance."""
    by_name = _by_name(found)
    rows = []
    for each in loose:
        name, _ = LOOSE[each["name"]]
        near = [
            (record, compared["commands"][0])
            for compared in (each, by_name.get(name, {"commands": [None]}))
            for record in compared["commands"][1:]
            if not record["name"].startswith("randsvm") and not record["ended"]
            if record["quality"].get("gap", inf) <= REACHED
        ]
        ours, cells = each["commands"][0], ["none", "", "", ""]
        if near:
            fastest, ours = min(near, key=lambda pair: pair[0]["median"]["wall"])
            cells = [_name(fastest), _seconds(fastest), _gap(fastest), _times(ours, fastest)]
        rows.append([f"{name}, {each['rows']:,} rows", _seconds(ours), _gap(ours), *cells])
    header = ["benchmark", "ours", "gap", "fastest peer", "seconds", "gap", "time / ours"]
    return [
        f"randsvm stops at a gap of {REACHED:.1%}. On these sets the default tolerance of the "
        "peers (0.001) gives a much smaller gap and takes longer. So they also run with a larger "
        f"tolerance that gives a gap near {REACHED:.1%}. The first table shows for each data set "
        f"the fastest peer with a gap of at most {REACHED:.1%}, at either tolerance, beside "
        "randsvm of the same series of runs. The second table shows the runs at the larger "
        "tolerance; svm-train ran once.",
        *("", *table(header, rows), ""),
    ]


Points = list[tuple[int, float]]


def _growth(comparisons: Sequence[Record]) -> list[str]:
    rows = []
    for name in MAX_ROWS:
        seconds, changed = (_points(comparisons, name, of) for of in ("seconds", "changed"))
        if len(seconds) > 1:
            ends = [f"{n:,} rows {t:.3g} s" for n, t in (seconds[0], seconds[-1])]
            largest = max(_records(comparisons, name), key=itemgetter(0))[1]
            cells = [_exponent(seconds), _exponent(changed), peak(largest)]
            rows.append([name, *ends, *cells])
    header = ["program", "from", "to", "exponent of seconds", "of coefficients changed", "peak MB"]
    return [
        *("", "## Growth", ""),
        "Checkerboard, C = 1, gamma = 5, `--gap 0.01` (svm-train at its default tolerance). The "
        "time grows approximately as n^exponent between the smallest and the largest n. Times "
        "include start-up.",
        *("", *table(header, rows)),
    ]


def _points(comparisons: Sequence[Record], name: str, of: str) -> Points:
    """Return (rows, number) of a program where it was measured. of: "seconds" or "changed"."""
    points = [
        (n, {"seconds": record["median"]["wall"], **record["quality"]})
        for n, record in _records(comparisons, name)
    ]
    return sorted((n, numbers[of]) for n, numbers in points if of in numbers)


def _records(comparisons: Sequence[Record], name: str) -> list[tuple[int, Record]]:
    """Return (rows, record) of a program where it was not ended."""
    return [
        (each["rows"], record)
        for each in comparisons
        for record in each["commands"]
        if record["name"] == name and not record["ended"]
    ]


def _exponent(points: Points) -> str:
    """Return the exponent of growth from the first point to the last."""
    if len({n for n, _ in points}) < 2:
        return ""
    (n, least), (most, last) = points[0], points[-1]
    return f"{log10(last / least) / log10(most / n):.2f}"


def _by_name(found: Record) -> dict[str, Record]:
    """Return name -> comparison, without the large ones, which share names."""
    return {each["name"]: each for each in found["comparisons"] if not _is_large(each)}


def goals(found: Record) -> list[str]:
    rows = [
        [
            f"{each['name']}, {each['rows']:,} rows",
            _name(record),
            record["goal"],
            value(record["missed"]),
        ]
        for each in found["comparisons"]
        for record in each["commands"]
        if record.get("goal")
    ]
    return ["", "## Goals", "", *table(["benchmark", "ours", "goal", "reached"], rows)]


def commands(found: Record) -> list[str]:
    """Each command line, without the folders."""
    lines = [
        f"{each['name']}: {shlex.join(Path(w).name if '/' in w else w for w in record['words'])}"
        for each in found["comparisons"]
        for record in each["commands"]
    ]
    return ["", "## Commands", "", "```text", *lines, "```"]


# ---- pictures ---------------------------------------------------------------------------------


_NONE: Record = {"commands": [{}]}


def draw_gaps(found: Record, path: Path) -> bool:
    """Draw the gap against seconds: the rounds of ours, and where each program ended."""
    by_name = _by_name(found)
    looser = {
        LOOSE[name][0]: each["commands"][1:] for name, each in by_name.items() if name in LOOSE
    }
    drawn = [by_name[name] for name in DRAWN if "course" in by_name.get(name, _NONE)["commands"][0]]
    if not drawn:
        return False
    figure, grid = plot.new_figure(-(-len(drawn) // 2), min(2, len(drawn)), 4.5, 4.2)
    for axis, each in zip(grid.flat, drawn, strict=False):
        ours, *peers = each["commands"] + looser.get(each["name"], [])
        style = {"color": "black", "label": ours["name"]}
        axis.plot(*zip(*ours["course"], strict=True), **style)
        ends = [record for record in peers if record["quality"].get("gap")]
        for number, record in enumerate([ours, *ends]):
            color = "black" if record is ours else f"C{number}"
            end = (record["median"]["wall"], record["quality"].get("gap"))
            label = None if record is ours else record["name"]
            axis.plot(*end, "s", color=color, label=label)
            if "fit" in record["median"]:
                fit = (record["median"]["fit"], end[1])
                axis.plot(*fit, "s", color=color, markerfacecolor="none")
        axis.set(title=f"{each['name']}, {each['rows']:,} rows", xlabel="seconds", ylabel="gap")
        axis.set(xscale="log", yscale="log")
        plot.add_legend(axis)
    plot.save(figure, path, Source=digest(found))
    return True


def draw_growth(found: Record, path: Path) -> bool:
    """Seconds and coefficients changed against rows, one line for each command, with its exponent
    in the legend."""
    comparisons = [each for each in found["comparisons"] if each["name"] == "growth"]
    if not comparisons:
        return False
    figure, grid = plot.new_figure(1, 2, 4.5, 4.0)
    titles = {"seconds": "seconds", "changed": "coefficients changed"}
    for axis, (of, title) in zip(grid.flat, titles.items(), strict=True):
        for color, name in enumerate(MAX_ROWS):
            if points := _points(comparisons, name, of):
                exponent = _exponent(points)
                label = f"{name}: n^{exponent}" if exponent else name
                style = {"marker": "o", "markersize": 4, "color": f"C{color}", "label": label}
                axis.plot(*zip(*points, strict=True), **style)
        axis.set(xscale="log", yscale="log", xlabel="rows of checkerboard", ylabel=title)
        axis.yaxis.set_major_formatter("{x:,g}")
        plot.add_legend(axis)
    plot.save(figure, path, Source=digest(found))
    return True


def digest(found: Record) -> str:
    """Return the SHA-256 of the results. A picture holds it: a test detects old pictures."""
    return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()


# ---- files ------------------------------------------------------------------------------------


def to_publish(found: Record) -> Record:
    """Return the results as the repository keeps them.

    They have the gaps of our rounds, from the logs, and no folders of this machine. The duration of
    the run is left out, as it says nothing about merged results.
    """
    found, comparisons = {of: value for of, value in found.items() if of != "seconds"}, []
    for each in found["comparisons"]:
        records = [
            dict(record, words=[*map(_file, record["words"])]) for record in each["commands"]
        ]
        if each["name"] in DRAWN and not _is_large(each):
            records[0]["course"] = _course(each["commands"][0])
        comparisons.append(dict(each, commands=records))
    return dict(found, comparisons=comparisons)


def merged(published: Record, found: Record) -> Record:
    """Return published results in which the comparisons of a later run replace the older ones.

    found: as to_publish returns it. The day of the run stays that of the published results; each
    comparison of the later run has its own.
    """
    comparisons = list(published["comparisons"])
    for each in found["comparisons"]:
        put(comparisons, each)
    return dict(
        published,
        comparisons=comparisons,
        versions=list(dict.fromkeys([*published["versions"], *found["versions"]])),
    )


def _file(word: str) -> str:
    return Path(word).name if "/" in word else word


def _course(record: Record) -> list[tuple[float, float]]:
    """Return the seconds and the gap of each round that has a gap."""
    rounds = [event for event in papers.events(record) if event["event"] == "iteration"]
    return [(event["seconds"], event["gap"]) for event in rounds if event["gap"]]


PICTURES = {
    "gap": ("time to a gap; filled: whole processes, open: fit alone", draw_gaps),
    "growth": ("seconds and coefficients changed against rows", draw_growth),
}


def results_page(found: Record, pictures: Sequence[str]) -> str:
    """Return docs/results.md, with the pictures of these names."""
    shown = []
    for name in pictures:
        words, _ = PICTURES[name]
        shown += ["", f"![{words}](results-{name}.png)"]
    lines = [
        "# Results of the benchmarks",
        "",
        f"{found['machine']}; {day_and_duration(found)}.",
        *found["versions"],
        *(["", found["note"]] if "note" in found else ["Made by `make bench` and `make results`."]),
        *([] if found["scale"] == 1 else ["", f"**Sets of {found['scale']:g} times the size.**"]),
        "",
        introduction(found["effort"]),
        *shown,
        *goals(found),
        *sections(found),
        *left_out(found),
        *commands(found),
    ]
    return "\n".join(lines) + "\n"


@click.command()
@click.option("--title", default="benchmarks", show_default=True, help="TITLE.json is read.")
@click.option(
    "--output",
    default=SCRIPTS.parent / "docs",
    type=click.Path(path_type=Path),
    help="Folder of the pages.",
)
@click.option("--merge", is_flag=True, help="Replace only what the last run measured.")
@click.option("--published", is_flag=True, help="Read TITLE.json in the folder of the pages.")
@results_option
def main(title: str, output: Path, merge: bool, published: bool, results: Path) -> None:
    """Write the pages and the pictures from the measurements of the benchmarks."""
    kept = output / f"{title}.json"
    if published:
        found = json.loads(kept.read_text())
    else:
        found = to_publish(json.loads((results / f"{title}.json").read_text()))
        found = merged(json.loads(kept.read_text()), found) if merge else found
        _write(kept, json.dumps(found, separators=(",", ":")) + "\n")
    drawn = [
        name for name, (_, draw) in PICTURES.items() if draw(found, output / f"results-{name}.png")
    ]
    _write(output / "results.md", results_page(found, drawn))
    for page in (output / "benchmarks.md", output.parent / "README.md"):
        if page.exists():
            _write(page, page_tables.filled(page.read_text(), found))


def _write(path: Path, text: str) -> None:
    with files.create_output(str(path)) as stream:
        stream.write(text.encode())
    click.echo(path)


if __name__ == "__main__":
    main()
