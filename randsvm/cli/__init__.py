"""The commands. The only rooms with click, tqdm, stdout, stderr, signals and exit codes."""

import gc
import os
import signal
import sys

# The scan runs one worker per core; a BLAS that starts threads of its own would fight them. Read
# by the libraries when numpy is imported, which no module does before this one.
for _variable in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ[_variable] = "1"

# A process that is no command (python -m has this name for now) keeps what it has.
if sys.argv[0].endswith(("randsvm-train", "randsvm-predict")) or sys.argv[0] == "-m":
    # The collector looks for garbage after so many new objects. With its default, 700, it goes
    # through all modules 30 times while they are imported, a tenth of the time of --help, and again
    # while a model's numbers are written, which takes longer than to write them.
    gc.set_threshold(100_000)
    # Ctrl-C while a command imports its libraries ends it without a traceback of theirs; process.py
    # listens later.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
