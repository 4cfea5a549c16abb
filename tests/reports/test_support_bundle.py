"""The support bundle: planted secrets are nowhere in it, what helps is."""

from __future__ import annotations

import json
import os
import shutil
import socket
import tomllib
import zipfile
from pathlib import Path

import pytest

from pipeline.config.schema import FolderSourceSettings, PcmSourceSettings, Settings, Storage, read_settings
from pipeline.reports.redaction import Redactor
from pipeline.reports.support_bundle import about, write_bundle

# Put together, because no file of the project names the home of anybody.
HOMES = Path("/", "home")
HOME, HOST = Path("/srv/people/ada"), "fieldbox7"
SECRETS = [
    "tok3n-abc",
    "hunter2!",
    "s3cr3t",
    "k3y-from-a-list",
    "nested-credential",
    "bearer-abcdef",
    "Ada Lovelace",
    "ada.lovelace@example.org",
    "Grace Hopper",
    "198.51.100.23",
    "2001:db8::17",
    "people/ada",
    "gracehome",
    "fieldbox7",
    "MIIEvQIBADANBg",
    "url-pass",
]
EVENTS = """\
{"type": "label", "who": "Ada Lovelace", "label": "person", "note": "asked Grace Hopper, hunter2!"}
{"type": "label", "who": "Grace Hopper", "contact": "ada.lovelace@example.org"}
{"type": "peer", "from": "198.51.100.23", "also": "[2001:db8::17]:5000", "host": "FieldBox7.example"}
"""
STATUS = {
    "api_token": "tok3n-abc",
    "mqtt": {"user": "gemmed", "password": "hunter2!", "keys": ["k3y-from-a-list"]},
    "credentials": {"deep": {"deeper": "nested-credential"}},
    "source": "tcp://127.0.0.1:5000",
    "labelled_by": {"Ada Lovelace": 3},
    "segments": 12,
}
LOGS = f"""\
2026-05-01T10:00:00Z info    webhook sent url=https://gemmed:url-pass@example.org/in secret=s3cr3t
2026-05-01T10:00:01Z info    Authorization: Bearer bearer-abcdef
2026-05-01T10:00:02Z warning retry who="Grace Hopper" path=/srv/people/ada/x.wav peer=198.51.100.23:80
2026-05-01T10:00:03Z error   login with tok3n-abc failed on fieldbox7
-----BEGIN PRIVATE KEY-----
MIIEvQIBADANBg
-----END PRIVATE KEY-----
read {HOMES}/gracehome/notes, listening on 127.0.0.1, ::1 and 0.0.0.0
"""


@pytest.fixture
def bundle(tmp_path):
    """The members of a bundle into which secrets were given."""
    sections = {"status.json": json.dumps(STATUS), "events.jsonl": EVENTS, "log.txt": LOGS.encode()}
    out = tmp_path / "bundle.zip"
    write_bundle(out, sections | {"sound.raw": b"\xff\x00hunter2!"}, Redactor(home=HOME, host=HOST))
    with zipfile.ZipFile(out) as packed:
        assert packed.testzip() is None
        return {name: packed.read(name).decode() for name in packed.namelist()}


@pytest.mark.parametrize("secret", SECRETS)
def test_a_planted_secret_is_nowhere(bundle, secret):
    """Neither where its name tells what it is, nor where it is repeated without one, nor as JSON escapes it."""
    assert any(secret.lower() in given.lower() for given in (json.dumps(STATUS), EVENTS, LOGS))
    for name, text in bundle.items():
        assert secret.lower() not in (name + text).lower()


def test_what_helps_stays(bundle):
    """The shape, the numbers, this machine's own addresses, and who is the same person as who."""
    status = json.loads(bundle["status.json"])
    assert status["segments"] == 12
    assert status["source"] == "tcp://127.0.0.1:5000"
    assert status["mqtt"] == {"user": "gemmed", "password": "<removed>", "keys": "<removed>"}
    assert status["labelled_by"] == {"person-1": 3}
    first, second, third = (json.loads(line) for line in bundle["events.jsonl"].splitlines())
    assert (first["who"], second["who"]) == ("person-1", "person-2")
    assert first["note"] == "asked person-2, <removed>"
    assert third == {"type": "peer", "from": "<address>", "also": "[<address>]:5000", "host": "<host>.example"}
    lines = bundle["log.txt"].splitlines()
    assert lines[0].startswith("2026-05-01T10:00:00Z info    webhook sent url=https://<removed>@example.org/in")
    assert 'who="person-2" path=~/x.wav peer=<address>:80' in lines[2]
    assert lines[-1] == "read ~/notes, listening on 127.0.0.1, ::1 and 0.0.0.0"


def test_the_manifest_says_what_is_in_it_and_what_was_replaced(bundle):
    manifest = json.loads(bundle["manifest.json"])
    assert set(manifest["sections"]) == {"status.json", "events.jsonl", "log.txt", "sound.raw"}
    assert manifest["sections"]["status.json"] == {
        "bytes": len(bundle["status.json"].encode()),
        "replaced": {"secret": 4, "person": 1},
    }
    assert "left_out" in manifest["sections"]["sound.raw"]
    assert "sound.raw" not in bundle
    for kind, times in manifest["replaced"].items():
        assert times == sum(section.get("replaced", {}).get(kind, 0) for section in manifest["sections"].values())


def test_every_bundle_tells_settings_versions_and_machine(tmp_path):
    """Settings as a file that can be read again, sizes as the machine has them."""
    (tmp_path / "state" / "sound").mkdir(parents=True)
    (tmp_path / "state" / "sound" / "a.flac").write_bytes(b"x" * 1000)
    settings = Settings(source=PcmSourceSettings(), storage=Storage(directory=tmp_path / "state"))
    out = tmp_path / "bundle.zip"
    write_bundle(out, about(settings), Redactor(home=Path("/nobody"), host="nowhere"))
    with zipfile.ZipFile(out) as packed:
        assert read_settings(Path(packed.extract("settings.toml", tmp_path))) == settings
        versions, machine = json.loads(packed.read("versions.json")), json.loads(packed.read("machine.json"))
    assert versions["packages"]["pydantic"]
    assert versions["python"].startswith("3.")
    assert machine["cores"] == os.cpu_count()
    assert machine["state"]["files"] == {"count": 1, "bytes": 1000}
    assert machine["state"]["disk"]["total_bytes"] == shutil.disk_usage(tmp_path).total


def test_by_default_this_machine_and_this_home_are_unnamed(tmp_path):
    settings = Settings(source=FolderSourceSettings(path=Path.home() / "incoming"))
    redactor = Redactor()
    shown = tomllib.loads(redactor.redact(about(settings)["settings.toml"]))
    assert shown["source"]["path"] == "~/incoming"
    assert socket.gethostname() not in redactor.redact(f"on {socket.gethostname()}: ready")


def test_a_service_without_a_home_keeps_its_paths():
    """Its home is the root directory, which is part of every path."""
    assert Redactor(home=Path("/"), host="x").redact("read / and /var/lib/gemmed") == "read / and /var/lib/gemmed"


@pytest.mark.parametrize(
    "text",
    [
        "2026-05-01T10:00:00Z took 14:30:05, ratio 1:2:3",
        '{"monkey": "banana", "passworts": 1, "turnkey_level": "x"}',
        "recording r001@3.5, hash 0a1b2c, C:\\x, 16 kHz :: done, 1.2.3.4.5",
        "/srv/people/ada2 and fieldbox77",
    ],
)
def test_what_only_looks_alike_stays(text):
    redactor = Redactor(home=HOME, host=HOST)
    redactor.learn(text)
    assert redactor.redact(text) == text
    assert not redactor.replaced
