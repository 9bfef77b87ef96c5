"""The training loop and its parts: optimisers, schedule, batches, several ranks, checkpoints.

`loop` is the whole of it, for pre-training and fine-tuning alike: `loading` provides batches,
`gradients` computes the gradient of a step, `optimisers` update the weights as `schedule` says, and
`state` is all that changes from step to step, measured and saved on the way. `run_folder` keeps a
run on disk, with one owner at a time; `checkpoints` are written completely or not at all, and
reading falls back past a damaged one. `distribution` and `replicas` share a step among ranks,
`local` among processes of this machine, and `parallelism` changes between these and threads while a
run goes on; `processes` are workers, `threads` chooses how many compute, and `peak` is the speed of
the machine.
"""
