"""Draw an explanation: sound, modulation, deciding values and p-values of each sensor, and the fused decision."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from pipeline.core.events import Numbers, Outcome, Role
from pipeline.reports.deciding_values import NO_SUMMARY, NO_VALUE, DecidingValue, SensorReasons, has_summary, written
from pipeline.reports.explanation import Explained
from pipeline.reports.rhythm import HIGHEST_HZ, LOWEST_HZ, modulation, rhythm_in_words
from pipeline.runtime.plotting import pyplot

_HERE, _REFERENCE, _FUSED, _UNUSED = "#b2182b", "#9ecae1", "#252525", "#cccccc"
_CLASSES = ("#2b6ca3", "#d9822b")
_SMALL, _NORMAL, _LARGE = 8, 9, 11
_RANGE_DB = 60.0
_MEASURES = (
    ("past segments", "log kNN distance", "p own"),
    ("other sensors", "log kNN distance ratio", "p others"),
)


def write_explanation_figure(explained: Explained, path: Path) -> Path:
    """Write a row of panels for each sensor, and the fused decision below."""
    plt, n_sensors = pyplot(), explained.model.n_sensors
    with plt.rc_context({"font.size": _NORMAL, "xtick.labelsize": _SMALL, "ytick.labelsize": _SMALL}):
        figure = plt.figure(figsize=(18, 2.75 * n_sensors + 3.8), layout="constrained")
        figure.get_layout_engine().set(h_pad=0.1, w_pad=0.08)
        widths = [3.2, 0.09, 2.4, 2.6, 1.6, 1.6]
        grid = figure.add_gridspec(
            n_sensors + 1, 6, height_ratios=[2.75] * n_sensors + [0.35 * n_sensors + 1.4], width_ratios=widths
        )
        spectra = _spectra(explained)
        frequencies, amplitudes = modulation(explained.cepstra.values[:, :, 0], explained.model.grid.hop_seconds)
        reasons = [explained.reasons(s) for s in range(n_sensors)]
        found = [reason for one in reasons if one for reason in one.values]
        for s, one in enumerate(reasons):
            _spectrogram(figure, grid, explained, s, spectra)
            _modulation(figure.add_subplot(grid[s, 2]), explained, s, frequencies, amplitudes)
            _values(figure.add_subplot(grid[s, 3]), explained, s, one, found)
            for which in range(2):
                _standing(figure.add_subplot(grid[s, 4 + which]), explained, s, which)
        below = grid[n_sensors, :].subgridspec(1, 2, width_ratios=[1.4, 1])
        _contributions(figure.add_subplot(below[0]), explained)
        _without(figure.add_subplot(below[1]), explained)
        figure.suptitle(
            f"{title(explained)}\nrhythm: {rhythm_in_words(explained.rhythm)}   |   sound: {explained.sound}",
            fontsize=_LARGE + 1,
            fontweight="bold",
        )
        figure.savefig(path, dpi=100)
        plt.close(figure)
    return path


def title(explained: Explained) -> str:
    """Name the segment and its decision in one line."""
    outcome = explained.decision.outcome
    what = outcome.label or f"no decision ({outcome.reason})"
    probability = "" if outcome.probability is None else f", probability {outcome.probability:.3f}"
    return f"{explained.recording} from {explained.start_seconds:g} s: {what}{probability}"


def _spectra(explained: Explained) -> tuple[Numbers, Numbers, Numbers]:
    """Return times in s, frequencies in Hz, and power densities in dB (sensors, frequencies, times)."""
    from scipy.signal import spectrogram

    rate_hz, samples = explained.model.grid.rate_hz, np.nan_to_num(explained.samples.astype(np.float64))
    length = max(64, 2 ** round(np.log2(0.032 * rate_hz)))
    frequencies, times, power = spectrogram(
        samples, rate_hz, window="hann", nperseg=length, noverlap=3 * length // 4, detrend=False
    )
    return times, frequencies, 10 * np.log10(power + 1e-14)


def _spectrogram(
    figure: Any, grid: Any, explained: Explained, s: int, spectra: tuple[Numbers, Numbers, Numbers]
) -> None:
    axes, (times, frequencies, power_db) = figure.add_subplot(grid[s, 0]), spectra
    present = explained.decision.features.present
    # All sensors have one color scale, so their levels can be compared; a loud one must not turn the others black.
    highest = float(np.ceil(np.median(np.percentile(power_db[present], 99.5, axis=(1, 2))) / 10) * 10)
    weight = explained.decision.weights[s]
    heading = f"sensor {s + 1}: {explained.decision.roles[s]}, weight {weight:.2f}"
    words = ", ".join(one for one in (explained.fault(s), explained.known(s)) if one)
    axes.set_title(f"{heading}\n{words or explained.why(s)}", fontsize=_NORMAL, loc="left")
    axes.set(
        xlabel="time in segment (s)", ylabel="frequency (Hz)", xlim=(0, len(explained.samples[s]) / _rate(explained))
    )
    axes.set_ylim(0, frequencies[-1])
    if not present[s]:
        _note(axes, "part of the segment is missing")
        return
    drawn = axes.pcolormesh(
        times, frequencies, power_db[s], cmap="magma", vmin=highest - _RANGE_DB, vmax=highest, rasterized=True
    )
    window, span = explained.decision.features.window, explained.decision.features.span
    if not has_summary(explained.model):  # only these models go by the strongest window
        for edge in (window.start, window.stop):
            axes.axvline((edge - span.start) / _rate(explained), color="white", linewidth=1, linestyle="--")
    bar = figure.colorbar(drawn, cax=figure.add_subplot(grid[s, 1]))
    bar.set_label("dB re full scale² / Hz", fontsize=_SMALL)


def _rate(explained: Explained) -> int:
    return explained.model.grid.rate_hz


def _modulation(axes: Any, explained: Explained, s: int, frequencies: Numbers, amplitudes: Numbers) -> None:
    axes.set_title("modulation of c0 (loudness)", fontsize=_NORMAL, loc="left")
    axes.set(xlabel="modulation frequency (Hz)", ylabel="amplitude (dB)", xlim=(0, frequencies[-1]))
    if not np.isfinite(amplitudes[s]).all():
        _note(axes, "part of the segment is missing")
        return
    used = explained.decision.roles[s] == Role.USED
    axes.plot(frequencies, amplitudes[s], color=_FUSED if used else _UNUSED)
    axes.axvspan(LOWEST_HZ, HIGHEST_HZ, color=_REFERENCE, alpha=0.2, linewidth=0)
    axes.set_ylim(0, 1.25 * max(1.0, float(amplitudes[s].max())))
    rhythm = explained.rhythm
    if rhythm is not None and rhythm.is_clear:
        axes.axvline(rhythm.rate_hz, 0, 0.86, color=_HERE, linestyle="--", linewidth=1.2)
    text = f"array: {rhythm.rate_hz:.1f} per second" if rhythm and rhythm.is_clear else "array: no clear rhythm"
    axes.text(0.98, 0.96, text, ha="right", va="top", transform=axes.transAxes, fontsize=_SMALL, color=_HERE)


def _values(axes: Any, explained: Explained, s: int, reasons: SensorReasons | None, found: list[DecidingValue]) -> None:
    first, second = explained.classes
    values = reasons.values if reasons else []
    if reasons is None or not values:
        axes.set_title("values with the largest effect", fontsize=_NORMAL, loc="left")
        axes.set_yticks([])
        axes.set_xticks([])
        _note(axes, _why_none(explained, s))
        return
    heading = f"values with the largest effect\nlog-odds {reasons.own:+.2f}, median segment {reasons.neutral:+.2f}"
    axes.set_title(heading, fontsize=_NORMAL, loc="left")
    axes.barh(
        range(len(values)), [one.log_odds for one in values], 0.62, color=[_color(one.log_odds) for one in values]
    )
    axes.set_yticks(
        range(len(values)), [_labeled(one, (first, second)) for one in values], fontsize=_SMALL, linespacing=1.15
    )
    axes.invert_yaxis()
    axes.axvline(0, color="black", linewidth=0.8)
    # One scale for all sensors.
    largest = 1.1 * max(abs(one.log_odds) for one in found)
    axes.set_xlim(-largest, largest)
    axes.set_xlabel(f"effect on log-odds:  ← {first}   {second} →")


def _why_none(explained: Explained, s: int) -> str:
    if not explained.decision.features.present[s]:
        return "part of the segment is missing"
    if not has_summary(explained.model):
        return NO_SUMMARY.replace(". ", ".\n").replace(": ", ":\n").replace(", so", ",\nso")
    return "no classifier" if explained.model.machines[s] is None else NO_VALUE.replace(" log-odds", "\nlog-odds")


def _labeled(reason: DecidingValue, classes: tuple[str, str]) -> str:
    typical = ", ".join(
        f"{name} {value:.1f}" for name, value in zip(classes, reason.typical, strict=True) if value is not None
    )
    return f"{reason.name}\n{reason.value:.1f} {reason.unit} (typical: {typical})"


def _color(log_odds: float) -> str:
    return _CLASSES[int(log_odds > 0)]


def _standing(axes: Any, explained: Explained, s: int, which: int) -> None:
    features, screened = explained.decision.features, explained.decision.verdicts.screened
    heading, label, name = _MEASURES[which]
    measures = explained.model.screen.standing(
        features.timing.astype(np.float64), features.present, features.trusted, s
    )
    axes.set_title(heading, fontsize=_NORMAL, loc="left")
    axes.set(xlabel=label, ylabel="segments")
    if which >= len(measures):
        axes.set_xticks([])
        axes.set_yticks([])
        _note(axes, "nothing to\ncompare with")
        return
    value, reference = measures[which]
    counts, *_ = axes.hist(reference, bins=30, color=_REFERENCE)
    axes.axvline(value, 0, 0.8, color=_HERE, linewidth=1.5)
    axes.set_ylim(0, 1.3 * counts.max())
    p_value = (screened.p_own, screened.p_others)[which][s]
    text = f"{name} {written(p_value).removeprefix('p ')}"
    axes.text(0.97, 0.96, text, ha="right", va="top", transform=axes.transAxes, fontsize=_SMALL, color=_HERE)


def _contributions(axes: Any, explained: Explained) -> None:
    n_sensors, (first, second) = explained.model.n_sensors, explained.classes
    values = [explained.contribution(s) for s in range(n_sensors)]
    fused = explained.fused_log_odds or 0.0
    axes.barh(range(n_sensors + 1), [*values, fused], 0.6, color=[*map(_color, values), _FUSED])
    names = [f"sensor {s + 1}" for s in range(n_sensors)]
    axes.set_yticks(range(n_sensors + 1), [*names, "fused"], fontsize=_NORMAL)
    axes.invert_yaxis()
    axes.axvline(0, color="black", linewidth=0.8)
    largest = 1.2 * max(1.0, *(abs(value) for value in [*values, fused]))
    axes.set_xlim(-largest, largest)
    for place, value in enumerate([*values, fused]):
        used = place == n_sensors or explained.decision.weights[place] > 0
        text = f"{value:+.2f}" if used else explained.why(place)
        axes.annotate(
            text,
            (value, place),
            xytext=(4 if value >= 0 else -4, 0),
            textcoords="offset points",
            ha="left" if value >= 0 else "right",
            va="center",
            fontsize=_SMALL,
        )
    axes.set_title(f"{explained.contributions_are} of each sensor", fontsize=_NORMAL, loc="left")
    axes.set_xlabel(f"log-odds:  ← {first}   {second} →")


def _without(axes: Any, explained: Explained) -> None:
    n_sensors, classes = explained.model.n_sensors, explained.model.classes
    outcomes = [*explained.decision.without, explained.decision.outcome]
    for place, outcome in enumerate(outcomes):
        if outcome.log_odds is None and outcome.probability is None:
            axes.text(0.5, place, "no decision", ha="center", va="center", fontsize=_SMALL)
            continue
        if len(classes) > 2:
            _most_probable(axes, outcome, place)
        else:
            axes.plot([_probability(outcome, classes)], [place], "o", color=_FUSED, clip_on=False)
    names = [f"without sensor {s + 1}" for s in range(n_sensors)]
    axes.set_yticks(range(n_sensors + 1), [*names, "all sensors"], fontsize=_NORMAL)
    axes.set_ylim(n_sensors + 0.5, -0.5)
    axes.axvline(0.5, color="black", linewidth=0.8, linestyle=":")
    axes.set_title("decision without each sensor", fontsize=_NORMAL, loc="left")
    what = classes[1] if len(classes) == 2 else "the most probable class"
    axes.set(xlabel=f"probability of {what}", xlim=(0, 1))
    axes.grid(axis="x", alpha=0.3)


def _most_probable(axes: Any, outcome: Outcome, place: int) -> None:
    """Draw the probability of the label, or of the most probable class without one, and name it."""
    assert outcome.probability is not None
    left = outcome.probability > 0.5
    axes.plot([outcome.probability], [place], "o", color=_FUSED, clip_on=False)
    axes.annotate(
        outcome.label or "no decision",
        (outcome.probability, place),
        xytext=(-7 if left else 7, 0),
        textcoords="offset points",
        ha="right" if left else "left",
        va="center",
        fontsize=_SMALL,
    )


def _probability(outcome: Outcome, classes: tuple[str, ...]) -> float:
    """Return the probability of the second class."""
    if outcome.log_odds is not None:
        return float(1 / (1 + np.exp(-np.clip(outcome.log_odds, -700, 700))))
    assert outcome.probability is not None
    return float(outcome.probability if outcome.label in (classes[1], None) else 1 - outcome.probability)


def _note(axes: Any, text: str) -> None:
    axes.text(0.5, 0.5, text, ha="center", va="center", transform=axes.transAxes, fontsize=_SMALL, color="#555555")
