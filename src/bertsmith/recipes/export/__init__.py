"""Models for other runtimes: `bertsmith export`.

`recipe` is the run, with an int8 variant behind the gate of `bertsmith quantize`. `graph` computes
a model over padded batches, `program` writes that as a program of torch, as ONNX or for OpenVINO,
and `runtimes` runs what was written and compares it with the engine: an export that differs is
refused. `card` writes the README.md, and `config` has the options.
"""
