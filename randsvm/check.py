"""Verify the certificate of a model without any code of the program that wrote it.

docs/certificate-format.md is the specification; [n] names its section. This file uses numpy and
the standard library only, and runs alone: `python check.py DATA... MODEL`.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # `Model.sums` has a thread for each core

import argparse
import bz2
import gzip
import hashlib
import json
import lzma
import math
import re
import sys
import zlib
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from itertools import combinations, pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

VERIFIED, REFUTED, UNDECIDED, BAD, NO_INPUT, NO_OUTPUT = 0, 1, 3, 65, 66, 74
WORDS = {VERIFIED: "verified", REFUTED: "refuted", UNDECIDED: "undecided"}
FINE = np.longdouble  # numbers of this kind, where float64 is too coarse
PAIRS = 10**9, 10**8  # kernel values that are computed without --exact, in float64 and in FINE
ROOM = 1.01  # bounds of errors are computed with rounding, too
MATRIX = 4096  # rows of a precomputed kernel whose eigenvalues are computed
TILE = 64  # vectors whose kernel values are computed at once
DEGREE, FEATURES = 1000, 2**26  # the most that are computed
UNPACK = {b"\x1f\x8b": gzip.decompress, b"BZh": bz2.decompress, b"\xfd7zXZ": lzma.decompress}
LINE = re.compile(rb"(\S+)(?:\s+(?:cost:(\S+)|qid:\S+))*\s*(.*)")
BAD_WORD = re.compile(rb"(?<!\S)(?![0-9]+:[-+.0-9eE]+(?!\S))\S+")
NUMBER = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
# [5] The tasks: LIBSVM's name; the numbers and other keys of the problem; the sign of coefficients
# (None: that of y), epsilon, t and a.
TASKS: dict[str, Any] = {
    "svc": ("c_svc", "C", "class_weights balanced multiclass", lambda given, W: (None, 0, 0, 0)),
    "nu-svc": ("nu_svc", "nu", "tube multiclass", lambda given, W: (None, 1, 0, given["nu"] * W)),
    "svr": ("epsilon_svr", "C epsilon", "", lambda given, W: (0, given["epsilon"], 0, 0)),
    "nu-svr": ("nu_svr", "C nu", "tube", lambda given, W: (0, 0, 0, given["C"] * given["nu"] * W)),
    "one-class": ("one_class", "nu", "", lambda given, W: (1, 0, given["nu"] * W, 0)),
}
# [3] The numbers of a kernel, LIBLINEAR's name of a loss, keywords of the header that repeat
# nothing, and what lines of the trailer say (None: there is no line).
KERNELS = {"linear": "", "precomputed": "", "rbf": "gamma", "polynomial": "gamma coef0 degree"}
LOSSES = {"hinge": "L2R_L1LOSS_{}_DUAL", "squared-hinge": "L2R_L2LOSS_{}", "log": "L2R_LR"}
LINEAR = {"svc": "class_weights loss bias penalty", "svr": "loss bias"}  # keys of the problem
KEYWORDS = "kernel_type gamma coef0 degree rho nr_sv bias probA probB prob_density_marks"
VALUES = {"certificate": (None, "proven", "sampled", "reduced"), "index_base": (0, 1)}
VALUES |= {"scale": (None, "minmax", "standard", "unit")}
ERRORS = {"certificate", "primal_error", "dual_error"}  # all or, in older linear machines, none
# [5] Whether a value of the problem is one. Numbers of JSON are read as numpy's.
PROBLEM: dict[str, Any] = {
    "task": lambda one: one in TASKS,
    "C": lambda one: isinstance(one, np.floating) and one > 0,
    "epsilon": lambda one: isinstance(one, np.floating) and one >= 0,
    "nu": lambda one: isinstance(one, np.floating) and 0 < one <= 1,
    "tube": lambda one: isinstance(one, list) and all(isinstance(v, np.floating) for v in one),
    "class_weights": lambda one: all(w is None or PROBLEM["C"](w) for w in one),
    "balanced": lambda one: isinstance(one, bool),
    "multiclass": lambda one: one in ("ovo", "ovr"),
    "loss": lambda one: one in LOSSES,
    "bias": lambda one: isinstance(one, bool),
    "penalty": lambda one: one in ("l1", "l2"),
}
# [8] The arrays of a machine in a transcript, and their kinds.
ARRAYS = {"rows": "<i8", "beta": "<f8", "v": "<f8", "v_error": "<f8", "u": "<f4", "error": "<f4"}
ARRAYS |= {"exact": "<i8", "exact_u": "<f8", "exact_error": "<f8"}
OF_TABLE = "give the unchanged file from randsvm-train --keep-rows, not the table itself"
FAULTS = ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError


class Ended(Exception):  # noqa: N818 - an outcome, not a fault
    """The end of a check. args: the exit code and the reason."""


def require(condition: Any, status: int, text: str) -> None:
    if not condition:
        raise Ended(status, text)


def content_of(path: str) -> bytes:
    """Return the bytes of a file, decompressed; "-" is standard input."""
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
        return next((f(data) for magic, f in UNPACK.items() if data.startswith(magic)), data)
    except (OSError, EOFError, lzma.LZMAError, zlib.error, ValueError) as error:
        status = NO_INPUT if getattr(error, "filename", None) else BAD
        raise Ended(status, f"{path}: {getattr(error, 'strerror', None) or error}") from error


def lines_of(path: str) -> list[bytes]:
    """Return the lines of a file that have more than a comment, without it."""
    lines = content_of(path).removeprefix(b"\xef\xbb\xbf").split(b"\n")
    return [line for one in lines if (line := one.partition(b"#")[0].strip())]


def numbers(texts: Any, real: Any) -> Any:
    """Return the number nearest to each text; in finer numbers, too, what underflows in float64 is
    the float64 number. [2]"""
    texts = np.array([*texts], None if len(texts) else real)
    if texts.dtype.kind in "SU":  # Python also reads 1_000, and digits of other scripts
        codes = texts.view(np.uint8 if texts.dtype.kind == "S" else np.uint32)
        require(not ((codes == ord("_")) | (codes > 126)).any(), BAD, "expected decimal numbers")
    found = near = texts.astype(float)
    require(np.isfinite(near).all(), BAD, "expected finite numbers")
    if real is FINE:
        found = np.where(abs(near) < np.finfo(float).tiny, near, texts.astype(real))
    return found


def label_value(text: str) -> Any:
    """Return what a label stands for: 1, +1 and 1.0 are one class, and so are True and true. [2]"""
    is_number = NUMBER.fullmatch(text) and math.isfinite(float(text))
    if is_number and (value := Decimal(text)) == int(value):
        return value
    return text.lower() if text.lower() in ("true", "false") else text


class Rows:
    """Rows in CSR form: row i has the entries from indptr[i] to indptr[i + 1]. row: of each entry;
    lengths: |x|; moved: how far rounding moved each row at most, in units of it"""

    def __init__(self, indptr: Any, indices: Any, values: Any, moved: Any = None) -> None:
        self.indptr, self.indices, self.values, self.n = indptr, indices, values, len(indptr) - 1
        self.row = np.repeat(np.arange(self.n), np.diff(indptr))
        squares = np.zeros(self.n, values.dtype)
        np.add.at(squares, self.row, values * values)
        self.lengths = np.sqrt(squares)
        self.moved = self.lengths if moved is None else moved

    @classmethod
    def of(cls, texts: list[bytes], base: int, real: Any) -> "Rows":
        content = b" ".join(texts)
        bad = BAD_WORD.search(content)
        require(not bad, BAD, f"expected index:value, found {str(bad and bad[0])[1:]:.50}")
        words = content.replace(b":", b" ").split()
        indptr, indices = np.cumsum([0, *(text.count(b":") for text in texts)]), words[::2]
        rows = cls(indptr, np.array(indices, "S").astype(np.int64), numbers(words[1::2], real))
        ascend = (np.diff(rows.indices) > 0) | (np.diff(rows.row) > 0)
        is_right = ascend.all() and ((rows.indices >= base) & (rows.indices < 2**31)).all()
        require(is_right, BAD, f"expected ascending indices from {base} to {2**31 - 1}")
        return rows

    def take(self, some: Any) -> "Rows":
        sizes = np.diff(self.indptr)[some]
        indptr = np.append(0, np.cumsum(sizes))
        at = np.repeat(self.indptr[:-1][some] - indptr[:-1], sizes) + np.arange(indptr[-1])
        return Rows(indptr, self.indices[at], self.values[at], self.moved[some])

    def places(self, columns: np.ndarray) -> np.ndarray:
        """Return where in `columns`, ascending, each entry is; those elsewhere are at the end."""
        at = np.searchsorted(columns, self.indices)
        return np.where(np.append(columns, -1)[at] == self.indices, at, len(columns))

    def dense(self, columns: np.ndarray) -> np.ndarray:
        """Return the values of some features, ascending, (rows, columns)."""
        found = np.zeros((self.n, len(columns) + 1), self.values.dtype)
        found[self.row, self.places(columns)] = self.values
        return found[:, :-1]


class Data:
    """labels, weights: texts of each row; texts: its features; classes: the first spelling of each
    label, in order of appearance. Rows of weight 0 are left out, but for their labels. [2]"""

    def __init__(self, paths: list[str], row_weights: str | None, model: Any) -> None:
        words = [LINE.findall(line)[0] for path in paths for line in lines_of(path)]
        names, costs, texts = zip(*words, strict=True) if words else ((), (), ())
        weights = [cost or b"1" for cost in costs] if row_weights is None else lines_of(row_weights)
        require(words and len(weights) == len(words), BAD, "expected rows, and a weight for each")
        labels = [name.decode("utf-8", "surrogateescape") for name in names]
        self.value = {label: label_value(label) for label in labels}
        first = {self.value[label]: label for label in reversed(labels)}
        self.classes: dict[Any, Any] = dict.fromkeys(self.value.values()) | first
        found = numbers(weights, float)
        require(found.min() >= 0, BAD, "expected weights from 0")
        kept, every = np.flatnonzero(found).tolist(), (labels, weights, texts)
        self.labels, self.weights, self.texts = ([one[k] for k in kept] for one in every)
        self.base = 0 if model.kernel == "precomputed" else int(model.trailer["index_base"])

    def digest(self, rows: Rows, task: str) -> str:  # [4]
        names = [*self.classes.values()] if task.endswith("svc") else []
        place = {value: k for k, value in enumerate(self.classes)}
        y = [place[self.value[label]] for label in self.labels] if names else self.labels
        content = [] if task == "one-class" else y, self.weights, np.diff(rows.indptr)
        hashed = hashlib.sha256(json.dumps(names).encode())
        kinds = "<f8", "<f8", "<i8", "<i4", "<f8"
        for array, kind in zip((*content, rows.indices, rows.values), kinds, strict=True):
            hashed.update(hashlib.sha256(np.array(array).astype(kind).tobytes()).digest())
        return hashed.hexdigest()


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the values of keys, each of which comes once. [3]"""
    require(len(dict(pairs)) == len(pairs), BAD, f"a key twice: {[key for key, _ in pairs]}")
    return dict(pairs)


class Model:
    """A model file [3] and its kernel; linear and precomputed ones are the polynomial <x, z>. head:
    the words of each line of the header; trailer: its values; beta: (rows, columns), the numbers
    that begin each row; texts: the features after them; unit: the error of a rounding"""

    def __init__(self, path: str, real: Any = np.float64, content: bytes = b"") -> None:
        self.real, self.unit = real, float(np.finfo(real).eps) / 2
        self.content = content or content_of(path)
        body, found, seal = self.content.rpartition(b"\n# randsvm sha256 ")
        self.seal = hashlib.sha256(body + b"\n").hexdigest()
        text, *lines = body.split(b"\n# randsvm ")
        require(found and lines[:1] == [b"format 2"], BAD, f"{path}: expected a model of format 2")
        require(seal == self.seal.encode() + b"\n", REFUTED, f"the seal of {path} is wrong")
        read: Any = {"parse_float": real, "parse_int": real, "object_pairs_hook": once}
        read["parse_constant"] = lambda word: require(False, REFUTED, f"{word} is no number")
        parts = [line.decode("utf-8", "surrogateescape").partition(" ") for line in lines]
        trailer = self.trailer = once([(key, json.loads(value, **read)) for key, _, value in parts])
        claims = trailer.get("gap") is not None and trailer.get("certificate") != "none"
        require(claims, UNDECIDED, "MODEL claims no gap")
        require("map" not in trailer, UNDECIDED, "random features are not checked")
        self.problem: dict[str, Any] = trailer["problem"]
        self.is_linear = b"solver_type " in text[:100]
        is_l1 = self.problem.get("penalty") == "l1"
        own = b"randsvm_model 2\n"
        self.own_layout, text = text.startswith(own), text.removeprefix(own) + b"\n"
        above, _, below = text.partition(b"\nw\n" if self.is_linear else b"\nSV\n")
        head = once([(key, rest) for key, *rest in map(str.split, above.decode().split("\n"))])
        words = [line.split() for line in below.split(b"\n")[:-1]]
        task, n = self.problem["task"], len(words)
        labels = trailer.get("labels", []) if task.endswith("svc") else []
        self.head, K = head, max(2, len(labels))
        columns = 1 if K == 2 else K - ("nr_sv" in head)  # pairs have one less
        self.texts = [b" ".join(row[columns:]) for row in words]
        beta = numbers([word for row in words for word in row[:columns]], real)
        self.beta, self.b = beta.reshape(n, columns), -numbers(head.get("rho", []), real)
        self.kernel = "linear" if self.is_linear else head["kernel_type"][0]
        given = {"gamma": ["1"], "coef0": ["0"], "degree": ["1"], "bias": ["-1"]}
        needed = "bias" if self.is_linear else KERNELS.get(self.kernel, "")
        given |= {key: head[key] for key in needed.split()}
        (self.degree,) = map(int, given.pop("degree"))
        self.g, self.r, bias = numbers([word for (word,) in given.values()], real)
        d = n - (bias >= 0)
        svm_type, needed, others, _ = TASKS[task]
        said = {"nr_class": K, "svm_type": svm_type, "total_sv": n}
        if self.is_linear:
            loss, others = self.problem.get("loss", "hinge"), LINEAR[task]
            solver = LOSSES[loss].format(task.upper())
            solver = solver.replace("L2R", "L1R") if is_l1 else solver
            said = {"nr_class": K, "solver_type": solver, "nr_feature": d}
        if "label" in head or (labels and not self.own_layout):
            said["label"] = " ".join(f"{int(label_value(text))}" for text in labels)
        wrong = {key for key in said if " ".join(head.get(key, [])) != str(said[key])}
        wrong |= head.keys() - said.keys() - set(KEYWORDS.split())
        wrong |= {key for key, values in VALUES.items() if trailer.get(key) not in values}
        given, keys = self.problem, {"task", *needed.split(), *others.split()}
        wrong |= {key for key in given if key not in keys or not PROBLEM[key](given[key])}
        wrong |= {*needed.split()} - given.keys()
        wrong |= {"scale"} & trailer.keys() if self.kernel == "precomputed" else set()
        wrong |= {"loss"} & given.keys() if task == "svr" and given.get("loss") == "log" else set()
        if not self.is_linear or trailer.keys() & ERRORS:
            wrong |= ERRORS - trailer.keys()
        require(not wrong, BAD, f"missing, wrong or unknown lines or keys: {sorted(wrong)}")
        runs = [run.partition("-") for run in trailer.get("features", "").split(",") if run]
        ends = np.array([(int(a), int(b or a) + 1) for a, _, b in runs], int).reshape(-1, 2)
        is_right = bool((np.diff(ends.ravel()) >= 0).all()) and np.diff(ends).sum() <= FEATURES
        require(is_right, UNDECIDED, f"expected at most {FEATURES:,} features, ascending")
        self.known = np.concatenate([np.arange(0), *(np.arange(a, b) for a, b in ends)])
        self.scale, factor = trailer.get("scale"), np.array(trailer.get("scale_factor", []), real)
        self.factor, self.shift = factor, np.array(trailer.get("scale_shift", 0 * factor), real)
        size = len(self.known) * (self.scale in ("minmax", "standard"))
        require(len(factor) == len(self.shift) == size, BAD, f"expected {size} factors and shifts")
        if self.is_linear:  # a machine of one vector, w, with the coefficient 1
            names = self.known if self.own_layout else np.arange(1, d + 1)
            is_right = len(names) == d and not any(self.texts)
            require(is_right, BAD, f"expected {len(names)} rows of w, of {columns} numbers each")
            self.b = self.beta[-1] * bias if bias >= 0 else np.zeros(columns, real)
            both = zip(names, words, strict=False)
            w = zip(*([b"%d:%s" % (k, v) for v in row] for k, row in both), strict=True)
            self.texts = [*map(b" ".join, w)] or [b""] * columns  # without features
            self.beta = np.eye(columns, dtype=real)

    def scaled(self, rows: Rows) -> Rows:
        """Return rows as the machine sees them. [2]"""
        indptr, indices, values = rows.indptr, rows.indices, rows.values
        scale, factor, shift = self.scale, self.factor, self.shift
        if scale is None:
            return rows
        if scale == "unit":
            largest = np.zeros(rows.n, values.dtype)
            np.maximum.at(largest, rows.row, abs(values))
            # Times a power of two a short row has the same unit row, and its squares no underflow.
            values = np.ldexp(values, -np.frexp(largest)[1][rows.row])
            lengths = Rows(indptr, indices, values).lengths
            moved = np.full(rows.n, 8.0 + np.diff(indptr).max(initial=0))
            return Rows(indptr, indices, values / (lengths + (lengths == 0))[rows.row], moved)
        if shift.any():
            values, d = ((rows.dense(self.known) - shift) * factor).ravel(), len(factor)
            indptr, indices = np.arange(rows.n + 1) * d, np.tile(self.known, rows.n)
        else:  # a row stays sparse
            values = values * np.append(factor, 0)[rows.places(self.known)]
        scaled = Rows(indptr, indices, values)
        scaled.moved = 6 * (scaled.lengths + np.linalg.norm((shift * factor).astype(float)))
        return scaled

    def largest(self, product: Any, less: int = 0) -> Any:
        """Return a bound of (gamma <x, z> + coef0)^(degree - less), of products up to this size."""
        return (self.g * product + abs(self.r)) ** max(self.degree - less, 0)

    def sums(self, X: Rows, Z: Rows, B: np.ndarray) -> np.ndarray:
        """Return u_i = sum_j B_j K(z_j, x_i) and bounds of its error. [6]"""
        if not (X.n and Z.n):
            return np.zeros((2, X.n), self.real)
        if self.kernel == "precomputed":  # a vector is the unit vector of the number of a row
            names = Z.values[Z.indptr[:-1]].astype(np.int64)
            Z = Rows(np.arange(Z.n + 1), names, np.ones(Z.n, self.real))
        columns, counts = np.unique(np.append(X.indices, Z.indices), return_counts=True)
        A, C, size, root, is_fine = X, Z, abs(B), np.sqrt(self.g), self.real is FINE
        if self.kernel == "rbf" and not is_fine:  # gamma |x - z|^2 = |a - c|^2
            # A feature that all rows store may be moved: distances stay.
            of_Z = np.bincount(Z.places(columns), Z.values.astype(float), len(columns))
            centre = of_Z / Z.n * (counts == X.n + Z.n)
            A = Rows(X.indptr, X.indices, (X.values - centre[X.places(columns)]) * root)
            C = Rows(Z.indptr, Z.indices, (Z.values - centre[Z.places(columns)]) * root)
        step = min(2048, max(TILE, 2**18 // (1 + len(columns))))

        @np.errstate(all="ignore")  # each thread has a state of its own
        def part(start: int) -> np.ndarray:
            some = A.take(slice(start, start + step))
            own, found = columns if is_fine else np.unique(some.indices), list[Any]()
            rows, squares = some.dense(own), some.lengths[:, None] ** 2
            twice = 2 * rows
            for at in (slice(j, j + TILE) for j in range(0, Z.n, TILE)):
                tile = C.take(at)
                T = tile.dense(own)
                if self.kernel != "rbf":
                    base = self.g * (rows @ T.T) + self.r
                    K = math.prod([base] * self.degree, start=np.ones_like(base))
                elif is_fine:
                    both = zip(rows.T, T.T, strict=True)
                    K = sum((np.subtract.outer(x, z) ** 2 for x, z in both), 0 * squares * B[at])
                    K = np.exp(-self.g * K)
                else:  # a tile stays in the cache of the processor
                    K = twice @ T.T
                    K -= squares
                    K -= tile.lengths**2
                    np.exp(K, out=K)
                found.append((K @ B[at], abs(K) @ size[at]))
            return added(np.moveaxis(np.array(found), 0, -1))

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            u, S = np.concatenate([*pool.map(part, range(0, X.n, step))], axis=1)
        terms = 9 + max(np.diff(R.indptr).max() for R in (X, Z))
        total, x, z = size.sum(), X.lengths, Z.lengths
        if self.kernel == "precomputed":
            error = 2 * S
        elif self.kernel == "rbf":  # s^2 = gamma |x - z|^2 errs by `one` + `more` s^2 at most
            a = 0 * x if is_fine else A.lengths
            q = self.unit * (root * (X.moved + Z.moved.max()) + 4 * a)
            one = q + 2 * q * q + self.unit * (5 * terms * a * a + 9)
            more = q + self.unit * (5 * terms + 9)
            mean = np.log(np.maximum(total / np.maximum(S, 1e-300), ROOM))  # of s^2, at most
            error = np.where(one + 750 * more < 0.005, S * (one + more * mean), S + total)
            error /= self.unit
        else:
            slope = ROOM * self.degree * self.largest((x + self.unit * X.moved) * z.max(), 1)
            moved = (size @ z) * (X.moved + terms * x) + (size @ Z.moved) * x
            error = slope * (self.g * moved + 4 * abs(self.r) * total)
        return np.array([u, ROOM * self.unit * (error + (TILE + 20) * S) + 1e-290 * total])


def added(terms: np.ndarray) -> Any:
    """Return sums along the last axis; a term goes through log2(terms) additions."""
    while (count := terms.shape[-1]) > 1:
        half = terms[..., : -(-count // 2)].copy()
        half[..., : count // 2] += terms[..., -(-count // 2) :]
        terms = half
    return terms.sum(axis=-1)


def machines_of(data: Data, model: Model) -> list[Any]:
    """Return the machines [5]. rows: their numbers; y: targets, or 1 and -1; sign: that of beta
    where it has one, else 0; C: of each row; own: places in Z of its vectors; beta: their
    coefficients, of nu-svc multiplied by rho, as b; epsilon, tube, t, a, has_b"""
    given, real, beta, found = model.problem, model.real, model.beta, list[Any]()
    task, weights = given["task"], numbers(data.weights, real)
    every, own = np.arange(len(weights)), np.arange(len(beta))
    if not task.endswith("svc"):
        y = 0 * weights if task == "one-class" else numbers(data.labels, real)
        found = [(every, y, 1, own, beta[:, 0])]
    else:
        labels, total = [label_value(text) for text in model.trailer["labels"]], added(weights)
        is_same = set(labels) == set(data.classes) and len(labels) == len(data.classes) > 1
        require(is_same, REFUTED, f"the labels of the data are {[*data.classes.values()]}")
        place, K = {text: labels.index(value) for text, value in data.value.items()}, len(labels)
        classes = np.array([place[text] for text in data.labels])
        totals = [added(weights[classes == k]) for k in range(K)]
        stated = given.get("class_weights", [1] * K)
        require(len(stated) == K, BAD, f"expected {K} class_weights")
        of_class = [total / (K * totals[k]) if w is None else w for k, w in enumerate(stated)]
        has_pairs = K == 2 or given.get("multiclass") == "ovo"
        counts = [int(word) for word in model.head.get("nr_sv", [0] * K)]
        of_vector = np.repeat(np.arange(K), counts)
        is_optional = model.is_linear or (model.own_layout and (K == 2 or not has_pairs))
        is_right = sum(counts) == len(beta) or (is_optional and "nr_sv" not in model.head)
        require(is_right, BAD, f"nr_sv counts {sum(counts)} vectors, the file has {len(beta)}")
        for i, j in combinations(range(K), 2) if has_pairs else [(k, 0) for k in range(K)]:
            rows, column = every, np.full(len(beta), 0 if j else i)
            factor = np.array(of_class, real)[classes]
            if has_pairs and K > 2:
                rows, own = (np.flatnonzero((of == i) | (of == j)) for of in (classes, of_vector))
                column = np.where(of_vector[own] == i, j - 1, i)
            y = np.where(classes[rows] == i, 1, -1)
            if not (has_pairs or model.is_linear):  # the rest has one weight
                rest = total / (2 * added(weights[classes != i])) if given.get("balanced") else 1
                factor = np.where(y > 0, stated[i] or total / (2 * totals[i]), rest)
            found.append((rows, y, factor[rows], own, beta[own, column]))
    count = len(model.b)
    require(count == len(found), BAD, f"expected {len(found)} numbers rho, found {count}")
    tubes = given.get("tube", [0] * count)
    is_right = len(tubes) == count and (task == "nu-svc" or min(tubes) >= 0)
    require(is_right, BAD, f"expected {count} numbers tube, from 0 but for nu-svc")
    for k, (rows, y, factor, own, coefficients) in enumerate(found):
        one = found[k] = SimpleNamespace(rows=rows, own=own, has_b=given.get("bias", True))
        sign, one.epsilon, one.t, one.a = TASKS[task][-1](given, added(weights[rows]))
        one.C, one.y = weights[rows] * factor * given.get("C", 1), y * real(1)
        one.sign = one.y if sign is None else np.full(len(rows), sign)
        loss, one.l1 = given.get("loss", ""), given.get("penalty") == "l1"
        one.squared, one.log = "squared" in loss, loss == "log"
        one.tube = tubes[k]
        # The file has a machine of nu-svc divided by rho, and sum |beta| is nu W.
        rho = one.a / (added(abs(coefficients)) or 1) if task == "nu-svc" else 1
        one.beta, one.b = rho * coefficients, rho * model.b[k]
        require(one.has_b or not one.b, REFUTED, f"b is {one.b} in a problem without an offset")
    return found


def keys_of(X: Rows, Z: Rows, near: float) -> tuple[list[bytes], float]:
    """Return bytes of each row of X, then of Z, that are equal for equal rows; zeros may be written
    or not. Values are equal if they differ by a relative `near` at most, or are ends of a chain of
    such values. Return also by how much equal values differ at most. [5]"""
    indptr, kept = np.append(X.indptr, X.indptr[-1] + Z.indptr[1:]), np.append(X.values, Z.values)
    values, place = np.unique(kept, return_inverse=True)
    ranks = np.cumsum(np.diff(values, prepend=-np.inf) > near * abs(values))
    apart = (values - values[np.searchsorted(ranks, ranks)]) / np.maximum(abs(values), 1e-300)
    pairs = np.column_stack([np.append(X.indices, Z.indices), ranks[place.ravel()]])[kept != 0]
    ends = np.append(0, np.cumsum(kept != 0))[indptr].tolist()
    return [pairs[i:j].tobytes() for i, j in pairwise(ends)], float(apart.max(initial=0))


def divided(one: Any, at: np.ndarray, keys: list[bytes]) -> Any:
    """Return beta from the keys of the rows `at`, then of the vectors. [5] Equal rows share
    coefficients of equal vectors: those above 0 go to the highest y first, those below 0 to the
    lowest, each up to its bound."""
    left, members, beta = defaultdict[Any, Any](int), defaultdict[Any, list[int]](list), 0 * one.C
    for key, value in zip(keys[len(at) :], one.beta, strict=True):
        left[key, 1 if value > 0 else -1] += abs(value)
    for row, key in zip(at.tolist(), keys, strict=False):
        members[key].append(row)
    for (key, side), rest in left.items():
        rows = [row for row in members[key] if one.sign[row] != -side]
        text = f"a vector with the coefficient {side * rest:.6g} is no row of the data on that side"
        require(rows or not rest, REFUTED, text)
        rows.sort(key=lambda row: -side * one.y[row])
        for row in rows:
            taken = rest if row == rows[-1] else min(rest, one.C[row])
            beta[row], rest = beta[row] + side * taken, rest - taken
    return beta


def beyond_one(X: Rows, beta: Any) -> Any:
    """Return how far the largest |sum_i beta_i x_ij| over the features j is above 1, at most and at
    least."""
    at = np.argsort(X.indices, kind="stable")
    if not len(at):
        return np.zeros(2)
    # Sums of 1,024 terms, and then of these: their rounding is far below that of one long sum.
    first = np.flatnonzero(np.diff(X.indices[at], prepend=-1))
    blocks = np.union1d(first, np.arange(0, len(at), 1024))
    terms, unit = (beta[X.row] * X.values)[at], float(np.finfo(beta.dtype).eps) / 2
    sums, sizes = (
        abs(np.add.reduceat(np.add.reduceat(each, blocks), np.searchsorted(blocks, first)))
        for each in (terms, abs(terms))
    )
    error = ROOM * unit * ((1036 + X.n / 1024) * sizes + added(abs(beta) * X.moved))
    return np.maximum([(sums + side * error).max() - 1 for side in (1, -1)], 0).astype(float)


def evaluate(one: Any, beta: Any, sums: Any, kappa2: float) -> Any:
    """Return P and D and their errors, P - D and its error, by how much D may be above the optimum,
    and how much of this is no rounding. [7] beta: coefficients of D; sums: u of the machine, v of
    beta, with bounds of their errors, and |w_Z - w|^2 with the w of beta; kappa2: the largest
    K(x, x)"""
    (u, u_error), (v, v_error), (apart, apart_error) = sums
    y, C, b, tube, size, most = one.y, one.C, one.b, one.tube, abs(beta), np.maximum
    unit = float(np.finfo(C.dtype).eps) / 2
    units = (12 + math.log2(len(y))) * unit  # of the roundings of a term and its additions
    h, z, total = one.epsilon + tube, y - u - b, added(size)
    U, L, penalty = C * (one.sign >= 0), C * (one.sign <= 0), size * (size / (4 * C)) * one.squared
    in_all, farthest = penalty, max(abs(y)) + one.epsilon
    if one.log:  # D has the entropy in place of y beta
        p = np.minimum(size / C, 1)
        parts = [size * np.log(p), most(C - size, 0) * np.log1p(-p)]
        entropy = -np.nan_to_num(parts, neginf=0).sum(axis=0)  # p may underflow
        penalty, in_all = size - entropy, 9 * (size + entropy)
        farthest = 1 + abs(np.log(added(C * (y > 0)) / added(C * (y < 0))))

    def residual(z: Any) -> Any:
        over, under = (most(part, 0) ** (1 + one.squared) for part in (z - h, -z - h))
        loss = C * np.logaddexp(0, y * z - 1) if one.log else U * over + L * under
        return loss - beta * z + size * h + penalty

    error = u_error + 5 * unit * (abs(y) + abs(u) + abs(b) + abs(h))
    here, highest = residual(z), most(residual(z - error), residual(z + error))
    rounding = 2 * units * (abs(highest) + size * (abs(z) + error + abs(h)) + in_all)
    rise = most(highest - here, 0)
    sizes = abs(y) + one.epsilon + abs(v)
    D = added(y * beta - one.epsilon * size - beta * v / 2 - penalty)
    D_error = added(size * v_error) / 2 + units * added(size * sizes + in_all)
    missing, short = one.t - added(beta), (one.a - total) * bool(one.a)
    offsets = abs(b) * (total + abs(one.t)) + abs(tube) * (total + one.a)
    distance = added(here) + b * missing + tube * short + apart / 2
    span = added(rise + rounding) + units * offsets + apart_error / 2
    # [5] What coefficients exceed, or miss of their sums, costs at most the largest offset.
    bound = np.where(beta > 0, U, L)
    excess = most(size - bound * (1 - units), 0) * ~(one.squared & (bound > 0))
    k = int(np.argmax(excess - 1e-9 * C))
    text = f"the coefficient of row {one.rows[k] + 1} is {beta[k]}, its bound {C[k]}"
    require(not excess[k] > 1e-9 * C[k], REFUTED, text)
    largest = max(D + distance + D_error + span, 0)  # P
    norm = (abs(one.t) + one.a) * math.sqrt(kappa2) or (2 * largest) ** 0.5
    norm = largest if one.l1 else norm
    offset = ROOM * (farthest + norm * math.sqrt(kappa2))
    above = abs(short) if one.sign.any() else max(-short, 0)
    misses = abs(missing) * one.has_b + above + units * total
    cut = added(excess)
    lost = added(excess * (sizes + v_error)) + kappa2 * cut * cut / 2 + offset * (misses + cut)
    lost += ROOM * math.sqrt(kappa2) * cut * abs(D) * one.l1  # the cut moves each v_j
    cost = offset * misses * (misses > 1e-6 * total)
    return np.array([D + distance, D, D_error + span, D_error, distance, span, lost, cost])


def transcript_of(path: str, model: Model) -> list[dict[str, np.ndarray]]:
    """Return the arrays of each machine that --certificate wrote. [8]"""
    content, machines = content_of(path), []
    require(content.startswith(b"randsvm transcript 1\n"), BAD, f"{path}: not a transcript")
    _, second, rest = content.split(b"\n", 2)
    head, at = json.loads(second), len(content) - len(rest)
    require(head["model"] == model.seal, REFUTED, f"{path} is the transcript of another model")
    for sizes in head["machines"]:
        machines.append(dict[str, np.ndarray]())
        for name, kind in ARRAYS.items():
            array = np.frombuffer(content, kind, sizes.get(name, 0), at)
            right = np.isfinite(array) & ((array >= 0) | ("error" not in name))
            require(right.all(), REFUTED, f"{path}: {name} has what is no number, or no bound")
            machines[-1][name], at = array, at + array.nbytes
    require(at == len(content), BAD, f"{path}: expected {at} bytes, found {len(content)}")
    return machines


class Check:
    """A check in one kind of numbers. samples: how many rows are computed, as the transcript has u
    of all; 0: all. plain: the check in float64, if this one is in finer numbers"""

    def __init__(self, model: Model, data: Data, said: Any, samples: int, plain: Any) -> None:
        self.model, self.data, self.said, self.samples = model, data, said, samples
        trailer, n, self.plain = model.trailer, len(data.texts), plain
        self.X: Any = None
        self.Z, self.floor, diagonal = Rows.of(model.texts, 0, model.real), 0.0, np.ones(n)
        if "features" in trailer and model.kernel != "precomputed":
            unknown = np.setdiff1d(self.Z.indices[self.Z.values != 0], model.known)
            require(not len(unknown), BAD, f"the line features lacks {unknown}")
        self.apart = 0.0, 0.0  # of a precomputed kernel, s and the half of |K - K'| [5]
        if not (samples and model.kernel == "rbf") or "columns" in trailer:
            raw, text = Rows.of(data.texts, data.base, model.real), "other rows, labels or weights"
            is_same = plain or data.digest(raw, model.problem["task"]) == trailer["digest"]
            require(is_same, REFUTED, f"the rows do not have the digest of the model: {text}")
            self.X = model.scaled(raw)
            if model.kernel != "rbf":
                diagonal = model.largest((self.X.lengths + model.unit * self.X.moved) ** 2)
        require(n == trailer["n"], REFUTED, f"{n} rows, the model is of {trailer['n']:.0f}")
        self.machines = machines_of(data, model)
        if model.kernel == "precomputed":  # a vector is the number of a row
            names = raw.values[raw.indptr[:-1]].tolist()
            row = {name: k for k, name in enumerate(names)}
            at = [row.get(name, -1) for name in self.Z.values.tolist()]
            require(-1 not in at, REFUTED, "a vector is no row of the data")
            self.Z, diagonal = self.X.take(at), abs(raw.values[raw.indices > 0])
            require(len(row) == n <= MATRIX, UNDECIDED, f"no D is known of more than {MATRIX} rows")
            K = self.X.dense(np.sort(names).astype(int))[np.argsort(names)].astype(float)
            found, asymmetry = np.linalg.eigvalsh((K + K.T) / 2), abs(K - K.T).max() / 2
            self.apart = max(-found[0], 0) + 2.0**-52 * n * abs(found).max(), asymmetry
        elif model.problem["task"] == "one-class":
            self.floor = 0.005 * self.machines[0].t ** 2 / n * diagonal.mean()
        self.kappa2 = float(diagonal.max(initial=0)) * ROOM
        is_reduced = trailer.get("certificate") == "reduced" or "dual_of" in trailer
        self.is_own = not (model.is_linear or is_reduced)

    def rows(self, some: np.ndarray) -> Rows:
        if self.X is not None:
            return self.X.take(some)
        texts = [self.data.texts[k] for k in some]
        return self.model.scaled(Rows.of(texts, self.data.base, self.model.real))

    def sums(self, rows: np.ndarray, Z: Rows, beta: Any, said: Any = None) -> Any:
        """Return sums at rows and bounds of their errors: those of the transcript, `said`, if they
        are right at random rows."""
        if said is None:
            return self.model.sums(self.rows(rows), Z, beta)
        at = np.random.default_rng().integers(len(rows), size=self.samples * (len(rows) > 0))
        u, error = self.model.sums(self.rows(rows[at]), Z, beta)
        beyond = abs(u - said[0][at]) - said[1][at]
        for k in np.flatnonzero(beyond > error):
            text = f"u of row {rows[at[k]] + 1} is {u[k]}, {said[0][at[k]]} in the transcript"
            raise Ended(REFUTED, f"{text}, +- {said[1][at[k]]:.2g}")
        # What the errors of this check may hide at these rows may be wrong at every row. [8]
        return np.array([said[0], said[1] + (beyond + error).max(initial=0)])

    def evaluated(self, number: int) -> Any:
        """Return what `evaluate` finds of a machine."""
        one, model, kappa2 = self.machines[number], self.model, self.kappa2
        Z, said, n = self.Z.take(one.own), self.said and self.said[number], len(one.rows)
        u_said = v_said = None
        if self.samples:
            v_said = said["v"], said["v_error"]
            u_said = np.array([said["u"], said["error"]], float)
            u_said[:, said["exact"]] = said["exact_u"], said["exact_error"]
        u = self.sums(one.rows, Z, one.beta, u_said)
        at = said["rows"] if said else np.arange(n * self.is_own)
        is_legal = (np.diff(at, prepend=-1) > 0).all() and at.max(initial=0) < n
        require(is_legal, REFUTED, f"the rows of the transcript do not ascend from 0 to {n - 1}")
        beta, v, X, apart = 0 * one.C, u, self.rows(one.rows[at]), 0.0
        if self.is_own:  # a row equals a vector if their float64 numbers are equal
            scale, plain, unit = model.scale, self.plain or self, 2.0**-53
            near = 2.0**-51 * (8 + np.diff(X.indptr).max(initial=0)) * (scale == "unit")
            keys, apart = keys_of(plain.rows(one.rows[at]), plain.Z.take(one.own), near)
            if self.plain and not scale and len({*keys}) == len({*keys_of(X, Z, 0)[0]}):
                unit = model.unit  # the same finer numbers are equal
            beta = divided(one, at, keys)
        elif said:
            beta[at] = said["beta"]
        if self.plain or not self.is_own:
            v, kept = np.zeros((2, n), model.real), beta[at] != 0
            own = at[kept]
            v[:, own] = self.sums(one.rows[own], X.take(kept), beta[own], v_said)
        if self.is_own:  # [6] u is of w_Z, D of w_X: their rows are rounded to float64
            longest = Z.lengths.max(initial=0)
            step = unit * (6 * X.moved.max(initial=0) + 4 * longest) + ROOM * apart * longest
            slope = model.degree * np.sqrt(model.g * model.largest((longest + step) ** 2, 1))
            slope = np.sqrt(2 * model.g) if model.kernel == "rbf" else slope
            length = ROOM * added(abs(beta)) * slope * step * (model.kernel != "precomputed")
            shift, asymmetry = self.apart
            other = np.array([0 * beta, shift * abs(beta) + asymmetry * added(abs(beta))])
            v = v + np.array([[0], [length * math.sqrt(kappa2)]]) * (v is u) + other
            u = u + other
            return evaluate(one, beta, (u, v, (length**2 / 2,) * 2), kappa2)
        terms, infeasible = [(one.beta, *model.sums(Z, Z, one.beta)), (-2 * beta, *u)], np.zeros(2)
        if one.l1:  # |w|_1 and, in D, |sum beta x_j| <= 1 for each j, in place of |w|^2
            terms[0], infeasible = (2 * one.beta[Z.row], abs(Z.values), 0), beyond_one(X, beta[at])
            v = 0 * v
        terms.append((beta, *v))
        some = [(added(B * s), added(abs(B) * (e + 50 * model.unit * abs(s)))) for B, s, e in terms]
        parts = np.array(some) * [1, ROOM]
        of_P = evaluate(one, 0 * beta, (u, 0 * v, parts[0]), kappa2)
        found = evaluate(one, beta, (u, v, np.sum(parts, axis=0)), kappa2)
        # D of a part of beta is at least this part of D.
        found[6:] += infeasible * abs(found[1]) * np.array([1, infeasible[1] > 1e-6])
        found[[0, 2]] = of_P[[0, 2]]  # P itself does not depend on the coefficients of D
        return found

    def verdict(self) -> tuple[int, str]:
        """Return the verdict about the claims [1], and its reason."""
        found = sum(self.evaluated(number) for number in range(len(self.machines)))
        P, D, P_error, D_error, distance, span, lost, cost = found
        names, said = ("primal", "primal_error", "dual", "dual_error", "gap"), self.model.trailer
        primal, room, dual, dual_room, gap = (said.get(name) or 0 for name in names)
        size = max(abs(P), abs(D), self.floor)
        right = np.isfinite([primal, room, dual, dual_room, gap]).all()
        require(right, REFUTED, "a number that the trailer claims is infinite")
        unit = 2.0**-50 if {"primal_error", "dual_error"} & said.keys() else 2e-6
        require(unit < 1e-9 or self.model.is_linear, BAD, "expected a line primal_error")
        found_P, found_D = f"P {P:.12g} +- {P_error:.2g}", f"D {D:.12g} - {D_error + lost:.2g}"
        found_gap = f"gap {distance / size if size else 0:.6g}"
        of_sums = f"coefficients miss a sum or bound that is prescribed: it costs D {cost:.3g}"
        of_gap = span + lost / 2 + gap * (P_error + D_error)
        # A claim is true where a number, known up to an error, is at most the room of its rounding.
        claims = [
            (cost - 2 * dual_room, 0, 0, of_sums),
            (abs(P - primal) - room, P_error, primal, f"{found_P}, said {primal} +- {room:.2g}"),
            (dual - dual_room - D + lost / 2, D_error + lost / 2, dual, f"{found_D}, said {dual}"),
            (distance + lost / 2 - gap * size, of_gap, 0, f"{found_gap}, said {gap}"),
        ]
        knows_dual = self.is_own or self.said
        claims = claims if knows_dual else claims[1:2]
        stated = [max(unit * max(size, abs(one[2])), 1e-290) for one in claims]  # of underflow
        for (above, error, _, text), most in zip(claims, stated, strict=True):
            require(not above > error + most, REFUTED, text)
        for (above, error, _, text), most in zip(claims, stated, strict=True):
            if not above + error <= most:
                return UNDECIDED, f"{text}: the rounding of this check, {error:.2g}, is too large"
        if not knows_dual:
            return UNDECIDED, f"{found_P}; {dual} is only said of D: --certificate FILE decides"
        text = f"{found_P}, {found_D}, {found_gap} <= {gap:.6g}"
        if self.samples:
            share = 1 - 0.01 ** (1 / self.samples)
            text += f"; u of {self.samples:,} random rows is right, which happens with a "
            text += f"probability of at most 1% if more than {share:.2%} of all are wrong"
        return VERIFIED, text


def verdict(
    data: list[str], path: str, row_weights: str | None = None, certificate: str | None = None,
    exact: bool = False, samples: int = 2000,
) -> tuple[int, str]:  # fmt: skip
    """Return the verdict about a model, and its reason."""
    model = Model(path)
    require(model.kernel in KERNELS, UNDECIDED, f"this check knows no kernel {model.kernel}")
    require(0 <= model.degree <= DEGREE, UNDECIDED, f"this check takes degrees up to {DEGREE}")
    text = "a kernel with gamma or coef0 below 0 may be indefinite, and then has no D"
    require(model.g >= 0 and model.r >= 0, UNDECIDED, text)
    said = certificate and transcript_of(certificate, model)
    has_u = said and any(len(one["u"]) for one in said)
    try:
        rows = Data(data, row_weights, model)
        found = Check(model, rows, said, samples if has_u else 0, None)
    except (Ended, ValueError) as error:
        if "columns" not in model.trailer or error.args[0] == NO_INPUT:
            raise
        raise Ended(UNDECIDED, f"{error.args[-1]}; {OF_TABLE}") from None
    (status, text), pairs = found.verdict(), len(rows.texts) * len(model.texts)
    if has_u and status == UNDECIDED and (pairs <= PAIRS[0] or exact):
        found = Check(model, rows, said, 0, None)
        status, text = found.verdict()
    if found.samples or not text.endswith("too large"):
        return status, text
    if pairs > PAIRS[1] and not exact:
        return status, f"{text}; --exact decides, with {pairs:.2g} kernel values"
    return Check(Model(path, FINE, model.content), rows, said, 0, found).verdict()


def check(*words: Any, **options: Any) -> tuple[int, str]:
    """Return what `verdict` finds, or why a file is bad."""
    try:
        with np.errstate(all="ignore"):
            return verdict(*words, **options)
    except Ended as ended:
        return ended.args
    except MemoryError:
        return UNDECIDED, "out of memory"
    except FAULTS as error:
        return BAD, f"lacking or bad content: {error!r}"


def main() -> None:
    text = "Verify the certificate of MODEL, trained on DATA: see docs/certificate-format.md."
    parser = argparse.ArgumentParser(prog="randsvm-check", description=text)
    add = parser.add_argument
    add("data", nargs="+", metavar="DATA", help="training data in LIBSVM's format")
    add("path", metavar="MODEL", help="the model file")
    add("--row-weights", metavar="FILE", help="weights of the rows, one per line")
    add("--certificate", metavar="FILE", help="the file that randsvm-train --certificate wrote")
    add("--samples", metavar="M", type=int, default=2000, help="random rows to check [2000]")
    add("--exact", action="store_true", help="extended precision if float64 does not decide; slow")
    given = vars(parser.parse_args())
    if given["samples"] < 0:
        parser.error(f"--samples: expected 0 or more, found {given['samples']}")
    status, text = check(**given)
    line = f"{WORDS.get(status, 'randsvm-check')}: {text}\n"
    try:
        os.write(1 if status < BAD else 2, line.encode(errors="surrogateescape"))
    except OSError:
        status = NO_OUTPUT
    sys.exit(status)


if __name__ == "__main__":
    main()
