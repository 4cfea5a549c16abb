"""Which files make up which recording."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from pipeline.core.errors import SourceError
from pipeline.core.events import SourceTrouble
from pipeline.sources._naming import AUDIO_SUFFIXES, Fields, compile_pattern, natural_key


@dataclass(frozen=True, slots=True)
class Piece:
    """Files that begin together: one with all sensors, or one per sensor, None where a sensor has none.

    Their paths are absolute: whoever reads them may work in another directory.
    """

    files: tuple[Path | None, ...]
    time: datetime | None = None

    @property
    def name(self) -> str:
        return next(path.name for path in self.files if path)


@dataclass(frozen=True, slots=True)
class Recording:
    """Pieces in the order of time; `sensors` names them if each has its own files."""

    name: str
    pieces: tuple[Piece, ...]
    sensors: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    """Recordings in order, and what was left out."""

    recordings: tuple[Recording, ...]
    troubles: tuple[SourceTrouble, ...] = ()


def find_recordings(path: str | Path | Sequence[str | Path], *, pattern: str | None = None) -> Listing:
    """Recordings in a file, a directory (not below it) or several of these.

    Without a pattern every file is a recording. A pattern is matched against file names: `{recording}` and `{sensor}`
    group them, `{time:%Y%m%d_%H%M%S}` (UTC) makes them pieces of one continuous recording. A recording that the
    pattern does not name has the name of its directory. Numbers in names are ordered by value.
    """
    places = [Path(place) for place in ([path] if isinstance(path, str | Path) else path)]
    files = [(number, file) for number, place in enumerate(places) for file in _sound_files(place)]
    if not files:
        raise SourceError("no path to a recording was given; name a file or a directory")
    groups = _Groups()
    template = compile_pattern(pattern) if pattern is not None else None
    for number, file in files:
        fields = template.read(file.name) if template else Fields(recording=file.stem)
        if fields is None:
            groups.refuse(file.name, f"does not fit the pattern {pattern!r}; rename or move it, or change the pattern")
        else:
            groups.add(number, file, fields)
    if not groups.pieces:
        raise SourceError(
            f"none of the {len(files)} files fits the pattern {pattern!r}, for example {files[0][1].name}; "
            "change the pattern"
        )
    return groups.listing()


@dataclass(slots=True)
class _Groups:
    """Files sorted into recordings, times and sensors."""

    pieces: dict[tuple[int, str], dict[datetime | None, dict[str | None, Path]]] = field(default_factory=dict)
    troubles: list[SourceTrouble] = field(default_factory=list)
    _homes: dict[str, tuple[int, Path]] = field(default_factory=dict)

    def refuse(self, where: str, message: str) -> None:
        self.troubles.append(SourceTrouble(where, message))

    def add(self, number: int, file: Path, fields: Fields) -> None:
        name = fields.recording or file.resolve().parent.name
        number, home = self._homes.setdefault(name, (number, file.parent))
        if home != file.parent:
            self.refuse(
                file.name, f"belongs to recording {name!r}, of which {home} holds files too; rename one of them"
            )
            return
        piece = self.pieces.setdefault((number, name), {}).setdefault(fields.time, {})
        other = piece.setdefault(fields.sensor, file)
        if other != file:
            self.refuse(file.name, f"is recording {name!r} like {other.name}; rename one of them")

    def listing(self) -> Listing:
        named = {sensor for times in self.pieces.values() for piece in times.values() for sensor in piece if sensor}
        sensors = tuple(sorted(named, key=natural_key))
        ordered = sorted(self.pieces, key=lambda key: (key[0], natural_key(key[1])))
        recordings = tuple(self._recording(key, sensors) for key in ordered)
        return Listing(recordings, tuple(self.troubles))

    def _recording(self, key: tuple[int, str], sensors: tuple[str, ...]) -> Recording:
        times = self.pieces[key]
        # Times are all given or all absent, as the pattern has it.
        ordered = sorted(times, key=lambda time: time.timestamp() if time else 0.0)
        pieces = tuple(self._piece(key[1], time, times[time], sensors) for time in ordered)
        return Recording(key[1], pieces, sensors or None)

    def _piece(
        self, name: str, time: datetime | None, files: dict[str | None, Path], sensors: tuple[str, ...]
    ) -> Piece:
        if not sensors:
            return Piece(tuple(path.absolute() for path in files.values()), time)
        own = (files.get(sensor) for sensor in sensors)
        piece = Piece(tuple(path and path.absolute() for path in own), time)
        missing = [sensor for sensor in sensors if sensor not in files]
        if missing:
            message = f"has no file of sensor {', '.join(missing)} beside {piece.name}; add it, or go on without"
            self.refuse(name, message)
        return piece


def _sound_files(place: Path) -> list[Path]:
    try:
        entries = list(place.iterdir())
    except NotADirectoryError:
        return [place]
    except OSError as error:
        raise SourceError(f"{place} cannot be read: {error.strerror}; check the path and its permissions") from error
    found = [
        entry
        for entry in entries
        if entry.suffix.lower() in AUDIO_SUFFIXES and not entry.name.startswith(".") and not entry.is_dir()
    ]
    if not found:
        raise SourceError(
            f"{place} holds no sound file such as .wav or .flac; give the directory that does, not one above it"
        )
    return sorted(found, key=lambda entry: natural_key(entry.name))
