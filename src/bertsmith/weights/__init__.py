"""Models become folders in the ecosystem's own layout, and back."""
