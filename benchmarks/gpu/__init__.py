"""GPUs: pacing, placement and moves, on a real one or on stand-ins."""
