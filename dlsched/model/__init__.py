"""Frozen values that all layers share: what is asked, measured, decided and done."""
