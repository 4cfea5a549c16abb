"""What the process that learns is told, in a file of JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pipeline.core.errors import SettingsError


class Job(BaseModel):
    """What may be chosen about learning; all of it has a default."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    run: str = ""
    """Under which the journal tells of it."""
    classes: Annotated[tuple[str, ...] | None, Field(strict=False, min_length=2)] = None
    """Those of the champion unless given."""
    segments: Annotated[int, Field(ge=40)] = 3000
    components: Annotated[int, Field(ge=1)] = 50
    folds: Annotated[int, Field(ge=2)] = 5
    seed: Annotated[int, Field(ge=0)] = 0
    worse: Annotated[float, Field(ge=0, le=1)] = 0.01
    contamination: Annotated[float, Field(gt=0, lt=1)] = 0.3
    passages: Annotated[int, Field(ge=3)] = 5
    """Of each class, before anything is learned."""
    unlabelled_seconds: Annotated[float, Field(gt=0)] = 600.0
    """From which to begin where there is no starter."""
    keep_models: Annotated[int, Field(ge=2)] = 10
    recordings: tuple[Path, ...] = Field(default=(), strict=False)
    """To begin with, together with `labels`."""
    labels: Annotated[Path | None, Field(strict=False)] = None
    simulated: dict[str, Any] | None = None
    """A site to begin with, as `pipeline.simulation.options.site_of` takes it."""

    @classmethod
    def read(cls, path: Path) -> Job:
        try:
            return cls.model_validate_json(path.read_bytes())
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            raise SettingsError(f"{path}: {place or 'the file'}: {first['msg']}; correct it") from error
        except OSError as error:
            raise SettingsError(f"{path} cannot be read: {error.strerror}; give a file in JSON") from error
