"""Real sounds in place of synthetic ones."""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256
from pathlib import Path

import numpy as np

from pipeline.core.errors import UsageError
from pipeline.simulation.footsteps import Foot, Voice, scale_pa
from pipeline.simulation.propagation import EmittedSound, Floats

FOLDERS = ("steps", "hooves", "noise")
_EXTENSIONS = {".wav", ".flac", ".ogg", ".aiff", ".aif", ".mp3"}
_HIT_SECONDS = 0.35
_SAME_PLACE = 4  # neighbours in the list, which most collections name by surface, serve one walker


class Clips:
    """Sound files in the folders `steps`, `hooves` and `noise` of a directory; what is missing stays synthetic.

    Of steps and hooves every single impact is cut out and used for one contact with the ground, so the times stay
    those of the simulated walk. Noise is played from a distance.
    """

    def __init__(self, directory: Path, rate_hz: int) -> None:
        if not directory.is_dir():
            raise UsageError(
                f"{directory} is not a directory; give one with {', '.join(f'{name}/' for name in FOLDERS)}"
            )
        self._rate_hz = rate_hz
        self._files = {name: _sound_files(directory / name) for name in FOLDERS}
        if not any(self._files.values()):
            raise UsageError(
                f"{directory} holds no sound files in {', '.join(f'{name}/' for name in FOLDERS)}; "
                "put WAV or FLAC files into at least one of these folders"
            )
        self._hits = {name: [hit for file in self._files[name] for hit in self._impacts(file)] for name in FOLDERS[:2]}

    def __str__(self) -> str:
        counts = {name: len(hits) for name, hits in self._hits.items()} | {"noise": len(self._files["noise"])}
        return ", ".join(f"{count} {name}" if count else f"synthetic {name}" for name, count in counts.items())

    @property
    def digest(self) -> str:
        """Tells one collection of clips from another."""
        state = sha256()
        for folder, files in self._files.items():
            for file in files:
                state.update(f"{folder}/{file.name} {file.stat().st_size}\n".encode() + file.read_bytes())
        return state.hexdigest()

    def voice(self, folder: str, rng: np.random.Generator) -> list[Floats]:
        """Impacts of one walker or animal; empty if there are none."""
        hits = self._hits[folder]
        if not hits:
            return []
        first = int(rng.integers(len(hits)))
        return [hits[(first + k) % len(hits)] for k in range(min(_SAME_PLACE, len(hits)))]

    def noises(self, rng: np.random.Generator, *, duration_seconds: float) -> list[EmittedSound]:
        """One clip for the whole recording, somewhere out there."""
        if not self._files["noise"]:
            return []
        clip = _read(self._files["noise"][int(rng.integers(len(self._files["noise"])))], self._rate_hz)
        repeats = -(-round((duration_seconds + 1) * self._rate_hz) // len(clip))
        far, bearing = rng.uniform(30, 80), rng.uniform(0, 2 * np.pi)
        level = float(rng.normal(38, 4)) + 20 * np.log10(far)
        loud = np.tile(clip, repeats) / max(float(np.sqrt(np.mean(clip**2))), 1e-9)
        return [EmittedSound(-0.5, (far * np.cos(bearing), far * np.sin(bearing)), scale_pa(level) / np.sqrt(8) * loud)]

    def _impacts(self, file: Path) -> list[Floats]:
        """Single hits of a clip, each with its peak at 1."""
        return [hit / np.abs(hit).max() for hit in cut_impacts(_read(file, self._rate_hz), self._rate_hz)]


def recorded(hits: list[Floats]) -> Voice:
    """A voice that plays one of the hits at a time, as loud as the foot."""

    def contact(foot: Foot, rng: np.random.Generator, rate_hz: int, /) -> Floats:
        return scale_pa(foot.level_db) * hits[int(rng.integers(len(hits)))]

    return contact


def cut_impacts(clip: Floats, rate_hz: int) -> list[Floats]:
    """The stretches that begin at each clear rise of loudness, at most 0.35 s long, none of them silent."""
    window = max(round(0.01 * rate_hz), 1)
    power = np.add.reduceat(clip**2, np.arange(0, len(clip), window))
    loud = power > 0.1 * power.max()
    length = round(_HIT_SECONDS * rate_hz)
    hits, free = [], 0
    for step in np.flatnonzero(loud):
        start = int(step) * window
        if start >= free:
            begin = max(start - window, 0)
            free = begin + length
            hits.append(_faded(clip[begin:free], rate_hz))
    return [hit for hit in hits if np.abs(hit).max() > 0]


def _faded(hit: Floats, rate_hz: int) -> Floats:
    edge = min(round(0.02 * rate_hz), len(hit))
    faded: Floats = hit * np.minimum(1, np.arange(len(hit), 0, -1) / max(edge, 1))
    return faded


def _sound_files(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*") if path.suffix.lower() in _EXTENSIONS)


@lru_cache(maxsize=64)
def _read(file: Path, rate_hz: int) -> Floats:
    """A clip in one channel at the given rate."""
    import soundfile
    import soxr

    try:
        samples, rate = soundfile.read(file, dtype="float64", always_2d=True)
    except soundfile.SoundFileError as error:
        raise UsageError(f"{file} cannot be read as sound; remove it or convert it to WAV") from error
    if not len(samples) or not np.isfinite(samples).all():
        raise UsageError(f"{file} holds no samples, or some that are not numbers; remove it")
    mono: Floats = soxr.resample(samples.mean(axis=1), rate, rate_hz)
    return mono
