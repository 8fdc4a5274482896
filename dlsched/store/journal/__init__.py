"""The journal: every cycle kept exactly, for as long as its bounds allow.

Owns the history file. `writer` writes it off the loop's path, `reader` answers questions beside the
running daemon, `coding` turns reports into rows, `frames` tells what changed, `changes` what is
worth a row of its own; `store` and `schema` are the file. It must not decide anything: what is lost
with it is history, never a job.
"""
