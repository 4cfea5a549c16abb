"""Where sound comes from: files, streams, sound cards, folders, the broker, the simulated array."""
