"""What it costs that a cluster replays recordings, and not a process of this machine."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.replay import GRID, examples_of, write_recordings
from pipeline.core.choices import Choices
from pipeline.reports.replay import Replay
from pipeline.runtime.dask_pool import joined
from pipeline.runtime.process_pool import Engine, LocalEngine
from pipeline.sources.files import Recording, find_recordings
from pipeline.training.fit import learn


def replay_overhead_ratio(*, n_recordings: int = 24, repeats: int = 3) -> float:
    """Seconds for a recording by a worker with one thread, over those by a process of this machine.

    Both do the same replay in turns; the median of some. Counted from the first result on: the one has to start a
    process, the other has one that waits.
    """
    from distributed import LocalCluster

    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        examples, settings = examples_of(place / "training", write_recordings(place / "training", 16, 1))
        learn(examples, GRID, settings, seed=0).save(place / "model")
        write_recordings(place / "replayed", n_recordings, 2)
        recordings, task = find_recordings(place / "replayed").recordings, Replay(place / "model", Choices())
        options = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": None, "local_directory": temporary}
        with (
            LocalCluster(host="127.0.0.1", **options) as cluster,
            joined(cluster.scheduler_address) as far,
            LocalEngine(1) as near,
        ):
            for engine in (far, near):  # imports are done, the model is read
                _seconds(engine, task, recordings)
            pairs = [[_seconds(engine, task, recordings) for engine in (far, near)] for _ in range(repeats)]
    by_cluster, by_process = np.median(pairs, axis=0)
    return float(by_cluster / by_process)


def _seconds(engine: Engine, task: Replay, recordings: Sequence[Recording]) -> float:
    results = engine.finished(task.events, recordings)
    next(results)
    start = time.perf_counter()
    assert sum(1 for _ in results) == len(recordings) - 1
    return time.perf_counter() - start
