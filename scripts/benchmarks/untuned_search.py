"""Search C and gamma of the sets of untuned_sets.py, by programs other than randsvm.

    untuned_search.py [SET ...]

Prints for each set LIBSVM's options and LIBLINEAR's, which `untuned` has in a table. C, gamma and
epsilon have the best score of 3 folds by scikit-learn's SVC or SVR; LIBLINEAR's own search (-C, 5
folds) finds its C, and p of a regression. Both see the first ROWS training rows of division 0.
"""

from __future__ import annotations

import re
from pathlib import Path

import click

from benchmarks.harness import output
from benchmarks.peers import load
from benchmarks.sets import first, results_option
from benchmarks.untuned_sets import NAMES, division, whole

ROWS, FOLDS = 2000, 3
CLASSES = {"C": [-1, 1, 3, 5, 7], "gamma": [-7, -5, -3, -1, 1, 3, 5]}
REGRESSION = {"C": [-1, 1, 3, 5], "gamma": [-5, -3, -1, 1, 3, 5]}
EPSILONS = [0.03, 0.1, 0.3]


def kernel(rows: Path, regression: bool) -> str:
    """LIBSVM's options of the best score."""
    from sklearn.model_selection import GridSearchCV
    from sklearn.svm import SVC, SVR

    X, y = load(str(rows))
    powers = REGRESSION if regression else CLASSES
    grid = {name: [2.0**each for each in exponents] for name, exponents in powers.items()}
    if regression:
        search = GridSearchCV(SVR(tol=0.01), grid | {"epsilon": EPSILONS}, cv=FOLDS, refit=False)
    else:
        search = GridSearchCV(SVC(tol=0.01), grid, cv=FOLDS, refit=False)
    best = search.fit(X, y).best_params_
    words = f"-c {best['C']:g} -g {best['gamma']:g}"
    return f"-s 3 {words} -p {best['epsilon']:g}" if regression else words


def linear(rows: Path, regression: bool) -> str:
    """LIBLINEAR's options of the best score."""
    solver = "11" if regression else "2"
    found = output("liblinear-train", "-C", "-s", solver, "-B", "1", rows)
    C = re.search(r"Best C = (\S+)", found)
    p = re.search(r"Best p = (\S+)", found)
    assert C
    return f"-s {solver} -c {float(C[1]):g}" + (f" -p {float(p[1]):g}" if p else "")


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(NAMES))
@results_option
def main(names: tuple[str, ...], results: Path) -> None:
    """Search for the sets NAMES (all)."""
    for name in names or NAMES:
        train, _ = division(whole(name, results), 0, results)
        rows = first(train, ROWS, results)
        label = rows.read_bytes().split(maxsplit=1)[0]
        regression = b"." in label
        chosen = kernel(rows, regression), linear(rows, regression)
        click.echo(f"{name}: {chosen[0]!r}, {chosen[1]!r}")


if __name__ == "__main__":
    main()
