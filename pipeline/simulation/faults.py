"""What befalls sensors: faults with known beginning and end, in bursts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches

import numpy as np

from pipeline.core.errors import UsageError
from pipeline.core.events import Mask
from pipeline.simulation.propagation import Floats

LSB = 2.0**-15
STEP_SECONDS = 0.5


@dataclass(frozen=True, slots=True, eq=False)
class FaultContext:
    """What a fault can draw on: sound in parts of full scale while it lasts, and how bad it is, from 0 to 1."""

    own: Floats
    partner: Floats
    """Another sensor at the same time."""
    elsewhere: Floats
    """The same sensor at another time."""
    rate_hz: int
    severity: float
    rng: np.random.Generator
    offset: int = 0
    """Samples since the fault began, for a long fault that is made in parts."""

    @property
    def seconds(self) -> Floats:
        """Times since the fault began."""
        return np.arange(self.offset, self.offset + len(self.own)) / self.rate_hz

    def between(self, mild: float, severe: float) -> float:
        return mild + self.severity * (severe - mild)


def dead(moment: FaultContext) -> Floats:
    """Nothing but zeros."""
    return np.zeros(len(moment.own))


def flat(moment: FaultContext) -> Floats:
    """Cable off: an offset that flickers by one bit."""
    flicker = np.where(moment.rng.random(len(moment.own)) < 0.3, LSB, 0.0)
    return flicker + round(moment.between(2, 40)) * LSB


def stuck(moment: FaultContext) -> Floats:
    """The converter repeats one value."""
    value = moment.rng.uniform(-1, 1) * moment.between(0.05, 0.9)
    return np.full(len(moment.own), value)


def loud_bursts(moment: FaultContext) -> Floats:
    """Crackling contact: loud noise, on and off."""
    on = _runs(moment, runs_per_second=moment.between(2, 6), seconds=(0.03, 0.2))
    noise: Floats = moment.between(0.15, 0.6) * moment.rng.standard_normal(len(on))
    return np.where(on, noise, moment.own)


def clipping(moment: FaultContext) -> Floats:
    """Gain far too high: up to a tenth of all samples at the rails."""
    share = moment.between(0.005, 0.1)
    return moment.own / max(float(np.quantile(np.abs(moment.own), 1 - share)), LSB)


def hum(moment: FaultContext) -> Floats:
    """Mains and its harmonics."""
    t = moment.seconds
    phases = moment.rng.uniform(0, 2 * np.pi, 5)
    mains = np.sum([np.sin(2 * np.pi * 50 * k * t + phase) / k for k, phase in enumerate(phases, start=1)], axis=0)
    humming: Floats = moment.own + moment.between(0.02, 0.3) * mains
    return humming


def dc_drift(moment: FaultContext) -> Floats:
    """The operating point wanders off within seconds."""
    sign = moment.rng.choice([-1.0, 1.0])
    ramp = np.minimum(1, np.arange(moment.offset, moment.offset + len(moment.own)) / (4 * moment.rate_hz))
    drifting: Floats = moment.own + sign * moment.between(0.05, 0.5) * ramp
    return drifting


def gain_loss(moment: FaultContext) -> Floats:
    """Water in the membrane: 15 to 40 dB too quiet."""
    return moment.own * float(10 ** (-moment.between(15, 40) / 20))


def dropouts(moment: FaultContext) -> Floats:
    """Zeros for some milliseconds, again and again."""
    off = _runs(moment, runs_per_second=moment.between(3, 10), seconds=(0.005, 0.06))
    return np.where(off, 0.0, moment.own)


def spikes(moment: FaultContext) -> Floats:
    """Single samples far out."""
    hit = _at_random(moment, moment.between(4, 40))
    height = moment.rng.choice([-1.0, 1.0], len(hit)) * moment.rng.uniform(0.3, 0.9, len(hit))
    return np.where(hit, height, moment.own)


def polarity(moment: FaultContext) -> Floats:
    """Wires exchanged."""
    return -moment.own


def crosstalk(moment: FaultContext) -> Floats:
    """A neighbour's cable leaks in."""
    leak = moment.between(0.6, 0.95)
    return (1 - leak) * moment.own + leak * moment.partner


def swapped(moment: FaultContext) -> Floats:
    """Two plugs exchanged; the partner has it too."""
    return moment.partner


def stale(moment: FaultContext) -> Floats:
    """A buffer of another time is played again: perfectly nominal sound."""
    return moment.elsewhere


def clock_drift(moment: FaultContext) -> Floats:
    """The sensor's clock runs fast, so its sound falls behind more and more."""
    slow = 1 - moment.between(0.002, 0.02)
    return interpolated(moment.own, slow * np.arange(len(moment.own), dtype=np.float64))


def wind_roar(moment: FaultContext) -> Floats:
    """The windscreen is gone: one sensor drowns in low rumble."""
    smooth = np.hanning(max(moment.rate_hz // 60, 3))
    rumble = np.convolve(moment.rng.standard_normal(len(moment.own)), smooth)[: len(moment.own)]
    swell = 1 + 0.5 * np.sin(2 * np.pi * 0.3 * np.arange(moment.offset, moment.offset + len(rumble)) / moment.rate_hz)
    return moment.own + moment.between(0.03, 0.3) * swell * rumble / max(float(rumble.std()), 1e-12)


FAULTS: dict[str, Callable[[FaultContext], Floats]] = {
    fault.__name__: fault
    for fault in (
        dead, flat, stuck, loud_bursts, clipping, hum, dc_drift, gain_loss, dropouts, spikes, polarity, crosstalk,
        swapped, stale, clock_drift, wind_roar,
    )
}  # fmt: skip


NEED_A_PARTNER = ("crosstalk", "swapped")
_DRAWN_ONCE = ("stuck", "hum", "dc_drift")


@dataclass(frozen=True, slots=True)
class FaultEpisode:
    """A fault of one sensor (counted from 0), from sample `start` to before `stop`."""

    sensor: int
    start: int
    stop: int
    fault: str
    severity: float
    partner: int
    seed: tuple[int, ...]
    offset: int = 0
    """Samples since the fault began, if this is a later part of it."""

    def part(self, start: int, stop: int) -> FaultEpisode:
        """Return what lies between two samples, counted from the first of them."""
        first, last = max(self.start, start), min(self.stop, stop)
        # Noise differs from part to part; what a fault draws once, such as the value it is stuck at, stays.
        seed = self.seed if self.fault in _DRAWN_ONCE else (*self.seed, first - self.start)
        return replace(self, start=first - start, stop=last - start, offset=first - self.start, seed=seed)


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """Which faults occur, for what share of the time at each sensor, and how long they last."""

    kinds: tuple[str, ...]
    shares: tuple[float, ...]
    mean_seconds: float = 10.0

    def __post_init__(self) -> None:
        for share in self.shares:
            if not 0 <= share < 1:
                raise UsageError(f"fault share {share} must be at least 0 and below 1; for example 0.1")
        if not self.mean_seconds >= STEP_SECONDS:
            raise UsageError(f"mean fault length {self.mean_seconds} s must be at least {STEP_SECONDS}; for example 10")
        most = self.mean_seconds / (self.mean_seconds + STEP_SECONDS)
        if max(self.shares, default=0) > most:
            raise UsageError(
                f"fault share {max(self.shares)} cannot be had with faults of {self.mean_seconds} s, between which a "
                f"sensor is well for at least {STEP_SECONDS} s; lower it to {most:.2f} or lengthen the faults"
            )


def parse_kinds(text: str, *, n_sensors: int) -> tuple[str, ...]:
    """Names of faults from `all`, `none` or a list with commas; `all` leaves out what so few sensors cannot have."""
    names = tuple(name.strip().lower().replace("-", "_") for name in text.split(",") if name.strip())
    if names == ("none",):
        return ()
    if names == ("all",):
        return tuple(name for name in FAULTS if n_sensors > 1 or name not in NEED_A_PARTNER)
    for name in names or (text,):
        if name not in FAULTS:
            meant = get_close_matches(name, FAULTS, n=1)
            hint = f"did you mean {meant[0]}? " if meant else ""
            raise UsageError(f"fault {name!r} is not known; {hint}choose all, none, or of: {', '.join(FAULTS)}")
        if n_sensors == 1 and name in NEED_A_PARTNER:
            raise UsageError(f"fault {name!r} takes two sensors and there is one; leave it out or add sensors")
    return names


def bursts(rng: np.random.Generator, n_steps: int, *, share: float, mean_steps: float) -> list[tuple[int, int]]:
    """Bad stretches of a Gilbert-Elliott chain in its stationary state.

    A bad state ends with probability r = 1 / mean_steps, a good one with p = r share / (1 - share).
    """
    if share == 0:
        return []
    leave = 1 / mean_steps
    enter = leave * share / (1 - share)
    bad, stretches = rng.random() < share, []
    start = 0
    for step, chance in enumerate(rng.random(n_steps)):
        if step and chance < (leave if bad else enter):
            if bad:
                stretches.append((start, step))
            bad, start = not bad, step
    return [*stretches, (start, n_steps)] if bad else stretches


def draw_episodes(
    plan: FaultPlan, rng: np.random.Generator, *, length: int, rate_hz: int, seed: Sequence[int]
) -> list[FaultEpisode]:
    """Faults of all sensors during a recording, by the start of each."""
    step = round(STEP_SECONDS * rate_hz)
    n_steps = -(-length // step)
    stretches = [
        (sensor, start * step, min(stop * step, length))
        for sensor, share in enumerate(plan.shares if plan.kinds else ())
        for start, stop in bursts(rng, n_steps, share=share, mean_steps=plan.mean_seconds / STEP_SECONDS)
    ]
    episodes: list[FaultEpisode] = []
    for number, (sensor, start, stop) in enumerate(sorted(stretches, key=lambda stretch: stretch[1])):
        healthy = _healthy_partners(sensor, start, stop, stretches, episodes, len(plan.shares))
        kinds = [kind for kind in plan.kinds if healthy or kind not in NEED_A_PARTNER]
        if not kinds:
            continue
        partner = int(rng.choice(healthy)) if healthy else sensor
        kind, severity = str(rng.choice(kinds)), float(rng.random())
        episodes.append(FaultEpisode(sensor, start, stop, kind, severity, partner, (*seed, number)))
        if kind == "swapped":
            episodes.append(FaultEpisode(partner, start, stop, kind, severity, sensor, (*seed, number)))
    return episodes


def _healthy_partners(
    sensor: int,
    start: int,
    stop: int,
    stretches: list[tuple[int, int, int]],
    episodes: list[FaultEpisode],
    n_sensors: int,
) -> list[int]:
    """Other sensors that nothing befalls meanwhile."""
    taken = {other for other, a, b in stretches if a < stop and b > start}
    taken |= {episode.sensor for episode in episodes if episode.start < stop and episode.stop > start}
    return [other for other in range(n_sensors) if other != sensor and other not in taken]


def afflict(sound: Floats, episodes: Sequence[FaultEpisode], elsewhere: Callable[[], Floats], rate_hz: int) -> Floats:
    """The array's sound with its faults; each draws on the sound without any."""
    faulty = sound.copy()
    for episode in episodes:
        span = slice(episode.start, episode.stop)
        other = elsewhere()[episode.sensor, span] if episode.fault == "stale" else sound[episode.sensor, span]
        moment = FaultContext(
            own=sound[episode.sensor, span],
            partner=sound[episode.partner, span],
            elsewhere=other,
            rate_hz=rate_hz,
            severity=episode.severity,
            rng=np.random.default_rng(episode.seed),
            offset=episode.offset,
        )
        faulty[episode.sensor, span] = FAULTS[episode.fault](moment)
    return faulty


def _runs(moment: FaultContext, *, runs_per_second: float, seconds: tuple[float, float]) -> Mask:
    """Random stretches of time."""
    on = np.zeros(len(moment.own), np.bool_)
    starts = np.flatnonzero(_at_random(moment, runs_per_second))
    for start, length in zip(starts, moment.rng.uniform(*seconds, len(starts)), strict=True):
        on[start : start + max(round(length * moment.rate_hz), 1)] = True
    return on


def _at_random(moment: FaultContext, times_per_second: float) -> Mask:
    """Random samples, at least one of them, for a fault that does nothing is none."""
    hit = moment.rng.random(len(moment.own)) < times_per_second / moment.rate_hz
    hit[moment.rng.integers(len(hit))] |= not hit.any()
    return hit


def interpolated(values: Floats, at: Floats) -> Floats:
    """Values between samples, by cubics through the four nearest."""
    first = np.floor(at).astype(int)
    x = at - first
    before, here, after, beyond = (values[np.clip(first + k, 0, len(values) - 1)] for k in (-1, 0, 1, 2))
    a = 1.5 * (here - after) + 0.5 * (beyond - before)
    b = before - 2.5 * here + 2 * after - 0.5 * beyond
    between: Floats = ((a * x + b) * x + 0.5 * (after - before)) * x + here
    return between
