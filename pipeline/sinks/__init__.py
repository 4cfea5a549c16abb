"""Where facts go."""
