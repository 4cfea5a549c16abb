"""Daemons that live in one state directory one after the other, each killed in the midst of something.

What was told on standard output, and every label for which `gemmed label` said yes, is remembered here and looked for
in the journal after each kill.
"""

from __future__ import annotations

import json
import re
import signal
import sqlite3
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from math import inf
from pathlib import Path
from random import Random
from threading import Timer

import numpy as np

from pipeline.config.schema import Settings
from pipeline.core.events import Block
from pipeline.model.model import Model
from pipeline.reports.verify import Verification, chosen_run, verify
from pipeline.retraining.registry import ModelOrigin, ModelStatus, Registry
from pipeline.runtime.state_dir import StateDirectory
from pipeline.simulation import Site, record
from pipeline.storage.audio import AudioSpool, SoundStore
from pipeline.storage.journal import Journal
from pipeline.storage.labels import LabelSpan as Place
from pipeline.storage.labels import LabelSubmission, give
from pipeline.storage.recordings import recordings_of
from pipeline.storage.schema import MIGRATIONS
from tests.daemon.live import TIMEOUT, Event, Running, give_time_to_learning
from tests.forked import Process

RATE_HZ = 4000
PLENTY, LITTLE = "1 GB", "1 MB"
HASTY, BRISK = 16.0, 4.0
"""Much happens between two kills, and all of it can be verified in seconds."""
_PASSAGES = 12
_PASSING = ("decision", "tick", "paced", "trust_changed")
"""What the journal may forget, the oldest first, when it takes too much space."""
_SETTINGS = """
[array]
rate = "{rate_hz} Hz"

[source]
kind = "simulated"
scene = "walks"
speed = {speed}

[storage]
directory = "state"
recording = "60 s"
piece = "4 s"
budget = "{budget}"
least_free = "1 MB"

[training]
model = "{model}"
new_labels = 1
segments = 60
pause = "0 s"
shadow = "4 s"
worse = 0.99
contamination = 0.99
keep_models = 1000

[web]
enabled = false
"""


Moment = Callable[["Graveyard", Running], float]
"""Waits until something happens; after how many seconds to kill."""


class Graveyard:
    """A state directory, the daemons that were killed in it, and what they had said."""

    def __init__(self, directory: Path, models: list[Path], *, seed: int) -> None:
        self.directory, self._models, self.chance = directory, models, Random(seed)
        self.state = StateDirectory(directory / "state")
        self.kills: Counter[str] = Counter()
        self.told: dict[int, Event] = {}
        self.labels: dict[int, str] = {}
        self._errands: list[Process] = []
        self.was_short_of_space = False
        self.configure()

    @property
    def config(self) -> Path:
        return self.directory / "gemmed.toml"

    def configure(self, *, budget: str = PLENTY, speed: float = HASTY) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self._budget = budget
        self.was_short_of_space |= budget == LITTLE
        self.config.write_text(_SETTINGS.format(rate_hz=RATE_HZ, speed=speed, budget=budget, model=self._models[0]))

    def kill(self, what: str, moment: Moment) -> None:
        """One life, until some seconds after a moment."""
        # Haste leaves little for a process of the lowest priority, such as learning.
        self.configure(budget=self._budget, speed=BRISK if moment is around_promotion else HASTY)
        daemon = Running(self.config)
        killer = Timer(moment(self, daemon), daemon.process.kill)
        killer.start()
        code = daemon.wait()
        killer.join()
        assert code == -signal.SIGKILL, daemon.errors.decode()
        self.kills[what] += 1
        self.remember(daemon)
        self.finish_errands()

    def remember(self, daemon: Running) -> None:
        ids = [event["id"] for event in daemon.events]
        assert ids == sorted(set(ids))
        assert not ids or ids[0] > max(self.told, default=0), "an id was given out twice"
        self.told |= {event["id"]: event for event in daemon.events}

    def send(self, *arguments: str) -> Process:
        """Somebody at another terminal gives a command."""
        command = [*arguments, "--config", str(self.config)]
        errand = Process(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self._errands.append(errand)
        return errand

    def label(self, decision: Event) -> None:
        self.send("label", self.chance.choice(("human", "human_animal")), "--event", str(decision["id"]))

    def finish_errands(self) -> None:
        """Whether the daemon is killed meanwhile or not, commands succeed; a label that is answered is acknowledged."""
        for errand in self._errands:
            answer, complaints = errand.communicate(timeout=TIMEOUT)
            assert errand.returncode == 0, complaints
            if found := re.match(r"label (\d+): (\w+) in", answer):
                self.labels[int(found[1])] = found[2]
        self._errands.clear()

    def query(self, query: str, *values: object) -> list[tuple]:
        """As any program would read the journal."""
        connection = sqlite3.connect(self.state.journal, timeout=TIMEOUT)
        try:
            return connection.execute(query, values).fetchall()
        finally:
            connection.close()

    def has_told(self, kind: str, run: str) -> bool:
        """Also what its helpers told, which is not on standard output."""
        return bool(self.query("SELECT 1 FROM events WHERE type = ? AND run = ?", kind, run))

    def has_learned(self, daemon: Running, run: str) -> bool:
        give_time_to_learning(daemon.process.pid)
        return self.has_told("retraining_finished", run)

    def check_journal(self) -> None:
        """Whole, and everything in it that anybody was told; what is short of space forgets the oldest first."""
        assert self.query("PRAGMA integrity_check") == [("ok",)]
        stored = {
            number: (run, {"time": time, **json.loads(body)})
            for number, run, time, body in self.query("SELECT id, run, time, body FROM events")
        }
        remaining = min((n for n, (_, body) in stored.items() if body["type"] in _PASSING), default=inf)
        for number, event in self.told.items():
            if number in stored:
                run, body = stored[number]
                assert {"time": body["time"], **event} == {"id": number, "run": run, **body}
            else:
                assert self.was_short_of_space, f"lost: {event}"
                assert event["type"] in _PASSING, f"lost: {event}"
                assert number < remaining, f"younger ones are kept: {event}"
        missed = Counter(body["run_that_died"] for _, body in stored.values() if body["type"] == "run_died")
        begun = [run for run, body in stored.values() if body["type"] == "run_started"]
        stopped = {run for run, body in stored.values() if body["type"] == "run_stopped"}
        # The last one can only be missed by the next.
        assert missed == {run: 1 for run in begun[:-1] if run not in stopped}

    def check_learning(self) -> None:
        """All labels are there, and the model that should decide can."""
        assert self.labels.items() <= dict(self.query("SELECT id, label FROM labels")).items()
        with Journal(self.state.journal) as journal:
            registry = Registry(self.state.models, journal)
            champion = registry.champion()
            if champion is not None:
                registry.load(champion.name)

    def recover(self, *, learning: bool) -> None:
        """A life that ends well: it finishes what the others left, and stops when asked to."""
        self.configure(speed=BRISK)
        half_done = list(self.state.path.rglob("*.partial"))
        daemon = Running(self.config)
        run = daemon.told("run_started")["run"]
        decision = daemon.told("decision")
        if learning:
            self.label(decision)
            self.finish_errands()
            daemon.until(lambda event: self.has_learned(daemon, run))
        daemon.until(lambda event: not self._sound(".part", besides=run))
        if learning:
            assert not [path for path in half_done if path.exists()]
        daemon.process.terminate()
        assert daemon.wait() == 0, daemon.errors.decode()
        self.remember(daemon)
        self.check_journal()
        self.check_learning()
        self._check_files(run)

    def _sound(self, suffix: str, *, besides: str) -> set[str]:
        """Files of other runs than one."""
        found = (str(path.relative_to(self.state.sound)) for path in self.state.sound.glob(f"*/*{suffix}"))
        return {name for name in found if not name.startswith(besides)}

    def _check_files(self, run: str) -> None:
        """What earlier runs heard is either listed and there, or neither."""
        listed = {file for (file,) in self.query("SELECT file FROM pieces WHERE file IS NOT NULL")}
        assert self._sound("", besides=run) == {name for name in listed if not name.startswith(run)}

    def verdicts(self) -> list[Verification]:
        with Journal(self.state.journal, read_only=True) as journal:
            names = [name for run in chosen_run(journal, "all") for name in recordings_of(journal, run)]
            return [verify(self.state, journal, name) for name in names]

    def age(self, version: int) -> None:
        """Begin with the journal of an older gemmed, whose last run was killed, too."""
        self.state.create()
        connection = sqlite3.connect(self.state.journal, isolation_level=None)
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("PRAGMA journal_mode = WAL")
        for statement in (one for step in MIGRATIONS[:version] for one in step):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {version}")
        body = {"type": "run_started", "version": "0.0.1"}
        connection.execute(
            "INSERT INTO events (run, time, type, body) VALUES ('old', '2026-01-01T00:00:00.000Z', 'run_started', ?)",
            (json.dumps(body),),
        )
        connection.close()
        self.told[1] = {"id": 1, "run": "old", **body}

    def furnish(self) -> None:
        """Labelled sound enough to learn from, and models to choose from."""
        site = Site(seed=5, rate_hz=RATE_HZ, duration_seconds=6.5)
        with Journal(self.state.journal) as journal:
            spool = AudioSpool(self.state.sound, piece_seconds=4.0, finished=SoundStore(self.state.sound, journal).keep)
            for number in range(_PASSAGES):
                name, label = f"earlier-{number:04d}", ("human", "human_animal")[number % 2]
                sound = record(site, number, label=label).samples
                journal.execute(
                    "INSERT INTO recordings (name, run, rate_hz, sensors, choices, started_at) "
                    "VALUES (?, 'earlier', ?, 4, ?, '2026-01-01T00:00:00+00:00')",
                    (name, RATE_HZ, json.dumps(Settings().choices().as_dict())),
                )
                spool.begin(name, RATE_HZ)
                spool.write(Block(0, sound, np.ones(4, np.bool_)))
                spool.finish()
                number = give(journal, Place(name, 0, sound.shape[1]), LabelSubmission(label, "somebody"))
                self.labels[number] = label
            for model in self._models[1:]:
                Registry(self.state.models, journal).add(
                    Model.load(model), origin=ModelOrigin.GIVEN, status=ModelStatus.RETIRED, why="for later", facts={}
                )


def during_migration(graveyard: Graveyard, daemon: Running) -> float:
    """As soon as somebody else finds the journal locked: now the daemon is renewing it."""
    connection = sqlite3.connect(graveyard.state.journal, isolation_level=None, timeout=0)
    delay = graveyard.chance.choice((0.0, 0.0, 0.001, 0.02))
    _poll(daemon, lambda: _is_locked(connection))
    if not delay:
        daemon.process.kill()  # not even a thread's start later
    connection.close()
    return delay


def _is_locked(connection: sqlite3.Connection) -> bool:
    try:
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError:
        return True
    connection.execute("ROLLBACK")
    return False


def during_start(graveyard: Graveyard, daemon: Running) -> float:
    return graveyard.chance.uniform(0.0, 4.0)


def at_some_event(graveyard: Graveyard, daemon: Running) -> float:
    """After so many lines, while somebody labels."""
    graveyard.label(daemon.told("decision"))
    for _ in range(graveyard.chance.randrange(100)):
        daemon.until(lambda event: True)
    return graveyard.chance.uniform(0.0, 0.1)


def during_retraining(graveyard: Graveyard, daemon: Running) -> float:
    """A label makes it begin, if it has not begun already."""
    run = daemon.told("run_started")["run"]
    graveyard.label(daemon.told("decision"))
    daemon.until(lambda event: graveyard.has_told("retraining_started", run))
    return graveyard.chance.uniform(0.0, 5.0)


def around_swap(graveyard: Graveyard, daemon: Running) -> float:
    """Another model is promoted; the kill comes while that is done, before the daemon knows, or when it just does."""
    daemon.told("decision")
    (name,) = graveyard.chance.choice(
        graveyard.query("SELECT name FROM models WHERE status IN ('retired', 'refused') ORDER BY name")
    )
    promotion = graveyard.send("models", "promote", name)
    when = graveyard.chance.randrange(3)
    if when > 0:
        promotion.wait(TIMEOUT)
    if when > 1:
        daemon.until(lambda event: event["type"] == "model_changed" and event["start_sample"] > 0)
    return graveyard.chance.uniform(0.0, (1.0, 0.6, 0.05)[when])


def during_encoding(graveyard: Graveyard, daemon: Running) -> float:
    daemon.told("decision")
    _poll(daemon, lambda: any(graveyard.state.sound.glob("*/*.partial")))
    return 0.0


def during_pruning(graveyard: Graveyard, daemon: Running) -> float:
    """There is much more than the budget allows."""
    removed = partial(graveyard.query, "SELECT count(*) FROM pieces WHERE removed IS NOT NULL")
    before = removed()
    _poll(daemon, lambda: removed() != before)
    return graveyard.chance.choice((0.0, 0.001, 0.01))


def _poll(daemon: Running, condition: Callable[[], bool]) -> None:
    """What lasts milliseconds is not seen by waiting for the next event."""
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        assert daemon.process.poll() is None, daemon.errors.decode()
        assert time.monotonic() < deadline, f"not seen within {TIMEOUT} s; {daemon.errors.decode()}"


def around_promotion(graveyard: Graveyard, daemon: Running) -> float:
    """A round of learning has ended; its model decides in the shadow, takes over, or has just done so."""
    run = daemon.told("run_started")["run"]
    graveyard.label(daemon.told("decision"))
    daemon.until(lambda event: graveyard.has_learned(daemon, run))
    return graveyard.chance.uniform(0.0, 2.0)


UNDER_LOAD = {
    "at some event": at_some_event,
    "during retraining": during_retraining,
    "around a swap": around_swap,
    "while sound is encoded": during_encoding,
}


def kills_of_every_kind(directory: Path, models: list[Path], *, seed: int, thorough: bool = False) -> dict[str, int]:
    """From an old journal to a full disk: one kill of each of seven kinds, and what must be true after each.

    A thorough one makes ten kills, and waits for models that are learned and take over.
    """
    graveyard = Graveyard(directory, models, seed=seed)
    graveyard.age(graveyard.chance.randrange(1, len(MIGRATIONS)))
    graveyard.kill("during migration", during_migration)
    graveyard.check_journal()
    graveyard.kill("during start", during_start)
    graveyard.check_journal()
    graveyard.furnish()
    moments = UNDER_LOAD | ({"around a promotion": around_promotion} if thorough else {})
    chosen = [*moments, *graveyard.chance.choices(list(moments), k=7 - len(moments) if thorough else 0)]
    graveyard.chance.shuffle(chosen)
    for what in chosen:
        graveyard.kill(what, moments[what])
        graveyard.check_journal()
        graveyard.check_learning()
    graveyard.recover(learning=True)
    verdicts = graveyard.verdicts()
    assert not [one.first_difference or one.why_not for one in verdicts if not one.equal]
    decisions = sum(one.decisions for one in verdicts)
    graveyard.configure(budget=LITTLE)
    graveyard.kill("while sound is removed", during_pruning)
    graveyard.check_journal()
    graveyard.recover(learning=False)
    after = graveyard.verdicts()
    assert not [one.first_difference for one in after if one.different]
    assert any("no longer kept" in (one.why_not or "") for one in after)
    return {**graveyard.kills, "decisions verified": decisions}
