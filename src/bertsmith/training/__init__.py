"""The training loop and its parts: optimisers, schedule, batches, several ranks, saving.

`loop` is the whole of it, for pre-training and fine-tuning alike: `loading` draws batches,
`stepping` makes one gradient of them, `optimisers` move the weights as `schedule` says, `measuring`
evaluates on the way, and `state` is all that changes from step to step. `run` keeps it on disk, and
`interruption` ends it on request. `distribution` and `replicas` share a step among ranks,
`processes` are workers, `precision` and `peak` are about speed.
"""
