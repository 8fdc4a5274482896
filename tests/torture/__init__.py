"""Crash consistency: a real agent is killed at every point where it changes something outside."""
