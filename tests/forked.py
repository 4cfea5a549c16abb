"""Commands of gemmed as real processes, forked off a process that has loaded everything.

Loading is most of what many commands do. `test_cli` and others start commands afresh, to see what they load by
themselves, and when.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from select import select
from tempfile import TemporaryFile
from typing import IO, Any, Self

ROOT = Path(__file__).parents[1]
_ADDRESS = "GEMMED_TESTS_FORK_SERVER"
_SPREADING = {"evaluate", "health", "replay", "simulate", "train"}
_LOADED = (
    "pipeline",  # first: one BLAS thread
    "distributed.cli.dask_scheduler",
    "distributed.cli.dask_worker",
    "matplotlib.figure",
    "nats.aio.client",
    "numba",
    "pipeline.cli",
    "pipeline.fleet.worker",
    "pipeline.cli.commands.fleet_run",
    "pipeline.fleet.status",
    "pipeline.fleet.train",
    "pipeline.runtime.plotting",
    "pipeline.experiments.run",
    "pipeline.daemon.preflight",
    "pipeline.daemon.daemon",
    "pipeline.cli.commands.evaluate",
    "pipeline.reports.explanation",
    "pipeline.outputs.process",
    "pipeline.cli.commands.health",
    "pipeline.cli.commands.label",
    "pipeline.cli.commands.models",
    "pipeline.cli.commands.passages",
    "pipeline.fleet.publisher",
    "pipeline.cli.commands.replay",
    "pipeline.retraining.worker",
    "pipeline.training.offline",
    "pipeline.cli.commands.verify",
    "pipeline.simulation.dataset",
    "pipeline.web.server",
    "scipy.signal",
    "sklearn.svm",
    "soundfile",
)


class Process:
    """One command, with the interface of `subprocess.Popen`. Its standard streams are files, pipes or nothing."""

    returncode: int | None

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        module: str = "pipeline.cli",
        stdin: int | IO[Any] = subprocess.DEVNULL,
        stdout: int | IO[Any] = subprocess.DEVNULL,
        stderr: int | IO[Any] = subprocess.DEVNULL,
        text: bool = False,
        cwd: Path | str = ROOT,
        env: Mapping[str, str] | None = None,
        start_new_session: bool = False,
    ) -> None:
        self.args, self.returncode = [module, *arguments], None
        self._lock = threading.Lock()
        (self.stdin, theirs_in), (self.stdout, theirs_out), (self.stderr, theirs_err) = (
            _stream(stdin, "w", text=text), _stream(stdout, "r", text=text), _stream(stderr, "r", text=text)
        )  # fmt: skip
        asked = {
            "module": module,
            "arguments": [str(one) for one in arguments],
            "cwd": str(cwd),
            "environment": dict(os.environ if env is None else env),
            "new_session": start_new_session,
        }
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._server.connect("\0" + os.environ[_ADDRESS])
        socket.send_fds(self._server, [json.dumps(asked).encode()], [theirs_in, theirs_out, theirs_err])
        for theirs in (theirs_in, theirs_out, theirs_err):
            os.close(theirs)
        self.pid = int(self._server.recv(100))

    def poll(self) -> int | None:
        """The exit code, if it has ended."""
        return self._ended_within(0.0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._ended_within(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        return code

    def _ended_within(self, seconds: float | None) -> int | None:
        with suppress(ValueError):  # closed by another thread, which has read it just now
            if self.returncode is None and select([self._server], [], [], seconds)[0]:
                with self._lock:
                    if self.returncode is None:
                        self.returncode = int(self._server.recv(100) or b"1")
                        self._server.close()
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[Any, Any]:
        """What it writes until its end."""
        if self.stdin is not None and not self.stdin.closed:
            self.stdin.close()
        said: dict[int, Any] = {0: None, 1: None}
        pipes = {number: pipe for number, pipe in enumerate((self.stdout, self.stderr)) if pipe is not None}

        def read(number: int) -> None:
            said[number] = pipes[number].read()

        threads = [threading.Thread(target=read, args=(number,), daemon=True) for number in pipes]
        for thread in threads:
            thread.start()
        self.wait(timeout)
        for thread in threads:
            thread.join(timeout)
        for pipe in pipes.values():
            pipe.close()
        return said[0], said[1]

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        for pipe in (self.stdin, self.stdout, self.stderr):
            if pipe is not None:
                pipe.close()
        self.wait()


Running = Process | subprocess.Popen[Any]


def started(arguments: Sequence[str], *, before: Sequence[str] = (), **options: Any) -> Running:
    """Start a command; another program that is to start it, such as `ip netns exec`, needs a new interpreter."""
    if not before:
        return Process(arguments, **options)
    for name in ("stdin", "stdout", "stderr"):
        options.setdefault(name, subprocess.DEVNULL)
    command = [*before, sys.executable, "-m", "pipeline.cli", *arguments]
    return subprocess.Popen(command, preexec_fn=_heed_interrupts, **options)


def is_stopped(process: int) -> bool:
    """Whether all threads of a process are stopped by a signal."""
    return all("T (stopped)" in (one / "status").read_text() for one in Path(f"/proc/{process}/task").iterdir())


def _heed_interrupts() -> None:
    """For children: tests may run where Ctrl-C is ignored, and they would inherit that."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def gemmed(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, in one process unless it says how many. A time limit kills it."""
    from tests.conftest import TIMEOUT

    if arguments[:1] and arguments[0] in _SPREADING and not {"--jobs", "--engine", "--scheduler"} & {*arguments}:
        arguments += ("--jobs", "1")
    environment = os.environ | {"COLUMNS": "120", "NO_COLOR": "1"}
    with TemporaryFile("w+") as stdout, TemporaryFile("w+") as stderr:
        process = Process(arguments, stdout=stdout, stderr=stderr, env=environment)
        try:
            process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
        code = process.wait()
        said = [file.seek(0) or file.read() for file in (stdout, stderr)]
    return subprocess.CompletedProcess(arguments, code, *said)


def _stream(wanted: int | IO[Any], mode: str, *, text: bool) -> tuple[IO[Any] | None, int]:
    """Our end, if it is a pipe, and theirs."""
    if wanted == subprocess.DEVNULL:
        return None, os.open(os.devnull, os.O_RDWR)
    if wanted != subprocess.PIPE:
        return None, os.dup(wanted if isinstance(wanted, int) else wanted.fileno())
    read, write = os.pipe()
    ours, theirs = (write, read) if mode == "w" else (read, write)
    return open(ours, mode if text else mode + "b"), theirs


@contextmanager
def fork_server() -> Iterator[None]:
    """One for all processes that share the tests of a run. It loads everything when it is first asked."""
    address = f"gemmed-tests-{os.getpid()}-{time.monotonic_ns()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind("\0" + address)
        listening.listen(128)
        command = [sys.executable, "-m", "tests.forked", str(listening.fileno())]
        os.environ[_ADDRESS] = address
        server = subprocess.Popen(command, stdin=subprocess.PIPE, cwd=ROOT, pass_fds=[listening.fileno()])
    try:
        yield
    finally:
        del os.environ[_ADDRESS]
        server.communicate()


Request = tuple[dict[str, Any], list[int]]


def _serve(listening: socket.socket) -> Request | None:
    """Fork a child for every connection; report its process number, later its exit code. A child gets its request."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    children: dict[int, tuple[int, socket.socket]] = {}
    with selectors.DefaultSelector() as selector:
        selector.register(0, selectors.EVENT_READ)
        selector.register(listening, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fd == 0:
                    return None  # the run is over
                if key.fd in children:
                    selector.unregister(key.fd)
                    os.close(key.fd)
                    child, connection = children.pop(key.fd)
                    _report(connection, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
                    connection.close()
                    continue
                connection = listening.accept()[0]
                request = _request(connection)
                if not (child := os.fork()):
                    return request
                for stream in request[1]:
                    os.close(stream)
                ended = os.pidfd_open(child)
                children[ended] = child, connection
                selector.register(ended, selectors.EVENT_READ)
                _report(connection, child)


def _report(connection: socket.socket, number: int) -> None:
    with suppress(OSError):  # nobody waits for it
        connection.send(str(number).encode())


def _request(connection: socket.socket) -> Request:
    message, streams, _, _ = socket.recv_fds(connection, 1 << 18, 3)
    if not gc.get_freeze_count():
        for name in _LOADED:
            with suppress(ImportError):  # an optional package; tests that need it are skipped
                importlib.import_module(name)
        gc.collect()
        gc.freeze()  # or each child would go through all of it again at its end
        assert len(os.listdir("/proc/self/task")) == 1, "a fork would lose threads"
    return json.loads(message), streams


def _become(asked: dict[str, Any], streams: list[int]) -> None:
    """The command, from here on."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    for number in os.listdir("/proc/self/fd"):
        if int(number) > 2:
            with suppress(OSError):  # the listing itself
                os.close(int(number))
    _heed_interrupts()
    if asked["new_session"]:
        os.setsid()
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    sys.argv[1:] = asked["arguments"]
    if not hasattr(sys.modules.get(asked["module"]), "__path__"):
        sys.modules.pop(asked["module"], None)  # in a new interpreter it is __main__ alone
    codes: list[int] = []
    atexit.register(_leave, codes)  # the first to be registered is the last to be called
    try:
        runpy.run_module(asked["module"], run_name="__main__", alter_sys=True)
        codes.append(0)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            codes.append(end.code or 0)
        raise


def _leave(codes: list[int]) -> None:
    """End without taking thousands of modules apart, which takes a quarter of a second."""
    if not codes:
        return
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        return  # the interpreter has its own words for that
    os._exit(codes[0])


if __name__ == "__main__":
    if _asked := _serve(socket.socket(fileno=int(sys.argv[1]))):
        _become(*_asked)
