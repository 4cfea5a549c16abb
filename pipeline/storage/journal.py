"""The journal: every event with its id, the run, the sample and the time, in one SQLite file that survives any kill.

Whoever has something to tell appends to it, the daemon as well as `gemmed label`; whoever wants to know reads it. An
event that has an id is on disk: it is neither lost nor told twice.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from pipeline.core.errors import StorageError
from pipeline.storage.schema import MIGRATIONS, SCHEMA_VERSION

_BUSY_SECONDS = 10.0
_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_PAGES_PER_CHECKPOINT = 4000
Row = dict[str, Any]
Change = tuple[str, tuple[Any, ...]]
"""An SQL statement and its values."""


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """An event on its way into the journal; `body` is ready for JSON and tells its type."""

    run: str
    body: Row
    recording: str | None = None
    sample: int | None = None
    time: datetime | None = None
    """When it happened; now if nobody knows better."""
    also: tuple[Change, ...] = ()
    """Changes of other tables that are stored in the same transaction."""

    @property
    def told_at(self) -> str:
        return utc(self.time or datetime.now(UTC))


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event of the journal."""

    id: int
    run: str
    recording: str | None
    sample: int | None
    time: str
    type: str
    body: Row

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Self:
        """From a row of the table."""
        return cls(**{**row, "body": json.loads(row["body"])})

    def as_dict(self) -> Row:
        return {"id": self.id, "run": self.run, "time": self.time, **self.body}


class Journal:
    """One connection to a journal. A thread or process that wants to use it opens its own.

    What was stored no kill can undo. A power failure may cost the last moments, but not if it is `durable`.
    """

    def __init__(self, path: Path, *, read_only: bool = False, durable: bool = False) -> None:
        self.path, self._durable = path, durable
        before = _inode(path)  # if the file is replaced before it is opened, it seems moved, which is harmless
        with _told(path):
            if read_only:
                _require_file(path)
                self._connection = sqlite3.connect(
                    f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=_BUSY_SECONDS
                )
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                self._connection = sqlite3.connect(path, timeout=_BUSY_SECONDS)
        self._inode = before or _inode(path)
        self._connection.isolation_level = None
        self._connection.row_factory = sqlite3.Row
        try:
            with _told(path):
                self._prepare(read_only)
        except BaseException:
            self._connection.close()
            raise

    def _prepare(self, read_only: bool) -> None:
        version = self._connection.execute("PRAGMA user_version").fetchone()[0]
        if version > SCHEMA_VERSION:
            raise StorageError(
                f"{self.path} has the schema {version}, this gemmed knows {SCHEMA_VERSION}; use a newer gemmed"
            )
        if read_only:
            if version < SCHEMA_VERSION:
                raise StorageError(
                    f"{self.path} has the older schema {version}; start gemmed run once, which renews it"
                )
            return
        if version == 0:
            self._connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute(f"PRAGMA synchronous = {'FULL' if self._durable else 'NORMAL'}")
        self._connection.execute(f"PRAGMA wal_autocheckpoint = {_PAGES_PER_CHECKPOINT}")
        for target in range(version + 1, SCHEMA_VERSION + 1):
            with self.transaction():
                # Somebody else may have been faster.
                if self._connection.execute("PRAGMA user_version").fetchone()[0] < target:
                    for statement in MIGRATIONS[target - 1]:
                        self._connection.execute(statement)
                    self._connection.execute(f"PRAGMA user_version = {target}")

    @property
    def in_place(self) -> bool:
        """Whether the file at its path is still the one that it writes to, and not a new one beside a damaged one."""
        return _inode(self.path) == self._inode

    def require_in_place(self) -> None:
        if not self.in_place:
            raise StorageError(f"{self.path} is another file by now; open it again")

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All of what is done inside or nothing."""
        with _told(self.path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                # Some errors, such as a full disk, have rolled back already.
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def append(self, entries: Sequence[JournalEntry]) -> list[int]:
        """Store events, all or none; their ids, which no other event ever has."""
        if not entries:
            return []
        with self.transaction():
            return self.add(entries)

    def add(self, entries: Iterable[JournalEntry]) -> list[int]:
        """The same inside a transaction of the caller."""
        return [self._add(entry) for entry in entries]

    def _add(self, entry: JournalEntry) -> int:
        cursor = self._connection.execute(
            "INSERT INTO events (run, recording, sample, time, type, body) VALUES (?, ?, ?, ?, ?, ?)",
            (
                entry.run,
                entry.recording,
                entry.sample,
                entry.told_at,
                entry.body["type"],
                json.dumps(entry.body, separators=(",", ":"), allow_nan=False),
            ),
        )
        assert cursor.lastrowid is not None
        for statement, values in entry.also:
            self._connection.execute(statement, values)
        return cursor.lastrowid

    def execute(self, statement: str, values: Sequence[Any] = ()) -> int:
        """One change outside the events; how many rows it touched. Inside a transaction of the caller, or alone."""
        with _told(self.path):
            return self._connection.execute(statement, values).rowcount

    def insert(self, statement: str, values: Sequence[Any]) -> int:
        """One row; its number."""
        with _told(self.path):
            number = self._connection.execute(statement, values).lastrowid
        assert number is not None
        return number

    def rows(self, query: str, values: Sequence[Any] = ()) -> list[Row]:
        with _told(self.path):
            return [dict(row) for row in self._connection.execute(query, values)]

    def events(
        self,
        *,
        after: int = 0,
        types: Sequence[str] = (),
        run: str | None = None,
        recording: str | None = None,
        most: int | None = None,
        newest_first: bool = False,
    ) -> Iterator[StoredEvent]:
        """Events in the order in which they were told."""
        conditions, values = ["id > ?"], [after, *types]
        if types:
            conditions.append(f"type IN ({', '.join('?' * len(types))})")
        for name, value in (("run", run), ("recording", recording)):
            if value is not None:
                conditions.append(f"{name} = ?")
                values.append(value)
        query = f"SELECT * FROM events WHERE {' AND '.join(conditions)} ORDER BY id {'DESC' if newest_first else ''}"
        with _told(self.path):
            for row in self._connection.execute(f"{query} LIMIT ?", [*values, -1 if most is None else most]):
                yield StoredEvent.of(dict(row))

    def event(self, number: int) -> StoredEvent | None:
        """By its id."""
        return next((event for event in self.events(after=number - 1, most=1) if event.id == number), None)

    @property
    def last_id(self) -> int:
        return int(self.rows("SELECT coalesce(max(id), 0) AS id FROM events")[0]["id"])

    def content_bytes(self) -> int:
        """What the journal needs, whether it is merged by now or not."""
        return int(self.rows("SELECT page_count * page_size AS n FROM pragma_page_count, pragma_page_size")[0]["n"])

    def compact(self) -> None:
        """Give back to the disk what removed events needed."""
        with _told(self.path):
            # Not by `execute`, which would stop after the first page.
            self._connection.executescript("PRAGMA incremental_vacuum")
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def check(self) -> None:
        """A `StorageError` if what is stored is damaged."""
        with _told(self.path):
            found = self._connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if found != "ok":
            raise StorageError(f"{self.path} is damaged: {found}", damaged=True)


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except OSError:
        return None


def utc(time: datetime) -> str:
    """As it stands in the journal: it sorts as text."""
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def opened_or_replaced(path: Path) -> tuple[Journal, Row | None]:
    """The journal; a damaged one is moved aside, what can be read of it is taken over, and details say so."""
    try:
        _require_content(path)
        journal = Journal(path)
        try:
            journal.check()
        except BaseException:
            journal.close()
            raise
    except StorageError as error:
        if not error.damaged:
            raise
        return _replaced(path, str(error))
    return journal, None


def _replaced(path: Path, why: str) -> tuple[Journal, Row]:
    """The new one takes the place of the damaged one only when it is complete."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    aside, fresh = path.with_name(f"{path.name}.damaged-{stamp}"), path.with_name(f"{path.name}.fresh")
    with _told(path):
        for file in path.parent.glob(f"{fresh.name}*"):
            file.unlink()
        with Journal(fresh) as journal:
            saved = _salvage(path, journal)
        for end in ("-wal", "-shm", ""):
            file = path.with_name(path.name + end)
            if file.exists():
                file.rename(aside.with_name(aside.name + end))
        fresh.rename(path)
    return Journal(path), {"moved_to": aside.name, "why": why, "rows_saved": saved}


def _salvage(damaged: Path, journal: Journal) -> dict[str, int]:
    """Copy what can be read, table by table."""
    tables = [row["name"] for row in journal.rows("SELECT name FROM sqlite_master WHERE type = 'table'")]
    old = sqlite3.connect(damaged)
    old.row_factory = sqlite3.Row
    try:
        saved = {table: _copy(table, old, journal) for table in tables if not table.startswith("sqlite_")}
    finally:
        old.close()
    # Ids that may have been given out before the damage are not given out again: nobody counts as fast as a clock
    # that counts milliseconds, and if that is wrong, there is a distance to what could be read.
    last = max(journal.last_id + 1_000_000, round(1000 * datetime.now(UTC).timestamp()))
    if journal.execute("UPDATE sqlite_sequence SET seq = ? WHERE name = 'events'", (last,)) == 0:
        journal.execute("INSERT INTO sqlite_sequence (name, seq) VALUES ('events', ?)", (last,))
    return saved


def _copy(table: str, old: sqlite3.Connection, journal: Journal) -> int:
    """From either end until the damage; how many rows that gives."""
    with journal.transaction():
        if not _copy_rows(f'SELECT * FROM "{table}"', table, old, journal):
            _copy_rows(f'SELECT * FROM "{table}" ORDER BY rowid DESC', table, old, journal)
    return int(journal.rows(f'SELECT count(*) AS n FROM "{table}"')[0]["n"])


def _copy_rows(query: str, table: str, old: sqlite3.Connection, journal: Journal) -> bool:
    """Whether all of them could be read."""
    try:
        for row in old.execute(query):
            names = ", ".join(f'"{name}"' for name in row.keys())  # noqa: SIM118 (a row iterates over values)
            marks = ", ".join("?" * len(row))
            journal.execute(f'INSERT OR IGNORE INTO "{table}" ({names}) VALUES ({marks})', tuple(row))
    except sqlite3.DatabaseError:
        return False
    return True


def _require_content(path: Path) -> None:
    """What gemmed has begun is never empty, but SQLite would take it for new and count from 1 again."""
    if path.exists() and not path.stat().st_size:
        raise StorageError(f"{path} is damaged: it is empty", damaged=True)


def _require_file(path: Path) -> None:
    if not path.is_file():
        raise StorageError(f"{path} is not there; start gemmed run first, or give the directory that it uses")


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """SQLite's and the system's errors as ours."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        damaged = code in _DAMAGED or (not code and "malformed" in str(error))
        raise StorageError(f"{path} cannot be used: {error}; {_cure(code, damaged)}", damaged=damaged) from error
    except OSError as error:
        raise StorageError(f"{path} cannot be used: {error.strerror}; check the disk and its rights") from error


def _cure(code: int, damaged: bool) -> str:
    if damaged:
        return "the next start of gemmed run moves it aside"
    if code in _BUSY:
        return f"another program has been writing to it for {_BUSY_SECONDS:g} s; if it hangs, end it"
    return "make space, check the disk and its rights"
