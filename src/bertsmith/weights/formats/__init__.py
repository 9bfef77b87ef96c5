"""The formats of model folders: a module each, with the names of settings and tensors on the hub.

`format` has the form of the record, and what most have in common; `catalog` has the table of them
and decides in which a model is saved.
"""
