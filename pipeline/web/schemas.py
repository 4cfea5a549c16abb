"""What the API answers; the description of the API is made from these."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

# As a list: the schema of a tuple is one that tools for OpenAPI do not understand.
_Stretch = Annotated[list[int], Field(min_length=2, max_length=2)]


class Answer(BaseModel):
    """Whatever is answered has its fields always, and may have more in a later version."""

    model_config = ConfigDict(extra="allow")


class Problem(BaseModel):
    """Why a request was not answered: the thing, its value, the rule and the cure."""

    error: str


class Event(BaseModel):
    """An event as events.schema.json describes it, with the id that no other event ever has."""

    model_config = ConfigDict(extra="allow")

    id: int
    run: str
    time: str
    type: str


class Events(BaseModel):
    """Some events, in the order in which they were told unless the newest were asked for first."""

    events: list[Event]
    last_id: int = Field(description="Of the newest event there is; ask for those after it to go on.")


class StatusAnswer(Answer):
    """How things stand."""

    running: bool
    age_seconds: float | None = Field(description="How long ago the daemon told this; none if it never did.")
    status: dict[str, Any] | None


class Spectrogram(BaseModel):
    """Bands of frequency by time: `data` is base64 of one byte for each (sensor, column, band)."""

    recording: str
    rate_hz: int
    sensors: list[int] = Field(description="Counted from 1.")
    start_sample: int
    hop: int = Field(description="Samples from column to column.")
    n_columns: int
    frequencies_hz: list[float]
    floor_db: float
    ceiling_db: float
    data: str
    missing: list[_Stretch] = Field(description="Stretches of which no sound is kept, in samples.")
