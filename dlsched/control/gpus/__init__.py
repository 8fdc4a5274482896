"""GPUs of jobs: placement, queue, reservations, and moves that make room."""
