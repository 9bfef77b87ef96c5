"""The command `bertsmith`: a module a group of verbs; `command` makes typed functions of them.

`main` is the program and turns errors into exit statuses; `verbs` is the table of all verbs.
Reading options imports no torch.
"""
