"""Calls of LIBSVM: rows or kernel values in, coefficients out. No other module imports libsvm.

The calls go to the C library that the libsvm-official bindings load. This module knows only the
problems that LIBSVM itself has.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

import randsvm.svm._solver as _solver
from randsvm.arrays import squared_norms
from randsvm.data.points import Points
from randsvm.errors import ParameterError, RandsvmError
from randsvm.kernels.kernel import Kernel
from randsvm.parallel import run_in_daemon_thread
from randsvm.parameters.option import MEGABYTE
from randsvm.parameters.svm import COSTS, KERNEL_NAMES, TASKS_WITHOUT_COST, Problem

# LIBSVM's numbers.
C_SVC, ONE_CLASS, EPSILON_SVR = 0, 2, 3
SVM_TYPES = {"svc": C_SVC, "one-class": ONE_CLASS, "svr": EPSILON_SVR}
PRECOMPUTED = 4

# struct svm_node { int index; double value; }
NODE = np.dtype([("index", np.int32), ("value", np.float64)], align=True)
NODE_BYTES = NODE.itemsize
END_OF_ROW = -1
# Number of pseudo-rows after the rows of a Gram matrix: two for a linear term, and the slack rows
# of both labels, with their numbers.
EXTRA, SLACK_UP, SLACK_DOWN = 4, 2, 3
# LIBSVM's limit of iterations: MAX_ITERATIONS, or MAX_FOR_EACH times the variables if larger.
MAX_ITERATIONS = 10_000_000
MAX_FOR_EACH = 100

# Kernel values of the two pseudo-rows of the linear term with themselves and with each other. They
# make LIBSVM move both rows to their bound in its first steps and never select them again. The
# value is within float32 and far larger than all others.
PINNING_VALUE = -1e30
# Sums of kernel values up to this size are far smaller than those of the pseudo-rows.
MAX_SUM = -1e-6 * PINNING_VALUE

# The largest C that searches try. A larger C is the probable cause of a failure.
MAX_COMMON_COST = COSTS[-1]
# LIBSVM keeps kernel values as float32.
MAX_VALUE = float(np.finfo(np.float32).max)


class TrainedSvm(NamedTuple):
    """A machine as LIBSVM returns it.

    f of the pair (i, j) of LIBSVM's classes is the sum of coefficients[j - 1] over the support
    vectors of class i and of coefficients[i] over those of class j, less rho. Other tasks have one
    row of coefficients.

    labels: the classes in LIBSVM's order; empty for a regression and for one-class
    support : (count,) int64, the variables that are support vectors, class by class
    starts : (classes + 1,) where the support vectors of each class begin, and their end
    coefficients : (columns, count) float64
    rho : (pairs,) float64; infinite if all coefficients are bounded
    variables: the number of variables
    iterations: the number of iterations. ended: False if LIBSVM reached its limit of iterations.
    Both are of the last pair of classes.
    """

    labels: list[int]
    support: np.ndarray
    starts: list[int]
    coefficients: np.ndarray
    rho: np.ndarray
    variables: int
    iterations: int
    ended: bool

    @property
    def beta(self) -> np.ndarray:
        """Return the coefficient of each variable, (variables,) float64, of the only problem.

        That is alpha times the label, -1 or 1, of a C-SVC.
        """
        assert self.labels[:1] in ([], [1]), "LIBSVM puts +1 first for -1/+1"
        beta = np.zeros(self.variables)
        beta[self.support] = self.coefficients[0]
        return beta


# Memory of layouts that are no longer used, for the next ones: with new pages, ten classes of 7,500
# rows take 5 to 10% longer in two threads. At most SPARE_BYTES stay allocated.
_spare: list[np.ndarray] = []
SPARE_BYTES = 64 << 20


@dataclass
class PrecomputedNodes:
    """Kernel values of some variables, followed by EXTRA pseudo-rows, as a precomputed kernel.

    values : (pairs of rows, rows + 1, 2) float64. LIBSVM reads a node of 16 bytes for each value,
    but never the index in the first half of the node. So the nodes of two rows a and b interleave
    as a_0, b_0, a_1, b_1, ..., 8 bytes each: the first half of a node is the value of the other row
    before it. Node 0 of a row holds the number of the row, from 1.
    starts : (rows,) uint64, the address of the first node of each row. Several variables may share
    a row: LIBSVM identifies a variable by its place in the list of pointers.

    LIBSVM reads K(i, j) from row i and caches each row on its own, so the matrix need not be
    symmetric: the values of a pseudo-row with the variables are in its own row only, and its column
    is 0 in all other rows.
    """

    buffer: np.ndarray
    values: np.ndarray
    starts: np.ndarray

    def __del__(self) -> None:
        # An abandoned solve holds this object until it ends, so LIBSVM never reads reused memory.
        if sum(each.nbytes for each in list(_spare)) + self.buffer.nbytes <= SPARE_BYTES:
            _spare.append(self.buffer)

    @staticmethod
    def of(K: np.ndarray, index: np.ndarray) -> PrecomputedNodes:
        """Return the layout of K for variables in the order in which LIBSVM reads them.

        K : (m, m) float32; index : (variables,) integers, the row of K of each variable. LIBSVM is
        three to four times as fast if the rows that it reads first are adjacent, because 2,000 rows
        do not fit a processor's cache.
        """
        nodes = PrecomputedNodes._empty(len(index))
        _solver.lay_out(K, index.astype(np.int32), nodes.values)
        return nodes

    @staticmethod
    def of_moves(
        K: np.ndarray, rows: np.ndarray, factor: np.ndarray, group: np.ndarray, shift: np.ndarray
    ) -> PrecomputedNodes:
        """Return the layout of factor_k factor_l (K_ij - shift[group_l, k] - shift[group_k, l]),
        where i and j are the rows of k and l.

        K : (m, m) float32; rows, group : (variables,) integers; factor : (variables,) float64;
        shift : (1 or 2, variables) float64.
        """
        nodes = PrecomputedNodes._empty(len(rows))
        _solver.lay_out_moves(
            K, rows.astype(np.int32), factor, group.astype(np.float64), shift, nodes.values
        )
        return nodes

    @staticmethod
    def _empty(variables: int) -> PrecomputedNodes:
        """Return a layout with the numbers of all rows and no values of the variables."""
        rows = variables + EXTRA
        pairs = -(-rows // 2)
        size = 1 + pairs * (rows + 1) * 2
        try:
            buffer = _spare.pop()
        except IndexError:
            buffer = np.empty(0)
        if len(buffer) < size:
            # Most of the next layouts, of nearly as many rows, fit as well.
            buffer = np.empty(size + size // 8)
        values = buffer[1:size].reshape(pairs, rows + 1, 2)
        number = np.arange(rows)
        # A node begins 8 bytes before its value, the first one at the unused number buffer[0].
        starts = buffer.ctypes.data + (number // 2) * (rows + 1) * NODE_BYTES + (number % 2) * 8
        values[:, 0] = np.arange(1, 2 * pairs + 1).reshape(pairs, 2)
        values[:, 1 + variables :] = 0.0
        return PrecomputedNodes(buffer, values, starts.astype(np.uint64))

    def set_linear_term(self, w: np.ndarray) -> None:
        """Set the two pseudo-rows of the linear term so that their values with the variables sum to
        w, and those of the slack rows to 0.

        The first has w rounded to float32, as LIBSVM stores it, and the second the remainder. In a
        C-SVC the slack rows have a gradient of 0. w : (variables,) float64.
        """
        check_sums(float(np.abs(w).max()))
        first = w.astype(np.float32).astype(np.float64)
        zero = np.zeros(len(w) + EXTRA)
        pinned = [PINNING_VALUE, PINNING_VALUE]
        extra = (
            np.concatenate([first, pinned, [1.0, -1.0]]),
            np.concatenate([w - first, pinned, [0.0, 0.0]]),
            zero,
            zero,
        )
        for row, values in enumerate(extra, start=len(w)):
            self.values[row // 2, 1:, row % 2] = values


def check_sums(largest: float) -> None:
    """Raise ParameterError if sums of kernel values are too large for the pseudo-rows."""
    if not largest <= MAX_SUM:
        raise ParameterError(
            "sums of kernel values are beyond LIBSVM's float32: scale the features"
        )


@functools.cache
def _bindings() -> Any:
    """Return the bindings of the C library. Their import is slow, so the first solve does it."""
    from libsvm import svm

    return svm


@functools.cache
def _read_iterations() -> Any:
    """Return a print function for LIBSVM that reads the number of iterations."""
    return _bindings().PRINT_STRING_FUN(_solver.READ_ITERATIONS)


def _parameter(
    svm_type: int,
    variables: int,
    tolerance: float,
    weights: Mapping[int, float] | None = None,
    **fields: float,
) -> Any:
    """Return an svm_parameter; see `_solve`."""
    svm = _bindings()
    # The constructors of the bindings would change the print function of LIBSVM for all threads,
    # and loop over the rows in Python.
    parameter = svm.svm_parameter.__new__(svm.svm_parameter)
    given = {
        "svm_type": svm_type,
        "kernel_type": PRECOMPUTED,
        # The cache may hold all values; LIBSVM allocates it row by row.
        "cache_size": variables * (variables * 4 + 64) / MEGABYTE + 1,
        "eps": tolerance,
        "shrinking": 1,
        **fields,
    }
    for name, value in given.items():
        setattr(parameter, name, value)
    if weights:
        parameter.nr_weight = len(weights)
        parameter.weight_label = (ctypes.c_int * len(weights))(*weights)
        parameter.weight = (ctypes.c_double * len(weights))(*weights.values())
    return parameter


def _prepare_thread() -> None:
    """Prepare LIBSVM for solves in this thread."""
    svm = _bindings()
    # LIBSVM's loops over one kernel row are too short for OpenMP: when the other cores are busy,
    # its spinning threads cost a factor of 10.
    one_thread = getattr(svm.libsvm, "omp_set_num_threads", None)
    if one_thread is not None:
        one_thread(1)
    # The print function is global in LIBSVM; the default prints to stdout, among the results.
    svm.libsvm.svm_set_print_string_function(_read_iterations())


def _solve(
    svm_type: int,
    memory: object,
    pointers: np.ndarray,
    labels: np.ndarray,
    tolerance: float,
    weights: Mapping[int, float] | None = None,
    **fields: float,
) -> TrainedSvm:
    """Train in a daemon thread, so that a signal need not wait: ctypes releases the GIL.

    pointers : (variables,) uint64, addresses of rows in `memory`; labels : (variables,) float64. If
    this thread stops waiting, LIBSVM continues to read `memory`. weights: factors of C by the
    label. fields: others of svm_parameter.
    """
    svm, variables = _bindings(), len(labels)
    parameter = _parameter(svm_type, variables, tolerance, weights, **fields)
    labels = np.ascontiguousarray(labels, np.float64)
    problem = svm.svm_problem.__new__(svm.svm_problem)
    problem.l = variables
    problem.y = ctypes.cast(labels.ctypes.data, ctypes.POINTER(ctypes.c_double))
    node = ctypes.POINTER(ctypes.POINTER(svm.svm_node))
    problem.x = ctypes.cast(pointers.ctypes.data, node)

    def solve() -> TrainedSvm:
        _prepare_thread()
        complaint = svm.libsvm.svm_check_parameter(problem, parameter)
        if complaint:
            raise RandsvmError(f"LIBSVM refuses the subproblem: {complaint.decode()}")
        _solver.begin()
        handle = svm.libsvm.svm_train(problem, parameter)
        iterations = _solver.end()
        try:
            return _copied(handle.contents, variables, iterations)
        finally:
            svm.libsvm.svm_free_and_destroy_model(ctypes.pointer(handle))

    return run_in_daemon_thread(solve, "solving", (memory, pointers, labels))


def _copied(model: Any, variables: int, iterations: int) -> TrainedSvm:
    """Return a copy of LIBSVM's model."""
    classes = model.nr_class
    moving = 2 * variables if model.param.svm_type == EPSILON_SVR else variables

    def array(pointer: Any, dtype: type, count: int) -> np.ndarray:
        # np.ctypeslib.as_array would make a type for each length.
        size = count * np.dtype(dtype).itemsize
        return np.frombuffer(ctypes.string_at(pointer, size), dtype) if size else np.empty(0, dtype)

    columns = [array(model.sv_coef[k], np.float64, model.l) for k in range(classes - 1)]
    return TrainedSvm(
        labels=model.label[:classes] if model.label else [],
        support=array(model.sv_indices, np.int32, model.l).astype(np.int64) - 1,
        starts=np.cumsum([0, *(model.nSV[:classes] if model.label else [model.l])]).tolist(),
        coefficients=np.array(columns),
        rho=array(model.rho, np.float64, classes * (classes - 1) // 2),
        variables=variables,
        iterations=iterations,
        ended=iterations < max(MAX_ITERATIONS, MAX_FOR_EACH * moving),
    )


def c_svc(
    layout: PrecomputedNodes,
    rows: np.ndarray,
    labels: np.ndarray,
    bounds: Mapping[int, float],
    tolerance: float,
) -> TrainedSvm:
    """Solve min 1/2 a' Q a - sum a,  Q_ij = y_i y_j K_ij,  sum y_i a_i = 0, for each pair of the
    classes of some rows, starting at a = 0.

    rows : (variables,) integers, rows of the layout; labels : (variables,) float64, integers, two
    or more; 0 <= a <= bounds[label].
    """
    return _solve(C_SVC, layout, layout.starts[rows], labels, tolerance, bounds, C=1.0)


def c_svc_of_pairs(
    layout: PrecomputedNodes,
    K: np.ndarray,
    at: np.ndarray,
    counts: np.ndarray,
    bounds: np.ndarray,
    tolerance: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Solve the problem of `c_svc` for each of many pairs of classes; return beta and u = K beta.

    Both are (pairs, m) float64, and 0 beyond the rows of a pair. layout : the values of K as LIBSVM
    reads them; K : (n, n) float64; at : (pairs, m) int32, the rows of each pair, those of label 1
    first; counts : (pairs, 2) int32, the numbers of rows of both labels; bounds : (pairs, 2).
    """
    svm, m = _bindings(), at.shape[1]
    parameter = _parameter(C_SVC, m, tolerance, {1: 1.0, -1: 1.0}, C=1.0)
    weights = np.ctypeslib.as_array(parameter.weight, (2,))
    fields = svm.svm_model.l, svm.svm_model.sv_coef, svm.svm_model.sv_indices
    parts = np.array([field.offset for field in fields], np.int64)
    functions = svm.libsvm.svm_train, svm.libsvm.svm_free_and_destroy_model
    train, destroy = (ctypes.cast(one, ctypes.c_void_p).value or 0 for one in functions)
    beta, u = np.zeros(at.shape), np.zeros(at.shape)

    def solve() -> tuple[np.ndarray, np.ndarray]:
        _prepare_thread()
        address = ctypes.addressof(parameter)
        _solver.begin()
        _solver.train_pairs(
            train, destroy, address, parts, weights, layout.starts, K, at, counts, bounds, beta, u
        )
        _solver.end()
        return beta, u

    return run_in_daemon_thread(solve, "solving", (layout, K))


def one_class(
    layout: PrecomputedNodes, rows: np.ndarray, total: float, tolerance: float
) -> TrainedSvm:
    """Solve min 1/2 a' K a,  0 <= a <= 1,  sum a = total.

    rows : (variables,) integers, rows of the layout. LIBSVM starts with a = 1 for the first
    int(total) variables, the remainder for the next one, and 0 for the others.
    """
    count = len(rows)
    # The nu whose product with the number of variables is nearest to the sum, in float64.
    nu = total / count
    near = [nu, np.nextafter(nu, 0.0), np.nextafter(nu, 2.0)]
    nu = float(min(near, key=lambda each: abs(each * count - total)))
    return _solve(ONE_CLASS, layout, layout.starts[rows], np.ones(count), tolerance, nu=nu)


def epsilon_svr(
    layout: PrecomputedNodes,
    rows: np.ndarray,
    targets: np.ndarray,
    C: float,
    epsilon: float,
    tolerance: float,
) -> TrainedSvm:
    """Solve min 1/2 a' K a - targets' a + epsilon sum |a|,  -C <= a <= C,  sum a = 0.

    LIBSVM starts at a = 0. rows : (variables,) integers, rows of the layout; targets : (variables,)
    float64.
    """
    return _solve(EPSILON_SVR, layout, layout.starts[rows], targets, tolerance, C=C, p=epsilon)


# --- rows instead of kernel values ---------------------------------------------------------


def train_with_libsvm_kernel(points: Points, problem: Problem, tolerance: float) -> TrainedSvm:
    """Train LIBSVM's own SVM on these rows, with LIBSVM's own kernel; for a C-SVC rows of both
    classes."""
    y, is_svc = points.y, problem.task == "svc"
    # One-class: alpha sums to nu n, where n counts all rows of D, or to m if m is smaller.
    nu = min(1.0, problem.coefficient_sum / len(y)) if problem.coefficient_sum else 0.5
    found = _solve(
        SVM_TYPES[problem.task],
        *_nodes(points),
        y,
        tolerance,
        {1: problem.bounds[0], -1: problem.bounds[1]} if is_svc else None,
        kernel_type=KERNEL_NAMES.index(problem.kernel),
        degree=problem.degree,
        gamma=problem.gamma,
        coef0=problem.coef0,
        C=1.0 if is_svc else problem.bounds[0],
        p=problem.epsilon,
        nu=nu,
        cache_size=problem.kernel_cache,
        shrinking=int(problem.shrinking),
    )
    if not np.isfinite(found.coefficients).all():
        raise ParameterError(f"LIBSVM finds no finite solution on this data: {remedy(problem)}")
    return found


def remedy(problem: Problem) -> str:
    """Return the advice for a failure of LIBSVM; only some tasks have a cost."""
    if problem.task in TASKS_WITHOUT_COST:
        return "scale the features"
    if max(problem.bounds) > MAX_COMMON_COST:
        return "lower -c, the likely cause, or scale the features"
    return "scale the features, or lower -c"


def _nodes(points: Points) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows as LIBSVM reads them: (nnz + m,) NODE, and the address of the first node of
    each row, (m,) uint64."""
    X, m = points.X, len(points)
    indptr = X.indptr.astype(np.int64)
    space = np.empty(X.nnz + m, NODE)
    ends = indptr[1:] + np.arange(m)
    occupied = np.ones(len(space), bool)
    occupied[ends] = False
    space["index"][occupied] = X.indices + 1
    space["value"][occupied] = X.data
    space["index"][ends] = END_OF_ROW
    space["value"][ends] = 0.0
    starts = indptr[:-1] + np.arange(m)
    return space, (space.ctypes.data + starts * NODE_BYTES).astype(np.uint64)


def check_values(points: Points, problem: Problem) -> None:
    """Raise ParameterError if kernel values exceed float32: LIBSVM would read them as infinite."""
    if problem.kernel in ("linear", "poly"):
        largest = Kernel.of(problem).magnitude(float(squared_norms(points.X).max(initial=0.0)))
        if not largest <= MAX_VALUE:
            raise ParameterError(
                f"values of the {problem.kernel} kernel reach {largest:.1e} on this data, more "
                f"than the float32 that LIBSVM keeps: scale the features"
            )
