"""A model: one immutable value with all that decides, and what it was learned from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.core.errors import ModelError, SettingsError
from pipeline.core.framing import Grid
from pipeline.health.baseline import Baseline
from pipeline.health.cross_sensor_checks import MOST_REFERENCES
from pipeline.health.measures import BANDS_HZ
from pipeline.learners.array_components import ArrayComponents
from pipeline.learners.array_fusion import CombinedFeatures, Expectation, WeightedVotes
from pipeline.learners.array_presence import ArrayPresence
from pipeline.learners.array_reference import ArrayReference
from pipeline.learners.array_screen import ArrayScreen
from pipeline.learners.kernel_classifier import (
    ArrayMachines,
    Discriminant,
    Kernel,
    Machine,
    PairwiseDiscriminants,
    class_pairs,
)
from pipeline.model.archive import read_archive, write_archive
from pipeline.model.metrics import Judged, against_first, known

Arrays = dict[str, NDArray[Any]]


class Refusal(IntEnum):
    """Why training did not learn from a sensor's segment."""

    NONE = 0
    ABSENT = 1
    LABEL = 2  # the label of the recording is doubted
    OTHERS = 3  # it does not fit what the other sensors heard
    OWN = 4  # it is far from all that the sensor delivers otherwise

    @property
    def told(self) -> str:
        return _TOLD[self]


_TOLD = {
    Refusal.NONE: "learned from",
    Refusal.ABSENT: "absent",
    Refusal.LABEL: "label doubted",
    Refusal.OTHERS: "does not fit the other sensors",
    Refusal.OWN: "unlike anything else of this sensor",
}


@dataclass(frozen=True, slots=True)
class TrainingMemory:
    """The training segments, in the order of the screen's reference, and how far each was believed."""

    recording: NDArray[np.int64]  # (segments,): place in the list of recordings
    start: NDArray[np.int64]  # (segments,): first sample
    label: NDArray[np.int64]  # (segments,): place among the classes, -1 for none
    delivered: NDArray[np.float64]  # (segments, sensors): posterior that the sensor delivered the scene
    label_right: NDArray[np.float64]  # (segments,): posterior that the label is right
    refusal: NDArray[np.int8]  # (segments, sensors)


@dataclass(frozen=True, slots=True)
class HeldOut:
    """What models that were trained without a recording made of its segments, in the order of the memory."""

    label: NDArray[np.int8]  # (segments,): place among the classes, -1 for none
    log_odds: NDArray[np.float64]  # (segments,): fused, of the second class; NaN where no sensor was believed
    sensor_log_odds: NDArray[np.float64]  # (segments, sensors)
    p_values: NDArray[np.float64]  # (segments, sensors)
    # With more than two classes log-odds have one more axis: each class against the first.

    @classmethod
    def of(cls, judged: Sequence[Judged], n_classes: int = 2) -> HeldOut:
        unknown = (np.nan,) * n_classes
        fused = np.array([one.log_odds or unknown for one in judged], np.float64)
        sensors = np.array([[own or unknown for own in one.sensor_log_odds] for one in judged], np.float64)
        return cls(
            np.array([-1 if one.label is None else one.label for one in judged], np.int8),
            np.ascontiguousarray(fused[..., 1]) if n_classes == 2 else fused,
            np.ascontiguousarray(sensors[..., 1]) if n_classes == 2 else sensors,
            np.array([one.p_values for one in judged], np.float64),
        )


@dataclass(frozen=True)
class Model:
    """From views to decisions. `settings` are those of `Mfcc` and `Viewing`; `notes` say where the model comes from."""

    grid: Grid
    settings: dict[str, Any]
    classes: tuple[str, ...]
    summary: ArrayComponents
    timing: ArrayComponents
    screen: ArrayScreen
    """Of the timing."""
    reference: ArrayReference
    """Of the summary."""
    typical: NDArray[np.float32]  # (classes, sensors, values): medians of the summary, NaN where nothing was learned
    machines: tuple[Machine | None, ...]
    votes: WeightedVotes
    combined: CombinedFeatures | None
    memory: TrainingMemory
    notes: dict[str, Any]
    held_out: HeldOut | None = None
    usual: Baseline | None = None
    presence: ArrayPresence | None = None
    """None if there was no background to learn from."""
    identity: str = ""

    @property
    def n_sensors(self) -> int:
        return len(self.summary.means)

    @property
    def name(self) -> str:
        """Short, and enough to tell models apart."""
        return self.identity[:12]

    @property
    def decides(self) -> bool:
        """Whether it has a classifier; without one it still says how far sensors can be believed."""
        return any(machine is not None for machine in self.machines)

    @cached_property
    def classifiers(self) -> ArrayMachines:
        """The machines of all sensors together."""
        return ArrayMachines(self.machines, len(self.classes))

    @cached_property
    def reference_windows(self) -> list[int]:
        """How many segments each sensor is compared with."""
        counts: list[int] = np.isfinite(self.screen.own).sum(axis=0).tolist()
        return counts

    @property
    def combined_features(self) -> CombinedFeatures:
        if self.combined is None:
            raise ModelError(
                "this model has no classifier for the features of all sensors side by side: training believed too few "
                "segments; fuse by votes"
            )
        return self.combined

    def knows(self, fingerprint: str) -> bool:
        """Whether a recording with this sound was trained on."""
        return fingerprint in self._places

    def judged_without(self, fingerprint: str, name: str) -> list[Judged]:
        """What models that were trained without a recording made of it; nothing if that was never tried."""
        if self.held_out is None or not self.knows(fingerprint):
            return []
        held, memory = self.held_out, self.memory
        return [
            Judged(
                recording=name,
                start_sample=int(memory.start[n]),
                truth=int(memory.label[n]),
                label=None if held.label[n] < 0 else int(held.label[n]),
                log_odds=against_first(held.log_odds[n]),
                sensor_log_odds=tuple(map(against_first, held.sensor_log_odds[n])),
                p_values=tuple(map(known, held.p_values[n])),
            )
            for n in np.flatnonzero(np.isin(memory.recording, self._places[fingerprint]))
        ]

    @cached_property
    def _places(self) -> dict[str, list[int]]:
        """Of recordings among those learned from, by their sound; a long one has several parts."""
        places: dict[str, list[int]] = {}
        for place, note in enumerate(self.notes["recordings"]):
            places.setdefault(note["fingerprint"].partition("@")[0], []).append(place)
        return places

    def save(self, directory: Path) -> Model:
        """Store in a new directory; the model with its identity."""
        metadata = {
            "grid": {name: getattr(self.grid, name) for name in _GRID},
            "hearing": self.settings,
            "classes": list(self.classes),
            "dependence": self.votes.dependence,
            "notes": self.notes,
        }
        parts = ("summary", "timing", "screen", "reference")
        arrays: Arrays = {}
        for name in parts:
            arrays |= _prefixed(name, getattr(self, name).as_arrays())
        arrays |= _prefixed("memory", {name: getattr(self.memory, name) for name in TrainingMemory.__slots__})
        if self.held_out is not None:
            arrays |= _prefixed("held_out", {name: getattr(self.held_out, name) for name in HeldOut.__slots__})
        if self.usual is not None:
            arrays |= _prefixed("usual", self.usual.as_arrays())
        if self.presence is not None:
            arrays |= _prefixed("presence", self.presence.as_arrays())
        arrays["typical"] = self.typical
        for s, machine in enumerate(self.machines):
            arrays |= _machine_arrays(f"machine{s + 1}", machine)
        if self.combined is not None:
            arrays |= _machine_arrays("combined", self.combined.discriminant)
            expectation = self.combined.expectation
            arrays |= _prefixed("expectation", {"maps": expectation.maps, "offsets": expectation.offsets})
        return replace(self, identity=write_archive(directory, metadata, arrays))

    @classmethod
    def load(cls, directory: Path) -> Model:
        """What `save` stored; a `ModelError` says what is wrong with anything else."""
        archive = read_archive(directory)
        metadata, arrays = archive.metadata, archive.arrays
        try:
            _check(metadata, arrays)
            n_sensors, n_classes = len(arrays["summary.means"]), len(metadata["classes"])
            return cls(
                grid=Grid(**metadata["grid"]),
                settings=metadata["hearing"],
                classes=tuple(metadata["classes"]),
                summary=ArrayComponents.from_arrays(_part("summary", arrays)),
                timing=ArrayComponents.from_arrays(_part("timing", arrays)),
                reference=ArrayReference.from_arrays(_part("reference", arrays)),
                typical=arrays["typical"],
                screen=ArrayScreen.from_arrays(
                    _part("screen", arrays), arrays["reference.distances"], arrays["reference.groups"]
                ),
                machines=tuple(_machine(f"machine{s + 1}", arrays, n_classes) for s in range(n_sensors)),
                votes=WeightedVotes(metadata["dependence"]),
                combined=_combined(arrays, n_classes),
                memory=TrainingMemory(**_part("memory", arrays)),
                notes=metadata["notes"],
                held_out=HeldOut(**held_out) if (held_out := _part("held_out", arrays)) else None,
                usual=Baseline.from_arrays(usual) if (usual := _part("usual", arrays)) else None,
                presence=ArrayPresence.from_arrays(found) if (found := _part("presence", arrays)) else None,
                identity=archive.identity,
            )
        except (KeyError, IndexError, TypeError, ValueError, AttributeError, SettingsError) as error:
            raise ModelError(f"{directory} lacks a part of a model ({error!r}); train it again") from error


_GRID = ("rate_hz", "frame_seconds", "hop_seconds", "window_seconds", "segment_seconds", "overlap")


_SHAPES = {
    "summary.means": "SV",
    "summary.scales": "V",
    "summary.limits": "V",
    "summary.axes": "SCV",
    "timing.means": "ST",
    "timing.scales": "T",
    "timing.limits": "T",
    "timing.axes": "SKT",
    "typical": "LSV",
    "reference.features": "SCN",
    "reference.distances": "NS",
    "reference.groups": "N",
    "screen.features": "SKN",
    "screen.residuals": "SSKN",
    "screen.maps": "SSKK",
    "screen.offsets": "SSK",
    "screen.own": "NS",
    "screen.ratios": "NSS",
    "memory.recording": "N",
    "memory.start": "N",
    "memory.label": "N",
    "memory.delivered": "NS",
    "memory.label_right": "N",
    "memory.refusal": "NS",
    "expectation.maps": "SSCC",
    "expectation.offsets": "SSC",
    "held_out.label": "N",
    "held_out.log_odds": "N",
    "held_out.sensor_log_odds": "NS",
    "held_out.p_values": "NS",
    "usual.floor_db": "SB",
    "usual.offset_db": "SB",
    "usual.arrival_seconds": "RS",
    "usual.radius_seconds": "1",
}
"""Classes (L), sensors, values and components of the summary (V, C) and of the timing (T, K), segments, bands, usual
sounds: each letter is one number throughout."""
_OPTIONAL = ("expectation.", "held_out.", "usual.")
_OF_CLASSES = ("held_out.log_odds", "held_out.sensor_log_odds")
"""They have one more axis where there are more than two classes."""


def _check(metadata: dict[str, Any], arrays: Arrays) -> None:
    """Arrays that fit each other: the compiled loops would read beyond their ends otherwise."""
    classes = metadata["classes"]
    names = {name for name in classes if isinstance(name, str)}
    _require(len(names) == len(classes) >= 2, f"classes {classes}")
    sizes = {"B": len(BANDS_HZ), "1": 1, "L": len(classes)}
    for name, letters in _SHAPES.items():
        letters += "L" if name in _OF_CLASSES and len(classes) > 2 else ""
        if name not in arrays and name.startswith(_OPTIONAL):
            continue
        _require(arrays[name].ndim == len(letters), f"{name} has {arrays[name].ndim} dimensions")
        for letter, size in zip(letters, arrays[name].shape, strict=True):
            _require(sizes.setdefault(letter, size) == size, f"{name} has the shape {arrays[name].shape}")
    owners = [f"machine{s + 1}" for s in range(sizes["S"])] + ["combined"]
    for prefix in [prefix for owner in owners for prefix in _prefixes(owner, len(classes))]:
        machine = _part(prefix, arrays)
        if machine:
            n, width = len(machine["coefficients"]), sizes["C"] * (sizes["S"] if prefix.startswith("combined") else 1)
            expected = {"basis": (n, width), "columns": (n,), "coefficients": (n,), "slopes": (2,), "scalars": (2,)}
            for name, shape in expected.items():
                _require(machine[name].shape == shape, f"{prefix}.{name} has the shape {machine[name].shape}")
                _require(bool(np.isfinite(machine[name]).all()), f"{prefix}.{name} is not finite")
    has_combined = f"{_prefixes('combined', len(classes))[0]}.basis" in arrays
    _require(has_combined == ("expectation.maps" in arrays), "expectation has no counterpart")
    _check_usual(_part("usual", arrays))
    shares = metadata["notes"]["contamination"]
    _require(len(shares) == sizes["S"] and all(0 <= float(one) <= 1 for one in shares), f"contamination {shares}")
    _require(all(array.dtype.kind in "fi" for array in arrays.values()), "an array holds no numbers")
    _require(0 <= float(metadata["dependence"]) <= 1, f"dependence {metadata['dependence']}")
    known = {note["fingerprint"] for note in metadata["notes"]["recordings"]}
    _require(len(known) > int(arrays["memory.recording"].max()), "recordings are missing")


def _check_usual(usual: Arrays) -> None:
    if not usual:
        return
    _require(bool(np.isfinite(usual["offset_db"]).all()), "usual.offset_db is not finite")
    _require(not np.isinf(usual["floor_db"]).any(), "usual.floor_db is infinite")
    _require(("arrival_seconds" in usual) == ("radius_seconds" in usual), "usual.radius_seconds has no counterpart")
    if "arrival_seconds" in usual:
        _require(len(usual["arrival_seconds"]) <= MOST_REFERENCES, "usual.arrival_seconds is too long")
        _require(not np.isinf(usual["arrival_seconds"]).any(), "usual.arrival_seconds is infinite")
        _require(0 <= float(usual["radius_seconds"][0]) < np.inf, "usual.radius_seconds is no distance")


def _require(held: bool, otherwise: str) -> None:
    if not held:
        raise ValueError(otherwise)


def _prefixed(prefix: str, arrays: Mapping[str, NDArray[Any]]) -> Arrays:
    return {f"{prefix}.{name}": array for name, array in arrays.items()}


def _part(prefix: str, arrays: Arrays) -> Arrays:
    return {name.partition(".")[2]: array for name, array in arrays.items() if name.startswith(f"{prefix}.")}


def _prefixes(owner: str, n_classes: int) -> list[str]:
    """Return the beginnings of the names of a classifier's arrays: `machine1`, or `machine1_0_2` for a pair of more."""
    return [owner] if n_classes == 2 else [f"{owner}_{i}_{j}" for i, j in class_pairs(n_classes)]


def _machine_arrays(owner: str, machine: Machine | None) -> Arrays:
    if machine is None:
        return {}
    if isinstance(machine, Discriminant):
        return _prefixed(owner, _discriminant_arrays(machine))
    arrays: Arrays = {}
    for prefix, one in zip(_prefixes(owner, machine.n_classes), machine.pairs, strict=True):
        arrays |= _prefixed(prefix, _discriminant_arrays(one))
    return arrays


def _discriminant_arrays(machine: Discriminant) -> Arrays:
    return {
        "basis": machine.basis,
        "columns": machine.columns,
        "coefficients": machine.coefficients,
        "slopes": machine.slopes,
        "scalars": np.array([machine.kernel.gamma, machine.offset]),
    }


def _combined(arrays: Arrays, n_classes: int) -> CombinedFeatures | None:
    machine = _machine("combined", arrays, n_classes)
    return None if machine is None else CombinedFeatures(machine, Expectation(**_part("expectation", arrays)))


def _machine(owner: str, arrays: Arrays, n_classes: int) -> Machine | None:
    found = [_discriminant(_part(prefix, arrays)) for prefix in _prefixes(owner, n_classes)]
    pairs = tuple(one for one in found if one is not None)
    if not pairs:
        return None
    _require(len(pairs) == len(found), f"{owner} lacks a pair of classes")
    return pairs[0] if n_classes == 2 else PairwiseDiscriminants(pairs, n_classes)


def _discriminant(arrays: Arrays) -> Discriminant | None:
    if not arrays:
        return None
    gamma, offset = (float(value) for value in arrays["scalars"])
    kernel = Kernel("rbf", gamma=gamma)
    return Discriminant(kernel, arrays["basis"], arrays["columns"], arrays["coefficients"], offset, arrays["slopes"])
