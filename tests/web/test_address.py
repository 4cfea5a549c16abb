"""Where the dashboard listens, how it is encrypted, and what is said when it cannot be."""

from __future__ import annotations

import re
import socket
import ssl
import subprocess
from pathlib import Path

import pytest

from pipeline.config.schema import Web, read_settings
from pipeline.core.errors import SettingsError
from pipeline.daemon.preflight import check
from pipeline.runtime.endpoint import days_left, doubts, encryption
from pipeline.web.tokens import hash_of, new_token
from tests.conftest import eventually, program
from tests.forked import gemmed
from tests.web.asking import CHANGE, ask
from tests.web.conftest import Alone, Dashboard

TOKEN = new_token()
TOKENS = f'tokens = [{{name = "ada", role = "operator", hash = "{hash_of(TOKEN)}"}}]\n'
AUTHORITY = """\
[ca]
default_ca = one
[one]
database = index.txt
rand_serial = yes
default_md = sha256
policy = any
[any]
commonName = supplied
"""


def openssl(directory: Path, *arguments: str) -> None:
    done = subprocess.run([program("openssl"), *arguments], cwd=directory, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def certificate(directory: Path, name: str, days: int = 90) -> None:
    """For itself, with a key of its own."""
    openssl(
        directory, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout",
        f"{name}.key", "-out", f"{name}.crt", "-subj", "/CN=localhost", "-days", str(days), "-addext",
        "subjectAltName=DNS:localhost,IP:127.0.0.1",
    )  # fmt: skip


@pytest.fixture(scope="module")
def certificates(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("certificates")
    certificate(place, "good")
    certificate(place, "soon", days=3)
    openssl(place, "ec", "-in", "good.key", "-aes256", "-passout", "pass:word", "-out", "locked.key")
    openssl(place, "genrsa", "-out", "rsa.key", "2048")
    (place / "ca.cnf").write_text(AUTHORITY)
    (place / "index.txt").touch()
    openssl(place, "req", "-new", "-key", "good.key", "-subj", "/CN=localhost", "-out", "request")
    openssl(
        place, "ca", "-batch", "-config", "ca.cnf", "-selfsign", "-keyfile", "good.key", "-in", "request", "-startdate",
        "20200101000000Z", "-enddate", "20200201000000Z", "-outdir", ".", "-notext", "-out", "old.crt",
    )  # fmt: skip
    (place / "text").write_text("no certificate")
    return place


def web(place: Path, certificate: str, key: str) -> Web:
    return Web(certificate=place / certificate, key=place / key)


@pytest.mark.parametrize(
    ("certificate", "key", "told"),
    [
        ("gone.crt", "good.key", "cannot be read: No such file"),
        ("good.crt", "gone.key", "cannot be read: No such file"),
        ("good.crt", "soon.key", "does not belong to web.key"),
        ("good.crt", "rsa.key", "does not belong to web.key"),
        ("good.crt", "locked.key", "without a password"),
        ("text", "good.key", "must be PEM files"),
        ("good.crt", "text", "must be PEM files"),
    ],
)
def test_a_certificate_that_cannot_be_used_is_told_in_words(certificates, certificate, key, told):
    with pytest.raises(SettingsError, match=told):
        encryption(web(certificates, certificate, key))


def test_the_age_of_a_certificate_is_known(certificates):
    assert days_left(web(certificates, "good.crt", "good.key")) == pytest.approx(90, abs=0.1)
    assert doubts(web(certificates, "good.crt", "good.key")) == []
    (told,) = doubts(web(certificates, "soon.crt", "soon.key"))
    assert "ends in 3 days; renew it" in told
    with pytest.raises(SettingsError, match="not valid now: certificate has expired; renew it"):
        days_left(web(certificates, "old.crt", "good.key"))
    assert days_left(Web()) is None


@pytest.fixture(scope="module")
def past(tmp_path_factory) -> Dashboard:
    """The state directory of a daemon that ran and was stopped."""
    made = Dashboard(tmp_path_factory.mktemp("past"), None)
    made.start()
    eventually(lambda: made.status().get("sample"), "some sound")
    made.stop()
    made.close()
    return made


def test_an_encrypted_dashboard(past, certificates, tmp_path):
    """Cookies only travel encrypted, and a renewed certificate needs no restart."""
    for name in ("good.crt", "good.key"):
        (tmp_path / name).write_bytes((certificates / name).read_bytes())
    more = f'{TOKENS}certificate = "{tmp_path}/good.crt"\nkey = "{tmp_path}/good.key"\n'
    trusting = ssl.create_default_context(cafile=certificates / "good.crt")
    with Alone(tmp_path, past.state.path, more=more) as made:
        answer = ask(made.port, "/api/v1/session", "POST", headers=CHANGE, body={"token": TOKEN}, tls=trusting)
        assert answer.code == 200
        assert answer.cookie.startswith("__Host-gemmed")
        assert "secure" in {part.strip().lower() for part in answer.headers["set-cookie"].split(";")}
        assert answer.headers["strict-transport-security"].startswith("max-age=")
        assert ask(made.port, "/api/v1/status", headers={"Cookie": answer.cookie}, tls=trusting).code == 200

        assert "is used by another gemmed" in dashboard_line(made.config)
        certificate(tmp_path, "good")
        renewed = ssl.create_default_context(cafile=tmp_path / "good.crt")

        def trusted() -> bool:
            try:
                return ask(made.port, "/login", tls=renewed).code == 200
            except ssl.SSLCertVerificationError:
                return False

        eventually(trusted, "the renewed certificate")


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ('address = "192.0.2.1:8780"', "web.address = .* lets other machines in, which needs tokens; make one"),
        ('address = "0.0.0.0:8780"\n' + TOKENS, "every address of this machine, so hosts must say"),
        ('hosts = ["http://field1"]', "without scheme and port"),
        ('hosts = ["field1:8780"]', "without scheme and port"),
        ('certificate = "a.crt"', "and key belong together"),
        (f"{TOKENS[:-2]}, {TOKENS[10:]}", "must have names that differ"),
        ('tokens = [{name = "x", hash = "sha256:abc"}]', "number 1 has a hash that must be sha256"),
        ('tokens = [{name = "x"}]', "number 1 has no hash; gemmed token shows"),
        (TOKENS.replace("operator", "king"), "number 1 has a role that must be one of viewer, operator"),
        (TOKENS.replace("role", "rolle"), "number 1 has rolle, which is not known"),
    ],
)
def test_settings_that_would_let_anybody_in_are_refused(tmp_path, lines, told):
    """And what is said does not tell a hash."""
    file = tmp_path / "gemmed.toml"
    file.write_text(f"[web]\n{lines}\n")
    with pytest.raises(SettingsError, match=told) as refused:
        read_settings(file)
    assert str(hash_of(TOKEN))[-20:] not in str(refused.value)


def test_an_address_on_the_network_warns_without_encryption(past, tmp_path):
    """In the log, by the check, and on every page; only by the names that were given."""
    made = Alone(tmp_path, past.state.path)
    text = made.config.read_text().replace("127.0.0.1:", "0.0.0.0:")
    made.config.write_text(f'{text}hosts = ["Field1.example"]\n{TOKENS}')
    with made:
        assert "without encryption" in made.log
        told = ask(made.port, "/api/v1/session", token=TOKEN, headers={"Host": f"field1.example:{made.port}"})
        assert "tokens can be read on the way" in told.json["warning"]
        assert ask(made.port, "/api/v1/session", headers={"Host": "field2.example"}).code == 421
    assert "without encryption" in dashboard_line(made.config)


def dashboard_line(config: Path) -> str:
    """What `gemmed check` says of it."""
    found = next(one for one in check(read_settings(config)) if one.what == "dashboard")
    return f"{'fine' if found.fine else 'FAILS'} {found.told}"


def test_a_check_tries_the_address(past, certificates, tmp_path):
    made = Alone(tmp_path, past.state.path)
    assert re.search(r"fine http://127.0.0.1:\d+ can be served, open to everybody", dashboard_line(made.config))
    with made:
        assert "is used by another gemmed; stop that" in dashboard_line(made.config)
    with socket.create_server(("127.0.0.1", made.port)):
        assert "is used by another process; stop that" in dashboard_line(made.config)
    made.config.write_text(
        f'{made.config.read_text()}certificate = "{certificates}/old.crt"\nkey = "{certificates}/good.key"\n'
    )
    assert "FAILS web.certificate" in dashboard_line(made.config)
    made.config.write_text(made.config.read_text().replace("old.crt", "good.crt"))
    assert "its certificate lasts 90 days" in dashboard_line(made.config)
    made.config.write_text("[web]\nenabled = false\n")
    assert "none: web.enabled = false" in dashboard_line(made.config)


def test_without_a_daemon_one_sees_how_it_was(past, tmp_path):
    with Alone(tmp_path, past.state.path) as made:
        answer = eventually(lambda: _with_status(made.port), "what was told last")
        assert not answer["running"]
        assert answer["age_seconds"] > 0
        assert answer["status"]["sample"] > 0
        assert ask(made.port, "/healthz").json["reasons"][0]["what"] == "the daemon does not run"
        assert ask(made.port, "/api/v1/events?types=run_stopped").json["events"]
        assert ask(made.port, "/metrics").code == 200
    assert made.process.returncode == 0
    assert "Traceback" not in made.log


def _with_status(port: int):
    found = ask(port, "/api/v1/status").json
    return found if found["status"] else None


def test_a_daemon_that_serves_is_told_instead(tmp_path):
    made = Dashboard(tmp_path, None)
    made.start()
    try:
        done = gemmed("web", "--config", str(made.config))
        assert done.returncode == 0
        assert done.stdout == f"a daemon runs and serves it: {made.url}\n"
        assert re.search("is open already", dashboard_line(made.config))
    finally:
        made.close()


def test_a_directory_that_is_none_is_told(tmp_path):
    done = gemmed("web", "--state", str(tmp_path / "nothing"))
    assert done.returncode == 1
    assert "has no journal; give --state, or start gemmed run" in done.stderr


def test_an_address_that_is_taken_is_told_and_tried_again(tmp_path):
    """The daemon goes on meanwhile."""
    made = Dashboard(tmp_path, None)
    with socket.create_server(("127.0.0.1", made.port)):
        made.launch()
        eventually(lambda: "is used by another process" in (tmp_path / "daemon.log").read_text(), "it says so")
    eventually(lambda: made.answer("/api/v1/status").get("running"), "the dashboard is open after all")
    made.close()


def test_a_token_is_shown_once_and_its_line_can_be_used(tmp_path):
    done = gemmed("token", "Ada L.", "--role", "operator")
    token = re.search(r"gemmed_[\w-]{43}", done.stdout)[0]
    line = re.search(r"\[web\] (tokens = .*)", done.stdout)[1]
    file = tmp_path / "gemmed.toml"
    file.write_text(f"[web]\n{line}\n")
    (known,) = read_settings(file).web.tokens
    assert (known.name, known.role, known.hash) == ("Ada L.", "operator", hash_of(token))
    assert hash_of("gemmed_short") is None
    assert gemmed("token", "ada").stdout != gemmed("token", "ada").stdout
    refused = gemmed("token", "ada", "--role", "king")
    assert refused.returncode == 1
    assert "must be viewer or operator" in refused.stderr
