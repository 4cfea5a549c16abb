"""The HTML page of `gemmed health`."""
