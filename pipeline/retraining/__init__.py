"""Learning beside a daemon: examples, schedule, gate, registry, the controlling thread and the worker process."""
