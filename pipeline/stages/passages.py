"""From decisions about segments to passages: somebody goes by."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import exp, log, sqrt

import numpy as np
from numpy.typing import NDArray

from pipeline.core.checkpoint import value
from pipeline.core.errors import SettingsError
from pipeline.core.events import (
    UNUSABLE_ROLES,
    Decision,
    Exclusion,
    Mask,
    Movement,
    Numbers,
    Outcome,
    Passage,
    PassageEnd,
    PassageEnded,
    PassageStarted,
    PassageUpdated,
    Peak,
    PresenceAudited,
    RecordingFinished,
    RecordingStarted,
    Role,
    Samples,
)
from pipeline.core.framing import Grid
from pipeline.core.passages import QUIET_SECONDS, verdict_of
from pipeline.stages.cadence import CONFIDENT, cadence
from pipeline.stages.movement import movement

LONGEST_SECONDS = 90.0
"""Whoever is heard for longer does not pass by: the background has changed."""
UPDATE_SECONDS = 10.0
AUDIT_SECONDS = (3600.0, 60.0)
"""Usual length of an audit, and the least at the end of a recording."""
_PAST_SEGMENTS = 40
"""How far back the start of a passage may be moved."""
_CADENCE_SECONDS = 40.0
_TEMPERING_PER_SECOND = 0.04
"""Segments of one passage repeat each other: so much of the evidence of a second of new sound counts."""
_SMALLEST = 1e-6


@value
@dataclass(slots=True, eq=False)
class PassageSegment:
    """What a passage takes from a segment."""

    start: int
    stop: int
    presence: float
    log_probabilities: dict[str, float]
    is_decided: bool
    roles: tuple[Role, ...]
    levels_db: Numbers  # (sensors,): above the background, NaN where a sensor has no part
    p_known: float | None
    onsets: Samples  # (sensors, frames), NaN where a sensor is not usable

    @property
    def probability(self) -> float:
        return 1 / (1 + exp(-self.presence))


@value
@dataclass(slots=True, eq=False)
class Audit:
    """Rises of the evidence without a passage, in the time since they were reported."""

    starts: NDArray[np.int64]  # (thresholds,)
    risen: Mask  # (thresholds,): reached since the evidence was low
    samples: int = 0
    sample: int = 0


@value
@dataclass(slots=True, eq=False)
class OpenPassage:
    """A passage that goes on, in sums over its segments."""

    id: str
    start: int
    stop: int
    last_somebody: int
    """End of the last segment with somebody."""
    told_at: int = 0
    told_label: str | None = None
    segments: int = 0
    decided: int = 0
    presence: float = 0.0
    evidence: dict[str, float] = field(default_factory=dict)
    roles: Counter[tuple[int, Role]] = field(default_factory=Counter)
    peaks: dict[int, tuple[float, int]] = field(default_factory=dict)
    p_known: float = 0.0
    p_known_segments: int = 0
    onsets: list[Samples] = field(default_factory=list)
    levels: list[tuple[int, Numbers]] = field(default_factory=list)
    pending: list[PassageSegment] = field(default_factory=list)
    """Segments since the last one with somebody: part of the passage only if somebody is heard again."""


class Passages:
    """Starts, updates and ends passages by the evidence that somebody is there.

    A passage starts when the `sustained` evidence of the last segments reaches `threshold`; its start is moved back to
    the first of the segments that led to it. It goes on while the sustained evidence is at least `least`, and ends
    after four seconds without, or after 90 s: then the background has changed. Its verdict adds the log-probabilities
    of the classes over its segments, each weighted by the probability that somebody was there.
    """

    accepts = (RecordingStarted, Decision, RecordingFinished)
    remembers = ("_recording", "_past", "_open", "_is_blocked", "_audit")

    def __init__(
        self,
        grid: Grid,
        *,
        threshold: float,
        least: float,
        sustained: Callable[[Sequence[float]], float],
        n_mels: int,
        least_confidence: float = 0.6,
        positions_m: Sequence[tuple[float, float]] = (),
        audited: Sequence[float] = (),
    ) -> None:
        if not least <= threshold:
            raise SettingsError(f"threshold={threshold} must be at least {least}, the evidence that a passage needs")
        self._grid, self._threshold, self._least = grid, threshold, least
        self._sustained = sustained
        self._least_confidence = least_confidence
        self._audited = np.array([one for one in audited if one < threshold], np.float64)
        self._positions = np.array(positions_m, np.float64).reshape(-1, 2)
        self._decibels = 1 / sqrt(n_mels)
        self._quiet, self._longest, self._update = (
            round(seconds * grid.rate_hz) for seconds in (QUIET_SECONDS, LONGEST_SECONDS, UPDATE_SECONDS)
        )
        self._audit_every, self._audit_least = (round(one * grid.rate_hz) for one in AUDIT_SECONDS)
        self._tempering = _TEMPERING_PER_SECOND * grid.stride / grid.rate_hz
        self._edge = grid.segment // 4
        self._most_onsets = max(1, round(_CADENCE_SECONDS * grid.rate_hz / grid.stride))
        self._forget()

    def push(self, item: RecordingStarted | Decision | RecordingFinished, /) -> list[object]:
        if isinstance(item, RecordingFinished):
            return [*self.flush(), item]  # which is the last that is said of a recording
        if isinstance(item, RecordingStarted):
            ended = self.flush()
            self._recording = item.recording
            return [*ended, item]
        if item.presence is None:
            return [item]
        segment = self._segment(item, item.presence)
        return [*self._missed(segment), item, *self._heard(segment)]

    def flush(self) -> list[object]:
        told: list[object] = []
        if self._open is not None:
            told.append(self._ended(self._open, self._open.stop, PassageEnd.RECORDING_ENDED))
        told += self._end_audit()
        self._forget()
        return told

    def _forget(self) -> None:
        self._recording = ""
        self._audit = Audit(np.zeros(len(self._audited), np.int64), np.zeros(len(self._audited), np.bool_))
        self._past: deque[PassageSegment] = deque(maxlen=_PAST_SEGMENTS)
        self._open: OpenPassage | None = None
        self._is_blocked = False

    def take_over(self, other: Passages) -> list[object]:
        """Continue the passage of another model's stage; its audit ends, as it counted rises to other thresholds."""
        self._recording, self._past = other._recording, other._past
        self._open, self._is_blocked = other._open, other._is_blocked
        return other._end_audit()

    def _end_audit(self) -> list[object]:
        return [self._told_audit(self._audit.sample)] if self._audit.samples >= self._audit_least else []

    def _segment(self, decision: Decision, presence: float) -> PassageSegment:
        features = decision.features
        views, usable = features.views, np.array([role not in UNUSABLE_ROLES for role in decision.roles])
        assert views is not None
        levels = np.where(usable, (views.summary[:, 0] - views.background[:, 0]) * self._decibels, np.nan)
        known = decision.verdicts.screened.p_known[usable]
        known = known[np.isfinite(known)]
        probabilities = zip(decision.classes, decision.outcome.probabilities or (), strict=False)
        return PassageSegment(
            features.span.start,
            features.span.stop,
            presence,
            {name: log(max(one, _SMALLEST)) for name, one in probabilities},
            decision.outcome.label is not None,
            decision.roles,
            levels.astype(np.float64),
            float(np.median(known)) if len(known) else None,
            np.where(usable[:, None], views.onsets, np.float32(np.nan)),
        )

    def _missed(self, segment: PassageSegment) -> list[object]:
        """What a gap before the segment ends: sound that is missing for the quiet time is nobody."""
        if self._past and segment.start - self._past[-1].stop >= self._quiet:
            self._past.clear()
            self._is_blocked = False
        if self._open is not None and segment.start - self._open.last_somebody >= self._quiet:
            return [self._end(segment.start, PassageEnd.QUIET)]
        return []

    def _heard(self, segment: PassageSegment) -> list[object]:
        self._past.append(segment)
        evidence = self._sustained([one.presence for one in self._past])
        return [*self._followed(segment, evidence), *self._audit_now(segment, evidence)]

    def _followed(self, segment: PassageSegment, evidence: float) -> list[object]:
        """What the evidence starts, updates or ends."""
        if self._open is None:
            if self._is_blocked:
                self._is_blocked = evidence >= self._least
                if not self._is_blocked:
                    self._past.clear()
            elif evidence >= self._threshold:
                return [self._start(segment)]
            return []
        return self._go_on(self._open, segment, evidence)

    def _audit_now(self, segment: PassageSegment, evidence: float) -> list[object]:
        """Count rises of the evidence while there is no passage; those that lead to one are not of the background."""
        audit = self._audit
        audit.sample = segment.stop
        if self._open is not None or self._is_blocked:
            audit.risen[:] = False
            return []
        audit.samples += self._grid.stride
        if evidence >= self._least:
            audit.risen |= evidence >= self._audited
        else:
            audit.starts += audit.risen
            audit.risen[:] = False
        if audit.samples < self._audit_every:
            return []
        told = self._told_audit(segment.stop)
        audit.samples, audit.starts[:] = 0, 0
        return [told]

    def _told_audit(self, sample: int) -> PresenceAudited:
        audit = self._audit
        return PresenceAudited(
            sample,
            audit.samples / self._grid.rate_hz,
            self._threshold,
            tuple(audit.starts.tolist()),
            tuple(self._audited.tolist()),
        )

    def _start(self, segment: PassageSegment) -> PassageStarted:
        led = self._led()
        start = led[0].start + self._edge
        opened = OpenPassage(f"{self._recording}.p{start}", start, start, segment.stop, told_at=segment.stop)
        for one in led:
            self._add(opened, one)
        self._open = opened
        passage = self._told(opened)
        opened.told_label = passage.outcome.label
        return PassageStarted(segment.stop, passage)

    def _led(self) -> list[PassageSegment]:
        """The segments that led to the start of a passage: back to where two in a row show nobody."""
        past = list(self._past)
        first = len(past) - 1
        while first > 0 and max(past[first - 1].presence, past[max(first - 2, 0)].presence) >= self._least:
            first -= 1
        while past[first].presence < self._least:
            first += 1
        return past[first:]

    def _go_on(self, opened: OpenPassage, segment: PassageSegment, evidence: float) -> list[object]:
        opened.pending.append(segment)
        if evidence >= self._least:
            opened.last_somebody = segment.stop
            self._take_pending(opened)
        elif segment.stop - opened.last_somebody >= self._quiet:
            return [self._end(segment.stop, PassageEnd.QUIET)]
        if segment.stop - opened.start > self._longest:
            self._is_blocked = True
            return [self._end(segment.stop, PassageEnd.BACKGROUND_CHANGED)]
        return self._updated(opened, segment)

    def _take_pending(self, opened: OpenPassage) -> None:
        """Add what has waited, up to the last segment with somebody."""
        last = max((n for n, one in enumerate(opened.pending, start=1) if one.presence >= self._least), default=0)
        for one in opened.pending[:last]:
            self._add(opened, one)
        del opened.pending[:last]

    def _updated(self, opened: OpenPassage, segment: PassageSegment) -> list[object]:
        label = verdict_of(opened.evidence, self._least_confidence).label
        if label == opened.told_label and segment.stop - opened.told_at < self._update:
            return []
        opened.told_at, opened.told_label = segment.stop, label
        return [PassageUpdated(segment.stop, self._told(opened))]

    def _end(self, sample: int, reason: PassageEnd) -> PassageEnded:
        assert self._open is not None
        ended = self._ended(self._open, sample, reason)
        self._open = None
        if reason is PassageEnd.QUIET:
            # No moment is part of two passages.
            later = [one for one in self._past if one.start + self._edge >= ended.passage.stop]
            self._past = deque(later, maxlen=_PAST_SEGMENTS)
        return ended

    def _ended(self, opened: OpenPassage, sample: int, reason: PassageEnd) -> PassageEnded:
        return PassageEnded(sample, self._told(opened), reason)

    def _add(self, opened: OpenPassage, segment: PassageSegment) -> None:
        weight = segment.probability
        opened.stop = segment.stop - self._edge
        opened.segments += 1
        opened.decided += segment.is_decided
        opened.presence += weight
        if opened.evidence.keys() != segment.log_probabilities.keys() and segment.log_probabilities:
            opened.evidence = dict.fromkeys(segment.log_probabilities, 0.0)  # another model, of other classes
        for name, log_probability in segment.log_probabilities.items():
            opened.evidence[name] += self._tempering * weight * log_probability
        middle = (segment.start + segment.stop) // 2
        for sensor, (role, level) in enumerate(zip(segment.roles, segment.levels_db.tolist(), strict=True)):
            opened.roles[sensor, role] += 1
            if level == level and level > opened.peaks.get(sensor, (-np.inf, 0))[0]:
                opened.peaks[sensor] = level, middle
        if segment.p_known is not None:
            opened.p_known += segment.p_known
            opened.p_known_segments += 1
        opened.onsets = [*opened.onsets, segment.onsets][-self._most_onsets :]
        if len(self._positions):
            opened.levels.append((middle, segment.levels_db))

    def _told(self, opened: OpenPassage) -> Passage:
        found = cadence(np.concatenate(opened.onsets, axis=1), self._grid.hop_seconds)
        used = sorted({sensor for sensor, role in opened.roles if role is Role.USED})
        peaks = sorted((sample, sensor, level) for sensor, (level, sample) in opened.peaks.items())
        return Passage(
            id=opened.id,
            start=opened.start,
            stop=max(opened.stop, opened.start),
            outcome=self._outcome(opened),
            evidence=dict(opened.evidence),
            presence=opened.presence / opened.segments,
            segments=opened.segments,
            decided=opened.decided,
            sensors_used=tuple(used),
            excluded=_exclusions(opened),
            peaks=tuple(Peak(sensor, sample, level) for sample, sensor, level in peaks),
            p_known=opened.p_known / opened.p_known_segments if opened.p_known_segments else None,
            cadence_per_minute=found.per_minute if found and found.confidence >= CONFIDENT else None,
            cadence_confidence=found.confidence if found else None,
            movement=self._movement(opened),
        )

    def _outcome(self, opened: OpenPassage) -> Outcome:
        outcome = verdict_of(opened.evidence, self._least_confidence)
        if opened.evidence or any(role is Role.UNTRAINED for _, role in opened.roles):
            return outcome
        return replace(outcome, reason="no usable sensor")

    def _movement(self, opened: OpenPassage) -> Movement | None:
        if len(self._positions) < 3 or not opened.levels:
            return None
        seconds = np.array([sample for sample, _ in opened.levels]) / self._grid.rate_hz
        return movement(seconds, np.array([levels for _, levels in opened.levels]), self._positions)


def _exclusions(opened: OpenPassage) -> tuple[Exclusion, ...]:
    """Roles that kept a sensor out, with the share of segments, sensor by sensor."""
    found = [
        Exclusion(sensor, role, count / opened.segments)
        for (sensor, role), count in opened.roles.items()
        if role is not Role.USED
    ]
    return tuple(sorted(found, key=lambda one: (one.sensor, -one.share, one.role)))
