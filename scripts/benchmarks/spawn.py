"""Run one command and report its time and memory.

The system reports for a process at least the peak memory of the process that started it. This one
imports almost nothing, so that the size of the harness is in no measurement; its own size is the
floor. psutil has no peak memory of a process that has ended, and pyperf and hyperfine neither end a
process after a time limit nor keep what it prints.

    spawn.py DESCRIPTOR MOST WORD ...

runs the command of these words, ends it after MOST seconds (inf: never), and writes lines
`NAME NUMBER` to the file DESCRIPTOR: wall and cpu in seconds, peak and floor as the system tells
them (ru_maxrss: of the command, and of a process that does nothing), its exit code, and whether it
was ended.
"""

from __future__ import annotations

import os
import signal
import sys
import time

# Python ignores these signals, and a process that it starts inherits that.
DEFAULT = (signal.SIGPIPE, signal.SIGXFSZ)


def begin(*words: str) -> int:
    return os.posix_spawnp(words[0], words, os.environ, setsigdef=DEFAULT)


def main(descriptor: int, most: float, *words: str) -> None:
    os.set_inheritable(descriptor, False)
    late = False

    def end(*_: object) -> None:
        nonlocal late
        late = True
        os.kill(pid, signal.SIGKILL)

    began = time.perf_counter()
    pid = begin(*words)
    signal.signal(signal.SIGALRM, end)
    if most < float("inf"):
        signal.setitimer(signal.ITIMER_REAL, most)
    _, status, used = os.wait4(pid, 0)
    wall = time.perf_counter() - began
    signal.setitimer(signal.ITIMER_REAL, 0)
    code = os.waitstatus_to_exitcode(status)
    _, _, least = os.wait4(begin("true"), 0)
    found = {
        "wall": wall,
        "cpu": used.ru_utime + used.ru_stime,
        "peak": used.ru_maxrss,
        "floor": least.ru_maxrss,
        "code": code,
        "ended": int(late and code == -signal.SIGKILL),
    }
    with open(descriptor, "w") as out:
        out.writelines(f"{name} {number}\n" for name, number in found.items())


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), *sys.argv[3:])
