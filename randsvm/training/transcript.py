"""Write the file of --certificate: what randsvm-check needs beside the data and the model.

docs/certificate-format.md defines it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from randsvm import files
from randsvm.models.model_text import SEAL_PREFIX

if TYPE_CHECKING:
    from randsvm.svm.scan import Scan
    from randsvm.svm.solution import KernelSolution

from randsvm.training.job import TRANSCRIPT

# The arrays of a machine, in the order of the file.
KINDS = {
    "rows": "<i8",
    "beta": "<f8",
    "v": "<f8",
    "v_error": "<f8",
    "u": "<f4",
    "error": "<f4",
    "exact": "<i8",
    "exact_u": "<f8",
    "exact_error": "<f8",
}
# Version of the file.
VERSION = 1

TranscriptArrays: TypeAlias = Mapping[str, np.ndarray]


def transcript_of(
    scan: Scan, SV: KernelSolution, dual: KernelSolution, rows: np.ndarray | None
) -> TranscriptArrays:
    """Return the arrays of a machine.

    dual: the solution of which D is. rows : (n,) int64, the numbers of the rows of the scan in the
    file; None: they are in its order.
    """
    u, error, exact = scan.transcript(SV) if len(SV) else np.zeros((3, scan.D.n))
    v, v_error = scan.sums_of(dual) if len(dual) else (np.empty(0), 0.0)
    order = np.arange(len(u)) if rows is None else np.argsort(rows)
    place = np.argsort(order)
    stored = u[order].astype("<f4")
    # The bound is rounded up, and includes the rounding of u.
    widest = (error[order] + np.abs(u[order] - stored)) * (1 + 1e-6)
    chosen = np.flatnonzero(exact[order])
    by_row = np.argsort(place[dual.rows])
    return {
        "rows": place[dual.rows][by_row],
        "beta": dual.beta[by_row],
        "v": v[by_row],
        "v_error": np.full(len(v), v_error),
        "u": stored,
        "error": widest,
        "exact": chosen,
        "exact_u": u[order][chosen],
        "exact_error": error[order][chosen],
    }


def without_rows(n: int) -> TranscriptArrays:
    """Return the arrays of a machine without support vectors."""
    return {"u": np.zeros(n), "error": np.zeros(n)}


def write(path: str, model: str, machines: Sequence[TranscriptArrays]) -> None:
    """Write the arrays of all machines. model: its file, whose seal the transcript repeats."""
    seal = files.read_whole(model).rstrip(b"\n").rpartition(SEAL_PREFIX)[2].decode()
    sizes = [{name: len(array) for name, array in one.items()} for one in machines]
    with files.create_output(path) as stream:
        stream.write(TRANSCRIPT + b"%d\n" % VERSION)
        stream.write(json.dumps({"model": seal, "machines": sizes}).encode() + b"\n")
        for one in machines:
            for name, kind in KINDS.items():
                if name in one:
                    stream.write(one[name].astype(kind).tobytes())
