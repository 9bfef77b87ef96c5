"""Models become answers: probabilities, tags, spans, fillings, vectors, continued texts.

Texts are packed to a budget of tokens, streams are taken in windows of bounded size (`sequences`),
and a text's answer does not depend on its neighbours beyond rounding. Nothing here knows of
training.
"""
