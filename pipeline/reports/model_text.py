"""Models in words: what the gate says of one, and how two of them differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.model.metrics import Judged, likeliest
from pipeline.model.model import Model
from pipeline.retraining.registry import Registered


@dataclass(frozen=True, slots=True)
class Criterion:
    """What a challenger must keep to, and whether it does; None if there was nothing to be compared with."""

    title: str
    passed: bool | None
    told: str


@dataclass(frozen=True, slots=True)
class ModelDifference:
    """One thing of two models."""

    what: str
    values: tuple[str, str]

    @property
    def same(self) -> bool:
        return self.values[0] == self.values[1]


def rate(told: Mapping[str, float] | None) -> str:
    """In per cent, with its interval."""
    if told is None:
        return ""
    return f"{100 * told['value']:.1f} ({100 * told['low']:.1f} to {100 * told['high']:.1f})"


def verdict(found: Mapping[str, Any] | None) -> str:
    """Of the gate or the shadow run, in short."""
    if found is None:
        return ""
    return "passed" if found["passed"] else "; ".join(found["reasons"])


_COMPARISONS = {
    "compared": "Not worse than the champion on all passages",
    "compared_on_references": "Nor on those that came with the first model",
    "compared_on_new": "Nor on those that are new to the champion",
}


def criteria(facts: Mapping[str, Any]) -> list[Criterion]:
    """Each of the gate's, with its numbers; none for a model that never stood before it."""
    gate = facts.get("gate")
    if gate is None or "criteria" not in gate:
        return []
    return [*_alone(facts, gate), *_beside_the_champion(gate)]


def _alone(facts: Mapping[str, Any], gate: Mapping[str, Any]) -> Iterator[Criterion]:
    limits, found = gate["limits"], gate["criteria"]
    shares = ", ".join(f"sensor {s} {share:.0%}" for s, share in enumerate(facts["contamination"], start=1))
    told = f"did not deliver: {shares}; at most {limits['contamination']:.0%} each, unless the champion's was as bad"
    yield _criterion("Learned from sensors that delivered", found["sensors"], told)
    told = f"{facts['wrong_labels']:.0%} seem wrong, at most {limits['wrong_labels']:.0%}"
    yield _criterion("Labels that can be believed", found["labels"], told)
    chance = 100 / max(len(facts.get("classes", ())), 2)
    told = (
        f"score {rate(gate['score'])} %, where chance has {chance:.2g} %"
        if gate["score"]
        else "no passage was left out"
    )
    yield _criterion("Better than chance on passages it had not seen", found["chance"], told)


def _beside_the_champion(gate: Mapping[str, Any]) -> Iterator[Criterion]:
    limits, found = gate["limits"], gate["criteria"]
    if found.get("classes"):
        yield Criterion("Tells the same apart as the champion", False, "; ".join(found["classes"]))
        return
    for name, title in _COMPARISONS.items():
        compared = gate[name]
        if name not in found or (compared is None and not found[name]):
            yield Criterion(title, None, "there was nothing to compare it on")
            continue
        told = _compared(compared, limits, sternly=name == "compared") if compared else ""
        yield _criterion(title, found[name], told)


def _compared(compared: Mapping[str, Any], limits: Mapping[str, float], *, sternly: bool) -> str:
    worse, uncertain = (100 * limits[name] for name in ("worse", "uncertain"))
    most = f"; more than {worse:g} lower, or {uncertain:g} for all that is known, is too much"
    return (
        f"score {rate(compared['challenger'])} %, the champion {rate(compared['champion'])} %; difference "
        f"{rate(compared['difference'])} on {compared['passages']} passages, p = {compared['p_worse']:.3f}"
        f"{most if sternly else ''}"
    )


def _criterion(title: str, reasons: Sequence[str], told: str) -> Criterion:
    return Criterion(title, not reasons, ". ".join(filter(None, ("; ".join(reasons), told))))


def differences(entries: Sequence[Registered], models: Sequence[Model]) -> list[ModelDifference]:
    """Two models beside each other."""
    return [ModelDifference(what, (first, second)) for what, first, second in _differences(entries, models)]


def _differences(entries: Sequence[Registered], models: Sequence[Model]) -> Iterator[tuple[str, ...]]:
    yield "is", *(one.status for one in entries)
    yield "from", *(one.origin for one in entries)
    yield "learned", *(one.time[:16].replace("T", " ") for one in entries)
    yield "classes", *(", ".join(one.classes) for one in models)
    yield "passages", *(str(len(one.notes["recordings"])) for one in models)
    yield "segments", *(str(one.notes["segments"]) for one in models)
    yield "accuracy %", *(rate(one.notes["validation"].get("accuracy")) for one in models)
    yield "labels that seem wrong %", *(f"{100 * one.notes['wrong_labels']:.1f}" for one in models)
    for s in range(min(one.n_sensors for one in models)):
        yield f"sensor {s + 1} contamination %", *(f"{100 * one.notes['contamination'][s]:.1f}" for one in models)
        yield f"sensor {s + 1} accuracy %", *(_sensor_rate(one, s) for one in models)


def _sensor_rate(model: Model, sensor: int) -> str:
    sensors = model.notes["validation"].get("sensors")
    return rate(sensors[sensor]["accuracy"]) if sensors else ""


def learned_apart(entries: Sequence[Registered], models: Sequence[Model]) -> Iterator[str]:
    """What one has learned from and the other has not."""
    known = [{note["fingerprint"]: note["recording"] for note in one.notes["recordings"]} for one in models]
    for one, own, other in zip(entries, known, reversed(known), strict=True):
        only = sorted(own[key] for key in own.keys() - other.keys())
        more = f" and {len(only) - 10} more" if len(only) > 10 else ""
        yield (
            f"only {one.name} has learned from {len(only)} passages: {', '.join(only[:10])}{more}"
            if only
            else (f"{one.name} has learned from nothing that the other has not")
        )


def agreement(models: Sequence[Model]) -> Iterator[str]:
    """About the segments that both have learned from, as models without them decided."""
    first, second = (_left_out(one) for one in models)
    pairs = [(first[place], second[place]) for place in first if place in second]
    if not pairs:
        return
    same = sum(a.label == b.label for a, b in pairs) / len(pairs)
    yield f"left-out decisions about {len(pairs)} segments of both: {same:.1%} the same"
    for s in range(min(one.n_sensors for one in models)):
        odds = [(a.sensor_log_odds[s], b.sensor_log_odds[s]) for a, b in pairs]
        heard = [likeliest(x) == likeliest(y) for x, y in odds if x is not None and y is not None]
        if heard:
            yield f"sensor {s + 1} by itself: {sum(heard) / len(heard):.1%} of {len(heard)} the same"


def _left_out(model: Model) -> dict[tuple[str, int], Judged]:
    return {
        (note["fingerprint"], one.start_sample): one
        for note in model.notes["recordings"]
        for one in model.judged_without(note["fingerprint"], note["recording"])
    }
