"""The process that serves the dashboard for a daemon: `python -m pipeline.web`, started by that."""

from __future__ import annotations

import sys

from pipeline.service.companion import UNUSABLE, Parent
from pipeline.service.logs import log
from pipeline.web.server import AddressTaken, serve


def main() -> int:
    parent = Parent.on_standard_input()
    try:
        serve(parent.settings, parent.snapshots())
    except AddressTaken as error:
        log.error(str(error))
        return 1
    except OSError as error:
        log.error("the dashboard cannot be served", address=parent.settings.web.address, why=str(error))
        return UNUSABLE
    return 0


if __name__ == "__main__":
    sys.exit(main())
