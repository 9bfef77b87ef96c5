"""Predictions become numbers."""
