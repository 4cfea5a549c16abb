"""Who walks, and how it sounds: a human alone, or a human leading an animal.

A footfall is a heel and, 80 to 150 ms later, a toe; a hoof or paw falls once. Each contact is a damped low resonance
of the ground, which carries the weight, and a burst of noise, which the surface and the shoe colour. Times and
levels follow published measurements of walking people, horses and dogs; what was not published is chosen plausibly.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from pipeline.simulation.propagation import REFERENCE_PA, EmittedSound, Floats

_STEP_SECONDS = 0.35  # a contact has died away by then


@dataclass(frozen=True, slots=True)
class Surface:
    """Ground under a foot."""

    resonance_hz: float
    ringing_seconds: float
    noise_band_hz: tuple[float, float]
    noise_seconds: float
    grains_per_second: float
    """Separate crackles while the foot presses down; 0 for a smooth surface."""
    loudness_db: float


SURFACES = {
    "gravel": Surface(55.0, 0.020, (900.0, 5000.0), 0.070, 600.0, 4.0),
    "grass": Surface(35.0, 0.030, (600.0, 3000.0), 0.050, 250.0, -3.0),
    "sand": Surface(30.0, 0.035, (400.0, 2200.0), 0.060, 400.0, -2.0),
    "soil": Surface(45.0, 0.030, (400.0, 2500.0), 0.030, 120.0, 0.0),
    "asphalt": Surface(80.0, 0.012, (700.0, 4500.0), 0.012, 0.0, 1.0),
}


@dataclass(frozen=True, slots=True)
class Species:
    """An animal on a lead: how often and with what it treads."""

    strides_per_second: float
    phases: tuple[float, float, float, float]
    """When, in parts of a stride, left hind, left fore, right hind and right fore fall."""
    fore_share: float
    """Part of the weight on the forelegs."""
    length_m: float
    thump_db: float
    """Against a human, of the low resonance; likewise the noise of the contact."""
    noise_db: float
    knock_hz: float
    """Hard hooves knock at about this pitch; 0 for paws."""


SPECIES = {
    "horse": Species(0.92, (0.0, 0.25, 0.5, 0.75), 0.57, 1.4, 8.0, 2.0, 900.0),
    "donkey": Species(1.00, (0.0, 0.25, 0.5, 0.75), 0.56, 1.0, 5.0, 1.0, 1300.0),
    "cow": Species(0.80, (0.0, 0.24, 0.5, 0.74), 0.55, 1.5, 8.0, 2.0, 700.0),
    "dog": Species(1.50, (0.0, 0.21, 0.5, 0.71), 0.60, 0.6, -4.0, -1.0, 0.0),
}


@dataclass(frozen=True, slots=True)
class Foot:
    """What is particular to one foot of one walker on one surface."""

    level_db: float
    resonance_hz: float
    ringing_seconds: float
    noise_band_hz: tuple[float, float]
    noise_seconds: float
    noise_db: float
    grains_per_second: float
    knock_hz: float = 0.0


@dataclass(frozen=True, slots=True)
class Path:
    """A straight way at constant speed; at the middle of the recording the walker is at `middle_m`."""

    middle_m: tuple[float, float]
    heading_rad: float
    speed_m_per_s: float
    middle_seconds: float

    def place(self, seconds: float, *, behind_m: float = 0.0, aside_m: float = 0.0) -> tuple[float, float]:
        along = self.speed_m_per_s * (seconds - self.middle_seconds) - behind_m
        cosine, sine = np.cos(self.heading_rad), np.sin(self.heading_rad)
        x, y = self.middle_m
        return float(x + along * cosine - aside_m * sine), float(y + along * sine + aside_m * cosine)

    def places(self, seconds: Floats) -> Floats:
        """Return the walker's positions at several times, (times, 2)."""
        along = self.speed_m_per_s * (seconds - self.middle_seconds)
        direction = np.array([np.cos(self.heading_rad), np.sin(self.heading_rad)])
        positions: Floats = np.array(self.middle_m) + along[:, None] * direction
        return positions


@dataclass(frozen=True, slots=True)
class Walker:
    """A human, and perhaps an animal on a lead."""

    path: Path
    steps_per_second: float
    step_time_variation: float
    feet: tuple[Foot, Foot]
    toe_delay_seconds: float
    toe_db: float
    animal: str | None = None
    strides_per_second: float = 0.0
    lead_m: float = 0.0
    paws: tuple[Foot, ...] = ()


def draw_walker(rng: np.random.Generator, *, animal: bool, surface_name: str, duration_seconds: float) -> Walker:
    """A person out of the population, with or without an animal."""
    surface = SURFACES[surface_name]
    steps = float(np.clip(rng.normal(1.9, 0.15), 95 / 60, 160 / 60))
    path = Path(
        middle_m=(float(rng.normal(0, 3)), float(rng.normal(0, 1))),
        heading_rad=float(rng.normal(0, 0.08)) + (np.pi if rng.random() < 0.5 else 0.0),
        speed_m_per_s=steps * float(rng.normal(0.71, 0.05)),
        middle_seconds=duration_seconds / 2,
    )
    foot = Foot(
        level_db=float(rng.normal(66, 2)) + surface.loudness_db,
        resonance_hz=float(np.clip(surface.resonance_hz * np.exp(rng.normal(0, 0.2)), 20, 90)),
        ringing_seconds=surface.ringing_seconds * float(np.exp(rng.normal(0, 0.2))),
        noise_band_hz=_coloured(surface.noise_band_hz, float(rng.normal(0, 0.2))),
        noise_seconds=surface.noise_seconds * float(np.exp(rng.normal(0, 0.25))),
        noise_db=float(rng.normal(-3, 2)),
        grains_per_second=surface.grains_per_second,
    )
    limp = replace(
        foot, level_db=foot.level_db + float(rng.normal(0, 1)), noise_db=foot.noise_db + float(rng.normal(0, 1))
    )
    walker = Walker(
        path=path,
        steps_per_second=steps,
        step_time_variation=float(rng.uniform(0.02, 0.04)),
        feet=(foot, limp),
        toe_delay_seconds=float(rng.uniform(0.08, 0.15)),
        toe_db=float(rng.normal(-5, 2)),
    )
    return _with_animal(walker, rng) if animal else walker


def _with_animal(walker: Walker, rng: np.random.Generator) -> Walker:
    kind = str(rng.choice(list(SPECIES), p=[0.4, 0.3, 0.2, 0.1]))
    species, human = SPECIES[kind], walker.feet[0]
    shared = replace(
        human,
        level_db=human.level_db + species.thump_db + float(rng.normal(0, 2)),
        resonance_hz=human.resonance_hz * (0.8 if species.thump_db > 0 else 1.3),
        noise_db=human.noise_db + species.noise_db - species.thump_db + float(rng.normal(0, 1.5)),
        noise_seconds=human.noise_seconds * 0.6,
        knock_hz=species.knock_hz * float(np.exp(rng.normal(0, 0.15))),
    )
    fore, hind = 10 * np.log10(2 * species.fore_share), 10 * np.log10(2 - 2 * species.fore_share)
    paws = tuple(
        replace(shared, level_db=shared.level_db + load + float(rng.normal(0, 0.5)))
        for load in (hind, fore, hind, fore)
    )
    # The leader adapts: animals dawdle or tug, and the pair goes at a common, slower pace.
    pace = float(rng.uniform(0.85, 1.0))
    return replace(
        walker,
        path=replace(walker.path, speed_m_per_s=walker.path.speed_m_per_s * pace),
        steps_per_second=walker.steps_per_second * float(np.sqrt(pace)),
        animal=kind,
        strides_per_second=species.strides_per_second * float(np.exp(rng.normal(0, 0.07))),
        lead_m=float(rng.uniform(1.0, 2.5)),
        paws=paws,
    )


class Voice(Protocol):
    """Makes the sound of one contact."""

    def __call__(self, foot: Foot, rng: np.random.Generator, rate_hz: int, /) -> Floats: ...


def footfalls(
    walker: Walker,
    rng: np.random.Generator,
    *,
    duration_seconds: float,
    rate_hz: int,
    steps: Voice | None = None,
    hooves: Voice | None = None,
) -> list[EmittedSound]:
    """Every contact with the ground during a recording; recorded steps bring their own toe."""
    sounds = []
    for number, seconds in enumerate(
        _beats(walker.steps_per_second, walker.step_time_variation, duration_seconds, rng)
    ):
        foot, aside = walker.feet[number % 2], 0.1 * (-1) ** number
        heel = foot.level_db + float(rng.normal(0, 1.5))
        contacts = [(seconds, heel)]
        if steps is None:
            toe_after = walker.toe_delay_seconds * float(np.exp(rng.normal(0, 0.08)))
            contacts.append((seconds + toe_after, heel + walker.toe_db + float(rng.normal(0, 1))))
        for moment, level in contacts:
            place = walker.path.place(moment, aside_m=aside)
            sounds.append(EmittedSound(moment, place, (steps or contact)(replace(foot, level_db=level), rng, rate_hz)))
    return sounds + hoofbeats(walker, rng, duration_seconds, rate_hz, hooves or contact)


def hoofbeats(
    walker: Walker, rng: np.random.Generator, duration_seconds: float, rate_hz: int, voice: Voice
) -> list[EmittedSound]:
    """Return the contacts of the animal alone; none if the walker has no animal."""
    if walker.animal is None:
        return []
    species = SPECIES[walker.animal]
    sounds = []
    for start in _beats(walker.strides_per_second, 0.03, duration_seconds, rng):
        for leg, (phase, paw) in enumerate(zip(species.phases, walker.paws, strict=True)):
            seconds = start + (phase + float(rng.normal(0, 0.012))) / walker.strides_per_second
            behind = walker.lead_m + (species.length_m if leg in (0, 2) else 0.0)
            place = walker.path.place(seconds, behind_m=behind, aside_m=0.15 if leg < 2 else -0.15)
            level = paw.level_db + float(rng.normal(0, 1.5))
            sounds.append(EmittedSound(seconds, place, voice(replace(paw, level_db=level), rng, rate_hz)))
    return sounds


def _beats(rate_per_second: float, variation: float, duration_seconds: float, rng: np.random.Generator) -> Floats:
    """Times from just before the recording to its end; the interval wanders by the given share."""
    n = int((duration_seconds + 2) * rate_per_second) + 2
    intervals = np.maximum(rng.normal(1, variation, n), 0.5) / rate_per_second
    times = np.cumsum(intervals) - 1 - rng.random() / rate_per_second
    inside: Floats = times[(times > -1) & (times < duration_seconds)]
    return inside


def contact(foot: Foot, rng: np.random.Generator, rate_hz: int) -> Floats:
    """Pressure of one contact at 1 m, in pascal."""
    t = np.arange(round(_STEP_SECONDS * rate_hz)) / rate_hz
    attack = 1 - np.exp(-t / 0.002)
    thump = np.sin(2 * np.pi * foot.resonance_hz * t) * np.exp(-t / foot.ringing_seconds)
    noise = band_noise(foot.noise_band_hz, rng, len(t), rate_hz) * _roughness(foot.grains_per_second, rng, t, rate_hz)
    noise *= attack * np.exp(-t / foot.noise_seconds) * 10 ** (foot.noise_db / 20)
    knock = np.sin(2 * np.pi * foot.knock_hz * t) * np.exp(-t / 0.006) * 10 ** (foot.noise_db / 20)
    pressure = attack * thump + 0.5 * noise + (0.8 * knock if foot.knock_hz < 0.45 * rate_hz else 0.0)
    fade = np.minimum(1, (t[-1] - t) / 0.05)
    scaled: Floats = scale_pa(foot.level_db) * fade * pressure
    return scaled


def scale_pa(level_db: float) -> float:
    """Peak pressure of an impact of this level: some 9 dB above its mean square."""
    return float(REFERENCE_PA * 10 ** (level_db / 20) * np.sqrt(8))


def _coloured(band_hz: tuple[float, float], shift: float) -> tuple[float, float]:
    return band_hz[0] * float(np.exp(shift)), band_hz[1] * float(np.exp(shift))


def band_noise(band_hz: tuple[float, float], rng: np.random.Generator, length: int, rate_hz: int) -> Floats:
    """Noise of unit variance per band, falling off by 12 dB an octave outside."""
    from scipy.fft import irfft, rfft

    low, high = band_hz
    frequency = np.maximum(np.arange(length // 2 + 1) * rate_hz / length, 1e-9)
    gain = 1 / np.sqrt((1 + (low / frequency) ** 4) * (1 + (frequency / high) ** 4))
    white = rng.standard_normal(length)
    shaped: Floats = irfft(rfft(white) * gain, n=length)
    # The same band has the same power whatever the rate: white noise spreads its own over half the rate.
    return shaped * float(np.sqrt(rate_hz / 2 / (high - low)))


def _roughness(grains_per_second: float, rng: np.random.Generator, t: Floats, rate_hz: int) -> Floats:
    """Crackling of loose ground: exponentially decaying grains at random moments; 1 where it is smooth."""
    if grains_per_second == 0:
        return np.ones(len(t))
    grains = (rng.random(len(t)) < grains_per_second / rate_hz) * rng.exponential(1.0, len(t))
    decay = np.exp(-np.arange(round(0.01 * rate_hz)) / (0.003 * rate_hz))
    rough: Floats = np.convolve(grains, decay)[: len(t)]
    if not rough.any():
        return np.ones(len(t))
    scaled: Floats = rough / np.sqrt(np.mean(rough**2))
    return scaled
