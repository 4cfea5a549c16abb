"""What the API tells of models, and how it lets another one decide; of a state directory without a daemon."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from pipeline.model.model import Model, Refusal
from pipeline.retraining.registry import ModelOrigin, ModelStatus, Registry
from pipeline.storage.journal import Journal
from tests.retraining.test_gate import verdict
from tests.web.served import Served, served


@pytest.fixture(scope="module")
def server(tmp_path_factory, model, other_models) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("models")) as made:
        made.state.create()
        with Journal(made.state.journal) as journal:
            registry = Registry(made.state.models, journal)
            first = registry.add(
                Model.load(model), origin=ModelOrigin.GIVEN, status=ModelStatus.CHALLENGER, why="given"
            )
            registry.promote(first.name, who="test", why="the first")
            registry.add(
                Model.load(other_models[0]),
                origin=ModelOrigin.RETRAINED,
                status=ModelStatus.REFUSED,
                why="worse",
                facts={"gate": verdict([8] * 12, [9] * 12)},
            )
            removed = registry.add(
                Model.load(other_models[1]), origin=ModelOrigin.RETRAINED, status=ModelStatus.RETIRED, why="old"
            )
            for file in registry.path(removed.name).iterdir():
                file.unlink()
            registry.path(removed.name).rmdir()
        yield made


@pytest.fixture(scope="module")
def names(server) -> dict[str, str]:
    """By what they were at first."""
    return {one["status"]: one["name"] for one in server.ask("/api/v1/models")[1]["models"]}


def test_models_are_listed_with_who_decides(server, names, model):
    _, found = server.ask("/api/v1/models")
    assert found["champion"] == names["champion"] == Model.load(model).name
    assert (found["deciding"], found["before"], len(found["models"])) == (None, None, 3)
    stored = {one["name"]: one["stored"] for one in found["models"]}
    assert stored == {names["champion"]: True, names["refused"]: True, names["retired"]: False}


def test_the_gate_is_told_criterion_by_criterion(server, names):
    _, found = server.ask(f"/api/v1/models/{names['refused']}")
    assert found["passed"] is False
    assert [one["passed"] for one in found["criteria"]] == [True, True, True, False, None, False]
    assert found["criteria"][3]["told"].startswith("its score is 0.100 below")
    assert "difference -10.0 (-10.0 to -10.0) on 12 passages" in found["criteria"][3]["told"]
    assert found["most_contamination"] == 0.3


def test_refusals_are_counted_as_they_stand_in_the_model(server, names, model):
    memory = Model.load(model).memory
    truth = {
        (sensor + 1, reason.told): n
        for sensor in range(memory.refusal.shape[1])
        for reason in Refusal
        if reason not in (Refusal.NONE, Refusal.ABSENT) and (n := int(np.sum(memory.refusal[:, sensor] == reason)))
    }
    _, found = server.ask(f"/api/v1/models/{names['champion']}")
    assert {(one["sensor"], one["why"]): one["segments"] for one in found["refused"]} == truth
    assert truth


def test_refusals_come_page_by_page_each_once(server, names):
    path = f"/api/v1/models/{names['champion']}/refusals"
    _, whole = server.ask(f"{path}?most=200")
    assert not whole["more"]
    paged, after, more = [], 0, True
    while more:
        _, page = server.ask(f"{path}?most=3&after={after}")
        paged, after, more = paged + page["refusals"], page["last"], page["more"]
    assert paged == whole["refusals"]
    sensor = paged[0]["sensor"]
    _, own = server.ask(f"{path}?most=200&sensor={sensor}")
    assert own["refusals"] == [one for one in paged if one["sensor"] == sensor]


def test_the_sound_of_a_refusal_is_offered_as_long_as_it_is_kept(server, names):
    path = f"/api/v1/models/{names['champion']}/refusals?most=1"
    (one,) = server.ask(path)[1]["refusals"]
    assert (one["sound"], "heard elsewhere" in one["why_silent"]) == (None, True)
    length = Model.load(server.state.models / names["champion"]).grid.segment
    with Journal(server.state.journal) as journal:
        heard = (one["recording"], "2026-05-01T00:00:00+00:00")
        journal.execute("INSERT INTO recordings VALUES (?, 'run', 4000, 4, '{}', ?, 99999999)", heard)
        piece = (one["recording"], one["start_sample"], one["start_sample"] + length)
        journal.execute("INSERT INTO pieces VALUES (?, ?, ?, '[]', 'piece.flac', 1, '', NULL, NULL)", piece)
        kept = server.ask(path)[1]["refusals"][0]
        journal.execute("UPDATE pieces SET file = NULL")
        removed = server.ask(path)[1]["refusals"][0]
        journal.execute("DELETE FROM recordings")
    assert kept["sound"].endswith(f"/sound?sensor={one['sensor']}")
    assert kept["why_silent"] is None
    assert (removed["sound"], "make room" in removed["why_silent"]) == (None, True)


def test_refusals_of_a_model_whose_files_are_gone_stay_known(server, names):
    _, found = server.ask(f"/api/v1/models/{names['retired']}/refusals?most=1")
    assert "keep_models" in found["refusals"][0]["why_silent"]


def test_two_models_stand_beside_each_other(server, names):
    _, found = server.ask(f"/api/v1/models/{names['champion']}/diff/{names['refused']}")
    rows = {one["what"]: one for one in found["rows"]}
    assert rows["is"]["values"] == ["champion", "refused"]
    assert not rows["is"]["same"]
    assert rows["segments"]["same"]
    assert "has learned from nothing that the other has not" in found["learned_apart"][0]


def test_promotion_and_rollback_change_the_champion_and_tell_who_and_why(server, names):
    code, promoted = server.ask(f"/api/v1/models/{names['refused']}/promote", {"why": "I know better"})
    assert (code, promoted["status"]) == (200, "champion")
    assert promoted["why"].endswith(": I know better")
    assert server.ask("/api/v1/models")[1]["before"] == names["champion"]
    code, again = server.ask("/api/v1/models/rollback", {"why": "I did not"})
    assert (code, again["name"]) == (200, names["champion"])
    with Journal(server.state.journal, read_only=True) as journal:
        told = list(journal.events(types=["promotion_asked", "model_rolled_back"]))
    assert [(one.body["model"], one.body["why"]) for one in told] == [
        (names["refused"], "I know better"),
        (names["champion"], "I did not"),
    ]
    assert all(one.body["who"] for one in told)


def test_what_cannot_be_done_is_refused_with_the_cure(server, names):
    assert server.ask("/api/v1/models/none")[0] == 404
    assert server.ask("/api/v1/models/none/promote", {"why": "x"})[0] == 404
    assert server.ask(f"/api/v1/models/{names['champion'][:5]}")[0] == 404
    code, answer = server.ask(f"/api/v1/models/{names['champion']}/promote", {"why": "x"})
    assert (code, "champion already" in answer["error"]) == (400, True)
    for path, body in [
        (f"/api/v1/models/{names['retired']}/promote", {"why": "x"}),
        (f"/api/v1/models/{names['champion']}/diff/{names['retired']}", None),
    ]:
        code, answer = server.ask(path, body)
        assert (code, "keep_models" in answer["error"]) == (400, True)
    for body in ({}, {"why": ""}, {"why": "x" * 501}):
        assert server.ask(f"/api/v1/models/{names['refused']}/promote", body)[0] == 422


def test_a_model_for_another_array_is_not_promoted(server, tmp_path, model):
    """The daemon would refuse it, and then nobody decides."""
    first = Model.load(model)
    foreign = replace(first, grid=replace(first.grid, rate_hz=2 * first.grid.rate_hz)).save(tmp_path / "foreign")
    with Journal(server.state.journal) as journal:
        registry = Registry(server.state.models, journal)
        name = registry.add(foreign, origin=ModelOrigin.GIVEN, status=ModelStatus.RETIRED, why="x").name
    code, answer = server.ask(f"/api/v1/models/{name}/promote", {"why": "x"})
    assert (code, "8000 Hz" in answer["error"]) == (400, True)
