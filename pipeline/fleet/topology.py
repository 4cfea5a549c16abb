"""The names under which a fleet keeps everything with its broker, and how long.

NAME-sound         stream: what publishers send, NAME.sound.ARRAY
NAME-events        stream: what was decided, NAME.events.ARRAY
NAME-notable       stream: what people are notified of, by itself, small and kept for longer:
                   NAME.notable.passage.ARRAY, NAME.notable.problem.ARRAY
NAME-checkpoints   bucket: where each array is, and all that its chain knows
NAME-leases        bucket: who has an array; entries vanish unless they are renewed
NAME-tickets       bucket: whom the dispatcher has given an array to
NAME-wanted        bucket: which model shall decide for an array
NAME-status        bucket: how each array is
NAME-models        objects: models, by the hash of their content
"""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.core.errors import SettingsError
from pipeline.transport.nats import Broker, Bucket, Objects
from pipeline.transport.wire import StreamNames


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where is what."""

    name: str = "gemmed"
    lease_seconds: float = 10.0
    keep_sound_seconds: float = 24 * 3600.0
    keep_events_seconds: float = 30 * 24 * 3600.0
    keep_passages_seconds: float = 366 * 24 * 3600.0
    most_sound_bytes: int | None = None
    replicas: int = 1

    @property
    def sound(self) -> StreamNames:
        return StreamNames(self.name)

    @property
    def events_stream(self) -> str:
        return f"{self.name}-events"

    def events(self, array: str) -> str:
        """The subject of what was decided."""
        return f"{self.name}.events.{array}"

    @property
    def notable_stream(self) -> str:
        return f"{self.name}-notable"

    @property
    def notable(self) -> str:
        """The subjects of all that people are notified of."""
        return f"{self.name}.notable.*.*"

    def passages(self, array: str) -> str:
        """The subject of an array's passages."""
        return f"{self.name}.notable.passage.{array}"

    def problems(self, array: str) -> str:
        """The subject of an array's problems."""
        return f"{self.name}.notable.problem.{array}"

    def make(self, broker: Broker) -> None:
        """All that is not there yet."""
        broker.ensure_stream(
            self.sound.stream,
            self.sound.subject("*"),
            most_seconds=self.keep_sound_seconds,
            most_bytes=self.most_sound_bytes,
            replicas=self.replicas,
        )
        broker.ensure_stream(
            self.events_stream, self.events("*"), most_seconds=self.keep_events_seconds, replicas=self.replicas
        )
        broker.ensure_stream(
            self.notable_stream, self.notable, most_seconds=self.keep_passages_seconds, replicas=self.replicas
        )
        for bucket in (self.checkpoints, self.leases, self.tickets, self.wanted, self.status):
            bucket(broker)
        self.models(broker)
        made_for = self.leases(broker).expires_seconds()
        if made_for != self.lease_seconds:
            raise SettingsError(
                f"fleet.lease = {self.lease_seconds:g} s must be as the bucket {self.name}-leases was made: "
                f"{made_for or 0:g} s; write that, or stop the fleet and remove the stream KV_{self.name}-leases"
            )

    def checkpoints(self, broker: Broker) -> Bucket:
        return broker.bucket(f"{self.name}-checkpoints", replicas=self.replicas)

    def leases(self, broker: Broker) -> Bucket:
        return broker.bucket(f"{self.name}-leases", expires_seconds=self.lease_seconds, replicas=self.replicas)

    def tickets(self, broker: Broker) -> Bucket:
        return broker.bucket(f"{self.name}-tickets", replicas=self.replicas)

    def wanted(self, broker: Broker) -> Bucket:
        return broker.bucket(f"{self.name}-wanted", replicas=self.replicas)

    def status(self, broker: Broker) -> Bucket:
        return broker.bucket(f"{self.name}-status", replicas=self.replicas)

    def models(self, broker: Broker) -> Objects:
        return broker.objects(f"{self.name}-models", replicas=self.replicas)
