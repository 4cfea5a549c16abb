"""One owner at a time, by the clock of a real broker."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from pipeline.fleet.lease import Lease, LeaseLost, new_owner, owner_of
from pipeline.transport.nats import Broker, Bucket
from tests.conftest import eventually
from tests.fleet.broker import Nats

SECONDS = 60.0
BRIEF_SECONDS = 4.0
"""Where it has to run out."""


@pytest.fixture(scope="module")
def nats(tmp_path_factory):
    with Nats(tmp_path_factory.mktemp("nats")) as broker:
        yield broker


@pytest.fixture
def bucket(nats, request) -> Iterator[Bucket]:
    with Broker(nats.access(), name="test") as broker:
        yield broker.bucket(f"leases-{abs(hash(request.node.name))}", expires_seconds=SECONDS)


@pytest.fixture
def brief(nats, request) -> Iterator[Bucket]:
    with Broker(nats.access(), name="test") as broker:
        yield broker.bucket(f"brief-{abs(hash(request.node.name))}", expires_seconds=BRIEF_SECONDS)


def test_of_many_only_one_takes_it(nats, bucket):
    """All at once, each with a connection of its own."""
    name = bucket._bucket._name

    def take(owner: str) -> bool:
        with Broker(nats.access(), name=owner) as broker:
            return Lease(broker.bucket(name), "north", owner, seconds=SECONDS).take()

    owners = [new_owner() for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        taken = dict(zip(owners, pool.map(take, owners), strict=True))
    assert [owner for owner, got_it in taken.items() if got_it] == [owner_of(bucket, "north")]


def test_other_things_are_others(bucket):
    assert Lease(bucket, "north", "a", seconds=SECONDS).take()
    assert Lease(bucket, "south", "b", seconds=SECONDS).take()


def test_who_renews_it_keeps_it(brief):
    """For twice as long as it lasts by itself, while another one tries all the time."""
    mine, other = Lease(brief, "north", "a", seconds=BRIEF_SECONDS), Lease(brief, "north", "b", seconds=BRIEF_SECONDS)
    assert mine.take()
    renewed = []

    def renew() -> bool:
        if mine.is_due:
            mine.renew()
            renewed.append(mine._renewed_at)
        assert not other.take()
        return renewed and renewed[-1] - renewed[0] > 2 * BRIEF_SECONDS

    eventually(renew, every=0.01)
    assert owner_of(brief, "north") == "a"


def test_it_is_due_after_a_fifth_of_its_time(bucket):
    now = [100.0]
    lease = Lease(bucket, "north", "a", seconds=SECONDS, steady=lambda: now[0])
    assert lease.take()
    assert not lease.is_due
    now[0] += SECONDS / 5 + 0.01
    assert lease.is_due


def test_who_does_not_renew_it_loses_it(brief):
    """By the broker's clock; he learns of it when he asks, and others have it meanwhile."""
    mine, other = Lease(brief, "north", "a", seconds=BRIEF_SECONDS), Lease(brief, "north", "b", seconds=BRIEF_SECONDS)
    assert mine.take()
    assert not other.take()
    eventually(other.take, every=0.05)
    with pytest.raises(LeaseLost, match="lease of north"):
        mine.renew()
    assert owner_of(brief, "north") == "b"
    other.renew()


def test_another_one_has_it_although_no_time_has_passed_here(brief):
    """A machine that stood still does not know how long; the revision tells."""
    mine = Lease(brief, "north", "a", seconds=BRIEF_SECONDS, steady=lambda: 0.0)
    other = Lease(brief, "north", "b", seconds=BRIEF_SECONDS)
    assert mine.take()
    eventually(other.take, every=0.05)
    with pytest.raises(LeaseLost, match="somebody else's by now"):
        mine.renew()
    mine.release()
    assert owner_of(brief, "north") == "b"


def test_it_is_not_renewed_after_its_time_even_if_nobody_took_it(bucket):
    """By the own clock: somebody may have had it and given it back."""
    now = [0.0]
    lease = Lease(bucket, "north", "a", seconds=SECONDS, steady=lambda: now[0])
    assert lease.take()
    now[0] = SECONDS + 0.01
    with pytest.raises(LeaseLost, match="ran out"):
        lease.renew()


def test_the_same_owner_takes_it_up_again(nats, bucket):
    """When only his connection broke; one with another name waits."""
    assert Lease(bucket, "north", "a", seconds=SECONDS).take()
    with Broker(nats.access(), name="again") as broker:
        again = Lease(broker.bucket(bucket._bucket._name), "north", "a", seconds=SECONDS)
        assert again.take()
        again.renew()
        assert not Lease(bucket, "north", "b", seconds=SECONDS).take()


def test_released_it_is_free_at_once(bucket):
    mine, other = Lease(bucket, "north", "a", seconds=SECONDS), Lease(bucket, "north", "b", seconds=SECONDS)
    assert mine.take()
    mine.release()
    assert owner_of(bucket, "north") is None
    assert other.take()
    mine.release()  # of what he does not have nothing comes
    assert owner_of(bucket, "north") == "b"
    with pytest.raises(LeaseLost):
        mine.renew()
