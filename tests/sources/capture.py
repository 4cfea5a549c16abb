"""Records a sound card and tells every fact as a line of JSON; a process of its own, for ALSA is configured once."""

from __future__ import annotations

import json
import sys

import numpy as np

from pipeline.core.errors import SourceError
from pipeline.core.events import Block, RecordingStarted
from pipeline.sources.soundcard import SoundcardSource


def tell(kind, **fields):
    print(json.dumps({"kind": kind, **fields}), flush=True)


def as_fields(fact):
    if not isinstance(fact, Block):
        return {name: getattr(fact, name) for name in fact.__dataclass_fields__}
    assert fact.delivered.all()
    return {"start": fact.start, "frames": np.round(fact.samples.T * 32768).astype("<i2").tobytes().hex()}


def record(device, samples, hold, options):
    """So many samples; `hold` waits after the first fact for a line on standard input."""
    with SoundcardSource(device, **options) as source:
        for fact in source:
            tell(type(fact).__name__, **as_fields(fact))
            if hold and isinstance(fact, RecordingStarted):
                sys.stdin.readline()
            if getattr(fact, "stop", 0) >= samples:
                return


def main(device, *, samples, hold=False, attempts=1, **options):
    """After an error it waits for a line on standard input, and tries again if it has attempts left."""
    for left in reversed(range(attempts)):
        try:
            record(device, samples, hold, options)
        except SourceError as error:
            tell("error", message=str(error))
            if left:
                sys.stdin.readline()
        else:
            break
    tell("closed")


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
