"""What is kept when the disk's share is used up, and why."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from pathlib import Path
from typing import Any

from pipeline.core.errors import StorageError
from pipeline.storage.journal import Journal, Row, utc
from pipeline.storage.outbox import Route, owed_after
from pipeline.storage.rollups import MINUTE

_MODERATION = 0.95
"""Once over the budget, so much of it is left in use: not every piece needs a clean-up of its own."""
_JOURNAL_SHARE = 0.25
"""The journal itself may have this part of the budget."""
_AT_ONCE = 500
_MOST_RECENT = 2000
"""Of so many pieces, at most, the rate is taken: there is no need to look through all of them."""
_SOUND = "sound"
_FEW_EVENTS = 1000
"""So many go at once: what was decided a moment ago stays if it is enough to remove what is old."""
_PASSING = ("decision", "passage_updated", "tick", "paced", "trust_changed")
"""Events that come every few seconds; without their sound nobody asks for the oldest of them.

The table of passages keeps what the last one said of each passage, and is never shortened.
"""
_MINUTES_KEPT, _LEAST_MINUTES = timedelta(days=31), timedelta(hours=2)
"""Of the history by the minute. What the present hour is gathered from always stays."""
_SETTLED = timedelta(minutes=5)
"""A fault may be noticed a while after the sound in which it began."""
_ANOMALIES = (
    "fault_opened",
    "fault_closed",
    "state_changed",
    "fault_suspected",
    "event_noticed",
    "common_fault",
    "label_doubted",
)


class RetentionClass(IntEnum):
    """Why a piece of sound is kept. What is worth least goes first, and of that the oldest."""

    ORDINARY = 0
    DECIDED = 1  # somebody passed: a passage, or a decision with a label
    ANOMALOUS = 2  # a fault, an event
    REFERENCE = 3  # a model was learned from it
    LABELLED = 4

    @property
    def told(self) -> str:
        return self.name.lower()


@dataclass(slots=True)
class Pruned:
    """What was removed, what was kept, each with the reason, and whether that was enough."""

    removed: Counter[str] = field(default_factory=Counter)
    bytes_removed: int = 0
    events_removed: int = 0
    kept: dict[str, int] = field(default_factory=dict)
    bytes_over: int = 0

    def as_dict(self) -> Row:
        return {
            "removed_pieces": dict(sorted(self.removed.items())),
            "removed_bytes": self.bytes_removed,
            "removed_events": self.events_removed,
            "kept_pieces": self.kept,
            "bytes_over_budget": self.bytes_over,
        }


@dataclass(frozen=True, slots=True)
class Outlook:
    """How much space there is, and for how long sound fits into it as fast as it comes now."""

    free_bytes: int
    used_bytes: int
    budget_bytes: int
    over_bytes: int
    """What has to go but may not, after all that may go has gone."""
    hours_left: float | None
    """Until the oldest sound begins to go; unknown where no sound is stored."""
    oldest_sound: str | None

    def as_dict(self) -> Row:
        return asdict(self)


def worth_keeping(journal: Journal, recording: str, start: int, stop: int, worth: RetentionClass) -> None:
    """All pieces that overlap a stretch are worth at least this from now on."""
    journal.execute(
        "UPDATE pieces SET worth = max(coalesce(worth, 0), ?) WHERE recording = ? AND start < ? AND stop > ?",
        (worth, recording, stop, start),
    )


def used_bytes(directory: Path) -> int:
    """What a file takes, or a directory with all that is in it."""
    total = 0
    for file in (directory, *directory.rglob("*")):
        try:
            total += file.stat().st_size if file.is_file() else 0
        except FileNotFoundError:  # somebody else has just removed it
            continue
    return total


@dataclass(slots=True)
class Retention:
    """Keeps a state directory within its budget, and the disk from filling up."""

    directory: Path
    journal: Journal
    budget_bytes: int
    least_free_bytes: int = 0
    routes: Sequence[Route] = ()
    """What others still have to get stays in the journal, within the bounds of their queues."""

    def over_bytes(self) -> int:
        """How much too much there is, by the budget or by what must stay free on the disk; below 0, what is left."""
        free = shutil.disk_usage(self.directory).free
        return max(self._used_bytes() - self.budget_bytes, self.least_free_bytes - free)

    def outlook(self) -> Outlook:
        free, used = shutil.disk_usage(self.directory).free, self._used_bytes()
        over = max(used - self.budget_bytes, self.least_free_bytes - free)
        rate = self._bytes_per_hour()
        (oldest,) = self.journal.rows("SELECT min(kept_at) AS time FROM pieces WHERE file IS NOT NULL")
        return Outlook(
            free_bytes=free,
            used_bytes=used,
            budget_bytes=self.budget_bytes,
            over_bytes=max(over, 0),
            hours_left=round(max(-over, 0) / rate, 2) if rate else None,
            oldest_sound=oldest["time"],
        )

    def _bytes_per_hour(self) -> float:
        """Of sound, in the last hour or since it is stored."""
        now = datetime.now(UTC)
        rows = self.journal.rows(
            "SELECT kept_at, bytes FROM pieces WHERE rowid > (SELECT max(rowid) FROM pieces) - ? AND kept_at > ? "
            "ORDER BY rowid",
            (_MOST_RECENT, utc(now - timedelta(hours=1))),
        )
        if len(rows) < 2:
            return 0.0
        # What the first one holds came before the time that is looked at.
        hours = (now - datetime.fromisoformat(rows[0]["kept_at"])) / timedelta(hours=1)
        return sum(row["bytes"] for row in rows[1:]) / hours if hours > 0 else 0.0

    def _used_bytes(self) -> int:
        """Of sound by the list, for there are too many files to look at each; of all else by looking."""
        (sound,) = self.journal.rows("SELECT coalesce(sum(bytes), 0) AS bytes FROM pieces WHERE file IS NOT NULL")
        return int(sound["bytes"]) + sum(used_bytes(one) for one in self.directory.iterdir() if one.name != _SOUND)

    def enforce(self) -> Pruned | None:
        """Remove what is worth least until the rest fits; None if it fits already."""
        over = self.over_bytes()
        if over <= 0:
            return None
        pruned = Pruned()
        wanted = over + round((1 - _MODERATION) * self.budget_bytes)
        # On a disk that is full nothing can be noted; what is known by now must do.
        with suppress(StorageError):
            self._rate()
            self._shorten_journal(pruned)
        while pruned.bytes_removed < wanted and (rows := self._cheapest()):
            for row in rows:
                self._remove(row, pruned)
                if pruned.bytes_removed >= wanted:
                    break
        pruned.kept = self._kept()
        pruned.bytes_over = max(0, self.over_bytes())
        return pruned

    def _shorten_journal(self, pruned: Pruned) -> None:
        """What is oldest, if the journal is over its share: passing events, and minutes of which there is the hour."""
        conditions, values = self._removable()
        while self.journal.content_bytes() > _JOURNAL_SHARE * self.budget_bytes:
            removed = self.journal.execute(
                f"DELETE FROM events WHERE id IN (SELECT id FROM events WHERE {conditions} ORDER BY id LIMIT ?)",
                (*values, _FEW_EVENTS),
            )
            pruned.events_removed += removed
            minutes = self._remove_minutes(young=removed < _FEW_EVENTS)
            self.journal.compact()
            if removed < _FEW_EVENTS and minutes < _FEW_EVENTS:
                return

    def _remove_minutes(self, *, young: bool) -> int:
        """The oldest; those of the last month only where there is nothing else that could go."""
        until = datetime.now(UTC) - (_LEAST_MINUTES if young else _MINUTES_KEPT)
        return self.journal.execute(
            "DELETE FROM summaries WHERE rowid IN "
            "(SELECT rowid FROM summaries WHERE seconds = ? AND time < ? ORDER BY time LIMIT ?)",
            (MINUTE, utc(until), _FEW_EVENTS),
        )

    def _removable(self) -> tuple[str, list[Any]]:
        conditions, values = [f"type IN ({_marks(_PASSING)})"], list[Any](_PASSING)
        for route in self.routes:
            owed = owed_after(self.journal, route)
            if owed is not None:
                conditions.append(f"NOT (id > ? AND type IN ({_marks(route.types)}))")
                values += [owed, *route.types]
        return " AND ".join(conditions), values

    def _rate(self) -> None:
        """What pieces are worth that nobody has asked about, the youngest aside."""
        settled = utc(datetime.now(UTC) - _SETTLED)
        unrated = self.journal.rows(
            "SELECT recording, start, stop FROM pieces WHERE worth IS NULL AND file IS NOT NULL AND kept_at < ?",
            (settled,),
        )
        for first in range(0, len(unrated), _AT_ONCE):
            with self.journal.transaction():
                for row in unrated[first : first + _AT_ONCE]:
                    worth_keeping(self.journal, row["recording"], row["start"], row["stop"], self._worth(row))

    def _worth(self, row: Row) -> RetentionClass:
        place = (row["recording"], row["start"], row["stop"])
        overlaps = "SELECT 1 FROM labels WHERE recording = ? AND stop > ? AND start < ? LIMIT 1"
        if self.journal.rows(overlaps, place):
            return RetentionClass.LABELLED
        here = "SELECT 1 FROM events WHERE recording = ? AND sample >= ? AND sample <= ? AND"
        if self.journal.rows(f"{here} type IN ({_marks(_ANOMALIES)}) LIMIT 1", (*place, *_ANOMALIES)):
            return RetentionClass.ANOMALOUS
        passed = "SELECT 1 FROM passages WHERE recording = ? AND stop_sample > ? AND start_sample < ? LIMIT 1"
        if self.journal.rows(passed, place):
            return RetentionClass.DECIDED
        decided = f"{here} type = 'decision' AND json_extract(body, '$.label') IS NOT NULL LIMIT 1"
        return RetentionClass.DECIDED if self.journal.rows(decided, place) else RetentionClass.ORDINARY

    def _cheapest(self) -> list[Row]:
        return self.journal.rows(
            "SELECT rowid, file, bytes, worth FROM pieces WHERE file IS NOT NULL AND worth IS NOT NULL "
            "ORDER BY worth, rowid LIMIT ?",
            (_AT_ONCE,),
        ) or self.journal.rows(
            # Nothing but the last minutes is left: the disk must be small.
            "SELECT rowid, file, bytes, 0 AS worth FROM pieces WHERE file IS NOT NULL ORDER BY rowid LIMIT 1"
        )

    def _remove(self, row: Row, pruned: Pruned) -> None:
        """First from the list, then from the disk: what is listed is there; unless the disk is too full for that."""
        file = self.directory / _SOUND / row["file"]
        try:
            self._unlist(row)
        except StorageError:
            file.unlink(missing_ok=True)
            self._unlist(row)
        file.unlink(missing_ok=True)
        pruned.removed[RetentionClass(row["worth"]).told] += 1
        pruned.bytes_removed += row["bytes"]

    def _unlist(self, row: Row) -> None:
        now = utc(datetime.now(UTC))
        self.journal.execute("UPDATE pieces SET file = NULL, removed = ? WHERE rowid = ?", (now, row["rowid"]))

    def finish_removals(self) -> None:
        """What a kill has left on the disk after it was taken from the list."""
        sound = self.directory / _SOUND
        # What the journal never knew is not for us to remove: perhaps it is the journal that was lost.
        removed = "SELECT 1 FROM pieces WHERE recording = ? AND start = ? AND removed IS NOT NULL"
        for file in (*sound.glob("*/*.flac"), *sound.glob("*/*.wav")):
            if self.journal.rows(removed, (file.parent.name, int(file.stem))):
                file.unlink(missing_ok=True)

    def _kept(self) -> dict[str, int]:
        rows: list[dict[str, Any]] = self.journal.rows(
            "SELECT worth, count(*) AS n FROM pieces WHERE file IS NOT NULL GROUP BY worth ORDER BY worth"
        )
        return {"recent" if row["worth"] is None else RetentionClass(row["worth"]).told: row["n"] for row in rows}


def _marks(values: Sequence[str]) -> str:
    return ", ".join("?" * len(values))
