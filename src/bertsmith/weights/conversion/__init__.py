"""Models in the formats of others become folders in the hub's layout, and back.

`fairseq` and `google` read theirs, the latter through `tensor_bundle`, TensorFlow's checkpoints
without TensorFlow. `variants` are safetensors under other names than a model folder's. `pickled`
weights are opened by `unpickling`, a separate process with limits. `staging` is what all
conversions share.
"""
