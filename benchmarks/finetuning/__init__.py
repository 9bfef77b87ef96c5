"""Both sides of the comparison of fine-tunings."""
