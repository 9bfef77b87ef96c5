"""Functions that carry out a whole run."""
