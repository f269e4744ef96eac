"""Write a model as an ONNX graph of the standard operators, in float64.

SVMClassifier, SVMRegressor and LinearClassifier of ONNX-ML hold their numbers as float32 and have
label rules of their own, so that labels near the boundary may contradict the model. Matrix
products, exp, tanh and cos in float64 give the decision values of the model, and its rule gives the
labels.

Input X: (rows, inputs) float64; column i is feature i + 1, or i of a zero-based model.
A model of a table has the names of its features as a JSON list in the metadata `feature_names`.
Outputs: label (rows,) int64 or string; f (rows, columns) float64; probabilities (rows, classes).
A regression has prediction (rows,) in place of label.

The nodes are written in ONNX's textual syntax. Names that no node defines are tables. Types are
numbers there: 1 is float, 6 int32, 7 int64, 9 bool, 11 double.
"""

from __future__ import annotations

import json
import re
from typing import Any, TypeAlias

import numpy as np

from randsvm import __version__
from randsvm.data.labels import label_values
from randsvm.data.scaling import LIFT, SHORT
from randsvm.errors import ModelError, ParameterError
from randsvm.models import decisions
from randsvm.models.model import Model
from randsvm.models.normal_form import NormalForm

# Versions that all runtimes of the last years read.
OPSET, IR_VERSION = 13, 7
# Protobuf has no messages of 2 GB; the rest is for nodes, names and small tables.
MAX_BYTES = 2**31 - 2**26
MAX_FLOAT = float(np.finfo(np.float32).max)

# Nodes, and the tables that they name.
Part: TypeAlias = tuple[str, dict[str, Any]]


def onnx_graph(
    model: Model, form: NormalForm, floats: bool = False, break_ties: bool = False
) -> Any:
    """Return the onnx.ModelProto of a model.

    floats : whether X is float32; break_ties : as in scikit-learn, whether sums of f decide between
    classes with equal votes. Raise ParameterError without the package onnx, and ModelError for a
    model whose graph would be too large.
    """
    _check_size(model, form)
    try:
        from onnx import checker, helper, numpy_helper, parser
    except ImportError as error:
        raise ParameterError(f"an export to ONNX needs onnx (pip install onnx): {error}") from error
    f, (output, prediction) = f"double[rows, {len(form.b)}] f", _prediction(model, break_ties)
    outputs, parts = [output, f], [_rows(form), _decisions(form), prediction]
    if model.has_class_probabilities:
        outputs.append(f"double[rows, {len(model.labels)}] probabilities")
        parts.append(_probabilities(model))
    X = f"{'float' if floats else 'double'}[rows, {form.inputs}] X"
    text = "".join(nodes for nodes, _ in parts)
    graph = parser.parse_graph(f"randsvm ({X}) => ({', '.join(outputs)}) {{ {text} }}")
    tables = {"zero": 0.0, "half": 0.5, "one": 1.0, "ones": np.ones((form.inputs, 1))}
    for _, own in parts:
        tables |= own
    used = set(re.findall(r"\w+", text))
    graph.initializer.extend(
        numpy_helper.from_array(np.array(tables[name]), name) for name in tables if name in used
    )
    made = helper.make_model(
        graph,
        producer_name="randsvm",
        producer_version=__version__,
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
    )
    if model.columns is not None:
        names = json.dumps(model.columns.feature_names[: form.inputs])
        helper.set_model_props(made, {"feature_names": names})
    checker.check_model(made)
    return made


def _check_size(model: Model, form: NormalForm) -> None:
    """Raise ModelError if the tables of a graph take more than MAX_BYTES."""
    terms, columns, K = len(form.c), len(form.b), len(model.labels)
    # Scaling, and coefficients.
    numbers = 3 * form.inputs + terms * columns
    if form.phi != "entry":
        signs = max(1, int(form.degree.max(initial=0))) if form.phi == "signs" else 1
        numbers += form.inputs * terms * signs
    if model.has_pairs:
        numbers += columns * K * (1 + K * model.has_class_probabilities)
    if 8 * numbers > MAX_BYTES:
        raise ModelError(
            f"expected a model whose ONNX graph has less than 2 GB, as the format allows, found "
            f"one of {8 * numbers / 1e9:.1f} GB: its tables are dense, those of an export to C "
            "are not"
        )


def add_to(made: Any, scope: Any, operator: Any, container: Any) -> None:
    """Add the nodes of a graph to one that skl2onnx makes, as the converter of an operator.

    made : onnx.ModelProto of `onnx_graph`; scope, operator, container : skl2onnx's
    """
    from onnx import compose, helper

    # Constants, because onnx.compose does not rename tables in the bodies of loops.
    for table in made.graph.initializer:
        made.graph.node.append(helper.make_node("Constant", [], [table.name], value=table))
    del made.graph.initializer[:]
    graph = compose.add_prefix(made, f"{operator.full_name}_").graph
    for node in graph.node:
        given = {one.name: helper.get_attribute_value(one) for one in node.attribute}
        names = list(node.input), list(node.output)
        container.add_node(node.op_type, *names, op_version=OPSET, **given)
    X, *outputs = operator.inputs[0].full_name, *(one.full_name for one in operator.outputs)
    own = [one.name for one in graph.output]
    for value, name in zip([X, *own], [graph.input[0].name, *outputs], strict=True):
        container.add_node("Identity", value, name, op_version=OPSET)


# ---- rows ----

READ = """
    stored = Cast <to = {stored_type}> (X)
    x = Cast <to = 11> (stored)
"""
SCALED = """
    moved = Sub (x, shift)
    scaled = Mul (moved, factor)
"""
OF_UNIT_LENGTH = """
    sizes = Abs (scaled)
    largest = ReduceMax <axes = [1], keepdims = 1> (sizes)
    is_short = Less (largest, short)
    by = Where (is_short, lift, one)
    lifted = Mul (scaled, by)
    scaled_squares = Mul (lifted, lifted)
    squared_length = MatMul (scaled_squares, ones)
    length = Sqrt (squared_length)
    has_length = Greater (length, zero)
    divisor = Where (has_length, length, one)
    divided = Div (lifted, divisor)
"""
STORED = """
    limited = Clip (divided, least, most)
    stored_scaled = Cast <to = {stored_type}> (limited)
    v = Cast <to = 11> (stored_scaled)
"""


def _rows(form: NormalForm) -> Part:
    """Return v, the rows after rounding and scaling."""
    nodes = "v = Identity (x)"
    if form.factor is not None:
        divided = OF_UNIT_LENGTH if form.unit else "divided = Identity (scaled)"
        nodes = SCALED + divided + STORED
    tables = {"shift": form.shift, "factor": form.factor, "least": -MAX_FLOAT, "most": MAX_FLOAT}
    tables |= {"short": SHORT, "lift": LIFT}
    return (READ + nodes).format(stored_type=1 if form.single else 11), tables


# ---- f = b + sum_j c_j phi_j(v) ----

# Z has a column gamma z_j for each term.
PHI = {
    "entry": "phi = Identity (v)",
    "rbf": """
        products = MatMul (v, Z)
        twice = Add (products, products)
        squares = Mul (v, v)
        norms = MatMul (squares, ones)
        own = Mul (norms, gamma)
        difference = Sub (twice, own)
        exponents = Sub (difference, norms_of_Z)
        negative = Min (exponents, zero)
        phi = Exp (negative)
    """,
    "power": "products = MatMul (v, Z) sums = Add (products, offset) phi = Pow (sums, degree)",
    "tanh": "products = MatMul (v, Z) sums = Add (products, offset) phi = Tanh (sums)",
    "cos": "products = MatMul (v, Z) sums = Add (products, offset) phi = Cos (sums)",
}
# Terms of a lower degree are multiplied by 1.
FACTOR_OF_SIGNS = """
    sums{t} = MatMul (v, signs{t})
    factors{t} = Add (sums{t}, is_complete{t})
    phi{next} = Mul (phi{t}, factors{t})
"""


def _decisions(form: NormalForm) -> Part:
    """Return f, from phi, the values of all phi_j, (rows, terms)."""
    nodes, tables = _products_of_signs(form) if form.phi == "signs" else (PHI[form.phi], {})
    tables |= {"c": form.dense_coefficients(), "b": form.b}
    if form.phi not in ("entry", "signs"):
        Z = form.Z.toarray().astype(np.float64)
        norms = np.square(Z).sum(axis=1)
        tables |= {"Z": form.gamma * Z.T, "norms_of_Z": form.gamma * norms}
        tables |= {
            "offset": form.offset.astype(np.float64),
            "gamma": form.gamma,
            "degree": form.degree,
        }
    return f"{nodes} terms = MatMul (phi, c) f = Add (terms, b)", tables


def _products_of_signs(form: NormalForm) -> Part:
    degree, first = form.degree, np.cumsum(form.degree) - form.degree
    # A matrix of 0 gives the terms of degree 0.
    count = max(1, int(degree.max(initial=0)))
    nodes, tables = "phi0 = Identity (one)", dict[str, Any]()
    for t in range(count):
        has = degree > t
        signs = np.zeros((form.inputs, len(degree)))
        signs[:, has] = form.Z[first[has] + t].T
        nodes += FACTOR_OF_SIGNS.format(t=t, next=t + 1)
        tables |= {f"signs{t}": signs, f"is_complete{t}": (~has).astype(np.float64)}
    return f"{nodes} phi = Identity (phi{count})", tables


# ---- labels ----

# A lost pair is a vote for its second class. Two classes are one pair.
BY_VOTES = """
    is_won = Greater (f, zero)
    won = Cast <to = 11> (is_won)
    moved_votes = MatMul (won, votes_of_pairs)
    votes = Add (moved_votes, votes_if_all_are_lost)
"""
# scikit-learn adds to the votes of a class less than 1/3, by the sum of f in its favour.
BROKEN_TIES = """
    sums_of_f = MatMul (f, votes_of_pairs)
    size_of_sums = Abs (sums_of_f)
    moved_size = Add (size_of_sums, one)
    divisor_of_sums = Mul (moved_size, three)
    parts_of_votes = Div (sums_of_f, divisor_of_sums)
    votes_without_ties = Add (votes, parts_of_votes)
"""


def _prediction(model: Model, break_ties: bool) -> tuple[str, Part]:
    """Return the output label or prediction, and its part."""
    if model.is_regression:
        return "double[rows] prediction", ("prediction = Reshape (f, flat)", {"flat": [-1]})
    values = label_values(model.labels)
    is_int64 = all(isinstance(v, int) and abs(v) < 2**63 for v in values)
    labels = np.array(values, np.int64) if is_int64 else np.array(list(map(str, values)), object)
    nodes, scores, tables = "", "f", {"labels": labels, "three": 3.0}
    if model.has_pairs or len(model.b) == 1:
        nodes, scores, one_hot = BY_VOTES, "votes", np.eye(len(model.labels))
        if break_ties:
            nodes, scores = BY_VOTES + BROKEN_TIES, "votes_without_ties"
        first, second = decisions.class_pairs(len(model.labels))
        tables["votes_of_pairs"] = one_hot[first] - one_hot[second]
        tables["votes_if_all_are_lost"] = one_hot[second].sum(axis=0)
    kind = "int64" if is_int64 else "string"
    nodes += f"class = ArgMax <axis = 1, keepdims = 0> ({scores}) label = Gather (labels, class)"
    return f"{kind}[rows] label", (nodes, tables)


# ---- probabilities ----

# The first column of `decisions.novelty_probabilities`.
OF_NOVELTIES = """
    is_below = Less (f, marks)
    is_reached = Not (is_below)
    reached = Cast <to = 11> (is_reached)
    share = MatMul (reached, shares)
    is_least = Less (f, first_mark)
    p1 = Where (is_least, few, share)
    is_most = Greater (f, last_mark)
    p2 = Where (is_most, nearly_all, p1)
    is_last = Equal (f, last_mark)
    p = Where (is_last, zero, p2)
"""
SIGMOIDS = """
    product = Mul (f, half_A)
    argument = Add (product, half_B)
    tanh = Tanh (argument)
    half_tanh = Mul (tanh, half)
    unlimited = Sub (half, half_tanh)
    p = Clip (unlimited, least_p, most_p)
"""
WITH_COMPLEMENT = """
    complement = Sub (one, p)
    probabilities = Concat <axis = 1> (p, complement)
"""
SHARES = """
    total = MatMul (p, ones_of_classes)
    probabilities = Div (p, total)
"""
# `decisions.coupled_probabilities`, an iteration over all rows and in it one over the classes t. r
# and Q have the shape (rows, K, K). The diagonals of r and of its products are 0.
COUPLED = """
    placed = MatMul (p, places)
    flat_r = Add (placed, below)
    r = Reshape (flat_r, shape_of_r)
    transposed = Transpose <perm = [0, 2, 1]> (r)
    products_of_r = Mul (r, transposed)
    squares_of_r = ReduceSumSquare <axes = [1], keepdims = 1> (r)
    diagonal = Mul (squares_of_r, eye)
    Q = Sub (diagonal, products_of_r)
    zeros = MatMul (p, no_places)
    start = Add (zeros, equal_share)
    probabilities = Loop <body = step (
        int64 number, bool is_on, double[rows, {K}] p0
    ) => (bool is_any_far, double[rows, {K}] p_of_far_rows) {{
        column_p = Unsqueeze (p0, axis1)
        products_of_Q = Mul (Q, column_p)
        Qp0 = ReduceSum <keepdims = 0> (products_of_Q, axis2)
        products_of_p = Mul (p0, Qp0)
        pQp0 = ReduceSum <keepdims = 1> (products_of_p, axis1)
        errors = Sub (Qp0, pQp0)
        absolute_errors = Abs (errors)
        error = ReduceMax <axes = [1], keepdims = 1> (absolute_errors)
        is_near = Less (error, tolerance)
        is_far = Not (is_near)
        number_is_far = Cast <to = 6> (is_far)
        number_is_any_far = ReduceMax <keepdims = 0> (number_is_far)
        is_any_far = Cast <to = 9> (number_is_any_far)
        p1, Qp1, pQp1 = Loop <body = step_of_class (
            int64 t, bool is_next, double[rows, {K}] pt, double[rows, {K}] Qp, double[rows, 1] pQp
        ) => (
            bool has_next, double[rows, {K}] new_p, double[rows, {K}] new_Qp,
            double[rows, 1] new_pQp
        ) {{
            has_next = Identity (is_next)
            Q_t = Gather <axis = 1> (Q, t)
            unit_t = Gather (eye, t)
            column_t = Unsqueeze (t, axis0)
            Q_tt = Gather <axis = 1> (Q_t, column_t)
            Qp_t = Gather <axis = 1> (Qp, column_t)
            error_t = Sub (pQp, Qp_t)
            change = Div (error_t, Q_tt)
            sum = Add (one, change)
            change_of_p = Mul (change, unit_t)
            moved_p = Add (pt, change_of_p)
            new_p = Div (moved_p, sum)
            change_of_Qp = Mul (change, Q_t)
            moved_Qp = Add (Qp, change_of_Qp)
            new_Qp = Div (moved_Qp, sum)
            change_of_Qp_t = Mul (change, Q_tt)
            slope = Sum (change_of_Qp_t, Qp_t, Qp_t)
            change_of_pQp = Mul (change, slope)
            moved_pQp = Add (pQp, change_of_pQp)
            square = Mul (sum, sum)
            new_pQp = Div (moved_pQp, square)
        }}> (classes, yes, p0, Qp0, pQp0)
        p_of_far_rows = Where (is_far, p1, p0)
    }}> (steps, yes, start)
"""


def _probabilities(model: Model) -> Part:
    """Return the probability of each class."""
    marks, sigmoid, K = model.density_marks, model.sigmoid, len(model.labels)
    if marks is not None:
        tables = {"marks": marks, "first_mark": marks[0], "last_mark": marks[-1]}
        tables |= {
            "shares": np.full((len(marks), 1), 1 / len(marks)),
            "few": 0.001,
            "nearly_all": 0.999,
        }
        return OF_NOVELTIES + WITH_COMPLEMENT, tables
    assert sigmoid is not None, "has_class_probabilities comes first"
    least = decisions.MIN_PROBABILITY
    tables = {"half_A": sigmoid[0] / 2, "half_B": sigmoid[1] / 2, "least_p": least}
    tables |= {"most_p": 1 - least, "ones_of_classes": np.ones((K, 1))}
    if not model.has_pairs:
        return SIGMOIDS + (WITH_COMPLEMENT if len(model.b) == 1 else SHARES), tables
    i, j = decisions.class_pairs(K)
    pairs, places = np.arange(len(i)), np.zeros((len(i), K, K))
    places[pairs, i, j], places[pairs, j, i] = 1, -1
    return SIGMOIDS + COUPLED.format(K=K), tables | {
        "places": places.reshape(len(i), -1),
        "no_places": np.zeros((len(i), K)),
        "below": np.tri(K, k=-1).ravel(),
        "shape_of_r": [-1, K, K],
        "eye": np.eye(K),
        "equal_share": 1 / K,
        "axis0": [0],
        "axis1": [1],
        "axis2": [2],
        "tolerance": decisions.COUPLING_TOLERANCE / K,
        "classes": K,
        "steps": max(decisions.MAX_COUPLING_STEPS, K),
        "yes": True,
    }
