"""The process that learns beside a daemon: killed, and begun again."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipeline.config.schema import Settings
from pipeline.core.events import Notice, NoticeKind
from pipeline.retraining import controller
from pipeline.retraining.controller import LearningThread, Swap
from pipeline.retraining.registry import Registry
from pipeline.runtime.state_dir import StateDirectory
from pipeline.storage.journal import Journal
from tests.arrays import ARRAY
from tests.conftest import eventually
from tests.daemon.live import give_time_to_learning


def settings(directory: Path) -> Settings:
    return Settings.model_validate({
        "array": {"rate_hz": 4000},
        "source": {"kind": "pcm"},
        "storage": {"directory": directory},
        "training": {"recordings": ARRAY, "labels": ARRAY / "labels.csv"},
    })  # fmt: skip


def word(beside: LearningThread, wanted: Callable[[object], bool]) -> Any:
    def found() -> object:
        give_time_to_learning(os.getpid())
        said = beside.word()
        return said if said is not None and wanted(said) else None

    return eventually(found, "it is said")


def notice(kind: NoticeKind) -> Callable[[object], bool]:
    return lambda said: isinstance(said, Notice) and said.kind is kind


def test_a_killed_retraining_is_told_and_the_next_one_works(tmp_path, monkeypatch):
    """SIGKILL while it learns its first model; then it is begun again, and the model decides."""
    monkeypatch.setattr(controller, "_RETRY_SECONDS", 0.0)
    state = StateDirectory(tmp_path / "state")
    state.create()
    Journal(state.journal).close()
    beside = LearningThread(state, settings(state.path), run="a run")
    try:
        assert beside.first_model() is None
        process = eventually(lambda: beside._retraining._process, "something is started")
        process.send_signal(signal.SIGKILL)
        failed = word(beside, notice(NoticeKind.RETRAINING_FAILED))
        assert failed.details == {"why": "its process was ended by signal 9"}
        swap = word(beside, lambda said: isinstance(said, Swap))
        assert swap.model.decides
    finally:
        beside.stop()
    with Journal(state.journal, read_only=True) as journal:
        kinds = [event.type for event in journal.events()]
    assert kinds.count("model_promoted") == 1
    assert not Path(f"/proc/{process.pid}").exists()


def test_nothing_is_started_after_the_daemon_stopped(tmp_path):
    """The thread that looks may be in the middle of it when the daemon stops."""
    state = StateDirectory(tmp_path / "state")
    state.create()
    with Journal(state.journal) as journal:
        retraining = controller.RetrainingProcess(state, "a run")
        retraining.stop()
        assert not list(retraining.look(journal, Registry(state.models, journal, run="a run"), settings(state.path)))
    assert (state.path / "retraining.json").exists(), "it was about to start"
    assert not retraining.running


def test_a_bad_label_file_does_not_end_learning(tmp_path):
    """A line cut in half is told; the thread lives and reads the file when it is whole."""
    state = StateDirectory(tmp_path / "state")
    state.create()
    file = tmp_path / "labels.csv"
    with Journal(state.journal) as journal:
        journal.execute("INSERT INTO recordings VALUES ('r', 'run', 4000, 4, '{}', '2026-01-01', 40000)")
        chosen = settings(state.path)
        chosen = chosen.model_copy(
            update={
                "labels": chosen.labels.model_copy(update={"file": file}),
                "training": chosen.training.model_copy(update={"enabled": False}),
            }
        )
        beside = LearningThread(state, chosen, run="a run")
        file.write_text("recording,start_seconds,end_seconds,label\nr,1")
        try:
            beside.first_model()
            refused = word(beside, notice(NoticeKind.LABEL_REFUSED))
            assert "line 2" in refused.details["why"]
            file.write_text("recording,start_seconds,end_seconds,label\nr,1,2,human\n")
            eventually(lambda: journal.rows("SELECT * FROM labels"), "the label is read")
        finally:
            beside.stop()
