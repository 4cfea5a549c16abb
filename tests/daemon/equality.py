"""What is decided live is decided again by replay, however long, and whatever models came and went."""

from __future__ import annotations

import json
from pathlib import Path

import soundfile

from pipeline.reports.verify import Verification, chosen_run, verify
from pipeline.runtime.state_dir import StateDirectory
from pipeline.storage.journal import Journal
from pipeline.storage.recordings import recordings_of
from tests.daemon.live import Running, settings, simulated_sound
from tests.forked import gemmed

_CHUNK_SECONDS = 0.7
_OF_THE_RUN = ("id", "run", "time", "recording", "model", "started_at", "troubles", "trained_on")


def decided(events: list[dict]) -> list[dict]:
    """What the stages told, without what belongs to a run only."""
    kinds = {"decision", "state_changed", "fault_opened", "fault_closed", "recording_finished", "event_noticed"}
    return [{name: value for name, value in event.items() if name not in _OF_THE_RUN}
            for event in events if event["type"] in kinds]  # fmt: skip


def play(directory: Path, models: list[Path], sound, *, rate_hz: int) -> tuple[list[dict], list[Verification]]:
    """Feed a daemon; another model from each equal part on. All that it told, and how that compares when repeated."""
    config = settings(directory, model=models[0], rate_hz=rate_hz)
    daemon = Running(config)
    registered = [_name(model) for model in models]
    _register(directory / "state", models[1:], daemon)
    length = -(-len(sound) // len(models))
    for number, start in enumerate(range(0, len(sound), length)):
        if number:
            promoted = gemmed("models", "promote", registered[number], "--config", str(config))
            assert promoted.returncode == 0, promoted.stderr
            daemon.until(lambda event, name=registered[number]: event.get("model") == name
                         and event["type"] == "model_changed")  # fmt: skip
        part, chunk = sound[start : start + length], round(_CHUNK_SECONDS * rate_hz)
        for first in range(0, len(part), chunk):
            daemon.feed(part[first : first + chunk].tobytes())
    assert daemon.end() == 0, daemon.errors.decode()
    state = StateDirectory(directory / "state")
    with Journal(state.journal, read_only=True) as journal:
        names = [name for run in chosen_run(journal, "all") for name in recordings_of(journal, run)]
        return daemon.events, [verify(state, journal, name) for name in names]


def _name(model: Path) -> str:
    from pipeline.model.model import Model

    return Model.load(model).name


def _register(state: Path, models: list[Path], daemon: Running) -> None:
    """Beside the one that decides, once the daemon has made its directory."""
    from pipeline.model.model import Model
    from pipeline.retraining.registry import ModelOrigin, ModelStatus, Registry

    daemon.told("recording_started")
    with Journal(state / "journal.sqlite") as journal:
        for model in models:
            Registry(state / "models", journal).add(
                Model.load(model),
                origin=ModelOrigin.GIVEN,
                status=ModelStatus.RETIRED,
                why="for later",
                facts={},
                told=None,
            )


def check_equality(tmp_path: Path, models: list[Path], *, seconds: float, rate_hz: int) -> dict[str, int]:
    """Two runs of the same sound: one model, compared with a replay of the file; three, compared with their own."""
    sound = simulated_sound(seconds, rate_hz=rate_hz)
    file = tmp_path / "heard.wav"
    soundfile.write(file, sound, rate_hz, subtype="PCM_16")
    live, verdicts = play(tmp_path / "one", models[:1], sound, rate_hz=rate_hz)
    assert [verdict for verdict in verdicts if not verdict.equal] == []
    out = tmp_path / "replayed.jsonl"
    done = gemmed("replay", str(file), "--model", str(models[0]), "--out", str(out))
    assert done.returncode == 0, done.stderr
    replayed = [json.loads(line) for line in out.read_text().splitlines()]
    assert decided(live) == decided(replayed)
    swapped, verdicts = play(tmp_path / "three", models, sound, rate_hz=rate_hz)
    assert [verdict for verdict in verdicts if not verdict.equal] == []
    deciders = [event["model"] for event in swapped if event["type"] == "decision"]
    assert len(dict.fromkeys(deciders)) == len(models)
    return {"decisions": sum(verdict.decisions for verdict in verdicts), "swaps": len(models) - 1}
