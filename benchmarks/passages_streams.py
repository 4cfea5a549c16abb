"""Real streams: other sources than those of training, a later time at a known site, and sounds unlike every class."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.passages_peers import Envelope, peer_figures
from benchmarks.passages_run import Floats, Happening, Heard, Sound, Trained, decide
from benchmarks.passages_score import (
    BANDS,
    LOUD_DB,
    LOUDEST_DB,
    Figures,
    Scored,
    detector_figures,
    inside_any,
    product_figures,
)
from benchmarks.report import show
from pipeline.core.choices import Choices
from pipeline.training.passage_metrics import LEAST_IOU, TimedSpan, overlap

PER_DAY = 24.0
"""One false passage an hour."""
RATES_PER_DAY = (12.0, 24.0, 48.0, 96.0)
REFUSED_WALKERS = 0.05


def heard_at_rates(trained: Trained, sound: Sound, envelope: Envelope | None, *, keep_summary: bool) -> Heard:
    """Decide about a stream at one false passage an hour, and at other rates beside it."""
    choices = Choices(false_passages_per_day=PER_DAY)
    return decide(
        trained.model, sound, choices, rates=(2.0, *RATES_PER_DAY), keep_summary=keep_summary, listener=envelope
    )


def measure_real(
    trained: Trained, envelopes: tuple[Envelope, Envelope], sound: Sound, heard: Heard, *, with_peers: bool = True
) -> Figures:
    """Passages of sources that training has not seen, at a target of one false passage an hour."""
    segment_seconds = trained.model.grid.segment_seconds
    ours = product_figures(sound, heard, heard.passages[PER_DAY], segment_seconds, LOUD_DB)
    peers = peer_figures(trained, envelopes[0], sound, heard, envelopes[1], PER_DAY) if with_peers else {}
    title = f"{sound.name}: {len(sound.passages)} passages, {len(sound.distractors)} distractors in {sound.hours:g} h"
    show_detectors(title, {"gemmed": ours, **peers})
    show_classes(sound, ours)
    _show_rates(sound, heard)
    return ours | {
        "configured_per_day": PER_DAY,
        "threshold": _threshold(trained, PER_DAY),
        "by_rate": by_rate(sound, heard),
        "peers": peers,
    }


def _threshold(trained: Trained, per_day: float) -> float:
    assert trained.model.presence is not None
    return trained.model.presence.threshold(per_day)


def measure_time(trained: Trained, sound: Sound, heard: Heard) -> Figures:
    """The same sources later: passages of at least 5 dB, and false ones in all of the background."""
    ours = product_figures(sound, heard, heard.passages[2.0], trained.model.grid.segment_seconds, LOUD_DB)
    scored = Scored(sound, heard.passages[2.0])
    figures = {
        "loud": scored.detection((LOUD_DB, np.inf)),
        "loudest": scored.detection((LOUDEST_DB, np.inf)),
        "false": len(scored.false(sound.background, distractors=True)),
        "configured_per_day": 2.0,
        "threshold": _threshold(trained, 2.0),
        "by_rate": by_rate(sound, heard),
    }
    show_detectors(f"{sound.name}: a known site later, 2 false passages a day configured", {"gemmed": ours})
    show_classes(sound, ours)
    _show_rates(sound, heard)
    return ours | figures


def by_rate(sound: Sound, heard: Heard) -> dict[str, Figures]:
    """False passages and passages found at several configured rates, per day."""
    told = {}
    for rate, found in sorted(heard.passages.items()):
        scored, figures = Scored(sound, found), detector_figures(sound, found)
        told[f"{rate:g}"] = {
            "false_per_hour": figures["false_per_hour"],
            "background_share": figures["background_share"],
            "loud": scored.detection((LOUD_DB, np.inf)),
            "loudest": scored.detection((LOUDEST_DB, np.inf)),
        }
    return told


def percent(figures: Figures | None) -> str:
    """Format a share with its interval."""
    if figures is None:
        return "-"
    value, low, high = (100 * figures[name] for name in ("value", "low", "high"))
    return f"{value:.0f} ({low:.0f}-{high:.0f})"


def plain(figures: Figures | None) -> str:
    """Format a rate with its interval."""
    return "-" if figures is None else f"{figures['value']:.2f} ({figures['low']:.2f}-{figures['high']:.2f})"


def show_detectors(title: str, detectors: dict[str, Figures | None]) -> None:
    """Draw what is found by band, and what is found wrongly, a column for each detector."""
    known = {name: figures for name, figures in detectors.items() if figures is not None}
    rows: list[list[object]] = [
        [f"found / IoU >= {LEAST_IOU:g}, {band}, %", *(_both(one["bands"].get(band)) for one in known.values())]
        for band in BANDS
    ]
    rows += [
        ["found, all, %", *(_both(one) for one in known.values())],
        ["false per hour of background", *(plain(one["false_per_hour"]) for one in known.values())],
        ["per day, distractors too", *(plain(one["false_per_day_with_distractors"]) for one in known.values())],
        ["background in passages, %", *(_percent(one["background_share"]) for one in known.values())],
        ["onset error, median, s", *(_median(one["onset_error_seconds"]) for one in known.values())],
        ["end error, median, s", *(_median(one["end_error_seconds"]) for one in known.values())],
    ]
    show(title, ["", *known], rows)
    kinds = sorted({kind for figures in known.values() for kind in figures["distractors"]})
    show(
        "Distractors inside passages that are none",
        ["kind", *known],
        [[kind, *_hits(kind, known)] for kind in kinds],
    )


def _median(figures: Figures | None) -> str:
    return f"{figures['median']:+.1f}" if figures else "-"


def _hits(kind: str, detectors: dict[str, Figures]) -> list[str]:
    told = [figures["distractors"].get(kind, (0, 0)) for figures in detectors.values()]
    return [f"{hit} of {n}" for hit, n in told]


def _both(figures: Figures | None) -> str:
    if not figures or figures["found"] is None:
        return "-"
    return f"{100 * figures['found']['value']:.0f} / {100 * figures['found_iou']['value']:.0f}"


def show_classes(sound: Sound, ours: Figures) -> None:
    """Draw how often classes are right, and how well segments tell somebody from nobody."""
    rows: list[list[object]] = [
        ["passages with a label: right", percent(ours["class_right"])],
        ["passages without a label", percent(ours["abstained"])],
        ["passages, likeliest class: right", percent(ours["class_right_forced"])],
        ["probability of that class, mean", _percent(ours["class_probability"])],
        ["their segments with a label: right", _percent(ours["segments_right"])],
        ["their segments, likeliest class: right", _percent(ours["segments_right_forced"])],
        ["latency, median, s", str(ours["latency_seconds"])],
    ]
    rows += [[f"segment AUC, {name}", f"{value:.3f}"] for name, value in ours["segment_auc"].items()]
    show(f"{sound.name}: classes of matched passages, %", ("", "gemmed"), rows)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"


def _show_rates(sound: Sound, heard: Heard) -> None:
    show(
        f"{sound.name}: configured and realized rates",
        ("configured, /h", "false, /h", "background, %", "found, 5 dB", "with IoU", "10 dB", "with IoU"),
        [
            [
                float(rate) / 24,
                plain(told["false_per_hour"]),
                f"{100 * (told['background_share'] or 0):.1f}",
                *(percent(told[band][what]) for band in ("loud", "loudest") for what in ("found", "found_iou")),
            ]
            for rate, told in by_rate(sound, heard).items()
        ],
    )


def measure_unknown(sound: Sound, heard: Heard, segment_seconds: float) -> Figures:
    """Whether the p-value of the sound among all classes tells distractors from walkers."""
    found = [one for one in heard.passages[PER_DAY] if one.p_known is not None]
    walkers = [_span(one) for one in sound.passages]
    others = [_span(one) for one in sound.distractors]
    spans = [TimedSpan("", one.start, one.end, None) for one in found]
    known = np.array([one.p_known for one in found], np.float64)
    is_walker = np.array([any(overlap(span, one) for one in walkers) for span in spans], np.bool_)
    is_other = np.array([any(overlap(span, one) for one in others) for span in spans], np.bool_) & ~is_walker
    figures = {
        "passages": _separation(known[is_walker], known[is_other]),
        "events": _separation(
            _event_p_known(sound.passages, heard, segment_seconds),
            _event_p_known(sound.distractors, heard, segment_seconds),
        ),
    }
    show(
        f"{sound.name}: distractors against walkers by p_known",
        ("what", "walkers", "distractors", "AUC", "distractors refused at 5 % of walkers, %"),
        [[name, *_row(told)] for name, told in figures.items()],
    )
    return figures


def _row(told: Figures) -> list[object]:
    auc, refused = told["auc"], told["refused"]
    return [told["walkers"], told["distractors"], auc if auc is not None else "-", _percent(refused)]


def _span(one: Happening) -> TimedSpan:
    return TimedSpan("", one.start, one.end, None)


def _event_p_known(events: Sequence[Happening], heard: Heard, segment_seconds: float) -> Floats:
    """Mean p-value of the segments inside each event of at least 5 dB, whether it was found or not."""
    starts, ends = heard.segments(segment_seconds)
    values = np.array(heard.p_known)
    means = []
    for one in events:
        own = values[inside_any(starts, ends, [(one.start, one.end)]) & np.isfinite(values)]
        if one.peak_db >= LOUD_DB and len(own):
            means.append(float(own.mean()))
    return np.array(means)


def _separation(walkers: Floats, others: Floats) -> Figures:
    from sklearn.metrics import roc_auc_score

    if not len(walkers) or not len(others):
        return {"walkers": len(walkers), "distractors": len(others), "auc": None, "refused": None}
    truth = np.repeat([0, 1], [len(walkers), len(others)])
    limit = np.quantile(walkers, REFUSED_WALKERS)
    return {
        "walkers": len(walkers),
        "distractors": len(others),
        "auc": round(float(roc_auc_score(truth, -np.concatenate([walkers, others]))), 4),
        "refused": round(float(np.mean(others < limit)), 4),
    }
