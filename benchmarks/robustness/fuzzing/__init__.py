"""What the bench `fuzz` tries: inputs made to break a reader, and what each reader promises."""
