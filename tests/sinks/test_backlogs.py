"""How many events wait for other machines."""

from __future__ import annotations

from pipeline.sinks.forwarding import Route, backlogs
from pipeline.sinks.journal import Entry, Journal


def test_what_waits_is_counted_for_each_target_that_was_ever_used(tmp_path):
    with Journal(tmp_path / "journal.sqlite") as journal:
        ids = journal.append([Entry("r", {"type": kind}) for kind in ("decision", "tick", "gap", "decision")])
        journal.execute("INSERT INTO deliveries (target, last_id, dropped) VALUES ('mqtt', ?, 7)", (ids[0],))
        routes = [Route("mqtt", ("decision", "gap"), 100), Route("webhook", ("gap",), 100)]
        assert backlogs(journal, routes) == {"mqtt": {"waiting": 2, "dropped": 7}}
        assert backlogs(journal, []) == {}
