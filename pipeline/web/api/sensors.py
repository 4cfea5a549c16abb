"""One sensor: how it is, how it was, and what the words for that mean."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from pydantic import AwareDatetime, BaseModel, Field

from pipeline.core.errors import NotFound, UsageError
from pipeline.core.sensor_state import Cause
from pipeline.reports.health_page.wording import evidence_words
from pipeline.storage.journal import Journal, StoredEvent, utc
from pipeline.storage.recordings import recording_row
from pipeline.storage.rollups import summaries
from pipeline.storage.stored_events import events_of_sensor, last_heard_decision, opened_fault
from pipeline.web.dependencies import Context, TheContext

router = APIRouter(prefix="/api/v1", tags=["sensors"])
_MOST_BINS = 360
_MOST_FAULTS = 200
_LONGEST = timedelta(days=400)
_EARLIEST, _LATEST = 1970, 9000


class CauseWords(BaseModel):
    """What may be the matter with a sensor."""

    state: str = Field(description="What a sensor is while this is the matter with it.")
    meaning: str
    cure: str


class Causes(BaseModel):
    """Every cause by its name."""

    causes: dict[str, CauseWords]


class OpenFault(CauseWords):
    """What is the matter with a sensor now, and what speaks for it."""

    cause: str
    since: str | None = Field(description="When it was seen first.")
    evidence: dict[str, float | None]
    evidence_words: str


class SensorAnswer(BaseModel):
    """How one sensor is, by the last that was told of it."""

    sensor: int
    sensors: int = Field(description="How many there are.")
    state: str
    liveness: str | None
    since: str | None = Field(description="Since when it is in this state.")
    told: str | None = Field(description="When that was told.")
    event: int | None = Field(description="The event that told it.")
    causes: list[OpenFault]
    last_decision: int | None = Field(
        description="The newest decision of the array; /events/{id}/explanation says why."
    )


class Level(BaseModel):
    mean: float | None
    min: float | None
    max: float | None


class Bin(BaseModel):
    """What a sensor was like in a stretch of time; there is none where nothing is known."""

    time: str
    seconds: int
    level_dbfs: Level
    weight: float | None = Field(description="The mean over its decisions.")
    refused: int = Field(description="Segments that the screen refused.")
    samples_lost: int
    worst: str | None = Field(description="The worst state that it was in.")
    states: dict[str, float] = Field(description="Seconds in each state.")


class Fault(BaseModel):
    """Something that was, or is, the matter with it."""

    event: int
    cause: str
    meaning: str
    begin: str
    end: str | None = Field(description="None while it goes on, or if nobody told.")
    evidence_words: str


class SensorHistory(BaseModel):
    """How one sensor was."""

    sensor: int
    begin: str
    end: str
    bins: list[Bin]
    faults: list[Fault] = Field(description="The newest first.")
    more_faults: bool = Field(description="Whether there were more than are told.")


Number = Annotated[int, Path(ge=1, le=64, description="Counted from 1.")]


@router.get("/causes")
async def causes() -> Causes:
    """What the names of causes mean, and what to do about each."""
    return Causes(causes={str(one): CauseWords(**_words(one)) for one in Cause})


def _words(cause: Cause) -> dict[str, str]:
    return {"state": str(cause.state), "meaning": cause.meaning, "cure": cause.cure}


@router.get("/sensors/{number}")
def sensor(context: TheContext, number: Number) -> SensorAnswer:
    """How a sensor is, and on which evidence."""
    _check(context, number)
    with context.reading() as journal:
        last = _last_state(journal, number)
        found = [] if last is None else [_found(Cause(name), last, journal) for name in last.body["causes"]]
        return SensorAnswer(
            sensor=number,
            sensors=context.settings.array.sensors,
            state=last.body["to"] if last else "unknown",
            liveness=last.body["liveness"] if last else None,
            since=_moment(last, "since_sample", journal) if last else None,
            told=last.time if last else None,
            event=last.id if last else None,
            causes=found,
            last_decision=last_heard_decision(journal),
        )


def _check(context: Context, number: int) -> None:
    if number > context.settings.array.sensors:
        raise NotFound(f"there is no sensor {number}; the array has 1 to {context.settings.array.sensors}")


def _last_state(journal: Journal, number: int) -> StoredEvent | None:
    """Return the last change of state of a sensor, or None."""
    return next(iter(events_of_sensor(journal, "state_changed", number, most=1)), None)


def _moment(event: StoredEvent, name: str, journal: Journal) -> str | None:
    """When a sample was heard that an event speaks of."""
    row = recording_row(journal, event.body["recording"])
    return None if row is None else utc(row.time(event.body[name]))


def _found(cause: Cause, state: StoredEvent, journal: Journal) -> OpenFault:
    opened = opened_fault(journal, state.body["recording"], state.body["sensor"], str(cause))
    evidence = state.body["evidence"].get(str(cause), {})
    return OpenFault(
        **_words(cause),
        cause=str(cause),
        since=_moment(opened, "since_sample", journal) if opened else None,
        evidence=evidence,
        evidence_words=evidence_words(evidence),
    )


@router.get("/sensors/{number}/history")
def history(
    context: TheContext,
    number: Number,
    begin: Annotated[AwareDatetime, Query(description="From when on, in ISO 8601.")],
    end: Annotated[AwareDatetime, Query(description="Until when.")],
) -> SensorHistory:
    """How a sensor was in a time: states, levels and weights in bins, and what was the matter with it."""
    _check(context, number)
    first, last = _utc(begin), _utc(end)
    if not timedelta(0) < end - begin <= _LONGEST:
        raise UsageError(f"{first} to {last} must be a time of at most {_LONGEST.days} days; choose another")
    with context.reading() as journal:
        rows = summaries(journal, begin, end, most_rows=_MOST_BINS)
        ended = events_of_sensor(journal, "fault_closed", number, most=_MOST_FAULTS + 1, since=first, until=last)
        faults = [*_open_faults(journal, number, last), *(_fault(one, journal) for one in ended[:_MOST_FAULTS])]
        return SensorHistory(
            sensor=number,
            begin=first,
            end=last,
            bins=[_bin(row, number) for row in rows if len(row["sensors"]) >= number],
            faults=sorted(faults, key=lambda one: one.begin, reverse=True),
            more_faults=len(ended) > _MOST_FAULTS,
        )


def _utc(moment: datetime) -> str:
    if not _EARLIEST < moment.year < _LATEST:
        raise UsageError(f"{moment} must lie between the years {_EARLIEST} and {_LATEST}; give a time when gemmed ran")
    return utc(moment)


def _bin(row: dict[str, Any], number: int) -> Bin:
    one = row["sensors"][number - 1]
    return Bin(time=row["time"], seconds=row["seconds"], states=one["seconds"], **{k: one[k] for k in _TAKEN})


_TAKEN = ("level_dbfs", "weight", "refused", "samples_lost", "worst")


def _open_faults(journal: Journal, number: int, until: str) -> list[Fault]:
    """Those that the last word about the sensor still knows, if they began in time."""
    last = _last_state(journal, number)
    if last is None:
        return []
    found = [_found(Cause(name), last, journal) for name in last.body["causes"]]
    return [
        Fault(
            event=last.id,
            cause=one.cause,
            meaning=one.meaning,
            begin=one.since or last.time,
            end=None,
            evidence_words=one.evidence_words,
        )
        for one in found
        if (one.since or last.time) < until
    ]


def _fault(event: StoredEvent, journal: Journal) -> Fault:
    return Fault(
        event=event.id,
        cause=event.body["cause"],
        meaning=Cause(event.body["cause"]).meaning,
        begin=_moment(event, "since_sample", journal) or event.time,
        end=_moment(event, "until_sample", journal),
        evidence_words=evidence_words(event.body["evidence"]),
    )
