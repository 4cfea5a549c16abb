"""The shape of the code, kept true by reading its syntax trees and files."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MODULES = sorted((ROOT / "pipeline").rglob("*.py"))
HEAVY = {"numpy", "scipy", "sklearn", "numba", "librosa", "soundfile", "river", "matplotlib", "cvxpy", "rich", "ducc0"}
DOORS = {
    "matplotlib": {"runtime/plotting.py"},
    "cvxpy": {"learners/rod.py"},
    "librosa": set(),
    "cleanlab": {"experiments/peers.py"},
    "river": {"health/sequential_tests.py"},
    "sounddevice": {"sources/soundcard.py"},
    "prometheus_client": {"web/metrics.py"},
    "paho": {"outputs/mqtt.py"},
    "apprise": {"outputs/services.py"},
    "nats": {"transport/nats.py"},
    "dask": {"runtime/dask_pool.py"},
    "ducc0": {"core/fourier.py"},
    "distributed": {"runtime/dask_pool.py"},
}
LAYERS = (
    {"core"},
    {"transport"},
    {"config"},
    {"runtime"},
    {"health", "learners", "simulation"},
    {"sources", "stages"},
    {"model"},
    {"training"},
    {"storage"},
    {"retraining"},
    {"outputs"},
    {"daemon"},
    {"reports"},
    {"fleet"},
    {"web"},
    {"experiments"},
    {"cli"},
)
"""All packages, low to high. A package imports only those of lower layers; packages of one layer know nothing of each
other.
"""
SQL = re.compile(r"\bSELECT\b.*\bFROM\b|\bINSERT( OR \w+)? INTO\b|\bUPDATE \w+ SET\b|\bDELETE FROM\b", re.DOTALL)
MOST_MODULES = 24
"""Public ones in a folder."""


@cache
def imports(path: Path, *, top_only: bool = False) -> set[str]:
    """Full names of imported modules; only those executed on import if `top_only`."""
    tree = ast.parse(path.read_text())
    nodes = tree.body if top_only else list(ast.walk(tree))
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def literals(path: Path) -> list[str]:
    """Strings of a module; of one with values in it a dot stands for each value."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    plain = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    mixed = [node.values for node in nodes if isinstance(node, ast.JoinedStr)]
    return plain + ["".join(one.value if isinstance(one, ast.Constant) else "." for one in own) for own in mixed]


def place(path: Path) -> str:
    return path.relative_to(ROOT / "pipeline").as_posix()


def part(path: Path) -> str:
    return place(path).split("/")[0].removesuffix(".py")


def test_every_package_has_one_layer():
    """Nothing stands outside of the packages but their parent."""
    packages = sorted(name for layer in LAYERS for name in layer)
    assert sorted({part(path) for path in MODULES} - {"__init__"}) == packages


@pytest.mark.parametrize("path", [p for p in MODULES if part(p) != "__init__"], ids=place)
def test_imports_point_to_lower_layers(path):
    """Learners know nothing of sound, stages nothing of sources, and no module knows the command line."""
    own = part(path)
    lower = set().union(*LAYERS[: next(n for n, layer in enumerate(LAYERS) if own in layer)])
    ours = {name.split(".")[1] for name in imports(path) if name.startswith("pipeline.")} - {
        "THREAD_VARIABLES",
        "__version__",
        own,
    }
    assert ours <= lower
    assert not any(name.startswith(("benchmarks", "tests", "fixtures")) for name in imports(path))


def test_folders_are_small():
    """A reader sees all of a folder at once."""
    sizes = Counter(path.parent for path in MODULES if not path.name.startswith("_"))
    assert max(sizes.values()) <= MOST_MODULES


def test_no_two_public_classes_share_a_name():
    """A name leads to one place."""
    homes: dict[str, list[str]] = {}
    for path in MODULES:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(place(path))
    assert {name: found for name, found in homes.items() if len(found) > 1} == {}


@pytest.mark.parametrize("path", [p for p in MODULES if part(p) == "stages"], ids=place)
def test_stages_read_no_clock_open_no_file_and_start_nothing(path):
    """All they know comes in by `push`, so a replay can repeat it."""
    names = {name.split(".")[0] for name in imports(path)}
    assert not names & {
        "time",
        "datetime",
        "threading",
        "asyncio",
        "subprocess",
        "socket",
        "pathlib",
        "logging",
        "random",
    }
    assert not re.search(r"(?<![\w.])(open|print)\(", path.read_text())


@pytest.mark.parametrize("path", [p for p in MODULES if part(p) != "storage"], ids=place)
def test_sql_stands_in_storage_only(path):
    """All others ask functions of the storage, which return typed rows."""
    assert not [text for text in literals(path) if SQL.search(text)]


@pytest.mark.parametrize("package", DOORS)
def test_heavy_packages_have_one_door(package):
    """Each is imported in one module, inside a function."""
    users = {place(path) for path in MODULES if any(name.split(".")[0] == package for name in imports(path))}
    assert users == DOORS[package]
    for path in MODULES:
        assert not any(name.split(".")[0] == package for name in imports(path, top_only=True))


@pytest.mark.parametrize(
    "path", [p for p in MODULES if re.fullmatch(r"cli/\w+\.py|__init__\.py|core/errors\.py", place(p))], ids=place
)
def test_the_command_line_imports_nothing_heavy(path):
    """Help must be instant."""
    top = {found.split(".")[0] for found in imports(path, top_only=True)}
    assert not top & HEAVY


@pytest.mark.parametrize("path", MODULES, ids=place)
def test_no_unsafe_loading(path):
    """No pickle, eval, exec or shell strings, and no hidden global random state."""
    text = path.read_text()
    assert not imports(path) & {"pickle", "joblib", "shelve", "marshal", "dill", "cloudpickle"}
    assert not re.search(r"(?<![\w.])(eval|exec)\(|shell=True|np\.random\.seed", text)


@pytest.mark.parametrize("path", MODULES, ids=place)
def test_what_people_wrote_is_no_markup(path):
    """A console shows names, paths and remarks as they are: brackets in them are neither commands nor errors."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Console":
            given = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
            assert (given.get("markup"), given.get("emoji")) == ("False", "False"), f"{path}:{node.lineno}"


def test_constraints_pin_versions_and_name_no_index():
    """Every line is name==version; no address, no path, no option."""
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line and line[0] != "#"]
    assert len(lines) > 30
    for line in lines:
        assert re.fullmatch(r"[A-Za-z0-9_.-]+==[A-Za-z0-9_.!+-]+", line), line


def test_every_dependency_is_pinned():
    """What pyproject.toml asks for, constraints.txt decides."""
    text = (ROOT / "pyproject.toml").read_text()
    wanted = {name.lower().replace("_", "-") for name in re.findall(r'"([A-Za-z0-9_.-]+)>=', text)} - {"setuptools"}
    pinned = {
        line.split("==")[0].lower().replace("_", "-") for line in (ROOT / "constraints.txt").read_text().splitlines()
    }
    assert wanted <= pinned


def test_no_file_holds_an_index_address_or_a_machine_path():
    """The project installs from whatever index its user has, and lives anywhere."""
    pattern = re.compile(r"index-url|pypi\.org|files\.pythonhosted|(?<![\w.])/(work|root|home)/")
    for path in ROOT.rglob("*"):
        parts = path.relative_to(ROOT).parts
        if (parts[0].startswith(".") and parts[0] != ".ci") or "__pycache__" in parts or parts[0].endswith(".egg-info"):
            continue
        if path.is_file() and path.suffix in {".py", ".md", ".toml", ".txt", ".sh", ""} and path != Path(__file__):
            assert not pattern.search(path.read_text(errors="replace")), path
