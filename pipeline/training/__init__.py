"""From labelled recordings to a model."""
