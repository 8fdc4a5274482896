"""Trainings, for the policy `adaptive`."""
