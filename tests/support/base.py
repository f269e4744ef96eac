"""Base modules and parameters of the package, which are tested one by one."""

from randsvm import files, page, parallel
from randsvm.arrays import (
    CsrMatrix,
    column_sums,
    csr_parts,
    median,
    philox_words,
    sorted_union,
    squared_norms,
    to_csr,
)
from randsvm.files import STANDARD_OUTPUTS, check_output, create_output, read_whole
from randsvm.parallel import Cancelled, ThreadPool
from randsvm.parameters import option
from randsvm.parameters.option import Choice, Options, Size, option_fields, read_value
from randsvm.parameters.run import Resources, Search
from randsvm.parameters.sgd import LOSS_NAMES
from randsvm.parameters.svm import KERNEL_NAMES, KernelParams
from randsvm.svm.linear_loss import LOSSES
