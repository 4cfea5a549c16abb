"""Whether a daemon does its work: the reasons against it, for `gemmed status`, `/readyz` and `/healthz`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from pipeline.daemon.delivery import SILENT_SECONDS

STALLED_SECONDS = 30.0
"""A daemon reports its status at least every 15 s, also while its source delivers nothing."""
SOUND_SECONDS = 30.0
"""Shorter pauses are left to the source, which reconnects by itself."""
START_SECONDS = 60.0
"""Models are loaded and the source is opened before the first sound can arrive."""
READY, STALLED, STOPPED, NOTHING_HEARD, NO_DECISIONS = 0, 3, 4, 5, 6
Status = Mapping[str, Any]


class ReadinessProblem(StrEnum):
    """Why a daemon is not ready, the most serious first."""

    STOPPED = "stopped"
    NO_STATUS = "no_status"
    STALLED = "stalled"
    NO_SOUND = "no_sound"
    NO_USABLE_SENSOR = "no_usable_sensor"
    JOURNAL_READ_ONLY = "journal_read_only"
    NO_MODEL = "no_model"


EXIT_CODES = {
    ReadinessProblem.STOPPED: STOPPED,
    ReadinessProblem.NO_STATUS: STALLED,
    ReadinessProblem.STALLED: STALLED,
    ReadinessProblem.NO_SOUND: NOTHING_HEARD,
    ReadinessProblem.NO_USABLE_SENSOR: NOTHING_HEARD,
    ReadinessProblem.JOURNAL_READ_ONLY: NO_DECISIONS,
    ReadinessProblem.NO_MODEL: NO_DECISIONS,
}


DECIDING = (ReadinessProblem.JOURNAL_READ_ONLY, ReadinessProblem.NO_MODEL)
"""What does not keep the daemon from hearing."""


@dataclass(frozen=True, slots=True)
class ReadinessReason:
    """A reason why a daemon is not ready, and its cure."""

    problem: ReadinessProblem
    what: str
    cure: str


def exit_code(reasons: Sequence[ReadinessReason]) -> int:
    """Return the exit code of the most serious reason; 0 if there is none."""
    return EXIT_CODES[min((one.problem for one in reasons), key=list(ReadinessProblem).index)] if reasons else READY


def reasons_not_healthy(status: Status | None, age_seconds: float | None) -> list[ReadinessReason]:
    """Return why no data passes through all stages of the daemon; empty if it does."""
    return list(_stopped(status, age_seconds))


def reasons_not_ready(status: Status | None, age_seconds: float | None) -> list[ReadinessReason]:
    """Return why no sound arrives, is decided about or is stored; empty if all of that works."""
    found = reasons_not_healthy(status, age_seconds)
    if status is None or any(one.problem is ReadinessProblem.STOPPED for one in found):
        return found
    return [*found, *reasons_not_heard(status), *_not_decided(status)]


def reasons_not_heard(status: Status) -> list[ReadinessReason]:
    """Return why the daemon cannot know whether somebody is there; empty if it can."""
    return list(_not_heard(status))


def _stopped(status: Status | None, age_seconds: float | None) -> Iterator[ReadinessReason]:
    if status is None or age_seconds is None:
        yield ReadinessReason(
            ReadinessProblem.NO_STATUS,
            "the daemon has not reported its status yet",
            "wait a minute after its start; if it stays so, read its log and restart it",
        )
    elif not status.get("running", True):
        yield ReadinessReason(
            ReadinessProblem.STOPPED, "the daemon does not run", "start it: gemmed run, or systemctl start gemmed"
        )
    elif age_seconds >= STALLED_SECONDS:
        yield ReadinessReason(
            ReadinessProblem.STALLED,
            f"the daemon has processed nothing for {age_seconds:.0f} s",
            "read its log, then restart it",
        )


def _not_heard(status: Status) -> Iterator[ReadinessReason]:
    # Files of a folder arrive when they arrive, and a status without these entries is of an older version.
    if status.get("source") == "folder" or not {"sound_time", "started", "time"} <= status.keys():
        return
    now, arrived = datetime.fromisoformat(status["time"]), status["sound_time"]
    if arrived is None:
        waited = (now - datetime.fromisoformat(status["started"])).total_seconds()
        if waited > START_SECONDS:
            yield _no_sound(status, f"no sound has arrived since the start {waited:.0f} s ago")
        return
    silent = (now - datetime.fromisoformat(arrived)).total_seconds()
    if silent > SOUND_SECONDS:
        yield _no_sound(status, f"no sound since {arrived[:10]} {arrived[11:19]} UTC, {silent:.0f} s ago")
    elif silent < SILENT_SECONDS and status.get("usable_sensors") == 0:
        yield ReadinessReason(
            ReadinessProblem.NO_USABLE_SENSOR,
            f"none of {len(status['sensors'])} sensors is usable: sound arrives, but all are bad, silent or off",
            "see the faults and cures of the sensors in gemmed status; remove masks (array.mask) set by mistake",
        )


def _no_sound(status: Status, what: str) -> ReadinessReason:
    return ReadinessReason(
        ReadinessProblem.NO_SOUND,
        what,
        f"check the source (source.kind = {status['source']!r}), its cable and power; gemmed check, with the daemon "
        "stopped, tries it",
    )


def _not_decided(status: Status) -> Iterator[ReadinessReason]:
    if status.get("journal_writable") is False:
        yield ReadinessReason(
            ReadinessProblem.JOURNAL_READ_ONLY,
            "the journal cannot be written",
            "free disk space, check the disk and the permissions of storage.directory",
        )
    if status.get("model_decides") is False:
        yield ReadinessReason(
            ReadinessProblem.NO_MODEL,
            "no model tells classes apart yet",
            "wait if the first one is being trained; otherwise label sound (gemmed label) or set training.model",
        )
