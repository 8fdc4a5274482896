"""The cluster's policies, one per file: where jobs start, and which running jobs move."""
