"""Who gets in, who does not, and what nobody is told. A real daemon, real sockets."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import stat
import zipfile
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest

from pipeline.web.guard import LONGEST_BODY, MOST_STREAMS
from pipeline.web.sessions import Guesses, session_key
from pipeline.web.tokens import hash_of, new_token
from tests.conftest import eventually
from tests.forked import gemmed
from tests.web.asking import CHANGE, ask, connected, raw, status_of
from tests.web.conftest import Alone, Dashboard, web_process

OPERATOR, VIEWER = new_token(), new_token()
SESSION = "/api/v1/session"
GET = "GET /api/v1/status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
POST = b"POST /api/v1/session HTTP/1.1\r\nHost: localhost\r\n"


def line(name: str, role: str, token: str) -> str:
    return f'{{name = "{name}", role = "{role}", hash = "{hash_of(token)}"}}'


TOKENS = [line("ada", "operator", OPERATOR), line("bob", "viewer", VIEWER)]


def log_in(port: int, token: str, **more):
    return ask(port, SESSION, "POST", headers=CHANGE, body={"token": token}, **more)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """A daemon that asks for tokens."""
    made = Dashboard(tmp_path_factory.mktemp("guarded"), None, more=f"tokens = [{', '.join(TOKENS)}]\n")
    made.token = OPERATOR
    made.start()
    yield made
    made.close()


@pytest.fixture(scope="module")
def open_to_all(tmp_path_factory):
    """A daemon on this machine only, without tokens."""
    made = Dashboard(tmp_path_factory.mktemp("open"), None)
    made.start()
    yield made
    made.close()


def test_without_tokens_everybody_on_this_machine_is_operator(open_to_all):
    told = ask(open_to_all.port, SESSION).json
    assert told["role"] == "operator"
    assert not told["tokens_needed"]
    assert told["warning"] is None


@pytest.mark.parametrize("path", ["/api/v1/status", "/api/v1/stream", "/metrics", "/readyz", "/openapi.json", "/nix"])
def test_nothing_is_told_without_a_token(guarded, path):
    """Not even what exists."""
    answer = ask(guarded.port, path)
    assert answer.code == 401
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert "token" in answer.json["error"]


def test_what_is_open_to_all_says_nothing_of_the_machine(guarded):
    assert ask(guarded.port, "/healthz").code == 200
    assert ask(guarded.port, "/login").code == ask(guarded.port, "/static/login.js").code == 200
    assert ask(guarded.port, SESSION).json == {
        "tokens_needed": True,
        "who": None,
        "role": None,
        "warning": None,
        "version": None,
    }


def test_pages_lead_to_the_login(guarded):
    answer = ask(guarded.port, "/sensors/1", headers={"Accept": "text/html,*/*"})
    assert (answer.code, answer.headers["location"]) == (303, "/login?next=%2Fsensors%2F1")
    answer = ask(guarded.port, "/review?event=7", headers={"Accept": "text/html,*/*"})
    assert answer.headers["location"] == "/login?next=%2Freview%3Fevent%3D7"


def test_a_token_of_either_role_may_look(guarded):
    """Prometheus sends a token, too."""
    for token, who, role in ((OPERATOR, "ada", "operator"), (VIEWER, "bob", "viewer")):
        assert ask(guarded.port, "/api/v1/status", token=token).code == 200
        assert ask(guarded.port, "/metrics", token=token).body.startswith(b"# HELP")
        told = ask(guarded.port, SESSION, token=token).json
        assert (told["who"], told["role"]) == (who, role)


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_a_viewer_may_not_change_anything(guarded, method):
    cookie = log_in(guarded.port, VIEWER).cookie
    by_token = ask(guarded.port, "/api/v1/labels", method, token=VIEWER, body={})
    by_cookie = ask(guarded.port, "/api/v1/labels", method, headers={**CHANGE, "Cookie": cookie}, body={})
    assert by_token.code == by_cookie.code == 403
    assert "role operator" in by_token.json["error"]
    assert ask(guarded.port, "/api/v1/labels", method, token=OPERATOR, body={}).code not in (401, 403)


def test_a_session_outlives_the_process_and_ends_with_its_cookie(guarded):
    answer = log_in(guarded.port, OPERATOR)
    attributes = {part.strip().lower() for part in answer.headers["set-cookie"].split(";")[1:]}
    assert {"httponly", "samesite=strict", "path=/"} <= attributes
    assert not any(part.startswith(("domain", "secure")) for part in attributes)
    assert OPERATOR not in answer.headers["set-cookie"]
    here = {"Cookie": answer.cookie}
    assert ask(guarded.port, SESSION, headers=here).json["who"] == "ada"

    before = web_process(guarded.pid)
    os.kill(before, signal.SIGKILL)
    eventually(lambda: guarded.answer("/api/v1/status").get("running"), "it is served again")
    assert web_process(guarded.pid) != before
    assert ask(guarded.port, "/api/v1/status", headers=here).code == 200

    gone = ask(guarded.port, SESSION, "DELETE", headers={**CHANGE, **here})
    assert gone.code == 200
    assert gone.cookie.partition("=")[2] in ("", '""')
    key = guarded.state.session_key
    assert stat.S_IMODE(key.stat().st_mode) == 0o600


def test_a_cookie_that_was_changed_is_none(guarded):
    name, _, value = log_in(guarded.port, VIEWER).cookie.partition("=")
    ends, _, signature = value.partition(".")
    later = f"{int(ends) + 1}.{signature}"
    other = f"{ends}.{'0' * len(signature)}"
    for cookie in (later, other, f"{ends}.", ends, "", "." * 50, f"{ends}.é", f"-{value}", "9" * 4000):
        answer = raw(guarded.port, f"{GET}Cookie: {name}={cookie}\r\n\r\n".encode())
        assert status_of(answer) in (400, 401), cookie


def test_a_cookie_is_found_beside_whatever_others_at_this_host_have_set(guarded):
    cookie = log_in(guarded.port, VIEWER).cookie
    for others in ('theme={"dark": true, "sizes": [1, 2]}', "a b=c", "=;;", 'open="', "path"):
        for header in (f"{others}; {cookie}", f"{cookie}; {others}"):
            assert ask(guarded.port, SESSION, headers={"Cookie": header}).json["who"] == "bob", header


def test_a_token_that_is_taken_away_ends_its_sessions_at_once(tmp_path):
    made = Dashboard(tmp_path, None, more=f"tokens = [{', '.join(TOKENS)}]\n")
    made.token = OPERATOR
    made.start()
    try:
        ada, bob = ({"Cookie": log_in(made.port, token).cookie} for token in (OPERATOR, VIEWER))
        assert ask(made.port, "/api/v1/status", headers=bob).code == 200
        made.config.write_text(made.config.read_text().replace(f", {TOKENS[1]}", ""))
        os.kill(made.pid, signal.SIGHUP)
        # While the process is replaced nobody answers, which is not what is waited for.
        eventually(lambda: _code(made.port, bob) == 401, "the session has ended")
        assert ask(made.port, "/api/v1/status", headers=ada).code == 200
        assert ask(made.port, "/api/v1/status", token=VIEWER).code == 401
    finally:
        made.close()


def _code(port: int, headers: dict[str, str]) -> int | None:
    try:
        return ask(port, "/api/v1/status", headers=headers).code
    except OSError:
        return None


def test_a_foreign_page_cannot_change_anything(open_to_all):
    """It can neither set our header, nor send JSON, nor hide where it comes from."""
    port = open_to_all.port
    ours = f"http://127.0.0.1:{port}"
    refused = {
        "no header": {"Content-Type": "application/json"},
        "a form": {**CHANGE, "Content-Type": "text/plain"},
        "a file": {"X-Gemmed": "1", "Content-Type": "multipart/form-data; boundary=x"},
        "another origin": {**CHANGE, "Origin": "http://evil.example"},
        "another port": {**CHANGE, "Origin": "http://127.0.0.1:1"},
        "a sandbox": {**CHANGE, "Origin": "null"},
        "nonsense": {**CHANGE, "Origin": "http://[evil"},
        "another site": {**CHANGE, "Sec-Fetch-Site": "cross-site"},
        "a neighbour": {**CHANGE, "Sec-Fetch-Site": "same-site"},
        "a password in the address": {"Authorization": "Basic eDp5", "Content-Type": "text/plain"},
    }
    for why, headers in refused.items():
        assert ask(port, SESSION, "POST", headers=headers, body={"token": "x"}).code in (403, 415), why
    fine = {**CHANGE, "Origin": ours, "Sec-Fetch-Site": "same-origin"}
    assert ask(port, SESSION, "POST", headers=fine, body={"token": "x"}).code == 200


def test_a_foreign_page_cannot_read_either(open_to_all):
    """Nobody is ever granted anything across origins; a link from elsewhere still opens a page."""
    port = open_to_all.port
    foreign = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    for method, path in (("GET", "/api/v1/status"), ("OPTIONS", "/api/v1/status"), ("OPTIONS", SESSION), ("GET", "/")):
        answer = ask(port, path, method, headers=foreign)
        assert not any(name.startswith("access-control") for name in answer.headers)
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    assert ask(port, "/api/v1/status", headers={"Sec-Fetch-Site": "cross-site"}).code == 403
    assert ask(port, "/timeline", headers={"Sec-Fetch-Site": "cross-site"}).code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "127.0.0.1.nip.example", "", "127.0.0.1@evil.example",
             "evil.example:8780", "[::1", "localhost:port", "0", "[::2]", "localhost, evil.example"],
)  # fmt: skip
def test_other_hosts_are_not_served(open_to_all, host):
    """A name that was pointed at this machine after a page of it was loaded."""
    answer = raw(open_to_all.port, f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
    assert status_of(answer) in (400, 421)
    assert b"<html" not in answer


def test_a_host_must_be_named_and_once(open_to_all):
    assert status_of(raw(open_to_all.port, b"GET / HTTP/1.1\r\n\r\n")) == 400
    assert status_of(raw(open_to_all.port, b"GET / HTTP/1.0\r\n\r\n")) == 421
    two = b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n"
    assert status_of(raw(open_to_all.port, two)) == 400
    for host in ("localhost", "LOCALHOST:1", "127.0.0.1:99", "[::1]:5", "localhost."):
        answer = raw(open_to_all.port, f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        assert status_of(answer) == 200, host


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py", "/static/..%2fapp.py", "/static/%2e%2e/app.py", "/static/%2e%2e%2fapp.py",
        "/static/..%5capp.py", "/static/....//app.py", "/static/%252e%252e%252fapp.py", "/static//etc/passwd",
        "/static/%2fetc%2fpasswd", "/static/pages/../../app.py", "/static/..%00/app.py", "/static/app.js%00.html",
        "/static/%c0%ae%c0%ae/app.py", "/../../etc/passwd", "//etc/passwd", "/static/", "/static/pages",
        "/static/" + "../" * 40 + "etc/passwd", "/static/" + "a" * 5000, "http://localhost/etc/passwd",
        "/api/v1/sound/..%2f..%2fetc%2fpasswd?start=0&stop=9", "/api/v1/spectrogram/%2e%2e?start=0&stop=9",
    ],
)  # fmt: skip
def test_no_path_leads_out(open_to_all, path):
    request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    answer = raw(open_to_all.port, request.encode())
    assert status_of(answer) in (400, 404)
    assert b"root:" not in answer
    assert b"import" not in answer


def test_links_do_not_lead_out_either(tmp_path, open_to_all):
    """The package with a link planted among its files, served for the same state directory."""
    import pipeline

    copy = shutil.copytree(Path(pipeline.__file__).parent, tmp_path / "copy" / "pipeline")
    (copy / "web" / "static" / "link.js").symlink_to("/etc/passwd")
    (copy / "web" / "static" / "inside.js").symlink_to("app.js")
    made = Alone(tmp_path, open_to_all.state.path, python_path=copy.parent)
    with made:
        assert ask(made.port, "/static/app.js").code == ask(made.port, "/static/inside.js").code == 200
        assert ask(made.port, "/static/link.js").code == 404


@pytest.mark.parametrize(
    "request_",
    [
        POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        POST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcde",
        POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 38\r\n\r\nGET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /api/v1/status HTTP/1.1\r\nHost: localhost\r\nX: a\rb\r\n\r\n",
        b"GET /api/v1/status HTTP/1.1\r\nHost : localhost\r\n\r\n",
        b"GET /api/v1/status HTTP/1.1\r\nHost: localhost\r\n X-Gemmed: 1\r\nno colon\r\n\r\n",
        b"GET /api/v1/status HTTP/9.9\r\nHost: localhost\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 60,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
    ids=lambda request: request[:20].decode(errors="replace"),
)  # fmt: skip
def test_requests_that_can_be_read_in_two_ways_are_refused(open_to_all, request_):
    """Once, and the connection ends: nothing behind it is taken for another request."""
    answer = raw(open_to_all.port, request_)
    assert len(re.findall(rb"^HTTP/1.1 \d", answer, re.MULTILINE)) == 1
    assert status_of(answer) in (400, 403)
    assert ask(open_to_all.port, "/api/v1/status").code == 200


def test_a_body_has_a_limit_however_it_comes(open_to_all):
    port = open_to_all.port
    text = b'{"token": "' + b"x" * LONGEST_BODY + b'"}'
    told = ask(port, SESSION, "POST", headers=CHANGE, body=text)
    assert (told.code, told.json["error"]) == (413, "the body is longer than 64 KB; send less")
    head = POST + b"X-Gemmed: 1\r\nContent-Type: application/json\r\n"
    chunk = b"4000\r\n" + b" " * 0x4000 + b"\r\n"
    assert status_of(raw(port, head + b"Transfer-Encoding: chunked\r\n\r\n" + 5 * chunk + b"0\r\n\r\n")) == 413
    assert status_of(raw(port, head + b"Content-Length: 99999999999999999999\r\n\r\n")) == 413
    many = b"".join(b"X-%d: %s\r\n" % (n, b"y" * 100) for n in range(400))
    assert status_of(raw(port, b"GET / HTTP/1.1\r\nHost: localhost\r\n" + many + b"\r\n")) == 431
    assert ask(port, "/api/v1/status").code == 200


def test_guessing_costs_the_guesser_time_and_nobody_else(guarded):
    port, guesser = guarded.port, "127.0.0.9"
    assert log_in(port, new_token(), sender=guesser).code == 401

    def must_wait_for_long() -> bool:
        """So that all that follows is asked within the pause."""
        refused = log_in(port, new_token(), sender=guesser)
        return refused.code == 429 and int(refused.headers["retry-after"]) > 4

    eventually(must_wait_for_long, "pauses grow")
    refused = log_in(port, OPERATOR, sender=guesser)
    assert refused.code == 429
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    # He may not guess another way; others, and who has a token, go on.
    assert ask(port, "/api/v1/status", token=new_token(), sender=guesser).code == 429
    assert ask(port, "/api/v1/status", token=OPERATOR, sender=guesser).code == 200
    assert log_in(port, OPERATOR, sender="127.0.0.10").code == 200


def test_pauses_grow_and_memory_does_not():
    now = [0.0]
    guesses = Guesses(lambda: now[0])
    waits = []
    for _ in range(16):
        guesses.count("192.0.2.1")
        waits.append(guesses.wait_seconds("192.0.2.1"))
        now[0] += waits[-1]
    assert waits[:5] == [0, 0, 0, 0, 1]
    assert waits[5:11] == [2, 4, 8, 16, 32, 60]
    assert max(waits) == 60
    assert guesses.wait_seconds("192.0.2.2") == 0
    guesses.forgive("192.0.2.1")
    guesses.count("192.0.2.1")
    assert guesses.wait_seconds("192.0.2.1") == 0
    for number in range(10_000):
        guesses.count(f"10.0.{number // 256}.{number % 256}")
    assert len(guesses) <= 4096


def test_one_who_has_many_addresses_is_still_one():
    guesses = Guesses()
    for number in range(8):
        guesses.count(f"2001:db8::{number:x}")
    assert guesses.wait_seconds("2001:db8::ffff") > 0
    assert guesses.wait_seconds("2001:db8:0:1::1") == 0
    assert guesses.wait_seconds("::ffff:192.0.2.1") == 0


def test_what_a_header_says_of_the_sender_is_not_believed(guarded):
    """Else one could guess from as many addresses as there are."""
    numbers = count()

    def refused() -> bool:
        """Where guesses take longer than the first pauses, it needs some more."""
        headers = {**CHANGE, "X-Forwarded-For": f"2001:db8:{next(numbers):x}::1"}
        body = {"token": new_token()}
        return ask(guarded.port, SESSION, "POST", headers=headers, body=body, sender="127.0.0.8").code == 429

    eventually(refused, "he is told to wait")


def test_streams_cannot_take_all_the_room(open_to_all):
    port = open_to_all.port
    request = b"GET /api/v1/stream HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with ExitStack() as stack:
        for _ in range(MOST_STREAMS):
            peer = stack.enter_context(connected(port))
            peer.sendall(request)
            assert b"200 OK" in peer.recv(100)
        refused = ask(port, "/api/v1/stream")
        assert refused.code == 503
        assert "pages are open" in refused.json["error"]
        assert ask(port, "/api/v1/status").code == 200

    def admitted() -> bool:
        with connected(port) as peer:
            peer.sendall(request)
            return b"200 OK" in peer.recv(100)

    eventually(admitted, "room for another page")


def test_every_answer_tells_browsers_what_not_to_do(open_to_all):
    for path in ("/", "/login", "/static/app.js", "/api/v1/status", "/api/v1/nix", "/metrics"):
        headers = ask(open_to_all.port, path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert "server" not in headers
        assert "strict-transport-security" not in headers


def test_pages_have_no_script_or_style_of_their_own():
    """The policy would refuse it."""
    import pipeline

    for page in (Path(pipeline.__file__).parent / "web" / "static").glob("*.html"):
        text = page.read_text()
        assert not re.search(r"<script(?![^>]*src=)|<style|\sstyle=|\son\w+=|javascript:", text), page


def test_no_secret_is_in_logs_events_answers_or_bundles(guarded, tmp_path):
    """After logins with right and wrong tokens, both ways."""
    wrong = new_token()
    cookie = log_in(guarded.port, VIEWER, sender="127.0.0.11").cookie
    log_in(guarded.port, wrong, sender="127.0.0.11")
    ask(guarded.port, f"/api/v1/status?token={wrong}", token=wrong, sender="127.0.0.11")
    ask(guarded.port, "/api/v1/status", headers={"Cookie": cookie})
    settings = ask(guarded.port, "/api/v1/settings", token=VIEWER).body.decode()
    assert "bob" in settings
    with guarded.journal() as journal:
        events = json.dumps([event.as_dict() for event in journal.events(types=["run_started", "settings_reloaded"])])
    assert "bob" in events
    out = tmp_path / "bundle.zip"
    done = gemmed("bundle", "--config", str(guarded.config), "--out", str(out))
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(out) as packed:
        bundle = "".join(packed.read(name).decode() for name in packed.namelist())
    assert "[web]" in bundle
    log = (guarded.config.parent / "daemon.log").read_text()
    assert "wrong tokens" in log
    key = guarded.state.session_key.read_bytes()
    secrets = [OPERATOR, VIEWER, wrong, cookie.partition("=")[2], key.hex()]
    secrets += [str(hash_of(token)).removeprefix("sha256:") for token in (OPERATOR, VIEWER, wrong)]
    for place, text in {"log": log, "events": events, "settings": settings, "bundle": bundle}.items():
        for secret in secrets:
            assert secret not in text, place


def test_errors_tell_no_path_and_no_traceback(open_to_all, tmp_path):
    """Even when the journal is gone."""
    made = Alone(tmp_path, open_to_all.copy_state(tmp_path / "state"))
    with made:
        made.state.journal.rename(tmp_path / "elsewhere")
        answer = ask(made.port, "/api/v1/events")
        assert answer.code == 503
        assert str(tmp_path) not in answer.body.decode()
        assert b"Traceback" not in answer.body


def test_two_processes_agree_on_one_key(tmp_path):
    path = tmp_path / "session.key"
    first = session_key(path)
    assert session_key(path) == first
    path.write_bytes(b"cut off")
    second = session_key(path)
    assert len(second) == 32
    assert session_key(path) == second != first
    assert [one.name for one in tmp_path.iterdir()] == ["session.key"]
