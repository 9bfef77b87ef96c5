"""Recipes: functions that carry out whole runs.

A recipe joins the folders below it into a run with an output, a record and a report, and each verb
of the command line calls one. `pretrain`, `finetune`, `distil`, `predict`, `export` and `demo` have
folders; `vocabulary`, `extend`, `prepare`, `convert`, `embed`, `explain`, `inspect`, `quantize`,
`glue` and `push` are modules, whose options are in `config`. They share `cluster` and `resources`
(memory and disk). `loaded` is a model in Python.
"""
