"""deploy/gemmed.toml shows every setting with its default."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from pipeline.config.schema import (
    FolderSourceSettings,
    PcmSourceSettings,
    Settings,
    SimulatedSourceSettings,
    SoundcardSourceSettings,
    Storage,
    StreamSourceSettings,
    effective,
    read_settings,
)

EXAMPLE = Path(__file__).parents[2] / "deploy" / "gemmed.toml"
SHOWN = re.compile(r"(?:# )?([a-z_]+) = ([^#]*[^#\s])\s*(?:# (.*))?")
KINDS = {
    "simulated": SimulatedSourceSettings(),
    "pcm": PcmSourceSettings(),
    "soundcard": SoundcardSourceSettings(),
    "folder": FolderSourceSettings(path="/var/spool/gemmed"),
    "stream": StreamSourceSettings(array="north"),
}
UNSET = {
    "source.length",
    "source.device",
    "source.path",
    "source.pattern",
    "labels.file",
    "training.model",
    "training.recordings",
    "training.labels",
    "training.classes",
    "web.certificate",
    "web.key",
    "notifications.labels",
    "notifications.quiet_hours",
    "notifications.summary_at",
    "notifications.zone",
    "notifications.link",
    "notifications.urls_file",
    "notifications.events",
    "mqtt.address",
    "mqtt.user",
    "mqtt.password_file",
    "mqtt.ca_file",
    "mqtt.events",
    "webhook.url",
    "webhook.events",
    "webhook.secret_file",
    "webhook.ca_file",
    "source.array",
    "broker.user",
    "broker.password_file",
    "broker.ca_file",
    "broker.certificate",
    "broker.key",
    "publish.array",
    "publish.spool",
    "publish.keep_size",
}
"""What has no default, and is shown with a value that it might have."""
TOGETHER = (
    "training.recordings",
    "training.labels",
    "web.certificate",
    "web.key",
    "mqtt.password_file",
    "broker.password_file",
    "broker.ca_file",
    "broker.certificate",
    "broker.key",
)
"""What cannot be given alone."""


def shown(kind: str) -> dict[str, tuple[str, str]]:
    """Every setting, also those behind a #, that holds where the source is of a kind: its value and what is said."""
    found: dict[str, tuple[str, str]] = {}
    table, of_kind = "", kind
    for line in EXAMPLE.read_text().splitlines():
        if header := re.fullmatch(r"\[(\w+)\]", line):
            table, of_kind = header[1], kind
        elif setting := SHOWN.fullmatch(line):
            name, value, comment = setting.groups()
            if (table, name) == ("source", "kind"):
                of_kind = tomllib.loads(f"x = {value}")["x"] if line.startswith("#") else kind
            elif of_kind == kind:
                assert f"{table}.{name}" not in found
                found[f"{table}.{name}"] = (value, comment or "")
    return found


def test_it_can_be_used_as_it_is():
    """It differs from the defaults in where the state is kept, as the service has it."""
    assert read_settings(EXAMPLE) == Settings(storage=Storage(directory="/var/lib/gemmed"))


@pytest.mark.parametrize("kind", KINDS)
def test_every_setting_is_shown(kind):
    """And none that there is not."""
    settings = Settings(source=KINDS[kind])
    known = {f"{table}.{key}" for table, keys in effective(settings).items() for key in keys} - {"source.kind"}
    assert set(shown(kind)) == known


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_shown_can_be_written_and_is_the_default(kind, tmp_path):
    """Each line by itself, without its #; what has no default says so."""
    path = tmp_path / "gemmed.toml"
    must = {"folder": 'path = "x"\n', "stream": 'array = "x"\n'}
    begin = f'[source]\nkind = "{kind}"\n{must.get(kind, "")}'
    path.write_text(begin)
    default = read_settings(path)
    for name, (value, comment) in shown(kind).items():
        table, key = name.split(".")
        assert comment.startswith("not set: ") == (name in UNSET), name
        if name in ("source.path", "source.array", "storage.directory", *TOGETHER):
            continue  # the first three are given above
        path.write_text(begin + f"{key} = {value}\n" if table == "source" else f"{begin}[{table}]\n{key} = {value}\n")
        read = read_settings(path)
        assert (read == default) == (name not in UNSET), name
        assert effective(read)[table][key] is not None


def test_the_recordings_and_labels_shown_go_together(tmp_path):
    path = tmp_path / "gemmed.toml"
    values = {name: shown("simulated")[f"training.{name}"][0] for name in ("recordings", "labels", "classes")}
    path.write_text("[training]\n" + "".join(f"{name} = {value}\n" for name, value in values.items()))
    training = read_settings(path).training
    assert training.recordings is not None
    assert training.labels is not None
    assert training.labels.parent == training.recordings


def test_the_certificate_and_key_shown_go_together(tmp_path):
    path = tmp_path / "gemmed.toml"
    path.write_text(
        "[web]\n" + "".join(f"{name} = {shown('pcm')[f'web.{name}'][0]}\n" for name in ("certificate", "key"))
    )
    assert read_settings(path).web.url == "https://127.0.0.1:8780"
