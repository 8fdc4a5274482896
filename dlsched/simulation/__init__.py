"""The laboratory: a simulated node, traces, scores, replays, plots."""
