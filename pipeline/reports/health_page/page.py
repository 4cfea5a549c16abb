"""The report of `gemmed health`: one page that needs nothing but itself, for a telephone, a screen or paper."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np

from pipeline.core.sensor_state import Cause, State
from pipeline.reports.health import FaultOrEvent, HealthEpisode, RecordingHealth, SensorHealth
from pipeline.reports.health_page.figure import (
    DEFINITIONS,
    LETTERS,
    WORST_FIRST,
    recording_figure,
    sensor_name,
    shown_seconds,
)
from pipeline.reports.health_page.markup import Markup, tag, together
from pipeline.reports.health_page.style import STYLE
from pipeline.reports.health_page.wording import (
    PATTERNS,
    clock,
    duration_words,
    evidence_words,
    honest_percent,
    moment,
    percent,
)

_MOST_OPEN = 30
_MOST_OF_PICTURES = 12_000_000
"""Characters: beyond it a telephone could not open the page."""
_MOST_ROWS = 300
_ABREAST = 20
"""Recordings side by side in the overview, so many as a telephone has room for."""


def report_html(
    found: Sequence[RecordingHealth], *, title: str, facts: Mapping[str, str], alpha: float | None = None
) -> str:
    """How the sensors were during recordings; `alpha` is drawn beside p-values."""
    sensors = _over_all(found)
    body = [
        tag("header", tag("h1", title), _facts(found, facts)),
        tag("p", _verdict_in_a_sentence(found), class_="lead"),
        _file_troubles(found),
        _summary(sensors),
        _overview(found, sensors),
        _recordings(found, alpha),
    ]
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name_="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name_="color-scheme", content="light dark"),
        tag("meta", http_equiv="Content-Security-Policy", content="default-src 'none'; style-src 'unsafe-inline'"),
        tag("title", title),
        tag("style", Markup(STYLE)),
    )
    return "<!DOCTYPE html>\n" + tag("html", head, tag("body", DEFINITIONS, tag("main", *body)), lang="en") + "\n"


@dataclass(slots=True)
class _Sensor:
    """One sensor over all recordings."""

    number: int
    name: str
    seconds: float = 0.0
    heard_seconds: float = 0.0
    well_seconds: float = 0.0
    worst: State = State.UNKNOWN
    causes: Counter[Cause] = field(default_factory=Counter)

    def add(self, one: SensorHealth) -> None:
        recorded = one.missing[np.isfinite(one.missing)]
        self.seconds += len(recorded)
        self.heard_seconds += float((1.0 - recorded).sum())
        self.well_seconds += len(recorded) * (one.availability or 0.0)
        self.worst = min(self.worst, one.worst, key=WORST_FIRST.index)
        self.causes.update(episode.cause for episode in one.episodes)


def _over_all(found: Sequence[RecordingHealth]) -> list[_Sensor]:
    sensors: dict[int, _Sensor] = {}
    for recording in found:
        for one in recording.sensors:
            sensors.setdefault(one.sensor, _Sensor(one.sensor, sensor_name(one))).add(one)
    return [sensors[number] for number in sorted(sensors)]


def _matters(recording: RecordingHealth) -> bool:
    """Whether there is anything to tell."""
    told = (recording.verdicts, recording.calibration, recording.gaps, recording.troubles)
    return any(told) or any(one.episodes for one in recording.sensors) or not _heard(recording)


def _heard(recording: RecordingHealth) -> bool:
    return any(len(sensor.missing) for sensor in recording.sensors)


def _facts(found: Sequence[RecordingHealth], facts: Mapping[str, str]) -> Markup:
    seconds = sum(shown_seconds(recording) for recording in found)
    told = {"recordings": str(len(found)), "sound": duration_words(seconds), **facts}
    return tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in told.items()))


def _verdict_in_a_sentence(found: Sequence[RecordingHealth]) -> str:
    if not found:
        return "There are no recordings."
    if not any(_heard(recording) for recording in found):
        return "Nothing was heard: no recording is usable."
    n_matter = sum(map(_matters, found))
    if not n_matter:
        return "Nothing was the matter."
    if len(found) == 1:
        return "Something was the matter, or worth telling."
    return f"In {n_matter} of {len(found)} recordings something was the matter, or worth telling."


def _file_troubles(found: Sequence[RecordingHealth]) -> Markup:
    told = [
        tag("li", tag("a", recording.recording, href=f"#r{number}"), f": {trouble}")
        for number, recording in enumerate(found, start=1)
        for trouble in recording.troubles
    ]
    if not told:
        return Markup("")
    return tag("section", tag("h2", "Trouble with files"), *_shortened("ul", told))


def _shortened(kind: str, items: Sequence[Markup]) -> Iterator[Markup]:
    yield tag(kind, *items[:_MOST_ROWS])
    if len(items) > _MOST_ROWS:
        yield tag("p", f"and {len(items) - _MOST_ROWS} more.", class_="note")


def _summary(sensors: Sequence[_Sensor]) -> Markup:
    if not sensors:
        return Markup("")
    columns = ("sensor", "worst state", "available", "heard", "faults", "most frequent", "what to do")
    rows = [
        (
            one.name,
            _badge(one.worst),
            honest_percent(one.well_seconds / one.seconds, decimals=1) if one.seconds else "–",
            duration_words(one.heard_seconds),
            str(one.causes.total()),
            _frequent(one.causes),
            _cures(one.causes),
        )
        for one in sensors
    ]
    table = _table("Each sensor over all recordings", columns, rows)
    return tag("section", tag("h2", "Sensors"), table)


def _frequent(causes: Counter[Cause]) -> str:
    return ", ".join(f"{cause} {times} ×" for cause, times in causes.most_common(3)) or "–"


def _cures(causes: Counter[Cause]) -> Markup | str:
    """What helps against the most frequent causes, each once."""
    cures = dict.fromkeys(cause.cure for cause, _ in causes.most_common(3))
    return tag("ul", *(tag("li", cure) for cure in cures)) if cures else "nothing"


def _badge(state: State) -> Markup:
    return tag("span", tag("i", class_=f"cell {state}"), str(state), class_="badge")


def _overview(found: Sequence[RecordingHealth], sensors: Sequence[_Sensor]) -> Markup:
    """Rows are sensors, columns recordings; it goes on in the next line like a text."""
    if len(found) < 2 or not sensors:
        return Markup("")
    numbers = [one.number for one in sensors]
    labels = tag("span", *(tag("b", str(number)) for number in numbers), class_="labels", aria_hidden="true")
    groups = [
        tag(
            "div",
            tag("p", found[first].recording, class_="first"),
            tag("div", labels, *(_column(n, found[n], numbers) for n in _block(first, len(found))), class_="columns"),
            class_="group",
        )
        for first in range(0, len(found), _ABREAST)
    ]
    told = "Rows are sensors, columns are recordings in their order; the name is that of the first one in a block."
    heading = tag("h2", "Overview")
    return tag("section", heading, tag("p", told), _legend(), tag("div", *groups, class_="overview"))


def _block(first: int, n_recordings: int) -> range:
    return range(first, min(first + _ABREAST, n_recordings))


def _legend() -> Markup:
    return tag("p", "The worse, the higher: ", *(_badge(state) for state in WORST_FIRST), class_="legend")


def _column(number: int, recording: RecordingHealth, sensors: Sequence[int]) -> Markup:
    worst = {one.sensor: one.worst for one in recording.sensors}
    told = ", ".join(f"{sensor} {state}" for sensor, state in worst.items() if state is not State.GOOD)
    cells = (tag("i", class_=f"cell {worst.get(sensor, State.UNKNOWN)}") for sensor in sensors)
    return tag("a", *cells, href=f"#r{number + 1}", title=f"{recording.recording}: {told or 'all good'}")


def _recordings(found: Sequence[RecordingHealth], alpha: float | None) -> Markup:
    if not found:
        return Markup("")
    pictures = _pictures(found, alpha)
    matter = [number for number, recording in enumerate(found) if _matters(recording)]
    opened = set(matter[:_MOST_OPEN])
    sections = (
        _recording(number, recording, pictures.get(number), is_open=number in opened or len(found) == 1)
        for number, recording in enumerate(found)
    )
    return tag("section", tag("h2", "Recordings"), _how_to_read(), *sections)


def _pictures(found: Sequence[RecordingHealth], alpha: float | None) -> dict[int, Markup]:
    """As many as a page can hold, first those in which something was the matter."""
    pictures: dict[int, Markup] = {}
    room = _MOST_OF_PICTURES
    for number in sorted(range(len(found)), key=lambda number: not _matters(found[number])):
        if room <= 0:
            break
        pictures[number] = recording_figure(found[number], alpha=alpha)
        room -= len(pictures[number])
    return pictures


def _how_to_read() -> Markup:
    letters = ", ".join(f"{letter} {pattern.replace('_', ' ')}" for pattern, letter in LETTERS.items())
    level, floor = tag("b", "level", class_="level"), tag("b", "noise floor", class_="floor")
    lines = (
        together(["The strip is the state as it was known at that time. ", _legend()]),
        "Bars below it are faults, from when on they were there in truth, which is before they were found.",
        together(
            ["Lines: ", level, " and ", floor, " in dB of full scale (dBFS), those below -120 at the lower edge."]
        ),
        "Where one column stands for many seconds, lines show the least and the largest, the strip shows the worst.",
        "A hole marked “no sound” means that nothing moved at all; stripes mean that samples are missing.",
        "Dots, if there are any: p-values on a logarithmic axis, the more unusual the lower; dashed: alpha.",
        f"Letters above the time axis, what all sensors together say: {letters}.",
    )
    items = tag("ul", *(tag("li", line) for line in lines))
    return tag("details", tag("summary", "How to read the pictures"), items)


def _recording(number: int, recording: RecordingHealth, picture: Markup | None, *, is_open: bool) -> Markup:
    began = clock(recording.started_at)
    parts = [
        picture or tag("p", "No picture, for want of room.", class_="note"),
        _troubles(recording),
        _episodes(recording, began),
        _verdicts(recording.verdicts, began),
        _calibration(recording.calibration, began),
        _gaps(recording.gaps, began),
    ]
    summary = tag("summary", tag("span", recording.recording, class_="name"), f" {_in_short(recording, began)}")
    return tag("details", summary, *parts, id=f"r{number + 1}", class_="recording", open="" if is_open else None)


def _in_short(recording: RecordingHealth, began: datetime | None) -> str:
    causes = Counter(episode.cause for one in recording.sensors for episode in one.episodes)
    told = [duration_words(shown_seconds(recording))]
    if began is not None:
        told.insert(0, f"{began:%Y-%m-%d %H:%M:%S}")
    if not _heard(recording):
        told.append("nothing was heard" if recording.sensors else "no sensors")
    told += [f"{cause} {times} ×" if times > 1 else str(cause) for cause, times in causes.most_common(4)]
    told += ["trouble with files"] * bool(recording.troubles)
    told += [f"{pattern.replace('_', ' ')}" for pattern in dict.fromkeys(one.pattern for one in recording.verdicts)]
    return " · ".join(told if _matters(recording) else [*told, "nothing was the matter"])


def _troubles(recording: RecordingHealth) -> Markup:
    if not recording.troubles:
        return Markup("")
    items = [tag("li", trouble) for trouble in recording.troubles]
    return tag("div", tag("h3", "Trouble with files"), *_shortened("ul", items))


def _episodes(recording: RecordingHealth, began: datetime | None) -> Markup:
    rows = [_episode(one, episode, began) for one in recording.sensors for episode in one.episodes]
    if not rows:
        return tag("p", "Nothing was the matter with any sensor.") if _heard(recording) else Markup("")
    columns = ("sensor", "cause", "from", "to", "for", "evidence", "what to do")
    return _table(f"What was the matter in {recording.recording}", columns, rows)


def _episode(sensor: SensorHealth, episode: HealthEpisode, began: datetime | None) -> tuple[str, ...]:
    return (
        sensor_name(sensor).removeprefix("Sensor "),
        together([_badge_of(episode.cause), tag("span", episode.cause.meaning, class_="meaning")]),
        moment(episode.start_seconds, began),
        together([moment(episode.end_seconds, began), *_not_over(episode)]),
        duration_words(episode.end_seconds - episode.start_seconds),
        evidence_words(episode.evidence),
        episode.cause.cure,
    )


def _not_over(episode: HealthEpisode) -> Iterator[Markup]:
    if episode.still_open:
        yield tag("span", "not over", class_="meaning")


def _badge_of(cause: Cause) -> Markup:
    return tag("span", tag("i", class_=f"cell {cause.state}", title=str(cause.state)), str(cause), class_="badge")


def _verdicts(verdicts: Sequence[FaultOrEvent], began: datetime | None) -> Markup:
    if not verdicts:
        return Markup("")
    rows = [
        (
            moment(one.seconds, began),
            f"{LETTERS[one.pattern]}: {one.pattern.replace('_', ' ')}, {PATTERNS[one.pattern]}",
            ", ".join(map(str, one.sensors)) or "–",
            one.reason,
            evidence_words(one.evidence),
        )
        for one in verdicts
    ]
    return _table("Fault or event", ("when", "what", "sensors", "why", "evidence"), rows)


def _calibration(changes: Sequence[dict[str, Any]], began: datetime | None) -> Markup:
    if not changes:
        return Markup("")
    rows = [
        (
            moment(one["seconds"], began),
            str(one["sensor"]),
            "lost" if one["lost"] else "regained",
            f"{percent(one['realised'])} ({' to '.join(map(percent, one['interval']))})",
            percent(one["nominal"]),
        )
        for one in changes
    ]
    return _table("Calibration of p-values", ("when", "sensor", "calibration", "refused", "should be"), rows)


def _gaps(gaps: Sequence[tuple[float, float, str]], began: datetime | None) -> Markup:
    if not gaps:
        return Markup("")
    rows = [
        (moment(start, began), moment(stop, began), duration_words(stop - start), reason)
        for start, stop, reason in gaps
    ]
    return _table("Gaps in the recording", ("from", "to", "for", "why"), rows)


def _table(caption: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Markup:
    """On a narrow page rows become cards (see the style); roles keep it a table for those who cannot see it."""
    head = tag("tr", *(tag("th", name, scope="col", role="columnheader") for name in columns), role="row")
    shown = [
        tag(
            "tr", *(tag("td", cell, role="cell", data_of=of) for of, cell in zip(columns, row, strict=True)), role="row"
        )
        for row in rows[:_MOST_ROWS]
    ]
    more = [tag("p", f"and {len(rows) - _MOST_ROWS} more.", class_="note")] if len(rows) > _MOST_ROWS else []
    parts = tag("thead", head, role="rowgroup"), tag("tbody", *shown, role="rowgroup")
    return together([tag("table", tag("caption", caption), *parts, role="table"), *more])
