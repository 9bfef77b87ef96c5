"""The tasks that a model can be fine-tuned for, each a record of parts in a separate module.

A text is one step of the road: a `reader` yields rows, `answers` encodes them as sequences, an
engine function computes outputs with the `head`, `answers` decodes these, `present` shows them.
`learning` adds targets and an objective to encoded rows, `measuring` compares answers with labels.
`task` defines the record and its parts, `answering` binds it to an opened model for the engine's
`Predictor`, `table` lists the tasks by name and imports one on first access, `glue` has those
of GLUE. `rows` finds the task that a file is for.

Adding a task takes one module here, which builds a `Task`, and its name in `table`: the tests in
tests/contracts then hold for it too. Parts that several tasks share are functions and values, no
base classes: `whole_texts` (texts and pairs as units), `word_windows` (words that are tagged, at
their first pieces), `labels` (their order, weights of rare ones), `confidence` (answers withheld
below a probability, and sets that hold the right one), `config` (options of reading and answering).
`classify` is the simplest task to start from; `span`, whose texts are read in windows and whose
answers are spans of them, uses every part there is.
"""
