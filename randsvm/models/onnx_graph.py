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
from randsvm.data.labels import label_values
from randsvm.errors import ParameterError
from randsvm.models import decisions
from randsvm.models.kernel_model import PairwiseModel
from randsvm.models.model import Model
from randsvm.models.normal_form import NormalForm

# Versions that all runtimes of the last years read.
OPSET, IR_VERSION = 13, 7
MAX_FLOAT = float(np.finfo(np.float32).max)


def onnx_graph(model: Model, form: NormalForm, floats: bool = False) -> Any:
    """Return the onnx.ModelProto of a model.

    floats : whether X is float32. Raise ParameterError without the package onnx.
    """
    try:
        import onnx
    except ImportError as error:
        raise ParameterError(
            f"an export to ONNX needs onnx (pip install 'randsvm[onnx]'): {error}"
        ) from error
    return _Graph(model, form, onnx).proto(floats)


def add_to(made: Any, scope: Any, operator: Any, container: Any) -> None:
    """Add the nodes of a graph to one that skl2onnx makes, as the converter of an operator.

    made : onnx.ModelProto of `onnx_graph`; scope, operator, container : skl2onnx's
    """
    from onnx import TensorProto, helper

    graph = made.graph
    names = {"X": operator.inputs[0].full_name}
    own = zip(graph.output, operator.outputs, strict=True)
    names |= {output.name: variable.full_name for output, variable in own}
    for constant in graph.initializer:
        names[constant.name] = scope.get_unique_variable_name(constant.name)
        renamed = TensorProto()
        renamed.CopyFrom(constant)
        renamed.name = names[constant.name]
        container.initializers.append(renamed)
    for node in graph.node:
        for name in node.output:
            names.setdefault(name, scope.get_unique_variable_name(name))
        given = {one.name: helper.get_attribute_value(one) for one in node.attribute}
        inputs, outputs = ([names[name] for name in own] for own in (node.input, node.output))
        container.add_node(node.op_type, inputs, outputs, op_version=OPSET, **given)


class _Graph:
    """Adds nodes for a model."""

    def __init__(self, model: Model, form: NormalForm, onnx: Any) -> None:
        self.model, self.form, self.onnx = model, form, onnx
        self.nodes: list[Any] = []
        self.node_count = 0
        self.constants: list[Any] = []

    def constant(self, value: Any, dtype: Any = np.float64) -> str:
        """Add a constant and return its name."""
        name = f"constant{len(self.constants)}"
        array = np.array(value, dtype)
        self.constants.append(self.onnx.numpy_helper.from_array(array, name))
        return name

    def node(self, operator: str, *inputs: Any, output: str | None = None, **given: Any) -> str:
        """Add a node and return the name of its output. Arrays and numbers become constants."""
        self.node_count += 1
        name = output or f"node{self.node_count}"
        names = [one if isinstance(one, str) else self.constant(one) for one in inputs]
        self.nodes.append(self.onnx.helper.make_node(operator, names, [name], **given))
        return name

    def cast(self, value: str, kind: str, output: str | None = None) -> str:
        return self.node("Cast", value, to=getattr(self.onnx.TensorProto, kind), output=output)

    def rounded(self, value: str) -> str:
        """Return values as the model stores them: rounded to float32 unless it is float64."""
        return self.cast(self.cast(value, "FLOAT"), "DOUBLE") if self.form.single else value

    def squares(self, value: str) -> str:
        # A sum over columns has its columns as an attribute or as an input, by the version of ONNX.
        return self.node("MatMul", self.node("Mul", value, value), np.ones((self.form.inputs, 1)))

    # ---- the parts ----

    def proto(self, floats: bool) -> Any:
        helper, kinds, model = self.onnx.helper, self.onnx.TensorProto, self.model
        f, columns = self.decisions("X"), len(model.b)
        outputs = []
        if model.is_regression:
            self.node("Reshape", f, self.constant([-1], np.int64), output="prediction")
            outputs.append(helper.make_tensor_value_info("prediction", kinds.DOUBLE, ["rows"]))
        else:
            values = label_values(model.labels)
            integers = all(isinstance(v, int) and abs(v) < 2**63 for v in values)
            values = values if integers else tuple(map(str, values))
            labels = self.constant(values, np.int64 if integers else object)
            self.node("Gather", labels, self.classes(f, columns), axis=0, output="label")
            kind = kinds.INT64 if integers else kinds.STRING
            outputs.append(helper.make_tensor_value_info("label", kind, ["rows"]))
        outputs.append(helper.make_tensor_value_info("f", kinds.DOUBLE, ["rows", columns]))
        if model.has_class_probabilities:
            self.probabilities(f, columns)
            shape_of_p = ["rows", len(model.labels)]
            outputs.append(helper.make_tensor_value_info("probabilities", kinds.DOUBLE, shape_of_p))
        kind = kinds.FLOAT if floats else kinds.DOUBLE
        rows = helper.make_tensor_value_info("X", kind, ["rows", self.form.inputs])
        graph = helper.make_graph(self.nodes, "randsvm", [rows], outputs, self.constants)
        made = helper.make_model(
            graph,
            producer_name="randsvm",
            producer_version=__version__,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
        )
        if model.columns is not None:
            names = json.dumps(model.columns.feature_names[: self.form.inputs])
            helper.set_model_props(made, {"feature_names": names})
        self.onnx.checker.check_model(made)
        return made

    def decisions(self, x: str) -> str:
        """Return f = b + v L + sum_j c_j phi_j(v)."""
        form, v = self.form, self.prepared(self.cast(x, "DOUBLE"))
        parts = []
        if form.L.any() or form.phi is None:
            parts.append(self.node("MatMul", v, form.L))
        if form.phi is not None:
            parts.append(self.node("MatMul", self.phi(v), form.dense_coefficients()))
        f = self.node("Sum", *parts)
        return self.node("Add", f, form.b, output="f")

    def prepared(self, x: str) -> str:
        """Return rows after rounding and scaling."""
        form, x = self.form, self.rounded(x)
        if form.factor is None:
            return x
        x = self.node("Mul", self.node("Sub", x, form.shift), form.factor)
        if form.unit:
            norms = self.node("Sqrt", self.squares(x))
            positive = self.node("Greater", norms, 0.0)
            x = self.node("Div", x, self.node("Where", positive, norms, 1.0))
        return self.rounded(self.node("Clip", x, -MAX_FLOAT, MAX_FLOAT))

    def phi(self, v: str) -> str:
        """Return the values of all phi_j, (rows, terms)."""
        form = self.form
        if form.phi == "signs":
            return self.products_of_signs(v)
        Z = form.Z.toarray().astype(np.float64)
        products = self.node("MatMul", v, form.gamma * Z.T)
        if form.phi == "rbf":
            own = self.node("Mul", self.squares(v), form.gamma)
            norms = form.gamma * np.square(Z).sum(axis=1)
            twice = self.node("Add", products, products)
            exponents = self.node("Sub", self.node("Sub", twice, own), norms)
            return self.node("Exp", self.node("Min", exponents, 0.0))
        products = self.node("Add", products, form.offset)
        if form.phi == "power":
            return self.node("Pow", products, form.degree)
        return self.node("Tanh" if form.phi == "tanh" else "Cos", products)

    def products_of_signs(self, v: str) -> str:
        degree, signs = self.form.degree, self.form.Z
        first = np.cumsum(degree) - degree
        z = ""
        # Terms of a lower degree are multiplied by 1. A matrix of 0 gives the terms of degree 0.
        for factor in range(max(1, int(degree.max(initial=0)))):
            has = degree > factor
            W = np.zeros((self.form.inputs, len(degree)))
            W[:, has] = signs[first[has] + factor].T
            values = self.node("Add", self.node("MatMul", v, W), ~has)
            z = self.node("Mul", z, values) if z else values
        return z

    def classes(self, f: str, columns: int) -> str:
        """Return class indices by the rule of the model, (rows,) int64."""
        model = self.model
        wins = self.cast(self.node("Greater", f, 0.0), "DOUBLE")
        if isinstance(model, PairwiseModel):
            first, second = decisions.class_pairs(len(model.labels))
            one_hot = np.eye(len(model.labels))
            # A lost pair is a vote for its second class.
            votes = self.node("MatMul", wins, one_hot[first] - one_hot[second])
            votes = self.node("Add", votes, one_hot[second].sum(axis=0))
            return self.node("ArgMax", votes, axis=1, keepdims=0)
        if columns > 1:
            return self.node("ArgMax", f, axis=1, keepdims=0)
        lost = self.node("Sub", 1.0, wins)
        return self.node("Reshape", self.cast(lost, "INT64"), self.constant([-1], np.int64))

    # ---- probabilities ----

    def probabilities(self, f: str, columns: int) -> None:
        """Add the probability of each class."""
        model = self.model
        if model.density_marks is not None:
            self.with_complement(self.novelty_probability(f, model.density_marks))
            return
        sigmoid = model.sigmoid
        assert sigmoid is not None, "has_probabilities comes first"
        half = self.node("Mul", f, sigmoid[0] / 2)
        half = self.node("Add", half, sigmoid[1] / 2)
        change = self.node("Mul", self.node("Tanh", half), 0.5)
        p = self.node("Sub", 0.5, change)
        least = decisions.MIN_PROBABILITY
        p = self.node("Clip", p, least, 1 - least)
        if isinstance(model, PairwiseModel):
            self.coupled(p)
        elif columns == 1:
            self.with_complement(p)
        else:
            ones = np.ones((columns, 1))
            self.node("Div", p, self.node("MatMul", p, ones), output="probabilities")

    def with_complement(self, p: str) -> None:
        """Add the probabilities p and 1 - p. p : (rows, 1)"""
        other = self.node("Sub", 1.0, p)
        self.node("Concat", p, other, axis=1, output="probabilities")

    def novelty_probability(self, f: str, marks: np.ndarray) -> str:
        """Return the first column of `decisions.novelty_probabilities`, (rows, 1)."""
        reached = self.node("Not", self.node("Less", f, marks))
        count = self.node("MatMul", self.cast(reached, "DOUBLE"), [[1.0]] * len(marks))
        p = self.node("Div", count, float(len(marks)))
        for operator, mark, value in (
            ("Less", marks[0], 0.001),
            ("Greater", marks[-1], 0.999),
            ("Equal", marks[-1], 0.0),
        ):
            is_there = self.node(operator, f, mark)
            p = self.node("Where", is_there, value, p)
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
        flat = self.node("MatMul", pairwise, place.reshape(len(i), -1))
        flat = self.node("Add", flat, below.ravel())
        r = self.node("Reshape", flat, self.constant([-1, classes, classes], np.int64))
        products = self.node("Mul", r, self.node("Transpose", r, perm=[0, 2, 1]))
        squares = self.node("ReduceSumSquare", r, axes=[1], keepdims=1)
        # The diagonals of r and of the products are 0.
        on_diagonal = self.node("Mul", squares, np.eye(classes))
        Q = self.node("Sub", on_diagonal, products)
        rows_of_Q = [
            self.node("Gather", Q, self.constant(t, np.int64), axis=1) for t in range(classes)
        ]
        zeros = self.node("MatMul", pairwise, np.zeros((len(i), classes)))
        start = self.node("Add", zeros, 1 / classes)
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
        tolerance = decisions.COUPLING_TOLERANCE / classes
        is_far = self.node("Not", self.node("Less", distance, tolerance))
        for t, row in enumerate(rows_of_Q):
            column = self.constant([t], np.int64)
            Q_tt = self.node("Gather", row, column, axis=1)
            Qp_t = self.node("Gather", Qp, column, axis=1)
            change = self.node("Div", self.node("Sub", pQp, Qp_t), Q_tt)
            total = self.node("Add", 1.0, change)
            unit = np.eye(classes)[t]
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
