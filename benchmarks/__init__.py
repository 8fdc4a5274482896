"""What was measured, and how: `python -m benchmarks list` shows every bench."""
