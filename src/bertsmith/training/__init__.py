"""Losses become weights."""
