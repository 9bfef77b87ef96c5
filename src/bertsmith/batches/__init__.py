"""Packed batches, from the token ids of a store or from encoded examples."""
