"""What a model is and how it was made, in plain words and numbers. Knows no kind of model."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from randsvm import files
from randsvm.models.load import load
from randsvm.models.model import Model

# Metadata of a training that are said, and what each is; the others are for programs.
WHOLE = ("n", "d", "nnz", "violators", "seed")
REAL = ("C", "lambda", "primal", "dual", "gap")
WORDS = ("stopped", "digest")
# Labels that a line shows.
MOST_LABELS = 20


def describe(path: str) -> dict[str, Any]:
    """Of the model in a file, which is as old as the file. Raises what `load` raises."""
    model, made = load(path), None
    if path != files.STANDARD:
        changed = datetime.fromtimestamp(Path(path).stat().st_mtime, timezone.utc)
        made = changed.isoformat(timespec="seconds").replace("+00:00", "Z")
    return {"model": files.display_name(path), "made": made, **described(model)}


def described(model: Model) -> dict[str, Any]:
    """Names and units are those of the records; None: the file does not say it."""
    metadata = model.metadata
    return {
        **model.described(),
        "labels": list(model.labels),
        "probabilities": model.has_probabilities,
        "index_base": 0 if model.zero_based else 1,
        "features": None if model.seen is None else model.seen.count,
        "scaling": None if model.scaling is None else model.scaling.name,
        "version": metadata.get("version"),
        "configuration": metadata.get("configuration"),
        **{name: _number(metadata, name, int) for name in WHOLE},
        **{name: _number(metadata, name, float) for name in REAL},
        # Stochastic gradient certifies nothing; of another program's model nothing is known.
        "certificate": metadata.get("certificate", "none" if "version" in metadata else None),
        **{name: metadata.get(name) for name in WORDS},
    }


def _number(metadata: Mapping[str, str], name: str, kind: type) -> Any:
    try:
        return kind(metadata[name])
    except (KeyError, ValueError):
        return None


def lines(info: Mapping[str, Any]) -> list[str]:
    """A name and its value a line; what is not known is left out."""
    shown = {name: _shown(value) for name, value in info.items() if value not in (None, [])}
    width = max(map(len, shown))
    return [f"{name.ljust(width)}  {text}" for name, text in shown.items()]


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        rest = f" ... ({len(value)})" if len(value) > MOST_LABELS else ""
        return shlex.join(map(str, value[:MOST_LABELS])) + rest
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value)
