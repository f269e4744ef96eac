"""Write the rows of a training in svmlight, for --keep-rows."""

from __future__ import annotations

from randsvm import files
from randsvm.data import svmlight
from randsvm.data.chunks import RawChunk, numbers_of
from randsvm.data.dataset import Dataset
from randsvm.errors import ContentError

# The first line, a comment, by which another run knows the file.
FIRST_LINE = b"# rows of randsvm-train\n"


def is_kept(head: bytes) -> bool:
    return head.startswith(FIRST_LINE)


def write_rows(D: Dataset, path: str, any_label: bool) -> None:
    """Write the rows of D as they were read: each number as text that stands for it, and weights.

    any_label: whether labels are ignored. Raises ContentError for a label that svmlight cannot
    represent.
    """
    names = ["0" for _ in D.summary.labels] if any_label else list(D.summary.labels)
    for name in names:
        if name.split() != [name] or "#" in name:
            problem = f"the label {name!r} has a blank or #, or is empty"
            advice = "write other labels, or check the model by randsvm-predict certify"
            raise ContentError(f"--keep-rows: {problem}: {advice}")

    def labels_of(rows: RawChunk) -> list[str]:
        labels = [names[k] for k in rows.y.astype(int)] if names else map(repr, rows.y.tolist())
        if rows.weights is None:
            return list(labels)
        pairs = zip(labels, rows.weights.tolist(), strict=True)
        return [f"{label} cost:{weight!r}" for label, weight in pairs]

    with files.create_output(path) as stream:
        stream.write(FIRST_LINE)
        # Rows of weight 0 were left out, but their labels count in the order of classes.
        if D.summary.zero_weights:
            stream.write(files.encoded("".join(f"{name} cost:0\n" for name in names)))
        for rows in D.map(D.stored, large=True):
            X = rows.X.with_data(numbers_of(rows.X.data))
            svmlight.write(stream, labels_of(rows), X)
