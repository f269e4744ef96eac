"""Write a model as an ONNX graph of the standard operators, in float64.

SVMClassifier, SVMRegressor and LinearClassifier of ONNX-ML hold their numbers as float32 and have
label rules of their own, so that labels near the boundary may contradict the model. Matrix
products, exp, tanh and cos in float64 give the decision values of the model, and its rule gives the
labels.

Input X: (rows, inputs) float64; column i is feature i + 1, or i of a zero-based model.
A model of a table has the names of its features as a JSON list in the metadata `feature_names`.
Outputs: label (rows,) int64 or string; f (rows, columns) float64; probabilities (rows, classes).
A regression has prediction (rows,) in place of label.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from randsvm import __version__
from randsvm.errors import ModelError, ParameterError
from randsvm.models import decisions
from randsvm.models.c_source import input_count
from randsvm.models.kernel_model import KernelModel, PairwiseModel
from randsvm.models.linear_model import LinearModel
from randsvm.models.model import Model
from randsvm.models.trailer import MAX_FEATURES

# Versions that all runtimes of the last years read.
OPSET, IR_VERSION = 13, 7
MAX_FLOAT = float(np.finfo(np.float32).max)


def onnx_graph(model: Model) -> Any:
    """Return the onnx.ModelProto of a model.

    Raise ModelError for a precomputed kernel, and ParameterError without the package onnx.
    """
    if model.has_row_numbers:
        raise ModelError("expected a kernel of features: a precomputed kernel has no graph")
    try:
        import onnx
    except ImportError as error:
        raise ParameterError(
            f"an export to ONNX needs onnx (pip install 'randsvm[onnx]'): {error}"
        ) from error
    return _Graph(model, onnx).proto()


class _Graph:
    """Adds nodes for a model."""

    def __init__(self, model: Model, onnx: Any) -> None:
        self.model, self.onnx = model, onnx
        self.inputs = input_count(model)
        self.nodes: list[Any] = []
        self.node_count = 0
        self.constants: list[Any] = []

    def constant(self, value: Any, dtype: Any = np.float64) -> str:
        """Add a constant and return its name."""
        name = f"constant{len(self.constants)}"
        array = np.array(value, dtype)
        self.constants.append(self.onnx.numpy_helper.from_array(array, name))
        return name

    def node(self, operator: str, *inputs: str, output: str | None = None, **given: Any) -> str:
        """Add a node and return the name of its output."""
        self.node_count += 1
        name = output or f"node{self.node_count}"
        self.nodes.append(self.onnx.helper.make_node(operator, inputs, [name], **given))
        return name

    def cast(self, value: str, kind: str, output: str | None = None) -> str:
        return self.node("Cast", value, to=getattr(self.onnx.TensorProto, kind), output=output)

    def rounded(self, value: str) -> str:
        """Return values as the model stores them: rounded to float32 unless it is float64."""
        return value if self.model.float64 else self.cast(self.cast(value, "FLOAT"), "DOUBLE")

    def squares(self, value: str) -> str:
        return self.node("ReduceSumSquare", value, axes=[1], keepdims=1)

    # ---- the parts ----

    def proto(self) -> Any:
        helper, kinds, model = self.onnx.helper, self.onnx.TensorProto, self.model
        x = self.prepared()
        f = self.node("Add", self.sums(x), self.constant(model.b), output="f")
        columns = len(model.b)
        outputs = []
        if model.is_regression:
            shape = self.constant([-1], np.int64)
            self.node("Reshape", f, shape, output="prediction")
            outputs.append(helper.make_tensor_value_info("prediction", kinds.DOUBLE, ["rows"]))
        else:
            integers = all(isinstance(v, int) and abs(v) < 2**63 for v in model.values)
            values = np.array(model.values if integers else list(map(str, model.values)))
            labels = self.constant(values, np.int64 if integers else object)
            self.node("Gather", labels, self.classes(f, columns), axis=0, output="label")
            kind = kinds.INT64 if integers else kinds.STRING
            outputs.append(helper.make_tensor_value_info("label", kind, ["rows"]))
        outputs.append(helper.make_tensor_value_info("f", kinds.DOUBLE, ["rows", columns]))
        if model.has_probabilities and not model.is_regression:
            self.probabilities(f, columns)
            shape_of_p = ["rows", len(model.labels)]
            outputs.append(helper.make_tensor_value_info("probabilities", kinds.DOUBLE, shape_of_p))
        rows = helper.make_tensor_value_info("X", kinds.DOUBLE, ["rows", self.inputs])
        graph = helper.make_graph(self.nodes, "randsvm", [rows], outputs, self.constants)
        made = helper.make_model(
            graph,
            producer_name="randsvm",
            producer_version=__version__,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
        )
        if model.columns is not None:
            names = json.dumps(model.columns.feature_names[: self.inputs])
            helper.set_model_props(made, {"feature_names": names})
        self.onnx.checker.check_model(made)
        return made

    def prepared(self) -> str:
        """Return rows after rounding and scaling, over all inputs."""
        model, scaling = self.model, self.model.scaling
        x = self.rounded("X")
        if scaling is None or model.seen is None:
            return x
        seen = model.seen.indices(MAX_FEATURES).astype(np.int64) - model.index_base
        factor, shift = np.zeros(self.inputs), np.zeros(self.inputs)
        factor[seen] = 1.0 if scaling.factor is None else scaling.factor
        if scaling.shift is not None:
            shift[seen] = scaling.shift
            x = self.node("Sub", x, self.constant(shift))
        x = self.node("Mul", x, self.constant(factor))
        if scaling.factor is None:
            norms = self.node("Sqrt", self.squares(x))
            positive = self.node("Greater", norms, self.constant(0.0))
            x = self.node("Div", x, self.node("Where", positive, norms, self.constant(1.0)))
        limits = (self.constant(sign * MAX_FLOAT) for sign in (-1, 1))
        return self.rounded(self.node("Clip", x, *limits))

    def sums(self, x: str) -> str:
        """Return f without its offsets."""
        model = self.model
        positions = model.features.astype(np.int64) - model.index_base
        v = self.node("Gather", x, self.constant(positions, np.int64), axis=1)
        if isinstance(model, KernelModel):
            K = self.kernel(model, x, v)
            return self.node("MatMul", K, self.constant(model.coefficients))
        assert isinstance(model, LinearModel)
        z = v if model.mapping is None else self.random_features(model, v)
        return self.node("MatMul", z, self.constant(model.w))

    def kernel(self, model: KernelModel, x: str, v: str) -> str:
        """Return kernel values, (rows, support vectors). x : over all inputs; v : of the model."""
        kernel = model.kernel
        Z = model.Z.toarray().astype(np.float64)
        if kernel.name == "rbf":
            products = self.node("MatMul", v, self.constant(2 * kernel.gamma * Z.T))
            own = self.node("Mul", self.squares(x), self.constant(kernel.gamma))
            norms = self.constant(kernel.gamma * np.square(Z).sum(axis=1))
            exponents = self.node("Sub", self.node("Sub", products, own), norms)
            return self.node("Exp", self.node("Min", exponents, self.constant(0.0)))
        products = self.node("MatMul", v, self.constant(Z.T))
        if kernel.name in ("poly", "sigmoid"):
            products = self.node("Mul", products, self.constant(kernel.gamma))
            products = self.node("Add", products, self.constant(kernel.coef0))
        if kernel.name == "poly":
            return self.node("Pow", products, self.constant(kernel.degree))
        if kernel.name == "sigmoid":
            return self.node("Tanh", products)
        if kernel.name == "linear":
            return products
        raise ModelError(f"the kernel {kernel.name} has no ONNX graph")

    def random_features(self, model: LinearModel, v: str) -> str:
        mapping = model.mapping
        assert mapping is not None
        if mapping.kernel == "rbf":
            W, phases, scale = model.map_tables
            turns = self.node("MatMul", v, self.constant(W))
            turns = self.node("Add", turns, self.constant(phases))
            return self.node("Mul", self.node("Cos", turns), self.constant(scale))
        signs, degrees, scales, length = model.map_tables
        first = np.cumsum(degrees) - degrees
        z = self.constant(scales)
        for factor in range(int(degrees.max(initial=0))):
            has = degrees > factor
            # Components of a lower degree are multiplied by 1.
            W = np.zeros((len(model.features), len(degrees)))
            W[:, has] = float(length) * signs[first[has] + factor].T
            values = self.node("MatMul", v, self.constant(W))
            z = self.node("Mul", z, self.node("Add", values, self.constant(~has)))
        parts = [z]
        if mapping.low_degree_factors[0] > 0:
            zeros = self.node("MatMul", v, self.constant(np.zeros((len(model.features), 1))))
            parts.append(self.node("Add", zeros, self.constant(mapping.low_degree_factors[0])))
        if mapping.low_degree_factors[1] > 0:
            parts.append(self.node("Mul", v, self.constant(mapping.low_degree_factors[1])))
        return self.node("Concat", *parts, axis=1) if len(parts) > 1 else z

    def classes(self, f: str, columns: int) -> str:
        """Return class indices by the rule of the model, (rows,) int64."""
        model = self.model
        wins = self.cast(self.node("Greater", f, self.constant(0.0)), "DOUBLE")
        if isinstance(model, PairwiseModel):
            first, second = decisions.class_pairs(len(model.labels))
            one_hot = np.eye(len(model.labels))
            # A lost pair is a vote for its second class.
            change = self.constant(one_hot[first] - one_hot[second])
            votes = self.node("MatMul", wins, change)
            votes = self.node("Add", votes, self.constant(one_hot[second].sum(axis=0)))
            return self.node("ArgMax", votes, axis=1, keepdims=0)
        if columns > 1:
            return self.node("ArgMax", f, axis=1, keepdims=0)
        lost = self.node("Sub", self.constant(1.0), wins)
        return self.node("Reshape", self.cast(lost, "INT64"), self.constant([-1], np.int64))

    # ---- probabilities ----

    def probabilities(self, f: str, columns: int) -> None:
        """Add the probability of each class."""
        model = self.model
        marks = model.density_marks if isinstance(model, KernelModel) else None
        if marks is not None:
            self.with_complement(self.novelty_probability(f, marks))
            return
        sigmoid = model.sigmoid_in_use
        assert sigmoid is not None, "has_probabilities comes first"
        half = self.node("Mul", f, self.constant(sigmoid[0] / 2))
        half = self.node("Add", half, self.constant(sigmoid[1] / 2))
        change = self.node("Mul", self.node("Tanh", half), self.constant(0.5))
        p = self.node("Sub", self.constant(0.5), change)
        least = decisions.MIN_PROBABILITY
        p = self.node("Clip", p, self.constant(least), self.constant(1 - least))
        if self.is_pairwise:
            self.coupled(p)
        elif columns == 1:
            self.with_complement(p)
        else:
            ones = self.constant(np.ones((columns, 1)))
            self.node("Div", p, self.node("MatMul", p, ones), output="probabilities")

    @property
    def is_pairwise(self) -> bool:
        return isinstance(self.model, PairwiseModel)

    def with_complement(self, p: str) -> None:
        """Add the probabilities p and 1 - p. p : (rows, 1)"""
        other = self.node("Sub", self.constant(1.0), p)
        self.node("Concat", p, other, axis=1, output="probabilities")

    def novelty_probability(self, f: str, marks: np.ndarray) -> str:
        """Return the first column of `decisions.novelty_probabilities`, (rows, 1)."""
        reached = self.node("Not", self.node("Less", f, self.constant(marks)))
        count = self.node(
            "MatMul", self.cast(reached, "DOUBLE"), self.constant([[1.0]] * len(marks))
        )
        p = self.node("Div", count, self.constant(float(len(marks))))
        for operator, mark, value in (
            ("Less", marks[0], 0.001),
            ("Greater", marks[-1], 0.999),
            ("Equal", marks[-1], 0.0),
        ):
            is_there = self.node(operator, f, self.constant(mark))
            p = self.node("Where", is_there, self.constant(value), p)
        return p

    def coupled(self, pairwise: str) -> None:
        """Add `decisions.coupled_probabilities`, an iteration in a loop over all rows."""
        classes = len(self.model.labels)
        i, j = decisions.class_pairs(classes)
        place = np.zeros((len(i), classes, classes))
        place[np.arange(len(i)), i, j] = 1
        place[np.arange(len(i)), j, i] = -1
        below: np.ndarray = np.zeros((classes, classes))
        below[j, i] = 1
        flat = self.node("MatMul", pairwise, self.constant(place.reshape(len(i), -1)))
        flat = self.node("Add", flat, self.constant(below.ravel()))
        r = self.node("Reshape", flat, self.constant([-1, classes, classes], np.int64))
        products = self.node("Mul", r, self.node("Transpose", r, perm=[0, 2, 1]))
        squares = self.node("ReduceSumSquare", r, axes=[1], keepdims=1)
        # The diagonals of r and of the products are 0.
        on_diagonal = self.node("Mul", squares, self.constant(np.eye(classes)))
        Q = self.node("Sub", on_diagonal, products)
        rows_of_Q = [
            self.node("Gather", Q, self.constant(t, np.int64), axis=1) for t in range(classes)
        ]
        zeros = self.node("MatMul", pairwise, self.constant(np.zeros((len(i), classes))))
        start = self.node("Add", zeros, self.constant(1 / classes))
        steps = self.constant(max(decisions.MAX_COUPLING_STEPS, classes), np.int64)
        body = self.coupling_step(Q, rows_of_Q, classes)
        yes = self.constant(True, np.bool_)
        self.node("Loop", steps, yes, start, body=body, output="probabilities")

    def coupling_step(self, Q: str, rows_of_Q: list[str], classes: int) -> Any:
        """Return the graph of one step for the rows that have not converged.

        Q : (rows, classes, classes); rows_of_Q : (rows, classes) each
        """
        helper, kinds = self.onnx.helper, self.onnx.TensorProto
        outer, self.nodes = self.nodes, []
        old = p = "p"
        last, first = self.constant([2], np.int64), self.constant([1], np.int64)
        Qp = self.node("Mul", Q, self.node("Unsqueeze", p, first))
        Qp = self.node("ReduceSum", Qp, last, keepdims=0)
        pQp = self.node("ReduceSum", self.node("Mul", p, Qp), first, keepdims=1)
        distance = self.node("Abs", self.node("Sub", Qp, pQp))
        distance = self.node("ReduceMax", distance, axes=[1], keepdims=1)
        tolerance = self.constant(decisions.COUPLING_TOLERANCE / classes)
        is_far = self.node("Not", self.node("Less", distance, tolerance))
        for t, row in enumerate(rows_of_Q):
            column = self.constant([t], np.int64)
            Q_tt = self.node("Gather", row, column, axis=1)
            Qp_t = self.node("Gather", Qp, column, axis=1)
            change = self.node("Div", self.node("Sub", pQp, Qp_t), Q_tt)
            total = self.node("Add", self.constant(1.0), change)
            unit = self.constant(np.eye(classes)[t])
            p = self.node("Div", self.node("Add", p, self.node("Mul", change, unit)), total)
            more = self.node("Add", self.node("Mul", change, Q_tt), self.node("Add", Qp_t, Qp_t))
            pQp = self.node("Add", pQp, self.node("Mul", change, more))
            pQp = self.node("Div", pQp, self.node("Mul", total, total))
            Qp = self.node("Div", self.node("Add", Qp, self.node("Mul", change, row)), total)
        self.node("Where", is_far, p, old, output="next_p")
        some = self.node("ReduceMax", self.cast(is_far, "INT32"), keepdims=0)
        self.cast(some, "BOOL", output="next_step")
        nodes, self.nodes = self.nodes, outer
        shape = ["rows", classes]
        inputs = [
            helper.make_tensor_value_info("step", kinds.INT64, []),
            helper.make_tensor_value_info("has_step", kinds.BOOL, []),
            helper.make_tensor_value_info("p", kinds.DOUBLE, shape),
        ]
        outputs = [
            helper.make_tensor_value_info("next_step", kinds.BOOL, []),
            helper.make_tensor_value_info("next_p", kinds.DOUBLE, shape),
        ]
        return helper.make_graph(nodes, "coupling_step", inputs, outputs)
