"""Models in the formats of others become folders in the hub's layout, and back.

`recognising` detects the format; `fairseq` and `google` read theirs, the latter through
`tensor_bundle`, TensorFlow's checkpoints without TensorFlow. `pickled` weights are opened by
`unpickling`, a process of its own with limits. `staging` is what all conversions share.
"""
