"""Errors, each with a sentence for the user and an exit code for the process.

The commands print an error as one line on standard error. Errors about the content of parameters or
data are also ValueErrors.
"""

from __future__ import annotations

from collections.abc import Iterable

MAX_QUOTED_BYTES = 40  # bytes of a token that a message shows


def quoted(token: str | bytes) -> str:
    """Return a token for a message: quoted, shortened and escaped.

    Parameters
    ----------
    token : str or bytes
        The token.

    Returns
    -------
    str
        Its first 40 bytes in quotes; characters that cannot be printed are escaped.
    """
    return f"'{shortened(token)}'"


def shortened(token: str | bytes) -> str:
    """Return the start of a token for a message, escaped.

    Parameters
    ----------
    token : str or bytes
        The token.

    Returns
    -------
    str
        Its first 40 bytes; characters that cannot be printed are escaped.
    """
    content = token.encode("utf-8", "surrogateescape") if isinstance(token, str) else token
    text = content[:MAX_QUOTED_BYTES].decode("utf-8", "backslashreplace")
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return text + "..." if len(content) > MAX_QUOTED_BYTES else text


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return a question about the known word that is most like a mistyped one.

    Parameters
    ----------
    word : str
        The mistyped word.
    known : iterable of str
        The words that exist.

    Returns
    -------
    str
        ": did you mean 'gamma'?", or nothing if no word is like it.
    """
    import difflib

    near = difflib.get_close_matches(word, list(known), 1)
    return f": did you mean {near[0]!r}?" if near else ""


class RandsvmError(Exception):
    """The base of all errors: a sentence for the user, and the exit code of the process."""

    exit_code = 70


class ParameterError(RandsvmError, ValueError):
    """A parameter is out of its bounds or contradicts another."""

    exit_code = 2


class DataError(RandsvmError, ValueError):
    """Bad content of a data or weight file, with its place.

    Parameters
    ----------
    file : str
        Name of the file.
    line : int
        Number of the line, from 1; of the row in a table.
    column : int
        Number of the byte in the line, from 1; of the column in a table.
    problem : str
        A sentence with the expected and the found text.
    """

    exit_code = 65

    def __init__(self, file: str, line: int, column: int, problem: str) -> None:
        super().__init__(f"{file}:{line}:{column}: {problem}")
        self.parts = (file, line, column, problem)

    def __reduce__(self) -> tuple[type[DataError], tuple[str, int, int, str]]:
        """Return the class and the arguments from which pickle makes the error again."""
        return type(self), self.parts


class ContentError(RandsvmError, ValueError):
    """The content of a file is unusable: it is empty, has one class only, or is damaged."""

    exit_code = 65


class InfeasibleError(ContentError):
    """The rows admit no model with these parameters, for example with this nu."""


class ModelError(RandsvmError):
    """A model file is cut short, altered, of another type, or contradicts itself."""

    exit_code = 65


class ExportError(RandsvmError):
    """An export predicts differently from its model, which is a bug; no export is written."""

    exit_code = 70


class InputError(RandsvmError):
    """An input file cannot be opened."""

    exit_code = 66


class OutputError(RandsvmError):
    """An output file cannot be created."""

    exit_code = 73


class ClusterError(RandsvmError):
    """The cluster cannot be reached, or stops working."""

    exit_code = 69


class TransferError(RandsvmError):
    """Reading or writing failed after a file was opened, as on a full disk."""

    exit_code = 74


class WriteError(TransferError):
    """Writing an output failed, as on a full disk."""


class SpillError(WriteError):
    """A spill file cannot be written; another machine may have room for it."""


class OutOfMemoryError(RandsvmError):
    """The system has no memory left for the run."""

    exit_code = 71


class GapError(RandsvmError):
    """The gap is above the required one, or a run that ended early has a worse model than the old.

    The old model file is unchanged.
    """

    exit_code = 75


class OutOfTimeError(RandsvmError):
    """The time limit came before there was a model; the model file is unchanged."""

    exit_code = 75


class Interrupted(RandsvmError):  # noqa: N818 - no error of the user or of the run
    """A signal stopped the run; the exit code is 128 + its number.

    Parameters
    ----------
    signal_number : int
        Number of the signal.
    """

    def __init__(self, signal_number: int) -> None:
        name = "Ctrl-C" if signal_number == 2 else f"signal {signal_number}"
        super().__init__(f"interrupted by {name}")
        self.exit_code = 128 + signal_number
