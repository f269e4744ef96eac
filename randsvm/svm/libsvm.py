"""Calls of LIBSVM: rows or kernel values in, coefficients out. No other module imports libsvm.

The calls go to the C library that the libsvm-official bindings load. This module knows only the
problems that LIBSVM itself has.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np

import randsvm.svm._solver as _solver
from randsvm.arrays import squared_norms
from randsvm.data.points import Points
from randsvm.errors import ParameterError, RandsvmError
from randsvm.kernels.kernel import Kernel
from randsvm.parallel import run_in_daemon_thread
from randsvm.parameters.kernel import KERNEL_NAMES
from randsvm.parameters.svm import COSTS, Problem

Result = TypeVar("Result")

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

MEGABYTE = 1 << 20
# Searches try no larger C: a failure with a larger one is probably caused by it.
MAX_COMMON_COST = COSTS[-1]
# LIBSVM keeps kernel values as float32.
MAX_VALUE = float(np.finfo(np.float32).max)


class Outcome(NamedTuple):
    """LIBSVM's solution.

    alpha : (variables,) float64, in the order of the variables passed to LIBSVM. iterations: the
    number of iterations. ended: False if LIBSVM reached its limit of iterations.
    """

    alpha: np.ndarray
    iterations: int
    ended: bool

    @property
    def positive(self) -> Outcome:
        """Return the outcome with |alpha|: LIBSVM multiplies its coefficients by the labels."""
        return self._replace(alpha=np.abs(self.alpha))


class TrainedSvm(NamedTuple):
    """A machine as LIBSVM returns it: a C-SVC of several classes, or a regression.

    f of the pair (i, j) of LIBSVM's classes is the sum of coefficients[j - 1] over the support
    vectors of class i and of coefficients[i] over those of class j, less rho.

    labels: the classes in LIBSVM's order; empty for a regression
    support : (count,) int64, the variables that are support vectors, class by class
    starts : (classes + 1,) where the support vectors of each class begin, and their end
    coefficients : (columns, count) float64
    rho : (pairs,) float64
    """

    labels: list[int]
    support: np.ndarray
    starts: list[int]
    coefficients: np.ndarray
    rho: np.ndarray

    def of_variables(self, rows: np.ndarray) -> TrainedSvm:
        """Return the machine with variable i renumbered as rows[i]. rows : (variables,) int64."""
        return self._replace(support=rows[self.support])


# Memory of closed layouts, for reuse: to allocate new pages takes as long as to fill them. At most
# SPARE_BYTES stay allocated, which is enough for solves of 2,000 rows in two threads.
_spare: list[np.ndarray] = []
SPARE_BYTES = 64 << 20


@dataclass
class PrecomputedNodes:
    """Kernel values of some variables, followed by EXTRA pseudo-rows, as a precomputed kernel.

    values : (pairs of rows, rows + 1, 2) float64. LIBSVM reads a node of 16 bytes for each value,
    but never the index in the first half of the node. So the nodes of two rows interleave, and a
    value takes 8 bytes. Node 0 of a row holds the number of the row, from 1.
    starts : (rows,) uint64, the address of the first node of each row. Several variables may share
    a row: LIBSVM identifies a variable by its place in the list of pointers.

    LIBSVM reads K(i, j) from row i and caches each row on its own, so the matrix need not be
    symmetric: the values of a pseudo-row with the variables are in its own row only, and its column
    is 0 in all other rows. A with statement releases the memory.
    """

    buffer: np.ndarray
    values: np.ndarray
    starts: np.ndarray

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
            buffer = np.empty(size)
        values = buffer[1:size].reshape(pairs, rows + 1, 2)
        number = np.arange(rows)
        # The value is the second half of a node, which begins 8 bytes before it.
        starts = buffer.ctypes.data + (number // 2) * (rows + 1) * NODE_BYTES + (number % 2) * 8
        values[:, 0] = np.arange(1, 2 * pairs + 1).reshape(pairs, 2)
        values[:, 1 + variables :] = 0.0
        return PrecomputedNodes(buffer, values, starts.astype(np.uint64))

    @property
    def variables(self) -> int:
        return len(self.starts) - EXTRA

    def set_extra(
        self, number: int, values: np.ndarray, extra: Sequence[float] | np.ndarray
    ) -> None:
        """Set the kernel values of pseudo-row `number`.

        values : (variables,) float64, with the variables; extra : (EXTRA,) float64, with the
        pseudo-rows.
        """
        row = self.variables + number
        self.values[row // 2, 1:, row % 2] = np.append(values, extra)

    def set_linear_term(self, w: np.ndarray) -> None:
        """Set the two pseudo-rows of the linear term so that their values with the variables sum to
        w, and those of the slack rows to 0.

        The first has w rounded to float32, as LIBSVM stores it, and the second the remainder. In a
        C-SVC the slack rows have a gradient of 0. w : (variables,) float64.
        """
        check_sums(float(np.abs(w).max()))
        first = w.astype(np.float32).astype(np.float64)
        for number, values, slack in ((0, first, 1.0), (1, w - first, 0.0)):
            self.set_extra(number, values, [PINNING_VALUE, PINNING_VALUE, slack, -slack])
        for number in (SLACK_UP, SLACK_DOWN):
            self.set_extra(number, np.zeros(self.variables), np.zeros(EXTRA))

    def __enter__(self) -> PrecomputedNodes:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Release the memory; after an error LIBSVM may still read it."""
        kept = sum(each.nbytes for each in list(_spare))
        if error is None and kept + self.buffer.nbytes <= SPARE_BYTES:
            _spare.append(self.buffer)


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


def _solve(
    svm_type: int,
    memory: object,
    pointers: np.ndarray,
    labels: np.ndarray,
    tolerance: float,
    read: Callable[[Any], Result],
    weights: Mapping[int, float] | None = None,
    **fields: float,
) -> Result:
    """Solve in a daemon thread, so that a signal need not wait: ctypes releases the GIL.

    pointers : (variables,) uint64, addresses of rows in `memory`; labels : (variables,) float64. If
    this thread stops waiting, LIBSVM continues to read `memory`. read: takes the result from
    LIBSVM's model. weights: factors of C by the label. fields: others of svm_parameter.
    """
    svm, variables = _bindings(), len(labels)
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
    labels = np.ascontiguousarray(labels, np.float64)
    problem = svm.svm_problem.__new__(svm.svm_problem)
    problem.l = variables
    problem.y = ctypes.cast(labels.ctypes.data, ctypes.POINTER(ctypes.c_double))
    node = ctypes.POINTER(ctypes.POINTER(svm.svm_node))
    problem.x = ctypes.cast(pointers.ctypes.data, node)

    def solve() -> Result:
        # This applies to the calling thread. LIBSVM's loops over one kernel row are too short for
        # OpenMP: when the other cores are busy, its spinning threads cost a factor of 10.
        one_thread = getattr(svm.libsvm, "omp_set_num_threads", None)
        if one_thread is not None:
            one_thread(1)
        complaint = svm.libsvm.svm_check_parameter(problem, parameter)
        if complaint:
            raise RandsvmError(f"LIBSVM refuses the subproblem: {complaint.decode()}")
        # The print function is global in LIBSVM; the default prints to stdout, among the results.
        svm.libsvm.svm_set_print_string_function(_read_iterations())
        handle = svm.libsvm.svm_train(problem, parameter)
        try:
            return read(handle.contents)
        finally:
            svm.libsvm.svm_free_and_destroy_model(ctypes.pointer(handle))

    return run_in_daemon_thread(solve, "solving", (memory, pointers, labels))


def _outcome(model: Any, variables: int) -> Outcome:
    """Return LIBSVM's solution. Its rho is ignored: it may be infinite if all coefficients are
    bounded."""
    assert not model.label or model.label[0] == 1, "LIBSVM puts +1 first for -1/+1"
    alpha = np.zeros(variables)
    if model.l:
        # 1-based, grouped by class. np.ctypeslib.as_array would make a type for each length.
        at = np.frombuffer(ctypes.string_at(model.sv_indices, 4 * model.l), np.int32) - 1
        alpha[at] = np.frombuffer(ctypes.string_at(model.sv_coef[0], 8 * model.l))
    iterations = _solver.iterations()
    if model.param.svm_type == EPSILON_SVR:
        variables *= 2
    return Outcome(alpha, iterations, iterations < max(MAX_ITERATIONS, MAX_FOR_EACH * variables))


def _machine(model: Any) -> TrainedSvm:
    """Return a copy of LIBSVM's model."""
    classes, count = model.nr_class, model.l
    columns = max(classes - 1, 1)
    is_classifier = bool(model.label)
    sizes = model.nSV[:classes] if is_classifier else [count]
    pairs = classes * (classes - 1) // 2
    found = np.zeros((columns, count))
    for column in range(columns if count else 0):
        found[column] = np.ctypeslib.as_array(model.sv_coef[column], (count,))
    return TrainedSvm(
        labels=list(model.label[:classes]) if is_classifier else [],
        support=np.array(model.sv_indices[:count], np.int64) - 1,
        starts=np.cumsum([0, *sizes]).tolist(),
        coefficients=found,
        rho=np.array(model.rho[:pairs]),
    )


def c_svc(
    layout: PrecomputedNodes,
    rows: np.ndarray,
    labels: np.ndarray,
    bounds: tuple[float, float],
    tolerance: float,
) -> Outcome:
    """Solve min 1/2 a' Q a - sum a,  Q_ij = y_i y_j K_ij,  sum y_i a_i = 0, starting at a = 0.

    rows : (variables,) integers, rows of the layout; labels : (variables,), y = -1 or 1, at least
    one of each; 0 <= a <= bounds[0] where y is 1, and <= bounds[1] where it is -1.
    """
    read = partial(_outcome, variables=len(rows))
    weights = {1: bounds[0], -1: bounds[1]}
    rows = layout.starts[rows]
    return _solve(C_SVC, layout, rows, labels, tolerance, read, weights, C=1.0).positive


def one_class(
    layout: PrecomputedNodes, rows: np.ndarray, total: float, tolerance: float
) -> Outcome:
    """Solve min 1/2 a' K a,  0 <= a <= 1,  sum a = total.

    rows : (variables,) integers, rows of the layout. LIBSVM starts with a = 1 for the first
    int(total) variables, the remainder for the next one, and 0 for the others.
    """
    count = len(rows)
    # The nu whose product with the number of variables is nearest to the sum, in float64.
    nu = total / count
    near = [nu, np.nextafter(nu, 0.0), np.nextafter(nu, 2.0)]
    nu = float(min(near, key=lambda each: abs(each * count - total)))
    read, rows = partial(_outcome, variables=count), layout.starts[rows]
    return _solve(ONE_CLASS, layout, rows, np.ones(count), tolerance, read, nu=nu).positive


def epsilon_svr(
    layout: PrecomputedNodes,
    rows: np.ndarray,
    targets: np.ndarray,
    C: float,
    epsilon: float,
    tolerance: float,
) -> Outcome:
    """Solve min 1/2 a' K a - targets' a + epsilon sum |a|,  -C <= a <= C,  sum a = 0.

    LIBSVM starts at a = 0. rows : (variables,) integers, rows of the layout; targets : (variables,)
    float64. alpha of the outcome is a, with its signs.
    """
    read, rows = partial(_outcome, variables=len(rows)), layout.starts[rows]
    return _solve(EPSILON_SVR, layout, rows, targets, tolerance, read, C=C, p=epsilon)


# --- whole machines ------------------------------------------------------------------------


def class_machine(
    layout: PrecomputedNodes,
    rows: np.ndarray,
    classes: np.ndarray,
    C: float,
    weights: Sequence[float],
    tolerance: float,
) -> TrainedSvm:
    """Train a C-SVC for each pair of the classes of some rows.

    rows : (variables,) integers, rows of the layout; classes : (variables,) float64, numbers of two
    or more classes; weights: of each class number
    """
    # LIBSVM prints a warning about each weight of a class without rows.
    of_class = {k: weights[k] for k in np.unique(classes).astype(int).tolist()}
    rows = layout.starts[rows]
    return _solve(C_SVC, layout, rows, classes, tolerance, _machine, of_class, C=C)


def regression_machine(
    layout: PrecomputedNodes,
    rows: np.ndarray,
    targets: np.ndarray,
    C: float,
    epsilon: float,
    tolerance: float,
) -> TrainedSvm:
    """Train an epsilon-SVR. rows : (variables,) integers, rows of the layout; targets : (m,)."""
    rows = layout.starts[rows]
    return _solve(EPSILON_SVR, layout, rows, targets, tolerance, _machine, C=C, p=epsilon)


# --- rows instead of kernel values ---------------------------------------------------------


def train_with_libsvm_kernel(points: Points, problem: Problem, tolerance: float) -> Outcome:
    """Train LIBSVM's own SVM on these rows, with LIBSVM's own kernel.

    alpha of the outcome is beta, (m,) float64; beta = 0 for a C-SVC whose rows have one class.
    """
    y = points.y
    if problem.task == "svc" and np.all(y == y[0]):
        return Outcome(np.zeros(len(y)), 0, True)
    # One-class: alpha sums to nu n, where n counts all rows of D, or to m if m is smaller.
    nu = min(1.0, problem.coefficient_sum / len(y)) if problem.coefficient_sum else 0.5
    nodes, pointers = _nodes(points)
    is_svc = problem.task == "svc"
    found = _solve(
        SVM_TYPES[problem.task],
        nodes,
        pointers,
        y,
        tolerance,
        partial(_outcome, variables=len(y)),
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
    if not np.isfinite(found.alpha).all():
        raise ParameterError(f"LIBSVM finds no finite solution on this data: {remedy(problem)}")
    return found


def remedy(problem: Problem) -> str:
    """Return the advice for a failure of LIBSVM; only some tasks have a cost."""
    if problem.task not in ("svc", "svr"):
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
