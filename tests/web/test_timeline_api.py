"""GET /api/v1/timeline, of a state directory that was made for it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

import pytest

from pipeline.storage.journal import Journal, JournalEntry
from tests.web.served import Served, served

START = datetime(2026, 5, 1, 4, 0, tzinfo=UTC)


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[Served]:
    directory = tmp_path_factory.mktemp("timeline")
    with served(directory) as made:
        made.state.create()
        with Journal(made.state.journal) as journal:
            journal.execute(
                "INSERT INTO recordings VALUES ('one', 'first', 1000, 4, '{}', ?, 600000)", (START.isoformat(),)
            )
            told = {"sensor": 3, "to": "bad", "causes": ["flat"]}
            body = {"type": "state_changed", "recording": "one", "sample": 60_000, **told}
            journal.append([JournalEntry("first", body, "one", 60_000, START + timedelta(seconds=60))])
        yield made


def asked(server: Served, **given: object) -> tuple[int, dict]:
    query = "&".join(f"{name}={quote(str(value))}" for name, value in given.items())
    return server.ask(f"/api/v1/timeline?{query}")


def test_the_time_that_was_asked_for_is_answered(server):
    code, found = asked(server, begin="2026-05-01T04:02:00Z", end="2026-05-01T04:12:00Z", bins=600)
    assert code == 200
    (bad, unknown) = found["sensors"][2]["states"]
    assert (bad["kind"], bad["why"], unknown["kind"]) == ("bad", "flat", "unknown")
    assert bad["begin"] == datetime(2026, 5, 1, 4, 2, tzinfo=UTC).timestamp()
    assert unknown["begin"] == datetime(2026, 5, 1, 4, 10, tzinfo=UTC).timestamp()
    assert [one["kind"] for one in found["listening"]] == ["heard", "not_listening"]


def test_without_a_question_the_last_hour_is_told(server):
    code, found = server.ask("/api/v1/timeline")
    assert code == 200
    assert found["end"] - found["begin"] == pytest.approx(3600)
    assert [one["kind"] for one in found["listening"]] == ["not_listening"]


@pytest.mark.parametrize(
    "given",
    [
        {"begin": "yesterday"},
        {"begin": "0001-01-01T00:00:00+14:00"},
        {"end": "9999-12-31T23:59:59-14:00"},
        {"begin": "-99999999999999d"},
        {"begin": "2026-05-01", "end": "2026-04-01"},
        {"begin": "1990-01-01", "end": "2026-04-01"},
    ],
    ids=json.dumps,
)
def test_a_time_that_makes_no_sense_is_refused_in_words(server, given):
    code, answer = asked(server, **given)
    assert code == 400
    assert "must" in answer["error"]


@pytest.mark.parametrize("bins", [0, 2001, "many"])
def test_the_number_of_steps_is_bounded(server, bins):
    assert asked(server, bins=bins)[0] == 422
