"""Which model decides, how that changes, and what is left when files are damaged."""

from __future__ import annotations

import json
import shutil
import sqlite3
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from pipeline.cli.commands.models import diff_models, list_models, promote_model, roll_back, show_model
from pipeline.core.errors import ModelError, UsageError
from pipeline.core.events import NoticeKind
from pipeline.model.model import Model, Refusal
from pipeline.retraining.registry import ModelOrigin, ModelStatus, Registry
from pipeline.storage.journal import Journal


@pytest.fixture
def journal(tmp_path):
    with Journal(tmp_path / "journal.sqlite") as journal:
        yield journal


@pytest.fixture
def registry(tmp_path, journal) -> Registry:
    return Registry(tmp_path / "models", journal, run="a run")


@pytest.fixture
def add(registry, model):
    """Models that differ in their seed."""
    loaded = Model.load(model)

    def added(seed: int, status: ModelStatus = ModelStatus.CHALLENGER, **facts):
        other = replace(loaded, notes=loaded.notes | {"seed": seed})
        return registry.add(other, origin=ModelOrigin.RETRAINED, status=status, why="a test", facts=facts)

    return added


def statuses(registry: Registry) -> dict[str, ModelStatus]:
    return {one.name: one.status for one in registry.all()}


def told(journal: Journal) -> list[tuple[str, str]]:
    return [(event.type, event.body["model"]) for event in journal.events()]


def test_a_model_is_named_by_its_content_and_added_once(registry, add):
    """Again, it stays what it is now."""
    first = add(1)
    assert registry.load(first.name).name == first.name
    assert registry.load(first.name).identity == first.identity
    registry.promote(first.name, who="me", why="it is the first")
    assert add(1, ModelStatus.REFUSED).status is ModelStatus.CHAMPION
    assert [path.name for path in registry.directory.iterdir()] == [first.name]


def test_there_is_one_champion(registry, add, journal):
    """Whoever is promoted replaces it; each change is an event."""
    a, b = add(1), add(2)
    assert registry.champion() is None
    registry.promote(a.name, who="me", why="why not")
    registry.promote(b.name, who="gemmed", why="it passed")
    assert statuses(registry) == {a.name: ModelStatus.RETIRED, b.name: ModelStatus.CHAMPION}
    assert told(journal) == [("model_promoted", a.name), ("model_promoted", b.name)]
    assert registry.champion().why == "gemmed: it passed"
    with pytest.raises(UsageError, match="is the champion already"):
        registry.promote(b.name, who="me", why="again")


def test_a_change_and_its_event_are_one(registry, add, journal, tmp_path):
    """If the event cannot be written, the champion stays."""
    a, b = add(1), add(2)
    registry.promote(a.name, who="me", why="")
    with sqlite3.connect(tmp_path / "journal.sqlite") as other:
        other.execute("CREATE TRIGGER no BEFORE INSERT ON events BEGIN SELECT RAISE(ABORT, 'full'); END")
    other.close()
    with pytest.raises(Exception, match="full"):
        registry.promote(b.name, who="me", why="")
    assert registry.champion().name == a.name


def test_rollback_goes_back_step_by_step(registry, add, journal):
    """Not back and forth between the last two."""
    a, b, c = (add(seed) for seed in (1, 2, 3))
    for one in (a, b, c):
        registry.promote(one.name, who="me", why="")
    assert registry.rollback(who="me", why="noise").name == b.name
    assert registry.rollback(who="me", why="noise").name == a.name
    assert statuses(registry) == {
        a.name: ModelStatus.CHAMPION,
        b.name: ModelStatus.RETIRED,
        c.name: ModelStatus.RETIRED,
    }
    assert told(journal)[-1] == ("model_rolled_back", a.name)
    with pytest.raises(UsageError, match=f"no champion came before {a.name}"):
        registry.rollback(who="me", why="more")


def test_a_model_that_was_rolled_back_does_not_come_back_by_itself(registry, add):
    """The same labels give the same model, and it is known."""
    a, b = add(1), add(2)
    registry.promote(a.name, who="me", why="")
    registry.promote(b.name, who="gemmed", why="it passed")
    registry.rollback(who="me", why="it was wrong")
    assert add(2).status is ModelStatus.RETIRED
    assert registry.challenger() is None


def test_a_damaged_champion_gives_way_to_the_one_before(registry, add, journal):
    """Told once, with the reason; if none is left, nobody decides."""
    a, b = add(1), add(2)
    registry.promote(a.name, who="me", why="")
    registry.promote(b.name, who="me", why="")
    (registry.path(b.name) / "arrays.npz").write_bytes(b"damaged")
    loaded = registry.load_champion()
    assert loaded is not None
    assert loaded.name == a.name
    assert statuses(registry) == {a.name: ModelStatus.CHAMPION, b.name: ModelStatus.UNUSABLE}
    (event,) = journal.events(types=["model_unusable"])
    assert (event.body["model"], event.body["instead"]) == (b.name, a.name)
    assert "SHA-256 differs" in event.body["why"]
    shutil.rmtree(registry.path(a.name))
    assert registry.load_champion() is None
    assert registry.champion() is None


def test_a_damaged_model_that_is_learned_again_is_whole_again(registry, add):
    """The same labels give the same model; its files and its row are renewed."""
    a = add(1)
    registry.promote(a.name, who="me", why="")
    (registry.path(a.name) / "arrays.npz").write_bytes(b"damaged")
    assert registry.load_champion() is None
    assert add(1).status is ModelStatus.CHALLENGER
    assert registry.load(a.name).identity == a.identity


def test_a_damaged_model_is_not_promoted(registry, add):
    """The champion stays."""
    a, b = add(1), add(2)
    registry.promote(a.name, who="me", why="")
    (registry.path(b.name) / "model.json").unlink()
    with pytest.raises(ModelError, match="cannot be read"):
        registry.promote(b.name, who="me", why="")
    assert registry.champion().name == a.name


def test_what_training_refused_is_stored_by_place(registry, add, journal):
    """Recording, first sample, sensor from 1, reason: as many as the model says."""
    name = add(1).name
    memory = registry.load(name).memory
    refused = (memory.refusal != Refusal.NONE) & (memory.refusal != Refusal.ABSENT)
    rows = journal.rows("SELECT * FROM refusals WHERE model = ?", (name,))
    assert len(rows) == refused.sum()
    reasons = {reason.told for reason in Refusal}
    assert all(row["why"] in reasons and 1 <= row["sensor"] <= 4 and row["believed"] <= 0.5 for row in rows)


def test_old_models_go_but_never_who_decides_did_before_or_may_next(registry, add):
    """Their rows stay, and say what they were."""
    models = [add(seed, ModelStatus.REFUSED) for seed in range(6)]
    registry.promote(models[0].name, who="me", why="")
    registry.promote(models[1].name, who="me", why="")
    challenger = add(9)
    assert set(registry.prune(keep=1)) == {one.name for one in models[2:5]}
    left = {path.name for path in registry.directory.iterdir()}
    assert left == {models[0].name, models[1].name, models[5].name, challenger.name}
    assert len(registry.all()) == 7


def test_what_a_kill_left_is_cleared_away(registry, add):
    """Directories that no row knows: half a model, and one that was never listed."""
    kept = add(1)
    (registry.directory / ".77.partial").mkdir()
    shutil.copytree(registry.path(kept.name), registry.directory / "0123456789ab")
    registry.clean()
    assert [path.name for path in registry.directory.iterdir()] == [kept.name]


def test_a_refused_challenger_is_told_with_its_reasons(registry, add, journal):
    """Such as after a shadow run."""
    one = add(1)
    registry.refuse(one.name, why="it refuses sensor 2", facts={"shadow": {"passed": False}})
    assert registry.named(one.name).status is ModelStatus.REFUSED
    assert registry.named(one.name).facts["shadow"] == {"passed": False}
    assert told(journal) == [("challenger_refused", one.name)]
    assert add(2, ModelStatus.REFUSED).status is ModelStatus.REFUSED
    assert told(journal)[1][0] == "challenger_refused"


def test_an_unknown_name_is_met_with_the_nearest(registry, add):
    """The beginning of a name is enough, if there is only one."""
    name = add(1).name
    assert registry.named(name[:5]).name == name
    wrong = name[:-1] + ("0" if name[-1] != "0" else "1")
    with pytest.raises(UsageError, match=f"there is no model '{wrong}'; did you mean {name}"):
        registry.named(wrong)


VERDICT = {
    "passed": False,
    "reasons": ["its score is 0.100 below the champion's on 9 passages, more than 0.01"],
    "compared": {
        "passages": 9,
        "champion": {"value": 0.9, "low": 0.8, "high": 1.0},
        "challenger": {"value": 0.8, "low": 0.7, "high": 0.9},
        "difference": {"value": -0.1, "low": -0.2, "high": 0.0},
        "p_worse": 0.25,
    },
}


def shown(command, *arguments, **options) -> str:
    console = Console(file=StringIO(), width=200)
    command(*arguments, console, **options)
    return console.file.getvalue()


def test_models_as_a_user_sees_them(registry, add, tmp_path):
    """Listed, shown, compared, promoted and rolled back."""
    assert "no model yet" in shown(list_models, tmp_path)
    a, b = add(1), add(2, ModelStatus.REFUSED, gate=VERDICT)
    shown(promote_model, tmp_path, a.name, who="me", why="the first")
    listed = shown(list_models, tmp_path)
    assert a.name in listed
    assert "champion" in listed
    assert "below the champion's on 9" in " ".join(listed.split())
    detail = shown(show_model, tmp_path, b.name[:6])
    assert "refused since" in detail
    assert "difference -10.0 (-20.0 to 0.0) on 9 passages, p = 0.250" in detail
    assert "does not fit" in detail
    compared = shown(diff_models, tmp_path, a.name, b.name)
    assert "sensor 4 contamination %" in compared
    assert "100.0% the same" in compared
    assert "is champion; gemmed run" in shown(promote_model, tmp_path, b.name, who="me", why="it is better here")
    assert registry.champion().name == b.name
    assert "is champion again" in shown(roll_back, tmp_path, who="me", why="it was not")
    assert registry.champion().name == a.name


def test_an_operator_asks_and_the_daemon_does(registry, add, journal, tmp_path):
    """The journal tells the two apart."""
    shown(promote_model, tmp_path, add(1).name, who="me", why="the first")
    (event,) = journal.events(types=[NoticeKind.PROMOTION_ASKED])
    assert json.loads(json.dumps(event.body))["who"] == "me"
