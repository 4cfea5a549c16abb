"""The process and its machine: logs, systemd, child processes, pools of workers, the state directory."""
