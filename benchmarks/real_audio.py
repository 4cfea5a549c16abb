"""The grid of the footstep experiment on real sound, mixed onto four virtual sensors with delays, gains and noise.

Run: python -m benchmarks.real_audio AUDIO_DIR [--task steps] [--by-time] [--out DIR] [--splits 6] [--quick] [--jobs N]

AUDIO_DIR holds folders of mono sound files and meta.csv with the columns path, class and source_id. Tasks:

steps    a human alone (human_*), or with hooves mixed in (hoof)
digits   speech_digit_5 against speech_digit_9
running  human_running_treadmill against human_footsteps

Sources of training and test are disjoint. For steps the sources of humans, hooves and noise are dealt out to as many
families as there are sources of hooves, and a recording is made of one family. With --by-time the first half of every
clip is on one side of a split and the second half on the other: a known site, later.
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
from typing import Any

import numpy as np
import soundfile
from numpy.typing import NDArray
from rich.console import Console
from scipy.signal import resample_poly

from benchmarks.report import finish, show
from pipeline.core.framing import Grid
from pipeline.core.segment_views import N_COEFFICIENTS
from pipeline.experiments.corpus import CorpusEntry, features_of, loaded, split, view_slices
from pipeline.experiments.footsteps import FootstepPlan, full_plan, quick_plan
from pipeline.experiments.footsteps_report import FootstepResults
from pipeline.experiments.footsteps_run import run_footsteps, summary
from pipeline.experiments.methods import JOINT, JOINT_PAPER
from pipeline.experiments.tables import Mean
from pipeline.model.build import hearing_settings
from pipeline.model.metrics import Rate, rate
from pipeline.runtime.process_pool import LocalEngine
from pipeline.training.examples import Examples, RecordingNote
from pipeline.training.fit import learn

Floats = NDArray[np.float64]
Clips = dict[str, dict[str, list[Path]]]
"""Files by class and source."""

RATE_HZ, SECONDS, N_SENSORS = 16_000, 14.0, 4
GRID = Grid(rate_hz=RATE_HZ)
FALSE_ALARM_RATES = (0.01, 0.05)
N_HUMAN, N_ANIMAL = 84, 66
HOOF_DB, NOISE_DB, NOISE_BY_TIME_DB = (0.0, 9.0), -25.0, -20.0
PAUSE_SECONDS = (0.1, 0.6)
"""Between two spoken digits."""
TASKS = {
    "steps": ("human", "human_animal"),
    "digits": ("speech_digit_5", "speech_digit_9"),
    "running": ("human_footsteps", "human_running_treadmill"),
}
LONGEST_DELAY_SECONDS, GAIN_DB = 0.03, 6.0


@dataclass(frozen=True, slots=True)
class Cast:
    """One recording to be made: its label, the clips it may be mixed from, and which half of them."""

    name: str
    label: str
    source: str
    """Recordings with one source are on one side of a split."""
    voices: list[Path]
    hooves: list[Path]
    noises: list[Path]
    half: int | None = None


def clips_of(audio: Path) -> Clips:
    """Files by class and source."""
    found: Clips = {}
    with (audio / "meta.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            found.setdefault(row["class"], {}).setdefault(row["source_id"], []).append(audio / row["path"])
    return found


def cast_of(audio: Path, task: str, seed: int, *, by_time: bool) -> list[Cast]:
    """All recordings of a task."""
    rng, clips = np.random.default_rng(seed), clips_of(audio)
    make = _steps if task == "steps" else _two_classes
    return list(make(clips, task, rng, by_time))


def _steps(clips: Clips, task: str, rng: np.random.Generator, by_time: bool) -> Iterator[Cast]:
    """Families: one for each source of hooves; sources of humans and of noise are dealt out to them in random order."""
    hooves = clips["hoof"]
    humans, noises = (_dealt(_merged(clips, prefix), len(hooves), rng) for prefix in ("human_", "noise_"))
    labels = TASKS[task]
    for number in range(N_HUMAN + N_ANIMAL):
        place = number % len(hooves)
        family = sorted(hooves)[place]
        half = number // len(hooves) % 2 if by_time else None
        animal = number >= N_HUMAN
        source = family if half is None else HALVES[half]
        yield Cast(
            f"{number:03d}",
            labels[animal],
            source,
            humans[place],
            hooves[family] if animal else [],
            noises[place],
            half,
        )


def _two_classes(clips: Clips, task: str, rng: np.random.Generator, by_time: bool) -> Iterator[Cast]:
    """Recordings of either class in turn, each of one source; sources of noise are dealt out to the sources."""
    names = sorted({source for label in TASKS[task] for source in clips[label]})
    noises = dict(zip(names, _dealt(_merged(clips, "noise_"), len(names), rng), strict=True))
    for number in range(N_HUMAN + N_ANIMAL):
        label = TASKS[task][number % 2]
        own = sorted(clips[label])
        source = own[number // 2 % len(own)]
        half = number // 2 // len(own) % 2 if by_time else None
        side = source if half is None else HALVES[half]
        yield Cast(f"{number:03d}", label, side, clips[label][source], [], noises[source], half)


HALVES = ("first halves", "second halves")


def _merged(clips: Clips, prefix: str) -> dict[str, list[Path]]:
    """Sources of all classes with a prefix."""
    merged: dict[str, list[Path]] = {}
    for name, sources in clips.items():
        if name.startswith(prefix):
            for source, paths in sources.items():
                merged.setdefault(source, []).extend(paths)
    if len(merged) < 2:
        sys.exit(f"meta.csv names {len(merged)} sources of {prefix}*, there must be at least 2; add clips")
    return merged


def _dealt(sources: dict[str, list[Path]], n: int, rng: np.random.Generator) -> list[list[Path]]:
    """As many hands as asked for; sources go round again where there are fewer."""
    hands: list[list[Path]] = [[] for _ in range(n)]
    order = rng.permutation(sorted(sources)).tolist()
    for place in range(max(n, len(order))):
        hands[place % n] += sources[order[place % len(order)]]
    return hands


def clip(path: Path, half: int | None) -> Floats:
    """A clip at `RATE_HZ`, or one of its halves."""
    sound, rate_hz = soundfile.read(path)
    if sound.ndim != 1:
        sys.exit(f"{path} has {sound.shape[1]} channels, it must be mono; convert it")
    sound = np.asarray(resample_poly(sound, RATE_HZ, rate_hz) if rate_hz != RATE_HZ else sound, dtype=np.float64)
    middle = len(sound) // 2
    return sound if half is None else (sound[:middle], sound[middle:])[half]


def looped(path: Path, half: int | None, length: int, rng: np.random.Generator) -> Floats:
    """A clip again and again from a random place on, of unit power."""
    sound = clip(path, half)
    return _unit(np.resize(np.roll(sound, -int(rng.integers(len(sound)))), length))


def spoken(paths: list[Path], length: int, rng: np.random.Generator) -> Floats:
    """Clips in random order with pauses between them, of unit power."""
    parts: list[Floats] = []
    while sum(len(part) for part in parts) < length:
        parts += [clip(_one_of(paths, rng), None), np.zeros(round(rng.uniform(*PAUSE_SECONDS) * RATE_HZ))]
    return _unit(np.concatenate(parts)[:length])


def _unit(sound: Floats) -> Floats:
    return sound / max(float(np.sqrt(np.mean(sound**2))), 1e-9)


def at_sensors(sound: Floats, rng: np.random.Generator) -> Floats:
    """Each sensor hears it later and weaker in its own way, (sensors, time)."""
    delays = rng.integers(0, round(LONGEST_DELAY_SECONDS * RATE_HZ), N_SENSORS)
    gains = 10 ** (rng.uniform(-GAIN_DB, 0, N_SENSORS) / 20)
    return np.stack([gain * np.roll(sound, delay) for gain, delay in zip(gains, delays, strict=True)])


def recording_of(cast: Cast, rng: np.random.Generator) -> Floats:
    length = round(SECONDS * RATE_HZ)
    if cast.label in TASKS["digits"]:
        voice = spoken(cast.voices, length, rng)
    else:
        voice = looped(_one_of(cast.voices, rng), cast.half, length, rng)
    sound = at_sensors(voice, rng)
    if cast.hooves:
        level = 10 ** (rng.uniform(*HOOF_DB) / 20)
        sound = sound + level * at_sensors(looped(_one_of(cast.hooves, rng), cast.half, length, rng), rng)
    noise = np.stack([looped(_one_of(cast.noises, rng), cast.half, length, rng) for _ in range(N_SENSORS)])
    sound = sound + 10 ** ((NOISE_DB if cast.half is None else NOISE_BY_TIME_DB) / 20) * noise
    return 0.05 * sound


def _one_of(paths: list[Path], rng: np.random.Generator) -> Path:
    return paths[int(rng.integers(len(paths)))]


def write_recordings(cast: list[Cast], folder: Path, seed: int) -> None:
    """Sound files, labels.csv and sources.csv; those of an earlier run with the same seed are the same."""
    folder.mkdir(parents=True, exist_ok=True)
    labels, sources = ["recording,start_seconds,end_seconds,label"], ["recording,source"]
    for one in cast:
        path = folder / f"{one.name}.wav"
        if not path.exists():
            rng = np.random.default_rng([seed, int(one.name)])
            soundfile.write(path, recording_of(one, rng).T, RATE_HZ, subtype="PCM_16")
        labels.append(f"{one.name},0,{SECONDS:g},{one.label}")
        sources.append(f"{one.name},{one.source}")
    for file, lines in (("labels.csv", labels), ("sources.csv", sources)):
        text = "\n".join(lines) + "\n"
        # Written anew it would look changed, and the features would be made again.
        if not (folder / file).exists() or (folder / file).read_text() != text:
            (folder / file).write_text(text)


def plain_baseline(plan: FootstepPlan, folder: Path, entries: list[CorpusEntry]) -> Mean:
    """Fused accuracy on clean sound of what one would write first.

    Mean and deviation of 13 cepstral coefficients of all sensors side by side, 50 principal components, an SVM with
    scikit-learn's defaults.
    """
    from sklearn.decomposition import PCA
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVC

    values = loaded(folder, entries, "clean")[..., : 2 * N_COEFFICIENTS]
    labels = np.array([entry.label for entry in entries])
    found = []
    for number in range(plan.splits):
        train, test = split(entries, plan.n_train, np.random.default_rng([plan.seed, number]))
        X, X_test = (values[places].reshape(len(places) * values.shape[1], -1) for places in (train, test))
        y, truth = (np.repeat(labels[places], values.shape[1]) for places in (train, test))
        model = make_pipeline(StandardScaler(), PCA(50, random_state=0), SVC()).fit(X, y)
        found.append(float(model.score(X_test, truth)))
    return Mean.of(found)


def false_alarms(plan: FootstepPlan, folder: Path, entries: list[CorpusEntry]) -> dict[str, Rate]:
    """Shares of p-values at most alpha on clean test recordings, by the model that `gemmed train` would make.

    `sensor fault`: p-values of each sensor; `unknown sound`: of all sensors together, at every sensor at most alpha.
    Intervals take recordings as independent and, where there are at least three, sources: a recording that is tested in
    several splits counts once.
    """
    values = loaded(folder, entries, "clean")
    slices = view_slices(values.shape[-1])
    hits: dict[str, list[bool]] = {}
    tested: dict[str, list[CorpusEntry]] = {}
    for number in range(plan.splits):
        train, test = split(entries, plan.n_train, np.random.default_rng([plan.seed, number]))
        model = learn(_examples(values, slices, entries, train), GRID, hearing_settings(GRID), seed=0)
        held = _examples(values, slices, entries, test)
        X, T = model.summary.transform(held.summary), model.timing.transform(held.timing)
        everyone = np.ones(N_SENSORS, np.bool_)
        for n, place in enumerate(held.recording.tolist()):
            (novelty,) = model.reference.measured(X[None, n], everyone[None])
            fault = model.screen.p_values(T[n], everyone, everyone, novelty).both
            known = model.reference.p_values(novelty)
            for alpha in FALSE_ALARM_RATES:
                for kind, found in (
                    (f"sensor fault at {alpha:g}", (fault <= alpha).tolist()),
                    (f"unknown sound at {alpha:g}", [bool((known <= alpha).all())]),
                ):
                    hits.setdefault(kind, []).extend(found)
                    tested.setdefault(kind, []).extend([entries[test[place]]] * len(found))
    units = ("name", "source") if len({entry.source for entry in entries}) >= 3 else ("name",)
    rates = {
        f"{kind}, by {'recording' if unit == 'name' else unit}": rate(
            hits[kind], [getattr(entry, unit) for entry in tested[kind]]
        )
        for kind in hits
        for unit in units
    }
    return {kind: found for kind, found in rates.items() if found is not None}


def _examples(values: Any, slices: dict[str, slice], entries: list[CorpusEntry], places: list[int]) -> Examples:
    """Segments of some recordings, as training takes them."""
    n_segments, labels = values.shape[1], sorted({entry.label for entry in entries})
    chosen = values[places].reshape(len(places) * n_segments, *values.shape[2:])
    codes = np.array([labels.index(entries[place].label) for place in places])
    return Examples(
        summary=chosen[..., slices["summary"]],
        timing=chosen[..., slices["timing"]],
        present=np.ones(chosen.shape[:2], np.bool_),
        recording=np.repeat(np.arange(len(places)), n_segments),
        start=np.tile(np.arange(n_segments) * GRID.stride, len(places)),
        label=np.repeat(codes, n_segments),
        recordings=tuple(RecordingNote(entries[place].name, {}, 0, (0, 0), entries[place].name) for place in places),
        classes=(labels[0], labels[1]),
    )


def report(results: FootstepResults, plain: Mean, alarms: dict[str, Rate]) -> None:
    """All sensors together; the sensors concerned have been shown."""
    show("False alarms on clean sound, %, with 95 % intervals by recording", ["p-values", "share"], [*alarms.items()])
    Console().print(summary(results, "fused"))
    Console().print(f"mean and deviation of the cepstra, PCA, SVM, clean: {plain.percent()} %")
    figures: dict[str, object] = {
        f"{quantity}: {cell}": {
            "joint": round(results.mean(quantity, JOINT, cell).value, 4),
            "standard_error": round(results.mean(quantity, JOINT, cell).standard_error, 4),
            "above_best_other": round(results.against_best(quantity, cell)[0].value, 4),
            "above_published_features": round(results.difference(quantity, JOINT, JOINT_PAPER, cell).value, 4),
        }
        for quantity in ("affected", "fused")
        for cell in results.cells
    }
    told = {f"false alarms: {kind}": found.as_dict() for kind, found in alarms.items()}
    finish(
        {"splits": results.plan.splits, "plain": round(plain.value, 4), "missed": results.misses(), **figures} | told
    )


def plan_of(options: argparse.Namespace, recordings: str) -> FootstepPlan:
    if options.quick:
        return quick_plan(options.splits or 2, options.seed, recordings)
    return full_plan(options.splits or 6, options.seed, recordings)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("audio", type=Path, metavar="AUDIO_DIR")
    parser.add_argument("--task", choices=TASKS, default="steps")
    parser.add_argument("--by-time", action="store_true", help="split every clip in two halves instead of by source")
    parser.add_argument("--out", type=Path, help="keep recordings and results here, and continue there")
    parser.add_argument("--splits", type=int, help="6, or 2 with --quick")
    parser.add_argument("--quick", action="store_true", help="five training sets of 12 + 12 recordings")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    if not (options.audio / "meta.csv").is_file():
        sys.exit(f"{options.audio}/meta.csv is not there; give the folder with the clips and their table")
    with tempfile.TemporaryDirectory() as temporary:
        out = options.out or Path(temporary)
        cast = cast_of(options.audio, options.task, options.seed, by_time=options.by_time)
        write_recordings(cast, out / "recordings", options.seed)
        plan = plan_of(options, str((out / "recordings").resolve()))
        with LocalEngine(options.jobs) as engine:
            results = run_footsteps(plan, out, engine=engine, restart=False)
            folder, entries = features_of(plan.origin(), out / "features", engine=engine, console=Console())
        report(results, plain_baseline(plan, folder, entries), false_alarms(plan, folder, entries))


if __name__ == "__main__":
    main()
