"""Run libraries that have no command line as processes: readers, machines of scikit-learn and of
scikit-learn-intelex, LIBSVM on all cores, objectives.

Usage: `peers.py FUNCTION ARGUMENT ...`. Only `read` imports randsvm, which the environment of
scikit-learn-intelex does not have.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from sklearn import datasets
from sklearn.model_selection import GridSearchCV, StratifiedKFold


@contextmanager
def clocked(name: str) -> Iterator[None]:
    """Print the seconds of the block as `NAME S`, which the harness reads."""
    began = time.perf_counter()
    yield
    print(f"{name} {time.perf_counter() - began}")


def read(path: str) -> None:
    """With our reader, in one thread; prints what was read, and the seconds without imports."""
    from randsvm.data.dataset import load
    from randsvm.data.svmlight import ParseOptions
    from randsvm.parameters.run import Resources

    with clocked("seconds"):
        D = load((path,), ParseOptions(), Resources(jobs=1))
    values: list[Any] = [chunk.X.data for shard in D.shards for chunk in D.chunks(shard)]
    print(f"rows {D.n}\nnonzeros {sum(map(len, values))}")
    print(f"sum {sum(part.sum(dtype='float64') for part in values)}")


def load_svmlight_file(path: str) -> None:
    """Do what `read` does with scikit-learn's reader."""
    with clocked("seconds"):
        X, y = datasets.load_svmlight_file(path, dtype=np.float32)
    print(f"rows {len(y)}\nnonzeros {X.nnz}\nsum {X.data.sum(dtype='float64')}")


def load(
    path: str, features: int | None = None
) -> tuple[sparse.csr_matrix | np.ndarray, np.ndarray]:
    """Return X, (m, features), and y. X is dense if more than an eighth of its values are not 0:
    scikit-learn-intelex is then faster."""
    X, y = datasets.load_svmlight_file(path, zero_based=False)
    X.resize(X.shape[0], features or X.shape[1])
    return (X.toarray() if 8 * X.nnz > X.shape[0] * X.shape[1] else _narrow(X)), y


def _narrow(X: sparse.csr_matrix) -> sparse.csr_matrix:
    """Return X with the 32-bit indices that scikit-learn needs."""
    X.indices, X.indptr = X.indices.astype("int32"), X.indptr.astype("int32")
    return X


# LIBSVM's numbers of the tasks and kernels -> its words for them.
SVM_TYPES = {"0": "c_svc", "3": "epsilon_svr"}
KERNELS = {"0": "linear", "2": "rbf"}


def _options(words: tuple[str, ...]) -> tuple[dict[str, str], dict[float, float]]:
    """Options in LIBSVM's letters, and class weights: label -> weight."""
    pairs = dict(zip(words[::2], words[1::2], strict=True))
    weights = {float(name[2:]): float(pairs.pop(name)) for name in list(pairs) if name[1] == "w"}
    usual = {"-s": "0", "-t": "2", "-c": "1", "-p": "0.1", "-e": "0.001"}
    return usual | pairs, weights


def machine(train: str, model: str, *words: str) -> None:
    """Train SVC or SVR of scikit-learn-intelex, and write the model in LIBSVM's format.

    words: options of LIBSVM; the cache has 2 GB. Prints the seconds as `fit S`.
    """
    options, weights = _options(words)
    svm = import_module("sklearnex.svm")
    X, y = load(train)
    kernel = KERNELS[options["-t"]]
    common = {"kernel": kernel, "cache_size": 2000, "tol": float(options["-e"])}
    if kernel == "rbf":
        common["gamma"] = float(options["-g"])
    C, task = float(options["-c"]), SVM_TYPES[options["-s"]]
    if task == "c_svc":
        learner = svm.SVC(C=C, class_weight=weights or None, **common)
    else:
        learner = svm.SVR(C=C, epsilon=float(options["-p"]), **common)
    with clocked("fit"):
        learner.fit(X, y)
    _write(learner, task, model)


def _write(learner: Any, task: str, path: str) -> None:
    """Write a machine of scikit-learn in LIBSVM's format.

    Both group support vectors by class. For two classes scikit-learn's f > 0 predicts the second
    class; for more classes it is a vote for the first class of the pair, as in LIBSVM.
    """

    beta, Z = learner.dual_coef_, learner.support_vectors_
    beta = np.atleast_2d(beta.toarray() if hasattr(beta, "toarray") else beta)
    Z = _narrow(Z) if hasattr(Z, "toarray") else Z
    order = np.arange(Z.shape[0])
    lines = [f"svm_type {task}", f"kernel_type {learner.kernel}"]
    lines += [f"gamma {learner.gamma!r}"] if learner.kernel == "rbf" else []
    labels = list(learner.classes_) if task == "c_svc" else []
    counts = list(learner.n_support_)
    if len(labels) == 2:
        labels.reverse()
        order = np.argsort(beta[0] < 0, kind="stable")
        counts = [(beta[0] > 0).sum(), (beta[0] < 0).sum()]
    rho = " ".join(repr(-float(value)) for value in np.ravel(learner.intercept_))
    lines += [f"nr_class {len(labels) or 2}", f"total_sv {len(order)}", f"rho {rho}"]
    if labels:
        lines += [f"label {' '.join(f'{label:g}' for label in labels)}"]
        lines += [f"nr_sv {' '.join(str(count) for count in counts)}"]
    text = io.BytesIO()
    datasets.dump_svmlight_file(Z[order], np.zeros(len(order)), text, zero_based=False)
    with Path(path).open("w") as out:
        out.write("\n".join([*lines, "SV", ""]))
        for own, row in zip(beta[:, order].T, text.getvalue().decode().splitlines(), strict=True):
            words = " ".join(repr(float(value)) for value in own)
            out.write(f"{words} {row.partition(' ')[2]}\n")


def libsvm(train: str, model: str, *words: str) -> None:
    """LIBSVM through libsvm-official's own bindings, OpenMP on all cores, scikit-learn's reader.

    The bindings' own reader takes longer than the fit. Prints the seconds of that as `fit S`.
    """
    os.environ["OMP_NUM_THREADS"] = str(os.cpu_count())
    from libsvm import svmutil

    X, y = load(train)
    problem = svmutil.svm_problem(y, sparse.csr_matrix(X))
    options = svmutil.svm_parameter(" ".join([*words, "-q", "-m", "2000"]))
    with clocked("fit"):
        found = svmutil.svm_train(problem, options)
    svmutil.svm_save_model(model, found)


def sgd(train: str, model: str, lambda_: str) -> None:
    """Train SGDClassifier; the seed is fixed, as seeds change the accuracy by up to 2 points."""
    from sklearn.linear_model import SGDClassifier

    X, y = load(train)
    learner = SGDClassifier(loss="hinge", alpha=float(lambda_), random_state=0)
    Path(model).write_bytes(pickle.dumps(learner.fit(X, y)))


def linear(
    program: str, train: str, model: str, loss: str, cost: str, tolerance: str, threads: str
) -> None:
    """Train a linear machine of two classes without an offset; write its weights, one a line.

    program: a package; loss: hinge or squared-hinge. Prints the seconds of the fit as `fit S`. The
    weights are for the labels 1 and -1.
    """
    X, y = load(train)
    y, C, tol, jobs = np.where(y > 0, 1.0, -1.0), float(cost), float(tolerance), int(threads)
    squared = loss == "squared-hinge"
    machine: Any
    if program == "liblinear-multicore":
        # Its reader of arrays takes long; that time counts as reading.
        from liblinear import liblinearutil

        problem = liblinearutil.problem(y, sparse.csr_matrix(X))
        words = f"-s {1 if squared else 3} -c {C} -e {tol} -m {jobs} -q"
        options = liblinearutil.parameter(words)
        with clocked("fit"):
            machine = liblinearutil.train(problem, options)
        w = np.array(machine.get_decfun()[0])
    else:
        if program == "scikit-learn":
            machine = import_module("sklearn.svm").LinearSVC(
                loss=loss.replace("-", "_"), C=C, tol=tol, max_iter=10**6, fit_intercept=False
            )
        elif program == "snapml":
            machine = import_module("snapml").SupportVectorMachine(
                regularizer=1 / C, tol=tol, n_jobs=jobs, max_iter=10**4
            )
        elif program == "cyanure":
            # lambda / 2 |w|^2 + mean of half the squares.
            X = np.ascontiguousarray(X) if isinstance(X, np.ndarray) else X
            machine = import_module("cyanure.estimators").Classifier(
                loss="sqhinge", penalty="l2", lambda_1=1 / (2 * C * X.shape[0]), tol=tol,
                fit_intercept=False, verbose=False, max_iter=10**4, n_threads=jobs,
            )  # fmt: skip
        else:
            X = X if isinstance(X, np.ndarray) else X.toarray()
            machine = import_module("rehline").plq_Ridge_Classifier(
                loss={"name": "svm"}, C=C, tol=tol, max_iter=10**6, fit_intercept=False
            )
        with clocked("fit"):
            machine.fit(X, y)
        w = np.ravel(machine.coef_)
    np.savetxt(model, w)


def score(test: str, model: str) -> None:
    """Print the accuracy of a model of `sgd` as LIBLINEAR's programs do."""
    learner = pickle.loads(Path(model).read_bytes())
    X, y = load(test, learner.n_features_in_)
    print(f"Accuracy = {100 * learner.score(X, y)}%")


def objective(train: str, model: str, lambda_: str, loss: str = "hinge") -> None:
    """Print J = lambda/2 |w|^2 + mean loss of a model of two classes, b not regularised.

    model: a file of `sgd` or of `linear`, or of LIBLINEAR's format, by randsvm or by LIBLINEAR;
    loss: hinge or squared-hinge
    """
    content = Path(model).read_bytes()
    if content.startswith(b"solver_type"):
        head, _, tail = content.partition(b"\nw\n")
        metadata = dict(line.split(maxsplit=1) for line in head.splitlines())
        w = np.array([float(line) for line in tail.split(b"\n# ")[0].split()])
        bias = float(metadata[b"bias"])
        # A negative one is none.
        w, b = w[: int(metadata[b"nr_feature"])], w[-1] * bias if bias >= 0 else 0.0
        first = float(metadata[b"label"].split()[0])
    elif not content.startswith(b"\x80"):
        w, b, first = np.array(content.split(), float), 0.0, 1.0
    else:
        learner = pickle.loads(content)
        w, b, first = learner.coef_[0], learner.intercept_[0], learner.classes_[1]
    X, y = load(train, len(w))
    margin = np.where(y == first, 1, -1) * (X @ w + b)
    losses = np.maximum(0, 1 - margin) ** (2 if loss == "squared-hinge" else 1)
    print(f"J {float(lambda_) / 2 * w @ w + losses.mean()}")


def search(train: str, found: str, costs: str, gammas: str) -> None:
    """Search C and gamma in five folds with scikit-learn-intelex, one by one: a fit uses all cores.

    Write the best score in percent to the file `found`, as JSON. costs, gammas: the values,
    separated by commas.
    """
    both = zip(("C", "gamma"), (costs, gammas), strict=True)
    grid = {name: [float(value) for value in values.split(",")] for name, values in both}
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    SVC = import_module("sklearnex.svm").SVC
    best = GridSearchCV(SVC(cache_size=500), grid, cv=folds).fit(*load(train)).best_score_
    Path(found).write_text(json.dumps({"score": 100 * float(best)}))


FUNCTIONS = {
    each.__name__: each
    for each in (
        read,
        load_svmlight_file,
        machine,
        libsvm,
        sgd,
        linear,
        score,
        objective,
        search,
    )
}

if __name__ == "__main__":
    FUNCTIONS[sys.argv[1]](*sys.argv[2:])
