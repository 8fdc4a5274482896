"""What must not lose, break or grow: deaths at every point, fuzzing, a long run."""
