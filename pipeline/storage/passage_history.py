"""Passages of days and months: counted, filtered and read in portions.

A month has thousands of passages, so only columns are read of all of them, and the bodies of those that are shown.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from threading import Lock
from zoneinfo import ZoneInfo

from pipeline.core.errors import NotFound
from pipeline.core.label_names import shown_name
from pipeline.core.passages import LEAST_CONFIDENCE, NO_LABEL, QUIET_SECONDS, PassageRow, joined
from pipeline.storage.journal import Journal, Row, utc
from pipeline.storage.label_table import current_stretches, last_label
from pipeline.storage.passage_table import stored_passages
from pipeline.storage.recordings import kept_samples
from pipeline.training.labeled_spans import LabeledSpan
from pipeline.training.labels import is_nobody

NIGHT_BEGINS, NIGHT_ENDS = 20, 8
"""Hours of the local day between which it is night."""
_COLUMNS = "passage, recording, run, start_sample, stop_sample, start_time, end_time, label, probability, end"
_CONTINUED = f"""
    SELECT one.passage AS first, other.passage AS second FROM passages one JOIN passages other
    ON other.start_time BETWEEN strftime('%Y-%m-%dT%H:%M:%fZ', one.end_time, '-{QUIET_SECONDS} seconds')
        AND strftime('%Y-%m-%dT%H:%M:%fZ', one.end_time, '+{QUIET_SECONDS} seconds')
        AND other.recording != one.recording
    WHERE one.end = 'recording ended'
"""


@dataclass(frozen=True, slots=True)
class Brief:
    """A passage in short: joined across recordings, with what a person said of it."""

    passage: str
    recording: str
    start_sample: int
    stop_sample: int
    start: datetime
    end: datetime
    label: str | None
    probability: float | None
    said: str | None

    @property
    def known_as(self) -> str:
        """The label that counts: that of a person, else that of the model."""
        return self.said or self.label or NO_LABEL


@dataclass(frozen=True, slots=True)
class PassageQuery:
    """Which passages are asked for; a label is what a person said, or else what the model decided."""

    since: datetime | None = None
    until: datetime | None = None
    labels: Sequence[str] = ()
    least_probability: float | None = None
    search: str = ""
    labeled: bool | None = None
    begun: bool = False
    """Whether a passage must have begun between `since` and `until`; otherwise overlapping that time is enough."""
    names: Mapping[str, str] = field(default_factory=dict)

    def fits(self, one: Brief) -> bool:
        if self.since is not None and (one.start < self.since if self.begun else one.end <= self.since):
            return False
        if self.until is not None and one.start >= self.until:
            return False
        if self.labels and one.known_as not in self.labels:
            return False
        if self.labeled is not None and self.labeled != (one.said is not None):
            return False
        if self.least_probability is not None and (one.probability or 0.0) < self.least_probability:
            return False
        return all(word in self._text(one) for word in self.search.lower().split())

    def _text(self, one: Brief) -> str:
        shown = [shown_name(label, self.names) for label in (one.label, one.said) if label]
        return " ".join([one.passage, one.label or NO_LABEL, one.said or "", *shown]).lower()


@dataclass(frozen=True, slots=True)
class Overview:
    """All passages of a journal in the order of time, and those that a recording border cut by the id of each part."""

    briefs: Sequence[Brief]
    joined: Mapping[str, PassageRow]
    by_id: Mapping[str, Brief]


class PassageOverview:
    """The overview of one journal, read again only after a passage or a label has changed."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._version: object = None
        self._overview: Overview | None = None
        self.read = 0
        """How often the passages were read."""

    def overview(self, version: object, read: Callable[[], Overview]) -> Overview:
        with self._lock:
            if self._overview is None or version != self._version:
                self._overview, self._version = read(), version
                self.read += 1
            return self._overview


class PassageHistory:
    """The passages of a journal; `running` is the run that is alive.

    With a `memory`, what was read for an earlier request is used as long as nothing has changed.
    """

    def __init__(
        self,
        journal: Journal,
        *,
        running: str | None = None,
        least_confidence: float = LEAST_CONFIDENCE,
        memory: PassageOverview | None = None,
    ) -> None:
        self._journal, self._running, self._least_confidence = journal, running, least_confidence
        self._memory = memory or PassageOverview()

    @property
    def briefs(self) -> Sequence[Brief]:
        """All passages in the order of time."""
        return self._overview.briefs

    def rows(self, briefs: Sequence[Brief]) -> list[PassageRow]:
        """Return all that is known of some passages, in their order."""
        joined_rows = self._overview.joined
        whole = {row.passage: row for row in self._whole(one.passage for one in briefs)}
        return [joined_rows.get(one.passage) or whole[one.passage] for one in briefs if one.passage in whole]

    def row(self, passage: str) -> PassageRow:
        """Return all that is known of the passage of an id, which may be that of a later part."""
        whole = self._overview.joined.get(passage)
        found = self._overview.by_id.get(passage if whole is None else whole.passage)
        rows = [] if found is None else self.rows([found])
        if not rows:
            raise NotFound(f"there is no passage {passage!r}; /api/v1/passages lists them")
        return rows[0]

    @cached_property
    def _overview(self) -> Overview:
        return self._memory.overview(self._version(), self._read)

    def _version(self) -> object:
        """Return a value that differs whenever a passage or a label does; passages that are over do not change."""
        (passages,) = self._journal.rows("SELECT count(*) AS n, max(rowid) AS last FROM passages")
        going = self._journal.rows(f"SELECT {_COLUMNS} FROM passages WHERE end IS NULL")
        return passages, going, last_label(self._journal), self._running, self._least_confidence

    def _read(self) -> Overview:
        joined_rows = self._read_joined()
        said = current_stretches(self._journal)
        briefs = []
        for row in self._journal.rows(f"SELECT {_COLUMNS} FROM passages ORDER BY start_time, passage"):
            whole = joined_rows.get(row["passage"])
            if whole is None or whole.passage == row["passage"]:
                briefs.append(_brief(row, whole, said.get(row["recording"], ())))
        return Overview(briefs, joined_rows, {one.passage: one for one in briefs})

    def _read_joined(self) -> dict[str, PassageRow]:
        """Return passages that a recording border cut, by the id of each of their parts."""
        pairs = self._journal.rows(_CONTINUED)
        ids = {row[name] for row in pairs for name in ("first", "second")}
        return {part.passage: row for row in self._whole(ids) if len(row.parts) > 1 for part in row.parts}

    def _whole(self, ids: Iterable[str]) -> list[PassageRow]:
        found = stored_passages(self._journal, ids=sorted(ids), running=self._running)
        return joined(found, least_confidence=self._least_confidence)


def _brief(row: Row, whole: PassageRow | None, said: Sequence[LabeledSpan]) -> Brief:
    found = Brief(
        passage=row["passage"],
        recording=row["recording"],
        start_sample=row["start_sample"],
        stop_sample=row["stop_sample"],
        start=datetime.fromisoformat(row["start_time"]),
        end=datetime.fromisoformat(row["end_time"]),
        label=row["label"],
        probability=row["probability"],
        said=_said_of(said, row["start_sample"], row["stop_sample"]),
    )
    if whole is None:
        return found
    assert whole.end_time is not None
    return replace(found, end=whole.end_time, label=whole.label, probability=whole.probability)


def _said_of(stretches: Sequence[LabeledSpan], start: int, stop: int) -> str | None:
    """Return the label of the longest part of a span that has one."""
    first = bisect_right(stretches, start, key=lambda one: one.stop)
    lengths: Counter[str] = Counter()
    for one in stretches[first:]:
        if one.start >= stop:
            break
        lengths[one.label] += min(one.stop, stop) - max(one.start, start)
    return lengths.most_common(1)[0][0] if lengths else None


def counted(briefs: Iterable[Brief]) -> dict[str, int]:
    """Count passages by label; those of which somebody said that nobody was there are none."""
    counts = Counter(one.known_as for one in briefs if not is_nobody(one.known_as))
    return dict(counts.most_common())


@dataclass(frozen=True, slots=True)
class DayCounts:
    """Passages that began on a local day, by label, and the same by hour."""

    day: str
    passages: int
    labels: dict[str, int]
    hours: list[dict[str, int]]


@dataclass(frozen=True, slots=True)
class NightCounts:
    """Passages that began in a night; `briefs` are those that count, in the order of time."""

    begin: datetime
    end: datetime
    labels: dict[str, int]
    briefs: tuple[Brief, ...]


def by_day(briefs: Iterable[Brief], zone: ZoneInfo, *, days: int, now: datetime) -> list[DayCounts]:
    """Count the passages of the last `days` local days by day and hour, the oldest day first."""
    today = now.astimezone(zone).date()
    dates = [today - timedelta(days=before) for before in range(days - 1, -1, -1)]
    cells: dict[tuple[object, int], list[Brief]] = {}
    for one in briefs:
        local = one.start.astimezone(zone)
        cells.setdefault((local.date(), local.hour), []).append(one)
    return [_day(str(date), [cells.get((date, hour), []) for hour in range(24)]) for date in dates]


def _day(day: str, hours: Sequence[Sequence[Brief]]) -> DayCounts:
    labels = counted(one for own in hours for one in own)
    return DayCounts(day, sum(labels.values()), labels, [counted(own) for own in hours])


def last_night(briefs: Iterable[Brief], zone: ZoneInfo, *, now: datetime) -> NightCounts:
    """Count the passages of the last night that has begun, from 20:00 to 08:00 local time."""
    begin, end = _night(now.astimezone(zone))
    own = tuple(one for one in briefs if begin <= one.start < end and not is_nobody(one.known_as))
    return NightCounts(begin, end, counted(own), own)


def _night(local: datetime) -> tuple[datetime, datetime]:
    evening = local.replace(hour=NIGHT_BEGINS, minute=0, second=0, microsecond=0)
    if local < evening:
        evening -= timedelta(days=1)
    morning = (evening + timedelta(days=1)).replace(hour=NIGHT_ENDS)
    return evening.astimezone(UTC), morning.astimezone(UTC)


def kept_share(journal: Journal, row: PassageRow) -> float:
    """Return the share of a passage of which sound is kept."""
    total = sum(part.stop_sample - part.start_sample for part in row.parts)
    kept = sum(kept_samples(journal, part.recording, part.start_sample, part.stop_sample) for part in row.parts)
    return kept / total if total else 0.0


def earlier_than(briefs: Sequence[Brief], before: str | None) -> Iterator[Brief]:
    """Go through passages from the newest to the oldest, behind one that is known by `place_of`."""
    for one in reversed(briefs):
        if before is None or place_of(one) < before:
            yield one


def place_of(one: Brief) -> str:
    """Return a text by which passages are ordered: later ones are larger."""
    return f"{utc(one.start)} {one.passage}"
