"""What happened to an array: passages, faults from start to recovery, models, and trouble with storage and outputs.

A fault and its recovery are one entry. An entry that starts again within ten minutes is the same entry with a count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from heapq import merge
from itertools import islice

from pipeline.core.label_names import shown_name
from pipeline.core.passages import probability_text
from pipeline.core.sensor_state import Cause, State
from pipeline.storage.journal import Journal, Row, StoredEvent, utc
from pipeline.storage.passage_history import Brief, PassageHistory

_AGAIN_SECONDS = 600.0
_MOST_EVENTS = 500
"""Events that are read for one portion."""
_MOST_LATER = 2000
"""Events behind a portion that are searched for the ends of what started in it."""
_MOST_CAUSES = 3
_LATEST = "9999"
_Key = tuple[object, ...]


class ActivityKind(StrEnum):
    """What an entry is about."""

    PASSAGE = "passage"
    SENSOR = "sensor"
    MODEL = "model"
    SYSTEM = "system"


class Severity(StrEnum):
    """How serious an entry is."""

    PASSAGE = "passage"
    NEWS = "news"
    DEGRADED = "degraded"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Activity:
    """One entry; times are UTC.

    `end` is None for a moment, and while the entry is open. Of an entry with a `count` above 1, `seconds` is the sum
    over all of its times, and `begin` and `end` are those of the first and the last.
    """

    kind: ActivityKind
    severity: Severity
    text: str
    begin: str
    end: str | None
    ending: str | None
    is_open: bool
    count: int
    seconds: float | None
    event: int | None
    sensor: int | None
    passage: str | None


@dataclass(frozen=True, slots=True)
class Portion:
    """Entries, the newest start first; `next` asks for those before them, None if there are none."""

    entries: list[Activity]
    next: str | None


def activities(
    journal: Journal,
    history: PassageHistory,
    *,
    kinds: Sequence[ActivityKind] = (),
    before: str | None = None,
    most: int = 50,
    names: Mapping[str, str] | None = None,
    running: str | None = None,
) -> Portion:
    """Return the newest entries that start at `before` or earlier, with at most `most` passages.

    `history` has the passages, `kinds` are those wanted (all if none is given), `running` is the run that is alive. A
    portion may be empty although there are earlier entries: where it has only the ends of those.
    """
    wanted, until = kinds or list(ActivityKind), before or _LATEST
    events = _newest(journal, _types(wanted), until)
    briefs: list[Brief] = []
    if ActivityKind.PASSAGE in wanted:
        briefs = list(islice((one for one in reversed(history.briefs) if utc(one.start) <= until), most + 1))
    since = _since(events, briefs, most)
    folding = _Folding(_rates(journal, events))
    for event in reversed(events):
        if event.time > since:
            folding.take(event)
    if before is not None and folding.is_open:
        for event in _later(journal, _types(wanted), before):
            folding.finish(event)
    passages = [_passage(one, names or {}) for one in briefs if utc(one.start) > since]
    entries = sorted([*folding.entries(running is not None), *passages], key=lambda one: one.begin, reverse=True)
    return Portion(entries, since if since and since < until else None)


def _since(events: Sequence[StoredEvent], briefs: Sequence[Brief], most: int) -> str:
    """Return the time before which entries belong to the next portion; empty if this is the last one."""
    oldest = [""]
    if len(events) >= _MOST_EVENTS:
        oldest.append(events[-1].time)
    if len(briefs) > most:
        oldest.append(utc(briefs[-1].start))
    return max(oldest)


def _types(kinds: Sequence[ActivityKind]) -> list[str]:
    found = [kind for kind, rule in _RULES.items() if rule.kind in kinds]
    return [*found, "state_changed"] if ActivityKind.SENSOR in kinds else found


def _newest(journal: Journal, types: Sequence[str], until: str) -> list[StoredEvent]:
    """Read the newest events of some types; each type by itself, as the index has them in order."""
    query = "SELECT * FROM events WHERE type = ? AND time <= ? ORDER BY time DESC, id DESC LIMIT ?"
    rows = [journal.rows(query, (kind, until, _MOST_EVENTS)) for kind in types]
    return [StoredEvent.of(row) for row in islice(merge(*rows, key=_place, reverse=True), _MOST_EVENTS)]


def _later(journal: Journal, types: Sequence[str], since: str) -> list[StoredEvent]:
    query = "SELECT * FROM events WHERE type = ? AND time > ? ORDER BY time, id LIMIT ?"
    rows = [journal.rows(query, (kind, since, _MOST_LATER)) for kind in types]
    return [StoredEvent.of(row) for row in islice(merge(*rows, key=_place), _MOST_LATER)]


def _rates(journal: Journal, events: Iterable[StoredEvent]) -> dict[str | None, int]:
    """Read the rates of the recordings in which sound is missing."""
    names = {event.recording for event in events if event.type == "gap" and event.recording is not None}
    query = f"SELECT name, rate_hz FROM recordings WHERE name IN ({', '.join('?' * len(names))})"
    return {row["name"]: row["rate_hz"] for row in journal.rows(query, sorted(names))}


def _place(row: Row) -> tuple[str, int]:
    return row["time"], row["id"]


def _passage(one: Brief, names: Mapping[str, str]) -> Activity:
    label = "Somebody, no class" if one.label is None else shown_name(one.label, names)
    sure = "" if one.label is None or one.probability is None else f" {probability_text(one.probability)}"
    said = "" if one.said is None else f", labeled {shown_name(one.said, names)}"
    return Activity(
        kind=ActivityKind.PASSAGE,
        severity=Severity.PASSAGE,
        text=f"{label}{sure}{said}",
        begin=utc(one.start),
        end=utc(one.end),
        ending=None,
        is_open=False,
        count=1,
        seconds=round((one.end - one.start).total_seconds(), 1),
        event=None,
        sensor=None,
        passage=one.passage,
    )


@dataclass(slots=True)
class _Spell:
    """An entry while it is put together."""

    kind: ActivityKind
    severity: Severity
    text: str
    begin: str
    event: int
    sensor: int | None = None
    since: str = ""
    """When it started the last time."""
    end: str | None = None
    ending: str | None = None
    count: int = 1
    seconds: float = 0.0
    causes: list[str] = field(default_factory=list)

    def entry(self, *, is_open: bool, is_moment: bool) -> Activity:
        end = None if is_moment and self.count == 1 else self.end
        return Activity(
            kind=self.kind,
            severity=self.severity,
            text=_of_sensor(self, is_open) if self.causes else self.text,
            begin=self.begin,
            end=None if is_open else end,
            ending=self.ending,
            is_open=is_open,
            count=self.count,
            seconds=round(self.seconds, 1) or None,
            event=self.event,
            sensor=self.sensor,
            passage=None,
        )


def _of_sensor(spell: _Spell, is_open: bool) -> str:
    causes = [cause.replace("_", " ") for cause in spell.causes if cause != Cause.FLAPPING] or [*spell.causes]
    more = len(causes) - _MOST_CAUSES
    told = f"{', '.join(causes[:_MOST_CAUSES])} and {more} more" if more > 0 else ", ".join(causes)
    return f"Sensor {spell.sensor} {'is' if is_open else 'was'} {spell.severity} ({told})"


class _Folding:
    """Events in the order of time as entries."""

    def __init__(self, rates_hz: Mapping[str | None, int] | None = None) -> None:
        self._rates_hz = rates_hz or {}
        self._spells: list[_Spell] = []
        self._open: dict[_Key, _Spell] = {}
        self._closed: dict[_Key, _Spell] = {}
        self._moments: set[int] = set()
        self._seen = ""

    @property
    def is_open(self) -> bool:
        return bool(self._open)

    def entries(self, is_running: bool) -> Iterator[Activity]:
        # Without a run nothing goes on but the pause since it stopped.
        going_on = {id(spell) for key, spell in self._open.items() if is_running != (key[0] == "run_stopped")}
        for spell in self._spells:
            yield spell.entry(is_open=id(spell) in going_on, is_moment=id(spell) in self._moments)

    def take(self, event: StoredEvent) -> None:
        """Take the next event."""
        self._end(event)
        if event.type == "state_changed":
            self._sensor(event)
        elif (rule := _RULES.get(event.type)) is not None and rule.words is not None:
            self._start(event, rule, rule.words)
        self._seen = event.time

    def finish(self, event: StoredEvent) -> None:
        """Take an event behind the portion: it ends what started before, and starts nothing."""
        self._end(event)
        if event.type == "state_changed" and event.body["to"] == State.GOOD:
            self._close(("sensor", event.body["sensor"]), event.time, "recovered")
        self._seen = event.time

    def _end(self, event: StoredEvent) -> None:
        if event.type == "run_stopped":
            self._close_run(event.time, "gemmed stopped")
        elif event.type == "run_died":
            self._close_run(self._seen or event.time, "gemmed was killed")
        rule = _RULES.get(event.type)
        if rule is not None and rule.ends is not None:
            ended = self._close(_key(rule.ends, event), event.time, rule.ending)
            if ended is not None and rule.result is not None:
                ended.text, ended.severity = rule.result(event.body), rule.severity

    def _start(self, event: StoredEvent, rule: _Rule, words: Callable[[Row], str | None]) -> None:
        text = words(event.body)
        if text is None or (rule.ends is not None and rule.result is None and self._has_just_ended(rule.ends, event)):
            return
        sensor = event.body.get("sensor")
        key = _key(event.type, event) if rule.lasts else (event.type, text)
        spell = self._begin(key, _Spell(rule.kind, rule.severity, text, event.time, event.id, sensor))
        if not rule.lasts:
            self._moments.add(id(spell))
            self._close(key, event.time, None)
            spell.seconds += self._missing_seconds(event)

    def _missing_seconds(self, event: StoredEvent) -> float:
        """Return how much sound a gap lacks; 0 for other events."""
        rate_hz = self._rates_hz.get(event.recording) if event.type == "gap" else None
        return (event.body["stop_sample"] - event.body["start_sample"]) / rate_hz if rate_hz else 0.0

    def _has_just_ended(self, kind: str, event: StoredEvent) -> bool:
        """Whether the event ended an entry, which then says all."""
        ended = self._closed.get(_key(kind, event))
        return ended is not None and ended.end == event.time

    def _sensor(self, event: StoredEvent) -> None:
        number, state, key = event.body["sensor"], event.body["to"], ("sensor", event.body["sensor"])
        if state in (State.GOOD, State.OFF):
            self._close(key, event.time, "recovered" if state == State.GOOD else "switched off")
        elif state in (State.BAD, State.DEGRADED):
            spell = self._open.get(key)
            if spell is None:
                text = f"Sensor {number} was {state}"
                spell = self._begin(
                    key, _Spell(ActivityKind.SENSOR, Severity(state), text, event.time, event.id, number)
                )
            if state == State.BAD:
                spell.severity = Severity.BAD
            spell.causes += [cause for cause in event.body["causes"] if cause not in spell.causes]

    def _begin(self, key: _Key, spell: _Spell) -> _Spell:
        """Start an entry, or go on with one that has just ended."""
        before = self._closed.get(key)
        if before is not None and before.end is not None and _seconds(before.end, spell.begin) < _AGAIN_SECONDS:
            before.count += 1
            if before.severity is not Severity.BAD:
                before.severity = spell.severity
            spell, since = before, spell.begin
        else:
            self._spells.append(spell)
            since = spell.begin
        spell.since, spell.end, spell.ending = since, None, None
        self._open[key] = spell
        return spell

    def _close(self, key: _Key, time: str, ending: str | None) -> _Spell | None:
        spell = self._open.pop(key, None)
        if spell is None:
            return None
        spell.seconds += max(_seconds(spell.since, time), 0.0)
        spell.end, spell.ending = time, ending
        self._closed[key] = spell
        return spell

    def _close_run(self, time: str, ending: str) -> None:
        """What a run was in the middle of ends with it; a link to another machine stays down."""
        for key in [key for key in self._open if key[0] != "output_link_down"]:
            self._close(key, time, ending)


def _seconds(begin: str, end: str) -> float:
    return (datetime.fromisoformat(end) - datetime.fromisoformat(begin)) / timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class _Rule:
    """How events of a type become entries: a moment, the start of what lasts, or its end."""

    kind: ActivityKind
    severity: Severity
    words: Callable[[Row], str | None] | None = None
    lasts: bool = False
    by: str | None = None
    """The field that tells apart what may last at the same time."""
    ends: str | None = None
    ending: str | None = None
    result: Callable[[Row], str] | None = None
    """What is then said of the whole."""


def _key(kind: str, event: StoredEvent) -> _Key:
    by = _RULES[kind].by
    return (kind, None if by is None else event.body.get(by))


def _of(body: Row, *names: str) -> str:
    """Values of some fields, as far as there are any."""
    found = [body[name] for name in names if body.get(name)]
    return "; ".join(", ".join(map(str, one)) if isinstance(one, list) else str(one) for one in found)


def _saying(text: str, *names: str) -> Callable[[Row], str]:
    return lambda body: f"{text}: {said}" if (said := _of(body, *names)) else text


def _who(body: Row) -> str:
    sensors = body.get("sensors") or []
    return f"Sensor{'s' if len(sensors) > 1 else ''} {', '.join(map(str, sensors))}" if sensors else "Array"


def _anomaly(text: str) -> Callable[[Row], str]:
    return lambda body: f"{_who(body)}: {text} ({body['reason'].replace('_', ' ')})"


def _gap(body: Row) -> str | None:
    """Pauses that nobody recorded are no loss."""
    return f"Sound missing: {body['reason']}" if body["recorded"] else None


def _settings(body: Row) -> str:
    if body.get("error"):
        return f"Settings not adopted: {body['error']}"
    changed = ", ".join(one["setting"] for one in body.get("changes", ()))
    return f"Settings changed: {changed}" if changed else "Settings read again, no change"


def _promoted(body: Row) -> str:
    # The reason of a model of the settings is its path, which is nothing for pages.
    why = "given in the settings" if str(body.get("why", "")).startswith("training.model") else body.get("why")
    return f"Model {body['model']} decides from now on{f' ({why})' if why else ''}"


def _trained(body: Row) -> str:
    model, why = body.get("model"), _of(body, "why", "reasons")
    return f"Retraining: {body.get('status', 'finished')}{f' {model}' if model else ''}{f' ({why})' if why else ''}"


def _shadowed(body: Row) -> str:
    verdict = "passed" if body.get("passed") else "failed"
    return f"Trial of model {body.get('model')} beside the present one: {verdict}{_why(body, 'reasons')}"


def _why(body: Row, name: str) -> str:
    return f" ({said})" if (said := _of(body, name)) else ""


_S, _M, _Y = ActivityKind.SENSOR, ActivityKind.MODEL, ActivityKind.SYSTEM
_BAD, _DEGRADED, _NEWS = Severity.BAD, Severity.DEGRADED, Severity.NEWS
_RULES: dict[str, _Rule] = {
    "fault_suspected": _Rule(_S, _DEGRADED, _anomaly("fault suspected")),
    "event_noticed": _Rule(_S, _NEWS, _anomaly("unusual sound")),
    "common_fault": _Rule(_S, _BAD, _anomaly("common fault")),
    "label_doubted": _Rule(_M, _NEWS, _anomaly("a label contradicts the sensors")),
    "calibration_lost": _Rule(
        _S,
        _DEGRADED,
        lambda body: f"Sensor {body['sensor']}: false-alarm rate above alpha",
        True,
        "sensor",
    ),
    "calibration_regained": _Rule(_S, _NEWS, ends="calibration_lost", ending="recovered"),
    "gap": _Rule(_Y, _DEGRADED, _gap),
    "source_trouble": _Rule(_Y, _DEGRADED, _saying("Source", "where", "message")),
    "clock_jumped": _Rule(_Y, _DEGRADED, lambda body: f"Clock set by {body['seconds']} s"),
    "settings_reloaded": _Rule(_Y, _NEWS, _settings),
    "label_refused": _Rule(_Y, _DEGRADED, _saying("Label refused", "why")),
    "storage_low": _Rule(_Y, _BAD, lambda body: "Storage is over its budget"),
    "storage_read_only": _Rule(_Y, _BAD, _saying("Storage cannot be written", "of", "target", "why"), True),
    "storage_recovered": _Rule(_Y, _NEWS, ends="storage_read_only", ending="recovered"),
    "journal_replaced": _Rule(_Y, _BAD, _saying("Damaged journal replaced", "why")),
    "output_link_down": _Rule(
        _Y, _DEGRADED, lambda body: f"Output {body['target']} not reachable{_why(body, 'why')}", True, "target"
    ),
    "output_link_up": _Rule(_Y, _NEWS, ends="output_link_down", ending="back"),
    "output_dropped": _Rule(_Y, _BAD, _saying("Output dropped events", "target", "why")),
    "run_stopped": _Rule(_Y, _NEWS, lambda body: f"gemmed stopped{_why(body, 'why')}", True),
    "run_died": _Rule(_Y, _BAD, lambda body: "The previous run did not shut down cleanly"),
    "run_started": _Rule(
        _Y, _NEWS, lambda body: f"gemmed {body.get('version', '')} started", ends="run_stopped", ending="started again"
    ),
    "retraining_started": _Rule(_M, _NEWS, lambda body: "Retraining", True),
    "retraining_finished": _Rule(_M, _NEWS, ends="retraining_started", result=_trained),
    "retraining_failed": _Rule(_M, _BAD, ends="retraining_started", result=_saying("Retraining failed", "why")),
    "shadow_started": _Rule(_M, _NEWS, _saying("Trial of a model beside the present one", "model"), True),
    "shadow_finished": _Rule(_M, _NEWS, ends="shadow_started", result=_shadowed),
    "challenger_refused": _Rule(_M, _NEWS, _saying("Model refused", "model", "why")),
    "model_promoted": _Rule(_M, _NEWS, _promoted),
    "model_rolled_back": _Rule(_M, _NEWS, _saying("Rolled back to model", "model", "why")),
    "model_unusable": _Rule(_M, _BAD, _saying("Model cannot be used", "model", "why")),
}
