"""One recording of the array: who passed, in which weather, and what befell the sensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from pipeline.core.errors import UsageError
from pipeline.core.events import Samples
from pipeline.core.framing import Grid
from pipeline.simulation.clips import Clips
from pipeline.simulation.faults import STEP_SECONDS, FaultEpisode, FaultPlan, afflict, draw_episodes
from pipeline.simulation.footsteps import SURFACES, Walker, footfalls
from pipeline.simulation.microphones import FULL_SCALE_PA, SELF_NOISE_DB, converted, response
from pipeline.simulation.propagation import REFERENCE_PA, Air, Floats, arrivals
from pipeline.simulation.subjects import (
    HUMAN,
    HUMAN_WITH_ANIMAL,
    NOBODY,
    Subject,
    draw_subject,
    pressure_of,
    voices,
)
from pipeline.simulation.weather import Weather, background, birds, draw_weather, wind_noise

ANIMAL_SHARE = 66 / 150  # of the subjects of the published recordings
_MOST_SAMPLES = 20_000_000
_MOST_SENSORS = 64


def array_positions(n_sensors: int, spacing_m: float = 5.0) -> Floats:
    """Sensors beside a track, on either side in turn, (sensors, 2)."""
    number = np.arange(n_sensors)
    return np.column_stack([(number - (n_sensors - 1) / 2) * spacing_m, 3.0 * (-1.0) ** number])


@dataclass(frozen=True, slots=True, eq=False)
class Site:
    """What does not change from recording to recording."""

    seed: int
    rate_hz: int = 16_000
    duration_seconds: float = 14.0
    sensors_m: Floats = field(default_factory=lambda: array_positions(4))
    surface: str = "gravel"
    faults: FaultPlan | None = None
    clips: Clips | None = None

    def __post_init__(self) -> None:
        Grid(rate_hz=self.rate_hz)  # refuses a rate that the pipeline could not use
        if not STEP_SECONDS <= self.duration_seconds < np.inf:
            raise UsageError(f"recordings of {self.duration_seconds} s must be at least {STEP_SECONDS} s long")
        if not 1 <= len(self.sensors_m) <= _MOST_SENSORS:
            raise UsageError(f"{len(self.sensors_m)} sensors must be 1 to {_MOST_SENSORS}; for example 4")
        if self.length * len(self.sensors_m) > _MOST_SAMPLES:
            raise UsageError(
                f"recordings of {self.duration_seconds} s are made in memory and must be at most "
                f"{_MOST_SAMPLES / len(self.sensors_m) / self.rate_hz:.0f} s long with {len(self.sensors_m)} sensors "
                f"at {self.rate_hz} Hz; make more and shorter ones"
            )
        if self.surface not in SURFACES:
            raise UsageError(f"surface {self.surface!r} is not known; choose one of {', '.join(SURFACES)}")
        if self.faults is not None and len(self.faults.shares) != len(self.sensors_m):
            raise UsageError(
                f"{len(self.faults.shares)} fault shares for {len(self.sensors_m)} sensors; "
                "give one share, or one for each sensor"
            )

    @property
    def length(self) -> int:
        return round(self.duration_seconds * self.rate_hz)

    @property
    def gains(self) -> Floats:
        """Return the factor by which each sensor is too loud or too quiet."""
        off_db: Floats = self._chance(0, 5).normal(0, 1, len(self.sensors_m))
        factors: Floats = 10 ** (off_db / 20)
        return factors

    def _chance(self, number: int, purpose: int) -> np.random.Generator:
        """Every recording and purpose has a stream of its own: faults do not change the scene under them."""
        return np.random.default_rng([self.seed, number, purpose])


@dataclass(frozen=True, slots=True, eq=False)
class SimulatedRecording:
    """Sound as a 16-bit converter gives it, and the truth about it."""

    label: str
    walker: Walker | None
    """The human in it, or the animal alone; None for a vehicle, or if nobody passes."""
    weather: Weather
    samples: Samples
    episodes: tuple[FaultEpisode, ...]


@dataclass(frozen=True, eq=False)
class Scene:
    """Who passes in which weather, as sensors hear it that are all well; made once, it can be recorded often."""

    site: Site
    number: int
    label: str
    walker: Walker | None
    weather: Weather
    sound: Floats
    """In parts of full scale."""

    @cached_property
    def elsewhere(self) -> Floats:
        """What a stale buffer plays."""
        return _another(self.site, self.number)

    def recorded(self, episodes: Sequence[FaultEpisode] = ()) -> SimulatedRecording:
        """The scene by sensors that something befalls meanwhile."""
        sound = afflict(self.sound, episodes, lambda: self.elsewhere, self.site.rate_hz)
        return SimulatedRecording(self.label, self.walker, self.weather, converted(sound), tuple(episodes))


def draw_scene(site: Site, number: int, label: str, *, weather: Weather | None = None) -> Scene:
    """The scene of recording `number`, without faults; the weather is drawn unless given."""
    return Scene(site, number, label, *_clean(site, number, label, weather))


def record(
    site: Site, number: int, *, label: str | None = None, episodes: Sequence[FaultEpisode] | None = None
) -> SimulatedRecording:
    """Recording `number` of a site; the same site, number and label always give the same bits.

    Label and faults are drawn unless given; the walk and the weather do not depend on the faults.
    """
    label = drawn_label(site, number) if label is None else label
    return draw_scene(site, number, label).recorded(episodes_of(site, number) if episodes is None else episodes)


def episodes_of(site: Site, number: int) -> list[FaultEpisode]:
    """The faults during a recording, without the sound."""
    if site.faults is None:
        return []
    rng, seed = site._chance(number, 3), (site.seed, number, 4)
    return draw_episodes(site.faults, rng, length=site.length, rate_hz=site.rate_hz, seed=seed)


def drawn_label(site: Site, number: int) -> str:
    return HUMAN_WITH_ANIMAL if site._chance(number, 0).random() < ANIMAL_SHARE else HUMAN


def _another(site: Site, number: int) -> Floats:
    """Sound of a time that never was: nominal, of the same sensors, and of either class."""
    never = number + 1_000_000_007
    return _clean(site, never, drawn_label(site, never))[2]


def _clean(
    site: Site, number: int, label: str, weather: Weather | None = None
) -> tuple[Walker | None, Weather, Floats]:
    """Sound without faults, in parts of full scale."""
    rng = site._chance(number, 1)
    subject = _drawn_subject(site, label, rng)
    drawn = draw_weather(rng)
    weather = drawn if weather is None else weather
    air = Air(temperature_c=float(rng.uniform(0, 30)), humidity_percent=float(rng.uniform(30, 90)))
    pressure = _pressure(site, subject, weather, air, site._chance(number, 2))
    walker = subject.walkers[0] if subject is not None and subject.walkers else None
    return walker, weather, _sensed(pressure, site)


def _drawn_subject(site: Site, label: str, rng: np.random.Generator) -> Subject | None:
    if label == NOBODY:
        return None
    return draw_subject(label, rng, surface_name=site.surface, duration_seconds=site.duration_seconds)


def _pressure(site: Site, subject: Subject | None, weather: Weather, air: Air, rng: np.random.Generator) -> Floats:
    n_sensors, length, rate_hz, duration = len(site.sensors_m), site.length, site.rate_hz, site.duration_seconds
    sounds, passing = [], None
    if subject is not None and subject.label in (HUMAN, HUMAN_WITH_ANIMAL):
        steps, hooves = voices(site.clips, rng)
        (walker,) = subject.walkers
        sounds += footfalls(walker, rng, duration_seconds=duration, rate_hz=rate_hz, steps=steps, hooves=hooves)
    elif subject is not None:
        passing = pressure_of(
            subject,
            rng,
            sensors_m=site.sensors_m,
            duration_seconds=duration,
            length=length,
            rate_hz=rate_hz,
            air=air,
            clips=site.clips,
        )
    sounds += birds(weather, rng, duration_seconds=duration, rate_hz=rate_hz)
    sounds += site.clips.noises(rng, duration_seconds=duration) if site.clips else []
    noise = REFERENCE_PA * 10 ** (SELF_NOISE_DB / 20) * rng.standard_normal((n_sensors, length))
    noise += wind_noise(weather, rng, n_sensors=n_sensors, length=length, rate_hz=rate_hz)
    noise += background(weather, rng, n_sensors=n_sensors, length=length, rate_hz=rate_hz)
    heard = arrivals(sounds, site.sensors_m, length=length, rate_hz=rate_hz, air=air)
    return noise + (heard if passing is None else heard + passing)


def _sensed(pressure: Floats, site: Site) -> Floats:
    """What the microphones make of it, in parts of full scale: each with a gain of its own, and deaf to infrasound."""
    from scipy.fft import irfft, next_fast_len, rfft

    gain = site.gains[:, None]
    size = next_fast_len(pressure.shape[1], real=True)
    spectrum = rfft(pressure, n=size) * response(size, site.rate_hz) * gain / FULL_SCALE_PA
    sensed: Floats = irfft(spectrum, n=size)[:, : pressure.shape[1]]
    return sensed
