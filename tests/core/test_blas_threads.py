"""Results do not depend on the number of BLAS threads, nor on what was imported first."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from threading import Thread

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from pipeline import THREAD_VARIABLES
from pipeline.core.blas_threads import one_thread
from pipeline.learners import GEMSVC, ArrayGEMMEDClassifier, GEMMEDClassifier, MEDClassifier, RobustPCA
from tests.arrays import ALPHA, ARRAY
from tests.conftest import TIMEOUT
from tests.forked import ROOT

AFTERWARDS = """
import json, os, sys
import numpy, scipy.linalg, sklearn.svm
from threadpoolctl import threadpool_info

most = max(library["num_threads"] for library in threadpool_info())
from pipeline.cli import app
from tests.core.test_blas_threads import learned

for arguments in json.loads(sys.argv[1]):
    app(arguments, standalone_mode=False)
after = max(library["num_threads"] for library in threadpool_info())
print(json.dumps({"before": most, "after": after, "learned": learned()}))
"""


def learned() -> dict[str, str]:
    """What every learner makes of samples that are large enough for a threaded product, to the last bit."""
    rng = np.random.default_rng(0)
    y = np.arange(240) % 2
    X = rng.normal(size=(240, 120)) + 0.3 * y[:, None]
    groups = np.arange(240) // 12
    found = {
        "med": MEDClassifier().fit(X, y).predict_proba(X),
        "gem_med": GEMMEDClassifier(max_iter=20).fit(X, y).decision_function(X),
        "gem_svc": GEMSVC().fit(X, y).decision_function(X),
        "pca": RobustPCA(n_components=10).fit(X).transform(X),
        "array": ArrayGEMMEDClassifier().fit(X.reshape(240, 4, 30), y, groups=groups).decision_function(
            X.reshape(240, 4, 30)
        ),
    }  # fmt: skip
    return {name: values.tobytes().hex() for name, values in found.items()}


def test_numpy_first_with_four_threads_gives_the_same_bytes(model, unseen, decisions, tmp_path):
    """Training, replay and every learner, in a process that had loaded numpy, scipy and scikit-learn already."""
    out, decided = tmp_path / "model", tmp_path / "decisions.jsonl"
    labels = str(ARRAY / "labels.csv")
    commands = [
        ["train", str(ARRAY), "--labels", labels, "--model", str(out), "--folds", "2", "--jobs", "1"],
        ["replay", str(unseen), "--model", str(out), "--out", str(decided), "--alpha", str(ALPHA), "--jobs", "1"],
    ]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", AFTERWARDS, json.dumps(commands)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | dict.fromkeys(THREAD_VARIABLES, "4"),
        timeout=TIMEOUT,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["before"] == told["after"] == 4
    for name in ("model.json", "arrays.npz"):
        assert (out / name).read_bytes() == (model / name).read_bytes()
    assert decided.read_bytes() == decisions.read_bytes()
    assert told["learned"] == learned()


def most_threads() -> int:
    return max(library["num_threads"] for library in threadpool_info())


@pytest.fixture
def two_threads():
    with threadpool_limits(2):
        yield


@pytest.mark.usefixtures("two_threads")
def test_limits_are_restored_when_the_last_user_leaves():
    """Nested in one thread, and overlapping in two."""
    before = most_threads()
    with one_thread:
        with one_thread:
            assert most_threads() == 1
        assert most_threads() == 1
        other = Thread(target=one_thread.__enter__)
        other.start()
        other.join()
    assert most_threads() == 1
    one_thread.__exit__()
    assert most_threads() == before


@pytest.mark.usefixtures("two_threads")
def test_limits_are_restored_after_an_error():
    """As after any other end of a fit."""
    before = most_threads()
    with pytest.raises(ValueError, match="class"):
        MEDClassifier().fit(np.zeros((4, 2)), np.zeros(4))
    assert most_threads() == before
