"""A day at the array: a continuous stream in which mostly nobody is there.

    day = Day(Site(seed=1), hours=24)
    day.passages           # who passes when, drawn from the seed
    day.distractors        # other sounds
    day.episodes           # faults of sensors
    day.piece(17)          # (sensors, samples) of seconds 17 * PIECE_SECONDS to 18 * PIECE_SECONDS, 16 bits
    day.read(start, stop)  # any samples
    day.truth(0)           # audible time, signal-to-noise ratio and path of passage 0

Every piece is a function of the day and its number: it can be made without those before it, to the same bits. Sounds
that cross a border are made as a whole and cut. `replace(day, number=1)` is the next day; it continues the first one
without a seam, with passages of its own.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pipeline.core.errors import UsageError
from pipeline.core.events import Samples
from pipeline.simulation.climate import BAND_HZ, PIECE_SECONDS, Climate, DayBackground
from pipeline.simulation.distractors import Distractor, distractor_pressure, draw_distractor
from pipeline.simulation.faults import FaultEpisode, afflict, draw_episodes
from pipeline.simulation.microphones import FULL_SCALE_PA, converted, response
from pipeline.simulation.propagation import Air, Floats
from pipeline.simulation.scene import Site
from pipeline.simulation.subjects import CLASSES, VEHICLE, Subject, draw_subject, pressure_of

LEAST_GAP_SECONDS = 20.0
"""Between two passages."""
SHORTEST_SECONDS, LONGEST_SECONDS = 8.0, 60.0
FORWARD, BACKWARD = "forward", "backward"
_WALKED_M, _DRIVEN_M = (20.0, 40.0), (60.0, 120.0)  # how far from the middle of its path a source can be heard
_EDGE_SECONDS = 3.0  # in which a passage rises from silence, and falls
_TAIL_SECONDS = 1.0  # delayed sound after the end of a passage
_LAST_SECONDS = 10.0  # of a day, without passages
_FRAME_SECONDS, _SMOOTH_FRAMES = 0.25, 4
_MOST_HOURS = 744.0
_FULLEST = 0.9  # share of the time that passages and the gaps after them may take
_REMEMBERED = 2  # sounds that cross a border, until the piece behind it is made
_STREAM = 42
_ARRIVALS, _SUBJECT, _VOICE, _DISTRACTORS, _NOISE, _FAULTS, _AIR = range(1, 8)


@dataclass(frozen=True, slots=True)
class SimulatedPassage:
    """A subject that passes the array between two times of the day, in seconds from its beginning."""

    number: int
    label: str
    start_seconds: float
    end_seconds: float
    subject: Subject
    """Its times count from the start of the passage."""


@dataclass(frozen=True, slots=True)
class PassageTruth:
    """What is known about a passage, in seconds from the beginning of the day.

    It is audible from the first to the last moment at which its power in the band from 100 to 4000 Hz, averaged over
    1 s, is at least that of the background at the sensor where the ratio is highest. Both times are those of the
    highest ratio if it is never audible.
    """

    label: str
    start_seconds: float
    end_seconds: float
    peak_db: float
    """Highest signal-to-noise ratio at the median sensor."""
    loudest_db: float
    """Highest signal-to-noise ratio at any sensor."""
    direction: str
    """`forward` from the first sensor to the last, or `backward`."""
    speed_mps: float
    cadence_per_minute: float | None
    second_cadence_per_minute: float | None
    """Of the other one of two humans."""
    species: str | None
    nearest_seconds: float
    nearest_m: float
    nearest_sensor: int
    """The sensor that the subject comes closest to, counted from 1."""
    enters_seconds: float
    """When it begins to make a sound, far away; `leaves_seconds` is the end of it."""
    leaves_seconds: float

    @property
    def is_audible(self) -> bool:
        return self.end_seconds > self.start_seconds


@dataclass(frozen=True, eq=False)
class Day:
    """A stretch of hours at a site, drawn from the seed of the site.

    Passages and distractors are given as mean numbers in 24 hours and arrive by chance. The length is rounded up to
    whole pieces of `PIECE_SECONDS`. `start_hour` is the time of day at which the first day begins. A first passage
    can be asked for at `first_passage_seconds`, which then is on all days.
    """

    site: Site
    hours: float = 24.0
    passages_per_day: float = 40.0
    distractors_per_day: float = 60.0
    classes: tuple[str, ...] = CLASSES
    start_hour: float = 0.0
    number: int = 0
    first_passage_seconds: float | None = None

    def __post_init__(self) -> None:
        if not 0 < self.hours <= _MOST_HOURS:
            raise UsageError(f"{self.hours} hours must be above 0 and at most {_MOST_HOURS:g}; for example 24")
        for name, value in (("passages", self.passages_per_day), ("distractors", self.distractors_per_day)):
            if not 0 <= value < np.inf:
                raise UsageError(f"{value} {name} a day must be at least 0; for example 40")
        most = _FULLEST * 86_400 / (LONGEST_SECONDS + LEAST_GAP_SECONDS)
        if self.passages_per_day > most:
            raise UsageError(
                f"{self.passages_per_day:g} passages a day leave no {LEAST_GAP_SECONDS:g} s between them; "
                f"use at most {most:.0f}"
            )
        unknown = [name for name in self.classes if name not in CLASSES]
        if unknown or not self.classes:
            raise UsageError(f"classes {unknown} cannot pass the array; choose some of {', '.join(CLASSES)}")

    @property
    def n_pieces(self) -> int:
        return max(int(np.ceil(round(self.hours * 3600, 6) / PIECE_SECONDS)), 1)

    @property
    def seconds(self) -> float:
        return float(self.n_pieces * PIECE_SECONDS)

    @property
    def length(self) -> int:
        """Return the number of samples."""
        return self.n_pieces * self._piece_length

    @property
    def start_seconds(self) -> float:
        """Return the absolute time of this day's beginning, on the clock of `climate`."""
        return self.number * self.seconds

    @cached_property
    def climate(self) -> Climate:
        return Climate(self.site.seed, self.start_hour)

    @cached_property
    def background(self) -> DayBackground:
        """Return the sound that remains when nobody passes; its pieces count from the first day."""
        return DayBackground(self.climate, self.site.sensors_m, self.site.gains, self.site.rate_hz, self._air)

    @cached_property
    def passages(self) -> tuple[SimulatedPassage, ...]:
        """Return all passages in the order of time, at least `LEAST_GAP_SECONDS` apart."""
        rng = self._chance(_ARRIVALS)
        count = int(rng.poisson(self.passages_per_day * self.seconds / 86_400))
        if self.first_passage_seconds is not None and self.passages_per_day:
            count = max(count, 1)
        subjects = [self._drawn_subject(number) for number in range(count)]
        taken = np.cumsum([0.0, *(seconds + LEAST_GAP_SECONDS for _, seconds in subjects)])
        while subjects and taken[len(subjects)] > self.seconds - _LAST_SECONDS:
            subjects.pop()
        free = self.seconds - _LAST_SECONDS - taken[len(subjects)]
        # Chance puts the starts into the time that is left; this way all admissible times are equally likely.
        starts = np.sort(rng.uniform(0, free, len(subjects)))
        if self.first_passage_seconds is not None and len(starts):
            starts[0] = min(starts[0], self.first_passage_seconds)
        starts += taken[: len(subjects)]
        return tuple(
            SimulatedPassage(number, subject.label, float(start), float(start + seconds), subject)
            for number, ((subject, seconds), start) in enumerate(zip(subjects, starts, strict=True))
        )

    @cached_property
    def distractors(self) -> tuple[Distractor, ...]:
        """Return all distractors in the order of time; they may overlap each other and passages."""
        rng = self._chance(_DISTRACTORS)
        count = int(rng.poisson(self.distractors_per_day * self.seconds / 86_400))
        n_sensors = len(self.site.sensors_m)
        drawn = [draw_distractor(n, rng, within_seconds=self.seconds, n_sensors=n_sensors) for n in range(count)]
        return tuple(sorted(drawn, key=lambda one: one.start_seconds))

    @cached_property
    def episodes(self) -> tuple[FaultEpisode, ...]:
        """Return all faults of sensors in the order of time."""
        if self.site.faults is None:
            return ()
        seed = (self.site.seed, _STREAM, _FAULTS, self.number)
        drawn = draw_episodes(
            self.site.faults, self._chance(_FAULTS), length=self.length, rate_hz=self.site.rate_hz, seed=seed
        )
        return tuple(drawn)

    def piece(self, number: int) -> Samples:
        """Return piece `number`, (sensors, samples), as a 16-bit converter delivers it."""
        sound = self.clean(number)
        start = number * self._piece_length
        parts = [
            episode.part(start, start + self._piece_length)
            for episode in self.episodes
            if episode.start < start + self._piece_length and episode.stop > start
        ]
        if not parts:
            return converted(sound)
        other = self._elsewhere(number)
        return converted(afflict(sound.astype(np.float64), parts, other, self.site.rate_hz))

    def clean(self, number: int) -> Samples:
        """Return piece `number` by healthy sensors, in parts of full scale."""
        if not 0 <= number < self.n_pieces:
            raise UsageError(f"piece {number} must be from 0 to {self.n_pieces - 1}, for that is the length of the day")
        sound = self.background.piece(self.number * self.n_pieces + number)
        start = number * PIECE_SECONDS
        for passage in self.passages:
            if passage.start_seconds < start + PIECE_SECONDS and passage.end_seconds + _TAIL_SECONDS > start:
                self._mix(sound, number, passage.start_seconds, ("passage", passage.number), self.passage_sound)
        for place, distractor in enumerate(self.distractors):
            if distractor.start_seconds < start + PIECE_SECONDS and distractor.end_seconds > start:
                self._mix(sound, number, distractor.start_seconds, ("distractor", place), self.distractor_sound)
        return sound

    def read(self, start: int, stop: int) -> Samples:
        """Return the samples from `start` to before `stop`."""
        if not 0 <= start < stop <= self.length:
            raise UsageError(f"samples {start} to {stop} must lie within the {self.length} of the day")
        first, last = start // self._piece_length, (stop - 1) // self._piece_length
        whole = np.concatenate([self.piece(number) for number in range(first, last + 1)], axis=1)
        return whole[:, start - first * self._piece_length : stop - first * self._piece_length]

    def passage_sound(self, number: int) -> Samples:
        """Return the sound of a passage alone, (sensors, samples) from its start on, in parts of full scale."""
        passage, rate_hz = self.passages[number], self.site.rate_hz
        seconds = passage.end_seconds - passage.start_seconds
        pressure = pressure_of(
            passage.subject,
            self._chance(_VOICE, number),
            sensors_m=self.site.sensors_m,
            duration_seconds=seconds,
            length=round((seconds + _TAIL_SECONDS) * rate_hz),
            rate_hz=rate_hz,
            air=self._air,
            clips=self.site.clips,
        )
        edge = round(_EDGE_SECONDS * rate_hz)
        rise = np.sin(np.pi / 2 / edge * np.arange(edge)) ** 2
        pressure[:, :edge] *= rise
        pressure[:, -edge:] *= rise[::-1]
        return self._sensed(pressure)

    def distractor_sound(self, number: int) -> Samples:
        """Return the sound of a distractor alone, likewise."""
        distractor = self.distractors[number]
        pressure = distractor_pressure(
            distractor,
            self._chance(_NOISE, distractor.number),
            sensors_m=self.site.sensors_m,
            length=round((distractor.end_seconds - distractor.start_seconds) * self.site.rate_hz),
            rate_hz=self.site.rate_hz,
        )
        return self._sensed(pressure)

    def truth(self, number: int) -> PassageTruth:
        """Return what is known about a passage; its sound is made for this."""
        passage = self.passages[number]
        times, ratio_db = self.signal_to_noise_db(self.passage_sound(number), passage.start_seconds)
        loudest = ratio_db.max(axis=0)
        audible = np.flatnonzero(loudest >= 0)
        half = _FRAME_SECONDS / 2
        peak = float(times[loudest.argmax()])
        start, end = (times[audible[0]] - half, times[audible[-1]] + half) if len(audible) else (peak, peak)
        return _truth_of(passage, self.site.sensors_m, (float(start), float(end)), ratio_db)

    def peak_db(self, number: int) -> float:
        """Return the highest signal-to-noise ratio of a distractor at any sensor."""
        start = self.distractors[number].start_seconds
        return float(self.signal_to_noise_db(self.distractor_sound(number), start)[1].max())

    def signal_to_noise_db(self, sound: Samples, start_seconds: float) -> tuple[Floats, Floats]:
        """Return times of the day and the ratio at each sensor, (sensors, times), of a sound's power averaged over 1 s
        to the expected power of the background, both in the band of `BAND_HZ`."""
        frame = round(_FRAME_SECONDS * self.site.rate_hz)
        power = _framed(np.square(_band(sound, self.site.rate_hz)), frame)
        smooth = np.stack([np.convolve(row, np.ones(_SMOOTH_FRAMES) / _SMOOTH_FRAMES, mode="same") for row in power])
        times = start_seconds + (np.arange(power.shape[1]) + 0.5) * frame / self.site.rate_hz
        noise = self.background.band_power(self.start_seconds + times)
        return times, 10 * np.log10(np.maximum(smooth / noise, 1e-9))

    @property
    def _piece_length(self) -> int:
        return PIECE_SECONDS * self.site.rate_hz

    @cached_property
    def _air(self) -> Air:
        rng = np.random.default_rng([self.site.seed, _STREAM, _AIR, 1, 1])
        return Air(temperature_c=float(rng.uniform(0, 30)), humidity_percent=float(rng.uniform(30, 90)))

    @cached_property
    def _recent(self) -> OrderedDict[tuple[str, int], Samples]:
        return OrderedDict()

    def _chance(self, purpose: int, index: int = 0) -> np.random.Generator:
        return np.random.default_rng([self.site.seed, _STREAM, purpose, self.number, index + 1])

    def _drawn_subject(self, number: int) -> tuple[Subject, float]:
        """A subject and how long it can be heard."""
        rng = self._chance(_SUBJECT, number)
        label = str(rng.choice(self.classes))
        subject = draw_subject(label, rng, surface_name=self.site.surface, duration_seconds=0.0)
        reach = float(rng.uniform(*(_DRIVEN_M if label == VEHICLE else _WALKED_M)))
        seconds = float(np.clip(2 * reach / subject.path.speed_m_per_s, SHORTEST_SECONDS, LONGEST_SECONDS))
        return subject.nearest_at(seconds / 2), seconds

    def _mix(
        self, sound: Samples, number: int, start_seconds: float, name: tuple[str, int], make: Callable[[int], Samples]
    ) -> None:
        """Add the part of a sound that lies within a piece."""
        whole = self._remembered(name, make)
        at = round(start_seconds * self.site.rate_hz) - number * self._piece_length
        start, stop = max(at, 0), min(at + whole.shape[1], self._piece_length)
        if start < stop:
            sound[:, start:stop] += whole[:, start - at : stop - at]

    def _remembered(self, name: tuple[str, int], make: Callable[[int], Samples]) -> Samples:
        if name not in self._recent:
            self._recent[name] = make(name[1])
            while len(self._recent) > _REMEMBERED:
                self._recent.popitem(last=False)
        self._recent.move_to_end(name)
        return self._recent[name]

    def _sensed(self, pressure: Floats) -> Samples:
        """What the microphones deliver of it; row by row, because sounds are long."""
        from scipy.fft import irfft, next_fast_len, rfft

        length = pressure.shape[1]
        size = next_fast_len(length + self.site.rate_hz // 4, real=True)
        passed = response(size, self.site.rate_hz) / FULL_SCALE_PA
        sensed = np.zeros(pressure.shape, np.float32)
        for row, given, gain in zip(sensed, pressure, self.site.gains, strict=True):
            if given.any():
                row[:] = gain * irfft(rfft(given, n=size) * passed, n=size)[:length]
        return sensed

    def _elsewhere(self, number: int) -> Callable[[], Floats]:
        """The sound that a stale buffer plays: healthy sensors, some time earlier or later."""
        shift = 1 + int(self._chance(_FAULTS, 1).integers(max(self.n_pieces - 1, 1)))
        return lambda: self.clean((number + shift) % self.n_pieces).astype(np.float64)


def _truth_of(
    passage: SimulatedPassage, sensors_m: Floats, audible: tuple[float, float], ratio_db: Floats
) -> PassageTruth:
    subject = passage.subject
    moments = np.arange(0.0, passage.end_seconds - passage.start_seconds, 0.05)
    distance = np.linalg.norm(subject.path.places(moments)[:, None] - sensors_m, axis=2)
    moment, sensor = np.unravel_index(int(distance.argmin()), distance.shape)
    cadences = [*subject.cadences_per_minute, None, None]
    return PassageTruth(
        label=passage.label,
        start_seconds=audible[0],
        end_seconds=audible[1],
        peak_db=float(np.median(ratio_db.max(axis=1))),
        loudest_db=float(ratio_db.max()),
        direction=FORWARD if np.cos(subject.path.heading_rad) > 0 else BACKWARD,
        speed_mps=subject.path.speed_m_per_s,
        cadence_per_minute=cadences[0],
        second_cadence_per_minute=cadences[1],
        species=subject.species,
        nearest_seconds=passage.start_seconds + float(moments[moment]),
        nearest_m=float(distance.min()),
        nearest_sensor=int(sensor) + 1,
        enters_seconds=passage.start_seconds,
        leaves_seconds=passage.end_seconds,
    )


def _band(sound: Samples, rate_hz: int) -> Floats:
    """What of a sound lies in the band of `BAND_HZ`."""
    from scipy.fft import irfft, next_fast_len, rfft

    size = next_fast_len(sound.shape[1], real=True)
    frequency = np.arange(size // 2 + 1) * rate_hz / size
    inside = (frequency >= BAND_HZ[0]) & (frequency <= BAND_HZ[1])
    rows = [irfft(rfft(row.astype(np.float64), n=size) * inside, n=size)[: sound.shape[1]] for row in sound]
    return np.stack(rows)


def _framed(power: Floats, frame: int) -> Floats:
    """Means over whole frames, (rows, frames)."""
    n = power.shape[1] // frame
    means: Floats = power[:, : n * frame].reshape(len(power), n, frame).mean(axis=2)
    return means


def quiet_stretches(
    day: Day,
    *,
    margin_seconds: float = 5.0,
    distractor_margin_seconds: float | None = 1.0,
    least_seconds: float = 10.0,
) -> Sequence[tuple[float, float]]:
    """Return the stretches with neither passage nor distractor, margins left out, each at least so long.

    With a `distractor_margin_seconds` of None distractors do not count: nobody passes while there is one.
    """
    taken = [
        (one.start_seconds - margin_seconds, one.end_seconds + _TAIL_SECONDS + margin_seconds) for one in day.passages
    ]
    if distractor_margin_seconds is not None:
        taken += [
            (one.start_seconds - distractor_margin_seconds, one.end_seconds + distractor_margin_seconds)
            for one in day.distractors
        ]
    stretches, free = [], 0.0
    for start, end in [*sorted(taken), (day.seconds, day.seconds)]:
        if start - free >= least_seconds:
            stretches.append((free, start))
        free = max(free, end)
    return stretches
