"""Parameters of randsvm and osuna, the algorithms that repeat rounds of solve and scan."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property

from randsvm.parameters.option import (
    AUTO,
    STOP,
    Flag,
    Number,
    Options,
    Path,
    Whole,
    changed_flags,
    option,
    require,
)
from randsvm.parameters.svm import NU_TASKS, KernelParams
from randsvm.records import record


@record
class OsunaParams(Options):
    """OFG97's decomposition: the size of the working set B and how it changes."""

    # Limits of the default size of the working set, see `default_rows`.
    MIN_ROWS, MAX_ROWS, FEW_TRAINING_ROWS = 1000, 3000, 30_000
    MAX_WHOLE_VARIABLES = 3000
    # Rows with at least MANY_NONZEROS nonzeros are solved at once up to MAX_WHOLE_VARIABLES_OF_MANY
    # variables: rounds would compute more kernel values. Measured with RBF and 392 nonzeros: 45
    # pairs of 4,000 rows take 15 instead of 21 s; with 128 nonzeros or fewer, rounds are as fast or
    # faster.
    MANY_NONZEROS, MAX_WHOLE_VARIABLES_OF_MANY = 300.0, 4096
    DEFAULT_ROWS = (
        f"all rows if there are at most {MAX_WHOLE_VARIABLES:,}, or "
        f"{MAX_WHOLE_VARIABLES_OF_MANY:,} with a mean of {MANY_NONZEROS:g} or more nonzeros (half "
        f"as many in regression); else {MIN_ROWS:,}, growing to {MAX_ROWS:,} beyond "
        f"{FEW_TRAINING_ROWS:,} rows"
    )

    working_set: int | None = option(
        None,
        Whole(">= 2 rows"),
        "--working-set",
        help=f"Rows of a subproblem.  [default: {DEFAULT_ROWS}]",
        group=STOP,
    )
    swap: int | None = option(
        None,
        Whole(">= 1 rows"),
        "--swap",
        help="Violators that enter the working set in each round.  [default: half of B]",
        group=STOP,
    )

    @classmethod
    def default_rows(cls, n: int, variables: int = 1, nonzeros: float = 0.0) -> int:
        """Return the default size of the working set for n rows with `variables` variables each.

        nonzeros: their mean number in a row; 0 if they do not make kernel values slower.

        All rows up to 3,000 variables, or 4,096 with many nonzeros, then 1,000 up to 30,000 rows,
        1,825 for 100,000, and 3,000 from 270,000 on. Small working sets cost LIBSVM less than large
        ones, but each round costs a scan.
        """
        many = nonzeros >= cls.MANY_NONZEROS
        if n * variables <= (cls.MAX_WHOLE_VARIABLES_OF_MANY if many else cls.MAX_WHOLE_VARIABLES):
            return max(n, 2)
        return int(min(cls.MIN_ROWS * max(n / cls.FEW_TRAINING_ROWS, 1.0) ** 0.5, cls.MAX_ROWS))


@record
class RandsvmParams(Options):
    """Algorithm 1 of KBH07: the bound k on the number of support vectors and the sample size r.

    support_bound : None: the formula of KBH07, section 3, from distortion (epsilon) and delta
    sample_size : None: `SAMPLE_FACTOR` times k; algorithms/randsvm.py has the measurements
    distortion, delta : None: `DEFAULT_DISTORTION` and `DEFAULT_DELTA`

    All options except sample_size are for the rule of KBH07, see RoundsParams.
    """

    SAMPLE_FACTOR = 1.5
    DEFAULT_DISTORTION, DEFAULT_DELTA = 0.2, 0.9

    support_bound: int | None = option(
        None,
        Whole(">= 1"),
        "-k",
        "--support-bound",
        help="The rule of Kumar et al.: end at k support vectors; a gap then ends the run only if "
        "--gap is given as well. Without -k, --distortion, --delta or --separable set k by the "
        "formula of their paper.  "
        "[default: none; with --gap none ceil(32 ln(4n/delta) / distortion^2)]",
        group=STOP,
    )
    sample_size: int | None = option(
        None,
        Whole(">= 2"),
        "--sample-size",
        help=f"Rows of a subproblem, more than k.  [default: {OsunaParams.DEFAULT_ROWS}; "
        f"{SAMPLE_FACTOR:g} k if k bounds the run]",
        group=STOP,
    )
    distortion: float | None = option(
        None,
        Number("> 0 and < 1"),
        "--distortion",
        help="Distortion of the random projection in the formula of -k.  "
        f"[default: {DEFAULT_DISTORTION:g}]",
        group=STOP,
    )
    delta: float | None = option(
        None,
        Number("> 0 and < 1"),
        "--delta",
        help=f"delta in the formula of -k.  [default: {DEFAULT_DELTA:g}]",
        group=STOP,
    )
    separable: bool = option(
        False,
        Flag(),
        "--separable",
        help="The data is linearly separable in feature space: factor 16 in the formula of -k, "
        "not 32.",
        group=STOP,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        k, r = self.support_bound, self.sample_size
        if k is not None and r is not None:
            require(
                r > k,
                f"sample size r must exceed the support bound k, got r={r}, k={k}; "
                f"raise --sample-size or lower --support-bound",
            )

    @cached_property
    def support_bound_flags(self) -> list[str]:
        """The flags of the given options that only determine k."""
        return [flag for flag in changed_flags(self) if flag != "--sample-size"]

    def resolved(self, n: int) -> RandsvmParams:
        """Return k and r for n rows.

        k = ceil(factor ln(4 n / delta) / epsilon^2), KBH07 section 3: 10,404 for n = 100,000. If
        r is given and k is not, k is at most r - 1.
        """
        k, r = self.support_bound, self.sample_size
        if k is None:
            factor = 16 if self.separable else 32
            delta, distortion = (
                self.delta or self.DEFAULT_DELTA,
                self.distortion or self.DEFAULT_DISTORTION,
            )
            k = math.ceil(factor * math.log(4 * n / delta) / distortion**2)
            k = k if r is None else min(k, r - 1)
        return RandsvmParams(
            support_bound=k, sample_size=r or max(k + 1, math.ceil(self.SAMPLE_FACTOR * k))
        )


@record
class RoundsParams(Options):
    """The start of the rounds of randsvm and osuna, and what ends them.

    gap: a number; NO_GAP: no gap ends the run, which goes on until no violator is left or, with a
    bound k, until the rule of KBH07 ends it; None: the default, see `resolved`.
    """

    NO_GAP = "none"
    DEFAULT_GAP = 0.001

    gap: float | str | None = option(
        None,
        Number("> 0 and < 1", NO_GAP),
        "--gap",
        help="Relative duality gap (P - D) / max(|P|, |D|) at which the training ends; none: it "
        "ends when no violator is left, or with the rule of Kumar et al. also at k support "
        f"vectors.  [default: {DEFAULT_GAP:g}]",
        group=STOP,
        brief=f"Relative gap to certify.  [default: {DEFAULT_GAP:g}]",
    )
    max_iterations: int | None = option(
        None,
        Whole(">= 1"),
        "--max-iterations",
        help="Maximum number of rounds.",
        group=STOP,
    )
    reduce: int | str | None = option(
        None,
        Whole(">= 1", AUTO),
        "--reduce",
        help="Express the decision function by at most N of its support vectors (for several "
        "classes: in each binary problem) with new coefficients; auto: by as few as keep the gap "
        "within --gap. The gap is certified against D of the full model.",
        group=STOP,
    )
    warm_start: str | None = option(
        None,
        Path(),
        "--warm-start",
        help="Start from this model, e.g. yesterday's on fewer rows; it gives task, kernel and C "
        "if the command line does not.",
        group=STOP,
    )

    @property
    def wanted_gap(self) -> float | None:
        """The gap that ends the run; None: no gap. Call `resolved` before."""
        return self.gap if isinstance(self.gap, float) else None

    def check(self, params: KernelParams) -> None:
        """Raise ParameterError if --gap or --reduce does not go with the kernel or task."""
        require(
            self.wanted_gap is None or params.positive_semidefinite,
            "--gap needs a positive semidefinite kernel: linear, rbf, precomputed, or poly with "
            "-r >= 0",
        )
        require(
            self.reduce is None
            or (params.positive_semidefinite and params.kernel != "precomputed"),
            "--reduce needs the linear or rbf kernel, or poly with -r >= 0",
        )
        require(
            self.reduce is None or params.task not in NU_TASKS,
            f"--reduce is for -s svc, svr and one-class, not {params.task}",
        )
        require(
            self.reduce is None or params.components is None,
            "--reduce is for kernel machines: a model of --components has no support vectors",
        )

    @property
    def gap_before_reduction(self) -> float | None:
        """The gap that ends the run before --reduce: with auto half of `wanted_gap`, so that the
        reduction may use the other half."""
        gap = self.wanted_gap
        return gap / 2 if gap is not None and self.reduce == AUTO else gap

    @property
    def reduced_size(self) -> int | None:
        """The most support vectors of --reduce N; None: as many as the gap needs."""
        return None if self.reduce is None or self.reduce == AUTO else int(self.reduce)

    def resolved(self, params: KernelParams, bounded: bool, required: float | None) -> RoundsParams:
        """Return the parameters with a gap: by default DEFAULT_GAP, or --require-gap if less.

        There is no default gap with a bound k or for a kernel without a certificate.
        """
        if self.gap is not None or bounded or not params.positive_semidefinite:
            return self
        return replace(self, gap=min(self.DEFAULT_GAP, required or self.DEFAULT_GAP))
