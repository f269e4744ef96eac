"""Test that the packages import each other only downwards, as the design's table of layers says."""

import ast
from functools import cache
from pathlib import Path

import pytest

import randsvm

PACKAGE = Path(randsvm.__file__).parent

# A package imports only packages of lower layers, and modules of its own.
LAYERS = [
    {"cli", "__main__"},
    {"page"},
    {"check"},  # imports nothing of the package
    {"plot"},
    {"api", "estimators"},
    {"training"},
    {"algorithms", "models"},
    {"svm"},
    {"cluster"},
    {"data", "kernels"},
    {"parameters"},
    {"parallel"},
    {"events", "errors", "files", "arrays", "decimals", "records"},
    {""},  # the package itself: its version
]
LAYER_OF = {room: rank for rank, rooms in enumerate(LAYERS) for room in rooms}
# Pairs of packages that do not import each other.
INDEPENDENT_PACKAGES = {("algorithms", "models"), ("data", "kernels"), ("models", "svm")}

FILES = {
    path.relative_to(PACKAGE).with_suffix("").as_posix().replace("/", "."): path
    for path in PACKAGE.rglob("*.py")
}
FILES = {name.removesuffix("__init__").rstrip("."): path for name, path in FILES.items()}

# What the Python interface and the commands give to users.
PUBLIC_MODULES = {
    "", "api", "check", "errors", "estimators", "events", "plot",
    "cli.train", "cli.predict", "cli.plot",
}  # fmt: skip
PUBLIC_NAMES = {"parameters.run.PredictParams", "parameters.run.CertifyParams"}

TESTS = Path(__file__).parent

# The only modules that may import a library.
LIBRARY_USERS = {
    "libsvm": {"svm.libsvm", "cli.process"},
    "click": {
        "cli.train",
        "cli.predict",
        "cli.options",
        "cli.plot",
        "cli.report",
        "cli.process",
    },
    "tqdm": {"cli.report"},
    "distributed": {"cluster.connection"},
    "cloudpickle": {"cluster.workers"},
    "concurrent": {"parallel", "check"},
}


def package_of(file):
    """Return the package of a module, or the module itself at top level."""
    return file.partition(".")[0]


@cache
def imported_names(path):
    """Return the full names of what a module imports, inside functions too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def our_names(path):
    return {name for name in imported_names(path) if name.partition(".")[0] == "randsvm"}


def is_public(name):
    return name in PUBLIC_MODULES or (
        name not in FILES and name.rpartition(".")[0] in PUBLIC_MODULES
    )


def imported_modules(path):
    """Return the modules of the package that a module imports."""
    names = {name.removeprefix("randsvm").lstrip(".") for name in our_names(path)}
    # A name may be a module of its own; what is none is in the module it comes from.
    return {name if name in FILES else name.rpartition(".")[0] for name in names} & FILES.keys()


# The one statement of boxes, losses and gaps, also for packages that are independent of svm.
SHARED_MODULES = {"svm.tasks", "svm.solution"}


@pytest.mark.parametrize("file", FILES)
def test_a_module_imports_only_lower_layers(file):
    room = package_of(file)
    others = {package_of(name) for name in imported_modules(FILES[file])} - {room}
    assert [other for other in others if LAYER_OF[other] < LAYER_OF[room]] == []
    separate = {package_of(name) for name in imported_modules(FILES[file]) - SHARED_MODULES}
    pairs = {tuple(sorted((room, other))) for other in separate - {room}}
    assert pairs & set(INDEPENDENT_PACKAGES) == set()


@pytest.mark.parametrize("path", sorted(TESTS.rglob("test_*.py")), ids=lambda path: path.stem)
def test_a_test_imports_internal_modules_from_tests_support_only(path):
    """A redesign then changes modules of tests/support, and no test."""
    names = {name.partition(".")[2] for name in our_names(path)}
    assert {name for name in names if name not in PUBLIC_NAMES and not is_public(name)} == set()


def test_imports_have_no_cycles():
    arrows = {file: imported_modules(path) - {file} for file, path in FILES.items()}
    while leaves := {file for file, targets in arrows.items() if not targets & arrows.keys()}:
        for file in leaves:
            del arrows[file]
    assert sorted(arrows) == []


@pytest.mark.parametrize("library", LIBRARY_USERS)
def test_only_the_listed_modules_import_a_library(library):
    users = {
        file
        for file, path in FILES.items()
        if any(name.partition(".")[0] == library for name in imported_names(path))
    }
    assert users <= LIBRARY_USERS[library]
