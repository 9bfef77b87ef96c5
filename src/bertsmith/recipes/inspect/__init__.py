"""Looking inside a model: its attention over a corpus, as a page, figures and JSON.

`corpus` reads texts or a treebank as what the model reads; `recipe` has them inspected
(`analysis/inspection.py`) and writes what was found.
"""
