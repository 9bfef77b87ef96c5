"""Models become answers: probabilities, tags, spans, fillings, vectors, continued texts.

A `Predictor` joins a model with an `Answering`, the protocol by which an example is encoded and an
output decoded (`predictor`); `features` and the modules of `language_model` implement it here,
tasks implement it above. `answers` runs the heads. A model is made ready to answer (`prepared`):
its encoder is replaced by one with packed weights, computed by the native kernels (`native`) or by
torch (`prepacked`). Texts are packed to a budget of tokens, streams are taken in windows of bounded
size, and a text's answer does not depend on its neighbours beyond rounding. Nothing here knows of
training.
"""
