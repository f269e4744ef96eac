"""What a kernel machine's answer is worth: P, D, the gap between them, test accuracy.

Reads a model file in LIBSVM's format, ours or a peer's, and knows nothing of randsvm: the rows are
scikit-learn's reading, the kernel values numpy's in float64. Two classes with -c and -w, a
regression or novelty detection, of the rbf kernel.

    certificate.py TRAIN MODEL -c 1 [-p 0.1] [-n 0.5] [-w LABEL WEIGHT] [--test FILE]

P = 1/2 |w|^2 + sum of losses, D the dual at the model's own coefficients, which must be feasible:
what the box and the sum are off by is printed. Numpy and scikit-learn are all it needs.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from sklearn.datasets import load_svmlight_file

BLOCK = 2**25  # kernel values at a time


def read_model(path: str, features: int):
    """Header as a dictionary of words, coefficients (m,), support vectors (m, features)."""
    import io

    text = Path(path).read_text().split("\n# randsvm")[0]
    head, _, rows = text.partition("\nSV\n")
    header = {line.split()[0]: line.split()[1:] for line in head.splitlines()}
    X, beta = load_svmlight_file(io.BytesIO(rows.encode()), n_features=features, zero_based=False)
    return header, beta, X.toarray()


def decision_values(X, Z, beta, gamma: float) -> np.ndarray:
    """sum_j beta_j exp(-gamma |x - z_j|^2) of each row, in float64."""
    centre = Z.mean(axis=0)
    Z = Z - centre
    norms = (Z**2).sum(axis=1)
    step = max(1, BLOCK // max(len(Z), 1))
    u = []
    for start in range(0, X.shape[0], step):
        x = X[start : start + step].toarray() - centre
        squares = (x**2).sum(axis=1)[:, None] + norms - 2 * (x @ Z.T)
        u.append(np.exp(-gamma * np.maximum(squares, 0)) @ beta)
    return np.concatenate(u)


def own_values(Z, beta, gamma: float) -> float:
    """|w|^2 = beta' K beta over the support vectors."""
    from scipy import sparse

    return float(beta @ decision_values(sparse.csr_matrix(Z), Z, beta, gamma))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("train")
    parser.add_argument("model")
    parser.add_argument("-c", type=float, default=1.0)
    parser.add_argument("-p", type=float, default=0.1)
    parser.add_argument("-n", type=float, default=0.5)
    parser.add_argument("-w", nargs=2, action="append", default=[], metavar=("LABEL", "WEIGHT"))
    parser.add_argument("--test")
    given = parser.parse_args()
    X, y = load_svmlight_file(given.train, zero_based=False)
    header, beta, Z = read_model(given.model, X.shape[1])
    gamma, rho = float(header["gamma"][0]), float(header["rho"][0])
    u = decision_values(X, Z, beta, gamma)
    norm = own_values(Z, beta, gamma)
    task = header["svm_type"][0]
    if task == "c_svc":
        first = float(header["label"][0])
        sign = np.where(y == first, 1.0, -1.0)
        weight = {float(label): float(value) for label, value in given.w}
        C = given.c * np.array([weight.get(label, 1.0) for label in y])
        P = norm / 2 + C @ np.maximum(0, 1 - sign * (u - rho))
        D = np.abs(beta).sum() - norm / 2
        highest = max(C)
        off = abs(beta.sum())
    elif task == "epsilon_svr":
        P = norm / 2 + given.c * np.maximum(0, np.abs(y - u + rho) - given.p).sum()
        # sum y beta: each support vector's own target, found by its row.
        rows = X.toarray().astype(np.float32)
        targets = {row.tobytes(): t for row, t in zip(rows, y, strict=True)}
        own = np.array([targets[row.tobytes()] for row in Z.astype(np.float32)])
        D = own @ beta - given.p * np.abs(beta).sum() - norm / 2
        highest, off = given.c, abs(beta.sum())
    else:
        total = given.n * X.shape[0]
        P = norm / 2 - total * rho + np.maximum(0, rho - u).sum()
        D, highest, off = -norm / 2, 1.0, abs(beta.sum() - total)
    P, D, off = float(P), float(D), float(off)
    print(f"primal {P}\ndual {D}\ngap {(P - D) / max(abs(P), abs(D))}")
    print(
        f"SV {len(beta)}\nbeyond_box {max(0.0, float(np.abs(beta).max() - highest))}\nsum_off {off}"
    )
    if given.test:
        T, t = load_svmlight_file(given.test, n_features=X.shape[1], zero_based=False)
        f = decision_values(T, Z, beta, gamma) - rho
        if task == "epsilon_svr":
            print(f"mse {float(((t - f) ** 2).mean())}")
        elif task == "c_svc":
            other = float(header["label"][1])
            print(f"accuracy {100 * (np.where(f > 0, first, other) == t).mean()}")


if __name__ == "__main__":
    main()
