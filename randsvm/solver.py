"""The only room with libsvm: one subproblem in, one solution out.

Works on the C library that the libsvm-official bindings load, with node arrays built by numpy.
"""

from __future__ import annotations

import ctypes
import threading
from dataclasses import dataclass
from typing import Any

import numpy as np

from randsvm.errors import RandsvmError
from randsvm.events import Progress, tell
from randsvm.params import KERNEL_NAMES, Params
from randsvm.points import Points
from randsvm.solution import SV
from randsvm.tasks import TASKS

# struct svm_node { int index; double value; }
NODE = np.dtype([("index", np.int32), ("value", np.float64)], align=True)
END_OF_ROW = -1

# How often a waiting caller reports that LIBSVM is still at work, in seconds.
HEARTBEAT = 0.1


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


class _Library:
    """The loaded C library; loading takes a while, so it happens with the first solve."""

    def __init__(self) -> None:
        from libsvm import svm

        self.svm = svm
        # Silence is global in LIBSVM: without this it prints to stdout, where results go.
        svm.libsvm.svm_set_print_string_function(svm.ctypes_print_null)

    def parameter(self, params: Params) -> Any:
        parameter = self.svm.svm_parameter()
        parameter.svm_type = TASKS[params.task].svm_type
        parameter.kernel_type = KERNEL_NAMES.index(params.kernel)
        parameter.degree = params.degree
        parameter.gamma = params.gamma
        parameter.coef0 = params.coef0
        parameter.C = params.C
        parameter.cache_size = params.cache
        # The scan's tolerance is -e; subproblems are solved to half of it.
        parameter.eps = params.tolerance / 2
        parameter.shrinking = int(params.shrinking)
        # svm_parameter() has put LIBSVM's own printing back.
        self.svm.libsvm.svm_set_print_string_function(self.svm.ctypes_print_null)
        return parameter

    def problem(self, nodes: Nodes, y: np.ndarray) -> Any:
        # The bindings' constructor walks the rows in Python; this sets the same three fields.
        problem = self.svm.svm_problem.__new__(self.svm.svm_problem)
        problem.l = len(y)
        problem.y = y.ctypes.data_as(ctypes.POINTER(ctypes.c_double))
        rows = ctypes.POINTER(ctypes.POINTER(self.svm.svm_node))
        problem.x = nodes.pointers.ctypes.data_as(rows)
        return problem

    def train(self, problem: Any, parameter: Any) -> tuple[np.ndarray, np.ndarray, float]:
        """Returns positions of the support vectors, their coefficients, and b = -rho."""
        complaint = self.svm.libsvm.svm_check_parameter(problem, parameter)
        if complaint:
            raise RandsvmError(f"LIBSVM refuses the subproblem: {complaint.decode()}")
        handle = self.svm.libsvm.svm_train(problem, parameter)
        try:
            model = handle.contents
            m = model.l
            if m == 0:
                return np.empty(0, np.int64), np.empty(0), -model.rho[0]
            assert not model.label or model.label[0] == 1, "LIBSVM puts +1 first for -1/+1"
            at = np.ctypeslib.as_array(model.sv_indices, (m,)).astype(np.int64) - 1
            beta = np.ctypeslib.as_array(model.sv_coef[0], (m,)).copy()
            return at, beta, -float(model.rho[0])
        finally:
            self.svm.libsvm.svm_free_and_destroy_model(ctypes.pointer(handle))


_library: _Library | None = None


def _load_library() -> _Library:
    global _library
    if _library is None:
        _library = _Library()
    return _library


def svmlearn(points: Points, params: Params) -> SV:
    """Solve the SVM over `points` alone (C-SVC), to half of params.tolerance.

    Labels are -1/+1. A class that is missing makes the
    solution empty: f = b = the sign of the class that is there.
    """
    if np.all(points.y == points.y[0]):
        return SV(points[np.empty(0, np.int64)], np.empty(0), float(points.y[0]), params)
    library = _load_library()
    nodes = Nodes.of(points)
    y = np.ascontiguousarray(points.y, np.float64)
    problem, parameter = library.problem(nodes, y), library.parameter(params)
    at, beta, b = _in_daemon_thread(lambda: library.train(problem, parameter))
    order = np.argsort(at)
    return SV(points[at[order]], beta[order], b, params)


def _in_daemon_thread(work: Any) -> Any:
    """work() while this thread stays awake for signals.

    ctypes releases the GIL; a pool's threads would be joined at exit, a daemon is not.
    """
    outcome: list[Any] = []
    finished = threading.Event()

    def run() -> None:
        try:
            outcome.append((work(), None))
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            outcome.append((None, error))
        finally:
            finished.set()

    threading.Thread(target=run, daemon=True, name="libsvm").start()
    beats = 0
    while not finished.wait(HEARTBEAT):
        beats += 1
        tell(Progress("solving", beats, None, "beat"))
    result, error = outcome[0]
    if error is not None:
        raise error
    return result
