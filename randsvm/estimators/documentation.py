"""Docstrings of the estimators in numpydoc form, generated from tables.

The tables describe each parameter and each attribute once for all estimators.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import TypeVar

Estimator = TypeVar("Estimator", bound=type)

# Name -> type and description.
PARAMETERS = {
    "C": ("float", "Penalty of a row's loss; positive. inf stands for 1e10."),
    "nu": (
        "float",
        "Upper bound on the share of rows that violate the margin (classification), lie outside "
        "the tube (regression) or outside the region (novelty detection). Also a lower bound on "
        "the share of support vectors; in (0, 1].",
    ),
    "epsilon": ("float", "Half the width of the tube within which a row has no loss."),
    "kernel": (
        "{'linear', 'poly', 'rbf', 'sigmoid', 'precomputed'} or callable",
        "'precomputed': X of fit is the square kernel matrix of the training rows, dense or "
        "sparse, and X of predict has the kernel values of each row with each training row. A "
        "callable takes two sets of rows and returns their kernel matrix; it is called once in fit "
        "with the training rows, and once in each prediction.",
    ),
    "degree": ("int", "Degree of the kernel 'poly'."),
    "gamma": (
        "{'scale', 'auto'} or float",
        "Coefficient of 'rbf', 'poly' and 'sigmoid'; 'scale' is 1 / (n_features * X.var()), 'auto' "
        "is 1 / n_features.",
    ),
    "coef0": ("float", "Constant of the kernels 'poly' and 'sigmoid'."),
    "shrinking": ("bool", "Whether LIBSVM's shrinking heuristic is used."),
    "probability": (
        "bool",
        "Whether to fit probabilities by cross-validation, for predict_proba. scikit-learn's "
        "'deprecated' is False.",
    ),
    "tol": (
        "float",
        "Tolerance of the KKT conditions; for linear machines the relative duality gap at which "
        "training ends.",
    ),
    "cache_size": ("float", "Accepted as in scikit-learn, without effect."),
    "class_weight": (
        "dict, 'balanced' or None",
        "Weights of the classes, which multiply C; 'balanced' is n_samples / (n_classes * "
        "np.bincount(y)).",
    ),
    "verbose": ("bool or int", "Accepted as in scikit-learn, without effect."),
    "max_iter": (
        "int",
        "Limit of the rounds of solve and scan for each problem; -1: no limit. For linear machines "
        "the limit of the Newton steps, or of the passes over X without a certificate; None: no "
        "limit.",
    ),
    "decision_function_shape": (
        "{'ovr', 'ovo'}",
        "Columns of decision_function for three or more classes: one for each class, or one for "
        "each pair of classes.",
    ),
    "break_ties": (
        "bool",
        "Whether predict returns the class with the largest decision_function, instead of the "
        "first class with most votes. Needs decision_function_shape='ovr'.",
    ),
    "random_state": ("int, RandomState or None", "Seed of all random draws; None is 0."),
    "gap": (
        "float or None",
        "Relative duality gap: training ends when the objective is certified to be within this "
        "share of the optimum. None: 0.001, or no gap for a kernel without a certificate.",
    ),
    "n_jobs": ("int or None", "Number of threads; None and -1: all cores."),
    "loss": (
        "str",
        "Loss of a row: 'hinge', 'squared_hinge' or 'log' of LinearSVC, 'epsilon_insensitive' of "
        "LinearSVR.",
    ),
    "multi_class": (
        "{'ovr', 'crammer_singer'}",
        "Decision functions of three or more classes: each class against the rest, or all at once, "
        "with the loss of Crammer and Singer.",
    ),
    "penalty": ("{'l2'}", "Norm of the weights in the objective."),
    "dual": (
        "bool or 'auto'",
        "Accepted as in scikit-learn, without effect; dual=False is refused with loss='hinge' and "
        "loss='epsilon_insensitive'.",
    ),
    "fit_intercept": ("True", "An intercept is always fitted."),
    "intercept_scaling": (
        "float",
        "Accepted as in scikit-learn, without effect: the intercept is not regularised.",
    ),
}
ATTRIBUTES = {
    "classes_": ("ndarray of shape (n_classes,)", "The labels, sorted."),
    "class_weight_": ("ndarray of shape (n_classes,)", "Weight of each class."),
    "support_": ("ndarray of shape (n_SV,)", "Rows of X that are support vectors."),
    "support_vectors_": (
        "ndarray or sparse matrix of shape (n_SV, n_features)",
        "The support vectors; empty if the kernel is precomputed or callable.",
    ),
    "n_support_": (
        "ndarray of int32",
        "Number of support vectors; classifiers have one number for each class.",
    ),
    "dual_coef_": (
        "ndarray or sparse matrix of shape (n_functions, n_SV)",
        "Coefficients of the support vectors in the decision functions; sparse if X was sparse.",
    ),
    "coef_": (
        "ndarray or sparse matrix of shape (n_functions, n_features)",
        "Weights of the features; (n_features,) for LinearSVR. Kernel machines have them for the "
        "linear kernel only; read-only.",
    ),
    "intercept_": ("ndarray of shape (n_functions,)", "Constants of the decision functions."),
    "offset_": ("ndarray of shape (1,)", "Offset of the decision function, -intercept_."),
    "probA_": (
        "ndarray of shape (n_functions,) or (0,)",
        "Slopes A of Platt's 1 / (1 + exp(A f + B)), in scikit-learn's order and sign.",
    ),
    "probB_": (
        "ndarray of shape (n_functions,) or (0,)",
        "Constants B of Platt's 1 / (1 + exp(A f + B)).",
    ),
    "n_iter_": (
        "int or ndarray of int32",
        "Number of rounds of solve and scan; classifiers have one number for each pair of classes. "
        "For linear machines the number of Newton steps, or of passes over X without a "
        "certificate.",
    ),
    "n_features_in_": ("int", "Columns of X in fit."),
    "shape_fit_": ("tuple of int", "Shape of X in fit."),
    "fit_status_": ("int", "1 if training ended above the requested gap, else 0."),
    "fit_time_": ("float", "Seconds that the training took."),
    "stopped_": ("str", "Reason why training ended."),
    "gap_": (
        "float",
        "The certified relative duality gap; nan without a certificate, which kernels that are not "
        "positive semidefinite do not have, and LinearSVC with multi_class='crammer_singer'.",
    ),
    "model_": ("FittedModel", "The model, with the outcome of its training."),
}


def documented(*attributes: str) -> Callable[[Estimator], Estimator]:
    """Add the sections Parameters and Attributes to the docstring of a dataclass."""

    def decorate(estimator: Estimator) -> Estimator:
        defaults = {f.name: f.default for f in fields(estimator)}
        own = {
            name: (f"{kind}, default={defaults[name]!r}", text)
            for name, (kind, text) in PARAMETERS.items()
            if name in defaults
        }
        found = {name: ATTRIBUTES[name] for name in attributes}
        head = textwrap.dedent(f"    {estimator.__doc__ or ''}").strip()
        sections = [head, _section("Parameters", own), _section("Attributes", found)]
        estimator.__doc__ = "\n\n".join(sections) + "\n"
        return estimator

    return decorate


def _section(title: str, entries: Mapping[str, tuple[str, str]]) -> str:
    lines = [title, "-" * len(title)]
    for name, (kind, text) in entries.items():
        lines += [f"{name} : {kind}", textwrap.indent(textwrap.fill(text, 90), "    ")]
    return "\n".join(lines)
