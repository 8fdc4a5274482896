"""Moves of jobs to other GPUs."""
