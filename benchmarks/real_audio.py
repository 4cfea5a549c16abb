"""The grid of the footstep experiment on real sound: humans alone, or with hooves mixed in, on four virtual sensors.

Run: python -m benchmarks.real_audio AUDIO_DIR [--out DIR] [--splits 6] [--quick] [--jobs N]

AUDIO_DIR holds folders human_*, hoof and noise_* of mono sound files, and meta.csv with the columns path, class and
source_id. Every source is on one side of a split: the sources of humans, hooves and noise are dealt out to as many
families as there are sources of hooves, and a recording is made of one family.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray
from rich.console import Console

from benchmarks.report import finish
from pipeline.reproduction.footsteps import full_plan, quick_plan
from pipeline.reproduction.footsteps_report import FootstepResults
from pipeline.reproduction.footsteps_run import run_footsteps, summary
from pipeline.reproduction.methods import JOINT
from pipeline.workers import LocalEngine

Floats = NDArray[np.float64]

RATE_HZ, SECONDS, N_SENSORS = 16_000, 14.0, 4
N_HUMAN, N_ANIMAL = 84, 66
HOOF_DB, NOISE_DB = (0.0, 9.0), -25.0
LONGEST_DELAY_SECONDS, GAIN_DB = 0.03, 6.0


@dataclass(frozen=True, slots=True)
class Family:
    """Clips that belong together: nothing of them is in another family."""

    name: str
    humans: list[Path]
    hooves: list[Path]
    noises: list[Path]


def families_of(audio: Path, rng: np.random.Generator) -> list[Family]:
    """One for each source of hooves; the sources of humans and of noise are dealt out to them in random order."""
    kinds: dict[str, dict[str, list[Path]]] = {"human": {}, "hoof": {}, "noise": {}}
    with (audio / "meta.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            kind = row["class"].split("_")[0]
            if kind in kinds:
                kinds[kind].setdefault(row["source_id"], []).append(audio / row["path"])
    for kind, sources in kinds.items():
        if len(sources) < 2:
            sys.exit(f"{audio}/meta.csv names {len(sources)} sources of {kind}, there must be at least 2; add clips")
    names = sorted(kinds["hoof"])
    dealt = {kind: _dealt(kinds[kind], len(names), rng) for kind in ("human", "noise")}
    return [
        Family(name, dealt["human"][place], kinds["hoof"][name], dealt["noise"][place])
        for place, name in enumerate(names)
    ]


def _dealt(sources: dict[str, list[Path]], n: int, rng: np.random.Generator) -> list[list[Path]]:
    hands: list[list[Path]] = [[] for _ in range(n)]
    for place, source in enumerate(rng.permutation(sorted(sources))):
        hands[place % n] += sources[source]
    return hands


def clip(path: Path) -> Floats:
    sound, rate_hz = soundfile.read(path)
    if rate_hz != RATE_HZ or sound.ndim != 1:
        sys.exit(f"{path} must be mono with {RATE_HZ} samples per second; convert it")
    return np.asarray(sound, dtype=np.float64)


def looped(path: Path, length: int, rng: np.random.Generator) -> Floats:
    """A clip again and again from a random place on, of unit power."""
    sound = clip(path)
    start = int(rng.integers(len(sound)))
    sound = np.resize(np.roll(sound, -start), length)
    return sound / max(float(np.sqrt(np.mean(sound**2))), 1e-9)


def at_sensors(sound: Floats, rng: np.random.Generator) -> Floats:
    """Each sensor hears it later and weaker in its own way, (sensors, time)."""
    delays = rng.integers(0, round(LONGEST_DELAY_SECONDS * RATE_HZ), N_SENSORS)
    gains = 10 ** (rng.uniform(-GAIN_DB, 0, N_SENSORS) / 20)
    return np.stack([gain * np.roll(sound, delay) for gain, delay in zip(gains, delays, strict=True)])


def recording_of(family: Family, *, animal: bool, rng: np.random.Generator) -> Floats:
    length = round(SECONDS * RATE_HZ)
    sound = at_sensors(looped(_one_of(family.humans, rng), length, rng), rng)
    if animal:
        level = 10 ** (rng.uniform(*HOOF_DB) / 20)
        sound = sound + level * at_sensors(looped(_one_of(family.hooves, rng), length, rng), rng)
    noise = np.stack([looped(_one_of(family.noises, rng), length, rng) for _ in range(N_SENSORS)])
    sound = sound + 10 ** (NOISE_DB / 20) * noise
    return 0.05 * sound


def _one_of(paths: list[Path], rng: np.random.Generator) -> Path:
    return paths[int(rng.integers(len(paths)))]


def write_recordings(audio: Path, folder: Path, seed: int) -> None:
    """Sound files, labels.csv and sources.csv; those of an earlier run with the same seed are the same."""
    folder.mkdir(parents=True, exist_ok=True)
    families = families_of(audio, np.random.default_rng(seed))
    labels, sources = ["recording,start_seconds,end_seconds,label"], ["recording,source"]
    for name, animal, family in _cast(families):
        path = folder / f"{name}.wav"
        if not path.exists():
            rng = np.random.default_rng([seed, int(name)])
            soundfile.write(path, recording_of(family, animal=animal, rng=rng).T, RATE_HZ, subtype="PCM_16")
        labels.append(f"{name},0,{SECONDS:g},{'human_animal' if animal else 'human'}")
        sources.append(f"{name},{family.name}")
    for file, lines in (("labels.csv", labels), ("sources.csv", sources)):
        text = "\n".join(lines) + "\n"
        # Written anew it would look changed, and the cepstra would be made again.
        if not (folder / file).exists() or (folder / file).read_text() != text:
            (folder / file).write_text(text)


def _cast(families: list[Family]) -> Iterator[tuple[str, bool, Family]]:
    for number in range(N_HUMAN + N_ANIMAL):
        yield f"{number:03d}", number >= N_HUMAN, families[number % len(families)]


def report(results: FootstepResults) -> None:
    """All sensors together; the sensors concerned have been shown."""
    Console().print(summary(results, "fused"))
    figures: dict[str, object] = {
        f"{quantity}: {cell}": [
            round(results.mean(quantity, JOINT, cell).value, 4),
            round(results.against_best(quantity, cell)[0].value, 4),
        ]
        for quantity in ("affected", "fused")
        for cell in results.cells
    }
    finish({"splits": results.plan.splits, "missed": results.misses(), **figures})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("audio", type=Path, metavar="AUDIO_DIR")
    parser.add_argument("--out", type=Path, help="keep recordings and results here, and continue there")
    parser.add_argument("--splits", type=int, help="6, or 2 with --quick")
    parser.add_argument("--quick", action="store_true", help="five training sets")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    if not (options.audio / "meta.csv").is_file():
        sys.exit(f"{options.audio}/meta.csv is not there; give the folder with the clips and their table")
    with tempfile.TemporaryDirectory() as temporary:
        out = options.out or Path(temporary)
        write_recordings(options.audio, out / "recordings", options.seed)
        own = str((out / "recordings").resolve())
        plan = (
            quick_plan(options.splits or 2, options.seed, own)
            if options.quick
            else full_plan(options.splits or 6, options.seed, own)
        )
        with LocalEngine(options.jobs) as engine:
            report(run_footsteps(plan, out, engine=engine, restart=False))


if __name__ == "__main__":
    main()
