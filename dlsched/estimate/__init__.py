"""Pure estimation: what measurements say about a job. No I/O, no clock, no decisions."""
