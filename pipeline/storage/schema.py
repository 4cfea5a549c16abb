"""The tables of the journal, as the steps by which they came about; a step that was released is never changed."""

from __future__ import annotations

_EVENTS = (
    """
    CREATE TABLE events (
        id        INTEGER PRIMARY KEY AUTOINCREMENT,
        run       TEXT NOT NULL,     -- one life of the daemon
        recording TEXT,
        sample    INTEGER,           -- of the recording, by which it was known
        time      TEXT NOT NULL,     -- UTC
        type      TEXT NOT NULL,
        body      TEXT NOT NULL      -- JSON, as docs/events.md describes it
    ) STRICT
    """,
    "CREATE INDEX events_by_type ON events (type, id)",
    "CREATE INDEX events_by_place ON events (recording, sample)",
    """
    CREATE TABLE heartbeat (
        one  INTEGER PRIMARY KEY CHECK (one = 1),
        time TEXT NOT NULL,
        body TEXT NOT NULL           -- JSON: what gemmed status shows
    ) STRICT
    """,
)

_SOUND = (
    """
    CREATE TABLE recordings (
        name       TEXT PRIMARY KEY,
        run        TEXT NOT NULL,
        rate_hz    INTEGER NOT NULL,
        sensors    INTEGER NOT NULL,
        choices    TEXT NOT NULL,    -- JSON: how it is decided about
        started_at TEXT NOT NULL,
        samples    INTEGER           -- when it is finished
    ) STRICT
    """,
    """
    CREATE TABLE pieces (
        recording TEXT NOT NULL,
        start     INTEGER NOT NULL,
        stop      INTEGER NOT NULL,
        delivered TEXT NOT NULL,     -- JSON: which sensors
        file      TEXT,              -- below the directory of the sound; none once it is removed
        bytes     INTEGER NOT NULL,
        kept_at   TEXT NOT NULL,
        worth     INTEGER,           -- of keeping it; unknown until somebody asks
        removed   TEXT,              -- when, once it is
        PRIMARY KEY (recording, start)
    ) STRICT
    """,
    "CREATE INDEX pieces_by_worth ON pieces (worth) WHERE file IS NOT NULL",
)

_LEARNING = (
    """
    CREATE TABLE labels (
        id        INTEGER PRIMARY KEY AUTOINCREMENT,
        recording TEXT NOT NULL,
        start     INTEGER NOT NULL,
        stop      INTEGER NOT NULL,
        label     TEXT,              -- none: what was said before is taken back
        who       TEXT NOT NULL,
        time      TEXT NOT NULL,
        why       TEXT NOT NULL,
        via       TEXT NOT NULL,     -- command, file, page
        takes_back INTEGER           -- the label that it makes void, itself included
    ) STRICT
    """,
    """
    CREATE VIEW label_rows AS SELECT *, takes_back IS NOT NULL
        OR id IN (SELECT takes_back FROM labels WHERE takes_back IS NOT NULL) AS void FROM labels
    """,
    "CREATE INDEX labels_by_place ON labels (recording, start)",
    """
    CREATE TABLE models (
        name     TEXT PRIMARY KEY,
        identity TEXT NOT NULL,
        time     TEXT NOT NULL,
        origin   TEXT NOT NULL,      -- starter, retrained, given
        parent   TEXT,               -- the champion of that time
        status   TEXT NOT NULL,      -- champion, challenger, refused, retired
        since    TEXT NOT NULL,      -- of the status
        why      TEXT NOT NULL,      -- the status is what it is
        facts    TEXT NOT NULL       -- JSON: gate, contamination, what it was learned from
    ) STRICT
    """,
    """
    CREATE TABLE refusals (
        model     TEXT NOT NULL,
        recording TEXT NOT NULL,
        start     INTEGER NOT NULL,
        sensor    INTEGER NOT NULL,  -- counted from 1
        why       TEXT NOT NULL,
        believed  REAL NOT NULL,     -- 0 to 1
        PRIMARY KEY (model, recording, start, sensor)
    ) STRICT
    """,
)

_SUMMARIES = (
    """
    CREATE TABLE summaries (
        seconds INTEGER NOT NULL,    -- its length: a minute, an hour, a day
        time    TEXT NOT NULL,       -- when it begins, UTC
        body    TEXT NOT NULL,       -- JSON, see summaries.py
        PRIMARY KEY (seconds, time)
    ) STRICT
    """,
)

_OUTPUTS = (
    """
    CREATE TABLE deliveries (
        target  TEXT PRIMARY KEY,
        last_id INTEGER NOT NULL,    -- the target has, or will never get, all events up to this one
        dropped INTEGER NOT NULL DEFAULT 0,
        time    TEXT
    ) STRICT
    """,
)

_TIMES = (
    "CREATE INDEX events_by_time ON events (type, time)",
    "CREATE INDEX recordings_by_time ON recordings (started_at)",
    "CREATE INDEX pieces_kept ON pieces (recording, start, stop) WHERE file IS NOT NULL",
)

_PLACES = (
    """
    CREATE TABLE places (
        source TEXT PRIMARY KEY,
        body   TEXT NOT NULL         -- JSON: up to where a log of sound was decided about
    ) STRICT
    """,
)

_PASSAGES = (
    """
    CREATE TABLE passages (
        passage            TEXT PRIMARY KEY,
        recording          TEXT NOT NULL,
        run                TEXT NOT NULL,
        start_time         TEXT NOT NULL,  -- UTC
        end_time           TEXT NOT NULL,
        start_sample       INTEGER NOT NULL,
        stop_sample        INTEGER NOT NULL,
        label              TEXT,
        probability        REAL,
        presence           REAL,
        cadence_per_minute REAL,
        sensors_used       TEXT NOT NULL,  -- JSON: list of numbers, counted from 1
        end                TEXT,           -- why it ended; none while it is going on
        model              TEXT,
        body               TEXT NOT NULL   -- JSON: its last event, as docs/events.md describes it
    ) STRICT
    """,
    "CREATE INDEX passages_by_time ON passages (start_time)",
    "CREATE INDEX passages_by_place ON passages (recording, start_sample)",
)

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    _EVENTS, _SOUND, _LEARNING, _SUMMARIES, _OUTPUTS, _TIMES, _PLACES, _PASSAGES,
)  # fmt: skip
SCHEMA_VERSION = len(MIGRATIONS)
