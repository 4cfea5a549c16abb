"""The five classes of passers-by and the pressure that each causes at the sensors.

`human` walks alone, `human_animal` leads an animal, `animal` goes alone on four legs, `two_humans` walk side by side
with independent cadences, `vehicle` drives past.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pipeline.simulation.clips import Clips, recorded
from pipeline.simulation.footsteps import Path, Voice, Walker, contact, draw_walker, footfalls, hoofbeats
from pipeline.simulation.propagation import Air, EmittedSound, Floats, arrivals
from pipeline.simulation.vehicle import Vehicle, draw_vehicle, drive_by

HUMAN, HUMAN_WITH_ANIMAL, ANIMAL, TWO_HUMANS, VEHICLE = "human", "human_animal", "animal", "two_humans", "vehicle"
NOBODY = "nobody"
CLASSES = (HUMAN, HUMAN_WITH_ANIMAL, ANIMAL, TWO_HUMANS, VEHICLE)
_LEGS = 4


@dataclass(frozen=True, slots=True)
class Subject:
    """One or two walkers, an animal or a vehicle on a straight path past the array."""

    label: str
    path: Path
    walkers: tuple[Walker, ...] = ()
    vehicle: Vehicle | None = None

    @property
    def cadences_per_minute(self) -> tuple[float, ...]:
        """Return the footfalls per minute of each human, or of an animal alone; none for a vehicle."""
        if self.label == ANIMAL:
            return (60 * _LEGS * self.walkers[0].strides_per_second,)
        return tuple(60 * walker.steps_per_second for walker in self.walkers)

    @property
    def species(self) -> str | None:
        return self.walkers[0].animal if self.walkers else None

    def nearest_at(self, seconds: float) -> Subject:
        """Return the same subject, in the middle of its path at another time."""
        walkers = tuple(replace(one, path=replace(one.path, middle_seconds=seconds)) for one in self.walkers)
        return replace(self, path=replace(self.path, middle_seconds=seconds), walkers=walkers)


def draw_subject(label: str, rng: np.random.Generator, *, surface_name: str, duration_seconds: float) -> Subject:
    """Draw a member of a class that is in the middle of its path after half the duration."""
    if label == VEHICLE:
        path = Path(
            middle_m=(float(rng.normal(0, 3)), float(rng.normal(0, 0.5))),
            heading_rad=float(rng.normal(0, 0.02)) + (np.pi if rng.random() < 0.5 else 0.0),
            speed_m_per_s=float(rng.uniform(3, 8)),
            middle_seconds=duration_seconds / 2,
        )
        return Subject(label, path, vehicle=draw_vehicle(rng, path.speed_m_per_s))
    first = draw_walker(
        rng,
        animal=label in (HUMAN_WITH_ANIMAL, ANIMAL),
        surface_name=surface_name,
        duration_seconds=duration_seconds,
    )
    if label == ANIMAL:
        first = replace(first, lead_m=0.0)
    walkers = (first, _beside(first, rng, surface_name)) if label == TWO_HUMANS else (first,)
    return Subject(label, first.path, walkers)


def pressure_of(
    subject: Subject,
    rng: np.random.Generator,
    *,
    sensors_m: Floats,
    duration_seconds: float,
    length: int,
    rate_hz: int,
    air: Air,
    clips: Clips | None = None,
) -> Floats:
    """Pressure at every sensor, (sensors, length), in pascal."""
    if subject.vehicle is not None:
        return drive_by(
            subject.vehicle, subject.path, rng, sensors_m=sensors_m, length=length, rate_hz=rate_hz, air=air
        )
    sounds: list[EmittedSound] = []
    for walker in subject.walkers:
        steps, hooves = voices(clips, rng)
        if subject.label == ANIMAL:
            sounds += hoofbeats(walker, rng, duration_seconds, rate_hz, hooves or contact)
        else:
            sounds += footfalls(
                walker, rng, duration_seconds=duration_seconds, rate_hz=rate_hz, steps=steps, hooves=hooves
            )
    return arrivals(sounds, sensors_m, length=length, rate_hz=rate_hz, air=air)


def voices(clips: Clips | None, rng: np.random.Generator) -> tuple[Voice | None, Voice | None]:
    """Return recorded steps and hooves of one walker, None where sounds are synthetic."""
    if clips is None:
        return None, None
    steps, hooves = clips.voice("steps", rng), clips.voice("hooves", rng)
    return recorded(steps) if steps else None, recorded(hooves) if hooves else None


def _beside(first: Walker, rng: np.random.Generator, surface_name: str) -> Walker:
    """Another human, who keeps the first one's speed with a cadence of their own."""
    other = draw_walker(rng, animal=False, surface_name=surface_name, duration_seconds=0.0)
    x, y = first.path.middle_m
    aside, behind = float(rng.uniform(0.6, 1.2)), float(rng.uniform(-1.0, 1.5))
    cosine, sine = float(np.cos(first.path.heading_rad)), float(np.sin(first.path.heading_rad))
    middle = (x - behind * cosine - aside * sine, y - behind * sine + aside * cosine)
    return replace(other, path=replace(first.path, middle_m=middle))
