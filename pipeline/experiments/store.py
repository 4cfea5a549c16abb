"""Finished trials on disk, so that an interrupted run goes on where it stopped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pipeline.core.atomic_write import write_whole
from pipeline.core.errors import UsageError


class TrialStore:
    """A file of JSON lines: first the plan, then one line per finished task.

    A task's line is written and flushed whole; a line cut off by a crash is dropped on reading.
    """

    def __init__(self, path: Path, plan: dict[str, Any]) -> None:
        self._path = path
        self._plan = json.loads(json.dumps(plan))
        self.done: dict[str, list[dict[str, Any]]] = {}
        whole = False
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            whole = self._read()
        if not whole:
            self._rewrite()
        self._file = path.open("a", encoding="utf-8")

    def _read(self) -> bool:
        """Take over what is readable; False if something was not."""
        lines = self._path.read_bytes().split(b"\n")
        header = _parsed(lines[0])
        if not isinstance(header.get("plan"), dict):
            raise UsageError(
                f"{self._path} is not a file of trials; give another directory with --out, or remove the file"
            )
        if header["plan"] != self._plan:
            differences = ", ".join(
                f"{name} {header['plan'].get(name)} there, {wanted} here"
                for name, wanted in self._plan.items()
                if header["plan"].get(name) != wanted
            )
            raise UsageError(
                f"{self._path} holds trials of another run ({differences}); "
                "give another directory with --out, or add --restart to discard them"
            )
        entries = [_parsed(line) for line in lines[1:-1]]
        good = [e for e in entries if isinstance(e.get("key"), str) and isinstance(e.get("records"), list)]
        self.done = {entry["key"]: entry["records"] for entry in good}
        return len(good) == len(entries) and lines[-1] == b""

    def _rewrite(self) -> None:
        """Replace the file by its readable part, atomically."""
        lines = [json.dumps({"plan": self._plan}) + "\n", *(_line(key, records) for key, records in self.done.items())]
        write_whole(self._path, "".join(lines).encode())

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


def _parsed(line: bytes) -> dict[str, Any]:
    """The object on a line; an empty one if there is none."""
    try:
        entry = json.loads(line)
    except ValueError:
        return {}
    return entry if isinstance(entry, dict) else {}
