"""Every error that is the user's business, each with its exit code.

Never imports anything; the command line turns these into one line on stderr. Those of values that
somebody gave are ValueErrors as well, as Python users expect.
"""

from __future__ import annotations

LONGEST_QUOTE = 40  # bytes of a token that a message shows


def quoted(token: str | bytes) -> str:
    """A token for a message: in quotes, shortened, what cannot be printed escaped."""
    return f"'{shortened(token)}'"


def shortened(token: str | bytes) -> str:
    """The start of a token, what cannot be printed escaped."""
    content = token.encode("utf-8", "surrogateescape") if isinstance(token, str) else token
    text = content[:LONGEST_QUOTE].decode("utf-8", "backslashreplace")
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return text + "..." if len(content) > LONGEST_QUOTE else text


class RandsvmError(Exception):
    """Root of the family: a sentence for the user and the exit code of the process."""

    exit_code = 70


class ParameterError(RandsvmError, ValueError):
    """A parameter is out of its bounds or contradicts another."""

    exit_code = 2


class DataError(RandsvmError, ValueError):
    """Bad svmlight text: file, 1-based line and column, what was expected, what was found."""

    exit_code = 65

    def __init__(self, file: str, line: int, column: int, problem: str) -> None:
        super().__init__(f"{file}:{line}:{column}: {problem}")
        self.parts = (file, line, column, problem)

    def __reduce__(self) -> tuple[type[DataError], tuple[str, int, int, str]]:
        """It is also raised in other processes."""
        return type(self), self.parts


class ContentError(RandsvmError, ValueError):
    """The content of a whole file is unusable: an empty file, one class only, a damaged archive."""

    exit_code = 65


class ModelError(RandsvmError):
    """A model file is truncated, altered, of another kind, or contradicts itself."""

    exit_code = 65


class InputError(RandsvmError):
    """An input file cannot be opened."""

    exit_code = 66


class OutputError(RandsvmError):
    """An output file cannot be created."""

    exit_code = 73


class ClusterError(RandsvmError):
    """The cluster cannot be reached, or does not go on."""

    exit_code = 69


class TransferError(RandsvmError):
    """Reading or writing failed half-way (a full disk included)."""

    exit_code = 74


class WriteError(TransferError):
    """Writing an output failed half-way, as on a full disk."""


class SpillError(WriteError):
    """A spill file cannot be written; another machine may have room for it."""


class OutOfMemoryError(RandsvmError):
    """The system has no memory left for the run."""

    exit_code = 71


class GapError(RandsvmError):
    """Training ended above the gap that was required; what the model file held is still there."""

    exit_code = 75


class OutOfTimeError(RandsvmError):
    """The time limit came before there was a model; what the model file held is still there."""

    exit_code = 75


class Interrupted(RandsvmError):  # noqa: N818 - not a mistake of anyone's
    """The run was stopped by a signal; the exit code is 128 + its number."""

    def __init__(self, signal_number: int) -> None:
        name = "Ctrl-C" if signal_number == 2 else f"signal {signal_number}"
        super().__init__(f"interrupted by {name}")
        self.exit_code = 128 + signal_number
