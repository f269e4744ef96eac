"""Fill the tables of README.md and docs/benchmarks.md from the results of the benchmarks.

A table stands between the comments `<!-- table NAME -->` and `<!-- end of table -->`. The text
around the tables is written by hand and holds no measurement that a table has.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from math import inf
from typing import NamedTuple, TypeAlias

from benchmarks.harness import Record
from benchmarks.linear_gaps import GAP as LINEAR_GAP
from benchmarks.linear_gaps import PROGRAMS
from benchmarks.searches import ALL_FOLDS, INTELEX_GRID, RACING
from benchmarks.trainings import (
    ALL_CORES,
    FORMULA,
    GAP,
    LOOSE,
    RULE,
    SVM_TRAIN,
    TENTH,
    TRAININGS,
)
from benchmarks.untuned import LINEAR as LINEAR_TUNED
from benchmarks.untuned import UNTUNED
from benchmarks.works import LIBLINEAR

MARKED = re.compile(r"(<!-- table (?P<name>[\w-]+) -->\n).*?(?=<!-- end of table -->)", re.DOTALL)

# Work -> the data set in words. {rows} is the number of rows.
DATA = {
    "covtype-30000": "covtype, class 2 against the rest, {rows} x 54",
    "covtype-100000": "covtype, {rows} x 54",
    "several-covtype7": "covtype, 7 classes, {rows} x 54",
    "census": "Census-Income, {rows} x 506",
    "flights": "flights, late or not, {rows} rows",
    "regression-delay": "flights, delay (regression), {rows} rows",
    "a9a": "a9a, {rows} x 123",
    "several-satimage": "satimage, 6 classes, {rows} x 36",
    "several-reuters_r8": "reuters_r8, 8 classes, {rows} texts",
    "kernel-linear": "a9a, linear kernel, {rows} x 123",
    "large-c": "covtype, large C, {rows} x 54",
    "checkerboard": "checkerboard, {rows} x 2",
    "twonorm": "twonorm, {rows} x 20",
    "ringnorm": "ringnorm, {rows} x 20",
    "weights": "class weights, {rows} x 20",
    "one-class": "novelty detection, twonorm, {rows} x 20",
    "regression-18500": "regression, {rows} x 8",
    "regression-40000": "regression, {rows} x 8",
    "several-letters": "26 generated classes, {rows} x 16",
}
# The works on real data.
REAL = (*list(DATA)[: list(DATA).index("checkerboard")],)
# Work -> the data set, in the bars of the README. Without small sets, whose times are mostly the
# start of Python.
README_BARS = {
    "covtype-all": "covtype\n522,911 x 54",
    "covtype-100000": "covtype\n100,000 x 54",
    "covtype-30000": "covtype\n30,000 x 54",
    "several-covtype7": "covtype, 7 classes\n30,000 x 54",
    "census": "Census-Income\n50,000 x 506",
    "flights": "flights\n30,000 x 107",
    "regression-delay": "flights (regression)\n20,000 x 107",
    "a9a": "a9a\n32,561 x 123",
}
EXACT = (SVM_TRAIN, ALL_CORES, "intelex")
# Record of a program that was not run.
_NONE: Record = {"quality": {}, "median": {}}
NEAR = 1.02  # times the floor: smaller peaks cannot be distinguished from it
# Heading -> commands of the works of linear machines.
LINEAR = {"`sgd`": "sgd", "LIBLINEAR": LIBLINEAR, "scikit-learn": "SGDClassifier"}


# Work -> its record, in the order of the works.
Found: TypeAlias = "dict[str, Record]"


def filled(text: str, found: Found) -> str:
    """Return a page with today's tables."""
    return MARKED.sub(lambda mark: mark[1] + "\n".join(TABLES[mark["name"]](found)) + "\n", text)


# ---- cells ------------------------------------------------------------------------------------


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    cells = [header, ["---"] * len(header), *rows]
    return [f"| {' | '.join(row)} |" for row in cells]


def _bounded(record: Record, number: str) -> str:
    """Return a number of a command, as a lower bound if the command was ended."""
    return f"> {number}" if record["ended"] else number


def _peak(record: Record) -> str:
    """Return the peak in MB, as an upper bound if it is near the smallest measurable peak."""
    most, floor = record["median"]["peak"], record["median"].get("floor", 0)
    return f"<= {most:.0f}" if most <= NEAR * floor else _bounded(record, f"{most:.0f}")


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _seconds(record: Record | None) -> str:
    return _bounded(record, f"{number(record['median']['wall'])} s") if record else "-"


def _gap(record: Record) -> str:
    """Return the gap; a star marks one that no independent program checked."""
    quality = record["quality"]
    gap = quality.get("gap", quality.get("reported_gap"))
    return "-" if gap is None else f"{100 * gap:.2g}%{'' if 'gap' in quality else '*'}"


def _times(ours: Record, peer: str) -> str:
    found = ours["peers"].get(peer) or {}
    ratio = found.get("times")
    if not ratio:
        return "-"
    return _bounded(found, f"{ratio:.0f}" if ratio >= 10 else f"{ratio:.2g}")


def _bold(cell: str) -> str:
    return cell if cell == "-" else f"**{cell}**"


def _time_and_quality(record: Record) -> list[str]:
    """Return the seconds, and the accuracy or the squared error on test rows."""
    spelled = {"accuracy": "{:.2f}%", "mse": "squared error {:.3f}"}
    quality = record["quality"]
    worth = [form.format(quality[of]) for of, form in spelled.items() if of in quality]
    return [_seconds(record), *(worth or ["-"])]


def _tested(record: Record | None) -> str:
    """Return the AUC, else the accuracy or squared error on test rows, with its standard error."""
    quality = record["quality"] if record else {}
    spelled = {"auc": ("AUC {:.3f}", ""), "accuracy": ("{:.2f}", "%"), "mse": ("mse {:.3f}", "")}
    for of, (number, unit) in spelled.items():
        if of in quality:
            error = f" ± {quality[f'{of}_error']:.2g}" if f"{of}_error" in quality else ""
            return f"{number.format(quality[of])}{error}{unit}"
    return "-"


def _works(found: Found, names: Iterable[str]) -> Iterator[tuple[str, Record, dict[str, Record]]]:
    """Return the data in words, our record and all records of the trainings that were run."""
    for name in names:
        if name in found:
            records = {record["name"]: record for record in found[name]["commands"]}
            words = DATA[name].format(rows=f"{found[name]['rows']:,}")
            yield words, found[name]["commands"][0], records


def starting(found: Found, *starts: str) -> Iterator[tuple[str, Record]]:
    """Return the data of the works that begin so, and their records."""
    for name, each in found.items():
        if name.startswith(starts):
            yield name.partition("-")[2], each


# ---- tables -----------------------------------------------------------------------------------


class Bar(NamedTuple):
    """A bar of the README. seconds: of the whole process; None: the program was not run."""

    name: str
    seconds: float | None


def bars(work: Record) -> list[Bar]:
    """Return the bars of a work: svm-train, intelex and ours."""
    records = {record["name"]: record for record in work["commands"]}
    of = {SVM_TRAIN: "svm-train", "intelex": "scikit-learn-intelex", GAP: "randsvm"}
    walls = {name: records[name]["median"]["wall"] if name in records else None for name in of}
    return [Bar(of[name], walls[name]) for name in of]


def kernel(found: Found, names: Iterable[str]) -> list[str]:
    """Return the times and gaps of some trainings of kernel machines."""
    rows = []
    for name in names:
        for words, ours, all_ in _works(found, [name]):
            gaps = [all_[peer] for peer in EXACT if "gap" in all_.get(peer, _NONE)["quality"]]
            worst = max(gaps, key=lambda record: record["quality"]["gap"], default=_NONE)
            fit = all_.get("intelex", _NONE)["median"].get("fit")
            rows.append([
                words, f"`{TRAININGS[name].options}`",
                *(_seconds(all_.get(peer)) for peer in (SVM_TRAIN, ALL_CORES)),
                _seconds(all_.get("intelex")) + (f" ({number(fit)})" if fit else ""),
                _gap(worst), _seconds(ours), _gap(ours),
                *(_bold(_times(ours, peer)) for peer in (SVM_TRAIN, "intelex")),
            ])  # fmt: skip
    header = [
        *("data", "options", "`svm-train`", "LIBSVM, all cores", "intelex (fit)"),
        *("largest gap of the peers", "`randsvm`", "gap of `randsvm`"),
        *("svm-train / `randsvm`", "intelex / `randsvm`"),
    ]
    return table(header, rows)


def untuned(found: Found) -> list[str]:
    """Return the times, qualities and memory of every training on a set that was not tuned on."""
    rows = []
    for name, each in starting(found, "untuned-"):
        what, all_ = UNTUNED[name], {record["name"]: record for record in each["commands"]}
        ours = all_[GAP]
        others = [all_.get(SVM_TRAIN), all_.get("intelex"), ours]
        rows.append([
            f"{what.words}, {each['rows']:,} rows", f"`{what.options}`", *map(_seconds, others),
            _gap(ours),
            *(_tested(all_.get(of)) for of in (GAP, SVM_TRAIN, LINEAR_TUNED)),
            ", ".join(_peak(one) if one else "-" for one in others),
        ])  # fmt: skip
    header = [
        *("data", "options", "`svm-train`", "intelex", "`randsvm`", "gap of `randsvm`"),
        *(f"test rows: {name}" for name in ("`randsvm`", "`svm-train`", "LIBLINEAR")),
        "peak MB of svm-train, intelex, `randsvm`",
    ]
    return table(header, rows)


def equal_gaps(found: Found) -> list[str]:
    """Return the times of peers at a tolerance that gives them a gap like ours."""
    rows = []
    for name, tolerance in LOOSE.items():
        if each := found.get(f"loose-{name}"):
            ours, *peers = each["commands"]
            words = DATA[name].format(rows=f"{each['rows']:,}")
            cells = [
                f"{_seconds(peer)}, {_gap(peer)}, {_times(ours, peer['name'])}" for peer in peers
            ]
            rows.append([words, f"{_seconds(ours)}, {_gap(ours)}", f"{tolerance:g}", *cells])
    header = ["data", "`randsvm`: time, gap", "tolerance of the peers"]
    header += [f"{peer}: time, gap, times `randsvm`" for peer in ("`svm-train`", "intelex")]
    return table(header, rows)


def tenth(found: Found) -> list[str]:
    """Return what svm-train reaches with a random tenth of the rows."""
    rows = [
        [words, *_time_and_quality(ours), *_time_and_quality(all_[TENTH])]
        for words, ours, all_ in _works(found, DATA)
        if TENTH in all_
    ]
    header = ["data", "`randsvm`, all rows", "on test rows", "`svm-train`, a tenth", "on test rows"]
    return table(header, rows)


def large(found: Found) -> list[str]:
    """Return the trainings on large sets, which have no peers."""
    rows = []
    for name in ("covtype-all", "large-checkerboard", "large-twonorm", "largest-checkerboard"):
        for record in found.get(name, {"commands": []})["commands"]:
            of = record["name"]
            if of == GAP or name != "covtype-all":
                rows.append([
                    f"{name.replace('covtype-all', 'all-covtype').partition('-')[2]}, "
                    f"{found[name]['rows']:,} rows",
                    f"`{of.partition(' ')[2]}`", _seconds(record), _gap(record),
                    f"{record['quality']['SV']:,.0f}", _peak(record),
                ])  # fmt: skip
    return table(["data", "options", "`randsvm`", "gap", "support vectors", "peak MB"], rows)


def others(found: Found) -> list[str]:
    """Return the times of prediction, reading, warm starts and start-up."""
    rows = []
    for name in found:
        if name.startswith(("prediction-", "reading-", "warm-", "start-up")):
            peers = [record for record in found[name]["commands"] if "peers" not in record]
            peer = peers[0] if peers else None
            for ours in found[name]["commands"]:
                if ours is not peer:
                    theirs = f"{_title(peer)}: {_seconds(peer)}" if peer else "-"
                    times = _times(ours, peer["name"]) if peer else "-"
                    work = f"{name}, {found[name]['rows']:,} rows"
                    rows.append([work, f"`{_title(ours)}`", _seconds(ours), theirs, times])
    return table(["work", "command", "seconds", "peer", "times"], rows)


def _title(record: Record) -> str:
    """Return the name of a command without the model that it starts from."""
    return re.sub(r"(--warm-start) \S+", r"\1", record["name"])


def searches(found: Found) -> list[str]:
    """Return the times of searches, in seconds and in trainings of the best combination."""
    rows = []
    for name, each in starting(found, "search-"):
        records = {record["name"]: record for record in each["commands"]}
        shown = [records.get(name) for name in (RACING, ALL_FOLDS, INTELEX_GRID)]
        fits = [f"{one['quality']['fits']:.2g}" if one else "-" for one in shown[:2]]
        scores = [
            f"{one['quality']['score']:.2f}%" for one in shown if one and "score" in one["quality"]
        ]
        words = f"{name}, {each['rows']:,} rows"
        rows.append([words, *map(_seconds, shown), ", ".join(fits), ", ".join(scores)])
    header = [f"`{RACING}`", f"`{ALL_FOLDS}`", INTELEX_GRID, "search / final fit"]
    return table(["data", *header, "best scores, in this order"], rows)


def rules(found: Found) -> list[str]:
    """Return what the rules of KBH07 reach: a bound on support vectors, and no violator."""
    rows = [
        [
            words,
            *_time_and_quality(all_[RULE]),
            _seconds(all_[FORMULA]),
            _gap(all_[FORMULA]),
            *(_seconds(all_.get(peer)) for peer in ("intelex", SVM_TRAIN)),
            _time_and_quality(all_[SVM_TRAIN])[1],
        ]
        for words, _, all_ in _works(found, DATA)
        if RULE in all_ and SVM_TRAIN in all_
    ]
    header = [f"`{RULE}`", "its test rows", f"`{FORMULA}`", "gap", "intelex", "`svm-train`"]
    return table(["data", *header, "its test rows"], rows)


def linear(found: Found) -> list[str]:
    """Return the times, accuracies and objectives of linear machines."""
    rows = []
    for name, each in starting(found, "linear-"):
        records = {record["name"]: record for record in each["commands"]}
        shown = [records.get(name) for name in LINEAR.values()]
        words = f"{name}, {each['rows']:,} rows"
        worth = [
            [form.format(one["quality"][of]) for one in shown if one and of in one["quality"]]
            for of, form in (("accuracy", "{:.2f}%"), ("J", "{:.4f}"))
        ]
        rows.append([words, *map(_seconds, shown), *(", ".join(cells) or "-" for cells in worth)])
    return table(["data", *LINEAR, "test accuracy, in this order", "J, in this order"], rows)


def linear_gaps(found: Found) -> list[str]:
    """Return the times of linear machines at equal gaps."""
    rows = []
    for name, each in starting(found, "gap-"):
        ours, *peers = each["commands"]
        all_ = {record["name"]: record for record in peers}
        cells = [_fitted(all_[of]) if of in all_ else "-" for of in PROGRAMS]
        reached = [one for one in peers if one["quality"].get("above", inf) <= LINEAR_GAP]
        best = min(reached, key=lambda record: record["median"]["wall"], default=None)
        times = number(best["median"]["wall"] / ours["median"]["wall"]) if best else "-"
        rows.append([f"{name}, {each['rows']:,} rows", _fitted(ours), *cells, times])
    header = ["loss, data", "`sgd --gap 0.001`", *PROGRAMS, "fastest peer at 0.1% / `sgd`"]
    return table(header, rows)


def _fitted(record: Record) -> str:
    """Return the seconds of a process, those of the fit in brackets, and how far P is above."""
    fit, above = record["median"].get("fit"), record["quality"].get("above")
    far = "" if above is None else f", {above:.2g}"
    return _seconds(record) + (f" ({number(fit)})" if fit else "") + far


def machine(found: Found) -> list[str]:
    """Return the machines and versions, and the days on which works were measured."""
    facts = {
        "machine": {each["machine"] for each in found.values()},
        "versions": {line.rstrip(".") for each in found.values() for line in each["versions"]},
        "days": {each["date"] for each in found.values()},
    }
    return table(["", ""], [[name, "; ".join(sorted(values))] for name, values in facts.items()])


TABLES: dict[str, Callable[[Found], list[str]]] = {
    "kernel": partial(kernel, names=REAL),
    "kernel-generated": partial(kernel, names=[name for name in DATA if name not in REAL]),
    "untuned": untuned,
    "equal-gaps": equal_gaps,
    "tenth": tenth,
    "large": large,
    "others": others,
    "searches": searches,
    "rules": rules,
    "linear": linear,
    "linear-gaps": linear_gaps,
    "machine": machine,
}
