"""Explanations: rhythm against click trains of known rate, effects of values against the stages of the pipeline."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pipeline.core.choices import Choices
from pipeline.core.errors import UsageError
from pipeline.core.events import Block, Cepstra, Role, Screened, Views
from pipeline.core.framing import Grid
from pipeline.core.segment_views import Summary
from pipeline.model.build import hearing_settings, listening
from pipeline.model.model import Model
from pipeline.reports.deciding_values import (
    LARGEST,
    fault_in_words,
    has_summary,
    in_words,
    known_in_words,
    reasons,
    sound_in_words,
)
from pipeline.reports.explanation import DecisionPlace, Explained, explain
from pipeline.reports.explanation_figure import write_explanation_figure
from pipeline.reports.rhythm import CLEAR, modulation, rhythm, rhythm_in_words
from pipeline.runtime.process_pool import ThisProcess
from pipeline.sources.files import find_recordings
from pipeline.stages import Chain, Classification, Projection
from pipeline.training.labels import read_labels
from pipeline.training.offline import TrainingOptions, train
from tests.arrays import ARRAY
from tests.conftest import component
from tests.forked import gemmed

GRID = Grid(rate_hz=8000)


def levels(samples: np.ndarray) -> np.ndarray:
    """The course of c0 over the frames of a segment."""
    *before, _, _ = listening(GRID, hearing_settings(GRID))
    (cepstra,) = Chain(*before).push(Block(0, samples.astype(np.float32), np.ones(len(samples), np.bool_)))
    assert isinstance(cepstra, Cepstra)
    return cepstra.values[:, :, 0]


def noise(rng: np.random.Generator, n_sensors: int, exponent: float = 0.0) -> np.ndarray:
    """Noise with a power density of frequency to the power of minus `exponent`."""
    frequencies = np.fft.rfftfreq(GRID.segment, 1 / GRID.rate_hz)
    frequencies[0] = frequencies[1]
    spectra = np.fft.rfft(rng.standard_normal((n_sensors, GRID.segment)))
    return 0.01 * np.fft.irfft(spectra * frequencies ** (-exponent / 2))


def clicks(rng: np.random.Generator, rate_hz: float, n_sensors: int) -> np.ndarray:
    """Short bursts at an exact rate from a random phase on, in noise, attenuated by 3 dB per sensor."""
    sound, times = np.zeros(GRID.segment), np.arange(GRID.segment) / GRID.rate_hz
    for start in np.arange(rng.uniform(0, 1 / rate_hz), GRID.segment_seconds, 1 / rate_hz):
        after = times >= start
        sound[after] += rng.standard_normal(after.sum()) * np.exp(-(times[after] - start) / 0.02)
    return sound * 10 ** (-3 * np.arange(n_sensors)[:, None] / 20) + noise(rng, n_sensors)


@pytest.mark.parametrize("n_sensors", [1, 4])
@pytest.mark.parametrize("rate_hz", [1.0, 1.3, 1.9, 2.4, 3.3, 4.5, 5.6])
def test_the_rate_of_a_click_train_is_found(rate_hz, n_sensors):
    for seed in range(5):
        found = rhythm(levels(clicks(np.random.default_rng(seed), rate_hz, n_sensors)), GRID.hop_seconds)
        assert found is not None
        assert found.is_clear
        assert found.rate_hz == pytest.approx(rate_hz, rel=0.03)
        assert rhythm_in_words(found).startswith(f"steps at {found.rate_hz:.1f} per second")


@pytest.mark.parametrize("n_sensors", [1, 4])
@pytest.mark.parametrize("exponent", [0.0, 1.0, 2.0])
def test_noise_has_no_rhythm(exponent, n_sensors):
    rng = np.random.default_rng(3)
    found = [rhythm(levels(noise(rng, n_sensors, exponent)), GRID.hop_seconds) for _ in range(40)]
    assert not any(one is not None and one.is_clear for one in found)
    assert all("no clear rhythm" in rhythm_in_words(one) for one in found)


def test_an_approach_is_no_rhythm():
    """A level that rises steadily by 20 dB."""
    rise = 10 ** np.linspace(-1, 0, GRID.segment)
    found = rhythm(levels(noise(np.random.default_rng(1), 2) * rise), GRID.hop_seconds)
    assert found is None or found.strength < CLEAR


@pytest.mark.parametrize(
    "nothing", [np.zeros((0, 196)), np.zeros((2, 196)), np.full((1, 196), np.nan), np.zeros((2, 1))]
)
def test_silence_and_absence_have_no_rhythm(nothing):
    assert rhythm(nothing, 0.01) is None
    assert rhythm_in_words(None) == "no clear rhythm"


def test_the_amplitude_of_a_modulation_is_that_of_the_level():
    """A level that swings by 6 dB to either side, 3 times per second."""
    course = 6 * np.sin(2 * np.pi * 3 * np.arange(196) * 0.01)[None]
    frequencies, amplitudes = modulation(course, 0.01)
    assert frequencies[np.argmax(amplitudes[0])] == pytest.approx(3, abs=0.1)
    assert amplitudes.max() == pytest.approx(6, rel=0.02)


@pytest.fixture(scope="module")
def learned(model) -> Model:
    return Model.load(model)


@pytest.fixture(scope="module")
def explained(learned, unseen) -> Explained:
    return explain(DecisionPlace.of("r002@2"), find_recordings([unseen]), learned, Choices(), resample=False)


def log_odds_of(model: Model, views: Views) -> np.ndarray:
    """By the stages that decide."""
    (features,) = Projection(model.summary, model.timing).push(views)
    nothing = np.full(model.n_sensors, np.nan)
    screened = Screened(features, nothing, nothing, nothing, nothing, np.zeros(model.n_sensors, np.bool_))
    return Classification(model.classifiers).push(screened)[0].log_odds[:, 1]


def test_views_made_again_from_the_sound_decide_alike(learned, explained):
    expected = explained.decision.verdicts.log_odds[:, 1]
    assert log_odds_of(learned, explained.views) == pytest.approx(expected, abs=1e-6, nan_ok=True)


def test_the_effect_of_a_value_is_that_of_leaving_it_out(learned, explained):
    """Each value, and each group, replaced in the views and decided about by the stages of the pipeline."""
    views, parts = explained.views, Summary(learned.grid, learned.settings["n_coefficients"]).parts
    before = log_odds_of(learned, views)

    def effect(sensor: int, places: list[int]) -> float:
        summary = views.summary.copy()
        summary[sensor, places] = learned.summary.means[sensor, places]
        return before[sensor] - log_odds_of(learned, replace(views, summary=summary))[sensor]

    for s in range(learned.n_sensors):
        found = explained.reasons(s)
        effects = {in_words(part): effect(s, [place]) for place, part in enumerate(parts)}
        assert [one.log_odds for one in found.values] == pytest.approx(
            sorted(effects.values(), key=abs, reverse=True)[: len(found.values)], abs=1e-3
        )
        assert 0 < len(found.values) <= LARGEST
        for one in found.values:
            assert one.log_odds == pytest.approx(effects[one.name], abs=1e-3)
            assert one.supports == learned.classes[one.log_odds > 0]
        slow = [place for place, part in enumerate(parts) if part.band_hz == (1.0, 3.0)]
        assert found.groups["modulation at 1 to 3 Hz (rhythm)"] == pytest.approx(effect(s, slow), abs=1e-3)
        assert found.neutral == pytest.approx(before[s] - effect(s, list(range(len(parts)))), abs=1e-3)


def test_values_have_units_and_what_is_typical_of_either_class(learned, explained):
    names = [in_words(part) for part in Summary(learned.grid, learned.settings["n_coefficients"]).parts]
    assert len(set(names)) == len(names) == learned.typical.shape[2]
    assert names[1] == "mean of c1 (spectral tilt)"
    assert "modulation of c0 at 1 to 3 Hz (loudness rhythm)" in names
    every = reasons(learned, explained.views.summary[0], 0, len(names))
    for one in every.values:
        place = names.index(one.name)
        assert one.unit == ("ln dB²" if "modulation" in one.name else "dB")
        # c0 is shown as the mean level of the mel bands.
        factor = learned.settings["n_mels"] ** -0.5 if one.name.startswith(("mean of c0", "deviation of c0")) else 1.0
        assert one.value == pytest.approx(factor * explained.views.summary[0, place])
        assert one.typical == pytest.approx(factor * learned.typical[:, 0, place])


def test_a_sensor_without_a_classifier_has_no_values(learned, explained):
    deaf = replace(learned, machines=(None, *learned.machines[1:]))
    assert reasons(deaf, explained.views.summary[0], 0) is None


def test_p_values_are_put_in_words():
    assert fault_in_words(0.43, 0.01) == "no sensor fault (p 0.43)"
    assert fault_in_words(0.0021, 0.01) == "sensor fault (p 0.0021)"
    assert known_in_words(0.43, 0.01) == "fits the classes (p 0.43)"
    assert known_in_words(0.002, 0.01) == "unlike every class (p 0.002)"
    assert fault_in_words(np.nan, 0.01) is known_in_words(np.nan, 0.01) is None
    assert sound_in_words([0.5, 0.2, np.nan], 0.01) == "fits the classes"
    assert sound_in_words([0.5, 0.002, np.nan], 0.01) == "unlike every class at 1 of 2 sensors"
    assert sound_in_words([0.001, 0.002], 0.01).endswith("at 2 of 2 sensors; do not rely on the label")
    assert sound_in_words([], 0.01) == "no p-value"


def test_the_words_are_those_of_the_event(explained):
    """Of the p-values that are stored with a decision."""
    event, alpha = explained.event, explained.choices.alpha
    for s, p_known in enumerate(event["p_known"]):
        assert explained.known(s) == known_in_words(np.nan if p_known is None else p_known, alpha)
    used = [p for p, role in zip(event["p_known"], event["roles"], strict=True) if role == Role.USED]
    assert explained.sound == sound_in_words(used, alpha)


@pytest.fixture(scope="module")
def failing(learned, tmp_path_factory):
    """A recording of which sensor 2 is silent and sensor 3 stops delivering after 2 s."""
    soundfile = component("soundfile")
    directory = tmp_path_factory.mktemp("failing")
    sound, rate_hz = soundfile.read(next(ARRAY.glob("r001.*")), dtype="float32")
    sound[:, 1] = 0
    sound[2 * rate_hz :, 2] = np.nan
    soundfile.write(directory / "failing.wav", sound, rate_hz, subtype="FLOAT")
    return explain(DecisionPlace.of("failing@3"), find_recordings([directory]), learned, Choices(), resample=False)


def test_silent_and_absent_sensors_are_explained(failing, tmp_path):
    component("matplotlib")
    assert failing.decision.roles[1] != Role.USED
    assert failing.decision.roles[2] == Role.ABSENT
    assert failing.reasons(2) is None
    assert failing.fault(2) is failing.known(2) is None
    assert failing.reasons(0).values
    assert np.isfinite(failing.reasons(1).neutral)
    assert write_explanation_figure(failing, tmp_path / "e.png").stat().st_size > 50_000


@pytest.fixture(scope="module")
def paper(tmp_path_factory):
    """A model without a summary."""
    console = component("rich.console").Console(quiet=True, markup=False, emoji=False)
    directory = tmp_path_factory.mktemp("paper") / "model"
    plan, labels = TrainingOptions(features="paper", folds=0), read_labels(ARRAY / "labels.csv")
    train(find_recordings([ARRAY]), labels, directory, plan, rate_hz=None, engine=ThisProcess(), console=console)
    return directory


def test_a_model_without_a_summary_is_explained_without_values(paper, unseen, tmp_path):
    component("matplotlib")
    assert not has_summary(Model.load(paper))
    done = gemmed(
        "explain", "r002@2", "--recordings", str(unseen), "--model", str(paper), "--out", str(tmp_path / "e.png")
    )
    assert done.returncode == 0, done.stderr
    told = " ".join(done.stdout.split())
    assert 'trained with features="paper": it has no summary' in told
    assert "Values with the largest effect" not in told
    assert "Nearest training segments" in told
    assert (tmp_path / "e.png").stat().st_size > 50_000


def test_the_command_prints_rhythm_values_and_p_values(model, unseen, tmp_path):
    done = gemmed(
        "explain", "r002@2", "--recordings", str(unseen), "--model", str(model), "--out", str(tmp_path / "e.svg")
    )
    assert done.returncode == 0, done.stderr
    told = " ".join(done.stdout.replace("│", " ").split())
    for words in ("rhythm: ", "sound: ", "Values with the largest effect", "median segment", "fits the classes (p "):
        assert words in told
    assert "log kNN distance" in (tmp_path / "e.svg").read_text()


def test_a_figure_needs_a_known_ending(model, unseen, tmp_path):
    done = gemmed(
        "explain", "r002@2", "--recordings", str(unseen), "--model", str(model), "--out", str(tmp_path / "e.txt")
    )
    assert done.returncode == 1
    assert "must be a file ending in .png, .pdf or .svg" in done.stderr
    with pytest.raises(UsageError, match="must name a decision"):
        DecisionPlace.of("r002")
