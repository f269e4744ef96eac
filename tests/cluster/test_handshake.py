"""The comparison of the arithmetic of two processes."""

import json
import os
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
from clusters import connection
from kernel_sums import layouts

PROGRAM = """
import hashlib, json, numpy as np
from randsvm.cluster.connection import arithmetic
a = np.random.default_rng(1).random((300, 300))
print(json.dumps([arithmetic(), hashlib.sha256((a @ a).tobytes()).hexdigest()]))
"""


def arithmetic_with(core):
    """Return the arithmetic of a process whose BLAS uses the code for a kind of processor, and the
    digest of a matrix product."""
    words = {"OPENBLAS_CORETYPE": core, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, **words},
        check=True,
        capture_output=True,
    )
    return tuple(json.loads(done.stdout))


def test_processes_differ_where_the_matrix_products_of_blas_do():
    """Haswell has fused multiply-add, Prescott has not."""
    (ours, our_product), (theirs, their_product) = (
        arithmetic_with("Haswell"),
        arithmetic_with("Prescott"),
    )
    assert (ours != theirs) == (our_product != their_product)


def test_another_last_digit_of_a_function_is_found(monkeypatch):
    def other_exp(x):
        return np.nextafter(np.exp(x), np.inf, dtype=x.dtype)

    ours = connection.arithmetic()
    monkeypatch.setattr(connection, "FUNCTIONS", (other_exp, *connection.FUNCTIONS[1:]))
    assert connection.arithmetic.__wrapped__() != ours


COMPILED = "dense_rbf", "sparse_rbf", "add_sums_of_cells"


def test_compiled_sums_with_avx2_are_those_with_avx512(monkeypatch):
    """So machines need not agree on the width of vectors."""
    ours = connection.arithmetic()
    for name in COMPILED:
        monkeypatch.setattr(layouts, name, partial(getattr(layouts, name), widest=256))
    assert connection.arithmetic.__wrapped__() == ours


@pytest.mark.parametrize("theirs", ["1.9", "2.1"])
def test_older_and_newer_versions_differ(theirs):
    ours = {"randsvm": "1.0", "numpy": "2.0"}
    assert connection.differing_names({"numpy": theirs, "randsvm": "1.0"}, ours) == ["numpy"]
