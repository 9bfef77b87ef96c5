"""Token ids in a store become packed batches."""
