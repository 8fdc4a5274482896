"""One control cycle: facts, decision, guards, plan, actions. Pure except for the logger."""
