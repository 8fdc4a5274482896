"""Stopping containers, and giving limits back without an agent."""
