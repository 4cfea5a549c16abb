"""What is known of an array on its way through its log, and what of it is told.

Decisions go to their log in portions, each only if the one before it is the last that is there, and are numbered:
whoever goes on from a checkpoint makes the same ones again, and skips them for as long as they are the same. They are
not where sound was removed since, or forgotten; from there on all is told. What depends on the moment (another model,
or that all is told from here on) is in a checkpoint before anybody hears of it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.core.checkpoint import packed, put, taken, unpacked
from pipeline.core.choices import Choices
from pipeline.core.errors import SourceError, StateError
from pipeline.core.event_json import EventLines, line
from pipeline.core.events import Block, Gap, ModelChanged, Notice, NoticeKind, RecordingStarted
from pipeline.core.passages import PASSAGE_EVENTS
from pipeline.daemon.board import Board
from pipeline.fleet.lease import LeaseLost
from pipeline.fleet.model_assignment import ModelAssignment
from pipeline.fleet.model_cache import ModelStore
from pipeline.fleet.topology import Places
from pipeline.model.hot_swap import ArrayInput, Switching
from pipeline.model.model import Model
from pipeline.model.shadow import Shadow
from pipeline.runtime.logs import log
from pipeline.sources.reorder import Sorting
from pipeline.storage.journal import utc
from pipeline.transport.nats import Access, Broker, Bucket, Message, Superseded

PROBLEMS = ("state_changed", "common_fault", "calibration_lost", "model_unusable", "model_rolled_back")
_LAST_ID = "Gemmed-Last-Id"
"""Of a portion without decisions: the number of the last one before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """All that a worker must know to take over an array; secrets are files on his side."""

    array: str
    ticket: str
    """He has the array for as long as this is the ticket of the dispatcher."""
    model: str
    """That decides unless another one is wanted."""
    access: Access
    places: Places
    choices: Choices = field(default_factory=Choices)
    checkpoint_seconds: float = 10.0
    cache: Path | None = None


@dataclass(frozen=True, slots=True)
class Successor:
    """The model that decides from the next recording on, and who wants it."""

    model: Model
    wanted: ModelAssignment


def _about(told: Any) -> Any:
    """What an event says, without the digits in which machines of another kind may differ."""
    match told:
        case dict():
            return {name: _about(one) for name, one in told.items()}
        case list():
            return [_about(one) for one in told]
        case float():
            return None
    return told


def is_notable(event: Mapping[str, Any]) -> bool:
    """Whether people may be notified of an event; not of a sensor whose state keeps toggling."""
    return event["type"] in (*PASSAGE_EVENTS, *PROBLEMS) and event.get("notify", True) is not False


def can_hear(how: ArrayInput, started: RecordingStarted) -> bool:
    return (started.rate_hz, len(started.sensors)) == (how.grid.rate_hz, how.n_sensors)


class Work:
    """An array on its way through the log: what is known of it, and what is decided and not yet told."""

    remembers = (
        "place", "log", "model", "before", "earlier", "rollout", "trial_segments", "refused", "told", "portion",
        "outbox", "notable", "lost", "heard_at", "chain_state", "lines", "board",
    )  # fmt: skip

    def __init__(self, assignment: Assignment, broker: Broker, model: Model, load: Callable[[str], Model]) -> None:
        self._assignment, self._broker, self._load = assignment, broker, load
        self.model, self.before, self.rollout = model.name, "", ""
        self.trial_segments = 0
        """Of the trial that is going on."""
        self.refused: list[str] = []
        self.sorting, self.log = Sorting(), self._identity_of_log()
        self.told = 0
        """Events that came of the log so far."""
        self.portion = 0
        """The place in their log behind which all are that were told and are not among these."""
        self.outbox: list[dict[str, Any]] = []
        self.notable: list[dict[str, Any]] = []
        """Events for a stream of their own, which takes none twice: sent again after a checkpoint is taken up."""
        self.lost = 0
        self.heard_at = ""
        self.earlier = ""
        """That decided about recordings of another rate, or of other sensors."""
        self.find_successor: Callable[[RecordingStarted], Successor | None] = lambda started: None
        self.must_be_kept = False
        """Before anybody hears of what was decided last: it does not follow from the log and the checkpoint alone."""
        self.chain = Switching(ArrayInput.of(model), assignment.choices, model, load=load)
        self.lines = EventLines(self._take, model=model.name)
        self.board = Board(model.n_sensors)
        self._trial: Shadow | None = None
        self._sample = 0
        self._started: RecordingStarted | None = None
        self._revision: int | None = None
        self._logged, self._stored = 0, 0
        self._told_before = self._read_what_was_told()
        self._last: Message | None = None

    @property
    def place(self) -> dict[str, Any]:
        return self.sorting.state()

    @place.setter
    def place(self, state: dict[str, Any]) -> None:
        self.sorting = Sorting.of(state)

    @property
    def chain_state(self) -> NDArray[np.uint8]:
        """By itself: it may not fit, where the rest still does."""
        return np.frombuffer(self.chain.snapshot(), np.uint8)

    def take_up(self, state: dict[str, Any], revision: int) -> None:
        """Go on where another one was."""
        self._revision, chain_state = revision, state.pop("chain_state")
        for name, one in state.items():
            setattr(self, name, put(getattr(self, name), one))
        self.outbox = [event for event in self.outbox if event["id"] > self._logged]
        self._sample = self.sorting.sample
        if self.sorting.recording is not None and self.sorting.is_in_a_recording:
            self._started = self.sorting.recording
            self.board.resume(self._started)
        if self.log != self._identity_of_log() or self._is_beyond_the_log():
            self.log = self._identity_of_log()
            self.sorting.rewind()
        try:
            self._trial = self.chain.restore(chain_state.tobytes())
        except StateError as error:
            self._begin_anew(str(error))

    def _is_beyond_the_log(self) -> bool:
        """Whether the broker has lost messages that were heard, as it may when the power fails: others follow now."""
        return self.sorting.resume_at > self._broker.last_sequence(self._assignment.places.sound.stream) + 1

    def _identity_of_log(self) -> str:
        return self._broker.identity(self._assignment.places.sound.stream)

    @property
    def is_repeating(self) -> bool:
        """Whether what comes of the log was told before; only what follows from the log may happen meanwhile."""
        return self.told < self._logged

    def _was_told_otherwise(self, event: dict[str, Any]) -> bool:
        """Than now, under the same number. What is no longer kept is told again: twice is better than never."""
        before = next((one for one in self._told_before if one["id"] >= event["id"]), None)
        return bool(_about(before) != _about(json.loads(line(event))))

    def _read_what_was_told(self) -> Iterator[dict[str, Any]]:
        """The events behind the place where we begin; none is read before it is asked for."""
        places = self._assignment.places
        reader = self._broker.read(places.events_stream, places.events(self._assignment.array), self.portion + 1)
        for message in reader.to_the_end():
            yield from map(json.loads, message.data.splitlines())

    def _repeat_no_more(self) -> None:
        """Whatever comes now is told, behind all that was."""
        self.told = max(self.told, self._logged)
        self.must_be_kept = True

    def _begin_anew(self, why: str) -> None:
        """From the same place in the log, with nothing known of the sensors: other settings, or another gemmed."""
        self._repeat_no_more()  # what was told behind this place was told by the chain before
        model = self._load(self.model)
        self.chain = Switching(ArrayInput.of(model), self._assignment.choices, model, load=self._load)
        self._observe(Notice(NoticeKind.CHAIN_RESTARTED, {"why": why}, self.sorting.sample))
        if self.sorting.is_in_a_recording:
            self.chain.push(self.sorting.recording)
        self._try_beside(self.before)

    def _try_beside(self, before: str) -> None:
        """Let the model of before decide about as many segments as a trial has, for comparison; if there is one."""
        self._trial = None
        if self.trial_segments:
            self._trial = Shadow(self.trial_segments, self._assignment.choices.alpha, turned=True)
        self.chain.shadow(self._load(before) if self._trial else None, self._trial)

    def find_end(self) -> None:
        """Of what was told before: nothing of it is told again."""
        places = self._assignment.places
        last = self._broker.last(places.events_stream, places.events(self._assignment.array))
        if last is not None:
            self._stored, events = last.sequence, last.data.splitlines()
            self._logged = int(json.loads(events[-1])["id"] if events else last.headers[_LAST_ID])

    def claim(self) -> None:
        """From now on nobody tells anything who took the array up before; a `LeaseLost` if he just has."""
        self._publish(b"", f"claim-{self._logged}", {_LAST_ID: str(self._logged)})

    def _publish(self, data: bytes, what: str, headers: Mapping[str, str] | None = None) -> None:
        places, array = self._assignment.places, self._assignment.array
        try:
            self._stored = self._broker.publish(
                places.events(array),
                data,
                stream=places.events_stream,
                # Another attempt is another message: only the order decides whether it is taken.
                id=f"{array}-{what}-{time.time_ns()}",
                after=self._stored,
                headers=headers,
            )
        except Superseded as error:
            raise LeaseLost(f"somebody else decides for {array}") from error

    def hear(self, fact: object) -> None:
        """A fact of the log goes through the chain."""
        if isinstance(fact, Gap) and fact.recorded:
            self.lost += fact.stop - fact.start
        if isinstance(fact, Block | Gap):
            self._sample = fact.stop
        elif isinstance(fact, RecordingStarted):
            if not self.can_hear(fact):
                self._succeed(fact)
            self._sample, self._started = 0, fact
        for made in self.chain.push(fact):
            self._observe(made)

    def can_hear(self, started: RecordingStarted) -> bool:
        return can_hear(self.chain.hearing, started)

    def _succeed(self, started: RecordingStarted) -> None:
        """Another model begins with a recording that the present one cannot hear; it waits in the log for one."""
        successor = self.find_successor(started)
        if successor is None:
            how = self.chain.hearing
            raise SourceError(
                f"{self._assignment.array} is published with {len(started.sensors)} sensors at {started.rate_hz} Hz, "
                f"model {self.model} hears {how.n_sensors} at {how.grid.rate_hz} Hz; correct array.sensors and "
                "array.rate there and gemmed fleet forget this, or gemmed fleet rollout a model that hears it; until "
                "then it waits in the log"
            )
        model, wanted = successor.model, successor.wanted
        for made in self.chain.flush():
            self._observe(made)
        self.lost = round(self.lost * started.rate_hz / self.chain.hearing.grid.rate_hz)
        self.chain = Switching(ArrayInput.of(model), self._assignment.choices, model, load=self._load)
        decisions, self.board = self.board.decisions, Board(model.n_sensors)
        self.board.decisions = decisions
        self._observe(ModelChanged(self._sample, model.name))
        self._tell_promoted(self.model, model, wanted)
        self.earlier, self.before, self._trial, self.trial_segments = self.model, "", None, 0
        self.model, self.rollout, self.must_be_kept = model.name, wanted.rollout, True

    def _tell_promoted(self, before: str, model: Model, wanted: ModelAssignment) -> None:
        told = {"model": model.name, "before": before, "who": wanted.who, "why": wanted.why}
        self._observe(Notice(NoticeKind.MODEL_PROMOTED, told, self._sample))

    def _observe(self, fact: object) -> None:
        self.board.observe(fact)
        self.lines.observe(fact)

    def _take(self, body: dict[str, Any]) -> None:
        own: dict[str, Any] = {"id": self.told + 1, "array": self._assignment.array}
        event = own | body | own  # whatever a site says of itself
        if self.is_repeating and self._was_told_otherwise(event):
            log.warning("what was told before does not come again: the log of the sound has changed",
                        array=self._assignment.array, event=event["id"])  # fmt: skip
            self._repeat_no_more()
            event["id"] = self.told + 1
        if not self.is_repeating:
            self.outbox.append(event)
        if is_notable(event):
            at = None if self._started is None else self._started.started_at
            self.notable.append(event | {"recording_started_at": at.isoformat() if at else None})
        self.told = event["id"]

    def note(self, message: Message | None) -> None:
        """The one that is heard next."""
        if message is not None:
            self._last, self.heard_at = message, utc(message.time)

    def send(self) -> None:
        """Tell what is decided; a `LeaseLost` if somebody else has told more."""
        if self.outbox:
            self._publish("".join(map(line, self.outbox)).encode(), str(self.outbox[0]["id"]))
            self._logged = self.outbox[-1]["id"]
            self.outbox.clear()
        self._send_notable()

    def _send_notable(self) -> None:
        """Send them behind the decisions, which only the owner of the array can send."""
        places, array = self._assignment.places, self._assignment.array
        while self.notable:
            event = self.notable[0]
            subject = places.passages(array) if event["type"] in PASSAGE_EVENTS else places.problems(array)
            mark = f"{array}-{event['recording']}-{event['id']}"
            self._broker.publish(subject, line(event).encode(), stream=places.notable_stream, id=mark)
            del self.notable[0]

    def keep(self, checkpoints: Bucket) -> None:
        """All in one value, if nobody else has written one."""
        self.must_be_kept = False
        if not self.is_repeating:
            self.portion = self._stored
        array, data = self._assignment.array, packed(taken(self))
        if len(data) > self._broker.most_bytes:
            most = self._broker.most_bytes
            raise StateError(f"the state of {array} takes {len(data)} bytes, the broker takes {most}; raise "
                             "max_payload in its settings")  # fmt: skip
        try:
            if self._revision is None:
                self._revision = checkpoints.create(array, data)
            else:
                self._revision = checkpoints.update(array, data, self._revision)
        except Superseded as error:
            raise LeaseLost(f"somebody else keeps the state of {array}") from error

    def change(self, model: Model, wanted: ModelAssignment) -> None:
        """Let another model decide from here on, and for a while the one before it beside it, for comparison."""
        before = self.model
        for made in self.chain.push(ModelChanged(self._sample, model.name)):
            self._observe(made)
        self.before, self.model, self.rollout = "" if wanted.is_back else before, model.name, wanted.rollout
        self.trial_segments = wanted.trial_segments
        self._tell_promoted(before, model, wanted)
        self._try_beside(before)

    def refuse(self, wanted: ModelAssignment, why: str) -> None:
        """A model that cannot be used here: the one before it stays."""
        self.refused.append(wanted.rollout)
        self._observe(Notice(NoticeKind.MODEL_UNUSABLE, {"model": wanted.model, "why": why, "instead": self.model}))
        log.error("a model cannot be used", array=self._assignment.array, model=wanted.model, why=why)

    @property
    def is_on_trial(self) -> bool:
        """Whether two models are compared: where that ends follows from the log, message by message."""
        return self._trial is not None

    def verdict(self) -> dict[str, Any] | None:
        """Of the trial of a model, once it is over."""
        return self._trial.verdict() if self._trial is not None and self._trial.done else None

    def end_trial(self, verdict: dict[str, Any]) -> None:
        """The new model stays, or this array alone goes back to the one before."""
        self._trial, self.trial_segments = None, 0
        self.chain.shadow(None)
        details = {"model": self.model, "before": self.before, "rollout": self.rollout, **verdict}
        if verdict["passed"]:
            self._observe(Notice(NoticeKind.ROLLOUT_PASSED, details, self._sample))
            return
        self.refused.append(self.rollout)
        for made in self.chain.push(ModelChanged(self._sample, self.before)):
            self._observe(made)
        self._observe(Notice(NoticeKind.MODEL_ROLLED_BACK, details, self._sample))
        self.model, self.before, self.rollout = self.before, "", ""

    def status(self, *, failed: bool = False) -> dict[str, Any]:
        board, last = self.board.as_dict(), self._last
        behind = 0.0
        if last is not None and (last.pending or failed):
            behind = (datetime.now(UTC) - last.time).total_seconds()
        return {
            "recording": board["recording"] or (self.sorting.recording.recording if self.sorting.recording else None),
            "sample": self._sample,
            "rate_hz": self.chain.hearing.grid.rate_hz,
            "sensors": board["sensors"],
            "decisions": board["decisions"],
            "presence": board["presence"],
            "samples_lost": self.lost,
            "model": self.model,
            "before": self.before or None,
            "rollout": self.rollout or None,
            "trial": self.is_on_trial,
            "refused": self.refused,
            # Whoever went on from a checkpoint knows where it was, also if nothing came since.
            "sequence": last.sequence if last else self.sorting.resume_at - 1 or None,
            "heard_at": self.heard_at or None,
            "pending": last.pending if last else None,
            "lag_seconds": round(behind, 1),
        }


def taken_up(assignment: Assignment, broker: Broker, checkpoints: Bucket, models: ModelStore) -> Work:
    """Where the last one was, or the beginning."""
    entry = checkpoints.get(assignment.array)
    state = None if entry is None else unpacked(entry.value)
    work = Work(assignment, broker, models.load(state["model"] if state else assignment.model), models.load)
    work.find_end()
    if entry is not None and state is not None:
        work.take_up(dict(state), entry.revision)
    return work
