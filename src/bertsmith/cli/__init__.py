"""The command `bertsmith`: one table of verbs, each a config and a function of it.

`commands` is the table, `command` makes syntax, help and completion of configs, `config_files`
reads files of options and prints them, and `main` is the program, which turns errors into exit
statuses. Reading options imports no torch: configs lie in modules called `config`, which do not
know it.
"""
