"""The sound that models were learned from is found again, and never another one."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import soundfile

from pipeline.config.schema import read_settings
from pipeline.core.errors import NotFound
from pipeline.model.model import Model
from pipeline.reports.reference_audio import ReferenceSegment, ReferenceSounds
from pipeline.retraining.bootstrap import from_simulation
from pipeline.sources.factory import simulated_site
from pipeline.stages import Projection
from pipeline.storage.audio import SoundStore
from pipeline.storage.journal import Journal
from tests.arrays import ARRAY


@pytest.fixture
def sounds(tmp_path):
    """By settings that begin with some lines."""
    opened = []

    def made(lines: str) -> ReferenceSounds:
        (tmp_path / "gemmed.toml").write_text(lines)
        opened.append(Journal(tmp_path / "journal.sqlite"))
        settings = read_settings(tmp_path / "gemmed.toml")
        return ReferenceSounds(settings, opened[-1], SoundStore(tmp_path / "sound", opened[-1]))

    yield made
    for journal in opened:
        journal.close()


def test_files_are_found_by_their_names(sounds, model):
    learned = Model.load(model)
    finder = sounds(f'[training]\nrecordings = "{ARRAY}"\nlabels = "{ARRAY / "labels.csv"}"\n')
    for index in range(0, len(learned.memory.start), 17):
        reference = ReferenceSegment(learned, index)
        expected, _ = soundfile.read(next(ARRAY.glob(f"{reference.recording}.*")), dtype="float32")
        assert finder.why_silent(reference) is None
        assert (finder.samples(reference) == expected[reference.start : reference.stop].T).all()


def learned_from_simulation(learned: Model, finder: ReferenceSounds) -> ReferenceSegment:
    """As if the first segment of the model were one of a simulated site."""
    site = simulated_site(finder._settings)
    heard, _ = from_simulation(site, classes=learned.classes).hear("starter-002")
    (features,) = Projection(learned.summary, learned.timing).push(heard.segments[3])
    index = int(np.flatnonzero(np.isfinite(learned.reference.distances).all(axis=1))[0])
    remembered, start = learned.reference.features.copy(), learned.memory.start.copy()
    remembered[:, :, index], start[index] = features.summary, features.span.start
    notes = json.loads(json.dumps(learned.notes))
    notes["recordings"][learned.memory.recording[index]]["recording"] = "starter-002@0"
    model = replace(
        learned,
        reference=replace(learned.reference, features=remembered),
        memory=replace(learned.memory, start=start),
        notes=notes,
    )
    return ReferenceSegment(model, index)


SITE = '[array]\nrate = "4 kHz"\n[source]\nkind = "simulated"\nseed = {}\n'


def test_a_simulated_site_is_heard_again(sounds, model):
    finder = sounds(SITE.format(3))
    reference = learned_from_simulation(Model.load(model), finder)
    samples = finder.samples(reference)
    assert samples.shape == (4, reference.model.grid.segment)
    assert samples.any(axis=1).all()


def test_another_site_is_not_taken_for_the_one_that_was_learned_from(sounds, model):
    reference = learned_from_simulation(Model.load(model), sounds(SITE.format(3)))
    with pytest.raises(NotFound, match=r"starter-002 differs from the sound that model .* was trained on"):
        sounds(SITE.format(4)).samples(reference)


def test_what_is_nowhere_is_said_so(sounds, model):
    reference = ReferenceSegment(Model.load(model), 0)
    finder = sounds('[source]\nkind = "pcm"\n')
    with pytest.raises(NotFound, match="heard elsewhere"):
        finder.samples(reference)


def test_what_had_to_make_room_is_said_so(sounds, model):
    finder = sounds(SITE.format(3))
    reference = ReferenceSegment(Model.load(model), 0)
    finder._journal.execute(
        "INSERT INTO recordings (name, run, rate_hz, sensors, choices, started_at) VALUES (?, 'r', 4000, 4, '{}', '')",
        (reference.recording,),
    )
    with pytest.raises(NotFound, match="had to make room"):
        finder.samples(reference)
