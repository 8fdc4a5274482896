"""The state of all jobs: takes in facts and returns one snapshot."""
