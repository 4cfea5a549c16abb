"""What labelling a moment teaches, and in which order moments are asked about."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from pipeline.training.active_learning import BY_CHANCE_EVERY, MOMENTS, in_words, lesson, queue, teaches, without

CLASSES = ["human", "animal"]


def decision(
    *, label="human", probability=0.99, log_odds=(-3.0, -3.0, -3.0, -3.0), roles=("used",) * 4, weights=None, flips=()
):
    """As the journal tells one; `flips` are the sensors, counted from 1, without which it would be another."""
    other = CLASSES[1] if label == CLASSES[0] else CLASSES[0]
    used = [role == "used" for role in roles]
    return {
        "label": label,
        "probability": probability,
        "reason": None if label else "too close to call",
        "roles": list(roles),
        "log_odds": list(log_odds),
        "weights": list(weights or [1.0 if one else 0.0 for one in used]),
        "without": [{"label": other if n in flips else label} for n in range(1, len(roles) + 1)],
    }


def test_the_factors_of_hand_made_decisions():
    """Each by itself, as one would work it out on paper."""
    certain = lesson(decision(probability=0.99))
    assert (certain.uncertainty, certain.disagreement, certain.anomaly) == (0.05, 0.0, 0.0)
    assert lesson(decision(probability=0.6)).uncertainty == pytest.approx(0.8)
    assert lesson(decision(label=None, probability=None)).uncertainty == 1.0
    one_of_four = decision(log_odds=(-1, -1, -1, 2))
    assert lesson(one_of_four).disagreement == pytest.approx(2 * 1 / 4)
    weighty = decision(log_odds=(-1, -1, -1, 2), weights=(0.2, 0.2, 0.2, 0.6))
    assert lesson(weighty).disagreement == pytest.approx(1.0)
    swayed = decision(flips=(2,))
    assert lesson(swayed).disagreement == pytest.approx(1 / 4)
    refused = decision(roles=("used", "anomalous", "used", "anomalous"))
    assert lesson(refused).anomaly == pytest.approx(0.5)


def test_nobody_teaches_little_and_doubt_about_presence_much():
    """Doubt about the class counts only as far as somebody is there; doubt about presence is added."""
    for presence, expected in ((0.0, 0.05), (1.0, 0.8), (0.9, 0.9 * 0.8 + 0.2), (0.5, 1.0)):
        told = decision(probability=0.6) | {"presence": presence}
        assert lesson(told).uncertainty == pytest.approx(expected)
    assert lesson(decision(probability=0.6) | {"presence": None}).uncertainty == pytest.approx(0.8)


def test_somebody_unlike_every_class_is_asked_about_first():
    """All sensors must say so, and somebody must be there."""
    told = decision() | {"presence": 0.9, "p_known": [0.01, 0.05, 0.02, None]}
    assert lesson(told).anomaly == 1.0
    assert lesson(told | {"presence": 0.1}).anomaly == 0.0
    assert lesson(told | {"p_known": [0.01, 0.2, 0.02, 0.01]}).anomaly == 0.0


def test_what_a_sensor_that_was_not_asked_says_does_not_count():
    """A refused sensor contradicts nobody."""
    refused = decision(log_odds=(-1, -1, -1, 2), roles=("used", "used", "used", "anomalous"))
    assert lesson(refused).disagreement == 0.0


def test_nothing_is_to_be_learned_from_what_nobody_heard():
    """All sensors absent, off or bad."""
    assert lesson(decision(label=None, probability=None, roles=("absent", "off", "masked", "absent"))) is None
    assert lesson(decision(roles=("absent", "off", "masked", "used"))) is not None


def test_the_order_of_sensors_does_not_matter():
    """To the bit, for the queue is sorted by it."""
    log_odds, weights = (-1.1, 0.7, 0.3, -0.2), (0.1, 0.7, 0.3, 0.2)
    roles = ("used", "used", "used", "anomalous")
    found = set()
    for order in permutations(range(4)):
        pick = [[values[n] for n in order] for values in (log_odds, weights, roles)]
        flips = [place for place, n in enumerate(order, start=1) if n == 1]
        found.add(lesson(decision(log_odds=pick[0], weights=pick[1], roles=pick[2], flips=flips, probability=0.57)))
    assert len(found) == 1


def test_it_is_told_in_words():
    """Which sensors, counted from 1, say what."""
    asked = decision(
        label=None, probability=0.54, log_odds=(-1, 2, 2, -1), roles=("used", "used", "used", "anomalous"), flips=(2, 3)
    )
    assert in_words(asked, CLASSES) == [
        "undecided (too close to call), probability 0.54",
        "sensor 1 says human, sensors 2 and 3 say animal",
        "without sensors 2 or 3 it would be decided otherwise",
        "the sound of sensor 4 is unusual",
    ]


def of_three(*, probabilities, sensors, label="cat", **rest):
    """A decision among three classes; each sensor is for the class at a place."""
    names = ("cat", "dog", "human")
    shares = [{name: 0.8 if place == own else 0.1 for place, name in enumerate(names)} for own in sensors]
    return decision(label=label, probability=max(probabilities), log_odds=[None] * len(sensors), **rest) | {
        "probabilities": dict(zip(names, probabilities, strict=True)),
        "sensor_probabilities": shares,
    }


def test_the_factors_of_several_classes():
    """Entropy in parts of the largest; weight that is not for the strongest class, in parts of the largest."""
    assert lesson(of_three(probabilities=(1 / 3, 1 / 3, 1 / 3), sensors=(0, 0, 0, 0))).uncertainty == 1.0
    assert lesson(of_three(probabilities=(1.0, 0.0, 0.0), sensors=(0, 0, 0, 0))).uncertainty == 0.05
    halves = of_three(probabilities=(0.5, 0.5, 0.0), sensors=(0, 0, 1, 1))
    assert lesson(halves).uncertainty == pytest.approx(np.log(2) / np.log(3))
    assert lesson(halves).disagreement == pytest.approx(0.75)
    apart = of_three(probabilities=(0.5, 0.3, 0.2), sensors=(0, 1, 2), roles=("used",) * 3)
    assert lesson(apart).disagreement == pytest.approx(1.0)
    assert lesson(of_three(probabilities=(0.9, 0.1, 0.0), sensors=(0, 0, 0, 0))).disagreement == 0.0


def test_several_classes_are_told_in_words():
    asked = of_three(probabilities=(0.4, 0.35, 0.25), sensors=(0, 2, 2, 0), label=None)
    assert in_words(asked, ["cat", "dog", "human"])[1] == "sensors 1 and 4 say cat, sensors 2 and 3 say human"


def moments(*rows):
    """Event, recording, begin, uncertainty; two seconds long."""
    return np.array([(event, rec, begin, begin + 2.0, value, 0.0, 0.0) for event, rec, begin, value in rows], MOMENTS)


def events(found):
    return [one.event for one in found]


def test_the_most_instructive_moment_of_each_passage_is_asked():
    """Closer than 30 s in one recording is one passage; of equals the newest comes first."""
    found = queue(
        moments(
            (1, 0, 0.0, 0.3),
            (2, 0, 1.0, 0.9),  # the best of its passage
            (3, 0, 32.9, 0.8),  # 29.9 s after the end of 2
            (4, 0, 33.0, 0.5),  # 30 s after: another passage
            (5, 1, 1.0, 0.9),  # another recording; as good as 2, and newer
        )
    )
    assert events(found) == [5, 2, 4]
    assert not any(one.by_chance for one in found)


def test_each_factor_alone_moves_a_moment_to_the_front():
    """All else equal."""
    table = moments(*((n, n, 0.0, 0.4) for n in range(4)))
    for name, event in (("uncertainty", 1), ("disagreement", 2), ("anomaly", 3)):
        changed = table.copy()
        changed[name][event] += 0.1
        assert events(queue(changed))[0] == event
    assert teaches(moments((1, 0, 0.0, 1.0)))[0] == 0.25


def stream(n=400, seed=4):
    """A decision every half second for minutes, without any pause."""
    random = np.random.default_rng(seed)
    table = moments(*((n + 1, 0, n / 2, value) for n, value in enumerate(random.uniform(0.05, 1, n))))
    table["disagreement"], table["anomaly"] = random.uniform(0, 1, (2, n))
    return table


def test_a_stream_without_pauses_gives_moments_apart():
    """No two closer than 30 s, and no moment further than that from one that is asked about."""
    table = stream()
    asked = [table["begin"][table["event"] == event][0] for event in events(queue(table)[: BY_CHANCE_EVERY - 1])]
    gaps = abs(np.subtract.outer(asked, asked)) - 2.0
    assert (gaps[~np.eye(len(asked), dtype=bool)] >= 30.0).all()
    assert all(min(abs(begin - np.array(asked))) - 2.0 < 30.0 for begin in table["begin"])


def test_a_label_removes_its_passage_and_nothing_else():
    """The others keep their places among each other."""
    table = stream()
    before = events(queue(table))
    for labelled in before[:4]:
        (row,) = table[table["event"] == labelled]
        left = without(table, [(0, row["begin"], row["end"])])
        assert events(queue(left)) == [event for event in before if event != labelled]
        near = (table["end"] > row["begin"] - 30) & (table["begin"] < row["end"] + 30)
        assert set(left["event"]) == set(table["event"][~near])


def test_the_order_in_which_moments_come_does_not_matter():
    """They may be read in any."""
    table = stream()
    assert queue(np.random.default_rng(1).permutation(table)) == queue(table)


def test_every_eighth_place_is_drawn_by_chance_and_each_passage_is_asked_once():
    """Also what is decided with confidence: about half of the spot checks are in the more certain half."""
    random = np.random.default_rng(0)
    table = moments(*((n + 1, n, 0.0, value) for n, value in enumerate(random.permutation(np.linspace(0.05, 1, 400)))))
    found = queue(table)
    assert sorted(events(found)) == sorted(table["event"])
    assert [n for n, one in enumerate(found, start=1) if one.by_chance] == list(range(8, 401, 8))
    rank = {event: n for n, event in enumerate(table["event"][np.argsort(-table["uncertainty"])])}
    drawn = [rank[one.event] for one in found[:160] if one.by_chance]
    assert 5 <= sum(place >= 200 for place in drawn) <= 15
    assert queue(table) == found  # chance, and yet the same when asked again


def test_nothing_to_ask():
    """An empty queue is one."""
    assert queue(moments()) == []
    assert len(without(moments(), [(0, 0.0, 1.0)])) == 0
