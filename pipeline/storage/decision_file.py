"""A file of decisions that an interrupted replay continues."""

from __future__ import annotations

import fcntl
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from pipeline.core.errors import UsageError
from pipeline.core.event_json import line
from pipeline.core.passages import PASSAGE_EVENTS

Event = dict[str, Any]
SHOWN = (*PASSAGE_EVENTS, "recording_started", "source_trouble")
"""Types of the events that the summary of a replay is made of, beside those that finish recordings."""


class DecisionFile:
    """First a header, then the events of one recording after the other, at last one that says how many there are.

    The events of a recording are written together. What a crash has cut off, the next start removes and does again.
    """

    def __init__(self, path: Path, header: Event, *, restart: bool = False) -> None:
        self.path, self.is_complete = path, False
        self.finished: dict[str, Event] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = _locked(path)
        try:
            if restart or _holds_no_decision(path):
                self._file.truncate(0)
                self._write(line(header))
            else:
                self._take_over(header)
        except BaseException:
            self.close()
            raise

    def _take_over(self, header: Event) -> None:
        """Keep what is whole; the header must be the same."""
        kept = 0
        with self.path.open("rb") as file:
            first = file.readline()
            _compare(self.path, first, header)
            kept = position = len(first)
            for text in file:
                position += len(text)
                event = parsed(text) if text.endswith(b"\n") else None
                if event is None:
                    break
                if event["type"] == "recording_finished":
                    self.finished[event["recording"]] = event
                    kept = position
                elif event["type"] == "replay_finished":
                    self.is_complete, kept = True, position
                    break
        if kept < self.path.stat().st_size:
            self._file.truncate(kept)

    def add(self, events: list[Event]) -> None:
        self._write("".join(map(line, events)))
        self.finished[events[-1]["recording"]] = events[-1]

    def complete(self) -> None:
        if not self.is_complete:
            self._write(line({"type": "replay_finished", **totals(list(self.finished.values()))}))
            self.is_complete = True

    def _write(self, text: str) -> None:
        try:
            self._file.write(text.encode())
            self._file.flush()
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self.path)) from error

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> DecisionFile:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class StandardOutput:
    """The same events to standard output; nothing is kept, so nothing can be continued."""

    def __init__(self, header: Event) -> None:
        self.finished: dict[str, Event] = {}
        self.shown: list[Event] = []
        """Events that the summary on the console needs again."""
        sys.stdout.write(line(header))

    def add(self, events: list[Event]) -> None:
        sys.stdout.writelines(map(line, events))
        sys.stdout.flush()
        self.shown += [event for event in events if event["type"] in SHOWN]
        self.finished[events[-1]["recording"]] = events[-1]

    def complete(self) -> None:
        sys.stdout.write(line({"type": "replay_finished", **totals(list(self.finished.values()))}))
        sys.stdout.flush()

    def __enter__(self) -> StandardOutput:
        return self

    def __exit__(self, *exc: object) -> None:
        pass


def totals(summaries: list[Event]) -> Event:
    return {
        "recordings": len(summaries),
        "unusable": sum(not one["samples"] for one in summaries),
        "troubles": sum(one["troubles"] for one in summaries),
        "decisions": sum(one["decisions"] for one in summaries),
        "abstained": sum(one["abstained"] for one in summaries),
        "degraded": sum(one["degraded"] for one in summaries),
        "passages": dict(sorted(sum((Counter(one.get("passages", {})) for one in summaries), Counter()).items())),
    }


def read_events(path: Path) -> Iterator[Event]:
    """All events of a file of decisions; a `UsageError` says what is wrong with anything else."""
    with opened(path) as file:
        for number, text in enumerate(file, start=1):
            event = parsed(text)
            if number > 1 and not text.endswith(b"\n"):
                raise UsageError(f"{path} is cut off in line {number}; run the same gemmed replay again to complete it")
            if event is None or (number == 1 and event["type"] != "replay_started"):
                raise UsageError(f"{path} line {number} is not an event of gemmed replay; give a file that it wrote")
            yield event


def _locked(path: Path) -> BinaryIO:
    """The file, to be appended to by nobody else: two replays into one would write everything twice."""
    file = path.open("ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        raise UsageError(f"another replay writes to {path}; wait for it, or give another --out") from error
    return file


def opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}; give a file that gemmed replay wrote") from error


def parsed(text: bytes) -> Event | None:
    """The event on a line; None if there is none."""
    try:
        event = json.loads(text)
    except ValueError:
        return None
    return event if isinstance(event, dict) and isinstance(event.get("type"), str) else None


def _holds_no_decision(path: Path) -> bool:
    """Whether it is a file of ours in which nothing was ever decided, so that nothing is lost with it."""
    with path.open("rb") as file:
        events = [parsed(text) for text in file]
    if not events:
        return True
    ours = events[0] is not None and events[0]["type"] == "replay_started"
    return ours and not any(event is not None and event["type"] == "decision" for event in events)


def _compare(path: Path, first: bytes, header: Event) -> None:
    found = parsed(first)
    if found is None or found["type"] != "replay_started":
        raise UsageError(f"{path} is not a file of decisions; give another --out")
    differences = [name for name, value in header.items() if found.get(name) != json.loads(json.dumps(value))]
    if differences:
        told = ", ".join(_difference(name, found.get(name), header[name]) for name in differences)
        raise UsageError(
            f"{path} holds decisions of another replay ({told}); give another --out, or add --restart to discard them"
        )


def _difference(name: str, there: object, here: object) -> str:
    if isinstance(here, list) and len(str(here)) > 40:
        return f"other {name}"
    return f"{name} {_short(there)} there, {_short(here)} here"


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:12]}..."
