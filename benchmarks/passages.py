"""Passages: how well they are found, timed and classified, on simulated days and on streams of real sound.

Run: python -m benchmarks.passages [AUDIO_DIR] [--only day,real,...] [--side dev] [--hours 6] [--quick]

AUDIO_DIR holds folders of mono sound files and meta.csv with the columns path, class and source_id; the parts `real`,
`time`, `gain`, `cadence` and `unknown` need it. Streams are made of it: background that wanders, walkers with and
without hooves, distractors. Sources are divided into `train`, `dev` and `unseen`. Parts:

day      a model of one simulated site decides about a day at another one, with a failing sensor; peers
real     a model of some sources decides about others, by peak signal-to-noise ratio; peers
time     a model of the first half of every clip decides about the second one: a known site, later
noise    noises, silence and a tone through the whole chain
gain     the gain of all sensors rises or falls by 20 dB
rate     configured and realized rates of false passages at many sites, and what hours of background can guarantee
cadence  walks with known steps, and runners on a treadmill
unknown  distractors against walkers by the p-value of their sound among all classes
cost     processor time of presence and passages, and the latency of a block

The STA/LTA peer needs obspy: pip install 'gemmed[benchmarks]'. Without it that peer is left out.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from benchmarks._streams import SIDES, Sources, Stream
from benchmarks.passages_cadence import measure_cadence
from benchmarks.passages_day import measure_day, test_day, training_day
from benchmarks.passages_peers import Envelope
from benchmarks.passages_rate import measure_guarantee, measure_sites
from benchmarks.passages_run import Heard, Sound, Trained, say, train_on
from benchmarks.passages_score import Figures
from benchmarks.passages_streams import PER_DAY, heard_at_rates, measure_real, measure_time, measure_unknown
from benchmarks.passages_stress import measure_cost, measure_gain, measure_noise
from benchmarks.report import finish
from pipeline.model.model import Model

PARTS = ("day", "real", "time", "noise", "gain", "rate", "cadence", "unknown", "cost")
NEED_AUDIO = ("real", "time", "gain", "cadence", "unknown")
HEADLINES = (
    "found", "found_iou", "false_per_hour", "background_share", "class_right", "segments_right",
    "onset_error_seconds", "segment_auc",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much sound each part uses, in hours unless said otherwise."""

    day_training: float = 6.0
    day: float = 24.0
    real_training: float = 6.0
    real: float = 6.0
    time: float = 10.0
    noise_minutes: float = 10.0
    gain: float = 0.4
    gain_streams: int = 6
    sites: int = 12
    site: float = 2.0
    guarantee: tuple[float, ...] = (0.5, 1.0, 2.0)
    guarantee_trials: int = 12
    walks: int = 60
    cost_minutes: int = 20


QUICK = Sizes(
    day_training=1.0,
    day=1.5,
    real_training=1.5,
    real=0.75,
    time=1.0,
    noise_minutes=2.0,
    gain=0.3,
    gain_streams=1,
    sites=2,
    site=0.5,
    guarantee=(0.25, 0.5),
    guarantee_trials=3,
    walks=10,
    cost_minutes=3,
)


@dataclass(frozen=True, eq=False)
class Runs:
    """Streams, models and decisions that several parts share, each made when it is first asked for."""

    audio: Path | None
    side: str
    seed: int
    sizes: Sizes
    jobs: int
    folder: Path
    label_distractors: bool = True
    envelopes: dict[str, Envelope] = field(default_factory=dict)

    @property
    def training_side(self) -> str:
        """All that is not tested on, when it is the last look."""
        return "known" if self.side == "unseen" else "train"

    def stream(self, name: str, side: str, hours: float, seed: int, half: int | None = None, **options: Any) -> Sound:
        assert self.audio is not None
        return Sound.of_stream(name, Stream(Sources.of(self.audio, side, half), hours=hours, seed=seed, **options))

    @cached_property
    def real_trained(self) -> Trained:
        side, envelope = self.training_side, self.envelopes.setdefault("real training", Envelope())
        sound = self.stream(f"real training ({side})", side, self.sizes.real_training, self.seed)
        return self.trained_on(sound, "real", envelope)

    def trained_on(self, sound: Sound, name: str, listener: Envelope | None = None) -> Trained:
        return train_on(
            sound,
            self.folder / name,
            jobs=self.jobs,
            label_distractors=self.label_distractors,
            listener=listener,
        )

    @cached_property
    def real_sound(self) -> Sound:
        return self.stream(f"real ({self.side})", self.side, self.sizes.real, self.seed + 1)

    @cached_property
    def real_heard(self) -> Heard:
        envelope = self.envelopes.setdefault("real", Envelope())
        return heard_at_rates(self.real_trained, self.real_sound, envelope, keep_summary=True)

    @cached_property
    def day_trained(self) -> Trained:
        envelope = self.envelopes.setdefault("day training", Envelope())
        return self.trained_on(training_day(self.seed + 10, self.sizes.day_training), "day", envelope)

    @property
    def models(self) -> dict[str, Model]:
        """Return the models that are there, or the one that is made first."""
        made = {name: self.__dict__[f"{name}_trained"].model for name in ("real", "day") if self._is_made(name)}
        return made or {self._usual: getattr(self, f"{self._usual}_trained").model}

    def _is_made(self, name: str) -> bool:
        return f"{name}_trained" in self.__dict__

    @property
    def _usual(self) -> str:
        return "day" if self.audio is None else "real"

    @property
    def cautious_side(self) -> str:
        """Return the unseen sources when it is the last look; else all others."""
        return "unseen" if self.side == "unseen" else "known"

    def day(self) -> Figures:
        trained, envelope = self.day_trained, Envelope()
        sound = test_day(self.seed + 11, self.sizes.day)
        heard = heard_at_rates(trained, sound, envelope, keep_summary=True)
        return measure_day(trained, (self.envelopes["day training"], envelope), sound, heard)

    def noise(self) -> Figures:
        return measure_noise(self.models, self.sizes.noise_minutes, self.seed)

    def gain(self) -> Figures:
        seeds = range(self.seed + 40, self.seed + 40 + self.sizes.gain_streams)
        sounds = [self.stream(f"gain {seed}", self.side, self.sizes.gain, seed, peak_db=(5.0, 20.0)) for seed in seeds]
        return measure_gain(self.real_trained.model, sounds, PER_DAY)

    def rate(self) -> Figures:
        """Simulated sites by the model of a site; parts of the training stream."""
        first = self.seed + 50
        sites = measure_sites(self.day_trained, range(first, first + self.sizes.sites), self.sizes.site)
        trained = self.day_trained if self.audio is None else self.real_trained
        hours = self.sizes.guarantee
        return {
            "sites": sites,
            "guarantee": measure_guarantee(trained, hours, self.sizes.guarantee_trials, self.seed),
        }

    def cadence(self) -> Figures:
        assert self.audio is not None
        return measure_cadence(self.audio, self.cautious_side, self.sizes.walks, self.seed)

    def cost(self) -> Figures:
        minutes = self.sizes.cost_minutes
        sound = test_day(self.seed + 12, (minutes + 1) / 60)
        return measure_cost(next(iter(self.models.values())), sound, minutes)

    def real(self) -> Figures:
        heard = self.real_heard
        envelopes = self.envelopes["real training"], self.envelopes["real"]
        return measure_real(self.real_trained, envelopes, self.real_sound, heard)

    def time(self) -> Figures:
        """All clips when it is the last look; else those that are no secret."""
        side = "all" if self.side == "unseen" else "known"
        training = self.stream("first halves", side, self.sizes.time, self.seed + 2, half=0)
        trained = self.trained_on(training, "time")
        sound = self.stream("second halves", side, self.sizes.time, self.seed + 3, half=1)
        return measure_time(trained, sound, heard_at_rates(trained, sound, None, keep_summary=False))

    def unknown(self) -> Figures:
        return measure_unknown(self.real_sound, self.real_heard, self.real_trained.model.grid.segment_seconds)


def headline(figures: dict[str, Figures]) -> Figures:
    """Return the figures that are told at the top level: of real streams if there are any, else of the day."""
    told = figures.get("real") or figures.get("day")
    if told is None:
        return {}
    plain = {name: _plain(told.get(name)) for name in HEADLINES}
    plain["onset_error_seconds"] = (told["onset_error_seconds"] or {}).get("median")
    plain["segment_auc"] = told["segment_auc"].get("all")
    loudest = told["bands"].get("10 dB and more", {})
    return plain | {f"{name}_10_db": _plain(loudest.get(name)) for name in ("found", "found_iou")}


def _plain(value: Any) -> Any:
    return value.get("value") if isinstance(value, dict) else value


def _parts(text: str) -> tuple[str, ...]:
    chosen = tuple(text.split(","))
    unknown = [name for name in chosen if name not in PARTS]
    if unknown:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is no part; use some of {','.join(PARTS)}")
    return tuple(name for name in PARTS if name in chosen)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("audio", type=Path, nargs="?", metavar="AUDIO_DIR", help="directory with clips and meta.csv")
    parser.add_argument("--only", type=_parts, default=PARTS, metavar="PARTS", help="separated by commas; default: all")
    parser.add_argument("--side", choices=SIDES, default="dev", help="sources that are tested on (default: dev)")
    parser.add_argument("--hours", type=float, help="length of real streams, for training and test (default: 6)")
    parser.add_argument("--day-hours", type=float, help="length of the simulated day (default: 24)")
    parser.add_argument("--quick", action="store_true", help="short streams: some minutes instead of hours")
    parser.add_argument("--seed", type=int, default=100, help="first seed of streams and simulated sites")
    parser.add_argument(
        "--unlabeled-distractors",
        action="store_true",
        help="train without distractors (default: they are labeled nobody)",
    )
    parser.add_argument("--jobs", type=int, default=1, help="processes for training")
    options = parser.parse_args()
    if options.audio is not None and not (options.audio / "meta.csv").is_file():
        sys.exit(f"{options.audio}/meta.csv is not there; give the folder with the clips and their table")
    left_out = [name for name in options.only if options.audio is None and name in NEED_AUDIO]
    if left_out:
        say(f"without AUDIO_DIR the parts {', '.join(left_out)} are left out")
    with tempfile.TemporaryDirectory() as temporary:
        runs = Runs(
            options.audio,
            options.side,
            options.seed,
            _sizes(options),
            options.jobs,
            Path(temporary),
            label_distractors=not options.unlabeled_distractors,
        )
        figures = {name: getattr(runs, name)() for name in options.only if name not in left_out}
    finish(headline(figures) | {"side": options.side, "seed": options.seed} | figures)


def _sizes(options: argparse.Namespace) -> Sizes:
    sizes = QUICK if options.quick else Sizes()
    if options.hours is not None:
        sizes = replace(sizes, real_training=options.hours, real=options.hours)
    return sizes if options.day_hours is None else replace(sizes, day=options.day_hours)


if __name__ == "__main__":
    main()
