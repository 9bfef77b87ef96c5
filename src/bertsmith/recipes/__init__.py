"""Recipes: functions that carry out whole runs."""
