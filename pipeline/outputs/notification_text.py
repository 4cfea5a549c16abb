"""Title and text of notifications, as the bodies of events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pipeline.core.passages import NO_LABEL, PassageRow
from pipeline.outputs.notification_rules import Rules

Body = dict[str, Any]
_ALMOST_SURE = 0.99
_BAD = "bad"


@dataclass(frozen=True, slots=True)
class SensorFault:
    """A sensor that was bad, and the causes: its number from 1, or with its array, `2 of north`."""

    sensor: int | str
    causes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SummaryFacts:
    """What happened between two times: the start and label of every passage, and sensors with faults."""

    since: datetime
    until: datetime
    passages: Sequence[tuple[datetime, str]]
    faults: Sequence[SensorFault] | None
    """None: unknown."""
    not_notified: int
    """Passages of this time that the rules kept back."""


@dataclass(frozen=True, slots=True)
class Wording:
    """Composes notifications. `shown` names a label; `array` begins titles where several arrays are watched."""

    rules: Rules
    shown: Callable[[str], str]
    array: str | None = None

    def passage(self, row: PassageRow) -> Body:
        """Return the event that notifies of a passage."""
        assert row.start_time is not None
        assert row.end_time is not None
        name = self.name(row.label)
        return {
            "type": "notification",
            "about": "passage",
            "passage": row.passage,
            "label": row.label,
            "name": name,
            "probability": None if row.probability is None else round(row.probability, 6),
            "start_time": _utc(row.start_time),
            "end_time": _utc(row.end_time),
            "duration_seconds": round(row.duration_seconds, 3),
            "cadence_per_minute": row.cadence_per_minute,
            "sensors_used": list(row.sensors_used),
            "title": self._title(f"{name} at {self.rules.local(row.start_time):%H:%M}"),
            "text": self._passage_text(row, name),
        }

    def summary(self, facts: SummaryFacts) -> Body:
        """Return the event that sums up a day."""
        labels = Counter(label for _, label in facts.passages)
        total = sum(labels.values())
        return {
            "type": "notification",
            "about": "summary",
            "since": _utc(facts.since),
            "until": _utc(facts.until),
            "passages": total,
            "labels": dict(labels.most_common()),
            "not_notified": facts.not_notified,
            "faults": [{"sensor": one.sensor, "causes": list(one.causes)} for one in facts.faults or ()],
            "title": self._title(f"{_counted(total, 'passage')} since {self._day_and_time(facts.since)}"),
            "text": "\n".join(self._summary_lines(facts, labels)),
        }

    def test(self, now: datetime) -> Body:
        """Return a notification that says that it is a test."""
        return {
            "type": "notification",
            "about": "test",
            "title": self._title("Test notification"),
            "text": f"gemmed sent this test at {self._day_and_time(now)}. No action is needed.",
        }

    def name(self, label: str | None) -> str:
        """Return how a label is shown; a passage without one is somebody."""
        return "Somebody" if label in (None, NO_LABEL) else self.shown(label or "")

    def _title(self, title: str) -> str:
        return f"{self.array}: {title}" if self.array else title

    def _passage_text(self, row: PassageRow, name: str) -> str:
        assert row.start_time is not None
        assert row.end_time is not None
        start, end = self.rules.local(row.start_time), self.rules.local(row.end_time)
        known = name if row.probability is None else f"{name}, {_percent(row.probability)}"
        parts = [f"{start:%Y-%m-%d %H:%M:%S} to {end:%H:%M:%S}", known]
        if row.label is None and row.reason:
            parts[-1] = f"{name} ({row.reason})"
        if row.cadence_per_minute is not None:
            parts.append(f"{row.cadence_per_minute:.0f} steps per minute")
        if row.sensors_used:
            parts.append(f"{_plural('sensor', len(row.sensors_used))} {', '.join(map(str, row.sensors_used))}")
        return "; ".join(parts)

    def _summary_lines(self, facts: SummaryFacts, labels: Mapping[str, int]) -> list[str]:
        lines = [f"{self.name(label)}: {count}" for label, count in labels.items()]
        hours = Counter(self.rules.local(start).replace(minute=0, second=0, microsecond=0, fold=0)
                        for start, _ in sorted(facts.passages))  # fmt: skip
        lines += [f"{hour:%H}:00-{(hour.hour + 1) % 24:02d}:00: {count}" for hour, count in hours.items()]
        if not facts.passages:
            lines.append("Nobody passed.")
        if facts.not_notified:
            lines.append(f"{_counted(facts.not_notified, 'passage')} not notified one by one, by your rules.")
        lines += [f"Sensor {one.sensor}: {', '.join(map(_words, one.causes))}." for one in facts.faults or ()]
        if facts.faults is not None and not facts.faults:
            lines.append("No sensor had a fault.")
        return lines

    def _day_and_time(self, moment: datetime) -> str:
        return f"{self.rules.local(moment):%Y-%m-%d %H:%M}"


def concerns_people(event: Mapping[str, Any]) -> bool:
    """Return whether an event is worth a message: of the states of a sensor, only what begins or ends a bad one."""
    return event["type"] != "state_changed" or _BAD in (event["from"], event["to"])


def problem_text(event: Mapping[str, Any]) -> tuple[str, str]:
    """Return title and text of an event that tells an operator of a problem or a change; of a fleet with its array."""
    title, text = _problem_text(event)
    return (f"{event['array']}: {title}" if "array" in event else title), text


def _problem_text(event: Mapping[str, Any]) -> tuple[str, str]:
    kind = str(event["type"])
    if kind == "state_changed":
        causes = ", ".join(map(_words, event.get("causes", ()))) or "no fault"
        return f"Sensor {event['sensor']} is {event['to']}", " ".join(
            [f"{_sentence(causes)}.", *event.get("cures", ())]
        )
    title = _sentence(_words(kind))
    if sensors := event.get("sensors"):
        title += f": {_plural('sensor', len(sensors))} {', '.join(map(str, sensors))}"
    told = [str(event[key]) for key in ("target", "where", "model", "reason", "message", "why") if event.get(key)]
    return title, ": ".join(told) or title


def _utc(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _counted(number: int, noun: str) -> str:
    return f"{number or 'No'} {_plural(noun, number)}"


def _percent(share: float) -> str:
    """Never 100%, which no verdict is."""
    return ">99%" if share > _ALMOST_SURE else f"{share:.0%}"


def _plural(noun: str, number: int) -> str:
    return noun if number == 1 else f"{noun}s"


def _words(name: str) -> str:
    return name.replace("_", " ")


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
