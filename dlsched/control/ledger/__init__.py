"""What is known of each job: takes in facts, returns one snapshot."""
