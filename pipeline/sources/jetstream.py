"""The log of an array as the daemon's source: its recordings get names of their own, and it can be stopped."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Self

from pipeline.core.errors import LinkError, SourceError
from pipeline.core.events import Block, Gap, Idle, Notice, Paced, RecordingEnded, RecordingStarted, SourceTrouble, Tick
from pipeline.sources.live_folder import titled
from pipeline.sources.reconnecting import RetryPolicy
from pipeline.sources.reorder import Sorting, portions, require_known
from pipeline.transport.nats import Access, Broker, Message
from pipeline.transport.wire import StreamNames

_LOOK_UP_SECONDS = 0.25


class StreamedArray:
    """Plays what was published of an array, from where an earlier run was; a broker that is away is waited for.

    Nothing is lost meanwhile: it waits in the log. And nobody's sensors get worse by it: how time passes is told by
    whoever published. `place` says from where on somebody else must go on, once the present fact went all the way.
    """

    lost = 0

    def __init__(
        self,
        access: Access,
        log: StreamNames,
        array: str,
        *,
        rate_hz: int,
        n_sensors: int,
        place: str | None,
        from_newest: bool,
        name: Callable[[int], str],
        retry_policy: RetryPolicy,
    ) -> None:
        self._access, self._log, self._array = access, log, array
        self._rate_hz, self._n_sensors = rate_hz, n_sensors
        self._from_newest, self._name, self._retry_policy = from_newest, name, retry_policy
        self._recording: RecordingStarted | None = None
        self._page: RecordingStarted | None = None
        self._number = self._base = 0
        self._stopped = self._turn = False
        self._last: Message | None = None
        self.place: str | None = place
        self.position = 0
        """The next sample of the recording."""
        self.openings = 0
        self._facts = self._play()

    def __enter__(self) -> Self:
        return self

    def __iter__(self) -> Iterator[object]:
        return self._facts

    def __exit__(self, *exc: object) -> None:
        self._facts.close()

    def stop(self) -> None:
        self._stopped = True

    def turn_page(self) -> None:
        """Begin a new recording with the next sample."""
        self._turn = True

    @property
    def backlog_seconds(self) -> float:
        """How long ago that was published which is decided about now."""
        if self._last is None or not self._last.pending:
            return 0.0
        return max(0.0, (datetime.now(UTC) - self._last.time).total_seconds())

    def _play(self) -> Generator[object, None, None]:
        wait = self._retry_policy.retry_first_seconds
        while not self._stopped:
            self.openings += 1
            try:
                with Broker(self._access, name=f"gemmed run hears {self._array}") as broker:
                    for fact in self._heard(broker):
                        wait = self._retry_policy.retry_first_seconds
                        yield fact
            except (LinkError, SourceError) as error:
                yield SourceTrouble(f"array {self._array}", str(error))
                yield from self._pause(wait)
                wait = min(2 * wait, self._retry_policy.retry_most_seconds)

    def _pause(self, seconds: float) -> Iterator[Idle]:
        until = time.monotonic() + seconds
        while not self._stopped and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, _LOOK_UP_SECONDS))
            yield Idle()

    def _heard(self, broker: Broker) -> Iterator[object]:
        require_known(broker, self._log, self._array)
        identity = broker.identity(self._log.stream)
        # What did not go all the way when the last attempt ended is read again.
        known = json.loads(self.place) if self.place else {}
        sorting = Sorting.of(known) if known else Sorting()
        end, done = broker.last_sequence(self._log.stream), known.get("done", 0)
        if not known and self._from_newest:
            sorting.skip_to(end + 1)
        elif known and (known["log"] != identity or sorting.resume_at > end + 1):
            # Another log, or one that lost its end when the power failed.
            sorting.rewind()
            done = 0
        self._recording = sorting.recording
        place = sorting.state() | {"log": identity}
        self.place = json.dumps(place | {"done": done})
        for message, facts in portions(broker, self._log, self._array, sorting, wait_seconds=_LOOK_UP_SECONDS):
            self._last = message or self._last
            for number, fact in self._paged(facts, done):
                # Some messages complete several facts: whoever goes on among them reads those again, and leaves out
                # as many as went all the way.
                if 0 < number < len(facts):
                    self.place = json.dumps(place | {"done": number})
                elif number:
                    self.place = json.dumps(sorting.state() | {"log": identity})
                yield fact
            if facts or (message and not done):
                place, done = sorting.state() | {"log": identity}, 0
                self.place = json.dumps(place)
            if not facts:
                yield Idle()
            if self._stopped:
                return

    def _paged(self, facts: list[object], done: int) -> Iterator[tuple[int, object]]:
        """Those behind the first so many by the names and numbers of this run, each with its number; 0 for a page."""
        self._require_all_ours(facts)
        for number, fact in enumerate(facts, start=1):
            if isinstance(fact, RecordingStarted):
                self._recording, self._page = fact, None
            if number <= done:
                continue
            sample = _sample(fact)
            if sample is not None and (self._turn or self._page is None):
                yield 0, self._begin(sample)
            if isinstance(fact, RecordingEnded) and self._page is None:
                yield number, Idle()  # an earlier run heard all of it
            elif not isinstance(fact, RecordingStarted):
                yield number, self._shifted(fact)

    def _require_all_ours(self, facts: list[object]) -> None:
        """Every recording of which a page would begin, before anything of the message is heard."""
        heard = self._recording if self._page is None else None
        for fact in facts:
            if isinstance(fact, RecordingStarted):
                heard = fact
            if heard is not None and _sample(fact) is not None:
                self._require_ours(heard)

    def _require_ours(self, started: RecordingStarted) -> None:
        if (started.rate_hz, len(started.sensors)) != (self._rate_hz, self._n_sensors):
            raise SourceError(
                f"{self._array} is published with {len(started.sensors)} sensors at {started.rate_hz} Hz, the settings "
                f"say {self._n_sensors} at {self._rate_hz} Hz; change array.sensors and array.rate, or publish.array"
            )

    def _begin(self, sample: int) -> RecordingStarted:
        """A page of the recording that is heard now, from a sample on."""
        heard = self._recording
        assert heard is not None
        self._turn, self._base = False, sample
        self._number, self.position = self._number + 1, 0
        at = datetime.now(UTC)
        if heard.started_at is not None:
            at = heard.started_at + timedelta(seconds=sample / heard.rate_hz)
        self._page = replace(heard, recording=titled(self._name(self._number), heard.recording), started_at=at)
        return self._page

    def _shifted(self, fact: object) -> object:
        base = self._base
        if isinstance(fact, Block):
            self.position = fact.stop - base
            return Block(fact.start - base, fact.samples, fact.delivered)
        if isinstance(fact, Gap):
            self.position = fact.stop - base
            return replace(fact, start=fact.start - base, stop=fact.stop - base)
        if isinstance(fact, Tick | Paced):
            return replace(fact, sample=fact.sample - base)
        if isinstance(fact, Notice) and fact.sample is not None:
            return replace(fact, sample=fact.sample - base)
        if isinstance(fact, RecordingEnded):
            assert self._page is not None
            ended, self._page = RecordingEnded(self._page.recording, self.position), None
            return ended
        return fact


def _sample(fact: object) -> int | None:
    """Where in its recording a fact is; none for what is said beside it, and for its end."""
    if isinstance(fact, Block | Gap):
        return fact.start
    if isinstance(fact, Tick | Paced | Notice):
        return fact.sample
    return 0 if isinstance(fact, RecordingStarted) else None
