"""What the lines of a model's trailer mean: labels, index base, seen features, scaling, arrays.

Every such line is written and read here. trailer.py knows how lines stand in a file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from randsvm.data.labels import LabelTable
from randsvm.data.scaling import Scaling
from randsvm.decimals import join_numbers, parse_numbers
from randsvm.errors import DataError, ModelError
from randsvm.models.seen_features import MOST_FEATURES, SeenFeatures
from randsvm.parameters.run import SCALINGS

Parsed = TypeVar("Parsed")


def lines_of(
    labels: Sequence[str],
    zero_based: bool,
    seen: SeenFeatures | None,
    scaling: Scaling | None,
    precise: bool,
) -> dict[str, str]:
    """The lines that `Metadata` reads. labels: none where the format or the task settles them."""
    lines = {"labels": " ".join(labels)} if labels else {}
    lines["index_base"] = "0" if zero_based else "1"
    if precise:
        lines["values"] = "float64"
    if seen is not None:
        lines["features"] = str(seen)
    if scaling is not None:
        arrays = {"scale_shift": scaling.shift, "scale_factor": scaling.factor}
        lines["scale"] = scaling.name
        lines |= {key: join_numbers(array) for key, array in arrays.items() if array is not None}
    return lines


def are_precise(lines: Mapping[str, str] | None) -> bool:
    """Whether feature values are float64: as the trailer says, and always in a model of LIBSVM's or
    LIBLINEAR's own, as their programs read rows so. lines: see Metadata."""
    return lines is None or lines.get("values") == "float64"


class Metadata:
    """The lines of one trailer. Whoever knows a line takes it out; `rest` is what nobody took.

    Every method raises ModelError, which names the file.
    """

    def __init__(self, file: str, lines: Mapping[str, str] | None) -> None:
        """lines: None for a model of LIBSVM's or LIBLINEAR's own, which has no trailer."""
        self.file = file
        self.foreign = lines is None
        self.rest = dict(lines or {})

    def take(self, key: str, parse: Callable[[str], Parsed]) -> Parsed | None:
        """The value of the line `key`; None if there is no such line."""
        try:
            return parse(self.rest.pop(key)) if key in self.rest else None
        except ValueError as error:
            raise self.error(str(error)) from error

    def error(self, problem: str) -> ModelError:
        return ModelError(f"{self.file}: {problem}")

    def labels(
        self, header: tuple[int, ...] | None, classes: int
    ) -> tuple[tuple[str, ...], tuple[int | str, ...]]:
        """As many labels as there are classes, as spelled, and what they stand for (int or str).

        header: the labels in the model's header; the trailer may spell them in another way
        ("+1"), or name the labels of a header that has none.
        """
        text = self.rest.pop("labels", " ".join(map(str, header or ())))
        labels = tuple(filter(None, text.split(" ")))
        if len(labels) != classes:
            expected = {2: "two"}.get(classes, str(classes))
            raise self.error(f"expected {expected} labels in the trailer, found {len(labels)}")
        values = self._values(labels)
        if header and values != header:
            raise self.error(f"expected labels as in the header, found {' '.join(labels)[:40]!r}")
        return labels, values

    def _values(self, labels: tuple[str, ...]) -> tuple[int | str, ...]:
        """What labels stand for, as the reader of data understands them."""
        try:
            values = tuple(LabelTable(self.file, names=labels).values)
        except DataError:
            values = ()
        if len(values) != len(labels):
            raise self.error(
                f"expected different labels of one kind, found {' '.join(labels)[:40]!r}"
            )
        return values

    def zero_based(self) -> bool:
        base = self.rest.pop("index_base", "1")
        if base not in ("0", "1"):
            raise self.error(f"expected index_base 0 or 1 in the trailer, found {base!r}")
        return base == "0"

    def precise(self) -> bool:
        """See are_precise."""
        precise = are_precise(None if self.foreign else self.rest)
        values = self.rest.pop("values", "float64" if precise else "float32")
        if values not in ("float32", "float64"):
            raise self.error(f"expected values float32 or float64 in the trailer, found {values!r}")
        return precise

    def seen_features(self) -> SeenFeatures | None:
        return self.take("features", SeenFeatures.parse)

    def scaling(self, seen: SeenFeatures | None) -> Scaling | None:
        """The scaling of the seen features."""
        shift, factor = (self.take(key, parse_numbers) for key in ("scale_shift", "scale_factor"))
        scale = self.rest.pop("scale", None)
        if scale is None:
            return None
        arrays = [array for array in (shift, factor) if array is not None]
        fits = (
            scale in SCALINGS
            and (scale != "unit" or not arrays)
            and (scale == "unit" or factor is not None)
            and seen is not None
            and seen.count <= MOST_FEATURES
            and all(len(array) == seen.count for array in arrays)
        )
        if not fits:
            raise self.error(f"expected a scaling of each known feature, found {scale!r}")
        return Scaling(scale, shift, factor)
