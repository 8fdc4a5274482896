"""The journal: every cycle kept exactly, within bounds of size and age. It is history only."""
