"""The shape of the code, kept true by reading its syntax trees and files."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MODULES = sorted((ROOT / "pipeline").rglob("*.py"))
HEAVY = {"numpy", "scipy", "sklearn", "numba", "librosa", "soundfile", "river", "matplotlib", "cvxpy", "rich", "ducc0"}
DOORS = {
    "matplotlib": {"plotting.py"},
    "cvxpy": {"learners/rod.py"},
    "librosa": set(),
    "cleanlab": {"reproduction/peers.py"},
    "river": {"health/alarms.py"},
    "sounddevice": {"sources/soundcard.py"},
    "prometheus_client": {"web/metrics.py"},
    "paho": {"sinks/mqtt.py"},
    "apprise": {"sinks/messages.py"},
    "nats": {"jetstream.py"},
    "dask": {"dask_engine.py"},
    "ducc0": {"transforms.py"},
    "distributed": {"dask_engine.py"},
}
# What each part of the package may import of the others; the command line may import all of them.
MAY_IMPORT = {
    "errors": set(),
    "conditions": set(),
    "events": {"conditions"},
    "passages": {"errors", "events"},
    "notifications": {"passages"},
    "protocols": set(),
    "grid": {"errors"},
    "exact": set(),
    "transforms": set(),
    "views": {"events", "grid", "transforms"},
    "digests": set(),
    "threads": set(),
    "snapshots": {"conditions", "errors", "events", "grid"},
    "plotting": {"errors"},
    "files": set(),
    "workers": {"errors"},
    "wire": {"errors", "events"},
    "hosts": set(),
    "jetstream": {"errors", "hosts"},
    "dask_engine": {"errors", "threads", "workers"},
    "learners": {"exact", "threads"},
    "health": {"conditions", "errors", "events", "snapshots", "transforms"},
    "stages": {
        "conditions",
        "digests",
        "errors",
        "events",
        "exact",
        "grid",
        "health",
        "passages",
        "protocols",
        "snapshots",
        "threads",
        "transforms",
        "views",
    },
    "simulation": {"errors", "events", "files", "grid", "plotting", "workers"},
    "sources": {"errors", "events", "jetstream", "simulation", "wire"},
    "training": {"errors", "events", "files", "grid", "health", "learners", "snapshots", "threads", "views"},
    "sinks": {
        "conditions",
        "errors",
        "events",
        "files",
        "jetstream",
        "notifications",
        "passages",
        "protocols",
        "wire",
    },
    "service": {
        "conditions",
        "errors",
        "events",
        "files",
        "grid",
        "health",
        "hosts",
        "jetstream",
        "learners",
        "notifications",
        "passages",
        "plotting",
        "protocols",
        "simulation",
        "sinks",
        "snapshots",
        "sources",
        "stages",
        "threads",
        "training",
        "transforms",
        "views",
        "wire",
        "workers",
    },
    "fleet": {
        "conditions",
        "dask_engine",
        "errors",
        "events",
        "files",
        "grid",
        "jetstream",
        "notifications",
        "passages",
        "plotting",
        "protocols",
        "service",
        "sinks",
        "snapshots",
        "sources",
        "stages",
        "training",
        "wire",
        "workers",
    },
    "web": {
        "conditions",
        "errors",
        "events",
        "grid",
        "health",
        "notifications",
        "passages",
        "service",
        "sinks",
        "stages",
        "training",
    },
    "reproduction": {
        "errors",
        "events",
        "files",
        "grid",
        "learners",
        "plotting",
        "simulation",
        "sources",
        "stages",
        "training",
        "views",
        "workers",
    },
}


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


def place(path: Path) -> str:
    return path.relative_to(ROOT / "pipeline").as_posix()


def part(path: Path) -> str:
    return place(path).split("/")[0].removesuffix(".py")


@pytest.mark.parametrize("path", [p for p in MODULES if part(p) not in ("__init__", "cli")], ids=place)
def test_imports_point_one_way(path):
    """Learners know nothing of sound, stages nothing of sources, and nobody knows the command line."""
    ours = {name.split(".")[1] for name in imports(path) if name.startswith("pipeline.")} - {"__version__", part(path)}
    assert ours <= MAY_IMPORT[part(path)]
    assert not any(name.startswith(("benchmarks", "tests", "fixtures")) for name in imports(path))


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


@pytest.mark.parametrize("package", DOORS)
def test_heavy_packages_have_one_door(package):
    """Each is imported in one module, inside a function."""
    users = {place(path) for path in MODULES if any(name.split(".")[0] == package for name in imports(path))}
    assert users == DOORS[package]
    for path in MODULES:
        assert not any(name.split(".")[0] == package for name in imports(path, top_only=True))


@pytest.mark.parametrize(
    "path", [p for p in MODULES if part(p) == "cli" or place(p) in ("__init__.py", "errors.py")], ids=place
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
