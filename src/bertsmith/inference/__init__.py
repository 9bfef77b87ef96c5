"""Models become answers."""
