"""Finished trials on disk, so that an interrupted run goes on where it stopped."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from pipeline.errors import UsageError


class TrialStore:
    """A file of JSON lines: first the plan, then one line per finished task.

    A task's line is written and flushed whole; a line cut off by a crash is dropped on reading.
    """

    def __init__(self, path: Path, plan: dict[str, Any]) -> None:
        self._path = path
        self._plan = json.loads(json.dumps(plan))
        self.done: dict[str, list[dict[str, Any]]] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            self._read()
        self._rewrite()
        self._file = path.open("a", encoding="utf-8")

    def _read(self) -> None:
        lines = self._path.read_text(encoding="utf-8").split("\n")
        header = _parsed(lines[0])
        if header is None or "plan" not in header:
            raise UsageError(
                f"{self._path} is not a file of trials; give another directory with --out, or remove the file"
            )
        if header["plan"] != self._plan:
            raise UsageError(
                f"{self._path} holds trials of another run ({header['plan']}); "
                "give another directory with --out, or add --restart to discard them"
            )
        for line in lines[1:]:
            entry = _parsed(line)
            if entry is not None:
                self.done[entry["key"]] = entry["records"]

    def _rewrite(self) -> None:
        """Replace the file by its readable part, atomically."""
        fresh = self._path.with_suffix(".partial")
        with fresh.open("w", encoding="utf-8") as file:
            file.write(json.dumps({"plan": self._plan}) + "\n")
            for key, records in self.done.items():
                file.write(_line(key, records))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._path)

    def add(self, key: str, records: list[dict[str, Any]]) -> None:
        self.done[key] = records
        self._file.write(_line(key, records))
        self._file.flush()

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> TrialStore:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _line(key: str, records: list[dict[str, Any]]) -> str:
    return json.dumps({"key": key, "records": records}) + "\n"


def _parsed(line: str) -> dict[str, Any] | None:
    try:
        entry = json.loads(line)
    except json.JSONDecodeError:
        return None
    return entry if isinstance(entry, dict) else None
