"""The process that serves the dashboard for a daemon: `python -m pipeline.web`, started by that."""

from __future__ import annotations

import sys

from pipeline.core.errors import GemmedError
from pipeline.runtime.child_process import Parent
from pipeline.runtime.logs import log
from pipeline.web.server import serve


def main() -> int:
    parent = Parent.on_standard_input()
    try:
        serve(parent.settings, parent.snapshots())
    except GemmedError as error:
        # The daemon tries again: an address may become free, a certificate be renewed.
        log.error("the dashboard cannot be served", why=str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
