"""Events, errors, protocols, framing, exact arithmetic, checkpoints and the loop: what all other packages share."""
