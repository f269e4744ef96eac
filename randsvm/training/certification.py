"""Judge a model of any program by its training file: P, D and the gap, in float64."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Sequence
from math import isnan

import numpy as np

from randsvm.algorithms.newton import Minimiser, Solution, column_moments
from randsvm.arrays import CsrMatrix, find_columns
from randsvm.data import dataset
from randsvm.data.dataset import Dataset
from randsvm.data.in_memory import Arrays
from randsvm.data.svmlight import ParseOptions
from randsvm.errors import ContentError, GapError, ModelError
from randsvm.events import Certified, MachineObjectives, Watch, emit, listening, silent
from randsvm.models.certification import certify_kernel, claimed_gap, remark_on_options
from randsvm.models.kernel_model import KernelModel
from randsvm.models.linear_model import LinearModel
from randsvm.models.metadata import Metadata
from randsvm.models.model_text import check_is_not_model, load
from randsvm.models.row_files import RowFiles, sources
from randsvm.parameters.option import command_line
from randsvm.parameters.run import CertifyParams, PredictParams, Resources
from randsvm.parameters.svm import class_weights
from randsvm.svm.linear_certificate import certified
from randsvm.svm.linear_loss import LOSS_OF_SOLVER, Linear, LinearObjective
from randsvm.svm.solution import Certificate
from randsvm.training.rounds import total_certificate

# D of a linear machine is sought until its own gap is this part of the gap that is to be judged,
# which is at most USUAL_GAP.
DUAL_SHARE, USUAL_GAP = 0.1, 1e-3


def certify(
    data: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    model: str | os.PathLike[str],
    *,
    params: CertifyParams | None = None,
    resources: Resources | None = None,
    watch: Watch = silent,
) -> Certified:
    """Compute P, D and their gap for a model of any program, in float64.

    Parameters
    ----------
    data : str, PathLike or sequence of these
        Training file of the model, a pattern of names, or several names.
    model : str or PathLike
        Model file in LIBSVM's or LIBLINEAR's format, of randsvm, svm-train, ThunderSVM or another
        program.
    params : CertifyParams, optional
        C, epsilon, nu, the class weights and the weights of rows of the training, and the gap that
        is required. A model of randsvm records all but the weights of rows.
    resources : Resources, optional
        Worker threads.
    watch : callable, default=silent
        Called with each event of `randsvm.events`.

    Returns
    -------
    Certified
        P, D, the gap, and how far the coefficients are from feasible ones.

    Raises
    ------
    GapError
        If the gap is above `params.require_gap`, or is unknown.
    DataError, ModelError
        If the rows or the model are unusable.
    InputError, TransferError
        If a file cannot be opened or read.

    Notes
    -----
    P is the primal objective of the machine as written. D is the dual objective of feasible
    coefficients with nearly the same w: equal rows have equal kernel values, so only the sum of
    their coefficients matters to w, and D is the highest of all ways to divide this sum among
    them. A sum beyond the bounds of its rows is moved to the bounds, and that of a support vector
    that is not a row of the training file to 0. Therefore D <= optimum <= P holds for any model.
    The gap includes bounds of all rounding of the sums.

    D of a linear machine is that of coefficients which Newton steps from its weights find, whatever
    its own training found.

    Rows are read in chunks; memory grows with the support vectors only, except by 16 bytes a row
    for nu-SVR. For a linear machine all rows are in memory.
    """
    began = time.perf_counter()
    params, resources = params or CertifyParams(), resources or Resources()
    paths, model = sources(data, params.sql), os.fspath(model)
    check_is_not_model(paths, "TRAIN_FILE MODEL_FILE")
    loaded = load(model)
    with listening(watch):
        if isinstance(loaded, KernelModel):
            outcome = certify_kernel(loaded, model, paths, params, resources, began)
        else:
            assert isinstance(loaded, LinearModel)
            outcome = certify_linear(loaded, model, paths, params, resources, began)
        emit(outcome)
        required = params.require_gap
        # nan is above every gap.
        if required is not None and not outcome.gap <= required:
            problem = f"gap {outcome.gap:.3g} is above"
            if isnan(outcome.gap):
                problem = "the gap is unknown, expected at most"
            raise GapError(f"{model}: {problem} {required:g} (--require-gap)")
        return outcome


def certify_linear(
    loaded: LinearModel,
    model: str,
    paths: Sequence[str],
    params: CertifyParams,
    resources: Resources,
    began: float,
) -> Certified:
    """Return the certificate of a linear machine. model: its file; began: time.perf_counter() at
    first"""
    loss = LOSS_OF_SOLVER.get(loaded.solver) or LOSS_OF_SOLVER.get(
        loaded.solver.removesuffix("_DUAL")
    )
    if loss is None or loaded.is_one_class or loaded.mapping is not None:
        problem = "features of the file and a loss of one class against the rest"
        raise ModelError(f"{model}: expected a linear model of {problem}, found another")
    claims, given = loaded.metadata, params.of(loaded.metadata.options)
    is_own = claims.version is not None
    used = ["C", *["epsilon"] * loaded.is_regression, "row_weights"]
    used += ["weights"] * (not loaded.is_regression)
    remark_on_options(params, used, loaded)
    D, linear, outside = _rows_and_weights(loaded, model, paths, params, resources)
    C, labels = params.C or claims.C or given.C or 1.0, loaded.labels
    weights = np.ones(1)
    if labels:
        y, own = D.labels().astype(np.int64), D.weights()
        totals = np.bincount(y, own, len(labels))
        weights = np.array(class_weights(given.weights, labels, totals.tolist()))
    if len(labels) > 2 and given.weights and not is_own:
        raise ModelError(f"{model}: LIBLINEAR's -w of three or more classes is another problem")
    epsilon = given.epsilon if loaded.is_regression else None
    objective = LinearObjective(weights=weights, loss=loss, epsilon=epsilon, l1=loaded.is_l1)
    is_free = is_own and not claims.options.get("no_bias", False)
    claimed = claimed_gap(claims, given)
    asked = [gap for gap in (claimed, params.require_gap, USUAL_GAP) if gap]
    start = Solution.at(linear, C, D.n)
    machines = Minimiser(D, objective, lambda: column_moments(D), bias=is_free)
    for found in machines.minimise(C, start, DUAL_SHARE * min(asked)):
        coefficients = found.coefficients
    parts = certified(D, linear, objective, C, coefficients, is_free, objective.penalty(outside))
    total = total_certificate(parts)
    names = [f"{label} against the rest" for label in labels] if len(parts) > 1 else [""]
    return Certified(
        model=model,
        problem=shlex.join(command_line(given, names=used)),
        rows=D.n,
        support_vectors=None,
        unknown_support_vectors=0,
        primal=total.primal,
        dual=total.dual,
        gap=total.gap,
        largest_gap=max(one.gap for one in parts) if len(parts) > 1 else None,
        feasible=True,
        infeasibility=0.0,
        beyond_bounds=0.0,
        sum_error=0.0,
        primal_error=total.primal_error,
        dual_error=total.dual_error,
        claimed_gap=claimed,
        verdict=None if claimed is None else _verdict(claims, claimed, total),
        machines=[
            MachineObjectives(
                name, one.primal, one.dual, one.gap, 0.0, 0.0, 0.0, one.primal_error, one.dual_error
            )
            for name, one in zip(names, parts, strict=True)
        ],
        seconds=time.perf_counter() - began,
    )


def _verdict(claims: Metadata, claimed: float, found: Certificate) -> str:
    """Return whether the claims of a model about P and the gap hold."""
    P, error = claims.primal or 0.0, claims.primal_error or 0.0
    if abs(found.primal - P) > error + found.primal_error:
        return "refuted"
    # D as claimed is of other coefficients than those that were found here.
    return "verified" if found.gap <= claimed else "undecided"


def _rows_and_weights(
    loaded: LinearModel, model: str, paths: Sequence[str], params: CertifyParams,
    resources: Resources,
) -> tuple[Dataset, Linear, np.ndarray]:  # fmt: skip
    """Return all rows, with y the class index in the model or the target; the machine over their
    features; and the weights of other features."""
    of_rows = PredictParams(row_weights=params.row_weights)
    files = RowFiles(loaded, model, paths, of_rows, training=True)
    blocks = [block for block in files.blocks(emit, resources.threads) if len(block)]
    if not blocks:
        raise ContentError(f"{paths[0]}: expected rows, found none")
    rows = CsrMatrix.vstack([block.X for block in blocks])
    features, columns = np.unique(rows.indices, return_inverse=True)
    places, known = find_columns(loaded.features, features)
    w = np.zeros((len(features), loaded.w.shape[1]))
    w[known] = loaded.w[places[known]]
    outside = loaded.w[~np.isin(loaded.features, features)]
    values, starts, b = rows.data, rows.indptr.astype(np.int64), loaded.b
    if loaded.constant is not None:
        # LIBLINEAR has a feature of this value in each row, whose weight is regularised.
        columns = np.insert(columns, starts[1:], len(features))
        values = np.insert(values, starts[1:], loaded.constant)
        starts += np.arange(len(starts))
        w, b = np.vstack([w, b / loaded.constant]), np.zeros_like(b)
    X = CsrMatrix(values, columns, starts, (rows.shape[0], len(w)))
    y, weights = (
        np.concatenate(each) for each in zip(*[(k.y, k.weights) for k in blocks], strict=True)
    )
    arrays = Arrays(X.to_scipy(), y, weights=None if (weights == 1).all() else weights)
    D = dataset.load(arrays, ParseOptions(labels="number"), resources)
    if loaded.scaling is not None:
        if loaded.seen is None or not np.array_equal(features, loaded.seen):
            raise ContentError(f"{paths[0]}: expected the features of the model, found others")
        D = D.scaled(loaded.scaling)
    return D, Linear(w, b), outside
