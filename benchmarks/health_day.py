"""A day without a fault: what sensor health makes of wind, rain, day and night, and what it costs.

One stream of scenes of four minutes, each faded into the next. Somebody passes in the middle of every scene and is
audible for half a minute or so; for the rest of the time there is nobody. The weather follows the hour: wind rises
until the afternoon, there are spells of rain, crickets by night and birds by day (both above half the sample rate used
here), and the background wanders slowly. All that is new in every scene are the gusts. What is usual, and what the
peers know, is learned from fifteen scenes of the day before, one every 96 minutes.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from rich.progress import track

from benchmarks.health_peers import PEERS, HalfSpaces, Watch, features_of, onsets
from benchmarks.report import show
from benchmarks.sizes import size_of
from pipeline.core.choices import Choices
from pipeline.core.events import Block, Evidence, FaultOpened, Numbers, RecordingStarted, Samples
from pipeline.health.baseline import Baseline, learn_usual
from pipeline.health.measures import Measures
from pipeline.health.sequential_tests import poisson_interval
from pipeline.runtime.process_pool import LocalEngine
from pipeline.simulation import Site, draw_scene
from pipeline.simulation.microphones import converted
from pipeline.simulation.scene import drawn_label
from pipeline.simulation.weather import Weather
from pipeline.stages import Chain, Measure, PhysicalFaults, SensorStates

RATE_HZ, SENSORS = 2000, 4
SCENE_SECONDS, FADE_SECONDS, SCENES_PER_HOUR = 240, 0.1, 15
DAY = 24 * SCENES_PER_HOUR
COST_RATE_HZ, COST_SECONDS = 16_000, 60
_THE_DAY_BEFORE = 10_000


class Day:
    """The weather of every scene of a day; it wanders slowly around what the hour wants."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng([seed, 77])
        self._wind, self._background, self._tilt = (_wandering(rng, DAY) for _ in range(3))
        self._rain = np.zeros(DAY)
        for begin in rng.choice(np.arange(24), 3, replace=False) * SCENES_PER_HOUR:
            spell = rng.integers(SCENES_PER_HOUR, 2 * SCENES_PER_HOUR)
            swell = np.sin(np.linspace(0.15, np.pi - 0.15, spell))
            self._rain[begin : begin + spell] = (rng.uniform(10, 40) * swell)[: DAY - begin]

    def weather(self, scene: int) -> Weather:
        hour = scene / SCENES_PER_HOUR
        breeze = 1.2 + 2.3 * np.exp(-(((hour - 15) / 4) ** 2) / 2)  # m/s, most of it in the afternoon
        return Weather(
            wind_m_per_s=float(breeze * np.exp(0.35 * self._wind[scene])),
            background_db=float(33 + 3 * self._background[scene]),
            tilt=float(np.clip(1 + 0.15 * self._tilt[scene], 0.7, 1.3)),
            rain_drops_per_second=float(self._rain[scene]),
            night=not 6 <= hour < 20,
        )


def _wandering(rng: np.random.Generator, n: int) -> Numbers:
    """Of unit variance, with a memory of an hour and a half."""
    keep = np.exp(-1 / (1.5 * SCENES_PER_HOUR))
    walk = [float(rng.standard_normal())]
    for step in rng.standard_normal(n - 1):
        walk.append(float(keep * walk[-1] + np.sqrt(1 - keep**2) * step))
    return np.array(walk)


def site_of(seed: int) -> Site:
    return Site(seed=seed, rate_hz=RATE_HZ, duration_seconds=SCENE_SECONDS + FADE_SECONDS)


def played(seed: int, day: int, scenes: Sequence[int]) -> Iterator[Samples]:
    """The sound of scenes one after the other, each without its end, which is mixed into the next."""
    site, weather = site_of(seed), Day(seed + 100_000 * day)
    fade = round(FADE_SECONDS * RATE_HZ)
    rise = np.sin(np.linspace(0, np.pi / 2, fade))
    tail: Samples | None = None
    for scene in scenes:
        number = scene + _THE_DAY_BEFORE * (1 - day)
        sound = draw_scene(site, number, drawn_label(site, number), weather=weather.weather(scene)).recorded().samples
        begin = sound[:, :fade]
        if tail is not None:
            begin = converted((begin * rise + tail * rise[::-1]).astype(np.float64))
        tail = sound[:, -fade:]
        yield np.concatenate([begin, sound[:, fade:-fade]], axis=1)


@dataclass(frozen=True, slots=True, eq=False)
class Hour:
    """What was measured, and how many bytes the stage that measured it holds then."""

    seconds: list[Measures]
    state_bytes: int


def hour_of(hour: int, seed: int) -> Hour:
    """An hour of the stream, measured; the sound just before it is heard, too."""
    first = hour * SCENES_PER_HOUR
    scenes = range(max(first - 1, 0), first + SCENES_PER_HOUR)
    stage = Measure(RATE_HZ)
    stage.push(RecordingStarted("", RATE_HZ, tuple("1234")))
    seconds: list[Measures] = []
    for scene, sound in zip(scenes, played(seed, 1, scenes), strict=True):
        heard = sound[:, -RATE_HZ:] if scene < first else sound
        stop = (scene + 1) * SCENE_SECONDS * RATE_HZ
        facts = stage.push(Block(stop - heard.shape[1], heard, np.ones(SENSORS, np.bool_)))
        seconds += [fact for fact in facts if isinstance(fact, Measures) and scene >= first]
    return Hour(seconds, size_of(stage))


def day_before(seed: int) -> list[Measures]:
    """Fifteen scenes of it."""
    seconds: list[Measures] = []
    for scene in range(0, DAY, DAY // SCENES_PER_HOUR):
        stage = Measure(RATE_HZ)
        stage.push(RecordingStarted("", RATE_HZ, tuple("1234")))
        (sound,) = played(seed, 0, [scene])
        facts = stage.push(Block(0, sound, np.ones(SENSORS, np.bool_)))
        seconds += [fact for fact in facts if isinstance(fact, Measures)]
    return seconds


@dataclass(slots=True, eq=False)
class Watched:
    """A day as our stages and the peers saw it."""

    opened: list[FaultOpened]
    peer_onsets: dict[str, int]
    state_bytes: dict[int, int]
    """After so many hours."""


def watched(seed: int, *, hours: int, jobs: int) -> Watched:
    """All hours in their order, through one chain as one recording."""
    before = day_before(seed)
    features = features_of(before)
    well = np.ones(features.shape[:2], np.bool_)
    makers = PEERS | {"HalfSpaceTrees": partial(HalfSpaces, window_seconds=600, streaming=True)}
    peers = {name: Watch(make).fit(features, well) for name, make in makers.items()}
    chain = Chain(PhysicalFaults(learn_usual(before)), SensorStates(RATE_HZ))
    chain.push(RecordingStarted("", RATE_HZ, tuple("1234")))
    seen = Watched([], dict.fromkeys(peers, 0), {})
    for number, hour in track(_in_order(seed, hours, jobs), description="hours", total=hours):
        facts = [fact for second in hour.seconds for fact in chain.push(second)]
        seen.opened += [fact for fact in facts if isinstance(fact, FaultOpened)]
        seen.state_bytes[number + 1] = hour.state_bytes + size_of(chain)
        features = features_of(hour.seconds)
        for name, peer in peers.items():
            seen.peer_onsets[name] += int(onsets(peer.alarms(features)).sum())
    return seen


def _in_order(seed: int, hours: int, jobs: int) -> Iterator[tuple[int, Hour]]:
    waiting: dict[int, Hour] = {}
    turn = 0
    with LocalEngine(jobs) as engine:
        for number, hour in engine.finished(partial(hour_of, seed=seed), range(hours)):
            waiting[number] = hour
            while turn in waiting:
                yield turn, waiting.pop(turn)
                turn += 1


def show_day(seed: int, *, hours: int, jobs: int) -> dict[str, Any]:
    """Draw false alarms and costs; the figures."""
    seen = watched(seed, hours=hours, jobs=jobs)
    days = hours / 24
    counts = {"ours": len(seen.opened), **seen.peer_onsets}
    rows, per_day = [], {}
    for name, count in counts.items():
        low, high = (bound / days for bound in poisson_interval(count))
        rows.append([name, count, f"{count / days:.1f}", f"{low:.2f} to {high:.2f}"])
        per_day[name] = {"per_day": round(count / days, 3), "interval": [round(low, 3), round(high, 3)]}
    show(
        f"False alarms in {hours} h without a fault, four sensors at {RATE_HZ} Hz, one setting; configured: "
        f"{Choices().alarms_per_day:g} a day and array",
        ("", "alarms", "per day", "95 % interval (Poisson)"),
        rows,
    )
    _show_alarms(seed, seen.opened)
    cost = cost_ms_per_second(seed)
    bytes_ = {hour: seen.state_bytes[hour] for hour in (1, hours)}
    show(
        "Cost of measuring, inspection and health",
        ("", ""),
        [
            [f"ms per second of four sensors at {COST_RATE_HZ} Hz", f"{cost:.1f}"],
            *([f"bytes of state after {hour} h at {RATE_HZ} Hz", held] for hour, held in bytes_.items()),
        ],
    )
    figures: dict[str, Any] = {
        "false_alarms_per_day": per_day["ours"]["per_day"],
        "false_alarms_interval": per_day["ours"]["interval"],
        "false_alarms_by_cause": dict(Counter(str(one.cause) for one in seen.opened)),
        "false_alarms_of_peers": {name: per_day[name] for name in seen.peer_onsets},
        "hours": hours,
        "cost_ms_per_second": round(cost, 2),
    }
    return figures | {f"state_bytes_{hour}h": held for hour, held in bytes_.items()}


def _show_alarms(seed: int, opened: Sequence[FaultOpened]) -> None:
    """Every false alarm, with what led to it."""
    if not opened:
        return
    day = Day(seed + 100_000)
    rows: list[list[object]] = []
    for one in opened:
        seconds = one.sample / RATE_HZ
        weather = day.weather(min(int(seconds - 1) // SCENE_SECONDS, DAY - 1))
        clock = f"{int(seconds) // 3600:02d}:{int(seconds) // 60 % 60:02d}:{int(seconds) % 60:02d}"
        sky = f"wind {weather.wind_m_per_s:.1f} m/s, rain {weather.rain_drops_per_second:.0f}/s"
        rows.append([clock, int(seconds) % SCENE_SECONDS, one.sensor + 1, one.cause, _told(one.evidence), sky])
    show("False alarms", ("time", "s of scene", "sensor", "cause", "evidence", "weather"), rows)


def _told(evidence: Evidence) -> str:
    return ", ".join(f"{name} {value:.3g}" for name, value in evidence.items())


def cost_ms_per_second(seed: int) -> float:
    """Of all three stages on a passing walker, the best of three."""
    site = Site(seed=seed, rate_hz=COST_RATE_HZ, duration_seconds=COST_SECONDS)
    sound = draw_scene(site, 0, drawn_label(site, 0)).recorded().samples
    usual: Baseline | None = None
    taken = []
    for _ in range(4):
        chain = Chain(Measure(COST_RATE_HZ), PhysicalFaults(usual), SensorStates(COST_RATE_HZ))
        begin = time.perf_counter()
        facts = chain.push(RecordingStarted("", COST_RATE_HZ, tuple("1234")))
        facts += chain.push(Block(0, sound, np.ones(SENSORS, np.bool_)))
        taken.append(time.perf_counter() - begin)
        usual = learn_usual([fact for fact in facts if isinstance(fact, Measures)])
    return 1000 * min(taken[1:]) / COST_SECONDS
