"""The settings of a fleet, in one file of TOML: its broker, how it decides, and which arrays there are."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr
from pydantic_core import PydanticCustomError

from pipeline.config.schema import (
    BrokerSettings,
    Decisions,
    LogSettings,
    Mqtt,
    Notifications,
    PathBeside,
    Positions,
    SomeSeconds,
    Table,
    Text,
    Webhook,
    as_tuple,
    checked,
    checked_name,
    read_tables,
)
from pipeline.core.errors import NotFound
from pipeline.core.units import DURATION, SIZE
from pipeline.fleet.topology import Places
from pipeline.sources.reorder import unknown_array

Name = Annotated[str, AfterValidator(checked_name)]
RESERVED = "dispatcher"


class Keeping(Table):
    """How the fleet keeps what it needs with the broker; what is there already stays as it was made."""

    model: PathBeside | None = None
    lease_seconds: Annotated[float, Field(ge=2, le=300), DURATION] = Field(default=10.0, validation_alias="lease")
    checkpoint_seconds: SomeSeconds = Field(default=10.0, validation_alias="checkpoint")
    keep_sound_seconds: Annotated[float, Field(ge=60), DURATION] = Field(
        default=24 * 3600.0, validation_alias="keep_sound"
    )
    sound_bytes: Annotated[int | None, Field(ge=10**6), SIZE] = Field(default=None, validation_alias="sound_budget")
    keep_events_seconds: Annotated[float, Field(ge=60), DURATION] = Field(
        default=30 * 24 * 3600.0, validation_alias="keep_events"
    )
    keep_passages_seconds: Annotated[float, Field(ge=60), DURATION] = Field(
        default=366 * 24 * 3600.0, validation_alias="keep_passages"
    )
    replicas: Annotated[int, Field(ge=1, le=5)] = 1
    cache: PathBeside | None = None


class ArrayOfFleet(Table):
    """An array by the name under which it is published; sites are reported apart."""

    name: Name
    site: Text | None = None
    mask: Annotated[tuple[int, ...], BeforeValidator(as_tuple)] = ()
    positions: Positions = ()
    model: PathBeside | None = None

    @property
    def place(self) -> str:
        """Its site, which is its own unless it is said."""
        return self.site or self.name


def _distinct(arrays: tuple[ArrayOfFleet, ...]) -> tuple[ArrayOfFleet, ...]:
    twice = [name for name, count in Counter(array.name for array in arrays).items() if count > 1]
    if twice or RESERVED in {array.name for array in arrays}:
        wrong = twice[0] if twice else RESERVED
        raise PydanticCustomError(
            "rule", "must have names that differ, and none {reserved}; rename {wrong}",
            {"reserved": RESERVED, "wrong": wrong},
        )  # fmt: skip
    return arrays


class LabelNames(Table):
    """How labels are shown to people."""

    names: dict[Text, Text] = Field(default_factory=dict)


class Fleet(Table):
    """All of it; `path` is the file it was read from."""

    fleet: Keeping = Keeping()
    broker: BrokerSettings = BrokerSettings()
    decisions: Decisions = Decisions()
    arrays: Annotated[tuple[ArrayOfFleet, ...], BeforeValidator(as_tuple), AfterValidator(_distinct)] = ()
    labels: LabelNames = LabelNames()
    notifications: Notifications = Notifications()
    webhook: Webhook = Webhook()
    mqtt: Mqtt = Mqtt()
    log: LogSettings = LogSettings()
    _path: Path | None = PrivateAttr(None)

    @property
    def path(self) -> Path | None:
        return self._path

    @property
    def places(self) -> Places:
        kept = self.fleet
        return Places(
            name=self.broker.name,
            lease_seconds=kept.lease_seconds,
            keep_sound_seconds=kept.keep_sound_seconds,
            keep_events_seconds=kept.keep_events_seconds,
            keep_passages_seconds=kept.keep_passages_seconds,
            most_sound_bytes=kept.sound_bytes,
            replicas=kept.replicas,
        )

    def array(self, name: str) -> ArrayOfFleet:
        for array in self.arrays:
            if array.name == name:
                return array
        raise NotFound(unknown_array(name, [array.name for array in self.arrays], where=f"{self.path}"))

    def model_of(self, array: ArrayOfFleet) -> Path | None:
        """The model that it begins with."""
        return array.model or self.fleet.model


def read_fleet(path: Path) -> Fleet:
    """The fleet in a file; all problems are told at once."""
    tables, text = read_tables(path, cure="give the file of the fleet, for example fleet.toml")
    tables = {key: {} for key in Fleet.model_fields if key != "arrays"} | tables
    fleet = checked(Fleet, tables, path.absolute().parent, text, str(path))
    fleet._path = path.absolute()
    return fleet
