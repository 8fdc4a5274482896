"""Real containers: services and trainings under each policy, and the session they run in."""
