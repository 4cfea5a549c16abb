"""The support bundle: one file that tells what a helper must know of a machine, and nothing of its people."""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
import zipfile
from collections.abc import Mapping
from importlib.metadata import distributions
from io import BytesIO
from pathlib import Path
from typing import Any

from pipeline import __version__
from pipeline.config.schema import Settings, effective, without_secrets, written_as_toml
from pipeline.core.atomic_write import write_whole
from pipeline.reports.redaction import Redactor


def about(settings: Settings) -> dict[str, str]:
    """The sections that every bundle has: settings, versions, machine."""
    return {
        "settings.toml": written_as_toml(without_secrets(effective(settings))),
        "versions.json": json.dumps(_versions(), indent=1),
        "machine.json": json.dumps(_machine(settings.storage.directory), indent=1),
    }


def write_bundle(out: Path, sections: Mapping[str, str | bytes], redact: Redactor) -> None:
    """A zip of the sections without what must not leave the machine; its manifest says what was replaced how often."""
    texts = {name: _decoded(content) for name, content in sections.items()}
    for text in texts.values():
        redact.learn(text or "")
    told: dict[str, Any] = {}
    packed = BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as bundle:
        for name, text in texts.items():
            if text is None:
                told[name] = {"left_out": "it is not text, so nothing in it could be replaced"}
                continue
            before = redact.replaced.copy()
            content = redact.redact(text).encode(errors="replace")
            told[name] = {"bytes": len(content), "replaced": dict(redact.replaced - before)}
            bundle.writestr(name, content)
        manifest = {"gemmed": __version__, "sections": told, "replaced": dict(redact.replaced)}
        bundle.writestr("manifest.json", json.dumps(manifest, indent=1))
    write_whole(out, packed.getvalue())


def _decoded(content: str | bytes) -> str | None:
    if isinstance(content, str):
        return content
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


def _versions() -> dict[str, Any]:
    packages = {found.metadata["Name"]: found.version for found in distributions()}
    return {"gemmed": __version__, "python": sys.version, "packages": dict(sorted(packages.items()))}


def _machine(directory: Path) -> dict[str, Any]:
    return {
        "system": platform.system(),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "cores": os.cpu_count(),
        "cores_usable": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "state": {"directory": str(directory), "files": _files(directory), "disk": _disk(directory)},
    }


def _files(directory: Path) -> dict[str, int]:
    """How many there are and how large; some may vanish while they are counted."""
    sizes = []
    for folder, _, names in os.walk(directory):
        for name in names:
            path = Path(folder, name)
            sizes.append(path.lstat().st_size if path.exists() else 0)
    return {"count": len(sizes), "bytes": sum(sizes)}


def _disk(directory: Path) -> dict[str, int] | None:
    if not directory.exists():
        return None
    usage = shutil.disk_usage(directory)
    return {"total_bytes": usage.total, "free_bytes": usage.free}
