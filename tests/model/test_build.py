"""A chain that decides: small, and ready."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np

from pipeline.core.choices import Choices
from pipeline.core.fourier import LIBRARY
from pipeline.model.build import warmed_chain, whole_chain
from pipeline.model.model import Model
from pipeline.sources.files import FileSource, find_recordings
from tests.arrays import ALPHA
from tests.forked import ROOT

DECIDES = """
import json, sys
from pathlib import Path
from pipeline.core.events import Decision
from pipeline.core.choices import Choices
from pipeline.model.build import loaded, whole_chain
from pipeline.sources.files import FileSource, find_recordings

chain = whole_chain(loaded(Path(sys.argv[1])), Choices())
with FileSource(find_recordings(Path(sys.argv[2]))) as source:
    decided = sum(isinstance(out, Decision) for fact in source for out in chain.push(fact))
print(json.dumps([decided, sorted({name.split(".")[0] for name in sys.modules})]))
"""


def test_deciding_loads_nothing_that_only_training_needs(model, unseen):
    """Neither compilers nor tables nor scikit-learn stay for months, scipy only where ducc0 is missing."""
    command = [sys.executable, "-c", DECIDES, str(model), str(unseen)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
    decided, loaded = json.loads(done.stdout)
    assert decided > 20
    assert {"numpy", LIBRARY} <= set(loaded)
    assert ("scipy" in loaded) == (LIBRARY == "scipy")
    assert not set(loaded) & {"sklearn", "numba", "llvmlite", "librosa", "pandas", "matplotlib", "cvxpy"}


def test_a_warmed_chain_decides_like_a_new_one(model, unseen):
    """What it has heard to become warm is in no later fact."""
    known, choices = Model.load(model), Choices(alpha=ALPHA)
    warmed, new = (told(make(known, choices), unseen) for make in (warmed_chain, whole_chain))
    assert warmed == new
    assert sum(fact.startswith("Decision(") for fact in new) > 20


def told(chain, recordings):
    """All that comes out, to the last digit."""
    with FileSource(find_recordings(recordings)) as source, np.printoptions(floatmode="unique", threshold=sys.maxsize):
        return [repr(out) for fact in source for out in chain.push(fact)]
