"""The dashboard: pages, an API with server-sent events, metrics; a process of its own beside the daemon."""
