"""How it is set."""

from __future__ import annotations

from inspect import getdoc
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, Field

from pipeline.config.schema import (
    TakesEffect,
    defaults_of,
    effective,
    takes_effect,
    without_secrets,
    written_as_toml,
)
from pipeline.web.dependencies import TheContext

router = APIRouter(prefix="/api/v1", tags=["settings"])


class Setting(BaseModel):
    """One value, with its unit, as one would write it in the file; none if it is not set."""

    key: str
    value: Any
    default: Any
    differs: bool = Field(description="Whether it is not what would count if the file did not say it.")
    takes_effect: TakesEffect = Field(description="When a change in the file is felt, once it was read again.")


class SettingsTable(BaseModel):
    """Settings that belong together."""

    name: str
    about: str
    settings: list[Setting]


class Effective(BaseModel):
    """Every setting as it counts now; secrets are left out."""

    file: str | None = Field(description="Where they are from; none if nothing but defaults counts.")
    pid: int | None = Field(description="Of the daemon, which reads the file again when it gets SIGHUP.")
    tables: list[SettingsTable]
    toml: str = Field(description="All of them as a file.")


@router.get("/settings")
def settings(context: TheContext) -> Effective:
    """What counts, whether the file says it or not."""
    chosen, status = context.settings, context.live.status
    written = without_secrets(effective(chosen))
    usual = without_secrets(effective(defaults_of(chosen)))
    return Effective(
        file=None if chosen.path is None else str(chosen.path),
        pid=status["pid"] if status else None,
        tables=[
            SettingsTable(
                name=name,
                about=getdoc(type(getattr(chosen, name))) or "",
                settings=[
                    Setting(
                        key=key,
                        value=value,
                        default=usual[name].get(key),
                        differs=value != usual[name].get(key),
                        takes_effect=takes_effect(f"{name}.{key}"),
                    )
                    for key, value in table.items()
                ],
            )
            for name, table in written.items()
        ],
        toml=written_as_toml(written),
    )
