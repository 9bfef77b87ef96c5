"""From model folders to answers, in processes of their own.

`served` is what a folder becomes: its kind, and a handler for each of its tasks (`handlers`), which
knows its requests and answers. A `worker` encodes a batch while the engine computes the one
before. The `fork_server` opens the folders once and makes workers, which share what it opened.
"""
