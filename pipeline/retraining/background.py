"""What a daemon heard while nobody passed: background to learn from that nobody labeled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pipeline.model.hot_swap import ArrayInput
from pipeline.storage.journal import Journal
from pipeline.storage.passage_table import passage_spans
from pipeline.storage.recordings import whole_pieces
from pipeline.training.examples import evenly
from pipeline.training.labeled_spans import APART_SECONDS, LabeledPassage, LabeledSpan

PRESUMED = "background"
"""Label of stretches that are presumed to have nobody in them; a word for nobody."""
_STRETCH_SECONDS = 60.0
_MOST_STRETCHES = 60


def is_presumed(passage: LabeledPassage) -> bool:
    """Return whether a passage of the store is background that nobody labeled."""
    return all(one.label == PRESUMED for one in passage.stretches)


def presumed_background(
    journal: Journal, labels: Mapping[str, Sequence[LabeledSpan]], hearing: ArrayInput
) -> list[LabeledPassage]:
    """Return minutes of kept sound that are far from every passage and every label, evenly spread over all there is."""
    rate_hz, length = hearing.grid.rate_hz, round(_STRETCH_SECONDS * hearing.grid.rate_hz)
    taken = _taken(journal, labels)
    apart = round(APART_SECONDS * rate_hz)
    free = [
        (recording, start)
        for recording, start, stop in _kept(journal, hearing)
        for start in range(-(-start // length) * length, stop - length + 1, length)
        if not any(a - apart < start + length and b + apart > start for a, b in taken.get(recording, ()))
    ]
    chosen = [free[n] for n in evenly(len(free), _MOST_STRETCHES)]
    return [LabeledPassage(recording, (LabeledSpan(start, start + length, PRESUMED),)) for recording, start in chosen]


def _taken(journal: Journal, labels: Mapping[str, Sequence[LabeledSpan]]) -> dict[str, list[tuple[int, int]]]:
    """Start and stop of all passages and labels, by recording."""
    taken = {recording: [(one.start, one.stop) for one in stretches] for recording, stretches in labels.items()}
    for recording, spans in passage_spans(journal).items():
        taken.setdefault(recording, []).extend(spans)
    return taken


def _kept(journal: Journal, hearing: ArrayInput) -> list[tuple[str, int, int]]:
    """Recording, start and stop of sound without holes that all sensors delivered, in the order of time."""
    found: list[tuple[str, int, int]] = []
    for piece in whole_pieces(journal, hearing.grid.rate_hz, hearing.n_sensors):
        if found and (found[-1][0], found[-1][2]) == (piece.recording, piece.start):
            found[-1] = piece.recording, found[-1][1], piece.stop
        else:
            found.append((piece.recording, piece.start, piece.stop))
    return found
