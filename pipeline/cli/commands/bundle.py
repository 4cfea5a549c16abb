"""`gemmed bundle`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from pipeline.config.schema import Settings
from pipeline.core.errors import StorageError
from pipeline.core.events import NoticeKind
from pipeline.reports.redaction import Redactor
from pipeline.reports.status import status
from pipeline.reports.support_bundle import about, write_bundle
from pipeline.runtime.state_dir import StateDirectory
from pipeline.storage.journal import Journal, StoredEvent
from pipeline.storage.model_table import model_rows

_EVENTS = 5000
_PASSING = {"decision", "tick", "paced"}
_PASSING_KEPT = 200


def run_bundle(settings: Settings, out: Path) -> None:
    state = StateDirectory(settings.storage.directory)
    sections = about(settings) | {"status.json": json.dumps(status(state), indent=1)}
    try:
        with Journal(state.journal, read_only=True) as journal:
            sections["events.jsonl"] = _events(journal)
            sections["models.json"] = json.dumps([asdict(row) for row in model_rows(journal)], indent=1)
    except StorageError as error:
        sections["journal.txt"] = f"{error}\n"
    write_bundle(out, sections, Redactor())


def _events(journal: Journal) -> str:
    """The last ones; of those that come all the time only a few."""
    lines, passing = [], 0
    for event in journal.events(newest_first=True, most=50 * _EVENTS):
        passing += event.type in _PASSING
        if event.type not in _PASSING or passing <= _PASSING_KEPT:
            lines.append(json.dumps(event.as_dict() | _unsaid(event)))
        if len(lines) == _EVENTS:
            break
    return "\n".join(reversed(lines)) + "\n"


def _unsaid(event: StoredEvent) -> dict[str, str]:
    """Why somebody gave a label is free text, in which anybody may be named."""
    return {"why": "(left out)"} if event.type == str(NoticeKind.LABEL_GIVEN) else {}
