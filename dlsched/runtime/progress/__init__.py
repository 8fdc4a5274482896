"""Where a job's progress is read: sidecar files, endpoints, printed lines."""
