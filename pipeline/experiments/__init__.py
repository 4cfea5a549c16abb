"""The published experiments, measured again, and a grid of corrupted training sets."""
