"""Where the benches keep what they write and read, whichever folder asks."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parent.parent
"""The checkout: what `python -m benchmarks` and the daemon's own policies are imported from."""
RESULTS = ROOT / "benchmarks" / "results"
"""Committed: result files and pictures."""
KEPT = ROOT / ".build" / "bench"
"""Not committed: journals of runs, for parts that read them again."""
