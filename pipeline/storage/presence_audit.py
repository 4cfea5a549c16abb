"""How many false passages a daemon can be expected to report: configured, guaranteed and estimated."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

from pipeline.core.passages import NO_LABEL
from pipeline.storage.journal import Journal
from pipeline.storage.passage_table import stored_passages
from pipeline.storage.recordings import latest_choices

_DAYS = 7


def presence_audit(journal: Journal) -> dict[str, Any]:
    """Return rates per day of false passages, ready for JSON; None where nothing is known.

    What is guaranteed follows from the background that the model was learned from; the estimate from how near the
    background of the last seven days came to the threshold at which passages start.
    """
    configured = latest_choices(journal).get("false_passages_per_day")
    champion = journal.rows("SELECT facts FROM models WHERE status = 'champion'")
    background = json.loads(champion[0]["facts"]).get("background") if champion else None
    return {
        "configured_per_day": configured,
        "background_hours": background["hours"] if background else None,
        "guaranteed_per_day": _guaranteed(background, configured) if background and configured else None,
        **_heard(journal),
    }


def _guaranteed(background: dict[str, Any], per_day: float) -> float | None:
    """One more than would have started in the background of training, at the lowest threshold that keeps the rate."""
    hours = background["hours"]
    kept = [n for n in background["starts"] if n <= per_day * hours / 24]
    return round(((kept or background["starts"][-1:])[0] + 1) * 24 / hours, 2) if hours else None


def _heard(journal: Journal) -> dict[str, Any]:
    """Return the rises of the background since the threshold changed last, and the rate that they imply."""
    from pipeline.learners.array_presence import THRESHOLDS, tail_rate

    since = (datetime.now(UTC) - timedelta(days=_DAYS)).isoformat()
    threshold, seconds, starts = None, 0.0, Counter[float]()
    for event in journal.events(types=["presence_audited"], newest_first=True):
        body = event.body
        if event.time < since or threshold not in (None, body["threshold"]):
            break
        threshold = body["threshold"]
        seconds += body["seconds"]
        # Both begin at the lowest of `THRESHOLDS`; an audit that a change of models cut may count fewer.
        starts.update(dict(zip(body["thresholds"], body["starts"], strict=False)))
    counts = [starts[one] for one in THRESHOLDS.tolist()]
    rate = None if threshold is None else tail_rate(counts, seconds / 3600, threshold)
    return {
        "threshold": threshold,
        "heard_hours": round(seconds / 3600, 2),
        "estimated_per_day": None if rate is None else [float(f"{one:.3g}") for one in rate],
    }


def audit_words(audit: dict[str, Any]) -> str:
    """Say the rates in one line."""
    if audit["configured_per_day"] is None:
        return "none yet"
    words = [f"{audit['configured_per_day']:g} a day configured"]
    if audit["guaranteed_per_day"] is not None:
        hours, most = audit["background_hours"], audit["guaranteed_per_day"]
        words.append(f"at most {most:g} guaranteed by {hours:.1f} h of background in training")
    elif not audit["background_hours"]:
        words.append("nothing guaranteed: the model was learned without background, label some nobody")
    if audit["estimated_per_day"] is not None:
        rate, low, high = audit["estimated_per_day"]
        words.append(f"{_rate(rate)} ({_rate(low)} to {_rate(high)}) estimated from {audit['heard_hours']:.1f} h heard")
    return "; ".join(words)


def _rate(per_day: float) -> str:
    """Write a rate in two digits, and a large one in full."""
    return f"{per_day:.2g}" if per_day < 10 else f"{per_day:.0f}"


def recent_passages(journal: Journal, run: str | None) -> dict[str, Any]:
    """Return how many passages of each label there were in the last 24 hours, and the last one."""
    rows = stored_passages(journal, since=datetime.now(UTC) - timedelta(hours=24), running=run)
    counts = Counter(row.label or NO_LABEL for row in rows)
    return {"last_24_h": dict(counts.most_common()), "last": rows[-1].as_dict() if rows else None}
