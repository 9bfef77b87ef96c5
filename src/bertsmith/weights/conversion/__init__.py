"""Models in the formats of others become folders in the hub's layout, and back."""
