"""The daemon's process: wiring, loop, signals, systemd, delivery hook, and giving limits back."""
