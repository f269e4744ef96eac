"""randsvm-predict info: what a model file is, whoever wrote it."""

import json
import os
import re

import click
import pytest
from commands import run_predict
from learning import gaussians, learn
from libsvm import svmutil

from randsvm.errors import InputError

DATA = gaussians(60)


@pytest.fixture
def info(capsys):
    def of(model):
        run_predict("info", model, "--report", "json")
        return json.loads(capsys.readouterr().out)

    return of


@pytest.fixture
def data(tmp_path):
    return DATA.save(tmp_path / "data")


def test_a_model_says_what_it_is_and_how_it_was_made(tmp_path, info, data):
    trained = learn("randsvm", data, tmp_path / "m", "-g", 0.5, "-c", 2, "--gap", 0.01, "-b", 1)
    os.utime(trained.model, (0, 86_400))
    found = info(trained.model)
    model = svmutil.svm_load_model(str(trained.model))
    assert found["support_vectors"] == model.get_nr_sv()
    assert (found["kernel"], found["gamma"], found["C"]) == ("rbf", model.param.gamma, 2)
    assert (found["format"], found["task"], found["labels"]) == ("libsvm", "svc", ["+1", "-1"])
    assert (found["n"], found["d"], found["features"], found["seed"]) == (60, 2, 2, 0)
    assert found["probabilities"] is True
    assert found["made"] == "1970-01-02T00:00:00Z"
    for name in ("gap", "primal", "dual", "violators", "stopped"):
        assert found[name] == trained.outcome[name]
    assert found["configuration"] == trained.metadata["configuration"]
    assert re.fullmatch("[0-9a-f]{64}", trained.metadata["digest"])


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("-t 0", {"task": "svc", "kernel": "linear", "labels": ["1", "-1"]}),
        ("-t 1 -d 2 -r 1 -g 3", {"kernel": "poly", "degree": 2, "coef0": 1, "gamma": 3}),
        ("-s 3 -t 3 -g 0.1", {"task": "svr", "kernel": "sigmoid", "labels": []}),
        ("-s 2 -n 0.1", {"task": "one-class", "kernel": "rbf"}),
    ],
)
def test_a_model_of_libsvm(tmp_path, info, words, expected):
    model = svmutil.svm_train(DATA.y.tolist(), DATA.X.tolist(), f"-q {words}")
    svmutil.svm_save_model(str(tmp_path / "m"), model)
    found = info(tmp_path / "m")
    assert {name: found[name] for name in expected} == expected
    assert found["support_vectors"] == model.get_nr_sv()
    assert (found["version"], found["gap"], found["configuration"]) == (None, None, None)


@pytest.mark.parametrize(
    ("words", "word"), [((), "none"), (("--gap", 0.1), "proven"), (("-s", 2), "none")]
)
def test_the_gap_of_a_linear_machine_is_proven(tmp_path, info, data, words, word):
    learnt = learn("sgd", data, tmp_path / "m", *words)
    found = info(learnt.model)
    assert (found["certificate"], found["gap"]) == (word, learnt.outcome["gap"])


def test_info_takes_one_model_and_a_prediction_three_files(tmp_path):
    for words in (["info"], ["predict"], ["x"], ["x", "y"]):
        with pytest.raises(click.UsageError, match=r"[Mm]issing"):
            run_predict(*words)
    with pytest.raises(click.UsageError, match="unexpected extra argument"):
        run_predict("info", "m", "a")
    with pytest.raises(InputError, match="cannot open"):
        run_predict("info", tmp_path / "none")
