"""The commands. The only rooms with click, tqdm, stdout, stderr, signals and exit codes."""

import os

# The scan runs one worker per core; a BLAS that starts threads of its own would fight them. Read
# by the libraries when numpy is imported, which no module does before this one.
for _variable in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ[_variable] = "1"
