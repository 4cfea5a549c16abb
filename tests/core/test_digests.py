"""A SHA-256 that can be interrupted, against that of hashlib."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core import digests
from pipeline.core.digests import Sha256


@pytest.fixture(params=["fastest", "slowly"])
def way(request, monkeypatch):
    """OpenSSL's compression, and ours."""
    if request.param == "slowly":
        monkeypatch.setattr(digests, "_compress", digests.compressed_slowly)


@pytest.mark.parametrize("length", [0, 1, 55, 56, 63, 64, 65, 119, 120, 1000])
def test_it_is_that_of_hashlib(way, length):
    """At all lengths around the ends of blocks."""
    data = bytes(k * k % 251 for k in range(length))
    digest = Sha256()
    digest.update(data)
    assert digest.hexdigest() == hashlib.sha256(data).hexdigest()


@given(st.lists(st.binary(max_size=200), max_size=8))
def test_it_may_be_interrupted_anywhere(pieces):
    """Each piece is taken by another one, which knows nothing but the state of the one before."""
    digest = Sha256()
    for piece in pieces:
        digest = Sha256(digest.words, digest.pending, digest.length)
        digest.update(piece)
    assert digest.hexdigest() == hashlib.sha256(b"".join(pieces)).hexdigest()


def test_both_ways_share_their_states():
    """A machine whose OpenSSL cannot be reached goes on where another one was."""
    block = bytes(range(64))
    assert digests._compress(Sha256().words, 3 * block) == digests.compressed_slowly(Sha256().words, 3 * block)
