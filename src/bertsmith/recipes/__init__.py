"""Recipes: functions that carry out whole runs.

A recipe joins the folders below it into a run with an output, a record and a report, and each verb
of the command line calls one. `pretrain`, `finetune`, `predict`, `glue` and `demo` have folders;
`vocabulary`, `extend`, `prepare`, `convert`, `embed`, `models` and `push` are modules. They share
`corpora` (opening text), `devices`, `room` (memory and disk) and `findings` (what a check says).
"""
