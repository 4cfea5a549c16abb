"""Passages as their events describe them: read from JSON, collected by id, joined across recordings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from math import exp, fsum, inf, isfinite
from typing import Any, Self

from pipeline.core.errors import UsageError
from pipeline.core.events import Outcome, PassageEnd

PASSAGE_EVENTS = ("passage_started", "passage_updated", "passage_ended")
INTERRUPTED = "interrupted"
"""End of a passage whose last event is not an end: the process was killed."""
NO_LABEL = "no label"
QUIET_SECONDS = 4.0
LEAST_CONFIDENCE = 0.6
_DIGITS = 6


def verdict_of(evidence: Mapping[str, float], least_confidence: float) -> Outcome:
    """Return the label and the probabilities of a passage from its tempered log-probabilities, summed by class."""
    if not evidence:
        return Outcome(None, None, None, "no classifier")
    probabilities = _softmax(evidence)
    label = max(probabilities, key=probabilities.__getitem__)
    probability = probabilities[label]
    log_odds = None
    if len(evidence) == 2:
        first, second = evidence.values()
        log_odds = second - first if isfinite(second) and isfinite(first) else None
    if probability < least_confidence:
        return Outcome(None, probability, log_odds, "too close to call", tuple(probabilities.values()))
    return Outcome(label, probability, log_odds, None, tuple(probabilities.values()))


def _softmax(evidence: Mapping[str, float]) -> dict[str, float]:
    largest = max(evidence.values())
    if not isfinite(largest):
        return dict.fromkeys(evidence, 1 / len(evidence))
    raised = {name: exp(value - largest) for name, value in evidence.items()}
    total = fsum(raised.values())
    return {name: value / total for name, value in raised.items()}


@dataclass(frozen=True, slots=True)
class PassagePart:
    """The stretch of one recording that a passage covers, under the id it has there."""

    passage: str
    recording: str
    start_sample: int
    stop_sample: int
    start_seconds: float
    end_seconds: float


@dataclass(frozen=True, slots=True)
class ExcludedSensor:
    """A sensor (counted from 1) that was not used in a share of the segments, and its role there."""

    sensor: int
    role: str
    share: float


@dataclass(frozen=True, slots=True)
class SensorPeak:
    """When a sensor (counted from 1) was loudest, in seconds of the passage's first recording, and its level."""

    sensor: int
    seconds: float
    level_db: float | None


@dataclass(frozen=True, slots=True)
class PassageRow:
    """One passage: where and when it was, its verdict and the sensors behind it.

    Seconds count from the start of the recording in which it began. `end` is None while the passage is going on.
    """

    passage: str
    recording: str
    start_seconds: float
    end_seconds: float
    start_time: datetime | None
    label: str | None
    probability: float | None
    reason: str | None
    probabilities: Mapping[str, float] | None
    evidence: Mapping[str, float]
    presence: float | None
    segments: int
    decided: int
    sensors_used: tuple[int, ...]
    sensors_excluded: tuple[ExcludedSensor, ...]
    peaks: tuple[SensorPeak, ...]
    p_known: float | None
    cadence_per_minute: float | None
    cadence_confidence: float | None
    movement: Mapping[str, Any] | None
    model: str | None
    end: str | None
    parts: tuple[PassagePart, ...]
    """One; several if it was joined across recordings."""

    @classmethod
    def of(cls, event: Mapping[str, Any], recording_started_at: datetime | None = None) -> Self:
        """Read a passage event; `recording_started_at` is the time of sample 0 of its recording."""
        try:
            return cls._read(event, recording_started_at)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            told = f"has no {error}" if isinstance(error, KeyError) else f"cannot be read: {error}"
            raise UsageError(
                f"event {event.get('type')!r} of passage {event.get('passage')!r} {told}; use events of this version"
            ) from error

    @classmethod
    def _read(cls, event: Mapping[str, Any], recording_started_at: datetime | None) -> Self:
        begin, end = float(event["start_seconds"]), float(event["end_seconds"])
        own = PassagePart(event["passage"], event["recording"], event["start_sample"], event["stop_sample"], begin, end)
        return cls(
            passage=event["passage"],
            recording=event["recording"],
            start_seconds=begin,
            end_seconds=end,
            start_time=_at(recording_started_at, begin),
            label=event["label"],
            probability=event["probability"],
            reason=event["reason"],
            probabilities=event["probabilities"],
            # JSON has no infinity: a class that was ruled out has null.
            evidence={name: -inf if value is None else float(value) for name, value in event["evidence"].items()},
            presence=event["presence"],
            segments=event["segments"],
            decided=event["decided"],
            sensors_used=tuple(event["sensors_used"]),
            sensors_excluded=tuple(
                ExcludedSensor(one["sensor"], one["role"], one["share"]) for one in event["sensors_excluded"]
            ),
            peaks=tuple(SensorPeak(one["sensor"], one["seconds"], one["level_db"]) for one in event["peaks"]),
            p_known=event["p_known"],
            cadence_per_minute=event["cadence_per_minute"],
            cadence_confidence=event["cadence_confidence"],
            movement=event["movement"],
            model=event["model"],
            end=event.get("end"),
            parts=(own,),
        )

    @property
    def duration_seconds(self) -> float:
        return self.end_seconds - self.start_seconds

    @property
    def end_time(self) -> datetime | None:
        return None if self.start_time is None else self.start_time + timedelta(seconds=self.duration_seconds)

    @property
    def recording_started_at(self) -> datetime | None:
        """The time of sample 0 of the recording in which it began."""
        return None if self.start_time is None else self.start_time - timedelta(seconds=self.start_seconds)

    def as_dict(self) -> dict[str, Any]:
        """Return all of it, ready for JSON."""
        return {
            "passage": self.passage,
            "recording": self.recording,
            "start_time": _written(self.start_time),
            "end_time": _written(self.end_time),
            "start_seconds": _rounded(self.start_seconds),
            "end_seconds": _rounded(self.end_seconds),
            "duration_seconds": _rounded(self.duration_seconds),
            "label": self.label,
            "probability": _rounded(self.probability),
            "reason": self.reason,
            "probabilities": None if self.probabilities is None else _numbers(self.probabilities),
            "evidence": _numbers(self.evidence),
            "presence": _rounded(self.presence),
            "segments": self.segments,
            "decided": self.decided,
            "sensors_used": list(self.sensors_used),
            "sensors_excluded": [
                {"sensor": one.sensor, "role": one.role, "share": one.share} for one in self.sensors_excluded
            ],
            "peaks": [{"sensor": one.sensor, "seconds": one.seconds, "level_db": one.level_db} for one in self.peaks],
            "p_known": _rounded(self.p_known),
            "cadence_per_minute": self.cadence_per_minute,
            "cadence_confidence": self.cadence_confidence,
            "movement": self.movement,
            "model": self.model,
            "end": self.end,
            "parts": [
                {
                    "passage": part.passage,
                    "recording": part.recording,
                    "start_sample": part.start_sample,
                    "stop_sample": part.stop_sample,
                }
                for part in self.parts
            ],
        }


def passages_of(events: Iterable[Mapping[str, Any]]) -> list[PassageRow]:
    """Collect the passages of a sequence of events, one row each, in the order in which they started.

    The last event of a passage counts. One without an end ends with its last update, as `interrupted`.
    """
    started_at: dict[str, datetime | None] = {}
    found: dict[str, PassageRow] = {}
    for event in events:
        if event["type"] == "recording_started":
            started_at[event["recording"]] = _parsed(event["started_at"])
        elif event["type"] in PASSAGE_EVENTS:
            row = PassageRow.of(event, started_at.get(event.get("recording", "")))
            found[row.passage] = row
    return [row if row.end is not None else replace(row, end=INTERRUPTED) for row in found.values()]


def joined(
    rows: Iterable[PassageRow], *, quiet_seconds: float = QUIET_SECONDS, least_confidence: float = LEAST_CONFIDENCE
) -> list[PassageRow]:
    """Join passages that a recording border cut in two, in the order of their first parts.

    A passage that ended because its recording ended continues with the nearest one that starts within `quiet_seconds`
    of its end in the recording that follows. Passages whose time is unknown stay as they are.
    """
    given = list(rows)
    whole = {row.passage: row for row in given}
    waiting: list[PassageRow] = []
    for row in sorted((row for row in given if row.start_time is not None), key=_by_time):
        # Rows come in the order of time: what is too long ago now continues nowhere.
        waiting = [one for one in waiting if _gap_seconds(one, row) <= quiet_seconds]
        before = [one for one in waiting if _follows(one, row, quiet_seconds)]
        if before:
            nearest = min(before, key=lambda one: (abs(_gap_seconds(one, row)), one.passage))
            waiting.remove(nearest)
            del whole[row.passage]
            row = whole[nearest.passage] = _merged(nearest, row, least_confidence)
        if row.end == PassageEnd.RECORDING_ENDED:
            waiting.append(row)
    return [whole[row.passage] for row in given if row.passage in whole]


def _by_time(row: PassageRow) -> tuple[datetime, str]:
    assert row.start_time is not None
    return row.start_time, row.passage


def _follows(one: PassageRow, other: PassageRow, quiet_seconds: float) -> bool:
    """Whether `other` is the rest of `one`: soon after it, in a recording that starts where that of `one` ended."""
    assert one.end_time is not None
    assert other.recording_started_at is not None
    # A recording that runs beside that of `one`, of another array, is not the one that follows.
    beside = other.recording_started_at < one.end_time - timedelta(seconds=quiet_seconds)
    known = {part.recording for part in one.parts}
    return not beside and other.recording not in known and abs(_gap_seconds(one, other)) <= quiet_seconds


def _gap_seconds(one: PassageRow, other: PassageRow) -> float:
    assert one.end_time is not None
    assert other.start_time is not None
    return (other.start_time - one.end_time).total_seconds()


def _merged(one: PassageRow, other: PassageRow, least_confidence: float) -> PassageRow:
    evidence = _added(one, other)
    verdict = verdict_of(evidence, least_confidence)
    assert one.recording_started_at is not None
    assert other.recording_started_at is not None
    later = (other.recording_started_at - one.recording_started_at).total_seconds()
    clearer = max(one, other, key=lambda row: row.cadence_confidence or 0.0)
    longer = max(one, other, key=lambda row: row.segments)
    return replace(
        one,
        end_seconds=max(one.end_seconds, other.end_seconds + later),
        label=verdict.label,
        probability=verdict.probability,
        reason=verdict.reason,
        probabilities=_by_class(evidence, verdict),
        evidence=evidence,
        presence=_mean(one, one.presence, other, other.presence),
        segments=one.segments + other.segments,
        decided=one.decided + other.decided,
        sensors_used=tuple(sorted({*one.sensors_used, *other.sensors_used})),
        sensors_excluded=_exclusions(one, other),
        peaks=_peaks([*one.peaks, *(replace(peak, seconds=peak.seconds + later) for peak in other.peaks)]),
        p_known=_mean(one, one.p_known, other, other.p_known),
        cadence_per_minute=clearer.cadence_per_minute,
        cadence_confidence=clearer.cadence_confidence,
        movement=longer.movement,
        model=other.model,
        end=other.end,
        parts=one.parts + other.parts,
    )


def _by_class(evidence: Mapping[str, float], verdict: Outcome) -> dict[str, float] | None:
    if verdict.probabilities is None:
        return None
    return dict(zip(evidence, verdict.probabilities, strict=True))


def _added(one: PassageRow, other: PassageRow) -> dict[str, float]:
    """Add evidence by class; between models of other classes, that of the longer part counts."""
    if not one.evidence or not other.evidence:
        return dict(one.evidence or other.evidence)
    if one.evidence.keys() != other.evidence.keys():
        return dict(max(one, other, key=lambda row: row.segments).evidence)
    return {name: round(value + other.evidence[name], _DIGITS) for name, value in one.evidence.items()}


def _mean(one: PassageRow, value: float | None, other: PassageRow, another: float | None) -> float | None:
    """Average over the segments of both."""
    known = [(row.segments, number) for row, number in ((one, value), (other, another)) if number is not None]
    total = sum(segments for segments, _ in known)
    if not known or not total:
        return value if value is not None else another
    return sum(segments * number for segments, number in known) / total


def _exclusions(one: PassageRow, other: PassageRow) -> tuple[ExcludedSensor, ...]:
    shares: dict[tuple[int, str], float] = {}
    total = max(one.segments + other.segments, 1)
    for row in (one, other):
        for excluded in row.sensors_excluded:
            key = excluded.sensor, excluded.role
            shares[key] = shares.get(key, 0.0) + excluded.share * row.segments / total
    return tuple(
        ExcludedSensor(sensor, role, round(share, _DIGITS)) for (sensor, role), share in sorted(shares.items())
    )


def _peaks(peaks: Sequence[SensorPeak]) -> tuple[SensorPeak, ...]:
    """Keep the loudest of each sensor, in the order of time."""
    loudest: dict[int, SensorPeak] = {}
    for peak in peaks:
        known = loudest.get(peak.sensor)
        if known is None or _level(peak) > _level(known):
            loudest[peak.sensor] = peak
    return tuple(sorted(loudest.values(), key=lambda peak: (peak.seconds, peak.sensor)))


def _level(peak: SensorPeak) -> float:
    return -inf if peak.level_db is None else peak.level_db


def _parsed(text: str | None) -> datetime | None:
    """Read a time; one without a zone is UTC."""
    if text is None:
        return None
    time = datetime.fromisoformat(text)
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _at(recording_started_at: datetime | None, seconds: float) -> datetime | None:
    if recording_started_at is None:
        return None
    start = recording_started_at if recording_started_at.tzinfo else recording_started_at.replace(tzinfo=UTC)
    return start + timedelta(seconds=seconds)


def _written(time: datetime | None) -> str | None:
    """Write a time as the journal does: UTC with milliseconds."""
    if time is None:
        return None
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _numbers(values: Mapping[str, float]) -> dict[str, float | None]:
    return {name: _rounded(value) for name, value in values.items()}


def _rounded(value: float | None) -> float | None:
    return None if value is None or not isfinite(value) else round(value, _DIGITS)


def probability_text(probability: float) -> str:
    """Write a probability in percent; never 100 %, which would claim too much."""
    return ">99 %" if probability > 0.99 else f"{100 * probability:.0f} %"
