"""Test folds that start from a fit on all rows against folds that are trained from nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import oracle
import pytest
from task_sets import GAMMA, SETS, open_dataset

from randsvm.parameters.rounds import RandsvmParams, StopParams
from randsvm.parameters.run import Resources, Search
from randsvm.parameters.svm import Params
from randsvm.training import kernel_machine
from randsvm.training.cross_validation import CrossValidation
from randsvm.training.job import Job
from randsvm.training.labelled_data import LabelledData

TIGHT = 1e-7
TASKS: dict[str, tuple[str, dict[str, Any]]] = {
    "svc": ("svc", {}),
    "several": ("several", {}),
    "one against the rest": ("several", {"multiclass": "ovr"}),
    "class weights": ("svc", {"weights": (("-1", 3.0),)}),
    "svr": ("svr", {"task": "svr"}),
    "one-class": ("one-class", {"task": "one-class", "nu": 0.2}),
    "random features": ("svc", {"components": 30}),
}


@pytest.mark.parametrize("few_rows", [True, False])
@pytest.mark.parametrize("name", TASKS)
def test_decision_values_equal_those_of_folds_from_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, few_rows: bool
) -> None:
    kind, given = TASKS[name]
    if not few_rows:
        for module in ("running_values", "kernel_layout"):
            monkeypatch.setattr(f"randsvm.svm.{module}.FEW_ROWS", 0, raising=False)
    path = oracle.write_svmlight(tmp_path / "d", *SETS[kind])
    params = Params(**{"gamma": GAMMA, **given})
    job = Job(
        StopParams(gap=TIGHT),
        resources=Resources(jobs=1),
        search=Search(folds=3, search_gap=TIGHT),
    )
    make, params, job = kernel_machine.prepare(
        "randsvm", RandsvmParams(sample_size=None if few_rows else 40), params, job
    )
    with open_dataset(path, kind) as D:
        names = tuple(D.summary.names) if params.prediction_type == "svc" else ()
        trainer = make(LabelledData(D, names, tuple(D.summary.values)), job)
        params = trainer.resolved(params)
        fit = trainer.for_parts().fit_for_scores
        validation: CrossValidation[Params] = CrossValidation.of(D, 3, job, fit)
        seeded = trainer.seeded_fit()
        assert seeded is not None
        half = seeded.whole(D, replace(params, C=params.C / 2), None)
        whole = seeded.whole(D, params, half)
        for fold in validation.folds:
            held = validation.fold == fold
            cold = validation.run_fold(
                lambda one: np.concatenate([f for _, f, _ in one.values()]), params, fold
            )
            found = seeded.held_out(D, params, whole, held)
            assert found == pytest.approx(cold, abs=0.01 * float(np.abs(cold).max()))
