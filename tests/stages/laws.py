"""What every stage promises, as checks that take a maker of stages and the facts to feed it."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, is_dataclass
from itertools import pairwise

import numpy as np

from benchmarks.sizes import size_of
from pipeline.core.checkpoint import restore, snapshot
from pipeline.core.events import Block, Gap, SourceTrouble
from pipeline.core.protocols import Stage

Maker = Callable[[], Stage]


def cut(samples: np.ndarray, sizes: int | Iterable[int], *, start: int = 0, delivered=None) -> list[Block]:
    """Sound as blocks of one size, or of the given sizes."""
    everyone = np.ones(len(samples), bool) if delivered is None else np.asarray(delivered)
    length = samples.shape[1]
    edges = range(0, length, sizes) if isinstance(sizes, int) else [0, *np.cumsum(list(sizes))]
    edges = sorted({min(int(edge), length) for edge in edges} | {length})
    return [Block(start + a, samples[:, a:b], everyone) for a, b in pairwise(edges)]


def fed(stage: Stage, facts: Iterable[object]) -> list[object]:
    """Everything that comes out, the last flush included."""
    return pushed(stage, facts) + stage.flush()


def pushed(stage: Stage, facts: Iterable[object]) -> list[object]:
    """Everything that comes out."""
    return [made for fact in facts for made in (stage.push(fact) if isinstance(fact, stage.accepts) else [fact])]


def bits(fact: object) -> object:
    """A fact as something that is equal only if every bit is."""
    if isinstance(fact, np.ndarray):
        return fact.dtype.str, fact.shape, fact.tobytes()
    if is_dataclass(fact):
        return type(fact).__name__, *(bits(getattr(fact, field.name)) for field in fields(fact))
    return fact


def same(one: Sequence[object], other: Sequence[object]) -> bool:
    return [bits(fact) for fact in one] == [bits(fact) for fact in other]


def check_leaves_its_input_alone(make: Maker, facts: Sequence[object]) -> None:
    """Facts are the same before and after."""
    before = [bits(fact) for fact in facts]
    fed(make(), facts)
    assert before == [bits(fact) for fact in facts]


def check_repeats_to_the_bit(make: Maker, facts: Sequence[object]) -> None:
    """Two stages fed alike say the same."""
    out = fed(make(), facts)
    assert out
    assert same(out, fed(make(), facts))


def check_output_is_read_only(make: Maker, facts: Sequence[object]) -> None:
    """Nobody downstream can change a fact for the others."""
    for fact in fed(make(), facts):
        arrays = [getattr(fact, field.name) for field in fields(fact)]
        assert all(not array.flags.writeable for array in arrays if isinstance(array, np.ndarray))


def check_later_input_changes_no_earlier_output(make: Maker, facts: Sequence[object]) -> None:
    """What came out stays as it was while the stage goes on."""
    stage, out, before = make(), [], []
    for fact in facts:
        made = stage.push(fact) if isinstance(fact, stage.accepts) else []
        out += made
        before += [bits(copy.deepcopy(item)) for item in made]
    assert before == [bits(item) for item in out]


def check_forgets_after_flush(make: Maker, facts: Sequence[object]) -> None:
    """After flush a stage is as new, also when flushed in the middle."""
    stage, fresh = make(), fed(make(), facts)
    fed(stage, facts[: len(facts) // 2])
    assert same(fed(stage, facts), fresh)
    assert same(fed(stage, facts[1:]), fed(make(), facts[1:]))
    assert same(fed(stage, facts), fresh)


def check_state_is_bounded(make: Maker, facts: Sequence[object]) -> None:
    """A stage that has seen much is as large as one that has seen a third of it."""
    stage, third = make(), 0
    for number, fact in enumerate(facts, start=1):
        if isinstance(fact, stage.accepts):
            stage.push(fact)
        if number == len(facts) // 3:
            third = size_of(stage)
    assert size_of(stage) <= 1.05 * third


COVERED = {
    "Drift": {"_windows": "_buckets"},
    "RunningUsual": {"_part": "_begun", "current": "_settled"},
    "_Second": {"_samples": "_heard", "_delivered": "_heard"},
    "_Buffer": dict.fromkeys(("_page", "_moments", "_at", "_filled", "_measured"), "_left"),
}
"""Attributes of which a part is remembered, by another name."""


def insides(thing: object) -> object:
    """All attributes, remembered or not, of whatever remembers something: nothing may be forgotten."""
    if isinstance(thing, list | tuple | deque):
        return [insides(one) for one in thing]
    if isinstance(thing, dict):
        return {key: insides(one) for key, one in thing.items()}
    if hasattr(type(thing), "remembers"):
        own = vars(thing) if hasattr(thing, "__dict__") else [field.name for field in fields(thing)]
        covered = COVERED.get(type(thing).__name__, {})
        return {name: insides(getattr(thing, covered.get(name, name))) for name in own}
    if is_dataclass(thing):
        return type(thing).__name__, [insides(getattr(thing, field.name)) for field in fields(thing)]
    if isinstance(thing, set):  # its order is one of chance
        return sorted(map(repr, thing))
    plain = isinstance(thing, np.ndarray | str | int | float | bytes | bytearray)
    return repr(bits(thing)) if plain else type(thing).__name__


def check_goes_on_from_its_state(make: Maker, facts: Sequence[object], *, parts: int = 7) -> None:
    """Killed anywhere, a newly made stage that takes up the state goes on to the last bit; after flush it has none."""
    places = {0, 1, 2, *(len(facts) * part // parts for part in range(1, parts + 1))}
    stage, told, followers = make(), [], {}
    for place, fact in enumerate([*facts, None]):
        if place in places:
            followers[place] = follower = make()
            state = snapshot(stage)
            restore(follower, state)
            assert snapshot(follower) == state
            assert insides(follower) == insides(stage)
        if fact is not None:
            told.append(pushed(stage, [fact]))
    last, rest = snapshot(stage), stage.flush()
    for place, follower in followers.items():
        assert same(pushed(follower, facts[place:]), [one for some in told[place:] for one in some])
        assert snapshot(follower) == last
        assert same(follower.flush(), rest)
        assert snapshot(follower) == snapshot(make())


def check_passes_strangers(make: Maker, facts: Sequence[object]) -> None:
    """Facts of other kinds are not for this stage: a chain lets them travel past it, in order."""
    from pipeline.stages import Chain

    strangers = [SourceTrouble("x.wav", "is not audio"), Gap(0, 1, "lost")]
    stage = make()
    assert not isinstance(strangers[0], stage.accepts)
    chain = Chain(stage)
    assert chain.push(strangers[0]) == [strangers[0]]
    assert chain.push(strangers[1]) == [strangers[1]]


def check_many_at_once_give_the_same(make: Maker, facts: Sequence[object]) -> None:
    """A stage that takes many facts at once gives what it gives one by one, to the bit, whatever travels past it."""
    stage, mixed = make(), [SourceTrouble("x.wav", "is not audio"), *facts, SourceTrouble("y.wav", "is not audio")]
    if hasattr(stage, "push_all"):
        expected = pushed(make(), mixed)
        assert same(stage.push_all(mixed), expected)
        stage = make()
        parts = [mixed[:1], mixed[1:4], [], mixed[4:11], mixed[11:]]
        assert same([out for part in parts for out in stage.push_all(part)], expected)


ALL = [
    check_leaves_its_input_alone,
    check_repeats_to_the_bit,
    check_many_at_once_give_the_same,
    check_output_is_read_only,
    check_later_input_changes_no_earlier_output,
    check_forgets_after_flush,
    check_state_is_bounded,
    check_goes_on_from_its_state,
    check_passes_strangers,
]
