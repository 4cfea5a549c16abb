"""From labeled recordings to a model."""
