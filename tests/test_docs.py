"""What the documents promise exists."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "fixtures" / "README.md"]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_and_pictures_exist(document):
    """Every relative link leads to a file."""
    for target in re.findall(r"\]\(([^)#]+)\)", document.read_text()):
        if not target.startswith("http"):
            assert (document.parent / target).exists(), target


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_named_files_exist(document):
    """A path in backticks that looks like one of ours is one."""
    for name in re.findall(r"`((?:pipeline|tests|benchmarks|docs|deploy|fixtures)/[\w./-]+)`", document.read_text()):
        assert (ROOT / name).exists(), name


def test_readme_commands_are_make_targets():
    """The two commands of the README exist."""
    readme, makefile = (ROOT / "README.md").read_text(), (ROOT / "Makefile").read_text()
    for target in ("run", "test"):
        assert f"make {target}" in readme
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)


def test_every_learner_is_documented():
    """docs/algorithms.md names each public class."""
    from pipeline import learners

    text = (ROOT / "docs" / "algorithms.md").read_text()
    for name in learners.__all__:
        assert name in text


def test_readme_example_runs_and_does_what_it_says():
    """The samples of the failing sensor are refused, the others are not."""
    code = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL).group(1)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    corrupted, clean, *_ = done.stdout.split()
    assert float(corrupted) > 0.9
    assert float(clean) < 0.05


def test_sound_example_runs():
    """The example goes from the stored recordings to views, and from these to components."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "sound.md").read_text(), re.DOTALL)
    code = "\n".join([blocks[0].replace("print(", "VIEWS.append(fact); print("), blocks[2]])
    code = "VIEWS = []\n" + code.replace("[...]", "VIEWS") + "\nassert len(projection.push(views[0])) == 1\n"
    compile(blocks[1], "sources", "exec")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    lines = done.stdout.splitlines()
    assert len(lines) == 80
    assert all("(4, 78) (4, 196)" in line for line in lines)


def test_every_fault_is_documented():
    """docs/sound.md names each kind."""
    from pipeline.simulation import FAULTS

    text = (ROOT / "docs" / "sound.md").read_text()
    assert all(f"`{fault}`" in text for fault in FAULTS)


def test_the_architecture_lists_every_module():
    """Each package has a row with its modules; those with an underscore are left out."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    rows = re.findall(r"^\| `([\w/]+)` \| [^|]+ \| ([^|]+) \| [\d,]+ \|$", text, re.MULTILINE)
    listed = {name: set(modules.split(", ")) for name, modules in rows}
    packages = {path.parent for path in (ROOT / "pipeline").rglob("*.py")} - {ROOT / "pipeline"}
    assert listed == {
        path.relative_to(ROOT / "pipeline").as_posix(): {
            module.stem for module in path.glob("*.py") if not module.name.startswith("_")
        }
        for path in packages
    }
