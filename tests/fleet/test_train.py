"""Labels of a fleet and the model that is learned from them, with a real broker: bit by bit, site by site."""

from __future__ import annotations

import json
import signal
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import soundfile
from click.testing import Result
from rich.console import Console
from typer.testing import CliRunner

from pipeline.cli import app
from pipeline.core.errors import UsageError
from pipeline.core.events import Block, RecordingEnded, RecordingStarted
from pipeline.fleet.audio_extract import ArrayLog
from pipeline.fleet.config import read_fleet
from pipeline.fleet.labels import FleetLabelPlace, Taught, give, labels_table
from pipeline.fleet.topology import Places
from pipeline.fleet.train import Lessons, sites_notes, sites_table
from pipeline.model.metrics import rate
from pipeline.model.model import Model
from pipeline.sources.files import FileSource
from pipeline.storage.labels import LabelSpan, LabelSubmission
from pipeline.training.cross_validation import folds_of
from pipeline.training.examples import Examples, RecordingNote
from pipeline.transport.nats import Broker
from pipeline.transport.wire import Parcel, packed
from tests.arrays import ARRAY
from tests.dask_cluster import Cluster
from tests.fleet.broker import Nats
from tests.forked import gemmed

RATE = 4000
PLACES = Places()
# Two arrays at the lake, one in the wood, one on the hill; labels.csv of the fixtures knows who.
WHERE = {"north": ("lake", ("r001", "r003")), "south": ("lake", ("r002", "r004")), "oak": ("wood", ("r005", "r007"))}
ELSE = {"fir": ("hill", ("r006", "r008"))}
# Segments overlap more than usual, or too few were left without a site.
OPTIONS = ("--folds", "2", "--leave-sites-out", "--overlap", "0.85", "--components", "10")
HUMAN = {"r003", "r004", "r007", "r008"}


def sound_of(name: str) -> np.ndarray:
    return soundfile.read(ARRAY / f"{name}.flac", dtype="float32", always_2d=True)[0].T


def word(name: str) -> str:
    return "human" if name in HUMAN else "human_animal"


class Publisher:
    """Sends sound as `gemmed publish` would, in messages of half a second; some of them may be lost, a sensor deaf."""

    def __init__(self, broker: Broker, array: str) -> None:
        self._broker, self._array = broker, array

    def send(self, name: str, sound: np.ndarray, *, lost: tuple[int, ...] = (), deaf: int | None = None) -> None:
        sensors = tuple(str(s + 1) for s in range(len(sound)))
        recording = RecordingStarted(name, RATE, sensors)
        delivered = np.array([s != deaf for s in range(len(sound))])
        step = RATE // 2
        facts: list[object] = [recording]
        facts += [Block(at, sound[:, at : at + step], delivered) for at in range(0, sound.shape[1], step)]
        facts.append(RecordingEnded(name, sound.shape[1]))
        log = PLACES.sound
        for number, fact in enumerate(facts):
            if number not in lost:
                data = packed(Parcel(recording, number, fact))
                id = f"{self._array}-{name}-{number}"
                self._broker.publish_soon(log.subject(self._array), data, stream=log.stream, id=id).result()

    def decide(self, events: list[dict[str, object]]) -> None:
        """Two events a message, and between them messages of those who took the array over, without any."""
        for at in range(0, len(events), 2):
            told = [{"id": at + n + 1, "array": self._array, **event} for n, event in enumerate(events[at : at + 2])]
            data = "".join(json.dumps(event) + "\n" for event in told).encode()
            subject, id = PLACES.events(self._array), f"{self._array}-{at}"
            for what, told_there in (("claim", b""), ("told", data)):
                self._broker.publish(subject, told_there, stream=PLACES.events_stream, id=f"{id}-{what}")


def decision(recording: str, start: int) -> dict[str, object]:
    return {"type": "decision", "recording": recording, "start_sample": start, "stop_sample": start + 2 * RATE}


@pytest.fixture(scope="module")
def nats(tmp_path_factory):
    with Nats(tmp_path_factory.mktemp("nats")) as nats:
        with Broker(nats.access(), name="test") as broker:
            PLACES.make(broker)
            for array, (_, names) in (WHERE | ELSE).items():
                publisher = Publisher(broker, array)
                for name in names:
                    publisher.send(name, sound_of(name))
            Publisher(broker, "south").send("floats", sound_of("r001") * np.float32(0.3))
            Publisher(broker, "south").send("deaf", sound_of("r003"), deaf=1)
            Publisher(broker, "south").send("gap", sound_of("r003"), lost=(7,))
            Publisher(broker, "south").send("forgotten", sound_of("r003"), lost=(0, 1, 2, 3))
            Publisher(broker, "oak").send("../../wide", np.tile(sound_of("r001"), (3, 1)))
            events = [{"type": "recording_started", "recording": "r001"}]
            events += [decision("r001", at) for at in range(0, 4 * RATE, RATE // 2)]
            Publisher(broker, "north").decide([*events, decision("long ago", 0)])
        yield nats


@pytest.fixture
def fleet(nats, tmp_path) -> Path:
    return fleet_file(nats, tmp_path)


def fleet_file(nats: Nats, place: Path) -> Path:
    place.mkdir(exist_ok=True)
    tables = [f'[[arrays]]\nname = "{name}"\nsite = "{site}"\n' for name, (site, _) in (WHERE | ELSE).items()]
    (place / "fleet.toml").write_text(f'[broker]\naddress = "{nats.address}"\n' + "".join(tables))
    return place / "fleet.toml"


@pytest.fixture(autouse=True)
def _as_before():
    """Commands that run in this process leave their handler of SIGTERM behind."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def command(*arguments: object) -> Result:
    """In this process, for each of its own would load everything again."""
    return CliRunner().invoke(app, ["fleet", *map(str, arguments)])


def given(fleet: Path, *arguments: object) -> str:
    done = command("label", fleet, *arguments)
    assert done.exit_code == 0, done.output
    return done.output


def refused(fleet: Path, *arguments: object) -> str:
    done = command("label", fleet, *arguments)
    assert done.exit_code == 1, done.output
    return done.output


def test_the_sound_of_an_event_is_kept_to_the_bit(fleet):
    """All sensors, a few seconds on either side, and a segment of training begins where the event does."""
    given(fleet, "north", "human", "--event", 7, "--who", "ann", "--why", "I saw him")
    (row,) = Taught(fleet.parent / "examples").rows()
    assert (row.array, row.site, row.cut_from, row.event, row.who, row.why) == (
        "north", "lake", "r001", 7, "ann", "I saw him",
    )  # fmt: skip
    assert row.recording == f"lake/north/r001-{RATE // 2}.flac"
    kept, rate_hz = soundfile.read(fleet.parent / "examples" / row.recording, dtype="float32")
    assert rate_hz == RATE
    np.testing.assert_array_equal(kept.T, sound_of("r001")[:, RATE // 2 :])
    # The log has 2.5 s before the event; one whole segment of them is kept.
    assert (row.start_seconds, row.end_seconds) == (2.0, 4.0)
    assert row.span_seconds == (2.5, 4.5)


def test_seconds_of_a_recording_and_what_one_may_do_with_labels(fleet):
    """By seconds; shown; said again or otherwise, which is refused; taken back."""
    given(fleet, "south", "human", "--recording", "r004", "--from", 1.5, "--to", 6.5)
    given(fleet, "south", "human_animal", "--recording", "r002", "--from", 0, "--to", 2, "--new")
    first, second = Taught(fleet.parent / "examples").rows()
    assert (first.recording, first.start_seconds, first.end_seconds) == ("lake/south/r004-2000.flac", 1.0, 6.0)
    assert second.recording == "lake/south/r002-0.flac"
    kept = soundfile.read(fleet.parent / "examples" / second.recording, dtype="float32")[0]
    np.testing.assert_array_equal(kept.T, sound_of("r002")[:, : 5 * RATE])
    shown = given(fleet, "--list")
    assert "human_animal" in shown
    assert "r004" in shown
    assert "says so already" in refused(fleet, "south", "human", "--recording", "r004", "--from", 2, "--to", 4)
    told = refused(fleet, "south", "human_animal", "--recording", "r004", "--from", 0, "--to", 2)
    assert "--take-back 1" in told
    assert "did you mean human?" in refused(fleet, "south", "humen", "--recording", "r004", "--from", 0, "--to", 1)
    assert "is taken back" in given(fleet, "--take-back", 1)
    assert [row.number for row in Taught(fleet.parent / "examples").rows()] == [2]
    assert "there is no label 1" in refused(fleet, "--take-back", 1)


def test_what_people_wrote_is_shown_as_it_is(fleet):
    """Brackets are no commands to the terminal."""
    seconds = ("--recording", "r004", "--from", 1.5, "--to", 6.5)
    given(fleet, "south", "human", *seconds, "--why", "see [/mail]", "--who", "[bold]ann")
    shown = given(fleet, "--list")
    assert "see [/mail]" in shown
    assert "[bold]ann" in shown
    console = Console(width=200)
    with console.capture() as capture:
        console.print(labels_table(Taught(fleet.parent / "examples").rows()))
    assert "see [/mail]" in capture.get()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("nort", "human", "--event", 3), "did you mean north?"),
        (("north", "human", "--event", 99), "there is no such event"),
        (("north", "human", "--event", 1), "it is a recording_started"),
        (("north", "human", "--event", 10), "'long ago' of array 'north' is not in the log"),
        (("north", "human", "--recording", "r01", "--from", 0, "--to", 2), "did you mean r001?"),
        (("north", "human", "--recording", "r001", "--from", 5, "--to", 9), "only 6.5 s of it"),
        (("north", "human", "--recording", "r001", "--from", 5, "--to", 5), "has no length"),
        (("north", "human", "--recording", "r001", "--from", 5), "--recording NAME --from S --to S"),
        (("north", "human", "--recording", "r001", "--from", 0, "--to", "inf"), "--to=inf must be a finite number"),
        (("north", "human", "--recording", "r001", "--from", "nan", "--to", 2), "--from=nan must be a finite number"),
        (
            ("north", "human", "--recording", "r001", "--from", 1.00001, "--to", 1.00002),
            "from 1.00001 to 1.00002 s holds no sample at 4000 Hz; end it at least 0.00025 s after its start",
        ),
        (("north", "human"), "needs a place"),
        (("north", " ", "--event", 3), "LABEL is missing"),
        (("south", "human", "--recording", "forgotten", "--from", 0, "--to", 2), "begins at 1.5 s"),
        (("south", "human", "--recording", "gap", "--from", 2, "--to", 4), "has a gap"),
    ],
)
def test_what_cannot_be_labelled_is_said(fleet, arguments, told):
    """In one line, and nothing is written."""
    assert told in refused(fleet, *arguments)
    assert not (fleet.parent / "examples" / "labels.csv").exists()


def test_a_piece_ends_where_the_log_has_a_gap(fleet):
    """Message 7 is lost, from 3 to 3.5 s: what is labelled before and after it is whole."""
    given(fleet, "south", "human", "--recording", "gap", "--from", 1, "--to", 3)
    given(fleet, "south", "human", "--recording", "gap", "--from", 4, "--to", 6)
    before, after = Taught(fleet.parent / "examples").rows()
    read = [soundfile.read(fleet.parent / "examples" / row.recording, dtype="float32")[0].T for row in (before, after)]
    np.testing.assert_array_equal(read[0], sound_of("r003")[:, : 3 * RATE])
    np.testing.assert_array_equal(read[1], sound_of("r003")[:, 4 * RATE :])


def test_sound_that_flac_cannot_hold(fleet):
    """Floats, twelve sensors, and a sensor that did not deliver, who is masked for whoever reads the file."""
    given(fleet, "south", "human", "--recording", "floats", "--from", 0, "--to", 2)
    given(fleet, "south", "human", "--recording", "deaf", "--from", 0, "--to", 2)
    given(fleet, "oak", "human", "--recording", "../../wide", "--from", 0, "--to", 2)
    examples = fleet.parent / "examples"
    floats, deaf, wide = Taught(examples).rows()
    kept = soundfile.read(examples / floats.recording, dtype="float32")[0].T
    np.testing.assert_array_equal(kept, (sound_of("r001") * np.float32(0.3))[:, : 5 * RATE])
    blocks = [fact for fact in FileSource(examples / deaf.recording) if isinstance(fact, Block)]
    assert all(block.delivered.tolist() == [True, False, True, True] for block in blocks)
    assert wide.recording == "wood/oak/_.._wide-0.wav"
    assert soundfile.read(examples / wide.recording, dtype="float32")[0].shape == (5 * RATE, 12)


def test_two_who_label_at_once_lose_nothing(nats, tmp_path):
    """Whoever comes second waits for the first."""
    array = read_fleet(fleet_file(nats, tmp_path)).array("oak")
    with Broker(nats.access(), name="test") as broker:
        log = ArrayLog(broker, PLACES.sound, "oak")
        moments = [LabelSpan("r005", n * 100, n * 100 + 100) for n in range(16)]
        cuts = [log.cut(log.find("r005"), one, around_seconds=0, step=1) for one in moments]
    taught = Taught(tmp_path / "examples")
    with ThreadPoolExecutor(8) as pool:
        pairs = zip(cuts, moments, strict=True)
        list(pool.map(lambda pair: taught.add(array, *pair, LabelSubmission("human", "ann"), event=None), pairs))
    assert sorted(row.number for row in taught.rows()) == list(range(1, 17))
    assert len({row.recording for row in taught.rows()}) == 16


@pytest.mark.parametrize("n_folds", [2, 3, 5])
def test_pieces_of_one_recording_are_in_one_fold(n_folds):
    """However eight recordings are cut into pieces, no two pieces of one are ever on both sides."""
    for cut in combinations(range(8), 4):
        # Those that are cut have three pieces, the others one.
        wholes = [whole for whole in range(8) for _ in range(3 if whole in cut else 1)]
        notes = tuple(RecordingNote(f"p{n}", {}, 0, (0, 0), str(n), cut_from=f"r{w}") for n, w in enumerate(wholes))
        recording = np.repeat(np.arange(len(wholes)), 2)
        of = np.array(wholes)[recording]
        nothing = np.zeros((len(recording), 1, 1), np.float32)
        examples = Examples(nothing, nothing, nothing[:, :, 0] == 0, recording, recording, of % 2, notes, ("a", "b"))
        folds = folds_of(examples, n_folds=n_folds, seed=0)
        assert all(len(set(folds[of == whole])) == 1 for whole in range(8))
        assert folds.max() > 0
        np.testing.assert_array_equal(examples.unit, of)


def test_two_pieces_of_one_recording_are_not_two_recordings():
    """A class that was heard in one recording only cannot be judged by another."""
    notes = tuple(RecordingNote(f"p{n}", {}, 0, (0, 0), str(n), cut_from=f"r{max(n, 1)}") for n in range(4))
    nothing, label = np.zeros((4, 1, 1), np.float32), np.array([0, 0, 1, 1])
    examples = Examples(nothing, nothing, nothing[:, :, 0] == 0, np.arange(4), np.arange(4), label, notes, ("a", "b"))
    with pytest.raises(UsageError, match="must be at least 2"):
        examples.check()


@pytest.fixture(scope="module")
def taught(nats, tmp_path_factory) -> tuple[Path, str]:
    """Eight recordings of four arrays at three sites, one of them in two pieces; and what training them says."""
    fleet = fleet_file(nats, tmp_path_factory.mktemp("taught"))
    chosen, examples = read_fleet(fleet), Taught(fleet.parent / "examples")
    with Broker(nats.access(), name="test") as broker:
        for array, (_, names) in (WHERE | ELSE).items():
            for name in names:
                halves = [(0, 3), (3.5, 6.5)] if name == "r001" else [(0, 6.5)]
                for begin, end in halves:
                    place = FleetLabelPlace(None, name, begin, end)
                    give(chosen, chosen.array(array), broker, examples, place, LabelSubmission(word(name), "ann"))
    model = fleet.parent / "model"
    done = gemmed("fleet", "train", str(fleet), "--model", str(model), *OPTIONS, "--jobs", "1")
    assert done.returncode == 0, done.stderr
    return fleet, done.stdout


def test_the_figures_of_sites_are_those_of_their_decisions(taught):
    """Counted by hand from what models without a recording decided about it."""
    fleet, told = taught
    model = Model.load(fleet.parent / "model")
    noted = model.notes["sites"]
    assert [one["site"] for one in noted["sites"]] == ["hill", "lake", "wood"]
    rows = Taught(fleet.parent / "examples").rows()
    site_of = {row.recording: row.site for row in rows}
    whole_of = {row.recording: f"{row.array}/{row.cut_from}" for row in rows}
    names = [note["recording"] for note in model.notes["recordings"]]
    for one in noted["sites"]:
        hits, wholes = [], []
        for place, truth, odds in zip(model.memory.recording, model.memory.label, model.held_out.log_odds, strict=True):
            if site_of[names[place]] == one["site"] and np.isfinite(odds):
                hits.append((odds > 0) == bool(truth))
                wholes.append(whole_of[names[place]])
        assert one["accuracy"] == rate(hits, wholes).as_dict()
        assert one["recordings"] == len(set(wholes)) == (4 if one["site"] == "lake" else 2)
        assert sum(one["segments"].values()) >= len(hits)
        assert 0 <= one["contamination"] <= 1
        assert one["accuracy_of_strangers"]["recordings"] == one["recordings"]
        assert one["site"] in told
    values = {one["site"]: one["accuracy"]["value"] for one in noted["sites"]}
    assert noted["accuracy"]["mean"] == pytest.approx(np.mean(list(values.values())), abs=1e-6)
    assert values[noted["accuracy"]["worst"]] == min(values.values())
    assert model.notes["validation"]["recordings"] == 8
    assert sites_notes(model, Lessons(tuple(rows)), {})["sites"][0]["accuracy"] == noted["sites"][0]["accuracy"]


def test_names_of_sites_are_shown_as_they_are(taught):
    fleet, _ = taught
    model = Model.load(fleet.parent / "model")
    sites = [one | {"site": f"{one['site']} [/of]"} for one in model.notes["sites"]["sites"]]
    worst = model.notes["sites"]["accuracy"] | {"worst": "[/worst]"}
    console = Console(width=200)
    with console.capture() as capture:
        console.print(sites_table(replace(model, notes=model.notes | {
            "sites": model.notes["sites"] | {"sites": sites, "accuracy": worst}
        })))  # fmt: skip
    assert all(one["site"] in capture.get() for one in sites)
    assert "[/worst]: " in capture.get()


def test_a_cluster_learns_the_same_model(taught, tmp_path):
    """Who does the work does not matter."""
    fleet, _ = taught
    with Cluster(tmp_path / "dask") as cluster:
        cluster.worker()
        options = (*OPTIONS, "--engine", "dask", "--scheduler", cluster.address)
        done = gemmed("fleet", "train", str(fleet), "--model", str(tmp_path / "model"), *options)
        assert done.returncode == 0, done.stderr
    assert Model.load(tmp_path / "model").identity == Model.load(fleet.parent / "model").identity


def test_what_cannot_be_learned_is_said(fleet):
    """No labels; too few sites; an array of another kind, and a missing file, by name."""

    def train(*options: str) -> str:
        done = command("train", fleet, "--model", fleet.parent / "m", *options)
        assert done.exit_code == 1, done.output
        return done.output

    assert "holds no labels" in train()
    given(fleet, "north", "human", "--recording", "r003", "--from", 0, "--to", 3)
    given(fleet, "south", "human", "--recording", "r004", "--from", 0, "--to", 3)
    assert "at least 3 sites, there are 1" in train("--leave-sites-out")
    given(fleet, "oak", "human", "--recording", "../../wide", "--from", 0, "--to", 3)
    assert "array 'oak' has 12 sensors at 4000 Hz, others have 4" in train()
    (fleet.parent / "examples" / "wood" / "oak" / "_.._wide-0.wav").unlink()
    assert "--take-back 3" in train()
    assert not (fleet.parent / "m").exists()
