"""Sources of a job's progress: sidecar files, endpoints, printed lines."""
