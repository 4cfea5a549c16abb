"""Hours of real sound with truth: background that wanders, passages of walkers, distractors; four virtual sensors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

import numpy as np

from benchmarks.real_audio import N_SENSORS, RATE_HZ, Clips, Floats, clip, clips_of
from pipeline.core.events import Samples

BACKGROUNDS = ("rain", "wind", "chirping_birds", "crickets", "sea_waves", "0ad_ambient")
DISTRACTORS = (
    "noise_engine", "noise_helicopter", "noise_chainsaw", "noise_airplane", "noise_train", "noise_thunderstorm",
    "noise_crackling_fire", "other_clapping", "other_dog", "other_cow", "other_sheep", "other_door_wood_knock",
)  # fmt: skip
ONE_SENSOR = "one sensor only"
HUMAN, HUMAN_ANIMAL = "human", "human_animal"
PIECE_SECONDS = 30.0
PASSAGE_SECONDS, EDGE_DB = (8.0, 40.0), 12.0
PEAK_DB = (-5.0, 20.0)
HOOF_DB = (0.0, 9.0)
WANDER_DB = 9.0
BACKGROUND_DB = -52.0
_STRETCH_SECONDS = (120.0, 420.0)
_FADE_SECONDS = 5.0
_LAG_SECONDS = 6.0
"""Between the first and the last sensor that a walker passes."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that is heard from `start` to `end` seconds."""

    start: float
    end: float
    label: str
    peak_db: float
    """Over the background at the median sensor."""
    paths: tuple[Path, ...]
    seed: int
    is_walker: bool

    @property
    def seconds(self) -> float:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Sources:
    """Clips of one side of a split, by what they are used for."""

    humans: list[list[Path]]
    hooves: list[list[Path]]
    backgrounds: list[list[Path]]
    distractors: dict[str, list[list[Path]]]
    half: int | None = None

    @classmethod
    def of(cls, audio: Path, side: str, half: int | None = None) -> Sources:
        """Sources of `train`, `dev`, `unseen` or `known` (the first two), or of `all`; of their first or second half
        if `half` is 0 or 1."""
        chosen = _Chosen(clips_of(audio), side)
        return cls(
            chosen("human_footsteps"),
            chosen("hoof"),
            [files for name in BACKGROUNDS for files in chosen(f"noise_{name}")],
            {name: chosen(name) for name in DISTRACTORS},
            half,
        )


SIDES = ("train", "dev", "unseen", "known", "all")


@dataclass(frozen=True, slots=True)
class _Chosen:
    clips: Clips
    side: str

    def __call__(self, name: str) -> list[list[Path]]:
        """Files of each source of a class that lies on the side."""
        sources = sorted(self.clips[name], key=lambda source: sha256(f"{name}/{source}".encode()).hexdigest())
        if len(sources) == 1:
            return [self.clips[name][source] for source in sources]
        return [self.clips[name][source] for place, source in enumerate(sources) if on_side(place, self.side)]


def on_side(place: int, side: str) -> bool:
    """Return whether the item at a place of a list lies on a side: every third is for the last look."""
    return place % 3 in {"unseen": (0,), "train": (1,), "dev": (2,), "known": (1, 2), "all": (0, 1, 2)}[side]


class Stream:
    """A stream of so many hours, drawn by a seed; made in pieces, with the truth about it."""

    def __init__(
        self,
        sources: Sources,
        *,
        hours: float,
        seed: int,
        passages_per_hour: float = 24.0,
        distractors_per_hour: float = 25.0,
        peak_db: tuple[float, float] = PEAK_DB,
    ) -> None:
        self.sources, self.seed, self.seconds = sources, seed, hours * 3600
        rng = np.random.default_rng(seed)
        self.events = _draw_events(rng, sources, self.seconds, passages_per_hour, distractors_per_hour, peak_db)
        self._stretches = _draw_stretches(rng, sources, self.seconds)
        times = np.arange(0, self.seconds + 60, 20.0)
        walk = np.zeros(len(times))
        for n in range(1, len(times)):  # reverts to its mean within some ten minutes
            walk[n] = 0.97 * walk[n - 1] + rng.normal(0, WANDER_DB * 0.13)
        self._times, self._levels_db = times, np.clip(walk, -WANDER_DB, WANDER_DB)

    @property
    def passages(self) -> list[Event]:
        return [event for event in self.events if event.is_walker]

    @property
    def distractors(self) -> list[Event]:
        return [event for event in self.events if not event.is_walker]

    def level(self, seconds: Floats) -> Floats:
        """Amplitude of the background."""
        decibels: Floats = np.interp(seconds, self._times, self._levels_db)
        return 10 ** ((BACKGROUND_DB + decibels) / 20)

    def pieces(self) -> Iterator[Samples]:
        """(sensors, time) of 16 bits, one piece after the other."""
        step = round(PIECE_SECONDS * RATE_HZ)
        for start in range(0, round(self.seconds * RATE_HZ), step):
            yield self._piece(start, min(step, round(self.seconds * RATE_HZ) - start))

    def _piece(self, start: int, length: int) -> Samples:
        seconds = (start + np.arange(length)) / RATE_HZ
        sound = self._background(start, length, seconds) * self.level(seconds)
        for event in self.events:
            if event.start < seconds[-1] and event.end > seconds[0]:
                _add_event(sound, event, start, self.level(np.array([(event.start + event.end) / 2]))[0], self.sources)
        whole = np.clip(np.rint(sound * 32768), -32768, 32767)
        return whole.astype(np.float32) / np.float32(32768)

    def _background(self, start: int, length: int, seconds: Floats) -> Floats:
        sound = np.zeros((N_SENSORS, length))
        for began, ended, path, seed in self._stretches:
            if began < seconds[-1] and ended > seconds[0]:
                rise, fall = (seconds - began) / _FADE_SECONDS, (ended - seconds) / _FADE_SECONDS
                fade = np.clip(rise, 0, 1) * np.clip(fall, 0, 1)
                rng = np.random.default_rng([self.seed, seed])
                offsets = rng.integers(0, 1 << 30, N_SENSORS)
                gains = 10 ** (rng.uniform(-3, 3, N_SENSORS) / 20)
                loop = _loop(path, self.sources.half)
                for s in range(N_SENSORS):
                    place = (start + offsets[s] + np.arange(length)) % len(loop)
                    sound[s] += np.sqrt(fade) * gains[s] * loop[place]
        return sound


def _draw_stretches(rng: np.random.Generator, sources: Sources, seconds: float) -> list[tuple[float, float, Path, int]]:
    found: list[tuple[float, float, Path, int]] = []
    at = 0.0
    while at < seconds:
        length = float(rng.uniform(*_STRETCH_SECONDS))
        files = sources.backgrounds[int(rng.integers(len(sources.backgrounds)))]
        found.append((at - _FADE_SECONDS, at + length, files[int(rng.integers(len(files)))], len(found)))
        at += length
    return found


def _draw_events(
    rng: np.random.Generator,
    sources: Sources,
    seconds: float,
    passages_per_hour: float,
    distractors_per_hour: float,
    peak_db: tuple[float, float],
) -> list[Event]:
    """Events that do not overlap, at least 15 s apart."""
    n = rng.poisson(np.array([passages_per_hour, distractors_per_hour]) * seconds / 3600)
    kinds = rng.permutation(np.repeat([True, False], n))
    lengths = np.where(kinds, rng.uniform(*PASSAGE_SECONDS, len(kinds)), rng.uniform(4, 12, len(kinds)))
    free = seconds - lengths.sum() - 15 * (len(kinds) + 1)
    if free < 0:
        raise ValueError(f"{len(kinds)} events do not fit into {seconds:g} s; ask for fewer an hour")
    pauses = np.diff(np.sort(np.concatenate([[0.0], rng.uniform(0, free, len(kinds))]))) + 15
    events, at = [], 0.0
    drawn = zip(kinds.tolist(), lengths.tolist(), pauses.tolist(), strict=True)
    for number, (is_walker, length, pause) in enumerate(drawn):
        at += pause
        peak = float(rng.uniform(*peak_db))
        if is_walker:
            files = _pick(sources.humans, rng)
            animal = bool(rng.random() < 0.45)
            paths = (_pick(files, rng), _pick(_pick(sources.hooves, rng), rng)) if animal else (_pick(files, rng),)
            label = HUMAN_ANIMAL if animal else HUMAN
        else:
            kind = DISTRACTORS[int(rng.integers(len(DISTRACTORS)))]
            paths, label = (_pick(_pick(sources.distractors[kind], rng), rng),), kind
            if rng.random() < 1 / 13:
                label = ONE_SENSOR
        events.append(Event(at, at + length, label, peak, paths, number, is_walker))
        at += length
    return events


def _pick(items: Sequence[Path] | Sequence[list[Path]], rng: np.random.Generator):  # type: ignore[no-untyped-def]
    return items[int(rng.integers(len(items)))]


@lru_cache(maxsize=4)
def _rendered(event: Event, half: int | None) -> Floats:
    """An event at all sensors; a level of 0 dB is that of the background."""
    rng = np.random.default_rng([event.seed, 77])
    length = round(event.seconds * RATE_HZ)
    sound = _repeated(event.paths[0], half, length, rng)
    if len(event.paths) > 1:
        sound = sound + 10 ** (rng.uniform(*HOOF_DB) / 20) * _repeated(event.paths[1], half, length, rng)
        sound /= max(float(np.sqrt(np.mean(sound**2))), 1e-9)
    delays = rng.integers(0, round(0.03 * RATE_HZ), N_SENSORS)
    order = np.arange(N_SENSORS) if rng.random() < 0.5 else np.arange(N_SENSORS)[::-1]
    lag = min(_LAG_SECONDS, event.seconds / 4)
    seconds = np.arange(length) / RATE_HZ
    out = np.empty((N_SENSORS, length))
    for s in range(N_SENSORS):
        centre = event.seconds / 2 + lag * (order[s] / (N_SENSORS - 1) - 0.5) if event.is_walker else event.seconds / 2
        fall = EDGE_DB * np.abs(seconds - centre) / (event.seconds / 2)
        gain = rng.uniform(-3, 3)
        out[s] = np.roll(sound, delays[s]) * 10 ** ((event.peak_db + gain - fall) / 20)
    if event.label == ONE_SENSOR:
        out[np.arange(N_SENSORS) != rng.integers(N_SENSORS)] = 0
    edge = round(0.05 * RATE_HZ)
    ramp = np.minimum(1, np.minimum(np.arange(length), np.arange(length)[::-1]) / edge)
    return out * ramp


def _add_event(sound: Floats, event: Event, start: int, level: float, sources: Sources) -> None:
    rendered = _rendered(event, sources.half) * level
    first = round(event.start * RATE_HZ) - start
    a, b = max(0, first), min(sound.shape[1], first + rendered.shape[1])
    if a < b:
        sound[:, a:b] += rendered[:, a - first : b - first]


def _repeated(path: Path, half: int | None, length: int, rng: np.random.Generator) -> Floats:
    loop = _loop(path, half)
    return loop[(int(rng.integers(len(loop))) + np.arange(length)) % len(loop)]


@lru_cache(maxsize=64)
def _loop(path: Path, half: int | None) -> Floats:
    """A clip of unit power whose end fades into its beginning."""
    sound = clip(path, half)
    fade = min(round(0.05 * RATE_HZ), len(sound) // 4)
    rise = np.linspace(0, 1, fade)
    body = sound[: len(sound) - fade].copy()
    body[:fade] = body[:fade] * np.sqrt(rise) + sound[len(sound) - fade :] * np.sqrt(1 - rise)
    return np.asarray(body / max(float(np.sqrt(np.mean(body**2))), 1e-9))
