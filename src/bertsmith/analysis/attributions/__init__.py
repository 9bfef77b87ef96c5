"""Reasons for single answers.

`subjects` are the answers of a fine-tuned model that are to be explained: a class, the tag of a
word, the span that answers a question, each as a number that the words of one sequence lead to.
`attribution` shares this number out among the words, by gradients, by masking words, or by
following attention from the answer down to the words; `deletion` tests whether the words that are
said to matter do.
"""
