"""Verify the certificate of a model without any code of the program that wrote it.

docs/certificate-format.md is the specification; [n] in a comment names its section. This file uses
numpy and the standard library only, and runs alone: `python check.py DATA... MODEL`.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # `Kernel.sums` has a thread for each core

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
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

VERIFIED, REFUTED, UNDECIDED, BAD, NO_INPUT = 0, 1, 3, 65, 66
WORDS = {VERIFIED: "verified", REFUTED: "refuted", UNDECIDED: "undecided"}
FINE = np.longdouble  # numbers of this kind, where float64 is too coarse
PAIRS = 10**9, 10**8  # kernel values that are computed without --exact, in float64 and in FINE
ROOM = 1.01  # bounds of errors are computed with rounding, too
TILE = 256  # rows and vectors whose kernel values are computed at once
KERNELS = "linear", "polynomial", "rbf", "precomputed"
UNPACK = {b"\x1f\x8b": gzip.decompress, b"BZh": bz2.decompress, b"\xfd7zXZ": lzma.decompress}
ROW = re.compile(rb"(?:[ \t]*[0-9]+:[-+.0-9eE]+(?![^ \t]))*[ \t]*")
NUMBER = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
# [5] The tasks: the sign of coefficients (None: that of y), epsilon, t and a.
TASKS: dict[str, Any] = {
    "svc": lambda given, W: (None, 0, 0, 0),
    "nu-svc": lambda given, W: (None, 1, 0, given["nu"] * W),
    "svr": lambda given, W: (0, given["epsilon"], 0, 0),
    "nu-svr": lambda given, W: (0, 0, 0, given["C"] * given["nu"] * W),
    "one-class": lambda given, W: (1, 0, given["nu"] * W, 0),
}
# [8] The arrays of a machine in a transcript.
ARRAYS = "rows", "beta", "v", "v_error", "u", "error", "exact", "exact_u", "exact_error"
KINDS = {"rows": "<i8", "exact": "<i8", "u": "<f4", "error": "<f4"}


class Ended(Exception):  # noqa: N818 - an outcome, not a fault
    """The end of a check. args: the exit code and the reason."""


def require(condition: Any, status: int, text: str) -> None:
    if not condition:
        raise Ended(status, text)


# ---- [2] texts to numbers ------------------------------------------------------------------------


def content_of(path: str) -> bytes:
    """Return the bytes of a file, decompressed; "-" is standard input."""
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        raise Ended(NO_INPUT, f"{path}: {error.strerror}") from error
    try:
        return next((f(data) for magic, f in UNPACK.items() if data.startswith(magic)), data)
    except (OSError, EOFError, lzma.LZMAError, zlib.error, ValueError) as error:
        raise Ended(BAD, f"{path}: {error}") from error


def lines_of(path: str) -> list[bytes]:
    """Return the lines of a file that have more than a comment, without it."""
    lines = content_of(path).removeprefix(b"\xef\xbb\xbf").split(b"\n")
    return [line for one in lines if (line := one.partition(b"#")[0].strip())]


def numbers(texts: Any, real: Any) -> Any:
    """Return the number nearest to each text; in finer numbers, too, what underflows in float64 is
    the float64 number."""
    texts = np.array([*texts], None if len(texts) else real)
    found = texts.astype(real)
    if real is FINE:
        near = texts.astype(float)
        found = np.where(abs(near) < np.finfo(float).tiny, near, found)
    require(np.isfinite(found).all(), BAD, "expected finite numbers")
    return found


class Rows(NamedTuple):
    """Rows in CSR form: the entries of row i are those from indptr[i] to indptr[i + 1]."""

    indptr: np.ndarray
    indices: np.ndarray
    values: np.ndarray

    @staticmethod
    def of(texts: list[bytes], base: int, real: Any) -> "Rows":
        bad = next((text for text in texts if not ROW.fullmatch(text)), None)
        require(bad is None, BAD, f"expected words index:value, found {bad!r:.50}")
        words = b" ".join(texts).replace(b":", b" ").split()
        indptr = np.cumsum([0, *(text.count(b":") for text in texts)])
        rows = Rows(indptr, np.array(words[::2], "S").astype(np.int64), numbers(words[1::2], real))
        ascend = (np.diff(rows.indices) > 0) | (np.diff(rows.row) > 0)
        require(ascend.all() and (rows.indices >= base).all(), BAD, "expected ascending indices")
        return rows

    @property
    def row(self) -> np.ndarray:
        """The row of each entry."""
        return np.repeat(np.arange(len(self.indptr) - 1), np.diff(self.indptr))

    @property
    def squares(self) -> np.ndarray:
        """|x|^2 of each row: a sum of its squares one after another"""
        found = np.zeros(len(self.indptr) - 1, self.values.dtype)
        np.add.at(found, self.row, self.values**2)
        return found

    def take(self, some: Any) -> "Rows":
        sizes = np.diff(self.indptr)[some]
        indptr = np.append(0, np.cumsum(sizes))
        at = np.repeat(self.indptr[:-1][some] - indptr[:-1], sizes) + np.arange(indptr[-1])
        return Rows(indptr, self.indices[at], self.values[at])

    def places(self, columns: np.ndarray) -> np.ndarray:
        """Return where in `columns`, ascending, each entry is; those elsewhere are at the end."""
        at = np.searchsorted(columns, self.indices)
        return np.where(np.append(columns, -1)[at] == self.indices, at, len(columns))

    def dense(self, columns: np.ndarray) -> np.ndarray:
        """Return the values of some features, (rows, columns)."""
        found = np.zeros((len(self.indptr) - 1, len(columns) + 1), self.values.dtype)
        found[self.row, self.places(columns)] = self.values
        return found[:, :-1]


def keys_of(both: tuple[Rows, Rows], near: float) -> list[list[bytes]]:
    """Return bytes of each row that are equal for equal rows; zeros may be written or not. Values
    are equal if they differ by a relative `near` at most."""
    values, at = np.unique(np.concatenate([R.values for R in both]), return_inverse=True)
    ranks = np.cumsum(np.diff(values, prepend=-np.inf) > near * abs(values))[at.ravel()]
    found, start = [], 0
    for R in both:
        kept = R.values != 0
        pairs = np.column_stack([R.indices, ranks[start : start + len(kept)]])[kept]
        ends = np.cumsum([0, *np.bincount(R.row[kept], minlength=len(R.indptr) - 1)]).tolist()
        found.append([pairs[i:j].tobytes() for i, j in pairwise(ends)])
        start += len(kept)
    return found


def label_value(text: str) -> Any:
    """Return what a label stands for: 1, +1 and 1.0 are one class, and so are True and true."""
    is_number = NUMBER.fullmatch(text) and math.isfinite(float(text))
    if is_number and (value := Decimal(text)) == int(value):
        return value
    return text.lower() if text.lower() in ("true", "false") else text


class Data:
    """labels, weights: texts of each row; texts: its features; classes: the first spelling of each
    label, in order of appearance. Rows of weight 0 are left out, but for their labels."""

    def __init__(self, paths: list[str], weights_path: str | None, base: int) -> None:
        labels, weights, texts, self.base = list[str](), list[bytes](), list[bytes](), base
        for line in (line for path in paths for line in lines_of(path)):
            (label, row), weight = (*line.split(None, 1), b"")[:2], b"1"
            while row.startswith((b"cost:", b"qid:")):
                first, row = (*row.split(None, 1), b"")[:2]
                weight = first[5:] if first.startswith(b"cost:") else weight
            labels.append(label.decode("utf-8", "surrogateescape"))
            weights.append(weight)
            texts.append(row)
        weights = weights if weights_path is None else lines_of(weights_path)
        require(texts and len(weights) == len(texts), BAD, "expected rows, and a weight for each")
        self.value = {text: label_value(text) for text in dict.fromkeys(labels)}
        self.classes = dict[Any, str]()
        for text, value in self.value.items():
            self.classes.setdefault(value, text)
        found = numbers(weights, float)
        require(found.min() >= 0, BAD, "expected weights from 0")
        kept = np.flatnonzero(found).tolist()
        self.labels, self.weights = [labels[k] for k in kept], [weights[k] for k in kept]
        self.texts = [texts[k] for k in kept]

    def digest(self, rows: Rows, task: str) -> str:  # [4]
        is_svc, place = task.endswith("svc"), {value: k for k, value in enumerate(self.classes)}
        y: list[Any] = [] if task == "one-class" else self.labels
        y = [place[self.value[label]] for label in y] if is_svc else y
        arrays = y, self.weights, np.diff(rows.indptr), rows.indices, rows.values
        kinds = zip(arrays, ("<f8", "<f8", "<i8", "<i4", "<f8"), strict=True)
        hashes = [hashlib.sha256(np.array(a).astype(kind).tobytes()).digest() for a, kind in kinds]
        labels = json.dumps([*self.classes.values()] if is_svc else []).encode()
        return hashlib.sha256(labels + b"".join(hashes)).hexdigest()


# ---- [3] the model file --------------------------------------------------------------------------


def no_number(text: str) -> None:
    raise Ended(REFUTED, f"the trailer says {text}, which is no number")


class Model:
    """head: the words of each line of the header; trailer: its values; beta : (rows, columns), the
    numbers that begin each row; texts: the features after them; real: the kind of all numbers"""

    def __init__(self, path: str, real: Any = np.float64) -> None:
        self.real, (body, found, seal) = real, content_of(path).rpartition(b"\n# randsvm sha256 ")
        self.seal = hashlib.sha256(body + b"\n").hexdigest()
        text, *lines = body.split(b"\n# randsvm ")
        require(found and lines[:1] == [b"format 2"], BAD, f"{path}: expected a model of format 2")
        require(seal == self.seal.encode() + b"\n", REFUTED, f"the seal of {path} is wrong")
        read: Any = {"parse_float": real, "parse_int": real, "parse_constant": no_number}
        pairs = (line.decode("utf-8", "surrogateescape").partition(" ") for line in lines)
        self.trailer = {key: json.loads(value, **read) for key, _, value in pairs}
        self.problem: dict[str, Any] = self.trailer["problem"]
        self.is_linear = b"solver_type " in text[:100]
        above, _, below = text.partition(b"\nw\n" if self.is_linear else b"\nSV\n")
        self.head = {word: rest for word, *rest in map(str.split, above.decode().split("\n"))}
        runs = [run.partition("-") for run in self.trailer.get("features", "").split(",") if run]
        self.known = np.array([k for a, _, b in runs for k in range(int(a), int(b or a) + 1)], int)
        words = [line.split() for line in below.split(b"\n")] if below else []
        columns = min((sum(b":" not in word for word in row) for row in words), default=1)
        self.texts = [b" ".join(row[columns:]) for row in words]
        self.beta = numbers([word for row in words for word in row[:columns]], real)
        self.beta = self.beta.reshape(len(words), columns)
        self.b = -numbers(self.head.get("rho", []), real)
        if self.is_linear:  # a machine of one vector, w, with the coefficient 1
            bias, d = real(self.head["bias"][0]), int(self.head["nr_feature"][0])
            self.b = self.beta[-1] * bias if bias >= 0 else np.zeros(columns, real)
            names = self.known if "randsvm_model" in self.head else np.arange(1, d + 1)
            both = zip(names, words, strict=False)
            w = zip(*([b"%d:%s" % (k, v) for v in row] for k, row in both), strict=True)
            self.texts, self.beta = [*map(b" ".join, w)], np.eye(columns, dtype=real)
        self.scale, self.factor = self.trailer.get("scale"), self.trailer.get("scale_factor", [])
        self.factor = np.array(self.factor, real)
        self.shift = np.array(self.trailer.get("scale_shift") or 0 * self.factor, real)
        self.more = ROOM * float(np.linalg.norm((self.shift * self.factor).astype(float)))

    def scaled(self, rows: Rows) -> tuple[Rows, int]:
        """Return rows as the machine sees them, and k: they err by k units of |s(x)| + `more`"""
        if self.scale == "unit":
            largest = np.zeros(len(rows.indptr) - 1, rows.values.dtype)
            np.maximum.at(largest, rows.row, abs(rows.values))
            # Times a power of two a short row has the same unit row, and its squares no underflow.
            values = np.ldexp(rows.values, -np.frexp(largest)[1][rows.row])
            lengths = np.sqrt(rows._replace(values=values).squares)
            values = values / (lengths + (lengths == 0))[rows.row]
            return rows._replace(values=values), 8 + int(np.diff(rows.indptr).max(initial=0))
        if self.scale is None:
            return rows, 1
        if not self.shift.any():  # a row stays sparse
            values = rows.values * np.append(self.factor, 0)[rows.places(self.known)]
            return rows._replace(values=values), 6
        values, d = (rows.dense(self.known) - self.shift) * self.factor, len(self.known)
        indptr, indices = np.arange(len(values) + 1) * d, np.tile(self.known, len(values))
        return Rows(indptr, indices, values.ravel()), 6


# ---- [6] sums of kernel values -------------------------------------------------------------------


def added(terms: np.ndarray) -> Any:
    """Return sums along the last axis; a term goes through log2(terms) additions."""
    while (count := terms.shape[-1]) > 1:
        half = terms[..., : -(-count // 2)].copy()
        half[..., : count // 2] += terms[..., -(-count // 2) :]
        terms = half
    return terms.sum(axis=-1)


class Kernel:
    """A kernel; the linear one is the polynomial <x, z>, and so is a precomputed one: its vectors
    have a 1 at their number. `rows`, `vectors`: as Model.scaled returns them"""

    def __init__(self, model: Model) -> None:
        head, self.real, self.more = model.head, model.real, model.more
        self.unit = float(np.finfo(self.real).eps) / 2  # the largest relative error of a rounding
        self.name = head.get("kernel_type", KERNELS)[0]
        require(self.name in KERNELS, UNDECIDED, f"this check knows no kernel {self.name}")
        self.is_rbf, self.degree = self.name == "rbf", int(head.get("degree", [1])[0])
        self.g, self.r = (self.real(head.get(a, [b])[0]) for a, b in (("gamma", 1), ("coef0", 0)))

    def largest(self, product: Any, less: int = 0) -> Any:
        """Return a bound of (gamma <x, z> + coef0)^(degree - less), of products up to this size."""
        return (self.g * product + abs(self.r)) ** max(self.degree - less, 0)

    def error(self, k: Any, a: Any, z: Any, apart: Any, B: Any, terms: int, S: Any) -> Any:
        """Return bounds of the errors of sums.

        k: roundings of rows and vectors; a, z: their lengths; apart: of a row and the longest
        vector together, after they were moved, or 0 if distances are from differences; B: sizes of
        coefficients; terms: of a product; S: sums of |B K| and of |B K| gamma |x - z|^2
        """
        total, unit = B.sum(), self.unit
        of_a, of_z = k[0] * (a + self.more), k[1] * (z + self.more)  # of features, in units
        if self.name == "precomputed":
            return 2 * unit * S[0]
        if not self.is_rbf:
            slope = self.degree * self.largest(ROOM * (a + 1e-9 * self.more) * z.max(), 1)
            size = self.g * ((B @ z) * (of_a + (terms + 6) * a) + (B @ of_z) * a)
            return unit * slope * (size + 4 * abs(self.r) * total) + 1e-300 * total
        # The distance r of two rows errs by w, so gamma r^2 by at most q (1 + gamma r^2) + q^2.
        q = np.sqrt(self.g) * unit * (of_a + of_z.max() + apart)
        of_size = q + q * q + (terms + 8) * unit * self.g * apart**2 + 9 * unit  # 8 of exp
        of_square = q + (terms + 6) * unit
        bound = of_size * S[0] + of_square * S[1] + 1e-300 * total
        return np.where(of_size + 750 * of_square < 0.005, bound, 2 * total)

    def sums(self, rows: Any, vectors: Any, B: np.ndarray) -> tuple[Any, Any]:
        """Return u_i = sum_j B_j K(z_j, x_i) and bounds of its error."""
        (X, *k), (Z, k_of_Z), n, m, size = rows, vectors, len(rows[0].indptr) - 1, len(B), abs(B)
        if not (n and m):
            return np.zeros(n, self.real), np.zeros(n, self.real)
        columns, a, z = np.union1d(X.indices, Z.indices), np.sqrt(X.squares), np.sqrt(Z.squares)
        terms = 1 + max(int(np.diff(R.indptr).max()) for R in (X, Z))
        few = self.is_rbf and len(columns) <= 8
        if self.is_rbf and not few:  # a feature that all rows store may be moved: distances stay
            both = [R.places(columns) for R in (X, Z)]
            is_full = np.bincount(np.concatenate(both), minlength=len(columns)) == n + m
            centre = is_full * np.bincount(both[1], Z.values.astype(float), len(columns)) / m
            X, Z = (R._replace(values=R.values - centre[R.places(columns)]) for R in (X, Z))
        squares, of_Z = X.squares, Z.squares
        whole = Z.dense(columns) if few else Z.values
        tiles = [np.arange(j, min(j + TILE, m)) for j in range(0, m, TILE)]

        def part(start: int) -> np.ndarray:
            some, own2 = X.take(slice(start, start + TILE)), squares[start : start + TILE, None]
            own, found = columns if few else np.unique(some.indices), np.zeros(1)
            A = some.dense(own)
            for at in tiles:
                T = whole[at] if few else Z.take(at).dense(own)
                if not self.is_rbf:
                    K = math.prod([self.g * (A @ T.T) + self.r] * self.degree)
                    found = found + np.array([abs(K) @ size[at], 0 * own2[:, 0], added(K * B[at])])
                    continue
                t = np.zeros((len(A), len(T)), self.real)  # |x - z|^2
                for j in range(len(own) * few):
                    apart = A[:, [j]] - T[:, j]
                    t += apart * apart
                t = t if few else np.maximum(own2 + of_Z[at] - 2 * (A @ T.T), 0)
                K = t * -self.g
                np.exp(K, out=K)
                S = K @ size[at], self.g * np.einsum("ij,ij,j->i", K, t, size[at])
                found = found + np.array([*S, added(K * B[at])])
            return found

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            *S, u = np.concatenate([*pool.map(part, range(0, n, TILE))], axis=1)
        apart = 0 * a if few else np.sqrt(squares) + np.sqrt(of_Z.max())
        error = self.error((*k, k_of_Z), a, z, apart, size, terms, S)
        return u, ROOM * (error + (12 + len(tiles)) * self.unit * S[0])


# ---- [5] problems --------------------------------------------------------------------------------


def machines_of(data: Data, model: Model) -> list[Any]:
    """Return the machines. rows: their numbers; y: targets, or 1 and -1; sign: that of beta where
    it has one, else 0; C: of each row; own: places in Z of its vectors; beta: their coefficients,
    of nu-svc multiplied by rho, as b; epsilon, tube, t, a, has_b"""
    given, real, beta = model.problem, model.real, model.beta
    weights = numbers(data.weights, real)
    every, found = np.arange(len(weights)), list[Any]()
    if not given["task"].endswith("svc"):
        y = 0 * weights if given["task"] == "one-class" else numbers(data.labels, real)
        found = [(every, y, 1, np.arange(len(beta)), beta[:, 0])]
    else:
        labels, total = [label_value(text) for text in model.trailer["labels"]], added(weights)
        text = f"labels {model.trailer['labels']} in the model, {[*data.value]} in the data"
        require(set(labels) == set(data.classes), REFUTED, text)
        classes, K = np.array([labels.index(data.value[text]) for text in data.labels]), len(labels)
        totals = np.array([added(weights[classes == k]) for k in range(K)], real)
        stated = given.get("class_weights", [1] * K)
        of_class = [total / (K * totals[k]) if w is None else w for k, w in enumerate(stated)]
        against_rest = K > 2 and given.get("multiclass") != "ovo"
        pairs = [(i, j) for i in range(K) for j in range(i + 1, K)]
        of_vector = np.repeat(np.arange(K), [int(v) for v in model.head.get("nr_sv", [0] * K)])
        for k, (i, j) in enumerate([(k, k) for k in range(K)] if against_rest else pairs):
            rows, own, coefficients = every, np.arange(len(beta)), beta[:, k * against_rest]
            if K > 2 and not against_rest:
                text = f"nr_sv counts {len(of_vector)} vectors, the file has {len(beta)}"
                require(len(of_vector) == len(beta), BAD, text)
                rows = np.flatnonzero((classes == i) | (classes == j))
                own = np.flatnonzero((of_vector == i) | (of_vector == j))
                coefficients = np.where(of_vector == i, beta[:, j - 1], beta[:, i])[own]
            y, factor = np.where(classes[rows] == i, real(1), real(-1)), np.array(of_class, real)
            factor = factor[classes[rows]]
            if against_rest and not model.is_linear:  # the rest has one weight
                rest = total / (2 * added(weights[classes != i])) if given.get("balanced") else 1
                factor = np.where(y > 0, stated[i] or total / (2 * totals[i]), rest)
            found.append((rows, y, factor, own, coefficients))
    text = f"expected {len(found)} numbers rho, found {len(model.b)}"
    require(len(model.b) == len(found), BAD, text)
    for k, (rows, y, factor, own, coefficients) in enumerate(found):
        one = found[k] = SimpleNamespace(rows=rows, y=y, own=own, has_b=given.get("bias", True))
        sign, one.epsilon, one.t, one.a = TASKS[given["task"]](given, added(weights[rows]))
        one.C, one.sign = weights[rows] * factor * given.get("C", 1), y
        if sign is not None:
            one.sign = 0 * y + sign
        one.tube = given["tube"][k] if given["task"].startswith("nu") else 0
        # The file has a machine of nu-svc divided by rho, and sum |beta| is nu W.
        rho = one.a / (added(abs(coefficients)) or 1) if given["task"] == "nu-svc" else 1
        one.beta, one.b = rho * coefficients, rho * model.b[k]
        require(one.has_b or not one.b, REFUTED, f"b is {one.b} in a problem without an offset")
    return found


def divided(one: Any, at: np.ndarray, of_rows: list[Any], of_vectors: list[Any]) -> Any:
    """Return beta from the keys of the rows `at` and of the vectors. Equal rows share coefficients
    of equal vectors: those above 0 go to the highest y first, those below 0 to the lowest, each up
    to its bound."""
    left, members, beta = dict[Any, Any](), dict[Any, list[int]](), 0 * one.C
    for key, value in zip(of_vectors, one.beta, strict=True):
        side = 1 if value > 0 else -1
        left[key, side] = left.get((key, side), 0) + abs(value)
    for row, key in zip(at.tolist(), of_rows, strict=True):
        members.setdefault(key, []).append(row)
    for (key, side), rest in left.items():
        rows = [row for row in members.get(key, []) if one.sign[row] != -side]
        text = f"a vector with the coefficient {side * rest:.6g} is no row of the data on that side"
        require(rows or not rest, REFUTED, text)
        rows.sort(key=lambda row: -side * one.y[row])
        for row in rows:
            taken = rest if row == rows[-1] else min(rest, one.C[row])
            beta[row], rest = beta[row] + side * taken, rest - taken
    return beta


# ---- [7] P, D and their difference ---------------------------------------------------------------


def evaluate(one: Any, beta: Any, sums: Any, kappa2: float, squared: bool, knows_dual: bool) -> Any:
    """Return P and D and their errors, P - D and its error, by how much D may be above the optimum,
    and how much of this is no rounding.

    beta: coefficients of D; sums: u of the machine, v of beta, with bounds of their errors, and
    |w_Z - w|^2 with the w of beta; kappa2: the largest K(x, x)
    """
    (u, u_error), (v, v_error), (apart, apart_error) = sums
    y, C, b, tube, size, most = one.y, one.C, one.b, one.tube, abs(beta), np.maximum
    unit = float(np.finfo(C.dtype).eps) / 2
    units = (12 + math.log2(len(y))) * unit  # of the roundings of a term and its additions
    h, z, up, down = one.epsilon + tube, y - u - b, (size + beta) / 2, (size - beta) / 2
    U, L, total = np.where(one.sign >= 0, C, 0), np.where(one.sign <= 0, C, 0), added(size)
    penalty = size * size / (4 * C) * squared

    def loss(z: Any) -> Any:
        over, under = most(z - h, 0), most(-z - h, 0)
        return U * over**2 + L * under**2 if squared else U * over + L * under

    def residual(z: Any) -> Any:
        return loss(z) - up * (z - h) - down * (-z - h) + penalty

    error = u_error + 5 * unit * (abs(y) + abs(u) + abs(b) + abs(h))
    here, low, high = residual(z), z - error, z + error
    rounding = units * (most(loss(low), loss(high)) + size * (abs(z) + abs(h)) + penalty)
    rise = most(most(residual(low), residual(high)) - here, 0)
    sizes = abs(y) + one.epsilon + abs(v)
    D = added(y * beta - one.epsilon * size - beta * v / 2 - penalty)
    D_error = added(size * v_error) / 2 + units * added(size * sizes + penalty)
    missing, short = one.t - added(beta), (one.a - total) * bool(one.a)
    offsets = abs(b) * (total + abs(one.t)) + abs(tube) * (total + one.a)
    distance = added(here) + b * missing + tube * short + apart / 2
    span = added(rise + rounding) + units * offsets + apart_error / 2
    # [5] What coefficients exceed, or miss of their sums, costs at most the largest offset.
    beyond = [most(part - U_or_L * (1 - units), 0) for part, U_or_L in ((up, U), (down, L))]
    excess = beyond[0] * ~(squared & (U > 0)) + beyond[1] * ~(squared & (L > 0))
    k = int(np.argmax(excess))
    text = f"the coefficient of row {one.rows[k] + 1} is {beta[k]}, its bound {C[k]}"
    require(not excess[k] > 1e-9 * C[k], REFUTED, text)
    largest = max(D + distance + D_error + span, 0)  # P
    norm = (abs(one.t) + one.a) * math.sqrt(kappa2) or math.sqrt(2 * largest)
    offset = ROOM * (max(abs(y)) + one.epsilon + norm * math.sqrt(kappa2))
    above = abs(short) if one.sign.any() else max(-short, 0)
    misses = (abs(missing) * one.has_b + above + units * total) * knows_dual
    cut = added(excess)
    lost = added(excess * (sizes + v_error)) + kappa2 * cut * cut / 2 + offset * (misses + cut)
    cost = offset * misses * (misses > 1e-6 * total)
    return np.array([D + distance, D, D_error + span, D_error, distance, span, lost, cost])


def judged(found: np.ndarray, model: Model, floor: float, knows_dual: bool) -> tuple[int, str]:
    """Return the verdict about the claims [1], and its reason."""
    P, D, P_error, D_error, distance, span, lost, cost = found
    names, said = ("primal", "primal_error", "dual", "dual_error", "gap"), model.trailer
    primal, room, dual, dual_room, gap = (said.get(name) or 0 for name in names)
    size = max(abs(P), abs(D), floor)
    stated = (2.0**-50 if "primal_error" in said else 2e-6) * max(abs(primal), abs(dual), size)
    stated = max(stated, 1e-290)  # of underflow
    found_P, found_D = f"P {P:.12g} +- {P_error:.2g}", f"D {D:.12g} - {D_error + lost:.2g}"
    found_gap = f"gap {distance / size if size else 0:.6g}"
    of_sums = f"coefficients miss a sum that the problem prescribes, which costs D up to {cost:.3g}"
    of_gap = span + lost / 2 + gap * (P_error + D_error)
    # A claim is true where a number is at most `stated`; the number is known up to an error.
    claims = [
        (cost - 2 * dual_room if knows_dual else 0, 0, of_sums),
        (abs(P - primal) - room, P_error, f"{found_P}, said {primal} +- {room:.2g}"),
        (dual - dual_room - D + lost / 2, D_error + lost / 2, f"{found_D}, said {dual}"),
        (distance + lost / 2 - gap * size, of_gap, f"{found_gap}, said {gap}"),
    ][: 4 if knows_dual else 2]
    for above, error, text in claims:
        require(not above > error + stated, REFUTED, text)
    for above, error, text in claims:
        if not above + error <= stated:
            return UNDECIDED, f"{text}: the rounding of this check, {error:.2g}, is too large"
    if not knows_dual:
        return UNDECIDED, f"{found_P}; {dual} is only said of D: --certificate FILE decides"
    return VERIFIED, f"{found_P}, {found_D}, {found_gap} <= {gap:.6g}"


# ---- the command ---------------------------------------------------------------------------------


def transcript_of(path: str, model: Model) -> list[dict[str, np.ndarray]]:
    """Return the arrays of each machine that --certificate wrote. [8]"""
    content, machines = content_of(path), []
    first, second, rest = content.split(b"\n", 2)
    require(first == b"randsvm transcript 1", BAD, f"{path}: not a transcript")
    head, at = json.loads(second), len(content) - len(rest)
    require(head["model"] == model.seal, REFUTED, f"{path} is the transcript of another model")
    for sizes in head["machines"]:
        machines.append(dict[str, np.ndarray]())
        for name in ARRAYS:
            array = np.frombuffer(content, KINDS.get(name, "<f8"), sizes.get(name, 0), at)
            require(np.isfinite(array).all(), REFUTED, f"{path}: {name} has what is no number")
            machines[-1][name], at = array, at + array.nbytes
    require(at == len(content), BAD, f"{path}: expected {at} bytes, found {len(content)}")
    return machines


class Check:
    """A check in one kind of numbers. samples: how many rows are computed, as the transcript has u
    of all; 0: all. keys: see keys_of, of the rows and vectors of each machine, from float64"""

    def __init__(self, model: Model, data: Data, said: Any, samples: int, keys: Any) -> None:
        self.model, self.data, self.said, self.samples, self.keys = model, data, said, samples, keys
        trailer, n, kernel = model.trailer, len(data.texts), Kernel(model)
        self.kernel, self.X = kernel, None
        Z, diagonal, self.floor = Rows.of(model.texts, 0, model.real), np.ones(n), 0.0
        self.is_precomputed, self.Z = kernel.name == "precomputed", Z
        if not samples or not kernel.is_rbf:
            raw = Rows.of(data.texts, data.base, model.real)
            text = (
                f"the rows do not have the digest {trailer['digest']}: other rows, labels, weights"
            )
            is_same = (
                model.real is FINE or data.digest(raw, model.problem["task"]) == trailer["digest"]
            )
            require(is_same, REFUTED, text)
            self.X, sizes = model.scaled(raw), raw.values[raw.indices > 0]
            if not kernel.is_rbf:
                diagonal = kernel.largest((np.sqrt(self.X[0].squares) + 1e-9 * model.more) ** 2)
            if self.is_precomputed:
                diagonal, self.Z = abs(sizes), self.as_vectors(Z)
        text = f"{n} rows, the model was trained on {trailer['n']:.0f}"
        require(n == trailer["n"], REFUTED, text)
        self.kappa2 = float(diagonal.max(initial=0)) * ROOM
        self.machines = machines_of(data, model)
        if model.problem["task"] == "one-class" and not self.is_precomputed:
            self.floor = 0.005 * self.machines[0].t ** 2 / n * diagonal.mean()
        is_reduced = trailer.get("certificate") == "reduced" or "dual_of" in trailer
        self.is_own = not (model.is_linear or is_reduced)
        self.knows_dual = self.is_own or bool(said)

    def rows(self, some: np.ndarray) -> tuple[Rows, int]:
        if self.X is not None:
            return self.X[0].take(some), self.X[1]
        texts = [self.data.texts[k] for k in some]
        return self.model.scaled(Rows.of(texts, self.data.base, self.model.real))

    def as_vectors(self, rows: Rows) -> Rows:
        """Return rows as vectors of a machine: those of a precomputed kernel have their numbers."""
        if not self.is_precomputed:
            return rows
        names = rows.values[rows.indptr[:-1]]
        return Rows(np.arange(len(names) + 1), names.astype(np.int64), 0 * names + 1)

    def as_rows(self, Z: Rows) -> Rows:
        """Return the rows of vectors: with a precomputed kernel, those with their numbers."""
        if self.X is None or not self.is_precomputed:
            return Z
        places = {name: row for row, name in enumerate(self.as_vectors(self.X[0]).indices.tolist())}
        return self.X[0].take([places[name] for name in Z.indices.tolist()])

    def sums(self, rows: np.ndarray, vectors: Any, beta: Any, said: Any = None) -> tuple[Any, Any]:
        """Return sums at rows and bounds of their errors: those of the transcript, `said`, if they
        are right at random rows."""
        if said is None:
            return self.kernel.sums(self.rows(rows), vectors, beta)
        at = np.random.default_rng().integers(len(rows), size=self.samples * (len(rows) > 0))
        u, error = self.kernel.sums(self.rows(rows[at]), vectors, beta)
        beyond = abs(u - said[0][at]) - error - said[1][at]
        for k in np.flatnonzero(~(beyond <= 0)):
            text = f"u of row {rows[at[k]] + 1} is {u[k]}, {said[0][at[k]]} in the transcript"
            raise Ended(REFUTED, f"{text}, +- {said[1][at[k]]:.2g}")
        return said

    def evaluated(self, number: int) -> Any:
        """Return what `evaluate` finds of a machine."""
        one, model, kernel = self.machines[number], self.model, self.kernel
        Z, said, u_said, v_said = self.Z.take(one.own), self.said and self.said[number], None, None
        n, unit = len(one.rows), kernel.unit
        at = np.arange(n) if self.is_own else np.empty(0, int)
        if said and (self.samples or not self.is_own):
            at = said["rows"]
        if self.samples:
            u, u_error = said["u"].astype(float), said["error"].astype(float)
            u[said["exact"]], u_error[said["exact"]] = said["exact_u"], said["exact_error"]
            u_said, v_said = (u, u_error), (said["v"], said["v_error"])
        u, u_error = self.sums(one.rows, (Z, 1), one.beta, u_said)
        is_legal = (np.diff(at, prepend=-1) > 0).all() and at.max(initial=0) < n
        require(is_legal, REFUTED, f"the rows of the transcript do not ascend from 0 to {n - 1}")
        rows, k = self.rows(one.rows[at])
        if self.is_own:
            # The float64 numbers nearest to a row and a vector are equal, or those of FINE are.
            both, step = (self.as_vectors(rows), Z), 2.0**-53
            if number not in self.keys or model.scale is None:
                keys = keys_of(both, 4 * k * unit * (model.scale == "unit"))
                if number not in self.keys or set(keys[1]) <= set(keys[0]):
                    self.keys[number], step = keys, unit
            beta = divided(one, at, *self.keys[number])
        else:
            beta = np.zeros(n, model.real)
            beta[at] = said["beta"] if said else 0
        v, v_error, at = u, u_error, at[beta[at] != 0]
        if not self.is_own or model.real is FINE:
            own = self.as_vectors(self.rows(one.rows[at])[0]), k
            v, v_error = 0 * beta, 0 * beta
            v[at], v_error[at] = self.sums(one.rows[at], own, beta[at], v_said)
        if self.is_own:  # [6] u is of w_Z, D of w_X: their rows are rounded to float64
            longest = math.sqrt(Z.squares.max(initial=0)) * ROOM + 1e-9 * model.more
            slope = kernel.degree * np.sqrt(kernel.g * kernel.largest(longest**2, 1))
            slope = math.sqrt(2 * kernel.g) if kernel.is_rbf else slope
            length = abs(beta).sum() * slope * (6 * k + 4) * step * (longest + model.more)
            v_error = v_error + length * math.sqrt(self.kappa2) * (v is u)
            return self.evaluate(one, beta, (u, u_error), (v, v_error), (length**2 / 2,) * 2)
        w, w_error = kernel.sums((self.as_rows(Z), k), (Z, 1), one.beta)
        terms = np.concatenate([one.beta * w, -2 * beta * u, beta * v])
        error = abs(one.beta) @ w_error
        norm = one.beta @ w, ROOM * (error + (len(w) + 4) * unit * (abs(one.beta) @ abs(w)))
        of_P = self.evaluate(one, 0 * beta, (u, u_error), (0 * v, 0 * v), norm)
        error += abs(beta) @ (2 * u_error + v_error)
        apart = terms.sum(), ROOM * (error + (len(terms) + 4) * unit * abs(terms).sum())
        found = self.evaluate(one, beta, (u, u_error), (v, v_error), apart)
        found[[0, 2]] = of_P[[0, 2]]  # P itself does not depend on the coefficients of D
        return found

    def evaluate(self, one: Any, beta: Any, u: Any, v: Any, apart: Any) -> Any:
        squared = "squared" in self.model.problem.get("loss", "")
        return evaluate(one, beta, (u, v, apart), self.kappa2, squared, self.knows_dual)

    def verdict(self) -> tuple[int, str]:
        found = sum(self.evaluated(number) for number in range(len(self.machines)))
        status, text = judged(found, self.model, self.floor, self.knows_dual)
        if self.samples:
            share = 1 - 0.01 ** (1 / self.samples)
            text += (
                f"; u of {self.samples:,} random rows was computed: a transcript with more than "
            )
            text += f"{share:.2%} wrong rows passes with a probability of at most 1%"
        return status, text


def verdict(
    data: list[str], path: str, weights: Any, transcript: Any, exact: bool, samples: int
) -> Any:
    model, keys = Model(path, np.float64), dict[int, Any]()
    claims = model.trailer.get("gap") is not None and model.trailer.get("certificate") != "none"
    require(claims, UNDECIDED, "MODEL claims no gap")
    require("map" not in model.trailer, UNDECIDED, "random features are not checked")
    is_precomputed = model.head.get("kernel_type") == ["precomputed"]
    base, is_copy = 0 if is_precomputed else int(model.trailer["index_base"]), True
    try:
        rows = Data(data, weights, base)
        if "columns" in model.trailer:
            digest = rows.digest(Rows.of(rows.texts, base, np.float64), model.problem["task"])
            is_copy = digest == model.trailer["digest"]
    except Ended as ended:
        if "columns" not in model.trailer or ended.args[0] == NO_INPUT:
            raise
        is_copy = False
    text = "the model is of a table; an svmlight copy of its rows, features in the order of the "
    text += "columns, decides: docs/tables.md, 'Check the certificate', has a program for it"
    require(is_copy, UNDECIDED, text)
    said, pairs = (
        transcript and transcript_of(transcript, model),
        len(rows.texts) * len(model.texts),
    )
    if said and any(len(one["u"]) for one in said):
        status, text = Check(model, rows, said, samples, {}).verdict()
        if status != UNDECIDED or (pairs > PAIRS[0] and not exact):
            return status, text
    status, text = Check(model, rows, said, 0, keys).verdict()
    if status == UNDECIDED and text.endswith("too large"):
        if pairs > PAIRS[1] and not exact:
            return status, f"{text}; --exact decides, with {pairs:.2g} kernel values"
        return Check(Model(path, FINE), rows, said, 0, keys).verdict()
    return status, text


def check(
    data: list[str], path: str, row_weights: str | None = None, certificate: str | None = None,
    exact: bool = False, samples: int = 2000,
) -> tuple[int, str]:  # fmt: skip
    """Return the verdict about a model, and its reason."""
    try:
        with np.errstate(all="ignore"):
            return verdict(data, path, row_weights, certificate, exact, samples)
    except Ended as ended:
        return ended.args
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        return BAD, f"lacking or bad content: {error!r}"


def main() -> None:
    text = "Verify the certificate of MODEL, trained on DATA: see docs/certificate-format.md."
    parser = argparse.ArgumentParser(prog="randsvm-check", description=text)
    parser.add_argument("data", nargs="+", metavar="DATA")
    parser.add_argument("path", metavar="MODEL")
    parser.add_argument("--row-weights", metavar="FILE", help="weights of rows, one a line")
    parser.add_argument("--certificate", metavar="FILE", help="what randsvm-train wrote there")
    parser.add_argument("--samples", metavar="M", type=int, default=2000, help="random rows [2000]")
    parser.add_argument("--exact", action="store_true", help="compute as long as it takes")
    status, text = check(**vars(parser.parse_args()))
    stream = sys.stdout if status < BAD else sys.stderr
    print(f"{WORDS.get(status, 'randsvm-check')}: {text}", file=stream)
    sys.exit(status)


if __name__ == "__main__":
    main()
