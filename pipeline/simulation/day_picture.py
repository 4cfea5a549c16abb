"""A timeline of a simulated day, to be checked by eye: levels, weather, passages, distractors, faults, examples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from pipeline.core.events import Samples
from pipeline.runtime.plotting import pyplot
from pipeline.simulation.climate import BAND_HZ
from pipeline.simulation.contact_sheet import spectrogram_db
from pipeline.simulation.day import Day, PassageTruth
from pipeline.simulation.day_files import DayFiles, DayTruth
from pipeline.simulation.distractors import KINDS
from pipeline.simulation.faults import FAULTS
from pipeline.simulation.microphones import FULL_SCALE_PA
from pipeline.simulation.propagation import REFERENCE_PA, Floats
from pipeline.simulation.subjects import CLASSES

COLORS = dict(zip(CLASSES, ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00"), strict=True))
_SENSOR_COLORS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#888888", "#222222")
_KIND_COLORS = dict(zip(KINDS, ("#7b3294", "#404040", "#a6611a", "#2c7fb8"), strict=True))
_MOST_POINTS = 1440  # of the level; more could not be told apart
_LEVEL_SECONDS = 2
_AROUND_SECONDS = 6.0
_NIGHT, _RAIN = "#e8e8f0", "#c6dbef"


def write_day_picture(files: DayFiles, truth: DayTruth, out: Path) -> Path:
    """Draw the timeline of a day that was written to a directory, into `day.png`."""
    plt = pyplot()
    n_sensors = len(files.day.site.sensors_m)
    figure = plt.figure(figsize=(18, 12 + 0.22 * n_sensors))
    heights = (3.4, 1.1, 2.4, 1.2, 0.3 * n_sensors + 0.2)
    upper, lower = figure.add_gridspec(
        2, 1, height_ratios=(sum(heights), 2.6), hspace=0.16, left=0.09, right=0.985, top=0.94, bottom=0.05
    )
    rows = upper.subgridspec(len(heights), 1, height_ratios=heights, hspace=0.1).subplots(sharex=True)
    _draw_levels(rows[0], files, out)
    _draw_weather(rows[1], files.day)
    _draw_passages(rows[2], files.day, truth)
    _draw_distractors(rows[3], files.day)
    _draw_faults(rows[4], files.day)
    for row in rows:
        _shade(row, files.day)
    _label_hours(rows[-1], files.day)
    examples = _examples(truth)
    cells = lower.subgridspec(1, max(len(examples), 1), wspace=0.12).subplots(squeeze=False)[0]
    for column, (cell, example) in enumerate(zip(cells, examples, strict=False)):
        _draw_example(cell, files, out, example, first=column == 0)
    if not examples:
        cells[0].axis("off")
    day = files.day
    counts = f"{len(day.passages)} passages, {len(day.distractors)} distractors, {len(day.episodes)} faults"
    place = f"{n_sensors} sensors at {day.site.rate_hz} Hz"
    figure.suptitle(f"Simulated {files.recording}: {day.seconds / 3600:g} h, {place}, {counts}", fontsize=13)
    path = out / "day.png"
    figure.savefig(path, dpi=80)
    plt.close(figure)
    return path


def _hours(seconds: Floats | float) -> Any:
    return np.asarray(seconds) / 3600


def _shade(axes: Any, day: Day) -> None:
    """Nights in gray, showers in blue."""
    grid = np.linspace(0.0, day.seconds, _MOST_POINTS + 1)
    hour = day.climate.hour(day.start_seconds + grid)
    night = (hour < 6) | (hour > 20)
    axes.fill_between(
        _hours(grid), 0, 1, where=night, transform=axes.get_xaxis_transform(), color=_NIGHT, zorder=0, linewidth=0
    )
    for shower in day.climate.showers(day.start_seconds, day.start_seconds + day.seconds):
        span = (shower.start_seconds - day.start_seconds, shower.end_seconds - day.start_seconds)
        axes.axvspan(*_hours(np.clip(span, 0, day.seconds)), color=_RAIN, zorder=0, linewidth=0)
    axes.set_xlim(0, day.seconds / 3600)
    axes.tick_params(labelsize=8)


def _label_hours(axes: Any, day: Day) -> None:
    step = next(step for step in (1 / 60, 1 / 12, 1 / 6, 0.5, 1, 2, 6, 24, 48) if day.seconds / 3600 / step <= 25)
    first = np.ceil(day.start_hour / step) * step
    marks = np.arange(first, day.start_hour + day.seconds / 3600 + 1e-9, step)
    axes.set_xticks(
        marks - day.start_hour, [f"{int(mark % 24 + 1e-6):02d}:{round(mark * 60) % 60:02d}" for mark in marks]
    )
    axes.set_xlabel("time of day", fontsize=9)


def _draw_levels(axes: Any, files: DayFiles, out: Path) -> None:
    day, rate_hz = files.day, files.day.site.rate_hz
    step = max(round(day.seconds / _MOST_POINTS), _LEVEL_SECONDS)
    whole = range(0, int(day.seconds) - _LEVEL_SECONDS + 1, step)
    starts = np.array(whole, np.float64)
    spans = [(start * rate_hz, (start + _LEVEL_SECONDS) * rate_hz) for start in whole]
    levels = np.array([_level_db(read_files(files, out, *span), rate_hz) for span in spans]).T
    for sensor, level in enumerate(levels):
        color = _SENSOR_COLORS[sensor % len(_SENSOR_COLORS)]
        axes.plot(_hours(starts), level, color=color, linewidth=0.7, label=f"sensor {sensor + 1}", zorder=3)
    expected = _decibels(day.background.band_power(day.start_seconds + starts).mean(axis=0))
    axes.plot(_hours(starts), expected, color="#bbbbbb", linewidth=5, label="expected background", zorder=2)
    axes.set_ylabel(f"level, dB\n{BAND_HZ[0]:.0f}-{min(BAND_HZ[1], rate_hz / 2):.0f} Hz", fontsize=9)
    # Failing sensors go far beyond; the truth about them is below.
    axes.set_ylim(float(expected.min()) - 8, float(expected.max()) + 32)
    _legend(axes, min(len(levels) + 1, 9))


def _draw_weather(axes: Any, day: Day) -> None:
    grid = np.arange(0.0, day.seconds, max(day.seconds / _MOST_POINTS, 1.0))
    speed = day.climate.wind_m_per_s(day.start_seconds + grid)
    axes.plot(_hours(grid), speed, color="#31a354", linewidth=1)
    axes.set_ylabel("wind, m/s", fontsize=9)
    axes.set_ylim(0, 1.2 * float(speed.max()))


def _draw_passages(axes: Any, day: Day, truth: DayTruth) -> None:
    """Height is the peak signal-to-noise ratio, the dot's area the audible time."""
    for label in day.classes:
        chosen = [one for one in truth.passages if one.label == label]
        at = [one.nearest_seconds / 3600 for one in chosen]
        peak = [one.peak_db for one in chosen]
        size = [10 + 2 * (one.end_seconds - one.start_seconds) for one in chosen]
        axes.vlines(at, 0, peak, color=COLORS[label], linewidth=1, alpha=0.7)
        spans = [_hours(one.start_seconds) for one in chosen], [_hours(one.end_seconds) for one in chosen]
        axes.hlines(np.zeros(len(chosen)), *spans, color=COLORS[label], linewidth=4)
        axes.scatter(at, peak, s=size, color=COLORS[label], label=f"{label} ({len(chosen)})", zorder=3)
    axes.axhline(0, color="gray", linewidth=0.6)
    axes.set_ylabel("passages\npeak SNR, dB", fontsize=9)
    peaks = [0.0, 10.0, *(one.peak_db for one in truth.passages)]
    axes.set_ylim(min(peaks) - 2, max(peaks) * 1.35)
    _legend(axes, len(day.classes))


def _draw_distractors(axes: Any, day: Day) -> None:
    for lane, kind in enumerate(reversed(KINDS)):
        chosen = [one for one in day.distractors if one.kind == kind]
        middle = [(one.start_seconds + one.end_seconds) / 7200 for one in chosen]
        axes.scatter(middle, [lane] * len(chosen), marker="|", s=130, linewidths=2, color=_KIND_COLORS[kind])
        spans = [_hours(one.start_seconds) for one in chosen], [_hours(one.end_seconds) for one in chosen]
        axes.hlines([lane] * len(chosen), *spans, color=_KIND_COLORS[kind], linewidth=4)
    counts = [sum(one.kind == kind for one in day.distractors) for kind in reversed(KINDS)]
    axes.set_yticks(
        range(len(KINDS)), [f"{kind} ({n})" for kind, n in zip(reversed(KINDS), counts, strict=True)], fontsize=8
    )
    axes.set_ylim(-0.6, len(KINDS) - 0.4)


def _draw_faults(axes: Any, day: Day) -> None:
    rate_hz, n_sensors = day.site.rate_hz, len(day.site.sensors_m)
    palette = dict(zip(FAULTS, pyplot().get_cmap("tab20").colors, strict=False))
    for kind in sorted({episode.fault for episode in day.episodes}):
        chosen = [episode for episode in day.episodes if episode.fault == kind]
        lanes = [n_sensors - 1 - episode.sensor for episode in chosen]
        start = np.array([episode.start for episode in chosen]) / rate_hz / 3600
        # A fault of seconds would vanish on the scale of a day.
        length = np.maximum([(one.stop - one.start) / rate_hz / 3600 for one in chosen], day.seconds / 3600 / 900)
        axes.barh(lanes, length, left=start, height=0.7, color=palette[kind], label=kind, linewidth=0)
    axes.set_yticks(range(n_sensors), [f"faults, sensor {n_sensors - lane}" for lane in range(n_sensors)], fontsize=8)
    axes.set_ylim(-0.6, n_sensors - 0.4)
    if day.episodes:
        axes.legend(ncols=16, fontsize=7, loc="upper left", bbox_to_anchor=(0, -0.28), frameon=False, handlelength=1)


def _examples(truth: DayTruth) -> list[PassageTruth]:
    """The passage of each class whose ratio is in the middle of its class, in the order of time."""
    chosen = []
    for label in CLASSES:
        own = sorted((one for one in truth.passages if one.label == label), key=lambda one: one.peak_db)
        chosen += own[len(own) // 2 : len(own) // 2 + 1]
    return sorted(chosen, key=lambda one: one.nearest_seconds)


def _draw_example(axes: Any, files: DayFiles, out: Path, truth: PassageTruth, *, first: bool) -> None:
    rate_hz = files.day.site.rate_hz
    start = max(round((truth.enters_seconds - _AROUND_SECONDS) * rate_hz), 0)
    stop = min(round((truth.leaves_seconds + _AROUND_SECONDS) * rate_hz), files.day.length)
    sound = read_files(files, out, start, stop)[truth.nearest_sensor - 1]
    extent = (start / rate_hz - truth.enters_seconds, stop / rate_hz - truth.enters_seconds, 0, rate_hz / 2000)
    axes.imshow(
        spectrogram_db(sound, rate_hz), origin="lower", aspect="auto", extent=extent, vmin=-115, vmax=-55, cmap="magma"
    )
    for edge in (truth.start_seconds, truth.end_seconds):
        axes.axvline(edge - truth.enters_seconds, color="white", linewidth=1, linestyle="--")
    clock = (files.day.start_hour * 3600 + truth.nearest_seconds) % 86_400
    axes.set_title(
        f"{truth.label} at {int(clock // 3600):02d}:{int(clock % 3600 // 60):02d}, sensor {truth.nearest_sensor}, "
        f"{truth.loudest_db:.0f} dB",
        fontsize=9,
        color=COLORS[truth.label],
    )
    axes.set_xlabel("seconds; dashed: audible", fontsize=8)
    axes.tick_params(labelsize=7)
    if first:
        axes.set_ylabel("kHz", fontsize=8)


def _legend(axes: Any, columns: int) -> None:
    axes.legend(ncols=columns, fontsize=8, loc="upper left", framealpha=0.8)


def read_files(files: DayFiles, out: Path, start: int, stop: int) -> Samples:
    """Return samples of a written day, (sensors, samples)."""
    import soundfile

    length = files.piece_seconds * files.day.site.rate_hz
    parts = []
    for number in range(start // length, (stop - 1) // length + 1):
        first, last = files.span(number)
        begin, end = max(start, first) - first, min(stop, last) - first
        samples, _ = soundfile.read(out / files.file(number), start=begin, stop=end, dtype="float32", always_2d=True)
        parts.append(samples.T)
    return np.concatenate(parts, axis=1)


def _level_db(sound: Samples, rate_hz: int) -> Floats:
    """Level of each row in the band of `BAND_HZ`."""
    length = sound.shape[1]
    power = np.abs(np.fft.rfft(sound * np.hanning(length))) ** 2
    frequency = np.arange(power.shape[1]) * rate_hz / length
    inside = (frequency >= BAND_HZ[0]) & (frequency <= BAND_HZ[1])
    scale = 2 / (length * np.sum(np.hanning(length) ** 2))
    return _decibels(power[:, inside].sum(axis=1) * scale)


def _decibels(power: Floats) -> Floats:
    """Sound pressure level of a power in parts of full scale, at least 0."""
    level: Floats = 10 * np.log10(np.maximum(power * (FULL_SCALE_PA / REFERENCE_PA) ** 2, 1.0))
    return level
