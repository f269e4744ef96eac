"""Labels of a file: which class each spelling is (+1 and 1.0 are one, and True and true), or which
number."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from randsvm import files
from randsvm.data.svmlight import UNLABELLED, ParsedRows, Spelling
from randsvm.decimals import NUMBER, label_value, whole_number
from randsvm.errors import DataError, quoted

# The option of the commands in a message.
REGRESSION = "-s svr"


class LabelTable:
    """The classes of a file or, with `labels`, of a model, numbered by first appearance.

    labels : of the classes, as first written; +1 and 1.0 are one class, and True and true
    """

    def __init__(
        self,
        path: str,
        unlabelled: bool = False,
        labels: Sequence[str] = (),
        closed: bool = False,
        any_label: bool = False,
    ) -> None:
        """Begin a table with `labels`.

        unlabelled: rows may have the label `?`. closed: no other labels are allowed. any_label:
        every label is allowed, also `?` and mixed numbers and names, for data whose labels are not
        learned. With `any_label`, `unlabelled` and labels of a model, rows with other labels than
        these count as unlabelled.
        """
        self.path = path
        self.any_label = any_label
        self.closed, self._advice = False, f" (or {REGRESSION} for regression)"
        self.labels: list[str] = []
        # The file and the first spelling of each label.
        self.places: list[tuple[str, Spelling]] = []
        self._numbers: dict[str, float] = {UNLABELLED: np.nan} if unlabelled else {}
        self._classes: dict[int | str, int] = {}
        self._ignores_others = False
        self.ignored_label: str | None = None
        # The table takes in the labels of a model like those of a file, before it is closed.
        for label in labels:
            self.number(Spelling(label, 0, 0))
        self.closed = closed
        # The labels of a model: its task is given.
        self._advice = "" if labels else f" (or {REGRESSION} for regression)"
        self._ignores_others = unlabelled and any_label and bool(labels)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def numeric(self) -> bool | None:
        """Return whether the labels are numbers; None before the first label."""
        return isinstance(next(iter(self._classes)), int) if self._classes else None

    def classes(self, block: ParsedRows) -> np.ndarray:
        """Return (m,) float64 class numbers, nan for `?`; DataError at the first bad label."""
        numbers = np.array([self.number(spelling) for spelling in block.spellings], float)
        return numbers[block.codes]

    def number(self, spelling: Spelling) -> float:
        """Return the number of the class of a label. Raises DataError for a bad label."""
        if spelling.text not in self._numbers:
            value = self._value(spelling)
            if value not in self._classes:
                if self.closed:
                    raise self._error(spelling, f"one of the labels {', '.join(self.labels)}")
                if self._ignores_others:
                    self._numbers[spelling.text] = np.nan
                    self.ignored_label = spelling.text
                    return np.nan
                self._classes[value] = len(self.labels)
                self.labels.append(spelling.text)
                self.places.append((self.path, spelling))
            self._numbers[spelling.text] = self._classes[value]
        return self._numbers[spelling.text]

    def _value(self, spelling: Spelling) -> int | str:
        text = spelling.text
        if self.any_label:
            return label_value(text)
        number = NUMBER.fullmatch(text)
        if text == UNLABELLED:
            raise self._error(spelling, "a label (unlabelled rows are for prediction only)")
        if self.numeric is not None and self.numeric != bool(number):
            kind = "a number" if self.numeric else "a name"
            first = quoted(self.labels[0])
            raise self._error(spelling, f"{kind} like the first label, {first}")
        if number is None:
            return label_value(text)
        if not math.isfinite(float(text)):
            raise self._error(spelling, "a finite label")
        value = whole_number(number)
        if value is None:
            raise self._error(spelling, f"a whole number as the class{self._advice}")
        return value

    def _error(self, spelling: Spelling, expected: str) -> DataError:
        problem = f"expected {expected}, found {quoted(spelling.text)}"
        name = files.display_name(self.path)
        return DataError(name, spelling.line, spelling.column, problem)


def label_values(labels: Sequence[str]) -> tuple[int | str, ...]:
    """Return the keys of labels: whole numbers if all are different whole numbers, else texts."""
    values = [label_value(label) for label in labels]
    whole = {value for value in values if isinstance(value, int)}
    return tuple(values) if len(whole) == len(labels) else tuple(labels)
