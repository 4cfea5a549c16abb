"""Recordings to decisions: speed against the script a user would write, growth with the model, training time.

All figures are CPU time. Besides replays of files, the chain alone: in blocks of half a second, as a daemon pushes
them, and of 30 s.

Run: python -m benchmarks.replay [--quick]

The script reads a file, cuts it into the same segments, takes librosa's cepstra of the strongest 1.5 s of each channel,
and asks scikit-learn for components, an outlier score and a probability, segment by segment.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import librosa
import numpy as np
import soundfile
from numpy.typing import NDArray
from sklearn.calibration import CalibratedClassifierCV
from sklearn.decomposition import PCA
from sklearn.model_selection import StratifiedGroupKFold
from sklearn.neighbors import LocalOutlierFactor
from sklearn.svm import SVC

from benchmarks.report import finish, interleaved, show
from pipeline.core.choices import Choices
from pipeline.core.event_json import line
from pipeline.core.framing import Grid
from pipeline.core.segment_views import PAPER, TWO_VIEWS
from pipeline.model.build import hearing_settings, whole_chain
from pipeline.reports.replay import Replay
from pipeline.simulation.dataset import Dataset
from pipeline.simulation.scene import Site, record
from pipeline.sources.files import FileSource, find_recordings
from pipeline.stages import Chain
from pipeline.training.examples import Examples
from pipeline.training.extract import Format, hear
from pipeline.training.fit import learn
from pipeline.training.labels import Label, Labels
from pipeline.training.offline import ExtractionTask, gather

RATE_HZ, SENSORS, SECONDS = 16_000, 4, 14.0
GRID = Grid(rate_hz=RATE_HZ)
Floats = NDArray[np.float64]


def write_recordings(folder: Path, n: int, seed: int) -> Labels:
    """Simulated recordings as files, and their labels."""
    dataset = Dataset(Site(seed=seed, duration_seconds=SECONDS), n)
    folder.mkdir()
    labels = []
    for number, label in enumerate(dataset.labels()):
        samples = record(dataset.site, number, label=label).samples
        soundfile.write(folder / dataset.file(number), samples.T, RATE_HZ, subtype="PCM_16")
        labels.append(Label(dataset.name(number), 0.0, SECONDS, label))
    return Labels(labels)


def examples_of(folder: Path, labels: Labels, features: str = TWO_VIEWS) -> tuple[Examples, dict[str, Any]]:
    settings = hearing_settings(GRID, features=features)
    task = ExtractionTask(Format(RATE_HZ, SENSORS), GRID, settings, labels, ("human", "human_animal"), 100_000)
    heard = [hear(one, task.sound, GRID, settings) for one in find_recordings(folder).recordings]
    return gather(heard, task), settings


@dataclass(frozen=True, slots=True)
class Script:
    """What a user would write, with the published features: all cepstra of the strongest window."""

    components: list[PCA]
    outliers: list[LocalOutlierFactor]
    classifiers: list[CalibratedClassifierCV]

    @classmethod
    def train(cls, examples: Examples) -> Script:
        components, outliers, classifiers = [], [], []
        for s in range(SENSORS):
            components.append(PCA(50, random_state=0).fit(examples.summary[:, s]))
            X = components[-1].transform(examples.summary[:, s])
            outliers.append(LocalOutlierFactor(novelty=True).fit(X))
            classifiers.append(_classifier().fit(X, examples.label))
        return cls(components, outliers, classifiers)

    def __call__(self, files: list[Path]) -> list[tuple[str, int, float]]:
        found = []
        for file in files:
            sound = soundfile.read(file, dtype="float32")[0].T
            for start in range(0, sound.shape[1] - GRID.segment + 1, GRID.stride):
                segment = sound[:, start : start + GRID.segment]
                found.append((file.name, start, self.decide(segment)))
        return found

    def decide(self, segment: NDArray[np.float32]) -> float:
        power = np.cumsum(np.r_[0, np.sum(segment**2, axis=0)])
        first = int(np.argmax(power[GRID.window :: GRID.hop] - power[: -GRID.window : GRID.hop])) * GRID.hop
        probabilities, weights = [], []
        for s, channel in enumerate(segment[:, first : first + GRID.window]):
            cepstra = librosa.feature.mfcc(
                y=channel, sr=RATE_HZ, n_mfcc=13, n_fft=GRID.frame, hop_length=GRID.hop, center=False
            )
            x = self.components[s].transform(cepstra.T.reshape(1, -1))
            weights.append(float(self.outliers[s].predict(x)[0] > 0))
            probabilities.append(float(self.classifiers[s].predict_proba(x)[0, 1]))
        return float(np.average(probabilities, weights=np.asarray(weights) + 1e-9))


PUBLISHED, SAME = "PCA + SVC, published features", "PCA + SVC, same features, folds of recordings"
WATCHED = "gemmed, all of them, and the health of the sensors"
CHAINS = {"the chain alone, 0.5 s at a time": 0.5, "the chain alone, 30 s at a time": 30.0}
"""Seconds of the blocks."""


def replay_all(task: Replay, folder: Path) -> int:
    """End to end, one process: files to lines of JSON."""
    events = [event for recording in find_recordings(folder).recordings for event in task.events(recording)]
    return sum(len(line(event)) for event in events)


def push_all(chain: Chain, facts: list[object]) -> int:
    """Push all facts, and return how many came out."""
    return sum(len(chain.push(fact)) for fact in facts) + len(chain.flush())


def facts_of(folder: Path, block_seconds: float) -> list[object]:
    """Recordings as facts in memory, cut into blocks."""
    facts: list[object] = []
    for recording in find_recordings(folder).recordings:
        facts += FileSource([recording], block_samples=round(block_seconds * RATE_HZ))
    return facts


def thinned(examples: Examples, n: int) -> Examples:
    """The first recordings of each class, about so many segments."""
    share = n / len(examples)
    keep = np.zeros(len(examples), np.bool_)
    for code in (0, 1):
        own = np.unique(examples.recording[examples.label == code])
        keep |= np.isin(examples.recording, own[: max(2, round(share * len(own)))])
    return examples.part(keep)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a small model and few repetitions")
    quick = parser.parse_args().quick
    n_training, n_replayed, repeats = (16, 2, 2) if quick else (50, 6, 5)
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        labels = write_recordings(place / "training", n_training, 1)
        write_recordings(place / "replayed", n_replayed, 2)
        examples, settings = examples_of(place / "training", labels)
        published, _ = examples_of(place / "training", labels, PAPER)
        learn(thinned(examples, 100), GRID, settings, seed=0)  # what is compiled is compiled now
        training = interleaved(
            {
                "gemmed": partial(learn, examples, GRID, settings, seed=0),
                PUBLISHED: partial(_pca_and_svc, published),
                SAME: partial(_pca_and_svc, examples, by_recording=True),
            },
            1 if quick else 2,
        )
        script, files = Script.train(published), sorted((place / "replayed").glob("*.wav"))
        sizes = [n for n in (300, 600, len(examples)) if n <= len(examples)]
        tasks = {}
        for n in sizes:
            learn(thinned(examples, n), GRID, settings, seed=0).save(place / f"model{n}")
            tasks[n] = Replay(place / f"model{n}", Choices(health=False))  # of which the script knows nothing
        jobs: dict[str, Callable[[], object]] = {
            f"gemmed, {n} reference segments": partial(replay_all, task, place / "replayed")
            for n, task in tasks.items()
        }
        watched = Replay(place / f"model{sizes[-1]}", Choices())
        jobs[WATCHED] = partial(replay_all, watched, place / "replayed")
        for name, block_seconds in CHAINS.items():
            facts = facts_of(place / "replayed", block_seconds)
            jobs[name] = partial(push_all, whole_chain(watched.model, Choices()), facts)
        seconds = interleaved({**jobs, "script": partial(script, files)}, repeats)
    report(n_replayed * SECONDS, len(examples), sizes, list(jobs), seconds, training)


def report(
    sound: float,
    n_segments: int,
    sizes: list[int],
    names: list[str],
    seconds: Mapping[str, float],
    training: Mapping[str, float],
) -> None:
    """Draw both tables and print the figures."""
    show(
        f"Replay of {sound:g} s of {SENSORS} x {RATE_HZ} Hz, one process",
        ("what", "seconds of sound per second", "ms per second", "times faster than the script"),
        [(name, sound / used, 1e3 * used / sound, seconds["script"] / used) for name, used in seconds.items()],
    )
    show(
        f"Training on {n_segments} segments x {SENSORS} sensors",
        ("what", "seconds", "ratio"),
        [(name, used, used / training[SAME]) for name, used in training.items()],
    )
    by_size = {str(n): round(sound / seconds[name], 1) for n, name in zip(sizes, names, strict=False)}
    streaming, blocks = CHAINS
    finish(
        {
            "script_speedup": round(seconds["script"] / seconds[names[len(sizes) - 1]], 2),
            "script_speedup_health": round(seconds["script"] / seconds[WATCHED], 2),
            "chain_streaming_ms": round(1e3 * seconds[streaming] / sound, 2),
            "chain_blocks_ms": round(1e3 * seconds[blocks] / sound, 2),
            "real_time_factor": by_size[str(sizes[-1])],
            "real_time_factor_with_health": round(sound / seconds[WATCHED], 1),
            "train_ratio": round(training["gemmed"] / training[SAME], 2),
            "train_ratio_published": round(training["gemmed"] / training[PUBLISHED], 2),
            "real_time_factor_by_size": by_size,
            "script_real_time_factor": round(sound / seconds["script"], 1),
        }
    )


def _classifier(folds: Any = None) -> CalibratedClassifierCV:
    """What scikit-learn recommends for an SVC with probabilities."""
    return CalibratedClassifierCV(SVC(), ensemble=False, cv=folds)


def _pca_and_svc(examples: Examples, *, by_recording: bool = False) -> None:
    for s in range(SENSORS):
        X = PCA(50, random_state=0).fit_transform(examples.summary[:, s])
        split = StratifiedGroupKFold(5).split(X, examples.label, examples.recording)
        _classifier(list(split) if by_recording else None).fit(X, examples.label)


if __name__ == "__main__":
    main()
