"""Test that each reader reads a random or damaged file correctly, or refuses it in one line.

support/fuzzing.py makes and checks the cases.
"""

import random
import resource
import time

import fuzzing
import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

# Cases of the usual test run.
CASES = {"text": 1500, "model": 300, "cache": 40, "log": 200, "line": 100}
# Cases of `pytest -m fuzz`, in blocks: a cache is written to the disk, and a command line is run.
BLOCK = 1000
BLOCKS = {"text": 58, "model": 36, "cache": 3, "log": 2, "line": 1}
# Limits of one case: CPU seconds, and bytes of memory in addition to those of the process.
SECONDS, MEMORY = 10.0, 2 << 30


@pytest.fixture(scope="module")
def fuzz(tmp_path_factory):
    return fuzzing.Fuzz(tmp_path_factory.mktemp("fuzz"))


@pytest.mark.parametrize("reader", CASES)
def test_a_damaged_file_is_read_correctly_or_refused_in_one_line(fuzz, reader):
    ends = {fuzz.one(reader, random.Random(f"0 {reader} {n}")) for n in range(CASES[reader])}
    assert len(ends) == 2, "all cases ended in the same way: the files differ too little"


@pytest.fixture
def little_memory():
    """Limit the memory of this process."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    most = psutil.Process().memory_info().vms + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.fuzz
@pytest.mark.parametrize(
    "reader, block",
    [(reader, block) for reader in BLOCKS for block in range(BLOCKS[reader])],
)
def test_many_damaged_files_are_read_correctly_or_refused_in_one_line(
    fuzz, fuzz_seed, results, little_memory, reader, block
):
    """A case is repeated by its seed and number; the file of a failed case is kept."""
    make, check = fuzz.readers[reader]
    for number in range(BLOCK * block, BLOCK * (block + 1)):
        chance = random.Random(f"{fuzz_seed} {reader} {number}")
        content, began = make(chance), time.process_time()
        try:
            assert check(content, chance) in ("accepted", "refused", "rebuilt")
            assert time.process_time() - began < SECONDS
        except BaseException:
            (results / f"fuzz-{reader}-{fuzz_seed}-{number}").write_bytes(content)
            raise


@pytest.mark.hypothesis
@given(st.sampled_from([*CASES]), st.randoms(use_true_random=False))
@settings(max_examples=200, suppress_health_check=list(HealthCheck))
def test_hypothesis_finds_no_file_that_is_read_wrongly(fuzz, reader, chance):
    fuzz.one(reader, chance)


@given(st.binary(max_size=300))
@settings(max_examples=200)
def test_any_bytes_are_read_as_text_or_refused(content):
    assert fuzzing.check_text(content, random.Random(0)) in ("accepted", "refused")
