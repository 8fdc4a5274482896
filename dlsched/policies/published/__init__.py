"""Policies from papers, implemented as published."""
