"""Answers of language models, masked or left to right: tokens, words and texts, and their scores.

`cloze` gives the probabilities of tokens at masked positions. By it masks are filled (`fill_mask`),
with whole words of several pieces (`words`), texts are scored (`likelihood`) and written after
prompts (`generation`). `continuation` continues texts by models that read from left to right.
"""
