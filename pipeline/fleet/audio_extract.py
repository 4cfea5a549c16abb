"""Sound out of the log of an array, found without reading all that lies before it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from io import BytesIO

import numpy as np

from pipeline.core.errors import NotFound, SourceError, UsageError
from pipeline.core.events import Block, RecordingStarted, Samples
from pipeline.fleet.event_log import last_not_beyond
from pipeline.storage.labels import LabelSpan
from pipeline.transport.nats import Broker, Message
from pipeline.transport.wire import Header, StreamNames, WrongVersion, header, unpacked

_OUT_OF_ORDER_SECONDS, _OUT_OF_ORDER_MESSAGES = 30.0, 60
"""Messages are not further from their place than that."""
_FULL_SCALE = 32768.0
_MOST_FLAC_SENSORS = 8


@dataclass(frozen=True, slots=True, eq=False)
class Cut:
    """Sound of a recording without a gap, from a sample on; NaN where a sensor did not deliver."""

    recording: RecordingStarted
    start: int
    samples: Samples  # (sensors, time)

    def encoded(self) -> tuple[str, bytes]:
        """Suffix and content of a sound file with these samples, to the bit.

        NaN masks a sensor for whoever reads the file, and only floating point has it.
        """
        import soundfile

        file, rate_hz = BytesIO(), self.recording.rate_hz
        whole = self.samples * np.float32(_FULL_SCALE)
        rounded = np.clip(np.nan_to_num(whole), -_FULL_SCALE, _FULL_SCALE - 1).astype(np.int16)
        if not np.array_equal(rounded, whole):
            soundfile.write(file, self.samples.T, rate_hz, subtype="FLOAT", format="WAV")
            return ".wav", file.getvalue()
        kind = "FLAC" if len(rounded) <= _MOST_FLAC_SENSORS else "WAV"
        soundfile.write(file, rounded.T, rate_hz, subtype="PCM_16", format=kind)
        return f".{kind.lower()}", file.getvalue()


@dataclass(frozen=True, slots=True)
class LogPlace:
    """A recording of the log, and the place of one of its messages."""

    recording: RecordingStarted
    sequence: int

    def has(self, told: Header) -> bool:
        return told.recording.recording == self.recording.recording

    def is_heard_as(self, told: Header) -> bool:
        """Whether a message has the format of the recording; others nobody decides about."""
        one, other = told.recording, self.recording
        return (one.rate_hz, len(one.sensors)) == (other.rate_hz, len(other.sensors))


class ArrayLog:
    """The sound of one array. Recordings follow each other in it, and so do the samples of each."""

    def __init__(self, broker: Broker, log: StreamNames, array: str) -> None:
        self._broker, self._stream, self._subject = broker, log.stream, log.subject(array)
        self._array = array

    def find(self, name: str) -> LogPlace:
        """A recording by its name, by halves: between two messages of one recording there is no other."""
        first, last = self._at(1), self._broker.last(self._stream, self._subject)
        if first is None or last is None:
            raise NotFound(f"the log holds no sound of array {self._array!r}; start gemmed publish there")
        known: set[str] = set()
        spans = [(_place(first), _place(last))]
        while spans:
            (low, at_low), (high, at_high) = spans.pop()
            for sequence, recording in ((low, at_low), (high, at_high)):
                if recording is not None and recording.recording == name:
                    return LogPlace(recording, sequence)
            known |= {recording.recording for recording in (at_low, at_high) if recording is not None}
            if high - low < 2 or (at_low is not None and at_low == at_high):
                continue
            middle = (low + high) // 2
            between = self._at(middle)
            if between is None or between.sequence >= high:
                spans.append(((low, at_low), (middle, at_high)))
            else:
                spans += [((low, at_low), _place(between)), (_place(between), (high, at_high))]
        raise NotFound(self._unknown(name, sorted(known)))

    def _unknown(self, name: str, known: Sequence[str]) -> str:
        meant = get_close_matches(name, known, n=1)
        cure = f"did you mean {meant[0]}?" if meant else "what is older than keep_sound is gone; label sooner"
        some = ", ".join(known[-5:])
        which = some if len(known) <= 5 else f"{len(known)}, the last of them {some}"
        return f"recording {name!r} of array {self._array!r} is not in the log, which has {which}; {cure}"

    def messages(self, found: LogPlace) -> Iterator[Message]:
        """All of a recording."""
        before = self._last_not_beyond(lambda told, place: found.has(told) or place > found.sequence)
        sequence = 1 if before is None else before.sequence + 1
        while (one := self._at(sequence)) is not None:
            told = _told(one)
            if told is not None and found.has(told):
                yield one
            elif one.sequence > found.sequence:
                return
            sequence = one.sequence + 1

    def cut(self, found: LogPlace, moment: LabelSpan, *, around_seconds: float, step: int) -> Cut:
        """A moment of a recording, and so many seconds on either side of it as far as there is no gap.

        What comes before it is a whole number of steps long: where segments lie on a grid, the moment begins one.
        """
        around = round(around_seconds * found.recording.rate_hz)
        blocks = self._blocks(found, max(0, moment.start - around), moment.stop + around)
        run = next((run for run in _runs(blocks) if run[0].start <= moment.start and moment.stop <= run[-1].stop), None)
        if run is None:
            raise UsageError(self._missing(found, moment))
        first, samples = run[0].start, np.concatenate([_masked(block) for block in run], axis=1)
        start = moment.start - min(moment.start - first, around) // step * step
        return Cut(found.recording, start, samples[:, start - first : moment.stop + around - first])

    def _missing(self, found: LogPlace, moment: LabelSpan) -> str:
        """Why a moment cannot be cut."""
        rate_hz, name = found.recording.rate_hz, found.recording.recording
        begins, ends = self._bounds(found)
        told = f"{moment.start / rate_hz:g} to {moment.stop / rate_hz:g} s of {name}"
        if moment.start < begins:
            return (
                f"{told} is no longer in the log, where it begins at {begins / rate_hz:g} s; label sooner, or raise "
                "keep_sound"
            )
        if moment.stop > ends:
            return f"{told} was not heard, only {ends / rate_hz:g} s of it; label what was heard"
        return f"{told} has a gap, for sound was lost there; label what lies before or after it"

    def _bounds(self, found: LogPlace) -> tuple[int, int]:
        """The first sample of a recording in the log, and the one after the last."""
        before = self._last_not_beyond(lambda told, place: found.has(told) or place > found.sequence)
        first = self._placed(1 if before is None else before.sequence + 1)
        last = self._last_not_beyond(lambda told, place: not found.has(told) and place > found.sequence)
        assert first is not None
        assert last is not None
        end = header(last.data)
        return header(first.data).sample or 0, end.fields.get("stop") or end.sample or 0

    def _blocks(self, found: LogPlace, start: int, stop: int) -> list[Block]:
        """Those of a recording that have a part of these samples; of other messages only the header is read."""
        slack = round(_OUT_OF_ORDER_SECONDS * found.recording.rate_hz)
        before = self._last_not_beyond(lambda told, place: _is_after(told, place, found, start - slack))
        blocks, beyond = dict[int, Block](), 0
        reader = self._broker.read(self._stream, self._subject, 1 if before is None else before.sequence)
        for message in reader.to_the_end():
            told = _told(message)
            if told is None:
                continue
            if _has_part(told, found, start, stop):
                with suppress(SourceError):  # damaged: whoever decided has passed it over, too
                    fact = unpacked(message.data).fact
                    assert isinstance(fact, Block)
                    blocks.setdefault(fact.start, fact)
            beyond += _is_after(told, message.sequence, found, stop)
            if beyond > _OUT_OF_ORDER_MESSAGES:
                break
        reader.close()
        return [blocks[at] for at in sorted(blocks)]

    def _last_not_beyond(self, is_beyond: Callable[[Header, int], bool]) -> Message | None:
        end = self._broker.last_sequence(self._stream) + 1
        return last_not_beyond(self._placed, end, lambda one: is_beyond(header(one.data), one.sequence))

    def _placed(self, sequence: int) -> Message | None:
        """The first message from there on that says where in its recording it is."""
        while (one := self._at(sequence)) is not None:
            told = _told(one)
            if told is not None and told.sample is not None:
                return one
            sequence = one.sequence + 1
        return None

    def _at(self, sequence: int) -> Message | None:
        return self._broker.next(self._stream, self._subject, sequence)


def _told(message: Message) -> Header | None:
    """None of a message that is damaged."""
    try:
        return header(message.data)
    except WrongVersion:
        raise
    except SourceError:
        return None


def _place(message: Message) -> tuple[int, RecordingStarted | None]:
    told = _told(message)
    return message.sequence, None if told is None else told.recording


def _is_after(told: Header, sequence: int, found: LogPlace, sample: int) -> bool:
    """Whether a message comes after a sample of a recording."""
    if not found.has(told):
        return sequence > found.sequence
    return told.sample is not None and told.sample > sample


def _has_part(told: Header, found: LogPlace, start: int, stop: int) -> bool:
    if not found.has(told) or not found.is_heard_as(told) or told.fields["kind"] != "block":
        return False
    fields = told.fields
    return any(fields["delivered"]) and bool(fields["start"] < stop and start < fields["stop"])


def _runs(blocks: Sequence[Block]) -> list[list[Block]]:
    """Blocks that follow each other without a gap."""
    runs: list[list[Block]] = []
    for block in blocks:
        if runs and runs[-1][-1].stop == block.start:
            runs[-1].append(block)
        else:
            runs.append([block])
    return runs


def _masked(block: Block) -> Samples:
    return np.where(block.delivered[:, None], block.samples, np.float32(np.nan))
