"""One cycle: from facts to decisions to actions. Pure but for the logger."""
