"""Parameters: frozen dataclasses, checked when made. Every default lives here and nowhere else.

A field also carries its option (letters, long name, help), so that the command line and the
line that repeats a run cannot drift from it. Imports nothing heavy: `--help` reads this room.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields, replace
from typing import Any, TypeAlias, TypeVar

from randsvm.errors import ParameterError

# LIBSVM's words in LIBSVM's order: the position is LIBSVM's number.
KERNEL_NAMES = ("linear", "poly", "rbf", "sigmoid")
# An empty word is a number of LIBSVM's that is not offered (nu-SVC).
TASK_NAMES = ("svc", "", "one-class", "svr")
# The position is the number that _sgd.pyx knows a loss by.
LOSS_NAMES = ("hinge", "squared-hinge", "log")
MULTICLASS_NAMES = ("ovr", "crammer-singer")
SCALINGS = ("minmax", "standard", "unit")

# Label of a weight that stands for all classes.
BALANCED = "balanced"

MEGABYTE = 1 << 20

P = TypeVar("P")


@dataclass(frozen=True)
class Option:
    """How a field is named on the command line: its flags, its help, what it is measured in.

    kind: int, float, floats (one, or a list for a grid search), flag, switch (0 or 1), path, size
    (bytes with K, M, G), duration (seconds with s, m, h), weights (pairs of label and number); a
    tuple of words is a choice.
    """

    flags: tuple[str, ...]
    help: str
    kind: str | tuple[str, ...]


def option(default: Any, kind: str | tuple[str, ...], *flags: str, help: str) -> Any:
    """A dataclass field with its option."""
    return shared(default, Option(flags, help, kind))


def shared(default: Any, spec: Option) -> Any:
    """A dataclass field with an option that other classes have as well."""
    return field(default=default, metadata={"option": spec})


TASK = Option(
    ("-s", "--task"),
    "What is trained: classes (LIBSVM's 0), epsilon-regression (3), novelty detection (2).",
    TASK_NAMES,
)
DEGREE = Option(("-d", "--degree"), "Degree of the poly kernel.", "int")
COEF0 = Option(("-r", "--coef0"), "coef0 of poly and sigmoid.", "float")
EPSILON = Option(("-p", "--epsilon"), "Half width of the tube of -s svr without loss.", "floats")
EXACT = Option(
    ("--exact",),
    "Random features of poly: only degrees of 2 and more random (Kar and Karnick's H0/1).",
    "flag",
)
COST = Option(
    ("-c", "--cost"),
    "C, the cost of a violation; C = 1/(lambda n) for n rows. A list, as 1,2,8, is searched, also "
    "of -g, -p, -n and --lambda.",
    "floats",
)
PROBABILITY = Option(
    ("-b", "--probability"),
    "Fit probabilities (Platt's sigmoid) to cross-validated decision values.  [default: 0]",
    "switch",
)
WEIGHTS = Option(
    ("-w", "--weight"),
    "C of class LABEL is WEIGHT times C; also -wLABEL WEIGHT; repeatable. -w balanced: each class "
    "has the same say.",
    "weights",
)


# Fields with several values, which a grid search tries.
Grid: TypeAlias = "tuple[tuple[str, tuple[float, ...]], ...]"


def options(parameters: Any) -> Iterator[tuple[Field, Option]]:
    """The fields of a parameter class (or object) that have an option."""
    return ((f, f.metadata["option"]) for f in fields(parameters) if "option" in f.metadata)


def command_line(*parameters: Any, grid: Grid = ()) -> list[str]:
    """Options and values that make these parameters again; what is None or False is left out.

    grid: the values of fields that have several.
    """
    words: list[str] = []
    several = dict(grid)
    for group in parameters:
        for f, spec in options(group):
            value = getattr(group, f.name)
            if f.name in several:
                words += [spec.flags[0], ",".join(map(_word, several[f.name]))]
            elif spec.kind == "flag":
                name, _, negation = spec.flags[0].partition("/")
                words += [name] if value else [negation] if negation else []
            elif spec.kind == "weights":
                for label, weight in value:
                    words += [spec.flags[0], label]
                    words += [] if label == BALANCED else [_word(weight)]
            elif value is not None:
                timed = spec.kind == "checkpoint" and isinstance(value, float)
                unit = "s" if spec.kind == "duration" or timed else ""
                words += [spec.flags[0], _word(value) + unit]
    return words


def _word(value: Any) -> str:
    """The shortest word that reads back as the same value."""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    return str(value)


def _require(condition: bool, sentence: str) -> None:
    """Conditions are written so that nan fails them too."""
    if not condition:
        raise ParameterError(sentence)


def same_label(one: str, other: str) -> bool:
    """Whether two spellings name one class: 1, +1 and 1.0 do."""
    try:
        return float(one) == float(other)
    except ValueError:
        return one == other


def _check_cost(C: float | None, weights: tuple[tuple[str, float], ...]) -> None:
    _require(C is None or 0 < C < math.inf, f"C must be > 0 and finite, got {C}")
    for label, weight in weights:
        _require(0 < weight < math.inf, f"weight of {label} must be > 0 and finite, got {weight}")


def _check_probability(task: str, probability: bool) -> None:
    _require(task == "svc" or not probability, f"-b 1: probabilities are for -s svc, not {task}")


def _check_epsilon(epsilon: float) -> None:
    _require(0 <= epsilon < math.inf, f"epsilon must be >= 0 and finite, got {epsilon}")


def _check_map(kernel: str, components: int | None, exact: bool) -> None:
    _require(components is None or components >= 1, f"components must be >= 1, got {components}")
    _require(
        components is None or kernel in ("rbf", "poly"),
        f"--components: random features are for -t rbf and -t poly, not {kernel}",
    )
    _require(
        not exact or (kernel == "poly" and components is not None),
        "--exact is for the random features of -t poly: give --components",
    )


def _uses(params: Any, name: str) -> bool:
    """Whether a field has a meaning for this task and kernel; what Params and SgdParams share."""
    needs = {
        "nu": params.task == "one-class",
        "epsilon": params.task == "svr",
        "gamma": params.kernel != "linear",
    }
    return needs.get(name, True)


def class_weights(
    weights: tuple[tuple[str, float], ...], names: Sequence[str], counts: Sequence[int]
) -> list[float]:
    """The weight of each class of `names`, which have so many rows each.

    BALANCED: n / (K n_class) for K classes; the weight of a label overrules it. Raises
    ParameterError for a label that the data does not have.
    """
    found = [1.0] * len(names)
    if BALANCED in [label for label, _ in weights]:
        found = [sum(counts) / (len(counts) * count) for count in counts]
    for label, weight in weights:
        matches = [same_label(label, name) for name in names]
        if label != BALANCED or any(matches):
            _require(any(matches), f"-w {label}: the data has the labels {', '.join(names)}")
            found[matches.index(True)] = weight
    return found


@dataclass(frozen=True)
class Params:
    """What is trained: LIBSVM's letters with LIBSVM's meanings and defaults."""

    task: str = shared("svc", TASK)
    kernel: str = option(
        "rbf", KERNEL_NAMES, "-t", "--kernel", help="Kernel, by word or LIBSVM's number."
    )
    degree: int = shared(3, DEGREE)
    gamma: float | None = option(
        None,
        "floats",
        "-g",
        "--gamma",
        help="gamma of poly, rbf and sigmoid.  [default: 1/d, d features found]",
    )
    coef0: float = shared(0.0, COEF0)
    C: float = shared(1.0, COST)
    epsilon: float = shared(0.1, EPSILON)
    nu: float = option(
        0.5, "floats", "-n", "--nu", help="Share of the rows that -s one-class may leave outside."
    )
    components: int | None = option(
        None,
        "int",
        "--components",
        help="Random features: so many instead of the rbf or poly kernel, and a linear machine.",
    )
    exact: bool = shared(False, EXACT)
    tolerance: float = option(
        1e-3, "float", "-e", "--tolerance", help="Tolerance of the KKT conditions."
    )
    shrinking: bool = option(
        True, "switch", "-h", "--shrinking", help="LIBSVM's shrinking heuristics.  [default: 1]"
    )
    weights: tuple[tuple[str, float], ...] = shared((), WEIGHTS)
    probability: bool = shared(False, PROBABILITY)
    # Weights of y = +1 and y = -1, see `weighted`.
    class_weights: tuple[float, float] = (1.0, 1.0)
    # sum beta of every solution: nu n for one-class, see `resolved`.
    total: float = 0.0
    # Size of LIBSVM's kernel cache in MB. No option here: `Resources` decides, as it does not
    # change what is trained.
    cache: float = 100.0
    # How working sets grow; the algorithm decides. freeze: bounded support vectors may be held
    # outside. growth: factor over the support vectors that have to be inside (0: the size is
    # fixed). most: rows that a working set may have at all.
    freeze: bool = False
    growth: float = 0.0
    most: int = 2**31

    def __post_init__(self) -> None:
        _require(
            self.task != "" and self.task in TASK_NAMES,
            f"task must be one of {', '.join(filter(None, TASK_NAMES))}, got {self.task}",
        )
        _check_epsilon(self.epsilon)
        _check_map(self.kernel, self.components, self.exact)
        _require(0 < self.nu <= 1, f"nu must be > 0 and <= 1, got {self.nu}")
        _require(
            self.task == "svc" or not self.weights, f"class weights are for -s svc, not {self.task}"
        )
        _check_probability(self.task, self.probability)
        _require(
            self.kernel in KERNEL_NAMES, f"kernel must be one of {KERNEL_NAMES}, got {self.kernel}"
        )
        _require(0 <= self.degree <= 1000, f"degree must be from 0 to 1000, got {self.degree}")
        _require(
            self.gamma is None or 0 <= self.gamma < math.inf,
            f"gamma must be >= 0 and finite, got {self.gamma}",
        )
        _require(math.isfinite(self.coef0), f"coef0 must be finite, got {self.coef0}")
        _check_cost(self.C, self.weights)
        _require(0 < self.tolerance < 1, f"tolerance must be > 0 and < 1, got {self.tolerance}")

    def weighted(self, names: Sequence[str], counts: Sequence[int]) -> Params:
        """The same with the weights given to the class y = +1 and the class y = -1, in that order.

        See `class_weights`.
        """
        positive, negative = class_weights(self.weights, names, counts)
        return replace(self, class_weights=(positive, negative))

    def against_the_rest(self, place: int, names: Sequence[str], counts: Sequence[int]) -> Params:
        """The same with the weights of the class at `place` and of all others together: as in
        LIBLINEAR the rest weighs 1, and as much as the class where it is BALANCED."""
        rest = sum(counts) - counts[place]
        positive = class_weights(self.weights, names, counts)[place]
        if BALANCED not in [label for label, _ in self.weights]:
            return replace(self, class_weights=(positive, 1.0))
        own = [(label, weight) for label, weight in self.weights if label != BALANCED]
        even = class_weights(((BALANCED, 1.0),), ("", "rest"), (counts[place], rest))
        named = any(same_label(label, names[place]) for label, _ in own)
        return replace(self, class_weights=(positive if named else even[0], even[1]))

    @property
    def bounds(self) -> tuple[float, float]:
        """C where beta > 0 and where it is < 0: of the class y = +1 and of the class y = -1."""
        return self.C * self.class_weights[0], self.C * self.class_weights[1]

    @property
    def one_bound(self) -> bool:
        """Whether bounded support vectors can be frozen: all rows have the same C, and LIBSVM has
        a form with a linear term (not for one-class)."""
        return self.bounds[0] == self.bounds[1] and self.task != "one-class"

    def resolved(self, n: int, d: int) -> Params:
        """The same for n rows of d features: gamma = 1/d where it was left open (LIBSVM's default),
        and in LIBSVM's scale of one-class 0 <= alpha <= 1, sum alpha = nu n."""
        gamma = 1.0 / max(d, 1) if self.gamma is None else self.gamma
        if self.task == "one-class":
            return replace(self, gamma=gamma, C=1.0, total=self.nu * n)
        return replace(self, gamma=gamma)

    def uses(self, name: str) -> bool:
        """Whether the field `name` has a meaning beside the others."""
        return _uses(self, name) and (name != "C" or self.task != "one-class")

    @property
    def positive_semidefinite(self) -> bool:
        """Whether the kernel is: only then D <= optimum <= P holds."""
        return self.kernel in ("linear", "rbf") or (self.kernel == "poly" and self.coef0 >= 0)


@dataclass(frozen=True)
class RandsvmParams:
    """Algorithm 1 of KBH07: the bound k on the number of support vectors and the sample size r.

    support_bound None: KBH07 section 3's formula from distortion epsilon and delta. sample_size
    None: `EXCESS` times k; why, see algorithms/randsvm.py.
    """

    EXCESS = 1.5

    support_bound: int | None = option(
        None,
        "int",
        "-k",
        "--support-bound",
        help="Stop at k support vectors.  [default: ceil(32 ln(4n/delta) / epsilon^2)]",
    )
    sample_size: int | None = option(
        None,
        "int",
        "--sample-size",
        help=f"Rows r of a subproblem, more than k.  [default: {EXCESS:g} k]",
    )
    distortion: float = option(
        0.2, "float", "--distortion", help="epsilon of k's formula, of the random projection."
    )
    delta: float = option(0.9, "float", "--delta", help="Failure probability in k's formula.")
    separable: bool = option(
        False,
        "flag",
        "--separable",
        help="The data is linearly separable in feature space: factor 16 in k's formula, not 32.",
    )

    def __post_init__(self) -> None:
        k, r = self.support_bound, self.sample_size
        _require(k is None or k >= 1, f"support bound k must be >= 1, got {k}")
        _require(r is None or r >= 2, f"sample size r must be >= 2, got {r}")
        _require(
            0 < self.distortion < 1,
            f"distortion epsilon must be > 0 and < 1, got {self.distortion}",
        )
        _require(0 < self.delta < 1, f"delta must be > 0 and < 1, got {self.delta}")
        if k is not None and r is not None:
            _require(
                r > k,
                f"sample size r must exceed the support bound k, got r={r}, k={k}; "
                f"raise --sample-size or lower --support-bound",
            )

    def resolved(self, n: int) -> RandsvmParams:
        """k and r filled in for n rows.

        k = ceil(factor ln(4 n / delta) / epsilon^2), KBH07 section 3: 10,404 for n = 100,000.
        Where r was given and k was not, k is at most r - 1.
        """
        k, r = self.support_bound, self.sample_size
        if k is None:
            factor = 16 if self.separable else 32
            k = math.ceil(factor * math.log(4 * n / self.delta) / self.distortion**2)
            k = k if r is None else min(k, r - 1)
        return replace(
            self, support_bound=k, sample_size=r or max(k + 1, math.ceil(self.EXCESS * k))
        )


@dataclass(frozen=True)
class OsunaParams:
    """OFG97's decomposition: the size of the working set B and how it changes."""

    # The working set where the user left it open, see `smallest`; it grows to GROWTH times the
    # unbounded support vectors as they are found.
    SMALLEST, LARGEST, FEW_ROWS, NODES = 2000, 10_000, 100_000, 4_000_000
    GROWTH = 2.0
    # The same where every support vector has to be inside.
    INSIDE_GROWTH = 1.5
    # Rows of the first working set of one-class, in units of nu n.
    ONE_CLASS = 4.0

    working_set: int | None = option(
        None,
        "int",
        "--working-set",
        help=f"Rows B of a subproblem.  [default: {SMALLEST}, up to {LARGEST} for more than "
        f"{FEW_ROWS:,} rows, growing to {GROWTH:g} times the unbounded support vectors]",
    )
    swap: int | None = option(
        None, "int", "--swap", help="Violators that enter a round.  [default: as many as fit]"
    )

    def __post_init__(self) -> None:
        B, swap = self.working_set, self.swap
        _require(B is None or B >= 2, f"working set must be >= 2 rows, got {B}")
        _require(swap is None or swap >= 1, f"swap must be >= 1 rows, got {swap}")

    @classmethod
    def smallest(cls, n: int, nonzeros: float) -> int:
        """Rows of the first working set for n rows of so many nonzeros each: 2,000 for 100,000,
        7,962 for a million, as far as LIBSVM's nodes for them stay within 64 MB.

        A scan costs about n B kernel values, a solve some 50 times B^2: the larger n, the larger
        the B of least cost. Measured on twonorm and checkerboard: at 100,000 rows 2,000 to 2,800
        are as good, at a million 8,000 and 10,000 took 0.8 of the time of 2,000.
        """
        best = min(cls.SMALLEST * (n / cls.FEW_ROWS) ** 0.6, cls.LARGEST)
        return int(max(cls.SMALLEST, min(best, cls.NODES / (nonzeros + 1))))


@dataclass(frozen=True)
class SgdParams:
    """Linear SVM by stochastic gradient descent: minimise lambda/2 |w|^2 + mean loss.

    C and lambda_ are two scales of one thing, C = 1/(lambda n); neither: C = 1.
    epochs: passes over the data, or "auto" (CS246). update: the model that is taught further.
    checkpoint: rows (int) or seconds (float).
    """

    # Fewer rows need more passes: with 10 to 30 of them the objective ends within 1% of the optimum
    # (measured on 4,000 to 500,000 rows of text at C = 1).
    EPOCHS, MOST_EPOCHS, MANY_ROWS = 10, 30, 200_000
    COMPONENTS = 1024
    # Most epochs that --epochs auto tries, and the rows of its two small sets.
    AUTO_EPOCHS = 50
    AUTO_ROWS = 10_000

    task: str = shared("svc", TASK)
    kernel: str = option(
        "linear",
        KERNEL_NAMES[:3],
        "-t",
        "--kernel",
        help="linear, or the kernel that random features stand for.",
    )
    degree: int = shared(3, DEGREE)
    gamma: float | None = option(
        None,
        "floats",
        "-g",
        "--gamma",
        help="gamma of the kernel.  [default: 1/d for rbf with d features found, 1 for poly]",
    )
    coef0: float = shared(0.0, COEF0)
    components: int | None = option(
        None,
        "int",
        "--components",
        help=f"Random features of -t rbf and -t poly.  [default: {COMPONENTS}]",
    )
    exact: bool = shared(False, EXACT)
    epsilon: float = shared(0.1, EPSILON)
    C: float | None = shared(None, COST)
    lambda_: float | None = option(
        None, "floats", "--lambda", help="lambda = 1/(C n), instead of -c.  [default: -c 1]"
    )
    loss: str | None = option(
        None,
        LOSS_NAMES,
        "--loss",
        help="Loss of a row with z = y f: max(0, 1-z), its square, or log(1+exp(-z)).  "
        "[default: hinge]",
    )
    multiclass: str | None = option(
        None,
        MULTICLASS_NAMES,
        "--multiclass",
        help="How three or more classes are told apart: each against the rest, or all at once.  "
        "[default: ovr]",
    )
    epochs: int | str | None = option(
        None,
        "epochs",
        "--epochs",
        help="Passes over the data; auto: as many as were best on two small sets of rows.  "
        f"[default: {EPOCHS}, up to {MOST_EPOCHS} for fewer than {MANY_ROWS:,} rows]",
    )
    average: bool = option(
        False,
        "flag",
        "--average",
        help="Take the mean of the weights over the last epochs, not the last weights. Always so "
        "with 1 or 2 epochs, --epochs auto, --early-stopping and --update.",
    )
    early_stopping: float | None = option(
        None,
        "float",
        "--early-stopping",
        help="Hold out this share of the rows; end when their loss stops falling.",
    )
    weights: tuple[tuple[str, float], ...] = shared((), WEIGHTS)
    probability: bool = shared(False, PROBABILITY)
    update: str | None = option(
        None,
        "path",
        "--update",
        help="Teach this model the rows of TRAIN_FILE: one pass, in order, as they arrive.",
    )
    update_rate: float | None = option(
        None, "float", "--update-rate", help="Fixed step size for --update.  [default: falling]"
    )
    checkpoint: int | float | None = option(
        None,
        "checkpoint",
        "--checkpoint",
        help="With --update: write the model every so many rows (100000) or so often (60s, 10m).",
    )

    def __post_init__(self) -> None:
        _check_cost(self.C, self.weights)
        _check_epsilon(self.epsilon)
        _require(
            self.task in TASK_NAMES and self.task != "",
            f"task must be one of {', '.join(filter(None, TASK_NAMES))}, got {self.task}",
        )
        if self.kernel == "linear" or self.components is not None:
            _check_map(self.kernel, self.components, self.exact)
        _require(
            self.task != "svr" or self.loss is None, "-s svr has a loss of its own: give no --loss"
        )
        _check_probability(self.task, self.probability)
        _require(
            self.update is None or not self.probability, "--update fits no probabilities: no -b 1"
        )
        _require(
            self.task == "svc" or not (self.weights or self.multiclass),
            f"class weights and --multiclass are for -s svc, not {self.task}",
        )
        _require(self.C is None or self.lambda_ is None, "give one of -c and --lambda, not both")
        _require(
            self.lambda_ is None or 0 < self.lambda_ < math.inf,
            f"lambda must be > 0 and finite, got {self.lambda_}",
        )
        _require(
            self.multiclass != "crammer-singer" or self.loss in (None, "hinge"),
            f"--multiclass crammer-singer has the hinge loss, not {self.loss}",
        )
        _require(
            self.epochs in (None, "auto") or int(self.epochs or 0) >= 1,
            f"epochs must be >= 1, got {self.epochs}",
        )
        hold, rate = self.early_stopping, self.update_rate
        _require(hold is None or 0 < hold < 1, f"early stopping must be > 0 and < 1, got {hold}")
        _require(
            hold is None or self.epochs != "auto", "give one of --epochs auto and --early-stopping"
        )
        _require(
            rate is None or 0 < rate < math.inf, f"update rate must be > 0 and finite, got {rate}"
        )
        for name in ("update_rate", "checkpoint"):
            _require(
                self.update is not None or getattr(self, name) is None,
                f"--{name.replace('_', '-')} needs --update MODEL",
            )
        words = {f.name: spec.flags[-1].lstrip("-") for f, spec in options(self)}
        begun = ("gamma", "components", "C", "lambda_", "loss", "multiclass", "epochs")
        for name in (*begun, "early_stopping"):
            _require(
                self.update is None or getattr(self, name) is None,
                f"--update goes on as the model was begun: it takes no --{words[name]}",
            )
        _require(
            self.update is None or BALANCED not in [label for label, _ in self.weights],
            "-w balanced needs the number of rows, which --update does not know",
        )

    def resolved(self, n: int) -> SgdParams:
        """What was left open filled in for n rows."""
        passes = math.ceil(self.EPOCHS * (self.MANY_ROWS / n) ** 0.25)
        mapped = self.kernel != "linear" and self.components is None
        return replace(
            self,
            components=self.COMPONENTS if mapped else self.components,
            C=1.0 if self.C is None and self.lambda_ is None else self.C,
            loss=self.loss or (None if self.task == "svr" else "hinge"),
            multiclass=self.multiclass or ("ovr" if self.task == "svc" else None),
            epochs=self.epochs or min(max(passes, self.EPOCHS), self.MOST_EPOCHS),
        )

    def uses(self, name: str) -> bool:
        """Whether the field `name` has a meaning beside the others."""
        return _uses(self, name)

    @property
    def averages(self) -> bool:
        """Whether the answer is the mean of the weights: where the number of steps is not known,
        no step size can fall to zero with it."""
        if self.average or self.early_stopping is not None or self.update is not None:
            return True
        return self.epochs in ("auto", 1, 2)

    def scales(self, n: int) -> tuple[float, float]:
        """C and lambda for n rows."""
        if self.lambda_ is not None:
            return 1 / (self.lambda_ * n), self.lambda_
        assert self.C is not None, "params.resolved() comes first"
        return self.C, 1 / (self.C * n)


@dataclass(frozen=True)
class StopParams:
    """When a run of rounds ends besides at its solution."""

    gap: float | None = option(
        None, "float", "--gap", help="End when the certified relative gap (P - D) / max is below."
    )
    max_iterations: int | None = option(
        None, "int", "--max-iterations", help="End after so many rounds."
    )

    def __post_init__(self) -> None:
        _require(self.gap is None or 0 < self.gap < 1, f"gap must be > 0 and < 1, got {self.gap}")
        _require(
            self.max_iterations is None or self.max_iterations >= 1,
            f"max iterations must be >= 1, got {self.max_iterations}",
        )

    def check(self, params: Params) -> None:
        """--gap promises a certificate; not every kernel has one."""
        _require(
            self.gap is None or params.positive_semidefinite,
            "--gap needs a positive semidefinite kernel: linear, rbf, or poly with -r >= 0",
        )


@dataclass(frozen=True)
class Limits:
    """What ends any run, and what it then was is not repeatable."""

    time_limit: float | None = option(
        None,
        "duration",
        "--time-limit",
        help="End after 90s, 10m or 2h with the best model so far.",
    )

    def __post_init__(self) -> None:
        _require(
            self.time_limit is None or 0 < self.time_limit < math.inf,
            f"time limit must be > 0 seconds, got {self.time_limit}",
        )


@dataclass(frozen=True)
class Run:
    """What makes a run repeatable besides its parameters."""

    seed: int = option(0, "int", "--seed", help="Seed of all random draws.")
    zero_based: bool = option(
        False, "flag", "--zero-based", help="Feature indices start at 0, not at 1."
    )
    scale: str | None = option(
        None,
        SCALINGS,
        "--scale",
        help="Scale features to [-1, 1], to mean 0 and variance 1, or rows to length 1; the model "
        "scales what it predicts. Sparse rows stay sparse.",
    )

    def __post_init__(self) -> None:
        _require(
            self.scale is None or self.scale in SCALINGS,
            f"scale must be one of {', '.join(SCALINGS)}, got {self.scale}",
        )
        _require(0 <= self.seed < 2**64, f"seed must be >= 0 and < 2^64, got {self.seed}")


@dataclass(frozen=True)
class Search:
    """Cross-validation before training, over a grid of parameters where some have several values.

    tried: what earlier runs found, as their log has it.
    """

    FOLDS = 5
    MOST_FOLDS = 1000

    folds: int | None = option(
        None,
        "int",
        "-v",
        "--folds",
        help=f"Cross-validate in so many parts, then train.  [default: {FOLDS} for a grid]",
    )
    subset: int | None = option(
        None, "int", "--subset", help="Cross-validate on so many rows, drawn at random."
    )
    grid: Grid = ()
    tried: tuple[Mapping[str, Any], ...] = ()

    def __post_init__(self) -> None:
        folds, most = self.folds, self.MOST_FOLDS
        _require(
            folds is None or 2 <= folds <= most,
            f"folds must be from 2 to {most}, got {folds}",
        )
        _require(
            self.subset is None or self.subset >= 2, f"subset must be >= 2 rows, got {self.subset}"
        )
        _require(
            self.subset is None or self.wanted,
            "--subset is for cross-validation: give -v or lists of values",
        )

    @property
    def wanted(self) -> bool:
        return self.folds is not None or bool(self.grid)

    def resolved(self) -> Search:
        return replace(self, folds=self.folds or self.FOLDS) if self.wanted else self

    def candidates(self, params: P) -> list[tuple[dict[str, float], P]]:
        """Every combination of values: which they are, and the parameters with them."""
        names = [name for name, _ in self.grid]
        for f, spec in options(params):
            _require(
                f.name not in names or params.uses(f.name),  # type: ignore[attr-defined]
                f"several values of {spec.flags[0]}, which this kind of machine does not use",
            )
        combinations = itertools.product(*[values for _, values in self.grid])
        chosen = [dict(zip(names, values, strict=True)) for values in combinations]
        return [(values, replace(params, **values)) for values in chosen]  # type: ignore[type-var]


@dataclass(frozen=True)
class Resources:
    """What a run may use; none of it changes a byte of a model."""

    jobs: int | None = option(None, "int", "--jobs", help="Worker threads.  [default: all cores]")
    memory: int = option(
        2048 * MEGABYTE,
        "size",
        "--memory",
        help="Bound on memory for data, support vectors and LIBSVM, as 512M or 4G.  [default: 2G]",
    )
    libsvm_cache: float | None = option(
        None,
        "float",
        "-m",
        "--libsvm-cache",
        help="LIBSVM's kernel cache in MB.  [default: a quarter of --memory]",
    )
    tmpdir: str | None = option(
        None, "path", "--tmpdir", help="Folder of the spill file.  [default: TMPDIR or /tmp]"
    )
    cache: str | None = option(
        None, "path", "--cache", help="Keep the parsed data in this file for later runs."
    )

    def __post_init__(self) -> None:
        _require(self.jobs is None or self.jobs >= 1, f"jobs must be >= 1, got {self.jobs}")
        _require(
            self.memory >= 16 * MEGABYTE, f"memory must be at least 16M, got {self.memory} bytes"
        )
        cache = self.libsvm_cache
        _require(cache is None or 0 < cache < math.inf, f"libsvm cache must be > 0 MB, got {cache}")

    @property
    def workers(self) -> int:
        if self.jobs is not None:
            return self.jobs
        # Not every system can tell which cores a process may use.
        usable = getattr(os, "sched_getaffinity", None)
        return len(usable(0)) if usable else os.cpu_count() or 1

    @property
    def data_bytes(self) -> int:
        """The share of memory that parsed data may hold before it goes to a spill file."""
        return self.memory // 2

    def rows_in_a_solve(self, nonzeros: float) -> int:
        """How many rows of so many nonzeros a quarter of memory holds as LIBSVM's nodes, with
        their copies and as many columns of the kernel cache as LIBSVM needs to get on."""
        columns = 100
        return int(self.memory / 4 / (32 * (nonzeros + 1) + 4 * columns))

    def at_once(self, n: int) -> int:
        """How many machines over n rows may be trained side by side: each has running values,
        states and a mask of the rows (17 bytes a row), all within a quarter of memory."""
        return max(1, min(self.workers, self.memory // 4 // (17 * max(n, 1))))

    @property
    def libsvm_megabytes(self) -> float:
        """LIBSVM's kernel cache: its size changes no result, only the time."""
        return self.libsvm_cache or self.memory / 4 / MEGABYTE
