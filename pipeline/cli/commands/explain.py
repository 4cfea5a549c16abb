"""Run `gemmed explain`: print an explanation as text and tables, and write its figure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from pipeline.core.choices import Choices
from pipeline.core.errors import UsageError
from pipeline.core.events import Role
from pipeline.model.model import Model
from pipeline.reports.deciding_values import NO_SUMMARY, NO_VALUE, SensorReasons, has_summary, written
from pipeline.reports.explanation import DecisionPlace, Explained, explain, refused
from pipeline.reports.explanation_figure import title, write_explanation_figure
from pipeline.reports.rhythm import rhythm_in_words
from pipeline.sources.files import find_recordings


def run_explanation(
    decision: str,
    recordings: Sequence[Path],
    model: Path,
    *,
    out: Path,
    pattern: str | None,
    resample: bool,
    console: Console,
) -> None:
    """Explain a decision on the console and in a figure."""
    if out.suffix.lower() not in (".png", ".pdf", ".svg") or out.is_dir():
        raise UsageError(f"--out={str(out)!r} must be a file ending in .png, .pdf or .svg; for example explanation.png")
    place = DecisionPlace.of(decision)
    loaded = Model.load(model)
    explained = explain(place, find_recordings(recordings, pattern=pattern), loaded, Choices(), resample=resample)
    for sentence in _sentences(explained):
        console.print(sentence, highlight=False)
    console.print(_sensors(explained))
    console.print(_p_values(explained))
    found = {s: one for s in range(loaded.n_sensors) if (one := explained.reasons(s)) is not None}
    if found:
        console.print(_values(explained, found))
        console.print(_groups(explained, found))
    elif not has_summary(loaded):
        console.print(NO_SUMMARY, highlight=False)
    console.print(_neighbors(explained))
    console.print(_refused(loaded))
    if loaded.notes["doubted_recordings"]:
        doubted = ", ".join(loaded.notes["doubted_recordings"])
        console.print(f"recordings whose label contradicts all sensors: {doubted}", highlight=False)
    try:
        console.print(f"written: {write_explanation_figure(explained, out)}", soft_wrap=True, highlight=False)
    except UsageError as error:
        console.print(f"no figure: {error}", soft_wrap=True, highlight=False)


def _sentences(explained: Explained) -> Iterator[str]:
    yield title(explained)
    used = explained.decision.roles.count(Role.USED)
    yield f"rhythm: {rhythm_in_words(explained.rhythm)}" if used else "rhythm: no usable sensor"
    yield f"sound: {explained.sound}"
    if explained.same is True:
        yield "repeated from the sound: the same to the last digit"
    elif explained.same is False:
        yield "repeated from the sound: differs from the file; the sound or the program has changed since"
    if explained.trained_on:
        yield "this segment is a training segment of the model: its nearest training segment is itself"


def _sensors(explained: Explained) -> Table:
    decision = explained.decision
    table = Table(
        title="Sensors",
        caption=f"{explained.contributions_are}: log-odds, positive for {explained.classes[1]}{_against(explained)}; "
        "with fewer sensors each counts more",
    )
    for column in ("sensor", "role", "weight", explained.contributions_are, "without it"):
        right = column in ("weight", explained.contributions_are)
        table.add_column(column, justify="right" if right else "left")
    for s, outcome in enumerate(decision.without):
        without = outcome.label or "no decision"
        probability = "" if outcome.probability is None else f" {outcome.probability:.3f}"
        contribution = f"{explained.contribution(s):+.2f}"
        table.add_row(str(s + 1), explained.why(s), f"{decision.weights[s]:.2f}", contribution, without + probability)
    return table


def _against(explained: Explained) -> str:
    """Name the other class where more than two could be meant."""
    return "" if len(explained.model.classes) == 2 else f" (against {explained.classes[0]}, the runner-up)"


def _p_values(explained: Explained) -> Table:
    screened = explained.decision.verdicts.screened
    table = Table(
        title="P-values",
        caption=f"sensor: timing compared with past segments (p own) and with the other sensors (p others); sound: "
        f"summary compared with all training segments; {explained.choices.alpha:g} or less is small",
    )
    for column in ("", "sensor", "p own", "p others", "sound"):
        table.add_column(column, justify="right" if column.startswith("p ") else "left")
    for s in range(explained.model.n_sensors):
        table.add_row(
            str(s + 1),
            explained.fault(s) or "no p-value",
            _number(screened.p_own[s]),
            _number(screened.p_others[s]),
            explained.known(s) or "no p-value",
        )
    return table


def _number(p_value: float) -> str:
    return "" if p_value != p_value else written(p_value).removeprefix("p ")


def _values(explained: Explained, found: dict[int, SensorReasons]) -> Table:
    first, second = explained.classes
    table = Table(
        title="Values with the largest effect",
        caption=f"typical: median of {first} / {second}. log-odds: difference to the same segment with this value at "
        f"the sensor's training median; - supports {first}, + supports {second}. Effects do not add up.",
    )
    table.add_column("")
    table.add_column("value of the summary")
    table.add_column("here", justify="right", no_wrap=True)
    table.add_column("typical", justify="right")
    table.add_column("log-odds", justify="right", no_wrap=True)
    for s, one in found.items():
        if not one.values:
            table.add_row(str(s + 1), NO_VALUE, "", "", "")
        for number, reason in enumerate(one.values):
            typical = " / ".join("none" if value is None else f"{value:.1f}" for value in reason.typical)
            here = f"{reason.value:.1f} {reason.unit}"
            table.add_row("" if number else str(s + 1), reason.name, here, typical, f"{reason.log_odds:+.2f}")
        table.add_section()
    return table


def _groups(explained: Explained, found: dict[int, SensorReasons]) -> Table:
    table = Table(
        title=f"Log-odds of each sensor by groups of values{_against(explained)}",
        caption="median segment: all values at the sensor's training median",
    )
    table.add_column("group")
    for s in found:
        table.add_column(f"sensor {s + 1}", justify="right")
    for name in next(iter(found.values())).groups:
        table.add_row(name, *(f"{one.groups[name]:+.2f}" for one in found.values()))
    table.add_section()
    table.add_row("median segment", *(f"{one.neutral:+.2f}" for one in found.values()))
    table.add_row("this segment", *(f"{one.own:+.2f}" for one in found.values()))
    return table


def _neighbors(explained: Explained) -> Table:
    table = Table(title="Nearest training segments", caption="distance: Euclidean, of the summary's components")
    for column in ("sensor", "recording", "seconds", "label", "distance", "note"):
        table.add_column(column, justify="right" if column in ("seconds", "distance") else "left")
    for s in range(explained.model.n_sensors):
        if not explained.decision.features.present[s]:
            table.add_row(str(s + 1), "", "", "", "", "absent: no features to compare")
            continue
        rows = [(*one, "") for one in explained.nearest(s)]
        closer = explained.nearest_refused(s)
        if closer is not None:
            rows.append((*closer[:4], f"nearer, but excluded: {closer[4]}"))
        for number, (recording, seconds, label, distance, note) in enumerate(rows):
            table.add_row("" if number else str(s + 1), recording, f"{seconds:g}", label, f"{distance:.2f}", note)
    return table


def _refused(model: Model) -> Table:
    table = Table(title="Segments excluded from training")
    for column in ("sensor", "reason", "segments", "mostly of"):
        table.add_column(column)
    for one in refused(model):
        for number, (why, found) in enumerate(one["refused"].items()):
            mostly = ", ".join(f"{name} ({count})" for name, count in found["mostly"].items())
            share = f"{found['segments']} of {one['segments']}"
            table.add_row("" if number else str(one["sensor"]), why, share, mostly)
    return table
