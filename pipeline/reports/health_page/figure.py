"""A picture of one recording: states, faults, levels and p-values of every sensor above one another.

Positions along the time axis are in percent, or in a part of the picture that is stretched, while heights and letters
keep their size: so the same picture fits a telephone and a wall. What is worse is drawn higher, so colours are not
needed to read it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import groupby, pairwise
from math import log10
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pipeline.core.sensor_state import Cause, Pattern, State
from pipeline.reports.health import FaultOrEvent, RecordingHealth, SensorHealth
from pipeline.reports.health_page.markup import Markup, tag, together
from pipeline.reports.health_page.wording import clock, duration_words, elapsed, honest_percent, number

COLUMNS = 480
"""A series is drawn with no more; each shows its least and its largest value."""
WORST_FIRST = (State.BAD, State.DEGRADED, State.GOOD, State.OFF, State.UNKNOWN)
LETTERS = {Pattern.FAULT: "F", Pattern.EVENT: "E", Pattern.COMMON_FAULT: "C", Pattern.DOUBTED_LABEL: "L"}

Series: TypeAlias = NDArray[np.floating[Any]]
Mask: TypeAlias = NDArray[np.bool_]
Part: TypeAlias = tuple[int, Markup]
"""Something drawn from 0 downwards, and its height."""
StateSpan: TypeAlias = tuple[float, float, State]

_WIDTH = 1000  # units of the stretched parts
_MOST_SPANS = 250
_MOST_MARKS = 60
_STRIP, _PLOT, _CHANCE, _ROW, _HEAD = 14, 56, 40, 17, 18
_STATE_HEIGHTS = {State.BAD: 14, State.DEGRADED: 9, State.GOOD: 4, State.OFF: 14, State.UNKNOWN: 2}
_LOWEST_DB = -120.0
_LOWEST_P = 1e-6
_NARROWEST = 290  # of the time axis on a telephone, in the unit of letters
_LETTER = 6.5
_STEPS = (
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800,
)  # fmt: skip

DEFINITIONS = tag(
    "svg",
    tag(
        "defs",
        tag(
            "pattern",
            tag("path", d="M0 1h9999", class_="hatch"),
            id="hatch",
            width=9999,
            height=4,
            patternUnits="userSpaceOnUse",
        ),
    ),
    xmlns="http://www.w3.org/2000/svg",
    width=0,
    height=0,
    class_="definitions",
    aria_hidden="true",
)
"""What all pictures of a page share; stripes lie flat, because nothing else stays as it is when stretched."""


def shown_seconds(recording: RecordingHealth) -> float:
    """How long the picture is: a recording that broke off has no length, but may have been heard."""
    heard = [float(len(sensor.missing)) for sensor in recording.sensors]
    faulty = [episode.end_seconds for sensor in recording.sensors for episode in sensor.episodes]
    return max([recording.seconds, *heard, *faulty])


def state_spans(sensor: SensorHealth, seconds: float) -> list[StateSpan]:
    """Start, end and state without gaps or overlaps; of neighbours that are the same, one."""
    told = [(0.0, State.UNKNOWN), *((min(start, seconds), state) for start, state in sensor.states)]
    spans: list[StateSpan] = []
    for (start, state), (end, _) in pairwise([*told, (seconds, State.UNKNOWN)]):
        if end <= start:
            continue
        if spans and spans[-1][2] is state:
            start = spans.pop()[0]
        spans.append((start, end, state))
    return spans


def extremes(values: Series, columns: int = COLUMNS) -> tuple[Series, Series]:
    """Least and largest value of each column; NaN where there is no finite one."""
    finite = np.where(np.isfinite(values), values, np.nan)
    edges = _edges(len(values), columns)
    return np.fmin.reduceat(finite, edges), np.fmax.reduceat(finite, edges)


def recording_figure(recording: RecordingHealth, *, alpha: float | None = None) -> Markup:
    """One picture, or a sentence if there is nothing to draw."""
    seconds = shown_seconds(recording)
    if not recording.sensors or seconds <= 0:
        return tag("p", "No picture: nothing was heard.", class_="note")
    began, bounds_db = clock(recording.started_at), _bounds_db(recording.sensors)
    parts = [_marks(recording, seconds), _times(seconds, began)]
    top = sum(height for height, _ in parts)
    for sensor in recording.sensors:
        parts += _sensor_parts(sensor, seconds, bounds_db, alpha)
    height = sum(height for height, _ in parts)
    grid = (tag("line", x1=at, x2=at, y1=top - 4, y2=height, class_="grid") for at in _places(seconds, began))
    described = f"{recording.recording}: how {len(recording.sensors)} sensors were during {duration_words(seconds)}"
    drawing = tag(
        "svg",
        tag("title", described),
        *grid,
        _stacked(parts),
        xmlns="http://www.w3.org/2000/svg",
        width="100%",
        height=height,
        role="img",
        aria_label=described,
    )
    return tag("div", drawing, class_="picture")


def _sensor_parts(
    sensor: SensorHealth, seconds: float, bounds_db: tuple[float, float], alpha: float | None
) -> list[Part]:
    spans = state_spans(sensor, seconds)
    parts = [_head(sensor, spans, seconds), _strip(spans, seconds), *_faults(sensor, seconds)]
    parts.append(_levels(sensor, seconds, bounds_db))
    if np.isfinite(sensor.p_values).any():
        parts.append(_chances(sensor, seconds, alpha))
    return parts


def _head(sensor: SensorHealth, spans: Sequence[StateSpan], seconds: float) -> Part:
    shares = [(state, sum(end - start for start, end, one in spans if one is state)) for state in WORST_FIRST]
    known = [f"{state} {honest_percent(share / seconds)}" for state, share in shares[:-1] if share > 0]
    told = " · ".join(known) or str(State.UNKNOWN)
    name = tag("tspan", sensor_name(sensor), class_="name")
    return _HEAD + 8, tag("text", name, tag("tspan", told, dx=8), y=_HEAD)


def sensor_name(sensor: SensorHealth) -> str:
    """Its number, and its name if that says more."""
    if sensor.name in ("", str(sensor.sensor)):
        return f"Sensor {sensor.sensor}"
    short = sensor.name if len(sensor.name) <= 16 else sensor.name[:15] + "…"
    return f"Sensor {sensor.sensor} ({short})"


def _strip(spans: Sequence[StateSpan], seconds: float) -> Part:
    """The worse, the higher; the worst is drawn last and never too narrow to be seen."""
    drawn = spans if len(spans) <= _MOST_SPANS else _coarse(spans, seconds)
    paths = []
    for state in reversed(WORST_FIRST):
        mine = [(start, end) for start, end, one in drawn if one is state]
        if mine:
            shape = _boxes(mine, seconds, _STRIP - _STATE_HEIGHTS[state], _STATE_HEIGHTS[state])
            told = tag("title", f"{state}: {_periods([(a, b) for a, b, one in spans if one is state])}")
            paths.append(tag("path", told, d=shape, class_=f"state {state}"))
    return _STRIP + 4, together([_gutter("state", 11), _stretched(paths, height=_STRIP)])


def _coarse(spans: Sequence[StateSpan], seconds: float) -> list[StateSpan]:
    """The worst state of each of many columns."""
    worst = np.full(_MOST_SPANS, len(WORST_FIRST) - 1)
    for start, end, state in spans:
        first = int(start / seconds * _MOST_SPANS)
        last = max(first + 1, int(np.ceil(end / seconds * _MOST_SPANS)))
        worst[first:last] = np.minimum(worst[first:last], WORST_FIRST.index(state))
    width = seconds / _MOST_SPANS
    runs = (list(run) for _, run in groupby(range(_MOST_SPANS), key=lambda column: int(worst[column])))
    return [(run[0] * width, (run[-1] + 1) * width, WORST_FIRST[worst[run[0]]]) for run in runs]


def _faults(sensor: SensorHealth, seconds: float) -> Iterator[Part]:
    """A row for each cause, so that no label meets another."""
    causes = dict.fromkeys(episode.cause for episode in sensor.episodes)
    for cause in causes:
        spans = [(one.start_seconds, one.end_seconds) for one in sensor.episodes if one.cause is cause]
        yield _ROW, together([_fault_label(cause, spans, seconds), _fault_bars(cause, spans, seconds)])


def _fault_label(cause: Cause, spans: Sequence[tuple[float, float]], seconds: float) -> Markup:
    start, end = spans[0][0] / seconds, spans[-1][1] / seconds
    label = f"{cause}" if len(spans) == 1 else f"{cause}, {len(spans)} times"
    if start <= 0.55:
        return tag("text", label, x=_at(start), y=10, class_="cause")
    return tag("text", label, x=_at(end), y=10, class_="cause", text_anchor="end")


def _fault_bars(cause: Cause, spans: Sequence[tuple[float, float]], seconds: float) -> Markup:
    told = tag("title", f"{cause}, {cause.meaning}: {_periods(spans)}")
    shape = _boxes(_merged(spans, seconds / _MOST_SPANS), seconds, 0, 4)
    bars = tag("path", told, d=shape, class_=f"state {cause.state}")
    return _stretched([bars], height=4, y=12)


def _merged(spans: Iterable[tuple[float, float]], nearer_than: float) -> list[tuple[float, float]]:
    """What the eye could not keep apart is one."""
    merged: list[tuple[float, float]] = []
    for start, end in spans:
        if merged and start - merged[-1][1] < nearer_than:
            start, before = merged.pop()
            end = max(end, before)
        merged.append((start, end))
    return merged


def _levels(sensor: SensorHealth, seconds: float, bounds_db: tuple[float, float]) -> Part:
    labels = [_gutter(f"{db:.0f}", y) for db, y in zip(_thirds(bounds_db), (8, _PLOT / 2 + 4, _PLOT), strict=True)]
    if not len(sensor.level_db):
        return _PLOT + 6, tag("text", "not measured", x="50%", y=_PLOT / 2, class_="note", text_anchor="middle")
    columns = min(len(sensor.level_db), COLUMNS)
    silent, missing = _any(np.isneginf(sensor.level_db)), _any(sensor.missing > 0)
    holes = [
        tag("path", tag("title", told), d=_columns_shape(mask), class_=kind)
        for told, mask, kind in (("no sound", silent, "silent"), ("samples missing", missing, "missing"))
        if mask.any()
    ]
    lines = [
        _line(_floor_of_sound(sensor), "noise floor", bounds_db, "floor"),
        _line(sensor.level_db, "level", bounds_db, "level"),
    ]
    share = len(sensor.level_db) / seconds
    plot = [
        _stretched(holes, height=_PLOT, width=_at(share), units=(columns, _PLOT)),
        _stretched(lines, height=_PLOT, width=_at(share), units=(columns, 10 * _PLOT)),
    ]
    frame = (tag("line", x2="100%", y1=y, y2=y, class_="frame") for y in (0, _PLOT / 2, _PLOT))
    notes = [*_note("no sound", silent, share, _PLOT - 5), *_note("missing", missing, share, 12)]
    return _PLOT + 6, together([*labels, *frame, *plot, *notes])


def _floor_of_sound(sensor: SensorHealth) -> Series:
    """Where nothing moves, there is no noise either."""
    return np.where(np.isneginf(sensor.level_db), np.nan, sensor.floor_db)


def _line(values: Series, name: str, bounds_db: tuple[float, float], kind: str) -> Markup:
    """Least and largest value as one shape; nothing where there is none."""
    finite = values[np.isfinite(values)]
    if not len(finite):
        return Markup("")
    bottom, top = bounds_db
    low, high = extremes(values)

    def height(db: Series) -> Series:
        return np.round(10 * _PLOT * (top - np.clip(db, bottom, top)) / (top - bottom))

    told = f"{name}: {number(float(finite.min()))} to {number(float(finite.max()))} dBFS"
    shape = _steps(height(low), height(high))
    return tag("path", tag("title", told), d=shape, class_=f"{kind} band" if "z" in shape else kind)


def _steps(lower_edge: Series, upper_edge: Series) -> str:
    """Stairs along the upper edge and, where the lower one differs, back along it; a hole where there is neither."""
    drawn = []
    for first, stop in _runs(np.isfinite(lower_edge)):
        upper, lower = (edge[first:stop].astype(int).tolist() for edge in (upper_edge, lower_edge))
        drawn.append(f"M{first} {upper[0]}" + _stairs(upper, 1))
        if upper != lower:
            drawn.append(f"V{lower[-1]}" + _stairs(lower[::-1], -1) + "z")
    return "".join(drawn)


def _stairs(heights: Sequence[int], direction: int) -> str:
    """One step a column; steps of the same height are one."""
    steps, before = [], heights[0]
    for height, run in groupby(heights):
        rise = f"v{height - before}" if height != before else ""
        steps.append(f"{rise}h{direction * len(list(run))}")
        before = height
    return "".join(steps)


def _chances(sensor: SensorHealth, seconds: float, alpha: float | None) -> Part:
    """p-values as dots, the unlikely ones below."""
    column = np.clip(sensor.p_seconds / seconds * COLUMNS, 0, COLUMNS - 1).astype(int)
    least, most = np.full(COLUMNS, np.inf), np.full(COLUMNS, -np.inf)
    known = np.isfinite(sensor.p_values)
    np.minimum.at(least, column[known], sensor.p_values[known])
    np.maximum.at(most, column[known], sensor.p_values[known])
    decades = float(np.clip(np.ceil(-np.log10(max(least.min(), _LOWEST_P))), 1, 6))

    def height(p: float) -> int:
        return round(-10 * _CHANCE * log10(max(p, 10.0**-decades)) / decades)

    dots = sorted({(x, height(p)) for x in np.flatnonzero(most >= 0).tolist() for p in (least[x], most[x])})
    told = tag("title", f"p-values from {number(float(least.min()))} to {number(float(most.max()))}")
    shapes = [tag("path", told, d="".join(f"M{x} {y}h0" for x, y in dots), class_="chance")]
    if alpha is not None and alpha >= 10.0**-decades:
        shapes.append(
            tag("path", tag("title", f"alpha {number(alpha)}"), d=f"M0 {height(alpha)}H{COLUMNS}", class_="alpha")
        )
    plot = _stretched(shapes, height=_CHANCE, y=4, units=(COLUMNS, 10 * _CHANCE))
    labels = [_gutter("p = 1", 11), _gutter(number(10.0**-decades), _CHANCE + 4)]
    frame = (tag("line", x2="100%", y1=y, y2=y, class_="frame") for y in (4, _CHANCE + 4))
    return _CHANCE + 10, together([*labels, *frame, plot])


def _marks(recording: RecordingHealth, seconds: float) -> Part:
    """What the sensors together say, and where nothing was recorded, at the time axis."""
    drawn = [*_gap_marks(recording.gaps, seconds), *_verdict_marks(recording.verdicts, seconds)]
    return (16 if drawn else 2), together(drawn)


def _gap_marks(gaps: Sequence[tuple[float, float, str]], seconds: float) -> Iterator[Markup]:
    merged = _merged(sorted((start, stop) for start, stop, _ in gaps), seconds / _MOST_SPANS)
    if merged:
        told = tag("title", f"nothing recorded: {_periods(merged)}")
        yield _stretched([tag("path", told, d=_boxes(merged, seconds, 0, 12), class_="gap")], height=12, y=2)
        yield tag("text", "gap", x=_at(min(merged[0][1] / seconds + 0.01, 0.9)), y=12, class_="cause")


def _verdict_marks(verdicts: Sequence[FaultOrEvent], seconds: float) -> Iterator[Markup]:
    """A letter each; several of a kind at about the same place are one."""
    places: dict[tuple[int, Pattern], list[FaultOrEvent]] = {}
    for one in verdicts:
        places.setdefault((int(_MOST_MARKS * one.seconds / seconds), one.pattern), []).append(one)
    for (_, pattern), same in places.items():
        told = f"{_words(pattern)} at {', '.join(elapsed(one.seconds) for one in same[:3])}"
        at = min(max(same[0].seconds / seconds, 0.01), 0.99)
        yield tag("text", tag("title", told), LETTERS[pattern], x=_at(at), y=12, class_="mark", text_anchor="middle")


def _words(pattern: Pattern) -> str:
    return pattern.replace("_", " ")


def _times(seconds: float, began: datetime | None) -> Part:
    texts = []
    for at, label in ticks(seconds, began):
        anchor = "start" if at < 0.04 else "end" if at > 0.9 else "middle"
        texts.append(tag("text", label, x=_at(at), y=12, class_="time", text_anchor=anchor))
    return 20, together(texts)


def _places(seconds: float, began: datetime | None) -> list[str]:
    return [_at(at) for at, _ in ticks(seconds, began)]


def ticks(seconds: float, began: datetime | None) -> list[tuple[float, str]]:
    """Round times with their place between 0 and 1, few enough for the labels to fit."""
    label = _time_label(seconds, began)
    most = max(int(_NARROWEST / (_LETTER * len(label(seconds)) + 24)), 2)
    step = next((step for step in _STEPS if seconds / step <= most), 604800 * -(-seconds // (604800 * most)))
    first = 0.0
    if began is not None:
        midnight = began.replace(hour=0, minute=0, second=0, microsecond=0)
        first = -(began - midnight).total_seconds() % min(step, 86400)
    return [(at / seconds, label(at)) for at in np.arange(first, seconds * (1 + 1e-9), step).tolist()]


def _time_label(seconds: float, began: datetime | None) -> Callable[[float], str]:
    """How times are written: as time of day, or as time since the beginning."""
    if began is not None:
        form = "%H:%M:%S" if seconds < 300 else "%H:%M" if seconds <= 86400 else "%d %b %H:%M"
        return lambda at: _later(began, at).strftime(form)
    if seconds < 120:
        return lambda at: f"{at:g} s" if at == int(at) else f"{at:.1f} s"
    if seconds < 7200:
        return lambda at: _with_fraction(round(at), "min")
    return lambda at: _with_fraction(round(at / 60), "h")


def _with_fraction(sixtieths: int, unit: str) -> str:
    whole, rest = divmod(sixtieths, 60)
    return f"{whole}:{rest:02d} {unit}" if rest else f"{whole} {unit}"


def _later(began: datetime, seconds: float) -> datetime:
    try:
        return began + timedelta(seconds=seconds)
    except OverflowError:
        return began


def _bounds_db(sensors: Sequence[SensorHealth]) -> tuple[float, float]:
    """The same for all sensors, so that they can be compared."""
    series = np.concatenate([np.concatenate([sensor.level_db, _floor_of_sound(sensor)]) for sensor in sensors])
    finite = series[np.isfinite(series)]
    if not len(finite):
        return -100.0, 0.0
    top = 20 * np.ceil(finite.max() / 20)
    bottom = max(20 * np.floor(finite.min() / 20), _LOWEST_DB)
    return float(min(bottom, top - 20)), float(top) + 0.0  # no -0


def _thirds(bounds: tuple[float, float]) -> tuple[float, float, float]:
    bottom, top = bounds
    return top, (top + bottom) / 2, bottom


def _note(text: str, mask: Mask, share: float, y: float) -> Iterator[Markup]:
    """A word at the longest run, if there is one."""
    runs = _runs(mask)
    if runs:
        first, stop = max(runs, key=lambda run: run[1] - run[0])
        at = min(max((first + stop) / 2 / len(mask) * share, 0.09), 0.91)
        yield tag("text", text, x=_at(at), y=y, class_="hole", text_anchor="middle")


def _edges(length: int, columns: int = COLUMNS) -> NDArray[np.int64]:
    columns = min(length, columns)
    return np.arange(columns) * length // columns


def _any(mask: Mask) -> Mask:
    return np.logical_or.reduceat(mask, _edges(len(mask)))


def _runs(mask: Mask) -> list[tuple[int, int]]:
    """First and behind last of each run of true values."""
    changes = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]])))
    return [(int(first), int(stop)) for first, stop in changes.reshape(-1, 2)]


def _columns_shape(mask: Mask) -> str:
    return "".join(f"M{first} 0H{stop}V{_PLOT}H{first}z" for first, stop in _runs(mask))


def _boxes(spans: Iterable[tuple[float, float]], seconds: float, top: int, height: int) -> str:
    scale = _WIDTH / seconds
    return "".join(
        f"M{start * scale:.2f} {top}h{(end - start) * scale:.2f}v{height}h{(start - end) * scale:.2f}z"
        for start, end in spans
    )


def _stretched(
    content: Iterable[Markup],
    *,
    height: int,
    y: int = 0,
    width: str = "100%",
    units: tuple[int, int] | None = None,
) -> Markup:
    """A part whose horizontal unit follows the width of the page."""
    wide, high = units or (_WIDTH, height)
    shape = {"y": y, "width": width, "height": height, "viewBox": f"0 0 {wide} {high}", "preserveAspectRatio": "none"}
    return tag("svg", *content, **shape)


def _stacked(parts: Iterable[Part]) -> Markup:
    drawn, y = [], 0
    for height, part in parts:
        drawn.append(tag("g", part, transform=f"translate(0 {y})"))
        y += height
    return together(drawn)


def _gutter(label: str, y: float) -> Markup:
    return tag("text", label, x=-5, y=y, class_="gutter", text_anchor="end")


def _at(share: float) -> str:
    return f"{100 * share:.2f}".rstrip("0").rstrip(".") + "%"


def _periods(spans: Sequence[tuple[float, float]]) -> str:
    told = ", ".join(f"{elapsed(start)} to {elapsed(end)}" for start, end in spans[:3])
    return told if len(spans) <= 3 else f"{told} and {len(spans) - 3} times more"
