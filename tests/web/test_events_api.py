"""What happened, as the API tells it."""

from __future__ import annotations

import jsonschema
import pytest

from tests.conftest import eventually


@pytest.fixture(scope="module")
def schema(dashboard):
    found = dashboard.answer("/events.schema.json")
    jsonschema.Draft202012Validator.check_schema(found)
    return found


def test_every_event_is_as_its_schema_says(dashboard, schema):
    found = eventually(
        lambda: len(told := dashboard.answer("/api/v1/events?most=1000").get("events", [])) > 20 and told, "events"
    )
    says = jsonschema.Draft202012Validator(schema)
    for event in found:
        says.validate(event)


def test_pages_of_events_make_up_the_journal(dashboard):
    """From the beginning in portions, each once, in order."""
    with dashboard.journal() as journal:
        stored = [event.as_dict() for event in journal.events()]
    found, after = [], 0
    while len(found) < len(stored):
        portion = dashboard.answer(f"/api/v1/events?after={after}&most=7")["events"]
        found += portion
        after = portion[-1]["id"]
    assert found[: len(stored)] == stored


def test_only_those_that_are_wanted(dashboard):
    found = dashboard.answer("/api/v1/events?types=decision&types=state_changed&newest_first=true&most=20")["events"]
    assert {event["type"] for event in found} <= {"decision", "state_changed"}
    assert [event["id"] for event in found] == sorted((event["id"] for event in found), reverse=True)
    one = found[0]
    assert dashboard.answer(f"/api/v1/events/{one['id']}") == one
