"""Failing sensors: what one or two of them cost an array of four, which failures are noticed, and false alarms.

Run: python -m benchmarks.failures [--quick]

Every scene is simulated once and recorded by healthy sensors, then with each failure from beginning to end; two
sensors that replay one moment begin to do so after 6 s, for without a past nothing tells which pair is right.
Accuracy is that of the sign of the fused log-odds, without abstention; where no sensor is believed, the decision counts
as wrong. Losses are paired by scene, and their standard errors take recordings as the independent units.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.progress import track

from benchmarks.report import finish, show
from pipeline.core.choices import Choices
from pipeline.core.events import Block, Decision, Mask, Numbers, RecordingStarted, Samples, Views
from pipeline.core.framing import Grid
from pipeline.model.build import deciding, hearing_settings, listening
from pipeline.model.metrics import ALPHAS, rate
from pipeline.model.model import Model
from pipeline.simulation import (
    FAULTS,
    HUMAN,
    HUMAN_WITH_ANIMAL,
    FaultEpisode,
    FaultPlan,
    Scene,
    Site,
    draw_scene,
    record,
)
from pipeline.simulation.faults import afflict
from pipeline.simulation.microphones import converted
from pipeline.simulation.propagation import Floats
from pipeline.simulation.scene import drawn_label
from pipeline.stages import Chain
from pipeline.training.examples import Examples, RecordingNote, views_of
from pipeline.training.fit import learn

SENSORS = 4
GRID = Grid(rate_hz=16_000)
CLASSES = (HUMAN, HUMAN_WITH_ANIMAL)
SETTINGS = hearing_settings(GRID)
TRAINING_SHARE = 0.1
"""Of the time that every sensor fails, in the set with failures."""
TARGETS = {1: 2.0, 2: 5.0}
"""Points of accuracy that so many failing sensors may cost."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Which sensors fail; `faults` has one for each, or is empty where chance decides for every recording."""

    kind: str
    sensors: tuple[int, ...]
    faults: tuple[str, ...] = ()
    onset_seconds: float = 0.0
    """The sensors are healthy before; only segments after it count."""

    @property
    def first(self) -> int:
        """The first segment that counts."""
        return ceil(self.onset_seconds * GRID.rate_hz / GRID.stride)

    @property
    def places(self) -> str:
        return "+".join(str(s + 1) for s in self.sensors)

    def __str__(self) -> str:
        return f"{self.kind} {self.places}"


ONE = [Failure(fault, (sensor,), (fault,)) for fault in FAULTS for sensor in range(SENSORS)]
ONE_MOMENT = "stale + stale, one moment"
TWO = [
    Failure(kind, pair, faults, 6.0 if kind == ONE_MOMENT else 0.0)
    for kind, faults in {
        "any + any": (),
        "dead + stale": ("dead", "stale"),
        "stale + stale": ("stale", "stale"),
        ONE_MOMENT: ("stale", "stale"),
        "swapped with each other": ("swapped", "swapped"),
    }.items()
    for pair in combinations(range(SENSORS), 2)
]


def afflicted(scene: Scene, failure: Failure) -> Samples:
    """A scene recorded while sensors fail throughout, each as badly as chance wants it."""
    seed = (scene.site.seed, scene.number, *failure.sensors, *failure.kind.encode())
    rng = np.random.default_rng(seed)
    faults = failure.faults or tuple(rng.choice(list(FAULTS), len(failure.sensors)))
    start = round(failure.onset_seconds * GRID.rate_hz)
    episodes = []
    for sensor, fault in zip(failure.sensors, faults, strict=True):
        severity, partner = rng.random(), _partner(failure, sensor, rng)
        episodes.append(FaultEpisode(sensor, start, scene.site.length, str(fault), severity, partner, (*seed, sensor)))
    if failure.kind != "stale + stale":
        return scene.recorded(episodes).samples
    # The simulator knows one other moment for all sensors, and two sensors that replay it bear each other out.
    first = afflict(scene.sound, episodes[:1], lambda: scene.elsewhere, GRID.rate_hz)
    return converted(afflict(first, episodes[1:], lambda: yet_another(scene), GRID.rate_hz))


@lru_cache(maxsize=1)
def yet_another(scene: Scene) -> Floats:
    """Sound of a third moment."""
    number = scene.number + 500_000
    return draw_scene(scene.site, number, drawn_label(scene.site, number)).sound


def _partner(failure: Failure, sensor: int, rng: np.random.Generator) -> int:
    """A healthy sensor, but the other one of the two for plugs that were exchanged."""
    if failure.kind == "swapped with each other":
        return sum(failure.sensors) - sensor
    return int(rng.choice([s for s in range(SENSORS) if s not in failure.sensors]))


def heard(samples: Samples) -> list[Views]:
    """The first half of the whole chain, which all models share."""
    chain = Chain(*listening(GRID, SETTINGS))
    facts = chain.push(RecordingStarted("", GRID.rate_hz, tuple("1234")))
    facts += chain.push(Block(0, samples, np.ones(SENSORS, np.bool_)))
    return [fact for fact in (*facts, *chain.flush()) if isinstance(fact, Views)]


def trained(site: Site, n_recordings: int) -> Model:
    """A model of recordings of both classes in turn."""
    by_recording = [heard(record(site, n, label=CLASSES[n % 2]).samples) for n in range(n_recordings)]
    rows = [(n, fact) for n, facts in enumerate(by_recording) for fact in facts]
    numbers = np.array([n for n, _ in rows])
    examples = Examples(
        **views_of([fact for _, fact in rows]),
        recording=numbers,
        label=numbers % 2,
        recordings=tuple(RecordingNote(str(n), {}, 0, (0, 0), "") for n in range(n_recordings)),
        classes=CLASSES,
    )
    return learn(examples, GRID, SETTINGS, seed=0)


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a model makes of one recording, segment by segment."""

    right: Mask
    believed: Mask
    """Where there was a sensor to believe."""
    p_values: Numbers  # (segments, sensors)

    def since(self, first: int) -> Judgement:
        """From a segment on."""
        return Judgement(self.right[first:], self.believed[first:], self.p_values[first:])


def judged(model: Model, views: Sequence[Views], truth: int) -> Judgement:
    """The second half."""
    chain = Chain(*deciding(model, Choices(health=False)))
    decisions = [fact for one in views for fact in chain.push(one) if isinstance(fact, Decision)]
    log_odds = np.array([one.outcome.log_odds for one in decisions], np.float64)
    return Judgement(
        right=np.where(truth, log_odds > 0, log_odds < 0),
        believed=np.isfinite(log_odds),
        p_values=np.stack([one.verdicts.screened.p_values for one in decisions]),
    )


Judgements = dict[str, list[Judgement]]
"""By failure, one for each recording."""


def experiment(
    models: Mapping[str, Model], site: Site, n_recordings: int, failures: Sequence[Failure]
) -> dict[str, Judgements]:
    """All models judge the same recordings, first healthy and then with every failure."""
    found: dict[str, Judgements] = {name: {} for name in models}
    for number in track(range(n_recordings), description="recordings"):
        truth = number % 2
        scene = draw_scene(site, number, CLASSES[truth])
        for failure in (None, *failures):
            views = heard(afflicted(scene, failure) if failure else scene.recorded().samples)
            for name, model in models.items():
                found[name].setdefault(str(failure), []).append(judged(model, views, truth))
    return found


def share(hits: Sequence[NDArray[np.bool_]]) -> float:
    """In percent, of all segments together."""
    return 100 * float(np.mean(np.concatenate([one.ravel() for one in hits]))) if len(hits) else float("nan")


@dataclass(frozen=True, slots=True)
class Cost:
    """What failures of one kind cost, in percent and points, over all sensors or pairs that may have them."""

    kind: str
    loss: float
    error: float
    worst: tuple[float, float, str]
    """Loss, its error, and which sensors."""
    unbelieved: float
    refused: float
    false_alarms: float

    @classmethod
    def of(cls, kind: str, failures: Sequence[Failure], found: Judgements, alpha: float) -> Cost:
        losses = {one: lost(found, one) for one in failures}
        together = np.mean(list(losses.values()), axis=0)
        worst, per_recording = max(losses.items(), key=lambda item: float(item[1].mean()))
        runs = [(one, judgement.since(one.first)) for one in failures for judgement in found[str(one)]]
        well = {one: [s for s in range(SENSORS) if s not in one.sensors] for one in failures}
        return cls(
            kind=kind,
            loss=float(together.mean()),
            error=standard_error(together),
            worst=(float(per_recording.mean()), standard_error(per_recording), worst.places),
            unbelieved=share([~judgement.believed for _, judgement in runs]),
            refused=share([judgement.p_values[:, one.sensors] <= alpha for one, judgement in runs]),
            false_alarms=share([judgement.p_values[:, well[one]] <= alpha for one, judgement in runs]),
        )

    def row(self) -> list[object]:
        loss, error, where = self.worst
        return [
            self.kind,
            f"{self.loss:.1f} ({self.error:.1f})",
            f"{loss:.1f} ({error:.1f}) at {where}",
            *(f"{value:.1f}" for value in (self.unbelieved, self.refused, self.false_alarms)),
        ]

    def figures(self) -> dict[str, float]:
        values = {"lost": self.loss, "error": self.error, "lost_at_worst": self.worst[0]}
        values |= {"unbelieved": self.unbelieved, "refused": self.refused, "false_alarms": self.false_alarms}
        return {name: round(value, 2) for name, value in values.items()}


def lost(found: Judgements, failure: Failure) -> Numbers:
    """Points of accuracy, for every recording."""
    pairs = zip(found[str(None)], found[str(failure)], strict=True)
    first = failure.first
    return np.array([100 * (healthy.right[first:].mean() - failing.right[first:].mean()) for healthy, failing in pairs])


def standard_error(values: Numbers) -> float:
    return float(np.std(values, ddof=1) / np.sqrt(len(values)))


def costs(failures: Sequence[Failure], found: Judgements) -> list[Cost]:
    """By kind."""
    kinds = {kind: [one for one in failures if one.kind == kind] for kind in dict.fromkeys(f.kind for f in failures)}
    return [Cost.of(kind, own, found, Choices().alpha) for kind, own in kinds.items()]


def show_costs(found: Judgements, title: str) -> dict[str, Any]:
    """Draw what one and two failing sensors cost; the figures."""
    healthy = share([one.right for one in found[str(None)]])
    figures: dict[str, Any] = {"healthy_accuracy": round(healthy, 2)}
    header = ("failure", "points lost (error)", "worst sensors", "nobody believed", "refused", "false alarms")
    for n_failing, failures in ((1, ONE), (2, TWO)):
        target, told = TARGETS[n_failing], costs(failures, found)
        everything = [] if n_failing > 1 else [Cost.of("all", failures, found, Choices().alpha)]
        over = sum(float(lost(found, one).mean()) > target for one in failures)
        show(
            f"{title}: {n_failing} of {SENSORS} sensors fail (target: at most {target:g} points below the "
            f"{healthy:.1f} % of healthy ones; exceeded by {over} of {len(failures)}); percent of segments",
            header,
            [cost.row() for cost in (*told, *everything)],
        )
        figures[f"points_lost_with_{n_failing}_failing"] = {cost.kind: cost.figures() for cost in (*told, *everything)}
        figures[f"over_target_with_{n_failing}_failing"] = [over, len(failures)]
    return figures


def show_false_alarms(healthy: Mapping[str, Sequence[Judgement]], title: str) -> dict[str, Any]:
    """Draw how often the screens of several models refuse healthy sensors, each and all together."""
    rows, figures = [], {}
    for alpha in ALPHAS:
        alarms = {name: [one.p_values <= alpha for one in judgements] for name, judgements in healthy.items()}
        # A recording is one independent unit, however many models judge it.
        per_recording = [np.concatenate(one) for one in zip(*alarms.values(), strict=True)]
        hits = np.concatenate([one.ravel() for one in per_recording])
        names = np.repeat([str(n) for n in range(len(per_recording))], [one.size for one in per_recording])
        pooled = rate(hits, list(names))
        rows.append([f"{100 * alpha:g}", *(f"{share(own):.2f}" for own in alarms.values()), str(pooled)])
        figures[f"{alpha:g}"] = pooled.as_dict() if pooled else None
    show(f"{title}: false alarms on healthy sensors, percent", ("alpha", *healthy, "together (95 % interval)"), rows)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a small set and few recordings: minutes become seconds")
    parser.add_argument("--seed", type=int, default=0, help="of the test recordings and, from there, of all others")
    options = parser.parse_args()
    n_training, n_test, n_models = (20, 4, 1) if options.quick else (50, 40, 3)
    first = 1000 * options.seed
    plan = FaultPlan(tuple(FAULTS), (TRAINING_SHARE,) * SENSORS)
    sites = {f"clean {n + 1}": Site(seed=first + 1 + n) for n in range(n_models)}
    sites |= {"failing": Site(seed=first + 50, faults=plan)}
    models = {name: trained(site, n_training) for name, site in track(sites.items(), description="training")}
    test, main_ones = Site(seed=first + 100), ("clean 1", "failing")
    found = experiment({name: models[name] for name in main_ones}, test, n_test, [*ONE, *TWO])
    found |= experiment({name: models[name] for name in models if name not in main_ones}, test, n_test, [])
    titles = {
        "clean 1": "Trained on healthy sensors",
        "failing": f"Trained while each fails {TRAINING_SHARE:.0%} of the time",
    }
    figures = {name.split()[0]: show_costs(found[name], title) for name, title in titles.items()}
    healthy = {name: found[name][str(None)] for name in models}
    failing = {"failing": healthy.pop("failing")}
    figures["clean"]["false_alarms"] = show_false_alarms(healthy, titles["clean 1"])
    figures["failing"]["false_alarms"] = show_false_alarms(failing, titles["failing"])
    finish(figures)


if __name__ == "__main__":
    main()
