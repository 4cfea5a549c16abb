"""Sources that vanish, hang, lie or come too fast, through a whole daemon in a process of its own."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from pipeline.reports.verify import verify
from pipeline.runtime.state_dir import StateDirectory
from pipeline.storage.audio import SoundStore
from pipeline.storage.journal import Journal
from pipeline.storage.recordings import recordings_of, runs
from tests.conftest import free_port
from tests.daemon.live import TIMEOUT, Running, settings

RATE, SENSORS = 2000, 4
HASTY = 'stuck = "30 s"\nretry_first = "0.05 s"\nretry_most = "0.2 s"\ntick = "0.1 s"'
DROP = '[buffer]\noverload = "drop_oldest"'


def noise(seconds: float, seed: int = 0) -> np.ndarray:
    """16-bit numbers, (samples, sensors)."""
    return np.random.default_rng(seed).integers(-3000, 3000, (round(seconds * RATE), SENSORS)).astype("<i2")


@contextmanager
def server(port: int = 0) -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", port)) as listening:
        listening.settimeout(TIMEOUT)
        yield listening


def tcp(directory: Path, port: int, *, source: str = HASTY, more: str = "") -> Path:
    address = f'kind = "pcm"\naddress = "tcp://127.0.0.1:{port}"\n{source}'
    return settings(directory, model=None, rate_hz=RATE, source=address, more=more)


def stored(directory: Path) -> list[np.ndarray]:
    """The sound of every recording as 16-bit numbers, without its gaps."""
    found = []
    with Journal(directory / "state" / "journal.sqlite", read_only=True) as journal:
        store = SoundStore(directory / "state" / "sound", journal)
        for run in runs(journal):
            for name in recordings_of(journal, run):
                blocks = [fact.samples for fact in store.read(name) if hasattr(fact, "samples")]
                if blocks:
                    found.append(np.rint(np.concatenate(blocks, axis=1).T * 32768).astype("<i2"))
    return found


def ticked_at(daemon: Running, sample: int) -> None:
    """Wait until nothing comes after so much sound."""
    daemon.until(lambda event: event["type"] == "tick" and event["start_sample"] == sample)


def require_replayable(directory: Path) -> None:
    """All that was told comes out again, gaps and ticks included."""
    state = StateDirectory(directory / "state")
    with Journal(state.journal) as journal:
        verdicts = [verify(state, journal, name) for run in runs(journal) for name in recordings_of(journal, run)]
    assert all(verdict.equal for verdict in verdicts), verdicts


def test_a_peer_that_is_late_goes_away_and_comes_back(tmp_path):
    """Nobody listens at first; what was fed in two calls is stored bit by bit; between them lies a gap."""
    port = free_port()
    first, second = noise(3.0, 1), noise(2.0, 2)
    with Running(tcp(tmp_path, port)) as daemon:
        trouble = daemon.told("source_trouble")
        assert "cannot be opened" in trouble["message"]
        assert "start the other side first" in trouble["message"]
        daemon.told("source_trouble")
        with server(port) as listening:
            with listening.accept()[0] as peer:
                peer.sendall(first.tobytes())
                daemon.told("source_opened")
            daemon.until(lambda event: event["type"] == "source_trouble" and "opened again" in event["message"])
            with listening.accept()[0] as peer:
                daemon.told("tick")
                peer.sendall(second[:100].tobytes())  # it began a twentieth of a second before it came
                daemon.told("source_opened")
                gap = daemon.told("gap")
                peer.sendall(second[100:].tobytes())
                end = gap["stop_sample"] + len(second)
                ticked_at(daemon, end)
                assert "was away" in gap["reason"]
                assert gap["start_sample"] == len(first)
                assert gap["stop_sample"] > gap["start_sample"]
        daemon.process.terminate()
        assert daemon.wait() == 0, daemon.errors.decode()
    (sound,) = stored(tmp_path)
    assert (sound == np.concatenate([first, second])).all()
    (finished,) = (event for event in daemon.events if event["type"] == "recording_finished" and event["samples"])
    assert finished["samples"] == gap["stop_sample"] + len(second)
    require_replayable(tmp_path)


def test_a_peer_that_is_silent_is_called_again(tmp_path):
    """Connected, but nothing comes: ticks, a word of trouble, another call."""
    source = HASTY.replace("30 s", "2 s")
    with server() as listening, Running(tcp(tmp_path, listening.getsockname()[1], source=source)) as daemon:
        with listening.accept()[0]:
            daemon.told("tick")
            trouble = daemon.told("source_trouble")
            assert "delivers nothing for" in trouble["message"]
            with listening.accept()[0] as peer:
                peer.sendall(noise(1.0).tobytes())
                daemon.told("source_opened")
        daemon.process.terminate()
        assert daemon.wait() == 0


def wav_header(channels: int) -> bytes:
    """A stream of 16 bits whose length is not known yet."""
    form = b"fmt " + (16).to_bytes(4, "little") + (1).to_bytes(2, "little") + channels.to_bytes(2, "little")
    form += RATE.to_bytes(4, "little") + (2 * channels * RATE).to_bytes(4, "little")
    form += (2 * channels).to_bytes(2, "little") + (16).to_bytes(2, "little")
    return b"RIFF" + b"\xff" * 4 + b"WAVE" + form + b"data" + b"\xff" * 4


def test_another_number_of_channels_than_the_settings_say_ends_a_pipe(tmp_path):
    """It cannot be opened again, so the daemon says what to change and ends; its journal says why."""
    with Running(settings(tmp_path, model=None, rate_hz=RATE)) as daemon:
        daemon.feed(wav_header(2) + noise(1.0).tobytes())
        assert daemon.wait() == 1
    told = daemon.errors.decode().splitlines()[-1]
    assert "n_sensors=4 is set but the WAV header of stream says 2" in told
    assert "let the writer use 4" in told
    assert daemon.events[-1]["type"] == "run_stopped"
    assert "says 2" in daemon.events[-1]["why"]


def test_over_a_line_it_is_tried_again(tmp_path):
    with server() as listening, Running(tcp(tmp_path, listening.getsockname()[1])) as daemon:
        with listening.accept()[0] as peer:
            peer.sendall(wav_header(2) + noise(1.0).tobytes())
            assert "header of stream says 2" in daemon.told("source_trouble")["message"]
        with listening.accept()[0] as peer:
            peer.sendall(wav_header(4) + noise(1.0).tobytes())
            daemon.told("source_opened")
        daemon.process.terminate()
        assert daemon.wait() == 0


def test_too_much_is_lost_counted_and_over_when_it_is_over(tmp_path):
    """As fast as the line takes it, into a second of memory: blocks and gaps tile, and the count is exact."""
    more = f'{DROP}\nlength = "1 s"\n[training]\nenabled = false'
    config = tcp(tmp_path, port := free_port(), more=more)
    flood, calm = noise(3600.0), noise(1.0, 9)
    with server(port) as listening, Running(config) as daemon, listening.accept()[0] as peer:
        peer.sendall(flood.tobytes())
        gap = daemon.told("gap")
        assert gap["reason"].startswith("overload")
        ticked_at(daemon, len(flood))  # all of it was heard or lost
        before = daemon.count("gap")
        for start in range(0, len(calm), RATE // 10):
            peer.sendall(calm[start : start + RATE // 10].tobytes())
            ticked_at(daemon, len(flood) + start + RATE // 10)  # as slowly as it comes from an array
        assert daemon.count("gap") == before
        daemon.process.terminate()
        assert daemon.wait() == 0
    gaps = [event for event in daemon.events if event["type"] == "gap"]
    assert {gap["reason"] for gap in gaps} == {gap["reason"]}
    lost = sum(gap["stop_sample"] - gap["start_sample"] for gap in gaps)
    (stopped,) = (event for event in daemon.events if event["type"] == "run_stopped")
    assert stopped["samples_lost"] == lost > 0
    fed = len(flood) + len(calm)
    (finished,) = (event for event in daemon.events if event["type"] == "recording_finished" and event["samples"])
    assert finished["samples"] == fed
    (sound,) = stored(tmp_path)
    assert len(sound) == fed - lost
    whole, position, place = np.concatenate([flood, calm]), 0, 0
    for gap in gaps:
        length = gap["start_sample"] - position
        assert (sound[place : place + length] == whole[position : gap["start_sample"]]).all()
        position, place = gap["stop_sample"], place + length
    assert (sound[place:] == whole[position:]).all()


@pytest.mark.parametrize("seconds", [0.0, 1.0])
def test_a_thread_that_hangs_does_not_keep_it_from_stopping(tmp_path, seconds):
    """Standard input that is open and silent, before and after its first sound; everything is stored."""
    with Running(settings(tmp_path, model=None, rate_hz=RATE)) as daemon:
        daemon.feed(noise(seconds).tobytes())
        heard = round(seconds * RATE)
        ticked_at(daemon, heard)
        began = time.monotonic()
        daemon.process.terminate()
        assert daemon.process.wait(TIMEOUT) == 0
        print(f"stopped after {time.monotonic() - began:.2f} s")
        assert daemon.wait() == 0
    assert daemon.events[-1]["type"] == "run_stopped"
    assert daemon.events[-1]["why"] == "SIGTERM"
    assert sum(map(len, stored(tmp_path))) == heard
