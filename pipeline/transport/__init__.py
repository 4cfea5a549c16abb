"""Facts of a source as messages, and the client of NATS JetStream."""
