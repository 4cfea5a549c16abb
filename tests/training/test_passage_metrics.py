"""Scores of passages against enumeration, closed forms and invariance."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from scipy.stats import chi2, poisson

from pipeline.model.metrics import rate
from pipeline.training.passage_metrics import (
    Match,
    TimedSpan,
    background_of,
    common_seconds,
    confusion,
    false_passages,
    iou,
    joined_labels,
    matches,
    overlap,
    passage_scores,
    poisson_interval,
    total_seconds,
    union,
)


def human(start: float, end: float, recording: str = "r") -> TimedSpan:
    return TimedSpan(recording, start, end, "human")


def drawn(rng: np.random.Generator, n: int, length: int = 30) -> list[TimedSpan]:
    """Passages with whole seconds, which may overlap."""
    spans = []
    for _ in range(n):
        start = int(rng.integers(0, length - 1))
        spans.append(human(start, start + int(rng.integers(1, 8))))
    return spans


def greatest_overlap(found: list[TimedSpan], true: list[TimedSpan]) -> float:
    """By trying all one-to-one pairings."""
    fewer, more = sorted((found, true), key=len)
    return max(
        sum(overlap(one, other) for one, other in zip(fewer, order, strict=False))
        for order in permutations(more, len(fewer))
    )


@pytest.mark.parametrize("seed", range(60))
def test_matching_is_the_best_of_all_one_to_one_pairings(seed):
    rng = np.random.default_rng(seed)
    found, true = drawn(rng, int(rng.integers(1, 6))), drawn(rng, int(rng.integers(1, 6)))
    pairs = matches(found, true)
    assert sum(overlap(pair.found, pair.true) for pair in pairs) == greatest_overlap(found, true)
    assert all(overlap(pair.found, pair.true) > 0 for pair in pairs)
    for side, spans in (("found", found), ("true", true)):
        used = [getattr(pair, side) for pair in pairs]
        assert all(used.count(span) <= spans.count(span) for span in used)


def test_passages_of_other_recordings_do_not_match():
    assert matches([human(0, 9, "a")], [human(0, 9, "b")]) == []
    found, true = [human(0, 9, "b"), human(1, 9, "a")], [human(0, 9, "a"), human(0, 9, "b")]
    assert set(matches(found, true)) == {Match(found[1], true[0]), Match(found[0], true[1])}


def test_overlap_by_counting_seconds():
    """Of whole seconds, union and intersection can be counted."""
    rng = np.random.default_rng(1)
    for _ in range(200):
        one, other = drawn(rng, 2)
        seconds, others = set(range(one.start, one.end)), set(range(other.start, other.end))
        assert overlap(one, other) == len(seconds & others)
        assert iou(one, other) == pytest.approx(len(seconds & others) / len(seconds | others))


@pytest.mark.parametrize("seed", range(20))
def test_background_by_counting_seconds(seed):
    rng = np.random.default_rng(seed)
    true, nobody, found = drawn(rng, 4), drawn(rng, 4), drawn(rng, 5)
    inside = {second for span in true for second in range(span.start, span.end)}
    empty = {second for span in nobody for second in range(span.start, min(span.end, 35))}
    heard = {second for span in found for second in range(span.start, span.end)}
    for labeled, expected in ((nobody, empty - inside), ([], set(range(35)) - inside)):
        background = background_of(true, labeled, {"r": 35.0})
        assert total_seconds(background) == len(expected)
        assert common_seconds(background, union(found)) == len(expected & heard)
        alarms = false_passages(found, true, background)
        for span in found:
            alone = not inside & set(range(span.start, span.end))
            middle = int((span.start + span.end) // 2) in expected
            assert (span in alarms) == (alone and middle)


@pytest.mark.parametrize("count", [0, 1, 3, 20, 150])
def test_the_interval_of_a_rate_is_exact(count):
    """Garwood's by chi-squared quantiles; and at its ends the count has the probability of a tail."""
    low, high = poisson_interval(count, 2.5)
    assert high == pytest.approx(chi2.ppf(0.975, 2 * count + 2) / 2 / 2.5)
    assert poisson.cdf(count, 2.5 * high) == pytest.approx(0.025)
    if count:
        assert low == pytest.approx(chi2.ppf(0.025, 2 * count) / 2 / 2.5)
        assert poisson.sf(count - 1, 2.5 * low) == pytest.approx(0.025)
    else:
        assert low == 0


def test_labels_in_several_rows_are_one_passage():
    rows = [human(0, 5), human(5, 9), TimedSpan("r", 9, 12, "cow"), human(12, 13), human(20, 21), human(9, 10, "s")]
    assert joined_labels(reversed(rows)) == [
        human(0, 9),
        TimedSpan("r", 9, 12, "cow"),
        human(12, 13),
        human(20, 21),
        human(9, 10, "s"),
    ]


SECONDS = {"a": 600.0, "b": 600.0, "c": 3000.0}
TRUE = [human(100, 130, "a"), TimedSpan("a", 300, 320, "cow"), human(50, 70, "b"), TimedSpan("b", 590, 600, "cow")]
FOUND = [
    human(101, 131, "a"),  # right
    TimedSpan("a", 318, 330, "human"),  # wrong class, little overlap
    TimedSpan("b", 52.5, 70.5, None),  # no label
    human(1000, 1010, "c"),  # false
    human(2000, 2020, "c"),  # false
]


def test_scores_of_a_small_example():
    scores = passage_scores(FOUND, TRUE, [], SECONDS, classes=["cow", "human"])
    assert (scores["true"], scores["passages"], scores["matched"], scores["false"]) == (4, 5, 3, 2)
    assert scores["found"]["value"] == 0.75
    assert scores["found_iou"]["value"] == 0.5
    hits = rate([True, True, True, False], ["a", "a", "b", "b"]).as_dict()
    assert {name: scores["found"][name] for name in ("low", "high")} == {name: hits[name] for name in ("low", "high")}
    hours = (4200 - 80) / 3600
    assert scores["background_hours"] == pytest.approx(hours)
    assert scores["false_per_hour"]["value"] == pytest.approx(2 / hours)
    assert scores["background_share"] == pytest.approx((1 + 10 + 0.5 + 10 + 20) / 4120, abs=1e-6)
    assert (scores["class_right"]["value"], scores["class_right"]["n"]) == (0.5, 2)
    assert scores["abstained"]["value"] == pytest.approx(1 / 3, abs=1e-6)
    assert scores["onset_error_seconds"]["median"] == 2.5
    assert scores["onset_error_seconds"]["within_2_s"]["value"] == pytest.approx(1 / 3, abs=1e-6)
    assert (scores["end_error_seconds"]["median"], scores["end_error_seconds"]["n"]) == (1.0, 3)
    assert scores["classes"] == ["cow", "human"]
    assert scores["confusion"] == [[0, 1, 0], [0, 1, 1]]
    assert scores["confusion_shares"][1][1]["value"] == 0.5
    assert {name: one["value"] for name, one in scores["found_by_class"].items()} == {"cow": 0.5, "human": 1.0}


def test_where_nobody_is_labeled_only_that_time_counts():
    """A passage in unlabeled time is neither right nor false."""
    nobody = [TimedSpan("c", 1900, 2800, "nobody"), TimedSpan("a", 90, 110, "nobody")]
    scores = passage_scores(FOUND, TRUE, nobody, SECONDS)
    assert (scores["false"], scores["background_hours"]) == (1, pytest.approx(910 / 3600, abs=1e-6))
    assert scores["background_share"] == pytest.approx(20 / 910, abs=1e-6)
    assert scores["found"]["value"] == 0.75


def test_a_perfect_finder_and_a_blind_one():
    perfect = passage_scores(TRUE, TRUE, [], SECONDS)
    for name in ("found", "found_iou", "class_right"):
        assert perfect[name]["value"] == 1
    assert (perfect["false"], perfect["background_share"], perfect["abstained"]["value"]) == (0, 0, 0)
    assert perfect["onset_error_seconds"]["median"] == perfect["end_error_seconds"]["median"] == 0
    assert perfect["end_error_seconds"]["n"] == 3  # the end of a recording is not the end of who was there
    blind = passage_scores([], TRUE, [], SECONDS)
    assert (blind["found"]["value"], blind["found_iou"]["value"], blind["false_per_hour"]["value"]) == (0, 0, 0)
    assert blind["class_right"] is blind["abstained"] is blind["onset_error_seconds"] is None


def test_one_that_never_ends_finds_all_but_overlaps_none_well():
    """The reason for IoU: a passage that is stuck touches everybody."""
    stuck = [human(0, 600, "a"), human(0, 600, "b")]
    scores = passage_scores(stuck, TRUE, [], SECONDS)
    assert (scores["found"]["value"], scores["found_iou"]["value"], scores["matched"]) == (1, 0, 2)
    assert scores["background_share"] == pytest.approx((1200 - 80) / 4120, abs=1e-6)


def test_labels_of_whole_recordings_say_whether_somebody_was_found():
    """As files were labeled before there were passages: no background, no onset, no end."""
    true = [human(0, 600, "a"), TimedSpan("b", 0, 600, "cow")]
    scores = passage_scores([human(200, 420, "a")], true, [], {"a": 600.0, "b": 600.0})
    assert (scores["found"]["value"], scores["found_iou"]["value"]) == (0.5, 0.5)
    assert scores["class_right"]["value"] == 1
    assert scores["false_per_hour"] is scores["background_share"] is None
    assert scores["onset_error_seconds"] is scores["end_error_seconds"] is None


def test_segments_of_found_passages_are_compared():
    """Those wholly inside a passage that was found, with a label."""
    inside = [
        human(110, 112, "a"),
        TimedSpan("a", 112, 114, "cow"),
        human(128, 130, "a"),
        TimedSpan("a", 113, 115, None),
    ]
    outside = [human(99, 101, "a"), human(129, 131, "a"), human(592, 594, "b"), human(400, 402, "a")]
    scores = passage_scores(FOUND, TRUE, [], SECONDS, segments=[*outside, *inside])
    assert (scores["segments_right"]["value"], scores["segments_right"]["n"]) == (pytest.approx(2 / 3, abs=1e-6), 3)


def test_scores_depend_on_neither_order_nor_the_time_of_day():
    """Spans shuffled, and every recording a hundred seconds later behind a hundred seconds that do not count."""
    nobody = [TimedSpan(name, 0, length, "nobody") for name, length in SECONDS.items()]
    scores = passage_scores(FOUND, TRUE, nobody, SECONDS)
    rng = np.random.default_rng(0)

    def later(spans: list[TimedSpan]) -> list[TimedSpan]:
        moved = [TimedSpan(span.recording, span.start + 100, span.end + 100, span.label) for span in spans]
        return [moved[number] for number in rng.permutation(len(moved))]

    for _ in range(5):
        seconds = {name: length + 100 for name, length in SECONDS.items()}
        assert passage_scores(later(FOUND), later(TRUE), later(nobody), seconds) == scores


def test_spans_of_recordings_that_are_not_scored_do_not_count():
    assert passage_scores(FOUND, TRUE, [], {"b": 600.0}) == passage_scores(FOUND[2:3], TRUE[2:], [], {"b": 600.0})


def test_the_confusion_counts_every_pair_once():
    pairs = matches(FOUND, TRUE)
    assert sum(map(sum, confusion(pairs, ["cow", "human"]))) == len(pairs)
