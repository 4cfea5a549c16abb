"""From settings to a source that can be opened."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pipeline.config import schema as chosen
from pipeline.core.protocols import Source
from pipeline.sources.reconnecting import Door, RetryPolicy

if TYPE_CHECKING:
    from pipeline.simulation import Day, Site
    from pipeline.sources.jetstream import StreamedArray

_BLOCK_SECONDS = 0.1
_START_HOUR, _FIRST_PASSAGE_SECONDS = 7.0, 5.0
"""Of a simulated day."""
_TICK_SECONDS = 1.0
"""A folder is asked at least so often whether to stop."""


def retry_policy(settings: chosen.Settings) -> RetryPolicy:
    source = settings.source
    return RetryPolicy(
        tick_seconds=source.tick_seconds,
        stuck_seconds=source.stuck_seconds,
        retry_first_seconds=source.retry_first_seconds,
        retry_most_seconds=source.retry_most_seconds,
    )


def door(settings: chosen.Settings) -> Door:
    """The door of a source that is heard as one stream."""
    source = settings.source
    if isinstance(source, chosen.PcmSourceSettings):
        return _pcm(settings, source)
    if isinstance(source, chosen.SoundcardSourceSettings):
        return _soundcard(settings, source)
    assert isinstance(source, chosen.SimulatedSourceSettings)
    return _simulated(settings, source)


def _block_samples(settings: chosen.Settings) -> int:
    return max(1, round(_BLOCK_SECONDS * settings.array.rate_hz))


def _pcm(settings: chosen.Settings, source: chosen.PcmSourceSettings) -> Door:
    def open_source() -> Source:
        from pipeline.sources.pcm import open_pcm

        return open_pcm(
            source.address,
            allow_remote=source.allow_remote,
            rate_hz=settings.array.rate_hz,
            n_sensors=settings.array.sensors,
            sample_format=source.format,
            gather_samples=_block_samples(settings),
            tick_seconds=source.tick_seconds,
        )

    waits_for_callers = source.address.endswith("?listen")
    return Door(
        name="standard input" if source.address == "-" else source.address,
        open=open_source,
        again=source.address != "-",
        idle_is_stuck=not waits_for_callers,
    )


def _soundcard(settings: chosen.Settings, source: chosen.SoundcardSourceSettings) -> Door:
    def open_source() -> Source:
        from pipeline.sources.soundcard import SoundcardSource

        return SoundcardSource(
            source.device,
            rate_hz=settings.array.rate_hz,
            n_sensors=settings.array.sensors,
            tick_seconds=source.tick_seconds,
            block_seconds=_BLOCK_SECONDS,
        )

    return Door(name=f"sound card {'by default' if source.device is None else source.device}", open=open_source)


def simulated_site(settings: chosen.Settings) -> dict[str, Any]:
    """As `site_of` takes it."""
    source = settings.source
    assert isinstance(source, chosen.SimulatedSourceSettings)
    return {
        "seed": source.seed,
        "rate_hz": settings.array.rate_hz,
        "seconds": 14.0,
        "n_sensors": settings.array.sensors,
        "spacing_m": 5.0,
        "surface": source.surface,
        "faults": source.faults,
        "fault_share": str(source.fault_share),
        "fault_seconds": source.fault_seconds,
        "clips": None,
    }


def _simulated(settings: chosen.Settings, source: chosen.SimulatedSourceSettings) -> Door:
    def open_source() -> Source:
        from pipeline.simulation.options import site_of
        from pipeline.sources.simulated import SimulatedSource

        site = site_of(**simulated_site(settings))
        return SimulatedSource(
            site if source.scene == "walks" else _day(site, source),
            seconds=source.seconds,
            block_samples=_block_samples(settings),
            speed=source.speed or None,
        )

    return Door(name="simulated array", open=open_source, again=False)


def _day(site: Site, source: chosen.SimulatedSourceSettings) -> Day:
    """A day that begins in the morning, with somebody about to pass."""
    from pipeline.simulation import Day

    return Day(
        site,
        passages_per_day=24 * source.passages_per_hour,
        distractors_per_day=24 * source.distractors_per_hour,
        start_hour=_START_HOUR,
        first_passage_seconds=_FIRST_PASSAGE_SECONDS,
    )


def source_name(settings: chosen.Settings) -> str:
    """Of a log, for whoever goes on there; which broker has it now does not matter."""
    source = settings.source
    return f"{settings.broker.name}/{source.array}" if isinstance(source, chosen.StreamSourceSettings) else source.kind


def streamed(
    settings: chosen.Settings, source: chosen.StreamSourceSettings, *, place: str | None, name: Callable[[int], str]
) -> StreamedArray:
    """The log of an array, from a place on."""
    from pipeline.sources.jetstream import StreamedArray
    from pipeline.transport.wire import StreamNames

    return StreamedArray(
        settings.broker.access(),
        StreamNames(settings.broker.name),
        source.array,
        rate_hz=settings.array.rate_hz,
        n_sensors=settings.array.sensors,
        place=place,
        from_newest=source.begin == "newest",
        name=name,
        retry_policy=retry_policy(settings),
    )


def folder(settings: chosen.Settings, source: chosen.FolderSourceSettings, known: set[str]) -> Source:
    """Files that are dropped there, those aside that were heard before."""
    from pipeline.sources.watch_folder import FolderSource

    return FolderSource(
        source.path,
        rate_hz=settings.array.rate_hz,
        n_sensors=settings.array.sensors,
        pattern=source.pattern,
        resample=source.resample,
        known=known,
        settle_seconds=source.settle_seconds,
        tick_seconds=min(source.tick_seconds, _TICK_SECONDS),
    )
