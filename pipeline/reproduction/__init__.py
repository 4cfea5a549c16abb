"""The published experiments, measured again. What is written is what was measured."""
