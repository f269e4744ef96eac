"""The commands: options, output on a terminal, signals and exit codes."""

import gc
import os
import signal
import sys

# Only a process of the commands changes its settings, not a program that imports the package.
# argv[0] is "-m" while python -m imports the package.
if sys.argv[0].endswith(("randsvm-train", "randsvm-predict")) or sys.argv[0] == "-m":
    # Scans run a thread per core; threads of BLAS would compete with them. The libraries read these
    # variables when numpy is imported, which no module does before this one.
    for _variable in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
        os.environ[_variable] = "1"
    # New objects between two garbage collections. The default of 700 makes 30 collections while
    # modules are imported, a tenth of the time of --help, and more than doubles the time of writing
    # a model.
    gc.set_threshold(100_000)
    # Ctrl-C during imports ends the process without a traceback; process.py sets handlers later.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
