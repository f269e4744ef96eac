"""The house: who may import whom, held against the table of the design."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import randsvm

PACKAGE = Path(randsvm.__file__).parent

# A row imports only rows below it, and files of its own folder.
ROWS = [
    {"cli"},
    {"api", "estimators"},
    {"training"},
    {"algorithms", "models"},
    {"svm"},
    {"cluster"},
    {"data", "kernels"},
    {"parameters"},
    {"parallel"},
    {"events", "errors", "files", "streams", "arrays", "decimals"},
    {""},  # the package itself: its version
]
RANK = {room: rank for rank, rooms in enumerate(ROWS) for room in rooms}
# Rows that stand side by side and do not know each other, and one that is below but stays unseen.
STRANGERS = {("algorithms", "models"), ("data", "kernels"), ("models", "svm")}

FILES = {
    path.relative_to(PACKAGE).with_suffix("").as_posix().replace("/", "."): path
    for path in PACKAGE.rglob("*.py")
}
FILES = {name.removesuffix("__init__").rstrip("."): path for name, path in FILES.items()}

# Libraries that live behind few doors.
DOORS = {
    "libsvm": {"svm.libsvm"},
    "click": {
        "cli.train",
        "cli.predict",
        "cli.commands",
        "cli.options",
        "cli.report",
        "cli.process",
    },
    "tqdm": {"cli.bars"},
    "distributed": {"cluster.worker_pool", "cluster.connection"},
    "cloudpickle": {"cluster.cluster_executor"},
    "concurrent": {"parallel"},
}


def room_of(file: str) -> str:
    """The folder that a file lies in, or the file where it lies in none."""
    return file.partition(".")[0]


def imports(path: Path) -> set[str]:
    """Full names of everything that a module imports, inside functions too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            # A name may be a module of its own; what is none is in the module it comes from.
            modules = {name for name in names if name.removeprefix("randsvm.") in FILES}
            found |= modules | ({node.module} if modules != names else set())
    return found


def inner(path: Path) -> set[str]:
    """The files of the package that a file imports."""
    ours = {name for name in imports(path) if name.partition(".")[0] == "randsvm"}
    return {name.removeprefix("randsvm").lstrip(".") for name in ours} & FILES.keys()


@pytest.mark.parametrize("file", FILES)
def test_every_file_lies_in_a_room_of_the_table(file):
    assert room_of(file) in RANK


@pytest.mark.parametrize("file", FILES)
def test_a_file_imports_only_rooms_below_its_own(file):
    room = room_of(file)
    others = {room_of(name) for name in inner(FILES[file])} - {room}
    assert [other for other in others if RANK[other] < RANK[room]] == []
    assert [other for other in others if tuple(sorted((room, other))) in STRANGERS] == []


def test_no_file_imports_a_file_that_imports_it():
    arrows = {file: inner(path) - {file} for file, path in FILES.items()}
    while leaves := {file for file, targets in arrows.items() if not targets & arrows.keys()}:
        for file in leaves:
            del arrows[file]
    assert sorted(arrows) == []


@pytest.mark.parametrize("library", DOORS)
def test_a_foreign_library_lives_behind_its_door(library):
    users = {
        file
        for file, path in FILES.items()
        if any(name.partition(".")[0] == library for name in imports(path))
    }
    assert users <= DOORS[library]


def test_the_walk_sees_imports():
    assert "svm.scan" in inner(FILES["algorithms.decomposition"])
    assert "data.dataset" in inner(FILES["svm.running_values"])
