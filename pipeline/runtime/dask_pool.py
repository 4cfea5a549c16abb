"""The same work on many machines, by Dask (extra `fleet`), of which this is the only door.

Whoever reaches a scheduler can run any code on its workers. So there is TLS with certificates on both sides, or
everything stays on this machine.
"""

from __future__ import annotations

import asyncio
import logging
import os
import platform
import ssl
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.metadata import version as package_version
from ipaddress import ip_address
from pathlib import Path
from queue import Empty, SimpleQueue
from socket import gaierror, getaddrinfo
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pipeline import __version__
from pipeline.core.blas_threads import one_thread
from pipeline.core.errors import LinkError, UsageError
from pipeline.runtime.process_pool import Result, Task

if TYPE_CHECKING:
    from distributed import Client, Future, Security

CONNECT_SECONDS = 5.0
WITHOUT_WORKERS_SECONDS = 60.0
"""So long all may be gone, for example because a machine starts anew."""
_LOOK_SECONDS = 2.0
_WORKER = "dask worker {address} {private} --nworkers -1 --nthreads 1"
_ON_THIS_MACHINE = "--host 127.0.0.1"
_BY_CERTIFICATE = "--tls-ca-file FILE --tls-cert FILE --tls-key FILE"
_HOW_TO_START = (
    f"start one with `dask scheduler {_ON_THIS_MACHINE}` and "
    f"`{_WORKER.format(address='tcp://127.0.0.1:8786', private=_ON_THIS_MACHINE)}`"
)
_PACKAGES = ("numpy", "scipy", "numba", "scikit-learn")
"""Other versions may give other bits."""
_LOOK_BYTES = 1 << 16
_one_at_a_time = Lock()


@dataclass(frozen=True, slots=True)
class Tls:
    """Files in PEM: who is believed, and who we are."""

    ca: Path
    cert: Path
    key: Path


def checked_tls(ca: Path | None, cert: Path | None, key: Path | None) -> Tls | None:
    """All three files, which must fit each other, or none."""
    given = {"--tls-ca": ca, "--tls-cert": cert, "--tls-key": key}
    missing = [option for option, path in given.items() if path is None]
    if len(missing) == len(given):
        return None
    if ca is None or cert is None or key is None:
        raise UsageError(f"TLS needs --tls-ca, --tls-cert and --tls-key; {' and '.join(missing)} must be given, too")
    for option, path in given.items():
        assert path is not None
        if not os.access(path, os.R_OK) or not path.is_file():
            raise UsageError(f"{option}={str(path)!r} cannot be read; check the path and its permissions")
    try:
        context = ssl.create_default_context(cafile=str(ca))
        context.load_cert_chain(cert, key)
    except ssl.SSLError as error:
        raise UsageError(
            f"--tls-ca={str(ca)!r}, --tls-cert={str(cert)!r} and --tls-key={str(key)!r} must be PEM files, the key "
            f"that of the certificate ({error.reason or error}); check them"
        ) from error
    return Tls(ca, cert, key)


def checked_scheduler(address: str | None, tls: Tls | None) -> str:
    """The address, if what is sent there can be read and changed by nobody else."""
    if address is None:
        raise UsageError(f"--engine dask needs the --scheduler of a cluster; give its address, or {_HOW_TO_START}")
    scheme, host = _parts(address)
    if scheme == "tls" and tls is None:
        raise UsageError(
            f"--scheduler={address!r} needs certificates; give --tls-ca FILE --tls-cert FILE --tls-key FILE"
        )
    if scheme == "tcp" and tls is not None:
        raise UsageError(f"--scheduler={address!r} is not encrypted, certificates are of no use; give tls://, or none")
    if scheme == "tcp" and not _is_loopback(host):
        raise UsageError(
            f"--scheduler={address!r} is another machine, and tcp:// is not encrypted: it must be 127.0.0.1, ::1 or "
            "localhost; start the cluster with certificates and give tls:// with --tls-ca, --tls-cert and --tls-key"
        )
    return address


def _parts(address: str) -> tuple[str, str]:
    try:
        parts = urlsplit(address)
        scheme, host, port = parts.scheme, parts.hostname, parts.port
    except ValueError:
        scheme, host, port = "", None, None
    if scheme not in ("tcp", "tls") or not host or not port:
        raise UsageError(
            f"--scheduler={address!r} must be tcp://HOST:PORT or tls://HOST:PORT; for example tcp://127.0.0.1:8786"
        )
    return scheme, host


def _is_loopback(host: str) -> bool:
    """Whether a name means this machine, whichever of its addresses is taken."""
    try:
        found = {str(entry[4][0]) for entry in getaddrinfo(host, None)}
    except (gaierror, UnicodeError) as error:  # the latter of what cannot be a name at all
        why = getattr(error, "strerror", None) or error
        raise UsageError(f"--scheduler: the name {host!r} is not known ({why}); check it") from error
    return all(ip_address(address).is_loopback for address in found)


def connect(address: str, tls: Tls | None = None, *, timeout_seconds: float = CONNECT_SECONDS) -> Client:
    """A client of the cluster at an address, whose workers have what we have; to be closed by whoever asked."""
    address = checked_scheduler(address, tls)
    client = _client(address, tls, timeout_seconds)
    try:
        _wait_for_workers(client, address, timeout_seconds)
        _check_versions(client)
        if tls is None:
            _check_privacy(client)
    except BaseException as error:
        client.close()
        if isinstance(error, OSError):
            raise LinkError(f"the cluster at {address} does not answer ({error}); look into its logs") from error
        raise
    return client


def _answers(client: Client, question: Callable[..., Any], *about: Any) -> dict[str, Any]:
    """Of all workers; not of one that is frozen or cut off, who is asked again should he come back and work."""
    told: Any = client.run(question, *about, on_error="return")
    for worker, answer in told.items():
        if isinstance(answer, Exception) and not isinstance(answer, OSError):
            raise LinkError(f"worker {worker} fails ({answer}); look into its log") from answer
    found = {worker: answer for worker, answer in told.items() if not isinstance(answer, OSError)}
    if not found:
        raise LinkError("no worker of the cluster answers; look into their logs, and start them again")
    return found


def _client(address: str, tls: Tls | None, timeout_seconds: float) -> Client:
    try:
        import dask
        from distributed import Client, Security
    except ImportError as error:
        raise UsageError(f"Dask is not installed ({error}); pip install 'gemmed[fleet]'") from error
    # Whatever goes wrong is told once, by an error of ours.
    logging.getLogger("distributed").setLevel(logging.CRITICAL + 1)
    for name in ("distributed.client", "distributed.batched", "distributed.comm"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"})  # all examples go to whoever learns
    security = Security(require_encryption=False)
    if tls is not None:
        files = {"tls_ca_file": str(tls.ca), "tls_client_cert": str(tls.cert), "tls_client_key": str(tls.key)}
        security = Security(require_encryption=True, **files)
    _greet(address, security, timeout_seconds)
    try:
        return Client(
            address, security=security, timeout=timeout_seconds, set_as_default=False, direct_to_workers=False
        )
    except (OSError, ValueError) as error:
        raise LinkError(_why_not(address, error)) from error


def _greet(address: str, security: Security, timeout_seconds: float) -> None:
    """Refuse whoever is no scheduler before there is a client: that would wait for him forever, and not be closed."""
    stranger = f"what answers at {address} is no Dask scheduler; check the address, or {_HOW_TO_START}"
    # Dask limits only the time until somebody listens; a little more, so that its own error, which says why, is first.
    greeting = asyncio.wait_for(_identity(address, security, timeout_seconds), timeout_seconds + 1.0)
    try:
        # In a thread of its own: whoever asks may have a loop running in his, as in a notebook.
        with ThreadPoolExecutor(1) as thread:
            who = thread.submit(asyncio.run, greeting).result()
    except (OSError, ValueError) as error:
        raise LinkError(_why_not(address, error)) from error
    except Exception as error:  # what a stranger says is read as lengths and objects, and may break anything there
        raise LinkError(stranger) from error
    if "workers" not in who:  # one of them, for example
        raise LinkError(stranger)


async def _identity(address: str, security: Security, timeout_seconds: float) -> dict[str, Any]:
    """What somebody says of himself."""
    from distributed.comm.core import connect

    comm = await connect(address, timeout=timeout_seconds, **security.get_connection_args("client"))
    try:
        await comm.write({"op": "identity", "reply": True})
        return dict(await comm.read())
    finally:
        comm.abort()


def _why_not(address: str, error: BaseException) -> str:
    """In words, why nobody answered."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return (
                f"the scheduler {address} shows a certificate that cannot be believed: {cause.verify_message}; renew "
                "it, or give the --tls-ca that signed it"
            )
        if isinstance(cause, ssl.SSLError):
            return (
                f"no TLS connection to the scheduler {address} ({cause.reason or cause}); check that it speaks TLS, "
                "and that the certificates on both sides are valid and signed by --tls-ca"
            )
        cause = cause.__cause__ or cause.__context__
    return f"no Dask scheduler answers at {address}; check the address, or {_HOW_TO_START}"


def _check_privacy(client: Client) -> None:
    """A cluster without TLS must not be open to others, whatever address we know it by."""
    scheduler: Any = client.run_on_scheduler(
        lambda dask_scheduler: [one.listen_address for one in dask_scheduler.listeners]
    )
    workers = _answers(client, lambda dask_worker: [one.listen_address for one in dask_worker.listeners])
    _require_private("scheduler", scheduler)
    for addresses in workers.values():
        _require_private("worker", addresses)


def _require_private(who: str, addresses: Iterable[str]) -> None:
    for where in addresses:
        if not _is_loopback(_parts(where)[1]):
            raise UsageError(
                f"a {who} of the cluster listens at {where} without TLS, where others can run code on it; start it "
                "with --host 127.0.0.1, or all of the cluster with certificates"
            )


def _wait_for_workers(client: Client, address: str, timeout_seconds: float) -> None:
    try:
        client.wait_for_workers(1, timeout=timeout_seconds)
    except TimeoutError as error:
        private = _BY_CERTIFICATE if _parts(address)[0] == "tls" else _ON_THIS_MACHINE
        command = _WORKER.format(address=address, private=private)
        raise LinkError(f"the scheduler {address} has no workers; start some: `{command}`") from error


def _check_versions(client: Client) -> None:
    """Results of different versions must not be mixed."""

    # Sent as code, since a worker may have a gemmed without this module.
    def version() -> str:
        try:
            import pipeline
        except ImportError:
            return "none"
        return pipeline.__version__

    told: Any = client.get_versions(packages=list(_PACKAGES))
    _compare("scheduler", "python", told["scheduler"]["packages"]["python"], told["client"]["packages"]["python"])
    for worker, found in told["workers"].items():
        for name in ("python", *_PACKAGES):
            _compare(f"worker {worker}", name, found["packages"][name], told["client"]["packages"][name])
    for worker, own in _answers(client, version).items():
        _compare(f"worker {worker}", "gemmed", own, __version__)


def _compare(who: str, name: str, there: str | None, here: str | None) -> None:
    if there != here:
        raise UsageError(
            f"{who} has {name} {there or 'none'}, here it is {here}; install the same on all machines, for "
            "results of different versions must not be mixed"
        )


@contextmanager
def joined(address: str | None, tls: Tls | None = None) -> Iterator[DaskEngine]:
    """The cluster at an address, to work with."""
    address = checked_scheduler(address, tls)
    client = connect(address, tls)
    try:
        yield DaskEngine(client, address)
    finally:
        client.close()


@dataclass(frozen=True, slots=True)
class _Conditions:
    """What a worker must have in common with the command that gives it work, also one that came later."""

    versions: dict[str, str]
    files: dict[Path, str | None]
    seen_by: frozenset[str]
    """Workers that were asked about the files."""
    is_private: bool
    """Nothing is encrypted, so it must listen to this machine alone."""

    def require(self) -> None:
        """By a worker, of itself."""
        from distributed import get_worker

        worker = get_worker()
        for name, version in _versions().items():
            _compare(f"worker {worker.address}", name, version, self.versions[name])
        if self.is_private:
            _require_private("worker", [one.listen_address for one in worker.listeners])
        if worker.id not in self.seen_by:
            _require_files(worker.address, _looks(list(self.files)), self.files)


@dataclass(frozen=True, slots=True)
class DaskEngine:
    """The workers of a cluster. One that dies is replaced by others; a process does one task at a time."""

    client: Client
    address: str
    """Of the scheduler."""
    _files: dict[Path, str | None] = field(default_factory=dict)
    _seen_by: set[str] = field(default_factory=set)

    def describe(self) -> str:
        threads = self.client.nthreads()
        told = f"{len(threads)} worker{'s' if len(threads) > 1 else ''} at {self.address}"
        idle = sum(threads.values()) - len(threads)
        if idle:
            told += f"; {idle} of their threads stay idle, for a process does one task at a time: --nthreads 1"
        return told

    def spreads(self, n_tasks: int) -> bool:
        return True

    def check_files(self, paths: Iterable[Path]) -> None:
        """Every worker must see them, and the same as we."""
        wanted = list(paths)
        self._files.clear()
        self._files.update(_looks(wanted))
        try:
            seen = _answers(self.client, _seen, wanted)
        except (OSError, CancelledError) as error:
            raise self._lost() from error
        for worker, (_, found) in seen.items():
            _require_files(worker, found, self._files)
        self._seen_by.clear()
        self._seen_by.update(id for id, _ in seen.values())

    def _conditions(self) -> _Conditions:
        is_private = _parts(self.address)[0] == "tcp"
        return _Conditions(_versions(), dict(self._files), frozenset(self._seen_by), is_private)

    def finished(self, work: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[tuple[Task, Result]]:
        """As they are finished; left early, those that have not begun are forgotten by the cluster."""
        # Computed, not scattered: should all die who hold it, the scheduler can have it made again.
        shared = self.client.submit(_itself, (work, self._conditions()), pure=False)
        futures = self.client.map(_done, list(tasks), shared=shared, pure=False)
        waiting = dict(zip((future.key for future in futures), tasks, strict=True))
        done: SimpleQueue[Future[Any]] = SimpleQueue()
        for future in futures:
            future.add_done_callback(done.put)
        try:
            while waiting:
                future = self._next(done)
                task = waiting.pop(future.key)
                result = self._result(future, task)
                future.release()
                yield task, result
        finally:
            for future in (shared, *futures):
                future.release()

    def _next(self, done: SimpleQueue[Future[Any]]) -> Future[Any]:
        """Whichever is finished next."""
        for _ in self._while_there_are_workers():
            with suppress(Empty):
                return done.get(timeout=_LOOK_SECONDS)
        raise AssertionError

    def _while_there_are_workers(self) -> Iterator[None]:
        """Again and again; with no worker left one waits for a while, not forever."""
        seen = monotonic()
        while True:
            yield
            if self._n_workers():
                seen = monotonic()
            elif monotonic() - seen > WITHOUT_WORKERS_SECONDS:
                raise LinkError(f"no worker is left at {self.address}; start some, and the same command again")

    def _n_workers(self) -> int:
        try:
            return len(self.client.nthreads())
        except (OSError, CancelledError) as error:
            raise self._lost() from error

    def _result(self, future: Future[Any], task: object) -> Any:
        from distributed import KilledWorker

        try:
            return self._fetched(future)
        except KilledWorker as error:
            raise LinkError(
                f"{_name(task)}: {error.allowed_failures + 1} workers died while they worked on it, perhaps for want "
                "of memory; look into their logs, or leave it out"
            ) from error
        except (OSError, CancelledError) as error:
            if future.status == "error":  # else it is one of the link, and not of the work
                raise
            raise self._lost() from error

    def _fetched(self, future: Future[Any]) -> Any:
        """From whoever did it; should he go now, somebody does it again, if there is anybody."""

        async def fetched() -> Any:
            return await self.client.gather(future, asynchronous=True)

        loop: Any = self.client.loop
        asked = asyncio.run_coroutine_threadsafe(fetched(), loop.asyncio_loop)
        try:
            for _ in self._while_there_are_workers():
                if wait([asked], _LOOK_SECONDS).done:
                    break
            return asked.result()
        finally:
            asked.cancel()

    def _lost(self) -> LinkError:
        return LinkError(f"the scheduler {self.address} was lost; start it, and the same command again")


def _name(task: object) -> str:
    """Of a recording, a trial or a fold."""
    return str(getattr(task, "name", None) or getattr(task, "key", None) or task)


@lru_cache(maxsize=1)
def _versions() -> dict[str, str]:
    """Of all that may change the bits of a result, in this process."""
    found = {"gemmed": __version__, "python": platform.python_version()}
    return found | {name: package_version(name) for name in _PACKAGES}


def _looks(paths: Sequence[Path]) -> dict[Path, str | None]:
    """What tells each file from another of its name: its size, its beginning and its end; None if it is not seen."""
    return {path: _look(path) for path in paths}


def _look(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(0)
            beginning = file.read(_LOOK_BYTES)
            file.seek(max(0, size - _LOOK_BYTES))
            return f"{size} {zlib.crc32(beginning)} {zlib.crc32(file.read(_LOOK_BYTES))}"
    except OSError:
        return None


def _require_files(worker: str, found: Mapping[Path, str | None], wanted: Mapping[Path, str | None]) -> None:
    for path, look in found.items():
        if look != wanted[path]:
            raise UsageError(
                f"worker {worker} {'does not see' if look is None else 'sees something else in'} {path}; all machines "
                "must have the same files at the same place, for example a shared directory"
            )


# What workers do


def begin_for_long(version: str) -> Callable[[], bool]:
    """Called by a task that does not end by itself; what it returns says whether its worker stops.

    It leaves its place among the tasks to others, so that a worker of one thread can have many of them.
    """
    from distributed import get_worker, secede
    from distributed.core import Status

    worker = get_worker()
    _compare(worker.address, "gemmed", __version__, version)
    one_thread.__enter__()  # until the process ends: all its tasks compute
    secede()
    going = {Status.running, Status.paused, Status.init}
    return lambda: worker.status not in going


def _seen(paths: Sequence[Path], dask_worker: Any) -> tuple[str, dict[Path, str | None]]:
    """Who he is, and what he sees."""
    return dask_worker.id, _looks(paths)


def _itself(shared: Any) -> Any:
    return shared


_fulfilled: list[_Conditions] = []
"""The last of this process, so that files are looked at once."""


def _done(task: Any, *, shared: tuple[Callable[[Any], Any], _Conditions]) -> Any:
    """One task in a process that, for as long as it takes, does nothing else.

    As in a process that was started for it: stages that are kept for the next recording, and compiled code, are not
    made for several threads, and the work is a copy of its own, which may be written to. One BLAS thread, for more give
    other bits: Dask may have loaded numpy before our package could ask for that.
    """
    work, conditions = shared
    with _one_at_a_time, one_thread:
        if conditions not in _fulfilled:
            conditions.require()
            _fulfilled[:] = [conditions]
        return deepcopy(work)(task)
