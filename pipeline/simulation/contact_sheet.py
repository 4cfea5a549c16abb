"""One picture of both classes at every sensor and of every fault, to be checked by eye."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.events import Samples
from pipeline.plotting import pyplot
from pipeline.simulation.faults import FAULTS, Episode
from pipeline.simulation.scene import HUMAN, HUMAN_WITH_ANIMAL, Site, array_positions, record

_SECONDS, _FAULT_SECONDS = 10.0, (3.0, 8.0)
_COLUMNS = 4
_FAULTY_SENSOR = 1


def write_contact_sheet(site: Site, path: Path) -> Path:
    """Spectrograms and waveforms of two recordings at four sensors of the site's kind, and of one with each fault."""
    plt = pyplot()
    site = replace(site, duration_seconds=_SECONDS, sensors_m=array_positions(_COLUMNS), faults=None)
    recordings = {label: record(site, 0, label=label).samples for label in (HUMAN, HUMAN_WITH_ANIMAL)}
    n_rows = len(recordings) + -(-len(FAULTS) // _COLUMNS)
    figure = plt.figure(figsize=(4 * _COLUMNS, 2.6 * n_rows), layout="constrained")
    cells = iter(figure.subfigures(n_rows, _COLUMNS).ravel())
    for label, samples in recordings.items():
        for sensor in range(_COLUMNS):
            _draw(next(cells), samples[sensor], site.rate_hz, title=f"{label}, sensor {sensor + 1}", color="#2166ac")
    clean = recordings[HUMAN][_FAULTY_SENSOR]
    for fault in FAULTS:
        cell = next(cells)
        _draw(cell, _with_fault(site, fault), site.rate_hz, title=fault, color="#b2182b", clean=clean)
        for axes in cell.axes:
            for edge in _FAULT_SECONDS:
                axes.axvline(edge, color="#ff9900", linewidth=1)
    figure.suptitle(
        f"Simulated array on {site.surface}, {site.rate_hz} Hz. Faults last from {_FAULT_SECONDS[0]:g} to "
        f"{_FAULT_SECONDS[1]:g} s at sensor {_FAULTY_SENSOR + 1}; grey is the sound without the fault.\n"
        "Above: spectrogram in dB of full scale. Below: waveform; the inset is a tenth of a second within the fault."
    )
    figure.savefig(path, dpi=80)
    plt.close(figure)
    return path


def _with_fault(site: Site, fault: str) -> Samples:
    start, stop = (round(edge * site.rate_hz) for edge in _FAULT_SECONDS)
    episode = Episode(_FAULTY_SENSOR, start, stop, fault, 0.6, _FAULTY_SENSOR + 1, (site.seed, 0))
    return np.asarray(record(site, 0, label=HUMAN, episodes=[episode]).samples[_FAULTY_SENSOR])


def _draw(cell: Any, samples: Samples, rate_hz: int, *, title: str, color: str, clean: Samples | None = None) -> None:
    upper, lower = cell.subplots(2, 1, sharex=True, height_ratios=(2, 1))
    upper.imshow(
        spectrogram_db(samples, rate_hz),
        origin="lower",
        aspect="auto",
        extent=(0, len(samples) / rate_hz, 0, rate_hz / 2000),
        vmin=-110,
        vmax=-40,
        cmap="magma",
    )
    upper.set_title(title, fontsize=10)
    upper.set_ylabel("kHz", fontsize=8)
    seconds = np.arange(len(samples)) / rate_hz
    if clean is not None:
        lower.plot(seconds, clean, color="#999999", linewidth=0.4)
    lower.plot(seconds, samples, color=color, linewidth=0.4)
    if clean is not None:
        _inset(lower, samples, clean, rate_hz, color)
    for axes in (upper, lower):
        axes.tick_params(labelsize=7)


def _inset(axes: Any, samples: Samples, clean: Samples, rate_hz: int, color: str) -> None:
    """The tenth of a second in which the clean sound is loudest."""
    window = rate_hz // 10
    start, stop = (round(edge * rate_hz) for edge in _FAULT_SECONDS)
    power = np.convolve(clean[start:stop].astype(float) ** 2, np.ones(window), mode="valid")
    span = slice(start + int(power.argmax()), start + int(power.argmax()) + window)
    inset = axes.inset_axes((0.81, 0.05, 0.18, 0.9))
    inset.plot(clean[span], color="#999999", linewidth=0.8)
    inset.plot(samples[span], color=color, linewidth=0.8)
    inset.set(xticks=[], yticks=[])


def spectrogram_db(samples: Samples, rate_hz: int) -> Samples:
    """Power of Hann frames of 32 ms every 16 ms, (frequencies, frames), a sine of full scale at 0 dB."""
    length = round(0.032 * rate_hz)
    window = np.hanning(length)
    frames = np.lib.stride_tricks.sliding_window_view(samples, length)[:: length // 2]
    amplitude = np.abs(np.fft.rfft(frames * window)) / (window.sum() / 2)
    return np.asarray(20 * np.log10(np.maximum(amplitude, 1e-7)).T, dtype=np.float32)
