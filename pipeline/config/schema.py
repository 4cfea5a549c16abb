"""The settings of the daemon: strict TOML in which quantities carry their unit.

In the file the names have no unit (`stuck = "30 s"`), in Python they do (`stuck_seconds`). Relative paths are relative
to the file. No environment variable changes a setting: what counts is in one place.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import time
from difflib import get_close_matches
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeAlias, TypeVar
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    StringConstraints,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic_core import PydanticCustomError

from pipeline.config.messages import as_toml_value, key_of, problems, unit_of
from pipeline.core.errors import SettingsError
from pipeline.core.framing import HIGHEST_RATE_HZ, LOWEST_RATE_HZ
from pipeline.core.units import DURATION, RATE, SIZE
from pipeline.transport.loopback import is_loopback

if TYPE_CHECKING:
    from pipeline.core.choices import Choices
    from pipeline.transport.nats import Access

TakesEffect: TypeAlias = Literal["now", "next recording", "restart"]
Overload: TypeAlias = Literal["drop_oldest", "wait"]

_NOW = {"storage.budget", "storage.least_free", "log.level", "array.mask"}
_NOW_TABLES = {"labels", "training", "web", "notifications", "mqtt", "webhook"}
_NEXT_RECORDING_TABLES = {"decisions"}
MOST_PASSAGES_PER_HOUR = 40.0
"""Each may take a minute, and there is nobody for 20 s after it."""
_BROKER_PORTS = {"mqtt": 1883, "mqtts": 8883}
_LOG_PORTS = {"nats": 4222, "tls": 4222}
_WEB_PORTS = {"http": 80, "https": 443}
_HOST_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9])?")
_TIME_OF_DAY = re.compile(r"([01][0-9]|2[0-3]):[0-5][0-9]")
_HASH = re.compile(r"sha256:[0-9a-f]{64}")
_EVERY_ADDRESS = {"0.0.0.0", "::"}
_RESTART = {"training.model", "training.recordings", "training.labels", "training.classes"}


def contradiction(key: str, rule: str) -> PydanticCustomError:
    """What is wrong with a setting in view of others; `key` is named within its table."""
    return PydanticCustomError("contradiction", "{rule}", {"key": key, "rule": rule})


def _beside_file(value: Any, info: ValidationInfo) -> Any:
    if isinstance(value, str) and not value:
        raise PydanticCustomError("rule", "must not be empty; leave the line out for the default")
    if isinstance(value, str | Path) and info.context is not None:
        return info.context["directory"] / Path(value).expanduser()
    return Path(value) if isinstance(value, str) else value


def as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def as_places(value: Any) -> Any:
    """Lists of two numbers as pairs; whole numbers are numbers, too."""
    if not isinstance(value, list | tuple):
        return value
    return tuple(
        tuple(float(one) if isinstance(one, int) and not isinstance(one, bool) else one for one in place)
        if isinstance(place, list | tuple)
        else place
        for place in value
    )


Positions = Annotated[tuple[tuple[float, float], ...], BeforeValidator(as_places)]


def _classes(value: tuple[str, ...] | None) -> tuple[str, ...] | None:
    if value is not None and (len(value) < 2 or len(set(value)) != len(value) or not all(value)):
        raise PydanticCustomError("rule", 'must be two or more different names; write for example ["person", "animal"]')
    return value


def _checked_address(address: str) -> str:
    host, colon, port = address.removesuffix("?listen").removeprefix("tcp://").rpartition(":")
    known = address.startswith("tcp://") and host and colon and port.isascii() and port.isdigit() and int(port) < 2**16
    if address != "-" and not known:
        raise PydanticCustomError(
            "rule", 'must be "-", "tcp://host:port" or "tcp://host:port?listen"; write it like one of them'
        )
    return address


def _checked_host_and_port(address: str) -> str:
    host, colon, port = address.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if not (host and colon and port.isascii() and port.isdigit() and int(port) < 2**16) or (":" in host) != bracketed:
        raise PydanticCustomError(
            "rule", 'must be a host and a port; write for example "127.0.0.1:8780" or "[::1]:8780"'
        )
    return address


def _checked_host(name: str) -> str:
    if not _HOST_NAME.fullmatch(name) and not _is_address(name):
        raise PydanticCustomError(
            "rule", 'must be names or addresses without scheme and port; write for example ["field1.example.org"]'
        )
    return name.lower()


def _checked_hash(text: str) -> str:
    if not _HASH.fullmatch(text):
        raise PydanticCustomError("rule", "must be sha256: and 64 digits from 0 to f")
    return text


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _checked_url(value: str, ports: Mapping[str, int]) -> str:
    """No secret: settings are shown to whoever asks."""
    example = " or ".join(f'"{scheme}://host:{port}"' for scheme, port in ports.items())
    wrong = PydanticCustomError("rule", "must be an address; write for example {example}", {"example": example})
    try:
        parts = urlsplit(value)
        fine = parts.scheme in ports and parts.hostname and (parts.port is None or parts.port > 0)
    except ValueError:
        raise wrong from None
    if parts.username is not None or parts.password is not None:
        raise PydanticCustomError("secret", "must not contain a user or a password; they have settings of their own")
    if not fine or not value.isascii() or not value.isprintable() or " " in value:
        raise wrong
    return value


def _checked_broker(value: str) -> str:
    if urlsplit(_checked_url(value, _BROKER_PORTS))[2:] != ("", "", ""):
        raise PydanticCustomError("rule", "must end with the port; leave out the rest")
    return value


def _checked_log(value: str) -> str:
    parts = urlsplit(_checked_url(value, _LOG_PORTS))
    if parts[2:] != ("", "", ""):
        raise PydanticCustomError("rule", "must end with the port; leave out the rest")
    if parts.scheme == "nats" and not is_loopback(parts.hostname or ""):
        raise PydanticCustomError(
            "rule", 'would send sound in the clear to another machine; write "tls://host:4222", or use one on 127.0.0.1'
        )
    return value


def _checked_receiver(value: str) -> str:
    if urlsplit(_checked_url(value, _WEB_PORTS)).fragment:
        raise PydanticCustomError("rule", "must not have a part behind #; leave it out")
    return value


def _checked_time_of_day(value: str) -> str:
    if not _TIME_OF_DAY.fullmatch(value):
        raise PydanticCustomError("rule", 'must be a time of day from 00:00 to 23:59; write for example "07:00"')
    return value


def _checked_hours(value: str) -> str:
    begin, dash, end = value.partition("-")
    if not (dash and _TIME_OF_DAY.fullmatch(begin) and _TIME_OF_DAY.fullmatch(end)) or begin == end:
        raise PydanticCustomError("rule", 'must be two different times of day; write for example "22:00-06:00"')
    return value


def _checked_zone(value: str) -> str:
    try:
        ZoneInfo(value)
    except (OSError, ValueError, KeyError):
        raise PydanticCustomError("rule", 'must be a time zone; write for example "Europe/Berlin"') from None
    return value


def _checked_base(value: str) -> str:
    parts = urlsplit(_checked_receiver(value))
    if parts.query:
        raise PydanticCustomError("rule", "must not have a part behind ?; leave it out")
    return value.rstrip("/")


def checked_name(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,60}", value):
        raise PydanticCustomError("rule", 'must be letters, digits, - and _; write for example "field-1"')
    return value


def _checked_topic(value: str) -> str:
    if not re.fullmatch(r"[^/+#\s]+(/[^/+#\s]+)*", value):
        raise PydanticCustomError("rule", "must be a topic without +, # and spaces; homeassistant is usual")
    return value


def _checked_types(value: tuple[str, ...] | None) -> tuple[str, ...] | None:
    from pipeline.core.event_json import EVENT_TYPES

    for name in value or ():
        if name not in EVENT_TYPES:
            meant = get_close_matches(name, EVENT_TYPES, n=1)
            cure = f"did you mean {meant[0]}?" if meant else "docs/events.md has them all"
            raise PydanticCustomError(
                "rule", "has {name}, which is no type of event; {cure}", {"name": name, "cure": cure}
            )
    return value


Seconds: TypeAlias = Annotated[float, Field(ge=0), DURATION]
SomeSeconds: TypeAlias = Annotated[float, Field(ge=0.01), DURATION]
"""Too short a time would keep a loop busy."""
Text: TypeAlias = Annotated[str, StringConstraints(min_length=1)]
HostName: TypeAlias = Annotated[str, AfterValidator(_checked_host)]
PathBeside: TypeAlias = Annotated[Path, BeforeValidator(_beside_file)]
Share: TypeAlias = Annotated[float, Field(ge=0, lt=1)]
Count: TypeAlias = Annotated[int, Field(ge=1)]
EventTypes: TypeAlias = Annotated[tuple[str, ...] | None, BeforeValidator(as_tuple), AfterValidator(_checked_types)]


class Table(BaseModel):
    """Nothing unknown, nothing converted, nothing changed later."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        validate_by_alias=True,
        validate_by_name=True,
        protected_namespaces=(),
    )


AnyTable = TypeVar("AnyTable", bound=Table)


class Array(Table):
    """The sensors, and those the operator does not want to hear, counted from 1."""

    sensors: Annotated[int, Field(ge=1, le=64)] = 4
    rate_hz: Annotated[int, Field(ge=LOWEST_RATE_HZ, le=HIGHEST_RATE_HZ), RATE] = Field(
        default=16_000, validation_alias="rate"
    )
    mask: Annotated[tuple[int, ...], BeforeValidator(as_tuple)] = ()
    positions: Positions = ()
    """Meters, (x, y) of every sensor; passages then have a direction and a speed."""

    @model_validator(mode="after")
    def _positions_are_of_all_sensors(self) -> Array:
        if self.positions and len(self.positions) != self.sensors:
            raise contradiction(
                "positions", f"has {len(self.positions)} places for {self.sensors} sensors; give one [x, y] for each"
            )
        return self

    @model_validator(mode="after")
    def _mask_names_sensors(self) -> Array:
        if len(set(self.mask)) < len(self.mask) or not set(self.mask) <= set(range(1, self.sensors + 1)):
            raise contradiction("mask", f"must name sensors from 1 to {self.sensors}, each once; correct the numbers")
        return self


class _AnySource(Table):
    """What all sources have in common: when one counts as stuck, and how often it is tried again."""

    stuck_seconds: SomeSeconds = Field(default=30.0, validation_alias="stuck")
    retry_first_seconds: SomeSeconds = Field(default=1.0, validation_alias="retry_first")
    retry_most_seconds: SomeSeconds = Field(default=60.0, validation_alias="retry_most")
    tick_seconds: SomeSeconds = Field(default=1.0, validation_alias="tick")

    @model_validator(mode="after")
    def _times_are_in_order(self) -> _AnySource:
        if self.retry_first_seconds > self.retry_most_seconds:
            most = DURATION.written(self.retry_most_seconds)
            raise contradiction("retry_first", f'must be at most retry_most = "{most}"; lower it')
        if self.tick_seconds > self.stuck_seconds:
            stuck = DURATION.written(self.stuck_seconds)
            raise contradiction("tick", f'must be at most stuck = "{stuck}", which is counted in ticks; lower it')
        return self


class SimulatedSourceSettings(_AnySource):
    """A simulated array with failing sensors; `speed` is in times real time, 0 is as fast as possible.

    The scene is a day in which mostly nobody is there, or walks: somebody passes all the time.
    """

    kind: Literal["simulated"] = "simulated"
    scene: Literal["day", "walks"] = "day"
    passages_per_hour: Annotated[float, Field(ge=0, le=MOST_PASSAGES_PER_HOUR)] = 40.0
    distractors_per_hour: Annotated[float, Field(ge=0, le=600)] = 12.0
    seed: Annotated[int, Field(ge=0)] = 1
    faults: Text = "all"
    fault_share: Share = 0.1
    fault_seconds: Annotated[float, Field(gt=0), DURATION] = Field(default=10.0, validation_alias="fault_length")
    speed: Annotated[float, Field(ge=0)] = 1.0
    seconds: Annotated[float | None, Field(gt=0), DURATION] = Field(default=None, validation_alias="length")
    surface: Literal["gravel", "grass", "sand", "soil", "asphalt"] = "gravel"


class PcmSourceSettings(_AnySource):
    """Raw PCM on standard input or over TCP."""

    kind: Literal["pcm"] = "pcm"
    address: Annotated[Text, AfterValidator(_checked_address)] = "-"
    format: Literal["s16le", "s24le", "s32le", "f32le"] = "s16le"
    allow_remote: bool = False


class SoundcardSourceSettings(_AnySource):
    """A sound card by its name, a part of its name or its number; none means the default one."""

    kind: Literal["soundcard"] = "soundcard"
    device: Text | Annotated[int, Field(ge=0)] | None = None


class FolderSourceSettings(_AnySource):
    """Files dropped into a folder, heard when they have not changed for a while."""

    kind: Literal["folder"] = "folder"
    path: PathBeside
    pattern: Text | None = None
    resample: bool = False
    settle_seconds: Seconds = Field(default=2.0, validation_alias="settle")


class StreamSourceSettings(_AnySource):
    """What `gemmed publish` sends of an array, by way of the broker; `begin` says where, if it was never heard."""

    kind: Literal["stream"] = "stream"
    array: Annotated[str, AfterValidator(checked_name)]
    begin: Literal["oldest", "newest"] = "oldest"


class Buffer(Table):
    """Sound that waits to be processed, and what happens when there is too much of it."""

    seconds: Annotated[float, Field(ge=1, le=3600), DURATION] = Field(default=30.0, validation_alias="length")
    overload: Literal["drop_oldest", "wait", "auto"] = "auto"


class Decisions(Table):
    """What may be chosen without training anew."""

    alpha: Annotated[float, Field(gt=0, lt=1)] = 0.01
    confidence: Annotated[float, Field(ge=0.5, le=1)] = 0.6
    fusion: Literal["votes", "features"] = "votes"
    health: bool = True
    alarms_per_day: Annotated[float, Field(gt=0)] = 1.0
    presence: bool = True
    false_passages_per_day: Annotated[float, Field(gt=0)] = 24.0

    def choices(self, mask: tuple[int, ...], positions: tuple[tuple[float, float], ...] = ()) -> Choices:
        """Those that a chain of stages is made with."""
        from pipeline.core.choices import Choices

        return Choices(
            alpha=self.alpha,
            least_confidence=self.confidence,
            fusion=self.fusion,
            masked=mask,
            health=self.health,
            alarms_per_day=self.alarms_per_day,
            presence=self.presence,
            false_passages_per_day=self.false_passages_per_day,
            positions_m=positions,
        )


class Storage(Table):
    """Where everything is kept, how much of it, and in what portions."""

    directory: PathBeside = Field(default=Path("gemmed-state"), validate_default=True)
    budget_bytes: Annotated[int, Field(ge=10**6), SIZE] = Field(default=20 * 10**9, validation_alias="budget")
    least_free_bytes: Annotated[int, Field(ge=0), SIZE] = Field(default=10**9, validation_alias="least_free")
    recording_seconds: Annotated[float, Field(ge=60), DURATION] = Field(
        default=6 * 3600.0, validation_alias="recording"
    )
    piece_seconds: Annotated[float, Field(ge=1), DURATION] = Field(default=10.0, validation_alias="piece")
    sound: Literal["all", "none"] = "all"

    @model_validator(mode="after")
    def _pieces_fit(self) -> Storage:
        if self.piece_seconds > self.recording_seconds:
            recording = DURATION.written(self.recording_seconds)
            raise contradiction("piece", f'must be at most recording = "{recording}"; lower it')
        return self


class LabelSettings(Table):
    """A file of labels that is read again whenever it changes, and how labels are shown to people."""

    file: PathBeside | None = None
    names: dict[Text, Text] = {}


class Training(Table):
    """What the first model is made from, when a new one is tried, and how it must prove itself."""

    enabled: bool = True
    model: PathBeside | None = None
    recordings: PathBeside | None = None
    labels: PathBeside | None = None
    classes: Annotated[tuple[str, ...] | None, BeforeValidator(as_tuple), AfterValidator(_classes)] = None
    interval_seconds: SomeSeconds = Field(default=24 * 3600.0, validation_alias="interval")
    pause_seconds: Seconds = Field(default=600.0, validation_alias="pause")
    new_labels: Count = 20
    on_drift: bool = True
    segments: Annotated[int, Field(ge=40)] = 3000
    seconds_unlabelled: Seconds = Field(default=600.0, validation_alias="unlabelled")
    shadow_seconds: Seconds = Field(default=600.0, validation_alias="shadow")
    contamination: Annotated[float, Field(gt=0, lt=1)] = 0.3
    worse: Share = 0.01
    keep_models: Annotated[int, Field(ge=2)] = 10

    @model_validator(mode="after")
    def _one_beginning(self) -> Training:
        if self.labels is not None and self.recordings is None:
            raise contradiction("labels", "needs recordings, which they label; add recordings or use [labels] file")
        if self.recordings is not None and self.labels is None:
            raise contradiction("recordings", "needs labels, to learn from them; add labels")
        if self.model is not None and self.recordings is not None:
            raise contradiction("model", "and recordings are two beginnings; leave out one of them")
        return self


class LogSettings(Table):
    """What is told on standard error, and how."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "text", "json"] = "auto"


class Token(Table):
    """Who may use the dashboard from where a token is asked for: `gemmed token` makes one and shows what to write."""

    name: Text
    role: Literal["viewer", "operator"] = "viewer"
    hash: Annotated[str, AfterValidator(_checked_hash)]


class Web(Table):
    """The dashboard, its API and the metrics; on this machine only unless there are tokens."""

    enabled: bool = True
    address: Annotated[Text, AfterValidator(_checked_host_and_port)] = "127.0.0.1:8780"
    hosts: Annotated[tuple[HostName, ...], BeforeValidator(as_tuple)] = ()
    certificate: PathBeside | None = None
    key: PathBeside | None = None
    tokens: Annotated[tuple[Token, ...], BeforeValidator(as_tuple)] = ()

    @property
    def host(self) -> str:
        return self.address.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    @property
    def url(self) -> str:
        """As somebody on this machine calls it."""
        address = f"localhost:{self.port}" if self.host in _EVERY_ADDRESS else self.address
        return f"{'https' if self.certificate else 'http'}://{address}"

    @property
    def public_url(self) -> str:
        """As somebody on another machine calls it, as far as the settings say."""
        if self.host not in _EVERY_ADDRESS or not self.hosts:
            return self.url
        host = f"[{self.hosts[0]}]" if ":" in self.hosts[0] else self.hosts[0]
        return f"{'https' if self.certificate else 'http'}://{host}:{self.port}"

    @property
    def unencrypted_warning(self) -> str | None:
        """What to say of an address that others reach, and anybody in between can read along."""
        if not self.enabled or self.certificate is not None or is_loopback(self.host):
            return None
        return (
            f"web.address = {self.address} is open to the network without encryption: tokens can be read on the way; "
            "give web.certificate and web.key, or use 127.0.0.1 behind a proxy that encrypts"
        )

    @model_validator(mode="after")
    def _complete(self) -> Web:
        if (self.certificate is None) != (self.key is None):
            raise contradiction("certificate", "and key belong together; give both or none")
        if len({token.name for token in self.tokens}) < len(self.tokens):
            raise contradiction("tokens", "must have names that differ; rename one")
        if len({token.hash for token in self.tokens}) < len(self.tokens):
            raise contradiction("tokens", "must differ; make another token with gemmed token")
        if self.enabled and self.host in _EVERY_ADDRESS and not self.hosts:
            raise contradiction(
                "address",
                "is every address of this machine, so hosts must say by which names and addresses it is called; write "
                'for example hosts = ["field1.example.org", "192.168.1.7"]',
            )
        if self.enabled and not is_loopback(self.host) and not self.tokens:
            raise contradiction(
                "address", "lets other machines in, which needs tokens; make one with gemmed token, or use 127.0.0.1"
            )
        return self


class _Output(Table):
    """What all outputs have in common: how much may wait for a link, and how often a dead one is tried again."""

    events: EventTypes = None
    queue: Count = 100_000
    retry_first_seconds: SomeSeconds = Field(default=1.0, validation_alias="retry_first")
    retry_most_seconds: SomeSeconds = Field(default=60.0, validation_alias="retry_most")

    @model_validator(mode="after")
    def _pauses_are_in_order(self) -> Self:
        if self.retry_first_seconds > self.retry_most_seconds:
            most = DURATION.written(self.retry_most_seconds)
            raise contradiction("retry_first", f'must be at most retry_most = "{most}"; lower it')
        return self


class Notifications(_Output):
    """Which passages people are notified of, and the services that notify them; times of day are local."""

    labels: Annotated[tuple[Text, ...] | None, BeforeValidator(as_tuple)] = None
    least_probability: Share = 0.0
    quiet_hours: Annotated[str, AfterValidator(_checked_hours)] | None = None
    cool_down_seconds: Seconds = Field(default=0.0, validation_alias="cool_down")
    summary_at: Annotated[str, AfterValidator(_checked_time_of_day)] | None = None
    zone: Annotated[str, AfterValidator(_checked_zone)] | None = None
    link: Annotated[Text, AfterValidator(_checked_base)] | None = None
    link_expires_seconds: Annotated[float, Field(ge=60, le=366 * 86_400), DURATION] = Field(
        default=7 * 86_400.0, validation_alias="link_expires"
    )
    urls_file: PathBeside | None = None
    attach: bool = False

    @property
    def quiet_times(self) -> tuple[time, time] | None:
        if self.quiet_hours is None:
            return None
        begin, _, end = self.quiet_hours.partition("-")
        return time.fromisoformat(begin), time.fromisoformat(end)

    @property
    def summary_time(self) -> time | None:
        return None if self.summary_at is None else time.fromisoformat(self.summary_at)

    @property
    def time_zone(self) -> ZoneInfo | None:
        """None is the time zone of this machine."""
        return None if self.zone is None else ZoneInfo(self.zone)

    @model_validator(mode="after")
    def _attachments_have_a_service(self) -> Notifications:
        if self.attach and self.urls_file is None:
            raise contradiction("attach", "needs urls_file, the services that get the clip; add urls_file")
        return self


class Mqtt(_Output):
    """A broker that gets events and states; none unless there is an address."""

    address: Annotated[Text, AfterValidator(_checked_broker)] | None = None
    name: Annotated[str, AfterValidator(checked_name)] = "gemmed"
    user: Text | None = None
    password_file: PathBeside | None = None
    ca_file: PathBeside | None = None
    home_assistant: bool = True
    discovery_prefix: Annotated[str, AfterValidator(_checked_topic)] = "homeassistant"

    @property
    def in_the_clear(self) -> bool:
        """Whether a password travels over a net that others may listen to."""
        parts = urlsplit(self.address or "")
        return parts.scheme == "mqtt" and self.user is not None and not is_loopback(parts.hostname or "")

    @model_validator(mode="after")
    def _belong_together(self) -> Mqtt:
        if self.password_file is not None and self.user is None:
            raise contradiction("password_file", "needs user, whose password it is; add user")
        if self.ca_file is not None and not (self.address or "mqtts:").startswith("mqtts:"):
            raise contradiction("ca_file", 'needs an address that begins with "mqtts://"; correct mqtt.address')
        return self


class Webhook(_Output):
    """An address on the web that gets events; none unless there is a URL."""

    url: Annotated[Text, AfterValidator(_checked_receiver)] | None = None
    secret_file: PathBeside | None = None
    ca_file: PathBeside | None = None
    timeout_seconds: Annotated[float, Field(ge=0.1, le=600), DURATION] = Field(default=10.0, validation_alias="timeout")

    @model_validator(mode="after")
    def _belong_together(self) -> Webhook:
        if self.ca_file is not None and not (self.url or "https:").startswith("https:"):
            raise contradiction("ca_file", 'needs a url that begins with "https://"; correct webhook.url')
        return self


class BrokerSettings(Table):
    """The JetStream broker between machines; `name` begins the names of all that is kept there."""

    address: Annotated[Text, AfterValidator(_checked_log)] = "nats://127.0.0.1:4222"
    name: Annotated[str, AfterValidator(checked_name)] = "gemmed"
    user: Text | None = None
    password_file: PathBeside | None = None
    ca_file: PathBeside | None = None
    certificate: PathBeside | None = None
    key: PathBeside | None = None

    @model_validator(mode="after")
    def _belong_together(self) -> BrokerSettings:
        if (self.certificate is None) != (self.key is None):
            raise contradiction("certificate", "and key belong together; give both or none")
        if self.password_file is not None and self.user is None:
            raise contradiction("password_file", "needs user, whose password it is; add user")
        if self.ca_file is not None and not self.address.startswith("tls:"):
            raise contradiction("ca_file", 'needs an address that begins with "tls://"; correct broker.address')
        return self

    def access(self) -> Access:
        """As a connection takes it."""
        from pipeline.transport.nats import Access

        return Access(
            address=self.address,
            user=self.user,
            password_file=self.password_file,
            ca_file=self.ca_file,
            certificate=self.certificate,
            key=self.key,
        )


class Publish(Table):
    """What `gemmed publish` sends: as which array, in what portions, and how much may wait on disk for the link.

    Without `spool` it waits in storage.directory. `keep` and `keep_size` bound what the broker holds, if it has no
    stream yet.
    """

    array: Annotated[str, AfterValidator(checked_name)] | None = None
    block_seconds: Annotated[float, Field(ge=0.05, le=10), DURATION] = Field(default=0.5, validation_alias="block")
    spool: PathBeside | None = None
    budget_bytes: Annotated[int, Field(ge=10**6), SIZE] = Field(default=10**9, validation_alias="budget")
    keep_seconds: Annotated[float, Field(ge=60), DURATION] = Field(default=24 * 3600.0, validation_alias="keep")
    keep_bytes: Annotated[int | None, Field(ge=10**6), SIZE] = Field(default=None, validation_alias="keep_size")
    retry_first_seconds: SomeSeconds = Field(default=1.0, validation_alias="retry_first")
    retry_most_seconds: SomeSeconds = Field(default=60.0, validation_alias="retry_most")

    @model_validator(mode="after")
    def _pauses_are_in_order(self) -> Publish:
        if self.retry_first_seconds > self.retry_most_seconds:
            most = DURATION.written(self.retry_most_seconds)
            raise contradiction("retry_first", f'must be at most retry_most = "{most}"; lower it')
        return self


class Settings(Table):
    """All of them; `path` is the file they were read from, which does not make them different."""

    array: Array = Array()
    source: Annotated[
        SimulatedSourceSettings
        | PcmSourceSettings
        | SoundcardSourceSettings
        | FolderSourceSettings
        | StreamSourceSettings,
        Field(discriminator="kind"),
    ] = SimulatedSourceSettings()
    buffer: Buffer = Buffer()
    decisions: Decisions = Decisions()
    storage: Storage = Storage()
    labels: LabelSettings = LabelSettings()
    training: Training = Training()
    web: Web = Web()
    notifications: Notifications = Notifications()
    mqtt: Mqtt = Mqtt()
    webhook: Webhook = Webhook()
    broker: BrokerSettings = BrokerSettings()
    publish: Publish = Publish()
    log: LogSettings = LogSettings()
    _path: Path | None = PrivateAttr(None)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Settings) and dict(self) == dict(other)

    @property
    def path(self) -> Path | None:
        return self._path

    @property
    def overload(self) -> Overload:
        """A source that cannot wait loses its oldest sound, others wait."""
        if self.buffer.overload != "auto":
            return self.buffer.overload
        return "drop_oldest" if self.source.kind in ("soundcard", "pcm") else "wait"

    def choices(self) -> Choices:
        """Those that a chain of stages is made with."""
        return self.decisions.choices(self.array.mask, self.array.positions)


@dataclass(frozen=True, slots=True)
class SettingChange:
    """A setting that changed, as written, and when the change is felt."""

    key: str
    before: Any
    after: Any
    takes_effect: TakesEffect


def read_settings(path: Path | None) -> Settings:
    """Those in a file, or the defaults; all problems of a file are told at once."""
    if path is None:
        return _checked({}, Path.cwd(), "", "defaults")
    tables, text = read_tables(path)
    settings = _checked(tables, path.absolute().parent, text, str(path))
    settings._path = path.absolute()
    return settings


def read_tables(path: Path, *, cure: str = "give the file of settings by --config") -> tuple[dict[str, Any], str]:
    """What a file says, and its text; the cure is for one that is not there."""
    text = _text(path, cure)
    try:
        return tomllib.loads(text), text
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{path} is not TOML: {error}; correct it there") from error


def effective(settings: Settings) -> dict[str, dict[str, Any]]:
    """Every value as one would write it in the file; None for what is not set."""
    return {name: dict(_written(table)) for name, table in settings}


def settings_of(
    written: Mapping[str, Mapping[str, Any]], path: Path | None = None, *, given_by: str = "settings of the daemon"
) -> Settings:
    """Those that `effective` gave, and the file that they are from; `given_by` is named if they cannot be used."""
    tables = {
        name: {key: value for key, value in table.items() if value is not None} for name, table in written.items()
    }
    settings = _checked(tables, Path("/"), "", given_by)
    settings._path = path
    return settings


def defaults_of(settings: Settings) -> Settings:
    """What would count if the file said no more than it must: which kind of source, and where that is."""
    source = settings.source
    must = {
        key_of(name, info): str(getattr(source, name))
        for name, info in type(source).model_fields.items()
        if info.is_required()
    }
    directory = Path.cwd() if settings.path is None else settings.path.parent
    return _checked({"source": {"kind": source.kind, **must}}, directory, "", "defaults")


def without_secrets(written: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """What `effective` gave, for people and records: who may come in, not how he is known.

    Of a webhook only the host: the rest of its address is often all that keeps others from using it.
    """
    tokens = [{key: value for key, value in one.items() if key != "hash"} for one in written["web"]["tokens"]]
    url = written["webhook"]["url"]
    shown = None if url is None else f"{url.partition('://')[0]}://{urlsplit(url).netloc}/..."
    return written | {
        "web": written["web"] | {"tokens": tokens},
        "webhook": written["webhook"] | {"url": shown},
    }


def as_toml(settings: Settings) -> str:
    """A file that gives these settings."""
    return written_as_toml(effective(settings))


def written_as_toml(tables: Mapping[str, Mapping[str, Any]]) -> str:
    """What `effective` gave, as a file."""
    return "\n".join(
        f"[{name}]\n"
        + "".join(f"{key} = {as_toml_value(value)}\n" for key, value in table.items() if value is not None)
        for name, table in tables.items()
    )


def differences(before: Settings, after: Settings) -> list[SettingChange]:
    """What changed, in the order of the file."""
    written = effective(before), effective(after)
    old, new = map(_flat, written)
    shown_old, shown_new = (_flat(without_secrets(one)) for one in written)
    return [
        SettingChange(key, shown_old.get(key), shown_new.get(key), takes_effect(key))
        for key in dict.fromkeys([*old, *new])
        if old.get(key) != new.get(key)
    ]


def adopted(running: Settings, before: Settings, after: Settings) -> Settings:
    """What counts until the next start: of what changed in the file all that needs no restart."""
    sensors = running.array.sensors
    if max(after.array.mask, default=0) > sensors:
        raise SettingsError(f"array.mask = {list(after.array.mask)} must name sensors from 1 to {sensors} until gemmed "
                            "run is started again; do that, or correct the numbers")  # fmt: skip
    tables = {name: table.model_copy(update=_changed_now(name, before, after)) for name, table in running}
    return running.model_copy(update=tables)


def _changed_now(name: str, before: Settings, after: Settings) -> dict[str, Any]:
    old, new = getattr(before, name), getattr(after, name)
    return {
        field: getattr(new, field)
        for field, info in type(new).model_fields.items()
        if takes_effect(f"{name}.{key_of(field, info)}") != "restart" and getattr(old, field) != getattr(new, field)
    }


def _text(path: Path, cure: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path} is not UTF-8 at byte {error.start}; save it as UTF-8") from error
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}; {cure}") from error


def _checked(tables: dict[str, Any], directory: Path, text: str, name: str) -> Settings:
    # Every table is there, so that defaults, too, are relative to the file.
    tables = {key: {} for key in Settings.model_fields} | tables
    if isinstance(tables["source"], dict):
        tables["source"] = {"kind": "simulated"} | tables["source"]
    return checked(Settings, tables, directory, text, name)


def checked(kind: type[AnyTable], tables: dict[str, Any], directory: Path, text: str, name: str) -> AnyTable:
    """Settings of a kind from what a file says; all that is wrong is told at once."""
    try:
        return kind.model_validate(tables, by_name=False, context={"directory": directory})
    except ValidationError as error:
        found = problems(kind, error, tables, text)
        told = found[0] if len(found) == 1 else "\n  ".join([f"{len(found)} settings cannot be used:", *found])
        raise SettingsError(f"{name}: {told}") from error


def _written(table: Table) -> Iterator[tuple[str, Any]]:
    fields = type(table).model_fields
    # The kind decides which other keys there are.
    for name in sorted(fields, key=lambda name: name != "kind"):
        value, unit = getattr(table, name), unit_of(fields[name])
        if unit is not None and value is not None:
            value = unit.written(value)
        elif isinstance(value, Path):
            value = str(value)
        elif isinstance(value, tuple):
            value = [dict(_written(one)) if isinstance(one, Table) else one for one in value]
        yield key_of(name, fields[name]), value


def _flat(written: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    return {f"{name}.{key}": value for name, table in written.items() for key, value in table.items()}


def takes_effect(key: str) -> TakesEffect:
    """When a change of `table.key` in the file is felt, once the daemon has read it again."""
    table = key.partition(".")[0]
    if key in _RESTART:
        return "restart"
    if key in _NOW or table in _NOW_TABLES:
        return "now"
    return "next recording" if table in _NEXT_RECORDING_TABLES else "restart"
