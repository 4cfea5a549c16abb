"""The door to NATS JetStream: one connection, used by one thread at a time, whose every failure is a `LinkError`.

A connection that breaks is not mended behind anybody's back: whoever uses it opens another, and begins where he knows
that he was. All connections of a process share one thread, in which the library's event loop runs.
"""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections import deque
from collections.abc import Awaitable, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotInTime
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from time import monotonic
from typing import TYPE_CHECKING, Any, Self, TypeVar
from urllib.parse import urlsplit

from pipeline.core.errors import LinkError, SettingsError
from pipeline.transport.loopback import is_loopback

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription
    from nats.js import JetStreamContext
    from nats.js.api import ConsumerInfo, RawStreamMsg

_SECONDS = 5.0
_DUPLICATE_SECONDS = 600.0
"""So long the broker knows the ids of messages, and takes none of them twice."""
_FORGOTTEN_AFTER_SECONDS = 30.0
"""A consumer that nobody asks any more."""
_REQUEST_SECONDS = 30.0
"""A request for messages that nobody fulfils is made again."""
_REQUEST_TOOK_TOO_LONG = "408"
_AT_ONCE = 100
_WRONG_LAST_SEQUENCE, _NO_SUCH_STREAM, _NO_SUCH_MESSAGE = 10071, 10059, 10043
_NO_ROOM = {10023, 10047, 10077}
"""For a message of any stream, for as much as a new stream may hold, for a message of one that is full."""
Value = TypeVar("Value")
_one_loop = Lock()


class Superseded(LinkError):
    """Somebody else has written in the meantime."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Where the broker is, and who we are to it. Beyond this machine nothing travels in the clear."""

    address: str = "nats://127.0.0.1:4222"
    user: str | None = None
    password_file: Path | None = None
    ca_file: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    def __post_init__(self) -> None:
        parts = urlsplit(self.address)
        if parts.scheme not in ("nats", "tls") or not parts.hostname:
            raise SettingsError(
                f'broker address = {self.address!r} must be "nats://host:port" or "tls://host:port"; write it so'
            )
        if parts.scheme == "nats" and not is_loopback(parts.hostname):
            raise SettingsError(
                f"broker address = {self.address!r} would send sound and passwords in the clear; use tls://, or a "
                "broker on this machine"
            )
        if (self.certificate is None) != (self.key is None):
            raise SettingsError("certificate and key of the broker belong together; give both or none")

    @property
    def is_encrypted(self) -> bool:
        return self.address.startswith("tls:")

    def options(self) -> dict[str, Any]:
        """As the library takes them."""
        options: dict[str, Any] = {}
        if self.is_encrypted:
            options["tls"] = self._context()
        if self.user is not None:
            options["user"] = self.user
            options["password"] = _read(self.password_file).strip() if self.password_file else ""
        return options

    def _context(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            if self.certificate is not None and self.key is not None:
                context.load_cert_chain(self.certificate, self.key)
        except (OSError, ssl.SSLError) as error:
            files = ", ".join(str(file) for file in (self.ca_file, self.certificate, self.key) if file)
            raise LinkError(f"{files} cannot be used: {error}; give files in PEM format that can be read") from error
        return context


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except OSError as error:
        raise LinkError(f"{file} cannot be read: {error.strerror}; the password of the broker belongs there") from error


@dataclass(frozen=True, slots=True)
class Message:
    """What a stream holds: its place there, when it came, and how many more there were behind it when it was sent."""

    subject: str
    sequence: int
    data: bytes
    time: datetime
    headers: Mapping[str, str]
    pending: int = 0


@dataclass(frozen=True, slots=True)
class BucketEntry:
    """A value of a bucket, and its revision."""

    value: bytes
    revision: int


def _loop() -> asyncio.AbstractEventLoop:
    """One for all connections, whoever asks first."""
    with _one_loop:
        return _started_loop()


@lru_cache(maxsize=1)
def _started_loop() -> asyncio.AbstractEventLoop:
    # Of a refused password it warns about the end of the connection, too.
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    loop = asyncio.new_event_loop()
    Thread(target=loop.run_forever, name="jetstream", daemon=True).start()
    return loop


def require_client() -> None:
    """The library must be there."""
    try:
        import nats.aio.client  # noqa: F401
    except ImportError as error:
        raise SettingsError(
            "JetStream needs the package nats-py; install it with: pip install 'gemmed[fleet]'"
        ) from error


def _client(*, encrypted: bool, address: str) -> Client:
    """Of the library, which by itself encrypts only what the other side wants encrypted, whatever the address says."""
    from nats.aio.client import Client

    class Encrypted(Client):
        async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
            # Before anything is sent: whoever answers in the clear would be told the password.
            if initial_connection and not info.get("tls_required"):
                raise LinkError(f"broker {address} answers without encryption; give it certificates (tls in its "
                                "settings), or check who else answers there")  # fmt: skip
            await super()._process_info(info, initial_connection)

    return Encrypted() if encrypted else Client()


class Broker:
    """A connection. What it cannot do within `seconds` has failed."""

    def __init__(self, access: Access, *, name: str, seconds: float = _SECONDS) -> None:
        self.access, self._seconds = access, seconds
        self._complaint: Exception | None = None
        self._client: Client
        self._js: JetStreamContext
        options = access.options()
        try:
            self._run(self._connect(name, options))
        except LinkError:
            if hasattr(self, "_client"):
                asyncio.run_coroutine_threadsafe(self._client.close(), _loop())
            raise

    async def _connect(self, name: str, options: dict[str, Any]) -> None:
        require_client()
        self._client = _client(encrypted=self.access.is_encrypted, address=self.access.address)
        await self._client.connect(
            self.access.address,
            name=name,
            allow_reconnect=False,
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            connect_timeout=max(1, round(self._seconds)),
            error_cb=self._note_complaint,
            **options,
        )
        self._js = self._client.jetstream(timeout=self._seconds)

    async def _note_complaint(self, error: Exception) -> None:
        """What is not allowed the broker says beside, and does not answer: the error of the call that waits for it."""
        if "permissions violation" in str(error).lower():
            self._complaint = error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        with suppress(Exception):
            self._run(self._client.close())

    @property
    def most_bytes(self) -> int:
        """Of a message."""
        return int(self._client.max_payload)

    def _run(self, work: Coroutine[Any, Any, Value], *, more_seconds: float = 0.0) -> Value:
        """The result of some work in the thread of the library, or a `LinkError`."""
        future = asyncio.run_coroutine_threadsafe(work, _loop())
        try:
            return future.result(2 * self._seconds + more_seconds)
        except NotInTime as error:
            future.cancel()
            raise self._silent() from error
        except (LinkError, SettingsError):
            raise
        except Exception as error:
            raise self._told(error) from error

    def _lost(self, told: str) -> LinkError:
        return LinkError(f"broker {self.access.address} {told}")

    def _silent(self) -> LinkError:
        if self._complaint is not None:
            return self._told(self._complaint)
        return self._lost("does not answer; check the broker and the net")

    def _told(self, error: Exception) -> LinkError:
        """Any error of the library in words that say what to do."""
        from nats import errors
        from nats.js.errors import APIError, NoStreamResponseError, ServiceUnavailableError

        text = str(error)
        if isinstance(error, ssl.SSLCertVerificationError):
            return self._lost(f"has a certificate that is not accepted: {error.verify_message}; renew it, or correct "
                              f"ca_file = {self.access.ca_file} and the clocks of both machines")  # fmt: skip
        if isinstance(error, ssl.SSLError):
            return self._lost(f"refuses the encrypted connection: {error.reason}; check certificate = "
                              f"{self.access.certificate} and whether it is still valid")  # fmt: skip
        if isinstance(error, errors.AuthorizationError) or "Authorization" in text or "authorization" in text:
            return self._lost(f"does not let in user = {self.access.user!r}; correct user and password_file")
        if "permissions violation" in text.lower():
            return self._lost(f"does not allow user = {self.access.user!r} this: {text}; change his permissions there")
        if isinstance(error, APIError) and getattr(error, "err_code", None) == _WRONG_LAST_SEQUENCE:
            return Superseded(f"broker {self.access.address}: somebody else has written meanwhile ({text})")
        if isinstance(error, APIError) and getattr(error, "err_code", None) in _NO_ROOM:
            return self._lost(f"has no room: {error.description}; raise max_file_store in its settings and restart "
                              "it, and keep sound_budget well below that")  # fmt: skip
        if isinstance(error, NoStreamResponseError | ServiceUnavailableError | errors.NoRespondersError):
            return self._lost("has no JetStream for this; start nats-server with -js, and gemmed fleet init")
        if isinstance(error, APIError) and getattr(error, "err_code", None) == _NO_SUCH_STREAM:
            return self._lost("has no stream for this; make it with gemmed fleet init, or begin with gemmed publish")
        if isinstance(error, APIError):
            return self._lost(f"refuses: {getattr(error, 'description', None) or text}; see its log")
        was_there = isinstance(error, ConnectionError) and not isinstance(error, ConnectionRefusedError)
        if was_there and self.access.is_encrypted:
            # Whose certificate it does not want is cut off, often without another word.
            return self._lost(f"broke off the encrypted connection; start it if it is gone, else it may want another "
                              f"certificate than certificate = {self.access.certificate}: see its log")  # fmt: skip
        if isinstance(error, errors.NoServersError | OSError):
            return self._lost("cannot be reached; start it, and check the address and the net")
        return self._lost(f"failed: {text or type(error).__name__}; check the broker and the net")

    def ensure_stream(
        self, name: str, subjects: str, *, most_seconds: float, most_bytes: int | None = None, replicas: int = 1
    ) -> None:
        """A stream on disk that holds what is sent to these subjects for so long; one that is there stays as it is."""
        self._run(self._ensure_stream(name, subjects, most_seconds, most_bytes, replicas))

    async def _ensure_stream(
        self, name: str, subjects: str, most_seconds: float, most_bytes: int | None, replicas: int
    ) -> None:
        from nats.js.api import DiscardPolicy, StorageType, StreamConfig
        from nats.js.errors import NotFoundError

        with suppress(NotFoundError):
            await self._js.stream_info(name)
            return
        await self._js.add_stream(
            StreamConfig(
                name=name,
                subjects=[subjects],
                storage=StorageType.FILE,
                discard=DiscardPolicy.OLD,
                max_age=most_seconds,
                max_bytes=most_bytes or -1,
                duplicate_window=min(_DUPLICATE_SECONDS, most_seconds),
                num_replicas=replicas,
                allow_direct=True,
            )
        )

    def publish(
        self,
        subject: str,
        data: bytes,
        *,
        stream: str,
        id: str,
        after: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> int:
        """Send and wait until it is stored; its place in the stream.

        With `after`, only if the last message of the subject is that one; else it is `Superseded`.
        """
        return self.publish_soon(subject, data, stream=stream, id=id, after=after, headers=headers).result()

    def publish_soon(
        self,
        subject: str,
        data: bytes,
        *,
        stream: str,
        id: str,
        after: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Sent:
        """Send; whether it is stored can be asked later."""
        headers = {**(headers or {}), "Nats-Msg-Id": id, "Nats-Expected-Stream": stream}
        if after is not None:
            headers["Nats-Expected-Last-Subject-Sequence"] = str(after)
        work = self._js.publish(subject, data, timeout=self._seconds, headers=headers)
        return Sent(self, asyncio.run_coroutine_threadsafe(work, _loop()))

    def read(self, stream: str, subject: str, start: int | datetime) -> Reader:
        """The messages of a subject in their order, from a place in the stream or a time on."""
        return Reader(self, stream, subject, start)

    def last(self, stream: str, subject: str) -> Message | None:
        """The newest message of a subject."""
        return self._run(self._found(self._js.get_last_msg(stream, subject)))

    async def _found(self, asked: Awaitable[RawStreamMsg]) -> Message | None:
        from nats.js.errors import NotFoundError

        try:
            found = await asked
        except NotFoundError:
            return None
        at = found.time if isinstance(found.time, datetime) else datetime.now(UTC)
        return Message(found.subject or "", found.seq or 0, found.data or b"", at, found.headers or {})

    def next(self, stream: str, subject: str, start: int) -> Message | None:
        """The first message of a subject that is left from a place in the stream on."""
        return self._run(self._found(self._js.get_msg(stream, seq=max(1, start), subject=subject, next=True)))

    def subjects(self, stream: str, pattern: str) -> dict[str, int]:
        """How many messages of which subject a stream holds."""
        info = self._run(self._js.stream_info(stream, subjects_filter=pattern))
        return dict(info.state.subjects or {})

    def remove(self, stream: str, sequence: int) -> None:
        """A message of a stream, for ever; one that is gone already is, too."""
        self._run(self._remove(stream, sequence))

    async def _remove(self, stream: str, sequence: int) -> None:
        from nats.js.errors import APIError

        try:
            await self._js.delete_msg(stream, sequence)
        except APIError as error:
            # By number if it was removed, in words if it was too old.
            if error.err_code != _NO_SUCH_MESSAGE and error.description != "no message found":
                raise

    def purge(self, stream: str, subject: str) -> None:
        """All messages of a subject, for ever."""
        self._run(self._js.purge_stream(stream, subject=subject))

    def identity(self, stream: str) -> str:
        """Of a stream: one that was made anew under the same name is another one."""
        return str(self._run(self._js.stream_info(stream)).created)

    def last_sequence(self, stream: str) -> int:
        """Of all that a stream ever held."""
        return int(self._run(self._js.stream_info(stream)).state.last_seq)

    def bucket(self, name: str, *, expires_seconds: float | None = None, replicas: int = 1) -> Bucket:
        """Values by key; with a time after which they vanish unless they are written again."""
        return Bucket(self, name, self._run(self._bucket(name, expires_seconds, replicas)))

    async def _bucket(self, name: str, expires_seconds: float | None, replicas: int) -> Any:
        from nats.js.api import KeyValueConfig
        from nats.js.errors import NotFoundError

        try:
            return await self._js.key_value(name)
        except NotFoundError:
            return await self._js.create_key_value(
                KeyValueConfig(bucket=name, history=1, ttl=expires_seconds, replicas=replicas)
            )

    def objects(self, name: str, *, replicas: int = 1) -> Objects:
        """Files by name."""
        return Objects(self, self._run(self._objects(name, replicas)))

    async def _objects(self, name: str, replicas: int) -> Any:
        from nats.js.errors import NotFoundError

        try:
            return await self._js.object_store(name)
        except NotFoundError:
            return await self._js.create_object_store(name, replicas=replicas)


class Sent:
    """A message on its way."""

    def __init__(self, broker: Broker, future: Future[Any]) -> None:
        self._broker, self._future = broker, future

    def result(self) -> int:
        """Its place in the stream, once it is stored there."""
        try:
            return int(self._future.result(2 * self._broker._seconds).seq)
        except NotInTime as error:
            raise self._broker._silent() from error
        except Exception as error:
            raise self._broker._told(error) from error


class Reader:
    """Messages of a subject in order. If one is missing in what the broker delivers, it is asked again from there.

    A request for messages waits at the broker, which delivers them as they come: one by one they would need two
    requests each.
    """

    def __init__(self, broker: Broker, stream: str, subject: str, start: int | datetime) -> None:
        self._broker, self._stream, self._subject = broker, stream, subject
        self._next = start if isinstance(start, datetime) else max(1, start)
        self._consumer: _Consumer | None = None
        self._delivered = 0
        self._missing: tuple[int, int] | None = None
        """What was delivered and what had arrived, if these differed at the last check."""
        self._created: object = None

    def take(self, *, most: int, seconds: float) -> list[Message]:
        """What is there, at most so many; after so many seconds without any, nothing."""
        consumer = self._broker._run(self._opened()) if self._consumer is None else self._consumer
        if not consumer.wait(most, seconds):
            self._broker._run(self._check())
            return []
        messages = self._in_order(consumer, most)
        if self._consumer is consumer:
            consumer.ask(most)  # they may arrive while these are used
        return messages

    def _in_order(self, consumer: _Consumer, most: int) -> list[Message]:
        """Messages that arrived, up to the first that does not follow on the one before it."""
        messages: list[Message] = []
        while consumer.arrived and len(messages) < most:
            one = consumer.arrived.popleft()
            about = one.metadata
            if about.sequence.consumer != self._delivered + 1:
                self._broker._run(self._begin_again())
                break
            self._delivered += 1
            self._next = about.sequence.stream + 1
            messages.append(
                Message(one.subject, about.sequence.stream, one.data, about.timestamp, one.headers or {},
                        consumer.pending)
            )  # fmt: skip
        return messages

    def to_the_end(self) -> Iterator[Message]:
        """All that are there. The broker says how many: nothing for a while is no end where machines are slow."""
        while self._broker._run(self._left()):
            yield from self.take(most=_AT_ONCE, seconds=1.0)

    async def _left(self) -> int:
        """How many messages there are that we have not seen, some of which may be on their way."""
        info = await self._info()
        while info is None:
            info = await self._info()
        return int(info.num_pending + info.delivered.consumer_seq - self._delivered)

    async def _info(self) -> Any:
        """How far the broker is with us; None if it has forgotten us, as after a pause: then we begin again."""
        from nats.js.errors import NotFoundError

        consumer = await self._opened()
        try:
            return await consumer.info()
        except NotFoundError:
            await self._begin_again()
            return None

    async def _check(self) -> None:
        """Begin again if the broker has delivered what never arrived, or has forgotten us; ask again if it has that.

        What was delivered may overtake the answer or come behind it: only what is missing twice is lost.
        """
        info, consumer = await self._info(), await self._opened()
        if info is None:
            return
        count = (info.delivered.consumer_seq, self._delivered + consumer.unread)
        if count[0] == count[1]:
            self._missing = None
            if not info.num_waiting:
                consumer.ask_again()
        elif count == self._missing:
            await self._begin_again()
        else:
            self._missing = count

    async def _begin_again(self) -> None:
        """From where the last one was: something is missing in what was delivered, or nobody delivers."""
        if self._consumer is not None:
            await self._consumer.close()
        self._consumer = self._missing = None

    async def _opened(self) -> _Consumer:
        if self._consumer is None:
            self._consumer, self._delivered = await self._open(), 0
        return self._consumer

    async def _open(self) -> _Consumer:
        from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

        created = (await self._broker._js.stream_info(self._stream)).created
        if self._created not in (None, created):
            raise self._broker._lost(f"has another stream {self._stream} than before; begin with it anew")
        self._created = created
        start: dict[str, Any] = {"deliver_policy": DeliverPolicy.BY_START_SEQUENCE, "opt_start_seq": self._next}
        if isinstance(self._next, datetime):
            start = {"deliver_policy": DeliverPolicy.BY_START_TIME, "opt_start_time": self._next}
        config = ConsumerConfig(
            **start,
            filter_subject=self._subject,
            ack_policy=AckPolicy.NONE,
            inactive_threshold=_FORGOTTEN_AFTER_SECONDS,
            mem_storage=True,
        )
        made = await self._broker._js.add_consumer(self._stream, config)
        consumer = _Consumer(self._broker, self._stream, made.name)
        await consumer.listen()
        return consumer

    def close(self) -> None:
        if self._consumer is not None:
            with suppress(LinkError):
                self._broker._run(self._consumer.close())


class _Consumer:
    """What the broker knows of a reader, and what has arrived of it; one request at a time waits for more."""

    def __init__(self, broker: Broker, stream: str, name: str) -> None:
        self._client, self._js, self._stream, self.name = broker._client, broker._js, stream, name
        self._inbox = self._client.new_inbox()
        self._subscription: Subscription | None = None
        self.arrived: deque[Msg] = deque()
        self._inward: SimpleQueue[Msg] = SimpleQueue()
        self._asked = 0
        """Messages that our request may still bring."""
        self._behind = 0
        """Messages that the broker had behind the last that arrived."""

    async def listen(self) -> None:
        self._subscription = await self._client.subscribe(self._inbox, cb=self._take_in)

    async def _take_in(self, message: Msg) -> None:
        self._inward.put(message)

    async def info(self) -> ConsumerInfo:
        """How far the broker is with it."""
        info: ConsumerInfo = await self._js.consumer_info(self._stream, self.name)
        return info

    @property
    def unread(self) -> int:
        """How many messages arrived that nobody has taken."""
        return len(self.arrived) + self._inward.qsize()

    @property
    def pending(self) -> int:
        """How many messages there are behind the last that was taken."""
        return len(self.arrived) + self._behind

    def ask(self, most: int) -> None:
        """Let messages be delivered as they come, if none are any more."""
        if not self._asked:
            self._asked = most
            asyncio.run_coroutine_threadsafe(self._request(most), _loop())

    def ask_again(self) -> None:
        """Before the next wait: the broker has lost the request."""
        self._asked = 0

    async def _request(self, most: int) -> None:
        wanted = json.dumps({"batch": most, "expires": round(_REQUEST_SECONDS * 1e9)}).encode()
        await self._client.publish(f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{self.name}", wanted, reply=self._inbox)

    def wait(self, most: int, seconds: float) -> bool:
        """Whether anything arrived within some seconds; no longer if the broker says that nothing will."""
        until = monotonic() + seconds
        while not self.arrived:
            self.ask(most)
            try:
                refused = self._sort_in(self._inward.get(timeout=max(0.0, until - monotonic())))
            except Empty:
                return False
            if refused:
                return False
        while not self._inward.empty():
            self._sort_in(self._inward.get())
        return True

    def _sort_in(self, message: Msg) -> bool:
        """Whether it says that our request is refused; one that only took too long is made again."""
        status = None if message.reply else (message.headers or {}).get("Status")
        if status is not None:
            self._asked = 0
            return status != _REQUEST_TOOK_TOO_LONG
        self.arrived.append(message)
        self._asked = max(0, self._asked - 1)
        self._behind = message.metadata.num_pending
        return False

    async def close(self) -> None:
        if self._subscription is not None:
            await self._subscription.unsubscribe()


class Bucket:
    """Values by key; whoever changes one says which revision he knows."""

    def __init__(self, broker: Broker, name: str, bucket: Any) -> None:
        self._broker, self._name, self._bucket = broker, name, bucket

    def expires_seconds(self) -> float | None:
        """After how long values vanish, as the bucket was made."""
        return float(self._broker._run(self._bucket.status()).ttl or 0.0) or None

    def get(self, key: str) -> BucketEntry | None:
        return self._broker._run(self._get(key))

    async def _get(self, key: str) -> BucketEntry | None:
        from nats.js.errors import KeyNotFoundError

        try:
            found = await self._bucket.get(key)
        except KeyNotFoundError:
            return None
        return BucketEntry(found.value or b"", found.revision)

    def create(self, key: str, value: bytes) -> int:
        """The first value of a key; `Superseded` if there is one."""
        return self._broker._run(self._create(key, value))

    async def _create(self, key: str, value: bytes) -> int:
        from nats.js.errors import KeyNotFoundError, KeyWrongLastSequenceError

        try:
            return int(await self._bucket.create(key, value))
        except (KeyWrongLastSequenceError, KeyNotFoundError) as error:  # the latter if it just vanished
            raise Superseded(f"{key} has a value already") from error

    def update(self, key: str, value: bytes, revision: int) -> int:
        """The next value, if the last one is of this revision; else `Superseded`."""
        return self._broker._run(self._update(key, value, revision))

    async def _update(self, key: str, value: bytes, revision: int) -> int:
        from nats.js.errors import KeyWrongLastSequenceError

        try:
            return int(await self._bucket.update(key, value, last=revision))
        except KeyWrongLastSequenceError as error:
            raise Superseded(f"{key} was changed by somebody else") from error

    def put(self, key: str, value: bytes) -> int:
        return int(self._broker._run(self._bucket.put(key, value)))

    def delete(self, key: str, revision: int | None = None) -> None:
        """Remove a value, of this revision; else `Superseded`."""
        self._broker._run(self._delete(key, revision))

    async def _delete(self, key: str, revision: int | None) -> None:
        from nats.js.errors import KeyWrongLastSequenceError

        try:
            await self._bucket.delete(key, last=revision)
        except KeyWrongLastSequenceError as error:
            raise Superseded(f"{key} was changed by somebody else") from error

    def keys(self) -> list[str]:
        return self._broker._run(self._keys(), more_seconds=30.0)

    async def _keys(self) -> list[str]:
        from nats.js.errors import NoKeysError

        try:
            return list(await self._bucket.keys())
        except NoKeysError:
            # On a busy machine the library takes what is still on its way for nothing at all.
            return [key for key in await self._ever_used() if await self._get(key) is not None]

    async def _ever_used(self) -> list[str]:
        """Keys that have a value, or had one that was removed."""
        prefix = f"$KV.{self._name}."
        info = await self._broker._js.stream_info(f"KV_{self._name}", subjects_filter=f"{prefix}>")
        return [subject.removeprefix(prefix) for subject in info.state.subjects or {}]

    def all(self) -> dict[str, BucketEntry]:
        """Every key with its value."""
        return self._broker._run(self._all(), more_seconds=30.0)

    async def _all(self) -> dict[str, BucketEntry]:
        found = {}
        for key in await self._keys():
            entry = await self._get(key)
            if entry is not None:  # it may have vanished since
                found[key] = entry
        return found


class Objects:
    """Files by name."""

    def __init__(self, broker: Broker, store: Any) -> None:
        self._broker, self._store = broker, store

    def put(self, name: str, data: bytes) -> None:
        self._broker._run(self._store.put(name, data), more_seconds=60.0)

    def get(self, name: str) -> bytes | None:
        """A file; none of its bytes if what there is was damaged."""
        return self._broker._run(self._get(name), more_seconds=60.0)

    async def _get(self, name: str) -> bytes | None:
        from nats.js.errors import BadObjectMetaError, DigestMismatchError, NotFoundError, ObjectNotFoundError

        try:
            return (await self._store.get(name)).data or b""
        except (BadObjectMetaError, DigestMismatchError):
            return b""
        except (ObjectNotFoundError, NotFoundError):
            return None
