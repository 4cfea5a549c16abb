"""Passages: listed, counted by day and hour, and heard."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import islice
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

from fastapi import APIRouter, Depends, Path, Query
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from pipeline.core.errors import NotFound, UsageError
from pipeline.core.label_names import shown_name
from pipeline.core.passages import PassageRow
from pipeline.reports.passage_tables import as_csv
from pipeline.storage.clips import Clip
from pipeline.storage.journal import Journal, utc
from pipeline.storage.labels import parsed_time
from pipeline.storage.passage_history import (
    Brief,
    NightCounts,
    PassageQuery,
    by_day,
    earlier_than,
    kept_share,
    last_night,
    place_of,
)
from pipeline.storage.passage_sources import StoredPassages, as_flac, mixed
from pipeline.storage.recordings import first_started_at, known_recording
from pipeline.storage.review_queue import label_of
from pipeline.web.dependencies import Context, Laborious, TheContext

router = APIRouter(prefix="/api/v1", tags=["passages"])
_ALL_KEPT = 0.999
_MOST_DAYS = 400
_MOST_IN_NIGHT = 12
_Time = Annotated[str | None, Query(max_length=40, description="ISO 8601, or so long ago, such as -6h.")]
_Id = Annotated[str, Path(max_length=200, description="The id of a passage, or of a part of it.")]


class Labeled(BaseModel):
    """What a person said of a passage."""

    number: int
    label: str
    name: str = Field(description="As it is shown.")
    who: str
    time: str


class PassageAnswer(BaseModel):
    """A passage as `gemmed passages --json` gives it, how it is shown, and whether it can be heard."""

    model_config = ConfigDict(extra="allow")

    passage: str
    recording: str
    rate_hz: int
    start_time: str
    end_time: str
    label: str | None
    name: str | None = Field(description="The label as it is shown.")
    probability: float | None
    end: str | None = Field(description="Why it ended; null while it is going on.")
    labeled: Labeled | None
    sound: Literal["kept", "partly", "gone"]


class PassagesAnswer(BaseModel):
    """A portion of the passages that match, the newest first."""

    passages: list[PassageAnswer]
    total: int = Field(description="How many match.")
    next: str | None = Field(description="Give it as `before` to get the next portion; null: there are no more.")
    last_id: int = Field(description="Id of the newest event that is taken into account.")


class CalendarDay(BaseModel):
    """Passages that began on a local day, by label and by hour; nobody is not counted."""

    day: str
    passages: int
    labels: dict[str, int]
    hours: list[dict[str, int]]


class InNight(BaseModel):
    """A passage of the night, in short."""

    passage: str
    start_time: str
    label: str


class Night(BaseModel):
    """Passages of the last night that has begun, 20:00 to 08:00; nobody is not counted."""

    begin: str
    end: str
    passages: int
    labels: dict[str, int]
    first: list[InNight] = Field(description=f"The first of them, at most {_MOST_IN_NIGHT}, in the order of time.")


class Calendar(BaseModel):
    """Passages by local day and hour, the oldest day first; what people said counts before what was decided."""

    zone: str
    days: list[CalendarDay]
    night: Night
    names: dict[str, str] = Field(description="How each label is shown.")
    now: str = Field(description="The present of the array; a simulated one may be ahead of the clock.")
    known_since: str | None = Field(description="When the first recording began.")


def _wanted(
    context: TheContext,
    since: _Time = None,
    until: _Time = None,
    label: Annotated[list[str], Query(max_length=50, description="Only these labels, or `no label`.")] = [],  # noqa: B006
    least_probability: Annotated[float | None, Query(ge=0, le=1)] = None,
    search: Annotated[str, Query(max_length=200, description="Words of the id or of the label.")] = "",
    labeled: Annotated[bool | None, Query(description="Only those that a person labeled, or did not.")] = None,
    begun: Annotated[
        bool, Query(description="Only those that began from `since` to `until`; else those that overlap that time.")
    ] = False,
) -> PassageQuery:
    return PassageQuery(
        since=None if since is None else parsed_time(since),
        until=None if until is None else parsed_time(until),
        labels=label,
        least_probability=least_probability,
        search=search,
        labeled=labeled,
        begun=begun,
        names=context.settings.labels.names,
    )


TheWanted = Annotated[PassageQuery, Depends(_wanted)]


@router.get("/passages", dependencies=[Laborious])
def passages(
    context: TheContext,
    wanted: TheWanted,
    before: Annotated[str | None, Query(max_length=300, description="`next` of the portion before.")] = None,
    most: Annotated[int, Query(ge=1, le=500)] = 50,
) -> PassagesAnswer:
    """Passages, the newest first."""
    with context.reading() as journal:
        history = context.history(journal)
        last_id = journal.last_id
        found = [one for one in history.briefs if wanted.fits(one)]
        portion = list(islice(earlier_than(found, before), most + 1))
        shown = portion[:most]
        return PassagesAnswer(
            passages=[_answer(context, journal, row) for row in history.rows(shown)],
            total=len(found),
            next=place_of(shown[-1]) if len(portion) > most else None,
            last_id=last_id,
        )


@router.get(
    "/passages.csv",
    dependencies=[Laborious],
    response_class=Response,
    responses={200: {"content": {"text/csv": {"schema": {"type": "string"}}}}},
)
def table(context: TheContext, wanted: TheWanted) -> Response:
    """The passages that match as a table, the oldest first, with the columns of `gemmed passages --csv`."""
    with context.reading() as journal:
        history = context.history(journal)
        text = as_csv(history.rows([one for one in history.briefs if wanted.fits(one)]))
    name = f"passages-{datetime.now(UTC):%Y%m%d}.csv"
    return Response(text, media_type="text/csv", headers={"Content-Disposition": f'attachment; filename="{name}"'})


@router.get("/passages/calendar", dependencies=[Laborious])
def calendar(
    context: TheContext,
    days: Annotated[int, Query(ge=1, le=_MOST_DAYS)] = 31,
    zone: Annotated[str, Query(max_length=60, description="A time zone, such as Europe/Berlin.")] = "UTC",
) -> Calendar:
    """How many passages there were on each day and in each hour."""
    local, now = _zone(zone), datetime.now(UTC)
    with context.reading() as journal:
        briefs = context.history(journal).briefs
        first = first_started_at(journal)
    # A simulated array may be ahead of the clock.
    now = max(now, *(one.start for one in briefs[-1:])) if briefs else now
    night = last_night(briefs, local, now=now)
    known_since = None if first is None else utc(datetime.fromisoformat(first))
    return Calendar(
        zone=zone,
        days=[CalendarDay(**asdict(one)) for one in by_day(briefs, local, days=days, now=now)],
        night=_night(night),
        names={label: shown_name(label, context.settings.labels.names) for label in _labels(briefs)},
        now=utc(now),
        known_since=known_since,
    )


def _night(night: NightCounts) -> Night:
    return Night(
        begin=utc(night.begin),
        end=utc(night.end),
        passages=len(night.briefs),
        labels=night.labels,
        first=[
            InNight(passage=one.passage, start_time=utc(one.start), label=one.known_as)
            for one in night.briefs[:_MOST_IN_NIGHT]
        ],
    )


def _labels(briefs: Sequence[Brief]) -> list[str]:
    return sorted({label for one in briefs for label in (one.label, one.said) if label})


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError) as error:
        raise UsageError(f"zone={name!r} is no time zone; for example Europe/Berlin") from error


@router.get("/passages/{passage}")
def passage(context: TheContext, passage: _Id) -> PassageAnswer:
    """One passage."""
    with context.reading() as journal:
        return _answer(context, journal, context.history(journal).row(passage))


@router.get(
    "/passages/{passage}/clip",
    dependencies=[Laborious],
    response_class=Response,
    responses={200: {"content": {"audio/flac": {"schema": {"type": "string", "format": "binary"}}}}},
)
def clip(
    context: TheContext,
    passage: _Id,
    sensor: Annotated[int | None, Query(ge=1, le=64, description="Only this one, counted from 1.")] = None,
    mix: Annotated[bool, Query(description="The sensors used, mixed into one, as loud as can be.")] = False,
) -> Response:
    """The sound of a passage as FLAC: all sensors, one, or a mix to listen to."""
    with context.reading() as journal:
        row = context.history(journal).row(passage)
    sound = StoredPassages(context.state).sound(row)
    samples = mixed(sound, row) if mix else _chosen(sound, sensor)
    headers = {"Content-Disposition": f'inline; filename="{row.passage}.flac"'}
    if row.end is not None:
        headers["Cache-Control"] = "private, max-age=3600"
    return Response(as_flac(samples, sound.rate_hz), media_type="audio/flac", headers=headers)


def _chosen(sound: Clip, sensor: int | None) -> Any:
    if sensor is None:
        return sound.samples
    if sensor > sound.samples.shape[1]:
        raise NotFound(f"there is no sensor {sensor}; the array has 1 to {sound.samples.shape[1]}")
    return sound.samples[:, sensor - 1]


def _answer(context: Context, journal: Journal, row: PassageRow) -> PassageAnswer:
    names = context.settings.labels.names
    first = row.parts[0]
    said = label_of(journal, first.recording, first.start_sample, first.stop_sample)
    share = kept_share(journal, row)
    return PassageAnswer(
        **row.as_dict(),
        rate_hz=known_recording(journal, row.recording).rate_hz,
        name=None if row.label is None else shown_name(row.label, names),
        labeled=None
        if said is None
        else Labeled(
            number=said["number"],
            label=said["label"],
            name=shown_name(said["label"], names),
            who=said["who"],
            time=said["time"],
        ),
        sound="kept" if share >= _ALL_KEPT else "partly" if share > 0 else "gone",
    )
