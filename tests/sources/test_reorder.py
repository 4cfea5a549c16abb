"""What arrives over the log in any order, twice or not at all, becomes the facts that were published."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.events import (
    Block,
    Gap,
    Notice,
    NoticeKind,
    Paced,
    RecordingEnded,
    RecordingStarted,
    SourceTrouble,
    Tick,
)
from pipeline.sources.reorder import BEFORE, LOST, Sorting, sorted_facts
from pipeline.transport.nats import Message
from pipeline.transport.wire import Parcel, packed
from tests.stages.laws import bits

EVERYONE = np.ones(2, bool)


def recording(name: str, n_blocks: int, *, ends: bool = True, follows: str | None = None) -> list[Parcel]:
    """Blocks of ten samples with a tick behind every third."""
    started = RecordingStarted(name, 1000, ("1", "2"))
    facts: list[object] = [started]
    for number in range(n_blocks):
        sound = np.full((2, 10), number, np.float32)
        facts.append(Block(10 * number, sound, EVERYONE))
        if number % 3 == 2:
            facts.append(Tick(10 * number + 10, 1.0))
    facts += [RecordingEnded(name, 10 * n_blocks)] * ends
    return [Parcel(started, number, fact, follows=follows) for number, fact in enumerate(facts)]


TWO = recording("a", 20) + recording("b", 15, follows="a")


def sorted_out(arriving: list[Parcel], *, cut: int | None = None) -> list[object]:
    """What comes of messages; at `cut` the state goes through JSON to another, which reads on where that says."""
    sorting, facts = Sorting(), []
    for sequence, parcel in enumerate(arriving, start=1):
        facts += sorting.push(sequence, parcel)
        if sequence == cut:
            sorting = Sorting.of(json.loads(json.dumps(sorting.state())))
            for again in range(sorting.resume_at, sequence + 1):
                assert sorting.push(again, arriving[again - 1]) == []
    return facts


def same(facts: list[object], others: list[object]) -> bool:
    return [bits(fact) for fact in facts] == [bits(fact) for fact in others]


def tiles(facts: list[object]) -> bool:
    """Whether blocks and gaps leave no sample of any recording out and none twice, and all else is in its place."""
    spans: dict[str, list[tuple[int, int]]] = {}
    name = ""
    for fact in facts:
        if isinstance(fact, RecordingStarted):
            name = fact.recording
            assert name not in spans
            spans[name] = []
        elif isinstance(fact, Block | Gap):
            spans[name].append((fact.start, fact.stop))
        elif isinstance(fact, Tick | Paced | Notice):
            assert fact.sample == (spans[name][-1][1] if spans[name] else 0), fact
    return all(own[0][0] == 0 and all(a[1] == b[0] for a, b in pairwise(own)) for own in spans.values() if own)


def test_in_order_nothing_changes():
    assert same(sorted_out(TWO), [parcel.fact for parcel in TWO])


@given(st.data())
def test_order_and_repetition_do_not_matter(data):
    """As long as nothing is later than the window looks; and wherever somebody else goes on."""
    keys = [place + data.draw(st.integers(0, 25)) for place in range(len(TWO))]
    arriving = [TWO[place] for place in sorted(range(len(TWO)), key=lambda place: (keys[place], place))]
    if arriving[0].number:  # where somebody begins to listen is where it begins
        arriving.insert(0, TWO[0])
    for _ in range(data.draw(st.integers(0, 5))):
        arriving.insert(data.draw(st.integers(1, len(arriving))), data.draw(st.sampled_from(arriving)))
    cut = data.draw(st.integers(1, len(arriving)))
    assert same(sorted_out(arriving, cut=cut), [parcel.fact for parcel in TWO])


@given(st.permutations("bcd"), st.integers(1, 20))
def test_short_recordings_come_in_the_order_in_which_they_were_published(arriving, cut):
    """Also if some were stored too early, and follow once more."""
    short = {name: recording(name, 3, follows=before) for before, name in pairwise("abcd")}
    stored = recording("a", 3) + [parcel for name in arriving for parcel in short[name]]
    facts = sorted_out(stored + [parcel for name in "bcd" for parcel in short[name]], cut=cut)
    assert [fact.recording for fact in facts if isinstance(fact, RecordingStarted)] == list("abcd")
    assert tiles(facts)


@given(st.integers(1, 160))
def test_a_recording_of_which_nothing_came_is_missed(cut):
    """By the next one, once there is no hope for it; others know of nothing before them."""
    arriving = recording("a", 3) + recording("c", 90, follows="b") + recording("x", 3) + recording("d", 3, follows="c")
    facts = sorted_out(arriving, cut=cut)
    (trouble,) = [fact for fact in facts if isinstance(fact, SourceTrouble)]
    assert (trouble.where, trouble.message.partition(",")[0]) == ("c", "recording b")
    rest = [fact for fact in facts if fact is not trouble]
    assert same(rest, [parcel.fact for parcel in arriving])


@given(lost=st.sets(st.integers(1, len(TWO) - 1), max_size=12), cut=st.integers(1, 100))
def test_what_is_lost_is_a_gap(lost, cut):
    """Exactly of what is missing, and everything else is there; the same wherever somebody else goes on."""
    tail = recording("c", 90, ends=False, follows="b")
    arriving = [parcel for place, parcel in enumerate(TWO) if place not in lost] + tail
    facts = sorted_out(arriving, cut=min(cut, len(arriving)))
    assert tiles(facts)
    heard = [bits(fact) for fact in facts if isinstance(fact, Block)]
    assert heard == [bits(parcel.fact) for parcel in arriving if isinstance(parcel.fact, Block)]
    gone = sum(10 for place in lost if isinstance(TWO[place].fact, Block))
    told = sum(fact.stop - fact.start for fact in facts if isinstance(fact, Gap))
    if not lost & {place for place, parcel in enumerate(TWO) if isinstance(parcel.fact, RecordingEnded)}:
        assert told == gone
    assert told <= gone
    # Of a recording whose end is lost, too, nobody knows how long it was, and that is told.
    endless = {"a", "b"} - {fact.recording for fact in facts if isinstance(fact, RecordingEnded)}
    assert {fact.where for fact in facts if isinstance(fact, SourceTrouble)} == endless
    assert all(fact.reason == LOST for fact in facts if isinstance(fact, Gap))


def test_a_gap_stands_for_what_the_spool_had_to_drop():
    whole = recording("a", 12)
    dropped = Parcel(whole[0].recording, 3, Gap(20, 70, "spool full"), 7)
    facts = sorted_out([*whole[:3], dropped, *whole[10:]])
    assert tiles(facts)
    assert [fact for fact in facts if isinstance(fact, Gap)] == [Gap(20, 70, "spool full")]


def test_a_part_that_was_heard_before_is_cut_off():
    """Blocks of other lengths than the first time."""
    started = RecordingStarted("a", 1000, ("1",))
    sound = np.arange(30, dtype=np.float32)[None]
    parts = [started, Block(0, sound[:, :20], np.ones(1, bool)), Block(10, sound[:, 10:], np.ones(1, bool))]
    facts = sorted_out([Parcel(started, number, fact) for number, fact in enumerate(parts)])
    assert tiles(facts)
    np.testing.assert_array_equal(np.concatenate([fact.samples for fact in facts[1:]], axis=1), sound)


@pytest.mark.parametrize("first", [1, 5, 13])
def test_who_begins_to_listen_in_the_middle_is_told_what_came_before(first):
    facts = sorted_out(recording("a", 20)[first:])
    assert isinstance(facts[0], RecordingStarted)
    assert tiles(facts)
    gaps = [fact for fact in facts if isinstance(fact, Gap)]
    assert all(gap.reason == BEFORE and not gap.recorded for gap in gaps)
    assert len(gaps) == (first > 1)


def test_what_belongs_to_a_recording_of_the_past_is_not_heard():
    facts = sorted_out([*TWO, *recording("a", 20)[5:9]])
    assert same(facts, [parcel.fact for parcel in TWO])


@pytest.mark.parametrize("said", [Tick(20, 1.0), Paced(20, 0.02, 20), Notice(NoticeKind.SOURCE_OPENED, {}, 20)])
@pytest.mark.parametrize("first", [0, 2])
def test_silence_is_told_before_what_was_said_behind_it(said, first):
    """Whether the sound before it was lost, or nobody listened then: the fact is where it was."""
    whole = recording("a", 80)
    later = [replace(parcel, number=parcel.number + 1) for parcel in whole[3:]]
    facts = sorted_out([*whole[:2], Parcel(whole[0].recording, 3, said), *later][first:])
    assert tiles(facts)
    (gap,) = (fact for fact in facts if isinstance(fact, Gap))
    place = facts.index(gap)
    assert gap == (Gap(0, 20, BEFORE, recorded=False) if first else Gap(10, 20, LOST))
    assert facts[place + 1] == said


def through_log(arriving: list[Parcel], *, cut: int) -> list[object]:
    """As messages, which somebody else reads on from `cut`."""
    messages = [
        Message("north", sequence, packed(parcel), datetime(2026, 1, 2, tzinfo=UTC), {})
        for sequence, parcel in enumerate(arriving, start=1)
    ]
    sorting, facts = Sorting(), []
    for message in messages:
        facts += sorted_facts(message, sorting)
        if message.sequence == cut:
            sorting = Sorting.of(json.loads(json.dumps(sorting.state())))
            for again in messages[sorting.resume_at - 1 : cut]:
                assert sorted_facts(again, sorting) == []
    return facts


@given(st.data())
def test_what_does_not_fit_its_recording_is_as_good_as_damaged(data):
    """Other sensors, or another rate, under the same name: told once, and the rest is as if it had not been sent."""
    other = data.draw(st.sampled_from([("1",), ("1", "2", "3"), ("1", "3"), ("1", "2")]))
    rate_hz = 1000 if len(other) != 2 or "3" in other else 2000
    strange = replace(TWO[0].recording, sensors=other, rate_hz=rate_hz)
    number = data.draw(st.integers(3, 20))
    sound = Block(10 * number, np.zeros((len(other), 10), np.float32), np.ones(len(other), bool))
    place = data.draw(st.integers(2, 20))
    arriving = [*TWO[:place], Parcel(strange, number, sound), *TWO[place:]]
    facts = through_log(arriving, cut=data.draw(st.integers(1, len(arriving))))
    troubles = [fact for fact in facts if isinstance(fact, SourceTrouble)]
    if number >= TWO[place - 1].number + 1:
        (trouble,) = troubles
        assert trouble.where == f"message {place + 1}"
        assert "publish sound of other sensors, or at another rate, under another name" in trouble.message
    assert same([fact for fact in facts if fact not in troubles], [parcel.fact for parcel in TWO])
