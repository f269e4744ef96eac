"""Test one against the rest: labels and values are those of scikit-learn's OneVsRestClassifier, and
LIBSVM refuses the model.
"""

import signal

import numpy as np
import oracle
import pytest
from learning import Data, in_order, learn
from oracle import write_rows
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import SVC
from trainings import refuse_subtasks

from randsvm import api
from randsvm.errors import Interrupted
from randsvm.events import Iteration

C, GAMMA = 2.0, 0.1
WORDS = ("-c", C, "-g", GAMMA, "--multiclass", "ovr")
ALGORITHMS = {
    "randsvm": ("randsvm", "-k", 399, "--sample-size", 400),
    "osuna": ("osuna", "--working-set", 150),
    "osuna-closest": ("osuna-closest", "--working-set", 150),
}


@pytest.fixture(scope="module")
def training_set():
    return Data(*oracle.clouds(600))


@pytest.fixture(scope="module")
def test_set():
    return Data(*oracle.clouds(600, 1))


@pytest.fixture(scope="module")
def training_file(training_set, tmp_path_factory):
    return training_set.save(tmp_path_factory.mktemp("classes") / "data")


def one_vs_rest(data, X, C, gamma, **more):
    """Return scikit-learn's decision values of rows X, a column for each label in order of
    appearance.
    """
    machines = OneVsRestClassifier(SVC(C=C, gamma=gamma, tol=1e-4, **more)).fit(data.X, data.y)
    return machines.decision_function(X)[:, np.searchsorted(machines.classes_, in_order(data.y))]


def matrix(lines):
    return np.array([line.split() for line in lines], float)


# ---- the model ----------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", [{}, {2.0: 5.0, 3.0: 0.2}], ids=["even", "weighted"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_certificate_is_the_sum_over_the_classes(
    tmp_path,
    training_file,
    training_set,
    algorithm,
    weights,
):
    words = [word for label, weight in weights.items() for word in ("-w", label, weight)]
    learnt = learn(algorithm, training_file, tmp_path / "m", *WORDS, *words)
    model = oracle.read_several(learnt.model, 5)
    assert list(map(float, model.labels)) == in_order(training_set.y)
    exact = oracle.several_objectives(model, *training_set, C, GAMMA, weights)
    assert float(model.metadata["primal"]) == pytest.approx(exact.primal, rel=1e-6)
    assert float(model.metadata["dual"]) == pytest.approx(exact.dual, rel=1e-6)
    assert 0 <= exact.gap < 0.005
    assert float(model.metadata["lambda"]) == pytest.approx(1 / (C * 600))
    assert learnt.outcome["J"] == pytest.approx(exact.primal / (C * 600), rel=1e-6)
    assert learnt.outcome["support_vectors"] == len(model.Z)
    most = C * np.where(model.beta > 0, [weights.get(float(word), 1.0) for word in model.labels], 1)
    assert learnt.outcome["bounded"] == (np.abs(model.beta) == most).any(axis=1).sum()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_scores_are_a_column_for_each_class(
    tmp_path,
    predict,
    training_file,
    training_set,
    test_set,
    algorithm,
):
    learnt = learn(algorithm, training_file, tmp_path / "m", *WORDS, "-e", 1e-4)
    test = test_set.save(tmp_path / "test")
    f = matrix(predict(test, learnt.model, "--scores").lines)
    assert f == pytest.approx(one_vs_rest(training_set, test_set.X, C, GAMMA), abs=2e-3)
    labels = np.array(in_order(training_set.y))[f.argmax(axis=1)]
    assert (predict(test, learnt.model).scores == labels).all()


NAMES = {
    "words": {1: "red", 2: "green", 3: "blue", 4: "4.5e"},
    "beyond int32": {1: 2**31, 2: -(2**31) - 1, 3: 2**62, 4: 0},
    "spellings": {1: "+1", 2: "2.0", 3: "3", 4: "4e0"},
}


@pytest.mark.parametrize("names", NAMES)
def test_predicted_labels_have_the_spelling_of_the_training_labels(
    tmp_path, predict, training_set, training_file, names
):
    """The spelling does not change the training."""
    spelled = [str(NAMES[names][label]) for label in training_set.y]
    learnt = learn(
        "randsvm",
        write_rows(tmp_path / "d", spelled, training_set.X),
        tmp_path / "m",
        *WORDS,
    )
    plain = learn("randsvm", training_file, tmp_path / "plain", *WORDS)
    said = predict(tmp_path / "d", learnt.model)
    assert said.lines == [
        str(NAMES[names][label]) for label in predict(training_file, plain.model).scores
    ]
    assert learnt.metadata["primal"] == plain.metadata["primal"]
    right = sum(one == other for one, other in zip(said.lines, spelled, strict=True))
    assert f"({right}/600)" in said.out


# ---- weights ------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", ["-w 2 5 -w 3 0.2", "-w2 5 -w3 0.2", "-w +2.0 5 -w3.0 0.2"])
def test_a_weight_multiplies_c_of_its_class_alone(
    tmp_path, predict, training_file, training_set, words
):
    """It applies to the rows of the class in its own machine; rows of the rest have weight 1."""
    given = {2.0: 5.0, 3.0: 0.2}
    learnt = learn("randsvm", training_file, tmp_path / "m", *WORDS, "-e", 1e-4, *words.split())
    f = matrix(predict(training_file, learnt.model, "--scores").lines)
    for label, column in zip(in_order(training_set.y), f.T, strict=True):
        weights = {True: given.get(label, 1.0), False: 1.0}
        own = SVC(C=C, gamma=GAMMA, tol=1e-4, class_weight=weights).fit(
            training_set.X, training_set.y == label
        )
        assert column == pytest.approx(own.decision_function(training_set.X), abs=5e-3)


@pytest.fixture(scope="module")
def uneven():
    """Classes of 300, 60, 30 and 15 rows."""
    y, X = oracle.clouds(1500, 2)
    sizes = {1: 300, 2: 60, 3: 30, 4: 15}
    parts = [np.flatnonzero(y == label)[:size] for label, size in sizes.items()]
    rows = np.sort(np.concatenate(parts))
    return Data(y[rows], X[rows])


@pytest.mark.parametrize("algorithm", ["randsvm", "osuna"])
def test_balanced_weights_are_computed_for_each_machine(tmp_path, predict, uneven, algorithm):
    training_file = uneven.save(tmp_path / "d")
    learnt = learn(algorithm, training_file, tmp_path / "m", *WORDS, "-e", 1e-4, "-w", "balanced")
    f = matrix(predict(training_file, learnt.model, "--scores").lines)
    balanced = one_vs_rest(uneven, uneven.X, C, GAMMA, class_weight="balanced")
    assert f == pytest.approx(balanced, abs=5e-3)
    assert f != pytest.approx(one_vs_rest(uneven, uneven.X, C, GAMMA), abs=0.1)


# ---- stopping -----------------------------------------------------------------------------------


class AtFirstRound:
    """A listener that calls a function at the first round of a class."""

    def __init__(self, machine, deed):
        self.machine, self.deed, self.done = machine, deed, False

    def __call__(self, event):
        if isinstance(event, Iteration) and event.machine == self.machine and not self.done:
            self.done = True
            self.deed()


def assert_two_classes_trained(model, training_set, predict, training_file, stopped):
    """Check that the first two machines are trained, and that P is that of the written model."""
    found = oracle.read_several(model, 5)
    assert (found.metadata["stopped"], found.metadata["certificate"]) == (stopped, "proven")
    assert found.metadata["violators"] is None
    assert np.count_nonzero(found.beta, axis=0)[:2].min() > 0
    assert np.count_nonzero(found.beta[:, 2:]) == 0
    exact = oracle.several_objectives(found, *training_set, C, GAMMA)
    assert float(found.metadata["primal"]) == pytest.approx(exact.primal, rel=1e-3)
    assert float(found.metadata["dual"]) <= exact.dual * (1 + 1e-3)
    # An untrained class has f = -1, so it is predicted if all other values are lower.
    f = matrix(predict(training_file, model, "--scores").lines)
    assert (f[:, 2:] == -1).all()


def test_a_signal_between_classes_keeps_the_trained_ones(
    tmp_path,
    predict,
    training_file,
    training_set,
    monkeypatch,
):
    """Rows of untrained classes are only counted, not read."""

    def strike():
        refuse_subtasks(monkeypatch)
        raise Interrupted(signal.SIGTERM)

    meddler, model = AtFirstRound(f"+{in_order(training_set.y)[1]:g}", strike), tmp_path / "m"
    given = {"C": C, "gamma": GAMMA, "multiclass": "ovr", "working_set": 100}
    with pytest.raises(Interrupted):
        api.train(training_file, model, "osuna", meddler, **given)
    assert_two_classes_trained(
        model, training_set, predict, training_file, "interrupted by signal 15"
    )


def test_weights_name_classes_by_the_exact_value_of_a_label(tmp_path):
    """These labels are different classes, and equal as float64."""
    labels = ["9007199254740992", "9007199254740993", "4e0"]
    data = write_rows(tmp_path / "d", labels * 20, np.random.default_rng(0).normal(size=(60, 2)))
    words = ("-w", "9007199254740993.0", 3, "-w", "+4", 5)
    learnt = learn("sgd", data, tmp_path / "m", *words)
    assert learnt.metadata["weights"] == [1, 3, 5]
