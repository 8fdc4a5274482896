"""Policies as their papers print them."""
