"""What `gemmed publish` sent of an array, from a place in the log on: every fact once, in order, losses as gaps."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from difflib import get_close_matches
from typing import Any

from pipeline.core.errors import SourceError
from pipeline.core.events import Block, Gap, Notice, Paced, RecordingEnded, RecordingStarted, SourceTrouble, Tick
from pipeline.transport.nats import Broker, Message
from pipeline.transport.wire import Parcel, StreamNames, WrongVersion, unpacked

LOST = "lost on the way"
BEFORE = "before the log begins"
_MOST_HELD = 64
"""So many later messages are looked through for one that is missing: half a minute."""
_MOST_PAST = 256
_MESSAGES = 16
_WAIT_SECONDS = 0.25


class Sorting:
    """Facts in the order in which they were published, by their numbers, and without holes, by their samples.

    What comes twice is dropped. While one is missing, later ones are held, a bounded number of them; then it is lost,
    and a gap says of how much. So is a whole recording, which the next one names as that before it; of how much it was
    nobody knows. All this depends on nothing but the messages and their order: whoever reads them again sees the same.
    """

    def __init__(self) -> None:
        self._recording: RecordingStarted | None = None
        self._ended, self._begun_late = True, False
        self._number = self._sample = 0
        self._past: deque[str] = deque(maxlen=_MOST_PAST)
        self._held: list[tuple[int, Parcel]] = []
        self._next_sequence = self._seen = 1

    @property
    def recording(self) -> RecordingStarted | None:
        """The one that is heard, or was heard last."""
        return self._recording

    @property
    def is_in_a_recording(self) -> bool:
        """Whether that one goes on."""
        return not self._ended

    @property
    def sample(self) -> int:
        """Of that recording, the next."""
        return self._sample

    @property
    def resume_at(self) -> int:
        """The message from which on somebody with this state must read."""
        return min((sequence for sequence, _ in self._held), default=self._next_sequence)

    def contradiction(self, parcel: Parcel) -> str:
        """Why it cannot belong to the recording that it names; nothing if it can, or is not heard anyway."""
        other = self._known_as(parcel.recording.recording)
        told, known = _format(parcel.recording), other and _format(other)
        if known in (None, told) or self._is_known(parcel):
            return ""
        return (
            f"a message of recording {parcel.recording.recording} has {told}, the recording has {known}; publish "
            "sound of other sensors, or at another rate, under another name"
        )

    def _known_as(self, name: str) -> RecordingStarted | None:
        heard = [self._recording] if self._recording else []
        return next((one for one in [*heard, *(parcel.recording for _, parcel in self._held)]
                     if one.recording == name), None)  # fmt: skip

    def was_seen(self, sequence: int) -> bool:
        """Whether a message is read again, for the sake of one that was held."""
        return sequence < self._seen

    def skip_to(self, sequence: int) -> None:
        """Begin to listen there."""
        self._next_sequence = sequence

    def rewind(self) -> None:
        """Read the log from its beginning: it is another one. What is known is not heard twice."""
        self._next_sequence = self._seen = 1

    def state(self) -> dict[str, Any]:
        """Ready for JSON; what is held is not part of it, for it is read again."""
        recording = self._recording
        return {
            "recording": None if recording is None else {
                "recording": recording.recording,
                "rate_hz": recording.rate_hz,
                "sensors": list(recording.sensors),
                "started_at": recording.started_at.isoformat() if recording.started_at else None,
            },
            "ended": self._ended,
            "begun_late": self._begun_late,
            "number": self._number,
            "sample": self._sample,
            "past": list(self._past),
            "next": self.resume_at,
            "seen": self._seen,
        }  # fmt: skip

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Sorting:
        """One that goes on from a state."""
        sorting, known = cls(), state["recording"]
        if known is not None:
            at = known["started_at"]
            sorting._recording = RecordingStarted(
                known["recording"],
                known["rate_hz"],
                tuple(known["sensors"]),
                datetime.fromisoformat(at) if at else None,
            )
        sorting._ended, sorting._begun_late = state["ended"], state["begun_late"]
        sorting._number, sorting._sample = state["number"], state["sample"]
        sorting._past.extend(state["past"])
        sorting._next_sequence = state["next"]
        sorting._seen = state.get("seen", state["next"])
        return sorting

    def push(self, sequence: int, parcel: Parcel | None) -> list[object]:
        """The facts that a message completes; none of a message that cannot be read."""
        self._next_sequence = sequence + 1
        self._seen = max(self._seen, self._next_sequence)
        if parcel is not None:
            self._held.append((sequence, parcel))
        facts = list(self._in_order())
        while len(self._held) > _MOST_HELD:
            facts += self._give_up()
            facts += self._in_order()
        return facts

    def _in_order(self) -> Iterator[object]:
        while True:
            self._held = [one for one in self._held if not self._is_known(one[1])]
            if self._ended and self._held and self._can_begin():
                yield from self._begin()
            elif (parcel := self._due()) is not None:
                yield from self._said(parcel)
            else:
                return

    def _can_begin(self) -> bool:
        """Where somebody begins to listen is a beginning; else that of a recording, and the one before, are awaited."""
        if self._recording is None:
            return True
        return self._is_next(self._coming) and any(parcel.number == 0 for parcel in self._of(self._coming.recording))

    @property
    def _coming(self) -> Parcel:
        """Of the recording that should be next: the one behind the last, or else whichever came first."""
        held = [parcel for _, parcel in self._held]
        return next((parcel for parcel in held if self._is_next(parcel)), held[0])

    def _is_next(self, parcel: Parcel) -> bool:
        """Whether nothing is missing between its recording and the last; another publisher knows of nothing before."""
        return parcel.follows is None or self._is_of_now(parcel.follows) or parcel.follows in self._past

    def _of(self, recording: RecordingStarted | None) -> list[Parcel]:
        name = recording.recording if recording else None
        return [parcel for _, parcel in self._held if parcel.recording.recording == name]

    def _begin(self) -> Iterator[object]:
        """Another recording, told even if its first message is not there."""
        if self._recording is not None:
            self._past.append(self._recording.recording)
        self._recording, self._ended, self._sample = self._coming.recording, False, 0
        self._number = min(parcel.number for parcel in self._of(self._recording))
        self._begun_late = self._number > 0
        if self._begun_late:
            yield self._recording

    def _due(self) -> Parcel | None:
        """The one whose turn it is, no longer held."""
        for place, (_, parcel) in enumerate(self._held):
            if parcel.number <= self._number and not self._ended and self._is_of_now(parcel.recording.recording):
                del self._held[place]
                return parcel
        return None

    def _is_of_now(self, name: str) -> bool:
        return self._recording is not None and name == self._recording.recording

    def _is_known(self, parcel: Parcel) -> bool:
        name = parcel.recording.recording
        told = self._is_of_now(name) and (self._ended or parcel.number + parcel.stands_for <= self._number)
        return told or name in self._past

    def _give_up(self) -> list[object]:
        """What is missing is lost: up to the next that is there, or the rest, or the beginning of a recording."""
        later = self._of(self._recording)
        if later:
            self._number = min(parcel.number for parcel in later)
        elif not self._ended and self._recording is not None:
            self._ended = True
            name = self._recording.recording
            told = f"the end of recording {name} behind sample {self._sample} was {LOST}; how much it was nobody knows"
            return [SourceTrouble(name, told)]
        elif self._is_next(coming := self._coming):
            first = min(self._of(coming.recording), key=lambda parcel: parcel.number)
            stand_in = replace(first, number=0, fact=first.recording, stands_for=first.number)
            self._held.insert(0, (self._held[0][0], stand_in))
        elif coming.follows is not None:
            self._past.append(coming.follows)
            told = (
                f"recording {coming.follows}, and perhaps others before it, were {LOST}; how much it was nobody knows"
            )
            return [SourceTrouble(coming.recording.recording, told)]
        return []

    def _said(self, parcel: Parcel) -> Iterator[object]:
        fact = parcel.fact
        self._number = max(self._number, parcel.number + parcel.stands_for)
        if isinstance(fact, Block | Gap):
            yield from self._silence_until(fact.start)
            if fact.stop > self._sample:
                yield _from(fact, self._sample)
                self._sample = fact.stop
            return
        if isinstance(fact, RecordingEnded):
            yield from self._silence_until(fact.samples)
            self._ended = True
            fact = replace(fact, samples=self._sample)
        elif isinstance(fact, Tick | Paced | Notice) and fact.sample is not None:
            # It was said behind all sound before its sample, of which some may be missing.
            yield from self._silence_until(fact.sample)
            fact = replace(fact, sample=self._sample)
        yield fact

    def _silence_until(self, sample: int) -> Iterator[Gap]:
        if sample > self._sample:
            unheard = self._begun_late and not self._sample
            yield Gap(self._sample, sample, BEFORE if unheard else LOST, recorded=not unheard)
            self._sample = sample


def _format(recording: RecordingStarted) -> str:
    return f"sensors {', '.join(recording.sensors)} at {recording.rate_hz} Hz"


def _from(fact: Block | Gap, sample: int) -> Block | Gap:
    """The part of it that was not heard before."""
    if sample <= fact.start:
        return fact
    if isinstance(fact, Gap):
        return replace(fact, start=sample)
    return Block(sample, fact.samples[:, sample - fact.start :], fact.delivered)


def portions(
    broker: Broker, log: StreamNames, array: str, sorting: Sorting, *, wait_seconds: float = _WAIT_SECONDS
) -> Iterator[tuple[Message | None, list[object]]]:
    """Each message of an array with the facts that it completes, from where the sorting is on.

    None where nothing came for so long; time is told by whoever published. A `LinkError` ends it.
    """
    reader = broker.read(log.stream, log.subject(array), sorting.resume_at)
    while True:
        messages = reader.take(most=_MESSAGES, seconds=wait_seconds)
        for message in messages:
            yield message, sorted_facts(message, sorting)
        if not messages:
            yield None, []


def arrays_in(broker: Broker, log: StreamNames) -> list[str]:
    """Those of which a log holds something."""
    return sorted(subject.rpartition(".")[2] for subject in broker.subjects(log.stream, log.subject("*")))


def require_known(broker: Broker, log: StreamNames, array: str) -> None:
    """A `SourceError` if nobody ever published this array."""
    known = arrays_in(broker, log)
    if array not in known:
        raise SourceError(unknown_array(array, known, where=f"the log {log.stream}"))


def unknown_array(array: str, known: list[str], *, where: str) -> str:
    """That there is no such array, and which was meant."""
    meant = get_close_matches(array, known, n=1)
    listed = f"known are {', '.join(known[:10])}" if known else "it is empty"
    cure = f"did you mean {meant[0]}?" if meant else "start gemmed publish there, or correct the name"
    return f"array {array!r} is not in {where}, {listed}; {cure}"


def sorted_facts(message: Message, sorting: Sorting) -> list[object]:
    """What a message completes; one that is damaged, or fits no other, is told, and what it held becomes a gap."""
    try:
        parcel = unpacked(message.data)
    except WrongVersion:
        raise
    except SourceError as error:
        return _unusable(message, sorting, str(error))
    why = sorting.contradiction(parcel)
    return _unusable(message, sorting, why) if why else sorting.push(message.sequence, parcel)


def _unusable(message: Message, sorting: Sorting, why: str) -> list[object]:
    told = [] if sorting.was_seen(message.sequence) else [SourceTrouble(f"message {message.sequence}", why)]
    return [*told, *sorting.push(message.sequence, None)]
