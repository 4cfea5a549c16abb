"""Learning beside deciding: labels from a file, retraining in a process of its own, a shadow run, and the swap."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from threading import Event, Thread
from typing import Any

from pipeline.errors import GemmedError
from pipeline.events import Notice
from pipeline.service.logs import log
from pipeline.service.registry import Registry
from pipeline.service.settings import Settings
from pipeline.service.state import StateDirectory
from pipeline.service.switching import Comparison
from pipeline.sinks.journal import Journal
from pipeline.training.model import Model

_LOOK_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Swap:
    """This model shall decide from now on."""

    model: Model


@dataclass(frozen=True, slots=True)
class Shadowed:
    """This model shall decide beside the other, without effect; none: no longer."""

    model: Model | None
    comparison: Comparison | None


class Learning:
    """A thread with a connection of its own to the journal; what it wants it says by `word`, to be asked for."""

    def __init__(self, state: StateDirectory, settings: Settings, *, run: str) -> None:
        self._state, self.settings, self._run = state, settings, run
        self._words: deque[Swap | Shadowed | Notice] = deque()
        self._deciding = ""
        self._stopped = Event()
        self._thread = Thread(target=self._work, name="learning", daemon=True)

    def first_model(self) -> Model | None:
        """The champion, if there is one; from now on the registry is watched."""
        with Journal(self._state.journal) as journal:
            model = Registry(self._state.models, journal, run=self._run).load_champion()
        self._deciding = model.name if model else ""
        self._thread.start()
        return model

    def word(self) -> Swap | Shadowed | Notice | None:
        return self._words.popleft() if self._words else None

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(2.0)

    def as_dict(self) -> dict[str, Any]:
        return {}

    def _work(self) -> None:
        while not self._stopped.is_set():
            try:
                with Journal(self._state.journal) as journal:
                    registry = Registry(self._state.models, journal, run=self._run)
                    while not self._stopped.wait(_LOOK_SECONDS):
                        self._look(registry)
            except GemmedError as error:
                log.warning("learning waits", why=str(error))
                time.sleep(_LOOK_SECONDS)

    def _look(self, registry: Registry) -> None:
        champion = registry.champion()
        if champion is not None and champion.name != self._deciding:
            model = registry.load_champion()
            if model is not None and model.name != self._deciding:
                self._deciding = model.name
                self._words.append(Swap(model))
