"""Make the synthetic sets of KBH07 as svmlight files: twonorm, ringnorm, checkerboard.

Row i of a set depends on the seed and i alone, so a set of 100,000 rows is the beginning of the
set of 1,000,000 rows. Values are float32.
"""

from __future__ import annotations

import click
import numpy as np

from randsvm import files, svmlight

BLOCK_ROWS = 10_000
DIMENSIONS = 20
SHIFT = 2 / np.sqrt(DIMENSIONS)


def twonorm(rng: np.random.Generator, m: int) -> tuple[np.ndarray, np.ndarray]:
    """Breiman's twonorm: N(a, I) against N(-a, I) in 20 dimensions, a = 2 / sqrt(20)."""
    y = rng.choice([-1, 1], m)
    return y, rng.normal(size=(m, DIMENSIONS)) + SHIFT * y[:, None]


def ringnorm(rng: np.random.Generator, m: int) -> tuple[np.ndarray, np.ndarray]:
    """KBH07's ringnorm as printed: N(1, 4 I) against N(a, I) in 20 dimensions, a = 2 / sqrt(20)."""
    y = rng.choice([-1, 1], m)
    X = rng.normal(size=(m, DIMENSIONS))
    return y, np.where(y[:, None] > 0, 1 + 2 * X, SHIFT + X)


def checkerboard(rng: np.random.Generator, m: int) -> tuple[np.ndarray, np.ndarray]:
    """KBH07's 4 x 4 board on [0, 4]^2: negative where ceil(x1) % 2 != ceil(x2) % 2."""
    X = rng.uniform(0, 4, (m, 2))
    parity = np.ceil(X) % 2
    return np.where(parity[:, 0] != parity[:, 1], -1, 1), X


SETS = {made.__name__: made for made in (twonorm, ringnorm, checkerboard)}


@click.command()
@click.argument("name", type=click.Choice(list(SETS)))
@click.argument("output")
@click.option("--rows", default=100_000, show_default=True, help="Number of rows.")
@click.option("--seed", default=0, show_default=True, help="Another seed is another set.")
def main(name: str, output: str, rows: int, seed: int) -> None:
    """Write ROWS rows of the set NAME to OUTPUT (- is standard output)."""
    with files.create_output(output) as stream:
        for start in range(0, rows, BLOCK_ROWS):
            # A whole block is drawn even for a part of it: its rows must not depend on ROWS.
            y, X = SETS[name](np.random.default_rng([seed, start]), BLOCK_ROWS)
            m = min(BLOCK_ROWS, rows - start)
            d = X.shape[1]
            svmlight.write(
                stream,
                [f"{label:+d}" for label in y[:m].tolist()],
                np.arange(m + 1) * d,
                np.tile(np.arange(1, d + 1, dtype=np.int32), m),
                X[:m].astype(np.float32).ravel(),
            )


if __name__ == "__main__":
    main()
