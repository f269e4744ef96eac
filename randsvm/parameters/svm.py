"""Parameters of kernel machines, with their defaults and options, and the problem that they define.

A field carries its option (letters, long name, help), from which the command line is generated.
This module imports no large library, because `--help` imports it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

from randsvm.decimals import label_value
from randsvm.errors import InfeasibleError, ParameterError
from randsvm.parameters.option import (
    BALANCED,
    STOP,
    Choice,
    Flag,
    Number,
    NumberOrGrid,
    Option,
    Options,
    Switch,
    Weights,
    Whole,
    option,
    require,
    shared_option,
)
from randsvm.records import record

# Kernel -> its parameters. Both are in LIBSVM's order; the position of a kernel is its number.
KERNELS: dict[str, tuple[str, ...]] = {
    "linear": (),
    "poly": ("degree", "gamma", "coef0"),
    "rbf": ("gamma",),
    "sigmoid": ("gamma", "coef0"),
    "precomputed": (),
}
KERNEL_NAMES = tuple(KERNELS)
# The value of gamma that stands for 1/(d variance of all values), scikit-learn's default.
SCALE = "scale"

# Tasks in LIBSVM's order: the position of a task is its number.
TASK_NAMES = ("svc", "nu-svc", "one-class", "svr", "nu-svr")
NU_TASKS = ("nu-svc", "nu-svr")
TASKS_WITHOUT_COST = ("one-class", "nu-svc")
# Largest number of labels in an error message.
MAX_LISTED_LABELS = 10
# The ranges of LIBSVM's grid.py.
COSTS = tuple(2.0**power for power in range(-5, 16, 2))
GAMMAS = tuple(2.0**power for power in range(3, -16, -2))

WEIGHTS = Option(
    ("-w", "--weight"),
    "C of class LABEL is WEIGHT times C; also -wLABEL WEIGHT; repeatable. -w balanced: weights in "
    "inverse proportion to the rows of the classes.",
    Weights(),
    brief="C of class LABEL is WEIGHT times C; or balanced.",
)


def resolve_gamma(
    gamma: float | str | None,
    d: int,
    variance: Callable[[], float] | None = None,
    default: float | None = None,
) -> float:
    """Return gamma as a number for d features.

    gamma None: `default`, or 1/d (LIBSVM's) if that is None too. SCALE: 1/(d variance), or 1 if
    this is not positive and finite; it needs `variance`, which returns the variance of all values,
    zeros included.
    """
    if gamma is None:
        return 1.0 / max(d, 1) if default is None else default
    if isinstance(gamma, str):
        assert variance is not None, "gamma 'scale' needs the variance of the data"
        spread = d * variance()
        return 1.0 / spread if 0 < spread < math.inf else 1.0
    return gamma


def is_semidefinite(kernel: str, coef0: float) -> bool:
    """Return whether a kernel is positive semidefinite; precomputed kernels are assumed to be."""
    definite = kernel in ("linear", "rbf", "precomputed")
    return definite or (kernel == "poly" and coef0 >= 0)


def prediction_type_of(task: str) -> str:
    """Return the type of prediction of a task: svc, svr or one-class, with or without nu."""
    return task.removeprefix("nu-")


def weights_of_labels(
    weights: tuple[tuple[str, float], ...], names: Sequence[str]
) -> dict[int | str, float]:
    """Return the weight of each label that has one, by its value: 1, +1 and 1.0 name one class.

    Raise ParameterError for a label that is not in `names`, or that has two weights.
    """
    found: dict[int | str, float] = {}
    known = set(map(label_value, names))
    for label, weight in weights:
        value = label_value(label)
        if label == BALANCED:
            continue
        if value not in known:
            more = ", ..." if len(names) > MAX_LISTED_LABELS else ""
            listed = ", ".join(names[:MAX_LISTED_LABELS]) + more
            raise ParameterError(f"-w {label}: no class has this label; the labels are {listed}")
        require(value not in found, f"-w {label}: give one weight for each class, not two")
        found[value] = weight
    return found


def class_weights(
    weights: tuple[tuple[str, float], ...], names: Sequence[str], counts: Sequence[float]
) -> list[float]:
    """Return the weight of each class. names, counts: label and number of rows of each class, or
    the sum of the weights of these rows.

    BALANCED gives n / (K n_class) for K classes, except to a label with its own weight. Raise
    ParameterError for a weight of an unknown label.
    """
    others = [1.0] * len(names)
    if not weights:
        return others
    own = weights_of_labels(weights, names)
    if BALANCED in dict(weights):
        # A part of the rows may lack a class.
        K = sum(count > 0 for count in counts)
        total = math.fsum(counts)
        others = [total / (K * count) if count else 1.0 for count in counts]
    return [own.get(label_value(name), one) for name, one in zip(names, others, strict=True)]


def stated_weights(
    weights: tuple[tuple[str, float], ...], names: Sequence[str]
) -> list[float | None]:
    """Return the weight of each class as the options state it; None: the option is `balanced`.

    names: the label of each class.
    """
    own, others = weights_of_labels(weights, names), None if BALANCED in dict(weights) else 1.0
    return [own.get(label_value(name), others) for name in names]


def side_weights(
    weights: tuple[tuple[str, float], ...],
    names: Sequence[str],
    counts: Sequence[float],
    first: int,
    other: int | None,
) -> tuple[float, float]:
    """Return the weights of a class and of another one, or of the rest if `other` is None.

    weights, names, counts: see `class_weights`. As in LIBSVM all classes determine the weights of
    two. The rest has the weight 1, as in LIBLINEAR; with BALANCED the bounds of each side have the
    same sum over its rows.
    """
    of_classes = class_weights(weights, names, counts)
    if other is not None:
        return of_classes[first], of_classes[other]
    if BALANCED not in dict(weights):
        return of_classes[first], 1.0
    # Not the difference of two sums, which loses digits.
    sides = counts[first], math.fsum([*counts[:first], *counts[first + 1 :]])
    even = class_weights(((BALANCED, 1.0),), ("", "rest"), sides)
    named = label_value(names[first]) in weights_of_labels(weights, names)
    return of_classes[first] if named else even[0], even[1]


@record
class KernelDefects:
    """How far precomputed values are from a symmetric, positive semidefinite matrix.

    asymmetry : the largest |K(x, z) - K(z, x)|
    shift : with this number added to each K(x, x), their symmetric part is positive semidefinite;
    inf: none is known
    """

    asymmetry: float = 0.0
    shift: float = 0.0


NO_DEFECTS = KernelDefects()


@record
class Problem:
    """An optimisation problem of one decision function over the rows of D.

    bounds : of a row of weight 1, the largest |beta| for beta > 0 and for beta < 0: C of the
    classes y = +1 and y = -1; 1 for one-class and nu-SVC (LIBSVM's scale)
    epsilon : half width of the tube of epsilon-SVR
    coefficient_sum : sum beta of every solution: nu times the sum of all weights for one-class,
    else 0
    tolerance : tolerance of the KKT conditions
    kernel_cache : size of LIBSVM's kernel cache in MB; it does not change results
    absolute_sum : sum |beta| of every solution of nu-SVC and nu-SVR, else 0
    weighted : whether rows have weights, by which their bounds are multiplied
    defects : of a precomputed kernel
    """

    task: str
    kernel: str
    degree: int
    gamma: float
    coef0: float
    bounds: tuple[float, float]
    epsilon: float
    coefficient_sum: float
    tolerance: float
    shrinking: bool
    kernel_cache: float = 100.0
    absolute_sum: float = 0.0
    weighted: bool = False
    defects: KernelDefects = NO_DEFECTS

    def with_bounds_times(self, factor: float) -> Problem:
        """Return the problem with `factor` times the bounds of the coefficients."""
        positive, negative = self.bounds
        return replace(self, bounds=(positive * factor, negative * factor))

    @property
    def prediction_type(self) -> str:
        """The type of prediction: svc, svr or one-class."""
        return prediction_type_of(self.task)

    @property
    def may_be_indefinite(self) -> bool:
        """Return whether the kernel is precomputed and may not be positive semidefinite."""
        return math.isinf(self.defects.shift)

    @property
    def positive_semidefinite(self) -> bool:
        """Return whether the kernel is positive semidefinite: only then D <= optimum <= P."""
        return not self.may_be_indefinite and is_semidefinite(self.kernel, self.coef0)


@record
class MachineParams(Options):
    """The parameters that kernel machines and linear machines share."""

    task: str = option(
        "svc",
        Choice(*TASK_NAMES),
        "-s",
        "--task",
        help="svc (0), nu-svc (1): classification; one-class (2): novelty detection; svr (3), "
        "nu-svr (4): regression.",
        brief="svc, nu-svc, one-class, svr or nu-svr (0 to 4).",
    )
    kernel: str = option(
        "rbf",
        Choice(*KERNEL_NAMES),
        "-t",
        "--kernel",
        help="Kernel, by word or LIBSVM's number.",
        brief="linear, poly, rbf, sigmoid or precomputed (0 to 4).",
    )
    degree: int = option(
        3, Whole(">= 0 and <= 1000"), "-d", "--degree", help="Degree of the poly kernel."
    )
    gamma: float | str | None = option(
        None,
        NumberOrGrid(">= 0 and finite", SCALE, auto=GAMMAS),
        "-g",
        "--gamma",
        help="gamma of poly, rbf and sigmoid; scale: 1/(d * variance of all values); several "
        "values and auto (a search, not scikit-learn's auto): see -c.  [default: 1/d for d "
        "features]",
        brief="gamma of the kernel.",
    )
    coef0: float = option(
        0.0,
        Number("finite"),
        "-r",
        "--coef0",
        help="coef0 of poly and sigmoid.",
    )
    C: float | None = option(
        None,
        NumberOrGrid("> 0 and finite", auto=COSTS),
        "-c",
        "--cost",
        help="C, the cost of a violation; C = 1/(lambda n) for n rows. Several values of -c, -g, "
        "-p or -n start a search: a list 1,2,8, or a range 2^-5:2^15:2^2 (from : to : factor). "
        "-c auto, -g auto: search the ranges of LIBSVM's grid.py, then finer ones around the best. "
        " [default: 1]",
        brief="C, the cost of a violation; a list (1,8,64) is searched.",
    )
    epsilon: float = option(
        0.1,
        NumberOrGrid(">= 0 and finite"),
        "-p",
        "--epsilon",
        help="svr: residuals up to this size cost nothing.",
        brief="svr: residuals up to this size cost nothing.",
    )
    nu: float | None = option(
        None,
        NumberOrGrid("> 0 and <= 1"),
        "-n",
        "--nu",
        help="one-class: at most this share of the rows is outside.  [default: the share that "
        "follows from -c]",
        brief="one-class: at most this share of the rows is outside.",
    )
    components: int | None = option(
        None,
        Whole(">= 1"),
        "--components",
        help="Approximate the rbf or poly kernel by N random features and train a linear model.",
    )
    multiclass: str | None = option(
        None,
        Choice("ovo", "ovr"),
        "--multiclass",
        help="Decision functions of three or more classes: one against one, by votes, as in "
        "LIBSVM, or one against the rest.  [default: ovo; ovr with --components]",
    )
    weights: tuple[tuple[str, float], ...] = shared_option((), WEIGHTS)
    probability: bool = option(
        False,
        Switch(),
        "-b",
        "--probability",
        help="1: fit probabilities: for classes Platt's sigmoid, for regression the scale of the "
        "noise (both by a cross-validation), for one-class the density of rows.  "
        "[default: 0]",
        brief="1: fit probabilities.",
    )
    conformal: bool = option(
        False,
        Flag(),
        "--conformal",
        help="Keep scores of cross-validated rows, from which randsvm-predict --coverage writes "
        "label sets or intervals.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.components is None or self.kernel in ("rbf", "poly"),
            f"--components: random features are for -t rbf and -t poly, not {self.kernel}",
        )
        require(
            self.prediction_type == "svc" or not (self.probability and self.has_linear_model),
            f"-b 1: probabilities of linear machines are for -s svc, not {self.task}",
        )
        require(
            not self.conformal or self.task != "one-class", "--conformal is not for -s one-class"
        )

    @property
    def prediction_type(self) -> str:
        """The type of prediction: svc, svr or one-class."""
        return prediction_type_of(self.task)

    @property
    def has_linear_model(self) -> bool:
        """Whether the model has weights of the features of the data, or of random ones."""
        return self.components is not None

    def uses(self, name: str) -> bool:
        """Return whether the field `name` has an effect with the other values."""
        needs: dict[str, bool] = {
            "nu": self.task in ("one-class", *NU_TASKS),
            "epsilon": self.task == "svr",
            **{field: field in KERNELS[self.kernel] for field in KERNELS["poly"]},
            "multiclass": self.task in ("svc", "nu-svc"),
        }
        return needs.get(name, True)


def inherited(name: str, **changes: Any) -> Any:
    """Return a field of MachineParams whose default or Option has these changes."""
    inherited_field = next(f for f in fields(MachineParams) if f.name == name)
    default = changes.pop("default", inherited_field.default)
    return shared_option(default, inherited_field.metadata["option"]._replace(**changes))


@record
class KernelParams(MachineParams):
    """The parameters of a kernel machine, with LIBSVM's letters, meanings and defaults."""

    C: float = inherited("C", default=1.0)
    nu: float = inherited(
        "nu",
        default=0.5,
        help="one-class: at most this share of the rows is outside; nu-svc, nu-svr: at most this "
        "share is inside the margin or outside the tube.",
        brief="one-class, nu-svc, nu-svr: share of outliers allowed.",
    )
    tolerance: float = option(
        1e-3,
        Number("> 0 and < 1"),
        "-e",
        "--tolerance",
        help="Tolerance of the KKT conditions. In a search for svc or svr on at most 4,096 rows it "
        "also ends the fits of the folds, unless --search-gap is given.",
        group=STOP,
    )
    shrinking: bool = option(
        True,
        Switch(),
        "-h",
        "--shrinking",
        help="LIBSVM's shrinking heuristics. 0 has an effect only if the first working set has "
        "more than 4,096 rows: all kernel values of smaller ones are in memory.  [default: 1]",
        group=STOP,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.task == "svc" or not self.weights, f"class weights are for -s svc, not {self.task}"
        )
        require(
            self.task not in NU_TASKS or self.components is None,
            f"--components: random features are not for -s {self.task}",
        )
        require(
            self.multiclass != "ovo" or self.components is None,
            "--multiclass ovo: --components makes a linear machine, each class against the rest",
        )

    def check_classes(self, names: Sequence[str], counts: Sequence[float]) -> None:
        """Raise InfeasibleError if nu is infeasible for two classes of -s nu-svc."""
        most = 2 * min(counts) / math.fsum(counts)
        if self.task == "nu-svc" and self.nu > most:
            raise InfeasibleError(
                f"-n {self.nu:g} is infeasible for the classes {' and '.join(names)}: with "
                f"{counts[0]:,.10g} and {counts[1]:,.10g} rows it is at most "
                f"{math.floor(most * 1e4) / 1e4:g}"
            )

    def resolved(self, d: int, classes: int) -> KernelParams:
        """Return the parameters with gamma, 1/d by default, and multiclass, None for two classes.

        d: number of features; classes: number of classes.
        """
        gamma = resolve_gamma(self.gamma, d)
        multiclass = self.multiclass or ("ovo" if self.components is None else "ovr")
        return replace(self, gamma=gamma, multiclass=multiclass if classes > 2 else None)

    def problem(
        self,
        n: float,
        weights: tuple[float, float] = (1.0, 1.0),
        kernel_cache: float = 100.0,
        weighted: bool = False,
        defects: KernelDefects = NO_DEFECTS,
    ) -> Problem:
        """Return the problem over n rows, or over rows whose weights add up to n.

        Call `resolved` before.

        weights: of the classes y = +1 and y = -1; for others see Problem. One-class has LIBSVM's
        scale: 0 <= alpha <= 1, sum alpha = nu n.
        """
        assert isinstance(self.gamma, float | int), "params.resolved() comes first"
        coefficient_sum = self.nu * n if self.task == "one-class" else 0.0
        return Problem(
            task=self.task,
            kernel=self.kernel,
            degree=self.degree,
            gamma=self.gamma,
            coef0=self.coef0,
            bounds=(self.cost * weights[0], self.cost * weights[1]),
            epsilon=self.epsilon,
            coefficient_sum=coefficient_sum,
            tolerance=self.tolerance,
            shrinking=self.shrinking,
            kernel_cache=kernel_cache,
            absolute_sum=self.cost * self.nu * n if self.task in NU_TASKS else 0.0,
            weighted=weighted,
            defects=defects,
        )

    @property
    def cost(self) -> float:
        """C, or 1 for one-class and nu-svc in LIBSVM's scale."""
        return 1.0 if self.task in TASKS_WITHOUT_COST else self.C

    def uses(self, name: str) -> bool:
        return super().uses(name) and (name != "C" or self.task not in TASKS_WITHOUT_COST)

    @property
    def positive_semidefinite(self) -> bool:
        """Return whether the kernel is positive semidefinite: only then D <= optimum <= P."""
        return is_semidefinite(self.kernel, self.coef0)
