"""The commands: options, output on a terminal, signals and exit codes."""

import signal
import sys

# Ctrl-C while a command imports its modules ends the process without a traceback; process.py sets
# handlers later. argv[0] is "-m" while python -m imports the package.
if (
    sys.argv[0].endswith(("randsvm-train", "randsvm-predict", "randsvm-plot", "-m"))
    and signal.getsignal(signal.SIGINT) is signal.default_int_handler
):
    signal.signal(signal.SIGINT, signal.SIG_DFL)
