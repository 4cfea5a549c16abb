"""Many arrays: one log of sound, one task per array wherever there is a worker, the same pipeline."""
