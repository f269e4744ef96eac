"""Write docs/log-records.schema.json from the classes of the records.

    python scripts/record_schema.py

Types come from the annotations of randsvm.events and randsvm.cli.log, descriptions from their
docstrings. A test fails while the file differs from them.
"""

from __future__ import annotations

import inspect
import json
import re
import types
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

from randsvm.cli.log import PREDICTION_ENDS, RECORDS, SCHEMA, TRAINED, TRAINING_ENDS, outcome_names

FILE = Path(__file__).parents[1] / "docs" / "log-records.schema.json"

# Fields that Records adds: to every record, and to those of a training once its data is read.
HEAD: dict[str, Any] = {
    "schema": {"const": SCHEMA, "description": "Version of this file."},
    "time": {
        "type": "string",
        "pattern": r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z$",
        "description": "Time of the record, in UTC.",
    },
    "run": {
        "type": "string",
        "pattern": "^[0-9a-f]{8}$",
        "description": "Equal in all records of one run.",
    },
    "version": {"type": "string", "description": "Version of randsvm."},
    "command": {"enum": ["randsvm-train", "randsvm-predict"]},
}
FILES: dict[str, Any] = {
    "data": {
        "type": ["string", "array"],
        "items": {"type": "string"},
        "description": "The data, as one file or several.",
    },
    "model": {"type": "string", "description": "Model file."},
    "output": {"type": "string", "description": "File that randsvm-predict writes."},
}
RUN: dict[str, Any] = {
    "algorithm": {
        "enum": ["randsvm", "osuna", "osuna-closest", "sgd"],
        "description": "Algorithm; of randsvm-train only.",
    },
    "parameters": {"type": "string", "description": "Options that repeat the run."},
    "n": {"type": ["integer", "null"], "description": "Rows."},
    "d": {"type": ["integer", "null"], "description": "Distinct features."},
    "nnz": {"type": ["integer", "null"], "description": "Stored values."},
}
NUMBERS = {bool: "boolean", int: "integer", float: "number", str: "string"}


# Records that may come before the data is read; the other ones have all of RUN.
EARLY = {"notice", "unwritten", "failed"} | {kind.__name__.lower() for kind in PREDICTION_ENDS}
# Records without data: a model may be exported without any.
WITHOUT_DATA = {"failed", "exported"}


def schema() -> dict[str, Any]:
    """Return the schema of a line of a log."""
    definitions: dict[str, Any] = {
        "run": {
            "description": "Fields of every record.",
            "properties": {**HEAD, **FILES, **RUN},
            "required": [*HEAD],
        }
    }
    for name, kinds in RECORDS.items():
        definitions[name] = record(name, kinds, definitions)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": FILE.name,
        "title": "Records of randsvm",
        "description": "A line of --log, and what --report json prints.",
        "type": "object",
        "required": ["event"],
        "oneOf": [{"$ref": f"#/$defs/{name}"} for name in RECORDS],
        "$defs": dict(sorted(definitions.items())),
    }


def record(name: str, kinds: tuple[type, ...], definitions: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of one kind of record. definitions: nested classes are added to it."""
    own: dict[str, Any] = {}
    for kind in kinds:
        for field, found in fields(kind, definitions).items():
            own.setdefault(field, found)
    if name == "started":
        # Records writes the configuration as `parameters`.
        for field in ("configuration", "algorithm", "n", "d", "nnz"):
            del own[field]
    if name == TRAINED:
        # Null where the algorithm has no such value.
        for field in outcome_names():
            if not all(field in kind._fields for kind in TRAINING_ENDS):
                own[field] = nullable(own[field])
    run = [] if name in WITHOUT_DATA else ["data", "model", *([] if name in EARLY else RUN)]
    return {
        "description": summary(kinds[0]),
        "$ref": "#/$defs/run",
        "properties": {"event": {"const": name}, **own},
        "required": list(dict.fromkeys(["event", *run, *own])),
        "unevaluatedProperties": False,
    }


def fields(kind: type, definitions: dict[str, Any]) -> dict[str, Any]:
    """Return field -> schema of a class of named tuples."""
    meanings, hints = parameters(kind), get_type_hints(kind)
    found = {}
    for name in kind._fields:  # type: ignore[attr-defined]
        found[name.rstrip("_")] = {
            **value(hints[name], definitions),
            "description": meanings[name],
        }
    return found


def value(hint: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a value. JSON has no nan and no infinities: a float may be null."""
    if hint is float:
        return {"type": ["number", "null"]}
    if hint in NUMBERS:
        return {"type": NUMBERS[hint]}
    if hint is type(None):
        return {"type": "null"}
    if hasattr(hint, "_fields"):
        if hint.__name__ not in definitions:
            own = fields(hint, definitions)
            definitions[hint.__name__] = {
                "description": summary(hint),
                "type": "object",
                "properties": own,
                "required": list(own),
                "additionalProperties": False,
            }
        return {"$ref": f"#/$defs/{hint.__name__}"}
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return united([value(one, definitions) for one in arguments])
    if origin in (list, tuple):
        return {"type": "array", "items": value(arguments[0], definitions)}
    if origin is dict:
        return {"type": "object", "additionalProperties": value(arguments[1], definitions)}
    raise TypeError(f"no schema for {hint}")


def united(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the schema of a value that has one of several."""
    if all(part.keys() == {"type"} for part in parts):
        names = [part["type"] for part in parts]
        flat = [one for name in names for one in ([name] if isinstance(name, str) else name)]
        return {"type": list(dict.fromkeys(flat))}
    return {"anyOf": parts}


def nullable(found: dict[str, Any]) -> dict[str, Any]:
    """Return a schema that allows null too."""
    own = {name: part for name, part in found.items() if name != "description"}
    return {**united([own, {"type": "null"}]), "description": found["description"]}


def summary(kind: type) -> str:
    """Return the first line of a docstring."""
    return " ".join(inspect.getdoc(kind).partition("\n\n")[0].split())  # type: ignore[union-attr]


def parameters(kind: type) -> dict[str, str]:
    """Return parameter -> description from the docstring of a class."""
    text = inspect.getdoc(kind).partition("Parameters\n----------\n")[2]  # type: ignore[union-attr]
    found = re.findall(r"^(\w+) : .*\n((?:    .*\n?)+)", text, re.MULTILINE)
    # JSON has null in place of None and nan.
    return {
        name: re.sub(r"\b(None|nan)\b", "null", " ".join(meaning.split()))
        for name, meaning in found
    }


def text() -> str:
    """Return the content of the file."""
    return json.dumps(schema(), indent=2) + "\n"


if __name__ == "__main__":
    FILE.write_text(text())
