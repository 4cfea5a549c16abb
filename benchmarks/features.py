"""Sound to features: speed against librosa and the bare transform, agreement with librosa, memory, cost of overlap.

Run: python -m benchmarks.features [--quick] [DIRECTORY]

DIRECTORY holds sound files, also in subdirectories, on which the agreement with librosa is measured; without it the
sound is simulated.
"""

from __future__ import annotations

import argparse
import sys
import tracemalloc
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import librosa
import numpy as np
import soundfile
from rich.progress import track
from scipy.fft import rfft

from benchmarks.report import finish, interleaved, show
from pipeline.core.events import Block, Samples, Segment
from pipeline.core.framing import Grid
from pipeline.core.protocols import Stage
from pipeline.core.segment_views import N_COEFFICIENTS, TWO_VIEWS
from pipeline.stages import Chain, Mfcc, Viewing, Windowing
from pipeline.stages.features import Cepstrum

RATE_HZ, SENSORS = 16_000, 4


def noise(seconds: float, seed: int = 0) -> Samples:
    rng = np.random.default_rng(seed)
    return (0.1 * rng.standard_normal((SENSORS, round(seconds * RATE_HZ)))).astype(np.float32)


def blocks(sound: Samples, size: int = 4096) -> Iterator[Block]:
    everyone = np.ones(len(sound), np.bool_)
    for start in range(0, sound.shape[1], size):
        yield Block(start, sound[:, start : start + size], everyone)


def stages(grid: Grid) -> Chain:
    return Chain(Windowing(grid), Mfcc(grid), Viewing(grid, n_coefficients=N_COEFFICIENTS, features=TWO_VIEWS))


def stream(sound: Iterable[Block], grid: Grid) -> Iterator[object]:
    """Our path, from blocks to views."""
    chain = stages(grid)
    for block in sound:
        yield from chain.push(block)


def by_librosa(sound: Samples, recipe: Cepstrum) -> Samples:
    """librosa's cepstra of all frames in some sound, (sensors, frames, coefficients)."""
    # librosa puts a frame into the middle of a longer transform, so the sound is moved by as much.
    longer = recipe.n_fft - recipe.grid.frame
    if longer:
        sound = np.pad(sound, ((0, 0), (longer // 2, longer - longer // 2)))
    mel = librosa.feature.melspectrogram(
        y=sound,
        sr=recipe.grid.rate_hz,
        n_fft=recipe.n_fft,
        win_length=recipe.grid.frame,
        hop_length=recipe.grid.hop,
        center=False,
        n_mels=recipe.n_mels,
        fmin=recipe.f_min_hz,
        fmax=recipe.f_max_hz,
    )
    decibels = librosa.power_to_db(mel, top_db=None)
    return np.swapaxes(librosa.feature.mfcc(S=decibels, n_mfcc=recipe.n_coefficients), 1, 2)


def jobs_of(grid: Grid, sound: Samples) -> tuple[dict[str, Callable[[], object]], list[Segment]]:
    """Our stages over some sound, and the segments in it."""
    windowing, mfcc, chain = Windowing(grid), Mfcc(grid), stages(grid)
    segments = [fact for block in blocks(sound) for fact in windowing.push(block) if isinstance(fact, Segment)]

    def fed(stage: Stage, facts: Iterable[object]) -> None:
        stage.flush()
        for fact in facts:
            stage.push(fact)

    jobs: dict[str, Callable[[], object]] = {
        "mfcc stage": lambda: fed(mfcc, segments),
        "all stages": lambda: fed(chain, blocks(sound)),
    }
    return jobs, segments


def speed(segment_seconds: float, seconds: float, repeats: int) -> dict[str, float]:
    """Milliseconds per segment: bare transform of the same frames, our stages, librosa called once per segment."""
    grid, sound = Grid(rate_hz=RATE_HZ, segment_seconds=segment_seconds), noise(seconds)
    jobs, segments = jobs_of(grid, sound)
    recipe = Mfcc(grid).cepstrum
    cuts = [sound[:, segment.span.start : segment.span.stop] for segment in segments]
    frames = np.lib.stride_tricks.sliding_window_view(sound, grid.frame, axis=1)[:, :: grid.hop]
    hann = librosa.filters.get_window("hann", grid.frame).astype(np.float32)
    # As many frames at a time as one segment brings, which is what our stage transforms at a time.
    batches = [
        (frames[:, first : first + grid.stride_hops] * hann).reshape(-1, grid.frame)
        for first in range(0, frames.shape[1], grid.stride_hops)
    ]
    jobs["rfft"] = lambda: deque((rfft(batch) for batch in batches), maxlen=0)
    jobs["librosa"] = lambda: deque((by_librosa(cut, recipe) for cut in cuts), maxlen=0)
    return {name: 1e3 * value / len(segments) for name, value in interleaved(jobs, repeats).items()}


def largest_difference_db(directory: Path | None) -> tuple[float, int]:
    """Largest difference to librosa over all frames and coefficients, and the number of frames compared."""
    worst, n_frames = 0.0, 0
    recipes: dict[int, Cepstrum] = {}
    for rate_hz, sound in sounds(directory):
        recipe = recipes.setdefault(rate_hz, Mfcc(Grid(rate_hz=rate_hz)).cepstrum)
        if sound.shape[1] < recipe.grid.frame:
            continue
        ours = recipe(sound)
        worst = max(worst, float(np.abs(ours - by_librosa(sound, recipe)).max()))
        n_frames += ours.shape[0] * ours.shape[1]
    return worst, n_frames


def sounds(directory: Path | None) -> Iterator[tuple[int, Samples]]:
    if directory is None:
        yield RATE_HZ, noise(60)
        return
    files = sorted(path for path in directory.rglob("*") if path.suffix.lower() in {".wav", ".flac", ".ogg"})
    if not files:
        sys.exit(f"{directory} holds no .wav, .flac or .ogg file; give a directory of sound files")
    for file in track(files, description="agreement"):
        samples, rate_hz = soundfile.read(file, dtype="float32", always_2d=True)
        yield rate_hz, np.ascontiguousarray(samples.T)


def peak_megabytes(seconds: int) -> float:
    """Most memory in use at once while a stream passes, without the stream itself."""
    grid, second = Grid(rate_hz=RATE_HZ), noise(1)
    everyone = np.ones(SENSORS, np.bool_)
    endless = (Block(n * RATE_HZ, second, everyone) for n in range(seconds))
    tracemalloc.start()
    for _ in stream(endless, grid):
        pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 1e6


def cost_of_overlap(seconds: float, repeats: int) -> dict[float, dict[str, float]]:
    """Milliseconds per second of sound, by the overlap of the segments."""
    sound, overlaps = noise(seconds), (0.0, 0.5, 0.75, 0.9)
    jobs = {
        f"{overlap} {name}": job
        for overlap in overlaps
        for name, job in jobs_of(Grid(rate_hz=RATE_HZ, overlap=overlap), sound)[0].items()
    }
    cost = {name: 1e3 * value / seconds for name, value in interleaved(jobs, repeats).items()}
    return {o: {name: cost[f"{o} {name}"] for name in ("mfcc stage", "all stages")} for o in overlaps}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, nargs="?", help="sound files on which to compare with librosa")
    parser.add_argument("--quick", action="store_true", help="fewer repeats")
    options = parser.parse_args()
    repeats = 3 if options.quick else 15
    figures: dict[str, float] = {}
    rows: list[list[object]] = []
    for segment_seconds in (Grid(rate_hz=RATE_HZ).segment_seconds, 3.0):
        cost = speed(segment_seconds, 60, repeats)
        name = f"_{segment_seconds:g}s_segments" if rows else ""
        figures[f"librosa_speedup{name}"] = round(cost["librosa"] / cost["mfcc stage"], 2)
        figures[f"librosa_speedup_all_stages{name}"] = round(cost["librosa"] / cost["all stages"], 2)
        figures[f"rfft_ratio{name}"] = round(cost["mfcc stage"] / cost["rfft"], 3)
        figures[f"rfft_ratio_all_stages{name}"] = round(cost["all stages"] / cost["rfft"], 3)
        rows.append([f"{segment_seconds:g} s, a new one every {segment_seconds / 4:g} s", *cost.values()])
    show("Milliseconds per segment, 4 x 16 kHz", ("segments", *cost), rows)
    figures["librosa_max_difference_db"], figures["frames_compared"] = largest_difference_db(options.directory)
    short, long = peak_megabytes(60), peak_megabytes(600)
    figures |= {"peak_megabytes": round(short, 2), "memory_ratio_ten_times_longer": round(long / short, 4)}
    overlaps = cost_of_overlap(30, repeats)
    show(
        "Milliseconds per second of sound",
        ("overlap", "mfcc stage", "all stages"),
        [[f"{overlap:.0%}", *cost.values()] for overlap, cost in overlaps.items()],
    )
    for stages, key in (("mfcc stage", "mfcc"), ("all stages", "all_stages")):
        for overlap, cost in overlaps.items():
            figures[f"overlap_cost_ratio_{key}_{overlap:g}"] = round(cost[stages] / overlaps[0.75][stages], 3)
    finish(figures)


if __name__ == "__main__":
    main()
