"""The kernel's control groups: counters and limits."""
