"""A real nats-server with JetStream on a free port of this machine, which can be killed and started again."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from pipeline.transport.nats import Access, Broker
from pipeline.transport.wire import Parcel, unpacked
from tests.conftest import component, free_port, program
from tests.server import Server


@dataclass(frozen=True)
class Certificates:
    """An authority and what it signed for an address of this machine."""

    ca: Path
    certificate: Path
    key: Path

    @classmethod
    def made(cls, directory: Path, *, expired: bool = False, host: str = "127.0.0.1") -> Certificates:
        """Valid for nine days, or until yesterday."""
        directory.mkdir(parents=True, exist_ok=True)
        openssl = program("openssl")
        names = [directory / name for name in ("ca.crt", "ca.key", "broker.crt", "broker.key", "broker.csr", "ext")]
        ca, ca_key, certificate, key, request, extension = names

        def run(*arguments: object) -> None:
            subprocess.run([openssl, *map(str, arguments)], check=True, capture_output=True)

        curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
        run("req", "-x509", *curve, "-keyout", ca_key, "-out", ca, "-days", 9, "-subj", "/CN=authority")
        run("req", *curve, "-keyout", key, "-out", request, "-subj", f"/CN={host}")
        extension.write_text(f"subjectAltName=IP:{host}\n")
        days = -1 if expired else 9
        run(
            "x509", "-req", "-in", request, "-CA", ca, "-CAkey", ca_key, "-CAcreateserial", "-out", certificate,
            "-days", days, "-extfile", extension,
        )  # fmt: skip
        return cls(ca, certificate, key)


class Nats(Server):
    """What it stores is on disk, and survives a kill; `more` are lines of its settings, `room` is for all streams."""

    def __init__(
        self,
        directory: Path,
        *,
        more: str = "",
        room: str = "10GB",
        tls: Certificates | None = None,
        jetstream: bool = True,
        host: str = "127.0.0.1",
    ) -> None:
        component("nats")
        super().__init__("nats-server", directory / "nats.conf", ready="Server is ready")
        self._host, self._store, self._jetstream = host, directory / "store", jetstream
        self.tls, self.room = tls, room
        self.configure(more)

    def configure(self, more: str = "", *, tls: Certificates | None = None) -> None:
        """What holds from the next start on."""
        self.tls = tls = tls or self.tls
        stored = f'jetstream {{ store_dir: "{self._store}", max_file_store: {self.room}, max_memory_store: 256MB }}\n'
        store = stored if self._jetstream else ""
        secure = f'tls {{ cert_file: "{tls.certificate}"\n key_file: "{tls.key}" }}\n' if tls else ""
        self._config.write_text(f"listen: {self._host}:{self.port}\n{store}{secure}{more}\n")

    @property
    def address(self) -> str:
        return f"{'tls' if self.tls else 'nats'}://{self._host}:{self.port}"

    def access(self, **options: object) -> Access:
        return Access(address=self.address, ca_file=self.tls.ca if self.tls else None, **options)  # type: ignore[arg-type]

    def parcels(self, array: str, *, name: str = "gemmed", access: Access | None = None) -> list[Parcel]:
        """All that is stored of an array, in order."""
        with Broker(access or self.access(), name="test") as broker:
            stored = broker.read(f"{name}-sound", f"{name}.sound.{array}", 1).to_the_end()
            return [unpacked(message.data) for message in stored]


@contextmanager
def three_brokers(directory: Path) -> Iterator[list[Nats]]:
    """A cluster on this machine, in which two of three go on without the third."""
    ports = [free_port() for _ in range(3)]
    routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in ports)
    with ExitStack() as running:
        yield [
            running.enter_context(
                Nats(
                    directory / f"n{number}",
                    more=f"server_name: n{number}\n"
                    f'cluster {{ name: "three", listen: "127.0.0.1:{port}", routes: [{routes}] }}',
                )
            )
            for number, port in enumerate(ports)
        ]
