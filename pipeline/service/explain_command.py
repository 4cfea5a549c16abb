"""An explanation as a user asks for it: words, a table, a figure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from pipeline.errors import UsageError
from pipeline.service.assembly import Choices
from pipeline.service.explain import Explained, Place, explain, refused
from pipeline.service.explanation_figure import title, write_explanation_figure
from pipeline.sources.files import find_recordings
from pipeline.training.model import Model


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
    if out.suffix.lower() not in (".png", ".pdf", ".svg") or out.is_dir():
        raise UsageError(f"--out={str(out)!r} must be a file ending in .png, .pdf or .svg; for example explanation.png")
    place = Place.of(decision)
    loaded = Model.load(model)
    explained = explain(place, find_recordings(recordings, pattern=pattern), loaded, Choices(), resample=resample)
    console.print(title(explained), highlight=False)
    if explained.same is not None:
        console.print(_compared(explained.same), highlight=False)
    if explained.trained_on:
        console.print("the model was trained on this recording: it is most like itself", highlight=False)
    console.print(_sensors(explained))
    console.print(_neighbours(explained))
    console.print(_refused(loaded))
    if loaded.notes["doubted_recordings"]:
        console.print(f"labels doubted by training: {', '.join(loaded.notes['doubted_recordings'])}", highlight=False)
    try:
        console.print(f"written: {write_explanation_figure(explained, out)}", soft_wrap=True, highlight=False)
    except UsageError as error:
        console.print(f"no figure: {error}", soft_wrap=True, highlight=False)


def _compared(same: bool) -> str:
    if same:
        return "decided again from the sound: the same to the last digit"
    return "decided again from the sound, and it differs from the file: the sound or the program has changed since"


def _sensors(explained: Explained) -> Table:
    screened, decision = explained.decision.verdicts.screened, explained.decision
    table = Table(
        title="Sensors",
        caption=f"{explained.contributions_are}: log-odds, positive for {explained.model.classes[1]}; "
        "sensors repeat each other, so all count more when there are fewer",
    )
    for column in ("sensor", "why", "weight", "p own", "p others", explained.contributions_are, "without it"):
        table.add_column(column, justify="left" if column in ("sensor", "why", "without it") else "right")
    for s, outcome in enumerate(decision.without):
        without = outcome.label or "no decision"
        probability = "" if outcome.probability is None else f" {outcome.probability:.3f}"
        table.add_row(
            str(s + 1),
            explained.why(s),
            f"{decision.weights[s]:.2f}",
            _number(screened.p_own[s]),
            _number(screened.p_others[s]),
            f"{explained.contribution(s):+.2f}",
            f"{without}{probability}",
        )
    return table


def _number(value: float) -> str:
    return "" if np.isnan(value) else f"{value:.4f}"


def _neighbours(explained: Explained) -> Table:
    table = Table(title="Most similar training segments")
    for column in ("sensor", "recording", "seconds", "label", "distance", "note"):
        table.add_column(column)
    for s in range(explained.model.n_sensors):
        if not explained.decision.features.present[s]:
            continue
        for number, (recording, seconds, label, distance) in enumerate(explained.nearest(s)):
            table.add_row("" if number else str(s + 1), recording, f"{seconds:g}", label, f"{distance:.2f}", "")
        closer = explained.nearest_refused(s)
        if closer is not None:
            recording, seconds, label, distance, why = closer
            table.add_row("", recording, f"{seconds:g}", label, f"{distance:.2f}", f"nearer, but refused: {why}")
    return table


def _refused(model: Model) -> Table:
    table = Table(title="What training refused")
    for column in ("sensor", "why", "segments", "mostly of"):
        table.add_column(column)
    for one in refused(model):
        for number, (why, found) in enumerate(one["refused"].items()):
            mostly = ", ".join(f"{name} ({count})" for name, count in found["mostly"].items())
            share = f"{found['segments']} of {one['segments']}"
            table.add_row("" if number else str(one["sensor"]), why, share, mostly)
    return table
