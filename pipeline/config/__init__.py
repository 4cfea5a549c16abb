"""Settings of the daemon in strict TOML, and the messages about wrong ones."""
