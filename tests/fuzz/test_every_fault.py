"""Test that no fault at any moment of a small run loses or damages a file."""

import numpy as np
import oracle
import pytest
from commands import run_train
from every_fault import FAULTS, Run, check_every_fault
from learning import OLD_MODEL

SMALL = "-g 5 --sample-size 30 --jobs 1 -q"
RUNS = {
    "svc": Run(f"train randsvm {SMALL} two m"),
    "paper": Run("train randsvm --gap none -k 40 --sample-size 50 -g 5 --jobs 1 -q two m"),
    "svr": Run(f"train randsvm {SMALL} -s svr targets m"),
    "one-class": Run(f"train randsvm {SMALL} -s one-class -n 0.2 two m"),
    "nu": Run(f"train randsvm {SMALL} -s nu-svc -n 0.3 two m"),
    "pairs": Run("train osuna -g 5 --working-set 20 --jobs 1 -q -b 1 three m"),
    "rest": Run(f"train randsvm {SMALL} --multiclass ovr --scale standard three m"),
    "reduce": Run(f"train randsvm {SMALL} --reduce 9 two m"),
    "gap": Run(
        "train osuna -g 5 --working-set 20 --require-gap 1e-3 --jobs 1 -q two m", keeps=True
    ),
    "search": Run(f"train randsvm {SMALL} -v 3 -c 1,8 two m"),
    "precomputed": Run("train randsvm -t precomputed --jobs 1 -q gram m"),
    "sgd": Run("train sgd --jobs 1 -q --epochs 2 three m"),
    "update": Run("train sgd --jobs 1 -q --update linear two m"),
    "cache": Run(f"train randsvm {SMALL} --cache c two m", ("m", "c")),
    "table": Run("train randsvm --format csv --label-column y --jobs 1 -q table m"),
    "predict": Run("predict -q --jobs 1 -b 1 two kernel o", ("o",), ()),
    "export": Run("predict export -q c kernel o", ("o",), ()),
}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    y, X = oracle.two_gaussians(60)
    oracle.write_svmlight(folder / "two", y, X)
    oracle.write_svmlight(folder / "targets", X[:, 0] * 3, X)
    classes = np.arange(60) % 3
    oracle.write_svmlight(folder / "three", classes, X + 3 * np.eye(3, 2)[classes])
    K = oracle.kernel_matrix("rbf", X[:40], X[:40], 0.5)
    oracle.write_rows(folder / "gram", y[:40], np.column_stack([np.arange(1, 41), K]), 0)
    lines = (
        f"{a},{'rs'[i % 2]},{label:g}\n" for i, (label, (a, _)) in enumerate(zip(y, X, strict=True))
    )
    (folder / "table").write_text("x,kind,y\n" + "".join(lines))
    run_train("randsvm", "-q", "-g", 5, "-b", 1, folder / "two", folder / "kernel")
    run_train("sgd", "-q", folder / "two", folder / "linear")
    return folder


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", RUNS)
def test_no_fault_at_any_moment_loses_a_file(
    inputs,
    tmp_path,
    monkeypatch,
    fuzzes,
    name,
    fault,
):
    run = RUNS[name]
    for file in run.words.split():
        if (inputs / file).exists():
            (tmp_path / file).write_bytes((inputs / file).read_bytes())
    if "m" in run.outputs:
        (tmp_path / "m").write_text(OLD_MODEL)
    monkeypatch.chdir(tmp_path)
    check_every_fault(run, fault, tmp_path, 10**6 if fuzzes else 6)
