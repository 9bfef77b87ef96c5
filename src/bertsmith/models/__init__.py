"""Bricks become encoders with heads."""
