"""Replay, verification, evaluation, explanation and sensor health of recorded sound, as tables, figures and pages."""
