"""Verify the certificate of a model without any code of the program that wrote it.

docs/certificate-format.md is the specification; [n] in a comment names its section. This file uses
numpy and the standard library only, and runs alone: `python check.py DATA... MODEL`.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # `float_sums` has a thread for each core

import argparse
import bz2
import gzip
import hashlib
import json
import lzma
import math
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from decimal import Context, Decimal, setcontext
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

VERIFIED, REFUTED, UNDECIDED, BAD, NO_INPUT = 0, 1, 3, 65, 66
UNIT = 2.0**-53  # a rounding of float64 changes a number by this share of it at most
DIGITS = 50  # of exact arithmetic
ROOM = 1.01  # bounds of errors are computed with rounding, too
TILE, ROWS = 512, 512  # vectors and rows whose kernel values are computed at once
STEPS = 4_000_000  # of exact arithmetic without --exact, about a second each million
ZERO, ONE = Decimal(0), Decimal(1)
# [8] The arrays of a machine in a transcript.
KINDS = dict.fromkeys(("rows", "exact"), "<i8") | dict.fromkeys(("u", "error"), "<f4")
NAMES = "rows", "beta", "v", "v_error", "u", "error", "exact", "exact_u", "exact_error"


class Ended(Exception):  # noqa: N818 - an outcome, not a fault
    """The end of a check. status: the exit code."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


def require(condition: Any, status: int, text: str) -> None:
    if not condition:
        raise Ended(status, text)


# ---- [2] texts to numbers ------------------------------------------------------------------------


def content_of(path: str) -> bytes:
    """Return the bytes of a file, decompressed; "-" is standard input."""
    readers = {b"\x1f\x8b": gzip.decompress, b"BZh": bz2.decompress, b"\xfd7zXZ": lzma.decompress}
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        raise Ended(NO_INPUT, f"{path}: {error.strerror}") from error
    try:
        return next((f(data) for magic, f in readers.items() if data.startswith(magic)), data)
    except (OSError, EOFError, lzma.LZMAError, ValueError) as error:
        raise Ended(BAD, f"{path}: {error}") from error


def number(text: str, name: str = "MODEL") -> Decimal:
    """Return the number that a text states."""
    try:
        found = Decimal(text)
        is_number = found.is_finite() and math.isfinite(float(found)) and "_" not in text
    except ArithmeticError:
        is_number = False
    require(is_number, BAD, f"{name}: expected a number, found {text[:40]!r}")
    return found


def pairs_of(text: bytes, name: str, base: int = 0) -> list[tuple[int, bytes]]:
    """Return the indices and the texts of words `index:value`."""
    words = [word.partition(b":") for word in text.split()]
    try:
        pairs = [(int(index), value) for index, _, value in words]
    except ValueError:
        pairs = [(-1, b"")]
    indices = [base - 1, *(index for index, _ in pairs)]
    legal = all(a < b for a, b in pairwise(indices))
    legal = legal and not text.translate(None, b"0123456789+-.eE: \t\r\n\v\f")
    require(legal, BAD, f"{name}: expected index:value with ascending indices, found {text[:40]!r}")
    return pairs


@dataclass
class Rows:
    """Rows in CSR form: the entries of row i are those from indptr[i] to indptr[i + 1]."""

    indptr: np.ndarray
    indices: np.ndarray
    values: np.ndarray

    @staticmethod
    def of(texts: list[bytes], name: str, base: int = 0) -> "Rows":
        """Return the rows of texts; a value is the float64 number nearest to its text."""
        rows = [pairs_of(text, name, base) for text in texts]
        try:
            values = np.array([float(value) for row in rows for _, value in row])
        except ValueError:
            values = np.array([np.nan])
        require(np.isfinite(values).all(), BAD, f"{name}: expected finite numbers")
        indices = np.array([index for row in rows for index, _ in row], np.int64)
        return Rows(np.cumsum([0, *map(len, rows)]), indices, values)

    def __len__(self) -> int:
        return len(self.indptr) - 1

    @property
    def row(self) -> np.ndarray:
        """Return the row of each entry."""
        return np.repeat(np.arange(len(self)), np.diff(self.indptr))

    def __getitem__(self, rows: np.ndarray) -> "Rows":
        sizes = np.diff(self.indptr)[rows]
        indptr = np.append(0, np.cumsum(sizes))
        at = np.repeat(self.indptr[rows] - indptr[:-1], sizes) + np.arange(indptr[-1])
        return Rows(indptr, self.indices[at], self.values[at])

    def places(self, columns: np.ndarray) -> np.ndarray:
        """Return where in `columns`, ascending, each entry is; those elsewhere are at the end."""
        at = np.searchsorted(columns, self.indices)
        return np.where(np.append(columns, -1)[at] == self.indices, at, len(columns))

    def dense(self, columns: np.ndarray) -> np.ndarray:
        """Return the values of some features, (rows, columns)."""
        found = np.zeros((len(self), len(columns) + 1))
        found[self.row, self.places(columns)] = self.values
        return found[:, :-1]

    def sums(self, terms: np.ndarray) -> np.ndarray:
        """Return the sum over each row of one term for each entry."""
        return np.bincount(self.row, terms, len(self))

    def keys(self, kind: str) -> list[bytes]:
        """Return bytes that are equal for equal rows; zeros may be written or not."""
        kept = self.values != 0
        indptr = np.append(0, np.cumsum(self.sums(kept))).astype(np.int64).tolist()
        both = [self.indices[kept], self.values[kept].astype(kind)]
        return [b"".join(a[i:j].tobytes() for a in both) for i, j in pairwise(indptr)]


def label_value(text: str) -> Any:
    """Return what a label stands for: 1, +1 and 1.0 are one class, and True and true."""
    is_number = any(c.isdigit() for c in text) and not text.strip("0123456789+-.eE")
    value = number(text) if is_number else None
    if value is not None and value == value.to_integral_value():
        return int(value)
    return lower if (lower := text.lower()) in ("true", "false") else text


class Data:
    """labels, weights: texts of each row; texts: its features; classes: the first spelling of each
    label, in order of appearance. Rows of weight 0 are left out, but for their labels."""

    def __init__(self, paths: list[str], weights_path: str | None, base: int) -> None:
        labels, weights, texts = list[str](), list[str](), list[bytes]()
        for path in paths:
            for line in content_of(path).removeprefix(b"\xef\xbb\xbf").split(b"\n"):
                words, weight = line.partition(b"#")[0].split(None, 1), b"1"
                label, row = (*words, b"")[:2] if words else (b"", b"")
                while row.startswith((b"cost:", b"qid:")):
                    first, row = (*row.split(None, 1), b"")[:2]
                    weight = first[5:] if first.startswith(b"cost:") else weight
                if label:
                    labels.append(label.decode("utf-8", "replace"))
                    weights.append(weight.decode("ascii", "replace"))
                    texts.append(row)
        if weights_path is not None:
            texts_of = content_of(weights_path).decode("utf-8-sig", "replace").split("\n")
            weights = [word for one in texts_of if (word := one.partition("#")[0].strip())]
            require(
                len(weights) == len(texts), BAD, f"{weights_path}: expected a weight for each row"
            )
        require(texts, BAD, f"{paths[0]}: expected rows, found none")
        self.value = {text: label_value(text) for text in dict.fromkeys(labels)}
        self.classes = dict[Any, str]()
        for spelling, value in self.value.items():
            self.classes.setdefault(value, spelling)
        weight_of = {text: number(text, paths[0]) for text in set(weights)}
        require(min(weight_of.values()) >= 0, BAD, f"{paths[0]}: expected weights from 0")
        kept = [k for k, text in enumerate(weights) if weight_of[text]]
        self.weights: Any = np.array([weight_of[weights[k]] for k in kept], object)
        self.labels, self.texts = [labels[k] for k in kept], [texts[k] for k in kept]
        self.base, self.name = base, paths[0]

    def rows(self, some: Any) -> Rows:
        return Rows.of([self.texts[k] for k in some], self.name, self.base)

    def digest(self, rows: Rows, task: str) -> str:  # [4]
        labels: list[str] = []
        y: Any = np.empty(0)
        if task.endswith("svc"):
            place = {value: k for k, value in enumerate(self.classes)}
            labels, y = [*self.classes.values()], [place[self.value[a]] for a in self.labels]
        elif task != "one-class":
            y = np.array(self.labels, np.float64)
        arrays = y, self.weights, np.diff(rows.indptr), rows.indices, rows.values
        kinds = "<f8", "<f8", "<i8", "<i4", "<f8"
        parts = [np.array(a).astype(kind).tobytes() for a, kind in zip(arrays, kinds, strict=True)]
        hashes = [hashlib.sha256(part).digest() for part in parts]
        return hashlib.sha256(json.dumps(labels).encode() + b"".join(hashes)).hexdigest()


# ---- [3] the model file --------------------------------------------------------------------------


class Model:
    """head: the words of each line of the header; trailer: its values, numbers as Decimal;
    beta : (rows, columns) Decimal, the numbers that begin each row; texts: the features after them
    """

    def __init__(self, path: str) -> None:
        body, found, seal = content_of(path).rpartition(b"\n# randsvm sha256 ")
        require(found, BAD, f"{path}: expected a model with a line '# randsvm sha256'")
        self.seal = hashlib.sha256(body + b"\n").hexdigest()
        require(seal == self.seal.encode() + b"\n", REFUTED, f"the seal of {path} is wrong")
        text, *lines = body.split(b"\n# randsvm ")
        require(lines[:1] == [b"format 2"], BAD, f"{path}: expected '# randsvm format 2'")
        try:
            pairs = (line.partition(b" ") for line in lines)
            self.trailer: dict[str, Any] = {
                key.decode(): json.loads(value, parse_float=number, parse_int=Decimal)
                for key, _, value in pairs
            }
            self.problem = self.trailer["problem"]
            self.is_linear = b"solver_type " in text[:100]
            above, _, below = text.partition(b"\nw\n" if self.is_linear else b"\nSV\n")
            lines_of_head = (line.split() for line in above.decode().split("\n"))
            self.head = {word: rest for word, *rest in lines_of_head}
        except (ValueError, KeyError) as error:
            raise Ended(
                BAD, f"{path}: expected a certificate [3], lacking or bad: {error}"
            ) from error
        runs = [run.partition("-") for run in self.trailer.get("features", "").split(",") if run]
        ranges = [np.arange(int(a), int(b or a) + 1) for a, _, b in runs]
        self.known = np.concatenate([np.empty(0, np.int64), *ranges])
        words = [line.split() for line in below.split(b"\n")] if below else []
        columns = min((sum(b":" not in word for word in row) for row in words), default=1)
        beta = [[number(word.decode()) for word in row[:columns]] for row in words]
        self.beta = np.array(beta, object).reshape(len(words), columns)
        self.texts = [b" ".join(row[columns:]) for row in words]
        self.b = [-number(word) for word in self.head.get("rho", [])]
        if self.is_linear:  # a machine of one vector, w, with the coefficient 1
            bias, d = number(self.head["bias"][0]), int(self.head["nr_feature"][0])
            self.b = list(self.beta[-1] * bias) if bias >= 0 else [ZERO] * columns
            names = self.known if "randsvm_model" in self.head else np.arange(1, d + 1)
            both = [zip(names.tolist(), column, strict=True) for column in self.beta[:d].T]
            self.texts = [" ".join(f"{k}:{w}" for k, w in w_of).encode() for w_of in both]
            self.beta = np.full((columns, columns), ZERO) + np.diag([ONE] * columns)
        self.scale, self.factor = self.trailer.get("scale"), self.trailer.get("scale_factor", [])
        self.shift = self.trailer.get("scale_shift") or [ZERO] * len(self.factor)

    def scaled(self, rows: Rows) -> Rows:
        """Return rows as the machine sees them."""
        if self.scale == "unit":
            norms = np.sqrt(rows.sums(rows.values**2))
            values = rows.values / np.where(norms > 0, norms, 1)[rows.row]
            return Rows(rows.indptr, rows.indices, values)
        if self.scale is None:
            return rows
        shift, factor = (np.array(each, np.float64) for each in (self.shift, self.factor))
        if not shift.any():  # a row stays sparse
            values = rows.values * np.append(factor, 0)[rows.places(self.known)]
            return Rows(rows.indptr, rows.indices, values)
        values, n, d = (rows.dense(self.known) - shift) * factor, len(rows), len(self.known)
        return Rows(np.arange(n + 1) * d, np.tile(self.known, n), values.ravel())

    @staticmethod
    def decimals(text: bytes) -> dict[int, Decimal]:
        return {index: Decimal(value.decode()) for index, value in pairs_of(text, "DATA")}

    def exact(self, text: bytes) -> dict[int, Decimal]:
        """Return a row as the machine sees it, without rounding."""
        x = self.decimals(text)
        if self.scale == "unit":
            norm = sum((v * v for v in x.values()), ZERO).sqrt() or ONE
            return {k: v / norm for k, v in x.items()}
        if self.scale is None:
            return x
        steps = zip(self.known.tolist(), self.shift, self.factor, strict=True)
        return {k: (x.get(k, ZERO) - shift) * factor for k, shift, factor in steps}


# ---- [6] sums of kernel values -------------------------------------------------------------------


class Kernel:
    """A kernel; the linear one is the polynomial <x, z>."""

    def __init__(self, head: dict[str, list[str]]) -> None:
        self.name, is_poly = head.get("kernel_type", ["linear"])[0], "degree" in head
        self.gamma, self.coef0 = (number(head.get(key, ["0"])[0]) for key in ("gamma", "coef0"))
        self.degree = int(head["degree"][0]) if is_poly else 1
        self.gamma = ONE if self.name == "linear" else self.gamma
        self.g, self.r = float(self.gamma), abs(float(self.coef0))

    def largest(self, size: Any, less: int = 0) -> Any:
        """Return a bound of (gamma |x| |z| + coef0)^(degree - less), of rows of this size."""
        power = self.degree - less
        return (self.g * size**2 + self.r) ** power if power > 0 else 1.0

    def spread(self, longest: float) -> float:
        """Return a bound of the distance of two rows in feature space, as a multiple of theirs."""
        if self.name == "rbf":
            return math.sqrt(2 * self.g)
        return self.degree * math.sqrt(self.g * self.largest(longest, 1))

    def values(self, A: np.ndarray, T: np.ndarray, a2: np.ndarray, t2: np.ndarray, d: int) -> Any:
        """Return K(a, t) and bounds of its rounding, (rows, vectors). a2, t2: squared lengths. d:
        the number of terms of products. a2 empty: few features, by differences."""
        if self.name != "rbf":
            error = UNIT * ((d + 6) * self.g * np.sqrt(a2[:, None] * t2) + 3 * self.r)
            t = self.g * (A @ T.T) + float(self.coef0)
            most = np.abs(t) + error
            slope = self.degree * most ** max(self.degree - 1, 0)
            K = np.prod(np.broadcast_to(t, (self.degree, *t.shape)), axis=0)
            return K, slope * (error + 2 * UNIT * most)
        if len(a2):
            s = self.g * np.maximum(a2[:, None] + t2 - 2 * (A @ T.T), 0)
            error = self.g * (d + 8) * UNIT * (np.sqrt(a2[:, None]) + math.sqrt(t2.max())) ** 2
        else:
            apart = ((A[:, [k]] - T[:, k]) ** 2 for k in range(d))
            s = self.g * sum(apart, np.zeros((len(A), len(T))))
            error = (d + 6) * UNIT * np.minimum(s, 800)  # exp(-800) is 0
        K = np.exp(-s)  # the exponential errs by less than 8 units
        return K, np.minimum(K * (np.expm1(np.minimum(error, 700)) + 8 * UNIT) + 1e-300, 1)

    def sums(self, X: Rows, Z: Rows, B: np.ndarray, more: float) -> tuple[Any, Any]:
        """Return u_i = sum_j B_j K(z_j, x_i) and bounds of its error. more: see Model.more"""
        n, m, size, d = len(X), len(Z), np.abs(B), int(np.diff(Z.indptr).max(initial=0)) + 1
        if not (n and m):
            return np.zeros(n), np.zeros(n)
        if self.name == "precomputed":
            numbers = Z.values.astype(np.int64)
            K = X.dense(np.arange(numbers.max() + 1))[:, numbers]
            return K @ B, (m + 8) * UNIT * ROOM * (np.abs(K) @ size)
        columns, is_rbf = np.union1d(X.indices, Z.indices), self.name == "rbf"
        lengths, longest = np.sqrt(X.sums(X.values**2)), math.sqrt(Z.sums(Z.values**2).max())
        if is_rbf:  # a feature that all rows store may be moved: distances stay
            counts = sum(np.bincount(R.places(columns), minlength=len(columns)) for R in (X, Z))
            centre = np.bincount(Z.places(columns), Z.values, len(columns)) / m * (counts == n + m)
            more += float(np.linalg.norm(centre))
            X, Z = (Rows(R.indptr, R.indices, R.values - centre[R.places(columns)]) for R in (X, Z))
        few, squares = len(columns) <= 8, Z.sums(Z.values**2)
        tiles = [np.arange(k, min(k + TILE, m)) for k in range(0, m, TILE)]

        def part(start: int) -> np.ndarray:
            some = X[np.arange(start, min(start + ROWS, n))]
            own = columns if few else np.unique(some.indices)
            a2 = some.sums(some.values**2)[: 0 if few and is_rbf else None]
            A, sums, error = some.dense(own), np.zeros((len(some), 2)), np.zeros(len(some))
            for at in tiles:
                T, terms = Z[at].dense(own), len(own) if few else max(d, len(own))
                K, errors = self.values(A, T, a2, squares[at], terms)
                sums += np.column_stack([K @ B[at], np.abs(K) @ size[at]])
                error += errors @ size[at]
            return np.column_stack([sums, error])

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            u, sizes, error = np.concatenate(list(pool.map(part, range(0, n, ROWS)))).T
        # Features err by a few UNIT of their size; K changes by its slope times that.
        slope = math.sqrt(2 * self.g / math.e)
        if not is_rbf:
            slope = self.degree * self.g * longest * self.largest(np.maximum(lengths, longest), 1)
        error += 4 * UNIT * (lengths + longest + more) * size.sum() * slope
        return u, ROOM * (error + (TILE + len(tiles) + 9) * UNIT * sizes)

    def exact(self, x: dict[int, Decimal], Z: list[Any], beta: list[Decimal]) -> Decimal:
        """Return u of one row. Z: each vector z and |z|^2"""
        u, square = ZERO, sum((v * v for v in x.values()), ZERO)
        for (z, own), coefficient in zip(Z, beta, strict=True):
            K = sum((v * x[k] for k, v in z.items() if k in x), ZERO)
            if self.name == "precomputed":
                K = x.get(int(z[0]), ZERO)
            elif self.name == "rbf":
                K = (self.gamma * (2 * K - square - own)).exp()
            else:
                K = (self.gamma * K + self.coef0) ** self.degree
            u += coefficient * K
        return u


# ---- [5] problems --------------------------------------------------------------------------------


@dataclass
class Machine:
    """A binary problem over some rows, with exact numbers; nu-svc multiplied by rho.

    rows: their numbers; y: targets, or 1 and -1; sign: that of beta where it has one, else 0;
    C: of each row; vectors: places in Z; beta: their coefficients
    """

    rows: np.ndarray
    y: np.ndarray
    sign: np.ndarray
    C: np.ndarray
    vectors: np.ndarray
    beta: np.ndarray
    b: Decimal
    epsilon: Decimal = ZERO
    tube: Decimal = ZERO
    t: Decimal = ZERO
    a: Decimal = ZERO
    has_b: bool = True


def machines_of(data: Data, model: Model) -> list[Machine]:
    given, task, n = model.problem, model.problem["task"], len(data.labels)
    C, weights, ones = given.get("C", ONE), data.weights, np.full(n, ONE, object)
    every, vectors, found, offsets = np.arange(n), np.arange(len(model.beta)), [], model.b
    beta: Any
    factor: Any
    if not task.endswith("svc"):
        y = ones * 0 if task == "one-class" else np.array([number(a) for a in data.labels], object)
        sign = ones * (task == "one-class")
        found = [Machine(every, y, sign, weights * C, vectors, model.beta[:, 0], offsets[0])]
    else:
        labels = [label_value(text) for text in model.trailer["labels"]]
        same, K, total = set(labels) == set(data.classes), len(labels), sum(weights, ZERO)
        require(same, REFUTED, f"labels {labels} in the model, {[*data.classes]} in the data")
        classes = np.array([labels.index(data.value[text]) for text in data.labels])
        totals = [sum(weights[classes == k], ZERO) for k in range(K)]
        stated = given.get("class_weights", [ONE] * K)
        both = zip(stated, totals, strict=True)
        of_class = np.array([total / (K * own) if w is None else w for w, own in both], object)
        pairs: list[Any] = [(i, j) for i in range(K) for j in range(i + 1, K)]
        if K > 2 and given.get("multiclass") != "ovo":
            pairs = [(k, None) for k in range(K)]
        of_vector = np.repeat(np.arange(K), [*map(int, model.head.get("nr_sv", [0] * K))])
        for k, (i, j) in enumerate(pairs):
            rows = every if K == 2 or j is None else np.flatnonzero((classes == i) | (classes == j))
            y, factor = np.where(classes[rows] == i, ones[0], -ones[0]), of_class[classes[rows]]
            own, beta = vectors, model.beta[:, k * (j is None)]
            if j is None and not model.is_linear:  # the rest has one weight
                rest: Any = total / (2 * (total - totals[i])) if given.get("balanced") else ONE
                factor = np.where(y > 0, stated[i] or total / (2 * totals[i]), rest)
            elif K > 2 and j is not None:
                own = np.flatnonzero((of_vector == i) | (of_vector == j))
                beta = np.where(of_vector == i, model.beta[:, j - 1], model.beta[:, i])[own]
            found.append(Machine(rows, y, y, weights[rows] * factor * C, own, beta, offsets[k]))
    for one, tube in zip(found, given.get("tube", [ZERO] * len(found)), strict=True):
        one.has_b = given.get("bias", True)
        one.epsilon = given["epsilon"] if task == "svr" else ONE * (task == "nu-svc")
        one.tube, share = tube, given.get("nu", ZERO) * sum(weights[one.rows], ZERO)
        if task == "one-class":
            one.t = share
        one.a = share * C if task in ("nu-svc", "nu-svr") else ZERO
        if task == "nu-svc":  # the file has the machine divided by rho, and sum alpha is nu n
            rho = share / (sum(abs(one.beta), ZERO) or ONE)
            one.beta, one.b = rho * one.beta, rho * one.b
    return found


def divided(one: Machine, of_vectors: list[Any], of_rows: dict[int, Any]) -> Any:
    """Return beta of each row. Equal rows share the coefficients of equal vectors: those above 0 go
    to the highest y first, those below 0 to the lowest, each up to its bound."""
    left, members = dict[tuple[Any, int], Decimal](), dict[Any, list[int]]()
    for k, value in zip(one.vectors.tolist(), one.beta, strict=True):
        of_side = of_vectors[k], 1 if value > 0 else -1
        left[of_side] = left.get(of_side, ZERO) + abs(value)
    wanted = {key for key, _ in left}
    for row, key in of_rows.items():
        if key in wanted:
            members.setdefault(key, []).append(row)
    beta = np.full(len(one.rows), ZERO, object)
    for (key, side), rest in left.items():
        rows = [row for row in members.get(key, []) if one.sign[row] != -side]
        lacks = (
            f"a vector with the coefficient {side * rest:.6g} is no row of the data on that side"
        )
        require(rows or not rest, REFUTED, lacks)
        rows.sort(key=lambda row: -side * one.y[row])
        for row in rows:
            taken = rest if row == rows[-1] else min(rest, one.C[row])
            beta[row], rest = beta[row] + side * taken, rest - taken
    return beta


# ---- [7] P, D and their difference ---------------------------------------------------------------


def evaluate(given: list[Any], kind: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return P of u + b, D of the coefficients `shares`, the errors of both, the least and the most
    of P - D, by how much D may be above the optimum, and how much of this is no rounding; and the
    rows whose errors count.

    given: a Machine and its shares; u and its error; None if u is that of the shares, else v and
    its error for them, |w|^2 and its error for u, and whether losses are squared; the largest
    K(x, x); a bound of |w_X - w_Z| [6]
    """

    one, shares, sums, dual, kappa2, length = given

    def array(values: Any) -> Any:
        return np.array([kind(value) for value in values], float if kind is float else object)

    unit: Any = UNIT if kind is float else Decimal(10) ** (8 - DIGITS)
    add: Any = math.fsum if kind is float else sum
    epsilon, tube, b, t, a = map(kind, (one.epsilon, one.tube, one.b, one.t, one.a))
    (u, error), y, C, beta = map(array, sums), array(one.y), array(one.C), array(shares)
    zero, size, h, z = 0 * C, abs(beta), epsilon + tube, y - u - b
    U, L = np.where(one.sign >= 0, C, zero), np.where(one.sign <= 0, C, zero)
    error = error + 5 * unit * (abs(y) + abs(u) + abs(b) + abs(h))
    v, v_error, w2, w2_error, squared = dual or (u, error, 0, 0, False)
    v, v_error, w2, w2_error = array(v), array(v_error), kind(w2), kind(w2_error)
    up, down = (zero, zero) if dual else ((size + beta) / 2, (size - beta) / 2)

    def term(z: Any) -> Any:
        """Return the loss; with `up` and `down` loss - beta z + h |beta|, which is at least 0."""
        over, under = z - h, -z - h
        if squared:
            return np.maximum(over, zero) ** 2 * U + np.maximum(under, zero) ** 2 * L
        lost = np.maximum((U - up) * over - down * under, (L - down) * under - up * over)
        return np.maximum(lost, -up * over - down * under)

    here, most = term(z), np.maximum(term(z - error), term(z + error))
    rise = np.maximum(most - here, zero)
    active = size + np.where((abs(z) + error > abs(h)) & (most > 0), C, zero)
    rounding = 8 * unit * add(active * (abs(z) + abs(h)) + most * squared)
    total, sizes = add(size), abs(y) + epsilon + abs(v)
    D = add(y * beta) - epsilon * total - add(beta * v) / 2
    D -= add(size**2 / (4 * np.where(C > 0, C, zero + 1))) if squared else 0
    D_error = add(size * v_error) / 2 + 5 * unit * add(size * sizes)
    D_error += total * kind(math.sqrt(kappa2) * length)
    missing, short = t - add(beta), (a - total) * bool(one.a)
    if dual:
        P = w2 / 2 + add(here) + b * t + tube * a
        P_error = w2_error / 2 + add(rise) + rounding + 4 * unit * (abs(P) + abs(b * t))
        least, largest = P - P_error - D - D_error, P + P_error - D + D_error
    else:
        apart = add(here) + b * missing + tube * short
        span = add(rise) + rounding + 4 * unit * (abs(b) + abs(tube)) * total
        P, P_error = D + apart, D_error + span
        least, largest = apart - span, apart + span + kind(length) ** 2
    # [5] What coefficients miss of their sums costs at most the largest offset.
    excess = zero if squared else np.maximum(size - C * (1 - 8 * unit), zero)
    norm = float(abs(t) + a) * math.sqrt(kappa2) or math.sqrt(2 * max(float(P + P_error), 0))
    offset = ROOM * (float(max(abs(y)) + epsilon) + norm * math.sqrt(kappa2)) * one.has_b
    above = abs(short) if one.sign.any() else max(-short, 0)
    misses = (abs(missing) * one.has_b + above + 2 * unit * total) * (total > 0 or not dual)
    lost = add(excess * (sizes + v_error)) + kind(offset) * (misses + add(excess))
    k = int(np.argmax(excess))
    text = f"the coefficient of row {one.rows[k] + 1} is {beta[k]:.17g}, its bound {C[k]:.17g}"
    require(not excess[k] > kind(1e-9) * C[k], REFUTED, text)
    cost = kind(offset) * misses if misses > kind(1e-6) * total else kind(0)
    found = np.array([P, D, P_error, D_error, least, largest, lost, cost], object)
    return found, np.flatnonzero((rise > 0) | (size > 0))


def judged(found: np.ndarray, model: Model, floor: float, dual: bool) -> tuple[int, str]:
    """Return the verdict about the claims [3], and its reason. dual: whether D is known"""
    kind, proven = type(found[0]), "primal_error" in model.trailer
    P, D, P_error, D_error, least, most, lost, cost = found
    keys = "primal", "primal_error", "dual", "dual_error", "gap"
    primal, room, D_said, D_room, said = (kind(model.trailer.get(key) or ZERO) for key in keys)
    size = max(abs(P), abs(D), kind(floor))
    gap = (P - D) / size if size else kind(0)
    stated = kind(2.0**-50 if proven else 2e-6) * max(abs(primal), abs(D_said), size)
    text = f"P {P:.12g} +- {P_error:.2g}", f"D {D:.12g} - {D_error + lost:.2g}", f"gap {gap:.6g}"
    # Each claim is true where a number is at most 0, which is known up to an error.
    claims = [(abs(P - primal) - room, P_error, f"{text[0]}, said {primal!s} +- {room:.2g}")]
    if dual:
        apart = (most + least + lost) / 2 - said * size
        claims += [
            (D_said - D_room - D + lost / 2, D_error + lost / 2, f"{text[1]}, said {D_said!s}"),
            (
                apart,
                (most - least + lost) / 2 + said * (P_error + D_error),
                f"{text[2]}, said {said!s}",
            ),
        ]
    claim = f"coefficients miss a sum that the problem prescribes, which costs D up to {cost:.3g}"
    require(not cost > 2 * D_room + stated, REFUTED, claim)
    for above, error, claim in claims:
        require(not above > error + stated, REFUTED, claim)
    for above, error, claim in claims:
        if not above + error <= stated:
            return UNDECIDED, f"{claim}: the rounding of this check, {error:.2g}, is too large"
    if not dual:
        return UNDECIDED, f"{text[0]}; {D_said} is only said of D: --certificate FILE decides"
    return VERIFIED, ", ".join(text) + f" <= {said:.6g}"


# ---- the command ---------------------------------------------------------------------------------


def transcript_of(path: str, model: Model) -> list[dict[str, np.ndarray]]:
    """Return the arrays of each machine that --certificate wrote. [8]"""
    content, machines = content_of(path), []
    lines = content.split(b"\n", 2)
    require(
        lines[0] == b"randsvm transcript 1" and len(lines) == 3, BAD, f"{path}: not a transcript"
    )
    head, at = json.loads(lines[1]), len(content) - len(lines[2])
    require(head["model"] == model.seal, REFUTED, f"{path} is the transcript of another model")
    for sizes in head["machines"]:
        machines.append(dict[str, np.ndarray]())
        for name in NAMES:
            machines[-1][name] = np.frombuffer(
                content, KINDS.get(name, "<f8"), sizes.get(name, 0), at
            )
            at += machines[-1][name].nbytes
    require(at == len(content), BAD, f"{path}: expected {at} bytes, found {len(content)}")
    return machines


class Check:
    """sums: whether the transcript has u of all rows, so that few are computed. more: see Kernel.
    kappa2: the largest K(x, x). X: all rows, unless few are needed."""

    def __init__(self, model: Model, data: Data, transcript: Any, samples: int) -> None:
        self.model, self.data, self.transcript, self.samples = model, data, transcript, samples
        self.kernel, self.machines = Kernel(model.head), machines_of(data, model)
        self.Z, kernel, trailer = Rows.of(model.texts, "MODEL"), self.kernel, model.trailer
        moves = zip(model.shift, model.factor, strict=True)
        self.more, n = (
            math.hypot(*(float(shift * factor) for shift, factor in moves)),
            len(data.texts),
        )
        self.sums = samples > 0
        self.X: Rows | None = None
        self.longest = math.sqrt(self.Z.sums(self.Z.values**2).max(initial=0)) + self.more
        diagonal = np.ones(n)
        if not self.sums or kernel.name != "rbf":
            raw = data.rows(range(n))
            text = (
                f"the digest of the rows is not {trailer['digest']}: other rows, labels or weights"
            )
            require(data.digest(raw, model.problem["task"]) == trailer["digest"], REFUTED, text)
            self.X = model.scaled(raw)
            if kernel.name == "precomputed":
                self.numbers, diagonal = (
                    raw.values[raw.indptr[:-1]],
                    np.full(n, abs(raw.values).max()),
                )
            elif kernel.name != "rbf":
                diagonal = kernel.largest(np.sqrt(self.X.sums(self.X.values**2)) + self.more)
        self.kappa2, self.floor = float(diagonal.max()) * ROOM, 0.0
        if model.problem["task"] == "one-class" and kernel.name != "precomputed":
            self.floor = 0.005 * float(self.machines[0].t) ** 2 / n * float(diagonal.mean())
        is_own = not model.is_linear and trailer.get("certificate") != "reduced"
        self.is_own = is_own and "dual_of" not in trailer
        require(
            n == int(trailer["n"]), REFUTED, f"{n} rows, the model was trained on {trailer['n']}"
        )

    def rows(self, some: np.ndarray) -> Rows:
        return self.X[some] if self.X is not None else self.model.scaled(self.data.rows(some))

    def keys(self, rows: np.ndarray | None = None) -> list[Any]:
        """Return what is equal for equal rows, and for the vectors that they equal."""
        if self.kernel.name == "precomputed":
            return (self.Z.values if rows is None else self.numbers[rows]).tolist()
        kind = "<f4" if self.model.scale == "unit" else "<f8"
        return (self.Z if rows is None else self.rows(rows)).keys(kind)

    def drawn(self, rows: np.ndarray, u: Any, error: Any, Z: Rows, beta: Any, name: str) -> None:
        """Compute u of random rows. u, error : of all rows, as the transcript says"""
        at = np.random.default_rng().integers(len(rows), size=self.samples) if len(rows) else rows
        if not len(at):
            return
        found, own_error = self.kernel.sums(self.rows(rows[at]), Z, beta, self.more)
        beyond = abs(found - u[at]) - error[at] - own_error
        k = int(np.argmax(beyond))
        said = f"{u[at[k]]!r} +- {error[at[k]]:.2g} in the transcript"
        text = f"{name} of row {rows[at[k]] + 1} is {found[k]!r}, {said}"
        require(not beyond[k] > 0, REFUTED, text)

    def of(self, k: int) -> list[Any]:
        """Return what `evaluate` takes, of machine k."""
        one, Z = self.machines[k], self.Z[self.machines[k].vectors]
        said, beta, n = (self.transcript or {k: {}})[k], one.beta.astype(float), len(one.rows)
        if self.sums:
            u, error = said["u"].astype(float), said["error"].astype(float)
            u[said["exact"]], error[said["exact"]] = said["exact_u"], said["exact_error"]
            self.drawn(one.rows, u, error, Z, beta, "u")
        else:
            u, error = self.kernel.sums(self.rows(one.rows), Z, beta, self.more)
        if self.is_own:
            near = said["rows"] if self.sums else np.arange(n)
            shares = divided(
                one, self.keys(), dict(zip(near.tolist(), self.keys(one.rows[near]), strict=True))
            )
            spread = self.kernel.spread(self.longest)
            return [
                one,
                shares,
                (u, error),
                None,
                self.kappa2,
                float(abs(beta).sum()) * spread * 8 * UNIT * self.longest,
            ]
        own, own_error = self.kernel.sums(Z, Z, beta, self.more)
        w2, w2_error = (
            math.fsum(beta * own),
            math.fsum(abs(beta) * (own_error + 4 * UNIT * abs(own))),
        )
        shares, v, v_error = np.full(n, ZERO), np.zeros(n), np.zeros(n)
        if self.transcript:
            at, values = said["rows"], said["beta"]
            shares[at] = [Decimal(value) for value in values.tolist()]
            of_dual = self.rows(one.rows[at])
            if self.sums:
                v[at], v_error[at] = said["v"], said["v_error"]
                self.drawn(one.rows[at], said["v"], said["v_error"], of_dual, values, "v")
            else:
                v[at], v_error[at] = self.kernel.sums(of_dual, of_dual, values, self.more)
        squared = self.model.problem.get("loss", "").startswith("squared")
        return [one, shares, (u, error), (v, v_error, w2, w2_error, squared), self.kappa2, 0.0]

    def exact(self, found: list[Any], near: np.ndarray) -> list[Any]:
        """Return the same with exact u of the rows `near`, and exact |w|^2."""
        one, shares, (u, error), dual, kappa2, _ = found
        vectors = [self.model.decimals(self.model.texts[k]) for k in one.vectors]
        Z = [(z, sum((v * v for v in z.values()), ZERO)) for z in vectors]
        u, error, length = u.astype(object), error.astype(object), 0.0
        places = dict(zip([self.keys()[k] for k in one.vectors], vectors, strict=True))
        keys, tiny = self.keys(one.rows[near]), Decimal(10) ** (12 - DIGITS)
        for row, key in zip(near, keys, strict=True):
            x = self.model.exact(self.data.texts[one.rows[row]])
            u[row], error[row], z = self.kernel.exact(x, Z, one.beta), tiny, places.get(key, x)
            apart = sum(((x.get(k, ZERO) - z.get(k, ZERO)) ** 2 for k in x.keys() | z), ZERO)
            length += float(abs(shares[row])) * self.kernel.spread(self.longest) * math.sqrt(apart)
        if dual:
            w2 = sum(
                (
                    c * self.kernel.exact(z, Z, one.beta)
                    for c, z in zip(one.beta, vectors, strict=True)
                ),
                ZERO,
            )
            dual = (*dual[:2], w2, tiny * (1 + abs(w2)), dual[4])
        return [one, shares, (u, error), dual, kappa2, length * ROOM]

    def verdict(self, exact: bool) -> tuple[int, str]:
        found = [self.of(k) for k in range(len(self.machines))]
        results = [evaluate(each, float) for each in found]
        has_dual = self.is_own or bool(self.transcript)
        status, text = judged(
            sum((total for total, _ in results), np.full(8, 0, object)),
            self.model,
            self.floor,
            has_dual,
        )
        if self.sums:
            share = 1 - 0.01 ** (1 / self.samples)
            text += (
                f"; u of {self.samples:,} random rows was computed: a transcript with more than "
            )
            text += f"{share:.2%} wrong rows passes with a probability of at most 1%"
        if status != UNDECIDED or self.sums:
            return status, text
        terms = 12 + sum(map(len, self.data.texts)) // (10 * len(self.data.texts))
        steps = terms * sum(
            len(near) * len(each[0].vectors) for each, (_, near) in zip(found, results, strict=True)
        )
        require(
            exact or steps <= STEPS,
            UNDECIDED,
            f"{text}; --exact decides, in some {steps / 1e6:.0f} s",
        )
        both = zip(found, results, strict=True)
        results = [evaluate(self.exact(each, near), Decimal) for each, (_, near) in both]
        return judged(
            sum((total for total, _ in results), np.full(8, 0, object)),
            self.model,
            self.floor,
            has_dual,
        )


def check(
    data: list[str],
    path: str,
    row_weights: str | None = None,
    certificate: str | None = None,
    exact: bool = False,
    samples: int = 2000,
) -> tuple[int, str]:
    """Return the verdict about a model, and its reason."""
    setcontext(Context(prec=DIGITS, Emin=-999999, Emax=999999))
    model = Model(path)
    claims = model.trailer.get("gap") is not None and model.trailer.get("certificate") != "none"
    require(claims, UNDECIDED, "MODEL claims no gap")
    require("map" not in model.trailer, UNDECIDED, "random features are not checked")
    is_precomputed = model.head.get("kernel_type") == ["precomputed"]
    rows = Data(data, row_weights, 0 if is_precomputed else int(model.trailer["index_base"]))
    transcript = None if certificate is None else transcript_of(certificate, model)
    status, text, few = UNDECIDED, "", len(rows.texts) * len(model.texts) <= 10**9 or exact
    with np.errstate(all="ignore"):
        if transcript and len(transcript[0]["u"]):
            status, text = Check(model, rows, transcript, samples).verdict(exact)
        if status == UNDECIDED and (few or not text):
            status, text = Check(model, rows, transcript, 0).verdict(exact)
    return status, text


def main() -> None:
    text = "Verify the certificate of MODEL, trained on DATA: see docs/certificate-format.md."
    parser = argparse.ArgumentParser(prog="randsvm-check", description=text)
    parser.add_argument("data", nargs="+", metavar="DATA")
    parser.add_argument("path", metavar="MODEL")
    parser.add_argument("--row-weights", metavar="FILE", help="weights of rows, one a line")
    parser.add_argument("--certificate", metavar="FILE", help="what randsvm-train wrote there")
    parser.add_argument("--samples", metavar="M", type=int, default=2000, help="random rows [2000]")
    parser.add_argument("--exact", action="store_true", help="compute as long as it takes")
    try:
        status, text = check(**vars(parser.parse_args()))
    except Ended as ended:
        status, text = ended.status, str(ended)
    words = {VERIFIED: "verified", REFUTED: "refuted", UNDECIDED: "undecided"}
    stream = sys.stdout if status < BAD else sys.stderr
    print(f"{words.get(status, 'randsvm-check')}: {text}", file=stream)
    sys.exit(status)


if __name__ == "__main__":
    main()
