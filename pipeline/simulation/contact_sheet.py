"""One picture of both classes at every sensor and of every fault, to be checked by eye."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.core.events import Samples
from pipeline.runtime.plotting import pyplot
from pipeline.simulation.faults import FAULTS, NEED_A_PARTNER, FaultEpisode
from pipeline.simulation.scene import Site, array_positions, record
from pipeline.simulation.subjects import HUMAN, HUMAN_WITH_ANIMAL

_SECONDS, _FAULT_SECONDS = 10.0, (3.0, 8.0)
_COLUMNS = 4
_TITLE_INCHES = 0.8
_FAULTY, _NEIGHBOUR = 1, 2
_CLOSE_UP_SECONDS = 0.008
_CLEAN, _FAULT, _OTHER, _GOOD = "#aaaaaa", "#b2182b", "#1a9850", "#2166ac"


def write_contact_sheet(site: Site, path: Path) -> Path:
    """Spectrograms and waveforms of two recordings at four sensors of the site's kind, and of one with each fault."""
    plt = pyplot()
    site = replace(site, duration_seconds=_SECONDS, sensors_m=array_positions(_COLUMNS), faults=None)
    recordings = {label: record(site, 0, label=label).samples for label in (HUMAN, HUMAN_WITH_ANIMAL)}
    n_rows = len(recordings) + -(-len(FAULTS) // _COLUMNS)
    heights = [_TITLE_INCHES, *[2.7] * n_rows]
    figure = plt.figure(figsize=(5 * _COLUMNS, sum(heights)))
    # Places by hand: to fit so many panels to each other takes matplotlib longer than all the rest.
    grid = figure.add_gridspec(len(heights), _COLUMNS, height_ratios=heights)
    cells = (figure.add_subfigure(grid[place]) for place in range(_COLUMNS, len(heights) * _COLUMNS))
    for label, samples in recordings.items():
        for sensor in range(_COLUMNS):
            _draw(next(cells), site.rate_hz, {_GOOD: samples[sensor]}, title=f"{label}, sensor {sensor + 1}")
    human = recordings[HUMAN]
    for fault in FAULTS:
        faulty = _with_fault(site, fault)
        others = {_OTHER: human[_NEIGHBOUR]} if fault in NEED_A_PARTNER else {}
        traces = {_CLEAN: human[_FAULTY], **others, _FAULT: faulty}
        _draw(next(cells), site.rate_hz, traces, title=_title(fault, faulty, site), edges=_FAULT_SECONDS)
    figure.suptitle(
        f"Simulated array on {site.surface}, {site.rate_hz} Hz: spectrogram (dB of full scale), waveform, and "
        f"{1000 * _CLOSE_UP_SECONDS:.0f} ms of it around the loudest step of the fault.\n"
        f"Faults last from {_FAULT_SECONDS[0]:g} to {_FAULT_SECONDS[1]:g} s at sensor {_FAULTY + 1} (red); grey is the "
        f"same sound without the fault, green the sensor beside it.",
        y=1 - 0.2 * _TITLE_INCHES / sum(heights),
        va="top",
    )
    figure.savefig(path, dpi=72)
    plt.close(figure)
    return path


def _span(site: Site) -> slice:
    return slice(*(round(edge * site.rate_hz) for edge in _FAULT_SECONDS))


def _with_fault(site: Site, fault: str) -> Samples:
    span = _span(site)
    episode = FaultEpisode(_FAULTY, span.start, span.stop, fault, 0.6, _NEIGHBOUR, (site.seed, 0))
    return np.asarray(record(site, 0, label=HUMAN, episodes=[episode]).samples[_FAULTY])


def _title(fault: str, samples: Samples, site: Site) -> str:
    """With what tells apart faults that look alike."""
    during = samples[_span(site)]
    level = 10 * np.log10(max(float(np.mean(during.astype(float) ** 2)), 1e-10))
    return f"{fault}: {level:.0f} dB, mean {during.mean():+.3f}, {len(np.unique(during))} values"


def _draw(cell: Any, rate_hz: int, traces: dict[str, Samples], *, title: str, edges: tuple[float, ...] = ()) -> None:
    """The last of the traces above as spectrogram, all of them below, and close up beside."""
    axes = cell.subplot_mosaic(
        [["spectrogram", "close"], ["wave", "close"]],
        width_ratios=(3, 1),
        height_ratios=(2, 1),
        gridspec_kw={"left": 0.09, "right": 0.9, "bottom": 0.14, "top": 0.9, "wspace": 0.05, "hspace": 0.08},
    )
    shown = list(traces.values())[-1]
    seconds = len(shown) / rate_hz
    axes["spectrogram"].imshow(
        spectrogram_db(shown, rate_hz),
        origin="lower",
        aspect="auto",
        extent=(0, seconds, 0, rate_hz / 2000),
        vmin=-110,
        vmax=-40,
        cmap="magma",
    )
    axes["spectrogram"].set_title(title, fontsize=9)
    axes["spectrogram"].set_ylabel("kHz", fontsize=8)
    axes["spectrogram"].set_xticks([])
    close = _loudest(next(iter(traces.values())), rate_hz)
    for color, samples in traces.items():
        axes["wave"].plot(np.arange(len(samples)) / rate_hz, samples, color=color, linewidth=0.4)
        axes["close"].plot(
            np.arange(close.stop - close.start) / rate_hz * 1000, samples[close], color=color, linewidth=1
        )
    for edge in edges:
        axes["spectrogram"].axvline(edge, color="#ff9900", linewidth=1)
        axes["wave"].axvline(edge, color="#ff9900", linewidth=1)
    axes["wave"].set_xlim(0, seconds)
    axes["wave"].set_xlabel("seconds", fontsize=7, labelpad=1)
    axes["close"].set_xlabel("ms", fontsize=7, labelpad=1)
    axes["close"].yaxis.tick_right()
    for panel in axes.values():
        panel.tick_params(labelsize=7)


def _loudest(samples: Samples, rate_hz: int) -> slice:
    """A few milliseconds around the strongest sample while the fault lasts."""
    start, stop = (round(edge * rate_hz) for edge in _FAULT_SECONDS)
    width = round(_CLOSE_UP_SECONDS * rate_hz)
    first = start + int(np.abs(samples[start:stop]).argmax()) - width // 3
    return slice(first, first + width)


def spectrogram_db(samples: Samples, rate_hz: int) -> Samples:
    """Power of Hann frames of 32 ms every 16 ms, (frequencies, frames), a sine of full scale at 0 dB."""
    length = round(0.032 * rate_hz)
    window = np.hanning(length)
    frames = np.lib.stride_tricks.sliding_window_view(samples, length)[:: length // 2]
    amplitude = np.abs(np.fft.rfft(frames * window)) / (window.sum() / 2)
    return np.asarray(20 * np.log10(np.maximum(amplitude, 1e-7)).T, dtype=np.float32)
