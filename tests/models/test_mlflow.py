"""The example of docs/export.md: MLflow serves a model file."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas
import pytest

import randsvm

pytest.importorskip("mlflow")
PAGE = Path(__file__).parents[2] / "docs" / "export.md"


def test_mlflow_serves_a_model_file_as_the_page_says(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    section = PAGE.read_text().partition("\n## MLflow")[2].partition("\n## ")[0]
    served, program = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    X = np.random.default_rng(0).normal(size=(200, 2))
    (tmp_path / "results").mkdir()
    fitted = randsvm.train(
        randsvm.Arrays(X, X[:, 0] > X[:, 1]), tmp_path / "results" / "board.model", gamma=1
    )
    (tmp_path / "served.py").write_text(served)
    pandas.DataFrame(X).to_csv(tmp_path / "rows.csv", index=False)
    program = f"import pandas\nrows = pandas.read_csv('rows.csv')\n{program}"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = (tmp_path / "labels.txt").read_text().split()
    assert found == [str(int(label)) for label in fitted.predict(X)]
