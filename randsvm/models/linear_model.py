"""Linear models: f = <w, x> + b, in LIBLINEAR's format."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from randsvm.arrays import to_csr
from randsvm.decimals import join_numbers, parse_numbers
from randsvm.kernels.random_features import FeatureTransform, RandomMap
from randsvm.models import liblinear_format
from randsvm.models.liblinear_format import LiblinearModel
from randsvm.models.model import Model, ModelRows, common_fields
from randsvm.models.trailer import MAX_FEATURES, SeenFeatures, Trailer

# LIBLINEAR's layout has a row of w for every index up to the largest: 8 GB for one index of
# 2147483647. A model that needs more than ROWS_PER_FEATURE rows for each feature plus EXTRA_ROWS is
# written in the package's own layout, which has a row for each seen feature.
ROWS_PER_FEATURE = 20
EXTRA_ROWS = 100_000
# LIBLINEAR's logistic regressions have the probabilities 1/(1 + exp(-f)).
LOGISTIC = ("L2R_LR", "L1R_LR", "L2R_LR_DUAL")
LOGISTIC_SIGMOID = np.array([[-1.0], [0.0]])


@dataclass(frozen=True, kw_only=True)
class LinearModel(Model):
    """A linear model, f(x) = <w, x> + b.

    Parameters
    ----------
    w : array of shape (d, K), float64
        Weights of the features, or of the random features of `mapping`. K is 1 for two classes (2
        with Crammer and Singer's loss), else the number of classes.
    solver : str
        LIBLINEAR's name of the loss.
    mapping : RandomMap, optional
        The random features; None: w are weights of the features of rows.

    Notes
    -----
    Two classes: f > 0 predicts the first label. Several classes: the largest f_c wins.
    """

    w: np.ndarray
    solver: str
    mapping: RandomMap | None = None

    @cached_property
    def _transform(self) -> FeatureTransform | None:
        return None if self.mapping is None else self.mapping.over(self.features)

    @property
    def map_tables(self) -> tuple[np.ndarray, ...]:
        """The random numbers of `mapping`, as `FeatureTransform.tables` returns them."""
        assert self._transform is not None, "the model has a mapping"
        return self._transform.tables

    def _decision(self, rows: ModelRows, labels_only: bool) -> np.ndarray:
        X = rows.X if self._transform is None else self._transform.values(to_csr(rows.X))
        return X @ self.w + self.b

    def properties(self) -> dict[str, Any]:
        task = "svr" if self.is_regression else "one-class" if self.is_one_class else "svc"
        return {
            "format": "liblinear",
            "task": task,
            "solver": self.solver,
            "random_features": None if self.mapping is None else str(self.mapping),
            "weights": len(self.w),
        }

    @property
    def is_one_class(self) -> bool:
        return self.solver == liblinear_format.ONE_CLASS_SOLVER or "origin" in self.metadata

    @property
    def sigmoid_in_use(self) -> np.ndarray | None:
        is_logistic = self.sigmoid is None and self.solver in LOGISTIC
        return LOGISTIC_SIGMOID if is_logistic else self.sigmoid

    def save(self, path: str) -> None:
        label, w = self._c_labels, self.w
        largest = int(self.features[-1]) if len(self.features) else 0
        changed = self.mapping is not None or self.scaling is not None
        sparse = largest > ROWS_PER_FEATURE * len(w) + EXTRA_ROWS
        own_format = self.zero_based or changed or label is None or sparse
        one_class = self.solver == liblinear_format.ONE_CLASS_SOLVER
        if not own_format:
            w = np.zeros((largest, w.shape[1]))
            w[self.features - 1] = self.w
        body = LiblinearModel(
            solver_type=self.solver,
            nr_class=len(self.labels) or 2,
            label=None if own_format or self.is_regression or one_class else label,
            nr_feature=len(w),
            bias=1.0,
            # The offset is the last row of w.
            rho=0.0 if one_class else None,
            w=np.vstack([w, self.b]),
            own_format=own_format,
        )
        trailer = self._trailer
        if self.mapping is not None:
            trailer["map"] = str(self.mapping)
        if self.sigmoid is not None:
            trailer |= dict(zip(("probA", "probB"), map(join_numbers, self.sigmoid), strict=True))
        liblinear_format.write(path, body, trailer)

    @staticmethod
    def parse(content: bytes, name: str) -> LinearModel:
        """Return the model in a file of LIBLINEAR or of this package.

        Parameters
        ----------
        content : bytes
            The whole file.
        name : str
            The file's name in messages.

        Returns
        -------
        LinearModel
            The model.

        Raises
        ------
        ModelError
            If the content is not a model.
        """
        body, lines = liblinear_format.parse(content, name)
        trailer = Trailer(name, lines)
        if body.nr_class < 2:
            raise trailer.error(f"expected two classes or more, found {body.nr_class}")
        w = body.w[: body.nr_feature]
        task = _task(body.solver_type)
        fields = common_fields(trailer, task, body.label, body.nr_class, w.shape[1])
        b = body.w[-1] * body.bias if body.bias >= 0 else np.zeros(w.shape[1])
        if body.rho is not None:
            b = b - body.rho
        mapping = trailer.take("map", RandomMap.parse)
        sigmoid = _sigmoid(trailer, w.shape[1])
        features, w = _select_rows_of_w(trailer, fields["seen"], w, mapping, body.own_format)
        return LinearModel(
            w=np.ascontiguousarray(w),
            b=b,
            solver=body.solver_type,
            mapping=mapping,
            features=features,
            sigmoid=sigmoid,
            **fields,
        )


def _task(solver_type: str) -> str:
    if solver_type == liblinear_format.ONE_CLASS_SOLVER:
        return "one-class"
    return "svr" if solver_type in liblinear_format.REGRESSION_SOLVERS else "svc"


def _sigmoid(trailer: Trailer, columns: int) -> np.ndarray | None:
    """Return A and B of each column, (2, columns); None if the trailer has none."""
    if "probA" not in trailer.unparsed:
        return None
    A, B = (trailer.take(key, parse_numbers) for key in ("probA", "probB"))
    if A is None or B is None or not len(A) == len(B) == columns:
        raise trailer.error("expected probA and probB for each column of w")
    return np.array([A, B])


def _select_rows_of_w(
    trailer: Trailer,
    seen: SeenFeatures | None,
    w: np.ndarray,
    mapping: RandomMap | None,
    own_format: bool,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the features of the model and their rows of w.

    In LIBLINEAR's layout w has a row for every index up to the largest; in the package's own layout
    it has a row for each seen feature.
    """
    if seen is None:
        return np.arange(1, len(w) + 1, dtype=np.int32), w
    if mapping is not None:
        features = seen.indices(MAX_FEATURES)
        if len(features) > MAX_FEATURES:
            raise trailer.error(f"expected a random map of at most {MAX_FEATURES} features")
        if mapping.components != len(w):
            raise trailer.error("expected a row of w for each random feature")
        return features, w
    features = seen.indices(len(w))
    if own_format:
        fits = len(features) == len(w)
    else:
        fits = len(features) == 0 or (features[0] >= 1 and features[-1] <= len(w))
    if not fits:
        raise trailer.error("expected a row of w for each known feature")
    return features, w if own_format else w[features - 1]
