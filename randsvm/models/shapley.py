"""Compute exact Shapley values of single rows for models with the RBF kernel.

RBF is a product over the features, K(x, z) = prod_j k_j with k_j = exp(-gamma (x_j - z_j)^2). The
value of a set T of features is the model's f with the factors of all other features set to 1, so
that it does not depend on those features:

    v(T) = b + sum_i beta_i prod_{j in T} k_ij

Then feature j has the Shapley value

    phi_j = sum_i beta_i (k_ij - 1) sum_q q! (d - q - 1)! / d! e_q(k_i without j)

with the elementary symmetric polynomials e_q of the other d - 1 factors. The weights of e_q are
integrals, q! (d - q - 1)! / d! = integral over 0 <= t <= 1 of t^q (1 - t)^(d - 1 - q), so that

    phi_j = sum_i beta_i (k_ij - 1) integral of prod_{l != j} (1 - t + t k_il) dt

The integrand is a polynomial of degree d - 1. Gauss-Legendre quadrature with ceil(d / 2) nodes is
exact for it, and every factor is positive, so that nothing cancels. The features of a column of a
table are one feature here, whose factor is their product.

Mohammadi, Chau, Muandet, "Computing Exact Shapley Values in Polynomial Time for Product-Kernel
Methods", arXiv 2505.16516, 2025, who compute e_q by recursions.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from functools import partial

import numpy as np

from randsvm import files
from randsvm.arrays import CsrMatrix, slices, sorted_union
from randsvm.data.columns import Columns, written_record
from randsvm.data.svmlight import ParsedRows
from randsvm.decimals import shortest
from randsvm.errors import ModelError
from randsvm.events import Explained, Progress, Watch, emit, listening, silent
from randsvm.models.kernel_model import KernelModel
from randsvm.models.model_text import check_is_not_model, load
from randsvm.models.row_files import RowFiles, sources
from randsvm.parallel import ThreadPool
from randsvm.parameters.run import PredictParams, Resources


def explain(
    data: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    model: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    params: PredictParams | None = None,
    resources: Resources | None = None,
    watch: Watch = silent,
) -> Explained:
    """Write the exact Shapley values of rows for a model with the RBF kernel.

    Parameters
    ----------
    data : str, PathLike or sequence of these
        Name of a file, a pattern of names, or several names.
    model : str or PathLike
        Model file in LIBSVM's format, with the RBF kernel.
    output : str or PathLike
        File to write; "-" is standard output. Each row has a line ``f index:value index:value``
        for each decision value f, in the order of the decision values. The values of a line and
        the base value of its f add up to f. Rows of a table become a table with f and the value of
        each column.
    params : PredictParams, optional
        How the files are read: its ``format``, ``no_header``, ``delimiter`` and ``sql``; and
        ``keep``, columns of a table that are written before f. With ``sql``, a query, `data` is the
        URL of a database. Other options have no effect.
    resources : Resources, optional
        Worker threads.
    watch : callable, default=silent
        Called with each event of `randsvm.events`.

    Returns
    -------
    Explained
        The number of rows and the base values.

    Raises
    ------
    ModelError
        If the model is unusable or has another kernel.
    DataError, InputError, OutputError, TransferError
        If a file is unusable, or cannot be opened, created, read or written.

    Notes
    -----
    The value of a set of features is f with the kernel's factors of all other features set to 1.
    Its value for no feature, b + sum beta, is the base value. A row takes time in proportion to the
    support vectors times the square of the number of features.

    References
    ----------
    Mohammadi, Chau, Muandet, "Computing Exact Shapley Values in Polynomial Time for Product-Kernel
    Methods", arXiv 2505.16516, 2025.
    """
    began = time.perf_counter()
    params, model, output = params or PredictParams(), os.fspath(model), os.fspath(output)
    paths = sources(data, params.sql, params.format)
    files.check_distinct({"OUTPUT_FILE": output}, {"TEST_FILE": paths, "MODEL_FILE": model})
    check_is_not_model(paths, "TEST_FILE MODEL_FILE OUTPUT_FILE")
    with listening(watch):
        loaded = load(model)
        if not isinstance(loaded, KernelModel) or loaded.kernel.name != "rbf":
            raise ModelError(f"{model}: expected a model with the RBF kernel, found another")
        row_files = RowFiles(loaded, model, paths, params)
        table = row_files.columns
        header, kind = HEADER, "a file of Shapley values"
        if table is not None:
            # A kept column may have the name of a column of features.
            names = ["f", *[f"shapley_{column.name}" for column in table.columns]]
            record = written_record([*row_files.kept, *names], row_files.delimiter)
            header, kind = files.encoded(record + "\n"), f"{kind} of the same columns"
        start = header[: files.FILE_TYPE_BYTES]
        files.check_output(output, kind, lambda head: head.startswith(start))
        beta, rows = loaded.coefficients, 0
        base_values = loaded.b + beta.sum(axis=0)
        with (
            files.create_output(output) as stream,
            ThreadPool((resources or Resources()).threads) as pool,
        ):
            stream.write(header)
            for block in row_files.blocks():
                work = partial(_lines, loaded, beta, base_values, row_files, block)
                for lines in pool.map_in_order(work, range(len(block))):
                    stream.write(lines)
                    rows += 1
                    emit(Progress("explaining", rows, None, "row"))
        row_files.report_lacking()
        outcome = Explained(
            model=model,
            output=output,
            rows=rows,
            base_values=base_values.tolist(),
            seconds=time.perf_counter() - began,
        )
        emit(outcome)
        return outcome


# A comment of svmlight, by which a later run recognises that it may replace the file.
HEADER = b"# Shapley values of randsvm: f index:value ..\n"


def _lines(
    model: KernelModel,
    beta: np.ndarray,
    base_values: np.ndarray,
    row_files: RowFiles,
    block: ParsedRows,
    row: int,
) -> bytes:
    """Return a line for each decision value of a row: of svmlight, or a record of a table."""
    table = row_files.columns
    numbers, phi = contributions(model, beta, block.X[row : row + 1], table)
    f, lines = base_values + phi.sum(axis=1), []
    for value, values in zip(f.tolist(), phi, strict=True):
        if table is None:
            used = np.flatnonzero(values)
            pairs = zip(numbers[used].tolist(), values[used].tolist(), strict=True)
            words = [shortest(value), *[f"{index}:{shortest(one)}" for index, one in pairs]]
        else:
            of_columns = np.zeros(len(table.columns))
            of_columns[numbers] = values
            kept = [] if not block.keys else [block.keys[row]]
            words = [*kept, *map(shortest, [value, *of_columns.tolist()])]
        lines.append((" " if table is None else row_files.delimiter).join(words) + "\n")
    return files.encoded("".join(lines))


# Values of support vectors that are dense at a time, in each thread.
DENSE_VALUES = 1 << 20


def contributions(
    model: KernelModel,
    beta: np.ndarray,
    X: CsrMatrix,
    table: Columns | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return features, or columns of a table, (k,) int64 ascending, and their Shapley values,
    (columns of f, k) float64. All others have the value 0.

    beta : (m, columns of f), coefficients; X : a row as in a file. The values
    are sums over the support vectors, of which some at a time are dense.
    """
    X = X.astype(np.float64 if model.float64 else np.float32, copy=False)
    if model.scaling is not None:
        # Scaling may add values of features that the row did not have.
        X, _ = model.scaled(X)
    features = sorted_union(model.features, X.indices).astype(np.int64)
    x = np.zeros(len(features))
    x[np.searchsorted(features, X.indices)] = X.data
    numbers, firsts = features, np.arange(len(features))
    if table is not None:
        starts = [start for _, start in table.with_starts(model.zero_based)]
        of_features = np.searchsorted(starts, features, "right") - 1
        numbers, firsts = np.unique(of_features, return_index=True)
    phi = np.zeros((beta.shape[1], len(numbers)))
    at = np.searchsorted(features, model.features)
    for part in slices(len(beta), max(1, DENSE_VALUES // max(1, len(features)))):
        Z = np.zeros((part.stop - part.start, len(features)))
        Z[:, at] = model.Z[part].toarray()
        K = np.exp(-model.kernel.gamma * np.square(x - Z))
        # The factor of a column is the product of those of its features.
        phi += shapley_values(np.multiply.reduceat(K, firsts, axis=1), beta[part])
    return numbers, phi


def shapley_values(K: np.ndarray, beta: np.ndarray) -> np.ndarray:
    """Return the Shapley values of features for sums of products of factors, (columns, d).

    Parameters
    ----------
    K : array of shape (m, d), float64
        Factors k_ij, from 0 to 1.
    beta : array of shape (m, columns), float64
        Coefficients of the products.

    Returns
    -------
    array of shape (columns, d), float64
        phi_j of each column.
    """
    from scipy.special import roots_legendre

    phi = np.zeros((beta.shape[1], K.shape[1]))
    # A factor that is 1 for all products has the value 0, and changes no other value.
    active = np.flatnonzero((K != 1).any(axis=0))
    if not len(active):
        return phi
    K = K[:, active]
    nodes, weights = roots_legendre(-(-len(active) // 2))
    for t, weight in zip((1 + nodes) / 2, weights / 2, strict=True):
        factors = 1 - t + t * K
        products = weight * factors.prod(axis=1)
        phi[:, active] += (beta * products[:, None]).T @ ((K - 1) / factors)
    return phi
