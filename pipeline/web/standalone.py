"""`gemmed web`: the dashboard of a state directory, to look at what was."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator

from pipeline.config.schema import Settings
from pipeline.core.errors import NotFound, StorageError
from pipeline.runtime.child_process import Snapshot
from pipeline.runtime.logs import log
from pipeline.runtime.state_dir import StateDirectory
from pipeline.storage.cursors import last_heartbeat
from pipeline.storage.journal import Journal
from pipeline.web.server import serve

_LOOK_SECONDS = 2.0


def serve_alone(settings: Settings) -> None:
    """Until somebody ends it. A daemon that starts meanwhile is seen, too."""
    state = StateDirectory(settings.storage.directory)
    if not state.journal.exists():
        raise NotFound(f"{state.path} is not of a gemmed run, it has no journal; give --state, or start gemmed run")
    serve(settings, beats(state), signals=(signal.SIGINT, signal.SIGTERM))


def beats(state: StateDirectory) -> Iterator[Snapshot]:
    """What the daemon left for others to read, and how long ago that was."""
    while True:
        try:
            found = _last_beat(state)
        except StorageError as error:
            log.warning("the journal cannot be read now", why=str(error))
            found = None
        if found is not None:
            yield found
        time.sleep(_LOOK_SECONDS)


def _last_beat(state: StateDirectory) -> Snapshot | None:
    with Journal(state.journal, read_only=True) as journal:
        beat = last_heartbeat(journal)
        if beat is None:
            return None
        age = max(beat.age_seconds, 0.0)
        # Pages are told, too, that this is no news.
        news = {"running": state.is_locked(), "told_seconds_ago": round(age, 1)}
        return {"status": beat.status | news, "last_id": journal.last_id, "age_seconds": age}
