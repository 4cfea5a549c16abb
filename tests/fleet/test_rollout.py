"""A model arrives whole or not at all, is tried where it is wanted, and goes back by itself where it is worse."""

from __future__ import annotations

import json
import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from struct import pack
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from pipeline.core.choices import Choices
from pipeline.core.errors import ModelError, UsageError
from pipeline.core.event_json import EventLines, line
from pipeline.core.events import Block, ModelChanged, RecordingStarted
from pipeline.fleet.config import Fleet, read_fleet
from pipeline.fleet.model_cache import ModelStore
from pipeline.fleet.rollout import (
    Rollout,
    chosen_arrays,
    refused_before,
    roll_back,
    roll_out,
    rollout_status,
    show_rollout,
)
from pipeline.fleet.worker import HANDED_OVER, STOPPED
from pipeline.model.hot_swap import ArrayInput, Switching
from pipeline.model.model import Model
from pipeline.transport.wire import Parcel
from tests.conftest import eventually
from tests.fleet.fleets import Events, replayed
from tests.fleet.hosted import Stage
from tests.forked import gemmed

OF_ROLLOUTS = {"model_promoted", "rollout_passed", "model_rolled_back", "model_unusable"}
TRIAL_SECONDS = 10.0
"""Five segments: so many are in a recording and a half, and enough to see that a model never decides."""


def renamed(parcels: list[Parcel], word: str) -> list[Parcel]:
    """The same sound as other recordings."""
    found = []
    for one in parcels:
        started = replace(one.recording, recording=f"{one.recording.recording} {word}")
        fact = one.fact
        if isinstance(fact, RecordingStarted):
            fact = started
        elif not isinstance(fact, Block):
            fact = replace(fact, recording=started.recording)
        found.append(replace(one, recording=started, fact=fact))
    return found


@pytest.fixture(scope="module")
def strange_models(model, tmp_path_factory) -> dict[str, Path]:
    """One that never decides, and some that hear otherwise."""
    first, directory = Model.load(model), tmp_path_factory.mktemp("strange")
    made = {
        "mute": replace(first, machines=(None,) * first.n_sensors),
        "rate": replace(first, grid=replace(first.grid, rate_hz=8000)),
        "settings": replace(first, settings=first.settings | {"n_mels": 64}),
    }
    for name, one in made.items():
        one.save(directory / name)
    return {name: directory / name for name in made}


@dataclass
class Tried:
    """Arrays north and south on a stage, and what people want of them."""

    stage: Stage
    fleet: Fleet
    published: dict[str, list[Parcel]]

    def publish(self, parcels: list[Parcel], *arrays: str) -> None:
        """And wait until it was heard."""
        for array in arrays or ("north", "south"):
            self.stage.publish(array, parcels)
            self.published[array] += parcels
        for array in arrays or ("north", "south"):
            with self.stage.broker() as broker:
                log = self.stage.places.sound
                sequence = broker.last(log.stream, log.subject(array)).sequence
            self.stage.until_status(array, lambda status: status.get("sequence") == sequence)  # noqa: B023

    def roll_out(self, model: Path, **options: Any) -> str:
        options = {"who": "anna", "why": "better", "trial_seconds": TRIAL_SECONDS} | options
        with self.stage.broker() as broker:
            name, arrays = roll_out(self.fleet, broker, model, Rollout(**options))
        assert arrays == list(options.get("arrays") or sorted(self.published))
        return name

    def roll_back(self) -> dict[str, str]:
        with self.stage.broker() as broker:
            return roll_back(self.fleet, broker, [], who="bert", why="noise")

    def is_(self) -> dict[str, str]:
        with self.stage.broker() as broker:
            return {one["array"]: one["is"] for one in rollout_status(self.fleet, broker)}

    def until_it_looked(self, array: str = "north") -> None:
        """It tells its status, then looks for a model: who has told it twice from now on has looked."""
        for _ in range(2):
            before = self.stage.status(array)["time"]
            self.stage.until_status(array, lambda status: status["time"] > before)  # noqa: B023

    def of_type(self, kind: str, array: str = "north") -> Events:
        return [event for event in self.stage.told(array) if event["type"] == kind]

    def until_told(self, kind: str, count: int = 1) -> dict[str, Any]:
        eventually(lambda: len(self.of_type(kind)) >= count, every=0.1)
        found = self.of_type(kind)
        assert len(found) == count
        return found[-1]

    def reference(self, array: str = "north") -> Events:
        """What one chain decides that is told of the same models at the same samples."""
        with self.stage.broker() as broker:
            load = ModelStore(self.stage.places.models(broker), self.stage.cache).load
            changes = {(event["recording"], event["start_sample"]): event["model"]
                       for event in self.of_type("model_changed", array)}  # fmt: skip
            first = load(self.stage.model)
            told: Events = []
            lines = EventLines(lambda body: told.append(json.loads(line(body))), model=first.name)
            chain = Switching(ArrayInput.of(first), Choices(), first, load=load)
            for parcel in self.published[array]:
                facts = [parcel.fact]
                if isinstance(parcel.fact, Block):
                    sample = parcel.fact.stop
                    if (another := changes.pop((parcel.recording.recording, sample), None)) is not None:
                        facts.append(ModelChanged(sample, another))
                for made in (made for fact in facts for made in chain.push(fact)):
                    lines.observe(made)
        assert not changes
        return told

    def equals_reference(self, array: str = "north") -> None:
        expected = self.reference(array)
        notices = sum(len(self.of_type(kind, array)) for kind in OF_ROLLOUTS)
        told = self.stage.decided(array, len(expected) + notices)
        assert [event for event in told if event["type"] not in OF_ROLLOUTS] == expected


@pytest.fixture
def tried(nats, tmp_path, model):
    stage = Stage(nats, tmp_path, model)
    file = tmp_path / "fleet.toml"
    file.write_text(
        f'[fleet]\nmodel = "{model}"\nlease = "3 s"\ncache = "{stage.cache}"\n[broker]\naddress = "{nats.address}"\n'
        '[[arrays]]\nname = "north"\n[[arrays]]\nname = "south"\n'
    )
    yield Tried(stage, read_fleet(file), {"north": [], "south": []})
    stage.close()


def test_a_model_arrives_bit_for_bit_by_the_hash_of_its_content(nats, tmp_path, model):
    with Stage(nats, tmp_path, model).broker() as broker:
        objects = broker.objects("gemmed-models")
        name = ModelStore(objects, tmp_path / "here").add(model).name
        arrived = ModelStore(objects, tmp_path / "there").load(name)
    assert arrived.identity == Model.load(model).identity
    assert arrived.identity.startswith(name)
    files = sorted(file.name for file in model.iterdir())
    assert sorted(file.name for file in (tmp_path / "there" / name).iterdir()) == files
    for file in files:
        assert (tmp_path / "there" / name / file).read_bytes() == (model / file).read_bytes()


def _flipped(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


def test_a_model_of_which_the_broker_lost_a_part_is_refused_and_can_be_handed_in_again(nats, tmp_path, model):
    with Stage(nats, tmp_path, model).broker() as broker:
        store, name = ModelStore(broker.objects("gemmed-models"), tmp_path / "there"), Model.load(model).name
        broker.remove("OBJ_gemmed-models", 1)
        with pytest.raises(ModelError, match="cut off; hand it in"):
            store.load(name)
        store.add(model)
        assert store.load(name).identity == Model.load(model).identity


@pytest.mark.parametrize(
    "tampered",
    [
        pytest.param(lambda data: _flipped(data, 100), id="description"),
        pytest.param(lambda data: _flipped(data, len(data) // 2), id="arrays"),
        pytest.param(lambda data: data[:-1], id="cut off"),
        pytest.param(lambda data: data[: len(data) // 3000], id="cut off early"),
        pytest.param(lambda data: data[:5], id="nearly nothing"),
        pytest.param(lambda data: b"", id="nothing"),
        pytest.param(lambda data: pack("<Q", 2**63) + data[8:], id="length"),
    ],
)
def test_a_tampered_model_is_refused_and_can_be_handed_in_again(nats, tmp_path, model, tampered):
    with Stage(nats, tmp_path, model).broker() as broker:
        objects = broker.objects("gemmed-models")
        store = ModelStore(objects, tmp_path / "there")
        name = Model.load(model).name
        objects.put(name, tampered(objects.get(name)))
        with pytest.raises(ModelError):
            store.load(name)
        assert list((tmp_path / "there").iterdir()) == []
        store.add(model)
        assert store.load(name).identity == Model.load(model).identity


@pytest.mark.parametrize(
    ("file", "reason"), [("/dev/null/models", "Not a directory"), ("/proc/models", "No such file or directory")]
)
def test_a_place_that_cannot_be_written(nats, tmp_path, model, file, reason):
    """Not even root can."""
    with Stage(nats, tmp_path, model).broker() as broker:
        store = ModelStore(broker.objects("gemmed-models"), Path(file))
        cure = "make room there for the user of the worker, or give another place as fleet.cache"
        with pytest.raises(ModelError, match=f"cannot be kept in {file}: {reason}; {cure}"):
            store.load(Model.load(model).name)


@contextmanager
def files_of_at_most(n_bytes: int) -> Iterator[None]:
    """Of this process: whatever writes more is refused, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_disk_that_is_full_leaves_nothing_behind(nats, tmp_path, model):
    with Stage(nats, tmp_path, model).broker() as broker:
        store, name = ModelStore(broker.objects("gemmed-models"), tmp_path / "there"), Model.load(model).name
        told = f"model {name} cannot be kept in {tmp_path}/there: File too large; make room"
        with files_of_at_most(1000), pytest.raises(ModelError, match=told):
            store.load(name)
    assert list((tmp_path / "there").iterdir()) == []


def test_a_model_that_was_damaged_where_it_is_kept_is_fetched_again(nats, tmp_path, model):
    """As by a power failure right after it came."""
    with Stage(nats, tmp_path, model).broker() as broker:
        store, name = ModelStore(broker.objects("gemmed-models"), tmp_path / "there"), Model.load(model).name
        kept = tmp_path / "there" / name
        shutil.copytree(model, kept)
        (kept / "arrays.npz").write_bytes(b"")
        assert store.load(name).identity == Model.load(model).identity
        assert (kept / "arrays.npz").read_bytes() == (model / "arrays.npz").read_bytes()


def test_a_model_that_nobody_handed_in(nats, tmp_path, model):
    with Stage(nats, tmp_path, model).broker() as broker:
        store = ModelStore(broker.objects("gemmed-models"), tmp_path / "there")
        with pytest.raises(ModelError, match="model 0123456789ab is not with the broker; hand it in"):
            store.load("0123456789ab")


def test_remarks_are_shown_as_they_were_written(tried, other_models):
    tried.roll_out(other_models[0], why="see [/mail]", who="[bold]anna", arrays=("north",))
    console = Console(width=200)
    with tried.stage.broker() as broker, console.capture() as capture:
        show_rollout(rollout_status(tried.fleet, broker), console)
    row = next(line for line in capture.get().splitlines() if "north" in line)
    assert "see [/mail]" in row
    assert "[bold]anna" in row


NAMES = st.lists(st.text("abcdefgh0123", min_size=1, max_size=6), min_size=1, max_size=60, unique=True)
SHARES = st.floats(0, 1, exclude_min=True)


@given(NAMES, st.text("0123456789abcdef", min_size=12, max_size=12), SHARES, SHARES, st.randoms())
def test_a_share_of_the_arrays(names, model, one, another, random):
    """As many as it says, the same in any order, and all of a smaller share among a larger one."""
    smaller, larger = (chosen_arrays(names, model, share) for share in sorted((one, another)))
    assert set(smaller) <= set(larger) <= set(names)
    assert len(smaller) == len(set(smaller)) == ceil(min(one, another) * len(names))
    assert chosen_arrays(names, model, 1.0) == sorted(names)
    shuffled = random.sample(names, len(names))
    assert chosen_arrays(shuffled, model, one) == chosen_arrays(names, model, one)


@pytest.mark.parametrize("trial", ["inf", "nan", "-1"])
def test_a_trial_that_cannot_end_is_refused(trial):
    told = f"--trial={trial} must be 0 or more seconds, and finite; for example 600"
    with pytest.raises(UsageError, match=told):
        Rollout(trial_seconds=float(trial))


def test_other_models_begin_with_other_arrays():
    names = [f"a{number}" for number in range(100)]
    assert len({tuple(chosen_arrays(names, f"{model:012x}", 0.1)) for model in range(20)}) == 20


def test_an_equal_model_stays_after_its_trial_and_can_be_taken_back(tried, sound, model, other_models):
    """Also if the array is handed over in the middle of the trial."""
    place = len(sound) // 3
    stage = tried.stage
    owner, _ = stage.give("north"), stage.give("south")
    tried.publish(sound[:place])
    with stage.broker() as broker, pytest.raises(UsageError, match="no array has a model before"):
        roll_back(tried.fleet, broker, [], who="anna", why="")
    name = tried.roll_out(other_models[0], arrays=("north",))
    stage.until_status("north", lambda status: status["model"] == name and status["trial"])
    assert tried.is_() == {"north": "on trial", "south": "as it began"}
    tried.publish(sound[place:])
    again = renamed(sound, "again")
    tried.publish(again[:place])
    stage.give("north")
    assert owner.end().why == HANDED_OVER
    tried.publish(again[place:])
    passed = tried.until_told("rollout_passed")
    assert (passed["model"], passed["before"], passed["segments"]) == (name, stage.model, 5)
    status = stage.until_status("north", lambda status: not status["trial"])
    assert (status["model"], status["before"]) == (name, stage.model)
    assert tried.is_() == {"north": "decides", "south": "as it began"}

    assert tried.roll_back() == {"north": f"goes back to {stage.model}"}
    stage.until_status("north", lambda status: status["model"] == stage.model)
    promoted = tried.until_told("model_promoted", 2)
    assert (promoted["model"], promoted["who"], promoted["why"]) == (stage.model, "bert", "noise")
    with stage.broker() as broker, pytest.raises(UsageError, match="no array has a model before"):
        roll_back(tried.fleet, broker, [], who="bert", why="twice")  # which is not forward
    tried.publish(renamed(sound, "at last"))
    # The second change came behind the last sample, where the recording had ended.
    changed = tried.of_type("model_changed")
    assert [event["model"] for event in changed] == [name, stage.model]
    assert {event["model"] for event in tried.of_type("decision") if event["id"] > changed[1]["id"]} == {stage.model}
    assert {event["model"] for event in tried.of_type("decision", "south")} == {stage.model}
    assert tried.of_type("model_changed", "south") == []


def test_taking_back_calls_off_what_was_not_taken_up_yet(tried, sound, other_models):
    """An array that has nobody at the moment neither takes it up later, nor goes back two steps instead."""
    stage, place = tried.stage, len(sound) // 3
    owners = {array: stage.give(array) for array in ("north", "south")}
    tried.publish(sound[:place])
    assert owners["south"].stop().why == STOPPED
    second = tried.roll_out(other_models[0], trial_seconds=0)
    stage.until_status("north", lambda status: status["model"] == second)
    assert owners["north"].stop().why == STOPPED
    third = tried.roll_out(other_models[1], trial_seconds=0)
    assert tried.is_() == {"north": "waits", "south": "waits"}
    assert tried.roll_back() == {"north": f"stays with {second}", "south": f"stays with {stage.model}"}

    for array in owners:
        stage.give(array)
        tried.until_it_looked(array)
    assert {array: stage.status(array)["model"] for array in owners} == {"north": second, "south": stage.model}
    assert tried.of_type("model_changed", "south") == []
    assert third not in {event["model"] for event in tried.of_type("model_changed")}
    stage.owners[-2].stop()
    for _ in range(2):  # who asks again before it is done does not undo it
        assert tried.roll_back() == {"north": f"goes back to {stage.model}"}
    stage.give("north")
    stage.until_status("north", lambda status: status["model"] == stage.model)


def test_taking_back_what_no_array_has_begun_with(tried, other_models):
    tried.roll_out(other_models[0])
    told = "begins with the model of its settings"
    assert tried.roll_back() == {"north": told, "south": told}
    assert tried.is_() == {"north": "as it began", "south": "as it began"}


def test_a_worse_model_goes_back_by_itself_and_is_not_tried_again(tried, sound, recordings, model, strange_models):
    """Where it was wanted; elsewhere nothing happens. Around both changes all is as in one chain."""
    place = len(sound) // 3
    stage = tried.stage
    for array in ("north", "south"):
        stage.give(array)
    tried.publish(sound[:place])
    mute = tried.roll_out(strange_models["mute"], arrays=("north",))
    stage.until_status("north", lambda status: status["model"] == mute)
    changed = tried.until_told("model_changed")
    assert (changed["model"], changed["start_sample"]) == (mute, sound[place - 1].fact.stop)
    tried.publish(sound[place:])
    tried.publish(renamed(sound, "again"), "north")
    back = tried.until_told("model_rolled_back")
    assert (back["model"], back["before"], back["passed"], back["segments"]) == (mute, stage.model, False, 5)
    assert "it decides nothing in 100.0% of the segments" in back["reasons"][0]
    status = stage.until_status("north", lambda status: status["model"] == stage.model)
    assert (status["before"], status["trial"], status["refused"]) == (None, False, [mute])
    assert tried.is_() == {"north": "went back", "south": "as it began"}
    tried.equals_reference()
    decisions = tried.of_type("decision")
    assert {event["model"] for event in decisions if event["id"] > back["id"]} == {stage.model}
    assert all(event["label"] is None for event in decisions if event["model"] == mute)
    expected = replayed(model, recordings)
    assert stage.decided("south", len(expected)) == expected

    done = gemmed("fleet", "rollout", str(tried.fleet.path), str(strange_models["mute"]), "--array", "north")
    ignored = "it was refused before, and is ignored, by north; --again tries it there, too"
    assert done.stdout == f"model {mute} is wanted for 1 of 2 arrays: north\n{ignored}\n", done.stderr
    tried.until_it_looked()
    stage.give("north")  # nor by somebody else
    tried.until_it_looked()
    assert stage.status("north")["model"] == stage.model
    assert len(tried.of_type("model_promoted")) == 1
    tried.roll_out(strange_models["mute"], arrays=("north",), again=True)
    stage.until_status("north", lambda status: status["model"] == mute and status["trial"])
    assert tried.is_()["north"] == "on trial"
    tried.until_told("model_promoted", 2)


def test_without_a_trial_it_stays_whatever_it_does(tried, sound, strange_models):
    place = len(sound) // 3
    tried.stage.give("north")
    tried.publish(sound[:place], "north")
    mute = tried.roll_out(strange_models["mute"], trial_seconds=0)
    tried.stage.until_status("north", lambda status: status["model"] == mute)
    assert tried.is_() == {"north": "decides", "south": "waits"}
    tried.publish(sound[place:], "north")
    tried.equals_reference()
    assert tried.of_type("rollout_passed") == tried.of_type("model_rolled_back") == []


def test_a_model_that_cannot_be_used_is_told_and_the_old_one_goes_on(
    tried, sound, recordings, model, strange_models, other_models
):
    """One for another rate, one with other settings, one that somebody changed where it is stored."""
    place = len(sound) // 3
    stage = tried.stage
    stage.give("north")
    tried.publish(sound[:place], "north")
    for count, what in enumerate(("rate", "settings"), start=1):
        name = tried.roll_out(strange_models[what], arrays=("north",))
        unusable = tried.until_told("model_unusable", count)
        assert (unusable["model"], unusable["instead"]) == (name, stage.model)
        assert "does not hear as the one before it; train one for this array" in unusable["why"]
    name = tried.roll_out(other_models[0], arrays=("south",))
    with stage.broker() as broker:
        objects, wanted = stage.places.models(broker), stage.places.wanted(broker)
        objects.put(name, objects.get(name)[:6])
        wanted.put("north", wanted.get("south").value)
    unusable = tried.until_told("model_unusable", 3)
    assert (unusable["model"], unusable["instead"]) == (name, stage.model)
    cure = "hand it in with gemmed fleet rollout --again"
    assert f"what the broker has as model {name} is cut off; {cure}" in unusable["why"]
    tried.until_it_looked()
    tried.publish(sound[place:], "north")
    expected = replayed(model, recordings)
    told = stage.decided("north", len(expected) + 3)
    assert [event for event in told if event["type"] != "model_unusable"] == expected
    assert len(told) == len(expected) + 3
    assert tried.is_()["north"] == "went back"
    assert not stage.status("north")["failed"]
    with stage.broker() as broker:
        assert refused_before(tried.fleet, broker, name, ("north", "south")) == ["north"]
    tried.roll_out(other_models[0], arrays=("north",), again=True)  # as it says
    stage.until_status("north", lambda status: status["model"] == name)
    with stage.broker() as broker:
        assert refused_before(tried.fleet, broker, name, ("north", "south")) == []
