"""Judge certificates of linear machines by exact arithmetic, and draw random trainings for it.

As exact_judge.py: the problem is that of the decimal numbers in the training file, the machine that
of the decimal numbers in the model file, and D that of the coefficients in the transcript. All
numbers are fractions; those of the logistic loss have 50 digits, which are known to 45.
"""

import decimal
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import exact_judge
import numpy as np
import oracle
from exact_judge import Interval, Kernel
from random_problems import WrongError

from randsvm.cli import train as training
from randsvm.errors import OutOfTimeError

LOSSES = ("hinge", "squared-hinge", "log")
LOSSES_OF_L1 = LOSSES[1:]
LOSSES_OF_SVR = ("epsilon-insensitive", "squared-epsilon-insensitive")
DIGITS = Decimal(10) ** -45


class Case(NamedTuple):
    """A training. X : (n, d); words: options of the command line beside `sgd --gap`; C, epsilon,
    class_weights: as texts; l1: whether the penalty is |w|_1"""

    y: np.ndarray
    X: np.ndarray
    weights: np.ndarray | None
    loss: str
    bias: bool
    C: str
    epsilon: str
    class_weights: Mapping[str, str]
    gap: float
    words: tuple[str, ...]
    l1: bool = False

    def save(self, path: Path) -> Path:
        return oracle.write_rows(path, self.y, self.X, 1, self.weights)


# ---- the problem ---------------------------------------------------------------------------------


class Machine(NamedTuple):
    """w : (d,) of Fraction, b, and the label of y = 1, None in a regression."""

    w: np.ndarray
    b: Fraction
    label: str | None


def read_machines(path: Path, d: int) -> list[Machine]:
    """Read a model of LIBLINEAR's format. d: features, as many as the rows have."""
    head, _, body = path.read_text().partition("\nw\n")
    named = dict(line.split(" ", 1) for line in head.splitlines())
    trailer = exact_judge.read_trailer(path)
    labels, count = trailer.get("labels") or named.get("label", "").split(), named["nr_feature"]
    lines = [list(map(Fraction, line.split())) for line in body.splitlines() if line[:1] != "#"]
    features = list(range(1, int(count) + 1))
    if "randsvm_model" in named:
        runs = (run.partition("-") for run in trailer["features"].split(","))
        features = [k for a, _, c in runs for k in range(int(a), int(c or a) + 1)]
    bias, machines = Fraction(named["bias"]), []
    for k in range(len(lines[0])):
        w = np.full(max(d, *features), Fraction(0), dtype=object)
        w[[j - 1 for j in features]] = [line[k] for line in lines[: int(count)]]
        b = bias * lines[int(count)][k] if bias >= 0 else Fraction(0)
        machines.append(Machine(w, b, labels[k] if labels else None))
    return machines


def read_transcript(path: Path, n: int) -> list[np.ndarray]:
    """Return the coefficients of each machine, (n,) of Fraction."""
    first, head, rest = path.read_bytes().split(b"\n", 2)
    assert first == b"randsvm transcript 1"
    found, at = [], 0
    for sizes in json.loads(head)["machines"]:
        rows = np.frombuffer(rest, "<i8", sizes["rows"], at)
        beta = np.frombuffer(rest, "<f8", sizes["beta"], at + rows.nbytes)
        at += rows.nbytes + beta.nbytes
        found.append(np.full(n, Fraction(0), dtype=object))
        found[-1][rows] = list(map(Fraction, beta.tolist()))
    return found


def interval(value: Decimal) -> Interval:
    error = Fraction(DIGITS * (1 + abs(value)))
    return Interval(Fraction(value) - error, Fraction(value) + error)


def added(parts: Sequence[Interval]) -> Interval:
    ends = zip(*parts, strict=True)
    return Interval(*(sum(end, Fraction(0)) for end in ends))


def decimal_of(value: Fraction) -> Decimal:
    return Decimal(value.numerator) / Decimal(value.denominator)


def loss(case: Case, y: Fraction, f: Fraction) -> Interval:
    """Return the loss of a row."""
    if case.loss == "log":
        with decimal.localcontext(prec=60):
            z = decimal_of(y * f)
            rest = (-abs(z)).exp() if abs(z) < 10**6 else Decimal(0)
            return interval((1 + rest).ln() + max(-z, Decimal(0)))
    if "epsilon" in case.loss:
        found = max(abs(y - f) - Fraction(case.epsilon), Fraction(0))
    else:
        found = max(1 - y * f, Fraction(0))
    found = found * found if "squared" in case.loss else found
    return Interval(found, found)


def gain(case: Case, y: Fraction, beta: Fraction, C: Fraction) -> Interval:
    """Return what a coefficient adds to D + 1/2 |w|^2."""
    size = abs(beta)
    if case.loss == "log":
        with decimal.localcontext(prec=60):
            parts = [decimal_of(part / C) for part in (size, C - size)]
            ends = interval(-sum((part * part.ln() for part in parts if part > 0), Decimal(0)))
            return Interval(C * ends.least, C * ends.most)
    found = y * beta - (Fraction(case.epsilon) * size if "epsilon" in case.loss else 0)
    found -= size * size / (4 * C) if "squared" in case.loss else 0
    return Interval(found, found)


def objectives(
    case: Case, rows: exact_judge.Rows, machine: Machine, beta: np.ndarray | None
) -> tuple[Interval, Interval | None]:
    """Return P of a machine and D of coefficients."""
    costs = Fraction(case.C) * rows.weights
    if machine.label is None:
        y = np.array([Fraction(label) for label in rows.labels])
    else:
        own = float(machine.label)
        y = np.array([Fraction(1 if float(label) == own else -1) for label in rows.labels])
        given = {float(name): Fraction(value) for name, value in case.class_weights.items()}
        costs = costs * [given.get(float(label), Fraction(1)) for label in rows.labels]
    w = machine.w[: rows.X.shape[1]]
    one = np.array([Fraction(1)], dtype=object)
    f = exact_judge.sums(Kernel("linear"), rows.X, w[None], one, "exact").centres + machine.b
    losses = [loss(case, *each) for each in zip(y, f, strict=True)]
    scaled = [Interval(c * one.least, c * one.most) for c, one in zip(costs, losses, strict=True)]
    norm = sum((v * v for v in machine.w), Fraction(0)) / 2
    if case.l1:
        norm = sum(map(abs, machine.w), Fraction(0))
    P = added([*scaled, Interval(norm, norm)])
    if beta is None:
        return P, None
    sign, free = (y, "squared" in case.loss) if machine.label is not None else (0 * y, False)
    free |= "squared" in case.loss
    bounds = costs * Fraction(1 + 1e-9)
    for b, s, most in zip(beta, sign, bounds, strict=True):
        if b * s < 0 or (abs(b) > most and not free):
            raise WrongError(f"the coefficient {float(b)} of a row has the bound {float(most)}")
    if case.bias and abs(sum(beta)) > Fraction(1, 10**6) * sum(abs(beta)):
        raise WrongError(f"the coefficients have the sum {float(sum(beta))}")
    (x, of_x), (c, of_c) = exact_judge.integers(rows.X), exact_judge.integers(beta)
    products = [Fraction(int(one), of_x * of_c) for one in c @ x]
    v = sum((one**2 for one in products), Fraction(0)) / 2
    if case.l1:
        # The part of the coefficients that is feasible.
        v, beta = Fraction(0), beta / max(Fraction(1), *map(abs, products))
    gains = [gain(case, *each) for each in zip(y, beta, costs, strict=True)]
    return P, added([*gains, Interval(-v, -v)])


def contradictions(
    case: Case, data: Path, model: Path, transcript: Path, others: Sequence[Path]
) -> Iterator[str]:
    """Yield how the certificate of a model is false. others: models of the same problem"""
    trailer = exact_judge.read_trailer(model)
    claim = exact_judge.said(oracle.trailer(model))
    assert claim is not None
    rows = exact_judge.scaled(exact_judge.read_rows(data), trailer)
    d = rows.X.shape[1]
    machines, betas = read_machines(model, d), read_transcript(transcript, len(rows.labels))
    found = [objectives(case, rows, *both) for both in zip(machines, betas, strict=True)]
    P, D = (added(parts) for parts in zip(*found, strict=True))
    bests = [P]
    for path in others:
        each = [objectives(case, rows, one, None)[0] for one in read_machines(path, d)]
        bests.append(added(each))
    nothing = [one._replace(w=0 * one.w, b=Fraction(0)) for one in machines]
    bests.append(added([objectives(case, rows, one, None)[0] for one in nothing]))
    yield from exact_judge.contradictions(claim, P, bests, distance=lambda: P.least - D.most)
    digits = exact_judge.STATED * max(abs(Fraction(claim.dual)), abs(Fraction(claim.primal)))
    if D.most + digits < claim.lower:
        yield f"D {float(claim.lower):.12g} said, {float(D.most):.12g} of the coefficients"
    upper = Fraction(claim.primal) - Fraction(claim.primal_error) - digits
    if P.most < upper:
        yield f"P at least {float(upper):.12g} said, {float(P.most):.12g} of the model"


# ---- random trainings ----------------------------------------------------------------------------


def case_of(seed: int, number: int, l1: bool = False) -> Case:
    """Return a training of 20 to 300 rows, some of many columns, whose numbers span what a user may
    ever give."""
    chance = random.Random(f"{seed} linear {number}")
    rng = np.random.default_rng(chance.randrange(2**63))
    n, d = round(10 ** chance.uniform(1.3, 2.5)), chance.choice((1, 2, 5, 12))
    if is_wide := chance.random() < 0.25:
        n, d = min(n, 80), 1000 + chance.randrange(100)
    X: Any = rng.normal(size=(n, d))
    if is_wide or chance.random() < 0.3:
        X[rng.random((n, d)) < (0.98 if is_wide else 0.6)] = 0.0
    if chance.random() < 0.3:
        X[rng.random(n) < 0.5] = X[0]
    score = X @ rng.normal(size=d) + chance.choice((0.0, 0.3, 3.0)) * rng.normal(size=n)
    X = np.round(X, chance.choice((0, 2, 3, 6, 17)))
    X = X * 10.0 ** chance.choice((0, 0, chance.randint(-9, 9)))
    if chance.random() < 0.4:
        X *= 10.0 ** rng.integers(-4, 5, d)
    if chance.random() < 0.3 and not is_wide:
        X += 10.0 ** rng.integers(-2, 7, d)
    # Products of decimal numbers have 15 digits again.
    X = np.array([float(f"{v:.15g}") for v in X.ravel()]).reshape(X.shape)
    is_svr, classes = chance.random() < 0.35 and not l1, chance.choice((2, 2, 2, 3, 4))
    y = np.round(score * 10.0 ** chance.choice((0, 0, chance.randint(-6, 6))), 6)
    if not is_svr:
        cuts = np.sort(rng.choice(np.sort(score)[1:], classes - 1, replace=False))
        y = np.searchsorted(cuts, score, side="right") + 1.0
        y[:2] = 1.0, 2.0
    weights = None
    if chance.random() < 0.4:
        weights = np.round(10 ** rng.uniform(-1.5, 1.5, n), 4) + 1e-4
    loss = chance.choice(LOSSES_OF_SVR if is_svr else LOSSES_OF_L1 if l1 else LOSSES)
    C, gap = 10 ** chance.uniform(-6, 6), 10 ** chance.uniform(-6, -1)
    epsilon = float(chance.choice((0.0, 0.1, 0.5)) * np.abs(y).mean())
    bias, class_weights = chance.random() < 0.7, {}
    words: Any = ["-q", "-c", C, "--gap", gap, "--loss", loss, "--max-iterations", 40]
    words += ["-s", "svr", "-p", epsilon] if is_svr else []
    if not is_svr and chance.random() < 0.4:
        some = sorted({*y.astype(int).tolist()})[:2]
        class_weights = {f"{k}": f"{10 ** chance.uniform(-1, 1):.3g}" for k in some}
        words += [word for label, one in class_weights.items() for word in ("-w", label, one)]
    words += [] if bias else ["--no-bias"]
    scale = chance.choice((None, None, None, "minmax", "standard", "unit"))
    words += ["--scale", scale] if scale and not is_wide else []
    words += ["--penalty", "l1"] if l1 else ["--epochs", chance.choice((0, 3))]
    words = tuple(map(str, words))
    return Case(y, X, weights, loss, bias, str(C), str(epsilon), class_weights, gap, words, l1)


def on_path(case: Case, values: Sequence[str]) -> Case:
    """Return the case at the end of a path over ascending values of C, or of a training with one,
    without epochs."""
    words = list(case.words)
    words[words.index("-c") + 1] = ",".join(values)
    if "--epochs" in words:
        words[words.index("--epochs") + 1] = "0"
    return case._replace(C=values[-1], words=(*words, *["--path"] * (len(values) > 1)))


def certified(case: Case, folder: Path) -> str:
    """Run a case and judge its certificate exactly; return how it ended, in a few words.

    Raises WrongError if the certificate is false.
    """
    data, model, other, proof = (folder / name for name in ("data", "model", "other", "proof"))
    case.save(data)
    with_proof = ["--time-limit", "8s", "--certificate", str(proof), str(data), str(model)]
    try:
        training.train.main(["sgd", *case.words, *with_proof], standalone_mode=False)
    except OutOfTimeError:
        return "no model in time"
    stated = oracle.trailer(model)
    if exact_judge.said(stated) is None:
        return f"no certificate: {stated['stopped']}"
    better = ["--gap", "1e-8", *("--time-limit", "3s", str(data), str(other))]
    training.train.main(["sgd", *case.words, *better], standalone_mode=False)
    if wrong := list(contradictions(case, data, model, proof, [other])):
        raise WrongError("; ".join(wrong))
    assert stated["certificate"] == "proven"
    return "gap reached" if float(stated["gap"]) <= case.gap else "certified, gap not reached"
