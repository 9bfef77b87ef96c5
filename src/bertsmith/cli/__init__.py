"""The command `bertsmith`: one table of verbs, each a config and a function of it.

`commands` is the table, `verbs` describes each verb and joins its config to its recipe, `command`
makes syntax, help and completion of configs, `config_files` reads files of options and prints them,
and `main` is the program, which turns errors into exit statuses. A verb imports its own config
alone, and reading options no torch: configs lie in modules called `config`, which do not know it.
"""
