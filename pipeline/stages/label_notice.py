"""What somebody said of a recording, before its sound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pipeline.core.events import Labelled, RecordingStarted


class LabelNotice:
    """Tells the labels of every recording, by its name, when it begins."""

    accepts = RecordingStarted
    remembers = ()

    def __init__(self, labels: Mapping[str, Sequence[Labelled]]) -> None:
        self._labels = {name: tuple(labelled) for name, labelled in labels.items()}

    def push(self, started: RecordingStarted, /) -> list[object]:
        return [started, *self._labels.get(started.recording, ())]

    def flush(self) -> list[object]:
        return []
