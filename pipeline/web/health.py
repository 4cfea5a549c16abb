"""Whether the array is watched over, in a word for machines and in reasons for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from pipeline.web.live import FRESH_SECONDS
from pipeline.web.metrics import seconds_of

_SOUND_SECONDS = 30.0
Status = Mapping[str, Any]


class Reason(BaseModel):
    """Why not, and what to do about it."""

    what: str
    cure: str


class Health(BaseModel):
    """Fine if there is no reason against it."""

    ok: bool
    reasons: list[Reason]

    @classmethod
    def unless(cls, reasons: list[Reason]) -> Health:
        return cls(ok=not reasons, reasons=reasons)


def health_of(status: Status | None, age_seconds: float | None) -> Health:
    """Whether facts still pass through all stages of the daemon."""
    return Health.unless(list(_stalled(status, age_seconds)))


def readiness_of(status: Status | None, age_seconds: float | None) -> Health:
    """Whether sound arrives, is decided about, and what was decided can be stored."""
    stalled = list(_stalled(status, age_seconds))
    return Health.unless(stalled if status is None else [*stalled, *_lacking(status)])


def _stalled(status: Status | None, age_seconds: float | None) -> Iterator[Reason]:
    if status is None or age_seconds is None:
        yield Reason(what="the daemon has told nothing yet", cure="wait some seconds, or start gemmed run")
    elif not status.get("running", True):
        yield Reason(what="the daemon does not run", cure="start gemmed run")
    elif age_seconds >= FRESH_SECONDS:
        yield Reason(
            what=f"nothing has gone through the daemon for {age_seconds:.0f} s",
            cure="look into its log, then restart it",
        )


def _lacking(status: Status) -> Iterator[Reason]:
    silent = _seconds_without_sound(status)
    if silent is None or silent > _SOUND_SECONDS:
        since = "yet" if silent is None else f"for {silent:.0f} s"
        yield Reason(
            what=f"no sound arrives {since}", cure=f"check the source of kind {status['source']} and its cable"
        )
    if not status["journal_writable"]:
        yield Reason(what="the journal cannot be written to", cure="make space, check the disk and its rights")
    if not status["model_decides"]:
        yield Reason(
            what="no model decides yet",
            cure="wait for the first one if it is being made, label some sound, or give training.model",
        )


def _seconds_without_sound(status: Status) -> float | None:
    """Until the status was told; files come when they come, and are not waited for."""
    if status["source"] == "folder":
        return 0.0
    arrived = [sensor["last_frame"] for sensor in status["sensors"] if sensor["last_frame"] is not None]
    return max(seconds_of(status["time"]) - max(arrived), 0.0) if arrived else None
