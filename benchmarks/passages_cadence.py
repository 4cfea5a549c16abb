"""Steps per minute: walks built from single steps with known times, and runners on a treadmill with annotated ones."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from benchmarks._streams import Sources, Stream, on_side
from benchmarks.passages_run import N_SENSORS, RATE_HZ, Floats
from benchmarks.passages_score import Figures, share
from benchmarks.passages_streams import percent
from benchmarks.passages_stress import converted
from benchmarks.real_audio import clip
from benchmarks.report import show
from pipeline.core.events import Block, RecordingStarted, Samples, Views
from pipeline.core.framing import Grid
from pipeline.model.build import hearing_settings, listening
from pipeline.stages import Chain
from pipeline.stages.cadence import CONFIDENT, Cadence, cadence

SNR_DB = (-5.0, 0.0, 5.0, 10.0, 15.0, 20.0)
TREADMILL_SNR_DB = 20.0
WALK_SECONDS = 20.0
STEPS_PER_MINUTE = (80.0, 140.0)
JITTER = 0.03
NEAR = 0.05
_STEP_DB = 2.0
_FEWEST_STEPS = 4
_GRID = Grid(rate_hz=RATE_HZ)


@dataclass(frozen=True, slots=True)
class Measured:
    """True steps per minute, if anybody walks, and those that were found."""

    true: float | None
    found: Cadence | None

    @property
    def is_confident(self) -> bool:
        return self.found is not None and self.found.confidence >= CONFIDENT

    @property
    def is_near(self) -> bool:
        assert self.true is not None
        return self.found is not None and abs(self.found.per_minute / self.true - 1) <= NEAR

    @property
    def ratio(self) -> float:
        assert self.true is not None
        assert self.found is not None
        return self.found.per_minute / self.true


def measure_cadence(audio: Path, side: str, n: int, seed: int) -> Figures:
    """Share within 5 % among those that are told, and how many are told."""
    surfaces = _surfaces(audio, side)
    backgrounds = _backgrounds(audio, side, seed)
    chain = Chain(*listening(_GRID, hearing_settings(_GRID)))
    figures: Figures = {}
    for snr_db in SNR_DB:
        rng = np.random.default_rng([seed, round(100 + snr_db)])
        walks = [_walk(surfaces, rng) for _ in range(n)]
        measured = [
            Measured(true, _cadence(chain, _mixed(sound, next(backgrounds), snr_db, rng))) for sound, true in walks
        ]
        figures[f"walks at {snr_db:g} dB"] = _figures(measured)
    rng = np.random.default_rng([seed, 7])
    runners = [
        Measured(true, _cadence(chain, _mixed(sound, next(backgrounds), TREADMILL_SNR_DB, rng)))
        for sound, true in _runners(audio, side)
    ]
    figures["runners on a treadmill"] = _figures(runners)
    nobody = [Measured(None, _cadence(chain, next(backgrounds))) for _ in range(4 * n)]
    figures["nobody"] = {"n": len(nobody), "confident": share([one.is_confident for one in nobody])}
    show(
        f"Cadence, {n} walks of {WALK_SECONDS:g} s each",
        ("what", "n", "told, %", "of those within 5 %, %", "of all, %", "half / double, of those told"),
        [
            [
                name,
                told["n"],
                percent(told["confident"]),
                percent(told.get("near_of_confident")),
                percent(told.get("near")),
                " / ".join(str(count) for count in told.get("octaves", ())),
            ]
            for name, told in figures.items()
        ],
    )
    return figures


def _figures(measured: Sequence[Measured]) -> Figures:
    confident = [one for one in measured if one.is_confident]
    return {
        "n": len(measured),
        "confident": share([one.is_confident for one in measured]),
        "near_of_confident": share([one.is_near for one in confident]),
        "near": share([one.is_near for one in measured]),
        "octaves": [sum(abs(one.ratio / factor - 1) <= 2 * NEAR for one in confident) for factor in (0.5, 2.0)],
    }


def _surfaces(audio: Path, side: str) -> list[list[Path]]:
    """Single steps by surface and gait; each of these lies on one side."""
    groups: dict[str, list[Path]] = {}
    for path in sorted((audio / "single_steps").glob("*.flac")):
        groups.setdefault(path.stem.rstrip("0123456789"), []).append(path)
    return [groups[name] for place, name in enumerate(sorted(groups)) if on_side(place, side)]


def _backgrounds(audio: Path, side: str, seed: int) -> Iterator[Floats]:
    """Stretches of background of real streams, (sensors, time), without end."""
    sources = Sources.of(audio, side)
    length = round(WALK_SECONDS * RATE_HZ)
    while True:
        stream = Stream(sources, hours=1.0, seed=seed, passages_per_hour=0, distractors_per_hour=0)
        yield from (piece[:, :length].astype(np.float64) for piece in stream.pieces())
        seed += 1


@lru_cache(maxsize=512)
def _step(path: Path) -> Floats:
    sound = clip(path, None)
    return np.asarray(sound / max(float(np.sqrt(np.mean(sound**2))), 1e-9))


def _walk(surfaces: Sequence[list[Path]], rng: np.random.Generator) -> tuple[Floats, float]:
    """Steps on one surface at a steady pace with some jitter, and their true number a minute."""
    files = surfaces[int(rng.integers(len(surfaces)))]
    period = 60 / float(rng.uniform(*STEPS_PER_MINUTE))
    times = np.arange(rng.uniform(0, period), WALK_SECONDS, period)
    times = np.maximum(times + rng.normal(0, JITTER * period, len(times)), 0.0)
    sound = np.zeros(round(WALK_SECONDS * RATE_HZ))
    for seconds in times.tolist():
        step = _step(files[int(rng.integers(len(files)))]) * 10 ** (rng.normal(0, _STEP_DB) / 20)
        at = round(seconds * RATE_HZ)
        part = step[: max(0, len(sound) - at)]
        sound[at : at + len(part)] += part
    return sound, 60 / float(np.mean(np.diff(times)))


def _runners(audio: Path, side: str) -> Iterator[tuple[Floats, float]]:
    """Clips of one runner each, with the true number of steps a minute."""
    strikes: dict[str, list[float]] = {}
    with (audio / "human_running_treadmill" / "steps.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            strikes.setdefault(row["file"], []).append(float(row["t_step_s"]))
    for place, name in enumerate(sorted(strikes)):
        times = np.sort(strikes[name])
        if on_side(place, side) and len(times) >= _FEWEST_STEPS:
            yield clip(audio / "human_running_treadmill" / name, None), 60 / float(np.median(np.diff(times)))


def _mixed(sound: Floats, background: Floats, snr_db: float, rng: np.random.Generator) -> Floats:
    """A walk at all sensors with delays and gains, so much louder than the background on average."""
    length = min(len(sound), background.shape[1])
    sound, noise = sound[:length], background[:, :length]
    level = np.sqrt(np.mean(noise**2) / max(float(np.mean(sound**2)), 1e-12)) * 10 ** (snr_db / 20)
    delays = rng.integers(0, round(0.03 * RATE_HZ), N_SENSORS)
    gains = 10 ** (rng.uniform(-3, 3, N_SENSORS) / 20)
    rows = [gain * np.roll(sound, delay) for gain, delay in zip(gains, delays, strict=True)]
    return np.asarray(noise + level * np.stack(rows))


def _cadence(chain: Chain, sound: Floats) -> Cadence | None:
    """Cadence as a passage of all of the sound has it."""
    facts = chain.push(RecordingStarted("", RATE_HZ, tuple("1234")))
    samples: Samples = converted(sound)
    facts += chain.push(Block(0, samples, np.ones(N_SENSORS, np.bool_)))
    facts += chain.flush()
    onsets = [fact.onsets for fact in facts if isinstance(fact, Views)]
    return cadence(np.concatenate(onsets, axis=1), _GRID.hop_seconds)
