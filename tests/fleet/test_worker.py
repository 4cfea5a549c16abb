"""An array decides what a local replay of its sound decides, once, whoever has it and whatever happens on the way."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from pipeline.core.choices import Choices
from pipeline.core.errors import NotFound
from pipeline.core.events import Block, Notice, NoticeKind, RecordingEnded, RecordingStarted
from pipeline.fleet import worker
from pipeline.fleet.array_state import taken_up
from pipeline.fleet.lease import LeaseLost
from pipeline.fleet.model_assignment import ModelAssignment
from pipeline.fleet.model_cache import ModelStore
from pipeline.fleet.purge import forget
from pipeline.fleet.worker import HANDED_OVER, STOPPED
from pipeline.model.model import Model
from pipeline.transport.wire import VERSION, Parcel, packed
from tests.conftest import eventually
from tests.fleet.fleets import without
from tests.fleet.hosted import OF_FLEET_ALONE, Stage
from tests.transport.test_wire import body_of, header_of, with_header


@pytest.fixture
def stage(nats, tmp_path, model):
    made = Stage(nats, tmp_path, model)
    yield made
    made.close()


def test_it_decides_what_a_replay_decides(stage, sound, expected):
    stage.publish("north", sound)
    owner = stage.give("north")
    assert stage.decided("north", len(expected)) == expected
    assert owner.stop().why == STOPPED
    with stage.broker() as broker:
        assert stage.places.leases(broker).keys() == []


def test_it_stops_and_hands_over_long_before_its_lease_ends(nats, tmp_path, model, sound):
    stage = Stage(nats, tmp_path, model, lease_seconds=300.0)
    stage.publish("north", sound[:20])
    first = stage.give("north")
    eventually(lambda: stage.told("north"))
    second = stage.give("north")
    assert first.end().why == HANDED_OVER
    assert second.stop().why == STOPPED
    with stage.broker() as broker:
        assert stage.places.leases(broker).keys() == []


def test_handed_over_in_the_middle_again_and_again(stage, sound, expected):
    """By another ticket, each time when a part of the sound is there."""
    parts = [sound[start : start + 15] for start in range(0, len(sound), 15)]
    assert len(parts) > 3
    before = None
    for part in parts:
        owner = stage.give("north")
        if before is not None:
            assert before.end().why == HANDED_OVER
        stage.publish("north", part)
        last = stage.places.sound.subject("north")
        with stage.broker() as broker:
            sequence = broker.last(stage.places.sound.stream, last).sequence
        stage.until_status("north", lambda status: status.get("sequence") == sequence)  # noqa: B023
        before = owner
    assert stage.decided("north", len(expected)) == expected


def _revision(checkpoints) -> int:
    return getattr(checkpoints.get("north"), "revision", 0)


def test_one_who_does_not_know_of_another_writes_nothing(stage, sound, expected):
    """Two who both believe to have the array: what the second one would tell or keep nobody takes."""
    stage.publish("north", sound[: len(sound) // 2])
    first = stage.give("north")
    eventually(lambda: stage.told("north"), every=0.1)
    with stage.broker() as broker:
        zombie = worker._Hosting(first.assignment, broker, lambda: False, "zombie")
        work = taken_up(first.assignment, broker, zombie._checkpoints, zombie._models)
        before = _revision(zombie._checkpoints)
        # Meanwhile the one with the lease goes on.
        stage.publish("north", sound[len(sound) // 2 :])
        assert stage.decided("north", len(expected)) == expected
        eventually(lambda: _revision(zombie._checkpoints) > before, every=0.1)
        checkpoint = zombie._checkpoints.get("north")
        for parcel in sound:
            work.hear(parcel.fact)
        assert work.outbox
        with pytest.raises(LeaseLost, match="somebody else decides for north"):
            work.send()
        with pytest.raises(LeaseLost, match="somebody else keeps the state of north"):
            work.keep(zombie._checkpoints)
        assert zombie._checkpoints.get("north").revision >= checkpoint.revision
    assert stage.decided("north", len(expected)) == expected


@pytest.mark.parametrize("messages", [1, 3, 6])
def test_the_broker_is_killed_after_so_many_messages(stage, nats, sound, expected, messages):
    """Wherever that is between telling and keeping: after its return all is there, once."""
    stage.publish("north", sound)
    stage.give("north")
    with stage.broker() as broker:
        eventually(lambda: broker.last_sequence(stage.places.events_stream) >= min(messages, 2), every=0.0)
    nats.kill()
    nats.start()
    assert stage.decided("north", len(expected)) == expected


def test_a_state_of_other_settings_begins_anew_and_loses_nothing(stage, sound, expected):
    """Told once; every sample is heard, so each recording is finished with its whole length."""
    half = len(sound) // 4
    stage.publish("north", sound[:half])
    first = stage.give("north")
    stage.until_status("north", lambda status: status.get("sequence") == half)
    first.stop()
    stage.publish("north", sound[half:])
    stage.give("north", choices=Choices(alpha=0.05))
    finished = [event for event in expected if event["type"] == "recording_finished"]
    eventually(
        lambda: sum(event["type"] == "recording_finished" for event in stage.told("north")) >= len(finished), every=0.1
    )
    told = stage.told("north")
    assert [event["id"] for event in told] == list(range(1, len(told) + 1))
    (restarted,) = [event for event in told if event["type"] == "chain_restarted"]
    assert "alpha was 0.01, is 0.05" in restarted["why"]
    assert stage.status("north")["samples_lost"] == 0
    assert [event["recording"] for event in told if event["type"] == "recording_finished"] == [
        event["recording"] for event in finished
    ]


def test_a_damaged_state_is_told_and_concerns_this_array_alone(stage, sound, expected):
    for array in ("north", "south"):
        stage.publish(array, sound)
    with stage.broker() as broker:
        stage.places.checkpoints(broker).put("north", b"GEMMED nonsense" * 9)
    north, _ = stage.give("north"), stage.give("south")
    outcome = north.end()
    assert outcome.failed
    assert stage.status("north")["failed"] == outcome.why
    assert "stored state" in outcome.why
    assert "begin anew without it" in outcome.why
    assert stage.decided("south", len(expected)) == expected
    assert stage.told("north") == []


def test_a_damaged_message_is_told_and_becomes_a_gap(stage, sound, expected):
    """Of what it held; the rest is decided about."""
    place = next(n for n, one in enumerate(sound) if isinstance(one.fact, Block) and n > 3)
    lost = sound[place].fact
    damaged = bytearray(packed(sound[place]))
    damaged[-1] ^= 1
    # The window in which it might still come is 64 messages.
    filler = [
        replace(one, recording=replace(one.recording, recording=f"{one.recording.recording} again"), fact=one.fact)
        for one in sound
    ]
    filler = [
        replace(one, fact=one.recording if isinstance(one.fact, RecordingStarted) else one.fact) for one in filler
    ]
    stage.publish("north", [*sound[:place], bytes(damaged), *sound[place + 1 :], *filler])
    stage.give("north")
    stage.until_status("north", lambda status: status.get("samples_lost", 0) > 0)
    assert stage.status("north")["samples_lost"] == lost.stop - lost.start
    told = stage.told("north")
    (trouble,) = [event for event in told if event["type"] == "source_trouble"]
    assert f"message {place + 1}" in json.dumps(trouble)
    assert "is damaged" in json.dumps(trouble)


def test_a_message_of_another_version_stops_the_array_until_it_is_cured(stage, sound, expected):
    """Nothing is lost meanwhile: what the next one reads, once somebody removed it, is all the rest."""
    place = len(sound) // 2
    message = packed(sound[place])
    other = with_header(header_of(message) | {"version": VERSION + 1}, body_of(message))
    stage.publish("north", [*sound[:place], other])
    outcome = stage.give("north").end()
    assert outcome.failed
    assert f"version {VERSION + 1}, this gemmed knows {VERSION}; use the same gemmed" in outcome.why
    assert stage.status("north")["failed"] == outcome.why
    with stage.broker() as broker:
        broker._run(broker._js.delete_msg(stage.places.sound.stream, place + 1))
    stage.publish("north", sound[place:])
    stage.give("north")
    assert stage.decided("north", len(expected)) == expected


def test_what_was_decided_before_it_failed_is_told(stage, sound, expected):
    """Nobody knows when the array goes on, and whether its sound is still there then."""
    place = len(sound) // 2
    stage.publish("north", [*sound[:place], with_header(header_of(packed(sound[place])) | {"version": VERSION + 1})])
    assert stage.give("north").end().failed
    told = [without(event, OF_FLEET_ALONE) for event in stage.told("north")]
    assert len(told) > 10
    assert told == expected[: len(told)]


def test_a_site_cannot_speak_for_others_by_what_it_says_of_itself(stage, sound, expected):
    """Whoever has stolen it may send notices with any details: what we say of them is not his."""
    lies = {"id": "x", "array": "south", "type": "decision", "recording": "another", "sample": -1, "why": "a lie"}
    notice = Notice(NoticeKind.SOURCE_OPENED, lies, sound[5].fact.start)
    lie = Parcel(sound[0].recording, 5, notice)
    later = [replace(one, number=one.number + 1) for one in sound[5:] if one.recording == sound[0].recording]
    stage.publish("north", [*sound[:5], lie, *later])
    stage.give("north")
    told = eventually(lambda: [event for event in stage.told("north") if event.get("why") == "a lie"], every=0.1)
    own = {"array": "north", "type": "source_opened", "recording": sound[0].recording.recording}
    assert [{name: event[name] for name in own} for event in told] == [own]
    assert isinstance(told[0]["id"], int)
    assert told[0]["sample"] == sound[5].fact.start


def test_a_log_that_was_replaced_is_read_from_its_beginning(stage, sound, expected):
    """What was heard of the old one is not decided about twice."""
    place = len(sound) // 2
    stage.publish("north", sound[:place])
    first = stage.give("north")
    stage.until_status("north", lambda status: status.get("sequence") == place)
    first.stop()
    with stage.broker() as broker:
        broker._run(broker._js.delete_stream(stage.places.sound.stream))
        stage.places.make(broker)
    stage.give("north")
    with stage.broker() as broker:
        eventually(lambda: stage.places.leases(broker).keys() == ["north"], every=0.05)
    stage.publish("north", sound[place - 2 :])
    assert stage.decided("north", len(expected)) == expected


@pytest.mark.parametrize("what", ["rate", "sensors"])
def test_sound_that_the_model_cannot_hear_fails_this_array_alone(stage, sound, expected, what):
    started = sound[0].recording
    if what == "rate":
        started = replace(started, rate_hz=8000)
        rows = 4
    else:
        started, rows = replace(started, sensors=("1", "2", "3")), 3
    noise = np.zeros((rows, 4000), np.float32)
    strange = [
        replace(sound[0], recording=started, fact=started),
        replace(sound[1], recording=started, number=1, fact=Block(0, noise, np.ones(rows, np.bool_))),
    ]
    stage.publish("north", strange)
    stage.publish("south", sound)
    north, _ = stage.give("north"), stage.give("south")
    outcome = north.end()
    assert outcome.failed
    assert stage.status("north")["failed"] == outcome.why
    assert f"north is published with {rows} sensors at {started.rate_hz} Hz, model {stage.model} hears 4" in outcome.why
    assert stage.decided("south", len(expected)) == expected


def known_as(suffix: str, parcels: list[Parcel], rate_hz: int = 4000) -> list[Parcel]:
    """The same samples under other names, perhaps at another rate."""

    def named(started: RecordingStarted) -> RecordingStarted:
        return replace(started, recording=f"{started.recording} {suffix}", rate_hz=rate_hz)

    def fact(one: Parcel) -> object:
        if isinstance(one.fact, RecordingStarted):
            return named(one.fact)
        return (
            replace(one.fact, recording=f"{one.fact.recording} {suffix}")
            if isinstance(one.fact, RecordingEnded)
            else one.fact
        )

    return [replace(one, recording=named(one.recording), fact=fact(one)) for one in parcels]


def at_8000_hz(parcels: list[Parcel]) -> list[Parcel]:
    return known_as("faster", parcels, 8000)


def test_sound_waits_for_a_model_that_hears_it_and_the_old_one_comes_back(stage, sound, expected, model, tmp_path):
    """What is wanted later cures an array that failed; how much waits is told meanwhile."""
    ended = next(n for n, one in enumerate(sound) if isinstance(one.fact, RecordingEnded)) + 1
    faster = at_8000_hz(sound[:ended])
    stage.publish("north", [*sound[:ended], *faster, *sound[ended:]])
    assert stage.give("north").end().failed
    status = stage.status("north")
    assert status["pending"] == len(faster) - 1 + len(sound) - ended
    assert status["lag_seconds"] > 0
    assert status["heard_at"]
    first = Model.load(model)
    replace(first, grid=replace(first.grid, rate_hz=8000)).save(tmp_path / "faster")
    with stage.broker() as broker:
        name = ModelStore(stage.places.models(broker), stage.cache).add(tmp_path / "faster").name
        wanted = ModelAssignment(model=name, rollout=name, trial_segments=10, who="anna", why="faster sound")
        stage.places.wanted(broker).put("north", wanted.as_bytes())
    stage.give("north")
    eventually(lambda: sum(event["type"] == "recording_finished" for event in stage.told("north")) == 3)
    told = stage.told("north")
    assert [event["id"] for event in told] == list(range(1, len(told) + 1))
    promoted = [(event["before"], event["model"], event["who"]) for event in told if event["type"] == "model_promoted"]
    assert promoted == [(stage.model, name, "anna"), (name, stage.model, "gemmed")]
    of_faster = [event for event in told if "faster" in str(event.get("recording"))]
    assert {event["model"] for event in of_faster if event["type"] == "decision"} == {name}
    # Seen too early, while the old one hears, the new model is told to be of no use yet.
    about_models = ("model_promoted", "model_changed", "model_unusable")
    others = [event for event in told if event not in of_faster and event["type"] not in about_models]
    assert [without(event, OF_FLEET_ALONE) for event in others] == expected


def test_every_recording_of_a_message_gets_a_model_that_hears_it(stage, sound, model, tmp_path):
    """The end of one is lost: what was held behind it, of two kinds, comes all at once."""
    first = Model.load(model)
    replace(first, grid=replace(first.grid, rate_hz=8000)).save(tmp_path / "faster")
    with stage.broker() as broker:
        name = ModelStore(stage.places.models(broker), stage.cache).add(tmp_path / "faster").name
        stage.places.wanted(broker).put("north", ModelAssignment(model=name, rollout=name).as_bytes())
    ended = next(n for n, one in enumerate(sound) if isinstance(one.fact, RecordingEnded)) + 1
    faster = at_8000_hz(sound[:5])
    end = Parcel(faster[0].recording, 5, RecordingEnded(faster[0].recording.recording, faster[-1].fact.stop))
    later = [parcel for number in range(3) for parcel in known_as(str(number), sound[ended:])]
    stage.publish("north", [*sound[: ended - 1], *faster, end, *later])
    owner = stage.give("north")
    eventually(lambda: sum(event["type"] == "recording_finished" for event in stage.told("north")) == 5
               or owner.outcome)  # fmt: skip
    assert owner.outcome is None
    promoted = [event["model"] for event in stage.told("north") if event["type"] == "model_promoted"]
    assert promoted == [name, stage.model]


def test_whoever_cannot_take_an_array_up_leaves_what_is_known_of_it(stage, sound):
    stage.publish("north", sound)
    first = stage.give("north")
    known = stage.until_status("north", lambda status: status.get("sequence") == len(sound))
    first.stop()
    assert stage.give("north", choices=Choices(masked=(9,))).end().failed
    status = stage.status("north")
    assert "mask=9 must name sensors from 1 to 4" in status["failed"]
    for name in ("decisions", "sensors", "heard_at", "model", "sequence"):
        assert status[name] == known[name]


def test_sound_that_was_published_by_mistake_is_forgotten_and_the_array_goes_on(stage, sound, expected):
    ended = next(n for n, one in enumerate(sound) if isinstance(one.fact, RecordingEnded)) + 1
    faster, asked = at_8000_hz(sound[:ended]), []
    stage.publish("north", [*sound[:ended], *faster])
    assert stage.give("north").end().failed
    stage.publish("north", sound[ended:])
    name, log = faster[0].recording.recording, stage.places.sound
    with stage.broker() as broker:
        with pytest.raises(NotFound, match=r"array 'nroth' is not in the log gemmed-sound, .* did you mean north"):
            forget(broker, log, "nroth", None, agreed=lambda what: True)
        with pytest.raises(NotFound, match="recording 'r999' of array 'north' is not in the log"):
            forget(broker, log, "north", "r999", agreed=lambda what: True)
        assert forget(broker, log, "north", name, agreed=asked.append) == 0
        assert asked == [f"recording {name} of array north, {len(faster)} messages"]
        assert forget(broker, log, "north", name, agreed=lambda what: True) == len(faster)
        assert broker.subjects(log.stream, log.subject("north")) == {log.subject("north"): len(sound)}
    stage.give("north")
    assert stage.decided("north", len(expected)) == expected
    stage.publish("south", sound)
    with stage.broker() as broker:
        assert forget(broker, log, "north", None, agreed=lambda what: True) == len(sound)
        assert broker.subjects(log.stream, log.subject("*")) == {log.subject("south"): len(sound)}
