"""Test numbers near the limits of float32: a finite model or one line of an error, never nan or
inf.
"""

import re

import numpy as np
import oracle
import pytest
from commands import run_predict
from learning import learn
from scans import KEEP_ALL, case, problem, solve

from randsvm.errors import ContentError, ParameterError
from randsvm.events import Notice, listening

NOT_FINITE = re.compile(r"\b(nan|inf|infinity)\b", re.IGNORECASE)


# ---- messages of LIBSVM --------------------------------------------------------------------------


def notices_of_a_solve(folder, rows, C):
    y, X = oracle.two_gaussians(rows)
    path = oracle.write_svmlight(folder / "data", y, X)
    asked = problem("linear", C=C, tolerance=1e-6)
    events = []
    with case(path, y, X, asked) as one, listening(events.append):
        step = solve(one.scan, np.arange(rows), whole=True)
        for _ in range(2):
            one.scan.after(step, KEEP_ALL)
    return [event.text for event in events if isinstance(event, Notice)]


@pytest.mark.slow
def test_a_solve_that_reaches_libsvms_iteration_limit_is_noted_once(tmp_path, capfd):
    (said,) = notices_of_a_solve(tmp_path, 40, C=1e9)
    assert said.startswith("LIBSVM reached its limit of iterations")
    assert said.endswith("lower -c, the likely cause, or scale the features")
    assert not capfd.readouterr().out  # LIBSVM's own message appears on stderr only


# ---- extreme data --------------------------------------------------------------------------------


def clouds(rows=240):
    return oracle.two_gaussians(rows)


def with_typos():
    y, X = clouds()
    X[::60] *= 1e30
    return y, oracle.as_float32(X)


def with_zero_rows():
    y, X = clouds()
    X[::2] = 0
    return y, X


def contradicting():
    """Return every row twice, once with each label."""
    X = clouds(120)[1]
    return np.tile([1.0, -1.0], 120), np.repeat(X, 2, axis=0)


def rare():
    """Return data with 0.01% positives."""
    X = oracle.as_float32(np.random.default_rng(3).normal(size=(30_000, 2)))
    y = np.full(30_000, -1.0)
    y[[5, 15_000, 29_999]] = 1.0
    return y, X


def times(scale):
    y, X = clouds()
    return y, oracle.as_float32(X * scale)


LARGEST = float(np.finfo(np.float32).max)
DATA = {
    "1e30": lambda: times(1e30),
    "largest": lambda: (clouds()[0], np.sign(clouds()[1]) * LARGEST),
    "1e6": lambda: times(1e6),
    "denormal": lambda: times(1e-44),
    "one large feature": lambda: times([1e30, 1.0]),
    "one denormal feature": lambda: times([1e-44, 1.0]),
    "typos": with_typos,
    "zero rows": with_zero_rows,
    "all zero": lambda: times(0.0),
    "constant": lambda: (clouds()[0], np.full((240, 2), 5.0)),
    "contradicting": contradicting,
    "plain": clouds,
}
SMALL = ("--max-iterations", 2)
RUNS = {
    "randsvm": ("randsvm", *SMALL, "-k", 100, "--sample-size", 200),
    "randsvm linear": ("randsvm", *SMALL, "-t", "linear", "--sample-size", 200),
    "randsvm poly": ("randsvm", *SMALL, "-t", "poly", "-g", 1, "-r", 1, "--sample-size", 200),
    "randsvm map": ("randsvm", *SMALL, "--components", 20, "--sample-size", 200),
    "osuna": ("osuna", *SMALL, "--working-set", 100),
    "osuna sigmoid": ("osuna", *SMALL, "-t", "sigmoid", "--working-set", 100),
    "osuna svr": ("osuna", *SMALL, "-s", "svr", "--working-set", 100),
    "one-class": ("randsvm", *SMALL, "-s", "one-class", "-n", 0.1),
    "sgd": ("sgd",),
    "sgd log": ("sgd", "--loss", "log", "--average"),
    "sgd svr": ("sgd", "-s", "svr", "-c", 1e9),
    "sgd map": ("sgd", "-t", "rbf", "--components", 20),
    "sgd poly map": ("sgd", "-t", "poly", "-r", 1, "--components", 20),
}
ENDS = {
    "tiny C": ("-c", 1e-9),
    "huge C": ("-c", 1e9),
    "tiny gamma": ("-g", 1e-12),
    "huge gamma": ("-g", 1e12),
}
TOO_LARGE = re.compile(
    r"values of the (linear|poly) kernel reach [0-9.]+e\+[0-9]+ on this data, .*scale the features"
    r"|random features of .* leave float32 on this data: scale it or lower gamma"
)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("numbers")

    def find(name):
        path = folder / name
        if not path.exists():
            oracle.write_svmlight(path, *(rare if name == "rare" else DATA[name])())
        return path

    return find


def assert_finite(learnt, data):
    """Check that the model has no nan or inf, that LIBSVM or LIBLINEAR loads it, and that all rows
    get a number.

    Gaps and bounds that are not finite are null.
    """
    text = learnt.model.read_text()
    assert NOT_FINITE.findall(text) == []
    scores = learnt.model.with_name("scores")
    run_predict("--scores", data, learnt.model, scores)
    f = np.array(scores.read_text().split(), float)
    assert len(f) == len(data.read_text().splitlines())
    assert np.isfinite(f).all()


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("name", DATA)
def test_extreme_data_gives_a_finite_model_or_is_refused_for_its_magnitude(
    files, tmp_path, name, run
):
    data = files(name)
    try:
        learnt = learn(RUNS[run][0], data, tmp_path / "m", *RUNS[run][1:])
    except (ParameterError, ContentError) as error:
        assert TOO_LARGE.fullmatch(str(error))
        assert name in ("1e30", "1e6", "largest", "one large feature", "typos")
        assert not (tmp_path / "m").exists()
        return
    assert_finite(learnt, data)


@pytest.mark.parametrize("run", ["randsvm", "osuna", "one-class", "sgd", "sgd map"])
@pytest.mark.parametrize("end", ENDS)
def test_parameters_at_their_limits_give_a_finite_model(files, tmp_path, run, end):
    if run == "sgd" and "gamma" in end:
        pytest.skip("a linear machine has no gamma")
    data, words = files("zero rows"), [*RUNS[run][1:], "--seed", 1, *ENDS[end]]
    assert_finite(learn(RUNS[run][0], data, tmp_path / "m", *words), data)


@pytest.mark.parametrize("run", ["randsvm", "randsvm linear", "osuna", "sgd", "sgd map"])
def test_one_positive_in_ten_thousand_gives_a_finite_model(files, tmp_path, run):
    data = files("rare")
    assert_finite(learn(RUNS[run][0], data, tmp_path / "m", *RUNS[run][1:]), data)
