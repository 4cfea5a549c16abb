"""Signed links: what they open, and that any other form of them opens nothing."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.outputs.clip_links import Links, refused

KEY = b"k" * 32
NOW = 1_780_000_000.5
LINKS = Links("https://field.example.org/gemmed", KEY, 3600)


def parts(link: str) -> tuple[str, str]:
    """The passage and the query, as a server receives them."""
    split = urlsplit(link)
    return unquote(split.path.split("/")[-2]), split.query


@given(st.text(st.characters(codec="ascii", categories=("L", "N", "P", "S")), min_size=1, max_size=40))
def test_a_link_is_valid_for_its_passage_until_it_expires(passage):
    name, query = parts(LINKS.clip(passage, NOW))
    assert name == passage
    assert refused(KEY, passage, query, NOW) is None
    assert refused(KEY, passage, query, NOW + 3599) is None
    assert "expired" in refused(KEY, passage, query, NOW + 3600)
    assert "signature" in refused(KEY, f"{passage}x", query, NOW)
    assert "signature" in refused(b"x" * 32, passage, query, NOW)


@pytest.mark.parametrize(
    "change",
    [
        lambda query: query.replace("mix=true", "mix=false"),
        lambda query: f"{query}&sensor=2",
        lambda query: f"sensor=2&{query}",
        lambda query: query[:-1],
        lambda query: f"{query}0",
        lambda query: query.replace("expires=1", "expires=2"),
        lambda query: query.replace("expires=1", "expires=01"),
        lambda query: query.replace("expires=1", "expires=-1"),
        lambda query: query.partition("&signature=")[0],
        lambda query: query.replace("signature=", "signature=\u00e9"),
        lambda query: query.upper(),
        lambda query: "signature=",
        lambda query: "",
    ],
)
def test_a_link_that_was_changed_is_refused(change):
    passage, query = parts(LINKS.clip("r.p1", NOW))
    assert refused(KEY, passage, query, NOW) is None
    assert refused(KEY, passage, change(query), NOW) is not None
