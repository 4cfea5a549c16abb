"""What the daemon tells on standard error: one line a fact, for people, for machines or for systemd's journal."""

from __future__ import annotations

import json
import logging
import math
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeAlias

Format: TypeAlias = Callable[[logging.LogRecord], str]

_LOGGER = logging.getLogger("gemmed")
_PRIORITIES = {logging.DEBUG: 7, logging.INFO: 6, logging.WARNING: 4, logging.ERROR: 3}


class Log:
    """Facts with fields: `log.info("source opened", address=..., rate_hz=...)`."""

    def debug(self, message: str, /, **fields: object) -> None:
        self._tell(logging.DEBUG, message, fields)

    def info(self, message: str, /, **fields: object) -> None:
        self._tell(logging.INFO, message, fields)

    def warning(self, message: str, /, **fields: object) -> None:
        self._tell(logging.WARNING, message, fields)

    def error(self, message: str, /, **fields: object) -> None:
        self._tell(logging.ERROR, message, fields)

    def exception(self, message: str, /, **fields: object) -> None:
        """An error together with the traceback of the exception that is being handled."""
        self._tell(logging.ERROR, message, fields, exc_info=True)

    def _tell(self, level: int, message: str, fields: Mapping[str, object], *, exc_info: bool = False) -> None:
        # The message is an argument, so that a percent sign in it means nothing.
        _LOGGER.log(level, "%s", message, extra={"fields": fields}, exc_info=exc_info)


log = Log()


class _Lines(logging.Handler):
    """Writes lines to a file descriptor of its own; what cannot be written is counted, and told later."""

    def __init__(self, descriptor: int, format: Format) -> None:
        super().__init__()
        self._descriptor, self._format, self._lost = os.dup(descriptor), format, 0

    def emit(self, record: logging.LogRecord) -> None:
        # A daemon must not stop because nobody can hear it.
        try:
            if self._lost:
                self._write(_record(logging.WARNING, "lines of this log were lost", {"lines": self._lost}))
                self._lost = 0
            self._write(record)
        except Exception:
            self._lost += 1

    def close(self) -> None:
        os.close(self._descriptor)
        super().close()

    def _write(self, record: logging.LogRecord) -> None:
        line = f"{self._format(record)}\n".encode(errors="backslashreplace")
        while line:
            line = line[os.write(self._descriptor, line) :]


def start_logging(level: str, format: str, *, descriptor: int = 2) -> None:
    """From now on; called again, it replaces what it did before. Other packages are heard from warnings upward.

    `auto` is text on a terminal, text with priorities in systemd's journal, and JSON anywhere else.
    """
    root = logging.getLogger()
    for handler in [handler for handler in root.handlers if isinstance(handler, _Lines)]:
        root.removeHandler(handler)
        handler.close()
    _LOGGER.setLevel(level.upper())
    logging.captureWarnings(True)
    # Without a standard error its number may soon belong to another file.
    if descriptor != 2 or sys.__stderr__ is not None:
        root.addHandler(_Lines(descriptor, _chosen(format, descriptor)))


def _chosen(format: str, descriptor: int) -> Format:
    if format == "auto" and _is_journal(descriptor):
        return _for_journal
    if format == "text" or (format == "auto" and os.isatty(descriptor)):
        return _for_people
    return _for_machines


def _is_journal(descriptor: int) -> bool:
    """Whether systemd connected this descriptor; children inherit the variable also where it no longer holds."""
    stream = os.fstat(descriptor)
    return os.environ.get("JOURNAL_STREAM") == f"{stream.st_dev}:{stream.st_ino}"


def _for_people(record: logging.LogRecord) -> str:
    return f"{_time(record)} {record.levelname.lower():7} {_text(record)}"


def _for_journal(record: logging.LogRecord) -> str:
    return f"<{_PRIORITIES.get(record.levelno, 3)}>{_text(record)}"


def _for_machines(record: logging.LogRecord) -> str:
    told = {"time": _time(record), "level": record.levelname.lower(), "message": record.getMessage()}
    return json.dumps(told | {"fields": _plain(_fields(record))})


def _text(record: logging.LogRecord) -> str:
    fields = (f"{_one_line(name)}={_value(value)}" for name, value in _fields(record).items())
    return " ".join([_one_line(record.getMessage()), *fields])


def _value(value: object) -> str:
    """In quotes where its end would not be seen."""
    plain = _plain(value)
    if isinstance(plain, str) and plain.isprintable() and plain and not set(plain) & set(" \"'="):
        return plain
    return _one_line(json.dumps(plain, ensure_ascii=False))


def _one_line(text: str) -> str:
    """Line ends, and anything else a terminal or a reader of lines might obey, as escapes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _fields(record: logging.LogRecord) -> dict[str, object]:
    fields = dict(getattr(record, "fields", {}))
    if record.exc_info and record.exc_info[0] is not None:
        fields["traceback"] = "".join(traceback.format_exception(*record.exc_info)).rstrip()
    return fields


def _plain(value: object) -> Any:
    """As JSON has it; what it has not becomes text."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(one) for one in value]
    return f"{type(value).__name__}: {value}" if isinstance(value, BaseException) else str(value)


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _record(level: int, message: str, fields: Mapping[str, object]) -> logging.LogRecord:
    return _LOGGER.makeRecord(_LOGGER.name, level, "", 0, message, (), None, extra={"fields": fields})
