"""Train and predict with an installed randsvm, wherever Python finds it: `smoke.py DATA`.

Uses nothing but its five dependencies. Raises an error if a result is wrong.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import tempfile
from importlib import metadata, resources
from pathlib import Path

import randsvm

MIN_ACCURACY = 85.0


def main(data: str) -> None:
    names = {name.lower() for name in metadata.requires("randsvm") or [] if "extra" not in name}
    assert len(names) == 5, f"expected five dependencies, found {sorted(names)}"
    for name in ("py.typed", "__init__.pyi"):
        assert resources.files(randsvm).joinpath(name).is_file(), f"{name} is missing"
    programs = Path(sysconfig.get_path("scripts"))
    with tempfile.TemporaryDirectory() as folder:
        for algorithm in (["randsvm", "-g", "5", "--gap", "0.01"], ["sgd", "-t", "rbf", "-g", "5"]):
            model, output = f"{folder}/model", f"{folder}/output"
            run(programs / "randsvm-train", *algorithm, "-q", data, model)
            said = run(programs / "randsvm-predict", "-q", data, model, output)
            accuracy = float(said.split("=")[1].partition("%")[0])
            assert accuracy > MIN_ACCURACY, f"{algorithm[0]}: accuracy {accuracy}"
            said = run(programs / "randsvm-predict", "info", model)
            assert "labels" in said, said
        arrays = randsvm.Arrays([[0.0], [1.0], [2.0], [3.0]], [-1, -1, 1, 1])
        assert randsvm.train(arrays, gamma=1).predict([[0.5], [2.5]]).tolist() == [-1, 1]
    print(f"randsvm {randsvm.__version__} on Python {sys.version.split()[0]}: works")


def run(*words: object) -> str:
    return subprocess.run(
        list(map(str, words)), check=True, stdout=subprocess.PIPE, text=True
    ).stdout


if __name__ == "__main__":
    main(*sys.argv[1:])
