"""All that happened in a time, on one axis: absence of evidence is told apart from evidence of absence.

Every row tiles the time that was asked about. What nobody heard is not called good, quiet or undecided: either sound is
missing, or the source was waited for, or nothing ran at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import floor

from pipeline.core.errors import UsageError
from pipeline.core.events import Authority
from pipeline.core.label_names import shown_name
from pipeline.core.sensor_state import State
from pipeline.storage.coverage import Window, kept, listening, seconds_of
from pipeline.storage.intervals import Band, Change
from pipeline.storage.journal import Journal
from pipeline.storage.passage_history import PassageHistory
from pipeline.storage.recordings import first_started_at
from pipeline.storage.rollups import WORST_FIRST, as_text
from pipeline.storage.tallies import Single, Tally, singles, tally, uncounted_until

_MOST_DAYS = 400
_MOST_CHANGES = 10_000
"""Changes of state and trust that are looked at one by one; of more, the worst of every bin is told."""
_MOST_LABELS = 1000
_ANOMALIES = ("event_noticed", "fault_suspected", "common_fault", "label_doubted")
_NOBODY = "nobody listened"
_MEANS = {State.BAD: "masked", State.OFF: "off"}
_Rows = dict[int, list[Change]]
"""By sensor, counted from 1."""


@dataclass(frozen=True, slots=True)
class Anomaly:
    """What the sensors together found strange; where `n` is more than 1, the first of so many close together."""

    time: float
    kind: str
    reason: str
    event: int
    sensors: list[int]
    n: int = 1


@dataclass(frozen=True, slots=True)
class TimelineLabel:
    """A label that counts, where its sound is."""

    begin: float
    end: float
    number: int
    label: str
    who: str
    given: str
    why: str
    via: str
    recording: str
    start_sample: int
    stop_sample: int


@dataclass(frozen=True, slots=True)
class PassageBar:
    """A passage; where `n` is more than 1, the first of that many close together, from its begin to the last end."""

    begin: float
    end: float
    passage: str
    label: str | None
    probability: float | None
    labeled: str | None
    """What a person said."""
    n: int = 1


@dataclass(frozen=True, slots=True)
class SensorRows:
    """A sensor, counted from 1.

    Its states are good, degraded, bad, off and unknown. Its trust is trusted, masked (its health is bad) or off (the
    operator does not want to hear it).
    """

    sensor: int
    states: list[Band]
    trust: list[Band]


@dataclass(frozen=True, slots=True)
class Timeline:
    """Times are seconds since 1970; bands tile the time from `begin` to `end`.

    `listening` is heard, gap (sound is missing), waiting (no sound came), not_listening (nothing ran) or future.
    `sound` is kept, partly, removed (to make room), never_kept, or none (nothing was heard). `models` are the names of
    those that decided, or none. `known_since` is when the first recording began, `last_id` that of the newest event,
    `classes` are what the model of the present tells apart; `decisions` are there if they are few.
    """

    begin: float
    end: float
    now: float
    known_since: float | None
    last_id: int
    classes: list[str]
    listening: list[Band]
    sound: list[Band]
    models: list[Band]
    sensors: list[SensorRows]
    tally: Tally
    decisions: list[Single] | None
    anomalies: list[Anomaly]
    labels: list[TimelineLabel]
    passages: list[PassageBar]
    names: dict[str, str]
    """How labels are shown."""


def timeline(
    journal: Journal,
    begin: float,
    end: float,
    *,
    bins: int,
    now: float,
    running: str | None,
    names: Mapping[str, str] | None = None,
    history: PassageHistory | None = None,
) -> Timeline:
    """What the journal knows of a time, in about `bins` steps; `running` is the run that is alive.

    `names` are those by which labels are shown; `history` are its passages if they were read before.
    """
    if not 0 < end - begin <= 86400 * _MOST_DAYS:
        raise UsageError(
            f"from {as_text(begin)} to {as_text(end)} must be a time of at most {_MOST_DAYS} days that ends after its "
            "begin; ask for another"
        )
    window = Window(journal, begin, end, bins, now, running)
    classes, labels = _classes(journal), _labels(window)
    passages = _passages(window, history or PassageHistory(journal, running=running))
    known = {*classes, *(one.label for one in labels), *(one.labeled or one.label for one in passages)}
    return Timeline(
        begin=begin,
        end=end,
        now=now,
        known_since=_known_since(journal),
        last_id=journal.last_id,
        classes=classes,
        listening=listening(window),
        sound=kept(window),
        models=window.bands(_deciding(window), "none"),
        sensors=_sensors(window),
        tally=tally(window),
        decisions=singles(window),
        anomalies=_anomalies(window),
        labels=labels,
        passages=passages,
        names={label: shown_name(label, names) for label in sorted(filter(None, known))},
    )


def _known_since(journal: Journal) -> float | None:
    first = first_started_at(journal)
    return None if first is None else seconds_of(first)


def _classes(journal: Journal) -> list[str]:
    champion = "SELECT value FROM models, json_each(facts, '$.classes') WHERE status = 'champion'"
    return [row["value"] for row in journal.rows(champion)]


def _deciding(window: Window) -> Iterator[Change]:
    """Who decided."""
    for recording, told in window.states("model_changed", "model", each="type", of=["model_changed"]):
        yield Change(recording.begin, "none", "no model decided")
        for one in told:
            (model,) = one.fields
            why = "" if model else "no model decided"
            yield Change(min(one.time, recording.end), model or "none", why, one.event)
        yield Change(recording.end, "none", _NOBODY)


def _sensors(window: Window) -> list[SensorRows]:
    """How each sensor was, as far as anybody knew."""
    numbers = range(1, max((one.sensors for one in window.recordings), default=0) + 1)
    if _is_restless(window):
        states, trust = _worst(window, numbers)
    else:
        states, trust = _states(window, numbers), _trust(window, numbers)
    return [
        SensorRows(
            number,
            window.bands(states[number], State.UNKNOWN, WORST_FIRST),
            window.bands(trust[number], "trusted", ("masked", "off", "trusted")),
        )
        for number in numbers
    ]


def _is_restless(window: Window) -> bool:
    """Whether there are too many changes to look at each, and sums of all of them."""
    (row,) = window.journal.rows(
        "SELECT count(*) AS n FROM events WHERE type IN ('state_changed', 'trust_changed') AND time >= ? AND time <= ?",
        window.texts,
    )
    return int(row["n"]) > _MOST_CHANGES and (uncounted_until(window) or 0.0) <= window.begin


def _states(window: Window, numbers: Sequence[int]) -> _Rows:
    found: _Rows = {number: [] for number in numbers}
    for recording, told in window.states("state_changed", "sensor", "to", "causes", each="sensor", of=numbers):
        for changes in found.values():
            changes.append(Change(recording.begin, State.UNKNOWN, "nothing is known of it yet"))
        for one in told:
            sensor, state, causes = one.fields
            found[sensor].append(Change(min(one.time, recording.end), state, ", ".join(causes), one.event))
        for changes in found.values():
            changes.append(Change(recording.end, State.UNKNOWN, _NOBODY))
    return found


def _worst(window: Window, numbers: Sequence[int]) -> tuple[_Rows, _Rows]:
    """States of every bin with the seconds in each, and what they mean for the trust."""
    states: _Rows = {number: [] for number in numbers}
    trust: _Rows = {number: [] for number in numbers}
    for row in window.history:
        begin, end = seconds_of(row["time"]), seconds_of(row["time"]) + row["seconds"]
        for number, sensor in zip(numbers, row["sensors"], strict=False):
            told = ", ".join(f"{state} for {seconds:.0f} s" for state, seconds in sensor["seconds"].items())
            states[number].append(Change(begin, sensor["worst"] or State.UNKNOWN, told))
            states[number].append(Change(end, State.UNKNOWN, _NOBODY))
            trust[number].append(Change(begin, _MEANS.get(sensor["worst"], "trusted")))
            trust[number].append(Change(end, "trusted"))
    return states, trust


def _trust(window: Window, numbers: Sequence[int]) -> _Rows:
    found: _Rows = {number: [] for number in numbers}
    for recording, told in window.states(
        "trust_changed", "by", "trusted", each="by", of=[str(one) for one in Authority]
    ):
        masks: dict[str, list[bool]] = {}
        now = dict.fromkeys(numbers, "trusted")
        for one in told:
            by, trusted = one.fields
            masks[by] = trusted
            for number in numbers:
                if (kind := _trusted(masks, number)) != now[number]:
                    now[number] = kind
                    found[number].append(Change(min(one.time, recording.end), kind, "", one.event))
        for changes in found.values():
            changes.append(Change(recording.end, "trusted"))
    return found


def _trusted(masks: Mapping[str, list[bool]], number: int) -> str:
    by_operator, by_health = (masks.get(one) for one in (Authority.OPERATOR, Authority.HEALTH))
    if by_operator and not by_operator[number - 1]:
        return "off"
    return "masked" if by_health and not by_health[number - 1] else "trusted"


def _anomalies(window: Window) -> list[Anomaly]:
    found: list[Anomaly] = []
    for kind in _ANOMALIES:
        told = [one for own in window.events(kind, "reason", "sensors").values() for one in own]
        told.sort(key=lambda one: (one.time, one.event))
        for _, cell in groupby(told, key=lambda one: floor((one.time - window.begin) / window.shortest)):
            first, *rest = cell
            reason, sensors = first.fields
            found.append(Anomaly(first.time, kind, reason, first.event, sensors, 1 + len(rest)))
    return sorted(found, key=lambda one: one.time)


def _passages(window: Window, history: PassageHistory) -> list[PassageBar]:
    """Passages of this time; those that begin within one step of the first are one bar."""
    found: list[PassageBar] = []
    for one in history.briefs:
        begin, end = one.start.timestamp(), one.end.timestamp()
        if end < window.begin or begin > window.end:
            continue
        if found and begin - found[-1].begin < window.shortest:
            found[-1] = replace(found[-1], end=max(found[-1].end, end), n=found[-1].n + 1)
            continue
        found.append(PassageBar(begin, end, one.passage, one.label, one.probability, one.said))
    return found


def _labels(window: Window) -> list[TimelineLabel]:
    """What people said of what was heard in this time; the newest if there are too many."""
    return [
        TimelineLabel(
            begin=recording.time(row["start"]),
            end=recording.time(row["stop"]),
            number=row["id"],
            label=row["label"],
            who=row["who"],
            given=row["time"],
            why=row["why"],
            via=row["via"],
            recording=recording.name,
            start_sample=row["start"],
            stop_sample=row["stop"],
        )
        for recording in window.recordings
        for row in window.journal.rows(
            "SELECT id, start, stop, label, who, time, why, via FROM label_rows WHERE recording = ? AND stop > ? "
            "AND start < ? AND label IS NOT NULL AND NOT void ORDER BY start",
            (recording.name, recording.sample(window.begin), recording.sample(window.end)),
        )
    ][-_MOST_LABELS:]
