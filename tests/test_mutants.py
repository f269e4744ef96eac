"""Test that the planted faults of mutants.txt still change modules, and name tests that exist."""

from pathlib import Path

TESTS = Path(__file__).parent


def test_every_fault_can_be_planted(script):
    faults = list(script("mutants").read_faults((TESTS / "mutants.txt").read_text()))
    assert len({fault.name for fault in faults}) == len(faults)
    lost = []
    for fault in faults:
        try:
            compile(fault.planted(), fault.name, "exec")
        except (ValueError, OSError) as error:
            lost.append(str(error))
        if not all((TESTS / test.partition("::")[0]).exists() for test in fault.tests):
            lost.append(f"{fault.name}: expected its tests, found no such file")
    assert not lost, "\n".join(lost)
    assert len(faults) >= 180
