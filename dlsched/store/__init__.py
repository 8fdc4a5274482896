"""What outlives the process: whole files, records of jobs, the journal."""
