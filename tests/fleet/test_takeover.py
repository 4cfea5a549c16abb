"""Whoever takes an array over goes on where its log of decisions ends, whatever became of the one before."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from pipeline.core.choices import Choices
from pipeline.core.events import Block, RecordingEnded, RecordingStarted, SourceTrouble
from pipeline.fleet.array_state import Assignment, Work, taken_up
from pipeline.fleet.lease import LeaseLost
from pipeline.fleet.model_assignment import ModelAssignment
from pipeline.fleet.model_cache import ModelStore
from pipeline.fleet.topology import Places
from pipeline.fleet.worker import _Hosting
from pipeline.sources.reorder import Sorting, portions, sorted_facts
from pipeline.transport.nats import Broker, Message
from pipeline.transport.wire import Parcel, packed
from tests.fleet.broker import Nats

RATE_HZ, N_MESSAGES = 4000, 120
LENGTH = RATE_HZ // 4
STARTED = RecordingStarted("one", RATE_HZ, ("1", "2", "3", "4"), None)


@cache
def messages(started: RecordingStarted = STARTED) -> list[bytes]:
    """A recording of half a minute, a quarter of a second in each message."""
    sound = np.random.default_rng(1).integers(-3000, 3000, (N_MESSAGES, 4, LENGTH)) / 32768
    blocks = [Block(n * LENGTH, one, np.ones(4, np.bool_)) for n, one in enumerate(sound.astype(np.float32))]
    return [packed(Parcel(started, number, fact)) for number, fact in enumerate([started, *blocks])]


class Scene:
    """An array whose sound is in the log, and those who decide for it, one after the other."""

    def __init__(self, nats: Nats, broker: Broker, model, others, cache) -> None:
        self.broker, self.places = broker, Places()
        self.places.make(broker)
        self.models = ModelStore(self.places.models(broker), cache)
        self.assignment = Assignment(array="north", ticket="", model=self.models.add(model).name,
                                     access=nats.access(), places=self.places)  # fmt: skip
        self.other = self.models.load(self.models.add(others[0]).name)
        self.publish(STARTED)

    def publish(self, started: RecordingStarted) -> int:
        """A recording; the place of its last message."""
        return [self._send(data, f"{started.recording} {number}") for number, data in enumerate(messages(started))][-1]

    def end(self, started: RecordingStarted) -> int:
        """Its end; the place of that message."""
        ended = RecordingEnded(started.recording, N_MESSAGES * LENGTH)
        return self._send(packed(Parcel(started, N_MESSAGES + 1, ended)), f"end of {started.recording}")

    def _send(self, data: bytes, id: str) -> int:
        log = self.places.sound
        return self.broker.publish(log.subject("north"), data, stream=log.stream, id=id)

    @property
    def checkpoints(self):
        return self.places.checkpoints(self.broker)

    def taken_up(self, **others) -> Work:
        work = taken_up(replace(self.assignment, **others), self.broker, self.checkpoints, self.models)
        work.claim()
        work.keep(self.checkpoints)
        return work

    def hear(self, work: Work, until: int) -> None:
        for message, facts in portions(self.broker, self.places.sound, "north", work.sorting):
            for fact in facts:
                work.hear(fact)
            if message is None or message.sequence >= until:
                return

    def told(self) -> list[dict]:
        stored = self.broker.read(self.places.events_stream, self.places.events("north"), 1).to_the_end()
        return [json.loads(text) for message in stored for text in message.data.splitlines()]


@pytest.fixture
def scene(tmp_path, model, other_models):
    with Nats(tmp_path / "nats") as nats, Broker(nats.access(), name="test") as broker:
        yield Scene(nats, broker, model, other_models, tmp_path / "cache")


def test_one_who_was_away_tells_nothing_behind_a_model_that_another_one_took(scene):
    away = scene.taken_up()
    scene.hear(away, 40)
    away.send()
    away.keep(scene.checkpoints)
    killed = scene.taken_up()
    killed.change(scene.other, ModelAssignment(model=scene.other.name, rollout="r"))
    killed.keep(scene.checkpoints)
    scene.hear(away, 60)
    with pytest.raises(LeaseLost):
        away.send()
    last = scene.taken_up()
    scene.hear(last, 60)
    last.send()
    told = scene.told()
    assert [one["id"] for one in told] == list(range(1, len(told) + 1))
    kinds = [one["type"] for one in told]
    assert kinds.count("model_promoted") == 1
    behind = told[kinds.index("model_promoted") :]
    assert {one["model"] for one in behind if one["type"] == "decision"} == {scene.other.name}


def test_a_chain_that_begins_anew_is_told_behind_what_a_killed_one_told(scene):
    killed = scene.taken_up()
    scene.hear(killed, 40)
    killed.keep(scene.checkpoints)
    scene.hear(killed, 60)
    killed.send()
    before = scene.told()
    work = scene.taken_up(choices=Choices(alpha=0.05))
    scene.hear(work, 80)
    work.send()
    told = scene.told()
    assert [one["id"] for one in told] == list(range(1, len(told) + 1))
    assert told[: len(before)] == before
    assert told[len(before)]["type"] == "chain_restarted"


def test_a_gap_is_told_where_sound_behind_a_checkpoint_is_no_longer_kept(scene):
    killed = scene.taken_up()
    scene.hear(killed, 16)
    killed.keep(scene.checkpoints)
    scene.hear(killed, 32)
    killed.send()
    before = scene.told()
    scene.broker._run(scene.broker._js.purge_stream(scene.places.sound.stream, seq=50))
    work = scene.taken_up()
    scene.hear(work, N_MESSAGES + 1)
    work.send()
    told = scene.told()
    assert [one["id"] for one in told] == list(range(1, len(told) + 1))
    gaps = [(one["start_sample"], one["stop_sample"]) for one in told[len(before) :] if one["type"] == "gap"]
    assert gaps == [(15 * LENGTH, 48 * LENGTH)]


@pytest.mark.parametrize("what", ["array", "front"])
def test_what_comes_behind_sound_that_was_removed_is_told(scene, what):
    """Of a checkpoint between two recordings: another one seems to follow, but is not what was told behind it."""
    killed = scene.taken_up()
    scene.hear(killed, scene.end(STARTED))
    killed.keep(scene.checkpoints)
    second, third = replace(STARTED, recording="two"), replace(STARTED, recording="three")
    scene.publish(second)
    scene.hear(killed, scene.end(second))
    killed.send()
    before, log = scene.told(), scene.places.sound
    if what == "array":
        scene.broker.purge(log.stream, log.subject("north"))
    else:
        scene.broker._run(scene.broker._js.purge_stream(log.stream, keep=1))
    last = scene.publish(third)
    work = scene.taken_up()
    scene.hear(work, last)
    work.send()
    told = scene.told()
    assert told[: len(before)] == before
    assert [one["id"] for one in told] == list(range(1, len(told) + 1))
    decided = [one for one in told[len(before) :] if one["type"] == "decision"]
    assert {one["recording"] for one in decided} == {"three"}
    assert len(decided) == sum(one["type"] == "decision" and one["recording"] == "two" for one in before)


def test_a_chain_that_begins_anew_between_recordings_does_not_end_the_last_one_again(scene):
    killed = scene.taken_up()
    scene.hear(killed, scene.end(STARTED))
    killed.send()
    killed.keep(scene.checkpoints)
    second = replace(STARTED, recording="two")
    last = scene.publish(second)
    work = scene.taken_up(choices=Choices(alpha=0.05))
    scene.hear(work, last)
    work.send()
    finished = [(one["recording"], one["samples"]) for one in scene.told() if one["type"] == "recording_finished"]
    assert finished == [("one", N_MESSAGES * LENGTH)]


def test_another_model_waits_until_all_that_was_told_is_repeated(scene):
    """It would decide about what was decided, and nobody would be told of it."""
    killed = scene.taken_up()
    scene.hear(killed, 40)
    killed.send()
    before = scene.told()
    scene.places.wanted(scene.broker).put("north", ModelAssignment(model=scene.other.name, rollout="r").as_bytes())
    hosting = _Hosting(scene.assignment, scene.broker, lambda: False, "next")
    hosting._work = work = scene.taken_up()
    scene.hear(work, 20)
    hosting._look_for_another_model()
    assert work.model == scene.assignment.model
    scene.hear(work, 40)
    hosting._look_for_another_model()
    assert work.model == scene.other.name
    scene.hear(work, 60)
    work.send()
    told = scene.told()
    assert told[: len(before)] == before
    kinds = [one["type"] for one in told[len(before) :]]
    assert kinds[:2] == ["model_changed", "model_promoted"]
    decided = [one["start_sample"] for one in told if one["type"] == "decision"]
    assert decided == sorted(set(decided))


@pytest.mark.parametrize("checkpoints", ["there", "lost"])
def test_what_is_decided_again_is_not_told_again(scene, checkpoints):
    killed = scene.taken_up()
    scene.hear(killed, 16)
    killed.keep(scene.checkpoints)
    scene.hear(killed, 32)
    killed.send()
    if checkpoints == "lost":
        scene.checkpoints.delete("north")
    work = scene.taken_up()
    assert work.is_repeating
    scene.hear(work, 32)
    assert not work.outbox
    assert work.told == killed.told
    assert not work.is_repeating


def test_one_who_is_killed_while_he_repeats_leaves_the_next_one_all_there_is_to_repeat(scene):
    first = scene.taken_up()
    scene.hear(first, 16)
    first.keep(scene.checkpoints)
    scene.hear(first, 48)
    first.send()
    before = scene.told()
    for until in (0, 24, 32):
        killed = scene.taken_up()
        scene.hear(killed, until)
        killed.keep(scene.checkpoints)
        assert killed.is_repeating
    last = scene.taken_up()
    scene.hear(last, 64)
    last.send()
    told = scene.told()
    assert told[: len(before)] == before
    assert [one["id"] for one in told] == list(range(1, len(told) + 1))
    decided = [one["start_sample"] for one in told if one["type"] == "decision"]
    assert decided == sorted(set(decided))


@pytest.mark.parametrize("checkpoints", ["there", "lost"])
def test_what_cannot_be_compared_any_more_is_told_again(scene, checkpoints):
    """Twice is better than never: an array must not decide in silence for as long as it was heard before."""
    killed = scene.taken_up()
    for until in (16, 24, 32):
        scene.hear(killed, until)
        killed.send()
    if checkpoints == "lost":
        scene.checkpoints.delete("north")
    scene.broker._run(scene.broker._js.purge_stream(scene.places.events_stream, keep=1))
    left = scene.told()
    assert left[0]["id"] > 1
    for until in (20, 40):  # the first one is killed before he has told anything
        work = scene.taken_up()
        scene.hear(work, until)
    work.send()
    told = scene.told()
    assert told[: len(left)] == left
    assert [one["id"] for one in told] == list(range(left[0]["id"], told[-1]["id"] + 1))
    assert told[-1]["start_sample"] > left[-1]["start_sample"]


class Killed(Exception):
    """What happens to a process that is killed, as far as a test can do it to itself."""


def test_what_is_told_otherwise_is_told_once_whoever_is_killed_then(scene):
    """That it is not what was told before must be known to the next one before anybody hears of it."""
    first = scene.taken_up()
    scene.hear(first, 16)
    first.keep(scene.checkpoints)
    scene.hear(first, 32)
    first.send()
    before = len(scene.told())
    scene.broker._run(scene.broker._js.purge_stream(scene.places.sound.stream, seq=50))

    def killed_once_something_is_told() -> bool:
        if len(scene.told()) > before:
            raise Killed
        return False

    scene.places.tickets(scene.broker).put("north", b"")
    second = _Hosting(replace(scene.assignment, checkpoint_seconds=1000), scene.broker,
                      killed_once_something_is_told, "second")  # fmt: skip
    assert second._lease.take()
    second._work = scene.taken_up()
    with pytest.raises(Killed):
        second._decide()
    third = scene.taken_up()
    scene.hear(third, N_MESSAGES + 1)
    third.send()
    told = scene.told()
    assert [one["id"] for one in told] == list(range(1, len(told) + 1))
    assert sum(one["type"] == "gap" for one in told) == 1
    decided = [one["start_sample"] for one in told if one["type"] == "decision"]
    assert decided == sorted(set(decided))


def test_other_digits_of_another_machine_are_no_other_events(scene, monkeypatch):
    killed = scene.taken_up()
    scene.hear(killed, 32)
    killed.send()
    before = scene.told()

    def on_another_machine(told):
        match told:
            case dict():
                return {name: on_another_machine(one) for name, one in told.items()}
            case float():
                return told + 1e-6
        return told

    work = scene.taken_up()
    take = work._take
    monkeypatch.setattr(work.lines, "_write", lambda body: take(on_another_machine(body)))
    scene.hear(work, 32)
    assert not work.outbox
    scene.hear(work, 40)
    work.send()
    told = scene.told()
    assert told[: len(before)] == before
    assert len(told) > len(before)


def test_a_log_that_lost_its_end_is_read_from_its_beginning(scene):
    """As the power may leave a broker: what comes now has numbers that were heard before."""
    work = scene.taken_up()
    scene.hear(work, N_MESSAGES + 1)
    work.send()
    work.sorting.skip_to(3 * N_MESSAGES)
    work.keep(scene.checkpoints)
    last = scene.publish(replace(STARTED, recording="two"))
    work = scene.taken_up()
    scene.hear(work, last)
    work.send()
    decided = [(one["recording"], one["start_sample"]) for one in scene.told() if one["type"] == "decision"]
    assert len(decided) == len(set(decided))
    assert {recording for recording, _ in decided} == {"one", "two"}


def test_a_trial_goes_on_with_other_settings(scene):
    """It begins anew, as the chain does; what it is about stays to be told."""
    work = scene.taken_up()
    scene.hear(work, 10)
    work.change(scene.other, ModelAssignment(model=scene.other.name, rollout="r", trial_segments=3))
    work.keep(scene.checkpoints)
    work = scene.taken_up(choices=Choices(alpha=0.05))
    assert work.status()["trial"]
    scene.hear(work, 60)
    verdict = work.verdict()
    assert verdict is not None
    assert verdict["segments"] == 3
    work.end_trial(verdict)
    work.keep(scene.checkpoints)
    assert not scene.taken_up(choices=Choices(alpha=0.02)).status()["trial"]


def test_a_damaged_message_is_told_once_though_it_is_read_again():
    def read(sorting: Sorting, sequence: int) -> list[object]:
        data = b"damaged" if sequence in (5, 8) else messages()[sequence - 1]
        return sorted_facts(Message("", sequence, data, None, {}), sorting)  # type: ignore[arg-type]

    sorting = Sorting()
    told = [fact for sequence in range(1, 11) for fact in read(sorting, sequence)]
    assert sum(isinstance(fact, SourceTrouble) for fact in told) == 2
    again = Sorting.of(json.loads(json.dumps(sorting.state())))
    assert again.resume_at == 6
    assert not [fact for sequence in range(6, 11) for fact in read(again, sequence)]
