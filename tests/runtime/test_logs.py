"""Lines of the log, as real processes write them."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import TIMEOUT

START = "from pipeline.runtime.logs import log, start_logging\n"


def told(code: str, *, format: str = "json", level: str = "info", **options) -> str:
    """What a process that runs `code` writes to standard error."""
    code = f"{START}start_logging({level!r}, {format!r})\n{code}"
    done = subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE, check=True, timeout=TIMEOUT, **options)
    return done.stderr.decode()


def test_machines_get_one_json_object_a_line():
    """Time in UTC, level, message, fields with their types."""
    before = datetime.now(UTC) - timedelta(milliseconds=1)
    line = told("log.info('source opened', address='tcp://127.0.0.1:5000', rate_hz=16000, share=0.5, device=None)")
    parsed = json.loads(line)
    assert before <= datetime.fromisoformat(parsed.pop("time")) <= datetime.now(UTC)
    assert parsed == {
        "level": "info",
        "message": "source opened",
        "fields": {"address": "tcp://127.0.0.1:5000", "rate_hz": 16000, "share": 0.5, "device": None},
    }


def test_people_get_time_level_message_and_fields():
    line = told("log.warning('source stuck', source='USB Audio', seconds=30, why='')", format="text")
    expected = r'\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z warning source stuck source="USB Audio" seconds=30 why=""\n'
    assert re.fullmatch(expected, line)


def test_what_is_below_the_level_is_not_told():
    code = "log.debug('a'); log.info('b'); log.warning('c'); log.error('d')"
    assert [json.loads(line)["message"] for line in told(code, level="warning").splitlines()] == ["c", "d"]


def test_called_again_it_replaces_what_it_did():
    """As after a change of settings: each line once, at the new level."""
    lines = told("start_logging('error', 'text'); log.warning('a'); log.error('b')").splitlines()
    assert [line.split()[1:] for line in lines] == [["error", "b"]]


def test_auto_is_json_where_nobody_looks_on():
    assert json.loads(told("log.info('a')", format="auto"))["message"] == "a"


def test_auto_is_text_on_a_terminal():
    near, far = pty.openpty()
    code = f"{START}start_logging('info', 'auto'); log.info('on a terminal')"
    subprocess.run([sys.executable, "-c", code], stderr=far, check=True, timeout=TIMEOUT)
    os.close(far)
    line = os.read(near, 4096).decode()
    os.close(near)
    assert line.endswith(" info    on a terminal\r\n")


def test_auto_is_text_with_priorities_in_the_journal(tmp_path):
    """Only where the descriptor is the one that systemd named."""
    code = "log.debug('a'); log.info('b', n=1); log.warning('c'); log.error('d')"
    path = tmp_path / "journal"
    for name, expected in ((None, "<7>a\n<6>b n=1\n<4>c\n<3>d\n"), ("1:1", '{"time"')):
        with path.open("wb") as journal:
            stream = os.fstat(journal.fileno())
            environment = os.environ | {"JOURNAL_STREAM": name or f"{stream.st_dev}:{stream.st_ino}"}
            code_there = f"{START}start_logging('debug', 'auto')\n{code}"
            subprocess.run(
                [sys.executable, "-c", code_there], stderr=journal, env=environment, check=True, timeout=TIMEOUT
            )
        assert path.read_text().startswith(expected)


@given(st.lists(st.text(), min_size=1, max_size=4))
def test_a_line_stays_a_line(texts):
    """Whatever the message, a name or a value holds: no line ends, no control characters, nothing lost."""
    from pipeline.runtime import logs

    record = logs._record(20, texts[0], {text: text for text in texts} | {"list": texts})
    for format in (logs._for_people, logs._for_journal, logs._for_machines):
        line = format(record)
        assert line.isprintable()
        assert len(line.encode().splitlines()) == 1
    assert json.loads(logs._for_machines(record))["fields"]["list"] == texts


def test_a_percent_sign_or_a_field_named_as_python_names_them_is_nothing_special():
    line = told("log.info('100 %s full', message='m', level=3, name='n', args=1, msg=2)")
    parsed = json.loads(line)
    assert parsed["message"] == "100 %s full"
    assert parsed["fields"] == {"message": "m", "level": 3, "name": "n", "args": 1, "msg": 2}


def test_an_exception_brings_its_traceback_within_the_line():
    line = told("try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    log.exception('retraining failed', error=e)")
    fields = json.loads(line)["fields"]
    assert fields["error"] == "ZeroDivisionError: division by zero"
    assert fields["traceback"].endswith("ZeroDivisionError: division by zero")


def test_what_json_has_not_becomes_text():
    line = told("from pathlib import Path; log.info('a', nan=float('nan'), path=Path('/x'), set={1})")
    assert json.loads(line)["fields"] == {"nan": "nan", "path": "/x", "set": [1]}


def test_others_are_heard_from_warnings_upward():
    """Of other packages and of Python's own warnings."""
    code = """
import logging, warnings
logging.getLogger("other").info("quiet")
logging.getLogger("other").warning("loud %d", 1)
warnings.warn("old\\nway")
"""
    lines = [json.loads(line) for line in told(code).splitlines()]
    assert lines[0]["message"] == "loud 1"
    assert "old\nway" in lines[1]["message"]
    assert len(lines) == 2


def test_a_full_disk_stops_nobody():
    """/dev/full refuses every byte."""
    with open("/dev/full", "wb") as full:
        code = f"{START}start_logging('info', 'json')\nlog.info('a')\nprint('alive')"
        done = subprocess.run(
            [sys.executable, "-c", code], stderr=full, stdout=subprocess.PIPE, check=True, timeout=TIMEOUT
        )
    assert done.stdout == b"alive\n"


def test_a_broken_pipe_stops_nobody_and_lost_lines_are_told_later(tmp_path):
    """A descriptor that cannot be written first and can later: a FIFO that loses its reader and finds another."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    code = f"""
import os, signal
from tests.conftest import TIMEOUT
{START}
reader = os.open({str(fifo)!r}, os.O_RDONLY | os.O_NONBLOCK)
start_logging('info', 'text', descriptor=os.open({str(fifo)!r}, os.O_WRONLY))
os.close(reader)
log.info('a'); log.info('b')
reader = os.open({str(fifo)!r}, os.O_RDONLY | os.O_NONBLOCK)
log.info('c')
print(os.read(reader, 9999).decode())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=TIMEOUT)
    lines = [line.split(maxsplit=1)[1] for line in done.stdout.splitlines() if line]
    assert lines == ["warning lines of this log were lost lines=2", "info    c"]
    assert done.stderr == ""


def test_without_a_standard_error_no_other_file_is_written(tmp_path):
    """Its number is free then, and the next file that is opened gets it."""
    path = tmp_path / "precious"
    code = f"""
{START}
start_logging('info', 'text')
with open({str(path)!r}, 'w') as precious:
    number = precious.fileno()
    log.info('a')
print(number)
"""
    command = ["/bin/sh", "-c", 'exec "$0" -c "$1" 2>&-', sys.executable, code]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=TIMEOUT)
    assert done.stdout == b"2\n"
    assert path.read_bytes() == b""
