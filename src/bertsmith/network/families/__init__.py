"""The families: a module each, or a record beside that of the family it is a variant of.

The record has the sizes, the wiring and the heads.

`family` has the form of the record, `catalog` the table of them and of the published models. A
family is settings of the one encoder; docs/families.md explains how to add one.
"""
