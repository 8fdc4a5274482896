"""Judgements, pure and the same for every policy: who met a target, when, and what it took."""
