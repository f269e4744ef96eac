"""Base classes of the estimators: parameters, docstrings, checks of rows, and predictions."""

from __future__ import annotations

import os
import textwrap
import warnings
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from numbers import Real
from typing import Any, ClassVar, TypeVar

import numpy as np
from scipy import sparse
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_array, check_random_state, compute_class_weight
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from randsvm import api
from randsvm.data.columns import as_table
from randsvm.data.in_memory import Arrays, label_texts
from randsvm.errors import ModelError, ParameterError
from randsvm.estimators.callbacks import CallbackSupportMixin, FitTasks, with_callbacks
from randsvm.models import decisions
from randsvm.models.fitted import FittedModel, decision_values, load
from randsvm.models.model import Model
from randsvm.models.normal_form import normal_form
from randsvm.models.onnx_graph import add_to, onnx_graph
from randsvm.parameters.option import BALANCED
from randsvm.parameters.run import Resources
from randsvm.parameters.svm import class_weights
from randsvm.training.job import StopReason

# The options of a training that a model file records, and the parameters of estimators for them.
RECORDED = {
    "C": "C",
    "nu": "nu",
    "epsilon": "epsilon",
    "tolerance": "tol",
    "gap": "gap",
    "loss": "loss",
    "multiclass": "multi_class",
}

# Other options, whose values are those of parameters, for messages.
NAMES = RECORDED | {"max_iterations": "max_iter", "jobs": "n_jobs", "weights": "class_weight"}

# Parameters that are options of the same name.
SHARED = ("C", "nu", "epsilon")
# The value of C that replaces infinity: coefficients of separable classes stay far below it.
INFINITE_C = 1e10

# ---- docstrings --------------------------------------------------------------------------------

WITHOUT_EFFECT = "Accepted as in scikit-learn, without effect."
# Types and descriptions of the parameters that differ from scikit-learn's.
PARAMETERS = {
    "C": ("float", "As in {peer}; inf stands for 1e10."),
    "kernel": (
        "{{'linear', 'poly', 'rbf', 'sigmoid', 'precomputed'}} or callable",
        "As in {peer}, except that a precomputed matrix may be sparse. A callable is called once "
        "in fit with the training rows, and once in each prediction.",
    ),
    "gamma": ("{{'scale', 'auto'}} or float", "As in {peer}."),
    "probability": ("bool", "As in {peer}; scikit-learn's 'deprecated' is False."),
    "tol": (
        "float",
        "Tolerance of the KKT conditions; for linear machines the relative duality gap at which "
        "training ends.",
    ),
    "cache_size": ("float", WITHOUT_EFFECT),
    "class_weight": ("dict, 'balanced' or None", "As in {peer}; 'balanced' counts sample_weight."),
    "verbose": ("bool or int", WITHOUT_EFFECT),
    "max_iter": (
        "int",
        "Limit of the rounds of solve and scan for each problem; -1: no limit. For linear machines "
        "the limit of the passes over X and Newton steps; None: no limit.",
    ),
    "random_state": ("int, RandomState or None", "Seed of all random draws; None is 0."),
    "gap": (
        "float or None",
        "Relative duality gap: training ends when the objective is certified to be within this "
        "share of the optimum. None: 0.001, or no gap for a kernel without a certificate, which "
        "takes no other value.",
    ),
    "n_jobs": ("int or None", "Number of threads; None and -1: all cores."),
    "loss": (
        "str",
        "Loss of a row: 'hinge', 'squared_hinge' or 'log' of LinearSVC, 'epsilon_insensitive' or "
        "'squared_epsilon_insensitive' of LinearSVR.",
    ),
    "penalty": ("{{'l2'}}", "Norm of the weights in the objective."),
    "dual": (
        "bool or 'auto'",
        f"{WITHOUT_EFFECT} dual=False is refused with loss='hinge' and loss='epsilon_insensitive'.",
    ),
    "fit_intercept": ("bool", "Whether there is an intercept, else it is 0."),
    "intercept_scaling": ("float", f"{WITHOUT_EFFECT} The intercept is not regularised."),
}
# Descriptions of the attributes that differ from scikit-learn's.
ATTRIBUTES = {
    "support_vectors_": "As in {peer}; empty if the kernel is precomputed or callable.",
    "coef_": "As in {peer}; read-only for kernel machines.",
    "n_iter_": (
        "Number of rounds of solve and scan; classifiers have one number for each pair of classes. "
        "For linear machines the number of passes over X and Newton steps."
    ),
    "fit_status_": "1 if training ended above the requested gap, else 0.",
    "fit_time_": "Seconds that the training took.",
    "stopped_": "Reason why training ended.",
    "gap_": (
        "The certified relative duality gap. It is nan without a certificate: for kernels that are "
        "not positive semidefinite, and for LinearSVC with multi_class='crammer_singer'."
    ),
    "model_": "The FittedModel, with the outcome of its training.",
}
TRAINING_ATTRIBUTES = "n_iter_ n_features_in_ fit_time_ stopped_ gap_ model_"

Estimator = TypeVar("Estimator", bound=type)


def documented(peer: str, attributes: str) -> Callable[[Estimator], Estimator]:
    """Add the sections Parameters and Attributes to the docstring of a dataclass.

    peer : scikit-learn's estimator. attributes : names, separated by blanks.
    """

    def decorate(estimator: Estimator) -> Estimator:
        lines = [textwrap.dedent(f"    {estimator.__doc__ or ''}").strip(), ""]
        lines += ["Parameters", "----------"]
        for f in fields(estimator):
            usual = type(f.default).__name__, "As in {peer}."
            kind, text = (each.format(peer=peer) for each in PARAMETERS.get(f.name, usual))
            lines += [f"{f.name} : {kind}, default={f.default!r}", _described(text)]
        lines += ["", "Attributes", "----------"]
        for name in attributes.split():
            lines += [name, _described(ATTRIBUTES.get(name, "As in {peer}.").format(peer=peer))]
        estimator.__doc__ = "\n".join([*lines, ""])
        return estimator

    return decorate


def _described(text: str) -> str:
    return textwrap.indent(textwrap.fill(text, 90), "    ")


# ---- checks ------------------------------------------------------------------------------------


def checked_weights(sample_weight: Any, X: Any) -> np.ndarray | None:
    """Return the weights of rows, (n,) float64, 0 in place of weights below 0; None: all are 1.

    Raises ValueError for weights that scikit-learn's estimators refuse.
    """
    if sample_weight is None:
        return None
    n = X.shape[0]
    if isinstance(sample_weight, Real):
        sample_weight = np.full(n, sample_weight)
    weights = check_array(
        sample_weight, ensure_2d=False, dtype=np.float64, input_name="sample_weight"
    )
    if weights.shape != (n,):
        raise ValueError(f"sample_weight.shape == {weights.shape}, expected {(n,)}!")
    if not (weights > 0).any():
        raise ValueError("Invalid input - all samples have zero or negative weights.")
    return np.maximum(weights, 0.0)


def recorded_options(model: Model) -> dict[str, Any]:
    """Return the options of the training by name, as the model file records them."""
    found = model.metadata.options
    # C follows from lambda and the number of rows.
    return found | {"C": model.metadata.C} if "lambda_" in found else found


def as_configured(matrix: Any) -> Any:
    """Return a matrix; if it is sparse, as scikit-learn's option sparse_interface has it."""
    if not sparse.issparse(matrix):
        return matrix
    # Before scikit-learn 1.9 there was no such option.
    is_array = get_config().get("sparse_interface") == "sparray"
    return (sparse.csr_array if is_array else sparse.csr_matrix)(matrix)


def check_namespace(**given: Any) -> None:
    """Raise TypeError for arrays that scikit-learn would hand on in their own namespace."""
    for name, array in given.items():
        is_other = hasattr(array, "__array_namespace__") and not isinstance(array, np.ndarray)
        if is_other and get_config()["array_api_dispatch"]:
            kind = type(array).__module__.partition(".")[0]
            raise TypeError(
                f"{name}: expected an array of numpy, found one of {kind}: give "
                f"numpy.asarray({name}), or set array_api_dispatch=False"
            )


AnySVM = TypeVar("AnySVM", bound="BaseSVM")


@dataclass(eq=False, repr=False, kw_only=True)
class BaseSVM(CallbackSupportMixin, BaseEstimator):
    """The base of all estimators: checks rows, trains, and predicts by a fitted model.

    The fields are the parameters: scikit-learn reads their names from the signature of the
    dataclass.
    """

    # The format and the task of models.
    _format: ClassVar[str]
    _task: ClassVar[str]

    verbose: bool | int = False
    random_state: Any = None
    n_jobs: int | None = None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    @with_callbacks
    def fit(self: AnySVM, X: Any, y: Any = None, sample_weight: Any = None) -> AnySVM:
        """Train on rows.

        Parameters
        ----------
        X : array, sparse matrix or data frame of shape (n_samples, n_features)
            Rows. C-contiguous arrays and CSR matrices of float32 or float64 are not copied; other
            data is copied once.
        y : array of shape (n_samples,)
            Labels of any type, or targets of a regression; ignored by OneClassSVM.
        sample_weight : float or array of shape (n_samples,), optional
            Weights of the rows, which multiply C, or the bounds of the coefficients without C; rows
            without a weight above 0 are left out.

        Returns
        -------
        BaseSVM
            The fitted estimator.

        Raises
        ------
        ValueError
            If a parameter or a value is invalid.
        """
        # If this fit fails, the estimator has no model: `classes_` may be those of these rows.
        self.__dict__.pop("model_", None)
        X = as_table(X)
        arrays = self._checked(X, y, sample_weight)
        tasks = FitTasks(self, arrays, X, y, sample_weight)
        self._fit(arrays, tasks)
        tasks.finish()
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Return the label, or the target of a regression, of each row.

        Parameters
        ----------
        X : array, sparse matrix or data frame of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples,)
            Labels as in fit, targets, or of OneClassSVM 1 for rows inside the region, else -1.
        """
        check_is_fitted(self)
        return self.model_.predict(self._checked_rows(X, reset=False))

    def _check_parameters(self) -> None:
        """Raise ValueError for values of parameters that are not supported."""

    def _checked(
        self, X: Any, y: Any, sample_weight: Any = None, reset: bool = True, classes: Any = None
    ) -> Arrays:
        """Return the rows of a training with their labels or targets and weights.

        reset: whether no rows came before; classes: all labels, also of later rows; None: those of
        the first rows
        """
        self._check_parameters()
        X, y = self._checked_rows(X, reset, y=y, y_numeric=self._task.endswith("svr"))
        return self._arrays(X, y, checked_weights(sample_weight, X), reset, classes)

    def _arrays(
        self, X: Any, y: Any, weights: np.ndarray | None, reset: bool, classes: Any
    ) -> Arrays:
        return Arrays(X, y, weights=weights)

    def _fit(self, arrays: Arrays, tasks: FitTasks) -> None:
        """Train, and set the attributes."""
        raise NotImplementedError

    def _set_fitted(self, fitted: FittedModel, arrays: Arrays, events: list[Any]) -> None:
        """Set the attributes that follow from a model and from the events of its training."""
        raise NotImplementedError

    def _checked_rows(self, X: Any, reset: bool = True, **given: Any) -> Any:
        """Check X, and y if y is given, by scikit-learn's functions and return them.

        X becomes an array or a CSR matrix, float32 or float64.
        """
        check_namespace(X=X, **given)
        X, dtype = as_table(X), [np.float64, np.float32]
        return validate_data(self, X, accept_sparse="csr", dtype=dtype, reset=reset, **given)

    @available_if(lambda self: not self._task.endswith("svr"))
    def decision_function(self, X: Any) -> np.ndarray:
        """Return the decision values of rows.

        Parameters
        ----------
        X : array, sparse matrix or data frame of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_functions)
            Values f. For two classes f > 0 predicts classes_[1], and of OneClassSVM f > 0 is a row
            inside the learned region. More classes have a column each, or with
            ``decision_function_shape="ovo"`` a column for each pair of classes, where f > 0 is a
            vote for the first of them.
        """
        return self._values(X)

    def _values(self, X: Any) -> np.ndarray:
        """Return f, (m,) or (m, functions), in the order of classes_."""
        check_is_fitted(self)
        rows = self._checked_rows(X, reset=False)
        f = self._in_class_order(decision_values(self.model_.model, rows, self.model_.jobs))
        return f[:, 0] if f.shape[1] == 1 else f

    @property
    def intercept_(self) -> np.ndarray:
        """Offset of each decision function."""
        # No -0 without an intercept.
        return self._in_class_order(self.model_.model.b[None])[0] + 0.0

    def _options(self, arrays: Arrays) -> dict[str, Any]:
        """Return the options of the training: here those that every algorithm has, and the
        parameters that are options."""
        state = self.random_state
        if state is not None and not isinstance(state, (int, np.integer)):
            state = check_random_state(state).randint(np.iinfo(np.int32).max)
        jobs, cores = self.n_jobs, Resources().threads
        if jobs is not None and jobs < 0:
            jobs = max(1, cores + 1 + jobs)
        own = {name: getattr(self, name) for name in SHARED if hasattr(self, name)}
        if own.get("C") == np.inf:
            own["C"] = INFINITE_C
        seed = 0 if state is None else int(state)
        return {"task": self._task, "seed": seed, "jobs": jobs, **own}

    def _trained(self, arrays: Arrays, **options: Any) -> FittedModel:
        """Train, with names of parameters in messages about options."""
        try:
            return api.train(arrays, **options)
        except ParameterError as error:
            name, colon, problem = str(error).partition(":")
            if name not in NAMES:
                raise
            # The gap of a linear machine is its tol.
            parameter = NAMES[name] if hasattr(self, NAMES[name]) else "tol"
            raise ParameterError(f"{parameter}{colon}{problem}") from None

    def _take(self, fitted: FittedModel) -> None:
        """Set the attributes of any fitted estimator."""
        self.model_, self.gap_ = fitted, fitted.gap
        if fitted.outcome is not None:
            self.fit_time_, self.stopped_ = fitted.outcome.seconds, fitted.outcome.stopped

    def _warns_of_gap(self, advice: str) -> bool:
        """Return whether training ended above the gap that was asked for, and warn if it did."""
        outcome: Any = self.model_.outcome
        asked, gap = outcome.gap_asked, outcome.gap
        missed = asked is not None and not gap <= asked
        if missed and outcome.stopped != StopReason.CALLBACK.value:
            text = f"stopped: {outcome.stopped}, with a gap of {gap:.3g} above {asked:g}; {advice}"
            warnings.warn(text, ConvergenceWarning, stacklevel=5)
        return missed

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a model file for randsvm-predict, or for svm-predict or liblinear-predict.

        Parameters
        ----------
        path : str or PathLike
            Name of the file; it is replaced as a whole or not at all.

        Raises
        ------
        OutputError, TransferError
            If the file cannot be created or written, or if it exists and is not a model.

        Notes
        -----
        Column j of X is the feature j + 1 of the file. A model that the programs of LIBSVM and
        LIBLINEAR cannot represent, as one with words as labels, is written so that they refuse it.
        A file does not hold break_ties.
        """
        check_is_fitted(self)
        self.model_.save(path)

    @classmethod
    def from_model(cls: type[AnySVM], path: str | os.PathLike[str]) -> AnySVM:
        """Return an estimator that predicts with the model in a file.

        Parameters
        ----------
        path : str or PathLike
            Model file of randsvm, LIBSVM or LIBLINEAR, for the task of this class.

        Returns
        -------
        BaseSVM
            The estimator, with the parameters that the file records: those of the kernel, and in
            files of randsvm C, nu, epsilon, class weights, tolerances and loss. Other
            parameters have their defaults. It has no attributes that only a training knows, such
            as support_, n_iter_ and fit_time_.

        Raises
        ------
        ModelError
            If the file is not a model, or one for another task.
        InputError
            If the file cannot be opened.

        Notes
        -----
        Column j of X is the feature j + 1 of the file, or j where features begin at 0. Of a model
        with scaling, support_vectors_ and coef_ are those of scaled rows. The attributes of the
        solution are sparse if fewer than half of the values of the support vectors are not 0. A
        kernel model with a decision function for each class has no n_support_, and a model with
        random features no coef_.
        """
        fitted = load(os.fspath(path))
        model = fitted.model
        found = model.properties()
        kind = cls._format, cls._task.removeprefix("nu-")
        if (found["format"], found["task"]) != kind or model.has_row_numbers:
            raise ModelError(f"{os.fspath(path)}: expected a model for {cls.__name__}")
        estimator, recorded = cls(), recorded_options(model)
        weights = recorded.get("weights", {})
        if BALANCED in weights and len(weights) > 1:
            others = ", ".join(label for label in weights if label != BALANCED)
            warnings.warn(
                f"class_weight='balanced' stands without the model's own weights of {others}: "
                "scikit-learn has no parameter for both",
                UserWarning,
                stacklevel=2,
            )
        estimator._set_model(fitted, recorded)
        return estimator

    def _set_model(self, fitted: FittedModel, recorded: dict[str, Any]) -> None:
        """Set the parameters and the attributes that predictions need.

        recorded: the options of the training
        """
        self._take(fitted)
        self.n_features_in_ = fitted.model.width
        if fitted.model.columns is not None:
            self.feature_names_in_ = np.array(fitted.model.columns.feature_names, object)
        for option, parameter in RECORDED.items():
            value, default = recorded.get(option), getattr(self, parameter, None)
            if isinstance(value, str) and isinstance(default, str):
                setattr(self, parameter, value.replace("-", "_"))
            # The option gap has words, too, which estimators do not take.
            elif isinstance(value, float) and hasattr(self, parameter):
                setattr(self, parameter, value)

    def _in_class_order(self, f: np.ndarray) -> np.ndarray:
        """Return columns, one for each decision value of the model, in the order of classes_."""
        return f

    def _feature_weights(self, w: np.ndarray) -> Any:
        """Return the weights of the columns of X, (functions, d) CSR of scipy, from those of the
        features of the model, (features, functions)."""
        model, (m, K) = self.model_.model, w.shape
        columns = np.tile(model.features - model.index_base, K)
        values, starts = self._in_class_order(w).T.ravel(), np.arange(K + 1) * m
        return sparse.csr_matrix((values, columns, starts), (K, self.n_features_in_))

    def to_onnx(self, dtype: Any = np.float64) -> Any:
        """Return the model as an ONNX graph.

        Parameters
        ----------
        dtype : dtype, default=float64
            Type of the input, float64 or float32.

        Returns
        -------
        onnx.ModelProto
            A graph with the input X and two or three outputs: label (for a regression:
            prediction), the decision values f, and probabilities if the model has them. Labels are
            those of the model file; for two classes f > 0 predicts the first of them.

        Raises
        ------
        ValueError
            If dtype is another type.
        ParameterError
            If the package onnx is not installed.
        ModelError
            If the kernel is precomputed or a function.
        """
        check_is_fitted(self)
        if np.dtype(dtype) not in (np.float64, np.float32):
            raise ValueError(f"dtype must be float64 or float32, got {dtype!r}")
        floats = np.dtype(dtype) == np.float32
        ties = getattr(self, "break_ties", False)
        return onnx_graph(self.model_.model, normal_form(self.model_.model), floats, ties)

    # skl2onnx calls these three methods of the last step of a pipeline.

    def onnx_parser(self) -> Any:
        """Return a function that returns the names of the outputs in a graph of skl2onnx.

        Returns
        -------
        callable
            The parser: label (for a regression: prediction), f, and probabilities if the model has
            them.
        """
        return lambda scope=None, inputs=None: [one.name for one in self.to_onnx().graph.output]

    def onnx_shape_calculator(self) -> Any:
        """Return a function that sets the types of the outputs in a graph of skl2onnx.

        Returns
        -------
        callable
            The shape calculator.
        """

        def calculate(operator: Any) -> None:
            from skl2onnx.common._topology import Variable

            found = Variable.from_pb(self.to_onnx().graph.output)
            for own, variable in zip(found, operator.outputs, strict=True):
                variable.type = own.type

        return calculate

    def onnx_converter(self) -> Any:
        """Return a function that adds the nodes of the model to a graph of skl2onnx.

        Returns
        -------
        callable
            The converter.
        """
        return partial(add_to, self.to_onnx())


@dataclass(eq=False, repr=False, kw_only=True)
class Classifier(ClassifierMixin, BaseSVM):
    """The base of classifiers: labels of any type are replaced by class numbers."""

    class_weight: Any = None

    _single_class_message: ClassVar[str] = "Invalid input"

    def _arrays(
        self, X: Any, y: Any, weights: np.ndarray | None, reset: bool, classes: Any
    ) -> Arrays:
        """Return rows with class numbers; those of the first rows set classes_ and class_weight_.

        classes_ are the sorted `classes`, or the labels of the rows with a weight above 0.
        """
        check_classification_targets(y)
        kept = slice(None) if weights is None else weights > 0
        if (
            not reset
            and classes is not None
            and not np.array_equal(np.unique(classes), self.classes_)
        ):
            raise ValueError("classes differ from those of the first call of partial_fit")
        if reset:
            self.classes_: Any = np.unique(y[kept] if classes is None else classes)
        if not np.isin(y[kept], self.classes_).all():
            raise ValueError("y has labels that the classes of partial_fit lack: name all of them")
        # A row that is left out may have any class number.
        codes = np.zeros(len(y), np.int64)
        codes[kept] = np.searchsorted(self.classes_, y[kept])
        if not reset:
            return Arrays(X, codes, self.classes_, weights)
        if len(self.classes_) < 2:
            problem = "The number of classes has to be greater than one; got 1 class"
            if len(np.unique(y)) > 1:
                same = "all samples with positive weights belong to the same class"
                problem = f"{self._single_class_message} - {same}"
            raise ValueError(problem)
        weight = self.class_weight
        self.class_weight_ = compute_class_weight(weight, classes=self.classes_, y=y[kept])
        if weights is not None and weight == "balanced":
            sums = np.bincount(codes, weights)
            self.class_weight_ = sums.sum() / (len(sums) * sums)
        return Arrays(X, codes, self.classes_, weights)

    def _options(self, arrays: Arrays) -> dict[str, Any]:
        return super()._options(arrays) | {"weights": self._class_weights()}

    def _class_weights(self) -> dict[str, float]:
        pairs = zip(label_texts(self.classes_), self.class_weight_.tolist(), strict=True)
        return {} if self.class_weight is None else dict(pairs)

    def _set_model(self, fitted: FittedModel, recorded: dict[str, Any]) -> None:
        super()._set_model(fitted, recorded)
        model, weights = fitted.model, recorded.get("weights", {})
        self.classes_ = np.unique(fitted.classes)
        if model.metadata.configuration is not None and BALANCED not in weights:
            counts = [1.0] * len(model.labels)
            of_labels = class_weights(tuple(weights.items()), model.labels, counts)
            self.class_weight_ = np.array(of_labels)[np.argsort(self._class_indices)]
        if weights:
            self.class_weight = (
                BALANCED
                if BALANCED in weights
                else dict(zip(self.classes_.tolist(), self.class_weight_.tolist(), strict=True))
            )

    @property
    def _class_indices(self) -> np.ndarray:
        """The index in classes_ of each label of the model, (n_classes,)."""
        return np.searchsorted(self.classes_, self.model_.classes)

    def _in_class_order(self, f: np.ndarray) -> np.ndarray:
        numbers = self._class_indices
        if self.model_.model.has_pairs:
            i, j = (numbers[each] for each in decisions.class_pairs(len(numbers)))
            columns = decisions.pair_positions(len(numbers))[i, j]
            return np.where(i < j, f, -f)[:, np.argsort(columns)]
        if f.shape[1] == 1:
            # f > 0 stands for the first label of the model, and here for classes_[1].
            return f if numbers[0] == 1 else -f
        return f[:, np.argsort(numbers)]
