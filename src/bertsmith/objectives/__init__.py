"""A model and a batch become losses."""
