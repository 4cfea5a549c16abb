"""`gemmed replay --verify`: what a daemon heard is decided about again, and every event compared with its journal."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import zip_longest
from typing import Any, Self

import numpy as np

from pipeline.core.choices import ARITHMETIC, Choices
from pipeline.core.errors import GemmedError, UsageError
from pipeline.core.event_json import EventLines
from pipeline.core.events import Block, Gap, ModelChanged, NoticeKind, Paced, RecordingStarted, Tick, TrustChanged
from pipeline.core.runner import Progress, run
from pipeline.model.hot_swap import ArrayInput, Switching
from pipeline.model.model import Model
from pipeline.runtime.state_dir import StateDirectory
from pipeline.storage.audio import SoundStore
from pipeline.storage.journal import Journal, StoredEvent
from pipeline.storage.recordings import known_recording, runs, stored_until
from pipeline.storage.stored_events import has_holes

_NOT_DECIDED = {*map(str, NoticeKind), "source_trouble"}
"""Events that do not come out of the stages."""
_FED = ("gap", "tick", "paced", "trust_changed", "model_changed")


@dataclass(frozen=True, slots=True)
class Verification:
    """How a recording compares with what is told of it; `why_not` if it could not be compared, or not all of it."""

    recording: str
    events: int
    decisions: int
    different: int
    first_difference: str | None = None
    why_not: str | None = None

    @property
    def equal(self) -> bool:
        return not self.different and self.why_not is None


def chosen_run(journal: Journal, asked: str) -> list[str]:
    """`last`, `all`, or the beginning of a run's name."""
    known = runs(journal)
    if not known:
        raise UsageError(f"{journal.path} knows no run; start gemmed run first")
    if asked in ("last", "all"):
        return known[-1:] if asked == "last" else known
    found = [name for name in known if name.startswith(asked)]
    if len(found) != 1:
        told = f"begins {len(found)} runs; write more of it" if found else f"is no run; the last ones are {known[-5:]}"
        raise UsageError(f"run {asked!r} {told}")
    return found


def verify(
    state: StateDirectory, journal: Journal, recording: str, *, progress: Progress | None = None
) -> Verification:
    """Decide about a recording again, with the same changes of models, and compare every event."""
    told = [event for event in journal.events(recording=recording) if event.type not in _NOT_DECIDED]
    n_decisions = sum(event.type == "decision" for event in told)
    if has_holes(journal, recording):
        return Verification(recording, len(told), n_decisions, 0, None, f"events of {recording} are no longer kept")
    rehearsal = _Rehearsal(journal, state, recording)
    if rehearsal.arithmetic != ARITHMETIC:
        other = (
            f"{recording} was decided with the arithmetic {rehearsal.arithmetic!r}, this gemmed has {ARITHMETIC!r}; "
            "verify it with the version and packages that decided"
        )
        return Verification(recording, len(told), n_decisions, 0, None, other)
    try:
        again = _told_again(rehearsal, progress)
    except GemmedError as error:
        return Verification(recording, len(told), n_decisions, 0, None, str(error))
    bodies = [event.body for event in told]
    missing = 0
    if rehearsal.is_unfinished:
        # A run that was killed, or still runs: its sound may go on beyond what it told, or not be stored yet.
        missing = max(0, len(bodies) - len(again))
        bodies, again = bodies[: len(again)], again[: len(bodies)]
    pairs = [(one, other) for one, other in zip_longest(bodies, again) if one != other]
    first = _difference(*pairs[0]) if pairs else None
    why_not = f"the sound of the last {missing} events is not finished yet" if missing and not pairs else None
    return Verification(recording, len(told), n_decisions, len(pairs), first, why_not)


def _told_again(rehearsal: _Rehearsal, progress: Progress | None) -> list[dict[str, Any]]:
    again: list[dict[str, Any]] = []
    lines, chain = EventLines(again.append, model=""), rehearsal.chain()
    if not rehearsal.is_unfinished:
        run(rehearsal, chain, [lines], progress=progress)
        return again
    # What would come of an end is not told of a recording that had none.
    for item in rehearsal:
        for fact in chain.push(item):
            lines.observe(fact)
        if progress is not None and isinstance(item, Block | Gap):
            progress(item.stop - item.start)
    return again


def _difference(told: dict[str, Any] | None, again: dict[str, Any] | None) -> str:
    if told is None or again is None:
        return f"{'only again' if told is None else 'only told'}: {json.dumps(again or told)}"
    names = [name for name in {**told, **again} if told.get(name) != again.get(name)]
    return f"{told['type']} at {told.get('start_sample', told.get('sample'))}: " + ", ".join(
        f"{name} was {told.get(name)}, is {again.get(name)}" for name in names
    )


class _Rehearsal:
    """A source that gives what the daemon's gave, in the same order."""

    def __init__(self, journal: Journal, state: StateDirectory, recording: str) -> None:
        self._journal, self._store, self._recording = journal, SoundStore(state.sound, journal), recording
        self._row = known_recording(journal, recording)
        self._load: Callable[[str], Model] = lru_cache(maxsize=2)(lambda name: Model.load(state.models / name))

    @property
    def arithmetic(self) -> str:
        return str(json.loads(self._row.choices).get("arithmetic", "1 scipy"))

    @property
    def is_unfinished(self) -> bool:
        return self._row.samples is None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def chain(self) -> Switching:
        """As it was when the recording began."""
        first = next((event.body["model"] for event in self._journal.events(
            recording=self._recording, types=["model_changed"], most=1)), None)  # fmt: skip
        model = self._load(first) if first else None
        hearing = ArrayInput.of(model) if model else ArrayInput.usual(self._row.rate_hz, self._row.sensors)
        return Switching(hearing, Choices.from_dict(json.loads(self._row.choices)), model, load=self._load)

    def __iter__(self) -> Iterator[object]:
        sensors = tuple(str(number + 1) for number in range(self._row.sensors))
        yield RecordingStarted(self._recording, self._row.rate_hz, sensors, self._row.time(0))
        position = 0
        for event in self._fed():
            yield from self._sound(position, event.body["start_sample"])
            yield _fact(event.type, event.body)
            position = event.body["stop_sample"] if event.type == "gap" else event.body["start_sample"]
        yield from self._sound(position, max(position, stored_until(self._journal, self._recording)))

    def _fed(self) -> Iterator[StoredEvent]:
        """What else came in beside the sound; what the stages themselves say of trust comes out of them again."""
        fed = list(self._journal.events(recording=self._recording, types=_FED))
        begun = next((n for n, event in enumerate(fed) if event.type == "model_changed"), 0)
        for event in fed[begun:]:
            if event.type != "trust_changed" or event.body["by"] == "operator":
                yield event

    def _sound(self, start: int, stop: int) -> Iterator[Block]:
        for fact in self._store.read(self._recording, start, stop) if stop > start else ():
            if isinstance(fact, Gap):
                raise UsageError(f"sound from sample {fact.start} to {fact.stop} of {self._recording} is not kept")
            yield fact


def _fact(kind: str, body: Mapping[str, Any]) -> object:
    start = body["start_sample"]
    if kind == "gap":
        return Gap(start, body["stop_sample"], body["reason"], body["recorded"])
    if kind == "tick":
        return Tick(start, body["waited_seconds"])
    if kind == "paced":
        return Paced(start, body["seconds"], body["samples"])
    if kind == "trust_changed":
        return TrustChanged(start, np.array(body["trusted"], np.bool_))
    return ModelChanged(start, body["model"] or "")
