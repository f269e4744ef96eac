"""The house: who may import whom, held against the table of the design."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import randsvm

PACKAGE = Path(randsvm.__file__).parent

# A row imports only rows below it (and, within cli/ and algorithms/, its own row).
ROWS = [
    ["cli.train", "cli.predict"],
    ["cli.options", "cli.report", "cli.door"],
    ["cli.signals"],
    ["cli"],
    ["api"],
    ["rounds", "prediction"],
    ["linear"],
    ["algorithms.randsvm", "algorithms.osuna", "algorithms.sgd"],
    ["algorithms"],
    ["probability"],
    ["selection"],
    ["multiclass"],
    ["stopping"],
    ["jobs"],
    ["scan"],
    ["solver"],
    ["solution"],
    ["model"],
    ["formats.libsvm_model", "formats.liblinear_model"],
    ["formats.header"],
    ["formats.trailer"],
    ["formats"],
    ["tasks"],
    ["metrics"],
    ["dataset"],
    ["store"],
    ["collectors"],
    ["svmlight"],
    ["features"],
    ["kernels"],
    ["points"],
    ["files"],
    ["params"],
    ["events"],
    ["errors"],
    ["startup"],
    [""],  # the package itself: its version
]
RANK = {room: rank for rank, rooms in enumerate(ROWS) for room in rooms}

ROOMS = {
    path.relative_to(PACKAGE).with_suffix("").as_posix().replace("/", "."): path
    for path in PACKAGE.rglob("*.py")
}
ROOMS = {name.removesuffix("__init__").rstrip("."): path for name, path in ROOMS.items()}

# Libraries that live behind few doors.
DOORS = {
    "libsvm": {"solver"},
    "click": {"cli.train", "cli.predict", "cli.options", "cli.report", "cli.door"},
    "tqdm": {"cli.report"},
}


def imports(path: Path) -> set[str]:
    """Full names of everything that a module imports, inside functions too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def inner(name: str) -> str | None:
    """The room that an imported name lies in; None for other packages and for what is no room."""
    room = name.removeprefix("randsvm").lstrip(".")
    if name.partition(".")[0] != "randsvm" or room not in ROOMS:
        return None
    return room


@pytest.mark.parametrize("room", ROOMS)
def test_every_room_stands_in_the_table(room):
    assert room in RANK


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_rooms_below_it(room):
    below = {inner(name) for name in imports(ROOMS[room])} - {None, room}
    assert [name for name in below if RANK[name] <= RANK[room]] == []


@pytest.mark.parametrize("library", DOORS)
def test_a_foreign_library_lives_behind_its_door(library):
    users = {
        room
        for room, path in ROOMS.items()
        if any(name.partition(".")[0] == library for name in imports(path))
    }
    assert users <= DOORS[library]


def test_the_walk_sees_imports():
    assert "scan" in {inner(name) for name in imports(ROOMS["algorithms.randsvm"])}
