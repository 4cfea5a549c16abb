"""File names: natural order and patterns."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.errors import SettingsError
from pipeline.sources._naming import Fields, compile_pattern, natural_key

PLAIN = st.text("abcXYZ0189-", min_size=1, max_size=8)


def test_numbers_in_names_are_ordered_by_value():
    """r2 comes before r10, and leading zeros only decide between equals."""
    names = ["r10.wav", "r2.wav", "R1.wav", "r02.wav", "a.wav", "r2b.wav", "10.wav", "9.wav"]
    assert sorted(names, key=natural_key) == [
        "9.wav",
        "10.wav",
        "a.wav",
        "R1.wav",
        "r02.wav",
        "r2.wav",
        "r2b.wav",
        "r10.wav",
    ]


@given(st.lists(st.text("ab0123456789._", max_size=12), unique=True))
def test_natural_order_is_a_total_order(names):
    """Any names can be compared, and no two different names are equal."""
    backwards = names[::-1]
    assert sorted(names, key=natural_key) == sorted(backwards, key=natural_key)


@given(recording=st.text("abc_019", min_size=1, max_size=8), sensor=PLAIN)
def test_pattern_reads_what_a_template_wrote(recording, sensor):
    """Reading inverts formatting, even if the recording's name holds the text between the fields."""
    name = f"{recording}_mic{sensor}.wav"
    assert compile_pattern("{recording}_mic{sensor}.wav").read(name) == Fields(recording, sensor)


@given(st.datetimes(datetime(1970, 1, 1), datetime(2100, 1, 1)).map(lambda time: time.replace(microsecond=0)), PLAIN)
def test_time_is_read_in_utc(time, sensor):
    """The time written with the same format comes back, aware and in UTC, beside other fields."""
    pattern = compile_pattern("{sensor}_{time:%Y%m%d_%H%M%S}.wav")
    found = pattern.read(f"{sensor}_{time:%Y%m%d_%H%M%S}.wav")
    assert found == Fields(sensor=sensor, time=time.replace(tzinfo=UTC))


def test_fractions_of_a_second_and_days_of_the_year_are_read():
    """strptime's other numeric directives work too."""
    assert compile_pattern("{time:%y%j-%H%M%S.%f}.wav").read("26033-010203.5.wav") == Fields(
        time=datetime(2026, 2, 2, 1, 2, 3, 500000, tzinfo=UTC)
    )


def test_literal_text_is_literal():
    """Dots, brackets and doubled braces of a pattern stand for themselves."""
    pattern = compile_pattern("{{x}}[{recording}].wav")
    assert pattern.read("{x}[a].wav") == Fields("a")
    assert pattern.read("{x}[a]_wav") is None


@pytest.mark.parametrize("name", ["20261301_000000.wav", "2026010_000000.wav", "20260101_000000.flac", "x.wav", ""])
def test_names_that_do_not_fit_are_refused(name):
    """Thirteenth months, missing digits and other endings do not fit."""
    assert compile_pattern("{time:%Y%m%d_%H%M%S}.wav").read(name) is None


@pytest.mark.parametrize(
    ("pattern", "fault"),
    [
        ("{recording}_{channel}.wav", "channel"),
        ("{}.wav", "unknown field"),
        ("{recording:3}.wav", "recording"),
        ("{recording!r}.wav", "recording"),
        ("all.wav", "no field"),
        ("", "no field"),
        ("{recording", "malformed"),
        ("{recording}_{recording}.wav", "twice"),
        ("{time:%Y%m%d}_{time:%Y%m%d}.wav", "twice"),
        ("{time}.wav", "year, month and day"),
        ("{time:%H%M%S}.wav", "year, month and day"),
        ("{time:%Y%m%d%Y}.wav", "twice"),
        ("{time:%Y%m%d_%Q}.wav", "%Q"),
        ("{time:%Y%m%d%}.wav", "directive %"),
        ("*_{sensor}.wav", "wildcard"),
        ("day/{sensor}.wav", "path"),
    ],
)
def test_malformed_patterns_are_refused(pattern, fault):
    """The error names the pattern, what is wrong with it, and a pattern that works."""
    with pytest.raises(SettingsError) as caught:
        compile_pattern(pattern)
    message = str(caught.value)
    assert repr(pattern) in message
    assert fault in message
    assert "{recording}_mic{sensor}.wav" in message
