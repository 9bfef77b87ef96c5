"""The families: a module each, with a record of its sizes, its wiring and its heads.

`family` has the form of the record, `catalog` the table of them and of the published models. A
family is settings of the one encoder; docs/families.md explains how to add one.
"""
