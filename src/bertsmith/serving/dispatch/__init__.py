"""From requests to workers.

The `gateway` puts the inputs of a request, one of its `jobs`, into the `queue`, bounded in tokens
and fair to small requests. It refuses those that could not be answered in time by the `throughput`
so far, and hands batches to the `workers`, which it replaces when they die; so is the process that
makes them. The queue counts tokens by an estimate from the length of a text, which each answer
corrects.
"""
