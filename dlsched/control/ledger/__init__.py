"""What is known of each job, folded from facts; one snapshot out."""
