"""The review queue: of the latest decisions those whose sound is kept and that have no label.

A decision inside a passage asks about all of the passage.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, islice
from threading import Lock
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pipeline.core.errors import NotFound
from pipeline.core.passages import NO_LABEL
from pipeline.model.model import Refusal
from pipeline.storage.journal import Journal, Row, StoredEvent, utc
from pipeline.storage.label_table import current_stretches, last_label
from pipeline.storage.recordings import recording_row
from pipeline.training import active_learning as teaching
from pipeline.training.active_learning import MOMENTS, Moments

Why: TypeAlias = Literal["doubt", "instructive", "chance", "wanted"]
MOST_DECISIONS = 20_000
NEAR_SECONDS = 5.0
"""So far from an anomaly a decision may be about the same sound."""
_LONGEST_SECONDS = 20.0
"""Of a doubted label that is longer, only its first doubted part is asked about."""
_AT_ONCE = 5_000
_NOTICED = ("event_noticed",)
_NEAR = ("event_noticed", "fault_suspected", "common_fault", "state_changed")
_MOST_NEAR = 5
_PASSAGES_PER_MOMENT = 3
"""Questions about passages before one about a moment outside of them."""


@dataclass(frozen=True, slots=True)
class Doubt:
    """A label against which all sensors together have spoken since it was given."""

    recording: str
    start: int
    stop: int
    given: Row
    why: str


@dataclass(frozen=True, slots=True)
class Question:
    """One passage, or a moment outside of passages, to be heard and labelled."""

    asked: Why
    passage: str | None
    recording: str
    rate_hz: int
    start: int
    stop: int
    why: tuple[str, ...]
    decision: StoredEvent | None
    lesson: teaching.LabelValue | None
    labelled: Row | None
    near: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Questions:
    """The first of all questions there are; how many there are, and of how many decisions."""

    first: tuple[Question, ...]
    waiting: int
    decisions: int
    with_sound: int


class Review:
    """The queue of one journal; asked again, it reads only what is new."""

    def __init__(self, most_decisions: int = MOST_DECISIONS) -> None:
        self._most = most_decisions
        self._lock = Lock()
        self._forget()

    def _forget(self) -> None:
        self._after = 0
        self._moments: Moments = np.zeros(0, MOMENTS)
        self._recordings: dict[str, tuple[int, int]] = {}  # number and rate
        self._noticed: list[tuple[int, int, float]] = []  # id, recording, seconds
        self._state: tuple[object, ...] = ()
        self._asked: list[teaching.Asked] = []
        self._with_sound = 0

    def questions(
        self, journal: Journal, *, most: int, event: int | None = None, passage: str | None = None
    ) -> Questions:
        """What to ask first; the decision or the passage that somebody wants to see before all others."""
        with self._lock:
            self._update(journal)
            asked, decisions, with_sound = self._asked, len(self._moments), self._with_sound
        doubts = _doubts(journal)
        if passage is not None:
            event = _decision_of_passage(journal, passage)
        wanted = [_wanted(journal, event)] if event is not None else []
        doubted = (_doubted(journal, doubt) for doubt in doubts)
        fresh = (one for one in asked if one.event != event)
        instructive = (_instructive(journal, one) for one in fresh)
        found = islice(_each_passage_once(chain(wanted, doubted, instructive)), most)
        return Questions(tuple(found), len(asked) + len(doubts), decisions, with_sound)

    def _update(self, journal: Journal) -> None:
        """Read what was decided since, and order anew if anything has changed."""
        if journal.last_id < self._after:  # another journal has taken its place
            self._forget()
        self._read_decisions(journal)
        labels, sound = _changes(journal)
        state = (self._after, labels, sound)
        if state != self._state:
            kept = self._moments[self._kept(journal)]
            self._with_sound = len(kept)
            self._asked = self._ordered(journal, self._near_noticed(kept))
            self._state = state

    def _ordered(self, journal: Journal, kept: Moments) -> list[teaching.Asked]:
        """Order what to ask: passages, each by its most instructive moment, and some moments outside of them."""
        labels, passages = list(self._labelled(journal)), self._passages(journal)
        place = _place_of(kept, passages)
        outside = teaching.without(kept[place < 0], [*labels, *passages[["recording", "begin", "end"]].tolist()])
        free = ~_overlapped(passages, labels)
        inside = np.flatnonzero((place >= 0) & free[place]) if len(passages) else np.zeros(0, np.int64)
        of_passages = kept[inside].copy()
        of_passages["recording"] = place[inside]  # moments of one passage belong together, however long it is
        return _mixed(teaching.queue(_best_of_each(of_passages)), teaching.queue(outside))

    def _passages(self, journal: Journal) -> Moments:
        """Return the passages that are over, of the recordings of the moments, by recording and time."""
        numbers = {name: own for name, own in self._recordings.items() if own[0] in set(self._moments["recording"])}
        rows = journal.rows(
            "SELECT recording, start_sample, stop_sample FROM passages WHERE end IS NOT NULL "
            "AND recording IN (SELECT value FROM json_each(?))",
            (json.dumps(list(numbers)),),
        )
        found = np.zeros(len(rows), MOMENTS)
        for one, row in zip(found, rows, strict=True):
            number, rate_hz = numbers[row["recording"]]
            one["recording"], one["begin"], one["end"] = (
                number,
                row["start_sample"] / rate_hz,
                row["stop_sample"] / rate_hz,
            )
        ordered: Moments = found[np.lexsort((found["begin"], found["recording"]))]
        return ordered

    def _read_decisions(self, journal: Journal) -> None:
        last = journal.last_id
        self._know_recordings(journal)
        rows: list[tuple[Any, ...]] = []
        for event in self._new_events(journal, last):
            body = event.body
            number, rate_hz = self._recordings.get(event.recording or "", (-1, 1))
            if number < 0:
                continue
            if event.type != "decision":
                self._noticed.append((event.id, number, body["sample"] / rate_hz))
            elif found := teaching.lesson(body):
                begin, end = body["start_sample"] / rate_hz, body["stop_sample"] / rate_hz
                rows.append((event.id, number, begin, end, found.uncertainty, found.disagreement, found.anomaly))
        self._moments = np.concatenate([self._moments, np.array(rows, MOMENTS)])[-self._most :]
        oldest = int(self._moments["event"].min(initial=last))
        self._noticed = [one for one in self._noticed if one[0] > oldest]
        self._after = last

    def _new_events(self, journal: Journal, last: int) -> Iterator[StoredEvent]:
        """Decisions and what was noticed, up to an id; of decisions only as many as count."""
        oldest = journal.rows(
            "SELECT min(id) AS id FROM (SELECT id FROM events WHERE type = 'decision' AND id > ? ORDER BY id DESC "
            "LIMIT ?)",
            (self._after, self._most),
        )[0]["id"]
        after = self._after if oldest is None else max(self._after, oldest - 1)
        for event in journal.events(after=after, types=["decision", *_NOTICED]):
            if event.id <= last:
                yield event

    def _know_recordings(self, journal: Journal) -> None:
        for row in journal.rows("SELECT name, rate_hz FROM recordings ORDER BY rowid"):
            self._recordings.setdefault(row["name"], (len(self._recordings), row["rate_hz"]))

    def _kept(self, journal: Journal) -> NDArray[np.bool_]:
        """Which moments can be heard from begin to end."""
        kept = np.zeros(len(self._moments), np.bool_)
        stretches = self._stretches(journal)
        for number in np.unique(self._moments["recording"]).tolist():
            starts, stops = np.array(stretches.get(number, np.zeros((0, 2)))).reshape(-1, 2).T
            own = np.flatnonzero(self._moments["recording"] == number)
            at = np.searchsorted(starts, self._moments["begin"][own], side="right") - 1
            inside = at >= 0
            kept[own[inside]] = self._moments["end"][own[inside]] <= stops[at[inside]]
        return kept

    def _stretches(self, journal: Journal) -> dict[int, list[list[float]]]:
        """The sound that is kept of each recording, in seconds; pieces that follow each other are one stretch."""
        found: dict[int, list[list[float]]] = {}
        present = set(self._moments["recording"].tolist())
        names = [name for name, (number, _) in self._recordings.items() if number in present]
        for row in journal.rows(
            "SELECT recording, start, stop FROM pieces WHERE file IS NOT NULL "
            "AND recording IN (SELECT value FROM json_each(?)) ORDER BY recording, start",
            (json.dumps(names),),
        ):
            number, rate_hz = self._recordings[row["recording"]]
            own, begin, end = found.setdefault(number, []), row["start"] / rate_hz, row["stop"] / rate_hz
            if own and own[-1][1] == begin:
                own[-1][1] = end
            else:
                own.append([begin, end])
        return found

    def _labelled(self, journal: Journal) -> Iterator[tuple[int, float, float]]:
        labels = current_stretches(journal)
        for recording, stretches in labels.items():
            if recording in self._recordings:
                number, rate_hz = self._recordings[recording]
                yield from ((number, one.start / rate_hz, one.stop / rate_hz) for one in stretches)

    def _near_noticed(self, moments: Moments) -> Moments:
        """An event out there makes the sound around it unusual, whoever refused it."""
        moments = moments.copy()
        for number in {number for _, number, _ in self._noticed}:
            times = sorted(seconds for _, recording, seconds in self._noticed if recording == number)
            own = np.flatnonzero(moments["recording"] == number)
            ends = moments["end"][own]
            earliest = np.searchsorted(times, ends - NEAR_SECONDS)
            latest = np.searchsorted(times, ends + NEAR_SECONDS, side="right")
            moments["anomaly"][own[latest > earliest]] = 1.0
        return moments


def _place_of(moments: Moments, passages: Moments) -> NDArray[np.int64]:
    """Return the place of the passage that each moment overlaps, -1 outside of all; `passages` are sorted."""
    places = np.full(len(moments), -1, np.int64)
    for number in np.unique(passages["recording"]).tolist():
        own = np.flatnonzero(moments["recording"] == number)
        first, last = np.searchsorted(passages["recording"], [number, number + 1])
        at = first + np.searchsorted(passages["begin"][first:last], moments["end"][own]) - 1
        inside = (at >= first) & (passages["end"][at] > moments["begin"][own])
        places[own[inside]] = at[inside]
    return places


def _overlapped(passages: Moments, stretches: Iterable[tuple[int, float, float]]) -> NDArray[np.bool_]:
    """Return which passages overlap one of the stretches, which are recording, begin and end."""
    found = np.zeros(len(passages), np.bool_)
    for recording, begin, end in stretches:
        found |= (passages["recording"] == recording) & (passages["begin"] < end) & (passages["end"] > begin)
    return found


def _best_of_each(moments: Moments) -> Moments:
    """Return the most instructive moment of each passage, the newest of equals."""
    order = np.lexsort((-moments["event"], -teaching.teaches(moments)))
    _, first = np.unique(moments["recording"][order], return_index=True)
    best: Moments = moments[order[first]]
    return best


def _mixed(passages: Sequence[teaching.Asked], moments: Sequence[teaching.Asked]) -> list[teaching.Asked]:
    """Ask about three passages, then about a moment, as long as there are both."""
    found: list[teaching.Asked] = []
    rest = iter(moments)
    for number, one in enumerate(passages, start=1):
        found.append(one)
        if number % _PASSAGES_PER_MOMENT == 0:
            found += islice(rest, 1)
    return [*found, *rest]


def _changes(journal: Journal) -> tuple[object, object]:
    """Two values that differ whenever labels, or sound that is kept, do."""
    (sound,) = journal.rows("SELECT count(*) AS n, max(rowid) AS last FROM pieces WHERE file IS NOT NULL")
    return last_label(journal), (sound["n"], sound["last"])


def _each_passage_once(questions: Iterable[Question | None]) -> Iterator[Question]:
    asked: set[str] = set()
    for one in questions:
        if one is None or one.passage in asked:
            continue
        if one.passage is not None:
            asked.add(one.passage)
        yield one


def _decision_of_passage(journal: Journal, passage: str) -> int:
    """Return the id of the decision in the middle of a passage."""
    rows = journal.rows(
        "SELECT e.id FROM passages p JOIN events e ON e.recording = p.recording "
        "AND e.sample BETWEEN p.start_sample AND p.stop_sample AND e.type = 'decision' WHERE p.passage = ? "
        "ORDER BY abs(e.sample - (p.start_sample + p.stop_sample) / 2), e.id LIMIT 1",
        (passage,),
    )
    if not rows:
        raise NotFound(f"passage {passage!r} is not there or has no decision left; /api/v1/passages lists them")
    return int(rows[0]["id"])


def _passage_around(journal: Journal, recording: str, start: int, stop: int) -> Row | None:
    """Return the passage that overlaps a segment most, if it is over."""
    rows = journal.rows(
        "SELECT passage, start_sample, stop_sample, label, probability FROM passages "
        "WHERE recording = ?3 AND start_sample < ?2 AND stop_sample > ?1 AND end IS NOT NULL "
        "ORDER BY min(stop_sample, ?2) - max(start_sample, ?1) DESC LIMIT 1",
        (start, stop, recording),
    )
    return rows[0] if rows else None


def _wanted(journal: Journal, number: int) -> Question:
    found = journal.event(number)
    if found is None or found.type != "decision":
        raise NotFound(f"event {number} is no decision that can be reviewed; give the id of a decision")
    return _question(journal, found, "wanted", ("you asked for it",))


def _instructive(journal: Journal, asked: teaching.Asked) -> Question | None:
    """None if the decision had to make room meanwhile."""
    found = journal.event(asked.event)
    if found is None:
        return None
    if asked.by_chance:
        return _question(journal, found, "chance", ("drawn by chance, to find what is wrong with confidence",))
    return _question(journal, found, "instructive", ())


def _question(journal: Journal, event: StoredEvent, asked: Why, why: Sequence[str]) -> Question:
    body = event.body
    recording, rate_hz = body["recording"], _rate_hz(journal, body["recording"])
    passage = _passage_around(journal, recording, body["start_sample"], body["stop_sample"])
    place = passage or body
    start, stop = place["start_sample"], place["stop_sample"]
    near = _near(journal, recording, start, stop, rate_hz)
    decided, *others = teaching.in_words(body, classes_of(journal, body["model"]))
    about = _about(passage, rate_hz, decided)
    noticed = next((one for one in near if one["type"] in _NOTICED), None)
    return Question(
        asked=asked,
        passage=passage["passage"] if passage else None,
        recording=recording,
        rate_hz=rate_hz,
        start=start,
        stop=stop,
        why=(*why, *about, *others, *([] if noticed is None else [f"an event was noticed: {noticed['told']}"])),
        decision=event,
        lesson=teaching.lesson(body),
        labelled=label_of(journal, recording, start, stop),
        near=near,
    )


def _about(passage: Row | None, rate_hz: int, decided: str) -> tuple[str, ...]:
    """Say what was decided: of a moment, or of a passage and of its most instructive segment."""
    if passage is None:
        return (decided,)
    sure = "" if passage["probability"] is None else f", probability {passage['probability']:.2f}"
    seconds = (passage["stop_sample"] - passage["start_sample"]) / rate_hz
    return f"passage of {seconds:.0f} s: {passage['label'] or NO_LABEL}{sure}", f"most instructive segment: {decided}"


def _doubted(journal: Journal, doubt: Doubt) -> Question:
    rate_hz = _rate_hz(journal, doubt.recording)
    given = doubt.given
    return Question(
        asked="doubt",
        passage=None,
        recording=doubt.recording,
        rate_hz=rate_hz,
        start=doubt.start,
        stop=doubt.stop,
        why=(f"either {given['who']} or the sensors are wrong here: labelled {given['label']}", doubt.why),
        decision=_decision_in(journal, doubt, rate_hz),
        lesson=None,
        labelled=given,
        near=_near(journal, doubt.recording, doubt.start, doubt.stop, rate_hz),
    )


def _decision_in(journal: Journal, doubt: Doubt, rate_hz: int) -> StoredEvent | None:
    """The first decision inside a doubted label, if there was one."""
    longest = doubt.stop + round(_LONGEST_SECONDS * rate_hz)
    rows = journal.rows(
        "SELECT id FROM events WHERE recording = ? AND sample BETWEEN ? AND ? AND type = 'decision' "
        "AND json_extract(body, '$.start_sample') >= ? ORDER BY id LIMIT 1",
        (doubt.recording, doubt.start, longest, doubt.start),
    )
    return journal.event(rows[0]["id"]) if rows else None


def _doubts(journal: Journal) -> list[Doubt]:
    """Labels that training or the sensors doubt and that nobody has spoken of since, the most doubtful first."""
    found: dict[int, Doubt] = {}
    for place in _doubtful_places(journal):
        given = label_of(journal, place["recording"], place["start"], place["start"] + 1)
        if given is None or given["number"] in found or given["time"] >= place["time"]:
            continue
        rate_hz = _rate_hz(journal, place["recording"])
        start = max(given["start_sample"], min(place["start"], given["stop_sample"] - 1))
        if given["stop_sample"] - given["start_sample"] <= _LONGEST_SECONDS * rate_hz:
            start = given["start_sample"]
        stop = min(given["stop_sample"], start + round(_LONGEST_SECONDS * rate_hz))
        found[given["number"]] = Doubt(place["recording"], start, stop, given, place["why"])
    return list(found.values())


def _doubtful_places(journal: Journal) -> Iterator[Row]:
    """Where the model that decides refused to believe a label, and where all sensors contradicted one."""
    for row in journal.rows(
        "SELECT f.recording, min(f.start) AS start, min(f.believed) AS believed, m.time, m.name FROM refusals f "
        "JOIN models m ON m.name = f.model JOIN recordings r ON r.name = f.recording "
        "WHERE m.status = 'champion' AND f.why = ? GROUP BY f.recording, f.start ORDER BY believed, f.start",
        (Refusal.LABEL.told,),
    ):
        why = f"model {row['name']} believes the label by {row['believed']:.0%}"
        yield {"recording": row["recording"], "start": row["start"], "time": row["time"], "why": why}
    for event in journal.events(types=["label_doubted"], most=_AT_ONCE, newest_first=True):
        if event.recording is not None:
            start = max(0, event.body["sample"] - 1)
            yield {"recording": event.recording, "start": start, "time": event.time, "why": event.body["reason"]}


def _near(journal: Journal, recording: str, start: int, stop: int, rate_hz: int) -> tuple[Row, ...]:
    """What else was told about the same seconds."""
    reach = round(NEAR_SECONDS * rate_hz)
    rows = journal.rows(
        f"SELECT id, type, sample, body FROM events WHERE recording = ? AND sample BETWEEN ? AND ? "
        f"AND type IN ({', '.join('?' * len(_NEAR))}) ORDER BY sample LIMIT ?",
        (recording, start - reach, stop + reach, *_NEAR, _MOST_NEAR),
    )
    return tuple(
        {"id": row["id"], "type": row["type"], "sample": row["sample"], "told": _told(json.loads(row["body"]))}
        for row in rows
    )


def _told(body: Mapping[str, Any]) -> str:
    if body["type"] == "state_changed":
        causes = f": {', '.join(body['causes'])}" if body["causes"] else ""
        return f"sensor {body['sensor']} is {body['to']}{causes}"
    return str(body["reason"])


def _rate_hz(journal: Journal, recording: str) -> int:
    row = recording_row(journal, recording)
    if row is None:
        raise NotFound(f"recording {recording!r} is not in the journal; take the name from an event")
    return row.rate_hz


def classes_of(journal: Journal, model: str | None) -> list[str]:
    """What a model tells apart; nothing if nobody knows it any more."""
    rows = journal.rows("SELECT json_extract(facts, '$.classes') AS classes FROM models WHERE name = ?", (model,))
    return list(json.loads(rows[0]["classes"])) if rows and rows[0]["classes"] else []


def label_of(journal: Journal, recording: str, start: int, stop: int) -> Row | None:
    """The last word about some of a stretch; none if that was that nothing is said of it any more."""
    last = next(iter(labels_of(journal, recording, start, stop, most=1)), None)
    return last if last is not None and last["label"] is not None else None


def labels_of(journal: Journal, recording: str, start: int, stop: int, *, after: int = 0, most: int = 10) -> list[Row]:
    """What counts of all that was said of a stretch, the last first; only what came after another label, if asked."""
    return journal.rows(
        "SELECT id AS number, label, who, time, start AS start_sample, stop AS stop_sample FROM label_rows "
        "WHERE recording = ? AND start < ? AND stop > ? AND id > ? AND NOT void ORDER BY id DESC LIMIT ?",
        (recording, stop, start, after, most),
    )


def given_since(journal: Journal, time: datetime) -> int:
    """How many labels that count were given since."""
    (row,) = journal.rows(
        "SELECT count(*) AS n FROM label_rows WHERE time >= ? AND label IS NOT NULL AND NOT void", (utc(time),)
    )
    return int(row["n"])
