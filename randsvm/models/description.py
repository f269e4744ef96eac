"""Describe a model and its training: properties by name, and the lines that show them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from randsvm import files
from randsvm.models.load import load
from randsvm.models.model import Model

# Keys of the metadata in a description, by the type of the value.
INTEGER_KEYS = ("n", "d", "nnz", "violators", "seed")
FLOAT_KEYS = ("C", "lambda", "primal", "dual", "gap")
TEXT_KEYS = ("stopped", "digest")
# Labels that a line lists; a longer list ends with the number of labels.
MAX_SHOWN_LABELS = 20


def describe_file(path: str) -> dict[str, Any]:
    """Describe the model in a file and the time of its last change. Raise the errors of `load`."""
    model, made = load(path), None
    if path != files.STANDARD:
        changed = datetime.fromtimestamp(Path(path).stat().st_mtime, timezone.utc)
        made = changed.isoformat(timespec="seconds").replace("+00:00", "Z")
    return {"model": files.display_name(path), "made": made, **describe(model)}


def describe(model: Model) -> dict[str, Any]:
    """Describe a model. Names and units are those of the log; unknown values are None."""
    metadata = model.metadata
    return {
        **model.properties(),
        "labels": list(model.labels),
        "probabilities": model.has_probabilities,
        "index_base": 0 if model.zero_based else 1,
        "features": None if model.seen is None else model.seen.count,
        "scaling": None if model.scaling is None else model.scaling.name,
        "version": metadata.get("version"),
        "configuration": metadata.get("configuration"),
        **{name: _number(metadata, name, int) for name in INTEGER_KEYS},
        **{name: _number(metadata, name, float) for name in FLOAT_KEYS},
        # SGD computes no certificate. Models of other programs do not record one.
        "certificate": metadata.get("certificate", "none" if "version" in metadata else None),
        **{name: metadata.get(name) for name in TEXT_KEYS},
    }


def _number(metadata: Mapping[str, str], name: str, convert: type) -> Any:
    try:
        return convert(metadata[name])
    except (KeyError, ValueError):
        return None


def format_lines(info: Mapping[str, Any]) -> list[str]:
    """Return a line for each property whose value is known."""
    shown = {name: _format_value(value) for name, value in info.items() if value not in (None, [])}
    width = max(map(len, shown))
    return [f"{name.ljust(width)}  {text}" for name, text in shown.items()]


def _format_value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        rest = f" ... ({len(value)})" if len(value) > MAX_SHOWN_LABELS else ""
        return shlex.join(map(str, value[:MAX_SHOWN_LABELS])) + rest
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value)
