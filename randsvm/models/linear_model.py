"""Linear models: f = <w, x> + b, in LIBLINEAR's format."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from randsvm.errors import ModelError
from randsvm.kernels.random_features import Prepared, RandomMap
from randsvm.models import liblinear_format
from randsvm.models.header import FOREIGN
from randsvm.models.liblinear_format import LiblinearModel
from randsvm.models.model import (
    FOREIGN_LINE,
    MOST_FEATURES,
    ONE_CLASS_LABELS,
    ONE_CLASS_VALUES,
    Known,
    Model,
    TestRows,
    array_of,
    common_parts,
    flat,
    parsed_fact,
    words_of,
)

# A linear model with more than SPARSEST rows of zeros for one of w (and SPARE_ROWS besides) is
# written in our own layout: one index of 2147483647 must not make a file of 8 GB.
SPARSEST = 20
SPARE_ROWS = 100_000
# LIBLINEAR's logistic regressions: its programs predict probabilities with them, 1/(1 + exp(-f)).
LOGISTIC = ("L2R_LR", "L1R_LR", "L2R_LR_DUAL")


@dataclass(frozen=True, kw_only=True)
class LinearModel(Model):
    """f = <w, x> + b; one column for two classes (as KernelModel), else one for each class.

    w : (d, K) float64, b : (K,) float64. solver: LIBLINEAR's word for how it was trained.
    mapping: the random features that w belongs to instead of the rows' own; None: there are none.
    """

    w: np.ndarray
    b: np.ndarray
    solver: str
    mapping: RandomMap | None = None

    @cached_property
    def _prepared(self) -> Prepared | None:
        return None if self.mapping is None else self.mapping.over(self.features)

    def decision(self, rows: TestRows, rough: bool = False) -> np.ndarray:
        X = rows.X if self._prepared is None else self._prepared.values(rows.X)
        return flat(X @ self.w + self.b)

    @property
    def _sigmoid(self) -> np.ndarray | None:
        """A logistic regression has probabilities by itself."""
        if self.sigmoid is None and self.solver in LOGISTIC:
            return np.repeat([[-1.0], [0.0]], self.w.shape[1], axis=1)
        return self.sigmoid

    def save(self, path: str) -> None:
        numbers, w = self._numbers, self.w
        # LIBLINEAR's file has a row for every index up to the largest, and none for index 0.
        largest = int(self.features[-1]) if len(self.features) else 0
        unlike = self.zero_based or self.mapping is not None or self.scaling is not None
        foreign = unlike or numbers is None or largest > SPARSEST * len(w) + SPARE_ROWS
        if not foreign:
            w = np.zeros((largest, w.shape[1]))
            w[self.features - 1] = self.w
        body = LiblinearModel(
            solver_type=self.solver,
            nr_class=len(self.labels) or 2,
            label=None if foreign or self.regression else numbers,
            nr_feature=len(w),
            bias=1.0,
            rho=None,
            w=np.vstack([w, self.b]),
        )
        trailer = self._trailer
        if self.mapping is not None:
            trailer["map"] = str(self.mapping)
        if self.sigmoid is not None:
            trailer |= dict(zip(("probA", "probB"), map(words_of, self.sigmoid), strict=True))
        liblinear_format.write(path, body, trailer, FOREIGN_LINE if foreign else None)

    @staticmethod
    def parse(content: bytes, name: str) -> LinearModel:
        body, trailer = liblinear_format.parse(content, name)
        regression = body.solver_type in liblinear_format.REGRESSIONS
        if body.nr_class < 2:
            raise ModelError(f"{name}: expected two classes or more, found {body.nr_class}")
        if body.solver_type == liblinear_format.ONE_CLASS:
            common = {**common_parts(name, trailer, None, 0), "labels": ONE_CLASS_LABELS}
            common["values"] = ONE_CLASS_VALUES
        else:
            common = common_parts(name, trailer, body.label, 0 if regression else body.nr_class)
        w = body.w[: body.nr_feature]
        b = body.w[-1] * body.bias if body.bias >= 0 else np.zeros(w.shape[1])
        if body.rho is not None:
            b = b - body.rho
        facts = common["facts"]
        mapping = parsed_fact(name, "map", facts, RandomMap.parse)
        if "probA" in facts:
            parsed = [parsed_fact(name, key, facts, array_of) for key in ("probA", "probB")]
            if any(one is None or len(one) != w.shape[1] for one in parsed):
                raise ModelError(f"{name}: expected probA and probB for each column of w")
            common["sigmoid"] = np.array(parsed)
        features, w = _rows_of_w(name, common["known"], w, mapping, content)
        return LinearModel(
            w=np.ascontiguousarray(w),
            b=b,
            solver=body.solver_type,
            mapping=mapping,
            features=features,
            **common,
        )


def _rows_of_w(
    name: str, known: Known | None, w: np.ndarray, mapping: RandomMap | None, content: bytes
) -> tuple[np.ndarray, np.ndarray]:
    """The features that a model's rows are laid out over, and w for them.

    LIBLINEAR's layout has a row for every index up to the largest, ours for each known feature.
    """
    if known is None:
        return np.arange(1, len(w) + 1, dtype=np.int32), w
    if mapping is not None:
        features = known.indices(MOST_FEATURES)
        if len(features) > MOST_FEATURES:
            raise ModelError(f"{name}: expected a random map of at most {MOST_FEATURES} features")
        if mapping.width(len(features)) != len(w):
            raise ModelError(f"{name}: expected a row of w for each random feature")
        return features, w
    features = known.indices(len(w))
    if not content.startswith(FOREIGN.encode()):
        if len(features) and not (features[0] >= 1 and features[-1] <= len(w)):
            raise ModelError(f"{name}: expected a row of w for each known feature")
        return features, w[features - 1]
    if len(features) != len(w):
        raise ModelError(f"{name}: expected a row of w for each known feature")
    return features, w
