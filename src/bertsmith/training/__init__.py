"""The training loop and its parts: optimisers, schedule, batches, several ranks, saving."""
