"""Faults do what their names say, when they say, to whom they say."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.core.errors import UsageError
from pipeline.simulation.faults import (
    FAULTS,
    LSB,
    FaultContext,
    FaultEpisode,
    FaultPlan,
    afflict,
    bursts,
    draw_episodes,
    parse_kinds,
)

RATE = 8000


def moment(severity: float = 0.5, seconds: float = 4.0, seed: int = 0) -> FaultContext:
    rng = np.random.default_rng(seed)
    own, partner, elsewhere = 0.02 * rng.standard_normal((3, round(seconds * RATE)))
    return FaultContext(own, partner, elsewhere, RATE, severity, np.random.default_rng(seed + 1))


def made(name: str, severity: float = 0.5) -> tuple[np.ndarray, FaultContext]:
    given_to = moment(severity)
    return FAULTS[name](given_to), given_to


@pytest.mark.parametrize("severity", [0.0, 1.0])
@pytest.mark.parametrize("name", FAULTS)
def test_every_fault_changes_the_sound_and_nothing_else(name, severity):
    """Same length, finite numbers, input untouched, and the same again with the same chance."""
    given_to = moment(severity)
    before = given_to.own.copy()
    found = FAULTS[name](given_to)
    assert found.shape == before.shape
    assert np.isfinite(found).all()
    assert (given_to.own == before).all()
    assert np.mean(found != before) > 0.0005
    assert (FAULTS[name](moment(severity)) == found).all()


def test_dead_flat_and_stuck_have_hardly_any_values():
    """Zero; two neighbouring codes; one value that is not zero."""
    assert np.unique(made("dead")[0]).tolist() == [0.0]
    codes = np.unique(made("flat")[0]) / LSB
    assert len(codes) == 2
    assert np.diff(codes) == pytest.approx(1)
    (value,) = np.unique(made("stuck")[0])
    assert value != 0


@pytest.mark.parametrize("severity", [0.0, 1.0])
def test_clipping_puts_the_promised_share_at_the_rails(severity):
    """Half a percent to a tenth of the samples."""
    found, _ = made("clipping", severity)
    assert np.mean(np.abs(found) >= 1) == pytest.approx(0.005 + 0.095 * severity, rel=0.05)


def test_hum_is_mains_and_harmonics():
    """What is added has all of its power at multiples of 50 Hz."""
    found, given_to = made("hum")
    spectrum = np.abs(np.fft.rfft(found - given_to.own)) ** 2
    frequency = np.fft.rfftfreq(len(found), 1 / RATE)
    assert spectrum[np.isin(frequency, 50.0 * np.arange(1, 6))].sum() > 0.999 * spectrum.sum()


def test_drift_gain_polarity_and_leaks_are_what_they_are():
    """Closed forms."""
    found, given_to = made("dc_drift", 1.0)
    assert abs((found - given_to.own)[-1]) == pytest.approx(0.5, abs=0.01)
    found, given_to = made("gain_loss", 1.0)
    np.testing.assert_allclose(found, given_to.own / 100)
    found, given_to = made("polarity")
    assert (found == -given_to.own).all()
    found, given_to = made("crosstalk", 1.0)
    np.testing.assert_allclose(found, 0.05 * given_to.own + 0.95 * given_to.partner)
    assert (made("swapped")[0] == moment().partner).all()
    assert (made("stale")[0] == moment().elsewhere).all()


def test_bursts_dropouts_and_spikes_leave_the_rest_alone():
    """Only the hit samples differ; dropouts are zeros, spikes are single and far out."""
    for name in ("loud_bursts", "dropouts", "spikes"):
        found, given_to = made(name)
        changed = found != given_to.own
        assert 0.0005 < changed.mean() < 0.9
        if name == "dropouts":
            assert (found[changed] == 0).all()
        if name == "spikes":
            assert np.abs(found[changed]).min() >= 0.3
            assert changed.sum() == pytest.approx(22 * 4, abs=40)


def test_a_fast_clock_falls_behind():
    """A sine heard through it has a pitch lower by the error of the clock, two percent at worst."""
    t = np.arange(RATE * 4) / RATE
    tone = np.sin(2 * np.pi * 400 * t)
    found = FAULTS["clock_drift"](FaultContext(tone, tone, tone, RATE, 1.0, np.random.default_rng(0)))
    np.testing.assert_allclose(found[10:-10], np.sin(2 * np.pi * 400 * 0.98 * t)[10:-10], atol=0.01)


@given(share=st.floats(0.05, 0.6), mean=st.floats(2, 20), seed=st.integers(0, 100))
@settings(max_examples=20)
def test_bursts_have_the_share_and_length_of_the_chain(share, mean, seed):
    """Gilbert-Elliott in its stationary state: bad share B and mean length L, from the first step on."""
    n_steps = 200_000
    found = bursts(np.random.default_rng(seed), n_steps, share=share, mean_steps=mean)
    lengths = np.array([stop - start for start, stop in found])
    error = np.sqrt(2 * mean * share / n_steps)
    assert lengths.sum() / n_steps == pytest.approx(share, abs=5 * error)
    assert lengths.mean() == pytest.approx(mean, rel=5 / np.sqrt(len(lengths)))
    edges = np.array(found).ravel()
    assert (np.diff(edges) > 0).all()


def test_a_chain_begins_in_its_stationary_state():
    """The first step is bad as often as any other."""
    first = [bursts(np.random.default_rng(seed), 5, share=0.3, mean_steps=4) for seed in range(2000)]
    bad = np.mean([bool(found) and found[0][0] == 0 for found in first])
    assert bad == pytest.approx(0.3, abs=5 * np.sqrt(0.21 / 2000))


def episodes(seed: int, kinds: tuple[str, ...] = tuple(FAULTS), shares=(0.3,) * 4) -> list[FaultEpisode]:
    plan = FaultPlan(kinds, shares, 3.0)
    return draw_episodes(plan, np.random.default_rng(seed), length=20 * RATE, rate_hz=RATE, seed=(seed,))


@given(seed=st.integers(0, 500))
@settings(max_examples=40)
def test_episodes_of_one_sensor_never_overlap_and_swaps_come_in_pairs(seed):
    """Also where a healthy partner is drawn into a swap."""
    found = episodes(seed)
    for sensor in range(4):
        own = sorted((e for e in found if e.sensor == sensor), key=lambda e: e.start)
        assert all(one.stop <= other.start for one, other in pairwise(own))
    for swap in (e for e in found if e.fault == "swapped"):
        (mate,) = [e for e in found if e.sensor == swap.partner and e.start == swap.start]
        assert (mate.fault, mate.partner, mate.stop) == ("swapped", swap.sensor, swap.stop)


def test_afflicted_sound_differs_only_where_the_truth_says_so():
    """Outside the episodes every sample is the clean one."""
    sound = 0.02 * np.random.default_rng(0).standard_normal((4, 20 * RATE))
    for seed in range(10):
        found = episodes(seed)
        faulty = afflict(sound, found, lambda: sound[:, ::-1], RATE)
        inside = np.zeros(sound.shape, bool)
        for episode in found:
            inside[episode.sensor, episode.start : episode.stop] = True
        assert (faulty[~inside] == sound[~inside]).all()
        for episode in found:
            span = slice(episode.start, episode.stop)
            assert (faulty[episode.sensor, span] != sound[episode.sensor, span]).any()


def test_swapped_sensors_carry_each_others_sound():
    """Both directions."""
    sound = np.random.default_rng(0).standard_normal((3, 1000))
    pair = [FaultEpisode(0, 100, 300, "swapped", 0.5, 2, (0,)), FaultEpisode(2, 100, 300, "swapped", 0.5, 0, (0,))]
    faulty = afflict(sound, pair, lambda: sound, RATE)
    assert (faulty[0, 100:300] == sound[2, 100:300]).all()
    assert (faulty[2, 100:300] == sound[0, 100:300]).all()
    assert (faulty[1] == sound[1]).all()


def test_a_lone_sensor_cannot_be_swapped():
    """Faults that need a partner do not occur without one."""
    assert episodes(0, ("swapped", "crosstalk"), (0.8,)) == []


@pytest.mark.parametrize(
    ("text", "kinds"),
    [("all", tuple(FAULTS)), ("none", ()), ("dead, Gain-Loss", ("dead", "gain_loss")), ("stale", ("stale",))],
)
def test_kinds_are_read_as_users_write_them(text, kinds):
    """Names with commas, spaces, dashes and capitals."""
    assert parse_kinds(text, n_sensors=4) == kinds


def test_one_sensor_cannot_have_what_takes_two():
    """Asked for by name it is an error; `all` means all that are possible."""
    assert set(FAULTS) - set(parse_kinds("all", n_sensors=1)) == {"crosstalk", "swapped"}
    with pytest.raises(UsageError, match="fault 'swapped' takes two sensors and there is one"):
        parse_kinds("dead,swapped", n_sensors=1)


@pytest.mark.parametrize(("text", "hint"), [("", ""), ("broken", ""), ("dead,ded", "did you mean dead. ")])
def test_unknown_kinds_are_named(text, hint):
    """With all that exist, and what may have been meant."""
    with pytest.raises(UsageError, match=f"is not known; {hint}choose all, none, or of: dead, flat"):
        parse_kinds(text, n_sensors=4)


@pytest.mark.parametrize(
    ("shares", "seconds"), [((1.0,), 10), ((-0.1,), 10), ((float("nan"),), 10), ((0.1,), 0.1), ((0.9,), 1)]
)
def test_impossible_plans_are_refused(shares, seconds):
    """Shares below 0 or of the whole time, faults shorter than a step, shares that so short faults cannot have."""
    with pytest.raises(UsageError, match=r"for example|lower it to 0\.67"):
        FaultPlan(("dead",), shares, seconds)


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("length", [1, 7, 100])
def test_short_episodes_are_faults_too(name, length):
    """The last step of a recording may be cut to a few samples."""
    rng = np.random.default_rng(0)
    own, partner, elsewhere = 0.02 * rng.standard_normal((3, length))
    found = FAULTS[name](FaultContext(own, partner, elsewhere, 16_000, 0.0, np.random.default_rng(1)))
    assert found.shape == (length,)
    assert np.isfinite(found).all()
    if name in ("loud_bursts", "dropouts", "spikes"):
        assert (found != own).any()
