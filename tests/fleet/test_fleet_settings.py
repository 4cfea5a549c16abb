"""The file of a fleet: what may be written, and what is said of the rest: line, value, rule and cure."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pipeline.cli.fleet import fleet as fleet_commands
from pipeline.config.messages import key_of
from pipeline.config.schema import BrokerSettings, Decisions, Mqtt, Notifications, Webhook
from pipeline.core.errors import NotFound, SettingsError
from pipeline.fleet.config import ArrayOfFleet, Fleet, Keeping, LabelNames, read_fleet
from tests.forked import gemmed

EXAMPLE = Path(__file__).parents[2] / "deploy" / "fleet" / "fleet.toml"


def refusal(tmp_path: Path, text: str) -> str:
    path = tmp_path / "fleet.toml"
    path.write_text(text)
    with pytest.raises(SettingsError) as error:
        read_fleet(path)
    return str(error.value).removeprefix(f"{path}: ")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('[fleet]\nlaese = "3 s"\n', "line 2: laese in [fleet] is not known; did you mean lease?"),
        ("[flet]\n", "line 1: flet is not known; did you mean fleet?"),
        ('[fleet]\nlease = "1 s"\n', 'line 2: fleet.lease = "1 s" must be at least 2 s; "10 s" is usual'),
        ("[fleet]\nreplicas = 9\n", "line 2: fleet.replicas = 9 must be at most 5; 1 is usual"),
        (
            '[[arrays]]\nname = "a"\n[[arrays]]\nname = "a"\n',
            "line 1: arrays must have names that differ, and none dispatcher; rename a",
        ),
        (
            '[[arrays]]\nname = "dispatcher"\n',
            "line 1: arrays must have names that differ, and none dispatcher; rename dispatcher",
        ),
        (
            '[[arrays]]\nname = "a"\n\n[[arrays]]\nname = "b c"\n',
            'line 5: arrays number 2: name = "b c" must be letters, digits, - and _; write for example "field-1"',
        ),
        (
            '[[arrays]]\nname = "a"\nmsak = [1]\n',
            "line 3: msak in [[arrays]] is not known; did you mean mask?",
        ),
        (
            '[[arrays]]\nsite = "x"\n',
            'line 1: arrays number 1 has no name; write name = "..." below its [[arrays]]',
        ),
        (
            '[[arrays]]\nname = "a"\nsite = 3\n',
            "line 3: arrays number 1: site = 3 must be text in quotes; correct it",
        ),
        (
            '[broker]\naddress = "nats://far:4222"\n',
            'line 2: broker.address = "nats://far:4222" would send sound in the clear to another machine; write '
            '"tls://host:4222", or use one on 127.0.0.1',
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_line_value_rule_and_cure(tmp_path, text, told):
    assert refusal(tmp_path, text) == told


def test_all_problems_are_told_at_once_in_the_order_of_the_file(tmp_path):
    told = refusal(tmp_path, '[fleet]\nreplicas = 9\n[[arrays]]\nname = "a b"\n[[arrays]]\nnmae = "x"\n')
    assert told.startswith("4 settings cannot be used:\n")
    assert re.findall(r"line (\d+)", told) == ["2", "4", "5", "6"]


def test_a_file_that_cannot_be_used_ends_the_command_with_code_2(tmp_path):
    path = tmp_path / "fleet.toml"
    path.write_text('[fleet]\nlaese = "3 s"\n')
    done = gemmed("fleet", "run", str(path))
    assert done.returncode == 2
    assert "did you mean lease?" in done.stderr


_NEEDED = {"rollout": ["model"], "forget": ["north"], "train": ["--model", "model"]}


@pytest.mark.parametrize("command", [command.name for command in fleet_commands.registered_commands])
def test_a_file_that_is_not_there_ends_every_command_with_code_2(command, tmp_path):
    """The cure is one that these commands have."""
    path = tmp_path / "nofile.toml"
    done = gemmed("fleet", command, str(path), *_NEEDED.get(command, []))
    cure = "give the file of the fleet, for example fleet.toml"
    assert done.stderr == f"gemmed: {path} cannot be read: No such file or directory; {cure}\n"
    assert done.returncode == 2


def test_an_array_that_is_not_there_is_told_with_the_one_that_was_meant():
    fleet = Fleet(arrays=(ArrayOfFleet(name="north"), ArrayOfFleet(name="south")))
    with pytest.raises(NotFound, match=r"array 'nroth' is not in .*known are north, south; did you mean north\?"):
        fleet.array("nroth")


def test_the_example_can_be_read():
    fleet = read_fleet(EXAMPLE)
    assert [(array.name, array.place) for array in fleet.arrays] == [("north", "north"), ("south", "south")]
    assert fleet.fleet == Keeping(model=Path("/etc/gemmed/model"), sound_bytes=70 * 10**9)
    assert fleet.decisions == Decisions()
    assert fleet.broker.access().is_encrypted


def test_the_example_shows_every_setting_of_a_fleet():
    """Also those behind a #, and none that does not exist. The rest of outputs and the log is as in gemmed.toml."""
    shown: dict[str, set[str]] = {}
    for line in EXAMPLE.read_text().splitlines():
        if header := re.fullmatch(r"\[+(\w+)\]+", line):
            table = shown.setdefault(header[1], set())
        elif setting := re.match(r"(?:# )?([a-z_]+) = ", line):
            table.add(setting[1])
    tables = {"fleet": Keeping, "arrays": ArrayOfFleet, "decisions": Decisions, "broker": BrokerSettings}
    outputs = {"notifications": Notifications, "webhook": Webhook, "mqtt": Mqtt, "labels": LabelNames}
    known = {
        name: {key_of(key, field) for key, field in table.model_fields.items()}
        for name, table in (tables | outputs).items()
    }
    assert {name: shown[name] for name in tables} == {name: known[name] for name in tables} | {
        "broker": known["broker"] - {"certificate", "key"}
    }
    assert shown.keys() == known.keys()
    assert all(shown[name] and shown[name] <= known[name] for name in outputs)


def test_what_the_example_shows_as_usual_is_the_default(tmp_path):
    """Without the #: only what is said to be not set changes anything."""
    text = EXAMPLE.read_text()
    usual = re.sub(r"(?m)^# ([a-z_]+ = (?!.*# not set:).*)$", r"\1", text)
    assert usual != text
    (tmp_path / "fleet.toml").write_text(usual)
    read, default = read_fleet(tmp_path / "fleet.toml"), read_fleet(EXAMPLE)
    assert (read.fleet, read.broker, read.decisions, read.arrays) == (
        default.fleet,
        default.broker,
        default.decisions,
        default.arrays,
    )
