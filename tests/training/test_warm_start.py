"""Test --warm-start: an old model and today's rows give the same optimum in far fewer rounds."""

import math
from typing import NamedTuple

import numpy as np
import oracle
import pytest
from learning import Data, Finished, gaussians, kernel, learn

OLD, NEW = 3000, 3060
WORDS = "-t 2 -g 1"
KINDS = {
    "randsvm --gap": ("randsvm", "--gap", 1e-3, "--sample-size", 300),
    "randsvm": ("randsvm", "-k", 999, "--sample-size", 1000),
    "osuna": ("osuna", "--working-set", 300),
}


@pytest.fixture(scope="module")
def today():
    return gaussians(NEW)


@pytest.fixture(scope="module")
def yesterday(today):
    """Return today's rows without the last 2%."""
    return Data(today.y[:OLD], today.X[:OLD])


@pytest.mark.parametrize("algorithm", ["randsvm", "osuna"])
def test_the_same_rows_take_one_or_two_rounds(tmp_path, today, algorithm):
    words = (*KINDS["osuna" if algorithm == "osuna" else "randsvm --gap"][1:], *WORDS.split())
    path = today.save(tmp_path / "data")
    old = learn(algorithm, path, tmp_path / "old.model", *words)
    again = learn(algorithm, path, tmp_path / "again.model", *words, "--warm-start", old.model)
    assert len(again.rounds) <= 2 < len(old.rounds)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("names", [{1.0: "7", -1.0: "3"}, {1.0: "spam", -1.0: "ham"}], ids=str)
def test_labels_may_appear_in_another_order(tmp_path, yesterday, today, names, kind):
    """The first label of a file is the positive class, so f may have to change its sign."""
    algorithm, *words = (*KINDS[kind], *WORDS.split())
    order = [np.argsort(sign * today.y, kind="stable")[:1] for sign in (1, -1)]
    one, other = (np.concatenate([first, np.arange(NEW)]) for first in order)
    old_path, new_path = (
        oracle.write_rows(tmp_path / name, [names[y] for y in today.y[rows]], today.X[rows])
        for name, rows in (("old", one[: OLD + 1]), ("new", other))
    )
    old = learn(algorithm, old_path, tmp_path / "old.model", *words)
    cold = learn(algorithm, new_path, tmp_path / "cold.model", *words)
    warm = learn(algorithm, new_path, tmp_path / "warm.model", *words, "--warm-start", old.model)
    labels = {tuple(model.metadata["labels"]) for model in (old, warm)}
    assert labels == {tuple(names.values()), tuple(reversed(names.values()))}
    optimum = float(cold.metadata["dual"])
    assert warm.rounds[0]["dual"] >= 0.9 * optimum
    assert float(warm.metadata["primal"]) == pytest.approx(float(cold.metadata["dual"]), rel=1e-3)


@pytest.mark.parametrize("multiclass", ["ovo", "ovr"])
def test_three_labels_may_appear_in_another_order(tmp_path, multiclass):
    y, X = oracle.clouds(600)
    kept = np.isin(y, np.unique(y)[:3])
    y, X = y[kept], X[kept]
    first = [int(np.flatnonzero(y == label)[0]) for label in np.unique(y)]
    words, found = ("-g", 0.2, "--multiclass", multiclass), []
    for name, order in (("old", [0, 1, 2]), ("new", [1, 2, 0])):
        rows = np.concatenate([[first[k] for k in order], np.arange(len(y))])
        path = oracle.write_rows(tmp_path / name, [f"l{label:g}" for label in y[rows]], X[rows])
        more = ("--warm-start", found[0].model) if found else ()
        found.append(learn("osuna", path, tmp_path / f"{name}.m", *words, *more))
    old, new = found
    assert old.metadata["labels"] == [new.metadata["labels"][k] for k in (2, 0, 1)]
    assert len(new.rounds) <= 2 * 3
    begun = {one["machine"]: one["gap"] for one in reversed(new.rounds)}
    assert max(begun.values()) <= 0.002


# ---- the first step ------------------------------------------------------------------------------


class Start(NamedTuple):
    """Coefficients over all rows, before and after the first step of a warm start."""

    old: np.ndarray
    new: np.ndarray
    learnt: Finished


def start(
    folder, old, new,
    before, after, weights=None,
):  # fmt: skip
    """Return distinct rows; both sets begin with the same rows. weights: of the new rows."""
    paths, betas = [], []
    for name, (y, X), own in (("old", old, None), ("new", new, weights)):
        paths.append(oracle.write_rows(folder / name, y, X, 1, own))
    gap = () if "one-class" in before else ("--gap", 1e-4)
    first = learn("randsvm", paths[0], folder / "old.model", *before.split(), *gap)
    words = (*after.split(), "--warm-start", first.model, "--max-iterations", 1, "--gap", 1e-9)
    second = learn("randsvm", paths[1], folder / "new.model", *words)
    places = {tuple(x): i for i, x in enumerate(new[1])}
    for model in (first.model, second.model):
        found = oracle.read_model(model, new[1].shape[1])
        beta = np.zeros(len(new[1]))
        beta[[places[tuple(z)] for z in oracle.as_float32(found.Z)]] = found.beta
        betas.append(beta)
    return Start(*betas, second)


@pytest.mark.parametrize(("before", "after"), [(1, 4), (1, 0.3), (0.7, 0.7), (3, 1000)])
def test_coefficients_scale_with_c_and_bounded_ones_stay_bounded(tmp_path, before, after):
    data = gaussians(400)
    begun = start(tmp_path, data, data, f"{WORDS} -c {before}", f"-c {after}")
    bounded = np.abs(begun.old) == before
    assert 20 < bounded.sum() < np.count_nonzero(begun.old)
    assert set(np.abs(begun.new[bounded])) == {float(after)}
    assert begun.new == pytest.approx(begun.old * after / before, rel=1e-9)
    assert abs(math.fsum(begun.new)) <= 1e-12 * np.abs(begun.new).sum()


@pytest.mark.parametrize("own", [False, True], ids=["classes", "rows"])
@pytest.mark.parametrize("weights", ["-w 1 0.5", "-w 1 3 -w -1 0.2", "-w 1 20"])
def test_weights_clip_coefficients_and_the_sum_is_restored(tmp_path, weights, own):
    """own: whether rows have weights too."""
    y, X = gaussians(400)
    of_rows = np.random.default_rng(5).exponential(size=400) if own else np.ones(400)
    begun = start(tmp_path, (y, X), (y, X), WORDS, weights, of_rows)
    letters = weights.split()
    named = dict(zip(letters[1::3], map(float, letters[2::3]), strict=True))
    upper = of_rows * np.where(y > 0, named.get("1", 1.0), named.get("-1", 1.0))
    alpha = y * begun.new
    assert ((alpha >= 0) & (alpha <= upper)).all()
    assert abs(math.fsum(begun.new)) <= 1e-12 * alpha.sum()
    clipped = np.minimum(y * begun.old, upper)
    short = 1 if clipped[y > 0].sum() < clipped[y < 0].sum() else -1
    at_bound = (clipped == upper) & (y == short)
    assert (alpha[at_bound] == upper[at_bound]).all()


def targets(X):
    return np.round(np.sin(X[:, 0]) + X[:, 1] / 2, 4)


@pytest.mark.parametrize("nu", [0.1, 0.2, 0.4])
def test_novelty_detection_adjusts_the_sum_of_coefficients(tmp_path, nu):
    """The rows grow from 600 with nu = 0.2 to 660."""
    X = gaussians(660).X
    y = np.ones(660)
    begun = start(tmp_path, (y[:600], X[:600]), (y, X), "-s one-class -n 0.2 -g 1", f"-n {nu}")
    assert ((begun.new >= 0) & (begun.new <= 1)).all()
    assert math.fsum(begun.new) == pytest.approx(nu * 660, rel=1e-12)
    assert np.count_nonzero((begun.new > 0) & (begun.new < 1)) <= 1 + np.count_nonzero(
        (begun.old > 0) & (begun.old < 1)
    )
    if nu > 0.1:
        assert (begun.new >= begun.old).all()
        u = kernel("-g 1", X, X) @ begun.old
        added = begun.new > begun.old
        assert u[added].max() <= u[begun.new < 1].min() + 1e-5


@pytest.mark.parametrize("scale", ["minmax", "standard"])
def test_rows_are_found_by_the_features_of_a_scaled_model(tmp_path, scale):
    """Today's rows have a feature more."""
    y, X = gaussians(400)
    more = np.column_stack([X, np.random.default_rng(2).normal(size=len(y)).round(3)])
    paths = [oracle.write_rows(tmp_path / f"d{k}", y, each) for k, each in enumerate((X, more))]
    words = ("--scale", scale, "-t", 2, "-g", 0.1)
    old = learn("randsvm", paths[0], tmp_path / "old.model", *words)
    new = learn("randsvm", paths[1], tmp_path / "m", *words, "--warm-start", old.model)
    assert not [text for text in new.notices if "starts from nothing" in text]


# ---- parameters -------------------------------------------------------------------------------


def test_options_default_to_those_of_the_model(tmp_path):
    X = gaussians(200).X
    path = oracle.write_rows(tmp_path / "data", targets(X), X)
    given = "-s svr -t poly -d 2 -g 0.25 -r 1.5 -c 3 -p 0.2"
    words = given.split()
    old = learn("osuna", path, tmp_path / "old.model", *words)
    new = learn("osuna", path, tmp_path / "new.model", "-c", 2, "--warm-start", old.model)
    assert new.notices[0] == f"as in {old.model}: -s svr -t poly -d 2 -g 0.25 -r 1.5 -p 0.2"
    assert new.metadata["configuration"] == old.metadata["configuration"].replace("-c 3", "-c 2")
    own = learn("osuna", path, tmp_path / "m", *words, "--warm-start", old.model)
    assert own.notices == []
