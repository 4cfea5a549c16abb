"""Sound that is kept, and pictures of it."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from fastapi.responses import Response

from pipeline.web.audio import as_spectrogram, as_wav, latest, stretch
from pipeline.web.dependencies import Laborious, TheContext
from pipeline.web.schemas import Spectrogram

router = APIRouter(prefix="/api/v1", tags=["sound"], dependencies=[Laborious])

Recording = Annotated[str, Path(max_length=200, description="The name of a recording, as events tell it.")]
Start = Annotated[int, Query(ge=0, le=2**62, description="The first sample.")]
Stop = Annotated[int, Query(ge=1, le=2**62, description="The sample behind the last.")]
Sensor = Annotated[int | None, Query(ge=1, le=64, description="Counted from 1; all if none is given.")]

WAV: dict[int | str, dict[str, Any]] = {
    200: {"content": {"audio/wav": {"schema": {"type": "string", "format": "binary"}}}}
}


@router.get("/sound/{recording}", response_class=Response, responses=WAV)
def sound(
    context: TheContext,
    recording: Recording,
    start: Start,
    stop: Stop,
    sensor: Sensor = None,
    normalise: Annotated[bool, Query(description="As loud as it can be.")] = False,
) -> Response:
    """A stretch of a recording as WAV."""
    found = stretch(context, recording, start, stop)
    return wav(as_wav(found, sensor, normalise=normalise), lasting=not found.missing)


def wav(sound: bytes, *, lasting: bool) -> Response:
    """What was heard never changes, but what is missing may still be being written."""
    headers = {"Cache-Control": "private, max-age=3600"} if lasting else None
    return Response(sound, media_type="audio/wav", headers=headers)


@router.get("/spectrogram/{recording}")
def spectrogram(
    context: TheContext, recording: Recording, start: Start, stop: Stop, sensor: Sensor = None
) -> Spectrogram:
    """The same as a picture."""
    return as_spectrogram(stretch(context, recording, start, stop), sensor)


@router.get("/spectrogram")
def latest_spectrogram(
    context: TheContext, seconds: Annotated[float, Query(ge=1, le=60, description="Length.")] = 20.0
) -> Spectrogram:
    """The last seconds of the recording that goes on, including the piece that is being written."""
    return as_spectrogram(latest(context, seconds), None)
