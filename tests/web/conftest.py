"""A daemon with a dashboard, and a browser that looks at it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline.model.model import Model
from pipeline.retraining.registry import ModelOrigin, ModelStatus, Registry
from pipeline.runtime.state_dir import StateDirectory
from pipeline.storage.journal import Journal
from tests.conftest import TIMEOUT, component, eventually, free_port, network, program
from tests.daemon.live import WALKS, children, settings
from tests.forked import Process, is_stopped, started

ROOT = Path(__file__).parents[2]
SIMULATED = f"{WALKS}\nseed = 3\nfault_share = 0.2"


def web_process(daemon: int) -> int:
    """The child process that serves pages."""
    return next(children(daemon, "pipeline.web"))


class Dashboard:
    """A `gemmed run` that serves pages; killed and started again at will."""

    def __init__(
        self, directory: Path, model: Path | None, *, more: str = "", source: str = SIMULATED, rate_hz: int = 4000
    ) -> None:
        self.port, self.token = free_port(), ""
        self.url = f"http://127.0.0.1:{self.port}"
        web = f'[web]\naddress = "127.0.0.1:{self.port}"\n'
        self.config = settings(directory, model=model, rate_hz=rate_hz, source=source, more=web + more)
        self.state = StateDirectory(directory / "state")
        self._log = (directory / "daemon.log").open("ab")
        self._process: Process | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        self.launch()
        eventually(lambda: self.answer("/api/v1/status").get("running"), "the daemon is up")

    def hear_all(self) -> None:
        """Run until there is nothing left to hear."""
        self.launch()
        assert self._process is not None
        assert self._process.wait(TIMEOUT) == 0
        self._process = None

    def launch(self) -> None:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self._process = Process(
            ["run", "--config", str(self.config)], stdout=self._log, stderr=self._log, env=environment
        )

    def stop(self, number: int = signal.SIGTERM) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(TIMEOUT)
            self._process = None

    def close(self) -> None:
        self.stop(signal.SIGKILL)
        self._log.close()

    def answer(self, path: str) -> dict[str, Any]:
        """JSON of an address; nothing while nobody answers."""
        try:
            request = urllib.request.Request(self.url + path)
            if self.token:
                request.add_header("Authorization", f"Bearer {self.token}")
            with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
                return dict(json.load(answer))
        except urllib.error.HTTPError as error:
            error.close()
        except (OSError, ValueError):
            pass
        return {}

    def status(self) -> dict[str, Any]:
        return self.answer("/api/v1/status").get("status") or {}

    def copy_state(self, to: Path) -> Path:
        """As after a power failure at this moment: while it is copied, nothing changes and no file vanishes."""
        os.kill(self.pid, signal.SIGSTOP)
        try:
            eventually(lambda: is_stopped(self.pid))
            return Path(shutil.copytree(self.state.path, to))
        finally:
            os.kill(self.pid, signal.SIGCONT)

    def journal(self) -> Journal:
        return Journal(self.state.journal, read_only=True)

    def register(self, *models: Path) -> list[str]:
        """More models to choose from; their names."""
        with Journal(self.state.journal) as journal:
            registry = Registry(self.state.models, journal)
            return [
                registry.add(
                    Model.load(path), origin=ModelOrigin.GIVEN, status=ModelStatus.RETIRED, why="for choice"
                ).name
                for path in models
            ]


@pytest.fixture(scope="session")
def dashboard(tmp_path_factory, model, other_models) -> Iterator[Dashboard]:
    """A simulated array of which the sensors fail now and then, with a model that decides and two to choose from.

    It is the same for all tests: who kills it starts it again, who promotes a model rolls back.
    """
    made = Dashboard(tmp_path_factory.mktemp("dashboard"), model)
    made.start()
    try:
        made.register(*other_models)
        eventually(lambda: made.status().get("decisions"), "the first decision")
        yield made
    finally:
        made.close()


class Browser:
    """One in which everything may take its time."""

    def __init__(self, chromium: Any) -> None:
        self._chromium = chromium

    def new_context(self, **options: Any) -> Any:
        context = self._chromium.new_context(**options)
        context.set_default_timeout(1000 * TIMEOUT)
        return context


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Debian's Chromium without windows, which must not call anybody by itself."""
    sync_api = component("playwright.sync_api")
    sync_api.expect.set_options(timeout=1000 * TIMEOUT)
    options = [
        "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
        "--disable-component-update", "--disable-sync", "--mute-audio", "--autoplay-policy=no-user-gesture-required",
    ]  # fmt: skip
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=program("chromium-headless-shell"), args=options)
        yield Browser(chromium)
        chromium.close()


@pytest.fixture(autouse=True)
def steady_network() -> Iterator[None]:
    with network():
        yield


@pytest.fixture
def context_options() -> dict[str, Any]:
    """How the browser of a page differs from others; a file may say otherwise."""
    return {}


@pytest.fixture
def page(browser, dashboard, context_options) -> Iterator[Any]:
    """A fresh page; it fails the test if it complains, or asks anybody else for anything."""
    context = browser.new_context(base_url=dashboard.url, viewport={"width": 1200, "height": 800}, **context_options)
    page = context.new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on(
        "request",
        lambda request: (
            None
            if request.url.startswith((dashboard.url, "data:", "blob:"))
            else complaints.append(f"asks {request.url}")
        ),
    )
    page.complaints = complaints
    yield page
    page.unroute_all(behavior="ignoreErrors")  # what a test held back may still be on its way
    context.close()
    assert not complaints


class Alone:
    """A `gemmed web` for a state directory."""

    def __init__(self, directory: Path, state: Path, *, more: str = "", python_path: Path = ROOT) -> None:
        self.port, self.state, self._log = free_port(), StateDirectory(state), directory / "web.log"
        self.config = directory / "web.toml"
        web = f'[web]\naddress = "127.0.0.1:{self.port}"\n{more}'
        self.config.write_text(f'[storage]\ndirectory = "{state}"\n[source]\nkind = "pcm"\n{web}')
        self._python_path = python_path

    @property
    def log(self) -> str:
        return self._log.read_text()

    def __enter__(self) -> Alone:
        # Another copy of the package needs an interpreter of its own.
        before = () if self._python_path == ROOT else ("env", f"PYTHONPATH={self._python_path}")
        with self._log.open("ab") as log:
            command = ["web", "--config", str(self.config)]
            self.process = started(command, before=before, stdout=log, stderr=log, cwd=self.config.parent)
        eventually(lambda: "the dashboard is open" in self.log or self.process.poll() is not None, "it is served")
        return self

    def __exit__(self, *exc: object) -> None:
        self.process.terminate()
        self.process.wait(TIMEOUT)
