"""The only room with libsvm: one subproblem in, one solution out.

Works on the C library that the libsvm-official bindings load, with node arrays built by numpy.
"""

from __future__ import annotations

import ctypes
import math
import threading
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import numpy as np

import randsvm.svm._solver as _solver
from randsvm.arrays import squared_norms
from randsvm.data.points import Points
from randsvm.errors import ParameterError, RandsvmError
from randsvm.events import Notice, result_of, tell_once
from randsvm.kernels.expansion import Space, gram, prefers_dense
from randsvm.kernels.kernel import Kernel
from randsvm.parameters.problem import Problem
from randsvm.parameters.run import MEGABYTE
from randsvm.parameters.svm import KERNEL_NAMES
from randsvm.svm.tasks import task_of

# struct svm_node { int index; double value; }
NODE = np.dtype([("index", np.int32), ("value", np.float64)], align=True)
END_OF_ROW = -1

# LIBSVM's number for epsilon-SVR, the form that takes a linear term.
EPSILON_SVR = 3

# LIBSVM ends a solve after so many iterations, or so many for each of its variables.
MOST_ITERATIONS = 10_000_000
MOST_FOR_EACH = 100
REMEDY = "scale the features, or lower -c"
NOT_SOLVED = (
    f"LIBSVM reached its limit of iterations, a subproblem is not solved to the tolerance: {REMEDY}"
)

# Up to so many rows LIBSVM is given its kernel values ready made: 8 bytes each, 64 MB in all,
# whatever --memory says, so that no resource changes a byte of a model.
GRAM_MOST = 2892
PRECOMPUTED = 4
# The values between the two extra rows of Gram, relative to all others of theirs together.
HOLD = 1000.0

# LIBSVM keeps kernel values as float32.
LARGEST_VALUE = float(np.finfo(np.float32).max)


@dataclass
class Nodes:
    """Rows as LIBSVM reads them. Keeps alive the memory that `pointers` points into.

    space : (nnz + m,) NODE; pointers : (m,) uint64 addresses of the rows' first nodes.
    """

    space: np.ndarray
    pointers: np.ndarray

    @staticmethod
    def of(points: Points) -> Nodes:
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
        return Nodes(space, (space.ctypes.data + starts * NODE.itemsize).astype(np.uint64))


# Memory of Gram matrices that nobody uses now: new pages cost as much as the values in them.
_spare: list[np.ndarray] = []


@dataclass
class Gram:
    """Kernel values of m rows, as LIBSVM reads a precomputed kernel; `close` gives its memory back.

    values : (pairs of rows, m + 3, 2) float64. LIBSVM wants a node of 16 bytes for each value and
    never looks at the index in its first half, so the nodes of two rows lie in between each
    other. Node 0 of a row is its own number, from 1. pointers : (m + 2,) uint64, see Nodes.

    Two extra rows at the end give C-SVC the linear term that it does not have, see `lean`.
    """

    buffer: np.ndarray
    values: np.ndarray
    pointers: np.ndarray

    @staticmethod
    def of(points: Points, problem: Problem) -> Gram:
        X, m = points.X, len(points) + 2
        pairs = -(-m // 2)
        size = 1 + pairs * (m + 1) * 2
        buffer = _spare.pop() if _spare else np.empty(0)
        if len(buffer) < size:
            buffer = np.empty(size)
        values = buffer[1:size].reshape(pairs, m + 1, 2)
        rows = np.arange(m)
        # The value is the second half of a node, which begins 8 bytes before it.
        starts = buffer.ctypes.data + (rows // 2) * (m + 1) * NODE.itemsize + (rows % 2) * 8
        values[:, 0] = np.arange(1, 2 * pairs + 1).reshape(pairs, 2)
        if m % 2:
            values[-1, :, 1] = 0.0  # nobody's row, but `times` goes over it
        matrix = Gram(buffer, values, starts.astype(np.uint64))
        dense = prefers_dense(m, X.shape[1], X.nnz)
        for i, j, block in gram(Space(Kernel.of(problem), dense, None, np.float64), X):
            matrix._fill(i, j, block)
            if i != j:
                matrix._fill(j, i, block.T)
        matrix.lean(np.zeros(len(points)))
        return matrix

    def _fill(self, i: slice, j: slice, block: np.ndarray) -> None:
        # i begins with the first row of a pair.
        into = self.values[i.start // 2 : -(-i.stop // 2), 1 + j.start : 1 + j.stop]
        into[: -(-len(block) // 2), :, 0] = block[0::2]
        into[: len(block) // 2, :, 1] = block[1::2]

    def lean(self, h: np.ndarray) -> bool:
        """Make C-SVC minimise 1/2 a' Q a - sum a_i + C sum_i y_i h_i a_i; whether h, (m,) float64,
        is small enough for that.

        The labels of the extra rows are 1 and -1. Their values hold both at alpha = C, where
        their part in the gradient of row i is C y_i h_i: the first has h_i as the float32 that
        LIBSVM keeps, the second what is left of it, negative. With one another they are not
        positive semidefinite: neither ever leaves its bound, to which LIBSVM's first step takes
        both (among equals it picks the last).
        """
        m, hold = len(h), HOLD * (1 + float(np.abs(h).sum()))
        if not hold < LARGEST_VALUE:
            return False
        first = h.astype(np.float32).astype(np.float64)
        for row, values, corner in ((m, first, (-hold, hold)), (m + 1, first - h, (hold, -hold))):
            values = np.append(values, corner)
            self.values[row // 2, 1:, row % 2] = values
            # The same as a column, over pairs of rows.
            self.values[:, 1 + row] = np.resize(values, (len(self.values), 2))
        return True

    def times(self, beta: np.ndarray) -> np.ndarray:
        """K beta, (m,) float64."""
        # A product of matrices for each pair of rows; einsum takes seven times as long.
        sums = np.matmul(np.concatenate([[0.0], beta, [0.0, 0.0]])[None], self.values)
        return sums.ravel()[: len(beta)]

    def close(self) -> None:
        _spare.append(self.buffer)


class _Library:
    """The loaded C library; loading takes a while, so it happens with the first solve."""

    def __init__(self) -> None:
        from libsvm import svm

        self.svm = svm
        self.one_thread = getattr(svm.libsvm, "omp_set_num_threads", None)
        self.hear = svm.PRINT_STRING_FUN(_solver.HEAR)

    def parameter(self, problem: Problem, tolerance: float, epsilon: float | None, m: int) -> Any:
        """epsilon None: the task itself, over m rows; else epsilon-SVR with this epsilon."""
        # Not by its constructor: that changes for all threads where LIBSVM prints.
        parameter = self.svm.svm_parameter.__new__(self.svm.svm_parameter)
        parameter.svm_type = task_of(problem).svm_type if epsilon is None else EPSILON_SVR
        parameter.kernel_type = KERNEL_NAMES.index(problem.kernel)
        parameter.degree = problem.degree
        parameter.gamma = problem.gamma
        parameter.coef0 = problem.coef0
        # A bound is weight times C. In the form of an epsilon-SVR there is one: no rows are
        # frozen where there are two.
        parameter.C = 1.0 if epsilon is None else problem.bounds[0]
        if epsilon is None:
            parameter.nr_weight = 2
            parameter.weight_label = (ctypes.c_int * 2)(1, -1)
            parameter.weight = (ctypes.c_double * 2)(*problem.bounds)
        parameter.p = epsilon or 0.0
        # The bound on alpha is 1 / (nu n) for the whole data set, whatever the subset.
        parameter.nu = min(1.0, problem.total / m) if problem.total else 0.5
        parameter.cache_size = problem.kernel_cache
        parameter.eps = tolerance
        parameter.shrinking = int(problem.shrinking)
        return parameter

    def rows(self, nodes: Nodes | Gram, targets: np.ndarray) -> Any:
        # The bindings' constructor walks the rows in Python; this sets the same three fields.
        data = self.svm.svm_problem.__new__(self.svm.svm_problem)
        data.l = len(targets)
        data.y = targets.ctypes.data_as(ctypes.POINTER(ctypes.c_double))
        row = ctypes.POINTER(ctypes.POINTER(self.svm.svm_node))
        data.x = nodes.pointers.ctypes.data_as(row)
        return data

    def train(self, data: Any, parameter: Any) -> tuple[np.ndarray, float, bool]:
        """Returns beta (m,) float64, zero where a row is no support vector, b = -rho, and whether
        LIBSVM came to an end before its most iterations."""
        # The setting is of the calling thread. LIBSVM's loops over one kernel column are too
        # short for OpenMP: where the other cores are busy, its spinning threads cost a factor 10.
        if self.one_thread is not None:
            self.one_thread(1)
        complaint = self.svm.libsvm.svm_check_parameter(data, parameter)
        if complaint:
            raise RandsvmError(f"LIBSVM refuses the subproblem: {complaint.decode()}")
        # Where it prints is global in LIBSVM: left alone it prints to stdout, where results go.
        self.svm.libsvm.svm_set_print_string_function(self.hear)
        handle = self.svm.libsvm.svm_train(data, parameter)
        variables = data.l * (2 if parameter.svm_type == EPSILON_SVR else 1)
        ended = _solver.iterations() < max(MOST_ITERATIONS, MOST_FOR_EACH * variables)
        try:
            model, beta = handle.contents, np.zeros(data.l)
            assert not model.label or model.label[0] == 1, "LIBSVM puts +1 first for -1/+1"
            if model.l:
                # 1-based, grouped by class.
                at = np.ctypeslib.as_array(model.sv_indices, (model.l,)) - 1
                beta[at] = np.ctypeslib.as_array(model.sv_coef[0], (model.l,))
            return beta, -float(model.rho[0]), ended
        finally:
            self.svm.libsvm.svm_free_and_destroy_model(ctypes.pointer(handle))


_library: _Library | None = None


def _load_library() -> _Library:
    global _library
    if _library is None:
        _library = _Library()
    return _library


def memory_of(rows: int, nonzeros: float, problem: Problem) -> int:
    """Bytes that a subproblem of so many rows with so many nonzeros each takes at the most: the
    rows as LIBSVM reads them, and its kernel cache."""
    laid_out = 8 * rows if rows <= GRAM_MOST else NODE.itemsize * (nonzeros + 1)
    columns = rows if problem.task == "svr" else 2 * rows
    return int(rows * laid_out + min(problem.kernel_cache * MEGABYTE, 4 * rows * columns))


def solve(
    rows: Nodes | Gram,
    y: np.ndarray,
    problem: Problem,
    tolerance: float,
    epsilon: float | None = None,
) -> tuple[np.ndarray, float]:
    """One call of LIBSVM over the first len(y) rows. y: labels, or targets of an epsilon-SVR if
    `epsilon`. Returns beta (len(y),) and b."""
    library = _load_library()
    y = np.ascontiguousarray(y, np.float64)
    data = library.rows(rows, y)
    parameter = library.parameter(problem, tolerance, epsilon, len(y))
    if isinstance(rows, Gram):
        parameter.kernel_type = PRECOMPUTED
    beta, b, ended = _in_daemon_thread(lambda: library.train(data, parameter), (rows, y))
    if not ended:
        tell_once("iterations of LIBSVM", Notice(NOT_SOLVED))
    if not (np.isfinite(beta).all() and math.isfinite(b)):
        raise ParameterError(f"LIBSVM finds no finite solution on this data: {REMEDY}")
    return beta, b


def check_values(points: Points, problem: Problem) -> None:
    """Refuse kernel values that LIBSVM would take for infinite, and then go astray."""
    if problem.kernel in ("linear", "poly"):
        largest = Kernel.of(problem).magnitude(float(squared_norms(points.X).max(initial=0.0)))
        if not largest <= LARGEST_VALUE:
            raise ParameterError(
                f"values of the {problem.kernel} kernel reach {largest:.1e} on this data, more "
                f"than the float32 that LIBSVM keeps: scale the features"
            )


def _in_daemon_thread(work: Any, memory: Any) -> Any:
    """work() in a thread of its own, while this one tells that it waits and hears signals.

    ctypes releases the GIL. A process that ends waits for the threads of a pool, but not for a
    daemon. memory: what the library reads, kept alive even if this thread leaves before the end.
    """
    future: Future[Any] = Future()

    def run(memory: Any) -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            future.set_exception(error)

    threading.Thread(target=run, args=[memory], daemon=True, name="libsvm").start()
    return result_of(future, "solving")
