"""A decision to look at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from pipeline.plotting import pyplot
from pipeline.service.explain import Explained

_HERE, _REFERENCE, _FUSED, _REFUSED = "#b2182b", "#9ecae1", "#08306b", "#bbbbbb"
_MEASURES = ("distance to what it delivered before", "contradiction to the other sensors")


def write_explanation_figure(explained: Explained, path: Path) -> Path:
    """Per sensor its sound and how unusual it is; below, who contributed what to the decision."""
    plt, n_sensors = pyplot(), explained.model.n_sensors
    figure = plt.figure(figsize=(14, 2.2 * n_sensors + 3), layout="constrained")
    grid = figure.add_gridspec(n_sensors + 1, 3, height_ratios=[2.2] * n_sensors + [2.6])
    for s in range(n_sensors):
        _sound(figure.add_subplot(grid[s, 0]), explained, s)
        for column, name in enumerate(_MEASURES, start=1):
            _standing(figure.add_subplot(grid[s, column]), explained, s, column - 1, name)
    _contributions(figure.add_subplot(grid[n_sensors, :2]), explained)
    _without(figure.add_subplot(grid[n_sensors, 2]), explained)
    figure.suptitle(title(explained))
    figure.savefig(path, dpi=90)
    plt.close(figure)
    return path


def title(explained: Explained) -> str:
    outcome = explained.decision.outcome
    what = outcome.label or f"no decision ({outcome.reason})"
    probability = "" if outcome.probability is None else f", probability {outcome.probability:.3f}"
    return f"{explained.recording} from {explained.start_seconds:g} s: {what}{probability}"


def _sound(axes: Any, explained: Explained, s: int) -> None:
    rate_hz, features = explained.model.grid.rate_hz, explained.decision.features
    samples = explained.samples[s] + 1e-9 * np.random.default_rng(0).standard_normal(explained.samples.shape[1])
    with np.errstate(divide="ignore"):
        axes.specgram(samples, NFFT=512, Fs=rate_hz, noverlap=384, scale="dB", cmap="magma", vmin=-130, vmax=-40)
    for edge in (features.window.start, features.window.stop):
        axes.axvline((edge - features.span.start) / rate_hz, color="white", linewidth=1, linestyle="--")
    p_value, weight = explained.decision.verdicts.screened.p_values[s], explained.decision.weights[s]
    told = "" if np.isnan(p_value) else f", p {p_value:.3f}"
    axes.set_title(f"sensor {s + 1}: {explained.decision.roles[s]}, weight {weight:.2f}{told}", fontsize=9, loc="left")
    axes.set_ylabel("Hz", fontsize=8)
    axes.tick_params(labelsize=7)


def _standing(axes: Any, explained: Explained, s: int, which: int, name: str) -> None:
    features = explained.decision.features
    measures = explained.model.screen.standing(
        features.values.astype(np.float64), features.present, features.trusted, s
    )
    axes.set_yticks([])
    axes.tick_params(labelsize=7)
    axes.set_title(name, fontsize=9, loc="left")
    if which >= len(measures):
        axes.text(0.5, 0.5, "nothing to compare with", ha="center", va="center", transform=axes.transAxes)
        return
    value, reference = measures[which]
    axes.hist(reference, bins=40, color=_REFERENCE)
    axes.axvline(value, color=_HERE)
    p_value = (explained.decision.verdicts.screened.p_own, explained.decision.verdicts.screened.p_others)[which][s]
    axes.text(0.99, 0.92, f"p {p_value:.3f}", ha="right", va="top", transform=axes.transAxes, fontsize=8, color=_HERE)


def _contributions(axes: Any, explained: Explained) -> None:
    n_sensors, classes = explained.model.n_sensors, explained.model.classes
    values = [explained.contribution(s) for s in range(n_sensors)]
    fused = explained.decision.outcome.log_odds or 0.0
    colours = [_REFERENCE if w else _REFUSED for w in explained.decision.weights] + [_FUSED]
    axes.barh(range(n_sensors + 1), [*values, fused], color=colours)
    axes.set_yticks(range(n_sensors + 1), [*(f"sensor {s + 1}" for s in range(n_sensors)), "fused"])
    axes.invert_yaxis()
    axes.axvline(0, color="black", linewidth=1)
    axes.set(
        title=f"Who decided: {explained.contributions_are} of each sensor",
        xlabel=f"log-odds: {classes[0]} to the left, {classes[1]} to the right",
    )


def _without(axes: Any, explained: Explained) -> None:
    n_sensors, classes = explained.model.n_sensors, explained.model.classes
    outcomes = [*explained.decision.without, explained.decision.outcome]
    values = [0.5 if o.log_odds is None else 1 / (1 + np.exp(-np.clip(o.log_odds, -700, 700))) for o in outcomes]
    axes.plot(values, range(n_sensors + 1), "o", color=_FUSED)
    axes.set_yticks(range(n_sensors + 1), [*(f"without {s + 1}" for s in range(n_sensors)), "with all"])
    axes.invert_yaxis()
    axes.axvline(0.5, color="black", linewidth=1)
    axes.set(title="Without each sensor", xlabel=f"probability of {classes[1]}", xlim=(-0.03, 1.03))
