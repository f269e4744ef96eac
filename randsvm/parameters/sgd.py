"""Parameters of linear machines, with their defaults and options."""

from __future__ import annotations

import math
from dataclasses import replace

from randsvm.parameters.option import (
    BALANCED,
    SEARCH,
    STOP,
    Choice,
    Flag,
    Number,
    NumberOrGrid,
    Path,
    RowsOrTime,
    Whole,
    option,
    option_fields,
    require,
)
from randsvm.parameters.svm import KERNEL_NAMES, MachineParams, inherited
from randsvm.records import record

# Fields that --update takes from the model.
FIXED_BY_MODEL = frozenset(
    {
        "gamma",
        "components",
        "nu",
        "C",
        "lambda_",
        "loss",
        "penalty",
        "multiclass",
        "no_bias",
        "epochs",
        "early_stopping",
    }
)


# The losses of classes that a user chooses from; svm/linear_loss.py has the formulas.
LOSS_NAMES = ("hinge", "squared-hinge", "log")
# Those that --gap minimises: algorithms/newton.py has their duals.
GAP_LOSSES = ("hinge", "squared-hinge", "log")
# Those that LIBLINEAR has with an L1 penalty.
L1_LOSSES = ("squared-hinge", "log")
# The loss of novelty detection with -n: how far a row lies outside, without a margin. Without -n
# the losses of classes serve, and the origin is the only negative row.
OUTSIDE = "outside"
# LIBLINEAR's solver of the hinge loss of f[class] - max of the others.
CRAMMER_SINGER = "MCSVM_CS"
# The losses of a regression. The second is the square of the first.
REGRESSION_LOSSES = ("epsilon-insensitive", "squared-epsilon-insensitive")


@record
class SgdParams(MachineParams):
    """Linear SVM by stochastic gradient descent: minimise lambda/2 |w|^2 + mean loss.

    C, lambda_ : two scales of the regularisation, C = 1/(lambda n); C is 1 if both are None
    update : name of the model file that is trained further
    checkpoint : rows (int) or seconds (float) between two writes of the model
    """

    # The fewer the rows, the more passes. On 4,000 to 500,000 rows of text at C = 1, 10 to 30
    # passes were measured to end within 1% of the optimum. Small sets get more than that, at little
    # cost: features on large scales and rare classes need them.
    MIN_EPOCHS, MAX_EPOCHS, MANY_ROWS, MIN_STEPS = 10, 100, 200_000, 300_000
    DEFAULT_COMPONENTS = 1024
    # Fields that have an effect with --update; the old model determines the others.
    UPDATE_FIELDS = ("weights", "update", "update_rate", "checkpoint")

    task: str = inherited(
        "task",
        help="svc (0): classification; one-class (2): novelty detection; svr (3): regression.",
        # The empty word keeps LIBSVM's numbers.
        kind=Choice("svc", "", "one-class", "svr"),
        brief="svc, one-class or svr (0, 2, 3).",
    )
    kernel: str = inherited(
        "kernel",
        default="linear",
        kind=Choice(*KERNEL_NAMES[:3]),
        help="linear, or the kernel that random features stand for.",
        brief="linear, or rbf or poly by random features.",
    )
    gamma: float | str | None = inherited(
        "gamma",
        help="gamma of the kernel; scale: 1/(d * variance of all values).  [default: 1/d for rbf "
        "with d features found, 1 for poly]",
    )
    coef0: float = inherited("coef0", help="coef0 of poly.")
    components: int | None = inherited(
        "components",
        help=f"Random features of -t rbf and -t poly.  [default: {DEFAULT_COMPONENTS}]",
        brief="Number of random features.",
    )
    multiclass: str | None = inherited(
        "multiclass",
        kind=Choice("ovr", "crammer-singer"),
        help="Decision functions of three or more classes: one against the rest, or all at once.  "
        "[default: ovr]",
    )
    probability: bool = inherited(
        "probability",
        help="Fit probabilities of classes by Platt's sigmoid, cross-validated; --loss log has "
        "probabilities without it.  [default: 0]",
    )
    lambda_: float | None = option(
        None,
        NumberOrGrid("> 0 and finite"),
        "--lambda",
        help="lambda = 1/(C n), instead of -c; several values are also searched.  [default: -c 1]",
        brief="lambda = 1/(C n), instead of -c.",
    )
    loss: str | None = option(
        None,
        Choice(*LOSS_NAMES, *REGRESSION_LOSSES),
        "--loss",
        help="Loss of a row with z = y f: max(0, 1-z), its square, or log(1+exp(-z)); of -s svr "
        "max(0, |y-f|-p), or its square.  [default: hinge, epsilon-insensitive]",
        brief="hinge, squared-hinge, log; for svr squared-epsilon-insensitive.",
    )
    penalty: str | None = option(
        None,
        # The empty word makes 1 and 2 their numbers.
        Choice("", "l1", "l2"),
        "--penalty",
        help="With --gap: minimise the sum of the sizes of the weights, |w|_1 + C sum loss, or of "
        "their squares, 1/2 |w|^2 + C sum loss. With l1 many weights are 0.  [default: l2]",
        brief="l1: many weights are 0, with --gap.",
    )
    no_bias: bool = option(
        False,
        Flag(),
        "--no-bias",
        help="Train f = <w, x>, without an offset b.",
    )
    epochs: int | None = option(
        None,
        Whole(">= 0"),
        "--epochs",
        help=f"Passes over the data.  [default: {MIN_EPOCHS}; more, up to {MAX_EPOCHS}, for fewer "
        f"than {MANY_ROWS:,} rows; 0 with --gap]",
        group=STOP,
        brief="Passes over the data.",
    )
    average: bool = option(
        False,
        Flag(),
        "--average",
        help="Average the weights over the last epochs. This is the default with 1 or 2 epochs, "
        "--early-stopping and --update.",
        group=STOP,
    )
    early_stopping: float | None = option(
        None,
        Number("> 0 and < 1"),
        "--early-stopping",
        help="Hold out this share of the rows; end when their loss stops falling.",
        group=STOP,
    )
    gap: float | None = option(
        None,
        Number("> 0 and < 1"),
        "--gap",
        help="Lower the objective to this relative duality gap (P - D) / max(|P|, |D|), by passes "
        "of coordinate ascent or by Newton steps.",
        group=STOP,
    )
    path: bool = option(
        False,
        Flag(),
        "--path",
        help="With --gap: train on all rows with every value of -c or --lambda, each from the "
        "solution before. The model is that of the largest C, or with -v of the best.",
        group=SEARCH,
        brief="Train on all rows with every value of -c, with --gap.",
    )
    max_iterations: int | None = option(
        None,
        Whole(">= 1"),
        "--max-iterations",
        help="Maximum number of passes and Newton steps of --gap.",
        group=STOP,
    )
    update: str | None = option(
        None,
        Path(),
        "--update",
        help="Train this model further on the rows of TRAIN_FILE: one pass, as they arrive.",
        group=STOP,
        brief="Train this model further, row by row.",
    )
    update_rate: float | None = option(
        None,
        Number("> 0 and finite"),
        "--update-rate",
        help="Fixed step size for --update.  [default: a decreasing one]",
        group=STOP,
    )
    checkpoint: int | float | None = option(
        None,
        RowsOrTime("> 0"),
        "--checkpoint",
        help="With --update: write the model after this number of rows (100000) or this time "
        "(60s, 10m).",
        group=STOP,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_loss()
        self._check_update()
        self._check_penalty()
        require(
            self.task == "svc" or not (self.weights or self.multiclass),
            f"class weights and --multiclass are for -s svc, not {self.task}",
        )
        require(self.C is None or self.lambda_ is None, "give one of -c and --lambda, not both")
        require(
            self.task != "one-class" or not self.no_bias,
            "-s one-class finds the offset b: no --no-bias",
        )
        self._check_gap()

    def _check_gap(self) -> None:
        """Require options that suit --gap, or its absence."""
        if self.gap is None:
            require(self.max_iterations is None, "--max-iterations of sgd needs --gap")
            require(self.epochs != 0, "--epochs 0 needs --gap")
            require(not self.path, "--path needs --gap")
            return
        require(not (self.path and self.epochs), "--path makes no steps of sgd: no --epochs")
        require(
            self.task == "svr" or (self.task == "svc" and self.multiclass != "crammer-singer"),
            "--gap of sgd is for -s svr, and for -s svc with --multiclass ovr",
        )
        require(
            self.task == "svr" or self.loss in (None, *GAP_LOSSES),
            f"--gap does not go with --loss {self.loss}",
        )
        require(
            self.early_stopping is None and self.update is None,
            "--gap ends at the optimum: no --early-stopping, no --update",
        )

    def _check_loss(self) -> None:
        losses = REGRESSION_LOSSES if self.task == "svr" else LOSS_NAMES
        require(
            self.loss is None or self.loss in losses,
            f"--loss of -s {self.task} is {' or '.join(losses)}, not {self.loss}",
        )
        require(
            self.multiclass != "crammer-singer" or self.loss in (None, "hinge"),
            f"--multiclass crammer-singer has the hinge loss, not {self.loss}",
        )
        require(
            self.nu is None or self.task != "one-class" or self.loss in (None, "hinge"),
            f"-s one-class with -n does not use --loss {self.loss}",
        )

    def _check_penalty(self) -> None:
        """Require options that suit --penalty l1."""
        if self.penalty != "l1":
            return
        require(self.gap is not None, "--penalty l1 needs --gap")
        require(
            self.task == "svc" and self.loss in L1_LOSSES,
            f"--penalty l1 is for -s svc with --loss {' or '.join(L1_LOSSES)}",
        )
        require(
            self.kernel == "linear" and not self.epochs,
            "--penalty l1 is for the features of the file and starts from 0: no -t, no --epochs",
        )

    def _check_update(self) -> None:
        """Require options that suit --update, or its absence."""
        if self.update is None:
            for name in ("update_rate", "checkpoint"):
                require(
                    getattr(self, name) is None, f"--{name.replace('_', '-')} needs --update MODEL"
                )
            return
        require(not self.probability, "--update fits no probabilities: no -b 1")
        require(not self.conformal, "--update holds out no rows")
        require(
            BALANCED not in [label for label, _ in self.weights],
            "-w balanced needs the number of rows, which --update does not know",
        )
        for f, spec in option_fields(self):
            require(
                f.name not in FIXED_BY_MODEL or not getattr(self, f.name),
                f"--update keeps the options of the model: it takes no {spec.flags[-1]}",
            )

    @property
    def has_linear_model(self) -> bool:
        return True

    @property
    def squares_loss(self) -> bool:
        """Return whether the loss is the square of a hinge."""
        return self.loss in ("squared-hinge", REGRESSION_LOSSES[1])

    def resolved(self, n: int) -> SgdParams:
        """Return the parameters with the defaults for n rows."""
        passes = max(self.MIN_EPOCHS * (self.MANY_ROWS / n) ** 0.25, self.MIN_STEPS / n)
        usual = min(max(math.ceil(passes), self.MIN_EPOCHS), self.MAX_EPOCHS)
        mapped = self.kernel != "linear" and self.components is None
        return replace(
            self,
            components=self.DEFAULT_COMPONENTS if mapped else self.components,
            C=1.0 if self.C is None and self.lambda_ is None and not self.has_share else self.C,
            loss=self.loss or (None if self.task == "svr" else "hinge"),
            multiclass=self.multiclass or ("ovr" if self.task == "svc" else None),
            epochs=(0 if self.gap else usual) if self.epochs is None else self.epochs,
        )

    def uses(self, name: str) -> bool:
        """Return whether the field `name` has an effect with the other values.

        With -n, C and lambda only change the scale of f, and no label.
        """
        if self.update is not None:
            return name in self.UPDATE_FIELDS
        return super().uses(name) and not (self.has_share and name in ("C", "lambda_"))

    @property
    def has_share(self) -> bool:
        """Return whether -n gives the share of the rows that novelty detection leaves outside."""
        return self.task == "one-class" and self.nu is not None

    @property
    def averages(self) -> bool:
        """Return whether the result is the mean of the weights.

        Where the number of steps is not known in advance, the step size cannot fall to zero at the
        last step: there the mean replaces the last weights.
        """
        if self.average or self.early_stopping is not None or self.update is not None:
            return True
        return self.epochs in (1, 2)

    def cost_and_lambda(self, n: float) -> tuple[float, float]:
        """Return C and lambda for rows whose weights add up to n; with -n, lambda = nu (Schoelkopf
        et al.)."""
        if self.has_share:
            assert self.nu is not None
            return 1 / (self.nu * n), self.nu
        if self.lambda_ is not None:
            return 1 / (self.lambda_ * n), self.lambda_
        assert self.C is not None, "params.resolved() comes first"
        return self.C, 1 / (self.C * n)
