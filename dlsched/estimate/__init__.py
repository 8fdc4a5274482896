"""Estimates about jobs from measurements, as pure functions: no I/O, no clock, no decisions."""
