"""Settings: what may be written, what comes of it, and what is said of the rest."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.config.schema import (
    Array,
    Buffer,
    Decisions,
    FolderSourceSettings,
    LabelSettings,
    LogSettings,
    Mqtt,
    PcmSourceSettings,
    Settings,
    SimulatedSourceSettings,
    SoundcardSourceSettings,
    Storage,
    Token,
    Training,
    Web,
    Webhook,
    as_toml,
    defaults_of,
    differences,
    effective,
    read_settings,
    without_secrets,
)
from pipeline.core.choices import FUSIONS, Choices
from pipeline.core.errors import SettingsError
from pipeline.core.units import DURATION, RATE, SIZE
from pipeline.simulation.footsteps import SURFACES
from pipeline.sources._wav import SAMPLE_BYTES


@pytest.fixture
def written(tmp_path):
    """A file of settings with a text."""

    def write(text: str) -> Path:
        path = tmp_path / "gemmed.toml"
        path.write_text(text)
        return path

    return write


def refusal(path: Path) -> str:
    with pytest.raises(SettingsError) as error:
        read_settings(path)
    return str(error.value).removeprefix(f"{path}: ")


@pytest.mark.parametrize(
    ("unit", "text", "value"),
    [
        (DURATION, "250 ms", 0.25),
        (DURATION, "30 s", 30.0),
        (DURATION, "5 min", 300.0),
        (DURATION, "1.5h", 5400.0),
        (DURATION, "7 d", 604800.0),
        (SIZE, "20 GB", 20_000_000_000),
        (SIZE, "0.1 GB", 100_000_000),
        (SIZE, "500 MB", 500_000_000),
        (SIZE, "2 GiB", 2_147_483_648),
        (RATE, "16 kHz", 16_000),
        (RATE, "44.1 kHz", 44_100),
        (RATE, "16000 Hz", 16_000),
    ],
)
def test_quantities_are_read(unit, text, value):
    """Decimal and binary units, exactly."""
    assert unit.read(text) == value
    assert type(unit.read(text)) is type(value)


@pytest.mark.parametrize(
    ("unit", "value", "text"),
    [
        (DURATION, 0.25, "250 ms"),
        (DURATION, 90.0, "90 s"),
        (DURATION, 21600.0, "6 h"),
        (DURATION, 0.0, "0 s"),
        (DURATION, 0.00012, "0.00012 s"),
        (SIZE, 20 * 10**9, "20 GB"),
        (SIZE, 2**30, "1 GiB"),
        (SIZE, 1_000_001, "1000001 B"),
        (RATE, 11_025, "11025 Hz"),
    ],
)
def test_quantities_are_written_as_people_do(unit, value, text):
    assert unit.written(value) == text


@given(st.floats(0, 1e9, allow_nan=False))
def test_every_duration_survives_writing(seconds):
    assert DURATION.read(DURATION.written(seconds)) == seconds


@given(st.integers(0, 10**15))
def test_every_size_survives_writing(size):
    assert SIZE.read(SIZE.written(size)) == size


def test_without_a_file_everything_has_a_default(tmp_path, monkeypatch):
    """State goes to the working directory; nothing else differs from what the models say."""
    monkeypatch.chdir(tmp_path)
    settings = read_settings(None)
    assert settings.path is None
    assert settings.storage.directory == tmp_path / "gemmed-state"
    assert settings == Settings(storage=Storage(directory=tmp_path / "gemmed-state"))
    assert settings.choices() == Choices()


def test_a_file_gives_what_it_says(written, tmp_path):
    """Units are resolved, paths are relative to the file, the rest is default."""
    path = written(
        """
        [array]
        sensors = 6
        rate = "8 kHz"
        mask = [2, 6]
        [source]
        kind = "folder"
        path = "incoming"
        settle = "500 ms"
        [decisions]
        confidence = 0.7
        [storage]
        directory = "/var/lib/gemmed"
        budget = "1 GiB"
        [training]
        recordings = "old"
        labels = "old/labels.csv"
        classes = ["person", "animal"]
        """
    )
    settings = read_settings(path)
    assert settings.path == path
    assert (settings.array.sensors, settings.array.rate_hz, settings.array.mask) == (6, 8000, (2, 6))
    assert settings.source == FolderSourceSettings(path=tmp_path / "incoming", settle_seconds=0.5)
    assert settings.storage == Storage(directory=Path("/var/lib/gemmed"), budget_bytes=2**30)
    assert settings.training.labels == tmp_path / "old" / "labels.csv"
    assert settings.training.classes == ("person", "animal")
    assert settings.choices() == Choices(least_confidence=0.7, masked=(2, 6))


def test_the_environment_changes_nothing(written, monkeypatch):
    """Neither by plain nor by nested names, as some settings libraries have it."""
    path = written("")
    before = read_settings(path)
    for name in ("LOG", "LOG__LEVEL", "GEMMED_LOG__LEVEL", "level"):
        monkeypatch.setenv(name, "error")
    assert read_settings(path) == before


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[storage]\nbudget = 20", 'line 2: storage.budget = 20 needs a unit; write "20 GB"'),
        ("[array]\nrate = 16000", 'line 2: array.rate = 16000 needs a unit; write "16000 Hz"'),
        ("[source]\nlength = 30", 'line 2: source.length = 30 needs a unit; write "30 s"'),
        (
            '[array]\nrate = "16 khz"',
            'line 2: array.rate = "16 khz" must be a number and a unit (Hz, kHz), a whole number of Hz; '
            'write for example "16 kHz"',
        ),
        (
            '[source]\nstuck = "half an hour"',
            'line 2: source.stuck = "half an hour" must be a number and a unit (s, ms, min, h, d); '
            'write for example "30 s"',
        ),
        ('[storage]\nbudgt = "20 GB"', "line 2: budgt in [storage] is not known; did you mean budget?"),
        ("[source]\nstuck_seconds = 3", "line 2: stuck_seconds in [source] is not known; did you mean stuck?"),
        ("[storge]", "line 1: storge is not known; did you mean storage?"),
        (
            'path = "x"',
            "line 1: path is not known; known are array, source, buffer, decisions, storage, labels, training, web, "
            "notifications, mqtt, webhook, broker, publish, log",
        ),
        ("storage = 3", "line 1: storage = 3 must be a table; write [storage] and its settings below"),
        (
            '[source]\nkind = "sondcard"',
            'line 2: source.kind = "sondcard" must be one of simulated, pcm, soundcard, folder, stream; write one of '
            "them",
        ),
        ('[source]\nkind = "folder"', 'source.path is missing; write path = "..." below [source]'),
        (
            '[source]\nkind = "pcm"\naddress = "udp://x:1"',
            'line 3: source.address = "udp://x:1" must be "-", "tcp://host:port" or "tcp://host:port?listen"; '
            "write it like one of them",
        ),
        (
            '[source]\nkind = "soundcard"\ndevice = 1.5',
            "line 3: source.device = 1.5 must be text in quotes or a whole number; correct it",
        ),
        (
            '[source]\nretry_first = "2 min"',
            'line 2: source.retry_first = "2 min" must be at most retry_most = "1 min"; lower it',
        ),
        (
            '[source]\ntick = "1 min"',
            'line 2: source.tick = "1 min" must be at most stuck = "30 s", which is counted in ticks; lower it',
        ),
        ("[array]\nsensors = 0", "line 2: array.sensors = 0 must be at least 1; 4 is usual"),
        ('[array]\nsensors = "4"', 'line 2: array.sensors = "4" must be a whole number; 4 is usual'),
        (
            "[array]\nmask = [9]",
            "line 2: array.mask = [9] must name sensors from 1 to 4, each once; correct the numbers",
        ),
        ('[array]\nmask = [1, "b"]', 'line 2: array.mask = [1, "b"] must be a list of whole numbers; correct it'),
        (
            '[storage]\nrecording = "30 s"',
            'line 2: storage.recording = "30 s" must be at least 1 min; "6 h" is usual',
        ),
        (
            '[storage]\nrecording = "1 min"\npiece = "2 min"',
            'line 3: storage.piece = "2 min" must be at most recording = "1 min"; lower it',
        ),
        (
            '[storage]\ndirectory = ""',
            'line 2: storage.directory = "" must not be empty; leave the line out for the default',
        ),
        ("[decisions]\nhealth = 1", "line 2: decisions.health = 1 must be true or false; true is usual"),
        ("[decisions]\nalpha = nan", "line 2: decisions.alpha = nan must be finite; 0.01 is usual"),
        (
            '[training]\nlabels = "a.csv"',
            'line 2: training.labels = "a.csv" needs recordings, which they label; add recordings or use [labels] file',
        ),
        (
            '[training]\nrecordings = "a"',
            'line 2: training.recordings = "a" needs labels, to learn from them; add labels',
        ),
        (
            '[training]\nmodel = "m"\nrecordings = "a"\nlabels = "l"',
            'line 2: training.model = "m" and recordings are two beginnings; leave out one of them',
        ),
        (
            '[training]\nclasses = ["a", "a"]',
            'line 2: training.classes = ["a", "a"] must be two or more different names; write for example '
            '["person", "animal"]',
        ),
        (
            '[log]\nlevel = "loud"',
            'line 2: log.level = "loud" must be one of debug, info, warning, error; "info" is usual',
        ),
        ("array = {sensors = 99}", "array.sensors = 99 must be at most 64; 4 is usual"),
        (
            '[mqtt]\naddress = "http://x:1"',
            'line 2: mqtt.address = "http://x:1" must be an address; write for example "mqtt://host:1883" or '
            '"mqtts://host:8883"',
        ),
        (
            '[mqtt]\naddress = "mqtt://x/y"',
            'line 2: mqtt.address = "mqtt://x/y" must end with the port; leave out the rest',
        ),
        (
            '[mqtt]\naddress = "mqtt://me:swordfish@x:1"',
            "line 2: mqtt.address must not contain a user or a password; they have settings of their own",
        ),
        (
            '[webhook]\nurl = "https://me:swordfish@x/hook"',
            "line 2: webhook.url must not contain a user or a password; they have settings of their own",
        ),
        (
            '[webhook]\nurl = "https://x:port/"',
            'line 2: webhook.url = "https://x:port/" must be an address; write for example "http://host:80" or '
            '"https://host:443"',
        ),
        (
            '[webhook]\nurl = "https://x/#a"',
            'line 2: webhook.url = "https://x/#a" must not have a part behind #; leave it out',
        ),
        (
            '[mqtt]\nname = "a/b"',
            'line 2: mqtt.name = "a/b" must be letters, digits, - and _; write for example "field-1"',
        ),
        (
            '[mqtt]\nevents = ["decisions"]',
            'line 2: mqtt.events = ["decisions"] has decisions, which is no type of event; did you mean decision?',
        ),
        (
            '[mqtt]\npassword_file = "p"',
            'line 2: mqtt.password_file = "p" needs user, whose password it is; add user',
        ),
        (
            '[mqtt]\naddress = "mqtt://x"\nca_file = "ca"',
            'line 3: mqtt.ca_file = "ca" needs an address that begins with "mqtts://"; correct mqtt.address',
        ),
        (
            '[webhook]\nurl = "http://x"\nca_file = "ca"',
            'line 3: webhook.ca_file = "ca" needs a url that begins with "https://"; correct webhook.url',
        ),
        (
            '[webhook]\nretry_first = "2 min"',
            'line 2: webhook.retry_first = "2 min" must be at most retry_most = "1 min"; lower it',
        ),
        (
            '[notifications]\nquiet_hours = "22-6"',
            'line 2: notifications.quiet_hours = "22-6" must be two different times of day; write for example '
            '"22:00-06:00"',
        ),
        (
            '[notifications]\nquiet_hours = "06:00-06:00"',
            'line 2: notifications.quiet_hours = "06:00-06:00" must be two different times of day; write for example '
            '"22:00-06:00"',
        ),
        (
            '[notifications]\nsummary_at = "24:00"',
            'line 2: notifications.summary_at = "24:00" must be a time of day from 00:00 to 23:59; write for example '
            '"07:00"',
        ),
        (
            '[notifications]\nzone = "Berlin"',
            'line 2: notifications.zone = "Berlin" must be a time zone; write for example "Europe/Berlin"',
        ),
        (
            '[notifications]\nlink = "https://x/?a=b"',
            'line 2: notifications.link = "https://x/?a=b" must not have a part behind ?; leave it out',
        ),
        (
            "[notifications]\nattach = true",
            "line 2: notifications.attach = true needs urls_file, the services that get the clip; add urls_file",
        ),
        ("[mqtt]\nqueue = 0", "line 2: mqtt.queue = 0 must be at least 1; 100000 is usual"),
    ],
)
def test_a_problem_is_told_with_its_cure(written, text, told):
    """The place, the value, the rule and what to write instead."""
    assert refusal(written(text)) == told


def test_all_problems_are_told_at_once_in_the_order_of_the_file(written):
    """One run of the daemon per mistake would be too many."""
    told = refusal(written('[log]\nlevel = "loud"\n\n[array]\nsensors = 0\nrate = 8\nsensor = 4\n'))
    assert [line.split(":")[0] for line in told.splitlines()] == [
        "4 settings cannot be used",
        "  line 2",
        "  line 5",
        "  line 6",
        "  line 7",
    ]


def test_what_is_shown_has_no_secrets():
    """Neither how somebody is known, nor the part of an address that only its owner knows."""
    token = Token(name="ada", hash=f"sha256:{'ab' * 32}")
    settings = Settings(web=Web(tokens=(token,)), webhook=Webhook(url="https://hooks.example:8443/T0/B0/secret?key=1"))
    shown = without_secrets(effective(settings))
    assert shown["web"]["tokens"] == [{"name": "ada", "role": "viewer"}]
    assert shown["webhook"]["url"] == "https://hooks.example:8443/..."
    others = effective(settings)
    assert {name: table for name, table in shown.items() if name not in ("web", "webhook")} == {
        name: table for name, table in others.items() if name not in ("web", "webhook")
    }
    (changed, other) = differences(Settings(), settings)
    assert "secret" not in str(changed) + str(other)
    assert "abab" not in str(changed) + str(other)


def test_a_missing_file_is_told(tmp_path):
    path = tmp_path / "none.toml"
    assert refusal(path) == f"{path} cannot be read: No such file or directory; give the file of settings by --config"


def test_a_file_that_is_not_utf8_is_told(tmp_path):
    path = tmp_path / "latin.toml"
    path.write_bytes("# Geräusche\n".encode("latin-1"))
    assert refusal(path) == f"{path} is not UTF-8 at byte 5; save it as UTF-8"


def test_a_mistake_of_syntax_is_told_with_its_place(written):
    assert "(at line 2, column 9)" in refusal(written("[array]\nsensors 4\n"))


@pytest.mark.parametrize(
    ("source", "overload", "resolved"),
    [
        (SoundcardSourceSettings(), "auto", "drop_oldest"),
        (PcmSourceSettings(), "auto", "drop_oldest"),
        (SimulatedSourceSettings(), "auto", "wait"),
        (FolderSourceSettings(path="in"), "auto", "wait"),
        (SimulatedSourceSettings(), "drop_oldest", "drop_oldest"),
        (PcmSourceSettings(), "wait", "wait"),
    ],
)
def test_who_cannot_wait_loses_the_oldest(source, overload, resolved):
    assert Settings(source=source, buffer=Buffer(overload=overload)).overload == resolved


@pytest.mark.parametrize(
    ("table", "key", "known"),
    [
        (Decisions, "fusion", FUSIONS),
        (PcmSourceSettings, "format", SAMPLE_BYTES),
        (SimulatedSourceSettings, "surface", SURFACES),
    ],
)
def test_words_are_those_that_the_parts_know(table, key, known):
    """Settings name them again so as not to import what is slow to import."""
    assert set(get_args(table.model_fields[key].annotation)) == set(known)


def test_reading_settings_imports_nothing_slow():
    """A command that only reads settings answers at once."""
    code = "import sys, pipeline.config.schema as s; s.read_settings(None); print('numpy' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout == "False\n"


@pytest.mark.parametrize(
    ("address", "user", "clear"),
    [
        ("mqtt://10.0.0.1", "me", True),
        ("mqtt://broker.example", "me", True),
        ("mqtts://10.0.0.1", "me", False),
        ("mqtt://10.0.0.1", None, False),
        ("mqtt://127.0.0.1:1883", "me", False),
        ("mqtt://[::1]", "me", False),
        ("mqtt://localhost", "me", False),
    ],
)
def test_a_password_in_the_clear_is_noticed(address, user, clear):
    assert Mqtt(address=address, user=user).in_the_clear == clear


def test_outputs_can_be_changed_while_the_daemon_runs():
    before = Settings()
    after = Settings(mqtt=Mqtt(address="mqtt://x"), webhook=Webhook(url="https://x/"))
    assert {(one.key, one.takes_effect) for one in differences(before, after)} == {
        ("mqtt.address", "now"),
        ("webhook.url", "now"),
    }


def test_effective_settings_are_as_one_would_write_them():
    shown = effective(Settings(source=SoundcardSourceSettings(device="USB"), labels=LabelSettings(file="labels.csv")))
    assert shown["array"] == {"sensors": 4, "rate": "16 kHz", "mask": [], "positions": []}
    assert shown["source"] == {
        "kind": "soundcard",
        "stuck": "30 s",
        "retry_first": "1 s",
        "retry_most": "1 min",
        "tick": "1 s",
        "device": "USB",
    }
    assert shown["labels"] == {"file": "labels.csv", "names": {}}
    assert shown["training"]["model"] is None


def test_differences_say_when_they_are_felt():
    """Now, with the next recording, or only after a restart."""
    before = Settings()
    after = Settings(
        array=Array(mask=(3,)),
        source=PcmSourceSettings(),
        decisions=Decisions(alpha=0.02),
        storage=Storage(budget_bytes=10**9, piece_seconds=5.0, directory="elsewhere"),
        labels=LabelSettings(file="labels.csv"),
        training=Training(new_labels=5, model="starter"),
        log=LogSettings(level="debug", format="json"),
    )
    found = {one.key: (one.before, one.after, one.takes_effect) for one in differences(before, after)}
    assert found.pop("source.kind") == ("simulated", "pcm", "restart")
    assert {effect for key, (*_, effect) in found.items() if key.startswith("source.")} == {"restart"}
    assert {key: value for key, value in found.items() if not key.startswith("source.")} == {
        "array.mask": ([], [3], "now"),
        "decisions.alpha": (0.01, 0.02, "next recording"),
        "storage.directory": ("gemmed-state", "elsewhere", "restart"),
        "storage.budget": ("20 GB", "1 GB", "now"),
        "storage.piece": ("10 s", "5 s", "restart"),
        "labels.file": (None, "labels.csv", "now"),
        "training.new_labels": (20, 5, "now"),
        "training.model": (None, "starter", "restart"),
        "log.level": ("info", "debug", "now"),
        "log.format": ("auto", "json", "restart"),
    }
    assert differences(after, after) == []


durations = st.floats(60, 1e7, allow_nan=False)
short = st.floats(0.01, 1, allow_nan=False)
texts = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
paths = st.lists(st.text("abcäß \"'\\#=\t\x7f", min_size=1), min_size=1, max_size=3).map(
    lambda names: Path("/", *names)
)
times = {
    "stuck_seconds": durations,
    "retry_first_seconds": short,
    "retry_most_seconds": durations,
    "tick_seconds": short,
}
sources = st.one_of(
    st.builds(
        SimulatedSourceSettings,
        **times,
        seed=st.integers(0, 2**31),
        faults=texts,
        fault_share=st.floats(0, 0.99),
        speed=st.floats(0, 1e6),
        seconds=st.none() | durations,
        surface=st.sampled_from(sorted(SURFACES)),
    ),
    st.builds(
        PcmSourceSettings,
        **times,
        address=st.sampled_from(["-", "tcp://[::1]:5000?listen"]),
        allow_remote=st.booleans(),
    ),
    st.builds(SoundcardSourceSettings, **times, device=st.none() | texts | st.integers(0, 99)),
    st.builds(FolderSourceSettings, **times, path=paths, pattern=st.none() | texts, resample=st.booleans()),
)
all_settings = st.builds(
    Settings,
    array=st.builds(
        Array,
        sensors=st.integers(8, 64),
        rate_hz=st.integers(2000, 96000),
        mask=st.lists(st.integers(1, 8), unique=True).map(tuple),
    ),
    source=sources,
    buffer=st.builds(Buffer, seconds=st.floats(1, 3600), overload=st.sampled_from(["auto", "wait", "drop_oldest"])),
    decisions=st.builds(Decisions, alpha=st.floats(1e-12, 0.99), health=st.booleans()),
    storage=st.builds(
        Storage,
        directory=paths,
        budget_bytes=st.integers(10**6, 10**15),
        recording_seconds=durations,
        piece_seconds=st.floats(1, 60),
    ),
    labels=st.builds(LabelSettings, file=st.none() | paths),
    training=st.builds(
        Training, model=st.none() | paths, classes=st.none() | st.just(("a", "b")), interval_seconds=durations
    ),
    log=st.builds(LogSettings, level=st.sampled_from(["debug", "error"])),
)


@given(settings=all_settings)
def test_written_settings_are_read_back_the_same(settings, tmp_path_factory):
    """Whatever they are."""
    path = tmp_path_factory.getbasetemp() / "round.toml"
    path.write_bytes(as_toml(settings).encode())
    again = read_settings(path)
    assert again == settings
    assert differences(settings, again) == []


def test_defaults_are_those_of_the_source_that_was_chosen(written):
    chosen = read_settings(
        written('[source]\nkind = "folder"\npath = "drop"\nsettle = "9 s"\n[log]\nlevel = "debug"\n')
    )
    usual = defaults_of(chosen)
    assert usual.source == FolderSourceSettings(path=chosen.source.path)
    assert (usual.log, usual.storage) == (LogSettings(), chosen.storage)


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("", "http://127.0.0.1:8780"),
        ('address = "192.168.1.7:80"\n{tokens}', "http://192.168.1.7:80"),
        ('address = "0.0.0.0:8780"\nhosts = ["field1.example.org", "x"]\n{tokens}', "http://field1.example.org:8780"),
        ('address = "[::]:8780"\nhosts = ["fd00::7"]\n{tokens}', "http://[fd00::7]:8780"),
        (
            'address = "0.0.0.0:443"\nhosts = ["a.example"]\ncertificate = "c"\nkey = "k"\n{tokens}',
            "https://a.example:443",
        ),
    ],
)
def test_links_begin_with_an_address_that_others_can_reach(written, text, url):
    tokens = f'tokens = [{{name = "a", hash = "sha256:{"0" * 64}"}}]'
    assert read_settings(written("[web]\n" + text.format(tokens=tokens))).web.public_url == url
