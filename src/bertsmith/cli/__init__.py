"""The command `bertsmith`: a module a group of verbs; `command` makes typed functions of them."""
