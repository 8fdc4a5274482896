"""The process: wiring, loop, signals, systemd, hooks, giving back."""
