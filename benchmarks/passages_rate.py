"""Configured against realized rates of false passages, and what hours of background can guarantee."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from benchmarks.passages_day import DISTRACTORS_PER_DAY
from benchmarks.passages_run import Floats, Sound, Trained, decide, say
from benchmarks.passages_score import Figures, Scored, per_hour
from benchmarks.passages_streams import plain
from benchmarks.report import show
from pipeline.core.choices import Choices
from pipeline.learners.array_presence import ArrayPresence, fused, n_starts
from pipeline.simulation.day import Day
from pipeline.simulation.scene import Site
from pipeline.training.examples import NOBODY, Examples
from pipeline.training.fit import learn_presence
from pipeline.training.labeled_spans import recording_of

RATES_PER_DAY = (2.0, 12.0, 24.0, 48.0, 96.0)
GUARANTEED_AT_PER_DAY = 24.0
_BLOCK_SECONDS = 600.0
_STRIDE_SECONDS = 0.5
_SHORTEST_SEGMENTS = 6


def measure_sites(trained: Trained, seeds: Sequence[int], hours: float) -> Figures:
    """False passages at simulated sites where nobody passes, with as many distractors as in training."""
    false = dict.fromkeys(RATES_PER_DAY, 0)
    pure = dict.fromkeys(RATES_PER_DAY, 0)
    by_site: dict[str, int] = {}
    exposure = background = 0.0
    for seed in seeds:
        day = Day(Site(seed=seed), hours=hours, passages_per_day=0, distractors_per_day=DISTRACTORS_PER_DAY)
        sound = Sound.of_day(f"site {seed}", day)
        heard = decide(trained.model, sound, Choices(), rates=RATES_PER_DAY)
        exposure += sound.hours
        background += sum(end - start for start, end in sound.background) / 3600
        for rate in RATES_PER_DAY:
            scored = Scored(sound, heard.passages[rate])
            false[rate] += len(scored.false(sound.nobody, distractors=False))
            pure[rate] += len(scored.false(sound.background, distractors=True))
        by_site[str(seed)] = len(heard.passages[RATES_PER_DAY[2]])
    figures = {
        f"{rate:g}": {
            "false_per_day": per_hour(false[rate], exposure, 24.0),
            "false_per_day_of_background": per_hour(pure[rate], background, 24.0),
        }
        for rate in RATES_PER_DAY
    }
    show(
        f"{len(seeds)} simulated sites of {hours:g} h without passages; false passages per day",
        ("configured", "realized, distractors too", "of pure background"),
        [[rate, *(plain(value) for value in told.values())] for rate, told in figures.items()],
    )
    return {"by_rate": figures, "by_site": by_site, "hours": round(exposure, 3)}


def measure_guarantee(trained: Trained, hours: Sequence[float], repeats: int, seed: int) -> Figures:
    """Presence learned from parts of the training stream, drawn by chance, and tried on the rest of it."""
    examples, model = trained.examples, trained.model
    blocks = _blocks(examples, model.grid.rate_hz)
    figures: Figures = {}
    for wanted in hours:
        trials = []
        for number in range(repeats):
            rng = np.random.default_rng([seed, round(100 * wanted), number])
            inside = _drawn(blocks, examples.label == NOBODY, wanted, rng)
            presence = learn_presence(examples.part(inside), model.grid, model.settings)
            if presence is not None:
                trials.append(_trial(presence, examples.part(~inside).nobody(), model.grid.rate_hz))
        say(f"rate: {len(trials)} trials with {wanted:g} h of background")
        if trials:
            figures[f"{wanted:g}"] = _guarantee(np.array(trials))
    show(
        f"Presence learned from parts of {trained.sound.name}; {GUARANTEED_AT_PER_DAY:g} false passages a day "
        "configured, distractors count",
        ("hours of background", "threshold", "realized per day", "worst", "guaranteed per day", "trials it holds in"),
        [
            [
                name,
                told["threshold"],
                told["realized_per_day"],
                told["realized_per_day_worst"],
                told["guaranteed_per_day"],
                f"{told['guarantee_holds']} of {told['trials']}",
            ]
            for name, told in figures.items()
        ],
    )
    return figures


def _guarantee(trials: Floats) -> Figures:
    """Columns: threshold, guaranteed rate, false passages, hours they were counted in."""
    realized = 24 * trials[:, 2] / trials[:, 3]
    return {
        "trials": len(trials),
        "threshold": round(float(np.mean(trials[:, 0])), 2),
        "guaranteed_per_day": round(float(np.mean(trials[:, 1])), 2),
        # No interval: the trials are tried on much the same sound.
        "realized_per_day": round(float(24 * trials[:, 2].sum() / trials[:, 3].sum()), 2),
        "realized_per_day_worst": round(float(realized.max()), 2),
        "guarantee_holds": int(np.sum(realized <= trials[:, 1])),
    }


def _blocks(examples: Examples, rate_hz: int) -> NDArray[np.int64]:
    """(segments,): ten minutes of a recording are one block."""
    names = [note.cut_from or recording_of(note.name) for note in examples.recordings]
    number_of = {name: number for number, name in enumerate(dict.fromkeys(names))}
    recording = np.array([number_of[name] for name in names])[examples.recording]
    return np.asarray(1000 * recording + examples.start // round(_BLOCK_SECONDS * rate_hz), np.int64)


def _drawn(
    blocks: NDArray[np.int64], empty: NDArray[np.bool_], hours: float, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Whole blocks until they hold as many hours of background."""
    chosen, seconds = [], 0.0
    for block in rng.permutation(np.unique(blocks)).tolist():
        if seconds >= hours * 3600:
            break
        chosen.append(block)
        seconds += float((empty & (blocks == block)).sum()) * _STRIDE_SECONDS
    return np.isin(blocks, chosen)


def _trial(presence: ArrayPresence, empty: Examples, rate_hz: int) -> tuple[float, float, float, float]:
    threshold = presence.threshold(GUARANTEED_AT_PER_DAY)
    count, segments = 0, 0
    for stretch in _stretches(presence, empty, rate_hz):
        count += n_starts(stretch, threshold)
        segments += len(stretch)
    hours = segments * _STRIDE_SECONDS / 3600
    return threshold, presence.guaranteed_per_day(GUARANTEED_AT_PER_DAY), float(count), hours


def _stretches(presence: ArrayPresence, empty: Examples, rate_hz: int) -> list[Floats]:
    """Evidence of runs of segments without holes."""
    assert empty.background is not None
    assert empty.background_seconds is not None
    order = np.lexsort((empty.start, empty.recording))
    evidence: list[float] = []
    runs: list[list[float]] = []
    last = -1, -1
    for row in order.tolist():
        place = int(empty.recording[row]), int(empty.start[row])
        if place != (last[0], last[1] + round(_STRIDE_SECONDS * rate_hz)):
            runs.append(evidence)
            evidence = []
        last = place
        present = empty.present[row]
        summary = np.where(present[:, None], empty.summary[row], np.nan)
        odds = presence.log_odds(summary, empty.background[row], float(empty.background_seconds[row]))
        value = fused(odds, ~np.isnan(odds))
        evidence.append(np.nan if value is None else value)
    return [np.array(run) for run in [*runs, evidence] if len(run) >= _SHORTEST_SEGMENTS and np.isfinite(run).all()]
