"""What is shown to a person who starts the daemon by hand."""

from __future__ import annotations

import pytest

from pipeline.daemon.console import passage_in_words


@pytest.mark.parametrize(
    ("probability", "words"), [(0.734, "human 73 %"), (0.99999, "human >99 %"), (None, "somebody is there: human")]
)
def test_no_passage_is_certain(probability, words):
    """A probability is given in percent, but never as 100 %."""
    event = {"type": "passage_started", "label": "human", "probability": probability}
    assert passage_in_words(event).endswith(words)
