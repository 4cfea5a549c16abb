"""What is no passage, and what changes under the product: noises, silence, a tone, gains; and what it all costs."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks._streams import BACKGROUND_DB
from benchmarks.passages_run import N_SENSORS, RATE_HZ, Floats, Heard, Sound, decide
from benchmarks.passages_score import LOUD_DB, Figures, Scored, inside_any, share
from benchmarks.passages_streams import percent
from benchmarks.report import show
from pipeline.core.choices import Choices
from pipeline.core.events import Block, RecordingStarted, Samples
from pipeline.model.build import whole_chain
from pipeline.model.model import Model
from pipeline.stages import Background, Chain
from pipeline.training.passage_metrics import TimedSpan as SecondsSpan
from pipeline.training.passage_metrics import common_seconds, total_seconds, union

PIECE_SECONDS = 30
TONE_HZ, TONE_DB = 440.0, -30.0
GAINS_DB = (20.0, -20.0)
SETTLED_SECONDS = 180.0
_QUIET_WINDOW_SECONDS, _QUIET_SHARE = 30.0, 0.1
_BLOCK_SECONDS = 0.5
WITH, WITHOUT_PRESENCE, WITHOUT_BACKGROUND = "presence and passages", "presence=False", "no Background stage either"


def _colored(exponent: float) -> Any:
    """Noise whose power falls with the frequency to this exponent, independent at each sensor."""

    def made(length: int, rng: np.random.Generator) -> Floats:
        spectrum = np.fft.rfft(rng.standard_normal((N_SENSORS, length)))
        frequency = np.maximum(np.fft.rfftfreq(length, 1 / RATE_HZ), 20.0)
        sound = np.fft.irfft(spectrum * frequency ** (-exponent / 2), length)
        return np.asarray(sound / np.sqrt(np.mean(sound**2)) * 10 ** (BACKGROUND_DB / 20))

    return made


def _silence(length: int, rng: np.random.Generator) -> Floats:
    return np.zeros((N_SENSORS, length))


def _tone(length: int, rng: np.random.Generator) -> Floats:
    wave = np.sqrt(2) * 10 ** (TONE_DB / 20) * np.sin(2 * np.pi * TONE_HZ / RATE_HZ * np.arange(length))
    return np.tile(wave, (N_SENSORS, 1))


NOISES = {
    "pink noise": _colored(1.0),
    "white noise": _colored(0.0),
    "brown noise": _colored(2.0),
    "digital silence": _silence,
    "sine of 440 Hz": _tone,
}


def converted(sound: Floats) -> Samples:
    """16 bits, clipped at full scale."""
    return (np.clip(np.rint(sound * 32768), -32768, 32767) / 32768).astype(np.float32)


def _cut(sound: Samples) -> Iterator[Samples]:
    step = PIECE_SECONDS * RATE_HZ
    return (sound[:, start : start + step] for start in range(0, sound.shape[1], step))


def measure_noise(models: dict[str, Model], minutes: float, seed: int) -> Figures:
    """Passages and labels in sound without any event; none is wanted."""
    figures: Figures = {}
    for name, model in models.items():
        for number, (kind, make) in enumerate(NOISES.items()):
            rng = np.random.default_rng([seed, number])
            samples = converted(make(round(minutes * 60) * RATE_HZ, rng))
            sound = Sound(f"{kind} ({name})", minutes * 60, (), (), lambda s=samples: _cut(s))  # type: ignore[misc]
            heard = decide(model, sound, Choices())
            labeled = [label is not None for label in heard.label]
            figures[f"{kind}, {name}"] = {
                "passages": len(heard.passages[Choices().false_passages_per_day]),
                "labeled": round(float(np.mean(labeled)), 4) if labeled else 0.0,
                "segments": len(labeled),
            }
    show(
        f"Sound without events, {minutes:g} min each",
        ("sound", "passages", "segments with a label, %"),
        [[name, told["passages"], 100 * told["labeled"]] for name, told in figures.items()],
    )
    return {
        "by_sound": figures,
        "passages": sum(told["passages"] for told in figures.values()),
        "labeled": max(told["labeled"] for told in figures.values()),
    }


def measure_gain(model: Model, sounds: Sequence[Sound], per_day: float) -> Figures:
    """The same streams with and without a change of all gains in the middle."""
    cases: dict[str, list[tuple[Sound, Heard]]] = {}
    for gain_db in (0.0, *GAINS_DB):
        name = f"{gain_db:+g} dB"
        for sound in sounds:
            changed = replace(sound, name=f"{sound.name}, {name}", pieces=_amplified(sound, gain_db))
            heard = decide(model, changed, Choices(false_passages_per_day=per_day))
            cases.setdefault(name, []).append((changed, heard))
    figures = {name: _gain_figures(own, per_day) for name, own in cases.items()}
    show(
        f"All gains change in the middle of {len(sounds)} streams; passages of {LOUD_DB:g} dB and more",
        ("", *figures),
        [
            ["background quiet again after, s, worst", *(told["quiet_again_seconds"] for told in figures.values())],
            *(
                [f"{title}, {_WHEN[when]}, %", *(percent(told[f"{what}_{when}"]) for told in figures.values())]
                for what, title in (("found", "found"), ("background", "background in passages"))
                for when in _WHEN
            ),
            *([word, *(told["reports"].get(word, 0) for told in figures.values())] for word in _words(figures)),
        ],
    )
    return figures


_WHEN = {
    "before": "before",
    "within": f"up to {SETTLED_SECONDS:g} s later",
    "after": f"more than {SETTLED_SECONDS:g} s later",
}


def _words(figures: dict[str, Figures]) -> list[str]:
    return sorted({word for told in figures.values() for word in told["reports"]})


def _amplified(sound: Sound, gain_db: float) -> Any:
    """The pieces of a stream whose second half has another gain."""

    def pieces() -> Iterator[Samples]:
        at = 0
        for piece in sound.pieces():
            seconds = (at + np.arange(piece.shape[1])) / RATE_HZ
            gains = np.where(seconds >= sound.seconds / 2, 10 ** (gain_db / 20), 1.0)
            yield converted(piece.astype(np.float64) * gains)
            at += piece.shape[1]

    return pieces


def _reports(cases: Sequence[tuple[Sound, Heard]]) -> Counter[str]:
    """What was reported of the sensors after the change."""
    return Counter(word for sound, heard in cases for at, word in heard.states if at >= sound.seconds / 2)


def _gain_figures(cases: Sequence[tuple[Sound, Heard]], per_day: float) -> Figures:
    quiet = [_quiet_again(sound, heard) for sound, heard in cases]
    known = [seconds for seconds in quiet if seconds is not None]
    told: Figures = {
        "quiet_again_seconds": max(known) if len(known) == len(quiet) else None,
        "quiet_again_seconds_each": quiet,
    }
    for when in _WHEN:
        hits, covered, total = [], 0.0, 0.0
        for sound, heard in cases:
            begin, stop = _window(when, sound.seconds)
            found = heard.passages[per_day]
            part = replace(sound, passages=tuple(one for one in sound.passages if begin <= one.start < stop))
            scored = Scored(part, found)
            hits += [scored.is_found(span) for span in scored.among((LOUD_DB, np.inf))]
            inside = [(max(a, begin), min(b, stop)) for a, b in sound.background if a < stop and b > begin]
            covered += common_seconds({"": inside}, union(SecondsSpan("", one.start, one.end, None) for one in found))
            total += total_seconds({"": inside})
        told[f"found_{when}"] = share(hits)
        value = covered / total if total else 0.0
        told[f"background_{when}"] = {"value": value, "low": value, "high": value, "n": round(total)}
    told["reports"] = dict(sorted(_reports(cases).items()))
    return told


def _window(when: str, seconds: float) -> tuple[float, float]:
    change = seconds / 2
    return {
        "before": (0.0, change),
        "within": (change, change + SETTLED_SECONDS),
        "after": (change + SETTLED_SECONDS, seconds),
    }[when]


def _quiet_again(sound: Sound, heard: Heard) -> float | None:
    """Seconds of stream until, for the first time, half a minute of background shows hardly anybody; None if never."""
    starts, ends = heard.segments(2.0)
    change = sound.seconds / 2
    chosen = inside_any(starts, ends, sound.background) & (starts >= change)
    times, somebody = ends[chosen], np.array(heard.presence)[chosen] > 0
    n = round(_QUIET_WINDOW_SECONDS / _BLOCK_SECONDS)
    for last in range(n, len(times) + 1):
        if somebody[last - n : last].mean() <= _QUIET_SHARE:
            # The window itself is the proof, not the wait.
            return round(float(max(0.0, times[last - n] - 2.0 - change)), 1)
    return None


def measure_cost(model: Model, sound: Sound, minutes: int) -> Figures:
    """Processor time of a second of sound with and without presence, minute by minute in turns."""
    chains = {
        WITH: whole_chain(model, Choices()),
        WITHOUT_PRESENCE: whole_chain(model, Choices(presence=False)),
        WITHOUT_BACKGROUND: Chain(
            *(one for one in whole_chain(model, Choices(presence=False)).stages if not isinstance(one, Background))
        ),
    }
    seconds: dict[str, list[float]] = {name: [] for name in chains}
    latency: dict[str, list[float]] = {name: [] for name in chains}
    for chain in chains.values():
        chain.push(RecordingStarted("", RATE_HZ, tuple("1234")))
    names, pieces = list(chains), sound.pieces()
    for minute in range(minutes + 1):
        samples = np.concatenate([next(pieces) for _ in range(60 // _piece_seconds(sound))], axis=1)
        for name in names[minute % 3 :] + names[: minute % 3]:
            used, delays = _pushed(chains[name], samples, minute * 60 * RATE_HZ)
            if minute:  # the first one waits for tables and transforms
                seconds[name].append(used / 60)
                latency[name] += delays
    return _cost_figures(seconds, latency)


def _piece_seconds(sound: Sound) -> int:
    return int(next(sound.pieces()).shape[1]) // RATE_HZ


def _pushed(chain: Chain, samples: Samples, start: int) -> tuple[float, list[float]]:
    """Processor time of all blocks, and of each: other programs of the machine do not count."""
    step, delivered, delays = round(_BLOCK_SECONDS * RATE_HZ), np.ones(N_SENSORS, np.bool_), []
    began = time.thread_time()
    for at in range(0, samples.shape[1], step):
        before = time.thread_time()
        chain.push(Block(start + at, samples[:, at : at + step], delivered))
        delays.append(time.thread_time() - before)
    return time.thread_time() - began, delays


def _cost_figures(seconds: dict[str, list[float]], latency: dict[str, list[float]]) -> Figures:
    told = {
        name: {
            "cpu_ms_per_second": round(1000 * float(np.mean(own)), 3),
            "p50_ms_per_block": round(1000 * float(np.quantile(latency[name], 0.5)), 3),
            "p99_ms_per_block": round(1000 * float(np.quantile(latency[name], 0.99)), 3),
        }
        for name, own in seconds.items()
    }
    growth = {
        name: round(float(np.median(np.array(seconds[WITH]) / np.array(seconds[name]))) - 1, 4)
        for name in (WITHOUT_PRESENCE, WITHOUT_BACKGROUND)
    }
    show(
        f"Cost of a second of {N_SENSORS} x {RATE_HZ} Hz, blocks of {_BLOCK_SECONDS:g} s",
        ("chain", "CPU, ms", "p50 of a block, ms", "p99, ms", "growth, %"),
        [[name, *own.values(), f"{100 * growth[name]:.1f}" if name in growth else ""] for name, own in told.items()],
    )
    return {"chains": told, "growth": growth[WITHOUT_BACKGROUND], "growth_of_stages": growth}
