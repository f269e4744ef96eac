"""Outside truths for the tests: dense float64 formulas, LIBSVM's and LIBLINEAR's bindings, made
data sets.

Slow and plain on purpose. Uses nothing of the package.
"""

import ctypes
import itertools
import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from liblinear import liblinear, liblinearutil
from libsvm import svm as bindings
from libsvm import svmutil
from scipy import sparse

LIBSVM_KERNELS = ("linear", "poly", "rbf", "sigmoid")


# ---- data -------------------------------------------------------------------------------------


def two_gaussians(rows: int, seed: int = 0, d: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Two overlapping clouds: y (m,) -1/+1, X (m, d) float32 values in float64."""
    rng = np.random.default_rng([seed, 1])
    y = np.where(rng.random(rows) < 0.5, 1.0, -1.0)
    return y, as_float32(rng.normal(size=(rows, d)) + y[:, None])


def checkerboard(rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """KBH07's board: negative where ceil(x1) % 2 != ceil(x2) % 2."""
    rng = np.random.default_rng([seed, 2])
    X = as_float32(rng.uniform(0, 4, (rows, 2)))
    parity = np.ceil(X) % 2
    return np.where(parity[:, 0] != parity[:, 1], -1.0, 1.0), X


def sparse_rows(rows: int, seed: int = 0, d: int = 300) -> tuple[np.ndarray, np.ndarray]:
    """Few nonzeros in many features, some rows without any; classes differ in a few features."""
    rng = np.random.default_rng([seed, 3])
    y = np.where(rng.random(rows) < 0.5, 1.0, -1.0)
    X = np.where(rng.random((rows, d)) < 0.01, rng.normal(size=(rows, d)), 0.0)
    X[:, :4] += (rng.random((rows, 4)) < 0.3) * y[:, None]
    X[:: max(rows // 5, 1)] = 0.0
    return y, as_float32(X)


def clouds(rows: int, seed: int = 0, classes: int = 4, d: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """Overlapping clouds of several classes: y (m,) 1 .. classes, X (m, d)."""
    rng = np.random.default_rng([seed, 4])
    y = rng.integers(1, classes + 1, rows)
    centres = np.random.default_rng(5).normal(size=(classes, d)) * 1.5
    return y.astype(float), as_float32(rng.normal(size=(rows, d)) + centres[y - 1])


def as_float32(X: np.ndarray) -> np.ndarray:
    """Return X rounded to float32, in float64 for the formulas."""
    return X.astype(np.float32).astype(np.float64)


def svmlight_text(
    labels: Iterable[object], X: np.ndarray, base: int = 1, weights: np.ndarray | None = None
) -> str:
    """Return rows as svmlight text without zeros, every number in full."""
    lines = []
    for i, (label, x) in enumerate(zip(labels, X, strict=True)):
        cost = [] if weights is None else [f"cost:{float(weights[i])!r}"]
        entries = [f"{j + base}:{float(x[j])!r}" for j in np.flatnonzero(x)]
        word = str(label)
        if not isinstance(label, str):
            word = np.format_float_positional(float(label), trim="-")  # type: ignore[arg-type]
        lines.append(" ".join([word, *cost, *entries]))
    return "\n".join(lines) + "\n"


def write_rows(path: Path, labels: Iterable[object], X: np.ndarray, *more: Any) -> Path:
    """Write rows with any labels; more: arguments of svmlight_text."""
    path.write_text(svmlight_text(labels, X, *more))
    return path


def write_svmlight(path: Path, y: np.ndarray, X: np.ndarray) -> Path:
    path.write_text(svmlight_text([f"{int(label):+d}" for label in y], X))
    return path


# ---- formulas ---------------------------------------------------------------------------------


def kernel_matrix(
    kernel: str, X: np.ndarray, Z: np.ndarray, gamma: float, coef0: float = 0.0, degree: int = 3
) -> np.ndarray:
    """Return K(x_i, z_j) as LIBSVM's README defines it, (m, n) float64."""
    products = X @ Z.T
    if kernel == "linear":
        return products
    if kernel == "poly":
        return (gamma * products + coef0) ** degree
    if kernel == "sigmoid":
        return np.tanh(gamma * products + coef0)
    return np.exp(-gamma * np.maximum(0, squares(X)[:, None] + squares(Z) - 2 * products))


def squares(X: np.ndarray) -> np.ndarray:
    return (X**2).sum(axis=1)


class Objectives(NamedTuple):
    """P = 1/2 |w|^2 + C sum max(0, 1 - y f), D = sum alpha - 1/2 |w|^2, their gap."""

    primal: float
    dual: float

    @property
    def gap(self) -> float:
        return (self.primal - self.dual) / max(abs(self.primal), abs(self.dual))


def objectives(y: np.ndarray, u: np.ndarray, beta: np.ndarray, b: float, C: float) -> Objectives:
    """Return P and D. y, u = K beta, beta : (n,); beta is 0 for rows that do not support."""
    norm = beta @ u
    loss = np.maximum(0, 1 - y * (u + b)).sum()
    return Objectives(norm / 2 + C * loss, np.abs(beta).sum() - norm / 2)


def violating(
    y: np.ndarray, f: np.ndarray, beta: np.ndarray, C: float, tolerance: float
) -> np.ndarray:
    """Return the rows that violate the KKT conditions, (n,) bool.

    alpha = 0: y f >= 1; alpha = C: y f <= 1; between: y f = 1.
    """
    alpha, margin = np.abs(beta), y * f
    too_small = (alpha < C) & (margin < 1 - tolerance)
    too_large = (alpha > 0) & (margin > 1 + tolerance)
    return too_small | too_large


# ---- LIBSVM -----------------------------------------------------------------------------------


class Solved(NamedTuple):
    """LIBSVM's answer: row numbers of the support vectors, beta = y alpha, b; and its model."""

    rows: np.ndarray
    beta: np.ndarray
    b: float
    model: Any

    def dense(self, n: int) -> np.ndarray:
        beta = np.zeros(n)
        beta[self.rows] = self.beta
        return beta


def libsvm_train(y: np.ndarray, X: np.ndarray, words: str) -> Solved:
    """svm_train of the PyPI bindings; y is -1/+1, for which LIBSVM's first label is +1."""
    problem = bindings.svm_problem(y, sparse.csr_matrix(X))
    model = svmutil.svm_train(problem, bindings.svm_parameter(f"-q {words}"))
    rows = np.array(model.get_sv_indices()) - 1
    beta = np.array([coefficients[0] for coefficients in model.get_sv_coef()])
    assert model.get_labels() == [1, -1]
    order = np.argsort(rows)
    return Solved(rows[order], beta[order], -model.rho[0], model)


def libsvm_predictions(
    model: Any, rows: Sequence[dict[int, float]], *, probabilities: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Return LIBSVM's predictions of rows: labels or targets (m,), and the decision values of all
    pairs or the probabilities of all classes, (m, columns).

    svm_predict of the bindings is not used: it treats nu-SVC as a regression, and allocates too
    little memory.
    """
    classes = model.get_nr_class()
    room = (ctypes.c_double * max(classes, classes * (classes - 1) // 2))()
    columns = classes if probabilities else classes * (classes - 1) // 2
    library = bindings.libsvm
    function = library.svm_predict_probability if probabilities else library.svm_predict_values
    precomputed = model.param.kernel_type == bindings.kernel_names.PRECOMPUTED
    labels, values = np.empty(len(rows)), np.empty((len(rows), columns))
    for i, row in enumerate(rows):
        nodes, _ = bindings.gen_svm_nodearray(row, isKernel=precomputed)
        labels[i] = function(model, nodes, room)
        values[i] = room[:columns]
    return labels, values


def libsvm_decisions(model: Any, X: np.ndarray) -> np.ndarray:
    """Return LIBSVM's decision values of two classes; features are columns counted from 1."""
    rows = [{int(j) + 1: float(x[j]) for j in np.flatnonzero(x)} for x in X]
    return libsvm_predictions(model, rows)[1][:, 0]


class ModelFile(NamedTuple):
    """A model file as LIBSVM's own loader reads it, and the facts of its trailer."""

    Z: np.ndarray
    beta: np.ndarray
    b: float
    gamma: float
    metadata: dict[str, Any]


def read_model(path: Path, d: int) -> ModelFile:
    """Read a model through svm_load_model. Z : (m, d) over features 1..d."""
    loaded = svmutil.svm_load_model(str(path))
    assert loaded is not None
    Z = np.zeros((loaded.l, d))
    for row, nodes in zip(Z, loaded.get_SV(), strict=True):
        for index, value in nodes.items():
            row[index - 1] = value
    beta = np.array([coefficients[0] for coefficients in loaded.get_sv_coef()])
    return ModelFile(Z, beta, -loaded.rho[0], loaded.param.gamma, trailer(path))


class SeveralFile(NamedTuple):
    """A kernel model of several classes: Z (m, d), beta (m, K), b (K,), facts."""

    Z: np.ndarray
    beta: np.ndarray
    b: np.ndarray
    labels: list[str]
    metadata: dict[str, Any]


def read_several(path: Path, d: int) -> SeveralFile:
    """Read a model line by line; its features are columns counted from 1."""
    head, _, rows = path.read_text().partition("# randsvm")[0].partition("\nSV\n")
    entries = dict(line.split(" ", 1) for line in head.splitlines())
    lines, metadata = [line.split() for line in rows.splitlines()], trailer(path)
    b = -np.array(entries["rho"].split(), float)
    assert len(b) == int(entries["nr_class"]) and len(lines) == int(entries["total_sv"])
    Z = np.zeros((len(lines), d))
    for z, line in zip(Z, lines, strict=True):
        for index, value in (word.split(":") for word in line[len(b) :]):
            z[int(index) - 1] = float(value)
    beta = np.array([line[: len(b)] for line in lines], float).reshape(-1, len(b))
    return SeveralFile(as_float32(Z), beta, b, metadata["labels"], metadata)


def several_objectives(
    model: SeveralFile,
    y: np.ndarray,
    X: np.ndarray,
    C: float,
    gamma: float,
    weights: dict[float, float] | None = None,
) -> Objectives:
    """P and D of one machine for each class against the rest, summed; weights: of a class's own
    rows in its machine."""
    u = kernel_matrix("rbf", X, model.Z, gamma) @ model.beta
    norms = model.beta * (kernel_matrix("rbf", model.Z, model.Z, gamma) @ model.beta)
    labels = list(map(float, model.labels))
    own = y[:, None] == labels
    weight = np.where(own, [(weights or {}).get(label, 1.0) for label in labels], 1.0)
    loss = (weight * np.maximum(0, 1 - np.where(own, 1, -1) * (u + model.b))).sum()
    return Objectives(norms.sum() / 2 + C * loss, np.abs(model.beta).sum() - norms.sum() / 2)


def trailer(path: Path) -> dict[str, Any]:
    """Return the values of the '# randsvm key value' lines of a model."""
    lines = path.read_text().splitlines()
    found = [line.removeprefix("# randsvm ") for line in lines if line.startswith("# randsvm ")]
    items = [line.partition(" ")[::2] for line in found]
    return {key: value if key == "sha256" else json.loads(value) for key, value in items}


# ---- linear models ----------------------------------------------------------------------------

LINEAR_LOSSES = {
    "hinge": lambda z: np.maximum(0, 1 - z),
    "squared-hinge": lambda z: np.maximum(0, 1 - z) ** 2,
    "log": lambda z: np.logaddexp(0, -z),
}


class LinearFile(NamedTuple):
    """A linear model file: w (d, K), b (K,), label (classes,), and the facts."""

    w: np.ndarray
    b: np.ndarray
    label: list[str]
    solver: str
    metadata: dict[str, Any]

    def decisions(self, X: np.ndarray) -> np.ndarray:
        return X @ self.w + self.b

    def margins(self, y: np.ndarray, X: np.ndarray) -> np.ndarray:
        """Return the margins of rows: (m, K) y f of each class against the rest; of Crammer and
        Singer (m, 1), f of the own class minus the largest other f."""
        f, names = self.decisions(X), [float(word) for word in self.label]
        own = y[:, None] == names
        if self.solver == "MCSVM_CS":
            return (f[own] - np.where(own, -np.inf, f).max(axis=1))[:, None]
        return np.where(own, 1, -1)[:, : f.shape[1]] * f

    def labels(self, X: np.ndarray) -> np.ndarray:
        f, names = self.decisions(X), np.array([float(word) for word in self.label])
        return names[np.where(f[:, 0] > 0, 0, 1) if f.shape[1] == 1 else f.argmax(axis=1)]


def read_linear(path: Path, d: int) -> LinearFile:
    """A model of LIBLINEAR's format with rows for the features 1 .. d at most."""
    head, _, rows = path.read_text().partition("# randsvm")[0].partition("\nw\n")
    entries = dict(line.split(" ", 1) for line in head.splitlines())
    numbers = np.array([[float(word) for word in line.split()] for line in rows.splitlines()])
    assert len(numbers) == int(entries["nr_feature"]) + 1
    w = np.zeros((d, numbers.shape[1]))
    w[: len(numbers) - 1] = numbers[:-1]
    b = numbers[-1] * float(entries["bias"])
    return LinearFile(w, b, entries["label"].split(), entries["solver_type"], trailer(path))


class LinearTruth(NamedTuple):
    """P = 1/2 |w|^2 + C sum loss; violators: rows with any margin < 1; errors: wrong labels."""

    primal: float
    violators: int
    errors: int


def linear_truth(
    model: LinearFile,
    y: np.ndarray,
    X: np.ndarray,
    C: float = 1.0,
    loss: str = "hinge",
    weights: dict[float, float] | None = None,
) -> LinearTruth:
    z = model.margins(y, X)
    weight = np.array([(weights or {}).get(label, 1.0) for label in y])
    losses = weight @ LINEAR_LOSSES[loss](z).sum(axis=1)
    return LinearTruth(
        (model.w**2).sum() / 2 + C * losses,
        int((z < 1).any(axis=1).sum()),
        int((model.labels(X) != y).sum()),
    )


# ---- LIBLINEAR --------------------------------------------------------------------------------


def liblinear_predictions(path: Path, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Labels (m,) and decision values (m, columns) by LIBLINEAR's own loader and predictor.

    Row by row: LIBLINEAR's Python function allocates one value a row for two classes, but a model
    of Crammer and Singer has two.
    """
    model = liblinearutil.load_model(str(path))
    assert model is not None
    values = np.zeros((len(X), max(2, model.nr_class)))
    labels = []
    for x, row in zip(X, values, strict=True):
        nodes, _ = liblinear.gen_feature_nodearray({j + 1: x[j] for j in np.flatnonzero(x)})
        if model.bias >= 0:
            nodes[-2] = liblinear.feature_node(model.nr_feature + 1, model.bias)
        into = row.ctypes.data_as(ctypes.POINTER(ctypes.c_double))
        labels.append(liblinear.liblinear.predict_values(model, nodes, into))
    one = model.nr_class == 2 and model.param.solver_type != liblinear.solver_names.MCSVM_CS
    return np.array(labels), values[:, : 1 if one else model.nr_class]


def shapley_by_definition(K: np.ndarray, beta: np.ndarray) -> np.ndarray:
    """Return the Shapley values of sum_i beta_i prod_{j in T} k_ij by their definition, (d,)."""
    d = K.shape[1]
    v = {
        T: float(beta @ K[:, list(T)].prod(axis=1))
        for size in range(d + 1)
        for T in itertools.combinations(range(d), size)
    }
    phi = np.zeros(d)
    for T, value in v.items():
        for j in set(range(d)) - set(T):
            weight = math.factorial(len(T)) * math.factorial(d - len(T) - 1) / math.factorial(d)
            phi[j] += weight * (v[tuple(sorted((*T, j)))] - value)
    return phi
