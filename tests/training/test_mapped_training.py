"""Test random features in whole runs of sgd, randsvm and osuna with --components."""

import numpy as np
import pytest
from kernel_sums import RandomMap
from learning import board, learn
from libsvm import svmutil
from scipy import sparse


@pytest.fixture
def checkerboards(tmp_path):
    return board(4000).save(tmp_path / "train"), board(2000, 1).save(tmp_path / "test")


@pytest.mark.parametrize("algorithm", ["randsvm --gap 1e-3", "osuna"])
def test_kernel_algorithms_solve_the_linear_svm_over_the_features(tmp_path, predict, algorithm):
    """LIBSVM's -t 0 on the mapped rows has the same objective and labels."""
    y, X = board(700)
    path = board(700).save(tmp_path / "data")
    name, *rest = algorithm.split()
    words = ("-t", "rbf", "-g", 2, "--components", 60, "--seed", 5, *rest)
    learnt = learn(name, path, tmp_path / "m", *words)
    features = RandomMap("rbf", 60, 2.0, 0.0, 3, 5).over(np.array([1, 2], np.int32))
    Z = features.values(sparse.csr_matrix(X.astype(np.float32))).astype(float)
    whole = svmutil.svm_train(y, sparse.csr_matrix(Z), "-q -t 0 -e 1e-4")
    coefficients = np.array([coefficient[0] for coefficient in whole.get_sv_coef()])
    w = coefficients @ Z[np.array(whole.get_sv_indices()) - 1]
    assert float(learnt.metadata["dual"]) == pytest.approx(
        np.abs(coefficients).sum() - w @ w / 2, rel=1e-3
    )
    f = Z @ w - whole.rho[0]
    mine = predict(path, learnt.model, "--scores").scores
    sure = np.abs(f) > 0.02
    assert (np.sign(mine) == np.sign(f))[sure].all()


def test_a_feature_that_training_lacks_does_not_change_a_prediction(
    checkerboards, tmp_path, predict
):
    """The random numbers of a feature depend only on its index."""
    train, test = checkerboards
    learnt = learn("sgd", train, tmp_path / "m", "-t", "rbf", "-g", 5, "--components", 100)
    more = tmp_path / "more"
    more.write_text("\n".join(f"{line} 7:1" for line in test.read_text().splitlines()) + "\n")
    plain, unseen = predict(test, learnt.model, "--scores"), predict(more, learnt.model, "--scores")
    assert plain.lines == unseen.lines
    assert "2000 values of 1 features that training never saw" in unseen.err
