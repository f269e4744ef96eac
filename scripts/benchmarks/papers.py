"""KBH07's Table 1 and CS246's table, with the figures of the papers beside those of the benchmarks.

A cell of a paper is empty where its figure could not be checked against the paper itself.
"""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.tables import Record, bounded, table

GAP, LARGE_GAP = "randsvm --gap 0.001", "randsvm --gap 0.01"
LARGE_REDUCED = f"{LARGE_GAP} --reduce auto"
RULE, FORMULA = "randsvm -k 1000 --sample-size 5000", "randsvm --gap none"
LINEAR_GAP, LINEAR_RULE = f"{GAP} -t linear", f"{RULE} -t linear"
SGD = "sgd"
LIBLINEAR = "liblinear-train -s 3 -B 1"
OPTIMUM = f"{LIBLINEAR} -e 0.001"

SYNTHETIC = ("twonorm", "ringnorm", "checkerboard")
RCV1 = ("CCAT", "C11")
TEXT_SETS = ("reuters_acq", *RCV1)
LAMBDA = 1e-4  # of Bottou's and Joachims' experiment on CCAT
PROGRAMS = ("svm-train", FORMULA, RULE, GAP, LARGE_GAP)
LINEAR_PROGRAMS = (LIBLINEAR, LINEAR_RULE, LINEAR_GAP, SGD)

RINGNORM = (
    "Ringnorm is made as KBH07 prints it: one class has mean 1 and covariance 4 I, the other mean "
    "a = 2/sqrt(20) in each of 20 dimensions and covariance I. Bayes' rule scores 98.9% on it, and "
    "a Gaussian kernel comes near; the about 70% that KBH07 reports do not follow from what it "
    "prints, and nothing is tuned to meet them. Bayes' rule scores 97.7% on twonorm and 100% on "
    "the checkerboard."
)

# Experiment on RCV1's CCAT, lambda = 1e-4, training 781,265 documents, test 23,149: program,
# seconds of training without reading, J, test error in per cent. From the README of Bottou's sgd
# 2.0 (2011), the source of the experiment that CS246 shows.
CCAT = [
    ("SVMlight -c .0127998", "23642", "0.227488", "6.0219"),
    ("SVMperf -c 100", "66", "0.2278", "6.0348"),
    ("svmsgd, 5 epochs", "0.97", "0.227535", "6.026"),
    ("LIBLINEAR 1.8 -s 3 -B 1 -c 0.0127998", "2.50", "", "6.0219"),
]


def _records(found: Record, name: str) -> list[tuple[int, dict[str, Record]]]:
    """Return rows, and command -> record, of the comparisons of this name."""
    return [
        (each["rows"], {record["name"]: record for record in each["commands"]})
        for each in found["comparisons"]
        if each["name"] == name
    ]


def log(record: Record) -> dict[str, Record]:
    """Return name of event -> its last record in the --log of a command's last run."""
    return {event["event"]: event for event in events(record)}


def events(record: Record) -> list[Record]:
    """Return all records in the --log of a command's last run."""
    return read_log(Path(record["words"][record["words"].index("--log") + 1]))


def read_log(path: Path) -> list[Record]:
    """Return the records of the last run in a log."""
    found = list(map(json.loads, path.read_text().splitlines()))
    return [event for event in found if event["run"] == found[-1]["run"]]


def kbh07(found: Record) -> list[str]:
    """Table 1: seconds and accuracy of LIBSVM and RandSVM; the linear rows as well."""
    rows = [
        [f"{name} {size:,}", *(_cell(commands.get(program)) for program in PROGRAMS), "", ""]
        for name in SYNTHETIC
        for size, commands in _records(found, name)
    ]
    linear = [
        [f"{name} {size:,}, linear", *map(_cell, map(commands.get, LINEAR_PROGRAMS)), "", ""]
        for name in TEXT_SETS
        for size, commands in _records(found, f"linear {name}")
    ]
    paper = ["KBH07: LIBSVM", "KBH07: RandSVM"]
    return [
        *("", "## KBH07, Table 1", ""),
        "Seconds of whole processes (medians), test accuracy in per cent. `randsvm` alone has k "
        "from the paper's formula. The paper's cells are empty where they could not be checked.",
        *("", *table(["set", *PROGRAMS, *paper], rows)),
        *("", RINGNORM),
        *("", *table(["set", *LINEAR_PROGRAMS, *paper], linear)),
    ]


def _cell(record: Record | None) -> str:
    if record is None:
        return ""
    worth = record["quality"].get("accuracy")
    seconds = bounded(record, f"{record['median']['wall']:.4g} s")
    return seconds if worth is None else f"{seconds}, {worth:.2f}"


def cs246(found: Record) -> list[str]:
    """Training time, J and test error of linear SVMs on text."""
    rows = [
        [
            f"{name} {size:,}",
            program,
            f"{record['median']['wall']:.4g}",
            f"{log(record)['trained']['solve_seconds']:.4g}" if program == SGD else "",
            f"{record['quality']['J']:.6f}",
            f"{100 - record['quality']['accuracy']:.3f}",
        ]
        for name in TEXT_SETS
        for size, commands in _records(found, f"linear {name}")
        for program, record in commands.items()
        if "J" in record["quality"]
    ]
    paper = [["CCAT 781,265", program, "", *cells] for program, *cells in CCAT]
    return [
        *("", "## CS246", ""),
        "Seconds of whole processes (medians), and of training alone where the program tells. "
        "J = lambda/2 |w|^2 + mean loss on the training set; test error in per cent. The last rows "
        "are from the README of Bottou's sgd 2.0, CS246's experiment on a machine of 2011.",
        *("", *table(["set", "program", "seconds", "training", "J", "error"], [*rows, *paper])),
    ]
