"""What a fleet is set up with: the scripts really run, the broker and Dask really started with what they make.

Not covered: the containers, for want of an engine; their file is read, and their commands are those of the units.
"""

from __future__ import annotations

import asyncio
import configparser
import os
import re
import shlex
import shutil
import signal
import ssl
import stat
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Timer

import pytest
import yaml

from pipeline.core.errors import LinkError
from pipeline.fleet.config import read_fleet
from pipeline.fleet.model_cache import usual_cache
from pipeline.model.model import Model
from pipeline.transport.nats import Access, Broker
from tests.conftest import TIMEOUT, awaited, component, free_port, program

FLEET = Path(__file__).parents[2] / "deploy" / "fleet"
UNITS = sorted(FLEET.glob("*.service"))
COMPOSE = yaml.safe_load((FLEET / "compose.yaml").read_text())
SERVICES = COMPOSE["services"]
SOUND = "gemmed-sound"


def script(name: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    program("openssl")
    return subprocess.run([FLEET / name, *arguments], capture_output=True, text=True, timeout=TIMEOUT)


def made(name: str, *arguments: str | Path) -> str:
    done = script(name, *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def openssl(*arguments: str | Path) -> str:
    command = [program("openssl"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=TIMEOUT).stdout


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@contextmanager
def running(*command: str | Path, until: str, **options: object) -> Iterator[Process]:
    """A program that has said something; ended at the end."""
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **options) as process:  # type: ignore[call-overload]
        try:
            started = Process(process)
            started.wait_for(until)
            yield started
        finally:
            process.terminate()
            process.communicate(timeout=TIMEOUT)


@dataclass(frozen=True)
class Process:
    popen: subprocess.Popen[str]

    def wait_for(self, told: str) -> str:
        """The line in which it says so; the end of the program is a failure, and so is two minutes without it."""
        assert self.popen.stderr is not None
        lines = []
        patience = Timer(TIMEOUT, self.popen.kill)
        patience.start()
        try:
            for line in self.popen.stderr:
                lines.append(line)
                if told in line:
                    return line
        finally:
            patience.cancel()
        pytest.fail(f"{self.popen.args} ended: {''.join(lines)}")


# Certificates


def typed(etc: Path) -> list[list[str]]:
    """What docs/fleet.md tells to type, from nothing to the first start, with another place than /etc/gemmed."""
    text = (FLEET.parents[1] / "docs" / "fleet.md").read_text()
    steps = text.partition("### 2.")[2].partition("### 5.")[0]
    commands = re.findall(r"^    sudo (.*)$", steps, re.MULTILINE)
    return [shlex.split(command.replace("/etc/gemmed", str(etc))) for command in commands]


@pytest.fixture(scope="module")
def etc(tmp_path_factory, model) -> Path:
    """As docs/fleet.md fills /etc/gemmed; and the certificates of a stranger."""
    etc = tmp_path_factory.mktemp("etc")
    here = tmp_path_factory.mktemp("checkout")
    (here / "deploy").symlink_to(FLEET.parent)
    (here / "model").symlink_to(model)
    for command, *arguments in typed(etc):
        if command.startswith("deploy/fleet/"):
            made(command.removeprefix("deploy/fleet/"), *arguments)
        elif command == "install":
            subprocess.run([command, *arguments], cwd=here, check=True, timeout=TIMEOUT)
        else:
            assert command in ("chown", "sed")  # the files are ours, and the broker's address stays this machine's
    made("certificates.sh", etc / "stranger", "dispatcher")
    return etc


def sign(folder: Path, name: str, days: int) -> None:
    """A certificate as the script makes them, that ends sooner."""
    request = openssl("req", "-new", "-key", folder / f"{name}.key", "-subj", f"/CN={name}")
    (folder / "request").write_text(request)
    (folder / "extensions").write_text("subjectAltName = DNS:localhost\n")
    hosts = (folder / f"{name}.crt").read_text().splitlines()[0]
    signed = openssl("x509", "-req", "-in", folder / "request", "-CA", folder / "ca.crt", "-CAkey", folder / "ca.key",
                     "-set_serial", "1", "-days", str(days), "-extfile", folder / "extensions")  # fmt: skip
    (folder / f"{name}.crt").write_text(f"{hosts}\n{signed}")


def test_a_certificate_is_for_its_hosts_and_for_both_sides(etc):
    """On P-256, for 397 days, and believed by whoever believes the authority."""
    folder = etc / "broker"
    text = openssl("x509", "-in", folder / "broker.crt", "-noout", "-text")
    assert "DNS:broker, DNS:hub.example.org, DNS:localhost" in text
    assert "TLS Web Server Authentication, TLS Web Client Authentication" in text
    assert "NIST CURVE: P-256" in text
    assert "CA:FALSE" in text
    for purpose in ("sslserver", "sslclient"):
        openssl("verify", "-x509_strict", "-purpose", purpose, "-CAfile", folder / "ca.crt", folder / "broker.crt")
    day = 24 * 3600
    ends = ["openssl", "x509", "-in", folder / "broker.crt", "-noout", "-checkend"]
    assert subprocess.run([*ends, str(396 * day)], capture_output=True, timeout=TIMEOUT).returncode == 0
    assert subprocess.run([*ends, str(398 * day)], capture_output=True, timeout=TIMEOUT).returncode == 1


def test_keys_and_passwords_are_for_their_owner_only(etc):
    secrets = [path for path in etc.rglob("*") if path.suffix in (".key", ".password")]
    assert len(secrets) == 11
    secrets += [etc / "broker" / "edges.conf", etc / "broker" / "fleet.conf"]
    assert {mode(path) for path in secrets} == {0o600}
    assert {mode(path) for path in etc.rglob("*.crt")} == {0o644}


def test_run_again_it_changes_nothing(etc):
    folder = etc / "broker"
    before = {path: path.read_bytes() for path in folder.iterdir()}
    assert "broker is good until" in made("certificates.sh", folder, "broker")
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_what_ends_soon_is_renewed_for_the_same_hosts(tmp_path):
    """By the same authority, into the same file, whose owner and place in a container stay."""
    made("certificates.sh", tmp_path, "broker,localhost,127.0.0.1,::1")
    text = openssl("x509", "-in", tmp_path / "broker.crt", "-noout", "-text")
    assert "DNS:broker, DNS:localhost, IP Address:127.0.0.1, IP Address:0:0:0:0:0:0:0:1" in text
    authority, file = (tmp_path / "ca.crt").read_bytes(), (tmp_path / "broker.key").stat().st_ino
    sign(tmp_path, "broker", days=29)
    assert "made" in made("certificates.sh", tmp_path, "broker")
    assert "DNS:broker, DNS:localhost" in openssl("x509", "-in", tmp_path / "broker.crt", "-noout", "-text")
    assert ((tmp_path / "ca.crt").read_bytes(), (tmp_path / "broker.key").stat().st_ino) == (authority, file)
    sign(tmp_path, "broker", days=31)
    assert "is good until" in made("certificates.sh", tmp_path, "broker")


@pytest.mark.parametrize(("lost", "told"), [("ca.key", "has no ca.key here"), ("ca.crt", "has lost its ca.crt")])
def test_half_an_authority_is_not_replaced(lost, told, tmp_path):
    made("certificates.sh", tmp_path, "broker")
    (tmp_path / lost).unlink()
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    done = script("certificates.sh", tmp_path, "broker", "other")
    assert done.returncode == 1
    assert told in done.stderr
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["certificates.sh"], "usage: "),
        (["certificates.sh", "new"], "usage: "),
        (["certificates.sh", "--frobnicate", "x"], "usage: "),
        (["certificates.sh", "new", "ca"], "ca is the authority itself"),
        (["certificates.sh", "new", "../x"], "'../x' must be NAME or NAME,HOST,HOST"),
        (["certificates.sh", "new", "a b"], "'a b' must be NAME or NAME,HOST,HOST"),
        (["certificates.sh", "new", "fe80::1"], "begins with an address; begin with a name"),
        (["certificates.sh", "/proc/none", "x"], "/proc/none cannot be made"),
        (["broker-user.sh"], "usage: "),
        (["broker-user.sh", "new", "north", "edge"], "new is no directory"),
        (["broker-user.sh", ".", "north", "king"], "role 'king' must be edge, fleet or remove"),
        (["broker-user.sh", ".", "a.b", "edge"], "'a.b' must be letters, digits, - and _ only"),
        (["broker-user.sh", ".", 'x"', "edge"], "must be letters, digits, - and _ only"),
        (["broker-user.sh", ".", "nobody", "edge"], "choose another name"),
        (["broker-user.sh", ".", "none", "remove"], "there is no user none"),
    ],
)
def test_mistakes_are_told(arguments, told, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = script(*arguments)
    assert done.returncode != 0
    assert told in done.stderr
    assert not list(tmp_path.rglob("*.key"))


def test_a_user_does_not_change_sides_by_accident(tmp_path):
    """An array by the name of the fleet's user would shut out the fleet."""
    made("broker-user.sh", tmp_path, "fleet", "fleet")
    made("broker-user.sh", tmp_path, "north", "edge")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for name, role in {"fleet": "edge", "north": "fleet"}.items():
        done = script("broker-user.sh", tmp_path, name, role)
        assert done.returncode == 1
        assert "choose another name, or remove it first" in done.stderr
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


# The broker


@dataclass(frozen=True)
class Server:
    process: Process
    port: int
    folder: Path

    def access(self, user: str) -> Access:
        return Access(
            address=f"tls://localhost:{self.port}",
            user=user,
            password_file=self.folder / f"{user}.password",
            ca_file=self.folder / "ca.crt",
        )

    def call(self, user: str) -> Broker:
        return Broker(self.access(user), name=user)

    def reload(self) -> None:
        """As the unit does."""
        unit = (FLEET / "gemmed-broker.service").read_text()
        for _ in re.findall(r"^ExecReload=/bin/kill -HUP \$MAINPID$", unit, re.MULTILINE):
            self.process.popen.send_signal(signal.SIGHUP)
            self.process.wait_for("Reloaded server configuration")


@contextmanager
def broker_in(folder: Path, data: Path) -> Iterator[Server]:
    """As the unit starts it, at free ports."""
    component("nats")
    command = [program("nats-server"), *entries(FLEET / "gemmed-broker.service", "Service")["ExecStart"].split()[1:]]
    port = free_port()
    ports = ["--port", str(port), "--http_port", str(free_port())]
    environment = os.environ | {"JETSTREAM_DATA": str(data)}
    with running(*command, *ports, until="Server is ready", cwd=folder, env=environment) as process:
        yield Server(process, port, folder)


@pytest.fixture(scope="module")
def server(etc, tmp_path_factory) -> Iterator[Server]:
    with broker_in(etc / "broker", tmp_path_factory.mktemp("jetstream")) as server:
        with server.call("fleet") as fleet:
            for name in ("sound", "events"):
                fleet.ensure_stream(f"gemmed-{name}", f"gemmed.{name}.*", most_seconds=3600.0)
            fleet.publish("gemmed.sound.south", b"of the south", stream=SOUND, id="0")
            fleet.publish("gemmed.events.south", b"an event", stream="gemmed-events", id="0")
        yield server


def held(server: Server) -> dict[str, int]:
    """What is in the streams, and in a bucket."""
    with server.call("fleet") as fleet:
        return {
            **fleet.subjects(SOUND, ">"),
            **fleet.subjects("gemmed-events", ">"),
            **fleet.subjects("KV_gemmed-leases", ">"),
        }


def test_the_fleet_may_do_what_it_needs(server):
    with server.call("fleet") as fleet:
        place = fleet.publish("gemmed.sound.west", b"sound", stream=SOUND, id="west-1")
        assert fleet.publish("gemmed.sound.west", b"sound", stream=SOUND, id="west-1") == place
        reader = fleet.read(SOUND, "gemmed.sound.west", 1)
        assert [message.data for message in reader.to_the_end()] == [b"sound"]
        reader.close()
        assert fleet.last(SOUND, "gemmed.sound.west").sequence == place
        for name in ("checkpoints", "leases", "status", "wanted"):
            bucket = fleet.bucket(f"gemmed-{name}", expires_seconds=60.0)
            revision = bucket.update("west", b"two", bucket.create("west", b"one"))
            assert {key: entry.value for key, entry in bucket.all().items()} == {"west": b"two"}
            bucket.delete("west", revision)
            assert bucket.get("west") is None
        model = os.urandom(3_000_000)  # many messages, with flow control
        fleet.objects("gemmed-models").put("meadow", model)
        assert fleet.objects("gemmed-models").get("meadow") == model
        assert fleet.most_bytes == 8 * 1024 * 1024


def test_an_array_may_send_its_own_sound(server):
    """And see whether there is a stream for it; what is sent twice is stored once."""
    with server.call("north") as north:
        sent = [north.publish_soon("gemmed.sound.north", bytes(100_000), stream=SOUND, id=f"n{i}") for i in range(20)]
        places = [one.result() for one in sent]
        assert places == sorted(set(places))
        assert north.publish("gemmed.sound.north", b"", stream=SOUND, id="n19") == places[-1]
        assert north.last_sequence(SOUND) == places[-1]


FORBIDDEN = {
    "send as another": lambda north: north.publish("gemmed.sound.south", b"forged", stream=SOUND, id="forged"),
    "send events": lambda north: north.publish("gemmed.events.north", b"x", stream="gemmed-events", id="x"),
    "read sound": lambda north: north.read(SOUND, "gemmed.sound.south", 1).take(most=1, seconds=0.3),
    "read its own sound": lambda north: north.read(SOUND, "gemmed.sound.north", 1).take(most=1, seconds=0.3),
    "read events": lambda north: north.read("gemmed-events", "gemmed.events.south", 1).take(most=1, seconds=0.3),
    "ask for the last": lambda north: north.last(SOUND, "gemmed.sound.south"),
    "delete a stream": lambda north: north._run(north._js.delete_stream(SOUND)),
    "purge a stream": lambda north: north._run(north._js.purge_stream(SOUND)),
    "make a stream": lambda north: north.ensure_stream("mine", "mine.*", most_seconds=60.0),
    "use a bucket": lambda north: north.bucket("gemmed-leases"),
    "use a model": lambda north: north.objects("gemmed-models").get("meadow"),
}


@pytest.mark.parametrize("what", FORBIDDEN)
def test_an_array_may_not(what, server):
    """Do anything else; nothing has changed afterwards."""
    with server.call("fleet") as fleet:
        fleet.bucket("gemmed-leases")
    before = held(server)
    with server.call("north") as north:
        north._seconds = 0.4  # what is not allowed is often not answered
        with pytest.raises(LinkError):
            FORBIDDEN[what](north)
    assert held(server) == before


def test_a_receipt_cannot_be_sent_where_its_owner_may_not(server):
    """JetStream answers to whatever subject the sender names, and may itself write to all of them."""
    with server.call("fleet") as fleet:
        fleet.bucket("gemmed-leases")
    before = held(server)
    targets = [
        "gemmed.sound.south",
        "gemmed.events.south",
        "$KV.gemmed-leases.south",
        f"$JS.API.STREAM.PURGE.{SOUND}",
        f"$JS.API.STREAM.DELETE.{SOUND}",
        f"$JS.API.STREAM.MSG.DELETE.{SOUND}",
    ]
    questions = ["gemmed.sound.north", f"$JS.API.STREAM.INFO.{SOUND}", "$JS.API.INFO"]
    with server.call("north") as north:
        for question in questions:
            for target in targets:
                north._run(north._client.publish(question, b"", reply=target))
        # Receipts come in order: those before it are written.
        north.publish("gemmed.sound.north", b"", stream=SOUND, id="after receipts")
    own = len(targets) + 1
    assert held(server) == before | {"gemmed.sound.north": before.get("gemmed.sound.north", 0) + own}


def test_nobody_hears_what_others_are_sent(server):
    """Listening to all inboxes, or to sound itself, an array hears nothing of the fleet's."""
    heard = []

    async def listen(message) -> None:
        heard.append(message.subject)

    with server.call("north") as north, server.call("fleet") as fleet:
        for subject in ("_INBOX.>", "gemmed.>", ">"):
            north._run(north._client.subscribe(subject, cb=listen))
        north._run(north._client.flush())
        assert list(fleet.read(SOUND, "gemmed.sound.south", 1).to_the_end())
        fleet.publish("gemmed.sound.south", b"secret", stream=SOUND, id="secret")
        north._run(north._client.flush())
    assert heard == []


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"user": None, "password_file": None}, "does not let in user = None"),
        ({"user": "south"}, "does not let in user = 'south'"),
        ({"user": "nobody"}, "does not let in user = 'nobody'"),
        ({"password_file": None}, "does not let in user = 'north'"),
        ({"ca_file": None}, "has a certificate that is not accepted"),
        ({"ca_file": "stranger"}, "has a certificate that is not accepted"),
        ({"address": "nats"}, "broker nats://"),
    ],
)
def test_whoever_has_not_everything_is_not_let_in(change, told, server, etc):
    """A password, the authority and encryption."""
    given = dict(change)
    if given.get("ca_file"):
        given["ca_file"] = etc / "stranger" / "ca.crt"
    if given.get("address"):
        given["address"] = f"nats://127.0.0.1:{server.port}"
    with pytest.raises(LinkError, match=re.escape(told)):
        Broker(replace(server.access("north"), **given), name="test").close()


def test_a_broker_that_knows_no_user_lets_in_nobody(tmp_path):
    """As after the last one was removed."""
    folder = tmp_path / "broker"
    made("certificates.sh", folder, "broker,localhost")
    made("broker-user.sh", folder, "north", "edge")
    made("broker-user.sh", folder, "north", "remove")
    assert not (folder / "north.password").exists()
    shutil.copy(FLEET / "nats-server.conf", folder)
    with broker_in(folder, tmp_path / "data") as server:
        access = replace(server.access("north"), user=None, password_file=None)
        with pytest.raises(LinkError, match="does not let in"):
            Broker(access, name="test").close()


def test_an_array_comes_and_goes_while_the_broker_runs(server):
    """One that is removed is sent away at once, and the others stay."""
    folder = server.folder
    made("broker-user.sh", folder, "east", "edge")
    with pytest.raises(LinkError, match="does not let in"):
        server.call("east")
    with server.call("north") as north:
        server.reload()
        with server.call("east") as east:
            east.publish("gemmed.sound.east", b"", stream=SOUND, id="e1")
            shutil.copy(folder / "east.password", folder / "kept")
            made("broker-user.sh", folder, "east", "remove")
            server.reload()
            with pytest.raises(LinkError):
                east.publish("gemmed.sound.east", b"", stream=SOUND, id="e2")
        with pytest.raises(LinkError, match="does not let in"):
            Broker(replace(server.access("east"), password_file=folder / "kept"), name="test")
        north.publish("gemmed.sound.north", b"", stream=SOUND, id="still there")


def test_a_new_password_replaces_the_old_one(server):
    folder = server.folder
    made("broker-user.sh", folder, "hill", "edge")
    first = (folder / "hill.password").read_text()
    made("broker-user.sh", folder, "hill", "edge")
    assert len((folder / "hill.password").read_text().strip()) == 64
    assert (folder / "hill.password").read_text() != first
    assert (folder / "edges.conf").read_text().count('user: "hill"') == 1
    assert first.strip() not in (folder / "edges.conf").read_text()
    made("broker-user.sh", folder, "hill", "remove")


def test_a_renewed_certificate_is_taken_up_without_a_restart(tmp_path):
    """Before that, an expired one is refused in words that say so."""
    folder = tmp_path / "broker"
    made("certificates.sh", folder, "broker,localhost")
    made("broker-user.sh", folder, "fleet", "fleet")
    shutil.copy(FLEET / "nats-server.conf", folder)
    sign(folder, "broker", days=-1)
    with broker_in(folder, tmp_path / "data") as server:
        with pytest.raises(LinkError, match="certificate that is not accepted: certificate has expired; renew it"):
            server.call("fleet")
        made("certificates.sh", folder, "broker")
        server.reload()
        server.call("fleet").close()


def test_without_a_place_for_its_data_it_does_not_start(etc):
    """Rather than keep sound in /tmp."""
    command = [program("nats-server"), "--config", "nats-server.conf"]
    done = subprocess.run(command, cwd=etc / "broker", capture_output=True, text=True, env={}, timeout=TIMEOUT)
    assert done.returncode == 1
    assert "JETSTREAM_DATA" in done.stderr


def test_by_default_it_listens_to_this_machine_only():
    text = (FLEET / "nats-server.conf").read_text()
    assert re.findall(r'^(?:listen|http): "(.*):\d+"$', text, re.MULTILINE) == ["127.0.0.1", "127.0.0.1"]


def test_sound_alone_does_not_fill_it():
    """For then checkpoints, leases and tickets would be refused, too."""
    room = re.search(r"^  max_file_store: (\d+)GB$", (FLEET / "nats-server.conf").read_text(), re.MULTILINE)
    budget = read_fleet(FLEET / "fleet.toml").places.most_sound_bytes
    assert room is not None
    assert budget is not None
    assert budget <= 0.8 * int(room[1]) * 10**9


def test_what_is_typed_opens_it_to_other_machines(etc, tmp_path):
    """And tells the fleet where it is; on copies."""
    shutil.copytree(etc, tmp_path / "etc")
    for command in typed(tmp_path / "etc"):
        if command[0] == "sed":
            subprocess.run(command, check=True, timeout=TIMEOUT)
    listen = re.search(r"^listen: .*$", (tmp_path / "etc" / "broker" / "nats-server.conf").read_text(), re.MULTILINE)
    assert listen is not None
    assert listen[0] == 'listen: "0.0.0.0:4222"'
    address = tomllib.loads((tmp_path / "etc" / "fleet.toml").read_text())["broker"]["address"]
    host = re.fullmatch(r"tls://(.*):4222", address)
    assert host is not None
    assert f"DNS:{host[1]}" in (etc / "broker" / "broker.crt").read_text()


# Dask


def variables() -> dict[str, str]:
    lines = (FLEET / "fleet.env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


@dataclass(frozen=True)
class Cluster:
    scheduler: str
    addresses: list[str]
    listening: set[tuple[str, int]]
    folder: Path

    def arguments(self, folder: str | None) -> dict[str, object]:
        """Of a connection by a client with the certificates of a folder, or with none of its own."""
        from distributed import Security

        if folder is not None:
            of = self.folder / folder
            security = Security(
                tls_ca_file=str(of / "ca.crt"),
                tls_client_cert=str(of / "dispatcher.crt"),
                tls_client_key=str(of / "dispatcher.key"),
                require_encryption=True,
            )
            return security.get_connection_args("client")
        context = ssl.create_default_context(cafile=str(self.folder / "dask" / "ca.crt"))
        context.check_hostname = False
        return {"ssl_context": context, "require_encryption": True}


@pytest.fixture(scope="module")
def cluster(etc, tmp_path_factory) -> Iterator[Cluster]:
    """A scheduler and a worker, by the command lines of their units."""
    component("distributed")
    import psutil

    folder = tmp_path_factory.mktemp("dask")
    port, worker_port, nanny_port = free_port(), free_port(), free_port()
    values = variables() | {"GEMMED_SCHEDULER": f"tls://127.0.0.1:{port}", "GEMMED_SCHEDULER_HOST": "0.0.0.0"}
    places = {
        "/tmp": str(folder),
        "/opt/gemmed/bin": str(Path(sys.executable).parent),
        "/etc/gemmed": str(etc),
        "8786": str(port),
        ":8787": ":0",
        "8800:8849": str(worker_port),
        "8850:8899": str(nanny_port),
        "%H-%i": "here-1",
    }

    def command(name: str) -> list[str]:
        text = entries(FLEET / f"gemmed-{name}.service", "Service")["ExecStart"]
        for place, other in places.items():
            text = text.replace(place, other)
        return [re.sub(r"\$\{(\w+)\}", lambda found: values[found[1]], word) for word in text.split()]

    environment = os.environ | dict([entries(FLEET / "gemmed-scheduler.service", "Service")["Environment"].split("=")])
    with (
        running(*command("scheduler"), until="Scheduler at:", cwd=folder, env=environment) as scheduler,
        running(*command("worker@"), until="Registered to:", cwd=folder, env=environment) as worker,
    ):
        processes = [psutil.Process(process.popen.pid) for process in (scheduler, worker)]
        processes += processes[1].children(recursive=True)
        sockets = [one for process in processes for one in process.net_connections() if one.status == "LISTEN"]
        addresses = [f"tls://127.0.0.1:{at}" for at in (port, worker_port, nanny_port)]
        yield Cluster(addresses[0], addresses, {(one.laddr.ip, one.laddr.port) for one in sockets}, etc)


async def identity(address: str, arguments: dict[str, object]) -> dict[str, object]:
    from distributed.core import rpc

    async with rpc(address, connection_args=arguments, timeout=TIMEOUT) as other:
        return await asyncio.wait_for(other.identity(), 60)


def test_whoever_has_a_certificate_commands_the_workers(cluster):
    from distributed import Client, Security

    of = cluster.folder / "dask"
    security = Security(
        tls_ca_file=str(of / "ca.crt"),
        tls_client_cert=str(of / "dispatcher.crt"),
        tls_client_key=str(of / "dispatcher.key"),
        require_encryption=True,
    )
    with Client(cluster.scheduler, security=security, timeout=TIMEOUT, set_as_default=False) as client:
        assert client.submit(sum, [1, 2]).result(timeout=TIMEOUT) == 3
        (worker,) = client.scheduler_info(n_workers=-1)["workers"].values()
        assert (worker["nthreads"], worker["name"]) == (1, "here-1")
    for address in cluster.addresses:
        assert awaited(identity(address, cluster.arguments("dask")))["id"]


@pytest.mark.parametrize("certificates", [None, "stranger", "broker"])
def test_whoever_has_none_of_this_authority_is_refused(certificates, cluster, etc, tmp_path):
    """By the scheduler, the worker and its nanny alike; also the broker's own certificate is of no use."""
    from distributed.comm import CommClosedError

    if certificates == "broker":
        for name in ("crt", "key"):
            shutil.copy(etc / "broker" / f"broker.{name}", tmp_path / f"dispatcher.{name}")
        shutil.copy(etc / "dask" / "ca.crt", tmp_path)
        certificates = str(tmp_path)
    for address in cluster.addresses:
        with pytest.raises(CommClosedError):
            awaited(identity(address, cluster.arguments(certificates)))


def test_nothing_is_answered_in_the_clear(cluster):
    from distributed.comm import CommClosedError

    for address in cluster.addresses:
        with pytest.raises(CommClosedError):
            awaited(identity(address.replace("tls:", "tcp:"), {}))


def test_other_machines_reach_only_what_is_encrypted(cluster):
    """Pages, of which even --no-dashboard leaves some, stay on this machine."""
    ports = {int(address.rpartition(":")[2]) for address in cluster.addresses}
    outside = {port for host, port in cluster.listening if host != "127.0.0.1"}
    assert outside <= ports
    assert len(cluster.listening) > len(ports)


# Units


def entries(unit: Path, section: str) -> dict[str, str]:
    """Of names that stand more than once, the first."""
    parser = configparser.ConfigParser(strict=False, interpolation=None, dict_type=dict)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    text = re.sub(r"\\\n\s*", "", unit.read_text())
    seen: set[str] = set()
    lines = []
    for line in text.splitlines():
        name = line.partition("=")[0]
        if line.startswith(("[", "#")) or name not in seen:
            lines.append(line)
        seen.add(name)
    parser.read_string("\n".join(lines))
    return dict(parser[section])


def test_every_unit_is_there():
    names = {"publish", "broker", "scheduler", "worker@", "fleet", "notify"}
    assert {unit.name for unit in UNITS} == {f"gemmed-{name}.service" for name in names}


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_finds_nothing_wrong(unit, tmp_path):
    """Every name and value is known to it; commands are put where the unit expects them, below another root."""
    systemd_analyze = program("systemd-analyze")
    copy = tmp_path / "etc" / "systemd" / "system" / unit.name.replace("@.", "@1.")
    copy.parent.mkdir(parents=True)
    shutil.copy(unit, copy)
    for name in re.findall(r"^Exec\w+=(\S+)", unit.read_text(), re.MULTILINE):
        command = tmp_path / name.lstrip("/")
        command.parent.mkdir(parents=True, exist_ok=True)
        command.touch(mode=0o755)
    for name in ("network-online", "sound", "time-sync", "sysinit", "basic", "shutdown", "multi-user"):
        (copy.parent / f"{name}.target").write_text(f"[Unit]\nDescription={name}\n")
    command_line = [systemd_analyze, "verify", "--recursive-errors=no", f"--root={tmp_path}", str(copy)]
    done = subprocess.run(command_line, capture_output=True, text=True, timeout=TIMEOUT)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_its_exposure_is_small(unit):
    """On systemd's scale from 0 to 10, as of the daemon's own unit; the rest is the network."""
    command = [program("systemd-analyze"), "security", "--offline=true", "--threshold=20", "--no-pager", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)
    exposure = re.search(r"exposure level for \S+: ([0-9.]+)", done.stdout)
    assert exposure is not None, done.stderr
    assert float(exposure[1]) < 2.0
    assert done.returncode == 0


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_it_is_started_again_for_ever(unit):
    """Whatever it waits for may be away for days."""
    assert entries(unit, "Service")["Restart"] == "always"
    assert entries(unit, "Unit")["StartLimitIntervalSec"] == "0"


def is_writable(path: Path, service: dict[str, str]) -> bool:
    """Under ProtectSystem=strict nothing is but these."""
    assert service["ProtectSystem"] == "strict"
    places = [
        *(Path("/var/cache") / name for name in service.get("CacheDirectory", "").split()),
        *(Path("/var/lib") / name for name in service.get("StateDirectory", "").split()),
        *[Path("/tmp")] * (service.get("PrivateTmp") == "yes"),
    ]
    return any(path.is_relative_to(place) for place in places)


@pytest.mark.parametrize("name", ["worker@", "fleet"])
def test_models_that_are_fetched_can_be_written(name, monkeypatch):
    """Where the settings of the example leave it to whoever fetches them."""
    unit = FLEET / f"gemmed-{name}.service"
    assert "cache" not in tomllib.loads((FLEET / "fleet.toml").read_text())["fleet"]
    user, home = re.search(r'^u (\w+) - ".*" (\S+)', (FLEET.parent / "gemmed.sysusers").read_text(), re.M).groups()
    service = entries(unit, "Service")
    assert service["User"] == user
    monkeypatch.setenv("HOME", home)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    for variable, value in re.findall(r"^Environment=(\w+)=(.*)$", unit.read_text(), re.MULTILINE):
        monkeypatch.setenv(variable, value)
    assert is_writable(usual_cache(), service)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_every_file_it_names_is_made(unit, etc):
    """By the scripts, or copied from here; settings of a site are its own."""
    text = unit.read_text()
    for name in re.findall(r"/etc/gemmed/([\w./-]+)", text):
        assert (etc / name).exists() or name == "gemmed.toml", name
    assert set(re.findall(r"\$\{(\w+)\}", text)) <= set(variables())


# Containers


def test_images_are_pinned_or_built_from_this_checkout():
    for name, service in SERVICES.items():
        if "build" not in service:
            assert re.fullmatch(r"docker\.io/library/nats:\d+\.\d+\.\d+-alpine", service["image"]), name
            continue
        build = service["build"]
        context = (FLEET / build["context"]).resolve()
        assert (context / build["dockerfile"]).is_file()
        assert "fleet" in build["args"]["EXTRAS"].split(",")
        project = tomllib.loads((context / "pyproject.toml").read_text())["project"]
        assert set(build["args"]["EXTRAS"].split(",")) <= set(project["optional-dependencies"])
        assert set(build["args"]) == set(re.findall(r"^ARG (\w+)=", (context / build["dockerfile"]).read_text(), re.M))


def test_containers_have_no_more_rights_than_they_need():
    for name, service in SERVICES.items():
        assert service["read_only"] is True, name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["cap_drop"] == ["ALL"], name
        assert "privileged" not in service
        if name == "volume":  # which gives the volume to the user of the others, and ends
            assert (service["user"], service["cap_add"], service["network_mode"]) == ("0:0", ["CHOWN"], "none")
            continue
        assert service["user"].startswith("${GEMMED_USER:?"), name
        assert "cap_add" not in service
        assert service["restart"] == "unless-stopped", name
        assert service["healthcheck"]["test"][0] == "CMD", name


@pytest.mark.parametrize("name", ["worker", "dispatcher"])
def test_models_that_are_fetched_can_be_written_in_containers(name, monkeypatch):
    """The rest of a container is read only, and so is the image's home of whoever runs it."""
    service = SERVICES[name]
    for variable, value in service["environment"].items():
        monkeypatch.setenv(variable, value)
    places = [Path(mount.partition(":")[0]) for mount in service["tmpfs"]]
    assert any(usual_cache().is_relative_to(place) for place in places)
    assert all(mount.endswith(":mode=1777") for mount in service["tmpfs"])


def test_only_the_broker_is_reached_from_outside():
    assert {name for name, service in SERVICES.items() if "ports" in service} == {"broker"}
    assert SERVICES["broker"]["ports"] == ["${GEMMED_BROKER_PORT:-4222}:4222"]
    assert COMPOSE["networks"]["inside"] == {"internal": True}
    assert {name for name, service in SERVICES.items() if "outside" in service.get("networks", [])} == {
        "broker", "notify",  # which calls the services that notify people
    }  # fmt: skip


def test_files_are_mounted_that_exist_to_be_read(etc):
    """And to be read only; the authorities' own keys are not among them."""
    for name, service in SERVICES.items():
        for volume in service["volumes"]:
            if isinstance(volume, str):
                own, _, _ = volume.partition(":")
                assert volume == f"{own}:/var/lib/gemmed-{own}"
                assert name in (own, "volume")
                continue
            place = volume["source"].removeprefix("${GEMMED_ETC:-/etc/gemmed}/")
            assert (etc / place).is_dir() if place == "model" else (etc / place).is_file(), place
            assert place != volume["source"]
            assert volume["target"] == f"/etc/gemmed/{place}"
            assert (volume["type"], volume["read_only"]) == ("bind", True)
            assert volume["bind"] == {"create_host_path": False}
            assert not place.endswith("ca.key")
    assert COMPOSE["volumes"] == {"broker": {}, "notify": {}}
    assert SERVICES["broker"]["environment"]["JETSTREAM_DATA"] == "/var/lib/gemmed-broker"


def test_commands_use_only_what_is_mounted():
    for name, service in SERVICES.items():
        mounted = {volume["target"] for volume in service["volumes"] if isinstance(volume, dict)}
        told = service.get("command", "")
        used = set(re.findall(r"/etc/gemmed/[\w./-]+", told if isinstance(told, str) else " ".join(told)))
        assert used <= mounted, name
    settings = tomllib.loads((FLEET / "fleet.toml").read_text())
    # Workers are told all else; but what is secret, or tells who the broker is, they have as files of their own.
    for name, told in {"worker": settings["broker"], "dispatcher": settings, "notify": settings}.items():
        mounted = {volume["target"] for volume in SERVICES[name]["volumes"] if isinstance(volume, dict)}
        needed = paths_in(told) - (paths_in(settings["fleet"]) if name == "notify" else set())
        assert needed <= mounted, name


def paths_in(settings: object) -> set[str]:
    """All that are named, in whatever table."""
    if isinstance(settings, dict | list):
        inner = settings.values() if isinstance(settings, dict) else settings
        return set().union(*map(paths_in, inner))
    return {settings} if isinstance(settings, str) and settings.startswith("/") else set()


@pytest.mark.parametrize("name", ["scheduler", "worker", "dispatcher", "notify"])
def test_containers_are_started_as_the_units_are(name):
    """With all options of theirs, but for those that tell processes of one machine apart."""
    unit = {"worker": "worker@", "dispatcher": "fleet"}.get(name, name)
    of_unit = entries(FLEET / f"gemmed-{unit}.service", "Service")["ExecStart"].split()
    service = SERVICES[name]
    started = [*service["entrypoint"], *service["command"].split()]
    assert Path(of_unit[0]).name == started[0]

    def options(words: list[str]) -> set[str]:
        return {word for word in words if word.startswith("--")} - {"--name", "--worker-port", "--nanny-port"}

    assert options(started) == options(of_unit)
    assert service["environment"]["DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION"] == "true"


def test_the_example_of_settings_uses_what_the_scripts_make(etc):
    from pipeline.config.schema import BrokerSettings as BrokerSettings

    settings = tomllib.loads((FLEET / "fleet.toml").read_text())
    broker = BrokerSettings.model_validate(settings["broker"])
    for path in (broker.password_file, broker.ca_file):
        assert (etc / Path(path).relative_to("/etc/gemmed")).is_file()
    assert Model.load(etc / Path(settings["fleet"]["model"]).relative_to("/etc/gemmed")).n_sensors
    assert f'user: "{broker.user}"' in (etc / "broker" / "fleet.conf").read_text()
    users = (etc / "broker" / "edges.conf").read_text()
    assert all(f'user: "{array["name"]}"' in users for array in settings["arrays"])
