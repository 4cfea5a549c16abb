"""The long tests end with one table: what was done, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

_FIGURE = "figure"
_HERE = "tests/soak/"


@pytest.fixture
def report(record_property) -> Callable[..., None]:
    """Tell what a test has done, in numbers: `report(kills=100)`."""

    def tell(**figures: float) -> None:
        for name, value in figures.items():
            record_property(_FIGURE, f"{value:,} {name.replace('_', ' ')}")

    return tell


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    rows = [("test", "result", "what was done"), *_rows(terminalreporter)]
    if len(rows) == 1:
        return
    terminalreporter.section("soak")
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        terminalreporter.line("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _rows(terminalreporter: pytest.TerminalReporter) -> Iterator[tuple[str, str, str]]:
    for outcome in ("passed", "failed", "error", "skipped"):
        for found in terminalreporter.getreports(outcome):
            if found.nodeid.startswith(_HERE):
                done = ", ".join(value for name, value in found.user_properties if name == _FIGURE)
                test = found.nodeid.removeprefix(_HERE).replace(".py::", ": ").replace("_", " ")
                yield test, f"{outcome} in {found.duration:.0f} s", done
