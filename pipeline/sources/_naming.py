"""Names of files: their natural order, and patterns that read recording, sensor and time from them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from string import Formatter

from pipeline.core.errors import SettingsError

AUDIO_SUFFIXES = frozenset(
    re.findall(
        r"\.\w+",
        ".aif .aifc .aiff .au .avr .bwf .caf .flac .htk .ircam .mat4 .mat5 .mp2 .mp3 .nist .oga .ogg .opus .paf .pvf "
        ".rf64 .sds .snd .svx .voc .w64 .wav .wave .wavex .wve .xi",
    )
)
_CURE = "write for example {recording}_mic{sensor}.wav or {time:%Y%m%d_%H%M%S}.wav"
# As long as possible and as short as possible: of a_b_1.wav the pattern {recording}_{sensor}.wav reads a_b and 1.
_FIELDS = {"recording": "(?P<recording>.+)", "sensor": "(?P<sensor>.+?)"}
_DIRECTIVES = {"Y": r"\d{4}", "j": r"\d{3}", "f": r"\d{1,6}", "%": "%"} | dict.fromkeys("ymdHMS", r"\d{2}")


@dataclass(frozen=True, slots=True)
class Fields:
    """What a file's name says; a pattern need not speak of everything."""

    recording: str | None = None
    sensor: str | None = None
    time: datetime | None = None


@dataclass(frozen=True, slots=True)
class NamePattern:
    """A template of file names with the fields {recording}, {sensor} and {time:...}, the last in UTC."""

    text: str
    expression: re.Pattern[str]
    time_format: str | None

    def read(self, name: str) -> Fields | None:
        """The fields of a name, or None if it does not fit."""
        match = self.expression.fullmatch(name)
        if match is None:
            return None
        found: dict[str, str] = match.groupdict()
        recording, sensor = found.get("recording"), found.get("sensor")
        if self.time_format is None:
            return Fields(recording, sensor)
        try:
            return Fields(recording, sensor, datetime.strptime(found["time"], self.time_format).replace(tzinfo=UTC))
        except ValueError:
            return None


def natural_key(name: str) -> tuple[list[str | int], str]:
    """Sorts numbers within names by value: r2 before r10."""
    # Splitting at a group puts the numbers at odd places, so text is never compared with a number.
    parts = re.split(r"([0-9]+)", name)
    return [int(part) if place % 2 else part.casefold() for place, part in enumerate(parts)], name


def compile_pattern(text: str) -> NamePattern:
    try:
        parts = list(Formatter().parse(text))
    except ValueError as error:
        raise _malformed(text, f"is malformed: {error}") from error
    if re.search(r"[*/\\]", text):
        raise _malformed(text, "has a wildcard or a path; it is matched against file names, field by field")
    expression, time_format, fields = "", None, []
    for literal, field, spec, conversion in parts:
        expression += re.escape(literal)
        if field is None:
            continue
        if conversion or field not in (*_FIELDS, "time") or (spec and field != "time"):
            raise _malformed(
                text, f"has the unknown field {{{field}}}; known are {{recording}}, {{sensor}}, {{time:...}}"
            )
        if field == "time":
            time_format = spec or ""
        expression += _FIELDS.get(field) or f"(?P<time>{_time_expression(text, time_format or '')})"
        fields.append(field)
        if fields.count(field) > 1:
            break
    _check_fields(text, fields)
    return NamePattern(text, re.compile(expression, re.DOTALL | re.ASCII), time_format)


def _check_fields(text: str, fields: list[str]) -> None:
    if not fields:
        raise _malformed(text, "has no field, so it would name a single file")
    if len(set(fields)) < len(fields):
        raise _malformed(text, f"has the field {{{fields[-1]}}} twice")


def _time_expression(text: str, time_format: str) -> str:
    parts = re.split(r"%(.?)", time_format, flags=re.DOTALL)
    literals, directives = parts[::2], parts[1::2]
    for directive in directives:
        if directive not in _DIRECTIVES:
            known = " ".join(f"%{letter}" for letter in _DIRECTIVES)
            raise _malformed(text, f"has the time directive %{directive}; known are {known}")
    if any(directives.count(letter) > 1 for letter in directives if letter != "%"):
        raise _malformed(text, f"has a time directive twice in {time_format!r}")
    given = set(directives)
    if not given & {"Y", "y"} or not (given >= {"m", "d"} or "j" in given):
        raise _malformed(text, f"has a time without year, month and day: {time_format!r}")
    pairs = zip(literals, [*(_DIRECTIVES[letter] for letter in directives), ""], strict=True)
    return "".join(re.escape(literal) + digits for literal, digits in pairs)


def _malformed(text: str, fault: str) -> SettingsError:
    return SettingsError(f"pattern {text!r} {fault}; {_CURE}")
