"""A model of each kind that a file can hold, with random numbers."""

import math
from typing import Any

import numpy as np
from csr_rows import csr
from model_files import kernel_model, metadata
from scipy import sparse

from randsvm.data.columns import Column, Columns
from randsvm.data.scaling import Scaling
from randsvm.kernels.random_features import RandomMap
from randsvm.models.decisions import NonconformityScores
from randsvm.models.linear_model import LinearModel

RNG = np.random.default_rng(5)
FOUR = np.arange(1, 5, dtype=np.int32)
HUGE = np.array([1, 2, 3, 2**31 - 1], np.int32)
# A description of a training, with a number that is not known.
METADATA = metadata(
    version="0.1.0", configuration="sgd -w 'a b' 2", n=6, d=4, stopped="end", primal=math.nan,
    dual=1.5, gap=0.5, problem={"task": "svc"},
)  # fmt: skip


def machine(
    task: str = "svc",
    labels: tuple[str, ...] = ("+1", "-1"),
    kernel: tuple[Any, ...] = ("rbf", 0.3),
    **given: Any,
) -> Any:
    m = len(given.get("beta", range(6)))
    Z = sparse.csr_matrix(RNG.normal(size=(m, 4)).round(7) * (RNG.random((m, 4)) < 0.6))
    fields: dict[str, Any] = {
        "features": FOUR,
        "Z": csr(Z),
        "beta": RNG.normal(size=(m, 1)),
        "b": RNG.normal(size=1),
        "seen": FOUR,
        "float64": True,
        "metadata": METADATA,
    } | given
    return kernel_model(kernel, prediction_type=task, labels=labels, **fields)


def linear(
    labels: tuple[str, ...] = ("2", "1"), columns: int = 1, rows: int = 4, **given: Any
) -> Any:
    fields: dict[str, Any] = {
        "features": FOUR,
        "w": RNG.normal(size=(rows, columns)),
        "b": RNG.normal(size=columns),
        "solver": "L2R_L1LOSS_SVC_DUAL",
        "seen": FOUR,
        "metadata": METADATA,
    } | given
    return LinearModel(labels=labels, **fields)


THREE = ("1", "2", "3")
PAIRS: dict[str, Any] = {
    "beta": RNG.normal(size=(6, 2)),
    "b": RNG.normal(size=3),
    "class_of": np.array([0, 0, 2, 2, 2, 2]),
}
SCALED: dict[str, Any] = {"scaling": Scaling("minmax", np.arange(4) / 7, np.arange(1, 5) / 3)}
SCORES: dict[str, Any] = {
    "conformal": NonconformityScores(np.array([0.1, 0.3]), np.array([1.0, 2.5]))
}
TABLE = Columns("csv", True, "y", False, (Column("a"), Column("b,", ("x y", "é", '"'))))
MARKS: dict[str, Any] = {"density_marks": np.sort(RNG.normal(size=10))}
KINDS = {
    "rbf": machine(sigmoid=np.array([[-1.5], [0.25]])),
    "linear kernel, nu": machine(kernel=("linear",), nu=True),
    "poly": machine(kernel=("poly", 0.5, 1.5, 2)),
    "sigmoid": machine(kernel=("sigmoid", 0.5, -1.5)),
    "float64": machine(Z=csr(RNG.normal(size=(6, 4)))),
    "words": machine(labels=("Yes, churned", 'no "never"\nor'), **SCORES),
    "numbers that are not whole": machine(labels=("1.5", "-2")),
    "numbers beyond C": machine(labels=("1", "2147483648")),
    "scaled": machine(**SCALED),
    "unit": machine(scaling=Scaling("unit")),
    "zero-based": machine(zero_based=True, features=FOUR - 1, seen=FOUR - 1),
    "pairs": machine(labels=THREE, sigmoid=RNG.normal(size=(2, 3)), **PAIRS),
    "pairs of words": machine(labels=("a", "b", "c"), **PAIRS),
    "one against the rest": machine(
        labels=THREE, beta=RNG.normal(size=(6, 3)), b=RNG.normal(size=3)
    ),
    "table": machine(columns=TABLE),
    "regression": machine("svr", (), noise_scale=0.25, **SCORES),
    "one-class": machine("one-class", ("1", "-1"), **MARKS),
    "no support vectors": machine(
        beta=np.zeros((0, 1)), Z=csr((0, 4), dtype=np.float32), features=FOUR[:0]
    ),
    "linear": linear(),
    "linear, words": linear(("un mot", "mot")),
    "linear, several": linear(THREE, 3, sigmoid=RNG.normal(size=(2, 3))),
    "crammer and singer": linear(columns=2, solver="MCSVM_CS"),
    "linear regression": linear((), solver="L2R_L2LOSS_SVR"),
    "linear one-class": linear(("1", "-1"), solver="ONECLASS_SVM"),
    "linear, scaled": linear(**SCALED),
    "linear, zero-based": linear(zero_based=True, features=FOUR - 1),
    "linear, a huge index": linear(
        features=HUGE, seen=HUGE
    ),
    "fourier features": linear(rows=9, mapping=RandomMap("rbf", 9, 0.5)),
    "maclaurin features": linear(rows=9, mapping=RandomMap("poly", 9, 0.5, 1.0, 2)),
}  # fmt: skip
# Models that LIBSVM or LIBLINEAR predict with.
PLAIN = (
    "rbf", "linear kernel, nu", "poly", "sigmoid", "float64", "pairs", "regression", "one-class",
    "no support vectors", "table", "linear", "linear, several", "crammer and singer",
    "linear regression", "linear one-class",
)  # fmt: skip
ROWS = RNG.normal(size=(40, 4)).astype(np.float32).astype(np.float64)
