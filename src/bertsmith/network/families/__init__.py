"""The families: published sizes and wiring of the one encoder, a module each.

`catalog` lists them, and the published models by name.
"""
