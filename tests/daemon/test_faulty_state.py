"""What a daemon finds when it starts may be damaged, in use, or for another array; and settings may change."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
from pathlib import Path

import pytest

from pipeline.daemon.readiness import NO_DECISIONS, STALLED, STOPPED
from pipeline.model.model import Model
from pipeline.reports.status import status
from pipeline.retraining.registry import ModelOrigin, ModelStatus, Registry
from pipeline.runtime.state_dir import StateDirectory
from pipeline.storage.journal import Journal
from tests.conftest import TIMEOUT, eventually
from tests.daemon.live import Running, settings, simulated_sound
from tests.forked import gemmed

RATE = 4000
SOUND = simulated_sound(8.0).tobytes()


def champions(state: Path, *models: Path) -> list[str]:
    """A registry in which these have decided, one after the other; their names."""
    with Journal(state / "journal.sqlite") as journal:
        registry = Registry(state / "models", journal)
        names = []
        for model in models:
            added = registry.add(
                Model.load(model),
                origin=ModelOrigin.GIVEN,
                status=ModelStatus.CHALLENGER,
                why="given",
                facts={},
                told=None,
            )
            registry.promote(added.name, who="me", why="a test")
            names.append(added.name)
    return names


def flip_a_bit(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def one_run(config: Path) -> Running:
    with Running(config) as daemon:
        daemon.feed(SOUND)
        assert daemon.end() == 0, daemon.errors.decode()
    return daemon


def deciding(daemon: Running) -> set[str | None]:
    return {event["model"] for event in daemon.events if event["type"] == "decision"}


def test_instead_of_a_damaged_model_the_one_before_decides_and_else_none(tmp_path, model, other_models):
    """The journal says so; without any model the states of the sensors are told all the same."""
    config = settings(tmp_path, model=None)
    first, second = champions(tmp_path / "state", model, other_models[0])
    flip_a_bit(tmp_path / "state" / "models" / second / "arrays.npz")
    assert deciding(one_run(config)) == {first}
    with Journal(tmp_path / "state" / "journal.sqlite") as journal:
        (unusable,) = journal.events(types=["model_unusable"])
        assert (unusable.body["model"], unusable.body["instead"]) == (second, first)
        assert Registry(tmp_path / "state" / "models", journal).named(second).status is ModelStatus.UNUSABLE
    flip_a_bit(tmp_path / "state" / "models" / first / "arrays.npz")
    daemon = one_run(config)
    assert deciding(daemon) == set()
    assert daemon.count("state_changed") > 0
    with Journal(tmp_path / "state" / "journal.sqlite") as journal:
        assert [event.body["instead"] for event in journal.events(types=["model_unusable"])] == [first, None]


def test_a_challenger_that_cannot_be_loaded_is_refused_and_nothing_else_happens(tmp_path, model, other_models):
    config = settings(tmp_path, model=None)
    (first,) = champions(tmp_path / "state", model)
    with Running(config) as daemon:
        daemon.feed(SOUND)
        daemon.told("decision")
        broken = tmp_path / "broken"
        shutil.copytree(other_models[0], broken)
        with Journal(tmp_path / "state" / "journal.sqlite") as journal:
            registry = Registry(tmp_path / "state" / "models", journal)
            parked = registry.add(
                Model.load(broken),
                origin=ModelOrigin.GIVEN,
                status=ModelStatus.REFUSED,
                why="not yet",
                facts={},
                told=None,
            )
            flip_a_bit(registry.path(parked.name) / "arrays.npz")
            journal.execute("UPDATE models SET status = 'challenger' WHERE name = ?", (parked.name,))
            while registry.named(parked.name).status is ModelStatus.CHALLENGER:
                daemon.feed(SOUND[: RATE * 8 // 4])
            assert registry.named(parked.name).status is ModelStatus.REFUSED
            refused = list(journal.events(types=["challenger_refused"]))[-1]
        assert daemon.end() == 0
    assert refused.body["model"] == parked.name
    assert "SHA-256 differs" in refused.body["why"]
    assert deciding(daemon) == {first}


def change(config: Path, before: str, after: str) -> None:
    text = config.read_text()
    assert before in text
    config.write_text(text.replace(before, after))


def refusal(config: Path) -> str:
    """The one line in which it says why it does not start."""
    with Running(config) as daemon:
        assert daemon.wait() == 1
    assert "Traceback" not in daemon.errors.decode()
    told = daemon.errors.decode().splitlines()[-1]
    assert told.startswith("gemmed: ")
    return told


def test_a_model_that_cannot_decide_here_is_refused_at_the_start(tmp_path, model):
    config = settings(tmp_path, model=model)
    change(config, "[array]\n", "[array]\nsensors = 3\n")
    told = refusal(config)
    assert "it is for 4 sensors at 4000 Hz, the settings say 3 at 4000 Hz; change array.sensors" in told
    assert str(tmp_path / "nowhere") in refusal(settings(tmp_path / "other", model=tmp_path / "nowhere"))


@pytest.mark.parametrize("damage", ["middle", "empty", "no database"])
def test_a_damaged_journal_is_moved_aside_and_a_new_one_goes_on(tmp_path, damage):
    """What could be read is in the new one; no id is given twice."""
    config = settings(tmp_path, model=None)
    before = one_run(config)
    file = tmp_path / "state" / "journal.sqlite"
    if damage == "middle":
        with file.open("r+b") as opened:
            opened.seek(file.stat().st_size // 2)
            opened.write(b"\xa5" * 8192)
    else:
        file.write_bytes(b"" if damage == "empty" else b"no database" * 500)
    after = one_run(config)
    replaced = after.events[0]
    assert replaced["type"] == "journal_replaced"
    assert (tmp_path / "state" / replaced["moved_to"]).exists()
    assert min(event["id"] for event in after.events) > max(event["id"] for event in before.events)
    with Journal(file) as journal:
        journal.check()
        assert (
            replaced["rows_saved"]["events"]
            == journal.rows("SELECT count(*) AS n FROM events WHERE run = ?", (before.events[0]["run"],))[0]["n"]
        )


def test_two_daemons_do_not_share_a_directory_and_status_tells_of_the_first(tmp_path):
    config = settings(tmp_path, model=None)
    state = StateDirectory(tmp_path / "state")
    assert status(state)["code"] == STOPPED
    with Running(config) as daemon:
        daemon.feed(SOUND)
        daemon.told("recording_started")
        with Running(config) as second:
            assert second.wait() == 1
        told = second.errors.decode().splitlines()[-1]
        assert f"is used by another gemmed run, process {daemon.process.pid}; stop it, or give another" in told
        done = gemmed("status", "--config", str(config), "--json")
        # Within the minute after its start it may not have stored its status yet.
        assert done.returncode in (0, NO_DECISIONS)
        eventually(lambda: status(state).get("pid") == daemon.process.pid, "its status")
        assert status(state)["code"] == NO_DECISIONS
        with Journal(state.journal) as journal:
            journal.execute("UPDATE heartbeat SET time = '2026-01-01T00:00:00.000Z'")
        found = status(state)
        assert found["code"] in (NO_DECISIONS, STALLED)  # it may just have beaten again
        assert daemon.end() == 0
    assert status(state)["code"] == STOPPED
    assert gemmed("status", "--config", str(config)).returncode == STOPPED


def test_status_notices_a_daemon_that_tells_nothing(tmp_path):
    """It holds its lock, and its last word is old."""
    state = StateDirectory(tmp_path)
    state.create()
    with Journal(state.journal) as journal:
        journal.execute("INSERT INTO heartbeat VALUES (1, '2026-01-01T00:00:00.000Z', '{}')")
    with state.locked():
        assert status(state)["code"] == STALLED
    assert status(state)["code"] == STOPPED


def test_settings_are_read_again_and_it_is_said_what_takes_effect_when(tmp_path, model):
    config = settings(tmp_path, model=model, more="[decisions]\nconfidence = 0.6")
    state = tmp_path / "elsewhere"
    with Running(config, "--state", str(state)) as daemon:
        daemon.feed(SOUND)
        daemon.told("decision")

        def reloaded(data: bytes = SOUND) -> dict:
            daemon.process.send_signal(signal.SIGHUP)
            while not any(event["type"] == "settings_reloaded" for event in daemon.events[seen:]):
                daemon.feed(data[: RATE * 2])
                daemon.until(lambda event: event["type"] in ("decision", "settings_reloaded"))
            return next(event for event in daemon.events[seen:] if event["type"] == "settings_reloaded")

        seen = len(daemon.events)
        change(config, "[array]\n", "[array]\nmask = [2]\n")
        changes = reloaded()["changes"]
        assert [(one["setting"], one["takes_effect"]) for one in changes] == [("array.mask", "now")]
        trust = daemon.until(lambda event: event["type"] == "trust_changed" and event["by"] == "operator")
        assert trust["trusted"] == [True, False, True, True]
        seen = len(daemon.events)
        change(config, "confidence = 0.6", "confidence = 0.7")
        change(config, 'kind = "pcm"', 'kind = "pcm"\nstuck = "20 s"')
        effects = {one["setting"]: one["takes_effect"] for one in reloaded()["changes"]}
        assert effects == {"source.stuck": "restart", "decisions.confidence": "next recording"}
        daemon.feed(SOUND)
        daemon.told("recording_started")
        seen = len(daemon.events)
        good = config.read_text()
        config.write_text(good + "\n[decisions]\nconfidence = 7\n")
        assert "error" in reloaded()
        config.write_text(good.replace("mask = [2]", "sensors = 5\nmask = [5]"))
        seen = len(daemon.events)
        assert "until gemmed run is started again" in reloaded()["error"]
        seen = len(daemon.events)
        config.write_text(good)
        assert reloaded()["changes"] == []
        assert daemon.end() == 0, daemon.errors.decode()
    with Journal(state / "journal.sqlite") as journal:
        chosen = [json.loads(row["choices"]) for row in journal.rows("SELECT choices FROM recordings ORDER BY rowid")]
    assert [(one["least_confidence"], one["masked"]) for one in chosen] == [(0.6, []), (0.7, [2])]


def test_systemd_hears_that_it_is_ready_that_it_processes_and_that_it_stops(tmp_path):
    """The watchdog is fed by facts that went through; while there are none and none are due, it is not."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "notify"))
        receiver.settimeout(TIMEOUT)
        environment = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "400000"}
        config = settings(tmp_path, model=None, source='kind = "pcm"\ntick = "25 s"\nstuck = "30 s"')
        with Running(config, environment=environment) as daemon:
            assert receiver.recv(100) == b"READY=1"
            heard = []
            while heard[-2:] != [b"WATCHDOG=1"] * 2:
                daemon.feed(SOUND[: RATE * 8 // 10])
                receiver.settimeout(0.05)
                try:
                    heard.append(receiver.recv(100))
                except TimeoutError:
                    continue
            assert set(heard) == {b"WATCHDOG=1"}
            receiver.settimeout(2.0)  # five times as long as it must be fed
            eventually(lambda: not heard_from(receiver), "all is processed, and it is not fed any more", every=0.0)
            receiver.settimeout(TIMEOUT)
            os.kill(daemon.process.pid, signal.SIGTERM)
            while (word := receiver.recv(100)) == b"WATCHDOG=1":
                pass
            assert word == b"STOPPING=1"
            assert daemon.wait() == 0


def heard_from(receiver: socket.socket) -> bytes:
    try:
        return receiver.recv(100)
    except TimeoutError:
        return b""


def test_check_names_what_is_missing(tmp_path):
    """A dead port, a disk that is a file, a label file that is a directory; each with a cure, exit code 1."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    config = settings(
        tmp_path,
        model=None,
        source=f'kind = "pcm"\naddress = "tcp://127.0.0.1:{port}"',
        more=f'[labels]\nfile = "{tmp_path}"',
    )
    (tmp_path / "state").write_text("in the way")
    done = gemmed("check", "--config", str(config))
    assert done.returncode == 1
    told = {line.split()[0]: line for line in done.stdout.splitlines() if "FAILS" in line}
    assert "cannot be written to" in told["disk"]
    assert "cannot be opened" in told["source"]
    assert "start the other side first" in told["source"]
    assert "is no file" in told["label"]
    (tmp_path / "state").unlink()
    done = gemmed("check", "--config", str(settings(tmp_path, model=None)))
    assert done.returncode == 0, done.stdout
