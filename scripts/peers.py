"""Libraries as processes, where the harness finds no program: readers, scikit-learn, objectives.

Run as `peers.py FUNCTION ARGUMENT ...`, each function's own; imports what that function needs.
"""

from __future__ import annotations

import pickle
import sys
import time
from pathlib import Path


def read(path: str) -> None:
    """With our reader, in one thread; prints what was read, and the seconds without imports."""
    from randsvm.data.dataset import ParseOptions, load
    from randsvm.parameters.run import Resources

    began = time.perf_counter()
    D = load(path, ParseOptions(), Resources(jobs=1))
    print(f"seconds {time.perf_counter() - began}")
    values = [chunk.X.data for shard in D.shards for chunk in D.chunks(shard)]
    print(f"rows {D.n}\nnonzeros {sum(map(len, values))}")
    print(f"sum {sum(part.sum(dtype='float64') for part in values)}")


def load_svmlight_file(path: str) -> None:
    """The same with scikit-learn's reader."""
    import numpy as np
    from sklearn import datasets

    began = time.perf_counter()
    X, y = datasets.load_svmlight_file(path, dtype=np.float32)
    print(f"seconds {time.perf_counter() - began}")
    print(f"rows {len(y)}\nnonzeros {X.nnz}\nsum {X.data.sum(dtype='float64')}")


def _load(path: str, features: int | None = None):
    """X, y. X has so many features, and 32-bit indices, which scikit-learn's machines ask for; it
    is an array where more than half of it is there, as they are faster so."""
    from sklearn import datasets

    X, y = datasets.load_svmlight_file(path, zero_based=False)
    X.resize(X.shape[0], features or X.shape[1])
    X.indices, X.indptr = X.indices.astype("int32"), X.indptr.astype("int32")
    return (X.toarray() if 2 * X.nnz > X.shape[0] * X.shape[1] else X), y


def _save(machine: object, path: str) -> None:
    Path(path).write_bytes(pickle.dumps(machine))


def svc(train: str, model: str, C: str, gamma: str) -> None:
    from sklearn.svm import SVC

    X, y = _load(train)
    _save(SVC(C=float(C), gamma=float(gamma)).fit(X, y), model)


def intelex(task: str, train: str, model: str, C: str, gamma: str, weight: str = "1") -> None:
    """scikit-learn-intelex's SVC, SVR or OneClassSVM (C is then nu), as a model file of LIBSVM's.

    weight: of the first class. Prints the seconds of the fit alone as `fit S`.
    """
    import numpy as np
    from sklearn.datasets import dump_svmlight_file
    from sklearnex import svm

    X, y = _load(train)
    # It is faster on arrays, also where most of them is 0.
    X = X.toarray() if hasattr(X, "toarray") else X
    common = {"gamma": float(gamma), "cache_size": 2000}
    if task == "svc":
        weights = {max(y): float(weight)}
        machine = svm.SVC(C=float(C), class_weight=weights, **common)
    elif task == "svr":
        machine = svm.SVR(C=float(C), epsilon=0.1, **common)
    else:
        machine = svm.OneClassSVM(nu=float(C), **common)
    began = time.perf_counter()
    machine.fit(X, y)
    print(f"fit {time.perf_counter() - began}")
    beta, Z = np.ravel(machine.dual_coef_), machine.support_vectors_
    order = np.argsort(beta < 0, kind="stable")
    svm_type = {"svc": "c_svc", "svr": "epsilon_svr", "one-class": "one_class"}[task]
    lines = [f"svm_type {svm_type}", "kernel_type rbf", f"gamma {gamma}", "nr_class 2"]
    lines += [f"total_sv {len(beta)}", f"rho {-float(machine.intercept_[0])!r}"]
    if task == "svc":
        lines += [f"label {machine.classes_[1]:g} {machine.classes_[0]:g}"]
        lines += [f"nr_sv {(beta > 0).sum()} {(beta < 0).sum()}"]
    with Path(model).open("wb") as out:
        out.write("\n".join([*lines, "SV", ""]).encode())
        dump_svmlight_file(Z[order], beta[order], out, zero_based=False)


def sgd(train: str, model: str, lambda_: str) -> None:
    """A fixed seed, as the accuracy differs by up to 2 points between seeds."""
    from sklearn.linear_model import SGDClassifier

    X, y = _load(train)
    machine = SGDClassifier(loss="hinge", alpha=float(lambda_), random_state=0)
    _save(machine.fit(X, y), model)


def score(test: str, model: str) -> None:
    """Accuracy, as LIBSVM's svm-predict prints it."""
    machine = pickle.loads(Path(model).read_bytes())
    X, y = _load(test, machine.n_features_in_)
    print(f"Accuracy = {100 * machine.score(X, y)}%")


def objective(train: str, model: str, lambda_: str) -> None:
    """J = lambda/2 |w|^2 + mean hinge loss of two classes, b not regularised, computed here.

    model: of scikit-learn's as saved above, or LIBLINEAR's text, ours or its own.
    """
    import numpy as np

    content = Path(model).read_bytes()
    if content.startswith(b"solver_type"):
        head, _, tail = content.partition(b"\nw\n")
        facts = dict(line.split(maxsplit=1) for line in head.splitlines())
        w = np.array([float(line) for line in tail.split(b"\n# ")[0].split()])
        w, b = w[: int(facts[b"nr_feature"])], w[-1] * float(facts[b"bias"])
        first = float(facts[b"label"].split()[0])
    else:
        machine = pickle.loads(content)
        w, b, first = machine.coef_[0], machine.intercept_[0], machine.classes_[1]
    X, y = _load(train, len(w))
    margin = np.where(y == first, 1, -1) * (X @ w + b)
    print(f"J {float(lambda_) / 2 * w @ w + np.maximum(0, 1 - margin).mean()}")


FUNCTIONS = {
    each.__name__: each for each in (read, load_svmlight_file, svc, intelex, sgd, score, objective)
}

if __name__ == "__main__":
    FUNCTIONS[sys.argv[1]](*sys.argv[2:])
