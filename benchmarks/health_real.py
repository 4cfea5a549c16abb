"""Real sensors: four motes with two events, four accelerometers up to the failure of a bearing.

p-values of geometric entropy minimisation are summed up (`Cusum`) until they suffice for an alarm; peers alarm when two
tests in a row are further out than all they learned from.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.health_peers import HalfSpaces, OutlierFactor, Peer, confirmed, onsets
from benchmarks.report import show
from pipeline.core.events import Mask, Numbers
from pipeline.health.sequential_tests import Cusum, combined, threshold
from pipeline.learners import GEMDetector

MOTES, BEARINGS = "wsn_singlehop_4motes/data.csv", "ims_bearing_features/ims_test2.npz"
READINGS_PER_TEST, LEARNED_READINGS, READING_SECONDS = 3, 1002, 5
BEFORE_READINGS, AFTER_READINGS = 12, 60
"""An alarm so shortly before the label begins, or so soon after, is no false one: steam gathers and goes slowly."""
PLACES = {"indoors": (1, 2), "outdoors": (3, 4)}
LEARNED_SNAPSHOTS, SNAPSHOT_MINUTES, SNAPSHOTS_PER_ALARM = 200, 10, 1000
N_BEARINGS, FAILING = 4, 1
OURS = "GEM + Cusum"


def show_real(data: Path) -> dict[str, Any]:
    """Draw what is found in the data that are there; the figures."""
    figures: dict[str, Any] = {}
    parts: dict[str, Callable[[Path], dict[str, Any]]] = {MOTES: show_motes, BEARINGS: show_bearings}
    for name, part in parts.items():
        path = data / "multisensor" / name
        if path.exists():
            figures |= part(path)
        else:
            print(f"{path} is not there: this part is left out; give its directory with --data")
    return figures


def cusum_alarms(p_values: Numbers, *, height: float) -> Mask:
    """Tests at which the alarm is on."""
    sums = Cusum(height)
    on = []
    for p_value in p_values.tolist():
        sums.take(p_value)
        on.append(sums.active)
    return np.array(on, np.bool_)


def peer_alarms(peer: Peer, learned: Numbers, rest: Numbers) -> Mask:
    peer.fit(learned)
    beyond = peer.unusual(rest) > peer.learned.max()
    return confirmed(beyond[:, None])[:, 0]


class SixSigma:
    """Feature 0 more than six standard deviations above its mean."""

    def fit(self, rows: Numbers) -> None:
        self._limit = rows[:, 0].mean() + 6 * rows[:, 0].std()
        self.learned: Numbers = np.zeros(1)

    def unusual(self, rows: Numbers) -> Numbers:
        return np.asarray(rows[:, 0] - self._limit)


@dataclass(frozen=True, slots=True, eq=False)
class Mote:
    """Humidity and temperature, and when something happened."""

    number: int
    readings: Numbers  # (readings, 2)
    event: Mask

    def tests(self) -> Numbers:
        """(tests, 4): how far the mean of three readings is from that of the three before, and their range."""
        n = len(self.readings) // READINGS_PER_TEST
        cut = self.readings[: n * READINGS_PER_TEST].reshape(n, READINGS_PER_TEST, 2)
        means = cut.mean(axis=1)
        change = np.diff(means, axis=0, prepend=means[:1])
        return np.concatenate([change, np.ptp(cut, axis=1)], axis=1)

    def event_tests(self) -> tuple[int, int] | None:
        """The first and the last test with an event in it, counted after what is learned from."""
        when = np.flatnonzero(self.event)
        if not len(when):
            return None
        return int(when[0]) // READINGS_PER_TEST - LEARNED_TESTS, int(when[-1]) // READINGS_PER_TEST - LEARNED_TESTS


LEARNED_TESTS = LEARNED_READINGS // READINGS_PER_TEST


def motes_of(path: Path) -> list[Mote]:
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    motes = []
    for number in sorted({int(row["mote_id"]) for row in rows}):
        own = sorted((row for row in rows if int(row["mote_id"]) == number), key=lambda row: int(row["reading"]))
        readings = np.array([[float(row["humidity"]), float(row["temperature"])] for row in own])
        motes.append(Mote(number, readings, np.array([row["label"] == "1" for row in own])))
    return motes


def show_motes(path: Path) -> dict[str, Any]:
    """Events found, how soon, and false alarms."""
    motes = motes_of(path)
    tests_per_day = 86_400 / (READINGS_PER_TEST * READING_SECONDS) * len(motes)
    height = threshold(tests_per_day=tests_per_day, alarms_per_day=1.0)
    p_values = {mote.number: _p_values(mote.tests(), LEARNED_TESTS) for mote in motes}
    on: dict[str, list[Mask]] = {
        OURS: [cusum_alarms(p_values[mote.number], height=height) for mote in motes],
        "LocalOutlierFactor": [_peer(OutlierFactor(), mote.tests(), LEARNED_TESTS) for mote in motes],
        "HalfSpaceTrees": [_peer(HalfSpaces(), mote.tests(), LEARNED_TESTS) for mote in motes],
    }
    hours = sum(len(p) for p in p_values.values()) * READINGS_PER_TEST * READING_SECONDS / 3600
    rows: list[list[object]] = []
    figures: dict[str, Any] = {}
    for name, alarms in on.items():
        delays, false = _judged(motes, alarms)
        found = [delay for delay in delays if delay is not None]
        rows.append([name, f"{len(found)} of {len(delays)}", ", ".join(map(str, delays)), false])
        figures[name] = {"events_found": len(found), "delays_readings": delays, "false_alarms": false}
    show(
        f"Four motes, two events, {hours:.1f} h of single motes; tests of {READINGS_PER_TEST} readings, one setting",
        ("", "events found", "delay, readings", "false alarms"),
        rows,
    )
    patterns = {place: _pattern(pair, p_values, height) for place, pair in PLACES.items()}
    show("Fault or event, mote by mote and both together", ("place", "told"), list(patterns.items()))
    return {"motes": figures, "motes_patterns": patterns}


def _p_values(tests: Numbers, n_learned: int) -> Numbers:
    spread = np.maximum(tests[:n_learned].std(axis=0), 1e-6)
    detector = GEMDetector().fit(tests[:n_learned] / spread)
    return np.asarray(detector.p_values(tests[n_learned:] / spread))


def _peer(peer: Peer, tests: Numbers, n_learned: int) -> Mask:
    spread = np.maximum(tests[:n_learned].std(axis=0), 1e-6)
    return peer_alarms(peer, tests[:n_learned] / spread, tests[n_learned:] / spread)


def _judged(motes: Sequence[Mote], alarms: Sequence[Mask]) -> tuple[list[int | None], int]:
    """Readings until each event is found, and how many alarms began without one."""
    delays: list[int | None] = []
    false = 0
    for mote, on in zip(motes, alarms, strict=True):
        begins = np.flatnonzero(onsets(on))
        event = mote.event_tests()
        if event is None:
            false += len(begins)
            continue
        first, last = event
        early, late = first - BEFORE_READINGS // READINGS_PER_TEST, last + AFTER_READINGS // READINGS_PER_TEST
        found = begins[(begins >= early) & (begins <= last)]
        delays.append(int(found[0] - first + 1) * READINGS_PER_TEST if len(found) else None)
        false += int(((begins < early) | (begins > late)).sum())
    return delays, false


def _pattern(pair: tuple[int, int], p_values: dict[int, Numbers], height: float) -> str:
    """Who alarms, and whether both together do: then nobody is blamed."""
    both = zip(*(p_values[number].tolist() for number in pair), strict=False)
    together = cusum_alarms(np.array([combined(list(p)) for p in both]), height=height)
    single = [number for number in pair if cusum_alarms(p_values[number], height=height).any()]
    alone = f"mote {', '.join(map(str, single))} alone" if single else "no mote alone"
    return f"{alone}; both together: {'an event' if together.any() else 'nothing'}"


def show_bearings(path: Path) -> dict[str, Any]:
    """When each bearing is first alarmed about, by each method."""
    with np.load(path, allow_pickle=False) as stored:
        raw = np.asarray(stored["raw"], np.float64)
    bearings = raw.reshape(len(raw), N_BEARINGS, -1).transpose(1, 0, 2)  # rms first
    height = threshold(tests_per_day=N_BEARINGS * SNAPSHOTS_PER_ALARM, alarms_per_day=1.0)
    on: dict[str, list[Mask]] = {
        OURS: [cusum_alarms(_p_values(one, LEARNED_SNAPSHOTS), height=height) for one in bearings],
        "LocalOutlierFactor": [_peer(OutlierFactor(), one, LEARNED_SNAPSHOTS) for one in bearings],
        "HalfSpaceTrees": [_peer(HalfSpaces(), one, LEARNED_SNAPSHOTS) for one in bearings],
        "rms above mean + 6 sigma": [_peer(SixSigma(), one, LEARNED_SNAPSHOTS) for one in bearings],
    }
    rows: list[list[object]] = []
    figures: dict[str, Any] = {}
    for name, alarms in on.items():
        firsts = [_first(one) for one in alarms]
        own = firsts[FAILING - 1]
        known = [first for first in firsts if first is not None]
        lead = None if own is None else len(raw) - own
        earlier = sum(
            int((np.flatnonzero(onsets(one)) + LEARNED_SNAPSHOTS < (own or len(raw))).sum())
            for number, one in enumerate(alarms, start=1)
            if number != FAILING
        )
        first = firsts.index(min(known)) + 1 if known else None
        days = "-" if lead is None else f"{lead * SNAPSHOT_MINUTES / 1440:.1f}"
        rows.append([name, *(one if one is not None else "-" for one in firsts), lead, days, first, earlier])
        figures[name] = {
            "first_alarms": firsts,
            "lead_snapshots": lead,
            "first_bearing": first,
            "others_before": earlier,
        }
    show(
        f"Bearings: bearing {FAILING} fails at the end of {len(raw)} snapshots, {SNAPSHOT_MINUTES} minutes apart; "
        f"first alarms after {LEARNED_SNAPSHOTS} learned from, one false one expected in "
        f"{SNAPSHOTS_PER_ALARM}; one setting",
        ("", "1", "2", "3", "4", "lead, snapshots", "days", "first", "alarms of others before"),
        rows,
    )
    return {"bearings": figures}


def _first(on: Mask) -> int | None:
    """Number of the snapshot at which the first alarm begins."""
    return int(np.argmax(on)) + LEARNED_SNAPSHOTS if on.any() else None
