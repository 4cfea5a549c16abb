"""Hand-made facts of passages, and their events as the real observer writes them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from pipeline.core.event_json import EventLines
from pipeline.core.events import (
    Exclusion,
    Passage,
    PassageEnd,
    PassageEnded,
    PassageStarted,
    PassageUpdated,
    Peak,
    RecordingFinished,
    RecordingStarted,
    Role,
)
from pipeline.core.passages import PassageRow, passages_of, verdict_of

RATE = 1000
MODEL = "0123456789ab"


def passage(
    recording: str,
    start: float,
    end: float,
    evidence: dict[str, float] | None = None,
    *,
    segments: int = 10,
    used: tuple[int, ...] = (0, 1),
    excluded: tuple[Exclusion, ...] = (Exclusion(2, Role.MASKED, 1.0),),
    peaks: tuple[Peak, ...] = (),
    cadence: tuple[float, float] | None = None,
    rate_hz: int = RATE,
) -> Passage:
    """A passage from second to second, whose verdict is that of its evidence."""
    evidence = {"human": -0.1, "human+animal": -2.4} if evidence is None else evidence
    per_minute, confidence = cadence or (None, None)
    return Passage(
        id=f"{recording}.p{round(start * rate_hz)}",
        start=round(start * rate_hz),
        stop=round(end * rate_hz),
        outcome=verdict_of(evidence, 0.6),
        evidence=evidence,
        presence=0.9,
        segments=segments,
        decided=segments - 1,
        sensors_used=used,
        excluded=excluded,
        peaks=peaks,
        p_known=0.5,
        cadence_per_minute=per_minute,
        cadence_confidence=confidence,
    )


def facts(
    recording: str,
    *passages: Passage,
    started_at: datetime | None = None,
    seconds: float = 60.0,
    last_end: PassageEnd = PassageEnd.QUIET,
    rate_hz: int = RATE,
) -> list[object]:
    """A recording of three sensors with its passages: each starts, is updated and ends."""
    told: list[object] = [RecordingStarted(recording, rate_hz, ("1", "2", "3"), started_at)]
    for one in passages:
        end = last_end if one is passages[-1] else PassageEnd.QUIET
        told += [PassageStarted(one.start + 1, one), PassageUpdated(one.stop, one), PassageEnded(one.stop, one, end)]
    return [*told, RecordingFinished(recording, round(seconds * rate_hz), "")]


def events(told: Iterable[object]) -> list[dict[str, Any]]:
    """Lines of JSON as `gemmed replay` writes them."""
    found: list[dict[str, Any]] = []
    lines = EventLines(found.append, model=MODEL)
    for fact in told:
        lines.observe(fact)
    return found


def rows(*told: object) -> list[PassageRow]:
    return passages_of(events(told))
