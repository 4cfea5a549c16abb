"""Real Dask clusters on this machine: schedulers and workers as processes, with and without TLS."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any

from pipeline.runtime.dask_pool import Tls
from tests.conftest import TIMEOUT, component, free_port, program
from tests.forked import Process, Running

ROOT = Path(__file__).parents[1]


class Cluster:
    """A scheduler and workers of its own; whatever is left of them at the end is killed."""

    def __init__(
        self,
        place: Path,
        *,
        tls: Tls | None = None,
        host: str = "127.0.0.1",
        settings: dict[str, str] | None = None,
        afresh: bool = False,
    ) -> None:
        """With settings, or asked to, its processes are new interpreters: those read the environment."""
        component("distributed")
        place.mkdir(parents=True, exist_ok=True)
        self._place, self._tls, self._afresh = place, tls, afresh or settings is not None
        # As on a machine where nobody has thought of threads; the package must be found from any directory.
        inherited = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
        self._environment = {**inherited, "PYTHONPATH": str(ROOT), **(settings or {})}
        known_as = host if tls else "127.0.0.1"
        self.address, self._host = f"{'tls' if tls else 'tcp'}://{known_as}:{free_port()}", host
        self.workers: list[Running] = []
        self.start_scheduler()

    def start_scheduler(self) -> None:
        """Also again, after it was killed."""
        port = self.address.split(":")[-1]
        self.scheduler = self._start(
            "scheduler", ["--host", self._host, "--port", port, "--dashboard-address", "127.0.0.1:0"], "Scheduler at:"
        )

    def worker(
        self, *, threads: int = 1, host: str = "127.0.0.1", package: Path = ROOT, inside: Sequence[str] = ()
    ) -> Running:
        """One more, which has its gemmed from a directory, and perhaps runs inside a network of its own."""
        number = str(len(self.workers))
        place = ["--local-directory", str(self._place), "--host", host, "--name", number, "--death-timeout", "60"]
        process = self._start(
            "worker",
            [self.address, "--no-nanny", "--no-dashboard", "--nthreads", str(threads), *place],
            "Registered to:",
            {} if package == ROOT else {"PYTHONPATH": str(package)},
            inside,
        )
        self.workers.append(process)
        return process

    def _start(
        self,
        what: str,
        options: Sequence[str],
        ready: str,
        settings: dict[str, str] | None = None,
        inside: Sequence[str] = (),
    ) -> Running:
        module, options = f"distributed.cli.dask_{what}", [*options, *tls_options(self._tls, "--tls-ca-file")]
        streams: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
        if self._afresh or inside or settings:
            command = [*inside, sys.executable, "-m", module, *options]
            environment = self._environment | (settings or {})
            process: Running = subprocess.Popen(command, cwd=self._place, env=environment, **streams)
        else:
            process = Process(options, module=module, cwd=self._place, env=self._environment, **streams)
        lines: SimpleQueue[str] = SimpleQueue()
        Thread(target=_drain, args=(process, lines), daemon=True).start()
        told = ""
        while ready not in told:
            line = lines.get(timeout=TIMEOUT)
            assert line, f"the {what} ended: {told}"
            told += line
        return process

    def close(self) -> None:
        for process in (*self.workers, self.scheduler):
            process.kill()
            process.wait()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _drain(process: Running, lines: SimpleQueue[str]) -> None:
    """Until it ends, so that it never waits for a reader."""
    assert process.stderr is not None
    with process.stderr:
        for line in process.stderr:
            lines.put(line)
    lines.put("")


def tls_options(tls: Tls | None, ca: str = "--tls-ca") -> list[str]:
    return [] if tls is None else [ca, str(tls.ca), "--tls-cert", str(tls.cert), "--tls-key", str(tls.key)]


class Authority:
    """Signs certificates, also such as have expired."""

    def __init__(self, place: Path) -> None:
        place.mkdir(parents=True, exist_ok=True)
        self._place = place
        self._openssl("req", "-x509", *_NEW_KEY, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=authority")

    def certificate(self, name: str, *, days: int = 2) -> Tls:
        """For a machine; of negative days, expired."""
        self._openssl("req", *_NEW_KEY, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        sign = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", str(days))
        self._openssl("x509", "-req", "-in", f"{name}.csr", "-out", f"{name}.pem", *sign)
        return Tls(self._place / "ca.pem", self._place / f"{name}.pem", self._place / f"{name}.key")

    def _openssl(self, *arguments: str) -> None:
        subprocess.run([program("openssl"), *arguments], cwd=self._place, check=True, capture_output=True)


_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def end_the_process(task: object) -> None:
    """Work that costs whoever does it its life."""
    os._exit(1)
