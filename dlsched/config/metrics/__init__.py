"""Where a job's progress is read from: the keys, the presets, and the sources that they make."""
