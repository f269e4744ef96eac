"""Subproblems, scans and working sets of randsvm.svm, which tests compare with references."""

from randsvm.algorithms.reduced_set import Basis
from randsvm.data import sampling
from randsvm.data.shard_executor import Shard
from randsvm.kernels.kernel import Kernel
from randsvm.parameters.svm import KernelDefects
from randsvm.svm import _kkt_scan, blocks, libsvm, offset, scan, subproblem_qp
from randsvm.svm.blocks import BLOCK_COUNT, best_share, solve_blocks, split
from randsvm.svm.certificate import (
    DUAL_SHARE,
    LOG_FAILURE,
    ResidualQuery,
    Sharpened,
)
from randsvm.svm.libsvm import PrecomputedNodes, check_values, train_with_libsvm_kernel
from randsvm.svm.offset import Breakpoints, Window
from randsvm.svm.projection import clipped, with_sum, with_sums_by_violation
from randsvm.svm.running_values import (
    Added,
    MemoryBudget,
    RunningValues,
    ShardValues,
)
from randsvm.svm.scan import Scan
from randsvm.svm.solution import Certificate, KernelSolution, ReducedMachine
from randsvm.svm.subproblem_qp import Subproblem
from randsvm.svm.tasks import Task, change_of_dual
from randsvm.svm.whole import KernelMatrix, MatrixPart
from randsvm.svm.working_set import (
    Candidates,
    Collector,
    WorkingSet,
    file_order,
    largest_violation,
    side_of,
    uniform_sample,
)
