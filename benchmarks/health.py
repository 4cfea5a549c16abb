"""Sensor health: which faults are found, how soon, what is found wrongly, and what it costs; against peers.

Run: python -m benchmarks.health [--quick] [--seed N] [--jobs N] [--data DIR]

1. Every fault of the simulator at every sensor, mild and severe, in several scenes of as many sites. What is usual at a
   site is learned from other recordings of it in which every sensor fails a tenth of the time.
2. A day of simulated sound without a fault, with wind, rain, day and night (health_day.py).
3. Real sensors, if their data are there (health_real.py).

A fault counts as found when it is announced, not since when it is said to last. Peers see the same measures of the same
seconds, and learn from those in which, by the truth, the sensor was well.
"""

from __future__ import annotations

import argparse
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import track

from benchmarks.health_day import show_day
from benchmarks.health_peers import PEERS, Watch, features_of, onsets
from benchmarks.health_real import show_real
from benchmarks.report import finish, show
from pipeline.core.events import Block, Evidence, FaultClosed, FaultOpened, Mask, RecordingStarted, Samples
from pipeline.core.sensor_state import Cause
from pipeline.health.baseline import Baseline, learn_usual
from pipeline.health.measures import Measures
from pipeline.model.metrics import Rate, rate
from pipeline.runtime.process_pool import LocalEngine
from pipeline.simulation import FAULTS, FaultEpisode, FaultPlan, Scene, SimulatedRecording, Site, draw_scene, record
from pipeline.simulation.scene import drawn_label
from pipeline.stages import Chain, Measure, PhysicalFaults, SensorStates

EXPECTED: dict[str, frozenset[Cause]] = {
    "dead": frozenset({Cause.FLAT, Cause.SILENT}),
    "flat": frozenset({Cause.FLAT, Cause.SILENT}),
    "stuck": frozenset({Cause.FLAT}),
    "loud_bursts": frozenset({Cause.HIGH_GAIN, Cause.CLIPPING}),
    "clipping": frozenset({Cause.CLIPPING, Cause.HIGH_GAIN}),
    "hum": frozenset({Cause.HUM_ONLY}),
    "dc_drift": frozenset({Cause.DC_OFFSET}),
    "gain_loss": frozenset({Cause.LOW_GAIN, Cause.SILENT}),
    "dropouts": frozenset({Cause.GAP}),
    "spikes": frozenset({Cause.SPIKES}),
    "polarity": frozenset({Cause.POLARITY}),
    "crosstalk": frozenset({Cause.CROSSTALK}),
    "swapped": frozenset({Cause.SWAPPED}),
    "stale": frozenset({Cause.STALE}),
    "clock_drift": frozenset({Cause.RATE_ERROR}),
    "wind_roar": frozenset({Cause.HIGH_GAIN}),
}
"""Which causes are right for which fault of the simulator."""

SENSORS, RATE_HZ = 4, 16_000
SECONDS, BEGINS, ENDS = 70, 25, 40
"""Of a recording and of the fault in it; the walker is in the middle of the array after half of the recording."""
FOUND_WITHIN, RECOVERED_WITHIN, GRACE = 10.0, 30.0, 5.0
SEVERITIES = (0.2, 0.9)
USUAL_RECORDINGS, USUAL_SECONDS, USUAL_SHARE = 12, 40, 0.1
NO_FAULT = "none"


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault that was opened, in seconds since the recording began."""

    sensor: int
    cause: Cause
    announced: float
    closed: float | None
    evidence: Evidence


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """One recording with one fault, or none, and all that was said of it."""

    scene: int
    fault: str
    severity: float
    afflicted: tuple[int, ...]
    findings: tuple[Finding, ...]
    peers: dict[str, Mask] = field(default_factory=dict)  # (seconds, sensors)

    def is_true(self, sensor: int, seconds: float) -> bool:
        """Whether it is right to alarm now."""
        return sensor in self.afflicted and BEGINS <= seconds <= ENDS + GRACE

    def delay(self, sensor: int, *, causes: Iterable[Cause]) -> float:
        """Seconds until one of the causes was announced while the fault lasted, else infinity."""
        times = [
            one.announced - BEGINS
            for one in self.findings
            if one.sensor == sensor and one.cause in causes and BEGINS <= one.announced <= ENDS
        ]
        return min(times, default=np.inf)

    def peer_delay(self, sensor: int, name: str) -> float:
        """The same, for whatever a peer alarms about."""
        on = np.flatnonzero(self.peers[name][BEGINS:ENDS, sensor])
        return float(on[0] + 1) if len(on) else np.inf

    def recovery(self, sensor: int) -> float:
        """Seconds after its end until nothing is the matter any more; infinity if something is until the end."""
        open_until = [
            np.inf if one.closed is None else one.closed - ENDS
            for one in self.findings
            if one.sensor == sensor and one.cause is not Cause.FLAPPING
        ]
        return max(open_until, default=0.0)


def episodes(scene: int, fault: str, sensor: int, severity: float) -> list[FaultEpisode]:
    """The fault at a sensor; whose plug is exchanged has a partner in misfortune."""
    partner, span = (sensor + 1) % SENSORS, (BEGINS * RATE_HZ, ENDS * RATE_HZ)
    seed = (scene, sensor, round(100 * severity))
    hit = [FaultEpisode(sensor, *span, fault, severity, partner, seed)]
    return [*hit, FaultEpisode(partner, *span, fault, severity, sensor, seed)] if fault == "swapped" else hit


def measured(samples: Samples, *, start_second: int = 0) -> list[Measures]:
    """Every second of sound."""
    chain = Chain(Measure(RATE_HZ))
    facts = chain.push(RecordingStarted("", RATE_HZ, tuple("1234")))
    facts += chain.push(Block(start_second * RATE_HZ, samples, np.ones(SENSORS, np.bool_)))
    return [fact for fact in facts if isinstance(fact, Measures)]


def findings(seconds: Sequence[Measures], usual: Baseline | None) -> tuple[Finding, ...]:
    """What inspection and health make of them."""
    chain = Chain(PhysicalFaults(usual), SensorStates(RATE_HZ))
    facts = chain.push(RecordingStarted("", RATE_HZ, tuple("1234")))
    facts += [fact for second in seconds for fact in chain.push(second)]
    closed = [fact for fact in facts if isinstance(fact, FaultClosed)]
    return tuple(_finding(fact, closed) for fact in facts if isinstance(fact, FaultOpened))


def _finding(opened: FaultOpened, closed: Sequence[FaultClosed]) -> Finding:
    ends = [
        one.sample
        for one in closed
        if (one.sensor, one.cause) == (opened.sensor, opened.cause) and one.sample >= opened.sample
    ]
    end = min(ends) / RATE_HZ if ends else None
    return Finding(opened.sensor, opened.cause, opened.sample / RATE_HZ, end, opened.evidence)


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """What was learned of a site before."""

    usual: Baseline | None
    watches: dict[str, Watch]


def known_of(seed: int) -> Known:
    """From recordings with faults; peers are told when sensors were well."""
    plan = FaultPlan(tuple(FAULTS), (USUAL_SHARE,) * SENSORS)
    site = Site(seed=seed, rate_hz=RATE_HZ, duration_seconds=USUAL_SECONDS, faults=plan)
    recordings = [record(site, 1000 + number) for number in range(USUAL_RECORDINGS)]
    seconds = [measured(one.samples) for one in recordings]
    together = [second for one in seconds for second in one]
    well = np.concatenate([seconds_well(one) for one in recordings])
    features = features_of(together)
    watches = {name: Watch(make).fit(features, well) for name, make in PEERS.items()}
    return Known(learn_usual(together), watches)


def seconds_well(recording: SimulatedRecording) -> Mask:
    """(seconds, sensors) without a fault."""
    well = np.ones((USUAL_SECONDS, SENSORS), np.bool_)
    for episode in recording.episodes:
        well[episode.start // RATE_HZ : -(-episode.stop // RATE_HZ), episode.sensor] = False
    return well


def cases_of(seed: int, kinds: Sequence[str]) -> list[Case]:
    """One scene of one site with every fault at every sensor."""
    known = known_of(seed)
    site = Site(seed=seed, rate_hz=RATE_HZ, duration_seconds=SECONDS)
    scene = draw_scene(site, 0, drawn_label(site, 0))
    clean = measured(scene.recorded().samples)
    nothing = Case(seed, NO_FAULT, 0.0, (), findings(clean, known.usual), _watched(clean, known))
    return [nothing, *_afflicted_cases(scene, clean, known, kinds)]


def _afflicted_cases(scene: Scene, clean: list[Measures], known: Known, kinds: Sequence[str]) -> Iterator[Case]:
    for fault in kinds:
        for sensor in range(SENSORS):
            for severity in SEVERITIES:
                hit = episodes(scene.site.seed, fault, sensor, severity)
                seconds = _measured_with(hit, scene, clean)
                afflicted = tuple(one.sensor for one in hit)
                found = findings(seconds, known.usual)
                yield Case(scene.site.seed, fault, severity, afflicted, found, _watched(seconds, known))


def _measured_with(hit: list[FaultEpisode], scene: Scene, clean: list[Measures]) -> list[Measures]:
    """Measures look back less than a second: before the fault, and a second after it, they are those of the scene."""
    first, last = BEGINS - 1, ENDS + 1
    samples = scene.recorded(hit).samples[:, first * RATE_HZ : last * RATE_HZ]
    return [*clean[:BEGINS], *measured(samples, start_second=first)[1:], *clean[last:]]


def _watched(seconds: Sequence[Measures], known: Known) -> dict[str, Mask]:
    features = features_of(seconds)
    return {name: watch.alarms(features) for name, watch in known.watches.items()}


OURS, OURS_ANY = "ours, right cause", "ours, any cause"
METHODS = (OURS_ANY, *PEERS)
ALL = "all"


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """What became of one fault at one sensor."""

    case: Case
    sensor: int
    delays: dict[str, float]
    """Seconds until found, by method."""

    @classmethod
    def of(cls, case: Case, sensor: int) -> Outcome:
        delays = {name: case.peer_delay(sensor, name) for name in case.peers}
        delays[OURS] = case.delay(sensor, causes=EXPECTED[case.fault])
        delays[OURS_ANY] = case.delay(sensor, causes=set(Cause) - {Cause.FLAPPING})
        return cls(case, sensor, delays)

    def found(self, method: str) -> bool:
        return self.delays[method] <= FOUND_WITHIN


def recall(outcomes: Sequence[Outcome], method: str = OURS) -> Rate:
    """Share found in time; scenes are the independent units."""
    told = rate([one.found(method) for one in outcomes], [str(one.case.scene) for one in outcomes])
    assert told is not None
    return told


def precision(cases: Sequence[Case], *, cause: Cause | None = None) -> Rate | None:
    """Share of faults opened that lie on an afflicted sensor while it is, or hardly longer."""
    opened = [(case, one) for case in cases for one in case.findings if cause in (None, one.cause)]
    return rate([case.is_true(one.sensor, one.announced) for case, one in opened], [str(c.scene) for c, _ in opened])


def peer_precision(cases: Sequence[Case], name: str) -> Rate | None:
    """The same of a peer's alarms."""
    begun = [
        (case, case.is_true(int(sensor), float(second + 1)))
        for case in cases
        for second, sensor in np.argwhere(onsets(case.peers[name]))
    ]
    return rate([true for _, true in begun], [str(case.scene) for case, _ in begun])


def show_matrix(cases: Sequence[Case]) -> dict[str, Any]:
    """Draw what was found, by fault and by cause; the figures."""
    outcomes = [Outcome.of(case, sensor) for case in cases for sensor in case.afflicted]
    n_scenes = len({case.scene for case in cases})
    what = f"{len(cases)} recordings of {n_scenes} scenes, one setting"
    _show_recall(outcomes, cases, what)
    _show_precision(cases, what)
    _show_misses(outcomes, cases)
    delays = np.array([one.delays[OURS] for one in outcomes])
    everything, right = recall(outcomes), precision(cases)
    figures: dict[str, Any] = {
        "recall": round(everything.value, 4),
        "recall_interval": [round(everything.low, 4), round(everything.high, 4)],
        "precision": None if right is None else round(right.value, 4),
        "precision_interval": None if right is None else [round(right.low, 4), round(right.high, 4)],
        "median_delay_seconds": float(np.median(delays[np.isfinite(delays)])),
        "worst_delay_seconds": float(delays[np.isfinite(delays)].max()),
        "recovered": round(float(np.mean([hit for _, hit in _recoveries(outcomes)])), 4),
        "recall_by_fault": {kind: round(recall(own).value, 4) for kind, own in _by_fault(outcomes).items()},
        "recall_any_cause": round(recall(outcomes, OURS_ANY).value, 4),
        "peers": {name: _peer_figures(outcomes, cases, name) for name in PEERS},
        "scenes": n_scenes,
        "recordings": len(cases),
        "settings_tried": 1,
    }
    return figures


def _peer_figures(outcomes: Sequence[Outcome], cases: Sequence[Case], name: str) -> dict[str, float | None]:
    right = peer_precision(cases, name)
    delays = [one.delays[name] for one in outcomes if np.isfinite(one.delays[name])]
    return {
        "recall": round(recall(outcomes, name).value, 4),
        "precision": None if right is None else round(right.value, 4),
        "median_delay_seconds": float(np.median(delays)) if delays else None,
    }


def _recoveries(outcomes: Sequence[Outcome]) -> list[tuple[float, bool]]:
    """Of what was found: after how many seconds nothing was the matter any more, and whether that is soon enough."""
    seconds = [one.case.recovery(one.sensor) for one in outcomes if np.isfinite(one.delays[OURS_ANY])]
    return [(one, one <= RECOVERED_WITHIN) for one in seconds]


def _by_fault(outcomes: Sequence[Outcome]) -> dict[str, list[Outcome]]:
    """And all of them together at the end."""
    kinds = {kind: [one for one in outcomes if one.case.fault == kind] for kind in FAULTS}
    return {kind: own for kind, own in kinds.items() if own} | {ALL: list(outcomes)}


def _show_recall(outcomes: Sequence[Outcome], cases: Sequence[Case], what: str) -> None:
    by_fault = _by_fault(outcomes)
    mild, severe = (f"severity {severity:g}" for severity in SEVERITIES)
    show(
        f"Faults of {ENDS - BEGINS} s, with the right cause within {FOUND_WITHIN:g} s, % (95 % intervals over scenes); "
        f"recovered within {RECOVERED_WITHIN:g} s of the end; wrong: opened elsewhere. {what}",
        ("fault", "n", "found", mild, severe, "delay, s", "worst", "recovered, %", "slowest, s", "wrong"),
        [_recall_row(kind, own, cases) for kind, own in by_fault.items()],
    )
    show(
        f"Any alarm on the right sensor within {FOUND_WITHIN:g} s, %. {what}",
        ("fault", *METHODS),
        [[kind, *(f"{100 * recall(own, one).value:.0f}" for one in METHODS)] for kind, own in by_fault.items()],
    )


def _recall_row(kind: str, own: Sequence[Outcome], cases: Sequence[Case]) -> list[object]:
    delays = np.array([one.delays[OURS] for one in own])
    delays = delays[np.isfinite(delays)]
    recoveries = _recoveries(own)
    by_severity = [recall([one for one in own if one.case.severity == severity]).value for severity in SEVERITIES]
    return [
        kind,
        len(own),
        str(recall(own)),
        *(f"{100 * value:.0f}" for value in by_severity),
        f"{np.median(delays):.1f}" if len(delays) else "-",
        f"{delays.max():.1f}" if len(delays) else "-",
        f"{100 * np.mean([hit for _, hit in recoveries]):.0f}" if recoveries else "-",
        f"{max(seconds for seconds, _ in recoveries):.0f}" if recoveries else "-",
        sum(
            not case.is_true(one.sensor, one.announced)
            for case in cases
            if kind in (ALL, case.fault)
            for one in case.findings
        ),
    ]


def _show_precision(cases: Sequence[Case], what: str) -> None:
    opened = Counter(one.cause for case in cases for one in case.findings)
    rows: list[list[object]] = []
    for cause, count in sorted(opened.items()):
        named = sum(
            case.is_true(one.sensor, one.announced) and cause in EXPECTED[case.fault]
            for case in cases
            for one in case.findings
            if one.cause is cause
        )
        rows.append([str(cause), count, str(precision(cases, cause=cause)), f"{100 * named / count:.1f}"])
    rows.append([ALL, sum(opened.values()), str(precision(cases)), ""])
    for name in PEERS:
        begun = sum(int(onsets(case.peers[name]).sum()) for case in cases)
        rows.append([name, begun, str(peer_precision(cases, name)), "-"])
    show(
        f"Of what was opened: on an afflicted sensor, at most {GRACE:g} s after the end, %. {what}",
        ("cause", "opened", "on an afflicted sensor", "and the right cause"),
        rows,
    )


def _show_misses(outcomes: Sequence[Outcome], cases: Sequence[Case]) -> None:
    """What to look at next."""
    missed = [
        [one.case.fault, one.case.scene, one.sensor + 1, one.case.severity, one.delays[OURS], _told(one)]
        for one in outcomes
        if not one.found(OURS)
    ]
    if missed:
        show("Missed", ("fault", "site", "sensor", "severity", "found after, s", "found instead"), missed)
    wrong = [
        [case.fault, case.scene, case.severity, _numbers(case.afflicted), one.sensor + 1, one.cause, one.announced,
         _evidence(one.evidence)]
        for case in cases
        for one in case.findings
        if not case.is_true(one.sensor, one.announced)
    ]  # fmt: skip
    if wrong:
        header = ("fault", "site", "severity", "at", "accused", "cause", "after, s", "evidence")
        show("Wrong findings", header, wrong)


def _told(outcome: Outcome) -> str:
    mine = [one for one in outcome.case.findings if one.sensor == outcome.sensor]
    return ", ".join(f"{one.cause} {one.announced - BEGINS:+.0f} s" for one in mine) or "nothing"


def _numbers(sensors: Iterable[int]) -> str:
    return "+".join(str(sensor + 1) for sensor in sensors) or "-"


def _evidence(evidence: Evidence) -> str:
    return ", ".join(f"{name} {value:.3g}" for name, value in evidence.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one scene and one hour: minutes instead of half an hour")
    parser.add_argument("--seed", type=int, default=0, help="of the sites, which nothing was tuned on for 0")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--scenes", type=int, help="of the matrix of faults; 8, or 1 with --quick")
    parser.add_argument("--hours", type=int, help="of sound without a fault; 24, or 1 with --quick")
    parser.add_argument("--faults", default=",".join(FAULTS), help="with commas; all by default")
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    parser.add_argument("--data", type=Path, default=beside, help="directory with multisensor/ in it")
    options = parser.parse_args()
    n_scenes = options.scenes if options.scenes is not None else (1 if options.quick else 8)
    hours = options.hours if options.hours is not None else (1 if options.quick else 24)
    first, day = 1000 * options.seed + 901, 1000 * options.seed + 501
    figures: dict[str, Any] = {}
    if n_scenes:
        work = partial(cases_of, kinds=options.faults.split(","))
        with LocalEngine(options.jobs) as engine:
            done = engine.finished(work, range(first, first + n_scenes))
            found = dict(track(done, description="scenes", total=n_scenes))
        figures |= show_matrix([case for seed in sorted(found) for case in found[seed]])
    if hours:
        figures |= show_day(day, hours=hours, jobs=options.jobs)
    figures |= show_real(options.data)
    finish(figures)


if __name__ == "__main__":
    main()
