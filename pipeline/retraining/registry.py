"""Which models there are, which one decides, and how that came about.

    models/NAME/     the model itself, named by the first digits of its identity
    journal.sqlite   its row: where it comes from, what it is now, since when and why

The champion of the table is the model that should decide. Whoever changes that writes the change and its event in one
step; a daemon that runs takes it up between two segments.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.core.errors import ModelError, UsageError
from pipeline.core.events import NoticeKind
from pipeline.model.model import Model, Refusal
from pipeline.storage.journal import Journal, JournalEntry, utc
from pipeline.storage.model_table import ModelRow, RefusalRow, newest_models, set_facts, set_status, store_model
from pipeline.training.labeled_spans import recording_of

_REPLACED = "replaced"
"""Among the facts of a model that was ever champion: who was it before."""
_MOST_DOUBTED = 50


class ModelStatus(StrEnum):
    """What a model is now."""

    CHAMPION = "champion"  # it decides
    CHALLENGER = "challenger"  # it passed the gate and may become champion
    REFUSED = "refused"  # it did not
    RETIRED = "retired"  # another one decides
    UNUSABLE = "unusable"  # its files are damaged


class ModelOrigin(StrEnum):
    """Where a model comes from."""

    STARTER = "starter"
    UNLABELLED = "unlabelled"
    RETRAINED = "retrained"
    GIVEN = "given"


@dataclass(frozen=True, slots=True)
class Registered:
    """A model's row."""

    name: str
    identity: str
    time: str
    origin: ModelOrigin
    parent: str | None
    status: ModelStatus
    since: str
    why: str
    facts: dict[str, Any]


class Registry:
    """The models of one state directory."""

    def __init__(self, directory: Path, journal: Journal, *, run: str = "") -> None:
        self.directory, self._journal, self._run = directory, journal, run

    def all(self) -> list[Registered]:
        """The newest first."""
        return [_registered(row) for row in newest_models(self._journal)]

    def named(self, name: str) -> Registered:
        """By its name, or by the first digits of it if there are no others."""
        known = self.all()
        found = [one for one in known if one.name == name] or [one for one in known if one.name.startswith(name)]
        if len(found) == 1:
            return found[0]
        if found:
            raise UsageError(f"{name!r} begins {len(found)} names of models; write more digits")
        likely = get_close_matches(name, [one.name for one in known], n=1, cutoff=0.0)
        hint = f"did you mean {likely[0]}? " if likely else ""
        raise UsageError(f"there is no model {name!r}; {hint}gemmed models list names them all")

    def champion(self) -> Registered | None:
        return self._with_status(ModelStatus.CHAMPION)

    def challenger(self) -> Registered | None:
        """The newest one."""
        return self._with_status(ModelStatus.CHALLENGER)

    def _with_status(self, status: ModelStatus) -> Registered | None:
        return next((one for one in self.all() if one.status is status), None)

    def path(self, name: str) -> Path:
        return self.directory / name

    def load(self, name: str) -> Model:
        return Model.load(self.path(name))

    def load_champion(self) -> Model | None:
        """The model that should decide; one that is damaged is told and gives way to the one before it."""
        while (champion := self.champion()) is not None:
            try:
                return self.load(champion.name)
            except ModelError as error:
                self._give_way(champion, str(error))
        return None

    def _give_way(self, damaged: Registered, why: str) -> None:
        before = self.predecessor(damaged)
        with self._journal.transaction():
            self._set(damaged.name, ModelStatus.UNUSABLE, why)
            if before is not None:
                self._set(before.name, ModelStatus.CHAMPION, f"{damaged.name} cannot be used")
            instead = before.name if before else None
            self._tell(NoticeKind.MODEL_UNUSABLE, model=damaged.name, why=why, instead=instead)

    def predecessor(self, model: Registered) -> Registered | None:
        """Who decided before it and still could."""
        by_name, seen = {one.name: one for one in self.all()}, {model.name}
        before = by_name.get(model.facts.get(_REPLACED, ""))
        while before is not None and before.name not in seen:
            if before.status is not ModelStatus.UNUSABLE and self.path(before.name).exists():
                return before
            seen.add(before.name)
            before = by_name.get(before.facts.get(_REPLACED, ""))
        return None

    def add(
        self,
        model: Model,
        *,
        origin: ModelOrigin,
        status: ModelStatus,
        why: str,
        facts: Mapping[str, Any] | None = None,
        told: NoticeKind | None = None,
    ) -> Registered:
        """Store a model, its row, and what it did not learn from; one with the same content stays what it is.

        A refusal is always told, all else if asked for.
        """
        stored = self._store(model)
        known_as = next((one for one in self.all() if one.name == stored.name), None)
        # What was damaged is whole again.
        if known_as is not None and known_as.status is not ModelStatus.UNUSABLE:
            return known_as
        with self._journal.transaction():
            champion, now, known = self.champion(), utc(datetime.now(UTC)), _facts(model) | dict(facts or {})
            parent = champion.name if champion else None
            row = ModelRow(stored.name, stored.identity, now, origin, parent, status, now, why, _json(known))
            store_model(self._journal, row, _refusals(model, stored.name))
            if told is not None:
                self._tell(told, model=stored.name, origin=origin, status=status, why=why, **known)
            if status is ModelStatus.REFUSED:
                self._tell(NoticeKind.CHALLENGER_REFUSED, model=stored.name, why=why)
        return self.named(stored.name)

    def _store(self, model: Model) -> Model:
        """In a directory that is named by its content, which is known only once it is written."""
        self.directory.mkdir(parents=True, exist_ok=True)
        fresh = self.directory / f".{os.getpid()}.partial"
        shutil.rmtree(fresh, ignore_errors=True)
        stored = model.save(fresh)
        if self._is_whole(stored.name):
            shutil.rmtree(fresh)
        else:
            shutil.rmtree(self.path(stored.name), ignore_errors=True)
            fresh.rename(self.path(stored.name))
        return stored

    def _is_whole(self, name: str) -> bool:
        try:
            self.load(name)
        except ModelError:
            return False
        return True

    def promote(self, name: str, *, who: str, why: str, told: NoticeKind = NoticeKind.MODEL_PROMOTED) -> Registered:
        """Let a model decide from now on; it must load."""
        new = self.named(name)
        self.load(new.name)
        with self._journal.transaction():
            before = self.champion()
            if before is not None and before.name == new.name:
                raise UsageError(f"{new.name} is the champion already; gemmed models list shows the others")
            if before is not None:
                self._set(before.name, ModelStatus.RETIRED, f"{new.name} decides")
                self._note(new, {_REPLACED: before.name})
            self._set(new.name, ModelStatus.CHAMPION, f"{who}: {why}")
            self._tell(told, model=new.name, before=before.name if before else None, who=who, why=why)
        return self.named(new.name)

    def rollback(self, *, who: str, why: str) -> Registered:
        """Let the champion before the present one decide again."""
        with self._journal.transaction():
            champion = self.champion()
            if champion is None:
                raise UsageError("there is no champion to roll back from; gemmed models promote NAME makes one")
            before = self.predecessor(champion)
            if before is None:
                raise UsageError(f"no champion came before {champion.name}; gemmed models promote NAME chooses another")
            self.load(before.name)
            self._set(champion.name, ModelStatus.RETIRED, f"rolled back by {who}: {why}")
            self._set(before.name, ModelStatus.CHAMPION, f"{who}: {why}")
            self._tell(NoticeKind.MODEL_ROLLED_BACK, model=before.name, before=champion.name, who=who, why=why)
        return self.named(before.name)

    def refuse(self, name: str, *, why: str, facts: Mapping[str, Any]) -> None:
        """A challenger that did not keep what it promised, such as in its shadow run."""
        refused = self.named(name)
        with self._journal.transaction():
            self._set(name, ModelStatus.REFUSED, why)
            self._note(refused, facts)
            self._tell(NoticeKind.CHALLENGER_REFUSED, model=name, why=why, **facts)

    def prune(self, keep: int) -> list[str]:
        """Remove directories of old models beyond the newest so many; never what decides, did before, or may next."""
        champion = self.champion()
        before = self.predecessor(champion) if champion else None
        needed = {one.name for one in (champion, before) if one is not None}
        old = [one for one in self.all() if one.name not in needed and one.status is not ModelStatus.CHALLENGER]
        removed = [one.name for one in old[keep:] if self.path(one.name).exists()]
        for name in removed:
            shutil.rmtree(self.path(name))
        return removed

    def clean(self) -> None:
        """Remove what a kill left half-done. Only for whoever is the only one to add models."""
        known = {one.name for one in self.all()}
        for path in self.directory.glob("*") if self.directory.exists() else ():
            if path.name not in known and path.is_dir():
                shutil.rmtree(path)

    def _set(self, name: str, status: ModelStatus, why: str) -> None:
        set_status(self._journal, name, status, since=utc(datetime.now(UTC)), why=why)

    def _note(self, model: Registered, facts: Mapping[str, Any]) -> None:
        set_facts(self._journal, model.name, _json(model.facts | dict(facts)))

    def _tell(self, kind: NoticeKind, **details: Any) -> None:
        self._journal.add([JournalEntry(self._run, {"type": kind.value, **details})])


def _facts(model: Model) -> dict[str, Any]:
    """What a list of models shows, so that it need not load them."""
    notes, validation = model.notes, model.notes.get("validation", {})
    return {
        "classes": list(model.classes),
        "segments": notes["segments"],
        "passages": len(notes["recordings"]),
        "contamination": notes["contamination"],
        "refused": notes["refused"],
        "trained": [machine is not None for machine in model.machines],
        "wrong_labels": notes["wrong_labels"],
        "doubted": notes["doubted_recordings"][:_MOST_DOUBTED],
        "accuracy": validation.get("accuracy"),
        "background": _background(model),
    }


def _background(model: Model) -> dict[str, Any] | None:
    """Hours of background that presence was learned from, and the passages it would have started by threshold."""
    if model.presence is None:
        return None
    return {"hours": round(float(model.presence.hours[0]), 3), "starts": model.presence.counts.tolist()}


def _refusals(model: Model, name: str) -> Iterator[RefusalRow]:
    """What a model of this name did not learn from."""
    memory, notes = model.memory, model.notes["recordings"]
    believed = memory.delivered * memory.label_right[:, None]
    for n, s in np.argwhere((memory.refusal != Refusal.NONE) & (memory.refusal != Refusal.ABSENT)).tolist():
        recording = recording_of(notes[memory.recording[n]]["recording"])
        why = Refusal(memory.refusal[n, s]).told
        yield RefusalRow(name, recording, int(memory.start[n]), s + 1, why, float(believed[n, s]))


def _json(facts: Mapping[str, Any]) -> str:
    return json.dumps(dict(facts), allow_nan=False)


def _registered(row: ModelRow) -> Registered:
    parsed = {"origin": ModelOrigin(row.origin), "status": ModelStatus(row.status), "facts": json.loads(row.facts)}
    return Registered(**asdict(row) | parsed)
