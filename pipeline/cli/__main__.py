"""`python -m pipeline.cli`."""

import sys

from pipeline.cli import app

sys.exit(app())
