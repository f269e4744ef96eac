"""Linear models, f = <w, x> + b; read and write them in LIBLINEAR's text format."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from randsvm.arrays import to_csr
from randsvm.decimals import join_rows
from randsvm.kernels.random_features import FeatureTransform, RandomMap
from randsvm.models.metadata import ARRAY, LineKind, Metadata
from randsvm.models.model import Model, ModelRows
from randsvm.models.model_text import (
    COUNTS,
    INTS,
    NUMBERS,
    Header,
    one_of,
    trailer_of,
    whole_numbers,
    written,
)
from randsvm.parameters.sgd import CRAMMER_SINGER

# LIBLINEAR's name of novelty detection.
ONE_CLASS_SOLVER = "ONECLASS_SVM"
# LIBLINEAR's logistic regressions have the probabilities 1/(1 + exp(-f)).
LOGISTIC = ("L2R_LR", "L1R_LR", "L2R_LR_DUAL")
LOGISTIC_SIGMOID = np.array([[-1.0], [0.0]])
CLASSIFIER_SOLVERS = (
    "L2R_LR", "L2R_L2LOSS_SVC_DUAL", "L2R_L2LOSS_SVC", "L2R_L1LOSS_SVC_DUAL", CRAMMER_SINGER,
    "L1R_L2LOSS_SVC", "L1R_LR", "L2R_LR_DUAL",
)  # fmt: skip
REGRESSION_SOLVERS = ("L2R_L2LOSS_SVR", "L2R_L2LOSS_SVR_DUAL", "L2R_L1LOSS_SVR_DUAL")
TASKS = {
    **dict.fromkeys(CLASSIFIER_SOLVERS, "svc"),
    **dict.fromkeys(REGRESSION_SOLVERS, "svr"),
    ONE_CLASS_SOLVER: "one-class",
}

# The keywords are in LIBLINEAR's order: its reader needs nr_class before label. Regression and
# one-class have nr_class 2.
HEADER_FORMAT = (
    "LIBLINEAR",
    "w",
    {
        "solver_type": one_of({solver: solver for solver in TASKS}),
        "nr_class": whole_numbers(2),
        "label": INTS,
        "nr_feature": COUNTS,
        "bias": NUMBERS,
        "rho": NUMBERS,
    },
)
BLOCK_NUMBERS = 1 << 16  # numbers of w that are formatted at once
# LIBLINEAR's layout has a row of w for every index up to the largest: 8 GB for one index of
# 2147483647. A model that needs more than ROWS_PER_FEATURE rows for each feature plus EXTRA_ROWS is
# written in the package's own layout, which has a row for each seen feature.
ROWS_PER_FEATURE = 20
EXTRA_ROWS = 100_000


@dataclass(frozen=True, kw_only=True)
class LinearModel(Model):
    """A linear model, f(x) = <w, x> + b.

    Two classes: f > 0 predicts the first label. Several classes: the largest f_c wins.

    w : (d, K) float64, weights of the features, or of the random features of `mapping`. K is 1 for
    two classes (2 with Crammer and Singer's loss), else the number of classes.
    solver : LIBLINEAR's name of the loss
    mapping : the random features; None: w are weights of the features of rows
    constant : the value of LIBLINEAR's feature that all rows have, whose weight times it is b, and
    is regularised; None: there is none
    """

    w: np.ndarray
    solver: str
    mapping: RandomMap | None = None
    constant: float | None = None

    def __post_init__(self) -> None:
        if self.solver in LOGISTIC:
            object.__setattr__(self, "sigmoid", np.repeat(LOGISTIC_SIGMOID, len(self.b), axis=1))

    @property
    def is_l1(self) -> bool:
        """Whether the sizes of the weights were penalised, and not their squares."""
        return self.solver.startswith("L1R")

    @cached_property
    def _transform(self) -> FeatureTransform | None:
        return None if self.mapping is None else self.mapping.over(self.features)

    def decision(self, rows: ModelRows, labels_only: bool = False) -> np.ndarray:
        X = rows.X if self._transform is None else self._transform.values(to_csr(rows.X))
        return X @ self.w + self.b

    def properties(self) -> dict[str, Any]:
        is_novelty = self.metadata.origin is not None or self.metadata.nu is not None
        task = "one-class" if is_novelty else TASKS[self.solver]
        return {
            "format": "liblinear",
            "task": task,
            "solver": self.solver,
            "random_features": None if self.mapping is None else str(self.mapping),
            "weights": len(self.w),
            "nonzero_weights": int(self.w.any(axis=1).sum()),
        }


# --- writing -------------------------------------------------------------------------------


def write(model: LinearModel, path: str) -> None:
    """Write a model and its sealed trailer; `path` is replaced as a whole or not at all.

    Raise ModelError, before `path` changes, for numbers that are not finite.
    """
    w, one_class = model.w, model.solver == ONE_CLASS_SOLVER
    largest = int(model.features[-1]) if len(model.features) else 0
    own_layout = (
        model.zero_based
        or model.mapping is not None
        or model.scaling is not None
        or model.int_labels is None
        or largest > ROWS_PER_FEATURE * len(w) + EXTRA_ROWS
    )
    if not own_layout:
        w = np.zeros((largest, w.shape[1]))
        w[model.features - 1] = model.w
    header_has_labels = not (own_layout or model.is_regression or one_class)
    header = {
        "solver_type": (model.solver,),
        "nr_class": (len(model.labels) or 2,),
        "label": model.int_labels if header_has_labels else None,
        "nr_feature": (len(w),),
        # The offset is the last row of w; without one LIBLINEAR's bias is -1.
        "bias": (1 if model.b.any() else -1,),
        "rho": (0,) if one_class else None,
    }
    own: dict[str, Any] = {"map": None if model.mapping is None else str(model.mapping)}
    if model.sigmoid is not None and model.solver not in LOGISTIC:
        own |= {"probA": model.sigmoid[0], "probB": model.sigmoid[1]}
    trailer = trailer_of(model, bool(model.labels), **own)
    w = np.vstack([w, model.b]) if model.b.any() else w
    step = max(1, BLOCK_NUMBERS // w.shape[1])
    numbers = {"w": model.w, "b": model.b}
    with written(path, HEADER_FORMAT, header, own_layout, trailer, numbers) as stream:
        for start in range(0, len(w), step):
            # As in LIBLINEAR a space follows each number, and only whole numbers end with '.0'.
            text = " \n".join([*join_rows(w[start : start + step]), ""])
            stream.write(text.replace(".0 ", " ").encode())


# --- reading -------------------------------------------------------------------------------


def read(content: bytes, name: str) -> LinearModel:
    """Return the model in a file of LIBLINEAR or of this package.

    name : the file's name in messages. Memory: `content`, two copies of w and some blocks of text.
    A wrong size in the header does not increase it. Raise ModelError.

    f_c(x) = sum_j w_jc x_j + bias w_(last)c - rho, without a last row if the bias is negative.
    """
    header = Header(content, name, HEADER_FORMAT)
    (solver,), (nr_class,) = header.get("solver_type"), header.get("nr_class")
    mapping = header.trailer.take("map", LineKind("a random feature map", RandomMap.parse))
    A, B = (header.trailer.take(key, ARRAY) for key in ("probA", "probB"))
    given = header.fields(TASKS[solver])
    (nr_feature,), (bias,) = header.get("nr_feature"), header.get("bias")
    (rho,) = header.get("rho") if solver == ONE_CLASS_SOLVER else (0.0,)
    # Two classes have one column of w, except in MCSVM_CS.
    columns = 1 if nr_class == 2 and solver != CRAMMER_SINGER else nr_class
    rows = nr_feature + (bias >= 0)
    w, others = header.rows(rows, columns, "row of w", "rows of w (nr_feature and the bias)")
    if others.nonzeros:
        raise header.error(header.first_line, "numbers in the rows of w", "index:value")
    b = w[-1] * bias if bias >= 0 else np.zeros(columns)
    if A is not None or B is not None:
        if TASKS[solver] != "svc" or any(one is None or one.shape != b.shape for one in (A, B)):
            raise ValueError(f"expected {columns} numbers probA and probB of classes")
        given["sigmoid"] = np.array([A, B])
    features, w = given["seen"], w[:nr_feature]
    if features is None:
        features = np.arange(1, nr_feature + 1, dtype=np.int32)
    elif mapping is None and not header.own_layout:
        # LIBLINEAR's layout has a row of w for every index up to the largest.
        w = w[features - 1]
    if len(w) != (len(features) if mapping is None else mapping.components):
        raise ValueError("expected a row of w for each feature")
    _check_state(given["metadata"], w, TASKS[solver], len(given["labels"]))
    return LinearModel(
        w=np.ascontiguousarray(w),
        b=b - rho,
        solver=solver,
        mapping=mapping,
        constant=bias if bias > 0 and given["metadata"].version is None else None,
        features=features,
        **given,
    )


def _check_state(found: Metadata, w: np.ndarray, task: str, classes: int) -> None:
    """Raise ValueError if an update cannot continue from the state that a trailer has."""
    if found.weights is None:
        return
    if (found.epsilon is None) == (task == "svr"):
        raise ValueError("expected epsilon of a regression")
    # Novelty detection has one weight and the labels of two classes.
    is_novelty = found.origin is not None or found.nu is not None
    count = classes if task == "svc" and not is_novelty else 1
    if found.weights.shape != (count,) or (found.weights <= 0).any():
        raise ValueError(f"expected {count} weights above 0")
    if found.running is None:
        return
    shapes = {"": (3,), "_v": w.shape, "_b": w.shape[1:], "_A": w.shape, "_b_sum": w.shape[1:]}
    for name, shape in shapes.items():
        array = getattr(found, f"running{name}")
        if array is not None and array.size != np.prod(shape, dtype=int):
            raise ValueError(f"expected running weights of shape {shape}")
    # Weights are s v: s is above 0. A mean over m steps has sums.
    if found.running[0] <= 0 or found.running[2] < 0:
        raise ValueError("expected running sums of steps")
    if bool(found.running[2]) != (found.running_A is not None):
        raise ValueError("expected the running mean of m steps")
