"""The folder of job files: read, checked, watched, submitted to."""
